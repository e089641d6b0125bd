%% SPDX-License-Identifier: Apache-2.0
%% @doc One listener: owns the listening socket, wakes acceptors at the limit, drains.
%%
%% It starts one keeper ({@link erlane_proxy_conns}) per acceptor and is linked to them: they
%% fail together, and the supervisor opens the whole listener anew.
%%
%% Messages of acceptors and keepers: `{wait, Acceptor}' (the limit is reached),
%% `slot_free' (a slot was given back while somebody waits), `{drained, Keeper, Drained}'.
-module(erlane_proxy_listener).
-behaviour(gen_server).

-export([start_link/3, drain/2, info/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-record(state, {name :: erlane_proxy:name(),
                config :: erlane_proxy_options:config(),
                stats :: erlane_proxy_stats:stats(),
                slots :: erlane_proxy_slots:slots(),
                socket :: gen_tcp:socket(),
                address :: erlane_proxy_address:resolved(),
                keepers = [] :: [pid()],
                waiting = queue:new() :: queue:queue(pid()),
                drain = no :: no | drain() | {done, erlane_proxy:drained()}}).

%% A running drain: who asked, the deadline, who still has connections, what came so far.
-type drain() :: {[gen_server:from()], reference() | undefined, [pid()], erlane_proxy:drained()}.

-spec start_link(erlane_proxy:name(), erlane_proxy_options:config(),
                 erlane_proxy_stats:stats()) -> {ok, pid()} | {error, term()}.
start_link(Name, Config, Stats) ->
    gen_server:start_link(?MODULE, [Name, Config, Stats], []).

%% @doc See {@link erlane_proxy:drain/2}.
-spec drain(pid(), non_neg_integer()) -> erlane_proxy:drained().
drain(Listener, Ms) ->
    gen_server:call(Listener, {drain, Ms}, infinity).

%% @doc See {@link erlane_proxy:info/1}.
-spec info(pid()) -> erlane_proxy:info().
info(Listener) ->
    gen_server:call(Listener, info, infinity).

-spec init([term()]) -> {ok, #state{}} | {stop, {shutdown, term()}}.
init([Name, Config, Stats]) ->
    process_flag(trap_exit, true),
    #{listen := Address, max_connections := Max} = Config,
    case listen(Address, maps:get(backlog, Config)) of
        {ok, Socket, Bound} ->
            Lanes = lanes(Config),
            Slots = erlane_proxy_slots:new(Max, length(Lanes)),
            Shared = #{name => Name, listener => self(), socket => Socket, slots => Slots,
                       stats => Stats, log => erlane_proxy_log:new(), config => Config},
            Keepers = [keeper(Shared#{lane => Lane, index => I})
                       || {I, Lane} <- lists:zip(lists:seq(1, length(Lanes)), Lanes)],
            {ok, #state{name = Name, config = Config, stats = Stats, slots = Slots,
                        socket = Socket, address = Bound, keepers = Keepers}};
        {error, Reason} ->
            {stop, {shutdown, {listen, {Reason, Address}}}}
    end.

listen(Address, Backlog) ->
    Common = [{inet_backend, inet}, {tcp_module, erlane_proxy_address:tcp_module(Address)},
              binary, {active, false}, {backlog, Backlog}],
    case Address of
        {local, _} ->
            bound(gen_tcp:listen(0, Common ++ [{ifaddr, Address}]), Address);
        {IP, Port} ->
            bound(gen_tcp:listen(Port, Common ++ [{ip, IP}, {reuseaddr, true},
                                                  {nodelay, true}]), Address)
    end.

bound({ok, Socket}, {local, _} = Address) ->
    {ok, Socket, Address};
bound({ok, Socket}, _) ->
    {ok, Address} = inet:sockname(Socket),
    {ok, Socket, Address};
bound({error, Reason}, _) ->
    {error, Reason}.

lanes(#{acceptors := per_lane}) ->
    erlane_socket:lanes();
lanes(#{acceptors := N}) ->
    Lanes = erlane_socket:lanes(),
    [lists:nth(1 + I rem length(Lanes), Lanes) || I <- lists:seq(0, N - 1)].

keeper(Shared) ->
    {ok, Keeper} = erlane_proxy_conns:start_link(Shared),
    Keeper.

-spec handle_call(term(), gen_server:from(), #state{}) ->
          {reply, term(), #state{}} | {noreply, #state{}}.
handle_call(info, _From, State) ->
    #state{config = Config, stats = Stats, keepers = Keepers} = State,
    Live = [erlane_proxy_conns:live(Keeper) || Keeper <- Keepers],
    %% Read after the live connections: one that ends in between is missed, not counted twice.
    #{to_upstream := Up, to_client := Down} = Ended = erlane_proxy_stats:read(Stats),
    {reply,
     Ended#{listen => State#state.address,
            to => maps:get(to, Config),
            state => mode(State),
            max_connections => maps:get(max_connections, Config),
            connections => lists:sum([N || {N, _, _} <- Live]),
            to_upstream => Up + lists:sum([Bytes || {_, Bytes, _} <- Live]),
            to_client => Down + lists:sum([Bytes || {_, _, Bytes} <- Live])},
     State};
handle_call({drain, Ms}, From, State = #state{drain = no, keepers = Keepers}) ->
    %% The keepers are told first: an acceptor that ends is then no surprise to them.
    [erlane_proxy_conns:drain(Keeper) || Keeper <- Keepers],
    close(State),
    [Acceptor ! stop || Acceptor <- queue:to_list(State#state.waiting)],
    Drain = {[From], timer(Ms), Keepers, #{finished => 0, reset => 0}},
    {noreply, State#state{drain = Drain, waiting = queue:new()}};
handle_call({drain, _Ms}, _From, State = #state{drain = {done, Drained}}) ->
    {reply, Drained, State};
handle_call({drain, Ms}, From, State = #state{drain = {Callers, Timer, Busy, Drained}}) ->
    {noreply, State#state{drain = {[From | Callers], sooner(Timer, Ms), Busy, Drained}}}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({wait, Acceptor}, State = #state{slots = Slots, waiting = Waiting}) ->
    %% A slot given back before this message came has told nobody: look again.
    case {State#state.drain, erlane_proxy_slots:free(Slots)} of
        {no, true} ->
            Acceptor ! retry,
            {noreply, State};
        {no, false} ->
            {noreply, State#state{waiting = queue:in(Acceptor, Waiting)}};
        {_Draining, _} ->
            Acceptor ! stop,
            {noreply, State}
    end;
handle_info(slot_free, State = #state{waiting = Waiting}) ->
    case queue:out(Waiting) of
        {{value, Acceptor}, Rest} ->
            Acceptor ! retry,
            {noreply, State#state{waiting = Rest}};
        {empty, _} ->
            {noreply, State}
    end;
handle_info({timeout, Timer, deadline}, State = #state{drain = {Callers, Timer, Busy, D}}) ->
    [erlane_proxy_conns:reset(Keeper) || Keeper <- Busy],
    {noreply, State#state{drain = {Callers, undefined, Busy, D}}};
handle_info({timeout, _Old, deadline}, State) ->
    {noreply, State};
handle_info({drained, Keeper, Its}, State = #state{drain = {Callers, Timer, Busy, Sum}}) ->
    Drained = maps:map(fun(Key, N) -> N + maps:get(Key, Its) end, Sum),
    case lists:delete(Keeper, Busy) of
        [] ->
            [gen_server:reply(Caller, Drained) || Caller <- Callers],
            {noreply, State#state{drain = {done, Drained}}};
        Rest ->
            {noreply, State#state{drain = {Callers, Timer, Rest, Drained}}}
    end;
handle_info({'EXIT', Pid, Reason}, State = #state{keepers = Keepers}) ->
    case lists:member(Pid, Keepers) of
        true -> {stop, Reason, State};
        false -> {noreply, State}
    end.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, State = #state{drain = no}) ->
    close(State);
terminate(_Reason, _State) ->
    ok.

close(#state{socket = Socket, address = Address}) ->
    ok = gen_tcp:close(Socket),
    case Address of
        %% Nothing else removes the name, and the next listen would fail with eaddrinuse.
        {local, Path} -> _ = file:delete(Path), ok;
        _ -> ok
    end.

mode(#state{drain = no}) -> listening;
mode(#state{drain = {done, _}}) -> drained;
mode(#state{}) -> draining.

timer(Ms) ->
    erlang:start_timer(Ms, self(), deadline).

%% undefined: the deadline has passed already.
sooner(undefined, _Ms) ->
    undefined;
sooner(Timer, Ms) ->
    case erlang:read_timer(Timer) of
        Left when is_integer(Left), Left > Ms ->
            _ = erlang:cancel_timer(Timer),
            timer(Ms);
        _ ->
            Timer
    end.
