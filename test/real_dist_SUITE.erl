%% SPDX-License-Identifier: Apache-2.0
%% `erlane dist' as a program, on nodes that have nothing of erlane.
-module(real_dist_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([check_tune_untune/1, json/1, lines/1, environment/1, failures/1, wrong_use/1]).

-define(COOKIE, "real_dist").

all() -> [check_tune_untune, json, lines, environment, failures, wrong_use].

%% What is found, mended, and put back; nothing of ours stays on the node, and our own
%% connection to it is no part of it.
check_tune_untune(Config) ->
    Kept = filename:join(proplists:get_value(priv_dir, Config), "kept"),
    [A, B] = Nodes = pair(),
    Before = settings(A, B),
    {3, Found} = dist(["check" | to(A)]),
    lines_are(Found, ["^WHERE +SETTING +IS +WANT +HOW$",
                      "^vm +zdbbl +1024 +32768 +start the node with \\+zdbbl 32768$",
                      "^new, connecting +buffer +[0-9]+ +262144 +erlane dist tune$",
                      "^new, accepted +delay_send +false +true +erlane dist tune$",
                      ["^", name(B), " +high_watermark +8192 +1048576 +erlane dist tune$"],
                      "^buffer: ."]),
    ?assertEqual(Before, settings(A, B)),
    {0, Dry} = dist(["tune", "--dry-run" | to(A)]),
    lines_are(Dry, [["^", name(B), " +buffer +[0-9]+ +262144 +dry_run$"]]),
    ?assertEqual(Before, settings(A, B)),
    {0, Tuned} = dist(["tune", "--keep", Kept | to(A)]),
    lines_are(Tuned, [["^", name(B), " +buffer +[0-9]+ +262144 +ok$"],
                      "^new, accepted +low_watermark +4096 +1048576 +ok$"]),
    ?assertEqual(nomatch, re:run(Tuned, "erlane_")),
    ?assertEqual([{buffer, 262144}, {delay_send, true}, {high_watermark, 1048576},
                  {low_watermark, 1048576}], connection(A, B)),
    ?assertEqual({0, <<"nothing to change\n">>}, dist(["tune" | to(A)])),
    {0, Undone} = dist(["untune", "--from", Kept | to(A)]),
    lines_are(Undone, [["^", name(B), " +buffer +262144 +[0-9]+ +ok$"]]),
    ?assertEqual(Before, settings(A, B)),
    [non_existing = peer:call(Peer, code, which, [erlane_dist]) || {Peer, _} <- [A]],
    stop(Nodes).

%% One line, of which every value can be read.
json(_Config) ->
    [A, _] = Nodes = pair(),
    {3, Found} = dist(["check", "--json" | to(A)]),
    lines_are(Found, ["^\\[\\{\"fix\":\"boot\",\"is\":1024,\"key\":\"zdbbl\","]),
    ?assertEqual(1, length(binary:matches(Found, <<"\n">>))),
    {0, Changes} = dist(["tune", "--json" | to(A)]),
    lines_are(Changes, ["\"key\":\"buffer\",\"now\":262144,\"result\":\"ok\",\"side\":\"accept\""]),
    ?assertEqual(nomatch, re:run(Changes, "kept|connection")),
    ?assertEqual({0, <<"[]\n">>}, dist(["tune", "--json" | to(A)])),
    stop(Nodes).

%% The lines need no node; one that is started with them is well set.
lines(Config) ->
    {0, Text} = dist(["lines"]),
    {match, [Args, Sys]} = re:run(Text, "^## vm.args\n(.*)\n%% sys.config\n(.*)$",
                                  [dotall, {capture, all_but_first, binary}]),
    Dir = proplists:get_value(priv_dir, Config),
    ok = file:write_file(filename:join(Dir, "vm.args"), Args),
    ok = file:write_file(filename:join(Dir, "lines.config"), Sys),
    A = start(["-args_file", filename:join(Dir, "vm.args"),
               "-config", filename:join(Dir, "lines")]),
    ?assertEqual({0, <<"well set\n">>}, dist(["check" | to(A)])),
    {0, Json} = dist(["lines", "--json"]),
    lines_are(Json, ["\"vm_args\":\"\\+zdbbl 32768\\\\u000a\""]),
    stop([A]).

%% Node and cookie from the environment.
environment(_Config) ->
    A = start([]),
    Env = [{"ERLANE_NODE", name(A)}, {"ERLANE_COOKIE", ?COOKIE}],
    [os:putenv(Name, Value) || {Name, Value} <- Env],
    try
        {3, _} = dist(["check"])
    after
        [os:unsetenv(Name) || {Name, _} <- Env]
    end,
    stop([A]).

%% A sentence each, and exit status 1.
failures(Config) ->
    Dir = proplists:get_value(priv_dir, Config),
    A = start([]),
    Fails = fun(Args, Regex) ->
                    {1, Text} = dist(Args),
                    lines_are(Text, [["^erlane: dist: .*", Regex]]),
                    ?assertEqual(1, length(binary:matches(Text, <<"\n">>)), Text)
            end,
    Fails(["check", "--node", name(A), "--cookie", "other"], "refuses us"),
    Fails(["tune", "--node", "nobody", "--cookie", ?COOKIE], "no node nobody@"),
    Fails(["untune", "--from", filename:join(Dir, "none") | to(A)], "no such file"),
    Other = filename:join(Dir, "other"),
    [begin
         ok = file:write_file(Other, Bytes),
         Fails(["untune", "--from", Other | to(A)], Regex)
     end || {Bytes, Regex} <- [{"text", "was not written by"}, {"", "was not written by"},
                               {term_to_binary({erlane_dist, 2, []}), "was not written by"},
                               {term_to_binary({erlane_dist, 1, [x]}), "no changes of a tune"}]],
    Fails(["tune", "--keep", Dir | to(A)], "undo will not be possible"),
    stop([A]).

%% The usage, and exit status 2.
wrong_use(_Config) ->
    [begin
         {2, Text} = dist(Args),
         lines_are(Text, [["^erlane: dist .*", Regex], "^usage: erlane dist"])
     end || {Args, Regex} <- [{[], "is required"}, {["chek"], "chek is none of"},
                              {["check"], "--node NODE is required"},
                              {["check", "--from", "x"], "there is no option --from"},
                              {["check", "--node"], "--node needs a value"},
                              {["lines", "--node", "x"], "there is no option --node"},
                              {["untune", "--node", "x"], "--from FILE is required"}]],
    {0, Help} = dist(["--help"]),
    {0, Help} = real_os:run(real_os:erlane(), ["help", "dist"]),
    lines_are(Help, ["^usage: erlane dist check"]).

%%% Helpers

dist(Args) -> real_os:run(real_os:erlane(), ["dist" | Args]).

pair() ->
    [A, {_, Node}] = Nodes = [start([]), start([])],
    true = call(A, net_kernel, connect_node, [Node]),
    Nodes.

%% Spoken to over its standard input and output; without the code of erlane.
start(Args) ->
    {ok, Peer, Node} = peer:start(#{name => peer:random_name(), connection => standard_io,
                                    env => [{"ERL_LIBS", ""}],
                                    args => ["-setcookie", ?COOKIE | Args]}),
    {Peer, Node}.

stop(Nodes) -> [peer:stop(Peer) || {Peer, _} <- Nodes].

call({Peer, _}, M, F, A) -> peer:call(Peer, M, F, A).

name({_, Node}) -> atom_to_list(Node).

to(Node) -> ["--node", name(Node), "--cookie", ?COOKIE].

connection(A, {_, Node}) ->
    {ok, Opts} = call(A, net_kernel, getopts, [Node, [buffer, delay_send, high_watermark,
                                                      low_watermark]]),
    Opts.

settings(A, B) ->
    {[call(A, application, get_env, [kernel, Name])
      || Name <- [inet_dist_connect_options, inet_dist_listen_options]], connection(A, B)}.

lines_are(Text, Regexes) ->
    [?assertMatch({match, _}, re:run(Text, Regex, [multiline]), {Regex, Text})
     || Regex <- Regexes].
