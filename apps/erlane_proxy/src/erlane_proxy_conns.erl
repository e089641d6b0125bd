%% SPDX-License-Identifier: Apache-2.0
%% @doc The keeper of one acceptor and of the connections it accepted; one per lane.
%%
%% It knows each connection's process and relay, gives the slot back when the process has
%% ended, and resets what is left at the end of a drain. It is linked to all of them: nothing
%% outlives it.
%%
%% Messages: `{conn, Pid, Socket}' from the acceptor, `{relay, Pid, Ref}' from the connection.
-module(erlane_proxy_conns).
-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start_link/1, drain/1, reset/1, live/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([shared/0]).

-type shared() :: #{name := erlane_proxy:name(),
                    listener := pid(),
                    socket := gen_tcp:socket(),
                    slots := erlane_proxy_slots:slots(),
                    stats := erlane_proxy_stats:stats(),
                    log := erlane_proxy_log:limiter(),
                    config := erlane_proxy_options:config(),
                    lane := pos_integer(),
                    index := pos_integer()}.
%% What acceptor, keeper and connections of one lane share.

-record(state, {shared :: shared(),
                acceptor :: pid() | undefined,
                conns = #{} :: #{pid() => {client, gen_tcp:socket()} | {relay, term()}},
                mode = serving :: serving | draining | resetting | drained,
                finished = 0 :: non_neg_integer(),
                reset = 0 :: non_neg_integer()}).

%% A crashed acceptor comes back after this pause, so that a bug cannot spin.
-define(RESTART_MS, 100).
%% A connection that was reset has this long to end; then its process is killed.
-define(KILL_MS, 2000).

-spec start_link(shared()) -> {ok, pid()} | {error, term()}.
start_link(Shared = #{lane := Lane}) ->
    gen_server:start_link(?MODULE, Shared,
                          [{spawn_opt, erlane_proxy_lane:spawn_options(Lane)}]).

%% @doc From now on an ending acceptor is expected. `{drained, self(), Counts}' goes to the
%% listener when the acceptor and the last connection are gone.
-spec drain(pid()) -> ok.
drain(Keeper) ->
    gen_server:call(Keeper, drain, infinity).

%% @doc Resets all connections that are left.
-spec reset(pid()) -> ok.
reset(Keeper) ->
    gen_server:cast(Keeper, reset).

%% @doc Open connections, and their bytes so far to the upstream and to the client.
-spec live(pid()) -> {Connections, ToUpstream, ToClient}
              when Connections :: non_neg_integer(),
                   ToUpstream :: non_neg_integer(),
                   ToClient :: non_neg_integer().
live(Keeper) ->
    gen_server:call(Keeper, live, infinity).

-spec init(shared()) -> {ok, #state{}}.
init(Shared) ->
    process_flag(trap_exit, true),
    {ok, #state{shared = Shared, acceptor = erlane_proxy_acceptor:start_link(Shared)}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(live, _From, State = #state{conns = Conns}) ->
    {Up, Down} = maps:fold(fun live/3, {0, 0}, Conns),
    {reply, {map_size(Conns), Up, Down}, State};
handle_call(drain, _From, State) ->
    {reply, ok, drained(State#state{mode = draining})}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(reset, State = #state{conns = Conns, mode = draining}) ->
    maps:foreach(fun reset/2, Conns),
    _ = erlang:send_after(?KILL_MS, self(), kill),
    {noreply, State#state{mode = resetting, reset = map_size(Conns)}};
handle_cast(reset, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({conn, Pid, Socket}, State) ->
    %% If Pid is dead already, its exit signal comes all the same, with reason noproc.
    link(Pid),
    {noreply, opened(Pid, {client, Socket}, State)};
handle_info({relay, Pid, Ref}, State) ->
    %% A relay that began after the reset of a drain is reset here.
    State#state.mode =:= resetting andalso reset(Pid, {relay, Ref}),
    {noreply, State#state{conns = maps:update(Pid, {relay, Ref}, State#state.conns)}};
handle_info({'EXIT', Pid, Reason}, State = #state{acceptor = Pid}) ->
    {noreply, acceptor_ended(Reason, State#state{acceptor = undefined})};
handle_info({'EXIT', Pid, _Reason}, State = #state{conns = Conns}) ->
    case maps:take(Pid, Conns) of
        {_, Rest} -> {noreply, ended(State#state{conns = Rest})};
        error -> {noreply, State}
    end;
handle_info(restart_acceptor, State = #state{mode = serving, shared = Shared}) ->
    {noreply, State#state{acceptor = erlane_proxy_acceptor:start_link(Shared)}};
handle_info(restart_acceptor, State) ->
    {noreply, State};
handle_info(kill, State = #state{conns = Conns}) ->
    [exit(Pid, kill) || Pid <- maps:keys(Conns)],
    {noreply, State}.

opened(Pid, Value, State = #state{conns = Conns, mode = resetting, reset = N}) ->
    reset(Pid, Value),
    State#state{conns = Conns#{Pid => Value}, reset = N + 1};
opened(Pid, Value, State = #state{conns = Conns}) ->
    State#state{conns = Conns#{Pid => Value}}.

ended(State = #state{mode = Mode, finished = N}) ->
    give_back(1, State),
    case Mode of
        draining -> drained(State#state{finished = N + 1});
        _ -> drained(State)
    end.

acceptor_ended(Reason, State = #state{shared = Shared, conns = Conns, mode = Mode}) ->
    #{slots := Slots, index := I, name := Name} = Shared,
    %% The slot it had taken for its next connection. Its last connection is in Conns: the
    %% message that told us came before its exit signal.
    give_back(erlane_proxy_slots:held(Slots, I) - map_size(Conns), State),
    case {Mode, Reason} of
        {serving, {shutdown, closed}} ->
            exit(listening_socket_lost);
        {serving, _} ->
            ?LOG_ERROR("proxy ~ts: an acceptor crashed: ~0tp", [Name, Reason]),
            _ = erlang:send_after(?RESTART_MS, self(), restart_acceptor),
            State;
        {_, _} ->
            drained(State)
    end.

give_back(N, #state{shared = #{slots := Slots, index := I, listener := Listener}}) ->
    case erlane_proxy_slots:give(Slots, I, N) of
        true -> Listener ! slot_free, ok;
        false -> ok
    end.

%% Tells the listener, once, when nothing is left.
drained(State = #state{acceptor = undefined, conns = Conns, mode = Mode})
  when map_size(Conns) =:= 0, Mode =/= serving, Mode =/= drained ->
    #state{shared = #{listener := Listener}, finished = Finished, reset = Reset} = State,
    Listener ! {drained, self(), #{finished => Finished, reset => Reset}},
    State#state{mode = drained};
drained(State) ->
    State.

live(_Pid, {client, _Socket}, Sum) ->
    Sum;
live(_Pid, {relay, Ref}, {Up, Down}) ->
    case erlane_socket:relay_info(Ref) of
        #{to_b := ToB, to_a := ToA} -> {Up + ToB, Down + ToA};
        undefined -> {Up, Down}
    end.

reset(_Pid, {relay, Ref}) ->
    erlane_socket:relay_stop(Ref, reset);
reset(Pid, {client, Socket}) ->
    %% Not connected to its upstream yet, waiting in gen_tcp:connect.
    erlane_proxy_conn:abort(Socket),
    exit(Pid, shutdown),
    ok.
