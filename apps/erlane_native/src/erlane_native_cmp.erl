%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of comparisons and of tests of a term's kind. Pure.
-module(erlane_native_cmp).

-export([compare/4, is/3]).

-import(erlane_native_out, [add/2, add/3, int/3, float/2, term/2, deopt_unless/3, charge/2]).

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
        {int, term} -> int_or_not(Op, A, B, S);
        {term, int} -> int_or_not(Op, B, A, S);
        {K, term} when K =:= atom; K =:= nil -> word(Op, A, B, S);
        {term, K} when K =:= atom; K =:= nil -> word(Op, A, B, S);
        {term, term} -> unknown(Op, A, B, S);
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

%% Whether a term is this integer: one of another kind, or a larger one, is not.
int_or_not(Op, {int, M, _} = I, T, S) when M =/= signed -> terms(Op, I, T, S);
int_or_not(Op, {c, N} = I, T, S) when N < -(1 bsl 59); N >= 1 bsl 59 -> terms(Op, I, T, S);
int_or_not(Op, I, {term, T}, S0) ->
    {{Is, V}, S1} = case I of
                        {c, _} -> erlane_native_term:small(T, S0);
                        _ -> erlane_native_term:long(T, S0)
                    end,
    {X, S2} = int(I, signed, S1),
    {E, S3} = add(value, ["icmp eq i64 ", V, ", ", X], S2),
    {Same, S4} = add(value, ["and i1 ", Is, ", ", E], S3),
    case Op of
        '=:=' -> {Same, S4};
        '=/=' -> add(value, ["xor i1 ", Same, ", true"], S4)
    end.

%% Atoms and the empty list are the same word, or not the same.
word(Op, A, B, S0) when Op =:= '=:='; Op =:= '=='; Op =:= '=/='; Op =:= '/=' ->
    {X, S1} = term(A, S0),
    {Y, S2} = term(B, S1),
    add(value, ["icmp ", predicate(Op, signed), " i64 ", X, ", ", Y], S2);
word(Op, A, B, S) -> terms(Op, A, B, S).

%% Two terms: their words say it, mostly.
unknown('=/=', A, B, S) -> negated('=:=', A, B, S);
unknown('/=', A, B, S) -> negated('==', A, B, S);
unknown('>=', A, B, S) -> negated('<', A, B, S);
unknown('>', A, B, S) -> unknown('<', B, A, S);
unknown('=<', A, B, S) -> negated('<', B, A, S);
unknown(Op, {term, X} = A, {term, Y} = B, S0) ->
    {{Sure, Answer}, S1} = erlane_native_term:same(Op, X, Y, S0),
    {Slot, S2} = erlane_native_out:tmp(S1),
    {Ask, S3} = erlane_native_out:label(erlane_native_out:alloca(Slot, "i1", S2)),
    {Done, S4} = erlane_native_out:label(S3),
    S5 = add(["br i1 ", Sure, ", label %", Done, ", label %", Ask, ", !prof !0"],
             add(["store i1 ", Answer, ", i1* ", Slot], S4)),
    {R, S6} = terms(Op, A, B, erlane_native_out:block(Ask, S5)),
    S7 = add(["br label %", Done], add(["store i1 ", R, ", i1* ", Slot], S6)),
    add(value, ["load i1, i1* ", Slot], erlane_native_out:block(Done, S7)).

negated(Op, A, B, S0) ->
    {R, S} = unknown(Op, A, B, S0),
    add(value, ["xor i1 ", R, ", true"], S).

%% What their words do not say is asked of the VM, if it answers soon.
terms(Op, A, B, S0) ->
    {X, S1} = term(A, S0),
    {Y, Sy} = term(B, S1),
    S2 = soon({A, X}, {B, Y}, charge(?COMPARE, Sy)),
    case Op of
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
is(is_integer, {term, T}, S0) ->
    {{Small, _}, S1} = erlane_native_term:small(T, S0),
    or_else(Small, fun(S) -> type_is("5", T, S) end, S1);
is(is_number, {term, T}, S0) ->
    {{Small, _}, S1} = erlane_native_term:small(T, S0),
    or_else(Small, fun(S) -> type_is({either, "3", "5"}, T, S) end, S1);
is(is_float, {term, T}, S0) ->
    {{Is, _}, S} = erlane_native_term:double(T, S0),
    {Is, S};
is(is_atom, {term, T}, S) -> erlane_native_term:atom(T, S);
is(is_boolean, V = {term, _}, S0) ->
    {True, S1} = word('=:=', V, {k, true}, S0),
    {False, S2} = word('=:=', V, {k, false}, S1),
    add(value, ["or i1 ", True, ", ", False], S2);
is(is_list, V = {term, T}, S0) ->
    {{Cell, _, _}, S1} = erlane_native_term:cell(T, S0),
    {Nil, S2} = word('=:=', V, {k, []}, S1),
    add(value, ["or i1 ", Cell, ", ", Nil], S2);
is(is_tuple, {term, T}, S0) ->
    {{Is, _, _}, S} = erlane_native_term:tuple(T, S0),
    {Is, S};
is(Test, {term, T}, S) when Test =/= is_binary -> type_is(code(Test), T, S);
is(is_binary, {term, T}, S0) ->
    {R, S} = add(value, ["call i32 @enif_is_binary(i8* %env, i64 ", T, ")"], charge(?COMPARE, S0)),
    add(value, ["icmp ne i32 ", R, ", 0"], S);
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

%% The second question only where the first says no.
or_else(First, Second, S0) ->
    {Slot, S1} = erlane_native_out:tmp(S0),
    {Ask, S2} = erlane_native_out:label(erlane_native_out:alloca(Slot, "i1", S1)),
    {Done, S3} = erlane_native_out:label(S2),
    S4 = add(["br i1 ", First, ", label %", Done, ", label %", Ask, ", !prof !0"],
             add(["store i1 true, i1* ", Slot], S3)),
    {R, S5} = Second(erlane_native_out:block(Ask, S4)),
    S6 = add(["br label %", Done], add(["store i1 ", R, ", i1* ", Slot], S5)),
    add(value, ["load i1, i1* ", Slot], erlane_native_out:block(Done, S6)).

type_is(Code, T, S0) ->
    {Type, S1} = add(value, ["call i32 @enif_term_type(i8* %env, i64 ", T, ")"], S0),
    case Code of
        {either, I, J} ->
            {A, S2} = add(value, ["icmp eq i32 ", Type, ", ", I], S1),
            {B, S3} = add(value, ["icmp eq i32 ", Type, ", ", J], S2),
            add(value, ["or i1 ", A, ", ", B], S3);
        I ->
            add(value, ["icmp eq i32 ", Type, ", ", I], S1)
    end.

%% The numbers of ErlNifTermType, which are part of the interface.
code(is_bitstring) -> "2";
code(is_map) -> "7";
code(is_pid) -> "8";
code(is_reference) -> "10";
code(Test) -> throw({unsupported, [atom_to_list(Test), " of this value"]}).
