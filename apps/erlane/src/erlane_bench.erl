%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane bench': measures erlane against what a user would pick instead. The rules are
%% in docs/internals/bench.md.
-module(erlane_bench).

-export([main/1]).

-type settings() :: #{atom() => term()}.

%% @doc Runs one scenario and prints its table. Arguments are those of the command line:
%% `[Scenario | Options]' or `["--list"]'. Returns when everything worked; a contestant that
%% failed (not one that is not installed) makes the command fail after the table.
-spec main([string()]) -> ok.
main([]) -> list();
main(["--list"]) -> list();
main([Help | _]) when Help =:= "--help"; Help =:= "-h" -> io:put_chars(help());
main(["flood" | Args] = All) ->
    case lists:member("--matrix", Args) of
        true -> scenario("flood-matrix", Args -- ["--matrix"]);
        false -> scenario("flood", tl(All))
    end;
main([Scenario | Args]) ->
    scenario(Scenario, Args).

scenario(Scenario, Args) ->
    is_map_key(Scenario, scenarios())
        orelse erlane_cli:usage_error(["there is no benchmark ", Scenario], help()),
    case options(Args, #{}) of
        {ok, help} -> io:put_chars(help());
        {ok, Options} -> run(Scenario, settings(Scenario, Options), [Scenario | Args]);
        {error, Why} -> erlane_cli:usage_error(Why, help())
    end.

scenarios() ->
    #{"http" => "hello over HTTP, connections kept alive",
      "short" => "connect, request, answer, close",
      "proxy" => "messages through a proxy and back",
      "latency" => "time to answer at a fixed offered load, with and without busy processes",
      "idle" => "memory and system calls of connections that do nothing",
      "server" => "hello of whole HTTP servers, connections kept alive and not",
      "server-idle" => "memory of kept connections of whole HTTP servers",
      "echo" => "system calls for one echo",
      "metrics" => "one update of a counter or histogram",
      "shard" => "counters under keys, updated by 100 processes",
      "native" => "kernels on BEAM, as native functions, and in C behind a NIF",
      "native-erllvm" => "programs of HiPE and ErLLVM on BEAM and as native functions",
      "profile" => "what it costs to look at a node, and whether what is seen is true",
      "scrape" => "pauses of the schedulers while many series are written out",
      "flood" => "messages to a process on another node, and their answers",
      "flood-fanout" => "one message to many processes on one node and on ten",
      "flood-latency" => "time of a message to another node and its answer",
      "flood-matrix" => "sizes of messages, numbers of senders and receivers, between two nodes",
      "batch" => "messages from many processes of this node to many others",
      "fanout" => "one message to very many processes of this node",
      "fanout-pull" => "many messages that each of many processes takes when it wants",
      "fanout-sockets" => "one message to thousands of sockets and WebSocket clients",
      "fanout-web" => "many messages to many WebSocket clients for a minute, with all cores"}.

help() ->
    "usage: erlane bench SCENARIO [OPTION]...\n"
    "       erlane bench --list\n"
    "\n"
    "  --rounds N          rounds of each contestant; the first is left out (9)\n"
    "  --round-ms N        length of a round (1000; latency 2000; metrics, shard 300; native\n"
    "                      150 for each kernel; profile 4000; idle: without traffic 10000)\n"
    "  --connections N,..  numbers of connections (1,100,1000; short, server 100; latency,\n"
    "                      echo 1,100; idle 20000; server-idle 10000; fanout: processes,\n"
    "                      1,1000,10000,100000; fanout-sockets 1000,5000; profile: processes\n"
    "                      that sleep, 100000)\n"
    "  --payload N,..      proxy: sizes of messages in bytes (100,4096,65536);\n"
    "                      flood, fanout: bytes in a message (none, 64)\n"
    "  --series N,..       scrape: numbers of series (10000,100000)\n"
    "  --rate N            latency: requests a second (200 a connection, at most 5000);\n"
    "                      flood-latency: messages a second (half of what stock can do)\n"
    "  --messages N        flood: messages of one flood (200000); profile: calls of a turn\n"
    "  --trace-mb N        profile: also the memory that it takes to read a trace of this size\n"
    "  --matrix            flood: the same as flood-matrix\n"
    "  --only NAME,..      only these contestants\n"
    "  --quick             one short round of a few: does it work?\n"
    "  --save              write bench/results/SCENARIO.json and .md\n"
    "  --save-as NAME      the same under another name\n".

