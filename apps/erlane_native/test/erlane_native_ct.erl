%% SPDX-License-Identifier: Apache-2.0
%% What the suites share: a module built twice, as it is and through the translator, and the
%% comparison of what both answer.
-module(erlane_native_ct).

-export([init_suite/1, end_suite/0, empty_cache/0]).
-export([source/1, forms/1, text_of/2, plain/4, native/5, always/2, why_not/3, reasons/1,
         forget/1]).
-export([outcome/3, differs/4, unlike/4, times/1, seed/0, versions/0]).

-export_type([outcome/0, how/0]).

%% With its usual turns, giving way at each of them, going back to BEAM at each third or at each
%% K-th; and giving way at all but each K-th, at which it goes back.
-type how() :: native | yields | deopts | {deopts, pos_integer()} | {both, pos_integer()}.

-type outcome() :: {value, term()} | {error | exit | throw, term(), Frames :: list()}.

%% @doc Machine code can be made, and is kept in a directory of the suite's own.
-spec init_suite(Config :: list()) -> list() | {skip, string()}.
init_suite(Config) ->
    case erlane_native_clang:find() of
        {ok, _, _} ->
            os:putenv("ERLANE_NATIVE_CACHE",
                      filename:join(proplists:get_value(priv_dir, Config), "cache")),
            Config;
        {error, Why} -> {skip, lists:flatten(Why)}
    end.

-spec end_suite() -> ok.
end_suite() ->
    os:unsetenv("ERLANE_NATIVE_CACHE"),
    ok.

%% @doc Removes what was made: a long run makes more than a disk should hold.
-spec empty_cache() -> ok.
empty_cache() ->
    {ok, Dir} = erlane_native_clang:directory(),
    {ok, Files} = file:list_dir(Dir),
    lists:foreach(fun(F) -> file:delete(filename:join(Dir, F)) end, Files).

%% @doc The forms of a module, from its debug information, without its name.
-spec source(module()) -> [erl_parse:abstract_form()].
source(Module) ->
    {ok, {Module, [{abstract_code, {raw_abstract_v1, Forms}}]}} =
        beam_lib:chunks(code:which(Module), [abstract_code]),
    without_name(Forms).

without_name(Forms) -> [F || F <- Forms, not is_name(F)].

is_name({attribute, _, module, _}) -> true;
is_name(_) -> false.

%% @doc The forms of a text without macros and without a name.
-spec forms(iodata()) -> [erl_parse:abstract_form()].
forms(Text) ->
    {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list(Text), {2, 1}, [{text, false}]),
    [{attribute, 1, file, {"generated.erl", 1}} | parse(Tokens)].

