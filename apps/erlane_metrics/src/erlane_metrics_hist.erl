%% SPDX-License-Identifier: Apache-2.0
%% @doc What a histogram has counted: a value of its own, read, added and asked for quantiles.
%%
%% ```
%% #{scale := 1..6 | custom, unit_div := pos_integer(), count := N, sum := N, zero := N,
%%   over := N, dropped := N, zero_threshold := float(), buckets := [N],
%%   offset := integer(), bounds := [number()]}
%% '''
%% `sum' is in parts of the exposed unit, of which it holds `unit_div'. `buckets' are counts of
%% their own, not cumulative. Exponential: bucket k, from 0, has the upper edge
%% 2^((offset + k) / 2^scale), inclusive; `zero' counts what was not above `zero_threshold',
%% `over' what was above the last edge. Fixed: `bounds' are the upper edges, `zero' is 0.
%% `count' is the sum of all of them, `dropped' counts the negative values that were refused.
-module(erlane_metrics_hist).

-export([new/2, read/3, count/3, merge/2, quantile/2, relative_error/1]).

-export_type([hist/0, edge/0]).

-type kind() :: erlane_metrics_slab:kind().
-type hist() ::
        #{scale := 1..6 | custom, unit_div := pos_integer(), count := non_neg_integer(),
          sum := non_neg_integer(), zero := non_neg_integer(), over := non_neg_integer(),
          dropped := non_neg_integer(), zero_threshold := float(),
          buckets := [non_neg_integer()], offset => integer(), bounds => [number()]}.
-type edge() :: number() | infinity | nan.

%% @doc An array for a histogram of these bounds.
-spec new(kind(), erlane_metrics_bounds:bounds()) -> erlane_metrics_slab:ref().
new(counters, Bounds) ->
    counters:new(erlane_metrics_bounds:words(Bounds), [write_concurrency]);
new(atomics, Bounds) ->
    atomics:new(erlane_metrics_bounds:words(Bounds), []).

%% @doc Reads an array. Observations made meanwhile may be in the count and not in the sum.
-spec read(kind(), erlane_metrics_slab:ref(), erlane_metrics_bounds:bounds()) -> hist().
read(Kind, Ref, Bounds) ->
    Words = erlane_metrics_bounds:words(Bounds),
    Meta = maps:remove(input, erlane_metrics_bounds:meta(Bounds)),
    {First, Zero} = case Meta of
                        #{scale := custom} -> {4, 0};
                        _ -> {5, get(Kind, Ref, 4)}
                    end,
    Over = get(Kind, Ref, Words),
    Buckets = [get(Kind, Ref, I) || I <- lists:seq(First, Words - 1)],
    %% The sum of a histogram only grows: read without a sign it lasts twice as long.
    Sum = get(Kind, Ref, 1) band 16#ffffffffffffffff,
    Meta#{count => Zero + Over + lists:sum(Buckets), sum => Sum, zero => Zero, over => Over,
          dropped => get(Kind, Ref, 2), buckets => Buckets}.

%% @doc Changes with every observation, dropped ones included.
-spec count(kind(), erlane_metrics_slab:ref(), erlane_metrics_bounds:bounds()) -> integer().
count(Kind, Ref, Bounds) ->
    lists:sum([get(Kind, Ref, I)
               || I <- [2 | lists:seq(4, erlane_metrics_bounds:words(Bounds))]]).

get(counters, Ref, I) -> counters:get(Ref, I);
get(atomics, Ref, I) -> atomics:get(Ref, I).

%% @doc Adds two histograms of the same declaration; exact. Others are badarg.
-spec merge(hist(), hist()) -> hist().
merge(A, B) ->
    Shape = [scale, unit_div, zero_threshold, offset, bounds],
    case maps:with(Shape, A) =:= maps:with(Shape, B) of
        true ->
            maps:map(fun(buckets, Counts) -> add(Counts, maps:get(buckets, B));
                        (Key, N) ->
                             case lists:member(Key, Shape) of
                                 true -> N;
                                 false -> N + maps:get(Key, B)
                             end
                     end, A);
        false ->
            error(badarg, [A, B])
    end.

add(As, Bs) -> lists:zipwith(fun(A, B) -> A + B end, As, Bs).

%% @doc Edges of the bucket that holds the quantile, and an estimate between them, in the
%% exposed unit. The quantile `Q', from 0 to 1, of n values is the value at place ceil(Q n) of
%% the sorted ones, at least the first. It is not below the low edge and not above the high one.
%%
%% Exponential: the estimate is off by at most {@link relative_error/1} of the quantile, except
%% at and below the zero threshold (`{0.0, 0.0, Threshold}') and above the range
%% (`{Max, Max, infinity}'). Fixed: interpolated, as Prometheus does. All three are `nan' if
%% nothing was counted.
-spec quantile(hist(), number()) -> {edge(), edge(), edge()}.
quantile(#{count := 0}, Q) when Q >= 0, Q =< 1 ->
    {nan, nan, nan};
quantile(#{count := Count} = Hist, Q) when Q >= 0, Q =< 1 ->
    Rank = max(1, ceil(Q * Count)),
    case Hist of
        #{scale := custom, bounds := Bounds, buckets := Counts} ->
            fixed(Rank, 0, Bounds, Counts);
        #{zero := Zero, zero_threshold := Threshold} when Rank =< Zero ->
            {0.0, 0.0, Threshold};
        #{zero := Zero, buckets := Counts, offset := Offset, scale := Scale} ->
            exponential(Rank - Zero, Counts, Offset, 1 bsl Scale)
    end;
quantile(Hist, Q) ->
    error(badarg, [Hist, Q]).

exponential(Rank, [N | Counts], Index, Per) when Rank > N ->
    exponential(Rank - N, Counts, Index + 1, Per);
exponential(_, [], Index, Per) ->
    Max = math:pow(2.0, (Index - 1) / Per),
    {Max, Max, infinity};
exponential(_, _, Index, Per) ->
    Low = math:pow(2.0, (Index - 1) / Per),
    High = math:pow(2.0, Index / Per),
    %% The point that is as far from both edges in proportion to each of them.
    {Low, 2 * Low * High / (Low + High), High}.

fixed(Rank, Low, [High | Bounds], [N | Counts]) when Rank > N ->
    fixed(Rank - N, max(Low, High), Bounds, Counts);
fixed(_, Low, [], []) ->
    {Low, Low, infinity};
fixed(Rank, Low, [High | _], [N | _]) ->
    {Low, Low + (High - Low) * Rank / N, High}.

%% @doc The largest error of an estimate in proportion to the exact quantile: 0.043 at scale 3.
%% Fixed buckets promise none but their edges: `infinity'.
-spec relative_error(hist()) -> float() | infinity.
relative_error(#{scale := custom}) -> infinity;
relative_error(#{scale := Scale}) ->
    Base = math:pow(2.0, 1 / (1 bsl Scale)),
    (Base - 1) / (Base + 1).
