%% SPDX-License-Identifier: Apache-2.0
%% @doc UTF-8 checked as it arrives: a text may be cut anywhere, also inside a character, and a
%% fault is found with the first byte that no text could go on with.
-module(erlane_http_utf8).

-export([new/0, feed/2, is_whole/1, cut/2]).

-export_type([state/0]).

-opaque state() :: binary().
%% The up to three bytes of a character whose end is still missing.

%% @doc The state before the first byte.
-spec new() -> state().
new() ->
    <<>>.

%% @doc Checks the next bytes of a text.
-spec feed(binary(), state()) -> {ok, state()} | error.
feed(<<>>, Tail) ->
    {ok, Tail};
feed(Bytes, <<>>) ->
    Front = byte_size(Bytes) - tail_size(Bytes),
    <<Whole:Front/binary, Tail/binary>> = Bytes,
    case unicode:characters_to_binary(Whole) of
        Whole -> begun(binary:copy(Tail));
        _ -> error
    end;
feed(Bytes, Tail) ->
    case char_size(Tail) - byte_size(Tail) of
        Missing when Missing > byte_size(Bytes) ->
            begun(<<Tail/binary, Bytes/binary>>);
        Missing ->
            <<End:Missing/binary, Rest/binary>> = Bytes,
            case <<Tail/binary, End/binary>> of
                <<_/utf8>> -> feed(Rest, <<>>);
                _ -> error
            end
    end.

%% @doc Whether the text may end here.
-spec is_whole(state()) -> boolean().
is_whole(Tail) ->
    Tail =:= <<>>.

%% @doc The front of a text, at most Max bytes, that does not end inside a character.
-spec cut(binary(), non_neg_integer()) -> binary().
cut(Text, Max) when byte_size(Text) =< Max ->
    Text;
cut(Text, Max) ->
    Front = binary:part(Text, 0, Max),
    binary:part(Front, 0, Max - tail_size(Front)).

%% Bytes at the end that begin a character but do not finish it; whether they are good is
%% not asked here.
tail_size(Bytes) ->
    Size = byte_size(Bytes),
    case at(Bytes, Size - 1) of
        Last when Last >= 16#C0 -> 1;
        Last when Last >= 16#80 ->
            case at(Bytes, Size - 2) of
                Lead when Lead >= 16#E0 -> 2;
                Second when Second >= 16#80, Second < 16#C0 ->
                    case at(Bytes, Size - 3) of
                        Lead when Lead >= 16#F0 -> 3;
                        _ -> 0
                    end;
                _ -> 0
            end;
        _ -> 0
    end.

at(_Bytes, Index) when Index < 0 -> 0;
at(Bytes, Index) -> binary:at(Bytes, Index).

char_size(<<Lead, _/binary>>) when Lead < 16#E0 -> 2;
char_size(<<Lead, _/binary>>) when Lead < 16#F0 -> 3;
char_size(_) -> 4.

%% RFC 3629, section 4: the second byte is what excludes overlong forms, surrogates and what
%% is above U+10FFFF.
begun(<<>>) -> {ok, <<>>};
begun(<<L>> = Tail) when L >= 16#C2, L =< 16#F4 -> {ok, Tail};
begun(<<16#E0, S>> = Tail) when S >= 16#A0, S =< 16#BF -> {ok, Tail};
begun(<<16#ED, S>> = Tail) when S >= 16#80, S =< 16#9F -> {ok, Tail};
begun(<<L, S>> = Tail) when L >= 16#E1, L =< 16#EF, L =/= 16#ED, S >= 16#80, S =< 16#BF ->
    {ok, Tail};
begun(<<16#F0, S, More/binary>> = Tail) when S >= 16#90, S =< 16#BF -> third(More, Tail);
begun(<<16#F4, S, More/binary>> = Tail) when S >= 16#80, S =< 16#8F -> third(More, Tail);
begun(<<L, S, More/binary>> = Tail) when L >= 16#F1, L =< 16#F3, S >= 16#80, S =< 16#BF ->
    third(More, Tail);
begun(_) -> error.

third(<<>>, Tail) -> {ok, Tail};
third(<<T>>, Tail) when T >= 16#80, T =< 16#BF -> {ok, Tail};
third(_, _) -> error.
