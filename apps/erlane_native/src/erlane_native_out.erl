%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of one machine function while it is written: names, blocks, tests that give the
%% call back, and values made from one kind to another. Pure.
%%
%% Text is for LLVM 14, with typed pointers; only `i8*', `i64*' and `double*' occur, which
%% erlane_native_clang turns into `ptr' for newer versions.
-module(erlane_native_out).

-export([new/1, text/1, raw/2, add/2, add/3, tmp/1, label/1, block/2, alloca/3, deopt_unless/3,
         deopt/2, at/3, line/2, reasons/1, atoms/1]).
-export([def/3, use/2, int/3, word/3, low/2, float/2, bool/2, term/2, atom/2,
         charge/2, known/3, keep/2]).

-export_type([state/0, value/0, name/0]).

%% Fuel for a term that is made on the heap, which has to be collected, too.
-define(MAKE, 60).
%% Words of a literal that is made where it is used, each time anew, where BEAM has it once: in what
%% may be a loop, and in what a call runs once.
-define(LITERAL, 20).
-define(LITERAL_ONCE, 1000).

-type name() :: iodata().
-type machine() :: signed | unsigned | 128 | 256.
-type value() :: {int, signed | unsigned | 128 | 256, name()} | {low, name()} | {float, name()}
               | {bool, name()} | {term, name()} | {k, term()}
               | {tuple, [value() | {c, number()}]} | {bin, place()} | {field, place(), field()}
               | {buf, Used :: name()}.
-type place() :: #{term := name(), data := name(), size := name(), pos := name(), bits := 0..7}.
-type field() :: tuple().
%% How to read what was matched; erlane_native_bits knows.
-type state() :: map().

%% @doc An empty function. Atoms and reasons are those of the whole module.
-spec new(map()) -> state().
new(Module) ->
    Module#{text => [], allocas => [], n => 0, env => #{}, head => 0, line => 0, fa => none,
            stubs => [], known => #{}, pushed => [], once => false}.

%% @doc What was written: allocations, which belong to the first block, and the rest.
-spec text(state()) -> {iodata(), iodata()}.
text(#{text := Text, allocas := Allocas, stubs := Stubs}) ->
    {lists:reverse(Allocas), [lists:reverse(Text), lists:reverse(Stubs)]}.

%% @doc Lines that somebody else wrote.
-spec raw(iodata(), state()) -> state().
raw(Lines, #{text := T} = S) -> S#{text := [Lines | T]}.

-spec add(iodata(), state()) -> state().
add(Line, #{text := T} = S) -> S#{text := [["  ", Line, "\n"] | T]}.

%% @doc A line that makes a value, and the name of that.
-spec add(value, iodata(), state()) -> {name(), state()}.
add(value, Line, S) ->
    {T, S1} = tmp(S),
    {T, add([T, " = ", Line], S1)}.

-spec tmp(state()) -> {name(), state()}.
tmp(#{n := N} = S) -> {["%t", integer_to_list(N)], S#{n := N + 1}}.

-spec label(state()) -> {name(), state()}.
label(#{n := N} = S) -> {["l", integer_to_list(N)], S#{n := N + 1}}.

-spec block(name(), state()) -> state().
block(L, #{text := T} = S) -> S#{text := [[L, ":\n"] | T]}.

-spec alloca(name(), iodata(), state()) -> state().
alloca(Name, Type, #{allocas := As} = S) ->
    S#{allocas := [["  ", Name, " = alloca ", Type, "\n"] | As]}.

%% @doc Sets which function's body is written, and what its head is numbered.
-spec at(erlane_native_ssa:fa(), non_neg_integer() | whole, state()) -> state().
at(FA, Head, S) -> S#{fa := FA, head := Head, env := #{}, known := #{}}.

%% @doc What was found out of a term on all ways to here, or is now by the function. Nothing is to
%% be found out so where it may be jumped over.
-spec known(term(), fun((state()) -> {T, state()}), state()) -> {T, state()}.
known(Key, Find, #{known := Known} = S0) ->
    case Known of
        #{Key := Value} -> {Value, S0};
        _ ->
            {Value, S} = Find(S0),
            {Value, S#{known := (maps:get(known, S))#{Key => Value}}}
    end.

%% @doc A state in which is known what was in another one.
-spec keep(state(), state()) -> state().
keep(#{known := Known}, S) -> S#{known := Known}.

%% @doc The line of the source that is written from here on; explain/1 reads it from the text.
-spec line(integer(), state()) -> state().
line(L, S) -> add(["; line ", n(L)], S#{line := L}).

%% @doc Why calls can be given back, in the order of their counters.
-spec reasons(map()) -> [{erlane_native_ssa:fa(), Line :: integer(), string()}].
reasons(#{reasons := Rs}) -> lists:reverse(Rs).

%% @doc The atoms of the text, in the order of the table that is filled at load.
-spec atoms(map()) -> [atom() | []].
atoms(#{atoms := As}) -> [A || {_, A} <- lists:sort([{I, A} || {A, I} <- maps:to_list(As)])].

%% @doc Goes on only where the condition holds; elsewhere the call goes back to BEAM.
-spec deopt_unless(name(), string(), state()) -> state().
deopt_unless(Cond, Why, S0) ->
    {Ok, S1} = label(S0),
    {Stub, S2} = stub(Why, S1),
    block(Ok, add(["br i1 ", Cond, ", label %", Ok, ", label %", Stub, ", !prof !0"], S2)).

-spec deopt(string(), state()) -> state().
deopt(Why, S0) ->
    {Stub, S} = stub(Why, S0),
    add(["br label %", Stub], S).

%% Counts and goes to where the head's arguments are handed back. Once for each reason and line.
stub(Why, #{reasons := Rs, head := H, line := Line, fa := FA, stubs := Stubs} = S) ->
    case lists:search(fun({_, R}) -> R =:= {FA, Line, Why} end,
                      lists:zip(lists:seq(length(Rs) - 1, 0, -1), Rs)) of
        {value, {I, _}} when is_map_key({stub, H, I}, S) -> {maps:get({stub, H, I}, S), S};
        _ ->
            I = length(Rs),
            L = ["s", integer_to_list(I)],
            Text = [L, ":\n",
                    "  atomicrmw add i64* getelementptr (i64, i64* @counters, i64 ",
                    integer_to_list(I), "), i64 1 monotonic\n",
                    "  br label %d", head(H), "\n"],
            {L, S#{reasons := [{FA, Line, Why} | Rs], stubs := [Text | Stubs],
                   {stub, H, I} => L}}
    end.

%% Before a head is reached there is only the call as a whole to give back.
head(whole) -> "whole";
head(H) -> integer_to_list(H).

%% @doc The value of a variable, or whether the operation that gives it succeeds.
-spec def(non_neg_integer() | {holds, non_neg_integer()}, value() | {c, number()}, state()) ->
          state().
def(V, Value, #{env := Env} = S) -> S#{env := Env#{V => Value}}.

-spec use(erlane_native_ssa:val(), state()) -> value() | {c, number()}.
use({v, V}, #{env := Env}) -> maps:get(V, Env);
use({c, N}, _) when is_number(N) -> {c, N};
use({c, K}, _) -> {k, K}.

%% @doc A value as a machine integer. What is a term is tested to be one. What has more bits has to
%% be known to fit, as from a comparison, or to matter by its lowest bits only: else see word/3.
-spec int(value() | {c, number()}, machine(), state()) -> {name(), state()}.
int({c, I}, To, S) when is_integer(I) ->
    %% LLVM would take its lowest bits.
    erlane_native_range:fits(I, To) orelse throw({unsupported, "a number of this size"}),
    {integer_to_list(I), S};
int({int, M, Op}, To, S) ->
    case {bits(M), bits(To)} of
        {N, N} -> {Op, S};
        {N, T} when N > T -> add(value, ["trunc i", n(N), " ", Op, " to i", n(T)], S);
        {N, T} when M =:= unsigned -> add(value, ["zext i", n(N), " ", Op, " to i", n(T)], S);
        {N, T} -> add(value, ["sext i", n(N), " ", Op, " to i", n(T)], S)
    end;
int({term, T}, To, S0) ->
    {{C, Op}, S1} = erlane_native_term:long(T, S0),
    int({int, signed, Op}, To, deopt_unless(C, "a term is not an integer of 64 bits", S1));
int(_, _, _) -> throw({unsupported, "an integer operation on what is not one"}).

%% @doc An integer in 64 bits, tested to have no more: what a range does not say.
-spec word(value() | {c, number()}, string(), state()) -> {name(), state()}.
word({int, W, Op}, Why, S0) when is_integer(W) ->
    {T, S1} = add(value, ["trunc i", n(W), " ", Op, " to i64"], S0),
    {X, S2} = add(value, ["sext i64 ", T, " to i", n(W)], S1),
    {C, S3} = add(value, ["icmp eq i", n(W), " ", X, ", ", Op], S2),
    {T, deopt_unless(C, Why, S3)};
word(V, _, S) -> int(V, signed, S).

%% @doc The lowest 64 bits of an integer.
-spec low(value() | {c, number()}, state()) -> {name(), state()}.
low({c, I}, S) when is_integer(I) -> {integer_to_list(I band ((1 bsl 64) - 1)), S};
low({low, Op}, S) -> {Op, S};
low(V, S) -> int(V, signed, S).

%% @doc A number as a float, as the BEAM makes one in arithmetic; only where that is exact.
-spec float(value() | {c, number()}, state()) -> {name(), state()}.
float({c, F}, S) when is_float(F) -> {double(F), S};
float({c, I}, S) when abs(I) =< 1 bsl 53 -> {double(erlang:float(I)), S};
float({float, Op}, S) -> {Op, S};
float({int, M, _} = V, S0) when M =:= signed; M =:= unsigned ->
    {Op, S1} = int(V, signed, S0),
    {C, S3} = case M of
                  signed ->
                      {A, S2} = add(value, ["add i64 ", Op, ", ", n(1 bsl 53)], S1),
                      add(value, ["icmp ule i64 ", A, ", ", n(1 bsl 54)], S2);
                  unsigned -> add(value, ["icmp ule i64 ", Op, ", ", n(1 bsl 53)], S1)
              end,
    S4 = deopt_unless(C, "an integer has more bits than a float", S3),
    add(value, ["sitofp i64 ", Op, " to double"], S4);
float({term, T}, S0) ->
    {{C, Op}, S} = erlane_native_term:double(T, S0),
    {Op, deopt_unless(C, "a term is not a float", S)};
float(_, _) -> throw({unsupported, "a float operation on what is not a number"}).

-spec bool(value() | {c, number()}, state()) -> {name(), state()}.
bool({bool, Op}, S) -> {Op, S};
bool({k, true}, S) -> {"true", S};
bool({k, false}, S) -> {"false", S};
bool({term, T}, S0) ->
    {True, S1} = atom(true, S0),
    {False, S2} = atom(false, S1),
    {Yes, S3} = add(value, ["icmp eq i64 ", T, ", ", True], S2),
    {No, S4} = add(value, ["icmp eq i64 ", T, ", ", False], S3),
    {Any, S5} = add(value, ["or i1 ", Yes, ", ", No], S4),
    {Yes, deopt_unless(Any, "a term is not a boolean", S5)};
bool(_, _) -> throw({unsupported, "a boolean operation on what is not one"}).

%% @doc An atom or the empty list, from the table.
-spec atom(atom() | [], state()) -> {name(), state()}.
atom(A, #{atoms := As} = S) ->
    A =:= [] orelse latin1(A) orelse throw({unsupported, "an atom with letters beyond Latin-1"}),
    I = maps:get(A, As, map_size(As)),
    add(value, ["load i64, i64* getelementptr (i64, i64* @atoms, i64 ", n(I), ")"],
        S#{atoms := As#{A => I}}).

%% What the interface can make an atom of.
latin1(A) -> lists:all(fun(C) -> C < 256 end, atom_to_list(A)).

%% @doc Takes fuel for work whose amount is known at run time only, or that the VM does: so many
%% units, of which there are four in a nanosecond. The next turn's test sees that they are gone.
-spec charge(name() | non_neg_integer(), state()) -> state().
charge(0, S) -> S;
charge(Units, S) when is_integer(Units) -> charge(n(Units), S);
charge(Units, S0) ->
    {F, S1} = add(value, "load i64, i64* %fuel", S0),
    {G, S2} = add(value, ["sub i64 ", F, ", ", Units], S1),
    add(["store i64 ", G, ", i64* %fuel"], S2).

%% @doc A value as a term.
-spec term(value() | {c, number()}, state()) -> {name(), state()}.
term({term, T}, S) -> {T, S};
term({c, F}, S) when is_float(F) -> make("enif_make_double", ["double ", double(F)], S);
term({c, I}, S) when is_integer(I) ->
    case erlane_native_range:class({I, I}) of
        signed -> make("enif_make_long", ["i64 ", n(I)], S);
        unsigned -> make("enif_make_ulong", ["i64 ", n(I)], S);
        _ -> throw({unsupported, "an integer of more than 64 bits as a result"})
    end;
term({int, signed, Op}, S) -> make("enif_make_long", ["i64 ", Op], S);
term({int, unsigned, Op}, S) -> make("enif_make_ulong", ["i64 ", Op], S);
term({int, _, _} = V, S0) ->
    {T, S} = word(V, "a result has more than 64 bits", S0),
    make("enif_make_long", ["i64 ", T], S);
term({float, Op}, S) -> make("enif_make_double", ["double ", Op], S);
term({bool, Op}, S0) ->
    {True, S1} = atom(true, S0),
    {False, S2} = atom(false, S1),
    add(value, ["select i1 ", Op, ", i64 ", True, ", i64 ", False], S2);
term({k, A}, S) when is_atom(A); A =:= [] -> atom(A, S);
term({k, Tuple}, S0) when is_tuple(Tuple), tuple_size(Tuple) =< 16 ->
    ok = literal(Tuple, S0),
    {Ts, S} = lists:mapfoldl(fun(E, S1) -> term(use({c, E}, S1), S1) end, S0,
                             tuple_to_list(Tuple)),
    tuple(Ts, S);
term({k, [H | T] = List}, S0) ->
    ok = literal(List, S0),
    {Head, S1} = term(use({c, H}, S0), S0),
    {Tail, S2} = term(use({c, T}, S1), S1),
    make("enif_make_list_cell", ["i64 ", Head, ", i64 ", Tail], S2);
term({K, #{bits := 0, term := T, size := Size, pos := Pos}}, S0) when K =:= bin ->
    {Left, S} = add(value, ["sub i64 ", Size, ", ", Pos], S0),
    make("enif_make_sub_binary", ["i64 ", T, ", i64 ", Pos, ", i64 ", Left], S);
term({buf, Used}, S) ->
    make("buf_term", ["i64* %bufb, i64 ", Used], S);
term({field, Place, _}, S) -> term({bin, Place}, S);
term({tuple, Values}, S0) ->
    {Ts, S} = lists:mapfoldl(fun term/2, S0, Values),
    tuple(Ts, S);
term(_, _) -> throw({unsupported, "a literal or value of this kind as a term"}).

literal(Term, #{once := Once}) ->
    Most = case Once of true -> ?LITERAL_ONCE; false -> ?LITERAL end,
    words(Term, 0) =< Most orelse throw({unsupported, ["a literal of more than ", n(Most),
                                                       " words"]}),
    ok.

%% How many words of memory a literal has, or more than are ever made.
words(_, N) when N > ?LITERAL_ONCE -> N;
words([H | T], N) -> words(T, words(H, N + 2));
words(Tuple, N) when is_tuple(Tuple) ->
    lists:foldl(fun words/2, N + 1 + tuple_size(Tuple), tuple_to_list(Tuple));
words(F, N) when is_float(F) -> N + 2;
words(I, N) when is_integer(I), (I < -(1 bsl 59) orelse I >= 1 bsl 59) -> N + 2;
words(_, N) -> N.

make(F, Args, S) -> add(value, ["call i64 @", F, "(i8* %env, ", Args, ")"], charge(?MAKE, S)).

tuple(Ts, S0) ->
    N = length(Ts),
    {A, S1} = tmp(S0),
    S2 = alloca(A, ["[", n(max(N, 1)), " x i64]"], S1),
    {P, S3} = add(value, ["bitcast [", n(max(N, 1)), " x i64]* ", A, " to i64*"], S2),
    S4 = lists:foldl(fun({I, T}, S) ->
                         {E, Sa} = add(value, ["getelementptr i64, i64* ", P, ", i64 ", n(I)], S),
                         add(["store i64 ", T, ", i64* ", E], Sa)
                     end, S3, lists:zip(lists:seq(0, N - 1), Ts)),
    make("enif_make_tuple_from_array", ["i64* ", P, ", i32 ", n(N)], S4).

%% Every bit of it: a decimal form could round.
double(F) ->
    <<I:64>> = <<F/float>>,
    io_lib:format("0x~16.16.0B", [I]).

bits(signed) -> 64;
bits(unsigned) -> 64;
bits(W) -> W.

n(I) -> integer_to_list(I).
