%% SPDX-License-Identifier: Apache-2.0
%% @doc Publish once, deliver to very many.
%%
%% ```
%% {ok, _} = application:ensure_all_started(erlane_fanout).
%% {ok, Sub, _} = erlane_fanout:subscribe(<<"room/+">>, #{}).
%% ok = erlane_fanout:publish(<<"room/1">>, hello).
%% receive {fan, Sub, Seq, [hello]} -> erlane_fanout:done(Sub, Seq) end.
%% '''
%% What one process publishes to a topic arrives in order and once at each subscription that keeps
%% within its limit; there is no order between publishers.
-module(erlane_fanout).

-export([subscribe/1, subscribe/2, unsubscribe/1]).
-export([publish/2, publish/3, publish_local/2, publish_local/3]).
-export([done/2, take/2, take_frames/1]).
-export([forget/1, count/1, presence/1, info/0]).

-export_type([sub/0, topic/0, filter/0, gap/0]).

-include("erlane_fanout.hrl").

-type sub() :: erlane_fanout_sub:sub().
-type topic() :: erlane_fanout_topic:topic().
-type filter() :: erlane_fanout_topic:filter().

%% What a subscriber is told of what is missing. The first: these numbers, by its policy. `lane':
%% the lane has crashed, what was under way is lost. `full': N messages of other nodes are missing
%% behind the one with the number After. `node': of this node messages may be missing behind After;
%% nobody knows how many.
-type gap() :: {gap, sub(), From :: pos_integer(), To :: pos_integer()}
             | {gap, sub(), lane | {full, N :: pos_integer(), After :: non_neg_integer()}
                                 | {node, node(), After :: non_neg_integer()}}.

