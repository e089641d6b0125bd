%% SPDX-License-Identifier: Apache-2.0
%% @doc The upstream of the demo: an HTTP server that says hello, one process a connection.
-module(erlane_demo_http).

-export([start_link/1]).
-export([accept/2, serve/1]).

-define(REPLY, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 18\r\n\r\n"
               "Hello from erlane\n").
%% A request without its end after this many bytes is not worth waiting for.
-define(MAX_REQUEST, 16384).

%% @doc Listens on a port of the loopback address and starts an acceptor on each lane, linked
%% to the caller.
-spec start_link(inet:port_number()) -> {ok, inet:port_number()} | {error, inet:posix()}.
start_link(Port) ->
    case gen_tcp:listen(Port, [{inet_backend, inet}, {tcp_module, erlane_tcp}, binary,
                               {ip, {127, 0, 0, 1}}, {active, false}, {reuseaddr, true},
                               {nodelay, true}, {backlog, 1024}]) of
        {ok, Listen} ->
            _ = [spawn_opt(?MODULE, accept, [Listen, Lane],
                           [link | erlane_proxy_lane:spawn_options(Lane)])
                 || Lane <- erlane_socket:lanes()],
            inet:port(Listen);
        {error, Reason} ->
            {error, Reason}
    end.

%% @private
-spec accept(gen_tcp:socket(), pos_integer()) -> no_return().
accept(Listen, Lane) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            Pid = spawn_opt(?MODULE, serve, [Socket], erlane_proxy_lane:spawn_options(Lane)),
            case gen_tcp:controlling_process(Socket, Pid) of
                ok -> Pid ! yours;
                {error, _} -> exit(Pid, kill)
            end;
        {error, closed} ->
            exit(normal);
        {error, _} ->
            receive after 100 -> ok end
    end,
    accept(Listen, Lane).

%% @private
-spec serve(gen_tcp:socket()) -> ok.
serve(Socket) ->
    receive yours -> requests(Socket, <<>>) end.

requests(Socket, Buffer) ->
    ok = inet:setopts(Socket, [{active, once}]),
    receive
        {tcp, Socket, Data} -> answer(Socket, <<Buffer/binary, Data/binary>>);
        {tcp_closed, Socket} -> ok;
        {tcp_error, Socket, _} -> ok
    end.

%% Several requests may have come at once: one reply each, in one send.
answer(Socket, Data) ->
    {Whole, [Rest]} = lists:split(length(binary:matches(Data, <<"\r\n\r\n">>)),
                                  binary:split(Data, <<"\r\n\r\n">>, [global])),
    case gen_tcp:send(Socket, [?REPLY || _ <- Whole]) of
        ok when byte_size(Rest) =< ?MAX_REQUEST -> requests(Socket, Rest);
        _ -> gen_tcp:close(Socket)
    end.
