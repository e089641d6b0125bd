%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of functions that are called other than by a jump, and of such calls. Pure.
%%
%% Such a function takes its arguments and gives its result in registers, as C does. With them go
%% how deep the stack may grow, and the fuel that is left, which comes back beside the result: less
%% than nothing says that the call was given up, and then all calls around it are. There is no
%% telling the scheduler in between and no giving way, so the fuel is what may be used at most:
%% a call tree that needs more runs on BEAM.
%%
%% What was given up was work for nothing. So after that some calls from outside are not tried in
%% native code, twice as many each time it happens again, until one is a success.
-module(erlane_native_call).

-export([function/4, call/4, limit/1, gate/3, succeeded/1]).

-import(erlane_native_out, [add/2, add/3, def/3, use/2, block/2]).

%% Bytes of native stack that calls may take: a scheduler's stack can be as small as 160 kB.
-define(STACK, 98304).
%% Fuel of a call, besides what is left of the caller's: about half a millisecond.
-define(FUEL, 2000000).
%% Lines that a function with its copies may have.
-define(COPIES, 2000).

%% @doc A function of a unit by number, its heads, and what `bodies' and `slots' make of them.
-spec function(non_neg_integer(), [erlane_native_ssa:fa()],
               fun((erlane_native_out:state()) -> erlane_native_out:state()),
               erlane_native_out:state()) -> {iodata(), erlane_native_out:state()}.
