%% SPDX-License-Identifier: Apache-2.0
%% @doc Collector of the schedulers: run queues and, on request, how busy they were.
%%
%% Options: `scheduler_wall_time => true' for the time each scheduler did something;
%% `msacc => true' for what it did in that time. Both cost the VM some percent of its speed and
%% are turned off again with the collector, if they were off before.
-module(erlane_metrics_schedulers).
-behaviour(erlane_metrics_collector).

-export([families/1, open/1, collect/1, close/1]).

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(Options) ->
    Seconds = #{unit => <<"seconds">>, decimals => 6},
    Per = #{labels => [<<"type">>, <<"scheduler">>]},
    [{gauge, #{name => <<"erlang_schedulers_run_queue">>, labels => [<<"type">>, <<"queue">>],
               help => <<"Processes and ports that wait for a scheduler to run them">>}},
     {gauge, #{name => <<"erlang_schedulers_online">>, labels => [<<"type">>],
               help => <<"Schedulers that may run">>}}]
        ++ [{counter, maps:merge(maps:merge(Seconds, Per), Family)}
            || maps:get(scheduler_wall_time, Options, false),
               Family <- [#{name => <<"erlang_schedulers_active">>,
                            help => <<"Time in which a scheduler did something">>},
                          #{name => <<"erlang_schedulers_measured">>,
                            help => <<"Time in which it was measured">>}]]
        ++ [{counter, Seconds#{name => <<"erlang_threads_time">>,
                               labels => [<<"type">>, <<"thread">>, <<"state">>],
                               help => <<"Time of a thread in each state, see msacc">>}}
            || maps:get(msacc, Options, false)].

%% @private
-spec open(map()) -> map().
open(Options) ->
    lists:foreach(fun erlane_metrics_switch:on/1, switches(Options)),
    Options.

%% @private
-spec close(map()) -> ok.
close(Options) ->
    lists:foreach(fun erlane_metrics_switch:off/1, switches(Options)).

switches(Options) ->
    [Switch || {Option, Switch} <- [{scheduler_wall_time, scheduler_wall_time},
                                    {msacc, microstate_accounting}],
               maps:get(Option, Options, false)].

%% @private
-spec collect(map()) -> {[{binary(), erlane_metrics_collected:values()}], map()}.
collect(Options) ->
    {[{<<"erlang_schedulers_run_queue">>, queues()},
      {<<"erlang_schedulers_online">>,
       [{[normal], erlang:system_info(schedulers_online)},
        {[dirty_cpu], erlang:system_info(dirty_cpu_schedulers_online)},
        {[dirty_io], erlang:system_info(dirty_io_schedulers)}]}]
     ++ [Family || maps:get(scheduler_wall_time, Options, false), Family <- wall_time()]
     ++ [threads() || maps:get(msacc, Options, false)], Options}.

%% A queue for each scheduler, and one each for all dirty ones of a type.
queues() ->
    {Normal, [Cpu, Io]} = lists:split(erlang:system_info(schedulers),
                                      erlang:statistics(run_queue_lengths_all)),
    Numbered = lists:zip(lists:seq(1, length(Normal)), Normal),
    [{[normal, I], N} || {I, N} <- Numbered] ++ [{[dirty_cpu, 0], Cpu}, {[dirty_io, 0], Io}].

wall_time() ->
    Unit = erlang:convert_time_unit(1, second, native),
    Times = case erlang:statistics(scheduler_wall_time_all) of
                undefined -> [];
                List -> lists:sort(List)
            end,
    [{<<"erlang_schedulers_active">>, [{label(I), Active / Unit} || {I, Active, _} <- Times]},
     {<<"erlang_schedulers_measured">>, [{label(I), Total / Unit} || {I, _, Total} <- Times]}].

%% The numbers of dirty schedulers go on where those of the others end.
label(I) ->
    Normal = erlang:system_info(schedulers),
    Cpu = erlang:system_info(dirty_cpu_schedulers),
    if
        I =< Normal -> [normal, I];
        I =< Normal + Cpu -> [dirty_cpu, I - Normal];
        true -> [dirty_io, I - Normal - Cpu]
    end.

threads() ->
    Unit = erlang:convert_time_unit(1, second, perf_counter),
    {<<"erlang_threads_time">>,
     [{[Type, Id, State], Count / Unit}
      || #{type := Type, id := Id, counters := Counters} <-
             erlang:statistics(microstate_accounting),
         {State, Count} <- maps:to_list(Counters)]}.
