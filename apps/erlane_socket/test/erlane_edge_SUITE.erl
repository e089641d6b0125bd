%% SPDX-License-Identifier: Apache-2.0
%% @doc Regression cases at the edges: packets that Erlang decodes and that end halfway,
%% urgent and ancillary data, floods, queues before a close. What stock gen_tcp can do too
%% runs in both groups, with its answers as the expectation.
-module(erlane_edge_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    partial_then_end/1, http_then_body/1, http_until_closed/1, large_records/1,
    mailbox_receiver/1, mailbox_acceptor/1, mailbox_sender/1, sendfile_behind_queue/1,
    urgent_active/1, urgent_passive/1, ancillary/1, flood_of_empty/1, sunrm_10_mb/1,
    packet_type_changed/1, shutdown_then_send/1
]).
-export([relays_expire/1, stop_with_3000/1, linger_slow_peer/1, fdopen_listener/1,
         monitor_foreign/1]).
-export([stop_3000/0]).

-import(erlane_ct, [
    pair/1, pair/2, pair/3, fed/2, listen/2, connect/3, opts/2, backend/1, async/1, await/1,
    await/2, blocked/1, wait_until/1, wait_until/2, elapsed/1, next/1, silence/1, pattern/1
]).

-define(STOCK, [{backend, stock}]).
-define(ERLANE, [{backend, erlane}]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    [{stock, Stock, Both}, {erlane, Erlane, Cases}] = erlane_ct:groups([
        partial_then_end, http_then_body, http_until_closed, large_records,
        mailbox_receiver, mailbox_acceptor, mailbox_sender, sendfile_behind_queue,
        urgent_active, urgent_passive, ancillary, flood_of_empty, sunrm_10_mb,
        packet_type_changed, shutdown_then_send
    ]),
    Own = [relays_expire, stop_with_3000, linger_slow_peer, fdopen_listener, monitor_foreign],
    [{stock, Stock, Both}, {erlane, Erlane, Cases ++ Own}].

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%%% Packets that Erlang decodes

%% Part of a packet and then the end: the owner is told and the lane comes to rest.
partial_then_end(Config) ->
    Parts = [
        {http, <<"GET / HT">>}, {http_bin, <<"GET / HTTP/1.1\r">>}, {httph, <<"Host: exam">>},
        {sunrm, <<1:1, 100:31, "abc">>}, {sunrm, <<1:1, 100:7>>}, {asn1, <<16#30, 9, "abc">>}
    ],
    Ends = [
        {fin, [], [tcp_closed]}, {fin, [{exit_on_close, false}], [tcp_closed]},
        {reset, [], [tcp_closed]},
        {reset, [{show_econnreset, true}], [{tcp_error, econnreset}, tcp_closed]}
    ],
    [
        begin
            {Peer, S} = fed(Config, [{packet, Type}, {active, true} | Opts]),
            Before = lane_sum(Config, turns),
            Seen = Wait andalso seen(Config),
            ok = gen_tcp:send(Peer, Part),
            _ = Wait andalso Seen(byte_size(Part)),
            ok = finish(Peer, How),
            Told = [tag(next(S)) || _ <- Expected],
            ?assertEqual({Type, How, Opts, Expected}, {Type, How, Opts, Told}),
            silence(S),
            ?assert(lane_sum(Config, turns) - Before < 1000),
            ok = gen_tcp:close(S)
        end
     || {Type, Part} <- Parts, {How, Opts, Expected} <- Ends, Wait <- [true, false]
    ].

tag({Tag, _S}) -> Tag;
tag({tcp_error, _S, Why}) -> {tcp_error, Why};
tag(Other) -> Other.

finish(Peer, fin) ->
    gen_tcp:close(Peer);
finish(Peer, reset) ->
    ok = inet:setopts(Peer, [{linger, {true, 0}}]),
    gen_tcp:close(Peer).

%% A sum over all lanes; 0 for stock gen_tcp, which has none.
lane_sum(Config, Key) ->
    case backend(Config) of
        stock -> 0;
        erlane -> lists:sum([maps:get(Key, Lane) || Lane <- erlane_socket:stats()])
    end.

%% A function that waits until the lanes have read so many bytes more than now. Nothing
%% tells that of stock gen_tcp.
seen(Config) ->
    Before = lane_sum(Config, recv_bytes),
    fun(Size) ->
        backend(Config) =:= stock orelse
            wait_until(fun() -> lane_sum(Config, recv_bytes) >= Before + Size end)
    end.

%% What follows the headers in the same segment is no line too long.
http_then_body(Config) ->
    Body = binary:copy(<<"b">>, 3000),
    Head = <<"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3000\r\n\r\n">>,
    [
        begin
            {Peer, S} = fed(Config, [{packet, http}, {active, once}]),
            ok = gen_tcp:send(Peer, [Head, Body]),
            ?assertMatch({http, S, {http_request, 'POST', {abs_path, "/x"}, {1, 1}}}, next(S)),
            ok = inet:setopts(S, [{active, once}]),
            ?assertMatch({http, S, {http_header, _, 'Host', _, "a"}}, next(S)),
            ok = inet:setopts(S, [{active, once}]),
            ?assertMatch({http, S, {http_header, _, 'Content-Length', _, "3000"}}, next(S)),
            ok = inet:setopts(S, [{active, once}]),
            ?assertEqual({http, S, http_eoh}, next(S)),
            ?assertEqual(ok, inet:setopts(S, [{packet, raw}])),
            ?assertEqual(Body, take(S, How)),
            silence(S)
        end
     || How <- [passive, active]
    ].

take(S, passive) ->
    {ok, Body} = gen_tcp:recv(S, 3000, 5000),
    Body;
take(S, active) ->
    ok = inet:setopts(S, [{active, true}]),
    erlane_ct:collect(S, 3000, fun() -> ok end).

%% The packets before the end of the stream are not lost with it.
http_until_closed(Config) ->
    Response = <<"HTTP/1.0 200 OK\r\nServer: s\r\nX-One: 1\r\n\r\n">>,
    Expected = [{200, "OK"}, {'Server', "s"}, {"X-One", "1"}, http_eoh, {error, closed}],
    Read = fun(S) -> [part(gen_tcp:recv(S, 0, 5000)) || _ <- Expected] end,
    [
        begin
            {Waited, S1} = fed(Config, [{packet, http} | Opts]),
            Reader = async(fun() -> Read(S1) end),
            blocked(Reader),
            _ = [ok = gen_tcp:send(Waited, <<Byte>>) || <<Byte>> <= Response],
            ok = gen_tcp:close(Waited),
            ?assertEqual({Opts, waited, Expected}, {Opts, waited, await(Reader)}),
            {All, S2} = fed(Config, [{packet, http} | Opts]),
            ok = gen_tcp:send(All, Response),
            ok = gen_tcp:close(All),
            ?assertEqual({Opts, all_there, Expected}, {Opts, all_there, Read(S2)})
        end
     || Opts <- [[], [{exit_on_close, false}]]
    ].

part({ok, {http_response, {1, 0}, Code, Text}}) -> {Code, Text};
part({ok, {http_header, _, Name, _, Value}}) -> {Name, Value};
part({ok, Other}) -> Other;
part(Error) -> Error.

%% Larger than the buffer of a lane, read passively: with a reader that waits and without.
large_records(Config) ->
    Large = pattern(200000),
    Body = pattern(60000),
    Records = [
        {sunrm, <<1:1, 200000:31, Large/binary>>}, {asn1, <<16#30, 16#82, 60000:16, Body/binary>>},
        {tpkt, <<3, 0, 60004:16, Body/binary>>}
    ],
    [
        begin
            {Peer, S} = fed(Config, [{packet, Type}]),
            Read = fun() -> gen_tcp:recv(S, 0, 5000) end,
            Waiting = async(Read),
            blocked(Waiting),
            Writer = async(fun() -> gen_tcp:send(Peer, [Record, Record]) end),
            ?assert({Type, {ok, Record}} =:= {Type, await(Waiting)}),
            ?assert({Type, {ok, Record}} =:= {Type, Read()}),
            ok = await(Writer),
            ?assertEqual({Type, {error, timeout}}, {Type, gen_tcp:recv(S, 0, 10)})
        end
     || {Type, Record} <- Records
    ].

%% A record of 10 MB costs about what {packet, 4} costs: it is not decoded again with each
%% read that adds to it.
sunrm_10_mb(Config) ->
    Size = 10 bsl 20,
    Data = pattern(Size),
    Best = fun(Type, Wire, Packet) ->
        lists:min([one_packet(Config, Type, Wire, Packet) || _ <- [1, 2, 3]])
    end,
    Record = <<1:1, Size:31, Data/binary>>,
    Sunrm = Best(sunrm, Record, Record),
    Packet4 = Best(4, <<Size:32, Data/binary>>, Data),
    ct:pal("~b bytes: sunrm ~b us, {packet, 4} ~b us", [Size, Sunrm, Packet4]),
    ?assert(Sunrm < 20 * Packet4).

%% Microseconds until the packet is there.
one_packet(Config, Type, Wire, Packet) ->
    {Peer, S} = fed(Config, [{packet, Type}, {active, once}]),
    Start = erlang:monotonic_time(microsecond),
    Writer = async(fun() -> gen_tcp:send(Peer, Wire) end),
    {tcp, S, Got} = next(S),
    Time = erlang:monotonic_time(microsecond) - Start,
    ?assert(Got =:= Packet),
    ok = await(Writer),
    ok = gen_tcp:close(S),
    ok = gen_tcp:close(Peer),
    Time.

%% Bytes that were no packet yet are data once the type is raw.
packet_type_changed(Config) ->
    [
        begin
            {Peer, S} = fed(Config, [{packet, Type}, {active, true}]),
            ok = gen_tcp:send(Peer, <<0, 0, 0>>),
            silence(S),
            ok = inet:setopts(S, [{packet, raw}]),
            ?assertEqual({Type, {tcp, S, <<0, 0, 0>>}}, {Type, next(S)}),
            ok = gen_tcp:send(Peer, "x"),
            ?assertEqual({Type, {tcp, S, <<"x">>}}, {Type, next(S)})
        end
     || Type <- [4, line, sunrm]
    ].

%%% Nothing stays in a mailbox

%% Runs `Fun' in a process of its own, whose mailbox must be empty afterwards.
clean(Fun) ->
    ok = await(async(fun() ->
        _ = Fun(),
        %% An answer that nobody waits for could come a little later.
        receive Message -> {left, Message} after 30 -> ok end
    end), 10000).

mailbox_receiver(Config) ->
    clean(fun() ->
        {Peer, S} = fed(Config, []),
        when_blocked(fun() -> gen_tcp:close(Peer) end),
        ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000))
    end),
    clean(fun() ->
        {Peer, S} = fed(Config, [{packet, http}]),
        when_blocked(fun() -> gen_tcp:send(Peer, "GET"), finish(Peer, reset) end),
        ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000))
    end),
    clean(fun() ->
        {_Peer, S} = fed(Config, []),
        when_blocked(fun() -> gen_tcp:close(S) end),
        ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000))
    end),
    %% The timeout meets the answer at every distance.
    clean(fun() ->
        {Peer, S} = fed(Config, []),
        meanwhile(fun() -> [ok = gen_tcp:send(Peer, <<N:32>>) || N <- lists:seq(1, 1000)] end),
        in_order(S, 1, 1000)
    end),
    %% One wait, an edge for each byte.
    clean(fun() ->
        {Peer, S} = fed(Config, []),
        when_blocked(fun() -> [ok = gen_tcp:send(Peer, "x") || _ <- lists:seq(1, 2000)] end),
        {ok, <<_:2000/binary>>} = gen_tcp:recv(S, 2000, 5000)
    end).

%% `Fun' in a process that sends no message when it is done, and whose sockets stay open
%% until the caller ends.
meanwhile(Fun) ->
    Caller = self(),
    _ = spawn_link(fun() ->
        Ref = monitor(process, Caller),
        Fun(),
        receive {'DOWN', Ref, process, Caller, _} -> ok end
    end),
    ok.

%% The same, once the caller waits for something.
when_blocked(Fun) ->
    Caller = self(),
    meanwhile(fun() -> blocked(Caller), Fun() end).

in_order(_S, N, Last) when N > Last -> ok;
in_order(S, N, Last) ->
    case gen_tcp:recv(S, 4, N rem 3) of
        {ok, <<N:32>>} -> in_order(S, N + 1, Last);
        {error, timeout} -> in_order(S, N, Last)
    end.

mailbox_acceptor(Config) ->
    clean(fun() ->
        {L, _Port} = listen(Config, []),
        when_blocked(fun() -> gen_tcp:close(L) end),
        ?assertEqual({error, closed}, gen_tcp:accept(L, 5000))
    end),
    clean(fun() ->
        {L, Port} = listen(Config, [{backlog, 64}]),
        meanwhile(fun() -> [connect(?STOCK, Port, []) || _ <- lists:seq(1, 50)] end),
        accepted(L, 50)
    end),
    %% A connection and the close of the listener come together.
    clean(fun() ->
        [
            begin
                {L, Port} = listen(Config, []),
                when_blocked(fun() -> connect(?STOCK, Port, []), gen_tcp:close(L) end),
                case gen_tcp:accept(L, 5000) of
                    {ok, S} -> ok = gen_tcp:close(S);
                    {error, closed} -> ok
                end
            end
         || _ <- lists:seq(1, 50)
        ]
    end).

accepted(_L, 0) -> ok;
accepted(L, N) ->
    case gen_tcp:accept(L, N rem 2) of
        {ok, _} -> accepted(L, N - 1);
        {error, timeout} -> accepted(L, N)
    end.

mailbox_sender(Config) ->
    Small = [{high_watermark, 2000}, {low_watermark, 100}, {sndbuf, 4096}, {recbuf, 4096}],
    Drain = fun(S) -> fun() -> erlane_ct:recv_all(S) end end,
    clean(fun() ->
        {C, S} = pair(Config, Small),
        when_blocked(Drain(S)),
        [ok = gen_tcp:send(C, pattern(100000)) || _ <- lists:seq(1, 20)]
    end),
    clean(fun() ->
        {C, S} = pair(Config, [{send_timeout, 10} | Small]),
        ok = gen_tcp:send(C, pattern(1000000)),
        ?assertEqual({error, timeout}, gen_tcp:send(C, "x")),
        ok = gen_tcp:close(S)
    end),
    %% close/1 waits for what is queued
    clean(fun() ->
        {C, S} = pair(Config, Small),
        ok = gen_tcp:send(C, pattern(1000000)),
        when_blocked(Drain(S)),
        ok = gen_tcp:close(C)
    end),
    clean(fun() ->
        {C, S} = pair(Config, Small),
        ok = gen_tcp:send(C, pattern(1000000)),
        when_blocked(fun() -> finish(S, reset) end),
        ?assertMatch({error, _}, gen_tcp:send(C, "x"))
    end).

%%% Writing

%% A file behind megabytes that are queued, and a reader that takes its time. Once the
%% kernel has no room for the queue; once it has, but takes it in more than one slice.
sendfile_behind_queue(Config) ->
    Queued = pattern(4 bsl 20),
    File = pattern(700000),
    Name = filename:join(proplists:get_value(priv_dir, Config),
                         "behind_queue." ++ atom_to_list(backend(Config))),
    ok = file:write_file(Name, File),
    All = <<Queued/binary, File/binary, "behind">>,
    Sender = self(),
    [
        begin
            {C, S} = pair(Config, [{high_watermark, 16 bsl 20}, {sndbuf, 65536}, {recbuf, 65536}]),
            ok = gen_tcp:send(C, Queued),
            {ok, [{send_pend, Pending}]} = inet:getstat(C, [send_pend]),
            ?assert(Pending > 2 bsl 20),
            _ = Room(C),
            %% Only the owner may call sendfile, so the reader is another.
            Reader = async(fun() -> blocked(Sender), slowly(S, byte_size(All), []) end),
            ?assertEqual({ok, 700000}, file:sendfile(Name, C)),
            ok = gen_tcp:send(C, <<"behind">>),
            ?assert(All =:= await(Reader, 10000))
        end
     || Room <- [fun(_) -> ok end, fun large_sndbuf/1]
    ].

%% SO_SNDBUFFORCE: above the limit for everybody. Without the right to that the buffer
%% stays as it is.
large_sndbuf(C) ->
    inet:setopts(C, [{raw, 1, 32, <<(8 bsl 20):32/native>>}]).

slowly(_S, 0, Acc) ->
    iolist_to_binary(lists:reverse(Acc));
slowly(S, Left, Acc) ->
    _ = [erlang:yield() || _ <- lists:seq(1, 100)],
    {ok, Data} = gen_tcp:recv(S, min(Left, 30011), 5000),
    slowly(S, Left - byte_size(Data), [Data | Acc]).

%% Sending after one's own shutdown, where resets are shown. A shutdown that waited for the
%% queue is no reset to inet's driver, one that was made at once is.
shutdown_then_send(Config) ->
    Closed = fun({tcp_closed, _}) -> closed; ({tcp_error, _, Why}) -> Why end,
    Answer = fun(Active, Show, Queued) ->
        Opts = [{high_watermark, 1 bsl 24}, {sndbuf, 4096}, {recbuf, 4096}],
        {C, S} = pair(Config, [{exit_on_close, false} | Opts],
                      [{active, Active}, {show_econnreset, Show} | Opts]),
        ok = gen_tcp:send(C, binary:copy(<<"q">>, Queued)),
        ok = gen_tcp:shutdown(C, write),
        ?assertEqual(Queued, byte_size(erlane_ct:recv_all(S))),
        Sent = gen_tcp:send(C, "x"),
        {Sent, gen_tcp:send(C, "x"), [Closed(M) || M <- erlane_ct:flush()]}
    end,
    Again = fun(Active) -> case Active of false -> enotconn; true -> closed end end,
    [
        ?assertEqual(
            {Active, Show, Queued, {{error, First}, {error, Again(Active)}, Told}},
            {Active, Show, Queued, Answer(Active, Show, Queued)}
        )
     || {Active, Show, Queued, First, Told} <- [
            {false, true, 0, econnreset, []}, {false, false, 0, closed, []},
            {true, true, 0, econnreset, [econnreset, closed]}, {true, false, 0, closed, [closed]},
            {false, true, 1 bsl 20, closed, []}, {true, true, 1 bsl 20, closed, [closed]}
        ]
    ].

%%% Data that recv(2) stops at

%% A read ends before an urgent byte although there is more.
urgent_active(Config) ->
    urgent(Config, fun(S, Size) ->
        ok = inet:setopts(S, [{active, true}]),
        Got = erlane_ct:collect(S, Size, fun() -> ok end),
        ok = inet:setopts(S, [{active, false}]),
        Got
    end).

urgent_passive(Config) ->
    urgent(Config, fun(S, Size) ->
        {ok, Got} = gen_tcp:recv(S, Size, 5000),
        Got
    end).

urgent(Config, Read) ->
    {L, Port} = listen(Config, [binary, {active, false}]),
    {ok, Peer} = socket:open(inet, stream, tcp),
    ok = socket:connect(Peer, #{family => inet, addr => {127, 0, 0, 1}, port => Port}),
    S = erlane_ct:accept(L),
    Send = fun() ->
        ok = socket:send(Peer, <<"abc">>),
        ok = socket:send(Peer, <<"X">>, [oob]),
        ok = socket:send(Peer, <<"def">>)
    end,
    %% First all of it is there, then somebody waits for it.
    [
        begin
            ok = Send(),
            ?assertEqual({Round, <<"abcdef">>}, {Round, Read(S, 6)}),
            Waiter = async(fun() -> blocked(self_of(S, Config)), Send() end),
            ?assertEqual({Round, <<"abcdef">>}, {Round, Read(S, 6)}),
            ok = await(Waiter)
        end
     || Round <- lists:seq(1, 30)
    ],
    ok = socket:close(Peer).

%% The process that reads: the case itself, owner of S.
self_of(S, Config) ->
    case backend(Config) of
        stock -> {connected, Pid} = erlang:port_info(S, connected), Pid;
        erlane -> maps:get(owner, inet:info(S))
    end.

%% Descriptors passed along a local stream end a read, too. gen_tcp does not take them:
%% none may stay open.
ancillary(Config) ->
    Path = filename:join("/tmp", lists:concat(["erlane_edge.", os:getpid(), backend(Config)])),
    {ok, L} = gen_tcp:listen(0, opts(Config, [{ifaddr, {local, Path}}, binary, {active, false}])),
    {ok, Peer} = socket:open(local, stream, default),
    ok = socket:connect(Peer, #{family => local, path => Path}),
    S = erlane_ct:accept(L),
    ok = file:delete(Path),
    {ok, Fd} = socket:getopt(Peer, otp, fd),
    Rights = #{level => socket, type => rights, data => <<Fd:32/native>>},
    Send = fun() ->
        ok = socket:send(Peer, <<"abc">>),
        ok = socket:sendmsg(Peer, #{iov => [<<"def">>], ctrl => [Rights]}),
        ok = socket:send(Peer, <<"ghi">>)
    end,
    Before = erlane_ct:fds(),
    [
        begin
            ok = Send(),
            ?assertEqual({Round, {ok, <<"abcdefghi">>}}, {Round, gen_tcp:recv(S, 9, 5000)}),
            ok = inet:setopts(S, [{active, true}]),
            ok = Send(),
            ?assertEqual(<<"abcdefghi">>, erlane_ct:collect(S, 9, fun() -> ok end)),
            ok = inet:setopts(S, [{active, false}])
        end
     || Round <- lists:seq(1, 30)
    ],
    ?assertEqual(Before, erlane_ct:fds()),
    ok = socket:close(Peer).

%%% Others go on

%% Echoes in a process of its own until `stop'; its result: latencies in microseconds,
%% ascending.
echoes(Config, SpawnOpts) ->
    Parent = self(),
    Pid = spawn_opt(fun() ->
        {C, S} = pair(Config, [{nodelay, true}]),
        Parent ! {self(), ready},
        Times = echoes(C, S, []),
        ok = gen_tcp:close(C),
        Parent ! {self(), async, lists:sort(Times)}
    end, [link | SpawnOpts]),
    receive {Pid, ready} -> Pid after 5000 -> error(no_pair) end.

echoes(C, S, Times) ->
    Start = erlang:monotonic_time(microsecond),
    Data = <<Start:64>>,
    ok = gen_tcp:send(C, Data),
    {ok, Data} = gen_tcp:recv(S, 8, 10000),
    ok = gen_tcp:send(S, Data),
    {ok, Data} = gen_tcp:recv(C, 8, 10000),
    Times1 = [erlang:monotonic_time(microsecond) - Start | Times],
    receive stop -> Times1 after 0 -> echoes(C, S, Times1) end.

times(Echoes) ->
    Echoes ! stop,
    Times = await(Echoes, 12000),
    ct:pal("~b echoes, median ~b us, worst ~b us",
           [length(Times), lists:nth((length(Times) + 1) div 2, Times), lists:last(Times)]),
    Times.

%% Empty packets by the ten thousand, numbered marks among them.
flood_of_empty(Config) ->
    Floods = [
        {line, <<"\n">>, <<"\n">>, fun(N) -> <<(integer_to_binary(N))/binary, "\n">> end},
        {1, <<0>>, <<>>, fun(N) -> <<4, N:32>> end}
    ],
    [
        begin
            {Peer, S} = fed(Config, [{packet, Type}]),
            Echoes = echoes(Config, []),
            Writer = async(fun() ->
                Many = binary:copy(Wire, 4096),
                [ok = gen_tcp:send(Peer, [Many, Mark(N)]) || N <- lists:seq(1, 16)],
                ok
            end),
            ok = inet:setopts(S, [{active, true}]),
            Marks = [begin <<_:Skip/binary, M/binary>> = Mark(N), M end
                     || Skip <- [case Type of 1 -> 1; line -> 0 end], N <- lists:seq(1, 16)],
            Counted = [upto(S, Empty, M, 0) || M <- Marks],
            ?assertEqual({Type, [4096 || _ <- Marks]}, {Type, Counted}),
            ok = await(Writer),
            Times = times(Echoes),
            P99 = lists:nth((length(Times) * 99 + 99) div 100, Times),
            ?assert(P99 < 50000),
            silence(S)
        end
     || {Type, Wire, Empty, Mark} <- Floods
    ].

%% How many empty packets come before the mark.
upto(S, Empty, Mark, N) ->
    case next(S) of
        {tcp, S, Empty} -> upto(S, Empty, Mark, N + 1);
        {tcp, S, Mark} -> N
    end.

%% A thousand relays find in the same second that they were idle for too long.
relays_expire(Config) ->
    Count = 1000,
    {L, Port} = listen(Config, [binary, {active, false}, {backlog, 2 * Count}]),
    Echoes = echoes(Config, []),
    Ends = [connect(?STOCK, Port, [{active, false}]) || _ <- lists:seq(1, 2 * Count)],
    Callers = [
        async(fun() ->
            receive {sockets, A, B} -> ok end,
            {ok, Relay} = erlane_socket:relay(A, B, #{idle_timeout => 1000}),
            receive {erlane_relay, Relay, Result} -> maps:with([reason, to_a, to_b], Result) end
        end)
     || _ <- lists:seq(1, Count)
    ],
    [
        begin
            [A, B] = [erlane_ct:accept(L), erlane_ct:accept(L)],
            _ = [ok = gen_tcp:controlling_process(X, Caller) || X <- [A, B]],
            Caller ! {sockets, A, B}
        end
     || Caller <- Callers
    ],
    Idle = #{reason => idle, to_a => 0, to_b => 0},
    [?assertEqual(Idle, await(Caller, 5000)) || Caller <- Callers],
    ?assert(lists:last(times(Echoes)) < 2000000),
    [?assertMatch({error, _}, gen_tcp:recv(End, 0, 5000)) || End <- Ends],
    [ok = gen_tcp:close(End) || End <- Ends].

%% The application stops with thousands of open sockets.
stop_with_3000(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, stop_3000, []).

stop_3000() ->
    Lanes = length(erlane_socket:lanes()),
    Before = erlane_ct:fds(),
    {L, Port} = listen(?ERLANE, [binary, {active, false}, {backlog, 1500}]),
    Pairs = [
        begin
            C = connect(?ERLANE, Port, [binary, {active, false}, {sndbuf, 4096}]),
            {C, erlane_ct:accept(L)}
        end
     || _ <- lists:seq(1, 1500)
    ],
    ?assertEqual(3001, length(erlane_socket:sockets())),
    [{Full, _} | _] = Pairs,
    ok = gen_tcp:send(Full, binary:copy(<<"x">>, 8 bsl 20)),
    Waiters =
        [async(fun() -> gen_tcp:send(Full, "x") end)] ++
        [async(fun() -> gen_tcp:accept(L) end) || _ <- [1, 2, 3]] ++
        [async(fun() -> gen_tcp:recv(S, 0) end) || {_, S} <- lists:sublist(Pairs, 2, 500)] ++
        [async(fun() -> gen_tcp:recv(C, 9) end) || {C, _} <- lists:sublist(Pairs, 2, 500)],
    _ = [blocked(Waiter) || Waiter <- Waiters],
    {Ms, ok} = elapsed(fun() -> application:stop(erlane_socket) end),
    ?assertEqual([{error, closed}], lists:usort([await(Waiter) || Waiter <- Waiters])),
    %% The poll sets of the lanes go, too.
    wait_until(fun() -> erlane_ct:fds() =< Before - Lanes end),
    ?assert(Ms < 10000),
    ok.

%% Closing waits for a peer that takes nothing; the lane and its scheduler do not.
linger_slow_peer(Config) ->
    OnLane = [{scheduler, 1}],
    Parent = self(),
    Slow = [{linger, {true, 3}}, {high_watermark, 16 bsl 20}, {recbuf, 4096}],
    Closer = fun(Size, Opts) ->
        spawn_opt(fun() ->
            {C, S} = pair(Config, Slow ++ Opts),
            ok = gen_tcp:send(C, pattern(Size)),
            {ok, [{send_pend, Pending}]} = inet:getstat(C, [send_pend]),
            receive go -> ok end,
            {Ms, ok} = elapsed(fun() -> gen_tcp:close(C) end),
            Parent ! {self(), async, {Pending > 0, Ms}},
            receive never -> S end
        end, [link | OnLane])
    end,
    %% Unsent in our queue, and unsent in the kernel alone.
    Queued = erlane_ct:keep(Closer(8 bsl 20, [{sndbuf, 4096}])),
    InKernel = erlane_ct:keep(Closer(60000, [{sndbuf, 1 bsl 20}])),
    Echoes = echoes(Config, OnLane),
    _ = [Pid ! go || Pid <- [Queued, InKernel]],
    {true, QueuedMs} = await(Queued, 20000),
    {false, KernelMs} = await(InKernel, 20000),
    ct:pal("close: ~b ms with a queue, ~b ms without", [QueuedMs, KernelMs]),
    ?assert(QueuedMs >= 2900),
    ?assert(QueuedMs < 15000),
    ?assert(KernelMs < 15000),
    ?assert(lists:last(times(Echoes)) < 1500000).

%%% Foreign things

%% A descriptor that listens already; stock gen_tcp takes only connected ones.
fdopen_listener(Config) ->
    Parent = self(),
    %% Its first owner never ends: socket would close the number again.
    _ = spawn(fun() ->
        {ok, S} = socket:open(inet, stream),
        ok = socket:bind(S, #{family => inet, addr => {127, 0, 0, 1}, port => 0}),
        ok = socket:listen(S),
        {ok, Fd} = socket:getopt(S, otp, fd),
        {ok, #{port := Port}} = socket:sockname(S),
        Parent ! {listens, Fd, Port},
        receive never -> S end
    end),
    {Fd, Port} = receive {listens, F, P} -> {F, P} after 5000 -> error(no_descriptor) end,
    {ok, L} = gen_tcp:fdopen(Fd, opts(Config, [binary, {active, false}])),
    ?assertEqual({ok, Port}, inet:port(L)),
    [
        begin
            Acceptor = async(fun() ->
                {ok, S} = gen_tcp:accept(L, 5000),
                gen_tcp:recv(S, 4, 5000)
            end),
            blocked(Acceptor),
            C = connect(?STOCK, Port, [binary, {active, false}]),
            ok = gen_tcp:send(C, <<N:32>>),
            ?assertEqual({ok, <<N:32>>}, await(Acceptor))
        end
     || N <- [1, 2]
    ],
    ok = gen_tcp:close(L).

%% It is the caller's fault, and nobody else's.
monitor_foreign(Config) ->
    Server = whereis(erlane_monitor),
    ?assert(is_pid(Server)),
    {C, _S} = pair(Config),
    MRef = inet:monitor(C),
    [
        ?assertError(_, inet:monitor({'$inet', erlane_tcp, Ref}))
     || Ref <- [make_ref(), atomics:new(1, []), ets:new(t, [])]
    ],
    ?assertEqual(Server, whereis(erlane_monitor)),
    ok = gen_tcp:close(C),
    receive
        {'DOWN', MRef, socket, C, _} -> ok
    after 5000 -> error(no_down)
    end,
    ?assertEqual(Server, whereis(erlane_monitor)).
