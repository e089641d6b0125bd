%% SPDX-License-Identifier: Apache-2.0
%% @doc Every packet type: whole, byte by byte, several in one segment, too long, cut off,
%% in passive and active mode. The list {Type, Wire, Packets} below is the specification.
-module(erlane_tcp_packet_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    whole_passive/1, whole_active/1, whole_once/1, byte_by_byte/1, split_everywhere/1,
    repeated/1, as_lists/1, packet_size/1, packet_size_active/1, packet_4_huge/1, size_2_limit/1,
    size_1_limit/1, size_4_limit/1, line_long/1, line_long_active/1, line_delimiter/1,
    line_cut_by_buffer/1, http_error/1, http_then_raw/1, http_bin_headers/1, http_to_httph/1,
    ssl_tls_bad/1, asn1_long_form/1, switch_with_data/1, cut_off/1, cut_off_active/1,
    raw_after_packet/1, tpkt_bad/1, wrong_types/1
]).

-import(erlane_ct, [fed/2, pair/1, async/1, await/1, next/1, silence/1, pattern/1]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        whole_passive, whole_active, whole_once, byte_by_byte, split_everywhere,
        repeated, as_lists, packet_size, packet_size_active, packet_4_huge, size_2_limit,
        size_1_limit, size_4_limit, line_long, line_long_active, line_delimiter,
        line_cut_by_buffer, http_error, http_then_raw, http_bin_headers, http_to_httph,
        ssl_tls_bad, asn1_long_form, switch_with_data, cut_off, cut_off_active,
        raw_after_packet, tpkt_bad, wrong_types
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% {Packet type, bytes on the wire, what is read in binary mode}.
samples() ->
    Cdr = <<"GIOP", 1, 2, 0, 0, 4:32, "body">>,
    CdrLittle = <<"GIOP", 1, 2, 1, 0, 4:32/little, "body">>,
    Fcgi = <<1, 1, 0, 1, 0, 5, 3, 0, "hello">>,
    FcgiWire = <<Fcgi/binary, 0, 0, 0>>,
    Tls = <<22, 3, 3, 0, 5, "hello">>,
    [
        {1, <<3, "abc", 0, 1, "d">>, [<<"abc">>, <<>>, <<"d">>]},
        {2, <<0, 3, "abc", 0, 0, 0, 1, "d">>, [<<"abc">>, <<>>, <<"d">>]},
        {4, <<0, 0, 0, 3, "abc", 0, 0, 0, 0, 0, 0, 0, 1, "d">>, [<<"abc">>, <<>>, <<"d">>]},
        {line, <<"one\n\r\ntwo\r\n">>, [<<"one\n">>, <<"\r\n">>, <<"two\r\n">>]},
        {asn1, <<16#30, 3, "abc", 4, 0, 16#1f, 16#85, 2, 1, "x">>, [
            <<16#30, 3, "abc">>, <<4, 0>>, <<16#1f, 16#85, 2, 1, "x">>
        ]},
        {sunrm, <<1:1, 4:31, "abcd", 0:1, 2:31, "ef">>, [
            <<1:1, 4:31, "abcd">>, <<0:1, 2:31, "ef">>
        ]},
        {cdr, <<Cdr/binary, CdrLittle/binary>>, [Cdr, CdrLittle]},
        {fcgi, <<FcgiWire/binary, FcgiWire/binary>>, [Fcgi, Fcgi]},
        {tpkt, <<3, 0, 7:16, "abc", 3, 0, 4:16>>, [<<3, 0, 7:16, "abc">>, <<3, 0, 4:16>>]},
        {ssl_tls, <<Tls/binary, Tls/binary>>, [
            {ssl_tls, socket, 22, {3, 3}, <<"hello">>}, {ssl_tls, socket, 22, {3, 3}, <<"hello">>}
        ]},
        {http, <<"GET /a?b HTTP/1.1\r\nHost: here\r\nX-Own: v\r\n\r\n">>, [
            {http_request, 'GET', {abs_path, "/a?b"}, {1, 1}},
            {http_header, 14, 'Host', "Host", "here"},
            {http_header, 0, "X-Own", "X-Own", "v"},
            http_eoh
        ]},
        {http_bin, <<"HTTP/1.0 404 Not Found\r\nServer: me\r\n folded\r\n\r\n">>, [
            {http_response, {1, 0}, 404, <<"Not Found">>},
            {http_header, 28, 'Server', <<"Server">>, <<"me\r\n folded">>},
            http_eoh
        ]},
        {httph, <<"Date: now\r\n\r\n">>, [{http_header, 3, 'Date', "Date", "now"}, http_eoh]},
        {httph_bin, <<"Date: now\r\n\r\n">>, [
            {http_header, 3, 'Date', <<"Date">>, <<"now">>}, http_eoh
        ]}
    ].

