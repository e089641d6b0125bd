%% SPDX-License-Identifier: Apache-2.0
%% @doc Takes a profile, by an agent on the node it is of: the side of the caller.
-module(erlane_prof_run).

-export([run/1, schedulers/1, format_error/1]).

-export_type([options/0, progress/0, error/0]).

%% While a trace is read, `read' of `bytes' are.
-type progress() :: #{ms := non_neg_integer(), events := non_neg_integer(),
                      lost := non_neg_integer(),
                      read => non_neg_integer(), bytes => non_neg_integer()}.
-type options() :: #{mode := sample | perf | time | memory | trace | latency,
                     for := pos_integer(),
                     events := pos_integer(), node => node(), procs => all | [pid() | atom()],
                     functions => [module() | {module(), atom() | '_', arity() | '_'}],
                     force => boolean(), with => [spawns | messages | gc | ports],
                     tracer => auto | native | port, buffer => pos_integer(),
                     hz => 1..1000, depth => 8..64,
                     progress => fun((progress()) -> continue | stop), ship => beam | forms}.
-type error() :: {option, Key :: atom(), Why :: string()} | erlane_prof_attach:error().

-define(DAY_MS, 86400000).
%% Longer than the agent waits for its worker.
-define(GRACE_MS, 15000).

-record(run, {to, node, guard, monitor, tally, stacks = #{0 => []}, stats = #{}, began, from,
              ends, progress, depth, options, trace = none, asked = []}).

