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

-export([unit/3, kinds/2, collects/2]).

-import(erlane_native_graph, [instructions/1, has/2, jumps/1, calls/1, synthetic/1, reached/2]).

-export_type([unit/0]).

-type unit() :: #{entry := erlane_native_ssa:fa(), heads := [erlane_native_ssa:fa()],
                  calls := [{erlane_native_ssa:fa(), [erlane_native_ssa:fa()]}],
                  functions := #{erlane_native_ssa:fa() => map()}}.
%% Each function has what the reader gives, and `params' (types), `types', `plans', `cost', whether
%% a call from outside runs it `once', and the blocks whose switch has all values that there are
%% (`sure').

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
    {Params, Rets, Bodies} =
        cheaper(fun(Range) ->
                    Seed = [seed(K, Range) || K <- maps:get(Entry, Kinds)],
                    erlane_native_flow:fix(Functions, Low, Unknown#{Entry => Seed}, Kinds)
                end),
    Heads = heads(Entry, Functions),
    _ = [throw({refused, maps:get(line, maps:get(FA, Functions)), "a comprehension or fun"})
         || FA <- Heads, synthetic(FA)],
    _ = [erlane_native_linear:check(F, maps:get(types, maps:get(FA, Bodies)), maps:get(FA, Params))
         || {FA, F} <- maps:to_list(Functions)],
    Called = lists:usort(lists:append([calls(F) || F <- maps:values(Functions)])),
    Jumped = lists:append([jumps(F) || F <- maps:values(Functions)]),
    Once = not lists:member(Entry, Called ++ Jumped),
    #{entry => Entry, heads => Heads,
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
    lists:any(fun(FA) -> has(maps:get(FA, Functions), [push]) end, FAs).

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

seed(int, Range) -> erlane_native_type:int(Range);
seed(float, _) -> float;
seed(bin, _) -> {bin, 0};
seed(buf, _) -> buf;
seed(_, _) -> term.

%% A function and what it jumps to.
heads(FA, Functions) ->
    [FA | reached([FA], fun(To) -> jumps(maps:get(To, Functions)) end) -- [FA]].
