%% SPDX-License-Identifier: Apache-2.0
%% @doc Whether each value of a buffer is appended to, or handed on, but once on each way through a
%% body. Pure.
%%
%% A second append to the same value would write over what the first one wrote.
-module(erlane_native_linear).

-export([check/3]).

%% @doc Throws `{refused, Line, Reason}' if it is not so. Given are the parameters of each function,
%% whose types say which are buffers.
-spec check(map(), #{non_neg_integer() => erlane_native_type:type()},
            [erlane_native_type:type()]) ->
          ok.
check(#{order := Order, blocks := Blocks, line := Line}, Types, Params) ->
    length([P || P <- Params, P =:= buf]) > 1
        andalso throw({refused, Line, "two binaries are built at the same time"}),
    Uses = [{V, Where, L} || Label <- Order, {V, Where, L} <- uses(Label, maps:get(Label, Blocks)),
                             maps:get(V, Types, none) =:= buf],
    Reach = lists:foldl(fun(L, Acc) ->
                            Next = erlane_native_graph:next(element(2, maps:get(L, Blocks))),
                            Acc#{L => lists:usort(Next ++ lists:append([maps:get(N, Acc)
                                                                        || N <- Next]))}
                        end, #{}, lists:reverse(Order)),
    _ = [throw({refused, L, "a binary that is built goes on in two ways"})
         || {I, {V, A, L}} <- indexed(Uses), {J, {W, B, _}} <- indexed(Uses),
            V =:= W, I =/= J, both(A, B, Reach)],
    Every = [{vars(As), Dst} || {Ins, _} <- maps:values(Blocks), {Dst, _, As, _} <- Ins],
    Last = lists:append([last(B) || {_, B} <- maps:values(Blocks)]
                        ++ [vars(As) || {Ins, _} <- maps:values(Blocks), {_, Op, As, _} <- Ins,
                                        Op =:= push orelse is_tuple(Op) andalso
                                            element(1, Op) =:= call]),
    _ = [throw({refused, L, "a binary that is built is put into a tuple or list at each turn"})
         || {Ins, _} <- maps:values(Blocks), {Dst, Op, As, L} <- Ins,
            Op =:= put_tuple orelse Op =:= put_list orelse Op =:= push,
            lists:any(fun(V) -> maps:get(V, Types, none) =:= buf end, vars(As)),
            Op =:= push orelse not given(Dst, Every, Last)],
    ok.

%% Whether nothing becomes of a value but a result, which is made once: a copy at each turn would
%% take the square of its length.
given(V, Every, Last) ->
    Becomes = erlane_native_graph:reached([V], fun(From) ->
                                                   [Dst || {Vs, Dst} <- Every,
                                                           lists:member(From, Vs)]
                                               end),
    not lists:any(fun(To) -> lists:member(To, Last) end, Becomes).

vars(As) -> lists:append([case A of {v, V} -> [V]; {{v, V}, _} -> [V]; _ -> [] end || A <- As]).

%% What goes on in another way than as a result.
last({tail, _, Args, _}) -> [V || {v, V} <- Args];
last({br, {v, V}, _, _}) -> [V];
last({switch, {v, V}, _, _}) -> [V];
last(_) -> [].

indexed(List) -> lists:zip(lists:seq(1, length(List)), List).

%% On one way: in the same block, or in one that is reached from there. Ways to other blocks from
%% the end of a block exclude each other.
both({A, To}, {A, Other}, _) -> To =:= Other orelse To =:= here orelse Other =:= here;
both({A, _}, {B, _}, Reach) -> lists:member(B, maps:get(A, Reach)).

uses(Label, {Ins, Last}) ->
    lists:append([used(Label, I) || I <- Ins])
        ++ case Last of
               {tail, _, Args, Line} -> [{V, {Label, here}, Line} || {v, V} <- Args];
               _ -> []
           end.

used(Label, {_, {bs_create, _}, [{v, V} | _], Line}) -> [{V, {Label, here}, Line}];
used(Label, {_, phi, Args, Line}) -> [{V, {From, Label}, Line} || {{v, V}, From} <- Args];
used(Label, {_, {call, _}, Args, Line}) -> [{V, {Label, here}, Line} || {v, V} <- Args];
used(_, _) -> [].
