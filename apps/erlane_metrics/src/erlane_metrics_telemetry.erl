%% SPDX-License-Identifier: Apache-2.0
%% @doc Events of `telemetry' as metrics, by declarations like those of `telemetry_metrics'.
%%
%% ```
%% ok = erlane_metrics_telemetry:attach(web, [
%%     #{type => counter, event => [web, request, stop], name => <<"web_requests">>,
%%       help => <<"Requests">>, tags => [method, status]},
%%     #{type => distribution, event => [web, request, stop], measurement => duration,
%%       unit => native, name => <<"web_request">>, help => <<"Time of a request">>}]).
%% '''
%% Here is no dependency: telemetry is called if it is there. With anything else that calls
%% handlers in its way, {@link config/2} makes the last argument of {@link handle_event/4}.
%%
%% A handler that raises is detached by telemetry. Ours does not: an event without the
%% measurement, or with one that is no number of the right kind, is counted in
%% `erlane_metrics_telemetry_failures_total' and otherwise ignored.
-module(erlane_metrics_telemetry).

-export([attach/2, detach/1, config/2, forget/1, handle_event/4]).

-export_type([spec/0, config/0]).

-type spec() ::
        #{type := counter | sum | last_value | distribution | summary,
          event := [atom(), ...], name := binary(), help := binary(),
          measurement => term() | fun((map()) -> number()) | fun((map(), map()) -> number()),
          unit => erlang:time_unit(), tags => [atom()], tag_values => fun((map()) -> map()),
          keep => fun((map()) -> boolean()), options => map()}.
