%% SPDX-License-Identifier: Apache-2.0
%% The fan-out over nodes, with and without the router.
-module(erlane_fanout_nodes_SUITE).

-export([all/0, groups/0, init_per_group/2, end_per_group/2]).
-export([order/1, membership/1, rejoined/1, late/1, stale/1, wildcards/1, retained/1, presence/1,
         junk/1]).

-include_lib("stdlib/include/assert.hrl").

-import(erlane_router_ct, [on/2, until/1]).

all() -> [{group, router}, {group, plain}].

groups() ->
    Cases = [order, membership, rejoined, late, stale, wildcards, retained, presence, junk],
    [{router, Cases}, {plain, Cases}].

init_per_group(Group, Config) ->
    Paths = [filename:dirname(code:which(M)) || M <- [?MODULE, erlane_fanout, erlane_socket]],
    Nodes = [begin
                 N = erlane_router_ct:start(#{app => Group =:= router}),
                 %% Functions of this module can run there only after that.
                 ok = peer:call(maps:get(peer, N), code, add_paths, [Paths]),
                 on(N, fun() ->
                           {ok, _} = application:ensure_all_started(erlane_fanout),
                           Group =:= plain andalso application:stop(erlane_router)
                       end),
                 N
             end || _ <- [1, 2]],
    [A, B] = Nodes,
    Name = erlane_router_ct:node(B),
    on(A, fun() -> true = net_kernel:connect_node(Name) end),
    until(fun() -> [Name] = on(A, fun() -> erlane_fanout_remote:nodes() end) end),
    [{a, A}, {b, B} | Config].

end_per_group(_, Config) ->
    [erlane_router_ct:stop(proplists:get_value(N, Config)) || N <- [a, b]],
    ok.

at(Key, Config, Fun) -> on(proplists:get_value(Key, Config), Fun).

%% A process on a node that subscribes and keeps what it gets; found by its name.
keeper(Name, Filter, Opts) ->
    Self = self(),
    Pid = spawn(fun() ->
                    true = register(Name, self()),
                    {ok, Sub, _} = erlane_fanout:subscribe(Filter, Opts),
                    Self ! {self(), ready},
                    keep(Sub, [])
                end),
    receive {Pid, ready} -> ok end.

keep(Sub, Got) ->
    receive
        {fan, Sub, _, Ms} -> keep(Sub, [Ms | Got]);
        {get, From, Ref} -> From ! {Ref, lists:append(lists:reverse(Got))}, keep(Sub, Got);
        stop -> ok
    end.

got(Name) ->
    Ref = make_ref(),
    Name ! {get, self(), Ref},
    receive {Ref, Got} -> Got after 10000 -> error(no_answer) end.

stop(Name) ->
    Ref = monitor(process, Name),
    Name ! stop,
    receive {'DOWN', Ref, _, _, _} -> ok end.

%% Until the other node is known to have subscriptions, or to have none.
known(Config, Topic, N) ->
    until(fun() -> N = at(a, Config, fun() -> remote(Topic) end) end).

remote(Topic) ->
    Wild = element(5, persistent_term:get({erlane_fanout, lanes})),
    length(lists:usort([Node || R <- erlane_fanout_match:routes(Topic, Wild),
                                {Node, _, _} <- element(4, R)])).

%% Of each publisher in order, here and there, once.
order(Config) ->
    [at(N, Config, fun() -> keeper(k, <<"o">>, #{limit => infinity}) end) || N <- [a, b]],
    known(Config, <<"o">>, 1),
    at(a, Config, fun() ->
        Pubs = [spawn_monitor(fun() ->
                                  [ok = erlane_fanout:publish(<<"o">>, {P, I})
                                   || I <- lists:seq(1, 500)]
                              end) || P <- lists:seq(1, 8)],
        [receive {'DOWN', Ref, process, _, normal} -> ok end || {_, Ref} <- Pubs]
    end),
    [begin
         until(fun() -> 4000 = length(at(N, Config, fun() -> got(k) end)) end),
         Got = at(N, Config, fun() -> got(k) end),
         [?assertEqual(lists:seq(1, 500), [I || {Q, I} <- Got, Q =:= P]) || P <- lists:seq(1, 8)],
         at(N, Config, fun() -> stop(k) end)
     end || N <- [a, b]].

%% A node is known from its first subscription to its last one, and not after the application.
membership(Config) ->
    known(Config, <<"m">>, 0),
    at(b, Config, fun() -> keeper(k1, <<"m">>, #{}), keeper(k2, <<"m">>, #{}) end),
    known(Config, <<"m">>, 1),
    at(b, Config, fun() -> stop(k1) end),
    known(Config, <<"m">>, 1),
    at(b, Config, fun() -> stop(k2) end),
    known(Config, <<"m">>, 0),
    at(b, Config, fun() -> keeper(k1, <<"m">>, #{}) end),
    known(Config, <<"m">>, 1),
    at(b, Config, fun() -> ok = application:stop(erlane_fanout) end),
    known(Config, <<"m">>, 0),
    at(b, Config, fun() -> stop(k1), ok = application:start(erlane_fanout) end),
    B = erlane_router_ct:node(proplists:get_value(b, Config)),
    until(fun() -> [B] = at(a, Config, fun() -> erlane_fanout_remote:nodes() end) end).

%% The last subscription of a node leaves and another one comes: other nodes do not stop, and what
%% it gets of their publishers has no hole.
rejoined(Config) ->
    at(b, Config, fun() -> keeper(k1, <<"n">>, #{}) end),
    known(Config, <<"n">>, 1),
    Pub = at(a, Config, fun() -> spawn(fun() -> publishing(<<"n">>, 1) end) end),
    at(b, Config, fun() -> stop(k1) end),
    [at(b, Config, fun() ->
        {ok, Sub, Seq} = erlane_fanout:subscribe(<<"n">>, #{limit => infinity}),
        ok = follow(Sub, Seq, any, 200),
        ok = erlane_fanout:unsubscribe(Sub)
    end) || _ <- lists:seq(1, 100)],
    at(a, Config, fun() -> exit(Pub, kill) end),
    known(Config, <<"n">>, 0).

publishing(Topic, N) ->
    ok = erlane_fanout:publish(Topic, N),
    receive after N rem 20 div 19 -> publishing(Topic, N + 1) end.

%% So many messages without a hole.
follow(_, _, _, Left) when Left =< 0 -> ok;
follow(Sub, Seq, N, Left) ->
    receive
        {fan, Sub, Now, Ms} ->
            First = case N of any -> hd(Ms); _ -> N end,
            Next = First + length(Ms),
            ?assertEqual({Seq + length(Ms), lists:seq(First, Next - 1)}, {Now, Ms}),
            follow(Sub, Now, Next, Left - length(Ms))
    after 10000 -> error({no_message, N})
    end.

%% What is still under way to a node that has left is not for who subscribes there later: what is
%% published until others know of that one is not coming, and would be missing behind it.
late(Config) ->
    at(b, Config, fun() -> keeper(k1, <<"l">>, #{}) end),
    known(Config, <<"l">>, 1),
    at(b, Config, fun hold/0),
    ok = publish(Config, <<"l">>, under_way),
    until(fun() -> [1] = at(b, Config, fun waiting/0) end),
    at(b, Config, fun() -> stop(k1) end),
    known(Config, <<"l">>, 0),
    ok = publish(Config, <<"l">>, for_nobody),
    at(b, Config, fun() -> keeper(k2, <<"l">>, #{}) end),
    known(Config, <<"l">>, 1),
    at(b, Config, fun() -> stop(holder) end),
    ok = publish(Config, <<"l">>, new),
    until(fun() -> [_ | _] = at(b, Config, fun() -> got(k2) end) end),
    ?assertEqual([new], at(b, Config, fun() -> got(k2) end)),
    at(b, Config, fun() -> stop(k2) end),
    known(Config, <<"l">>, 0).

%% The same of what another node sends while it has not yet heard that this one left: here because
%% a filter that is still there matches as well.
stale(Config) ->
    at(b, Config, fun() -> keeper(k1, <<"s/1">>, #{}), keeper(k2, <<"s/+">>, #{}) end),
    until(fun() -> 2 = at(a, Config, fun() -> filters(<<"s/1">>) end) end),
    at(b, Config, fun() -> stop(k1) end),
    until(fun() -> 1 = at(a, Config, fun() -> filters(<<"s/1">>) end) end),
    at(a, Config, fun() -> ok = sys:suspend(erlane_fanout_remote) end),
    at(b, Config, fun() -> keeper(k1, <<"s/1">>, #{}) end),
    ok = publish(Config, <<"s/1">>, one),
    until(fun() -> [one] = at(b, Config, fun() -> got(k2) end) end),
    at(a, Config, fun() -> ok = sys:resume(erlane_fanout_remote) end),
    until(fun() -> 2 = at(a, Config, fun() -> filters(<<"s/1">>) end) end),
    ok = publish(Config, <<"s/1">>, two),
    until(fun() -> [one, two] = at(b, Config, fun() -> got(k2) end) end),
    until(fun() -> [two] = at(b, Config, fun() -> got(k1) end) end),
    at(b, Config, fun() -> stop(k1), stop(k2) end),
    known(Config, <<"s/1">>, 0).

publish(Config, Topic, Message) ->
    at(a, Config, fun() -> erlane_fanout:publish(Topic, Message) end).

%% The intakes stand still as long as this process lives.
hold() ->
    Self = self(),
    Pid = spawn(fun() ->
                    true = register(holder, self()),
                    [true = erlang:suspend_process(P) || P <- intakes()],
                    Self ! {self(), held},
                    receive stop -> ok end
                end),
    receive {Pid, held} -> ok end.

intakes() -> [whereis(list_to_atom("erlane_fanout_intake_" ++ [C])) || C <- "1234"].

%% Messages in the mailboxes of those that have any.
waiting() -> [N || P <- intakes(), {_, N} <- [process_info(P, message_queue_len)], N > 0].

%% Of how many filters of the other node that match.
filters(Topic) ->
    Wild = element(5, persistent_term:get({erlane_fanout, lanes})),
    length([R || R <- erlane_fanout_match:routes(Topic, Wild), element(4, R) =/= []]).

%% A message to topics that the filters of the other node match goes there once.
wildcards(Config) ->
    at(b, Config, fun() -> keeper(k1, <<"w/+">>, #{}), keeper(k2, <<"w/1">>, #{}) end),
    until(fun() -> 2 = at(a, Config, fun() -> filters(<<"w/1">>) end) end),
    %% Order is that of one process.
    at(a, Config, fun() ->
        ok = erlane_fanout:publish([<<"w/1">>, <<"w/2">>], m),
        ok = erlane_fanout:publish_local(<<"w/1">>, here),
        ok = erlane_fanout:publish(<<"w/1">>, last)
    end),
    [until(fun() -> [m, last] = at(b, Config, fun() -> got(K) end) end) || K <- [k1, k2]],
    at(b, Config, fun() -> stop(k1), stop(k2) end),
    known(Config, <<"w/1">>, 0).

%% What is retained on one node is there for subscribers of the other, also of one that came later.
retained(Config) ->
    at(a, Config, fun() -> ok = erlane_fanout:publish(<<"r">>, kept, #{retain => true}) end),
    Kept = fun() -> erlane_fanout_retain:matching(<<"r">>) end,
    until(fun() -> [{<<"r">>, kept}] = at(b, Config, Kept) end),
    at(b, Config, fun() -> ok = application:stop(erlane_fanout) end),
    at(b, Config, fun() -> ok = application:start(erlane_fanout) end),
    until(fun() -> [{<<"r">>, kept}] = at(b, Config, Kept) end),
    at(b, Config, fun() -> ok = erlane_fanout:forget(<<"r">>) end),
    until(fun() -> [] = at(a, Config, Kept) end).

%% Counted where they are.
presence(Config) ->
    at(a, Config, fun() -> keeper(k1, <<"p">>, #{}) end),
    at(b, Config, fun() -> keeper(k1, <<"p">>, #{}), keeper(k2, <<"p">>, #{}) end),
    [A, B] = [erlane_router_ct:node(proplists:get_value(N, Config)) || N <- [a, b]],
    Want = #{A => 1, B => 2},
    until(fun() -> Want = at(a, Config, fun() -> erlane_fanout:presence(<<"p">>) end) end),
    at(a, Config, fun() -> stop(k1) end),
    at(b, Config, fun() -> stop(k1), stop(k2) end),
    Empty = #{},
    until(fun() ->
              ?assertEqual(Empty, at(a, Config, fun() -> erlane_fanout:presence(<<"p">>) end))
          end).

%% What is no message of the fan-out does nothing, and what follows arrives.
junk(Config) ->
    B = erlane_router_ct:node(proplists:get_value(b, Config)),
    at(b, Config, fun() -> keeper(k1, <<"j">>, #{}) end),
    known(Config, <<"j">>, 1),
    at(a, Config, fun() ->
        Names = [erlane_fanout_retain, erlane_fanout_remote
                 | [list_to_atom("erlane_fanout_intake_" ++ [C]) || C <- "1234"]],
        [{Name, B} ! Junk || Name <- Names,
                             Link <- [{self(), 1}],
                             Junk <- [junk, {erlane_fanout, 3, Link, 1, [[x] | y], m},
                                      {erlane_fanout, 3, Link, 1, <<"#">>, m},
                                      {erlane_fanout, 3, Link, x, <<"j">>, m},
                                      {erlane_fanout, 3, {x, 1}, 1, <<"j">>, m},
                                      {erlane_fanout, 3, {self(), x}, 1, <<"j">>, m},
                                      {erlane_fanout, 3, x}, {erlane_fanout, 3, {x, x}},
                                      {erlane_fanout, 3, lost, x}, {erlane_fanout, 3, lost, {x, 1}},
                                      {nodedown, 1}, {erlane_router, stream, 1, 1},
                                      {erlane_fanout, 2, 1, <<"j">>, m},
                                      {'$gen_cast', {rows, [x, {a, b, c, d}]}},
                                      {'$gen_cast', {changed, nothing}}]],
        ok = erlane_fanout:publish(<<"j">>, good)
    end),
    until(fun() -> [good] = at(b, Config, fun() -> got(k1) end) end),
    at(b, Config, fun() -> stop(k1) end).
