%% SPDX-License-Identifier: Apache-2.0
%% @doc Listen, connect, accept, addresses, descriptors, and what a closed socket answers.
-module(erlane_tcp_basic_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    roundtrip/1, accept_timeout/1, accept_first_come/1, accept_dead_waiter/1,
    accept_late_waiter/1, accept_many/1, accept_closed/1, accept_owner/1, accept_wrong/1,
    backlog_survives/1, wrong_timeout/1, closed_answers/1, listener_answers/1, after_eof/1,
    close_twice/1, socket_is_a_stable_term/1
]).

-import(erlane_ct, [
    opts/2, opts6/2, listen/2, connect/3, accept/1, pair/1, async/1, await/1, blocked/1,
    wait_until/1, outcome/1, kill/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        roundtrip, accept_timeout, accept_first_come, accept_dead_waiter, accept_late_waiter,
        accept_many, accept_closed, accept_owner, accept_wrong, backlog_survives, wrong_timeout,
        closed_answers, listener_answers, after_eof, close_twice, socket_is_a_stable_term
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% Bytes go both ways and close is seen by the other side.
roundtrip(Config) ->
    {C, S} = pair(Config),
    ok = gen_tcp:send(C, <<"ping">>),
    ?assertEqual({ok, <<"ping">>}, gen_tcp:recv(S, 4, 5000)),
    ok = gen_tcp:send(S, [<<"po">>, "ng"]),
    ?assertEqual({ok, <<"pong">>}, gen_tcp:recv(C, 4, 5000)),
    ok = gen_tcp:close(C),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)),
    ok = gen_tcp:close(S).

accept_timeout(Config) ->
    {L, Port} = listen(Config, []),
    ?assertEqual({error, timeout}, gen_tcp:accept(L, 0)),
    {Ms, Answer} = erlane_ct:elapsed(fun() -> gen_tcp:accept(L, 20) end),
    ?assertEqual({error, timeout}, Answer),
    ?assert(Ms >= 19),
    ?assert(Ms < 5000),
    C = connect(Config, Port, []),
    wait_until(fun() ->
        case gen_tcp:accept(L, 0) of
            {ok, S} -> inet:peername(S) =:= inet:sockname(C);
            {error, timeout} -> false
        end
    end).

%% Two waiters, two connections: the first waiter has the first one.
accept_first_come(Config) ->
    {L, Port} = listen(Config, []),
    Take = fun() -> {ok, S} = gen_tcp:accept(L), inet:peername(S) end,
    A = async(Take),
    blocked(A),
    B = async(Take),
    blocked(B),
    C1 = connect(Config, Port, [{active, false}]),
    ?assertEqual(inet:sockname(C1), await(A)),
    C2 = connect(Config, Port, [{active, false}]),
    ?assertEqual(inet:sockname(C2), await(B)).

%% A waiter that was killed takes no connection with it.
accept_dead_waiter(Config) ->
    {L, Port} = listen(Config, []),
    Dead = async(fun() -> gen_tcp:accept(L) end),
    blocked(Dead),
    Alive = async(fun() -> {ok, S} = gen_tcp:accept(L), inet:peername(S) end),
    blocked(Alive),
    ok = kill(Dead),
    C = connect(Config, Port, [{active, false}]),
    ?assertEqual(inet:sockname(C), await(Alive)).

%% Neither does one whose time is over, whatever the moment at which it gives up.
accept_late_waiter(Config) ->
    {L, Port} = listen(Config, []),
    lists:foreach(fun(N) ->
        Early = async(fun() -> gen_tcp:accept(L, N rem 3) end),
        C = connect(Config, Port, []),
        Accepted =
            case await(Early) of
                {ok, _} = Ok -> Ok;
                {error, timeout} -> gen_tcp:accept(L, 5000)
            end,
        ?assertMatch({ok, _}, Accepted),
        ok = gen_tcp:close(C)
    end, lists:seq(1, 60)).

%% Twenty waiters and twenty connections: each gets exactly one.
accept_many(Config) ->
    {L, Port} = listen(Config, [{backlog, 64}]),
    Take = fun() -> {ok, S} = gen_tcp:accept(L), {ok, Peer} = inet:peername(S), Peer end,
    Waiters = [async(Take) || _ <- lists:seq(1, 20)],
    Clients = [connect(Config, Port, [{active, false}]) || _ <- Waiters],
    Names = [begin {ok, Name} = inet:sockname(C), Name end || C <- Clients],
    ?assertEqual(lists:sort(Names), lists:sort([await(W) || W <- Waiters])).

%% Closing the listener wakes all who wait at it.
accept_closed(Config) ->
    {L, _} = listen(Config, []),
    Waiters = [async(fun() -> gen_tcp:accept(L) end) || _ <- lists:seq(1, 5)],
    lists:foreach(fun erlane_ct:blocked/1, Waiters),
    ok = gen_tcp:close(L),
    ?assertEqual(lists:duplicate(5, {error, closed}), [await(W) || W <- Waiters]).

