%% SPDX-License-Identifier: Apache-2.0
%% @doc Into a lane: the charge, and what happens when the lane is full.
%%
%% A sender may lose its scheduler at every call, the send itself among them, and be killed there:
%% then its charge stays and no entry comes. So a lane that has nothing left looks whether its
%% word is at zero ({@link settle/2}), and forgives what stays there.
-module(erlane_router_room).

-export([put/4, put_now/4, discharge/2, settle/2, forgive_ms/0]).
-export_type([seen/0]).

-include("erlane_router.hrl").

%% A charge that belongs to no entry is forgiven after this time.
-define(FORGIVE_MS, 1000).

%% Since when a lane that had nothing saw charges, and the least of them.
-type seen() :: none | {Milliseconds :: integer(), Charge :: pos_integer()}.

%% @doc Hands an entry to the I-th lane of a node, by the node's policy. Charge: bytes and
%% messages, as in a lane's word. A message larger than the bound goes when the lane is empty.
-spec put(#peer{}, pos_integer(), erlane_router_frame:entry(), pos_integer()) -> ok.
put(Peer, I, Entry, Charge) ->
    put(Peer, I, Entry, Charge, 0).

put(#peer{lanes = Lanes, words = Words, bound = Bound} = Peer, I, Entry, Charge, Round) ->
    Ref = element(I, Words),
    Word = atomics:add_get(Ref, ?WORD, Charge),
    if
        ?BYTES(Word) =< Bound; Word =< Charge ->
            element(I, Lanes) ! Entry,
            ok;
        true ->
            atomics:sub(Ref, ?WORD, Charge),
            full(Peer, I, Entry, Charge, Round)
    end.

%% @doc The same, but a full lane is answered, whatever the policy.
-spec put_now(#peer{}, pos_integer(), erlane_router_frame:entry(), pos_integer()) ->
          ok | nosuspend.
put_now(#peer{lanes = Lanes, words = Words, bound = Bound}, I, Entry, Charge) ->
    Ref = element(I, Words),
    put_now(element(I, Lanes), Ref, Bound, Entry, Charge, atomics:get(Ref, ?WORD)).

%% The word is never above the bound, not even for a moment: a sender that waits for room
%% because of that would not be told when it is over.
put_now(Lane, Ref, Bound, Entry, Charge, Word)
  when ?BYTES(Word + Charge) =< Bound; Word =< 0 ->
    case atomics:compare_exchange(Ref, ?WORD, Word, Word + Charge) of
        ok ->
            Lane ! Entry,
            ok;
        Actual ->
            put_now(Lane, Ref, Bound, Entry, Charge, Actual)
    end;
put_now(_, _, _, _, _, _) ->
    nosuspend.

full(#peer{node = Node, stats = Stats, policy = drop_newest}, I, _, Charge, _) ->
    N = ?MESSAGES(Charge),
    Stat = element(I, Stats),
    atomics:add(Stat, ?S_DROPPED, N),
    atomics:add(Stat, ?S_REFUSED, N),
    case atomics:add_get(Stat, ?S_TOLD, N) of
        N -> erlane_router_report:refused(Node);
        _ -> ok
    end;
full(#peer{node = Node, lanes = Lanes, policy = block}, I, Entry, Charge, Round) ->
    Lane = element(I, Lanes),
    Ref = erlang:monitor(process, Lane, [{alias, reply_demonitor}]),
    Lane ! {wait, Ref, ?BYTES(Charge), Round},
    receive
        {Ref, go} -> ok;
        {'DOWN', Ref, process, _, _} -> ok
    end,
    %% Others may have been faster; and after a crash there is another lane.
    put(erlane_router_peers:peer(Node), I, Entry, Charge, Round + 1).

%% @doc The lane has handed on, or dropped, what had this charge. The word that is left.
-spec discharge(atomics:atomics_ref(), pos_integer()) -> non_neg_integer().
discharge(Ref, Charge) ->
    case atomics:sub_get(Ref, ?WORD, Charge) of
        Word when Word >= 0 ->
            Word;
        Word ->
            %% The sender of an entry that was forgiven was not killed, only late.
            ok = atomics:add(Ref, ?WORD, -Word),
            0
    end.

%% @doc For a lane whose mailbox is empty and that has discharged everything: what is charged now
%% is of senders between charge and send. What all such looks of a second have in common is of
%% senders that are no more, and is taken out of the word.
-spec settle(atomics:atomics_ref(), seen()) -> seen().
settle(Ref, Seen) ->
    case atomics:get(Ref, ?WORD) of
        Word when Word =< 0 -> none;
        Word -> settle(Ref, Word, erlang:monotonic_time(millisecond), Seen)
    end.

settle(_, Word, Now, none) ->
    {Now, Word};
settle(_, Word, Now, {Since, Least}) when Now - Since < ?FORGIVE_MS ->
    {Since, common(Word, Least)};
settle(Ref, Word, _, {_, Least}) ->
    ok = atomics:sub(Ref, ?WORD, common(Word, Least)),
    none.

common(A, B) ->
    min(?MESSAGES(A), ?MESSAGES(B)) * ?ONE + min(?BYTES(A), ?BYTES(B)).

%% @doc After how long a lane that saw charges is to look again, in milliseconds.
-spec forgive_ms() -> pos_integer().
forgive_ms() -> ?FORGIVE_MS.
