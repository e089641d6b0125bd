%% SPDX-License-Identifier: Apache-2.0
%% Random programs that walk and build lists: the terms, their text, arguments for them, and what
%% is a little smaller. Expressions are those of erlane_native_gen.
%%
%%     {cells, Clauses, End}             a loop along A, with an accumulator; a clause is
%%                                       {Pattern, Cond, Then}
%%     {comp, Result, Generators, E}     a comprehension
%%
%% Then is {next, [E]}, {cons, Item, [E]}: an element more in the accumulator, {collect, Item, [E]}:
%% an element before what the rest gives, or {leave, Item}.
-module(erlane_native_gen_list).

-export([program/1, text/2, args/1, smaller/1]).

-import(erlane_native_gen, [expr/3, condition/2, updates/2, pick/1, ints/1]).

-type item() :: {num, erlane_native_gen:expr()} | {both, [item()]} | {list, [item()]} | acc
              | {atom, atom()} | element.
-type pattern() :: x | xs | pair | tagged | cell | {literal, term()} | any | bytes.
-type then() :: {next, [erlane_native_gen:expr()]} | {leave, item()}
              | {cons | collect, item(), [erlane_native_gen:expr()]}.
-type program() :: {cells, [{pattern(), none | erlane_native_gen:expr(), then()}], item()}
                 | {comp, list | binary, [{pattern() | bits, none | erlane_native_gen:expr()}],
                    item()}.

-export_type([program/0]).

%% @doc A program of this kind.
-spec program(cells | comp) -> program().
program(cells) ->
    {cells, [clause() || _ <- lists:seq(1, 1 + rand:uniform(3))], item(ints(['B', 'C']), 1)};
program(comp) ->
    Sources = [generator(I) || I <- lists:seq(1, pick([1, 1, 1, 2]))],
    Result = pick([list, list, binary]),
    Env = vars(Sources) ++ ints(['B', 'C']),
    {comp, Result, Sources, case Result of
                                list -> item(Env, 2);
                                binary -> {num, expr(int, 2, Env)}
                            end}.

clause() ->
    Pattern = pick([x, x, x, xs, pair, pair, tagged, cell, {literal, a}, {literal, []},
                    {literal, 7}, {literal, {a, 1}}, any, bytes]),
    State = ints(['B', 'C']),
    Env = bound(Pattern) ++ State,
    Then = case rand:uniform(10) of
               1 -> {leave, item(Env, 1)};
               N when N < 5 -> {cons, item(Env, 2), updates(Env, State)};
               N when N < 8 -> {collect, item(Env, 2), updates(Env, State)};
               _ -> {next, updates(Env, State)}
           end,
    {Pattern, case rand:uniform(2) of 1 -> none; 2 -> condition(2, Env) end, Then}.

bound(P) when P =:= x; P =:= bytes -> ints(['X']);
bound(P) when P =:= xs; P =:= pair; P =:= tagged; P =:= cell -> ints(['X', 'Y']);
bound(_) -> [].

%% The second one goes along C.
generator(_) ->
    Pattern = pick([x, x, x, pair, tagged, bits]),
    {Pattern, case rand:uniform(2) of
                  1 -> none;
                  2 -> condition(2, [{'X', int}])
              end}.

vars(Sources) -> lists:append([bound(case P of bits -> x; _ -> P end) || {P, _} <- Sources]).

item(Env, N) ->
    case rand:uniform(9) of
        1 when N > 0 -> {both, [item(Env, N - 1) || _ <- lists:seq(1, rand:uniform(3))]};
        2 when N > 0 -> {list, [item(Env, N - 1) || _ <- lists:seq(1, rand:uniform(2))]};
        3 -> {atom, pick([a, b, true])};
        4 -> {num, expr(float, 1, Env)};
        _ -> {num, expr(int, 2, Env)}
    end.

%% @doc The text of one.
-spec text(string(), program()) -> iodata().
text(F, {cells, Clauses, End}) ->
    Loop = F ++ "_l",
    [F, "(A, B, C) -> ", Loop, "(A, B, C, []).\n\n",
     [[Loop, "(", pattern(P), ", B, C, Acc)", 'when'(Cond), " ->\n    ", then(Loop, Then), ";\n"]
      || {P, Cond, Then} <- Clauses],
     Loop, "([], B, C, Acc) -> {", item(End), ", Acc};\n",
     %% What is of another kind, so that each program comes to its end.
     Loop, "([X | R], B, C, Acc) when is_atom(X); is_float(X); is_list(X) ->\n    ",
     Loop, "(R, B, C, Acc).\n"];
text(F, {comp, Result, Sources, E}) ->
    {Open, Close} = case Result of list -> {"[", "]"}; binary -> {"<< ", " >>"} end,
    [F, "(A, B, C) ->\n    ", Open,
     case Result of
         list -> item(E);
         binary -> ["<<(", item(E), "):8>>"]
     end, " || ",
     lists:join(", ", [[source(P, From), [[", ", erlane_native_text:expr(Cond)] || Cond =/= none]]
                       || {{P, Cond}, From} <- lists:zip(Sources,
                                                         lists:sublist(["A", "C"],
                                                                       length(Sources)))]),
     Close, ".\n"].

