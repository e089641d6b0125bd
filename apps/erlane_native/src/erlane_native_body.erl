%% SPDX-License-Identifier: Apache-2.0
%% @doc One run through the body of a function: the type of each variable, the plan of each
%% operation, and what goes along each call and jump. Pure.
%%
%% What a comparison tells of an integer holds in the blocks behind it, where operations then need
%% fewer bits.
-module(erlane_native_body).

-export([run/5]).

-import(erlane_native_type, [int/1, result/4]).

-type fa() :: erlane_native_ssa:fa().
-type type() :: erlane_native_type:type().
-type var() :: non_neg_integer().

%% @doc Runs through a body, whose blocks come in an order in which a definition is before its uses:
%% with types for the parameters, variables of which only the lowest bits are looked at, what calls
%% give, and variables that are bets on floats. `edges' are calls and jumps with the types that go
%% along them, `rets' the results, `sure' the blocks whose switch has all values that there are.
-spec run(erlane_native_ssa:body(), [type()], map(), #{fa() => type()}, #{var() => true}) ->
          #{types := #{var() => type()}, plans := #{var() => erlane_native_type:plan()},
            edges := [{fa(), [type()], Line :: integer()}], rets := [type()],
            floats := #{var() => true}, sure := [non_neg_integer()]}.
run(#{args := Args, order := Order, blocks := Blocks}, Params, Low, Rets, Floats) ->
    Types = maps:from_list(lists:zip(Args, Params)),
    S = lists:foldl(fun(L, S0) -> block(L, maps:get(L, Blocks), S0) end,
                    #{types => Types, plans => #{}, defs => #{}, refs => #{0 => #{}}, edges => [],
                      low => Low, known => Rets, rets => [], floats => Floats, sure => []}, Order),
    maps:with([types, plans, edges, rets, floats, sure], S).

block(L, {Ins, Last}, #{refs := Refs} = S0) ->
    Ref = maps:get(L, Refs, #{}),
    S = lists:foldl(fun(I, S1) -> ins(I, Ref, S1) end, S0, Ins),
    last(Last, Ref, sure(L, Last, Ref, S)).

%% One of the values of the switch is what it must be.
sure(L, {switch, V, _, List}, Ref, #{sure := Sure} = S) ->
    case type(V, Ref, S) of
        {int, Lo, Hi} when Hi - Lo < length(List) ->
            case lists:seq(Lo, Hi) -- [K || {K, _} <- List] of
                [] -> S#{sure := [L | Sure]};
                _ -> S
            end;
        _ -> S
    end;
sure(_, _, _, S) -> S.

last({jmp, L}, Ref, S) -> enter(L, Ref, S);
last({br, C, T, F}, Ref, S) -> enter(F, refine(C, false, Ref, S),
                                     enter(T, refine(C, true, Ref, S), S));
last({switch, _, L, List}, Ref, S) ->
    lists:foldl(fun({_, To}, S1) -> enter(To, Ref, S1) end, enter(L, Ref, S), List);
last({ret, V}, Ref, #{rets := Rets} = S) ->
    S#{rets := [type(V, Ref, S) | Rets]};
last({tail, To, Args, Line}, Ref, #{edges := Edges, rets := Rets, known := Known} = S) ->
    S#{edges := [{To, [type(A, Ref, S) || A <- Args], Line} | Edges],
       rets := [maps:get(To, Known) | Rets]};
last(_, _, S) -> S.

%% A block of several ways in knows what all of them know.
enter(L, Ref, #{refs := Refs} = S) ->
    case Refs of
        #{L := Old} ->
            Both = maps:from_list([{V, erlane_native_range:join(R, maps:get(V, Ref))}
                                   || {V, R} <- maps:to_list(Old), is_map_key(V, Ref)]),
            S#{refs := Refs#{L := Both}};
        _ -> S#{refs := Refs#{L => Ref}}
    end.

refine({v, C}, Holds, Ref, #{defs := Defs} = S) ->
    case Defs of
        #{C := {{bif, Op}, [A, B]}} ->
            case {type(A, Ref, S), type(B, Ref, S)} of
                {{int, A1, A2}, {int, B1, B2}} ->
                    {RA, RB} = erlane_native_range:compare(sense(Op, Holds), {A1, A2}, {B1, B2}),
                    note(A, RA, note(B, RB, Ref));
                _ -> Ref
            end;
        _ -> Ref
    end;
refine(_, _, Ref, _) -> Ref.

note({v, V}, Range, Ref) -> Ref#{V => Range};
note(_, _, Ref) -> Ref.

sense(Op, true) -> Op;
sense('<', false) -> '>=';
sense('>=', false) -> '<';
sense('>', false) -> '=<';
sense('=<', false) -> '>';
sense('=/=', false) -> '=:=';
sense('/=', false) -> '==';
sense(_, false) -> none.

type({c, I}, _, _) when is_integer(I) -> {int, I, I};
type({c, F}, _, _) when is_float(F) -> float;
type({c, K}, _, _) -> {k, K};
type({v, V}, Ref, #{types := Types}) ->
    case {maps:get(V, Types), Ref} of
        {{int, Lo, Hi}, #{V := R}} -> int(erlane_native_range:meet({Lo, Hi}, R));
        {T, _} -> T
    end.

ins({Dst, {call, To} = Op, Args, Line}, Ref, #{types := Types, plans := Plans, edges := Edges,
                                               known := Known, defs := Defs} = S) ->
    S#{types := Types#{Dst => maps:get(To, Known)}, plans := Plans#{Dst => plain},
       defs := Defs#{Dst => {Op, Args}},
       edges := [{To, [type(A, Ref, S) || A <- Args], Line} | Edges]};
ins({Dst, Op, Args, Line}, Ref, #{types := Types, plans := Plans, defs := Defs, low := Low} = S) ->
    Ts = case Op of
             phi -> [type(V, Ref, S) || {V, _} <- Args];
             _ -> [type(A, Ref, S) || A <- Args]
         end,
    Float = is_map_key(Dst, maps:get(floats, S)),
    %% What a call gives that has not been followed yet, nothing is known of.
    Unknown = Op =/= phi andalso lists:member(none, Ts),
    {Type, Plan} = try Unknown orelse result(Op, Ts, Args, maps:get(Dst, Low, none))
                   of
                       true -> {none, plain};
                       _ when Float -> {float, plain};
                       Result -> Result
                   catch throw:{unsupported, Why} -> throw({refused, Line, Why})
                   end,
    floats(Op, Args, Ts, S#{types := Types#{Dst => Type}, plans := Plans#{Dst => Plan},
                            defs := Defs#{Dst => {Op, Args}},
                            %% What is before the rest of a list is a list.
                            rets := [term || Op =:= push] ++ maps:get(rets, S)}).

%% What is computed of terms and put together with a float is a bet on floats, too.
floats({bif, Op}, [A, B], [TA, TB], S) when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= '/' ->
    if
        TA =:= float -> floats(B, S);
        TB =:= float -> floats(A, S);
        true -> S
    end;
floats({float, _}, [A, B], _, S) -> floats(A, floats(B, S));
floats({float, convert}, [A], _, S) -> floats(A, S);
floats(_, _, _, S) -> S.

floats({v, V}, #{defs := Defs, types := Types, floats := Floats} = S) ->
    case Defs of
        #{V := {{bif, Op}, [{v, A}, {v, B}]}} when Op =:= '+'; Op =:= '-'; Op =:= '*' ->
            case lists:all(fun(X) -> lists:member(maps:get(X, Types), [term, float]) end, [A, B]) of
                true -> S#{floats := Floats#{V => true}};
                false -> S
            end;
        _ -> S
    end;
floats(_, S) -> S.
