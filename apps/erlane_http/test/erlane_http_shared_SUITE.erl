%% SPDX-License-Identifier: Apache-2.0
%% @doc Connections whose socket other processes write to: WebSockets with opened/2 and closing/1,
%% event streams of two arguments. Handlers: this suite and erlane_http_shared_ws.
-module(erlane_http_shared_SUITE).

-behaviour(erlane_http).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([ws_opened/1, ws_answers_at_once/1, ws_closing/1, ws_crash/1, ws_frames_stay_whole/1,
         sse_socket/1, sse_is_not_chunked/1, sse_ends/1, not_shared/1]).
-export([handle/2]).

-import(erlane_http_client, [connect/1, closed/1]).

-define(WAIT_MS, 10000).
-define(UPGRADE, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                 "\r\n").

suite() -> [{timetrap, {minutes, 1}}].

all() ->
    [ws_opened, ws_answers_at_once, ws_closing, ws_crash, ws_frames_stay_whole,
     sse_socket, sse_is_not_chunked, sse_ends, not_shared].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    Config.

end_per_suite(_Config) ->
    application:stop(erlane_http).

end_per_testcase(_Case, _Config) ->
    erlane_http_client:stop(shared).

%%% The handler: it tells the test what happens

handle(Req, #{test := Test} = Args) ->
    case erlane_http:path(Req) of
        [<<"events">>] ->
            {sse, [], fun(Emit, Socket) ->
                          Test ! {stream, self(), Socket},
                          receive
                              {emit, Event} -> Emit(Event), receive done -> ok end;
                              done -> ok
                          end
                      end};
        [] -> {upgrade, erlane_http_shared_ws, Args}
    end.

%%% What the cases share

serve() -> serve(#{}).

serve(Args) ->
    erlane_http_client:start(shared, {?MODULE, Args#{test => self()}}, #{}).

%% The client's socket, the connection's process and its socket.
open(Port) ->
    Client = connect(Port),
    ok = gen_tcp:send(Client, ?UPGRADE),
    ?assertMatch(<<"HTTP/1.1 101 ", _/binary>>, head(Client, <<>>)),
    receive {opened, Pid, Socket} -> {Client, Pid, Socket} after ?WAIT_MS -> error(not_open) end.

events(Port) ->
    Client = connect(Port),
    ok = gen_tcp:send(Client, "GET /events HTTP/1.1\r\nHost: x\r\n\r\n"),
    Head = head(Client, <<>>),
    receive {stream, Pid, Socket} -> {Client, Pid, Socket, Head}
    after ?WAIT_MS -> error(no_stream)
    end.

head(Client, Got) ->
    {ok, Byte} = gen_tcp:recv(Client, 1, ?WAIT_MS),
    case <<Got/binary, Byte/binary>> of
        All when binary_part(All, byte_size(All), -4) =:= <<"\r\n\r\n">> -> All;
        All -> head(Client, All)
    end.

expect(Client, Bytes) ->
    ?assertEqual({ok, Bytes}, gen_tcp:recv(Client, byte_size(Bytes), ?WAIT_MS)).

print(Frame) -> iolist_to_binary(erlane_http_ws_frame:print(Frame, none)).

text(Text) -> iolist_to_binary(erlane_http_ws_frame:print({text, Text}, <<1, 2, 3, 4>>)).

%%% Cases

%% The socket is one that others may write to.
ws_opened(_Config) ->
    {Client, _, Socket} = open(serve()),
    ?assertEqual([], erlane_socket:send_each([Socket], print({text, <<"from outside">>}))),
    expect(Client, print({text, <<"from outside">>})),
    ok = gen_tcp:send(Client, text(<<"echo">>)),
    expect(Client, print({text, <<"echo">>})).

%% What opened/2 answers is done as for any other callback.
ws_answers_at_once(_Config) ->
    {Client, _, _} = open(serve(#{hello => <<"hello">>})),
    expect(Client, print({text, <<"hello">>})).

%% Whoever begins, closing/1 is called, and returns, before a close is sent.
ws_closing(_Config) ->
    Port = serve(),
    [begin
         {Client, Pid, Socket} = open(Port),
         ok = gen_tcp:send(Client, Bytes),
         receive {closing, Pid} -> ok after ?WAIT_MS -> error(not_closing) end,
         [] = erlane_socket:send_each([Socket], print({text, <<"last">>})),
         Pid ! {go_on, self()},
         expect(Client, <<(print({text, <<"last">>}))/binary, (print(Close))/binary>>),
         ok = gen_tcp:close(Client)
     end || {Bytes, Close} <- [{text(<<"close">>), {close, 4000, <<>>}},
                               {erlane_http_ws_frame:print({close, 3000, <<>>}, <<1, 2, 3, 4>>),
                                {close, 3000, <<>>}},
                               {<<16#ff, 16#ff>>, {close, 1002, <<>>}}]],
    ok.

ws_crash(_Config) ->
    {Client, Pid, _} = open(serve()),
    ok = logger:add_primary_filter(?MODULE, {fun(_, _) -> stop end, []}),
    ok = gen_tcp:send(Client, text(<<"crash">>)),
    receive {closing, Pid} -> Pid ! {go_on, self()} after ?WAIT_MS -> error(not_closing) end,
    ?assertEqual(print({close, 1011, <<>>}), closed(Client)),
    ok = logger:remove_primary_filter(?MODULE).

%% Two writers and the connection's process, which answers: each frame comes whole.
ws_frames_stay_whole(_Config) ->
    {Client, _, Socket} = open(serve()),
    Big = fun(Letter) -> print({text, binary:copy(Letter, 3000)}) end,
    Writers = [spawn_link(fun() ->
                              [_ = erlane_socket:send_each([Socket], Big(L), #{limit => 1 bsl 30})
                               || _ <- lists:seq(1, 200)]
                          end) || L <- [<<"a">>, <<"b">>]],
    [ok = gen_tcp:send(Client, text(<<"echo">>)) || _ <- lists:seq(1, 50)],
    Kinds = [frame_kind(Client) || _ <- lists:seq(1, 450)],
    ?assertEqual([{<<"a">>, 200}, {<<"b">>, 200}, {<<"e">>, 50}],
                 [{K, length([1 || X <- Kinds, X =:= K])} || K <- lists:usort(Kinds)]),
    [begin
         Ref = monitor(process, W),
         receive {'DOWN', Ref, process, W, _} -> ok after ?WAIT_MS -> error(still_writing) end
     end || W <- Writers],
    ok.

frame_kind(Client) ->
    {ok, <<16#81, Short>>} = gen_tcp:recv(Client, 2, ?WAIT_MS),
    Size = case Short of
               126 -> {ok, <<N:16>>} = gen_tcp:recv(Client, 2, ?WAIT_MS), N;
               N -> N
           end,
    case gen_tcp:recv(Client, Size, ?WAIT_MS) of
        {ok, <<"echo">>} -> <<"e">>;
        {ok, <<L:1/binary, _/binary>> = All} -> All = binary:copy(L, 3000), L
    end.

%% The same of events; Emit goes on to work beside it.
sse_socket(_Config) ->
    {Client, Pid, Socket, _} = events(serve()),
    [] = erlane_socket:send_each([Socket], <<"data: outside\n\n">>),
    expect(Client, <<"data: outside\n\n">>),
    Pid ! {emit, <<"inside">>},
    expect(Client, <<"data: inside\n\n">>).

%% Who writes to it need not know of chunks.
sse_is_not_chunked(_Config) ->
    {_, _, _, Head} = events(serve()),
    ?assertMatch({match, _}, re:run(Head, "content-type: text/event-stream\r\n", [caseless])),
    ?assertMatch({match, _}, re:run(Head, "connection: close\r\n", [caseless])),
    ?assertEqual(nomatch, re:run(Head, "transfer-encoding|content-length", [caseless])).

sse_ends(_Config) ->
    {Client, Pid, _, _} = events(serve()),
    Pid ! done,
    ?assertEqual(<<>>, closed(Client)).

%% A socket that is not in a lane.
not_shared(_Config) ->
    Handler = {?MODULE, #{test => self()}},
    Port = erlane_http_client:start(shared, Handler, #{socket => gen_tcp}),
    ?assertMatch({_, _, undefined}, open(Port)),
    ?assertMatch({_, _, undefined, _}, events(Port)).
