%% SPDX-License-Identifier: Apache-2.0
%% @doc Hello over cowboy. Its sockets are ranch's, those of the VM or of erlane: nothing but
%% two options of the listener differs.
-module(peer_cowboy).

-export([start/1, init/2]).

%% Timers as long as the benchmark: nobody is closed for being idle.
-define(HOUR_MS, 3600000).

%% @doc Listens on loopback; the port.
-spec start(gen_tcp | erlane) -> inet:port_number().
start(Socket) ->
    Carried = carrier(Socket),
    {ok, _} = application:ensure_all_started(cowboy),
    Dispatch = cowboy_router:compile([{'_', [{'_', ?MODULE, []}]}]),
    Transport = #{socket_opts => Carried ++ [{ip, {127, 0, 0, 1}}, {port, 0},
                                        {backlog, 4096}],
                  max_connections => infinity, num_acceptors => 10},
    Protocol = #{env => #{dispatch => Dispatch}, max_keepalive => 1 bsl 60,
                 idle_timeout => ?HOUR_MS, request_timeout => ?HOUR_MS},
    {ok, _} = cowboy:start_clear(hello, Transport, Protocol),
    ranch:get_port(hello).

carrier(gen_tcp) -> [];
carrier(erlane) ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    [{inet_backend, inet}, {tcp_module, erlane_tcp}].

%% @doc The handler.
-spec init(map(), term()) -> {ok, map(), term()}.
init(Req, State) ->
    {ok, cowboy_req:reply(200, #{<<"content-type">> => <<"text/plain">>}, <<"Hello world!">>,
                          Req), State}.
