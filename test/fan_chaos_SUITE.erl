%% SPDX-License-Identifier: Apache-2.0
%% Subscribers, publishers, lanes and nodes killed at random. A longer run by hand:
%%
%%     FAN_CHAOS=600 SUITE_TIMEOUT=900 scripts/run-tests fan_chaos
%%
%% With FAN_CHAOS_HARD a node is frozen now and then as well, and publishers are held up: more may
%% come then than a lane of the other node has room for.
%%
%% FAN_CHAOS_SEED repeats what was killed in an earlier run.
-module(fan_chaos_SUITE).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([chaos/1]).

-define(SECONDS, 30).

suite() -> [{timetrap, {seconds, number("FAN_CHAOS", ?SECONDS) + 150}}].

all() -> [chaos].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Config.

end_per_suite(_) ->
    router_nodes:close().

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% Nothing twice, order of each publisher, what is missing lies in gaps, numbers that follow one
%% another; at the end everybody gets everything again, and nothing of the dead is left.
chaos(_) ->
    Seed = number("FAN_CHAOS_SEED", erlang:system_time(second)),
    ct:pal("FAN_CHAOS_SEED=~b", [Seed]),
    Done = fan_chaos:run(#{seconds => number("FAN_CHAOS", ?SECONDS), seed => Seed,
                           hard => os:getenv("FAN_CHAOS_HARD") =/= false}),
    ct:pal("~0p", [Done]).

number(Name, Default) ->
    case os:getenv(Name) of
        false -> Default;
        Text -> list_to_integer(Text)
    end.
