%% SPDX-License-Identifier: Apache-2.0
%% @doc The control process of one connection: connect to the upstream, join the two sockets,
%% sleep until the lane reports the end. No byte passes through it.
-module(erlane_proxy_conn).

-export([context/1, start/2, abort/1]).
-export([init/2, ended/2]).

-export_type([context/0]).

-type context() :: #{name := erlane_proxy:name(),
                     lane := pos_integer(),
                     stats := erlane_proxy_stats:stats(),
                     log := erlane_proxy_log:limiter(),
                     to := erlane_proxy_address:resolved(),
                     connect := [term()],
                     connect_timeout := pos_integer(),
                     relay := map()}.

%% The acceptor hands its socket over at once; it can only be missing if the acceptor died.
-define(HAND_OVER_MS, 5000).

%% @doc What every connection of a lane needs, made once.
-spec context(erlane_proxy_conns:shared()) -> context().
context(#{config := Config} = Shared) ->
    #{to := To, connect_timeout := Timeout} = Config,
    (maps:with([name, lane, stats, log], Shared))
        #{to => To,
          connect => connect_options(To),
          connect_timeout => Timeout,
          relay => maps:with([idle_timeout, half_close_timeout, half_close], Config)}.

connect_options(To) ->
    NoDelay = case To of
                  {local, _} -> [];
                  _ -> [{nodelay, true}]
              end,
    [{inet_backend, inet}, {tcp_module, erlane_proxy_address:tcp_module(To)},
     binary, {active, false} | NoDelay].

%% @doc Starts a connection's process on its lane; `{client, Socket}' must follow.
-spec start(pid(), context()) -> pid().
start(Keeper, Context = #{lane := Lane}) ->
    spawn_opt(?MODULE, init, [Keeper, Context], erlane_proxy_lane:spawn_options(Lane)).

%% @doc Closes a socket so that the peer sees a reset, not an orderly end.
-spec abort(gen_tcp:socket()) -> ok.
abort(Socket) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    gen_tcp:close(Socket).

%% @private
-spec init(pid(), context()) -> ok.
init(Keeper, Context) ->
    receive
        {client, Client} -> connect(Client, Keeper, Context)
    after ?HAND_OVER_MS ->
        ok
    end.

connect(Client, Keeper, Context = #{to := To, connect := Opts, connect_timeout := Timeout}) ->
    {Host, Port} = case To of
                       {local, _} -> {To, 0};
                       _ -> To
                   end,
    case gen_tcp:connect(Host, Port, Opts, Timeout) of
        {ok, Server} ->
            relay(Client, Server, Keeper, Context);
        {error, Reason} ->
            #{stats := Stats, log := Log, name := Name} = Context,
            erlane_proxy_stats:add(Stats, connect_errors),
            abort(Client),
            erlane_proxy_log:connect_failed(Log, Name, To, Reason)
    end.

relay(Client, Server, Keeper, #{relay := Opts, stats := Stats}) ->
    erlane_proxy_stats:add(Stats, connected),
    case erlane_socket:relay(Client, Server, Opts) of
        {ok, Ref} ->
            Keeper ! {relay, self(), Ref},
            erlang:hibernate(?MODULE, ended, [Ref, Stats]);
        {error, Reason} ->
            %% One of the two was gone before the relay began.
            erlane_proxy_stats:add(Stats, erlane_proxy_stats:ended({error, Reason})),
            abort(Client),
            abort(Server)
    end.

%% @private Woken by the one message of the relay; both sockets are closed by then.
-spec ended(term(), erlane_proxy_stats:stats()) -> ok.
ended(Ref, Stats) ->
    receive
        {erlane_relay, Ref, #{reason := Reason, to_b := ToUpstream, to_a := ToClient}} ->
            erlane_proxy_stats:add(Stats, to_upstream, ToUpstream),
            erlane_proxy_stats:add(Stats, to_client, ToClient),
            erlane_proxy_stats:add(Stats, erlane_proxy_stats:ended(Reason))
    end.
