%% SPDX-License-Identifier: Apache-2.0
%% Publishers and subscribers on several nodes, each an operating system process of its own.
-module(fan_nodes_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([order/1, local/1, membership/1, killed/1, counted/1]).

-define(TOPIC, <<"nodes/a">>).
-define(MESSAGES, 2000).
-define(MS, 30000).

suite() -> [{timetrap, {seconds, 120}}].

all() -> [order, local, membership, killed, counted].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Config.

end_per_suite(_) ->
    router_nodes:close().

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% Everybody on every node gets all of every publisher on every node, in order, once.
order(_) ->
    Nodes = started(3),
    Subs = [{N, subscriber(N, F, #{mode => M, limit => 16#4000000})}
            || N <- Nodes, F <- [?TOPIC, <<"nodes/+">>, <<"#">>], M <- [push, pull, frames]],
    ok = known(Nodes, ?TOPIC),
    Pubs = [{N, publisher(N, ?MESSAGES)} || N <- Nodes, _ <- [1, 2]],
    Last = [finished(P) || P <- Pubs],
    [has(S, Last) || S <- Subs],
    [?assertMatch(#{count := C, gaps := 0} when C =:= 6 * ?MESSAGES, report(S)) || S <- Subs].

%% publish_local/2 stays here.
local(_) ->
    [Here, There] = Nodes = started(2),
    Subs = [{N, subscriber(N, ?TOPIC, #{})} || N <- Nodes],
    ok = known(Nodes, ?TOPIC),
    Id = {local, 1},
    ok = router_nodes:call(Here, erlane_fanout, publish_local, [?TOPIC, {m, Id, 1, <<>>}]),
    %% What comes behind it comes behind it everywhere.
    ok = router_nodes:call(Here, erlane_fanout, publish, [?TOPIC, {m, {all, 1}, 1, <<>>}]),
    [has(S, [{{all, 1}, 1}]) || S <- Subs],
    [?assertEqual(N =:= Here, is_map_key(Id, maps:get(last, report(S))))
     || {N, _} = S <- Subs, N =:= Here orelse N =:= There].

%% Membership grows with nodes, not with subscribers, and goes with the last of them.
membership(_) ->
    [A, B] = Nodes = started(2),
    Many = [{B, subscriber(B, ?TOPIC, #{})} || _ <- lists:seq(1, 50)],
    real_os:until(fun() -> 1 = members(A, ?TOPIC) end),
    Few = [{A, subscriber(A, ?TOPIC, #{})}],
    ok = known(Nodes, ?TOPIC),
    [kill(S) || S <- Many],
    real_os:until(fun() -> 1 = members(A, ?TOPIC), 1 = members(B, ?TOPIC) end),
    [kill(S) || S <- Few],
    real_os:until(fun() -> 0 = members(A, ?TOPIC), 0 = members(B, ?TOPIC) end),
    real_os:until(fun() -> [?assertEqual(#{}, router_nodes:call(N, fan_node, left, []))
                            || N <- Nodes] end).

%% A node dies: the others go on without a loss, and it is part again when it is back.
killed(_) ->
    [A, B, C] = Nodes = started(3),
    Subs = [{N, subscriber(N, ?TOPIC, #{limit => 16#4000000})} || N <- [A, B]],
    _ = subscriber(C, ?TOPIC, #{}),
    ok = known(Nodes, ?TOPIC),
    Pub = publisher(A, infinity),
    real_os:until(fun() -> true = element(2, published({A, Pub})) > 100 end),
    ok = router_nodes:kill(C),
    real_os:until(fun() -> 2 = members(A, ?TOPIC), 2 = members(B, ?TOPIC) end, ?MS),
    New = fanout(router_nodes:restart(C)),
    ok = connected([A, B, New]),
    Late = {New, subscriber(New, ?TOPIC, #{})},
    ok = known([A, B, New], ?TOPIC),
    {Id, N} = published({A, Pub}),
    real_os:until(fun() -> #{last := #{Id := {M, _, _}}} = report(Late), true = M > N end, ?MS),
    Last = router_nodes:call(A, fan_node, stop, [Pub]),
    [has(S, [Last]) || S <- [Late | Subs]],
    [?assertMatch(#{gaps := 0, count := K} when K =:= element(2, Last), report(S)) || S <- Subs].

%% presence/1 and count/1.
counted(_) ->
    [A, B] = Nodes = started(2),
    [subscriber(A, ?TOPIC, #{}) || _ <- [1, 2, 3]],
    Two = [{B, subscriber(B, ?TOPIC, #{})} || _ <- [1, 2]],
    Counts = fun(N) -> router_nodes:call(N, erlane_fanout, presence, [?TOPIC]) end,
    Both = #{router_nodes:node(A) => 3, router_nodes:node(B) => 2},
    real_os:until(fun() -> [?assertEqual(Both, Counts(N)) || N <- Nodes] end, ?MS),
    ?assertEqual(3, router_nodes:call(A, erlane_fanout, count, [?TOPIC])),
    [kill(S) || S <- Two],
    real_os:until(fun() -> ?assertEqual(#{router_nodes:node(A) => 3}, Counts(A)) end, ?MS).

%% Small things

started(N) ->
    Names = [{list_to_atom("fan" ++ integer_to_list(I)), #{}} || I <- lists:seq(1, N)],
    Nodes = [fanout(Node) || Node <- router_nodes:start_all(Names)],
    ok = connected(Nodes),
    Nodes.

fanout(Node) ->
    ok = router_nodes:call(Node, fan_node, start, [[]]),
    Node.

%% Another incarnation may not be known to be dead yet.
connected(Nodes) ->
    [real_os:until(fun() ->
                           true = router_nodes:call(A, net_kernel, connect_node,
                                                    [router_nodes:node(B)])
                   end) || A <- Nodes, B <- Nodes, A =/= B],
    ok.

%% pg converges late: each node knows of all.
known(Nodes, Filter) ->
    [real_os:until(fun() -> ?assertEqual(length(Nodes), members(N, Filter)) end, ?MS)
     || N <- Nodes],
    %% The table of routes is written by a process that hears of it at the same time.
    [real_os:until(fun() ->
                           Others = lists:sort([router_nodes:node(O) || O <- Nodes, O =/= N]),
                           ?assertEqual(Others, router_nodes:call(N, fan_node, others, [Filter]))
                   end) || N <- Nodes],
    ok.

members(Node, Filter) ->
    router_nodes:call(Node, fan_node, members, [Filter]).

subscriber(Node, Filter, Opts) ->
    router_nodes:call(Node, fan_node, subscriber, [#{filter => Filter, opts => Opts}]).

publisher(Node, Most) ->
    router_nodes:call(Node, fan_node, publisher, [#{topic => ?TOPIC, most => Most, pause => 1}]).

published({Node, Pid}) -> router_nodes:call(Node, fan_node, published, [Pid]).

finished(Pub) ->
    real_os:until(fun() -> {_, ?MESSAGES} = published(Pub) end, ?MS).

report({Node, Pid}) -> router_nodes:call(Node, fan_node, report, [Pid]).

kill({Node, Pid}) -> true = router_nodes:call(Node, erlang, exit, [Pid, kill]).

has(Sub, Last) ->
    real_os:until(fun() ->
                          #{errors := [], last := Had} = report(Sub),
                          [{N, strict, _} = maps:get(Id, Had) || {Id, N} <- Last],
                          ok
                  end, ?MS).
