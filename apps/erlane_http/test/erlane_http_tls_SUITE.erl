%% SPDX-License-Identifier: Apache-2.0
%% @doc The server over TLS, on top of lanes and of the sockets of the VM.
-module(erlane_http_tls_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([requests/1, versions/1, bodies/1, cut_body/1, files/1, stream/1, reader_that_stops/1,
         idle/1, no_handshake/1, silent_handshake/1, drain/1, answer_is_not_lost/1]).

-import(erlane_http_ct, [start/3, connections/1]).

-define(WAIT_MS, 5000).

all() -> [{group, erlane}, {group, gen_tcp}].

groups() ->
    Cases = [requests, versions, bodies, cut_body, files, stream, reader_that_stops, idle,
             no_handshake, silent_handshake, drain, answer_is_not_lost],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) ->
    case application:ensure_all_started(ssl) of
        {ok, _} ->
            #{server_config := Server, client_config := Client} = certificates(),
            erlane_http_ct:init_suite([{server, Server}, {client, Client} | Config]);
        {error, _} ->
            {skip, "no ssl here"}
    end.

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) -> erlane_http_ct:stop(Config).

%% A chain for the name localhost, made anew in each run.
certificates() ->
    %% The digest that is the default is SHA-1, which OTP 29 takes no more.
    Cert = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Role = #{root => Cert, intermediates => [], peer => Cert},
    #{server_config := Server, client_config := Client} =
        public_key:pkix_test_data(#{server_chain => Role, client_chain => Role}),
    #{server_config => Server, client_config => Client}.

tls(Config, Handle) -> tls(Config, Handle, #{}).

tls(Config, Handle, Options) when is_function(Handle) ->
    tls(Config, #{handle => Handle}, Options);
tls(Config, Handler, Options) ->
    start(Config, Handler, Options#{tls => proplists:get_value(server, Config)}).

connect(Config, Port) -> connect(Config, Port, []).

connect(Config, Port, Opts) ->
    {ok, Socket} = ssl:connect({127, 0, 0, 1}, Port,
                               [binary, {active, false}, {server_name_indication, disable},
                                {verify, verify_peer}
                                | proplists:get_value(client, Config)] ++ Opts, ?WAIT_MS),
    Socket.

%% The answer to a request: status, and the body by its length.
ask(Socket, Request) ->
    ok = ssl:send(Socket, Request),
    answer(Socket, <<>>).

answer(Socket, Buffer) ->
    case binary:split(Buffer, <<"\r\n\r\n">>) of
        [<<"HTTP/1.1 ", Status:3/binary, _/binary>> = Head, Rest] ->
            {match, [Length]} = re:run(Head, "[cC]ontent-[lL]ength: ([0-9]+)",
                                       [{capture, all_but_first, binary}]),
            Left = binary_to_integer(Length) - byte_size(Rest),
            More = case Left of
                       0 -> <<>>;
                       _ -> {ok, Data} = ssl:recv(Socket, Left, ?WAIT_MS), Data
                   end,
            {binary_to_integer(Status), <<Rest/binary, More/binary>>};
        [_] ->
            {ok, Data} = ssl:recv(Socket, 0, ?WAIT_MS),
            answer(Socket, <<Buffer/binary, Data/binary>>)
    end.

is_closed(Socket) -> {error, closed} =:= ssl:recv(Socket, 0, ?WAIT_MS).

req(Target) -> ["GET ", Target, " HTTP/1.1\r\nHost: x\r\n\r\n"].

%% Requests one after the other and several at once; the handler knows that it is TLS.
requests(Config) ->
    Handle = fun(Req) ->
                     {{127, 0, 0, 1}, _} = erlane_http:peer(Req),
                     {200, [], [atom_to_binary(erlane_http:scheme(Req)), erlane_http:target(Req)]}
             end,
    Socket = connect(Config, tls(Config, Handle)),
    [?assertEqual({200, <<"https", T/binary>>}, ask(Socket, req(T)))
     || T <- [<<"/">>, <<"/">>, <<"/a">>, <<"/">>]],
    ok = ssl:send(Socket, [req("/1"), req("/2")]),
    {200, <<"https/1">>} = answer_of_two(Socket),
    ok = ssl:close(Socket),
    connections(0).

%% Both come in one packet or in two.
answer_of_two(Socket) ->
    All = recv_until(Socket, <<"https/2">>, <<>>),
    {_, _} = binary:match(All, <<"https/1">>),
    {200, <<"https/1">>}.

recv_until(Socket, End, Acc) ->
    case binary:match(Acc, End) of
        nomatch ->
            {ok, Data} = ssl:recv(Socket, 0, ?WAIT_MS),
            recv_until(Socket, End, <<Acc/binary, Data/binary>>);
        _ -> Acc
    end.

%% TLS 1.2 and 1.3.
versions(Config) ->
    Port = tls(Config, fun(_) -> {200, [], <<"x">>} end),
    [begin
         Socket = connect(Config, Port, [{versions, [Version]}]),
         ?assertEqual({200, <<"x">>}, ask(Socket, req("/"))),
         {ok, [{protocol, Got}]} = ssl:connection_information(Socket, [protocol]),
         ?assertEqual(Version, Got)
     end || Version <- ['tlsv1.2', 'tlsv1.3']].

%% Bodies larger than a record, in both directions.
bodies(Config) ->
    Socket = connect(Config, tls(Config, fun(Req) -> {200, [], erlane_http:body(Req)} end)),
    Body = rand:bytes(300000),
    Head = "POST / HTTP/1.1\r\nHost: x\r\n",
    {200, Body} = ask(Socket, [Head, "Content-Length: 300000\r\n\r\n", Body]),
    {200, Body} = ask(Socket, [Head, "Transfer-Encoding: chunked\r\n\r\n493e0\r\n", Body,
                               "\r\n0\r\n\r\n"]),
    {200, <<>>} = ask(Socket, req("/")).

%% A body that ends with the connection and was cut must not look whole: it ends with a reset, and
%% not with close_notify and an orderly end, as one that is whole. Clients of OTP tell no
%% difference; the relay before the server does.
cut_body(Config) ->
    Port = tls(Config, fun(Req) ->
                               {stream, 200, [], fun(Send) ->
                                                         ok = Send(<<"half">>),
                                                         erlane_http:path(Req) =:= [] orelse
                                                             error(wanted)
                                                 end}
                       end),
    [begin
         Socket = connect(Config, relay(Port), [{versions, [Version]}]),
         ok = ssl:send(Socket, ["GET ", Path, " HTTP/1.0\r\n\r\n"]),
         _ = recv_until(Socket, <<"half">>, <<>>),
         ?assertEqual({Version, Path, End},
                      {Version, Path, receive {ended, How} -> How after ?WAIT_MS -> open end}),
         ok = ssl:close(Socket)
     end || Version <- ['tlsv1.2', 'tlsv1.3'],
            {Path, End} <- [{"/", closed}, {"/cut", econnreset}]],
    connections(0).

%% The port of a relay for one connection, which tells us how the server ended it.
relay(Port) ->
    Self = self(),
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    _ = spawn_link(fun() ->
                           {ok, Client} = gen_tcp:accept(Listen, ?WAIT_MS),
                           {ok, Server} = gen_tcp:connect({127, 0, 0, 1}, Port,
                                                          [binary, {active, false},
                                                           {show_econnreset, true}]),
                           _ = spawn_link(fun() -> copy(Client, Server) end),
                           {error, How} = copy(Server, Client),
                           Self ! {ended, How},
                           ok = gen_tcp:close(Client)
                   end),
    {ok, Own} = inet:port(Listen),
    Own.

copy(From, To) ->
    case gen_tcp:recv(From, 0) of
        {ok, Data} -> _ = gen_tcp:send(To, Data), copy(From, To);
        Error -> Error
    end.

%% Files, where there is no sendfile.
files(Config) ->
    Data = rand:bytes(300000),
    File = filename:join(proplists:get_value(priv_dir, Config), "file"),
    ok = file:write_file(File, Data),
    Part = binary:part(Data, 100, 200000),
    Handle = fun(Req) ->
                     case erlane_http:path(Req) of
                         [] -> {200, [], {file, File}};
                         _ -> {200, [], {file, File, {100, 200000}}}
                     end
             end,
    Socket = connect(Config, tls(Config, Handle)),
    {200, Data} = ask(Socket, req("/")),
    {200, Part} = ask(Socket, req("/part")),
    {200, Data} = ask(Socket, req("/")).

%% Streams end with their end.
stream(Config) ->
    Handle = fun(_) ->
                     {stream, 200, [], fun(Send) -> ok = Send("abc"), ok = Send("def"), ok end}
             end,
    Socket = connect(Config, tls(Config, Handle)),
    ok = ssl:send(Socket, req("/")),
    All = recv_until(Socket, <<"0\r\n\r\n">>, <<>>),
    ?assertNotEqual(nomatch, binary:match(All, <<"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n">>)).

%% A client that does not read is given up here too.
reader_that_stops(Config) ->
    Self = self(),
    Data = binary:copy(<<"x">>, 100000),
    Handle = fun(_) ->
                     {stream, 200, [],
                      fun(Send) -> Self ! {ended, send_all(Send, Data, 0)}, ok end}
             end,
    Port = tls(Config, Handle, #{send_timeout => 300}),
    Socket = connect(Config, Port, [{recbuf, 4096}]),
    ok = ssl:send(Socket, req("/")),
    receive {ended, N} -> ?assert(N < 1000) after 10000 -> ct:fail(endless) end,
    connections(0),
    ssl:close(Socket).

send_all(_, _, 1000) -> 1000;
send_all(Send, Data, N) ->
    case Send(Data) of
        ok -> send_all(Send, Data, N + 1);
        {error, _} -> N
    end.

%% Silence between requests ends.
idle(Config) ->
    Port = tls(Config, fun(_) -> {200, [], <<"x">>} end, #{idle_timeout => 200}),
    Socket = connect(Config, Port),
    {200, <<"x">>} = ask(Socket, req("/")),
    ?assert(is_closed(Socket)),
    connections(0).

%% Who speaks no TLS gets no answer, and is told of in an event; others go on.
no_handshake(Config) ->
    Port = tls(Config, #{handle => fun(_) -> {200, [], <<"x">>} end, event => self()}, #{}),
    Plain = erlane_http_ct:connect(Port),
    erlane_http_ct:send(Plain, req("/")),
    case gen_tcp:recv(Plain, 0, ?WAIT_MS) of
        {error, Gone} -> ?assert(Gone =:= closed orelse Gone =:= econnreset);
        {ok, Alert} -> ?assertMatch(<<21, _/binary>>, Alert)
    end,
    receive {event, closed, #{reason := {tls, _}}} -> ok after ?WAIT_MS -> ct:fail(no_event) end,
    {200, <<"x">>} = ask(connect(Config, Port), req("/")).

%% A handshake has its deadline.
silent_handshake(Config) ->
    Port = tls(Config, fun(_) -> {200, [], <<"x">>} end, #{tls_timeout => 200}),
    Socket = erlane_http_ct:connect(Port),
    ?assertEqual(true, erlane_http_ct:is_closed(Socket)),
    connections(0).

%% A drain ends idle connections orderly.
drain(Config) ->
    Port = tls(Config, fun(_) -> {200, [], <<"x">>} end),
    Socket = connect(Config, Port),
    {200, <<"x">>} = ask(Socket, req("/")),
    ok = erlane_http:stop(erlane_http_ct:name(), #{drain => 10000}),
    ?assert(is_closed(Socket)).

%% An answer that refuses comes through although more is being sent.
answer_is_not_lost(Config) ->
    Port = tls(Config, fun(_) -> {200, [], <<"x">>} end, #{max_body => 10}),
    Socket = connect(Config, Port),
    ok = ssl:send(Socket, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"),
    _ = ssl:send(Socket, binary:copy(<<"x">>, 200000)),
    ?assertEqual({413, <<>>}, answer(Socket, <<>>)).
