%% SPDX-License-Identifier: Apache-2.0
%% @doc Messages between processes of this node in batches. Producers say {@link send/2} where
%% they said `!'; the consumer gets `{erlane_batch, Ref, [Message]}' and says {@link done/2}.
%%
%% The buffer is in the dictionary of the producer, one for each inbox: a message that is buffered
%% costs no signal, no lock and no hop. What a producer has not flushed when it ends is gone.
-module(erlane_batch).

-export([inbox/1, ref/1, pid/1, done/2, close/1, info/1]).
-export([send/2, send_list/2, flush/0, flush/1, handle/1]).

-export_type([inbox/0]).

-include("erlane_batch.hrl").

-opaque inbox() :: #erlane_inbox{}.
%% Of this node: the words that both sides share are in its memory.

%% Where a process keeps which of its inboxes have a buffer, and what will wake it.
-define(STATE, '$erlane_batch').

-record(state, {inboxes = [] :: [#erlane_inbox{}],
                idle = false :: boolean(),
                due = infinity :: integer() | infinity,
                timer = none :: none | reference()}).

%% A buffer, under the key of its inbox: messages, bytes, when it is too old, the messages
%% with the last one first. The clock is read with every sixteenth message.
-define(EMPTY, {0, 0, infinity, []}).
-define(CLOCK, 15).
-define(NO_BOUND, (1 bsl 50)).

%%
%% The consumer
%%

%% @doc Makes an inbox of the calling process, which is its consumer. It ends with the process.
-spec inbox(erlane_batch_opts:options()) ->
          {ok, inbox()} | {error, {term(), unknown_option | {badarg, term()}}}.
inbox(Options) ->
    case erlane_batch_opts:check(Options) of
        {ok, #{count := Count, bytes := Bytes, age := Age, idle := Idle, bound := Bound,
               policy := Policy}} ->
            Words = erlane_batch_credit:new(),
            {ok, Keeper} = erlane_batch_keeper:start(self(), Words, Bound div 2),
            {ok, #erlane_inbox{ref = make_ref(), key = key(), pid = self(), keeper = Keeper,
                               words = Words, count = Count, bytes = Bytes, age = Age,
                               idle = Idle, bound = Bound, policy = Policy}};
        {error, Why} ->
            {error, Why}
    end.

%% Dictionaries find small integers without hashing: with a reference as key a message costs a
%% tenth more. Nobody else has keys like these.
key() -> (1 bsl 56) + erlang:unique_integer([positive]).

