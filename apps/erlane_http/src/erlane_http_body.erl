%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads bodies: by length or chunked, whole or in pieces.
%%
%% A client may take as long as it likes to connect, but not to send a body: of the time we have
%% waited for its bytes, all beyond `body_grace' must be worth `body_min_rate' bytes a second.
%% Time in which the handler did not ask does not count.
-module(erlane_http_body).

-export([whole/3, open/2, read/2, going_on/1, leave/1, drain/2]).

-export_type([left/0]).

-include("erlane_http.hrl").

%% A body that is read in pieces has its state here: a handler may use an old request again, and
%% its connection has to know how far it came.
-define(KEY, '$erlane_http_body').
-define(PIECE, 65536).
-define(READ_MS, 15000).

-record(body, {conn :: #conn{},
               left :: non_neg_integer() | erlane_http_chunked:state() | done,
               %% 100 (Continue) is to be sent first, and not any more when another answer has been.
               expect :: boolean() | too_late,
               got = 0 :: non_neg_integer(),
               announced = 0 :: non_neg_integer(),   % by the size of a chunk
               waited = 0 :: non_neg_integer(),      % microseconds
               trailers = [] :: [{binary(), binary()}]}).

-opaque left() :: #body{}.

%% @doc Reads a whole body of at most Max bytes.
-spec whole(#head{}, #conn{}, non_neg_integer() | infinity) ->
          {ok, binary(), [{binary(), binary()}], #conn{}}
        | {error, 400 | 408 | 413 | 431, atom()} | {error, closed}.
whole(#head{body = Length}, _Conn, Max) when is_integer(Length), Length > Max ->
    {error, 413, long_body};
whole(#head{body = Length}, #conn{buffer = Buffer} = Conn, _) when byte_size(Buffer) >= Length ->
    <<Body:Length/binary, Rest/binary>> = Buffer,
    {ok, Body, [], Conn#conn{buffer = Rest}};
whole(Head, Conn, Max) ->
    whole(new(Head, Conn), Max, infinity, <<>>).

whole(#body{left = done, conn = Conn, trailers = Trailers}, _, _, Acc) ->
    {ok, Acc, Trailers, Conn};
whole(Body, Max, Until, Acc) ->
    case next(Body, Until) of
        %% Appending keeps what came in small pieces as small as it is.
        {ok, _, #body{got = Got, announced = More}} when Got + More > Max ->
            {error, 413, long_body};
        {ok, [Piece], Body1} when Acc =:= <<>> -> whole(Body1, Max, Until, Piece);
        {ok, Pieces, Body1} ->
            Data = iolist_to_binary(Pieces),
            whole(Body1, Max, Until, <<Acc/binary, Data/binary>>);
        Error -> Error
    end.

new(#head{body = chunked, expect = Expect}, #conn{srv = Srv} = Conn) ->
    Decoder = erlane_http_chunked:new(Srv#srv.limits, Srv#srv.max_chunk_ext),
    #body{conn = Conn, left = Decoder, expect = Expect};
new(#head{body = Length, expect = Expect}, Conn) ->
    #body{conn = Conn, left = Length, expect = Expect}.

%% @doc The body of this request is read in pieces by whoever calls {@link read/2}.
-spec open(#head{}, #conn{}) -> ok.
open(Head, Conn) ->
    _ = put(?KEY, new(Head, Conn)),
    ok.

%% @doc See {@link erlane_http:read_body/2}.
-spec read(#req{}, map()) -> {more | ok, binary(), #req{}}.
read(#req{body = stream} = Req, Options) ->
    Length = maps:get(length, Options, ?PIECE),
    Until = case maps:get(timeout, Options, ?READ_MS) of
                infinity -> infinity;
                Ms -> now_us() + Ms * 1000
            end,
    case get(?KEY) of
        #body{} = Body -> pieces(Req, Body, Body#body.got + Length, Until, <<>>);
        undefined -> error(not_the_process_of_the_request, [Req, Options])
    end;
read(Req, _Options) ->
    {ok, <<>>, Req}.

pieces(Req, #body{left = done} = Body, _, _, Acc) ->
    _ = put(?KEY, Body),
    {ok, Acc, Req#req{trailers = Body#body.trailers}};
pieces(Req, #body{got = Got} = Body, Want, _, Acc) when Got >= Want ->
    _ = put(?KEY, Body),
    {more, Acc, Req};
pieces(Req, Body, Want, Until, Acc) ->
    case next(Body, Until) of
        {ok, Pieces, Body1} ->
            Data = iolist_to_binary(Pieces),
            pieces(Req, Body1, Want, Until, <<Acc/binary, Data/binary>>);
        {timeout, Body1} ->
            _ = put(?KEY, Body1),
            {more, Acc, Req};
        Error ->
            _ = put(?KEY, Error),
            exit({?MODULE, Error})
    end.

%% @doc Of an answer with this status that is made while the body may still be read: within it a
%% 100 (Continue) would be a part of it. So it is said now, if the request is being done; of one
%% that is refused the body is not asked for.
-spec going_on(100..999) -> ok | {error, closed}.
going_on(Status) ->
    case get(?KEY) of
        #body{expect = true, left = Left} = Body when Left =/= done, Status < 300 ->
            case continue(Body) of
                {ok, Body1} -> _ = put(?KEY, Body1), ok;
                Error -> Error
            end;
        #body{expect = true} = Body -> _ = put(?KEY, Body#body{expect = too_late}), ok;
        _ -> ok
    end.

continue(#body{conn = Conn} = Body) ->
    case erlane_http_io:send(Conn, <<"HTTP/1.1 100 Continue\r\n\r\n">>) of
        ok -> {ok, Body#body{expect = false}};
        {error, _} -> {error, closed}
    end.

%% @doc After the handler: what of a body that was open is left. Close where it may be more than
%% Max bytes, or where the client may never send it.
-spec leave(non_neg_integer()) -> {done, #conn{}} | {left, left()} | close.
leave(Max) ->
    case erase(?KEY) of
        #body{left = done, conn = Conn} -> {done, Conn};
        #body{expect = Expect} when Expect =/= false -> close;
        #body{left = Left} when is_integer(Left), Left > Max -> close;
        #body{} = Body -> {left, Body};
        _ -> close
    end.

%% @doc Reads what is left, at most Max bytes, and forgets it.
-spec drain(left(), non_neg_integer()) -> {ok, #conn{}} | close.
drain(#body{got = Got} = Body, Max) -> drain_to(Body, Got + Max).

drain_to(#body{left = done, conn = Conn}, _) -> {ok, Conn};
drain_to(Body, Max) ->
    case next(Body, infinity) of
        {ok, _, #body{got = Got, announced = More} = Body1} when Got + More =< Max ->
            drain_to(Body1, Max);
        _ -> close
    end.

%%
%% The next bytes, whichever the framing is
%%

next(#body{conn = #conn{buffer = Buffer} = Conn} = Body, _) when Buffer =/= <<>> ->
    feed(Buffer, Body#body{conn = Conn#conn{buffer = <<>>}});
next(#body{expect = true} = Body, Until) ->
    case continue(Body) of
        {ok, Body1} -> next(Body1, Until);
        Error -> Error
    end;
next(#body{conn = #conn{srv = Srv} = Conn, waited = Waited} = Body, Until) ->
    Before = now_us(),
    Patience = patience(Srv, Body),
    Ms = wait_ms(Patience, Until, Before),
    case erlane_http_io:recv(Conn, Ms) of
        {ok, Data, Conn1} ->
            ok = erlane_http_metrics:received(Srv#srv.metrics, byte_size(Data)),
            feed(Data, Body#body{conn = Conn1, waited = Waited + now_us() - Before});
        {error, timeout} ->
            After = now_us(),
            case Until =/= infinity andalso After >= Until
                andalso (Patience =:= infinity orelse After - Before < Patience) of
                true -> {timeout, Body#body{waited = Waited + After - Before}};
                false when Patience =:= infinity -> next(Body, Until);
                false -> {error, 408, slow_body}
            end;
        {error, _} ->
            {error, closed}
    end.

%% Microseconds that we may still wait.
patience(#srv{body_min_rate = 0}, _) -> infinity;
patience(#srv{body_min_rate = Rate, body_grace = Grace}, #body{got = Got, waited = Waited}) ->
    max(0, Grace * 1000 + Got * 1000000 div Rate - Waited).

wait_ms(infinity, infinity, _) -> infinity;
wait_ms(infinity, Until, Now) -> ms(Until - Now);
wait_ms(Patience, infinity, _) -> ms(Patience);
wait_ms(Patience, Until, Now) -> ms(min(Patience, Until - Now)).

ms(Us) -> min(16#7fffffff, max(0, Us) div 1000 + 1).

feed(Data, #body{left = Left, got = Got, conn = Conn} = Body) when is_integer(Left) ->
    case Data of
        <<Piece:Left/binary, Rest/binary>> ->
            {ok, [Piece], Body#body{left = done, got = Got + Left, expect = false,
                                    conn = Conn#conn{buffer = Rest}}};
        _ ->
            Size = byte_size(Data),
            {ok, [Data], Body#body{left = Left - Size, got = Got + Size, expect = false}}
    end;
feed(Data, #body{left = Decoder, got = Got, conn = Conn} = Body) ->
    case erlane_http_chunked:decode(Data, Decoder) of
        {more, Pieces, Decoder1} ->
            {ok, Pieces, Body#body{left = Decoder1, got = Got + iolist_size(Pieces),
                                   announced = erlane_http_chunked:announced(Decoder1),
                                   expect = false}};
        {done, Pieces, Trailers, Rest} ->
            {ok, Pieces, Body#body{left = done, got = Got + iolist_size(Pieces), announced = 0,
                                   expect = false, trailers = Trailers,
                                   conn = Conn#conn{buffer = Rest}}};
        Error -> Error
    end.

now_us() -> erlang:monotonic_time(microsecond).
