%% SPDX-License-Identifier: Apache-2.0
%% @doc Takes a profile on the node it is of, and sees to it that nothing is left behind. This
%% module and those of the modes are all that runs there; like erlane_prof_probe they call kernel
%% and stdlib alone.
%%
%% - The guard changes what a mode needs changed before anything else, waits for the end of the
%%   caller, of its connection, of the time or of the node's patience, and puts everything back.
%% - The worker takes the profile. It knows what is to be put back too, for it does that if the
%%   guard is killed.
%%
%% To the caller go `{To, Message}', where `To' is an alias of it:
%% `{rows, Worker, Rows, Stacks, Stats}' each of which it answers with `Worker ! credit', and at
%% the end `{clean, Why, Stats}', when all is as it was but for our code. It may send the guard
%% `{stop, Why}'.
-module(erlane_prof_agent).

-export([start/2, send/2, hand_over/2]).

-export_type([options/0, undo/0]).

-type options() :: #{to := reference(), mode := atom(), for := pos_integer(),
                     events := pos_integer(), hz => pos_integer(), depth => pos_integer(),
                     procs => all | [pid() | atom()], functions => list(),
                     unload => [module()], atom() => term()}.
%% What was changed: what was set, and what it was before.
-type undo() :: {depth, Set :: pos_integer(), Was :: pos_integer()}
              | {undo, module(), term()}.

%% How much a worker may use, in words: 64 MB.
-define(HEAP_WORDS, 8000000).
%% The worker has this long to hand over what it has.
-define(GRACE_MS, 3000).
-define(HEALTH_MS, 1000).
%% Run queues as long as this for each scheduler, so many times, are too much.
-define(QUEUE, 4).
-define(PATIENCE, 3).
-define(DEPTH_OWNER, erlane_prof_depth).

-record(guard, {to, options, monitor, worker, undo = [], ends, why = none, stats = #{},
                queue = 0, bad = 0}).

%% @doc Starts an agent that ends with the caller's process. The pid is that of the guard.
-spec start(Caller :: pid(), options()) -> {ok, pid()} | {error, term()}.
start(Caller, Options) ->
    Self = self(),
    {Guard, Monitor} = spawn_monitor(fun() -> guard(Caller, Options, Self) end),
    receive
        {Guard, Answer} ->
            demonitor(Monitor, [flush]),
            Answer;
        {'DOWN', Monitor, process, Guard, Reason} ->
            {error, Reason}
    end.

%% @doc Sends to the caller, if that needs no waiting.
-spec send(reference(), term()) -> ok | nosuspend | noconnect.
send(To, Message) ->
    erlang:send(To, {To, Message}, [nosuspend, noconnect]).

%% @doc The same, and waits while the connection is so busy that it takes nothing.
-spec hand_over(reference(), term()) -> ok.
hand_over(To, Message) ->
    case send(To, Message) of
        nosuspend -> receive after 20 -> hand_over(To, Message) end;
        _ -> ok
    end.

