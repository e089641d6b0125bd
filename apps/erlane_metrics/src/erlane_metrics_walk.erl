%% SPDX-License-Identifier: Apache-2.0
%% @doc One pass over all families and their series, for a scrape.
%%
%% At most 256 series are held at a time, and the scheduler is given away between two such
%% pieces. Families come in the order of their names, the counters of a group one after the
%% other. Series that are made or deleted meanwhile may or may not be met; nothing is met twice
%% and nothing that lives through the pass is left out.
-module(erlane_metrics_walk).

-export([fold/2, families/0, family/3]).

-export_type([series/0, item/0]).

-include("erlane_metrics.hrl").

-define(CHUNK, 256).

-type series() :: {Text :: binary(), Labels :: [{binary(), binary()}], Value :: term(),
                   CreatedMs :: integer()}.
-type item() :: {family, erlane_metrics_family:exposed()} | {series, series()}.
%% Values: see {@link erlane_metrics:value/1}; of a summary `#{count, sum, unit_div, quantiles
%% := [{Q, Estimate}]}'.

%% @doc Calls `Fun' with each family, and after it with each of its series.
-spec fold(fun((item(), Acc) -> Acc), Acc) -> Acc.
fold(Fun, Acc) ->
    %% A binary sorts after all keys of a family: the next key is the next family.
    fold(ets:next(?ORDER, {<<>>, <<>>}), Fun, Acc).

fold({Name, 0}, Fun, Acc) ->
    Acc1 = case ets:lookup(?ORDER, {Name, 0}) of
               [{_, Declaration}] -> one(Declaration, Fun, Acc);
               [] -> Acc
           end,
    fold(ets:next(?ORDER, {Name, <<>>}), Fun, Acc1);
fold({Name, _}, Fun, Acc) ->
    fold(ets:next(?ORDER, {Name, <<>>}), Fun, Acc);
fold('$end_of_table', _, Acc) ->
    Acc.

one(#{type := group, counters := Counters} = Group, Fun, Acc) ->
    {_, Acc1} = lists:foldl(
        fun({Name, Help}, {I, A}) ->
                A1 = Fun({family, erlane_metrics_family:member(Group, I, Name, Help)}, A),
                Value = fun({group, Ref, _}) -> erlane_metrics_read:member(Ref, I) end,
                {I + 1, series(Group, Value, Fun, A1)}
        end, {1, Acc}, Counters),
    Acc1;
one(#{store := callback} = Declaration, Fun, Acc) ->
    Acc1 = Fun({family, erlane_metrics_family:exposed(Declaration)}, Acc),
    lists:foldl(fun(Series, A) -> Fun({series, Series}, A) end, Acc1,
                erlane_metrics_callback:series(Declaration));
one(Declaration, Fun, Acc) ->
    Acc1 = Fun({family, erlane_metrics_family:exposed(Declaration)}, Acc),
    Value = fun(Stored) -> erlane_metrics_read:exposed(Stored, Declaration) end,
    series(Declaration, Value, Fun, Acc1).

series(#{labels := Names} = Declaration, Value, Fun, Acc) ->
    family(Declaration,
           fun({_, Labels}, Text, Stored, Created, A) ->
                   Pairs = erlane_metrics_name:pairs(Names, Labels),
                   Fun({series, {Text, Pairs, Value(Stored), Created}}, A)
           end, Acc).

%% @doc All declarations, by name.
-spec families() -> [erlane_metrics_family:declaration()].
families() ->
    families(ets:first(?ORDER)).

%% The keys of a family's series are lists and an atom, which come before any binary: the key
%% after {Name, <<>>} is the next family's. No series is looked at.
families({Name, 0} = Key) ->
    [{_, Declaration}] = ets:lookup(?ORDER, Key),
    [Declaration | families(ets:next(?ORDER, {Name, <<>>}))];
families('$end_of_table') ->
    [].

%% @doc One pass over the stored series of a family.
-spec family(#{name := binary(), atom() => term()},
             fun((Key, binary(), Stored, integer(), Acc) -> Acc), Acc) -> Acc
              when Key :: {binary(), [binary()] | overflow}, Stored :: tuple().
family(#{name := Name}, Fun, Acc) ->
    chunks(ets:select(?ORDER, [{{{Name, '_'}, '_', '_', '_'}, [], ['$_']}], ?CHUNK), Fun, Acc).

%% An ordered set keeps its place by key: no deletion can break the pass.
chunks({Rows, More}, Fun, Acc) ->
    Acc1 = lists:foldl(fun({Key, Text, Stored, Created}, A) ->
                               Fun(Key, Text, Stored, Created, A)
                       end, Acc, Rows),
    _ = erlang:yield(),
    chunks(ets:select(More), Fun, Acc1);
chunks('$end_of_table', _, Acc) ->
    Acc.
