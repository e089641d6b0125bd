%% SPDX-License-Identifier: Apache-2.0
%% Lists and tuples in native code where size and shape matter: long lists over time slices, lists
%% in lists, ends that are not empty, what one call may take.
-module(erlane_native_list_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([long/1, joined/1, slices/1, nested/1, ends/1, mixed/1, counted/1, characters/1,
         comprehension_frames/1, verified/1, built_in_tuples/1, all_is_paid/1, elements/1,
         reversed/1, replaced/1, chosen/1, loads_are_paid/1, calls_are_short/1,
         literals/1, moved/1, garbage/1, gets_on/1]).

all() ->
    [long, joined, slices, nested, ends, mixed, counted, characters, comprehension_frames, verified,
     built_in_tuples, all_is_paid, elements, reversed, replaced, chosen, loads_are_paid,
     calls_are_short, literals, moved, garbage, gets_on].

init_per_suite(Config) -> erlane_native_ct:init_suite(Config).

end_per_suite(_) -> erlane_native_ct:end_suite().

%% Longer than what is kept on the native stack, around the sizes where that is full.
long(_) ->
    M = module(?FUNCTION_NAME, maps()),
    [?assertEqual([X * 3 || X <- lists:seq(1, N)], M:triple(lists:seq(1, N)), N)
     || N <- [0, 1, 1983, 1984, 1985, 3968, 3969, 10000]],
    ?assertEqual([], erlane_native_ct:reasons(M)).

%% Gives way, and puts together what it made before and after.
joined(_) ->
    M = module(?FUNCTION_NAME, maps()),
    List = lists:seq(1, 300000),
    ?assertEqual([X * 3 || X <- List], M:triple(List)),
    {ok, #{yields := Yields}} = erlane_native:info(M),
    ?assert(Yields > 0),
    ?assertEqual([X || X <- List, X rem 2 =:= 0] ++ tail, M:even(List ++ tail)).

%% A yield at each turn, and hand-backs in between.
slices(_) ->
    [begin
         M = module(list_to_atom(lists:concat([?FUNCTION_NAME, "_", How])), maps(),
                    ["-native([{triple, 1, [", Option, "]}]).\n"]),
         ?assertEqual([3, 6, 9, 12, 15], M:triple([1, 2, 3, 4, 5])),
         ?assertEqual([2, 4 | x], M:even([1, 2, 3, 4 | x])),
         ?assertEqual([0 | 1], M:even([0 | 1])),
         ?assertError(badarith, M:triple([1, 2, a, 4]))
     end || {How, Option} <- [{yield, "yield"}, {one, "{deopt, 1}"}, {two, "yield, {deopt, 2}"},
                              {three, "{deopt, 3}"}]].

%% Lists in lists go on behind each other; where there is no more room, BEAM has it.
nested(_) ->
    M = module(?FUNCTION_NAME,
               "-native([rows/2, deep/2]).\n-export([rows/2, deep/2]).\n"
               "rows(As, Bs) -> [[A * B || B <- Bs] || A <- As].\n"
               "deep(0, L) -> [X + 1 || X <- L];\ndeep(N, L) -> [N, deep(N - 1, L) | L].\n"),
    [?assertEqual([[A * B || B <- lists:seq(1, J)] || A <- lists:seq(1, I)],
                  M:rows(lists:seq(1, I), lists:seq(1, J)), {I, J})
     || {I, J} <- [{3, 4}, {30, 5000}, {2500, 3}]],
    ?assertMatch([3, [2, [1, [2, 3] | _] | _] | _], M:deep(3, [1, 2])).

%% The end of a list is anything; what is no list at all is an error.
ends(_) ->
    M = module(?FUNCTION_NAME,
               "-native([add/2, sum/2]).\n-export([add/2, sum/2]).\n"
               "add([X | Xs], End) -> [X + 1 | add(Xs, End)];\nadd([], End) -> End.\n"
               "sum([X | Xs], S) -> sum(Xs, S + X);\nsum([], S) -> S.\n"),
    [?assertEqual([2, 3 | End], M:add([1, 2], End)) || End <- [[], [a], x, {1}, <<1>>, 1 bsl 70]],
    ?assertError(function_clause, M:add([1, 2 | 3], [])),
    ?assertError(function_clause, M:sum([1, 2 | 3], 0)),
    ?assertError(function_clause, M:sum({1}, 0)),
    ?assertError(badarith, M:sum([1, x], 0)).

%% Elements of another kind than those before.
mixed(_) ->
    M = module(?FUNCTION_NAME,
               "-native([sum/2, kinds/2]).\n-export([sum/2, kinds/2]).\n"
               "sum([X | Xs], S) -> sum(Xs, S + X);\nsum([], S) -> S.\n"
               "kinds([X | Xs], {I, F, A, O}) ->\n"
               "    kinds(Xs, if is_integer(X) -> {I + 1, F, A, O};\n"
               "                 is_float(X) -> {I, F + 1, A, O};\n"
               "                 is_atom(X) -> {I, F, A + 1, O};\n"
               "                 is_list(X); is_tuple(X); is_binary(X) -> {I, F, A, O + 1};\n"
               "                 true -> {I, F, A, O} end);\n"
               "kinds([], Counts) -> Counts.\n"),
    Big = 1 bsl 62,
    ?assertEqual(Big * 3, M:sum([Big, Big, Big], 0)),
    ?assertEqual(6.5, M:sum([1, 2.5, 3], 0)),
    ?assertEqual(-(1 bsl 63), M:sum([-(1 bsl 63)], 0)),
    ?assertEqual({4, 2, 2, 6},
                 M:kinds([1, Big, -1 bsl 59, 1 bsl 100, 1.5, -0.0, a, true, [], [1], {}, {a}, <<>>,
                          <<1>>, [], <<1:1>>, #{}, self(), make_ref(), fun erlang:abs/1] -- [[]],
                         {0, 0, 0, 0})).

counted(_) ->
    M = module(?FUNCTION_NAME,
               "-native([f/2]).\n-export([f/2]).\n"
               "f(N, L) when N > 0, length(L) > 2 -> f(N - 1, L);\nf(N, _) -> N.\n"),
    ?assertEqual(0, M:f(5, [1, 2, 3])),
    ?assertEqual(5, M:f(5, [1, 2])),
    ?assertEqual([], erlane_native_ct:reasons(M)),
    ?assertEqual(5, M:f(5, [1, 2, 3 | 4])),
    ?assertEqual(5, M:f(5, {1, 2, 3})),
    ?assertEqual(0, M:f(5, lists:seq(1, 10000))),
    ?assertEqual(2, length(lists:append([lists:duplicate(N, x)
                                         || {_, N} <- erlane_native_ct:reasons(M)]))),
    ?assertEqual(0, M:f(5, lists:seq(1, 10001))).

characters(_) ->
    M = module(?FUNCTION_NAME,
               "-native([utf8/2]).\n-export([utf8/2]).\n"
               "utf8([C | Cs], B) -> utf8(Cs, <<B/binary, C/utf8>>);\nutf8([], B) -> B.\n"),
    Edges = [0, 16#7F, 16#80, 16#7FF, 16#800, 16#D7FF, 16#E000, 16#FFFF, 16#10000, 16#10FFFF],
    [?assertEqual(<<$x, C/utf8, $y>>, M:utf8([$x, C, $y], <<>>)) || C <- Edges],
    ?assertEqual([], erlane_native_ct:reasons(M)),
    [?assertError(badarg, M:utf8([C], <<>>))
     || C <- [-1, 16#D800, 16#DFFF, 16#110000, 1 bsl 64, 1.0, a]].

%% They have names that the compiler makes of the function's.
comprehension_frames(_) ->
    M = module(?FUNCTION_NAME, "-native([f/1]).\n-export([f/1]).\nf(L) -> [X * 2 || X <- L].\n"),
    try M:f([a]) of _ -> ?assert(false)
    catch error:badarith:Stack ->
        [Name | _] = [F || {Mod, F, _, _} <- Stack, Mod =:= M],
        ?assertEqual("-f/1-", lists:sublist(atom_to_list(Name), 5))
    end.

verified(_) ->
    M = module(?FUNCTION_NAME, maps()),
    ok = erlane_native:verify(M, on),
    List = lists:seq(1, 200000),
    ?assertEqual([X * 3 || X <- List], M:triple(List)),
    ?assertEqual([2], M:even([1, 2, 3])),
    {ok, #{differences := Differences}} = erlane_native:info(M),
    ?assertEqual(0, lists:sum([N || {_, N} <- Differences])).

%% At each turn they would be copied.
built_in_tuples(_) ->
    M = build(?FUNCTION_NAME,
              "-native([last/3, once/2]).\n-export([last/3, once/2]).\n"
              "last(0, _, T) -> T;\nlast(N, B, _) -> last(N - 1, <<B/binary, N>>, {B, N}).\n"
              "once(0, B) -> {ok, [B]};\nonce(N, B) -> once(N - 1, <<B/binary, N>>).\n", []),
    ?assertEqual({<<2>>, 1}, M:last(2, <<>>, none)),
    ?assertEqual({ok, [<<2, 1>>]}, M:once(2, <<>>)),
    {ok, #{functions := [{once, 2}], refused := [{{last, 3}, _, Why}]}} = erlane_native:info(M),
    ?assertEqual("a binary that is built is put into a tuple or list at each turn", Why).

%% A process pays for what it makes, so that others have their turn.
all_is_paid(_) ->
    M = module(?FUNCTION_NAME,
               ["-native([rev/2, pairs/2]).\n-export([rev/2, pairs/2]).\n", maps(),
                "rev([X | Xs], A) -> rev(Xs, [X | A]);\nrev([], A) -> A.\n"
                "pairs([X | Xs], _) -> pairs(Xs, {X, X});\npairs([], T) -> T.\n"]),
    List = lists:seq(1, 100000),
    [begin
         {reductions, Before} = process_info(self(), reductions),
         _ = F(),
         {reductions, After} = process_info(self(), reductions),
         %% 4000 for a time slice of about a millisecond; no turn takes less than a nanosecond.
         ?assert(After - Before >= 400, {Name, After - Before})
     end || {Name, F} <- [{triple, fun() -> M:triple(List) end},
                          {rev, fun() -> M:rev(List, []) end},
                          {pairs, fun() -> M:pairs(List, x) end}]].

%% A term may have to come from memory that is far: each cell, tuple and float that is looked at is
%% paid with 20 units.
loads_are_paid(_) ->
    M = module(?FUNCTION_NAME,
               "-native([sum/2]).\n-export([sum/2]).\n"
               "sum([{_, X} | Xs], S) -> sum(Xs, S + X);\nsum([], S) when is_float(S) -> S.\n"),
    List = [{X, X / 2} || X <- lists:seq(1, 100000)],
    {reductions, Before} = process_info(self(), reductions),
    _ = M:sum(List, 0.0),
    {reductions, After} = process_info(self(), reductions),
    ?assert(After - Before >= 100000 * 60 div 40000 * 40, After - Before),
    ?assertEqual([], erlane_native_ct:reasons(M)).

%% What cannot give way has two million units, half a millisecond.
calls_are_short(_) ->
    M = module(?FUNCTION_NAME,
               "-native([lengths/2, tree/1]).\n-export([lengths/2, tree/1]).\n"
               "lengths(_, 0) -> 0;\n"
               "lengths(L, N) when N > 0 -> lengths(L, N - 1) + length(L).\n"
               "tree(0) -> 1;\ntree(N) when N > 0 -> tree(N - 1) + tree(N - 1).\n"),
    List = lists:seq(1, 10000),
    ?assertEqual(50000, M:lengths(List, 5)),
    ?assertEqual(1 bsl 14, M:tree(14)),
    ?assertEqual([], erlane_native_ct:reasons(M)),
    ?assertEqual(150000, M:lengths(List, 15)),
    ?assertEqual(1 bsl 16, M:tree(16)),
    ?assertMatch([{_, 1}, {_, 1}], erlane_native_ct:reasons(M)).

%% Each use would make another copy, which BEAM does not.
literals(_) ->
    M = build(?FUNCTION_NAME,
              "-native([small/2, text/2, floats/2, once/1, twice/1]).\n"
              "-export([small/2, text/2, floats/2, once/1, twice/1]).\n"
              "small(0, A) -> A;\nsmall(N, A) when N > 0 -> small(N - 1, [{a, 1.5, [1]} | A]).\n"
              "text(0, A) -> A;\n"
              "text(N, A) when N > 0 -> text(N - 1, [{a, \"longer text\"} | A]).\n"
              "floats(0, A) -> A;\n"
              "floats(N, A) when N > 0 -> "
              "    floats(N - 1, [{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0} | A]).\n"
              "once(X) -> added([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], X).\n"
              "added([X | Xs], S) -> added(Xs, S + X);\nadded([], S) -> S.\n"
              "twice(X) when X > 100.0 -> X;\n"
              "twice(X) -> twice(added([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], X)).\n",
              []),
    ?assertEqual(lists:duplicate(3, {a, 1.5, [1]}), M:small(3, [])),
    ?assertEqual(lists:duplicate(3, {a, "longer text"}), M:text(3, [])),
    Why = "a literal of more than 20 words",
    {ok, #{functions := Functions, refused := Refused}} = erlane_native:info(M),
    ?assertEqual([{once, 1}, {small, 2}], lists:sort(Functions)),
    ?assertEqual(45.5, M:once(0.5)),
    ?assertEqual([], erlane_native_ct:reasons(M)),
    ?assertMatch([{{floats, 2}, _, Why}, {{text, 2}, _, Why}, {{twice, 1}, _, Why}],
                 lists:sort(Refused)).

%% What only moves elements is as fast on BEAM, and says so, if nobody insists.
moved(_) ->
    Text = "-export([sum/2, same/1, dot/3, tree/1]).\n"
           "tree(0) -> {};\ntree(N) -> {tree(N - 1), tree(N - 1)}.\n"
           "sum([X | Xs], S) -> sum(Xs, S + X);\nsum([], S) -> S.\n"
           "same([X | Xs]) -> [X | same(Xs)];\nsame([]) -> [].\n"
           "dot([X | Xs], [Y | Ys], S) -> dot(Xs, Ys, S + X * Y);\ndot([], [], S) -> S.\n",
    Build = fun(Name, Natives) ->
                Forms = erlane_native_ct:forms(["-native(", Natives, ").\n", Text]),
                Module = {attribute, 1, module, Name},
                compile:forms([Module | Forms], [binary, return, {parse_transform, erlane_native}])
            end,
    Load = fun(Name, Natives) ->
               {ok, Name, Beam, Warnings} = Build(Name, Natives),
               {module, Name} = code:load_binary(Name, "generated", Beam),
               {ok, #{functions := Fs}} = erlane_native:info(Name),
               {lists:sort(Fs), [lists:flatten(erlane_native:format_error(W))
                                 || {_, Ws} <- Warnings, {_, erlane_native, W} <- Ws]}
           end,
    {Taken, [W1, W2, W3]} = Load(list_moved, "[sum/2, same/1, dot/3, tree/1]"),
    ?assertEqual([{dot, 3}], Taken),
    [?assertNotEqual(nomatch, string:find(W, What))
     || {W, What} <- [{W1, "tree/1 stays on BEAM: makes tuples or lists by recursion"},
                      {W2, "sum/2 stays on BEAM: moves elements of lists"},
                      {W3, "same/1 stays on BEAM: moves elements of lists"}]],
    ?assertNotEqual(nomatch, string:find(W1, "`always'")),
    ?assertEqual({[{dot, 3}, {same, 1}, {sum, 2}], []},
                 Load(list_always, "[{sum, 2, [always]}, {same, 1, [always]}, dot/3]")),
    ?assertMatch({error, [{_, [{_, erlane_native, {attribute, _}}]}], _},
                 Build(list_wrong, "[{sum, 2, [alway]}]")).

%% A loop whose state is made anew at each turn gives way often, so that its garbage is collected
%% while it is in the cache; one that grows a list does not.
garbage(_) ->
    M = module(?FUNCTION_NAME,
               "-native([state/2, grow/2]).\n-export([state/2, grow/2]).\n"
               "state(0, S) -> S;\n"
               "state(N, {A, B}) when N > 0 -> state(N - 1, {B, (A + B) band 16#FFFFFF}).\n"
               "grow(0, L) -> L;\ngrow(N, L) when N > 0 -> grow(N - 1, [N * N | L]).\n"),
    Yields = fun() -> {ok, #{yields := Y}} = erlane_native:info(M), Y end,
    State = fun State(0, S) -> S;
                State(N, {A, B}) -> State(N - 1, {B, (A + B) band 16#FFFFFF})
            end,
    ?assertEqual(State(20000, {0, 1}), M:state(20000, {0, 1})),
    %% A turn takes 60 units of fuel at least, and 40,000 are 10 us.
    ?assert(Yields() >= 20000 * 60 div 40000),
    Before = Yields(),
    ?assertEqual([N * N || N <- lists:seq(1, 3000)], M:grow(3000, [])),
    ?assert(Yields() - Before =< 1),
    ?assertEqual([], erlane_native_ct:reasons(M)).

%% Such a loop gets on whatever a turn takes, 300 sines here; one that builds a binary, which would
%% be copied each time, gives way as others do.
gets_on(_) ->
    Sines = lists:join(" + ", ["math:sin(A + " ++ integer_to_list(I) ++ ".0)"
                               || I <- lists:seq(1, 300)]),
    Text = ["-export([built/3, sines/2]).\n"
            "built(0, _, Bin) -> Bin;\n"
            "built(N, {A, B}, Bin) when N > 0 ->\n"
            "    built(N - 1, {B, (A + B) band 255}, <<Bin/binary, B>>).\n"
            "sines(0, S) -> S;\n"
            "sines(N, {A, B}) when N > 0 -> sines(N - 1, {B * 0.5, ", Sines,
            "}).\n"],
    M = module(?FUNCTION_NAME, Text, "-native([built/3, sines/2]).\n"),
    P = list_to_atom(atom_to_list(?FUNCTION_NAME) ++ "_beam"),
    {ok, P, Beam} = compile:forms([{attribute, 1, module, P} | erlane_native_ct:forms(Text)],
                                  [binary]),
    {module, P} = code:load_binary(P, "generated", Beam),
    [begin
         {Pid, Ref} = spawn_monitor(fun() -> exit({done, apply(M, F, Args)}) end),
         receive
             {'DOWN', Ref, _, _, {done, Got}} -> ?assertEqual(apply(P, F, Args), Got)
         after 20000 ->
             exit(Pid, kill),
             ct:fail({no_end, F})
         end
     end || {F, Args} <- [{sines, [500, {0.25, 0.5}]}, {built, [200000, {0, 1}, <<>>]}]],
    ?assertEqual([], erlane_native_ct:reasons(M)),
    {ok, #{yields := Yields}} = erlane_native:info(M),
    ?assert(Yields < 5000, Yields).

elements(_) ->
    M = module(?FUNCTION_NAME,
               "-native([sum/3, size/2]).\n-export([sum/3, size/2]).\n"
               "sum(0, _, S) -> S;\nsum(I, T, S) -> sum(I - 1, T, S + element(I, T)).\n"
               "size(N, T) when N > 0, tuple_size(T) =:= N -> size(N - 1, T);\nsize(N, _) -> N.\n"),
    ?assertEqual(6, M:sum(3, {1, 2, 3}, 0)),
    ?assertEqual(5050, M:sum(100, list_to_tuple(lists:seq(1, 100)), 0)),
    [?assertError(badarg, M:sum(I, T, 0))
     || {I, T} <- [{4, {1, 2, 3}}, {-1, {1}}, {1, {}}, {1, [1]}, {1, 5}, {1 bsl 40, {1}}]],
    [?assertEqual(1, M:size(2, T)) || T <- [{a, b}]],
    [?assertEqual(2, M:size(2, T)) || T <- [{}, {a}, x, [1, 2], <<"12">>, 1.5, 1 bsl 65, #{}]].

%% Where it is too long for one call BEAM does it, after the loop.
reversed(_) ->
    M = module(?FUNCTION_NAME,
               "-native([down/2, onto/2]).\n-export([down/2, onto/2]).\n"
               "down(0, A) -> lists:reverse(A);\ndown(N, A) -> down(N - 1, [N | A]).\n"
               "onto(L, T) -> f(3, L, T).\n"
               "f(0, L, T) -> [3 | lists:reverse(L, T)];\nf(N, L, T) -> f(N - 1, L, T).\n"),
    [?assertEqual(lists:seq(N, 1, -1), M:down(N, [])) || N <- [0, 1, 2, 2048]],
    [?assertEqual([3 | lists:reverse(L, T)], M:onto(L, T))
     || L <- [[], [1], [1, 2, {3}]], T <- [[], [a], x, {1}, 1.5]],
    ?assertEqual([], erlane_native_ct:reasons(M)),
    ?assertEqual(lists:seq(2049, 1, -1), M:down(2049, [])),
    ?assertMatch([{_, 1}], erlane_native_ct:reasons(M)),
    [?assertError(_, M:onto(L, [])) || L <- [[1 | 2], a, {1}]].

replaced(_) ->
    M = module(?FUNCTION_NAME,
               "-native([add/2]).\n-export([add/2]).\n"
               "add([I | Is], T) -> add(Is, setelement(I, T, element(I, T) + 1));\n"
               "add([], T) -> T.\n"),
    ?assertEqual({2, 0, 1}, M:add([1, 3, 1], {0, 0, 0})),
    Large = list_to_tuple(lists:duplicate(255, 0)),
    ?assertEqual(setelement(255, Large, 1), M:add([255], Large)),
    ?assertEqual([], erlane_native_ct:reasons(M)),
    Larger = list_to_tuple(lists:duplicate(256, 0)),
    ?assertEqual(setelement(256, Larger, 1), M:add([256], Larger)),
    [?assertError(badarg, M:add([I], T))
     || {I, T} <- [{0, {1}}, {2, {1}}, {a, {1}}, {1, {}}, {1, x}]].

%% What load/1 takes unasked has arithmetic to do in a turn; what only moves elements stays, and
%% so do searches, as most lists are short.
chosen(_) ->
    Forms = [{attribute, 1, module, chosen_list} | erlane_native_ct:forms(
              "-export([dot/3, member/2, third/1, sum/2, reverse/2, append/2, nrev/1]).\n"
              "dot([X | Xs], [Y | Ys], S) -> dot(Xs, Ys, S + X * Y);\ndot([], [], S) -> S.\n"
              "member(X, [X | _]) -> true;\nmember(X, [_ | Xs]) -> member(X, Xs);\n"
              "member(_, []) -> false.\n"
              "third(L) -> [X * 3 || X <- L, X band 1 =:= 0].\n"
              "sum([X | Xs], S) -> sum(Xs, S + X);\nsum([], S) -> S.\n"
              "reverse([X | Xs], A) -> reverse(Xs, [X | A]);\nreverse([], A) -> A.\n"
              "append([X | Xs], Ys) -> [X | append(Xs, Ys)];\nappend([], Ys) -> Ys.\n"
              "nrev([]) -> [];\nnrev([X | Xs]) -> append(nrev(Xs), [X]).\n")],
    {ok, Ssa} = erlane_native_translate:ssa(Forms, []),
    {ok, Taken, Left} = erlane_native_swap:choose(Forms, Ssa),
    ?assertEqual([{dot, 3}, {third, 1}], lists:sort([FA || {FA, _} <- Taken])),
    ?assertEqual([{append, 2}, {member, 2}, {nrev, 1}, {reverse, 2}, {sum, 2}],
                 lists:sort([FA || {FA, _, _} <- Left])).

maps() ->
    "-native([triple/1, even/1]).\n-export([triple/1, even/1]).\n"
    "triple([X | Xs]) -> [X * 3 | triple(Xs)];\ntriple([]) -> [].\n"
    "even([X | Xs]) when X band 1 =:= 0 -> [X | even(Xs)];\neven([_ | Xs]) -> even(Xs);\n"
    "even(End) -> End.\n".

module(Name, Text) -> module(Name, Text, []).

module(Case, Text, More) ->
    M = build(list_to_atom(atom_to_list(Case) ++ "_list"), Text, More),
    native = erlane_native:ensure(M),
    M.

build(Name, Text, More) ->
    Forms = erlane_native_ct:forms([More, Text]),
    {ok, Name, Beam} = erlane_native_ct:always(Name, Forms),
    ok = erlane_native_ct:forget(Name),
    {module, Name} = code:load_binary(Name, "generated", Beam),
    Name.
