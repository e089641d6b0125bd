%% SPDX-License-Identifier: Apache-2.0
%% @doc Bounds of histograms, as constants that updates read without copying.
%%
%% Exponential bounds are the powers 2^(i/2^scale) of the <em>exposed</em> unit, the grid of
%% Prometheus' native histograms, upper edges inclusive. They are kept in the unit that is
%% observed: for nanoseconds floor(2^(i/2^scale) x 10^9), and an integer is above such a power
%% exactly if it is above its floor. For input `one' they are the largest floats not above the
%% powers, for which the same holds.
%%
%% `Cells' and `Levels' are the short way to the word of an integer: see
%% {@link erlane_metrics_observe}. {@link word/2} is the plain one, which all values can take.
%%
%% Words of an array: 1 sum, 2 dropped, 3 not 0 when deleted, from 4 the counts. In exponential
%% histograms word 4 is zero. The last word counts what is above all bounds.
-module(erlane_metrics_bounds).

-export([key/2, fetch/1, make/1, word/2, search/4, summand/2, fit/2, words/1, meta/1]).

-export_type([key/0, bounds/0, meta/0, input/0]).

-type input() :: nanosecond | microsecond | one.
-type shape() :: {exp, Scale :: 1..6, MinExp :: integer(), MaxExp :: integer()}
               | {fixed, [number()]}.
-opaque key() :: {?MODULE, shape(), input(), Decimals :: 0..9}.
-type meta() :: #{input := input(), scale := 1..6 | custom, unit_div := pos_integer(),
                  offset => integer(),
                  zero_threshold := float(), bounds => [number()]}.
-type bounds() :: {Cells :: tuple() | none, Levels :: tuple(), Bounds :: tuple(),
                   Low :: number(), High :: number(), Last :: pos_integer(),
                   Mul :: pos_integer(), Cap :: number(), meta()}.
