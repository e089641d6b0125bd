%% SPDX-License-Identifier: Apache-2.0
%% @doc Passive reading: lengths, timeouts, second readers, unrecv, the end of the stream.
-module(erlane_tcp_recv_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    length_exact/1, length_zero/1, timeout_keeps_bytes/1, timeout_zero/1,
    deadline_not_restarted/1, timeout_race/1, waits_for_data/1, second_reader/1,
    reader_after_reader/1, active_refuses/1, once_then_passive/1, packet_refuses_length/1,
    limit_64_mb/1, unrecv_order/1, unrecv_packet/1, unrecv_then_active/1, rest_then_closed/1,
    short_rest/1, close_wakes_reader/1, list_mode/1, header/1, packet_4_split/1,
    reader_and_writer/1, large_length/1, shutdown_read/1, owner_may_differ/1, timeout_then/1,
    buffer_limits_recv/1
]).

-import(erlane_ct, [
    pair/1, pair/2, fed/2, async/1, await/1, blocked/1, wait_until/1, outcome/1, elapsed/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        length_exact, length_zero, timeout_keeps_bytes, timeout_zero,
        deadline_not_restarted, timeout_race, waits_for_data, second_reader,
        reader_after_reader, active_refuses, once_then_passive, packet_refuses_length,
        limit_64_mb, unrecv_order, unrecv_packet, unrecv_then_active, rest_then_closed,
        short_rest, close_wakes_reader, list_mode, header, packet_4_split,
        reader_and_writer, large_length, shutdown_read, owner_may_differ, timeout_then,
        buffer_limits_recv
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

length_exact(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "abcdefgh"),
    ?assertEqual({ok, <<"abc">>}, gen_tcp:recv(S, 3, 5000)),
    ?assertEqual({ok, <<"d">>}, gen_tcp:recv(S, 1, 5000)),
    ?assertEqual({ok, <<"efgh">>}, gen_tcp:recv(S, 4)).

%% Length 0: whatever has come, and no waiting while something is there.
length_zero(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "abcdef"),
    ?assertEqual({ok, <<"ab">>}, gen_tcp:recv(S, 2, 5000)),
    ?assertEqual({ok, <<"cdef">>}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 0, 10)).

timeout_keeps_bytes(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 5, 30)),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 4, 0)),
    ok = gen_tcp:send(C, "def"),
    ?assertEqual({ok, <<"abcde">>}, gen_tcp:recv(S, 5, 5000)),
    ?assertEqual({ok, <<"f">>}, gen_tcp:recv(S, 0, 5000)).

%% recv(S, 4) has read two bytes and timed out: they are first in whatever comes then.
timeout_then(Config) ->
    Recv = fun(Lengths) -> fun(_, S) -> [gen_tcp:recv(S, N, 20) || N <- Lengths] end end,
    Messages = fun(Opts) ->
        fun(_, S) -> ok = inet:setopts(S, Opts), [M || {_, _, M} <- [erlane_ct:next(S)]] end
    end,
    More = fun(Data, Then) -> fun(C, S) -> ok = gen_tcp:send(C, Data), Then(C, S) end end,
    End = fun(Then) -> fun(C, S) -> ok = gen_tcp:close(C), Then(C, S) end end,
    Cases = [
        {recv_0, Recv([0, 0]), [{ok, <<"ab">>}, {error, timeout}]},
        {recv_1, Recv([1, 1]), [{ok, <<"a">>}, {ok, <<"b">>}]},
        {more_recv_0, More("cdef", Recv([0, 0])), [{ok, <<"ab">>}, {ok, <<"cdef">>}]},
        {more_recv_3, More("cdef", Recv([3, 0, 0])),
            [{ok, <<"abc">>}, {ok, <<"def">>}, {error, timeout}]},
        {longer, Recv([6, 2]), [{error, timeout}, {ok, <<"ab">>}]},
        {once, Messages([{active, once}]), [<<"ab">>]},
        {more_once, More("cdef", Messages([{active, once}])), [<<"ab">>]},
        {list, Messages([{active, 1}, list]), ["ab"]},
        {header, fun(_, S) -> ok = inet:setopts(S, [{header, 1}]), gen_tcp:recv(S, 0) end,
            {ok, [$a | <<"b">>]}},
        {unrecv, fun(_, S) -> ok = gen_tcp:unrecv(S, "yz"), gen_tcp:recv(S, 4, 20) end,
            {ok, <<"yzab">>}},
        {line, fun(C, S) ->
            ok = inet:setopts(S, [{packet, line}]),
            ok = gen_tcp:send(C, "c\n"),
            gen_tcp:recv(S, 0, 5000)
        end, {ok, <<"abc\n">>}},
        {end_recv_0, End(Recv([0, 0])), [{ok, <<"ab">>}, {error, closed}]},
        {end_recv_4, End(Recv([4, 0])), [{error, closed}, {error, enotconn}]},
        {end_once, End(Messages([{active, once}])), [<<"ab">>]}
    ],
    [
        begin
            {C, S} = fed(Config, []),
            ok = gen_tcp:send(C, "ab"),
            ?assertEqual({Name, {error, timeout}}, {Name, gen_tcp:recv(S, 4, 20)}),
            ?assertEqual({Name, Expected}, {Name, Then(C, S)})
        end
     || {Name, Then, Expected} <- Cases
    ].

