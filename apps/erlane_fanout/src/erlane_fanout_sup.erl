%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the fan-out.
%%
%% Other nodes hear of subscriptions only when the lanes are there; what they publish comes last.
-module(erlane_fanout_sup).
-behaviour(supervisor).

-export([start_link/1, init/1]).

-spec start_link(erlane_fanout_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Config).

-spec init(erlane_fanout_opts:config()) ->
          {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Config) ->
    Child = fun(Module, Args) -> #{id => Module, start => {Module, start_link, Args}} end,
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [#{id => pg, start => {pg, start_link, [erlane_fanout]}},
           Child(erlane_fanout_lanes, [Config]),
           Child(erlane_fanout_retain, [Config]),
           Child(erlane_fanout_remote, [])
           | erlane_fanout_intake:children()]}}.