%% @doc The part of such a text that is about this function.
-spec text_of(atom(), iodata()) -> iodata().
text_of(F, Text) ->
    Parts = binary:split(iolist_to_binary(Text), <<"\n\n">>, [global]),
    Name = atom_to_binary(F),
    [[P, "\n"] || P <- Parts, binary:match(P, <<Name/binary, $(>>) =/= nomatch].

parse([]) -> [];
parse(Tokens) ->
    {Form, [Dot | Rest]} = lists:splitwith(fun(T) -> element(1, T) =/= dot end, Tokens),
    {ok, Parsed} = erl_parse:parse_form(Form ++ [Dot]),
    [Parsed | parse(Rest)].

%% @doc Compiled as they are, and loaded.
-spec plain(module(), [erl_parse:abstract_form()], file:filename(), [compile:option()]) ->
          ok | {error, term()}.
plain(Name, Forms, Dir, Options) -> build(Name, Forms, Dir, Options).

%% @doc Compiled through the translator, and loaded; its native code is in use, if it has some. The
%% options are for what stays BEAM, and to be those of the plain one: `no_ssa_opt' halves the time,
%% changes no machine code, and where BEAM raises.
-spec native(module(), [erl_parse:abstract_form()], file:filename(), how(), [compile:option()]) ->
          ok | {error, term()}.
native(Name, Forms, Dir, How, Options) ->
    Compile = fun() -> build(Name, Forms, Dir, [{parse_transform, erlane_native} | Options]) end,
    case with("always," ++ setting(How), Compile) of
        ok ->
            case erlane_native:ensure(Name) of
                native -> ok;
                {beam, "no function was taken"} -> ok;
                {beam, Why} -> {error, Why}
            end;
        Error -> Error
    end.

setting(native) -> "keep";
setting(yields) -> "yield";
setting(deopts) -> setting({deopts, 3});
setting({deopts, K}) -> "deopt=" ++ integer_to_list(K);
setting({both, K}) -> "yield," ++ setting({deopts, K}).

%% @doc Compiles to memory what is named, even where it does not pay.
-spec always(module(), [erl_parse:abstract_form()]) -> {ok, module(), binary()} | error.
always(Name, Forms) ->
    with("always", fun() ->
                       compile:forms([{attribute, 1, module, Name} | Forms],
                                     [{parse_transform, erlane_native}, binary])
                   end).

%% With these settings of the translator.
with(Settings, Compile) ->
    true = os:putenv("ERLANE_NATIVE_TEST", Settings),
    try Compile()
    after true = os:unsetenv("ERLANE_NATIVE_TEST")
    end.

%% @doc Why calls of such a module went back to BEAM, and how many did.
-spec reasons(module()) -> [{string(), pos_integer()}].
reasons(Name) ->
    {ok, #{deopts := Deopts}} = erlane_native:info(Name),
    [{Why, N} || {_, _, Why, N} <- Deopts, N > 0].

%% @doc Why a function of such a module is not native.
-spec why_not(module(), atom(), arity()) -> none | string().
why_not(Name, F, A) ->
    {ok, #{functions := Functions, refused := Refused}} = erlane_native:info(Name),
    case lists:member({F, A}, Functions) of
        true -> none;
        false -> hd([Why || {FA, _, Why} <- Refused, FA =:= {F, A}] ++ ["unknown"])
    end.

build(Name, [File | Forms], Dir, Options) ->
    Named = case File of
                {attribute, _, file, _} -> [File, {attribute, 1, module, Name} | Forms];
                _ -> [{attribute, 1, module, Name}, File | Forms]
            end,
    case compile:forms(Named, [{outdir, Dir}, return, nowarn_unused_vars | Options]) of
        {ok, Name, Beam, _Warnings} -> load(Name, Beam, Dir);
        {error, Errors, _} -> {error, Errors}
    end.

load(Name, Beam, Dir) ->
    Base = filename:join(Dir, atom_to_list(Name)),
    ok = file:write_file(Base ++ ".beam", Beam),
    ok = forget(Name),
    {module, Name} = code:load_abs(Base),
    ok.

%% @doc The module is not loaded any more.
-spec forget(module()) -> ok.
forget(Name) ->
    _ = code:purge(Name),
    _ = code:delete(Name),
    _ = code:purge(Name),
    ok.

%% @doc The value of a call, or the class and reason of its exception with the frames on top: as
%% far as the first one of this module.
-spec outcome(module(), atom(), [term()]) -> outcome().
outcome(Module, Function, Args) ->
    try apply(Module, Function, Args) of
        Value -> {value, Value}
    catch
        Class:Reason:Stack -> {Class, Reason, top(Module, Stack)}
    end.

top(Module, [{Module, F, A, Where} | _]) -> [{'$module', F, A, Where}];
%% Of operands that can be exchanged the compiler of OTP 29 puts a constant last, if all calls that
%% it sees tell it that it is one; and a native module has one call more.
top(Module, [{erlang, Op, [A, B], Where} | Rest])
  when Op =:= '+'; Op =:= '*'; Op =:= 'band'; Op =:= 'bor'; Op =:= 'bxor' ->
    [{erlang, Op, lists:sort([A, B]), Where} | top(Module, Rest)];
top(Module, [Frame | Rest]) -> [Frame | top(Module, Rest)];
top(_, []) -> [].

%% @doc False, or what each of the two modules says. Two zeroes of another sign are not the same.
-spec differs(module(), module(), atom(), [term()]) -> false | {outcome(), outcome()}.
differs(Plain, Native, Function, Args) ->
    unlike(outcome(Plain, Function, Args), Native, Function, Args).

%% @doc The same, where it is known what BEAM says.
-spec unlike(outcome(), module(), atom(), [term()]) -> false | {outcome(), outcome()}.
unlike(Beam, Native, Function, Args) ->
    case {Beam, outcome(Native, Function, Args)} of
        {Same, Same} = Both ->
            case term_to_binary(element(1, Both)) =:= term_to_binary(element(2, Both)) of
                true -> false;
                false -> Both
            end;
        %% The VM has no frame of an operator where the compiler knows enough of the operands:
        %% that they are floats, or up to OTP 26 that one is a small constant. Of a function of a
        %% native module, which has one call more, it knows less.
        {{Class, Why, Own}, {Class, Why, [{erlang, Op, [_, _], _} | Own]}}
          when Op =:= '+'; Op =:= '-'; Op =:= '*'; Op =:= '/' -> false;
        Both -> Both
    end.

%% @doc So many, or what ERLANE_LONG says: a number, or 1 for a hundred times as many.
-spec times(pos_integer()) -> pos_integer().
times(N) ->
    case os:getenv("ERLANE_LONG") of
        false -> N;
        "1" -> 100 * N;
        Text -> list_to_integer(Text)
    end.

%% @doc What random numbers begin with: 1, with ERLANE_LONG another one each time, or what
%% ERLANE_SEED says.
-spec seed() -> integer().
seed() ->
    case {os:getenv("ERLANE_SEED"), os:getenv("ERLANE_LONG")} of
        {false, false} -> 1;
        {false, _} -> erlang:system_time();
        {Text, _} -> list_to_integer(Text)
    end.

%% @doc What a comparison was made with, for the log.
-spec versions() -> string().
versions() ->
    {ok, Clang, Version} = erlane_native_clang:find(),
    lists:flatten(io_lib:format("OTP ~s, ~s (LLVM ~b)",
                                [erlang:system_info(otp_release), Clang, Version])).