%% recv(S, 0) takes a buffer at most, a length all of it.
buffer_limits_recv(Config) ->
    [
        begin
            {C, S} = fed(Config, [{buffer, 10}]),
            ok = gen_tcp:send(C, binary:copy(<<"x">>, 28)),
            ok = wait_until(fun() -> waiting(S) =:= 28 end),
            ?assertEqual(Sizes, [recv_size(S, N) || N <- Lengths])
        end
     || {Lengths, Sizes} <- [{[0, 0, 0], [10, 10, 8]}, {[3, 0, 15], [3, 10, 15]}]
    ].

recv_size(S, Length) ->
    {ok, Data} = gen_tcp:recv(S, Length, 5000),
    byte_size(Data).

%% Bytes that the kernel holds for S, from its table of sockets.
waiting(S) ->
    {ok, {{127, 0, 0, 1}, Local}} = inet:sockname(S),
    {ok, {{127, 0, 0, 1}, Remote}} = inet:peername(S),
    {ok, Table} = file:read_file("/proc/net/tcp"),
    Wanted = io_lib:format("0100007F:~4.16.0B 0100007F:~4.16.0B [0-9A-F]+ [0-9A-F]+:([0-9A-F]+)",
                           [Local, Remote]),
    case re:run(Table, iolist_to_binary(Wanted), [{capture, [1], list}]) of
        {match, [Hex]} -> list_to_integer(Hex, 16);
        nomatch -> 0
    end.

timeout_zero(Config) ->
    {C, S} = fed(Config, []),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 0, 0)),
    ok = gen_tcp:send(C, "x"),
    wait_until(fun() ->
        case gen_tcp:recv(S, 0, 0) of
            {ok, <<"x">>} -> true;
            {error, timeout} -> false
        end
    end).

%% A peer that drips bytes does not prolong the wait.
deadline_not_restarted(Config) ->
    {C, S} = fed(Config, []),
    Drip = fun Drip() ->
        case gen_tcp:send(C, "x") of
            ok -> receive stop -> ok after 20 -> Drip() end;
            {error, closed} -> ok
        end
    end,
    Feeder = async(Drip),
    {Ms, Answer} = elapsed(fun() -> gen_tcp:recv(S, 100000, 150) end),
    Feeder ! stop,
    ok = await(Feeder),
    ?assertEqual({error, timeout}, Answer),
    ?assert(Ms >= 149),
    ?assert(Ms < 5000).

%% The reply and the timeout meet at every distance; no byte is lost or doubled.
timeout_race(Config) ->
    {C, S} = pair(Config),
    Total = 3000,
    Writer = async(fun() ->
        [ok = gen_tcp:send(C, <<N:32>>) || N <- lists:seq(1, Total)],
        ok
    end),
    Read = fun
        Read(N) when N > Total -> ok;
        Read(N) ->
            case gen_tcp:recv(S, 4, N rem 2) of
                {ok, <<N:32>>} -> Read(N + 1);
                {error, timeout} -> Read(N)
            end
    end,
    ?assertEqual(ok, Read(1)),
    ok = await(Writer).

