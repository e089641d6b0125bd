%% SPDX-License-Identifier: Apache-2.0
%% @doc What processes do, and what they wait for, by looking at them many times a second. Runs on
%% the node that is looked at, as the worker of erlane_prof_agent.
%%
%% The state of a process is read in place. Its stack it tells itself, so that is asked for by an
%% asker, a process with a deadline, and not again of one that has slept since: its stack is known.
%% Each look stands for the time since the look before at the same process, whatever that was;
%% so processes that do something can be looked at often and others seldom, and the sums are
%% right all the same.
%%
%% All that is done is paid for out of a purse that fills with time. When it is empty there are
%% fewer looks.
-module(erlane_prof_sampler).

-export([prepare/1, work/2]).

%% Of the time of all schedulers that are online: what there is to begin with, of the whole
%% duration, and what comes with each second. Together it is below one percent.
-define(FIRST_SHARE, 0.002).
-define(SHARE, 0.006).
%% So many processes are known one by one. Where there are more, only those that move.
-define(KNOWN, 20000).
-define(SLICE, 4000).
%% A process that slept for so many looks is looked at less often.
-define(SLEEPY, 50).
-define(DEADLINE_NS, 100000000).
%% One that waits for a scheduler has longer, as it will answer.
-define(RUNNABLE_NS, 2000000000).
-define(FLUSH_NS, 500000000).
-define(PASS_NS, 10000).
%% What a part of the work takes at the most if nothing comes between.
-define(TICK_NS, 40000).
-define(LOOK_NS, 1000).
-define(SWEEP_NS, 600).
-define(LIST_NS, 60).
-define(ROW_NS, 5000).
-define(STACKS, 20000).
-define(CREDIT, 2).
-define(GRACE_MS, 2000).

%% What is known of a process. `last': when it was looked at; `reds': its reductions then;
%% `fresh': `stack' is that of these reductions. `asker' is under way.
-record(p, {last, reds, fresh = false, who, stack = 0, idle = 0, asker = none}).

-record(s, {to, guard, undo, clean, limit, period, procs, began, next, spent = 0, spent_idle = 0,
            spent_asking = 0, place = 0.0, first, rate,
            ask_ns, known = #{}, hot = [], warm = [], listed,
            left = [], slice = [], round = 0, swept = 0,
            pending = #{}, stacks = #{}, fresh = [], rows = #{},
            who = #{}, flushed, credit = ?CREDIT, events = 0, lost = 0, stale = 0, late = 0,
            silent = 0, held = 0, unknown = 0, asks = 0, looks = 0}).

%% @doc Nothing has to be changed on the node for this mode but what the agent changes.
-spec prepare(erlane_prof_agent:options()) -> {ok, [erlane_prof_agent:undo()], none}.
prepare(_Options) ->
    {ok, [], none}.

%% @doc Samples until told to finish.
-spec work(none, map()) -> no_return().
work(none, #{to := To, guard := Guard, undo := Undo, clean := Clean, events := Events, hz := Hz,
             for := For} = Options) ->
    Now = erlang:monotonic_time(nanosecond),
    Online = erlang:system_info(schedulers_online),
    Procs = case maps:get(procs, Options, all) of
                all -> all;
                List -> [Pid || Pid <- [pid(P) || P <- List], is_pid(Pid)]
            end,
    AskNs = erlane_prof_asker:cost(),
    loop(#s{to = To, guard = Guard, undo = Undo, clean = Clean, limit = Events, procs = Procs,
            period = 1000000000 div Hz, began = Now, next = Now, listed = Now, flushed = Now,
            first = round(?FIRST_SHARE * Online * For * 1000000), rate = ?SHARE * Online,
            ask_ns = AskNs}).

pid(Pid) when is_pid(Pid) -> Pid;
pid(Name) -> whereis(Name).

