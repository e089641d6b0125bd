%% SPDX-License-Identifier: Apache-2.0
%% The call shapes of folsom and exometer, and the handler of telemetry. What folsom answers is
%% asked of folsom itself, where it is installed (Debian: erlang-folsom).
-module(erlane_metrics_bridge_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([answers_as_folsom/1, statistics_as_folsom/1, nothing_is_sampled/1,
         folsom_gauges_and_times/1, folsom_errors_are_told/1, bound_to_series/1,
         creation_at_once/1, names_that_become_the_same/1, names_of_any_term/1]).
-export([exometer_counters/1, exometer_histograms/1, exometer_raises_as_it_does/1]).
-export([telemetry_types/1, telemetry_units/1, telemetry_tags/1, telemetry_keep/1,
         telemetry_never_raises/1, telemetry_bad_specs/1, telemetry_missing/1,
         attached_to_telemetry/1]).

-define(F, erlane_metrics_folsom).
-define(E, erlane_metrics_exometer).
-define(T, erlane_metrics_telemetry).

all() ->
    [answers_as_folsom, statistics_as_folsom, nothing_is_sampled, folsom_gauges_and_times,
     folsom_errors_are_told, bound_to_series, creation_at_once, names_that_become_the_same,
     names_of_any_term, exometer_counters, exometer_histograms, exometer_raises_as_it_does,
     telemetry_types, telemetry_units, telemetry_tags, telemetry_keep, telemetry_never_raises,
     telemetry_bad_specs, telemetry_missing, attached_to_telemetry].

init_per_suite(Config) ->
    _ = application:load(erlane_metrics),
    ok = application:set_env(erlane_metrics, collectors, []),
    Config.

end_per_suite(_Config) -> ok.

init_per_testcase(Case, Config) when Case =:= answers_as_folsom; Case =:= statistics_as_folsom ->
    case application:ensure_all_started(folsom) of
        {ok, _} -> init_per_testcase(other, Config);
        {error, _} -> {skip, "apt-get install erlang-folsom"}
    end;
init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = application:stop(folsom),
    application:stop(erlane_metrics).

%%% folsom

%% The same calls to both modules; the answers are the same, term by term.
answers_as_folsom(_Config) ->
    Calls = [{new_counter, [c]}, {new_counter, [c]}, {notify, [{c, {inc, 3}}]},
             {notify, [c, {dec, 5}]}, {get_metric_value, [c]}, {notify, [{c, clear}]},
             {get_metric_value, [c]}, {notify, [c, {inc, 2}]}, {get_metric_value, [c]},
             {notify, [none, {inc, 1}]}, {notify, [{none, 1}]}, {get_metric_value, [none]},
             {notify, [made, {inc, 7}, counter]}, {get_metric_value, [made]},
             {notify, [made, {inc, 1}, counter]}, {get_metric_value, [made]},
             {notify_existing_metric, [made, {inc, 1}, counter]}, {get_metric_value, [made]},
             {new_gauge, [g]}, {get_metric_value, [g]}, {notify, [g, 42]},
             {get_metric_value, [g]}, {notify, [{g, 1.5}]}, {get_metric_value, [g]},
             {notify, [g2, 8, gauge]}, {get_metric_value, [g2]},
             {new_histogram, [h]}, {new_histogram, [h]}, {new_histogram, [h2, uniform]},
             {new_histogram, [h3, none, 100]}, {new_histogram, [h4, exdec, 100, 0.5]},
             {notify, [h, 10]}, {notify, [{h, 1.5}]}, {notify, [h5, 1, histogram]},
             {notify, [x, 1, no_such_type]}, {metric_exists, [c]}, {metric_exists, [none]},
             {safely_notify, [{c, {inc, 1}}]}, {safely_notify, [none, {inc, 1}]},
             {safely_notify, [c, {inc, 1}, counter]}, {get_metric_value, [c]},
             {histogram_timed_update, [h, fun() -> done end]},
             {histogram_timed_update, [h, fun(A) -> A end, [done]]},
             {histogram_timed_update, [h, lists, reverse, [[a, b]]]},
             {delete_metric, [c]}, {metric_exists, [c]}, {get_metric_value, [c]},
             {new_counter, [c]}, {get_metric_value, [c]},
             {new_counter, [<<"binary">>]}, {notify, [<<"binary">>, {inc, 1}]},
             {new_counter, [{a, tuple, 1}]}, {notify, [{{a, tuple, 1}, {inc, 2}}]},
             {get_metric_value, [{a, tuple, 1}]}],
    [?assertEqual({Call, apply(folsom_metrics, F, Args)}, {Call, apply(?F, F, Args)})
     || {F, Args} = Call <- Calls],
    ?assertEqual(lists:sort(folsom_metrics:get_metrics()), lists:sort(?F:get_metrics())),
    [{c, Theirs}] = folsom_metrics:get_metric_info(c),
    [{c, Ours}] = ?F:get_metric_info(c),
    ?assertEqual(proplists:get_value(type, Theirs), proplists:get_value(type, Ours)),
    ?assertEqual(ok, ?F:histogram_timed_notify(?F:histogram_timed_begin(h))).

%% With a folsom that keeps every value the percentiles are exact: ours are within 4.4 %, count
%% and mean the same.
statistics_as_folsom(_Config) ->
    rand:seed(exsss, 4711),
    Values = [round(math:exp(rand:uniform() * 10)) || _ <- lists:seq(1, 5000)],
    [begin
         ok = M:new_histogram(h, none, 10000),
         [ok = M:notify(h, V) || V <- Values]
     end || M <- [folsom_metrics, ?F]],
    Theirs = folsom_metrics:get_histogram_statistics(h),
    Ours = ?F:get_histogram_statistics(h),
    Get = fun(Key) -> {proplists:get_value(Key, Theirs), proplists:get_value(Key, Ours)} end,
    ?assertEqual({5000, 5000}, Get(n)),
    {TheirMean, OurMean} = Get(arithmetic_mean),
    ?assert(abs(TheirMean - OurMean) < 1.0e-6 * TheirMean),
    [near(Key, Get(Key)) || Key <- [min, max, median]],
    {TheirDeviation, OurDeviation} = Get(standard_deviation),
    ?assert(abs(TheirDeviation - OurDeviation) < 0.05 * TheirDeviation),
    {TheirPercentiles, OurPercentiles} = Get(percentile),
    ?assertEqual([P || {P, _} <- TheirPercentiles], [P || {P, _} <- OurPercentiles]),
    [near(P, {T, O}) || {{P, T}, {P, O}} <- lists:zip(TheirPercentiles, OurPercentiles)],
    {_, OurBins} = Get(histogram),
    ?assertEqual(5000, lists:sum([N || {_, N} <- OurBins])),
    ok = folsom_metrics:new_histogram(empty),
    ok = ?F:new_histogram(empty),
    Empty = ?F:get_histogram_statistics(empty),
    [?assertEqual({Key, V}, {Key, proplists:get_value(Key, Empty)})
     || {Key, V} <- folsom_metrics:get_histogram_statistics(empty),
        lists:keymember(Key, 1, Empty)].

near(What, {Theirs, Ours}) ->
    ?assert(abs(Theirs - Ours) =< 0.044 * Theirs, {What, Theirs, Ours}).

%% folsom keeps 1028 of them.
nothing_is_sampled(_Config) ->
    ok = ?F:new_histogram(h),
    [ok = ?F:notify(h, V) || V <- lists:seq(1, 20000)],
    Statistics = ?F:get_histogram_statistics(h),
    ?assertEqual(20000, proplists:get_value(n, Statistics)),
    ?assert(abs(proplists:get_value(arithmetic_mean, Statistics) - 10000.5) < 0.001),
    #{count := 20000} = ?F:get_metric_value(h).

folsom_gauges_and_times(_Config) ->
    ok = ?F:new_gauge(g),
    ok = ?F:notify(g, -1.25),
    ?assertEqual(-1.25, ?F:get_metric_value(g)),
    ok = ?F:new_histogram(h),
    ok = ?F:histogram_timed_notify(?F:histogram_timed_begin(h)),
    ?assertEqual(1, proplists:get_value(n, ?F:get_histogram_statistics(h))),
    %% A counter goes down, so it is a gauge.
    ok = ?F:notify(c, {dec, 2}, counter),
    ?assertEqual(-2, ?F:get_metric_value(c)),
    ?assertMatch([_], [F || #{name := <<"c">>, type := gauge} = F
                                <- erlane_metrics_walk:families()]).

folsom_errors_are_told(_Config) ->
    ok = ?F:new_counter(c),
    ok = ?F:new_gauge(g),
    ?assertError({bad_event, 1, counter}, ?F:notify(c, 1)),
    ?assertError(badarg, ?F:notify(g, text)),
    ?assertMatch({'EXIT', {badarg, _}}, ?F:safely_notify(g, text)),
    ?assertMatch({'EXIT', _}, ?F:safely_notify({c, 1})),
    {error, none, nonexistent_metric} = ?F:delete_metric(none),
    {error, none, nonexistent_metric} = ?F:get_histogram_statistics(none),
    {error, counter, unsupported_metric_type} = ?F:get_histogram_statistics(c),
    [{error, none, nonexistent_metric}] = ?F:get_metric_info(none),
    Long = binary:copy(<<"a">>, 256),
    {error, Long, {bad_option, name, _}} = ?F:new_counter(Long),
    %% Newer folsom has this way to say it.
    ok = ?F:notify(h6, 1, {histogram, uniform}),
    %% A family stays what it is when its series is deleted.
    ok = ?F:delete_metric(c),
    {error, c, {bad_option, _, _}} = ?F:new_histogram(c),
    {error, c, {bad_option, _, _}} = ?F:notify(c, 1, histogram).

%% An old name for a series with labels.
bound_to_series(_Config) ->
    Family = erlane_metrics:counter(#{name => <<"requests">>, help => <<"Requests">>,
                                      labels => [<<"status">>]}),
    ok = ?F:bind(requests_200, Family, [200]),
    ok = ?F:notify({requests_200, {inc, 4}}),
    4 = erlane_metrics:value(erlane_metrics:handle(Family, [200])),
    4 = ?F:get_metric_value(requests_200),
    ?assertError(badarg, ?F:notify({requests_200, {dec, 1}})),
    {error, requests_200, metric_already_exists} = ?F:bind(requests_200, Family, [201]),
    {error, other, {bad_labels, _, _}} = ?F:bind(other, Family, []),
    Info = erlane_metrics:info(#{name => <<"build">>, help => <<>>}),
    {error, other, {no_bridge_for, info}} = ?F:bind(other, Info, []),
    Times = erlane_metrics:histogram(#{name => <<"took">>, help => <<"Took">>,
                                       input => microsecond}),
    ok = ?E:bind([took], Times, []),
    ok = ?E:update([took], 1000),
    {ok, [{n, 1}]} = ?E:get_value([took], n),
    ok = ?F:delete_metric(requests_200),
    ?assertEqual(#{}, erlane_metrics:snapshot(Family)).

%% folsom: of many that create at once one makes it and nothing is left over.
creation_at_once(_Config) ->
    Before = ets:info(erlane_metrics_order, size),
    Self = self(),
    Pids = [spawn_link(fun() ->
                               receive go -> ok end,
                               Answer = ?F:new_histogram(h),
                               ok = ?F:notify(c, {inc, 1}, counter),
                               Self ! {self(), Answer}
                       end) || _ <- lists:seq(1, 50)],
    [P ! go || P <- Pids],
    Answers = [receive {P, Answer} -> Answer after 10000 -> late end || P <- Pids],
    ?assertEqual(1, length([A || A <- Answers, A =:= ok])),
    ?assertEqual(49, length([A || {error, h, metric_already_exists} = A <- Answers])),
    ?assertEqual(50, ?F:get_metric_value(c)),
    ?assertEqual(Before + 4, ets:info(erlane_metrics_order, size)),
    ok = ?F:delete_metric(h),
    ok = ?F:delete_metric(c),
    ?assertEqual(Before + 2, ets:info(erlane_metrics_order, size)),
    ?assertEqual([], ?F:get_metrics()),
    ?assertEqual([], ets:tab2list(erlane_metrics_bridge)).

%% Two names must not count into one series.
names_that_become_the_same(_Config) ->
    ok = ?F:new_counter('a.b'),
    {error, a_b, {name_of, {folsom, 'a.b'}}} = ?F:new_counter(a_b),
    {error, a_b, {name_of, {folsom, 'a.b'}}} = ?F:notify(a_b, {inc, 1}, counter),
    ?assertError({name_of, {folsom, 'a.b'}}, ?E:new([a, b], counter)),
    ok = ?F:delete_metric('a.b'),
    ok = ?F:new_counter(a_b).

names_of_any_term(_Config) ->
    Name = fun erlane_metrics_bridge:metric_name/1,
    [?assertEqual(Metric, Name(Term))
     || {Metric, Term} <- [{<<"a">>, a}, {<<"a_b">>, <<"a.b">>}, {<<"a_b_1">>, [a, b, 1]},
                           {<<"a_b_c">>, {a, [b, c]}}, {<<"abc">>, "abc"}, {<<"_1">>, 1},
                           {<<"_">>, ''}, {<<"_">>, <<>>}, {<<"__">>, []}, {<<"a___">>, {a, []}},
                           {<<"caf_">>, <<"caf", 195, 169>>}, {<<"__a_b__">>, [["."], a, b, "."]},
                           {<<"a_b">>, 'a-b'}]],
    %% Whatever it is, it is a name.
    [?assertEqual({ok, T}, {erlane_metrics_name:check_metric(Name(T)), T})
     || T <- [<<255, 254>>, [a | b], #{a => 1}, 1.5, self(), make_ref(), fun() -> ok end,
              [256, 1114112], <<1:3>>, {}, [[]], [$a, b]]],
    ok = ?F:new_counter(#{any => [term | 1]}),
    ok = ?F:notify(#{any => [term | 1]}, {inc, 1}),
    1 = ?F:get_metric_value(#{any => [term | 1]}).

%%% exometer

exometer_counters(_Config) ->
    ok = ?E:new([web, requests], counter),
    ok = ?E:update([web, requests], 5),
    ok = ?E:update([web, requests], -1),
    {ok, [{value, 4}, {ms_since_reset, Ms}]} = ?E:get_value([web, requests]),
    true = Ms >= 0,
    {ok, [{value, 4}]} = ?E:get_value([web, requests], value),
    {ok, [{value, 4}]} = ?E:get_value([web, requests], [value]),
    {ok, [{no_such, undefined}]} = ?E:get_value([web, requests], [no_such]),
    ok = ?E:reset([web, requests]),
    {ok, [{value, 0}]} = ?E:get_value([web, requests], value),
    {error, not_found} = ?E:update([none], 1),
    {error, not_found} = ?E:get_value([none]),
    {error, not_found} = ?E:reset([none]),
    {error, not_found} = ?E:delete([none]),
    ok = ?E:ensure([web, requests], counter, []),
    ok = ?E:update_or_create([web, errors], 2, fast_counter, []),
    ok = ?E:update_or_create([web, errors], 2, fast_counter, []),
    {ok, [{value, 4}]} = ?E:get_value([web, errors], value),
    ok = ?E:re_register([web, errors], counter, []),
    {ok, [{value, 0}]} = ?E:get_value([web, errors], value),
    [{name, [web, errors]}, {type, counter}] = ?E:info([web, errors]),
    undefined = ?E:info([none]),
    ok = ?E:new([level], gauge, []),
    ok = ?E:update([level], 0.5),
    {ok, [{value, 0.5}]} = ?E:get_value([level], value),
    ok = ?E:delete([level]),
    {error, not_found} = ?E:update([level], 1).

exometer_histograms(_Config) ->
    ok = ?E:new([took], histogram, [{truncate, false}]),
    [ok = ?E:update([took], V) || V <- lists:seq(1, 1000)],
    {ok, Values} = ?E:get_value([took]),
    ?assertEqual([n, mean, min, max, median, 50, 75, 90, 95, 99, 999], [P || {P, _} <- Values]),
    ?assertEqual(1000, proplists:get_value(n, Values)),
    ?assert(abs(proplists:get_value(mean, Values) - 500.5) < 0.001),
    [near(P, {Exact, proplists:get_value(P, Values)})
     || {P, Exact} <- [{min, 1}, {max, 1000}, {median, 500}, {90, 900}, {99, 990}, {999, 999}]],
    {ok, [{99, _}, {n, 1000}]} = ?E:get_value([took], [99, n]),
    {ok, [{95, _}]} = ?E:get_value([took], 95).

exometer_raises_as_it_does(_Config) ->
    ok = ?E:new([a], counter),
    ?assertError(exists, ?E:new([a], counter)),
    ?assertError(type_mismatch, ?E:ensure([a], gauge, [])),
    ?assertError({unknown_type, spiral}, ?E:new([b], spiral)),
    ?assertError(function_clause, ?E:update(a, 1)),
    ?assertError(badarg, ?E:update([a], text)).

%%% telemetry

spec(Type, More) ->
    maps:merge(#{type => Type, event => [web, stop], name => <<"m">>, help => <<"M">>,
                 measurement => size}, More).

run(Specs, Events) ->
    Config = ?T:config(test, Specs),
    [ok = ?T:handle_event(Event, Measurements, Metadata, Config)
     || {Event, Measurements, Metadata} <- Events],
    erlane_metrics:snapshot().

telemetry_types(_Config) ->
    Specs = [spec(Type, #{name => atom_to_binary(Type)})
             || Type <- [counter, sum, last_value, distribution, summary]]
        ++ [spec(sum, #{name => <<"both">>,
                        measurement => fun(#{size := N}, #{x := X}) -> N + X end}),
            spec(sum, #{name => <<"one">>, measurement => fun(#{size := N}) -> N * 2 end}),
            spec(counter, #{name => <<"others">>, event => [other]})],
    #{<<"counter">> := #{[] := 2}, <<"sum">> := #{[] := 30}, <<"last_value">> := #{[] := 20000},
      <<"distribution">> := #{[] := #{count := 2, sum := 30000000}},
      <<"summary">> := #{[] := #{count := 2}}, <<"both">> := #{[] := 32},
      <<"one">> := #{[] := 60}, <<"others">> := #{[] := 0},
      <<"erlane_metrics_telemetry_failures">> := #{[<<"test">>] := 0}} =
        run(Specs, [{[web, stop], #{size => N}, #{x => 1}} || N <- [10, 20]]).

%% Half a second in any unit is 0.5 seconds.
telemetry_units(_Config) ->
    Units = [second, millisecond, microsecond, nanosecond, native, perf_counter, 100],
    Half = fun(Unit) -> erlang:convert_time_unit(3, second, Unit) div 2 end,
    Specs = [spec(Type, #{name => iolist_to_binary(io_lib:format("~s_~p", [Type, Unit])),
                          unit => Unit, measurement => Unit})
             || Unit <- Units, Type <- [sum, last_value, distribution]],
    Snapshot = run(Specs, [{[web, stop], maps:from_list([{U, Half(U)} || U <- Units]), #{}}]),
    Expected = fun(second) -> 1000000000; (_) -> 1500000000 end,
    [begin
         Of = fun(Type) ->
                      Name = iolist_to_binary(io_lib:format("~s_~p_seconds", [Type, Unit])),
                      maps:get([], maps:get(Name, Snapshot))
              end,
         ?assertEqual({Unit, Expected(Unit)}, {Unit, Of(sum)}),
         ?assertEqual({Unit, Expected(Unit)}, {Unit, Of(last_value)}),
         ?assertMatch({Unit, #{count := 1}}, {Unit, Of(distribution)}),
         ?assertEqual({Unit, Expected(Unit)}, {Unit, maps:get(sum, Of(distribution))})
     end || Unit <- Units].

telemetry_tags(_Config) ->
    Specs = [spec(counter, #{tags => [method, status]}),
             spec(counter, #{name => <<"n">>, tags => [class],
                             tag_values => fun(#{status := S}) -> #{class => S div 100} end})],
    Snapshot = run(Specs, [{[web, stop], #{}, Metadata}
                           || Metadata <- [#{method => get, status => 200, other => x},
                                           #{method => <<"get">>, status => 200},
                                           #{status => 404},
                                           #{method => "list", status => 500},
                                           #{method => {a, 1.5}, status => 503}]]),
    ?assertEqual(#{[<<"get">>, <<"200">>] => 2, [<<>>, <<"404">>] => 1,
                   [<<"list">>, <<"500">>] => 1, [<<"{a,1.5}">>, <<"503">>] => 1},
                 maps:get(<<"m">>, Snapshot)),
    ?assertEqual(#{[<<"2">>] => 2, [<<"4">>] => 1, [<<"5">>] => 2}, maps:get(<<"n">>, Snapshot)).

telemetry_keep(_Config) ->
    #{<<"m">> := #{[] := 1}} =
        run([spec(counter, #{keep => fun(#{status := S}) -> S >= 500 end})],
            [{[web, stop], #{}, #{status => S}} || S <- [200, 404, 500]]).

%% Whatever is wrong with an event, the handler answers ok and the failure is counted; other
%% metrics of the same event are not touched by it.
telemetry_never_raises(_Config) ->
    Specs = [spec(sum, #{}), spec(distribution, #{name => <<"d">>}),
             spec(counter, #{name => <<"t">>, tags => [tag]}),
             spec(counter, #{name => <<"k">>, keep => fun(#{status := S}) -> S > 1 end}),
             spec(counter, #{name => <<"all">>})],
    Events = [{[web, stop], #{}, #{status => 2}}, {[web, stop], #{size => text}, #{status => 2}},
              {[web, stop], #{size => 1}, #{}}, {[web, stop], #{size => 1}, #{status => 2,
                                                                           tag => <<255>>}},
              {[web, stop], not_a_map, not_a_map}, {[web, stop], #{size => -1}, #{status => 2}},
              {[no, such], #{}, #{}}],
    #{<<"all">> := #{[] := 6},
      <<"erlane_metrics_telemetry_failures">> := #{[<<"test">>] := Failures}} =
        run(Specs, Events),
    %% Both sizes missing, both text, one without status, a tag that is no text, everything of
    %% what is no map, a sum that would go down.
    ?assertEqual(2 + 2 + 1 + 1 + 4 + 1, Failures),
    ok = ?T:forget(test),
    ok = ?T:handle_event([web, stop], #{size => 1}, #{}, ?T:config(test, [])),
    %% Even without the app.
    Config = ?T:config(test, Specs),
    ok = application:stop(erlane_metrics),
    ok = ?T:handle_event([web, stop], #{size => 1}, #{status => 2}, Config),
    ok = ?T:forget(test),
    ok = ?T:handle_event([web, stop], #{size => 1}, #{status => 2}, Config).

telemetry_bad_specs(_Config) ->
    ?assertError({bad_spec, measurement, _},
                 ?T:config(x, [maps:remove(measurement, spec(sum, #{}))])),
    ?assertError({bad_spec, type, _}, ?T:config(x, [spec(other, #{})])),
    ?assertError({bad_spec, name, _}, ?T:config(x, [maps:remove(name, spec(sum, #{}))])),
    ?assertError({bad_spec, event, _}, ?T:config(x, [maps:remove(event, spec(sum, #{}))])),
    ?assertError({bad_option, typo, _},
                 ?T:config(x, [spec(sum, #{options => #{typo => 1}})])).

telemetry_missing(_Config) ->
    non_existing = code:which(telemetry),
    {error, telemetry_missing} = ?T:attach(test, [spec(sum, #{})]).

%% A module with the three functions of telemetry that matter, as its documentation has them:
%% attach_many/4, detach/1, and execute/3, which detaches a handler that raises.
attached_to_telemetry(_Config) ->
    {module, telemetry} = load_telemetry(),
    try
        ok = ?T:attach(web, [spec(sum, #{}), spec(counter, #{name => <<"n">>, event => [b]})]),
        {error, already_exists} = ?T:attach(web, [spec(sum, #{})]),
        ok = telemetry:execute([web, stop], #{size => 3}, #{}),
        ok = telemetry:execute([web, stop], #{}, #{}),
        ok = telemetry:execute([b], #{}, #{}),
        ok = telemetry:execute([web, stop], #{size => 4}, #{}),
        #{<<"m">> := #{[] := 7}, <<"n">> := #{[] := 1},
          <<"erlane_metrics_telemetry_failures">> := #{[<<"web">>] := 1}} =
            erlane_metrics:snapshot(),
        ok = ?T:detach(web),
        {error, not_found} = ?T:detach(web),
        ok = telemetry:execute([web, stop], #{size => 4}, #{}),
        #{<<"m">> := #{[] := 7}} = erlane_metrics:snapshot()
    after
        true = code:delete(telemetry),
        _ = code:purge(telemetry),
        persistent_term:erase(telemetry_of_test)
    end.

load_telemetry() ->
    Source = "-module(telemetry).\n"
        "-export([attach_many/4, detach/1, execute/3]).\n"
        "all() -> persistent_term:get(telemetry_of_test, #{}).\n"
        "store(All) -> persistent_term:put(telemetry_of_test, All), ok.\n"
        "attach_many(Id, Events, Fun, Config) when is_list(Events), is_function(Fun, 4) ->"
        "    case all() of"
        "        #{Id := _} -> {error, already_exists};"
        "        All -> store(All#{Id => {Events, Fun, Config}})"
        "    end.\n"
        "detach(Id) ->"
        "    case all() of"
        "        #{Id := _} = All -> store(maps:remove(Id, All));"
        "        _ -> {error, not_found}"
        "    end.\n"
        "execute(Event, Measurements, Metadata) ->"
        "    [try Fun(Event, Measurements, Metadata, Config)"
        "     catch _:_ -> detach(Id)"
        "     end || {Id, {Events, Fun, Config}} <- maps:to_list(all()),"
        "            lists:member(Event, Events)],"
        "    ok.",
    {ok, Tokens, _} = erl_scan:string(Source),
    Forms = [begin {ok, Form} = erl_parse:parse_form(F), Form end || F <- split(Tokens)],
    {ok, telemetry, Beam} = compile:forms(Forms),
    code:load_binary(telemetry, "telemetry", Beam).

split([]) -> [];
split(Tokens) ->
    {Before, [Dot | After]} = lists:splitwith(fun(T) -> element(1, T) =/= dot end, Tokens),
    [Before ++ [Dot] | split(After)].
