%% SPDX-License-Identifier: Apache-2.0
%% @doc From a topic to those who want it: the table of routes, and the tree of wildcard filters.
%%
%% Both are written by every lane, each adding and taking away what is its own, so that no lane
%% waits for another: a row of zeros is deleted by who made it so, if nobody was faster.
%%
%% A lane's bit of a filter may go and come back while messages are under way. Of what was looked
%% up before it went the lane must deliver nothing once it is back: what the same publisher
%% published in between is not coming. So each feed of a lane begins an era, after the last bit
%% went and before its own is there, and a publisher reads the era before it looks up.
-module(erlane_fanout_match).

-export([tables/0, new/0, era/1, reports/1, reports/2, routes/2, add/3, remove/3, clear/2, count/3,
         counted/2, blocked/3, remote/3]).

-include("erlane_fanout.hrl").

-type route() :: {erlane_fanout_topic:filter(), Lanes :: non_neg_integer(),
                  Blocked :: non_neg_integer(),
                  Remote :: [member()]}.
-type member() :: {node(), Number :: pos_integer(), erlane_fanout_link:link()}.
-type era() :: non_neg_integer().
-export_type([route/0, member/0, era/0]).

%% What all share: how many wildcard filters there are, lanes and other nodes apart, the era, and
%% whether the router tells erlane_fanout_remote what it has lost.
%% Every publish reads these: in the middle of their array, where nothing that is written often
%% shares their cache line.
-define(W_FILTERS, 8).
-define(W_ERA, 9).
-define(W_REPORTS, 10).
-define(WORDS, 16).

