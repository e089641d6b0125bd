%% SPDX-License-Identifier: Apache-2.0
%% @doc A chat over WebSocket, with its page. Each room is a topic: who writes publishes once, and
%% the lanes of erlane_fanout write the line to the sockets of all who are there. No process is
%% woken for a line but that of its writer.
%%
%%     chat 8080          then open http://127.0.0.1:8080/any-room in a few windows
-module(chat).
-behaviour(erlane_http).

-export([main/1, start/1, handle/2]).
-export([init/2, opened/2, frame/2, closing/1]).    % of erlane_http_ws

%% @doc Serves until the VM is stopped. Argument: the port.
-spec main([string()]) -> no_return().
main([Port]) ->
    ok = start(list_to_integer(Port)),
    io:format("http://127.0.0.1:~b/~n", [erlane_http:port(chat)]),
    receive after infinity -> ok end;
main(_) ->
    io:format(standard_error, "usage: chat PORT~n", []),
    halt(2).

%% @doc Starts the server and returns.
-spec start(inet:port_number()) -> ok.
start(Port) ->
    [{ok, _} = application:ensure_all_started(App) || App <- [erlane_http, erlane_fanout]],
    {ok, _} = erlane_http:start(chat, #{handler => {?MODULE, none}, port => Port}),
    ok.

%% @doc The page for each room; the page opens a WebSocket at the same address below /ws.
-spec handle(erlane_http:req(), none) -> erlane_http:reply().
handle(Req, none) ->
    case erlane_http:path(Req) of
        [<<"ws">>, Room] -> {upgrade, ?MODULE, <<"chat/", Room/binary>>};
        _ -> {200, [{<<"content-type">>, <<"text/html; charset=utf-8">>}], page()}
    end.

%% The state is the topic, later with the subscription. A wildcard is no room.
init(_Req, Topic) ->
    case binary:match(Topic, [<<"+">>, <<"#">>]) of
        nomatch -> {ok, Topic};
        _ -> {refuse, 404, [], <<"this is no name of a room\n">>}
    end.

%% From here on the lane writes to the socket. Who cannot follow hears of it.
opened(Socket, Topic) ->
    Gap = fun(From, To) -> io_lib:format("* ~b lines left out", [To - From + 1]) end,
    {ok, Sub, _} = erlane_fanout:subscribe(Topic, #{mode => {socket, Socket, ws_text},
                                                    limit => 65536, gap_frame => Gap}),
    ok = erlane_fanout:publish(Topic, <<"* somebody has come in">>),
    {ok, {Topic, Sub}}.

frame({text, Line}, {Topic, _} = State) ->
    ok = erlane_fanout:publish(Topic, Line),
    {ok, State};
frame({binary, _}, State) ->
    {close, 1003, <<"text only">>, State}.

%% Nothing may follow the close that is sent after this.
closing({Topic, Sub}) ->
    ok = erlane_fanout:unsubscribe(Sub),
    erlane_fanout:publish(Topic, <<"* somebody has left">>);
closing(_NotOpened) ->
    ok.

page() ->
    <<"<!doctype html><meta charset=utf-8><title>chat</title>\n"
      "<style>body{font:16px sans-serif;max-width:40em;margin:2em auto}\n"
      "#log{height:60vh;overflow:auto;border:1px solid #999;padding:.5em;white-space:pre-wrap}\n"
      "input{width:100%;font:inherit;box-sizing:border-box;margin-top:.5em}</style>\n"
      "<h1>Chat</h1><div id=log></div>\n"
      "<form id=f><input id=line autocomplete=off autofocus placeholder='say something'></form>\n"
      "<script>\n"
      "const room = location.pathname.slice(1) || 'lobby', log = document.getElementById('log');\n"
      "const say = text => { const p = document.createElement('div'); p.textContent = text;\n"
      "                      log.append(p); log.scrollTop = log.scrollHeight; };\n"
      "const ws = new WebSocket('ws://' + location.host + '/ws/' + room);\n"
      "ws.onmessage = e => say(e.data);\n"
      "ws.onclose = () => say('* the connection has ended');\n"
      "document.getElementById('f').onsubmit = e => {\n"
      "  e.preventDefault(); const line = document.getElementById('line');\n"
      "  if (line.value) ws.send(line.value); line.value = ''; };\n"
      "</script>\n">>.
