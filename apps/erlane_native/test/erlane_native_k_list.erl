%% SPDX-License-Identifier: Apache-2.0
%% Kernels of lists and tuples. Some of them are not worth it as native code; they are here so that
%% it is seen how each is refused, or that it is not slower.
-module(erlane_native_k_list).

-export([levenshtein/2, matrix_product/3, dot_product/2, float_sum/1, int_sum/1, histogram/1,
         crc32c_table/1, sieve/1, nrev/1, qsort/1, zip/2, squares/1, evens/1, count_atoms/1,
         bisect/2, point_sum/1, csv_rows/1, utf8_of/1, lookup/2, pairs_below/1, suffixes/1]).

-native([levenshtein/2, matrix_product/3, dot_product/2, float_sum/1, int_sum/1, histogram/1,
         crc32c_table/1, sieve/1, nrev/1, qsort/1, zip/2, squares/1, evens/1, count_atoms/1,
         bisect/2, point_sum/1, csv_rows/1, utf8_of/1, lookup/2, pairs_below/1, suffixes/1]).

%% Wagner and Fischer's algorithm with one row.
-spec levenshtein([term()], [term()]) -> non_neg_integer().
levenshtein(A, B) -> lev_rows(A, B, from(0, length(B)), 1).

from(I, N) when I =< N -> [I | from(I + 1, N)];
from(_, _) -> [].

last([X]) -> X;
last([_ | Xs]) -> last(Xs).

lev_rows([], _, Row, _) -> last(Row);
lev_rows([X | Xs], B, [Corner | Row], I) ->
    lev_rows(Xs, B, [I | lev_row(X, B, Row, Corner, I)], I + 1).

lev_row(_, [], [], _, _) -> [];
lev_row(X, [Y | Ys], [Up | Row], Corner, Left) ->
    Cost = case X =:= Y of
               true -> Corner;
               false -> Corner + 1
           end,
    D = least(Cost, Up + 1, Left + 1),
    [D | lev_row(X, Ys, Row, Up, D)].

least(A, B, C) when A =< B, A =< C -> A;
least(_, B, C) when B =< C -> B;
least(_, _, C) -> C.

%% N by N matrices of floats as tuples, row by row; the product as a list.
-spec matrix_product(tuple(), tuple(), pos_integer()) -> [float()].
matrix_product(A, B, N) when is_integer(N), N > 0 -> product(N, N, N, A, B, []).

product(0, _, _, _, _, Acc) -> Acc;
product(I, 0, N, A, B, Acc) -> product(I - 1, N, N, A, B, Acc);
product(I, J, N, A, B, Acc) ->
    product(I, J - 1, N, A, B, [cell(N, (I - 1) * N + 1, J, N, A, B, 0.0) | Acc]).

cell(0, _, _, _, _, _, Sum) -> Sum;
cell(K, P, Q, N, A, B, Sum) ->
    cell(K - 1, P + 1, Q + N, N, A, B, Sum + element(P, A) * element(Q, B)).

-spec dot_product([number()], [number()]) -> number().
dot_product(A, B) -> dot_product(A, B, 0).

dot_product([X | Xs], [Y | Ys], Sum) -> dot_product(Xs, Ys, Sum + X * Y);
dot_product([], [], Sum) -> Sum.

-spec float_sum([float()]) -> float().
float_sum(List) -> float_sum(List, 0.0).

float_sum([X | Rest], Sum) -> float_sum(Rest, Sum + X);
float_sum([], Sum) -> Sum.

-spec int_sum([integer()]) -> integer().
int_sum(List) -> int_sum(List, 0).

int_sum([X | Rest], Sum) -> int_sum(Rest, Sum + X);
int_sum([], Sum) -> Sum.

%% How many bytes have their high bits 00, 01, 10, 11.
-spec histogram(binary()) -> {integer(), integer(), integer(), integer()}.
histogram(Bin) -> histogram(Bin, {0, 0, 0, 0}).

histogram(<<B, Rest/binary>>, Counts) ->
    I = (B bsr 6) + 1,
    histogram(Rest, setelement(I, Counts, element(I, Counts) + 1));
histogram(<<>>, Counts) -> Counts.

