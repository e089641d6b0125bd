%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of functions that read terms as they are in memory. Pure.
%%
%% A function of the NIF interface takes 3 ns to read a list cell, and reading its two words 1 ns.
%% What a word means is no part of the interface, though it is the same from OTP 25 to 29. So the
%% probe (erlane_native_probe) makes terms at load and compares each word with what is expected.
%% Where anything is different, all units whose text has a `@term_' in it stay on BEAM.
%%
%% The two lowest bits of a word say what it is: 1 a list cell, 2 something else in memory, 3 a
%% value of its own. A small integer has four bits set, an atom ends in 001011. What is in memory
%% begins with a header, which ends in six zeroes for a tuple, above them its size.
-module(erlane_native_term).

-export([functions/0, gate/1, cell/2, tuple/2, long/2, double/2, small/2, same/4, make_long/2,
         atom/2]).

-import(erlane_native_out, [add/3]).

%% Fuel for a term that is looked at in memory, which may have to come from far: five times what
%% takes one that is near, a twentieth of what takes one that is in no cache.
-define(LOAD, 20).
%% Lowest bits of a small integer and of an atom, and the header of a float.
-define(SMALL, 15).
-define(ATOM, 11).
-define(FLOAT, 88).

-type state() :: erlane_native_out:state().
-type name() :: erlane_native_out:name().

%% @doc Whether a word is a list cell, and its two words, which mean nothing elsewhere.
-spec cell(name(), state()) -> {{Is :: name(), Head :: name(), Tail :: name()}, state()}.
cell(T, S) -> load({cell, T}, ["term_get_list_cell(i64 ", T, ")"], ["i1", "i64", "i64"], S).

%% @doc Whether it is a tuple, its size, and where its elements are.
-spec tuple(name(), state()) -> {{Is :: name(), Size :: name(), Elements :: name()}, state()}.
tuple(T, S) -> load({tuple, T}, ["term_get_tuple(i64 ", T, ")"], ["i1", "i64", "i64*"], S).

%% @doc Whether it is an integer of 64 bits with a sign, and which.
-spec long(name(), state()) -> {{Is :: name(), Value :: name()}, state()}.
long(T, S) -> parts({long, T}, ["term_get_long(i8* %env, i64 ", T, ")"], ["i1", "i64"], S).

%% @doc Whether it is a float, and which.
-spec double(name(), state()) -> {{Is :: name(), Value :: name()}, state()}.
double(T, S) -> load({double, T}, ["term_get_double(i64 ", T, ")"], ["i1", "double"], S).

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

%% @doc A term of an integer of 64 bits with a sign.
-spec make_long(name(), state()) -> {name(), state()}.
make_long(V, S) -> add(value, ["call i64 @term_make_long(i8* %env, i64 ", V, ")"], S).

%% What was asked already on the way to here is not asked again.
parts(Key, Call, Types, S0) -> parts(Key, Call, Types, 0, S0).

load(Key, Call, Types, S0) -> parts(Key, Call, Types, ?LOAD, S0).

parts(Key, Call, Types, Fuel, S0) ->
    erlane_native_out:known(
      Key, fun(Sf) ->
               S1 = erlane_native_out:charge(Fuel, Sf),
               Struct = ["{ ", lists:join(", ", Types), " }"],
               {R, S2} = add(value, ["call ", Struct, " @", Call], S1),
               {Parts, S} = lists:mapfoldl(
                              fun(I, Sx) ->
                                  add(value, ["extractvalue ", Struct, " ", R, ", ", n(I)], Sx)
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

%% @doc All that reads terms or writes their words, and the probe.
-spec functions() -> iodata().
functions() ->
    ["@direct = internal global i8 0\n",
     "declare i64 @enif_make_new_map(i8*)\ndeclare i64 @enif_make_ref(i8*)\n",
     "define internal i64 @term_bits(i64 %t, i64 %mask) alwaysinline {\n",
     "  %b = and i64 %t, %mask\n  ret i64 %b\n}\n",
     cells(), tuples(), longs(), doubles(), compares(), lengths(), erlane_native_rows:functions(),
     erlane_native_probe:text(?SMALL, ?ATOM, ?FLOAT)].

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
                 "  %r1 = insertvalue { i1, i1 } %r0, i1 ", Answer, ", 1\n",
                 "  ret { i1, i1 } %r1\n}\n"]
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

n(I) -> integer_to_list(I).
