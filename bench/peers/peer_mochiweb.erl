%% SPDX-License-Identifier: Apache-2.0
%% @doc Hello over mochiweb.
-module(peer_mochiweb).

-export([start/1]).

%% @doc Listens on loopback; the port.
-spec start(gen_tcp) -> inet:port_number().
start(gen_tcp) ->
    Hello = fun(Req) ->
                    mochiweb_request:ok({"text/plain", <<"Hello world!">>}, Req)
            end,
    {ok, _} = mochiweb_http:start([{name, hello}, {ip, "127.0.0.1"}, {port, 0},
                                   {loop, Hello}, {nodelay, true}, {backlog, 4096},
                                   {max, 200000}]),
    mochiweb_socket_server:get(hello, port).
