%% SPDX-License-Identifier: Apache-2.0
%% @doc What the kernels of the scenario `native' are called with: work of 5 to 500 microseconds a
%% call, as a function is that is worth a NIF.
-module(erlane_bench_native_args).

-export([kernels/0]).

%% @doc Name of the function, its module (of apps/erlane_native/test), arguments, and how much of
%% what that is.
-spec kernels() -> [{string(), atom(), [term()], pos_integer(), string()}].
kernels() ->
    [{Name, list_to_atom("erlane_native_k_" ++ Module), Args, Units, Unit}
     || {Module, Kernels} <- [{"int", integers()}, {"hash", hashes()}, {"bytes", bytes()},
                              {"float", floats()}, {"list", lists()}],
        {Name, Args, Units, Unit} <- Kernels].

integers() ->
    [{"lcg", [1000, 1], 1000, "step"},
     {"xorshift64star", [1000, 88172645463325252], 1000, "step"},
     {"collatz_longest", [300], 300, "number"},
     {"gcd", [23416728348467685, 14472334024676221], 78, "step"},
     {"modpow", [3, (1 bsl 31) - 3, (1 bsl 31) - 1], 31, "bit"},
     {"primes", [1000], 1000, "number"},
     {"fib", [18], 8361, "call"},
     {"tak", [12, 8, 4], 1, "call from outside"},
     {"ackermann", [2, 30], 1, "call from outside"}].

hashes() ->
    Bytes = bytes(4096),
    [{Name, [Bytes], 4096, "byte"}
     || Name <- ["fnv1a32", "fnv1a64", "crc32c", "adler32", "byte_sum"]]
        ++ [{"xxh64", [Bytes, 0], 4096, "byte"},
            {"siphash24", [16#0706050403020100, 16#0F0E0D0C0B0A0908, Bytes], 4096, "byte"}].

bytes() ->
    Varints = << <<(varint(N band ((1 bsl (7 * (I rem 5 + 1))) - 1)))/binary>>
                 || {I, N} <- numbered(numbers(1000)) >>,
    Text = << <<C/utf8>> || {I, N} <- numbered(numbers(2000)),
                            C <- [case I rem 8 of
                                      0 -> 16#A0 + N rem 16#700;
                                      1 -> 16#3000 + N rem 16#5000;
                                      2 -> 16#1F600 + N rem 64;
                                      _ -> 32 + N rem 95
                                  end] >>,
    Json = iolist_to_binary(
             [$[, lists:join($,, [io_lib:format("{\"id\": ~b, \"name\": \"user \\\"~b\\\"\", "
                                                "\"tags\": [\"a\", true, null], \"x\": -~b.5e-3}",
                                                [I, I, I]) || I <- lists:seq(1, 50)]), $]]),
    [{"varints", [Varints], byte_size(Varints), "byte"},
     {"utf8_valid", [Text], byte_size(Text), "byte"},
     {"json_scan", [Json], byte_size(Json), "byte"},
     {"hex_encode", [bytes(1024)], 1024, "byte"},
     {"base64_encode", [bytes(3072)], 3072, "byte"},
     {"xor_mask", [bytes(4096), 16#37FA213D], 4096, "byte"}].

floats() ->
    [{"mandelbrot", [24, 50], 576, "point"},
     {"nbody", [100], 100, "step"},
     {"kepler", [1000, 0.001], 1000, "step"},
     {"spectral_norm", [16], 10240, "element"},
     {"spectral_sum", [60], 3600, "element"},
     {"logistic", [1000, 0.5], 1000, "step"}].

lists() ->
    Matrix = list_to_tuple([N rem 1000 / 8 || N <- numbers(64)]),
    Words = fun(Seed) -> [$a + N rem 4 || N <- lists:nthtail(Seed, numbers(32 + Seed))] end,
    Ints = [N rem 1000 || N <- numbers(1000)],
    [{"matrix_product", [Matrix, Matrix, 8], 512, "multiplication"},
     {"levenshtein", [Words(0), Words(5)], 1024, "cell"},
     {"int_sum", [Ints], 1000, "element"},
     {"float_sum", [[I / 8 || I <- Ints]], 1000, "element"},
     {"nrev", [lists:sublist(Ints, 30)], 496, "call"},
     {"qsort", [Ints], 1000, "element"},
     {"zip", [Ints, Ints], 1000, "element"}].

varint(N) when N < 128 -> <<N>>;
varint(N) -> <<1:1, N:7, (varint(N bsr 7))/binary>>.

bytes(N) -> << <<(X bsr 7)>> || X <- numbers(N) >>.

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

%% The same in each run: the generator of Park and Miller.
numbers(N) -> numbers(N, 42).

numbers(0, _) -> [];
numbers(N, X) -> [X | numbers(N - 1, X * 48271 rem 2147483647)].
