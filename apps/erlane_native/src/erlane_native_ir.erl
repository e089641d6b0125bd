%% SPDX-License-Identifier: Apache-2.0
%% @doc Which machine value each variable of a unit can be, and how wide each operation must be.
%% Pure.
%%
%% A <em>unit</em> is a function and all that it calls. What it reaches by tail calls becomes one
%% machine function, in which those calls are jumps. The function of each jump target is a
%% <em>head</em>: only there does native code give way or hand a call back, with the head's
%% arguments. A function that is called otherwise becomes a machine function of its own, with what
%% it reaches by tail calls; it cannot give way, but be given up, and with it the caller's turn.
%%
%% Kinds are a bet: what cannot be known (an argument) is guessed from its uses, tested where it
%% comes in, and given back to BEAM when the guess was wrong. So a wrong kind costs time only.
%% Ranges are no bet: they follow from tests that the code makes.
-module(erlane_native_ir).

-export([unit/3, kinds/2, collects/2, builds/1]).

-import(erlane_native_ssa, [instructions/1, jumps/1, calls/1]).

-export_type([unit/0, type/0, plan/0]).

-type type() :: none | {int, integer(), integer()} | low | float | bool | term | {k, term()}
              | {bin, Bits :: 0..7} | {field, Bits :: 0..7, type()} | buf.
%% `low': an integer of which only the lowest 64 bits are ever looked at. `{k, _}': a literal.
%% `{bin, Bits}': a place in a binary, so many bits into a byte; `{field, ...}' is that too, after
%% a field was matched whose value has the type. `buf': a binary that is being built.
-type plan() :: list | erlane_native_width:plan().
-type unit() :: #{entry := erlane_native_ssa:fa(), heads := [erlane_native_ssa:fa()],
                  calls := [{erlane_native_ssa:fa(), [erlane_native_ssa:fa()]}],
                  functions := #{erlane_native_ssa:fa() => map()}}.
%% Each function has what the reader gives, and `params' (types), `types', `plans', `cost', whether
%% a call from outside runs it `once', and the blocks whose switch has all values that there are
%% (`sure').

-define(LOW, {int, -(1 bsl 1000), 1 bsl 1000}).
%% After so many rounds a range that still grows gets 16 bits, then 32, and after some more rounds
%% all that a machine integer holds (widening with thresholds, Blanchet and others, 2003).
-define(ROUNDS, 4).
-define(STEPS, 8).
-define(THRESHOLDS, [16, 32]).

