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
%% why; `strict' makes an error of that.
%%
%% The transform has to be the last one: a later one would change the BEAM version alone. With
%% `no_native' among the compiler's options, or `ERLANE_NATIVE=0' in its environment, it does
%% nothing; with the latter at run time nothing is loaded.
%%
%% Options that tests need: `{deopt, K}' hands back at every K-th turn of a loop, `yield' gives way
%% at each. `ERLANE_NATIVE_TEST' in the environment of the compiler does so for all functions:
%% `yield', or `deopt=K', or both with a comma between.
-module(erlane_native).

-export([parse_transform/2, parse_transform_info/0, format_error/1]).
-export([info/1, ensure/1, off/1, on/1, ir/1, asm/1]).

-define(NOTHING, "no function was taken").

-type why() :: {erlane_native_ssa:fa(), Line :: integer(), string()}.

%% @doc Warnings are given beside the transformed forms.
-spec parse_transform_info() -> parse_transform_info().
parse_transform_info() -> #{error_location => line}.

-type parse_transform_info() :: #{error_location => column | line}.

%% @doc What the compiler calls.
-spec parse_transform([erl_parse:abstract_form()], [compile:option()]) ->
          [erl_parse:abstract_form()]
              | {warning, [erl_parse:abstract_form()], list()}
              | {error, list(), list()}.
parse_transform(Forms, Options) ->
    Off = lists:member(no_native, Options) orelse os:getenv("ERLANE_NATIVE") =:= "0",
    try erlane_native_forms:natives(Forms) of
        [_ | _] = Natives when not Off -> transform(Forms, Options, Natives);
        _ -> Forms
    catch
        throw:{attribute, Line, Why} ->
            {error, [{file(Forms), [{Line, ?MODULE, {attribute, Why}}]}], []}
    end.

transform(Forms, Options, Natives) ->
    Plain = erlane_native_forms:strip(Forms),
    case erlane_native_ssa:from_forms(Plain, compile_options(Options, Plain)) of
        error -> Forms;
        {ok, Ssa} ->
            {Units, Refused} = units(Natives, Ssa, erlane_native_forms:specs(Forms)),
            Hash = hash(Forms),
            Name = list_to_atom(lists:concat([erlane_native_forms:module(Forms), "@native_",
                                              Hash])),
            {Text, Reasons, Unwritten} =
                erlane_native_llvm:module(Name, [{I, U} || {_, I, U} <- Units],
                                          test_options(Natives)),
            Bad = [{FA, L, W} || {I, {refused, L, W}} <- Unwritten, {FA, J, _} <- Units, J =:= I],
            Taken = [{FA, I, [{H, erlane_native_ir:kinds(H, U)} || H <- Heads]}
                     || {FA, I, #{heads := Heads} = U} <- Units,
                        not lists:keymember(FA, 1, Bad)],
            Why = [{FA, L, lists:flatten(W)} || {FA, L, W} <- Refused ++ Bad],
            finish(Forms, Natives, Taken, Why, Name, Text, Reasons)
    end.

finish(Forms, Natives, Taken, Refused, Name, Text, Reasons) ->
    {Errors, Warnings} =
        lists:partition(fun({FA, _, _}) ->
                            [Os | _] = [O || {N, O, _} <- Natives, N =:= FA],
                            lists:member(strict, Os)
                        end, Refused),
    Messages = fun(List) ->
                   [{file(Forms), lists:sort([{line(W, Natives), ?MODULE, W} || W <- List])}
                    || List =/= []]
               end,
    case {Errors, Taken} of
        {[_ | _], _} -> {error, Messages(Errors), Messages(Warnings)};
        {[], []} ->
            {warning, erlane_native_forms:refused(Forms, Refused), Messages(Warnings)};
        {[], _} ->
            Module = erlane_native_forms:module(Forms),
            Binary = erlane_native_forms:companion(
                       Name, #{module => Module, units => Taken, refused => Refused,
                               reasons => Reasons,
                               text => zlib:compress(iolist_to_binary(Text))}),
            {warning, erlane_native_forms:user(Forms, Taken, Name, Binary), Messages(Warnings)}
    end.

line({_, 0, _} = Why, Natives) ->
    hd([L || {FA, _, L} <- Natives, FA =:= element(1, Why)]);
line({_, Line, _}, _) -> Line.

