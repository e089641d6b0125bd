%% SPDX-License-Identifier: Apache-2.0
%% What the VM's threads do: the view of known readings, what is said of it, and what a node is
%% like after it was looked at.
-module(erlane_prof_schedulers_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([shares/1, locks/1, collected/1, nothing_stands_out/1, each_finding/1, formats/1, live/1,
         moves/1, flags_restored/1, flags_of_others_stay/1, options/1]).

all() ->
    [shares, locks, collected, nothing_stands_out, each_finding, formats, live, moves,
     flags_restored, flags_of_others_stay, options].

%%% Pure

%% Two readings of a VM with two schedulers, one dirty one of each kind, a second apart.
stats() ->
    States = fun(Emulator, Gc, Sleep) -> #{emulator => Emulator, gc => Gc, sleep => Sleep} end,
    #{node => a@b, otp => <<"27">>, ns => 1000000000, online => 2, schedulers => 2,
      dirty_cpu => 1, dirty_io => 1, moves => {1000, 10}, notes => [<<"a note">>],
      queues => {10, [5, 0, 0, 0], [2, 0, 0, 0]},
      first => #{msacc => [{{scheduler, 1}, States(100, 100, 100)},
                           {{scheduler, 2}, States(0, 0, 0)}, {{poll, 0}, #{sleep => 5}}],
                 wall => [{1, 10, 100}, {2, 20, 100}, {3, 0, 100}, {4, 0, 100}],
                 locks => none, switches => 500, at => 0},
      %% In another order.
      last => #{msacc => [{{poll, 0}, #{sleep => 15}},
                          {{scheduler, 2}, States(30, 0, 70)},
                          {{scheduler, 1}, States(170, 100, 130)}],
                wall => [{1, 60, 200}, {2, 50, 200}, {3, 100, 200}, {4, 0, 200}],
                locks => none, switches => 1500, at => 1000}}.

