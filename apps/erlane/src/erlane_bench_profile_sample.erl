%% SPDX-License-Identifier: Apache-2.0
%% @doc Of the scenario `profile': what mode sample costs a node with many processes, of which one
%% for each second scheduler is busy.
%%
%% In each round a window without it is before and another one after the window in which a profile
%% is taken, from its first request until its code has been purged there. The cost is what the busy
%% processes did less in this window than in the mean of its neighbours; with CPU time, what their
%% work took more.
-module(erlane_bench_profile_sample).

-export([cases/3, profile/2]).

-define(HZ, 100).
%% Times the length of other rounds: half a minute, of which what it takes once is a part (the VM
%% asks each process whether our code can go).
-define(ROUNDS, 3).
-define(LONGER, 15).
-define(CALL_MS, 120000).
-define(EVENTS, 100000000).

%% @doc The case of this part, if it is asked for.
-spec cases(Names :: [string()], Settings :: map(), erlane_bench_profile:vms()) -> [map()].
cases(Names, #{connections := [Processes | _], rounds := Rounds, round_ms := Ms}, Vms) ->
    case lists:member("sample", Names) of
        true -> [one_case(Processes, min(Rounds, ?ROUNDS), ?LONGER * Ms, Vms)];
        false -> []
    end.

one_case(Processes, Rounds, Ms, #{two := Target, viewer := Viewer}) ->
    Title = iolist_to_binary(io_lib:format("~b processes, one of two schedulers busy, mode sample "
                                           "at ~b Hz: cost, bar 2 %", [Processes, ?HZ])),
    io:format(standard_error, "~ts~n", [Title]),
    ok = on(Target, idle, [Processes]),
    ok = on(Target, busy, [1]),
    Runner = erlane_bench_turns:runner("sample", {ok, #{}}),
    Measure = fun(_) ->
                      erlane_bench_profile:answer(fun() -> round(Target, Viewer, Ms) end)
              end,
    [Done] = erlane_bench_turns:rounds(Rounds, "cost in %", Measure, [Runner]),
    ok = on(Target, rest, []),
    #{rounds := Both} = Row = erlane_bench_turns:row(Done),
    #{title => Title, main => cost,
      rows => [Row#{name := <<"none">>, status := ok, rounds := [None || #{none := None} <- Both]},
               Row#{rounds := [maps:remove(none, Round) || Round <- Both]}]}.

round(Target, Viewer, Ms) ->
    Idle = fun() -> timer:sleep(Ms div 2), #{} end,
    Before = window(Target, Idle),
    #{rate := Rate, cpu_ns := Cpu} = On =
        window(Target, fun() ->
                               Profile = erlane_bench_profile_node:call(
                                           Viewer, ?MODULE, profile,
                                           [maps:get(node, Target), Ms], ?CALL_MS + Ms),
                               ok = on(Target, forgotten, []),
                               Profile
                       end),
    After = window(Target, Idle),
    None = maps:map(fun(Key, Value) -> (Value + maps:get(Key, After)) / 2 end, Before),
    #{rate := Free, cpu_ns := FreeCpu} = None,
    Cost = 100 * (1 - Rate / Free),
    {ok, Cost, On#{cost => Cost, cpu_cost => 100 * (Cpu / FreeCpu - 1), none => None}}.

%% Units a second, and CPU time of the VM for each.
window(Target, Fun) ->
    Cpu = erlane_bench_profile_node:cpu_ns(Target),
    {Units, Begin} = on(Target, units, []),
    Told = Fun(),
    {UnitsAfter, End} = on(Target, units, []),
    CpuAfter = erlane_bench_profile_node:cpu_ns(Target),
    Done = UnitsAfter - Units,
    Told#{rate => Done * 1.0e9 / (End - Begin), cpu_ns => (CpuAfter - Cpu) / max(1, Done)}.

on(Target, Function, Args) ->
    erlane_bench_profile_node:call(Target, erlane_bench_profile_node, Function, Args, ?CALL_MS).

%% @doc In the viewer: takes a profile, and says how many samples it has.
-spec profile(node(), Ms :: pos_integer()) -> #{atom() => number()}.
profile(Node, Ms) ->
    {ok, Profile} = erlane_prof:run(#{mode => sample, node => Node, for => Ms, events => ?EVENTS,
                                      hz => ?HZ}),
    #{samples_s => erlane_prof_profile:total(Profile, samples) * 1.0e9 / maps:get(ns, Profile)}.
