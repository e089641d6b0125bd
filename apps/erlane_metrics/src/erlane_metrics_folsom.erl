%% SPDX-License-Identifier: Apache-2.0
%% @doc The calls of `folsom_metrics' for counters, gauges and histograms, over series of ours:
%% replace the name of the module.
%%
%% What differs: nothing is sampled, so a histogram tells of all values since it was made or
%% deleted, with an error of 4.3 %, and the arguments about samples are ignored; its value is
%% {@link erlane_metrics:hist()} in place of a list; values below zero are dropped and counted;
%% a gauge is a number with three digits after the point. Meters, spirals, durations and
%% histories are `unsupported_metric_type': the server of the page has a rate of every counter.
%%
%% A metric is exposed under its name, with `_' for letters that no metric may have; of two names
%% that are the same then, the second is refused. {@link bind/3} gives a name a series of yours.
-module(erlane_metrics_folsom).

-export([new_counter/1, new_gauge/1, new_histogram/1, new_histogram/2, new_histogram/3,
         new_histogram/4, bind/3, delete_metric/1, metric_exists/1]).
-export([notify/1, notify/2, notify/3, notify_existing_metric/3,
         safely_notify/1, safely_notify/2, safely_notify/3]).
-export([get_metrics/0, get_metric_info/1, get_metric_value/1, get_histogram_statistics/1]).
-export([histogram_timed_update/2, histogram_timed_update/3, histogram_timed_update/4,
         histogram_timed_begin/1, histogram_timed_notify/1]).

-export_type([name/0, answer/0]).

-type name() :: term().
-type answer() :: ok | {error, name() | atom(),
                        nonexistent_metric | metric_already_exists | unsupported_metric_type
                        | term()}.

%% @doc Makes a counter, which may go down as folsom's.
-spec new_counter(name()) -> answer().
new_counter(Name) -> new(Name, counter).

%% @doc Makes a gauge.
-spec new_gauge(name()) -> answer().
new_gauge(Name) -> new(Name, gauge).

%% @doc Makes a histogram.
-spec new_histogram(name()) -> answer().
new_histogram(Name) -> new(Name, histogram).

%% @doc The same; samples are not needed.
-spec new_histogram(name(), term()) -> answer().
new_histogram(Name, _SampleType) -> new(Name, histogram).

%% @doc The same; samples are not needed.
-spec new_histogram(name(), term(), term()) -> answer().
new_histogram(Name, _SampleType, _Size) -> new(Name, histogram).

%% @doc The same; samples are not needed.
-spec new_histogram(name(), term(), term(), term()) -> answer().
new_histogram(Name, _SampleType, _Size, _Alpha) -> new(Name, histogram).

new(Name, Type) ->
    case erlane_metrics_bridge:create(folsom, Name, Type) of
        ok -> ok;
        {error, exists} -> {error, Name, metric_already_exists};
        {error, Reason} -> {error, Name, Reason}
    end.

%% @doc Lets a name stand for a series of a family that you declared.
-spec bind(name(), erlane_metrics:family(), erlane_metrics:labels()) -> answer().
bind(Name, Family, Labels) ->
    case erlane_metrics_bridge:bind(folsom, Name, Family, Labels) of
        ok -> ok;
        {error, exists} -> {error, Name, metric_already_exists};
        {error, Reason} -> {error, Name, Reason}
    end.

%% @doc Deletes a metric. As in folsom it is an error if there is none, but a readable one.
-spec delete_metric(name()) -> answer().
delete_metric(Name) ->
    case erlane_metrics_bridge:delete(folsom, Name) of
        true -> ok;
        false -> {error, Name, nonexistent_metric}
    end.

%% @doc Whether there is a metric of this name.
-spec metric_exists(name()) -> boolean().
metric_exists(Name) -> erlane_metrics_bridge:find(folsom, Name) =/= undefined.

%% @doc An update: `{Name, {inc | dec, N}}', `{Name, clear}' or `{Name, Value}'.
-spec notify({name(), term()}) -> answer().
notify({Name, Event}) -> notify(Name, Event).

%% @doc An update of a metric that exists.
-spec notify(name(), term()) -> answer().
notify(Name, Event) ->
    case erlane_metrics_bridge:find(folsom, Name) of
        {Type, Handle} -> update(Type, Handle, Event, Name);
        undefined -> {error, Name, nonexistent_metric}
    end.

%% @doc An update of a metric that is made if there is none.
-spec notify(name(), term(), atom() | {histogram, term()}) -> answer().
notify(Name, Event, {histogram, _SampleType}) -> notify(Name, Event, histogram);
notify(Name, Event, Type) when Type =:= counter; Type =:= gauge; Type =:= histogram ->
    case notify(Name, Event) of
        {error, Name, nonexistent_metric} ->
            case new(Name, Type) of
                {error, Name, Why} when Why =/= metric_already_exists -> {error, Name, Why};
                _ -> notify(Name, Event)
            end;
        Answer ->
            Answer
    end;
notify(_Name, _Event, Type) ->
    {error, Type, unsupported_metric_type}.

%% @doc An update of a metric that exists; its type is known here without being told.
-spec notify_existing_metric(name(), term(), term()) -> answer().
notify_existing_metric(Name, Event, _Type) -> notify(Name, Event).

%% @doc An update that does not raise.
-spec safely_notify({name(), term()}) -> answer() | {'EXIT', term()}.
safely_notify({Name, Event}) -> safely_notify(Name, Event).

%% @doc An update that does not raise.
-spec safely_notify(name(), term()) -> answer() | {'EXIT', term()}.
safely_notify(Name, Event) -> safely(fun() -> notify(Name, Event) end).

%% @doc An update that does not raise.
-spec safely_notify(name(), term(), term()) -> answer() | {'EXIT', term()}.
safely_notify(Name, Event, Type) -> safely(fun() -> notify(Name, Event, Type) end).

safely(Fun) ->
    try Fun()
    catch error:Reason:Stack -> {'EXIT', {Reason, Stack}}
    end.

update(counter, Handle, {inc, N}, _) -> erlane_metrics:add(Handle, N);
update(counter, Handle, {dec, N}, _) -> erlane_metrics:add(Handle, -N);
update(counter, _, clear, Name) -> _ = erlane_metrics_bridge:reset(folsom, Name), ok;
update(gauge, Handle, Value, _) -> erlane_metrics:set(Handle, Value);
update(histogram, Handle, Value, _) -> erlane_metrics:observe(Handle, Value);
update(Type, _, Event, Name) -> error({bad_event, Event, Type}, [Name, Event]).

%% @doc All names.
-spec get_metrics() -> [name()].
get_metrics() -> [Name || {Name, _} <- erlane_metrics_bridge:names(folsom)].

%% @doc Type of a metric.
-spec get_metric_info(name()) -> [{name(), [{type, atom()}]} | answer()].
get_metric_info(Name) ->
    [case erlane_metrics_bridge:find(folsom, Name) of
         {Type, _} -> {Name, [{type, Type}]};
         undefined -> {error, Name, nonexistent_metric}
     end].

%% @doc The number of a counter or gauge; the hist() of a histogram.
-spec get_metric_value(name()) -> term().
get_metric_value(Name) ->
    case erlane_metrics_bridge:find(folsom, Name) of
        {histogram, Handle} -> erlane_metrics:value(Handle);
        {_, Handle} -> erlane_metrics:number(Handle);
        undefined -> {error, Name, nonexistent_metric}
    end.

%% @doc Min, max, arithmetic_mean, median, variance, standard_deviation, percentile, histogram
%% and n. Other means, skewness and kurtosis are not told.
-spec get_histogram_statistics(name()) -> [{atom(), term()}] | answer().
get_histogram_statistics(Name) ->
    case erlane_metrics_bridge:find(folsom, Name) of
        {histogram, Handle} ->
            Statistics = erlane_metrics_bridge:statistics(erlane_metrics:value(Handle)),
            [{Key, maps:get(Key, Statistics)}
             || Key <- [min, max, arithmetic_mean, median, variance, standard_deviation,
                        percentile, histogram, n]];
        {Type, _} -> {error, Type, unsupported_metric_type};
        undefined -> {error, Name, nonexistent_metric}
    end.

%% @doc Calls a function and observes the microseconds it took.
-spec histogram_timed_update(name(), fun(() -> T)) -> T.
histogram_timed_update(Name, Fun) -> timed(Name, timer:tc(Fun)).

%% @doc Calls a function and observes the microseconds it took.
-spec histogram_timed_update(name(), fun(), [term()]) -> term().
histogram_timed_update(Name, Fun, Args) -> timed(Name, timer:tc(Fun, Args)).

%% @doc Calls a function and observes the microseconds it took.
-spec histogram_timed_update(name(), module(), atom(), [term()]) -> term().
histogram_timed_update(Name, M, F, Args) -> timed(Name, timer:tc(M, F, Args)).

timed(Name, {Micros, Value}) ->
    ok = notify(Name, Micros),
    Value.

%% @doc To be given to {@link histogram_timed_notify/1}.
-spec histogram_timed_begin(name()) -> {name(), integer()}.
histogram_timed_begin(Name) -> {Name, erlang:monotonic_time()}.

%% @doc Observes the microseconds since {@link histogram_timed_begin/1}.
-spec histogram_timed_notify({name(), integer()}) -> answer().
histogram_timed_notify({Name, Begin}) ->
    Passed = erlang:monotonic_time() - Begin,
    notify(Name, erlang:convert_time_unit(Passed, native, microsecond)).
