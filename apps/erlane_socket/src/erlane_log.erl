%% SPDX-License-Identifier: Apache-2.0
%% @doc Log lines that may come in floods: one per key and interval, with the
%% number of those left out.
-module(erlane_log).

-export([limited/3]).

-include_lib("kernel/include/logger.hrl").

-define(INTERVAL_MS, 10000).

%% @doc Logs a warning unless the same key was logged less than 10 s ago.
-spec limited(term(), io:format(), [term()]) -> ok.
limited(Key, Format, Args) ->
    Counter = counter(Key),
    Now = erlang:monotonic_time(millisecond),
    Last = atomics:get(Counter, 1),
    case Last =:= 0 orelse Now - Last >= ?INTERVAL_MS of
        true ->
            %% of several who saw the same time one logs
            case atomics:compare_exchange(Counter, 1, Last, Now) of
                ok ->
                    case atomics:exchange(Counter, 2, 0) of
                        0 -> ?LOG_WARNING(Format, Args);
                        N -> ?LOG_WARNING(Format ++ " (~p more like this)", Args ++ [N])
                    end;
                _ ->
                    atomics:add(Counter, 2, 1)
            end;
        false ->
            atomics:add(Counter, 2, 1)
    end.

%% Keys are few and fixed, so a persistent term each is right.
counter(Key) ->
    case persistent_term:get({?MODULE, Key}, undefined) of
        undefined ->
            New = atomics:new(2, []),
            persistent_term:put({?MODULE, Key}, New),
            New;
        Counter ->
            Counter
    end.
