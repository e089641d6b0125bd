%% SPDX-License-Identifier: Apache-2.0
%% The protobuf format, read back by a decoder of our own (erlane_metrics_proto_reader).
-module(erlane_metrics_proto_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([bytes_of_a_page/1, reads_back/1, native_histogram/1, gaps_become_spans/1,
         empty_native_histogram/1, large_family/1, long_labels/1]).

all() ->
    [bytes_of_a_page, reads_back, native_histogram, gaps_become_spans, empty_native_histogram,
     large_family, long_labels].

-define(MS, 1700000000125).

%% A counter by hand, from the description of the format.
bytes_of_a_page(_Config) ->
    Page = [{erlane_metrics_pages:family(<<"a">>, counter, #{help => <<"h">>,
                                                             unit => <<"u">>}),
             [{<<"l=\"v\"">>, [{<<"l">>, <<"v">>}], 3, ?MS}]}],
    Created = <<16#08, (<<16#80, 16#E2, 16#CF, 16#AA, 16#06>>)/binary,
                16#10, (<<16#C0, 16#B2, 16#CD, 16#3B>>)/binary>>,
    Counter = <<16#09, 0, 0, 0, 0, 0, 0, 8, 64, 16#1A, (byte_size(Created)), Created/binary>>,
    Metric = <<16#0A, 6, 16#0A, 1, "l", 16#12, 1, "v",
               16#1A, (byte_size(Counter)), Counter/binary>>,
    Message = <<16#0A, 7, "a_total", 16#12, 1, "h", 16#18, 0,
                16#22, (byte_size(Metric)), Metric/binary, 16#2A, 1, "u">>,
    ?assertEqual(<<(byte_size(Message)), Message/binary>>,
                 erlane_metrics_pages:write(protobuf, Page)).

reads_back(_Config) ->
    Property =
        ?FORALL(Page, erlane_metrics_pages:page(),
                begin
                    Read = erlane_metrics_proto_reader:read(
                             erlane_metrics_pages:write(protobuf, Page)),
                    %% A family without series is not there.
                    [expected(F, S) || {F, [_ | _] = S} <- Page] =:= [flat(F) || F <- Read]
                end),
    true = proper:quickcheck(Property, [{numtests, 300}, {max_size, 40}, {to_file, user},
                                        nocolors]).