list() ->
    io:put_chars([[[string:pad(Name, 16), What, $\n],
                   [["    ", string:pad(C, 20), erlane_bench_contestant:title(C), $\n]
                    || C <- erlane_bench_contestant:names(Name)]]
                  || {Name, What} <- lists:sort(maps:to_list(scenarios()))]),
    io:put_chars("\nerlane bench --help tells the options.\n").

%%
%% Options
%%

options([], Options) ->
    {ok, Options};
options([Help | _], _) when Help =:= "--help"; Help =:= "-h" ->
    {ok, help};
options(["--quick" | Rest], Options) ->
    options(Rest, Options#{quick => true});
options(["--save" | Rest], Options) ->
    options(Rest, Options#{save => scenario});
options([Name], _) ->
    {error, case option(Name, "1") of
                error -> "there is no option " ++ Name;
                _ -> Name ++ " needs a value"
            end};
options([Name, Value | Rest], Options) ->
    case option(Name, Value) of
        error -> {error, "there is no option " ++ Name};
        {error, Why} -> {error, [Name, " ", Value, ": ", Why]};
        {Key, Parsed} -> options(Rest, Options#{Key => Parsed})
    end.

option("--rounds", Text) -> number(rounds, Text, 1, 1000);
option("--round-ms", Text) -> number(round_ms, Text, 10, 600000);
option("--messages", Text) -> number(messages, Text, 1000, 10000000);
option("--rate", Text) -> number(rate, Text, 1, 1000000);
option("--trace-mb", Text) -> number(trace_mb, Text, 1, 100000);
option("--connections", Text) -> numbers(connections, Text, 1, 100000);
option("--series", Text) -> numbers(series, Text, 1, 1000000);
option("--payload", Text) -> numbers(payload, Text, 1, 1048576);
option("--only", Text) -> {only, string:lexemes(Text, ",")};
option("--save-as", Text) ->
    case re:run(Text, "^[A-Za-z0-9._-]+$") of
        nomatch -> {error, "is not a plain file name"};
        _ -> {save, Text}
    end;
option(_, _) -> error.

number(Key, Text, Min, Max) ->
    case string:to_integer(Text) of
        {N, ""} when N >= Min, N =< Max -> {Key, N};
        _ -> {error, io_lib:format("is not a whole number from ~b to ~b", [Min, Max])}
    end.

numbers(Key, Text, Min, Max) ->
    Parsed = [number(Key, T, Min, Max) || T <- string:lexemes(Text, ",")],
    case [E || {error, _} = E <- Parsed] of
        [Error | _] -> Error;
        [] when Parsed =:= [] -> {error, "is empty"};
        [] -> {Key, [N || {_, N} <- Parsed]}
    end.

%% Defaults, those of --quick, what was asked for; in this order.
-spec settings(string(), settings()) -> settings().
settings(Scenario, Options) ->
    Quick = case Options of
                #{quick := true} -> quick(Scenario);
                _ -> #{}
            end,
    Settings = maps:merge(maps:merge(defaults(Scenario), Quick), Options),
    Known = erlane_bench_contestant:names(Scenario),
    #{only := Only} = Settings,
    case Only -- Known of
        [] ->
            Settings#{scenario => Scenario, asked => is_map_key(only, Options),
                      only => [N || N <- Known, lists:member(N, Only)]};
        [Unknown | _] ->
            erlane_cli:usage_error([Scenario, " has no contestant ", Unknown, "; it has ",
                                    lists:join(", ", Known)], help())
    end.

defaults(Scenario) ->
    maps:merge(#{rounds => 9, round_ms => 1000, payload => [100, 4096, 65536], idle_ms => 10000,
                 messages => 200000, far_nodes => 10,
                 sizes => [0, 64, 256, 1024, 16384, 65536, 1048576],
                 senders => [1, 10, 1000], receivers => [1, 100, 10000],
                 topics => 4000, web_clients => 10000, pullers => 1000, pulled => 2000,
                 connections => [1, 100, 1000], series => [10000, 100000],
                 only => erlane_bench_contestant:names(Scenario)},
               case Scenario of
                   "short" -> #{connections => [100]};
                   "server" -> #{connections => [100]};
                   "server-idle" -> #{connections => [10000]};
                   "latency" -> #{connections => [1, 100], round_ms => 2000};
                   "echo" -> #{connections => [1, 100]};
                   "idle" -> #{connections => [20000]};
                   "metrics" -> #{round_ms => 300};
                   "shard" -> #{round_ms => 300};
                   "native" ++ _ -> #{round_ms => 150};
                   "profile" -> #{round_ms => 4000, connections => [100000]};
                   "flood" -> #{payload => [0]};
                   "flood-fanout" -> #{payload => [0]};
                   "flood-latency" -> #{payload => [0], round_ms => 2000};
                   "flood-matrix" -> #{rounds => 3, round_ms => 100};
                   "batch" -> #{messages => 1000000};
                   "fanout" -> #{payload => [64], connections => [1, 1000, 10000, 100000]};
                   "fanout-pull" -> #{payload => [64]};
                   "fanout-sockets" -> #{payload => [64], connections => [1000, 5000]};
                   "fanout-web" -> #{payload => [64], rounds => 3, round_ms => 60000};
                   _ -> #{}
               end).

quick(Scenario) ->
    Few = ["gen_tcp", "erlane", "relay", "c-epoll", "counters", "ets", "counter", "histogram",
           "none", "text", "erlane-http", "stock", "tuned", "lists", "helper", "router",
           "router-list", "loop", "fanout", "unbounded", "pull", "frames",
           "plain", "batch", "shards", "shards-buffer",
           "lcg", "fnv1a64", "hex_encode", "mandelbrot", "nrev"
           | erlane_bench_profile:names()],
    #{rounds => 1, round_ms => 200, payload => [100], idle_ms => 1000, series => [1000],
      messages => 20000, far_nodes => 3, sizes => [0, 1024], senders => [1, 10],
      receivers => [1, 100], topics => 10, web_clients => 20, pullers => 10, pulled => 100,
      connections => case Scenario of
                         "idle" -> [200];
                         "server-idle" -> [200];
                         "profile" -> [1000];
                         _ -> [10]
                     end,
      only => [N || N <- erlane_bench_contestant:names(Scenario), lists:member(N, Few)]}.

