%% SPDX-License-Identifier: Apache-2.0
%% @doc Of the scenario `profile': what it costs a program to have each of its calls traced, and
%% what it takes to make a profile of that.
%%
%% In a turn all processes of the program do a fixed number of calls while the trace is on; its
%% figure is the time until the last has done its own, so `this / none' is how much slower the
%% program is. As a file port writes later what a program has done earlier, CPU time stands beside
%% it: of the whole turn, until all is written and what traces has left.
-module(erlane_bench_profile_trace).

-export([cases/3, traced/3, back_ends/0, ended/1]).
-export([eep_begin/1, eep_end/0, fprof_begin/2, fprof_end/0]).

-define(CALL_MS, 300000).
-define(FOR_MS, 60000).
-define(EVENTS, 1000000000).
-define(PROGRAM, erlane_bench_profile_program).
-define(EEP_FLAGS, [call, timestamp, return_to, arity, running]).

%% @doc The ways in which mode trace can follow calls, and their options of erlane_prof:run/1.
-spec back_ends() -> [{string(), map()}].
back_ends() -> [{"trace-port", #{tracer => port}}, {"trace-native", #{tracer => native}}].

%% @doc The cases of this part: one process on one core, and one for each of two schedulers.
-spec cases(Names :: [string()], Settings :: map(), erlane_bench_profile:vms()) -> [map()].
cases(Names, Settings, Vms) ->
    case [N || N <- Names, lists:member(N, ["trace-port", "trace-native", "eep", "fprof"])] of
        [] -> [];
        Traced ->
            #{one := One, two := Two} = Vms,
            [one_case(<<"each call of a program traced, one process on one core: ",
                        "bars this / eep 0.5, this / fprof 0.1">>,
                      ["none" | Traced], 1, One, Settings, Vms),
             one_case(<<"the same, two processes on two schedulers with all cores">>,
                      ["none" | Traced], 2, Two, Settings, Vms)]
    end.

one_case(Title, Names, Workers, Target, #{rounds := Rounds, messages := Messages, tmp := Tmp},
         #{viewer := Viewer}) ->
    io:format(standard_error, "~ts~n", [Title]),
    ok = on(Target, erlane_bench_profile_node, workers, [Workers]),
    Each = on(Target, erlane_bench_profile_node, calls, []),
    Units = max(1, Messages div (Workers * Each)),
    Turn = #{target => Target, viewer => Viewer, workers => Workers, units => Units,
             calls => Workers * Units * Each, file => filename:join(Tmp, "profile.trace")},
    Runners = [erlane_bench_turns:runner(Name, {ok, #{}}) || Name <- Names],
    Measure = fun(Runner) -> erlane_bench_profile:answer(fun() -> turn(Runner, Turn) end) end,
    Done = erlane_bench_turns:rounds(Rounds, "ns for each call", Measure, Runners),
    ok = on(Target, erlane_bench_profile_node, rest, []),
    #{title => Title, main => ns, rows => [erlane_bench_profile:row(R) || R <- Done]}.

turn(#{name := Name}, #{target := Target, calls := Calls} = Turn) ->
    Cpu = erlane_bench_profile_node:cpu_ns(Target),
    #{work_ns := Ns} = Told = turn(Name, Turn),
    Used = erlane_bench_profile_node:cpu_ns(Target) - Cpu,
    Figure = Ns / Calls,
    {ok, Figure, (converted(Name, maps:remove(work_ns, Told), Turn))#{ns => Figure,
                                                                     cpu_ns => Used / Calls}};
turn("none", #{target := Target} = Turn) ->
    %% Without a trace it is over in no time: as often as it is slower with one.
    #{workers := Workers, units := Units} = Turn,
    #{work_ns => on(Target, erlane_bench_profile_node, go, [Workers, 50 * Units]) / 50};
turn("eep", #{target := Target, file := File} = Turn) ->
    ok = on(Target, ?MODULE, eep_begin, [File]),
    Ns = go(Turn),
    ok = on(Target, ?MODULE, eep_end, []),
    #{work_ns => Ns, mb => filelib:file_size(File) / 1.0e6};
turn("fprof", #{target := Target, file := File, workers := Workers} = Turn) ->
    ok = on(Target, ?MODULE, fprof_begin, [File, Workers]),
    Ns = go(Turn),
    ok = on(Target, ?MODULE, fprof_end, []),
    ok = file:delete(File),
    #{work_ns => Ns};
turn(Name, #{target := #{node := Node}, viewer := Viewer, workers := Workers, units := Units,
             calls := Calls}) ->
    {Name, Options} = lists:keyfind(Name, 1, back_ends()),
    Told = on(Viewer, ?MODULE, traced, [Node, Options, {Workers, Units}]),
    #{calls := Seen} = Told,
    (maps:remove(calls, Told))#{lost => Calls - Seen}.

go(#{target := Target, workers := Workers, units := Units}) ->
    on(Target, erlane_bench_profile_node, go, [Workers, Units]).

%% The file of EEP is read after its turn.
converted("eep", Round, #{viewer := Viewer, file := File, calls := Calls}) ->
    {Events, Seen, Ns} = on(Viewer, erlane_bench_profile_convert, file, [File]),
    ok = file:delete(File),
    Round#{lost => Calls - Seen, converted_s => Events * 1.0e9 / Ns};
converted(_, Round, _) ->
    Round.

on(Vm, M, F, A) -> erlane_bench_profile_node:call(Vm, M, F, A, ?CALL_MS).

%%
%% Within the viewer
%%

%% @doc Traces workers of a node until they have done their units.
-spec traced(node(), Options :: map(), {Workers :: pos_integer(), Units :: pos_integer()}) ->
          #{atom() => number()} | {error, string()}.
traced(Node, Options, {Workers, Units}) ->
    Go = fun(#{read := Read}) -> reading(Read);
            (#{}) -> work(Node, Workers, Units)
         end,
    case ended(erlane_prof:run(Options#{mode => trace, node => Node, for => ?FOR_MS,
                                        events => ?EVENTS, progress => Go,
                                        functions => [?PROGRAM]})) of
        {Events, Bytes, Profile} ->
            Ns = erlang:monotonic_time(nanosecond) - erase(reading),
            #{work_ns => erase(work_ns), calls => erlane_prof_profile:total(Profile, calls),
              mb => Bytes / 1.0e6, converted_s => Events * 1.0e9 / Ns};
        Error ->
            Error
    end.

%% The first piece has come.
reading(_) ->
    _ = get(reading) =:= undefined andalso put(reading, erlang:monotonic_time(nanosecond)),
    continue.

%% What is done after the trace had ended by itself is not traced, and shows as lost.
work(Node, Workers, Units) ->
    _ = get(work_ns) =:= undefined
        andalso put(work_ns, erpc:call(Node, erlane_bench_profile_node, go, [Workers, Units])),
    stop.

%% @doc Events and bytes of a trace as its notes tell them, and the profile.
-spec ended({ok, erlane_prof_profile:profile()} | {error, erlane_prof:error()}) ->
          {Events :: non_neg_integer(), Bytes :: non_neg_integer(), erlane_prof_profile:profile()}
              | {error, string()}.
ended({ok, #{notes := Notes} = Profile}) ->
    [[Events, Bytes] | _] =
        [Numbers || Note <- Notes,
                    {match, Numbers} <- [re:run(Note, "^([0-9]+) events in ([0-9]+) bytes",
                                                [{capture, all_but_first, binary}])]],
    {binary_to_integer(Events), binary_to_integer(Bytes), Profile};
ended({error, Why}) ->
    {error, erlane_prof:format_error(Why)}.

%%
%% Within the VM that is traced
%%

%% @doc Traces the program as EEP would, with modules named. The port belongs to the caller.
-spec eep_begin(file:filename()) -> ok.
eep_begin(File) ->
    %% By name, as in the following: the command does without these applications.
    Dbg = dbg,
    Port = (Dbg:trace_port(file, File))(),
    undefined = put(?MODULE, Port),
    _ = erlang:trace_pattern({?PROGRAM, '_', '_'}, [], [local]),
    _ = erlang:trace(all, true, [{tracer, Port} | ?EEP_FLAGS]),
    ok.

%% @doc Ends it, and waits until the file is written.
-spec eep_end() -> ok.
eep_end() ->
    Port = erase(?MODULE),
    Ref = monitor(port, Port),
    _ = erlang:trace(all, false, ?EEP_FLAGS),
    Delivered = erlang:trace_delivered(all),
    receive {trace_delivered, all, Delivered} -> ok end,
    _ = erlang:trace_pattern({?PROGRAM, '_', '_'}, false, [local]),
    true = port_close(Port),
    receive {'DOWN', Ref, port, Port, _} -> ok end.

%% @doc Traces workers as fprof does, which takes all functions of the node.
-spec fprof_begin(file:filename(), Workers :: pos_integer()) -> ok | {error, string()}.
fprof_begin(File, Workers) ->
    Fprof = fprof,
    case code:ensure_loaded(Fprof) of
        {module, _} ->
            Fprof:trace([start, {file, File}, {procs, [erlane_bench_profile_node:worker(I)
                                                       || I <- lists:seq(1, Workers)]}]);
        {error, _} ->
            {error, "not installed: apt-get install erlang-tools"}
    end.

%% @doc Ends it, and waits until the file is written.
-spec fprof_end() -> ok.
fprof_end() ->
    Fprof = fprof,
    ok = Fprof:trace(stop),
    Fprof:stop().
