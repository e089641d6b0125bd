%% SPDX-License-Identifier: Apache-2.0
%% @doc Which shard has a key. Pure.
%%
%% A key has a slot for good, by its hash, and a slot is in one shard at a time. When the number
%% of shards changes, whole slots move, and no more of them than have to.
-module(erlane_shard_map).

-include("erlane_shard.hrl").

-export([slot/1, slots/0, new/1, resize/2, moves/2]).

-export_type([placement/0]).

-type placement() :: tuple().
%% For each slot the number of its shard, from 1 on.

%% @doc Slot of a key, from 1 on. Keys are the same when `=:=' says so.
-spec slot(Key :: term()) -> 1..?SLOTS.
slot(Key) -> erlang:phash2(Key, ?SLOTS) + 1.

%% @doc The names of all slots, under which a shard's process keeps them. The shard also runs
%% functions of others, whose own names in the process dictionary these must not meet.
-spec slots() -> [atom()].
slots() ->
    [list_to_atom("$erlane_shard_" ++ integer_to_list(I)) || I <- lists:seq(1, ?SLOTS)].

%% @doc All slots, in turn, to so many shards.
-spec new(Shards :: 1..?SLOTS) -> placement().
new(Shards) ->
    list_to_tuple([(I rem Shards) + 1 || I <- lists:seq(0, ?SLOTS - 1)]).

%% @doc The placement for another number of shards: each has as many slots as any other, or one
%% more; shards that go give all of theirs, the others only what they have too many.
-spec resize(placement(), Shards :: 1..?SLOTS) -> placement().
resize(Placement, Shards) ->
    Least = ?SLOTS div Shards,
    Have = lists:foldl(fun(S, Acc) when S =< Shards -> maps:update_with(S, fun inc/1, Acc);
                          (_, Acc) -> Acc
                       end,
                       maps:from_list([{S, 0} || S <- lists:seq(1, Shards)]),
                       tuple_to_list(Placement)),
    %% Those that have most keep the ones that are over.
    Ranked = [S || {_, S} <- lists:reverse(lists:sort([{N, S} || {S, N} <- maps:to_list(Have)]))],
    {More, Others} = lists:split(?SLOTS rem Shards, Ranked),
    Quota = maps:from_list([{S, Least + 1} || S <- More] ++ [{S, Least} || S <- Others]),
    {Kept, Left} = keep(tuple_to_list(Placement), Quota, []),
    Free = lists:append([lists:duplicate(N, S) || {S, N} <- lists:sort(maps:to_list(Left))]),
    list_to_tuple(fill(Kept, Free)).

inc(N) -> N + 1.

keep([], Left, Acc) -> {lists:reverse(Acc), Left};
keep([S | Rest], Left, Acc) ->
    case Left of
        #{S := N} when N > 0 -> keep(Rest, Left#{S := N - 1}, [S | Acc]);
        _ -> keep(Rest, Left, [free | Acc])
    end.

fill([], []) -> [];
fill([free | Rest], [S | Free]) -> [S | fill(Rest, Free)];
fill([S | Rest], Free) -> [S | fill(Rest, Free)].

%% @doc What moves between two placements: slot, from, to.
-spec moves(placement(), placement()) -> [{1..?SLOTS, pos_integer(), pos_integer()}].
moves(Old, New) ->
    [{I, element(I, Old), element(I, New)}
     || I <- lists:seq(1, ?SLOTS), element(I, Old) =/= element(I, New)].
