%% SPDX-License-Identifier: Apache-2.0
%% Nodes that stop, die, come back, or have no router; processes of the router that crash.
-module(erlane_router_loss_SUITE).

-export([hold_partners/0, waiting/1]).
-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([stopped_peer_blocks/1, stopped_peer_drops/1, stopped_peer_refuses/1, larger_than_bound/1,
         killed_peer/1, restarted_peer/1, cut_and_back/1, slow_partner/1,
         lane_crash/1, partner_crash/1, watched/1,
         sender_killed/1, charges_of_nobody/1, without_router/1, other_version/1,
         router_stops_and_starts/1, stops_under_load/1, subscribers/1]).

-include_lib("stdlib/include/assert.hrl").
-include("erlane_router.hrl").

-import(erlane_router_ct, [on/2, until/1, sink/1, take/1, taken/2, stats/2, lanes/1]).

-define(BOUND, 200000).

all() ->
    [stopped_peer_blocks, stopped_peer_drops, stopped_peer_refuses, larger_than_bound, killed_peer,
     restarted_peer, cut_and_back, slow_partner, lane_crash, partner_crash, watched, sender_killed,
     charges_of_nobody, without_router, other_version, router_stops_and_starts, stops_under_load,
     subscribers].

init_per_suite(Config) -> Config.

end_per_suite(_) -> ok.

