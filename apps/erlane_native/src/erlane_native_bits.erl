%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of operations that read a binary. Pure.
%%
%% A place is a binary's bytes, how many they are, and a position in them: a byte at run time and a
%% bit that is known when the text is written. A match only tests that there is enough and moves
%% on; bytes are read when the field is extracted, which is after the test.
-module(erlane_native_bits).

-export([op/6]).

-import(erlane_native_out, [add/2, add/3, def/3, use/2, word/3, deopt_unless/3]).

%% @doc One instruction on a binary.
-spec op(term(), list(), non_neg_integer(), term(), map(), erlane_native_out:state()) ->
          erlane_native_out:state().
op(bs_start, [V], Dst, _, F, S) ->
    case use(V, S) of
        {term, T} ->
            {{Is, Place}, S1} = erlane_native_out:known(
                                  {binary, T}, fun(Sx) -> erlane_native_entry:binary(T, Sx) end, S),
            match(Dst, {bin, Place}, Is, F, S1);
        _ -> match(Dst, {bin, place(V, S)}, "true", F, S)
    end;
op(bs_get_tail, [V], Dst, _, _, S) -> def(Dst, {bin, place(V, S)}, S);
op({bs_test_tail, N}, [V], Dst, _, _, S) ->
    #{bits := K} = P = place(V, S),
    case (N + K) rem 8 of
        0 ->
            {Left, S1} = left(P, S),
            {C, S2} = add(value, ["icmp eq i64 ", Left, ", ", n((N + K) div 8)], S1),
            def(Dst, {bool, C}, S2);
        _ -> def(Dst, {bool, "false"}, S)
    end;
op({bs_ensure, Size, Unit}, [V], Dst, _, F, S) when 8 rem Unit =:= 0 ->
    %% So many bits, and after them a multiple of the unit.
    #{bits := K} = P = place(V, S),
    case (K + Size) rem Unit of
        0 ->
            {C, S1} = enough(P, Size, S),
            match(Dst, {bin, P}, C, F, S1);
        _ -> match(Dst, {bin, P}, "false", F, S)
    end;
