%% SPDX-License-Identifier: Apache-2.0
%% Reads JSON, for suites: objects are maps with binary keys, null is the atom. What is no JSON is
%% an error of the case.
-module(erlane_dash_reader).

-export([read/1]).

read(Text) ->
    {Value, Rest} = value(blank(Text)),
    <<>> = blank(Rest),
    Value.

value(<<"{", Rest/binary>>) -> object(blank(Rest), #{});
value(<<"[", Rest/binary>>) -> array(blank(Rest), []);
value(<<"\"", Rest/binary>>) -> string(Rest, []);
value(<<"true", Rest/binary>>) -> {true, Rest};
value(<<"false", Rest/binary>>) -> {false, Rest};
value(<<"null", Rest/binary>>) -> {null, Rest};
value(Text) ->
    {match, [{0, N}]} = re:run(Text, "^-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?",
                               [{capture, first}]),
    <<Number:N/binary, Rest/binary>> = Text,
    {number(Number), Rest}.

number(Text) ->
    case re:run(Text, "^(-?[0-9]+)(\\.[0-9]+)?([eE].*)?$",
                [{capture, all_but_first, binary}]) of
        {match, [Whole]} -> binary_to_integer(Whole);
        {match, [_, _]} -> binary_to_float(Text);
        {match, [Whole, <<>>, Exp]} -> binary_to_float(<<Whole/binary, ".0", Exp/binary>>);
        {match, [_, _, _]} -> binary_to_float(Text)
    end.

object(<<"}", Rest/binary>>, Map) -> {Map, Rest};
object(<<"\"", Rest/binary>>, Map) ->
    {Key, AfterKey} = string(Rest, []),
    <<":", AfterColon/binary>> = blank(AfterKey),
    {Value, After} = value(blank(AfterColon)),
    case blank(After) of
        <<",", More/binary>> ->
            <<"\"", _/binary>> = Next = blank(More),
            object(Next, Map#{Key => Value});
        <<"}", _/binary>> = End ->
            object(End, Map#{Key => Value})
    end.

array(<<"]", Rest/binary>>, Acc) -> {lists:reverse(Acc), Rest};
array(Text, Acc) ->
    {Value, After} = value(Text),
    case blank(After) of
        <<",", More/binary>> ->
            %% No comma before the end.
            Next = blank(More),
            true = binary:first(Next) =/= $],
            array(Next, [Value | Acc]);
        <<"]", _/binary>> = End ->
            array(End, [Value | Acc])
    end.

string(<<"\"", Rest/binary>>, Acc) -> {unicode:characters_to_binary(lists:reverse(Acc)), Rest};
string(<<"\\u", Hex:4/binary, Rest/binary>>, Acc) ->
    case {binary_to_integer(Hex, 16), Rest} of
        {High, <<"\\u", Hex2:4/binary, Rest2/binary>>} when High bsr 10 =:= 2#110110 ->
            Low = binary_to_integer(Hex2, 16),
            string(Rest2, [16#10000 + (High band 16#3ff) bsl 10 + (Low band 16#3ff) | Acc]);
        %% Half of a pair: what stands for what cannot be read.
        {Half, _} when Half bsr 11 =:= 2#11011 -> string(Rest, [16#fffd | Acc]);
        {C, _} -> string(Rest, [C | Acc])
    end;
string(<<"\\", C, Rest/binary>>, Acc) ->
    string(Rest, [escaped(C) | Acc]);
string(<<C/utf8, Rest/binary>>, Acc) when C >= 32 ->
    string(Rest, [C | Acc]).

escaped($n) -> $\n;
escaped($t) -> $\t;
escaped($r) -> $\r;
escaped($b) -> $\b;
escaped($f) -> $\f;
escaped(C) when C =:= $"; C =:= $\\; C =:= $/ -> C.

blank(<<C, Rest/binary>>) when C =:= $\s; C =:= $\n; C =:= $\r; C =:= $\t -> blank(Rest);
blank(Text) -> Text.
