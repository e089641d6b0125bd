%% SPDX-License-Identifier: Apache-2.0
%% @doc The calls of `exometer' for counters, gauges and histograms, over series of ours: replace
%% the name of the module.
%%
%% What differs: a histogram tells of all values since it was made or reset, not of the last
%% minute, with an error of 4.3 %; values below zero are dropped and counted; a gauge is a number
%% with three digits after the point; `fast_counter' is a counter, which is fast. Templates,
%% options, reporters and other types are not here: {@link new/3} raises `{unknown_type, Type}'.
%%
%% Names are exposed with `_' between their parts and for letters that no metric may have; of
%% two names that are the same then, the second is refused. {@link bind/3} gives a name a series
%% of yours.
-module(erlane_metrics_exometer).

-export([new/2, new/3, re_register/3, ensure/3, bind/3, delete/1, reset/1]).
-export([update/2, update_or_create/4, get_value/1, get_value/2, info/1]).

-export_type([name/0, type/0]).

-type name() :: list().
-type type() :: counter | fast_counter | gauge | histogram | {atom(), term()}.
-type point() :: atom() | integer().

%% @doc Makes a metric; raises `exists' if there is one.
-spec new(name(), type()) -> ok.
new(Name, Type) -> new(Name, Type, []).

%% @doc The same; there are no options.
-spec new(name(), type(), list()) -> ok.
new(Name, Type, Opts) when is_list(Name), is_list(Opts) ->
    case erlane_metrics_bridge:create(exometer, Name, type(Type)) of
        ok -> ok;
        {error, Reason} -> error(Reason, [Name, Type, Opts])
    end.

%% @doc Makes a metric anew, whether there is one or not. It cannot change its type.
-spec re_register(name(), type(), list()) -> ok.
re_register(Name, Type, Opts) ->
    _ = erlane_metrics_bridge:delete(exometer, Name),
    new(Name, Type, Opts).

%% @doc Makes a metric, if there is none; raises `type_mismatch' if it has another type.
-spec ensure(name(), type(), list()) -> ok.
ensure(Name, Type, Opts) when is_list(Name), is_list(Opts) ->
    Wanted = type(Type),
    case erlane_metrics_bridge:create(exometer, Name, Wanted) of
        ok -> ok;
        {error, exists} ->
            case erlane_metrics_bridge:find(exometer, Name) of
                {Other, _} when Other =/= Wanted -> error(type_mismatch, [Name, Type, Opts]);
                _ -> ok
            end;
        {error, Reason} -> error(Reason, [Name, Type, Opts])
    end.

type(counter) -> counter;
type(fast_counter) -> counter;
type(gauge) -> gauge;
type(histogram) -> histogram;
type({Type, _Arg}) when is_atom(Type), Type =/= fast_counter -> type(Type);
type({fast_counter, _}) -> counter;
type(Type) -> error({unknown_type, Type}).

%% @doc Lets a name stand for a series of a family that you declared.
-spec bind(name(), erlane_metrics:family(), erlane_metrics:labels()) -> ok | {error, term()}.
bind(Name, Family, Labels) when is_list(Name) ->
    erlane_metrics_bridge:bind(exometer, Name, Family, Labels).

%% @doc Deletes a metric.
-spec delete(name()) -> ok | {error, not_found}.
delete(Name) when is_list(Name) -> found(erlane_metrics_bridge:delete(exometer, Name)).

%% @doc Begins a metric anew at zero.
-spec reset(name()) -> ok | {error, not_found}.
reset(Name) when is_list(Name) -> found(erlane_metrics_bridge:reset(exometer, Name)).

found(true) -> ok;
found(false) -> {error, not_found}.

%% @doc Adds to a counter, sets a gauge, observes in a histogram.
-spec update(name(), number()) -> ok | {error, not_found}.
update(Name, Value) when is_list(Name) ->
    case erlane_metrics_bridge:find(exometer, Name) of
        {counter, Handle} -> erlane_metrics:add(Handle, Value);
        {gauge, Handle} -> erlane_metrics:set(Handle, Value);
        {histogram, Handle} -> erlane_metrics:observe(Handle, Value);
        undefined -> {error, not_found}
    end.

%% @doc An update of a metric that is made if there is none.
-spec update_or_create(name(), number(), type(), list()) -> ok.
update_or_create(Name, Value, Type, Opts) ->
    case update(Name, Value) of
        {error, not_found} ->
            ok = ensure(Name, Type, Opts),
            update(Name, Value);
        ok ->
            ok
    end.

%% @doc All data points of a metric.
-spec get_value(name()) -> {ok, [{point(), number()}]} | {error, not_found}.
get_value(Name) -> get_value(Name, default).

%% @doc The data points that are asked for: of counters and gauges `value' and `ms_since_reset',
%% of histograms `n', `mean', `min', `max', `median', 50, 75, 90, 95, 99 and 999.
-spec get_value(name(), default | point() | [point()]) ->
          {ok, [{point(), number() | undefined}]} | {error, not_found}.
get_value(Name, Points) when is_list(Name), Points =/= default, not is_list(Points) ->
    get_value(Name, [Points]);
get_value(Name, Points) when is_list(Name) ->
    case erlane_metrics_bridge:find(exometer, Name) of
        {Type, Handle} -> {ok, chosen(Points, values(Type, Handle, Name))};
        undefined -> {error, not_found}
    end.

chosen(default, Values) -> Values;
chosen(Points, Values) -> [{P, proplists:get_value(P, Values)} || P <- Points].

values(histogram, Handle, _) ->
    #{n := N, arithmetic_mean := Mean, min := Min, max := Max, median := Median,
      percentile := Percentiles} = erlane_metrics_bridge:statistics(erlane_metrics:value(Handle)),
    [{n, N}, {mean, Mean}, {min, Min}, {max, Max}, {median, Median} | Percentiles];
values(_, Handle, Name) ->
    Age = erlang:system_time(millisecond) - erlane_metrics_bridge:since(exometer, Name),
    [{value, erlane_metrics:number(Handle)}, {ms_since_reset, max(0, Age)}].

%% @doc Name and type of a metric.
-spec info(name()) -> [{name | type, term()}] | undefined.
info(Name) when is_list(Name) ->
    case erlane_metrics_bridge:find(exometer, Name) of
        {Type, _} -> [{name, Name}, {type, Type}];
        undefined -> undefined
    end.
