%% SPDX-License-Identifier: Apache-2.0
%% @doc Top supervisor: sets of shards that were started with `erlane_shard:start/2' are its
%% children, each on its own. Each set has one more of its kind for its shards.
-module(erlane_shard_sup).
-behaviour(supervisor).

-export([start_link/0, start_shards/0, init/1]).

%% @doc Starts the supervisor of the application.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts the supervisor of the shards of one set, below the calling keeper.
-spec start_shards() -> {ok, pid()}.
start_shards() ->
    {ok, _} = supervisor:start_link(?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, []}}.
