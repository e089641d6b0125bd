%% SPDX-License-Identifier: Apache-2.0
%% @doc A client for suites that sees what is on the wire: raw requests over a passive socket,
%% answers read by their framing, and what came behind them kept.
-module(erlane_http_client).

-export([start/2, start/3, stop/1, connect/1, connect/2, get/2, get/3, ask/2, answer/1, answer/2]).
-export([header/2, status/1, body/1, closed/1, until/1, until/2]).

-export_type([answer/0]).

-type answer() :: #{status := integer(), headers := [{binary(), binary()}], body := binary(),
                    rest := binary(),
                    %% What the framing promised did not come before the end.
                    cut := boolean()}.

-define(WAIT_MS, 15000).

%% @doc A listener on a free port of the loopback address.
-spec start(atom(), {module(), term()}) -> inet:port_number().
start(Name, Handler) ->
    start(Name, Handler, #{}).

-spec start(atom(), {module(), term()}, map()) -> inet:port_number().
start(Name, Handler, Opts) ->
    {ok, _} = erlane_http:start(Name, Opts#{handler => Handler}),
    erlane_http:port(Name).

-spec stop(atom()) -> ok.
stop(Name) ->
    _ = erlane_http:stop(Name, #{drain => 0}),
    ok.

-spec connect(inet:port_number()) -> gen_tcp:socket().
connect(Port) ->
    connect(Port, []).

-spec connect(inet:port_number(), [gen_tcp:connect_option()]) -> gen_tcp:socket().
connect(Port, Opts) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false} | Opts]),
    Socket.

%% @doc One request on a connection of its own.
-spec get(inet:port_number(), iodata()) -> answer().
get(Port, Target) ->
    get(Port, Target, []).

-spec get(inet:port_number(), iodata(), [{iodata(), iodata()}]) -> answer().
get(Port, Target, Headers) ->
    Socket = connect(Port),
    Answer = ask(Socket, ["GET ", Target, " HTTP/1.1\r\nHost: x\r\n",
                          [[N, ": ", V, "\r\n"] || {N, V} <- Headers], "\r\n"]),
    ok = gen_tcp:close(Socket),
    Answer.

%% @doc Sends bytes and reads an answer.
-spec ask(gen_tcp:socket(), iodata()) -> answer().
ask(Socket, Request) ->
    ok = gen_tcp:send(Socket, Request),
    Method = hd(binary:split(iolist_to_binary(Request), <<" ">>)),
    answer(Socket, #{method => Method}).

-spec answer(gen_tcp:socket()) -> answer().
answer(Socket) ->
    answer(Socket, #{}).

%% @doc Reads an answer. `buffer': bytes that were read already; `method' tells of HEAD.
-spec answer(gen_tcp:socket(), #{buffer => binary(), method => binary()}) -> answer().
answer(Socket, Opts) ->
    head(Socket, maps:get(buffer, Opts, <<>>), maps:get(method, Opts, <<"GET">>)).

head(Socket, Buffer, Method) ->
    case binary:split(Buffer, <<"\r\n\r\n">>) of
        [Head, Rest] ->
            [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] =
                binary:split(Head, <<"\r\n">>, [global]),
            Headers = [field(Line) || Line <- Lines],
            body(Socket, Method, binary_to_integer(Status), Headers, Rest);
        [_] ->
            {ok, Data} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
            head(Socket, <<Buffer/binary, Data/binary>>, Method)
    end.

field(Line) ->
    [Name, Value] = binary:split(Line, <<": ">>),
    {string:lowercase(Name), Value}.

body(Socket, Method, Status, Headers, Rest) ->
    Length = proplists:get_value(<<"content-length">>, Headers),
    Chunked = proplists:get_value(<<"transfer-encoding">>, Headers) =:= <<"chunked">>,
    {Body, Rest2, Cut} =
        if
            Method =:= <<"HEAD">>; Status =:= 304; Status =:= 204; Status < 200 ->
                {<<>>, Rest, false};
            Chunked -> chunks(Socket, Rest, <<>>);
            Length =/= undefined -> bytes(Socket, binary_to_integer(Length), Rest);
            true -> {Body0, <<>>, _} = bytes(Socket, 1 bsl 40, Rest), {Body0, <<>>, false}
        end,
    #{status => Status, headers => Headers, body => Body, rest => Rest2, cut => Cut}.

bytes(_Socket, N, Buffer) when byte_size(Buffer) >= N ->
    <<Body:N/binary, Rest/binary>> = Buffer,
    {Body, Rest, false};
bytes(Socket, N, Buffer) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, Data} -> bytes(Socket, N, <<Buffer/binary, Data/binary>>);
        {error, Gone} when Gone =/= timeout -> {Buffer, <<>>, true}
    end.

chunks(Socket, Buffer, Body) ->
    case binary:split(Buffer, <<"\r\n">>) of
        [Hex, Rest] ->
            Size = binary_to_integer(Hex, 16),
            case bytes(Socket, Size + 2, Rest) of
                {<<"\r\n">>, Rest2, false} when Size =:= 0 -> {Body, Rest2, false};
                {<<Data:Size/binary, "\r\n">>, Rest2, false} ->
                    chunks(Socket, Rest2, <<Body/binary, Data/binary>>);
                {Data, <<>>, true} -> {<<Body/binary, Data/binary>>, <<>>, true}
            end;
        [_] ->
            case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
                {ok, Data} -> chunks(Socket, <<Buffer/binary, Data/binary>>, Body);
                {error, Gone} when Gone =/= timeout -> {Body, <<>>, true}
            end
    end.

-spec status(answer()) -> integer().
status(#{status := Status}) -> Status.

-spec body(answer()) -> binary().
body(#{body := Body, cut := false}) -> Body.

%% @doc A header of an answer; of several the first.
-spec header(binary(), answer()) -> binary() | undefined.
header(Name, #{headers := Headers}) ->
    proplists:get_value(Name, Headers).

%% @doc Waits for the end of a connection; what came before it.
-spec closed(gen_tcp:socket()) -> binary().
closed(Socket) ->
    closed(Socket, <<>>).

closed(Socket, Buffer) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, Data} -> closed(Socket, <<Buffer/binary, Data/binary>>);
        {error, Gone} when Gone =/= timeout -> Buffer
    end.

%% @doc Waits until a function answers `true'.
-spec until(fun(() -> boolean())) -> ok.
until(Fun) ->
    until(Fun, ?WAIT_MS).

-spec until(fun(() -> boolean()), non_neg_integer()) -> ok.
until(Fun, Ms) ->
    until_at(Fun, erlang:monotonic_time(millisecond) + Ms).

until_at(Fun, Until) ->
    case Fun() of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < Until orelse error(not_in_time),
            receive after 10 -> until_at(Fun, Until) end
    end.
