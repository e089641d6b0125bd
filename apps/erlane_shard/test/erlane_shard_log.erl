%% SPDX-License-Identifier: Apache-2.0
%% A logger's handler that tells a process what was logged.
-module(erlane_shard_log).

-export([log/2]).

log(#{msg := {Format, Args}}, #{config := Pid}) ->
    Pid ! {log, io_lib:format(Format, Args)}.
