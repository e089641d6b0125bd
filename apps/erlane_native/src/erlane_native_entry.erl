%% SPDX-License-Identifier: Apache-2.0
%% @doc The text that takes the arguments of a head out of terms: at a call, and after the process
%% gave way. Pure.
-module(erlane_native_entry).

-export([enter/4, resume/2, binary/2]).

-import(erlane_native_out, [add/2, add/3, block/2, deopt_unless/3]).
-import(erlane_native_slots, [machine/1]).

%% A part of a binary that no release makes anew, and the size from where it is asked for: a copy of
%% less takes no longer than the question.
-define(PART, 128).
-define(LARGE, 1024).
%% Fuel of opening a binary.
-define(OPEN, 150).
-define(STATE, "the state is not one of the loop").

%% @doc Takes the arguments of a head out of the terms at `%argv'; what is not as guessed makes
%% BEAM run it all.
-spec enter(erlane_native_ssa:fa(), non_neg_integer(), iodata(), erlane_native_out:state()) ->
          erlane_native_out:state().
enter(FA, N, Label, #{functions := Fs} = S0) ->
    #{params := Params, line := Line} = maps:get(FA, Fs),
    S1 = erlane_native_out:line(Line, erlane_native_out:at(FA, whole, block(Label, S0))),
    S2 = lists:foldl(fun({I, T}, S) -> argument(I, T, ["%a", n(N), "_", n(I)], S) end, S1,
                     lists:zip(seq(Params), Params)),
    add(["br label %b", n(N)], S2).

argument(I, Type, Name, S0) ->
    {P, S1} = add(value, ["getelementptr i64, i64* %argv, i64 ", n(I)], S0),
    {T, S2} = add(value, ["load i64, i64* ", P], S1),
    Why = fun(What) -> lists:concat(["argument ", I + 1, " is not ", What]) end,
    case Type of
        {int, _, _} ->
            {Get, What} = case machine(Type) of
                              unsigned -> {"enif_get_ulong", "an integer from 0 on, of 64 bits"};
                              _ -> {"enif_get_long", "an integer of 64 bits"}
                          end,
            {V, S3} = get(Get, T, "i64", "%slot", Why(What), S2),
            within(Type, V, Name, Why("in the range of the loop"), S3);
        float ->
            {V, S3} = get("enif_get_double", T, "double", "%dslot", Why("a float"), S2),
            add(["store double ", V, ", double* ", Name], S3);
        _ when Type =:= buf; Type =:= {bin, 0} ->
            {Data, Size, S10} = bytes(T, Why, S2),
            Place = #{term => T, data => Data, size => Size, pos => "0"},
            {Store, S11} = erlane_native_slots:store(Name, Type, {bin, Place}, S10),
            Store(S11);
        _ ->
            add(["store i64 ", T, ", i64* ", Name], S2)
    end.

%% @doc Opens a term that may be a binary: whether it is one, and the place where it begins. A bit
%% string that is none, or begins within a byte, is left to BEAM.
-spec binary(erlane_native_out:name(), erlane_native_out:state()) ->
          {{erlane_native_out:name(), map()}, erlane_native_out:state()}.
binary(T, S0) ->
    {Slots, S1} = lists:mapfoldl(fun(Type, Sx) ->
                                     {Slot, Sy} = erlane_native_out:tmp(Sx),
                                     {{Slot, Type}, erlane_native_out:alloca(Slot, Type, Sy)}
                                 end, S0, ["i1", "i8*", "i64"]),
    {[No, Yes, Done], S2} = lists:mapfoldl(fun(_, S) -> erlane_native_out:label(S) end, S1,
                                           [no, yes, done]),
    Store = fun(Values, S) ->
                lists:foldl(fun({{Slot, Type}, V}, Sx) ->
                                add(["store ", Type, " ", V, ", ", Type, "* ", Slot], Sx)
                            end, S, lists:zip(Slots, Values))
            end,
    {Type, S3} = add(value, ["call i32 @enif_term_type(i8* %env, i64 ", T, ")"],
                     erlane_native_out:charge(?OPEN, Store(["false", "null", "0"], S2))),
    {Bits, S4} = add(value, ["icmp eq i32 ", Type, ", 2"], S3),
    S5 = add(["br i1 ", Bits, ", label %", Yes, ", label %", No], S4),
    {Data, Size, S6} = bytes(T, fun(What) -> "a term is not " ++ What end, block(Yes, S5)),
    S7 = add(["br label %", Done], Store(["true", Data, Size], S6)),
    S8 = block(Done, add(["br label %", Done], block(No, S7))),
    {[Is, D, Z], S9} = lists:mapfoldl(fun({Slot, Ty}, S) ->
                                          add(value, ["load ", Ty, ", ", Ty, "* ", Slot], S)
                                      end, S8, Slots),
    {{Is, #{term => T, data => D, size => Z, pos => "0", bits => 0}}, S9}.

%% To show the bytes of a binary that begins within a byte the VM copies them all. A part of no
%% bytes is asked first, which costs the same for all sizes. Releases that make small parts anew, at
%% whole bytes, do not tell by that: there one large enough is asked after a first copy.
bytes(T, Why, S0) ->
    {I, S1} = add(value, ["call i32 @enif_is_binary(i8* %env, i64 ", T, ")"], S0),
    {Is, S2} = add(value, ["icmp ne i32 ", I, ", 0"], S1),
    S3 = whole_bytes(T, 0, Why, deopt_unless(Is, Why("a binary"), S2)),
    {B, S4} = add(value, "bitcast [8 x i64]* %bin to i64*", S3),
    {_, S5} = add(value, ["call i32 @enif_inspect_binary(i8* %env, i64 ", T, ", i64* ", B, ")"],
                  S4),
    {Size, S6} = add(value, ["load i64, i64* ", B], S5),
    {Q, S7} = add(value, ["getelementptr i64, i64* ", B, ", i64 1"], S6),
    {Bits, S8} = add(value, ["load i64, i64* ", Q], S7),
    {Data, S9} = add(value, ["inttoptr i64 ", Bits, " to i8*"], S8),
    {Large, S10} = erlane_native_out:label(S9),
    {Done, S11} = erlane_native_out:label(S10),
    {C, S12} = add(value, ["icmp ugt i64 ", Size, ", ", n(?LARGE)], S11),
    S13 = add(["br i1 ", C, ", label %", Large, ", label %", Done], S12),
    S14 = whole_bytes(T, ?PART, Why, block(Large, S13)),
    {Data, Size, block(Done, add(["br label %", Done], S14))}.

whole_bytes(T, Size, Why, S0) ->
    {C, S1} = add(value, ["call i1 @copies(i8* %env, i64 ", T, ", i64 ", n(Size), ")"], S0),
    {Ok, S2} = add(value, ["xor i1 ", C, ", true"], S1),
    deopt_unless(Ok, Why("a binary at whole bytes"), S2).

get(Get, T, Type, Slot, Why, S0) ->
    {R, S1} = add(value, ["call i32 @", Get, "(i8* %env, i64 ", T, ", ", Type, "* ", Slot, ")"],
                  S0),
    {C, S2} = add(value, ["icmp ne i32 ", R, ", 0"], S1),
    add(value, ["load ", Type, ", ", Type, "* ", Slot], deopt_unless(C, Why, S2)).

within({int, Lo, Hi}, V, Name, Why, S0) ->
    S = case [R || R <- [erlane_native_range:signed(), erlane_native_range:unsigned()],
                   R =:= {Lo, Hi}] of
            [_] -> S0;
            [] ->
                U = case erlane_native_range:class({Lo, Hi}) of unsigned -> "u"; _ -> "s" end,
                {A, S1} = add(value, ["icmp ", U, "ge i64 ", V, ", ", n(Lo)], S0),
                {B, S2} = add(value, ["icmp ", U, "le i64 ", V, ", ", n(Hi)], S1),
                {C, S3} = add(value, ["and i1 ", A, ", ", B], S2),
                deopt_unless(C, Why, S3)
        end,
    add(["store i64 ", V, ", i64* ", Name], S).

%% @doc After it gave way: the argument is {Head, {Arguments}}, as it was made below. Anybody can
%% call the NIF, so that is tested.
-spec resume([erlane_native_ssa:fa()], erlane_native_out:state()) -> erlane_native_out:state().
resume(Heads, S0) ->
    S1 = add("; line 0", block("r", S0)),
    S2 = erlane_native_out:at(hd(Heads), whole, S1),
    {T, S3} = add(value, "load i64, i64* %argv", S2),
    {Two, S4} = elements(T, S3),
    S5 = deopt_unless(Two, ?STATE, S4),
    S6 = counted(2, S5),
    {Es, S7} = add(value, "load i64*, i64** %elements", S6),
    {H, S8} = add(value, ["load i64, i64* ", Es], S7),
    {Head, S9} = get("enif_get_long", H, "i64", "%slot", ?STATE, S8),
    {AP, S10} = add(value, ["getelementptr i64, i64* ", Es, ", i64 1"], S9),
    {A, S11} = add(value, ["load i64, i64* ", AP], S10),
    {Arguments, S12} = elements(A, S11),
    S13 = add(["switch i64 ", Head, ", label %whole [",
               [["i64 ", n(N), ", label %r", n(N), " "] || N <- seq(Heads)], "]"],
              deopt_unless(Arguments, ?STATE, S12)),
    lists:foldl(fun({N, {_, Arity} = FA}, S) ->
                    Sa = enough(Arity, block(["r", n(N)], S)),
                    {P, Sb} = add(value, "load i64*, i64** %elements", Sa),
                    %% The arguments are taken from there as from a call's.
                    enter_from(P, FA, N, erlane_native_rows:again(P, Arity, Sb))
                end, S13, lists:zip(seq(Heads), Heads)).

elements(T, S0) ->
    {R, S} = add(value, ["call i32 @enif_get_tuple(i8* %env, i64 ", T,
                         ", i32* %count, i64** %elements)"], S0),
    add(value, ["icmp ne i32 ", R, ", 0"], S).

counted(N, S0) ->
    {Count, S1} = add(value, "load i32, i32* %count", S0),
    {C, S} = add(value, ["icmp eq i32 ", Count, ", ", n(N)], S1),
    deopt_unless(C, ?STATE, S).

%% What was kept of lists stands behind the arguments.
enough(Arity, #{collects := true} = S0) ->
    {Count, S1} = add(value, "load i32, i32* %count", S0),
    {C, S} = add(value, ["icmp sge i32 ", Count, ", ", n(Arity)], S1),
    deopt_unless(C, ?STATE, S);
enough(Arity, S) -> counted(Arity, S).

enter_from(P, FA, N, #{text := T0} = S0) ->
    S1 = enter(FA, N, ["x", n(N)], S0#{text := []}),
    #{text := New} = S1,
    Text = [re:replace(L, "%argv", P, [{return, list}]) || L <- New],
    S1#{text := Text ++ [["  br label %x", n(N), "\n"] | T0]}.

seq(List) -> lists:seq(0, length(List) - 1).

n(I) -> integer_to_list(I).
