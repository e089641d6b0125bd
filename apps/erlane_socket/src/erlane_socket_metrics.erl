%% SPDX-License-Identifier: Apache-2.0
%% @doc The lanes as metrics: a collector for `erlane_metrics', where that app is there.
%%
%% The lanes go on counting in their own memory; the collector reads what they have counted when
%% a page wants it. The application registers it when it starts. Where `erlane_metrics' is
%% started later, or again, {@link register/0} does.
-module(erlane_socket_metrics).

-export([register/0, unregister/0, families/1, collect/1]).

%% @doc Registers the collector `lanes'. Not an error if there is no `erlane_metrics'.
-spec register() -> ok | {error, term()}.
register() ->
    try erlane_metrics:collector(lanes, #{module => ?MODULE}) of
        {error, already_started} -> ok;
        Answer -> Answer
    catch
        error:undef -> {error, {not_started, erlane_metrics}}
    end.

%% @private
-spec unregister() -> ok | {error, term()}.
unregister() ->
    try erlane_metrics_collector:stop(lanes)
    catch error:undef -> {error, not_found}
    end.

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(_Options) ->
    [{Type, Opts#{name => name(Key), help => Help, labels => [<<"lane">>]}}
     || {Type, Key, Help, Opts} <- all()].

%% @private
-spec collect(map()) -> {[{binary(), [{[pos_integer()], number()}]}], map()}.
collect(Options) ->
    Lanes = erlane_socket:stats(),
    {[{name(Key), [{[Lane], maps:get(Key, Stats)} || #{lane := Lane} = Stats <- Lanes]}
      || {_, Key, _, _} <- all()], Options}.

name(recv) -> <<"erlane_lane_receive_calls">>;
name(send) -> <<"erlane_lane_send_calls">>;
name(recv_bytes) -> <<"erlane_lane_received">>;
name(send_bytes) -> <<"erlane_lane_sent">>;
name(Key) -> <<"erlane_lane_", (atom_to_binary(Key))/binary>>.

all() ->
    [{counter, turns, <<"Turns of the poller">>, #{}},
     {counter, empty_turns, <<"Turns that found nothing">>, #{}},
     {counter, waits, <<"Calls of epoll_wait">>, #{}},
     {counter, events, <<"Events they brought">>, #{}},
     {counter, sleeps, <<"Times a lane went to sleep">>, #{}},
     {counter, wakes, <<"Times it was woken">>, #{}},
     {counter, stale, <<"Events of closed sockets">>, #{}},
     {counter, recv, <<"System calls that receive">>, #{}},
     {counter, send, <<"System calls that send">>, #{}},
     {counter, eagain, <<"Those that found nothing or no room">>, #{}},
     {counter, recv_bytes, <<"Bytes received">>, #{unit => <<"bytes">>}},
     {counter, send_bytes, <<"Bytes sent">>, #{unit => <<"bytes">>}},
     {counter, accepted, <<"Sockets accepted">>, #{}},
     {counter, moved, <<"Sockets moved to this lane">>, #{}},
     {gauge, sockets, <<"Sockets that are open">>, #{}},
     {gauge, relays, <<"Relays that are open">>, #{}}].
