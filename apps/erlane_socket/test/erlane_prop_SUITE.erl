%% SPDX-License-Identifier: Apache-2.0
%% @doc The properties of sockets (prop_erlane_socket) and of the NIF's door (prop_erlane_nif).
%% ERLANE_LONG=1 runs many more tests of each.
-module(erlane_prop_SUITE).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([as_gen_tcp/1, no_term_crashes/1]).

suite() -> [{timetrap, {minutes, 30}}].

all() -> [as_gen_tcp, no_term_crashes].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    Config.

end_per_suite(_Config) ->
    application:stop(erlane_socket).

%% The same commands answer the same over gen_tcp and over erlane, and some sockets moved.
as_gen_tcp(_Config) ->
    true = check(prop_erlane_socket:prop_as_gen_tcp(), 1000),
    true = lists:sum([Moved || #{moved := Moved} <- erlane_socket:stats()]) > 0,
    [] = erlane_socket:sockets().

%% Each function of the NIF answers each term with a value or badarg.
no_term_crashes(_Config) ->
    true = check(prop_erlane_nif:prop_no_term_crashes(), 300).

check(Property, Tests) ->
    Factor = case os:getenv("ERLANE_LONG") of "1" -> 20; _ -> 1 end,
    Opts = [{numtests, Tests * Factor}, {max_size, 40}, {to_file, user}, nocolors],
    proper:quickcheck(Property, Opts).
