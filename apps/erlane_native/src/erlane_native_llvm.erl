%% SPDX-License-Identifier: Apache-2.0
%% @doc The LLVM text of a module: one machine function for each unit, and the table of NIFs. Pure.
%%
%% A unit's function has the arguments of each head in memory of its own, which LLVM turns into
%% registers. A jump to a head stores the new arguments, pays for one turn and goes on; when the
%% fuel is used up and the time slice too, or a test fails, the arguments are made terms and the
%% function returns `{Marker, Where, {Arguments}}'. Nothing is on the native stack then, so there
%% is nothing to keep. `Where' is a head's number from 0 on where BEAM goes on, and -1 - number
%% where native code wants to after the process has given way.
%%
%% To give way by such a marker, and not by a NIF that schedules itself, leaves nothing of the
%% native code in the process: it can be traced, collected, and its code purged like any other.
-module(erlane_native_llvm).

-export([module/3, marker/0]).

-import(erlane_native_out, [add/2, add/3, def/3, use/2, int/3, float/2, bool/2, term/2, block/2,
                            deopt_unless/3]).

%% Fuel of one hundredth of a time slice: about 10 us, at four operations in a nanosecond.
-define(FUEL, 40000).
%% A call that used less than this is not worth telling the scheduler of.
-define(FREE, 2000).
%% Hundredths of a time slice that a call inside may go on when the slice is spent.
-define(OVER, 150).
%% Bytes of native stack that calls may take.
-define(STACK, 98304).
%% How often a unit's calls may be given up before it stays on BEAM.
-define(GIVEN, 200).

%% @doc The atom that a native function answers with when BEAM has to run the definition.
-spec marker() -> atom().
marker() -> '\nnative'.

