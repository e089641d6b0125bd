%% SPDX-License-Identifier: Apache-2.0
%% Kernels of integers: what a translator meets first. They are plain Erlang, compiled here as they
%% are; the suites compile them once more through the translator.
-module(erlane_native_k_int).

-export([lcg/2, minstd/2, xorshift64star/2, collatz/1, collatz_longest/1, gcd/2, modpow/3, isqrt/1,
         popcounts/1, primes/1, fib/1, tak/3, ackermann/2]).

-native([lcg/2, minstd/2, xorshift64star/2, collatz/1, collatz_longest/1, gcd/2, modpow/3, isqrt/1,
         popcounts/1, primes/1, fib/1, tak/3, ackermann/2]).

-define(M64, 16#FFFFFFFFFFFFFFFF).

%% N steps of Knuth's generator for MMIX (The Art of Computer Programming, volume 2, 3.3.4).
-spec lcg(non_neg_integer(), non_neg_integer()) -> non_neg_integer().
lcg(0, X) -> X;
lcg(N, X) when N > 0 -> lcg(N - 1, (X * 6364136223846793005 + 1442695040888963407) band ?M64).

%% N steps of Park and Miller's minimal standard with the multiplier 48271 (minstd_rand of C++).
-spec minstd(non_neg_integer(), pos_integer()) -> pos_integer().
minstd(0, X) -> X;
minstd(N, X) when N > 0 -> minstd(N - 1, X * 48271 rem 2147483647).

%% N steps of Vigna's xorshift64*: the last output (An experimental exploration of Marsaglia's
%% xorshift generators, scrambled; 2016).
-spec xorshift64star(pos_integer(), pos_integer()) -> non_neg_integer().
xorshift64star(N, X0) when N > 0 ->
    X1 = X0 bxor (X0 bsr 12),
    X2 = X1 bxor ((X1 bsl 25) band ?M64),
    X = X2 bxor (X2 bsr 27),
    case N of
        1 -> (X * 16#2545F4914F6CDD1D) band ?M64;
        _ -> xorshift64star(N - 1, X)
    end.

%% Steps from N down to 1 in Collatz's sequence.
-spec collatz(pos_integer()) -> non_neg_integer().
collatz(N) when is_integer(N), N > 0 -> collatz(N, 0).

collatz(1, Steps) -> Steps;
collatz(N, Steps) when N band 1 =:= 0 -> collatz(N bsr 1, Steps + 1);
collatz(N, Steps) -> collatz(3 * N + 1, Steps + 1).

%% The number up to Max with the longest sequence; of several the least.
-spec collatz_longest(pos_integer()) -> pos_integer().
collatz_longest(Max) when is_integer(Max), Max > 0 -> longest(1, Max, 1, 0).

longest(N, Max, Best, _) when N > Max -> Best;
longest(N, Max, Best, Length) ->
    case collatz(N, 0) of
        L when L > Length -> longest(N + 1, Max, N, L);
        _ -> longest(N + 1, Max, Best, Length)
    end.

%% Euclid.
-spec gcd(integer(), integer()) -> integer().
gcd(A, 0) -> abs(A);
gcd(A, B) -> gcd(B, A rem B).

%% Base to the power of Exponent modulo M, by squaring.
-spec modpow(integer(), non_neg_integer(), pos_integer()) -> non_neg_integer().
modpow(Base, Exponent, M) when Exponent >= 0, M > 0 -> modpow(Base rem M, Exponent, M, 1 rem M).

modpow(_, 0, _, Acc) -> Acc;
modpow(B, E, M, Acc) when E band 1 =:= 1 -> modpow(B * B rem M, E bsr 1, M, Acc * B rem M);
modpow(B, E, M, Acc) -> modpow(B * B rem M, E bsr 1, M, Acc).

%% The largest integer whose square is not above N, by Newton's method.
-spec isqrt(non_neg_integer()) -> non_neg_integer().
isqrt(0) -> 0;
isqrt(N) when is_integer(N), N > 0 -> isqrt(N, N).

isqrt(N, X) ->
    case (X + N div X) div 2 of
        Y when Y >= X -> X;
        Y -> isqrt(N, Y)
    end.

%% How many bits are set in all numbers below N together (Kernighan's loop).
-spec popcounts(non_neg_integer()) -> non_neg_integer().
popcounts(N) when is_integer(N), N >= 0 -> popcounts(N, 0).

popcounts(0, Sum) -> Sum;
popcounts(N, Sum) -> popcounts(N - 1, popcount(N - 1, Sum)).

popcount(0, Count) -> Count;
popcount(X, Count) -> popcount(X band (X - 1), Count + 1).

%% How many primes there are up to N, by trial division.
-spec primes(integer()) -> non_neg_integer().
primes(N) when is_integer(N) -> primes(2, N, 0).

primes(I, N, Count) when I > N -> Count;
primes(I, N, Count) ->
    case is_prime(I, 2) of
        true -> primes(I + 1, N, Count + 1);
        false -> primes(I + 1, N, Count)
    end.

is_prime(N, D) when D * D > N -> true;
is_prime(N, D) when N rem D =:= 0 -> false;
is_prime(N, D) -> is_prime(N, D + 1).

%% The three functions of the Gabriel benchmarks and of every text on recursion.
-spec fib(integer()) -> integer().
fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

-spec tak(integer(), integer(), integer()) -> integer().
tak(X, Y, Z) when Y >= X -> Z;
tak(X, Y, Z) -> tak(tak(X - 1, Y, Z), tak(Y - 1, Z, X), tak(Z - 1, X, Y)).

-spec ackermann(non_neg_integer(), non_neg_integer()) -> pos_integer().
ackermann(0, N) -> N + 1;
ackermann(M, 0) when M > 0 -> ackermann(M - 1, 1);
ackermann(M, N) when M > 0, N > 0 -> ackermann(M - 1, ackermann(M, N - 1)).
