%% SPDX-License-Identifier: Apache-2.0
%% @doc Collector of the processes of each application: how many they are, what waits in their
%% mailboxes and in the fullest one, their heaps and reductions.
%%
%% A process belongs to the application of its group leader; the others are those of
%% application `none'. The processes are looked at some hundred at a time, with pauses, by a
%% process of low priority. Of each it asks what the VM can tell without the process: `memory' or
%% `total_heap_size' would have to wait until each of them runs. Options: `slice' (500) and
%% `pause', milliseconds (1).
-module(erlane_metrics_apps).
-behaviour(erlane_metrics_collector).

-export([families/1, collect/1]).

-define(ITEMS, [group_leader, message_queue_len, heap_size, reductions]).

%% @private
-spec families(map()) -> [{gauge, map()}].
families(_Options) ->
    [{gauge, Opts#{name => <<"erlang_app_", Name/binary>>, help => Help,
                   labels => [<<"application">>]}}
     || {Name, Help, Opts} <-
            [{<<"processes">>, <<"Processes of an application">>, #{}},
             {<<"mailbox_messages">>, <<"Messages in the mailboxes of its processes">>, #{}},
             {<<"mailbox_peak_messages">>, <<"Messages in the fullest of them">>, #{}},
             {<<"heap">>, <<"Youngest heaps of its processes">>, #{unit => <<"bytes">>}},
             {<<"heap_peak">>, <<"The largest of them">>, #{unit => <<"bytes">>}},
             {<<"process_reductions">>,
              <<"Reductions of its processes that live now; falls when one ends">>, #{}}]].

%% @private
-spec collect(map()) -> {[{binary(), erlane_metrics_collected:values()}], map()}.
collect(Options) ->
    process_flag(priority, low),
    Slice = maps:get(slice, Options, 500),
    Pause = maps:get(pause, Options, 1),
    {Groups, _} = slices(first(), Slice, Pause, {#{}, 0}),
    Word = erlang:system_info(wordsize),
    Rows = [{App, N, Sum, Peak, Heap * Word, HeapPeak * Word, Reds}
            || {App, {N, Sum, Peak, Heap, HeapPeak, Reds}} <- lists:sort(apps(Groups))],
    {[{<<"erlang_app_", Name/binary>>, [{[element(1, Row)], element(I, Row)} || Row <- Rows]}
      || {Name, I} <- [{<<"processes">>, 2}, {<<"mailbox_messages">>, 3},
                       {<<"mailbox_peak_messages">>, 4}, {<<"heap">>, 5}, {<<"heap_peak">>, 6},
                       {<<"process_reductions">>, 7}]], Options}.

%% From OTP 28 on there is no need for a list of them all.
first() ->
    case erlang:function_exported(erlang, processes_iterator, 0) of
        true -> {iterator, bif(processes_iterator, [])};
        false -> {list, erlang:processes()}
    end.

next({list, [Pid | Pids]}) -> {Pid, {list, Pids}};
next({list, []}) -> none;
next({iterator, Iterator}) ->
    case bif(processes_next, [Iterator]) of
        {Pid, Iterator1} -> {Pid, {iterator, Iterator1}};
        none -> none
    end.

%% By name: older releases do not have them.
bif(Name, Args) -> apply(erlang, Name, Args).

slices(Processes, Slice, Pause, {Groups, Slice}) ->
    receive after Pause -> ok end,
    slices(Processes, Slice, Pause, {Groups, 0});
slices(Processes, Slice, Pause, {Groups, Done} = Acc) ->
    case next(Processes) of
        none -> Acc;
        {Pid, Rest} -> slices(Rest, Slice, Pause, {look(Pid, Groups), Done + 1})
    end.

%% Sums by group leader: whose application it is, is asked once for each of them at the end.
look(Pid, Groups) ->
    case process_info(Pid, ?ITEMS) of
        [{_, Leader}, {_, Queue}, {_, Heap}, {_, Reds}] when Pid =/= self() ->
            {N, Sum, Peak, Heaps, HeapPeak, All} = maps:get(Leader, Groups, {0, 0, 0, 0, 0, 0}),
            Groups#{Leader => {N + 1, Sum + Queue, max(Peak, Queue), Heaps + Heap,
                               max(HeapPeak, Heap), All + Reds}};
        _ ->
            Groups
    end.

apps(Groups) ->
    maps:to_list(maps:fold(fun(Leader, Sums, Acc) ->
                                   App = app(Leader),
                                   Acc#{App => add(Sums, maps:get(App, Acc, none))}
                           end, #{}, Groups)).

%% The master of an application leads its own group. A leader that ended or is of another node
%% leads none of our applications.
app(Leader) when node(Leader) =:= node() ->
    case application:get_application(Leader) of
        {ok, App} -> App;
        undefined -> none
    end;
app(_) -> none.

add(Sums, none) -> Sums;
add({N1, S1, P1, H1, HP1, R1}, {N2, S2, P2, H2, HP2, R2}) ->
    {N1 + N2, S1 + S2, max(P1, P2), H1 + H2, max(HP1, HP2), R1 + R2}.
