%% SPDX-License-Identifier: Apache-2.0
%% What a trace is made of: trees as made by hand, and traces that are not as they should be.
-module(erlane_prof_trace_tree_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([calls/1, tail_calls/1, mutual_tail_recursion/1, body_recursion/1, mutual_recursion/1,
         server_loop/1, waits/1, messages/1, collections/1, hibernation/1, exception/1,
         in_the_middle/1, from_top/1, from_top_in_the_middle/1, long_before/1,
         impossible_events/1, lost_stack_is_kept/1, outside/1, outside_calls_back/1,
         outside_tail/1, who_is_new/1, spawned_process/1, own_processes/1, processes_alike/1,
         ports/1, closed_port_goes_on/1, ports_begin/1, impossible_tasks/1, many_ports/1,
         names_of_ports/1,
         cut_at_any_byte/1, damaged/1, no_atoms/1, pieces/1, old_encoding/1, odd_names/1, deep/1,
         wide/1, memory/1, trees/1]).

-import(erlane_prof_trace_ct, [rows/1, rows/2, rows/3]).

all() ->
    [calls, tail_calls, mutual_tail_recursion, body_recursion, mutual_recursion, server_loop,
     waits, messages, collections, hibernation, exception, in_the_middle, from_top,
     from_top_in_the_middle, long_before,
     impossible_events, lost_stack_is_kept, outside, outside_calls_back, outside_tail, who_is_new,
     spawned_process, own_processes, processes_alike, ports, closed_port_goes_on, ports_begin,
     impossible_tasks, many_ports, names_of_ports, cut_at_any_byte, damaged, no_atoms, pieces,
     old_encoding, odd_names, deep, wide, memory, trees].

%%% Trees

%% a calls b, b calls c: each has the time between its own events.
calls(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [10 + 5 + 2, 1]},
                  {<<"p1">>, running, [a, b], [7 + 4, 2]},
                  {<<"p1">>, running, [a, b, c], [3, 1]}],
                 rows([{1, call, a, none, 0}, {1, call, b, a, 10}, {1, call, c, b, 13},
                       {1, return_to, b, 16}, {1, return_to, a, 20}, {1, call, b, a, 25},
                       {1, return_to, a, 29}, {1, out, a, 31}])).

%% b ends in a call of c: c is called by whom b returns to, and b is over.
tail_calls(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [1 + 6, 1]}, {<<"p1">>, running, [a, b], [2, 1]},
                  {<<"p1">>, running, [a, c], [3 + 5, 1]}, {<<"p1">>, running, [a, c, d], [4, 1]}],
                 rows([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, call, c, a, 3},
                       {1, call, d, c, 6}, {1, return_to, c, 10}, {1, return_to, a, 15},
                       {1, out, a, 21}])).

%% Two that end in calls of each other are side by side, however often.
mutual_tail_recursion(_Config) ->
    Turns = lists:append([[{1, call, even, a, 10 * N}, {1, call, odd, a, 10 * N + 3}]
                          || N <- lists:seq(1, 1000)]),
    ?assertEqual([{<<"p1">>, running, [a], [10 + 1, 1]},
                  {<<"p1">>, running, [a, even], [3000, 1000]},
                  {<<"p1">>, running, [a, odd], [7000, 1000]}],
                 rows([{1, call, a, none, 0}] ++ Turns
                      ++ [{1, return_to, a, 10010}, {1, out, a, 10011}])).

%% A function that calls itself is one frame with all of its time.
body_recursion(_Config) ->
    Down = [{1, call, sum, sum, 10 * N} || N <- lists:seq(1, 100)],
    Up = [{1, return_to, sum, 1000 + 10 * N} || N <- lists:seq(1, 100)],
    ?assertEqual([{<<"p1">>, running, [a], [5 + 1, 1]},
                  {<<"p1">>, running, [a, sum], [2010 - 5, 101]}],
                 rows([{1, call, a, none, 0}, {1, call, sum, a, 5}] ++ Down ++ Up
                      ++ [{1, return_to, a, 2010}, {1, out, a, 2011}])).

