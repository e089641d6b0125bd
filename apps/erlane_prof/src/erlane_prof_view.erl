%% SPDX-License-Identifier: Apache-2.0
%% @doc What happened between two samples. Pure.
-module(erlane_prof_view).

-export([view/2]).

-export_type([view/0]).

%% Keys that end in `_s' are a second; `util', `cpu' and `wait' are shares of one processor, so
%% that 1.0 is one that was never idle.
-type view() ::
        #{ms := pos_integer(), cpu := float() | undefined, cpu_wait := float() | undefined,
          schedulers := [map()], dirty := [map()], lanes := [map()], dist := [map()],
          threads := [map()], procs := [erlane_prof_walk:proc()],
          reductions_s := number(), io_in_s := number(), io_out_s := number(),
          gc_s := number(), gc_words_s := number(), atom() => term()}.

%% @doc Rates. The second sample is the one whose state is shown.
-spec view(erlane_prof_probe:sample(), erlane_prof_probe:sample()) -> view().
view(#{at_ms := At0} = Before, #{at_ms := At1} = After) ->
    Ms = max(1, At1 - At0),
    Threads = threads(After),
    Rates = maps:from_list([{Rate, rate(Key, Before, After, Ms)}
                            || {Rate, Key} <- [{reductions_s, reductions}, {io_in_s, io_in},
                                               {io_out_s, io_out}, {gc_s, gc_count},
                                               {gc_words_s, gc_words}]]),
    Kept = maps:with([node, otp, erts, uptime_ms, dirty, runq_total, memory, processes, ports,
                      ets, atoms, limits, procs, procs_by, procs_looked, procs_late, counts_late,
                      load, cost_us], After),
    maps:merge(maps:merge(Kept, Rates),
               #{ms => Ms,
                 schedulers => paired(id, schedulers, Before, After,
                                      fun(Old, New) -> scheduler(Old, New) end),
                 lanes => paired(lane, lanes, Before, After,
                                 fun(Old, New) -> lane(Old, New, Ms) end),
                 dist => paired(node, dist, Before, After,
                                fun(Old, New) -> connection(Old, New, Ms) end),
                 threads => Threads,
                 cpu => total(cpu, Threads),
                 cpu_wait => total(wait, Threads)}).

%% A function of the entry before, an empty map if there was none, and the one after.
paired(Key, List, Before, After, Fun) ->
    Old = maps:from_list([{maps:get(Key, Entry), Entry} || Entry <- maps:get(List, Before)]),
    [Fun(maps:get(maps:get(Key, Entry), Old, #{}), Entry) || Entry <- maps:get(List, After)].

%% A counter that went back is that of another incarnation.
rate(Key, Before, After, Ms) ->
    case {maps:get(Key, Before, 0), maps:get(Key, After, 0)} of
        {Old, New} when is_number(Old), is_number(New) -> max(0, New - Old) * 1000 / Ms;
        _ -> undefined
    end.

scheduler(#{active := Active0, total := Total0},
          #{active := Active, total := Total} = New) when is_integer(Active0), is_integer(Active),
                                                          Total > Total0 ->
    Util = (Active - Active0) / (Total - Total0),
    (maps:without([active, total], New))#{util => min(1.0, max(0.0, Util))};
scheduler(_Old, New) ->
    maps:without([active, total], New).

%% A lane that is new has counted since it was opened.
lane(Old, #{lane := Id} = New, Ms) ->
    Waits = rate(waits, Old, New, Ms),
    Events = rate(events, Old, New, Ms),
    #{lane => Id,
      sockets => maps:get(sockets, New, 0),
      relays => maps:get(relays, New, 0),
      waits_s => Waits,
      events_s => Events,
      events_per_wait => case Waits > 0 of
                             true -> Events / Waits;
                             false -> 0.0
                         end,
      turns_s => rate(turns, Old, New, Ms),
      empty_s => rate(empty_turns, Old, New, Ms),
      sleeps_s => rate(sleeps, Old, New, Ms),
      wakes_s => rate(wakes, Old, New, Ms),
      recv_s => rate(recv, Old, New, Ms),
      send_s => rate(send, Old, New, Ms),
      eagain_s => rate(eagain, Old, New, Ms),
      in_s => rate(recv_bytes, Old, New, Ms),
      out_s => rate(send_bytes, Old, New, Ms),
      accepted_s => rate(accepted, Old, New, Ms),
      moved_s => rate(moved, Old, New, Ms)}.

connection(Old, #{node := Node, queue := Queue} = New, Ms) ->
    #{node => Node, in_s => rate(in, Old, New, Ms), out_s => rate(out, Old, New, Ms),
      queue => Queue}.

%% CPU of the threads of each kind.
threads(#{threads := Threads}) ->
    [#{kind => Kind, count => length(Of),
       cpu => lists:sum([Cpu || #{cpu := Cpu} <- Of]),
       wait => lists:sum([Wait || #{wait := Wait} <- Of])}
     || Kind <- [scheduler, dirty_cpu, dirty_io, poll, async, aux, other],
        Of <- [[Thread || #{name := Name} = Thread <- Threads, kind(Name) =:= Kind]], Of =/= []].

%% The names are those of OTP 25 and of later releases.
kind(Name) ->
    Kinds = [{<<"dirty_cpu">>, dirty_cpu}, {<<"dcpu">>, dirty_cpu},
             {<<"dirty_io">>, dirty_io}, {<<"dio">>, dirty_io},
             {<<"sched">>, scheduler}, {<<"poll">>, poll}, {<<"async">>, async},
             {<<"aux">>, aux}],
    hd([Kind || {Part, Kind} <- Kinds, binary:match(Name, Part) =/= nomatch] ++ [other]).

total(_Key, []) -> undefined;
total(Key, Threads) -> lists:sum([maps:get(Key, Thread) || Thread <- Threads]).
