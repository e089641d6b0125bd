%% SPDX-License-Identifier: Apache-2.0
%% What is found on real nodes, the lines they are started with, busy events, and the metrics.
-module(erlane_dist_check_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([stock_node/1, finds_each/1, tuned_node/1, not_alive/1, boot_lines/1, padded/1,
         system_monitor_is_held/1, system_monitor_becomes_free/1, busy_is_counted/1,
         strange_events/1, metrics_of_peers/1, metrics_without_the_app/1, ticks/1,
         targets_hold/1]).

-import(erlane_dist_ct, [start/0, start/1, stop/1, call/4, connect/2, name/1, until/1, tune/2,
                         check/1]).

all() ->
    [stock_node, finds_each, tuned_node, not_alive, boot_lines, padded, system_monitor_is_held,
     system_monitor_becomes_free, busy_is_counted, strange_events, metrics_of_peers,
     metrics_without_the_app, ticks, targets_hold].

%%% check

%% A node as it comes: everything is found, with a reason and a line.
stock_node(_Config) ->
    [A, B, C] = Nodes = [start(), start(["-hidden"]), start()],
    ok = connect(A, B),
    ok = connect(C, A),
    Findings = check(A),
    Keys = [buffer, delay_send, high_watermark, low_watermark],
    ?assertEqual(lists:sort([{vm, zdbbl, boot}]
                            ++ [{Where, Key, now} || Key <- Keys,
                                                     Where <- [new, new, name(B), name(C)]]),
                 lists:sort([{W, K, Fix} || #{where := W, key := K, fix := Fix} <- Findings])),
    ?assertEqual([accept, connect], lists:usort([S || #{where := new, side := S} <- Findings])),
    [#{is := 1024, want := 32768, line := "+zdbbl 32768"}] =
        [F || #{key := zdbbl} = F <- Findings],
    [begin
         ?assert(length(Why) > 20 andalso length(Line) > 5, F),
         ?assertNotEqual(Is, Want)
     end || #{why := Why, line := Line, is := Is, want := Want} = F <- Findings],
    stop(Nodes).

%% One thing that is wrong is the one that is found.
finds_each(_Config) ->
    [A, B] = Nodes = [start(), start()],
    ok = connect(A, B),
    {ok, _} = tune(A, #{}),
    ?assertEqual([zdbbl], [Key || #{key := Key} <- check(A)]),
    [begin
         ok = call(A, net_kernel, setopts, [name(B), [{Key, Value}]]),
         ?assertMatch([#{is := Value, key := Key}],
                      [F || #{where := W} = F <- check(A), W =:= name(B)]),
         {ok, [#{key := Key, was := Value}]} = tune(A, #{})
     end || {Key, Value} <- [{buffer, 65536}, {delay_send, false}, {low_watermark, 500000}]],
    stop(Nodes).

%% What `tune' can mend is mended, and nothing else is left that could be mended now.
tuned_node(_Config) ->
    [A, B] = Nodes = [start(["+zdbbl", "32768"]), start()],
    ok = connect(A, B),
    {ok, _} = call(A, erlane_dist, tune, []),
    ?assertEqual([], check(A)),
    stop(Nodes).

%% This VM is no node: what can be said is for its next start.
not_alive(_Config) ->
    false = is_alive(),
    Findings = erlane_dist:check(),
    ?assertEqual([boot], lists:usort([Fix || #{fix := Fix} <- Findings])),
    ?assertEqual([new, vm], lists:usort([W || #{where := W} <- Findings])).

%% Started with exactly the lines it gives, a node has nothing to find, whoever connects.
boot_lines(Config) ->
    #{vm_args := VmArgs, sys_config := SysConfig} = erlane_dist:boot_lines(),
    Dir = proplists:get_value(priv_dir, Config),
    Args = filename:join(Dir, "vm.args"),
    Sys = filename:join(Dir, "boot"),
    ok = file:write_file(Args, VmArgs),
    ok = file:write_file(Sys ++ ".config", SysConfig),
    {ok, [[{kernel, [_, _]}]]} = file:consult(Sys ++ ".config"),
    [A, B, C] = Nodes = [start(["-args_file", Args, "-config", Sys]), start(), start()],
    ?assertEqual([], check(A)),
    ok = connect(A, B),
    ok = connect(C, A),
    ?assertEqual([], check(A)),
    ?assertEqual({ok, []}, call(A, erlane_dist, tune, [])),
    stop(Nodes).

%% +pad true is found from 25.3 on, where it exists.
padded(_Config) ->
    Exists = try is_boolean(erlang:system_info(async_dist))
             catch error:badarg -> false
             end,
    case Exists of
        true ->
            A = start(["+pad", "true"]),
            [#{is := true, want := false, fix := boot, line := "+pad false"}] =
                [F || #{key := pad} = F <- check(A)],
            stop([A]);
        false ->
            %% Nothing is said of a flag that the VM does not know.
            [] = [F || #{key := pad} = F <- erlane_dist:check()]
    end.

%%% Busy events

%% Another process has the system monitor: it is named, it keeps it, and it may forward. From
%% OTP 28 on nobody has to care.
system_monitor_is_held(_Config) ->
    [A, B] = Nodes = [start(), start()],
    ok = connect(A, B),
    Holder = call(A, erlang, spawn, [erlane_dist_ct, hold, [busy_dist_port]]),
    until(fun() -> {Holder, _} = call(A, erlang, system_monitor, []) end),
    {ok, _} = call(A, application, ensure_all_started, [erlane_dist]),
    ?assertMatch({Holder, [busy_dist_port]}, call(A, erlang, system_monitor, [])),
    case sessions() of
        true ->
            trace = call(A, erlane_dist, busy_source, []),
            [] = [F || #{key := system_monitor} = F <- check(A)];
        false ->
            {held, Holder} = call(A, erlane_dist, busy_source, []),
            [#{is := erlane_dist_ct_holder, fix := now}] =
                [F || #{key := system_monitor} = F <- check(A)],
            [#{is := erlane_dist_ct_holder}] =
                [F || #{key := system_monitor} = F <-
                          element(2, {ok, _} = call(B, erlane_dist, check, [name(A)]))],
            #{} = Empty = call(A, erlane_dist, busy, []),
            0 = map_size(Empty),
            {_, Port} = lists:keyfind(name(B), 1, call(A, erlang, system_info, [dist_ctrl])),
            Event = {monitor, Holder, busy_dist_port, Port},
            ok = call(A, erlane_dist, busy, [Event]),
            ok = call(A, erlane_dist, busy, [Event]),
            Expected = #{name(B) => 2},
            until(fun() -> Expected = call(A, erlane_dist, busy, []) end),
            forwarded = call(A, erlane_dist, busy_source, []),
            [] = [F || #{key := system_monitor} = F <- check(A)],
            ?assertMatch({Holder, [busy_dist_port]}, call(A, erlang, system_monitor, []))
    end,
    stop(Nodes).

%% It is taken when its holder has ended, at the next look.
system_monitor_becomes_free(_Config) ->
    A = start(),
    Holder = call(A, erlang, spawn, [erlane_dist_ct, hold, [busy_port]]),
    until(fun() -> {Holder, _} = call(A, erlang, system_monitor, []) end),
    {ok, _} = call(A, application, ensure_all_started, [erlane_dist]),
    true = call(A, erlang, exit, [Holder, kill]),
    until(fun() -> undefined = call(A, erlang, system_monitor, []) end),
    ok = call(A, erlane_dist_busy, claim, []),
    Source = case sessions() of true -> trace; false -> system_monitor end,
    until(fun() -> Source = call(A, erlane_dist, busy_source, []) end),
    [] = [F || #{key := system_monitor} = F <- check(A)],
    ok = call(A, application, stop, [erlane_dist]),
    none = call(A, erlane_dist, busy_source, []),
    undefined = call(A, erlang, system_monitor, []),
    stop([A]).

%% A peer that is frozen: whoever sends to it is suspended, which is counted for it alone.
busy_is_counted(_Config) ->
    [A, B, C] = Nodes = [start(), start(), start()],
    ok = connect(A, B),
    ok = connect(A, C),
    {ok, _} = call(A, application, ensure_all_started, [erlane_dist]),
    Pid = call(B, os, getpid, []),
    "" = os:cmd("kill -STOP " ++ Pid),
    try
        Sender = call(A, erlang, spawn, [erlane_dist_ct, flood, [{nobody, name(B)}]]),
        NodeB = name(B),
        until(fun() -> #{NodeB := N} = call(A, erlane_dist, busy, []), true = N >= 1 end),
        ?assertNot(is_map_key(name(C), call(A, erlane_dist, busy, []))),
        true = call(A, erlang, exit, [Sender, kill])
    after
        "" = os:cmd("kill -CONT " ++ Pid)
    end,
    stop(Nodes).

%% Nothing that is forwarded takes the process down, or is counted.
strange_events(_Config) ->
    A = start(),
    ok = call(A, erlane_dist, busy, [{monitor, self(), busy_dist_port, no_port}]),
    {ok, _} = call(A, application, ensure_all_started, [erlane_dist]),
    Pid = call(A, erlang, whereis, [erlane_dist_busy]),
    [begin
         ok = call(A, erlane_dist, busy, [Event]),
         _ = call(A, erlang, send, [erlane_dist_busy, Event])
     end || Event <- [x, {monitor, x, y}, {monitor, 1, long_gc, []},
                      {monitor, 1, busy_dist_port, no_port},
                      {monitor, 1, busy_dist_port, #{}}, {forwarded, x}, {forwarded, {}}]],
    {error, unknown_call} = call(A, gen_server, call, [erlane_dist_busy, x]),
    ?assertEqual(Pid, call(A, erlang, whereis, [erlane_dist_busy])),
    0 = map_size(call(A, erlane_dist, busy, [])),
    stop([A]).

sessions() ->
    _ = code:ensure_loaded(trace),
    erlang:function_exported(trace, system, 3).

%%% Metrics

%% The names that dashboards know, a series for each peer, and what the VM itself says.
metrics_of_peers(_Config) ->
    [A, B, C] = Nodes = [start(), start(["-hidden"]), start()],
    {ok, _} = call(A, application, ensure_all_started, [erlane_metrics]),
    {ok, _} = call(A, application, ensure_all_started, [erlane_dist]),
    ok = connect(A, B),
    ok = connect(C, A),
    Page = until(fun() ->
                         Text = page(A),
                         {match, _} = re:run(Text, "erlang_vm_dist_recv_bytes\\{"),
                         Text
                 end),
    Peers = lists:sort([atom_to_list(name(N)) || N <- [B, C]]),
    [?assertEqual({Name, Peers}, {Name, lists:sort(series(Page, Name))})
     || Name <- ["recv_bytes", "recv_cnt", "send_bytes", "send_cnt", "send_pend_bytes",
                 "port_queue_size_bytes", "port_memory_bytes", "node_queue_size_bytes",
                 "node_state", "proc_message_queue_len", "busy_events_total",
                 "ticks_sent_total"]],
    {match, [Sent]} = re:run(Page, ["erlang_vm_dist_send_bytes\\{peer=\"",
                                    atom_to_list(name(C)), "\"\\} ([0-9]+)"],
                             [{capture, all_but_first, list}]),
    {_, Port} = lists:keyfind(name(C), 1, call(A, erlang, system_info, [dist_ctrl])),
    {ok, [{send_oct, Now}]} = call(A, inet, getstat, [Port, [send_oct]]),
    ?assert(list_to_integer(Sent) > 0 andalso list_to_integer(Sent) =< Now),
    {match, _} = re:run(Page, "# TYPE erlang_vm_dist_recv_bytes gauge"),
    %% Before the first tick there is none, whoever connected.
    {Series, _} = call(A, erlane_dist_metrics, collect, [#{}]),
    {_, [{[_], 0}, {[_], 0}]} = lists:keyfind(<<"erlang_vm_dist_ticks_sent">>, 1, Series),
    %% The house's own collector is still there, beside it.
    {match, _} = re:run(Page, "erlang_dist_received_bytes_total\\{"),
    ok = call(A, application, stop, [erlane_dist]),
    nomatch = re:run(page(A), "^erlang_vm_dist_", [multiline]),
    stop(Nodes).

%% Without erlane_metrics the application starts all the same, and registers later.
metrics_without_the_app(_Config) ->
    A = start(),
    {ok, _} = call(A, application, ensure_all_started, [erlane_dist]),
    {error, {not_started, erlane_metrics}} =
        case lists:keymember(erlane_metrics, 1, call(A, application, which_applications, [])) of
            true ->
                ok = call(A, application, stop, [erlane_metrics]),
                call(A, erlane_dist_metrics, register, []);
            false ->
                call(A, erlane_dist_metrics, register, [])
        end,
    {ok, _} = call(A, application, ensure_all_started, [erlane_metrics]),
    ok = call(A, erlane_dist_metrics, register, []),
    ok = call(A, erlane_dist_metrics, register, []),
    stop([A]).

%% On an idle connection of two tuned nodes ticks are sent in time, as no flush waits for more;
%% and they are counted from both sides, those alone.
ticks(_Config) ->
    Tick = ["-kernel", "net_ticktime", "4"],
    [A, B] = Nodes = [start(Tick), start(Tick)],
    ok = connect(A, B),
    [{ok, _} = tune(N, #{}) || N <- Nodes],
    [?assert(ticks_of(N, #{}) =< 1) || N <- Nodes],
    {_, Port} = Connection = lists:keyfind(name(B), 1, call(A, erlang, system_info, [dist_ctrl])),
    %% Messages are none.
    NodeB = name(B),
    [NodeB = call(A, erpc, call, [NodeB, erlang, node, []]) || _ <- lists:seq(1, 50)],
    ?assert(ticks_of(A, #{}) =< 1),
    %% One each second, at most; a connection without any is closed after 3 to 5 seconds.
    [until(fun() -> true = ticks_of(N, #{}) >= 6 end) || N <- Nodes],
    ?assert(ticks_of(A, #{}) < 20),
    Connection = lists:keyfind(name(B), 1, call(A, erlang, system_info, [dist_ctrl])),
    %% What was seen does not become less.
    ?assertEqual(1000, ticks_of(A, #{Port => 1000})),
    stop(Nodes).

ticks_of(Node, State) ->
    {Series, _} = call(Node, erlane_dist_metrics, collect, [State]),
    {_, [{[_], Ticks}]} = lists:keyfind(<<"erlang_vm_dist_ticks_sent">>, 1, Series),
    Ticks.

series(Page, Name) ->
    {match, Found} = re:run(Page, ["^erlang_vm_dist_", Name, "\\{peer=\"([^\"]+)\"[^}]*\\} "],
                            [global, multiline, {capture, all_but_first, list}]),
    lists:append(Found).

%% On a node: a page of metrics.
page(Node) ->
    call(Node, erlane_dist_ct, page, []).

%%% Properties

targets_hold(_Config) ->
    true = proper:quickcheck(prop_erlane_dist:prop_targets(), [{numtests, 500}, {to_file, user}]),
    true = proper:quickcheck(prop_erlane_dist:prop_options(), [{numtests, 500}, {to_file, user}]).
