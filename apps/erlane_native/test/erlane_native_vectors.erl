%% SPDX-License-Identifier: Apache-2.0
%% Known answers of the kernels: published test vectors where there are some, otherwise what a
%% formula of another kind says.
-module(erlane_native_vectors).

-export([all/0, holds/2]).

-type answer() :: {is, term()} | {digits, 0..17, string()} | {near, float(), float()}.
-type vector() :: {module(), atom(), [term()], answer()}.

%% @doc Every kernel is in at least one.
-spec all() -> [vector()].
all() ->
    [{erlane_native_k_int, F, Args, Answer} || {F, Args, Answer} <- integers()]
        ++ [{erlane_native_k_hash, F, Args, {is, Answer}} || {F, Args, Answer} <- hashes()]
        ++ [{erlane_native_k_bytes, F, Args, {is, Answer}} || {F, Args, Answer} <- bytes()]
        ++ [{erlane_native_k_float, F, Args, Answer} || {F, Args, Answer} <- floats()]
        ++ [{erlane_native_k_list, F, Args, {is, Answer}} || {F, Args, Answer} <- lists()].

%% @doc Is this the known answer? `digits' compares as text, as published outputs are printed.
-spec holds(answer(), term()) -> boolean().
holds({is, Answer}, Value) -> Answer =:= Value;
holds({digits, N, Text}, Value) -> float_to_list(Value, [{decimals, N}]) =:= Text;
holds({near, Answer, By}, Value) -> is_float(Value) andalso abs(Value - Answer) =< By.

integers() ->
    [{lcg, [N, X], {is, jump(N, X)}} || N <- [0, 1, 2, 1000], X <- [0, 1, 16#FFFFFFFFFFFFFFFF]]
        %% The 10000th number from 1: ISO/IEC 14882, [rand.predef].
        ++ [{minstd, [10000, 1], {is, 399268537}},
            {xorshift64star, [1, 1], {is, 5180492295206395165}},
            {xorshift64star, [5, 12345], {is, 2204759546661399375}},
            {collatz, [1], {is, 0}}, {collatz, [27], {is, 111}}, {collatz, [837799], {is, 524}},
            {collatz, [1 bsl 100], {is, 100}},
            {collatz_longest, [1000], {is, 871}}, {collatz_longest, [10000], {is, 6171}},
            {gcd, [1071, 462], {is, 21}}, {gcd, [0, -7], {is, 7}}, {gcd, [-12, 18], {is, 6}},
            {gcd, [1 bsl 100, 3 bsl 70], {is, 1 bsl 70}},
            %% Fermat's little theorem, for a prime of 31 and one of 61 bits.
            {modpow, [4, 13, 497], {is, 445}}, {modpow, [3, 2147483646, 2147483647], {is, 1}},
            {modpow, [3, (1 bsl 61) - 2, (1 bsl 61) - 1], {is, 1}}, {modpow, [5, 0, 1], {is, 0}},
            {isqrt, [0], {is, 0}}, {isqrt, [99], {is, 9}}, {isqrt, [100], {is, 10}},
            {isqrt, [1 bsl 120], {is, 1 bsl 60}}, {isqrt, [(1 bsl 58) - 1], {is, (1 bsl 29) - 1}},
            {popcounts, [1000], {is, 4932}}, {popcounts, [1 bsl 12], {is, 12 bsl 11}},
            {primes, [1], {is, 0}}, {primes, [2], {is, 1}}, {primes, [1000], {is, 168}},
            {fib, [20], {is, 6765}}, {fib, [-3], {is, -3}},
            {tak, [18, 12, 6], {is, 7}},
            {ackermann, [2, 3], {is, 9}}, {ackermann, [3, 3], {is, 61}}].

%% The generator N steps on, in closed form: A^N x + C (A^N - 1) / (A - 1) modulo 2^64.
jump(N, X) ->
    A = 6364136223846793005,
    Power = power(A, N),
    (Power * X + 1442695040888963407 * ((Power - 1) div (A - 1))) band 16#FFFFFFFFFFFFFFFF.

power(_, 0) -> 1;
power(A, N) -> A * power(A, N - 1).

hashes() ->
    Key = [16#0706050403020100, 16#0F0E0D0C0B0A0908],
    Count = fun(N) -> list_to_binary(lists:seq(0, N - 1)) end,
    [{fnv1a32, [<<>>], 16#811C9DC5}, {fnv1a32, [<<"a">>], 16#E40C292C},
     {fnv1a32, [<<"foobar">>], 16#BF9CF968},
     {fnv1a64, [<<>>], 16#CBF29CE484222325}, {fnv1a64, [<<"a">>], 16#AF63DC4C8601EC8C},
     {fnv1a64, [<<"foobar">>], 16#85944171F73967E8},
     {xxh64, [<<>>, 0], 16#EF46DB3751D8E999}, {xxh64, [<<"a">>, 0], 16#D24EC4F1A98C6E5B},
     {xxh64, [<<"abc">>, 0], 16#44BC2CF5AD770999}, {xxh64, [<<"asdf">>, 0], 16#415872F599CEA71E},
     {xxh64, [<<"Call me Ishmael. Some years ago--never mind how long precisely-">>, 0],
      16#02A2E85470D6FD96},
     %% The first two and the last but one of the table of the reference implementation.
     {siphash24, Key ++ [<<>>], 16#726FDB47DD0E0E31},
     {siphash24, Key ++ [<<0>>], 16#74F839C593DC67FD},
     {siphash24, Key ++ [Count(15)], 16#A129CA6149BE45E5},
     {crc32c, [<<"123456789">>], 16#E3069283}, {crc32c, [<<0:256>>], 16#8A9136AA},
     {crc32c, [<<-1:256>>], 16#62A8AB43}, {crc32c, [Count(32)], 16#46DD794E},
     {adler32, [<<>>], 1}, {adler32, [<<"Wikipedia">>], 16#11E60398},
     {adler32, [binary:copy(<<255>>, 10000)], erlang:adler32(binary:copy(<<255>>, 10000))},
     {byte_sum, [Count(256)], 32640},
     %% The example of RFC 1071, 3: the sum is ddf2.
     {internet_checksum, [<<0, 1, 16#F2, 3, 16#F4, 16#F5, 16#F6, 16#F7>>], 16#DDF2 bxor 16#FFFF},
     {murmur3_32, [<<>>, 0], 0}, {murmur3_32, [<<>>, 1], 16#514E28B7},
     {murmur3_32, [<<>>, 16#FFFFFFFF], 16#81F16F39}, {murmur3_32, [<<0:32>>, 0], 16#2362F9DE},
     {murmur3_32, [<<"test">>, 0], 16#BA6BD213},
     {murmur3_32, [<<"Hello, world!">>, 0], 16#C0363E43}].

bytes() ->
    Abnormal = [<<16#C0, 16#80>>, <<16#ED, 16#A0, 16#80>>, <<16#F4, 16#90, 16#80, 16#80>>,
                <<16#E0, 16#9F, 16#BF>>, <<16#F0, 16#8F, 16#BF, 16#BF>>, <<16#80>>, <<16#C3>>],
    Rfc3629 = [<<16#41, 16#E2, 16#89, 16#A2, 16#CE, 16#91, 16#2E>>,
               <<16#EF, 16#BB, 16#BF, 16#F0, 16#A3, 16#8E, 16#B4>>, <<16#F4, 16#8F, 16#BF, 16#BF>>],
    [{utf8_valid, [B], false} || B <- Abnormal]
        ++ [{utf8_length, [B], -1} || B <- Abnormal]
        ++ [{utf8_valid, [B], true} || B <- Rfc3629]
        ++ [{utf8_length, [B], N} || {B, N} <- lists:zip(Rfc3629, [4, 2, 1])]
        ++ [{varints, [<<>>], 0}, {varints, [<<16#AC, 2, 16#96, 1>>], 450},
            {varints, [<<-1:72, 1>>], (1 bsl 64) - 1}, {varints, [<<1, 128, 128>>], -3},
            {json_scan, [<<"{\"Image\": {\"Width\": 800, \"IDs\": [116, 943, -2.5e+3, true]}}">>],
             11},
            {json_scan, [<<"[\"\\\"]\", null]">>], 3}, {json_scan, [<<"[1}">>], -1},
            {json_scan, [<<"\"a">>], -1}, {json_scan, [<<"]">>], -1},
            {json_scan, [binary:copy(<<"[">>, 100)], -1},
            {json_scan, [<<(binary:copy(<<"[">>, 100))/binary,
                           (binary:copy(<<"]">>, 100))/binary>>], 100},
            {csv_fields, [<<"aaa,bbb,ccc\r\nzzz,yyy,xxx\r\n">>], 6},
            {csv_fields, [<<"\"aaa\",\"b\r\nbb\",\"c\"\"cc\"\r\nzzz,yyy,xxx">>], 6},
            {csv_fields, [<<"\"a">>], -1}, {csv_fields, [<<>>], 0},
            {http_head, [<<"GET / HTTP/1.1\r\nHost: a\r\n\r\nbody">>], {ok, 27, 2}},
            {http_head, [<<"GET / HTTP/1.1\r\n">>], more}, {http_head, [<<"G", 0>>], bad},
            {luhn, [<<"79927398713">>], true}, {luhn, [<<"79927398710">>], false},
            {luhn, [<<"4111111111111111">>], true}, {luhn, [<<>>], true},
            {hex_encode, [<<"foobar">>], <<"666f6f626172">>}, {hex_encode, [<<>>], <<>>},
            {hex_decode, [<<"666F6f626172">>], <<"foobar">>},
            {xor_mask, [<<16#7F, 16#9F, 16#4D, 16#51, 16#58>>, 16#37FA213D], <<"Hello">>},
            {utf8_to_latin1, [<<"caf", 16#C3, 16#A9, 16#E2, 16#82, 16#AC>>], <<"caf", 16#E9, "?">>},
            {rle_expand, [<<3, $a, 0, $b, 1, $c>>], <<"aaac">>}]
        %% RFC 4648, 10.
        ++ [{base64_encode, [In], Out}
            || {In, Out} <- [{<<>>, <<>>}, {<<"f">>, <<"Zg==">>}, {<<"fo">>, <<"Zm8=">>},
                             {<<"foo">>, <<"Zm9v">>}, {<<"foob">>, <<"Zm9vYg==">>},
                             {<<"fooba">>, <<"Zm9vYmE=">>}, {<<"foobar">>, <<"Zm9vYmFy">>}]].

floats() ->
    [{mandelbrot, [40, 50], {is, 633}}, {mandelbrot, [100, 50], {is, 3963}},
     {mandel_point, [0.0, 0.0, 100], {is, 0}}, {mandel_point, [1.0, 1.0, 100], {is, 98}},
     {steps, [0, []], {is, []}},
     {steps, [1, [{0.0, 0.5, 0.0, 1.0, 2.0, -3.0, 1.0}]],
      {is, [{0.01, 0.52, -0.03, 1.0, 2.0, -3.0, 1.0}]}},
     {nbody, [0], {digits, 9, "-0.169075164"}}, {nbody, [1000], {digits, 9, "-0.169087605"}},
     {kepler, [0, 0.001], {is, -0.5}}, {kepler, [10000, 0.001], {near, -0.5, 1.0e-3}},
     {spectral_norm, [100], {digits, 9, "1.274219991"}},
     {spectral_sum, [1], {is, 1.0}},
     {spectral_sum, [2], {near, 1.0 + 1 / 2 + 1 / 3 + 1 / 5, 1.0e-15}},
     {pi_leibniz, [1000], {digits, 10, "3.1405926538"}}, {pi_leibniz, [0], {is, 0.0}},
     {sqrt_newton, [2, 50], {near, math:sqrt(2), 4.0e-16}},
     {horner, [3, 2.0], {is, 11.0}}, {horner, [0, 2], {is, 0.0}},
     {logistic, [0, 0.5], {is, 0.5}}, {logistic, [1, 0.5], {near, 0.975, 1.0e-15}},
     {int_mean, [1, 100], {is, 50.5}}].

lists() ->
    [{levenshtein, ["kitten", "sitting"], 3}, {levenshtein, ["saturday", "sunday"], 3},
     {levenshtein, ["rosettacode", "raisethysword"], 8}, {levenshtein, ["", "abc"], 3},
     {matrix_product, [{1, 2, 3, 4}, {5, 6, 7, 8}, 2], [19.0, 22.0, 43.0, 50.0]},
     {matrix_product, [{2.0}, {0.5}, 1], [1.0]},
     {dot_product, [[1, 3, -5], [4, -2, -1]], 3}, {dot_product, [[], []], 0},
     {float_sum, [[0.1, 0.2, 0.3]], 0.1 + 0.2 + 0.3}, {int_sum, [lists:seq(1, 100)], 5050},
     {histogram, [list_to_binary(lists:seq(0, 255))], {64, 64, 64, 64}},
     {crc32c_table, [<<"123456789">>], 16#E3069283}, {crc32c_table, [<<-1:256>>], 16#62A8AB43},
     {sieve, [12], [{1, 2}, {2, 3}, {3, 5}, {4, 7}, {5, 11}]},
     {nrev, ["abc"], "cba"}, {qsort, [[3, 1, 2, 1.0, a]], [1.0, 1, 2, 3, a]},
     {zip, [[1, 2], [a, b]], [{1, a}, {2, b}]}, {squares, [[2, -3, 0.5]], [4, 9, 0.25]},
     {evens, [[1, 2, 3, -4]], [1, -2]},
     {count_atoms, [[red, blue, red, green, 1]], {2, 1, 1, 1}},
     {bisect, [3, {1, 2, 3, 5}], 3}, {bisect, [9, {1, 2}], 3}, {bisect, [0, {}], 1},
     {point_sum, [[{point, 1, 2.5}, {point, 3, 4}]], {point, 4, 6.5}},
     {csv_rows, [<<"a,b\n,c">>], [[<<"c">>, <<>>], [<<"b">>, <<"a">>]]},
     %% RFC 3629, 7.
     {utf8_of, [[16#41, 16#2262, 16#0391, 16#2E]],
      <<16#41, 16#E2, 16#89, 16#A2, 16#CE, 16#91, 16#2E>>},
     {utf8_of, [[16#FEFF, 16#233B4]], <<16#EF, 16#BB, 16#BF, 16#F0, 16#A3, 16#8E, 16#B4>>},
     {lookup, [b, [{a, 1}, {b, 2}]], {value, 2}}, {lookup, [1, [{1.0, a}]], none},
     {pairs_below, [[1, 2, 3]], [{2, 1, 2}, {3, 1, 3}, {3, 2, 6}]},
     {suffixes, ["ab"], ["ab", "b", "b", [], []]}].
