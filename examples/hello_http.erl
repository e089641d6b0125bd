%% SPDX-License-Identifier: Apache-2.0
%% @doc The smallest HTTP server that keeps connections alive: one process a connection,
%% plain gen_tcp. The first argument says what carries its sockets, nothing else differs:
%%
%%     hello_http erlane 8081      sockets in lanes
%%     hello_http gen_tcp 8081     the sockets of the VM
-module(hello_http).

-export([main/1]).

-define(REPLY, <<"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\n"
                 "Hello, world\n">>).

%% @doc Serves until the VM is stopped. Arguments: erlane or gen_tcp, and the port.
-spec main([string()]) -> no_return().
main([Carrier, Port]) ->
    Opts = carrier(Carrier) ++ [binary, {ip, {127, 0, 0, 1}}, {active, false},
                                {reuseaddr, true}, {nodelay, true}, {backlog, 1024}],
    {ok, Listen} = gen_tcp:listen(list_to_integer(Port), Opts),
    io:format("hello_http over ~s: http://127.0.0.1:~s/~n", [Carrier, Port]),
    %% One acceptor a scheduler; the last one is this process.
    [spawn_link(fun() -> accept(Listen) end)
     || _ <- lists:seq(2, erlang:system_info(schedulers))],
    accept(Listen);
main(_) ->
    io:format(standard_error, "usage: hello_http erlane|gen_tcp PORT~n", []),
    halt(2).

%% The whole difference.
carrier("erlane") ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    [{inet_backend, inet}, {tcp_module, erlane_tcp}];
carrier("gen_tcp") ->
    [].

accept(Listen) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> loop(Socket, <<>>) end end),
    _ = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen).

loop(Socket, Buffer) ->
    ok = inet:setopts(Socket, [{active, once}]),
    receive
        {tcp, Socket, Data} -> answer(Socket, <<Buffer/binary, Data/binary>>);
        {tcp_closed, Socket} -> ok;
        {tcp_error, Socket, _Reason} -> ok
    end.

%% A request without a body ends with an empty line. Several may have come at once.
answer(Socket, Data) ->
    case binary:split(Data, <<"\r\n\r\n">>) of
        [_Request, Rest] ->
            case gen_tcp:send(Socket, ?REPLY) of
                ok -> answer(Socket, Rest);
                {error, _} -> gen_tcp:close(Socket)
            end;
        [Part] when byte_size(Part) < 16384 ->
            loop(Socket, Part);
        [_TooLong] ->
            gen_tcp:close(Socket)
    end.
