%% SPDX-License-Identifier: Apache-2.0
%% Programs of the set that ErLLVM was measured with, by name: those of the Computer Language
%% Benchmarks Game and loops over one thing each. Each is written from what the name stands for, and
%% so is not the program that was measured then. Those that are among the kernels are not here:
%% mandelbrot, nbody, spectral norm, matrix, ackermann.
-module(erlane_native_set_games).

-export([mean/1, sum/1, zip3/3, bs_bm/1, bs_simple_bm/1, bs_sum_bm/1, call_bm/1, call_tail_bm/1,
         float_bm/1, freq_bm/1, fun_bm/1, bin_to_term_bm/1, binarytrees/1, fannkuch/1, fasta/1,
         harmonic/1, hash/1, heapsort/1, nestedloop/1, partialsums/1, pidigits/1, random/1,
         sieve/1, takfp/3, revcomp/1, sumcol/1]).

-native([mean/1, sum/1, zip3/3, bs_bm/1, bs_simple_bm/1, bs_sum_bm/1, call_bm/1, call_tail_bm/1,
         float_bm/1, freq_bm/1, fun_bm/1, bin_to_term_bm/1, binarytrees/1, fannkuch/1, fasta/1,
         harmonic/1, hash/1, heapsort/1, nestedloop/1, partialsums/1, pidigits/1, random/1,
         sieve/1, takfp/3, revcomp/1, sumcol/1]).

%% Of the numbers from 1 to N.
-spec mean(pos_integer()) -> float().
mean(N) -> mean(1, N, 0.0, 0).

mean(I, N, Sum, Count) when I > N -> Sum / Count;
mean(I, N, Sum, Count) -> mean(I + 1, N, Sum + I, Count + 1).

-spec sum(non_neg_integer()) -> non_neg_integer().
sum(N) -> sum(N, 0).

sum(0, Sum) -> Sum;
sum(N, Sum) -> sum(N - 1, Sum + N).

-spec zip3(list(), list(), list()) -> [{term(), term(), term()}].
zip3([X | Xs], [Y | Ys], [Z | Zs]) -> [{X, Y, Z} | zip3(Xs, Ys, Zs)];
zip3([], [], []) -> [].

%% Fields of several sizes; bytes; words.
-spec bs_bm(binary()) -> integer().
bs_bm(Bin) -> bs_bm(Bin, 0).

bs_bm(<<A:3, B:5, C:16, D:8/signed, Rest/binary>>, Sum) -> bs_bm(Rest, Sum + A * B - C + D);
bs_bm(_, Sum) -> Sum.

-spec bs_simple_bm(binary()) -> non_neg_integer().
bs_simple_bm(Bin) -> bs_simple_bm(Bin, 0).

bs_simple_bm(<<0, Rest/binary>>, N) -> bs_simple_bm(Rest, N);
bs_simple_bm(<<_, Rest/binary>>, N) -> bs_simple_bm(Rest, N + 1);
bs_simple_bm(<<>>, N) -> N.

-spec bs_sum_bm(binary()) -> non_neg_integer().
bs_sum_bm(Bin) -> bs_sum_bm(Bin, 0).

bs_sum_bm(<<X:16, Rest/binary>>, Sum) -> bs_sum_bm(Rest, Sum + X);
bs_sum_bm(_, Sum) -> Sum.

%% Calls that do nothing else.
-spec call_bm(non_neg_integer()) -> non_neg_integer().
call_bm(0) -> 0;
call_bm(N) -> 1 + call_bm(N - 1).

-spec call_tail_bm(non_neg_integer()) -> ok.
call_tail_bm(0) -> ok;
call_tail_bm(N) -> call_other(N - 1).

call_other(0) -> ok;
call_other(N) -> call_tail_bm(N - 1).

-spec float_bm(non_neg_integer()) -> float().
float_bm(N) -> float_bm(N, 1.0, 2.0, 3.0).

