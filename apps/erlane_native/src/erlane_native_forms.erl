%% SPDX-License-Identifier: Apache-2.0
%% @doc What the transform makes of a module's forms. Pure but for the compiler it calls.
%%
%% A native function `f' becomes three: `f' itself, which calls the companion and does what its
%% answer says; `f$beam', the definition, whose calls of itself stay in BEAM; and one that goes on
%% at a loop after native code gave way or handed the call back.
%%
%% The companion is a module of its own, because a module that loads NIFs loses the types that the
%% compiler found for it. Its name ends in the hash of what it was made from, so old user code
%% meets its own companion after an upgrade. Its object code is a literal in the user's module,
%% whose `-on_load' makes it known: one file holds all, wherever it is copied, and a compile to
%% memory works as any other.
-module(erlane_native_forms).

-export([natives/1, strip/1, exports_all/1, plain/1, module/1, specs/1, small/1, mentioned/1]).
-export([user/4, refused/2, companion/2]).

-type fa() :: {atom(), arity()}.

-define(COMPANION, '\ncompanion').
-define(FRAMES, '\nframes').
-define(RAW, '\nraw').
-define(REPAIR, '\nrepair').
-define(LOAD, '\nload').
-define(RARE, '\nrare').
-define(INNER, '\ninner').
-define(JOIN, '\njoin').
%% Nodes of the syntax tree of a function that is inlined.
-define(SMALL, 300).

%% @doc The functions that the attributes name, each once, with all options and its first line.
-spec natives([erl_parse:abstract_form()]) -> [{fa(), [atom() | tuple()], integer()}].
natives(Forms) ->
    lists:foldl(fun unite/2, [], [native(E, erl_anno:line(A))
                                  || {attribute, A, native, L} <- Forms, E <- list(L)]).

unite({FA, Options, _} = New, Natives) ->
    case lists:keyfind(FA, 1, Natives) of
        false -> Natives ++ [New];
        {FA, Others, Line} ->
            lists:keyreplace(FA, 1, Natives, {FA, Others ++ (Options -- Others), Line})
    end.

list(L) when is_list(L) -> L;
list(E) -> [E].

native({F, A}, Line) when is_atom(F), is_integer(A) -> {{F, A}, [], Line};
native({F, A, Options}, Line) when is_atom(F), is_integer(A), is_list(Options) ->
    _ = [throw({attribute, Line, io_lib:format("~tp/~b: there is no option ~tp", [F, A, O])})
         || O <- Options, not is_option(O)],
    {{F, A}, Options, Line};
native(Other, Line) ->
    throw({attribute, Line, io_lib:format("~tp is not Name/Arity", [Other])}).

is_option({deopt, K}) -> is_integer(K) andalso K > 0;
is_option(O) -> lists:member(O, [strict, verify, always, yield, keep]).

%% @doc Forms without what would call a transform again, or run at load.
-spec strip([erl_parse:abstract_form()]) -> [erl_parse:abstract_form()].
strip(Forms) ->
    [case F of
         {attribute, A, compile, Options} ->
             {attribute, A, compile, [O || O <- list(Options), not is_transform(O)]};
         _ -> F
     end || F <- Forms, not is_on_load(F)].

%% @doc Does the module export all its functions by an option in its text?
-spec exports_all([erl_parse:abstract_form()]) -> boolean().
exports_all(Forms) ->
    lists:any(fun({attribute, _, compile, Options}) -> lists:member(export_all, list(Options));
                 (_) -> false
              end, Forms).

%% @doc The forms of a module that was transformed already, to be compiled again: without what would
%% do that once more, or run at load.
-spec plain([erl_parse:abstract_form()]) -> [erl_parse:abstract_form()].
plain(Forms) ->
    [case F of
         {attribute, A, compile, Options} ->
             {attribute, A, compile, [O || O <- list(Options),
                                           O =:= export_all orelse not is_transform(O)]};
         _ -> F
     end || F <- Forms, not is_on_load(F)].

is_transform({parse_transform, _}) -> true;
is_transform({core_transform, _}) -> true;
is_transform(O) -> lists:member(O, [warnings_as_errors, export_all]).

