%% SPDX-License-Identifier: Apache-2.0
%% @doc Application callback: starts the supervisor, drains every listener before a stop.
-module(erlane_proxy_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    ok = load(),
    erlane_proxy_sup:start_link().

%% Loading a module takes a descriptor: without one, the code that reports just this must be
%% there already.
load() ->
    {ok, Own} = application:get_key(erlane_proxy, modules),
    {ok, Sockets} = application:get_key(erlane_socket, modules),
    code:ensure_modules_loaded([erl_posix_msg | Own ++ Sockets]).

%% @doc Drains all listeners at the same time, each for `drain' milliseconds of the
%% application's environment.
-spec prep_stop(State) -> State.
prep_stop(State) ->
    {ok, Ms} = application:get_env(erlane_proxy, drain),
    Drains = [spawn_monitor(fun() -> erlane_proxy:drain(Name, Ms) end)
              || Name <- erlane_proxy:listeners()],
    [receive {'DOWN', Ref, process, Pid, _} -> ok end || {Pid, Ref} <- Drains],
    State.

-spec stop(term()) -> ok.
stop(_State) ->
    ok.
