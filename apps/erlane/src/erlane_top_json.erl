%% SPDX-License-Identifier: Apache-2.0
%% @doc A view as one line of JSON. OTP 25 has no encoder. Pure.
-module(erlane_top_json).

-export([encode/1]).

%% @doc Keys are those of the view, in order; what is not known is null. Nodes and other atoms
%% are strings. A process is its `id', as its own node writes it.
-spec encode(erlane_prof:view()) -> iodata().
encode(View) ->
    value(View).

value(Map) when is_map(Map) ->
    [${, lists:join($,, [[string(atom_to_binary(Key)), $:, value(Value)]
                         || {Key, Value} <- lists:sort(maps:to_list(Map)), Key =/= pid]), $}];
value(List) when is_list(List) -> [$[, lists:join($,, [value(Item) || Item <- List]), $]];
value(undefined) -> "null";
value(Bool) when is_boolean(Bool) -> atom_to_binary(Bool);
value(Atom) when is_atom(Atom) -> string(atom_to_binary(Atom));
value(Text) when is_binary(Text) -> string(Text);
value(N) when is_integer(N) -> integer_to_binary(N);
value(F) when is_float(F) -> float_to_binary(F, [{decimals, 4}, compact]).

string(Text) ->
    [$", [escape(C) || C <- unicode:characters_to_list(Text)], $"].

%% ASCII alone: whatever reads it, its locale does not matter.
escape($") -> "\\\"";
escape($\\) -> "\\\\";
escape(C) when C >= $\s, C < 127 -> C;
escape(C) when C < 16#10000 -> io_lib:format("\\u~4.16.0b", [C]);
escape(C) ->
    <<High:16, Low:16>> = unicode:characters_to_binary([C], utf8, utf16),
    io_lib:format("\\u~4.16.0b\\u~4.16.0b", [High, Low]).
