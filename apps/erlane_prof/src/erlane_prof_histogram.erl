%% SPDX-License-Identifier: Apache-2.0
%% @doc Log-linear histograms of times: 16 buckets for each power of two, so that a bucket is
%% never wider than 6.25% of what is in it, and one for each number below 32. Pure.
-module(erlane_prof_histogram).

-export([new/0, add/2, merge/2, bucket/1, low/1, high/1, count/1, quantile/2, coarse/1]).

-export_type([histogram/0]).

%% Bucket to how many there are.
-type histogram() :: #{non_neg_integer() => pos_integer()}.

-define(BITS, 4).
-define(STEPS, (1 bsl ?BITS)).

%% @doc An empty one.
-spec new() -> histogram().
new() -> #{}.

%% @doc Counts a value; one below zero is a zero.
-spec add(integer(), histogram()) -> histogram().
add(Value, Histogram) ->
    Bucket = bucket(max(0, Value)),
    case Histogram of
        #{Bucket := N} -> Histogram#{Bucket := N + 1};
        #{} -> Histogram#{Bucket => 1}
    end.

%% @doc Both together.
-spec merge(histogram(), histogram()) -> histogram().
merge(A, B) ->
    maps:fold(fun(Bucket, N, Acc) -> maps:update_with(Bucket, fun(M) -> M + N end, N, Acc) end,
              A, B).

%% @doc The number of the bucket that a value is in; larger values have larger numbers.
-spec bucket(non_neg_integer()) -> non_neg_integer().
bucket(Value) when Value < ?STEPS -> Value;
bucket(Value) -> bucket(Value, 0).

bucket(Value, Shift) when Value >= 1 bsl 32 -> bucket(Value bsr 16, Shift + 16);
bucket(Value, Shift) when Value >= 1 bsl 13 -> bucket(Value bsr 8, Shift + 8);
bucket(Value, Shift) when Value >= 2 * ?STEPS -> bucket(Value bsr 1, Shift + 1);
bucket(Value, Shift) -> Shift * ?STEPS + Value.

%% @doc The smallest value of a bucket.
-spec low(non_neg_integer()) -> non_neg_integer().
low(Bucket) when Bucket < ?STEPS -> Bucket;
low(Bucket) -> (?STEPS + Bucket rem ?STEPS) bsl (Bucket div ?STEPS - 1).

%% @doc The largest value of a bucket.
-spec high(non_neg_integer()) -> non_neg_integer().
high(Bucket) -> low(Bucket + 1) - 1.

%% @doc How many values were counted.
-spec count(histogram()) -> non_neg_integer().
count(Histogram) -> lists:sum(maps:values(Histogram)).

%% @doc The value that a part of all, from 0 to 1, is not above: the upper end of its bucket.
%% `undefined' if there are none.
-spec quantile(number(), histogram()) -> non_neg_integer() | undefined.
quantile(_, Histogram) when map_size(Histogram) =:= 0 -> undefined;
quantile(Part, Histogram) ->
    Rank = max(1, ceil(Part * count(Histogram))),
    high(rank(Rank, lists:sort(maps:to_list(Histogram)))).

rank(Rank, [{_, N} | More]) when Rank > N, More =/= [] -> rank(Rank - N, More);
rank(_, [{Bucket, _} | _]) -> Bucket.

%% @doc The same with one bucket for each power of two, from the first that has something to the
%% last: `{Low, High, Count}', the first of which has zero with it.
-spec coarse(histogram()) -> [{non_neg_integer(), non_neg_integer(), non_neg_integer()}].
coarse(Histogram) when map_size(Histogram) =:= 0 -> [];
coarse(Histogram) ->
    Powers = maps:fold(fun(Bucket, N, Acc) ->
                               maps:update_with(power(low(Bucket), 0), fun(M) -> M + N end, N, Acc)
                       end, #{}, Histogram),
    Numbers = maps:keys(Powers),
    [{case P of 0 -> 0; _ -> 1 bsl P end, (2 bsl P) - 1, maps:get(P, Powers, 0)}
     || P <- lists:seq(lists:min(Numbers), lists:max(Numbers))].

power(Value, P) when Value < 2 -> P;
power(Value, P) -> power(Value bsr 1, P + 1).
