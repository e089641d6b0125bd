%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of comparisons and of tests of a term's kind. Pure.
-module(erlane_native_cmp).

-export([compare/4, is/3]).

-import(erlane_native_out, [add/3, int/3, float/2, term/2, deopt_unless/3, charge/2]).

%% Bytes that may be compared at once, which takes some 10 us.
-define(BYTES, 65536).
%% Fuel of a comparison that the VM makes.
-define(COMPARE, 100).

-type value() :: erlane_native_out:value() | {c, number()}.

%% @doc A comparison as a truth value.
-spec compare(atom(), value(), value(), erlane_native_out:state()) ->
          {erlane_native_out:name(), erlane_native_out:state()}.
compare(Op, {k, <<>>}, {bin, _} = B, S)
  when Op =:= '=:='; Op =:= '=='; Op =:= '=/='; Op =:= '/=' ->
    compare(Op, B, {k, <<>>}, S);
compare(Op, {bin, #{bits := 0, size := Size, pos := Pos}}, {k, <<>>}, S)
  when Op =:= '=:='; Op =:= '=='; Op =:= '=/='; Op =:= '/=' ->
    add(value, ["icmp ", predicate(Op, signed), " i64 ", Size, ", ", Pos], S);
compare(Op, A, B, S) ->
    case {kind(A), kind(B)} of
        {int, int} -> ints(Op, A, B, S);
        {float, float} when Op =:= '=:='; Op =:= '=/=' -> identical_floats(Op, A, B, S);
        {N, G} when (N =:= int orelse N =:= float), (G =:= bytes orelse G =:= compound) ->
            %% Every number is less than every other term.
            {atom_to_list(erlang:Op(0, {})), S};
        {G, N} when (N =:= int orelse N =:= float), (G =:= bytes orelse G =:= compound) ->
            {atom_to_list(erlang:Op({}, 0)), S};
        {F, G} when Op =:= '=:=', F =/= G, F =/= term, G =/= term -> {"false", S};
        {F, G} when Op =:= '=/=', F =/= G, F =/= term, G =/= term -> {"true", S};
        {F, G} when (F =:= float orelse F =:= int), (G =:= float orelse G =:= int) ->
            floats(Op, A, B, S);
        {int, term} when Op =/= '=:=', Op =/= '=/=' -> ints(Op, A, B, S);
        {term, int} when Op =/= '=:=', Op =/= '=/=' -> ints(Op, A, B, S);
        _ -> terms(Op, A, B, S)
    end.

kind({c, I}) when is_integer(I) -> int;
kind({c, _}) -> float;
kind({int, _, _}) -> int;
kind({float, _}) -> float;
kind({bool, _}) -> atom;
kind({k, A}) when is_atom(A) -> atom;
kind({k, []}) -> nil;
kind({k, B}) when is_bitstring(B) -> bytes;
kind({k, _}) -> compound;
kind({low, _}) -> throw({unsupported, "a comparison of an integer of any size"});
kind({bin, _}) -> bytes;
kind({field, _, _}) -> bytes;
kind({buf, _}) -> throw({unsupported, "a comparison of a binary that is built"});
kind({term, _}) -> term.

ints(Op, A, B, S) ->
    M = case lists:usort([machine(A), machine(B)]) of
            [any] -> signed;
            [any, X] -> X;
            [X, any] -> X;
            [X] -> X;
            [X, Y] when is_integer(X), not is_integer(Y) -> X;
            [_, X] when is_integer(X) -> X;
            [X | _] when is_integer(X) -> X;
            _ -> 128
        end,
    %% A literal that the other side's machine integer does not hold needs a wider one.
    Wide = case [I || {c, I} <- [A, B], not erlane_native_range:fits(I, M)] of
               [] -> M;
               [I | _] when I >= -(1 bsl 126), I < 1 bsl 126, M =/= 256 -> 128;
               [I | _] when I >= -(1 bsl 254), I < 1 bsl 254 -> 256;
               _ -> throw({unsupported, "a comparison with so large a number"})
           end,
    {X1, S1} = int(A, Wide, S),
    {Y1, S2} = int(B, Wide, S1),
    add(value, ["icmp ", predicate(Op, Wide), " i", width(Wide), " ", X1, ", ", Y1], S2).

machine({c, _}) -> any;
machine({int, M, _}) -> M;
machine({term, _}) -> signed.

width(signed) -> "64";
width(unsigned) -> "64";
width(W) -> integer_to_list(W).

predicate(Op, _) when Op =:= '=:='; Op =:= '==' -> "eq";
predicate(Op, _) when Op =:= '=/='; Op =:= '/=' -> "ne";
predicate(Op, unsigned) -> ["u", order(Op)];
predicate(Op, _) -> ["s", order(Op)].

order('<') -> "lt";
order('>') -> "gt";
order('=<') -> "le";
order('>=') -> "ge".

floats(Op, A, B, S) ->
    {X, S1} = float(A, S),
    {Y, S2} = float(B, S1),
    P = case Op of
            _ when Op =:= '=='; Op =:= '=:=' -> "eq";
            _ when Op =:= '/='; Op =:= '=/=' -> "ne";
            _ -> order(Op)
        end,
    add(value, ["fcmp o", P, " double ", X, ", ", Y], S2).

%% Whether 0.0 is identical to -0.0 has changed between releases: the BEAM decides.
identical_floats(Op, A, B, S0) ->
    {X, S1} = float(A, S0),
    {Y, S2} = float(B, S1),
    {I, S3} = add(value, ["bitcast double ", X, " to i64"], S2),
    {J, S4} = add(value, ["bitcast double ", Y, " to i64"], S3),
    {Same, S5} = add(value, ["icmp eq i64 ", I, ", ", J], S4),
    {Equal, S6} = add(value, ["fcmp oeq double ", X, ", ", Y], S5),
    {Sure, S7} = add(value, ["icmp eq i1 ", Same, ", ", Equal], S6),
    S8 = deopt_unless(Sure, "0.0 and -0.0 are compared", S7),
    case Op of
        '=:=' -> {Same, S8};
        '=/=' -> add(value, ["xor i1 ", Same, ", true"], S8)
    end.

%% Terms: equal words are the same atom; all else is asked of the VM, if it answers soon.
terms(Op, A, B, S0) ->
    {X, S1} = term(A, S0),
    {Y, Sy} = term(B, S1),
    S2 = soon({A, X}, {B, Y}, charge(?COMPARE, Sy)),
    Immediate = lists:any(fun(K) -> K =:= atom orelse K =:= nil end, [kind(A), kind(B)]),
    case Op of
        _ when Immediate, (Op =:= '=:=' orelse Op =:= '==') ->
            add(value, ["icmp eq i64 ", X, ", ", Y], S2);
        _ when Immediate, (Op =:= '=/=' orelse Op =:= '/=') ->
            add(value, ["icmp ne i64 ", X, ", ", Y], S2);
        _ when Op =:= '=:='; Op =:= '=/=' ->
            {R, S3} = add(value, ["call i32 @enif_is_identical(i64 ", X, ", i64 ", Y, ")"], S2),
            add(value, ["icmp ", case Op of '=:=' -> "ne"; _ -> "eq" end, " i32 ", R, ", 0"], S3);
        _ ->
            {R, S3} = add(value, ["call i32 @enif_compare(i64 ", X, ", i64 ", Y, ")"], S2),
            add(value, ["icmp ", predicate(Op, signed), " i32 ", R, ", 0"], S3)
    end.

%% A comparison takes as long as the smaller of both terms is large: not long if one is an atom, a
%% number or a literal. The VM compares without giving way, so the BEAM does the others, which pays
%% for them.
soon({A, X}, {B, Y}, S0) ->
    Bounded = lists:any(fun(V) -> element(1, V) =:= k orelse kind(V) =/= term andalso
                                      kind(V) =/= bytes end, [A, B]),
    case [P || V <- [A, B], P <- place(V)] of
        _ when Bounded -> S0;
        [#{size := Size, pos := Pos} | _] ->
            {N, S1} = add(value, ["sub i64 ", Size, ", ", Pos], S0),
            {C, S2} = add(value, ["icmp ule i64 ", N, ", ", integer_to_list(?BYTES)], S1),
            charge(N, deopt_unless(C, "a binary is too large to be compared here", S2));
        [] ->
            {C, S1} = add(value, ["call i1 @quick(i8* %env, i64 ", X, ", i64 ", Y, ")"], S0),
            deopt_unless(C, "terms that may be large are compared", S1)
    end.

place({bin, P}) -> [P];
place({field, P, _}) -> [P];
place(_) -> [].

%% @doc A test of a kind as a truth value.
-spec is(atom(), value(), erlane_native_out:state()) ->
          {erlane_native_out:name(), erlane_native_out:state()}.
is(Test, {term, T}, S0) ->
    {Type, S1} = add(value, ["call i32 @enif_term_type(i8* %env, i64 ", T, ")"], S0),
    case code(Test) of
        {either, I, J} ->
            {A, S2} = add(value, ["icmp eq i32 ", Type, ", ", I], S1),
            {B, S3} = add(value, ["icmp eq i32 ", Type, ", ", J], S2),
            add(value, ["or i1 ", A, ", ", B], S3);
        I ->
            add(value, ["icmp eq i32 ", Type, ", ", I], S1)
    end;
is(Test, V, S) ->
    Kind = case kind(V) of
               K when (K =:= bytes orelse K =:= compound), element(1, V) =:= k ->
                   erlang:Test(element(2, V));
               %% Binaries come in whole bytes, or not at all.
               bytes -> lists:member(Test, [is_binary, is_bitstring]);
               int -> lists:member(Test, [is_integer, is_number]);
               float -> lists:member(Test, [is_float, is_number]);
               nil -> Test =:= is_list;
               atom when Test =:= is_boolean, element(1, V) =:= k -> is_boolean(element(2, V));
               atom -> lists:member(Test, [is_atom, is_boolean])
           end,
    {atom_to_list(Kind), S}.

%% The numbers of ErlNifTermType, which are part of the interface.
code(is_atom) -> "1";
code(is_bitstring) -> "2";
code(is_float) -> "3";
code(is_integer) -> "5";
code(is_number) -> {either, "3", "5"};
code(is_list) -> "6";
code(is_map) -> "7";
code(is_pid) -> "8";
code(is_reference) -> "10";
code(is_tuple) -> "11";
code(Test) -> throw({unsupported, [atom_to_list(Test), " of this value"]}).
