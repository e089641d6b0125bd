%% SPDX-License-Identifier: Apache-2.0
%% @doc Application callback. Sets of shards that a program starts below its own supervisor need
%% no application; `erlane_shard:start/2' puts them below the one here.
-module(erlane_shard_app).
-behaviour(application).

-export([start/2, stop/1]).

-spec start(application:start_type(), term()) -> {ok, pid()} | {error, term()}.
start(_Type, _Args) ->
    erlane_shard_sup:start_link().

-spec stop(term()) -> ok.
stop(_State) ->
    ok.
