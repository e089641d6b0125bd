%% SPDX-License-Identifier: Apache-2.0
%% @doc The Erlang contestants of the benchmark: one small server in plain gen_tcp style, over
%% the sockets of the VM or over those of erlane. Runs in a VM of its own:
%%
%%     erl -noshell -pa EBIN... -s erlane_bench_server start -extra KIND BACKEND [BUFFER [PORT]]
%%
%% KIND is `http' (hello, one process a connection), `echo' (the same, bytes back) or `proxy'
%% (to PORT on loopback; one process holds both sockets of a connection). BACKEND is `gen_tcp',
%% `socket', `erlane' or, for a proxy only, `relay' (the lane carries the bytes); with `-deferred'
%% behind it a connection is accepted when bytes have come (TCP_DEFER_ACCEPT). BUFFER is the
%% `buffer' option of every socket, 0 for its default.
%%
%% Prints `ready PORT', then obeys lines on standard input, each answered by one line: `memory'
%% (bytes the VM holds), `processes', `busy N' (N processes that never wait; 0 ends them). Stops
%% when standard input ends.
-module(erlane_bench_server).

-export([start/0, program/1, commands/1]).

-define(REPLY, <<"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello world!">>).
-define(CONNECT_MS, 5000).

%% What a connection needs to know: patterns compiled once, options of the other side.
-record(how, {kind :: http | echo | proxy | relay,
              head_end :: binary:cp(),
              last :: binary:cp(),
              connect :: [term()],
              to :: inet:port_number()}).

%% @doc Entry of the VM: serves until standard input ends. There is no limit in time here,
%% because a timer, however far away, wakes the VM now and then: erlane_bench_os sets one.
-spec start() -> ok.
start() ->
    program(fun main/1).

%% @doc What a VM of the harness does with its plain arguments. A crash is one line, for the
%% harness shows the last one, and the end.
-spec program(fun(([string()]) -> term())) -> ok.
program(Main) ->
    _ = spawn(fun() ->
                      try
                          Main(init:get_plain_arguments())
                      catch
                          Class:Reason ->
                              io:format("~p: ~0p~n", [Class, Reason]),
                              erlang:halt(1)
                      end
              end),
    ok.

main([Kind, Backend]) -> main([Kind, Backend, "0"]);
main([Kind, Backend, Buffer]) -> main([Kind, Backend, Buffer, "0"]);
main([Kind, Variant, Buffer, To]) ->
    {Backend, Defer} = variant(string:split(Variant, "-")),
    Common = backend(Backend) ++ [binary, {active, false}, {nodelay, true}]
        ++ [{buffer, list_to_integer(Buffer)} || Buffer =/= "0"],
    Listen = Common ++ [{ip, {127, 0, 0, 1}}, {reuseaddr, true}, {backlog, 4096} | Defer],
    case gen_tcp:listen(0, Listen) of
        {ok, Socket} ->
            How = #how{kind = kind(Kind, Backend), connect = Common, to = list_to_integer(To),
                       head_end = binary:compile_pattern(<<"\r\n\r\n">>),
                       last = binary:compile_pattern(<<"Connection: close">>)},
            _ = spawn(fun() -> accept(Socket, How) end),
            {ok, Port} = inet:port(Socket),
            io:format("ready ~b~n", [Port]),
            commands([]);
        {error, Reason} ->
            io:format("listen: ~p~n", [Reason]),
            erlang:halt(1)
    end.

variant([Backend, "deferred"]) -> {Backend, [{raw, 6, 9, <<1:32/native>>}]};
variant([Backend]) -> {Backend, []}.

backend("gen_tcp") -> [];
backend("socket") -> [{inet_backend, socket}];
backend(Erlane) when Erlane =:= "erlane"; Erlane =:= "relay" ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    [{inet_backend, inet}, {tcp_module, erlane_tcp}].

kind("http", _) -> http;
kind("echo", _) -> echo;
kind("proxy", "relay") -> relay;
kind("proxy", _) -> proxy.

%%
%% Standard input
%%

%% @doc Obeys the lines of standard input until it ends.
-spec commands(Busy :: [pid()]) -> no_return().
commands(Busy) ->
    case io:get_line("") of
        Line when is_list(Line) -> commands(command(string:lexemes(Line, " \n"), Busy));
        _EofOrError -> erlang:halt(0)
    end.

