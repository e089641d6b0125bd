%% SPDX-License-Identifier: Apache-2.0
%% @doc Functions of the user's module that keep the names of the source in its exceptions. Pure.
%%
%% A definition and what goes on at a loop have names of their own, and so have the funs in them.
%% What calls them passes their exceptions through `frames', which gives each frame the name that
%% the source has, and drops those that it has not.
-module(erlane_native_frames).

-export([beam/1, resume/1, guarded/2, functions/6]).

-import(erlane_native_forms, [remote/4, parse/1]).

-type fa() :: {atom(), arity()}.

-define(FRAMES, '\nframes').
-define(RAW, '\nraw').
-define(REPAIR, '\nrepair').
-define(INNER, '\ninner').

%% @doc The name of a definition.
-spec beam(atom()) -> atom().
beam(F) -> list_to_atom(atom_to_list(F) ++ "$beam").

%% @doc The name of what goes on at a loop of a native function.
-spec resume(fa()) -> atom().
resume({F, A}) -> list_to_atom(lists:concat([F, "/", A, "$resume"])).

%% @doc A call whose exception names the functions that the source has.
-spec guarded(erl_parse:abstract_expr(), erl_anno:anno()) -> erl_parse:abstract_expr().
guarded(Call, L) ->
    [C, R, S] = [{var, L, V} || V <- ['Class', 'Reason', 'Stack']],
    {'try', L, [Call], [],
     [{clause, L, [{tuple, L, [C, R, S]}], [],
       [remote(erlang, raise, [C, R, {call, L, {atom, L, ?FRAMES}, [S]}], L)]}], []}.

%% @doc These functions, for a module with these units, copied functions and body, and the name of
%% what is called once in a while. An exception passes here once for each call around it that was
%% put there; after the first time nothing is left to be done.
-spec functions(module(), [{fa(), non_neg_integer(), term()}], [fa()],
                [erl_parse:abstract_form()], atom(), erl_anno:anno()) ->
          [erl_parse:abstract_form()].
functions(Module, Units, Copied, Body, Rare, L) ->
    Inner = inner(Body, [FA || {FA, _, _} <- Units] ++ Copied),
    [H, T, F0] = [{var, L, V} || V <- ['H', 'T', 'F']],
    Any = {var, L, '_'},
    Raw = lists:usort([beam(F) || {F, _} <- Copied ++ [FA || {FA, _, _} <- Units]]
                      ++ [resume(FA) || {FA, _, _} <- Units]),
    [{function, L, ?FRAMES, 1,
      [{clause, L, [H], [],
        [{'case', L, {call, L, {atom, L, ?RAW}, [H]},
          [{clause, L, [{atom, L, true}], [], [{call, L, {atom, L, ?REPAIR}, [H]}]},
           {clause, L, [{atom, L, false}], [], [H]}]}]}]},
     {function, L, ?RAW, 1,
      [{clause, L, [{cons, L, {tuple, L, [{atom, L, Module}, {atom, L, F}, Any, Any]}, Any}], [],
        [{atom, L, true}]} || F <- Raw]
      ++ [{clause, L, [{cons, L, {tuple, L, [{atom, L, Module}, F0, Any, Any]}, T}], [],
           [{op, L, 'orelse', {op, L, '=/=', {call, L, {atom, L, ?INNER}, [F0]}, F0},
             {call, L, {atom, L, ?RAW}, [T]}}]} || Inner =/= []]
      ++ [{clause, L, [{cons, L, Any, T}], [], [{call, L, {atom, L, ?RAW}, [T]}]},
          {clause, L, [{nil, L}], [], [{atom, L, false}]}]},
     repair(Module, Units, Copied, Inner, Rare, L)]
        ++ [{function, L, ?INNER, 1, [{clause, L, [F0], [], [renamed(Inner, L)]}]} || Inner =/= []].

%% Functions that the compiler makes of comprehensions and funs, by how their names begin in a
%% definition and in the source.
inner(Body, Defined) ->
    [{["-", atom_to_list(beam(F)), $/, integer_to_list(A), $-],
      ["-", atom_to_list(F), $/, integer_to_list(A), $-]}
     || {function, _, F, A, Clauses} <- Body, lists:member({F, A}, Defined), makes(Clauses)].

makes(T) when is_tuple(T), tuple_size(T) > 0 ->
    lists:member(element(1, T), [lc, bc, mc, 'fun', named_fun]) orelse makes(tuple_to_list(T));
makes([H | T]) -> makes(H) orelse makes(T);
makes(_) -> false.

renamed(Inner, L) ->
    Pairs = [{lists:flatten(Old), lists:flatten(New)} || {Old, New} <- Inner],
    erl_parse:map_anno(
      fun(_) -> L end,
      parse(["case [list_to_atom(New ++ lists:nthtail(length(Old), atom_to_list(F)))"
             " || {Old, New} <- ", io_lib:format("~tp", [Pairs]), ","
             " lists:prefix(Old, atom_to_list(F))] of [G] -> G; [] -> F end."])).

%% Renames the frames of definitions, and drops those of what was put around them.
repair(Module, Units, Copied, Inner, Rare, L) ->
    [A, I, T, H, F0] = [{var, L, V} || V <- ['A', 'I', 'T', 'H', 'F']],
    M = {atom, L, Module},
    Rest = {call, L, {atom, L, ?REPAIR}, [T]},
    Frame = fun(F) -> {cons, L, {tuple, L, [M, {atom, L, F}, A, I]}, T} end,
    Names = lists:usort([F || {F, _} <- Copied ++ [FA || {FA, _, _} <- Units]]),
    {function, L, ?REPAIR, 1,
     [{clause, L, [Frame(beam(F))], [],
       [{cons, L, {tuple, L, [M, {atom, L, F}, A, I]}, Rest}]} || F <- Names]
     ++ [{clause, L, [{cons, L, {tuple, L, [M, {atom, L, F}, {integer, L, Arity},
                                            {var, L, '_'}]}, T}], [], [Rest]}
         || {{F, Arity}, _, _} <- Units]
     ++ [{clause, L, [{cons, L, {tuple, L, [M, {atom, L, resume(FA)}, {integer, L, 2},
                                            {var, L, '_'}]}, T}], [], [Rest]}
         || {FA, _, _} <- Units]
     ++ [{clause, L, [{cons, L, {tuple, L, [N, F, {var, L, '_'}, {var, L, '_'}]}, T}], [], [Rest]}
         || {N, F} <- [{M, {atom, L, Rare}}, {{atom, L, erlane_native_verify}, {var, L, '_'}}]]
     ++ [{clause, L, [{cons, L, {tuple, L, [M, F0, A, I]}, T}], [],
          [{cons, L, {tuple, L, [M, {call, L, {atom, L, ?INNER}, [F0]}, A, I]}, Rest}]}
         || Inner =/= []]
     ++ [{clause, L, [{cons, L, H, T}], [], [{cons, L, H, Rest}]},
         {clause, L, [{nil, L}], [], [{nil, L}]}]}.
