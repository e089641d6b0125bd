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

-import(erlane_native_out, [add/2, add/3, def/3, use/2, bool/2, term/2, block/2, deopt_unless/3]).
-import(erlane_native_slots, [slot/3, store/4, load/3]).

%% Fuel of one hundredth of a time slice: about 10 us, at four operations in a nanosecond.
-define(FUEL, 40000).
%% A call that used less than this is not worth telling the scheduler of.
-define(FREE, 2000).

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
                       end, #{reasons => [], atoms => erlane_native_meter:atoms(marker())}, Units),
    Good = [T || {ok, _, _} = T <- Texts],
    Reasons = erlane_native_out:reasons(M),
    {[erlane_native_library:header(Name, Good, length(Reasons), erlane_native_out:atoms(M)),
      erlane_native_meter:text(#{units => length(Units), verify => maps:get(verify, Options, []),
                                 full => ?FUEL, once => ?FREE}),
      [Text || {ok, Text, _} <- Good]], Reasons, [R || {_, {refused, _, _}} = R <- Texts]}.

unit(I, #{entry := Entry, heads := Heads, calls := Calls, functions := Fs}, Options, M0) ->
    Common = #{functions => Fs, options => Options, unit => I,
               rows => erlane_native_ir:collects(maps:keys(Fs), Fs),
               called => maps:from_list(lists:zip([FA || {FA, _} <- Calls], seq(Calls)))},
    {Called, M1} = lists:mapfoldl(fun({K, {_, Hs}}, M) -> called(K, Hs, Common, M) end, M0,
                                  lists:zip(seq(Calls), Calls)),
    {_, Arity} = Entry,
    {Globals, Test, Success} = erlane_native_call:gate(I, Calls, Options),
    S0 = start(top, Heads, Common, M1),
    S1 = erlane_native_entry:resume(Heads, erlane_native_entry:enter(Entry, 0, "e", S0)),
    S2 = leave(Success, bodies(Heads, S1)),
    {Allocas, Body} = erlane_native_out:text(S2),
    U = n(I),
    Text = [Called, Globals,
            "define internal i64 @u", U, "(i8* %env, i1 %resume, i64* %argv) align 64 {\nentry:\n",
            erlane_native_slots:scratch(), "  %fuel = alloca i64\n",
            "  %where = alloca i64\n  %args = alloca i64\n  %ret = alloca i64\n",
            "  %clock = alloca i64\n  store i64 0, i64* %clock\n",
            "  %young = alloca i64\n  store i64 ", n(erlane_native_cost:young(Heads, Fs)),
            ", i64* %young\n",
            Allocas, erlane_native_build:memory(S2), erlane_native_rows:memory(top, S2),
            erlane_native_call:limit(Calls),
            "  store i64 ", n(?FUEL), ", i64* %fuel\n",
            erlane_native_term:gate([Called, Body]),
            "  br i1 %resume, label %r, label %e\n", Body, "}\n",
            erlane_native_meter:unit(I, Test)],
    {{ok, Text, {I, Arity}}, maps:with([reasons, atoms], S2)}.

