%% SPDX-License-Identifier: Apache-2.0
%% @doc Chosen functions as machine code.
%%
%% ```
%% -compile({parse_transform, erlane_native}).
%% -native([f/1, {g, 2, [strict]}]).
%% '''
%%
%% The BEAM version of a function is its definition. Machine code gives the same value or hands the
%% call back; it never raises. What cannot be translated stays as it is, with a warning that says
%% why; `strict' makes an error of that. What only moves elements of lists, which BEAM does as fast,
%% stays too, but for `always'. {@link load/1} does it to a module that is loaded already.
%%
%% The transform has to be the last one: a later one would change the BEAM version alone. With
%% `no_native' among the compiler's options, or `ERLANE_NATIVE=0' in its environment, it does
%% nothing; with the latter at run time nothing is loaded.
%%
%% `verify' among the options of a function, `ERLANE_NATIVE_VERIFY=1' at run time and
%% {@link verify/2} have each call done both ways and compared.
%%
%% Options that tests need: `{deopt, K}' hands back at every K-th turn of a loop, `yield' gives way
%% at each, `keep' leaves a function native however often it hands back. `ERLANE_NATIVE_TEST' in
%% the environment of the compiler does so for all functions: `yield', `deopt=K', `keep', `always',
%% with a comma between.
-module(erlane_native).

-export([parse_transform/2, parse_transform_info/0, format_error/1]).
-export([load/1, load/2, restore/1, survey/1, explain/1, build/1, build/2]).
-export([info/1, ensure/1, off/1, on/1, measure/2, verify/2, ir/1, asm/1]).

-define(NOTHING, "no function was taken").

-type why() :: {erlane_native_ssa:fa(), Line :: integer(), string()}.
-type parse_transform_info() :: #{error_location => column | line}.

%% @doc Warnings have columns.
-spec parse_transform_info() -> parse_transform_info().
parse_transform_info() -> #{error_location => column}.

%% @doc What the compiler calls.
-spec parse_transform([erl_parse:abstract_form()], [compile:option()]) ->
          [erl_parse:abstract_form()]
              | {warning, [erl_parse:abstract_form()], list()}
              | {error, list(), list()}.
parse_transform(Forms, Options) ->
    Off = lists:member(no_native, Options) orelse os:getenv("ERLANE_NATIVE") =:= "0",
    try erlane_native_forms:natives(Forms) of
        [_ | _] = Natives when not Off ->
            case erlane_native_translate:ssa(Forms, Options) of
                {ok, Ssa} -> transform(Forms, Natives, Ssa);
                error -> Forms
            end;
        _ -> Forms
    catch
        throw:{attribute, Line, Why} ->
            {error, [{file(Forms), [{Line, ?MODULE, {attribute, Why}}]}], []}
    end.

transform(Forms, Natives, Ssa) ->
    {Units, Cannot} = erlane_native_translate:named(Natives, Ssa, Forms),
    #{taken := Taken, refused := Refused, columns := Columns} = Result =
        erlane_native_translate:text(Forms, Units, Cannot, Natives),
    {Errors, Warnings} =
        lists:partition(fun({FA, _, _}) ->
                            [Os | _] = [O || {N, O, _} <- Natives, N =:= FA],
                            lists:member(strict, Os)
                        end, Refused),
    Messages = fun(List) ->
                   [{file(Forms), lists:sort([{erlane_native_columns:location(L, W, Columns),
                                               ?MODULE, M} || {_, L, W} = M <- List])}
                    || List =/= []]
               end,
    case {Errors, Taken} of
        {[_ | _], _} -> {error, Messages(Errors), Messages(Warnings)};
        {[], []} ->
            {warning, erlane_native_user:refused(Forms, Refused), Messages(Warnings)};
        {[], _} ->
            {New, _} = erlane_native_translate:module(Forms, Result),
            {warning, New, Messages(Warnings)}
    end.

file(Forms) ->
    hd([F || {attribute, _, file, {F, _}} <- Forms] ++ ["nofile"]).

%% @doc The text of a warning or an error.
-spec format_error({attribute, iolist()} | why()) -> iolist().
format_error({attribute, Why}) -> ["-native: ", Why];
format_error({{F, A}, _, Why}) ->
    Remedy = erlane_native_words:remedy(Why),
    [io_lib:format("~tp/~b stays on BEAM: ~ts", [F, A, Why]), [["; ", Remedy] || Remedy =/= none]].

%% @doc Makes loaded modules native, each by itself: see {@link load/2}.
-spec load(module() | [module()]) ->
          erlane_native_swap:result() | [{module(), erlane_native_swap:result()}].
load(Module) when is_atom(Module) -> load(Module, []);
load(Modules) when is_list(Modules) -> [{M, load(M, [])} || M <- Modules].

%% @doc Makes a module native that is loaded, or can be, from its debug information: all functions
%% that the translator takes and that are likely to gain by it. The report has the functions that
%% were taken and those that were not, with line and reason.
%%
%% Refused, and the module as it was: no debug information, NIFs, `-on_load', preloaded, compiled
%% for cover, a file that is not what is loaded, processes that run in old code, a host that makes
%% no machine code. A module in a sticky directory needs the option `sticky'. `{functions, [f/1]}'
%% chooses functions, which then are taken whether it is likely to pay or not.
-spec load(module(), [sticky | {functions, [erlane_native_ssa:fa()]}]) ->
          erlane_native_swap:result().
