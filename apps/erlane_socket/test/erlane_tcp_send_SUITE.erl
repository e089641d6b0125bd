%% SPDX-License-Identifier: Apache-2.0
%% @doc Writing: iolists, the send queue and its timeouts, shutdown, close, linger, sendfile.
-module(erlane_tcp_send_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    iolists/1, bad_iolists/1, empty/1, many_elements/1, huge/1, packet_headers/1,
    concurrent_senders/1, queue_takes_all/1, sender_blocks/1, close_wakes_senders/1,
    send_timeout/1, send_timeout_zero/1, send_timeout_close/1, delay_send/1, half_close/1,
    shutdown_flushes/1, send_after_shutdown/1, send_after_peer_closed/1, close_flushes/1,
    owner_death_flushes/1, linger_zero_resets/1, owner_death_linger_zero/1, sendfile_whole/1,
    sendfile_part/1, sendfile_behind_queue/1, sendfile_closed/1, dead_owner_closes/1
]).

-import(erlane_ct, [
    pair/1, pair/2, pair/3, fed/2, async/1, await/1, blocked/1, wait_until/1, recv_all/1,
    pattern/1
]).

%% Small buffers: the kernel takes little, so that a queue forms soon.
-define(SMALL, [{sndbuf, 4096}, {recbuf, 4096}]).

