%% SPDX-License-Identifier: Apache-2.0
%% @doc WebSocket (RFC 6455): the behaviour of a handler, and the handshake.
%%
%% A handler of requests answers `{upgrade, Module, Args}', and Module does the rest in the
%% process of the connection:
%%
%% ```
%% -module(echo).
%% -behaviour(erlane_http_ws).
%% -export([init/2, frame/2]).
%%
%% init(_Req, Args) -> {ok, Args}.
%% frame(Message, State) -> {send, Message, State}.
%% '''
%%
%% A browser sends the cookies of your site with a WebSocket that any other site opens. If that
%% matters, look at the `origin' header in init/2 and refuse.
%%
%% Others may write to the client, too, without a message to this process for each frame: opened/2
%% gets the socket, for `erlane_socket:send_each/3' or a subscription of a fan-out. They write whole
%% frames; what they and this process write is not mixed. In closing/1, which is called before a
%% close is sent, they are told to stop. A client that takes nothing for `send_timeout' when this
%% process has to send something, if only a pong, is disconnected.
%%
%% Pings are answered, and a client that was silent for long is asked for a sign of life, without
%% the handler. A text that a handler sends must be UTF-8; it is not checked again.
-module(erlane_http_ws).

-export([protocols/1, handshake/1, accepted/2]).

-export_type([message/0, frame/0, options/0, result/0, reason/0]).

-type message() :: {text | binary, binary()}.
-type frame() :: erlane_http_ws_frame:frame().
%% What a handler may send: messages, pings, pongs and a close.

-type options() :: #{%% One of {@link protocols/1}.
                     protocol => binary(),
                     %% Bytes of payload in a frame (default 1 MB) and in a message (4 MB).
                     max_frame => pos_integer(),
                     max_message => pos_integer(),
                     %% After so many ms without a byte from the client it is sent a ping
                     %% (default 30,000), and the connection ends (60,000).
                     ping_after => pos_integer() | infinity,
                     idle_timeout => pos_integer() | infinity,
                     %% How long the other side may take to answer a close (5,000).
                     close_timeout => pos_integer()}.

-type result() :: {ok, State :: term()}
                | {send, frame() | [frame()], State :: term()}
                | {close, erlane_http_ws_frame:code(), Reason :: iodata(), State :: term()}.

-type reason() :: {remote, erlane_http_ws_frame:code() | undefined, Reason :: binary()}
                | {local, erlane_http_ws_frame:code() | undefined, Reason :: binary()}
                | {error, erlane_http_ws_frame:code(), Why :: atom()}
                | idle
                | closed.
%% Who said the close first; that the client broke the protocol; that nothing came from it; that
%% the connection broke.

-callback init(erlane_http:req(), Args :: term()) ->
    {ok, State :: term()} | {ok, State :: term(), options()}
  | {refuse, erlane_http:status(), erlane_http:headers(), iodata()}.
-callback opened(erlane_tcp:socket() | undefined, State :: term()) -> result().
%% The handshake is out. The socket if it may be written to by others, which that of TLS, or one
%% that is not in a lane, may not.
-callback closing(State :: term()) -> term().
-callback frame(message(), State :: term()) -> result().
-callback info(Message :: term(), State :: term()) -> result().
%% A message from another process; without this callback they are dropped.
-callback terminate(reason(), State :: term()) -> term().
-optional_callbacks([info/2, opened/2, closing/1, terminate/2]).

%% @doc The subprotocols that the client offers, best first.
-spec protocols(erlane_http:req()) -> [binary()].
protocols(Req) ->
    Text = erlane_http:header(<<"sec-websocket-protocol">>, Req, <<>>),
    [Token || Part <- binary:split(Text, <<",">>, [global]),
              Token <- [erlane_http_name:trim(Part)], Token =/= <<>>].

%% @doc Checks an opening handshake (section 4.2.1): the key, or the answer that refuses it.
-spec handshake(erlane_http:req()) ->
          {ok, Key :: binary()}
        | {refuse, erlane_http:status(), erlane_http:headers(), iodata()}.
handshake(Req) ->
    Key = erlane_http:header(<<"sec-websocket-key">>, Req, <<>>),
    Checks = [{erlane_http:method(Req) =:= <<"GET">>, fun() -> refuse(405) end},
              {erlane_http:version(Req) >= {1, 1}, fun() -> refuse(400) end},
              {has(<<"upgrade">>, <<"websocket">>, Req), fun() -> refuse(426) end},
              {has(<<"connection">>, <<"upgrade">>, Req), fun() -> refuse(400) end},
              {has_no_body(Req), fun() -> refuse(400) end},
              {version(Req) =/= undefined, fun() -> refuse(400) end},
              {version(Req) =:= <<"13">>, fun() -> refuse(426) end},
              {is_key(Key), fun() -> refuse(400) end}],
    case [Refuse || {false, Refuse} <- Checks] of
        [] -> {ok, Key};
        [Refuse | _] -> Refuse()
    end.

version(Req) ->
    erlane_http:header(<<"sec-websocket-version">>, Req).

has(Name, Token, Req) ->
    erlane_http_name:has(Token, [erlane_http:header(Name, Req, <<>>)]).

%% The bytes behind the head are frames: a body would be taken for some.
has_no_body(Req) ->
    erlane_http:header(<<"transfer-encoding">>, Req) =:= undefined andalso
        lists:member(erlane_http:header(<<"content-length">>, Req), [undefined, <<"0">>]).

%% Sixteen bytes in base64.
is_key(<<Text:22/binary, "==">>) ->
    re:run(Text, "^[A-Za-z0-9+/]{21}[AQgw]$", [dollar_endonly]) =/= nomatch;
is_key(_) ->
    false.

refuse(405) ->
    refuse(405, [{<<"allow">>, <<"GET">>}], "a WebSocket begins with GET");
refuse(426) ->
    refuse(426, [{<<"upgrade">>, <<"websocket">>},
                 {<<"sec-websocket-version">>, <<"13">>}], "WebSocket 13 is spoken here");
refuse(400) ->
    refuse(400, [], "this is no handshake of a WebSocket").

refuse(Status, Headers, Text) ->
    {refuse, Status, [{<<"content-type">>, <<"text/plain; charset=utf-8">>} | Headers],
     [Text, $\n]}.

%% @doc The answer to a good handshake.
-spec accepted(Key :: binary(), Protocol :: binary() | undefined) -> iodata().
accepted(Key, Protocol) ->
    ["HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
     "sec-websocket-accept: ", erlane_http_ws_frame:accept_key(Key), "\r\n",
     [["sec-websocket-protocol: ", Protocol, "\r\n"] || Protocol =/= undefined], "\r\n"].