%%
%% Running
%%

run(Scenario, Settings, Args) ->
    Root = root(),
    {Tmp, _} = TempDir = erlane_bench_os:temp_dir(),
    {ServerCore, LoadCore} = erlane_bench_os:cores(),
    Config = #{root => Root, tmp => Tmp, server_core => ServerCore, load_core => LoadCore,
               peers => erlane_bench_contestant:build(Root)},
    try
        ok = load_or_fail(Scenario, Config),
        ServerCore =/= LoadCore
            orelse io:put_chars(standard_error,
                                "  one core only: server and load share it\n"),
        Result = result(Scenario, Settings, Args, Config),
        #{cases := Cases} = Result,
        io:put_chars([erlane_bench_report:terminal(Scenario, Case) || Case <- Cases]),
        ok = save(Settings, Result, Root),
        ok = check(Cases)
    after
        erlane_bench_os:remove(TempDir)
    end.

%% Without the load generator nothing can be measured.
load_or_fail(Here, _) when Here =:= "metrics"; Here =:= "scrape"; Here =:= "batch" -> ok;
load_or_fail(Here, _) when Here =:= "shard"; Here =:= "profile" -> ok;
load_or_fail("native" ++ _, _) -> ok;
load_or_fail("flood" ++ _, _) -> ok;
load_or_fail("fanout" ++ _, _) -> ok;
load_or_fail(_, Config) ->
    case erlane_bench_contestant:peer("load", Config) of
        {ok, _} -> ok;
        {missing, Packages} ->
            erlane_cli:fail("the load generator is in C: apt-get install ~ts", [Packages]);
        {failed, Why} ->
            erlane_cli:fail("bench/peers does not compile: ~ts", [Why])
    end.

