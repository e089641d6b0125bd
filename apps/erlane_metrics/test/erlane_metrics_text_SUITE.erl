%% SPDX-License-Identifier: Apache-2.0
%% The text formats, numbers, and the pieces they are written in. What is read back by a reader
%% of our own (erlane_metrics_text_reader) is compared with what was written.
-module(erlane_metrics_text_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([openmetrics_page/1, prometheus_page/1, empty_pages/1, edges_are_canonical/1,
         fixed_point/1, floats_read_back/1, reads_back/1, powers_of_two/1,
         threshold_above_the_edge/1, bounds_are_exact/1, layouts_may_differ/1, pieces/1, gzip/1,
         memory_is_bounded/1, a_throw_ends_it/1, table_for_people/1]).

all() ->
    [openmetrics_page, prometheus_page, empty_pages, edges_are_canonical, fixed_point,
     floats_read_back, reads_back, powers_of_two, threshold_above_the_edge, bounds_are_exact,
     layouts_may_differ, pieces, gzip, memory_is_bounded, a_throw_ends_it, table_for_people].

-define(MS, 1700000000125).

%% Every type once.
page() ->
    F = fun erlane_metrics_pages:family/3,
    [{F(<<"hits">>, counter, #{help => <<"a \"b\"\\\nc">>}),
      [{<<>>, [], 3, ?MS}, {<<"a=\"x\\\"\"">>, [{<<"a">>, <<"x\"">>}], 4, ?MS}]},
     {F(<<"room_celsius">>, gauge, #{unit => <<"celsius">>, decimals => 2}),
      [{<<>>, [], -1250, ?MS}, {<<"a=\"\"">>, [{<<"a">>, <<>>}], nan, ?MS}]},
     {F(<<"build">>, info, #{}),
      [{<<"a=\"1\"">>, [{<<"a">>, <<"1">>}], [{<<"v">>, <<"2\n">>}], ?MS}]},
     {F(<<"door">>, stateset, #{states => [<<"open">>, <<"shut">>]}),
      [{<<>>, [], [false, true], ?MS}]},
     {F(<<"wait_seconds">>, summary, #{unit => <<"seconds">>}),
      [{<<>>, [], #{count => 2, sum => 1500, unit_div => 1000,
                    quantiles => [{0.5, 0.5}, {0.99, 1.0}]}, ?MS}]},
     {F(<<"took">>, histogram, #{}),
      [{<<"a=\"1\"">>, [{<<"a">>, <<"1">>}], erlane_metrics_pages:hist(), ?MS}]}].

%% Byte by byte.
openmetrics_page(_Config) ->
    ?assertEqual(
       <<"# TYPE hits counter\n"
         "# HELP hits a \\\"b\\\"\\\\\\nc\n"
         "hits_total 3\n"
         "hits_created 1700000000.125\n"
         "hits_total{a=\"x\\\"\"} 4\n"
         "hits_created{a=\"x\\\"\"} 1700000000.125\n"
         "# TYPE room_celsius gauge\n"
         "# UNIT room_celsius celsius\n"
         "room_celsius -12.5\n"
         "room_celsius{a=\"\"} NaN\n"
         "# TYPE build info\n"
         "build_info{a=\"1\",v=\"2\\n\"} 1\n"
         "# TYPE door stateset\n"
         "door{door=\"open\"} 0\n"
         "door{door=\"shut\"} 1\n"
         "# TYPE wait_seconds summary\n"
         "# UNIT wait_seconds seconds\n"
         "wait_seconds{quantile=\"0.5\"} 0.5\n"
         "wait_seconds{quantile=\"0.99\"} 1.0\n"
         "wait_seconds_count 2\n"
         "wait_seconds_sum 1.5\n"
         "wait_seconds_created 1700000000.125\n"
         "# TYPE took histogram\n"
         "took_bucket{a=\"1\",le=\"0.25\"} 1\n"
         "took_bucket{a=\"1\",le=\"0.5\"} 3\n"
         "took_bucket{a=\"1\",le=\"1.0\"} 6\n"
         "took_bucket{a=\"1\",le=\"2.0\"} 6\n"
         "took_bucket{a=\"1\",le=\"4.0\"} 10\n"
         "took_bucket{a=\"1\",le=\"8.0\"} 15\n"
         "took_bucket{a=\"1\",le=\"+Inf\"} 21\n"
         "took_count{a=\"1\"} 21\n"
         "took_sum{a=\"1\"} 123.456789012\n"
         "took_created{a=\"1\"} 1700000000.125\n"
         "# EOF\n">>,
       erlane_metrics_pages:write(openmetrics, page())).

prometheus_page(_Config) ->
    ?assertEqual(
       <<"# HELP hits_total a \"b\"\\\\\\nc\n"
         "# TYPE hits_total counter\n"
         "hits_total 3\n"
         "hits_total{a=\"x\\\"\"} 4\n"
         "# TYPE room_celsius gauge\n"
         "room_celsius -12.5\n"
         "room_celsius{a=\"\"} NaN\n"
         "# TYPE build_info gauge\n"
         "build_info{a=\"1\",v=\"2\\n\"} 1\n"
         "# TYPE door gauge\n"
         "door{door=\"open\"} 0\n"
         "door{door=\"shut\"} 1\n"
         "# TYPE wait_seconds summary\n"
         "wait_seconds{quantile=\"0.5\"} 0.5\n"
         "wait_seconds{quantile=\"0.99\"} 1.0\n"
         "wait_seconds_count 2\n"
         "wait_seconds_sum 1.5\n"
         "# TYPE took histogram\n"
         "took_bucket{a=\"1\",le=\"0.25\"} 1\n"
         "took_bucket{a=\"1\",le=\"0.5\"} 3\n"
         "took_bucket{a=\"1\",le=\"1.0\"} 6\n"
         "took_bucket{a=\"1\",le=\"2.0\"} 6\n"
         "took_bucket{a=\"1\",le=\"4.0\"} 10\n"
         "took_bucket{a=\"1\",le=\"8.0\"} 15\n"
         "took_bucket{a=\"1\",le=\"+Inf\"} 21\n"
         "took_count{a=\"1\"} 21\n"
         "took_sum{a=\"1\"} 123.456789012\n">>,
       erlane_metrics_pages:write(text, page())).

%% Nothing at all is a page, too.
empty_pages(_Config) ->
    ?assertEqual(<<"# EOF\n">>, erlane_metrics_pages:write(openmetrics, [])),
    ?assertEqual([], erlane_metrics_pages:write(text, identity, [])),
    Nobody = [{erlane_metrics_pages:family(<<"a">>, gauge), []}],
    ?assertEqual(<<"# TYPE a gauge\n">>, erlane_metrics_pages:write(text, Nobody)).

%% The examples of OpenMetrics 1.0, "Canonical Numbers", and what Go prints for others.
edges_are_canonical(_Config) ->
    [?assertEqual(Text, erlane_metrics_number:edge(Number))
     || {Number, Text} <-
            [{0, <<"0.0">>}, {0.0, <<"0.0">>}, {0.001, <<"0.001">>}, {0.002, <<"0.002">>},
             {0.01, <<"0.01">>}, {0.1, <<"0.1">>}, {0.9, <<"0.9">>}, {0.999, <<"0.999">>},
             {1, <<"1.0">>}, {1.7, <<"1.7">>}, {10, <<"10.0">>}, {1.0e-10, <<"1e-10">>},
             {1.0e-9, <<"1e-09">>}, {1.0e-5, <<"1e-05">>}, {0.0001, <<"0.0001">>},
             {100000, <<"100000.0">>}, {1.0e6, <<"1e+06">>}, {1.0e10, <<"1e+10">>},
             {123456.75, <<"123456.75">>}, {999999, <<"999999.0">>},
             {1048576, <<"1.048576e+06">>}, {1 / 1048576, <<"9.5367431640625e-07">>},
             {1234567.5, <<"1.2345675e+06">>}, {4096, <<"4096.0">>}, {-2.5, <<"-2.5">>},
             {1.0e100, <<"1e+100">>}, {1.5e-300, <<"1.5e-300">>}]].

%% Both sides of each change of form.
fixed_point(_Config) ->
    [?assertEqual(Text, erlane_metrics_number:fixed(N, Decimals))
     || {N, Decimals, Text} <-
            [{0, 0, <<"0">>}, {0, 9, <<"0">>}, {1, 9, <<"0.000000001">>}, {-1, 1, <<"-0.1">>},
             {999, 3, <<"0.999">>}, {1000, 3, <<"1">>}, {1001, 3, <<"1.001">>},
             {1010, 3, <<"1.01">>}, {-1500, 3, <<"-1.5">>}, {(1 bsl 64) - 1, 9,
              <<"18446744073.709551615">>}, {-(1 bsl 63), 0, <<"-9223372036854775808">>}]],
    [?assertEqual(N, erlane_metrics_number:decimals(round(math:pow(10, N))))
     || N <- lists:seq(0, 15)].

floats_read_back(_Config) ->
    holds(?FORALL(F, oneof([float(), ?LET(<<X:64>>, binary(8), bits_float(X))]),
                  begin
                      <<Bits:64>> = <<F/float>>,
                      Text = erlane_metrics_number:text(F, 0),
                      Edge = erlane_metrics_number:edge(F),
                      <<Double:64/little>> = erlane_metrics_number:double(F, 0),
                      Bits =:= erlane_metrics_text_reader:bits(Text) andalso Bits =:= Double
                          andalso (F == 0 orelse
                                   Bits =:= erlane_metrics_text_reader:bits(Edge))
                  end), 2000).

bits_float(Bits) ->
    case <<Bits:64>> of
        <<F/float>> -> F;
        _ -> 1.0
    end.

%% Whatever is written in either format is what is read.
reads_back(_Config) ->
    holds(?FORALL(Page, erlane_metrics_pages:page(),
                  lists:all(fun(Dialect) ->
                                    Text = erlane_metrics_pages:write(Dialect, Page),
                                    agree(Dialect, Page,
                                          erlane_metrics_text_reader:read(Dialect, Text))
                            end, [text, openmetrics])), 300).

agree(Dialect, Page, Read) ->
    Expected = [expected(Dialect, Family, Series) || {Family, Series} <- Page],
    Seen = [F#{samples := [{N, L, erlane_metrics_text_reader:bits(V)} || {N, L, V} <- S]}
            || #{samples := S} = F <- Read],
    Expected =:= Seen orelse
        begin
            ct:pal("written:~n~tp~nread:~n~tp", [Expected -- Seen, Seen -- Expected]),
            false
        end.

expected(Dialect, #{name := Name, type := Type, help := Help, unit := Unit} = Family, Series) ->
    #{name => case {Dialect, Type} of
                  {text, counter} -> <<Name/binary, "_total">>;
                  {text, info} -> <<Name/binary, "_info">>;
                  _ -> Name
              end,
      type => case {Dialect, Type} of
                  {text, info} -> <<"gauge">>;
                  {text, stateset} -> <<"gauge">>;
                  _ -> atom_to_binary(Type)
              end,
      help => case Help of <<>> -> undefined; _ -> Help end,
      unit => case Dialect =:= text orelse Unit =:= <<>> orelse Type =:= info orelse
                  Type =:= stateset of
                  true -> undefined;
                  false -> Unit
              end,
      samples => lists:append([samples(Dialect, Family, S) || S <- Series])}.

samples(Dialect, #{name := Name, type := Type, decimals := D} = Family, {_, Labels, V, Ms}) ->
    Named = fun(Suffix) -> <<Name/binary, Suffix/binary>> end,
    Created = [{Named(<<"_created">>), Labels, erlane_metrics_pages:decimal(Ms, 3)}
               || Dialect =:= openmetrics],
    case Type of
        counter -> [{Named(<<"_total">>), Labels, number(V, D)} | Created];
        gauge -> [{Name, Labels, number(V, D)}];
        info -> [{Named(<<"_info">>), Labels ++ V, number(1, 0)}];
        stateset ->
            [{Name, Labels ++ [{Name, State}], number(case On of true -> 1; false -> 0 end, 0)}
             || {State, On} <- lists:zip(maps:get(states, Family), V)];
        summary ->
            #{count := Count, sum := Sum, unit_div := Div, quantiles := Qs} = V,
            [{Name, Labels ++ [{<<"quantile">>, erlane_metrics_number:edge(Q)}], number(X, 0)}
             || {Q, X} <- Qs] ++
                [{Named(<<"_count">>), Labels, number(Count, 0)},
                 {Named(<<"_sum">>), Labels, over(Sum, Div)} | Created];
        histogram ->
            #{count := Count, sum := Sum, unit_div := Div} = V,
            [{Named(<<"_bucket">>), Labels ++ [{<<"le">>, Le}], number(N, 0)}
             || {Le, N} <- lines(V)] ++
                [{Named(<<"_count">>), Labels, number(Count, 0)},
                 {Named(<<"_sum">>), Labels, over(Sum, Div)} | Created]
    end.

number(N, Decimals) when is_integer(N) -> erlane_metrics_pages:decimal(N, Decimals);
number(F, _) when is_float(F) -> <<Bits:64>> = <<F/float>>, Bits;
number(nan, _) -> 16#7FF8000000000000;
number(infinity, _) -> 16#7FF0000000000000;
number(neg_infinity, _) -> 16#FFF0000000000000.

over(Sum, Div) -> erlane_metrics_pages:decimal(Sum, length(integer_to_list(Div)) - 1).

%% The slow way: for each power of two in the range all that is not above it.
lines(#{scale := custom, bounds := Bounds, buckets := Buckets, count := Count}) ->
    [{erlane_metrics_number:edge(B), lists:sum(lists:sublist(Buckets, I))}
     || {I, B} <- lists:zip(lists:seq(1, length(Bounds)), Bounds)] ++ [{<<"+Inf">>, Count}];
lines(#{scale := Scale, offset := Offset, buckets := Buckets, zero := Zero, count := Count}) ->
    Indexed = lists:zip(lists:seq(Offset, Offset + length(Buckets) - 1), Buckets),
    [{erlane_metrics_number:edge(math:pow(2, P)),
      Zero + lists:sum([N || {I, N} <- Indexed, I / (1 bsl Scale) =< P])}
     || P <- lists:seq(-50, 50), P >= (Offset - 1) / (1 bsl Scale),
        P =< (Offset + length(Buckets) - 1) / (1 bsl Scale)] ++ [{<<"+Inf">>, Count}].

les(Hist) ->
    Page = [{erlane_metrics_pages:family(<<"h">>, histogram), [{<<>>, [], Hist, ?MS}]}],
    [#{samples := Samples}] =
        erlane_metrics_text_reader:read(text, erlane_metrics_pages:write(text, Page)),
    [{Le, binary_to_integer(N)} || {<<"h_bucket">>, [{<<"le">>, Le}], N} <- Samples].

%% A range that neither begins nor ends at a power of two: only exact lines are written.
powers_of_two(_Config) ->
    Hist = (erlane_metrics_pages:hist())#{scale => 2, offset => -5, zero_threshold => 0.33,
                                          buckets => lists:duplicate(10, 1), zero => 7,
                                          over => 9},
    %% Indices -5 to 4; -4, 0 and 4 end at powers of two.
    ?assertEqual([{<<"0.5">>, 9}, {<<"1.0">>, 13}, {<<"2.0">>, 17}, {<<"+Inf">>, 26}], les(Hist)).

%% A zero bucket that reaches into the first bucket makes the edge below it inexact: no line.
threshold_above_the_edge(_Config) ->
    Hist = erlane_metrics_pages:hist(),
    ?assertMatch([{<<"0.25">>, 1}, {<<"0.5">>, 3} | _], les(Hist)),
    ?assertMatch([{<<"0.5">>, 3}, {<<"1.0">>, 6} | _], les(Hist#{zero_threshold := 0.26})).

bounds_are_exact(_Config) ->
    Hist = #{scale => custom, bounds => [0.1, 1, 2.5], buckets => [1, 0, 4], over => 2, zero => 0,
             unit_div => 1, sum => 0, zero_threshold => 0.0},
    ?assertEqual([{<<"0.1">>, 1}, {<<"1.0">>, 1}, {<<"2.5">>, 5}, {<<"+Inf">>, 7}], les(Hist)).

%% The lines are made once for a family, and anew where a series has another layout.
layouts_may_differ(_Config) ->
    One = erlane_metrics_pages:hist(),
    Two = One#{offset := -1, zero_threshold := 0.5, buckets := [1, 1]},
    Page = [{erlane_metrics_pages:family(<<"h">>, histogram),
             [{<<>>, [], H, ?MS} || H <- [One, Two, One]]}],
    [#{samples := Samples}] =
        erlane_metrics_text_reader:read(text, erlane_metrics_pages:write(text, Page)),
    Les = [Le || {<<"h_bucket">>, [{<<"le">>, Le}], _} <- Samples],
    Of = fun(H) -> [Le || {Le, _} <- les(H)] end,
    ?assertEqual(Of(One) ++ Of(Two) ++ Of(One), Les).

%%% pieces

big_page(N) ->
    Name = fun(I) -> {<<"i=\"", (integer_to_binary(I))/binary, "\"">>,
                      [{<<"i">>, integer_to_binary(I)}], I, ?MS} end,
    [{erlane_metrics_pages:family(<<"big">>, counter), [Name(I) || I <- lists:seq(1, N)]},
     {erlane_metrics_pages:family(<<"small">>, gauge), [Name(1)]}].

%% 64 KB each but the last one, and together the page.
pieces(_Config) ->
    [begin
         Pieces = erlane_metrics_pages:write(Format, identity, big_page(50000)),
         ?assert(length(Pieces) > 10),
         [?assertEqual(65536, byte_size(P)) || P <- lists:droplast(Pieces)],
         ?assert(byte_size(lists:last(Pieces)) =< 65536)
     end || Format <- [text, openmetrics, protobuf]],
    Text = iolist_to_binary(erlane_metrics_pages:write(text, identity, big_page(50000))),
    [#{samples := Samples}, #{samples := [_]}] = erlane_metrics_text_reader:read(text, Text),
    ?assertEqual([integer_to_binary(I) || I <- lists:seq(1, 50000)], [V || {_, _, V} <- Samples]).

%% One stream of gzip, which is the page.
gzip(_Config) ->
    [begin
         Pieces = erlane_metrics_pages:write(Format, gzip, Page),
         [?assert(byte_size(P) >= 65536 andalso byte_size(P) < 2 * 65536)
          || P <- lists:droplast(Pieces)],
         [?assert(byte_size(P) > 0) || P <- Pieces],
         ?assertEqual(iolist_to_binary(erlane_metrics_pages:write(Format, identity, Page)),
                      zlib:gunzip(Pieces))
     end || Format <- [text, openmetrics, protobuf], Page <- [big_page(100000), page(), []]].

%% A walk that makes its series as it goes: memory does not grow with their number.
memory_is_bounded(_Config) ->
    Walk = fun(Fun, Acc) ->
                   Family = erlane_metrics_pages:family(<<"many">>, counter),
                   made(200000, Fun, Fun({family, Family}, Acc))
           end,
    [begin
         {Bytes, Peak} = in_process(fun() -> measured(Walk, Format, Encoding) end),
         ct:pal("~p ~p: ~b bytes written, at most ~b bytes held",
                [Format, Encoding, Bytes, Peak]),
         ?assert(Peak < 8 bsl 20)
     end || Format <- [text, openmetrics, protobuf], Encoding <- [identity, gzip]].

made(0, _Fun, Acc) ->
    Acc;
made(N, Fun, Acc) ->
    I = integer_to_binary(N),
    Series = {<<"i=\"", I/binary, "\"">>, [{<<"i">>, I}], N, ?MS},
    made(N - 1, Fun, Fun({series, Series}, Acc)).

measured(Walk, Format, Encoding) ->
    erlane_metrics_expose:expose(
      Walk, Format, Encoding,
      fun(Piece, {Bytes, Peak}) ->
              {binary, Binaries} = process_info(self(), binary),
              {memory, Memory} = process_info(self(), memory),
              %% A binary is listed as often as it is referred to.
              Held = lists:sum([Size || {_, Size, _} <- lists:ukeysort(1, Binaries)]),
              {Bytes + iolist_size(Piece), max(Peak, Memory + Held)}
      end, {0, 0}).

in_process(Fun) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({done, Fun()}) end),
    receive {'DOWN', Ref, process, Pid, Reason} ->
            {done, Result} = Reason,
            Result
    end.

%% A callback that gives up ends the walk at its first piece.
a_throw_ends_it(_Config) ->
    [?assertEqual({gone, 1}, catch erlane_metrics_expose:expose(
                                     erlane_metrics_pages:walk(big_page(100000)), text, Encoding,
                                     fun(_, N) -> throw({gone, N + 1}) end, 0))
     || Encoding <- [identity, gzip]].

%% Rows are limited, columns are aligned, and no value can move the cursor.
table_for_people(_Config) ->
    Self = self(),
    Table = fun(Page, Opts) ->
                    ok = erlane_metrics_print:table(erlane_metrics_pages:walk(Page), Opts,
                                                    fun(T) -> Self ! {text, T} end),
                    received()
            end,
    ?assertEqual(<<"door  stateset\n  shut\n">>, Table(page(), #{name => <<"do">>})),
    ?assertEqual(<<"build  info\n  a=\"1\"  v=2\\x0A\n">>, Table(page(), #{name => <<"build">>})),
    ?assertEqual(<<"big  counter\n  i=\"1\"  1\n  i=\"2\"  2\n  and 9 more\n",
                   "small  gauge\n  i=\"1\"  1\n">>, Table(big_page(11), #{limit => 2})),
    Escape = [{erlane_metrics_pages:family(<<"e">>, gauge),
               [{<<"a=\"\e[2J\"">>, [{<<"a">>, <<"\e[2J">>}], 1, ?MS},
                {<<"a=\"\"">>, [{<<"a">>, <<>>}], 15, ?MS}]}],
    ?assertEqual(<<"e  gauge\n  a=\"\\x1B[2J\"  1\n  a=\"\"         15\n">>, Table(Escape, #{})),
    ?assertEqual(<<"took  histogram\n"
                   "  a=\"1\"  21 observed, mean 5.88, p50 4.69, p90 over 8.0, p99 over 8.0\n">>,
                 Table(page(), #{name => <<"took">>})).

received() ->
    receive {text, T} -> <<(unicode:characters_to_binary(T))/binary, (received())/binary>>
    after 0 -> <<>>
    end.

holds(Property, Tests) ->
    true = proper:quickcheck(Property, [{numtests, Tests}, {max_size, 40}, {to_file, user},
                                        nocolors]).
