%% SPDX-License-Identifier: Apache-2.0
%% Random kills, freezes, cuts and restarts of nodes between which many senders and receivers
%% work, and the checks at the end. The seed decides what happens and when, though not what the
%% nodes do meanwhile.
%%
%% Nodes 1 and 2 live through all of it, so that between them every message is accounted for by
%% its receiver. Of 3 and 4, which are killed, receivers die with what they knew; there the
%% figures of the sending router have to add up.
-module(router_chaos).

-export([run/1]).

-define(IDS, [1, 2, 3, 4]).
-define(MORTAL, [3, 4]).
-define(TICK, 4).
-define(CHECK_MS, 10000).
-define(SETTLE_MS, 60000).

%% Options: seconds, seed, space (router_space:make/1 of 4, or none: then connections are closed
%% instead of links cut), print => fun/2 as io:format/2.
-spec run(map()) -> map().
run(#{seconds := Seconds, seed := Seed, print := Print} = Options) ->
    Print("chaos: ~b s, ROUTER_CHAOS_SEED=~b~n", [Seconds, Seed]),
    Now = now_ms(),
    S0 = Options#{nodes => #{}, streams => [], ends => [], todo => #{}, began => Now,
                  rand => rand:seed_s(exsss, Seed), until => Now + Seconds * 1000,
                  checked => Now, printed => Now, done => #{}},
    S1 = lists:foldl(fun(Id, S) -> boot(Id, 1, S) end, S0, ?IDS),
    S2 = lists:foldl(fun(Id, S) -> aim(Id, ?IDS -- [Id], S) end, S1, ?IDS),
    S3 = loop(S2),
    finish(calm(S3)).

%% Nodes

boot(Id, Incarnation, #{nodes := Nodes} = S) ->
    Node = case Nodes of
               #{Id := #{node := Old}} -> router_nodes:restart(Old);
               #{} -> router_nodes:start(list_to_atom("n" ++ integer_to_list(Id)), options(Id, S))
           end,
    Receivers = [router_nodes:call(Node, router_node, receiver, [Name])
                 || Name <- [undefined, undefined, sink]],
    S#{nodes := Nodes#{Id => #{node => Node, incarnation => Incarnation, receivers => Receivers,
                               state => up, cut => is_cut(Id, Nodes)}}}.

is_cut(Id, Nodes) ->
    case Nodes of
        #{Id := #{cut := Cut}} -> Cut;
        #{} -> false
    end.

