%% SPDX-License-Identifier: Apache-2.0
%% What needs no shard: options, the placement of slots, the report of hot keys.
-module(erlane_shard_pure_SUITE).

-export([all/0]).
-export([defaults_hold/1, bad_options_are_named/1, bad_buffer_options/1, slots_of_keys/1,
         no_more_shards_than_slots/1, hot_keys/1, hot_forgets/1, hot_off/1, properties/1]).

-include_lib("stdlib/include/assert.hrl").

all() ->
    [defaults_hold, bad_options_are_named, bad_buffer_options, slots_of_keys,
     no_more_shards_than_slots, hot_keys, hot_forgets, hot_off, properties].

defaults_hold(_) ->
    {ok, Config} = erlane_shard_opts:check(#{}),
    ?assertEqual(erlane_shard_opts:defaults(), Config),
    ?assertMatch({ok, #{shards := 7, pinned := true}},
                 erlane_shard_opts:check(#{shards => 7, pinned => true})).

%% Both sides of each limit, and what is no option.
bad_options_are_named(_) ->
    [begin
         ?assertMatch({ok, #{Key := Min}}, erlane_shard_opts:check(#{Key => Min})),
         ?assertMatch({ok, #{Key := Max}}, erlane_shard_opts:check(#{Key => Max})),
         [?assertEqual({error, {Key, {badarg, Bad}}}, erlane_shard_opts:check(#{Key => Bad}))
          || Bad <- [Min - 1, Max + 1, 1.0, many]]
     end || {Key, Min, Max} <- [{shards, 1, 256}, {bound, 1, 1000000}, {hot, 0, 10000}]],
    [?assertEqual({error, {module, {badarg, Bad}}}, erlane_shard_opts:check(#{module => Bad}))
     || Bad <- [lists, {lists, []}, {no_such_module, []}, {"erlane_shard_logic", []}]],
    {ok, _} = erlane_shard_opts:check(#{module => {erlane_shard_logic, []}}),
    {error, {pinned, {badarg, 1}}} = erlane_shard_opts:check(#{pinned => 1}),
    {error, {shard, unknown_option}} = erlane_shard_opts:check(#{shard => 1}),
    {error, {options, {badarg, []}}} = erlane_shard_opts:check([]),
    {error, {bound, {badarg, 0}}} = erlane_shard:start_link(?MODULE, #{bound => 0}),
    {error, {bound, {badarg, 0}}} = erlane_shard:start(?MODULE, #{bound => 0}).

bad_buffer_options(_) ->
    [?assertError({Key, {badarg, Bad}}, erlane_shard_buffer:new(none, #{Key => Bad}))
     || {Key, Bad} <- [{max_adds, 0}, {max_adds, 1000001}, {max_adds, infinity},
                       {max_age, -1}, {max_age, 3600001}, {max_age, idle}]],
    ?assertError({age, unknown_option}, erlane_shard_buffer:new(none, #{age => 1})).

%% Keys that are equal but not the same are two keys; all slots have names of their own.
slots_of_keys(_) ->
    Names = erlane_shard_map:slots(),
    ?assertEqual(256, length(lists:usort(Names))),
    Slots = [erlane_shard_map:slot(K) || K <- lists:seq(1, 10000)],
    ?assertEqual(lists:seq(1, 256), lists:usort(Slots)),
    ?assertNotEqual(erlane_shard_map:slot(1), erlane_shard_map:slot(1.0)).

no_more_shards_than_slots(_) ->
    Placement = erlane_shard_map:new(256),
    ?assertEqual(lists:seq(1, 256), lists:sort(tuple_to_list(Placement))),
    One = erlane_shard_map:resize(Placement, 1),
    ?assertEqual([1], lists:usort(tuple_to_list(One))),
    ?assertEqual(255, length(erlane_shard_map:moves(Placement, One))).

%% Two keys of a third each are found among thousands of others, with about their share.
hot_keys(_) ->
    Keys = [case I rem 3 of 0 -> a; 1 -> b; 2 -> I end || I <- lists:seq(1, 9000)],
    Hot = lists:foldl(fun erlane_shard_hot:note/2, erlane_shard_hot:new(10), Keys),
    ?assertEqual(9000, erlane_shard_hot:total(Hot)),
    [{K1, N1}, {K2, N2} | Others] = erlane_shard_hot:top(Hot),
    ?assertEqual([a, b], lists:sort([K1, K2])),
    ?assertEqual({3000, 3000}, {N1, N2}),
    ?assertEqual(8, length(Others)).

%% What was hot once is replaced by what is hot now.
hot_forgets(_) ->
    Once = lists:foldl(fun erlane_shard_hot:note/2, erlane_shard_hot:new(2),
                       lists:duplicate(70000, once)),
    ?assert(erlane_shard_hot:total(Once) < 70000),
    Now = lists:foldl(fun erlane_shard_hot:note/2, Once, lists:duplicate(200000, now)),
    [{now, Most}, {once, Few}] = erlane_shard_hot:top(Now),
    ?assert(Most > 5 * Few).

hot_off(_) ->
    Off = erlane_shard_hot:note(a, erlane_shard_hot:new(0)),
    ?assertEqual({[], 0}, {erlane_shard_hot:top(Off), erlane_shard_hot:total(Off)}).

properties(_) ->
    [?assert(proper:quickcheck(prop_erlane_shard:Property(), [{numtests, N}, {to_file, user}]))
     || {Property, N} <- [{prop_placement, 200}, {prop_hot, 100}]].
