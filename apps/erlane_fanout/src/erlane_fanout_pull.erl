%% SPDX-License-Identifier: Apache-2.0
%% @doc The side of the subscriber that pulls. It reads the rows of its feed by itself and keeps
%% its place in its slot; the lane hears nothing of it.
-module(erlane_fanout_pull).

-export([take/2, take_frames/1]).

-include("erlane_fanout.hrl").

-type sub() :: erlane_fanout_sub:sub().

%% @doc See {@link erlane_fanout:take/2}.
-spec take(sub(), pos_integer()) ->
          {ok, pos_integer(), [term()]} | {gap, pos_integer(), pos_integer()} | empty
              | {error, not_subscribed}.
take(Sub, Max) ->
    case erlane_fanout_sub:at(Sub) of
        none -> {error, not_subscribed};
        Ref -> take(Sub, Max, Ref)
    end.

take(Sub, Max, Ref) ->
    Pos = atomics:get(Ref, ?CELL(Sub, ?C_POS)),
    First = atomics:get(Ref, ?CELL(Sub, ?C_ROW)),
    case ets:lookup(?RING, {atomics:get(Ref, ?CELL(Sub, ?C_FEED)), First}) of
        [{_, Last, Messages}] when Pos =:= First - 1, Last - Pos =< Max ->
            moved(Sub, Ref, Last, Last + 1),
            {ok, Last, Messages};
        [{_, Last, Messages}] when Last - Pos =< Max ->
            moved(Sub, Ref, Last, Last + 1),
            {ok, Last, lists:nthtail(Pos + 1 - First, Messages)};
        [{_, _, Messages}] ->
            moved(Sub, Ref, Pos + Max, First),
            {ok, Pos + Max, lists:sublist(Messages, Pos + 2 - First, Max)};
        [] ->
            nothing(Sub, Ref, Pos, fun() -> take(Sub, Max, Ref) end)
    end.

%% @doc See {@link erlane_fanout:take_frames/1}.
-spec take_frames(sub()) ->
          {ok, pos_integer(), pos_integer(), binary()} | {gap, pos_integer(), pos_integer()}
              | empty | {error, not_subscribed}.
take_frames(Sub) ->
    case erlane_fanout_sub:at(Sub) of
        none -> {error, not_subscribed};
        Ref -> frames(Sub, Ref)
    end.

frames(Sub, Ref) ->
    Pos = atomics:get(Ref, ?CELL(Sub, ?C_POS)),
    case ets:lookup(?RING, {atomics:get(Ref, ?CELL(Sub, ?C_FEED)), -(Pos + 1)}) of
        [{_, Last, Frames}] ->
            moved(Sub, Ref, Last, Last + 1),
            {ok, Last, Last - Pos, Frames};
        [] ->
            nothing(Sub, Ref, Pos, fun() -> frames(Sub, Ref) end)
    end.

moved(Sub, Ref, Pos, Row) ->
    ok = atomics:put(Ref, ?CELL(Sub, ?C_ROW), Row),
    ok = atomics:put(Ref, ?CELL(Sub, ?C_POS), Pos),
    case atomics:get(Ref, ?CELL(Sub, ?C_TELL)) of
        0 -> ok;
        Next when Pos < Next - 1 -> ok;
        _ ->
            ok = atomics:put(Ref, ?CELL(Sub, ?C_TELL), 0),
            erlane_fanout_lane:room(Sub)
    end.

%% The row is not there: not yet, or not any more.
nothing(Sub, Ref, Pos, Again) ->
    Id = atomics:get(Ref, ?CELL(Sub, ?C_FEED)),
    case ets:lookup(?RING, {Id, 0}) of
        [{_, Feed}] ->
            Tail = atomics:get(Feed, ?F_TAIL),
            case atomics:get(Feed, ?F_HEAD) of
                _ when Pos + 1 < Tail ->
                    moved(Sub, Ref, Tail - 1, Tail),
                    {gap, Pos + 1, Tail - 1};
                Head when Head > Pos -> Again();
                _ -> idle(Sub, Ref, Pos, {Id, Feed}, Again)
            end;
        [] ->
            %% Its lane has crashed: a message says so.
            empty
    end.

%% The flag, then the count that makes the lane look for flags, then a second look. A flag that
%% was left by a crash names another ring, whose count is no more.
idle(Sub, Ref, Pos, {Id, Feed}, Again) ->
    _ = atomics:exchange(Ref, ?CELL(Sub, ?C_FLAG), Id) =:= Id
        orelse atomics:add(Feed, ?F_IDLE, 1),
    case atomics:get(Feed, ?F_HEAD) > Pos of
        false -> empty;
        true ->
            %% If the lane has taken the flag its message comes: one too many does no harm.
            _ = atomics:compare_exchange(Ref, ?CELL(Sub, ?C_FLAG), Id, 0) =:= ok
                andalso atomics:sub(Feed, ?F_IDLE, 1),
            Again()
    end.
