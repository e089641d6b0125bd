%% SPDX-License-Identifier: Apache-2.0
%% Retained messages that were forgotten do not come back: not by a late message, and not with a
%% node that was cut off when they were.
-module(erlane_fanout_retain_SUITE).

-export([all/0, end_per_testcase/2]).
-export([older/1, bounded/1, short/1, malformed/1, cut_off/1]).

-include_lib("stdlib/include/assert.hrl").

-import(erlane_router_ct, [on/2, until/1]).

all() -> [older, bounded, short, malformed, cut_off].

end_per_testcase(_, _) ->
    _ = application:stop(erlane_fanout),
    [application:unset_env(erlane_fanout, Key) || Key <- [retained, forgotten]],
    ok.

start(Env) ->
    _ = application:load(erlane_fanout),
    [ok = application:set_env(erlane_fanout, Key, Value) || {Key, Value} <- Env],
    {ok, _} = application:ensure_all_started(erlane_fanout),
    ok.

%% As another node that was there tells them; handled when this returns.
tell(Rows) ->
    ok = gen_server:cast(erlane_fanout_retain,
                         {told, 'n@far', [{Topic, {Time, 'n@far'}, What, 9}
                                          || {Topic, Time, What} <- Rows]}),
    _ = erlane_fanout_retain:info(),
    ok.

%% Topics with a message, without one, bytes.
info() ->
    #{topics := Topics, forgotten := Forgotten, bytes := Bytes} = erlane_fanout_retain:info(),
    {Topics, Forgotten, Bytes}.

%% A message from before it was forgotten is not kept, also by a process that has crashed since;
%% and one is forgotten whatever the clock of its publisher's node says.
older(_) ->
    ok = start([]),
    Now = erlang:system_time(nanosecond),
    ok = tell([{a, Now - 2, {message, old}}]),
    ?assertEqual({1, 0, 9}, info()),
    ok = erlane_fanout:forget(a),
    ?assertEqual({0, 1, 0}, info()),
    ok = tell([{a, Now - 1, {message, older}}]),
    ?assertEqual({0, 1, 0}, info()),
    exit(whereis(erlane_fanout_retain), kill),
    until(fun() -> {0, 1, 0} = info() end),
    ok = tell([{a, Now - 1, {message, older}}]),
    ?assertEqual({0, 1, 0}, info()),
    ok = tell([{a, Now + 3600_000_000_000, {message, ahead}}]),
    ?assertEqual({1, 0, 9}, info()),
    ?assertEqual([{a, ahead}], erlane_fanout_retain:matching(a)),
    ok = erlane_fanout:forget(a),
    ?assertEqual({0, 1, 0}, info()),
    ok = erlane_fanout:publish(a, again, #{retain => true}),
    ?assertEqual([{a, again}], erlane_fanout_retain:matching(a)).

%% As many are known as there may be messages, the last ones; a message that there was no room for
%% is one of them.
bounded(_) ->
    ok = start([{retained, 2}]),
    Now = erlang:system_time(nanosecond),
    [ok = erlane_fanout:forget(T) || T <- [a, b, c]],
    ?assertEqual({0, 2, 0}, info()),
    ok = tell([{T, Now, {message, T}} || T <- [a, b, c]]),
    ?assertEqual([[{a, a}], [], []], [erlane_fanout_retain:matching(T) || T <- [a, b, c]]),
    [ok = erlane_fanout:publish(T, m, #{retain => true}) || T <- [d, e]],
    ?assertMatch(#{topics := 2, refused := 1}, erlane_fanout_retain:info()),
    ok = tell([{e, Now, {message, old}}]),
    ok = erlane_fanout:forget(a),
    ?assertEqual([], erlane_fanout_retain:matching(e)).

%% Not for longer than was said.
short(_) ->
    ok = start([{forgotten, 0}]),
    [ok = erlane_fanout:forget(T) || T <- [a, b]],
    {0, N, 0} = info(),
    ?assert(N < 2).

%% Another node may send anything.
malformed(_) ->
    ok = start([]),
    Server = whereis(erlane_fanout_retain),
    [ok = gen_server:cast(Server, Junk)
     || Junk <- [{told, x, [y | z]}, {rows, [y | z]}, {told, x, [{a, {1, b}, junk, 0}]},
                 {rows, [{a, b, none, 0}, {a, {1, b}, none, -1}, {[a], {1, b}, none, 0}]}]],
    ?assertEqual({0, 0, 0}, info()),
    ?assertEqual(Server, whereis(erlane_fanout_retain)).

%% Two nodes and one that is cut off. What is forgotten on either side is forgotten on all three
%% when they are together again, and what was published is known to all.
cut_off(_) ->
    Nodes = [node_with_fanout() || _ <- [1, 2, 3]],
    try apply(fun cut_off/3, Nodes)
    after [erlane_router_ct:stop(N) || N <- Nodes]
    end.

cut_off(A, B, C) ->
    All = [A, B, C],
    [connect(X, Y) || {X, Y} <- [{A, B}, {A, C}, {B, C}]],
    [until(fun() -> 2 = others(N) end) || N <- All],
    Topics = [here, there, both],
    [publish(A, T, kept) || T <- Topics],
    [until(fun() -> [{T, kept}] = kept(N, T) end) || N <- All, T <- Topics],
    [cut(N, C) || N <- [A, B]],
    [until(fun() -> {N, Want} = {N, others(N)} end) || {N, Want} <- [{A, 1}, {B, 1}, {C, 0}]],
    [on(N, fun() -> ok = erlane_fanout:forget(T) end) || {N, T} <- [{A, here}, {C, there}]],
    publish(B, both, late),
    publish(C, island, new),
    until(fun() -> [] = kept(B, here) end),
    ?assertEqual([{here, kept}], kept(C, here)),
    [connect(N, C) || N <- [A, B]],
    %% The island is told together with what its node still had.
    [until(fun() -> {N, T, Want} = {N, T, kept(N, T)} end)
     || {T, Want} <- [{island, [{island, new}]}, {both, [{both, late}]}, {here, []}, {there, []}],
        N <- All].

node_with_fanout() ->
    Paths = [filename:dirname(code:which(M)) || M <- [?MODULE, erlane_fanout, erlane_socket]],
    N = erlane_router_ct:start(),
    %% Functions of this module can run there only after that.
    ok = peer:call(maps:get(peer, N), code, add_paths, [Paths]),
    on(N, fun() -> {ok, _} = application:ensure_all_started(erlane_fanout) end),
    N.

%% Lanes of the router would connect them again: the cookie keeps them from it.
cut(A, B) ->
    Name = erlane_router_ct:node(B),
    on(A, fun() ->
              true = erlang:set_cookie(Name, cut_off),
              _ = erlang:disconnect_node(Name)
          end).

connect(A, B) ->
    Name = erlane_router_ct:node(B),
    until(fun() ->
              on(A, fun() ->
                        true = erlang:set_cookie(Name, erlang:get_cookie()),
                        true = net_kernel:connect_node(Name)
                    end)
          end).

others(N) -> on(N, fun() -> length(erlane_fanout_remote:nodes()) end).

publish(N, Topic, Message) ->
    on(N, fun() -> ok = erlane_fanout:publish(Topic, Message, #{retain => true}) end).

kept(N, Topic) -> on(N, fun() -> erlane_fanout_retain:matching(Topic) end).
