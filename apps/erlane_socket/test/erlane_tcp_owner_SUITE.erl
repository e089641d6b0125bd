%% SPDX-License-Identifier: Apache-2.0
%% @doc Owners: handing a socket over with all that is queued, and the death of either side.
-module(erlane_tcp_owner_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    not_owner/1, hand_over/1, hand_over_queue/1, hand_over_dead/1, hand_over_stream/1,
    hand_over_closed/1, hand_over_once/1, old_owner_dies/1, new_owner_dies/1
]).

-import(erlane_ct, [
    pair/1, fed/2, async/1, await/1, wait_until/1, next/1, pattern/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        not_owner, hand_over, hand_over_queue, hand_over_dead, hand_over_stream,
        hand_over_closed, hand_over_once, old_owner_dies, new_owner_dies
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

active(S) ->
    {ok, [{active, A}]} = inet:getopts(S, [active]),
    A.

set(S, A) -> inet:setopts(S, [{active, A}]).

write_pieces(C, Data, Size) when byte_size(Data) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Data,
    ok = gen_tcp:send(C, Piece),
    write_pieces(C, Rest, Size);
write_pieces(C, Data, _Size) ->
    gen_tcp:send(C, Data).

not_owner(Config) ->
    {_C, S} = fed(Config, []),
    Self = self(),
    Other = async(fun() -> gen_tcp:controlling_process(S, Self) end),
    ?assertEqual(ok, await(Other)),
    Thief = async(fun() -> gen_tcp:controlling_process(S, self()) end),
    ?assertEqual({error, not_owner}, await(Thief)),
    ?assertEqual(ok, gen_tcp:controlling_process(S, Self)),
    ?assertEqual(
        refused, erlane_ct:outcome(fun() -> gen_tcp:controlling_process(S, not_a_pid) end)
    ).

heir() ->
    Parent = self(),
    async(fun Loop() ->
        receive
            {stop, Parent} -> ok;
            M -> Parent ! {heir, M}, Loop()
        end
    end).

inherited() ->
    receive {heir, M} -> M after 5000 -> error(nothing_inherited) end.

hand_over(Config) ->
    {C, S} = fed(Config, [{active, once}]),
    Heir = heir(),
    ok = gen_tcp:controlling_process(S, Heir),
    ?assertMatch(#{owner := Heir}, inet:info(S)),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({tcp, S, <<"abc">>}, inherited()),
    ?assertEqual({error, not_owner}, gen_tcp:controlling_process(S, self())),
    ok = set(S, true),
    ok = gen_tcp:close(C),
    ?assertEqual({tcp_closed, S}, inherited()).

%% What already lies in the mailbox goes along, in order; other messages stay.
hand_over_queue(Config) ->
    {C, S} = fed(Config, [{packet, 1}, {active, 3}]),
    self() ! before,
    ok = gen_tcp:send(C, <<1, "a", 1, "b", 1, "c", 1, "d">>),
    wait_until(fun() ->
        {messages, Ms} = process_info(self(), messages),
        lists:member({tcp_passive, S}, Ms)
    end),
    Heir = heir(),
    ok = gen_tcp:controlling_process(S, Heir),
    [?assertEqual({tcp, S, D}, inherited()) || D <- [<<"a">>, <<"b">>, <<"c">>]],
    %% Stock of some releases leaves tcp_passive behind.
    erlane_ct:backend(Config) =:= erlane andalso
        ?assertEqual({tcp_passive, S}, inherited()),
    ok = set(S, once),
    ?assertEqual({tcp, S, <<"d">>}, inherited_data()),
    ?assert(lists:member(before, erlane_ct:flush())).

inherited_data() ->
    case inherited() of
        {tcp_passive, _} -> inherited();
        M -> M
    end.

hand_over_dead(Config) ->
    {C, S} = fed(Config, []),
    Dead = async(fun() -> ok end),
    ok = await(Dead),
    wait_until(fun() -> not is_process_alive(Dead) end),
    ?assertEqual({error, badarg}, gen_tcp:controlling_process(S, Dead)),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({ok, <<"abc">>}, gen_tcp:recv(S, 3, 5000)).

%% Passed on again and again while data stream in: each byte once and in order.
hand_over_stream(Config) ->
    {C, S} = pair(Config),
    Data = pattern(400000),
    Writer = async(fun() -> write_pieces(C, Data, 1009) end),
    Parent = self(),
    ok = set(S, true),
    Relay = fun Relay(Left, Acc, Hops) ->
        receive
            {tcp, S, D} when Left > byte_size(D), Hops > 0 ->
                Left1 = Left - byte_size(D),
                Acc1 = [Acc | D],
                Next = spawn_link(fun() ->
                    receive {yours, S} -> Relay(Left1, Acc1, Hops - 1) end
                end),
                ok = gen_tcp:controlling_process(S, Next),
                Next ! {yours, S};
            {tcp, S, D} when Left > byte_size(D) ->
                Relay(Left - byte_size(D), [Acc | D], Hops);
            {tcp, S, D} ->
                Parent ! {all, iolist_to_binary([Acc | D])}
        after 5000 -> Parent ! {all, {missing, Left}}
        end
    end,
    First = spawn_link(fun() -> receive {yours, S} -> Relay(byte_size(Data), [], 100) end end),
    ok = gen_tcp:controlling_process(S, First),
    First ! {yours, S},
    receive {all, Got} -> ?assert(Got =:= Data) end,
    ok = await(Writer).

hand_over_closed(Config) ->
    {C, S} = fed(Config, [{active, true}]),
    ok = gen_tcp:close(C),
    ?assertEqual({tcp_closed, S}, next(S)),
    ?assertEqual({error, closed}, gen_tcp:controlling_process(S, self())).

%% The mode survives the hand-over.
hand_over_once(Config) ->
    {C, S} = fed(Config, [{active, 5}, {packet, 1}]),
    ok = gen_tcp:send(C, <<1, "a">>),
    ?assertEqual({tcp, S, <<"a">>}, next(S)),
    ok = gen_tcp:controlling_process(S, heir()),
    ?assertEqual(4, active(S)).

old_owner_dies(Config) ->
    {L, Port} = erlane_ct:listen(Config, [binary, {active, false}]),
    C = erlane_ct:connect(Config, Port, [{active, false}, binary]),
    Self = self(),
    Old = async(fun() -> S = erlane_ct:accept(L), {gen_tcp:controlling_process(S, Self), S} end),
    {ok, S} = await(Old),
    wait_until(fun() -> not is_process_alive(Old) end),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({ok, <<"abc">>}, gen_tcp:recv(S, 3, 5000)).

new_owner_dies(Config) ->
    {C, S} = fed(Config, []),
    Heir = heir(),
    ok = gen_tcp:controlling_process(S, Heir),
    ok = erlane_ct:kill(Heir),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 5000)),
    wait_until(fun() -> gen_tcp:send(S, "x") =:= {error, closed} end).