float_bm(0, A, B, C) -> A + B + C;
float_bm(N, A, B, C) -> float_bm(N - 1, A * 0.5 + B, B * 0.25 + C, (A + C) / 3.0).

%% How often each element occurs.
-spec freq_bm([term()]) -> [{term(), pos_integer()}].
freq_bm(List) -> freq_bm(List, #{}).

freq_bm([], Counts) -> lists:sort(maps:to_list(Counts));
freq_bm([X | Rest], Counts) ->
    freq_bm(Rest, maps:update_with(X, fun(N) -> N + 1 end, 1, Counts)).

-spec fun_bm(non_neg_integer()) -> integer().
fun_bm(N) -> fun_bm(N, fun(X) -> X + 1 end, 0).

fun_bm(0, _, X) -> X;
fun_bm(N, Fun, X) -> fun_bm(N - 1, Fun, Fun(X)).

-spec bin_to_term_bm(non_neg_integer()) -> ok.
bin_to_term_bm(0) -> ok;
bin_to_term_bm(N) ->
    {_, N} = binary_to_term(term_to_binary({[a, 1.5, "list"], N})),
    bin_to_term_bm(N - 1).

%% Nodes of a complete tree, which is made first.
-spec binarytrees(non_neg_integer()) -> pos_integer().
binarytrees(Depth) -> size_of(tree(Depth)).

tree(0) -> {nil, nil};
tree(D) -> {tree(D - 1), tree(D - 1)}.

size_of({nil, nil}) -> 1;
size_of({A, B}) -> 1 + size_of(A) + size_of(B).

%% The most flips over all permutations of 1 to N: the first says how many are turned round.
-spec fannkuch(pos_integer()) -> non_neg_integer().
fannkuch(N) -> lists:max([flips(P, 0) || P <- permutations(lists:seq(1, N))]).

permutations([]) -> [[]];
permutations(List) -> [[X | P] || X <- List, P <- permutations(List -- [X])].

flips([1 | _], N) -> N;
flips([K | _] = List, N) -> flips(turned(K, List, []), N + 1).

turned(0, Rest, Acc) -> Acc ++ Rest;
turned(K, [X | Rest], Acc) -> turned(K - 1, Rest, [X | Acc]).

%% A random sequence of four letters with given shares.
-spec fasta(non_neg_integer()) -> binary().
fasta(N) -> fasta(N, 42, <<>>).

fasta(0, _, Bin) -> Bin;
fasta(N, Seed, Bin) ->
    Next = (Seed * 3877 + 29573) rem 139968,
    fasta(N - 1, Next, <<Bin/binary, (letter(Next))>>).

letter(R) when R < 42406 -> $a;
letter(R) when R < 70117 -> $c;
letter(R) when R < 97764 -> $g;
letter(_) -> $t.

-spec harmonic(non_neg_integer()) -> float().
harmonic(N) -> harmonic(N, 0.0).

harmonic(0, Sum) -> Sum;
harmonic(N, Sum) -> harmonic(N - 1, Sum + 1 / N).

%% Keys 1 to N into a map, and found again.
-spec hash(non_neg_integer()) -> non_neg_integer().
hash(N) -> found(N, filled(N, #{}), 0).

filled(0, Map) -> Map;
filled(N, Map) -> filled(N - 1, Map#{N * 7919 => N}).

found(0, _, Sum) -> Sum;
found(N, Map, Sum) -> found(N - 1, Map, Sum + map_get(N * 7919, Map)).

%% By a pairing heap.
-spec heapsort([term()]) -> [term()].
heapsort(List) -> drained(lists:foldl(fun(X, H) -> meld({X, []}, H) end, empty, List)).

drained(empty) -> [];
drained({X, Heaps}) -> [X | drained(pairs(Heaps))].

pairs([]) -> empty;
pairs([H]) -> H;
pairs([A, B | Rest]) -> meld(meld(A, B), pairs(Rest)).

meld(A, empty) -> A;
meld(empty, B) -> B;
meld({X, As}, {Y, _} = B) when X =< Y -> {X, [B | As]};
meld(A, {Y, Bs}) -> {Y, [A | Bs]}.

%% Three loops in each other that count.
-spec nestedloop(non_neg_integer()) -> non_neg_integer().
nestedloop(N) -> nested(N, N, N, N, 0).

nested(_, 0, _, _, Count) -> Count;
nested(N, A, 0, _, Count) -> nested(N, A - 1, N, N, Count);
nested(N, A, B, 0, Count) -> nested(N, A, B - 1, N, Count);
nested(N, A, B, C, Count) -> nested(N, A, B, C - 1, Count + 1).

-spec partialsums(pos_integer()) -> {float(), float(), float(), float()}.
partialsums(N) -> partialsums(1, N, 1.0, 0.0, 0.0, 0.0, 0.0).

partialsums(K, N, _, A, B, C, D) when K > N -> {A, B, C, D};
partialsums(K, N, Sign, A, B, C, D) ->
    X = float(K),
    S = math:sin(X),
    partialsums(K + 1, N, -Sign, A + 1 / (X * (X + 1.0)), B + 1 / (X * X * X * S * S),
                C + Sign / X, D + Sign / (2.0 * X - 1.0)).

%% The first N digits of pi, by Gibbons' spigot: integers of any size.
-spec pidigits(non_neg_integer()) -> integer().
pidigits(N) -> pidigits(N, 1, 0, 1, 1, 0).

pidigits(0, _, _, _, _, Digits) -> Digits;
pidigits(N, Q, R, T, K, Digits) ->
    D = (3 * Q + R) div T,
    case D =:= (4 * Q + R) div T of
        true -> pidigits(N - 1, 10 * Q, 10 * (R - D * T), T, K, Digits * 10 + D);
        false -> pidigits(N, Q * K, (2 * Q + R) * (2 * K + 1), T * (2 * K + 1), K + 1, Digits)
    end.

-spec random(non_neg_integer()) -> float().
random(N) -> random(N, 42).

random(0, Seed) -> 100.0 * Seed / 139968;
random(N, Seed) -> random(N - 1, (Seed * 3877 + 29573) rem 139968).

%% Primes up to N, by lists.
-spec sieve(pos_integer()) -> non_neg_integer().
sieve(N) -> length(primes(lists:seq(2, N))).

primes([]) -> [];
primes([P | Rest]) -> [P | primes([X || X <- Rest, X rem P =/= 0])].

-spec takfp(float(), float(), float()) -> float().
takfp(X, Y, Z) when Y >= X -> Z;
takfp(X, Y, Z) -> takfp(takfp(X - 1.0, Y, Z), takfp(Y - 1.0, Z, X), takfp(Z - 1.0, X, Y)).

%% The other strand, from its end.
-spec revcomp([char()]) -> [char()].
revcomp(Strand) -> revcomp(Strand, []).

revcomp([], Acc) -> Acc;
revcomp([$a | Rest], Acc) -> revcomp(Rest, [$t | Acc]);
revcomp([$c | Rest], Acc) -> revcomp(Rest, [$g | Acc]);
revcomp([$g | Rest], Acc) -> revcomp(Rest, [$c | Acc]);
revcomp([$t | Rest], Acc) -> revcomp(Rest, [$a | Acc]).

%% The sum of numbers in lines.
-spec sumcol(binary()) -> integer().
sumcol(Bin) -> sumcol(Bin, 1, 0, 0).

sumcol(<<$-, Rest/binary>>, _, _, Sum) -> sumcol(Rest, -1, 0, Sum);
sumcol(<<$\n, Rest/binary>>, Sign, N, Sum) -> sumcol(Rest, 1, 0, Sum + Sign * N);
sumcol(<<C, Rest/binary>>, Sign, N, Sum) when C >= $0, C =< $9 ->
    sumcol(Rest, Sign, N * 10 + C - $0, Sum);
sumcol(<<>>, _, _, Sum) -> Sum.
