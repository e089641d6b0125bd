%% SPDX-License-Identifier: Apache-2.0
%% @doc An acceptor: one loop. Take a slot, accept, hand the socket to a new connection.
-module(erlane_proxy_acceptor).

-export([start_link/1]).
-export([loop/3]).

%% Pause after a failed accept: doubled up to the maximum, reset by a success.
-define(MIN_PAUSE_MS, 100).
-define(MAX_PAUSE_MS, 1000).

%% @doc Called by the keeper, on whose lane the acceptor runs.
-spec start_link(erlane_proxy_conns:shared()) -> pid().
start_link(Shared = #{lane := Lane}) ->
    spawn_opt(?MODULE, loop, [Shared#{keeper => self()}, erlane_proxy_conn:context(Shared),
                              ?MIN_PAUSE_MS],
              [link | erlane_proxy_lane:spawn_options(Lane)]).

%% @private
-spec loop(map(), erlane_proxy_conn:context(), pos_integer()) -> no_return().
loop(Shared = #{slots := Slots, index := I}, Context, Pause) ->
    case erlane_proxy_slots:take(Slots, I) of
        ok -> accept(Shared, Context, Pause);
        full -> wait(Shared, Context, Pause)
    end.

%% At the limit. The backlog holds whoever comes, until the listener says retry.
wait(Shared = #{slots := Slots, listener := Listener}, Context, Pause) ->
    ok = erlane_proxy_slots:wait(Slots),
    Listener ! {wait, self()},
    receive
        retry ->
            ok = erlane_proxy_slots:wait_over(Slots),
            loop(Shared, Context, Pause);
        stop ->
            ok = erlane_proxy_slots:wait_over(Slots),
            exit(normal)
    end.

%% A slot is held from here on, by us or by the connection.
accept(Shared = #{socket := Listen}, Context, Pause) ->
    case gen_tcp:accept(Listen) of
        {ok, Client} ->
            hand_over(Client, Shared, Context),
            loop(Shared, Context, ?MIN_PAUSE_MS);
        {error, closed} ->
            exit({shutdown, closed});
        {error, Aborted} when Aborted =:= econnaborted; Aborted =:= eproto ->
            %% The client went away while it waited in the backlog.
            accept(Shared, Context, Pause);
        {error, Reason} ->
            %% EMFILE, ENFILE, ENOMEM: the connection stays in the backlog and a retry at
            %% once would only spin.
            failed(Reason, Shared),
            receive after Pause -> ok end,
            accept(Shared, Context, min(2 * Pause, ?MAX_PAUSE_MS))
    end.

hand_over(Client, #{keeper := Keeper, stats := Stats}, Context) ->
    erlane_proxy_stats:add(Stats, accepted),
    Pid = erlane_proxy_conn:start(Keeper, Context),
    Keeper ! {conn, Pid, Client},
    case gen_tcp:controlling_process(Client, Pid) of
        ok ->
            Pid ! {client, Client},
            ok;
        {error, _} ->
            gen_tcp:close(Client),
            exit(Pid, shutdown)
    end.

failed(Reason, #{log := Log, name := Name, stats := Stats}) ->
    erlane_proxy_stats:add(Stats, accept_errors),
    erlane_proxy_log:accept_failed(Log, Name, Reason).