%% The header number is an index of a table in the VM and no part of what we test.
norm({http_header, _, Field, _, Value}) -> {http_header, Field, Value};
norm({ssl_tls, _Socket, Type, Version, Data}) -> {ssl_tls, Type, Version, Data};
norm({Tag, S, P}) when Tag =:= tcp; Tag =:= http -> {Tag, S, norm(P)};
norm(Packet) -> Packet.

tag(Type) when Type =:= http; Type =:= http_bin; Type =:= httph; Type =:= httph_bin -> http;
tag(_) -> tcp.

read(S) ->
    case gen_tcp:recv(S, 0, 5000) of
        {ok, P} -> norm(P);
        Error -> Error
    end.

expect(Type, Packets, S) ->
    ?assertEqual({Type, [norm(P) || P <- Packets]}, {Type, [read(S) || _ <- Packets]}).

expect_messages(Type, Packets, S, Step) ->
    Got = [begin Step(), norm(next(S)) end || _ <- Packets],
    ?assertEqual([message(Type, S, P) || P <- Packets], Got).

message(ssl_tls, _S, P) -> norm(P);
message(Type, S, P) -> norm({tag(Type), S, P}).

whole_passive(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}]),
            ok = gen_tcp:send(C, Wire),
            expect(Type, Packets, S),
            ?assertEqual({Type, {error, timeout}}, {Type, gen_tcp:recv(S, 0, 0)})
        end
     || {Type, Wire, Packets} <- samples()
    ].

whole_active(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}, {active, true}]),
            ok = gen_tcp:send(C, Wire),
            expect_messages(Type, Packets, S, fun() -> ok end),
            ok = gen_tcp:close(C),
            ?assertEqual({tcp_closed, S}, next(S))
        end
     || {Type, Wire, Packets} <- samples()
    ].

whole_once(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}]),
            ok = gen_tcp:send(C, Wire),
            expect_messages(Type, Packets, S, fun() -> inet:setopts(S, [{active, once}]) end)
        end
     || {Type, Wire, Packets} <- samples()
    ].

%% Each parser sees its input grow by one byte at a time.
byte_by_byte(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}, {active, true}]),
            Feeder = async(fun() -> drip(C, Wire) end),
            expect_messages(Type, Packets, S, fun() -> ok end),
            ok = await(Feeder)
        end
     || {Type, Wire, Packets} <- samples()
    ].

%% The peer's stock socket with nodelay makes a segment of each byte.
drip(C, Wire) ->
    [begin ok = gen_tcp:send(C, [B]), erlang:yield() end || <<B>> <= Wire],
    ok.

split_everywhere(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}]),
            [
                begin
                    <<Head:Cut/binary, Tail/binary>> = Wire,
                    ok = gen_tcp:send(C, Head),
                    Early = early(S, Packets, Cut),
                    ok = gen_tcp:send(C, Tail),
                    expect({Type, Cut}, Early, S),
                    restart(S, Type)
                end
             || Cut <- lists:seq(1, byte_size(Wire) - 1)
            ]
        end
     || {Type, Wire, Packets} <- samples()
    ].