%% Two that call each other, neither in its tail, are as deep as they are; a return is to the
%% nearest.
mutual_recursion(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [1 + 32, 1]}, {<<"p1">>, running, [a, b], [2 + 16, 1]},
                  {<<"p1">>, running, [a, b, a], [4 + 8, 1]}],
                 rows([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, call, a, b, 3},
                       {1, return_to, a, 7}, {1, return_to, b, 15}, {1, return_to, a, 31},
                       {1, out, a, 63}])).

%% A server's loop calls a handler, which answers, and itself in its tail: its frame stays one.
server_loop(_Config) ->
    Loop = {gen_server, loop, 7},
    Turn = fun(At) ->
                   [{1, in, Loop, At}, {1, call, handle, Loop, At + 1},
                    {1, call, reply, handle, At + 2}, {1, return_to, handle, At + 4},
                    {1, return_to, Loop, At + 7}, {1, call, Loop, none, At + 8},
                    {1, out, Loop, At + 10}]
           end,
    ?assertEqual([{<<"p1">>, running, [Loop], [4000, 1000]},
                  {<<"p1">>, running, [Loop, handle], [4000, 1000]},
                  {<<"p1">>, running, [Loop, handle, reply], [2000, 1000]},
                  {<<"p1">>, waiting, [Loop], [90000, 0]}],
                 rows(lists:append([Turn(100 * N) || N <- lists:seq(1, 1000)]), [m, gen_server],
                      #{began => 10, ended => 100010})).

%%% Waits

%% Off its scheduler it waits where it was taken off; in a function of the VM that is not on its
%% stack, it is in that.
waits(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [1 + 10 + 1000, 1]},
                  {<<"p1">>, waiting, [a], [5, 0]},
                  {<<"p1">>, waiting, [a, read], [100, 0]}],
                 rows([{1, call, a, none, 0}, {1, out, a, 1}, {1, in, a, 6}, {1, out, read, 16},
                       {1, in, read, 116}, {1, out, a, 1116}])).

%% When its message has come it waits for a scheduler, no longer for a message.
messages(_Config) ->
    ?assertEqual([{<<"p1">>, runnable, [a], [40, 0]}, {<<"p1">>, running, [a], [1 + 3, 1]},
                  {<<"p1">>, waiting, [a], [5, 0]}],
                 rows([{1, call, a, none, 0}, {1, out, a, 1}, {1, 'receive', {some, "message"}, 6},
                       {1, in, a, 46}, {1, send, {another, [one]}, 47}, {1, out, a, 49}])).

%% Garbage is collected while it runs, or while it waits.
collections(_Config) ->
    ?assertEqual([{<<"p1">>, gc, [a], [2 + 16, 0]}, {<<"p1">>, running, [a], [1 + 4, 1]},
                  {<<"p1">>, waiting, [a], [8 + 32, 0]}],
                 rows([{1, call, a, none, 0}, {1, gc, gc_minor_start, 1}, {1, gc, gc_minor_end, 3},
                       {1, out, a, 7}, {1, gc, gc_major_start, 15}, {1, gc, gc_major_end, 31},
                       {1, in, a, 63}])).

%% What is called at the end of a process's stack has nothing below it.
hibernation(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [1, 1]}, {<<"p1">>, running, [a, b], [2, 1]},
                  {<<"p1">>, running, [wake], [8, 1]}, {<<"p1">>, waiting, [a, b], [4, 0]}],
                 rows([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, out, b, 3}, {1, in, b, 7},
                       {1, call, wake, none, 7}, {1, out, wake, 15}])).

%% An exception returns to the function that catches it, over all between.
exception(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [1 + 8, 1]}, {<<"p1">>, running, [a, b], [2, 1]},
                  {<<"p1">>, running, [a, b, c], [4, 1]}],
                 rows([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, call, c, b, 3},
                       {1, return_to, a, 7}, {1, out, a, 15}])).

%%% Beginnings

