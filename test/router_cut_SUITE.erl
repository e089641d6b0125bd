%% SPDX-License-Identifier: Apache-2.0
%% Nodes in network namespaces whose links are cut: a host without power, as the others see it.
%% What a single connection with plain `!' keeps, the router has to keep, so the same cases run
%% over both; what only the router promises is checked of it alone.
-module(router_cut_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_group/2,
         end_per_group/2, init_per_testcase/2, end_per_testcase/2]).
-export([blackhole_peer/1, connect_hangs/1, short_cut/1, long_cut/1, restarted_peer/1]).

-define(TICK, 3).
-define(SETUP, 2).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [{group, plain}, {group, router}].

groups() ->
    %% Plain sends to a name do reach the next incarnation, and of the rest the router has more to
    %% keep.
    [{plain, [], [short_cut]},
     {router, [], [blackhole_peer, connect_hangs, short_cut, long_cut, restarted_peer]}].

init_per_suite(Config) ->
    case router_space:available() of
        ok ->
            ok = router_nodes:open(),
            [{space, router_space:make(3)} | Config];
        Skip ->
            Skip
    end.

end_per_suite(Config) ->
    ok = router_nodes:close(),
    router_space:remove(?config(space, Config)).

init_per_group(Via, Config) -> [{via, Via} | Config].

end_per_group(_, _) -> ok.

init_per_testcase(_, Config) ->
    Space = ?config(space, Config),
    Options = #{via => via(Config), tick => ?TICK, setup => ?SETUP},
    [{nodes, router_nodes:start_all([{Name, Options#{space => {Space, N}}}
                                     || {N, Name} <- [{1, a}, {2, b}, {3, c}]])} | Config].

end_per_testcase(_, Config) ->
    ok = router_nodes:cleanup(),
    [router_space:up(?config(space, Config), N) || N <- [1, 2, 3]],
    ok.

%% A cut node delays no other: messages to C arrive, order kept, while B answers nothing, before
%% and after its connection is given up.
blackhole_peer(Config) ->
    {A, B, C} = three(Config),
    ToB = router_check:stream(A, B, #{sizes => [0, 200, 3000]}),
    _ = router_check:moving(ToB, 1000),
    ok = cut(Config, 2),
    First = router_check:stream(A, C, #{limit => 5000}),
    ok = router_check:arrived(First, 5000),
    ok = router_check:disconnected(A, B),
    Second = router_check:stream(A, C, #{limit => 5000}),
    ok = router_check:arrived(Second, 5000),
    ok = mend(Config, 2),
    balanced([ToB, First, Second]).

%% Towards a node that does not answer: nobody waits but what is meant for it, and that is counted
%% to the last message. Nothing of it was handed to the VM, so nothing is unconfirmed.
connect_hangs(Config) ->
    {A, B, C} = three(Config),
    ok = cut(Config, 2),
    ToB = router_check:stream(A, B, #{limit => 500, every => 500}),
    ok = router_check:sent(ToB, 500),
    [Pid] = router_check:receivers(ToB),
    ?assertEqual({not_sent, #{router_nodes:node(B) => noconnect}},
                 router_nodes:call(A, router_node, send, [Pid, message, [noconnect]])),
    ToC = router_check:stream(A, C, #{limit => 5000}),
    ok = router_check:arrived(ToC, 5000),
    ok = router_nodes:until(fun() ->
                                    {500, 0} = router_check:reported(A, B),
                                    ok
                            end),
    ok = mend(Config, 2),
    0 = router_check:received_count(ToB),
    Again = router_check:stream(A, B, #{limit => 500}),
    ok = router_check:arrived(Again, 500),
    balanced([ToB, ToC, Again]).

%% A cut shorter than the ticks can see loses nothing, and nothing is reported.
short_cut(Config) ->
    {A, B, _} = three(Config),
    ToB = router_check:stream(A, B, #{sizes => [0, 500]}),
    At = router_check:moving(ToB, 1000),
    ok = cut(Config, 2),
    %% What is sent now has to wait for the link.
    ok = router_check:sent(ToB, At + 500),
    ok = mend(Config, 2),
    ok = router_check:moving_on(ToB),
    Sent = router_check:finish(ToB),
    ok = router_check:arrived(ToB, Sent),
    ?assertEqual({0, 0}, router_check:reported(A, B)),
    balanced([ToB]).

%% The connection is given up and made again: the node is the same, its processes live on.
%% They get what is sent afterwards, nothing twice, and each message that is missing is reported.
long_cut(Config) ->
    {A, B, _} = three(Config),
    Streams = [router_check:stream(A, B, #{sizes => Sizes, every => 20, pause => 5})
               || Sizes <- [[0], [100, 5000], [64, 20000]]],
    Back = router_check:stream(B, A, #{sizes => [0, 1000], every => 20, pause => 5}),
    [router_check:moving(S, 500) || S <- [Back | Streams]],
    ok = cut(Config, 2),
    ok = router_check:disconnected(A, B),
    ok = router_check:disconnected(B, A),
    ok = mend(Config, 2),
    [ok = router_check:moving_on(S) || S <- [Back | Streams]],
    balanced([Back | Streams]).

%% While its link is down a node is killed and started anew. What was meant for the old one, by
%% pid or by name, never comes to the new one.
restarted_peer(Config) ->
    {A, B, _} = three(Config),
    ByPid = router_check:stream(A, B, #{limit => 2000, every => 2000}),
    ByName = router_check:stream(A, B, #{limit => 2000, every => 2000, name => sink}),
    ok = router_check:arrived(ByPid, 2000),
    ok = router_check:arrived(ByName, 2000),
    ok = cut(Config, 2),
    Lost = [router_check:again(S, #{limit => 3000, every => 3000, sizes => [0, 1000]})
            || S <- [ByPid, ByName]],
    [ok = router_check:sent(S, 3000) || S <- Lost],
    ok = router_nodes:kill(B),
    New = router_nodes:restart(B),
    Sink = router_nodes:call(New, router_node, receiver, [sink]),
    ok = router_check:disconnected(A, New),
    ok = mend(Config, 2),
    Fresh = router_check:stream(A, New, #{limit => 1000, receivers => [{sink, Sink}]}),
    ok = router_check:arrived(Fresh, 1000),
    {Streams, []} = router_nodes:call(New, router_node, received, [Sink]),
    ?assertEqual([router_check:id(Fresh)], maps:keys(Streams)),
    ok = router_nodes:until(fun() ->
                                    {Dropped, Unconfirmed} = router_check:reported(A, New),
                                    ?assertEqual(6000, Dropped + Unconfirmed)
                            end),
    [] = router_check:errors(Fresh).

balanced(Streams) ->
    ct:pal("~p", [router_check:balanced(Streams)]).

three(Config) -> list_to_tuple(?config(nodes, Config)).

cut(Config, N) -> router_space:down(?config(space, Config), N).

mend(Config, N) -> router_space:up(?config(space, Config), N).

%% A case run alone has no group.
via(Config) -> proplists:get_value(via, Config, router).
