%% SPDX-License-Identifier: Apache-2.0
%% @doc What the VM's own threads do: microstate accounting, wall time of schedulers, run queues,
%% how processes move between schedulers, locks. Runs on the node that is looked at, as the worker
%% of erlane_prof_agent.
%%
%% Counters are read at the beginning and from time to time, and never reset, as others may read
%% them, too.
-module(erlane_prof_threads).

-export([prepare/1, undo/1, work/2, locks/1]).

-define(LOOK_MS, 50).
-define(FLUSH_MS, 500).
%% So many processes, of those that run often, are followed from scheduler to scheduler.
-define(FOLLOWED, 50).
-define(SLICE, 20000).
%% Looks at one that runs, a millisecond apart.
-define(TRIES, 10).
-define(EVENTS, 20000).
-define(FLAGS, [running, scheduler_id]).

-record(t, {to, guard, clean, undo, first, next, queues, followed, moves, credit = 1}).

%% @doc Switches microstate accounting on, if it is off, and follows some processes, if nobody else
%% traces.
-spec prepare(erlane_prof_agent:options()) -> {ok, [erlane_prof_agent:undo()], term()}.
prepare(#{worker := Worker}) ->
    Followed = follow(Worker),
    Undo = [{undo, ?MODULE, Followed} || Followed =/= none],
    case erlang:system_flag(microstate_accounting, true) of
        true -> {ok, Undo, Followed};
        false -> {ok, [{undo, ?MODULE, microstate_accounting} | Undo], Followed}
    end.

%% @doc Puts back what was changed.
-spec undo(term()) -> ok.
undo(microstate_accounting) ->
    _ = erlang:system_flag(microstate_accounting, false),
    ok;
undo({Session, Procs}) ->
    erlane_prof_session:clear(Session, Procs, ?FLAGS, []).

%% How processes move is told where they are scheduled in: of some that run often.
follow(Worker) ->
    try
        Session = erlane_prof_session:create(Worker, []),
        Procs = busy(lists:sublist(erlang:processes(), ?SLICE), Worker),
        _ = [try erlane_prof_session:process(Session, [Pid], true, [{tracer, Worker} | ?FLAGS])
             catch error:_ -> gone
             end || Pid <- Procs],
        {Session, Procs}
    catch
        throw:_ -> none
    end.

%% Those that run often, then those that have done most since they began. One that runs would have
%% to be waited for, for as long as a native call of it takes: it is taken when it does not.
busy(Pids, Worker) ->
    Ranked = lists:append([rank(Pid, ?TRIES) || Pid <- Pids, Pid =/= self(), Pid =/= Worker]),
    [Pid || {_, _, Pid} <- lists:sublist(lists:reverse(lists:sort(Ranked)), ?FOLLOWED)].

rank(Pid, Tries) ->
    case process_info(Pid, status) of
        {_, running} when Tries > 0 ->
            receive after 1 -> rank(Pid, Tries - 1) end;
        {_, runnable} ->
            [{2, 0, Pid}];
        {_, waiting} when Tries < ?TRIES ->
            [{2, 0, Pid}];
        {_, waiting} ->
            [{1, Reds, Pid} || {_, Reds} <- [process_info(Pid, reductions)]];
        _ ->
            []
    end.

%% @doc Looks until told to finish.
-spec work(term(), map()) -> no_return().
work(Followed, #{to := To, guard := Guard, clean := Clean, undo := Undo}) ->
    %% This one is counted by the process that wants it, and ends with it.
    _ = erlang:system_flag(scheduler_wall_time, true),
    Moves = case Followed of none -> none; _ -> {0, 0, #{}} end,
    loop(look(#t{to = To, guard = Guard, clean = Clean, undo = Undo, first = counters(),
                 next = erlang:monotonic_time(millisecond) + ?FLUSH_MS, queues = {0, [], []},
                 followed = Followed, moves = Moves})).

loop(#t{guard = Guard} = T) ->
    receive
        finish -> finish(T);
        credit -> loop(T#t{credit = T#t.credit + 1});
        {undo, Undo} -> loop(T#t{undo = Undo});
        {'EXIT', Guard, _} -> (T#t.clean)(T#t.undo), exit(shutdown);
        {trace, Pid, in, Scheduler, _} -> loop(scheduled(Pid, Scheduler, T));
        look -> loop(flush(look(T)));
        _ -> loop(T)
    end.

%%% What the VM has counted

counters() ->
    Wall = case erlang:statistics(scheduler_wall_time_all) of
               undefined -> [];
               List -> List
           end,
    #{msacc => [{{Type, Id}, Counters} || #{type := Type, id := Id, counters := Counters}
                                              <- erlang:statistics(microstate_accounting)],
      wall => lists:sort(Wall), locks => locks(erts_debug:lcnt_collect()),
      switches => element(1, erlang:statistics(context_switches)),
      at => erlang:monotonic_time(millisecond)}.

%% @doc Of each lock its name, how often it was tried to take, how often that collided, and how
%% long it was waited for in nanoseconds: from what `erts_debug:lcnt_collect/0' answers. Only a VM
%% that was built for it counts locks; another one answers with an atom, which gives `none'.
-spec locks(Collected :: term()) ->
          [{atom(), non_neg_integer(), non_neg_integer(), non_neg_integer()}] | none.
locks([_ | _] = Collected) -> [lock(Lock) || Lock <- proplists:get_value(locks, Collected, [])];
locks(_) -> none.

%% A lock is counted for each place that takes it, with a histogram unless it is switched off.
lock({Name, _Id, _Type, Places}) ->
    {Tries, Collisions, Ns} =
        lists:foldl(fun(Place, {Ts, Cs, Sum}) ->
                            {T, C, {S, N, _Waits}} = element(2, Place),
                            {Ts + T, Cs + C, Sum + S * 1000000000 + N}
                    end, {0, 0, 0}, Places),
    {Name, Tries, Collisions, Ns}.

%% Sums and maxima of the queues, each scheduler's and the two of the dirty ones.
look(#t{queues = {N, Sums, Most}} = T) ->
    _ = erlang:send_after(?LOOK_MS, self(), look),
    case without_us(erlang:system_info(scheduler_id),
                    erlang:statistics(run_queue_lengths_all)) of
        Lengths when length(Lengths) =:= length(Sums) ->
            T#t{queues = {N + 1, lists:zipwith(fun erlang:'+'/2, Sums, Lengths),
                          lists:zipwith(fun erlang:max/2, Most, Lengths)}};
        Lengths ->
            T#t{queues = {1, Lengths, Lengths}}
    end.

%% Who is first in the queue of our scheduler would run if we did not.
without_us(1, [Length | Lengths]) -> [max(0, Length - 1) | Lengths];
without_us(Id, [Length | Lengths]) -> [Length | without_us(Id - 1, Lengths)].

%%% Processes that are followed

scheduled(Pid, Scheduler, #t{moves = {N, Moved, Last}} = T) when N < ?EVENTS ->
    More = case Last of
               #{Pid := Other} when Other =/= Scheduler -> 1;
               #{} -> 0
           end,
    T#t{moves = {N + 1, Moved + More, Last#{Pid => Scheduler}}};
scheduled(_, _, #t{followed = none} = T) ->
    T;
scheduled(_, _, #t{followed = {Session, Procs}} = T) ->
    _ = [try erlane_prof_session:process(Session, [Pid], false, ?FLAGS)
         catch error:_ -> gone
         end || Pid <- Procs],
    T#t{followed = none}.

%%% To the caller

flush(#t{credit = Credit, next = Next} = T) ->
    case erlang:monotonic_time(millisecond) of
        Now when Now >= Next, Credit > 0 ->
            case erlane_prof_agent:send(T#t.to, {rows, self(), [], [], stats(T)}) of
                ok -> T#t{credit = Credit - 1, next = Now + ?FLUSH_MS};
                _ -> T#t{next = Now + ?FLUSH_MS}
            end;
        _ -> T
    end.

stats(#t{first = #{at := Began} = First, queues = {N, Sums, Most}, moves = Moves}) ->
    #{at := Now} = Last = counters(),
    #{events => N, lost => 0, ns => (Now - Began) * 1000000, first => First, last => Last,
      queues => {N, Sums, Most}, online => erlang:system_info(schedulers_online),
      schedulers => erlang:system_info(schedulers),
      dirty_cpu => erlang:system_info(dirty_cpu_schedulers),
      dirty_io => erlang:system_info(dirty_io_schedulers),
      moves => case Moves of
                   none -> none;
                   {In, Moved, _} -> {In, Moved}
               end}.

-spec finish(#t{}) -> no_return().
finish(T) ->
    exit({done, time, stats(T)}).
