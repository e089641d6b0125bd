%% SPDX-License-Identifier: Apache-2.0
%% @doc How a process is put on a lane.
-module(erlane_proxy_lane).

-export([spawn_options/1]).

%% @doc Options of spawn_opt for a process that stays on this lane's scheduler.
-spec spawn_options(pos_integer()) -> [{atom(), pos_integer()}].
spawn_options(Lane) ->
    %% The VM knows this option, its documentation does not. Written out, dialyzer would take
    %% every spawn with it for one that fails.
    [{list_to_atom("scheduler"), Lane}].
