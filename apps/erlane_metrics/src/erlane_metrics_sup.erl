%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of everything: the core (tables and registry), the collectors, and the
%% listener, if one is configured. They fail apart.
-module(erlane_metrics_sup).
-behaviour(supervisor).

-export([start_link/0, start_link/1]).
-export([init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, all).

%% @private
-spec start_link(core) -> {ok, pid()} | {error, term()}.
start_link(core) ->
    supervisor:start_link(?MODULE, core).

-spec init(all | core) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(all) ->
    Core = #{id => core, start => {?MODULE, start_link, [core]}, type => supervisor},
    Collectors = #{id => collectors, start => {erlane_metrics_collectors, start_link, []},
                   type => supervisor},
    Bridge = #{id => bridge, start => {erlane_metrics_bridge, start_link, []}},
    Listeners = case application:get_env(erlane_metrics, listener) of
                    undefined -> [];
                    {ok, none} -> [];
                    {ok, Opts} -> [erlane_metrics_listener:child_spec(maps:from_list(Opts))]
                end,
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [Core, Collectors, Bridge | Listeners]}};
%% The tables come first and stay when only the registry is restarted.
init(core) ->
    Children = [#{id => M, start => {M, start_link, []}}
                || M <- [erlane_metrics_tables, erlane_metrics_registry]],
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10}, Children}}.
