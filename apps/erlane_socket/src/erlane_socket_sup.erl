%% SPDX-License-Identifier: Apache-2.0
%% @doc The server of socket monitors, one poller for each scheduler that is
%% online, and who looks after them.
-module(erlane_socket_sup).
-behaviour(supervisor).

-export([start_link/0, init/1, start_lane/1, pollers/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts the poller of a scheduler that has come online, if it is not there.
-spec start_lane(pos_integer()) -> ok.
start_lane(I) ->
    case supervisor:start_child(?MODULE, lane(I)) of
        {ok, _} -> ok;
        {error, {already_started, _}} -> ok
    end.

%% @doc The poller of lane I, if it has one of its own.
-spec pollers(pos_integer()) -> [pid()].
pollers(I) ->
    [Pid || {{erlane_lane, N}, Pid, _, _} <- supervisor:which_children(?MODULE), N =:= I,
            is_pid(Pid)].

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Monitor = #{id => erlane_monitor, start => {erlane_monitor, start_link, []}},
    Lanes = [lane(I) || I <- lists:seq(1, erlang:system_info(schedulers_online))],
    Keeper = #{id => erlane_lanes, start => {erlane_lanes, start_link, []}},
    {ok, {#{strategy => one_for_one, intensity => 10, period => 1},
          [Monitor | Lanes] ++ [Keeper]}}.

lane(I) ->
    #{id => {erlane_lane, I}, start => {erlane_lane, start_link, [I]}}.