%% @doc Makes the tables; the caller owns them.
-spec tables() -> ok.
tables() ->
    Opts = [named_table, public, {read_concurrency, true}, {write_concurrency, true}],
    ?ROUTES = ets:new(?ROUTES, Opts),
    ?COUNTS = ets:new(?COUNTS, Opts),
    ?TRIE = ets:new(?TRIE, Opts),
    ?SUBS = ets:new(?SUBS, [{keypos, #row.sub} | Opts]),
    ?RING = ets:new(?RING, Opts),
    ?RETAIN = ets:new(?RETAIN, Opts),
    ?LINKS = ets:new(?LINKS, Opts),
    ok.

%% @doc The memory that {@link era/1} and {@link routes/2} read.
-spec new() -> atomics:atomics_ref().
new() -> atomics:new(?WORDS, []).

%% @doc The era of what is looked up after this.
-spec era(atomics:atomics_ref()) -> era().
era(Wild) -> atomics:get(Wild, ?W_ERA).

%% @doc Does the router tell erlane_fanout_remote what it has lost?
-spec reports(atomics:atomics_ref()) -> boolean().
reports(Wild) -> atomics:get(Wild, ?W_REPORTS) =:= 1.

%% @doc It does, or not any more.
-spec reports(boolean(), atomics:atomics_ref()) -> ok.
reports(Reports, Wild) ->
    atomics:put(Wild, ?W_REPORTS, case Reports of true -> 1; false -> 0 end).

%% @doc Who gets what is published to a topic. `Wild': whether there are wildcard filters.
-spec routes(erlane_fanout_topic:topic(), atomics:atomics_ref()) -> [route()].
routes(Topic, Wild) ->
    case atomics:get(Wild, ?W_FILTERS) of
        N when N > 0, is_binary(Topic) ->
            ets:lookup(?ROUTES, Topic) ++ wild(Topic);
        _ ->
            ets:lookup(?ROUTES, Topic)
    end.

wild(Topic) ->
    Levels = erlane_fanout_topic:levels(Topic),
    Found = case Topic of
                %% Only below a first level that is named.
                <<"$", _/binary>> -> walk_level(hd(Levels), tl(Levels), [], []);
                _ -> walk(Levels, [], [])
            end,
    [Route || Path <- Found, Route <- ets:lookup(?ROUTES, filter(Path))].

%% Paths, last level first, of the wildcard filters that match; the tree has their every prefix.
walk(Levels, Path, Found) ->
    Found1 = end_with(<<"#">>, Path, Found),
    case Levels of
        [] -> [Path | Found1];
        [Level | Rest] ->
            walk_level(Level, Rest, Path, walk_level(<<"+">>, Rest, Path, Found1))
    end.

walk_level(Level, Rest, Path, Found) ->
    Path1 = [Level | Path],
    case ets:member(?TRIE, Path1) of
        true -> walk(Rest, Path1, Found);
        false -> Found
    end.

end_with(Level, Path, Found) ->
    case ets:member(?TRIE, [Level | Path]) of
        true -> [[Level | Path] | Found];
        false -> Found
    end.

%% A path without a wildcard would be the topic itself, which was looked up before.
filter(Path) ->
    case lists:any(fun(L) -> L =:= <<"+">> orelse L =:= <<"#">> end, Path) of
        true -> iolist_to_binary(lists:join($/, lists:reverse(Path)));
        false -> make_ref()
    end.

%% @doc The lane has its first subscription with this filter. Answers the era that begins: what
%% is of an earlier one was looked up before.
-spec add(pos_integer(), erlane_fanout_topic:filter(), atomics:atomics_ref()) -> era().
add(Lane, Filter, Wild) ->
    Era = atomics:add_get(Wild, ?W_ERA, 1),
    %% The tree first: who finds the way must find the row, but not the other way round.
    ok = grow(Filter, Wild),
    _ = ets:update_counter(?ROUTES, Filter, {?R_LANES, 1 bsl (Lane - 1)}, empty(Filter)),
    ok = erlane_fanout_remote:changed(Filter),
    Era.

%% @doc The lane has none any more.
-spec remove(pos_integer(), erlane_fanout_topic:filter(), atomics:atomics_ref()) -> ok.
remove(Lane, Filter, Wild) ->
    _ = ets:update_counter(?ROUTES, Filter, {?R_LANES, -(1 bsl (Lane - 1))}, empty(Filter)),
    _ = ets:delete_object(?ROUTES, empty(Filter)),
    ok = shrink(Filter, Wild),
    erlane_fanout_remote:changed(Filter).

empty(Filter) -> {Filter, 0, 0, []}.

%% @doc The lane has crashed: nothing of it is left in the tables.
-spec clear(pos_integer(), atomics:atomics_ref()) -> ok.
clear(Lane, Wild) ->
    true = ets:match_delete(?COUNTS, {{'_', Lane}, '_'}),
    Bit = 1 bsl (Lane - 1),
    lists:foreach(fun({Filter, Lanes, Blocked, _}) ->
                          Blocked band Bit =/= 0 andalso blocked(Lane, Filter, false),
                          Lanes band Bit =/= 0 andalso remove(Lane, Filter, Wild)
                  end, ets:tab2list(?ROUTES)).

%% @doc The lane has so many subscriptions with this filter.
-spec count(pos_integer(), erlane_fanout_topic:filter(), non_neg_integer()) -> ok.
count(Lane, Filter, 0) ->
    true = ets:delete(?COUNTS, {Filter, Lane}),
    ok;
count(Lane, Filter, N) ->
    true = ets:insert(?COUNTS, {{Filter, Lane}, N}),
    ok.

%% @doc Subscriptions of this node with exactly this filter.
-spec counted(erlane_fanout_topic:filter(), Lanes :: pos_integer()) -> non_neg_integer().
counted(Filter, Lanes) ->
    lists:sum([N || Lane <- lists:seq(1, Lanes), {_, N} <- ets:lookup(?COUNTS, {Filter, Lane})]).

%% @doc Publishers to this filter are to wait in this lane, or not any more.
-spec blocked(pos_integer(), erlane_fanout_topic:filter(), boolean()) -> ok.
blocked(Lane, Filter, Blocked) ->
    Bit = 1 bsl (Lane - 1),
    Add = case Blocked of true -> Bit; false -> -Bit end,
    _ = ets:update_counter(?ROUTES, Filter, {?R_BLOCKED, Add}, empty(Filter)),
    ok.

%% @doc The nodes with subscriptions to this filter are these. Only one process calls it.
-spec remote(erlane_fanout_topic:filter(), [member()], atomics:atomics_ref()) -> ok.
remote(Filter, Nodes, Wild) ->
    Before = case ets:lookup(?ROUTES, Filter) of
                 [Route] -> element(?R_REMOTE, Route);
                 [] -> []
             end,
    Before =:= [] andalso Nodes =/= [] andalso grow(Filter, Wild),
    %% A row may be made or deleted meanwhile: until this has found it there.
    ok = put_remote(Filter, Nodes),
    _ = ets:delete_object(?ROUTES, empty(Filter)),
    case Before =/= [] andalso Nodes =:= [] of
        true -> shrink(Filter, Wild);
        false -> ok
    end.

put_remote(Filter, Nodes) ->
    _ = ets:insert_new(?ROUTES, empty(Filter)),
    case ets:update_element(?ROUTES, Filter, {?R_REMOTE, Nodes}) of
        true -> ok;
        false -> put_remote(Filter, Nodes)
    end.

grow(Filter, Wild) ->
    case erlane_fanout_topic:is_wild(Filter) of
        true ->
            [_ = ets:update_counter(?TRIE, Path, 1, {Path, 0}) || Path <- paths(Filter)],
            atomics:add(Wild, ?W_FILTERS, 1);
        false -> ok
    end.

shrink(Filter, Wild) ->
    case erlane_fanout_topic:is_wild(Filter) of
        true ->
            atomics:sub(Wild, ?W_FILTERS, 1),
            [begin
                 _ = ets:update_counter(?TRIE, Path, -1, {Path, 0}),
                 ets:delete_object(?TRIE, {Path, 0})
             end || Path <- paths(Filter)],
            ok;
        false -> ok
    end.

%% [[a], [b, a], [c, b, a]] of a/b/c.
paths(Filter) ->
    {Paths, _} = lists:mapfoldl(fun(Level, Path) -> {[Level | Path], [Level | Path]} end,
                                [], erlane_fanout_topic:levels(Filter)),
    Paths.
