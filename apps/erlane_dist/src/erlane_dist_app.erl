%% SPDX-License-Identifier: Apache-2.0
%% @doc The application.
-module(erlane_dist_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case erlane_dist_sup:start_link() of
        {ok, Pid} ->
            _ = erlane_dist_metrics:register(),
            {ok, Pid};
        Error ->
            Error
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    _ = erlane_dist_metrics:unregister(),
    ok.
