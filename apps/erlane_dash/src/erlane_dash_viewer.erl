%% SPDX-License-Identifier: Apache-2.0
%% @doc One stream of events to one page: a greeting, then every tick that it can take.
-module(erlane_dash_viewer).

-export([run/1]).

%% @doc Runs until the sampler ends or the client goes; the process is the stream's own.
-spec run(erlane_http_sse:emit()) -> ok.
run(Emit) ->
    try erlane_dash_sampler:watch() of
        {ok, #{sampler := Monitor} = About} ->
            _ = Emit(#{event => <<"hello">>, retry => 2000, data => hello(About)}),
            loop(Emit, Monitor);
        {error, full} ->
            _ = Emit(#{event => <<"full">>, data => <<"{}">>}),
            ok
    catch
        %% It is just being restarted: the page comes again.
        exit:{_, {gen_server, call, _}} -> ok
    end.

loop(Emit, Monitor) ->
    receive
        {erlane_dash, tick, Json} ->
            case Emit(#{event => <<"tick">>, data => Json}) of
                ok ->
                    erlane_dash_sampler:ready(),
                    loop(Emit, Monitor);
                {error, closed} ->
                    ok
            end;
        {erlane_dash, gone} -> ok;
        %% The listener is being stopped, and our connection handed the news on.
        {erlane_http, drain} -> ok;
        {'DOWN', Monitor, process, _, _} -> ok
    end.

hello(#{interval := Interval, started := Started}) ->
    {ok, Version} = application:get_key(erlane_dash, vsn),
    erlane_dash_json:encode(#{name => node(), interval => Interval, started => Started,
                              otp => list_to_binary(erlang:system_info(otp_release)),
                              erts => list_to_binary(erlang:system_info(version)),
                              erlane => list_to_binary(Version)}).
