%% SPDX-License-Identifier: Apache-2.0
%% `bin/erlane proxy' as users run it, a process of the operating system, before real servers
%% and hostile peers. A missing server fails its case with what to install.
%%
%% ERLANE_LONG=1 makes the transfer 1 GB instead of 256 MB.
-module(real_proxy_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([postgresql/1, redis/1, big_transfer/1, ten_thousand_connections/1,
         upstream_killed_in_mid_stream/1, client_that_never_reads/1, half_close/1,
         idle_timeout/1, connection_limit/1, out_of_descriptors/1, dead_upstream/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 20000).

all() ->
    [postgresql, redis, big_transfer, ten_thousand_connections, upstream_killed_in_mid_stream,
     client_that_never_reads, half_close, idle_timeout, connection_limit, out_of_descriptors,
     dead_upstream].

init_per_testcase(Case, Config) ->
    Dir = lists:concat(["/tmp/erlane_real.", os:getpid(), ".", Case]),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    [{dir, Dir} | Config].

%% Programs end with the process of the case, which started them.
end_per_testcase(_Case, Config) ->
    Dir = proplists:get_value(dir, Config),
    _ = stop_postgresql(Dir),
    ok = file:del_dir_r(Dir).

%%% real servers

%% pgbench with a fixed seed leaves the same tables behind as without the proxy.
postgresql(Config) ->
    Bin = filelib:wildcard("/usr/lib/postgresql/*/bin"),
    _ = real_os:need({"initdb", Bin}, "postgresql"),
    Psql = real_os:need({"psql", Bin}, "postgresql"),
    Pgbench = real_os:need({"pgbench", Bin}, "postgresql-contrib"),
    Server = start_postgresql(proplists:get_value(dir, Config)),
    {_, Proxy} = real_proxy:start(Server, []),
    Sql = fun(Port, Db, Text) ->
                  real_proxy:done(Psql, pg(Port) ++ ["-AtX", "-v", "ON_ERROR_STOP=1",
                                                     "-c", Text, Db])
          end,
    [Direct, Proxied] =
        [begin
             Sql(Server, "postgres", "CREATE DATABASE " ++ Db),
             real_proxy:done(Pgbench, pg(Port) ++ ["-i", "-s", "1", "-q", Db]),
             Said = real_proxy:done(Pgbench, pg(Port) ++ ["-n", "-c", "8", "-j", "2",
                                                          "-t", "200", "--random-seed=42", Db]),
             ?assertNotEqual(nomatch, string:find(Said, "actually processed: 1600/1600")),
             ?assertEqual(nomatch, string:find(Said, "error")),
             %% All rows, read through the proxy too, and a checksum by the server.
             {Sql(Port, Db, "COPY (SELECT * FROM pgbench_accounts ORDER BY aid) TO STDOUT"),
              Sql(Port, Db, "COPY (SELECT tid,bid,aid,delta FROM pgbench_history "
                  "ORDER BY 1,2,3,4) TO STDOUT"),
              Sql(Server, Db, "SELECT md5(string_agg(aid||':'||abalance,',' ORDER BY aid)) "
                  "FROM pgbench_accounts")}
         end || {Db, Port} <- [{"direct", Server}, {"proxied", Proxy}]],
    ?assert(byte_size(element(1, Direct)) > 100000),
    ?assert(Direct =:= Proxied),
    %% A connection for each transaction: connect and close under load.
    Short = real_proxy:done(Pgbench, pg(Proxy) ++ ["-n", "-C", "-S", "-c", "4", "-t", "50",
                                                   "proxied"]),
    ?assertNotEqual(nomatch, string:find(Short, "actually processed: 200/200")).

pg(Port) ->
    ["-h", "127.0.0.1", "-p", integer_to_list(Port), "-U", "postgres"].

start_postgresql(Dir) ->
    Port = real_proxy:free_port(),
    _ = real_proxy:done("/bin/chown", ["postgres", Dir]),
    as_postgres(["initdb", "-D", data(Dir), "-N", "-A", "trust", "-U", "postgres"]),
    Options = lists:concat(["-p ", Port, " -c listen_addresses=127.0.0.1 -c fsync=off "
                            "-c unix_socket_directories=", Dir]),
    as_postgres(["pg_ctl", "-D", data(Dir), "-w", "-l", filename:join(Dir, "log"),
                 "-o", Options, "start"]),
    Port.

stop_postgresql(Dir) ->
    filelib:is_regular(filename:join(data(Dir), "postmaster.pid"))
        andalso as_postgres(["pg_ctl", "-D", data(Dir), "-m", "immediate", "stop"]).

data(Dir) ->
    filename:join(Dir, "data").

%% PostgreSQL refuses to run as root.
as_postgres([Program | Args]) ->
    Path = real_os:need({Program, filelib:wildcard("/usr/lib/postgresql/*/bin")}, "postgresql"),
    case os:cmd("id -u") of
        "0\n" -> real_proxy:done(real_os:need("runuser", "util-linux"),
                      ["-u", "postgres", "--", Path | Args]);
        _ -> real_proxy:done(Path, Args)
    end.

%% redis-benchmark, pipelined and with large values, leaves the same keys behind.
redis(Config) ->
    Program = real_os:need("redis-server", "redis-server"),
    Bench = real_os:need("redis-benchmark", "redis-tools"),
    Cli = real_os:need("redis-cli", "redis-tools"),
    Server = real_proxy:free_port(),
    Redis = real_os:start(Program, ["--port", integer_to_list(Server), "--bind", "127.0.0.1",
                                    "--save", "", "--appendonly", "no",
                                    "--dir", proplists:get_value(dir, Config)]),
    real_os:wait_line(Redis, "Ready to accept connections"),
    {_, Proxy} = real_proxy:start(Server, []),
    Command = fun(Port, Args) -> real_proxy:done(Cli, ["-p", integer_to_list(Port) | Args]) end,
    Results =
        [begin
             _ = Command(Port, ["FLUSHALL"]),
             [begin
                  Said = real_proxy:done(Bench, ["-p", integer_to_list(Port), "--csv" | Args]),
                  ?assertEqual(nomatch, string:find(Said, "rror")),
                  ?assertNotEqual(nomatch, string:find(Said, Last))
              end || {Args, Last} <- [{["-n", "20000", "-c", "50", "-P", "8",
                                        "-t", "set,get,incr,lpush"], "LPUSH"},
                                      {["-n", "2000", "-c", "20", "-d", "65536",
                                        "-t", "set,get"], "GET"}]],
             Keys = lists:sort(string:lexemes(Command(Port, ["--raw", "KEYS", "*"]), "\n")),
             [{Key, Command(Port, ["DUMP", binary_to_list(Key)])} || Key <- Keys]
         end || Port <- [Server, Proxy]],
    [Direct, Proxied] = Results,
    ?assert(length(Direct) >= 3),
    ?assert(Direct =:= Proxied),
    ?assertEqual(<<"20000\n">>, Command(Proxy, ["--raw", "LLEN", "mylist"])).

%%% size and number

%% Every byte arrives once and in order: up, then down, each with a checksum of both ends.
big_transfer(_Config) ->
    Bytes = case os:getenv("ERLANE_LONG") of
                Long when Long =:= false; Long =:= "" -> 256 bsl 20;
                _ -> 1 bsl 30
            end,
    {_, Port} = real_proxy:start(real_upstream:start(#{}), []),
    Up = real_proxy:connect(Port),
    ok = gen_tcp:send(Up, <<"u">>),
    Sent = real_upstream:send_blocks(Up, Bytes div real_upstream:block()),
    ok = gen_tcp:shutdown(Up, write),
    {ok, <<Got:16/binary, Count:64>>} = gen_tcp:recv(Up, 24, ?WAIT_MS),
    ?assertEqual({Bytes, Sent}, {Count, Got}),
    Down = real_proxy:connect(Port),
    ok = gen_tcp:send(Down, <<"d", (Bytes div real_upstream:block()):64>>),
    {Received, Md5} = real_upstream:receive_all(Down),
    ?assertEqual({Bytes, Sent}, {Received, Md5}).

%% All are open at once, all answer, and again. One proxy holds them where the limit on
%% descriptors allows it; otherwise as few proxies as needed.
ten_thousand_connections(_Config) ->
    Total = 10000,
    Limit = descriptor_limit(),
    PerProxy = (Limit - 200) div 2,
    ?assert(Limit > Total + 500, "ulimit -Hn is too low for the clients"),
    {ok, Peer, _Node} = peer:start_link(#{connection => standard_io,
                                          args => ["-pa", filename:dirname(code:which(?MODULE))]}),
    Upstream = peer:call(Peer, real_upstream, start, [#{}], ?WAIT_MS),
    N = (Total + PerProxy - 1) div PerProxy,
    ct:pal("~b connections through ~b proxies (limit of ~b descriptors)", [Total, N, Limit]),
    Proxies = [real_proxy:start(Upstream, []) || _ <- lists:seq(1, N)],
    Ports = [Port || {_, Port} <- Proxies],
    Clients = [{I, real_proxy:connect(lists:nth(1 + I rem N, Ports))} || I <- lists:seq(1, Total)],
    [ok = gen_tcp:send(C, <<"e">>) || {_, C} <- Clients],
    [begin
         [ok = gen_tcp:send(C, <<Round, I:32>>) || {I, C} <- Clients],
         [?assertEqual({ok, <<Round, I:32>>}, gen_tcp:recv(C, 5, ?WAIT_MS)) || {I, C} <- Clients]
     end || Round <- [1, 2]],
    [ok = gen_tcp:close(C) || {_, C} <- Clients],
    [begin
         ok = real_os:signal(Proxy, "TERM"),
         ?assertEqual(0, real_os:wait_exit(Proxy)),
         real_os:wait_line(Proxy, " 0 reset")
     end || {Proxy, _} <- Proxies],
    peer:stop(Peer).

%%% hostile peers

%% kill -9 while it has unread input: its kernel sends a reset, and the client gets a reset.
upstream_killed_in_mid_stream(_Config) ->
    {ok, Peer, _Node} = peer:start(#{connection => standard_io,
                                     args => ["-pa", filename:dirname(code:which(?MODULE))]}),
    Upstream = peer:call(Peer, real_upstream, start, [#{}], ?WAIT_MS),
    OsPid = peer:call(Peer, os, getpid, []),
    {_, Port} = real_proxy:start(Upstream, []),
    Client = real_proxy:connect(Port),
    %% It streams and reads no more than this first byte.
    ok = gen_tcp:send(Client, [<<"s">>, binary:copy(<<0>>, 100000)]),
    {ok, _} = gen_tcp:recv(Client, 1 bsl 20, ?WAIT_MS),
    "" = os:cmd("kill -KILL " ++ OsPid),
    ?assertEqual(econnreset, drain_until_error(Client)),
    %% And the proxy is as well as before.
    ?assertEqual({error, econnreset}, real_proxy:refused(Port)).

%% Fifty clients that never read, an upstream that never stops: the upstream is held back,
%% the proxy's memory stays where it was, and others are served.
client_that_never_reads(_Config) ->
    Sent = counters:new(1, []),
    {Proxy, Port} = real_proxy:start(real_upstream:start(#{sent => Sent}), []),
    Vm = real_os:vm_pid(Proxy),
    Other = real_proxy:echo(Port),
    Before = real_os:rss_kb(Vm),
    Stalled = [real_proxy:connect(Port) || _ <- lists:seq(1, 50)],
    [ok = gen_tcp:send(C, <<"s">>) || C <- Stalled],
    real_os:until(fun() -> true = counters:get(Sent, 1) > 50 * real_upstream:block() end),
    %% Stalled: not a byte more within half a second.
    real_os:until(fun() ->
                          Now = counters:get(Sent, 1),
                          receive after 500 -> ok end,
                          Now = counters:get(Sent, 1)
                  end, 60000),
    Grown = real_os:rss_kb(Vm) - Before,
    ct:pal("~b kB more for 50 stalled connections, ~b MB in buffers of the kernel",
           [Grown, counters:get(Sent, 1) bsr 20]),
    %% At most 64 KB a direction, and as much again for the VM.
    ?assert(Grown < 50 * 256),
    Cpu = real_os:cpu_ms(Vm),
    [ok = real_proxy:echoed(Other) || _ <- lists:seq(1, 100)],
    ?assert(real_os:cpu_ms(Vm) - Cpu < 1000),
    [ok = gen_tcp:close(C) || C <- Stalled],
    ok = real_proxy:echoed(Other).

%% Each side ends its half first, once.
half_close(_Config) ->
    {_, Port} = real_proxy:start(real_upstream:start(#{}), []),
    One = real_proxy:connect(Port),
    ok = gen_tcp:send(One, <<"u", "abc">>),
    ok = gen_tcp:shutdown(One, write),
    Md5 = erlang:md5("abc"),
    ?assertEqual({ok, <<Md5/binary, 3:64>>}, gen_tcp:recv(One, 24, ?WAIT_MS)),
    ?assertEqual({error, closed}, gen_tcp:recv(One, 0, ?WAIT_MS)),
    Two = real_proxy:connect(Port),
    ok = gen_tcp:send(Two, <<"h">>),
    ?assertEqual({ok, <<"bye">>}, gen_tcp:recv(Two, 3, ?WAIT_MS)),
    ?assertEqual({error, closed}, gen_tcp:recv(Two, 0, ?WAIT_MS)),
    ok = gen_tcp:send(Two, <<"still heard">>),
    ok = gen_tcp:shutdown(Two, write),
    real_os:until(fun() -> <<"still heard">> = real_upstream:heard() end).

%% --idle-timeout
idle_timeout(_Config) ->
    {_, Port} = real_proxy:start(real_upstream:start(#{}), ["--idle-timeout", "1000"]),
    Client = real_proxy:echo(Port),
    Start = erlang:monotonic_time(millisecond),
    {error, _} = gen_tcp:recv(Client, 0, ?WAIT_MS),
    ?assert(erlang:monotonic_time(millisecond) - Start >= 900).

%% --max-connections: the third waits until one of two ends.
connection_limit(_Config) ->
    {_, Port} = real_proxy:start(real_upstream:start(#{}), ["--max-connections", "2"]),
    [One, Two, Three] = [real_proxy:connect(Port) || _ <- [1, 2, 3]],
    [ok = gen_tcp:send(C, <<"e">>) || C <- [One, Two, Three]],
    ok = real_proxy:echoed(One),
    ok = real_proxy:echoed(Two),
    ok = gen_tcp:send(Three, "ping"),
    ?assertEqual({error, timeout}, gen_tcp:recv(Three, 4, 300)),
    ok = gen_tcp:close(One),
    ?assertEqual({ok, <<"ping">>}, gen_tcp:recv(Three, 4, ?WAIT_MS)),
    ok = real_proxy:echoed(Two).

%% No descriptor left: a line in the log, no busy loop, and service goes on afterwards.
out_of_descriptors(_Config) ->
    Upstream = real_upstream:start(#{}),
    Proxy = real_os:start("/bin/sh", ["-c", "ulimit -n 100; exec \"$0\" \"$@\"",
                                      real_os:erlane() | real_proxy:args(Upstream, [])]),
    Port = real_proxy:port(Proxy),
    Vm = real_os:vm_pid(Proxy),
    First = real_proxy:echo(Port),
    Clients = [Socket || _ <- lists:seq(1, 150),
                         {ok, Socket} <- [gen_tcp:connect(?LOOPBACK, Port, [])]],
    real_os:wait_line(Proxy, "emfile"),
    Cpu = real_os:cpu_ms(Vm),
    receive after 1000 -> ok end,
    Used = real_os:cpu_ms(Vm) - Cpu,
    ?assert(Used < 300),
    ok = real_proxy:echoed(First),
    Lines = length(binary:matches(real_os:output(Proxy), <<"emfile">>)),
    ?assert(Lines =< 4),
    [gen_tcp:close(C) || C <- Clients],
    %% The acceptors wake from their pause, at most one second.
    real_os:until(fun() ->
                          {ok, C} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}]),
                          ok = gen_tcp:send(C, "e"),
                          ok = real_proxy:echoed(C),
                          ok = gen_tcp:close(C)
                  end),
    ok = real_proxy:echoed(First).

%% An upstream that is not there: the client is reset, the log names upstream and reason.
dead_upstream(_Config) ->
    Dead = real_proxy:free_port(),
    {Proxy, Port} = real_proxy:start(Dead, []),
    ?assertEqual({error, econnreset}, real_proxy:refused(Port)),
    real_os:wait_line(Proxy, lists:concat(["127\\.0\\.0\\.1:", Dead, ".*econnrefused"])),
    %% It comes up later: the proxy is still there.
    Dead = real_upstream:start(#{port => Dead}),
    _ = real_proxy:echo(Port).

%%% helpers

drain_until_error(Socket) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, _} -> drain_until_error(Socket);
        {error, Reason} -> Reason
    end.

descriptor_limit() ->
    case string:trim(os:cmd("ulimit -Hn")) of
        "unlimited" -> 1 bsl 20;
        N -> list_to_integer(N)
    end.
