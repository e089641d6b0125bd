%% SPDX-License-Identifier: Apache-2.0
%% @doc What fuel one turn of a loop takes: four units in a nanosecond; and when a loop that makes
%% garbage gives way. Pure.
-module(erlane_native_cost).

-export([turn/1, young/2]).

-import(erlane_native_graph, [instructions/1, has/2, next/1]).

-define(NEVER, (1 bsl 62)).

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

%% @doc After how many units of 10 us a call gives way, whatever is left of its time slice. What a
%% loop makes is mostly garbage at the next turn, unless it grows a list; and memory that is
%% collected and used again is in the cache, where new memory is not. Measured for five bodies of 7
%% floats: 770 ns a step if it gives way each 10 us, 950 each 40 us, 1,350 at the end of the slice.
%% A binary that is built would be copied each time.
-spec young(Heads :: [erlane_native_ssa:fa()], #{erlane_native_ssa:fa() => map()}) ->
          pos_integer().
young(Heads, Functions) ->
    Top = [maps:get(FA, Functions) || FA <- Heads],
    Called = maps:values(maps:without(Heads, Functions)),
    Grows = lists:any(fun(F) -> has(F, [put_list, push]) orelse erlane_native_type:builds(F) end,
                      Top),
    case not Grows andalso (lists:any(fun hands_on/1, Top)
                            orelse lists:any(fun(F) -> has(F, [put_list, put_tuple, push]) end,
                                             Called)) of
        true -> 1;
        false -> ?NEVER
    end.

%% Is a tuple that is made in this function an argument of its jumps?
hands_on(#{blocks := Blocks} = F) ->
    Made = [{v, Dst} || {Dst, Op, _, _} <- instructions(F),
                        Op =:= put_tuple orelse Op =:= {bif, setelement}],
    lists:any(fun({_, {tail, _, Args, _}}) -> Args -- Made =/= Args;
                 (_) -> false
              end, maps:values(Blocks)).
