%% SPDX-License-Identifier: Apache-2.0
%% Taking a profile: what it says of processes whose doings are known, and what is left of it.
-module(erlane_prof_run_SUITE).

-import(erlane_prof_ct, [agents/2, call/4, long_call/1, until/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([shares/1, waiting/1, sleeper_is_asked_once/1, native_call/1, short_lived/1,
         large_dictionary/1, many_processes/1, procs/1, deep/1, events_limit/1, asked_to_stop/1,
         own_share/1, first_allowance/1, overload/1, depth_restored/1, depth_of_others_stays/1,
         two_at_once/1, options/1]).
-export([as_code/1, as_forms/1]).
-export([calls/1, calls_limit/1, calls_of_some/1, words/1, others_trace/1, counters_off/1,
         no_functions/1]).
-export([work/1, spin/1, three/1, one/1, sleep/0]).

-define(WAIT_MS, 20000).
-define(COOKIE, erlane_prof_run_test).
-define(EVENTS, 1000000).

all() ->
    [{group, here}, {group, there}, {group, counts}, options].

groups() ->
    [{here, [], [shares, waiting, sleeper_is_asked_once, native_call, short_lived,
                 large_dictionary, many_processes, procs, deep, events_limit, asked_to_stop,
                 own_share, first_allowance, overload, depth_restored, depth_of_others_stays,
                 two_at_once]},
     {there, [], [as_code, as_forms]},
     {counts, [], [calls, calls_limit, calls_of_some, words, others_trace, counters_off,
                   no_functions]}].

init_per_suite(Config) -> erlane_prof_ct:init_suite(?COOKIE, Config).

end_per_suite(_Config) -> erlane_prof_ct:end_suite().

init_per_testcase(Case, Config) ->
    erlane_prof_ct:init_there(Case, groups(), ?COOKIE, Config).

end_per_testcase(_Case, Config) -> erlane_prof_ct:end_case(Config).

%%% Here

%% Of two functions one has three times the work: it has three fourths of the time on a
%% processor, whether that is seen as running or as ready to run. Three attempts: other work on the
%% machine may take the processor away for longer from one than from the other.
shares(_Config) ->
    Busy = spin(prof_run_busy),
    try shares_seen(3)
    after stop(Busy)
    end.

shares_seen(Attempts) ->
    {ok, Profile} = run(#{for => 2000}),
    Mine = erlane_prof_profile:filter(Profile, #{proc => [<<"prof_run_busy">>]}),
    On = erlane_prof_profile:filter(Mine, #{state => [running, runnable, gc]}),
    Total = erlane_prof_profile:total(On, wall),
    Three = self_of({?MODULE, three, 1}, On),
    One = self_of({?MODULE, one, 1}, On),
    %% It never waits, and each moment of it is somewhere.
    ?assertEqual([], [S || {waiting, _} = S <- erlane_prof_profile:sums(Mine, wall, state)]),
    #{ns := Ns} = Profile,
    ?assert(abs(erlane_prof_profile:total(Mine, wall) / Ns - 1) < 0.2, {Total, Ns}),
    ?assertMatch(#{rows := [#{stack := [{?MODULE, spin, 1, _, Line} | _]} | _]} when Line > 0, On),
    %% On a machine with other work there are few looks, which tell little.
    Few = 2 * math:sqrt(0.19 / max(1, erlane_prof_profile:total(Mine, samples))),
    case abs(Three / Total - 0.75) < 0.12 + Few andalso abs(One / Total - 0.25) < 0.12 + Few of
        true -> ok;
        false when Attempts > 1 -> shares_seen(Attempts - 1);
        false -> ct:fail({Three, One, Total, Few})
    end.

%% A process that waits all the time is seen as that, where it waits, under its name.
waiting(_Config) ->
    Pid = spawn_link(?MODULE, sleep, []),
    true = register(prof_run_sleeper, Pid),
    {ok, #{ns := Ns} = Profile} = run(#{for => 1000}),
    stop(Pid),
    #{rows := Rows} = erlane_prof_profile:filter(Profile, #{proc => [<<"prof_run_sleeper">>]}),
    [#{state := waiting, stack := [{?MODULE, sleep, 0, _, _}], values := [Wall, Samples]}] =
        [R || #{stack := [{_, _, _, _, _} | _]} = R <- Rows],
    ?assert(abs(Wall / Ns - 1) < 0.2, {Wall, Ns}),
    ?assert(Samples > 2).

%% Its stack is asked for once; after that it is left alone.
sleeper_is_asked_once(_Config) ->
    Pid = spawn_link(?MODULE, sleep, []),
    {reductions, Before} = process_info(Pid, reductions),
    {ok, Short} = run(#{for => 300, procs => [Pid]}),
    {reductions, Once} = process_info(Pid, reductions),
    {ok, Long} = run(#{for => 1500, procs => [Pid]}),
    {reductions, Twice} = process_info(Pid, reductions),
    stop(Pid),
    [?assertMatch(#{rows := [#{stack := [{?MODULE, sleep, 0, _, _}]}]},
                  erlane_prof_profile:filter(P, #{state => [waiting]})) || P <- [Short, Long]],
    ?assert(Twice - Once =< 2 * (Once - Before) + 10, {Before, Once, Twice}).

%% A process in a native call does not answer: that is what is seen, and nobody waits for it. If it
%% has the scheduler of our timer, no look can be made, and that is said.
native_call(_Config) ->
    Call = long_call(700),
    Self = self(),
    Pid = spawn_opt(fun() ->
                            true = register(prof_run_native, self()),
                            Self ! begun,
                            natives(Call)
                    end, [link, {scheduler, min(2, erlang:system_info(schedulers_online))}]),
    _ = process_flag(scheduler, 1),
    receive begun -> ok end,
    {Us, {ok, #{notes := Notes} = Profile}} = timer:tc(fun() -> run(#{for => 2500}) end),
    _ = process_flag(scheduler, 0),
    stop(Pid),
    Who = [<<"prof_run_native">>, <<"[unknown]">>],
    Silent = erlane_prof_profile:filter(Profile, #{state => [no_answer], proc => Who}),
    ?assert(erlane_prof_profile:total(Silent, wall) > 300000000
            orelse noted("no look could be made", Notes), Profile),
    ?assert(Us < 12000000, Us).

natives(Call) ->
    _ = Call(),
    natives(Call).

%% Processes that live for some milliseconds are in the picture, by what they do.
short_lived(_Config) ->
    Parent = spawn_link(fun parent/0),
    {ok, Profile} = run(#{for => 2000}),
    stop(Parent),
    On = erlane_prof_profile:filter(Profile, #{state => [running, runnable]}),
    ?assert(self_of({?MODULE, three, 1}, On) > 0.2 * maps:get(ns, Profile),
            erlane_prof_profile:top(On, wall, 10)).

parent() ->
    {_, Ref} = spawn_monitor(fun() -> three(3000000) end),
    receive {'DOWN', Ref, process, _, _} -> parent() end.

%% The name that a process is known by is in its dictionary, which may be larger than we are to
%% become.
large_dictionary(_Config) ->
    Pid = proc_lib:spawn_link(fun() -> put(large, lists:seq(1, 2500000)), sleep() end),
    until(fun() -> {_, waiting} = process_info(Pid, status) end),
    {ok, Profile} = run(#{for => 500, procs => [Pid]}),
    stop(Pid),
    ?assertMatch(#{rows := [_ | _]}, Profile).

%% Too many to be known one by one: those that do something are found.
many_processes(_Config) ->
    Idle = [spawn(?MODULE, sleep, []) || _ <- lists:seq(1, 25000)],
    Busy = spin(prof_run_busy),
    {ok, Profile} = run(#{for => 4000}),
    [exit(Pid, kill) || Pid <- Idle],
    stop(Busy),
    #{ns := Ns, notes := Notes} = Profile,
    Mine = erlane_prof_profile:filter(Profile, #{proc => [<<"prof_run_busy">>]}),
    ?assert(erlane_prof_profile:total(Mine, wall) > 0.5 * Ns, Profile),
    ?assert(noted("left out", Notes), Notes).

%% Some processes and no others, by pid and by name.
procs(_Config) ->
    Busy = spin(prof_run_busy),
    Pid = spawn_link(?MODULE, sleep, []),
    {ok, Profile} = run(#{for => 300, procs => [prof_run_busy, Pid, no_such_name]}),
    stop(Busy),
    stop(Pid),
    ?assertEqual([<<"erlane_prof_run_SUITE:sleep/0">>, <<"prof_run_busy">>],
                 lists:sort([P || {P, _} <- erlane_prof_profile:sums(Profile, wall, proc),
                                  P =/= <<"[unknown]">>])).

%% Both sides of the depth: stacks are whole, or lack the outermost and a note says so.
deep(_Config) ->
    Pid = spawn_link(fun() -> down(29) end),
    Rows = fun(Depth) ->
                   {ok, Profile} = run(#{for => 300, procs => [Pid], depth => Depth}),
                   #{rows := R, notes := Notes} = Profile,
                   {lists:usort([length(S) || #{stack := [{_, _, _, _, _} | _] = S} <- R]), Notes}
           end,
    {[31], Whole} = Rows(32),
    {[16], Cut} = Rows(16),
    stop(Pid),
    ?assertNot(noted("outermost", Whole)),
    ?assert(noted("outermost", Cut), Cut).

%% Two that call each other: the VM tells a function that calls itself only once.
down(0) -> {sleep()};
down(N) -> {N, up(N - 1)}.

up(0) -> {sleep()};
up(N) -> {N, down(N - 1)}.

%% It ends at its limit, long before its time, and says so.
events_limit(_Config) ->
    {Us, {ok, #{notes := Notes} = Profile}} =
        timer:tc(fun() -> run(#{for => 60000, events => 50}) end),
    ?assert(Us < 15000000, Us),
    ?assert(noted("limit of", Notes), Notes),
    ?assert(erlane_prof_profile:total(Profile, samples) >= 50).

%% The caller has enough.
asked_to_stop(_Config) ->
    {Us, {ok, #{notes := Notes}}} =
        timer:tc(fun() -> run(#{for => 60000, progress => fun(#{ms := _, events := _}) -> stop end})
                 end),
    ?assert(Us < 15000000, Us),
    ?assert(noted("as asked", Notes), Notes).

%% What it says that it took is within what it may take, even if it is asked for a thousand looks
%% a second.
own_share(_Config) ->
    Busy = [spin(Name) || Name <- [prof_run_busy, prof_run_busy2, prof_run_busy3]],
    {ok, #{notes := Notes}} = run(#{for => 2000, hz => 1000}),
    [stop(Pid) || Pid <- Busy],
    [Share] = [binary_to_float(S)
               || N <- Notes, {match, [S]} <- [re:run(N, "took ([0-9.]+)% of one processor",
                                                      [{capture, all_but_first, binary}])]],
    ?assert(Share < 1.0 * erlang:system_info(schedulers_online), Share),
    ?assert(Share > 0.0).

%% What it may take at the beginning: 0.2% of the whole, or one walk over very many processes, but
%% never more than 1%. Then 0.6% of each second.
first_allowance(_Config) ->
    First = fun(For, Walk) ->
                    erlane_prof_purse:left(0, erlane_prof_purse:new(0, For, 2, 1, Walk))
            end,
    ?assertEqual(40000000, First(10000, 0)),
    ?assertEqual(40000000, First(10000, 30000000)),
    ?assertEqual(46000000, First(10000, 46000000)),
    ?assertEqual(20000000, First(1000, 46000000)),
    Purse = erlane_prof_purse:new(0, 1000, 2, 1, 46000000),
    ?assertEqual(32000000, erlane_prof_purse:left(1000000000, Purse)).

%% Run queues that grow while it looks end it.
overload(_Config) ->
    Self = self(),
    Many = spawn_link(fun() ->
                              receive go -> ok end,
                              N = 20 * erlang:system_info(schedulers_online)
                                  + 3 * erlang:statistics(total_run_queue_lengths),
                              _ = [spawn_link(?MODULE, spin, [none]) || _ <- lists:seq(1, N)],
                              Self ! busy,
                              sleep()
                      end),
    Go = fun(_) -> Many ! go, continue end,
    {Us, {ok, #{notes := Notes}}} = timer:tc(fun() -> run(#{for => 60000, progress => Go}) end),
    stop(Many),
    ?assert(noted("run queues", Notes), Notes),
    ?assert(Us < 40000000, Us).

%% The depth of stacks is one number for the whole node: it is as before.
depth_restored(_Config) ->
    Was = erlang:system_flag(backtrace_depth, 11),
    {ok, _} = run(#{for => 100, depth => 60}),
    11 = erlang:system_flag(backtrace_depth, 62),
    %% A larger one is not made smaller.
    {ok, _} = run(#{for => 100, depth => 60}),
    ?assertEqual(62, erlang:system_flag(backtrace_depth, Was)).

%% What somebody else sets meanwhile is theirs.
depth_of_others_stays(_Config) ->
    Was = erlang:system_flag(backtrace_depth, 8),
    Set = fun(_) -> _ = erlang:system_flag(backtrace_depth, 33), stop end,
    {ok, _} = run(#{for => 30000, depth => 60, progress => Set}),
    ?assertEqual(33, erlang:system_flag(backtrace_depth, Was)).

%% The end of one is not that of the other, whichever ends first, and the last one restores.
two_at_once(_Config) ->
    Was = erlang:system_flag(backtrace_depth, 9),
    Pid = spawn_link(fun() -> down(29) end),
    Self = self(),
    Run = fun(Ms) -> spawn_link(fun() ->
                                        Self ! {self(), run(#{for => Ms, procs => [Pid]})}
                                end)
          end,
    Runs = [Run(Ms) || Ms <- [1500, 200, 600]],
    Profiles = [receive {R, {ok, P}} -> P after ?WAIT_MS -> ct:fail(no_profile) end || R <- Runs],
    [?assert(lists:any(fun(#{stack := S}) -> length(S) =:= 31 end, Rows))
     || #{rows := Rows} <- Profiles],
    stop(Pid),
    until(fun() -> undefined = whereis(erlane_prof_depth) end),
    ?assertEqual(9, erlang:system_flag(backtrace_depth, Was)).

%%% There

as_code(Config) -> visit(#{}, Config).

as_forms(Config) -> visit(#{ship => forms}, Config).

%% A node without erlane: its processes by name and application, its release; nothing stays.
visit(Options, Config) ->
    Node = proplists:get_value(node, Config),
    {ok, Profile} = run(Options#{node => Node, for => 1000}),
    clean(Config),
    #{node := Node, mode := sample, otp := Otp, began := Began, ns := Ns} = Profile,
    ?assertEqual(list_to_binary(erlang:system_info(otp_release)), Otp),
    ?assert(abs(os:system_time(microsecond) - Began) < 60000000),
    ?assert(abs(Ns - 1000000000) < 1000000000, Ns),
    Sup = erlane_prof_profile:filter(Profile, #{proc => [<<"kernel_sup">>], app => [kernel]}),
    ?assertMatch(#{rows := [_ | _]}, Sup).

%%% Counters

%% Each call is counted, under the name of its process; time is where the work is.
calls(_Config) ->
    Profile = counted(#{mode => time, functions => [{?MODULE, work, 1}, {?MODULE, three, 1}]}),
    #{values := [#{name := time, unit := nanoseconds}, #{name := calls, unit := count}],
      rows := Rows} = Profile,
    [#{proc := <<"prof_run_worker">>, state := any, values := [_, 10]}] =
        [R || #{stack := [{?MODULE, work, 1, _, _}]} = R <- Rows],
    [#{values := [Ns, Calls]}] = [R || #{stack := [{?MODULE, three, 1, _, _}]} = R <- Rows],
    ?assertEqual(10 * 100001, Calls),
    ?assert(Ns > 1000000, Ns).

%% It ends when so many calls were counted, long before its time.
calls_limit(_Config) ->
    Busy = spin(prof_run_busy),
    [begin
         {Us, {ok, #{notes := Notes} = Profile}} =
             timer:tc(fun() -> run(#{mode => time, functions => Functions, for => 60000,
                                     events => 1000})
                      end),
         ?assert(Us < 20000000, Us),
         ?assert(noted("limit of", Notes), Notes),
         ?assert(erlane_prof_profile:total(Profile, calls) >= 1000)
     end || Functions <- [[{?MODULE, three, 1}], [lists, ?MODULE]]],
    stop(Busy).

%% Those of other processes are not.
calls_of_some(_Config) ->
    Profile = counted(#{mode => time, functions => [{?MODULE, work, '_'}],
                        procs => [kernel_sup]}),
    ?assertEqual([], maps:get(rows, Profile)).

%% Words of the heap, from OTP 26 on.
words(_Config) ->
    Options = #{mode => memory, functions => [{?MODULE, work, 1}]},
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 26 ->
            {error, {declined, _, _}} = run(Options);
        _ ->
            #{rows := [#{values := [Words, 10]}]} = counted(Options),
            ?assert(Words >= 10 * 2000, Words)
    end.

%% A worker that waits until it is counted, and does ten times the same.
counted(Options) ->
    Worker = spawn_link(fun() -> worker() end),
    true = register(prof_run_worker, Worker),
    Go = fun(#{ms := _}) ->
                 Worker ! {work, self()},
                 receive {Worker, done} -> ok after ?WAIT_MS -> ct:fail(no_work) end,
                 stop
         end,
    {ok, Profile} = run(Options#{for => 60000, progress => Go}),
    stop(Worker),
    Profile.

worker() ->
    receive {work, From} ->
            _ = [work(N) || N <- lists:seq(1, 10)],
            From ! {self(), done}
    end,
    worker().

work(_) ->
    _ = three(100000),
    length([{N} || N <- lists:seq(1, 500)]).

%% Somebody else's tracing is not touched: up to OTP 26 there is none beside it.
others_trace(_Config) ->
    Pid = spawn_link(?MODULE, sleep, []),
    1 = erlang:trace(Pid, true, [call]),
    1 = erlang:trace_pattern({?MODULE, one, 1}, true, [local]),
    Answer = run(#{mode => time, functions => [{?MODULE, work, 1}], for => 100}),
    ?assertEqual({flags, [call]}, erlang:trace_info(Pid, flags)),
    ?assertEqual({traced, local}, erlang:trace_info({?MODULE, one, 1}, traced)),
    1 = erlang:trace(Pid, false, [call]),
    Own = run(#{mode => time, functions => [{?MODULE, one, 1}], for => 100}),
    ?assertEqual({traced, local}, erlang:trace_info({?MODULE, one, 1}, traced)),
    1 = erlang:trace_pattern({?MODULE, one, 1}, false, [local]),
    stop(Pid),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 27 ->
            [{error, {declined, _, _}} = A || A <- [Answer, Own]];
        _ ->
            [{ok, _} = A || A <- [Answer, Own]]
    end.

%% What was switched on is off.
counters_off(_Config) ->
    {ok, _} = run(#{mode => time, functions => [?MODULE], for => 100}),
    ?assertEqual({call_time, false}, erlang:trace_info({?MODULE, work, 1}, call_time)),
    ?assertEqual({flags, []}, erlang:trace_info(self(), flags)),
    ?assertEqual({flags, []}, erlang:trace_info(new_processes, flags)).

%% Functions that are not there are named.
no_functions(_Config) ->
    [begin
         {error, {declined, _, _} = Reason} = run(#{mode => time, functions => [Function]}),
         ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Reason), Word))
     end || {Function, Word} <- [{no_such_module, "no_such_module"},
                                 {{lists, no_such, '_'}, "lists:no_such"},
                                 {{lists, map, 9}, "lists:map/9"}]].

%%% Options

%% Each is checked before anything else, and named.
options(_Config) ->
    Wrong = [{for, #{mode => sample, events => 1}}, {events, #{mode => sample, for => 100}},
             {mode, #{for => 100, events => 1}}]
        ++ [{Key, (valid())#{Key => Value}}
            || {Key, Value} <- [{mode, nothing}, {for, 9}, {for, 86400001}, {for, infinity},
                                {events, 0}, {hz, 0}, {hz, 1001}, {depth, 7}, {depth, 65},
                                {procs, []}, {procs, [1]}, {functions, ['_']}, {functions, x},
                                {progress, 1}, {ship, x}, {node, "a@b"},
                                {nothing, 1}]],
    [begin
         {error, {option, Key, _} = Reason} = erlane_prof:run(Options),
         ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Reason),
                                              atom_to_list(Key)))
     end || {Key, Options} <- Wrong],
    {error, {option, options, _}} = erlane_prof:run([]),
    {error, {option, functions, _}} = erlane_prof:run((valid())#{mode => time}),
    [{ok, _} = erlane_prof:run(maps:merge(valid(), More))
     || More <- [#{for => 10}, #{hz => 1}, #{hz => 1000}, #{depth => 8}, #{depth => 64}]].

valid() ->
    #{mode => sample, for => 50, events => ?EVENTS}.

%%% Helpers

run(Options) ->
    erlane_prof:run(maps:merge(#{mode => sample, for => 500, events => ?EVENTS}, Options)).

%% A process that never waits. Three fourths of its time are in three/1.
spin(Name) when Name =/= none, Name =/= on ->
    Pid = spawn_link(?MODULE, spin, [on]),
    true = register(Name, Pid),
    Pid;
spin(State) ->
    _ = three(300000),
    _ = one(100000),
    spin(State).

three(0) -> 0;
three(N) -> three(N - 1).

one(0) -> 0;
one(N) -> one(N - 1).

sleep() ->
    receive stop -> ok end.

stop(Pid) ->
    unlink(Pid),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

self_of(Function, Profile) ->
    Top = erlane_prof_profile:top(Profile, wall, all),
    lists:sum([Self || #{function := F, self := Self} <- Top, F =:= Function]).

noted(Words, Notes) ->
    lists:any(fun(Note) -> string:find(Note, Words) =/= nomatch end, Notes).

there(Config) ->
    [Module || {Module, _} <- call(Config, code, all_loaded, []),
               lists:prefix("erlane", atom_to_list(Module))].

%% No module, no old code, no process, no name, and the depth of stacks is as it was.
clean(Config) ->
    Names = [list_to_atom(lists:concat(["erlane_prof_agent_", N])) || N <- lists:seq(0, 63)],
    until(fun() ->
                  [] = there(Config),
                  [] = [Name || Name <- Names, call(Config, erlang, check_old_code, [Name])],
                  [] = agents(Config, ""),
                  undefined = call(Config, erlang, whereis, [erlane_prof_depth])
          end),
    ?assertEqual(8, call(Config, erlang, system_flag, [backtrace_depth, 8])).
