%% SPDX-License-Identifier: Apache-2.0
%% @doc The server of the scenario `fanout-sockets': it writes and never reads. Runs in a VM of
%% its own:
%%
%%     erl -noshell -pa EBIN... -s erlane_bench_fanout_server start -extra WAY FRAMING
%%
%% WAY is `gen_tcp' or `erlane' (a process for each socket, which is sent the message and calls
%% gen_tcp:send/2; its members are in a group of `pg') or `fanout' (the socket is a subscriber of
%% erlane_fanout). FRAMING is `raw' or `ws': a message as it is, or as one binary WebSocket frame.
%%
%% Prints `ready PORT', then obeys lines on standard input, each answered by one line:
%%
%%     connections                how many can be written to
%%     memory                     bytes the VM holds
%%     publish N MICROS BYTES     N messages, one each so many microseconds: `published N NS',
%%                                the time that was spent in publishing
-module(erlane_bench_fanout_server).

-export([start/0]).

-define(TOPIC, <<"bench">>).
-define(HANDSHAKE, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n").
%% A message begins with its number and the time it was sent.
-define(HEAD, 16).

-type way() :: gen_tcp | erlane | fanout.
-type framing() :: raw | ws.

%% @doc Entry of the VM: serves until standard input ends.
-spec start() -> ok.
start() ->
    erlane_bench_server:program(fun main/1).

-spec main([string()]) -> no_return().
main([WayText, FramingText]) ->
    Way = way(WayText),
    Framing = framing(FramingText),
    {ok, _} = pg:start_link(?MODULE),
    {ok, Listen} = gen_tcp:listen(0, backend(Way) ++ [binary, {active, false}, {nodelay, true},
                                                      {ip, {127, 0, 0, 1}}, {backlog, 4096}]),
    Count = counters:new(1, []),
    _ = spawn_link(fun() -> accept(Listen, Way, Framing, Count) end),
    {ok, Port} = inet:port(Listen),
    io:format("ready ~b~n", [Port]),
    commands(Way, Framing, Count, 1).

way("gen_tcp") -> gen_tcp;
way("erlane") -> erlane;
way("fanout") -> fanout.

framing("raw") -> raw;
framing("ws") -> ws.

backend(gen_tcp) ->
    [];
backend(Way) ->
    App = case Way of erlane -> erlane_socket; fanout -> erlane_fanout end,
    {ok, _} = application:ensure_all_started(App),
    {ok, _} = application:ensure_all_started(erlane_socket),
    [{inet_backend, inet}, {tcp_module, erlane_tcp}].

%%
%% Connections
%%

-spec accept(gen_tcp:socket(), way(), framing(), counters:counters_ref()) -> no_return().
accept(Listen, Way, Framing, Count) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> connection(Socket, Way, Framing, Count) end end),
    ok = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Way, Framing, Count).

connection(Socket, Way, Framing, Count) ->
    _ = Framing =:= ws andalso handshake(Socket, <<>>),
    ok = member(Way, Socket, Framing),
    ok = counters:add(Count, 1, 1),
    writer(Socket).

handshake(Socket, Before) ->
    {ok, Data} = gen_tcp:recv(Socket, 0),
    case <<Before/binary, Data/binary>> of
        Text when binary_part(Text, byte_size(Text), -4) =:= <<"\r\n\r\n">> ->
            ok = gen_tcp:send(Socket, ?HANDSHAKE);
        Text ->
            handshake(Socket, Text)
    end.

%% The framework of the VM may not be there: nothing here calls it by name.
member(fanout, Socket, Framing) ->
    Fanout = erlane_fanout,
    {ok, _, _} = Fanout:subscribe(?TOPIC, #{mode => {socket, Socket, fanout_framing(Framing)}}),
    ok;
member(_, _, _) ->
    pg:join(?MODULE, ?TOPIC, self()).

fanout_framing(raw) -> raw;
fanout_framing(ws) -> ws_binary.

%% A subscriber of the fan-out only owns its socket.
writer(Socket) ->
    receive
        {send, Data} ->
            case gen_tcp:send(Socket, Data) of
                ok -> writer(Socket);
                {error, _} -> gen_tcp:close(Socket)
            end;
        _ ->
            writer(Socket)
    end.

%%
%% Standard input
%%

-spec commands(way(), framing(), counters:counters_ref(), pos_integer()) -> no_return().
commands(Way, Framing, Count, Next) ->
    case io:get_line("") of
        Line when is_list(Line) ->
            commands(Way, Framing, Count,
                     Next + command(string:lexemes(Line, " \n"), Way, Framing, Count, Next));
        _End ->
            erlang:halt(0)
    end.

command(["connections"], _, _, Count, _) ->
    io:format("connections ~b~n", [counters:get(Count, 1)]),
    0;
command(["memory"], _, _, _, _) ->
    io:format("memory ~b~n", [erlang:memory(total)]),
    0;
command(["publish" | Numbers], Way, Framing, _, Next) ->
    [N, Micros, Bytes] = [list_to_integer(Text) || Text <- Numbers],
    Pad = binary:copy(<<"p">>, Bytes - ?HEAD),
    Self = self(),
    %% A process of its own each time: its heap is its own.
    _ = spawn_link(fun() ->
                           Start = erlang:monotonic_time(microsecond) + Micros,
                           Self ! {published, paced(0, N, Start, Micros,
                                                    {Way, Framing, Next, Pad}, 0)}
                   end),
    Ns = receive {published, Spent} -> Spent end,
    io:format("published ~b ~b~n", [N, Ns]),
    N.

paced(N, N, _, _, _, Spent) ->
    Spent;
paced(I, N, Start, Micros, {Way, Framing, Next, Pad} = How, Spent) ->
    ok = wait_until((Start + I * Micros) div 1000),
    Before = erlang:monotonic_time(),
    ok = publish(Way, Framing, <<(Next + I):64/little, (os:system_time(nanosecond)):64/little,
                                 Pad/binary>>),
    Took = erlang:convert_time_unit(erlang:monotonic_time() - Before, native, nanosecond),
    paced(I + 1, N, Start, Micros, How, Spent + Took).

wait_until(Ms) ->
    case erlang:monotonic_time(millisecond) of
        Now when Now >= Ms ->
            ok;
        _ ->
            Timer = erlang:start_timer(Ms, self(), due, [{abs, true}]),
            receive {timeout, Timer, due} -> ok end
    end.

publish(fanout, _, Data) ->
    Fanout = erlane_fanout,
    Fanout:publish(?TOPIC, Data);
publish(_, Framing, Data) ->
    Message = {send, framed(Framing, Data)},
    lists:foreach(fun(Pid) -> Pid ! Message end, pg:get_local_members(?MODULE, ?TOPIC)).

%% Once for all sockets, as those who do it by hand would.
framed(raw, Data) -> Data;
framed(ws, Data) when byte_size(Data) < 126 -> <<16#82, (byte_size(Data)), Data/binary>>;
framed(ws, Data) -> <<16#82, 126, (byte_size(Data)):16, Data/binary>>.
