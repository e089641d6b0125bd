%% SPDX-License-Identifier: Apache-2.0
%% @doc What the VM's own threads did between two readings of its counters, and what stands out in
%% it, in words. Pure.
-module(erlane_prof_schedulers).

-export([view/1, findings/1, format/1, json/1]).

-export_type([view/0]).

%% Shares are parts of 1. `states' of a kind of threads are shares of all its threads' time;
%% `util' is `undefined' where the VM does not tell. Queues: how many waited, on average and at
%% most, for each scheduler in turn, then for all dirty ones of a kind. `moves': how often processes
%% that were followed were scheduled in, and how often on another scheduler than before; `undefined'
%% if somebody else traces. `locks' are those that were waited for most; `none' if the VM does not
%% count them.
-type view() ::
        #{node := node(), otp := binary(), ns := non_neg_integer(), online := pos_integer(),
          threads := [#{kind := atom(), count := pos_integer(), states := [{atom(), float()}]}],
          schedulers := [#{id := pos_integer(), online := boolean(), util := float() | undefined,
                           queue := float(), most := non_neg_integer()}],
          dirty := [#{kind := cpu | io, count := non_neg_integer(), util := float() | undefined,
                      queue := float(), most := non_neg_integer()}],
          switches_s := float(),
          moves := #{scheduled := non_neg_integer(), moved := non_neg_integer()} | undefined,
          locks := [#{name := atom(), tries := non_neg_integer(), collisions := non_neg_integer(),
                      ns := non_neg_integer()}] | none,
          notes := [binary()]}.

-define(LOCKS, 10).

%% @doc Of what erlane_prof_threads has read.
-spec view(map()) -> view().
view(#{first := First, last := Last, queues := {Looks, Sums, Most}, online := Online,
       schedulers := Normal, dirty_cpu := Cpu, dirty_io := Io, moves := Moves, ns := Ns} = Stats) ->
    Utils = utils(maps:get(wall, First), maps:get(wall, Last)),
    Queues = [{Sum / max(1, Looks), Max} || {Sum, Max} <- lists:zip(Sums, Most)],
    {Own, Shared} = lists:split(min(Normal, length(Queues)), Queues),
    #{node => maps:get(node, Stats), otp => maps:get(otp, Stats), ns => Ns, online => Online,
      threads => threads(maps:get(msacc, First), maps:get(msacc, Last)),
      schedulers => [#{id => Id, online => Id =< Online, util => maps:get(Id, Utils, undefined),
                       queue => Mean, most => Max}
                     || {Id, {Mean, Max}} <- lists:zip(lists:seq(1, length(Own)), Own)],
      dirty => [#{kind => Kind, count => length(Ids), queue => Mean, most => Max,
                  util => mean([maps:get(Id, Utils, undefined) || Id <- Ids])}
                || {{Kind, Ids}, {Mean, Max}}
                       <- lists:zip(lists:sublist([{cpu, lists:seq(Normal + 1, Normal + Cpu)},
                                                   {io, lists:seq(Normal + Cpu + 1,
                                                                  Normal + Cpu + Io)}],
                                                  length(Shared)), Shared)],
      switches_s => (maps:get(switches, Last) - maps:get(switches, First)) * 1.0e9 / max(1, Ns),
      moves => case Moves of
                   none -> undefined;
                   {In, Moved} -> #{scheduled => In, moved => Moved}
               end,
      locks => locks(maps:get(locks, First), maps:get(locks, Last)),
      notes => maps:get(notes, Stats, [])}.

utils(First, Last) ->
    Before = maps:from_list([{Id, {Active, Total}} || {Id, Active, Total} <- First]),
    maps:from_list([{Id, min(1.0, max(0.0, (Active - Active0) / (Total - Total0)))}
                    || {Id, Active, Total} <- Last,
                       {Active0, Total0} <- [maps:get(Id, Before, {0, 0})], Total > Total0]).

mean(Utils) ->
    case [Util || Util <- Utils, Util =/= undefined] of
        [] -> undefined;
        Known -> lists:sum(Known) / length(Known)
    end.