%% What is complete in the first part comes before the second is sent.
early(S, [P | Rest] = Packets, Cut) ->
    case gen_tcp:recv(S, 0, 2) of
        {ok, Got} -> ?assertEqual({Cut, norm(P)}, {Cut, norm(Got)}), early(S, Rest, Cut);
        {error, timeout} -> Packets
    end;
early(_S, [], _Cut) ->
    [].

%% After the end of the headers an http socket reads headers; a new message is wanted.
restart(S, Type) ->
    ok = inet:setopts(S, [{packet, Type}]).

repeated(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}]),
            Feeder = async(fun() -> gen_tcp:send(C, lists:duplicate(300, Wire)) end),
            [begin expect(Type, Packets, S), restart(S, Type) end || _ <- lists:seq(1, 300)],
            ok = await(Feeder)
        end
     || {Type, Wire, Packets} <- samples()
    ].

as_lists(Config) ->
    [
        begin
            {C, S} = fed(Config, [list, {packet, Type}]),
            ok = gen_tcp:send(C, Wire),
            expect(Type, [binary_to_list(P) || P <- Packets], S)
        end
     || {Type, Wire, Packets} <- samples(), is_binary(hd(Packets))
    ].

%% Up to packet_size is read, one byte more is emsgsize and the end.
packet_size(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, P}, {packet_size, 10}]),
            ok = gen_tcp:send(C, <<10:(P * 8), "0123456789", 11:(P * 8), "0123456789a">>),
            ?assertEqual({ok, <<"0123456789">>}, gen_tcp:recv(S, 0, 5000)),
            ?assertEqual({P, {error, emsgsize}}, {P, gen_tcp:recv(S, 0, 5000)}),
            ?assertMatch({error, E} when E =:= closed; E =:= enotconn, gen_tcp:recv(S, 0, 100))
        end
     || P <- [1, 2, 4]
    ].

packet_size_active(Config) ->
    {C, S} = fed(Config, [{packet, 4}, {packet_size, 10}, {active, true}]),
    ok = gen_tcp:send(C, <<10:32, "0123456789">>),
    ?assertEqual({tcp, S, <<"0123456789">>}, next(S)),
    ok = gen_tcp:send(C, <<11:32, "0123456789a">>),
    ?assertEqual({tcp_error, S, emsgsize}, next(S)),
    ?assertEqual({tcp_closed, S}, next(S)),
    silence(S).

packet_4_huge(Config) ->
    {C, S} = fed(Config, [{packet, 4}]),
    Data = pattern(5000000),
    Feeder = async(fun() -> gen_tcp:send(C, [<<(byte_size(Data)):32>>, Data, <<1:32, "x">>]) end),
    {ok, Got} = gen_tcp:recv(S, 0, 10000),
    ?assert(Got =:= Data),
    ?assertEqual({ok, <<"x">>}, gen_tcp:recv(S, 0, 5000)),
    ok = await(Feeder).

%% The longest packet of each header goes through.
size_1_limit(Config) -> limit(Config, 1, 255).
size_2_limit(Config) -> limit(Config, 2, 65535).
size_4_limit(Config) -> limit(Config, 4, 1000000).

limit(Config, P, Size) ->
    {C, S} = pair(Config),
    [ok = inet:setopts(X, [{packet, P}]) || X <- [C, S]],
    Data = pattern(Size),
    ok = gen_tcp:send(C, Data),
    {ok, Got} = gen_tcp:recv(S, 0, 5000),
    ?assert(Got =:= Data),
    %% One byte more: stock wraps the header, erlane refuses.
    P < 4 andalso erlane_ct:backend(Config) =:= erlane andalso
        ?assertEqual({error, emsgsize}, gen_tcp:send(C, [Data, 0])),
    ok = gen_tcp:close(C).

