%% SPDX-License-Identifier: Apache-2.0
%% @doc The lanes of the router as metrics: a collector for `erlane_metrics', if that is there.
-module(erlane_router_metrics).

-export([register/0, unregister/0, families/1, collect/1]).

%% @doc Registers the collector `router'. Not an error if there is no `erlane_metrics'.
-spec register() -> ok | {error, term()}.
register() ->
    try erlane_metrics:collector(router, #{module => ?MODULE}) of
        {error, already_started} -> ok;
        Answer -> Answer
    catch
        error:undef -> {error, {not_started, erlane_metrics}}
    end.

%% @private
-spec unregister() -> ok | {error, term()}.
unregister() ->
    try erlane_metrics_collector:stop(router)
    catch error:undef -> {error, not_found}
    end.

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(_Options) ->
    [{Type, Opts#{name => name(Key), help => Help, labels => [<<"peer">>, <<"lane">>]}}
     || {Type, Key, Help, Opts} <- all()]
        ++ [{counter, #{name => <<"erlane_router_flushes">>, help => <<"Batches by cause">>,
                        labels => [<<"peer">>, <<"lane">>, <<"cause">>]}},
            {counter, #{name => <<"erlane_router_malformed">>, labels => [],
                        help => <<"What other nodes sent and was no frame">>}}].

%% @private
-spec collect(map()) -> {[{binary(), [{[term()], number()}]}], map()}.
collect(Options) ->
    Info = maps:to_list(erlane_router:info()),
    {[{name(Key), [{[Node, Lane], maps:get(Key, Lane1)} || {{Node, Lane}, Lane1} <- Info]}
      || {_, Key, _, _} <- all()]
     ++ [{<<"erlane_router_flushes">>,
          [{[Node, Lane, Cause], N} || {{Node, Lane}, #{flushes := Flushes}} <- Info,
                                       {Cause, N} <- maps:to_list(Flushes)]},
         {<<"erlane_router_malformed">>, [{[], erlane_router_gate:malformed()}]}], Options}.

name(bytes) -> <<"erlane_router_queued">>;
name(queued) -> <<"erlane_router_queued_messages">>;
name(inflight) -> <<"erlane_router_inflight_messages">>;
name(batches) -> <<"erlane_router_batches">>;
name(Key) -> <<"erlane_router_", (atom_to_binary(Key))/binary, "_messages">>.

all() ->
    [{gauge, queued, <<"Messages that wait in a lane">>, #{}},
     {gauge, bytes, <<"Their bytes">>, #{unit => <<"bytes">>}},
     {gauge, inflight, <<"Messages handed to the VM and not confirmed yet">>, #{}},
     {counter, confirmed, <<"Messages that have arrived">>, #{}},
     {counter, dropped, <<"Messages dropped, from the queue or by a full lane">>, #{}},
     {counter, refused, <<"Of these, by a full lane">>, #{}},
     {counter, unconfirmed, <<"Messages under way when the connection was lost">>, #{}},
     {counter, plain, <<"Messages sent plainly, to a node without a router">>, #{}},
     {counter, batches, <<"Frames sent">>, #{}}].
