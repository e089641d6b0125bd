%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of functions that read terms as they are in memory, and of the probe that finds out
%% at load whether they may. Pure.
%%
%% A function of the NIF interface takes 3 ns to read a list cell, and reading its two words 1 ns.
%% What a word means is no part of the interface, though it is the same from OTP 25 to 29. So the
%% probe makes terms by the interface and compares each word of them with what is expected here.
%% Where anything is different, all units whose text has a `@term_' in it stay on BEAM.
%%
%% The two lowest bits of a word say what it is: 1 a list cell, 2 something else in memory, 3 a
%% value of its own. A small integer has four bits set, an atom ends in 001011. What is in memory
%% begins with a header, which ends in six zeroes for a tuple, above them its size.
-module(erlane_native_term).

-export([functions/0, gate/1, cell/2, tuple/2, long/2, double/2, small/2, same/4, immediate/2,
         make_long/2, atom/2]).

-import(erlane_native_out, [add/3]).

-define(SMALL, 15).
-define(ATOM, 11).
-define(FLOAT, 88).

-type state() :: erlane_native_out:state().
-type name() :: erlane_native_out:name().

%% @doc Whether a word is a list cell, and its two words, which mean nothing elsewhere.
-spec cell(name(), state()) -> {{Is :: name(), Head :: name(), Tail :: name()}, state()}.
cell(T, S) -> parts({cell, T}, ["term_get_list_cell(i64 ", T, ")"], ["i1", "i64", "i64"], S).

%% @doc Whether it is a tuple, its size, and where its elements are.
-spec tuple(name(), state()) -> {{Is :: name(), Size :: name(), Elements :: name()}, state()}.
tuple(T, S) -> parts({tuple, T}, ["term_get_tuple(i64 ", T, ")"], ["i1", "i64", "i64*"], S).

%% @doc Whether it is an integer of 64 bits with a sign, and which.
-spec long(name(), state()) -> {{Is :: name(), Value :: name()}, state()}.
long(T, S) -> parts({long, T}, ["term_get_long(i8* %env, i64 ", T, ")"], ["i1", "i64"], S).

%% @doc Whether it is a float, and which.
-spec double(name(), state()) -> {{Is :: name(), Value :: name()}, state()}.
double(T, S) -> parts({double, T}, ["term_get_double(i64 ", T, ")"], ["i1", "double"], S).

%% @doc Whether it is a small integer, and which.
-spec small(name(), state()) -> {{Is :: name(), Value :: name()}, state()}.
small(T, S) -> parts({small, T}, ["term_small(i64 ", T, ")"], ["i1", "i64"], S).

%% @doc Whether two words say by themselves how they compare, and if so, the answer.
-spec same(atom(), name(), name(), state()) -> {{Sure :: name(), Answer :: name()}, state()}.
same(Op, A, B, S) ->
    Which = case Op of
                '=:=' -> "identical";
                '==' -> "equal";
                '<' -> "less"
            end,
    parts({Op, A, B}, ["term_", Which, "(i64 ", A, ", i64 ", B, ")"], ["i1", "i1"], S).

%% @doc Whether a word is an atom.
-spec atom(name(), state()) -> {name(), state()}.
atom(T, S0) ->
    {A, S1} = add(value, ["call i64 @term_bits(i64 ", T, ", i64 63)"], S0),
    add(value, ["icmp eq i64 ", A, ", ", n(?ATOM)], S1).

%% @doc Whether a word is an atom, a small integer, the empty list: a value of its own.
-spec immediate(name(), state()) -> {name(), state()}.
immediate(T, S0) ->
    {A, S1} = add(value, ["call i64 @term_bits(i64 ", T, ", i64 3)"], S0),
    add(value, ["icmp eq i64 ", A, ", 3"], S1).

%% @doc A term of an integer of 64 bits with a sign.
-spec make_long(name(), state()) -> {name(), state()}.
make_long(V, S) -> add(value, ["call i64 @term_make_long(i8* %env, i64 ", V, ")"], S).

%% What was asked already on the way to here is not asked again.
parts(Key, Call, Types, S0) ->
    erlane_native_out:known(
      Key, fun(S1) ->
               Struct = ["{ ", lists:join(", ", Types), " }"],
               {R, S2} = add(value, ["call ", Struct, " @", Call], S1),
               {Parts, S} = lists:mapfoldl(
                              fun(I, Sx) -> add(value, ["extractvalue ", Struct, " ", R, ", ", n(I)],
                                                Sx)
                              end, S2, lists:seq(0, length(Types) - 1)),
               {list_to_tuple(Parts), S}
           end, S0).

%% @doc What a unit's function begins with if its text reads terms so.
-spec gate(iodata()) -> iodata().
gate(Text) ->
    case binary:match(iolist_to_binary(Text), <<"@term_">>) of
        nomatch -> [];
        _ -> ["  %dv = load i8, i8* @direct\n  %dc = icmp ne i8 %dv, 0\n",
              "  br i1 %dc, label %fits, label %whole, !prof !0\nfits:\n"]
    end.

%% @doc All that reads terms, and the probe.
-spec functions() -> iodata().
functions() ->
    ["@direct = internal global i8 0\n",
     "declare i64 @enif_make_new_map(i8*)\ndeclare i64 @enif_make_ref(i8*)\n",
     "define internal i64 @term_bits(i64 %t, i64 %mask) alwaysinline {\n",
     "  %b = and i64 %t, %mask\n  ret i64 %b\n}\n",
     cells(), tuples(), longs(), doubles(), compares(), lengths(), erlane_native_rows:functions(),
     probe()].

cells() ->
    ["define internal { i1, i64, i64 } @term_get_list_cell(i64 %t) alwaysinline {\n",
     "  %tag = and i64 %t, 3\n  %is = icmp eq i64 %tag, 1\n",
     "  br i1 %is, label %yes, label %no\nno:\n",
     "  ret { i1, i64, i64 } { i1 false, i64 0, i64 0 }\nyes:\n",
     "  %a = sub i64 %t, 1\n  %p = inttoptr i64 %a to i64*\n  %h = load i64, i64* %p\n",
     "  %q = getelementptr i64, i64* %p, i64 1\n  %l = load i64, i64* %q\n",
     "  %r0 = insertvalue { i1, i64, i64 } { i1 true, i64 0, i64 0 }, i64 %h, 1\n",
     "  %r1 = insertvalue { i1, i64, i64 } %r0, i64 %l, 2\n  ret { i1, i64, i64 } %r1\n}\n"].

%% The size of what is no tuple is -1, which no index is below.
tuples() ->
    ["define internal { i1, i64, i64* } @term_get_tuple(i64 %t) alwaysinline {\n",
     "  %tag = and i64 %t, 3\n  %boxed = icmp eq i64 %tag, 2\n",
     "  br i1 %boxed, label %look, label %no\nno:\n",
     "  ret { i1, i64, i64* } { i1 false, i64 -1, i64* null }\nlook:\n",
     "  %a = sub i64 %t, 2\n  %p = inttoptr i64 %a to i64*\n  %h = load i64, i64* %p\n",
     "  %low = and i64 %h, 63\n  %is = icmp eq i64 %low, 0\n",
     "  br i1 %is, label %yes, label %no\nyes:\n",
     "  %n = lshr i64 %h, 6\n  %e = getelementptr i64, i64* %p, i64 1\n",
     "  %r0 = insertvalue { i1, i64, i64* } { i1 true, i64 0, i64* null }, i64 %n, 1\n",
     "  %r1 = insertvalue { i1, i64, i64* } %r0, i64* %e, 2\n  ret { i1, i64, i64* } %r1\n}\n",
     %% The first element is read only where there is one.
     "define internal i1 @term_tagged(i1 %c, i64* %e, i64 %tag) alwaysinline {\n",
     "  br i1 %c, label %yes, label %no\nno:\n  ret i1 false\nyes:\n",
     "  %t = load i64, i64* %e\n  %is = icmp eq i64 %t, %tag\n  ret i1 %is\n}\n"].

longs() ->
    ["define internal { i1, i64 } @term_small(i64 %t) alwaysinline {\n",
     "  %tag = and i64 %t, 15\n  %is = icmp eq i64 %tag, ", n(?SMALL), "\n",
     "  %v = ashr i64 %t, 4\n",
     "  %r0 = insertvalue { i1, i64 } undef, i1 %is, 0\n",
     "  %r1 = insertvalue { i1, i64 } %r0, i64 %v, 1\n  ret { i1, i64 } %r1\n}\n",
     "define internal { i1, i64 } @term_get_long(i8* %env, i64 %t) alwaysinline {\n",
     "  %tag = and i64 %t, 15\n  %is = icmp eq i64 %tag, ", n(?SMALL), "\n",
     "  br i1 %is, label %yes, label %ask, !prof !0\nyes:\n  %v = ashr i64 %t, 4\n",
     "  %r0 = insertvalue { i1, i64 } { i1 true, i64 0 }, i64 %v, 1\n",
     "  ret { i1, i64 } %r0\nask:\n",
     "  %b = call { i1, i64 } @ask_long(i8* %env, i64 %t)\n  ret { i1, i64 } %b\n}\n",
     "define internal { i1, i64 } @ask_long(i8* %env, i64 %t) noinline cold {\n",
     "  %slot = alloca i64\n  store i64 0, i64* %slot\n",
     "  %c = call i32 @enif_get_long(i8* %env, i64 %t, i64* %slot)\n",
     "  %is = icmp ne i32 %c, 0\n  %v = load i64, i64* %slot\n",
     "  %r0 = insertvalue { i1, i64 } undef, i1 %is, 0\n",
     "  %r1 = insertvalue { i1, i64 } %r0, i64 %v, 1\n  ret { i1, i64 } %r1\n}\n",
     "define internal i64 @term_make_long(i8* %env, i64 %v) alwaysinline {\n",
     "  %s = shl i64 %v, 4\n  %back = ashr i64 %s, 4\n  %is = icmp eq i64 %back, %v\n",
     "  br i1 %is, label %yes, label %large, !prof !0\nyes:\n",
     "  %w = or i64 %s, ", n(?SMALL), "\n  ret i64 %w\nlarge:\n",
     "  %t = call i64 @enif_make_long(i8* %env, i64 %v)\n  ret i64 %t\n}\n"].

doubles() ->
    ["define internal { i1, double } @term_get_double(i64 %t) alwaysinline {\n",
     "  %tag = and i64 %t, 3\n  %boxed = icmp eq i64 %tag, 2\n",
     "  br i1 %boxed, label %look, label %no\nno:\n",
     "  ret { i1, double } { i1 false, double 0.0 }\nlook:\n",
     "  %a = sub i64 %t, 2\n  %p = inttoptr i64 %a to i64*\n  %h = load i64, i64* %p\n",
     "  %is = icmp eq i64 %h, ", n(?FLOAT), "\n  br i1 %is, label %yes, label %no\nyes:\n",
     "  %q = getelementptr i64, i64* %p, i64 1\n  %w = load i64, i64* %q\n",
     "  %v = bitcast i64 %w to double\n",
     "  %r = insertvalue { i1, double } { i1 true, double 0.0 }, double %v, 1\n",
     "  ret { i1, double } %r\n}\n"].

%% The same word is the same term. A value of its own is identical to no other word, and equal to
%% none that is such a value, too; but 1 is equal to 1.0, which is in memory.
compares() ->
    Bools = fun(Sure, Answer) ->
                ["  %r0 = insertvalue { i1, i1 } undef, i1 ", Sure, ", 0\n",
                 "  %r1 = insertvalue { i1, i1 } %r0, i1 ", Answer, ", 1\n  ret { i1, i1 } %r1\n}\n"]
            end,
    Tags = ["  %ta = and i64 %a, 3\n  %tb = and i64 %b, 3\n",
            "  %ia = icmp eq i64 %ta, 3\n  %ib = icmp eq i64 %tb, 3\n"],
    ["define internal { i1, i1 } @term_identical(i64 %a, i64 %b) alwaysinline {\n", Tags,
     "  %same = icmp eq i64 %a, %b\n  %or = or i1 %ia, %ib\n  %sure = or i1 %or, %same\n",
     Bools("%sure", "%same"),
     "define internal { i1, i1 } @term_equal(i64 %a, i64 %b) alwaysinline {\n", Tags,
     "  %same = icmp eq i64 %a, %b\n  %and = and i1 %ia, %ib\n  %sure = or i1 %and, %same\n",
     Bools("%sure", "%same"),
     "define internal { i1, i1 } @term_less(i64 %a, i64 %b) alwaysinline {\n",
     "  %both = and i64 %a, %b\n  %tag = and i64 %both, 15\n",
     "  %sure = icmp eq i64 %tag, ", n(?SMALL), "\n  %less = icmp slt i64 %a, %b\n",
     Bools("%sure", "%less")].

%% The length of a list of up to so many; less than nothing for anything else.
lengths() ->
    ["define internal i64 @term_length(i64 %t, i64 %nil, i64 %max) noinline {\nentry:\n",
     "  br label %loop\nloop:\n  %l = phi i64 [ %t, %entry ], [ %tl, %more ]\n",
     "  %n = phi i64 [ 0, %entry ], [ %m, %more ]\n",
     "  %tag = and i64 %l, 3\n  %is = icmp eq i64 %tag, 1\n",
     "  br i1 %is, label %more, label %done\nmore:\n",
     "  %a = add i64 %l, 7\n  %p = inttoptr i64 %a to i64*\n  %tl = load i64, i64* %p\n",
     "  %m = add i64 %n, 1\n  %c = icmp ule i64 %m, %max\n",
     "  br i1 %c, label %loop, label %no\ndone:\n  %end = icmp eq i64 %l, %nil\n",
     "  br i1 %end, label %yes, label %no\nyes:\n  ret i64 %n\nno:\n  ret i64 -1\n}\n"].

%% Each step goes on only if all that it looked at was as expected; so memory is looked at only
%% behind words whose lowest bits are.
probe() ->
    S0 = #{n => 0, text => []},
    S1 = lists:foldl(fun small_is/2, S0, [0, 1, -1, 42, -42, 1 bsl 31, (1 bsl 59) - 1,
                                          -(1 bsl 59)]),
    S2 = lists:foldl(fun(I, S) -> tag(2, make("long", ["i64 ", n(I)]), S) end, S1,
                     [1 bsl 59, -(1 bsl 59) - 1]),
    S3 = lists:foldl(fun atom_is/2, S2, [0, 1, 2]),
    {Nil, S4} = value("call i64 @enif_make_list_from_array(i8* %env, i64* null, i32 0)", S3),
    {NilBits, S5} = value(["and i64 ", Nil, ", 63"], S4),
    S6 = expect(["icmp ne i64 ", NilBits, ", ", n(?ATOM)],
                expect_tag(3, Nil, expect_not_small(Nil, S5))),
    S7 = lists:foldl(fun float_is/2, S6, [0.0, -0.0, 1.5, -3.0e100, 5.0e-324]),
    S8 = lists:foldl(fun({H, T}, S) -> cell_is(H, T, S) end, S7,
                     [{"15", Nil}, {Nil, "31"}, {"-1", "-17"}]),
    S9 = lists:foldl(fun tuple_is/2, S8, [0, 1, 2, 3, 17, 300]),
    S10 = lists:foldl(fun other/2, S9,
                      [make("ulong", "i64 -1"), make("long", "i64 -9223372036854775808"),
                       make("long", "i64 576460752303423488"), make("new_map", []),
                       make("ref", []), {binary, 3}, {binary, 65}, {binary, 100}, {part, 3}]),
    S11 = lists:foldl(fun(N, S) -> row(N, Nil, S) end, S10, [1, 2, 300]),
    ["define internal i8 @probe(i8* %env) noinline cold {\nentry:\n",
     "  %w = alloca i64\n  %b = alloca i64\n  %cnt = alloca i32\n  %els = alloca i64*\n",
     "  %hd = alloca i64\n  %tl = alloca i64\n  %some = alloca [300 x i64]\n",
     "  %words = bitcast [300 x i64]* %some to i64*\n",
     "  br label %fill\nfill:\n  %i = phi i64 [ 0, %entry ], [ %j, %fill ]\n",
     "  %at = getelementptr i64, i64* %words, i64 %i\n",
     "  %sm = call i64 @enif_make_long(i8* %env, i64 %i)\n  store i64 %sm, i64* %at\n",
     "  %j = add i64 %i, 1\n  %full = icmp eq i64 %j, 300\n",
     "  br i1 %full, label %start, label %fill\nstart:\n",
     lists:reverse(maps:get(text, S11)), "  ret i8 1\nno:\n  ret i8 0\n}\n"].

make(What, []) -> ["call i64 @enif_make_", What, "(i8* %env)"];
make(What, Arg) -> ["call i64 @enif_make_", What, "(i8* %env, ", Arg, ")"].

value(Line, #{n := N, text := T} = S) ->
    V = ["%v", n(N)],
    {V, S#{n := N + 1, text := [["  ", V, " = ", Line, "\n"] | T]}}.

expect(Line, S0) ->
    {C, #{n := N, text := T} = S} = value(Line, S0),
    S#{text := [["  br i1 ", C, ", label %k", n(N), ", label %no\nk", n(N), ":\n"] | T]}.

expect_tag(Tag, W, S0) ->
    {B, S} = value(["and i64 ", W, ", 3"], S0),
    expect(["icmp eq i64 ", B, ", ", n(Tag)], S).

expect_not_small(W, S0) ->
    {B, S} = value(["and i64 ", W, ", 15"], S0),
    expect(["icmp ne i64 ", B, ", ", n(?SMALL)], S).

tag(Tag, Make, S0) ->
    {W, S} = value(Make, S0),
    expect_tag(Tag, W, S).

small_is(I, S0) ->
    {W, S} = value(make("long", ["i64 ", n(I)]), S0),
    expect(["icmp eq i64 ", W, ", ", n(I * 16 + ?SMALL)], S).

%% The first atoms of the table are always there.
atom_is(I, S0) ->
    {W, S1} = value(["load i64, i64* getelementptr (i64, i64* @atoms, i64 ", n(I), ")"], S0),
    {B, S} = value(["and i64 ", W, ", 63"], S1),
    expect(["icmp eq i64 ", B, ", ", n(?ATOM)], S).

%% The word at so many bytes from a term.
at(W, Offset, S0) ->
    {A, S1} = value(["add i64 ", W, ", ", n(Offset)], S0),
    {P, S2} = value(["inttoptr i64 ", A, " to i64*"], S1),
    value(["load i64, i64* ", P], S2).

is_at(W, Offset, Want, S0) ->
    {X, S} = at(W, Offset, S0),
    expect(["icmp eq i64 ", X, ", ", Want], S).

float_is(X, S0) ->
    <<Bits:64/signed>> = <<X/float>>,
    {D, S1} = value(["bitcast i64 ", n(Bits), " to double"], S0),
    {W, S2} = value(make("double", ["double ", D]), S1),
    is_at(W, 6, n(Bits), is_at(W, -2, n(?FLOAT), expect_tag(2, W, S2))).

cell_is(H, T, S0) ->
    {W, S1} = value(["call i64 @enif_make_list_cell(i8* %env, i64 ", H, ", i64 ", T, ")"], S0),
    is_at(W, 7, T, is_at(W, -1, H, expect_tag(1, W, S1))).

tuple_is(N, S0) ->
    {W, S1} = value(["call i64 @enif_make_tuple_from_array(i8* %env, i64* %words, i32 ", n(N), ")"],
                    S0),
    S2 = is_at(W, -2, n(N bsl 6), expect_tag(2, W, S1)),
    lists:foldl(fun(I, S) -> is_at(W, 6 + 8 * I, n(I * 16 + ?SMALL), S) end, S2,
                lists:usort([I || I <- [0, 1, N - 1], I >= 0, I < N])).

%% In memory, and neither a tuple nor a float.
other({binary, Size}, S0) ->
    {_, S1} = value(["call i8* @enif_make_new_binary(i8* %env, i64 ", n(Size), ", i64* %b)"], S0),
    {W, S} = value("load i64, i64* %b", S1),
    other_word(W, S);
other({part, Size}, S0) ->
    {_, S1} = value("call i8* @enif_make_new_binary(i8* %env, i64 100, i64* %b)", S0),
    {B, S2} = value("load i64, i64* %b", S1),
    {W, S} = value(make("sub_binary", ["i64 ", B, ", i64 1, i64 ", n(Size)]), S2),
    other_word(W, S);
other(Make, S0) ->
    {W, S} = value(Make, S0),
    other_word(W, S).

other_word(W, S0) ->
    {H, S1} = at(W, -2, expect_tag(2, W, S0)),
    {L, S2} = value(["and i64 ", H, ", 63"], S1),
    expect(["icmp ne i64 ", H, ", ", n(?FLOAT)], expect(["icmp ne i64 ", L, ", 0"], S2)).

%% A list made at once has its cells one after the other, and its end can be made another one, as
%% long as nobody has seen it.
row(N, Nil, S0) ->
    {W, S1} = value(["call i64 @enif_make_list_from_array(i8* %env, i64* %words, i32 ", n(N), ")"],
                    S0),
    S2 = lists:foldl(fun(I, S) ->
                         {Next, Sa} = value(["add i64 ", W, ", ", n(16 * (I + 1))], S),
                         is_at(W, 16 * I + 7, case I + 1 of N -> Nil; _ -> Next end,
                               is_at(W, 16 * I - 1, n(I * 16 + ?SMALL), Sa))
                     end, expect_tag(1, W, S1), lists:usort([0, N div 2, N - 1])),
    {Last, S3} = value(["add i64 ", W, ", ", n(16 * (N - 1))], S2),
    {A, S4} = value(["add i64 ", Last, ", 7"], S3),
    {P, #{text := T} = S5} = value(["inttoptr i64 ", A, " to i64*"], S4),
    S6 = S5#{text := [["  store i64 31, i64* ", P, "\n"] | T]},
    {C, S7} = value(["call i32 @enif_get_list_cell(i8* %env, i64 ", Last, ", i64* %hd, i64* %tl)"],
                    S6),
    {Tl, S8} = value("load i64, i64* %tl", expect(["icmp ne i32 ", C, ", 0"], S7)),
    expect(["icmp eq i64 ", Tl, ", 31"], S8).

n(I) -> integer_to_list(I).
