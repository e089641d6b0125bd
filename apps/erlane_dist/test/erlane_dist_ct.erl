%% SPDX-License-Identifier: Apache-2.0
%% Real nodes for the suites: started and spoken to over standard input and output, so that the
%% distribution is theirs alone.
-module(erlane_dist_ct).

-include_lib("stdlib/include/assert.hrl").

-export([start/0, start/1, start/2, stop/1, name/1, call/4, connect/2, kill/1, until/1]).
-export([tune/2, check/1, on/2, keys/2, tuned/0, tuned/2, tuned/3, settings/1]).
-export([settings/0, apply_fun/1, hold/1, flood/1, page/0]).

-define(WAIT_MS, 60000).

start() -> start([]).

start(Args) -> start(Args, #{}).

%% `bare': without our code. No connections but those that a case makes: global would make others,
%% and end some to keep partitions from overlapping.
start(Args, Opts) ->
    Paths = case Opts of
                #{bare := true} -> [];
                _ -> lists:append([["-pa", filename:dirname(code:which(M))]
                                   || M <- [?MODULE, erlane_dist, erlane_metrics]])
            end,
    {ok, Peer, Node} =
        peer:start(maps:merge(#{name => peer:random_name(), connection => standard_io,
                                wait_boot => 30000,
                                args => ["-connect_all", "false", "-kernel",
                                         "prevent_overlapping_partitions", "false"
                                         | Args ++ Paths]},
                              maps:remove(bare, Opts))),
    {Peer, Node}.

%% One that was killed is stopped already.
stop(Nodes) ->
    lists:foreach(fun({Peer, _}) ->
                          try peer:stop(Peer)
                          catch exit:_ -> ok
                          end
                  end, Nodes).

name({_, Node}) -> Node.

call({Peer, _}, M, F, A) -> peer:call(Peer, M, F, A, 30000).

%% The first connects, the second accepts.
connect(From, {_, Node} = To) ->
    true = call(From, net_kernel, connect_node, [Node]),
    %% The second may still be about to notice.
    until(fun() -> true = lists:keymember(name(From), 1, call(To, erlang, system_info,
                                                              [dist_ctrl])) end),
    ok.

%% At once, by the operating system.
kill(Node) ->
    Pid = call(Node, os, getpid, []),
    "" = os:cmd("kill -KILL " ++ Pid),
    ok.

%%% What is asked of a node

tune(Node, Opts) -> call(Node, erlane_dist, tune, [Opts]).

check(Node) -> call(Node, erlane_dist, check, []).

settings(Node) -> call(Node, ?MODULE, settings, []).

on(Node, Fun) -> call(Node, ?MODULE, apply_fun, [Fun]).

keys(Changes, Node) -> lists:sort([Key || #{where := Where, key := Key} <- Changes,
                                          Where =:= Node]).

%% What a tune without options makes of a stock node.
tuned() ->
    #{buffer => 262144, delay_send => true, high_watermark => 1048576,
      low_watermark => 1048576}.

%% Fails unless all of it is: connections to these peers, listener, environment.
tuned(Node, Peers) -> tuned(Node, Peers, [connections, listener, env]).

tuned(Node, Peers, What) ->
    #{connections := Connections, listener := Listener, env := [Connect, Listen | _]} =
        settings(Node),
    Opts = [Opts || connections <- What, {Peer, Opts} <- maps:to_list(Connections),
                    lists:member(Peer, Peers)]
        ++ [Opts || listener <- What, {ok, Opts} <- Listener]
        ++ [Opts || env <- What, {ok, Opts} <- [Connect, Listen]],
    ?assertEqual(length(Peers), length([P || P <- Peers, is_map_key(P, Connections)])),
    [?assertEqual(tuned(), maps:from_list([O || {Key, _} = O <- Of, is_map_key(Key, tuned())]))
     || Of <- Opts].

%%% What runs on a node

%% Everything that a tune may touch.
settings() ->
    Keys = [buffer, delay_send, high_watermark, low_watermark, sndbuf, recbuf, nodelay],
    Kernel = whereis(net_kernel),
    {links, Links} = process_info(Kernel, links),
    #{env => [application:get_env(kernel, Name)
              || Name <- [inet_dist_connect_options, inet_dist_listen_options, dist_nodelay]],
      listener => [inet:getopts(Port, Keys)
                   || Port <- lists:sort(Links), is_port(Port),
                      erlang:port_info(Port, connected) =:= {connected, Kernel}],
      connections => maps:from_list([{Node, case is_port(C) of
                                                true -> element(2, inet:getopts(C, Keys));
                                                false -> C
                                            end}
                                     || {Node, C} <- erlang:system_info(dist_ctrl)])}.

%% Of this module, so that a fun of a suite can run where the suite is.
apply_fun(Fun) -> Fun().

%% A process that has the system monitor.
hold(Event) ->
    true = register(erlane_dist_ct_holder, self()),
    _ = erlang:system_monitor(self(), [Event]),
    receive never -> ok end.

%% Sends until it is suspended, and then again.
flood(To) ->
    To ! binary:copy(<<0>>, 10000),
    flood(To).

page() ->
    Format = erlane_metrics:negotiate(undefined),
    iolist_to_binary(lists:reverse(
                       erlane_metrics:expose(Format, fun(Part, Acc) -> [Part | Acc] end, []))).

%% The value of Fun once it no longer fails.
until(Fun) ->
    until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Deadline) ->
    try Fun()
    catch
        error:Reason:Stack ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> receive after 20 -> until(Fun, Deadline) end;
                false -> erlang:raise(error, Reason, Stack)
            end
    end.