waits_for_data(Config) ->
    {C, S} = fed(Config, []),
    Reader = async(fun() -> gen_tcp:recv(S, 6) end),
    blocked(Reader),
    ok = gen_tcp:send(C, "abc"),
    ok = gen_tcp:send(C, "def"),
    ?assertEqual({ok, <<"abcdef">>}, await(Reader)).

second_reader(Config) ->
    {C, S} = fed(Config, []),
    Reader = async(fun() -> gen_tcp:recv(S, 3) end),
    blocked(Reader),
    ?assertEqual({error, ealready}, gen_tcp:recv(S, 0, 100)),
    ?assertEqual({error, ealready}, gen_tcp:recv(S, 0, 0)),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({ok, <<"abc">>}, await(Reader)).

reader_after_reader(Config) ->
    {C, S} = fed(Config, []),
    First = async(fun() -> gen_tcp:recv(S, 0, 10) end),
    ?assertEqual({error, timeout}, await(First)),
    Second = async(fun() -> gen_tcp:recv(S, 0, 5000) end),
    blocked(Second),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({ok, <<"abc">>}, await(Second)).

active_refuses(Config) ->
    {C, S} = fed(Config, []),
    [
        begin
            ok = inet:setopts(S, [{active, Mode}]),
            ?assertEqual({Mode, {error, einval}}, {Mode, gen_tcp:recv(S, 0, 100)}),
            ok = inet:setopts(S, [{active, false}])
        end
     || Mode <- [true, once, 5]
    ],
    ok = gen_tcp:send(C, "abc"),
    {ok, <<"abc">>} = gen_tcp:recv(S, 3, 5000).

