%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: VMs with fewer schedulers online than there are, and schedulers that go
%% offline and come back while every lane has work. Each case runs in a VM of its own.
-module(erlane_online_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, end_per_testcase/2]).
-export([
    starts/1, traffic_while_changing/1, all_combinations/1, noticed_by_itself/1, stand_in_killed/1,
    keeper_killed/1, poller_killed_offline/1, poller_killed_going_offline/1, stop_while_offline/1,
    keeper_killed_then_stop/1, no_descriptor_for_lanes/1, noticed_by_who_waits/1,
    noticed_by_who_is_active/1
]).
-export([run/2, started/2, changing/0, combinations/0, unasked/0, kill_stand_ins/0, kill_keeper/0,
         kill_offline/0, kill_going/0, stop_offline/0, kill_keeper_stop/0, no_descriptor/0,
         silence/0, active_silence/0]).

-import(erlane_ct, [async/1, await/2, wait_until/2, elapsed/1]).

-define(ERLANE, [{backend, erlane}]).
-define(DEADLINE, 10000).
%% The longest that one step of a case may take before it counts as hung.
-define(PEER_MS, 25000).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [
        starts, traffic_while_changing, all_combinations, noticed_by_itself, stand_in_killed,
        keeper_killed, poller_killed_offline, poller_killed_going_offline, stop_while_offline,
        keeper_killed_then_stop, no_descriptor_for_lanes, noticed_by_who_waits,
        noticed_by_who_is_active
    ].

end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% `F(A)' of this module in a VM with `Schedulers' (the argument of +S).
in_vm(Schedulers, F, A) ->
    Paths = lists:append([["-pa", P] || P <- code:get_path(), filelib:is_dir(P)]),
    {ok, Peer, _} = peer:start_link(
        #{connection => standard_io, args => ["+S", Schedulers | Paths]}
    ),
    {ok, _} = peer:call(Peer, application, ensure_all_started, [erlane_socket], ?DEADLINE),
    Result = peer:call(Peer, ?MODULE, run, [F, A], ?PEER_MS),
    ok = peer:stop(Peer),
    Result.

