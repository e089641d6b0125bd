%% SPDX-License-Identifier: Apache-2.0
%% @doc Into a lane: the charge, and what happens when the lane is full.
%%
%% The word of a lane counts the bytes of what publishers have put and the lane has not yet
%% delivered. A publisher may be killed between its charge and its send, so a lane that has
%% nothing left looks whether its word is at zero ({@link settle/2}) and forgives what stays.
-module(erlane_fanout_inbox).

-export([size/1, word/0, put/4, charge/3, ask/2, blocked/3, discharge/2, settle/2, patience/1]).
-export_type([seen/0, entry/0, since/0]).

-include("erlane_fanout.hrl").

%% In the middle of its array: the cache line is its own.
-define(WORD, 8).
-define(WORDS, 16).
%% What a message costs beyond its bytes.
-define(OVERHEAD, 32).
%% A charge that belongs to no message is forgiven after this time.
-define(FORGIVE_MS, 1000).

-type seen() :: none | {Milliseconds :: integer(), Bytes :: pos_integer()}.
-type entry() :: {pub, since(), [erlane_fanout_topic:filter()], pos_integer(), term()}.
%% Of a publisher here its era; of another node the last number that it knew of this one, and the
%% era of the intake.
-type since() :: erlane_fanout_match:era() | {remote, pos_integer(), erlane_fanout_match:era()}.

%% @doc What a message counts: the size of a binary, the external size of another term, and 32.
-spec size(term()) -> pos_integer().
size(Message) when is_binary(Message) -> byte_size(Message) + ?OVERHEAD;
size(Message) -> erlang:external_size(Message) + ?OVERHEAD.

%% @doc The word of a new lane.
-spec word() -> atomics:atomics_ref().
word() -> atomics:new(?WORDS, [{signed, true}]).

%% @doc Hands a message to the I-th lane; waits while the lane is full. A message larger than the
%% bound goes when the lane is empty.
-spec put(#lanes{}, pos_integer(), entry(), pos_integer()) -> ok.
put(#lanes{pids = Pids} = Lanes, I, Entry, Charge) ->
    case charge(Lanes, I, Charge) of
        ok ->
            element(I, Pids) ! Entry,
            ok;
        full ->
            wait(Lanes, I, room),
            put(persistent_term:get(?LANES, Lanes), I, Entry, Charge)
    end.

%% @doc Puts the charge of a message to the I-th lane, unless it is full. The caller sends the
%% message.
-spec charge(#lanes{}, pos_integer(), pos_integer()) -> ok | full.
charge(#lanes{words = Words, config = #{inbox := Bound}}, I, Charge) ->
    Ref = element(I, Words),
    case atomics:add_get(Ref, ?WORD, Charge) of
        Word when Word =< Bound; Word =< Charge -> ok;
        _ -> atomics:sub(Ref, ?WORD, Charge), full
    end.

%% @doc Waits until no subscription to the filter in this lane holds publishers up.
-spec blocked(#lanes{}, pos_integer(), erlane_fanout_topic:filter()) -> ok.
blocked(Lanes, I, Filter) ->
    wait(Lanes, I, {filter, Filter}).

wait(#lanes{pids = Pids, stats = Stats}, I, What) ->
    From = erlang:monotonic_time(microsecond),
    Ref = ask(element(I, Pids), What),
    receive
        {Ref, go} -> ok;
        %% There will be another lane, and its memory is its own.
        {'DOWN', Ref, process, _, _} -> ok
    end,
    atomics:add(element(I, Stats), ?S_BLOCKED_US, erlang:monotonic_time(microsecond) - From).

%% @doc The caller gets `{Ref, go}' when the lane has room, or `DOWN' with the same reference.
-spec ask(pid(), room | {filter, erlane_fanout_topic:filter()}) -> reference().
ask(Lane, What) ->
    Ref = erlang:monitor(process, Lane, [{alias, reply_demonitor}]),
    Lane ! {wait, Ref, What},
    Ref.

%% @doc The lane has delivered, or has nobody for, what had this charge. Is there room now?
-spec discharge(atomics:atomics_ref(), non_neg_integer()) -> integer().
discharge(Ref, 0) -> atomics:get(Ref, ?WORD);
discharge(Ref, Charge) ->
    case atomics:sub_get(Ref, ?WORD, Charge) of
        Word when Word >= 0 -> Word;
        Word ->
            %% Forgiven, although its publisher was only late.
            ok = atomics:add(Ref, ?WORD, -Word),
            0
    end.

%% @doc For a lane that has nothing to do and has discharged everything. What all looks of a
%% second have in common is of publishers that are no more.
-spec settle(atomics:atomics_ref(), seen()) -> seen().
settle(Ref, Seen) ->
    case atomics:get(Ref, ?WORD) of
        Word when Word =< 0 -> none;
        Word -> settle(Ref, Word, erlang:monotonic_time(millisecond), Seen)
    end.

settle(_, Word, Now, none) -> {Now, Word};
settle(_, Word, Now, {Since, Least}) when Now - Since < ?FORGIVE_MS -> {Since, min(Word, Least)};
settle(Ref, Word, _, {_, Least}) ->
    ok = atomics:sub(Ref, ?WORD, min(Word, Least)),
    none.

%% @doc After how many milliseconds a lane is to look again.
-spec patience(seen()) -> timeout().
patience(none) -> infinity;
patience(_) -> ?FORGIVE_MS.
