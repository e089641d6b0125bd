%% SPDX-License-Identifier: Apache-2.0
%% @doc Tracing that is ours alone, as the modes need it that count or follow calls. Runs on the
%% node that is looked at.
%%
%% From OTP 27 on it is a trace session. Before, tracing is one for the whole node: it is refused
%% if anybody traces, and only what was set is cleared.
-module(erlane_prof_session).

-export([release/0, functions/1, procs/1, file/1, text/2]).
-export([create/2, process/4, function/4, info/3, others/0, stop/3, clear/4]).
-export([ports/3, no_ports/2, ports_traced/0]).

-export_type([session/0, pattern/0]).

-type session() :: none | tuple() | reference().
%% The module '_' is all that are loaded.
-type pattern() :: module() | {module(), atom(), arity() | '_'}.

%% @doc The release of OTP that runs.
-spec release() -> pos_integer().
release() ->
    list_to_integer(erlang:system_info(otp_release)).

%% @doc The patterns as the VM takes them, and the functions that they are. The text that is thrown
%% names what is not there.
-spec functions([pattern()]) -> {[{module(), atom(), arity() | '_'}], [mfa()]}.
functions(Wanted) ->
    Patterns = [case Pattern of
                    {_, _, _} -> Pattern;
                    Module -> {Module, '_', '_'}
                end || Pattern <- Wanted],
    {Patterns, lists:usort(lists:append([found(P) || P <- Patterns]))}.

found({'_', '_', '_'}) ->
    [{M, F, A} || {M, _} <- code:all_loaded(), {F, A} <- M:module_info(functions)];
found({M, F, A} = Pattern) ->
    erlang:module_loaded(M) orelse throw(text("module ~tw is not loaded", [M])),
    Found = [{M, F1, A1} || {F1, A1} <- M:module_info(functions),
                            F =:= '_' orelse F =:= F1, A =:= '_' orelse A =:= A1],
    Found =/= [] orelse throw(text("there is no function ~tw:~tw/~w", tuple_to_list(Pattern))),
    Found.

%% @doc The processes that are there of those named. It throws a text if there is none.
-spec procs(all | [pid() | atom()]) -> all | [pid()].
procs(all) ->
    all;
procs(List) ->
    case [Pid || P <- List, Pid <- [pid(P)], is_pid(Pid)] of
        [] -> throw("none of the processes is there");
        Pids -> lists:usort(Pids)
    end.

pid(Pid) when is_pid(Pid) -> Pid;
pid(Name) -> whereis(Name).

%% @doc A session whose events go to a process, a port or a tracer module, which ends with it and
%% with the caller, who alone has its handle. The text that is thrown says who traces already.
-spec create(Tracer :: pid() | port() | {module(), term()}, [mfa()]) -> session().
create(Tracer, Functions) ->
    case release() >= 27 of
        true ->
            trace(session_create, [erlane_prof, Tracer, []]);
        false ->
            processes_traced()
                andalso throw("somebody traces processes, which OTP 27 and newer would allow"),
            [throw(text("somebody traces ~tw:~tw/~w, which OTP 27 and newer would allow",
                        tuple_to_list(Function)))
             || Function <- Functions, not is_free(Function, Tracer)],
            none
    end.

%% A trace gets calls, beside which there may be counters. To ask for those stops all schedulers.
is_free(Function, Tracer) ->
    erlang:trace_info(Function, traced) =:= {traced, false}
        andalso (not is_pid(Tracer)
                 orelse erlang:trace_info(Function, call_time) =:= {call_time, false}
                 andalso erlang:trace_info(Function, call_count) =:= {call_count, false}).

processes_traced() ->
    erlang:trace_info(new_processes, flags) =/= {flags, []}
        orelse [Pid || Pid <- erlang:processes(), {trace, N} <- [traced(Pid)], N =/= 0] =/= [].

%% Of one that runs nothing is read, as it may not answer.
traced(Pid) ->
    case process_info(Pid, status) of
        {_, waiting} -> process_info(Pid, trace);
        _ -> undefined
    end.

%% @doc Is there a session already? Before OTP 27 there are none. The one that is always there, for
%% those who know of none, counts if it traces processes.
-spec others() -> boolean().
others() ->
    release() >= 27 andalso (trace(session_info, [all]) -- [{legacy, default}] =/= []
                             orelse processes_traced()).

%% By name, as the module is not there before OTP 27.
trace(Function, Args) ->
    apply(list_to_existing_atom("trace"), Function, Args).

%% @doc Sets flags of processes, as trace:process/4 does. Without sessions the tracer is named with
%% the flags.
-spec process(session(), all | [pid()], boolean(), list()) -> ok.
process(Session, all, On, Flags) ->
    _ = flags(Session, all, On, Flags),
    ok;