%% `counter' counts events; the others need `measurement', a key of the measurements or a
%% function of measurements and metadata. `unit', if it is a time, says what is measured, and
%% makes seconds of it. `tags' are keys of the metadata, or of what `tag_values' makes of it, and
%% labels of the metric; a tag that is missing is empty. `options' are more of the family's.

-opaque config() :: {?MODULE, term()}.

-define(FAILURES, failures).

%% @doc Declares the metrics and attaches their handler to telemetry, under this id.
-spec attach(term(), [spec()]) -> ok | {error, already_exists | telemetry_missing | term()}.
attach(Id, Specs) ->
    Telemetry = telemetry,
    case code:ensure_loaded(Telemetry) of
        {module, _} ->
            Before = persistent_term:get({?MODULE, Id}, none),
            Config = config(Id, Specs),
            Events = lists:usort([Event || #{event := Event} <- Specs]),
            case Telemetry:attach_many(Id, Events, fun ?MODULE:handle_event/4, Config) of
                ok -> ok;
                Error -> ok = restore(Id, Before), Error
            end;
        {error, _} ->
            {error, telemetry_missing}
    end.

restore(Id, none) -> forget(Id);
restore(Id, Before) -> persistent_term:put({?MODULE, Id}, Before).

%% @doc Ends what {@link attach/2} began. The metrics stay.
-spec detach(term()) -> ok | {error, not_found}.
detach(Id) ->
    Telemetry = telemetry,
    ok = forget(Id),
    Telemetry:detach(Id).

%% @doc Declares the metrics, resolves what needs no labels, and gives the configuration for
%% {@link handle_event/4}. What is behind it is kept once for all, under the id: telemetry would
%% copy it for every event. Raises what {@link erlane_metrics:counter/1} and the others do, and
%% `{bad_spec, Key, Spec}'.
-spec config(term(), [spec()]) -> config().
config(Id, Specs) ->
    Failures = erlane_metrics:handle(
                 erlane_metrics:counter(#{name => <<"erlane_metrics_telemetry_failures">>,
                                          help => <<"Events of which a metric was not made">>,
                                          labels => [<<"handler">>]}),
                 [label(Id)]),
    Actions = [{Event, action(Spec)} || #{event := Event} = Spec <- Specs],
    length(Actions) =:= length(Specs) orelse error({bad_spec, event, Specs}),
    ByEvent = maps:from_list([{E, [A || {Of, A} <- Actions, Of =:= E]} || {E, _} <- Actions]),
    persistent_term:put({?MODULE, Id}, ByEvent#{?FAILURES => Failures}),
    {?MODULE, Id}.

%% @doc Forgets a configuration; later events of it are ignored.
-spec forget(term()) -> ok.
forget(Id) ->
    _ = persistent_term:erase({?MODULE, Id}),
    ok.

%% @doc The handler: listens, and never raises.
-spec handle_event([atom()], map(), map(), config()) -> ok.
handle_event(Event, Measurements, Metadata, {?MODULE, _} = Key) ->
    case persistent_term:get(Key, none) of
        #{Event := Actions, ?FAILURES := Failures} ->
            each(Actions, Measurements, Metadata, Failures);
        _ ->
            ok
    end.

each([Action | Actions], Measurements, Metadata, Failures) ->
    try
        act(Action, Measurements, Metadata)
    catch
        _:_ -> erlane_metrics:inc(Failures)
    end,
    each(Actions, Measurements, Metadata, Failures);
each([], _, _, _) ->
    ok.

act({Keep, Target, Update}, Measurements, Metadata) ->
    case Keep =:= all orelse Keep(Metadata) of
        true -> update(Update, target(Target, Metadata), Measurements, Metadata);
        false -> ok
    end.

target({handle, Handle}, _) -> Handle;
target({family, Family, Tags, none}, Metadata) ->
    erlane_metrics:handle(Family, [label(maps:get(T, Metadata, <<>>)) || T <- Tags]);
target({family, Family, Tags, Values}, Metadata) ->
    target({family, Family, Tags, none}, Values(Metadata)).

update(inc, Handle, _, _) ->
    erlane_metrics:inc(Handle);
update({Do, Measurement, Scale}, Handle, Measurements, Metadata) ->
    Value = scaled(measured(Measurement, Measurements, Metadata), Scale),
    case Do of
        add -> erlane_metrics:add(Handle, Value);
        set -> erlane_metrics:set(Handle, Value);
        observe -> erlane_metrics:observe(Handle, Value)
    end.

measured(Fun, Measurements, _) when is_function(Fun, 1) -> Fun(Measurements);
measured(Fun, Measurements, Metadata) when is_function(Fun, 2) -> Fun(Measurements, Metadata);
measured(Key, Measurements, _) -> maps:get(Key, Measurements).

scaled(Value, none) -> Value;
scaled(Value, {times, N}) when is_integer(Value) -> Value * N;
scaled(Value, {times, N}) -> round(Value * N);
scaled(Value, {parts, N}) -> Value / N.

%% What telemetry allows as a value of metadata is any term.
label(Value) when is_binary(Value); is_atom(Value); is_integer(Value) -> Value;
label(Value) when is_float(Value) -> float_to_binary(Value, [short]);
label(Value) ->
    case is_list(Value) andalso unicode:characters_to_binary(Value) of
        Text when is_binary(Text) -> Text;
        _ -> unicode:characters_to_binary(io_lib:format("~0tp", [Value]))
    end.

%% Declarations

action(#{type := Type, name := Name, help := Help} = Spec) ->
    Tags = maps:get(tags, Spec, []),
    Timed = maps:get(unit, Spec, none),
    Update = case Type of
                 counter -> inc;
                 _ -> {verb(Type), measurement(Spec), scale(Type, Timed)}
             end,
    Options = maps:merge(defaults(Type, Timed), maps:get(options, Spec, #{})),
    Family = declare(Type, Options#{name => Name, help => Help,
                                    labels => [atom_to_binary(T) || T <- Tags]}),
    Target = case Tags of
                 [] -> {handle, erlane_metrics:handle(Family, [])};
                 _ -> {family, Family, Tags, maps:get(tag_values, Spec, none)}
             end,
    {maps:get(keep, Spec, all), Target, Update};
action(Spec) ->
    error({bad_spec, hd([K || K <- [type, name, help], not is_map_key(K, Spec)]), Spec}).

measurement(#{measurement := Measurement}) -> Measurement;
measurement(Spec) -> error({bad_spec, measurement, Spec}).

verb(sum) -> add;
verb(last_value) -> set;
verb(_) -> observe.

%% Histograms take nanoseconds, the others seconds.
scale(_, none) -> none;
scale(Type, Unit) when Type =:= sum; Type =:= last_value ->
    {parts, erlang:convert_time_unit(1, second, Unit)};
scale(_, Unit) ->
    case erlang:convert_time_unit(1, second, Unit) of
        Parts when Parts =< 1000000000 -> {times, 1000000000 div Parts};
        Parts -> {parts, Parts div 1000000000}
    end.

defaults(counter, _) -> #{};
defaults(Type, none) when Type =:= distribution; Type =:= summary -> #{input => one};
defaults(Type, _) when Type =:= distribution; Type =:= summary -> #{};
defaults(last_value, none) -> #{decimals => 3};
defaults(sum, none) -> #{};
defaults(_, _) -> #{decimals => 9, unit => <<"seconds">>}.

declare(counter, Opts) -> erlane_metrics:counter(Opts);
declare(sum, Opts) -> erlane_metrics:counter(Opts);
declare(last_value, Opts) -> erlane_metrics:gauge(Opts);
declare(distribution, Opts) -> erlane_metrics:histogram(Opts);
declare(summary, Opts) -> erlane_metrics:summary(Opts);
declare(Type, Opts) -> error({bad_spec, type, Opts#{type => Type}}).
