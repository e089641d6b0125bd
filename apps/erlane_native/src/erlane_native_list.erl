%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of operations on lists and tuples. Pure.
%%
%% Lists and tuples are terms. They are read where they are, and made by the interface of NIFs. What
%% is taken out of them is a term, too, until an operation wants a number of it.
-module(erlane_native_list).

-export([op/4, type/2, term/2]).

-import(erlane_native_out, [add/3, def/3, use/2, deopt_unless/3, charge/2]).

%% Cells that may be counted at once, and fuel for each.
-define(LENGTH, 10000).
-define(CELL, 20).
%% Fuel of a list cell or a tuple that is made, and for each word of it, which has to be collected.
-define(MAKE, 30).
-define(WORD, 5).

-type state() :: erlane_native_out:state().

%% @doc The type of what an operation gives, from the types of its operands; `none' for an
%% operation that is not one on lists or tuples.
-spec type(term(), [erlane_native_type:type()]) -> none | erlane_native_type:type().
type(Op, [T | _]) when Op =:= get_hd; Op =:= get_tl; Op =:= {bif, hd}; Op =:= {bif, tl};
                       Op =:= get_tuple_element ->
    _ = readable(T),
    term;
type({bif, element}, [_, T]) ->
    _ = readable(T),
    term;
type({bif, length}, [T]) ->
    _ = readable(T),
    {int, 0, ?LENGTH};
type({bif, tuple_size}, [T]) ->
    _ = readable(T),
    {int, 0, 1 bsl 26};
type({lists, reverse}, [T | Tail]) ->
    _ = readable(T),
    _ = [type(put_list, Tail) || Tail =/= []],
    term;
type({bif, setelement}, [_, T, V]) ->
    _ = readable(T),
    _ = type(put_list, [V]),
    term;
type(Op, [_ | _]) when Op =:= is_nonempty_list; Op =:= is_tagged_tuple -> bool;
type(push, [T]) ->
    _ = type(put_list, [T]),
    bool;
type(Op, Ts) when Op =:= put_tuple; Op =:= put_list ->
    _ = [throw({unsupported, "a place within a byte in a tuple or list"})
         || {bin, B} <- Ts, B > 0],
    _ = [throw({unsupported, "a place within a byte in a tuple or list"})
         || {field, B, _} <- Ts, B > 0],
    term;
type(_, _) -> none.

readable(term) -> ok;
readable({k, _}) -> ok;
readable(_) -> throw({unsupported, "a list or tuple operation on what is neither"}).

%% @doc One instruction.
-spec op(term(), [erlane_native_ssa:val()], non_neg_integer(), state()) -> state().
op(put_tuple, Args, Dst, S) ->
    {T, S1} = term({tuple, [use(A, S) || A <- Args]}, S),
    def(Dst, {term, T}, S1);
op(put_list, [H, T], Dst, S) ->
    {Head, S1} = term(use(H, S), S),
    {Tail, S2} = term(use(T, S), S1),
    {R, S3} = add(value, ["call i64 @enif_make_list_cell(i8* %env, i64 ", Head, ", i64 ", Tail,
                          ")"], charge(?MAKE + 2 * ?WORD, S2)),
    def(Dst, {term, R}, S3);
op(push, [A], Dst, S0) ->
    {T, S} = term(use(A, S0), S0),
    def(Dst, {bool, "true"}, erlane_native_rows:push(T, charge(?WORD, S)));
op(is_nonempty_list, [A], Dst, S) ->
    {C, S1} = is_cell(use(A, S), S),
    def(Dst, {bool, C}, S1);
op(Op, [A], Dst, S) when Op =:= get_hd; Op =:= {bif, hd} -> part(2, use(A, S), Dst, S);
op(Op, [A], Dst, S) when Op =:= get_tl; Op =:= {bif, tl} -> part(3, use(A, S), Dst, S);
op({bif, length}, [A], Dst, S) ->
    {T, S1} = term(use(A, S), S),
    {Nil, S2} = erlane_native_out:atom([], S1),
    {N, S3} = add(value, ["call i64 @term_length(i64 ", T, ", i64 ", Nil, ", i64 ", n(?LENGTH),
                          ")"], S2),
    {C, S4} = add(value, ["icmp sge i64 ", N, ", 0"], S3),
    S5 = deopt_unless(C, "a term is not a list, or one of more than 10000 elements", S4),
    {Fuel, S6} = add(value, ["mul i64 ", N, ", ", n(?CELL)], S5),
    def(Dst, {int, signed, N}, charge(Fuel, S6));
op({lists, reverse}, [A | Tail], Dst, S) ->
    {T, S1} = term(use(A, S), S),
    {Nil, S2} = erlane_native_out:atom([], S1),
    {End, S3} = case Tail of
                    [] -> {Nil, S2};
                    [V] -> term(use(V, S2), S2)
                end,
    {R, S4} = add(value, ["call { i64, i64 } @term_reverse(i8* %env, i64 ", T, ", i64 ", Nil,
                          ", i64 ", End, ")"], S3),
    {N, S5} = add(value, ["extractvalue { i64, i64 } ", R, ", 0"], S4),
    {C, S6} = add(value, ["icmp sge i64 ", N, ", 0"], S5),
    S7 = deopt_unless(C, "a term is not a list, or one of more than 2000 elements", S6),
    {List, S8} = add(value, ["extractvalue { i64, i64 } ", R, ", 1"], S7),
    {Fuel, S9} = add(value, ["mul i64 ", N, ", ", n(2 * ?WORD + ?CELL)], S8),
    def(Dst, {term, List}, charge(Fuel, S9));
op({bif, setelement}, [I, A, V], Dst, S) ->
    {X, S1} = erlane_native_out:word(use(I, S), "an index has more than 64 bits", S),
    {T, S2} = term(use(A, S1), S1),
    {New, S3} = term(use(V, S2), S2),
    {R, S4} = add(value, ["call { i64, i64 } @term_setelement(i8* %env, i64 ", X, ", i64 ", T,
                          ", i64 ", New, ")"], S3),
    {N, S5} = add(value, ["extractvalue { i64, i64 } ", R, ", 0"], S4),
    {C, S6} = add(value, ["icmp sge i64 ", N, ", 0"], S5),
    S7 = deopt_unless(C, "there is no such element, or the tuple has more than 255", S6),
    {Tuple, S8} = add(value, ["extractvalue { i64, i64 } ", R, ", 1"], S7),
    {Fuel, S9} = add(value, ["mul i64 ", N, ", ", n(?WORD)], S8),
    def(Dst, {term, Tuple}, charge(Fuel, charge(?MAKE, S9)));
op({bif, tuple_size}, [A], Dst, S) ->
    {{_, N, _}, S1} = tuple(use(A, S), S),
    {C, S2} = add(value, ["icmp sge i64 ", N, ", 0"], S1),
    def(Dst, {int, signed, N}, deopt_unless(C, "a term is not a tuple", S2));
op(get_tuple_element, [A, {c, I}], Dst, S) when is_integer(I) ->
    {{_, N, Es}, S1} = tuple(use(A, S), S),
    {C, S2} = add(value, ["icmp sgt i64 ", N, ", ", n(I)], S1),
    element_at(n(I), Es, Dst, deopt_unless(C, "a term is not a tuple, or too short", S2));
op({bif, element}, [I, A], Dst, S) ->
    {X, S1} = erlane_native_out:word(use(I, S), "an index has more than 64 bits", S),
    {{_, N, Es}, S2} = tuple(use(A, S1), S1),
    {J, S3} = add(value, ["sub i64 ", X, ", 1"], S2),
    {Low, S4} = add(value, ["icmp sge i64 ", J, ", 0"], S3),
    {High, S5} = add(value, ["icmp slt i64 ", J, ", ", N], S4),
    {C, S6} = add(value, ["and i1 ", Low, ", ", High], S5),
    element_at(J, Es, Dst, deopt_unless(C, "there is no such element", S6));
op(is_tagged_tuple, [A, {c, Size}, {c, Tag}], Dst, S) when is_atom(Tag), Size > 0 ->
    {{_, N, Es}, S1} = tuple(use(A, S), S),
    {C, S2} = add(value, ["icmp eq i64 ", N, ", ", n(Size)], S1),
    {Word, S3} = erlane_native_out:atom(Tag, S2),
    {R, S4} = add(value, ["call i1 @term_tagged(i1 ", C, ", i64* ", Es, ", i64 ", Word, ")"], S3),
    def(Dst, {bool, R}, S4);
op(Op, _, _, _) ->
    throw({unsupported, io_lib:format("~tp on these operands", [Op])}).

part(I, Value, Dst, S0) ->
    {Cell, S1} = cell(Value, S0),
    def(Dst, {term, element(I, Cell)},
        deopt_unless(element(1, Cell), "a term is not a list cell", S1)).

element_at(I, Es, Dst, S0) ->
    {P, S1} = add(value, ["getelementptr i64, i64* ", Es, ", i64 ", I], S0),
    {E, S2} = add(value, ["load i64, i64* ", P], S1),
    def(Dst, {term, E}, S2).

is_cell({term, T}, S0) ->
    {{C, _, _}, S} = erlane_native_term:cell(T, S0),
    {C, S};
is_cell({k, [_ | _]}, S) -> {"true", S};
is_cell(_, S) -> {"false", S}.

cell(Value, S0) ->
    {T, S} = erlane_native_out:term(Value, S0),
    erlane_native_term:cell(T, S).

tuple({term, T}, S) -> erlane_native_term:tuple(T, S);
tuple({k, _} = K, S0) ->
    {T, S} = term(K, S0),
    erlane_native_term:tuple(T, S);
%% What is something else for sure is no tuple, and has no elements.
tuple(_, S) -> {{"false", "-1", "null"}, S}.

%% @doc A value as a term, where many are made: small integers without a call of the interface.
-spec term(erlane_native_out:value() | {c, number()}, state()) ->
          {erlane_native_out:name(), state()}.
term({int, signed, V}, S) -> erlane_native_term:make_long(V, S);
term({c, I}, S) when is_integer(I), I >= -(1 bsl 59), I < 1 bsl 59 ->
    erlane_native_term:make_long(n(I), S);
term({tuple, Values}, S0) ->
    {Ts, S} = lists:mapfoldl(fun term/2, S0, Values),
    erlane_native_out:term({tuple, [{term, T} || T <- Ts]}, S);
term(Value, S) -> erlane_native_out:term(Value, S).

n(I) -> integer_to_list(I).
