%% SPDX-License-Identifier: Apache-2.0
%% @doc A TCP proxy in plain gen_tcp style: one process holds both sockets of a connection
%% and carries every packet. The first argument says what carries its sockets:
%%
%%     tcp_proxy erlane 8080 127.0.0.1 8081
%%     tcp_proxy gen_tcp 8080 127.0.0.1 8081
%%
%% It is here to compare the two. To relay bytes for real use erlane_proxy: there the lane
%% carries them, no process wakes, and half-close, timeouts and limits are looked after.
-module(tcp_proxy).

-export([main/1]).

-define(CONNECT_MS, 5000).

%% @doc Serves until the VM is stopped. Arguments: erlane or gen_tcp, port, upstream's host
%% and port.
-spec main([string()]) -> no_return().
main([Carrier, Port, Host, ToPort]) ->
    Opts = carrier(Carrier) ++ [binary, {active, false}, {nodelay, true}],
    {ok, Listen} = gen_tcp:listen(list_to_integer(Port),
                                  Opts ++ [{ip, {127, 0, 0, 1}}, {reuseaddr, true},
                                           {backlog, 1024}]),
    {ok, Address} = inet:getaddr(Host, inet),
    Connect = fun() ->
                      gen_tcp:connect(Address, list_to_integer(ToPort), Opts, ?CONNECT_MS)
              end,
    io:format("tcp_proxy over ~s: 127.0.0.1:~s -> ~s:~s~n", [Carrier, Port, Host, ToPort]),
    [spawn_link(fun() -> accept(Listen, Connect) end)
     || _ <- lists:seq(2, erlang:system_info(schedulers))],
    accept(Listen, Connect);
main(_) ->
    io:format(standard_error, "usage: tcp_proxy erlane|gen_tcp PORT HOST PORT~n", []),
    halt(2).

%% The whole difference.
carrier("erlane") ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    [{inet_backend, inet}, {tcp_module, erlane_tcp}];
carrier("gen_tcp") ->
    [].

accept(Listen, Connect) ->
    {ok, Client} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> connect(Client, Connect) end end),
    _ = gen_tcp:controlling_process(Client, Pid),
    Pid ! go,
    accept(Listen, Connect).

connect(Client, Connect) ->
    case Connect() of
        {ok, Server} ->
            once(Client),
            once(Server),
            loop(Client, Server);
        {error, Reason} ->
            io:format(standard_error, "tcp_proxy: connect: ~p~n", [Reason]),
            gen_tcp:close(Client)
    end.

%% {active, once} is the back-pressure: nothing more is read before the last packet is sent.
loop(Client, Server) ->
    receive
        {tcp, Client, Data} -> pass(Client, Data, Server, Client, Server);
        {tcp, Server, Data} -> pass(Server, Data, Client, Client, Server);
        {tcp_closed, _Either} -> stop(Client, Server);
        {tcp_error, _Either, _Reason} -> stop(Client, Server)
    end.

pass(From, Data, To, Client, Server) ->
    case gen_tcp:send(To, Data) of
        ok ->
            once(From),
            loop(Client, Server);
        {error, _} ->
            stop(Client, Server)
    end.

%% The socket may be closed by now; its tcp_closed message then ends the loop.
once(Socket) ->
    _ = inet:setopts(Socket, [{active, once}]),
    ok.

stop(Client, Server) ->
    _ = gen_tcp:close(Client),
    gen_tcp:close(Server).