suite() -> [{timetrap, {seconds, 30}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        iolists, bad_iolists, empty, many_elements, huge, packet_headers,
        concurrent_senders, queue_takes_all, sender_blocks, close_wakes_senders,
        send_timeout, send_timeout_zero, send_timeout_close, delay_send, half_close,
        shutdown_flushes, send_after_shutdown, send_after_peer_closed, close_flushes,
        owner_death_flushes, linger_zero_resets, owner_death_linger_zero, sendfile_whole,
        sendfile_part, sendfile_behind_queue, sendfile_closed, dead_owner_closes
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

iolists(Config) ->
    {C, S} = pair(Config),
    Deep = lists:foldl(fun(N, Acc) -> [Acc, [N rem 256], <<N>>] end, [], lists:seq(1, 500)),
    [
        begin
            ok = gen_tcp:send(C, Data),
            Want = iolist_to_binary(Data),
            ?assertEqual({ok, Want}, gen_tcp:recv(S, byte_size(Want), 5000))
        end
     || Data <- [
            "abc", <<"abc">>, [$a, "b", [<<"c">>, [[]]]], [$a | <<"tail">>], ["a" | <<"b">>], Deep,
            [binary:part(<<"abcdef">>, 2, 3)], [<<0>>, 255]
        ]
    ].

%% What is no iolist is refused and nothing of it is sent.
bad_iolists(Config) ->
    {C, S} = pair(Config),
    [
        ?assertEqual({Bad, {error, einval}}, {Bad, gen_tcp:send(C, Bad)})
     || Bad <- [foo, [foo], [256], [-1], [$a | $b], <<1:3>>, [<<1:3>>], {}, #{}, 1.0, ["a", self()]]
    ],
    ok = gen_tcp:send(C, "fine"),
    ?assertEqual({ok, <<"fine">>}, gen_tcp:recv(S, 0, 5000)).

empty(Config) ->
    {C, S} = pair(Config),
    [?assertEqual(ok, gen_tcp:send(C, E)) || E <- [[], <<>>, "", [[], <<>>]]],
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 0, 20)),
    ok = inet:setopts(C, [{packet, 2}]),
    ok = inet:setopts(S, [{packet, 2}]),
    ok = gen_tcp:send(C, []),
    ?assertEqual({ok, <<>>}, gen_tcp:recv(S, 0, 5000)).

%% More pieces than one system call takes.
many_elements(Config) ->
    {C, S} = pair(Config),
    Data = [<<N:32, (binary:copy(<<N>>, 100))/binary>> || N <- lists:seq(1, 3000)],
    Writer = async(fun() -> gen_tcp:send(C, Data) end),
    Want = iolist_to_binary(Data),
    {ok, Got} = gen_tcp:recv(S, byte_size(Want), 5000),
    ?assert(Want =:= Got),
    ok = await(Writer).

huge(Config) ->
    {C, S} = pair(Config),
    Data = pattern(50000000),
    Writer = async(fun() -> ok = gen_tcp:send(C, Data), gen_tcp:close(C) end),
    Hash = fun Hash(Ctx, N) ->
        case gen_tcp:recv(S, 0, 10000) of
            {ok, D} -> Hash(crypto:hash_update(Ctx, D), N + byte_size(D));
            {error, closed} -> {N, crypto:hash_final(Ctx)}
        end
    end,
    ?assertEqual(
        {byte_size(Data), crypto:hash(sha256, Data)}, Hash(crypto:hash_init(sha256), 0)
    ),
    ok = await(Writer).

packet_headers(Config) ->
    {C, S} = pair(Config),
    [
        begin
            ok = inet:setopts(C, [{packet, P}]),
            ok = gen_tcp:send(C, ["ab", <<"c">>]),
            ?assertEqual({P, {ok, Wire}}, {P, gen_tcp:recv(S, byte_size(Wire), 5000)})
        end
     || {P, Wire} <- [
            {1, <<3, "abc">>}, {2, <<0, 3, "abc">>}, {4, <<0, 0, 0, 3, "abc">>}, {raw, <<"abc">>},
            {line, <<"abc">>}, {http, <<"abc">>}, {asn1, <<"abc">>}, {0, <<"abc">>}
        ]
    ].

%% Blocks of many senders stay whole.
concurrent_senders(Config) ->
    {C, S} = pair(Config, [{packet, 4}]),
    Senders = 8,
    Each = 20,
    Block = fun(Id, N) -> [<<Id, N>> | lists:duplicate(50, binary:copy(<<Id>>, 1000))] end,
    Pids = [
        async(fun() -> [ok = gen_tcp:send(C, Block(Id, N)) || N <- lists:seq(1, Each)], ok end)
     || Id <- lists:seq(1, Senders)
    ],
    Seen = [
        begin
            {ok, <<Id, N, Rest/binary>>} = gen_tcp:recv(S, 0, 5000),
            ?assert(Rest =:= binary:copy(<<Id>>, 50000)),
            {Id, N}
        end
     || _ <- lists:seq(1, Senders * Each)
    ],
    [
        ?assertEqual(lists:seq(1, Each), [N || {I, N} <- Seen, I =:= Id])
     || Id <- lists:seq(1, Senders)
    ],
    [ok = await(P) || P <- Pids].

%% With an empty queue one send is taken whole, whatever its size.
queue_takes_all(Config) ->
    {C, S} = pair(Config, ?SMALL),
    Data = pattern(5000000),
    ?assertEqual(ok, gen_tcp:send(C, Data)),
    ?assertMatch({ok, [{send_pend, N}]} when N > 0, inet:getstat(C, [send_pend])),
    {ok, Got} = gen_tcp:recv(S, byte_size(Data), 10000),
    ?assert(Got =:= Data),
    wait_until(fun() -> inet:getstat(C, [send_pend]) =:= {ok, [{send_pend, 0}]} end).

%% Above the high watermark a sender waits until the peer has read.
sender_blocks(Config) ->
    {C, S} = pair(Config, ?SMALL),
    Data = pattern(3000000),
    ok = gen_tcp:send(C, Data),
    Writer = async(fun() -> gen_tcp:send(C, "tail") end),
    blocked(Writer),
    ?assertEqual(nothing, receive {Writer, async, R} -> R after 50 -> nothing end),
    {ok, Got} = gen_tcp:recv(S, byte_size(Data), 10000),
    ?assert(Got =:= Data),
    ?assertEqual(ok, await(Writer)),
    ?assertEqual({ok, <<"tail">>}, gen_tcp:recv(S, 4, 5000)).

close_wakes_senders(Config) ->
    {C, _S} = pair(Config, [{linger, {true, 0}} | ?SMALL]),
    ok = gen_tcp:send(C, pattern(3000000)),
    Writers = [async(fun() -> gen_tcp:send(C, "x") end) || _ <- [1, 2, 3]],
    lists:foreach(fun erlane_ct:blocked/1, Writers),
    ok = gen_tcp:close(C),
    [
        ?assertMatch({error, E} when E =:= closed; E =:= einval, await(W))
     || W <- Writers
    ].

%% The data stay queued after the timeout and reach the peer.
send_timeout(Config) ->
    {C, S} = pair(Config, [{send_timeout, 60} | ?SMALL]),
    Data = pattern(3000000),
    ok = gen_tcp:send(C, Data),
    {Ms, Answer} = erlane_ct:elapsed(fun() -> gen_tcp:send(C, "tail") end),
    ?assertEqual({error, timeout}, Answer),
    ?assert(Ms >= 59),
    {ok, Got} = gen_tcp:recv(S, byte_size(Data), 10000),
    ?assert(Got =:= Data),
    ?assertEqual({ok, <<"tail">>}, gen_tcp:recv(S, 4, 5000)),
    ?assertEqual(ok, gen_tcp:send(C, "more")).

send_timeout_zero(Config) ->
    {C, S} = pair(Config, [{send_timeout, 0} | ?SMALL]),
    Data = pattern(3000000),
    _ = gen_tcp:send(C, Data),
    ?assertEqual({error, timeout}, gen_tcp:send(C, "tail")),
    {ok, Got} = gen_tcp:recv(S, byte_size(Data) + 4, 10000),
    ?assert(Got =:= <<Data/binary, "tail">>).

send_timeout_close(Config) ->
    Opts = [{send_timeout, 30}, {send_timeout_close, true} | ?SMALL],
    {C, S} = pair(Config, Opts),
    ok = gen_tcp:send(C, pattern(3000000)),
    ?assertEqual({error, timeout}, gen_tcp:send(C, "tail")),
    ?assertMatch({error, E} when E =:= closed; E =:= enotconn, gen_tcp:send(C, "after")),
    ok = gen_tcp:close(S).

%% Delayed data go out by themselves and in order.
delay_send(Config) ->
    {C, S} = pair(Config, [{delay_send, true}]),
    [ok = gen_tcp:send(C, <<N:32>>) || N <- lists:seq(1, 1000)],
    {ok, Got} = gen_tcp:recv(S, 4000, 5000),
    ?assert(Got =:= pattern(4000)).

%% After shutdown(write) the peer sees the end, and may go on sending.
half_close(Config) ->
    {C, S} = pair(Config, [{exit_on_close, false}]),
    ok = gen_tcp:send(C, "request"),
    ok = gen_tcp:shutdown(C, write),
    ?assertEqual(<<"request">>, recv_all(S)),
    Data = pattern(300000),
    Writer = async(fun() -> ok = gen_tcp:send(S, Data), gen_tcp:shutdown(S, write) end),
    ?assert(recv_all(C) =:= Data),
    ?assertEqual(ok, await(Writer)).

%% The end is sent behind what is queued; the caller does not wait for it.
shutdown_flushes(Config) ->
    {C, S} = pair(Config, ?SMALL),
    Data = pattern(3000000),
    ok = gen_tcp:send(C, Data),
    ?assertEqual(ok, gen_tcp:shutdown(C, write)),
    ?assert(recv_all(S) =:= Data).

send_after_shutdown(Config) ->
    {C, S} = pair(Config),
    ok = gen_tcp:shutdown(C, write),
    ?assertEqual({error, closed}, gen_tcp:send(C, "x")),
    ok = gen_tcp:close(S).

send_after_peer_closed(Config) ->
    {C, S} = pair(Config),
    ok = gen_tcp:close(S),
    wait_until(fun() -> gen_tcp:send(C, "x") =:= {error, closed} end),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 5000)).

