%% SPDX-License-Identifier: Apache-2.0
%% @doc How wide an operation on integers is done, and of which results only a part is looked at.
%% Pure.
-module(erlane_native_width).

-export([int/3, bits/1, narrow/1, fields/3]).

-export_type([plan/0, look/0]).

-type machine() :: signed | unsigned | 32 | 128 | 256.
%% 32 bits without a sign are for divisions only; their result has 64.
-type plan() :: plain | wrap | {plain, machine()} | {checked, machine(), signed | unsigned}.
%% On the lowest 64 bits; in a machine integer that holds all operands and the result; or in a wider
%% one, and then tested for 64 bits.
-type look() :: none | low | wide | double.
%% What is looked at: all; the lowest 64 bits; or it is made narrower again, so that 128 or even 256
%% bits are worth it.
-type interval() :: {integer(), integer()}.

%% @doc The type of a result, and the plan. What is not exact in 64 bits wraps when only low bits
%% are used, is wide when the next operation takes the width away again, and else is tested.
-spec int(atom(), [interval()], look()) ->
          {low | {int, integer(), integer()}, plan()}.
int(Op, Ranges, Low) ->
    Exact = case Ranges of
                [A] -> erlane_native_range:op(Op, A, {0, 0});
                [A, B] -> erlane_native_range:op(Op, A, B)
            end,
    Class = case Exact of
                unknown -> big;
                _ -> erlane_native_range:class(Exact)
            end,
    Wraps = lists:member(Op, ['+', '-', '*', 'band', 'bor', 'bxor', 'bsl', 'bnot']),
    case {Class, Low} of
        {C, _} when Wraps, (C =:= signed orelse C =:= unsigned) -> {type(Exact), wrap};
        {C, _} when C =:= signed; C =:= unsigned ->
            {type(Exact), {plain, dividing(Op, machine(Op, [Exact | Ranges]), Ranges)}};
        {_, low} when Wraps -> {low, wrap};
        {128, _} when Low =:= wide; Low =:= double ->
            %% An operand can be wider than what becomes of it.
            {type(Exact), {plain, machine(Op, [Exact | Ranges])}};
        {256, double} -> {type(Exact), {plain, machine(Op, [Exact | Ranges])}};
        _ -> checked(Op, Exact, Ranges)
    end.

%% Divisions of what is known not to be negative are cheaper, and of 32 bits much so.
dividing(Op, M, Ranges) when (Op =:= 'div' orelse Op =:= 'rem'), (M =:= signed orelse
                                                                  M =:= unsigned) ->
    case {lists:min([Lo || {Lo, _} <- Ranges]), lists:max([Hi || {_, Hi} <- Ranges])} of
        {Lo, Hi} when Lo >= 0, Hi < 1 bsl 32 -> 32;
        {Lo, _} when Lo >= 0 -> unsigned;
        _ -> M
    end;
dividing(_, M, _) -> M.

%% The machine integer that all of these fit in.
machine(Op, Ranges) ->
    Classes = [erlane_native_range:class(R) || R <- Ranges],
    case lists:usort(Classes) of
        [signed] -> signed;
        [unsigned] -> unsigned;
        [signed, unsigned] ->
            case lists:all(fun({Lo, _}) -> Lo >= 0 end, Ranges) of
                true -> unsigned;
                false -> 128
            end;
        _ ->
            case {lists:member(big, Classes), lists:member(256, Classes)} of
                {false, false} -> 128;
                {false, true} when Op =/= 'div', Op =/= 'rem' -> 256;
                _ -> throw({unsupported, io_lib:format("~tp on integers of this size", [Op])})
            end
    end.

checked(Op, Exact, Ranges) ->
    {_, Max} = erlane_native_range:signed(),
    To = case lists:any(fun({_, Hi}) -> Hi > Max end, Ranges)
             andalso lists:all(fun({Lo, _}) -> Lo >= 0 end, Ranges) of
             true -> unsigned;
             false -> signed
         end,
    Wide = case Exact of
               unknown ->
                   %% A shift by a variable, tested to be less than 64.
                   case machine(Op, Ranges) of
                       signed -> signed;
                       W when W =:= unsigned; W =:= 128 -> 256;
                       _ -> throw({unsupported, "a shift of an integer of this size"})
                   end;
               _ ->
                   case machine(Op, Ranges) of
                       signed -> signed;
                       _ -> machine(Op, [Exact | Ranges])
                   end
           end,
    {type(erlane_native_range:To()), {checked, Wide, To}}.

type({Lo, Hi}) -> {int, Lo, Hi}.

