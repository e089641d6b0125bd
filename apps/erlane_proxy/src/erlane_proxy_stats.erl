%% SPDX-License-Identifier: Apache-2.0
%% @doc The counters of one listener, by index: name, place and meaning are declared here.
-module(erlane_proxy_stats).

-export([new/0, add/2, add/3, read/1, ended/1]).

-export_type([stats/0, name/0]).

-type stats() :: counters:counters_ref().
-type name() ::
        accepted            % connections accepted
      | connected           % of these, upstream reached and relay begun
      | connect_errors      % upstream not reached: the client was reset
      | accept_errors       % accept failed (EMFILE and the like)
      | to_upstream         % bytes of ended connections, client to upstream
      | to_client           % bytes of ended connections, upstream to client
      | ended_normal        % both sides ended in order
      | ended_reset         % one side reset, the reset was passed on
      | ended_idle          % idle timeout
      | ended_half_close    % half-close timeout
      | ended_closed        % ended by us: drain
      | ended_error.        % any other error of a socket

-define(NAMES, [accepted, connected, connect_errors, accept_errors, to_upstream, to_client,
                ended_normal, ended_reset, ended_idle, ended_half_close, ended_closed,
                ended_error]).

-spec new() -> stats().
new() ->
    counters:new(length(?NAMES), [write_concurrency]).

-spec add(stats(), name()) -> ok.
add(Stats, Name) ->
    add(Stats, Name, 1).

-spec add(stats(), name(), non_neg_integer()) -> ok.
add(Stats, Name, N) ->
    counters:add(Stats, index(Name), N).

-spec read(stats()) -> #{name() => non_neg_integer()}.
read(Stats) ->
    maps:from_list([{Name, counters:get(Stats, index(Name))} || Name <- ?NAMES]).

%% @doc The counter that belongs to the reason a relay ended with.
-spec ended(term()) -> name().
ended(normal) -> ended_normal;
ended(reset) -> ended_reset;
ended(idle) -> ended_idle;
ended(half_close) -> ended_half_close;
ended(closed) -> ended_closed;
ended({error, _}) -> ended_error.

index(accepted) -> 1;
index(connected) -> 2;
index(connect_errors) -> 3;
index(accept_errors) -> 4;
index(to_upstream) -> 5;
index(to_client) -> 6;
index(ended_normal) -> 7;
index(ended_reset) -> 8;
index(ended_idle) -> 9;
index(ended_half_close) -> 10;
index(ended_closed) -> 11;
index(ended_error) -> 12.
