%% SPDX-License-Identifier: Apache-2.0
%% Modules made into one do what they did.
-module(erlane_prof_merge_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([same_names/1, records/1, module_not_named/1, funs/1, only_first_is_exported/1]).

all() -> [same_names, records, module_not_named, funs, only_first_is_exported].

-define(FIRST, "-module(first). -export([run/1, same/1]). ").
-define(OTHER, "-module(other). -export([run/1, same/1, twice/1]). ").

%% A function is that of its module, whoever calls it and however.
same_names(_Config) ->
    Run = merged([?FIRST "run(X) -> {same(X), first:same(X), other:same(X), other:twice(X)}. "
                  "same(X) -> {first, X}.",
                  ?OTHER "run(_) -> no. same(X) -> {other, X}. "
                  "twice(X) -> [same(X), first:same(X), lists:reverse([X, own(X)])]. "
                  "own(X) -> X + 1."]),
    ?assertEqual({{first, 1}, {first, 1}, {other, 1}, [{other, 1}, {first, 1}, [2, 1]]}, Run(1)).

%% Of the same name and different fields.
records(_Config) ->
    Run = merged([?FIRST "-record(r, {a = 1, b}). "
                  "run(X) -> R = #r{b = X}, R1 = R#r{a = 2}, {R1#r.a, R1#r.b, same(R1)}. "
                  "same(#r{b = B}) -> other:same(B).",
                  ?OTHER "-record(r, {b}). run(_) -> no. twice(_) -> no. "
                  "same(B) -> (#r{b = B})#r.b."]),
    ?assertEqual({2, x, x}, Run(x)).

%% A module that is a value may be one of these, or another one.
module_not_named(_Config) ->
    Run = merged([?FIRST "run(Ms) -> [{M:same([a, b]), (other:twice(M)):same([])} || M <- Ms]. "
                  "same(X) -> {first, X}.",
                  ?OTHER "run(_) -> no. same(X) -> {other, X}. twice(X) -> X."]),
    ?assertEqual([{{first, [a, b]}, {first, []}}, {{other, [a, b]}, {other, []}}],
                 Run([first, other])),
    ?assertError(undef, Run([lists])),
    Other = merged([?FIRST "run(M) -> M:reverse([a, b]). same(_) -> no.",
                    ?OTHER "run(_) -> no. same(_) -> no. twice(_) -> no. -export([reverse/1]). "
                    "reverse(_) -> ours."]),
    ?assertEqual([ours, [b, a]], [Other(M) || M <- [other, lists]]).

funs(_Config) ->
    Run = merged([?FIRST "run({M, X}) -> [F(X) || F <- [fun same/1, fun other:same/1, "
                  "fun M:same/1, fun lists:reverse/1, fun(Y) -> [same(Y)] end]]. "
                  "same(X) -> {first, X}.",
                  ?OTHER "run(_) -> no. same(X) -> {other, X}. twice(_) -> no."]),
    ?assertEqual([{first, [1, 2]}, {other, [1, 2]}, {other, [1, 2]}, [2, 1], [{first, [1, 2]}]],
                 Run({other, [1, 2]})).

only_first_is_exported(_Config) ->
    _ = merged([?FIRST "run(_) -> other:twice(1). same(_) -> no.",
                ?OTHER "run(_) -> no. same(_) -> no. twice(_) -> no."]),
    ?assertEqual([{module_info, 0}, {module_info, 1}, {run, 1}, {same, 1}],
                 lists:sort(merged:module_info(exports))).

%%% Helpers

%% The function run/1 of the first, after both were made into one.
merged(Texts) ->
    Sources = [begin
                   Forms = forms(Text),
                   [Module] = [M || {attribute, _, module, M} <- Forms],
                   {Module, Forms}
               end || Text <- Texts],
    {ok, merged, Beam} = compile:forms(erlane_prof_merge:forms(merged, Sources)),
    {module, merged} = code:load_binary(merged, "merged", Beam),
    _ = code:purge(merged),
    fun merged:run/1.

forms(Text) ->
    {ok, Tokens, _} = erl_scan:string(Text),
    forms(Tokens, []).

forms(Tokens, Forms) ->
    case lists:splitwith(fun(T) -> element(1, T) =/= dot end, Tokens) of
        {[], []} -> lists:reverse(Forms);
        {Form, [Dot | Rest]} ->
            {ok, Parsed} = erl_parse:parse_form(Form ++ [Dot]),
            forms(Rest, [Parsed | Forms])
    end.
