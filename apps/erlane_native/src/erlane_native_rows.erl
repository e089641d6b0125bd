%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of lists whose elements a loop pushes, from the first to the last one. Pure.
%%
%% Elements are words in a row on the native stack, one for each call from outside; a function that
%% is called in between goes on behind what its caller has, and leaves it as it was. A list is made
%% of them at once when the row is full or the function is left, which costs a third of what single
%% cells do. What is made so goes on where the last part ended: its last cell, which nobody has seen
%% yet, gets the next part for a tail.
%%
%% When a loop gives way or hands back, what there is becomes a list that is kept, in front of those
%% kept before. With such the result is `{Marker, join, {Lists, Rest}}', and BEAM puts all together.
-module(erlane_native_rows).

-export([memory/2, parameters/1, arguments/1, push/2, store/1, close/2, kept/1, many/1, again/3,
         result/3, functions/0]).

-import(erlane_native_out, [add/2, add/3, deopt_unless/3, block/2]).

%% Words of the row: 16 kB of a stack that has 160 kB at least.
-define(WORDS, 2048).
%% What one turn may push.
-define(TURN, 64).
%% Lists that may be kept.
-define(KEPT, 2).

-type state() :: erlane_native_out:state().

%% @doc Memory of a machine function: the row itself, if it is the first of a unit that has one, and
%% what this function has of it.
-spec memory(top | call, state()) -> iodata().
memory(Mode, #{rows := true} = S) ->
    [case Mode of
         top -> ["  %row = alloca [", n(?WORDS), " x i64]\n",
                 "  %rowp = bitcast [", n(?WORDS), " x i64]* %row to i64*\n",
                 "  %mark = add i64 0, 0\n"];
         call -> []
     end,
     case S of
         #{collects := true} ->
             ["  %top = alloca i64\n  %first = alloca i64\n  %last = alloca i64\n",
              "  store i64 %mark, i64* %top\n  store i64 0, i64* %first\n",
              "  store i64 0, i64* %last\n",
              case Mode of
                  top -> "  %kept = alloca i64\n  store i64 0, i64* %kept\n";
                  call -> []
              end];
         _ -> []
     end];
memory(_, _) -> [].

%% @doc The same for the parameters of a function that is called.
-spec parameters(state()) -> iodata().
parameters(#{rows := true}) -> ", i64* %rowp, i64 %mark";
parameters(_) -> [].

%% @doc What a call hands on.
-spec arguments(state()) -> {iodata(), state()}.
arguments(#{rows := true, collects := true} = S0) ->
    {Top, S} = add(value, "load i64, i64* %top", S0),
    {[", i64* %rowp, i64 ", Top], S};
arguments(#{rows := true} = S) -> {", i64* %rowp, i64 %mark", S};
arguments(S) -> {[], S}.

%% @doc Sees to it that there is room for one more; it is stored by `store/1', when nothing can fail
%% any more.
-spec push(erlane_native_out:name(), state()) -> state().
push(T, #{pushed := Pushed} = S0) ->
    {Top, S1} = add(value, "load i64, i64* %top", S0),
    {Room, S2} = add(value, ["icmp ult i64 ", Top, ", ", n(?WORDS - ?TURN)], S1),
    {Ok, S3} = erlane_native_out:label(S2),
    {Full, S4} = erlane_native_out:label(S3),
    S5 = block(Full, add(["br i1 ", Room, ", label %", Ok, ", label %", Full, ", !prof !0"], S4)),
    %% All that is there may be of functions that wait for this one.
    {Own, S6} = add(value, ["icmp ult i64 %mark, ", n(?WORDS - ?TURN)], S5),
    S7 = deopt_unless(Own, "too many lists are being made at the same time", S6),
    {First, S8} = add(value, "load i64, i64* %first", S7),
    {Last, S9} = add(value, "load i64, i64* %last", S8),
    {R, S10} = add(value, ["call { i64, i64 } @term_part(i8* %env, i64* %rowp, i64 %mark, i64 ",
                           Top, ", i64 ", First, ", i64 ", Last, ")"], S9),
    {F, S11} = add(value, ["extractvalue { i64, i64 } ", R, ", 0"], S10),
    {L, S12} = add(value, ["extractvalue { i64, i64 } ", R, ", 1"], S11),
    S13 = add(["store i64 ", L, ", i64* %last"], add(["store i64 ", F, ", i64* %first"], S12)),
    S14 = erlane_native_out:charge(?WORDS, add("store i64 %mark, i64* %top", S13)),
    (block(Ok, add(["br label %", Ok], S14)))#{pushed := [T | Pushed]}.

%% @doc Stores what was pushed in this block.
-spec store(state()) -> state().
store(#{pushed := []} = S) -> S;
store(#{pushed := Pushed} = S0) ->
    {Top, S1} = add(value, "load i64, i64* %top", S0),
    {End, S} = lists:foldl(
                 fun(T, {At, Sa}) ->
                     {P, Sb} = add(value, ["getelementptr i64, i64* %rowp, i64 ", At], Sa),
                     add(value, ["add i64 ", At, ", 1"], add(["store i64 ", T, ", i64* ", P], Sb))
                 end, {Top, S1}, lists:reverse(Pushed)),
    add(["store i64 ", End, ", i64* %top"], S#{pushed := []}).

%% @doc The list of all that was pushed, with this behind it.
-spec close(erlane_native_out:name(), state()) -> {erlane_native_out:name(), state()}.
close(Tail, #{collects := true} = S0) ->
    {[Top, First, Last], S} = lists:mapfoldl(fun(V, Sx) ->
                                                 add(value, ["load i64, i64* ", V], Sx)
                                             end, S0, ["%top", "%first", "%last"]),
    add(value, ["call i64 @term_row(i8* %env, i64* %rowp, i64 %mark, i64 ", Top, ", i64 ", First,
                ", i64 ", Last, ", i64 ", Tail, ")"], S);
close(Tail, S) -> {Tail, S}.

%% @doc What was kept, with what there is now in front of it: an argument more of what is handed
%% back.
-spec kept(state()) -> {[erlane_native_out:name()], state()}.
kept(#{collects := true} = S0) ->
    {Nil, S1} = erlane_native_out:atom([], S0),
    {List, S2} = close(Nil, S1),
    {Before, S3} = add(value, "load i64, i64* %kept", S2),
    {None, S4} = add(value, ["icmp eq i64 ", List, ", ", Nil], S3),
    {Never, S5} = add(value, ["icmp eq i64 ", Before, ", 0"], S4),
    {Kept, S6} = add(value, ["select i1 ", Never, ", i64 ", Nil, ", i64 ", Before], S5),
    {All, S7} = add(value, ["call i64 @enif_make_list_cell(i8* %env, i64 ", List, ", i64 ", Kept,
                            ")"], S6),
    {R, S} = add(value, ["select i1 ", None, ", i64 ", Kept, ", i64 ", All], S7),
    {[R], S};
kept(S) -> {[], S}.

%% @doc Where a loop is to give way: with so much kept that putting it together takes longer than
%% BEAM does for all of it, BEAM has the rest.
-spec many(state()) -> state().
many(#{collects := true, options := Options} = S0) when not is_map_key(yield, Options) ->
    {Kept, S1} = add(value, "load i64, i64* %kept", S0),
    {C, S2} = add(value, ["call i1 @term_few(i64 ", Kept, ")"],
                  add("store i64 0, i64* %fuel", S1)),
    deopt_unless(C, "a list has so many elements that BEAM makes the rest", S2);
many(S) -> S.

%% @doc After giving way: what was kept stands behind the arguments, if something does.
-spec again(iodata(), arity(), state()) -> state().
again(_, 0, #{collects := true}) -> throw({unsupported, "a list of a loop without arguments"});
again(Elements, Arity, #{collects := true} = S0) ->
    {Count, S1} = add(value, "load i32, i32* %count", S0),
    {More, S2} = add(value, ["icmp sgt i32 ", Count, ", ", n(Arity)], S1),
    {I, S3} = add(value, ["select i1 ", More, ", i64 ", n(Arity), ", i64 0"], S2),
    {P, S4} = add(value, ["getelementptr i64, i64* ", Elements, ", i64 ", I], S3),
    {K, S5} = add(value, ["load i64, i64* ", P], S4),
    {Kept, S} = add(value, ["select i1 ", More, ", i64 ", K, ", i64 0"], S5),
    add(["store i64 ", Kept, ", i64* %kept"], S);
again(_, _, S) -> S.

%% @doc Stores the result of a call from outside: a value, or what BEAM is to put together.
-spec result(erlane_native_out:name(), erlane_native_out:name(), state()) -> state().
result(Value, Marker, #{collects := true} = S0) ->
    {T, S1} = close(Value, S0),
    {Kept, S2} = add(value, "load i64, i64* %kept", add(["store i64 ", T, ", i64* %ret"], S1)),
    {Nil, S3} = erlane_native_out:atom([], S2),
    {Never, S4} = add(value, ["icmp eq i64 ", Kept, ", 0"], S3),
    {Empty, S5} = add(value, ["icmp eq i64 ", Kept, ", ", Nil], S4),
    {None, S6} = add(value, ["or i1 ", Never, ", ", Empty], S5),
    {Join, S7} = erlane_native_out:label(S6),
    S8 = block(Join, add(["br i1 ", None, ", label %good, label %", Join, ", !prof !0"], S7)),
    {J, S9} = erlane_native_out:term({tuple, [{term, Marker}, {k, join},
                                              {tuple, [{term, Kept}, {term, T}]}]}, S8),
    add("br label %good", add(["store i64 ", J, ", i64* %ret"], S9));
result(Value, _, S) -> add("br label %good", add(["store i64 ", Value, ", i64* %ret"], S)).

%% What changes a list or a tuple as a whole: answers how many elements it has, less than nothing
%% where it cannot be done.
wholes() ->
    No = "  ret { i64, i64 } { i64 -1, i64 0 }\n",
    Give = ["  %r0 = insertvalue { i64, i64 } undef, i64 %n, 0\n",
            "  %r1 = insertvalue { i64, i64 } %r0, i64 %x, 1\n  ret { i64, i64 } %r1\n"],
    ["define internal { i64, i64 } @term_reverse(i8* %env, i64 %t, i64 %nil, i64 %tail) ",
     "noinline {\nentry:\n  %a = alloca [", n(?WORDS), " x i64]\n",
     "  %row = bitcast [", n(?WORDS), " x i64]* %a to i64*\n  br label %loop\nloop:\n",
     "  %l = phi i64 [ %t, %entry ], [ %tl, %cell ]\n  %n = phi i64 [ 0, %entry ], [ %m, %cell ]\n",
     "  %i = phi i64 [ ", n(?WORDS), ", %entry ], [ %j, %cell ]\n",
     "  %tag = and i64 %l, 3\n  %is = icmp eq i64 %tag, 1\n  br i1 %is, label %more, label %end\n",
     "more:\n  %full = icmp eq i64 %i, 0\n  br i1 %full, label %no, label %cell\ncell:\n",
     "  %h = sub i64 %l, 1\n  %hp = inttoptr i64 %h to i64*\n  %hd = load i64, i64* %hp\n",
     "  %tp = getelementptr i64, i64* %hp, i64 1\n  %tl = load i64, i64* %tp\n",
     "  %j = sub i64 %i, 1\n  %p = getelementptr i64, i64* %row, i64 %j\n",
     "  store i64 %hd, i64* %p\n  %m = add i64 %n, 1\n  br label %loop\nend:\n",
     "  %proper = icmp eq i64 %l, %nil\n  br i1 %proper, label %list, label %no\nno:\n", No,
     "list:\n  %from = getelementptr i64, i64* %row, i64 %i\n  %top = add i64 %i, %n\n",
     "  %x = call i64 @term_row(i8* %env, i64* %row, i64 %i, i64 %top, i64 0, i64 0, i64 %tail)\n",
     Give, "}\n",
     "define internal { i64, i64 } @term_setelement(i8* %env, i64 %i, i64 %t, i64 %v) noinline {\n",
     "  %a = alloca [256 x i64]\n  %row = bitcast [256 x i64]* %a to i64*\n",
     "  %u = call { i1, i64, i64* } @term_get_tuple(i64 %t)\n",
     "  %n = extractvalue { i1, i64, i64* } %u, 1\n  %e = extractvalue { i1, i64, i64* } %u, 2\n",
     "  %low = icmp sge i64 %i, 1\n  %high = icmp sle i64 %i, %n\n  %some = icmp sle i64 %n, 255\n",
     "  %in = and i1 %low, %high\n  %ok = and i1 %in, %some\n",
     "  br i1 %ok, label %yes, label %no\nno:\n", No, "yes:\n",
     "  %bytes = shl i64 %n, 3\n  %rb = bitcast i64* %row to i8*\n  %eb = bitcast i64* %e to i8*\n",
     "  %c = call i8* @memcpy(i8* %rb, i8* %eb, i64 %bytes)\n",
     "  %j = sub i64 %i, 1\n  %p = getelementptr i64, i64* %row, i64 %j\n",
     "  store i64 %v, i64* %p\n  %n32 = trunc i64 %n to i32\n",
     "  %x = call i64 @enif_make_tuple_from_array(i8* %env, i64* %row, i32 %n32)\n", Give, "}\n"].

%% @doc What makes lists of rows. Cells that are made at once stand one after the other, as the
%% probe found out.
-spec functions() -> iodata().
functions() ->
    ["define internal { i64, i64 } @term_part(i8* %env, i64* %row, i64 %mark, i64 %top, ",
     "i64 %first, i64 %last) noinline cold {\n",
     "  %n = sub i64 %top, %mark\n  %n32 = trunc i64 %n to i32\n",
     "  %p = getelementptr i64, i64* %row, i64 %mark\n",
     "  %l = call i64 @enif_make_list_from_array(i8* %env, i64* %p, i32 %n32)\n",
     "  %n1 = sub i64 %n, 1\n  %bytes = shl i64 %n1, 4\n  %end = add i64 %l, %bytes\n",
     "  %r0 = insertvalue { i64, i64 } undef, i64 %end, 1\n",
     "  %some = icmp ne i64 %first, 0\n  br i1 %some, label %more, label %new\nnew:\n",
     "  %r1 = insertvalue { i64, i64 } %r0, i64 %l, 0\n  ret { i64, i64 } %r1\nmore:\n",
     "  %a = add i64 %last, 7\n  %q = inttoptr i64 %a to i64*\n  store i64 %l, i64* %q\n",
     "  %r2 = insertvalue { i64, i64 } %r0, i64 %first, 0\n  ret { i64, i64 } %r2\n}\n",
     "define internal i64 @term_row(i8* %env, i64* %row, i64 %mark, i64 %top, i64 %first, ",
     "i64 %last, i64 %tail) noinline {\nentry:\n",
     "  %none = icmp eq i64 %top, %mark\n  br i1 %none, label %behind, label %cells\ncells:\n",
     "  %n = sub i64 %top, %mark\n  %n32 = trunc i64 %n to i32\n",
     "  %p = getelementptr i64, i64* %row, i64 %mark\n",
     "  %l = call i64 @enif_make_list_from_array(i8* %env, i64* %p, i32 %n32)\n",
     "  %n1 = sub i64 %n, 1\n  %bytes = shl i64 %n1, 4\n  %end = add i64 %l, %bytes\n",
     "  %a = add i64 %end, 7\n  %q = inttoptr i64 %a to i64*\n  store i64 %tail, i64* %q\n",
     "  br label %behind\nbehind:\n  %rest = phi i64 [ %tail, %entry ], [ %l, %cells ]\n",
     "  %some = icmp ne i64 %first, 0\n  br i1 %some, label %more, label %new\nnew:\n",
     "  ret i64 %rest\nmore:\n",
     "  %b = add i64 %last, 7\n  %r = inttoptr i64 %b to i64*\n  store i64 %rest, i64* %r\n",
     "  ret i64 %first\n}\n",
     "define internal i1 @term_few(i64 %list) noinline cold {\nentry:\n  br label %loop\nloop:\n",
     "  %l = phi i64 [ %list, %entry ], [ %tl, %cell ]\n",
     "  %n = phi i64 [ 0, %entry ], [ %m, %cell ]\n",
     "  %tag = and i64 %l, 3\n  %is = icmp eq i64 %tag, 1\n",
     "  %few = icmp ult i64 %n, ", n(?KEPT), "\n",
     "  %go = and i1 %is, %few\n  br i1 %go, label %cell, label %done\ncell:\n",
     "  %a = add i64 %l, 7\n  %p = inttoptr i64 %a to i64*\n  %tl = load i64, i64* %p\n",
     "  %m = add i64 %n, 1\n  br label %loop\ndone:\n  ret i1 %few\n}\n", wholes()].

n(I) -> integer_to_list(I).