%% @doc How wide the machine's operation is; zero if that is nothing of the plan.
-spec bits(plan() | list) -> non_neg_integer().
bits({plain, M}) -> bits_of(M);
bits({checked, M, _}) -> bits_of(M);
bits(_) -> 0.

bits_of(M) when is_integer(M) -> M;
bits_of(_) -> 64.

%% @doc The variables that are not looked at as a whole by any of their uses.
-spec narrow(erlane_native_ssa:fn()) -> #{non_neg_integer() => look()}.
narrow(#{order := Order, blocks := Blocks}) ->
    Uses = lists:foldl(fun(L, Acc) -> uses(maps:get(L, Blocks), Acc) end, #{}, Order),
    Ins = lists:append([lists:reverse(element(1, maps:get(L, Blocks)))
                        || L <- lists:reverse(Order)]),
    lists:foldl(fun({Dst, _, _, _}, Acc) ->
                    Us = maps:get(Dst, Uses, [other]),
                    Tests = [{low, fun(U) -> low_use(Dst, U, Acc) end},
                             {double, fun(U) -> double_use(Dst, U, Acc) end},
                             {wide, fun(U) -> wide_use(Dst, U, Acc) end}],
                    case [How || {How, Test} <- Tests, lists:all(Test, Us)] of
                        [How | _] -> Acc#{Dst => How};
                        [] -> Acc
                    end
                end, #{}, Ins).

uses({Ins, Last}, Acc0) ->
    Acc = lists:foldl(fun({Dst, Op, Args, _}, A) ->
                          lists:foldl(fun(V, A1) -> use(V, {Dst, Op, Args}, A1) end, A, Args)
                      end, Acc0, Ins),
    lists:foldl(fun(V, A) -> use(V, other, A) end, Acc,
                case Last of
                    {ret, V} -> [V];
                    {br, V, _, _} -> [V];
                    {switch, V, _, _} -> [V];
                    {tail, _, Args, _} -> Args;
                    _ -> []
                end).

use({v, _}, {_, ok, _}, Acc) -> Acc;
use({v, V}, Use, Acc) -> maps:update_with(V, fun(Us) -> [Use | Us] end, [Use], Acc);
use({{v, V}, From}, _, Acc) when is_integer(From) -> use({v, V}, other, Acc);
use(_, _, Acc) -> Acc.

low_use(_, {_, {bif, 'band'}, [{c, M}, _]}, _) when is_integer(M), M >= 0, M < 1 bsl 64 -> true;
low_use(_, {_, {bif, 'band'}, [_, {c, M}]}, _) when is_integer(M), M >= 0, M < 1 bsl 64 -> true;
low_use(V, {Dst, {bif, 'bsl'}, [{v, V}, {c, _}]}, Low) -> maps:get(Dst, Low, none) =:= low;
low_use(V, {_, {bs_create, Segments}, Args}, _) ->
    lists:all(fun({{Type, Unit, _}, _, Size}) ->
                  case {Type, Size} of
                      {integer, {c, N}} when is_integer(N) -> N * Unit =< 64;
                      _ -> false
                  end
              end, [P || {_, W, _} = P <- fields(Segments, Args, Args), W =:= {v, V}]);
low_use(_, {Dst, {bif, Op}, _}, Low) when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= 'band';
                                          Op =:= 'bor'; Op =:= 'bxor'; Op =:= 'bnot' ->
    maps:get(Dst, Low, none) =:= low;
low_use(_, _, _) -> false.

double_use(V, {_, {bif, 'bsr'}, [{v, V}, {c, _}]}, _) -> true;
double_use(_, {_, {bif, 'band'}, _}, _) -> true;
%% A sum takes no width away, but what is done with it may.
double_use(_, {Dst, {bif, Op}, _}, Known) when Op =:= '+'; Op =:= '-' -> is_map_key(Dst, Known);
double_use(_, _, _) -> false.

%% To divide by a small number takes little away: then a test for 64 bits costs less.
wide_use(V, {_, {bif, 'div'}, [{v, V}, {c, C}]}, _) when is_integer(C), abs(C) =< 1024 -> false;
wide_use(V, Use = {_, {bif, Op}, _}, Known) ->
    double_use(V, Use, Known)
        orelse lists:member(Op, ['rem', 'div', '<', '>', '=<', '>=', '=:=', '=/=', '==', '/=']);
wide_use(_, _, _) -> false.

%% @doc The fields of a binary that is made: segments, with their values and sizes.
-spec fields([S], [V], [term()]) -> [{S, V, Size :: term()}].
fields([S | Ss], [V, _ | Vs], [_, Size | Args]) -> [{S, V, Size} | fields(Ss, Vs, Args)];
fields([], [], []) -> [].
