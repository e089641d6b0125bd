%% SPDX-License-Identifier: Apache-2.0
%% @doc The companion: a module of its own, because a module that loads NIFs loses the types that
%% the compiler found for it. Pure but for the compiler it calls.
%%
%% Its name ends in the hash of what it was made from, so old user code meets its own companion
%% after an upgrade. Its object code is a literal in the user's module, whose `-on_load' makes it
%% known: one file holds all, wherever it is copied, and a compile to memory works as any other.
-module(erlane_native_companion).

-export([code/2, nif/5]).

-import(erlane_native_forms, [remote/4, parse/1, abstract/2]).

%% @doc The companion's object code. Its functions ask for machine code and answer that BEAM has to
%% run, until they are replaced by it.
-spec code(module(), map()) -> binary().
code(Name, #{units := Units} = Info) ->
    L = erl_anno:new(1),
    Marker = {atom, L, erlane_native_llvm:marker()},
    Any = fun(A) -> lists:duplicate(A, {var, L, '_'}) end,
    Nifs = lists:append([[{name("n", I), A}, {name("r", I), 1}] || {{_, A}, I, _} <- Units])
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
             [{clause, L, [], [], [abstract(Info, L)]}]},
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

%% @doc A call of the NIF of a unit: "n" from outside, "r" to go on.
-spec nif(module(), string(), non_neg_integer(), [erl_parse:abstract_expr()],
          erl_anno:anno()) -> erl_parse:abstract_expr().
nif(Companion, Prefix, I, Args, L) -> remote(Companion, name(Prefix, I), Args, L).

name(Prefix, I) -> list_to_atom(Prefix ++ integer_to_list(I)).
