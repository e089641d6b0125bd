%% SPDX-License-Identifier: Apache-2.0
%% Programs of the set that HiPE and ErLLVM were measured with, by name: those that its papers call
%% small. Each is written from the algorithm that the name stands for, and so is not the program
%% that was measured then. `fib', `tak', `nrev' and `qsort' are among the kernels.
-module(erlane_native_set_small).

-export([length_c/1, length_u/1, smith/2, huff/1, life/2, stable/2, barnes/1, decode/1, ring/2,
         prettypr/2, yaws_html/1]).

-native([length_c/1, length_u/1, smith/2, huff/1, life/2, stable/2, barnes/1, decode/1, ring/2,
         prettypr/2, yaws_html/1]).

%% The length of a list, by a tail call and without.
-spec length_c(list()) -> non_neg_integer().
length_c(List) -> length_c(List, 0).

length_c([], N) -> N;
length_c([_ | Rest], N) -> length_c(Rest, N + 1).

-spec length_u(list()) -> non_neg_integer().
length_u([]) -> 0;
length_u([_ | Rest]) -> 1 + length_u(Rest).

%% The best local alignment of two sequences (Smith and Waterman), row by row: match 2, mismatch
%% and gap -1.
-spec smith([term()], [term()]) -> non_neg_integer().
smith(A, B) -> smith(A, B, [0 || _ <- B], 0).

smith([], _, _, Best) -> Best;
smith([X | Xs], B, Row, Best) ->
    {New, High} = smith_row(X, B, Row, 0, 0, Best, []),
    smith(Xs, B, New, High).

smith_row(_, [], [], _, _, Best, Acc) -> {lists:reverse(Acc), Best};
smith_row(X, [Y | Ys], [Up | Row], Corner, Left, Best, Acc) ->
    Pair = case X =:= Y of
               true -> Corner + 2;
               false -> Corner - 1
           end,
    Score = max(max(0, Pair), max(Up - 1, Left - 1)),
    smith_row(X, Ys, Row, Up, Score, max(Best, Score), [Score | Acc]).

%% Huffman's code of a text: the tree, and how many bits the text has in it.
-spec huff([char()]) -> non_neg_integer().
huff(Text) ->
    Counts = runs(lists:sort(Text)),
    Tree = merge(lists:sort([{N, {leaf, C}} || {C, N} <- Counts])),
    Lengths = depths(Tree, 0),
    lists:sum([N * proplists:get_value(C, Lengths) || {C, N} <- Counts]).

runs([]) -> [];
runs([C | Rest]) -> runs(Rest, C, 1).

runs([C | Rest], C, N) -> runs(Rest, C, N + 1);
runs(Rest, C, N) -> [{C, N} | runs(Rest)].

merge([{_, Tree}]) -> Tree;
merge([{N, A}, {M, B} | Rest]) -> merge(insert({N + M, {node, A, B}}, Rest)).

insert(E, [First | Rest]) when element(1, First) < element(1, E) -> [First | insert(E, Rest)];
insert(E, Rest) -> [E | Rest].

depths({leaf, C}, D) -> [{C, D}];
depths({node, A, B}, D) -> depths(A, D + 1) ++ depths(B, D + 1).

%% Conway's game on a torus of lists of rows: how many live after N generations.
-spec life(non_neg_integer(), [[0 | 1]]) -> non_neg_integer().
life(0, Rows) -> lists:sum([lists:sum(R) || R <- Rows]);
life(N, Rows) -> life(N - 1, generation([lists:last(Rows) | Rows] ++ [hd(Rows)])).

generation([Above, Row, Below | Rest]) ->
    [cells(around(Above), around(Row), around(Below)) | generation([Row, Below | Rest])];
generation(_) -> [].

around(Row) -> [lists:last(Row) | Row] ++ [hd(Row)].

cells([A, B, C | As], [D, E, F | Bs], [G, H, I | Cs]) ->
    Cell = case A + B + C + D + F + G + H + I of
               3 -> 1;
               2 -> E;
               _ -> 0
           end,
    [Cell | cells([B, C | As], [E, F | Bs], [H, I | Cs])];
cells(_, _, _) -> [].

%% Stable marriages (Gale and Shapley): lists of preferences of each side, and who was refused last.
-spec stable([{term(), [term()]}], [{term(), [term()]}]) -> [{term(), term()}].
stable(Men, Women) -> propose(Men, [], Women).

propose([], Engaged, _) -> lists:sort(Engaged);
propose([{Man, [Woman | Others]} | Free], Engaged, Women) ->
    case lists:keyfind(Woman, 1, Engaged) of
        false -> propose(Free, [{Woman, {Man, Others}} | Engaged], Women);
        {Woman, {Rival, Left}} ->
            {Woman, Likes} = lists:keyfind(Woman, 1, Women),
            case first(Man, Rival, Likes) of
                Man ->
                    Now = lists:keyreplace(Woman, 1, Engaged, {Woman, {Man, Others}}),
                    propose([{Rival, Left} | Free], Now, Women);
                Rival -> propose([{Man, Others} | Free], Engaged, Women)
            end
    end.

first(A, _, [A | _]) -> A;
first(_, B, [B | _]) -> B;
first(A, B, [_ | Rest]) -> first(A, B, Rest).

%% Forces in the plane by Barnes and Hut's tree of quadrants: the sum of their sizes.
-spec barnes([{float(), float()}]) -> float().
barnes(Bodies) ->
    Tree = lists:foldl(fun(B, T) -> add(B, T, 0.0, 0.0, 1.0) end, empty, Bodies),
    lists:sum([force(B, Tree, 1.0) || B <- Bodies]).

%% Mass and place of what a square has, which begins at X, Y.
add({Bx, By}, empty, _, _, _) -> {1.0, Bx, By, none};
add(Body, {_, X, Y, none}, X0, Y0, Size) when Size > 1.0e-6 ->
    Split = {0.0, 0.0, 0.0, {empty, empty, empty, empty}},
    add(Body, add({X, Y}, Split, X0, Y0, Size), X0, Y0, Size);
add({Bx, By}, {M, X, Y, Parts}, X0, Y0, Size) ->
    Mass = M + 1.0,
    Half = Size / 2,
    {Mass, (X * M + Bx) / Mass, (Y * M + By) / Mass,
     case Parts of
         none -> none;
         _ ->
             {I, X1} = case Bx < X0 + Half of true -> {1, X0}; false -> {2, X0 + Half} end,
             {J, Y1} = case By < Y0 + Half of true -> {0, Y0}; false -> {2, Y0 + Half} end,
             setelement(I + J, Parts, add({Bx, By}, element(I + J, Parts), X1, Y1, Half))
     end}.

force(_, empty, _) -> 0.0;
force({Bx, By}, {Mass, X, Y, Parts}, Size) ->
    Distance = math:sqrt((X - Bx) * (X - Bx) + (Y - By) * (Y - By)) + 0.001,
    case Parts of
        {A, B, C, D} when Size > 0.5 * Distance ->
            Half = Size / 2,
            force({Bx, By}, A, Half) + force({Bx, By}, B, Half) + force({Bx, By}, C, Half)
                + force({Bx, By}, D, Half);
        _ -> Mass / (Distance * Distance)
    end.

%% Messages of a protocol: elements of a tag, a length of one or of more bytes, and a value; those
%% whose tag has bit 6 set hold others. The sum of tags, lengths and last bytes.
-spec decode(binary()) -> non_neg_integer().
decode(Bin) -> decode(Bin, 0).

decode(<<Tag, 0:1, Length:7, Rest/binary>>, Sum) -> decode(Tag, Length, Rest, Sum);
decode(<<Tag, 1:1, 1:7, Length, Rest/binary>>, Sum) -> decode(Tag, Length, Rest, Sum);
decode(<<Tag, 1:1, 2:7, Length:16, Rest/binary>>, Sum) -> decode(Tag, Length, Rest, Sum);
decode(<<>>, Sum) -> Sum.

decode(Tag, Length, Rest, Sum) when Tag band 16#20 =/= 0 -> decode(Rest, Sum + Tag + Length);
decode(Tag, Length, Rest, Sum) -> value(Length, Rest, Sum + Tag + Length).

value(0, Rest, Sum) -> decode(Rest, Sum);
value(1, <<Last, Rest/binary>>, Sum) -> decode(Rest, Sum + Last);
value(N, <<_, Rest/binary>>, Sum) -> value(N - 1, Rest, Sum).

%% A message that goes N times around a ring of processes.
-spec ring(pos_integer(), non_neg_integer()) -> ok.
ring(Processes, N) ->
    First = self(),
    Next = lists:foldl(fun(_, To) -> spawn_link(fun() -> pass(To) end) end, First,
                       lists:seq(2, Processes)),
    circle(N, Next),
    Next ! stop,
    receive stop -> ok end.

circle(0, _) -> ok;
circle(N, Next) ->
    Next ! N,
    receive N -> circle(N - 1, Next) end.

pass(To) ->
    receive
        stop -> To ! stop;
        N -> To ! N, pass(To)
    end.

%% A document of groups that are laid out flat where they fit (Wadler): its lines.
-spec prettypr(pos_integer(), term()) -> non_neg_integer().
prettypr(Width, Doc) -> lay(Width, 0, [{0, broken, Doc}], 1).

lay(_, _, [], Lines) -> Lines;
lay(W, Col, [{In, Mode, Doc} | Rest], Lines) ->
    case Doc of
        nil -> lay(W, Col, Rest, Lines);
        {text, Length} -> lay(W, Col + Length, Rest, Lines);
        {cat, A, B} -> lay(W, Col, [{In, Mode, A}, {In, Mode, B} | Rest], Lines);
        {nest, N, A} -> lay(W, Col, [{In + N, Mode, A} | Rest], Lines);
        line when Mode =:= flat -> lay(W, Col + 1, Rest, Lines);
        line -> lay(W, In, Rest, Lines + 1);
        {group, A} ->
            How = case fits(W - Col, [A]) of true -> flat; false -> broken end,
            lay(W, Col, [{In, How, A} | Rest], Lines)
    end.

fits(Left, _) when Left < 0 -> false;
fits(_, []) -> true;
fits(Left, [nil | Rest]) -> fits(Left, Rest);
fits(Left, [{text, Length} | Rest]) -> fits(Left - Length, Rest);
fits(Left, [{cat, A, B} | Rest]) -> fits(Left, [A, B | Rest]);
fits(Left, [{nest, _, A} | Rest]) -> fits(Left, [A | Rest]);
fits(Left, [line | Rest]) -> fits(Left - 1, Rest);
fits(Left, [{group, A} | Rest]) -> fits(Left, [A | Rest]).

%% A page as a list of characters: its tags and what is between them.
-spec yaws_html([char()]) -> [{tag | text, [char()]}].
yaws_html([]) -> [];
yaws_html([$< | Rest]) ->
    {Name, More} = until($>, Rest, []),
    [{tag, Name} | yaws_html(More)];
yaws_html(Chars) ->
    {Text, More} = until($<, Chars, []),
    [{text, Text} | yaws_html(case More of [] -> []; _ -> [$< | More] end)].

until(_, [], Acc) -> {lists:reverse(Acc), []};
until(End, [End | Rest], Acc) -> {lists:reverse(Acc), Rest};
until(End, [C | Rest], Acc) -> until(End, Rest, [C | Acc]).
