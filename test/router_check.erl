%% SPDX-License-Identifier: Apache-2.0
%% Streams of messages from one node to another, and what has to hold of them: order, nothing
%% twice, nothing to the wrong process (the receivers look at that), and the balance
%%
%%     sent - dropped - unconfirmed =< received =< sent - dropped
%%
%% of each pair of nodes. Only the router reports; of plain sends the rest is checked.
-module(router_check).

-export([stream/3, again/2, receivers/1, id/1]).
-export([stop/1, progress/1, moving/2, moving_on/1, sent/2, finish/1, quiet/1]).
-export([arrived/2, received_count/1, errors/1, reported/2, disconnected/2, synced/2, balanced/1]).

-define(SYNC_MS, 15000).
-define(WAIT_MS, 30000).
-define(REPORT_MS, 5000).

%% A sender on From to one receiver on To. Options are those of router_node:sender/1, and
%%   receivers => [pid() | {Name, pid()}]   instead of a new one; sent to in turn
%%   name => atom()                         a new one of that name, sent to by its name
-spec stream(map(), map(), map()) -> map().
stream(From, To, Options) ->
    Receivers = case Options of
                    #{receivers := Old} ->
                        Old;
                    #{name := Name} ->
                        [{Name, router_nodes:call(To, router_node, receiver, [Name])}];
                    #{} ->
                        [router_nodes:call(To, router_node, receiver, [undefined])]
                end,
    Targets = [case R of {Name1, _} -> {Name1, router_nodes:node(To)}; Pid -> Pid end
               || R <- Receivers],
    Via = maps:get(via, maps:get(options, From), router),
    Spec = maps:merge(#{via => Via, targets => Targets}, maps:without([receivers, name], Options)),
    Sender = router_nodes:call(From, router_node, sender, [Spec]),
    #{from => From, to => To, via => Via, sender => Sender, receivers => Receivers}.

%% Another sender to the receivers of a stream.
-spec again(map(), map()) -> map().
again(#{from := From, to := To, receivers := Receivers}, Options) ->
    stream(From, To, Options#{receivers => Receivers}).

%% No more messages.
-spec stop(map()) -> ok.
stop(#{from := From, sender := Sender}) ->
    ok = router_nodes:call(From, router_node, stop, [Sender]).

%% Messages sent so far.
-spec progress(map()) -> non_neg_integer().
progress(#{from := From, sender := Sender}) ->
    router_nodes:call(From, router_node, progress, [Sender]).

%% Waits until the sender got so far; how far it is.
-spec moving(map(), non_neg_integer()) -> non_neg_integer().
moving(Stream, Count) ->
    router_nodes:until(fun() ->
                               N = progress(Stream),
                               true = N >= Count,
                               N
                       end, ?WAIT_MS).

%% Waits until the sender sends and its receivers receive.
-spec moving_on(map()) -> ok.
moving_on(Stream) ->
    _ = moving(Stream, progress(Stream) + 100),
    Received = received_count(Stream),
    router_nodes:until(fun() -> true = received_count(Stream) > Received end, ?WAIT_MS),
    ok.

-spec sent(map(), non_neg_integer()) -> ok.
sent(Stream, Count) ->
    _ = moving(Stream, Count),
    ok.

%% Stops the sender, waits until no send of it is held up; how many messages it sent.
-spec finish(map()) -> non_neg_integer().
finish(#{from := From, to := To, sender := Sender} = Stream) ->
    ok = stop(Stream),
    case router_nodes:call(From, router_node, finish, [Sender, ?WAIT_MS], 2 * ?WAIT_MS) of
        {_, Nodes} -> maps:get(router_nodes:node(To), Nodes, 0);
        held -> error({sender_held_up, progress(Stream)})
    end.

%% Waits until all messages are there, and checks them.
-spec arrived(map(), non_neg_integer()) -> ok.
arrived(Stream, Count) ->
    try router_nodes:until(fun() -> Count = received_count(Stream) end, ?WAIT_MS)
    catch error:_ -> error({arrived, received_count(Stream), instead_of, Count})
    end,
    [] = errors(Stream),
    ok.

%% Of this stream alone, also where others use the same receivers.
-spec received_count(map()) -> non_neg_integer().
received_count(#{receivers := Receivers} = Stream) ->
    lists:sum([case received(Stream, R) of
                   {#{} = Streams, _} ->
                       {Count, _} = maps:get(id(Stream), Streams, {0, 0}),
                       Count
               end || R <- Receivers]).

errors(#{receivers := Receivers} = Stream) ->
    lists:append([element(2, received(Stream, R)) || R <- Receivers]).

received(#{to := To}, {_, Pid}) -> router_nodes:call(To, router_node, received, [Pid]);
received(#{to := To}, Pid) -> router_nodes:call(To, router_node, received, [Pid]).

-spec receivers(map()) -> [term()].
receivers(#{receivers := Receivers}) -> Receivers.

-spec id(map()) -> term().
id(#{sender := #{stream := Id}}) -> Id.

%% What From was told of To so far: {Dropped, Unconfirmed}.
-spec reported(map(), map()) -> {non_neg_integer(), non_neg_integer()}.
reported(#{options := #{via := plain}}, _) ->
    {0, 0};
reported(From, To) ->
    maps:get(router_nodes:node(To), router_nodes:call(From, router_node, reports, []), {0, 0}).

%% Waits until From has no connection to To.
-spec disconnected(map(), map()) -> ok.
disconnected(From, To) ->
    Node = router_nodes:node(To),
    router_nodes:until(fun() ->
                               false = lists:member(Node, router_nodes:call(From, erlang, nodes,
                                                                            [connected]))
                       end, ?WAIT_MS),
    ok.

%% All that From sent to To is in the mailboxes.
-spec synced(map(), map()) -> ok.
synced(#{options := #{via := plain}}, _) ->
    ok;
synced(From, To) ->
    case router_nodes:call(From, erlane_router, sync, [router_nodes:node(To), ?SYNC_MS]) of
        ok -> ok;
        Error -> error({sync, Error})
    end.

%% No more messages, and all that were sent are there.
-spec quiet(map()) -> ok.
quiet(Stream) ->
    arrived(Stream, finish(Stream)).

%% Ends the streams, which have to be all there were between their nodes, and checks their
%% balance; the sums of each pair.
-spec balanced([map()]) -> [{atom(), atom(), map()}].
balanced(Streams) ->
    Sent = [{S, finish(S)} || S <- Streams],
    Pairs = lists:usort([{From, To} || #{from := From, to := To} <- Streams]),
    [ok = synced(From, To) || {From, To} <- Pairs],
    %% The last report may be on its way: what a full lane refused is told once a second.
    [router_nodes:until(
       fun() ->
               pair(From, To,
                    [{S, N} || {#{from := F, to := T} = S, N} <- Sent, F =:= From, T =:= To])
       end, ?REPORT_MS) || {From, To} <- Pairs].

pair(From, To, Sent) ->
    Sum = lists:sum([N || {_, N} <- Sent]),
    [[] = errors(S) || {S, _} <- Sent],
    Received = lists:sum([received_count(S) || {S, _} <- Sent]),
    {Dropped, Unconfirmed} = reported(From, To),
    Result = {router_nodes:id(From), router_nodes:id(To),
              #{sent => Sum, received => Received, dropped => Dropped,
                unconfirmed => Unconfirmed}},
    Plain = maps:get(via, maps:get(options, From), router) =:= plain,
    case Received =< Sum - Dropped andalso
        (Plain orelse Received >= Sum - Dropped - Unconfirmed) of
        true -> Result;
        false -> error({not_balanced, Result})
    end.
