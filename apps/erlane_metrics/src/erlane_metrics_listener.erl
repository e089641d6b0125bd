%% SPDX-License-Identifier: Apache-2.0
%% @doc A small HTTP listener with one page, `/metrics', for systems without an HTTP server.
%%
%% ```
%% {ok, Pid} = erlane_metrics_listener:start_link(#{port => 9568}),
%% '''
%% or, in a supervisor of yours, `erlane_metrics_listener:child_spec(#{port => 9568})'.
%%
%% It owns the listening socket and one process ({@link erlane_metrics_conn}) for each
%% connection that may be open; each of them serves one connection and is replaced. So the
%% limit is exact, whoever comes above it waits in the backlog, and a peer can harm no
%% connection but its own.
-module(erlane_metrics_listener).
-behaviour(gen_server).

-include_lib("kernel/include/logger.hrl").

-export([start_link/1, child_spec/1, address/1, stop/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-export_type([opts/0]).

-type opts() ::
        #{port := inet:port_number(),
          ip => inet:ip_address(),
          max_connections => 1..1024,
          request_timeout => pos_integer(),
          scrape_timeout => pos_integer(),
          formats => [erlane_metrics_accept:format(), ...],
          tcp_options => [term()]}.
%% `port' 0 takes a free one, {@link address/1} tells which. `ip' is the loopback address unless
%% told otherwise: the page is readable by everybody who reaches it. Times are milliseconds:
%% `request_timeout' (5000) for the head of a request, `scrape_timeout' (60000) for the page; the
%% scraper's own timeout (X-Prometheus-Scrape-Timeout-Seconds) makes it shorter. `formats' are
%% those offered, the first one to whoever has no preference. `tcp_options' come first in the
%% options of gen_tcp: `[{inet_backend, inet}, {tcp_module, erlane_tcp}]' serves over lanes.

-record(state, {socket :: gen_tcp:socket(),
                config :: erlane_metrics_conn:config(),
                conns = #{} :: #{pid() => true},
                %% When the log was told of a failed accept.
                told = undefined :: undefined | integer()}).

%% Without descriptors or memory accept fails at once: a pause keeps it from spinning.
-define(PAUSE_MS, 1000).
-define(TELL_MS, 60000).
-define(MAX_MS, 2147483647).

%% @doc Starts a listener. Errors name the option: `{Key, missing}', `{Key, unknown_option}',
%% `{Key, {badarg, Value}}', `{listen, Posix}'.
-spec start_link(opts()) -> {ok, pid()} | {error, {atom(), term()}}.
start_link(Opts) when is_map(Opts) ->
    case check(Opts) of
        {ok, All} ->
            case gen_server:start_link(?MODULE, All, []) of
                {error, {shutdown, Reason}} -> {error, Reason};
                Started -> Started
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc The listener as a child of a supervisor.
-spec child_spec(opts()) -> supervisor:child_spec().
child_spec(Opts) ->
    #{id => {?MODULE, maps:get(port, Opts, undefined)}, start => {?MODULE, start_link, [Opts]},
      shutdown => 1000}.

%% @doc The address it listens on.
-spec address(pid()) -> {inet:ip_address(), inet:port_number()}.
address(Listener) ->
    gen_server:call(Listener, address).

%% @doc Closes the listener and all its connections.
-spec stop(pid()) -> ok.
stop(Listener) ->
    gen_server:stop(Listener).

%%% options

check(Opts) ->
    Defaults = #{ip => {127, 0, 0, 1}, max_connections => 16, request_timeout => 5000,
                 scrape_timeout => 60000, formats => [text, openmetrics, protobuf],
                 tcp_options => []},
    All = maps:merge(Defaults, Opts),
    Bad = [{Key, Why} || {Key, Value} <- lists:sort(maps:to_list(All)),
                         Why <- [wrong(Key, Value)], Why =/= ok],
    case {Bad, All} of
        {[First | _], _} -> {error, First};
        {[], #{port := _}} -> {ok, All};
        {[], _} -> {error, {port, missing}}
    end.

wrong(port, N) when is_integer(N), N >= 0, N =< 65535 -> ok;
wrong(ip, IP) when is_tuple(IP) -> good(inet:ntoa(IP) =/= {error, einval}, IP);
wrong(max_connections, N) when is_integer(N), N > 0, N =< 1024 -> ok;
wrong(request_timeout, N) when is_integer(N), N > 0, N =< ?MAX_MS -> ok;
wrong(scrape_timeout, N) when is_integer(N), N > 0, N =< ?MAX_MS -> ok;
wrong(formats, [_ | _] = L) -> good(L -- [text, openmetrics, protobuf] =:= [], L);
wrong(tcp_options, L) -> good(is_list(L) andalso length(L) >= 0, L);
wrong(Key, Value) when Key =:= port; Key =:= ip; Key =:= max_connections; Key =:= formats;
                       Key =:= request_timeout; Key =:= scrape_timeout -> {badarg, Value};
wrong(_, _) -> unknown_option.

good(true, _) -> ok;
good(false, Value) -> {badarg, Value}.

%%% gen_server

-spec init(map()) -> {ok, #state{}} | {stop, {shutdown, {listen, term()}}}.
init(#{ip := IP, port := Port, max_connections := Max, tcp_options := First} = Opts) ->
    process_flag(trap_exit, true),
    %% A tcp_module knows its family itself.
    Family = [inet6 || tuple_size(IP) =:= 8, not lists:keymember(tcp_module, 1, First)],
    Tcp = First ++ Family ++ [binary, {ip, IP}, {active, false}, {reuseaddr, true},
                              {nodelay, true}, {backlog, 128}, {send_timeout, 5000}],
    case gen_tcp:listen(Port, Tcp) of
        {ok, Socket} ->
            Config = maps:with([request_timeout, scrape_timeout, formats], Opts),
            Conns = [{erlane_metrics_conn:start_link(Socket, Config), true}
                     || _ <- lists:seq(1, Max)],
            {ok, #state{socket = Socket, config = Config, conns = maps:from_list(Conns)}};
        {error, Reason} ->
            {stop, {shutdown, {listen, Reason}}}
    end.

-spec handle_call(address, gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(address, _From, #state{socket = Socket} = State) ->
    {ok, Address} = inet:sockname(Socket),
    {reply, Address, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Request, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({'EXIT', Pid, Reason}, #state{conns = Conns} = State) when is_map_key(Pid, Conns) ->
    ended(Reason, State#state{conns = maps:remove(Pid, Conns)});
handle_info({'EXIT', _Other, Reason}, State) ->
    {stop, Reason, State};
handle_info(start, State) ->
    {noreply, start(State)};
handle_info(_Other, State) ->
    {noreply, State}.

ended({shutdown, {accept, closed}}, State) ->
    {stop, listening_socket_lost, State};
ended({shutdown, {accept, Aborted}}, State) when Aborted =:= econnaborted; Aborted =:= eproto ->
    %% The peer went away while it waited in the backlog.
    {noreply, start(State)};
ended({shutdown, {accept, Reason}}, State) ->
    _ = erlang:send_after(?PAUSE_MS, self(), start),
    {noreply, tell(Reason, State)};
ended(_Served, State) ->
    {noreply, start(State)}.

start(#state{socket = Socket, config = Config, conns = Conns} = State) ->
    State#state{conns = Conns#{erlane_metrics_conn:start_link(Socket, Config) => true}}.

tell(Reason, #state{told = Told} = State) ->
    case erlang:monotonic_time(millisecond) of
        Now when Told =:= undefined; Now - Told >= ?TELL_MS ->
            ?LOG_WARNING("metrics: the listener cannot accept: ~ts", [Reason]),
            State#state{told = Now};
        _ ->
            State
    end.

%% Ended by the supervisor, the connections go with their socket and their link.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{socket = Socket, conns = Conns}) ->
    [exit(Pid, kill) || Pid <- maps:keys(Conns)],
    gen_tcp:close(Socket).
