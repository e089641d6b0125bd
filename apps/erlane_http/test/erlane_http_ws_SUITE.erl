%% SPDX-License-Identifier: Apache-2.0
%% @doc WebSocket over real connections: the handshake, the whole table of erlane_http_ws_cases
%% against an echo server, both ways of closing, time, pressure, and a client that is not ours.
-module(erlane_http_ws_SUITE).

-behaviour(erlane_http).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([handshake/1, refused_handshakes/1, refused_by_handler/1, crash_in_init/1, protocols/1,
         bytes_behind_the_handshake/1]).
-export([table/1, table_byte_by_byte/1]).
-export([close_by_client/1, close_by_server/1, close_with_send/1, nothing_after_close/1,
         close_never_answered/1, close_crossing/1, connection_breaks/1, crash/1, crash_in_info/1]).
-export([no_strangers/1, messages/1, many_pings/1, pipelined/1]).
-export([idle/1, pongs_keep_alive/1, busy_is_not_idle/1]).
-export([slow_reader/1, never_reads/1, limits_by_handler/1, drain/1, over_tls/1, other_client/1]).
-export([handle/2]).

-import(erlane_http_client, [connect/1, connect/2, header/2, closed/1, until/1]).
-import(erlane_http_ws_cases, [frame/4, text/1, close/1]).

-define(WAIT_MS, 15000).
-define(KEY, "dGhlIHNhbXBsZSBub25jZQ==").

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [handshake, refused_handshakes, refused_by_handler, crash_in_init, protocols,
     bytes_behind_the_handshake,
     table, table_byte_by_byte,
     close_by_client, close_by_server, close_with_send, nothing_after_close,
     close_never_answered, close_crossing, connection_breaks, crash, crash_in_info,
     no_strangers, messages, many_pings, pipelined, idle, pongs_keep_alive, busy_is_not_idle,
     slow_reader, never_reads, limits_by_handler, drain, over_tls, other_client].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    Config.

end_per_suite(_Config) ->
    application:stop(erlane_http).

end_per_testcase(_Case, _Config) ->
    erlane_http_client:stop(ws).

handle(_Req, Args) ->
    {upgrade, erlane_http_ws_echo, Args}.

