%% SPDX-License-Identifier: Apache-2.0
%% @doc Hello over Yaws in embedded mode, without logs.
-module(peer_yaws).

-export([start/1, out/1]).

%% @doc Listens on loopback; the port. Yaws does not tell which one it got for port 0.
-spec start(gen_tcp) -> inet:port_number().
start(gen_tcp) ->
    Port = erlane_bench_os:free_port(),
    Here = filename:dirname(code:which(?MODULE)),
    Server = [{port, Port}, {listen, {127, 0, 0, 1}}, {servername, "localhost"},
              {appmods, [{"/", ?MODULE}]},
              {flags, [{access_log, false}, {auth_log, false}]},
              {soptions, [{listen_opts, [{backlog, 4096}, {nodelay, true}]}]}],
    Global = [{logdir, Here}, {keepalive_timeout, 3600000}, {max_connections, nolimit}],
    ok = yaws:start_embedded(Here, Server, Global, "bench"),
    Port.

%% @doc The handler.
-spec out(term()) -> term().
out(_Arg) ->
    {content, "text/plain", <<"Hello world!">>}.