%% close/1 returns when the queue is out.
close_flushes(Config) ->
    {C, S} = pair(Config, ?SMALL),
    Data = pattern(3000000),
    ok = gen_tcp:send(C, Data),
    Reader = async(fun() -> recv_all(S) end),
    ok = gen_tcp:close(C),
    ?assert(await(Reader) =:= Data).

owner_death_flushes(Config) ->
    {L, Port} = erlane_ct:listen(Config, [binary, {active, false} | ?SMALL]),
    Data = pattern(1000000),
    Owner = async(fun() ->
        C = erlane_ct:connect(Config, Port, ?SMALL),
        gen_tcp:send(C, Data)
    end),
    S = erlane_ct:accept(L),
    ok = await(Owner),
    ?assert(recv_all(S) =:= Data).

%% Linger 0: what is queued is dropped and the peer sees a reset.
linger_zero_resets(Config) ->
    {C, S} = pair(Config, [{show_econnreset, true} | ?SMALL]),
    ok = inet:setopts(C, [{linger, {true, 0}}]),
    ok = gen_tcp:send(C, pattern(3000000)),
    {Ms, ok} = erlane_ct:elapsed(fun() -> gen_tcp:close(C) end),
    ?assert(Ms < 5000),
    ?assertEqual({error, econnreset}, drain(S)).

