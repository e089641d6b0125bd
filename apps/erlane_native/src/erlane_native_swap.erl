%% SPDX-License-Identifier: Apache-2.0
%% @doc Makes loaded modules native and puts them back: what `erlane_native:load/2', `restore/1' and
%% `survey/1' do.
-module(erlane_native_swap).

-export([load/2, restore/1, survey/1, choose/2]).

-export_type([report/0, result/0]).

-type report() :: #{module := module(), taken := [erlane_native_ssa:fa()],
                    refused := [erlane_native_translate:refusal()]}.
%% Functions that only functions call that were taken are compiled with those, and in neither list.
-type result() :: {ok, report()} | {error, Why :: string()}.

%% @doc See {@link erlane_native:load/2}.
-spec load(module(), list()) -> result().
load(Module, Options) ->
    case {options(Options), erlane_native_load:swapped(Module)} of
        {_, {ok, _}} -> {error, "it is native already"};
        {{ok, #{sticky := Sticky} = Chosen}, error} ->
            case erlane_native_source:loaded(Module, Sticky) of
                {ok, Source} -> replace(Source, Chosen);
                Error -> Error
            end
    end.

options(Options) ->
    lists:foldl(fun(sticky, {ok, O}) -> {ok, O#{sticky := true}};
                   ({functions, [_ | _] = Fs}, {ok, O}) -> {ok, O#{functions := Fs}};
                   (Other, _) -> error(badarg, [Other])
                end, {ok, #{sticky => false, functions => all}}, Options).

replace(#{module := Module, forms := Forms} = Source,
        #{functions := Functions, sticky := Sticky}) ->
    case chosen(Source, Functions) of
        {error, _} = Error -> Error;
        {ok, [], Refused} -> {ok, #{module => Module, taken => [], refused => Refused}};
        {ok, Units, Refused0} ->
            #{name := Companion, taken := Taken, refused := Refused} = Result =
                erlane_native_translate:text(Forms, Units, Refused0, []),
            Report = #{module => Module, taken => [FA || {FA, _, _} <- Taken], refused => Refused},
            {New, Code} = erlane_native_translate:module(Forms, Result),
            case Taken =/= [] andalso compiled(New, Source) of
                false -> {ok, Report};
                {ok, Binary} ->
                    Swap = (maps:with([module, file], Source))#{
                             old => maps:get(binary, Source), new => Binary, code => Code,
                             companion => Companion, sticky => Sticky},
                    case erlane_native_load:swap(Swap) of
                        ok -> {ok, Report};
                        Error -> Error
                    end;
                Error -> Error
            end
    end.

%% The companion is loaded before the module is, so nothing is left for an `-on_load', during which
%% a module like lists could not be called.
compiled(Forms, #{options := Options}) ->
    case compile:forms(erlane_native_forms:plain(Forms), [binary, return_errors | Options]) of
        {ok, _, Binary} -> {ok, Binary};
        {error, Errors, _} ->
            {error, lists:flatten(io_lib:format("it does not compile again: ~0tP", [Errors, 12]))}
    end.

chosen(#{forms := Forms, options := Options}, Functions) ->
    case erlane_native_translate:ssa(Forms, Options) of
        error -> {error, "it does not compile again"};
        {ok, Ssa} when Functions =:= all -> choose(Forms, Ssa);
        {ok, Ssa} ->
            {Units, Refused} = erlane_native_translate:units(Functions, Ssa, Forms),
            {ok, Units, Refused}
    end.

%% @doc The units of a module that are likely to pay, and why the other functions are not. What is
%% only called by functions that are native needs no way in of its own; nor do small functions,
%% which the compiler has put into those that call them.
-spec choose([erl_parse:abstract_form()], map()) ->
          {ok, [{erlane_native_ssa:fa(), erlane_native_ir:unit()}],
           [erlane_native_translate:refusal()]}.
choose(Forms, Ssa) ->
    Functions = [{F, A} || {function, _, F, A, _} <- Forms, is_map_key({F, A}, Ssa)],
    {Units, Cannot} = erlane_native_translate:units(Functions, Ssa, Forms),
    Verdicts = [{FA, U, erlane_native_pays:verdict(U)} || {FA, U} <- Units],
    Good = [{FA, U} || {FA, U, pays} <- Verdicts],
    Does = [FA || {FA, _} <- Good],
    Exports = lists:append([Es || {attribute, _, export, Es} <- Forms]),
    All = erlane_native_forms:exports_all(Forms),
    Outside = [Called || {function, _, F, A, Cs} <- Forms, not lists:member({F, A}, Does),
                         Called <- erlane_native_forms:mentioned(Cs)],
    In = [E || {FA, _} = E <- Good, All orelse lists:member(FA, Exports)
                                        orelse lists:member(FA, Outside)],
    {ok, In, Cannot ++ [{FA, Line, Why} || {FA, _, {no, Line, Why}} <- Verdicts]}.

%% @doc See {@link erlane_native:restore/1}.
-spec restore(module()) -> ok | {error, string()}.
restore(Module) -> erlane_native_load:back(Module).

%% @doc See {@link erlane_native:survey/1}.
-spec survey(atom() | file:filename() | [module()]) -> [{module(), result()}].
survey(App) when is_atom(App) ->
    case code:lib_dir(App) of
        {error, bad_name} -> error(badarg, [App]);
        Dir -> survey(filename:join(Dir, "ebin"))
    end;
survey([M | _] = Modules) when is_atom(M) ->
    [{Module, case code:which(Module) of
                  [_ | _] = File -> surveyed(File);
                  preloaded -> {error, "it is part of the VM itself (preloaded)"};
                  _ -> {error, "its object code is in no file"}
              end} || Module <- Modules];
survey([]) ->
    [];
survey(Dir) ->
    [{list_to_atom(filename:basename(File, ".beam")), surveyed(File)}
     || File <- lists:sort(filelib:wildcard(filename:join(Dir, "*.beam")))].

surveyed(File) ->
    case erlane_native_source:object(File) of
        {ok, #{module := Module, forms := Forms} = Source} ->
            case chosen(Source, all) of
                {ok, Units, Refused0} ->
                    #{taken := Taken, refused := Refused} =
                        erlane_native_translate:text(Forms, Units, Refused0, []),
                    {ok, #{module => Module, taken => [FA || {FA, _, _} <- Taken],
                           refused => Refused}};
                Error -> Error
            end;
        Error -> Error
    end.