result(Scenario, Settings, Args, #{root := Root} = Config) ->
    Module = case Scenario of
                 "idle" -> erlane_bench_lab;
                 "server-idle" -> erlane_bench_lab;
                 "echo" -> erlane_bench_lab;
                 "metrics" -> erlane_bench_metrics;
                 "shard" -> erlane_bench_shard;
                 "native" ++ _ -> erlane_bench_native;
                 "profile" -> erlane_bench_profile;
                 "scrape" -> erlane_bench_scrape;
                 "flood" ++ _ -> erlane_bench_flood;
                 "batch" -> erlane_bench_batch;
                 "fanout" ++ _ -> erlane_bench_fanout;
                 _ -> erlane_bench_rounds
             end,
    Cases = Module:run(Scenario, Settings, Config),
    #{only := Names, rounds := Rounds} = Settings,
    Versions = case Scenario of
                   "native" ++ _ -> erlane_bench_native:versions(Root);
                   "profile" -> erlane_bench_profile:versions(Root);
                   _ -> [{list_to_binary(N), erlane_bench_contestant:version(N, Root)}
                         || N <- Names]
               end,
    #{name => list_to_binary(name(Settings)),
      date => list_to_binary(calendar:system_time_to_rfc3339(os:system_time(second),
                                                             [{offset, "Z"}])),
      command => iolist_to_binary(lists:join(" ", ["erlane bench" | Args])),
      machine => machine(Config), versions => maps:from_list(Versions),
      settings => #{scenario => Scenario, rounds => Rounds,
                    round_ms => maps:get(round_ms, Settings)},
      cases => Cases}.

machine(#{server_core := ServerCore, load_core := LoadCore}) ->
    {ok, Info} = file:read_file("/proc/cpuinfo"),
    Cpu = case re:run(Info, "^model name\\s*:\\s*(.*)$", [multiline, {capture, [1], binary}]) of
              {match, [Model]} -> Model;
              nomatch -> list_to_binary(erlang:system_info(system_architecture))
          end,
    #{cpu => Cpu, kernel => erlane_bench_os:output("uname", ["-sr"]),
      processors => erlang:system_info(logical_processors),
      server_core => ServerCore, load_core => LoadCore}.

%% The tree this was built in: bin/erlane says where, and otherwise our beam file is in
%% _build/default/lib/erlane/ebin.
root() ->
    case os:getenv("ERLANE_ROOT") of
        false ->
            Ebin = filename:dirname(code:which(?MODULE)),
            filename:join(lists:droplast(lists:droplast(lists:droplast(lists:droplast(
                lists:droplast(filename:split(Ebin)))))));
        Root ->
            Root
    end.

name(#{save := Name}) when is_list(Name) -> Name;
name(#{scenario := Scenario}) -> Scenario.

save(#{save := _, scenario := Scenario} = Settings, #{cases := Cases} = Result, Root) ->
    Base = filename:join([Root, "bench", "results", name(Settings)]),
    Page = erlane_bench_report:markdown(Result),
    Summed = [erlane_bench_report:summarise(Scenario, Case) || Case <- Cases],
    #{settings := Kept} = Result,
    Json = Result#{cases := Summed, settings := Kept#{scenario := list_to_binary(Scenario)}},
    ok = filelib:ensure_dir(Base),
    ok = file:write_file(Base ++ ".md", unicode:characters_to_binary(Page)),
    ok = file:write_file(Base ++ ".json", erlane_bench_json:encode(Json)),
    io:format("~nwritten: ~ts.md and .json~n", [Base]);
save(_, _, _) ->
    ok.

check(Cases) ->
    case [[Name, " (", Title, ")"] || #{title := Title, rows := Rows} <- Cases,
                                      #{name := Name, status := <<"failed", _/binary>>} <- Rows] of
        [] -> ok;
        Failed -> erlane_cli:fail("failed: ~ts", [lists:join(", ", Failed)])
    end.
