%% SPDX-License-Identifier: Apache-2.0
%% Connections that lead through a relay of the test, which holds bytes back: a long way between
%% nodes, and one that is silent for a while. No time is judged here; what came first, and how
%% much, tells the same.
-module(router_delay_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2,
         end_per_group/2, init_per_testcase/2, end_per_testcase/2]).
-export([long_way/1, held_back/1, big_beside_small/1, one_silent_way/1, silence_ends_it/1,
         flush_unfilled/1, flush_by_number/1, lone_message/1]).

-define(MB, 1048576).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [{group, plain}, {group, router}].

groups() ->
    [{plain, [], [held_back, big_beside_small]},
     {router, [], [long_way, held_back, big_beside_small, one_silent_way, silence_ends_it,
                   flush_unfilled, flush_by_number, lone_message]}].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Config.

end_per_suite(_) ->
    router_nodes:close().

init_per_group(Via, Config) -> [{via, Via} | Config].

end_per_group(_, _) -> ok.

init_per_testcase(_, Config) ->
    Config.

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% Twenty milliseconds each way: everything arrives, in order, and sync waits for it.
long_way(Config) ->
    {A, B, Relay} = pair(Config, #{}),
    ok = router_relay:delay(Relay, 20),
    Streams = [router_check:stream(A, B, #{limit => 3000, sizes => Sizes, every => 300})
               || Sizes <- [[0], [100, 4000], [20, 20000, 64]]],
    [3000 = router_check:moving(S, 3000) || S <- Streams],
    ok = router_check:synced(A, B),
    balanced(Streams).

%% Everything waits in the relay, then it comes at once.
held_back(Config) ->
    {A, B, Relay} = pair(Config, #{}),
    First = router_check:stream(A, B, #{limit => 10}),
    ok = router_check:arrived(First, 10),
    %% So every lane has its partner.
    ok = router_check:synced(A, B),
    ok = router_relay:hold(Relay),
    Streams = [router_check:stream(A, B, #{limit => 200, sizes => Sizes})
               || Sizes <- [[0], [0, 300], [20000, 20]]],
    [ok = router_check:sent(S, 200) || S <- Streams],
    %% A sync cannot answer what it does not know.
    [?assertMatch({error, #{}}, router_nodes:call(A, erlane_router, sync,
                                                  [router_nodes:node(B), 300]))
     || via(Config) =:= router],
    [0 = router_check:received_count(S) || S <- Streams],
    ok = router_relay:release(Relay),
    [ok = router_check:arrived(S, 200) || S <- Streams],
    balanced([First | Streams]).

%% Messages of 10 MB among small ones, of the same sender and of others. What is small and of
%% others need not wait until the last big one is through.
big_beside_small(Config) ->
    {A, B, Relay} = pair(Config, #{}),
    ok = router_relay:delay(Relay, 5),
    Big = router_check:stream(A, B, #{limit => 8, sizes => [10 * ?MB, 100], every => 1}),
    Small = [router_check:stream(A, B, #{limit => 2000, sizes => [0, 64, 1000], every => 50})
             || _ <- lists:seq(1, 6)],
    [ok = router_check:arrived(S, 2000) || S <- Small],
    ok = router_check:arrived(Big, 8),
    balanced([Big | Small]).

%% Nothing goes to B for a while; C is not concerned.
one_silent_way(Config) ->
    {A, B, Relay} = pair(Config, #{}),
    C = router_nodes:start(c, #{via => router}),
    ToB = router_check:stream(A, B, #{sizes => [0, 5000], every => 20, pause => 5}),
    _ = router_check:moving(ToB, 500),
    ok = router_relay:hold(Relay),
    ToC = router_check:stream(A, C, #{limit => 5000}),
    ok = router_check:arrived(ToC, 5000),
    ok = router_relay:release(Relay),
    ok = router_check:moving_on(ToB),
    balanced([ToB, ToC]).

%% So long a silence ends the connection. What was in the relay is gone; every message is either
%% there or reported, and the next connection brings no old ones.
silence_ends_it(Config) ->
    {A, B, Relay} = pair(Config, #{tick => 2, setup => 2}),
    Streams = [router_check:stream(A, B, #{sizes => Sizes, every => 20, pause => 10})
               || Sizes <- [[0], [64, 20000]]],
    [router_check:moving(S, 100) || S <- Streams],
    ok = router_relay:hold(Relay),
    ok = router_check:disconnected(A, B),
    ok = router_relay:release(Relay),
    [ok = router_check:moving_on(S) || S <- Streams],
    balanced(Streams),
    {Dropped, Unconfirmed} = router_check:reported(A, B),
    ?assert(Dropped + Unconfirmed > 0).

%% Batches that neither size nor number ever fills leave all the same, when they are old or nothing
%% more waits, while the sender goes on.
flush_unfilled(Config) ->
    {A, B, _} = pair(Config, #{env => [{max_messages, 100000}, {max_bytes, 16777216},
                                       {bound, 100000000}]}),
    Stream = router_check:stream(A, B, #{every => 10, pause => 1}),
    _ = router_check:moving(Stream, 1000),
    ok = router_check:moving_on(Stream),
    balanced([Stream]),
    {Batches, Flushes} = batches(A, B),
    ?assert(Batches > 10),
    ?assertEqual([], [F || #{messages := M, bytes := Y} = F <- Flushes, M + Y > 0]).

%% What waited for the connection leaves in batches of the size that was set.
flush_by_number(Config) ->
    {A, B, Relay} = pair(Config, #{env => [{max_messages, 10}]}),
    ok = router_relay:hold(Relay),
    Stream = router_check:stream(A, B, #{limit => 1000, every => 1000}),
    ok = router_check:sent(Stream, 1000),
    ok = router_relay:release(Relay),
    ok = router_check:arrived(Stream, 1000),
    {100, Flushes} = batches(A, B),
    ?assertEqual(99, lists:sum([M || #{messages := M} <- Flushes])),
    balanced([Stream]).

%% Messages that come one by one leave one by one, whatever the limits are: each is there before
%% the next is sent.
lone_message(Config) ->
    {A, B, _} = pair(Config, #{env => [{max_age, 1000}]}),
    First = router_check:stream(A, B, #{limit => 1}),
    ok = router_check:arrived(First, 1),
    Alone = fun() -> ok = router_check:arrived(router_check:again(First, #{limit => 1}), 1) end,
    [Alone() || _ <- lists:seq(1, 20)],
    {21, _} = batches(A, B).

%% A reaches B through the relay.
pair(Config, Options0) ->
    Options = Options0#{via => via(Config)},
    [A, B] = router_nodes:start_all([{a, Options}, {b, Options}]),
    Relay = router_relay:start(router_nodes:port(B)),
    ok = router_nodes:call(A, router_epmd, detour, [router_nodes:node(B),
                                                    router_relay:port(Relay)]),
    {A, B, Relay}.

%% How many left in all lanes, and of each lane why.
batches(A, B) ->
    Lanes = router_nodes:call(A, router_node, lanes, [router_nodes:node(B)]),
    {lists:sum([Batches || #{batches := Batches} <- Lanes]),
     [Flushes || #{flushes := Flushes} <- Lanes]}.

balanced(Streams) ->
    ct:pal("~p", [router_check:balanced(Streams)]).

%% A case run alone has no group.
via(Config) -> proplists:get_value(via, Config, router).