%% A line longer than packet_size is a packet too large.
line_long(Config) ->
    {C, S} = fed(Config, [{packet, line}, {packet_size, 8}]),
    ok = gen_tcp:send(C, "0123456\n"),
    ?assertEqual(<<"0123456\n">>, read(S)),
    ok = gen_tcp:send(C, "0123456789abcdefXY\nnext\n"),
    ?assertEqual({error, emsgsize}, read(S)).

line_long_active(Config) ->
    {C, S} = fed(Config, [{packet, line}, {packet_size, 8}, {active, true}]),
    ok = gen_tcp:send(C, "0123456789abcdefXY\nnext\n"),
    ?assertEqual({tcp_error, S, emsgsize}, next(S)),
    ?assertEqual({tcp_closed, S}, next(S)).

line_delimiter(Config) ->
    {C, S} = fed(Config, [{packet, line}]),
    ok = inet:setopts(S, [{line_delimiter, $;}]),
    ok = gen_tcp:send(C, "a;b\nc;"),
    ?assertEqual([<<"a;">>, <<"b\nc;">>], [read(S), read(S)]),
    ok = inet:setopts(S, [{line_delimiter, 0}]),
    ok = gen_tcp:send(C, <<"x;y", 0>>),
    ?assertEqual(<<"x;y", 0>>, read(S)).

%% A line that does not fit the buffer is cut there; no byte is lost.
line_cut_by_buffer(Config) ->
    {C, S} = fed(Config, [{packet, line}, {buffer, 100}, {recbuf, 4096}, {buffer, 100}]),
    Line = <<(binary:copy(<<"x">>, 249))/binary, "\n">>,
    ok = gen_tcp:send(C, Line),
    Collect = fun Collect(Acc) when byte_size(Acc) < 250 ->
            P = read(S),
            ?assert(byte_size(P) =< 100),
            Collect(<<Acc/binary, P/binary>>);
        Collect(Acc) -> Acc
    end,
    ?assertEqual(Line, Collect(<<>>)).

http_error(Config) ->
    {C, S} = fed(Config, [{packet, http}]),
    ok = gen_tcp:send(C, "no http at all\r\nGET / HTTP/1.1\r\nbad header\r\n\r\n"),
    ?assertEqual({http_error, "no http at all\r\n"}, read(S)),
    ?assertEqual({http_request, 'GET', {abs_path, "/"}, {1, 1}}, read(S)),
    ?assertEqual({http_error, "bad header\r\n"}, read(S)),
    ?assertEqual(http_eoh, read(S)).

%% The usual server: headers by http_bin, the body raw.
http_then_raw(Config) ->
    {C, S} = fed(Config, [{packet, http_bin}]),
    ok = gen_tcp:send(C, "POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nhelloGET"),
    ?assertEqual({http_request, 'POST', {abs_path, <<"/p">>}, {1, 1}}, read(S)),
    ?assertEqual({http_header, 'Content-Length', <<"5">>}, read(S)),
    ?assertEqual(http_eoh, read(S)),
    ok = inet:setopts(S, [{packet, raw}]),
    ?assertEqual({ok, <<"hello">>}, gen_tcp:recv(S, 5, 5000)),
    ok = inet:setopts(S, [{packet, http_bin}]),
    ok = gen_tcp:send(C, " / HTTP/1.0\r\n\r\n"),
    ?assertEqual({http_request, 'GET', {abs_path, <<"/">>}, {1, 0}}, read(S)),
    ?assertEqual(http_eoh, read(S)).

http_bin_headers(Config) ->
    {C, S} = fed(Config, [{packet, http_bin}, {active, true}]),
    ok = gen_tcp:send(C, ["GET / HTTP/1.1\r\n", [["K", integer_to_list(N), ": v\r\n"]
        || N <- lists:seq(1, 200)], "\r\n"]),
    {http, S, {http_request, 'GET', _, _}} = next(S),
    [?assertMatch({http, S, {http_header, 0, _, _, <<"v">>}}, next(S)) || _ <- lists:seq(1, 200)],
    ?assertEqual({http, S, http_eoh}, next(S)).

