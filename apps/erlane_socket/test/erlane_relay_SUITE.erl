%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: how a relay ends, seen from both peers and from who began it.
-module(erlane_relay_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([
    reset_despite_linger/1, reset_is_shown_to_all/1, stop_flush_is_a_clean_end/1,
    first_bytes_go_first/1
]).

-define(ERLANE, [{backend, erlane}]).
-define(STOCK, [{backend, stock}]).
-define(WAIT_MS, 5000).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [reset_despite_linger, reset_is_shown_to_all, stop_flush_is_a_clean_end, first_bytes_go_first].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    Config.

end_per_suite(_Config) -> application:stop(erlane_socket).

end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% A relay of two accepted connections: its reference and the peers' ends.
relayed(ListenOpts, RelayOpts) ->
    {L, Port} = erlane_ct:listen(?ERLANE, [binary, {active, false} | ListenOpts]),
    Ends = [erlane_ct:connect(?STOCK, Port, [binary, {active, false}, {exit_on_close, false},
                                             {show_econnreset, true}]) || _ <- [a, b]],
    [A, B] = [erlane_ct:accept(L) || _ <- [a, b]],
    {ok, Relay} = erlane_socket:relay(A, B, RelayOpts),
    {Relay, Ends}.

reset(Socket) ->
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Socket).

result(Relay) ->
    receive {erlane_relay, Relay, #{reason := Reason}} -> Reason
    after ?WAIT_MS -> error(no_result)
    end.

%% One peer resets while the other's socket has a linger time, which close(2) would honour with
%% a clean end.
reset_despite_linger(_Config) ->
    {Relay, [One, Two]} = relayed([{linger, {true, 5}}], #{}),
    ok = gen_tcp:send(One, "x"),
    ?assertEqual({ok, <<"x">>}, gen_tcp:recv(Two, 1, ?WAIT_MS)),
    reset(One),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Two, 0, ?WAIT_MS)),
    ?assertEqual(reset, result(Relay)).

%% Again and again, for what an accepted socket starts with must not be left to chance.
reset_is_shown_to_all(_Config) ->
    _ = [begin
             {Relay, [One, Two]} = relayed([], #{}),
             reset(case N rem 2 of 0 -> One; 1 -> Two end),
             Other = case N rem 2 of 0 -> Two; 1 -> One end,
             ?assertEqual({error, econnreset}, gen_tcp:recv(Other, 0, ?WAIT_MS)),
             ?assertEqual(reset, result(Relay))
         end || N <- lists:seq(1, 200)],
    ok.

stop_flush_is_a_clean_end(_Config) ->
    {Relay, [One, Two]} = relayed([], #{}),
    ok = erlane_socket:relay_stop(Relay, flush),
    ?assertEqual(closed, result(Relay)),
    [?assertEqual({error, closed}, gen_tcp:recv(End, 0, ?WAIT_MS)) || End <- [One, Two]],
    {Hard, Ends} = relayed([], #{}),
    ok = erlane_socket:relay_stop(Hard, reset),
    ?assertEqual(closed, result(Hard)),
    [?assertEqual({error, econnreset}, gen_tcp:recv(End, 0, ?WAIT_MS)) || End <- Ends].

first_bytes_go_first(_Config) ->
    {_, [One, Two]} = relayed([], #{to_b => ["read ", <<"before">>], to_a => <<"and back">>}),
    ok = gen_tcp:send(One, ", then this"),
    ?assertEqual({ok, <<"read before, then this">>}, gen_tcp:recv(Two, 22, ?WAIT_MS)),
    ?assertEqual({ok, <<"and back">>}, gen_tcp:recv(One, 8, ?WAIT_MS)).
