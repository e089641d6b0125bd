%% SPDX-License-Identifier: Apache-2.0
%% Every operation alone, at the edges of what its operands can be: small modules as text, and the
%% arguments to call their functions with. Each operation stands in a loop of three rounds, as
%% operations do that are worth a translation, and in several surroundings that tell a compiler
%% different things about the operands.
-module(erlane_native_ops).

-export([tables/0, table/1]).

-export_type([table/0]).

-type table() :: {Text :: iodata(), [{Function :: atom(), [Args :: [term()]]}]}.

-define(EDGES, erlane_native_kernels:edges()).
-define(FLOATS, erlane_native_kernels:float_edges()).
-define(JUNK, [atom, [], {1}, <<1>>, #{}]).

%% @doc The names of the tables.
-spec tables() -> [atom()].
tables() ->
    [int_plain, int_small, int_word, int_wrapped, int_wide, int_carried, int_constant, int_unary,
     int_rounded, int_compare, literals, rest_compare, float_plain,
     float_guarded, float_compare, mixed, conversions, types, read_int, read_bits, read_float,
     read_utf, build_int, build_float, build_utf].

%% @doc One of them.
-spec table(atom()) -> table().
table(int_plain) -> binary([{"", plain(Op)} || Op <- int_ops()], ?EDGES ++ [1.5, atom]);
table(int_small) -> binary([{both(fun small/1), plain(Op)} || Op <- int_ops()], ?EDGES);
table(int_word) ->
    binary([{both(fun word/1), plain(Op)} || Op <- int_ops()], [E || E <- ?EDGES, E >= -1]);
table(int_wrapped) ->
    Masks = [1 bsl Bits - 1 || Bits <- [8, 32, 64]],
    binary([{both(fun word/1), ["(", plain(Op), ") band ", number(Mask)]}
            || Op <- ["+", "-", "*", "bxor", "bor", "bsr", "div", "rem"], Mask <- Masks]
           ++ [{[word("A"), ", is_integer(B), B >= -70, B < 70"],
                ["(A bsl B) band ", number(Mask)]} || Mask <- Masks],
           [E || E <- ?EDGES, E >= -65]);
table(int_wide) ->
    %% More than 64 bits on the way, and more than any machine integer has.
    unary([{word("A"), [Left, number(K), Right, " ", Then]}
           || K <- [1 bsl 62, 1 bsl 64, 1 bsl 126, 1 bsl 127, (1 bsl 128) - 1, -(1 bsl 128) + 1,
                    1 bsl 254, -(1 bsl 255), (1 bsl 256) - 1, 1 bsl 300],
              {Left, Right} <- [{"(A - (", "))"}, {"((", ") + A)"}],
              Then <- ["bsr 60", "bsr 1 bsr 64", "band 16#FFFFFFFFFFFFFFF", "rem 1000003",
                       "bsr 70 div 3", "band (1 bsl 127 - 1) bsr 66", "- (1 bsl 128) bsr 100"]]
          ++ [{word("A"), choice(["A * A - (", number(K), ") ", Op, " ", number(C)])}
              || K <- [1 bsl 64, 1 bsl 127, (1 bsl 128) - 1, 1 bsl 255],
                 {Op, C} <- [{"<", 0}, {">=", 1 bsl 127}, {"=<", -(1 bsl 127)}, {"=:=", 1 bsl 128}]]
          %% As a count of bits, and as what a loop goes on with.
          ++ [{word("A"), ["A ", Op, " (case A band 1 of 1 -> 1; 0 -> ", number(K), " end)"]}
              || Op <- ["bsr", "div", "rem", "-"], K <- [1 bsl 64, 1 bsl 128, 1 bsl 256]]
          ++ [{word("A"), ["case A of 7 -> ", number(K), "; _ -> A end"]}
              || K <- [1 bsl 64, (1 bsl 128) - 1, (1 bsl 256) - 1, 1 bsl 300]],
          [E || E <- ?EDGES, E >= 0]);
table(int_carried) ->
    %% What a loop goes on with has 64 bits.
    Named = named([1 bsl 64, (1 bsl 128) - 1, -(1 bsl 128), (1 bsl 256) - 1, 1 bsl 256, 1 bsl 300]),
    {[header(Named, 1)
      | [[F, "(A) -> ", F, "_l(3, A).\n",
          F, "_l(N, A) when N > 0, A band 1 =:= 1 -> ", F, "_l(N - 1, ", number(K), ");\n",
          F, "_l(N, A) when N > 0 -> ", F, "_l(N - 1, A bsr 1);\n",
          F, "_l(0, A) -> A.\n\n"] || {F, K} <- Named]],
     [{list_to_atom(F), [[V] || V <- ?EDGES]} || {F, _} <- Named]};
table(int_constant) ->
    unary([{word("A"), ["A ", Op, " (", number(K), ")"]} || Op <- int_ops(), K <- constants(Op)]
          ++ [{"", ["A ", Op, " (", number(K), ")"]} || Op <- int_ops(), K <- [1, 59]],
          ?EDGES ++ [1.5, atom]);
table(int_unary) ->
    unary([{Guard, [Op, "(A)"]}
           || Op <- ["-", "bnot", "abs", "+", "float", "trunc", "round"],
              Guard <- ["", small("A"), word("A")]], ?EDGES ++ ?JUNK ++ [1.5, -0.0]);
table(int_rounded) ->
    %% An integer stays what it was, whatever is made of it next.
    unary([{Guard, [Round, "(A) ", Then]}
           || Round <- ["trunc", "round", "floor", "ceil"],
              Guard <- ["is_integer(A)", small("A"), word("A")],
              Then <- ["* 4", "* 16", "+ A", "- 1", "band 16#FFFF", "bsl 3"]]
          ++ [{"is_integer(A)", choice([Round, "(A) < 1 bsl 60"])}
              || Round <- ["trunc", "round", "floor", "ceil"]]
          ++ [{Guard, [Round, "(A * 3) - 1"]} || Round <- ["trunc", "ceil"],
                                                 Guard <- ["is_integer(A)", word("A")]],
          ?EDGES);
table(literals) ->
    unary([{Guard, choice([X, " ", Op, " ", Y])}
           || Guard <- ["is_integer(A)", ""], Op <- comparisons(),
              Literal <- ["{a, 1}", "[a]", "<<7>>", "[]"],
              {X, Y} <- [{"A", Literal}, {Literal, "A"}]],
          [0, -1, 1 bsl 70, 0.5, {}, {a, 1}, {a, 1.0}, [a], [a | b], <<>>, <<7>>, <<6, 9>>, true]
          ++ ?JUNK);
table(rest_compare) ->
    Tests = [Test || Op <- comparisons(),
                     Test <- [["R ", Op, " <<>>"], ["<<>> ", Op, " R"], ["<<7, 8>> ", Op, " R"],
                              ["R ", Op, " {}"]]],
    Named = named(Tests),
    {[header(Named, 1)
      | [[F, "(A) -> ", F, "_s(A, 0).\n",
          F, "_s(<<X, R/binary>>, N) when ", Test, " -> ", F, "_s(R, N * 3 + X);\n",
          F, "_s(_, N) -> N.\n\n"] || {F, Test} <- Named]],
     [{list_to_atom(F), [[V] || V <- [<<>>, <<1>>, <<1, 7, 8>>, <<1, 7, 9>>, <<1, 2, 3, 4, 5>>,
                                      <<1, 8>>, <<1:9>>, atom]]} || {F, _} <- Named]};
table(int_compare) ->
    Guards = ["", both(fun small/1), both(fun word/1)],
    binary([{Guard, choice(["A ", Op, " B"])} || Op <- comparisons(), Guard <- Guards]
           ++ [{Guard, [Op, "(A, B)"]} || Op <- ["min", "max"], Guard <- Guards], ?EDGES ++ ?JUNK);
table(float_plain) -> binary([{"", plain(Op)} || Op <- float_ops()], ?FLOATS ++ [1, atom]);
table(float_guarded) ->
    %% What overflows between must not vanish in what follows.
    binary([{floats(), plain(Op)} || Op <- float_ops()]
           ++ [{floats(), ["(", plain(Op), ") ", Then]}
               || Op <- float_ops(), Then <- ["* 0.5", "- A", "* 0.0"]],
           ?FLOATS ++ [1]);
table(float_compare) ->
    binary([{Guard, choice(["A ", Op, " B"])} || Op <- comparisons(), Guard <- ["", floats()]]
           ++ [{"", [Op, "(A, B)"]} || Op <- ["min", "max"]], ?FLOATS);
table(mixed) ->
    binary([{"is_integer(A), is_float(B)", plain(Op)} || Op <- float_ops()]
           ++ [{Guard, choice(["A ", Op, " B"])}
               || Op <- comparisons(),
                  Guard <- ["is_integer(A), is_float(B)", "is_float(A), is_integer(B)"]]
           ++ [{"is_number(A), is_number(B)", [Op, "(A, B)"]} || Op <- ["min", "max"]],
           ?EDGES ++ ?FLOATS);
table(conversions) ->
    unary([{Guard, [Op, "(A)"]}
           || Op <- ["trunc", "round", "ceil", "floor", "float", "abs", "-", "math:sqrt",
                     "math:floor", "math:ceil", "math:sin", "math:exp", "math:log"],
              Guard <- ["", "is_float(A)"]],
          ?EDGES ++ ?FLOATS ++ ?JUNK);
table(types) ->
    unary([{"", choice([Test, "(A)"])}
           || Test <- ["is_integer", "is_float", "is_number", "is_atom", "is_binary", "is_list",
                       "is_bitstring", "is_tuple", "is_boolean", "is_map", "is_pid", "is_function"]]
          ++ [{"", ["case A of ", Term, " -> 1; _ -> 2 end"]}
              || Term <- ["0", "1.5", "true", "[]", "atom", "{1}", "576460752303423488", "<<1>>"]],
          [0, 1, 1 bsl 59, 1 bsl 70, 1.5, 0.0, true, false, self(), fun erlang:abs/1, <<1:1>>, {}]
          ++ ?JUNK);
table(read_int) ->
    read([["<<X:", number(N), "/", How, ", R/binary>>"]
          || N <- [8, 16, 24, 32, 40, 48, 56, 64, 72, 128], How <- kinds()], binaries());
table(read_bits) ->
    %% Whole bytes altogether, and not.
    read([["<<_:", number(K), ", X:", number(N), "/", How, ", _:", number(-(K + N) band 7),
           ", R/bitstring>>"]
          || N <- [1, 3, 7, 9, 13, 31, 33, 57, 59, 60, 63, 65], K <- [0, 5], How <- kinds()]
         ++ [["<<_:1, X:", number(N), "/", How, ", R/bitstring>>"] || N <- [8, 60],
                                                                      How <- kinds()],
         binaries());
table(read_float) ->
    read([["<<X:", How, ", R/binary>>"]
          || How <- ["64/float", "32/float", "64/float-little", "32/float-little", "16/float"]]
         %% Those that nobody looks at have to be floats too.
         ++ [["<<_:", How, ", X, R/binary>>"]
             || How <- ["64/float", "32/float", "64/float-little"]],
         binaries() ++ [<<X/float>> || X <- ?FLOATS] ++ [<<X:32/float>> || X <- [0.5, -0.0, 1.0e38]]
         %% Infinities, and what is no number: they do not match.
         ++ [<<16#7FF0000000000000:64>>, <<16#FFF0000000000000:64>>, <<16#7FF8000000000001:64>>,
             <<16#7F800000:32>>, <<16#7FC00001:32>>, <<16#FFF0000000000000:64/little>>,
             <<16#7FF0000000000000:64, 1>>, <<16#7F800000:32, 1>>, <<1.5/float, 1>>]);
table(read_utf) ->
    Chars = [0, 16#7F, 16#80, 16#7FF, 16#800, 16#D7FF, 16#E000, 16#FFFD, 16#FFFE, 16#FFFF, 16#10000,
             16#10FFFF],
    read([["<<X/", How, ", R/binary>>"]
          || How <- ["utf8", "utf16", "utf16-little", "utf32", "utf32-little"]],
         binaries() ++ [<<C/utf8>> || C <- Chars] ++ [<<C/utf16>> || C <- Chars]
         ++ [<<C/utf16-little>> || C <- Chars] ++ [<<C:32>> || C <- Chars ++ [16#D800, 16#110000]]
         ++ [<<16#C0, 16#80>>, <<16#C1, 16#BF>>, <<16#ED, 16#A0, 16#80>>, <<16#ED, 16#BF, 16#BF>>,
             <<16#F4, 16#90, 16#80, 16#80>>, <<16#F8, 16#88, 16#80, 16#80, 16#80>>, <<16#80>>,
             <<16#E0, 16#9F, 16#BF>>, <<16#F0, 16#8F, 16#BF, 16#BF>>, <<16#E2, 16#82>>]);
table(build_int) ->
    build([["A:", number(N), "/", How] || N <- [1, 7, 8, 9, 16, 24, 32, 48, 59, 60, 64, 65, 128],
                                          How <- ["little", "big"]], ?EDGES ++ [1.5, atom]);
table(build_float) ->
    build([["A:", How] || How <- ["64/float", "32/float", "64/float-little"]],
          ?FLOATS ++ [1, 1 bsl 60, 1 bsl 1100, atom]);
table(build_utf) ->
    build([["A/", How] || How <- ["utf8", "utf16", "utf32", "utf16-little"]],
          [0, 16#7F, 16#80, 16#7FF, 16#800, 16#D7FF, 16#D800, 16#DFFF, 16#E000, 16#FFFF, 16#10000,
           16#10FFFF, 16#110000, -1, 1.0, atom]).

int_ops() -> ["+", "-", "*", "div", "rem", "band", "bor", "bxor", "bsl", "bsr"].
float_ops() -> ["+", "-", "*", "/"].
comparisons() -> ["<", ">", "=<", ">=", "==", "/=", "=:=", "=/="].

kinds() -> ["little-signed", "little-unsigned", "big-signed", "big-unsigned"].

constants("bs" ++ _) -> [0, 1, 32, 59, 60, 63, 64, 200, -1, -59];
constants(_) ->
    [0, 1, -1, 7, -8, 255, 65521, (1 bsl 59) - 1, 1 bsl 59, -(1 bsl 59), 1 bsl 63, (1 bsl 64) - 1].

%% A shift to the left by 2^31 would be a number of 256 MB.
plain("bsl") -> "A bsl (B band 127)";
plain(Op) -> ["A ", Op, " B"].

choice(Condition) -> ["case ", Condition, " of true -> 1; false -> 2 end"].

small(X) ->
    ["is_integer(", X, "), ", X, " >= -576460752303423488, ", X, " =< 576460752303423487"].

word(X) -> ["is_integer(", X, "), ", X, " >= 0, ", X, " =< 18446744073709551615"].

both(Test) -> [Test("A"), ", ", Test("B")].

floats() -> "is_float(A), is_float(B)".

number(N) -> integer_to_list(N).

%% Whole bytes of several kinds, some with bits after them, some inside of others.
binaries() ->
    Patterns = [<<0:160>>, <<-1:160>>, <<16#80, 0:152>>, <<16#7F, -1:152>>,
                list_to_binary(lists:seq(1, 20)), list_to_binary(lists:seq(240, 255)),
                <<16#0123456789ABCDEFFEDCBA9876543210:128>>],
    Cut = [binary:part(B, 0, N) || B <- lists:sublist(Patterns, 6), N <- [0, 1, 2, 3, 7, 8, 9]],
    Inside = [begin <<_:K, Part:96/bitstring, _/bitstring>> = B, Part end
              || B <- Patterns, K <- [1, 4, 8, 20]],
    Patterns ++ Cut ++ Inside ++ [<<5:3>>, <<1, 2, 3:4>>, atom, 17, [1]].

%%
%% Text
%%

%% Functions of two arguments, called with all pairs.
binary(Functions, Values) ->
    table(Functions, "A, B", [[A, B] || A <- Values, B <- Values]).

unary(Functions, Values) ->
    table(Functions, "A", [[A] || A <- Values]).

table(Functions, Vars, Args) ->
    Named = named(Functions),
    {[header(Named, length(hd(Args))) | [looped(F, Vars, Guard, E) || {F, {Guard, E}} <- Named]],
     [{list_to_atom(F), Args} || {F, _} <- Named]}.

looped(F, Vars, Guard, E) ->
    [F, "(", Vars, ")", [[" when ", Guard] || Guard =/= ""], " ->\n    ",
     F, "_l(3, ", Vars, ", none).\n",
     F, "_l(N, ", Vars, ", _) when N > 0 -> ", F, "_l(N - 1, ", Vars, ",\n    ", E, ");\n",
     F, "_l(0, ", Vars, ", R) -> R.\n\n"].

%% Each reads one value after the other: the last one, how many there were, what is left.
read(Patterns, Values) ->
    Named = named(Patterns),
    {[header(Named, 1)
      | [[F, "(A) -> ", F, "_s(A, 0, 0).\n",
          F, "_s(", Pattern, ", _, N) -> ", F, "_s(R, X, N + 1);\n",
          F, "_s(R, Last, N) when is_bitstring(R) -> {Last, N, bit_size(R)}.\n\n"]
         || {F, Pattern} <- Named]],
     [{list_to_atom(F), [[V] || V <- Values]} || {F, _} <- Named]}.

build(Segments, Values) ->
    Named = named(Segments),
    {[header(Named, 1)
      | [[F, "(A) -> ", F, "_b(3, A, <<>>).\n",
          F, "_b(0, _, Acc) -> Acc;\n",
          F, "_b(N, A, Acc) -> ", F, "_b(N - 1, A, <<Acc/bitstring, ", Segment, ">>).\n\n"]
         || {F, Segment} <- Named]],
     [{list_to_atom(F), [[V] || V <- Values]} || {F, _} <- Named]}.

named(Functions) ->
    Names = ["f" ++ integer_to_list(I) || I <- lists:seq(1, length(Functions))],
    lists:zip(Names, Functions).

header(Named, Arity) ->
    List = lists:join(", ", [[F, "/", integer_to_list(Arity)] || {F, _} <- Named]),
    ["-export([", List, "]).\n-native([", List, "]).\n\n"].
