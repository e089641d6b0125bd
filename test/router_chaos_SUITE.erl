%% SPDX-License-Identifier: Apache-2.0
%% Nodes killed, frozen, cut off and started anew at random, under traffic. A longer run by hand,
%% with what it prints in _build/test/logs/router_chaos_SUITE.out:
%%
%%     ROUTER_CHAOS_S=1800 SUITE_TIMEOUT=2400 scripts/run-tests router_chaos
%%
%% ROUTER_CHAOS_SEED repeats the faults of an earlier run.
-module(router_chaos_SUITE).

-include_lib("common_test/include/ct.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([chaos/1]).

-define(SECONDS, 20).

suite() -> [{timetrap, {seconds, seconds() + 240}}].

all() -> [chaos].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Space = case router_space:available() of
                ok -> router_space:make(4);
                {skip, Reason} -> ct:pal("no links are cut: ~ts", [Reason]), none
            end,
    [{space, Space} | Config].

end_per_suite(Config) ->
    ok = router_nodes:close(),
    case ?config(space, Config) of
        none -> ok;
        Space -> router_space:remove(Space)
    end.

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% Order of each sender and receiver, nothing twice, nothing to a wrong incarnation, and
%% sent = confirmed + reported as dropped + reported as unconfirmed.
chaos(Config) ->
    Seed = number("ROUTER_CHAOS_SEED", erlang:system_time(second)),
    Result = router_chaos:run(#{seconds => seconds(), seed => Seed,
                                space => ?config(space, Config),
                                print => fun(Format, Args) -> io:format(user, Format, Args) end}),
    ct:pal("~p", [Result]).

seconds() -> number("ROUTER_CHAOS_S", ?SECONDS).

number(Name, Default) ->
    case os:getenv(Name) of
        false -> Default;
        Text -> list_to_integer(Text)
    end.
