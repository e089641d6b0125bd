%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenario `batch': what a message from one of many producers to one of many consumers
%% costs on this node.
%%
%% It runs in this VM, with all its schedulers. Producers send as fast as they can: each message
%% to the next consumer, which is the hardest for batches, or a run of messages to each in turn. A
%% round ends when the last consumer has its last message; what they got is added up and must be
%% right.
-module(erlane_bench_batch).
-behaviour(gen_server).

-export([run/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(PRODUCERS, 48).
-define(CONSUMERS, 48).
-define(RUN, 64).
-define(ROUND_MS, 60000).

-type contestant() :: plain | {batch, map()}.

-record(consumer, {inbox :: pid() | erlane_batch:inbox(), bench :: pid(),
                   left :: non_neg_integer(), sum = 0 :: non_neg_integer()}).

%% @doc Measures all cases. A case is `#{title, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("batch", #{only := Names, rounds := Rounds, messages := Messages}, _Config) ->
    Each = max(1, Messages div (?PRODUCERS * ?CONSUMERS * ?RUN)) * ?CONSUMERS * ?RUN,
    [rounds(Case, Each, Names, Rounds)
     || Case <- [{process, 1}, {server, 1}, {process, ?RUN}, {server, ?RUN}]].

rounds(Case, Each, Names, Rounds) ->
    Title = title(Case, Each),
    Measured = [[{Name, progress(Title, Name, fun() -> round(Case, start(Name), Each) end)}
                 || Name <- Names] || _ <- lists:seq(1, Rounds)],
    #{title => Title,
      rows => [#{name => list_to_binary(Name), status => ok,
                 rounds => [M || Round <- Measured, {N, M} <- Round, N =:= Name]}
               || Name <- Names]}.

title({Kind, Run}, Each) ->
    iolist_to_binary(io_lib:format("~b messages, ~b producers, ~b consumers, ~ts, ~ts",
                                   [Each * ?PRODUCERS, ?PRODUCERS, ?CONSUMERS,
                                    case Kind of
                                        process -> "plain processes";
                                        server -> "gen_servers"
                                    end,
                                    case Run of
                                        1 -> "each message to the next one";
                                        _ -> ["runs of ", integer_to_list(Run)]
                                    end])).

progress(Title, Name, Fun) ->
    io:put_chars(standard_error, ["  ", Title, ": ", Name, "\n"]),
    Fun().

