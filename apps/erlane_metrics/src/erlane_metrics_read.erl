%% SPDX-License-Identifier: Apache-2.0
%% @doc What a stored series is worth now. Reading changes nothing.
%%
%% What the tables keep for a series, and, with bounds in place of their key, what a handle is:
%% `{counter | updown | gauge, Ref, Ix, ...}', `{group, Ref, Key}', `{histogram, Ref, Bounds}'
%% over counters, `{shared, Ref, Bounds}' over atomics, `{stateset, Ref, Ix, States}',
%% `{info, Unique, Key}', in the ordered table `{info, Unique, Pairs}'.
-module(erlane_metrics_read).

-export([live/1, value/1, number/1, member/2, change/1, alive/1, kill/1, exposed/2, gauge_code/2,
         special/1]).

-include("erlane_metrics.hrl").

%% Words of a gauge that are no number.
-define(NAN, -16#8000000000000000).
-define(NEG_INFINITY, -16#7fffffffffffffff).
-define(INFINITY, 16#7fffffffffffffff).

%% @doc The handle of a stored series: bounds are too large to be copied out of a table.
-spec live(tuple()) -> tuple().
live({histogram, Ref, Key}) -> {histogram, Ref, erlane_metrics_bounds:fetch(Key)};
live({shared, Ref, Key}) -> {shared, Ref, erlane_metrics_bounds:fetch(Key)};
live(Stored) -> Stored.

%% @doc The value behind a handle; numbers with decimals are integers here.
-spec value(tuple()) -> term().
value({counter, Ref, Ix}) -> counters:get(Ref, Ix) band 16#ffffffffffffffff;
value({counter, Ref, Ix, _}) -> counters:get(Ref, Ix) band 16#ffffffffffffffff;
value({updown, Ref, Ix, _}) -> counters:get(Ref, Ix);
value({gauge, Ref, Ix, _}) -> special(atomics:get(Ref, Ix));
value({group, Ref, _}) ->
    #{size := N} = counters:info(Ref),
    list_to_tuple([member(Ref, I) || I <- lists:seq(1, N)]);
value({histogram, Ref, Bounds}) -> erlane_metrics_hist:read(counters, Ref, Bounds);
value({shared, Ref, Bounds}) -> erlane_metrics_hist:read(atomics, Ref, Bounds);
value({stateset, Ref, Ix, States}) -> bits(atomics:get(Ref, Ix), States);
value({info, Unique, Key}) ->
    case ets:lookup(?ORDER, Key) of
        [{_, _, {info, Unique, Pairs}, _}] -> Pairs;
        _ -> []
    end.

%% @doc The value of a counter or gauge, its decimals after the point.
-spec number(tuple()) -> number() | nan | infinity | neg_infinity.
number({counter, _, _} = Handle) -> value(Handle);
number({_, _, _, Mul} = Handle) when is_integer(Mul) ->
    case value(Handle) of
        N when is_integer(N), N rem Mul =:= 0 -> N div Mul;
        N when is_integer(N) -> N / Mul;
        Special -> Special
    end;
number(Handle) -> error(badarg, [Handle]).

%% @doc One counter of a group.
-spec member(counters:counters_ref(), pos_integer()) -> non_neg_integer().
member(Ref, I) -> counters:get(Ref, I) band 16#ffffffffffffffff.

%% @doc What the word of a gauge means.
-spec special(integer()) -> integer() | nan | infinity | neg_infinity.
special(?NAN) -> nan;
special(?NEG_INFINITY) -> neg_infinity;
special(?INFINITY) -> infinity;
special(N) -> N.

%% @doc The word for a value of a gauge, clamped to what fits, and whether it had to be.
-spec gauge_code(term(), pos_integer()) -> {fits | clamped, integer()}.
gauge_code(N, Mul) when is_integer(N) -> clamp(N * Mul);
gauge_code(F, Mul) when is_float(F), abs(F) < 1.0e19 -> clamp(round(F * Mul));
gauge_code(F, _) when is_float(F), F > 0 -> {clamped, ?INFINITY - 1};
gauge_code(F, _) when is_float(F) -> {clamped, ?NEG_INFINITY + 1};
gauge_code(nan, _) -> {fits, ?NAN};
gauge_code(infinity, _) -> {fits, ?INFINITY};
gauge_code(neg_infinity, _) -> {fits, ?NEG_INFINITY};
gauge_code(Other, Mul) -> error(badarg, [Other, Mul]).

clamp(N) when N >= ?INFINITY -> {clamped, ?INFINITY - 1};
clamp(N) when N =< ?NEG_INFINITY -> {clamped, ?NEG_INFINITY + 1};
clamp(N) -> {fits, N}.

bits(Word, [_ | States]) -> [Word band 1 =:= 1 | bits(Word bsr 1, States)];
bits(_, []) -> [].

%% @doc A number that is another one after the series changed.
-spec change(tuple()) -> term().
change({histogram, Ref, Bounds}) -> erlane_metrics_hist:count(counters, Ref, Bounds);
change({shared, Ref, Bounds}) -> erlane_metrics_hist:count(atomics, Ref, Bounds);
change(Handle) -> value(Handle).

%% @doc Whether the series of a handle was not deleted.
-spec alive(tuple()) -> boolean().
alive({counter, Ref, Ix}) -> erlane_metrics_slab:alive(counters, Ref, Ix);
alive({counter, Ref, Ix, _}) -> erlane_metrics_slab:alive(counters, Ref, Ix);
alive({updown, Ref, Ix, _}) -> erlane_metrics_slab:alive(counters, Ref, Ix);
alive({gauge, Ref, Ix, _}) -> erlane_metrics_slab:alive(atomics, Ref, Ix);
alive({stateset, Ref, Ix, _}) -> erlane_metrics_slab:alive(atomics, Ref, Ix);
alive({histogram, Ref, _}) -> counters:get(Ref, 3) =:= 0;
alive({shared, Ref, _}) -> atomics:get(Ref, 3) =:= 0;
alive({group, Ref, Key}) ->
    %% Eight counters fill the line of each scheduler: no word is left for a mark.
    case ets:lookup(?ORDER, Key) of
        [{_, _, {group, Ref, _}, _}] -> true;
        _ -> false
    end;
alive({info, Unique, Key}) ->
    case ets:lookup(?ORDER, Key) of
        [{_, _, {info, Unique, _}, _}] -> true;
        _ -> false
    end.

%% @doc Marks a series as deleted; the registry does this once.
-spec kill(tuple()) -> ok.
kill({counter, Ref, Ix}) -> erlane_metrics_slab:kill(counters, Ref, Ix);
kill({counter, Ref, Ix, _}) -> erlane_metrics_slab:kill(counters, Ref, Ix);
kill({updown, Ref, Ix, _}) -> erlane_metrics_slab:kill(counters, Ref, Ix);
kill({gauge, Ref, Ix, _}) -> erlane_metrics_slab:kill(atomics, Ref, Ix);
kill({stateset, Ref, Ix, _}) -> erlane_metrics_slab:kill(atomics, Ref, Ix);
kill({histogram, Ref, _}) -> counters:add(Ref, 3, 1);
kill({shared, Ref, _}) -> atomics:add(Ref, 3, 1);
kill({group, _, _}) -> ok;
kill({info, _, _}) -> ok.

%% @doc The value as exposition wants it.
-spec exposed(tuple(), map()) -> term().
exposed(Stored, #{type := summary, quantiles := Qs}) ->
    Hist = value(live(Stored)),
    #{count := Count, sum := Sum, unit_div := Div} = Hist,
    #{count => Count, sum => Sum, unit_div => Div,
      quantiles => [{Q, element(2, erlane_metrics_hist:quantile(Hist, Q))} || Q <- Qs]};
exposed({info, _, Pairs}, _) -> Pairs;
exposed(Stored, _) -> value(live(Stored)).
