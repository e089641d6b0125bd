%% SPDX-License-Identifier: Apache-2.0
%% @doc A TCP proxy: accepts on one address, connects to another, and lets the lane carry
%% the bytes (see {@link erlane_socket:relay/3}). No process wakes for a byte.
%%
%% ```
%% {ok, _} = application:ensure_all_started(erlane_proxy),
%% ok = erlane_proxy:start_listener(web, #{listen => {"127.0.0.1", 8080},
%%                                         to => {"127.0.0.1", 80}}),
%% erlane_proxy:info(web),
%% {ok, #{reset := 0}} = erlane_proxy:stop_listener(web, 10000).
%% '''
-module(erlane_proxy).

-export([start_listener/2, stop_listener/2, drain/2, info/1, listeners/0, format_error/1]).

-export_type([name/0, opts/0, info/0, drained/0]).

-type name() :: atom().

-type opts() ::
        #{listen := erlane_proxy_address:address(),
          to := erlane_proxy_address:address(),
          connect_timeout => pos_integer(),
          idle_timeout => pos_integer() | infinity,
          half_close_timeout => pos_integer() | infinity,
          half_close => boolean(),
          max_connections => pos_integer() | infinity,
          acceptors => pos_integer(),
          backlog => pos_integer()}.
%% Times are milliseconds. `listen' with port 0 takes a free port, {@link info/1} tells which.
%% `max_connections' is exact: at the limit nothing is accepted and the backlog waits.
%% `acceptors' defaults to one per lane. Defaults: {@link erlane_proxy_options}.

-type info() ::
        #{listen := erlane_proxy_address:address(),
          to := erlane_proxy_address:address(),
          state := listening | draining | drained,
          max_connections := pos_integer() | infinity,
          connections := non_neg_integer(),
          to_upstream := non_neg_integer(),
          to_client := non_neg_integer(),
          erlane_proxy_stats:name() => term()}.
%% `connections' is how many are open now; `to_upstream' and `to_client' are bytes, those of
%% open connections included; the rest are the counters of {@link erlane_proxy_stats}.

-type drained() :: #{finished := non_neg_integer(), reset := non_neg_integer()}.
%% How many connections ended by themselves during the drain, and how many were reset.

%% @doc Starts a listener. Host names are looked up here, once. Errors name the option:
%% `{listen, {eaddrinuse, Address}}', `{to, {nxdomain, Host}}', `{Key, unknown_option}',
%% `{name, already_started}'; {@link format_error/1} makes a sentence of each.
-spec start_listener(name(), opts()) -> ok | {error, {atom(), term()}}.
start_listener(Name, Opts) when is_atom(Name), is_map(Opts) ->
    case erlane_proxy_options:check(Opts) of
        {ok, Config} ->
            case erlane_proxy_sup:start_listener(Name, Config) of
                {ok, _Pid} -> ok;
                {error, Reason} -> {error, Reason}
            end;
        {error, Reason} ->
            {error, Reason}
    end.

%% @doc Drains (see {@link drain/2}) and forgets the listener.
-spec stop_listener(name(), non_neg_integer()) -> {ok, drained()} | {error, not_found}.
stop_listener(Name, DrainMs) ->
    case drain(Name, DrainMs) of
        {ok, Drained} ->
            _ = erlane_proxy_sup:stop_listener(Name),
            {ok, Drained};
        {error, not_found} ->
            {error, not_found}
    end.

%% @doc Closes the listening socket, waits at most `Ms' milliseconds for the open connections
%% to end, resets the rest and returns when none is left. A second call while one is running
%% joins it and may shorten its time. The listener stays known to {@link info/1}.
-spec drain(name(), non_neg_integer()) -> {ok, drained()} | {error, not_found}.
drain(Name, Ms) when is_integer(Ms), Ms >= 0 ->
    with_listener(Name, fun(Pid) -> erlane_proxy_listener:drain(Pid, Ms) end).

%% @doc Figures of one listener.
-spec info(name()) -> {ok, info()} | {error, not_found}.
info(Name) ->
    with_listener(Name, fun erlane_proxy_listener:info/1).

%% @doc The names of all listeners.
-spec listeners() -> [name()].
listeners() ->
    erlane_proxy_sup:listeners().

%% @doc One line of text, without a newline, for an error of {@link start_listener/2}.
-spec format_error({atom(), term()}) -> string().
format_error(Reason) ->
    erlane_proxy_options:format_error(Reason).

with_listener(Name, Fun) ->
    case erlane_proxy_sup:listener(Name) of
        {ok, Pid} ->
            %% The listener may end between the look-up and the call.
            try {ok, Fun(Pid)}
            catch exit:{Why, {gen_server, call, _}}
                    when Why =:= noproc; Why =:= normal; Why =:= shutdown ->
                    {error, not_found}
            end;
        {error, not_found} ->
            {error, not_found}
    end.
