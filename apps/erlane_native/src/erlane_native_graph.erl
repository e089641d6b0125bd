%% SPDX-License-Identifier: Apache-2.0
%% @doc What a function that was read has in it, and where its blocks and calls lead. Pure.
-module(erlane_native_graph).

-export([instructions/1, has/2, next/1, single/1, jumps/1, calls/1, synthetic/1,
         reaches/3, reached/2]).

-type fa() :: erlane_native_ssa:fa().
-type body() :: erlane_native_ssa:body().
-type label() :: non_neg_integer().

%% @doc All instructions of a function, block by block.
-spec instructions(body()) -> [erlane_native_ssa:ins()].
instructions(#{order := Order, blocks := Blocks}) ->
    lists:append([element(1, maps:get(L, Blocks)) || L <- Order]).

%% @doc Is one of these operations in it?
-spec has(body(), [Op :: term()]) -> boolean().
has(F, Ops) -> lists:any(fun({_, Op, _, _}) -> lists:member(Op, Ops) end, instructions(F)).

%% @doc The blocks that a block leads to.
-spec next(erlane_native_ssa:last()) -> [label()].
next({jmp, A}) -> [A];
next({br, _, A, B}) -> [A, B];
next({switch, _, A, List}) -> [A | [B || {_, B} <- List]];
next(_) -> [].

%% @doc The blocks that are entered from one place only.
-spec single(#{label() => erlane_native_ssa:block()}) -> [label()].
single(Blocks) ->
    Counts = lists:foldl(fun(L, Acc) -> maps:update_with(L, fun(N) -> N + 1 end, 1, Acc) end, #{},
                         lists:append([next(Last) || {_, Last} <- maps:values(Blocks)])),
    [L || {L, 1} <- maps:to_list(Counts)].

%% @doc The functions that a function ends in a call of, once for each such call.
-spec jumps(body()) -> [fa()].
jumps(#{blocks := Blocks}) -> [To || {_, {tail, To, _, _}} <- maps:values(Blocks)].

%% @doc The functions that it calls otherwise.
-spec calls(body()) -> [fa()].
calls(F) -> [To || {_, {call, To}, _, _} <- instructions(F)].

%% @doc Has the compiler made this function, of a comprehension or a fun?
-spec synthetic(fa()) -> boolean().
synthetic({F, _}) -> hd(atom_to_list(F)) =:= $-.

%% @doc Is there a way from one to the other, of one step at least?
-spec reaches(Node, Node, fun((Node) -> [Node])) -> boolean().
reaches(From, To, Next) -> lists:member(To, reached(Next(From), Next)).

%% @doc These and all that can be reached from them, in order.
-spec reached([Node], fun((Node) -> [Node])) -> [Node].
reached(From, Next) -> reached(From, Next, #{}).

reached([], _, Seen) -> lists:sort(maps:keys(Seen));
reached([Node | Rest], Next, Seen) when is_map_key(Node, Seen) -> reached(Rest, Next, Seen);
reached([Node | Rest], Next, Seen) -> reached(Next(Node) ++ Rest, Next, Seen#{Node => true}).
