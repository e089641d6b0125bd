%% SPDX-License-Identifier: Apache-2.0
%% @doc The type of what one operation gives, from the types of its operands, and how wide it has to
%% be computed. Pure.
%%
%% For operands that native code does not compute with it throws `{unsupported, Why}'.
-module(erlane_native_type).

-export([result/4, int/1, wide/0, is_place/1, builds/1]).

-export_type([type/0, plan/0]).

-type type() :: none | {int, integer(), integer()} | low | float | bool | term | {k, term()}
              | {bin, Bits :: 0..7} | {field, Bits :: 0..7, type()} | buf.
%% `low': an integer of which only the lowest 64 bits are ever looked at. `{k, _}': a literal.
%% `{bin, Bits}': a place in a binary, so many bits into a byte; `{field, ...}' is that too, after
%% a field was matched whose value has the type. `buf': a binary that is being built.
-type plan() :: list | erlane_native_width:plan().

%% @doc An integer in a range.
-spec int(erlane_native_range:range()) -> type().
int({Lo, Hi}) -> {int, Lo, Hi}.

%% @doc Any integer that is computed with: what is `low' has no end that is known.
-spec wide() -> erlane_native_range:range().
wide() -> {-(1 bsl 1000), 1 bsl 1000}.

%% @doc Whether this is a place in a binary.
-spec is_place(type()) -> boolean().
is_place(T) -> is_integer(bits(T)).

