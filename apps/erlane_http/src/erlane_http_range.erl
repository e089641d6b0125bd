%% SPDX-License-Identifier: Apache-2.0
%% @doc Byte ranges (RFC 9110, section 14): the header to pieces of a representation, and the
%% frame of an answer that has several of them. Pure functions.
-module(erlane_http_range).

-export([select/2, content_range/2, multipart/4]).

-export_type([piece/0]).

-type piece() :: {Offset :: non_neg_integer(), Length :: pos_integer()}.

%% More ranges than this, and the header is ignored: nobody needs them but who wants to make
%% an answer larger than the file.
-define(MAX_RANGES, 16).
%% Numbers of more digits are past the end of any file.
-define(MAX_DIGITS, 18).

%% @doc The pieces that a Range header asks of Size bytes, in its order; overlapping and
%% adjacent ones are joined, and all are then in the order of the file. `ignore' if the header
%% is malformed or not in bytes, or if there is nothing to cut: the whole is the answer.
-spec select(binary(), non_neg_integer()) -> ignore | unsatisfiable | {ok, [piece(), ...]}.
select(_Header, 0) ->
    ignore;
select(Header, Size) ->
    case binary:split(Header, <<"=">>) of
        [Unit, Set] ->
            case erlane_http_name:lower(Unit) of
                <<"bytes">> -> specs(binary:split(Set, <<",">>, [global]), Size, 0, []);
                _ -> ignore
            end;
        _ -> ignore
    end.

specs(_, _Size, Count, _Acc) when Count > ?MAX_RANGES ->
    ignore;
specs([Text | Rest], Size, Count, Acc) ->
    case erlane_http_name:trim(Text) of
        %% Empty elements of a list count for nothing (section 5.6.1).
        <<>> -> specs(Rest, Size, Count, Acc);
        Spec ->
            case spec(binary:split(Spec, <<"-">>), Size) of
                malformed -> ignore;
                none -> specs(Rest, Size, Count + 1, Acc);
                Piece -> specs(Rest, Size, Count + 1, [Piece | Acc])
            end
    end;
specs([], _Size, 0, _Acc) -> ignore;
specs([], _Size, _Count, []) -> unsatisfiable;
specs([], _Size, _Count, Acc) -> {ok, join(lists:reverse(Acc))}.

spec([<<>>, Digits], Size) ->
    case number(Digits) of
        malformed -> malformed;
        0 -> none;
        Suffix when Suffix >= Size -> {0, Size};
        Suffix -> {Size - Suffix, Suffix}
    end;
spec([From, <<>>], Size) ->
    piece(number(From), huge, Size);
spec([From, To], Size) ->
    piece(number(From), number(To), Size);
spec(_, _) ->
    malformed.

%% `huge' is an atom and so is above every number.
piece(malformed, _, _) -> malformed;
piece(_, malformed, _) -> malformed;
piece(huge, huge, _) -> none;
piece(First, Last, _) when First > Last -> malformed;
piece(First, _, Size) when First >= Size -> none;
piece(First, Last, Size) when Last >= Size -> {First, Size - First};
piece(First, Last, _) -> {First, Last - First + 1}.

number(<<>>) -> malformed;
number(Digits) ->
    case << <<D>> || <<D>> <= Digits, D >= $0, D =< $9 >> of
        Digits ->
            case string:trim(Digits, leading, "0") of
                <<>> -> 0;
                Short when byte_size(Short) =< ?MAX_DIGITS -> binary_to_integer(Short);
                _ -> huge
            end;
        _ -> malformed
    end.

%% Whoever asks for overlapping ranges gets every byte once.
join([_] = Pieces) ->
    Pieces;
join(Pieces) ->
    case merge(lists:sort(Pieces)) of
        Merged when length(Merged) =:= length(Pieces) -> Pieces;
        Merged -> Merged
    end.

merge([{A, N}, {B, M} | Rest]) when B =< A + N -> merge([{A, max(A + N, B + M) - A} | Rest]);
merge([Piece | Rest]) -> [Piece | merge(Rest)];
merge([]) -> [].

%% @doc The value of Content-Range for a piece, or for none (416).
-spec content_range(piece() | unsatisfiable, non_neg_integer()) -> binary().
content_range(unsatisfiable, Size) ->
    <<"bytes */", (integer_to_binary(Size))/binary>>;
content_range({Offset, Length}, Size) ->
    <<"bytes ", (integer_to_binary(Offset))/binary, "-",
      (integer_to_binary(Offset + Length - 1))/binary, "/", (integer_to_binary(Size))/binary>>.

%% @doc The frame of multipart/byteranges: what goes before each piece, what ends the body,
%% and how long all of it is.
-spec multipart([piece()], non_neg_integer(), ContentType :: binary(), Boundary :: binary()) ->
          {[{Before :: iodata(), piece()}], End :: iodata(), Length :: non_neg_integer()}.
multipart([First | Rest], Size, Type, Boundary) ->
    Parts = [{part(<<>>, First, Size, Type, Boundary), First}
             | [{part(<<"\r\n">>, Piece, Size, Type, Boundary), Piece} || Piece <- Rest]],
    End = ["\r\n--", Boundary, "--\r\n"],
    Length = lists:sum([iolist_size(Before) + N || {Before, {_, N}} <- Parts]),
    {Parts, End, Length + iolist_size(End)}.

part(Break, Piece, Size, Type, Boundary) ->
    [Break, "--", Boundary, "\r\nContent-Type: ", Type,
     "\r\nContent-Range: ", content_range(Piece, Size), "\r\n\r\n"].
