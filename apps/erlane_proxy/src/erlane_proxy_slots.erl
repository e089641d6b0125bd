%% SPDX-License-Identifier: Apache-2.0
%% @doc The exact limit on connections, shared by all acceptors of a listener.
%%
%% An acceptor takes a slot <em>before</em> it accepts, so the number of accepted connections
%% can never pass the limit, however many acceptors there are. A slot is given back when the
%% connection's process has ended.
%%
%% Below the limit an acceptor and its keeper touch two atomics and nobody else. At the limit
%% the acceptor counts itself as waiting and asks the listener to be woken. No wake-up is lost:
%% whoever gives a slot back does so before it reads the number of waiters, and the listener
%% looks for a free slot after it got the request.
-module(erlane_proxy_slots).

-export([new/2, take/2, give/3, held/2, free/1, wait/1, wait_over/1]).

-export_type([slots/0]).

-opaque slots() :: {atomics:atomics_ref(), Max :: pos_integer()}.

-define(USED, 1).
-define(WAITING, 2).
-define(HELD(I), 2 + I).

%% @doc Slots for acceptors 1 to `Acceptors'.
-spec new(pos_integer() | infinity, pos_integer()) -> slots().
new(infinity, Acceptors) -> new(1 bsl 60, Acceptors);
new(Max, Acceptors) -> {atomics:new(2 + Acceptors, []), Max}.

%% @doc Takes a slot for acceptor `I'.
-spec take(slots(), pos_integer()) -> ok | full.
take({Ref, _} = Slots, I) ->
    take(Slots, I, atomics:get(Ref, ?USED)).

take({_, Max}, _I, Used) when Used >= Max ->
    full;
take({Ref, _} = Slots, I, Used) ->
    case atomics:compare_exchange(Ref, ?USED, Used, Used + 1) of
        ok -> atomics:add(Ref, ?HELD(I), 1);
        Now -> take(Slots, I, Now)
    end.

%% @doc Gives `N' slots of acceptor `I' back; true if an acceptor waits for one.
-spec give(slots(), pos_integer(), non_neg_integer()) -> boolean().
give({Ref, _}, I, N) ->
    atomics:sub(Ref, ?HELD(I), N),
    atomics:sub(Ref, ?USED, N),
    atomics:get(Ref, ?WAITING) > 0.

%% @doc How many slots acceptor `I' and its connections hold.
-spec held(slots(), pos_integer()) -> non_neg_integer().
held({Ref, _}, I) ->
    atomics:get(Ref, ?HELD(I)).

%% @doc Whether a slot is free.
-spec free(slots()) -> boolean().
free({Ref, Max}) ->
    atomics:get(Ref, ?USED) < Max.

%% @doc An acceptor begins to wait.
-spec wait(slots()) -> ok.
wait({Ref, _}) ->
    atomics:add(Ref, ?WAITING, 1).

%% @doc An acceptor waits no longer.
-spec wait_over(slots()) -> ok.
wait_over({Ref, _}) ->
    atomics:sub(Ref, ?WAITING, 1).
