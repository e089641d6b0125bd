%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: sockets against lanes and schedulers that come, go and change. Each
%% case runs in a VM of its own, so that a crash is a failed case.
-module(erlane_lane_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, end_per_testcase/2]).
-export([lane_killed/1, schedulers_online/1, bound_owner/1, follows_owner/1, follows_reader/1]).
-export([kill_lanes/0, online/0, bound/0, follow/0, follow_reader/0]).

-import(erlane_ct, [async/1, await/2, wait_until/1, traffic/1, moving/0, finish/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [lane_killed, schedulers_online, bound_owner, follows_owner, follows_reader].

end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

pair() -> erlane_ct:pair([{backend, erlane}]).

%% A killed poller is started anew and adopts its poll set; connections live.
lane_killed(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, kill_lanes, []).

lane_pids() ->
    [Pid || {_, own, Pid} <- erlane_lanes:pollers()].

kill_lanes() ->
    Jobs = traffic(10),
    [
        begin
            ok = moving(),
            Old = lane_pids(),
            _ = [exit(Pid, kill) || Pid <- Old],
            wait_until(fun() ->
                New = lane_pids(),
                length(New) =:= length(Old) andalso New -- Old =:= New
            end)
        end
     || _ <- [1, 2, 3]
    ],
    ok = moving(),
    finish(Jobs).

%% Schedulers go offline and come back while all lanes have work.
schedulers_online(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, online, []).

online() ->
    Jobs = traffic(20),
    [
        begin
            _ = erlang:system_flag(schedulers_online, N),
            ok = moving()
        end
     || N <- [1, 2, 1, 2, 1, 2]
    ],
    finish(Jobs).

moved() -> lists:sum([N || #{moved := N} <- erlane_socket:stats()]).

%% An owner bound to another scheduler than the one that opened the socket: the socket
%% follows it, and the echo goes on.
bound_owner(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, bound, []).

bound() ->
    Parent = self(),
    Before = moved(),
    On = fun(I, Fun) -> spawn_opt(Fun, [link, {scheduler, I}]) end,
    Client = On(1, fun() ->
        {C, S} = pair(),
        Echo = On(2, fun() -> receive go -> echo(S) end end),
        ok = gen_tcp:controlling_process(S, Echo),
        Echo ! go,
        ok = inet:setopts(C, [{active, true}]),
        Parent ! {rounds, ping(C, 1)}
    end),
    wait_until(fun() -> moved() > Before end),
    Client ! stop,
    receive {rounds, N} -> ?assert(N > 0) after 10000 -> error(echo_stopped) end,
    ok.

echo(S) ->
    ok = inet:setopts(S, [{active, once}]),
    receive
        {tcp, S, D} -> ok = gen_tcp:send(S, D), echo(S);
        {tcp_closed, S} -> ok
    end.

%% Goes on for 500 rounds after the stop.
ping(C, N) ->
    ok = round_trip(C, N),
    receive
        stop -> _ = [ok = round_trip(C, M) || M <- lists:seq(1, 500)], N
    after 0 -> ping(C, N + 1)
    end.

round_trip(C, N) ->
    ok = gen_tcp:send(C, <<N:32>>),
    receive {tcp, C, <<N:32>>} -> ok after 5000 -> error({no_echo, N}) end.

%% An owner that changes its scheduler again and again in the middle of a stream.
follows_owner(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, follow, []).

follow() ->
    Before = moved(),
    {C, S} = pair(),
    Writer = async(fun() -> count_up(C, 1) end),
    {Rest, Next} = hop(S, fun once/1, 8, {<<>>, 1}),
    Writer ! stop,
    Last = await(Writer, 10000),
    {<<>>, End} = words(S, fun once/1, Rest, Next, fun(N) -> N > Last end),
    ?assertEqual(Last + 1, End),
    ?assert(moved() > Before),
    ok.

%% The same by passive reads alone, which send nothing to the lane.
follows_reader(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, follow_reader, []).

follow_reader() ->
    Before = moved(),
    {C, S} = pair(),
    Writer = async(fun() -> count_up(C, 1) end),
    {Rest, Next} = hop(S, fun read/1, 8, {<<>>, 1}),
    Writer ! stop,
    Last = await(Writer, 10000),
    {<<>>, End} = words(S, fun read/1, Rest, Next, fun(N) -> N > Last end),
    ?assertEqual(Last + 1, End),
    %% Every other hop is to the scheduler where the socket is not.
    ?assert(moved() - Before >= 4),
    ok.

count_up(C, N) ->
    ok = gen_tcp:send(C, <<N:32>>),
    receive stop -> N after 0 -> count_up(C, N + 1) end.

%% Passes the socket to a process on the other scheduler every 150 ms, or as soon after that as it
%% has followed the one before: who is given little of a processor needs longer.
hop(_S, _Get, 0, State) ->
    State;
hop(S, Get, Hops, {Rest, Next}) ->
    Parent = self(),
    Scheduler = 1 + Hops rem 2,
    {'$inet', _, Ref} = S,
    Pid = spawn_opt(fun() ->
        receive go -> ok end,
        Began = erlang:monotonic_time(millisecond),
        State = words(S, Get, Rest, Next, fun(_) ->
            Ms = erlang:monotonic_time(millisecond) - Began,
            Ms > 150 andalso (Ms > 3000 orelse lists:member(Ref, erlane_nif:lane_list(Scheduler)))
        end),
        ok = gen_tcp:controlling_process(S, Parent),
        Parent ! {hop, State}
    end, [link, {scheduler, Scheduler}]),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    receive
        {hop, State} -> hop(S, Get, Hops - 1, State)
    after 30000 -> error({stuck, Next})
    end.

%% Reads and checks consecutive numbers until Done(Next).
words(S, Get, <<N:32, Rest/binary>>, Next, Done) ->
    Next = N,
    words(S, Get, Rest, Next + 1, Done);
words(S, Get, Rest, Next, Done) ->
    case Done(Next) of
        true ->
            {Rest, Next};
        false ->
            D = Get(S),
            words(S, Get, <<Rest/binary, D/binary>>, Next, Done)
    end.

once(S) ->
    ok = inet:setopts(S, [{active, once}]),
    receive {tcp, S, D} -> D after 10000 -> error(no_data) end.

read(S) ->
    {ok, D} = gen_tcp:recv(S, 0, 10000),
    D.