%% The trace begins within b: who called it is known when it returns.
in_the_middle(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [16, 0]}, {<<"p1">>, running, [b], [8, 0]},
                  {<<"p1">>, running, [b, c], [4, 1]},
                  {<<"p1">>, running, [<<"[not traced]">>], [3, 0]}],
                 rows([{1, call, c, b, 3}, {1, return_to, b, 7}, {1, return_to, a, 15},
                       {1, out, a, 31}])).

%% Of b it was not asked where it returns to: it is called by what is innermost.
from_top(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [1 + 12 + 4, 1]},
                  {<<"p1">>, running, [a, b], [2 + 4 + 4, 2]},
                  {<<"p1">>, running, [a, b, c], [4, 1]}],
                 rows([{1, call, a, none, 0}, {1, call, b, top, 1}, {1, call, c, b, 3},
                       {1, return_to, b, 7}, {1, return_to, a, 11}, {1, call, b, top, 23},
                       {1, return_to, a, 27}, {1, out, a, 31}])).

%% It was in x when the trace began, which may have returned without a word: then b was called by
%% who calls it, if that is known, and else by somebody.
from_top_in_the_middle(_Config) ->
    Rows = fun(Callers) ->
                   rows([{1, out, x, 0}, {1, in, x, 1}, {1, call, b, top, 3},
                         {1, return_to, a, 7}, {1, out, a, 15}], [m],
                        #{top => [{{m, b, 1}, [{m, F, 1} || F <- Callers]}]})
           end,
    X = [{<<"p1">>, running, [x], [2, 0]}, {<<"p1">>, waiting, [x], [1, 0]}],
    A = {<<"p1">>, running, [a], [8, 0]},
    ?assertEqual(lists:sort([A, {<<"p1">>, running, [a, b], [4, 1]} | X]), Rows([a])),
    ?assertEqual(lists:sort([A, {<<"p1">>, running, [b], [4, 1]} | X]), Rows([a, c])),
    ?assertEqual(lists:sort([A, {<<"p1">>, running, [x, b], [4, 1]} | X]), Rows([c, x])).

%% One that is known and comes in waited in that function since the trace began; one that has
%% waited until its end does.
long_before(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [2, 0]}, {<<"p1">>, waiting, [a], [5 + 93, 0]}],
                 rows([{1, in, a, 5}, {1, out, a, 7}], [m], #{ended => 100})).

%% Events that cannot be: each is counted, the stack is what it must have been, no time is lost.
impossible_events(_Config) ->
    %% c is called by a, though b has not returned.
    {[{<<"p1">>, running, [a], [1, 1]}, {<<"p1">>, running, [a, b], [2, 1]},
      {<<"p1">>, running, [a, b, x], [4, 1]}, {<<"p1">>, running, [a, c], [8, 1]}], 1} =
        repaired([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, call, x, b, 3},
                  {1, call, c, a, 7}, {1, out, c, 15}]),
    %% A return to a function that is not there.
    {Rows, 1} = repaired([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, return_to, z, 3},
                          {1, out, z, 7}]),
    ?assertEqual([{<<"p1">>, running, [a], [1, 1]}, {<<"p1">>, running, [a, b], [2, 1]},
                  {<<"p1">>, running, [a, z], [4, 0]}], Rows),
    %% It calls while it waits.
    {_, 1} = repaired([{1, call, a, none, 0}, {1, out, a, 1}, {1, call, b, a, 3}, {1, out, b, 7}]),
    %% Time goes back.
    {Back, 0} = repaired([{1, call, a, none, 10}, {1, call, b, a, 5}, {1, out, b, 12}]),
    ?assertEqual(12, lists:sum([Ns || {_, _, _, [Ns, _]} <- Back])).

%% What was below is still there after an event that cannot be.
lost_stack_is_kept(_Config) ->
    {Rows, 1} = repaired([{1, call, a, none, 0}, {1, call, b, a, 1}, {1, call, y, x, 2},
                          {1, return_to, x, 4}, {1, return_to, b, 8}, {1, return_to, a, 16},
                          {1, out, a, 32}]),
    ?assertEqual([{<<"p1">>, running, [a], [1 + 16, 1]}, {<<"p1">>, running, [a, b], [1 + 8, 1]},
                  {<<"p1">>, running, [a, b, x], [4, 0]},
                  {<<"p1">>, running, [a, b, x, y], [2, 1]}],
                 Rows).

