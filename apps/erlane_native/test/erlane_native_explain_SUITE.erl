%% SPDX-License-Identifier: Apache-2.0
%% What is said of each function and line, with columns, for files and for modules; the messages of
%% the compiler; and the command line's texts.
-module(erlane_native_explain_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([file/1, lines/1, file_without_names/1, beam/1, native_module/1, refused_module/1,
         not_there/1, does_not_compile/1, compiler_message/1, texts/1, remedies/1, columns/1]).

all() ->
    [file, lines, file_without_names, beam, native_module, refused_module, not_there,
     does_not_compile, compiler_message, texts, remedies, columns].

init_per_testcase(Case, Config) ->
    Dir = erlane_native_files:where(Config),
    os:putenv("ERLANE_NATIVE_CACHE", filename:join(filename:dirname(Dir), "cache")),
    [{module, list_to_atom("explain_" ++ atom_to_list(Case))}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    os:unsetenv("ERLANE_NATIVE_CACHE"),
    code:del_path(proplists:get_value(dir, Config)),
    erlane_native_ct:forget(proplists:get_value(module, Config)).

%% Line 1 is the name of the module.
text() ->
    "-export([bytes/2, help/1, say/1]).\n"                       % 2
    "bytes(<<C, R/binary>>, A) ->\n"                             % 3
    "    bytes(R, A + (C band 15));\n"                           % 4
    "bytes(<<>>, A) ->\n"                                        % 5
    "    {ok, A}.\n"                                             % 6
    "help(B) -> bytes(B, 0).\n"                                  % 7
    "say(P) ->\n"                                                % 8
    "    X = self(), P ! X.\n".                                  % 9

source(Config, Text) ->
    M = proplists:get_value(module, Config),
    File = filename:join(proplists:get_value(dir, Config), atom_to_list(M) ++ ".erl"),
    ok = file:write_file(File, ["-module(", atom_to_list(M), "). ", Text]),
    File.

functions(Explanation) ->
    maps:from_list([{FA, F} || #{name := FA} = F <- maps:get(functions, Explanation)]).

%% Of the functions that are named, and of no other.
file(Config) ->
    File = source(Config, ["-native([bytes/2, say/1]).\n" | text()]),
    {ok, #{file := File} = Explanation} = erlane_native:explain(File),
    Functions = functions(Explanation),
    ?assertMatch(#{{bytes, 2} := #{state := native, line := 3, column := 1, remedy := none},
                   {say, 1} := #{state := {beam, "calls erlang:'!'/2" ++ _}, line := 8,
                                 lines := [#{line := 9, column := 19}]}}, Functions),
    ?assertNot(is_map_key({help, 1}, Functions)),
    Text = lists:flatten(erlane_native_explain:format(Explanation)),
    ?assertMatch({match, _}, re:run(Text, "^\\Q" ++ File ++ "\\E:3:1: bytes/2 is native$",
                                    [multiline])),
    ?assertMatch({match, _}, re:run(Text, ":9:19: say/1 stays on BEAM: calls erlang:'!'/2, which "
                                          "is not native; do it before or after")).

%% Native, boxed, with calls of the interface, and where it hands back.
lines(Config) ->
    File = source(Config, ["-native([bytes/2]).\n" | text()]),
    {ok, Explanation} = erlane_native:explain(File),
    #{{bytes, 2} := #{lines := Lines}} = functions(Explanation),
    By = maps:from_list([{L, Line} || #{line := L} = Line <- Lines]),
    #{3 := #{kind := api, deopts := Entry}, 4 := #{deopts := Deopts}} = By,
    ?assertMatch([{16, "the result of + has more than 64 bits", "keep it small" ++ _, 0}], Deopts),
    %% The compiler notes no line for what cannot fail: it counts to one before.
    ?assertMatch([_], [L || #{kind := api, api := Api} = L <- Lines,
                            lists:member("makes a tuple", Api)]),
    ?assert(lists:keymember("argument 1 is not a binary", 2, Entry)).

%% Without names in it: what load/1 would do.
file_without_names(Config) ->
    {ok, Explanation} = erlane_native:explain(source(Config, ["\n" | text()])),
    ?assertMatch(#{{bytes, 2} := #{state := native}, {help, 1} := #{state := native},
                   {say, 1} := #{state := {beam, _}}}, functions(Explanation)).

beam(Config) ->
    M = erlane_native_files:module(proplists:get_value(module, Config), text(), [debug_info],
                                   proplists:get_value(dir, Config)),
    {ok, Explanation} = erlane_native:explain(M),
    ?assertMatch(#{{bytes, 2} := #{state := native}}, functions(Explanation)),
    ?assertEqual({ok, Explanation}, erlane_native:explain(code:which(M))),
    ?assertMatch({ok, #{functions := [_ | _]}}, erlane_native:explain(base64)).

%% Of a module that is native there is how often each line handed back.
native_module(Config) ->
    M = erlane_native_files:module(proplists:get_value(module, Config),
                                   ["-native([bytes/2, say/1]).\n" | text()], [native],
                                   proplists:get_value(dir, Config)),
    case erlane_native:ensure(M) of
        native ->
            _ = [catch M:bytes(a, 0) || _ <- lists:seq(1, 3)],
            {ok, Explanation} = erlane_native:explain(M),
            #{{bytes, 2} := #{lines := Lines}, {say, 1} := #{state := {beam, _}}} =
                functions(Explanation),
            ?assertMatch([3], [N || #{deopts := Ds} <- Lines,
                                    {_, "argument 1 is not a binary", _, N} <- Ds]),
            ?assertMatch({match, _}, re:run(erlane_native_explain:format(Explanation),
                                            "argument 1 is not a binary \\(3 times so far\\)"));
        {beam, Why} -> {skip, lists:flatten(Why)}
    end.

refused_module(Config) ->
    M = erlane_native_files:module(proplists:get_value(module, Config),
                                   ["-native([say/1]).\n" | text()], [native],
                                   proplists:get_value(dir, Config)),
    {ok, Explanation} = erlane_native:explain(M),
    ?assertMatch(#{{say, 1} := #{state := {beam, _}}}, functions(Explanation)),
    ?assertMatch({match, _}, re:run(erlane_native_explain:format(Explanation), "say/1 stays")).

not_there(Config) ->
    ?assertMatch({error, _}, erlane_native:explain(no_such_module)),
    ?assertMatch({error, _}, erlane_native:explain("/no/such/file.erl")),
    ?assertMatch({error, _}, erlane_native:explain("/no/such/file.beam")),
    File = source(Config, "\n-native(what).\n"),
    {error, Why} = erlane_native:explain(File),
    ?assertMatch({match, _}, re:run(Why, "2: -native: what is not Name/Arity")).

does_not_compile(Config) ->
    {error, Why} = erlane_native:explain(source(Config, "\nf( -> 1.\n")),
    ?assertMatch({match, _}, re:run(Why, ":2:4: syntax error")).

%% Warnings of a compilation have columns.
compiler_message(Config) ->
    File = source(Config, ["-compile({parse_transform, erlane_native}). -native([say/1]).\n"
                           | text()]),
    {ok, _, Warnings} = compile:file(File, [return, {outdir, filename:dirname(File)}]),
    ?assertMatch([{{9, 19}, erlane_native, {{say, 1}, 9, _}}],
                 lists:append([Ws || {_, Ws} <- Warnings])).

texts(Config) ->
    File = source(Config, ["-native([bytes/2, say/1]).\n" | text()]),
    {ok, Text} = erlane_native_explain:text(File),
    ?assertMatch({match, _}, re:run(Text, "define internal i64 @u0")),
    ?assertMatch({error, _}, erlane_native_explain:text(source(Config, ["-native([say/1]).\n"
                                                                        | text()]))).

%% For what can be done something about there is advice; for the rest there is none.
remedies(_) ->
    [?assert(is_list(erlane_native_words:remedy(Why)))
     || Why <- ["the result of * has more than 64 bits", "argument 1 is not a float",
                "calls lists:map/2, which is not native", "calls a fun",
                "a binary that is built is put into a tuple or list at each turn",
                "argument 2 of f/3 is an integer in one call and a float in another"]],
    ?assertEqual(none, erlane_native_words:remedy("something that nobody thought of")),
    ?assertEqual("calls enif_new_thing", erlane_native_words:api("new_thing")).

%% Operators and calls are found by name, all else by line.
columns(_) ->
    {ok, Tokens, _} = erl_scan:string("f(A, B) ->\n  C = A + B * g(B), C - 1.\n", {1, 1}, []),
    {ok, Form} = erl_parse:parse_form(Tokens),
    Whys = [{"the result of + is", 9}, {"the result of * is", 13}, {"calls g/1, which", 15},
            {"the result of - is", 23}, {"all else", 3}],
    Found = erlane_native_columns:find([{{f, 2}, 2, Why} || {Why, _} <- Whys], [Form]),
    [?assertEqual({2, Column}, erlane_native_columns:location(2, Why, Found))
     || {Why, Column} <- Whys],
    ?assertEqual(7, erlane_native_columns:location(7, "no such line", Found)),
    ?assertMatch(#{{function, {f, 2}} := {1, 2}}, Found).
