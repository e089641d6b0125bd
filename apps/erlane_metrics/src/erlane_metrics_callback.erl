%% SPDX-License-Identifier: Apache-2.0
%% @doc Values that a function gives at the moment of a scrape.
%%
%% The function is not ours: it runs in a process of its own with a limit on its time and heap,
%% and when it fails the family has no series on this page and is counted as failed.
-module(erlane_metrics_callback).

-export([series/1]).
%% spawned
-export([run/2]).

-define(MAX_HEAP_WORDS, 8 * 1024 * 1024).

%% @doc Calls the function of a family, and makes series of what it returns: a number, or
%% `[{Labels, Number}]' with at most `limit' elements; of these the first with the same labels
%% is taken.
-spec series(erlane_metrics_family:declaration()) -> [erlane_metrics_walk:series()].
series(#{callback := Fun} = Declaration) ->
    Timeout = application:get_env(erlane_metrics, callback_timeout, 1000),
    {Pid, Monitor} =
        spawn_opt(?MODULE, run, [Fun, Declaration],
                  [monitor, {max_heap_size, #{size => ?MAX_HEAP_WORDS, kill => true,
                                              error_logger => false}}]),
    receive
        {'DOWN', Monitor, process, Pid, {?MODULE, Series}} -> Series;
        {'DOWN', Monitor, process, Pid, _} -> failed()
    after Timeout ->
        exit(Pid, kill),
        erlang:demonitor(Monitor, [flush]),
        failed()
    end.

%% @private
-spec run(fun(() -> term()), erlane_metrics_family:declaration()) -> no_return().
run(Fun, Declaration) ->
    exit({?MODULE, made(Fun(), Declaration)}).

failed() ->
    erlane_metrics_own:failed(),
    [].

made(Number, #{labels := []} = Declaration) when not is_list(Number) ->
    made([{[], Number}], Declaration);
made(List, #{limit := Limit} = Declaration) when is_list(List) ->
    true = length(List) =< Limit,
    {_, Series} = lists:foldl(fun({Labels, Value}, {Seen, Acc}) ->
                                      one(Labels, Value, Declaration, Seen, Acc)
                              end, {#{}, []}, List),
    lists:reverse(Series).

one(Labels, Value, Declaration, Seen, Acc) ->
    #{type := Type, labels := Names, decimals := Decimals, created := Created} = Declaration,
    Values = erlane_metrics_name:normal(Labels, length(Names)),
    case is_map_key(Values, Seen) of
        true ->
            {Seen, Acc};
        false ->
            ok = erlane_metrics_name:check_values(Names, Values),
            Text = erlane_metrics_name:text(Names, Values),
            Pairs = erlane_metrics_name:pairs(Names, Values),
            {Seen#{Values => true}, [{Text, Pairs, number(Type, Value, Decimals), Created} | Acc]}
    end.

number(gauge, Value, _) when is_atom(Value) -> special(Value);
number(gauge, Value, Decimals) -> scaled(Value, Decimals);
number(counter, Value, Decimals) when Value >= 0 -> scaled(Value, Decimals).

special(nan) -> nan;
special(infinity) -> infinity;
special(neg_infinity) -> neg_infinity.

scaled(Value, Decimals) when is_integer(Value) -> Value * erlane_metrics_number:power(Decimals);
scaled(Value, Decimals) when is_float(Value), abs(Value) < 1.0e200 ->
    round(Value * erlane_metrics_number:power(Decimals)).
