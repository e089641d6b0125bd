%% SPDX-License-Identifier: Apache-2.0
%% @doc How many subscriptions there are: read where they are, when somebody asks.
-module(erlane_fanout_presence).

-export([count/1, presence/1, here/1]).

-include("erlane_fanout.hrl").

-define(TIMEOUT, 5000).

%% @doc See {@link erlane_fanout:count/1}.
-spec count(erlane_fanout_topic:topic()) -> non_neg_integer().
count(Topic) ->
    #lanes{wild = Wild} = erlane_fanout_lanes:get(),
    lists:sum([here(element(1, Route)) || Route <- erlane_fanout_match:routes(Topic, Wild)]).

%% @doc See {@link erlane_fanout:presence/1}.
-spec presence(erlane_fanout_topic:filter()) -> #{node() => pos_integer()}.
presence(Filter) ->
    Nodes = case ets:lookup(?ROUTES, Filter) of
                [Route] -> [Node || {Node, _, _} <- element(?R_REMOTE, Route)];
                [] -> []
            end,
    Answers = lists:zip(Nodes, erpc:multicall(Nodes, ?MODULE, here, [Filter], ?TIMEOUT)),
    maps:from_list([{Node, N} || {Node, {ok, N}} <- [{node(), {ok, here(Filter)}} | Answers],
                                 N > 0]).

%% @doc Subscriptions of this node with exactly this filter.
-spec here(erlane_fanout_topic:filter()) -> non_neg_integer().
here(Filter) ->
    #lanes{pids = Pids} = erlane_fanout_lanes:get(),
    erlane_fanout_match:counted(Filter, tuple_size(Pids)).
