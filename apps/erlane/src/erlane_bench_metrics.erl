%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenario `metrics': what an update costs the process that makes it.
%%
%% It runs in this VM, whose schedulers do not spin, for the counters of a node are in it. Writers
%% are on schedulers of their own and update one and the same key. Rounds go over all contestants,
%% over and over; the figure is the time of one update as its writer sees it.
-module(erlane_bench_metrics).

-export([run/3]).

-define(BATCH, 1000).
%% The test of the talk that MZMETRICS was shown with.
-define(TALK_UPDATES, 1000000).
-define(TALK_PROCESSES, 48).
-define(KEY, erlane_bench).

%% @doc Measures all cases. A case is `#{title, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("metrics", #{only := Names} = Settings, _Config) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Started = [{Name, start(Name)} || Name <- Names],
    Writers = [N || N <- [1, 2], N =< erlang:system_info(schedulers_online)],
    try
        [rounds(text("~b writer(s), one key", [N]), Started, Settings,
                fun(Step) -> writers(N, Step, Settings) end) || N <- Writers]
            ++ [rounds(text("~b updates of one key by ~b processes",
                            [?TALK_UPDATES, ?TALK_PROCESSES]), Started, Settings, fun talk/1)]
    after
        _ = [stop(Name) || {Name, {ok, _}} <- Started]
    end.

rounds(Title, Started, #{rounds := Rounds}, Measure) ->
    Measured = [[{Name, progress(Title, Name, fun() -> Measure(Step) end)}
                 || {Name, {ok, Step}} <- Started] || _ <- lists:seq(1, Rounds)],
    #{title => Title,
      rows => [#{name => list_to_binary(Name),
                 status => case State of {ok, _} -> ok; Why -> Why end,
                 rounds => [M || Round <- Measured, {N, M} <- Round, N =:= Name]}
               || {Name, State} <- Started]}.

progress(Title, Name, Fun) ->
    io:put_chars(standard_error, ["  ", Title, ": ", Name, "\n"]),
    Fun().

%% A contestant is a function that makes as many updates as it is told.
start("counters") ->
    Ref = counters:new(1, [write_concurrency]),
    {ok, fun(N) -> add(N, Ref) end};
start("atomics") ->
    Ref = atomics:new(1, []),
    {ok, fun(N) -> bump(N, Ref) end};
start("ets") ->
    Table = ets:new(?MODULE, [public, {write_concurrency, true}]),
    true = ets:insert(Table, {?KEY, 0}),
    {ok, fun(N) -> update(N, Table) end};
start("counter") ->
    Handle = erlane_metrics:handle(erlane_metrics:counter(#{name => <<"erlane_bench_counter">>,
                                                            help => <<"Bench">>}), []),
    {ok, fun(N) -> inc(N, Handle) end};
start("histogram") ->
    Family = erlane_metrics:histogram(#{name => <<"erlane_bench_histogram">>,
                                        help => <<"Bench">>}),
    Handle = erlane_metrics:handle(Family, []),
    {ok, fun(N) -> observe(N, Handle) end};
start("folsom-" ++ Type) ->
    Folsom = folsom_metrics,
    case {application:ensure_all_started(folsom), Type} of
        {{ok, _}, "counter"} ->
            ok = Folsom:new_counter(erlane_bench_counter),
            {ok, fun(N) -> notify(N, Folsom, erlane_bench_counter) end};
        {{ok, _}, "histogram"} ->
            ok = Folsom:new_histogram(erlane_bench_histogram),
            {ok, fun(N) -> sample(N, Folsom, erlane_bench_histogram) end};
        {{error, _}, _} ->
            <<"not installed: apt-get install erlang-folsom">>
    end.

%% Those of ours go with the VM, as the ets table does with its process.
stop("folsom-counter") -> Folsom = folsom_metrics, Folsom:delete_metric(erlane_bench_counter);
stop("folsom-histogram") ->
    Folsom = folsom_metrics,
    Folsom:delete_metric(erlane_bench_histogram);
