%% SPDX-License-Identifier: Apache-2.0
%% @doc Follows each call and return of named functions, and what processes wait for. Runs on the
%% node that is looked at, as the worker of erlane_prof_agent.
%%
%% The VM itself writes what happens to a file, by the port that OTP has for this. Such a port
%% drops nothing, but does not hold up those who are traced either: what it has not written waits
%% in memory. So it is limited by the size of the file and by what the VM has grown; both are
%% looked at ten times a second. Nothing is read while the trace is on. After it the file goes to
%% the caller in pieces, who makes something of it.
%%
%% The file has no name when the trace begins: whatever happens to us or to the VM, the kernel
%% gives its space back. It is in a directory of our own until then, as names in one that all may
%% write to could be somebody else's.
-module(erlane_prof_trace).

-export([prepare/1, undo/1, work/2]).

%% What an event counts in bytes of the file.
-define(EVENT_BYTES, 100).
-define(LOOK_MS, 100).
-define(STATS_MS, 500).
-define(DRIVER, "trace_file_drv").
%% Each call says where it returns to, without which tail calls could not be told.
-define(MATCH, [{'_', [], [{message, {caller}}]}]).
-define(FLAGS, [call, return_to, arity, running, exiting, monotonic_timestamp]).
%% Pieces, and how many are under way.
-define(PIECE, 262144).
-define(CREDIT, 8).
%% The guard's patience, from the last sign of the caller.
-define(PATIENCE_MS, 10000).
-define(DELIVERED_MS, 2000).
%% What is not written by then is lost.
-define(WRITTEN_MS, 5000).
%% How much the VM may grow: so many bytes, or this part of what it was.
-define(GROWTH, 33554432).
-define(GROWTH_PART, 20).
-define(PAGE, 4096).
-define(CODE_BYTES, 4000000).

-record(trace, {session, port, file, dir, procs, flags, patterns, guard}).

%% @doc Opens the file and switches tracing on. The text says why not.
-spec prepare(erlane_prof_agent:options()) ->
          {ok, [erlane_prof_agent:undo()], term()} | {error, unicode:chardata()}.
