%% SPDX-License-Identifier: Apache-2.0
%% @doc The programs that the scenario `profile' looks at.
-module(erlane_bench_profile_program).

-export([tree/1, calls/1, names/0, forever/1]).

%% @doc A program that does little but call: a tree of so many levels, half of it by tail calls.
-spec tree(non_neg_integer()) -> pos_integer().
tree(0) -> leaf(1);
tree(N) -> left(N - 1) + right(N - 1).

left(N) -> tree(N).

right(N) -> tree(N) + 1.

leaf(N) -> N.

%% @doc How many calls of functions of this module it makes.
-spec calls(non_neg_integer()) -> pos_integer().
calls(0) -> 2;
calls(N) -> 3 + 2 * calls(N - 1).

%% @doc Programs that go on until they are killed.
-spec names() -> [loops | recursion | binaries].
names() -> [loops, recursion, binaries].

%% @doc One of them: two loops, of which one has three fourths of the time; recursion beside
%% walks over a list; a hash of a binary beside a search in it and words made of it.
-spec forever(loops | recursion | binaries) -> no_return().
forever(loops) ->
    loops();
forever(recursion) ->
    recursion(lists:seq(1, 1000));
forever(binaries) ->
    binaries(binary:copy(<<"words and words ">>, 4000)).

loops() ->
    _ = three(900000),
    _ = one(300000),
    loops().

three(0) -> 0;
three(N) -> three(N - 1).

one(0) -> 0;
one(N) -> one(N - 1).

recursion(List) ->
    _ = fib(22),
    _ = sums(List, 150),
    recursion(List).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

sums(_, 0) -> ok;
sums(List, N) ->
    _ = add(List, 0),
    sums(List, N - 1).

add([], Sum) -> Sum;
add([N | Ns], Sum) -> add(Ns, Sum + N).

binaries(Words) ->
    _ = hash(Words, 0),
    _ = blanks(Words, 0),
    binaries(Words).

hash(<<C, Rest/binary>>, H) -> hash(Rest, (H * 31 + C) band 16#ffffff);
hash(<<>>, H) -> H.

blanks(<<$\s, Rest/binary>>, N) -> blanks(Rest, N + 1);
blanks(<<_, Rest/binary>>, N) -> blanks(Rest, N);
blanks(<<>>, N) -> N.
