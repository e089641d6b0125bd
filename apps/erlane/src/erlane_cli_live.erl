%% SPDX-License-Identifier: Apache-2.0
%% @doc The line of a proxy's live figures: two samples in, text out. Pure but for {@link sample/1}.
-module(erlane_cli_live).
-behaviour(erlane_cli_loop).

-export([sample/1, line/2]).

-export_type([sample/0]).

-type sample() :: erlane_cli_loop:figures(erlane_proxy:info()).

%% @doc Reads everything a line needs.
-spec sample(erlane_proxy:name()) -> sample().
sample(Name) ->
    {ok, Info} = erlane_proxy:info(Name),
    erlane_cli_loop:figures(Info).

%% @doc The figures, without a newline; `waits' are calls of epoll_wait, over all lanes.
-spec line(sample(), sample()) -> iolist().
line(#{ms := Ms0, info := Before, waits := Waits0, events := Events0},
     #{ms := Ms1, info := After, waits := Waits1, events := Events1}) ->
    #{connections := Now, accepted := Accepted, to_upstream := Up, to_client := Down} = After,
    #{to_upstream := Up0, to_client := Down0} = Before,
    Ms = max(1, Ms1 - Ms0),
    Waits = Waits1 - Waits0,
    io_lib:format("~b open ~b total ~b errors | MB ~ts up ~ts down ~ts/s | "
                  "~b waits/s ~.1f events each",
                  [Now, Accepted, errors(After), mb(Up), mb(Down),
                   mb(max(0, Up + Down - Up0 - Down0) * 1000 div Ms),
                   Waits * 1000 div Ms, mean(Events1 - Events0, Waits)]).

errors(#{connect_errors := Connect, accept_errors := Accept, ended_error := Ended}) ->
    Connect + Accept + Ended.

mb(Bytes) ->
    io_lib:format("~.1f", [Bytes / 1.0e6]).

mean(_Events, 0) -> 0.0;
mean(Events, Waits) -> Events / Waits.
