%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of each operation on numbers, atoms, tuples and lists. Pure.
%%
%% No instruction promises anything (`nsw', `inbounds', fast mathematics) that the ranges of
%% erlane_native_range do not show.
-module(erlane_native_emit).

-export([ins/3]).

-import(erlane_native_out, [add/2, add/3, def/3, use/2, int/3, word/3, low/2, float/2, bool/2,
                            deopt_unless/3]).

%% @doc One instruction of a function whose types and plans are known.
-spec ins(erlane_native_ssa:ins(), map(), erlane_native_out:state()) -> erlane_native_out:state().
ins({Dst, Op, Args, Line}, #{types := Types, plans := Plans} = F, S0) ->
    S = erlane_native_out:line(Line, S0),
    try op(Op, Args, Dst, maps:get(Dst, Types), maps:get(Dst, Plans), F, S)
    catch throw:{unsupported, Why} -> throw({refused, Line, Why})
    end.

op(ok, [{v, V}], Dst, _, _, _, S) ->
    Cond = case S of
               #{env := #{{holds, V} := {bool, C}}} -> C;
               _ -> "true"
           end,
    def(Dst, {bool, Cond}, S);
op(phi, _, _, _, _, _, S) ->
    S;
op(Op, Args, Dst, _, list, _, S) -> erlane_native_list:op(Op, Args, Dst, S);
op({bif, Op}, Args, Dst, {int, _, _} = T, Plan, _, S)
  when Op =/= trunc, Op =/= round, Op =/= floor, Op =/= ceil, Op =/= byte_size, Op =/= bit_size ->
    {R, S1} = arith(Op, [use(A, S) || A <- Args], Plan, S),
    result(Dst, T, Plan, R, S1);
op({bif, Op}, Args, Dst, low, wrap, _, S) ->
    {R, S1} = arith(Op, [use(A, S) || A <- Args], wrap, S),
    def(Dst, {low, R}, S1);
op({bif, Op}, Args, Dst, float, _, _, S) -> float_op(Op, [use(A, S) || A <- Args], Dst, S);
op({float, Op}, Args, Dst, float, _, _, S) -> float_op(Op, [use(A, S) || A <- Args], Dst, S);
op({math, F}, Args, Dst, float, _, _, S) -> math(F, [use(A, S) || A <- Args], Dst, S);
op({bif, Op}, [A], Dst, {int, _, _}, _, _, S)
  when Op =:= trunc; Op =:= round; Op =:= floor; Op =:= ceil ->
    round(Op, use(A, S), Dst, S);
op({bif, Op}, [A, B], Dst, bool, _, _, S) when Op =:= 'and'; Op =:= 'or'; Op =:= 'xor' ->
    {X, S1} = bool(use(A, S), S),
    {Y, S2} = bool(use(B, S), S1),
    {R, S3} = add(value, [atom_to_list(Op), " i1 ", X, ", ", Y], S2),
    def(Dst, {bool, R}, S3);
op({bif, 'not'}, [A], Dst, bool, _, _, S) ->
    {X, S1} = bool(use(A, S), S),
    {R, S2} = add(value, ["xor i1 ", X, ", true"], S1),
    def(Dst, {bool, R}, S2);
op({bif, Op}, [A, B], Dst, bool, _, _, S) ->
    {R, S1} = erlane_native_cmp:compare(Op, use(A, S), use(B, S), S),
    def(Dst, {bool, R}, S1);
op({bif, Test}, [A], Dst, bool, _, _, S) ->
    {R, S1} = erlane_native_cmp:is(Test, use(A, S), S),
    def(Dst, {bool, R}, S1);
op(bs_empty, [], Dst, _, _, _, S) -> def(Dst, {k, <<>>}, S);
op({bs_create, _} = Op, Args, Dst, buf, _, _, S) -> erlane_native_build:op(Op, Args, Dst, S);
op(Op, Args, Dst, Type, _, F, S) ->
    erlane_native_bits:op(Op, Args, Dst, Type, F, S).

%% Integers. What comes out is as wide as the plan says.
arith(Op, [A, B], wrap, S) when Op =:= 'bsl' ->
    {X, S1} = low(A, S),
    shift_left(X, B, 64, S1);
arith(neg, [A], Plan, S) -> arith('-', [{c, 0}, A], Plan, S);
arith('bnot', [A], wrap, S) ->
    {X, S1} = low(A, S),
    add(value, ["xor i64 ", X, ", -1"], S1);
arith(Op, [A, B], wrap, S) ->
    {X, S1} = low(A, S),
    {Y, S2} = low(B, S1),
    add(value, [name(Op), " i64 ", X, ", ", Y], S2);
arith(Op, Args, {plain, M}, S) -> exact(Op, Args, M, S);
arith(Op, Args, {checked, signed, signed}, S) when Op =:= '+'; Op =:= '-'; Op =:= '*' ->
    [A, B] = Args,
    {X, S1} = int(A, signed, S),
    {Y, S2} = int(B, signed, S1),
    {P, S3} = add(value, ["call { i64, i1 } @llvm.s", name(Op), ".with.overflow.i64(i64 ", X,
                          ", i64 ", Y, ")"], S2),
    {R, S4} = add(value, ["extractvalue { i64, i1 } ", P, ", 0"], S3),
    {O, S5} = add(value, ["extractvalue { i64, i1 } ", P, ", 1"], S4),
    {C, S6} = add(value, ["xor i1 ", O, ", true"], S5),
    {R, deopt_unless(C, overflow(Op), S6)};
arith('bsl', [A, B], {checked, signed, signed}, S) ->
    {X, S1} = int(A, signed, S),
    {N, S2} = amount(B, 64, S1),
    {R, S3} = add(value, ["shl i64 ", X, ", ", N], S2),
    {Back, S4} = add(value, ["ashr i64 ", R, ", ", N], S3),
    {C, S5} = add(value, ["icmp eq i64 ", Back, ", ", X], S4),
    {R, deopt_unless(C, overflow('bsl'), S5)};
arith(Op, Args, {checked, signed, signed}, S) when Op =:= 'div'; Op =:= 'rem' ->
    exact(Op, Args, signed, S);
arith(Op, Args, {checked, M, To}, S0) when M =:= 128; M =:= 256 ->
    {X, S1} = exact(Op, Args, M, S0),
    {T, S2} = add(value, ["trunc i", n(M), " ", X, " to i64"], S1),
    Ext = case To of signed -> "sext"; unsigned -> "zext" end,
    {Back, S3} = add(value, [Ext, " i64 ", T, " to i", n(M)], S2),
    {C, S4} = add(value, ["icmp eq i", n(M), " ", Back, ", ", X], S3),
    {T, deopt_unless(C, overflow(Op), S4)};
arith(Op, _, _, _) ->
    throw({unsupported, io_lib:format("~tp on integers of this size", [Op])}).

overflow(Op) -> lists:concat(["the result of ", Op, " has more than 64 bits"]).

exact('bsl', [A, B], M, S) ->
    {X, S1} = int(A, M, S),
    shift_left(X, B, width(M), S1);
exact('bsr', [A, {c, N}], M, S) when is_integer(N), N >= 0 ->
    {X, S1} = int(A, M, S),
    W = width(M),
    case M of
        unsigned when N >= W -> {"0", S1};
        unsigned -> add(value, ["lshr i64 ", X, ", ", n(N)], S1);
        _ -> add(value, ["ashr i", n(W), " ", X, ", ", n(min(N, W - 1))], S1)
    end;
exact('bsr', [A, B], M, S) ->
    {X, S1} = int(A, M, S),
    {N, S2} = amount(B, width(M), S1),
    Shift = case M of unsigned -> "lshr"; _ -> "ashr" end,
    add(value, [Shift, " i", n(width(M)), " ", X, ", ", N], S2);
exact(Op, [A, B], 32, S) ->
    {X, S1} = int(A, unsigned, S),
    {Y, S2} = int(B, unsigned, S1),
    {U, S3} = add(value, ["trunc i64 ", X, " to i32"], S2),
    {V, S4} = add(value, ["trunc i64 ", Y, " to i32"], S3),
    S5 = case B of
             {c, N} when N =/= 0 -> S4;
             _ ->
                 {C, Sa} = add(value, ["icmp ne i32 ", V, ", 0"], S4),
                 deopt_unless(C, "a division by zero", Sa)
         end,
    {R, S6} = add(value, [division(Op, unsigned), " i32 ", U, ", ", V], S5),
    add(value, ["zext i32 ", R, " to i64"], S6);
exact(Op, [A, B], M, S) when Op =:= 'div'; Op =:= 'rem' ->
    {X, S1} = int(A, M, S),
    {Y, S2} = int(B, M, S1),
    Safe = case B of
               {c, 0} -> throw({unsupported, "a division by zero"});
               {c, -1} -> false;
               {c, _} -> true;
               _ -> false
           end,
    S3 = case {Safe, M} of
             {true, _} -> S2;
             {false, unsigned} ->
                 {C, Sa} = add(value, ["icmp ne i64 ", Y, ", 0"], S2),
                 deopt_unless(C, "a division by zero", Sa);
             {false, _} ->
                 %% Zero raises; minus one can overflow, which the machine punishes.
                 {P, Sa} = add(value, ["add i", n(width(M)), " ", Y, ", 1"], S2),
                 {C, Sb} = add(value, ["icmp ugt i", n(width(M)), " ", P, ", 1"], Sa),
                 deopt_unless(C, "a division by 0 or -1", Sb)
         end,
    case M of
        128 -> long_division(Op, X, Y, S3);
        _ -> add(value, [division(Op, M), " i", n(width(M)), " ", X, ", ", Y], S3)
    end;
exact(Op, [A, B], M, S) when Op =:= min; Op =:= max ->
    {X, S1} = int(A, M, S),
    {Y, S2} = int(B, M, S1),
    {C, S3} = add(value, ["icmp ", case M of unsigned -> "u"; _ -> "s" end,
                          case Op of min -> "le"; max -> "ge" end,
                          " i", n(width(M)), " ", X, ", ", Y], S2),
    W = n(width(M)),
    add(value, ["select i1 ", C, ", i", W, " ", X, ", i", W, " ", Y], S3);
exact(abs, [A], M, S) ->
    {X, S1} = int(A, M, S),
    case M of
        unsigned -> {X, S1};
        _ ->
            W = n(width(M)),
            {Neg, S2} = add(value, ["sub i", W, " 0, ", X], S1),
            {C, S3} = add(value, ["icmp slt i", W, " ", X, ", 0"], S2),
            add(value, ["select i1 ", C, ", i", W, " ", Neg, ", i", W, " ", X], S3)
    end;
exact('bnot', [A], M, S) ->
    {X, S1} = int(A, M, S),
    add(value, ["xor i", n(width(M)), " ", X, ", -1"], S1);
exact(Op, [A, B], M, S) ->
    {X, S1} = int(A, M, S),
    {Y, S2} = int(B, M, S1),
    add(value, [name(Op), " i", n(width(M)), " ", X, ", ", Y], S2).

division(Op, M) ->
    [case M of unsigned -> "u"; _ -> "s" end, case Op of 'div' -> "div"; 'rem' -> "rem" end].

%% A division of 128 bits is a function; mostly 64 are enough.
long_division(Op, X, Y, S0) ->
    {Slot, S1} = erlane_native_out:tmp(S0),
    S2 = erlane_native_out:alloca(Slot, "i128", S1),
    {[A, B], S3} = lists:mapfoldl(fun(V, S) -> add(value, ["trunc i128 ", V, " to i64"], S) end,
                                  S2, [X, Y]),
    {[C, D], S4} = lists:mapfoldl(fun({V, T}, S) ->
                                      {W, Sa} = add(value, ["sext i64 ", T, " to i128"], S),
                                      add(value, ["icmp eq i128 ", W, ", ", V], Sa)
                                  end, S3, [{X, A}, {Y, B}]),
    {Both, S5} = add(value, ["and i1 ", C, ", ", D], S4),
    {[Short, Long, Done], S6} = lists:mapfoldl(fun(_, S) -> erlane_native_out:label(S) end, S5,
                                               [short, long, done]),
    S7 = add(["br i1 ", Both, ", label %", Short, ", label %", Long], S6),
    {Q, S8} = add(value, [division(Op, signed), " i64 ", A, ", ", B],
                  erlane_native_out:block(Short, S7)),
    {R, S9} = add(value, ["sext i64 ", Q, " to i128"], S8),
    S10 = add(["br label %", Done], add(["store i128 ", R, ", i128* ", Slot], S9)),
    {T, S11} = add(value, [division(Op, signed), " i128 ", X, ", ", Y],
                   erlane_native_out:block(Long, S10)),
    S12 = add(["br label %", Done], add(["store i128 ", T, ", i128* ", Slot], S11)),
    add(value, ["load i128, i128* ", Slot], erlane_native_out:block(Done, S12)).

shift_left(_, {c, N}, W, S) when is_integer(N), N >= W, N =< 128 -> {"0", S};
shift_left(X, B, W, S) ->
    {N, S1} = amount(B, W, S),
    add(value, ["shl i", n(W), " ", X, ", ", N], S1).

%% How far to shift; the machine takes less than the width, and the BEAM shifts back by less
%% than nothing.
amount({c, N}, W, S) when is_integer(N), N >= 0, N < W -> {n(N), S};
amount({c, _}, _, _) -> throw({unsupported, "a shift by so much, or by less than nothing"});
amount(B, W, S) ->
    Why = "a shift by less than 0 or more than 63",
    {N, S1} = word(B, Why, S),
    {C, S2} = add(value, ["icmp ult i64 ", N, ", 64"], S1),
    S3 = deopt_unless(C, Why, S2),
    case W of
        64 -> {N, S3};
        _ -> add(value, ["zext i64 ", N, " to i", n(W)], S3)
    end.

result(Dst, {int, Lo, Hi}, Plan, R, S) ->
    Have = case Plan of
               wrap -> 64;
               {plain, 32} -> 64;
               {plain, M} -> width(M);
               {checked, _, _} -> 64
           end,
    case erlane_native_range:class({Lo, Hi}) of
        C when (C =:= signed orelse C =:= unsigned), Have =:= 64 -> def(Dst, {int, C, R}, S);
        C when C =:= signed; C =:= unsigned ->
            {T, S1} = add(value, ["trunc i", n(Have), " ", R, " to i64"], S),
            def(Dst, {int, C, T}, S1);
        C when C =:= Have -> def(Dst, {int, C, R}, S);
        C when is_integer(C), C < Have ->
            {T, S1} = add(value, ["trunc i", n(Have), " ", R, " to i", n(C)], S),
            def(Dst, {int, C, T}, S1);
        _ -> throw({unsupported, "an integer of this size"})
    end.

%% Floats: each result is tested at once, because an infinity can vanish in the next operation.
float_op(Op, [A], Dst, S) when Op =:= put; Op =:= get; Op =:= convert; Op =:= float ->
    {X, S1} = float(A, S),
    def(Dst, {float, X}, S1);
float_op(abs, [A], Dst, S) ->
    %% What becomes of -0.0 is left to the release.
    {X, S1} = float(A, S),
    {C, S2} = add(value, ["fcmp one double ", X, ", 0.0"], S1),
    {R, S3} = add(value, ["call double @llvm.fabs.f64(double ", X, ")"],
                  deopt_unless(C, "the absolute value of zero", S2)),
    def(Dst, {float, R}, S3);
float_op('-', [A], Dst, S) ->
    {X, S1} = float(A, S),
    {C, S2} = add(value, ["fcmp one double ", X, ", 0.0"], S1),
    {R, S3} = add(value, ["fneg double ", X], deopt_unless(C, "the negative of zero", S2)),
    def(Dst, {float, R}, S3);
float_op(Op, [A, B], Dst, S) ->
    {X, S1} = float(A, S),
    {Y, S2} = float(B, S1),
    Name = case Op of '+' -> "fadd"; '-' -> "fsub"; '*' -> "fmul"; '/' -> "fdiv" end,
    {R, S3} = add(value, [Name, " double ", X, ", ", Y], S2),
    def(Dst, {float, R}, finite(R, S3)).

finite(R, S0) ->
    {A, S1} = add(value, ["call double @llvm.fabs.f64(double ", R, ")"], S0),
    {C, S2} = add(value, ["fcmp olt double ", A, ", 0x7FF0000000000000"], S1),
    deopt_unless(C, "a result is not a finite float", S2).

math(sqrt, [A], Dst, S) ->
    {X, S1} = float(A, S),
    {C, S2} = add(value, ["fcmp oge double ", X, ", 0.0"], S1),
    {R, S3} = add(value, ["call double @llvm.sqrt.f64(double ", X, ")"],
                  deopt_unless(C, "the square root of less than nothing", S2)),
    def(Dst, {float, R}, S3);
math(F, Args, Dst, S) ->
    {Xs, S1} = lists:mapfoldl(fun erlane_native_out:float/2, S, Args),
    {R, S2} = add(value, ["call double @", atom_to_list(F), "(",
                          lists:join(", ", [["double ", X] || X <- Xs]), ") nobuiltin"], S1),
    def(Dst, {float, R}, finite(R, S2)).

round(_, {int, _, _} = V, Dst, S) ->
    def(Dst, V, S);
round(_, {c, I} = V, Dst, S) when is_integer(I) ->
    def(Dst, V, S);
round(Op, A, Dst, S) ->
    {X, S1} = float(A, S),
    {Y, S2} = case Op of
                  trunc -> {X, S1};
                  round -> add(value, ["call double @llvm.round.f64(double ", X, ")"], S1);
                  floor -> add(value, ["call double @llvm.floor.f64(double ", X, ")"], S1);
                  ceil -> add(value, ["call double @llvm.ceil.f64(double ", X, ")"], S1)
              end,
    {Abs, S3} = add(value, ["call double @llvm.fabs.f64(double ", Y, ")"], S2),
    %% Below 2 to the 59th; what the BEAM makes of larger ones is its own affair.
    {C, S4} = add(value, ["fcmp olt double ", Abs, ", 0x43A0000000000000"], S3),
    {R, S5} = add(value, ["fptosi double ", Y, " to i64"],
                  deopt_unless(C, "a float is too large for a small integer", S4)),
    def(Dst, {int, signed, R}, S5).

name('+') -> "add";
name('-') -> "sub";
name('*') -> "mul";
name('band') -> "and";
name('bor') -> "or";
name('bxor') -> "xor".

width(signed) -> 64;
width(unsigned) -> 64;
width(W) -> W.

n(I) -> integer_to_list(I).
