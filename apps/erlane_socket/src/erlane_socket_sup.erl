%% SPDX-License-Identifier: Apache-2.0
%% @doc One poller per scheduler, and the server of socket monitors.
-module(erlane_socket_sup).
-behaviour(supervisor).

-export([start_link/0, init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Monitor = #{id => erlane_monitor, start => {erlane_monitor, start_link, []}},
    Lanes = [#{id => {erlane_lane, I}, start => {erlane_lane, start_link, [I]}}
             || I <- lists:seq(1, erlang:system_info(schedulers))],
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1}, [Monitor | Lanes]}}.
