%% SPDX-License-Identifier: Apache-2.0
%% @doc What the transform makes of a module's forms. Pure but for the compiler it calls.
%%
%% A native function `f' becomes three: `f' itself, which calls the companion and does what its
%% answer says; `f$beam', the definition, whose calls of itself stay in BEAM; and one that goes on
%% at a loop after native code gave way or handed the call back.
-module(erlane_native_user).

-export([module/4, refused/2]).

-import(erlane_native_forms, [is_on_load/1, graph/1, circle/3, remote/4, parse/1, abstract/2]).
-import(erlane_native_frames, [beam/1, resume/1, guarded/2]).
-import(erlane_native_companion, [nif/5]).

-type fa() :: {atom(), arity()}.

-define(COMPANION, '\ncompanion').
-define(LOAD, '\nload').
-define(RARE, '\nrare').
-define(JOIN, '\njoin').

%% @doc The user's module: `Units' are the functions that are native, each with its number, and the
%% functions of its heads in order.
-spec module([erl_parse:abstract_form()],
             [{fa(), non_neg_integer(), [{fa(), [int | float | bin | term | lists]}]}], module(),
             binary()) -> [erl_parse:abstract_form()].
module(Forms, Units, Companion, Binary) ->
    Native = [FA || {FA, _, _} <- Units],
    Graph = graph(Forms),
    OnLoad = [F || {attribute, _, on_load, F} <- Forms],
    {Head, Body, Eof} = parts([F || F <- Forms, not is_on_load(F)]),
    Anno = erl_anno:set_generated(true, erl_anno:new(0)),
    Module = erlane_native_forms:module(Forms),
    Copied = [FA || {function, _, F, A, _} <- Body, FA <- [{F, A}], not lists:member(FA, Native),
                    lists:any(fun(N) -> circle(FA, N, Graph) end, Native)],
    Head ++ [{attribute, Anno, export, [{?COMPANION, 0}]},
             {attribute, Anno, on_load, {?LOAD, 0}}]
        %% What only a native function called has no caller but copies now.
        ++ [{attribute, Anno, compile, {nowarn_unused_function, Copied}} || Copied =/= []]
        ++ lists:append([form(F, Copied, Native, Graph, Units, Companion, Anno) || F <- Body])
        ++ [goes_on(U, Native ++ Copied, Companion, Anno) || U <- Units]
        ++ [rare(Units, Companion, Anno)] ++ join(Units, Anno)
        ++ erlane_native_frames:functions(Module, Units, Copied, Body, ?RARE, Anno)
        ++ [known(Companion, Binary, Anno), on_load(OnLoad, Anno)]
        ++ Eof.

%% @doc A module of which nothing was taken: as it is, and able to say why.
-spec refused([erl_parse:abstract_form()], [{fa(), integer(), string()}]) ->
          [erl_parse:abstract_form()].
refused(Forms, Why) ->
    {Head, Body, Eof} = parts(Forms),
    Anno = erl_anno:set_generated(true, erl_anno:new(0)),
    Head ++ [{attribute, Anno, export, [{?COMPANION, 0}]} | Body] ++ [known(none, Why, Anno) | Eof].

%% The attributes at its head, all else, and its end.
parts(Forms) ->
    {Head, Rest} = lists:splitwith(fun(F) -> element(1, F) =:= attribute end, Forms),
    {Body, Eof} = lists:partition(fun(F) -> element(1, F) =/= eof end, Rest),
    {Head, Body, Eof}.

form({function, _, F, A, Clauses} = Form, Copied, Native, Graph, Units, Companion, Anno) ->
    FA = {F, A},
    Definition = fun() ->
                     Same = [N || N <- Native ++ Copied, N =:= FA orelse circle(FA, N, Graph)],
                     {function, element(2, Form), beam(F), A, rename(Clauses, Same)}
                 end,
    case {lists:keyfind(FA, 1, Units), lists:member(FA, Copied)} of
        {{_, I, _}, _} -> [wrapper(FA, I, Companion, Anno), Definition()];
        %% What there is to be warned of is said of the function itself.
        {false, true} ->
            [Form, erl_parse:map_anno(fun(L) -> erl_anno:set_generated(true, L) end,
                                      Definition())];
        {false, false} -> [Form]
    end;
form(Form, _, _, _, _, _, _) -> [Form].

