%% SPDX-License-Identifier: Apache-2.0
%% @doc What the suites of the server share: a handler whose callbacks are funs, listeners over
%% both kinds of sockets, a client that reads answers one by one.
-module(erlane_http_ct).

-behaviour(erlane_http).

-include_lib("stdlib/include/assert.hrl").

-export([handle/2, init/2, event/3]).
-export([init_suite/1, end_suite/1]).
-export([start/2, start/3, stop/1, connect/1, connect/2, get/2, ask/2, send/2, answer/1, answer/2]).
-export([rest/1, is_closed/1, until/1, until/2, connections/1, name/0]).

-define(WAIT_MS, 5000).

%%% The handler. Args: #{handle := fun/1, init => fun/1, event => pid()}

handle(Req, #{handle := Fun}) -> Fun(Req).

init(Req, #{init := Fun}) -> Fun(Req);
init(_, _) -> {ok, read}.

event(Name, Data, #{event := Pid}) -> Pid ! {event, Name, Data}, ok;
event(_, _, _) -> ok.

%%% The suite

%% @doc For init_per_suite/1.
init_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    ok = logger:set_primary_config(level, critical), % crashes are wanted here
    Config.

%% @doc For end_per_suite/1.
end_suite(_Config) ->
    ok = logger:set_primary_config(level, notice),
    application:stop(erlane_http).

%%% The server

name() -> ?MODULE.

%% @doc Starts a listener over the sockets of the group; its port.
start(Config, Handler) -> start(Config, Handler, #{}).

start(Config, Handle, Options) when is_function(Handle) ->
    start(Config, #{handle => Handle}, Options);
start(Config, Handler, Options) ->
    {ok, _} = erlane_http:start(name(), Options#{handler => {?MODULE, Handler},
                                                 socket => proplists:get_value(socket, Config)}),
    erlane_http:port(name()).

%% @doc Stops every listener that is left.
stop(Config) ->
    _ = [erlane_http:stop(Name, #{drain => 0}) || Name <- erlane_http:listeners()],
    Config.

connections(N) ->
    until(fun() -> maps:get(connections, erlane_http:info(name())) =:= N end).

%%% The client. A connection is {Socket, Buffer} in the process dictionary's stead.

connect(Port) -> connect(Port, []).

connect(Port, Opts) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port,
                                   [binary, {active, false}, {nodelay, true} | Opts], ?WAIT_MS),
    Socket.

send(Socket, Data) -> ok = gen_tcp:send(Socket, Data).

%% @doc GET on a connection; the answer.
get(Socket, Target) -> ask(Socket, ["GET ", Target, " HTTP/1.1\r\nHost: x\r\n\r\n"]).

ask(Socket, Request) ->
    send(Socket, Request),
    answer(Socket).

%% @doc The next answer as {Status, Headers, Body}; `cut' instead of the body that is not whole.
answer(Socket) -> answer(Socket, <<"GET">>).

answer(Socket, Method) ->
    ok = inet:setopts(Socket, [{packet, http_bin}]),
    {ok, {http_response, {1, 1}, Status, _}} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    Headers = fields(Socket),
    ok = inet:setopts(Socket, [{packet, raw}]),
    Length = proplists:get_value(<<"content-length">>, Headers),
    Coding = proplists:get_value(<<"transfer-encoding">>, Headers),
    Body = if
               Method =:= <<"HEAD">>; Status =:= 204; Status =:= 304; Status < 200 -> <<>>;
               Coding =:= <<"chunked">> -> chunks(Socket, <<>>);
               Length =:= undefined -> rest(Socket);
               Length =:= <<"0">> -> <<>>;
               true ->
                   case gen_tcp:recv(Socket, binary_to_integer(Length), ?WAIT_MS) of
                       {ok, Data} -> Data;
                       {error, closed} -> cut
                   end
           end,
    {Status, Headers, Body}.

fields(Socket) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, {http_header, _, Name, _, Value}} ->
            Text = if is_atom(Name) -> atom_to_binary(Name); true -> Name end,
            [{string:lowercase(Text), Value} | fields(Socket)];
        {ok, http_eoh} -> []
    end.

%% Trailers are told in the body's stead: {Body, Trailers}.
chunks(Socket, Acc) ->
    ok = inet:setopts(Socket, [{packet, line}]),
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {error, closed} -> cut;
        {ok, <<"0\r\n">>} ->
            case trailers(Socket) of
                [] -> Acc;
                Trailers -> {Acc, Trailers}
            end;
        {ok, Line} ->
            Size = binary_to_integer(string:trim(Line), 16),
            ok = inet:setopts(Socket, [{packet, raw}]),
            {ok, <<Data:Size/binary, "\r\n">>} = gen_tcp:recv(Socket, Size + 2, ?WAIT_MS),
            chunks(Socket, <<Acc/binary, Data/binary>>)
    end.

trailers(Socket) ->
    {ok, Line} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    case Line of
        <<"\r\n">> -> ok = inet:setopts(Socket, [{packet, raw}]), [];
        _ -> [string:trim(Line) | trailers(Socket)]
    end.

%% @doc All bytes until the end of the connection.
rest(Socket) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, Data} -> <<Data/binary, (rest(Socket))/binary>>;
        {error, closed} -> <<>>
    end.

%% @doc Waits for the end; true if nothing came before.
is_closed(Socket) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {error, Gone} when Gone =:= closed; Gone =:= econnreset -> true;
        {ok, Data} -> {false, Data};
        {error, timeout} -> false
    end.

%% @doc Waits until a function is true.
until(Fun) -> until(Fun, ?WAIT_MS).

until(Fun, Ms) -> until_then(Fun, erlang:monotonic_time(millisecond) + Ms).

until_then(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        Other ->
            ?assert(erlang:monotonic_time(millisecond) < Deadline, Other),
            receive after 5 -> ok end,
            until_then(Fun, Deadline)
    end.