%% The process that accepts is the owner; the listener stays with its own.
accept_owner(Config) ->
    {L, Port} = listen(Config, [binary, {active, true}]),
    Taker = async(fun() ->
        {ok, S} = gen_tcp:accept(L),
        {tcp, S, <<"mine">>} = erlane_ct:next(S),
        #{owner := Owner} = inet:info(S),
        Owner
    end),
    C = connect(Config, Port, [{active, false}]),
    ok = gen_tcp:send(C, "mine"),
    ?assertEqual(Taker, await(Taker)),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 5000)),
    ?assertMatch(#{owner := Self} when Self =:= self(), inet:info(L)).

accept_wrong(Config) ->
    {C, _S} = pair(Config),
    ?assertEqual({error, einval}, gen_tcp:accept(C, 10)),
    ?assertEqual({error, einval}, gen_tcp:accept(C)).

%% Connections made before anybody accepts are kept, with the bytes sent on them.
backlog_survives(Config) ->
    {L, Port} = listen(Config, [binary, {active, false}, {backlog, 32}]),
    Clients = [connect(Config, Port, []) || _ <- lists:seq(1, 16)],
    _ = [ok = gen_tcp:send(C, [<<N:16>>]) || {N, C} <- lists:enumerate(Clients)],
    Got = [begin {ok, <<N:16>>} = gen_tcp:recv(accept(L), 2, 5000), N end || _ <- Clients],
    ?assertEqual(lists:seq(1, 16), Got).

wrong_timeout(Config) ->
    {L, Port} = listen(Config, [{active, false}]),
    C = connect(Config, Port, [{active, false}]),
    ?assertEqual(refused, outcome(fun() -> gen_tcp:accept(L, foo) end)),
    ?assertEqual(refused, outcome(fun() -> gen_tcp:recv(C, 0, foo) end)),
    ?assertEqual(refused, outcome(fun() -> gen_tcp:recv(C, -1, 10) end)),
    ?assertEqual(refused, outcome(fun() -> gen_tcp:recv(C, foo, 10) end)),
    ?assertEqual(refused, outcome(fun() -> gen_tcp:shutdown(C, sideways) end)),
    ?assertEqual(
        refused,
        outcome(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, []), foo) end)
    ),
    ok = gen_tcp:send(C, "fine"),
    ?assertEqual({ok, "fine"}, gen_tcp:recv(accept(L), 4, 5000)).

closed_answers(Config) ->
    {C, _S} = pair(Config),
    ok = gen_tcp:close(C),
    [
        ?assertEqual({Name, {error, closed}}, {Name, F()})
     || {Name, F} <- [
            {send, fun() -> gen_tcp:send(C, "x") end}, {recv, fun() -> gen_tcp:recv(C, 0) end},
            {accept, fun() -> gen_tcp:accept(C) end}, {unrecv, fun() -> gen_tcp:unrecv(C, "x") end},
            {read, fun() -> gen_tcp:shutdown(C, read) end},
            {write, fun() -> gen_tcp:shutdown(C, write) end},
            {give, fun() -> gen_tcp:controlling_process(C, self()) end}
        ]
    ],
    [
        ?assertEqual({Name, {error, einval}}, {Name, F()})
     || {Name, F} <- [
            {setopts, fun() -> inet:setopts(C, [{active, once}]) end},
            {getopts, fun() -> inet:getopts(C, [active]) end},
            {sockname, fun() -> inet:sockname(C) end}, {peername, fun() -> inet:peername(C) end},
            {socknames, fun() -> inet:socknames(C) end}, {port, fun() -> inet:port(C) end},
            {getstat, fun() -> inet:getstat(C) end}
        ]
    ].

listener_answers(Config) ->
    {L, _} = listen(Config, [{active, false}]),
    ?assertEqual({error, enotconn}, gen_tcp:recv(L, 0, 100)),
    ?assertEqual({error, enotconn}, gen_tcp:send(L, "x")),
    ?assertEqual({error, enotconn}, gen_tcp:shutdown(L, read_write)),
    ?assertEqual({error, enotconn}, inet:peername(L)).

%% A passive socket whose end has been read is closed, but remembers that it was one.
after_eof(Config) ->
    {C, S} = pair(Config),
    ok = gen_tcp:close(C),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({error, closed}, gen_tcp:send(S, "x")),
    ?assertEqual({error, enotconn}, gen_tcp:recv(S, 0, 100)),
    ?assertEqual(ok, gen_tcp:close(S)),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 100)).

close_twice(Config) ->
    {C, _} = pair(Config),
    ?assertEqual(ok, gen_tcp:close(C)),
    ?assertEqual(ok, gen_tcp:close(C)),
    ?assertEqual(ok, await(async(fun() -> gen_tcp:close(C) end))).

%% Messages carry the same term that connect and accept gave.
socket_is_a_stable_term(Config) ->
    {C, S} = pair(Config),
    ok = inet:setopts(S, [{active, once}]),
    ok = gen_tcp:send(C, "x"),
    ?assertEqual({tcp, S, <<"x">>}, erlane_ct:next(S)),
    ?assertNot(C =:= S).
