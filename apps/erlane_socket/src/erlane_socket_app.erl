%% SPDX-License-Identifier: Apache-2.0
%% @doc The application.
-module(erlane_socket_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    %% Out of descriptors no module can be loaded, and then they are needed most.
    {ok, Modules} = application:get_key(erlane_socket, modules),
    ok = code:ensure_modules_loaded(Modules),
    case erlane_socket_sup:start_link() of
        {ok, Pid} ->
            _ = erlane_socket_metrics:register(),
            {ok, Pid};
        Error ->
            Error
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    _ = erlane_socket_metrics:unregister(),
    ok.