drain(S) ->
    case gen_tcp:recv(S, 0, 5000) of
        {ok, _} -> drain(S);
        Error -> Error
    end.

owner_death_linger_zero(Config) ->
    {L, Port} = erlane_ct:listen(Config, [binary, {active, false}, {show_econnreset, true}]),
    Owner = async(fun() ->
        C = erlane_ct:connect(Config, Port, [{linger, {true, 0}}]),
        receive stop -> C end
    end),
    S = erlane_ct:accept(L),
    ok = erlane_ct:kill(Owner),
    ?assertEqual({error, econnreset}, gen_tcp:recv(S, 0, 5000)).

%% The owner's death is seen at once, no garbage collection needed.
dead_owner_closes(Config) ->
    {L, Port} = erlane_ct:listen(Config, [binary, {active, false}]),
    Self = self(),
    Owner = async(fun() ->
        C = erlane_ct:connect(Config, Port, []),
        Self ! {keep_alive, C},
        receive stop -> C end
    end),
    S = erlane_ct:accept(L),
    C = receive {keep_alive, Socket} -> Socket end,
    ok = erlane_ct:kill(Owner),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)),
    ?assertEqual({error, closed}, gen_tcp:send(C, "x")).

file(Config, Data) ->
    Name = filename:join(proplists:get_value(priv_dir, Config), "sendfile.bin"),
    ok = file:write_file(Name, Data),
    Name.

sendfile_whole(Config) ->
    {C, S} = pair(Config),
    Data = pattern(3000000),
    Name = file(Config, Data),
    Reader = async(fun() -> recv_all(S) end),
    ?assertEqual({ok, byte_size(Data)}, file:sendfile(Name, C)),
    ok = gen_tcp:close(C),
    ?assert(await(Reader) =:= Data).

%% Offset and length, both sides of the end of the file; position of the file unchanged.
sendfile_part(Config) ->
    {C, S} = pair(Config),
    Data = pattern(10000),
    {ok, Fd} = file:open(file(Config, Data), [read, raw, binary]),
    [
        begin
            ?assertEqual({Offset, Length, {ok, Want}},
                {Offset, Length, file:sendfile(Fd, C, Offset, Length, [])}),
            Part = binary:part(Data, min(Offset, 10000), Want),
            Want > 0 andalso ?assertEqual({ok, Part}, gen_tcp:recv(S, Want, 5000))
        end
     || {Offset, Length, Want} <- [
            {0, 0, 10000}, {100, 50, 50}, {9999, 1, 1}, {9000, 5000, 1000}, {10000, 0, 0},
            {20000, 10, 0}
        ]
    ],
    ?assertEqual({ok, 0}, file:position(Fd, cur)),
    ok = file:close(Fd),
    ?assertMatch({error, _}, file:sendfile(Fd, C, 0, 10, [])).

%% What was sent before comes before, what is sent after comes after.
sendfile_behind_queue(Config) ->
    {C, S} = pair(Config, ?SMALL),
    Data = pattern(1000000),
    {ok, Fd} = file:open(file(Config, Data), [read, raw, binary]),
    ok = gen_tcp:send(C, Data),
    Reader = async(fun() -> recv_all(S) end),
    ?assertEqual({ok, 1000000}, file:sendfile(Fd, C, 0, 0, [])),
    ok = gen_tcp:send(C, "tail"),
    ok = gen_tcp:close(C),
    ?assert(await(Reader) =:= <<Data/binary, Data/binary, "tail">>).

sendfile_closed(Config) ->
    {C, S} = pair(Config),
    Name = file(Config, "abc"),
    ok = gen_tcp:close(C),
    ?assertMatch({error, Why} when Why =:= einval; Why =:= closed, file:sendfile(Name, C)),
    ok = gen_tcp:close(S).
