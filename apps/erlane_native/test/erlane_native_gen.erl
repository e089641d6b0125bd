%% SPDX-License-Identifier: Apache-2.0
%% Random programs inside the subset, as terms: what they do is all that is random about them; they
%% all end, and their numbers stay of a size. erlane_native_text writes them as Erlang. The random
%% numbers are those of `rand' in the calling process, so a seed gives the same programs again.
%%
%% A program is a function of three arguments and what it calls:
%%
%%     {expr, Guard, E}                         f(A, B, C) when Guard -> E.
%%     {loop, Env, Guard, Count, Clauses, End}  a tail call from each clause to the next round
%%     {scan, Clauses, End}                     the same along a binary, A
%%     {walk, Clauses, End}                     the same along a list, A
%%     {recur, Guard, Count, Updates, E, End}   a call that is not a tail call
%%     {cells | comp, ...}                      lists: see erlane_native_gen_list
%%
%% A clause is `{Cond, {next, [E]}}' or `{Cond, {leave, E}}', in `scan' with the segments it takes.
-module(erlane_native_gen).

-export([program/1, args/1, kinds/0]).
-export([expr/3, condition/2, updates/2, pick/1, ints/1]).

-export_type([program/0, expr/0, kind/0]).

-type kind() :: expr | loop | float | scan | build | walk | recur | cells | comp.
-type type() :: int | float | bin.
-type expr() :: {int, integer()} | {float, float()} | {var, atom()} | {op, atom(), [expr()]}
              | {'if', expr(), expr(), expr()} | {match, expr(), [{integer(), expr()}], expr()}
              | {'let', atom(), expr(), expr()} | {append, atom(), [{expr(), pos_integer()}]}
              | {element, pos_integer(), [expr()]}.
-type env() :: [{atom(), type()}].
-type guard() :: none | expr().
-type clause() :: {guard(), {next, [expr()]} | {leave, expr()}}
                | {guard(), {next, [expr()]} | {leave, expr()}, [{atom(), type(), iodata()}]}.
-type program() :: {expr, guard(), expr()}
                 | {loop, env(), guard(), pos_integer(), [clause()], expr()}
                 | {scan | walk, [clause()], expr()}
                 | {recur, guard(), pos_integer(), [expr()], expr(), expr()}
                 | erlane_native_gen_list:program().

%% @doc Kinds of programs, by what a translator has to know for them.
-spec kinds() -> [kind()].
kinds() -> [expr, loop, float, scan, build, walk, recur, cells, comp].

%% @doc A program of this kind.
-spec program(kind()) -> program().
program(expr) ->
    Env = ints(['A', 'B', 'C']),
    {expr, guard(Env), expr(int, 4, Env)};
program(loop) -> loop(ints(['A', 'B', 'C']));
program(float) -> loop([{'A', float}, {'B', float}, {'C', int}]);
program(scan) ->
    Env = ints(['B', 'C']),
    {scan, clauses(1 + rand:uniform(2), fun() -> scan_clause(Env) end), expr(int, 2, Env)};
program(build) ->
    Env = [{'B', int}, {'C', bin}],
    {scan, clauses(rand:uniform(2), fun() -> scan_clause(Env) end), {var, 'C'}};
program(walk) ->
    Env = ints(['B', 'C']),
    With = [{'X', int} | Env],
    {walk, clauses(rand:uniform(2), fun() -> clause(With, Env) end), expr(int, 2, Env)};
program(recur) ->
    Env = ints(['B', 'C']),
    {recur, guard(ints(['A', 'B', 'C'])), rand:uniform(12), updates(Env, Env),
     bounded(expr(int, 2, [{'R', int} | Env])), expr(int, 2, Env)};
program(Kind) -> erlane_native_gen_list:program(Kind).

loop(Env) ->
    Clauses = clauses(rand:uniform(3), fun() -> clause([{'I', int} | Env], Env) end),
    {loop, Env, guard(Env), rand:uniform(40), Clauses, expr(hd(types(Env)), 3, Env)}.

%% Some with a condition, the last one without.
clauses(1, One) -> [setelement(1, One(), none)];
clauses(N, One) -> [One() | clauses(N - 1, One)].

clause(Env, State) ->
    {condition(2, Env), case rand:uniform(6) of
                            1 -> {leave, expr(hd(types(State)), 2, Env)};
                            _ -> {next, updates(Env, State)}
                        end}.

%% Whole bytes, mostly.
scan_clause(Env) ->
    Whole = rand:uniform(4) > 1,
    Segments = [segment(I, Whole) || I <- lists:seq(1, rand:uniform(3))],
    With = [{Name, Type} || {Name, Type, _} <- Segments, Name =/= '_'] ++ Env,
    {Cond, Then} = clause(With, Env),
    {Cond, Then, Segments}.

%% Its variable, what that is, its text.
segment(I, Whole) ->
    Name = list_to_atom("S" ++ integer_to_list(I)),
    case rand:uniform(12) of
        1 -> {'_', int, pick(["7", "255", "2:16"])};
        2 -> {Name, int, "/utf8"};
        3 -> {Name, float, pick([":64/float", ":32/float", ":64/float-little"])};
        N when N < 7 -> {Name, int, ""};
        _ when Whole -> field(Name, pick([8, 16, 16, 24, 32, 40, 48, 64]));
        _ -> field(Name, pick([1, 3, 4, 5, 7, 9, 12, 33, 59, 60, 63]))
    end.

field(Name, Bits) ->
    {Name, int, io_lib:format(":~b/~s-~s", [Bits, pick(["signed", "unsigned"]),
                                            pick(["big", "little"])])}.

%% @doc What a loop's variables become. Numbers that grow without bound would take all the time.
-spec updates(env(), env()) -> [expr()].
updates(Env, State) -> [update(Name, Type, Env) || {Name, Type} <- State].

update(Name, bin, Env) ->
    {append, Name, [{expr(int, 1, Env), pick([8, 8, 8, 1, 4, 16, 32, 64, 12])}
                    || _ <- lists:seq(1, rand:uniform(3) - 1)]};
update(Name, Type, Env) ->
    case rand:uniform(4) of
        1 -> {var, Name};
        _ when Type =:= float -> expr(float, 3, Env);
        2 -> {op, pick(['+', '-']), [{var, Name}, {int, literal()}]};
        _ -> bounded(expr(int, 3, Env))
    end.

bounded(E) ->
    {op, 'band', [E, {int, (1 bsl pick([8, 16, 31, 32, 53, 58, 59, 60, 63, 64, 64, 64])) - 1}]}.

guard(Env) ->
    case rand:uniform(3) of
        1 -> none;
        2 -> all([{op, test(Type), [{var, Name}]} || {Name, Type} <- Env]);
        3 -> all([E || Var <- Env, E <- [{op, test(element(2, Var)), [{var, element(1, Var)}]}
                                         | [limit(Var) || rand:uniform(2) =:= 1]]])
    end.

%% Most arguments are within.
limit({Name, Type}) ->
    {Op, Sign} = pick([{'>=', -1}, {'>', -1}, {'=<', 1}, {'<', 1}]),
    {op, Op, [{var, Name}, {Type, Sign * abs(bound(Type))}]}.

test(int) -> is_integer;
test(float) -> is_float.

bound(int) -> literal();
bound(float) -> float_literal().

all([E]) -> E;
all([E | Rest]) -> {op, 'andalso', [E, all(Rest)]}.

%%
%% Expressions
%%

%% An expression that is mostly of this type; a few are of another one.
-spec expr(int | float, non_neg_integer(), env()) -> expr().
expr(int, Size, Env) ->
    case rand:uniform(400) of
        1 -> expr(float, min(Size, 1), Env);
        _ -> int(Size, Env)
    end;
expr(float, Size, Env) ->
    case rand:uniform(60) of
        1 -> int(min(Size, 1), Env);
        _ -> float(Size, Env)
    end.

int(0, Env) -> leaf(int, Env);
int(Size, Env) ->
    N = Size - 1,
    case rand:uniform(20) of
        X when X =< 8 -> {op, pick(['+', '-', '*', '+', '-', 'band', 'bor', 'bxor']),
                          [expr(int, N, Env), expr(int, N, Env)]};
        X when X =< 10 -> {op, pick(['div', 'rem']), [expr(int, N, Env), divisor(N, Env)]};
        X when X =< 12 -> {op, pick(['bsl', 'bsr']), [expr(int, N, Env), shift(N, Env)]};
        13 -> {op, pick(['-', 'bnot', abs]), [expr(int, N, Env)]};
        14 -> {op, pick([min, max]), [expr(int, N, Env), expr(int, N, Env)]};
        15 ->
            Cases = lists:usort([0, 1, literal()]),
            {match, expr(int, N, Env), [{I, expr(int, N, Env)} || I <- Cases], expr(int, N, Env)};
        16 -> {op, pick([trunc, round, ceil, floor]), [float(min(N, 1), Env)]};
        17 -> {element, rand:uniform(2), [expr(int, N, Env), expr(int, N, Env)]};
        X when X =< 18 -> branch(int, N, Env);
        _ -> binding(int, N, Env)
    end.

float(0, Env) -> leaf(float, Env);
float(Size, Env) ->
    N = Size - 1,
    case rand:uniform(12) of
        X when X =< 7 -> {op, pick(['+', '-', '*', '/', '+', '*']),
                          [expr(float, N, Env), expr(float, N, Env)]};
        8 -> {op, pick(['-', abs]), [expr(float, N, Env)]};
        9 -> {op, 'math:sqrt', [{op, abs, [expr(float, N, Env)]}]};
        10 -> {op, float, [expr(int, min(N, 1), Env)]};
        11 -> branch(float, N, Env);
        12 -> binding(float, N, Env)
    end.

branch(Type, N, Env) -> {'if', condition(N, Env), expr(Type, N, Env), expr(Type, N, Env)}.

binding(Type, N, Env) ->
    Name = list_to_atom("V" ++ integer_to_list(rand:uniform(1 bsl 24))),
    {'let', Name, expr(Type, N, Env), expr(Type, N, [{Name, Type} | Env])}.

leaf(Type, Env) ->
    case [Name || {Name, T} <- Env, T =:= Type] of
        [_ | _] = Names ->
            case rand:uniform(3) of
                1 -> constant(Type);
                _ -> {var, pick(Names)}
            end;
        [] -> constant(Type)
    end.

constant(int) -> {int, literal()};
constant(float) -> {float, float_literal()}.

%% @doc What a program may have in a guard.
-spec condition(non_neg_integer(), env()) -> expr().
condition(N, Env) ->
    Size = min(N, 1),
    case rand:uniform(8) of
        1 -> {op, pick(['andalso', 'orelse']), [condition(N, Env), condition(N, Env)]};
        2 -> {op, 'not', [condition(N, Env)]};
        3 -> {op, pick([is_integer, is_float, is_number]), [leaf(int, Env)]};
        4 ->
            {op, '=:=', [{op, 'band', [leaf(int, Env), {int, pick([1, 3, 128])}]},
                         {int, pick([0, 1])}]};
        5 -> {op, comparison(), [plain(float, Size, Env), plain(float, Size, Env)]};
        _ -> {op, comparison(), [plain(int, Size, Env), plain(int, Size, Env)]}
    end.

plain(Type, 0, Env) -> leaf(Type, Env);
plain(Type, 1, Env) ->
    case Type of
        int -> {op, pick(['+', '-', '*', 'band', 'bxor', 'bsr', 'rem']),
                [leaf(int, Env), {int, pick([1, 2, 7, 60])}]};
        float -> {op, pick(['+', '-', '*']), [leaf(float, Env), leaf(float, Env)]}
    end.

comparison() -> pick(['<', '>', '=<', '>=', '==', '/=', '=:=', '=/=']).

divisor(N, Env) ->
    case rand:uniform(3) of
        1 -> {int, literal()};
        2 -> {op, 'bor', [expr(int, N, Env), {int, 1}]};
        3 -> expr(int, N, Env)
    end.

%% Not far: a number of 2^64 bits would be no test.
shift(N, Env) ->
    case rand:uniform(4) of
        1 -> {op, 'band', [expr(int, N, Env), {int, pick([7, 63, 127])}]};
        2 -> {op, '-', [{op, 'band', [expr(int, N, Env), {int, 127}]}, {int, pick([0, 64])}]};
        _ -> {int, pick([0, 1, 2, 5, 8, 13, 31, 32, 59, 60, 63, 64, 65, 100, -1, -3, -64])}
    end.

%%
%% Values
%%

literal() ->
    case rand:uniform(3) of
        1 -> rand:uniform(20) - 10;
        2 -> pick(erlane_native_kernels:edges());
        3 -> pick([2, 3, 7, 10, 255, 256, 1000, 65521, 16#01000193, 16#100000001B3, -1, 0, 1])
    end.

float_literal() ->
    case rand:uniform(2) of
        1 -> pick([0.0, 1.0, 2.0, 0.5, -1.5, 0.1, 10.0, 3.9]);
        2 -> pick(erlane_native_kernels:float_edges())
    end.

%% @doc Three arguments for a program, mostly of the types it is made for.
-spec args(program()) -> [term()].
args({scan, _, {var, 'C'}}) -> [value(bin), value(int), <<>>];
args({scan, _, _}) -> [value(bin), value(int), value(int)];
args({walk, _, _}) -> [[value(int) || _ <- lists:seq(1, rand:uniform(6))], value(int), value(int)];
args({loop, Env, _, _, _, _}) -> [value(Type) || Type <- types(Env)];
args(Lists) when element(1, Lists) =:= cells; element(1, Lists) =:= comp ->
    erlane_native_gen_list:args(Lists);
args(_) -> [value(int) || _ <- "ABC"].

value(Type) ->
    case rand:uniform(25) of
        1 -> pick([atom, 1.5, [], {1, 2}, <<1:3>>, #{}, "text", 1 bsl 64]);
        _ -> value_of(Type)
    end.

value_of(int) ->
    case rand:uniform(4) of
        1 -> rand:uniform(200) - 100;
        2 -> rand:uniform(1 bsl 64) - (1 bsl 63);
        _ -> pick(erlane_native_kernels:edges())
    end;
value_of(float) ->
    case rand:uniform(3) of
        1 -> rand:uniform() * 10 - 5;
        2 -> rand:uniform(100) / 1;
        3 -> pick(erlane_native_kernels:float_edges())
    end;
value_of(bin) ->
    Bytes = rand:bytes(rand:uniform(40) - 1),
    case rand:uniform(4) of
        1 -> << <<(B band 1)>> || <<B>> <= Bytes >>;
        2 -> << <<(B band 127)>> || <<B>> <= Bytes >>;
        _ -> Bytes
    end.

-spec ints([atom()]) -> env().
ints(Names) -> [{Name, int} || Name <- Names].

types(Env) -> [Type || {_, Type} <- Env].

-spec pick([T]) -> T.
pick(List) -> lists:nth(rand:uniform(length(List)), List).