loop(#s{guard = Guard, next = Next} = S) ->
    Wait = max(0, Next - erlang:monotonic_time(nanosecond)),
    receive
        {answer, Asker, Answer} ->
            loop(answered(Asker, Answer, S));
        {'EXIT', Guard, _} ->
            (S#s.clean)(S#s.undo),
            exit(shutdown);
        {'EXIT', Asker, _} ->
            loop(answered(Asker, none, S));
        {undo, Undo} ->
            loop(S#s{undo = Undo});
        credit ->
            loop(S#s{credit = S#s.credit + 1});
        finish ->
            finish(time, S)
    after (Wait + 500000) div 1000000 ->
        case S#s.events >= S#s.limit of
            true -> finish(events, S);
            false -> loop(tick(S))
        end
    end.

%%% A tick

%% Timers go off together, at most once a millisecond. Who was woken with us is not to be seen as
%% always busy, nor as waiting for a scheduler: it has its turn first, we do other things, and
%% then some time goes by.
tick(#s{period = Period} = S) ->
    true = erlang:yield(),
    Now = erlang:monotonic_time(nanosecond),
    S0 = held(Now, S),
    case purse(Now, S0) of
        Left when Left =< 0 ->
            %% Not before there is something in it again.
            S0#s{next = Now + max(jitter(Period), round(-Left / S0#s.rate))};
        Left ->
            S1 = flush(Now, spend_idle(Now, overdue(Now, S0))),
            Then = pass(Now + ?PASS_NS + rand:uniform(?PASS_NS)),
            S2 = look_at_hot(Then, Left, S1#s{place = place()}),
            S2#s{spent = S2#s.spent + took(Now, S0, S2), next = Now + jitter(Period)}
    end.

%% Nobody runs on our scheduler while we look: but for us one of those in its queue would. The
%% chance that it is a certain one of all that wait for a scheduler.
place() ->
    Queues = erlang:statistics(run_queue_lengths),
    Id = erlang:system_info(scheduler_id),
    case Id =< length(Queues) andalso lists:nth(Id, Queues) > 0 of
        true -> 1 / lists:sum(Queues);
        false -> 0.0
    end.

%% A native call keeps the timers of its scheduler, and those who are in its queue.
held(Now, #s{next = Next, held = Held} = S) when Now - Next > ?DEADLINE_NS ->
    S#s{held = Held + Now - Next};
held(_Now, S) ->
    S.

pass(Until) ->
    case erlang:monotonic_time(nanosecond) of
        Now when Now >= Until -> Now;
        _ -> pass(Until)
    end.

%% Without the stacks, which are paid one by one. On a machine that has no processor for us the
%% clock goes on, so it is not more than what the work can have taken.
took(Since, Before, #s{looks = Looks} = After) ->
    Listed = case After#s.listed =:= Before#s.listed of
                 true -> 0;
                 false -> erlang:system_info(process_count) * ?LIST_NS
             end,
    Swept = (After#s.swept - Before#s.swept) * ?SWEEP_NS,
    Rows = case After#s.flushed =:= Before#s.flushed of
               true -> 0;
               false -> (map_size(Before#s.rows) + 10) * ?ROW_NS
           end,
    Most = ?TICK_NS + (Looks - Before#s.looks) * ?LOOK_NS + Listed + Swept + Rows,
    min(Most, erlang:monotonic_time(nanosecond) - Since).

%% Neither in step with timers of the node, nor more often.
jitter(Period) ->
    Period div 2 + rand:uniform(Period).

purse(Now, #s{first = First, rate = Rate, began = Began, spent = Spent}) ->
    First + round(Rate * (Now - Began)) - Spent.

%% A third of it is for finding processes and looking at those that sleep, a fourth for their
%% stacks. Until all have been seen once there is nothing better to do.
idle_purse(Now, #s{round = 1, left = [_ | _]} = S) ->
    purse(Now, S);
idle_purse(Now, #s{spent_idle = Spent} = S) ->
    purse(Now, S#s{spent = 0}) div 3 - Spent.

asking_purse(Now, #s{spent_asking = Spent} = S) ->
    purse(Now, S#s{spent = 0}) div 4 - Spent.

%% All that did something lately, or as many of them as there is money for, in turns.
look_at_hot(Now, Left, #s{hot = Hot} = S) ->
    look_at_hot(Now, Left, Hot, [], S#s{hot = []}).

look_at_hot(Now, Left, [Pid | Hot], Done, S) when Left > 0 ->
    case S#s.known of
        #{Pid := P} ->
            {Temper, S1} = look(Now, Pid, P, S),
            Cost = 1000 + (S1#s.asks - S#s.asks) * S#s.ask_ns,
            case Temper of
                hot -> look_at_hot(Now, Left - Cost, Hot, [Pid | Done], S1);
                warm -> look_at_hot(Now, Left - Cost, Hot, Done,
                                    S1#s{warm = [Pid | S1#s.warm]});
                gone -> look_at_hot(Now, Left - Cost, Hot, Done, S1)
            end;
        #{} ->
            look_at_hot(Now, Left, Hot, Done, S)
    end;
look_at_hot(_Now, _Left, Hot, Done, S) ->
    %% Those that had no turn are the first the next time.
    S#s{hot = S#s.hot ++ Hot ++ lists:reverse(Done)}.

%% What there is money for: who is new, then some of those that sleep.
spend_idle(Now, S) ->
    case idle_purse(Now, S) of
        Left when Left > 0 ->
            Began = erlang:monotonic_time(nanosecond),
            S1 = find(Now, Left, S),
            After = erlang:monotonic_time(nanosecond),
            S2 = look_at_warm(Now, Left - min(After - Began, Left div 2), S1#s.warm, [], S1),
            S2#s{spent_idle = S2#s.spent_idle + took(Began, S, S2)};
        _ ->
            S
    end.

look_at_warm(Now, Left, [Pid | Warm], Done, S) when Left > 0 ->
    case S#s.known of
        #{Pid := P} ->
            {Temper, S1} = look(Now, Pid, P#p{idle = ?SLEEPY}, S),
            Cost = 1000 + (S1#s.asks - S#s.asks) * S#s.ask_ns,
            case Temper of
                hot -> look_at_warm(Now, Left - Cost, Warm, Done, S1#s{hot = [Pid | S1#s.hot]});
                warm -> look_at_warm(Now, Left - Cost, Warm, [Pid | Done], S1);
                gone -> look_at_warm(Now, Left - Cost, Warm, Done, S1)
            end;
        #{} ->
            look_at_warm(Now, Left, Warm, Done, S)
    end;
look_at_warm(_Now, _Left, Warm, Done, S) ->
    S#s{warm = Warm ++ lists:reverse(Done)}.

%%% Who there is

%% Whoever has begun since the last list has lived about as long as that is ago.
find(_Now, _Left, #s{procs = Procs, known = Known} = S) when is_list(Procs) ->
    case map_size(Known) of
        0 -> join(S#s.listed, Procs, S#s{procs = done});
        _ -> S
    end;
find(_Now, _Left, #s{procs = done} = S) ->
    S;
find(Now, Left, #s{listed = Listed} = S) ->
    case erlang:system_info(process_count) of
        N when N > ?KNOWN ->
            sweep(Now, Left, S);
        N when 2 * N * ?LIST_NS < Left; Listed =:= S#s.began ->
            S1 = join(Listed, erlang:processes(), S#s{left = [], slice = [], unknown = 0}),
            S1#s{listed = Now};
        _ ->
            S
    end.

join(Since, [Pid | Pids], #s{known = Known, pending = Pending, guard = Guard} = S) ->
    case is_map_key(Pid, Known) orelse is_map_key(Pid, Pending) orelse Pid =:= Guard
        orelse Pid =:= self() of
        true -> join(Since, Pids, S);
        false -> join(Since, Pids, S#s{known = Known#{Pid => #p{last = Since}},
                                       hot = [Pid | S#s.hot]})
    end;
join(_Since, [], S) ->
    S.

%% Too many to know. The first time round those are found that do something just now; after that
%% a slice of them is looked at in two ticks, and who has moved is known then.
sweep(Now, Left, #s{slice = Slice, left = [], round = Round, known = Known} = S) ->
    S1 = moved(Now, Slice, S),
    case Left > ?LIST_NS * erlang:system_info(process_count) orelse Round =:= 0 of
        true -> S1#s{left = erlang:processes(), round = Round + 1, listed = Now,
                     unknown = max(0, erlang:system_info(process_count) - map_size(Known))};
        false -> S1
    end;
sweep(Now, Left, #s{slice = Slice, left = Pids, round = Round, known = Known} = S) ->
    S1 = moved(Now, Slice, S),
    Size = min(max(1, Left div ?SWEEP_NS), ?SLICE),
    {Turn, Rest} = split(Size, Pids, []),
    {Busy, Next} = lists:foldl(fun(Pid, {B, N} = Acc) ->
                                       case is_map_key(Pid, Known) of
                                           true -> Acc;
                                           false -> first_look(Pid, Round, B, N)
                                       end
                               end, {[], []}, Turn),
    S2 = join(Now, Busy, S1),
    S2#s{left = Rest, slice = Next, swept = S2#s.swept + Size}.

split(N, [Pid | Pids], Turn) when N > 0 -> split(N - 1, Pids, [Pid | Turn]);
split(_N, Rest, Turn) -> {Turn, Rest}.

moved(Now, Slice, S) ->
    Moved = [Pid || {Pid, Reds} <- Slice, process_info(Pid, reductions) =/= {reductions, Reds}],
    join(Now, Moved, S#s{slice = [], swept = S#s.swept + length(Slice)}).

first_look(Pid, Round, Busy, Next) ->
    case process_info(Pid, status) of
        {_, waiting} when Round =:= 1 ->
            {Busy, Next};
        {_, waiting} ->
            case process_info(Pid, reductions) of
                {_, Reds} -> {Busy, [{Pid, Reds} | Next]};
                undefined -> {Busy, Next}
            end;
        undefined -> {Busy, Next};
        _ -> {[Pid | Busy], Next}
    end.

%%% A look

look(Now, Pid, #p{asker = none} = P, S0) ->
    S = S0#s{looks = S0#s.looks + 1},
    case process_info(Pid, status) of
        undefined ->
            {gone, S#s{known = maps:remove(Pid, S#s.known)}};
        {_, waiting} ->
            case process_info(Pid, reductions) of
                undefined -> {gone, S#s{known = maps:remove(Pid, S#s.known)}};
                {_, Reds} -> sleeps(Now, Pid, Reds, P, S)
            end;
        {_, Status} ->
            {hot, asked(Now, Pid, state(Status), P#p{idle = 0}, S)}
    end;
look(Now, Pid, #p{asker = late} = P, S0) ->
    S = S0#s{looks = S0#s.looks + 1},
    case process_info(Pid, status) of
        undefined -> {gone, S#s{known = maps:remove(Pid, S#s.known)}};
        {_, Status} -> {hot, count(Now, unanswered(Status), Pid, P, S)}
    end;
look(_Now, _Pid, _P, S) ->
    {hot, S}.

%% Who runs and has not answered is in a native call, most likely: it will answer when that ends.
%% Another one, or its asker, is in the queue of a scheduler that is.
unanswered(waiting) -> waiting;
unanswered(running) -> no_answer;
unanswered(Status) -> state(Status).

state(runnable) -> runnable;
state(suspended) -> suspended;
state(garbage_collecting) -> gc;
state(_RunningOrExiting) -> running.

%% Who has not moved is where it was.
sleeps(Now, Pid, Reds, #p{reds = Reds, fresh = true, idle = Idle} = P, S) ->
    {temper(Idle + 1), count(Now, waiting, Pid, P#p{idle = Idle + 1}, S)};
sleeps(Now, Pid, Reds, #p{reds = Before, idle = Idle0} = P, S) ->
    Idle = case Before of
               Reds -> Idle0 + 1;
               undefined -> ?SLEEPY + 1;
               _ -> 0
           end,
    P1 = P#p{reds = Reds, fresh = false, idle = Idle},
    case asking_purse(Now, S) > S#s.ask_ns of
        true ->
            S1 = asked(Now, Pid, waiting, P1, S),
            {temper(Idle), S1#s{spent_asking = S1#s.spent_asking + S#s.ask_ns}};
        false ->
            {temper(Idle), count(Now, waiting, Pid, guessed(Pid, P1), S#s{stale = S#s.stale + 1})}
    end.

%% One that is not asked has the name that can be read in place.
guessed(Pid, #p{who = undefined} = P) ->
    P#p{who = {guess, erlane_prof_asker:guess(Pid)}};
guessed(_Pid, P) ->
    P.

temper(Idle) when Idle > ?SLEEPY -> warm;
temper(_) -> hot.

asked(Now, Pid, State, #p{last = Last, who = Who} = P, S) ->
    Asker = erlane_prof_asker:ask(Pid, case Who of
                                           undefined -> unknown;
                                           {guess, _} -> unknown;
                                           _ -> known
                                       end),
    S#s{known = (S#s.known)#{Pid := P#p{asker = Asker, last = Now}}, asks = S#s.asks + 1,
        spent = S#s.spent + S#s.ask_ns,
        pending = (S#s.pending)#{Asker => {Pid, placed(State, S), Now - Last, Now}}}.

placed(runnable, #s{place = Place}) when Place > 0 -> {runnable, Place};
placed(State, _S) -> State.

%% Counts a look with what is known.
count(Now, State, Pid, #p{last = Last} = P, S) ->
    row(State, P, Now - Last, S#s{known = (S#s.known)#{Pid := P#p{last = Now}}}).

row({runnable, Place}, P, Ns, S) ->
    Running = round(Place * Ns),
    row(running, P, Running, 0, row(runnable, P, Ns - Running, 1, S));
row(State, P, Ns, S) ->
    row(State, P, Ns, 1, S).

row(State, #p{who = Who0, stack = Stack}, Ns, N, #s{rows = Rows, events = Events} = S) ->
    Who = case Who0 of
              undefined -> {<<"[unknown]">>, undefined};
              {guess, Label} -> {Label, undefined};
              _ -> Who0
          end,
    Key = {Who, State, Stack},
    {Ns0, N0} = maps:get(Key, Rows, {0, 0}),
    S#s{rows = Rows#{Key => {Ns0 + Ns, N0 + N}}, events = Events + N}.

%%% Answers

answered(Asker, Answer, #s{pending = Pending, known = Known} = S) ->
    case Pending of
        #{Asker := {Pid, State, Ns, _}} ->
            S1 = S#s{pending = maps:remove(Asker, Pending)},
            case Known of
                #{Pid := P} -> answered(Pid, P, State, Ns, Answer, S1);
                #{} -> S1
            end;
        #{} ->
            S
    end.

%% The time of a late one was counted when it became late.
answered(Pid, P, _State, late, Answer, S) ->
    {P1, S1} = learn(P, Answer, S),
    S1#s{known = (S1#s.known)#{Pid := P1#p{asker = none}}};
answered(Pid, P, State, Ns, none, S) ->
    %% The asker was killed for its size: the name is in a dictionary that is too large.
    P1 = P#p{asker = none, who = case P#p.who of
                                     undefined -> {<<"[large dictionary]">>, undefined};
                                     {guess, Label} -> {Label, undefined};
                                     Who -> Who
                                 end},
    row(State, P1, Ns, S#s{known = (S#s.known)#{Pid := P1}});
answered(Pid, P, State, Ns, gone, S) ->
    row(State, P, Ns, S#s{known = maps:remove(Pid, S#s.known)});
answered(Pid, P, State, Ns, {_, _, Status, _} = Answer, S) ->
    {P1, S1} = learn(P, Answer, S),
    Late = case State =/= waiting andalso Status =:= waiting of
               true -> 1;
               false -> 0
           end,
    row(State, P1, Ns, S1#s{known = (S1#s.known)#{Pid := P1#p{asker = none}},
                            late = S1#s.late + Late}).

learn(P, {Who0, Frames, _Status, Reds}, S) ->
    {Who, S1} = who(Who0, P, S),
    {Stack, S2} = stack(Frames, S1),
    P1 = P#p{who = Who, stack = Stack, fresh = false},
    case Reds of
        {_, N} -> {P1#p{reds = N, fresh = true}, S2};
        undefined -> {P1, S2}
    end;
learn(P, _, S) ->
    {P, S}.

%% Terms that many processes share are kept once.
who(known, #p{who = Who}, S) ->
    {Who, S};
who(Who, _P, #s{who = All} = S) ->
    case All of
        #{Who := Same} -> {Same, S};
        #{} -> {Who, S#s{who = All#{Who => Who}}}
    end.

stack(Frames, #s{stacks = Stacks} = S) ->
    case Stacks of
        #{Frames := Id} ->
            {Id, S};
        #{} when map_size(Stacks) >= ?STACKS ->
            {0, S#s{lost = S#s.lost + 1}};
        #{} ->
            Id = map_size(Stacks) + 1,
            {Id, S#s{stacks = Stacks#{Frames => Id}, fresh = [{Id, Frames} | S#s.fresh]}}
    end.

%% Their time is counted now, and again at each look until they answer.
overdue(Now, #s{pending = Pending} = S) ->
    maps:fold(fun(Asker, {Pid, _State, Ns, At}, Acc) when Ns =/= late, Now - At > ?DEADLINE_NS ->
                      overdue(Now, Asker, Pid, Ns, At, process_info(Pid, status), Acc);
                 (_, _, Acc) ->
                      Acc
              end, S, Pending).

overdue(Now, _Asker, _Pid, _Ns, At, {_, runnable}, S) when Now - At < ?RUNNABLE_NS ->
    S;
overdue(_Now, Asker, Pid, Ns, At, {_, Status}, #s{known = Known, pending = Pending} = S)
  when is_map_key(Pid, Known) ->
    #{Pid := P} = Known,
    State = unanswered(Status),
    Silent = case State of
                 no_answer -> 1;
                 _ -> 0
             end,
    row(State, P, Ns, S#s{known = Known#{Pid := P#p{asker = late}},
                          pending = Pending#{Asker := {Pid, State, late, At}},
                          silent = S#s.silent + Silent});
overdue(_Now, _Asker, _Pid, _Ns, _At, _Gone, S) ->
    S.

%%% To the caller

flush(Now, #s{flushed = Flushed} = S) when Now - Flushed < ?FLUSH_NS -> S;
flush(_Now, #s{credit = 0} = S) -> S;
flush(Now, S) -> hand_over(S#s{flushed = Now}).

hand_over(#s{rows = Rows, fresh = Stacks, to = To} = S) ->
    List = [{Proc, App, State, Stack, [Ns, N]}
            || {{{Proc, App}, State, Stack}, {Ns, N}} <- maps:to_list(Rows)],
    case erlane_prof_agent:send(To, {rows, self(), List, Stacks, stats(S)}) of
        ok -> S#s{rows = #{}, fresh = [], credit = S#s.credit - 1};
        _ -> S
    end.

stats(#s{began = Began, spent = Spent} = S) ->
    #{events => S#s.events, lost => S#s.lost, stale => S#s.stale, late => S#s.late,
      silent => S#s.silent, held_ms => S#s.held div 1000000,
      unknown => S#s.unknown, looks => S#s.looks, asks => S#s.asks,
      spent_ns => Spent, ns => erlang:monotonic_time(nanosecond) - Began}.

-spec finish(time | events, #s{}) -> no_return().
finish(Why, S0) ->
    Deadline = erlang:monotonic_time(millisecond) + ?GRACE_MS,
    Now = erlang:monotonic_time(nanosecond),
    S = last(overdue(Now, held(Now, S0)), Deadline),
    returned(S, Deadline),
    exit({done, Why, stats(S)}).

%% The connection may be so busy that it takes nothing at the moment.
last(S0, Deadline) ->
    case hand_over(S0) of
        #s{rows = Rows} = S when map_size(Rows) > 0 ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> receive after 20 -> last(S, Deadline) end;
                false -> S
            end;
        S ->
            S
    end.

%% What was handed over has arrived when it was answered.
returned(#s{credit = Credit}, _Deadline) when Credit >= ?CREDIT ->
    ok;
returned(#s{credit = Credit} = S, Deadline) ->
    receive
        credit -> returned(S#s{credit = Credit + 1}, Deadline)
    after max(0, Deadline - erlang:monotonic_time(millisecond)) ->
        ok
    end.