is_on_load({attribute, _, on_load, _}) -> true;
is_on_load(_) -> false.

-spec module([erl_parse:abstract_form()]) -> module().
module(Forms) ->
    hd([M || {attribute, _, module, M} <- Forms]).

%% @doc What specs say of arguments, as far as it matters here.
-spec specs([erl_parse:abstract_form()]) -> #{fa() => [atom()]}.
specs(Forms) ->
    maps:from_list([{{F, A}, kinds(Types, A)}
                    || {attribute, _, spec, {{F, A}, Types}} <- Forms]).

kinds([{type, _, 'fun', [{type, _, product, Args}, _]}], _) -> [kind(T) || T <- Args];
kinds([{type, _, bounded_fun, [{type, _, 'fun', [{type, _, product, Args}, _]}, _]}], _) ->
    [kind(T) || T <- Args];
kinds(_, A) -> lists:duplicate(A, term).

kind({ann_type, _, [_, T]}) -> kind(T);
kind({type, _, T, _}) when T =:= integer; T =:= non_neg_integer; T =:= pos_integer;
                           T =:= neg_integer; T =:= range; T =:= byte; T =:= char;
                           T =:= arity -> int;
kind({integer, _, _}) -> int;
kind({type, _, float, _}) -> float;
kind({type, _, binary, []}) -> bin;
kind(_) -> term.

%% @doc Functions that do not call themselves, on any way, and are short.
-spec small([erl_parse:abstract_form()]) -> [fa()].
small(Forms) ->
    Graph = graph(Forms),
    [{F, A} || {function, _, F, A, Clauses} <- Forms, weigh(Clauses) =< ?SMALL,
               not reaches({F, A}, {F, A}, Graph)].

weigh(T) when is_tuple(T) -> 1 + weigh(tuple_to_list(T));
weigh([H | T]) -> weigh(H) + weigh(T);
weigh(_) -> 0.

%% @doc The user's module: `Units' are the functions that are native, each with its number, and the
%% functions of its heads in order.
-spec user([erl_parse:abstract_form()],
           [{fa(), non_neg_integer(), [{fa(), [int | float | bin | term | lists]}]}], module(),
           binary()) ->
          [erl_parse:abstract_form()].
user(Forms, Units, Companion, Binary) ->
    Native = [FA || {FA, _, _} <- Units],
    Graph = graph(Forms),
    OnLoad = [F || {attribute, _, on_load, F} <- Forms],
    {Head, Rest} = lists:splitwith(fun(F) -> element(1, F) =:= attribute end,
                                   [F || F <- Forms, not is_on_load(F)]),
    {Body, Eof} = lists:partition(fun(F) -> element(1, F) =/= eof end, Rest),
    Anno = erl_anno:set_generated(true, erl_anno:new(0)),
    Module = module(Forms),
    Copied = [FA || {function, _, F, A, _} <- Body, FA <- [{F, A}], not lists:member(FA, Native),
                    lists:any(fun(N) -> circle(FA, N, Graph) end, Native)],
    Head ++ [{attribute, Anno, export, [{?COMPANION, 0}]},
             {attribute, Anno, on_load, {?LOAD, 0}}]
        %% What only a native function called has no caller but copies now.
        ++ [{attribute, Anno, compile, {nowarn_unused_function, Copied}} || Copied =/= []]
        ++ lists:append([form(F, Copied, Native, Graph, Units, Companion, Anno) || F <- Body])
        ++ [resume(U, Native ++ Copied, Companion, Anno) || U <- Units]
        ++ [rare(Units, Companion, Anno)] ++ join(Units, Anno)
        ++ frames(Module, Units, Copied, inner(Body, Native ++ Copied), Anno)
        ++ [known(Companion, Binary, Anno), on_load(OnLoad, Anno)]
        ++ Eof.

%% @doc A module of which nothing was taken: as it is, and able to say why.
-spec refused([erl_parse:abstract_form()], [{fa(), integer(), string()}]) ->
          [erl_parse:abstract_form()].
