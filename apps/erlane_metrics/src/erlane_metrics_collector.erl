%% SPDX-License-Identifier: Apache-2.0
%% @doc A collector: a process that asks for values at an interval, so that a scrape need not.
%%
%% ```
%% ok = erlane_metrics:collector(vm, #{interval => 5000}),
%% ok = erlane_metrics:collector(stock, #{module => my_stock, options => #{shop => 7}}).
%% '''
%% A scrape reads the last result. Its age and how long it took are series too, as is the number
%% of runs that failed. A run has a process of its own, with limits on time and heap: one that
%% hangs or crashes costs this collector its result and nothing else. What is older than three
%% intervals is on no page.
%%
%% A collector that nobody reads sleeps, as it does when it is new. The next page wakes it, and
%% waits for it at most 0.4 seconds, for all that sleep together.
%%
%% In a module of your own `families/1' says what there is, `collect/1' what it is worth now.
%% The values of a family that is not in the result have gone. `open/1' and `close/1', for
%% something to hold meanwhile, are called in the process of the collector itself.
-module(erlane_metrics_collector).
-behaviour(gen_server).

-export([start/2, stop/1, info/0, check/2, start_link/2, run/2]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-export_type([opts/0]).

-include_lib("kernel/include/logger.hrl").

%% Counters and gauges with a name, help, labels, unit and decimals.
-callback families(Options :: map()) -> [{counter | gauge, Family :: map()}].
-callback collect(State :: term()) ->
    {[{Name :: binary(), erlane_metrics_collected:values()}], State :: term()}.
-callback open(Options :: map()) -> State :: term().
-callback close(State :: term()) -> term().
-optional_callbacks([open/1, close/1]).

-type opts() :: #{module => module(), interval => pos_integer(), deadline => pos_integer(),
                  options => map()}.
%% `interval' (10000) and `deadline' (5000) in milliseconds; `options' go to the module. `vm',
%% `schedulers', `apps' and `dist' need no module: they are the house's own.

-define(MAX_MS, 86400000).
-define(MAX_HEAP_WORDS, 16 * 1024 * 1024).
%% Unread that many intervals, and at least that long, it goes to sleep.
-define(UNREAD_INTERVALS, 10).
-define(UNREAD_MS, 300000).
-define(RETRY_MS, 1000).

-record(state, {name :: atom(), module :: module(), options :: map(),
                interval :: pos_integer(), deadline :: pos_integer(),
                families = [] :: [binary()],
                %% Of the tables that the families are declared in.
                monitor :: undefined | reference(),
                declared = false :: boolean(),
                inner = closed :: closed | {open, term()},
                retry :: undefined | reference(),
                run :: undefined | {pid(), reference(), reference(), integer()},
                timer :: undefined | reference(),
                waiting = [] :: [gen_server:from()],
                failing = false :: boolean()}).

%% @doc Starts a collector. Errors: `already_started', `{not_started, erlane_metrics}',
%% `{Key, unknown_option | missing | {badarg, Value}}', `{module, {not_a_collector, Module}}'.
-spec start(atom(), opts()) -> ok | {error, term()}.
start(Name, Opts) ->
    case check(Name, Opts) of
        {ok, Checked} -> erlane_metrics_collectors:start_child(Name, Checked);
        {error, Reason} -> {error, Reason}
    end.

%% @doc Ends a collector; its values are gone from the next page.
-spec stop(atom()) -> ok | {error, not_found}.
stop(Name) ->
    case erlane_metrics_collectors:stop_child(Name) of
        ok -> erlane_metrics_collected:delete(Name);
        Error -> Error
    end.

%% @doc All collectors, with age and duration of their last results and their failures.
-spec info() -> #{atom() => map()}.
info() -> erlane_metrics_collected:info().