%% CRC-32C with a table of sixteen entries: two steps for each byte.
-spec crc32c_table(binary()) -> non_neg_integer().
crc32c_table(Bin) -> crc32c_table(Bin, 16#FFFFFFFF, crc_table()).

crc32c_table(<<B, Rest/binary>>, C0, Table) ->
    C1 = C0 bxor B,
    C2 = (C1 bsr 4) bxor element((C1 band 15) + 1, Table),
    crc32c_table(Rest, (C2 bsr 4) bxor element((C2 band 15) + 1, Table), Table);
crc32c_table(<<>>, C, _) -> C bxor 16#FFFFFFFF.

crc_table() ->
    {16#00000000, 16#105EC76F, 16#20BD8EDE, 16#30E349B1, 16#417B1DBC, 16#5125DAD3, 16#61C69362,
     16#7198540D, 16#82F63B78, 16#92A8FC17, 16#A24BB5A6, 16#B21572C9, 16#C38D26C4, 16#D3D3E1AB,
     16#E330A81A, 16#F36E6F75}.

%% Primes up to N with their numbers: each is tried by those found before, the last one first.
-spec sieve(integer()) -> [{integer(), integer()}].
sieve(N) when is_integer(N) -> sieve(2, N, [], 0).

sieve(I, N, Found, _) when I > N -> lists:reverse(Found);
sieve(I, N, Found, Count) ->
    case divided(I, Found) of
        true -> sieve(I + 1, N, Found, Count);
        false -> sieve(I + 1, N, [{Count + 1, I} | Found], Count + 1)
    end.

divided(_, []) -> false;
divided(I, [{_, P} | _]) when I rem P =:= 0 -> true;
divided(I, [_ | Rest]) -> divided(I, Rest).

%% The four below are of the old benchmark set of HiPE, by name.
-spec nrev(list()) -> list().
nrev([]) -> [];
nrev([X | Rest]) -> append(nrev(Rest), [X]).

append([], B) -> B;
append([X | A], B) -> [X | append(A, B)].

-spec qsort(list()) -> list().
qsort(List) -> qsort(List, []).

qsort([], Tail) -> Tail;
qsort([Pivot | Rest], Tail) -> partition(Pivot, Rest, [], [], Tail).

partition(Pivot, [], Low, High, Tail) -> qsort(Low, [Pivot | qsort(High, Tail)]);
partition(Pivot, [X | Rest], Low, High, Tail) when X < Pivot ->
    partition(Pivot, Rest, [X | Low], High, Tail);
partition(Pivot, [X | Rest], Low, High, Tail) -> partition(Pivot, Rest, Low, [X | High], Tail).

-spec zip(list(), list()) -> [{term(), term()}].
zip([X | Xs], [Y | Ys]) -> [{X, Y} | zip(Xs, Ys)];
zip([], []) -> [].

-spec squares([number()]) -> [number()].
squares(List) -> [X * X || X <- List].

-spec evens([integer()]) -> [integer()].
evens(List) -> [X bsr 1 || X <- List, X band 1 =:= 0].

%% How often each of three atoms occurs; anything else is a fourth.
-spec count_atoms(list()) -> {integer(), integer(), integer(), integer()}.
count_atoms(List) -> count_atoms(List, 0, 0, 0, 0).

count_atoms([red | Rest], R, G, B, O) -> count_atoms(Rest, R + 1, G, B, O);
count_atoms([green | Rest], R, G, B, O) -> count_atoms(Rest, R, G + 1, B, O);
count_atoms([blue | Rest], R, G, B, O) -> count_atoms(Rest, R, G, B + 1, O);
count_atoms([_ | Rest], R, G, B, O) -> count_atoms(Rest, R, G, B, O + 1);
count_atoms([], R, G, B, O) -> {R, G, B, O}.

%% The place of the first element of a sorted tuple that is not below X.
-spec bisect(term(), tuple()) -> pos_integer().
bisect(X, Tuple) -> bisect(X, Tuple, 1, tuple_size(Tuple) + 1).

bisect(_, _, Low, High) when Low >= High -> Low;
bisect(X, Tuple, Low, High) ->
    Middle = (Low + High) div 2,
    case element(Middle, Tuple) < X of
        true -> bisect(X, Tuple, Middle + 1, High);
        false -> bisect(X, Tuple, Low, Middle)
    end.

%% Sums of points, whose tags have to be right.
-spec point_sum([{point, number(), number()}]) -> {point, number(), number()}.
point_sum(Points) -> point_sum(Points, 0, 0).

point_sum([{point, X, Y} | Rest], Sx, Sy) -> point_sum(Rest, Sx + X, Sy + Y);
point_sum([], Sx, Sy) -> {point, Sx, Sy}.

%% Lines of fields; neither quoted.
-spec csv_rows(binary()) -> [[binary()]].
csv_rows(Bin) -> csv_rows(Bin, 0, Bin, [], []).

csv_rows(<<C, Rest/binary>>, N, From, Row, Rows) when C =:= $,; C =:= $\n ->
    <<Field:N/binary, _/binary>> = From,
    case C of
        $, -> csv_rows(Rest, 0, Rest, [Field | Row], Rows);
        $\n -> csv_rows(Rest, 0, Rest, [], [[Field | Row] | Rows])
    end;
csv_rows(<<_, Rest/binary>>, N, From, Row, Rows) -> csv_rows(Rest, N + 1, From, Row, Rows);
csv_rows(<<>>, _, From, Row, Rows) -> [[From | Row] | Rows].

-spec utf8_of([char()]) -> binary().
utf8_of(List) -> << <<C/utf8>> || C <- List >>.

%% Key lists in lists: the value, or none.
-spec lookup(term(), [{term(), term()}]) -> {value, term()} | none.
lookup(Key, [{Key, Value} | _]) -> {value, Value};
lookup(Key, [_ | Rest]) -> lookup(Key, Rest);
lookup(_, []) -> none.

-spec pairs_below([integer()]) -> [{integer(), integer(), integer()}].
pairs_below(List) -> [{X, Y, X * Y} || X <- List, is_integer(X), Y <- List, Y < X].

-spec suffixes([term()]) -> [[term()]].
suffixes([_ | Rest] = List) -> [List, Rest | suffixes(Rest)];
suffixes(End) -> [End].
