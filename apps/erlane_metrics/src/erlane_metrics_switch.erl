%% SPDX-License-Identifier: Apache-2.0
%% @doc Turns measuring in the VM on for a collector, and leaves it afterwards as it was.
%%
%% `scheduler_wall_time' is on as long as a process that asked for it lives; the VM counts them.
%% Microstate accounting is one switch for all: what it was is kept in the collectors' table
%% until it is put back, so that it is known even after the process that turned it on was killed.
-module(erlane_metrics_switch).

-export([on/1, off/1]).

-type switch() :: scheduler_wall_time | microstate_accounting.

%% @doc Turns it on. To be called by a process that lives as long as it is needed.
-spec on(switch()) -> ok.
on(scheduler_wall_time) ->
    _ = erlang:system_flag(scheduler_wall_time, true),
    ok;
on(microstate_accounting) ->
    %% The VM tells the state only when it is changed. The false of a predecessor that was killed
    %% stays; what we find then is the true that he left.
    Before = erlang:system_flag(microstate_accounting, true),
    _ = erlane_metrics_collected:enter(microstate_accounting, Before),
    ok.

%% @doc Puts it back.
-spec off(switch()) -> ok.
off(scheduler_wall_time) ->
    _ = erlang:system_flag(scheduler_wall_time, false),
    ok;
off(microstate_accounting) ->
    case erlane_metrics_collected:leave(microstate_accounting) of
        false -> _ = erlang:system_flag(microstate_accounting, false), ok;
        true -> ok
    end.
