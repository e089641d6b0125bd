%% SPDX-License-Identifier: Apache-2.0
%% The `erlane' command: signals, wrong use, failures, what it shows, the demo.
-module(real_command_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([sigterm_drains/1, sigterm_at_the_deadline/1, second_signal/1, sigint_stops/1,
         wrong_use/1, failures_at_start/1, live_figures/1, demo/1, help_and_version/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 20000).

all() ->
    [sigterm_drains, sigterm_at_the_deadline, second_signal, sigint_stops, wrong_use,
     failures_at_start, live_figures, demo, help_and_version].

%%% signals

%% SIGTERM: no new connections, the open one works on to its end, exit status 0.
sigterm_drains(_Config) ->
    {Proxy, Port} = real_proxy:start(real_upstream:start(#{}), ["--drain", "60000"]),
    Client = real_proxy:echo(Port),
    ok = real_os:signal(Proxy, "TERM"),
    real_os:until(fun() -> real_proxy:refuses(Port) end),
    ok = real_proxy:echoed(Client),
    ok = gen_tcp:close(Client),
    ?assertEqual(0, real_os:wait_exit(Proxy)),
    real_os:wait_line(Proxy, " 0 reset").

%% At the deadline what is left is reset, and the exit status is 0 all the same.
sigterm_at_the_deadline(_Config) ->
    {Proxy, Port} = real_proxy:start(real_upstream:start(#{}), ["--drain", "200"]),
    Client = real_proxy:echo(Port),
    ok = real_os:signal(Proxy, "TERM"),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Client, 0, ?WAIT_MS)),
    ?assertEqual(0, real_os:wait_exit(Proxy)),
    real_os:wait_line(Proxy, "0 ended while draining, 1 reset").

%% A second signal ends the wait.
second_signal(_Config) ->
    {Proxy, Port} = real_proxy:start(real_upstream:start(#{}), ["--drain", "600000"]),
    _ = real_proxy:echo(Port),
    ok = real_os:signal(Proxy, "TERM"),
    real_os:until(fun() -> real_proxy:refuses(Port) end),
    ok = real_os:signal(Proxy, "TERM"),
    ?assertEqual(0, real_os:wait_exit(Proxy)).

%% Ctrl-C. A process that a shell put into the background ignores SIGINT for good, so a
%% program in between puts the default back.
sigint_stops(_Config) ->
    Proxy = real_os:start(real_os:need("env", "coreutils"),
                          ["--default-signal=INT", real_os:erlane()
                           | real_proxy:args(real_upstream:start(#{}), [])]),
    _ = real_proxy:port(Proxy),
    ok = real_os:signal(Proxy, "INT"),
    ?assertEqual(0, real_os:wait_exit(Proxy)).

%%% the command line

%% Exit status 2, the wrong word named in the first line, the usage after it.
wrong_use(_Config) ->
    Listen = ["proxy", "--listen", "127.0.0.1:0"],
    Both = Listen ++ ["--to", "127.0.0.1:1"],
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), Args),
         [First | Rest] = string:split(Output, "\n"),
         ?assertEqual({Args, 2}, {Args, Status}),
         ?assertNotEqual(nomatch, string:find(First, Word), First),
         ?assertNotEqual(nomatch, string:find([First | Rest], "usage:"))
     end || {Args, Word} <-
                [{[], "usage"}, {["prxy"], "prxy"}, {["proxy"], "--listen"}, {Listen, "--to"},
                 {Listen ++ ["--to"], "needs a value"},
                 {Listen ++ ["--to", "--quiet"], "needs a value"},
                 {Listen ++ ["--to", "127.0.0.1"], "port is missing"},
                 {Listen ++ ["--to", "127.0.0.1:99999"], "0 to 65535"},
                 {["proxy", "--listen", "::1:80", "--to", "127.0.0.1:1"], "IPv6"},
                 {Both ++ ["--speed", "9"], "--speed"}, {Both ++ ["more"], "more"},
                 {Both ++ ["--quiet=yes"], "--quiet"},
                 {Both ++ ["--max-connections", "0"], "at least 1"},
                 {Both ++ ["--connect-timeout", "5s"], "whole number"},
                 {["demo", "--twice"], "--twice"}]].

%% Exit status 1 and one line that says what is wrong.
failures_at_start(_Config) ->
    {ok, Taken} = gen_tcp:listen(0, [{ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Taken),
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), ["proxy", "--listen", Listen,
                                                           "--to", To]),
         ?assertEqual({Word, 1}, {Word, Status}),
         ?assertNotEqual(nomatch, string:find(Output, Word), Output),
         ?assertMatch([_], string:lexemes(Output, "\n"))
     end || {Listen, To, Word} <-
                [{lists:concat(["127.0.0.1:", Port]), "127.0.0.1:1", "eaddrinuse"},
                 {"192.0.2.1:80", "127.0.0.1:1", "eaddrnotavail"},
                 {"127.0.0.1:0", "no-such-host.invalid:1", "no-such-host.invalid"},
                 {"127.0.0.1:0", "127.0.0.1:0", "to:"},
                 {"unix:/no/such/dir/s", "127.0.0.1:1", "enoent"}]].

%% On a terminal the figures come each second; --quiet shows none.
live_figures(_Config) ->
    Script = real_os:need("script", "bsdutils"),
    Upstream = real_upstream:start(#{}),
    %% exec: the shell between would take Ctrl-C, too, and end with a status of its own.
    Command = fun(More) ->
                      lists:concat(lists:join(" ", ["exec", real_os:erlane()
                                                    | real_proxy:args(Upstream, More)]))
              end,
    Shown = real_os:start(Script, ["-qefc", Command([]), "/dev/null"]),
    Client = real_proxy:echo(real_proxy:port(Shown)),
    real_os:wait_line(Shown, "1 open 1 total 0 errors"),
    ok = gen_tcp:close(Client),
    real_os:wait_line(Shown, "0 open 1 total 0 errors"),
    %% Ctrl-C, as the terminal gives it to everything in the foreground.
    ok = real_os:input(Shown, <<3>>),
    ?assertEqual(0, real_os:wait_exit(Shown)),
    real_os:wait_line(Shown, "proxy stopped: 1 connections served"),
    {Quiet, Port} = real_proxy:start(Upstream, ["--quiet"]),
    ok = gen_tcp:close(real_proxy:connect(Port)),
    ok = real_os:signal(Quiet, "TERM"),
    ?assertEqual(0, real_os:wait_exit(Quiet)),
    ?assertEqual(nomatch, re:run(real_os:output(Quiet), " open ")).

%% The demo serves, measures and ends.
demo(_Config) ->
    {Status, Output} = real_os:run(real_os:erlane(), ["demo", "--once", "--ms", "300",
                                                      "--clients", "10"]),
    ?assertEqual(0, Status, Output),
    ?assertMatch({match, _}, re:run(Output, "[1-9][0-9]* requests, 0 errors")),
    %% Without --once it stays up, and says how to ask it.
    Demo = real_os:start(real_os:erlane(), ["demo", "--ms", "100", "--clients", "2"]),
    real_os:wait_line(Demo, "Ctrl-C stops"),
    {match, [Port]} = re:run(real_os:output(Demo), "curl http://127.0.0.1:(\\d+)/",
                             [{capture, all_but_first, list}]),
    Client = real_proxy:connect(list_to_integer(Port)),
    ok = gen_tcp:send(Client, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    {ok, <<"HTTP/1.1 200 OK\r\n", _/binary>>} = gen_tcp:recv(Client, 0, ?WAIT_MS),
    ok = gen_tcp:close(Client),
    %% The page is there, and sees the traffic of the demo.
    {match, [Page]} = re:run(real_os:output(Demo), "open +http://127.0.0.1:(\\d+)/",
                             [{capture, all_but_first, list}]),
    Metrics = os:cmd("curl -s http://127.0.0.1:" ++ Page ++ "/metrics"),
    ?assertMatch({match, _}, re:run(Metrics, "erlane_lane_[a-z_]+(_total)?\\{lane=\"1\"\\} [1-9]")),
    ok = real_os:signal(Demo, "TERM"),
    ?assertEqual(0, real_os:wait_exit(Demo)).

%% What was asked for goes to standard output with status 0.
help_and_version(_Config) ->
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), Args),
         ?assertEqual({Args, 0}, {Args, Status}),
         ?assertNotEqual(nomatch, string:find(Output, Word))
     end || {Args, Word} <- [{["help"], "usage: erlane"}, {["--help"], "usage: erlane"},
                             {["help", "proxy"], "--listen"}, {["proxy", "--help"], "--to"},
                             {["help", "demo"], "--once"}, {["version"], "erlane 0."}]].
