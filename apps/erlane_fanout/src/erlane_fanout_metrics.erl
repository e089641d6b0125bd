%% SPDX-License-Identifier: Apache-2.0
%% @doc The lanes as metrics: a collector for `erlane_metrics', if that is there.
-module(erlane_fanout_metrics).

-export([register/0, unregister/0, families/1, collect/1]).

%% @doc Registers the collector `fanout'. Not an error if there is no `erlane_metrics'.
-spec register() -> ok | {error, term()}.
register() ->
    try erlane_metrics:collector(fanout, #{module => ?MODULE}) of
        {error, already_started} -> ok;
        Answer -> Answer
    catch
        error:undef -> {error, {not_started, erlane_metrics}}
    end.

%% @private
-spec unregister() -> ok | {error, term()}.
unregister() ->
    try erlane_metrics_collector:stop(fanout)
    catch error:undef -> {error, not_found}
    end.

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(_Options) ->
    [{Type, #{name => name(Key), help => Help, labels => [<<"lane">>]}}
     || {Type, Key, Help} <- all()].

%% @private
-spec collect(map()) -> {[{binary(), [{[term()], number()}]}], map()}.
collect(Options) ->
    Info = maps:to_list(erlane_fanout:info()),
    {[{name(Key), [{[Lane], maps:get(Key, Figures)} || {Lane, Figures} <- Info]}
      || {_, Key, _} <- all()], Options}.

name(inbox) -> <<"erlane_fanout_inbox_bytes">>;
name(blocked_us) -> <<"erlane_fanout_blocked_microseconds">>;
name(Key) -> <<"erlane_fanout_", (atom_to_binary(Key))/binary>>.

all() ->
    [{gauge, inbox, <<"Bytes that publishers have put and that are not delivered">>},
     {gauge, subscriptions, <<"Subscriptions">>},
     {gauge, feeds, <<"Filters with subscriptions">>},
     {counter, messages, <<"Messages taken from publishers">>},
     {counter, deliveries, <<"Deliveries to subscriptions">>},
     {counter, delivered, <<"Messages in them">>},
     {counter, turns, <<"Slices of work">>},
     {counter, wakes, <<"Times the lane was woken">>},
     {counter, slow, <<"Times a subscription went over its limit">>},
     {counter, lost, <<"Messages in gaps">>},
     {counter, replaced, <<"Of these, by a later one of their key">>},
     {counter, disconnected, <<"Subscriptions ended for being slow or closed">>},
     {counter, blocked_us, <<"Time that publishers waited">>},
     {counter, refused, <<"Messages of other nodes that a full lane had no room for">>},
     {counter, breaks, <<"Notices that messages of another node may be missing">>}].
