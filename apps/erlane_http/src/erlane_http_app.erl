%% SPDX-License-Identifier: Apache-2.0
%% @doc Application callback: starts the supervisor, drains every listener before a stop.
-module(erlane_http_app).
-behaviour(application).

-export([start/2, prep_stop/1, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    %% Loading a module takes a descriptor: without one, the code that reports just this must
    %% be there already.
    {ok, Modules} = application:get_key(erlane_http, modules),
    ok = code:ensure_modules_loaded(Modules),
    erlane_http_sup:start_link().

%% @doc Drains all listeners at the same time, each for `drain' milliseconds of the
%% application's environment.
-spec prep_stop(State) -> State.
prep_stop(State) ->
    {ok, Ms} = application:get_env(erlane_http, drain),
    Drains = [spawn_monitor(fun() -> erlane_http_server:drain(Pid, Ms) end)
              || Name <- erlane_http_names:all(),
                 Pid <- [erlane_http_names:whereis(Name)], Pid =/= undefined],
    [receive {'DOWN', Ref, process, Pid, _} -> ok end || {Pid, Ref} <- Drains],
    State.

-spec stop(term()) -> ok.
stop(_State) ->
    ok.
