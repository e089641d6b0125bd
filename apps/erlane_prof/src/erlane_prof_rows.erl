%% SPDX-License-Identifier: Apache-2.0
%% @doc What erlane_prof_sampler has seen and has not told yet: time and looks by process, state and
%% stack. Pure, and goes to the node with it.
%%
%% Stacks are told once, and known by a number after that; 0 is none. Terms that many processes
%% share are kept once.
-module(erlane_prof_rows).

-export([new/0, add/5, stack/2, who/2, told/1, untold/1, size/1, events/1, lost/1]).

-export_type([rows/0, who/0, state/0]).

-define(STACKS, 20000).

-record(rows, {rows = #{}, stacks = #{}, fresh = [], who = #{}, events = 0, lost = 0}).

-opaque rows() :: #rows{}.
-type who() :: {binary(), atom()}.
%% One that waits for a scheduler runs, for all we know, with this chance.
-type state() :: atom() | {runnable, float()}.

%% @doc Nothing yet.
-spec new() -> rows().
new() -> #rows{}.

%% @doc So much time in a state, seen by one look.
-spec add(state(), who(), Stack :: non_neg_integer(), Ns :: integer(), rows()) -> rows().
add({runnable, Place}, Who, Stack, Ns, R) ->
    Running = round(Place * Ns),
    add(running, Who, Stack, Running, 0, add(runnable, Who, Stack, Ns - Running, 1, R));
add(State, Who, Stack, Ns, R) ->
    add(State, Who, Stack, Ns, 1, R).

add(State, Who, Stack, Ns, N, #rows{rows = Rows, events = Events} = R) ->
    Key = {Who, State, Stack},
    {Ns0, N0} = maps:get(Key, Rows, {0, 0}),
    R#rows{rows = Rows#{Key => {Ns0 + Ns, N0 + N}}, events = Events + N}.

%% @doc The number of a stack.
-spec stack(Frames :: [tuple()], rows()) -> {non_neg_integer(), rows()}.
stack(Frames, #rows{stacks = Stacks} = R) ->
    case Stacks of
        #{Frames := Id} ->
            {Id, R};
        #{} when map_size(Stacks) >= ?STACKS ->
            {0, R#rows{lost = R#rows.lost + 1}};
        #{} ->
            Id = map_size(Stacks) + 1,
            {Id, R#rows{stacks = Stacks#{Frames => Id}, fresh = [{Id, Frames} | R#rows.fresh]}}
    end.

%% @doc The same name, kept once.
-spec who(who(), rows()) -> {who(), rows()}.
who(Who, #rows{who = All} = R) ->
    case All of
        #{Who := Same} -> {Same, R};
        #{} -> {Who, R#rows{who = All#{Who => Who}}}
    end.

%% @doc All that was not told, as the caller takes it: rows and stacks.
-spec untold(rows()) -> {[{binary(), atom(), atom(), non_neg_integer(), [integer()]}],
                         [{pos_integer(), [tuple()]}]}.
untold(#rows{rows = Rows, fresh = Stacks}) ->
    {[{Proc, App, State, Stack, [Ns, N]}
      || {{{Proc, App}, State, Stack}, {Ns, N}} <- maps:to_list(Rows)], Stacks}.

%% @doc It was told.
-spec told(rows()) -> rows().
told(R) -> R#rows{rows = #{}, fresh = []}.

%% @doc How many rows were not.
-spec size(rows()) -> non_neg_integer().
size(#rows{rows = Rows}) -> map_size(Rows).

%% @doc How many looks there were.
-spec events(rows()) -> non_neg_integer().
events(#rows{events = Events}) -> Events.

%% @doc How many looks have no stack, as there were too many different ones.
-spec lost(rows()) -> non_neg_integer().
lost(#rows{lost = Lost}) -> Lost.