%% They come in any order.
threads(First, Last) ->
    Old = maps:from_list(First),
    Changed = [{Type, maps:map(fun(State, N) -> max(0, N - maps:get(State, Before, 0)) end, After)}
               || {{Type, _} = Thread, After} <- Last, Before <- [maps:get(Thread, Old, #{})]],
    Kinds = lists:usort([Type || {Type, _} <- Changed]),
    [begin
         Of = [Counters || {Type, Counters} <- Changed, Type =:= Kind],
         Sums = lists:foldl(fun(Counters, Acc) ->
                                    maps:fold(fun(State, N, A) ->
                                                      A#{State => N + maps:get(State, A, 0)}
                                              end, Acc, Counters)
                            end, #{}, Of),
         Total = max(1, lists:sum(maps:values(Sums))),
         #{kind => Kind, count => length(Of),
           states => [{State, N / Total} || {State, N} <- lists:sort(maps:to_list(Sums))]}
     end || Kind <- Kinds].

%% Locks of one name are one.
locks(First, Last) when is_list(First), is_list(Last) ->
    Before = by_name(First),
    All = [#{name => Name, tries => T - T0, collisions => C - C0, ns => Ns - Ns0}
           || {Name, {T, C, Ns}} <- maps:to_list(by_name(Last)),
              {T0, C0, Ns0} <- [maps:get(Name, Before, {0, 0, 0})], T > T0],
    Sorted = lists:sort(fun(#{ns := A}, #{ns := B}) -> A >= B end, All),
    lists:sublist(Sorted, ?LOCKS);
locks(_, _) ->
    none.

by_name(Locks) ->
    lists:foldl(fun({Name, T, C, Ns}, Acc) ->
                        {T0, C0, Ns0} = maps:get(Name, Acc, {0, 0, 0}),
                        Acc#{Name => {T0 + T, C0 + C, Ns0 + Ns}}
                end, #{}, Locks).

%%% What stands out

%% @doc A sentence for each thing that stands out, with what it may mean. Empty if nothing does.
-spec findings(view()) -> [binary()].
findings(View) ->
    [unicode:characters_to_binary(Text)
     || Find <- [fun saturated/1, fun uneven/1, fun queues/1, fun dirty/1, fun states/1,
                 fun polling/1, fun moves/1, fun contended/1], Text <- Find(View)].

online(#{schedulers := Schedulers}) ->
    [S || #{online := true, util := Util} = S <- Schedulers, Util =/= undefined].

saturated(View) ->
    case online(View) of
        [_ | _] = Online ->
            Least = lists:min([Util || #{util := Util} <- Online]),
            [f("all ~b schedulers are busy, the least of them ~ts of the time: there is more work "
               "than schedulers", [length(Online), percent(Least)]) || Least >= 0.95];
        [] -> []
    end.

%% A scheduler that has much to do while others have none: work that cannot be spread.
uneven(View) ->
    Utils = lists:sort([{Util, Id} || #{util := Util, id := Id} <- online(View)]),
    case Utils of
        [{Least, Idle}, _ | _] ->
            {Most, Busy} = lists:last(Utils),
            [f("scheduler ~b is busy ~ts of the time, scheduler ~b ~ts: few processes have all "
               "the work, mode sample shows which", [Busy, percent(Most), Idle, percent(Least)])
             || Most >= 0.8, Most - Least >= 0.5];
        _ -> []
    end.

queues(#{schedulers := Schedulers} = View) ->
    Waiting = lists:sum([Mean || #{queue := Mean} <- Schedulers]),
    Online = online(View),
    Busy = case Online of
               [] -> 1.0;
               _ -> lists:sum([Util || #{util := Util} <- Online]) / length(Online)
           end,
    Long = Waiting >= max(1, length(Online)),
    [f("~.1f processes wait for a scheduler at any time: each is delayed before it runs", [Waiting])
     || Long, Busy >= 0.8]
        ++ [f("~.1f processes wait for a scheduler although these are busy only ~ts of the time: "
              "long native calls keep one, or the machine has no processor for it",
              [Waiting, percent(Busy)]) || Long, Busy < 0.8].

dirty(#{dirty := Dirty}) ->
    [f("~.1f native calls wait for one of the ~b dirty ~ts schedulers: ~ts sets how many there are",
       [Mean, Count, string:uppercase(atom_to_list(Kind)),
        case Kind of cpu -> "+SDcpu"; io -> "+SDio" end])
     || #{kind := Kind, queue := Mean, count := Count} <- Dirty, Mean >= 1].

%% Shares of the time that the schedulers did not sleep; of one that sleeps most of the time
%% nothing is said.
states(#{threads := Threads}) ->
    [f("~ts of what schedulers do is ~ts", [percent(Share), What])
     || #{kind := scheduler, states := States} <- Threads,
        Awake <- [1 - proplists:get_value(sleep, States, 0.0)], Awake >= 0.05,
        {State, Part} <- States, Share <- [Part / Awake],
        {S, Limit, What} <- rules(), S =:= State, Share >= Limit]
        ++ [f("garbage of large heaps is collected by dirty schedulers, ~ts of a processor: some "
              "process has much data, and lets it be copied often", [percent(Whole)])
            || #{kind := dirty_cpu_scheduler, states := States, count := Count} <- Threads,
               Whole <- [Count * lists:sum([Part || {State, Part} <- States,
                                                    State =:= gc orelse State =:= gc_full])],
               Whole >= 0.1].

rules() ->
    [{gc, 0.2, "garbage collection: large heaps, or many short-lived terms, which --mode memory "
      "shows by function"},
     {gc_full, 0.1, "full garbage collection: large heaps"},
     {aux, 0.1, "auxiliary work: timers, memory given back to other schedulers, tracing"},
     {check_io, 0.1, "looking for input and output, not doing it"},
     {port, 0.3, "ports: sockets of gen_tcp, drivers, external programs"},
     {ets, 0.2, "tables of ets"},
     {send, 0.2, "sending messages"},
     {timers, 0.1, "timers"},
     {other, 0.3, "not accounted: waiting busily for work (+sbwt), or no processor was there"}].

polling(#{threads := Threads}) ->
    [f("the ~b poll threads look for input and output ~ts of their time: +IOp makes more poll sets",
       [Count, percent(Share)])
     || #{kind := poll, count := Count, states := States} <- Threads,
        {check_io, Share} <- States, Share >= 0.5].

moves(#{moves := #{scheduled := In, moved := Moved}}) when In >= 200, Moved * 5 >= In ->
    [f("processes that run often change their scheduler ~ts of the times they are scheduled in: "
       "what they had in its caches is lost", [percent(Moved / In)])];
moves(_) ->
    [].

contended(#{locks := Locks, ns := Ns}) when is_list(Locks) ->
    [f("lock ~ts: ~ts of ~b tries collided, ~ts were waited for it in all",
       [Name, percent(Collisions / Tries), Tries, erlane_prof_text:amount(Waited, nanoseconds)])
     || #{name := Name, tries := Tries, collisions := Collisions, ns := Waited} <- Locks,
        Tries >= 1000, Collisions * 20 >= Tries orelse Waited * 100 >= Ns, Collisions > 0];
contended(_) ->
    [].

percent(Part) -> [integer_to_list(round(100 * Part)), $%].

f(Format, Args) -> io_lib:format(Format, Args).

%%% As text and JSON

%% @doc Tables, and what stands out; UTF-8.
-spec format(view()) -> iodata().
format(#{node := Node, otp := Otp, ns := Ns, schedulers := Schedulers, dirty := Dirty,
         threads := Threads, switches_s := Switches, moves := Moves, locks := Locks,
         notes := Notes} = View) ->
    [atom_to_binary(Node), ", OTP ", Otp, ": schedulers, ",
     erlane_prof_text:amount(Ns, nanoseconds), $\n,
     [["note: ", Note, $\n] || Note <- Notes], $\n,
     case findings(View) of
         [] -> "nothing stands out\n";
         Found -> [["* ", Text, $\n] || Text <- Found]
     end, $\n,
     erlane_prof_text:table(
       [["busy", "queue", "most", "scheduler"]
        | [[util(Util), io_lib:format("~.1f", [Mean]), integer_to_list(Max),
            [integer_to_list(Id), [" (offline)" || not On]]]
           || #{id := Id, online := On, util := Util, queue := Mean, most := Max} <- Schedulers,
              On orelse Mean > 0]
        ++ [[util(Util), io_lib:format("~.1f", [Mean]), integer_to_list(Max),
             ["dirty ", atom_to_list(Kind), ", ", integer_to_list(Count)]]
           || #{kind := Kind, count := Count, util := Util, queue := Mean, most := Max}
                  <- Dirty]]),
     $\n, states_table(Threads), $\n,
     erlane_prof_text:amount(Switches, count), " context switches a second",
     case Moves of
         #{scheduled := In, moved := Moved} when In > 0 ->
             io_lib:format("; of ~b of processes that run often ~ts were on another scheduler "
                           "than before", [In, percent(Moved / In)]);
         undefined -> "; how processes move is not known, as somebody traces";
         _ -> ""
     end, $\n,
     case Locks of
         none -> "locks are not counted by this emulator\n";
         _ -> [$\n, erlane_prof_text:table(
                      [["waited", "collisions", "tries", "lock"]
                       | [[erlane_prof_text:amount(W, nanoseconds), integer_to_list(C),
                           integer_to_list(T), atom_to_list(Name)]
                          || #{name := Name, tries := T, collisions := C, ns := W} <- Locks]])]
     end].

util(undefined) -> "-";
util(Util) -> percent(Util).

states_table(Threads) ->
    Names = lists:usort([State || #{states := States} <- Threads, {State, _} <- States]),
    erlane_prof_text:table(
      [[atom_to_list(Name) || Name <- Names] ++ ["threads"]
       | [[case lists:keyfind(Name, 1, States) of
               {_, Share} -> io_lib:format("~.1f%", [100.0 * Share]);
               false -> "-"
           end || Name <- Names] ++ [[atom_to_list(Kind), ", ", integer_to_list(Count)]]
          || #{kind := Kind, count := Count, states := States} <- Threads]]).

%% @doc One object, and a newline.
-spec json(view()) -> iodata().
json(#{threads := Threads} = View) ->
    Absent = fun(undefined) -> null; (none) -> null; (Value) -> Value end,
    Plain = fun(List) -> [maps:map(fun(_, V) -> Absent(V) end, Entry) || Entry <- List] end,
    Object = View#{findings => findings(View),
                   threads := [T#{states := maps:from_list(States)}
                               || #{states := States} = T <- Threads],
                   schedulers := Plain(maps:get(schedulers, View)),
                   dirty := Plain(maps:get(dirty, View)), moves := Absent(maps:get(moves, View)),
                   locks := Absent(maps:get(locks, View))},
    [erlane_prof_text:json(Object), $\n].
