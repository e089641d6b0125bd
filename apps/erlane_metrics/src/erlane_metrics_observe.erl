%% SPDX-License-Identifier: Apache-2.0
%% @doc The way of one observation into a histogram: two adds, and little before them.
%%
%% A search among 256 bounds would take longer than both adds, most of it for branches that the
%% processor cannot foresee. So the leading 5 to 10 bits of a value choose a cell, and the cell
%% knows the word of the array. As the bounds repeat themselves with every power of two, one
%% table of 1024 cells serves all magnitudes, each with a distance of its own. A cell that a
%% bound cuts in two, one in ten, has both words, and the bound decides.
%%
%% The shape of the code follows what the JIT does well: comparisons with constants, element/2
%% of what is known to be a tuple, tail calls in place of calls. The order of the arguments of
%% cell/6 counts as well, by a third of the whole: the JIT moves neighbouring registers in pairs,
%% and a processor waits where it reads as one word what was just written as two. The order was
%% found by trying; change it only with bench in hand.
-module(erlane_metrics_observe).

-export([observe/2]).

-define(LIMIT, (1 bsl 40)).

%% @doc See {@link erlane_metrics:observe/2}.
-spec observe(tuple(), number()) -> ok.
observe({histogram, Ref, {Cells, Levels, _, _, _, _, _, _, _} = Bounds}, N)
  when is_integer(N), N > 0, N < ?LIMIT, is_tuple(Cells) ->
    %% Level k holds 2^(5k + 5) to 2^(5k + 10), the lowest one all below. Its distance
    %% is `{Plus}' where the sum has to be scaled, `none' where a value could be out of range.
    V = N band (?LIMIT - 1),
    if
        V < 1 bsl 25 ->
            if
                V < 1 bsl 15 ->
                    if
                        V < 1 bsl 10 ->
                            {Plus, _, _, _, _, _, _} = Levels,
                            cell(V, V, Ref, Cells, Plus, Bounds);
                        true ->
                            {_, Plus, _, _, _, _, _} = Levels,
                            cell(V bsr 5, V, Ref, Cells, Plus, Bounds)
                    end;
                V < 1 bsl 20 ->
                    {_, _, Plus, _, _, _, _} = Levels,
                    cell(V bsr 10, V, Ref, Cells, Plus, Bounds);
                true ->
                    {_, _, _, Plus, _, _, _} = Levels,
                    cell(V bsr 15, V, Ref, Cells, Plus, Bounds)
            end;
        V < 1 bsl 30 ->
            {_, _, _, _, Plus, _, _} = Levels,
            cell(V bsr 20, V, Ref, Cells, Plus, Bounds);
        V < 1 bsl 35 ->
            {_, _, _, _, _, Plus, _} = Levels,
            cell(V bsr 25, V, Ref, Cells, Plus, Bounds);
        true ->
            {_, _, _, _, _, _, Plus} = Levels,
            cell(V bsr 30, V, Ref, Cells, Plus, Bounds)
    end;
observe(Handle, V) ->
    other(Handle, V).

other({histogram, Ref, Bounds}, V) when is_number(V), V >= 0 ->
    slow(Ref, Bounds, fit(V, Bounds));
other({histogram, Ref, _}, V) when is_number(V) ->
    counters:add(Ref, 2, 1),
    erlane_metrics_own:dropped();
other({shared, Ref, Bounds}, V) when is_number(V), V >= 0 ->
    Value = fit(V, Bounds),
    atomics:add(Ref, 1, erlane_metrics_bounds:summand(Value, Bounds)),
    atomics:add(Ref, erlane_metrics_bounds:word(Value, Bounds), 1);
other({shared, Ref, _}, V) when is_number(V) ->
    atomics:add(Ref, 2, 1),
    erlane_metrics_own:dropped();
other(Handle, V) ->
    error(badarg, [Handle, V]).

fit(V, Bounds) when is_float(V) -> erlane_metrics_bounds:fit(V, Bounds);
fit(V, _) -> V.

cell(Cell, V, Ref, Cells, Plus, Bounds) ->
    Word = element(Cell, Cells),
    if
        is_integer(Word), is_integer(Plus) ->
            counters:add(Ref, 1, V),
            counters:add(Ref, Word + Plus, 1);
        true ->
            detour(Ref, Bounds, V, Plus, Word)
    end.

detour(Ref, Bounds, V, Plus, {From, To}) when is_integer(Plus) ->
    counters:add(Ref, 1, V),
    counters:add(Ref, cut(V, Bounds, From + Plus, To + Plus), 1);
detour(Ref, Bounds, V, {Plus}, {From, To}) ->
    counters:add(Ref, 1, erlane_metrics_bounds:summand(V, Bounds)),
    counters:add(Ref, cut(V, Bounds, From + Plus, To + Plus), 1);
detour(Ref, Bounds, V, {Plus}, Word) ->
    counters:add(Ref, 1, erlane_metrics_bounds:summand(V, Bounds)),
    counters:add(Ref, Word + Plus, 1);
detour(Ref, Bounds, V, none, _) ->
    slow(Ref, Bounds, V).

%% Mostly one bound is in question.
cut(V, {_, _, Edges, _, _, _, _, _, _}, From, To) when To =:= From + 1 ->
    case V =< element(From, Edges) of
        true -> From;
        false -> To
    end;
cut(V, Bounds, From, To) ->
    erlane_metrics_bounds:search(V, Bounds, From, To).

slow(Ref, Bounds, V) ->
    counters:add(Ref, 1, erlane_metrics_bounds:summand(V, Bounds)),
    counters:add(Ref, erlane_metrics_bounds:word(V, Bounds), 1).