units(Natives, Ssa, Specs) ->
    Numbered = lists:zip(lists:seq(0, length(Natives) - 1), Natives),
    lists:foldr(fun({I, {FA, _, _}}, {Us, Rs}) ->
                    try erlane_native_ir:unit(FA, Ssa, Specs) of
                        U -> {[{FA, I, U} | Us], Rs}
                    catch
                        throw:{refused, Line, Why} -> {Us, [{FA, Line, Why} | Rs]};
                        %% A shape that nobody thought of must not end the user's build.
                        error:Why:Stack -> {Us, [{FA, 0, failed(Why, Stack)} | Rs]}
                    end
                end, {[], []}, Numbered).

failed(Why, [{M, F, A, _} | _]) ->
    Arity = if is_list(A) -> length(A); true -> A end,
    io_lib:format("the translator failed in ~tp:~tp/~p: ~0tP", [M, F, Arity, Why, 6]).

%% Of the user's options only those that change what a function is made of. Small functions
%% are inlined whether the user asked or not: a call costs more than it does, and the definition
%% that an exception comes from is not what is compiled here.
compile_options(Options, Forms) ->
    Small = erlane_native_forms:small(Forms),
    [{inline, Small} || Small =/= []]
        ++ [O || O <- Options, O =:= inline orelse is_tuple(O) andalso
                                   (element(1, O) =:= inline orelse element(1, O) =:= inline_size)].

test_options(Natives) ->
    Own = lists:append([O || {_, O, _} <- Natives]),
    Env = case os:getenv("ERLANE_NATIVE_TEST") of
              false -> [];
              Text -> [test_option(T) || T <- string:lexemes(Text, ",")]
          end,
    maps:from_list([{K, V} || {K, V} <- [case O of yield -> {yield, true}; _ -> O end
                                         || O <- Env ++ Own],
                              K =:= yield orelse K =:= deopt]).

test_option("yield") -> yield;
test_option("deopt=" ++ K) -> {deopt, list_to_integer(K)}.

hash(Forms) ->
    <<H:64, _/binary>> = erlang:md5(term_to_binary(
                                      [erlang:system_info(otp_release),
                                       os:getenv("ERLANE_NATIVE_TEST", ""), translator() | Forms])),
    io_lib:format("~16.16.0b", [H]).

%% Another translator makes another text, and so another companion.
translator() ->
    [M:module_info(md5) || M <- [erlane_native_ssa, erlane_native_range, erlane_native_kinds,
                                 erlane_native_ir, erlane_native_out, erlane_native_emit,
                                 erlane_native_cmp, erlane_native_bits, erlane_native_llvm,
                                 erlane_native_runtime]].

file(Forms) ->
    hd([F || {attribute, _, file, {F, _}} <- Forms] ++ ["nofile"]).

%% @doc The text of a warning or an error.
-spec format_error({attribute, iolist()} | why()) -> iolist().
format_error({attribute, Why}) -> ["-native: ", Why];
format_error({{F, A}, _, Why}) -> io_lib:format("~tp/~b stays on BEAM: ~ts", [F, A, Why]).

%% @doc What runs how: `state' is `native', `pending' (being compiled), `none' (not yet called) or
%% `{beam, Why}'; `functions' are those that were taken, `refused' those that were not, with line
%% and reason; `yields' and `deopts' count since it was loaded, the latter by function, line and
%% reason.
-spec info(module()) -> {ok, map()} | {error, not_native}.
info(Module) ->
    case companion(Module) of
        {ok, Companion, _} ->
            #{units := Units, refused := Refused, reasons := Reasons} = Companion:info(),
            [Yields | Counts] = case tuple_to_list(Companion:counts()) of
                                    [] -> [0 | [0 || _ <- Reasons]];
                                    List -> List
                                end,
            {ok, #{state => erlane_native_load:state(Companion),
                   functions => [FA || {FA, _, _} <- Units], refused => Refused, yields => Yields,
                   deopts => [{FA, Line, Why, N}
                              || {{FA, Line, Why}, N} <- lists:zip(Reasons, Counts), N > 0]}};
        {none, Refused} ->
            {ok, #{state => {beam, ?NOTHING}, functions => [], refused => Refused, yields => 0,
                   deopts => []}};
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

%% @doc Undoes {@link off/1}.
-spec on(module()) -> native | {beam, iolist()} | {error, not_native}.
on(Module) -> ensure(Module).

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
