%% SPDX-License-Identifier: Apache-2.0
%% @doc One connection of the listener: accept, read one request, answer, end.
%%
%% It holds at most one head of a request and one piece of the page. Whoever sends or reads too
%% slowly is reset when the time is over.
-module(erlane_metrics_conn).

-include_lib("kernel/include/logger.hrl").

-export([start_link/2]).
-export([init/2]).

-export_type([config/0]).

-type config() :: #{request_timeout := pos_integer(), scrape_timeout := pos_integer(),
                    formats := [erlane_metrics_accept:format(), ...]}.

%% After the answer the peer may still send, at most this long and this much: closing at once
%% would reset the connection and could take the answer with it.
-define(LINGER_MS, 1000).
-define(LINGER_BYTES, 65536).
%% What gen_tcp takes to close, over the times of the configuration. It waits for a peer as long
%% as that reads anything at all, which could be for ever.
-define(CLOSE_MS, 10000).

%% @doc A process that waits for one connection. It ends with `normal' once it has served it,
%% with `{accept, Reason}' if there was none.
-spec start_link(gen_tcp:socket(), config()) -> pid().
start_link(Listen, Config) ->
    proc_lib:spawn_link(?MODULE, init, [Listen, Config]).

%% @private
-spec init(gen_tcp:socket(), config()) -> ok.
init(Listen, #{request_timeout := Timeout, scrape_timeout := ScrapeTimeout} = Config) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            {ok, _} = timer:kill_after(Timeout + ScrapeTimeout + ?CLOSE_MS),
            case request(Socket, <<>>, now_ms() + Timeout) of
                {ok, Request} -> answer(Socket, Request, Config);
                {refuse, Method, Status} -> refuse(Socket, Method, Status);
                {error, _Gone} -> gen_tcp:close(Socket)
            end;
        {error, Reason} ->
            exit({shutdown, {accept, Reason}})
    end.

request(Socket, Bytes, Deadline) ->
    case erlane_metrics_http:request(Bytes) of
        more ->
            case gen_tcp:recv(Socket, 0, max(0, Deadline - now_ms())) of
                {ok, More} -> request(Socket, <<Bytes/binary, More/binary>>, Deadline);
                {error, timeout} when Bytes =/= <<>> -> {refuse, get, 408};
                {error, Reason} -> {error, Reason}
            end;
        Result ->
            Result
    end.

refuse(Socket, Method, Status) ->
    last(Socket, erlane_metrics_http:refusal(Method, Status)).

answer(Socket, #{method := Method} = Request, #{formats := Formats} = Config) ->
    #{accept := Accept, accept_encoding := AcceptEncoding} = Request,
    Format = erlane_metrics_accept:negotiate(Accept, Formats),
    Encoding = case erlane_metrics_accept:gzip(AcceptEncoding) of
                   true -> gzip;
                   false -> identity
               end,
    Head = erlane_metrics_http:head(
             Request,
             [{<<"Content-Type">>, erlane_metrics_accept:content_type(Format)},
              {<<"Cache-Control">>, <<"no-store">>},
              {<<"Vary">>, <<"Accept, Accept-Encoding">>} |
              [{<<"Content-Encoding">>, <<"gzip">>} || Encoding =:= gzip]]),
    case Method of
        head -> last(Socket, Head);
        get -> page(Socket, Request, Head, Format, Encoding, Config)
    end.

%% The head goes with the first piece: what fails before it is still a 500.
page(Socket, #{version := Version} = Request, Head, Format, Encoding, Config) ->
    Deadline = now_ms() + scrape_ms(Request, Config),
    Write = fun(Piece, Before) ->
                    ok = sent(Socket, [Before, framed(Version, Piece)], Deadline),
                    <<>>
            end,
    try erlane_metrics_expose:expose(Format, Encoding, Write, Head) of
        Unsent when Version =:= 11 -> last(Socket, [Unsent, erlane_metrics_http:last_chunk()]);
        Unsent -> last(Socket, Unsent)
    catch
        throw:{?MODULE, _Gone} ->
            reset(Socket);
        Class:Reason:Stack ->
            ?LOG_ERROR("metrics: the page could not be written: ~0tp",
                       [{Class, Reason, Stack}]),
            case inet:getstat(Socket, [send_oct]) of
                {ok, [{send_oct, 0}]} -> refuse(Socket, get, 500);
                _ -> reset(Socket)
            end
    end.

framed(11, Piece) -> erlane_metrics_http:chunk(Piece);
framed(10, Piece) -> Piece.

scrape_ms(#{timeout_ms := undefined}, #{scrape_timeout := Ms}) -> Ms;
scrape_ms(#{timeout_ms := Wanted}, #{scrape_timeout := Ms}) -> min(Wanted, Ms).

%% A peer that reads now and then a little is held to the time of the whole page, too.
sent(Socket, Data, Deadline) ->
    case Deadline - now_ms() of
        Left when Left > 0 ->
            _ = inet:setopts(Socket, [{send_timeout, Left}]),
            case gen_tcp:send(Socket, Data) of
                ok -> ok;
                {error, Reason} -> throw({?MODULE, Reason})
            end;
        _ ->
            throw({?MODULE, timeout})
    end.

last(Socket, Data) ->
    case gen_tcp:send(Socket, Data) of
        ok -> linger(Socket);
        {error, _} -> reset(Socket)
    end.

linger(Socket) ->
    _ = gen_tcp:shutdown(Socket, write),
    linger(Socket, ?LINGER_BYTES, now_ms() + ?LINGER_MS).

linger(Socket, Bytes, Deadline) ->
    case gen_tcp:recv(Socket, 0, max(0, Deadline - now_ms())) of
        {ok, Data} when byte_size(Data) < Bytes ->
            linger(Socket, Bytes - byte_size(Data), Deadline);
        _ ->
            gen_tcp:close(Socket)
    end.

%% A page without its end must not look like a whole one.
reset(Socket) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    gen_tcp:close(Socket).

now_ms() ->
    erlang:monotonic_time(millisecond).