%% Only this module and {@link erlane_metrics_observe} look into it.
%% `Low': up to here word 4. `High': above it the last word. `Mul': parts that are summed for
%% one observed unit. `Cap': the most that one value adds.

-define(FIRST, 4).
-define(BITS, 128).

%% @doc Names the bounds of a histogram and keeps them for ever: there are as many as there are
%% different declarations.
-spec key(shape(), {input(), 0..9}) -> key().
key(Shape, {Input, Decimals}) ->
    Key = {?MODULE, Shape, Input, Decimals},
    _ = fetch(Key),
    Key.

%% @doc The constant of this name.
-spec fetch(key()) -> bounds().
fetch(Key) ->
    case persistent_term:get(Key, none) of
        none ->
            persistent_term:put(Key, make(Key)),
            persistent_term:get(Key);
        Bounds ->
            Bounds
    end.

%% @doc Words an array with these bounds needs.
-spec words(bounds()) -> pos_integer().
words({_, _, _, _, _, Last, _, _, _}) -> Last.

%% @doc What a reader must know to make sense of the words.
-spec meta(bounds()) -> meta().
meta({_, _, _, _, _, _, _, _, Meta}) -> Meta.

%% @doc The word that counts a value, which is not negative.
-spec word(number(), bounds()) -> pos_integer().
word(V, {_, _, _, Low, _, _, _, _, _}) when V =< Low -> ?FIRST;
word(V, {_, _, _, _, High, Last, _, _, _}) when V > High -> Last;
word(V, {_, _, _, _, _, Last, _, _, _} = Bounds) -> search(V, Bounds, ?FIRST, Last).

%% @doc The first word from `From' to `To' whose bound is not below the value; `To' if there is
%% none before it.
-spec search(number(), bounds(), pos_integer(), pos_integer()) -> pos_integer().
search(V, {_, _, Bounds, _, _, _, _, _, _}, From, To) -> halve(V, Bounds, From, To).

halve(V, Bounds, From, To) when From < To ->
    Middle = (From + To) bsr 1,
    case V =< element(Middle, Bounds) of
        true -> halve(V, Bounds, From, Middle);
        false -> halve(V, Bounds, Middle + 1, To)
    end;
halve(_, _, From, _) -> From.

%% @doc What a value adds to the sum. One above an exponential range counts as its maximum, one
%% above fixed buckets as it is, up to 2^53 (nano- or microseconds) or 2^59 parts.
-spec summand(number(), bounds()) -> non_neg_integer().
summand(V, {_, _, _, _, _, _, Mul, Cap, _}) when is_integer(V), V =< Cap -> V * Mul;
summand(V, {_, _, _, _, _, _, Mul, Cap, _}) when V =< Cap -> round(V * Mul);
summand(_, {_, _, _, _, _, _, Mul, Cap, _}) -> trunc(Cap * Mul).

%% @doc A float as it can be counted: nano- and microseconds are rounded to whole ones.
-spec fit(float(), bounds()) -> number().
fit(V, {_, _, _, _, _, _, _, _, #{input := one}}) -> V;
fit(V, {_, _, _, _, _, _, _, _, #{}}) -> round(V).

%% @doc Computes the constant; pure.
-spec make(key()) -> bounds().
make({_, {fixed, Edges}, Input, Decimals}) ->
    Bounds = [scaled(Edge, Input) || Edge <- Edges],
    Last = ?FIRST + length(Edges),
    Mul = mul(Input, Decimals),
    Cap = case Input of
              one -> (1 bsl 59) div Mul;
              _ -> 1 bsl 53
          end,
    %% No table of cells: such histograms take the plain way.
    {none, {}, list_to_tuple([-1, -1, -1 | Bounds]), -1,
     lists:last(Bounds), Last, Mul, Cap,
     #{input => Input, scale => custom, unit_div => div_of(Input, Mul),
       zero_threshold => 0.0, bounds => Edges}};
make({_, {exp, Scale, E1, E2}, Input, Decimals}) ->
    Per = 1 bsl Scale,
    Roots = list_to_tuple([root(J, Scale) || J <- lists:seq(0, Per - 1)]),
    Zero = E1 * Per,
    Bounds = [edge(I, Per, Roots, Input) || I <- lists:seq(Zero, E2 * Per)],
    Low = hd(Bounds),
    High = lists:last(Bounds),
    Mul = mul(Input, Decimals),
    Unit = unit(Input),
    Words = cells(1, -Per * (bits(Unit) + 1), fun(I) -> floor_edge(I, Per, Roots, Unit) end,
                  ?FIRST - Zero),
    Levels = levels(fun(K) -> scaled_distance(Mul, distance(K, 5 * K * Per, Low, High)) end),
    {list_to_tuple(cut(Words)), Levels, list_to_tuple([-1, -1, -1 | Bounds]), Low, High,
     ?FIRST + (E2 - E1) * Per + 1, Mul, High,
     #{input => Input, scale => Scale, unit_div => div_of(Input, Mul), offset => Zero + 1,
       zero_threshold => math:pow(2.0, E1)}}.

levels(Fun) -> list_to_tuple([Fun(K) || K <- lists:seq(0, 6)]).

%% How far the words of a level are from those of the cells, if all its values are in range.
distance(0, Plus, Low, High) when Low < 1, High >= 1023 -> Plus;
distance(K, Plus, Low, High)
  when K > 0, Low < 1 bsl (5 * K + 5), High >= 1 bsl (5 * K + 10) - 1 -> Plus;
distance(_, _, _, _) -> none.

mul(one, Decimals) -> erlane_metrics_number:power(Decimals);
mul(_, _) -> 1.

div_of(one, Mul) -> Mul;
div_of(Input, 1) -> unit(Input).

unit(nanosecond) -> 1000000000;
unit(microsecond) -> 1000000;
unit(one) -> 1.

%% Bits that are enough for a number: whole bytes.
bits(N) -> 8 * byte_size(binary:encode_unsigned(N)).

%% For each cell, and one more, the word of its first value: the first power not below it.
cells(1025, _, _, _) -> [];
cells(Cell, I, Floor, Shift) ->
    case Floor(I) >= Cell of
        true -> [I + Shift | cells(Cell + 1, I, Floor, Shift)];
        false -> cells(Cell, I + 1, Floor, Shift)
    end.

scaled_distance(1, Distance) -> Distance;
scaled_distance(_, none) -> none;
scaled_distance(_, Plus) -> {Plus}.

%% What a cell knows: its word or, if the next cell begins with another one, both.
cut([Word | [Word | _] = Words]) -> [Word | cut(Words)];
cut([From | [To | _] = Words]) -> [{From, To} | cut(Words)];
cut([_]) -> [].

edge(I, Per, Roots, one) -> float_edge(I, Per, Roots);
edge(I, Per, Roots, Input) -> floor_edge(I, Per, Roots, unit(Input)).

%% floor(2^(I/Per) x Unit). The root is cut off after ?BITS bits; that this changes no floor
%% the property of bounds shows for every bound.
floor_edge(I, Per, Roots, Unit) ->
    {E, J} = split(I, Per),
    shift(element(J + 1, Roots) * Unit, E - ?BITS).

%% The largest float that is not above 2^(I/Per).
float_edge(I, Per, Roots) ->
    {E, J} = split(I, Per),
    (element(J + 1, Roots) bsr (?BITS - 52)) * math:pow(2.0, E - 52).

split(I, Per) ->
    J = ((I rem Per) + Per) rem Per,
    {(I - J) div Per, J}.

shift(N, By) when By >= 0 -> N bsl By;
shift(N, By) -> N bsr -By.

%% floor(2^(J/2^Scale) x 2^?BITS): the integer square root, Scale times.
root(J, Scale) -> sqrt_times(1 bsl (J + ?BITS * (1 bsl Scale)), Scale).

sqrt_times(N, 0) -> N;
sqrt_times(N, Times) -> sqrt_times(isqrt(N, 1 bsl (bits(N) div 2)), Times - 1).

%% Newton's method from above.
isqrt(N, X) ->
    case (X + N div X) bsr 1 of
        Y when Y < X -> isqrt(N, Y);
        _ -> X
    end.

%% A bound as it is written, 0.3, is meant, and not its nearest float, which is smaller.
scaled(Edge, one) -> Edge;
scaled(Edge, Input) when is_integer(Edge) -> Edge * unit(Input);
scaled(Edge, Input) ->
    Product = Edge * unit(Input),
    Near = round(Product),
    case abs(Product - Near) =< Product * 4.0e-16 of
        true -> Near;
        false -> trunc(Product)
    end.
