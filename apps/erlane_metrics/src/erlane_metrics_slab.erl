%% SPDX-License-Identifier: Apache-2.0
%% @doc Where values live: an array of the VM, shared by up to 63 series or owned by one.
%%
%% The last word of a slab holds a bit for each of its series that was deleted, so a handle
%% knows by itself whether it is alive, and no table has to remember the dead. An index is
%% handed out once: a handle that outlives its series can only ever reach its own old word.
%% The array goes when the last handle to it goes.
-module(erlane_metrics_slab).

-export([new/2, take/1, kill/3, alive/3]).

-export_type([slab/0, kind/0, ref/0]).

-type kind() :: counters | atomics.
-type ref() :: counters:counters_ref() | atomics:atomics_ref().
-opaque slab() :: {kind(), ref(), Next :: pos_integer(), Words :: pos_integer()}.

%% @doc A slab of `Words' words, 64 at most: room for `Words - 1' series.
-spec new(kind(), 2..64) -> slab().
new(Kind, Words) when Words >= 2, Words =< 64 ->
    {Kind, array(Kind, Words), 1, Words}.

array(counters, Words) -> counters:new(Words, [write_concurrency]);
array(atomics, Words) -> atomics:new(Words, []).

%% @doc The next index, never given before.
-spec take(slab()) -> {ok, ref(), pos_integer(), slab()} | full.
take({_, _, Words, Words}) -> full;
take({Kind, Ref, Next, Words}) -> {ok, Ref, Next, {Kind, Ref, Next + 1, Words}}.

%% @doc Marks a series as deleted. Only the registry does this, once for each index: adding the
%% bit is then the same as setting it.
-spec kill(kind(), ref(), pos_integer()) -> ok.
kill(counters, Ref, Ix) -> counters:add(Ref, words(counters, Ref), 1 bsl (Ix - 1));
kill(atomics, Ref, Ix) -> atomics:add(Ref, words(atomics, Ref), 1 bsl (Ix - 1)).

%% @doc Whether the series of this index was not deleted.
-spec alive(kind(), ref(), pos_integer()) -> boolean().
alive(Kind, Ref, Ix) -> dead(Kind, Ref) band (1 bsl (Ix - 1)) =:= 0.

dead(counters, Ref) -> counters:get(Ref, words(counters, Ref));
dead(atomics, Ref) -> atomics:get(Ref, words(atomics, Ref)).

words(counters, Ref) -> maps:get(size, counters:info(Ref));
words(atomics, Ref) -> maps:get(size, atomics:info(Ref)).
