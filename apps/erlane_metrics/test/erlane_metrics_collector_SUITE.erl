%% SPDX-License-Identifier: Apache-2.0
%% Collectors: the process that runs them, with modules that hang, crash and lie, and each of the
%% house's own against what the VM itself says.
-module(erlane_metrics_collector_SUITE).
-behaviour(erlane_metrics_collector).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([options_are_checked/1, last_result_is_read/1, hanging_costs_itself/1,
         crashing_costs_itself/1, lies_are_refused/1, memory_is_limited/1,
         families_have_one_source/1, nobody_reads_it_sleeps/1, old_results_are_not_shown/1,
         killed_collector_goes_on/1, tables_made_anew/1, stopped_collector_is_gone/1,
         configuration/1, listener_from_the_configuration/1]).
-export([vm_tells_the_truth/1, schedulers_queues/1, wall_time_on_request/1,
         msacc_is_restored/1, msacc_stays_on/1, msacc_is_restored_after_a_kill/1,
         apps_by_group_leader/1, apps_asks_no_process/1, apps_in_slices/1,
         dist_counts_bytes/1, lanes_of_sockets/1]).
-export([families/1, collect/1]).

-define(WAIT_MS, 10000).

all() ->
    [options_are_checked, last_result_is_read, hanging_costs_itself, crashing_costs_itself,
     lies_are_refused, memory_is_limited, families_have_one_source, nobody_reads_it_sleeps,
     old_results_are_not_shown, killed_collector_goes_on, tables_made_anew,
     stopped_collector_is_gone, configuration, listener_from_the_configuration,
     vm_tells_the_truth, schedulers_queues, wall_time_on_request, msacc_is_restored,
     msacc_stays_on, msacc_is_restored_after_a_kill, apps_by_group_leader, apps_asks_no_process,
     apps_in_slices, dist_counts_bytes, lanes_of_sockets].

init_per_suite(Config) ->
    _ = application:load(erlane_metrics),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(_Case, Config) ->
    ok = application:set_env(erlane_metrics, collectors, []),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    application:unset_env(erlane_metrics, listener),
    application:stop(erlane_metrics).

%%% a collector that does what it is told