serve() ->
    serve(#{}).

serve(Opts) ->
    serve(Opts, #{}).

serve(Opts, Listener) ->
    Args = #{test => self(), count => 0, opts => maps:merge(erlane_http_ws_cases:limits(), Opts)},
    erlane_http_client:start(ws, {?MODULE, Args}, Listener).

upgrade() ->
    upgrade("/", []).

upgrade(Path, Headers) ->
    ["GET ", Path, " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
     "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " ?KEY "\r\n",
     [[N, ": ", V, "\r\n"] || {N, V} <- Headers], "\r\n"].

%% An open WebSocket and the process behind it.
open(Port) ->
    open(Port, []).

open(Port, Opts) ->
    Socket = connect(Port, Opts),
    ?assertMatch(#{status := 101, rest := <<>>}, erlane_http_client:ask(Socket, upgrade())),
    {Socket, receive {ws, Pid} -> Pid after ?WAIT_MS -> error(not_open) end}.

send(Socket, Bytes) ->
    ok = gen_tcp:send(Socket, Bytes).

%% Exactly these bytes come.
expect(Socket, Bytes) ->
    ?assertEqual({ok, iolist_to_binary(Bytes)},
                 gen_tcp:recv(Socket, iolist_size(Bytes), ?WAIT_MS)).

printed(Frames) ->
    iolist_to_binary([erlane_http_ws_frame:print(F, none) || F <- Frames]).

terminated(Pid) ->
    receive {terminated, Pid, Reason} -> Reason after ?WAIT_MS -> error(not_terminated) end.

%%% The handshake

handshake(_Config) ->
    Socket = connect(serve()),
    Answer = erlane_http_client:ask(Socket, upgrade()),
    ?assertMatch(#{status := 101, rest := <<>>}, Answer),
    ?assertEqual([<<"websocket">>, <<"upgrade">>, <<"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=">>],
                 [header(N, Answer) || N <- [<<"upgrade">>, <<"connection">>,
                                             <<"sec-websocket-accept">>]]),
    [?assertEqual(undefined, header(N, Answer))
     || N <- [<<"sec-websocket-protocol">>, <<"sec-websocket-extensions">>, <<"content-length">>,
              <<"transfer-encoding">>]],
    send(Socket, text(<<"hello">>)),
    expect(Socket, printed([{text, <<"hello">>}])).

%% What is no handshake is an ordinary request with an ordinary answer.
refused_handshakes(_Config) ->
    Socket = connect(serve()),
    Good = iolist_to_binary(upgrade()),
    [begin
         Bad = iolist_to_binary(string:replace(Good, From, To)),
         ?assertNotEqual(Good, Bad),
         Answer = erlane_http_client:ask(Socket, Bad),
         ?assertMatch({From, To, #{status := Status, rest := <<>>}}, {From, To, Answer}),
         Version = case Status of 426 -> <<"13">>; _ -> undefined end,
         ?assertEqual(Version, header(<<"sec-websocket-version">>, Answer))
     end || {From, To, Status} <-
                [{"GET", "POST", 405}, {"GET", "HEAD", 405},
                 {"Upgrade: websocket\r\n", "", 426}, {"Upgrade: websocket", "Upgrade: h2c", 426},
                 {"Upgrade: websocket", "Upgrade: websockets", 426},
                 {"Connection: Upgrade\r\n", "", 400},
                 {"Connection: Upgrade", "Connection: keep-alive", 400},
                 {"Version: 13", "Version: 12", 426}, {"Version: 13", "Version: 8", 426},
                 {"Version: 13", "Version: 13, 8", 426}, {"Version: 13", "Version: x", 426},
                 {"Sec-WebSocket-Version: 13\r\n", "", 400},
                 {"Sec-WebSocket-Key: " ?KEY "\r\n", "", 400},
                 {?KEY, "", 400}, {?KEY, "x", 400}, {?KEY, ?KEY "=", 400},
                 {?KEY, "dGhlIHNhbXBsZSBub25jZQ", 400}, {?KEY, "dGhlIHNhbXBsZSBub25jZR==", 400},
                 {?KEY, "dGhlIHNhbXBsZSBub25j!Q==", 400}, {?KEY, ?KEY ", " ?KEY, 400},
                 {?KEY, [?KEY, "\r\nSec-WebSocket-Key: ", ?KEY], 400}]],
    [?assertMatch({To, #{status := 101}},
                  {To, erlane_http_client:ask(connect(erlane_http:port(ws)),
                                              string:replace(Good, From, To))})
     || {From, To} <- [{"Upgrade: websocket", "uPGRADE: h2c, WebSocket"},
                       {"Connection: Upgrade", "CONNECTION: keep-alive ,  upgrade"},
                       {"GET /", "GET /any/path?and=query"}]],
    %% What is in a body would be taken for frames.
    ?assertMatch(#{status := 400},
                 erlane_http_client:ask(Socket, [upgrade("/", [{"Content-Length", "2"}]), "xy"])),
    Old = connect(erlane_http:port(ws)),
    ?assertMatch(#{status := 400},
                 erlane_http_client:ask(Old, string:replace(Good, "HTTP/1.1", "HTTP/1.0"))).

%% A handler may refuse; the connection goes on.
refused_by_handler(_Config) ->
    Socket = connect(serve()),
    Answer = erlane_http_client:ask(Socket, upgrade("/refuse", [])),
    ?assertMatch(#{status := 403, body := <<"not you">>}, Answer),
    ?assertEqual(<<"no">>, header(<<"x-why">>, Answer)),
    ?assertMatch(#{status := 101}, erlane_http_client:ask(Socket, upgrade())).

%% Nothing was sent yet, so the client can be told.
crash_in_init(_Config) ->
    Socket = connect(serve()),
    ?assertMatch(#{status := 500}, erlane_http_client:ask(Socket, upgrade("/crash", []))).

%% The handler sees what is offered and chooses one of it.
protocols(_Config) ->
    Ask = fun(Headers) ->
                  erlane_http_client:ask(connect(erlane_http:port(ws)),
                                         upgrade("/protocols", Headers))
          end,
    serve(),
    Answer = Ask([{"Sec-WebSocket-Protocol", "a, b"}, {"Sec-WebSocket-Protocol", ",c ,"}]),
    ?assertEqual({101, <<"b">>},
                 {maps:get(status, Answer), header(<<"sec-websocket-protocol">>, Answer)}),
    receive {protocols, Offered} -> ?assertEqual([<<"a">>, <<"b">>, <<"c">>], Offered) end,
    %% One that was not offered is a fault of the handler.
    ?assertMatch(#{status := 500}, Ask([{"Sec-WebSocket-Protocol", "a"}])).

%% A client need not wait for the answer to send its first frames.
bytes_behind_the_handshake(_Config) ->
    Socket = connect(serve()),
    Early = iolist_to_binary([upgrade(), text(<<"one">>), text(<<"two">>)]),
    Cut = byte_size(Early) - 5,
    <<Front:Cut/binary, Back/binary>> = Early,
    Answer = erlane_http_client:ask(Socket, Front),
    send(Socket, Back),
    Expected = printed([{text, <<"one">>}, {text, <<"1">>}, {binary, <<"2">>}]),
    Come = maps:get(rest, Answer),
    expect(Socket, binary:part(Expected, byte_size(Come), byte_size(Expected) - byte_size(Come))).

%%% The table

%% Each case on a connection of its own, in one piece.
table(_Config) ->
    Port = serve(),
    [case_of_table(Port, Case, fun(Socket, Bytes) -> send(Socket, Bytes) end)
     || Group <- erlane_http_ws_cases:groups(), Case <- erlane_http_ws_cases:group(Group)],
    until(fun() -> maps:get(connections, erlane_http:info(ws)) =:= 0 end).

%% The small ones once more, each byte in a packet of its own.
table_byte_by_byte(_Config) ->
    Port = serve(),
    [case_of_table(Port, Case, fun(Socket, All) -> [gen_tcp:send(Socket, [B]) || <<B>> <= All] end)
     || Group <- erlane_http_ws_cases:groups(),
        {_, Bytes, _} = Case <- erlane_http_ws_cases:group(Group), iolist_size(Bytes) < 100].

%% All that comes back until the end; a case that does not end is closed by us.
case_of_table(Port, {Name, Bytes, Events}, Send) ->
    {Socket, Pid} = open(Port, [{nodelay, true}]),
    _ = Send(Socket, iolist_to_binary(Bytes)),
    Ends = Events =/= [] andalso tuple_size(lists:last(Events)) =:= 3,
    Ends orelse send(Socket, close(1000)),
    Expected = printed(lists:append([answer(E) || E <- Events]) ++
                       [{close, 1000, <<>>} || not Ends]),
    %% Some are long: only the beginning is shown.
    Got = closed(Socket),
    ?assert(Expected =:= Got, {Name, shown(Expected), shown(Got)}),
    Reason = case Ends of
                 false -> {remote, 1000, <<>>};
                 true ->
                     case lists:last(Events) of
                         {close, Code, Text} -> {remote, Code, Text};
                         Error -> Error
                     end
             end,
    ok = gen_tcp:close(Socket),
    ?assertEqual({Name, Reason}, {Name, terminated(Pid)}).

shown(<<Front:200/binary, _/binary>> = All) -> {Front, byte_size(All)};
shown(Bytes) -> Bytes.

answer({ping, Data}) -> [{pong, Data}];
answer({pong, _}) -> [];
answer({close, undefined, _}) -> [close];
answer({close, Code, _}) -> [{close, Code, <<>>}];
answer({error, Code, _}) -> [{close, Code, <<>>}];
answer(Message) -> [Message].

%%% Closing

%% The server answers with the same code and ends the connection.
close_by_client(_Config) ->
    {Socket, Pid} = open(serve()),
    send(Socket, frame(1, 0, 8, <<3456:16, "bye">>)),
    ?assertEqual(printed([{close, 3456, <<>>}]), closed(Socket)),
    ?assertEqual({remote, 3456, <<"bye">>}, terminated(Pid)).

%% The server waits for the answer and then ends the connection.
close_by_server(_Config) ->
    {Socket, Pid} = open(serve()),
    send(Socket, text(<<"close">>)),
    expect(Socket, printed([{close, 4000, <<"as you wish">>}])),
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 50)),
    send(Socket, close(4000)),
    ?assertEqual(<<>>, closed(Socket)),
    ?assertEqual({local, 4000, <<"as you wish">>}, terminated(Pid)).

%% A close among the frames to send ends them.
close_with_send(_Config) ->
    {Socket, Pid} = open(serve()),
    send(Socket, text(<<"bye">>)),
    expect(Socket, printed([{text, <<"last">>}, close])),
    send(Socket, close(1000)),
    ?assertEqual(<<>>, closed(Socket)),
    ?assertEqual({local, undefined, <<>>}, terminated(Pid)).

%% Who has been told to close is not heard any more, and is not answered.
nothing_after_close(_Config) ->
    {Socket, Pid} = open(serve()),
    send(Socket, [text(<<"close">>), text(<<"crash">>), frame(1, 0, 9, <<"ping">>)]),
    expect(Socket, printed([{close, 4000, <<"as you wish">>}])),
    send(Socket, [text(<<"crash">>), frame(0, 0, 1, <<"x">>), close(1000)]),
    ?assertEqual(<<>>, closed(Socket)),
    ?assertMatch({local, 4000, _}, terminated(Pid)).

%% Nor is it waited for for ever.
close_never_answered(_Config) ->
    {Socket, Pid} = open(serve(#{close_timeout => 100})),
    send(Socket, text(<<"close">>)),
    ?assertEqual(printed([{close, 4000, <<"as you wish">>}]), closed(Socket)),
    ?assertMatch({local, 4000, _}, terminated(Pid)).

%% Both at once: each takes the other's for the answer.
close_crossing(_Config) ->
    {Socket, Pid} = open(serve()),
    Pid ! {close, 1001, <<"going">>},
    send(Socket, close(1000)),
    ?assert(lists:member(closed(Socket), [printed([{close, 1001, <<"going">>}]),
                                          printed([{close, 1000, <<>>}])])),
    ?assertMatch({_, _, _}, terminated(Pid)).

%% Without any close, in order or not.
connection_breaks(_Config) ->
    Port = serve(),
    {Socket, Pid} = open(Port),
    ok = gen_tcp:close(Socket),
    ?assertEqual(closed, terminated(Pid)),
    {Reset, Pid2} = open(Port),
    send(Reset, frame(0, 0, 1, <<"unfinished">>)),
    ok = inet:setopts(Reset, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Reset),
    ?assertEqual(closed, terminated(Pid2)),
    until(fun() -> maps:get(connections, erlane_http:info(ws)) =:= 0 end).

%% What was answered before goes out, then 1011.
crash(_Config) ->
    {Socket, _} = open(serve()),
    send(Socket, [text(<<"one">>), text(<<"crash">>)]),
    ?assertEqual(printed([{text, <<"one">>}, {close, 1011, <<>>}]), closed(Socket)).

crash_in_info(_Config) ->
    {Socket, Pid} = open(serve()),
    Pid ! crash,
    ?assertEqual(printed([{close, 1011, <<>>}]), closed(Socket)).

%%% Traffic

%% What the connection left behind when it waited for this request is not for the handler.
no_strangers(_Config) ->
    Socket = connect(serve(#{}, #{idle_timeout => 200})),
    ?assertMatch(#{status := 403}, erlane_http_client:ask(Socket, upgrade("/refuse", []))),
    ?assertMatch(#{status := 101}, erlane_http_client:ask(Socket, upgrade("/strangers", []))),
    Pid = receive {ws, P} -> P after ?WAIT_MS -> error(not_open) end,
    ?assertEqual({error, timeout}, gen_tcp:recv(Socket, 0, 400)),
    Pid ! anything,
    expect(Socket, printed([{text, <<"anything">>}])).

%% From other processes, while nothing comes from the client and while something does.
messages(_Config) ->
    {Socket, Pid} = open(serve()),
    Pid ! {send, [{text, <<"a">>}, {binary, <<"b">>}]},
    Pid ! ignored,
    Pid ! {send, []},
    Pid ! {send, {ping, <<"p">>}},
    expect(Socket, printed([{text, <<"a">>}, {binary, <<"b">>}, {ping, <<"p">>}])),
    send(Socket, frame(0, 0, 1, <<"he">>)),
    Pid ! {send, {text, <<"between">>}},
    expect(Socket, printed([{text, <<"between">>}])),
    send(Socket, frame(1, 0, 0, <<"llo">>)),
    expect(Socket, printed([{text, <<"hello">>}])).

%% Each ping has its pong, also if all come at once.
many_pings(_Config) ->
    {Socket, _} = open(serve()),
    Ns = lists:seq(1, 20000),
    Sender = spawn_link(fun() -> send(Socket, [frame(1, 0, 9, <<N:16>>) || N <- Ns]) end),
    expect(Socket, printed([{pong, <<N:16>>} || N <- Ns])),
    until(fun() -> not is_process_alive(Sender) end).

%% Messages are answered in order with the state that the last one left.
pipelined(_Config) ->
    {Socket, _} = open(serve()),
    send(Socket, [text(<<"count">>) || _ <- lists:seq(1, 1000)]),
    expect(Socket, printed([{text, integer_to_binary(N)} || N <- lists:seq(0, 999)])).

%% A ping first, and if nothing comes the end.
idle(_Config) ->
    {Socket, Pid} = open(serve(#{ping_after => 50, idle_timeout => 1000})),
    ?assertEqual(printed([{ping, <<>>}, {close, 1001, <<"idle">>}]), closed(Socket)),
    ?assertEqual(idle, terminated(Pid)).

%% Who answers pings stays, for longer than the time without them.
pongs_keep_alive(_Config) ->
    {Socket, _} = open(serve(#{ping_after => 150, idle_timeout => 1000})),
    [begin
         expect(Socket, printed([{ping, <<>>}])),
         send(Socket, frame(1, 0, 10, <<>>))
     end || _ <- lists:seq(1, 8)],
    send(Socket, text(<<"still here">>)),
    expect(Socket, printed([{text, <<"still here">>}])).

%% Messages to the client are no sign of life of it.
busy_is_not_idle(_Config) ->
    {Socket, Pid} = open(serve(#{ping_after => infinity, idle_timeout => 150})),
    {ok, Timer} = timer:send_interval(10, Pid, {send, {text, <<"x">>}}),
    Come = closed(Socket),
    {ok, cancel} = timer:cancel(Timer),
    End = printed([{close, 1001, <<"idle">>}]),
    ?assertEqual(End, binary:part(Come, byte_size(Come), -byte_size(End))),
    ?assertEqual(idle, terminated(Pid)).

%% A client that reads late gets everything, and the server keeps no more than a read of it.
slow_reader(_Config) ->
    {Socket, Pid} = open(serve(), [{recbuf, 8192}]),
    Data = binary:copy(<<"0123456789">>, 6000),
    Count = 300,
    Frame = frame(1, 0, 2, Data),
    Sender = spawn_link(fun() -> [send(Socket, Frame) || _ <- lists:seq(1, Count)] end),
    %% Until the server is stuck in sending.
    until(fun() -> {reductions, A} = process_info(Pid, reductions),
                   receive after 50 -> ok end,
                   {reductions, B} = process_info(Pid, reductions),
                   B - A < 1000
          end),
    {memory, Memory} = process_info(Pid, memory),
    {binary, Binaries} = process_info(Pid, binary),
    ?assert(Memory + lists:sum([Size || {_, Size, _} <- Binaries]) < 8000000),
    [expect(Socket, printed([{binary, Data}])) || _ <- lists:seq(1, Count)],
    until(fun() -> not is_process_alive(Sender) end).

%% A client that never reads ends after send_timeout, and holds nobody else up.
never_reads(_Config) ->
    Port = serve(#{}, #{send_timeout => 300}),
    {Socket, Pid} = open(Port, [{recbuf, 8192}, {sndbuf, 8192}, {send_timeout, 3000}]),
    {Other, _} = open(Port),
    Data = binary:copy(<<"x">>, 100000),
    _ = [gen_tcp:send(Socket, frame(1, 0, 2, Data)) || _ <- lists:seq(1, 200)],
    send(Other, text(<<"fine">>)),
    expect(Other, printed([{text, <<"fine">>}])),
    ?assertEqual(closed, terminated(Pid)),
    until(fun() -> maps:get(connections, erlane_http:info(ws)) =:= 1 end).

%% What init/2 answers with counts, on both sides of each limit.
limits_by_handler(_Config) ->
    Port = serve(#{max_frame => 10, max_message => 15}),
    Ten = <<"0123456789">>,
    {Socket, _} = open(Port),
    send(Socket, [text(Ten), frame(0, 0, 1, Ten), frame(1, 0, 0, <<"01234">>),
                  frame(1, 0, 9, <<"a ping may be longer">>), frame(1, 0, 1, <<Ten/binary, "x">>)]),
    ?assertEqual(printed([{text, Ten}, {text, <<Ten/binary, "01234">>},
                          {pong, <<"a ping may be longer">>}, {close, 1009, <<>>}]),
                 closed(Socket)),
    {Socket2, _} = open(Port),
    send(Socket2, [frame(0, 0, 1, Ten), frame(1, 0, 0, <<"012345">>)]),
    ?assertEqual(printed([{close, 1009, <<>>}]), closed(Socket2)).

%% A listener that stops says so to its WebSockets.
drain(_Config) ->
    {Socket, Pid} = open(serve()),
    Stopper = spawn_link(fun() -> ok = erlane_http:stop(ws, #{drain => ?WAIT_MS}) end),
    expect(Socket, printed([{close, 1001, <<>>}])),
    send(Socket, close(1001)),
    ?assertEqual(<<>>, closed(Socket)),
    ?assertEqual({local, 1001, <<>>}, terminated(Pid)),
    until(fun() -> not is_process_alive(Stopper) end).

over_tls(_Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Tls} =
        public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Port = serve(#{}, #{tls => Tls}),
    {ok, Socket} = ssl:connect({127, 0, 0, 1}, Port, [binary, {active, false},
                                                      {verify, verify_none}], ?WAIT_MS),
    ok = ssl:send(Socket, upgrade()),
    {ok, <<"HTTP/1.1 101 ", _/binary>>} = ssl:recv(Socket, 0, ?WAIT_MS),
    receive {ws, Pid} -> Pid ! {send, {text, <<"pushed">>}} end,
    Large = binary:copy(<<"0123456789">>, 50000),
    ok = ssl:send(Socket, [frame(1, 0, 2, Large), close(1000)]),
    Expected = printed([{text, <<"pushed">>}, {binary, Large}, {close, 1000, <<>>}]),
    {ok, Come} = ssl:recv(Socket, byte_size(Expected), ?WAIT_MS),
    ?assert(Come =:= Expected),
    ?assertEqual({error, closed}, ssl:recv(Socket, 0, ?WAIT_MS)),
    ?assertEqual({remote, 1000, <<>>}, terminated(Pid)).

%% Debian's python3-websockets, which keeps to the rules and checks that we do.
other_client(Config) ->
    Python = "/usr/bin/python3",
    case os:cmd(Python ++ " -c 'import websockets'") of
        "" ->
            Script = filename:join(proplists:get_value(data_dir, Config), "client.py"),
            Url = io_lib:format("ws://127.0.0.1:~b/ws", [serve()]),
            ?assertEqual("ok\n", os:cmd(lists:join(" ", [Python, Script, Url]))),
            until(fun() -> maps:get(connections, erlane_http:info(ws)) =:= 0 end);
        _ ->
            {skip, "python3-websockets is not installed"}
    end.
