%% SPDX-License-Identifier: Apache-2.0
%% @doc Updates that are not on anybody's hot path: words that all schedulers share.
-module(erlane_metrics_gauge).

-export([set/4, add/4, set_states/4, set_info/3]).

-define(MAX_PAIRS, 64).

%% @doc Sets a gauge.
-spec set(atomics:atomics_ref(), pos_integer(), pos_integer(), term()) -> ok.
set(Ref, Ix, Mul, Value) ->
    {Fits, Word} = erlane_metrics_read:gauge_code(Value, Mul),
    note(Fits),
    atomics:put(Ref, Ix, Word).

note(fits) -> ok;
note(clamped) -> erlane_metrics_own:clamped().

%% @doc Adds to a gauge; `nan' and the infinities stay what they are.
-spec add(atomics:atomics_ref(), pos_integer(), pos_integer(), number()) -> ok.
add(Ref, Ix, Mul, N) ->
    {_, Step} = erlane_metrics_read:gauge_code(N, Mul),
    swap(Ref, Ix, Step, atomics:get(Ref, Ix)).

swap(Ref, Ix, N, Word) ->
    case erlane_metrics_read:special(Word) of
        Old when is_integer(Old) ->
            {Fits, New} = erlane_metrics_read:gauge_code(Old + N, 1),
            case atomics:compare_exchange(Ref, Ix, Word, New) of
                ok -> note(Fits);
                Now -> swap(Ref, Ix, N, Now)
            end;
        _ ->
            ok
    end.

%% @doc Makes exactly these states active.
-spec set_states(atomics:atomics_ref(), pos_integer(), [binary()], [binary()]) -> ok.
set_states(Ref, Ix, States, Active) ->
    atomics:put(Ref, Ix, lists:foldl(fun(S, Bits) -> Bits bor bit(S, States, 1) end, 0, Active)).

bit(State, [State | _], Bit) -> Bit;
bit(State, [_ | States], Bit) -> bit(State, States, Bit bsl 1);
bit(State, [], _) -> error(badarg, [State]).

%% @doc Replaces the pairs of an info; nothing if its series was deleted.
-spec set_info(reference(), {binary(), [binary()] | overflow}, [{binary(), binary()}]) -> ok.
set_info(Unique, Key, Pairs) ->
    Names = [Name || {Name, Value} <- Pairs, is_binary(Value)],
    case length(Names) =:= length(Pairs) andalso length(Pairs) =< ?MAX_PAIRS
        andalso length(lists:usort(Names)) =:= length(Names)
        andalso lists:all(fun(Name) -> erlane_metrics_name:check_label(Name) =:= ok end, Names)
        andalso erlane_metrics_name:check_values(Names, [Value || {_, Value} <- Pairs]) of
        ok ->
            _ = erlane_metrics_registry:set_info(Unique, Key, Pairs),
            ok;
        _ ->
            error(badarg, [Key, Pairs])
    end.
