%% SPDX-License-Identifier: Apache-2.0
%% @doc Forms and options of a module, from its object code or its source.
-module(erlane_native_source).

-export([loaded/2, object/1, file/1, options/1]).

-export_type([source/0]).

-type source() :: #{module := module(), file := file:filename(), binary := binary(),
                    forms := [erl_parse:abstract_form()], options := [compile:option()]}.

%% @doc Of a module that is loaded, or can be, and may be replaced; why not otherwise.
-spec loaded(module(), boolean()) -> {ok, source()} | {error, string()}.
loaded(Module, Sticky) ->
    case code:ensure_loaded(Module) of
        {module, Module} -> loaded(Module, code:which(Module), Sticky);
        {error, nofile} -> {error, "there is no such module"};
        {error, Why} -> {error, lists:flatten(io_lib:format("it does not load: ~tp", [Why]))}
    end.

loaded(_, preloaded, _) ->
    {error, "it is part of the VM itself (preloaded)"};
loaded(_, cover_compiled, _) ->
    {error, "it is compiled for cover"};
loaded(_, File, _) when not is_list(File); File =:= "" ->
    {error, "its object code is in no file"};
loaded(Module, File, Sticky) ->
    case code:is_sticky(Module) andalso not Sticky of
        true -> {error, "it is in a sticky directory, which needs the option sticky"};
        false ->
            case object(File) of
                {ok, #{binary := Binary} = Source} ->
                    case {beam_lib:md5(Binary), erlang:check_old_code(Module)
                                                    andalso not code:soft_purge(Module)} of
                        {_, true} -> {error, "processes run in old code of it"};
                        {{ok, {_, MD5}}, false} ->
                            case Module:module_info(md5) of
                                MD5 -> {ok, Source};
                                _ -> {error, "what is loaded is not what is in " ++ File}
                            end
                    end;
                Error -> Error
            end
    end.

%% @doc Of a file with object code; an error also when its functions cannot be native.
-spec object(file:filename()) -> {ok, source()} | {error, string()}.
object(File) ->
    case erl_prim_loader:get_file(filename:absname(File)) of
        {ok, Binary, _} -> chunks(File, Binary);
        error -> {error, "cannot read " ++ File}
    end.

chunks(File, Binary) ->
    case beam_lib:chunks(Binary, [abstract_code, compile_info]) of
        {ok, {Module, [{abstract_code, {raw_abstract_v1, Forms}}, {compile_info, Info}]}} ->
            case unfit(Forms) of
                false ->
                    {ok, #{module => Module, file => File, binary => Binary, forms => Forms,
                           options => options(proplists:get_value(options, Info, []))}};
                Why -> {error, Why}
            end;
        {ok, {_, [{abstract_code, _}, _]}} ->
            {error, "it has no debug information (compile it with debug_info)"};
        {error, beam_lib, {key_missing_or_invalid, _, _}} ->
            {error, "its debug information is encrypted, and the key is not known"};
        {error, beam_lib, Why} ->
            {error, lists:flatten(beam_lib:format_error(Why))}
    end.

%% What cannot be replaced by a version of its own forms.
unfit(Forms) ->
    Has = fun(Name) -> lists:any(fun({attribute, _, N, _}) -> N =:= Name;
                                    (_) -> false
                                 end, Forms)
          end,
    case {Has(native), Has(nifs) orelse calls_load_nif(Forms), Has(on_load)} of
        {true, _, _} -> "its source says already what is to be native (-native)";
        {_, true, _} -> "it has NIFs";
        {_, _, true} -> "it does something of its own when it is loaded (-on_load)";
        _ -> false
    end.

calls_load_nif({remote, _, {atom, _, erlang}, {atom, _, load_nif}}) -> true;
calls_load_nif(T) when is_tuple(T) -> calls_load_nif(tuple_to_list(T));
calls_load_nif([H | T]) -> calls_load_nif(H) orelse calls_load_nif(T);
calls_load_nif(_) -> false.

%% @doc Of a source file, whose other transforms have run.
-spec file(file:filename()) -> {ok, source()} | {error, string()}.
file(File) ->
    Dir = filename:dirname(File),
    Options = [binary, debug_info, no_native, return, nowarn_unused_vars,
               {i, Dir}, {i, filename:join(filename:dirname(Dir), "include")}],
    case compile:noenv_file(File, Options) of
        {ok, Module, Binary, _} ->
            {ok, {_, [{abstract_code, {_, Forms}}]}} = beam_lib:chunks(Binary, [abstract_code]),
            {ok, #{module => Module, file => File, binary => Binary, forms => Forms,
                   options => []}};
        {error, [{Where, [{Location, By, What} | _]} | _], _} ->
            {error, lists:flatten(io_lib:format("~ts:~ts~ts",
                                                [Where, location(Location),
                                                 By:format_error(What)]))}
    end.

location({Line, Column}) -> io_lib:format("~b:~b: ", [Line, Column]);
location(Line) when is_integer(Line) -> io_lib:format("~b: ", [Line]);
location(_) -> " ".

%% @doc Of the options that a module was compiled with those that change its code. What transforms
%% did is in the forms already.
-spec options([compile:option()]) -> [compile:option()].
options(Options) ->
    [O || O <- Options, keeps(O)].

keeps({Key, _}) -> lists:member(Key, [inline, inline_size, no_auto_import, error_location]);
keeps(O) -> lists:member(O, [inline, debug_info, deterministic, inline_list_funcs, no_copt,
                             no_type_opt, no_ssa_opt_destructive_update, no_auto_import]).