process(Session, Pids, On, Flags) ->
    lists:foreach(fun(Pid) -> 1 = flags(Session, Pid, On, Flags) end, Pids).

%% Before OTP 27 `all' are ports, too.
flags(none, all, On, Flags) -> erlang:trace(processes, On, Flags);
flags(none, What, On, Flags) -> erlang:trace(What, On, Flags);
flags(Session, What, On, Flags) ->
    trace(process, [Session, What, On, [F || F <- Flags, is_atom(F)]]).

%% @doc Sets flags of the ports that there are, but for some, and of those to come. The port of a
%% trace must never be in it: what it does for an event would be events again.
-spec ports(session(), Without :: [port()], list()) -> ok.
ports(Session, Without, Flags) ->
    _ = port_flags(Session, new, true, Flags),
    %% One may be closed meanwhile.
    _ = [try port_flags(Session, Port, true, Flags) catch error:badarg -> 0 end
         || Port <- erlang:ports() -- Without],
    ok.

%% @doc Sets back flags of all ports.
-spec no_ports(session(), [atom()]) -> ok.
no_ports(Session, Flags) ->
    _ = port_flags(Session, all, false, Flags),
    ok.

port_flags(none, new, On, Flags) -> erlang:trace(new_ports, On, Flags);
port_flags(none, all, On, Flags) -> erlang:trace(ports, On, Flags);
port_flags(none, Port, On, Flags) -> erlang:trace(Port, On, Flags);
port_flags(Session, What, On, Flags) ->
    trace(port, [Session, What, On, [F || F <- Flags, is_atom(F)]]).

%% @doc Is there somebody whose tracing of ports would be in the way? Not where there are sessions.
-spec ports_traced() -> boolean().
ports_traced() ->
    release() < 27 andalso
        lists:any(fun(What) ->
                          case erlang:trace_info(What, flags) of
                              {flags, [_ | _]} -> true;
                              _ -> false
                          end
                  end, [new_ports | erlang:ports()]).

%% @doc Sets a breakpoint, as trace:function/4 does.
-spec function(session(), {module(), atom(), arity() | '_'}, boolean() | list(), [atom()]) ->
          non_neg_integer().
function(none, Pattern, Match, Flags) -> erlang:trace_pattern(Pattern, Match, Flags);
function(Session, Pattern, Match, Flags) -> trace(function, [Session, Pattern, Match, Flags]).

%% @doc What a breakpoint has counted, as trace:info/3.
-spec info(session(), mfa(), atom()) -> {atom(), term()} | undefined.
info(none, Function, Item) -> erlang:trace_info(Function, Item);
info(Session, Function, Item) -> trace(info, [Session, Function, Item]).

%% @doc Switches off what was switched on, and nothing else: flags of a process that somebody else
%% traces by now are not changed by this.
-spec clear(session(), all | [pid()], Flags :: [atom()],
            [{Pattern :: tuple(), Kinds :: [atom()]}]) -> ok.
clear(none, Procs, Flags, Patterns) ->
    off(none, Procs, Flags),
    lists:foreach(fun({Pattern, Kinds}) -> erlang:trace_pattern(Pattern, false, Kinds) end,
                  Patterns);
clear(Session, _Procs, _Flags, _Patterns) ->
    _ = trace(session_destroy, [Session]),
    ok.

%% @doc Switches the flags of processes off. When the message `{trace_delivered, _, Reference}'
%% comes all events from before have been delivered.
-spec stop(session(), all | [pid()], Flags :: [atom()]) -> reference().
stop(none, Procs, Flags) ->
    off(none, Procs, Flags),
    erlang:trace_delivered(all);
stop(Session, Procs, Flags) ->
    off(Session, Procs, Flags),
    trace(delivered, [Session, all]).

off(Session, Procs, Flags) ->
    Whom = case Procs of
               all -> [all];
               _ -> [Pid || Pid <- Procs, is_process_alive(Pid)]
           end,
    %% One may end meanwhile.
    _ = [try flags(Session, What, false, Flags) catch error:badarg -> 0 end || What <- Whom],
    ok.

%% @doc The name of a module's source, without its directory.
-spec file(module()) -> binary().
file(M) ->
    try proplists:get_value(source, M:module_info(compile)) of
        [_ | _] = Source -> unicode:characters_to_binary(filename:basename(Source));
        _ -> <<>>
    catch
        _:_ -> <<>>
    end.

%% @doc A text, as profiles have them.
-spec text(io:format(), [term()]) -> binary().
text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).
