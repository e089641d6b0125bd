%% SPDX-License-Identifier: Apache-2.0
%% @doc The hottest keys of a stream in bounded memory. Pure.
%%
%% The algorithm is Space-Saving (Metwally, Agrawal, El Abbadi, 2005): a new key takes the place of
%% the one with the smallest count, and inherits that count. A key that makes up more than 1/N of
%% the stream is always among the N that are watched, and no count is too small. All counts are
%% halved now and then, so that the report is about what is hot now.
-module(erlane_shard_hot).

-export([new/1, note/2, top/1, total/1]).

-export_type([hot/0]).

-record(hot, {max :: non_neg_integer(),
              total = 0 :: non_neg_integer(),
              counts = #{} :: #{term() => pos_integer()}}).

-opaque hot() :: #hot{}.

%% Notes after which all counts are halved.
-define(HALVE, 65536).

%% @doc Watches so many keys; 0 for none.
-spec new(Keys :: non_neg_integer()) -> hot().
new(Keys) -> #hot{max = Keys}.

%% @doc One occurrence of a key.
-spec note(Key :: term(), hot()) -> hot().
note(_, #hot{max = 0} = Hot) -> Hot;
note(Key, #hot{total = ?HALVE, counts = Counts} = Hot) ->
    Halved = maps:filtermap(fun(_, 1) -> false; (_, N) -> {true, N div 2} end, Counts),
    note(Key, Hot#hot{total = ?HALVE div 2, counts = Halved});
note(Key, #hot{max = Max, total = Total, counts = Counts} = Hot) ->
    Hot#hot{total = Total + 1,
            counts = case Counts of
                         #{Key := N} -> Counts#{Key := N + 1};
                         _ when map_size(Counts) < Max -> Counts#{Key => 1};
                         _ ->
                             {Coldest, N} = coldest(maps:next(maps:iterator(Counts))),
                             (maps:remove(Coldest, Counts))#{Key => N + 1}
                     end}.

coldest({Key, N, Next}) -> coldest(maps:next(Next), Key, N).

coldest(none, Key, N) -> {Key, N};
coldest({Key, N, Next}, _, Least) when N < Least -> coldest(maps:next(Next), Key, N);
coldest({_, _, Next}, Key, Least) -> coldest(maps:next(Next), Key, Least).

%% @doc The keys that are watched with their counts, the hottest first.
-spec top(hot()) -> [{Key :: term(), pos_integer()}].
top(#hot{counts = Counts}) ->
    lists:sort(fun({_, A}, {_, B}) -> A >= B end, maps:to_list(Counts)).

%% @doc What the counts are of: the notes so far, as halved as the counts.
-spec total(hot()) -> non_neg_integer().
total(#hot{total = Total}) -> Total.
