%% SPDX-License-Identifier: Apache-2.0
%% Runs the Erlang code of the documentation: each fenced block that follows a line
%% `<!-- run -->`. Blocks of one file run in order, in one process, and share their variables,
%% so that a guide can be followed from top to bottom. A block that starts with -module is
%% compiled and loaded instead.
-module(docs_SUITE).

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([finds_blocks/1, names_the_failing_block/1, documentation_runs/1, tables_of_options/1]).

-include_lib("stdlib/include/assert.hrl").

all() -> [finds_blocks, names_the_failing_block, documentation_runs, tables_of_options].

%% Common Test works somewhere below the root of the tree, in its directory of logs.
init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    {ok, Cwd} = file:get_cwd(),
    [{root, root(Cwd)} | Config].

end_per_suite(_Config) ->
    application:stop(erlane_socket).

root(Dir) ->
    case {filelib:is_regular(filename:join(Dir, "rebar.config")), filename:dirname(Dir)} of
        {true, _} -> Dir;
        {false, Dir} -> ct:fail("no rebar.config above the working directory");
        {false, Up} -> root(Up)
    end.

%% The scan gives marked Erlang blocks with their first line, and nothing else.
finds_blocks(_Config) ->
    Text = <<"a\n<!-- run -->\n```erlang\nX = 1.\n```\n"
             "```erlang\nnot_run.\n```\n\n<!-- run -->\n\n```erlang\nY = X.\nZ = Y.\n```\n">>,
    [{4, <<"X = 1.">>}, {13, <<"Y = X.\nZ = Y.">>}] = blocks(Text).

%% A block that raises, and one that does not parse, are told by line.
names_the_failing_block(_Config) ->
    {error, 7, {badmatch, 2}} = run([{4, <<"X = 1.">>}, {7, <<"X = 2.">>}]),
    {error, 4, {1, _, _}} = run([{4, <<"X = .">>}]),
    ok = run([{4, <<"-module(docs_sample).\n-export([f/0]).\nf() -> 1.">>},
              {9, <<"1 = docs_sample:f().">>}]).

%% Every file runs; one that fails does not hide the others.
documentation_runs(Config) ->
    Root = proplists:get_value(root, Config),
    Found = [{File, blocks(Text)} || File <- files(Root), {ok, Text} <- [file:read_file(File)]],
    Files = [{File, Blocks} || {File, Blocks} <- Found, Blocks =/= []],
    true = Files =/= [],
    Failed = [{string:prefix(File, Root ++ "/"), Line, Why}
              || {File, Blocks} <- Files, {error, Line, Why} <- [isolated(Blocks)]],
    [ct:pal("~ts:~b: ~tp", [File, Line, Why]) || {File, Line, Why} <- Failed],
    [] = Failed.

%% A table after `<!-- defaults MODULE -->' has the options and values of MODULE:defaults().
tables_of_options(Config) ->
    Root = proplists:get_value(root, Config),
    Tables = [{File, Module, Table}
              || File <- files(Root), {ok, Text} <- [file:read_file(File)],
                 [Module, Table] <- tables(Text)],
    ?assertNotEqual([], Tables),
    [?assertEqual({File, lists:sort(maps:to_list((binary_to_atom(Module)):defaults()))},
                  {File, lists:sort(rows(Table))})
     || {File, Module, Table} <- Tables].

tables(Text) ->
    case re:run(Text, "^<!-- defaults (\\w+) -->\\n+((?:\\|.*\\n)+)",
                [global, multiline, {capture, all_but_first, binary}]) of
        {match, Found} -> Found;
        nomatch -> []
    end.

rows(Table) ->
    {match, Rows} = re:run(Table, "^\\| `(\\w+)` \\| `([^`]+)` \\|",
                           [global, multiline, {capture, all_but_first, list}]),
    [begin
         {ok, Tokens, _} = erl_scan:string(Value ++ "."),
         {ok, Term} = erl_parse:parse_term(Tokens),
         {list_to_atom(Key), Term}
     end || [Key, Value] <- Rows].

files(Root) ->
    lists:append([filelib:wildcard(Root ++ "/" ++ Pattern)
                  || Pattern <- ["*.md", "docs/**/*.md", "apps/*/README.md", "examples/*.md"]]).

blocks(Text) ->
    blocks(binary:split(Text, <<"\n">>, [global]), 1, plain, []).

blocks([], _, _, Acc) -> lists:reverse(Acc);
blocks([<<"<!-- run -->">> | Rest], N, plain, Acc) -> blocks(Rest, N + 1, marked, Acc);
blocks([<<"```erlang">> | Rest], N, marked, Acc) ->
    {Code, [_Fence | After]} = lists:splitwith(fun(L) -> L =/= <<"```">> end, Rest),
    Next = N + length(Code) + 2,
    blocks(After, Next, plain, [{N + 1, iolist_to_binary(lists:join($\n, Code))} | Acc]);
blocks([<<>> | Rest], N, marked, Acc) -> blocks(Rest, N + 1, marked, Acc);
blocks([_ | Rest], N, _, Acc) -> blocks(Rest, N + 1, plain, Acc).

%% A process of its own for each file: its sockets end with it, and a receive that never ends
%% is cut off.
isolated(Blocks) ->
    {Pid, Ref} = spawn_monitor(fun() -> exit({done, run(Blocks)}) end),
    receive
        {'DOWN', Ref, process, Pid, {done, Result}} -> Result;
        {'DOWN', Ref, process, Pid, Reason} -> {error, element(1, hd(Blocks)), Reason}
    after 30000 ->
        exit(Pid, kill),
        {error, element(1, hd(Blocks)), timeout}
    end.

run(Blocks) ->
    run(Blocks, erl_eval:new_bindings()).

run([], _) -> ok;
run([{Line, Code} | Rest], Bindings) ->
    try step(unicode:characters_to_list(Code), Bindings) of
        {ok, New} -> run(Rest, New);
        {error, Why} -> {error, Line, Why}
    catch
        _:Why -> {error, Line, Why}
    end.

step("-module" ++ _ = Code, Bindings) ->
    {ok, Tokens, _} = erl_scan:string(Code),
    {ok, Module, Beam} = compile:forms([form(F) || F <- split(Tokens)]),
    {module, Module} = code:load_binary(Module, "docs", Beam),
    {ok, Bindings};
step(Code, Bindings) ->
    {ok, Tokens, _} = erl_scan:string(Code),
    expressions(split(Tokens), Bindings).

expressions([], Bindings) -> {ok, Bindings};
expressions([Tokens | Rest], Bindings) ->
    case erl_parse:parse_exprs(Tokens) of
        {ok, Exprs} ->
            {value, _, New} = erl_eval:exprs(Exprs, Bindings),
            expressions(Rest, New);
        {error, Why} -> {error, Why}
    end.

form(Tokens) ->
    {ok, Form} = erl_parse:parse_form(Tokens),
    Form.

%% One list of tokens for each full stop.
split([]) -> [];
split(Tokens) ->
    {Before, [Dot | After]} = lists:splitwith(fun(T) -> element(1, T) =/= dot end, Tokens),
    [Before ++ [Dot] | split(After)].