%% @doc What stands in its batches: `{erlane_batch, Ref, [Message]}'.
-spec ref(inbox()) -> reference().
ref(#erlane_inbox{ref = Ref}) -> Ref.

%% @doc Its consumer, to monitor for example.
-spec pid(inbox()) -> pid().
pid(#erlane_inbox{pid = Pid}) -> Pid.

%% @doc These messages of the inbox need no room any more: the list of a batch, or a part of it.
%% Any process may say so. A consumer that never does gets no more than `bound' messages.
-spec done(inbox(), [term()]) -> ok.
done(#erlane_inbox{words = Words, bound = Bound, keeper = Keeper}, Messages) ->
    case erlane_batch_credit:done(Words, length(Messages), Bound div 2) of
        true -> erlane_batch_keeper:room(Keeper);
        false -> ok
    end.

%% @doc Ends the inbox, soon. What has been sent may still arrive; it is counted as lost.
-spec close(inbox()) -> ok.
close(#erlane_inbox{keeper = Keeper}) ->
    erlane_batch_keeper:close(Keeper).

%% @doc Figures of an inbox, of ended ones too. Messages: `accepted' were sent, `waiting' of them
%% are not done; `dropped' found no room, `refused' came after the end, `lost' had been accepted
%% and were not done then. `batches' were sent; `open' until it ends.
-spec info(inbox()) -> #{atom() => non_neg_integer() | boolean()}.
info(#erlane_inbox{words = Words}) -> erlane_batch_credit:figures(Words).

%%
%% The producer
%%

%% @doc Buffers a message for the consumer. When that fills a batch it leaves, and then the caller
%% waits while the consumer has `bound' messages, if the policy is `block'. Answers `ok' whether
%% the consumer lives or not, as `!' does.
-spec send(inbox(), term()) -> ok.
send(#erlane_inbox{key = Key, count = Count, bytes = Max} = Inbox, Message) ->
    Size = size_of(Message),
    case get(Key) of
        {N, Bytes, Due, Messages} when N > 0, N band ?CLOCK =/= 0, N + 1 < Count,
                                       Bytes + Size < Max ->
            _ = put(Key, {N + 1, Bytes + Size, Due, [Message | Messages]}),
            ok;
        Buffer ->
            slow(Inbox, Message, Size, Buffer)
    end.

%% @doc Buffers messages, in their order: a third of the work of one by one.
-spec send_list(inbox(), [term()]) -> ok.
send_list(#erlane_inbox{}, []) ->
    ok;
send_list(#erlane_inbox{key = Key, count = Count, bytes = Max} = Inbox, List) ->
    case get(Key) of
        {N, _, _, _} when N > 0 ->
            buffer_list(Inbox, List);
        _ ->
            %% Nothing before it: what makes a whole batch needs no buffer.
            case whole(List, Count, Max, 0, 0) of
                {N, []} ->
                    deliver(Inbox, N, List);
                {N, Rest} ->
                    deliver(Inbox, N, lists:sublist(List, N)),
                    send_list(Inbox, Rest);
                less ->
                    buffer_list(Inbox, List)
            end
    end.

whole(Rest, Count, Max, N, Bytes) when N =:= Count; Bytes >= Max -> {N, Rest};
whole([M | Rest], Count, Max, N, Bytes) -> whole(Rest, Count, Max, N + 1, Bytes + size_of(M));
whole([], _, _, _, _) -> less.

buffer_list(#erlane_inbox{key = Key, count = Count} = Inbox, [Message | Messages]) ->
    %% The first one makes a buffer where there is none, and sets its age.
    ok = send(Inbox, Message),
    {N, Bytes, Due, Buffered} = get(Key),
    {Left, More, All, Rest} = fill(Messages, Count - 1 - N, Bytes, Buffered, Inbox),
    _ = put(Key, {Count - 1 - Left, More, Due, All}),
    send_list(Inbox, Rest).

%% One less than fills a batch, at most: with the next one goes the batch, or the clock is read.
fill([Message | Messages] = Rest, Left, Bytes, Buffered, #erlane_inbox{bytes = Max} = Inbox)
  when Left > 0, Buffered =/= [] ->
    case Bytes + size_of(Message) of
        More when More < Max -> fill(Messages, Left - 1, More, [Message | Buffered], Inbox);
        _ -> {Left, Bytes, Buffered, Rest}
    end;
fill(Rest, Left, Bytes, Buffered, _) ->
    {Left, Bytes, Buffered, Rest}.

%% @doc Sends all that the caller has buffered: before it waits for an answer, or does something
%% long, or at the end of a loop that does not look at its mailbox.
-spec flush() -> ok.
flush() ->
    case get(?STATE) of
        #state{inboxes = [_ | _] = Inboxes} = State ->
            _ = put(?STATE, State#state{inboxes = []}),
            lists:foreach(fun drain/1, Inboxes);
        _ ->
            ok
    end.

%% @doc Sends what the caller has buffered for one inbox.
-spec flush(inbox()) -> ok.
flush(#erlane_inbox{key = Key} = Inbox) ->
    case get(Key) of
        {N, _, _, Messages} when N > 0 ->
            %% It stays in the list of inboxes, until the message comes that is on the way.
            _ = put(Key, ?EMPTY),
            deliver(Inbox, N, lists:reverse(Messages));
        _ ->
            ok
    end.

%% @doc What a producer does with the messages `{erlane_batch, Why}' that it gets: one when
%% nothing more waits that was in its mailbox when it began to buffer, or when a buffer is old.
-spec handle({erlane_batch, idle | age}) -> ok.
handle({erlane_batch, idle}) ->
    #state{inboxes = Inboxes} = State = state(),
    {Idle, Others} = lists:partition(fun(#erlane_inbox{idle = Is}) -> Is end, Inboxes),
    _ = put(?STATE, State#state{inboxes = Others, idle = false}),
    lists:foreach(fun drain/1, Idle);
handle({erlane_batch, age}) ->
    #state{inboxes = Inboxes, timer = Timer} = State = state(),
    cancel(Timer),
    Now = erlang:monotonic_time(millisecond),
    {Old, Others} = lists:partition(fun(I) -> due(I) =< Now end, Inboxes),
    %% Empty ones have no age; they leave the list, and come back with their next message.
    {Empty, Young} = lists:partition(fun(#erlane_inbox{key = Key, idle = Is}) ->
                                             not Is andalso get(Key) =:= ?EMPTY
                                     end, Others),
    _ = put(?STATE, State#state{inboxes = Young, due = infinity, timer = none}),
    lists:foreach(fun drain/1, Empty ++ Old),
    %% While that waited for room, others may have become old: then at once.
    Left = [due(I) || #erlane_inbox{idle = false} = I <- (state())#state.inboxes],
    wake_at(lists:min([infinity | Left])).

due(#erlane_inbox{key = Key}) ->
    {_, _, Due, _} = get(Key),
    Due.

%% Empty, full, or the clock is to be read.
slow(#erlane_inbox{key = Key} = Inbox, Message, Size, undefined) ->
    _ = put(Key, ?EMPTY),
    listed(Inbox),
    slow(Inbox, Message, Size, ?EMPTY);
slow(#erlane_inbox{key = Key, count = Count, bytes = Max} = Inbox, Message, Size,
     {N, Bytes, Due0, Messages0}) ->
    Messages = [Message | Messages0],
    Now = now_if(Inbox),
    Due = case N of
              0 -> first(Inbox, Now);
              _ -> Due0
          end,
    case N + 1 >= Count orelse Bytes + Size >= Max orelse Now >= Due of
        true ->
            _ = put(Key, ?EMPTY),
            deliver(Inbox, N + 1, lists:reverse(Messages));
        false ->
            _ = put(Key, {N + 1, Bytes + Size, Due, Messages}),
            ok
    end.

%% Atoms are greater than numbers: without an age nothing is ever due.
now_if(#erlane_inbox{age = infinity}) -> 0;
now_if(_) -> erlang:monotonic_time(millisecond).

%% The first message of a batch: when is it too old? A timer is of use only if no message to this
%% process comes before: nothing but a message can make it flush.
first(#erlane_inbox{age = infinity}, _) ->
    infinity;
first(#erlane_inbox{age = Age, idle = true}, Now) ->
    Now + Age;
first(#erlane_inbox{age = Age}, Now) ->
    wake_at(Now + Age),
    Now + Age.

%% It has its first buffer since the last flush. The message comes behind all that waits now.
listed(#erlane_inbox{idle = Idle, pid = Pid} = Inbox) ->
    node(Pid) =:= node() orelse error(badarg, [Inbox]),
    #state{inboxes = Inboxes, idle = Waits} = State = state(),
    _ = Idle andalso not Waits andalso (self() ! {?MODULE, idle}),
    _ = put(?STATE, State#state{inboxes = [Inbox | Inboxes], idle = Waits orelse Idle}),
    ok.

wake_at(Due) ->
    case state() of
        #state{due = Earlier} when Earlier =< Due ->
            ok;
        #state{timer = Later} = State ->
            cancel(Later),
            Timer = erlang:send_after(Due, self(), {?MODULE, age}, [{abs, true}]),
            _ = put(?STATE, State#state{due = Due, timer = Timer}),
            ok
    end.

%% One that has fired already costs a look at the buffers.
cancel(none) ->
    ok;
cancel(Timer) ->
    _ = erlang:cancel_timer(Timer, [{async, true}, {info, false}]),
    ok.

state() ->
    case get(?STATE) of
        undefined -> #state{};
        State -> State
    end.

%% Its buffer is sent and forgotten. The buffer goes first: while this waits for room nobody else
%% can see it, for there is only this process.
drain(#erlane_inbox{key = Key} = Inbox) ->
    case erase(Key) of
        {N, _, _, Messages} when N > 0 -> deliver(Inbox, N, lists:reverse(Messages));
        _ -> ok
    end.

deliver(#erlane_inbox{words = Words, bound = Bound, policy = Policy, pid = Pid} = Inbox, N,
        Messages) ->
    case charge(Words, N, Bound, Policy, Pid) of
        closed ->
            ok;
        N ->
            post(Inbox, N, Messages);
        0 when Policy =:= block ->
            case erlane_batch_keeper:wait(Inbox#erlane_inbox.keeper) of
                retry -> ok;
                %% One that was killed has not closed the inbox itself.
                closed -> erlane_batch_credit:close(Words)
            end,
            deliver(Inbox, N, Messages);
        Room ->
            ok = erlane_batch_credit:dropped(Words, N - Room),
            _ = Room > 0 andalso post(Inbox, Room, lists:sublist(Messages, Room)),
            _ = erlane_batch_credit:doubtful(Words)
                andalso erlane_batch_keeper:full(Inbox#erlane_inbox.keeper),
            ok
    end.

%% A consumer that sends to itself cannot make room while it waits for room.
charge(Words, N, _, block, Pid) when Pid =:= self() ->
    erlane_batch_credit:charge(Words, N, ?NO_BOUND, all);
charge(Words, N, Bound, block, _) ->
    erlane_batch_credit:charge(Words, N, Bound, all);
charge(Words, N, Bound, drop_newest, _) ->
    erlane_batch_credit:charge(Words, N, Bound, some).

post(#erlane_inbox{pid = Pid, ref = Ref, words = Words}, N, Messages) ->
    Pid ! {?MODULE, Ref, Messages},
    erlane_batch_credit:sent(Words, N).

%% Bytes, roughly. Small tuples are common, and seen through faster than sized.
-define(SMALL(X), (is_atom(X) orelse is_integer(X) orelse is_pid(X))).

size_of(Message) when ?SMALL(Message) -> 8;
size_of({A, B}) when ?SMALL(A), ?SMALL(B) -> 24;
size_of({A, B, C}) when ?SMALL(A), ?SMALL(B), ?SMALL(C) -> 32;
size_of(Message) when is_binary(Message) -> byte_size(Message);
size_of(Message) -> erlang:external_size(Message).