%% Of another node is the group leader that we were started with, and it may go away.
guard(Caller, #{to := To} = Options, Starter) ->
    group_leader(whereis(init), self()),
    process_flag(trap_exit, true),
    process_flag(priority, high),
    label(guard),
    Monitor = monitor(process, Caller),
    Module = module(Options),
    Worker = worker(Module, Options),
    case prepare(Module, Options#{worker => Worker}) of
        {ok, Undo, Prepared} ->
            Depth = depth(Options),
            Worker ! {work, Prepared, Depth ++ Undo},
            Starter ! {self(), {ok, self()}},
            #{for := For} = Options,
            watch(#guard{to = To, options = Options, monitor = Monitor, worker = Worker,
                         undo = Depth ++ Undo, ends = now_ms() + For,
                         queue = erlang:statistics(total_run_queue_lengths)});
        {error, Why} ->
            unlink(Worker),
            exit(Worker, kill),
            Starter ! {self(), {error, {declined, node(), Why}}},
            leave(Options)
    end.

%% It is there before anything is changed, as it may be the tracer, and begins when all is. Until
%% then it ends with the guard.
worker(Module, Options) ->
    Self = self(),
    spawn_opt(fun() ->
                      receive
                          {work, Prepared, Undo} -> work(Self, Module, Prepared, Undo, Options)
                      end
              end, [link, {priority, priority(Options)}, {message_queue_data, off_heap},
                    {max_heap_size, #{size => ?HEAP_WORDS, kill => true, error_logger => false}}]).

%% A tracer that has to wait for its turn would have them all at once.
priority(#{mode := Mode}) when Mode =:= latency; Mode =:= schedulers -> high;
priority(_) -> normal.

%% Whatever happens there, our code is not to stay.
prepare(Module, Options) ->
    try Module:prepare(Options)
    catch
        Class:Reason:Stack ->
            {error, io_lib:format("cannot begin: ~0tp ~0tp ~0tp", [Class, Reason, Stack])}
    end.

module(#{mode := sample}) -> erlane_prof_sampler;
module(#{mode := Mode}) when Mode =:= time; Mode =:= memory -> erlane_prof_counts;
module(#{mode := trace}) -> erlane_prof_trace;
module(#{mode := latency}) -> erlane_prof_latency;
module(#{mode := schedulers}) -> erlane_prof_threads.

%% As proc_lib:set_label/1 of OTP 27 does: whoever looks at processes sees who we are.
label(Role) ->
    put('$process_label', {erlane_prof, Role}).

now_ms() ->
    erlang:monotonic_time(millisecond).

%%% The guard

watch(#guard{worker = Worker, monitor = Monitor, ends = Ends} = G) ->
    receive
        {'DOWN', Monitor, process, _, _} ->
            %% Nobody is there to hand anything to.
            finish(kill(G#guard{why = caller}));
        {'EXIT', Worker, Reason} ->
            finish(ended(Reason, G));
        {stop, Why} ->
            watch(stop(Why, G));
        {patience, Ms} when G#guard.why =/= none ->
            %% There is much to hand over, and it is taken.
            watch(G#guard{ends = now_ms() + Ms});
        {stats, Stats} ->
            watch(G#guard{stats = Stats});
        _ ->
            watch(G)
    after max(0, min(?HEALTH_MS, Ends - now_ms())) ->
        case now_ms() >= Ends of
            true when G#guard.why =:= none -> watch(stop(time, G));
            true -> finish(kill(G));
            false -> watch(health(G))
        end
    end.

stop(Why, #guard{why = none, worker = Worker} = G) ->
    Worker ! finish,
    G#guard{why = Why, ends = now_ms() + ?GRACE_MS};
stop(_Why, G) ->
    G.

ended({done, Why, Stats}, #guard{why = none} = G) -> G#guard{why = Why, stats = Stats};
ended({done, _, Stats}, G) -> G#guard{stats = Stats};
ended(killed, G) -> G#guard{why = memory};
ended(Reason, G) -> G#guard{why = {failed, Reason}}.

kill(#guard{worker = Worker} = G) ->
    exit(Worker, kill),
    receive {'EXIT', Worker, _} -> G end.

finish(#guard{to = To, why = Why, undo = Undo, stats = Stats, options = Options}) ->
    undo(Undo),
    _ = send(To, {clean, Why, Stats#{otp => list_to_binary(erlang:system_info(otp_release))}}),
    leave(Options).

%% A node whose queues grow has other cares than us. One that was busy before we came may be so.
health(#guard{queue = Before, bad = Bad} = G0) ->
    G = deepen(G0),
    Limit = max(?QUEUE * erlang:system_info(schedulers_online), 2 * Before),
    case erlang:statistics(total_run_queue_lengths) > Limit of
        true when Bad + 1 >= ?PATIENCE -> stop(queues, G);
        true -> G#guard{bad = Bad + 1};
        false -> G#guard{bad = 0}
    end.

%%% What is changed, and put back

%% How deep stacks are told is one number for the whole node. It belongs to the first agent that
%% needs it; when that has ended another one takes over.
depth(#{depth := Depth}) ->
    try register(?DEPTH_OWNER, self()) of
        true ->
            case erlang:system_flag(backtrace_depth, Depth) of
                Was when Was > Depth ->
                    _ = erlang:system_flag(backtrace_depth, Was),
                    [];
                Was ->
                    [{depth, Depth, Was}]
            end
    catch
        error:badarg -> []
    end;
depth(_Options) ->
    [].

deepen(#guard{options = #{depth := _} = Options, undo = Undo, worker = Worker} = G) ->
    case whereis(?DEPTH_OWNER) of
        undefined ->
            Depth = depth(Options),
            Worker ! {undo, Depth ++ Undo},
            G#guard{undo = Depth ++ Undo};
        _ ->
            G
    end;
deepen(G) ->
    G.

undo(Undo) ->
    lists:foreach(fun undo_one/1, Undo).

%% What somebody else has set since stays.
undo_one({depth, Set, Was}) ->
    case erlang:system_flag(backtrace_depth, Was) of
        Set -> ok;
        Other -> _ = erlang:system_flag(backtrace_depth, Other), ok
    end;
undo_one({undo, Module, What}) ->
    Module:undo(What).

%% The code becomes old, which does not hinder us; purging it ends us, so another process does
%% that, which runs code of the node's, and when all of it is old.
leave(Options) ->
    Modules = maps:get(unload, Options, []),
    _ = [code:delete(Module) || Module <- Modules],
    _ = spawn(lists, foreach, [fun code:purge/1, Modules]),
    ok.

%%% The worker

work(Guard, Module, Prepared, Undo, Options) ->
    process_flag(trap_exit, true),
    label(Module),
    Clean = fun(Now) -> undo(Now), leave(Options) end,
    Module:work(Prepared, Options#{guard => Guard, undo => Undo, clean => Clean}).
