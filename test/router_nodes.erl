%% SPDX-License-Identifier: Apache-2.0
%% Nodes of the router's suites, as the test sees them: operating system processes spoken to over
%% their standard input and output, so that the test's own words need no distribution. The test
%% itself is no node. Every process is remembered and ended by its id in cleanup/0.
-module(router_nodes).

-export([open/0, cleanup/0, close/0, start/2, start_all/1, restart/1, kill/1, freeze/1,
         thaw/1, call/4, call/5, node/1, port/1, id/1, rss_kb/1, until/1, until/2]).

-define(TABLE, ?MODULE).
-define(COOKIE, "erlane_router").
-define(CALL_MS, 60000).
-define(BOOT_MS, 40000).

%% The table of processes outlives the process that runs a case.
-spec open() -> ok.
open() ->
    Self = self(),
    _ = spawn(fun() ->
                      ?TABLE = ets:new(?TABLE, [named_table, public]),
                      true = register(?MODULE, self()),
                      Self ! {?MODULE, open},
                      receive close -> ok end
              end),
    receive {?MODULE, open} -> ok end.

%% Ends whatever runs. What is frozen ends, too.
-spec cleanup() -> ok.
cleanup() ->
    [finish(OsPid, Peer) || {OsPid, Peer} <- ets:tab2list(?TABLE), is_pid(Peer)],
    ok.

-spec close() -> ok.
close() ->
    ok = cleanup(),
    Ref = monitor(process, ?MODULE),
    ?MODULE ! close,
    receive {'DOWN', Ref, process, _, _} -> ok end.

%% A node. Options:
%%   space => {router_space:make/1, N}   in this namespace; else on 127.0.0.1
%%   app => false                        erlane_router is not started, nor found
%%   later => true                       not started yet, but there
%%   env => [{Key, Value}]               configuration of erlane_router
%%   args => [string()]                  of erl
%%   tick, setup => seconds              when a silent connection ends; how long one may take
-spec start(atom(), map()) -> map().
start(Name, Options) ->
    boot(new(Name, Options)).

%% Several at once.
-spec start_all([{atom(), map()}]) -> [map()].
start_all(Nodes) ->
    Self = self(),
    Booting = [{spawn_monitor(fun() -> Self ! {self(), boot(Node)} end), Name}
               || {Name, Options} <- Nodes, Node <- [new(Name, Options)]],
    [receive
         {Pid, Node} -> demonitor(Ref, [flush]), Node;
         {'DOWN', Ref, process, Pid, Reason} -> error({Name, Reason})
     end || {{Pid, Ref}, Name} <- Booting].

new(Name, Options) ->
    Port = free_port(Options),
    #{name => lists:concat([Name, "_", Port]), host => host(Options), port => Port, id => Name,
      options => Options}.

%% Another incarnation under the same name and port.
-spec restart(map()) -> map().
restart(Node) ->
    boot(maps:without([os_pid, peer], Node)).

%% Others are let in only when the application runs: without it they would take to plain sends.
boot(#{name := Name, host := Host, options := Options} = Node0) ->
    Peer0 = #{name => Name, host => Host, longnames => true, connection => standard_io,
              wait_boot => ?BOOT_MS, shutdown => close, args => args(Options), env => env(Options)},
    Exec = case Options of
               #{space := {Space, N}} ->
                   #{exec => {os:find_executable("ip"),
                              ["netns", "exec", router_space:name(Space, N), "erl"]}};
               #{} ->
                   #{}
           end,
    {ok, Peer, _} = peer:start(maps:merge(Peer0, Exec)),
    OsPid = peer:call(Peer, os, getpid, [], ?CALL_MS),
    true = ets:insert(?TABLE, {OsPid, Peer}),
    Node = Node0#{peer => Peer, os_pid => OsPid},
    ok = call(Node, router_node, start, [Options]),
    true = call(Node, erlang, set_cookie, [list_to_atom(?COOKIE)]),
    Node.

