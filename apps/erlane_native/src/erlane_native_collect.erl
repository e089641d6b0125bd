%% SPDX-License-Identifier: Apache-2.0
%% @doc Makes loops of functions that put an element before what a call of themselves gives. Pure.
%%
%% `[E | f(T)]' as the result of a function on the way to itself is a call that waits for its end
%% only to make one cell. Here it becomes the operation `push', of E, and a jump: what is pushed is
%% kept in order, and the end of the loop makes a list of it. So are comprehensions, which the
%% compiler makes such functions of. All is pure, so an element may be computed before the rest.
-module(erlane_native_collect).

-export([functions/1]).

-import(erlane_native_graph, [next/1, single/1, jumps/1, calls/1, synthetic/1, reached/2]).

-type fa() :: erlane_native_ssa:fa().

%% Elements that one turn may push.
-define(MOST, 32).

%% @doc The functions of a unit, with jumps where they can be.
-spec functions(#{fa() => erlane_native_ssa:fn()}) -> #{fa() => erlane_native_ssa:fn()}.
functions(Functions) ->
    Graph = maps:map(fun(_, F) -> calls(F) ++ jumps(F) end, Functions),
    Next = fun(FA) -> maps:get(FA, Graph, []) end,
    maps:map(fun(FA, F) ->
                 %% BEAM cannot go on in a comprehension, so it is not jumped to from elsewhere.
                 function(F, fun(To) ->
                                 (synthetic(FA) orelse not synthetic(To))
                                     andalso lists:member(FA, reached([To], Next))
                             end)
             end, Functions).

function(#{order := Order, blocks := Blocks} = F, Circle) ->
    Single = single(Blocks),
    New = maps:map(fun(_, Block) -> block(Block, Blocks, Single, Circle) end, Blocks),
    Live = maps:with(reached([0], fun(L) -> next(element(2, maps:get(L, New))) end), New),
    F#{order := [L || L <- Order, is_map_key(L, Live)], blocks := Live}.

%% A phi variable of a block that is reached from here no more would have an operand too many: there
%% is none, as what follows the call is entered from here only.
block({Ins, Last} = Block, Blocks, Single, Circle) ->
    case lists:splitwith(fun({_, Op, _, _}) -> not is_call(Op) end, lists:reverse(Ins)) of
        {After, [{R, {call, To}, Args, Line} | Before]} ->
            case Circle(To) andalso rest(lists:reverse(After), Last, R, Blocks, Single) of
                {Rest, {v, C}} ->
                    case cells(C, R, Rest) of
                        {Cells, Others} when length(Cells) =< ?MOST ->
                            {lists:reverse(Before) ++ Others
                                 ++ [{D, push, [E], L} || {D, put_list, [E, _], L} <- Cells],
                             {tail, To, Args, Line}};
                        _ -> Block
                    end;
                _ -> Block
            end;
        _ -> Block
    end.

is_call({call, _}) -> true;
is_call(_) -> false.

%% What follows a call to the end, if there is only one way but for an exception.
rest(Ins, Last, R, Blocks, Single) ->
    Oks = [S || {S, ok, [{v, V}], _} <- Ins, V =:= R],
    Rest = [I || {S, _, _, _} = I <- Ins, not lists:member(S, Oks)],
    case Last of
        {ret, V} -> {Rest, V};
        {jmp, L} -> more(L, Rest, R, Blocks, Single);
        {br, {v, S}, L, Else} ->
            case lists:member(S, Oks) andalso maps:get(Else, Blocks) of
                {[], {deopt, _, _}} -> more(L, Rest, R, Blocks, Single);
                _ -> none
            end;
        _ -> none
    end.

more(L, Rest, R, Blocks, Single) ->
    {Ins, Last} = maps:get(L, Blocks),
    case lists:member(L, Single) andalso not lists:keymember(phi, 2, Ins) of
        true ->
            case rest(Ins, Last, R, Blocks, Single) of
                {Behind, V} -> {Rest ++ Behind, V};
                none -> none
            end;
        false -> none
    end.

%% The cells from the first to the one before the result of the call, and the instructions that
%% make neither and look at none of them.
cells(C, R, Rest) ->
    case chain(C, R, Rest) of
        none -> none;
        Cells ->
            Made = [R | [D || {D, _, _, _} <- Cells]],
            Others = Rest -- Cells,
            Looks = [V || {_, _, As, _} <- Others, {v, V} <- As]
                ++ [V || {_, _, [{v, V}, _], _} <- Cells],
            case [V || V <- Looks, lists:member(V, Made)] of
                [] -> {Cells, Others};
                _ -> none
            end
    end.

chain(C, R, Rest) ->
    case lists:keyfind(C, 1, Rest) of
        {C, put_list, [_, {v, R}], _} = Cell -> [Cell];
        {C, put_list, [_, {v, Next}], _} = Cell ->
            case chain(Next, R, Rest) of
                none -> none;
                Cells -> [Cell | Cells]
            end;
        _ -> none
    end.
