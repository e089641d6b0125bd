%% SPDX-License-Identifier: Apache-2.0
%% Two nodes with routers, and what they promise while they are connected.
-module(erlane_router_SUITE).

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([prop_up/1, many_senders/1, lone_message/1, lone_list/1,
         flush_causes/1, flush_age/1, one_copy/1,
         names_aliases_and_dead/1, key_option/1, noconnect_option/1, priority_option/1,
         sync_answers/1, calls/1, call_exits/1, multicalls/1, terms/1, bad_destinations/1,
         forged_frames/1, forged_hellos/1, unknown_node/1, not_alive/1,
         metrics/1, idle/1]).

-include_lib("stdlib/include/assert.hrl").
-include("erlane_router.hrl").

-import(erlane_router_ct, [on/2, until/1, sink/1, take/1, taken/2, stats/2, flushes/2,
                          lanes/1]).

all() ->
    [prop_up, many_senders, lone_message, lone_list, flush_causes, flush_age, one_copy,
     names_aliases_and_dead, key_option, noconnect_option, priority_option, sync_answers, calls,
     call_exits, multicalls, terms, bad_destinations, forged_frames, forged_hellos, unknown_node,
     not_alive, metrics, idle].

init_per_suite(Config) ->
    A = erlane_router_ct:start(),
    B = erlane_router_ct:start(),
    [{a, A}, {b, B}, {node, erlane_router_ct:node(B)} | Config].

end_per_suite(Config) ->
    [erlane_router_ct:stop(proplists:get_value(N, Config)) || N <- [a, b]],
    ok.

on_a(Config, Fun) ->
    Node = proplists:get_value(node, Config),
    on(proplists:get_value(a, Config), fun() -> Fun(Node) end).

%% Any mixture of sends: in order, once, and there after a sync.
prop_up(Config) ->
    on_a(Config, fun(Node) ->
        Sinks = [sink(Node) || _ <- lists:seq(1, 4)],
        true = proper:quickcheck(prop_erlane_router:prop_up(Node, Sinks),
                                 [{numtests, 60}, {max_size, 30}, quiet])
    end).

%% Each of many senders has its own order at each of many receivers, whatever the others do.
many_senders(Config) ->
    on_a(Config, fun(Node) ->
        Sinks = [sink(Node) || _ <- lists:seq(1, 5)],
        Each = 3000,
        Send = fun(S) ->
                   [begin
                        ok = erlane_router:send(lists:nth(1 + (I rem 5), Sinks), {S, I}),
                        case I rem 100 of
                            0 -> ok = erlane_router:send(Sinks, {S, I + 0.5});
                            50 -> ok = erlane_router:send(hd(Sinks),
                                                          {S, I + 0.25, lists:seq(1, 20000)});
                            _ -> ok
                        end
                    end || I <- lists:seq(1, Each)],
                   ok = erlane_router:sync(Node, 30000)
               end,
        Done = [spawn_monitor(fun() -> Send(S) end) || S <- lists:seq(1, 20)],
        [receive {'DOWN', Ref, process, _, Why} -> normal = Why end || {_, Ref} <- Done],
        Got = [take(Sink) || Sink <- Sinks],
        ?assertEqual(20 * (Each + 5 * (Each div 100) + Each div 100), length(lists:append(Got))),
        [begin
             Is = [element(2, M) || M <- At, element(1, M) =:= S],
             ?assertEqual(lists:usort(Is), Is)
         end || At <- Got, S <- lists:seq(1, 20)]
    end).

%% Without company a message does not wait for any: neither for a timer nor for the age.
lone_message(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Before = {stats(Node, batches), flushes(Node, idle)},
        [begin
             T = erlang:monotonic_time(microsecond),
             ok = erlane_router:send(Sink, I),
             [I] = taken(Sink, 1),
             %% It would be the age, 1 ms, and more.
             T
         end || I <- lists:seq(1, 50)],
        Now = {stats(Node, batches), flushes(Node, idle)},
        ?assertEqual({element(1, Before) + 50, element(2, Before) + 50}, Now),
        %% No lane has a timer or anything else to do.
        [?assertMatch([{status, waiting}, {message_queue_len, 0}],
                      process_info(L, [status, message_queue_len])) || L <- lanes(Node)]
    end).

