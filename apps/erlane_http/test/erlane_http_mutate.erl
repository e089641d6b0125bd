%% SPDX-License-Identifier: Apache-2.0
%% @doc A seeded generator of malformed requests: it takes requests of the tables, changes them in
%% one to four ways and goes on for ever. The same seed gives the same requests.
-module(erlane_http_mutate).

-export([new/1, next/1]).
-export_type([state/0]).

-opaque state() :: {tuple(), rand:state()}.

-define(LARGEST, 20000).

-spec new(integer()) -> state().
new(Seed) ->
    Corpus = [B || Row <- erlane_http_cases:all() ++ erlane_http_shapes:all(),
                   B <- [erlane_http_rows:bytes(Row)], byte_size(B) < 2000],
    {list_to_tuple(Corpus), rand:seed_s(exsss, Seed)}.

-spec next(state()) -> {binary(), state()}.
next({Corpus, R0}) ->
    {Bytes, R1} = pick(Corpus, R0),
    {Times, R2} = rand:uniform_s(4, R1),
    {Mutant, R3} = mutate(Times, Bytes, Corpus, R2),
    {binary:part(Mutant, 0, min(?LARGEST, byte_size(Mutant))), {Corpus, R3}}.

mutate(0, Bytes, _Corpus, R) ->
    {Bytes, R};
mutate(_, <<>>, Corpus, R) ->
    pick(Corpus, R);
mutate(N, Bytes, Corpus, R0) ->
    {Kind, R1} = rand:uniform_s(14, R0),
    {Changed, R2} = change(Kind, Bytes, Corpus, R1),
    mutate(N - 1, iolist_to_binary(Changed), Corpus, R2).

%% One bit of a byte.
change(1, Bytes, _, R0) ->
    {{Before, <<Byte, After/binary>>}, R1} = cut(Bytes, R0),
    {Bit, R2} = rand:uniform_s(8, R1),
    {[Before, Byte bxor (1 bsl (Bit - 1)), After], R2};
%% Any byte in place of one.
change(2, Bytes, _, R0) ->
    {{Before, <<_, After/binary>>}, R1} = cut(Bytes, R0),
    {Byte, R2} = rand:uniform_s(256, R1),
    {[Before, Byte - 1, After], R2};
%% A word of the protocol put in, or in place of a byte.
change(Kind, Bytes, _, R0) when Kind =< 5 ->
    {{Before, <<Byte, After/binary>>}, R1} = cut(Bytes, R0),
    {Word, R2} = pick(words(), R1),
    {[Before, Word, [Byte || Kind < 5], After], R2};
%% A part gone, twice there, or many times.
change(Kind, Bytes, _, R0) when Kind =< 8 ->
    {{Before, Rest}, R1} = cut(Bytes, R0),
    {Size, R2} = rand:uniform_s(min(byte_size(Rest), 40), R1),
    <<Part:Size/binary, After/binary>> = Rest,
    {Times, R3} = rand:uniform_s(12, R2),
    {[Before, case Kind of
                  6 -> [];
                  7 -> [Part, Part];
                  8 -> binary:copy(Part, 1 bsl Times)
              end, After], R3};
%% The end is missing.
change(9, Bytes, _, R0) ->
    {{Before, _}, R1} = cut(Bytes, R0),
    {Before, R1};
%% The beginning of one request, the end of another.
change(10, Bytes, Corpus, R0) ->
    {{Before, _}, R1} = cut(Bytes, R0),
    {Other, R2} = pick(Corpus, R1),
    {{_, After}, R3} = cut(Other, R2),
    {[Before, After], R3};
%% Another number.
change(11, Bytes, _, R0) ->
    case re:run(Bytes, "[0-9]+", [global]) of
        {match, Runs} ->
            {[{At, Size}], R1} = pick(list_to_tuple(Runs), R0),
            <<Before:At/binary, _:Size/binary, After/binary>> = Bytes,
            {Number, R2} = pick(numbers(), R1),
            {[Before, Number, After], R2};
        nomatch ->
            {Bytes, R0}
    end;
%% Lines in another order, once more, or with another end.
change(12, Bytes, _, R0) ->
    Lines = binary:split(Bytes, <<"\r\n">>, [global]),
    {Keyed, R1} = lists:mapfoldl(fun(L, R) -> {K, R9} = rand:uniform_s(3, R), {{K, L}, R9} end,
                                 R0, Lines),
    {lists:join("\r\n", [L || {_, L} <- lists:keysort(1, Keyed)]), R1};
change(13, Bytes, _, R0) ->
    Lines = binary:split(Bytes, <<"\r\n">>, [global]),
    {Line, R1} = pick(list_to_tuple(Lines), R0),
    {{Before, After}, R2} = cut(Bytes, R1),
    {[Before, "\r\n", Line, "\r\n", After], R2};
change(14, Bytes, _, R0) ->
    {End, R1} = pick({"\n", "\r", "\r\r\n", "\n\r", " \r\n", "\r\n ", [0, "\r\n"], "\r\n\r\n"}, R0),
    Lines = binary:split(Bytes, <<"\r\n">>, [global]),
    {At, R2} = rand:uniform_s(length(Lines), R1),
    {First, Second} = lists:split(At, Lines),
    {[lists:join("\r\n", First), End, lists:join("\r\n", Second)], R2}.

pick(Tuple, R0) ->
    {I, R1} = rand:uniform_s(tuple_size(Tuple), R0),
    {element(I, Tuple), R1}.

%% There is a byte at least in the second part.
cut(Bytes, R0) ->
    {At, R1} = rand:uniform_s(byte_size(Bytes), R0),
    <<Before:(At - 1)/binary, After/binary>> = Bytes,
    {{Before, After}, R1}.

words() ->
    {"\r\n", "\n", "\r", " ", "\t", [0], [127], [255], ":", ",", ";", "\"", "%", "%0d%0a", "%00",
     "/", "..", "//", "*", "?", "#", "@", "[", "]", "\v", "\f", [16#c2, 16#a0], "\r\n\r\n", "\r\n ",
     "0\r\n\r\n", "0\r\n", "1\r\nx\r\n", "chunked", "identity", "close", "keep-alive", "HTTP/1.1",
     "HTTP/1.0", "HTTP/2.0", "GET ", "POST ", "HEAD ", "CONNECT ", "http://y/", "Host: y\r\n",
     "\r\nContent-Length: 5\r\n", "\r\nContent-Length: 0\r\n", "\r\nTransfer-Encoding: chunked\r\n",
     "\r\nTransfer-Encoding : chunked\r\n", "\r\nExpect: 100-continue\r\n",
     "\r\nConnection: close\r\n", "\r\nConnection: keep-alive\r\n", "\r\nUpgrade: websocket\r\n",
     "\r\nX: y\r\n", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"}.

numbers() ->
    {"0", "1", "4", "5", "6", "-1", "+5", "007", "5 ", "0x5", "5,5", "99999999", "4294967301",
     "2147483648", "9223372036854775807", "9223372036854775808", "18446744073709551621", "1e3",
     "FFFFFFFFFFFFFFFF", "10000000000000000", "", "1.1"}.