%% @doc The unit of a function; throws `{refused, Line, Reason}'. Specs tell the kinds of
%% arguments where their uses leave it open.
-spec unit(erlane_native_ssa:fa(),
           #{erlane_native_ssa:fa() => erlane_native_ssa:fn() | erlane_native_ssa:refused()},
           #{erlane_native_ssa:fa() => [atom()]}) -> unit().
unit(Entry, All, Specs) ->
    Functions = erlane_native_collect:functions(reach([Entry], All, #{})),
    Low = maps:map(fun(_, F) -> erlane_native_width:narrow(F) end, Functions),
    Kinds = erlane_native_kinds:params(Functions, Specs),
    %% A buffer is one whatever it begins with; all else follows from the calls.
    Unknown = maps:map(fun(_, Ks) -> [case K of buf -> buf; _ -> none end || K <- Ks] end, Kinds),
    Rets0 = maps:map(fun(_, _) -> none end, Functions),
    Floats = maps:map(fun(_, _) -> #{} end, Functions),
    {Params, Rets, Bodies} =
        cheaper(fun(Range) ->
                    Seed = [seed(K, Range) || K <- maps:get(Entry, Kinds)],
                    fix(Functions, Low, Unknown#{Entry => Seed}, Rets0, Kinds, Floats, 0)
                end),
    _ = [throw({refused, maps:get(line, maps:get(FA, Functions)), "a comprehension or fun"})
         || FA <- heads(Entry, Functions), synthetic(FA)],
    _ = [erlane_native_linear:check(F, maps:get(types, maps:get(FA, Bodies)), maps:get(FA, Params))
         || {FA, F} <- maps:to_list(Functions)],
    Called = lists:usort(lists:append([calls(F) || F <- maps:values(Functions)])),
    Jumped = lists:append([jumps(F) || F <- maps:values(Functions)]),
    Once = not lists:member(Entry, Called ++ Jumped),
    #{entry => Entry, heads => heads(Entry, Functions),
      calls => [{FA, heads(FA, Functions)} || FA <- Called],
      functions => maps:map(fun(FA, F) ->
                                Body = maps:get(FA, Bodies),
                                maps:merge(F, Body#{params => maps:get(FA, Params),
                                                    ret => maps:get(FA, Rets),
                                                    once => Once andalso FA =:= Entry,
                                                    cost => erlane_native_cost:turn(F)})
                            end, Functions)}.

%% Integers of the caller are taken to have a sign, unless it spares tests if they have none.
cheaper(Solve) ->
    Signed = Solve(erlane_native_range:signed()),
    case wide(Signed) of
        0 -> Signed;
        N ->
            try Solve(erlane_native_range:unsigned()) of
                Unsigned ->
                    case wide(Unsigned) < N of
                        true -> Unsigned;
                        false -> Signed
                    end
            catch throw:{refused, _, _} -> Signed
            end
    end.

%% Operations that take more than 64 bits.
wide({_, _, Bodies}) ->
    length([P || #{plans := Plans} <- maps:values(Bodies), P <- maps:values(Plans),
                 erlane_native_width:bits(P) > 64]).

%% @doc Whether one of these functions pushes elements of the list that it gives.
-spec collects([erlane_native_ssa:fa()], #{erlane_native_ssa:fa() => map()}) -> boolean().
collects(FAs, Functions) ->
    lists:any(fun(FA) -> erlane_native_ssa:has(maps:get(FA, Functions), [push]) end, FAs).

%% @doc Is a binary built in this function of a unit?
-spec builds(#{types := #{non_neg_integer() => type()}, _ => _}) -> boolean().
builds(#{types := Types}) -> lists:member(buf, maps:values(Types)).

%% @doc What the arguments of a head are whenever native code hands them back; `lists' behind them
%% stands for the parts of a list that were made before.
-spec kinds(erlane_native_ssa:fa(), unit()) -> [int | float | bin | term | lists].
kinds(FA, #{functions := Fs, heads := Heads}) ->
    #{params := Params} = maps:get(FA, Fs),
    [case T of
         {int, _, _} -> int;
         float -> float;
         {bin, _} -> bin;
         buf -> bin;
         _ -> term
     end || T <- Params] ++ [lists || collects(Heads, Fs)].

reach([], _, Acc) -> Acc;
reach([FA | Rest], All, Acc) when is_map_key(FA, Acc) -> reach(Rest, All, Acc);
reach([{F, A} = FA | Rest], All, Acc) ->
    case All of
        #{FA := #{} = Read} ->
            Function = comprehensions(FA, Read),
            reach(jumps(Function) ++ calls(Function) ++ Rest, All, Acc#{FA => Function});
        #{FA := {refused, _, _} = Refused} -> throw(Refused);
        _ -> throw({refused, 0, io_lib:format("there is no function ~tp/~b", [F, A])})
    end.

%% What the compiler made of a comprehension has no name that BEAM could go on at. So it is called
%% and not jumped to.
comprehensions(FA, #{blocks := Blocks, args := Args} = Function) ->
    case synthetic(FA) of
        true -> Function;
        false ->
            New = 1 + lists:max([-1 | Args] ++ [Dst || {Dst, _, _, _} <- instructions(Function)]),
            Function#{blocks := maps:map(fun(_, {Ins, {tail, To, As, Line}} = Block) ->
                                                 case synthetic(To) of
                                                     true ->
                                                         {Ins ++ [{New, {call, To}, As, Line}],
                                                          {ret, {v, New}}};
                                                     false -> Block
                                                 end;
                                            (_, Block) -> Block
                                         end, Blocks)}
    end.

seed(int, Range) -> int_type(Range);
seed(float, _) -> float;
seed(bin, _) -> {bin, 0};
seed(buf, _) -> buf;
seed(_, _) -> term.

int_type({Lo, Hi}) -> {int, Lo, Hi}.

synthetic({F, _}) -> hd(atom_to_list(F)) =:= $-.

%% A function and what it jumps to.
heads(FA, Functions) ->
    [FA | lists:sort(heads([FA], Functions, #{}) -- [FA])].

heads([], _, Seen) -> maps:keys(Seen);
heads([FA | Rest], Functions, Seen) when is_map_key(FA, Seen) -> heads(Rest, Functions, Seen);
heads([FA | Rest], Functions, Seen) ->
    heads(jumps(maps:get(FA, Functions)) ++ Rest, Functions, Seen#{FA => true}).

%% Bodies are run with the parameters and results known so far, until nothing new comes.
fix(Functions, Low, Params, Rets, Kinds, Floats, Round) ->
    Bodies = maps:map(fun(FA, F) ->
                          body(F, maps:get(FA, Params), maps:get(FA, Low), Rets,
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
bet(int, term) -> int_type(erlane_native_range:signed());
bet(float, term) -> float;
bet(_, T) -> T.

%% Results join like arguments do, but what is not always of one kind is a term.
returned(R, none, _) -> R;
returned(_, buf, _) -> term;
returned(none, T, Round) ->
    case is_integer(bits(T)) of
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
param(P, low, At, Round) -> param(P, ?LOW, At, Round);
param(P, none, _, _) -> P;
param(buf, T, At, _) -> building(T, At);
param(P, P, _, _) -> P;
param(_, {bin, Bits}, {{F, A}, I, Line}, _) when Bits =/= 0 ->
    throw({refused, Line, io_lib:format("argument ~b of ~tp/~b is a place within a byte",
                                        [I, F, A])});
param(none, {int, Lo, Hi}, _, _) ->
    {L, H} = loopable({Lo, Hi}),
    {int, L, H};
param(none, {k, _}, _, _) -> term;
param(none, bool, _, _) -> term;
param(none, T, _, _) -> T;
param({int, A, B}, {int, C, D}, _, Round) ->
    case erlane_native_range:join({A, B}, {C, D}) of
        {A, B} -> {int, A, B};
        R when Round < ?ROUNDS -> int_type(loopable(R));
        R when Round < ?STEPS -> int_type(wider(R));
        R -> int_type(widest(R))
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

%% One run through a body, whose blocks come in an order in which a definition is before its uses.
body(#{args := Args, order := Order, blocks := Blocks}, Params, Low, Rets, Floats) ->
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
        {{int, Lo, Hi}, #{V := R}} -> int_type(erlane_native_range:meet({Lo, Hi}, R));
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

%% Type of a result and plan of the operation.
result(ok, [_], _, _) -> {bool, plain};
result(phi, Ts, _, _) -> {lists:foldl(fun phi/2, none, Ts), plain};
result({bif, Op}, Ts, _, Low) when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= 'div';
                                   Op =:= 'rem'; Op =:= 'band'; Op =:= 'bor'; Op =:= 'bxor';
                                   Op =:= 'bsl'; Op =:= 'bsr'; Op =:= 'bnot'; Op =:= abs;
                                   Op =:= min; Op =:= max ->
    arith(Op, Ts, Low);
result({bif, Op}, [_, _], _, _) when Op =:= '<'; Op =:= '>'; Op =:= '=<'; Op =:= '>=';
                                     Op =:= '=:='; Op =:= '=/='; Op =:= '=='; Op =:= '/=';
                                     Op =:= 'and'; Op =:= 'or'; Op =:= 'xor' -> {bool, plain};
result({bif, Op}, [_], _, _) when Op =:= 'not'; Op =:= is_integer; Op =:= is_float;
                                  Op =:= is_number; Op =:= is_atom; Op =:= is_binary;
                                  Op =:= is_bitstring; Op =:= is_list; Op =:= is_tuple;
                                  Op =:= is_map; Op =:= is_pid; Op =:= is_reference;
                                  Op =:= is_boolean -> {bool, plain};
result({bif, neg}, [float], _, _) -> throw({unsupported, "the negative of a float"});
result({bif, neg}, [T], _, Low) ->
    erlane_native_width:int('-', [{0, 0}, operand(neg, T)], Low);
result({bif, '/'}, [_, _], _, _) -> {float, plain};
result({bif, float}, [_], _, _) -> {float, plain};
result({bif, Op}, [T], _, _) when Op =:= trunc; Op =:= round; Op =:= floor; Op =:= ceil ->
    case T of
        %% An integer is what it was; of a float, the code tests the result.
        {int, _, _} -> {T, plain};
        _ when T =:= float; T =:= term -> {{int, -(1 bsl 59), 1 bsl 59}, plain};
        _ -> throw({unsupported, io_lib:format("~tp of what is not a number", [Op])})
    end;
result({bif, Op}, [T], _, _) when Op =:= byte_size; Op =:= bit_size ->
    case T of
        {bin, 0} -> {{int, 0, 1 bsl 60}, plain};
        {bin, _} -> throw({unsupported, "the size of what begins within a byte"});
        {field, 0, _} -> {{int, 0, 1 bsl 60}, plain};
        _ -> throw({unsupported, "the size of what is not matched as a binary"})
    end;
result({math, _}, _, _, _) -> {float, plain};
result({float, Op}, _, _, _) when Op =:= put; Op =:= convert; Op =:= get;
                                  Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= '/' ->
    {float, plain};
result(bs_empty, [], _, _) -> {{k, <<>>}, plain};
result({bs_create, Segments}, Ts, Args, _) -> {create(Segments, Ts, Args), plain};
result(Op, Ts, Args, _) ->
    case erlane_native_list:type(Op, Ts) of
        none -> bits_op(Op, Ts, Args);
        Type -> {Type, list}
    end.

bits_op(bs_start, [{bin, K}], _) -> {{bin, K}, plain};
bits_op(bs_start, [{field, K, _}], _) -> {{bin, K}, plain};
bits_op(bs_start, [term], _) -> {{bin, 0}, plain};
bits_op(bs_start, _, _) -> throw({unsupported, "matches in what is not a binary"});
bits_op({bs_test_tail, _}, _, _) -> {bool, plain};
bits_op({bs_ensure, _, _}, [T], _) -> {{bin, place(T)}, plain};
bits_op({bs_string, S}, [T], _) -> {{bin, (place(T) + bit_size(S)) rem 8}, plain};
bits_op(bs_utf8, [T], _) -> {{field, aligned(T), {int, 0, 16#10FFFF}}, plain};
bits_op({bs_match, binary, _, _, Unit}, [T, _], [_, {c, all}]) when Unit =:= 8; Unit =:= 1 ->
    {{field, 0, rest(T)}, plain};
bits_op({bs_match, Type, Signed, Little, Unit}, [T, _], [_, {c, Size}]) when is_integer(Size) ->
    N = Size * Unit,
    K = place(T),
    case field(Type, Signed, Little, K, N) of
        %% Not all bits are a float, so to skip one is to look at it.
        {no, Why} when Type =:= float -> throw({unsupported, Why});
        Field -> {{field, (K + N) rem 8, Field}, plain}
    end;
bits_op({bs_match, binary, _, _, 8}, [T, {int, _, _}], _) ->
    {{field, aligned(T), {bin, 0}}, plain};
bits_op({bs_match, _, _, _, _}, _, _) ->
    throw({unsupported, "a field of a binary whose size is not known"});
bits_op(bs_extract, [{field, _, {no, Why}}], _) -> throw({unsupported, Why});
bits_op(bs_extract, [{field, _, T}], _) -> {T, plain};
bits_op(bs_get_tail, [T], _) -> {{bin, place(T)}, plain};
bits_op(Op, _, _) ->
    throw({unsupported, io_lib:format("~tp on these operands is not native", [Op])}).

create([{Append, _, _} | Segments], [T, _ | Ts], [_, {c, all} | Args])
  when Append =:= append orelse Append =:= private_append, T =:= buf orelse T =:= {k, <<>>} ->
    _ = erlane_native_build:fields(Segments, Args),
    lists:foreach(fun put/1, erlane_native_width:fields(Segments, Ts, Args)),
    buf;
create([{Append, _, _} | _], _, _) when Append =:= append; Append =:= private_append ->
    throw({unsupported, "appends to what is not an argument of the loop"});
create(_, _, _) -> throw({unsupported, "makes a binary that is not an append to one"}).

put({{integer, _, _}, {int, _, _}, _}) -> ok;
put({{integer, _, _}, T, _}) when T =:= low; T =:= term -> ok;
put({{utf8, _, _}, {int, _, _}, _}) -> ok;
put({{utf8, _, _}, term, _}) -> ok;
put({{float, _, _}, float, _}) -> ok;
put({{binary, _, _}, {bin, 0}, _}) -> ok;
put({{binary, _, _}, {k, B}, _}) when is_binary(B), byte_size(B) =< 64 -> ok;
put({{Type, _, _}, _, _}) ->
    throw({unsupported, io_lib:format("puts what may not be ~tp into a binary as such", [Type])}).

bits({bin, K}) -> K;
bits({field, K, _}) -> K;
bits(_) -> no.

place(T) ->
    case bits(T) of
        no -> throw({unsupported, "matches in what is not a binary"});
        K -> K
    end.

aligned(T) ->
    case place(T) of
        0 -> 0;
        _ -> throw({unsupported, "a field that must begin with a byte does not"})
    end.

rest(T) ->
    case place(T) of
        0 -> {bin, 0};
        _ -> {no, "a binary that begins within a byte"}
    end.

field(integer, _, true, K, N) when K =/= 0; N rem 8 =/= 0 ->
    {no, "a little-endian field that is not whole bytes"};
field(integer, Signed, _, K, N) when N > 0, K + N =< 64 ->
    case Signed of
        true -> {int, -(1 bsl (N - 1)), (1 bsl (N - 1)) - 1};
        false -> {int, 0, (1 bsl N) - 1}
    end;
field(integer, _, _, _, 0) -> {int, 0, 0};
field(integer, _, _, _, _) -> {no, "an integer field that is not within eight bytes"};
field(float, _, _, 0, 64) -> float;
field(float, _, _, _, _) -> {no, "a float that is not 64 bits at a whole byte"};
field(binary, _, _, 0, N) when N rem 8 =:= 0 -> {bin, 0};
field(binary, _, _, _, _) -> {no, "a binary that is not whole bytes"}.

phi(T, none) -> T;
phi(T, T) -> T;
phi({int, A, B}, {int, C, D}) -> {int, min(A, C), max(B, D)};
phi(buf, {k, <<>>}) -> throw({unsupported, "a binary that is built on one way only"});
phi(bool, {k, K}) when is_boolean(K) -> bool;
phi({k, K}, bool) when is_boolean(K) -> bool;
phi(A, B) ->
    case [T || T <- [A, B], T =:= low orelse T =:= buf orelse is_integer(bits(T))] of
        [] -> term;
        _ -> throw({unsupported, "a variable that is a binary on one way only"})
    end.

arith(Op, Ts, Low) ->
    case lists:member(float, Ts) of
        true when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= abs -> {float, plain};
        true -> throw({unsupported, io_lib:format("~tp of a float", [Op])});
        false -> erlane_native_width:int(Op, [operand(Op, T) || T <- Ts], Low)
    end.

operand(_, {int, Lo, Hi}) -> {Lo, Hi};
operand(_, low) -> {_, Lo, Hi} = ?LOW, {Lo, Hi};
operand(Op, term) when Op =/= min, Op =/= max -> erlane_native_range:signed();
operand(Op, _) -> throw({unsupported, io_lib:format("~tp of what is not a number", [Op])}).