families(#{families := Families}) -> Families;
families(_) -> [{gauge, #{name => <<"mine">>, help => <<"Mine">>}}].

collect(#{collect := Fun} = Options) -> {Fun(), Options}.

mine(Fun) -> mine(Fun, #{}).

mine(Fun, Opts) ->
    ok = erlane_metrics:collector(mine, maps:merge(#{module => ?MODULE, interval => 20,
                                                     options => #{collect => Fun}}, Opts)).

%%% the process

options_are_checked(_Config) ->
    Start = fun erlane_metrics:collector/2,
    {error, {module, missing}} = Start(mine, #{}),
    {error, {module, {not_a_collector, lists}}} = Start(mine, #{module => lists}),
    {error, {module, {not_a_collector, no_such}}} = Start(mine, #{module => no_such}),
    {error, {interval, {badarg, 0}}} = Start(vm, #{interval => 0}),
    {error, {deadline, {badarg, infinity}}} = Start(vm, #{deadline => infinity}),
    {error, {options, {badarg, []}}} = Start(vm, #{options => []}),
    {error, {intervall, unknown_option}} = Start(vm, #{intervall => 1}),
    {error, {badarg, {"vm", #{}}}} = Start("vm", #{}),
    ok = Start(vm, #{}),
    {error, already_started} = Start(vm, #{}),
    ok = application:stop(erlane_metrics),
    {error, {not_started, erlane_metrics}} = Start(vm, #{}),
    {error, not_found} = erlane_metrics_collector:stop(vm).

%% A scrape does not run the collector; what it reads has an age and a duration.
last_result_is_read(_Config) ->
    Runs = counters:new(1, []),
    mine(fun() -> counters:add(Runs, 1, 1), [{<<"mine">>, counters:get(Runs, 1)}] end,
         #{interval => 60000}),
    ?assertEqual([{<<>>, 1}], until(fun() -> series(<<"mine">>) end, [{<<>>, 1}])),
    [?assertEqual([{<<>>, 1}], series(<<"mine">>)) || _ <- lists:seq(1, 10)],
    Page = page(),
    [{_, Age}] = maps:get(<<"erlane_metrics_collector_age_seconds">>, Page),
    ?assert(Age >= 0 andalso Age < 60000),
    [{<<"collector=\"mine\"">>, _}] = maps:get(<<"erlane_metrics_collector_duration_seconds">>,
                                               Page),
    ?assertMatch(#{mine := #{state := awake, failures := 0, age_ms := _, duration_us := _}},
                 erlane_metrics_collector:info()).

%% One hangs, at its first run and again: it is killed at the deadline, pages are quick, and
%% another one goes on.
hanging_costs_itself(_Config) ->
    Self = self(),
    mine(fun() -> Self ! {hangs, self()}, receive never -> ok end end, #{deadline => 100}),
    ok = erlane_metrics:collector(vm, #{interval => 10}),
    _ = until(fun() -> series(<<"erlang_vm_uptime_seconds">>) =/= [] end, true),
    Pid = receive {hangs, P} -> P after ?WAIT_MS -> ct:fail(no_run) end,
    Monitor = erlang:monitor(process, Pid),
    receive {'DOWN', Monitor, process, Pid, _} -> ok after ?WAIT_MS -> ct:fail(lives) end,
    receive {hangs, _} -> ok after ?WAIT_MS -> ct:fail(not_tried_again) end,
    {Micros, []} = timer:tc(fun() -> series(<<"mine">>) end),
    ?assert(Micros < 300000),
    until(fun() -> failures(mine) >= 2 end, true),
    ?assertMatch([_], series(<<"erlang_vm_uptime_seconds">>)),
    ?assertEqual(0, failures(vm)).

%% What crashed counts; when it works again its values are back.
crashing_costs_itself(_Config) ->
    Mode = atomics:new(1, []),
    mine(fun() ->
                 case atomics:get(Mode, 1) of
                     0 -> error(broken);
                     1 -> throw(ball);
                     2 -> exit(self(), kill), receive never -> ok end;
                     3 -> [{<<"mine">>, 7}]
                 end
         end),
    _ = until(fun() -> series(<<"mine">>), failures(mine) >= 1 end, true),
    [begin
         N = failures(mine),
         ok = atomics:put(Mode, 1, M),
         until(fun() -> failures(mine) >= N + 2 end, true)
     end || M <- [1, 2]],
    ?assertEqual([], series(<<"mine">>)),
    ok = atomics:put(Mode, 1, 3),
    [{<<>>, 7}] = until(fun() -> series(<<"mine">>) end, [{<<>>, 7}]).

lies_are_refused(_Config) ->
    Result = ets:new(result, [public]),
    mine(fun() -> ets:lookup_element(Result, r, 2) end),
    [begin
         true = ets:insert(Result, {r, Lie}),
         N = failures(mine),
         until(fun() -> series(<<"mine">>), failures(mine) > N + 1 end, true)
     end || Lie <- [no_list, [{<<"yours">>, 1}], [nothing]]],
    %% What is no number of the family is found by the page, as for any callback.
    true = ets:insert(Result, {r, [{<<"mine">>, [{[too, many], 1}]}]}),
    N = failures(mine),
    Before = callback_failures(),
    until(fun() -> [] = series(<<"mine">>), callback_failures() > Before end, true),
    ?assert(failures(mine) =< N + 1).

%% One that collects too much is ended by its heap.
memory_is_limited(_Config) ->
    mine(fun() -> eat([]) end, #{deadline => 60000}),
    until(fun() -> [] = series(<<"mine">>), failures(mine) >= 1 end, true).

eat(All) -> eat([lists:seq(1, 100000) | All]).

families_have_one_source(_Config) ->
    mine(fun() -> [{<<"mine">>, 1}] end),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 1}]),
    ok = erlane_metrics:collector(other, #{module => ?MODULE, interval => 20,
                                           options => #{collect => fun() -> [{<<"mine">>, 2}]
                                                                   end}}),
    until(fun() -> failures(other) >= 1 end, true),
    ?assertEqual([{<<>>, 1}], series(<<"mine">>)),
    %% When the first is stopped the other one gets it, at its next try.
    ok = erlane_metrics_collector:stop(mine),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 2}]).

%% New, and after a long time unread, a collector has no timer; the page that wakes it has its
%% values.
nobody_reads_it_sleeps(_Config) ->
    Runs = counters:new(1, []),
    mine(fun() -> counters:add(Runs, 1, 1), [{<<"mine">>, counters:get(Runs, 1)}] end,
         #{interval => 1}),
    #{mine := #{state := asleep, pid := Pid}} = erlane_metrics_collector:info(),
    until(fun() -> maps:is_key(<<"mine">>, declared()) end, true),
    ?assertEqual(0, counters:get(Runs, 1)),
    ?assertMatch([{<<>>, N}] when N > 0, series(<<"mine">>)),
    ?assertMatch(#{mine := #{state := awake}}, erlane_metrics_collector:info()),
    %% As if the last page was long ago; each page since then moves it.
    Long = erlang:monotonic_time(millisecond) - 3600000,
    true = ets:update_element(erlane_metrics_collected, mine, {8, Long}),
    until(fun() -> maps:get(state, maps:get(mine, erlane_metrics_collector:info())) end, asleep),
    true = until(fun() -> hibernates(Pid) end, true),
    Slept = counters:get(Runs, 1),
    [{<<>>, Fresh}] = series(<<"mine">>),
    ?assert(Fresh > Slept).

%% The function's name is of the release.
hibernates(Pid) ->
    case process_info(Pid, current_function) of
        {current_function, {erlang, hibernate, 3}} -> true;
        {current_function, {gen_server, loop_hibernate, _}} -> true;
        _ -> false
    end.

%% A value that cannot be renewed leaves the page after three intervals.
old_results_are_not_shown(_Config) ->
    Once = atomics:new(1, []),
    mine(fun() ->
                 1 = atomics:add_get(Once, 1, 1),
                 [{<<"mine">>, 1}]
         end, #{interval => 200, deadline => 10}),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 1}]),
    until(fun() -> series(<<"mine">>) end, []),
    [{_, Age}] = series(<<"erlane_metrics_collector_age_seconds">>),
    ?assert(Age >= 600).

killed_collector_goes_on(_Config) ->
    mine(fun() -> [{<<"mine">>, 1}] end),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 1}]),
    #{mine := #{pid := Pid}} = erlane_metrics_collector:info(),
    exit(Pid, kill),
    until(fun() -> #{mine := #{pid := P}} = erlane_metrics_collector:info(), P =/= Pid end, true),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 1}]).

tables_made_anew(_Config) ->
    mine(fun() -> [{<<"mine">>, 1}] end),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 1}]),
    exit(whereis(erlane_metrics_tables), kill),
    until(fun() -> try series(<<"mine">>) catch error:badarg -> no_table end end, [{<<>>, 1}]).

stopped_collector_is_gone(_Config) ->
    mine(fun() -> [{<<"mine">>, 1}] end),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 1}]),
    ok = erlane_metrics_collector:stop(mine),
    ?assertEqual([], series(<<"mine">>)),
    ?assertEqual(#{}, erlane_metrics_collector:info()),
    {error, not_found} = erlane_metrics_collector:stop(mine),
    mine(fun() -> [{<<"mine">>, 2}] end),
    until(fun() -> series(<<"mine">>) end, [{<<>>, 2}]).

configuration(_Config) ->
    With = fun(Collectors) ->
                   ok = application:stop(erlane_metrics),
                   ok = application:set_env(erlane_metrics, collectors, Collectors),
                   application:ensure_all_started(erlane_metrics)
           end,
    {ok, _} = With([vm, {schedulers, #{interval => 1000}}]),
    ?assertEqual([schedulers, vm], lists:sort(maps:keys(erlane_metrics_collector:info()))),
    {error, {erlane_metrics, Why}} = wrong(With, [{vm, #{interval => none}}]),
    ?assertNotEqual(nomatch, string:find(io_lib:format("~p", [Why]), "interval")),
    {ok, _} = application:ensure_all_started(erlane_metrics).

wrong(With, Collectors) ->
    _ = application:ensure_all_started(erlane_metrics),
    Answer = With(Collectors),
    ok = application:set_env(erlane_metrics, collectors, []),
    Answer.

listener_from_the_configuration(_Config) ->
    ok = application:stop(erlane_metrics),
    ok = application:set_env(erlane_metrics, listener, [{port, 0}, {max_connections, 2}]),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    [Pid] = [P || {{erlane_metrics_listener, _}, P, _, _}
                      <- supervisor:which_children(erlane_metrics_sup)],
    {IP, Port} = erlane_metrics_listener:address(Pid),
    {ok, Socket} = gen_tcp:connect(IP, Port, [binary, {active, false}]),
    ok = gen_tcp:send(Socket, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    {ok, <<"HTTP/1.1 200 ", _/binary>>} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    ok = gen_tcp:close(Socket),
    ok = application:stop(erlane_metrics),
    ok = application:set_env(erlane_metrics, listener, [{prot, 0}]),
    {error, {erlane_metrics, Why}} = application:ensure_all_started(erlane_metrics),
    ?assertNotEqual(nomatch, string:find(io_lib:format("~p", [Why]), "prot")),
    ok = application:unset_env(erlane_metrics, listener),
    {ok, _} = application:ensure_all_started(erlane_metrics).

%%% the house's own

vm_tells_the_truth(_Config) ->
    Table = ets:new(collected_table, [named_table]),
    true = ets:insert(Table, [{I} || I <- lists:seq(1, 1000)]),
    ok = erlane_metrics:collector(vm, #{options => #{tables => [Table, no_such_table]}}),
    Before = erlang:memory(total),
    Page = woken(<<"erlang_vm_uptime_seconds">>),
    Total = labelled(<<"kind=\"total\"">>, <<"erlang_vm_memory_bytes">>, Page),
    ?assert(abs(Total - Before) < Before),
    ?assertEqual(length(erlang:memory()), length(maps:get(<<"erlang_vm_memory_bytes">>, Page))),
    [?assertEqual(Limit, labelled(Label, <<"erlang_vm_limit">>, Page))
     || {Label, Limit} <- [{<<"kind=\"processes\"">>, erlang:system_info(process_limit)},
                           {<<"kind=\"ports\"">>, erlang:system_info(port_limit)},
                           {<<"kind=\"atoms\"">>, erlang:system_info(atom_limit)}]],
    ?assert(labelled(<<"kind=\"processes\"">>, <<"erlang_vm_used">>, Page) > 10),
    ?assertEqual([{<<"table=\"collected_table\"">>, 1000}],
                 maps:get(<<"erlang_vm_ets_table_objects">>, Page)),
    [{_, Gcs}] = maps:get(<<"erlang_vm_garbage_collections">>, Page),
    ?assert(Gcs > 0 andalso Gcs =< element(1, erlang:statistics(garbage_collection))),
    true = ets:delete(Table).

schedulers_queues(_Config) ->
    ok = erlane_metrics:collector(schedulers, #{}),
    Page = woken(<<"erlang_schedulers_run_queue">>),
    Queues = maps:get(<<"erlang_schedulers_run_queue">>, Page),
    ?assertEqual(erlang:system_info(schedulers) + 2, length(Queues)),
    ?assertEqual(erlang:system_info(schedulers_online),
                 labelled(<<"type=\"normal\"">>, <<"erlang_schedulers_online">>, Page)),
    ?assertNot(maps:is_key(<<"erlang_schedulers_active_seconds">>, Page)),
    ?assertEqual(undefined, erlang:statistics(scheduler_wall_time)).

%% A busy scheduler shows, and the flag goes with the collector, even killed.
wall_time_on_request(_Config) ->
    ok = erlane_metrics:collector(schedulers, #{interval => 20,
                                                options => #{scheduler_wall_time => true}}),
    Busy = spawn_link(fun Loop() -> Loop() end),
    _ = woken(<<"erlang_schedulers_active_seconds">>),
    Sum = fun() -> lists:sum([V || {_, V} <- series(<<"erlang_schedulers_active_seconds">>)]) end,
    First = Sum(),
    %% Microseconds.
    until(fun() -> Sum() > First + 100000 end, true),
    unlink(Busy),
    exit(Busy, kill),
    Labels = [L || {L, _} <- series(<<"erlang_schedulers_measured_seconds">>)],
    All = erlang:system_info(schedulers) + erlang:system_info(dirty_cpu_schedulers)
        + erlang:system_info(dirty_io_schedulers),
    ?assertEqual(All, length(lists:usort(Labels))),
    ok = erlane_metrics_collector:stop(schedulers),
    ?assertEqual(undefined, erlang:statistics(scheduler_wall_time)).

%% The VM tells it only when it is changed.
is_msacc() ->
    Is = erlang:system_flag(microstate_accounting, false),
    false = erlang:system_flag(microstate_accounting, Is),
    Is.

msacc(Interval) ->
    ok = erlane_metrics:collector(schedulers, #{interval => Interval,
                                                options => #{msacc => true}}),
    _ = woken(<<"erlang_threads_time_seconds">>).

msacc_is_restored(_Config) ->
    false = is_msacc(),
    Page = msacc(20),
    States = maps:get(<<"erlang_threads_time_seconds">>, Page),
    ?assertMatch([_ | _], [L || {L, V} <- States, V > 0,
                                string:find(L, "type=\"scheduler\",thread=\"1\"") =/= nomatch]),
    ok = erlane_metrics_collector:stop(schedulers),
    ?assertNot(is_msacc()).

%% Somebody else turned it on: it is his.
msacc_stays_on(_Config) ->
    false = erlang:system_flag(microstate_accounting, true),
    _ = msacc(20),
    ok = erlane_metrics_collector:stop(schedulers),
    ?assert(is_msacc()),
    true = erlang:system_flag(microstate_accounting, false).

msacc_is_restored_after_a_kill(_Config) ->
    _ = msacc(20),
    #{schedulers := #{pid := Pid}} = erlane_metrics_collector:info(),
    exit(Pid, kill),
    until(fun() -> #{schedulers := #{pid := P}} = erlane_metrics_collector:info(),
                   P =/= Pid end, true),
    _ = woken(<<"erlang_threads_time_seconds">>),
    ok = erlane_metrics_collector:stop(schedulers),
    ?assertNot(is_msacc()).

%% Processes are those of the application that leads their group; its fullest mailbox shows.
apps_by_group_leader(_Config) ->
    Self = self(),
    {Leader, _} = process_info_of(erlane_metrics_registry),
    Pids = [spawn_link(fun() ->
                               group_leader(Leader, self()),
                               Self ! {ready, self()},
                               receive {stop, Self} -> ok end
                       end) || _ <- lists:seq(1, 20)],
    [receive {ready, P} -> ok after ?WAIT_MS -> ct:fail(not_ready) end || P <- Pids],
    [hd(Pids) ! waits || _ <- lists:seq(1, 500)],
    [lists:last(Pids) ! waits || _ <- lists:seq(1, 100)],
    ok = erlane_metrics:collector(apps, #{options => #{slice => 10}}),
    Page = woken(<<"erlang_app_processes">>),
    Of = fun(Name) -> labelled(<<"application=\"erlane_metrics\"">>, Name, Page) end,
    ?assertEqual(500, Of(<<"erlang_app_mailbox_peak_messages">>)),
    ?assert(Of(<<"erlang_app_mailbox_messages">>) >= 600),
    ?assert(Of(<<"erlang_app_mailbox_messages">>) < 700),
    ?assert(Of(<<"erlang_app_processes">>) >= 20),
    ?assert(Of(<<"erlang_app_processes">>) < 60),
    ?assert(Of(<<"erlang_app_heap_bytes">>) >= 20 * 233 * 8),
    ?assert(labelled(<<"application=\"kernel\"">>, <<"erlang_app_processes">>, Page) > 5),
    Sum = lists:sum([N || {_, N} <- maps:get(<<"erlang_app_processes">>, Page)]),
    ?assert(abs(Sum - erlang:system_info(process_count)) < 10),
    [P ! {stop, Self} || P <- Pids].

process_info_of(Name) ->
    [{group_leader, Leader}, {reductions, R}] =
        process_info(whereis(Name), [group_leader, reductions]),
    {Leader, R}.

%% A process that cannot run does not hold the collector up: nothing is asked of itself.
apps_asks_no_process(_Config) ->
    Pid = spawn_link(fun() -> receive never -> ok end end),
    true = erlang:suspend_process(Pid),
    ok = erlane_metrics:collector(apps, #{}),
    Page = woken(<<"erlang_app_processes">>),
    ?assertMatch([_ | _], maps:get(<<"erlang_app_processes">>, Page)),
    true = erlang:resume_process(Pid),
    unlink(Pid),
    exit(Pid, kill).

%% 20000 processes: the pass takes its pauses, and no page waits for it.
apps_in_slices(_Config) ->
    Pids = [spawn(fun() -> receive never -> ok end end) || _ <- lists:seq(1, 20000)],
    ok = erlane_metrics:collector(apps, #{options => #{slice => 100, pause => 5}}),
    until(fun() -> maps:is_key(<<"erlang_app_processes">>, declared()) end, true),
    {Micros, Series} = timer:tc(fun() -> series(<<"erlang_app_processes">>) end),
    ?assertEqual([], Series),
    ?assert(Micros < 900000),
    _ = until(fun() -> series(<<"erlang_app_processes">>) =/= [] end, true),
    ?assert(lists:sum([N || {_, N} <- series(<<"erlang_app_processes">>)]) > 20000),
    #{apps := #{duration_us := Took}} = erlane_metrics_collector:info(),
    ?assert(Took >= 1000000),
    [exit(P, kill) || P <- Pids],
    ok.

%% A real node: what is sent to it is counted, and it is gone when it is gone.
dist_counts_bytes(_Config) ->
    ok = distributed(),
    {ok, Peer, Node} = peer:start(#{name => peer:random_name(), host => "127.0.0.1",
                                    longnames => true, connection => 0}),
    true = net_kernel:connect_node(Node),
    ok = erlane_metrics:collector(dist, #{interval => 20}),
    Label = iolist_to_binary(["node=\"", atom_to_list(Node), "\""]),
    Of = fun(Name) -> proplists:get_value(Label, series(Name)) end,
    until(fun() -> Of(<<"erlang_dist_connected">>) end, 1),
    Sent = Of(<<"erlang_dist_sent_bytes">>),
    Received = Of(<<"erlang_dist_received_bytes">>),
    ?assert(Sent > 0 andalso Received > 0),
    {erlang, Node} ! binary:copy(<<"x">>, 1000000),
    until(fun() -> Of(<<"erlang_dist_sent_bytes">>) >= Sent + 1000000 end, true),
    ?assert(is_integer(Of(<<"erlang_dist_queue_bytes">>))),
    ?assertEqual([{<<>>, erlang:system_info(dist_buf_busy_limit)}],
                 series(<<"erlang_dist_busy_limit_bytes">>)),
    ok = peer:stop(Peer),
    until(fun() -> Of(<<"erlang_dist_connected">>) end, undefined).

distributed() ->
    _ = os:cmd("epmd -daemon"),
    Name = list_to_atom("erlane_metrics_" ++ os:getpid() ++ "@127.0.0.1"),
    case net_kernel:start(Name, #{name_domain => longnames}) of
        {ok, _} -> ok;
        {error, {already_started, _}} -> ok
    end.

%% The sockets register their lanes themselves, and take them back.
lanes_of_sockets(_Config) ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    ?assertMatch(#{lanes := _}, erlane_metrics_collector:info()),
    Opts = [{inet_backend, inet}, {tcp_module, erlane_tcp}, binary, {active, false}],
    {ok, Listening} = gen_tcp:listen(0, Opts ++ [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listening),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Port, Opts),
    {ok, Server} = gen_tcp:accept(Listening),
    ok = gen_tcp:send(Client, binary:copy(<<"x">>, 1000)),
    {ok, _} = gen_tcp:recv(Server, 1000),
    Page = woken(<<"erlane_lane_sockets">>),
    Sum = fun(Name) -> lists:sum([V || {_, V} <- maps:get(Name, Page)]) end,
    ?assertEqual(3, Sum(<<"erlane_lane_sockets">>)),
    ?assertEqual(1000, Sum(<<"erlane_lane_sent_bytes">>)),
    ?assertEqual(1000, Sum(<<"erlane_lane_received_bytes">>)),
    ?assertEqual(1, Sum(<<"erlane_lane_accepted">>)),
    ?assertEqual(length(erlane_socket:lanes()), length(maps:get(<<"erlane_lane_turns">>, Page))),
    [ok = gen_tcp:close(S) || S <- [Client, Server, Listening]],
    ok = application:stop(erlane_socket),
    ?assertEqual(#{}, erlane_metrics_collector:info()).

%%% helpers

page() ->
    {_, Page} = erlane_metrics_walk:fold(
        fun({family, #{name := Name}}, {_, Acc}) -> {Name, Acc#{Name => []}};
           ({series, {Text, _, Value, _}}, {Name, Acc}) ->
                {Name, Acc#{Name := [{Text, Value} | maps:get(Name, Acc)]}}
        end, {none, #{}}),
    Page.

series(Name) -> maps:get(Name, page(), []).

declared() -> maps:from_list([{maps:get(name, F), F} || F <- erlane_metrics_walk:families()]).

%% A page with a family that has values.
woken(Name) ->
    until(fun() -> maps:get(Name, page(), []) =/= [] end, true),
    page().

labelled(Label, Name, Page) ->
    {Label, Value} = lists:keyfind(Label, 1, maps:get(Name, Page)),
    Value.

failures(Name) ->
    maps:get(failures, maps:get(Name, erlane_metrics_collector:info())).

callback_failures() ->
    [{<<>>, N}] = series(<<"erlane_metrics_callback_failures">>),
    N.

%% Waits for an answer, at most ten seconds.
until(Fun, Expected) ->
    until(Fun, Expected, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Expected, Deadline) ->
    case {Fun(), erlang:monotonic_time(millisecond) < Deadline} of
        {Expected, _} -> Expected;
        {_, true} -> receive after 5 -> until(Fun, Expected, Deadline) end;
        {Other, false} -> ct:fail({not_reached, Expected, Other})
    end.
