%% SPDX-License-Identifier: Apache-2.0
%% The properties, with the application running.
-module(erlane_fanout_prop_SUITE).

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([topics/1, routes/1, policy/1, gaps/1, lifecycle/1]).

all() -> [topics, routes, policy, gaps, lifecycle].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_fanout),
    Config.

end_per_suite(_) ->
    application:stop(erlane_fanout).

check(Property, N) ->
    true = proper:quickcheck(Property, [{numtests, N}, {max_size, 20}, long_result])
        =:= true orelse ct:fail("~tp", [proper:counterexample()]).

topics(_) -> check(prop_erlane_fanout:prop_topics(), 1000).
routes(_) -> check(prop_erlane_fanout:prop_routes(), 100).
policy(_) -> check(prop_erlane_fanout:prop_policy(), 2000).
gaps(_) -> check(prop_erlane_fanout:prop_gap(), 60).
lifecycle(_) -> check(prop_erlane_fanout:prop_lifecycle(), 100).
