%% SPDX-License-Identifier: Apache-2.0
%% @doc What the forms of a module say: its attributes, its specs, who calls whom; and small pieces
%% of forms. Pure.
-module(erlane_native_forms).

-export([natives/1, strip/1, exports_all/1, plain/1, is_on_load/1, module/1, specs/1, small/1,
         graph/1, circle/3, mentioned/1, remote/4, parse/1, abstract/2]).

-type fa() :: {atom(), arity()}.
-type graph() :: #{fa() => [fa()]}.

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
strip(Forms) -> without(Forms, []).

%% @doc Does the module export all its functions by an option in its text?
-spec exports_all([erl_parse:abstract_form()]) -> boolean().
exports_all(Forms) ->
    lists:any(fun({attribute, _, compile, Options}) -> lists:member(export_all, list(Options));
                 (_) -> false
              end, Forms).

%% @doc The forms of a module that was transformed already, to be compiled again: without what would
%% do that once more, or run at load.
-spec plain([erl_parse:abstract_form()]) -> [erl_parse:abstract_form()].
plain(Forms) -> without(Forms, [export_all]).

without(Forms, Kept) ->
    [case F of
         {attribute, A, compile, Options} ->
             {attribute, A, compile, [O || O <- list(Options),
                                           lists:member(O, Kept) orelse not is_transform(O)]};
         _ -> F
     end || F <- Forms, not is_on_load(F)].

is_transform({parse_transform, _}) -> true;
is_transform({core_transform, _}) -> true;
is_transform(O) -> lists:member(O, [warnings_as_errors, export_all]).

%% @doc Is this the attribute that names what runs at load?
-spec is_on_load(erl_parse:abstract_form()) -> boolean().
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

%% @doc Which local functions each function calls.
-spec graph([erl_parse:abstract_form()]) -> graph().
graph(Forms) ->
    maps:from_list([{{F, A}, lists:usort(calls(Clauses))}
                    || {function, _, F, A, Clauses} <- Forms]).

calls({call, _, {atom, _, F}, Args}) -> [{F, length(Args)} | calls(Args)];
calls(T) when is_tuple(T) -> calls(tuple_to_list(T));
calls([H | T]) -> calls(H) ++ calls(T);
calls(_) -> [].

%% @doc Whether each of two functions calls the other, on any way.
-spec circle(fa(), fa(), graph()) -> boolean().
circle(A, B, Graph) -> reaches(A, B, Graph) andalso reaches(B, A, Graph).

reaches(From, To, Graph) ->
    erlane_native_graph:reaches(From, To, fun(FA) -> maps:get(FA, Graph, []) end).

%% @doc The functions of the module that clauses call, or make funs of.
-spec mentioned(term()) -> [fa()].
mentioned({'fun', _, {function, F, A}}) when is_atom(F) -> [{F, A}];
mentioned({call, _, {atom, _, F}, Args}) -> [{F, length(Args)} | mentioned(Args)];
mentioned(T) when is_tuple(T) -> mentioned(tuple_to_list(T));
mentioned([H | T]) -> mentioned(H) ++ mentioned(T);
mentioned(_) -> [].

%% @doc A call of a function of another module.
-spec remote(module(), atom(), [erl_parse:abstract_expr()], erl_anno:anno()) ->
          erl_parse:abstract_expr().
remote(M, F, Args, L) -> {call, L, {remote, L, {atom, L, M}, {atom, L, F}}, Args}.

%% @doc The expression of a text.
-spec parse(iodata()) -> erl_parse:abstract_expr().
parse(Text) ->
    {ok, Tokens, _} = erl_scan:string(lists:flatten(Text)),
    {ok, [Expr]} = erl_parse:parse_exprs(Tokens),
    Expr.

%% @doc The expression whose value is a term. A binary is one string in it and not a field for each
%% byte, which would keep the compiler busy.
-spec abstract(term(), erl_anno:anno()) -> erl_parse:abstract_expr().
abstract(B, L) when is_binary(B) ->
    {bin, L, [{bin_element, L, {string, L, binary_to_list(B)}, default, default}]};
abstract(T, L) when is_tuple(T) ->
    {tuple, L, [abstract(E, L) || E <- tuple_to_list(T)]};
abstract(M, L) when is_map(M) ->
    {map, L, [{map_field_assoc, L, abstract(K, L), abstract(V, L)} || {K, V} <- maps:to_list(M)]};
abstract(T, L) -> erl_parse:abstract(T, [{location, erl_anno:location(L)}]).
