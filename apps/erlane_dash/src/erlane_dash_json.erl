%% SPDX-License-Identifier: Apache-2.0
%% @doc Terms as JSON text (RFC 8259), without blanks and in one line. OTP 25 has no encoder.
%% Pure; it never fails for text, whatever bytes it has.
-module(erlane_dash_json).

-export([encode/1]).

-export_type([value/0]).

-type value() :: #{atom() | binary() => value()} | [value()] | binary() | atom() | number().
%% Maps are objects, lists are arrays, binaries are strings, as are atoms but `true', `false' and
%% `null'. `undefined' is null, and so is what JSON has no number for: `nan', `infinity' and
%% `neg_infinity'.

-define(REPLACEMENT, <<16#fffd/utf8>>).

%% @doc The text. Keys of maps come in order. What is not UTF-8 in a binary becomes U+FFFD.
-spec encode(value()) -> binary().
encode(Value) ->
    iolist_to_binary(value(Value)).

value(Map) when is_map(Map) ->
    Members = lists:sort([{key(Key), Value} || {Key, Value} <- maps:to_list(Map)]),
    [${, lists:join($,, [[string(Key), $:, value(Value)] || {Key, Value} <- Members]), $}];
value(List) when is_list(List) -> [$[, lists:join($,, [value(V) || V <- List]), $]];
value(Text) when is_binary(Text) -> string(Text);
value(N) when is_integer(N) -> integer_to_binary(N);
value(F) when is_float(F) -> float_to_binary(F, [short]);
value(Word) when Word =:= true; Word =:= false; Word =:= null -> atom_to_binary(Word);
value(None) when None =:= undefined; None =:= nan; None =:= infinity; None =:= neg_infinity ->
    <<"null">>;
value(Atom) when is_atom(Atom) -> string(atom_to_binary(Atom)).

key(Key) when is_atom(Key) -> atom_to_binary(Key);
key(Key) when is_binary(Key) -> Key.

string(Text) ->
    [$", escape(Text, Text, 0, 0), $"].

%% Runs of characters that stay as they are are taken as parts of the text. U+2028 and U+2029
%% are allowed in JSON and end lines in older JavaScript: escaped, they do no harm anywhere.
escape(All, <<C, Rest/binary>>, From, N) when C >= 32, C < 127, C =/= $", C =/= $\\ ->
    escape(All, Rest, From, N + 1);
escape(All, <<C, Rest/binary>>, From, N) when C < 128 ->
    [binary:part(All, From, N), ascii(C) | escape(All, Rest, From + N + 1, 0)];
escape(All, <<C/utf8, Rest/binary>>, From, N) when C =:= 16#2028; C =:= 16#2029 ->
    [binary:part(All, From, N), unicode_escape(C) | escape(All, Rest, From + N + 3, 0)];
escape(All, <<_/utf8, Rest/binary>> = Here, From, N) ->
    escape(All, Rest, From, N + byte_size(Here) - byte_size(Rest));
escape(All, <<_, Rest/binary>>, From, N) ->
    [binary:part(All, From, N), ?REPLACEMENT | escape(All, Rest, From + N + 1, 0)];
escape(All, <<>>, From, N) ->
    [binary:part(All, From, N)].

ascii($") -> <<"\\\"">>;
ascii($\\) -> <<"\\\\">>;
ascii($\n) -> <<"\\n">>;
ascii($\t) -> <<"\\t">>;
ascii($\r) -> <<"\\r">>;
ascii(C) -> unicode_escape(C).

unicode_escape(C) ->
    [<<"\\u">>, string:pad(string:lowercase(integer_to_list(C, 16)), 4, leading, $0)].
