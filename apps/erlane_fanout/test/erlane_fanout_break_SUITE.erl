%% SPDX-License-Identifier: Apache-2.0
%% What is missing of another node's messages after something between the two has ended, while both
%% go on: a connection, a lane of the router or its partner, an intake, the process that knows the
%% other nodes. Each hole in what a publisher published has a notice in its place.
-module(erlane_fanout_break_SUITE).

-export([all/0, groups/0, init_per_group/2, end_per_group/2, init_per_testcase/2,
         end_per_testcase/2]).
-export([connection/1, quiet/1, stale/1, intake/1, remote/1, lane/1, partner/1, router/1, full/1]).

-include_lib("stdlib/include/assert.hrl").

-import(erlane_router_ct, [on/2, until/1]).

-define(TOPIC, <<"break/1">>).
%% So that each intake and each lane of the router has some.
-define(PUBLISHERS, 64).

all() -> [{group, router}, {group, plain}].

groups() ->
    Cases = [connection, quiet, stale, intake, remote],
    [{router, Cases ++ [lane, partner, router, full]}, {plain, Cases}].

init_per_group(Group, Config) ->
    Paths = [filename:dirname(code:which(M)) || M <- [?MODULE, erlane_fanout, erlane_socket]],
    [A, B] = [begin
                  N = erlane_router_ct:start(#{app => Group =:= router,
                                               env => [{bound, 65536}, {policy, Policy}]}),
                  ok = peer:call(maps:get(peer, N), code, add_paths, [Paths]),
                  on(N, fun() ->
                            {ok, _} = application:ensure_all_started(erlane_fanout),
                            Group =:= plain andalso application:stop(erlane_router)
                        end),
                  N
              end || Policy <- [drop_newest, block]],
    [{a, A}, {b, B} | Config].

end_per_group(_, Config) ->
    [erlane_router_ct:stop(proplists:get_value(N, Config)) || N <- [a, b]],
    ok.

%% Whatever became of the case before.
init_per_testcase(_, Config) ->
    ok = connect(Config),
    Config.

end_per_testcase(_, Config) ->
    at(a, Config, fun() -> ok = sys:resume(erlane_fanout_remote) end),
    at(a, Config, fun() -> [exit(P, kill) || P <- publishers()] end),
    at(b, Config, fun() -> exit(whereis(watcher), kill) end),
    until(fun() -> 0 = at(b, Config, fun() -> erlane_fanout:count(?TOPIC) end) end),
    until(fun() -> [] = at(a, Config, fun others/0) end).

at(Key, Config, Fun) -> on(proplists:get_value(Key, Config), Fun).

name(Key, Config) -> erlane_router_ct:node(proplists:get_value(Key, Config)).

connect(Config) ->
    {A, B} = {name(a, Config), name(b, Config)},
    %% Again and again: it may be the old connection, whose end is not yet known on that side.
    [until(fun() ->
               true = at(a, Config, fun() -> net_kernel:connect_node(B) end),
               [Other] = at(N, Config, fun() -> erlane_fanout_remote:nodes() end)
           end) || {N, Other} <- [{a, B}, {b, A}]],
    ok.

%% The connection ends and is made anew, many times, each side ending it in turn.
connection(Config) ->
    ok = begin_all(Config),
    [begin
         {From, To} = case Round rem 2 of 0 -> {a, b}; 1 -> {b, a} end,
         Other = name(To, Config),
         true = at(From, Config, fun() -> erlang:disconnect_node(Other) end),
         ok = connect(Config),
         ok = goes_on(Config)
     end || Round <- lists:seq(1, 40)],
    ok = stop_all(Config),
    {Holes, Notices} = judged(Config),
    ct:pal("~b holes, ~b notices", [Holes, Notices]),
    %% There may be no hole: all may have been there already, or not yet on its way.
    ?assert(Notices > 0).