refused(Forms, Why) ->
    {Head, Rest} = lists:splitwith(fun(F) -> element(1, F) =:= attribute end, Forms),
    {Body, Eof} = lists:partition(fun(F) -> element(1, F) =/= eof end, Rest),
    Anno = erl_anno:set_generated(true, erl_anno:new(0)),
    Head ++ [{attribute, Anno, export, [{?COMPANION, 0}]} | Body] ++ [known(none, Why, Anno) | Eof].

form({function, _, F, A, Clauses} = Form, Copied, Native, Graph, Units, Companion, Anno) ->
    FA = {F, A},
    Definition = fun() ->
                     Same = [N || N <- Native ++ Copied, N =:= FA orelse circle(FA, N, Graph)],
                     {function, element(2, Form), beam(F), A, clauses(Clauses, Same)}
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

%% Whether each of two functions calls the other, on any way.
circle(A, B, Graph) -> reaches(A, B, Graph) andalso reaches(B, A, Graph).

beam(F) -> list_to_atom(atom_to_list(F) ++ "$beam").

resume_name({F, A}) -> list_to_atom(lists:concat([F, "/", A, "$resume"])).

%% Calls within a definition of itself, or of what leads back to it, do not try native code again:
%% it was left for a reason that would most likely hold for each of them, and to try costs more than
%% a call does. So a function that is not native, but calls a native one that calls it, has a copy:
%% a loop through the wrapper, whose `try' is no tail call, would grow the stack at each turn.
clauses(Clauses, Same) -> rename(Clauses, Same).

rename({call, L, {atom, L2, F}, Args}, Same) ->
    Name = case lists:member({F, length(Args)}, Same) of
               true -> beam(F);
               false -> F
           end,
    {call, L, {atom, L2, Name}, rename(Args, Same)};
rename(T, Same) when is_tuple(T) -> list_to_tuple(rename(tuple_to_list(T), Same));
rename([H | T], Same) -> [rename(H, Same) | rename(T, Same)];
rename(T, _) -> T.

%% Which local functions each function calls.
graph(Forms) ->
    maps:from_list([{{F, A}, lists:usort(calls(Clauses))}
                    || {function, _, F, A, Clauses} <- Forms]).

calls({call, _, {atom, _, F}, Args}) -> [{F, length(Args)} | calls(Args)];
calls(T) when is_tuple(T) -> calls(tuple_to_list(T));
calls([H | T]) -> calls(H) ++ calls(T);
calls(_) -> [].

%% @doc The functions of the module that clauses call, or make funs of.
-spec mentioned(term()) -> [fa()].
mentioned({'fun', _, {function, F, A}}) when is_atom(F) -> [{F, A}];
mentioned({call, _, {atom, _, F}, Args}) -> [{F, length(Args)} | mentioned(Args)];
mentioned(T) when is_tuple(T) -> mentioned(tuple_to_list(T));
mentioned([H | T]) -> mentioned(H) ++ mentioned(T);
mentioned(_) -> [].

reaches(From, To, Graph) -> reaches([From], To, Graph, #{}).

reaches([], _, _, _) -> false;
reaches([FA | Rest], To, Graph, Seen) ->
    Next = [N || N <- maps:get(FA, Graph, []), not is_map_key(N, Seen)],
    lists:member(To, Next)
        orelse reaches(Next ++ Rest, To, Graph, maps:merge(Seen, maps:from_keys(Next, true))).

wrapper({F, A} = FA, I, Companion, L) ->
    Vars = vars(A, L),
    {function, L, F, A,
     [{clause, L, Vars, [],
       [answer(remote(Companion, nif("n", I), Vars, L), FA,
               guarded({call, L, {atom, L, beam(F)}, Vars}, L), L)]}]}.

vars(A, L) -> [{var, L, list_to_atom("V" ++ integer_to_list(N))} || N <- lists:seq(1, A)].

nif(Prefix, I) -> list_to_atom(Prefix ++ integer_to_list(I)).

remote(M, F, Args, L) -> {call, L, {remote, L, {atom, L, M}, {atom, L, F}}, Args}.

%% What to do with the answer of native code.
answer(Call, FA, OnMarker, L) ->
    Marker = {atom, L, erlane_native_llvm:marker()},
    %% Names that are not bound yet where this is put.
    [W, As, R] = [{var, L, V} || V <- ['Where', 'Args', 'Result']],
    {'case', L, Call,
     [{clause, L, [Marker], [], [OnMarker]},
      {clause, L, [{tuple, L, [Marker, W, As]}], [],
       [{call, L, {atom, L, resume_name(FA)}, [W, As]}]},
      {clause, L, [R], [], [R]}]}.

%% An exception names the functions that the source has.
guarded(Call, L) ->
    [C, R, S] = [{var, L, V} || V <- ['Class', 'Reason', 'Stack']],
    {'try', L, [Call], [],
     [{clause, L, [{tuple, L, [C, R, S]}], [],
       [{call, L, {remote, L, {atom, L, erlang}, {atom, L, raise}},
         [C, R, {call, L, {atom, L, ?FRAMES}, [S]}]}]}], []}.

resume({FA, I, Heads}, Defined, Companion, L) ->
    [W, As, Kept, Rest] = [{var, L, V} || V <- ['W', 'As', 'Kept', 'Rest']],
    Join = fun(Value) -> {call, L, {atom, L, ?JOIN}, [Kept, Value]} end,
    Head = {op, L, '-', {integer, L, -1}, W},
    Again = {clause, L, [W, As], [[{op, L, '<', W, {integer, L, 0}}]],
             [answer(remote(Companion, nif("r", I), [{tuple, L, [Head, As]}], L), FA,
                     {call, L, {atom, L, resume_name(FA)}, [Head, As]}, L)]},
    {function, L, resume_name(FA), 2,
     [Again | [begin
                   Vars = vars(A, L),
                   Name = case lists:member({F, A}, Defined) of
                              true -> beam(F);
                              false -> F
                          end,
                   Call = guarded({call, L, {atom, L, Name}, Vars}, L),
                   case lists:member(lists, Kinds) of
                       false -> {clause, L, [{integer, L, N}, {tuple, L, Vars}],
                                 guards(Vars, Kinds, L), [Call]};
                       true -> {clause, L, [{integer, L, N}, {tuple, L, Vars ++ [Kept]}],
                                guards(Vars, lists:droplast(Kinds), L), [Join(Call)]}
                   end
               end || {N, {{F, A}, Kinds}} <- lists:zip(lists:seq(0, length(Heads) - 1), Heads)]
     ++ [{clause, L, [{atom, L, join}, {tuple, L, [Kept, Rest]}], [], [Join(Rest)]}
         || lists:any(fun({_, Kinds}) -> lists:member(lists, Kinds) end, Heads)]
     ++ [{clause, L, [W, As], [], [{call, L, {atom, L, ?RARE}, [W, {integer, L, I}, As]}]}]]}.

%% Puts lists in front of what follows them, the last one first.
join(Units, L) ->
    [K, Ks, Rest] = [{var, L, V} || V <- ['K', 'Ks', 'Rest']],
    [{function, L, ?JOIN, 2,
      [{clause, L, [{cons, L, K, Ks}, Rest], [],
        [{call, L, {atom, L, ?JOIN}, [Ks, {op, L, '++', K, Rest}]}]},
       {clause, L, [{nil, L}, Rest], [], [Rest]}]}
     || lists:any(fun({_, _, Heads}) ->
                      lists:any(fun({_, Kinds}) -> lists:member(lists, Kinds) end, Heads)
                  end, Units)].

%% What happens once in a while is one function for all, as the compiler takes its time for each.
rare(Units, Companion, L) ->
    Vs = [W, I, As] = [{var, L, V} || V <- ['W', 'I', 'As']],
    Fun = fun(Name, Arity) -> {'fun', L, {function, Name, Arity}} end,
    Funs = {'case', L, I,
            [{clause, L, [{integer, L, N}], [],
              [{tuple, L, [Fun(beam(F), A), Fun(resume_name(FA), 2)]}]}
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

%% Repairs a stack that has frames of definitions. An exception passes here once for each call
%% around it that was put there; after the first time nothing is left to be done.
frames(Module, Units, Copied, Inner, L) ->
    [H, T, F0] = [{var, L, V} || V <- ['H', 'T', 'F']],
    Any = {var, L, '_'},
    Raw = lists:usort([beam(F) || {F, _} <- Copied ++ [FA || {FA, _, _} <- Units]]
                      ++ [resume_name(FA) || {FA, _, _} <- Units]),
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
     repair(Module, Units, Copied, Inner, L)]
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
repair(Module, Units, Copied, Inner, L) ->
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
     ++ [{clause, L, [{cons, L, {tuple, L, [M, {atom, L, resume_name(FA)}, {integer, L, 2},
                                            {var, L, '_'}]}, T}], [], [Rest]}
         || {FA, _, _} <- Units]
     ++ [{clause, L, [{cons, L, {tuple, L, [N, F, {var, L, '_'}, {var, L, '_'}]}, T}], [], [Rest]}
         || {N, F} <- [{M, {atom, L, ?RARE}}, {{atom, L, erlane_native_verify}, {var, L, '_'}}]]
     ++ [{clause, L, [{cons, L, {tuple, L, [M, F0, A, I]}, T}], [],
          [{cons, L, {tuple, L, [M, {call, L, {atom, L, ?INNER}, [F0]}, A, I]}, Rest}]}
         || Inner =/= []]
     ++ [{clause, L, [{cons, L, H, T}], [], [{cons, L, H, Rest}]},
         {clause, L, [{nil, L}], [], [{nil, L}]}]}.

%% What the module says of itself: its companion and the code of that, or why there is none.
known(Companion, What, L) ->
    {function, L, ?COMPANION, 0,
     [{clause, L, [], [], [erl_parse:abstract({Companion, What}, [{location, 0}])]}]}.

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

parse(Text) ->
    {ok, Tokens, _} = erl_scan:string(lists:flatten(Text)),
    {ok, [Expr]} = erl_parse:parse_exprs(Tokens),
    Expr.

%% @doc The companion's object code. Its functions ask for machine code and answer that BEAM has to
%% run, until they are replaced by it.
-spec companion(module(), map()) -> binary().
companion(Name, #{units := Units} = Info) ->
    L = erl_anno:new(1),
    Marker = {atom, L, erlane_native_llvm:marker()},
    Any = fun(A) -> lists:duplicate(A, {var, L, '_'}) end,
    Nifs = lists:append([[{nif("n", I), A}, {nif("r", I), 1}] || {{_, A}, I, _} <- Units])
        ++ [{counts, 0}, {meter, 2}],
    Stub = fun({N, A}) when N =:= counts; N =:= meter ->
                   {function, L, N, A, [{clause, L, Any(A), [], [{tuple, L, []}]}]};
              ({F, A}) ->
                   {function, L, F, A,
                    [{clause, L, Any(A), [], [{call, L, {atom, L, want}, []}, Marker]}]}
           end,
    Forms = [{attribute, L, module, Name},
             {attribute, L, export, Nifs ++ [{load, 1}, {info, 0}]},
             {attribute, L, nifs, Nifs}]
        ++ [Stub(N) || N <- Nifs]
        ++ [{function, L, load, 1,
             [{clause, L, [{var, L, 'P'}], [],
               [remote(erlang, load_nif, [{var, L, 'P'}, {integer, L, 0}], L)]}]},
            {function, L, info, 0,
             [{clause, L, [], [], [erl_parse:abstract(Info, [{location, 1}])]}]},
            %% On a host without this application all stays on BEAM. To look for a module that is
            %% not there goes through the code server and the whole path: not at each call.
            {function, L, want, 0,
             [{clause, L, [], [],
               [erl_parse:map_anno(fun(_) -> L end,
                                   parse("erlang:function_exported(erlane_native_load, want, 1)"
                                         " andalso erlane_native_load:want("
                                         ++ io_lib:format("~tw", [Name]) ++ ")."))]}]}],
    {ok, Name, Binary} = compile:forms(Forms, [binary, deterministic, nowarn_unused_vars]),
    Binary.
