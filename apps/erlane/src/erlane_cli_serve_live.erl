%% SPDX-License-Identifier: Apache-2.0
%% @doc The line of live figures of `erlane serve'.
-module(erlane_cli_serve_live).
-behaviour(erlane_cli_loop).

-export([sample/1, line/2]).

-export_type([sample/0]).

-type sample() :: erlane_cli_loop:figures(erlane_http:info()).

%% @doc Reads everything a line needs.
-spec sample(atom()) -> sample().
sample(Name) ->
    Info = #{} = erlane_http:info(Name),
    erlane_cli_loop:figures(Info).

%% @doc The figures, without a newline; `waits' are calls of epoll_wait, over all lanes.
-spec line(sample(), sample()) -> iolist().
line(#{ms := Ms0, info := Before, waits := Waits0, events := Events0},
     #{ms := Ms1, info := After, waits := Waits1, events := Events1}) ->
    Ms = max(1, Ms1 - Ms0),
    Grown = fun(Key) -> max(0, maps:get(Key, After) - maps:get(Key, Before)) end,
    Waits = Waits1 - Waits0,
    io_lib:format("~b open ~b total | ~b requests ~b/s ~b bad | MB ~.1f sent ~.1f/s | "
                  "~b waits/s ~.1f events each",
                  [maps:get(connections, After), maps:get(accepted, After),
                   maps:get(requests, After), Grown(requests) * 1000 div Ms,
                   maps:get(bad_requests, After), maps:get(sent_bytes, After) / 1.0e6,
                   Grown(sent_bytes) / Ms / 1.0e3, Waits * 1000 div Ms,
                   (Events1 - Events0) / max(1, Waits)]).