%% After the one message of `once' the socket is passive again and keeps the stream.
once_then_passive(Config) ->
    {C, S} = fed(Config, [{packet, 1}]),
    ok = inet:setopts(S, [{active, once}]),
    ok = gen_tcp:send(C, <<1, "a", 1, "b", 1, "c">>),
    ?assertEqual({tcp, S, <<"a">>}, erlane_ct:next(S)),
    ?assertEqual({ok, <<"b">>}, gen_tcp:recv(S, 0, 5000)),
    erlane_ct:silence(S),
    ?assertEqual({ok, [{active, false}]}, inet:getopts(S, [active])),
    ?assertEqual({ok, <<"c">>}, gen_tcp:recv(S, 0, 5000)).

packet_refuses_length(Config) ->
    {C, S} = fed(Config, []),
    [
        begin
            ok = inet:setopts(S, [{packet, P}]),
            ?assertEqual({P, {error, einval}}, {P, gen_tcp:recv(S, 5, 100)})
        end
     || P <- [1, 2, 4, line, http, asn1, tpkt]
    ],
    ok = inet:setopts(S, [{packet, line}]),
    ok = gen_tcp:send(C, "ok\n"),
    ?assertEqual({ok, <<"ok\n">>}, gen_tcp:recv(S, 0, 5000)).

%% The bound on a length is 64 MB, both sides of it.
limit_64_mb(Config) ->
    {_C, S} = fed(Config, []),
    ?assertEqual({error, enomem}, gen_tcp:recv(S, 16#4000001, 10)),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 16#4000000, 10)).

%% What is put back last is read first.
unrecv_order(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "efgh"),
    {ok, <<"ef">>} = gen_tcp:recv(S, 2, 5000),
    ok = gen_tcp:unrecv(S, <<"ef">>),
    ok = gen_tcp:unrecv(S, "cd"),
    ok = gen_tcp:unrecv(S, <<>>),
    ok = gen_tcp:unrecv(S, ["a", <<"b">>]),
    {ok, Head} = gen_tcp:recv(S, 0, 5000),
    ok = gen_tcp:unrecv(S, Head),
    ?assertEqual({ok, <<"abcdefgh">>}, gen_tcp:recv(S, 8, 5000)),
    ?assertEqual({error, einval}, outcome(fun() -> gen_tcp:unrecv(S, foo) end)).

unrecv_packet(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:unrecv(S, <<0, 5, "ab">>),
    ok = inet:setopts(S, [{packet, 2}]),
    ok = gen_tcp:send(C, "cde"),
    ?assertEqual({ok, <<"abcde">>}, gen_tcp:recv(S, 0, 5000)).

unrecv_then_active(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "abc"),
    {ok, <<"abc">>} = gen_tcp:recv(S, 3, 5000),
    ok = gen_tcp:unrecv(S, <<"abc">>),
    ok = inet:setopts(S, [{active, once}]),
    ?assertEqual({tcp, S, <<"abc">>}, erlane_ct:next(S)).

rest_then_closed(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "last words"),
    ok = gen_tcp:close(C),
    ?assertEqual({ok, <<"last ">>}, gen_tcp:recv(S, 5, 5000)),
    ?assertEqual({ok, <<"words">>}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)).

%% Fewer bytes than asked for before the end: closed.
short_rest(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "abc"),
    ok = gen_tcp:close(C),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 4, 5000)).

close_wakes_reader(Config) ->
    {_C, S} = fed(Config, []),
    Reader = async(fun() -> gen_tcp:recv(S, 10) end),
    blocked(Reader),
    ok = gen_tcp:close(S),
    ?assertEqual({error, closed}, await(Reader)).

list_mode(Config) ->
    {C, S} = fed(Config, [list]),
    ok = gen_tcp:send(C, "abcd"),
    ?assertEqual({ok, "ab"}, gen_tcp:recv(S, 2, 5000)),
    ok = inet:setopts(S, [binary]),
    ?assertEqual({ok, <<"c">>}, gen_tcp:recv(S, 1, 5000)),
    ok = inet:setopts(S, [{mode, list}]),
    ?assertEqual({ok, "d"}, gen_tcp:recv(S, 1, 5000)).

%% The first N bytes as a list, the rest as a binary.
header(Config) ->
    {C, S} = fed(Config, [{header, 2}, {packet, 1}]),
    ok = gen_tcp:send(C, <<5, "abcde", 2, "fg", 1, "h", 0>>),
    ?assertEqual({ok, [$a, $b | <<"cde">>]}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({ok, [$f, $g | <<>>]}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({ok, "h"}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({ok, []}, gen_tcp:recv(S, 0, 5000)).

%% A packet cut at every place, with a timeout in between.
packet_4_split(Config) ->
    {C, S} = fed(Config, [{packet, 4}]),
    Packet = <<0, 0, 0, 6, "abcdef">>,
    [
        begin
            <<Head:Cut/binary, Tail/binary>> = Packet,
            ok = gen_tcp:send(C, Head),
            ?assertEqual({error, timeout}, gen_tcp:recv(S, 0, 5)),
            ok = gen_tcp:send(C, Tail),
            ?assertEqual({ok, <<"abcdef">>}, gen_tcp:recv(S, 0, 5000))
        end
     || Cut <- lists:seq(1, byte_size(Packet) - 1)
    ].

%% One process reads while another writes on the same socket.
reader_and_writer(Config) ->
    {C, S} = pair(Config),
    Data = erlane_ct:pattern(2000000),
    Echo = async(fun() -> {ok, D} = gen_tcp:recv(S, 2000000, 10000), gen_tcp:send(S, D) end),
    Reader = async(fun() -> gen_tcp:recv(C, 2000000, 10000) end),
    ok = gen_tcp:send(C, Data),
    ?assertEqual({ok, Data}, await(Reader)),
    ?assertEqual(ok, await(Echo)).

large_length(Config) ->
    {C, S} = pair(Config),
    Data = erlane_ct:pattern(20000000),
    Writer = async(fun() -> gen_tcp:send(C, Data) end),
    {ok, Got} = gen_tcp:recv(S, byte_size(Data), 10000),
    ?assert(Got =:= Data),
    ok = await(Writer).

shutdown_read(Config) ->
    {C, S} = pair(Config),
    ok = gen_tcp:shutdown(S, read),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)),
    ?assertMatch({error, _}, gen_tcp:recv(S, 0, 100)),
    ok = gen_tcp:close(C).

%% Reading and writing are open to every process, not to the owner alone.
owner_may_differ(Config) ->
    {C, S} = pair(Config, []),
    Other = async(fun() ->
        {ok, <<"abc">>} = gen_tcp:recv(S, 3, 5000),
        gen_tcp:send(S, "def")
    end),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual(ok, await(Other)),
    ?assertEqual({ok, <<"def">>}, gen_tcp:recv(C, 3, 5000)).
