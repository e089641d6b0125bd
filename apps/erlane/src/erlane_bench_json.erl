%% SPDX-License-Identifier: Apache-2.0
%% @doc Results as JSON text. OTP 25 has no encoder; this one knows what a result is made of.
%% Pure.
-module(erlane_bench_json).

-export([encode/1]).

-type value() :: #{atom() | binary() => value()} | [value()] | binary() | atom() | number().

%% @doc Indented text, keys in order, so that two results can be compared by diff. Binaries
%% (UTF-8) and atoms become strings; true, false and null stay what they are.
-spec encode(value()) -> iodata().
encode(Value) ->
    [value(Value, 0), $\n].

value(Map, Indent) when is_map(Map) ->
    Members = [[string(key(K)), ": ", value(V, Indent + 2)]
               || {K, V} <- lists:sort(maps:to_list(Map))],
    block(${, Members, $}, Indent);
value(List, Indent) when is_list(List) ->
    block($[, [value(V, Indent + 2) || V <- List], $], Indent);
value(Text, _) when is_binary(Text) -> string(Text);
value(Word, _) when Word =:= true; Word =:= false; Word =:= null -> atom_to_binary(Word);
value(Atom, _) when is_atom(Atom) -> string(atom_to_binary(Atom));
value(N, _) when is_integer(N) -> integer_to_binary(N);
value(F, _) when is_float(F) -> float_to_binary(F, [{decimals, 6}, compact]).

key(K) when is_atom(K) -> atom_to_binary(K);
key(K) when is_binary(K) -> K.

block(Open, [], Close, _Indent) ->
    [Open, Close];
block(Open, Members, Close, Indent) ->
    Line = [$\n | lists:duplicate(Indent + 2, $\s)],
    [Open, Line, lists:join([$,, Line], Members), $\n, lists:duplicate(Indent, $\s), Close].

string(Text) ->
    [$", [escape(C) || C <- unicode:characters_to_list(Text)], $"].

escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape(C) when C < 32 -> io_lib:format("\\u~4.16.0b", [C]);
escape(C) -> unicode:characters_to_binary([C]).
