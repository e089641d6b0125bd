%% SPDX-License-Identifier: Apache-2.0
%% @doc Follows each call and return of named functions, and what processes wait for. Runs on the
%% node that is looked at, as the worker of erlane_prof_agent.
%%
%% What happens comes to a file: by erlane_prof_trace_native if the node has what that needs, else
%% by erlane_prof_trace_port, which every node has. After the trace the file goes to the caller in
%% pieces, who makes something of it; nothing is read while it is on.
%%
%% The file has no name when the trace begins: whatever happens to us or to the VM, the kernel
%% gives its space back. It is in a directory of our own until then, as names in one that all may
%% write to could be somebody else's.
-module(erlane_prof_trace).

-export([prepare/1, undo/1, work/2]).

-define(STATS_MS, 500).
%% A call says where it returns to, if tail calls could not be told without that.
-define(MATCH, [{'_', [], [{message, {caller}}]}]).
-define(FLAGS, [call, return_to, arity, running, exiting, monotonic_timestamp]).
%% Not all ports are there to their end, so it is told when they are opened and closed.
-define(PORT_FLAGS, [running_ports, ports, monotonic_timestamp]).
%% With those the VM makes an atom of each command that a port is opened with.
-define(ATOMS, 100000).
%% Pieces, and how many are under way.
-define(PIECE, 262144).
-define(CREDIT, 8).
%% The guard's patience, from the last sign of the caller.
-define(PATIENCE_MS, 10000).
-define(DELIVERED_MS, 2000).

