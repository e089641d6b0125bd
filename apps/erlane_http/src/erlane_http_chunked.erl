%% SPDX-License-Identifier: Apache-2.0
%% @doc The chunked coding (RFC 9112 section 7.1), strictly, both ways. Pure functions: bytes in,
%% pieces of the body out, and what is needed to go on.
-module(erlane_http_chunked).

-export([new/2, decode/2, announced/1, chunk/1, last/1]).

-export_type([state/0, why/0]).

-type why() :: bad_size | long_size | bad_extension | long_extension | bad_end | atom().
-opaque state() :: {size | {data, pos_integer()} | 'end'
                    | {trailers, start | erlane_http_head:trailers()},
                    Kept :: binary(), Limits :: erlane_http_head:limits(),
                    MaxExtension :: non_neg_integer()}.

-define(MAX_DIGITS, 16).
-define(MAX_SIZE, 16#7fffffffffffffff).
-define(HEX(C), (C >= $0 andalso C =< $9 orelse C >= $a andalso C =< $f
                 orelse C >= $A andalso C =< $F)).

%% @doc Before the first chunk. Limits are for trailers.
-spec new(erlane_http_head:limits(), MaxExtension :: non_neg_integer()) -> state().
new(Limits, MaxExtension) -> {size, <<>>, Limits, MaxExtension}.

%% @doc Decodes what has come. `done' has what follows the body. What is not whole, at most a
%% line, is kept in the state.
-spec decode(binary(), state()) ->
          {more, Pieces :: [binary()], state()}
        | {done, Pieces :: [binary()], Trailers :: [{binary(), binary()}], Rest :: binary()}
        | {error, 400 | 431, why()}.
decode(Bin, {What, <<>>, Limits, Max}) -> step(What, Bin, [], {Limits, Max});
decode(Bin, {What, Kept, Limits, Max}) ->
    step(What, <<Kept/binary, Bin/binary>>, [], {Limits, Max}).

%% @doc Bytes of the chunk that has begun and that are still to come.
-spec announced(state()) -> non_neg_integer().
announced({{data, Left}, _, _, _}) -> Left;
announced(_) -> 0.

step({data, Left}, Bin, Acc, S) ->
    case Bin of
        <<Data:Left/binary, "\r\n", Rest/binary>> -> step(size, Rest, [Data | Acc], S);
        <<Data:Left/binary, Rest/binary>> -> step('end', Rest, [Data | Acc], S);
        <<>> -> more({data, Left}, <<>>, Acc, S);
        _ -> more({data, Left - byte_size(Bin)}, <<>>, [Bin | Acc], S)
    end;
step('end', <<"\r\n", Rest/binary>>, Acc, S) -> step(size, Rest, Acc, S);
step('end', Bin, Acc, S) when Bin =:= <<>>; Bin =:= <<"\r">> -> more('end', Bin, Acc, S);
step('end', _, _, _) -> {error, 400, bad_end};
step(size, Bin, Acc, {_, Max} = S) ->
    case size(Bin, 0, 0, Max) of
        more -> more(size, Bin, Acc, S);
        {error, Why} -> {error, 400, Why};
        {0, Rest} -> step({trailers, start}, Rest, Acc, S);
        {Size, _} when Size > ?MAX_SIZE -> {error, 400, long_size};
        {Size, Rest} -> step({data, Size}, Rest, Acc, S)
    end;
step({trailers, Cont}, Bin, Acc, {Limits, _} = S) ->
    case erlane_http_head:trailers(Bin, Limits, Cont) of
        {ok, Trailers, Rest} ->
            {done, lists:reverse(Acc), [T || {Name, _} = T <- Trailers, may_follow(Name)], Rest};
        {more, Kept, Cont1} -> more({trailers, Cont1}, Kept, Acc, S);
        Error -> Error
    end.

more(What, Kept, Acc, {Limits, Max}) ->
    {more, lists:reverse(Acc), {What, Kept, Limits, Max}}.

size(<<C, R/binary>>, I, N, Max) when ?HEX(C) ->
    case I of
        ?MAX_DIGITS -> {error, long_size};
        _ -> size(R, I + 1, N * 16 + digit(C), Max)
    end;
size(<<"\r\n", R/binary>>, I, N, _) when I > 0 -> {N, R};
size(<<C, _/binary>> = Bin, I, N, Max) when I > 0, C =:= $; orelse C =:= $\s orelse C =:= $\t ->
    extension(Bin, 0, N, Max);
size(<<>>, _, _, _) -> more;
size(<<"\r">>, I, _, _) when I > 0 -> more;
size(_, _, _, _) -> {error, bad_size}.

digit(C) when C =< $9 -> C - $0;
digit(C) -> (C bor 32) - $a + 10.

%% Blanks are there only before a semicolon; what an extension says is nobody's business.
extension(_, I, _, Max) when I > Max -> {error, long_extension};
extension(<<C, R/binary>>, I, N, Max) when C =:= $\s; C =:= $\t -> extension(R, I + 1, N, Max);
extension(<<$;, R/binary>>, I, N, Max) -> text(R, I + 1, N, Max);
extension(<<>>, _, _, _) -> more;
extension(_, _, _, _) -> {error, bad_extension}.

text(<<"\r\n", R/binary>>, I, N, Max) when I =< Max -> {N, R};
text(_, I, _, Max) when I > Max -> {error, long_extension};
text(<<$", R/binary>>, I, N, Max) -> quoted(R, I + 1, N, Max);
text(<<C, R/binary>>, I, N, Max) when C >= 32, C =/= 127; C =:= $\t -> text(R, I + 1, N, Max);
text(<<>>, _, _, _) -> more;
text(<<"\r">>, _, _, _) -> more;
text(_, _, _, _) -> {error, bad_extension}.

%% Somebody else may go on reading until the quotes are closed.
quoted(_, I, _, Max) when I > Max -> {error, long_extension};
quoted(<<$", R/binary>>, I, N, Max) -> text(R, I + 1, N, Max);
quoted(<<$\\, C, R/binary>>, I, N, Max) when C >= 32, C =/= 127; C =:= $\t ->
    quoted(R, I + 2, N, Max);
quoted(<<C, R/binary>>, I, N, Max) when C >= 32, C =/= 127, C =/= $\\; C =:= $\t ->
    quoted(R, I + 1, N, Max);
quoted(<<>>, _, _, _) -> more;
quoted(<<$\\>>, _, _, _) -> more;
quoted(_, _, _, _) -> {error, bad_extension}.

%% What decides how a message is read, where it goes or who may send it is not for its end
%% (RFC 9110 section 6.5.1).
may_follow(Name) ->
    not lists:member(Name, [<<"transfer-encoding">>, <<"content-length">>, <<"host">>,
                            <<"connection">>, <<"keep-alive">>, <<"te">>, <<"trailer">>,
                            <<"upgrade">>, <<"expect">>, <<"authorization">>,
                            <<"proxy-authorization">>, <<"proxy-connection">>, <<"cookie">>,
                            <<"content-encoding">>, <<"content-type">>, <<"content-range">>,
                            <<"cache-control">>, <<"max-forwards">>, <<"range">>,
                            <<"forwarded">>, <<"x-forwarded-for">>, <<"x-forwarded-host">>,
                            <<"x-forwarded-proto">>]).

%% @doc A piece as one chunk; it must not be empty.
-spec chunk(iodata()) -> iodata().
chunk(Piece) -> [integer_to_binary(iolist_size(Piece), 16), <<"\r\n">>, Piece, <<"\r\n">>].

%% @doc The end of a body, with trailers as {@link erlane_http_reply:fields/1} wrote them.
-spec last(Trailers :: iodata()) -> iodata().
last(Trailers) -> [<<"0\r\n">>, Trailers, <<"\r\n">>].