%% Each case has two nodes of its own: most of them do not survive.
init_per_testcase(Case, Config) ->
    Policy = case Case of stopped_peer_drops -> drop_newest; _ -> block end,
    A = erlane_router_ct:start(#{env => [{bound, ?BOUND}, {policy, Policy}]}),
    B = case Case of
            without_router -> erlane_router_ct:start(#{app => false});
            other_version -> erlane_router_ct:start(#{app => false});
            _ -> erlane_router_ct:start()
        end,
    [{a, A}, {b, B}, {node, erlane_router_ct:node(B)} | Config].

end_per_testcase(_, Config) ->
    [erlane_router_ct:stop(proplists:get_value(N, Config)) || N <- [a, b]],
    ok.

b(Config) -> proplists:get_value(b, Config).

on_a(Config, Fun) ->
    Node = proplists:get_value(node, Config),
    on(proplists:get_value(a, Config), fun() -> Fun(Node) end).

%% While a node does not read, senders wait, the lanes hold no more than the bound, and so does
%% the memory of the VM; when it reads again everything arrives in order.
stopped_peer_blocks(Config) ->
    B = b(Config),
    Sinks = on_a(Config, fun(Node) ->
        Sinks = [sink(Node) || _ <- lists:seq(1, 8)],
        ok = erlane_router:sync(Node),
        Sinks
    end),
    ok = erlane_router_ct:signal(B, "STOP"),
    Each = 5000,
    {Senders, Memory} = on_a(Config, fun(Node) ->
        Before = erlang:memory(total),
        Senders = [spawn(fun() -> padded(Sink, 1, Each) end) || Sink <- Sinks],
        until(fun() -> [{waiting, {erlane_router_room, full, 5}} = doing(S) || S <- Senders] end),
        ?assert(stats(Node, queued) > 0),
        [?assert(Bytes =< ?BOUND) || {_, #{bytes := Bytes}} <- maps:to_list(erlane_router:info())],
        %% Others are not concerned.
        ok = erlane_router:send(self(), here),
        here = receive M -> M end,
        {Senders, erlang:memory(total) - Before}
    end),
    %% The distribution's own queue, the mailboxes, and what a flood leaves in allocators.
    ?assert(Memory < 60000000),
    ok = erlane_router_ct:signal(B, "CONT"),
    on_a(Config, fun(Node) ->
        until(fun() -> [undefined = process_info(S) || S <- Senders] end),
        ok = erlane_router:sync(Node, 20000),
        [?assertEqual(lists:seq(1, Each), [I || {I, _} <- take(Sink)]) || Sink <- Sinks],
        0 = stats(Node, dropped)
    end).

doing(Pid) ->
    [{status, Status}, {current_function, Function}] =
        process_info(Pid, [status, current_function]),
    {Status, Function}.

numbers(Sink, I, N) when I =< N ->
    ok = erlane_router:send(Sink, I),
    numbers(Sink, I + 1, N);
numbers(_, _, _) ->
    ok.

%% More than all buffers between here and there can hold.
padded(Sink, I, N) when I =< N ->
    ok = erlane_router:send(Sink, {I, binary:copy(<<4>>, 1000)}),
    padded(Sink, I + 1, N);
padded(_, _, _) ->
    ok.

%% Under drop_newest nobody waits; what was refused is counted, told, and missing, nothing else.
stopped_peer_drops(Config) ->
    B = b(Config),
    Sink = on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        ok = erlane_router:subscribe(),
        Sink
    end),
    ok = erlane_router_ct:signal(B, "STOP"),
    Told = on_a(Config, fun(Node) ->
        ok = erlane_router:subscribe(),
        _ = flood(Sink, 1, fun() -> stats(Node, refused) > 5000 end),
        {erlane_router, dropped, Node, N} = receive M -> M end,
        {N, stats(Node, refused)}
    end),
    ?assertMatch({N, N}, Told),
    ok = erlane_router_ct:signal(B, "CONT"),
    on_a(Config, fun(Node) ->
        ok = erlane_router:sync(Node, 20000),
        Got = take(Sink),
        ?assertEqual(lists:usort(Got), Got),
        ?assertEqual(stats(Node, refused), stats(Node, dropped)),
        ?assertEqual(length(Got), stats(Node, confirmed)),
        %% There is room again.
        ok = erlane_router:send(Sink, last),
        [last] = taken(Sink, 1)
    end).

%% Numbers until a condition holds, which is asked now and then.
flood(Sink, I, Done) ->
    ok = erlane_router:send(Sink, I),
    case I rem 1000 =:= 0 andalso Done() of
        true -> I;
        false -> flood(Sink, I + 1, Done)
    end.

%% The option: the caller is told, and what it was not told about arrives.
stopped_peer_refuses(Config) ->
    B = b(Config),
    Sink = on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Sink
    end),
    ok = erlane_router_ct:signal(B, "STOP"),
    Sent = on_a(Config, fun(Node) ->
        Sent = refused(Sink, Node, 1),
        {not_sent, #{Node := nosuspend}} =
            erlane_router:send([Sink, self(), Sink], x, [nosuspend]),
        x = receive M -> M end,
        {not_sent, #{Node := nosuspend}} =
            erlane_router:send(Sink, lists:seq(1, 200000), [nosuspend]),
        Sent
    end),
    ok = erlane_router_ct:signal(B, "CONT"),
    on_a(Config, fun(Node) ->
        ok = erlane_router:sync(Node, 20000),
        ?assertEqual(lists:seq(1, Sent), take(Sink)),
        0 = stats(Node, dropped)
    end).

%% Until the connection is busy and the lane behind it full.
refused(Sink, Node, I) ->
    case erlane_router:send(Sink, I, [nosuspend]) of
        ok ->
            refused(Sink, Node, I + 1);
        {not_sent, #{Node := nosuspend}} ->
            case [L || L <- lanes(Node), {status, suspended} =:= process_info(L, status)] of
                [] -> erlang:yield(), refused(Sink, Node, I);
                _ -> I - 1
            end
    end.

%% It goes when the lane is empty, in its place in the order; others wait for it.
larger_than_bound(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Large = binary:copy(<<5>>, 3 * ?BOUND),
        Messages = [case I rem 10 of 0 -> {I, Large}; _ -> I end || I <- lists:seq(1, 100)],
        Others = [spawn_monitor(fun() -> [erlane_router:send(Sink, {K, Large}, [{key, Node}])
                                          || K <- lists:seq(1, 10)] end) || _ <- lists:seq(1, 5)],
        [ok = erlane_router:send(Sink, M, [{key, Node}]) || M <- Messages],
        [receive {'DOWN', Ref, process, _, normal} -> ok end || {_, Ref} <- Others],
        ok = erlane_router:sync(Node, 20000),
        Got = take(Sink),
        ?assertEqual(150, length(Got)),
        ?assertEqual([], Messages -- Got),
        ok = erlane_router:send(lists:duplicate(20000, Sink), many),
        ok = erlane_router:sync(Node, 20000),
        20000 = length(take(Sink)),
        0 = stats(Node, queued)
    end).

%% Whatever was accepted is confirmed, dropped or unconfirmed, to the message; senders that
%% waited go on; subscribers are told the same numbers.
killed_peer(Config) ->
    B = b(Config),
    Sinks = on_a(Config, fun(Node) ->
        ok = erlane_router:sync(Node),
        [sink(Node) || _ <- lists:seq(1, 4)]
    end),
    ok = erlane_router_ct:signal(B, "STOP"),
    on_a(Config, fun(Node) ->
        _ = erlane_router_ct:reporter(Node),
        Each = 5000,
        %% A list counts for each of its destinations.
        Senders = [spawn(fun() ->
                             padded(Sink, 1, Each),
                             ok = erlane_router:send(Sinks, many),
                             ok = erlane_router:send(Sink, lists:seq(1, 10000))
                         end) || Sink <- Sinks],
        persistent_term:put(killed_peer, {Senders, 4 * (Each + 4 + 1)}),
        until(fun() -> [{waiting, {erlane_router_room, full, 5}} = doing(S) || S <- Senders] end)
    end),
    ok = erlane_router_ct:kill(B),
    on_a(Config, fun(Node) ->
        {Senders, All} = persistent_term:get(killed_peer),
        until(fun() -> [undefined = process_info(S) || S <- Senders] end),
        until(fun() ->
            0 = stats(Node, queued),
            0 = stats(Node, inflight),
            ?assertEqual(All, lists:sum([stats(Node, K)
                                         || K <- [confirmed, dropped, unconfirmed]])),
            {Dropped, Unconfirmed} = erlane_router_ct:reported(),
            ?assertEqual({Dropped, Unconfirmed},
                         {stats(Node, dropped), stats(Node, unconfirmed)}),
            ?assert(Dropped > 0),
            ?assert(Unconfirmed > 0)
        end),
        {error, #{Node := nodedown}} = erlane_router:sync(Node)
    end).

%% What was queued for a node that died does not reach the one that has its name now: neither
%% its processes, nor a name that both had.
restarted_peer(Config) ->
    B = b(Config),
    Name = fun(Node) ->
               Sink = sink(Node),
               true = erpc:call(Node, erlang, register, [same_name, Sink]),
               Sink
           end,
    Old = on_a(Config, fun(Node) ->
        Sink = Name(Node),
        ok = erlane_router:send({same_name, Node}, before),
        ok = erlane_router:sync(Node),
        [before] = take(Sink),
        Sink
    end),
    ok = erlane_router_ct:signal(B, "STOP"),
    on_a(Config, fun(Node) ->
        _ = refused({same_name, Node}, Node, 1),
        [erlane_router:send(Old, I, [{key, K}, nosuspend])
         || I <- lists:seq(1, 100), K <- [1, 2, 3, 4, 5]]
    end),
    ok = erlane_router_ct:kill(B),
    on_a(Config, fun(Node) ->
        until(fun() -> ?assertNot(lists:member(Node, nodes(connected))) end)
    end),
    New = erlane_router_ct:start(#{name => maps:get(name, B)}),
    try
        ?assertEqual(erlane_router_ct:node(B), erlane_router_ct:node(New)),
        on_a(Config, fun(Node) ->
            Sink = until(fun() -> Name(Node) end),
            ok = erlane_router:send(Old, old),
            ok = erlane_router:send([Old, {same_name, Node}], 'after'),
            ok = erlane_router:sync(Node),
            ['after'] = take(Sink),
            router = maps:get(peer, maps:get({Node, 1}, erlane_router:info()))
        end)
    after
        erlane_router_ct:stop(New)
    end.

%% The connection is lost again and again under load: order and no duplicate; what is missing
%% is not more than what was reported.
cut_and_back(Config) ->
    on_a(Config, fun(Node) ->
        Sinks = [sink(Node) || _ <- lists:seq(1, 3)],
        ok = erlane_router:sync(Node),
        Each = 30000,
        Senders = [spawn_monitor(fun() -> numbers_to(Sinks, S, 1, Each) end)
                   || S <- lists:seq(1, 6)],
        Cut = spawn_link(fun() -> cut(Node) end),
        [receive {'DOWN', Ref, process, _, Why} -> normal = Why end || {_, Ref} <- Senders],
        Cut ! {stop, self()},
        Cuts = receive {Cut, N} -> N end,
        ?assert(Cuts > 0),
        ok = until(fun() -> ok = erlane_router:sync(Node) end),
        Got = [take(Sink) || Sink <- Sinks],
        [begin
             Is = [I || {From, I} <- At, From =:= S],
             ?assertEqual(lists:usort(Is), Is)
         end || At <- Got, S <- lists:seq(1, 6)],
        Missing = 6 * 3 * Each - length(lists:append(Got)),
        [Confirmed, Dropped, Unconfirmed] =
            [stats(Node, K) || K <- [confirmed, dropped, unconfirmed]],
        ?assertEqual(6 * 3 * Each, Confirmed + Dropped + Unconfirmed),
        ?assert(Missing >= Dropped),
        ?assert(Missing =< Dropped + Unconfirmed)
    end).

%% What a partner had received when the connection was lost is not overtaken by its successor's.
slow_partner(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Holder = erpc:call(Node, ?MODULE, hold_partners, []),
        [ok = erlane_router:send(Sink, I) || I <- lists:seq(1, 10)],
        until(fun() -> ?assert(erpc:call(Node, ?MODULE, waiting, [Holder]) > 0),
                       10 = stats(Node, inflight) end),
        true = erlang:disconnect_node(Node),
        until(fun() -> 10 = stats(Node, unconfirmed) end),
        [ok = erlane_router:send(Sink, I) || I <- lists:seq(11, 20)],
        until(fun() -> 10 = stats(Node, inflight) end),
        %% The frames are over there, behind what was sent to the sink.
        [] = take(Sink),
        Holder ! go,
        ?assertEqual(lists:seq(1, 20), taken(Sink, 20))
    end).

%% On a node: suspends its partners until it is told to let them go.
hold_partners() ->
    Self = self(),
    Pid = spawn(fun() ->
                    {links, Links} = process_info(whereis(?GATE), links),
                    Partners = [P || P <- Links, P =/= whereis(erlane_router_sup)],
                    [true = erlang:suspend_process(P) || P <- Partners],
                    put(partners, Partners),
                    Self ! {self(), held},
                    receive go -> ok end
                end),
    receive {Pid, held} -> Pid end.

%% How many messages wait for them.
waiting(Holder) ->
    {dictionary, Dictionary} = process_info(Holder, dictionary),
    lists:sum([element(2, process_info(P, message_queue_len))
               || P <- proplists:get_value(partners, Dictionary)]).

numbers_to(Sinks, S, I, N) when I =< N ->
    case I rem 2 of
        0 -> ok = erlane_router:send(Sinks, {S, I});
        1 -> [ok = erlane_router:send(Sink, {S, I}) || Sink <- Sinks]
    end,
    numbers_to(Sinks, S, I + 1, N);
numbers_to(_, _, _, _) ->
    ok.

cut(Node) -> cut(Node, 0).

cut(Node, N) ->
    receive
        {stop, From} -> From ! {self(), N}
    after 30 ->
        case erlang:disconnect_node(Node) of
            true -> cut(Node, N + 1);
            _ -> cut(Node, N)
        end
    end.

%% Its queue is dropped and counted, senders that waited go on, and there is another lane.
lane_crash(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        _ = erlane_router_ct:reporter(Node),
        Before = lanes(Node),
        I = erlang:phash2(key, 4) + 1,
        Lane = lists:nth(I, Before),
        true = erlang:suspend_process(Lane),
        Queued = flood_key(Sink, Node, 0),
        Blocked = [spawn_monitor(fun() ->
                                     ok = erlane_router:send(Sink, {blocked, B}, [{key, key}])
                                 end) || B <- [1, 2, 3]],
        until(fun() -> [{waiting, {erlane_router_room, full, 5}} = doing(P)
                        || {P, _} <- Blocked] end),
        exit(Lane, kill),
        [receive {'DOWN', Ref, process, _, normal} -> ok end || {_, Ref} <- Blocked],
        ok = erlane_router:sync(Node),
        ?assertEqual([{blocked, 1}, {blocked, 2}, {blocked, 3}], lists:sort(take(Sink))),
        ?assertEqual([Lane], Before -- lanes(Node)),
        ?assertEqual(Queued, stats(Node, dropped)),
        until(fun() -> {Queued, _} = erlane_router_ct:reported() end)
    end).

flood_key(Sink, Node, N) ->
    case erlane_router:send(Sink, N, [nosuspend, {key, key}]) of
        ok -> flood_key(Sink, Node, N + 1);
        {not_sent, #{Node := nosuspend}} -> N
    end.

%% Who watches hears of a lane that begins anew, before what that lane sends.
watched(Config) ->
    A = erlane_router_ct:node(proplists:get_value(a, Config)),
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        true = erpc:call(Node, erlang, register, [watched, Sink]),
        I = erlang:phash2(key, 4) + 1,
        [ok = erpc:call(Node, erlane_router, watch, [Names]) || Names <- [[watched], [nobody]]],
        ok = erlane_router:send({watched, Node}, 1, [{key, key}]),
        ?assertEqual([{erlane_router, stream, A, I}, 1], taken(Sink, 2)),
        ok = replaced(I, Node),
        ok = erlane_router:send({watched, Node}, 2, [{key, key}]),
        ?assertEqual([{erlane_router, stream, A, I}, 2], taken(Sink, 2)),
        [ok = erpc:call(Node, erlane_router, unwatch, [Names]) || Names <- [[watched], [nobody]]],
        ok = replaced(I, Node),
        ok = erlane_router:send({watched, Node}, 3, [{key, key}]),
        ?assertEqual([3], taken(Sink, 1))
    end).

replaced(I, Node) ->
    Lane = lists:nth(I, lanes(Node)),
    exit(Lane, kill),
    until(fun() -> false = lists:member(Lane, lanes(Node)), ok end).

%% What it had not confirmed is unconfirmed; the lane gets another one.
partner_crash(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:send([Sink, Sink], 1),
        [1, 1] = taken(Sink, 2),
        2 = stats(Node, inflight),
        [exit(P, kill) || P <- erpc:call(Node, fun() ->
            {links, Links} = process_info(whereis(?GATE), links),
            [P || P <- Links, P =/= whereis(erlane_router_sup)] end)],
        until(fun() -> 2 = stats(Node, unconfirmed) end),
        ok = erlane_router:send(Sink, 2),
        ok = erlane_router:sync(Node),
        [2] = take(Sink),
        {1, 0, 2} = {stats(Node, confirmed), stats(Node, dropped), stats(Node, unconfirmed)}
    end).

%% Senders that are killed at any moment leave no charge behind.
sender_killed(Config) ->
    on_a(Config, fun(Node) ->
        Sink = spawn(Node, erlang, apply, [fun Loop() -> receive _ -> Loop() end end, []]),
        ok = erlane_router:sync(Node),
        [begin
             %% Each loses its scheduler at another call of the way into the lane.
             Pids = [spawn(fun() ->
                               erlang:bump_reductions(I * Round),
                               numbers(Sink, 1, 1 bsl 60)
                           end) || I <- lists:seq(1, 8)],
             until(fun() -> ?assert(stats(Node, confirmed) > Before) end),
             [exit(Pid, kill) || Pid <- Pids],
             until(fun() -> [undefined = process_info(Pid, status) || Pid <- Pids] end)
         end || Round <- lists:seq(1, 50), Before <- [stats(Node, confirmed)]],
        until(fun() ->
            ok = erlane_router:sync(Node),
            {0, 0} = {stats(Node, queued), stats(Node, bytes)}
        end)
    end).

%% A lane that is full of the charges of senders that are no more takes entries again, before and
%% after it has a connection; a sender that was only late does no harm.
charges_of_nobody(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        #peer{words = Words, lanes = Lanes} = erlane_router_peers:peer(Node),
        [begin
             [atomics:add(Word, ?WORD, 3 * ?ONE + ?BOUND) || Word <- tuple_to_list(Words)],
             {not_sent, #{Node := nosuspend}} = erlane_router:send(Sink, refused, [nosuspend]),
             ok = erlane_router:send(Sink, Round),
             [Round] = taken(Sink, 1),
             %% The other lanes are not asked by anybody and have nothing to do.
             [ok = erlane_router:send(Sink, other, [{key, Key}]) || Key <- lists:seq(1, 20)],
             [other] = lists:usort(taken(Sink, 20)),
             until(fun() -> {0, 0} = {stats(Node, queued), stats(Node, bytes)} end)
         end || Round <- [1, 2]],
        %% As if the charge had been forgiven.
        [Lane ! {Sink, late, 100} || Lane <- tuple_to_list(Lanes)],
        N = tuple_size(Lanes),
        [late] = lists:usort(taken(Sink, N)),
        until(fun() -> {0, 0} = {stats(Node, queued), stats(Node, bytes)} end),
        ok = erlane_router:send(Sink, last),
        [last] = taken(Sink, 1)
    end).

%% Without a router over there everything is sent plainly; when one starts the lanes are told.
without_router(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        true = erpc:call(Node, erlang, register, [named_sink, Sink]),
        Large = lists:seq(1, 20000),
        [ok = erlane_router:send(Dest, M)
         || Dest <- [Sink, [Sink, {named_sink, Node}], {named_sink, Node}], M <- [1, Large]],
        [1, Large, 1, 1, Large, Large, 1, Large] = taken(Sink, 8),
        {error, #{Node := no_router}} = erlane_router:sync(Node),
        {8, 0, 0} = {stats(Node, plain), stats(Node, batches), stats(Node, queued)},
        {ok, _} = erpc:call(Node, application, ensure_all_started, [erlane_router]),
        until(fun() -> ok = erlane_router:sync(Node) end),
        ok = erlane_router:send(Sink, 2),
        [2] = taken(Sink, 1),
        {8, 1} = {stats(Node, plain), stats(Node, batches)}
    end).

%% A gate of another language refuses.
other_version(Config) ->
    on_a(Config, fun(Node) ->
        Self = self(),
        _ = spawn(Node, fun() ->
            true = register(?GATE, self()),
            Self ! ready,
            (fun Refuse() ->
                 receive
                     {?GATE, hello, _, Lane, _, Ref} ->
                         Lane ! {?GATE, refused, Ref, node(), ?VERSION + 1},
                         Refuse();
                     _ -> Refuse()
                 end
             end)()
        end),
        receive ready -> ok end,
        Sink = sink(Node),
        ok = erlane_router:send(Sink, 1),
        [1] = taken(Sink, 1),
        {error, #{Node := no_router}} = erlane_router:sync(Node),
        plain = maps:get(peer, maps:get({Node, 1}, erlane_router:info()))
    end).

%% Upgrades: the application over there stops and starts under a slow load.
router_stops_and_starts(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:send(Sink, 1),
        ok = erlane_router:sync(Node),
        ok = erpc:call(Node, application, stop, [erlane_router]),
        until(fun() -> {error, #{Node := no_router}} = erlane_router:sync(Node) end),
        ok = erlane_router:send(Sink, 2),
        [1, 2] = taken(Sink, 2),
        ok = erpc:call(Node, application, start, [erlane_router]),
        until(fun() -> ok = erlane_router:sync(Node) end),
        ok = erlane_router:send(Sink, 3),
        [3] = taken(Sink, 1),
        0 = stats(Node, dropped)
    end).

%% The application here stops: senders that wait for room are told, and start anew with it.
stops_under_load(Config) ->
    B = b(Config),
    Sink = on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Sink
    end),
    ok = erlane_router_ct:signal(B, "STOP"),
    on_a(Config, fun(_) ->
        Self = self(),
        Senders = [spawn(fun() ->
                             Self ! {self(), try padded(Sink, 1, 1 bsl 60)
                                             catch error:Why -> Why end}
                         end) || _ <- lists:seq(1, 8)],
        until(fun() -> [{waiting, {erlane_router_room, full, 5}} = doing(S) || S <- Senders] end),
        ok = application:stop(erlane_router),
        [receive {S, Why} -> {not_started, erlane_router} = Why end || S <- Senders]
    end),
    ok = erlane_router_ct:signal(B, "CONT"),
    on_a(Config, fun(Node) ->
        ok = application:start(erlane_router),
        ok = erlane_router:sync(Node, 20000),
        ok = erlane_router:send(Sink, again),
        %% What the lanes before had on its way may come with it: another process over there
        %% passes it on.
        until(fun() -> true = lists:member(again, take(Sink)) end)
    end).

%% Each gets its report until it unsubscribes or ends; twice is once.
subscribers(Config) ->
    on_a(Config, fun(Node) ->
        ok = erlane_router:subscribe(),
        ok = erlane_router:subscribe(),
        Other = erlane_router_ct:reporter(Node),
        ok = erlane_router:sync(Node),
        ok = erlane_router:send({nobody_at_all, Node}, 1),
        ok = erlane_router:sync(Node),
        true = erlang:disconnect_node(Node),
        receive {erlane_router, down, Node, #{dropped := 0, unconfirmed := 0}} -> ok end,
        until(fun() -> {0, _} = erlane_router_ct:reported() end),
        exit(Other, kill),
        ok = erlane_router:unsubscribe(),
        ok = erlane_router:unsubscribe(),
        ok = erlane_router:sync(Node),
        true = erlang:disconnect_node(Node),
        until(fun() -> ok = erlane_router:sync(Node) end),
        receive M -> error({unexpected, M}) after 200 -> ok end
    end).