repaired(Events) ->
    Bytes = erlane_prof_trace_ct:file(Events),
    State = erlane_prof_trace_ct:converted([Bytes],
                                           {erlane_prof_trace_ct:about(byte_size(Bytes)), [m]}),
    Count = [binary_to_integer(N)
             || Note <- erlane_prof_trace_profile:notes(State),
                {match, [N]} <- [re:run(Note, "([0-9]+) events did not fit",
                                        [{capture, all_but_first, binary}])]],
    {rows(Events), lists:sum(Count)}.

%%% Functions that are not traced

%% Returns tell of them all the same: they are not in the picture, and their time is that of who
%% called them.
outside(_Config) ->
    Fold = {lists, foldl_1, 3},
    Rows = rows([{1, call, a, none, 0}, {1, call, f, Fold, 10}, {1, return_to, Fold, 13},
                 {1, call, f, Fold, 20}, {1, call, g, f, 22}, {1, return_to, f, 26},
                 {1, return_to, Fold, 34}, {1, call, b, a, 40}, {1, return_to, a, 50},
                 {1, out, {lists, nth, 2}, 51}, {1, in, {lists, nth, 2}, 60}, {1, out, a, 61}]),
    ?assertEqual([{<<"p1">>, running, [a], [10 + 7 + 6 + 1 + 1, 1]},
                  {<<"p1">>, running, [a, b], [10, 1]},
                  {<<"p1">>, running, [a, f], [3 + 2 + 8, 2]},
                  {<<"p1">>, running, [a, f, g], [4, 1]},
                  {<<"p1">>, waiting, [a], [9, 0]}], Rows).

%% Recursion through one: f calls lists:map, which calls f. Its frames are one.
outside_calls_back(_Config) ->
    Map = {lists, map, 2},
    ?assertEqual([{<<"p1">>, running, [a], [1 + 64, 1]},
                  {<<"p1">>, running, [a, f], [2 + 4 + 16 + 32, 2]},
                  {<<"p1">>, running, [a, f, g], [8, 1]}],
                 rows([{1, call, a, none, 0}, {1, call, f, a, 1}, {1, call, f, Map, 3},
                       {1, call, g, f, 7}, {1, return_to, f, 15}, {1, return_to, Map, 31},
                       {1, return_to, a, 63}, {1, out, a, 127}])).

%% A callback that ends in a call of another function of its module.
outside_tail(_Config) ->
    Try = {gen_server, try_handle_call, 4},
    ?assertEqual([{<<"p1">>, running, [do], [4, 1]}, {<<"p1">>, running, [handle_call], [2, 1]},
                  {<<"p1">>, running, [<<"[not traced]">>], [1 + 8, 0]}],
                 rows([{1, call, handle_call, Try, 1}, {1, call, do, Try, 3},
                       {1, return_to, Try, 7}, {1, out, {gen_server, loop, 7}, 15}])).

%%% Processes

%% A new process is known by the first function that is its own.
who_is_new(_Config) ->
    Init = {proc_lib, init_p, 5},
    Apply = {proc_lib, init_p_do_apply, 3},
    Rows = rows([{2, in, Init, 0}, {2, call, Init, none, 1}, {2, call, Apply, none, 2},
                 {2, call, init, Apply, 4}, {2, out, init, 8}, {3, in, {erlang, apply, 2}, 10},
                 {3, out, {erlang, apply, 2}, 12}], [m, proc_lib, erlang]),
    ?assertEqual([{<<"erlang:apply/2">>, running, [{erlang, apply, 2}], [2, 0]},
                  {<<"m:init/1">>, running, [Init], [1 + 1, 1]},
                  {<<"m:init/1">>, running, [Apply], [2, 1]},
                  {<<"m:init/1">>, running, [Apply, init], [4, 1]},
                  {<<"m:init/1">>, waiting, [Apply, init], [4, 0]}], Rows).

