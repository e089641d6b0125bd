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
%% All that is done is paid for out of a purse (erlane_prof_purse). When it is empty there are fewer
%% looks. What is found and what was seen are in erlane_prof_finder and erlane_prof_rows.
-module(erlane_prof_sampler).

-export([prepare/1, work/2]).

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
-define(ROW_NS, 5000).
-define(CREDIT, 2).
-define(GRACE_MS, 2000).

%% What is known of a process. `last': when it was looked at; `reds': its reductions then;
%% `fresh': `stack' is that of these reductions. `asker' is under way.
-record(p, {last, reds, fresh = false, who, stack = 0, idle = 0, asker = none}).

-record(s, {to, guard, undo, clean, limit, period, began, next, purse, finder, rows, place = 0.0,
            known = #{}, hot = [], warm = [], pending = #{}, flushed, credit = ?CREDIT, stale = 0,
            late = 0, silent = 0, held = 0, asks = 0, looks = 0}).

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
    Purse = erlane_prof_purse:new(Now, For, Online, erlane_prof_asker:cost(),
                                  erlane_prof_finder:walk(Procs)),
    loop(#s{to = To, guard = Guard, undo = Undo, clean = Clean, limit = Events,
            period = 1000000000 div Hz, began = Now, next = Now, flushed = Now, purse = Purse,
            finder = erlane_prof_finder:new(Now, Procs), rows = erlane_prof_rows:new()}).

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
        case erlane_prof_rows:events(S#s.rows) >= S#s.limit of
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
    case erlane_prof_purse:left(Now, S0#s.purse) of
        Left when Left =< 0 ->
            %% Not before there is something in it again.
            Wait = erlane_prof_purse:wait(-Left, S0#s.purse),
            S0#s{next = Now + max(jitter(Period), Wait)};
        Left ->
            S1 = flush(Now, spend_idle(Now, overdue(Now, S0))),
            Then = pass(Now + ?PASS_NS + rand:uniform(?PASS_NS)),
            S2 = look_at_hot(Then, Left, S1#s{place = place()}),
            S2#s{purse = erlane_prof_purse:spend(took(Now, S0, S2), S2#s.purse),
                 next = Now + jitter(Period)}
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
took(Since, #s{rows = Untold} = Before, #s{looks = Looks} = After) ->
    Found = erlane_prof_finder:cost(Before#s.finder, After#s.finder),
    Told = case After#s.flushed =:= Before#s.flushed of
               true -> 0;
               false -> (erlane_prof_rows:size(Untold) + 10) * ?ROW_NS
           end,
    Most = ?TICK_NS + (Looks - Before#s.looks) * ?LOOK_NS + Found + Told,
    min(Most, erlang:monotonic_time(nanosecond) - Since).

%% Neither in step with timers of the node, nor more often.
jitter(Period) ->
    Period div 2 + rand:uniform(Period).

%% All that did something lately, or as many of them as there is money for, in turns.
look_at_hot(Now, Left, #s{hot = Hot} = S) ->
    look_at_hot(Now, Left, Hot, [], S#s{hot = []}).

look_at_hot(Now, Left, [Pid | Hot], Done, S) when Left > 0 ->
    case S#s.known of
        #{Pid := P} ->
            {Temper, S1} = look(Now, Pid, P, S),
            Cost = paid(S, S1),
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

paid(#s{asks = Before}, #s{asks = After, purse = Purse}) ->
    ?LOOK_NS + (After - Before) * erlane_prof_purse:cost(Purse).

%% What there is money for: who is new, then some of those that sleep.
spend_idle(Now, S) ->
    case for_idle(Now, S) of
        Left when Left > 0 ->
            Began = erlang:monotonic_time(nanosecond),
            S1 = find(Now, Left, S),
            After = erlang:monotonic_time(nanosecond),
            S2 = look_at_warm(Now, Left - min(After - Began, Left div 2), S1#s.warm, [], S1),
            S2#s{purse = erlane_prof_purse:spend_idle(took(Began, S, S2), S2#s.purse)};
        _ ->
            S
    end.

%% Until all have been seen once there is nothing better to do.
for_idle(Now, #s{finder = Finder, purse = Purse}) ->
    case erlane_prof_finder:is_first_round(Finder) of
        true -> erlane_prof_purse:left(Now, Purse);
        false -> erlane_prof_purse:idle(Now, Purse)
    end.

find(Now, Left, #s{known = Known, finder = Finder} = S) ->
    {Found, More} = erlane_prof_finder:find(Now, Left, Known, Finder),
    lists:foldl(fun({Since, Pids}, Acc) -> join(Since, Pids, Acc) end, S#s{finder = More}, Found).

join(Since, [Pid | Pids], #s{known = Known, pending = Pending, guard = Guard} = S) ->
    case is_map_key(Pid, Known) orelse is_map_key(Pid, Pending) orelse Pid =:= Guard
        orelse Pid =:= self() of
        true -> join(Since, Pids, S);
        false -> join(Since, Pids, S#s{known = Known#{Pid => #p{last = Since}},
                                       hot = [Pid | S#s.hot]})
    end;
join(_Since, [], S) ->
    S.

look_at_warm(Now, Left, [Pid | Warm], Done, S) when Left > 0 ->
    case S#s.known of
        #{Pid := P} ->
            {Temper, S1} = look(Now, Pid, P#p{idle = ?SLEEPY}, S),
            Cost = paid(S, S1),
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
    case erlane_prof_purse:can_ask(Now, S#s.purse) of
        true ->
            S1 = asked(Now, Pid, waiting, P1, S),
            {temper(Idle), S1#s{purse = erlane_prof_purse:asked_idle(S1#s.purse)}};
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
        purse = erlane_prof_purse:asked(S#s.purse),
        pending = (S#s.pending)#{Asker => {Pid, placed(State, S), Now - Last, Now}}}.

placed(runnable, #s{place = Place}) when Place > 0 -> {runnable, Place};
placed(State, _S) -> State.

%% Counts a look with what is known.
count(Now, State, Pid, #p{last = Last} = P, S) ->
    row(State, P, Now - Last, S#s{known = (S#s.known)#{Pid := P#p{last = Now}}}).

row(State, #p{who = Who0, stack = Stack}, Ns, #s{rows = Rows} = S) ->
    Who = case Who0 of
              undefined -> {<<"[unknown]">>, undefined};
              {guess, Label} -> {Label, undefined};
              _ -> Who0
          end,
    S#s{rows = erlane_prof_rows:add(State, Who, Stack, Ns, Rows)}.

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
    {Who, Rows} = case Who0 of
                      known -> {P#p.who, S#s.rows};
                      _ -> erlane_prof_rows:who(Who0, S#s.rows)
                  end,
    {Stack, More} = erlane_prof_rows:stack(Frames, Rows),
    P1 = P#p{who = Who, stack = Stack, fresh = false},
    {case Reds of
         {_, N} -> P1#p{reds = N, fresh = true};
         undefined -> P1
     end, S#s{rows = More}};
learn(P, _, S) ->
    {P, S}.

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

hand_over(#s{rows = Rows, to = To} = S) ->
    {List, Stacks} = erlane_prof_rows:untold(Rows),
    case erlane_prof_agent:send(To, {rows, self(), List, Stacks, stats(S)}) of
        ok -> S#s{rows = erlane_prof_rows:told(Rows), credit = S#s.credit - 1};
        _ -> S
    end.

stats(#s{began = Began, purse = Purse, rows = Rows} = S) ->
    #{events => erlane_prof_rows:events(Rows), lost => erlane_prof_rows:lost(Rows),
      stale => S#s.stale, late => S#s.late, silent => S#s.silent, held_ms => S#s.held div 1000000,
      unknown => erlane_prof_finder:unknown(S#s.finder), looks => S#s.looks, asks => S#s.asks,
      spent_ns => erlane_prof_purse:spent(Purse),
      ns => erlang:monotonic_time(nanosecond) - Began}.

-spec finish(time | events, #s{}) -> no_return().
finish(Why, S0) ->
    Deadline = erlang:monotonic_time(millisecond) + ?GRACE_MS,
    Now = erlang:monotonic_time(nanosecond),
    S = last(overdue(Now, held(Now, S0)), Deadline),
    returned(S, Deadline),
    exit({done, Why, stats(S)}).

%% The connection may be so busy that it takes nothing at the moment.
last(S0, Deadline) ->
    S = hand_over(S0),
    case erlane_prof_rows:size(S#s.rows) > 0
        andalso erlang:monotonic_time(millisecond) < Deadline of
        true -> receive after 20 -> last(S, Deadline) end;
        false -> S
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