stop(_) -> ok.

add(0, _) -> ok;
add(N, Ref) -> counters:add(Ref, 1, 1), add(N - 1, Ref).

bump(0, _) -> ok;
bump(N, Ref) -> atomics:add(Ref, 1, 1), bump(N - 1, Ref).

update(0, _) -> ok;
update(N, Table) -> _ = ets:update_counter(Table, ?KEY, 1), update(N - 1, Table).

inc(0, _) -> ok;
inc(N, Handle) -> ok = erlane_metrics:inc(Handle), inc(N - 1, Handle).

%% Values of all magnitudes up to a millisecond.
observe(0, _) -> ok;
observe(N, Handle) -> ok = erlane_metrics:observe(Handle, value(N)), observe(N - 1, Handle).

%% The way of folsom's that looks up least.
notify(0, _, _) -> ok;
notify(N, Folsom, Name) ->
    ok = Folsom:notify_existing_metric(Name, {inc, 1}, counter),
    notify(N - 1, Folsom, Name).

sample(0, _, _) -> ok;
sample(N, Folsom, Name) ->
    ok = Folsom:notify_existing_metric(Name, value(N), histogram),
    sample(N - 1, Folsom, Name).

value(N) -> (N * 7919) band 16#fffff.

%% Each writer goes on for the time of a round, looking at the clock every thousand updates.
writers(Writers, Step, #{round_ms := Ms}) ->
    Unit = erlang:convert_time_unit(Ms, millisecond, native),
    Results = together([fun() ->
                                Start = erlang:monotonic_time(),
                                {Count, End} = until(Start + Unit, Step, 0),
                                {Count, End - Start}
                        end || _ <- lists:seq(1, Writers)], pinned),
    Count = lists:sum([C || {C, _} <- Results]),
    Ns = erlang:convert_time_unit(lists:sum([T || {_, T} <- Results]), native, nanosecond),
    #{ns => Ns / Count, rate => Count * Writers * 1.0e9 / Ns}.

until(Deadline, Step, Count) ->
    ok = Step(?BATCH),
    case erlang:monotonic_time() of
        Now when Now < Deadline -> until(Deadline, Step, Count + ?BATCH);
        Now -> {Count + ?BATCH, Now}
    end.

%% From the first start to the last end, for each update.
talk(Step) ->
    Each = ?TALK_UPDATES div ?TALK_PROCESSES,
    Results = together([fun() ->
                                Start = erlang:monotonic_time(),
                                ok = Step(Each),
                                {Start, erlang:monotonic_time()}
                        end || _ <- lists:seq(1, ?TALK_PROCESSES)], free),
    {Starts, Ends} = lists:unzip(Results),
    Ns = erlang:convert_time_unit(lists:max(Ends) - lists:min(Starts), native, nanosecond),
    Count = Each * ?TALK_PROCESSES,
    #{ns => Ns / Count, rate => Count * 1.0e9 / Ns}.

%% All begin when all are there.
together(Funs, How) ->
    Self = self(),
    Pids = [spawn_opt(fun() -> receive go -> Self ! {self(), Fun()} end end,
                      [monitor | place(I, How)])
            || {I, Fun} <- lists:zip(lists:seq(1, length(Funs)), Funs)],
    lists:foreach(fun({Pid, _}) -> Pid ! go end, Pids),
    [receive
         {Pid, Result} -> erlang:demonitor(Monitor, [flush]), Result;
         {'DOWN', Monitor, process, Pid, Why} -> erlane_cli:fail("a writer ended: ~tp", [Why])
     end || {Pid, Monitor} <- Pids].

place(I, pinned) -> [{scheduler, I}];
place(_, free) -> [].

text(Format, Args) -> iolist_to_binary(io_lib:format(Format, Args)).
