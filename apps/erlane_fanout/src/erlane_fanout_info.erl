%% SPDX-License-Identifier: Apache-2.0
%% @doc The figures of the lanes, read from their memory: no lane is asked.
-module(erlane_fanout_info).

-export([info/0]).

-export_type([info/0]).

-include("erlane_fanout.hrl").

-type info() ::
        #{Lane :: pos_integer() =>
              #{inbox | subscriptions | feeds | messages | deliveries | delivered | turns | wakes
                | slow | lost | replaced | disconnected | blocked_us | refused | breaks
                => non_neg_integer()}}.

%% @doc See {@link erlane_fanout:info/0}.
-spec info() -> info().
info() ->
    #lanes{words = Words, stats = Stats} = erlane_fanout_lanes:get(),
    maps:from_list([{I, lane(element(I, Words), element(I, Stats))}
                    || I <- lists:seq(1, tuple_size(Words))]).

lane(Word, Stats) ->
    maps:from_list([{inbox, erlane_fanout_inbox:discharge(Word, 0)}
                    | [{Key, atomics:get(Stats, Cell)} || {Key, Cell} <- cells()]]).

cells() ->
    [{subscriptions, ?S_SUBS}, {feeds, ?S_FEEDS}, {messages, ?S_MESSAGES},
     {deliveries, ?S_DELIVERIES}, {delivered, ?S_DELIVERED}, {turns, ?S_TURNS},
     {wakes, ?S_WAKES}, {slow, ?S_SLOW}, {lost, ?S_LOST}, {replaced, ?S_REPLACED},
     {disconnected, ?S_DISCONNECTED}, {blocked_us, ?S_BLOCKED_US}, {refused, ?S_REFUSED},
     {breaks, ?S_BREAKS}].
