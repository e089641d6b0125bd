%% SPDX-License-Identifier: Apache-2.0
%% @doc Application callback: starts the supervisor, and the page if one is configured.
-module(erlane_dash_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case erlane_dash_sup:start_link() of
        {ok, Pid} ->
            case configured(application:get_env(erlane_dash, listener, none)) of
                ok -> {ok, Pid};
                {error, Reason} -> {error, {listener, Reason}}
            end;
        Error ->
            Error
    end.

configured(none) -> ok;
configured(Options) ->
    case erlane_dash:start(maps:from_list(Options)) of
        {ok, _} -> ok;
        Error -> Error
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    ok.