%% Or by what it was spawned with.
spawned_process(_Config) ->
    ?assertEqual([{<<"m:work/1">>, runnable, [work], [1, 0]},
                  {<<"m:work/1">>, running, [work], [2, 0]}],
                 rows([{2, spawned, work, [{an, "argument"}], 0}, {2, in, work, 1},
                       {2, out, work, 3}])).

%% Ours are not in the picture.
own_processes(_Config) ->
    ?assertEqual([{<<"p1">>, running, [a], [2, 1]}],
                 rows([{99, call, b, none, 0}, {1, call, a, none, 0}, {99, call, c, b, 1},
                       {1, out, a, 2}])).

%% Many that come and go, and are alike: one row for all.
processes_alike(_Config) ->
    Life = fun(N) -> [{N, in, work, 10 * N}, {N, call, work, none, 10 * N + 1},
                      {N, out_exited, 10 * N + 5}]
           end,
    ?assertEqual([{<<"m:work/1">>, running, [work], [5 * 500, 500]}],
                 rows(lists:append([Life(N) || N <- lists:seq(100, 599)]))).

%%% Ports

%% A task that the VM names is below its port; those of its queue are its own time; it waits else.
%% Links and names of a port are nothing that it does.
ports(_Config) ->
    Port = {port, 5},
    ?assertEqual([{<<"name">>, running, [<<"[port] cat">>], [4, 1]},
                  {<<"name">>, running, [<<"[port] cat">>, <<"command">>], [3 + 1, 2]},
                  {<<"name">>, waiting, [<<"[port] cat">>], [10 + 7 + 1 + 5, 0]}],
                 port_rows([{Port, in, command, 10}, {Port, out, command, 13}, {Port, in, 0, 20},
                            {Port, link, x, 22}, {Port, out, 0, 24}, {Port, in, command, 25},
                            {Port, out, command, 26}, {Port, unregister, x, 27}],
                           #{Port => {<<"name">>, <<"/bin/cat -u">>, true}}, 31)).

%% One that is closed may have more to write, and tells nothing of its end: it is there until its
%% last event.
closed_port_goes_on(_Config) ->
    Port = {port, 6},
    ?assertEqual([{<<"tcp_inet">>, running, [<<"[port] tcp_inet">>], [2 + 1 + 2, 3]},
                  {<<"tcp_inet">>, running, [<<"[port] tcp_inet">>, <<"flush">>], [2, 1]},
                  {<<"tcp_inet">>, waiting, [<<"[port] tcp_inet">>], [5 + 10 + 8, 0]}],
                 port_rows([{Port, open, tcp_inet, 0}, {Port, in, 0, 5}, {Port, closed, normal, 6},
                            {Port, in, flush, 7}, {Port, out, flush, 9}, {Port, out, 0, 10},
                            {Port, in, 0, 20}, {Port, out, 0, 22}, {Port, in, 0, 30}],
                           #{}, 100)).

%% One that was there waited since the beginning, or was in the task that ends first; one that the
%% VM does not tell to be opened is there from its first event on.
ports_begin(_Config) ->
    Known = #{{port, 7} => {none, <<"efile">>, true}, {port, 8} => {none, <<"tcp_inet">>, false}},
    ?assertEqual([{<<"[port]">>, waiting, [<<"[port]">>], [10, 0]},
                  {<<"efile">>, running, [<<"[port] efile">>, <<"control">>], [20, 0]},
                  {<<"efile">>, waiting, [<<"[port] efile">>], [30, 0]},
                  {<<"tcp_inet">>, running, [<<"[port] tcp_inet">>, <<"control">>], [5, 1]},
                  {<<"tcp_inet">>, waiting, [<<"[port] tcp_inet">>], [15, 0]}],
                 port_rows([{{port, 7}, out, control, 20}, {{port, 8}, in, control, 30},
                            {{port, 8}, out, control, 35}, {{port, 9}, getting_linked, x, 40}],
                           Known, 50)).

%% The end of a task is missing, then a beginning: both are counted, and no time is lost.
impossible_tasks(_Config) ->
    Port = {port, 5},
    Events = [{Port, in, command, 0}, {Port, in, control, 4}, {Port, out, control, 5},
              {Port, out, control, 7}],
    ?assertEqual([{<<"cat">>, running, [<<"[port] cat">>, <<"command">>], [4, 1]},
                  {<<"cat">>, running, [<<"[port] cat">>, <<"control">>], [1, 1]},
                  {<<"cat">>, waiting, [<<"[port] cat">>], [2 + 3, 0]}],
                 port_rows(Events, #{Port => {none, <<"cat">>, true}}, 10)),
    {_, 2} = repaired(Events).

%% More than can be remembered come and go: none is there longer than it was.
many_ports(_Config) ->
    Events = lists:append([[{{port, N}, open, tcp_inet, 10 * N}, {{port, N}, in, close, 10 * N + 3},
                            {{port, N}, closed, normal, 10 * N + 4}] || N <- lists:seq(1, 3000)]),
    ?assertEqual([{<<"tcp_inet">>, running, [<<"[port] tcp_inet">>, <<"close">>], [3000, 3000]},
                  {<<"tcp_inet">>, waiting, [<<"[port] tcp_inet">>], [9000, 0]}],
                 port_rows(Events, #{}, 1000000)).

%% Rows have a driver, or a program without what it is told.
names_of_ports(_Config) ->
    Names = fun(Name) ->
                    lists:usort([{P, S} || {P, _, S, _} <- port_rows([{{port, 1}, open, Name, 0},
                                                                      {{port, 1}, in, 0, 1}],
                                                                     #{}, 9)])
            end,
    [?assertEqual([{Label, [<<"[port] ", Label/binary>>]}], Names(Name))
     || {Name, Label} <- [{'/usr/bin/psql --password=xyzzy', <<"psql">>}, {'0/1', <<"fd 0/1">>},
                          {udp_inet, <<"udp_inet">>}, {'./a b', <<"a">>},
                          {list_to_atom(lists:duplicate(200, $x)),
                           list_to_binary(lists:duplicate(40, $x))},
                          %% Bytes of UTF-8, each of which is a letter of the atom.
                          {list_to_atom([16#c3, 16#a9]), <<16#c3, 16#a9>>}]].

port_rows(Events, Known, Ended) ->
    rows(Events, [m], #{ports => maps:to_list(Known), ended => Ended}).

%%% Files that are not as they should be

%% Cut at any byte: what is there is there, and it is said.
cut_at_any_byte(_Config) ->
    Events = [{1, call, a, none, 0}, {1, call, b, a, 10}, {1, out, b, 20}, {1, in, b, 30},
              {2, in, w, 35}, {1, return_to, a, 40}, {2, call, c, w, 44}, {1, out, a, 50}],
    Bytes = erlane_prof_trace_ct:file(Events),
    Sizes = [byte_size(erlane_prof_trace_ct:file([E])) || E <- Events],
    Ends = lists:foldl(fun(Size, [Last | _] = Acc) -> [Last + Size | Acc] end, [0], Sizes),
    [begin
         Part = binary:part(Bytes, 0, N),
         State = erlane_prof_trace_ct:converted([Part], {erlane_prof_trace_ct:about(N), [m]}),
         Whole = length([End || End <- Ends, End > 0, End =< N]),
         Notes = erlane_prof_trace_profile:notes(State),
         ?assertEqual(not lists:member(N, Ends), said("the trace is cut", Notes), {N, Notes}),
         Rows = erlane_prof_trace_profile:rows(fun(R, Acc) -> [R | Acc] end, [], State),
         ?assertEqual(times(lists:sublist(Events, Whole)),
                      lists:sum([Ns || #{values := [Ns, _]} <- Rows]), N)
     end || N <- lists:seq(0, byte_size(Bytes))].

%% Each process is in the picture until the last event of all.
times([]) -> 0;
times(Events) ->
    Last = element(tuple_size(lists:last(Events)), lists:last(Events)),
    Last + case [E || E <- Events, element(1, E) =:= 2] of
               [First | _] -> Last - element(tuple_size(First), First);
               [] -> 0
           end.

%% A byte that is none of a trace: what was before it is there, and it is said. Never a crash.
damaged(_Config) ->
    Bytes = erlane_prof_trace_ct:file([{1, call, a, none, 0}, {1, call, b, a, 10},
                                       {1, out, b, 20}]),
    First = byte_size(erlane_prof_trace_ct:file([{1, call, a, none, 0}])),
    [begin
         <<Before:At/binary, Was, After/binary>> = Bytes,
         Damaged = <<Before/binary, (Was bxor 255), After/binary>>,
         About = erlane_prof_trace_ct:about(byte_size(Bytes)),
         State = erlane_prof_trace_ct:converted([Damaged], {About, [m]}),
         _ = erlane_prof_trace_profile:rows(fun(R, Acc) -> [R | Acc] end, [], State),
         At =:= First andalso
             ?assert(said("damaged at byte " ++ integer_to_list(First),
                          erlane_prof_trace_profile:notes(State)))
     end || At <- lists:seq(0, byte_size(Bytes) - 1)].

%% Names that are no names of atoms.
no_atoms(_Config) ->
    Long = list_to_binary(lists:duplicate(300, $x)),
    [begin
         Name = <<104, 3, Atom/binary, 119, 1, "f", 97, 1>>,
         {M, f, 1} = erlane_prof_trace_read:mfa(Name),
         ?assertEqual(Text, atom_to_list(M))
     end || {Atom, Text} <- [{<<119, 2, 146, "a">>, [146, $a]}, {<<119, 1, 255>>, [255]},
                             {<<118, 300:16, Long/binary>>, lists:duplicate(255, $x)},
                             {<<100, 300:16, Long/binary>>, lists:duplicate(255, $x)}]].

%% In pieces of any size it is the same.
pieces(_Config) ->
    Events = lists:append([[{1, call, a, none, 10 * N}, {1, call, b, a, 10 * N + 3}]
                           || N <- lists:seq(0, 20)]),
    Bytes = erlane_prof_trace_ct:file(Events),
    About = {erlane_prof_trace_ct:about(byte_size(Bytes)), [m]},
    Rows = fun(Size) ->
                   State = erlane_prof_trace_ct:converted(erlane_prof_trace_ct:pieces(Size, Bytes),
                                                          About),
                   {lists:sort(erlane_prof_trace_profile:rows(fun(R, A) -> [R | A] end, [], State)),
                    erlane_prof_trace_profile:notes(State)}
           end,
    [_] = lists:usort([Rows(Size) || Size <- [1, 2, 3, 7, 64, 1000, 100000]]).

%% Atoms and small numbers as older releases write them.
old_encoding(_Config) ->
    Atom = fun(A) -> [100, <<(length(A)):16>>, A] end,
    Pid = [88, Atom("nonode@nohost"), <<1001:32, 0:32, 0:32>>],
    Mfa = fun(F) -> [104, 3, Atom("m"), Atom(F), 97, 1] end,
    Record = fun(Terms) ->
                     Bytes = iolist_to_binary([131, 104, length(Terms), Terms]),
                     <<0, (byte_size(Bytes)):32, Bytes/binary>>
             end,
    Bytes = iolist_to_binary(
              [Record([Atom("trace_ts"), Pid, Atom("call"), Mfa("a"), Atom("undefined"), [97, 3]]),
               Record([Atom("trace_ts"), Pid, Atom("call"), Mfa("b"), Mfa("a"), [98, <<300:32>>]]),
               Record([Atom("trace_ts"), Pid, Atom("out"), Mfa("b"),
                       [110, 5, 0, <<4294967296:40/little>>]])]),
    About = (erlane_prof_trace_ct:about(0))#{began := 3},
    State = erlane_prof_trace_ct:converted([Bytes], {About, [m]}),
    ?assertEqual([[297, 1], [4294967296 - 300, 1]],
                 lists:sort([V || #{values := V} <- erlane_prof_trace_profile:rows(
                                                      fun(R, A) -> [R | A] end, [], State)])).

%% Names are any atoms.
odd_names(_Config) ->
    Names = ['', 'Elixir.Some.Module', list_to_atom("\x{3bb}\x{1f600}"), list_to_atom([255]),
             list_to_atom(lists:duplicate(255, $x)), list_to_atom(lists:duplicate(255, 16#3bb))],
    [?assertEqual([{<<"p1">>, running, [{M, F, 255}], [5, 1]}],
                  rows([{1, call, {M, F, 255}, none, 0}, {1, out, {M, F, 255}, 5}], [M]))
     || M <- Names, F <- Names].

%%% Limits

%% Mutual recursion that is deeper than stacks are shown: time and calls are all there.
deep(_Config) ->
    Down = [{1, call, case N rem 2 of 0 -> even; 1 -> odd end,
             case N rem 2 of 0 -> odd; 1 -> even end, N} || N <- lists:seq(1, 20000)],
    Up = [{1, return_to, case N rem 2 of 0 -> odd; 1 -> even end, 40001 - N}
          || N <- lists:seq(20000, 1, -1)],
    Events = [{1, call, even, none, 0}] ++ Down ++ Up ++ [{1, out, even, 40001}],
    {Rows, 0} = repaired(Events),
    ?assertEqual([40001, 20001], sums(Rows)),
    ?assertEqual(200, lists:max([length(Stack) || {_, _, Stack, _} <- Rows])).

%% More stacks than are told apart.
wide(_Config) ->
    Turn = fun(A, B, C, At) ->
                   [{1, call, A, none, At}, {1, call, B, A, At + 1}, {1, call, C, B, At + 2}]
           end,
    Names = [list_to_atom([$f | integer_to_list(N)]) || N <- lists:seq(1, 47)],
    Bytes = iolist_to_binary([erlane_prof_trace_ct:file(Turn(A, B, C, 1)) || A <- Names, B <- Names,
                                                                             C <- Names]),
    State = erlane_prof_trace_ct:converted([Bytes],
                                           {(erlane_prof_trace_ct:about(0))#{began := 1}, [m]}),
    ?assert(said("too deep, or too many", erlane_prof_trace_profile:notes(State))),
    Rows = erlane_prof_trace_profile:rows(fun(R, A) -> [R | A] end, [], State),
    ?assert(length(Rows) =< 100000),
    ?assertEqual(3 * 47 * 47 * 47, lists:sum([N || #{values := [_, N]} <- Rows])).

%% A long trace of many processes that come and go, within a heap that would hold a small part.
memory(_Config) ->
    Part = iolist_to_binary([begin
                                 Who = 100 + N rem 700,
                                 erlane_prof_trace_ct:file(
                                   [{Who, in, work, N}, {Who, call, work, none, N},
                                    {Who, call, sub, work, N}, {Who, return_to, work, N},
                                    {Who, out_exited, N}])
                             end || N <- lists:seq(1, 4000)]),
    Self = self(),
    {Pid, Ref} = spawn_opt(
                   fun() ->
                           About = {(erlane_prof_trace_ct:about(0))#{began := 1}, [m]},
                           State = erlane_prof_trace_ct:converted(lists:duplicate(40, Part), About),
                           Rows = erlane_prof_trace_profile:rows(fun(R, A) -> [R | A] end, [],
                                                                 State),
                           Self ! {self(), lists:sum([N || #{values := [_, N]} <- Rows])}
                   end, [monitor, {max_heap_size, #{size => 4000000, kill => true,
                                                    error_logger => false}}]),
    ?assert(40 * byte_size(Part) > 4 * 8 * 4000000 div 3, byte_size(Part)),
    receive
        {Pid, Calls} -> ?assertEqual(40 * 4000 * 2, Calls);
        {'DOWN', Ref, process, Pid, Reason} -> ct:fail(Reason)
    end.

sums(Rows) ->
    lists:foldl(fun({_, _, _, [Ns, Calls]}, [A, B]) -> [A + Ns, B + Calls] end, [0, 0], Rows).

said(Text, Notes) ->
    lists:any(fun(Note) -> string:find(Note, Text) =/= nomatch end, Notes).

%%% Any tree

trees(_Config) ->
    true = proper:quickcheck(prop_erlane_prof_trace:prop_tree(),
                             [{numtests, 300}, {to_file, user}, quiet]).
