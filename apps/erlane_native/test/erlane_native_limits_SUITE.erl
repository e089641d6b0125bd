%% SPDX-License-Identifier: Apache-2.0
%% What could take long in native code, or make it end in another way than a refusal: large terms,
%% copies, binaries that begin within a byte, and names that the interface does not know.
-module(erlane_native_limits_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([large_terms/1, small_terms/1, large_bytes/1, large_copy/1, copies_are_paid/1,
         built_is_paid/1, unaligned/1, math_is_paid/1, time_is_paid/1, small_stack/1, letters/1,
         module_letters/1, module_latin1/1]).

all() ->
    [large_terms, small_terms, large_bytes, large_copy, copies_are_paid, built_is_paid, unaligned,
     math_is_paid, time_is_paid, small_stack, letters, module_letters, module_latin1].

init_per_suite(Config) -> erlane_native_ct:init_suite(Config).

end_per_suite(_) -> erlane_native_ct:end_suite().

%% A comparison that may take long is made by BEAM, which pays for it.
large_terms(_) ->
    Why = "terms that may be large are compared",
    Large = [{binary:copy(<<7>>, 100000), binary:copy(<<7>>, 100000)},
             {lists:seq(1, 1000), lists:seq(1, 1000)}, {{1, [a]}, {1, [a]}}, {1 bsl 64, 1 bsl 64},
             {#{a => 1}, #{a => 1}}],
    M = module(?FUNCTION_NAME, compares()),
    [begin
         ?assertEqual(0, M:same(3, A, B)),
         ?assertEqual(3, M:less(3, A, B)),
         ?assertEqual(2 * I, count(Why, M), {A, B})
     end || {I, {A, B}} <- lists:zip(lists:seq(1, length(Large)), Large)].

small_terms(_) ->
    M = module(?FUNCTION_NAME, compares()),
    Some = [a, b, 1, -1, 1.5, self(), make_ref(), {1}, <<1>>, 1 bsl 70],
    [begin
         ?assertEqual(case A =:= B of true -> 0; false -> 3 end, M:same(3, A, B)),
         ?assertEqual(case A < B of true -> 0; false -> 3 end, M:less(3, A, B))
     end || A <- Some, B <- Some],
    ?assertEqual(0, count("terms that may be large are compared", M)).

compares() ->
    "-native([same/3, less/3]).\n-export([same/3, less/3]).\n"
    "-spec same(integer(), term(), term()) -> integer().\n"
    "same(N, A, B) when N > 0, A =:= B -> same(N - 1, A, B);\nsame(N, _, _) -> N.\n"
    "-spec less(integer(), term(), term()) -> integer().\n"
    "less(N, A, B) when N > 0, A < B -> less(N - 1, A, B);\nless(N, _, _) -> N.\n".

large_bytes(_) ->
    M = module(?FUNCTION_NAME,
               "-native([tail/3]).\n-export([tail/3]).\n"
               "-spec tail(binary(), binary(), integer()) -> integer().\n"
               "tail(<<C, R/binary>>, B, A) when R < B -> tail(R, B, A + C);\n"
               "tail(_, _, A) -> A.\n"),
    Why = "a binary is too large to be compared here",
    Small = binary:copy(<<1>>, 1000),
    ?assertEqual(1000, M:tail(Small, <<2>>, 0)),
    ?assertEqual(0, count(Why, M)),
    Large = binary:copy(<<1>>, 100000),
    ?assertEqual(100000, M:tail(Large, Large, 0)),
    ?assertEqual(1, count(Why, M)).

%% A copy of a megabyte is not begun in native code, neither as an append nor to begin with.
large_copy(_) ->
    M = module(?FUNCTION_NAME, appends()),
    Why = "a binary is too large to be copied here",
    Large = binary:copy(<<"0123456789">>, 100000),
    ?assertEqual(binary:copy(Large, 3), M:app(3, <<>>, Large)),
    ?assertEqual(1, count(Why, M)),
    ?assertEqual(<<Large/binary, "ab">>, M:app(1, Large, <<"ab">>)),
    ?assertEqual(2, count(Why, M)).

%% What is copied costs reductions, and ends the time slice.
copies_are_paid(_) ->
    M = module(?FUNCTION_NAME, appends()),
    Part = binary:copy(<<1>>, 10000),
    Result = M:app(20, <<>>, Part),
    ?assertEqual(200000, byte_size(Result)),
    %% 200000 bytes are 5 of 100 parts of a slice of 4000 reductions.
    ?assert(paid(fun() -> M:app(20, <<>>, Part) end) >= 5 * 40),
    ?assertEqual([], deopts(M)).

%% A result is copied, too.
built_is_paid(_) ->
    M = module(?FUNCTION_NAME, appends()),
    Start = binary:copy(<<1>>, 100000),
    ?assert(paid(fun() -> M:app(1, Start, <<"a">>) end) >= 4 * 40).

appends() ->
    "-native([app/3]).\n-export([app/3]).\n"
    "app(0, A, _) -> A;\n"
    "app(N, A, B) when is_binary(B) -> app(N - 1, <<A/binary, B/binary>>, B).\n".

paid(F) ->
    {reductions, Before} = process_info(self(), reductions),
    _ = F(),
    {reductions, After} = process_info(self(), reductions),
    After - Before.

%% The VM would copy all of it at each call.
unaligned(_) ->
    M = module(?FUNCTION_NAME,
               "-native([sum/2]).\n-export([sum/2]).\n"
               "sum(<<>>, A) -> A;\n"
               "sum(<<B, R/binary>>, A) -> sum(R, (A * 31 + B) band 16#FFFFFFFF).\n"),
    Bytes = << <<(N rem 251)>> || N <- lists:seq(1, 20000) >>,
    <<_:3, Odd:20000/binary, _/bits>> = <<5:3, Bytes/binary, 0:5>>,
    <<_, Even/binary>> = <<0, Bytes/binary>>,
    Why = "argument 1 is not a binary at whole bytes",
    Expected = M:sum(Bytes, 1),
    ?assertEqual(Expected, M:sum(Even, 1)),
    ?assertEqual(0, count(Why, M)),
    ?assertEqual(Expected, M:sum(Odd, 1)),
    ?assertEqual(1, count(Why, M)).

%% One in a million calls of such a function takes far longer than the usual ones.
math_is_paid(_) ->
    M = module(?FUNCTION_NAME,
               "-native([f/2]).\n-export([f/2]).\n"
               "f(0, A) -> A;\nf(N, A) when is_float(A) -> f(N - 1, math:sin(A * 1.0e300)).\n"),
    ?assert(paid(fun() -> M:f(10000, 0.5) end) >= 10000 * 200 div 40000 * 40).

%% What takes longer than its fuel says is paid by the clock: here a division of floats that goes
%% down bit by bit.
time_is_paid(_) ->
    M = module(?FUNCTION_NAME,
               "-native([f/2]).\n-export([f/2]).\n"
               "f(0, A) -> A;\nf(N, A) when is_float(A) ->\n"
               "    f(N - 1, math:fmod(1.0e308, 0.0 * A + 3.0e-308)).\n"),
    ?assert(paid(fun() -> M:f(4000, 0.5) end) >= 3 * 4000 * 200 div 40000 * 40).

%% The smallest stack that a scheduler can have is enough for calls of calls, whose frames are large
%% where a function was put into itself: what goes deeper is done by BEAM.
small_stack(_) ->
    Text = "-native([down/7, tree/3]).\n-export([down/7, tree/3]).\n"
           "down(0, A, B, C, D, E, F) -> A + B * C + D * E + F;\n"
           "down(N, A, B, C, D, E, F) ->\n"
           "    down(N - 1, B, C, D, E, F, N) + A * B + C * D + E * F + N.\n"
           "tree(0, A, B) -> A - B;\n"
           "tree(N, A, B) -> tree(N - 1, B, A + N) + tree(N - 1, A, B + 1) bxor A.\n",
    M = module(?FUNCTION_NAME, Text),
    {ok, Code} = erlane_native:ir(M),
    [?assertNotEqual(nomatch, string:find(Code, Copy)) || Copy <- ["@c0_0_2(", "@c1_0_2("]],
    Calls = [{down, [N, 1, 2, 3, 4, 5, 6]} || N <- [10, 200, 2000, 100000]]
            ++ [{tree, [N, 3, 4]} || N <- [1, 2, 3, 12]],
    {ok, M, Beam} = compiled(M, Text, []),
    {ok, Peer, _} = peer:start(#{connection => standard_io,
                                 args => ["+sss", "20", "-pa" | code:get_path()]}),
    try
        {module, M} = peer:call(Peer, code, load_binary, [M, "generated", Beam]),
        native = peer:call(Peer, erlane_native, ensure, [M]),
        [?assertEqual(apply(M, F, As), peer:call(Peer, M, F, As, 60000)) || {F, As} <- Calls],
        {ok, #{deopts := Deopts}} = peer:call(Peer, erlane_native, info, [M]),
        ?assertMatch([N] when N > 0,
                     [N || {_, _, "a call of down/7 was given up", N} <- Deopts])
    after
        peer:stop(Peer)
    end.

%% Only the function that has such an atom stays on BEAM.
letters(_) ->
    M = module(?FUNCTION_NAME,
               "-native([f/1, g/1]).\n-export([f/1, g/1]).\n"
               "f(0) -> '\\x{43f}\\x{440}';\nf(X) -> f(X - 1).\n"
               "g(0) -> '\\x{e9}';\ng(X) -> g(X - 1).\n"),
    ?assertEqual(list_to_atom([16#43F, 16#440]), M:f(3)),
    ?assertEqual(list_to_atom([16#E9]), M:g(3)),
    ?assertMatch({ok, #{functions := [{g, 1}],
                        refused := [{{f, 1}, _, "an atom with letters beyond Latin-1"}]}},
                 erlane_native:info(M)).

%% Such a name the compiler refuses, and not the transform before it.
module_letters(_) ->
    ?assertMatch({error, [{_, [{_, erl_lint, non_latin1_module_unsupported}]}], []},
                 compiled(list_to_atom([16#43F, 16#440]), loop(), [return])).

module_latin1(_) ->
    M = build(list_to_atom("na" ++ [16#EF] ++ "ve"), loop()),
    native = erlane_native:ensure(M),
    ?assertEqual(0, M:f(3)).

loop() -> "-native([f/1]).\n-export([f/1]).\nf(0) -> 0;\nf(X) -> f(X - 1).\n".

module(Case, Text) ->
    M = build(list_to_atom(atom_to_list(Case) ++ "_limits"), Text),
    native = erlane_native:ensure(M),
    M.

build(Name, Text) ->
    {ok, Name, Beam} = compiled(Name, Text, [report]),
    ok = erlane_native_ct:forget(Name),
    {module, Name} = code:load_binary(Name, "generated", Beam),
    Name.

compiled(Name, Text, Options) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    compile:forms([{attribute, 1, module, Name} | parse(Tokens)],
                  [{parse_transform, erlane_native}, binary | Options]).

parse([]) -> [];
parse(Tokens) ->
    {Form, [Dot | Rest]} = lists:splitwith(fun(T) -> element(1, T) =/= dot end, Tokens),
    {ok, Parsed} = erl_parse:parse_form(Form ++ [Dot]),
    [Parsed | parse(Rest)].

deopts(M) ->
    {ok, #{deopts := Deopts}} = erlane_native:info(M),
    [{Why, N} || {_, _, Why, N} <- Deopts, N > 0].

count(Why, M) -> lists:sum([N || {W, N} <- deopts(M), W =:= Why]).
