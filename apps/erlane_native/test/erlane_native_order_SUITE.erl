%% SPDX-License-Identifier: Apache-2.0
%% What native code answers when it has no result is an order to the module around it. Data may look
%% the same, and the functions that take such orders can be called by anybody.
-module(erlane_native_order_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([data/1, data_of_a_loop/1, made_here/1, in_source/1, states/1]).

-define(MARKER, '\nnative').

all() -> [data, data_of_a_loop, made_here, in_source, states].

init_per_suite(Config) -> erlane_native_ct:init_suite(Config).

end_per_suite(_) -> erlane_native_ct:end_suite().

orders() ->
    [{?MARKER, Where, Args} || Where <- [0, 1, -1, -2, 7, -7, a, join, storm, verify, <<>>, {5}],
                               Args <- [{}, x, [], {[1]}, {[1], [2]}, 7]]
        ++ [?MARKER, {?MARKER}, {?MARKER, 1}, {?MARKER, 1, 2, 3}, {x, 1, 2}, {}, [?MARKER | 1]].

%% A result that comes out of an argument.
data(_) ->
    M = module(?FUNCTION_NAME,
               "-native([first/1, same/2, tail/2]).\n-export([first/1, same/2, tail/2]).\n"
               "first([H | _]) -> H.\n"
               "-spec same(integer(), term()) -> term().\n"
               "same(N, T) when N > 0 -> same(N - 1, T);\nsame(_, T) -> T.\n"
               "tail([X | Xs], T) -> [X | tail(Xs, T)];\ntail([], T) -> T.\n"),
    [begin
         ?assertEqual(Order, M:first([Order])),
         ?assertEqual(Order, M:same(3, Order)),
         ?assertEqual(Order, M:tail([], Order)),
         ?assertEqual([1, 2 | Order], M:tail([1, 2], Order))
     end || Order <- orders()].

%% The same after a yield at each turn.
data_of_a_loop(_) ->
    M = module(?FUNCTION_NAME,
               "-native([{last, 2, [yield]}]).\n-export([last/2]).\n"
               "last([X | Xs], _) -> last(Xs, X);\nlast([], T) -> T.\n"),
    [?assertEqual(Order, M:last([a, b, Order], none)) || Order <- orders()].

%% One that begins with what was an argument.
made_here(_) ->
    M = module(?FUNCTION_NAME,
               "-native([swap/1, of3/3]).\n-export([swap/1, of3/3]).\n"
               "swap({A, B}) -> {B, A};\nswap({A, B, C}) -> {A, C, B}.\n"
               "-spec of3(term(), integer(), integer()) -> tuple().\n"
               "of3(T, N, S) when N > 0 -> of3(T, N - 1, S + N);\nof3(T, N, S) -> {T, N, S}.\n"),
    ?assertEqual({?MARKER, -1, {{5, 6}}}, M:swap({?MARKER, {{5, 6}}, -1})),
    [?assertEqual({?MARKER, B, A}, M:swap({?MARKER, A, B})) || {_, A, B} <- orders()],
    ?assertEqual({?MARKER, 0, 6}, M:of3(?MARKER, 3, 0)),
    ?assertEqual({x, 0, 6}, M:of3(x, 3, 0)).

in_source(_) ->
    M = module(?FUNCTION_NAME,
               "-native([known/1, pair/1, add/2]).\n-export([known/1, pair/1, add/2]).\n"
               "-spec known(integer()) -> tuple().\n"
               "known(N) when N > 0 -> known(N - 1);\nknown(_) -> {'\\nnative', -1, {[x]}}.\n"
               "-spec pair(integer()) -> tuple().\n"
               "pair(N) when N > 10 -> pair(N - 1);\npair(N) -> {'\\nnative', N, {}}.\n"
               "-spec add(integer(), integer()) -> integer().\n"
               "add(N, S) when N > 0 -> add(N - 1, S + N);\nadd(_, S) -> S.\n"),
    ?assertEqual({?MARKER, -1, {[x]}}, M:known(3)),
    ?assertEqual({?MARKER, 10, {}}, M:pair(12)),
    ?assertEqual(6, M:add(3, 0)).

%% What goes on after a yield takes any term, and answers that BEAM has to run.
states(_) ->
    M = module(?FUNCTION_NAME,
               "-native([sum/2, keep/1, built/2]).\n-export([sum/2, keep/1, built/2]).\n"
               "sum([X | Xs], S) -> sum(Xs, S + X);\nsum([], S) -> S.\n"
               "keep(L) -> [X + 1 || X <- L].\n"
               "-spec built(binary(), binary()) -> binary().\n"
               "built(<<C, R/binary>>, A) -> built(R, <<A/binary, (C + 1)>>);\n"
               "built(<<>>, A) -> A.\n"),
    {Companion, _} = M:'\ncompanion'(),
    Nifs = [F || {F, 1} <- Companion:module_info(exports), hd(atom_to_list(F)) =:= $r],
    ?assertNotEqual([], Nifs),
    Args = [{}, {[]}, {x}, {[1]}, {[1], [2]}, {[1], 0, 0}, {<<1>>, <<2>>}, {x, y, z, u, v}, [], 7],
    [Companion:F(State)
     || F <- Nifs,
        State <- [x, {}, {0}, [], {0, 1, 2}, 1 bsl 70]
            ++ [{Where, A} || Where <- [0, 1, 2, -1, 99, x, 1 bsl 70], A <- Args]],
    ?assertEqual(3, M:sum([1, 2], 0)),
    ?assertEqual([2, 3], M:keep([1, 2])),
    ?assertEqual(<<2, 3>>, M:built(<<1, 2>>, <<>>)).

module(Case, Text) ->
    Name = list_to_atom(atom_to_list(Case) ++ "_order"),
    Forms = erlane_native_ct:forms(Text),
    {ok, Name, Beam} = erlane_native_ct:always(Name, Forms),
    ok = erlane_native_ct:forget(Name),
    {module, Name} = code:load_binary(Name, "generated", Beam),
    native = erlane_native:ensure(Name),
    Name.
