%% SPDX-License-Identifier: Apache-2.0
%% @doc The text that makes a library of NIFs of a module's functions: its table, what is done when
%% it is loaded, the atoms and the counters. Pure.
-module(erlane_native_library).

-export([header/4]).

%% @doc All but the units. They come as `{ok, Text, {Number, Arity}}'.
-spec header(atom(), [{ok, iodata(), {non_neg_integer(), arity()}}], non_neg_integer(),
             [atom() | []]) -> iodata().
header(Name, Good, Reasons, Atoms) ->
    Nifs = lists:append([[{["n", n(I)], A}, {["r", n(I)], 1}] || {ok, _, {I, A}} <- Good])
        ++ [{"counts", 0}, {"meter", 2}],
    Count = length(Nifs),
    Module = latin1(Name),
    Direct = [] =/= erlane_native_term:gate([Text || {ok, Text, _} <- Good]),
    Strings = [{"module", Module}, {"variant", <<"beam.vanilla">>},
               {"erts", <<"erts-13.0">>}]
        ++ [{["f_", F], iolist_to_binary(F)} || {F, _} <- Nifs]
        ++ [{["atom", n(I)], latin1(A)} || {I, A} <- indexed(Atoms), is_atom(A)],
    [erlane_native_runtime:declarations(),
     [["@s_", K, " = internal constant [", n(byte_size(B) + 1), " x i8] c\"", escape(B), "\\00\"\n"]
      || {K, B} <- Strings],
     ["@atom_table = internal global [", n(max(1, length(Atoms))), " x i64] zeroinitializer\n",
      "@count_table = internal global [", n(Reasons + 1), " x i64] zeroinitializer\n",
      "@atoms = internal alias i64, getelementptr ([", n(max(1, length(Atoms))), " x i64], [",
      n(max(1, length(Atoms))), " x i64]* @atom_table, i64 0, i64 0)\n",
      "@counters = internal alias i64, getelementptr ([", n(Reasons + 1), " x i64], [",
      n(Reasons + 1), " x i64]* @count_table, i64 0, i64 0)\n",
      "@yields = internal global i64 0\n@turns = internal global i64 0\n"],
     ["@nifs = internal global [", n(Count), " x %func] [",
      lists:join(", ", [["%func { i8* ", string(["f_", F], F), ", i32 ", n(A),
                         ", i64 (i8*, i32, i64*)* @", F, ", i32 0 }"] || {F, A} <- Nifs]), "]\n"],
     ["@entry = internal global %entry { i32 2, i32 16, i8* ",
      string("module", Module), ", i32 ", n(Count),
      ", %func* getelementptr ([", n(Count), " x %func], [", n(Count),
      " x %func]* @nifs, i64 0, i64 0), i32 (i8*, i8**, i64)* @load, i8* null, ",
      "i32 (i8*, i8**, i8**, i64)* @upgrade, i8* null, i8* ", string("variant", "beam.vanilla"),
      ", i32 1, i64 40, i8* ", string("erts", "erts-13.0"), " }\n"],
     "define %entry* @nif_init() {\n  ret %entry* @entry\n}\n",
     "define internal i32 @load(i8* %env, i8** %priv, i64 %info) {\n",
     [["  %v", n(I), " = call i64 ",
       case A of
           [] -> "@enif_make_list_from_array(i8* %env, i64* null, i32 0)";
           _ -> ["@enif_make_atom_len(i8* %env, i8* ", string(["atom", n(I)], latin1(A)), ", i64 ",
                 n(byte_size(latin1(A))), ")"]
       end, "\n  store i64 %v", n(I), ", i64* getelementptr (i64, i64* @atoms, i64 ", n(I), ")\n"]
      || {I, A} <- indexed(Atoms)],
     [["  %probed = call i8 @probe(i8* %env)\n  store i8 %probed, i8* @direct\n"] || Direct],
     "  ret i32 0\n}\n",
     [erlane_native_term:functions() || Direct],
     erlane_native_runtime:functions(Reasons)].

indexed(List) -> lists:zip(seq(List), List).

string(Key, Text) ->
    N = n(iolist_size(Text) + 1),
    ["getelementptr ([", N, " x i8], [", N, " x i8]* @s_", Key, ", i64 0, i64 0)"].

%% As the VM reads names. Units with an atom of other letters are not taken, and the compiler knows
%% no module with such a name.
latin1(A) -> << <<C>> || C <- atom_to_list(A), C < 256 >>.

escape(B) -> [case C of
                  _ when C >= $a, C =< $z; C >= $A, C =< $Z; C >= $0, C =< $9 -> C;
                  _ -> io_lib:format("\\~2.16.0B", [C])
              end || <<C>> <= B].

seq(List) -> lists:seq(0, length(List) - 1).

n(I) -> integer_to_list(I).