source(bits, From) -> ["<<X>> <= ", From];
source(P, From) -> [one(P), " <- ", From].

pattern(xs) -> "[X, Y | R]";
pattern(P) -> ["[", one(P), " | R]"].

one(x) -> "X";
one(pair) -> "{X, Y}";
one(tagged) -> "{point, X, Y}";
one(cell) -> "[X | Y]";
one(bytes) -> "<<X, _/binary>>";
one(any) -> "_";
one({literal, T}) -> io_lib:format("~w", [T]).

then(Loop, {next, Es}) -> [Loop, "(R, ", exprs(Es), ", Acc)"];
then(Loop, {cons, I, Es}) -> [Loop, "(R, ", exprs(Es), ", [", item(I), " | Acc])"];
then(Loop, {collect, I, Es}) -> ["[", item(I), " | ", Loop, "(R, ", exprs(Es), ", Acc)]"];
then(_, {leave, I}) -> item(I).

exprs(Es) -> lists:join(", ", [erlane_native_text:expr(E) || E <- Es]).

item({num, E}) -> erlane_native_text:expr(E);
item({atom, A}) -> atom_to_list(A);
item({both, Is}) -> ["{", lists:join(", ", [item(I) || I <- Is]), "}"];
item({list, Is}) -> ["[", lists:join(", ", [item(I) || I <- Is]), "]"].

'when'(none) -> "";
'when'(Guard) -> [" when ", erlane_native_text:expr(Guard)].

%% @doc Three arguments.
-spec args(program()) -> [term()].
args({cells, Clauses, _}) -> [elements([P || {P, _, _} <- Clauses]), int(), int()];
args({comp, _, Sources, _}) ->
    [First | More] = [case P of
                          bits -> rand:bytes(rand:uniform(9) - 1);
                          _ -> elements([P])
                      end || {P, _} <- Sources],
    [First, int(), hd(More ++ [int()])].

elements(Patterns) ->
    List = lists:append([like(pick(Patterns)) || _ <- lists:seq(1, rand:uniform(12))]),
    case rand:uniform(20) of
        1 -> List ++ int();
        2 -> pick([int(), a, {List}]);
        _ -> List
    end.

%% Mostly what the pattern takes.
like(P) ->
    case rand:uniform(25) of
        1 -> [pick([a, 1.5, 0.0, -0.0, [], {}, {1}, [1 | 2], <<1, 2>>, <<3:5>>, #{}, 1 bsl 59,
                    -(1 bsl 63), 1 bsl 64, 1 bsl 200, fun erlang:abs/1])];
        _ -> fits(P)
    end.

fits(x) -> [int()];
fits(xs) -> [int(), int()];
fits(pair) -> [{int(), int()}];
fits(tagged) -> [{point, int(), int()}];
fits(cell) -> [[int() | int()]];
fits(bytes) -> [rand:bytes(rand:uniform(3) - 1)];
fits(bits) -> [int()];
fits({literal, T}) -> [T];
fits(any) -> [pick([int(), a, {int(), 2}])].

int() ->
    case rand:uniform(5) of
        1 -> pick(erlane_native_kernels:edges());
        2 -> rand:uniform(1 bsl 60) - (1 bsl 59);
        _ -> rand:uniform(40) - 10
    end.

%% @doc Programs that are smaller by one thing.
-spec smaller(program()) -> [program()].
smaller({cells, Clauses, End}) ->
    [{cells, lists:delete(C, Clauses), End} || length(Clauses) > 1, C <- Clauses]
        ++ [{cells, Less, End} || Less <- erlane_native_text:each(fun less_clause/1, Clauses)]
        ++ [{cells, Clauses, I} || I <- less_item(End)];
smaller({comp, Result, Sources, E}) ->
    [{comp, Result, Less, E} || Less <- erlane_native_text:each(fun less_source/1, Sources)]
        ++ [{comp, Result, Sources, I} || I <- less_item(E)].

less_clause({P, Cond, Then}) ->
    [{P, none, Then} || Cond =/= none]
        ++ [{P, Cond, T} || T <- less_then(Then)].

less_then({leave, I}) -> [{leave, L} || L <- less_item(I)];
less_then({next, Es}) -> [{next, L} || L <- less_exprs(Es)];
less_then({Add, I, Es}) ->
    [{next, Es}] ++ [{Add, L, Es} || L <- less_item(I)] ++ [{Add, I, L} || L <- less_exprs(Es)].

less_exprs(Es) -> erlane_native_text:each(fun erlane_native_text:less/1, Es).

less_source({_, none}) -> [];
less_source({P, _}) -> [{P, none}].

less_item({num, E}) -> [{num, L} || L <- erlane_native_text:less(E)];
less_item({atom, _}) -> [{num, {int, 0}}];
less_item({Both, Is}) ->
    Is ++ [{Both, L} || L <- erlane_native_text:each(fun less_item/1, Is)].
