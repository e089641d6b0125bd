%% SPDX-License-Identifier: Apache-2.0
%% @doc Statistics, info and monitors of a socket.
-module(erlane_tcp_info_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    getstat_counts/1, getstat_forms/1, info_keys/1, monitors/1, monitor_cancel/1,
    monitor_closed/1, monitor_eof/1
]).

-import(erlane_ct, [
    listen/2, pair/1, pair/2, async/1, await/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        getstat_counts, getstat_forms, info_keys, monitors, monitor_cancel, monitor_closed,
        monitor_eof
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

getstat_counts(Config) ->
    {C, S} = pair(Config, [{packet, 2}]),
    [ok = gen_tcp:send(C, binary:copy(<<0>>, N)) || N <- [10, 20, 30]],
    [{ok, _} = gen_tcp:recv(S, 0, 5000) || _ <- [1, 2, 3]],
    Keys = [send_cnt, send_oct, send_max, send_avg, send_pend],
    ?assertEqual(
        {ok, lists:zip(Keys, [3, 66, 32, 22, 0])},
        inet:getstat(C, Keys)
    ),
    ?assertEqual(
        {ok, [{recv_oct, 66}, {recv_cnt, 3}, {recv_max, 32}, {recv_avg, 22}]},
        inet:getstat(S, [recv_oct, recv_cnt, recv_max, recv_avg])
    ).

getstat_forms(Config) ->
    {C, _} = pair(Config),
    {ok, All} = inet:getstat(C),
    ?assertEqual(lists:sort(inet:stats()), lists:sort([K || {K, _} <- All])),
    [?assertMatch({ok, [{K, N}]} when is_integer(N), inet:getstat(C, [K])) || K <- inet:stats()],
    ?assertEqual({ok, []}, inet:getstat(C, [])),
    ?assertEqual({error, einval}, inet:getstat(C, [foo])),
    ?assertEqual({error, einval}, inet:getstat(C, [send_oct, foo])).

info_keys(Config) ->
    {C, S} = pair(Config),
    ok = gen_tcp:send(C, "abc"),
    {ok, _} = gen_tcp:recv(S, 3, 5000),
    Self = self(),
    ?assertMatch(#{owner := Self, counters := #{send_oct := 3}}, inet:info(C)),
    erlane_ct:backend(Config) =:= erlane andalso
        begin
            ?assertMatch(#{rstates := [_ | _], wstates := [_ | _], type := stream}, inet:info(C)),
            {L, _} = listen(Config, []),
            Taker = async(fun() -> gen_tcp:accept(L) end),
            erlane_ct:wait_until(fun() -> maps:get(num_acceptors, inet:info(L)) =:= 1 end),
            ok = gen_tcp:close(L),
            ?assertEqual({error, closed}, await(Taker)),
            ok = gen_tcp:close(C),
            ?assertMatch(#{rstates := [closed], wstates := [closed]}, inet:info(C))
        end.

down(Ref) ->
    receive
        {'DOWN', Ref, Type, What, Why} -> {Type, What, Why}
    after 5000 -> error({no_down, Ref})
    end.

type(Config) ->
    case erlane_ct:backend(Config) of stock -> port; erlane -> socket end.

%% Every monitor, of whichever process, gets one DOWN at close.
monitors(Config) ->
    {C, _} = pair(Config),
    Type = type(Config),
    Other = async(fun() -> down(inet:monitor(C)) end),
    erlane_ct:blocked(Other),
    Refs = [inet:monitor(C) || _ <- [1, 2, 3]],
    ok = gen_tcp:close(C),
    [?assertMatch({Type, C, _}, down(Ref)) || Ref <- Refs],
    ?assertMatch({Type, C, _}, await(Other)).

monitor_cancel(Config) ->
    {C, _} = pair(Config),
    Kept = inet:monitor(C),
    Gone = inet:monitor(C),
    ?assertEqual(true, inet:cancel_monitor(Gone)),
    ?assertEqual(false, inet:cancel_monitor(Gone)),
    ok = gen_tcp:close(C),
    _ = down(Kept),
    receive {'DOWN', Gone, _, _, _} -> error(cancelled_monitor_fired) after 30 -> ok end.

monitor_closed(Config) ->
    {C, _} = pair(Config),
    ok = gen_tcp:close(C),
    Why = case erlane_ct:backend(Config) of stock -> noproc; erlane -> nosock end,
    ?assertMatch({_, _, Why}, down(inet:monitor(C))).

%% The end by the peer or by the owner's death is an end too.
monitor_eof(Config) ->
    {C, S} = pair(Config),
    Ref = inet:monitor(S),
    ok = inet:setopts(S, [{active, true}]),
    ok = gen_tcp:close(C),
    ?assertMatch({_, S, _}, down(Ref)),
    {L, _} = listen(Config, []),
    Owner = async(fun() -> receive stop -> L end end),
    ok = gen_tcp:controlling_process(L, Owner),
    Ref2 = inet:monitor(L),
    ok = erlane_ct:kill(Owner),
    ?assertMatch({_, L, _}, down(Ref2)).
