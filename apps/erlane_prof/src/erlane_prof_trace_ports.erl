%% SPDX-License-Identifier: Apache-2.0
%% @doc What a traced port does, from what the VM tells of its tasks. Pure.
%%
%% What a process calls a port for is done at once where it can be, by the scheduler of the process,
%% and the event names it: `command', `control', `info'. All else comes from the port's own queue,
%% and is not named. No task is within another but `flush', which is part of the one that closes.
%%
%% A port that is closed tells no end of its last task. If it has yet to write what it was given, it
%% goes on after that with tasks of its queue, of which the last has no end either: so after its end
%% time counts only up to what it does next.
-module(erlane_prof_trace_ports).

-export([new/2, event/2, ended/2, short/1]).

-export_type([port_state/0, task/0, span/0]).

%% The text of its name.
-type task() :: none | binary().
%% The tasks that it was in, the innermost first, or none while it waited; and for how long.
-type span() :: {[task()], Ns :: non_neg_integer()}.

-record(port, {last, tasks = [], open = true}).

-opaque port_state() :: #port{}.

%% A name in rows.
-define(SHORT, 40).

%% @doc One that has done, since a time, what its first event tells the end of.
-spec new(erlane_prof_trace_read:event(), Since :: integer()) -> port_state().
new({task, _, ends, Name, _}, Since) -> #port{last = Since, tasks = [task(Name)]};
new(_Event, Since) -> #port{last = Since}.

%% @doc What it did until an event, and what it begins by it: `repaired' if it should have done
%% something else.
-spec event(erlane_prof_trace_read:event(), port_state()) ->
          {exact | repaired, span(), {begins, [task()]} | goes_on | closes, port_state()}.
event({task, _, begins, Name, Ts}, #port{tasks = Tasks} = P) ->
    Task = task(Name),
    {How, Now} = case Tasks of
                     [] -> {exact, [Task]};
                     _ when Task =:= <<"flush">> -> {exact, [Task | Tasks]};
                     _ -> {repaired, [Task]}
                 end,
    {How, span(Ts, P), {begins, Now}, next(Ts, P#port{tasks = Now})};
event({task, _, ends, Name, Ts}, #port{tasks = Tasks} = P) ->
    Task = task(Name),
    {How, Now} = case Tasks of
                     [Task | Below] -> {exact, Below};
                     _ -> {repaired, []}
                 end,
    {How, span(Ts, P), goes_on, next(Ts, P#port{tasks = Now})};
event({closed, _, Ts}, P) ->
    {exact, span(Ts, P), closes, next(Ts, P#port{open = false})};
event(Event, P) ->
    Ts = erlane_prof_trace_read:time(Event),
    {exact, span(Ts, P), goes_on, next(Ts, P)}.

%% @doc What it did until the end of the trace.
-spec ended(integer(), port_state()) -> span().
ended(Ts, #port{open = true} = P) -> span(Ts, P);
ended(_Ts, #port{tasks = Tasks}) -> {Tasks, 0}.

span(Ts, #port{last = Last, tasks = Tasks}) -> {Tasks, max(0, Ts - Last)}.

next(Ts, #port{last = Last} = P) -> P#port{last = max(Ts, Last)}.

task(none) -> none;
task(Name) -> erlane_prof_trace_read:word(Name).

%% @doc What a port was opened with, as rows have it: the name of a driver, or that of a program
%% without its directory and without its arguments, which can be anything.
-spec short(binary()) -> binary().
short(Opened) ->
    [Word | _] = binary:split(Opened, <<" ">>),
    Name = case re:run(Word, "^[0-9]+/[0-9]+$") of
               %% Descriptors, of which the VM was told.
               {match, _} -> <<"fd ", Word/binary>>;
               nomatch -> filename:basename(Word)
           end,
    erlane_prof_text:clean(binary:part(Name, 0, min(?SHORT, byte_size(Name)))).
