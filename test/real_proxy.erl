%% SPDX-License-Identifier: Apache-2.0
%% `bin/erlane proxy' as a program, and its clients over stock gen_tcp.
-module(real_proxy).

-export([start/2, args/2, port/1, done/2, connect/1, echo/1, echoed/1, refused/1, refuses/1,
         free_port/0]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 20000).

%% `bin/erlane proxy' before a port of the loopback address, and the port it listens on.
start(Upstream, More) ->
    Proxy = real_os:start(real_os:erlane(), args(Upstream, More)),
    {Proxy, port(Proxy)}.

args(Upstream, More) ->
    ["proxy", "--listen", "127.0.0.1:0", "--to", lists:concat(["127.0.0.1:", Upstream]) | More].

port(Proxy) ->
    real_os:wait_line(Proxy, "^proxy 127.0.0.1:[0-9]+ -> "),
    {match, [Port]} = re:run(real_os:output(Proxy), "proxy 127.0.0.1:(\\d+) -> ",
                             [{capture, all_but_first, list}]),
    list_to_integer(Port).

%% Runs a command that must succeed; its output.
done(Program, Args) ->
    case real_os:run(Program, Args) of
        {0, Output} -> Output;
        {Status, Output} -> ct:fail("~ts ~0tp: exit status ~b~n~ts",
                                    [Program, Args, Status, Output])
    end.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false},
                                                     {show_econnreset, true},
                                                     {exit_on_close, false}], ?WAIT_MS),
    Socket.

%% A connection that the upstream echoes, and has echoed.
echo(Port) ->
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, <<"e">>),
    ok = echoed(Socket),
    Socket.

echoed(Socket) ->
    ok = gen_tcp:send(Socket, "ping"),
    {ok, <<"ping">>} = gen_tcp:recv(Socket, 4, ?WAIT_MS),
    ok.

%% The reset may be there before connect has returned.
refused(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [{active, false}, {show_econnreset, true}]) of
        {ok, Socket} -> gen_tcp:recv(Socket, 0, ?WAIT_MS);
        {error, Reason} -> {error, Reason}
    end.

refuses(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, []) of
        {error, econnrefused} -> ok;
        {ok, Socket} -> ok = gen_tcp:close(Socket), error(still_listening)
    end.

free_port() ->
    {ok, Socket} = gen_tcp:listen(0, [{ip, ?LOOPBACK}, {reuseaddr, true}]),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Port.
