%% SPDX-License-Identifier: Apache-2.0
%% Real nodes for the suites, spoken to over standard input and output: the distribution is
%% theirs alone. Functions given to on/2 run there.
-module(erlane_router_ct).

-export([start/0, start/1, stop/1, node/1, on/2, until/1, until/2, stats/2, flushes/2, lanes/1]).
-export([page/0, processes/0, reductions/1, reporter/1, reported/0]).
-export([sink/1, sink/0, take/1, taken/2, signal/2, kill/1, os_pid/1, host/0, apply_fun/1]).

-include_lib("stdlib/include/assert.hrl").

-define(MS, 30000).

%% A node with the router running; `app => false': without; `env': its configuration.
start() -> start(#{}).

start(Options) ->
    _ = os:cmd("epmd -daemon"),
    Paths = [filename:dirname(code:which(M)) || M <- [?MODULE, erlane_router, erlane_metrics]],
    Name = maps:get(name, Options, peer:random_name()),
    {ok, Peer, Node} =
        peer:start(#{name => Name, host => "127.0.0.1", longnames => true, wait_boot => ?MS,
                     connection => standard_io,
                     args => ["-setcookie", "erlane_router_ct", "-connect_all", "false", "-kernel",
                              "prevent_overlapping_partitions", "false", "-pa" | Paths]}),
    %% Standard input and output end with a killed node, the process that speaks to it, too.
    OsPid = peer:call(Peer, os, getpid, []),
    N = #{peer => Peer, node => Node, os_pid => OsPid, name => Name},
    [ok = peer:call(Peer, application, set_env, [erlane_router, Key, Value])
     || {Key, Value} <- maps:get(env, Options, [])],
    case Options of
        #{app := false} -> N;
        #{} -> {ok, _} = peer:call(Peer, application, ensure_all_started, [erlane_router]), N
    end.

stop(#{peer := Peer} = N) ->
    %% It may be stopped by a signal.
    signal(N, "CONT"),
    try peer:stop(Peer)
    catch exit:_ -> ok
    end,
    signal(N, "KILL").

node(#{node := Node}) -> Node.

os_pid(#{os_pid := Pid}) -> Pid.

host() -> "127.0.0.1".

signal(#{os_pid := Pid}, Signal) ->
    _ = os:cmd("kill -" ++ Signal ++ " " ++ Pid),
    ok.

kill(N) -> signal(N, "KILL").

on(#{peer := Peer}, Fun) ->
    case peer:call(Peer, ?MODULE, apply_fun, [Fun], ?MS) of
        {ok, Result} -> Result;
        {Class, Reason, Stack} -> erlang:raise(Class, Reason, Stack)
    end.

apply_fun(Fun) ->
    try {ok, Fun()}
    catch Class:Reason:Stack -> {Class, Reason, Stack}
    end.

until(Fun) -> until(Fun, 20000).

%% Until a function raises no more; its value.
until(Fun, Ms) -> again(Fun, erlang:monotonic_time(millisecond) + Ms).

again(Fun, End) ->
    try Fun()
    catch Class:Reason:Stack ->
            case erlang:monotonic_time(millisecond) > End of
                true -> erlang:raise(Class, Reason, Stack);
                false -> receive after 10 -> again(Fun, End) end
            end
    end.

%% On a node: a figure of all lanes to another one, summed.
stats(Node, Key) ->
    lists:sum([maps:get(Key, Figures)
               || {{At, _}, Figures} <- maps:to_list(erlane_router:info()), At =:= Node]).

%% The same of batches with this cause.
flushes(Node, Cause) ->
    lists:sum([maps:get(Cause, Flushes)
               || {{At, _}, #{flushes := Flushes}} <- maps:to_list(erlane_router:info()),
                  At =:= Node]).

%% On a node: the processes of the lanes to another one.
lanes(Node) -> tuple_to_list(element(3, persistent_term:get({erlane_router, Node}))).

%% A process on a node that keeps what it gets, until somebody takes it.
sink(Node) -> erpc:call(Node, ?MODULE, sink, []).

sink() -> spawn(fun() -> keep([]) end).

keep(Got) ->
    receive
        {?MODULE, take, From, Ref} -> From ! {Ref, lists:reverse(Got)}, keep([]);
        Message -> keep([Message | Got])
    end.

take(Sink) ->
    Ref = make_ref(),
    Sink ! {?MODULE, take, self(), Ref},
    receive {Ref, Got} -> Got after ?MS -> error({no_answer, Sink}) end.

%% At least so many, all that there are.
taken(Sink, N) -> taken(Sink, N, []).

taken(Sink, N, Before) ->
    Got = Before ++ take(Sink),
    case length(Got) of
        L when L >= N -> Got;
        _ -> receive after 5 -> taken(Sink, N, Got) end
    end.

%% On a node: its page of metrics.
page() ->
    Format = erlane_metrics:negotiate(undefined),
    erlane_metrics:expose(Format, fun(Part, Page) -> [Page, Part] end, []).

%% On a node: all of the router.
processes() ->
    Lanes = lists:append([tuple_to_list(element(3, Peer))
                          || {{erlane_router, _}, Peer} <- persistent_term:get()]),
    Named = [whereis(N) || N <- [erlane_router_gate, erlane_router_peers, erlane_router_report]],
    {links, Partners} = process_info(whereis(erlane_router_gate), links),
    Lanes ++ Named ++ Partners.

reductions(Pids) -> [{Pid, process_info(Pid, reductions)} || Pid <- Pids].

%% On a node: adds up what subscribers hear of another one.
reporter(Node) ->
    Self = self(),
    Pid = spawn(fun() ->
                    true = register(?MODULE, self()),
                    ok = erlane_router:subscribe(),
                    Self ! {self(), ready},
                    add(Node, 0, 0)
                end),
    receive {Pid, ready} -> Pid end.

add(Node, D, U) ->
    receive
        {erlane_router, down, Node, #{dropped := Dropped, unconfirmed := Unconfirmed}} ->
            add(Node, D + Dropped, U + Unconfirmed);
        {From, sum} ->
            From ! {self(), D, U},
            add(Node, D, U)
    end.

reported() ->
    Pid = whereis(?MODULE),
    Pid ! {self(), sum},
    receive {Pid, D, U} -> {D, U} end.
