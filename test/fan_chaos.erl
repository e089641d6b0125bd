%% SPDX-License-Identifier: Apache-2.0
%% Three nodes with publishers and with subscribers of every mode and policy, of which some are
%% killed at random: subscribers, publishers, lanes, lanes of the router, and the third node as a
%% whole; connections between living nodes end and are made again. The seed decides what happens and
%% when, though not what the nodes do meanwhile.
-module(fan_chaos).

-include_lib("stdlib/include/assert.hrl").

-export([run/1]).

-define(IDS, [1, 2, 3]).
-define(MORTAL, 3).
-define(TOPICS, [<<"chaos/a">>, <<"chaos/b">>]).
-define(LIMIT, 50000).
-define(SETTLE_MS, 60000).
-define(PUBLISHERS, 3).
%% What comes meanwhile fits into the lanes of the router.
-define(FREEZE_MS, 1000).
%% A node has less than so much more memory at the end.
-define(GROWTH, 30000000).

%% Options: seconds, seed, and whether the third node stands still now and then, and subscribers
%% hold publishers up. What was done, how often.
-spec run(#{seconds := pos_integer(), seed := integer(), hard := boolean()}) ->
          #{atom() => pos_integer()}.
run(#{seconds := Seconds, seed := Seed, hard := Hard}) ->
    Nodes = maps:from_list([{Id, boot(router_nodes:start(list_to_atom("f" ++ integer_to_list(Id)),
                                                         #{}))} || Id <- ?IDS]),
    S0 = #{nodes => Nodes, subs => [], pubs => [], rand => rand:seed_s(exsss, Seed),
           done => #{}, log => [], hard => Hard, until => now_ms() + Seconds * 1000},
    ok = meet(S0),
    Before = memory(S0),
    S1 = lists:foldl(fun populate/2, S0, ?IDS),
    S2 = loop(S1),
    S3 = calm(S2),
    ok = nothing_left(S3, Before),
    maps:get(done, S3).

boot(Node) ->
    ok = router_nodes:call(Node, fan_node, start, [[]]),
    Node.

%% Everybody knows everybody's subscriptions before anything is published.
meet(S) ->
    %% An earlier incarnation may not be known to be dead yet, nor the end of a connection.
    [real_os:until(fun() ->
                           true = call(A, net_kernel, connect_node, [name(B, S)], S),
                           true = call(B, fan_node, knows, [name(A, S)], S),
                           true = call(A, fan_node, knows, [name(B, S)], S)
                   end) || A <- ?IDS, B <- ?IDS, A < B],
    ok.

name(Id, #{nodes := Nodes}) -> router_nodes:node(maps:get(Id, Nodes)).

populate(Id, S) ->
    S1 = lists:foldl(fun(Spec, Acc) -> subscriber(Id, Spec, Acc) end, S, specs(S)),
    lists:foldl(fun(_, Acc) -> publisher(Id, Acc) end, S1, lists:seq(1, ?PUBLISHERS)).

%% Who is lazy is over its limit now and then.
specs(#{hard := Hard}) ->
    [A | _] = ?TOPICS,
    Push = #{filter => A, opts => #{}},
    [#{filter => A, lazy => 20, opts => #{limit => ?LIMIT, policy => block}} || Hard]
        ++ [Push, Push#{filter := <<"chaos/+">>},
            Push#{filter := <<"#">>, opts := #{limit => infinity}}]
        ++ [#{filter => Filter, lazy => 200, opts => #{limit => ?LIMIT, policy => Policy}}
            || Filter <- [A, <<"chaos/#">>],
               Policy <- [drop_oldest, drop_newest, {conflate, fun fan_node:key/1}, disconnect]]
        ++ [#{filter => Filter, lazy => Lazy,
              opts => #{mode => Mode, limit => ?LIMIT, policy => Policy}}
            || Filter <- [A, <<"chaos/+">>], Mode <- [pull, frames],
               {Lazy, Policy} <- [{0, drop_oldest}, {200, drop_oldest}, {200, disconnect}]].

subscriber(Id, Spec, #{subs := Subs} = S) ->
    Pid = call(Id, fan_node, subscriber, [Spec], S),
    S#{subs := [{Id, Pid, Spec} | Subs]}.

publisher(Id, #{pubs := Pubs, rand := R0} = S) ->
    {Topic, R1} = pick(?TOPICS, R0),
    Pid = call(Id, fan_node, publisher, [#{topic => Topic, bytes => 200, every => 20,
                                           pause => 10}], S),
    S#{pubs := [{Id, Pid} | Pubs], rand := R1}.

%% What happens

loop(#{until := Until, rand := R0} = S) ->
    {Gap, R1} = rand:uniform_s(150, R0),
    receive after Gap -> ok end,
    case now_ms() < Until of
        true -> loop(act(S#{rand := R1}));
        false -> S
    end.

act(#{rand := R0, hard := Hard} = S) ->
    {What, R1} = pick([subscriber, subscriber, subscriber, again, again, publisher, publisher,
                       lane, lane, look, node, cut, cut, route] ++ [freeze || Hard], R0),
    Begin = erlang:system_time(millisecond),
    #{log := Log} = Done = act(What, S#{rand := R1}),
    count(What, Done#{log := [{Begin, What} | Log]}).

act(subscriber, #{subs := Subs, rand := R0} = S) ->
    {{Id, Pid, Spec}, R1} = pick(Subs, R0),
    true = call(Id, erlang, exit, [Pid, kill], S),
    subscriber(Id, Spec, S#{subs := lists:keydelete(Pid, 2, Subs), rand := R1});
act(again, #{subs := Subs, rand := R0} = S) ->
    {{Id, Pid, _}, R1} = pick(Subs, R0),
    ok = call(Id, fan_node, again, [Pid], S),
    S#{rand := R1};
act(publisher, #{pubs := Pubs, rand := R0} = S) ->
    {{Id, Pid}, R1} = pick(Pubs, R0),
    true = call(Id, erlang, exit, [Pid, kill], S),
    publisher(Id, S#{pubs := lists:keydelete(Pid, 2, Pubs), rand := R1});
act(lane, #{rand := R0} = S) ->
    {Id, R1} = pick(?IDS, R0),
    {N, R2} = rand:uniform_s(100, R1),
    ok = call(Id, fan_node, kill_lane, [N], S),
    S#{rand := R2};
act(look, S) ->
    ok = look(S),
    S;
%% For a moment or for longer; the routers may be faster than this.
act(cut, #{rand := R0} = S) ->
    {[A, B], R1} = pick([[A, B] || A <- ?IDS, B <- ?IDS, A =/= B], R0),
    {Ms, R2} = pick([0, 0, 0, 20, 300], R1),
    _ = call(A, erlang, disconnect_node, [name(B, S)], S),
    receive after Ms -> ok end,
    _ = call(A, net_kernel, connect_node, [name(B, S)], S),
    S#{rand := R2};
act(route, #{rand := R0} = S) ->
    {[A, B], R1} = pick([[A, B] || A <- ?IDS, B <- ?IDS, A =/= B], R0),
    {N, R2} = rand:uniform_s(100, R1),
    ok = call(A, fan_node, kill_route, [name(B, S), N], S),
    S#{rand := R2};
act(freeze, #{nodes := #{?MORTAL := Node}, rand := R0} = S) ->
    {Ms, R1} = rand:uniform_s(?FREEZE_MS, R0),
    ok = router_nodes:freeze(Node),
    receive after Ms -> ok end,
    ok = router_nodes:thaw(Node),
    S#{rand := R1};
act(node, #{nodes := Nodes, subs := Subs, pubs := Pubs} = S) ->
    #{?MORTAL := Node} = Nodes,
    ok = router_nodes:kill(Node),
    New = boot(router_nodes:restart(Node)),
    S1 = S#{nodes := Nodes#{?MORTAL := New},
            subs := [Sub || {Id, _, _} = Sub <- Subs, Id =/= ?MORTAL],
            pubs := [Pub || {Id, _} = Pub <- Pubs, Id =/= ?MORTAL]},
    ok = meet(S1),
    populate(?MORTAL, S1).

%% Early news of what is wrong.
look(#{subs := Subs} = S) ->
    [begin
         #{errors := Errors, opts := Opts, filter := Filter} = call(Id, fan_node, report, [Pid], S),
         case Errors of
             [] -> ok;
             _ -> error({Id, Filter, Opts, Errors, losses(S)})
         end
     end || {Id, Pid, _} <- Subs],
    ok.

%% Where else something may have been lost.
losses(#{log := Log} = S) ->
    ct:pal("the last acts: ~0p~nconnections: ~0p",
           [lists:sublist(Log, 60), [{Id, call(Id, fan_node, seen, [], S)} || Id <- ?IDS]]),
    [{Id, [R || #{refused := R} <- maps:values(call(Id, erlane_fanout, info, [], S))],
      call(Id, erlane_router, info, [], S)} || Id <- ?IDS].

%% The end

%% Publishers go slowly, and all subscribers are quick: everybody gets on with every publisher of
%% a topic of his, on every node, and from there on nothing is lost.
calm(#{subs := Subs, pubs := Pubs} = S) ->
    ok = meet(S),
    [ok = call(Id, fan_node, pace, [Pid, #{every => 1, pause => 50}], S) || {Id, Pid} <- Pubs],
    [ok = call(Id, fan_node, hurry, [Pid], S) || {Id, Pid, _} <- Subs],
    real_os:until(fun() -> ?assertEqual([], behind(10, S)) end, ?SETTLE_MS),
    [call(Id, fan_node, stop, [Pid], S) || {Id, Pid} <- Pubs],
    real_os:until(fun() -> ?assertEqual([], behind(0, S)) end, ?SETTLE_MS),
    ok = look(S),
    told(S).

%% How many holes the subscribers saw that live, and how often they were told of one of a size that
%% nobody knows.
told(#{subs := Subs, done := Done} = S) ->
    Reports = [call(Id, fan_node, report, [Pid], S) || {Id, Pid, _} <- Subs],
    S#{done := maps:merge(Done, maps:from_list([{Key, lists:sum([maps:get(Key, R) || R <- Reports])}
                                                || Key <- [count, holes, gaps, lost, breaks]]))}.

%% Who lacks more than so many of the last messages of a publisher. Those of one topic are asked for
%% publishers that they had heard of.
behind(Most, #{subs := Subs, pubs := Pubs} = S) ->
    Published = [call(Id, fan_node, published, [Pid], S) || {Id, Pid} <- Pubs],
    [{Id, Filter, Opts, P, N, Had}
     || {Id, Pid, #{filter := Filter, opts := Opts}} <- Subs,
        #{last := Last} <- [call(Id, fan_node, report, [Pid], S)],
        {P, N} <- Published, is_map_key(P, Last) orelse binary:last(Filter) =/= $a,
        {Had, _, _} <- [maps:get(P, Last, {0, none, 0})], N - Had > Most].

%% Neither rows nor memory are left, when all subscribers and publishers are gone.
nothing_left(#{subs := Subs, pubs := Pubs} = S, Before) ->
    [true = call(Id, erlang, exit, [Pid, kill], S)
     || {Id, Pid} <- [{Id, Pid} || {Id, Pid, _} <- Subs] ++ Pubs],
    real_os:until(fun() -> [0, 0, 0] = [map_size(call(Id, fan_node, left, [], S)) || Id <- ?IDS]
                  end),
    real_os:until(fun() ->
                          true = lists:all(fun({B, A}) -> A - B < ?GROWTH end,
                                           lists:zip(Before, memory(S)))
                  end),
    ok.

memory(S) ->
    [call(Id, fan_node, memory, [], S) || Id <- ?IDS].

call(Id, M, F, A, #{nodes := Nodes}) ->
    router_nodes:call(maps:get(Id, Nodes), M, F, A).

count(What, #{done := Done} = S) ->
    S#{done := maps:update_with(What, fun(N) -> N + 1 end, 1, Done)}.

pick(List, R0) ->
    {N, R1} = rand:uniform_s(length(List), R0),
    {lists:nth(N, List), R1}.

now_ms() -> erlang:monotonic_time(millisecond).
