%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios between nodes: `flood', `flood-fanout', `flood-latency', `flood-matrix'.
%%
%% Each contestant has VMs of its own (erlane_bench_flood_vms). All are started before the first
%% round and stay up; rounds go over all contestants, over and over. What a round does is in
%% erlane_bench_flood_load, which runs in the near VM; CPU time is read here, from both ends.
-module(erlane_bench_flood).

-export([run/3]).

-define(PREPARE_MS, 40000).
-define(ROUND_MS, 60000).
%% What is looked at under strace, which slows every call down.
-define(TRACED_MESSAGES, 20000).
-define(FAN, 1000).
%% Bytes and messages of one flood of the matrix.
-define(MATRIX_BYTES, 67108864).
-define(MATRIX_MESSAGES, 20000).
%% Small messages beside large ones: one each millisecond from each of these processes, so that
%% they are spread over the lanes of a router.
-define(SMALL_SENDERS, 8).
%% The highest rate of stock is looked for by halves; the last answer may be so late.
-define(SEARCH_MS, 1000).
-define(SEARCH_STEPS, 7).
-define(HIGHEST, 512000).
-define(LATE_MS, 70).

%% @doc Measures all cases. A case is `#{title, main, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run(Scenario, #{only := Names} = Settings, Config) ->
    #{program := Epmd} = Running = erlane_bench_vm:epmd(Config),
    try
        progress("  starting ~ts~n", [lists:join(", ", Names)]),
        Fars = case Scenario of
                   "flood-fanout" -> maps:get(far_nodes, Settings);
                   _ -> 1
               end,
        Started = erlane_bench_flood_vms:start(Names, Fars, Running, Config),
        try
            Parts = [{Name, Cluster} || {Name, {ok, Cluster}} <- Started],
            Rate = rate(Scenario, Settings, Parts),
            {Cases, _} = lists:mapfoldl(
                           fun(Case, All) -> one_case(Case, All, Settings, Config) end, Started,
                           cases(Scenario, Settings#{half_rate => Rate})),
            Cases
        after
            _ = [erlane_bench_flood_vms:stop(Cluster) || {_, {ok, Cluster}} <- Started]
        end
    after
        erlane_bench_os:stop(Epmd)
    end.

%%
%% Cases
%%

cases("flood", #{messages := N, payload := Sizes}) ->
    lists:append(
      [[#{title => text("~b messages~ts to one echo process and ~b answers", [N, of_size(Size), N]),
          load => flood, main => krate, syscalls => true, out => ["router-list"],
          spec => #{messages => N, payload => Size, receivers => 1}},
        #{title => text("~b messages~ts to ~b echo processes in turn and as many answers",
                        [N, of_size(Size), ?FAN]),
          load => flood, main => krate, syscalls => true,
          out => ["buffer", "delay_send", "tuned-boot", "tls", "carrier-socket", "lists"],
          spec => #{messages => N, payload => Size, receivers => ?FAN}}]
       || Size <- Sizes]);
cases("flood-fanout", #{far_nodes := Nodes, payload := Sizes}) ->
    [#{title => text("one message~ts to ~b processes on each of ~b node(s), ~ts",
                     [of_size(Size), Each, Fars, How]),
       load => Load, main => Main, fars => Fars,
       spec => #{payload => Size, receivers => Each}}
     || Size <- Sizes, {Fars, Each} <- [{1, ?FAN}, {Nodes, ?FAN div 10}],
        {Load, Main, How} <- [{fanout, rate, "50 under way"}, {single, p50_us, "one at a time"}]];
cases("flood-latency", #{half_rate := Rate, payload := [Size | _]}) ->
    [#{title => text("one message~ts and its answer at a time", [of_size(Size)]),
       load => lone, main => p50_us, spec => #{payload => Size, receivers => 1}},
     #{title => text("~b messages a second~ts and their answers", [Rate, of_size(Size)]),
       load => rate, main => p99_us,
       spec => #{payload => Size, receivers => 1, rate => Rate, senders => 1}},
     #{title => text("~b small messages a second and their answers, 10 MB messages beside them",
                     [?SMALL_SENDERS * 1000]),
       load => rate, main => p99_us,
       spec => #{payload => Size, receivers => 1, bulk => true,
                 rate => ?SMALL_SENDERS * 1000, senders => ?SMALL_SENDERS}}];
cases("flood-matrix", #{sizes := Sizes, senders := Senders, receivers := Receivers}) ->
    [#{title => text("~b sender(s), ~b receiver(s), one way", [S, R]),
       load => matrix, main => krate, sizes => Sizes,
       out => ["router-list" || R =:= 1],
       spec => #{receivers => R, senders => S, payload => 0}}
     || S <- Senders, R <- Receivers].

of_size(0) -> "";
of_size(Size) -> io_lib:format(" of ~b bytes", [Size]).

%% Half of what stock distribution keeps up with, unless a rate was asked for. Its rate in a flood
%% says nothing here: there it has always more to write, and writes it together.
rate("flood-latency", #{rate := Rate}, _) ->
    Rate;
rate("flood-latency", #{round_ms := Ms}, [{Name, Cluster} | _]) ->
    ok = prepare(Cluster, #{load => rate, spec => #{payload => 0, receivers => 1, senders => 1}}),
    Most = highest(Cluster, min(Ms, ?SEARCH_MS), 1000, ?HIGHEST, ?SEARCH_STEPS),
    {ok, _} = erlane_bench_flood_vms:ask(Cluster, release, ?PREPARE_MS),
    progress("  ~ts keeps up with ~b messages a second~n", [Name, Most]),
    max(1000, Most div 2000 * 1000);
rate(_, _, _) ->
    1000.

%% Between a rate that is kept up with and one that is not.
highest(_, _, Low, _, 0) ->
    Low;
highest(Cluster, Ms, Low, High, Steps) ->
    Middle = (Low + High) div 2,
    Go = {go, #{ms => Ms, rate => Middle}},
    case erlane_bench_flood_vms:ask(Cluster, Go, Ms + ?ROUND_MS) of
        {ok, #{ns := Ns}} when Ns =< (Ms + ?LATE_MS) * 1000000 ->
            highest(Cluster, Ms, Middle, High, Steps - 1);
        {ok, _} ->
            highest(Cluster, Ms, Low, Middle, Steps - 1)
    end.

%%
%% Rounds
%%

one_case(#{title := Title, main := Main} = Case, Started, Settings, Config) ->
    progress("~ts~n", [Title]),
    {Rows, Left} = lists:mapfoldl(fun(Variant, All) -> variant(Variant, All, Settings, Config) end,
                                  Started, variants(Case)),
    {#{title => Title, main => Main, rows => lists:append(Rows)}, Left}.

variant(#{group := Group, main := Main} = Case, Started, Settings, Config) ->
    #{rounds := Rounds, round_ms := Ms} = Settings,
    Runners = [ready(runner(Name, State, Case), Case) || {Name, State} <- Started,
                                                   not lists:member(Name, maps:get(out, Case, []))],
    Measured = erlane_bench_turns:rounds(Rounds, [Group, atom_to_list(Main)],
                                         fun(R) -> measure(R, Main, Ms) end, Runners),
    Done = [released(traced(R, Case, Config)) || R <- Measured],
    %% Who failed may be busy with it for long, and is not asked again.
    Failed = [{Name, {failed, Why}} || #{name := Name, status := <<"failed: ", Why/binary>>,
                                         cluster := Cluster} <- Done,
                                       erlane_bench_flood_vms:stop(Cluster) =:= ok],
    {[row(R, Group) || R <- Done],
     [{Name, proplists:get_value(Name, Failed, State)} || {Name, State} <- Started]}.

%% A case of the matrix is measured for one size after the other, and is one table.
variants(#{sizes := Sizes, spec := Spec} = Case) ->
    [Case#{group => text("~b B ", [Size]),
           spec := Spec#{payload := Size,
                         messages => max(16, min(?MATRIX_MESSAGES, ?MATRIX_BYTES div (Size + 1)))}}
     || Size <- Sizes];
variants(Case) ->
    [Case#{group => <<>>}].

runner(Name, {ok, Cluster}, Case) ->
    erlane_bench_turns:runner(Name, {ok, #{cluster => among(Cluster, Case)}});
runner(Name, Without, _) ->
    erlane_bench_turns:runner(Name, Without).

among(#{nodes := Nodes} = Cluster, #{fars := Fars}) ->
    Cluster#{nodes := lists:sublist(Nodes, Fars)};
among(Cluster, _) ->
    Cluster.

ready(#{status := ok, cluster := Cluster} = Runner, Case) ->
    case prepare(Cluster, Case) of
        ok -> Runner;
        {error, Why} -> erlane_bench_turns:fail(Why, Runner)
    end;
ready(Runner, _) ->
    Runner.

prepare(#{nodes := Nodes, way := Way} = Cluster, #{load := Load, spec := Spec}) ->
    Full = Spec#{far => Nodes, way => Way},
    case erlane_bench_flood_vms:ask(Cluster, {prepare, Load, Full}, ?PREPARE_MS) of
        {ok, ok} -> ok;
        {error, Why} -> {error, Why}
    end.

released(#{status := ok, cluster := Cluster} = Runner) ->
    case erlane_bench_flood_vms:ask(Cluster, release, ?PREPARE_MS) of
        {ok, ok} -> Runner;
        {error, Why} -> erlane_bench_turns:fail(Why, Runner)
    end;
released(Runner) ->
    Runner.

measure(#{cluster := Cluster}, Main, Ms) ->
    {Near, Far} = erlane_bench_flood_vms:cpu_ns(Cluster),
    case erlane_bench_flood_vms:ask(Cluster, {go, #{ms => Ms}}, Ms + ?ROUND_MS) of
        {ok, Result} ->
            {NearAfter, FarAfter} = erlane_bench_flood_vms:cpu_ns(Cluster),
            #{Main := Figure} = Round = figures(Result, NearAfter - Near, FarAfter - Far),
            {ok, Figure, Round};
        {error, Why} ->
            {error, Why}
    end.

figures(#{count := Count, ns := Ns} = Result, Near, Far) ->
    PerSecond = Count * 1.0e9 / Ns,
    Result#{rate => PerSecond, krate => PerSecond / 1000, per_minute => PerSecond * 60,
            cpu_us => (Near + Far) / 1000 / Count,
            near_us => Near / 1000 / Count, far_us => Far / 1000 / Count}.

%% A short flood under strace, whose calls are written to the last round.
traced(#{status := ok, name := Name, cluster := Cluster, rounds := Rounds} = Runner,
       #{syscalls := true}, Config) ->
    Flood = fun() ->
                    Short = #{ms => 1, messages => ?TRACED_MESSAGES},
                    case erlane_bench_flood_vms:ask(Cluster, {go, Short}, ?ROUND_MS) of
                        {ok, #{count := Count}} -> Count;
                        {error, _} -> 0
                    end
            end,
    case erlane_bench_strace:counted(erlane_bench_flood_vms:programs(Cluster), Config, Flood) of
        {ok, Calls} ->
            Last = maps:merge(lists:last(Rounds), maps:remove(by_name, Calls)),
            Runner#{rounds := lists:droplast(Rounds) ++ [Last]};
        {_, Why} ->
            progress("  system calls of ~ts are not counted: ~ts~n", [Name, Why]),
            Runner
    end;
traced(Runner, _, _) ->
    Runner.

row(Runner, Group) ->
    #{name := Name} = Row = erlane_bench_turns:row(Runner),
    Row#{name := <<Group/binary, Name/binary>>, group => Group, contestant => Name}.

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) ->
    io:format(standard_error, Format, Args).
