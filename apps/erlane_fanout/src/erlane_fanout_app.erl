%% SPDX-License-Identifier: Apache-2.0
%% @doc Application callback: checks the configuration, starts the processes.
-module(erlane_fanout_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case erlane_fanout_opts:check(application:get_all_env(erlane_fanout)) of
        {ok, Config} ->
            case erlane_fanout_sup:start_link(Config) of
                {ok, Pid} ->
                    _ = erlane_fanout_metrics:register(),
                    {ok, Pid};
                Other -> Other
            end;
        {error, Reason} -> {error, Reason}
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    _ = erlane_fanout_metrics:unregister(),
    ok.