args(Options) ->
    Number = fun(Key, Default) -> integer_to_list(maps:get(Key, Options, Default)) end,
    ["-pa", filename:dirname(code:which(?MODULE)), "-setcookie", "not_yet",
     "-epmd_module", "router_epmd", "-start_epmd", "false", "-connect_all", "false",
     "-kernel", "net_ticktime", Number(tick, 60), "net_setuptime", Number(setup, 7),
     "prevent_overlapping_partitions", "false", "logger_level", "none",
     "+S", "2:2", "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"
     | maps:get(args, Options, [])].

env(#{app := false}) -> [{"ERL_LIBS", ""}];
env(#{}) -> [].

host(#{space := {_, N}}) -> router_space:address(N);
host(#{}) -> "127.0.0.1".

free_port(#{space := {_, N}}) ->
    4000 + N;
free_port(#{}) ->
    {ok, Socket} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Port.

-spec node(map()) -> node().
node(#{name := Name, host := Host}) ->
    list_to_atom(Name ++ "@" ++ Host).

-spec port(map()) -> inet:port_number().
port(#{port := Port}) -> Port.

-spec id(map()) -> atom().
id(#{id := Id}) -> Id.

%% Calls on the node itself, not over the distribution.
-spec call(map(), module(), atom(), [term()]) -> term().
call(Node, M, F, A) ->
    call(Node, M, F, A, ?CALL_MS).

-spec call(map(), module(), atom(), [term()], timeout()) -> term().
call(#{peer := Peer}, M, F, A, Timeout) ->
    peer:call(Peer, M, F, A, Timeout).

%% Without warning; the process is gone afterwards.
-spec kill(map()) -> ok.
kill(#{os_pid := OsPid, peer := Peer}) ->
    finish(OsPid, Peer).

finish(OsPid, Peer) ->
    Ref = monitor(process, Peer),
    _ = signal(OsPid, "KILL"),
    receive {'DOWN', Ref, process, Peer, _} -> ok
    after 10000 -> exit(Peer, kill)
    end,
    until(fun() -> false = filelib:is_dir("/proc/" ++ OsPid) end),
    true = ets:delete(?TABLE, OsPid),
    unwatch(OsPid).

%% A node ends with the test, as its standard input does; a frozen one would not notice. So a
%% shell waits beside it to wake it then.
-spec freeze(map()) -> ok.
freeze(#{os_pid := OsPid}) ->
    "" = signal(OsPid, "STOP"),
    Shell = open_port({spawn_executable, "/bin/sh"},
                      [{args, ["-c", "read _; kill -CONT $0 2>/dev/null", OsPid]}]),
    true = ets:insert(?TABLE, {{frozen, OsPid}, Shell}),
    %% Its threads stop one after the other, each when it runs next.
    until(fun() -> true = lists:all(fun stopped/1, filelib:wildcard("/proc/" ++ OsPid ++
                                                                        "/task/*/stat")) end),
    ok.

stopped(File) ->
    case file:read_file(File) of
        {ok, Stat} -> hd(lists:last(string:split(binary_to_list(Stat), ") ", trailing))) =:= $T;
        {error, _} -> true
    end.

-spec thaw(map()) -> ok.
thaw(#{os_pid := OsPid}) ->
    "" = signal(OsPid, "CONT"),
    unwatch(OsPid).

%% Returns when the shell has ended: it wakes the node, and must not do that when the next freeze
%% has begun.
unwatch(OsPid) ->
    [begin
         true = port_close(Shell),
         until(fun() -> false = filelib:is_dir("/proc/" ++ integer_to_list(Pid)) end)
     end || {_, Shell} <- ets:take(?TABLE, {frozen, OsPid}),
            {os_pid, Pid} <- [erlang:port_info(Shell, os_pid)]],
    ok.

signal(OsPid, Signal) ->
    os:cmd("kill -" ++ Signal ++ " " ++ OsPid ++ " 2>&1").

-spec rss_kb(map()) -> pos_integer().
rss_kb(#{os_pid := OsPid}) ->
    real_os:rss_kb(list_to_integer(OsPid)).

%% The value of Fun once it no longer fails.
-spec until(fun(() -> T)) -> T.
until(Fun) -> real_os:until(Fun).

-spec until(fun(() -> T), pos_integer()) -> T.
until(Fun, Ms) -> real_os:until(Fun, Ms).