%% @doc Is a binary built in this function of a unit?
-spec builds(#{types := #{non_neg_integer() => type()}, _ => _}) -> boolean().
builds(#{types := Types}) -> lists:member(buf, maps:values(Types)).

%% @doc Type of a result and plan of the operation: of its operands the types and what they are,
%% and whether only the lowest bits are looked at.
-spec result(term(), [type()], [erlane_native_ssa:val()], term()) -> {type(), plan()}.
result(ok, [_], _, _) -> {bool, plain};
result(phi, Ts, _, _) -> {lists:foldl(fun phi/2, none, Ts), plain};
result({bif, Op}, Ts, _, Low) when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= 'div';
                                   Op =:= 'rem'; Op =:= 'band'; Op =:= 'bor'; Op =:= 'bxor';
                                   Op =:= 'bsl'; Op =:= 'bsr'; Op =:= 'bnot'; Op =:= abs;
                                   Op =:= min; Op =:= max ->
    arith(Op, Ts, Low);
result({bif, Op}, [_, _], _, _) when Op =:= '<'; Op =:= '>'; Op =:= '=<'; Op =:= '>=';
                                     Op =:= '=:='; Op =:= '=/='; Op =:= '=='; Op =:= '/=';
                                     Op =:= 'and'; Op =:= 'or'; Op =:= 'xor' -> {bool, plain};
result({bif, Op}, [_], _, _) when Op =:= 'not'; Op =:= is_integer; Op =:= is_float;
                                  Op =:= is_number; Op =:= is_atom; Op =:= is_binary;
                                  Op =:= is_bitstring; Op =:= is_list; Op =:= is_tuple;
                                  Op =:= is_map; Op =:= is_pid; Op =:= is_reference;
                                  Op =:= is_boolean -> {bool, plain};
result({bif, neg}, [float], _, _) -> throw({unsupported, "the negative of a float"});
result({bif, neg}, [T], _, Low) ->
    erlane_native_width:int('-', [{0, 0}, operand(neg, T)], Low);
result({bif, '/'}, [_, _], _, _) -> {float, plain};
result({bif, float}, [_], _, _) -> {float, plain};
result({bif, Op}, [T], _, _) when Op =:= trunc; Op =:= round; Op =:= floor; Op =:= ceil ->
    case T of
        %% An integer is what it was; of a float, the code tests the result.
        {int, _, _} -> {T, plain};
        _ when T =:= float; T =:= term -> {{int, -(1 bsl 59), 1 bsl 59}, plain};
        _ -> throw({unsupported, io_lib:format("~tp of what is not a number", [Op])})
    end;
result({bif, Op}, [T], _, _) when Op =:= byte_size; Op =:= bit_size ->
    case T of
        {bin, 0} -> {{int, 0, 1 bsl 60}, plain};
        {bin, _} -> throw({unsupported, "the size of what begins within a byte"});
        {field, 0, _} -> {{int, 0, 1 bsl 60}, plain};
        _ -> throw({unsupported, "the size of what is not matched as a binary"})
    end;
result({math, _}, _, _, _) -> {float, plain};
result({float, Op}, _, _, _) when Op =:= put; Op =:= convert; Op =:= get;
                                  Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= '/' ->
    {float, plain};
result(bs_empty, [], _, _) -> {{k, <<>>}, plain};
result({bs_create, Segments}, Ts, Args, _) -> {create(Segments, Ts, Args), plain};
result(Op, Ts, Args, _) ->
    case erlane_native_list:type(Op, Ts) of
        none -> bits_op(Op, Ts, Args);
        Type -> {Type, list}
    end.

bits_op(bs_start, [{bin, K}], _) -> {{bin, K}, plain};
bits_op(bs_start, [{field, K, _}], _) -> {{bin, K}, plain};
bits_op(bs_start, [term], _) -> {{bin, 0}, plain};
bits_op(bs_start, _, _) -> throw({unsupported, "matches in what is not a binary"});
bits_op({bs_test_tail, _}, _, _) -> {bool, plain};
bits_op({bs_ensure, _, _}, [T], _) -> {{bin, place(T)}, plain};
bits_op({bs_string, S}, [T], _) -> {{bin, (place(T) + bit_size(S)) rem 8}, plain};
bits_op(bs_utf8, [T], _) -> {{field, aligned(T), {int, 0, 16#10FFFF}}, plain};
bits_op({bs_match, binary, _, _, Unit}, [T, _], [_, {c, all}]) when Unit =:= 8; Unit =:= 1 ->
    {{field, 0, rest(T)}, plain};
bits_op({bs_match, Type, Signed, Little, Unit}, [T, _], [_, {c, Size}]) when is_integer(Size) ->
    N = Size * Unit,
    K = place(T),
    case field(Type, Signed, Little, K, N) of
        %% Not all bits are a float, so to skip one is to look at it.
        {no, Why} when Type =:= float -> throw({unsupported, Why});
        Field -> {{field, (K + N) rem 8, Field}, plain}
    end;
bits_op({bs_match, binary, _, _, 8}, [T, {int, _, _}], _) ->
    {{field, aligned(T), {bin, 0}}, plain};
bits_op({bs_match, _, _, _, _}, _, _) ->
    throw({unsupported, "a field of a binary whose size is not known"});
bits_op(bs_extract, [{field, _, {no, Why}}], _) -> throw({unsupported, Why});
bits_op(bs_extract, [{field, _, T}], _) -> {T, plain};
bits_op(bs_get_tail, [T], _) -> {{bin, place(T)}, plain};
bits_op(Op, _, _) ->
    throw({unsupported, io_lib:format("~tp on these operands is not native", [Op])}).

create([{Append, _, _} | Segments], [T, _ | Ts], [_, {c, all} | Args])
  when Append =:= append orelse Append =:= private_append, T =:= buf orelse T =:= {k, <<>>} ->
    _ = erlane_native_build:fields(Segments, Args),
    lists:foreach(fun put/1, erlane_native_width:fields(Segments, Ts, Args)),
    buf;
create([{Append, _, _} | _], _, _) when Append =:= append; Append =:= private_append ->
    throw({unsupported, "appends to what is not an argument of the loop"});
create(_, _, _) -> throw({unsupported, "makes a binary that is not an append to one"}).

put({{integer, _, _}, {int, _, _}, _}) -> ok;
put({{integer, _, _}, T, _}) when T =:= low; T =:= term -> ok;
put({{utf8, _, _}, {int, _, _}, _}) -> ok;
put({{utf8, _, _}, term, _}) -> ok;
put({{float, _, _}, float, _}) -> ok;
put({{binary, _, _}, {bin, 0}, _}) -> ok;
put({{binary, _, _}, {k, B}, _}) when is_binary(B), byte_size(B) =< 64 -> ok;
put({{Type, _, _}, _, _}) ->
    throw({unsupported, io_lib:format("puts what may not be ~tp into a binary as such", [Type])}).

bits({bin, K}) -> K;
bits({field, K, _}) -> K;
bits(_) -> no.

place(T) ->
    case bits(T) of
        no -> throw({unsupported, "matches in what is not a binary"});
        K -> K
    end.

aligned(T) ->
    case place(T) of
        0 -> 0;
        _ -> throw({unsupported, "a field that must begin with a byte does not"})
    end.

rest(T) ->
    case place(T) of
        0 -> {bin, 0};
        _ -> {no, "a binary that begins within a byte"}
    end.

field(integer, _, true, K, N) when K =/= 0; N rem 8 =/= 0 ->
    {no, "a little-endian field that is not whole bytes"};
field(integer, Signed, _, K, N) when N > 0, K + N =< 64 ->
    case Signed of
        true -> {int, -(1 bsl (N - 1)), (1 bsl (N - 1)) - 1};
        false -> {int, 0, (1 bsl N) - 1}
    end;
field(integer, _, _, _, 0) -> {int, 0, 0};
field(integer, _, _, _, _) -> {no, "an integer field that is not within eight bytes"};
field(float, _, _, 0, 64) -> float;
field(float, _, _, _, _) -> {no, "a float that is not 64 bits at a whole byte"};
field(binary, _, _, 0, N) when N rem 8 =:= 0 -> {bin, 0};
field(binary, _, _, _, _) -> {no, "a binary that is not whole bytes"}.

phi(T, none) -> T;
phi(T, T) -> T;
phi({int, A, B}, {int, C, D}) -> {int, min(A, C), max(B, D)};
phi(buf, {k, <<>>}) -> throw({unsupported, "a binary that is built on one way only"});
phi(bool, {k, K}) when is_boolean(K) -> bool;
phi({k, K}, bool) when is_boolean(K) -> bool;
phi(A, B) ->
    case [T || T <- [A, B], T =:= low orelse T =:= buf orelse is_place(T)] of
        [] -> term;
        _ -> throw({unsupported, "a variable that is a binary on one way only"})
    end.

arith(Op, Ts, Low) ->
    case lists:member(float, Ts) of
        true when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= abs -> {float, plain};
        true -> throw({unsupported, io_lib:format("~tp of a float", [Op])});
        false -> erlane_native_width:int(Op, [operand(Op, T) || T <- Ts], Low)
    end.

operand(_, {int, Lo, Hi}) -> {Lo, Hi};
operand(_, low) -> wide();
operand(Op, term) when Op =/= min, Op =/= max -> erlane_native_range:signed();
operand(Op, _) -> throw({unsupported, io_lib:format("~tp of what is not a number", [Op])}).
