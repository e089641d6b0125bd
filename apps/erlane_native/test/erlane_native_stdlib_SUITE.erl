%% SPDX-License-Identifier: Apache-2.0
%% All functions of the modules of stdlib through the translator: each is taken, or refused with a
%% reason; none makes it fail. No machine code is made of it.
%%
%% With ERLANE_LONG all modules, otherwise those whose turn it is: an eighth of them and those that
%% showed something once.
-module(erlane_native_stdlib_SUITE).

-export([suite/0, all/0, all_functions/1]).

-include_lib("stdlib/include/assert.hrl").

-define(ALWAYS, ["base64", "lists", "rand", "queue", "string", "unicode", "zip"]).

suite() -> [{timetrap, {minutes, 30}}].

all() -> [all_functions].

all_functions(_) ->
    Results = [{File, translated(File)} || File <- files()],
    Reports = [R || {_, R} <- Results, is_map(R)],
    Taken = lists:sum([N || #{taken := N} <- Reports]),
    Refused = lists:append([Whys || #{refused := Whys} <- Reports]),
    ct:pal("~b modules: ~b functions taken, ~b refused~n~p",
           [length(Reports), Taken, length(Refused), counted([lists:flatten(W) || W <- Refused])]),
    ?assertEqual([], [Failed || {_, R} = Failed <- Results, not is_map(R)]),
    ?assert(Taken > 0),
    ?assert(lists:all(fun(Why) -> string:length(Why) > 0 end, Refused)).

files() ->
    Dir = filename:join(code:lib_dir(stdlib), "ebin"),
    Files = lists:sort(filelib:wildcard(filename:join(Dir, "*.beam"))),
    case os:getenv("ERLANE_LONG") of
        false ->
            [F || {I, F} <- lists:zip(lists:seq(1, length(Files)), Files),
                  I rem 8 =:= 0 orelse lists:member(filename:basename(F, ".beam"), ?ALWAYS)];
        _ -> Files
    end.

%% What came of a module, or how it failed.
translated(File) ->
    case beam_lib:chunks(File, [abstract_code]) of
        {ok, {_, [{abstract_code, {raw_abstract_v1, Forms}}]}} ->
            Functions = [{F, A} || {function, _, F, A, _} <- Forms],
            try erlane_native:parse_transform(with(Functions, Forms), []) of
                {warning, _, Warnings} -> report(Functions, Warnings);
                Same when is_list(Same) -> report(Functions, []);
                Other -> {answers, Other}
            catch
                Class:Reason:Stack -> {Class, Reason, lists:sublist(Stack, 3)}
            end;
        _ -> report([], [])
    end.

report(Functions, Warnings) ->
    Refused = [Why || {_, List} <- Warnings, {_, erlane_native, {{_, _}, _, Why}} <- List],
    #{taken => length(Functions) - length(Refused), refused => Refused}.

%% The attribute goes after the module's name.
with([], Forms) -> Forms;
with(Functions, Forms) ->
    {Before, [Module | Rest]} =
        lists:splitwith(fun(F) -> not (is_tuple(F) andalso element(1, F) =:= attribute
                                       andalso element(3, F) =:= module) end, Forms),
    Before ++ [Module, {attribute, 1, native, Functions} | Rest].

%% The most frequent reasons.
counted(Reasons) ->
    Counts = lists:foldl(fun(Why, Acc) -> maps:update_with(Why, fun(N) -> N + 1 end, 1, Acc) end,
                         #{}, Reasons),
    lists:sublist(lists:reverse(lists:keysort(2, maps:to_list(Counts))), 30).
