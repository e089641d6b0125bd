%% SPDX-License-Identifier: Apache-2.0
%% @doc What a connection would read from bytes that come in pieces, by the pure parsers alone:
%% no sockets, no deadlines, no limit of bodies.
-module(erlane_http_pure).

-export([read/1, read/2, bytes/1, halves/2]).

-include("erlane_http.hrl").

%% All requests of these pieces, and how it goes on: `more' to come, or an error's status.
-type result() :: {[#{atom() => term()}], more | {error, 100..999}}.

-define(MAX_EXTENSION, 256).

-spec read([binary()]) -> result().
read(Pieces) -> read(Pieces, erlane_http_head:limits()).

-spec read([binary()], map()) -> result().
read(Pieces, Limits) ->
    feed(Pieces, {head, <<>>, start}, Limits, []).

%% @doc Each byte a piece.
-spec bytes(binary()) -> [binary()].
bytes(Bytes) -> [<<B>> || <<B>> <= Bytes].

%% @doc Two pieces.
-spec halves(non_neg_integer(), binary()) -> [binary()].
halves(At, Bytes) ->
    <<First:At/binary, Second/binary>> = Bytes,
    [First, Second].

feed([], _State, _Limits, Requests) ->
    {lists:reverse(Requests), more};
feed([Piece | Pieces], State, Limits, Requests) ->
    case step(Piece, State, Limits, Requests) of
        {State1, Requests1} -> feed(Pieces, State1, Limits, Requests1);
        {error, Status, Requests1} -> {lists:reverse(Requests1), {error, Status}}
    end.

step(Piece, {head, Buffer, Cont}, Limits, Requests) ->
    Bytes = <<Buffer/binary, Piece/binary>>,
    Parsed = case Cont of
                 start -> erlane_http_head:parse(Bytes, Limits);
                 _ -> erlane_http_head:parse(Bytes, Limits, Cont)
             end,
    case Parsed of
        {more, Cont1} -> {{head, Bytes, Cont1}, Requests};
        {error, Status, _} -> {error, Status, Requests};
        {ok, #head{body = none} = Head, Rest} -> done(Head, <<>>, [], Rest, Limits, Requests);
        {ok, #head{body = chunked} = Head, Rest} ->
            step(Rest, {chunked, Head, erlane_http_chunked:new(Limits, ?MAX_EXTENSION), []},
                 Limits, Requests);
        {ok, #head{body = Length} = Head, Rest} ->
            step(Rest, {length, Head, Length, []}, Limits, Requests)
    end;
step(Piece, {length, Head, Left, Acc}, Limits, Requests) ->
    case Piece of
        <<Last:Left/binary, Rest/binary>> -> done(Head, [Acc, Last], [], Rest, Limits, Requests);
        _ -> {{length, Head, Left - byte_size(Piece), [Acc, Piece]}, Requests}
    end;
step(Piece, {chunked, Head, State, Acc}, Limits, Requests) ->
    case erlane_http_chunked:decode(Piece, State) of
        {more, Data, State1} -> {{chunked, Head, State1, [Acc, Data]}, Requests};
        {done, Data, Trailers, Rest} -> done(Head, [Acc, Data], Trailers, Rest, Limits, Requests);
        {error, Status, _} -> {error, Status, Requests}
    end.

done(Head, Body, Trailers, Rest, Limits, Requests) ->
    #head{method = Method, target = Target, version = Version, host = Host, headers = Headers,
          path = Path, query = Query, close = Close, expect = Expect} = Head,
    Request = #{method => Method, target => Target, version => Version, host => Host,
                headers => Headers, path => Path, query => Query, close => Close,
                expect => Expect, body => iolist_to_binary(Body), trailers => Trailers},
    case Rest of
        <<>> -> {{head, <<>>, start}, [Request | Requests]};
        _ -> step(Rest, {head, <<>>, start}, Limits, [Request | Requests])
    end.