%% A small bound, so that it is met often; both policies.
options(Id, #{space := Space}) ->
    Policy = case Id rem 2 of 0 -> drop_newest; 1 -> block end,
    Options = #{tick => ?TICK, setup => 2, env => [{bound, 300000}, {policy, Policy}]},
    case Space of
        none -> Options;
        _ -> Options#{space => {Space, Id}}
    end.

%% New senders on one node to others, in place of those it had. One of the old ones goes on, for
%% as long as the next incarnation lives: nobody may get what it sends.
aim(From, Tos, #{nodes := Nodes, streams := Streams} = S) ->
    #{From := #{node := Node, incarnation := Incarnation}} = Nodes,
    Mine = fun(#{from := {F, _}, to := T}) -> F =:= From andalso (T -- Tos) =/= T end,
    {Old, Rest} = lists:partition(Mine, Streams),
    Ended = [end_stream(Node, Stream) || Stream <- Old],
    New = [start_stream(Node, {From, Incarnation}, [To], Kind, targets(Kind, [To], S))
           || To <- Tos, Kind <- [pid, list, nosuspend, large]] ++
        [start_stream(Node, {From, Incarnation}, ?IDS -- [From], wide,
                      targets(wide, ?IDS -- [From], S))],
    S#{streams := Rest ++ Ended ++ New}.

end_stream(_, #{kind := pid, state := fresh} = Stream) ->
    Stream#{state := ghost};
end_stream(_, #{state := ended} = Stream) ->
    Stream;
end_stream(Node, #{sender := Sender} = Stream) ->
    ok = router_nodes:call(Node, router_node, stop, [Sender]),
    Stream#{state := ended}.

start_stream(Node, From, To, Kind, {Targets, More}) ->
    Spec = maps:merge(#{targets => Targets, sizes => [0, 100, 2000], every => 20, pause => 20},
                      More),
    Sender = router_nodes:call(Node, router_node, sender, [Spec]),
    #{from => From, to => To, kind => Kind, state => fresh, sender => Sender}.

%% Singles and lists mixed: their order counts across both.
targets(Kind, Tos, #{nodes := Nodes}) ->
    Dests = lists:append([[P1, P2, {sink, router_nodes:node(N)}]
                          || To <- Tos, #{node := N, receivers := [P1, P2, _]} <-
                                            [maps:get(To, Nodes)]]),
    case Kind of
        pid -> {[hd(Dests)], #{}};
        list -> {[Dests, lists:nth(2, Dests), lists:last(Dests), tl(Dests)], #{}};
        nosuspend -> {Dests, #{options => [nosuspend]}};
        large -> {Dests, #{sizes => [20, 20000, 300, 400000], every => 5}};
        wide -> {[Dests], #{every => 5}}
    end.

%% What happens

loop(#{until := Until, ends := Ends} = S) ->
    Now = now_ms(),
    case lists:sort(Ends) of
        _ when Now >= Until -> S;
        [{At, Id, What} | Rest] when At =< Now -> loop(over(What, Id, S#{ends := Rest}));
        _ -> loop(look(rest(act(S))))
    end.

%% A fault may meet another one; so they come often, and last long now and then.
rest(#{rand := R0, ends := Ends, until := Until} = S) ->
    {Gap, R1} = uniform(800, R0),
    Next = lists:min([now_ms() + Gap, Until | [At || {At, _, _} <- Ends]]),
    receive after max(0, Next - now_ms()) -> S#{rand := R1} end.

act(#{rand := R0, nodes := Nodes} = S) ->
    {N, R1} = uniform(length(?IDS), R0),
    {What, R2} = pick([freeze, freeze, cut, cut, kill, kill, disconnect], R1),
    {Ms, R3} = duration(R2),
    Id = lists:nth(N, ?IDS),
    #{Id := #{state := State, cut := Cut}} = Nodes,
    Possible = case What of
                   freeze -> State =:= up;
                   cut -> not Cut andalso maps:get(space, S) =/= none;
                   kill -> State =/= down andalso lists:member(Id, ?MORTAL);
                   disconnect -> State =:= up
               end,
    case Possible of
        true -> act(What, Id, Ms, S#{rand := R3});
        false -> S#{rand := R3}
    end.

duration(R0) ->
    case uniform(6, R0) of
        {1, R1} -> uniform(2 * ?TICK * 1000, R1);
        {_, R1} -> uniform(1500, R1)
    end.

act(freeze, Id, Ms, S) ->
    ok = router_nodes:freeze(node(Id, S)),
    until(thaw, Id, Ms, set(Id, state, frozen, count(freeze, S)));
act(cut, Id, Ms, #{space := Space} = S) ->
    ok = router_space:down(Space, Id),
    until(mend, Id, Ms, set(Id, cut, true, count(cut, S)));
act(kill, Id, Ms, #{ends := Ends, todo := Todo, streams := Streams} = S) ->
    ok = router_nodes:kill(node(Id, S)),
    Dead = S#{ends := [E || {_, I, What} = E <- Ends, I =/= Id orelse What =/= thaw],
              todo := maps:remove(Id, Todo),
              %% What it had sent nobody knows now.
              streams := [Stream || #{from := {From, _}} = Stream <- Streams, From =/= Id]},
    until(restart, Id, Ms, set(Id, state, down, count(kill, Dead)));
act(disconnect, Id, _, #{rand := R0} = S) ->
    {Other, R1} = pick(?IDS -- [Id], R0),
    #{peer := Peer} = node(Id, S),
    ok = peer:cast(Peer, erlang, disconnect_node, [router_nodes:node(node(Other, S))]),
    count(disconnect, S#{rand := R1}).

over(thaw, Id, S) ->
    ok = router_nodes:thaw(node(Id, S)),
    owed(Id, set(Id, state, up, S));
over(mend, Id, #{space := Space} = S) ->
    ok = router_space:up(Space, Id),
    set(Id, cut, false, S);
over(restart, Id, #{nodes := Nodes} = S) ->
    #{Id := #{incarnation := Incarnation}} = Nodes,
    S1 = boot(Id, Incarnation + 1, S),
    S2 = aim(Id, ?IDS -- [Id], S1),
    lists:foldl(fun(From, Acc) -> retarget(From, Id, Acc) end, S2, ?IDS -- [Id]).

%% The others learn the new processes; a frozen one when it can hear.
retarget(From, To, #{nodes := Nodes, todo := Todo} = S) ->
    case Nodes of
        #{From := #{state := up}} -> aim(From, [To], S);
        #{From := #{state := frozen}} -> S#{todo := Todo#{From => lists:usort(
                                                           [To | maps:get(From, Todo, [])])}};
        #{From := #{state := down}} -> S
    end.

owed(Id, #{todo := Todo} = S) ->
    case maps:take(Id, Todo) of
        {Tos, Rest} -> aim(Id, Tos, S#{todo := Rest});
        error -> S
    end.

%% Early news of what is wrong, and a line now and then.
look(#{checked := Checked, print := Print, began := Began, done := Done} = S) ->
    case now_ms() - Checked >= ?CHECK_MS of
        true ->
            Up = [N || #{state := up} = N <- maps:values(maps:get(nodes, S))],
            [[] = receiver_errors(N) || N <- Up],
            Print("chaos: ~b s, ~0p; received by nodes that run ~b, memory ~w MB~n",
                  [(now_ms() - Began) div 1000, Done, lists:sum([received(N) || N <- Up]),
                   [router_nodes:rss_kb(N) div 1024 || #{node := N} <- Up]]),
            S#{checked := now_ms()};
        false ->
            S
    end.

receiver_errors(#{node := Node, receivers := Receivers}) ->
    lists:append([element(2, router_nodes:call(Node, router_node, received, [R]))
                  || R <- Receivers]).

received(#{node := Node, receivers := Receivers}) ->
    lists:sum([Count || R <- Receivers,
                        {Count, _} <- maps:values(element(1, router_nodes:call(
                                                               Node, router_node, received,
                                                               [R])))]).

%% The end

%% Everything runs again: every sender gets on, and its receivers hear of it.
calm(#{ends := Ends} = S) ->
    S1 = lists:foldl(fun({_, Id, What}, Acc) -> over(What, Id, Acc) end, S, lists:sort(Ends)),
    Fresh = [Stream || #{state := fresh} = Stream <- maps:get(streams, S1)],
    Before = [progress(Stream, S1) || Stream <- Fresh],
    router_nodes:until(
      fun() ->
              [] = [{stuck, maps:with([from, to, kind], Stream), Was}
                    || {Stream, Was} <- lists:zip(Fresh, Before),
                       progress(Stream, S1) < Was + 20]
      end, ?SETTLE_MS),
    S1.

progress(#{from := {Id, _}, sender := Sender}, S) ->
    router_nodes:call(node(Id, S), router_node, progress, [Sender]).

finish(#{nodes := Nodes, streams := Streams, print := Print, done := Done} = S) ->
    [ok = router_nodes:call(node(Id, S), router_node, stop, [Sender])
     || #{from := {Id, _}, sender := Sender} <- Streams],
    Sent = [{Id, router_nodes:call(node(Id, S), router_node, finish, [Sender, ?SETTLE_MS],
                                   2 * ?SETTLE_MS)}
            || #{from := {Id, _}, sender := Sender} <- Streams],
    Pairs = [{From, To} || From <- ?IDS, To <- ?IDS, From =/= To],
    [router_nodes:until(fun() -> ok = router_check:synced(node(From, S), node(To, S)) end,
                        ?SETTLE_MS) || {From, To} <- Pairs],
    [[] = receiver_errors(N) || N <- maps:values(Nodes)],
    Results = [{Pair, balance(Pair, [Dests || {Id, {Dests, _}} <- Sent, Id =:= From], S)}
               || {From, _} = Pair <- Pairs],
    [Print("chaos: ~b -> ~b: ~0p~n", [From, To, R]) || {{From, To}, R} <- Results],
    #{seed => maps:get(seed, S), done => Done, pairs => maps:from_list(Results)}.

balance({From, To}, Sent, S) ->
    Node = router_nodes:node(node(To, S)),
    Sum = lists:sum([Count || Dests <- Sent, {Dest, Count} <- maps:to_list(Dests),
                              node_of(Dest) =:= Node]),
    %% The last report may be on its way.
    router_nodes:until(fun() -> balance(From, To, Node, Sum, S) end, ?CHECK_MS).

balance(From, To, Node, Sum, #{nodes := Nodes} = S) ->
    Creation = router_nodes:call(node(From, S), erlang, system_info, [creation]),
    Sender = router_nodes:node(node(From, S)),
    #{To := #{receivers := Receivers, node := ToNode, incarnation := Incarnation}} = Nodes,
    Received = lists:sum([Count || R <- Receivers,
                                   {{N, C, _}, {Count, _}} <-
                                       maps:to_list(element(1, router_nodes:call(
                                                                 ToNode, router_node, received,
                                                                 [R]))),
                                   N =:= Sender, C =:= Creation]),
    {Dropped, Unconfirmed} = router_check:reported(node(From, S), ToNode),
    Confirmed = router_nodes:call(node(From, S), router_node, confirmed, [Node]),
    Result = #{sent => Sum, confirmed => Confirmed, dropped => Dropped,
               unconfirmed => Unconfirmed, received => Received, incarnation => Incarnation},
    Adds = Sum =:= Confirmed + Dropped + Unconfirmed,
    Most = Received =< Sum - Dropped,
    %% From the very beginning to the end the same receivers.
    Least = Incarnation > 1 orelse Received >= Sum - Dropped - Unconfirmed,
    case Adds andalso Most andalso Least of
        true -> Result;
        false -> error({not_balanced, From, To, Result})
    end.

node_of({_, Node}) -> Node;
node_of(Dest) -> erlang:node(Dest).

%% Small things

node(Id, #{nodes := Nodes}) ->
    #{Id := #{node := Node}} = Nodes,
    Node.

set(Id, Key, Value, #{nodes := Nodes} = S) ->
    #{Id := Node} = Nodes,
    S#{nodes := Nodes#{Id := Node#{Key := Value}}}.

count(What, #{done := Done} = S) ->
    S#{done := maps:update_with(What, fun(N) -> N + 1 end, 1, Done)}.

until(What, Id, Ms, #{ends := Ends} = S) ->
    S#{ends := [{now_ms() + Ms, Id, What} | Ends]}.

pick(List, R0) ->
    {N, R1} = uniform(length(List), R0),
    {lists:nth(N, List), R1}.

uniform(N, R) ->
    rand:uniform_s(N, R).

now_ms() ->
    erlang:monotonic_time(millisecond).
