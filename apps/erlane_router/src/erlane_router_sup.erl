%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the router.
%%
%% Lanes report what they drop, so reports come first; the gate tells lanes of nodes that start
%% a router, so lanes come before it.
-module(erlane_router_sup).
-behaviour(supervisor).

-export([start_link/1, init/1]).

-spec start_link(erlane_router_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, Config).

-spec init(erlane_router_opts:config()) ->
          {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(Config) ->
    Child = fun(Module, Args) -> #{id => Module, start => {Module, start_link, Args}} end,
    {ok, {#{strategy => rest_for_one, intensity => 5, period => 10},
          [Child(erlane_router_report, []),
           Child(erlane_router_peers, [Config]),
           Child(erlane_router_gate, [])]}}.
