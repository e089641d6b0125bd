%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenario `shard': counters under keys, updated by many processes at once.
%%
%% It runs in this VM. A round is the time from the first update to the moment in which the last one
%% is done, wherever that is, as its process learns; then the counters are read, and have to be
%% exact. Rounds go over all contestants, over and over.
-module(erlane_bench_shard).
-behaviour(gen_server).

-export([run/3]).
-export([init/1, handle_call/3, handle_cast/2]).

-define(PROCESSES, 100).
-define(KEYS, [1, 100, 10000]).
-define(STEP, 1000).
-define(SET, erlane_bench_shards).
%% After so many casts a process asks, as senders to shards do.
-define(BOUND, 200).

%% @doc Measures all cases. A case is `#{title, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("shard", #{only := Names, rounds := Rounds} = Settings, _Config) ->
    [begin
         Started = [{Name, start(Name, Keys)} || Name <- Names],
         try
             Measured = [[{Name, round(Title, Name, Way, Keys, Settings)}
                          || {Name, Way} <- Started] || _ <- lists:seq(1, Rounds)],
             #{title => Title,
               rows => [#{name => list_to_binary(Name), status => ok,
                          rounds => [M || Round <- Measured, {N, M} <- Round, N =:= Name]}
                        || Name <- Names]}
         after
             lists:foreach(fun({_, #{stop := Stop}}) -> _ = Stop(), ok end, Started)
         end
     end || Keys <- ?KEYS, Title <- [title(Keys)]].

title(1) -> <<"one key, 100 processes">>;
title(Keys) -> iolist_to_binary(io_lib:format("~b keys, 100 processes", [Keys])).

%% A contestant: what a process begins with, one step of it, its end; the sum of all counters when
%% everything is done; the end of it all.
start("counters", Keys) ->
    Ref = counters:new(Keys, [write_concurrency]),
    stateless(fun(Key) -> counters:add(Ref, Key, 1) end,
              fun() -> lists:sum([counters:get(Ref, Key) || Key <- lists:seq(1, Keys)]) end,
              fun() -> ok end);
start("ets-plain", Keys) -> table([], Keys);
start("ets", Keys) -> table([{write_concurrency, true}], Keys);
start("ets-auto", Keys) -> table([{write_concurrency, auto}], Keys);
start("ets-decentralized", Keys) ->
    table([{write_concurrency, auto}, {decentralized_counters, true}], Keys);
start("ets-per-scheduler", Keys) ->
    Tables = list_to_tuple([new([{write_concurrency, true}], Keys)
                            || _ <- lists:seq(1, erlang:system_info(schedulers))]),
    stateless(fun(Key) ->
                      Table = element(erlang:system_info(scheduler_id), Tables),
                      ets:update_counter(Table, Key, 1)
              end,
              fun() -> lists:sum([sum(Table) || Table <- tuple_to_list(Tables)]) end,
              fun() -> [ets:delete(Table) || Table <- tuple_to_list(Tables)] end);
start("gen_server", _) ->
    {ok, Pid} = gen_server:start_link(?MODULE, [], []),
    #{first => fun() -> ?BOUND end,
      step => fun(Key, 0) -> gen_server:call(Pid, {add, Key}, infinity), ?BOUND;
                 (Key, Left) -> ok = gen_server:cast(Pid, {add, Key}), Left - 1
              end,
      last => fun(_) -> gen_server:call(Pid, done, infinity) end,
      sum => fun() -> gen_server:call(Pid, sum, infinity) end,
      stop => fun() -> gen_server:stop(Pid) end};
start("bare", _) ->
    %% What one message costs with nothing around it.
    Pids = list_to_tuple([spawn_opt(fun() -> bare(0) end, [link, {message_queue_data, off_heap}])
                          || _ <- lists:seq(1, erlang:system_info(schedulers))]),
    Sums = fun() -> lists:sum([ask_bare(Pid) || Pid <- tuple_to_list(Pids)]) end,
    #{first => fun() -> ?BOUND end,
      step => fun(Key, Left) ->
                      _ = Left > 0 orelse Sums(),
                      element(1 + Key rem tuple_size(Pids), Pids) ! 1,
                      case Left of 0 -> ?BOUND - 1; _ -> Left - 1 end
              end,
      last => fun(_) -> Sums() end,
      sum => Sums,
      stop => fun() -> [Pid ! stop || Pid <- tuple_to_list(Pids)] end};
start("shards", _) ->
    Set = set("shards"),
    #{first => fun() -> none end,
      step => fun(Key, none) -> ok = erlane_shard:add(Set, Key, 1), none end,
      last => fun(none) -> erlane_shard:sync(Set) end,
      sum => fun() -> shards(Set) end,
      stop => fun() -> erlane_shard:stop(Set) end};
start("shards-buffer", _) ->
    Set = set("shards-buffer"),
    #{first => fun() -> erlane_shard_buffer:new(Set, #{max_age => infinity}) end,
      step => fun(Key, Buffer) -> erlane_shard_buffer:add(Buffer, Key, 1) end,
      last => fun(Buffer) ->
                      _ = erlane_shard_buffer:flush(Buffer),
                      erlane_shard:sync(Set)
              end,
      sum => fun() -> shards(Set) end,
      stop => fun() -> erlane_shard:stop(Set) end}.

