%% SPDX-License-Identifier: Apache-2.0
%% The command `erlane native': what it prints, and its exit status.
-module(erlane_cli_native_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([explain/1, survey/1, build/1, texts/1, wrong/1, cannot/1]).

all() -> [explain, survey, build, texts, wrong, cannot].

init_per_suite(Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "ebin"),
    File = filename:join(Dir, "cli_native_sums.erl"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, "-module(cli_native_sums).\n"
                               "-export([sum/2, say/1]).\n"
                               "-compile({parse_transform, erlane_native}).\n"
                               "-native([sum/2, say/1]).\n"
                               "sum(<<C, R/binary>>, A) -> sum(R, A + C);\n"
                               "sum(<<>>, A) -> A.\n"
                               "say(P) -> P ! hello.\n"),
    {ok, _, _} = compile:file(File, [return, {outdir, Dir}]),
    [{dir, Dir}, {file, File} | Config].

end_per_suite(_) -> ok.

said(Args) ->
    ct:capture_start(),
    Status = try erlane_cli_native:run(Args) catch throw:{exit_status, N} -> N end,
    ct:capture_stop(),
    {Status, lists:append(ct:capture_get())}.

has(Text, Pattern) -> ?assertMatch({match, _}, re:run(Text, Pattern, [multiline])).

explain(Config) ->
    {0, Text} = said(["explain", proplists:get_value(file, Config)]),
    has(Text, "cli_native_sums.erl:5:1: sum/2 is native$"),
    has(Text, "cli_native_sums.erl:7:13: say/1 stays on BEAM: calls erlang:'!'/2"),
    {0, Module} = said(["explain", "base64"]),
    has(Module, "stays on BEAM").

%% Of a directory, and of one module each with its reason.
survey(Config) ->
    Dir = erlane_native_files:where(Config),
    _ = erlane_native_files:module(cli_native_plain, erlane_native_files:sums(), [debug_info], Dir),
    {0, Text} = said(["survey", Dir, "--reasons"]),
    has(Text, "^cli_native_plain +2 +[0-9]+  "),
    has(Text, "^ +[0-9]+: say/1: calls erlang"),
    has(Text, "^1 of 1 modules, 2 functions$"),
    code:del_path(Dir),
    erlane_native_ct:forget(cli_native_plain).

build(Config) ->
    Out = filename:join(proplists:get_value(priv_dir, Config), "out"),
    case erlane_native_clang:find() of
        {ok, _, _} ->
            {0, Text} = said(["build", proplists:get_value(dir, Config), "--out", Out]),
            has(Text, "^cli_native_sums: .*\\.so$"),
            {0, Again} = said(["build", proplists:get_value(dir, Config), "--out", Out]),
            has(Again, "\\(was there\\)$");
        {error, Why} -> {skip, lists:flatten(Why)}
    end.

texts(Config) ->
    {0, Text} = said(["ir", proplists:get_value(file, Config)]),
    has(Text, "^define internal i64 @u0").

%% Of the command line.
wrong(_) ->
    [?assertMatch({2, _}, said(Args))
     || Args <- [[], ["nothing"], ["explain"], ["explain", "a", "b"], ["survey", "x", "--what"],
                 ["info", "lists"]]],
    {0, Help} = said(["--help"]),
    has(Help, "^usage: erlane native explain").

%% At run time.
cannot(_) ->
    [?assertMatch({1, _}, said(Args))
     || Args <- [["explain", "/no/such/file.erl"], ["explain", "no_such_module"],
                 ["survey", "no_such_application"], ["build", "/no/such/directory"],
                 ["ir", "erlane_cli_signal"]]].