-spec start(string()) -> contestant().
start("plain") -> plain;
start("batch") -> {batch, #{}};
start("batch-256") -> {batch, #{count => 256, bound => 16384}}.

%% Producers and consumers are new in each round: what one left in their heaps would be the next
%% one's to collect.
round({Kind, Run}, Contestant, Each) ->
    Bench = self(),
    Expected = Each * ?PRODUCERS div ?CONSUMERS,
    Consumers = [consumer(Kind, Contestant, Bench, Expected) || _ <- lists:seq(1, ?CONSUMERS)],
    Inboxes = list_to_tuple([receive {inbox, Pid, Inbox} -> Inbox end || Pid <- Consumers]),
    Producers = [spawn_link(fun() -> produce(Contestant, Run, Inboxes, Each) end)
                 || _ <- lists:seq(1, ?PRODUCERS)],
    {Cpu0, _} = erlang:statistics(runtime),
    Start = erlang:monotonic_time(),
    lists:foreach(fun(Pid) -> Pid ! go end, Producers),
    Sum = lists:sum([receive
                         {sum, Pid, S} -> S
                     after ?ROUND_MS ->
                             erlane_cli:fail("a consumer did not get all its messages", [])
                     end || Pid <- Consumers]),
    Ns = erlang:convert_time_unit(erlang:monotonic_time() - Start, native, nanosecond),
    {Cpu1, _} = erlang:statistics(runtime),
    Count = Each * ?PRODUCERS,
    Sum =:= ?PRODUCERS * Each * (Each + 1) div 2
        orelse erlane_cli:fail("the messages add up to ~b", [Sum]),
    #{ns => Ns / Count, rate => Count * 1.0e9 / Ns, cpu_ns => (Cpu1 - Cpu0) * 1.0e6 / Count}.

produce(Contestant, Run, Inboxes, Each) ->
    receive go -> ok end,
    case Contestant of
        plain when Run =:= 1 -> plain(1, Each, Inboxes);
        plain -> plain_runs(1, Each, Inboxes);
        {batch, _} when Run =:= 1 -> batched(1, Each, Inboxes);
        {batch, _} -> batched_runs(1, Each, Inboxes)
    end,
    %% Nothing, where nothing is buffered.
    erlane_batch:flush().

plain(_, 0, _) ->
    ok;
plain(I, N, Inboxes) ->
    element(I, Inboxes) ! {update, self(), N},
    plain(I rem ?CONSUMERS + 1, N - 1, Inboxes).

plain_runs(_, 0, _) ->
    ok;
plain_runs(I, N, Inboxes) ->
    Consumer = element(I, Inboxes),
    lists:foreach(fun(Message) -> Consumer ! Message end, run(N, N - ?RUN)),
    plain_runs(I rem ?CONSUMERS + 1, N - ?RUN, Inboxes).

batched_runs(_, 0, _) ->
    ok;
batched_runs(I, N, Inboxes) ->
    ok = erlane_batch:send_list(element(I, Inboxes), run(N, N - ?RUN)),
    batched_runs(I rem ?CONSUMERS + 1, N - ?RUN, Inboxes).

run(N, N) -> [];
run(N, End) -> [{update, self(), N} | run(N - 1, End)].

batched(_, 0, _) ->
    ok;
batched(I, N, Inboxes) ->
    ok = erlane_batch:send(element(I, Inboxes), {update, self(), N}),
    batched(I rem ?CONSUMERS + 1, N - 1, Inboxes).

%%
%% Consumers
%%

consumer(server, Contestant, Bench, Expected) ->
    {ok, Pid} = gen_server:start_link(?MODULE, {Contestant, Bench, Expected}, []),
    Pid;
consumer(process, Contestant, Bench, Expected) ->
    spawn_link(fun() ->
                       Inbox = inbox(Contestant, Bench),
                       Sum = consume(Inbox, Expected, 0),
                       Bench ! {sum, self(), Sum}
               end).

inbox(plain, Bench) ->
    Bench ! {inbox, self(), self()},
    self();
inbox({batch, Options}, Bench) ->
    {ok, Inbox} = erlane_batch:inbox(Options),
    Bench ! {inbox, self(), Inbox},
    Inbox.

consume(_, 0, Sum) ->
    Sum;
consume(Inbox, Left, Sum) ->
    receive
        {update, _, N} ->
            consume(Inbox, Left - 1, Sum + N);
        {erlane_batch, _, Messages} ->
            {Rest, New} = each(Messages, Left, Sum),
            ok = erlane_batch:done(Inbox, Messages),
            consume(Inbox, Rest, New)
    end.

each([{update, _, N} | Messages], Left, Sum) -> each(Messages, Left - 1, Sum + N);
each([], Left, Sum) -> {Left, Sum}.

-spec init({contestant(), pid(), pos_integer()}) -> {ok, #consumer{}}.
init({Contestant, Bench, Expected}) ->
    {ok, #consumer{inbox = inbox(Contestant, Bench), bench = Bench, left = Expected}}.

-spec handle_call(term(), gen_server:from(), #consumer{}) -> {noreply, #consumer{}}.
handle_call(_, _From, Consumer) ->
    {noreply, Consumer}.

-spec handle_cast(term(), #consumer{}) -> {noreply, #consumer{}}.
handle_cast(_, Consumer) ->
    {noreply, Consumer}.

-spec handle_info(term(), #consumer{}) ->
          {noreply, #consumer{}} | {stop, normal, #consumer{}}.
handle_info({update, _, N}, #consumer{left = Left, sum = Sum} = Consumer) ->
    ended(Consumer#consumer{left = Left - 1, sum = Sum + N});
handle_info({erlane_batch, _, Messages},
            #consumer{inbox = Inbox, left = Left, sum = Sum} = Consumer) ->
    {Rest, New} = each(Messages, Left, Sum),
    ok = erlane_batch:done(Inbox, Messages),
    ended(Consumer#consumer{left = Rest, sum = New}).

ended(#consumer{left = 0, bench = Bench, sum = Sum} = Consumer) ->
    Bench ! {sum, self(), Sum},
    {stop, normal, Consumer};
ended(Consumer) ->
    {noreply, Consumer}.
