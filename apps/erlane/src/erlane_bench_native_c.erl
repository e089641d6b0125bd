%% SPDX-License-Identifier: Apache-2.0
%% @doc The kernels of `erlane bench native' in C, called through a NIF as one writes it by hand:
%% bench/peers/native_nif.c.
-module(erlane_bench_native_c).

-export([load/1]).
-export([lcg/2, xorshift64star/2, collatz_longest/1, gcd/2, modpow/3, primes/1, fib/1, tak/3,
         ackermann/2, fnv1a32/1, fnv1a64/1, xxh64/2, siphash24/3, crc32c/1, adler32/1, byte_sum/1,
         varints/1, utf8_valid/1, json_scan/1, hex_encode/1, base64_encode/1, xor_mask/2,
         mandelbrot/2, nbody/1, kepler/2, spectral_norm/1, spectral_sum/1, logistic/2,
         matrix_product/3, levenshtein/2]).

-nifs([lcg/2, xorshift64star/2, collatz_longest/1, gcd/2, modpow/3, primes/1, fib/1, tak/3,
       ackermann/2, fnv1a32/1, fnv1a64/1, xxh64/2, siphash24/3, crc32c/1, adler32/1, byte_sum/1,
       varints/1, utf8_valid/1, json_scan/1, hex_encode/1, base64_encode/1, xor_mask/2,
       mandelbrot/2, nbody/1, kepler/2, spectral_norm/1, spectral_sum/1, logistic/2,
       matrix_product/3, levenshtein/2]).

%% @doc Loads the library; the path is without its extension.
-spec load(file:filename()) -> ok | {error, {atom(), string()}}.
load(Path) -> erlang:load_nif(Path, 0).

%% Everything below is replaced by the library. Each does what the Erlang kernel of its name does.

%% @private
-spec lcg(non_neg_integer(), non_neg_integer()) -> non_neg_integer().
lcg(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec xorshift64star(pos_integer(), pos_integer()) -> non_neg_integer().
xorshift64star(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec collatz_longest(pos_integer()) -> pos_integer().
collatz_longest(_) -> erlang:nif_error(not_loaded).

%% @private
-spec gcd(integer(), integer()) -> integer().
gcd(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec modpow(integer(), non_neg_integer(), pos_integer()) -> non_neg_integer().
modpow(_, _, _) -> erlang:nif_error(not_loaded).

%% @private
-spec primes(integer()) -> non_neg_integer().
primes(_) -> erlang:nif_error(not_loaded).

%% @private
-spec fib(integer()) -> integer().
fib(_) -> erlang:nif_error(not_loaded).

%% @private
-spec tak(integer(), integer(), integer()) -> integer().
tak(_, _, _) -> erlang:nif_error(not_loaded).

%% @private
-spec ackermann(non_neg_integer(), non_neg_integer()) -> pos_integer().
ackermann(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec fnv1a32(binary()) -> non_neg_integer().
fnv1a32(_) -> erlang:nif_error(not_loaded).

%% @private
-spec fnv1a64(binary()) -> non_neg_integer().
fnv1a64(_) -> erlang:nif_error(not_loaded).

%% @private
-spec xxh64(binary(), non_neg_integer()) -> non_neg_integer().
xxh64(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec siphash24(non_neg_integer(), non_neg_integer(), binary()) -> non_neg_integer().
siphash24(_, _, _) -> erlang:nif_error(not_loaded).

%% @private
-spec crc32c(binary()) -> non_neg_integer().
crc32c(_) -> erlang:nif_error(not_loaded).

%% @private
-spec adler32(binary()) -> non_neg_integer().
adler32(_) -> erlang:nif_error(not_loaded).

%% @private
-spec byte_sum(binary()) -> non_neg_integer().
byte_sum(_) -> erlang:nif_error(not_loaded).

%% @private
-spec varints(binary()) -> integer().
varints(_) -> erlang:nif_error(not_loaded).

%% @private
-spec utf8_valid(binary()) -> boolean().
utf8_valid(_) -> erlang:nif_error(not_loaded).

%% @private
-spec json_scan(binary()) -> integer().
json_scan(_) -> erlang:nif_error(not_loaded).

%% @private
-spec hex_encode(binary()) -> binary().
hex_encode(_) -> erlang:nif_error(not_loaded).

%% @private
-spec base64_encode(binary()) -> binary().
base64_encode(_) -> erlang:nif_error(not_loaded).

%% @private
-spec xor_mask(binary(), non_neg_integer()) -> binary().
xor_mask(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec mandelbrot(pos_integer(), pos_integer()) -> non_neg_integer().
mandelbrot(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec nbody(non_neg_integer()) -> float().
nbody(_) -> erlang:nif_error(not_loaded).

%% @private
-spec kepler(non_neg_integer(), float()) -> float().
kepler(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec spectral_norm(pos_integer()) -> float().
spectral_norm(_) -> erlang:nif_error(not_loaded).

%% @private
-spec spectral_sum(non_neg_integer()) -> float().
spectral_sum(_) -> erlang:nif_error(not_loaded).

%% @private
-spec logistic(non_neg_integer(), float()) -> float().
logistic(_, _) -> erlang:nif_error(not_loaded).

%% @private
-spec matrix_product(tuple(), tuple(), pos_integer()) -> [float()].
matrix_product(_, _, _) -> erlang:nif_error(not_loaded).

%% @private
-spec levenshtein([integer()], [integer()]) -> non_neg_integer().
levenshtein(_, _) -> erlang:nif_error(not_loaded).
