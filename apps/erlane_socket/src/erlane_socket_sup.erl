%% SPDX-License-Identifier: Apache-2.0
%% @doc The server of socket monitors, and the keeper of the lanes.
-module(erlane_socket_sup).
-behaviour(supervisor).

-export([start_link/0, init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Monitor = #{id => erlane_monitor, start => {erlane_monitor, start_link, []}},
    %% Closing a hundred thousand sockets takes a second or two.
    Keeper = #{id => erlane_lanes, start => {erlane_lanes, start_link, []}, shutdown => 60000},
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, [Monitor, Keeper]}}.