%% @private
-spec check(term(), term()) -> {ok, map()} | {error, term()}.
check(Name, Opts) when is_atom(Name), is_map(Opts) ->
    All = maps:merge(maps:merge(#{interval => 10000, deadline => 5000, options => #{}},
                                builtin(Name)), Opts),
    Bad = [{Key, Why} || {Key, Value} <- lists:sort(maps:to_list(All)),
                         Why <- [wrong(Key, Value)], Why =/= ok],
    case {Bad, All} of
        {[First | _], _} -> {error, First};
        {[], #{module := _}} -> {ok, All};
        {[], _} -> {error, {module, missing}}
    end;
check(Name, Opts) ->
    {error, {badarg, {Name, Opts}}}.

builtin(vm) -> #{module => erlane_metrics_vm};
builtin(schedulers) -> #{module => erlane_metrics_schedulers};
builtin(apps) -> #{module => erlane_metrics_apps, deadline => 30000};
builtin(dist) -> #{module => erlane_metrics_dist};
builtin(_) -> #{}.

wrong(interval, N) when is_integer(N), N > 0, N =< ?MAX_MS -> ok;
wrong(deadline, N) when is_integer(N), N > 0, N =< ?MAX_MS -> ok;
wrong(options, Map) when is_map(Map) -> ok;
wrong(module, Module) when is_atom(Module) ->
    _ = code:ensure_loaded(Module),
    case erlang:function_exported(Module, families, 1)
        andalso erlang:function_exported(Module, collect, 1) of
        true -> ok;
        false -> {not_a_collector, Module}
    end;
wrong(Key, Value) when Key =:= interval; Key =:= deadline; Key =:= options; Key =:= module ->
    {badarg, Value};
wrong(_, _) -> unknown_option.

%% @private
-spec start_link(atom(), map()) -> {ok, pid()} | {error, term()}.
start_link(Name, Opts) ->
    gen_server:start_link(?MODULE, {Name, Opts}, []).

%% @private
-spec init({atom(), map()}) -> {ok, #state{}, {continue, open}}.
init({Name, #{module := Module, options := Options, interval := Interval,
              deadline := Deadline}}) ->
    process_flag(trap_exit, true),
    ok = erlane_metrics_collected:insert(Name, self(), max(3 * Interval, Interval + 2 * Deadline)),
    {ok, #state{name = Name, module = Module, options = Options, interval = Interval,
                deadline = Deadline}, {continue, open}}.