%% @doc See erlane_prof:run/1.
-spec run(options()) -> {ok, erlane_prof_profile:profile()} | {error, error()}.
run(Options) ->
    case check(Options) of
        {ok, #{mode := perf} = Checked} -> erlane_prof_perf:run(Checked);
        {ok, Checked} -> start(Checked);
        {error, _} = Error -> Error
    end.

%% @doc See erlane_prof:schedulers/1.
-spec schedulers(map()) -> {ok, erlane_prof_schedulers:view()} | {error, error()}.
schedulers(Options) when is_map(Options) ->
    Known = maps:with([for, node, progress, ship], Options),
    case {maps:keys(maps:without(maps:keys(Known), Options)),
          check(Known#{mode => sample, events => ?DAY_MS})} of
        {[Key | _], _} -> {error, {option, Key, "is no option"}};
        {[], {ok, Checked}} -> start(Checked#{mode := schedulers});
        {[], {error, _} = Error} -> Error
    end;
schedulers(_) ->
    {error, {option, options, "must be a map"}}.

%%% Options

check(Options) when is_map(Options) ->
    Defaults = #{node => node(), hz => 100, depth => 64, procs => all, functions => [],
                 force => false, with => [], tracer => auto, ship => beam,
                 progress => fun(_) -> continue end},
    Needed = [Key || Key <- [mode, for, events], not is_map_key(Key, Options)],
    case Needed of
        [Key | _] -> {error, {option, Key, "is required"}};
        [] -> check(maps:to_list(Options), maps:merge(Defaults, Options))
    end;
check(_) ->
    {error, {option, options, "must be a map"}}.

check([{Key, Value} | Options], All) ->
    case option(Key, Value) of
        true -> check(Options, All);
        Why -> {error, {option, Key, Why}}
    end;
check([], #{mode := Mode, functions := []}) when Mode =/= sample, Mode =/= perf ->
    {error, {option, functions, "must name modules or functions for this mode"}};
check([], #{procs := Procs, with := With} = All) when Procs =/= all ->
    case lists:member(ports, With) of
        true -> {error, {option, with, "has ports, which are followed beside all processes only"}};
        false -> check_functions(All)
    end;
check([], All) ->
    check_functions(All).

check_functions(#{mode := Mode, functions := Functions, force := Force} = All) ->
    case lists:member('_', Functions) of
        true when Mode =/= trace ->
            {error, {option, functions, "must name modules or functions for this mode"}};
        true when not Force ->
            {error, {option, functions, "of '_' are all that are loaded: that needs `force'"}};
        _ ->
            {ok, All}
    end.

option(mode, Mode) ->
    lists:member(Mode, [sample, perf, time, memory, trace, latency])
        orelse "must be sample, perf, time, memory, trace or latency";
option(for, Ms) ->
    is_integer(Ms) andalso Ms >= 10 andalso Ms =< ?DAY_MS
        orelse "must be a number of milliseconds from 10 to a day";
option(events, N) ->
    is_integer(N) andalso N > 0 orelse "must be a number of events above 0";
option(node, Node) ->
    is_atom(Node) orelse "must be the name of a node";
option(hz, Hz) ->
    is_integer(Hz) andalso Hz >= 1 andalso Hz =< 1000 orelse "must be from 1 to 1000";
option(depth, N) ->
    %% The VM has no more.
    is_integer(N) andalso N >= 8 andalso N =< 64 orelse "must be from 8 to 64";
option(procs, all) ->
    true;
option(procs, Procs) ->
    Procs =:= all
        orelse is_list(Procs) andalso Procs =/= []
        andalso lists:all(fun(P) -> is_pid(P) orelse is_atom(P) end, Procs)
        orelse "must be `all' or a list of pids and registered names";
option(functions, Functions) ->
    is_list(Functions) andalso lists:all(fun function/1, Functions)
        orelse "must be a list of modules and {Module, Function, Arity}, where '_' is any";
option(force, Force) ->
    is_boolean(Force) orelse "must be true or false";
option(with, With) ->
    is_list(With) andalso With -- [spawns, messages, gc, ports] =:= []
        orelse "must be a list of spawns, messages, gc and ports, each once at most";
option(tracer, Tracer) ->
    lists:member(Tracer, [auto, native, port]) orelse "must be auto, native or port";
option(buffer, Bytes) ->
    is_integer(Bytes) andalso Bytes >= 1024 andalso Bytes =< 1 bsl 30
        orelse "must be a number of bytes from 1,024 to 1,073,741,824";
option(progress, Fun) ->
    is_function(Fun, 1) orelse "must be a function of one argument";
option(ship, Ship) ->
    lists:member(Ship, [beam, forms]) orelse "must be beam or forms";
option(_, _) ->
    "is no option".

function(Module) when is_atom(Module) -> true;
function({M, F, A}) when is_atom(M), M =/= '_', is_atom(F) ->
    A =:= '_' orelse is_integer(A) andalso A >= 0 andalso A =< 255;
function(_) -> false.

%%% The agent

start(#{node := Node, for := For, progress := Progress, depth := Depth} = Options) ->
    %% What comes too late is dropped with the alias.
    To = alias([explicit_unalias]),
    #{mode := Mode} = Options,
    Modules = [erlane_prof_agent | modules(Mode)],
    %% The depth of stacks is not touched for what has none.
    Given = maps:without([node, progress | [depth || Mode =/= sample]], Options),
    case erlane_prof_attach:attach(Node, Modules, Given#{to => To}) of
        {ok, Guard} ->
            Now = erlang:monotonic_time(millisecond),
            Run = #run{to = To, node = Node, guard = Guard, monitor = monitor(process, Guard),
                       tally = erlane_prof_profile:tally(), began = os:system_time(microsecond),
                       from = Now, ends = Now + For + ?GRACE_MS, progress = Progress,
                       depth = Depth, options = Options},
            try collect(Run)
            after
                _ = unalias(To),
                demonitor(Run#run.monitor, [flush]),
                flush(To)
            end;
        {error, _} = Error ->
            _ = unalias(To),
            Error
    end.

%% What goes to the node beside the agent.
modules(sample) -> [erlane_prof_sampler, erlane_prof_asker, erlane_prof_finder, erlane_prof_purse,
                    erlane_prof_rows];
modules(latency) -> [erlane_prof_latency, erlane_prof_open, erlane_prof_histogram,
                     erlane_prof_counts, erlane_prof_session];
modules(trace) -> [erlane_prof_trace, erlane_prof_trace_native, erlane_prof_trace_port,
                   erlane_prof_trace_names, erlane_prof_trace_object, erlane_prof_asker,
                   erlane_prof_session];
modules(schedulers) -> [erlane_prof_threads, erlane_prof_session];
modules(_) -> [erlane_prof_counts, erlane_prof_session].

flush(To) ->
    receive {To, _} -> flush(To)
    after 0 -> ok
    end.

collect(#run{to = To, guard = Guard, monitor = Monitor, ends = Ends} = R) ->
    receive
        {To, {rows, Worker, Rows, Stacks, Stats}} ->
            Worker ! credit,
            collect(progress(rows(Rows, Stacks, R#run{stats = Stats})));
        {To, {trace, What, Worker}} ->
            collect(trace(What, Worker, R#run{ends = erlang:monotonic_time(millisecond)
                                                  + ?GRACE_MS}));
        {To, {clean, Why, Stats}} ->
            %% Its end is that of its code, but for the purge that follows.
            receive {'DOWN', Monitor, process, Guard, _} -> ok
            after ?GRACE_MS -> ok
            end,
            profile(Why, R#run{stats = maps:merge(R#run.stats, Stats)});
        {'DOWN', Monitor, process, Guard, Reason} ->
            lost(Reason, R)
    after max(0, Ends - erlang:monotonic_time(millisecond)) ->
        Guard ! {stop, caller},
        lost(timeout, R)
    end.

%% A piece is answered when it is read, so that no more than a few are under way. The code that
%% tells more of what is in a trace is asked for one module at a time.
trace({about, About, Stats}, Worker, #run{options = Options} = R) ->
    #{functions := Functions, with := With} = Options,
    Worker ! credit,
    Messages = lists:member(messages, With),
    R#run{stats = Stats, trace = erlane_prof_trace_profile:new(About, Functions, Messages)};
trace({piece, Bytes}, Worker, #run{trace = Trace, stats = Stats} = R) ->
    More = erlane_prof_trace_profile:piece(Bytes, Trace),
    Worker ! credit,
    progress(R#run{trace = More, stats = maps:merge(Stats, erlane_prof_trace_profile:read(More))});
trace({all, Stats}, Worker, #run{trace = Trace} = R) ->
    Done = erlane_prof_trace_profile:finish(Trace),
    ask(Worker, R#run{trace = Done, stats = Stats,
                      asked = erlane_prof_trace_profile:wanted(Done)});
trace({code, Module, File, Code}, Worker, #run{trace = Trace} = R) ->
    ask(Worker, R#run{trace = erlane_prof_trace_profile:code(Module, File, Code, Trace)}).

ask(Worker, #run{asked = [Module | Modules]} = R) ->
    Worker ! {code, Module},
    R#run{asked = Modules};
ask(Worker, R) ->
    Worker ! done,
    R.

%% What there is of a profile is worth something.
lost(Reason, #run{node = Node, options = #{mode := trace}, trace = none}) ->
    {error, gone(Node, Reason)};
lost(Reason, #run{node = Node, trace = Trace} = R) when Trace =/= none ->
    profile({gone, erlane_prof_attach:format_error(gone(Node, Reason))},
            R#run{trace = erlane_prof_trace_profile:lost(Trace)});
lost(Reason, #run{node = Node, stats = Stats} = R) when map_size(Stats) > 0 ->
    profile({gone, erlane_prof_attach:format_error(gone(Node, Reason))}, R);
lost(Reason, #run{node = Node}) ->
    {error, gone(Node, Reason)}.

gone(Node, timeout) -> {timeout, Node};
gone(Node, Reason) -> {gone, Node, Reason}.

progress(#run{progress = Progress, from = From, stats = Stats, guard = Guard} = R) ->
    #{events := Events, lost := Lost} = Stats,
    Ms = erlang:monotonic_time(millisecond) - From,
    Told = maps:merge(#{ms => Ms, events => Events, lost => Lost},
                      maps:with([read, bytes], Stats)),
    _ = case Progress(Told) of
            stop -> Guard ! {stop, asked};
            continue -> ok
        end,
    R.

rows(Rows, New, #run{stacks = Stacks0, tally = Tally0} = R) ->
    Stacks = maps:merge(Stacks0, maps:from_list(New)),
    Tally = lists:foldl(fun({Proc, App, State, Stack, Values}, Tally) ->
                                Row = #{proc => Proc, state => State, values => Values,
                                        stack => stack(Stack, State, Stacks)},
                                erlane_prof_profile:add(case App of
                                                            undefined -> Row;
                                                            _ -> Row#{app => App}
                                                        end, Tally)
                        end, Tally0, Rows),
    R#run{stacks = Stacks, tally = Tally}.

%% Why there is no stack.
stack(0, waiting, _Stacks) -> [<<"[not asked]">>];
stack(0, no_answer, _Stacks) -> [<<"[no answer]">>];
stack(Id, _State, Stacks) -> maps:get(Id, Stacks).

%%% The profile

profile({failed, Reason}, #run{node = Node}) ->
    {error, {gone, Node, Reason}};
profile(Why, #run{stats = Stats, node = Node, options = #{mode := schedulers}}) ->
    case Stats of
        #{first := _} ->
            Otp = list_to_binary(erlang:system_info(otp_release)),
            Notes = [unicode:characters_to_binary(Note) || Note <- ended(Why, Stats)],
            {ok, erlane_prof_schedulers:view(maps:merge(#{otp => Otp}, Stats#{node => Node,
                                                                             notes => Notes}))};
        #{} -> {error, {timeout, Node}}
    end;
profile(Why, #run{stats = Stats, node = Node, options = Options} = R) ->
    #{mode := Mode, for := For} = Options,
    Fields = #{mode => Mode, node => Node, began => R#run.began,
               ns => maps:get(ns, Stats, For * 1000000), values => values(Mode)
                                                                      ++ messages(Options),
               lost => maps:get(lost, Stats, 0),
               notes => [unicode:characters_to_binary(N) || N <- ended(Why, Stats) ++ notes(R)]},
    Otp = maps:with([otp], Stats),
    {Latency, Counted} = latency(Stats, tally(R)),
    {ok, erlane_prof_profile:new(maps:merge(maps:merge(Fields, Otp), Latency), Counted)}.

tally(#run{trace = none, tally = Tally}) -> Tally;
tally(#run{trace = Trace, tally = Tally}) ->
    erlane_prof_trace_profile:rows(fun erlane_prof_profile:add/2, Tally, Trace).

messages(#{mode := trace, with := With}) ->
    [#{name => messages, unit => count} || lists:member(messages, With)];
messages(_) ->
    [].

%% What was told of functions is all of it; the rows are their calls by caller.
latency(#{latency := Told}, Tally) ->
    {#{latency => [Function#{buckets := maps:from_list(Buckets)}
                   || #{buckets := Buckets} = Function <- Told]},
     lists:foldl(fun erlane_prof_profile:add/2, Tally, lists:append([calls(T) || T <- Told]))};
latency(_, Tally) ->
    {#{}, Tally}.

calls(#{function := {M, F, A}, file := File, callers := Callers}) ->
    [#{proc => <<"all">>, state => any, values => [Ns, N],
       stack => caller(Caller) ++ [{M, F, A, File, 0}]} || {Caller, N, Ns} <- Callers].

caller({M, F, A}) -> [{M, F, A, <<>>, 0}];
caller(undefined) -> [];
caller(others) -> [<<"[other callers]">>].

values(sample) -> [#{name => wall, unit => nanoseconds}, #{name => samples, unit => count}];
values(time) -> [#{name => time, unit => nanoseconds}, #{name => calls, unit => count}];
values(latency) -> values(time);
values(trace) -> [#{name => wall, unit => nanoseconds}, #{name => calls, unit => count}];
values(memory) -> [#{name => words, unit => words}, #{name => calls, unit => count}].

ended(time, _) -> [];
ended(unloaded, Stats) ->
    [f("ended early, after ~.1f s: the node unloaded the tracer", [seconds(Stats)])];
ended(events, #{events := N}) -> [f("ended at its limit of ~b events", [N])];
ended(atoms, Stats) ->
    [f("ended early, after ~.1f s: the node has few atoms left, and makes one of each command that "
       "a port is opened with", [seconds(Stats)])];
ended({grown, Bytes}, Stats) ->
    [f("ended early, after ~.1f s: the node's memory grew by ~b MB",
       [seconds(Stats), Bytes bsr 20])];
ended({file, Why}, Stats) ->
    [f("ended early, after ~.1f s: the trace could not be written: ~0tp", [seconds(Stats), Why])];
ended(asked, Stats) -> [f("ended early, as asked, after ~.1f s", [seconds(Stats)])];
ended(queues, Stats) ->
    [f("ended early, after ~.1f s: the node's run queues were long three seconds running",
       [seconds(Stats)])];
ended(memory, _) ->
    ["ended early: the agent needed more than the 64 MB it may have; the last half second is lost"];
ended(behind, Stats) ->
    [f("ended early, after ~.1f s: calls came faster than they could be taken", [seconds(Stats)])];
ended({gone, Why}, Stats) ->
    [f("ended early, after ~.1f s: ~ts", [seconds(Stats), Why])];
ended(Other, _) ->
    [f("ended early: ~0tp", [Other])].

seconds(Stats) -> maps:get(ns, Stats, 0) / 1.0e9.

notes(#run{trace = Trace}) when Trace =/= none ->
    erlane_prof_trace_profile:notes(Trace);
notes(#run{options = #{mode := sample}, stats = Stats} = R) ->
    [f("stacks are those at the next yield of a process, for it tells its stack itself", [])]
        ++ [f(Text, [N]) || {Key, Text} <- sample_notes(), #{Key := N} <- [Stats], N > 0]
        ++ cut(R)
        ++ [f("took ~.2f% of one processor: ~b looks, ~b stacks",
              [100 * Spent / max(1, Ns), Looks, Asks])
            || #{spent_ns := Spent, ns := Ns, looks := Looks, asks := Asks} <- [Stats]];
notes(#run{options = #{mode := latency}, stats = Stats}) ->
    ["a call's time has what it called in it, and what it waited for"]
        ++ [f("~tw:~tw/~b was dropped: a thousand processes were in it at once", [M, F, A])
            || #{function := {M, F, A}, dropped := true} <- maps:get(latency, Stats, [])]
        ++ [f("~b calls of ~tw:~tw/~b had not ended", [Open, M, F, A])
            || #{function := {M, F, A}, open := Open} <- maps:get(latency, Stats, []), Open > 0]
        ++ [f(Text, [N]) || {Key, Text} <- [{gone, "~b calls ended with their process"},
                                            {joined, "~b calls were under way already"}],
                            N <- [maps:get(Key, Stats, 0)], N > 0];
notes(#run{stats = #{otp := <<"27">>}, options = #{mode := memory}}) ->
    ["OTP 27.1 to 27.3.2 count words wrongly"];
notes(_) ->
    [].

sample_notes() ->
    [{late, "~b samples of processes that ran were answered when they waited again, and are shown "
      "at the place where they wait"},
     {stale, "~b samples of waiting processes have the stack that was known, or none, to save "
      "time"},
     {silent, "~b times a process did not answer in time"},
     {held_ms, "~b ms in which no look could be made: a native call kept a scheduler, or the node "
      "was very busy"},
     {unknown, "more processes than are known one by one: ~b that did not move are left out"},
     {lost, "~b samples have no stack: there were too many different ones"}].

cut(#run{depth = Depth, stacks = Stacks}) ->
    Cut = length([Id || {Id, Stack} <- maps:to_list(Stacks), length(Stack) >= Depth]),
    Short = length([Id || {Id, Stack} <- maps:to_list(Stacks), length(Stack) =:= 8]),
    [f("~b stacks have ~b frames or more, and lack the outermost", [Cut, Depth]) || Cut > 0]
        ++ [f("another profiler holds the depth of stacks at 8: ~b are cut there", [Short])
            || Depth > 8, Short > 0, Cut =:= 0,
               map_size(Stacks) > 1, longest(Stacks) =:= 8].

longest(Stacks) ->
    lists:max([length(Stack) || Stack <- maps:values(Stacks)]).

f(Format, Args) ->
    lists:flatten(io_lib:format(Format, Args)).

%% @doc See erlane_prof:format_error/1.
-spec format_error(error()) -> string().
format_error({option, Key, Why}) ->
    f("option ~tp ~ts", [Key, Why]);
format_error(Reason) ->
    erlane_prof_attach:format_error(Reason).
