%% SPDX-License-Identifier: Apache-2.0
%% Two nodes whose link is cut, as by a host without power, or of which one stands still until the
%% other gives the connection up; then they meet again, the same as before. What is missing lies in
%% gaps: the subscribers of fan_node see to that.
-module(fan_cut_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([short/1, cut/1, frozen_subscriber/1, frozen_publisher/1]).

-define(TOPIC, <<"cut/a">>).
-define(TICK, 3).
-define(MS, 30000).

suite() -> [{timetrap, {seconds, 120}}].

all() -> [short, cut, frozen_subscriber, frozen_publisher].

init_per_suite(Config) ->
    case router_space:available() of
        ok ->
            ok = router_nodes:open(),
            [{space, router_space:make(2)} | Config];
        Skip -> Skip
    end.

end_per_suite(Config) ->
    ok = router_nodes:close(),
    router_space:remove(?config(space, Config)).

init_per_testcase(_, Config) ->
    Options = #{tick => ?TICK, setup => 2},
    [A, B] = Nodes = router_nodes:start_all([{Name, Options#{space => {?config(space, Config), N}}}
                                             || {N, Name} <- [{1, a}, {2, b}]]),
    [ok = router_nodes:call(N, fan_node, start, [[]]) || N <- Nodes],
    ok = met(A, B),
    Subs = [{B, router_nodes:call(B, fan_node, subscriber, [#{filter => Filter, opts => Opts}])}
            || Filter <- [?TOPIC, <<"#">>],
               Opts <- [#{limit => 1 bsl 26}, #{mode => pull, limit => 1 bsl 26}]],
    real_os:until(fun() -> ?assertEqual([router_nodes:node(B)],
                                        router_nodes:call(A, fan_node, others, [<<"#">>]))
                  end, ?MS),
    Spec = #{topic => ?TOPIC, every => 5, pause => 5},
    Pubs = [{A, router_nodes:call(A, fan_node, publisher, [Spec])} || _ <- lists:seq(1, 8)],
    ok = goes_on(Subs, Pubs),
    [{a, A}, {b, B}, {subs, Subs}, {pubs, Pubs} | Config].

end_per_testcase(_, Config) ->
    ok = router_nodes:cleanup(),
    [router_space:up(?config(space, Config), N) || N <- [1, 2]],
    ok.

met(A, B) ->
    real_os:until(fun() ->
                      _ = router_nodes:call(A, net_kernel, connect_node, [router_nodes:node(B)]),
                      [true, true] = [router_nodes:call(X, fan_node, knows, [router_nodes:node(Y)])
                                      || {X, Y} <- [{A, B}, {B, A}]],
                      ok
                  end, ?MS).

%% What everybody publishes from now on arrives.
goes_on(Subs, Pubs) ->
    Last = [router_nodes:call(N, fan_node, published, [Pid]) || {N, Pid} <- Pubs],
    real_os:until(fun() ->
                      [begin
                           #{last := Had} = report(S),
                           [?assertMatch({M, _, _} when M > N, maps:get(P, Had)) || {P, N} <- Last]
                       end || S <- Subs],
                      ok
                  end, ?MS).

report({Node, Pid}) -> router_nodes:call(Node, fan_node, report, [Pid]).

gone(A, B) ->
    real_os:until(fun() -> ?assertNot(lists:member(router_nodes:node(B),
                                                   router_nodes:call(A, erlang, nodes, []))) end,
                  ?MS).

%% Ticks do not see it, and nothing is missing.
short(Config) ->
    [Subs, Pubs] = [?config(K, Config) || K <- [subs, pubs]],
    ok = router_space:down(?config(space, Config), 2),
    [begin
         {_, N} = router_nodes:call(A, fan_node, published, [P]),
         real_os:until(fun() -> {_, M} = router_nodes:call(A, fan_node, published, [P]),
                                true = M > N + 20 end)
     end || {A, P} <- Pubs],
    ok = router_space:up(?config(space, Config), 2),
    ok = goes_on(Subs, Pubs),
    [?assertMatch(#{errors := [], holes := 0, breaks := 0}, report(S)) || S <- Subs].

cut(Config) ->
    [A, B] = [?config(K, Config) || K <- [a, b]],
    ok = router_space:down(?config(space, Config), 2),
    ok = gone(A, B),
    ok = gone(B, A),
    ok = router_space:up(?config(space, Config), 2),
    exact(Config).

%% The one that stood still sees the end later, and has frames of the old connection.
frozen_subscriber(Config) ->
    [A, B] = [?config(K, Config) || K <- [a, b]],
    ok = router_nodes:freeze(B),
    ok = gone(A, B),
    ok = router_nodes:thaw(B),
    exact(Config).

frozen_publisher(Config) ->
    [A, B] = [?config(K, Config) || K <- [a, b]],
    ok = router_nodes:freeze(A),
    ok = gone(B, A),
    ok = router_nodes:thaw(A),
    exact(Config).

exact(Config) ->
    [A, B, Subs, Pubs] = [?config(K, Config) || K <- [a, b, subs, pubs]],
    ok = met(A, B),
    ok = goes_on(Subs, Pubs),
    Reports = [report(S) || S <- Subs],
    [?assertMatch(#{errors := []}, R) || R <- Reports],
    [?assert(Breaks > 0) || #{breaks := Breaks} <- Reports],
    ct:pal("~p", [[maps:with([count, holes, breaks], R) || R <- Reports]]).