op({bs_string, Bytes}, [V], Dst, _, F, S) -> string(Bytes, place(V, S), Dst, F, S);
op(bs_utf8, [V], Dst, _, F, S) ->
    #{pos := Pos, data := Data} = P = place(V, S),
    {Left, S1} = left(P, S),
    {At, S2} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", Pos], S1),
    {N, S3} = add(value, ["call i64 @utf8(i8* ", At, ", i64 ", Left, ", i64* %slot)"], S2),
    {Code, S4} = add(value, "load i64, i64* %slot", S3),
    {C, S5} = add(value, ["icmp ne i64 ", N, ", 0"], S4),
    {Next, S6} = add(value, ["add i64 ", Pos, ", ", N], S5),
    match(Dst, {field, P#{pos := Next}, {int, signed, Code}}, C, F, S6);
op({bs_match, binary, _, _, Unit}, [V, {c, all}], Dst, _, F, S) ->
    #{bits := K, size := Size} = P = place(V, S),
    Cond = atom_to_list(Unit =:= 1 orelse K =:= 0),
    match(Dst, {field, P#{pos := Size, bits := 0}, {bin, P}}, Cond, F, S);
op({bs_match, Type, Signed, Little, Unit}, [V, {c, Size}], Dst, _, F, S) when is_integer(Size) ->
    N = Size * Unit,
    P = place(V, S),
    {C, S1} = enough(P, N, S),
    S2 = case Type of
             float -> finite(C, P, Little, S1);
             _ -> S1
         end,
    {After, S3} = move(P, N, S2),
    match(Dst, {field, After, {Type, Signed, Little, N, P}}, C, F, S3);
op({bs_match, binary, _, _, 8}, [V, Size], Dst, _, F, S) ->
    %% A size below zero is above all others when it has no sign, and does not match.
    #{pos := Pos} = P = place(V, S),
    {N, S1} = word(use(Size, S), "a size has more than 64 bits", S),
    {Left, S2} = left(P, S1),
    {C, S3} = add(value, ["icmp ule i64 ", N, ", ", Left], S2),
    {Next, S4} = add(value, ["add i64 ", Pos, ", ", N], S3),
    match(Dst, {field, P#{pos := Next}, {bin, P#{size := Next}}}, C, F, S4);
op(bs_extract, [V], Dst, _, _, S) ->
    {field, _, Field} = use(V, S),
    extract(Field, Dst, S);
op({bif, Size}, [V], Dst, _, _, S) when Size =:= byte_size; Size =:= bit_size ->
    {Left, S1} = left(place(V, S), S),
    {R, S2} = case Size of
                  byte_size -> {Left, S1};
                  bit_size -> add(value, ["shl i64 ", Left, ", 3"], S1)
              end,
    def(Dst, {int, signed, R}, S2);
op(_, _, _, _, _, _) ->
    throw({unsupported, "an operation on these operands"}).

place(V, S) ->
    case use(V, S) of
        {bin, P} -> P;
        {field, P, _} -> P;
        _ -> throw({unsupported, "matches in what is not a binary"})
    end.

%% What matched, and whether it did. Where the compiler is sure that it does, and does not ask, the
%% test is made here.
match(Dst, Value, Cond, #{oks := Oks}, S) ->
    S1 = def(Dst, Value, S),
    case lists:member(Dst, Oks) of
        true -> erlane_native_out:def({holds, Dst}, {bool, Cond}, S1);
        false -> deopt_unless(Cond, "a binary is shorter than was known", S1)
    end.

left(#{size := Size, pos := Pos}, S) -> add(value, ["sub i64 ", Size, ", ", Pos], S).

enough(#{bits := K} = P, N, S) ->
    {Left, S1} = left(P, S),
    add(value, ["icmp uge i64 ", Left, ", ", n((K + N + 7) div 8)], S1).

move(#{pos := Pos, bits := K} = P, N, S) ->
    case (K + N) div 8 of
        0 -> {P#{bits := K + N}, S};
        Bytes ->
            {Next, S1} = add(value, ["add i64 ", Pos, ", ", n(Bytes)], S),
            {P#{pos := Next, bits := (K + N) rem 8}, S1}
    end.

string(Bytes, #{bits := 0} = P, Dst, F, S) ->
    N = byte_size(Bytes),
    Slot = ["%str", n(Dst), "_", n(maps:get(head, S))],
    {C, S1} = enough(P, N * 8, erlane_native_out:alloca(Slot, "i1", S)),
    {Yes, S2} = erlane_native_out:label(add(["store i1 false, i1* ", Slot], S1)),
    {Done, S3} = erlane_native_out:label(S2),
    S4 = erlane_native_out:block(Yes, add(["br i1 ", C, ", label %", Yes, ", label %", Done], S3)),
    {Same, S5} = lists:foldl(
                   fun({I, B}, {All, Sa}) ->
                       {X, Sb} = byte(P, I, Sa),
                       {E, Sc} = add(value, ["icmp eq i64 ", X, ", ", n(B)], Sb),
                       add(value, ["and i1 ", All, ", ", E], Sc)
                   end, {"true", S4}, lists:zip(lists:seq(0, N - 1), binary_to_list(Bytes))),
    S6 = add(["br label %", Done], add(["store i1 ", Same, ", i1* ", Slot], S5)),
    {R, S7} = add(value, ["load i1, i1* ", Slot], erlane_native_out:block(Done, S6)),
    {After, S8} = move(P, N * 8, S7),
    match(Dst, {bin, After}, R, F, S8);
string(_, _, _, _, _) ->
    throw({unsupported, "literal bytes that begin within a byte"}).

extract({bin, P}, Dst, S) -> def(Dst, {bin, P}, S);
extract({int, _, _} = Value, Dst, S) -> def(Dst, Value, S);
extract({integer, _, _, 0, _}, Dst, S) -> def(Dst, {int, signed, "0"}, S);
extract({integer, Signed, Little, N, #{bits := K} = P}, Dst, S) ->
    Count = (K + N + 7) div 8,
    {R, S1} = whole(N, Little, K, P, Count, S),
    %% The field is at the right end now, but for bits that belong to the next.
    Above = 64 - N,
    {V, S2} = case Above of
                  0 -> {R, S1};
                  _ when Signed ->
                      {X, Sa} = add(value, ["shl i64 ", R, ", ", n(Above)], S1),
                      add(value, ["ashr i64 ", X, ", ", n(Above)], Sa);
                  _ -> add(value, ["and i64 ", R, ", ", n((1 bsl N) - 1)], S1)
              end,
    M = case Signed orelse N < 64 of true -> signed; false -> unsigned end,
    def(Dst, {int, M, V}, S2);
extract({float, _, Little, 64, #{bits := 0} = P}, Dst, S) ->
    {D, S1} = double(P, Little, S),
    def(Dst, {float, D}, S1);
extract({binary, _, _, N, #{pos := Pos, bits := 0} = P}, Dst, S) when N rem 8 =:= 0 ->
    {End, S1} = add(value, ["add i64 ", Pos, ", ", n(N div 8)], S),
    def(Dst, {bin, P#{size := End}}, S1);
extract(_, _, _) ->
    throw({unsupported, "a field of this kind"}).

double(P, Little, S) ->
    {R, S1} = whole(64, Little, 0, P, 8, S),
    add(value, ["bitcast i64 ", R, " to double"], S1).

%% What is not a finite float does not match, whether its value is used or not: the BEAM sees to it.
finite(Enough, P, Little, S) ->
    {Yes, S1} = erlane_native_out:label(S),
    {Done, S2} = erlane_native_out:label(S1),
    S3 = erlane_native_out:block(Yes, add(["br i1 ", Enough, ", label %", Yes, ", label %", Done],
                                          S2)),
    {D, S4} = double(P, Little, S3),
    {A, S5} = add(value, ["call double @llvm.fabs.f64(double ", D, ")"], S4),
    {C, S6} = add(value, ["fcmp olt double ", A, ", 0x7FF0000000000000"], S5),
    S7 = deopt_unless(C, "the bits of a float are not a finite one", S6),
    erlane_native_out:block(Done, add(["br label %", Done], S7)).

whole(N, Little, 0, P, _, S) when N =:= 16; N =:= 32; N =:= 64 ->
    W = n(N),
    {A, S1} = address(P, 0, S),
    {Q, S2} = add(value, ["bitcast i8* ", A, " to i", W, "*"], S1),
    {X, S3} = add(value, ["load i", W, ", i", W, "* ", Q, ", align 1"], S2),
    {Y, S4} = case Little of
                  true -> {X, S3};
                  false -> add(value, ["call i", W, " @llvm.bswap.i", W, "(i", W, " ", X, ")"], S3)
              end,
    case N of
        64 -> {Y, S4};
        _ -> add(value, ["zext i", W, " ", Y, " to i64"], S4)
    end;
whole(N, Little, K, P, Count, S) ->
    Order = case Little of
                true -> lists:seq(Count - 1, 0, -1);
                false -> lists:seq(0, Count - 1)
            end,
    {R, S1} = lists:foldl(fun(I, {Acc, Sa}) ->
                              {B, Sb} = byte(P, I, Sa),
                              case Acc of
                                  none -> {B, Sb};
                                  _ ->
                                      {X, Sc} = add(value, ["shl i64 ", Acc, ", 8"], Sb),
                                      add(value, ["or i64 ", X, ", ", B], Sc)
                              end
                          end, {none, S}, Order),
    case Count * 8 - K - N of
        0 -> {R, S1};
        Right -> add(value, ["lshr i64 ", R, ", ", n(Right)], S1)
    end.

byte(P, I, S) ->
    {A, S1} = address(P, I, S),
    {B, S2} = add(value, ["load i8, i8* ", A], S1),
    add(value, ["zext i8 ", B, " to i64"], S2).

address(#{data := Data, pos := Pos}, I, S) ->
    {Q, S1} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", Pos], S),
    case I of
        0 -> {Q, S1};
        _ -> add(value, ["getelementptr i8, i8* ", Q, ", i64 ", n(I)], S1)
    end.

n(I) -> integer_to_list(I).
