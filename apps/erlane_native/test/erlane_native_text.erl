%% SPDX-License-Identifier: Apache-2.0
%% Random programs as Erlang text, and what is a little smaller than a program.
-module(erlane_native_text).

-export([functions/1, function/2, smaller/1, expr/1, less/1, each/2]).

%% @doc The text of a module, but for its name, with these programs, f1/3 and so on.
-spec functions([erlane_native_gen:program()]) -> iodata().
functions(Programs) ->
    Functions = ["f" ++ integer_to_list(I) || I <- lists:seq(1, length(Programs))],
    List = lists:join(", ", [[F, "/3"] || F <- Functions]),
    ["-export([", List, "]).\n-native([", List, "]).\n\n",
     [[function(F, P), $\n] || {F, P} <- lists:zip(Functions, Programs)]].

%% @doc The text of one.
-spec function(string(), erlane_native_gen:program()) -> iodata().
function(F, {expr, Guard, E}) -> [F, "(A, B, C)", 'when'(Guard), " ->\n    ", text(E), ".\n"];
function(F, {loop, _, Guard, Count, Clauses, End}) ->
    Loop = F ++ "_l",
    [F, "(A, B, C)", 'when'(Guard), " -> ", Loop, "(", integer_to_list(Count), ", A, B, C).\n\n",
     Loop, "(0, A, B, C) ->\n    ", text(End), ";\n",
     clauses(Loop, "I, A, B, C", "I - 1", Clauses)];
function(F, {scan, Clauses, End}) ->
    Loop = F ++ "_s",
    [F, "(A, B, C) -> ", Loop, "(A, B, C).\n\n",
     [[Loop, "(", binary(Segments), ", B, C)", 'when'(Cond), " ->\n    ", then(Loop, "R", Then),
       ";\n"] || {Cond, Then, Segments} <- Clauses],
     Loop, "(<<_/bitstring>>, B, C) ->\n    ", text(End), ".\n"];
function(F, {walk, Clauses, End}) ->
    Loop = F ++ "_w",
    [F, "(A, B, C) -> ", Loop, "(A, B, C).\n\n",
     Loop, "([], B, C) ->\n    ", text(End), ";\n",
     clauses(Loop, "[X | R], B, C", "R", Clauses)];
function(F, {recur, Guard, Count, Updates, E, End}) ->
    Loop = F ++ "_r",
    [F, "(A, B, C)", 'when'(Guard), " ->\n    ",
     Loop, "(", integer_to_list(Count), ", B, C) bxor A.\n\n",
     Loop, "(0, B, C) ->\n    ", text(End), ";\n",
     Loop, "(I, B, C) ->\n    R = ", then(Loop, "I - 1", {next, Updates}), ",\n    ",
     text(E), ".\n"];
function(F, Lists) -> erlane_native_gen_list:text(F, Lists).

%% @doc The text of an expression.
-spec expr(erlane_native_gen:expr()) -> iodata().
expr(E) -> text(E).

clauses(Loop, Head, Next, Clauses) ->
    [lists:join(";\n", [[Loop, "(", Head, ")", 'when'(Cond), " ->\n    ", then(Loop, Next, Then)]
                        || {Cond, Then} <- Clauses]), ".\n"].

then(_, _, {leave, E}) -> text(E);
then(Loop, Next, {next, Updates}) ->
    [Loop, "(", lists:join(",\n        ", [Next | [text(E) || E <- Updates]]), ")"].

binary(Segments) ->
    ["<<", [[value(Segment), ", "] || Segment <- Segments], "R/bitstring>>"].

value({'_', _, Literal}) -> Literal;
value({Name, _, Type}) -> [atom_to_list(Name), Type].

'when'(none) -> "";
'when'(Guard) -> [" when ", text(Guard)].

text({int, I}) when I < 0 -> ["(", integer_to_list(I), ")"];
text({int, I}) -> integer_to_list(I);
text({float, X}) -> io_lib:format("(~w)", [X]);
text({var, Name}) -> atom_to_list(Name);
text({op, Op, [E]}) when Op =:= '-'; Op =:= 'bnot'; Op =:= 'not' ->
    ["(", atom_to_list(Op), " ", text(E), ")"];
text({op, Op, Es}) ->
    Name = atom_to_list(Op),
    case lists:member(Op, [min, max]) orelse length(Es) =:= 1 of
        true -> [Name, "(", lists:join(", ", [text(E) || E <- Es]), ")"];
        false -> ["(", lists:join([" ", Name, " "], [text(E) || E <- Es]), ")"]
    end;
text({'if', Cond, A, B}) ->
    ["case ", text(Cond), " of\n        true -> ", text(A), ";\n        false -> ", text(B),
     "\n    end"];
text({match, E, Cases, Default}) ->
    ["case ", text(E), " of\n",
     [["        ", integer_to_list(I), " -> ", text(Then), ";\n"] || {I, Then} <- Cases],
     "        _ -> ", text(Default), "\n    end"];
text({'let', Name, A, B}) ->
    ["begin\n        ", atom_to_list(Name), " = ", text(A), ",\n        ", text(B), "\n    end"];
