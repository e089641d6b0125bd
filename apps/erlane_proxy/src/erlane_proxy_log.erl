%% SPDX-License-Identifier: Apache-2.0
%% @doc Log lines that a flood of failures cannot multiply: at most one of a kind in five
%% seconds for each listener, with the number of those left out.
-module(erlane_proxy_log).

-include_lib("kernel/include/logger.hrl").

-export([new/0, connect_failed/4, accept_failed/3]).

-export_type([limiter/0]).

-opaque limiter() :: atomics:atomics_ref().

-define(INTERVAL_MS, 5000).
%% Each kind has two cells: when the next line is due, and how many were left out.
-define(CONNECT, 1).
-define(ACCEPT, 3).

-spec new() -> limiter().
new() ->
    Limiter = atomics:new(4, [{signed, true}]),
    Now = now_ms(),
    [atomics:put(Limiter, Kind, Now) || Kind <- [?CONNECT, ?ACCEPT]],
    Limiter.

%% @doc The upstream could not be reached and the client was reset.
-spec connect_failed(limiter(), erlane_proxy:name(), erlane_proxy_address:resolved(), term()) ->
          ok.
connect_failed(Limiter, Name, Upstream, Reason) ->
    limited(Limiter, ?CONNECT,
            fun(LeftOut) ->
                    ?LOG_WARNING("proxy ~ts: upstream ~ts: connect: ~ts~ts",
                                 [Name, erlane_proxy_address:format(Upstream), why(Reason),
                                  left_out(LeftOut)])
            end).

%% @doc Accept failed; the acceptor pauses.
-spec accept_failed(limiter(), erlane_proxy:name(), term()) -> ok.
accept_failed(Limiter, Name, Reason) ->
    limited(Limiter, ?ACCEPT,
            fun(LeftOut) ->
                    ?LOG_ERROR("proxy ~ts: accept: ~ts, pausing~ts",
                               [Name, why(Reason), left_out(LeftOut)])
            end).

limited(Limiter, Kind, Log) ->
    Now = now_ms(),
    Due = atomics:get(Limiter, Kind),
    case Now >= Due
         andalso atomics:compare_exchange(Limiter, Kind, Due, Now + ?INTERVAL_MS) of
        ok -> Log(atomics:exchange(Limiter, Kind + 1, 0));
        _ -> atomics:add(Limiter, Kind + 1, 1)
    end.

left_out(0) -> "";
left_out(N) -> io_lib:format(" (~b more like this before)", [N]).

why(timeout) -> "timeout";
why(system_limit) -> "the emulator's limit is reached (system_limit)";
why(Posix) when is_atom(Posix) -> io_lib:format("~ts (~ts)", [inet:format_error(Posix), Posix]);
why(Other) -> io_lib:format("~0tp", [Other]).

now_ms() ->
    erlang:monotonic_time(millisecond).
