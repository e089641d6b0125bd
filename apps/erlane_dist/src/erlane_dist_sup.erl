%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the process that counts busy events.
-module(erlane_dist_sup).
-behaviour(supervisor).

-export([start_link/0]).
-export([init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10},
          [#{id => busy, start => {erlane_dist_busy, start_link, []}}]}}.