%% @doc `subscribe(Filter, #{})'.
-spec subscribe(filter()) -> {ok, sub(), Seq :: non_neg_integer()} | {error, {atom(), term()}}.
subscribe(Filter) -> subscribe(Filter, #{}).

%% @doc Subscribes the caller, until it unsubscribes or ends.
-spec subscribe(filter(), map()) ->
          {ok, sub(), Seq :: non_neg_integer()} | {error, {atom(), term()}}.
subscribe(Filter, Opts) ->
    #lanes{config = Config} = Lanes = erlane_fanout_lanes:get(),
    maybe_subscribe([fun() -> erlane_fanout_topic:check_filter(Filter) end,
                     fun() -> erlane_fanout_opts:subscription(Opts, Config) end,
                     fun() -> socket(Opts) end], Filter, Lanes, none).

maybe_subscribe([Check | Rest], Filter, Lanes, Full) ->
    case Check() of
        ok -> maybe_subscribe(Rest, Filter, Lanes, Full);
        {ok, Opts} -> maybe_subscribe(Rest, Filter, Lanes, Opts);
        {error, Why} -> {error, Why}
    end;
maybe_subscribe([], Filter, Lanes, Opts) ->
    Lane = erlane_fanout_lanes:lane_of(self(), Lanes),
    {ok, Sub, _} = Answer = erlane_fanout_lane:subscribe(Lane, Filter, Opts),
    retained(Sub, Filter, Opts),
    Answer.

%% Read after the subscription is there: none can be missed.
retained(_, _, #{retained := false}) -> ok;
retained(Sub, Filter, #{mode := Mode}) ->
    case {erlane_fanout_retain:matching(Filter), Mode} of
        {[], _} -> ok;
        {Found, {socket, Socket, Framing}} ->
            Frames = erlane_fanout_socket:frames(Framing, [M || {_, M} <- Found]),
            _ = erlane_fanout_socket:write([{Sub, Socket}], Frames, infinity),
            ok;
        {Found, _} -> self() ! {fan, Sub, retained, Found}, ok
    end.

socket(#{mode := {socket, Socket, Framing}} = Opts) ->
    erlane_fanout_socket:check(Socket, Framing, maps:get(gap_frame, Opts, undefined));
socket(_) -> ok.

%% @doc No delivery starts after this; what was delivered before may still be in the mailbox.
-spec unsubscribe(sub()) -> ok.
unsubscribe(Sub) ->
    case erlane_fanout_sub:at(Sub) of
        none -> ok;
        _ -> erlane_fanout_lane:unsubscribe(Sub)
    end.

%% @doc `publish(Topics, Message, #{})'.
-spec publish(topic() | [topic()], term()) -> ok.
publish(Topics, Message) -> erlane_fanout_publish:publish(Topics, Message, #{}, all).

%% @doc Hands a message to the lanes, here and on other nodes, that have subscriptions to one of
%% these topics. Each subscription gets it once, however many of the topics it matches.
-spec publish(topic() | [topic()], term(), #{retain => boolean()}) -> ok.
publish(Topics, Message, Opts) -> erlane_fanout_publish:publish(Topics, Message, Opts, all).

%% @doc The same on this node only.
-spec publish_local(topic() | [topic()], term()) -> ok.
publish_local(Topics, Message) -> erlane_fanout_publish:publish(Topics, Message, #{}, local).

%% @doc The same on this node only.
-spec publish_local(topic() | [topic()], term(), #{retain => boolean()}) -> ok.
publish_local(Topics, Message, Opts) ->
    erlane_fanout_publish:publish(Topics, Message, Opts, local).

%% @doc The caller has done with a push delivery and all before it. A write of one word, but for
%% a subscription that was over its limit.
-spec done(sub(), Seq :: non_neg_integer()) -> ok.
done(Sub, Seq) when is_integer(Seq) ->
    case erlane_fanout_sub:at(Sub) of
        none -> ok;
        Ref -> done(Sub, Seq, Ref, atomics:get(Ref, ?CELL(Sub, ?C_POS)))
    end.

%% Never back: the lane writes it too, with a gap and after a crash, and who has done with what
%% came before that would take it for slow.
done(_, Seq, _, Pos) when Seq =< Pos -> ok;
done(Sub, Seq, Ref, Pos) ->
    case atomics:compare_exchange(Ref, ?CELL(Sub, ?C_POS), Pos, Seq) of
        ok -> told(Sub, Seq, Ref, atomics:get(Ref, ?CELL(Sub, ?C_FLAG)));
        Now -> done(Sub, Seq, Ref, Now)
    end.

told(_, _, _, 0) -> ok;
told(_, Seq, _, Next) when Seq < Next - 1 -> ok;
told(Sub, _, Ref, Next) ->
    case atomics:compare_exchange(Ref, ?CELL(Sub, ?C_FLAG), Next, 0) of
        ok -> erlane_fanout_lane:room(Sub);
        _ -> ok
    end.

%% @doc The next messages of a subscription with mode `pull', at most so many, and the number of
%% the last one. Only the subscriber may call it. `{gap, From, To}': these are lost. After `empty'
%% one message `{fan, Sub, ready}' comes when there is more.
-spec take(sub(), Max :: pos_integer()) ->
          {ok, Seq :: pos_integer(), [term()]} | {gap, pos_integer(), pos_integer()} | empty
              | {error, not_subscribed}.
take(Sub, Max) when is_integer(Max), Max > 0 -> erlane_fanout_pull:take(Sub, Max).

%% @doc The same for mode `frames': so many frames in one binary, which all that take it share.
%% Each is its length in 32 bits and a message: a binary as it is, another term in the external
%% format.
-spec take_frames(sub()) ->
          {ok, Seq :: pos_integer(), N :: pos_integer(), binary()}
              | {gap, pos_integer(), pos_integer()} | empty | {error, not_subscribed}.
take_frames(Sub) -> erlane_fanout_pull:take_frames(Sub).

%% @doc Keeps no message for later subscribers to this topic, on any node.
-spec forget(topic()) -> ok.
forget(Topic) -> erlane_fanout_retain:forget(Topic).

%% @doc How many subscriptions of this node would get a message to this topic.
-spec count(topic()) -> non_neg_integer().
count(Topic) -> erlane_fanout_presence:count(Topic).

%% @doc How many subscriptions with exactly this filter each node has; nodes with none, and those
%% that do not answer within five seconds, are left out.
-spec presence(filter()) -> #{node() => pos_integer()}.
presence(Filter) -> erlane_fanout_presence:presence(Filter).

%% @doc The figures of each lane. `inbox' is bytes that wait now, `subscriptions' and `feeds' are
%% what there is now, the rest counts since the start.
-spec info() -> erlane_fanout_info:info().
info() -> erlane_fanout_info:info().