%% @private What `F(A)' gives, or why it, or a process linked to it, has failed.
-spec run(atom(), [term()]) -> term().
run(F, A) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({result, apply(?MODULE, F, A)}) end),
    receive
        {'DOWN', Ref, process, Pid, {result, Result}} -> Result;
        {'DOWN', Ref, process, Pid, Why} -> {failed, Why}
    end.

online(N) ->
    _ = erlang:system_flag(schedulers_online, N),
    ok.

%% What hangs for ever is a failed case with a name, not a timetrap.
within(What, Fun) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({result, Fun()}) end),
    receive
        {'DOWN', Ref, process, Pid, {result, Result}} -> Result;
        {'DOWN', Ref, process, Pid, Why} -> error({What, Why})
    after 5000 -> error({What, hangs, process_info(Pid, current_stacktrace)})
    end.

lanes() -> within(lanes, fun erlane_socket:lanes/0).

%% Connected sockets on lane I, passive. Their owner is a process that does nothing, so that
%% they do not follow anybody, and they are used by others. Small buffers: what is under way at the
%% end of a stream is read soon, also on a busy machine.
pair_on(I) ->
    Parent = self(),
    Pid = spawn_link(fun() ->
        Opts = [binary, {active, false}, {sndbuf, 16384}, {recbuf, 16384}, {erlane, #{lane => I}}],
        {L, Port} = erlane_ct:listen(?ERLANE, Opts),
        C = erlane_ct:connect(?ERLANE, Port, Opts),
        S = erlane_ct:accept(L),
        ok = gen_tcp:close(L),
        Parent ! {self(), C, S},
        receive never -> ok end
    end),
    receive {Pid, C, S} -> {C, S} after ?DEADLINE -> error({no_pair, I}) end.

on_lane(I, {'$inet', erlane_tcp, Ref}) -> lists:member(Ref, erlane_nif:lane_list(I)).

echo({C, S}, N) ->
    within({echo, N}, fun() ->
        ok = gen_tcp:send(C, <<N:32>>),
        {ok, <<N:32>>} = gen_tcp:recv(S, 4, 4000),
        ok = gen_tcp:send(S, <<N:32>>),
        {ok, <<N:32>>} = gen_tcp:recv(C, 4, 4000),
        ok
    end).

%% Fewer schedulers than there are from the start: lanes for those that are online.
starts(_Config) ->
    [ok = in_vm(Schedulers, started, [All, Online])
     || {Schedulers, All, Online} <- [{"4:2", 4, 2}, {"4:1", 4, 1}]].

started(All, Online) ->
    ?assertEqual(lists:seq(1, Online), lanes()),
    Pairs = [pair_on(I) || I <- lists:seq(1, Online)],
    _ = [?assert(on_lane(I, C)) || {I, {C, _}} <- lists:zip(lists:seq(1, Online), Pairs)],
    _ = [ok = echo(P, 1) || P <- Pairs],
    ok = online(All),
    ?assertEqual(lists:seq(1, All), lanes()),
    More = [pair_on(I) || I <- lists:seq(1, All)],
    _ = [?assert(on_lane(I, C)) || {I, {C, _}} <- lists:zip(lists:seq(1, All), More)],
    _ = [ok = echo(P, 2) || P <- Pairs ++ More],
    ok = online(Online),
    %% A lane that was opened stays: its sockets do.
    ?assertEqual(lists:seq(1, All), lanes()),
    _ = [ok = echo(P, 3) || P <- Pairs ++ More],
    ok.

%% Numbers that stream through a pair, written and read at the same time, checked one by one.
%% The counter I of Counts tells how far it has come.
stream({C, S}, Counts, I, Pause) ->
    Writer = async(fun() -> write(C, 1, Pause) end),
    Reader = async(fun() -> read(S, 1, Counts, I) end),
    {Writer, Reader}.

%% With a pause of 1 ms the lane falls asleep between bursts, with 0 it always has work.
write(C, N, Pause) ->
    Burst = 1 + N rem 97,
    ok = gen_tcp:send(C, [<<M:32>> || M <- lists:seq(N, N + Burst - 1)]),
    receive
        stop -> ok = gen_tcp:shutdown(C, write), N + Burst
    after Pause ->
        write(C, N + Burst, Pause)
    end.

read(S, N, Counts, I) ->
    case gen_tcp:recv(S, 4, ?DEADLINE) of
        {ok, <<N:32>>} ->
            counters:put(Counts, I, N),
            read(S, N + 1, Counts, I);
        {error, closed} ->
            N;
        Other ->
            error({after_number, N, on_lane, I, Other})
    end.

%% Each stream goes on from here.
all_move(Counts, Lanes) ->
    Before = [{I, counters:get(Counts, I)} || I <- Lanes],
    Stuck = fun() -> [I || {I, N} <- Before, counters:get(Counts, I) < N + 100] end,
    try wait_until(fun() -> Stuck() =:= [] end, 5000)
    catch error:_ -> error({no_progress_on_lanes, Stuck(), online,
                            erlang:system_info(schedulers_online)})
    end.

finish(Streams) ->
    _ = [Writer ! stop || {Writer, _} <- Streams],
    Written = [await(Writer, ?DEADLINE) || {Writer, _} <- Streams],
    ?assertEqual(Written, [await(Reader, ?DEADLINE) || {_, Reader} <- Streams]),
    ok.

%% Runs `Test' with a stream on each of four lanes, and sockets that follow their owners.
with_traffic(Test) ->
    Lanes = [1, 2, 3, 4],
    Lanes = lanes(),
    Counts = counters:new(4, []),
    Streams = [stream(pair_on(I), Counts, I, 0) || I <- Lanes],
    Roaming = erlane_ct:traffic(2),
    Idle = [{I, pair_on(I)} || I <- Lanes],
    State = fun(N) ->
        ok = all_move(Counts, Lanes),
        ?assertEqual(Lanes, lanes()),
        _ = [begin ok = echo(P, N), ?assert(on_lane(I, element(1, P))) end || {I, P} <- Idle],
        ok
    end,
    ok = State(0),
    ok = Test(State),
    ok = online(4),
    ok = State(4),
    ok = finish(Streams),
    erlane_ct:finish(Roaming).

