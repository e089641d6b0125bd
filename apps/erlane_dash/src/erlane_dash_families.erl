%% SPDX-License-Identifier: Apache-2.0
%% @doc Families of `erlane_metrics' for the page: the list of all, and the values of one.
-module(erlane_dash_families).

-export([list/0, read/1]).

%% An answer has so many series at most.
-define(MAX_SERIES, 100).

%% @doc All families, counters of a group each for itself. `collected': its values come from a
%% function, mostly a collector, which gives new ones every ten seconds or so.
-spec list() -> [#{atom() => term()}].
list() ->
    [#{name => Name, type => Type, help => Help, unit => Unit, collected => Collected}
     || {#{name := Name, type := Type, help := Help, unit := Unit}, _, Collected} <- all()].

%% @doc The values of a family now.
-spec read(binary()) -> {ok, #{atom() => term()}} | error.
read(Name) ->
    case [{Read, Family} || {#{name := N} = Family, Read, _} <- all(), N =:= Name] of
        [{Read, Family}] ->
            Time = erlang:system_time(millisecond),
            {N, Series} = lists:foldl(fun keep/2, {0, []}, Read()),
            {ok, #{t => Time, more => max(0, N - ?MAX_SERIES),
                   series => [series(Family, S) || S <- lists:reverse(Series)]}};
        [] ->
            error
    end.

keep(Series, {N, Acc}) when N < ?MAX_SERIES -> {N + 1, [Series | Acc]};
keep(_, {N, Acc}) -> {N + 1, Acc}.

%% What is exposed of each family, a function for its series `{Labels, Value}', and whether it
%% has a callback. Without the app there are none.
all() ->
    try erlane_metrics_walk:families() of
        Declarations -> lists:append([families(D) || D <- Declarations])
    catch
        error:badarg -> []
    end.

families(#{type := group, counters := Counters, store := _} = Group) ->
    [{erlane_metrics_family:member(Group, I, Name, Help),
      fun() -> stored(Group, fun({group, Ref, _}) -> erlane_metrics_read:member(Ref, I) end) end,
      false}
     || {I, {Name, Help}} <- lists:zip(lists:seq(1, length(Counters)), Counters)];
families(#{store := callback} = Declaration) ->
    [{erlane_metrics_family:exposed(Declaration),
      fun() -> [{Text, Value} || {Text, _, Value, _} <-
                                     erlane_metrics_callback:series(Declaration)] end,
      true}];
families(#{type := Type} = Declaration) ->
    %% Of a summary we want the buckets, too: they make quantiles of now.
    Read = case Type of
               summary -> fun(Stored) ->
                                  erlane_metrics_read:value(erlane_metrics_read:live(Stored))
                          end;
               _ -> fun(Stored) -> erlane_metrics_read:exposed(Stored, Declaration) end
           end,
    [{erlane_metrics_family:exposed(case Type of
                                        summary -> Declaration#{type := histogram};
                                        _ -> Declaration
                                    end),
      fun() -> stored(Declaration, Read) end, false}].

%% The text of the labels is that of the page of metrics. Values are read for those only that are
%% shown: of a family of thousands of histograms that is little.
stored(Declaration, Read) ->
    {_, Series} = erlane_metrics_walk:family(
                    Declaration,
                    fun(_, Text, Stored, _, {N, Acc}) when N < ?MAX_SERIES ->
                            {N + 1, [{Text, Read(Stored)} | Acc]};
                       (_, Text, _, _, {N, Acc}) ->
                            {N + 1, [{Text, more} | Acc]}
                    end, {0, []}),
    lists:reverse(Series).

series(Family, {Text, Value}) ->
    (value(Family, Value))#{labels => Text}.

value(#{type := histogram}, #{count := Count, sum := Sum, unit_div := Div} = Hist) ->
    #{count => Count, sum => Sum / Div, buckets => buckets(Hist)};
value(#{type := info}, Pairs) when is_list(Pairs) ->
    #{value => iolist_to_binary(lists:join(", ", [[K, "=\"", V, $"] || {K, V} <- Pairs]))};
value(#{type := stateset, states := States}, Values) ->
    #{value => iolist_to_binary(lists:join(", ", [S || {S, true} <- lists:zip(States, Values)]))};
value(#{decimals := 0}, N) -> #{value => N};
value(#{decimals := Decimals}, N) when is_integer(N) -> #{value => N / math:pow(10, Decimals)};
value(_, Special) -> #{value => Special}.

%% `[Estimate, Count]' of each bucket that has any: the point within it that is as far from both
%% edges in proportion, as erlane_metrics:quantile/2 has it.
buckets(#{scale := custom, bounds := Bounds, buckets := Counts, over := Over}) ->
    Last = lists:last(Bounds),
    [[B, N] || {B, N} <- lists:zip(Bounds, Counts), N > 0] ++ [[Last, Over] || Over > 0];
buckets(#{scale := Scale, offset := Offset, buckets := Counts, zero := Zero, over := Over}) ->
    Edge = fun(I) -> math:pow(2.0, (Offset + I) / (1 bsl Scale)) end,
    Middle = fun(I) ->
                     {Low, High} = {Edge(I - 1), Edge(I)},
                     2 * Low * High / (Low + High)
             end,
    [[0, Zero] || Zero > 0] ++
        [[Middle(I), N] || {I, N} <- lists:zip(lists:seq(0, length(Counts) - 1), Counts), N > 0] ++
        [[Edge(length(Counts) - 1), Over] || Over > 0].