command(["memory"], Busy) ->
    io:format("memory ~b~n", [erlang:memory(total)]),
    Busy;
command(["processes"], Busy) ->
    io:format("processes ~b~n", [erlang:system_info(process_count)]),
    Busy;
command(["busy", N], Busy) ->
    _ = [exit(Pid, kill) || Pid <- Busy],
    Pids = [spawn(fun() -> spin(0) end) || _ <- lists:seq(1, list_to_integer(N))],
    io:format("busy ~b~n", [length(Pids)]),
    Pids;
command(Other, Busy) ->
    io:format("unknown ~p~n", [Other]),
    Busy.

spin(N) -> spin((N * 31 + 7) band 16#ffffff).

%%
%% Connections
%%

accept(Listen, How) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            Pid = spawn(fun() -> receive go -> connection(Socket, How) end end),
            _ = gen_tcp:controlling_process(Socket, Pid),
            Pid ! go,
            accept(Listen, How);
        {error, Reason} ->
            io:format("accept: ~p~n", [Reason]),
            erlang:halt(1)
    end.

connection(Socket, #how{kind = http} = How) ->
    http(Socket, <<>>, How);
connection(Socket, #how{kind = echo}) ->
    echo(Socket);
connection(Client, #how{connect = Options, to = To} = How) ->
    case gen_tcp:connect({127, 0, 0, 1}, To, Options, ?CONNECT_MS) of
        {ok, Server} when How#how.kind =:= relay ->
            {ok, Ref} = erlane_socket:relay(Client, Server, #{}),
            receive {erlane_relay, Ref, _Result} -> ok end;
        {ok, Server} ->
            once(Client),
            once(Server),
            proxy(Client, Server);
        {error, Reason} ->
            io:format("connect: ~p~n", [Reason]),
            gen_tcp:close(Client)
    end.

%% The socket may be closed by now: its tcp_closed message says so.
once(Socket) ->
    _ = inet:setopts(Socket, [{active, once}]),
    ok.

http(Socket, Buffer, How) ->
    once(Socket),
    receive
        {tcp, Socket, Data} when Buffer =:= <<>> -> answer(Socket, Data, How);
        {tcp, Socket, Data} -> answer(Socket, <<Buffer/binary, Data/binary>>, How);
        {tcp_closed, Socket} -> gen_tcp:close(Socket);
        {tcp_error, Socket, _} -> gen_tcp:close(Socket)
    end.

%% One answer for each request found.
answer(Socket, <<>>, How) ->
    http(Socket, <<>>, How);
answer(Socket, Data, #how{head_end = HeadEnd, last = Last} = How) ->
    case binary:match(Data, HeadEnd) of
        {At, 4} ->
            Sent = gen_tcp:send(Socket, ?REPLY),
            case binary:match(Data, Last, [{scope, {0, At}}]) of
                nomatch when Sent =:= ok ->
                    <<_:At/binary, _:4/binary, Rest/binary>> = Data,
                    answer(Socket, Rest, How);
                _ ->
                    gen_tcp:close(Socket)
            end;
        nomatch when byte_size(Data) < 16384 ->
            http(Socket, Data, How);
        nomatch ->
            gen_tcp:close(Socket)
    end.

echo(Socket) ->
    once(Socket),
    receive
        {tcp, Socket, Data} ->
            case gen_tcp:send(Socket, Data) of
                ok -> echo(Socket);
                {error, _} -> gen_tcp:close(Socket)
            end;
        {tcp_closed, Socket} -> gen_tcp:close(Socket);
        {tcp_error, Socket, _} -> gen_tcp:close(Socket)
    end.

%% {active, once} is the back-pressure: nothing more is read before the last packet is sent.
proxy(Client, Server) ->
    receive
        {tcp, Client, Data} -> pass(Client, Data, Server, Client, Server);
        {tcp, Server, Data} -> pass(Server, Data, Client, Client, Server);
        {tcp_closed, _} -> stop(Client, Server);
        {tcp_error, _, _} -> stop(Client, Server)
    end.

pass(From, Data, To, Client, Server) ->
    case gen_tcp:send(To, Data) of
        ok ->
            once(From),
            proxy(Client, Server);
        {error, _} ->
            stop(Client, Server)
    end.

stop(Client, Server) ->
    ok = gen_tcp:close(Client),
    gen_tcp:close(Server).