%% Not in init: a module that hangs here must not keep the supervisor.
%% @private
-spec handle_continue(open, #state{}) -> {noreply, #state{}}.
handle_continue(open, State) ->
    {noreply, open(State)}.

open(State) ->
    #state{name = Name, module = Module, options = Options} = State1 = watch(State),
    try
        Declared = Module:families(Options),
        Families = [maps:get(name, Family) || {_, Family} <- Declared],
        ok = unless(erlane_metrics_collected:claim(Name, Families)),
        [ok = declare_own(Type, Family) || {Type, Family} <- Declared],
        [ok = declare(Type, Family)
         || {Type, Family} <- erlane_metrics_collected:declarations()],
        State1#state{families = Families, declared = true, inner = inner(State1)}
    catch
        Class:Reason -> retry(failed({Class, Reason}, State1))
    end.

%% When the tables are made anew the families have to be declared again.
watch(#state{monitor = undefined} = State) ->
    State#state{monitor = erlang:monitor(process, erlane_metrics_tables)};
watch(State) ->
    State.

retry(#state{retry = undefined} = State) ->
    State#state{declared = false, retry = erlang:start_timer(?RETRY_MS, self(), open)};
retry(State) ->
    State.

%% What a module holds is opened once, however often its families are declared.
inner(#state{inner = {open, _} = Inner}) -> Inner;
inner(#state{module = Module, options = Options}) ->
    {open, case erlang:function_exported(Module, open, 1) of
               true -> Module:open(Options);
               false -> Options
           end}.

%% The function does not know whose the family is: it stays when another collector takes over.
declare_own(Type, #{name := Family} = Opts) ->
    declare(Type, maps:merge(#{limit => 10000}, Opts#{
        callback => fun() -> erlane_metrics_collected:values(Family) end})).

declare(counter, Opts) -> _ = erlane_metrics:counter(Opts), ok;
declare(gauge, Opts) -> _ = erlane_metrics:gauge(Opts), ok.

unless(ok) -> ok;
unless({error, Reason}) -> exit(Reason).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) ->
          {noreply, #state{}} | {reply, term(), #state{}}.
handle_call(wake, From, #state{name = Name, waiting = Waiting} = State) ->
    ok = erlane_metrics_collected:state(Name, awake),
    {noreply, run(State#state{waiting = [From | Waiting]})};
handle_call(_Request, _From, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {noreply, #state{}, hibernate}.
handle_info({'DOWN', Monitor, process, _, Reason}, #state{run = {_, Monitor, _, From}} = State) ->
    {noreply, next(ended(Reason, From, State))};
handle_info({'DOWN', Monitor, process, _, _}, #state{monitor = Monitor} = State) ->
    {noreply, retry(State#state{monitor = undefined})};
handle_info({timeout, Timer, open}, #state{retry = Timer} = State) ->
    {noreply, open(State#state{retry = undefined})};
handle_info({timeout, Timer, deadline}, #state{run = {Pid, _, Timer, _}} = State) ->
    exit(Pid, kill),
    {noreply, State};
handle_info({timeout, Timer, next}, #state{timer = Timer} = State) ->
    tick(State#state{timer = undefined});
handle_info(_Message, State) ->
    %% Ends of runs, too, which are linked so that they end with this process.
    {noreply, State}.

tick(#state{name = Name, interval = Interval} = State) ->
    Unread = erlang:monotonic_time(millisecond) - erlane_metrics_collected:last_read(Name),
    case Unread > max(?UNREAD_MS, ?UNREAD_INTERVALS * Interval) of
        true ->
            ok = erlane_metrics_collected:state(Name, asleep),
            {noreply, State, hibernate};
        false ->
            {noreply, run(State)}
    end.

run(#state{run = {_, _, _, _}} = State) ->
    State;
run(#state{declared = false, name = Name} = State) ->
    %% Nothing to read yet: the next page asks again.
    ok = erlane_metrics_collected:state(Name, asleep),
    answer(State);
run(#state{module = Module, inner = {open, Inner}, deadline = Deadline} = State) ->
    {Pid, Monitor} = spawn_opt(
                       ?MODULE, run, [Module, Inner],
                       [link, monitor, {max_heap_size, #{size => ?MAX_HEAP_WORDS, kill => true,
                                                         error_logger => false}}]),
    Timer = erlang:start_timer(Deadline, self(), deadline),
    State#state{run = {Pid, Monitor, Timer, erlang:monotonic_time()}}.

%% An exit is no crash for the VM's log; ours has the reason.
%% @private
-spec run(module(), term()) -> no_return().
run(Module, Inner) ->
    exit(collect(Module, Inner)).

collect(Module, Inner) ->
    try Module:collect(Inner) of
        {Results, Inner1} when is_list(Results) -> {collected, Results, Inner1};
        Other -> {failed, {bad_result, Other}}
    catch
        Class:Reason:Stack -> {failed, {Class, Reason, Stack}}
    end.

ended({collected, Results, Inner}, From, #state{name = Name, families = Families} = State) ->
    Micros = erlang:convert_time_unit(erlang:monotonic_time() - From, native, microsecond),
    case [R || R <- Results, not known(R, Families)] of
        [] ->
            ok = erlane_metrics_collected:done(Name, Results, Families, Micros),
            State#state{inner = {open, Inner}, failing = false};
        [Bad | _] ->
            failed({bad_result, Bad}, State)
    end;
ended({failed, Reason}, _, State) -> failed(Reason, State);
ended(killed, _, State) -> failed(deadline_or_heap_limit, State);
ended(Reason, _, State) -> failed(Reason, State).

known({Family, _}, Families) -> lists:member(Family, Families);
known(_, _) -> false.

%% Told once, until it worked again.
failed(Reason, #state{name = Name, failing = Failing} = State) ->
    ok = erlane_metrics_collected:failed(Name),
    Failing orelse ?LOG_WARNING("erlane_metrics: collector ~ts failed: ~tp", [Name, Reason]),
    State#state{failing = true}.

%% The interval is from end to end: runs that are slow do not follow each other closely.
next(#state{run = {_, _, Deadline, _}, timer = Timer, interval = Interval} = State) ->
    _ = erlang:cancel_timer(Deadline),
    _ = Timer =:= undefined orelse erlang:cancel_timer(Timer),
    answer(State#state{run = undefined, timer = erlang:start_timer(Interval, self(), next)}).

answer(#state{waiting = Waiting} = State) ->
    lists:foreach(fun(From) -> gen_server:reply(From, ok) end, Waiting),
    State#state{waiting = []}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{module = Module, inner = Inner, run = Run}) ->
    case Run of
        {Pid, _, _, _} -> exit(Pid, kill);
        undefined -> ok
    end,
    case {Inner, erlang:function_exported(Module, close, 1)} of
        {{open, Held}, true} -> _ = Module:close(Held), ok;
        _ -> ok
    end.
