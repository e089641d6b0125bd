%% SPDX-License-Identifier: Apache-2.0
%% @doc Into a lane: the charge, and what happens when the lane is full.
%%
%% Between the charge and the send there is no call and no return: there a sender that is killed
%% would leave its charge in the lane for good.
-module(erlane_router_room).

-export([put/4, put_now/4]).

-include("erlane_router.hrl").

%% @doc Hands an entry to the I-th lane of a node, by the node's policy. Charge: bytes and
%% messages, as in a lane's word. A message larger than the bound goes when the lane is empty.
-spec put(#peer{}, pos_integer(), erlane_router_frame:entry(), pos_integer()) -> ok.
put(Peer, I, Entry, Charge) ->
    put(Peer, I, Entry, Charge, 0).

put(#peer{lanes = Lanes, words = Words, bound = Bound} = Peer, I, Entry, Charge, Round) ->
    Ref = element(I, Words),
    Word = atomics:add_get(Ref, ?WORD, Charge),
    if
        ?BYTES(Word) =< Bound; Word =:= Charge ->
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
  when ?BYTES(Word + Charge) =< Bound; Word =:= 0 ->
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