%% Calls within a definition of itself, or of what leads back to it, do not try native code again:
%% it was left for a reason that would most likely hold for each of them, and to try costs more than
%% a call does. So a function that is not native, but calls a native one that calls it, has a copy:
%% a loop through the wrapper, whose `try' is no tail call, would grow the stack at each turn.
rename({call, L, {atom, L2, F}, Args}, Same) ->
    {call, L, {atom, L2, defined({F, length(Args)}, Same)}, rename(Args, Same)};
rename(T, Same) when is_tuple(T) -> list_to_tuple(rename(tuple_to_list(T), Same));
rename([H | T], Same) -> [rename(H, Same) | rename(T, Same)];
rename(T, _) -> T.

defined({F, _} = FA, Same) ->
    case lists:member(FA, Same) of
        true -> beam(F);
        false -> F
    end.

wrapper({F, A} = FA, I, Companion, L) ->
    Vars = vars(A, L),
    {function, L, F, A,
     [{clause, L, Vars, [],
       [answer(nif(Companion, "n", I, Vars, L), FA,
               guarded({call, L, {atom, L, beam(F)}, Vars}, L), L)]}]}.

vars(A, L) -> [{var, L, list_to_atom("V" ++ integer_to_list(N))} || N <- lists:seq(1, A)].

%% What to do with the answer of native code.
answer(Call, FA, OnMarker, L) ->
    Marker = {atom, L, erlane_native_llvm:marker()},
    %% Names that are not bound yet where this is put.
    [W, As, R] = [{var, L, V} || V <- ['Where', 'Args', 'Result']],
    {'case', L, Call,
     [{clause, L, [Marker], [], [OnMarker]},
      {clause, L, [{tuple, L, [Marker, W, As]}], [],
       [{call, L, {atom, L, resume(FA)}, [W, As]}]},
      {clause, L, [R], [], [R]}]}.

goes_on({FA, I, Heads}, Defined, Companion, L) ->
    [W, As, Kept, Rest] = [{var, L, V} || V <- ['W', 'As', 'Kept', 'Rest']],
    Join = fun(Value) -> {call, L, {atom, L, ?JOIN}, [Kept, Value]} end,
    Head = {op, L, '-', {integer, L, -1}, W},
    Again = {clause, L, [W, As], [[{op, L, '<', W, {integer, L, 0}}]],
             [answer(nif(Companion, "r", I, [{tuple, L, [Head, As]}], L), FA,
                     {call, L, {atom, L, resume(FA)}, [Head, As]}, L)]},
    {function, L, resume(FA), 2,
     [Again | [begin
                   Vars = vars(A, L),
                   Call = guarded({call, L, {atom, L, defined({F, A}, Defined)}, Vars}, L),
                   case lists:member(lists, Kinds) of
                       false -> {clause, L, [{integer, L, N}, {tuple, L, Vars}],
                                 guards(Vars, Kinds, L), [Call]};
                       true -> {clause, L, [{integer, L, N}, {tuple, L, Vars ++ [Kept]}],
                                guards(Vars, lists:droplast(Kinds), L), [Join(Call)]}
                   end
               end || {N, {{F, A}, Kinds}} <- lists:zip(lists:seq(0, length(Heads) - 1), Heads)]
     ++ [{clause, L, [{atom, L, join}, {tuple, L, [Kept, Rest]}], [], [Join(Rest)]}
         || collects(Heads)]
     ++ [{clause, L, [W, As], [], [{call, L, {atom, L, ?RARE}, [W, {integer, L, I}, As]}]}]]}.

%% Puts lists in front of what follows them, the last one first.
join(Units, L) ->
    [K, Ks, Rest] = [{var, L, V} || V <- ['K', 'Ks', 'Rest']],
    [{function, L, ?JOIN, 2,
      [{clause, L, [{cons, L, K, Ks}, Rest], [],
        [{call, L, {atom, L, ?JOIN}, [Ks, {op, L, '++', K, Rest}]}]},
       {clause, L, [{nil, L}, Rest], [], [Rest]}]}
     || lists:any(fun({_, _, Heads}) -> collects(Heads) end, Units)].

collects(Heads) -> lists:any(fun({_, Kinds}) -> lists:member(lists, Kinds) end, Heads).

%% What happens once in a while is one function for all, as the compiler takes its time for each.
rare(Units, Companion, L) ->
    Vs = [W, I, As] = [{var, L, V} || V <- ['W', 'I', 'As']],
    Fun = fun(Name, Arity) -> {'fun', L, {function, Name, Arity}} end,
    Funs = {'case', L, I,
            [{clause, L, [{integer, L, N}], [],
              [{tuple, L, [Fun(beam(F), A), Fun(resume(FA), 2)]}]}
             || {{F, A} = FA, N, _} <- Units]},
    {function, L, ?RARE, 3,
     [{clause, L, Vs, [],
       [guarded(remote(erlane_native_verify, rare,
                       [W, {tuple, L, [{atom, L, Companion}, I]}, Funs, As], L), L)]}]}.

%% These hold. They are there for the compiler: a call with arguments that it knows nothing of would
%% take the types from the loop, and then the BEAM would raise in another place than the source's.
guards(Vars, Kinds, L) ->
    Tests = [{call, L, {atom, L, Test}, [V]}
             || {V, K} <- lists:zip(Vars, Kinds),
                {Kind, Test} <- [{int, is_integer}, {float, is_float}, {bin, is_binary}],
                K =:= Kind],
    [Tests || Tests =/= []].

%% What the module says of itself: its companion and the code of that, or why there is none.
known(Companion, What, L) ->
    {function, L, ?COMPANION, 0,
     [{clause, L, [], [], [abstract({Companion, What}, L)]}]}.

%% The code server may not be up yet when a release boots; the call below it always is. What asks
%% for machine code is looked for here, once, as a companion's calls do not.
on_load(User, L) ->
    Load = parse("begin try code:ensure_loaded(erlane_native_load) catch _:_ -> ok end,"
                 " case erlang:module_loaded(element(1, Known)) of true -> ok;"
                 " false -> {Name, Code} = Known,"
                 " try {module, Name} = code:load_binary(Name, atom_to_list(Name), Code)"
                 " catch _:_ -> erlang:load_module(Name, Code) end end end."),
    Then = case User of
               [{F, 0} | _] -> {call, L, {atom, L, F}, []};
               [F | _] when is_atom(F) -> {call, L, {atom, L, F}, []};
               [] -> {atom, L, ok}
           end,
    {function, L, ?LOAD, 0,
     [{clause, L, [], [],
       [{match, L, {var, L, 'Known'}, {call, L, {atom, L, ?COMPANION}, []}},
        erl_parse:map_anno(fun(_) -> L end, Load), Then]}]}.