function(K, [FA | _], Bodies, #{unit := I, functions := Fs, ret := Ret} = S0) ->
    #{params := Params} = maps:get(FA, Fs),
    Args = lists:append([case T of
                             {bin, _} -> [{["%a0_", n(J), X], Y, ["%x", n(J), X]}
                                          || {X, Y} <- erlane_native_slots:parts()];
                             _ -> [{["%a0_", n(J)], erlane_native_slots:type(T), ["%x", n(J)]}]
                         end || {J, T} <- lists:zip(seq(Params), Params)]),
    S1 = given_up(Bodies(S0)),
    {Allocas, Body} = erlane_native_out:text(S1),
    Head = fun(Own, Attribute, Deep) ->
               ["define internal ", result(Ret), " ", Own, "(i8* %env, i64 %limit, i64 %budget",
                erlane_native_rows:parameters(S1), [[", ", Y, " ", X] || {_, Y, X} <- Args], ") ",
                Attribute, " {\nentry:\n", erlane_native_slots:scratch(),
                "  %fuel = alloca i64\n", Allocas, erlane_native_build:memory(S1),
                erlane_native_rows:memory(call, S1),
                [["  store ", Y, " ", X, ", ", Y, "* ", A, "\n"] || {A, Y, X} <- Args],
                "  store i64 %budget, i64* %fuel\n", Deep]
           end,
    {copies(["@c", n(I), "_", n(K)], Head, iolist_to_binary(Body)), S1}.

%% What calls itself is put into itself, and once more, where it is small: half of the calls of a
%% tree are its leaves. Each copy pays for its own turn; only the first needs room on the stack.
copies(Name, Head, Body) ->
    Calls = length(binary:matches(Body, call_of(Name))),
    Lines = length(binary:matches(Body, <<"\n">>)),
    Most = if
               Calls =:= 0 -> 0;
               Lines * (1 + Calls + Calls * Calls) =< ?COPIES -> 2;
               Lines * (1 + Calls) =< ?COPIES -> 1;
               true -> 0
           end,
    [[case I of
          0 -> Head(copy(Name, I), "align 64", deep());
          _ -> Head(copy(Name, I), "alwaysinline", "  br label %h0\n")
      end,
      binary:replace(Body, call_of(Name), call_of(copy(Name, (I + 1) rem (Most + 1))), [global]),
      "}\n"]
     || I <- lists:seq(0, Most)].

copy(Name, 0) -> Name;
copy(Name, I) -> [Name, "_", n(I)].

call_of(Name) -> iolist_to_binary([Name, "("]).

deep() ->
    [at(), "  %deep = icmp ult i64 %at, %limit\n",
     "  br i1 %deep, label %dwhole, label %h0, !prof !1\n"].

result(Ret) -> ["{ ", erlane_native_slots:type(Ret), ", i64 }"].

%% Where a test failed, or the fuel is used up.
given_up(#{heads := Heads, ret := Ret} = S0) ->
    S1 = lists:foldl(fun(L, S) -> add("br label %fail", block(L, S)) end, S0,
                     ["dwhole" | lists:append([[["d", n(N)], ["y", n(N)]]
                                               || N <- maps:values(Heads)])]),
    {F, S2} = add(value, "load i64, i64* %fuel",
                  erlane_native_build:release(block("fail", S1))),
    {G, S3} = add(value, ["or i64 ", F, ", ", n(-(1 bsl 63))], S2),
    {R, S4} = add(value, ["insertvalue ", result(Ret), " undef, i64 ", G, ", 1"], S3),
    add(["ret ", result(Ret), " ", R], S4).

%% @doc A result of such a function.
-spec succeeded({erlane_native_out:value() | {c, number()}, erlane_native_out:state()}) ->
          erlane_native_out:state().
succeeded({Value, #{ret := Ret} = S0}) ->
    {V, S1} = case Value of
                  {buf, Used} -> erlane_native_build:finish(Used, S0);
                  _ -> erlane_native_slots:fit(Ret, Value, S0)
              end,
    {List, S2} = erlane_native_rows:close(V, S1),
    {F, S3} = add(value, "load i64, i64* %fuel", erlane_native_build:release(S2)),
    {A, S4} = add(value, ["insertvalue ", result(Ret), " undef, ", erlane_native_slots:type(Ret),
                          " ", List, ", 0"], S3),
    {R, S5} = add(value, ["insertvalue ", result(Ret), " ", A, ", i64 ", F, ", 1"], S4),
    add(["ret ", result(Ret), " ", R], S5).

%% @doc How far down the stack of a call from outside may go.
-spec limit([] | [term()]) -> iodata().
limit([]) -> [];
limit(_) ->
    [at(), "  %limit = sub i64 %at, ", n(?STACK), "\n"].

%% How far down the stack is now.
at() -> "  %here = alloca i8\n  %at = ptrtoint i8* %here to i64\n".

%% @doc A call.
-spec call(non_neg_integer(), erlane_native_ssa:fa(), [erlane_native_ssa:val()],
           erlane_native_out:state()) -> erlane_native_out:state().
call(Dst, To, Args, #{functions := Fs, called := Called, unit := U, mode := Mode} = S0) ->
    #{params := Params, ret := Ret} = maps:get(To, Fs),
    try
        Ret =:= none andalso throw({unsupported, "a call that never returns"}),
        {As, S1} = lists:mapfoldl(fun({T, A}, S) -> pass(T, use(A, S), S) end, S0,
                                  lists:zip(Params, Args)),
        {F, S2} = add(value, "load i64, i64* %fuel", S1),
        {Budget, S3} = case Mode of
                           top -> add(value, ["add i64 ", F, ", ", n(?FUEL)], S2);
                           call -> {F, S2}
                       end,
        {Row, Sr} = erlane_native_rows:arguments(S3),
        {R, S4} = add(value, ["call ", result(Ret), " @c", n(U), "_", n(maps:get(To, Called)),
                              "(i8* %env, i64 %limit, i64 ", Budget, Row, As, ")"], Sr),
        {V, S5} = add(value, ["extractvalue ", result(Ret), " ", R, ", 0"], S4),
        {Left, S6} = add(value, ["extractvalue ", result(Ret), " ", R, ", 1"], S5),
        def(Dst, value(Ret, V), returned(To, Left, S6))
    catch
        throw:{unsupported, Why} -> throw({refused, maps:get(line, S0), Why})
    end.

value({int, _, _} = T, V) -> {int, erlane_native_slots:machine(T), V};
value(float, V) -> {float, V};
value(bool, V) -> {bool, V};
value(_, V) -> {term, V}.

returned({F, A}, Left, #{mode := Mode, unit := U} = S0) ->
    {C, S1} = add(value, ["icmp sge i64 ", Left, ", 0"], S0),
    {Yes, S2} = erlane_native_out:label(S1),
    {No, S3} = erlane_native_out:label(S2),
    S4 = block(No, add(["br i1 ", C, ", label %", Yes, ", label %", No, ", !prof !0"], S3)),
    case Mode of
        call ->
            S5 = add("br label %fail", add(["store i64 ", Left, ", i64* %fuel"], S4)),
            add(["store i64 ", Left, ", i64* %fuel"], block(Yes, S5));
        top ->
            S5 = add(["call void @give_up(i64* @skips", n(U), ", i64* @penalty", n(U), ")"], S4),
            S6 = erlane_native_out:deopt(lists:concat(["a call of ", F, "/", A, " was given up"]),
                                         S5),
            {Own, S7} = add(value, ["sub i64 ", Left, ", ", n(?FUEL)], block(Yes, S6)),
            add(["store i64 ", Own, ", i64* %fuel"], S7)
    end.

%% @doc What a unit with such functions has around it: counts of calls that are not to be tried,
%% the test of them, and what a success does to them.
-spec gate(non_neg_integer(), [term()], map()) ->
          {Globals :: iodata(), Test :: iodata(), Success :: iodata()}.
gate(_, [], _) -> {[], [], []};
gate(I, _, Options) ->
    U = n(I),
    Test = ["  %s = load atomic i64, i64* @skips", U, " monotonic, align 8\n",
            "  %c = icmp sgt i64 %s, 0\n  br i1 %c, label %off, label %go, !prof !1\noff:\n",
            "  %t = sub i64 %s, 1\n",
            "  store atomic i64 %t, i64* @skips", U, " monotonic, align 8\n",
            "  %m = load i64, i64* @atoms\n  ret i64 %m\ngo:\n"],
    {["@skips", U, " = internal global i64 0\n@penalty", U, " = internal global i64 0\n"],
     %% A test that hands calls back on purpose wants the next ones all the same.
     [Test || not is_map_key(deopt, Options)],
     ["  %pe = load atomic i64, i64* @penalty", U, " monotonic, align 8\n",
      "  %pc = icmp ne i64 %pe, 0\n  br i1 %pc, label %fine, label %over, !prof !1\nfine:\n",
      "  store atomic i64 0, i64* @penalty", U, " monotonic, align 8\n",
      "  br label %over\nover:\n"]}.

pass({bin, _}, Value, S) ->
    #{term := T, data := D, size := Z, pos := P} =
        case Value of
            {bin, Place} -> Place;
            {field, Place, _} -> Place;
            _ -> throw({unsupported, "a binary that is not always one"})
        end,
    {[", i64 ", T, ", i8* ", D, ", i64 ", Z, ", i64 ", P], S};
%% A buffer that is empty is one of the function that is called.
pass(buf, {k, <<>>}, S) -> {", i64 0", S};
pass(buf, _, _) -> throw({unsupported, "a call that appends to a binary of the caller"});
pass(Type, Value, S0) ->
    {Op, S} = erlane_native_slots:fit(Type, Value, S0),
    {[", ", erlane_native_slots:type(Type), " ", Op], S}.

seq(List) -> lists:seq(0, length(List) - 1).

n(I) -> integer_to_list(I).
