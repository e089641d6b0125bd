%% SPDX-License-Identifier: Apache-2.0
%% @doc Several modules made into one, as forms. Pure.
%%
%% To purge a module its node looks into each of its processes: of 100,000 that takes a fifth of a
%% second of CPU time, for each module. So what goes to a node is one.
%%
%% Functions of the first module keep their names and exports, those of the others have the name of
%% their module before them. A call whose module is not named may be of one of these modules or of
%% another. Records become tuples; specs, types and other attributes are left out. The modules
%% must not import functions, and must not name each other where a name is data for the VM
%% (spawn/3, apply/3).
-module(erlane_prof_merge).

-export([forms/2]).

-type forms() :: [erl_parse:abstract_form() | erl_parse:form_info()].

%% @doc The one module, under a name of its own, from the forms of some.
-spec forms(Name :: module(), [{module(), forms()}, ...]) -> forms().
forms(Name, [{First, FirstForms} | _] = Sources) ->
    Expanded = [{M, erl_expand_records:module(Forms, [])} || {M, Forms} <- Sources],
    Modules = maps:from_list([{M, maps:from_keys([{F, A} || {function, _, F, A, _} <- Forms],
                                                 name(M, First))}
                              || {M, Forms} <- Expanded]),
    Exports = [FA || {attribute, _, export, List} <- FirstForms, FA <- List],
    {Functions, Calls} =
        lists:mapfoldl(fun({M, Form}, Acc) -> function(M, Form, Modules, Acc) end, #{},
                       [{M, Form} || {M, Forms} <- Expanded,
                                     {function, _, _, _, _} = Form <- Forms]),
    [{attribute, 1, module, Name}, {attribute, 1, export, Exports}
     | Functions ++ [call(FA, Modules) || FA <- maps:keys(Calls)]].

%% What comes before a function's name.
name(First, First) -> "";
name(Module, _) -> atom_to_list(Module) ++ ":".

function(M, {function, L, F, A, Clauses}, Modules, Calls) ->
    {Body, More} = walk(Clauses, {M, Modules, Calls}),
    #{M := Own} = Modules,
    {{function, L, renamed(F, A, Own), A, Body}, element(3, More)}.

renamed(F, A, Functions) ->
    case Functions of
        #{{F, A} := Before} -> list_to_atom(Before ++ atom_to_list(F));
        #{} -> F
    end.

%% Calls and funs of functions of ours. What else looks like one in the forms is one.
walk({call, L, {atom, LF, F}, Args}, {M, Modules, _} = S) ->
    #{M := Own} = Modules,
    {Walked, S1} = walk(Args, S),
    {{call, L, {atom, LF, renamed(F, length(Args), Own)}, Walked}, S1};
walk({call, L, {remote, LR, {atom, _, M} = Module, {atom, LF, F} = Function}, Args},
     {_, Modules, _} = S) ->
    {Walked, S1} = walk(Args, S),
    {case Modules of
         #{M := Functions} when is_map_key({F, length(Args)}, Functions) ->
             {call, L, {atom, LF, renamed(F, length(Args), Functions)}, Walked};
         #{} ->
             {call, L, {remote, LR, Module, Function}, Walked}
     end, S1};
walk({call, L, {remote, LR, Module, {atom, LF, F} = Function}, Args}, S) ->
    {[Named | Walked], {M, Modules, Calls} = S1} = walk([Module | Args], S),
    FA = {F, length(Args)},
    case lists:any(fun(Functions) -> is_map_key(FA, Functions) end, maps:values(Modules)) of
        true ->
            {{call, L, {atom, LF, which(F)}, [Named | Walked]}, {M, Modules, Calls#{FA => true}}};
        false ->
            {{call, L, {remote, LR, Named, Function}, Walked}, S1}
    end;
walk({'fun', L, {function, F, A}}, {M, Modules, _} = S) ->
    #{M := Own} = Modules,
    {{'fun', L, {function, renamed(F, A, Own), A}}, S};
walk({'fun', L, {function, {atom, _, M}, {atom, _, F}, {integer, _, A}}} = Fun,
     {_, Modules, _} = S) ->
    {case Modules of
         #{M := Functions} when is_map_key({F, A}, Functions) ->
             {'fun', L, {function, renamed(F, A, Functions), A}};
         #{} ->
             Fun
     end, S};
walk({'fun', L, {function, Module, {atom, LF, F}, {integer, _, A}}}, S) ->
    Args = vars(A),
    {Call, S1} = walk({call, L, {remote, L, Module, {atom, LF, F}}, Args}, S),
    {{'fun', L, {clauses, [{clause, L, Args, [], [Call]}]}}, S1};
walk([Head | Tail], S) ->
    {First, S1} = walk(Head, S),
    {Rest, S2} = walk(Tail, S1),
    {[First | Rest], S2};
walk(Tuple, S) when is_tuple(Tuple) ->
    {List, S1} = walk(tuple_to_list(Tuple), S),
    {list_to_tuple(List), S1};
walk(Other, S) ->
    {Other, S}.

which(F) -> list_to_atom("which:" ++ atom_to_list(F)).

%% No program has such names.
vars(Count) ->
    [{var, 1, list_to_atom("argument " ++ integer_to_list(I))} || I <- lists:seq(1, Count)].

%% The function of the module that its first argument names.
call({F, A}, Modules) ->
    Args = vars(A),
    Module = {var, 1, 'Module'},
    Clauses = [{clause, 1, [{atom, 1, M} | Args], [],
                [{call, 1, {atom, 1, renamed(F, A, Functions)}, Args}]}
               || {M, Functions} <- lists:sort(maps:to_list(Modules)),
                  is_map_key({F, A}, Functions)],
    Other = {clause, 1, [Module | Args], [],
             [{call, 1, {remote, 1, Module, {atom, 1, F}}, Args}]},
    {function, 1, which(F), A + 1, Clauses ++ [Other]}.