bare(Sum) ->
    receive
        N when is_integer(N) -> bare(Sum + N);
        {sum, Ref} -> Ref ! {Ref, Sum}, bare(Sum);
        stop -> ok
    end.

ask_bare(Pid) ->
    Ref = erlang:monitor(process, Pid, [{alias, reply_demonitor}]),
    Pid ! {sum, Ref},
    receive {Ref, Sum} -> Sum end.

stateless(Step, Sum, Stop) ->
    #{first => fun() -> none end, step => fun(Key, none) -> _ = Step(Key), none end,
      last => fun(none) -> ok end, sum => Sum, stop => Stop}.

table(Options, Keys) ->
    Table = new(Options, Keys),
    stateless(fun(Key) -> ets:update_counter(Table, Key, 1) end, fun() -> sum(Table) end,
              fun() -> ets:delete(Table) end).

new(Options, Keys) ->
    Table = ets:new(?MODULE, [public | Options]),
    true = ets:insert(Table, [{Key, 0} || Key <- lists:seq(1, Keys)]),
    Table.

sum(Table) -> ets:foldl(fun({_, N}, Sum) -> Sum + N end, 0, Table).

set(Name) ->
    Set = list_to_atom(atom_to_list(?SET) ++ "_" ++ Name),
    {ok, _} = erlane_shard:start_link(Set, #{bound => ?BOUND}),
    Set.

shards(Set) -> lists:sum(maps:values(erlane_shard:snapshot(Set))).

%%
%% A round
%%

round(Title, Name, #{sum := Sum} = Way, Keys, #{round_ms := Ms}) ->
    io:put_chars(standard_error, ["  ", Title, ": ", Name, "\n"]),
    Before = Sum(),
    Self = self(),
    Unit = erlang:convert_time_unit(Ms, millisecond, native),
    Processes = [spawn_monitor(fun() ->
                                       Deadline = receive {go, Now} -> Now + Unit end,
                                       Self ! {self(), updates(I, Keys, Way, Deadline)}
                               end) || I <- lists:seq(1, ?PROCESSES)],
    Start = erlang:monotonic_time(),
    {Cpu, _} = statistics(runtime),
    lists:foreach(fun({Pid, _}) -> Pid ! {go, Start} end, Processes),
    Count = lists:sum([receive
                           {Pid, N} -> erlang:demonitor(Ref, [flush]), N;
                           {'DOWN', Ref, _, _, Why} -> erlane_cli:fail("ended: ~tp", [Why])
                       end || {Pid, Ref} <- Processes]),
    Ns = erlang:convert_time_unit(erlang:monotonic_time() - Start, native, nanosecond),
    {CpuAfter, _} = statistics(runtime),
    After = Sum(),
    After - Before =:= Count
        orelse erlane_cli:fail("~ts counted ~b of ~b updates", [Name, After - Before, Count]),
    #{ns => Ns / Count, cpu_ns => (CpuAfter - Cpu) * 1.0e6 / Count, rate => Count * 1.0e9 / Ns}.

%% Looks at the clock after every thousand updates. The keys go round, each process beginning with
%% another one.
updates(I, Keys, #{first := First, step := Step, last := Last}, Deadline) ->
    From = I * Keys div ?PROCESSES,
    updates(From, Keys, Step, Last, First(), Deadline, 0).

updates(Key, Keys, Step, Last, State, Deadline, Count) ->
    {Next, New} = steps(?STEP, Key, Keys, Step, State),
    case erlang:monotonic_time() of
        Now when Now < Deadline -> updates(Next, Keys, Step, Last, New, Deadline, Count + ?STEP);
        _ -> _ = Last(New), Count + ?STEP
    end.

steps(0, Key, _, _, State) -> {Key, State};
steps(N, Key, Keys, Step, State) when Key >= Keys ->
    steps(N - 1, 1, Keys, Step, Step(1, State));
steps(N, Key, Keys, Step, State) ->
    steps(N - 1, Key + 1, Keys, Step, Step(Key + 1, State)).

%%
%% The one process
%%

%% @private
-spec init([]) -> {ok, #{pos_integer() => pos_integer()}}.
init([]) -> {ok, #{}}.

%% @private
-spec handle_call({add, pos_integer()} | done | sum, gen_server:from(), map()) ->
          {reply, term(), map()}.
handle_call({add, Key}, _From, Counts) -> {reply, ok, add(Key, Counts)};
handle_call(done, _From, Counts) -> {reply, ok, Counts};
handle_call(sum, _From, Counts) -> {reply, lists:sum(maps:values(Counts)), Counts}.

%% @private
-spec handle_cast({add, pos_integer()}, map()) -> {noreply, map()}.
handle_cast({add, Key}, Counts) -> {noreply, add(Key, Counts)}.

add(Key, Counts) ->
    case Counts of
        #{Key := N} -> Counts#{Key := N + 1};
        _ -> Counts#{Key => 1}
    end.
