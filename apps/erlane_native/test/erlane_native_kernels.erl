%% SPDX-License-Identifier: Apache-2.0
%% The kernels: which there are, and arguments for each, mostly of the kind it is made for, at the
%% edges of what a machine word holds, and now and then of a wrong type.
-module(erlane_native_kernels).

-include_lib("proper/include/proper.hrl").

-export([modules/0, all/0, args/2, like/2]).
-export([any_int/0, any_nat/0, any_float/0, any_num/0, junk/0, bytes/0, edges/0, float_edges/0]).

%% @doc The modules with kernels.
-spec modules() -> [module()].
modules() ->
    [erlane_native_k_int, erlane_native_k_hash, erlane_native_k_bytes, erlane_native_k_float,
     erlane_native_k_list].

%% @doc All kernels: what the attribute `native' of their modules names.
-spec all() -> [mfa()].
all() ->
    [{M, F, A} || M <- modules(), {native, List} <- M:module_info(attributes), {F, A} <- List].

%% @doc A generator of lists of arguments. What is not meant to end is not asked for.
-spec args(atom(), arity()) -> proper_types:type().
args(lcg, 2) -> mixed([range(0, 100), any_nat()]);
args(minstd, 2) -> mixed([range(0, 100), any_int()]);
args(xorshift64star, 2) -> mixed([range(0, 100), any_nat()]);
args(collatz, 1) -> mixed([any_nat()]);
args(collatz_longest, 1) -> mixed([range(-1, 100)]);
args(gcd, 2) -> mixed([any_int(), any_int()]);
args(modpow, 3) -> mixed([any_int(), any_nat(), any_int()]);
args(isqrt, 1) -> mixed([any_nat()]);
args(popcounts, 1) -> mixed([range(-1, 200)]);
args(primes, 1) -> mixed([range(-1, 200)]);
args(fib, 1) -> mixed([range(-2, 12)]);
args(tak, 3) -> mixed([range(-2, 8), range(-2, 8), range(-2, 8)]);
args(ackermann, 2) -> mixed([range(-1, 2), range(-1, 12)]);
args(xxh64, 2) -> mixed([bytes(), any_nat()]);
args(siphash24, 3) -> mixed([word(), word(), bytes()]);
args(murmur3_32, 2) -> mixed([bytes(), any_nat()]);
args(varints, 1) -> mixed([oneof([bytes(), varints()])]);
args(Utf8, 1) when Utf8 =:= utf8_valid; Utf8 =:= utf8_length; Utf8 =:= utf8_to_latin1 ->
    mixed([oneof([code_points(), broken(code_points()), bytes()])]);
args(json_scan, 1) -> mixed([text("{}[]\",:\\ \n0123456789truefalsn.-E\x{1}")]);
args(csv_fields, 1) -> mixed([text("\",\r\nab")]);
args(http_head, 1) -> mixed([text("\r\n\r\n\r\nGET: \t\x{1}")]);
args(luhn, 1) -> mixed([text("0123456789")]);
args(hex_decode, 1) -> mixed([oneof([?LET(B, bytes(), hex(B)), bytes()])]);
args(xor_mask, 2) -> mixed([bytes(), any_int()]);
args(rle_expand, 1) -> mixed([bytes()]);
args(mandelbrot, 2) -> mixed([range(1, 10), range(1, 30)]);
args(mandel_point, 3) -> some_odd([any_num(), any_num()]) ++ [oneof([range(0, 100), atom()])];
args(steps, 2) ->
    Body = oneof([range(-100, 100), any_float()]),
    mixed([range(0, 10), few(frequency([{30, tuple_of(7, ?LET(X, Body, X / 8))}, {1, junk()}]))]);
args(kepler, 2) -> mixed([range(0, 100), oneof([0.001, 0.1, any_num()])]);
args(spectral_norm, 1) -> mixed([range(-1, 6)]);
args(spectral_sum, 1) -> mixed([range(-1, 12)]);
args(pi_leibniz, 1) -> mixed([range(-1, 100)]);
args(sqrt_newton, 2) -> some_odd([any_num()]) ++ [oneof([range(0, 50), atom()])];
args(horner, 2) -> mixed([range(-1, 30), any_num()]);
args(logistic, 2) -> mixed([range(0, 200), oneof([?LET(N, range(0, 1000), N / 1000), any_num()])]);
args(int_mean, 2) ->
    frequency([{9, ?LET({Low, N}, {any_int(), range(0, 40)}, [Low, Low + N])},
               {1, [junk(), any_int()]}]);
args(levenshtein, 2) -> mixed([few(range($a, $c)), few(range($a, $c))]);
args(matrix_product, 3) ->
    ?LET(N, range(1, 4), mixed([tuple_of(N * N, any_num()), tuple_of(N * N, any_num()), N]));
args(dot_product, 2) ->
    ?LET(N, range(0, 8), mixed([vector(N, any_num()), frequency([{9, vector(N, any_num())},
                                                             {1, few(any_num())}])]));
args(float_sum, 1) -> mixed([frequency([{5, few(any_float())}, {1, few(any_num())}])]);
args(int_sum, 1) -> mixed([frequency([{5, few(any_int())}, {1, few(any_num())}])]);
args(sieve, 1) -> mixed([range(-1, 60)]);
args(Terms, 1) when Terms =:= nrev; Terms =:= qsort -> mixed([few(oneof([any_num(), junk()]))]);
args(zip, 2) -> ?LET(N, range(0, 6), mixed([vector(N, any_num()), vector(N, junk())]));
args(squares, 1) -> mixed([few(any_num())]);
args(evens, 1) -> mixed([few(any_int())]);
args(count_atoms, 1) -> mixed([few(oneof([red, green, blue, junk()]))]);
args(bisect, 2) -> mixed([any_num(), ?LET(L, few(any_num()), list_to_tuple(lists:sort(L)))]);
args(point_sum, 1) -> mixed([few(frequency([{9, {point, any_num(), any_num()}}, {1, junk()}]))]);
args(csv_rows, 1) -> mixed([text(",,,\n\nab")]);
args(utf8_of, 1) ->
    mixed([few(frequency([{9, range(0, 16#10FFFF)}, {3, range(0, 127)}, {1, any_int()}]))]);
args(lookup, 2) ->
    Key = oneof([range(0, 5), any_num(), a, b, <<"c">>, {1, 2}]),
    mixed([Key, few(frequency([{9, {Key, junk()}}, {1, junk()}]))]);
args(pairs_below, 1) -> mixed([few(any_int())]);
args(suffixes, 1) -> mixed([few(junk())]);
args(_BytesIn, 1) -> mixed([bytes()]).

%% All as they should be, mostly; else some of them are not.
mixed(Types) -> frequency([{12, Types}, {1, some_odd(Types)}]).

some_odd(Types) -> [frequency([{6, Type}, {1, junk()}]) || Type <- Types].

%% @doc Other arguments for the same kernel, each of the kind that it was, no integer larger than it
%% was: it may be a count. The random numbers are those of the calling process.
-spec like(atom(), [term()]) -> [term()].
like(int_mean, [Low, High]) when is_integer(Low), is_integer(High) ->
    %% It counts from one to the other.
    Other = like(Low),
    [Other, Other + High - Low];
like(_, Args) -> [like(Arg) || Arg <- Args].

like(I) when is_integer(I) ->
    case rand:uniform(3) of
        1 -> I;
        2 when I < 0 -> -rand:uniform(-I);
        2 -> rand:uniform(I + 1) - 1;
        %% Near to it, as the edges are what matters.
        3 -> I - rand:uniform(min(3, abs(I)) + 1) + 1
    end;
like(X) when is_float(X) ->
    case rand:uniform(4) of
        1 -> -X;
        2 -> X;
        _ -> X * rand:uniform()
    end;
like(Bin) when is_binary(Bin), Bin =/= <<>> ->
    At = rand:uniform(byte_size(Bin)) - 1,
    <<Before:At/binary, Byte, After/binary>> = Bin,
    case rand:uniform(5) of
        1 -> Bin;
        2 -> <<Before/binary, (rand:uniform(256) - 1), After/binary>>;
        3 -> <<Before/binary, (Byte bxor (1 bsl (rand:uniform(8) - 1))), After/binary>>;
        4 -> Before;
        5 -> <<Before/binary, Byte, After/binary, Before/binary>>
    end;
like([_ | _] = List) when length(List) > 0 ->
    case rand:uniform(3) of
        1 -> tl(List);
        _ -> [like(E) || E <- List]
    end;
like(Tuple) when is_tuple(Tuple) -> list_to_tuple([like(E) || E <- tuple_to_list(Tuple)]);
like(Other) -> Other.

%% @doc Integers: small ones, and those around the powers of two where something changes.
-spec any_int() -> proper_types:type().
any_int() ->
    frequency([{4, integer()}, {3, oneof(edges())},
               {2, ?LET({K, N}, {range(0, 130), integer()}, (1 bsl K) + N)},
               {2, ?LET({K, N}, {range(0, 130), integer()}, N - (1 bsl K))},
               {1, ?LET({A, B}, {oneof(edges()), oneof(edges())}, A bxor B)}]).

%% @doc Mostly natural numbers.
-spec any_nat() -> proper_types:type().
any_nat() -> frequency([{9, ?LET(I, any_int(), abs(I))}, {1, any_int()}]).

word() -> frequency([{9, ?LET(I, any_int(), I band 16#FFFFFFFFFFFFFFFF)}, {1, any_int()}]).

%% @doc Where the kind of an integer changes, or the way an operation treats it, with neighbours.
-spec edges() -> [integer()].
edges() ->
    Bits = [0, 1, 7, 8, 15, 16, 24, 31, 32, 52, 53, 58, 59, 60, 62, 63, 64, 65, 127, 128],
    lists:usort([S * ((1 bsl K) + D) || K <- Bits, D <- [-1, 0, 1], S <- [1, -1]]).

%% @doc Floats, with those at the edges.
-spec any_float() -> proper_types:type().
any_float() ->
    frequency([{3, proper_types:float()}, {2, oneof(float_edges())},
               {1, ?LET(I, any_int(), to_float(I))}]).

to_float(I) -> I / 1.

%% @doc Zeroes, the least and the largest, one and its neighbours, the limits of exact integers.
-spec float_edges() -> [float()].
float_edges() ->
    Positive = [0.0, 5.0e-324, 2.2250738585072014e-308, 1.0e-160, 0.5, 0.9999999999999999, 1.0,
                1.0000000000000002, 1.5, 2.0, 2147483648.0, 4503599627370496.5, 9007199254740991.0,
                9007199254740992.0, 9007199254740994.0, 576460752303423488.0,
                9223372036854775807.0, 18446744073709551616.0, 1.0e160, 1.3407807929942597e154,
                1.7976931348623157e308],
    Positive ++ [-X || X <- Positive].

%% @doc Any number.
-spec any_num() -> proper_types:type().
any_num() -> frequency([{4, any_float()}, {3, any_int()}]).

%% @doc What is seldom meant. No large number: some of the arguments are counts.
-spec junk() -> proper_types:type().
junk() ->
    oneof([atom, '\nnative', 1.5, -0.0, [], "text", [1 | 2], {}, {point, 1}, #{a => 1},
           <<>>, <<5:3>>, <<1, 2, 1:1>>, fun erlang:abs/1, self()]).

%% @doc Binaries: short, longer, parts of others that do not begin at a byte.
-spec bytes() -> proper_types:type().
bytes() ->
    frequency([{6, binary()},
               {2, ?LET({B, N}, {binary(), range(2, 40)}, binary:copy(B, N))},
               {1, ?LET({B, N}, {non_empty(binary()), range(1, 7)}, unaligned(B, N))},
               {1, bitstring()}]).

%% The same bytes, N bits into another one.
unaligned(Bin, N) ->
    Size = byte_size(Bin),
    <<_:N, Part:Size/binary, _/bitstring>> = <<0:N, Bin/binary, 1:1>>,
    Part.

%% Mostly of these characters.
text(Chars) ->
    ?LET(L, list(frequency([{40, oneof(Chars)}, {1, byte()}])), list_to_binary(L)).

varints() -> ?LET(L, few(any_nat()), << <<(varint(abs(N)))/binary>> || N <- L >>).

varint(N) when N < 128 -> <<N>>;
varint(N) -> <<1:1, N:7, (varint(N bsr 7))/binary>>.

code_points() ->
    Char = oneof([range(0, 16#7F), range(16#80, 16#7FF), range(16#800, 16#D7FF),
                  range(16#E000, 16#FFFF), range(16#10000, 16#10FFFF)]),
    ?LET(L, list(Char), << <<C/utf8>> || C <- L >>).

%% With one byte changed.
broken(Type) ->
    ?LET(Bin, Type,
         ?LET({At, With}, {range(0, max(0, byte_size(Bin) - 1)), byte()},
              case Bin of
                  <<Before:At/binary, _, After/binary>> -> <<Before/binary, With, After/binary>>;
                  <<>> -> Bin
              end)).

hex(Bin) -> << <<(lists:nth(D + 1, "0123456789abcdef"))>> || <<D:4>> <= Bin >>.

few(Type) -> ?LET(N, range(0, 8), vector(N, Type)).

tuple_of(N, Type) -> ?LET(L, vector(N, Type), list_to_tuple(L)).