%% Differences of both readings, as shares.
shares(_Config) ->
    #{threads := Threads, schedulers := [First, Second], dirty := [Cpu, Io], switches_s := 1000.0,
      moves := #{scheduled := 1000, moved := 10}, locks := none} =
        erlane_prof_schedulers:view(stats()),
    [#{kind := poll, count := 1, states := [{sleep, 1.0}]},
     #{kind := scheduler, count := 2, states := [{emulator, 0.5}, {gc, _}, {sleep, 0.5}]}] =
        [T || #{} = T <- Threads],
    #{id := 1, online := true, util := 0.5, queue := 0.5, most := 2} = First,
    #{id := 2, online := true, util := 0.3, queue := None, most := 0} = Second,
    #{kind := cpu, count := 1, util := 1.0} = Cpu,
    #{kind := io, count := 1, util := Idle} = Io,
    ?assert(None == 0 andalso Idle == 0).

%% Locks of one name are one; those that were waited for most come first.
locks(_Config) ->
    Stats = #{first := First, last := Last} = stats(),
    #{locks := Locks} = View =
        erlane_prof_schedulers:view(
          Stats#{first := First#{locks := [{a, 10, 5, 100}, {b, 7, 0, 0}]},
                 last := Last#{locks := [{a, 5010, 1005, 2100}, {a, 1000, 0, 0}, {b, 8, 1, 9000},
                                         {idle, 0, 0, 0}]}}),
    [#{name := b, tries := 1, collisions := 1, ns := 9000},
     #{name := a, tries := 6000, collisions := 1000, ns := 2000}] = Locks,
    [Text] = erlane_prof_schedulers:findings(View),
    ?assertNotEqual(nomatch, string:find(Text, "lock a: 17% of 6000 tries")).

%% What a VM tells that counts locks, in the shape that lcnt of OTP reads: with histograms and
%% without. No other VM was there to try; of one that does not count there is nothing.
collected(_Config) ->
    Histogram = list_to_tuple(lists:duplicate(30, 0)),
    Told = [{duration, {12, 345}},
            {locks, [{run_queue, 1, mutex, [{{'beam/erl_process.c', 3200}, {100, 7, {1, 500, 7}},
                                             Histogram},
                                            {{undefined, 0}, {50, 0, {0, 0, 0}}, Histogram}]},
                     {proc_main, self(), proc, [{{'beam/beam_emu.c', 12}, {9, 1, {0, 20, 1}}}]},
                     {db_tab, {make_ref(), true}, rw_mutex, []}]}],
    ?assertEqual([{run_queue, 150, 7, 1000000500}, {proc_main, 9, 1, 20}, {db_tab, 0, 0, 0}],
                 erlane_prof_threads:locks(Told)),
    ?assertEqual(none, erlane_prof_threads:locks(error)),
    ?assertEqual(none, erlane_prof_threads:locks(erts_debug:lcnt_collect())).

nothing_stands_out(_Config) ->
    View = erlane_prof_schedulers:view(stats()),
    ?assertEqual([], erlane_prof_schedulers:findings(View)).

%% Each thing that is looked for, on both sides of its limit.
each_finding(_Config) ->
    Quiet = #{dirty := Dirty} = erlane_prof_schedulers:view(stats()),
    Scheduler = fun(Id, Util, Queue) -> #{id => Id, online => true, util => Util, queue => Queue,
                                          most => 9}
                end,
    Two = fun(A, B, Queue) -> Quiet#{schedulers := [Scheduler(1, A, Queue), Scheduler(2, B, 0.0)]}
          end,
    States = fun(Kind, States) -> Quiet#{threads := [#{kind => Kind, count => 2,
                                                      states => States}]}
             end,
    Waiting = fun(Kind, Mean) -> Quiet#{dirty := [case D of
                                                      #{kind := Kind} -> D#{queue := Mean};
                                                      _ -> D
                                                  end || D <- Dirty]}
              end,
    Moves = fun(In, Moved) -> Quiet#{moves := #{scheduled => In, moved => Moved}} end,
    [begin
         ?assertEqual([], [T || T <- erlane_prof_schedulers:findings(Not)], Words),
         ?assertMatch([_], [T || T <- erlane_prof_schedulers:findings(Is),
                                 string:find(T, Words) =/= nomatch],
                      {Words, erlane_prof_schedulers:findings(Is)})
     end || {Words, Not, Is} <-
                [{"more work than schedulers", Two(0.9, 0.94, 0.0), Two(0.99, 0.96, 0.0)},
                 {"scheduler 1 is busy 90% of the time, scheduler 2 10%", Two(0.79, 0.1, 0.0),
                  Two(0.9, 0.1, 0.0)},
                 {"2.5 processes wait", Two(0.9, 0.9, 1.9), Two(0.9, 0.9, 2.5)},
                 {"although these are busy only 50%", Two(0.5, 0.5, 1.9), Two(0.5, 0.5, 2.5)},
                 {"+SDcpu", Waiting(cpu, 0.9), Waiting(cpu, 1.1)},
                 {"+SDio", Waiting(io, 0.9), Waiting(io, 1.1)},
                 {"25% of what schedulers do is garbage collection",
                  States(scheduler, [{gc, 0.09}, {emulator, 0.41}, {sleep, 0.5}]),
                  States(scheduler, [{gc, 0.125}, {emulator, 0.375}, {sleep, 0.5}])},
                 {"by dirty schedulers, 40% of a processor",
                  States(dirty_cpu_scheduler, [{gc, 0.04}, {sleep, 0.96}]),
                  States(dirty_cpu_scheduler, [{gc, 0.2}, {sleep, 0.8}])},
                 {"ports", States(scheduler, [{port, 0.2}, {emulator, 0.8}]),
                  States(scheduler, [{port, 0.4}, {emulator, 0.6}])},
                 %% Hardly awake at all.
                 {"auxiliary", States(scheduler, [{aux, 0.04}, {sleep, 0.96}]),
                  States(scheduler, [{aux, 0.3}, {sleep, 0.7}])},
                 {"+sbwt", States(scheduler, [{other, 0.2}, {emulator, 0.8}]),
                  States(scheduler, [{other, 0.5}, {emulator, 0.5}])},
                 {"+IOp", States(poll, [{check_io, 0.4}, {sleep, 0.6}]),
                  States(poll, [{check_io, 0.6}, {sleep, 0.4}])},
                 {"change their scheduler 30%", Moves(1000, 150), Moves(1000, 300)},
                 {"change their scheduler", Moves(100, 90), Moves(200, 180)}]].