prepare(#{functions := Wanted, worker := Worker} = Options) ->
    try
        {Patterns, Functions} = erlane_prof_session:functions(Wanted),
        Procs = erlane_prof_session:procs(maps:get(procs, Options, all)),
        Dir = directory(),
        File = filename:join(Dir, "trace"),
        Flags = flags(maps:get(with, Options, [])),
        Port = open(File, Dir),
        Trace = #trace{session = session(Port, Functions, Dir), port = Port, file = File,
                       dir = Dir, procs = Procs, flags = Flags, patterns = Patterns,
                       guard = self()},
        try
            _ = [erlane_prof_session:function(Trace#trace.session, Pattern, ?MATCH, [local])
                 || Pattern <- Patterns],
            ok = erlane_prof_session:process(Trace#trace.session, Procs, true,
                                             [{tracer, Port} | Flags]),
            %% What we do is not what the node does.
            _ = [erlane_prof_session:process(Trace#trace.session, [Own], false, Flags)
                 || Procs =:= all, Own <- [self(), Worker]],
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

%% Collections of garbage are not followed beside another session, which may do it too: that can
%% crash the releases that have sessions.
flags(With) ->
    lists:member(gc, With) andalso erlane_prof_session:others()
        andalso throw("somebody else has a trace session: collections of garbage are not followed "
                      "beside it"),
    ?FLAGS ++ lists:append([case What of
                                spawns -> [procs];
                                messages -> [send, 'receive'];
                                gc -> [garbage_collection]
                            end || What <- With]).

session(Port, Functions, Dir) ->
    try
        erlane_prof_session:create(Port, Functions)
    catch
        Class:Reason:Stack ->
            close(Port),
            remove(filename:join(Dir, "trace"), Dir),
            erlang:raise(Class, Reason, Stack)
    end.

%% @doc Switches off what was switched on, and nothing else.
-spec undo(term()) -> ok.
undo(#trace{port = Port, file = File, dir = Dir} = Trace) ->
    clear(Trace),
    close(Port),
    remove(File, Dir).

clear(#trace{session = Session, procs = Procs, flags = Flags, patterns = Patterns}) ->
    erlane_prof_session:clear(Session, Procs, Flags, [{P, [local]} || P <- Patterns]).

%% It is closed when it has written all, which nobody waits for here.
close(Port) ->
    true = exit(Port, kill),
    ok.

remove(File, Dir) ->
    _ = file:delete(File, [raw]),
    _ = file:del_dir(Dir),
    ok.

%%% The file

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

open(File, Dir) ->
    try
        Priv = case code:priv_dir(runtime_tools) of
                   {error, bad_name} -> throw("it has no runtime_tools, whose port writes a trace");
                   Found -> Found
               end,
        case erl_ddll:load_driver(filename:join(Priv, "lib"), ?DRIVER) of
            ok -> ok;
            {error, permanent} -> ok;
            {error, Reason} -> throw(["the port that writes a trace: ",
                                      erl_ddll:format_error(Reason)])
        end,
        open_port({spawn, ?DRIVER ++ " n " ++ File}, [eof])
    catch
        Class:Why:Stack ->
            remove(File, Dir),
            erlang:raise(Class, Why, Stack)
    end.

%%% While it is on

%% @doc Watches the file until told to finish, and hands it over.
-spec work(term(), map()) -> no_return().
work(#trace{port = Port, file = File, dir = Dir} = Trace, #{events := Events} = Options) ->
    process_flag(priority, high),
    Began = erlang:monotonic_time(nanosecond),
    %% What was written before now is already there, so it is not before the first event.
    Ref = monitor(port, Port),
    {ok, Fd} = file:open(File, [read, raw, binary]),
    remove(File, Dir),
    Before = erlane_prof_trace_names:before(Trace#trace.procs),
    watch(Options#{trace => Trace, fd => Fd, monitor => Ref, began => Began, before => Before,
                   limit => Events * ?EVENT_BYTES, open => 0, sent => Began, stopping => false,
                   closed => false, rss => rss()}).

watch(#{guard := Guard, clean := Clean, undo := Undo, monitor := Monitor, open := Open} = S) ->
    receive
        finish ->
            finish(S);
        credit ->
            watch(S#{open := Open - 1});
        {'EXIT', Guard, _} ->
            Clean(Undo),
            exit(shutdown);
        {'DOWN', Monitor, port, _, Reason} ->
            watch(stop({file, Reason}, S#{closed := true}));
        _ ->
            watch(S)
    after ?LOOK_MS ->
        watch(look(S))
    end.

look(#{fd := Fd, limit := Limit, to := To, began := Began, sent := Sent, open := Open} = S) ->
    {ok, Size} = file:position(Fd, eof),
    Now = erlang:monotonic_time(nanosecond),
    Due = Now - Sent >= ?STATS_MS * 1000000,
    Told = case Due andalso Open =:= 0 of
               true -> erlane_prof_agent:send(To, {rows, self(), [], [], stats(Size, Began)});
               false -> later
           end,
    S1 = case Told of
             ok -> S#{sent := Now, open := 1};
             _ -> S
         end,
    case Size >= Limit of
        true -> stop(events, S1);
        false -> grown(S1)
    end.

%% It is asked of the system, as the VM asks all its schedulers, of which one may be busy for long.
grown(#{rss := Before} = S) when is_integer(Before) ->
    case rss() of
        Now when is_integer(Now), Now - Before > ?GROWTH, Now - Before > Before div ?GROWTH_PART ->
            stop({grown, Now - Before}, S);
        _ -> S
    end;
grown(S) ->
    S.

rss() ->
    case file:open("/proc/self/statm", [read, raw, binary]) of
        {ok, Fd} ->
            {ok, Line} = file:read(Fd, 100),
            ok = file:close(Fd),
            [_, Pages | _] = binary:split(Line, <<" ">>, [global]),
            ?PAGE * binary_to_integer(Pages);
        {error, _} -> unknown
    end.

stats(Size, Began) ->
    #{events => Size div ?EVENT_BYTES, lost => 0, bytes => Size,
      ns => erlang:monotonic_time(nanosecond) - Began}.

%% The guard answers with `finish'.
stop(Why, #{stopping := false, guard := Guard} = S) ->
    Guard ! {stop, Why},
    S#{stopping := true};
stop(_Why, S) ->
    S.

%%% When it is off

-spec finish(map()) -> no_return().
finish(#{trace := Trace, fd := Fd, began := Began, before := Before, to := To} = S0) ->
    Ended = erlang:monotonic_time(nanosecond),
    S = off(S0),
    {ok, Size} = file:position(Fd, eof),
    {ok, 0} = file:position(Fd, 0),
    Stats = (stats(Size, Began))#{ns := Ended - Began},
    Labels = case erlane_prof_trace_names:since(Before, Trace#trace.procs, Trace#trace.guard) of
                 gone -> gone(S);
                 Known -> Known
             end,
    Own = [erlane_prof_trace_names:key(Pid) || Pid <- [self(), Trace#trace.guard]],
    About = #{began => Began, labels => maps:to_list(Labels), own => Own, bytes => Size,
              ended => case S of
                           #{closed := true} -> Ended;
                           #{closed := false} -> unknown
                       end},
    erlane_prof_agent:hand_over(To, {trace, {about, About, Stats}, self()}),
    pieces(S#{open := maps:get(open, S) + 1, left => Size}),
    erlane_prof_agent:hand_over(To, {trace, {all, Stats}, self()}),
    questions(S),
    exit({done, time, Stats}).

%% All that was under way is in the file when the port is closed.
off(#{trace := Trace} = S) ->
    #trace{session = Session, procs = Procs, flags = Flags, port = Port} = Trace,
    Ref = erlane_prof_session:stop(Session, Procs, Flags),
    receive {trace_delivered, _, Ref} -> ok
    after ?DELIVERED_MS -> ok
    end,
    clear(Trace),
    close(Port),
    patience(S),
    closed(S).

closed(#{closed := true} = S) ->
    S;
closed(#{monitor := Monitor} = S) ->
    receive {'DOWN', Monitor, port, _, _} -> S#{closed := true}
    after ?WRITTEN_MS -> S
    end.

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
            Code = {code, Module, source(Module), code(Module)},
            erlane_prof_agent:hand_over(To, {trace, Code, self()}),
            questions(S);
        done ->
            ok;
        {'EXIT', Guard, _} when Guard =:= map_get(guard, S) ->
            gone(S);
        _ ->
            questions(S)
    end.

source(Module) ->
    case erlang:module_loaded(Module) of
        true -> erlane_prof_session:file(Module);
        false -> <<>>
    end.

%% Without its documentation and the like. It may be newer than what runs, or not be there.
code(Module) ->
    case code:get_object_code(Module) of
        {Module, Beam, _} when byte_size(Beam) =< ?CODE_BYTES ->
            case beam_lib:md5(Beam) of
                {ok, {Module, Md5}} ->
                    try Module:module_info(md5) of
                        Md5 -> stripped(Beam);
                        _ -> none
                    catch
                        error:undef -> none
                    end;
                _ -> none
            end;
        _ -> none
    end.

stripped(Beam) ->
    case beam_lib:strip(Beam) of
        {ok, {_, Short}} -> Short;
        _ -> none
    end.
