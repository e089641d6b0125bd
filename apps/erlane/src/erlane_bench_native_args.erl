%% SPDX-License-Identifier: Apache-2.0
%% @doc What the kernels of the scenarios `native' and `native-erllvm' are called with: work of 5 to
%% 500 microseconds a call, as a function is that is worth a NIF.
-module(erlane_bench_native_args).

-export([kernels/1]).

%% @doc Name of the function, its module (of apps/erlane_native/test), arguments, and how much of
%% what that is. `native-erllvm' has the programs that HiPE and ErLLVM were measured with, by name;
%% what a unit of them is says nothing, so it is one call.
-spec kernels(Scenario :: string()) -> [{string(), atom(), [term()], pos_integer(), string()}].
kernels("native-erllvm") ->
    [{Name, list_to_atom("erlane_native_" ++ Module), Args, 1, "call"}
     || {Module, Programs} <- [{"k_int", set_integers()}, {"k_float", set_floats()},
                               {"k_list", set_lists()}, {"set_small", set_small()},
                               {"set_games", set_games()}],
        {Name, Args} <- Programs];
kernels("native") ->
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

set_integers() ->
    [{"fib", [18]}, {"tak", [12, 8, 4]}, {"ackermann", [2, 30]}].

set_floats() ->
    [{Name, Args} || {Name, Args, _, _} <- floats(),
                     lists:member(Name, ["mandelbrot", "nbody", "spectral_norm"])].

set_lists() ->
    [{Name, Args} || {Name, Args, _, _} <- lists(),
                     lists:member(Name, ["matrix_product", "nrev", "qsort", "zip"])].

set_small() ->
    Ints = numbers(600),
    Dna = dna(100),
    Square = [lists:sublist([(N bsr 9) band 1 || N <- Ints], I, 16) || I <- lists:seq(1, 256, 16)],
    Names = lists:seq(1, 12),
    Likes = fun(Seed) ->
                [{I, [Name || {_, Name} <- lists:sort(lists:zip(
                                  lists:sublist(Ints, Seed + 12 * I, 12), Names))]} || I <- Names]
            end,
    Bodies = pairs([N rem 1000003 / 1000003 || N <- lists:sublist(Ints, 40)]),
    Message = << <<(element_of(I, bytes(10 + I)))/binary>> || I <- lists:seq(1, 60) >>,
    Words = fun Words(0) -> {text, 5};
                Words(N) -> {group, {nest, 2, {cat, Words(N - 1), {cat, line, Words(N - 1)}}}}
            end,
    Page = lists:append(["<li class=\"a\">item " ++ integer_to_list(I) ++ "</li>\n"
                         || I <- lists:seq(1, 40)]),
    [{"length_c", [Ints]}, {"length_u", [Ints]},
     {"smith", [lists:sublist(Dna, 40), lists:nthtail(60, Dna)]},
     {"huff", [[$a + N rem 23 || N <- Ints]]}, {"life", [2, Square]},
     {"stable", [Likes(1), Likes(200)]}, {"barnes", [Bodies]}, {"decode", [Message]},
     {"ring", [10, 20]}, {"prettypr", [60, Words(6)]}, {"yaws_html", [Page]}].

set_games() ->
    Ints = numbers(1000),
    Bytes = bytes(4096),
    Columns = iolist_to_binary([[integer_to_list(N rem 1000 - 500), $\n] || N <- Ints]),
    [{"mean", [2000]}, {"sum", [10000]}, {"zip3", [Ints, Ints, Ints]}, {"bs_bm", [Bytes]},
     {"bs_simple_bm", [Bytes]}, {"bs_sum_bm", [Bytes]}, {"call_bm", [1000]},
     {"call_tail_bm", [10000]}, {"float_bm", [2000]}, {"freq_bm", [[N rem 50 || N <- Ints]]},
     {"fun_bm", [5000]}, {"bin_to_term_bm", [50]}, {"binarytrees", [8]}, {"fannkuch", [5]},
     {"fasta", [2000]}, {"harmonic", [2000]}, {"hash", [300]}, {"heapsort", [Ints]},
     {"nestedloop", [25]}, {"partialsums", [500]}, {"pidigits", [30]}, {"random", [2000]},
     {"sieve", [500]}, {"takfp", [9.0, 6.0, 3.0]}, {"revcomp", [dna(2000)]}, {"sumcol", [Columns]}].

dna(N) -> [lists:nth((X bsr 9) rem 4 + 1, "acgt") || X <- numbers(N)].

pairs([X, Y | Rest]) -> [{X, Y} | pairs(Rest)];
pairs([]) -> [].

%% An element of a protocol with this value; before each fifth there is one that holds it.
element_of(I, Value) when I rem 5 =:= 0 ->
    Inner = element_of(I + 1, Value),
    <<16#30, (byte_size(Inner)), Inner/binary>>;
element_of(I, Value) when I rem 3 =:= 0 ->
    <<(I rem 32), 16#82, (byte_size(Value)):16, Value/binary>>;
element_of(I, Value) when I rem 7 =:= 0 -> <<(I rem 32), 16#81, (byte_size(Value)), Value/binary>>;
element_of(I, Value) -> <<(I rem 32), (byte_size(Value)), Value/binary>>.

varint(N) when N < 128 -> <<N>>;
varint(N) -> <<1:1, N:7, (varint(N bsr 7))/binary>>.

bytes(N) -> << <<(X bsr 7)>> || X <- numbers(N) >>.

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

%% The same in each run: the generator of Park and Miller.
numbers(N) -> numbers(N, 42).

numbers(0, _) -> [];
numbers(N, X) -> [X | numbers(N - 1, X * 48271 rem 2147483647)].
