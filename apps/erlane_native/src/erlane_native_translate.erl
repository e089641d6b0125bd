%% SPDX-License-Identifier: Apache-2.0
%% @doc From the forms of a module to the text of its machine code: what the transform, `load/1' and
%% `explain/1' have in common. Pure but for the compiler it calls and the environment of tests.
-module(erlane_native_translate).

-export([ssa/2, units/3, named/3, text/4, module/2, translator/0]).

-export_type([fa/0, refusal/0, result/0]).

-type fa() :: erlane_native_ssa:fa().
-type refusal() :: {fa(), Line :: integer(), Why :: string()}.
%% Line 0: of the function as a whole.
-type result() :: #{name := module(), taken := [{fa(), non_neg_integer(), [{fa(), [atom()]}]}],
                    refused := [refusal()], text := iodata(), reasons := [refusal()],
                    columns := erlane_native_columns:found()}.

%% @doc The compiler's SSA of all functions; `error' when the compiler does not take the forms.
%%
%% Of the user's options only those count that change what a function is made of. Small functions
%% are inlined whether the user asked or not: a call costs more than it does, and the definition
%% that an exception comes from is not what is compiled here.
-spec ssa([erl_parse:abstract_form()], [compile:option()]) ->
          {ok, #{fa() => erlane_native_ssa:fn() | erlane_native_ssa:refused()}} | error.
ssa(Forms, Options) ->
    Plain = erlane_native_forms:strip(Forms),
    Small = erlane_native_forms:small(Plain),
    erlane_native_ssa:from_forms(
      Plain, [{inline, Small} || Small =/= []]
             ++ [export_all || lists:member(export_all, Options)
                                   orelse erlane_native_forms:exports_all(Forms)]
             ++ [O || O <- Options,
                      O =:= inline orelse is_tuple(O) andalso
                          (element(1, O) =:= inline orelse element(1, O) =:= inline_size)]).

%% @doc Which of these functions the translator takes, and why not the others.
-spec units([fa()], map(), [erl_parse:abstract_form()]) ->
          {[{fa(), erlane_native_ir:unit()}], [refusal()]}.
units(Functions, Ssa, Forms) ->
    Specs = erlane_native_forms:specs(Forms),
    lists:foldr(fun(FA, {Us, Rs}) ->
                    try erlane_native_ir:unit(FA, Ssa, Specs) of
                        U -> {[{FA, U} | Us], Rs}
                    catch
                        throw:{refused, Line, Why} -> {Us, [{FA, Line, lists:flatten(Why)} | Rs]};
                        %% A shape that nobody thought of must not end the user's build.
                        error:Why:Stack -> {Us, [{FA, 0, failed(Why, Stack)} | Rs]}
                    end
                end, {[], []}, Functions).

%% @doc The same for functions that the attributes name. What is known to be no faster stays on
%% BEAM, unless it is named with `always'.
-spec named([{fa(), [term()], integer()}], map(), [erl_parse:abstract_form()]) ->
          {[{fa(), erlane_native_ir:unit()}], [refusal()]}.
named(Natives, Ssa, Forms) ->
    {Units, Refused} = units([FA || {FA, _, _} <- Natives], Ssa, Forms),
    Always = maps:is_key(always, test_options([])),
    Verdicts = [case Always orelse lists:any(fun({N, Os, _}) ->
                                                 N =:= FA andalso lists:member(always, Os)
                                             end, Natives) of
                    true -> {FA, U, pays};
                    false -> {FA, U, erlane_native_pays:named(U)}
                end || {FA, U} <- Units],
    {[{FA, U} || {FA, U, pays} <- Verdicts],
     Refused ++ [{FA, Line, Why} || {FA, _, {no, Line, Why}} <- Verdicts]}.

failed(Why, [{M, F, A, _} | _]) ->
    Arity = if is_list(A) -> length(A); true -> A end,
    lists:flatten(io_lib:format("the translator failed in ~tp:~tp/~p: ~0tP",
                                [M, F, Arity, Why, 6])).

%% @doc The text of these units. Natives are what the attributes say: functions, their options and
%% lines.
-spec text([erl_parse:abstract_form()], [{fa(), erlane_native_ir:unit()}], [refusal()],
           [{fa(), [term()], integer()}]) -> result().
text(Forms, Units0, Refused0, Natives) ->
    Units = [{FA, I, U} || {I, {FA, U}} <- lists:zip(lists:seq(0, length(Units0) - 1), Units0)],
    Name = list_to_atom(lists:concat([erlane_native_forms:module(Forms), "@native_",
                                      hash(Forms, Natives)])),
    Verified = [I || {FA, I, _} <- Units, {N, Os, _} <- Natives, N =:= FA,
                     lists:member(verify, Os)],
    {Text, Reasons, Unwritten} =
        erlane_native_llvm:module(Name, [{I, U} || {_, I, U} <- Units],
                                  (test_options(Natives))#{verify => Verified}),
    Bad = [{FA, L, lists:flatten(W)} || {I, {refused, L, W}} <- Unwritten, {FA, J, _} <- Units,
                                        J =:= I],
    Refused = [{FA, whole(FA, L, Natives), W} || {FA, L, W} <- Refused0 ++ Bad],
    #{name => Name,
      taken => [{FA, I, [{H, erlane_native_ir:kinds(H, U)} || H <- Heads]}
                || {FA, I, #{heads := Heads} = U} <- Units, not lists:keymember(FA, 1, Bad)],
      refused => Refused, text => Text, reasons => Reasons,
      columns => erlane_native_columns:find(Reasons ++ Refused, Forms)}.

%% What is wrong with all of a function is said where it is named.
whole(FA, 0, Natives) -> hd([L || {N, _, L} <- Natives, N =:= FA] ++ [0]);
whole(_, Line, _) -> Line.

test_options(Natives) ->
    Own = lists:append([O || {_, O, _} <- Natives]),
    Env = case os:getenv("ERLANE_NATIVE_TEST") of
              false -> [];
              Text -> [test_option(T) || T <- string:lexemes(Text, ",")]
          end,
    maps:from_list([case O of
                        {deopt, K} -> {deopt, K};
                        _ -> {O, true}
                    end || O <- Env ++ Own,
                           lists:member(O, [yield, keep, always])
                               orelse is_tuple(O) andalso element(1, O) =:= deopt]).

test_option("yield") -> yield;
test_option("keep") -> keep;
test_option("always") -> always;
test_option("deopt=" ++ K) -> {deopt, list_to_integer(K)}.

hash(Forms, Natives) ->
    <<H:64, _/binary>> = erlang:md5(term_to_binary(
                                      [erlang:system_info(otp_release),
                                       os:getenv("ERLANE_NATIVE_TEST", ""),
                                       [M:module_info(md5) || M <- translator()], Natives
                                       | Forms])),
    io_lib:format("~16.16.0b", [H]).

%% @doc The modules that make a companion and its text: another translator makes another one.
-spec translator() -> [module()].
translator() ->
    [erlane_native_ssa, erlane_native_graph, erlane_native_collect, erlane_native_ir,
     erlane_native_kinds, erlane_native_flow, erlane_native_body, erlane_native_type,
     erlane_native_range, erlane_native_width, erlane_native_linear, erlane_native_cost,
     erlane_native_pays, erlane_native_llvm, erlane_native_entry, erlane_native_slots,
     erlane_native_emit, erlane_native_list, erlane_native_cmp, erlane_native_bits,
     erlane_native_build, erlane_native_rows, erlane_native_call, erlane_native_out,
     erlane_native_term, erlane_native_probe, erlane_native_library, erlane_native_runtime,
     erlane_native_meter, erlane_native_companion, erlane_native_forms].

%% @doc What becomes of the module: its new forms, and the object code of its companion.
-spec module([erl_parse:abstract_form()], result()) -> {[erl_parse:abstract_form()], binary()}.
module(Forms, #{name := Name, taken := Taken, text := Text} = Result) ->
    Info = maps:with([refused, reasons, columns], Result),
    Companion = erlane_native_companion:code(
                  Name, Info#{module => erlane_native_forms:module(Forms), units => Taken,
                              file => file(Forms),
                              text => zlib:compress(iolist_to_binary(Text))}),
    {erlane_native_user:module(Forms, Taken, Name, Companion), Companion}.

file(Forms) ->
    hd([F || {attribute, _, file, {F, _}} <- Forms] ++ ["nofile"]).