expected(#{name := Name, type := Type, help := Help, unit := Unit} = Family, Series) ->
    {Suffix, Number} = case Type of
                           counter -> {<<"_total">>, 0};
                           gauge -> {<<>>, 1};
                           summary -> {<<>>, 2};
                           histogram -> {<<>>, 4};
                           info -> {<<"_info">>, 1};
                           stateset -> {<<>>, 1}
                       end,
    maps:merge(maps:filter(fun(_, Text) -> Text =/= <<>> end, #{help => Help, unit => Unit}),
               #{name => <<Name/binary, Suffix/binary>>, type => Number,
                 metric => lists:append([metrics(Family, S) || S <- Series])}).

metrics(#{type := stateset, name := Name, states := States}, {_, Labels, Values, _}) ->
    [#{label => Labels ++ [{Name, State}],
       gauge => #{value => bits(case On of true -> 1; false -> 0 end, 0)}}
     || {State, On} <- lists:zip(States, Values)];
metrics(#{type := info}, {_, Labels, Pairs, _}) ->
    [#{label => Labels ++ Pairs, gauge => #{value => bits(1, 0)}}];
metrics(#{type := Type, decimals := Decimals}, {_, Labels, Value, Ms}) ->
    Created = #{seconds => Ms div 1000, nanos => Ms rem 1000 * 1000000},
    Payload = case Type of
                  gauge -> #{value => bits(Value, Decimals)};
                  counter -> #{value => bits(Value, Decimals), created_timestamp => Created};
                  summary ->
                      #{count := Count, sum := Sum, unit_div := Div, quantiles := Qs} = Value,
                      #{sample_count => Count, sample_sum => over(Sum, Div),
                        quantile => [#{quantile => bits(Q, 0), value => bits(V, 0)}
                                     || {Q, V} <- Qs],
                        created_timestamp => Created};
                  histogram ->
                      #{count := Count, sum := Sum, unit_div := Div} = Value,
                      (shape(Value))#{sample_count => Count, sample_sum => over(Sum, Div),
                                      created_timestamp => Created}
              end,
    [maps:merge(#{Type => Payload}, maps:from_list([{label, Labels} || Labels =/= []]))].

%% Native buckets as {Index, Count}, of those that are not empty.
shape(#{scale := custom, bounds := Bounds, buckets := Buckets, over := Over}) ->
    {Cumulative, Count} = lists:mapfoldl(fun(N, Sum) -> {N + Sum, N + Sum} end, 0, Buckets),
    #{bucket => [#{upper_bound => bits(Bound, 0), cumulative_count => N}
                 || {Bound, N} <- lists:zip(Bounds ++ [infinity], Cumulative ++ [Count + Over])]};
shape(#{scale := Scale, offset := Offset, zero_threshold := Threshold, zero := Zero,
        buckets := Buckets, over := Over}) ->
    All = Buckets ++ [Over],
    #{schema => Scale, zero_threshold => bits(Threshold, 0), zero_count => Zero,
      positive => [{I, N} || {I, N} <- lists:zip(lists:seq(Offset, Offset + length(All) - 1),
                                                 All), N > 0]}.

flat(#{metric := Metrics} = Family) ->
    Family#{metric := [maps:map(fun(label, Ls) -> [{N, V} || #{name := N, value := V} <- Ls];
                                   (histogram, #{schema := _} = H) -> spans(H);
                                   (_, V) -> V
                                end, M) || M <- Metrics]}.

%% Spans and deltas to {Index, Count}, as a server does it.
spans(Hist) ->
    Spans = [{Gap, Length} || #{offset := Gap, length := Length}
                                  <- maps:get(positive_span, Hist, [])],
    {Indices, _} = lists:mapfoldl(fun({Gap, Length}, At) ->
                                          {lists:seq(At + Gap, At + Gap + Length - 1),
                                           At + Gap + Length}
                                  end, 0, Spans),
    {Counts, _} = lists:mapfoldl(fun(D, N) -> {N + D, N + D} end, 0,
                                 maps:get(positive_delta, Hist, [])),
    (maps:without([positive_span, positive_delta], Hist))
        #{positive => [{I, N} || {I, N} <- lists:zip(lists:append(Indices), Counts), N > 0]}.

bits(N, Decimals) when is_integer(N) -> erlane_metrics_pages:decimal(N, Decimals);
bits(F, _) when is_float(F) -> <<Bits:64>> = <<F/float>>, Bits;
bits(nan, _) -> 16#7FF8000000000001;
bits(infinity, _) -> 16#7FF0000000000000;
bits(neg_infinity, _) -> 16#FFF0000000000000.

over(Sum, Div) -> erlane_metrics_pages:decimal(Sum, length(integer_to_list(Div)) - 1).

read(Hist) ->
    Page = [{erlane_metrics_pages:family(<<"h">>, histogram), [{<<>>, [], Hist, ?MS}]}],
    [#{metric := [#{histogram := Read}]}] =
        erlane_metrics_proto_reader:read(erlane_metrics_pages:write(protobuf, Page)),
    Read.

%% Field by field. What is above the range is in the next bucket, so that the sum of all
%% buckets is the count: Prometheus refuses anything else.
native_histogram(_Config) ->
    ?assertEqual(#{sample_count => 21, sample_sum => bits(123.456789012, 0), schema => 1,
                   zero_threshold => bits(0.25, 0), zero_count => 1,
                   created_timestamp => #{seconds => 1700000000, nanos => 125000000},
                   positive_span => [#{offset => -3, length => 3}, #{offset => 4, length => 4}],
                   positive_delta => [2, -2, 3, 1, 1, -5, 6]},
                 read(erlane_metrics_pages:hist())).

%% Two empty buckets are written, three make a gap; at the ends none are written.
gaps_become_spans(_Config) ->
    Hist = (erlane_metrics_pages:hist())#{over := 0},
    Spans = fun(Buckets, Over) ->
                    Read = read(Hist#{buckets := Buckets, over := Over}),
                    {[{O, L} || #{offset := O, length := L} <- maps:get(positive_span, Read, [])],
                     maps:get(positive_delta, Read, [])}
            end,
    ?assertEqual({[{-3, 4}], [1, -1, 0, 1]}, Spans([1, 0, 0, 1], 0)),
    ?assertEqual({[{-3, 1}, {3, 1}], [1, 0]}, Spans([1, 0, 0, 0, 1], 0)),
    ?assertEqual({[{-1, 1}], [5]}, Spans([0, 0, 5, 0, 0, 0, 0], 0)),
    ?assertEqual({[{-3, 4}], [1, -1, 0, 2]}, Spans([1, 0, 0], 2)),
    ?assertEqual({[{-3, 1}, {3, 1}], [1, 1]}, Spans([1, 0, 0, 0], 2)),
    ?assertEqual({[{1, 1}], [2]}, Spans([0, 0, 0, 0], 2)),
    ?assertEqual({[], []}, Spans([0, 0, 0, 0], 0)).

%% Without a threshold only an empty span tells that it is native.
empty_native_histogram(_Config) ->
    Hist = (erlane_metrics_pages:hist())#{over := 0, zero := 0, buckets := [0, 0]},
    ?assertNot(is_map_key(positive_span, read(Hist))),
    ?assertMatch(#{positive_span := [#{offset := 0, length := 0}]},
                 read(Hist#{zero_threshold := 0.0})).

%% More than a megabyte: several messages of one name, which hold every series once.
large_family(_Config) ->
    Series = [begin
                  I = integer_to_binary(N),
                  {<<"i=\"", I/binary, "\"">>, [{<<"i">>, I}], N, ?MS}
              end || N <- lists:seq(1, 60000)],
    Page = erlane_metrics_pages:write(
             protobuf, [{erlane_metrics_pages:family(<<"big">>, gauge), Series}]),
    Families = erlane_metrics_proto_reader:read(Page),
    ?assert(length(Families) > 1),
    ?assertEqual([<<"big">>], lists:usort([Name || #{name := Name} <- Families])),
    ?assertEqual([bits(N, 0) || N <- lists:seq(1, 60000)],
                 [V || #{metric := Ms} <- Families, #{gauge := #{value := V}} <- Ms]).

%% Both sides of every length of a length.
long_labels(_Config) ->
    Sizes = lists:append([[N - 8, N - 7, N - 6, N - 5, N - 4, N - 3, N - 2, N - 1, N]
                          || N <- [128, 16384, 1 bsl 21]]),
    [begin
         Value = binary:copy(<<"x">>, Size),
         Labels = [{<<"a">>, Value}, {<<"b">>, <<"y">>}],
         [#{metric := [#{label := Read}]}] =
             erlane_metrics_proto_reader:read(
               erlane_metrics_pages:write(
                 protobuf, [{erlane_metrics_pages:family(<<"g">>, gauge),
                             [{erlane_metrics_pages:text(Labels), Labels, 1, ?MS}]}])),
         ?assertEqual(Labels, [{N, V} || #{name := N, value := V} <- Read])
     end || Size <- Sizes].