%% After a request line the type that is read back may say that headers follow.
http_to_httph(Config) ->
    {C, S} = fed(Config, [{packet, http}]),
    ok = gen_tcp:send(C, "GET / HTTP/1.1\r\nA: b\r\nC"),
    {http_request, 'GET', _, _} = read(S),
    {ok, [{packet, Type}]} = inet:getopts(S, [packet]),
    ?assert(lists:member(Type, [http, httph])),
    ?assertEqual({http_header, "A", "b"}, read(S)).

%% What is no TLS has a length in its bytes 4 and 5 all the same.
ssl_tls_bad(Config) ->
    {C, S} = fed(Config, [{packet, ssl_tls}]),
    ok = gen_tcp:send(C, <<"not", 0, 5, "hello", "cut">>),
    ?assertMatch({ok, {ssl_tls, S, $n, {$o, $t}, <<"hello">>}}, gen_tcp:recv(S, 0, 5000)),
    ok = gen_tcp:close(C),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)).

asn1_long_form(Config) ->
    {C, S} = fed(Config, [{packet, asn1}]),
    P = <<16#30, 16#82, 1000:16, (pattern(1000))/binary>>,
    ok = gen_tcp:send(C, [P, P]),
    ?assertEqual([P, P], [read(S), read(S)]).

%% Bytes that were buffered for one type are parsed by the next.
switch_with_data(Config) ->
    {C, S} = fed(Config, [{packet, line}]),
    ok = gen_tcp:send(C, <<"hello\n", 0, 2, "ab", 3, "cde", "tail">>),
    ?assertEqual(<<"hello\n">>, read(S)),
    ok = inet:setopts(S, [{packet, 2}]),
    ?assertEqual(<<"ab">>, read(S)),
    ok = inet:setopts(S, [{packet, 1}]),
    ?assertEqual(<<"cde">>, read(S)),
    ok = inet:setopts(S, [{packet, 0}]),
    ?assertEqual({ok, <<"tail">>}, gen_tcp:recv(S, 4, 5000)).

cut_off(Config) ->
    [
        begin
            {C, S} = fed(Config, [{packet, Type}]),
            ok = gen_tcp:send(C, binary:part(Wire, 0, 2)),
            ok = gen_tcp:close(C),
            ?assertMatch({Type, {error, closed}}, {Type, read(S)})
        end
     || {Type, Wire, _} <- samples(), Type =/= asn1, Type =/= 1
    ].

cut_off_active(Config) ->
    {C, S} = fed(Config, [{packet, 4}, {active, true}]),
    ok = gen_tcp:send(C, <<0, 0, 0, 9, "short">>),
    ok = gen_tcp:close(C),
    ?assertEqual({tcp_closed, S}, next(S)),
    silence(S).

%% An incomplete packet is given as raw bytes when the type changes to raw.
raw_after_packet(Config) ->
    {C, S} = fed(Config, [{packet, 4}]),
    ok = gen_tcp:send(C, <<0, 0, 0, 9, "short">>),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 0, 30)),
    ok = inet:setopts(S, [{packet, raw}]),
    ?assertEqual({ok, <<0, 0, 0, 9, "short">>}, gen_tcp:recv(S, 9, 5000)).

tpkt_bad(Config) ->
    {C, S} = fed(Config, [{packet, tpkt}]),
    ok = gen_tcp:send(C, <<9, 0, 0, 7, "abc">>),
    ?assertMatch({error, _}, read(S)).

wrong_types(Config) ->
    {_C, S} = fed(Config, []),
    [
        ?assertEqual({P, {error, einval}}, {P, inet:setopts(S, [{packet, P}])})
     || P <- [3, 5, -1, foo, "line", {2}]
    ],
    ?assertEqual({ok, [{packet, 0}]}, inet:getopts(S, [packet])).
