%% SPDX-License-Identifier: Apache-2.0
%% @doc Intervals of integers: what an operation can give, from what its operands can be. Pure.
%%
%% Every function answers an interval that holds all results; a wider one costs a test, a
%% narrower one would be a wrong result.
-module(erlane_native_range).

-export([op/3, class/1, fits/2, signed/0, unsigned/0, join/2, meet/2, compare/3]).

-export_type([range/0]).

-type range() :: {Lo :: integer(), Hi :: integer()}.

-define(S_MIN, (-(1 bsl 63))).
-define(S_MAX, ((1 bsl 63) - 1)).
-define(U_MAX, ((1 bsl 64) - 1)).
%% Shifts by more than this are not followed.
-define(MAX_SHIFT, 128).

%% @doc What 64 bits hold with a sign, and without.
-spec signed() -> range().
signed() -> {?S_MIN, ?S_MAX}.

-spec unsigned() -> range().
unsigned() -> {0, ?U_MAX}.

%% @doc The narrowest machine integer that holds a range.
-spec class(range()) -> signed | unsigned | 128 | 256 | big.
class({Lo, Hi}) when Lo >= ?S_MIN, Hi =< ?S_MAX -> signed;
class({Lo, Hi}) when Lo >= 0, Hi =< ?U_MAX -> unsigned;
class({Lo, Hi}) when Lo >= -(1 bsl 127), Hi < 1 bsl 127 -> 128;
class({Lo, Hi}) when Lo >= -(1 bsl 255), Hi < 1 bsl 255 -> 256;
class(_) -> big.

%% @doc Whether a machine integer holds a number.
-spec fits(integer(), signed | unsigned | 128 | 256) -> boolean().
fits(I, signed) -> I >= ?S_MIN andalso I =< ?S_MAX;
fits(I, unsigned) -> I >= 0 andalso I =< ?U_MAX;
fits(I, W) -> I >= -(1 bsl (W - 1)) andalso I < 1 bsl (W - 1).

%% @doc The smallest range that holds both.
-spec join(range(), range()) -> range().
join({A, B}, {C, D}) -> {min(A, C), max(B, D)}.

%% @doc What is in both; the first when nothing is, which is a path that is never taken.
-spec meet(range(), range()) -> range().
meet({A, B}, {C, D}) ->
    case {max(A, C), min(B, D)} of
        {Lo, Hi} when Lo =< Hi -> {Lo, Hi};
        _ -> {A, B}
    end.

%% @doc What both sides are where a comparison holds.
-spec compare(atom(), range(), range()) -> {range(), range()}.
compare('<', X, Y) -> le(X, Y, 1);
compare('=<', X, Y) -> le(X, Y, 0);
compare('>', X, Y) -> swap(compare('<', Y, X));
compare('>=', X, Y) -> swap(compare('=<', Y, X));
compare(Eq, X, Y) when Eq =:= '=:='; Eq =:= '==' -> {meet(X, Y), meet(Y, X)};
compare(_, X, Y) -> {X, Y}.

le({A, B}, {C, D}, Less) ->
    {meet({A, B}, {min(A, D - Less), D - Less}), meet({C, D}, {A + Less, max(A + Less, D)})}.

swap({A, B}) -> {B, A}.

%% @doc The range of a result; `unknown' when it is not followed, and may be any integer.
-spec op(atom(), range(), range()) -> range() | unknown.
op('+', {A, B}, {C, D}) -> {A + C, B + D};
op('-', {A, B}, {C, D}) -> {A - D, B - C};
op('*', {A, B}, {C, D}) ->
    Ends = [A * C, A * D, B * C, B * D],
    {lists:min(Ends), lists:max(Ends)};
op('div', {A, B}, {C, D}) ->
    %% The quotient is largest where the divisor is nearest to zero.
    Divisors = [X || X <- [C, D, -1, 1], X =/= 0, X >= C, X =< D],
    case [N div X || N <- [A, B], X <- Divisors] of
        [] -> {0, 0};
        Ends -> {lists:min([0 | Ends]), lists:max([0 | Ends])}
    end;
op('rem', {A, B}, {C, D}) ->
    M = max(abs(C), abs(D)) - 1,
    {case A < 0 of true -> max(A, -max(M, 0)); false -> 0 end,
     case B > 0 of true -> min(B, max(M, 0)); false -> 0 end};
op('band', {A, B}, {C, D}) when A >= 0, C >= 0 -> {0, min(B, D)};
op('band', {A, B}, _) when A >= 0 -> {0, B};
op('band', _, {C, D}) when C >= 0 -> {0, D};
op(Op, {A, B}, {C, D}) when (Op =:= 'bor' orelse Op =:= 'bxor'), A >= 0, C >= 0 ->
    {0, (1 bsl bits(max(B, D))) - 1};
op(Op, {A, B}, {C, D}) when Op =:= 'bor'; Op =:= 'bxor'; Op =:= 'band' ->
    N = lists:max([bits(X) || X <- [A, B, C, D]]),
    {-(1 bsl N), (1 bsl N) - 1};
op('bsl', {A, B}, {C, D}) when C >= 0, D =< ?MAX_SHIFT ->
    Ends = [X bsl S || X <- [A, B], S <- [C, D]],
    {lists:min(Ends), lists:max(Ends)};
op('bsl', _, _) -> unknown;
op('bsr', {A, B}, {C, D}) when C >= 0 ->
    E = min(D, 1024),
    Ends = [X bsr S || X <- [A, B], S <- [min(C, 1024), E]],
    {lists:min(Ends), lists:max(Ends)};
op('bsr', {A, B}, _) -> {min(A, -1), max(B, 0)};
op('min', {A, B}, {C, D}) -> {min(A, C), min(B, D)};
op('max', {A, B}, {C, D}) -> {max(A, C), max(B, D)};
op('bnot', {A, B}, _) -> {-1 - B, -1 - A};
op('abs', {A, B}, _) when A >= 0 -> {A, B};
op('abs', {A, B}, _) -> {0, max(-A, abs(B))}.

%% Bits that a number needs besides its sign.
bits(N) when N < 0 -> bits(-1 - N);
bits(N) -> bits(N, 0).

bits(0, C) -> C;
bits(N, C) when N > 16#FFFFFFFF -> bits(N bsr 32, C + 32);
bits(N, C) -> bits(N bsr 1, C + 1).
