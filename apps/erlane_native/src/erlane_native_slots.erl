%% SPDX-License-Identifier: Apache-2.0
%% @doc Memory for the arguments of heads and for variables that blocks agree on, which LLVM turns
%% into registers; and how a value becomes one of a slot's type. Pure.
-module(erlane_native_slots).

-export([type/1, machine/1, slot/3, store/4, fit/3, load/3, parts/0, scratch/0]).

-import(erlane_native_out, [add/2, add/3, int/3, float/2, bool/2, term/2, deopt_unless/3]).

%% @doc What a place in a binary is made of: suffix of the name, and LLVM type.
-spec parts() -> [{string(), string()}].
parts() -> [{".t", "i64"}, {".d", "i8*"}, {".s", "i64"}, {".p", "i64"}].

%% @doc Memory for what functions of the NIF interface answer.
-spec scratch() -> iodata().
scratch() ->
    ["  %slot = alloca i64\n  %slot2 = alloca i64\n  %dslot = alloca double\n",
     "  %count = alloca i32\n  %elements = alloca i64*\n  %bin = alloca [8 x i64]\n"].

%% @doc Makes a slot for a value of a type.
-spec slot(iodata(), erlane_native_type:type(), erlane_native_out:state()) ->
          erlane_native_out:state().
slot(Name, {bin, _}, S) ->
    lists:foldl(fun({X, T}, Sa) -> erlane_native_out:alloca([Name, X], T, Sa) end, S, parts());
slot(Name, T, S) -> erlane_native_out:alloca(Name, type(T), S).

%% @doc The LLVM type of a value.
-spec type(erlane_native_type:type()) -> iodata().
type({int, Lo, Hi}) ->
    case erlane_native_range:class({Lo, Hi}) of
        W when is_integer(W) -> ["i", n(W)];
        _ -> "i64"
    end;
type(float) -> "double";
type(bool) -> "i1";
type(_) -> "i64".

%% @doc The machine integer of a range.
-spec machine(erlane_native_type:type()) -> signed | unsigned | 128 | 256.
machine({int, Lo, Hi}) ->
    case erlane_native_range:class({Lo, Hi}) of
        big -> throw({unsupported, "an integer of this size"});
        M -> M
    end.

%% @doc Makes a value what the type says, which can fail and go back to BEAM, and answers what
%% stores it: the stores of a jump come after all that can fail.
-spec store(iodata(), erlane_native_type:type(), erlane_native_out:value() | {c, number()},
            erlane_native_out:state()) ->
          {fun((erlane_native_out:state()) -> erlane_native_out:state()),
           erlane_native_out:state()}.
store(Name, {bin, _}, Value, S0) ->
    case Value of
        {K, P0} when K =:= bin -> store_place(Name, P0, S0);
        {field, P0, _} -> store_place(Name, P0, S0);
        _ -> throw({unsupported, "a binary that is not always one"})
    end;
store(Name, buf, {buf, Used}, S) ->
    {fun(S0) -> add(["store i64 ", Used, ", i64* ", Name], S0) end, S};
store(Name, buf, Value, S) -> erlane_native_build:fill(Name, Value, S);
store(Name, Type, Value, S) ->
    {Op, S1} = fit(Type, Value, S),
    T = type(Type),
    {fun(Sx) -> add(["store ", T, " ", Op, ", ", T, "* ", Name], Sx) end, S1}.

store_place(Name, #{term := T, data := D, size := Z, pos := P}, S) ->
    {fun(S0) ->
         lists:foldl(fun({X, Ty, V}, Sa) ->
                         add(["store ", Ty, " ", V, ", ", Ty, "* ", Name, X], Sa)
                     end, S0, [{".t", "i64", T}, {".d", "i8*", D}, {".s", "i64", Z},
                               {".p", "i64", P}])
     end, S}.

%% @doc A value as a machine value of the type.
-spec fit(erlane_native_type:type(), erlane_native_out:value() | {c, number()},
          erlane_native_out:state()) ->
          {erlane_native_out:name(), erlane_native_out:state()}.
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

%% @doc What is in a slot.
-spec load(iodata(), erlane_native_type:type(), erlane_native_out:state()) ->
          {erlane_native_out:value(), erlane_native_out:state()}.
load(Name, {bin, K}, S0) ->
    {[T, D, Z, P], S} = lists:mapfoldl(fun({X, Ty}, Sa) ->
                                           add(value, ["load ", Ty, ", ", Ty, "* ", Name, X], Sa)
                                       end, S0, parts()),
    {{bin, #{term => T, data => D, size => Z, pos => P, bits => K}}, S};
load(Name, Type, S0) ->
    {V, S} = add(value, ["load ", type(Type), ", ", type(Type), "* ", Name], S0),
    {case Type of
         {int, _, _} -> {int, machine(Type), V};
         float -> {float, V};
         bool -> {bool, V};
         buf -> {buf, V};
         _ -> {term, V}
     end, S}.

n(I) -> integer_to_list(I).
