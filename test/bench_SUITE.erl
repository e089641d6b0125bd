%% SPDX-License-Identifier: Apache-2.0
%% @doc Each benchmark runs to its end and prints a table. Times are not judged.
-module(bench_SUITE).

-export([all/0, suite/0]).
-export([echo/1, http/1, short/1, server/1, server_idle/1, proxy/1, latency/1, idle/1, metrics/1,
         scrape/1, shard/1, native/1, profile/1, flood/1, flood_fanout/1, flood_latency/1,
         flood_matrix/1, batch/1, fanout/1, fanout_pull/1, fanout_sockets/1, fanout_web/1,
         wrong_names/1]).

-include_lib("stdlib/include/assert.hrl").

suite() -> [{timetrap, {minutes, 3}}].

all() ->
    [echo, http, short, server, server_idle, proxy, latency, idle, metrics, scrape, shard, native,
     profile, flood, flood_fanout, flood_latency, flood_matrix, batch, fanout, fanout_pull,
     fanout_sockets, fanout_web, wrong_names].

echo(_) -> quick("echo", ["gen_tcp", "erlane"]).
http(_) -> quick("http", ["gen_tcp", "erlane", "c-epoll"]).
short(_) -> quick("short", ["gen_tcp", "erlane", "c-epoll"]).
server(_) ->
    quick("server", ["gen_tcp", "erlane-http", "erlane-http-gen_tcp", "c-epoll", "mochiweb"]).
server_idle(_) -> quick("server-idle", ["erlane-http", "erlane-http-gen_tcp", "mochiweb"]).
proxy(_) -> quick("proxy", ["gen_tcp", "relay", "haproxy"]).
latency(_) -> quick("latency", ["gen_tcp", "erlane"]).
idle(_) -> quick("idle", ["gen_tcp", "erlane"]).
scrape(_) -> quick("scrape", ["none", "text"]).
metrics(_) -> quick("metrics", ["counters", "ets", "counter", "folsom-histogram"]).

%% All of them: each checks its own counters.
shard(_) ->
    quick("shard", ["counters", "ets-plain", "ets", "ets-auto", "ets-decentralized",
                    "ets-per-scheduler", "gen_server", "bare", "shards", "shards-buffer"]).

%% Each is called once in all three ways, and has to say the same.
native(_) ->
    quick("native", ["lcg", "fnv1a64", "hex_encode", "mandelbrot", "nrev"]).

%% Each part; how many calls are lost is counted, and everything traced ends by itself.
profile(_) ->
    Output = quick("profile", ["none", "sample", "loops", "all at once", "trace-port", "eep"],
                   ["sample", "perf", "trace-port", "trace-native", "eep", "fprof", "runaway"]),
    [?assertMatch({match, _}, re:run(Output, Regex), Output)
     || Regex <- ["cost %", "\\| lost \\|", "this / fprof", "ping p50 us .* by itself"]].

flood(_) ->
    quick("flood", ["stock", "buffer", "delay_send", "tuned", "tuned-boot", "tls",
                    "carrier-socket", "lists", "router", "router-list"]).
flood_fanout(_) -> quick("flood-fanout", ["stock", "tuned", "erpc", "helper", "router"]).
flood_latency(_) -> quick("flood-latency", ["stock", "tuned", "router"]).
flood_matrix(_) -> quick("flood-matrix", ["0 B stock", "1024 B tuned", "1024 B router-list"],
                         ["stock", "tuned", "router", "router-list"]).

batch(_) -> quick("batch", ["plain", "batch"]).
fanout(_) -> quick("fanout", ["loop", "pg", "helpers", "fanout"]).
fanout_pull(_) -> quick("fanout-pull", ["loop", "fanout", "pull", "frames"]).
fanout_sockets(_) -> quick("fanout-sockets", ["gen_tcp", "erlane", "fanout"]).
fanout_web(_) -> quick("fanout-web", ["gen_tcp", "erlane", "fanout"]).

%% What does not exist is an error of usage that names it.
wrong_names(_) ->
    {2, Scenario} = run(["no_such"]),
    ?assertNotEqual(nomatch, string:find(Scenario, "no_such")),
    {2, Contestant} = run(["http", "--only", "no_such"]),
    ?assertNotEqual(nomatch, string:find(Contestant, "no_such")).

quick(Scenario, Contestants) ->
    quick(Scenario, Contestants, Contestants).

quick(Scenario, Rows, Contestants) ->
    Only = lists:append(lists:join(",", Contestants)),
    {Status, Output} = run([Scenario, "--quick", "--only", Only]),
    ?assertEqual({0, Output}, {Status, Output}),
    [?assertNotEqual({C, nomatch}, {C, string:find(Output, ["| ", C])}) || C <- Rows],
    Output.

run(Arguments) ->
    Port = open_port({spawn_executable, command(filename:absname(""))},
                     [{args, ["bench" | Arguments]}, exit_status, stderr_to_stdout, binary]),
    collect(Port, []).

collect(Port, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, [Output, Data]);
        {Port, {exit_status, Status}} -> {Status, unicode:characters_to_list(Output)}
    end.

%% The command of the tree that this suite was started in.
command("/") ->
    ct:fail("no bin/erlane above the working directory");
command(Dir) ->
    Command = filename:join([Dir, "bin", "erlane"]),
    case filelib:is_regular(Command) of
        true -> Command;
        false -> command(filename:dirname(Dir))
    end.
