%% SPDX-License-Identifier: Apache-2.0
%% @doc What looks. This module and erlane_prof_walk are all that runs on the node that is looked
%% at.
%%
%% They call kernel and stdlib alone, and no other module of the house, because they are sent to
%% nodes that have nothing of it. There it is five kinds of processes:
%%
%% - the guard waits for the end of the caller, even by the loss of its node, and then ends
%%   everything and removes the modules;
%% - the worker answers requests, always in time;
%% - the clerk asks the VM what it has to ask all its schedulers for, which takes as long as the
%%   longest native call. It has the counting of `scheduler_wall_time' switched on, which the VM
%%   ends with the last process that asked for it;
%% - the walker looks at processes, and has an asker for each that it has to ask itself; see
%%   erlane_prof_walk.
-module(erlane_prof_probe).

-export([start/2, sample/1]).

-export_type([options/0, sample/0, request/0]).

%% `lanes': a function of no argument that returns a list of maps, called if its module is
%% loaded. `procs': how many processes an answer has, 0 for none. `unload': modules to be removed
%% at the end.
-type options() :: #{lanes => {module(), atom()} | none, procs => non_neg_integer(),
                     sort => erlane_prof_walk:sort(), threads => boolean(), unload => [module()]}.
%% A request to the worker is `{Request, ReplyTo :: reference() (an alias)}'; the reply is
%% `{ReplyTo, Answer}'.
-type request() :: {sample, #{procs => non_neg_integer(), sort => erlane_prof_walk:sort()}}
                 | {process, pid()} | stop.
-type sample() ::
        #{at_ms := integer(), node := node(), otp := binary(), erts := binary(),
          uptime_ms := non_neg_integer(), schedulers := [map()], dirty := [map()],
          runq_total := non_neg_integer(), memory := #{atom() => non_neg_integer()},
          processes := non_neg_integer(), ports := non_neg_integer(), ets := non_neg_integer(),
          atoms := non_neg_integer(), limits := #{atom() => pos_integer()},
          reductions := non_neg_integer(), io_in := non_neg_integer(),
          io_out := non_neg_integer(), gc_count := non_neg_integer(),
          gc_words := non_neg_integer(), lanes := [map()], dist := [map()],
          procs := [erlane_prof_walk:proc()],
          procs_by := erlane_prof_walk:sort(), procs_looked := non_neg_integer(),
          procs_late := boolean(), counts_late := boolean(), threads := [map()],
          load := [float()], msacc := [map()], cost_us := non_neg_integer()}.

-define(WALK_MS, 400).
%% Walks that take care after one that got stuck.
-define(CAREFUL, 30).
-define(COUNTS_MS, 300).
-define(COUNTS, #{wall => #{}, memory => #{}, io_in => 0, io_out => 0, gc_count => 0,
                  gc_words => 0, msacc => []}).
-define(IDLE_THREADS, 2).
-define(THREADS_MS, 1900).

-record(worker, {options, clerk, asked, counts = ?COUNTS, wall = #{}, kernel = #{}, walker,
                 careful = 0, late = false, procs = {[], 0}}).
%%% The processes of the probe

%% @doc Starts a probe that ends with the caller's process. The pid is that of the worker.
-spec start(Caller :: pid(), options()) -> {ok, pid()} | {error, term()}.
start(Caller, Options) ->
    Self = self(),
    {Guard, Monitor} = spawn_monitor(fun() -> guard(Caller, Options, Self) end),
    receive
        {Guard, Worker} ->
            demonitor(Monitor, [flush]),
            {ok, Worker};
        {'DOWN', Monitor, process, Guard, Reason} ->
            {error, Reason}
    end.

%% Of another node is the group leader that we were started with, and it may go away.
guard(Caller, Options, Starter) ->
    group_leader(whereis(init), self()),
    process_flag(trap_exit, true),
    label(guard),
    Monitor = monitor(process, Caller),
    Self = self(),
    Worker = spawn_link(fun() -> work(Self, Options) end),
    Starter ! {self(), Worker},
    receive
        {'DOWN', Monitor, process, Caller, _} -> ok;
        {'EXIT', Worker, _} -> ok
    end,
    End = monitor(process, Worker),
    exit(Worker, kill),
    receive {'DOWN', End, process, Worker, _} -> ok end,
    leave(Options).