%% @doc The text, and the reasons in the order of their counters. Units come as
%% `{Number, Unit}'; those that cannot be written come back as refused. Options: `yield' and
%% `deopt' (every K-th turn), for tests.
-spec module(atom(), [{non_neg_integer(), erlane_native_ir:unit()}], map()) ->
          {iodata(), [{erlane_native_ssa:fa(), integer(), string()}],
           [{non_neg_integer(), erlane_native_ssa:refused()}]}.
module(Name, Units, Options) ->
    {Texts, M} =
        lists:mapfoldl(fun({I, U}, M0) ->
                           try unit(I, U, Options, M0)
                           catch throw:{refused, _, _} = R -> {{I, R}, M0};
                                 throw:{unsupported, Why} -> {{I, {refused, 0, Why}}, M0};
                                 error:Why:Stack ->
                                     Text = io_lib:format("the translator failed: ~0tP in ~0tP",
                                                          [Why, 6, hd(Stack), 6]),
                                     {{I, {refused, 0, Text}}, M0}
                           end
                       end, #{reasons => [], atoms => #{marker() => 0}}, Units),
    Good = [T || {ok, _, _} = T <- Texts],
    Reasons = erlane_native_out:reasons(M),
    {[header(Name, Good, length(Reasons), erlane_native_out:atoms(M)),
      [Text || {ok, Text, _} <- Good]], Reasons, [R || {_, {refused, _, _}} = R <- Texts]}.

unit(I, #{entry := Entry, heads := Heads, calls := Calls, functions := Fs}, Options, M0) ->
    Common = #{functions => Fs, options => Options, unit => I,
               called => maps:from_list(lists:zip([FA || {FA, _} <- Calls], seq(Calls))),
               levels => levels(maps:values(Fs))},
    {Called, M1} = lists:mapfoldl(fun({K, {_, Hs}}, M) -> called(K, Hs, Common, M) end, M0,
                                  lists:zip(seq(Calls), Calls)),
    {_, Arity} = Entry,
    S0 = start(top, Heads, Common, M1),
    S1 = resume(Heads, enter(Entry, 0, "e", S0)),
    S2 = leave(bodies(Heads, S1)),
    {Allocas, Body} = erlane_native_out:text(S2),
    U = n(I),
    Text = [Called,
            "define internal i64 @u", U, "(i8* %env, i1 %resume, i64* %argv) {\nentry:\n",
            slots(), "  %fuel = alloca i64\n  %over = alloca i64\n",
            "  %where = alloca i64\n  %args = alloca i64\n  %ret = alloca i64\n",
            Allocas, "  store i64 ", n(?FUEL), ", i64* %fuel\n",
            "  store i64 ", n(?OVER), ", i64* %over\n",
            "  br i1 %resume, label %r, label %e\n", Body, "}\n",
            ["@given", U, " = internal global i64 0\n"],
            "define internal i64 @n", U, "(i8* %env, i32 %argc, i64* %argv) {\n",
            [["  %g = load i64, i64* @given", U, "\n  %c = icmp sgt i64 %g, ", n(?GIVEN), "\n",
              "  br i1 %c, label %off, label %go, !prof !1\noff:\n",
              "  %m = load i64, i64* @atoms\n  ret i64 %m\ngo:\n"] || Calls =/= []],
            "  %r = call i64 @u", U, "(i8* %env, i1 false, i64* %argv)\n  ret i64 %r\n}\n",
            "define internal i64 @r", U, "(i8* %env, i32 %argc, i64* %argv) {\n",
            "  %r = call i64 @u", U, "(i8* %env, i1 true, i64* %argv)\n  ret i64 %r\n}\n"],
    {{ok, Text, {I, Arity}}, maps:with([reasons, atoms], S2)}.

%% A function that is called other than as a jump: arguments as machine values, the result
%% through a pointer, and whether there is one.
called(K, [FA | _] = Heads, #{unit := I, functions := Fs} = Common, M0) ->
    #{params := Params, ret := Ret} = maps:get(FA, Fs),
    S0 = start(call, Heads, Common#{ret => Ret}, M0),
    Args = lists:append([case T of
                             {bin, _} -> [{["%a0_", n(J), X], Y, ["%x", n(J), X]}
                                          || {X, Y} <- parts()];
                             _ -> [{["%a0_", n(J)], llvm_type(T), ["%x", n(J)]}]
                         end || {J, T} <- lists:zip(seq(Params), Params)]),
    S1 = given_up(bodies(Heads, S0)),
    {Allocas, Body} = erlane_native_out:text(S1),
    Text = ["define internal i1 @c", n(I), "_", n(K), "(i8* %env, i64* %fuel, i64* %over, ",
            "i64 %depth, ", [[Y, " ", X, ", "] || {_, Y, X} <- Args], llvm_type(Ret),
            "* %out) {\nentry:\n", slots(), Allocas,
            [["  store ", Y, " ", X, ", ", Y, "* ", A, "\n"] || {A, Y, X} <- Args],
            "  %deeper = sub i64 %depth, 1\n  %deep = icmp slt i64 %depth, 0\n",
            "  br i1 %deep, label %dwhole, label %h0\n", Body, "}\n"],
    {Text, maps:with([reasons, atoms], S1)}.

%% Where a test failed, or the time is over.
given_up(#{heads := Heads} = S) ->
    lists:foldl(fun(L, Sa) -> add("ret i1 false", block(L, Sa)) end, S,
                ["dwhole" | lists:append([[["d", n(N)], ["y", n(N)]]
                                          || N <- maps:values(Heads)])]).

start(Mode, Heads, Common, M) ->
    S0 = maps:merge(erlane_native_out:new(maps:with([reasons, atoms], M)),
                    Common#{heads => maps:from_list(lists:zip(Heads, seq(Heads))), mode => Mode}),
    #{functions := Fs} = Common,
    lists:foldl(fun({N, FA}, S) -> slots(N, maps:get(FA, Fs), S) end, S0,
                lists:zip(seq(Heads), Heads)).

bodies(Heads, #{functions := Fs} = S0) ->
    lists:foldl(fun({N, FA}, S) -> head(N, FA, maps:get(FA, Fs), S) end, S0,
                lists:zip(seq(Heads), Heads)).

slots() ->
    ["  %slot = alloca i64\n  %slot2 = alloca i64\n  %dslot = alloca double\n",
     "  %count = alloca i32\n  %elements = alloca i64*\n  %bin = alloca [8 x i64]\n"].

%% How deep calls may nest: a scheduler's stack can be as small as 160 kB.
levels(Functions) ->
    Most = lists:max([length(lists:append([element(1, B) || B <- maps:values(Bs)]))
                      || #{blocks := Bs} <- Functions]),
    max(1, ?STACK div (200 + 24 * Most)).

seq(List) -> lists:seq(0, length(List) - 1).

%% Memory for the arguments of a head, and for the variables that blocks agree on.
slots(N, #{params := Params, order := Order, blocks := Blocks, types := Types}, S0) ->
    S1 = lists:foldl(fun({I, T}, S) -> slot(["%a", n(N), "_", n(I)], T, S) end, S0,
                     lists:zip(seq(Params), Params)),
    lists:foldl(fun({Dst, phi, _, _}, S) -> slot(phi_slot(N, Dst), maps:get(Dst, Types), S);
                   (_, S) -> S
                end, S1, lists:append([element(1, maps:get(L, Blocks)) || L <- Order])).

phi_slot(N, Dst) -> ["%p", n(N), "_", n(Dst)].

parts() -> [{".t", "i64"}, {".d", "i8*"}, {".s", "i64"}, {".p", "i64"}].

slot(Name, {bin, _}, S) ->
    lists:foldl(fun({X, T}, Sa) -> erlane_native_out:alloca([Name, X], T, Sa) end, S, parts());
slot(Name, T, S) -> erlane_native_out:alloca(Name, llvm_type(T), S).

llvm_type({int, Lo, Hi}) ->
    case erlane_native_range:class({Lo, Hi}) of
        W when is_integer(W) -> ["i", n(W)];
        _ -> "i64"
    end;
llvm_type(float) -> "double";
llvm_type(bool) -> "i1";
llvm_type(_) -> "i64".

machine({int, Lo, Hi}) ->
    case erlane_native_range:class({Lo, Hi}) of
        big -> throw({unsupported, "an integer of this size"});
        M -> M
    end.

%% Stores a value as the type says; a value that is not of it goes back to BEAM.
store(Name, {bin, _}, Value, S0) ->
    case Value of
        {K, P0} when K =:= bin -> store_place(Name, P0, S0);
        {field, P0, _} -> store_place(Name, P0, S0);
        _ -> throw({unsupported, "a binary that is not always one"})
    end;
store(Name, Type, Value, S) ->
    {Op, S1} = fit(Type, Value, S),
    T = llvm_type(Type),
    {fun(Sx) -> add(["store ", T, " ", Op, ", ", T, "* ", Name], Sx) end, S1}.

store_place(Name, #{term := T, data := D, size := Z, pos := P}, S) ->
    {fun(S0) ->
         lists:foldl(fun({X, Ty, V}, Sa) ->
                         add(["store ", Ty, " ", V, ", ", Ty, "* ", Name, X], Sa)
                     end, S0, [{".t", "i64", T}, {".d", "i8*", D}, {".s", "i64", Z},
                               {".p", "i64", P}])
     end, S}.

fit({int, Lo, Hi} = T, Value, S0) ->
    To = machine(T),
    case Value of
        {c, I} when is_integer(I), I >= Lo, I =< Hi -> int(Value, To, S0);
        {int, From, _} when From =:= To -> int(Value, To, S0);
        {int, _, _} -> narrow(Value, To, S0);
        {term, _} -> narrow(Value, To, S0);
        {c, I} when is_integer(I) -> narrow(Value, To, S0);
        _ -> throw({unsupported, "a value that is an integer on one way only"})
    end;
fit(float, {c, I}, _) when is_integer(I) ->
    throw({unsupported, "a value that is a float on one way only"});
fit(float, {int, _, _}, _) -> throw({unsupported, "a value that is a float on one way only"});
fit(float, Value, S) -> float(Value, S);
fit(bool, Value, S) -> bool(Value, S);
fit(_, Value, S) -> term(Value, S).

%% Through 256 bits, which hold all there is, to the wanted size and back.
narrow(Value, To, S0) ->
    {X, S1} = int(Value, 256, S0),
    W = case To of 256 -> "256"; 128 -> "128"; _ -> "64" end,
    case To of
        256 -> {X, S1};
        _ ->
            {T, S2} = add(value, ["trunc i256 ", X, " to i", W], S1),
            {B, S3} = add(value, [case To of unsigned -> "zext"; _ -> "sext" end, " i", W, " ", T,
                                  " to i256"], S2),
            {C, S4} = add(value, ["icmp eq i256 ", B, ", ", X], S3),
            {T, deopt_unless(C, "an argument of the next turn has more than 64 bits", S4)}
    end.

load(Name, {bin, K}, S0) ->
    {[T, D, Z, P], S} = lists:mapfoldl(fun({X, Ty}, Sa) ->
                                           add(value, ["load ", Ty, ", ", Ty, "* ", Name, X], Sa)
                                       end, S0, parts()),
    {{bin, #{term => T, data => D, size => Z, pos => P, bits => K}}, S};
load(Name, Type, S0) ->
    {V, S} = add(value, ["load ", llvm_type(Type), ", ", llvm_type(Type), "* ", Name], S0),
    {case Type of
         {int, _, _} -> {int, machine(Type), V};
         float -> {float, V};
         bool -> {bool, V};
         _ -> {term, V}
     end, S}.

%% Takes the arguments out of terms; what is not as guessed makes BEAM run it all.
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
        {bin, 0} ->
            {B, S3} = add(value, "bitcast [8 x i64]* %bin to i64*", S2),
            {R, S4} = add(value, ["call i32 @enif_inspect_binary(i8* %env, i64 ", T, ", i64* ", B,
                                  ")"], S3),
            {C, S5} = add(value, ["icmp ne i32 ", R, ", 0"], S4),
            S6 = deopt_unless(C, Why("a binary"), S5),
            {Size, S7} = add(value, ["load i64, i64* ", B], S6),
            {Q, S8} = add(value, ["getelementptr i64, i64* ", B, ", i64 1"], S7),
            {Bits, S9} = add(value, ["load i64, i64* ", Q], S8),
            {Data, S10} = add(value, ["inttoptr i64 ", Bits, " to i8*"], S9),
            {Store, S11} = store_place(Name, #{term => T, data => Data, size => Size, pos => "0"},
                                       S10),
            Store(S11);
        _ ->
            add(["store i64 ", T, ", i64* ", Name], S2)
    end.

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

%% After it gave way: the argument is {Head, {Arguments}}, as it was made below.
resume(Heads, S0) ->
    S1 = block("r", S0),
    S2 = erlane_native_out:at(hd(Heads), whole, S1),
    {T, S3} = add(value, "load i64, i64* %argv", S2),
    {_, S4} = add(value, ["call i32 @enif_get_tuple(i8* %env, i64 ", T,
                          ", i32* %count, i64** %elements)"], S3),
    {Es, S5} = add(value, "load i64*, i64** %elements", S4),
    {H, S6} = add(value, ["load i64, i64* ", Es], S5),
    {Head, S7} = get("enif_get_long", H, "i64", "%slot", "the state is not one of the loop", S6),
    {AP, S8} = add(value, ["getelementptr i64, i64* ", Es, ", i64 1"], S7),
    {A, S9} = add(value, ["load i64, i64* ", AP], S8),
    {_, S10} = add(value, ["call i32 @enif_get_tuple(i8* %env, i64 ", A,
                           ", i32* %count, i64** %elements)"], S9),
    S11 = add(["switch i64 ", Head, ", label %whole [",
               [["i64 ", n(N), ", label %r", n(N), " "] || N <- seq(Heads)], "]"], S10),
    lists:foldl(fun({N, FA}, S) ->
                    Sa = block(["r", n(N)], S),
                    {P, Sb} = add(value, "load i64*, i64** %elements", Sa),
                    %% The arguments are taken from there as from a call's.
                    enter_from(P, FA, N, Sb)
                end, S11, lists:zip(seq(Heads), Heads)).

enter_from(P, FA, N, #{text := T0} = S0) ->
    S1 = enter(FA, N, ["x", n(N)], S0#{text := []}),
    #{text := New} = S1,
    Text = [re:replace(L, "%argv", P, [{return, list}]) || L <- New],
    S1#{text := Text ++ [["  br label %x", n(N), "\n"] | T0]}.

%% One head: pays for the turn, then its function's blocks.
head(N, FA, #{params := Params, args := Args, order := Order, cost := Cost, line := Line} = F,
     S0) ->
    S1 = erlane_native_out:line(Line, erlane_native_out:at(FA, N, block(["h", n(N)], S0))),
    S2 = turn(N, Cost, S1),
    S3 = block(["b", n(N)], S2),
    S4 = lists:foldl(fun({V, I, T}, S) ->
                         {Value, Sa} = load(["%a", n(N), "_", n(I)], T, S),
                         def(V, Value, Sa)
                     end, S3, lists:zip3(Args, seq(Args), Params)),
    S5 = add(["br label %", label(N, 0)], S4),
    #{blocks := Blocks} = F,
    Oks = [V || {Ins, _} <- maps:values(Blocks), {_, ok, [{v, V}], _} <- Ins],
    lists:foldl(fun(L, S) -> body(N, L, F#{oks => Oks}, S) end, S5, Order).

turn(N, Cost, #{options := Options, mode := Mode} = S0) ->
    S = forced(Options, S0),
    case Options of
        #{yield := true} when Mode =:= top -> add(["br label %y", n(N)], S);
        _ -> pay(n(N), Cost, S)
    end.

forced(#{deopt := K}, S0) ->
    {A, S1} = add(value, "load i64, i64* @turns", S0),
    {B, S2} = add(value, ["add i64 ", A, ", 1"], S1),
    {M, S3} = add(value, ["urem i64 ", B, ", ", n(K)], S2),
    {C, S4} = add(value, ["icmp ne i64 ", M, ", 0"],
                  add(["store i64 ", B, ", i64* @turns"], S3)),
    deopt_unless(C, "a test wants it", S4);
forced(_, S) -> S.

pay(H, Cost, S0) ->
    {F, S1} = add(value, "load i64, i64* %fuel", S0),
    {G, S2} = add(value, ["sub i64 ", F, ", ", n(Cost)], S1),
    S3 = add(["store i64 ", G, ", i64* %fuel"], S2),
    {C, S4} = add(value, ["icmp slt i64 ", G, ", 0"], S3),
    S5 = add(["br i1 ", C, ", label %f", H, ", label %b", H, ", !prof !1"], S4),
    {R, S6} = add(value, "call i32 @enif_consume_timeslice(i8* %env, i32 1)",
                  block(["f", H], S5)),
    S7 = add(["store i64 ", n(?FUEL), ", i64* %fuel"], S6),
    {E, S8} = add(value, ["icmp ne i32 ", R, ", 0"], S7),
    case S8 of
        #{mode := top} -> add(["br i1 ", E, ", label %y", H, ", label %b", H], S8);
        _ ->
            %% The caller gives way at its next turn, if this does not take too long.
            S9 = add(["br i1 ", E, ", label %o", H, ", label %b", H], S8),
            {O, S10} = add(value, "load i64, i64* %over", block(["o", H], S9)),
            {P, S11} = add(value, ["sub i64 ", O, ", 1"], S10),
            {C1, S12} = add(value, ["icmp slt i64 ", P, ", 0"],
                            add(["store i64 ", P, ", i64* %over"], S11)),
            add(["br i1 ", C1, ", label %y", H, ", label %b", H], S12)
    end.

label(N, L) -> ["h", n(N), "_", n(L)].

body(N, L, #{blocks := Blocks} = F, S0) ->
    {Ins, Last} = maps:get(L, Blocks),
    S1 = lists:foldl(fun({Dst, phi, _, _}, S) ->
                             {V, Sa} = load(phi_slot(N, Dst), maps:get(Dst, maps:get(types, F)), S),
                             def(Dst, V, Sa);
                        ({Dst, {call, To}, Args, Line}, S) ->
                             call(Dst, To, Args, erlane_native_out:line(Line, S));
                        (I, S) -> erlane_native_emit:ins(I, F, S)
                     end, block(label(N, L), S0), Ins),
    try last(Last, N, L, F, S1)
    catch throw:{unsupported, Why} -> throw({refused, maps:get(line, S1), Why})
    end.

last({ret, V}, _, _, _, #{mode := call, ret := Type} = S0) ->
    {Store, S1} = store("%out", Type, use(V, S0), S0),
    add("ret i1 true", Store(S1));
last({ret, V}, _, _, _, S0) ->
    {T, S1} = term(use(V, S0), S0),
    add("br label %out", add(["store i64 ", T, ", i64* %ret"], S1));
last({jmp, To}, N, L, F, S) -> edge(N, L, To, F, S);
last({br, C, T, E}, N, L, F, S0) ->
    {Cond, S1} = bool(use(C, S0), S0),
    {LT, S2} = erlane_native_out:label(S1),
    {LE, S3} = erlane_native_out:label(S2),
    S4 = add(["br i1 ", Cond, ", label %", LT, ", label %", LE], S3),
    S5 = edge(N, L, T, F, block(LT, S4)),
    edge(N, L, E, F, block(LE, S5));
last({switch, V, Else, List}, N, L, F, S0) ->
    S = lists:foldl(fun({K, To}, S1) ->
                        {C, S2} = erlane_native_cmp:compare('=:=', use(V, S1), use({c, K}, S1), S1),
                        {Yes, S3} = erlane_native_out:label(S2),
                        {No, S4} = erlane_native_out:label(S3),
                        S5 = add(["br i1 ", C, ", label %", Yes, ", label %", No], S4),
                        block(No, edge(N, L, To, F, block(Yes, S5)))
                    end, S0, List),
    edge(N, L, Else, F, S);
last({tail, To, Args, Line}, _, _, #{}, #{heads := Heads, functions := Fs} = S0) ->
    H = maps:get(To, Heads),
    #{params := Params} = maps:get(To, Fs),
    %% All are read, and tested, before the first is overwritten.
    {Stores, S1} = lists:mapfoldl(fun({I, T, A}, S) ->
                                      store(["%a", n(H), "_", n(I)], T, use(A, S), S)
                                  end, erlane_native_out:line(Line, S0),
                                  lists:zip3(seq(Params), Params, Args)),
    add(["br label %h", n(H)], lists:foldl(fun(Store, S) -> Store(S) end, S1, Stores));
last({deopt, Why, Line}, _, _, _, S) ->
    erlane_native_out:deopt(lists:concat(["raises: ", Why]), erlane_native_out:line(Line, S)).

call(Dst, To, Args, #{functions := Fs, called := Called, unit := U, levels := Levels,
                     mode := Mode, line := Line, head := H} = S0) ->
    #{params := Params, ret := Ret} = maps:get(To, Fs),
    try
        Ret =:= none andalso throw({unsupported, "a call that never returns"}),
        {As, S1} = lists:mapfoldl(fun({T, A}, S) -> pass(T, use(A, S), S) end, S0,
                                  lists:zip(Params, Args)),
        Out = ["%out", n(H), "_", n(Dst)],
        S2 = erlane_native_out:alloca(Out, llvm_type(Ret), S1),
        Depth = case Mode of top -> n(Levels); call -> "%deeper" end,
        {Ok, S3} = add(value, ["call i1 @c", n(U), "_", n(maps:get(To, Called)),
                               "(i8* %env, i64* %fuel, i64* %over, i64 ", Depth, ", ", As,
                               llvm_type(Ret), "* ", Out, ")"], S2),
        {F, A} = To,
        {V, S4} = load(Out, Ret, given(Ok, lists:concat(["a call of ", F, "/", A,
                                                         " was given up"]), S3)),
        def(Dst, V, S4)
    catch
        throw:{unsupported, Why} -> throw({refused, Line, Why})
    end.

%% What was given up is work done twice: it is counted, and after some of it no longer tried.
given(Ok, Why, #{mode := call} = S) -> deopt_unless(Ok, Why, S);
given(Ok, Why, #{unit := U} = S0) ->
    {Yes, S1} = erlane_native_out:label(S0),
    {No, S2} = erlane_native_out:label(S1),
    S3 = block(No, add(["br i1 ", Ok, ", label %", Yes, ", label %", No, ", !prof !0"], S2)),
    {_, S4} = add(value, ["atomicrmw add i64* @given", n(U), ", i64 1 monotonic"], S3),
    block(Yes, erlane_native_out:deopt(Why, S4)).

pass({bin, _}, Value, S) ->
    #{term := T, data := D, size := Z, pos := P} =
        case Value of
            {bin, Place} -> Place;
            {field, Place, _} -> Place;
            _ -> throw({unsupported, "a binary that is not always one"})
        end,
    {["i64 ", T, ", i8* ", D, ", i64 ", Z, ", i64 ", P, ", "], S};
pass(Type, Value, S0) ->
    {Op, S} = fit(Type, Value, S0),
    {[llvm_type(Type), " ", Op, ", "], S}.

%% To another block of the same function, with what its phi variables are on this way.
edge(N, From, To, #{blocks := Blocks, types := Types}, S0) ->
    {Ins, _} = maps:get(To, Blocks),
    {Stores, S1} = lists:mapfoldl(fun({Dst, As}, S) ->
                                      {V, _} = lists:keyfind(From, 2, As),
                                      store(phi_slot(N, Dst), maps:get(Dst, Types), use(V, S), S)
                                  end, S0, [{Dst, As} || {Dst, phi, As, _} <- Ins]),
    add(["br label %", label(N, To)], lists:foldl(fun(Store, S) -> Store(S) end, S1, Stores)).

%% The ways out: a result, the definition from the start, a head to go on from.
leave(#{heads := Heads, functions := Fs} = S0) ->
    S1 = maps:fold(fun(FA, N, S) -> hand_back(N, maps:get(params, maps:get(FA, Fs)), S) end, S0,
                   Heads),
    S2 = block("leave", S1),
    {A, S3} = add(value, "load i64, i64* %args", S2),
    {W, S4} = add(value, "load i64, i64* %where", S3),
    {M, S5} = erlane_native_out:atom(marker(), S4),
    {Where, S6} = add(value, ["call i64 @enif_make_long(i8* %env, i64 ", W, ")"], S5),
    {T, S7} = term({tuple, [{term, M}, {term, Where}, {term, A}]}, S6),
    S8 = add("br label %out", add(["store i64 ", T, ", i64* %ret"], S7)),
    S9 = add("br label %whole", block("dwhole", S8)),
    {M2, S10} = erlane_native_out:atom(marker(), block("whole", S9)),
    S11 = add(["ret i64 ", M2], S10),
    %% A short call is free, or nearly; a longer one is told to the scheduler.
    {F, S12} = add(value, "load i64, i64* %fuel", block("out", S11)),
    {C, S13} = add(value, ["icmp slt i64 ", F, ", ", n(?FUEL - ?FREE)], S12),
    S14 = add("br i1 %c_, label %pay, label %done", add(["%c_ = or i1 ", C, ", false"], S13)),
    S15 = add("%p_ = call i32 @enif_consume_timeslice(i8* %env, i32 1)", block("pay", S14)),
    {R, S16} = add(value, "load i64, i64* %ret", block("done", add("br label %done", S15))),
    add(["ret i64 ", R], S16).

hand_back(N, Params, S0) ->
    H = n(N),
    Head = block(["y", H], S0),
    Yield = add(["store i64 ", n(-1 - N), ", i64* %where"], Head),
    Count = add("%yc" ++ H ++ " = atomicrmw add i64* @yields, i64 1 monotonic", Yield),
    S1 = add(["br label %g", H], Count),
    S2 = add(["br label %g", H], add(["store i64 ", H, ", i64* %where"],
                                     block(["d", H], S1))),
    {Ts, S3} = lists:mapfoldl(fun({I, T}, S) ->
                                  {V, Sa} = load(["%a", H, "_", n(I)], T, S),
                                  term(V, Sa)
                              end, block(["g", H], S2), lists:zip(seq(Params), Params)),
    {T, S4} = term({tuple, [{term, X} || X <- Ts]}, S3),
    add("br label %leave", add(["store i64 ", T, ", i64* %args"], S4)).

header(Name, Good, Reasons, Atoms) ->
    Nifs = lists:append([[{["n", n(I)], A}, {["r", n(I)], 1}] || {ok, _, {I, A}} <- Good])
        ++ [{"counts", 0}],
    Count = length(Nifs),
    Strings = [{"module", atom_to_binary(Name)}, {"variant", <<"beam.vanilla">>},
               {"erts", <<"erts-13.0">>}]
        ++ [{["f_", F], iolist_to_binary(F)} || {F, _} <- Nifs]
        ++ [{["atom", n(I)], latin1(A)} || {I, A} <- indexed(Atoms), is_atom(A)],
    [erlane_native_runtime:declarations(),
     [["@s_", K, " = internal constant [", n(byte_size(B) + 1), " x i8] c\"", escape(B), "\\00\"\n"]
      || {K, B} <- Strings],
     ["@atom_table = internal global [", n(max(1, length(Atoms))), " x i64] zeroinitializer\n",
      "@count_table = internal global [", n(Reasons + 1), " x i64] zeroinitializer\n",
      "@atoms = internal alias i64, getelementptr ([", n(max(1, length(Atoms))), " x i64], [",
      n(max(1, length(Atoms))), " x i64]* @atom_table, i64 0, i64 0)\n",
      "@counters = internal alias i64, getelementptr ([", n(Reasons + 1), " x i64], [",
      n(Reasons + 1), " x i64]* @count_table, i64 0, i64 0)\n",
      "@yields = internal global i64 0\n@turns = internal global i64 0\n"],
     ["@nifs = internal global [", n(Count), " x %func] [",
      lists:join(", ", [["%func { i8* ", string(["f_", F], F), ", i32 ", n(A),
                         ", i64 (i8*, i32, i64*)* @", F, ", i32 0 }"] || {F, A} <- Nifs]), "]\n"],
     ["@entry = internal global %entry { i32 2, i32 16, i8* ",
      string("module", atom_to_binary(Name)), ", i32 ", n(Count),
      ", %func* getelementptr ([", n(Count), " x %func], [", n(Count),
      " x %func]* @nifs, i64 0, i64 0), i32 (i8*, i8**, i64)* @load, i8* null, ",
      "i32 (i8*, i8**, i8**, i64)* @upgrade, i8* null, i8* ", string("variant", "beam.vanilla"),
      ", i32 1, i64 40, i8* ", string("erts", "erts-13.0"), " }\n"],
     "define %entry* @nif_init() {\n  ret %entry* @entry\n}\n",
     "define internal i32 @load(i8* %env, i8** %priv, i64 %info) {\n",
     [["  %v", n(I), " = call i64 ",
       case A of
           [] -> "@enif_make_list_from_array(i8* %env, i64* null, i32 0)";
           _ -> ["@enif_make_atom_len(i8* %env, i8* ", string(["atom", n(I)], latin1(A)), ", i64 ",
                 n(byte_size(latin1(A))), ")"]
       end, "\n  store i64 %v", n(I), ", i64* getelementptr (i64, i64* @atoms, i64 ", n(I), ")\n"]
      || {I, A} <- indexed(Atoms)],
     "  ret i32 0\n}\n",
     erlane_native_runtime:functions(Reasons)].

indexed(List) -> lists:zip(seq(List), List).

string(Key, Text) ->
    N = n(iolist_size(Text) + 1),
    ["getelementptr ([", N, " x i8], [", N, " x i8]* @s_", Key, ", i64 0, i64 0)"].

latin1(A) ->
    case unicode:characters_to_binary(atom_to_list(A), unicode, latin1) of
        B when is_binary(B) -> B;
        _ -> throw({refused, 0, "an atom with letters beyond Latin-1"})
    end.

escape(B) -> [case C of
                  _ when C >= $a, C =< $z; C >= $A, C =< $Z; C >= $0, C =< $9 -> C;
                  _ -> io_lib:format("\\~2.16.0B", [C])
              end || <<C>> <= B].

n(I) when is_integer(I) -> integer_to_list(I).