called(K, [FA | _] = Heads, #{functions := #{} = Fs} = Common, M) ->
    #{FA := #{ret := Ret}} = Fs,
    {Text, S} = erlane_native_call:function(K, Heads, fun(S0) -> bodies(Heads, S0) end,
                                            start(call, Heads, Common#{ret => Ret}, M)),
    {Text, maps:with([reasons, atoms], S)}.

start(Mode, Heads, Common, M) ->
    #{functions := Fs} = Common,
    S0 = maps:merge(erlane_native_out:new(maps:with([reasons, atoms], M)),
                    Common#{heads => maps:from_list(lists:zip(Heads, seq(Heads))), mode => Mode,
                            collects => erlane_native_ir:collects(Heads, Fs),
                            buffer => lists:any(fun(FA) ->
                                                    erlane_native_type:builds(maps:get(FA, Fs))
                                                end, Heads)}),
    lists:foldl(fun({N, FA}, S) -> slots(N, maps:get(FA, Fs), S) end, S0,
                lists:zip(seq(Heads), Heads)).

bodies(Heads, #{functions := Fs} = S0) ->
    lists:foldl(fun({N, FA}, S) -> head(N, FA, maps:get(FA, Fs), S) end, S0,
                lists:zip(seq(Heads), Heads)).

seq(List) -> lists:seq(0, length(List) - 1).

%% Memory for the arguments of a head, and for the variables that blocks agree on.
slots(N, #{params := Params, order := Order, blocks := Blocks, types := Types}, S0) ->
    S1 = lists:foldl(fun({I, T}, S) -> slot(["%a", n(N), "_", n(I)], T, S) end, S0,
                     lists:zip(seq(Params), Params)),
    lists:foldl(fun({Dst, phi, _, _}, S) -> slot(phi_slot(N, Dst), maps:get(Dst, Types), S);
                   (_, S) -> S
                end, S1, lists:append([element(1, maps:get(L, Blocks)) || L <- Order])).

phi_slot(N, Dst) -> ["%p", n(N), "_", n(Dst)].

%% One head: pays for the turn, then its function's blocks.
head(N, FA, #{params := Params, args := Args, order := Order, cost := Cost, line := Line} = F,
     S0) ->
    S1 = erlane_native_out:line(Line, erlane_native_out:at(FA, N, block(["h", n(N)], S0))),
    S2 = turn(N, Cost, S1),
    S3 = (block(["b", n(N)], S2))#{once := maps:get(once, F)},
    S4 = lists:foldl(fun({V, I, T}, S) ->
                         {Value, Sa} = load(["%a", n(N), "_", n(I)], T, S),
                         def(V, Value, Sa)
                     end, S3, lists:zip3(Args, seq(Args), Params)),
    S5 = add(["br label %", label(N, 0)], S4),
    #{blocks := Blocks} = F,
    %% What is known where such a block is entered from is known in it.
    Single = erlane_native_graph:single(Blocks),
    Oks = [V || {Ins, _} <- maps:values(Blocks), {_, ok, [{v, V}], _} <- Ins],
    lists:foldl(fun(L, S) -> body(N, L, F#{oks => Oks, single => Single}, S) end,
                S5#{entered => #{}}, Order).

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
    case S4 of
        #{mode := call} -> add(["br i1 ", C, ", label %y", H, ", label %b", H, ", !prof !1"], S4);
        _ ->
            S5 = block(["f", H], add(["br i1 ", C, ", label %f", H, ", label %b", H, ", !prof !1"],
                                     S4)),
            {R, S6} = add(value, ["call i32 @consume_timed(i8* %env, i64 ", G,
                                    ", i64* %clock, i64* %young)"], S5),
            {E, S7} = add(value, ["icmp ne i32 ", R, ", 0"],
                          add(["store i64 ", n(?FUEL), ", i64* %fuel"], S6)),
            add(["br i1 ", E, ", label %y", H, ", label %b", H], S7)
    end.

label(N, L) -> ["h", n(N), "_", n(L)].

body(N, L, #{blocks := Blocks, single := Single} = F, #{entered := Entered} = Sx) ->
    {Ins, Last} = maps:get(L, Blocks),
    S0 = Sx#{known := maps:get(L, Entered, #{})},
    S1 = lists:foldl(fun({Dst, phi, _, _}, S) ->
                             {V, Sa} = load(phi_slot(N, Dst), maps:get(Dst, maps:get(types, F)), S),
                             def(Dst, V, Sa);
                        ({Dst, {call, To}, Args, Line}, S) ->
                             Sa = erlane_native_out:line(Line, S),
                             erlane_native_call:call(Dst, To, Args, Sa);
                        (I, S) -> erlane_native_emit:ins(I, F, S)
                     end, block(label(N, L), S0), Ins),
    #{known := Known} = S1,
    Alone = [To || To <- erlane_native_graph:next(Last), lists:member(To, Single)],
    S2 = S1#{entered := maps:merge(Entered, maps:from_keys(Alone, Known))},
    try last(Last, N, L, F, S2)
    catch throw:{unsupported, Why} -> throw({refused, maps:get(line, S2), Why})
    end.

last({ret, V}, _, _, _, #{mode := call} = S) -> erlane_native_call:succeeded({use(V, S), S});
last({ret, V}, _, _, _, S0) ->
    {T, S1} = final(use(V, S0), S0),
    {M, S2} = erlane_native_out:atom(marker(), S1),
    erlane_native_rows:result(T, M, no_order(use(V, S2), M, S2));
last({jmp, To}, N, L, F, S) -> edge(N, L, To, F, S);
last({br, C, T, E}, N, L, F, S0) ->
    {Cond, S1} = bool(use(C, S0), S0),
    {LT, S2} = erlane_native_out:label(S1),
    {LE, S3} = erlane_native_out:label(S2),
    S4 = add(["br i1 ", Cond, ", label %", LT, ", label %", LE], S3),
    S5 = edge(N, L, T, F, block(LT, S4)),
    edge(N, L, E, F, block(LE, S5));
last({switch, V, Else0, List0}, N, L, #{sure := Sure} = F, S0) ->
    {Else, List} = case lists:member(L, Sure) of
                       true -> {element(2, lists:last(List0)), lists:droplast(List0)};
                       false -> {Else0, List0}
                   end,
    case {use(V, S0), [K || {K, _} <- List, not is_small(K)]} of
        {{term, T}, []} -> smalls(T, Else, List, N, L, F, S0);
        _ -> switch(V, Else, List, N, L, F, S0)
    end;
last({tail, To, Args, Line}, _, _, #{}, #{heads := Heads, functions := Fs} = S0) ->
    H = maps:get(To, Heads),
    #{params := Params} = maps:get(To, Fs),
    %% All are read, and tested, before the first is overwritten.
    {Stores, S1} = lists:mapfoldl(fun({I, T, A}, S) ->
                                      store(["%a", n(H), "_", n(I)], T, use(A, S), S)
                                  end, erlane_native_out:line(Line, S0),
                                  lists:zip3(seq(Params), Params, Args)),
    S2 = erlane_native_rows:store(S1),
    add(["br label %h", n(H)], lists:foldl(fun(Store, S) -> Store(S) end, S2, Stores));
last({deopt, Why, Line}, _, _, _, S) ->
    erlane_native_out:deopt(lists:concat(["raises: ", Why]), erlane_native_out:line(Line, S)).

is_small(K) -> is_integer(K) andalso K >= -(1 bsl 59) andalso K < 1 bsl 59.

%% What is not a small integer is none of these.
smalls(T, Else, List, N, L, F, S0) ->
    {{Is, V}, S1} = erlane_native_term:small(T, S0),
    {Look, S2} = erlane_native_out:label(S1),
    {Other, S3} = erlane_native_out:label(S2),
    {Labels, S4} = lists:mapfoldl(fun(_, S) -> erlane_native_out:label(S) end, S3, List),
    S5 = block(Look, add(["br i1 ", Is, ", label %", Look, ", label %", Other], S4)),
    S6 = add(["switch i64 ", V, ", label %", Other, " [",
              [["i64 ", n(K), ", label %", Label, " "]
               || {{K, _}, Label} <- lists:zip(List, Labels)], "]"], S5),
    S7 = lists:foldl(fun({{_, To}, Label}, S) -> edge(N, L, To, F, block(Label, S)) end, S6,
                     lists:zip(List, Labels)),
    edge(N, L, Else, F, block(Other, S7)).

switch(V, Else, List, N, L, F, S0) ->
    S = lists:foldl(fun({K, To}, S1) ->
                        {C, S2} = erlane_native_cmp:compare('=:=', use(V, S1), use({c, K}, S1), S1),
                        {Yes, S3} = erlane_native_out:label(S2),
                        {No, S4} = erlane_native_out:label(S3),
                        S5 = add(["br i1 ", C, ", label %", Yes, ", label %", No], S4),
                        block(No, edge(N, L, To, F, block(Yes, S5)))
                    end, S0, List),
    edge(N, L, Else, F, S).
%% A term at the end of all: a buffer is not needed any more.
final({buf, Used}, S) -> erlane_native_build:finish(Used, S);
final(Value, S) -> term(Value, S).

%% What came from elsewhere may look like an order of ours: then BEAM gives it as its own result.
no_order({term, T}, M, S0) ->
    {C, S} = add(value, ["call i1 @order(i8* %env, i64 ", T, ", i64 ", M, ")"], S0),
    all_beam(C, S);
no_order({tuple, [{term, First}, _, _]}, M, S0) ->
    {C, S} = add(value, ["icmp eq i64 ", First, ", ", M], S0),
    all_beam(C, S);
no_order({tuple, [{k, First}, _, _]}, _, S) -> not_marker(First, S);
no_order({k, {First, _, _}}, _, S) -> not_marker(First, S);
no_order(_, _, S) -> S.

not_marker(First, S) ->
    First =/= marker() orelse throw({unsupported, "a result that begins with an atom of ours"}),
    S.

all_beam(Cond, S0) ->
    {Ok, S} = erlane_native_out:label(S0),
    block(Ok, add(["br i1 ", Cond, ", label %whole, label %", Ok, ", !prof !1"], S)).

%% To another block of the same function, with what its phi variables are on this way.
edge(N, From, To, #{blocks := Blocks, types := Types}, S0) ->
    {Ins, _} = maps:get(To, Blocks),
    {Stores, S1} = lists:mapfoldl(fun({Dst, As}, S) ->
                                      {V, _} = lists:keyfind(From, 2, As),
                                      store(phi_slot(N, Dst), maps:get(Dst, Types), use(V, S), S)
                                  end, S0, [{Dst, As} || {Dst, phi, As, _} <- Ins]),
    S2 = add(["br label %", label(N, To)],
             lists:foldl(fun(Store, S) -> Store(S) end, S1, Stores)),
    %% What was found out on this way is not known on others.
    erlane_native_out:keep(S0, S2).

%% The ways out: a result, the definition from the start, a head to go on from.
leave(Success, #{heads := Heads, functions := Fs} = S0) ->
    S1 = maps:fold(fun(FA, N, S) -> hand_back(FA, N, maps:get(FA, Fs), S) end, S0,
                   Heads),
    S2 = block("leave", S1),
    {A, S3} = add(value, "load i64, i64* %args", S2),
    {W, S4} = add(value, "load i64, i64* %where", S3),
    {M, S5} = erlane_native_out:atom(marker(), S4),
    {Where, S6} = add(value, ["call i64 @enif_make_long(i8* %env, i64 ", W, ")"], S5),
    {T, S7} = term({tuple, [{term, M}, {term, Where}, {term, A}]}, S6),
    S8 = add("br label %out", add(["store i64 ", T, ", i64* %ret"], S7)),
    S9 = add("br label %whole", erlane_native_meter:early(n(?FUEL), block("dwhole", S8))),
    {M2, S10} = erlane_native_out:atom(marker(), erlane_native_build:release(block("whole", S9))),
    S11 = block("good", add(["ret i64 ", M2], S10)),
    S12 = block("out", add("br label %out", erlane_native_out:raw(Success, S11))),
    %% A short call is free, or nearly; a longer one is told to the scheduler.
    {F, S13} = add(value, "load i64, i64* %fuel", S12),
    {C, S14} = add(value, ["icmp slt i64 ", F, ", ", n(?FUEL - ?FREE)], S13),
    S15 = block("pay", add(["br i1 ", C, ", label %pay, label %done"], S14)),
    {Used, S16} = add(value, ["sub i64 ", F, ", ", n(?FUEL)], S15),
    {_, S17} = add(value, ["call i32 @consume(i8* %env, i64 ", Used, ")"], S16),
    {R, S18} = add(value, "load i64, i64* %ret", block("done", add("br label %done", S17))),
    add(["ret i64 ", R], erlane_native_build:release(S18)).

hand_back(FA, N, #{params := Params, line := Line}, S0) ->
    H = n(N),
    %% For explain/1 what is handed back is no part of a line.
    Sy = erlane_native_out:line(Line, erlane_native_out:at(FA, N, block(["y", H], S0))),
    S1 = add("; line 0", Sy),
    S2 = case [I || {I, buf} <- indexed(Params)] of
             [I] ->
                 {{buf, Used}, Loaded} = load(["%a", H, "_", n(I)], buf, S1),
                 erlane_native_build:kept(Used, Loaded);
             [] -> S1
         end,
    S3 = add(["store i64 ", n(-1 - N), ", i64* %where"], erlane_native_rows:many(S2)),
    {_, S4} = add(value, "atomicrmw add i64* @yields, i64 1 monotonic", S3),
    S5 = block(["d", H], add(["br label %g", H], S4)),
    {Fuel, Sf} = add(value, "load i64, i64* %fuel", add(["store i64 ", H, ", i64* %where"], S5)),
    S6 = add(["br label %g", H], erlane_native_meter:early(Fuel, Sf)),
    {Ts, S7} = lists:mapfoldl(fun({I, T}, S) ->
                                  {V, Sa} = load(["%a", H, "_", n(I)], T, S),
                                  final(V, Sa)
                              end, block(["g", H], S6), indexed(Params)),
    {Kept, S8} = erlane_native_rows:kept(S7),
    {T, S9} = term({tuple, [{term, X} || X <- Ts ++ Kept]}, S8),
    add("br label %leave", add(["store i64 ", T, ", i64* %args"], S9)).

indexed(List) -> lists:zip(seq(List), List).

n(I) when is_integer(I) -> integer_to_list(I).
