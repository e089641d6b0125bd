%% SPDX-License-Identifier: Apache-2.0
%% @doc What fuel one turn of a loop takes: four units in a nanosecond. Pure.
-module(erlane_native_cost).

-export([turn/1]).

%% @doc The longest way through a body, in operations.
-spec turn(erlane_native_ssa:fn()) -> pos_integer().
turn(#{order := Order, blocks := Blocks}) ->
    Costs = lists:foldl(fun(L, Acc) ->
                            {Ins, Last} = maps:get(L, Blocks),
                            Own = lists:sum([weight(Op) || {_, Op, _, _} <- Ins]),
                            Then = lists:max([0 | [maps:get(N, Acc) || N <- next(Last)]]),
                            Acc#{L => Own + Then + 1}
                        end, #{}, lists:reverse(Order)),
    maps:get(0, Costs).

next({jmp, L}) -> [L];
next({br, _, T, F}) -> [T, F];
next({switch, _, L, List}) -> [L | [N || {_, N} <- List]];
next(_) -> [].

weight({bif, Op}) when Op =:= 'div'; Op =:= 'rem' -> 30;
weight({bif, '/'}) -> 6;
weight({float, '/'}) -> 6;
weight({math, F}) when F =:= sqrt; F =:= floor; F =:= ceil -> 30;
%% Large arguments take `pow', `sin' and `tan' far longer than usual ones.
weight({math, _}) -> 200;
weight({call, _}) -> 4;
weight(Op) when Op =:= get_hd; Op =:= get_tl; Op =:= is_nonempty_list; Op =:= is_tagged_tuple;
                Op =:= get_tuple_element; Op =:= {bif, element} -> 4;
weight({bs_match, binary, _, _, _}) -> 20;
weight({bs_create, Segments}) -> 6 * length(Segments);
weight({bs_string, S}) -> byte_size(S);
weight(bs_utf8) -> 6;
weight(bs_start) -> 10;
weight(push) -> 12;
weight(_) -> 2.
