%% SPDX-License-Identifier: Apache-2.0
%% Families, labels and values one at a time; what goes wrong at the same time is in
%% erlane_metrics_regress_SUITE and erlane_metrics_stress_SUITE.
-module(erlane_metrics_core_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([options_are_checked/1, declared_again/1, names_collide/1, names_are_completed/1,
         label_values_of_any_kind/1, label_values_are_escaped/1, bad_label_values/1,
         counters_count/1, counters_with_decimals/1, counters_refuse/1, gauges_are_set/1,
         gauges_that_are_no_numbers/1, gauges_clamp/1, updown_gauges/1, groups/1, infos/1,
         state_sets/1, callbacks/1, bad_callbacks/1, deleted_series/1, deleted_kinds/1,
         limit_and_overflow/1, overflow_ends/1, time_to_live/1, snapshots_for_rates/1,
         walk_is_ordered/1, walk_and_deletion/1]).
%% logger handler
-export([log/2]).

-define(WAIT_MS, 10000).

all() ->
    [options_are_checked, declared_again, names_collide, names_are_completed,
     label_values_of_any_kind, label_values_are_escaped, bad_label_values, counters_count,
     counters_with_decimals, counters_refuse, gauges_are_set, gauges_that_are_no_numbers,
     gauges_clamp, updown_gauges, groups, infos, state_sets, callbacks, bad_callbacks,
     deleted_series, deleted_kinds, limit_and_overflow, overflow_ends, time_to_live,
     snapshots_for_rates, walk_is_ordered, walk_and_deletion].

init_per_testcase(_Case, Config) ->
    %% Pages hold what the cases make, and nothing else.
    _ = application:load(erlane_metrics),
    ok = application:set_env(erlane_metrics, collectors, []),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = logger:remove_handler(?MODULE),
    application:unset_env(erlane_metrics, callback_timeout),
    application:stop(erlane_metrics).

%% Each bad option is named, and nothing is declared.
options_are_checked(_Config) ->
    Before = length(erlane_metrics_walk:families()),
    Long = binary:copy(<<"a">>, 256),
    Bad = [{counter, name, #{name => "list"}}, {counter, name, #{name => a}},
           {counter, name, #{name => <<>>}}, {counter, name, #{name => <<"1a">>}},
           {counter, name, #{name => <<"a-b">>}}, {counter, name, #{name => <<"a\n">>}},
           {counter, name, #{name => <<"a", 0>>}}, {counter, name, #{name => Long}},
           {counter, name, #{name => <<"caf", 195, 169>>}},
           {counter, help, #{help => "list"}}, {counter, help, #{help => <<255>>}},
           {counter, unit, #{unit => seconds}}, {counter, unit, #{unit => <<"m/s">>}},
           {counter, labels, #{labels => <<"a">>}}, {counter, labels, #{labels => [a]}},
           {counter, labels, #{labels => [<<"a">>, <<"a">>]}},
           {counter, labels, #{labels => [<<"__a">>]}}, {counter, labels, #{labels => [<<>>]}},
           {counter, labels, #{labels => [<<"a:b">>]}},
           {counter, labels, #{labels => [<<"otel_metric_overflow">>]}},
           {histogram, labels, #{labels => [<<"le">>]}},
           {summary, labels, #{labels => [<<"quantile">>]}},
           {state_set, labels, #{labels => [<<"x">>], states => [<<"a">>]}},
           {counter, limit, #{limit => 0}}, {counter, ttl, #{ttl => 0}},
           {counter, ttl, #{ttl => 1.5}}, {counter, spread, #{spread => schedulers}},
           {counter, decimals, #{decimals => 10}}, {counter, mode, #{mode => set}},
           {counter, callback, #{callback => fun(X) -> X end}},
           {gauge, mode, #{mode => both}}, {gauge, typo, #{typo => 1}},
           {histogram, input, #{input => millisecond}}, {histogram, scale, #{scale => 0}},
           {histogram, scale, #{scale => 7}}, {histogram, range, #{range => {1, 1}}},
           {histogram, range, #{range => {0, 1}}}, {histogram, range, #{range => {1, 1.0e300}}},
           {histogram, range, #{range => {1.0e-300, 1}}},
           {histogram, range, #{input => one, range => {1, 1 bsl 53}}},
           {histogram, buckets, #{buckets => []}}, {histogram, buckets, #{buckets => [1, 1]}},
           {histogram, buckets, #{buckets => [2, 1]}}, {histogram, buckets, #{buckets => [-1]}},
           {histogram, buckets, #{buckets => [1, infinity]}},
           {histogram, buckets, #{buckets => [1 bsl 30]}},
           {histogram, scale, #{buckets => [1], scale => 3}},
           {histogram, range, #{buckets => [1], range => {1, 2}}},
           {histogram, decimals, #{decimals => 3}}, {histogram, spread, #{spread => own}},
           {summary, quantiles, #{quantiles => [1.1]}}, {summary, quantiles, #{quantiles => []}},
           {group, counters, #{}}, {group, counters, #{counters => []}},
           {group, counters, #{counters => [{<<"a">>, <<>>}, {<<"a">>, <<>>}]}},
           {group, counters, #{counters => [<<"a">>]}},
           {group, counters,
            #{counters => [{<<"c", (I + $0)>>, <<>>} || I <- lists:seq(1, 9)]}},
           {state_set, states, #{}}, {state_set, states, #{states => []}},
           {state_set, states, #{states => [a]}}, {info, unknown, #{unknown => 1}}],
    Good = #{name => <<"x">>, help => <<>>},
    [?assertError({bad_option, Key, _}, erlane_metrics:Type(maps:merge(Good, Opts)))
     || {Type, Key, Opts} <- Bad],
    ?assertError({bad_option, name, missing}, erlane_metrics:counter(#{help => <<>>})),
    ?assertError({bad_option, help, missing}, erlane_metrics:counter(#{name => <<"x">>})),
    ?assertError({bad_option, options, _}, erlane_metrics:counter([])),
    ?assertEqual(Before, length(erlane_metrics_walk:families())).

%% The same declaration is the same family; another one names the option that differs.
declared_again(_Config) ->
    Opts = #{name => <<"x">>, help => <<"h">>, labels => [<<"a">>]},
    F = erlane_metrics:counter(Opts),
    ?assertEqual(F, erlane_metrics:counter(Opts#{limit => 2000})),
    [?assertError({bad_option, Key, {declared_before_as, _}}, erlane_metrics:counter(Other))
     || {Key, Other} <- [{help, Opts#{help => <<"other">>}}, {labels, Opts#{labels => []}},
                         {limit, Opts#{limit => 1}}, {ttl, Opts#{ttl => 1}},
                         {storage, Opts#{spread => own}}]],
    ?assertError({bad_option, type, _}, erlane_metrics:gauge(Opts)).

%% Two families may not put a sample of the same name on a page.
names_collide(_Config) ->
    New = fun(Type, Name) -> erlane_metrics:Type(#{name => Name, help => <<>>}) end,
    _ = New(histogram, <<"a_seconds">>),
    [?assertError({bad_option, name, {collides, _, <<"a_seconds">>}}, New(Type, Name))
     || {Type, Name} <- [{gauge, <<"a_seconds_count">>}, {gauge, <<"a_seconds_bucket">>},
                         {counter, <<"a_seconds_sum">>}, {gauge, <<"a_seconds_created">>}]],
    _ = New(counter, <<"b">>),
    ?assertError({bad_option, name, _}, New(gauge, <<"b_total">>)),
    _ = New(gauge, <<"c_total">>),
    ?assertError({bad_option, name, _}, New(counter, <<"c">>)),
    _ = erlane_metrics:group(#{name => <<"g">>, help => <<>>, counters => [{<<"d">>, <<>>}]}),
    ?assertError({bad_option, name, _}, New(counter, <<"g_d">>)),
    ?assertError({bad_option, name, _}, New(gauge, <<"g_d_total">>)),
    _ = New(info, <<"i">>),
    ?assertError({bad_option, name, _}, New(gauge, <<"i_info">>)).

%% Units end the names; what the page adds by itself is taken off.
names_are_completed(_Config) ->
    _ = [erlane_metrics:Type(Opts#{help => <<>>})
         || {Type, Opts} <- [{counter, #{name => <<"a_total">>}},
                             {counter, #{name => <<"b_total">>, unit => <<"bytes">>}},
                             {counter, #{name => <<"c_bytes">>, unit => <<"bytes">>}},
                             {histogram, #{name => <<"d">>}},
                             {histogram, #{name => <<"e_seconds">>}},
                             {histogram, #{name => <<"f">>, input => one}},
                             {info, #{name => <<"g_info">>}}]],
    ?assertEqual([{<<"a">>, <<>>}, {<<"b_bytes">>, <<"bytes">>}, {<<"c_bytes">>, <<"bytes">>},
                  {<<"d_seconds">>, <<"seconds">>}, {<<"e_seconds">>, <<"seconds">>},
                  {<<"f">>, <<>>}, {<<"g">>, <<>>}],
                 [{N, U} || {#{name := N, unit := U}, _} <- page()]).

%% 200, '200' and <<"200">> are one series, 200 and 201 two.
label_values_of_any_kind(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>, <<"b">>]}),
    [ok = erlane_metrics:inc(erlane_metrics:handle(F, [get, V]))
     || V <- [200, '200', <<"200">>, 201]],
    ?assertEqual(#{[<<"get">>, <<"200">>] => 3, [<<"get">>, <<"201">>] => 1},
                 erlane_metrics:snapshot(F)),
    ?assertEqual(true, erlane_metrics:delete(F, [get, 200])),
    ?assertEqual(false, erlane_metrics:delete(F, [get, 200])).

%% Text is escaped once; the labels themselves stay as they were.
label_values_are_escaped(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>, <<"b">>]}),
    Value = <<"q\"b\\n\n", 195, 169, 0, 9>>,
    _ = erlane_metrics:handle(F, [Value, <<>>]),
    [{_, [{Text, Labels, 0, Created}]}] = page(),
    ?assertEqual(<<"a=\"q\\\"b\\\\n\\n", 195, 169, 0, 9, "\",b=\"\"">>, Text),
    ?assertEqual([{<<"a">>, Value}, {<<"b">>, <<>>}], Labels),
    ?assert(abs(erlang:system_time(millisecond) - Created) < 60000).

%% What cannot be a label value is told by the name of its label.
bad_label_values(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>, <<"b">>]}),
    H = fun(Labels) -> erlane_metrics:handle(F, Labels) end,
    ?assertError({bad_label_value, <<"b">>, {not_utf8, <<255>>}}, H([a, <<255>>])),
    ?assertError({bad_label_value, <<"b">>, {not_utf8, _}}, H([a, <<237, 160, 128>>])),
    ?assertError({bad_label_value, <<"a">>, {not_utf8, _}}, H([<<195>>, <<>>])),
    ?assertError({bad_label_value, <<"a">>, {too_long, 4097}},
                 H([binary:copy(<<"x">>, 4097), a])),
    _ = H([binary:copy(<<"x">>, 4096), a]),
    [?assertError({bad_labels, {expected, 2}, Labels}, H(Labels))
     || Labels <- [[], [a], [a, b, c], a, <<"a">>, #{}]],
    [?assertError({bad_label_value, not_binary_atom_or_integer, V}, H([a, V]))
     || V <- ["list", 1.0, {}, <<1:3>>]],
    ?assertEqual(1, map_size(erlane_metrics:snapshot(F))).

%% Dense and own arrays; up to 2^64.
counters_count(_Config) ->
    [begin
         F = erlane_metrics:counter(#{name => Name, help => <<>>, spread => Spread}),
         H = erlane_metrics:handle(F, []),
         ok = erlane_metrics:inc(H),
         ok = erlane_metrics:add(H, 0),
         ok = erlane_metrics:add(H, 41),
         ?assertEqual(42, erlane_metrics:value(H)),
         ok = erlane_metrics:add(H, 1 bsl 63 - 1),
         ok = erlane_metrics:add(H, 1 bsl 63 - 42),
         ?assertEqual(1 bsl 64 - 1, erlane_metrics:value(H)),
         ok = erlane_metrics:inc(H),
         ?assertEqual(0, erlane_metrics:value(H))
     end || {Name, Spread} <- [{<<"x">>, dense}, {<<"y">>, own}]].

counters_with_decimals(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, decimals => 3}),
    H = erlane_metrics:handle(F, []),
    [ok = erlane_metrics:add(H, V) || V <- [1, 0.5, 0.0004, 1.0e-3]],
    ok = erlane_metrics:inc(H),
    ?assertEqual(2501, erlane_metrics:value(H)),
    [?assertError(badarg, erlane_metrics:add(H, V)) || V <- [-0.5, -1, 1.0e300, 1 bsl 63]].

%% A counter does not go back, and takes integers only.
counters_refuse(_Config) ->
    H = erlane_metrics:handle(erlane_metrics:counter(#{name => <<"x">>, help => <<>>}), []),
    [?assertError(badarg, erlane_metrics:add(H, V))
     || V <- [-1, 1.0, 1 bsl 64, nan, infinity, <<"1">>]],
    ?assertError(badarg, erlane_metrics:dec(H)),
    ?assertError(badarg, erlane_metrics:set(H, 1)),
    ?assertError(badarg, erlane_metrics:observe(H, 1)),
    ?assertError(badarg, erlane_metrics:add(H, 1, 1)),
    ?assertError(badarg, erlane_metrics:inc(no_handle)),
    ?assertEqual(0, erlane_metrics:value(H)).

gauges_are_set(_Config) ->
    H = gauge(#{decimals => 2}),
    [begin
         ok = erlane_metrics:set(H, V),
         ?assertEqual({V, Expected}, {V, erlane_metrics:value(H)})
     end || {V, Expected} <- [{5, 500}, {-5, -500}, {1.25, 125}, {1.256, 126}, {-0.004, 0},
                              {0.0, 0}]],
    ok = erlane_metrics:inc(H),
    ok = erlane_metrics:add(H, 0.5),
    ok = erlane_metrics:add(H, -3),
    ok = erlane_metrics:dec(H),
    ?assertEqual(-250, erlane_metrics:value(H)),
    [?assertError(badarg, erlane_metrics:set(H, V)) || V <- [abc, <<"1">>, [1], undefined]],
    [?assertError(badarg, erlane_metrics:add(H, V)) || V <- [abc, <<"1">>]].

%% NaN and the infinities are kept, and adding does not change them.
gauges_that_are_no_numbers(_Config) ->
    H = gauge(#{}),
    [begin
         ok = erlane_metrics:set(H, V),
         ok = erlane_metrics:inc(H),
         ok = erlane_metrics:add(H, -1.0e300),
         ?assertEqual(V, erlane_metrics:value(H))
     end || V <- [nan, infinity, neg_infinity]],
    ok = erlane_metrics:set(H, 1),
    ?assertEqual(1, erlane_metrics:value(H)).

%% What does not fit is clamped and counted, and is still a number.
gauges_clamp(_Config) ->
    H = gauge(#{decimals => 9}),
    Max = (1 bsl 63) - 2,
    Clamped = fun() -> [V] = [V || {#{name := <<"erlane_metrics_clamped">>}, [{_, _, V, _}]}
                                       <- whole_page()],
                       V
              end,
    Before = Clamped(),
    [begin
         ok = erlane_metrics:set(H, V),
         ?assertEqual({V, Expected}, {V, erlane_metrics:value(H)})
     end || {V, Expected} <- [{1 bsl 100, Max}, {1.0e300, Max}, {1.0e18, Max},
                              {-(1 bsl 100), -Max}, {-1.0e300, -Max}]],
    ok = erlane_metrics:set(H, 1 bsl 80),
    ok = erlane_metrics:inc(H),
    ?assertEqual(Max, erlane_metrics:value(H)),
    ?assertEqual(Before + 7, Clamped()).

updown_gauges(_Config) ->
    H = gauge(#{mode => updown, decimals => 1}),
    ok = erlane_metrics:inc(H),
    ok = erlane_metrics:dec(H),
    ok = erlane_metrics:dec(H),
    ok = erlane_metrics:add(H, 0.5),
    ok = erlane_metrics:add(H, -7),
    ?assertEqual(-75, erlane_metrics:value(H)),
    ?assertError(badarg, erlane_metrics:set(H, 1)),
    [?assertError(badarg, erlane_metrics:add(H, V)) || V <- [1 bsl 63, 1.0e300, nan]].

%% Counters side by side, exposed as a family each.
groups(_Config) ->
    F = erlane_metrics:group(#{name => <<"g">>, help => <<"group">>, labels => [<<"l">>],
                               counters => [{<<"a">>, <<"help a">>}, {<<"b_total">>, <<>>}]}),
    H = erlane_metrics:handle(F, [x]),
    ok = erlane_metrics:add(H, 1, 5),
    ok = erlane_metrics:add(H, 2, 1 bsl 31),
    ok = erlane_metrics:add(H, 2, 1),
    ?assertEqual({5, 2147483649}, erlane_metrics:value(H)),
    ?assertEqual(#{[<<"x">>] => {5, 2147483649}}, erlane_metrics:snapshot(F)),
    [?assertError(badarg, erlane_metrics:add(H, I, V))
     || {I, V} <- [{0, 1}, {3, 1}, {a, 1}, {1, -1}, {1, 1.0}, {1, 1 bsl 64}]],
    ?assertError(badarg, erlane_metrics:inc(H)),
    ?assertMatch([{#{name := <<"g_a">>, type := counter, help := <<"help a">>},
                   [{<<"l=\"x\"">>, _, 5, _}]},
                  {#{name := <<"g_b">>, type := counter}, [{_, _, 2147483649, _}]}], page()).

infos(_Config) ->
    F = erlane_metrics:info(#{name => <<"build_info">>, help => <<>>}),
    H = erlane_metrics:handle(F, []),
    ?assertEqual([], erlane_metrics:value(H)),
    Pairs = [{<<"version">>, <<"1.0">>}, {<<"odd">>, <<"\"\n">>}],
    ok = erlane_metrics:set(H, Pairs),
    ?assertEqual(Pairs, erlane_metrics:value(H)),
    [?assertError(badarg, erlane_metrics:set(H, Bad))
     || Bad <- [[{<<"1">>, <<>>}], [{<<"a">>, <<255>>}], [{a, <<>>}], [{<<"a">>, b}], [x], x,
                [{<<"a">>, <<>>}, {<<"a">>, <<>>}]]],
    ?assertMatch([{#{type := info, name := <<"build">>}, [{<<>>, [], Pairs, _}]}], page()).

state_sets(_Config) ->
    F = erlane_metrics:state_set(#{name => <<"s">>, help => <<>>,
                                   states => [<<"a">>, <<"b">>, <<"c">>]}),
    H = erlane_metrics:handle(F, []),
    ?assertEqual([false, false, false], erlane_metrics:value(H)),
    ok = erlane_metrics:set(H, <<"b">>),
    ?assertEqual([false, true, false], erlane_metrics:value(H)),
    ok = erlane_metrics:set(H, [<<"c">>, <<"a">>]),
    ?assertEqual([true, false, true], erlane_metrics:value(H)),
    [?assertError(badarg, erlane_metrics:set(H, Bad)) || Bad <- [<<"d">>, a, 1, [<<"d">>], nan]],
    ?assertEqual([true, false, true], erlane_metrics:value(H)),
    ?assertMatch([{#{type := stateset, states := [<<"a">>, <<"b">>, <<"c">>]}, [_]}], page()).

%% A function gives the values when they are asked for.
callbacks(_Config) ->
    F = erlane_metrics:gauge(#{name => <<"x">>, help => <<>>, callback => fun() -> 7 end}),
    _ = erlane_metrics:counter(#{name => <<"y">>, help => <<>>, labels => [<<"a">>],
                                 decimals => 1,
                                 callback => fun() -> [{[b], 1}, {[c], 2.5}, {[b], 9}] end}),
    _ = erlane_metrics:gauge(#{name => <<"z">>, help => <<>>, callback => fun() -> nan end}),
    ?assertError(callback_family, erlane_metrics:handle(F, [])),
    ?assertMatch([{#{name := <<"x">>}, [{<<>>, [], 7, _}]},
                  {#{name := <<"y">>}, [{<<"a=\"b\"">>, [{<<"a">>, <<"b">>}], 10, _},
                                        {<<"a=\"c\"">>, _, 25, _}]},
                  {#{name := <<"z">>}, [{_, _, nan, _}]}], page()).

%% One that raises, hangs, lies or grows costs its own family, and only that.
bad_callbacks(_Config) ->
    ok = application:set_env(erlane_metrics, callback_timeout, 200),
    Grow = fun G(L) -> G([L, lists:seq(1, 1000)]) end,
    Bad = [fun() -> error(x) end, fun() -> exit(normal) end, fun() -> throw(1) end,
           fun() -> receive never -> 1 end end, fun() -> text end, fun() -> {1} end,
           fun() -> [1] end, fun() -> [{[a], 1}] end, fun() -> [{[], <<>>}] end,
           fun() -> [{[], 1} | x] end, fun() -> Grow([]) end],
    [erlane_metrics:gauge(#{name => <<"x", (integer_to_binary(I))/binary>>, help => <<>>,
                            callback => F})
     || {I, F} <- lists:zip(lists:seq(1, length(Bad)), Bad)],
    _ = erlane_metrics:gauge(#{name => <<"y">>, help => <<>>, limit => 1, labels => [<<"a">>],
                               callback => fun() -> [{[a], 1}, {[b], 1}] end}),
    _ = erlane_metrics:gauge(#{name => <<"z">>, help => <<>>, callback => fun() -> 1 end}),
    Page = page(),
    ?assertEqual(length(Bad) + 2, length(Page)),
    ?assertMatch([{#{name := <<"z">>}, [_]}], [F || {_, [_ | _]} = F <- Page]),
    receive Message -> ct:fail({left_in_mailbox, Message}) after 0 -> ok end.

%% A handle outlives its series and reaches no other; a new series starts anew.
deleted_series(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>]}),
    Old = erlane_metrics:handle(F, [one]),
    ok = erlane_metrics:inc(Old),
    [{_, [{_, _, 1, Created}]}] = page(),
    ?assert(erlane_metrics:alive(Old)),
    ?assert(erlane_metrics:delete(F, [one])),
    ?assertNot(erlane_metrics:alive(Old)),
    ?assertNot(erlane_metrics:delete(F, [one])),
    ok = erlane_metrics:inc(Old),
    ?assertEqual(#{}, erlane_metrics:snapshot(F)),
    wait(fun() -> erlang:system_time(millisecond) > Created end),
    New = erlane_metrics:handle(F, [one]),
    %% More series than a slab holds, made and deleted: none gets the old one's place.
    [begin
         H = erlane_metrics:handle(F, [I]),
         ok = erlane_metrics:inc(Old),
         ?assertEqual(0, erlane_metrics:value(H)),
         ?assert(erlane_metrics:delete(F, [I])),
         ?assertNot(erlane_metrics:alive(H))
     end || I <- lists:seq(1, 300)],
    ?assert(erlane_metrics:alive(New)),
    [{_, [{_, _, 0, Again}]}] = page(),
    ?assert(Again > Created).

%% The same for every kind that stores.
deleted_kinds(_Config) ->
    Opts = #{help => <<>>, labels => [<<"l">>]},
    Kinds = [{counter, #{}, fun erlane_metrics:inc/1},
             {counter, #{spread => own}, fun erlane_metrics:inc/1},
             {counter, #{decimals => 1}, fun erlane_metrics:inc/1},
             {gauge, #{}, fun(H) -> erlane_metrics:set(H, 5) end},
             {gauge, #{mode => updown}, fun erlane_metrics:dec/1},
             {histogram, #{}, fun(H) -> erlane_metrics:observe(H, 5) end},
             {histogram, #{spread => shared}, fun(H) -> erlane_metrics:observe(H, 5) end},
             {summary, #{}, fun(H) -> erlane_metrics:observe(H, 5) end},
             {group, #{counters => [{<<"a">>, <<>>}]}, fun(H) -> erlane_metrics:add(H, 1, 5) end},
             {info, #{}, fun(H) -> erlane_metrics:set(H, [{<<"a">>, <<"b">>}]) end},
             {state_set, #{states => [<<"a">>]}, fun(H) -> erlane_metrics:set(H, <<"a">>) end}],
    [begin
         Name = <<"k", (integer_to_binary(I))/binary>>,
         F = erlane_metrics:Type(maps:merge(Opts#{name => Name}, More)),
         Old = erlane_metrics:handle(F, [x]),
         Empty = erlane_metrics:value(Old),
         ok = Update(Old),
         ?assertNotEqual({Type, Empty}, {Type, erlane_metrics:value(Old)}),
         ?assert(erlane_metrics:alive(Old)),
         ?assert(erlane_metrics:delete(F, [x])),
         ?assertNot(erlane_metrics:alive(Old)),
         New = erlane_metrics:handle(F, [x]),
         ok = Update(Old),
         ?assertEqual({Type, Empty}, {Type, erlane_metrics:value(New)}),
         ?assert(erlane_metrics:alive(New)),
         ?assertNot(erlane_metrics:alive(Old))
     end || {I, {Type, More, Update}} <- lists:zip(lists:seq(1, length(Kinds)), Kinds)].

%% At the limit unknown labels share one series, without the registry, told once.
limit_and_overflow(_Config) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>],
                                 limit => 3}),
    Known = [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 3)],
    Over = erlane_metrics:handle(F, [4]),
    ok = sys:suspend(erlane_metrics_registry),
    ?assertEqual([Over || _ <- lists:seq(1, 1000)],
                 [erlane_metrics:handle(F, [I]) || I <- lists:seq(4, 1003)]),
    ?assertEqual(Over, erlane_metrics:handle(F, [<<255>>])),
    ?assertEqual(Known, [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 3)]),
    ok = sys:resume(erlane_metrics_registry),
    ok = erlane_metrics:inc(Over),
    Page = whole_page(),
    [[{<<"otel_metric_overflow=\"true\"">>, [{<<"otel_metric_overflow">>, <<"true">>}], 1, _} |
      Rest]] = [Series || {#{name := <<"x">>}, Series} <- Page],
    ?assertEqual(3, length(Rest)),
    [Overflowed] = [V || {#{name := <<"erlane_metrics_overflowed">>}, [{_, _, V, _}]} <- Page],
    ?assert(Overflowed >= 1002),
    ?assertEqual(1, erlane_metrics:value(Over)),
    receive {log, Text} -> ?assertMatch({match, _}, re:run(Text, "x has its limit of 3 series"))
    after ?WAIT_MS -> ct:fail(nothing_logged)
    end,
    receive {log, Again} -> ct:fail({logged_again, Again}) after 0 -> ok end.

%% After a deletion there is room again, and the overflow series stays.
overflow_ends(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>],
                                 limit => 1}),
    _ = erlane_metrics:handle(F, [1]),
    Over = erlane_metrics:handle(F, [2]),
    ?assert(erlane_metrics:delete(F, [1])),
    Two = erlane_metrics:handle(F, [2]),
    ?assertNotEqual(Over, Two),
    ?assertEqual(Over, erlane_metrics:handle(F, [3])),
    ok = erlane_metrics:inc(Over),
    ?assertEqual(#{overflow => 1, [<<"2">>] => 0}, erlane_metrics:snapshot(F)).

%% Series that nobody changes go after their time; the others stay.
time_to_live(_Config) ->
    F = erlane_metrics:histogram(#{name => <<"x">>, help => <<>>, labels => [<<"a">>],
                                   ttl => 1}),
    Idle = erlane_metrics:handle(F, [idle]),
    Busy = erlane_metrics:handle(F, [busy]),
    Forever = erlane_metrics:handle(erlane_metrics:counter(#{name => <<"y">>, help => <<>>}), []),
    ok = erlane_metrics:observe(Idle, 1),
    wait(fun() ->
                 ok = erlane_metrics:observe(Busy, 0),
                 not erlane_metrics:alive(Idle)
         end),
    ?assertEqual([[<<"busy">>]], maps:keys(erlane_metrics:snapshot(F))),
    ?assert(erlane_metrics:alive(Busy)),
    ?assert(erlane_metrics:alive(Forever)),
    wait(fun() -> not erlane_metrics:alive(Busy) end),
    ?assertEqual(#{}, erlane_metrics:snapshot(F)).

%% Reading resets nothing: a rate is the difference of two snapshots.
snapshots_for_rates(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"a">>]}),
    H = erlane_metrics:handle(F, [a]),
    ok = erlane_metrics:add(H, 10),
    #{[<<"a">>] := First} = erlane_metrics:snapshot(F),
    ok = erlane_metrics:add(H, 5),
    #{<<"x">> := #{[<<"a">>] := Second}} = erlane_metrics:snapshot(),
    ?assertEqual({10, 15}, {First, Second}),
    ?assertEqual(#{[<<"a">>] => 15}, erlane_metrics:snapshot(F)).

%% Families in the order of their names, their series after them, each once, in pieces.
walk_is_ordered(_Config) ->
    Names = [<<"b">>, <<"a">>, <<"a_b">>, <<"c">>, <<"A">>],
    [begin
         F = erlane_metrics:counter(#{name => N, help => <<>>, labels => [<<"l">>]}),
         [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 700)]
     end || N <- Names],
    Page = page(),
    ?assertEqual(lists:sort(Names), [N || {#{name := N}, _} <- Page]),
    [begin
         ?assertEqual(700, length(Series)),
         ?assertEqual(700, length(lists:usort([Text || {Text, _, _, _} <- Series])))
     end || {_, Series} <- Page].

%% A pass meets each series that lives through it once, whatever is deleted meanwhile.
walk_and_deletion(_Config) ->
    F = erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"l">>]}),
    [erlane_metrics:handle(F, [I]) || I <- lists:seq(1000, 1999)],
    Met = erlane_metrics_walk:fold(
        fun({series, {_, [{_, L}], _, _}}, Acc) ->
                %% The one behind, this one, and the one 300 places ahead, not yet fetched.
                N = binary_to_integer(L),
                [erlane_metrics:delete(F, [I]) || I <- [N - 1, N, N + 300], N rem 3 =:= 0],
                [N | Acc];
           (_, Acc) -> Acc
        end, []),
    ?assertEqual(length(Met), length(lists:usort(Met))),
    Left = [binary_to_integer(L) || [L] <- maps:keys(erlane_metrics:snapshot(F))],
    ?assertEqual([], Left -- Met),
    ?assert(length(Met) < 1000),
    ?assert(length(Left) < 700).

%% Helpers

gauge(Opts) ->
    erlane_metrics:handle(erlane_metrics:gauge(Opts#{name => <<"x">>, help => <<>>}), []).

%% [{Family, Series}], without the families that the app has of itself.
page() ->
    [F || {#{name := Name}, _} = F <- whole_page(),
          binary:match(Name, <<"erlane_metrics_">>) =:= nomatch].

whole_page() ->
    lists:reverse([{F, lists:reverse(S)}
                   || {F, S} <- erlane_metrics_walk:fold(
                          fun({family, F}, Acc) -> [{F, []} | Acc];
                             ({series, S}, [{F, Series} | Acc]) -> [{F, [S | Series]} | Acc]
                          end, [])]).

wait(Fun) -> wait(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

wait(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < Deadline),
            receive after 10 -> wait(Fun, Deadline) end
    end.

log(#{msg := {Format, Args}, level := warning}, #{config := Pid}) when is_list(Format) ->
    Pid ! {log, io_lib:format(Format, Args)},
    ok;
log(_, _) -> ok.