%% Who hears nothing more of the other node hears at least that. Nothing was missing before.
quiet(Config) ->
    {A, B} = {name(a, Config), name(b, Config)},
    ok = watch(Config),
    Before = at(b, Config, fun breaks/0),
    ok = at(a, Config, fun() -> erlane_fanout:publish(?TOPIC, {p, 1}) end),
    until(fun() -> [{message, 1, {p, 1}}] = events(Config) end),
    true = at(a, Config, fun() -> erlang:disconnect_node(B) end),
    until(fun() -> [{message, 1, {p, 1}}, {notice, 1, A}] = events(Config) end),
    ok = connect(Config),
    until(fun() -> [_] = at(a, Config, fun others/0) end),
    ok = at(a, Config, fun() -> erlane_fanout:publish(?TOPIC, {p, 2}) end),
    until(fun() -> [_, _, {message, 2, {p, 2}}] = events(Config) end),
    ?assertEqual(Before + 1, at(b, Config, fun breaks/0)).

breaks() -> lists:sum([N || #{breaks := N} <- maps:values(erlane_fanout:info())]).

%% The other node has not yet seen that the connection has ended, and is to publish over the next
%% one as if nothing had been: nothing of that is taken before it knows.
stale(Config) ->
    ok = watch(Config),
    B = name(b, Config),
    Publish = fun(N) -> at(a, Config, fun() -> erlane_fanout:publish(?TOPIC, {p, N}) end) end,
    ok = Publish(1),
    until(fun() -> [{message, 1, {p, 1}}] = events(Config) end),
    at(a, Config, fun() -> ok = sys:suspend(erlane_fanout_remote) end),
    true = at(a, Config, fun() -> erlang:disconnect_node(B) end),
    until(fun() -> [_, {notice, 1, _}] = events(Config) end),
    until(fun() -> true = at(a, Config, fun() -> net_kernel:connect_node(B) end) end),
    ok = Publish(2),
    ok = Publish(3),
    %% Taken or not, they have been there.
    at(a, Config, fun() -> settled(B) end),
    at(b, Config, fun passed/0),
    at(a, Config, fun() -> ok = sys:resume(erlane_fanout_remote) end),
    ok = connect(Config),
    until(fun() ->
              ok = Publish(4),
              [_, {notice, 1, _}, {message, 2, {p, 4}} | _] = events(Config)
          end).

settled(Node) ->
    case whereis(erlane_router_peers) of
        undefined -> erpc:call(Node, erlang, node, []);
        _ -> erlane_router:sync(Node)
    end.

%% What intakes and lanes had is handled.
passed() ->
    until(fun() -> [] = [P || P <- intakes() ++ lanes(), {message_queue_len, N} <-
                                 [process_info(P, message_queue_len)], N > 0] end).

intakes() -> [whereis(Name) || Name <- erlane_fanout_intake:names()].

lanes() -> tuple_to_list(element(2, persistent_term:get({erlane_fanout, lanes}))).

%% What waited in an intake is lost with it, and with those that are started after it. The
%% supervisor bears only a few of these.
intake(Config) ->
    A = name(a, Config),
    ok = begin_all(Config),
    [begin
         at(b, Config, fun() -> kill_loaded([hd(intakes())]) end),
         ok = goes_on(Config)
     end || _ <- [1, 2]],
    ok = stop_all(Config),
    {Holes, _} = judged(Config),
    ?assert(Holes > 0),
    %% It knows the nodes that the one before it knew.
    true = at(b, Config, fun() -> erlang:disconnect_node(A) end),
    {message, Last, _} = lists:last([E || {message, _, _} = E <- events(Config)]),
    until(fun() -> {notice, Last, A} = lists:last(events(Config)) end),
    ok = connect(Config).

%% Each stands still until something waits for it.
kill_loaded(Pids) ->
    [begin
         Ref = monitor(process, P),
         true = erlang:suspend_process(P),
         until(fun() -> {_, N} = process_info(P, message_queue_len), true = N > 10 end),
         exit(P, kill),
         receive {'DOWN', Ref, _, _, _} -> ok end
     end || P <- Pids].

%% The table of other nodes is empty for a moment.
remote(Config) ->
    ok = begin_all(Config),
    [begin
         at(N, Config, fun() ->
             Before = whereis(erlane_fanout_remote),
             exit(Before, kill),
             until(fun() ->
                       New = whereis(erlane_fanout_remote),
                       true = is_pid(New) andalso New =/= Before
                   end)
         end),
         ok = connect(Config),
         ok = goes_on(Config)
     end || N <- [a, b, a, b]],
    ok = stop_all(Config),
    {_, Notices} = judged(Config),
    ?assert(Notices > 0).

%% Lanes of the router, with what they have.
lane(Config) ->
    B = name(b, Config),
    ok = begin_all(Config),
    [begin
         at(a, Config, fun() -> kill_loaded(erlane_router_ct:lanes(B)) end),
         ok = goes_on(Config)
     end || _ <- [1, 2, 3]],
    ok = stop_all(Config),
    {Holes, _} = judged(Config),
    ?assert(Holes > 0).

partner(Config) ->
    ok = begin_all(Config),
    [begin
         at(b, Config, fun() -> kill_loaded(partners()) end),
         ok = goes_on(Config)
     end || _ <- [1, 2, 3]],
    ok = stop_all(Config),
    {Holes, _} = judged(Config),
    ?assert(Holes > 0).

partners() ->
    {links, Links} = process_info(whereis(erlane_router_gate), links),
    [P || P <- Links, process_info(P, message_queue_data) =:= {message_queue_data, off_heap}].

%% Nothing is published behind what was lost, and yet it is told.
router(Config) ->
    {A, B} = {name(a, Config), name(b, Config)},
    ok = watch(Config),
    ok = at(a, Config, fun() -> erlane_fanout:publish(?TOPIC, {p, 1}) end),
    until(fun() -> [{message, 1, {p, 1}}] = events(Config) end),
    at(a, Config, fun() ->
        Lanes = erlane_router_ct:lanes(B),
        [true = erlang:suspend_process(P) || P <- Lanes],
        ok = erlane_fanout:publish(?TOPIC, {p, 2}),
        [exit(P, kill) || P <- Lanes]
    end),
    until(fun() -> [{message, 1, {p, 1}}, {notice, 1, A} | _] = events(Config) end).

%% A lane of the router that is full takes no more, with this policy.
full(Config) ->
    {A, B} = {name(a, Config), name(b, Config)},
    ok = watch(Config),
    ok = at(a, Config, fun() -> erlane_fanout:publish(?TOPIC, {p, 1}) end),
    until(fun() -> [{message, 1, {p, 1}}] = events(Config) end),
    at(a, Config, fun() ->
        Lanes = erlane_router_ct:lanes(B),
        [true = erlang:suspend_process(P) || P <- Lanes],
        [ok = erlane_fanout:publish(?TOPIC, {p, N, <<0:80000>>}) || N <- lists:seq(2, 20)],
        [true = erlang:resume_process(P) || P <- Lanes]
    end),
    until(fun() -> true = lists:member(A, [N || {notice, _, N} <- events(Config)]) end),
    ?assert(length([M || {message, _, _} = M <- events(Config)]) < 20).

%% Small things

watch(Config) ->
    at(b, Config, fun() ->
        Self = self(),
        Pid = spawn(fun() ->
                        true = register(watcher, self()),
                        {ok, Sub, 0} = erlane_fanout:subscribe(?TOPIC, #{limit => infinity}),
                        Self ! {self(), ready},
                        watching(Sub, [], #{})
                    end),
        receive {Pid, ready} -> ok end
    end),
    until(fun() -> [_] = at(a, Config, fun others/0) end),
    ok.

%% All that came, the last first, and the last number of each publisher.
watching(Sub, Seen, Last) ->
    receive
        {fan, Sub, Seq, Messages} ->
            First = Seq - length(Messages) + 1,
            New = [{message, N, M} || {N, M} <- lists:zip(lists:seq(First, Seq), Messages)],
            Now = maps:from_list([{element(1, M), element(2, M)} || M <- Messages]),
            watching(Sub, lists:reverse(New, Seen), maps:merge(Last, Now));
        %% Of the case before.
        {gap, Sub, {node, _, 0}} -> watching(Sub, Seen, Last);
        {gap, Sub, {node, Node, After}} -> watching(Sub, [{notice, After, Node} | Seen], Last);
        {events, From, Ref} -> From ! {Ref, lists:reverse(Seen)}, watching(Sub, Seen, Last);
        {last, From, Ref} -> From ! {Ref, Last}, watching(Sub, Seen, Last)
    end.

events(Config) -> at(b, Config, fun() -> ask(watcher, events) end).

ask(To, What) ->
    Ref = make_ref(),
    To ! {What, self(), Ref},
    receive {Ref, Answer} -> Answer after 10000 -> error({no_answer, To, What}) end.

%% Whom publishers know to have subscriptions.
others() ->
    Wild = element(5, persistent_term:get({erlane_fanout, lanes})),
    [N || R <- erlane_fanout_match:routes(?TOPIC, Wild), N <- element(4, R)].

begin_all(Config) ->
    ok = watch(Config),
    at(a, Config, fun() ->
        [spawn(fun() ->
             true = register(list_to_atom("publisher_" ++ integer_to_list(I)), self()),
             publishing(I, 1)
         end) || I <- lists:seq(1, ?PUBLISHERS)]
    end),
    ok = goes_on(Config),
    [] = [Notice || {notice, _, _} = Notice <- events(Config)],
    ok.

publishing(I, N) ->
    ok = erlane_fanout:publish(?TOPIC, {I, N}),
    receive
        {last, From, Ref} -> From ! {Ref, {I, N}}, publishing(I, N + 1);
        {stop, From, Ref} -> From ! {Ref, {I, N}}
    after 20 -> publishing(I, N + 1)
    end.

publishers() ->
    [P || I <- lists:seq(1, ?PUBLISHERS),
          P <- [whereis(list_to_atom("publisher_" ++ integer_to_list(I)))], is_pid(P)].

%% What each publishes from now on arrives.
goes_on(Config) ->
    Last = at(a, Config, fun() -> [ask(P, last) || P <- publishers()] end),
    ?assertEqual(?PUBLISHERS, length(Last)),
    until(fun() ->
              Had = at(b, Config, fun() -> ask(watcher, last) end),
              [] = [I || {I, N} <- Last, maps:get(I, Had, 0) =< N],
              ok
          end).

%% The last messages have arrived, as nothing was broken since.
stop_all(Config) ->
    Last = at(a, Config, fun() -> [ask(P, stop) || P <- publishers()] end),
    until(fun() ->
              Had = at(b, Config, fun() -> ask(watcher, last) end),
              ?assertEqual(lists:sort(Last), lists:sort(maps:to_list(Had)))
          end).

%% How many holes, and how many notices there were.
judged(Config) ->
    A = name(a, Config),
    Events = events(Config),
    Seqs = [Seq || {message, Seq, _} <- Events],
    ?assertEqual(lists:seq(1, length(Seqs)), Seqs),
    After = [N || {notice, N, Node} <- Events, Node =:= A],
    ?assertEqual(length(After), length([N || {notice, N, _} <- Events])),
    Holes = [Hole || I <- lists:seq(1, ?PUBLISHERS),
                     Hole <- holes([{Seq, N} || {message, Seq, {P, N}} <- Events, P =:= I])],
    ?assertEqual([], [{From, To} || {From, To} <- Holes,
                                    not lists:any(fun(N) -> N >= From andalso N < To end, After)]),
    {length(Holes), length(After)}.

%% Between which numbers of the subscription.
holes([{From, N}, {To, M} = Next | Rest]) ->
    ?assert(M > N),
    [{From, To} || M > N + 1] ++ holes([Next | Rest]);
holes(_) -> [].
