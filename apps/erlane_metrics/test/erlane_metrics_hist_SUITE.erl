%% SPDX-License-Identifier: Apache-2.0
%% Histograms: every bound against integers of any size, sums, quantiles against exact ones.
-module(erlane_metrics_hist_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([bounds_both_edges/1, bounds_of_one_both_edges/1, index_against_oracle/1,
         index_of_floats/1, fixed_both_edges/1, decimal_bounds_are_meant/1, merge_is_addition/1,
         merge_refuses_others/1, quantiles_of_distributions/1, quantiles_of_fixed/1,
         quantile_edges/1, values_below_one/1, huge_and_negative/1, summary_is_a_histogram/1,
         shared_counts_the_same/1, sum_is_modulo_2_64/1]).

all() ->
    [bounds_both_edges, bounds_of_one_both_edges, index_against_oracle, index_of_floats,
     fixed_both_edges, decimal_bounds_are_meant, merge_is_addition, merge_refuses_others,
     quantiles_of_distributions, quantiles_of_fixed, quantile_edges, values_below_one,
     huge_and_negative, summary_is_a_histogram, shared_counts_the_same, sum_is_modulo_2_64].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    application:stop(erlane_metrics).

%% For every bound of every scale the last value below and the first above it, by the way that
%% observations take, against powers of integers.
bounds_both_edges(_Config) ->
    [begin
         H = histogram(#{scale => Scale, input => Input}),
         Low = -20 * (1 bsl Scale),
         High = 12 * (1 bsl Scale),
         [begin
              V = floor_edge(I, Scale, unit(Input)),
              [check(H, Near, Scale, unit(Input)) || Near <- [V - 1, V, V + 1], Near >= 0]
          end || I <- lists:seq(Low - 2, High + 2)],
         ?assert(maps:get(count, erlane_metrics:value(H)) >= 3 * (High - Low))
     end || {Scale, Input} <- [{1, nanosecond}, {2, nanosecond}, {3, nanosecond},
                               {4, nanosecond}, {5, nanosecond}, {6, nanosecond},
                               {3, microsecond}, {6, microsecond}]].

%% The same for plain numbers, with and without decimals in the sum: integers, and the floats on
%% both sides of each bound.
bounds_of_one_both_edges(_Config) ->
    [begin
         H = histogram(#{scale => Scale, input => one, decimals => Decimals}),
         [begin
              V = floor_edge(I, Scale, 1),
              [check(H, Near, Scale, 1) || Near <- [V - 1, V, V + 1], Near >= 0],
              F = math:pow(2.0, I / (1 bsl Scale)),
              [check(H, Near, Scale, 1) || Near <- [nudge(F, -2), nudge(F, -1), F, nudge(F, 1),
                                                    nudge(F, 2)]]
          end || I <- lists:seq(-10 * (1 bsl Scale) - 2, 30 * (1 bsl Scale) + 2)]
     end || Scale <- lists:seq(1, 6), Decimals <- [0, 6]].

%% Any integer, in ranges of any place and length.
index_against_oracle(_Config) ->
    holds(?FORALL({Scale, E1, Octaves, Input, Values},
                  {range(1, 6), range(-18, 10), range(1, 13),
                   oneof([nanosecond, microsecond, one]),
                   non_empty(list(?LET({Bits, N}, {range(1, 62), non_neg_integer()},
                                       ((1 bsl Bits) * (1000 + N rem 1000)) div 1000)))},
                  begin
                      Range = {math:pow(2.0, E1), math:pow(2.0, E1 + Octaves)},
                      H = histogram(#{scale => Scale, input => Input, range => Range}),
                      Ends = [trunc(math:pow(2.0, E) * unit(Input)) + More
                              || E <- [E1, E1 + Octaves], More <- [-1, 0, 1]],
                      Around = [V * F div 32 || V <- Ends, F <- lists:seq(17, 63)],
                      [check(H, V, Scale, unit(Input))
                       || V <- [0, 1] ++ Ends ++ Around ++ Values, V >= 0],
                      true
                  end), 150).

%% Any float of any size.
index_of_floats(_Config) ->
    H = histogram(#{input => one}),
    holds(?FORALL({M, E}, {float(1.0, 2.0), range(-60, 60)},
                  begin check(H, M * math:pow(2.0, E), 3, 1), true end), 2000).

%% Both sides of fixed bounds, exact.
fixed_both_edges(_Config) ->
    Edges = [0, 0.25, 1, 2.5, 10, 1000],
    H = histogram(#{input => one, buckets => Edges}),
    [?assertEqual({V, I}, {V, counted(H, V)})
     || {V, I} <- [{0, 0}, {0.0, 0}, {1.0e-9, 1}, {0.25, 1}, {nudge(0.25, 1), 2}, {1, 2},
                   {1.0, 2}, {nudge(1.0, 1), 3}, {2, 3}, {2.5, 3}, {3, 4}, {10, 4}, {11, 5},
                   {1000, 5}, {1001, over}, {1.0e300, over}, {1 bsl 70, over}]],
    N = histogram(#{buckets => [0.001, 1]}),
    [?assertEqual({V, I}, {V, counted(N, V)})
     || {V, I} <- [{0, 0}, {1000000, 0}, {1000001, 1}, {1000000000, 1}, {1000000001, over}]].

%% 0.3 seconds are 300000000 nanoseconds, though the float 0.3 is less than that.
decimal_bounds_are_meant(_Config) ->
    [begin
         H = histogram(#{buckets => [I / 1000]}),
         ?assertEqual({I, 0}, {I, counted(H, I * 1000000)}),
         ?assertEqual({I, over}, {I, counted(H, I * 1000000 + 1)})
     end || I <- lists:seq(1, 300)].

%% A histogram of all values is the sum of those of any two parts of them.
merge_is_addition(_Config) ->
    holds(?FORALL({As, Bs}, {list(value()), list(value())},
                  begin
                      [A, B, All] = [value_of(histogram(#{}), Vs) || Vs <- [As, Bs, As ++ Bs]],
                      Merged = erlane_metrics:merge(A, B),
                      Merged =:= All andalso Merged =:= erlane_metrics:merge(B, A)
                  end), 200).

merge_refuses_others(_Config) ->
    [A, B, C] = [value_of(histogram(O), [1])
                 || O <- [#{}, #{scale => 4}, #{buckets => [1, 2]}]],
    [?assertError(badarg, erlane_metrics:merge(X, Y)) || {X, Y} <- [{A, B}, {B, C}, {C, A}]].

%% Six distributions, all scales: the exact quantile is between the edges, and the estimate is
%% not further from it than is promised.
quantiles_of_distributions(_Config) ->
    _ = rand:seed(exsss, {1, 2, 3}),
    [begin
         Values = [min(4000000000000, max(1000, Draw())) || _ <- lists:seq(1, 5000)],
         Sorted = list_to_tuple(lists:sort(Values)),
         [begin
              Hist = value_of(histogram(#{scale => Scale}), Values),
              Error = erlane_metrics_hist:relative_error(Hist),
              ?assert(Error < 0.70 / (1 bsl Scale)),
              [begin
                   Exact = element(max(1, ceil(Q * 5000)), Sorted) / 1.0e9,
                   {Low, Estimate, High} = erlane_metrics:quantile(Hist, Q),
                   %% The edges here are floats: the last of their bits may be wrong.
                   Slack = 1.0e-9,
                   ?assertMatch({_, _, _, true, true, true},
                                {Name, Scale, Q, Low =< Exact * (1 + Slack) + 1.0e-9,
                                 Exact =< High * (1 + Slack),
                                 abs(Estimate - Exact) =< (Error + 1.0e-5) * Exact})
               end || Q <- [0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1]]
          end || Scale <- lists:seq(1, 6)]
     end || {Name, Draw} <- distributions()].

distributions() ->
    [{uniform, fun() -> rand:uniform(1000000000) end},
     {exponential, fun() -> trunc(-math:log(rand:uniform_real()) * 5.0e6) end},
     {lognormal, fun() -> trunc(math:exp(rand:normal() * 1.5) * 2.0e6) end},
     {pareto, fun() -> trunc(1.0e5 / math:pow(rand:uniform_real(), 1 / 1.1)) end},
     {bimodal, fun() -> case rand:uniform(10) of
                            1 -> 900000000 + rand:uniform(100000000);
                            _ -> 20000 + rand:uniform(3000)
                        end
               end},
     {constant, fun() -> 123456789 end}].

%% Of fixed buckets the edges hold, and the estimate is between them.
quantiles_of_fixed(_Config) ->
    holds(?FORALL({Values, Q}, {non_empty(list(range(1, 2000))), float(0.0, 1.0)},
                  begin
                      Hist = value_of(histogram(#{input => one, buckets => [1, 5, 50, 1000]}),
                                      Values),
                      Exact = lists:nth(max(1, ceil(Q * length(Values))), lists:sort(Values)),
                      {Low, Estimate, High} = erlane_metrics:quantile(Hist, Q),
                      %% `infinity' is above all numbers
                      (Low < Exact orelse Low == Exact) andalso Exact =< High
                          andalso Low =< Estimate andalso Estimate =< High
                  end), 500).

%% Nothing counted, all zero, all above, and what is no quantile.
quantile_edges(_Config) ->
    H = histogram(#{}),
    ?assertEqual({nan, nan, nan}, erlane_metrics:quantile(erlane_metrics:value(H), 0.5)),
    Zero = value_of(H, [0, 953]),
    ?assertEqual({0.0, 0.0, math:pow(2, -20)}, erlane_metrics:quantile(Zero, 1)),
    Over = value_of(histogram(#{}), [4096000000001]),
    ?assertEqual({4096.0, 4096.0, infinity}, erlane_metrics:quantile(Over, 0)),
    Fixed = value_of(histogram(#{buckets => [1, 2]}), [3000000000]),
    ?assertEqual({2, 2, infinity}, erlane_metrics:quantile(Fixed, 0.5)),
    [?assertError(badarg, erlane_metrics:quantile(Zero, Q)) || Q <- [-0.1, 1.1, nan]].

%% A peer loses what is below 1.
values_below_one(_Config) ->
    Hist = value_of(histogram(#{input => one}), [0.001, 0.01, 0.1, 0.5, 0.999]),
    #{count := 5, zero := 0, over := 0, sum := 1610000, unit_div := 1000000} = Hist,
    {Low, Estimate, High} = erlane_metrics:quantile(Hist, 0.5),
    ?assert(Low =< 0.1 andalso 0.1 =< High andalso abs(Estimate - 0.1) =< 0.0044).

%% No number raises; a negative one is dropped and counted, a huge one is over and counts as the
%% maximum in the sum; what is no number is badarg.
huge_and_negative(_Config) ->
    Own = fun() -> maps:get(<<"erlane_metrics_dropped">>, callbacks()) end,
    Before = Own(),
    [begin
         H = histogram(Opts),
         [ok = erlane_metrics:observe(H, V) || V <- [-1, -0.5, -(1 bsl 80)]],
         [ok = erlane_metrics:observe(H, V) || V <- [1 bsl 63, 1 bsl 64, 1 bsl 100, 1.0e300]],
         ?assertMatch(#{count := 4, over := 4, dropped := 3, sum := Sum},
                      erlane_metrics:value(H)),
         [?assertError(badarg, erlane_metrics:observe(H, V))
          || V <- [nan, infinity, <<"1">>, [], undefined]],
         ?assertMatch(#{count := 4, dropped := 3}, erlane_metrics:value(H))
     end || {Opts, Sum} <- [{#{}, 4 * 4096000000000},
                            {#{spread => shared}, 4 * 4096000000000},
                            {#{input => one}, 4 * (1 bsl 30) * 1000000},
                            {#{buckets => [1]}, 4 * (1 bsl 53)}]],
    ?assertEqual(Before + 12, Own()).

callbacks() ->
    {_, Values} = erlane_metrics_walk:fold(
        fun({family, #{name := Name}}, {_, Acc}) -> {Name, Acc};
           ({series, {_, [], V, _}}, {Name, Acc}) -> {Name, Acc#{Name => V}};
           (_, Acc) -> Acc
        end, {none, #{}}),
    Values.

%% A summary has the estimates of the histogram it is made of.
summary_is_a_histogram(_Config) ->
    F = erlane_metrics:summary(#{name => unique(), help => <<>>, quantiles => [0.9, 0.5]}),
    H = erlane_metrics:handle(F, []),
    [ok = erlane_metrics:observe(H, I * 1000000) || I <- lists:seq(1, 100)],
    Hist = erlane_metrics:value(H),
    {_, Half, _} = erlane_metrics:quantile(Hist, 0.5),
    {_, Most, _} = erlane_metrics:quantile(Hist, 0.9),
    Seen = erlane_metrics_walk:fold(
        fun({family, #{type := Type}}, _) -> Type;
           ({series, {_, _, Value, _}}, summary) -> {summary, Value};
           (_, Acc) -> Acc
        end, none),
    ?assertEqual({summary, #{count => 100, sum => 5050000000, unit_div => 1000000000,
                             quantiles => [{0.5, Half}, {0.9, Most}]}}, Seen).

%% The array that all schedulers share counts what the others count.
shared_counts_the_same(_Config) ->
    holds(?FORALL({Values, Opts}, {list(value()),
                                   oneof([#{}, #{buckets => [0.001, 0.1, 1]}, #{scale => 5}])},
                  value_of(histogram(Opts), Values)
                  =:= value_of(histogram(Opts#{spread => shared}), Values)), 100).

%% Sums count on beyond 2^63.
sum_is_modulo_2_64(_Config) ->
    H = histogram(#{input => one, decimals => 0, range => {1, 1 bsl 53}}),
    [ok = erlane_metrics:observe(H, 1 bsl 53) || _ <- lists:seq(1, 1024)],
    ?assertMatch(#{sum := 16#8000000000000000, count := 1024}, erlane_metrics:value(H)).

%% Helpers

value() -> ?LET({Bits, N}, {range(0, 45), non_neg_integer()}, (1 bsl Bits) + N).

histogram(Opts) ->
    erlane_metrics:handle(
        erlane_metrics:histogram(Opts#{name => unique(), help => <<>>}), []).

unique() ->
    <<"h", (integer_to_binary(erlang:unique_integer([positive])))/binary>>.

value_of(H, Values) ->
    [ok = erlane_metrics:observe(H, V) || V <- Values],
    erlane_metrics:value(H).

%% Where one more observation of V was counted: zero, over, or the bucket from 0.
counted(H, V) ->
    Before = erlane_metrics:value(H),
    ok = erlane_metrics:observe(H, V),
    After = erlane_metrics:value(H),
    Differ = [Key || Key <- [zero, over], maps:get(Key, Before) =/= maps:get(Key, After)] ++
        [I || {I, A, B} <- lists:zip3(lists:seq(0, length(maps:get(buckets, Before)) - 1),
                                      maps:get(buckets, Before), maps:get(buckets, After)),
              A =/= B],
    [Where] = Differ,
    Where.

%% V must be counted where whole powers of integers say. The array is looked at itself, as
%% reading all of it for each value would take minutes: word 4 is zero, the last one over.
check({histogram, Ref, Bounds}, V, Scale, Unit) ->
    #{offset := Offset} = erlane_metrics_bounds:meta(Bounds),
    Last = erlane_metrics_bounds:words(Bounds),
    Word = max(4, min(Last, oracle(V, Scale, Unit) - Offset + 5)),
    Before = counters:get(Ref, Word),
    ok = erlane_metrics:observe({histogram, Ref, Bounds}, V),
    ?assertEqual({V, Scale, Unit, Word, Before + 1},
                 {V, Scale, Unit, Word, counters:get(Ref, Word)}).

%% The smallest i with V =< 2^(i/2^Scale) * Unit.
oracle(V, _, _) when V == 0 -> -100000;
oracle(V, Scale, Unit) ->
    first(V, ceil(math:log2(V / Unit) * (1 bsl Scale)), Scale, Unit).

first(V, I, Scale, Unit) ->
    case {at_most(V, I, Scale, Unit), at_most(V, I - 1, Scale, Unit)} of
        {true, false} -> I;
        {true, true} -> first(V, I - 1, Scale, Unit);
        {false, false} -> first(V, I + 1, Scale, Unit)
    end.

%% V =< 2^(I/2^Scale) * Unit, both sides to the power of 2^Scale, V as an exact fraction.
at_most(V, I, Scale, Unit) ->
    Per = 1 bsl Scale,
    {N, D} = fraction(V),
    Left = pow(N, Per),
    Right = pow(Unit * D, Per),
    case I >= 0 of
        true -> Left =< Right bsl I;
        false -> Left bsl -I =< Right
    end.

fraction(V) when is_integer(V) -> {V, 1};
fraction(V) ->
    <<0:1, E:11, M:52>> = <<V/float>>,
    N = (1 bsl 52) bor M,
    case E - 1075 of
        Shift when Shift >= 0 -> {N bsl Shift, 1};
        Shift -> {N, 1 bsl -Shift}
    end.

pow(_, 0) -> 1;
pow(N, Times) when Times rem 2 =:= 0 -> pow(N * N, Times div 2);
pow(N, Times) -> N * pow(N, Times - 1).

%% floor(2^(I/2^Scale) * Unit), by trial.
floor_edge(I, Scale, Unit) ->
    Near = trunc(math:pow(2.0, I / (1 bsl Scale)) * Unit),
    last_at_most(max(0, Near - 2), I, Scale, Unit).

last_at_most(V, I, Scale, Unit) ->
    case at_most(V + 1, I, Scale, Unit) of
        true -> last_at_most(V + 1, I, Scale, Unit);
        false -> V
    end.

%% The float that is N places after F.
nudge(F, N) ->
    <<Bits:64>> = <<F/float>>,
    <<Next/float>> = <<(Bits + N):64>>,
    Next.

unit(nanosecond) -> 1000000000;
unit(microsecond) -> 1000000;
unit(one) -> 1.

holds(Property, Tests) ->
    ?assert(proper:quickcheck(Property, [{numtests, Tests}, {to_file, user}, nocolors])).
