%% SPDX-License-Identifier: Apache-2.0
%% `erlane profile' against a node that has nothing of erlane, as a user runs it.
-module(real_profile_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([table/1, files/1, counts/1, every_call/1, latency/1, schedulers/1, no_perf/1,
         difference/1, ctrl_c/1, command_killed/1, wrong_use/1, no_node/1]).
-export([serve/0]).

-define(COOKIE, "real_profile").

all() ->
    [table, files, counts, every_call, latency, schedulers, no_perf, difference, ctrl_c,
     command_killed, wrong_use, no_node].

%% The peer has this module, and is spoken to over its standard input and output.
init_per_suite(Config) ->
    %% It has nothing of ours, also not in its path.
    {ok, Peer, Node} = peer:start(#{name => peer:random_name(), connection => standard_io,
                                    env => [{"ERL_LIBS", ""}],
                                    args => ["-setcookie", ?COOKIE, "-pa",
                                             filename:dirname(code:which(?MODULE))]}),
    ok = peer:call(Peer, ?MODULE, serve, []),
    [{peer, Peer}, {node, Node} | Config].

end_per_suite(Config) ->
    peer:stop(proplists:get_value(peer, Config)).

%% Runs on the peer: a process that never waits.
serve() ->
    Pid = spawn(fun busy/0),
    true = register(real_profile_busy, Pid),
    ok.

busy() ->
    _ = lists:foldl(fun(N, Sum) -> N + Sum end, 0, lists:seq(1, 1000)),
    busy().

%% The function that is busy is in the table, what it cost is noted, and nothing stays.
table(Config) ->
    {0, Text} = profile(Config, ["--for", "1s", "--top", "5"]),
    matches("sample", Text),
    matches("real_profile_SUITE:.*busy", Text),
    matches("% of one processor", Text),
    clean(Config).

%% The ending is the format.
files(Config) ->
    [begin
         File = file(Config, Name),
         {0, Text} = profile(Config, ["--for", "300ms", "--out", File]),
         matches("is written", Text),
         {ok, Bytes} = file:read_file(File),
         ?assertNotEqual(nomatch, binary:match(Bytes, Part), Name)
     end || {Name, Part} <- [{"p.html", <<"<html">>}, {"p.callgrind", <<"events:">>},
                             {"p.pb.gz", <<31, 139>>}, {"p.txt", <<"sample">>}]],
    clean(Config).

%% Calls of a function, counted.
counts(Config) ->
    {0, Text} = profile(Config, ["--for", "500ms", "--mode", "time",
                                 "--functions", "real_profile_SUITE, lists:seq/2"]),
    matches("real_profile_SUITE:busy/0", Text),
    matches("lists:seq/2", Text),
    clean(Config).

%% Each call, by its stack; all modules only if that is meant.
every_call(Config) ->
    Args = ["--for", "500ms", "--mode", "trace", "--events", "20000"],
    {0, Text} = profile(Config, Args ++ ["--functions", "real_profile_SUITE, lists", "--waiting"]),
    matches("real_profile_SUITE:busy/0", Text),
    matches("lists:foldl", Text),
    matches("[0-9]+ events in [0-9]+ bytes", Text),
    {2, Wrong} = profile(Config, Args ++ ["--functions", "_"]),
    matches("force", Wrong),
    {0, All} = profile(Config, Args ++ ["--functions", "_", "--force"]),
    matches("lists:seq", All),
    clean(Config).

%% How long calls take, as a table, for programs and as a page.
latency(Config) ->
    Args = ["--for", "500ms", "--mode", "latency", "--functions", "real_profile_SUITE:busy/0,"
            "lists:seq/2"],
    {0, Text} = profile(Config, Args),
    matches("p99.9 +max +function", Text),
    matches("real_profile_SUITE:busy/0", Text),
    matches("slowest: .* in real_profile_busy <", Text),
    {0, Json} = profile(Config, ["--json" | Args]),
    matches("\"latency\":.*\"p99\":[0-9]+", Json),
    File = file(Config, "latency.html"),
    {0, _} = profile(Config, ["--out", File | Args]),
    {ok, Page} = file:read_file(File),
    matches("<svg", Page),
    clean(Config).

%% What the VM's threads do; nothing that was switched on stays.
schedulers(Config) ->
    {0, Text} = profile(Config, ["--for", "500ms", "--mode", "schedulers"]),
    matches("context switches a second", Text),
    {0, Json} = profile(Config, ["--for", "200ms", "--mode", "schedulers", "--json"]),
    matches("\"schedulers\":", Json),
    {2, Out} = profile(Config, ["--mode", "schedulers", "--out", "a.html"]),
    matches("--json", Out),
    clean(Config),
    ?assertEqual([false, false], [call(Config, erlang, system_flag, [Flag, false])
                                  || Flag <- [microstate_accounting, scheduler_wall_time]]).

%% The peer was not started for it.
no_perf(Config) ->
    {1, Text} = profile(Config, ["--for", "500ms", "--mode", "perf"]),
    matches("perf is not installed|[+]JPperf map|no JIT", Text),
    clean(Config).

%% Two files and what is different.
difference(Config) ->
    Files = [file(Config, Name) || Name <- ["before.erlprof", "after.erlprof"]],
    [{0, _} = profile(Config, ["--for", "300ms", "--out", File]) || File <- Files],
    {0, Text} = real_os:run(real_os:erlane(), ["profile", "--diff" | Files]),
    matches("before", Text),
    matches("busy", Text).

%% What there is until then is kept.
ctrl_c(Config) ->
    File = file(Config, "early.txt"),
    Pid = real_os:start(real_os:erlane(), args(Config, ["--for", "60s", "--out", File])),
    running(Config),
    real_os:signal(Pid, "INT"),
    ?assertEqual(0, real_os:wait_exit(Pid)),
    matches("as asked", real_os:output(Pid)),
    ?assert(filelib:is_regular(File)),
    real_os:stop(Pid),
    clean(Config).

%% The command's VM is killed: nothing stays on the node.
command_killed(Config) ->
    Pid = real_os:start(real_os:erlane(), args(Config, ["--for", "60s"])),
    running(Config),
    "" = os:cmd("kill -KILL " ++ integer_to_list(real_os:vm_pid(Pid))),
    clean(Config),
    real_os:stop(Pid).

%% Said before anything is done, with what would be right.
wrong_use(Config) ->
    [begin
         {2, Text} = profile(Config, Args),
         matches(Says, Text)
     end || {Args, Says} <- [{["--for", "1x"], "no time"}, {["--mode", "all"], "none of"},
                             {["--out", "a.b"], "html"}, {["--depth", "65"], "at most 64"},
                             {["--mode", "time"], "functions"}, {["--hz", "0"], "at least"}]],
    {1, Dir} = profile(Config, ["--out", "/no/such/directory/a.html"]),
    matches("no such directory", Dir),
    {1, Module} = profile(Config, ["--mode", "time", "--functions", "no_such_module"]),
    matches("no_such_module", Module).

%% As other commands say it.
no_node(_Config) ->
    {1, Text} = real_os:run(real_os:erlane(), ["profile", "--node", "real_profile_nobody",
                                               "--cookie", ?COOKIE]),
    matches("no node", Text).

%%% Helpers

args(Config, More) ->
    ["profile", "--node", atom_to_list(proplists:get_value(node, Config)), "--cookie", ?COOKIE
     | More].

profile(Config, More) ->
    real_os:run(real_os:erlane(), args(Config, More)).

file(Config, Name) ->
    filename:join(proplists:get_value(priv_dir, Config), Name).

matches(Regex, Text) ->
    ?assertMatch({match, _}, re:run(Text, Regex), Text).

call(Config, M, F, A) ->
    peer:call(proplists:get_value(peer, Config), M, F, A).

there(Config) ->
    [M || {M, _} <- call(Config, code, all_loaded, []), lists:prefix("erlane", atom_to_list(M))].

running(Config) ->
    real_os:until(fun() ->
                          true = is_pid(call(Config, erlang, whereis, [erlane_prof_depth]))
                  end).

%% No module, no name, the depth of stacks as it was, nothing counted.
clean(Config) ->
    real_os:until(fun() ->
                          [] = there(Config),
                          undefined = call(Config, erlang, whereis, [erlane_prof_depth])
                  end),
    ?assertEqual(8, call(Config, erlang, system_flag, [backtrace_depth, 8])),
    ?assertEqual({call_time, false}, call(Config, erlang, trace_info, [{lists, seq, 2},
                                                                       call_time])).