traffic_while_changing(_Config) ->
    ok = in_vm("4:4", changing, []).

changing() ->
    with_traffic(fun(State) ->
        lists:foreach(fun(N) -> ok = online(N), ok = State(N) end, [3, 1, 2, 4, 1, 4])
    end).

%% From every number to every other, without a look in between whether all is well: what was
%% begun for one state is in the way of the next.
all_combinations(_Config) ->
    ok = in_vm("4:4", combinations, []).

combinations() ->
    with_traffic(fun(State) ->
        _ = [begin ok = online(A), ok = online(B) end || A <- [1, 2, 3, 4], B <- [4, 3, 2, 1]],
        ok = State(1),
        _ = [begin ok = online(N), _ = lanes() end || _ <- [1, 2], N <- [4, 1, 3, 2]],
        State(2)
    end).

gone(Pids) ->
    wait_until(fun() -> not lists:any(fun is_process_alive/1, Pids) end, ?DEADLINE).

%% Nobody calls anything: a lane that has work notices that others are not polled.
noticed_by_itself(_Config) ->
    ok = in_vm("4:4", unasked, []).

unasked() ->
    Lanes = lanes(),
    Counts = counters:new(4, []),
    Streams = [stream(pair_on(I), Counts, I, I rem 2) || I <- Lanes],
    Change = fun(N) -> ok = online(N), ok = all_move(Counts, Lanes) end,
    _ = [Change(N) || _ <- lists:seq(1, 20), N <- [1, 4]],
    finish(Streams),
    ok.

stand_ins() -> [Pid || {_, stand_in, Pid} <- erlane_lanes:pollers()].

%% The stand-in of one lane dies: its lane gets another, and the others' sockets live.
stand_in_killed(_Config) ->
    ok = in_vm("4:4", kill_stand_ins, []).

kill_stand_ins() ->
    with_traffic(fun(State) ->
        ok = online(1),
        ok = State(1),
        Kill = fun(_) ->
            ok = wait_until(fun() -> length(stand_ins()) =:= 3 end, ?DEADLINE),
            [Victim | _] = stand_ins(),
            exit(Victim, kill),
            ok = gone([Victim]),
            State(1)
        end,
        lists:foreach(Kill, [1, 2, 3])
    end).

%% Who keeps the stand-ins dies.
keeper_killed(_Config) ->
    ok = in_vm("4:4", kill_keeper, []).

kill_keeper() ->
    with_traffic(fun(State) ->
        ok = online(2),
        ok = State(2),
        ok = new_keeper(),
        State(2)
    end).

new_keeper() ->
    Keeper = whereis(erlane_lanes),
    exit(Keeper, kill),
    wait_until(fun() -> not lists:member(whereis(erlane_lanes), [undefined, Keeper]) end,
               ?DEADLINE).

pollers(Lanes) -> [Pid || {I, own, Pid} <- erlane_lanes:pollers(), lists:member(I, Lanes)].

%% Pollers are killed whose schedulers are offline: bound, they die when those are back. Then
%% one whose scheduler is online.
poller_killed_offline(_Config) ->
    ok = in_vm("4:4", kill_offline, []).

kill_offline() ->
    with_traffic(fun(State) ->
        ok = online(2),
        ok = State(2),
        Away = pollers([3, 4]),
        _ = [exit(Pid, kill) || Pid <- Away],
        ok = State(2),
        Here = pollers([1]),
        _ = [exit(Pid, kill) || Pid <- Here],
        ok = gone(Here),
        ok = State(2),
        ok = online(4),
        ok = gone(Away),
        State(4)
    end).