text({append, Name, Parts}) ->
    ["<<", atom_to_list(Name), "/bitstring",
     [io_lib:format(", (~ts):~b", [text(E), Bits]) || {E, Bits} <- Parts], ">>"];
text({element, I, Es}) ->
    ["element(", integer_to_list(I), ", {", lists:join(", ", [text(E) || E <- Es]), "})"].

%% @doc Programs that are smaller by one thing, the smallest first. Some of them may not compile.
-spec smaller(erlane_native_gen:program()) -> [erlane_native_gen:program()].
smaller(Lists) when element(1, Lists) =:= cells; element(1, Lists) =:= comp ->
    erlane_native_gen_list:smaller(Lists);
smaller({expr, Guard, E}) ->
    [{expr, none, E} || Guard =/= none] ++ [{expr, Guard, S} || S <- less(E)]
        ++ [{expr, S, E} || S <- less_guard(Guard)];
smaller({loop, Env, Guard, Count, Clauses, End}) ->
    [{loop, Env, none, Count, Clauses, End} || Guard =/= none]
        ++ [{loop, Env, Guard, N, Clauses, End} || N <- [1, 2, Count div 2, Count - 1],
                                                   N > 0, N < Count]
        ++ [{loop, Env, Guard, Count, Fewer, End} || Fewer <- fewer(Clauses)]
        ++ [{loop, Env, Guard, Count, Clauses, S} || S <- less(End)]
        ++ [{loop, Env, S, Count, Clauses, End} || S <- less_guard(Guard)];
smaller({Kind, Clauses, End}) ->
    [{Kind, Fewer, End} || Fewer <- fewer(Clauses)] ++ [{Kind, Clauses, S} || S <- less(End)];
smaller({recur, Guard, Count, Updates, E, End}) ->
    [{recur, none, Count, Updates, E, End} || Guard =/= none]
        ++ [{recur, Guard, N, Updates, E, End} || N <- [1, Count div 2], N > 0, N < Count]
        ++ [{recur, Guard, Count, S, E, End} || S <- each(fun less/1, Updates)]
        ++ [{recur, Guard, Count, Updates, S, End} || S <- less(E)]
        ++ [{recur, Guard, Count, Updates, E, S} || S <- less(End)].

fewer(Clauses) ->
    [lists:delete(C, Clauses) || length(Clauses) > 1, C <- lists:droplast(Clauses)]
        ++ each(fun less_clause/1, Clauses).

less_clause(Clause) ->
    Then = case element(2, Clause) of
               {leave, E} -> [{leave, S} || S <- less(E)];
               {next, Es} -> [{next, S} || S <- each(fun less/1, Es)]
           end,
    [setelement(1, Clause, S) || S <- less_guard(element(1, Clause))]
        ++ [setelement(2, Clause, T) || T <- Then].

less_guard(none) -> [];
less_guard({op, Op, [A, B]}) when Op =:= 'andalso'; Op =:= 'orelse' ->
    [A, B] ++ [{op, Op, [S, B]} || S <- less_guard(A)] ++ [{op, Op, [A, S]} || S <- less_guard(B)];
less_guard({op, 'not', [E]}) -> [E | [{op, 'not', [S]} || S <- less_guard(E)]];
less_guard({op, Op, Es}) -> [{op, Op, S} || S <- each(fun less/1, Es)].

%% @doc A part of it, or the same with one part smaller. The segments of a binary stay.
-spec less(erlane_native_gen:expr()) -> [erlane_native_gen:expr()].
less({int, 0}) -> [];
less({int, 1}) -> [{int, 0}];
less({int, _}) -> [{int, 0}, {int, 1}];
less({float, F}) when F == 0 -> [];
less({float, _}) -> [{float, 0.0}];
less({var, _}) -> [{int, 0}];
less({op, Op, Es}) -> Es ++ [{op, Op, S} || S <- each(fun less/1, Es)];
less({'if', Cond, A, B}) ->
    [A, B] ++ [{'if', S, A, B} || S <- less_guard(Cond)]
        ++ [{'if', Cond, S, B} || S <- less(A)] ++ [{'if', Cond, A, S} || S <- less(B)];
less({match, E, Cases, Default}) ->
    [E, Default] ++ [Then || {_, Then} <- Cases]
        ++ [{match, E, lists:delete(C, Cases), Default} || C <- Cases]
        ++ [{match, S, Cases, Default} || S <- less(E)]
        ++ [{match, E, Cases, S} || S <- less(Default)];
less({'let', Name, A, B}) ->
    [A, B] ++ [{'let', Name, S, B} || S <- less(A)] ++ [{'let', Name, A, S} || S <- less(B)];
less({append, Name, Parts}) ->
    [{append, Name, lists:delete(P, Parts)} || P <- Parts]
        ++ [{append, Name, S} || S <- each(fun({E, Bits}) -> [{L, Bits} || L <- less(E)] end,
                                           Parts)];
less({element, I, Es}) -> Es ++ [{element, I, S} || S <- each(fun less/1, Es)].

%% @doc Lists that differ in one element.
-spec each(fun((T) -> [T]), [T]) -> [[T]].
each(_, []) -> [];
each(Less, [E | Rest]) -> [[S | Rest] || S <- Less(E)] ++ [[E | S] || S <- each(Less, Rest)].
