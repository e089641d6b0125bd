%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of the function that finds out, when a library is loaded, whether the terms of this
%% VM look as erlane_native_term reads them. Pure.
%%
%% It makes terms by the interface of NIFs, small and large, of all kinds that could be taken for
%% each other, and compares every word that is read later, and how a list that was made at once lies
%% in memory.
-module(erlane_native_probe).

-export([text/3]).

-define(SMALL, 15).
-define(ATOM, 11).
-define(FLOAT, 88).

%% @doc The function `probe', which answers whether terms are as erlane_native_term has them: the
%% lowest bits of small integers and of atoms, and the header of a float.
%%
%% Each step goes on only if all that it looked at was as expected; so memory is looked at only
%% behind words whose lowest bits are.
-spec text(Small :: integer(), Atom :: integer(), Float :: integer()) -> iodata().
text(?SMALL, ?ATOM, ?FLOAT) ->
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