%% Pollers are killed at the moment their schedulers go offline: their successors cannot run
%% there, and nobody may wait for them.
poller_killed_going_offline(_Config) ->
    ok = in_vm("4:4", kill_going, []).

kill_going() ->
    with_traffic(fun(State) ->
        Round = fun(_) ->
            _ = [exit(Pid, kill) || Pid <- pollers([3, 4])],
            ok = online(1),
            ok = State(1),
            ok = online(4),
            State(4)
        end,
        lists:foreach(Round, [1, 2])
    end).

%% The application stops although some of its pollers cannot run, and starts again.
stop_while_offline(_Config) ->
    ok = in_vm("4:4", stop_offline, []).

stop_offline() ->
    Lanes = lanes(),
    Pairs = [pair_on(I) || I <- Lanes],
    ok = online(1),
    ?assertEqual(Lanes, lanes()),
    Readers = [async(fun() -> gen_tcp:recv(S, 0) end) || {_, S} <- Pairs],
    _ = [erlane_ct:blocked(Pid) || Pid <- Readers],
    {Ms, ok} = elapsed(fun() ->
        within(stop, fun() -> application:stop(erlane_socket) end)
    end),
    ?assertEqual([{error, closed}], lists:usort([await(Pid, ?DEADLINE) || Pid <- Readers])),
    ?assert(Ms < 10000),
    {ok, _} = application:ensure_all_started(erlane_socket),
    ?assertEqual(1, erlang:system_info(schedulers_online)),
    ?assertEqual([1], lanes()),
    ok = echo(pair_on(1), 1),
    ok = online(4),
    ?assertEqual(Lanes, lanes()),
    _ = [ok = echo(pair_on(I), I) || I <- Lanes],
    ok.

%% Pollers of a keeper that was killed cannot die while their schedulers are offline, and their
%% successor, which never started them, still stops: the application, which waits for them, too.
keeper_killed_then_stop(_Config) ->
    ok = in_vm("4:4", kill_keeper_stop, []).

kill_keeper_stop() ->
    Lanes = lanes(),
    ok = online(1),
    ?assertEqual(Lanes, lanes()),
    Pollers = pollers(Lanes),
    ok = new_keeper(),
    ok = new_keeper(),
    ok = within(stop, fun() -> application:stop(erlane_socket) end),
    ?assertEqual(1, erlang:system_info(schedulers_online)),
    ok = gone(Pollers),
    {ok, _} = application:ensure_all_started(erlane_socket),
    ?assertEqual([1], lanes()),
    ok = echo(pair_on(1), 1).

%% A scheduler comes online and no descriptor is left for its lane: the other lanes live on, and
%% it gets one later.
no_descriptor_for_lanes(_Config) ->
    ok = in_vm("4:1", no_descriptor, []).

no_descriptor() ->
    [1] = lanes(),
    Pair = pair_on(1),
    %% Loads what this case needs: without descriptors no module can be.
    ok = echo(Pair, 1),
    _ = erlane_lanes:pollers(),
    erlane_log:limited(test, "~p", [loaded]),
    Keeper = whereis(erlane_lanes),
    [] = os:cmd(io_lib:format("prlimit --nofile=~b: --pid ~s", [erlane_ct:fds() + 16,
                                                               os:getpid()])),
    Sockets = use_up([]),
    ok = online(4),
    ?assertEqual([1], lanes()),
    ?assertEqual([1], [I || {I, own, _} <- erlane_lanes:pollers()]),
    ok = echo(Pair, 2),
    ?assertEqual(Keeper, whereis(erlane_lanes)),
    _ = [ok = gen_tcp:close(S) || S <- Sockets],
    ok = echo(Pair, 3),
    ?assertEqual([1, 2, 3, 4], lanes()),
    _ = [ok = echo(pair_on(I), I) || I <- [2, 3, 4]],
    ?assertEqual(Keeper, whereis(erlane_lanes)),
    ok.

