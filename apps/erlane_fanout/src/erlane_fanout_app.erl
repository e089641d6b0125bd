%% SPDX-License-Identifier: Apache-2.0
%% @doc Application callback: checks the configuration, starts the processes.
-module(erlane_fanout_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    case erlane_fanout_opts:check(application:get_all_env(erlane_fanout)) of
        {ok, Config} ->
            %% Before anything can come from there.
            ok = router(fun erlane_router:watch/1),
            case erlane_fanout_sup:start_link(Config) of
                {ok, Pid} ->
                    _ = erlane_fanout_metrics:register(),
                    {ok, Pid};
                Other ->
                    ok = router(fun erlane_router:unwatch/1),
                    Other
            end;
        {error, Reason} -> {error, Reason}
    end.

-spec stop(term()) -> ok.
stop(_State) ->
    _ = erlane_fanout_metrics:unregister(),
    router(fun erlane_router:unwatch/1).

%% Where there is one.
router(Fun) ->
    try Fun(erlane_fanout_intake:names())
    catch error:undef -> ok
    end.
