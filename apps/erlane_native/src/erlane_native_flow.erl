%% SPDX-License-Identifier: Apache-2.0
%% @doc What flows along calls and jumps: the types of parameters and results of the functions of a
%% unit, to the point from which nothing new comes. Pure.
%%
%% What a loop carries has 64 bits. A range that still grows after some rounds gets 16 bits, then
%% 32, and after some more all that a machine integer holds (widening with thresholds, Blanchet and
%% others, 2003). So it ends: there are few steps up for each type.
-module(erlane_native_flow).

-export([fix/4]).

-import(erlane_native_type, [int/1, wide/0, is_place/1]).

-type fa() :: erlane_native_ssa:fa().
-type types() :: #{fa() => [erlane_native_type:type()]}.

-define(ROUNDS, 4).
-define(STEPS, 8).
-define(THRESHOLDS, [16, 32]).

%% @doc Parameters, results and bodies of functions, from what is known of parameters (`none' is
%% nothing) and the kinds that they are bets on. Throws `{refused, Line, Reason}'.
-spec fix(#{fa() => erlane_native_ssa:fn()}, Low :: #{fa() => map()}, types(),
          #{fa() => [erlane_native_kinds:kind()]}) ->
          {types(), #{fa() => erlane_native_type:type()}, #{fa() => map()}}.
fix(Functions, Low, Params, Kinds) ->
    Rets = maps:map(fun(_, _) -> none end, Functions),
    Floats = maps:map(fun(_, _) -> #{} end, Functions),
    fix(Functions, Low, Params, Rets, Kinds, Floats, 0).

%% Bodies are run with what is known so far.
fix(Functions, Low, Params, Rets, Kinds, Floats, Round) ->
    Bodies = maps:map(fun(FA, F) ->
                          erlane_native_body:run(F, maps:get(FA, Params), maps:get(FA, Low), Rets,
                                                 maps:get(FA, Floats))
                      end,
                      maps:filter(fun(FA, _) ->
                                      not lists:member(none, maps:get(FA, Params))
                                  end, Functions)),
    Edges = lists:append([E || #{edges := E} <- maps:values(Bodies)]),
    NextParams = lists:foldl(fun({To, Types, Line}, Acc) ->
                                 Bets = [bet(K, T) || {K, T} <- lists:zip(maps:get(To, Kinds),
                                                                          Types)],
                                 maps:update_with(To, fun(P) -> flow(P, Bets, To, Line, Round) end,
                                                  Acc)
                             end, Params, Edges),
    NextRets = maps:map(fun(FA, R) ->
                            case Bodies of
                                #{FA := #{rets := New}} ->
                                    lists:foldl(fun(T, Acc) -> returned(Acc, T, Round) end, R, New);
                                _ -> R
                            end
                        end, Rets),
    NextFloats = maps:map(fun(FA, Fs) ->
                              case Bodies of
                                  #{FA := #{floats := New}} -> New;
                                  _ -> Fs
                              end
                          end, Floats),
    case {NextParams, NextRets, NextFloats} of
        {Params, Rets, Floats} when map_size(Bodies) =:= map_size(Functions) ->
            {Params, Rets, Bodies};
        {Params, Rets, Floats} -> throw({refused, 0, "a function of the loop is never reached"});
        _ -> fix(Functions, Low, NextParams, NextRets, Kinds, NextFloats, Round + 1)
    end.

%% What comes out of a list or a tuple is what its uses say, if they say anything: tested where it
%% is handed on. So the loop has it in a register.
bet(int, term) -> int(erlane_native_range:signed());
bet(float, term) -> float;
bet(_, T) -> T.

%% Results join like arguments do, but what is not always of one kind is a term.
returned(R, none, _) -> R;
returned(_, buf, _) -> term;
returned(none, T, Round) ->
    case is_place(T) of
        true -> term;
        false -> param(none, T, none, Round)
    end;
returned({int, _, _} = R, {int, _, _} = T, Round) -> param(R, T, none, Round);
returned(T, T, _) -> T;
returned(_, _, _) -> term.

flow(Params, Types, To, Line, Round) ->
    [param(P, T, {To, I, Line}, Round)
     || {P, T, I} <- lists:zip3(Params, Types, lists:seq(1, length(Params)))].

param(P, {field, Bits, _}, At, Round) -> param(P, {bin, Bits}, At, Round);
param(P, low, At, Round) -> param(P, int(wide()), At, Round);
param(P, none, _, _) -> P;
param(buf, T, At, _) -> building(T, At);
param(P, P, _, _) -> P;
param(_, {bin, Bits}, {{F, A}, I, Line}, _) when Bits =/= 0 ->
    throw({refused, Line, io_lib:format("argument ~b of ~tp/~b is a place within a byte",
                                        [I, F, A])});
param(none, {int, Lo, Hi}, _, _) ->
    int(loopable({Lo, Hi}));
param(none, {k, _}, _, _) -> term;
param(none, bool, _, _) -> term;
param(none, T, _, _) -> T;
param({int, A, B}, {int, C, D}, _, Round) ->
    case erlane_native_range:join({A, B}, {C, D}) of
        {A, B} -> {int, A, B};
        R when Round < ?ROUNDS -> int(loopable(R));
        R when Round < ?STEPS -> int(wider(R));
        R -> int(widest(R))
    end;
param(P, T, {{F, A}, I, Line}, _) when P =:= float, element(1, T) =:= int;
                                       T =:= float, element(1, P) =:= int ->
    throw({refused, Line, io_lib:format("argument ~b of ~tp/~b is an integer in one call and a "
                                        "float in another", [I, F, A])});
param(_, buf, {{F, A}, I, Line}, _) ->
    throw({refused, Line, io_lib:format("argument ~b of ~tp/~b is a binary that is built, and not "
                                        "always", [I, F, A])});
param({bin, _}, _, {{F, A}, I, Line}, _) ->
    throw({refused, Line, io_lib:format("argument ~b of ~tp/~b is not always a binary",
                                        [I, F, A])});
param(_, _, _, _) -> term.

building(buf, _) -> buf;
building({bin, 0}, _) -> buf;
building({k, B}, _) when is_binary(B) -> buf;
building(_, {{F, A}, I, Line}) ->
    throw({refused, Line, io_lib:format("argument ~b of ~tp/~b is a binary that is built, and not "
                                        "always", [I, F, A])}).

%% What a loop carries has 64 bits; a jump tests what could be more.
loopable(R) ->
    case erlane_native_range:class(R) of
        C when C =:= signed; C =:= unsigned -> R;
        _ -> widest(R)
    end.

wider({Lo, Hi} = R) ->
    case [N || N <- ?THRESHOLDS, Lo >= -(1 bsl N), Hi < 1 bsl N] of
        [N | _] -> {case Lo < 0 of true -> -(1 bsl N); false -> 0 end, (1 bsl N) - 1};
        [] -> widest(R)
    end.

widest({_, Hi} = R) ->
    {_, Max} = erlane_native_range:signed(),
    case erlane_native_range:class(R) of
        signed -> erlane_native_range:signed();
        unsigned -> erlane_native_range:unsigned();
        %% A start that may be negative and results with all 64 bits: the latter are what the loop
        %% runs with.
        _ when Hi > Max, Hi < 1 bsl 64 -> erlane_native_range:unsigned();
        _ -> erlane_native_range:signed()
    end.