use_up(Sockets) ->
    case gen_tcp:listen(0, [{inet_backend, inet}, {tcp_module, erlane_tcp}]) of
        {ok, S} -> use_up([S | Sockets]);
        {error, emfile} -> Sockets
    end.

%% Every lane sleeps and nobody opens anything when schedulers go offline: whoever begins to wait
%% for a socket sees that their connections are not polled.
noticed_by_who_waits(_Config) ->
    ok = in_vm("4:4", silence, []).

silence() ->
    Lanes = lanes(),
    Pairs = [pair_on(I) || I <- [3, 4]],
    {Quiet, _} = pair_on(1),
    lists:foreach(fun(Online) ->
        Readers = [async(fun() -> gen_tcp:recv(S, 0) end) || {_, S} <- Pairs],
        _ = [erlane_ct:blocked(Pid) || Pid <- Readers],
        ok = wait_until(fun asleep/0, ?DEADLINE),
        ok = online(Online),
        _ = [ok = gen_tcp:send(C, "x") || {C, _} <- Pairs],
        {error, timeout} = gen_tcp:recv(Quiet, 0, 1),
        ?assertEqual([{ok, <<"x">>}, {ok, <<"x">>}], [await(Pid, 5000) || Pid <- Readers])
    end, [1, 4, 2]),
    ?assertEqual(Lanes, lanes()),
    ok.

%% The same by owners that wait for messages: setting active is all they do.
noticed_by_who_is_active(_Config) ->
    ok = in_vm("4:4", active_silence, []).

active_silence() ->
    Lanes = lanes(),
    Streams = [owned_pair_on(I) || I <- [3, 4]],
    lists:foreach(fun(Online) ->
        _ = [begin ok = gen_tcp:send(C, "x"), ok = got(Pid) end || {C, Pid} <- Streams],
        ok = wait_until(fun asleep/0, ?DEADLINE),
        ok = online(Online),
        _ = [begin ok = gen_tcp:send(C, "x"), Pid ! next, ok = got(Pid) end
             || {C, Pid} <- Streams],
        ok = online(4),
        ?assertEqual(Lanes, lanes()),
        _ = [Pid ! next || {_, Pid} <- Streams]
    end, [1, 2]),
    ok.

%% As pair_on/1, but one end has an owner that takes a message at a time, the next when told to.
owned_pair_on(I) ->
    Parent = self(),
    _ = spawn_link(fun() ->
        Opts = [binary, {active, false}, {sndbuf, 16384}, {recbuf, 16384}, {erlane, #{lane => I}}],
        {L, Port} = erlane_ct:listen(?ERLANE, Opts),
        C = erlane_ct:connect(?ERLANE, Port, Opts),
        S = erlane_ct:accept(L),
        ok = gen_tcp:close(L),
        Pid = spawn_link(fun() -> receive next -> owner(S, Parent) end end),
        ok = gen_tcp:controlling_process(S, Pid),
        Pid ! next,
        Parent ! {pair, C, Pid},
        receive never -> ok end
    end),
    receive {pair, C, Pid} -> {C, Pid} after ?DEADLINE -> error({no_pair, I}) end.

owner(S, Parent) ->
    ok = inet:setopts(S, [{active, once}]),
    receive {tcp, S, <<"x">>} -> Parent ! {got, self()} end,
    receive next -> owner(S, Parent) end.

got(Pid) ->
    receive {got, Pid} -> ok after 5000 -> error({nothing, Pid}) end.

%% No lane has turned for a while.
asleep() ->
    Turns = fun() -> [N || #{turns := N} <- erlane_socket:stats()] end,
    Before = Turns(),
    receive after 50 -> Before =:= Turns() end.