%% Text and JSON of views with and without what a VM may not tell.
formats(_Config) ->
    Stats = #{first := First, last := Last} = stats(),
    Locks = [{run_queue, 100, 5, 1000}],
    [begin
         View = erlane_prof_schedulers:view(S),
         Text = unicode:characters_to_list(erlane_prof_schedulers:format(View)),
         ?assertNotEqual(nomatch, string:find(Text, Words)),
         #{<<"node">> := <<"a@b">>, <<"findings">> := _, <<"threads">> := [_, _]} =
             erlane_dash_reader:read(iolist_to_binary(erlane_prof_schedulers:json(View)))
     end || {Words, S} <- [{"locks are not counted", Stats},
                           {"run_queue", Stats#{first := First#{locks := []},
                                                last := Last#{locks := Locks}}},
                           {"somebody traces", Stats#{moves := none}},
                           {"-", Stats#{first := First#{wall := []}, last := Last#{wall := []}}},
                           {"a note", Stats}]].

%%% Live

%% A scheduler that is busy is seen as that, and its states have all its time.
live(_Config) ->
    Busy = spawn_opt(fun spin/0, [link, {scheduler, 1}]),
    {ok, #{threads := Threads, schedulers := Schedulers, ns := Ns}} =
        erlane_prof:schedulers(#{for => 1000}),
    unlink(Busy),
    exit(Busy, kill),
    ?assert(Ns > 500000000),
    #{util := Util} = hd(Schedulers),
    ?assert(Util > 0.5, Schedulers),
    [begin
         {Kind, true} = {Kind, abs(lists:sum([Share || {_, Share} <- States]) - 1) < 0.01
                         orelse States =:= []}
     end || #{kind := Kind, states := States} <- Threads],
    [#{states := States}] = [T || #{kind := scheduler} = T <- Threads],
    ?assert(proplists:get_value(emulator, States) > 0.1, States).

spin() ->
    _ = lists:seq(1, 1000),
    spin().

%% Two processes that play ball are followed.
moves(_Config) ->
    Ping = spawn_link(fun() -> ball(none) end),
    Pong = spawn_link(fun() -> ball(Ping) end),
    Pong ! {ball, Ping},
    busy(Ping, erlang:monotonic_time(millisecond) + 20000),
    {ok, #{moves := #{scheduled := In, moved := Moved}}} =
        erlane_prof:schedulers(#{for => 600}),
    [begin unlink(Pid), exit(Pid, kill) end || Pid <- [Ping, Pong]],
    ?assert(In > 10, In),
    ?assert(Moved =< In).

%% Until it has done more than others.
busy(Pid, Deadline) ->
    {reductions, N} = process_info(Pid, reductions),
    ?assert(erlang:monotonic_time(millisecond) < Deadline),
    N > 10000000 orelse busy(Pid, Deadline).

ball(_) ->
    receive {ball, From} -> From ! {ball, self()} end,
    ball(none).

%% What was off is off, and nobody is traced.
flags_restored(_Config) ->
    {ok, _} = erlane_prof:schedulers(#{for => 100}),
    ?assertEqual(false, erlang:system_flag(microstate_accounting, false)),
    ?assertEqual(undefined, erlang:statistics(scheduler_wall_time)),
    [?assertEqual({P, {flags, []}}, {P, erlang:trace_info(P, flags)})
     || P <- [new_processes | erlang:processes()], P =:= new_processes orelse is_waiting(P)].

is_waiting(Pid) -> process_info(Pid, status) =:= {status, waiting}.

%% What somebody else has switched on stays on, and goes on counting.
flags_of_others_stay(_Config) ->
    false = erlang:system_flag(microstate_accounting, true),
    false = erlang:system_flag(scheduler_wall_time, true),
    Sum = fun() -> lists:sum([lists:sum(maps:values(C))
                              || #{counters := C} <- erlang:statistics(microstate_accounting)])
          end,
    Before = Sum(),
    {ok, _} = erlane_prof:schedulers(#{for => 200}),
    ?assert(Sum() > Before),
    ?assertEqual(true, erlang:system_flag(microstate_accounting, false)),
    ?assertEqual(true, erlang:system_flag(scheduler_wall_time, false)).

options(_Config) ->
    {error, {option, for, _}} = erlane_prof:schedulers(#{}),
    {error, {option, for, _}} = erlane_prof:schedulers(#{for => 1}),
    {error, {option, functions, _}} = erlane_prof:schedulers(#{for => 100, functions => [lists]}),
    {error, {option, options, _}} = erlane_prof:schedulers([]),
    {error, {option, mode, _}} =
        erlane_prof:run(#{mode => schedulers, for => 100, events => 1}).
