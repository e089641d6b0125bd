%% SPDX-License-Identifier: Apache-2.0
%% @doc From a publisher to the lanes: the cost is one message for each lane with subscriptions,
%% here, and one for each node with any.
-module(erlane_fanout_publish).

-export([publish/4, entries/4]).

-include("erlane_fanout.hrl").

-type topics() :: erlane_fanout_topic:topic() | [erlane_fanout_topic:topic()].

%% @doc See {@link erlane_fanout:publish/3}.
-spec publish(topics(), term(), #{retain => boolean()}, all | local) -> ok.
publish(Topics, Message, Opts, Scope) ->
    check(Topics),
    #lanes{} = Lanes = erlane_fanout_lanes:get(),
    retain(Topics, Message, Opts),
    %% Before the look-up.
    Era = erlane_fanout_match:era(Lanes#lanes.wild),
    case routes(Topics, Lanes) of
        [] -> ok;
        Routes ->
            send(Era, Routes, Message, erlane_fanout_inbox:size(Message), Lanes),
            case Scope of
                all -> erlane_fanout_remote:send(remote(Routes), Topics, Message, Lanes#lanes.wild);
                local -> ok
            end
    end.

check(Topics) when is_list(Topics) ->
    lists:foreach(fun erlane_fanout_topic:check_topic/1, Topics);
check(Topic) ->
    erlane_fanout_topic:check_topic(Topic).

retain(_, _, Opts) when map_size(Opts) =:= 0 -> ok;
retain(_, _, #{retain := false} = Opts) when map_size(Opts) =:= 1 -> ok;
retain(Topics, Message, #{retain := true} = Opts) when map_size(Opts) =:= 1 ->
    erlane_fanout_retain:store(if is_list(Topics) -> Topics; true -> [Topics] end, Message);
retain(Topics, Message, Opts) ->
    error(badarg, [Topics, Message, Opts]).

%% Each filter once, however many of the topics it matches.
routes(Topics, #lanes{wild = Wild}) when is_list(Topics) ->
    lists:ukeysort(1, lists:append([erlane_fanout_match:routes(T, Wild) || T <- Topics]));
routes(Topic, #lanes{wild = Wild}) ->
    erlane_fanout_match:routes(Topic, Wild).

%% The last number of each node.
remote([{_, _, _, Nodes}]) -> Nodes;
remote(Routes) -> last(lists:usort(lists:append([element(?R_REMOTE, R) || R <- Routes]))).

last([{Node, _, _} | [{Node, _, _} | _] = Rest]) -> last(Rest);
last([Last | Rest]) -> [Last | last(Rest)];
last([]) -> [].

send(Era, [{Filter, Bits, 0, _}], Message, Bytes, Lanes) ->
    one(Bits, 1, {pub, Era, [Filter], Bytes, Message}, Bytes, Lanes);
send(Era, Routes, Message, Bytes, Lanes) ->
    lists:foreach(fun(Route) -> wait(Route, Lanes) end, Routes),
    _ = each(lanes(Routes), 1, Routes,
             fun(I, Filters) ->
                     erlane_fanout_inbox:put(Lanes, I, {pub, Era, Filters, Bytes, Message},
                                             Bytes * length(Filters))
             end),
    ok.

lanes(Routes) ->
    lists:foldl(fun(Route, Bits) -> Bits bor element(?R_LANES, Route) end, 0, Routes).

one(0, _, _, _, _) -> ok;
one(Bits, I, Entry, Bytes, Lanes) ->
    _ = Bits band 1 =:= 1 andalso erlane_fanout_inbox:put(Lanes, I, Entry, Bytes),
    one(Bits bsr 1, I + 1, Entry, Bytes, Lanes).

%% What the function makes of each lane's filters.
each(0, _, _, _) -> [];
each(Bits, I, Routes, Fun) ->
    case [element(1, R) || Bits band 1 =:= 1, R <- Routes,
                           (element(?R_LANES, R) bsr (I - 1)) band 1 =:= 1] of
        [] -> each(Bits bsr 1, I + 1, Routes, Fun);
        Filters -> [Fun(I, Filters) | each(Bits bsr 1, I + 1, Routes, Fun)]
    end.

%% Until no subscription of this filter that blocks is over its limit.
wait({_, _, 0, _}, _) -> ok;
wait({Filter, _, Bits, _}, #lanes{pids = Pids} = Lanes) ->
    lists:foreach(fun(I) -> erlane_fanout_inbox:blocked(Lanes, I, Filter) end,
                  [I || I <- lists:seq(1, tuple_size(Pids)), (Bits bsr (I - 1)) band 1 =:= 1]),
    case ets:lookup(?ROUTES, Filter) of
        [Route] -> wait(Route, erlane_fanout_lanes:get());
        [] -> ok
    end.

%% @doc What another node has published, which knew this one by that number: an entry for each lane
%% of this node that wants it, with what it counts there.
-spec entries(Number :: pos_integer(), topics(), term(), #lanes{}) ->
          [{pos_integer(), erlane_fanout_inbox:entry(), pos_integer()}].
entries(Number, Topics, Message, Lanes) ->
    check(Topics),
    %% Before the look-up, as for publishers here.
    Since = {remote, Number, erlane_fanout_match:era(Lanes#lanes.wild)},
    Routes = routes(Topics, Lanes),
    Bytes = erlane_fanout_inbox:size(Message),
    each(lanes(Routes), 1, Routes,
         fun(I, Filters) ->
                 {I, {pub, Since, Filters, Bytes, Message}, Bytes * length(Filters)}
         end).