%% The code becomes old, which does not hinder us; purging it ends us, so another process does
%% that, which runs code of the node's, and when all of it is old.
leave(Options) ->
    Modules = maps:get(unload, Options, []),
    _ = [code:delete(Module) || Module <- Modules],
    _ = spawn(lists, foreach, [fun code:purge/1, Modules]),
    ok.

%% As proc_lib:set_label/1 of OTP 27 does: whoever looks at processes sees who we are.
label(Role) ->
    put('$process_label', {erlane_prof, Role}).

work(Guard, Options) ->
    process_flag(trap_exit, true),
    label(worker),
    work_loop(Guard, #worker{options = Options, clerk = start_clerk(true)}).

work_loop(Guard, State) ->
    receive
        {{sample, Request}, ReplyTo} ->
            {Sample, State1} = look(maps:merge(State#worker.options, Request), State),
            ReplyTo ! {ReplyTo, Sample},
            work_loop(Guard, State1);
        {{process, Pid}, ReplyTo} ->
            %% Not awaited here: it may be stuck.
            _ = erlane_prof_walk:asker(fun() ->
                                               ReplyTo ! {ReplyTo, erlane_prof_walk:details(Pid)}
                                       end),
            work_loop(Guard, State);
        {stop, ReplyTo} ->
            %% The guard sees our end, and leaves. Links pass on no normal one.
            ReplyTo ! {ReplyTo, ok},
            exit(shutdown);
        {'EXIT', Guard, _} ->
            leave(State#worker.options),
            exit(shutdown);
        {'EXIT', Clerk, _} when Clerk =:= State#worker.clerk ->
            work_loop(Guard, State#worker{clerk = start_clerk(true), asked = undefined});
        {Ref, Counts} when is_reference(Ref), Ref =:= State#worker.asked ->
            work_loop(Guard, State#worker{asked = undefined, counts = Counts});
        _ ->
            work_loop(Guard, State)
    end.

%% @doc One look by the calling process: without figures that take two, and with the sums of
%% reductions since each process began.
-spec sample(options()) -> sample().
sample(Options) ->
    Clerk = start_clerk(false),
    {Sample, #worker{walker = Walker}} =
        look(Options, #worker{options = Options, clerk = Clerk}),
    end_helper(Walker),
    end_helper(Clerk),
    Sample.

%%% The clerk

start_clerk(WallTime) ->
    spawn_link(fun() ->
                       label(clerk),
                       _ = WallTime andalso erlang:system_flag(scheduler_wall_time, true),
                       clerk()
               end).

clerk() ->
    receive
        {counts, {From, Ref}} ->
            {{input, In}, {output, Out}} = erlang:statistics(io),
            {Collections, Words, _} = erlang:statistics(garbage_collection),
            From ! {Ref, #{wall => wall_time(), memory => memory(), io_in => In, io_out => Out,
                           gc_count => Collections, gc_words => Words, msacc => msacc()}},
            clerk()
    end.

%% An answer that is late is taken the next time; until then there are the figures before.
counts(#worker{clerk = Clerk, asked = undefined} = State) ->
    Ref = make_ref(),
    Clerk ! {counts, {self(), Ref}},
    counts(State#worker{asked = Ref});
counts(#worker{asked = Ref, counts = Counts} = State) ->
    receive
        {Ref, New} -> {New, false, State#worker{asked = undefined, counts = New}}
    after ?COUNTS_MS ->
        {Counts, true, State}
    end.

%%% A look

look(Options, State) ->
    Began = erlang:monotonic_time(),
    {Counts, CountsLate, State0} = counts(State),
    #{wall := Wall} = Counts,
    {Schedulers, Dirty} = schedulers(Wall, State#worker.wall),
    AtMs = erlang:convert_time_unit(Began, native, millisecond),
    {Threads, Kernel} = threads(maps:get(threads, Options, true), State#worker.kernel, AtMs),
    {Load, Kernel1} = load(Kernel, AtMs),
    By = maps:get(sort, Options, reds),
    State1 = walk(By, maps:get(procs, Options, 0), State0),
    {Procs, Looked} = State1#worker.procs,
    {Uptime, _} = erlang:statistics(wall_clock),
    {Reductions, _} = erlang:statistics(reductions),
    Sample = #{at_ms => AtMs,
               node => node(),
               otp => list_to_binary(erlang:system_info(otp_release)),
               erts => list_to_binary(erlang:system_info(version)),
               uptime_ms => Uptime,
               schedulers => Schedulers,
               dirty => Dirty,
               runq_total => lists:sum([N || #{runq := N} <- Schedulers ++ Dirty]),
               processes => erlang:system_info(process_count),
               ports => erlang:system_info(port_count),
               ets => erlang:system_info(ets_count),
               atoms => erlang:system_info(atom_count),
               limits => #{processes => erlang:system_info(process_limit),
                           ports => erlang:system_info(port_limit),
                           ets => erlang:system_info(ets_limit),
                           atoms => erlang:system_info(atom_limit)},
               reductions => Reductions,
               lanes => lanes(maps:get(lanes, Options, none)),
               dist => [connection(C) || C <- lists:sort(erlang:system_info(dist_ctrl))],
               procs => Procs,
               procs_by => By,
               procs_looked => Looked,
               procs_late => State1#worker.late,
               threads => Threads,
               load => Load},
    Cost = erlang:convert_time_unit(erlang:monotonic_time() - Began, native, microsecond),
    {maps:merge(Sample#{cost_us => Cost, counts_late => CountsLate}, maps:remove(wall, Counts)),
     State1#worker{wall = Wall, kernel = Kernel1}}.

%% `active' and `total' are what the VM has counted, in its own unit; `util' is the share since
%% the look before.
schedulers(Wall, Before) ->
    Normal = erlang:system_info(schedulers),
    Online = erlang:system_info(schedulers_online),
    {Queues, [CpuQueue, IoQueue]} =
        lists:split(Normal, erlang:statistics(run_queue_lengths_all)),
    Of = fun(I) -> share(maps:get(I, Wall, undefined), maps:get(I, Before, undefined)) end,
    Schedulers = [maps:merge(#{id => I, online => I =< Online, runq => Queue}, Of(I))
                  || {I, Queue} <- lists:zip(lists:seq(1, Normal), Queues)],
    Cpu = erlang:system_info(dirty_cpu_schedulers),
    Io = erlang:system_info(dirty_io_schedulers),
    Dirty = [dirty(cpu, CpuQueue, [Of(I) || I <- lists:seq(Normal + 1, Normal + Cpu)]),
             dirty(io, IoQueue, [Of(I) || I <- lists:seq(Normal + Cpu + 1, Normal + Cpu + Io)])],
    {Schedulers, Dirty}.

wall_time() ->
    case erlang:statistics(scheduler_wall_time_all) of
        undefined -> #{};
        List -> maps:from_list([{I, {Active, Total}} || {I, Active, Total} <- List])
    end.

share(undefined, _) ->
    #{active => undefined, total => undefined, util => undefined};
share({Active, Total}, {Active0, Total0}) when Total > Total0 ->
    #{active => Active, total => Total,
      util => min(1.0, max(0.0, (Active - Active0) / (Total - Total0)))};
share({Active, Total}, _) ->
    #{active => Active, total => Total, util => undefined}.

%% All dirty schedulers of a kind share one queue. `util' is the sum: so many were busy.
dirty(Kind, Queue, Shares) ->
    Known = [Util || #{util := Util} <- Shares, Util =/= undefined],
    Util = case Known of
               [] -> undefined;
               _ -> lists:sum(Known)
           end,
    #{kind => Kind, count => length(Shares), runq => Queue, util => Util}.

%% Not told by a VM that runs without its own allocators.
memory() ->
    try maps:from_list(erlang:memory())
    catch error:notsup -> #{}
    end.

%% Off, it tells nothing or zeros.
msacc() ->
    case erlang:statistics(microstate_accounting) of
        undefined -> [];
        List -> [Thread || #{counters := Counters} = Thread <- List,
                           lists:sum(maps:values(Counters)) > 0]
    end.

lanes({Module, Function}) ->
    try
        true = erlang:function_exported(Module, Function, 0),
        [Lane || Lane <- Module:Function(), is_map(Lane)]
    catch
        _:_ -> []
    end;
lanes(none) ->
    [].

%% A connection over TCP is a port. One with a carrier of its own is a process, whose bytes
%% nobody counts.
connection({Node, Port}) when is_port(Port) ->
    Info = fun(Item) ->
                   case erlang:port_info(Port, Item) of
                       {_, N} -> N;
                       undefined -> 0
                   end
           end,
    #{node => Node, in => Info(input), out => Info(output), queue => Info(queue_size)};
connection({Node, _Process}) ->
    #{node => Node, in => undefined, out => undefined, queue => undefined}.

%% CPU time, and time spent waiting for a CPU, of each thread of the VM: Linux tells them to
%% everybody. To read them costs more than all the rest, so of threads that did nothing only some
%% are read each time, and none more often than each two seconds. `cpu' and `wait' are shares
%% since it was read before. The VM makes its threads when it starts.
threads(false, Known, _Now) ->
    {[], Known};
threads(true, #{threads := [_ | _] = Threads, threads_next := Next} = Known, Now)
  when Now < Next ->
    {[maps:remove(idle, Thread) || Thread <- Threads], Known};
threads(true, #{threads := [_ | _] = Threads} = Known, Now) ->
    {Idle, Busy} = lists:partition(fun(Thread) -> maps:get(idle, Thread) end, Threads),
    {Turn, Later} = lists:split(min(?IDLE_THREADS, length(Idle)), Idle),
    Read = [Thread#{cpu := 0.0, wait := 0.0} || Thread <- Later]
        ++ lists:append([thread(Thread) || Thread <- Turn ++ Busy]),
    {[maps:remove(idle, Thread) || Thread <- Read], Known#{threads := Read,
                                                         threads_next := Now + ?THREADS_MS}};
threads(true, Known, Now) ->
    Ids = case file:list_dir("/proc/self/task") of
              {ok, List} -> List;
              {error, _} -> []
          end,
    Read = lists:append([thread(#{id => list_to_integer(Id), name => thread_name(Id)})
                         || Id <- Ids]),
    {[maps:remove(idle, Thread) || Thread <- Read], Known#{threads => Read, threads_next => Now}}.

thread_name(Id) ->
    hd(binary:split(read(["/proc/self/task/", Id, "/comm"]), <<"\n">>)).

thread(#{id := Id} = Thread) ->
    Path = ["/proc/self/task/", integer_to_list(Id), "/schedstat"],
    case [binary_to_integer(N) || N <- words(read(Path))] of
        [Cpu, Wait | _] ->
            Now = erlang:monotonic_time(),
            #{cpu_ns := Cpu0, wait_ns := Wait0, at := At} =
                maps:merge(#{cpu_ns => Cpu, wait_ns => Wait, at => Now - 1}, Thread),
            Ns = erlang:convert_time_unit(Now - At, native, nanosecond),
            [Thread#{cpu_ns => Cpu, wait_ns => Wait, at => Now,
                     idle => is_map_key(at, Thread) andalso Cpu =:= Cpu0,
                     cpu => (Cpu - Cpu0) / max(1, Ns), wait => (Wait - Wait0) / max(1, Ns)}];
        _ -> []
    end.

%% The kernel computes it each five seconds.
load(#{load := {Load, At}} = Known, Now) when Now - At < 5000 ->
    {Load, Known};
load(Known, Now) ->
    Load = case words(read("/proc/loadavg")) of
               [One, Five, Fifteen | _] -> [binary_to_float(N) || N <- [One, Five, Fifteen]];
               _ -> []
           end,
    {Load, Known#{load => {Load, Now}}}.

words(Text) ->
    binary:split(Text, [<<" ">>, <<"\n">>], [global, trim_all]).

%% Past the file server, which is not to be kept busy by us.
read(Path) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, File} ->
            Data = file:read(File, 4096),
            ok = file:close(File),
            case Data of
                {ok, Text} -> Text;
                _ -> <<>>
            end;
        {error, _} ->
            <<>>
    end.

%%% Processes: the worker's side

walk(_By, 0, State) ->
    State#worker{procs = {[], 0}};
walk(By, Size, #worker{walker = undefined} = State) ->
    walk(By, Size, State#worker{walker = erlane_prof_walk:start_link()});
walk(By, Size, #worker{walker = Walker, careful = Careful} = State) ->
    Ref = make_ref(),
    Walker ! {walk, {self(), Ref}, By, Size, Careful > 0},
    receive
        {Ref, Procs} ->
            State#worker{careful = max(0, Careful - 1), procs = Procs, late = false}
    after ?WALK_MS ->
        %% Some process does not answer: what we had is shown once more.
        end_helper(Walker),
        State#worker{walker = undefined, careful = ?CAREFUL, late = true}
    end.

end_helper(undefined) ->
    ok;
end_helper(Walker) ->
    unlink(Walker),
    exit(Walker, kill),
    ok.