load(Module, Options) when is_atom(Module), is_list(Options) ->
    erlane_native_swap:load(Module, Options).

%% @doc Puts back what {@link load/2} replaced. Fails as long as processes run in code older than
%% what is loaded, and when the module was loaded anew since.
-spec restore(module()) -> ok | {error, Why :: string()}.
restore(Module) when is_atom(Module) -> erlane_native_swap:restore(Module).

%% @doc What {@link load/1} would do to the modules of an application, of a directory or of a list,
%% without doing it.
-spec survey(atom() | file:filename() | [module()]) ->
          [{module(), {ok, erlane_native_swap:report()} | {error, string()}}].
survey(What) -> erlane_native_swap:survey(What).

%% @doc How each function of a source file or a module runs, line by line: see
%% {@link erlane_native_explain}.
-spec explain(file:filename() | module()) -> {ok, erlane_native_explain:explanation()}
              | {error, string()}.
explain(What) -> erlane_native_explain:explain(What).

%% @doc Makes the machine code of all modules of a directory of object code now, into `priv/native'
%% beside it, where it is found when they are loaded: see {@link erlane_native_ship}.
-spec build(file:filename()) -> {ok, [erlane_native_ship:made()]} | {error, string()}.
build(Ebin) -> erlane_native_ship:build(Ebin).

%% @doc The same, into a directory of one's choice.
-spec build(file:filename(), file:filename()) ->
          {ok, [erlane_native_ship:made()]} | {error, string()}.
build(Ebin, To) -> erlane_native_ship:build(Ebin, To).

%% @doc What runs how: `state' is `native', `pending' (being compiled), `none' (not yet called) or
%% `{beam, Why}'; `functions' are those that were taken, `refused' those that were not, with line
%% and reason; `yields' and `deopts' count since it was loaded, the latter by function, line and
%% reason. `off' are functions that handed back too many calls and were put back to BEAM, with the
%% reason; `measured' has calls and nanoseconds while {@link measure/2} is on; `differences' what
%% was found by {@link verify/2}.
-spec info(module()) -> {ok, map()} | {error, not_native}.
info(Module) ->
    case companion(Module) of
        {ok, Companion, _} -> {ok, erlane_native_state:info(Companion)};
        {none, Refused} ->
            {ok, #{state => {beam, ?NOTHING}, functions => [], refused => Refused, yields => 0,
                   deopts => [], off => [], measured => [], differences => []}};
        error -> {error, not_native}
    end.

%% @doc Loads the machine code of a module now, in the caller's time; a first call does so in the
%% background.
-spec ensure(module()) -> native | {beam, iolist()} | {error, not_native}.
ensure(Module) ->
    case companion(Module) of
        {ok, Companion, _} -> erlane_native_load:ensure(Companion);
        {none, _} -> {beam, ?NOTHING};
        error -> {error, not_native}
    end.

%% @doc Puts a module back to BEAM.
-spec off(module()) -> ok | {error, term()}.
off(Module) ->
    case companion(Module) of
        {ok, Companion, Binary} -> erlane_native_load:off(Companion, Binary);
        {none, _} -> ok;
        error -> {error, not_native}
    end.

%% @doc Undoes {@link off/1}, and gives functions another chance that were put back to BEAM because
%% they handed back too many calls.
-spec on(module()) -> native | {beam, iolist()} | {error, not_native}.
on(Module) ->
    case ensure(Module) of
        native ->
            {ok, Companion, _} = companion(Module),
            erlane_native_state:fresh(Companion),
            native;
        Other -> Other
    end.

%% @doc Counts calls and their time, for {@link info/1}, from now on, or no longer. While on, each
%% call reads the clock twice, and all schedulers write to one cache line; off, it is one test.
-spec measure(module(), on | off) -> ok | {error, not_native}.
measure(Module, Switch) -> switch(Module, measure, Switch).

%% @doc Has each call done both ways, or no longer. The answer is BEAM's; where machine code has
%% another, the log says so once for each function, with the kinds and sizes of the arguments.
-spec verify(module(), on | off) -> ok | {error, not_native}.
verify(Module, Switch) -> switch(Module, verify, Switch).

switch(Module, What, Switch) when Switch =:= on; Switch =:= off ->
    case companion(Module) of
        {ok, Companion, _} ->
            case erlane_native_load:state(Companion) of
                native -> erlane_native_state:switch(Companion, What, Switch);
                _ -> {error, not_native}
            end;
        _ -> {error, not_native}
    end.

%% @doc The LLVM text of a module.
-spec ir(module()) -> {ok, binary()} | {error, not_native}.
ir(Module) ->
    case companion(Module) of
        {ok, Companion, _} -> {ok, zlib:uncompress(maps:get(text, Companion:info()))};
        _ -> {error, not_native}
    end.

%% @doc The assembler text of a module, as clang makes it on this host.
-spec asm(module()) -> {ok, binary()} | {error, iolist() | not_native}.
asm(Module) ->
    case ir(Module) of
        {ok, Text} -> erlane_native_clang:assembler(Text);
        Error -> Error
    end.

companion(Module) ->
    try Module:'\ncompanion'() of
        {none, Refused} -> {none, Refused};
        {Companion, Binary} -> {ok, Companion, Binary}
    catch
        error:undef -> error
    end.
