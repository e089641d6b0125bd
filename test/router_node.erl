%% SPDX-License-Identifier: Apache-2.0
%% Runs on the nodes of the router's suites: senders, receivers that check what they get, and a
%% collector of the router's reports.
%%
%% A message is {m, Stream, Seq, Dests, Payload}. A stream is one sender's life, Seq grows by one
%% with each of its messages, Dests is where it was sent to. So a receiver can tell by itself that
%% order was kept, nothing came twice, and nothing came that was meant for somebody else, which a
%% process of an earlier incarnation of the node is.
-module(router_node).

-export([start/1, start_app/1, receiver/1, received/1, echo/1]).
-export([sender/1, progress/1, stop/1, finish/2, send/3]).
-export([collector/1, events/0, reports/0, lanes/1, confirmed/1, memory/0]).

-define(APP, erlane_router).

-spec start(map()) -> ok.
start(#{app := false}) -> ok;
start(#{later := true}) -> ok;
start(Options) -> start_app(Options).

-spec start_app(map()) -> ok.
start_app(Options) ->
    _ = application:load(?APP),
    [ok = application:set_env(?APP, K, V) || {K, V} <- maps:get(env, Options, [])],
    case maps:get(via, Options, router) of
        plain ->
            ok;
        router ->
            {ok, _} = application:ensure_all_started(?APP),
            %% The one of an earlier start of the application hears nothing any more.
            _ = whereis(router_collector) =/= undefined andalso unregister(router_collector),
            {Pid, Ref} = spawn_monitor(?MODULE, collector, [self()]),
            ready(Pid, Ref),
            ok
    end.

%% Receivers

%% Registered under a name, or not.
-spec receiver(atom()) -> pid().
receiver(Name) ->
    Self = self(),
    {Pid, Ref} = spawn_monitor(
                   fun() ->
                           _ = [true = register(Name, self()) || Name =/= undefined],
                           Self ! {self(), ready},
                           receive_loop([{Name, node()} | [Name || Name =/= undefined]], #{}, [])
                   end),
    ready(Pid, Ref).

%% Of each stream the number of messages and the last; the first errors.
-spec received(pid()) -> {#{term() => {pos_integer(), pos_integer()}}, [term()]}.
received(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {received, self(), Ref},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, _, Reason} -> error({receiver, Reason})
    end.

receive_loop(Names, Streams, Errors) ->
    receive
        {m, Stream, Seq, Dests, Payload} ->
            {Count, Last} = maps:get(Stream, Streams, {0, 0}),
            Wrong = [{order, Stream, Last, Seq} || Seq =< Last] ++
                [{not_mine, Stream, Seq, Dests} || not mine(Dests, Names)] ++
                [{payload, Stream, Seq} || not whole(Payload, Seq)],
            receive_loop(Names, Streams#{Stream => {Count + 1, Seq}}, keep(Wrong, Errors));
        {alias, From, Ref} ->
            From ! {Ref, alias()},
            receive_loop(Names, Streams, Errors);
        {received, From, Ref} ->
            From ! {Ref, {Streams, Errors}},
            receive_loop(Names, Streams, Errors)
    end.

keep([], Errors) -> Errors;
keep(Wrong, Errors) when length(Errors) < 10 -> Errors ++ Wrong;
keep(_, Errors) -> Errors.

%% An alias cannot be asked whose it is.
mine(Dests, Names) ->
    Self = self(),
    lists:any(fun(D) -> D =:= Self orelse is_reference(D) orelse lists:member(D, Names) end, Dests).

whole(<<>>, _) -> true;
whole(<<First:32, _/binary>>, Seq) -> First =:= Seq;
whole(_, _) -> false.

%% Senders

%% Sends to the targets in turn. A target is a destination or a list of them. Options:
%%   via => router | plain         erlane_router:send/2,3 or `!'
%%   sizes => [bytes]              of the payloads, in turn: 0 or at least 4
%%   limit => N | infinity         of messages
%%   every => N, pause => ms       a rest after each N messages
%%   options => []                 of erlane_router:send/3
-spec sender(map()) -> map().
sender(#{targets := Targets} = Spec) ->
    Nodes = lists:usort([node_of(D) || T <- Targets, D <- as_list(T)]),
    Counts = counters:new(max(1, length(Nodes)), []),
    Stream = {node(), erlang:system_info(creation), make_ref()},
    Full = maps:merge(#{via => router, sizes => [0], limit => infinity, every => 100, pause => 1,
                        options => [], nodes => Nodes, counts => Counts, stream => Stream,
                        told => 1}, Spec),
    Pid = spawn(fun() -> send_loop(1, list_to_tuple(Targets), Full, #{}) end),
    #{pid => Pid, stream => Stream, counts => Counts, nodes => Nodes}.

%% Messages sent so far. Answers even when the sender is held up.
-spec progress(map()) -> non_neg_integer().
progress(#{counts := Counts}) ->
    counters:get(Counts, 1).

%% No more messages; one that is held up ends when it is let go.
-spec stop(map()) -> ok.
stop(#{pid := Pid}) ->
    Pid ! stop,
    ok.

%% What it sent, of each destination, and how many messages for each node. It
%% sends no more; that can be asked again.
-spec finish(map(), timeout()) -> {#{term() => pos_integer()}, #{node() => pos_integer()}} | held.
finish(#{pid := Pid}, Timeout) ->
    Ref = monitor(process, Pid),
    Pid ! {finish, self(), Ref},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, _, Reason} -> error({sender, Reason})
    after Timeout ->
            demonitor(Ref, [flush]),
            held
    end.

send_loop(Seq, Targets, #{limit := Limit} = Spec, Sent) when Seq > Limit ->
    receive
        stop -> send_loop(Seq, Targets, Spec, Sent);
        {finish, From, Ref} ->
            From ! {Ref, finished(Sent)},
            send_loop(Seq, Targets, Spec, Sent)
    end;
send_loop(Seq, Targets, #{every := Every, pause := Pause} = Spec, Sent) ->
    receive
        stop ->
            ended(Seq, Targets, Spec, Sent);
        {finish, From, Ref} ->
            From ! {Ref, finished(Sent)},
            ended(Seq, Targets, Spec, Sent)
    after case Seq rem Every of 0 -> Pause; _ -> 0 end ->
            Target = element(1 + Seq rem tuple_size(Targets), Targets),
            Count = one(Target, Seq, Spec),
            send_loop(Seq + 1, Targets, Spec, counted(Target, Count, Sent))
    end.

%% In a long run there are many of these.
ended(Seq, Targets, Spec, Sent) ->
    true = erlang:garbage_collect(),
    send_loop(Seq, Targets, Spec#{limit := 0}, Sent).

%% Nodes it was not sent to.
one(Target, Seq, #{via := Via, sizes := Sizes, options := Options, stream := Stream,
                   counts := Counts}) ->
    Size = lists:nth(1 + Seq rem length(Sizes), Sizes),
    Payload = [begin S = Size - 4, <<Seq:32, 0:S/unit:8>> end || Size > 0],
    Message = {m, Stream, Seq, as_list(Target), iolist_to_binary(Payload)},
    Not = send(Via, Options, Target, Message),
    ok = counters:add(Counts, 1, 1),
    Not.

send(plain, [], Target, Message) ->
    [D ! Message || D <- as_list(Target)],
    [];
send(router, [], Target, Message) ->
    ok = erlane_router:send(Target, Message),
    [];
send(router, Options, Target, Message) ->
    case erlane_router:send(Target, Message, Options) of
        ok -> [];
        {not_sent, Nodes} -> maps:keys(Nodes)
    end.

counted(Target, Not, Sent) ->
    maps:update_with({Target, Not}, fun(N) -> N + 1 end, 1, Sent).

finished(Sent) ->
    maps:fold(fun({Target, Not}, N, {Dests, Nodes}) ->
                      Went = [D || D <- as_list(Target), not lists:member(node_of(D), Not)],
                      {add(Went, N, Dests), add(lists:usort([node_of(D) || D <- Went]), N, Nodes)}
              end, {#{}, #{}}, Sent).

add(Keys, N, Map) ->
    lists:foldl(fun(K, M) -> maps:update_with(K, fun(Old) -> Old + N end, N, M) end, Map, Keys).

as_list(Target) when is_list(Target) -> Target;
as_list(Target) -> [Target].

node_of({_, Node}) -> Node;
node_of(Name) when is_atom(Name) -> node();
node_of(Dest) -> node(Dest).

%% A send from a process that lives for it alone.
-spec send(term(), term(), [term()]) -> term().
send(Dest, Message, []) -> erlane_router:send(Dest, Message);
send(Dest, Message, Options) -> erlane_router:send(Dest, Message, Options).

%% Reports of the router

-spec collector(pid()) -> no_return().
collector(Parent) ->
    true = register(router_collector, self()),
    ok = erlane_router:subscribe(),
    Parent ! {self(), ready},
    collect([]).

collect(Events) ->
    receive
        {events, From, Ref} ->
            From ! {Ref, lists:reverse(Events)},
            collect(Events);
        Event ->
            collect([Event | Events])
    end.

-spec events() -> [term()].
events() ->
    Ref = make_ref(),
    router_collector ! {events, self(), Ref},
    receive {Ref, Events} -> Events end.

%% Of each node the sums: dropped, unconfirmed.
-spec reports() -> #{node() => {non_neg_integer(), non_neg_integer()}}.
reports() ->
    lists:foldl(fun(Event, Sums) ->
                        {Node, D, U} = case Event of
                                           {?APP, down, N, #{dropped := D0, unconfirmed := U0}} ->
                                               {N, D0, U0};
                                           {?APP, dropped, N, D0} ->
                                               {N, D0, 0}
                                       end,
                        {D1, U1} = maps:get(Node, Sums, {0, 0}),
                        Sums#{Node => {D1 + D, U1 + U}}
                end, #{}, events()).

%% A gen_server in short: answers calls with what it was asked, keeps casts.
-spec echo(atom()) -> pid().
echo(Name) ->
    Self = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
                                       true = register(Name, self()),
                                       Self ! {self(), ready},
                                       echo_loop([])
                               end),
    ready(Pid, Ref).

ready(Pid, Ref) ->
    receive
        {Pid, ready} -> demonitor(Ref, [flush]), Pid;
        {'DOWN', Ref, process, _, Reason} -> error(Reason)
    end.

echo_loop(Casts) ->
    receive
        {'$gen_call', From, casts} ->
            gen_server:reply(From, lists:reverse(Casts)),
            echo_loop(Casts);
        {'$gen_call', _, silence} ->
            echo_loop(Casts);
        {'$gen_call', _, {stop, Reason}} ->
            exit(Reason);
        {'$gen_call', From, Request} ->
            gen_server:reply(From, {node(), Request}),
            echo_loop(Casts);
        {'$gen_cast', Request} ->
            echo_loop([Request | Casts])
    end.

%% Messages for a node of which the router here knows that they came there, or that it gave to
%% the VM because that node has no router.
-spec confirmed(node()) -> non_neg_integer().
confirmed(Node) ->
    lists:sum([Confirmed + Plain || #{confirmed := Confirmed, plain := Plain} <- lanes(Node)]).

%% Bytes this VM has for itself.
-spec memory() -> non_neg_integer().
memory() ->
    erlang:memory(total).

%% The lanes to a node, as erlane_router:info/0 has them.
-spec lanes(node()) -> [map()].
lanes(Node) ->
    [Info || {{N, _}, Info} <- maps:to_list(erlane_router:info()), N =:= Node].
