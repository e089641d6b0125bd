%% SPDX-License-Identifier: Apache-2.0
%% Processes of the router are killed under traffic. What they had is counted, others take their
%% place, order holds, and nobody waits for them for ever.
-module(router_crash_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([partner/1, gate/1, lane/1, lane_with_waiting/1]).
%% Called on the nodes.
-export([kill/1, kill_links/1]).

-define(ROUNDS, 3).
-define(LANES, 4).
-define(BATCH, 20).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [partner, gate, lane, lane_with_waiting].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Config.

end_per_suite(_) ->
    router_nodes:close().

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% The receiving half of each lane, which the gate has links to.
partner(_) ->
    {A, B, Streams} = traffic(#{}),
    [begin
         ok = kill_linked(B, erlane_router_gate),
         [ok = router_check:moving_on(S) || S <- Streams]
     end || _ <- lists:seq(1, ?ROUNDS)],
    balanced(Streams),
    {_, Unconfirmed} = router_check:reported(A, B),
    ?assert(Unconfirmed > 0).

%% The registered process; partners end with it.
gate(_) ->
    {_, B, Streams} = traffic(#{}),
    [begin
         true = router_nodes:call(B, ?MODULE, kill, [erlane_router_gate]),
         [ok = router_check:moving_on(S) || S <- Streams]
     end || _ <- lists:seq(1, ?ROUNDS)],
    balanced(Streams).

%% The sending half. A message that a sender was just handing to it is gone without a count, one
%% of each sender at most; a batch that it was just sending may arrive though it counts as dropped.
lane(_) ->
    {A, B, Streams} = traffic(#{env => [{lanes, ?LANES}, {max_messages, ?BATCH}]}),
    ok = kill_linked(A, erlane_router_peers),
    [ok = router_check:moving_on(S) || S <- Streams],
    Sent = lists:sum([router_check:finish(S) || S <- Streams]),
    ok = router_check:synced(A, B),
    [?assertEqual([], router_check:errors(S)) || S <- Streams],
    Received = lists:sum([router_check:received_count(S) || S <- Streams]),
    ok = router_nodes:until(
           fun() ->
                   {Dropped, Unconfirmed} = router_check:reported(A, B),
                   ?assert(Received =< Sent - Dropped + ?LANES * ?BATCH),
                   ?assert(Received + length(Streams) >= Sent - Dropped - Unconfirmed),
                   ok
           end).

%% Lanes with senders that wait for room, in front of a node that reads nothing.
lane_with_waiting(_) ->
    {A, B, Streams} = traffic(#{env => [{bound, 100000}], args => ["+zdbbl", "64"]}),
    ok = router_nodes:freeze(B),
    At = router_nodes:until(fun() ->
                                    Is = [router_check:progress(S) || S <- Streams],
                                    receive after 300 -> ok end,
                                    Is = [router_check:progress(S) || S <- Streams]
                            end),
    ok = kill_linked(A, erlane_router_peers),
    %% The new lanes have room, for those that come first.
    ok = router_nodes:until(
           fun() ->
                   ?assert(lists:sum([router_check:progress(S) || S <- Streams]) > lists:sum(At))
           end),
    ok = router_nodes:thaw(B),
    [ok = router_check:moving_on(S) || S <- Streams],
    [_ = router_check:finish(S) || S <- Streams],
    ok = router_check:synced(A, B),
    [?assertEqual([], router_check:errors(S)) || S <- Streams].

traffic(Options) ->
    [A, B] = router_nodes:start_all([{a, Options}, {b, Options}]),
    Streams = [router_check:stream(A, B, #{sizes => Sizes, every => 50, pause => 2})
               || Sizes <- [[0], [100, 3000], [64, 20000], [0, 1000], [300], [20000], [5000, 7]]],
    [ok = router_check:moving_on(S) || S <- Streams],
    {A, B, Streams}.

balanced(Streams) ->
    ct:pal("~p", [router_check:balanced(Streams)]).

%% All processes that a registered one has links to, except its supervisor.
kill_linked(Node, Name) ->
    Killed = router_nodes:call(Node, ?MODULE, kill_links, [Name]),
    ?assert(Killed > 0),
    ok.

%% On the nodes

kill(Name) ->
    exit(whereis(Name), kill).

kill_links(Name) ->
    {links, Links} = process_info(whereis(Name), links),
    length([true = exit(P, kill) || P <- Links, is_pid(P), P =/= whereis(erlane_router_sup)]).