%% With the longest age a configuration can have, it is there long before that.
lone_list(_) ->
    A = erlane_router_ct:start(#{env => [{max_age, 1000}]}),
    B = erlane_router_ct:start(),
    Node = erlane_router_ct:node(B),
    try
        on(A, fun() ->
            Sinks = [sink(Node) || _ <- lists:seq(1, 3)],
            ok = erlane_router:sync(Node),
            Times = [begin
                         T = erlang:monotonic_time(millisecond),
                         ok = erlane_router:send(Sinks, I),
                         [[I] = taken(Sink, 1) || Sink <- Sinks],
                         erlang:monotonic_time(millisecond) - T
                     end || I <- lists:seq(1, 20)],
            ?assert(lists:min(Times) < 500)
        end)
    after
        [erlane_router_ct:stop(N) || N <- [A, B]]
    end.

%% A lane that was stopped finds what it would find when it is behind.
flush_causes(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Causes = [messages, bytes, idle, large],
        Flush = fun(Messages) ->
                    Before = [flushes(Node, C) || C <- Causes],
                    [true = erlang:suspend_process(L) || L <- lanes(Node)],
                    [ok = erlane_router:send(Sink, M) || M <- Messages],
                    [true = erlang:resume_process(L) || L <- lanes(Node)],
                    ?assertEqual(Messages, taken(Sink, length(Messages))),
                    ok = erlane_router:sync(Node),
                    [{C, flushes(Node, C) - B} || {C, B} <- lists:zip(Causes, Before),
                                                flushes(Node, C) > B]
                end,
        [{messages, 2} | _] = Flush(lists:seq(1, 2500)),
        [{messages, 1}] = Flush(lists:seq(1, 1000)),
        Bin = binary:copy(<<1>>, 6000),
        [{bytes, 2} | _] = Flush([Bin || _ <- lists:seq(1, 21)]),
        [{idle, 1}] = Flush([one]),
        [{large, 2}] = Flush([lists:seq(1, 20000), binary:copy(<<2>>, 20000)]),
        %% What was before a large one leaves before it.
        [{idle, 1}, {large, 1}] = Flush([small, binary:copy(<<2>>, 20000)]),
        Synced = flushes(Node, sync),
        [true = erlang:suspend_process(L) || L <- lanes(Node)],
        ok = erlane_router:send(Sink, before_sync),
        Self = self(),
        Pid = spawn_link(fun() -> Self ! {self(), erlane_router:sync(Node)} end),
        until(fun() -> [?assertMatch({_, N} when N > 0, process_info(L, message_queue_len))
                        || L <- lanes(Node)] end),
        [true = erlang:resume_process(L) || L <- lanes(Node)],
        receive {Pid, ok} -> ok end,
        [before_sync] = take(Sink),
        ?assertEqual(Synced + 1, flushes(Node, sync))
    end).

%% A batch that goes on growing leaves when it is old.
flush_age(_) ->
    A = erlane_router_ct:start(#{env => [{max_age, 0}, {lanes, 1}]}),
    B = erlane_router_ct:start(),
    Node = erlane_router_ct:node(B),
    try
        on(A, fun() ->
            Sink = sink(Node),
            ok = erlane_router:sync(Node),
            Pids = [spawn_link(fun() -> forever(Sink) end) || _ <- lists:seq(1, 20)],
            until(fun() -> ?assert(flushes(Node, age) > 0) end),
            [begin unlink(Pid), exit(Pid, kill) end || Pid <- Pids]
        end)
    after
        [erlane_router_ct:stop(N) || N <- [A, B]]
    end.

forever(Sink) ->
    [ok = erlane_router:send(Sink, x) || _ <- lists:seq(1, 10)],
    erlang:yield(),
    forever(Sink).

%% However many receivers a node has, the payload goes over once: in bytes, and in frames.
one_copy(Config) ->
    on_a(Config, fun(Node) ->
        Sinks = [sink(Node) || _ <- lists:seq(1, 200)],
        [begin
             ok = erlane_router:sync(Node),
             {Bytes, Batches} = {sent(Node), stats(Node, batches)},
             ok = erlane_router:send(Sinks, Payload),
             [[Payload] = taken(Sink, 1) || Sink <- Sinks],
             ?assertEqual(Batches + 1, stats(Node, batches)),
             %% 200 requests for what they got are in it, too.
             ?assert(sent(Node) - Bytes < byte_size(term_to_binary(Payload)) + 200 * 400)
         end || Payload <- [binary:copy(<<3>>, 15000), binary:copy(<<3>>, 1000000),
                            lists:duplicate(200000, $x), lists:seq(1, 100000)]],
        [exit(Sink, kill) || Sink <- Sinks]
    end).

sent(Node) ->
    {Node, Port} = lists:keyfind(Node, 1, erlang:system_info(dist_ctrl)),
    {ok, [{send_oct, N}]} = inet:getstat(Port, [send_oct]),
    N.

names_aliases_and_dead(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        true = erpc:call(Node, erlang, register, [named_sink, Sink]),
        Dead = sink(Node),
        exit(Dead, kill),
        ok = erlane_router:send({named_sink, Node}, 1),
        ok = erlane_router:send(Dead, 2),
        ok = erlane_router:send({nobody_at_all, Node}, 3),
        ok = erlane_router:send([Dead, Sink, {named_sink, Node}, {nobody_at_all, Node}, Sink], 4),
        {Holder, Alias} = erpc:call(Node, fun alias_of_a_sink/0),
        ok = erlane_router:send(Alias, 5),
        ok = erlane_router:send([Alias, Sink], 6),
        ok = erlane_router:send(Alias, lists:seq(1, 20000)),
        ok = erlane_router:sync(Node),
        [1, 4, 4, 4, 6] = take(Sink),
        [5, 6, [1, 2 | _]] = take(Holder),
        exit(Sink, kill)
    end).

alias_of_a_sink() ->
    Self = self(),
    Pid = spawn(fun() ->
                    Self ! {self(), alias()},
                    Sink = erlane_router_ct:sink(),
                    (fun Pass() -> receive M -> Sink ! M, Pass() end end)()
                end),
    receive {Pid, Alias} -> {Pid, Alias} end.

%% A key has one lane, whoever sends.
key_option(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Used = fun() -> [maps:get(batches, L) || {{At, _}, L} <- lists:sort(
                             maps:to_list(erlane_router:info())), At =:= Node] end,
        Before = Used(),
        [begin
             Pid = spawn_link(fun() -> ok = erlane_router:send(Sink, I, [{key, topic}]) end),
             Ref = monitor(process, Pid),
             receive {'DOWN', Ref, process, _, _} -> ok end
         end || I <- lists:seq(1, 40)],
        ok = erlane_router:sync(Node),
        ?assertEqual(lists:seq(1, 40), take(Sink)),
        ?assertMatch([_], [N - B || {N, B} <- lists:zip(Used(), Before), N > B])
    end).

noconnect_option(Config) ->
    C = erlane_router_ct:start(),
    Third = erlane_router_ct:node(C),
    try
        on_a(Config, fun(Node) ->
            Sink = sink(Node),
            {not_sent, #{Third := noconnect} = Not} =
                erlane_router:send([{nobody, Third}, Sink], 1, [noconnect]),
            1 = map_size(Not),
            false = lists:member(Third, nodes(connected)),
            true = net_kernel:connect_node(Third),
            ok = erlane_router:send([{nobody, Third}, Sink], 2, [noconnect]),
            ok = erlane_router:sync([Node, Third]),
            [1, 2] = take(Sink)
        end)
    after
        erlane_router_ct:stop(C)
    end.

%% A plain send.
priority_option(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        Before = stats(Node, batches),
        ok = erlane_router:send(Sink, urgent, [priority]),
        ok = erlane_router:send([Sink, {nobody_at_all, Node}], urgent, [priority, nosuspend]),
        ok = erlane_router:send(self(), here, [priority]),
        [urgent, urgent] = taken(Sink, 2),
        here = receive M -> M end,
        ?assertEqual(Before, stats(Node, batches))
    end).

sync_answers(Config) ->
    C = erlane_router_ct:start(#{app => false}),
    Third = erlane_router_ct:node(C),
    try
        on_a(Config, fun(Node) ->
            ok = erlane_router:sync(Node),
            ok = erlane_router:sync([Node, Node, node()], infinity),
            {error, #{Third := no_router} = Why} = erlane_router:sync([Node, Third]),
            1 = map_size(Why),
            {error, #{'nobody@127.0.0.1' := nodedown}} = erlane_router:sync(['nobody@127.0.0.1']),
            [true = erlang:suspend_process(L) || L <- lanes(Node)],
            {error, #{Node := timeout}} = erlane_router:sync(Node, 20),
            [true = erlang:resume_process(L) || L <- lanes(Node)],
            ok = erlane_router:sync(Node),
            %% The late answers of the one that gave up are nobody's.
            receive M -> error({unexpected, M}) after 0 -> ok end
        end)
    after
        erlane_router_ct:stop(C)
    end.

calls(Config) ->
    on_a(Config, fun(Node) ->
        Remote = erpc:call(Node, fun() -> {ok, Pid} = gen_event:start(), Pid end),
        [?assertEqual(gen_server:call(Dest, R), erlane_router:call(Dest, R))
         || Dest <- [{net_kernel, Node}, net_kernel], R <- [longnames]],
        ok = erlane_router:call({application_controller, Node},
                                {set_env, erlane_router, routed, yes, []}),
        {ok, yes} = erpc:call(Node, application, get_env, [erlane_router, routed]),
        ok = erpc:call(Node, application, unset_env, [erlane_router, routed]),
        ok = erlane_router:cast([{net_kernel, Node}, net_kernel], ignored),
        exit(Remote, kill)
    end).

%% With the reasons of gen_server:call.
call_exits(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        Why = fun(Dest) ->
                  Reason = fun(F) -> try F() catch exit:{R, _} -> R end end,
                  Stock = Reason(fun() -> gen_server:call(Dest, x, 50) end),
                  ?assertEqual(Stock, Reason(fun() -> erlane_router:call(Dest, x, 50) end)),
                  Stock
              end,
        timeout = Why(Sink),
        noproc = Why({nobody_at_all, Node}),
        noproc = Why(nobody_at_all),
        {nodedown, 'nobody@127.0.0.1'} = Why({x, 'nobody@127.0.0.1'}),
        ?assertError(badarg, erlane_router:call(make_ref(), x)),
        exit(Sink, kill),
        noproc = Why(Sink)
    end).

multicalls(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        Dests = [{net_kernel, Node}, Sink, net_kernel, {nobody_at_all, Node},
                 {x, 'nobody@127.0.0.1'}],
        {[{{net_kernel, Node}, Mode}, {net_kernel, Mode}],
         [{Sink, timeout}, {{nobody_at_all, Node}, noproc},
          {{x, 'nobody@127.0.0.1'}, {nodedown, 'nobody@127.0.0.1'}}]} =
            erlane_router:multicall(Dests, longnames, 300),
        {[], []} = erlane_router:multicall([], longnames, 300),
        ?assertError(badarg, erlane_router:multicall([net_kernel | x], longnames, 300)),
        ?assertError(badarg, erlane_router:multicall([make_ref()], longnames, 300)),
        exit(Sink, kill)
    end).

%% Terms that are not only bytes.
terms(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        N = 5,
        Terms = [fun(X) -> X + N end, fun lists:map/2, make_ref(), self(), Sink,
                 hd(erlang:ports()), #{a => <<1:3>>}, 1 bsl 200, -0.0, [a | b], <<>>, "", {},
                 'an atom'],
        Large = {Terms, lists:seq(1, 20000)},
        [ok = erlane_router:send(Sink, T) || T <- Terms ++ [Large]],
        ok = erlane_router:sync(Node),
        ?assertEqual(Terms ++ [Large], take(Sink))
    end).

%% Badarg, and then nothing at all is sent.
bad_destinations(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        Queued = stats(Node, batches),
        [?assertError(badarg, erlane_router:send(Bad, x))
         || Bad <- [[Sink | Sink], [Sink, 7], [Sink, [Sink]], 7, <<>>, {Sink, Node}, "name",
                    [Sink, {n, Node, x}], {n, "node"}]],
        ?assertError(badarg, erlane_router:send(Sink, x, [now])),
        %% Duplicates in a long list are what the list says.
        ok = erlane_router:send(lists:duplicate(20000, Sink), y),
        ok = erlane_router:sync(Node),
        ?assertEqual(lists:duplicate(20000, y), take(Sink)),
        ?assertEqual(Queued + 1, stats(Node, batches))
    end).

%% What is no frame of a lane is counted, and the partner goes on.
forged_frames(Config) ->
    on_a(Config, fun(Node) ->
        Sink = sink(Node),
        ok = erlane_router:sync(Node),
        Partners = partners(Node),
        4 = length(Partners),
        Junk = [x, {}, {erlane_router_frame, ?VERSION, 1, 1}, {?MODULE, 1, 1, 1, []},
                {erlane_router_frame, ?VERSION + 1, 1, 9, [{Sink, old, 9}]},
                {erlane_router_frame, ?VERSION - 1, 1, 9, [{Sink, new, 9}]},
                {erlane_router_frame, ?VERSION, -1, 9, []},
                {erlane_router_frame, ?VERSION, x, 9, []},
                {erlane_router_frame, ?VERSION, 0, 9, [{Sink, ok, 9} | oops]},
                {erlane_router_frame, ?VERSION, 0, 9, not_a_list},
                {erlane_router_frame, ?VERSION, 0, 9, [{many, [Sink | x], ok, 9, 2}]},
                {erlane_router_frame, ?VERSION, 0, 9, [{large, Sink, <<131, 104>>, 9, 1}]},
                {erlane_router_frame, ?VERSION, 0, 9, [junk, {Sink, ok, 9}]},
                {'EXIT', self(), x}, {'DOWN', make_ref(), process, self(), x}],
        Before = malformed(Node),
        [Partner ! J || Partner <- Partners, J <- Junk],
        [ok = erlane_router:send(Sink, good, [{key, K}]) || K <- lists:seq(1, 20)],
        ok = erlane_router:sync(Node),
        ?assertEqual(Partners, partners(Node)),
        ?assertEqual(length(Junk) * 4, malformed(Node) - Before),
        Got = take(Sink),
        ?assertEqual([good, ok], lists:usort(Got)),
        ?assertEqual({20, 12}, {length([G || G = good <- Got]), length([G || G = ok <- Got])}),
        %% A count that is not the lane's tells it nothing.
        hd(Partners) ! {erlane_router_frame, ?VERSION, 1000000, 9, []},
        ok = erlane_router:send([Sink, Sink], x),
        [x, x] = taken(Sink, 2),
        [L ! J || L <- lanes(Node),
                  J <- [{?GATE, confirmed, self(), 5}, {?GATE, confirmed, hd(Partners), x},
                        {?GATE, welcome, make_ref(), self(), ?VERSION},
                        {?GATE, refused, make_ref(), Node, 7}, gate_up, x,
                        {nodedown, Node}, {'DOWN', make_ref(), process, self(), x}]],
        ok = erlane_router:send(Sink, z),
        [z] = taken(Sink, 1)
    end).

partners(Node) ->
    erpc:call(Node, fun() ->
        {links, Links} = process_info(whereis(?GATE), links),
        lists:sort([P || P <- Links, is_pid(P),
                         {current_function, {erlane_router_partner, loop, 1}}
                             <- [process_info(P, current_function)]])
    end).

malformed(Node) -> erpc:call(Node, erlane_router_gate, malformed, []).

%% The gate answers other versions, counts the rest, and never ends.
forged_hellos(Config) ->
    on_a(Config, fun(Node) ->
        Gate = erpc:call(Node, erlang, whereis, [?GATE]),
        Ref = make_ref(),
        Junk = [x, {?GATE, hello, ?VERSION, self(), 0, Ref},
                {?GATE, hello, ?VERSION, self(), 65, Ref},
                {?GATE, hello, ?VERSION, self(), a, Ref}, {?GATE, hello, ?VERSION, Gate, 1, Ref},
                {?GATE, hello, ?VERSION, x, 1, Ref}, {?GATE, hello, 2, x, 1, Ref},
                {?GATE, hello, ?VERSION, self(), 1, x}, {?GATE, hello, ?VERSION, self(), 1},
                {?GATE, announce, 1, "n"}, {'$gen_cast', x},
                {'$gen_call', {self(), ref}, x}, {'$gen_call', nobody, x}],
        Before = malformed(Node),
        [Gate ! J || J <- Junk],
        Gate ! {'EXIT', self(), x},
        [begin
             Gate ! {?GATE, hello, V, self(), 1, Ref},
             receive {?GATE, refused, Ref, Node, ?VERSION} -> ok end
         end || V <- [?VERSION + 1, ?VERSION - 1, x, {}]],
        ?assertEqual(length(Junk), malformed(Node) - Before),
        ?assertEqual(Gate, erpc:call(Node, erlang, whereis, [?GATE])),
        %% A process that says hello gets partners, and the one before ends.
        [begin
             Gate ! {?GATE, hello, ?VERSION, self(), 64, Ref},
             receive {?GATE, welcome, Ref, P, ?VERSION} -> true = is_pid(P) end
         end || _ <- lists:seq(1, 20)],
        until(fun() -> ?assertEqual(5, length(partners(Node))) end)
    end).

%% As with a plain send nothing happens, but it is counted and told.
unknown_node(Config) ->
    on_a(Config, fun(_) ->
        ok = erlane_router:subscribe(),
        [begin
             ok = erlane_router:send({n, Node}, x),
             ok = erlane_router:send([{n, Node}, {m, Node}], x),
             3 = reported(Node, 3),
             3 = stats(Node, dropped),
             0 = stats(Node, queued)
         end || Node <- ['unknown@127.0.0.1', nobody, '', 'a@b@c']],
        ok = erlane_router:unsubscribe()
    end).

%% In one report or more.
reported(_, N) when N =< 0 ->
    0;
reported(Node, N) ->
    receive
        {erlane_router, down, Node, #{dropped := M, unconfirmed := 0}} -> M + reported(Node, N - M)
    end.

%% A node without distribution has no other nodes.
not_alive(_) ->
    {ok, _} = application:ensure_all_started(erlane_router),
    ok = erlane_router:send({n, 'nobody@127.0.0.1'}, x),
    {error, #{'nobody@127.0.0.1' := nodedown}} = erlane_router:sync('nobody@127.0.0.1'),
    ok = erlane_router:send(self(), here),
    here = receive M -> M end,
    ok = application:stop(erlane_router).

metrics(Config) ->
    on_a(Config, fun(Node) ->
        {ok, _} = application:ensure_all_started(erlane_metrics),
        ok = erlane_router_metrics:register(),
        ok = erlane_router_metrics:register(),
        ok = erlane_router:sync(Node),
        Page = until(fun() ->
            P = iolist_to_binary(erlane_router_ct:page()),
            {_, _} = binary:match(P, <<"erlane_router_confirmed_messages_total{peer=\"",
                                       (atom_to_binary(Node))/binary, "\",lane=\"1\"}">>),
            P
        end),
        [?assertNotEqual(nomatch, binary:match(Page, Name))
         || Name <- [<<"erlane_router_queued_bytes{">>, <<"cause=\"idle\"">>,
                     <<"erlane_router_malformed_total">>]],
        ok = erlane_router_metrics:unregister()
    end).

%% Nothing sent, nothing done: no process of the router runs, on either side.
idle(Config) ->
    [A, B] = [proplists:get_value(N, Config) || N <- [a, b]],
    on_a(Config, fun(Node) -> ok = erlane_router:sync(Node) end),
    Pids = [on(N, fun erlane_router_ct:processes/0) || N <- [A, B]],
    Work = fun() -> [on(N, fun() -> erlane_router_ct:reductions(P) end)
                     || {N, P} <- lists:zip([A, B], Pids)] end,
    %% Until reports and collectors that other cases left have come to rest.
    until(fun() ->
        Before = Work(),
        receive after 500 -> ok end,
        ?assertEqual(Before, Work())
    end).