%% `back' is the module that brings events to the file, `handle' what it has for that.
%% `top' are the functions of which it is not asked where they return to. `ports' are those that
%% were there before, if ports are followed.
-record(trace, {back, handle, session, file, dir, procs, flags, patterns, top, guard,
                port_flags = [], ports = #{}}).

%% @doc Opens the file and switches tracing on. The text says why not.
-spec prepare(erlane_prof_agent:options()) ->
          {ok, [erlane_prof_agent:undo()], term()} | {error, unicode:chardata()}.
prepare(#{functions := Wanted, worker := Worker} = Options) ->
    try
        {Patterns, Functions} = erlane_prof_session:functions(Wanted),
        Procs = erlane_prof_session:procs(maps:get(procs, Options, all)),
        With = maps:get(with, Options, []),
        Back = back(maps:get(tracer, Options, auto)),
        Flags = flags(With),
        PortFlags = port_flags(lists:member(ports, With)),
        Top = erlane_prof_trace_object:called_from_top(Patterns),
        Dir = directory(),
        Trace0 = #trace{back = Back, file = filename:join(Dir, "trace"), dir = Dir, procs = Procs,
                        patterns = Patterns, guard = self(), top = Top, flags = Flags,
                        port_flags = PortFlags},
        Trace = with_ports(session(opened(Trace0, Options), Functions)),
        try
            switch_on(Trace, Worker),
            {ok, [{undo, ?MODULE, Trace}], Trace}
        catch
            Class:Reason:Stack ->
                undo(Trace),
                erlang:raise(Class, Reason, Stack)
        end
    catch
        throw:Why -> {error, Why};
        error:badarg -> {error, "a process to look at has ended, or is traced by somebody"}
    end.

back(port) -> erlane_prof_trace_port;
back(Wanted) ->
    case erlane_prof_trace_native:there() of
        true -> erlane_prof_trace_native;
        false when Wanted =:= auto -> erlane_prof_trace_port;
        false -> throw("it has not the native code that a trace was to go through")
    end.

%% Collections of garbage are not followed beside another session, which may do it too: that can
%% crash the releases that have sessions.
flags(With) ->
    lists:member(gc, With) andalso erlane_prof_session:others()
        andalso throw("somebody else has a trace session: collections of garbage are not followed "
                      "beside it"),
    ?FLAGS ++ lists:append([case What of
                                spawns -> [procs];
                                messages -> [send, 'receive'];
                                gc -> [garbage_collection];
                                ports -> []
                            end || What <- With]).

port_flags(false) -> [];
port_flags(true) ->
    erlane_prof_session:ports_traced()
        andalso throw("somebody traces ports, which OTP 27 and newer would allow"),
    few_atoms() andalso throw("it has few atoms left, of which the VM makes some for its ports"),
    ?PORT_FLAGS.

few_atoms() ->
    erlang:system_info(atom_limit) - erlang:system_info(atom_count) < ?ATOMS.

%% Who asks a port later is seen in its trace.
with_ports(#trace{port_flags = []} = Trace) -> Trace;
with_ports(#trace{back = Back, handle = Handle} = Trace) ->
    Trace#trace{ports = erlane_prof_trace_names:ports(Back:ports(Handle))}.

opened(#trace{back = Back, file = File, dir = Dir} = Trace, Options) ->
    try
        Trace#trace{handle = Back:open(File, Options)}
    catch
        Class:Reason:Stack ->
            remove(File, Dir),
            erlang:raise(Class, Reason, Stack)
    end.

session(#trace{back = Back, handle = Handle, file = File, dir = Dir} = Trace, Functions) ->
    try
        Trace#trace{session = erlane_prof_session:create(Back:tracer(Handle), Functions)}
    catch
        Class:Reason:Stack ->
            ok = Back:close(Handle),
            remove(File, Dir),
            erlang:raise(Class, Reason, Stack)
    end.

switch_on(#trace{back = Back, handle = Handle, session = Session, procs = Procs, flags = Flags,
                 patterns = Patterns, top = Top, port_flags = PortFlags}, Worker) ->
    _ = [erlane_prof_session:function(Session, Pattern, ?MATCH, [local]) || Pattern <- Patterns],
    _ = [erlane_prof_session:function(Session, Function, true, [local]) || {Function, _} <- Top],
    Tracer = case Back:tracer(Handle) of
                 {Module, State} -> {tracer, Module, State};
                 Port -> {tracer, Port}
             end,
    ok = erlane_prof_session:process(Session, Procs, true, [Tracer | Flags]),
    %% What we do is not what the node does.
    _ = [erlane_prof_session:process(Session, [Own], false, Flags)
         || Procs =:= all, Own <- [self(), Worker]],
    _ = [erlane_prof_session:ports(Session, Back:ports(Handle), [Tracer | PortFlags])
         || PortFlags =/= []],
    ok.

%% @doc Switches off what was switched on, and nothing else.
-spec undo(term()) -> ok.
undo(#trace{back = Back, handle = Handle, file = File, dir = Dir} = Trace) ->
    clear(Trace),
    ok = Back:close(Handle),
    remove(File, Dir).

clear(#trace{session = Session, procs = Procs, flags = Flags, patterns = Patterns} = Trace) ->
    no_ports(Trace),
    erlane_prof_session:clear(Session, Procs, Flags, [{P, [local]} || P <- Patterns]).

%% A session that was destroyed has none.
no_ports(#trace{port_flags = []}) -> ok;
no_ports(#trace{session = Session, port_flags = Flags}) ->
    try erlane_prof_session:no_ports(Session, Flags)
    catch error:badarg -> ok
    end.

remove(File, Dir) ->
    _ = file:delete(File, [raw]),
    _ = file:del_dir(Dir),
    ok.

%% Nobody else can have made it, and nobody else can look into it.
directory() ->
    Name = "erlane_prof_" ++ integer_to_list(erlang:unique_integer([positive]), 36)
        ++ integer_to_list(rand:uniform(1 bsl 60), 36),
    Dir = filename:join(os:getenv("TMPDIR", "/tmp"), Name),
    case file:make_dir(Dir) of
        ok ->
            ok = file:change_mode(Dir, 8#700),
            Dir;
        {error, Reason} ->
            throw(erlane_prof_session:text("~ts: ~ts", [Dir, file:format_error(Reason)]))
    end.

%%% While it is on

%% @doc Watches the file until told to finish, and hands it over.
-spec work(term(), map()) -> no_return().
work(#trace{back = Back, handle = Handle, file = File, dir = Dir} = Trace,
     #{events := Events} = Options) ->
    process_flag(priority, high),
    %% What was written before now is already there, so it is not before the first event.
    Began = Back:now(),
    Own = [Back:key(Who) || Who <- [self(), Trace#trace.guard | Back:ports(Handle)]],
    {Fd, Sink} = Back:attach(Handle, File),
    remove(File, Dir),
    Before = erlane_prof_trace_names:before(Trace#trace.procs, fun Back:key/1),
    Now = erlang:monotonic_time(nanosecond),
    watch(Options#{trace => Trace, back => Back, fd => Fd, sink => Sink, began => Began,
                   own => Own, before => Before, limit => Events, open => 0, since => Now,
                   sent => Now, stopping => false}).

watch(#{guard := Guard, clean := Clean, undo := Undo, open := Open, back := Back} = S) ->
    receive
        finish ->
            finish(S);
        credit ->
            watch(S#{open := Open - 1});
        {'EXIT', Guard, _} ->
            Clean(Undo),
            exit(shutdown);
        Message ->
            watch(looked(Back:told(Message, maps:get(sink, S)), S))
    after Back:look_ms() ->
        watch(look(S))
    end.

look(#{back := Back, sink := Sink, to := To, sent := Sent, open := Open} = S0) ->
    S = looked(Back:look(Sink), S0),
    Now = erlang:monotonic_time(nanosecond),
    Due = Now - Sent >= ?STATS_MS * 1000000,
    #{events := Events} = Stats = stats(Now, S),
    Told = case Due andalso Open =:= 0 of
               true -> erlane_prof_agent:send(To, {rows, self(), [], [], Stats});
               false -> later
           end,
    S1 = case Told of
             ok -> S#{sent := Now, open := 1};
             _ -> S
         end,
    #trace{port_flags = PortFlags} = maps:get(trace, S),
    case Events >= maps:get(limit, S) of
        true -> stop(events, S1);
        false ->
            case PortFlags =/= [] andalso few_atoms() of
                true -> stop(atoms, S1);
                false -> S1
            end
    end.

looked({ok, Sink}, S) -> S#{sink := Sink};
looked({stop, Why, Sink}, S) -> stop(Why, S#{sink := Sink}).

stats(Now, #{back := Back, sink := Sink, since := Since}) ->
    {Events, Lost, Bytes} = Back:counts(Sink),
    #{events => Events, lost => Lost, bytes => Bytes, ns => Now - Since}.

%% The guard answers with `finish'.
stop(Why, #{stopping := false, guard := Guard} = S) ->
    Guard ! {stop, Why},
    S#{stopping := true};
stop(_Why, S) ->
    S.

%%% When it is off

-spec finish(map()) -> no_return().
finish(#{trace := Trace, fd := Fd, back := Back, began := Began, own := Own, before := Before,
         to := To} = S0) ->
    Ended = Back:now(),
    Now = erlang:monotonic_time(nanosecond),
    {Whole, S} = off(S0),
    Stats = #{bytes := Size} = stats(Now, S),
    {ok, 0} = file:position(Fd, 0),
    Labels = case erlane_prof_trace_names:since(Before, Trace#trace.procs, Trace#trace.guard,
                                                fun Back:key/1) of
                 gone -> gone(S);
                 Known -> Known
             end,
    Ports = ports(Trace),
    About = #{began => Began, labels => maps:to_list(Labels), bytes => Size,
              own => Own, ports => Ports,
              format => Back:format(), lost => maps:get(lost, Stats), top => Trace#trace.top,
              ended => case Whole of
                           true -> Ended;
                           {false, _} -> unknown
                       end,
              whole => Whole},
    erlane_prof_agent:hand_over(To, {trace, {about, About, Stats}, self()}),
    pieces(S#{open := maps:get(open, S) + 1, left => Size}),
    erlane_prof_agent:hand_over(To, {trace, {all, Stats}, self()}),
    questions(S),
    exit({done, time, Stats}).

%% Those that were there before, and those that were opened since and still are: one may have been
%% registered.
ports(#trace{port_flags = []}) -> [];
ports(#trace{back = Back, handle = Handle, ports = Before}) ->
    Now = erlane_prof_trace_names:ports(Back:ports(Handle)),
    [{Back:key(Port), {Registered, Opened, is_map_key(Port, Before)}}
     || {Port, {Registered, Opened}} <- maps:to_list(maps:merge(Before, Now))].

%% All that was under way is in the file when the back end is closed.
off(#{trace := Trace, back := Back, sink := Sink} = S) ->
    #trace{session = Session, procs = Procs, flags = Flags, handle = Handle} = Trace,
    no_ports(Trace),
    Ref = erlane_prof_session:stop(Session, Procs, Flags),
    receive {trace_delivered, _, Ref} -> ok
    after ?DELIVERED_MS -> ok
    end,
    clear(Trace),
    ok = Back:close(Handle),
    patience(S),
    {Whole, Last} = Back:rest(Sink),
    {Whole, S#{sink := Last}}.

%% It may still grow, which nobody waits for.
pieces(#{left := 0}) ->
    ok;
pieces(#{fd := Fd, to := To, open := Open, left := Left} = S) when Open < ?CREDIT ->
    {ok, Bytes} = file:read(Fd, min(?PIECE, Left)),
    erlane_prof_agent:hand_over(To, {trace, {piece, Bytes}, self()}),
    pieces(S#{open := Open + 1, left := Left - byte_size(Bytes)});
pieces(S) ->
    pieces(credit(S)).

credit(#{open := Open} = S) ->
    receive
        credit -> patience(S), S#{open := Open - 1};
        {'EXIT', Guard, _} when Guard =:= map_get(guard, S) -> gone(S)
    end.

patience(#{guard := Guard}) ->
    Guard ! {patience, ?PATIENCE_MS},
    ok.

-spec gone(map()) -> no_return().
gone(#{clean := Clean, undo := Undo}) ->
    Clean(Undo),
    exit(shutdown).

%% What the caller wants to know of the functions that it found.
questions(#{to := To} = S) ->
    receive
        {code, Module} ->
            patience(S),
            Code = {code, Module, erlane_prof_trace_object:source(Module),
                    erlane_prof_trace_object:code(Module)},
            erlane_prof_agent:hand_over(To, {trace, Code, self()}),
            questions(S);
        done ->
            ok;
        {'EXIT', Guard, _} when Guard =:= map_get(guard, S) ->
            gone(S);
        _ ->
            questions(S)
    end.
