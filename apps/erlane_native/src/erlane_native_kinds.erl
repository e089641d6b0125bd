%% SPDX-License-Identifier: Apache-2.0
%% @doc Guesses from its uses what kind of value each parameter is. Pure.
%%
%% A guess is tested where a value comes in, so a wrong one costs time and nothing else. A spec
%% decides first, then what only one kind can do (`band', a float instruction, a guard), then what
%% loops give back to the parameter, then arithmetic, which is taken for that of integers.
-module(erlane_native_kinds).

-export([params/2]).

-export_type([kind/0]).

-type kind() :: int | float | bin | buf | term.

%% @doc The kinds of the parameters of each function of a unit.
-spec params(#{erlane_native_ssa:fa() => erlane_native_ssa:fn()},
             #{erlane_native_ssa:fa() => [atom()]}) -> #{erlane_native_ssa:fa() => [kind()]}.
params(Functions, Specs) ->
    Uses = maps:fold(fun(FA, F, Acc) ->
                         maps:fold(fun(P, Us, A) -> A#{P => Us ++ maps:get(P, A, [])} end,
                                   Acc, uses(FA, F))
                     end, #{}, Functions),
    Own = maps:map(fun({FA, I}, Us) ->
                       case maps:get(FA, Specs, none) of
                           none -> Us;
                           Kinds -> [{spec, K} || K <- [lists:nth(I, Kinds)], K =/= term] ++ Us
                       end
                   end, Uses),
    All = spread(Own, length(maps:keys(Own)) + 1),
    maps:map(fun(FA, #{args := Args}) ->
                 [kind(maps:get({FA, I}, All)) || I <- lists:seq(1, length(Args))]
             end, Functions).

%% What a parameter hands on by a jump, or is compared with, it shares the kind of.
spread(All, 0) -> All;
spread(All, N) ->
    Next = maps:map(fun(_, Us) ->
                        lists:usort(lists:append([Us | [[V || V <- maps:get(P, All, []),
                                                              element(1, V) =/= like]
                                                        || {like, P} <- Us]]))
                    end, All),
    case Next of
        All -> All;
        _ -> spread(Next, N - 1)
    end.

kind(Us) ->
    Order = [{only, buf}, {spec, float}, {spec, int}, {spec, bin}, {only, float}, {only, bin},
             {only, int}, {back, buf}, {back, float}, {weak, int}, {back, int}, {weak, float},
             {weak, bin}],
    case [K || {_, K} = U <- Order, lists:member(U, Us)] of
        [K | _] -> K;
        [] -> term
    end.

%% All that is seen of each parameter: {{FA, Index}, [use]}.
uses(FA, #{args := Args, order := Order, blocks := Blocks}) ->
    Indexed = lists:zip(Args, lists:seq(1, length(Args))),
    Params = maps:from_list([{V, {FA, I}} || {V, I} <- Indexed]),
    All = [maps:get(L, Blocks) || L <- Order],
    Defs = maps:from_list([{D, {Op, As}} || {Ins, _} <- All, {D, Op, As, _} <- Ins]),
    Seen = lists:append([ins(I, Params, Defs) || {Ins, _} <- All, I <- Ins]
                        ++ [last(Last, Params, Defs) || {_, Last} <- All]),
    lists:foldl(fun({P, U}, Acc) -> maps:update_with(P, fun(Us) -> [U | Us] end, [U], Acc) end,
                maps:from_list([{P, []} || P <- maps:values(Params)]), Seen).

on({v, V}, Use, Params) when is_map_key(V, Params) -> [{maps:get(V, Params), Use}];
on(_, _, _) -> [].

ins({_, {bif, Op}, Args, _}, Ps, _)
  when Op =:= 'band'; Op =:= 'bor'; Op =:= 'bxor'; Op =:= 'bnot'; Op =:= 'bsl'; Op =:= 'bsr';
       Op =:= 'div'; Op =:= 'rem'; Op =:= is_integer ->
    each(Args, {only, int}, Ps);
ins({_, {bif, is_float}, Args, _}, Ps, _) -> each(Args, {only, float}, Ps);
ins({_, {bif, Op}, Args, _}, Ps, _) when Op =:= is_binary; Op =:= is_bitstring ->
    each(Args, {only, bin}, Ps);
ins({_, {bif, Op}, Args, _}, Ps, _) when Op =:= byte_size; Op =:= bit_size ->
    each(Args, {weak, bin}, Ps);
ins({_, {float, put}, Args, _}, Ps, _) -> each(Args, {only, float}, Ps);
ins({_, {float, convert}, Args, _}, Ps, _) -> each(Args, {weak, float}, Ps);
ins({_, {math, _}, Args, _}, Ps, _) -> each(Args, {weak, float}, Ps);
ins({_, {bif, Op}, Args, _}, Ps, _) when Op =:= trunc; Op =:= round; Op =:= float; Op =:= '/' ->
    each(Args, {weak, float}, Ps);
ins({_, {bif, Op}, [A, B], _}, Ps, Defs)
  when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= min; Op =:= max ->
    pair(A, B, Ps, Defs, [{weak, int}]);
ins({_, {bif, Op}, [A, B], _}, Ps, Defs)
  when Op =:= '<'; Op =:= '>'; Op =:= '=<'; Op =:= '>='; Op =:= '=:='; Op =:= '=='; Op =:= '=/=';
       Op =:= '/=' ->
    pair(A, B, Ps, Defs, []);
ins({_, {bif, Op}, Args, _}, Ps, _) when Op =:= abs; Op =:= neg -> each(Args, {weak, int}, Ps);
ins({_, {call, To}, Args, _}, Ps, Defs) -> last({tail, To, Args, 0}, Ps, Defs);
ins({_, {bs_create, [{Append, _, _} | Segments]}, [V, _ | Args], _}, Ps, _)
  when Append =:= append; Append =:= private_append ->
    on(V, {only, buf}, Ps) ++ built(Segments, Args, Ps);
ins({_, {bs_create, Segments}, Args, _}, Ps, _) -> built(Segments, Args, Ps);
ins({_, bs_start, Args, _}, Ps, _) -> each(Args, {only, bin}, Ps);
ins({_, {bs_match, _, _, _, _}, [_, Size], _}, Ps, _) -> on(Size, {only, int}, Ps);
ins(_, _, _) -> [].

built([{Type, _, _} | Segments], [V, _ | Args], Ps) ->
    Use = case Type of
              float -> {weak, float};
              binary -> {only, bin};
              _ -> {only, int}
          end,
    on(V, Use, Ps) ++ built(Segments, Args, Ps);
built([], [], _) -> [].

each(Args, Use, Ps) -> lists:append([on(A, Use, Ps) || A <- Args]).

pair(A, B, Ps, Defs, Else) ->
    lists:append([on(X, U, Ps) || {X, Y} <- [{A, B}, {B, A}],
                                  U <- with(Y, Ps, Defs) ++ Else]).

with({v, V}, Ps, _) when is_map_key(V, Ps) -> [{like, maps:get(V, Ps)}];
with(V, _, Defs) ->
    case result(V, Defs) of
        float -> [{back, float}];
        int -> [{weak, int}];
        _ -> []
    end.

last({tail, To, Args, _}, Ps, Defs) ->
    lists:append([case on(A, {like, {To, I}}, Ps) of
                      [] ->
                          case result(A, Defs) of
                              none -> [];
                              K -> [{{To, I}, {back, K}}]
                          end;
                      Like -> Like
                  end || {A, I} <- lists:zip(Args, lists:seq(1, length(Args)))]);
last({switch, V, _, List}, Ps, _) ->
    case lists:all(fun({K, _}) -> is_integer(K) end, List) of
        true -> on(V, {weak, int}, Ps);
        false -> []
    end;
last(_, _, _) -> [].

%% What an operation gives whatever its operands are.
result({c, I}, _) when is_integer(I) -> int;
result({c, F}, _) when is_float(F) -> float;
result({v, V}, Defs) ->
    case Defs of
        #{V := {{float, _}, _}} -> float;
        #{V := {{math, _}, _}} -> float;
        #{V := {{bs_create, [{Append, _, _} | _]}, _}}
          when Append =:= append; Append =:= private_append -> buf;
        #{V := {{bif, Op}, _}} when Op =:= '/'; Op =:= float -> float;
        #{V := {{bif, Op}, _}} when Op =:= 'band'; Op =:= 'bor'; Op =:= 'bxor'; Op =:= 'bsl';
                                    Op =:= 'bsr'; Op =:= 'rem'; Op =:= 'div'; Op =:= trunc;
                                    Op =:= round -> int;
        #{V := {{bif, Op}, [A, B]}} when Op =:= '+'; Op =:= '-'; Op =:= '*' ->
            case {result(A, Defs), result(B, Defs)} of
                {float, _} -> float;
                {_, float} -> float;
                _ -> none
            end;
        _ -> none
    end;
result(_, _) -> none.
