%% SPDX-License-Identifier: Apache-2.0
%% @doc Calls and time, or words allocated, of named functions, by the counters of the VM. Runs on
%% the node that is looked at, as the worker of erlane_prof_agent. No message is made for a call;
%% what is counted is read once, at the end.
%%
%% From OTP 27 on it is a trace session of our own. Before, tracing is one for the whole node: it is
%% refused if anybody traces, and only what was set is cleared.
-module(erlane_prof_counts).

-export([prepare/1, undo/1, work/2]).

%% Reading the counters of a function stops all schedulers for a moment before ERTS 17.
-define(FUNCTIONS, 1000).
-define(TURN, 10).
-define(PAUSE_MS, 5).
-define(STATS_MS, 500).

%% @doc Switches the counters on. The text says why not.
-spec prepare(erlane_prof_agent:options()) ->
          {ok, [erlane_prof_agent:undo()], term()} | {error, unicode:chardata()}.
prepare(#{mode := Mode, functions := Wanted} = Options) ->
    try
        Flag = flag(Mode),
        Patterns = [pattern(Function) || Function <- Wanted],
        Functions = lists:usort(lists:append([functions(P) || P <- Patterns])),
        length(Functions) =< ?FUNCTIONS
            orelse throw(text("~b functions are too many: ~b at most, as reading each stops all "
                              "schedulers for a moment", [length(Functions), ?FUNCTIONS])),
        Procs = procs(maps:get(procs, Options, all)),
        Session = session(Functions),
        Undo = {Session, Flag, Patterns, Procs},
        try
            _ = case Procs of
                    all -> process(Session, all);
                    _ -> [1 = process(Session, Pid) || Pid <- Procs]
                end,
            _ = [set(Session, Pattern, true, Flag) || Pattern <- Patterns],
            {ok, [{undo, ?MODULE, Undo}], {Session, Flag, Functions}}
        catch
            Class:Reason:Stack ->
                undo(Undo),
                erlang:raise(Class, Reason, Stack)
        end
    catch
        throw:Why -> {error, Why};
        error:badarg -> {error, "a process to look at has ended, or is traced by somebody"}
    end.

flag(time) ->
    call_time;
flag(memory) ->
    case release() >= 26 of
        true -> call_memory;
        false -> throw("counting words needs OTP 26")
    end.

release() ->
    list_to_integer(erlang:system_info(otp_release)).

pattern({M, F, A}) -> {M, F, A};
pattern(M) -> {M, '_', '_'}.

functions({M, F, A} = Pattern) ->
    erlang:module_loaded(M) orelse throw(text("module ~tw is not loaded", [M])),
    Found = [{M, F1, A1} || {F1, A1} <- M:module_info(functions),
                            F =:= '_' orelse F =:= F1, A =:= '_' orelse A =:= A1],
    Found =/= [] orelse throw(text("there is no function ~tw:~tw/~w", tuple_to_list(Pattern))),
    Found.

procs(all) ->
    all;
procs(List) ->
    case [Pid || P <- List, Pid <- [pid(P)], is_pid(Pid)] of
        [] -> throw("none of the processes is there");
        Pids -> lists:usort(Pids)
    end.

pid(Pid) when is_pid(Pid) -> Pid;
pid(Name) -> whereis(Name).

session(Functions) ->
    case release() >= 27 of
        true ->
            trace(session_create, [erlane_prof, self(), []]);
        false ->
            Others = [Pid || Pid <- erlang:processes(), {trace, N} <- [traced(Pid)], N =/= 0],
            Others =:= [] andalso erlang:trace_info(new_processes, flags) =:= {flags, []}
                orelse throw("somebody traces processes, which OTP 27 and newer would allow"),
            [throw(text("somebody traces ~tw:~tw/~w, which OTP 27 and newer would allow",
                        tuple_to_list(Function)))
             || Function <- Functions, erlang:trace_info(Function, traced) =/= {traced, false}
                    orelse erlang:trace_info(Function, call_time) =/= {call_time, false}
                    orelse erlang:trace_info(Function, call_count) =/= {call_count, false}],
            none
    end.

%% Of one that runs nothing is read, as it may not answer.
traced(Pid) ->
    case process_info(Pid, status) of
        {_, waiting} -> process_info(Pid, trace);
        _ -> undefined
    end.

%% By name, as the module is not there before OTP 27.
trace(Function, Args) ->
    apply(list_to_existing_atom("trace"), Function, Args).

process(none, What) -> erlang:trace(What, true, [call]);
process(Session, What) -> trace(process, [Session, What, true, [call]]).

set(none, Pattern, Value, Flag) -> erlang:trace_pattern(Pattern, Value, [Flag]);
set(Session, Pattern, Value, Flag) -> trace(function, [Session, Pattern, Value, [Flag]]).

info(none, Function, Flag) -> erlang:trace_info(Function, Flag);
info(Session, Function, Flag) -> trace(info, [Session, Function, Flag]).

%% @doc Switches off what was switched on, and nothing else: flags of a process that somebody else
%% traces by now are not changed by this.
-spec undo(term()) -> ok.
undo({none, Flag, Patterns, Procs}) ->
    Whom = case Procs of
               all -> [all];
               _ -> [Pid || Pid <- Procs, is_process_alive(Pid)]
           end,
    %% One may end meanwhile.
    _ = [try erlang:trace(What, false, [call]) catch error:badarg -> 0 end || What <- Whom],
    lists:foreach(fun(Pattern) -> set(none, Pattern, false, Flag) end, Patterns);
undo({Session, _Flag, _Patterns, _Procs}) ->
    _ = trace(session_destroy, [Session]),
    ok.

%% @doc Waits until told to finish, and hands over what was counted.
-spec work(term(), map()) -> no_return().
work(Prepared, Options) ->
    wait(Prepared, Options, erlang:monotonic_time(nanosecond), 0).

wait(Prepared, #{to := To, guard := Guard, clean := Clean, undo := Undo} = Options, Began, Open) ->
    receive
        finish ->
            finish(Prepared, Options, Began, Open);
        credit ->
            wait(Prepared, Options, Began, Open - 1);
        {'EXIT', Guard, _} ->
            Clean(Undo),
            exit(shutdown);
        _ ->
            wait(Prepared, Options, Began, Open)
    after ?STATS_MS ->
        Sent = case Open of
                   0 -> erlane_prof_agent:send(To, {rows, self(), [], [], stats(0, Began)});
                   _ -> late
               end,
        wait(Prepared, Options, Began, case Sent of ok -> 1; _ -> Open end)
    end.

stats(Events, Began) ->
    #{events => Events, lost => 0, ns => erlang:monotonic_time(nanosecond) - Began}.

-spec finish(term(), map(), integer(), non_neg_integer()) -> no_return().
finish({Session, Flag, Functions}, #{to := To}, Began, Open) ->
    Stats = stats(0, Began),
    Counted = read(Functions, Session, Flag, 1, []),
    {Rows, Stacks} = rows(Counted, Flag, #{}, #{}, []),
    Calls = lists:sum([Count || {_, _, _, _, [_, Count]} <- Rows]),
    Done = Stats#{events := Calls},
    ok = hand_over(To, {rows, self(), Rows, Stacks, Done}),
    returned(Open + 1),
    exit({done, time, Done}).

hand_over(To, Message) ->
    case erlane_prof_agent:send(To, Message) of
        nosuspend -> receive after 20 -> hand_over(To, Message) end;
        _ -> ok
    end.

%% The guard's patience is the limit.
returned(0) -> ok;
returned(Open) -> receive credit -> returned(Open - 1) end.

read([Function | Functions], Session, Flag, N, Counted) ->
    case N rem ?TURN of
        0 -> receive after ?PAUSE_MS -> ok end;
        _ -> ok
    end,
    case info(Session, Function, Flag) of
        {Flag, [_ | _] = List} ->
            read(Functions, Session, Flag, N + 1, [{Function, List} | Counted]);
        _ ->
            read(Functions, Session, Flag, N + 1, Counted)
    end;
read([], _Session, _Flag, _N, Counted) ->
    Counted.

rows([{{M, F, A}, List} | Counted], Flag, Who, Files, Rows) ->
    File = case Files of
               #{M := Known} -> Known;
               #{} -> file(M)
           end,
    Stack = {M, F, A, File, 0},
    {Rows1, Who1} = lists:foldl(fun(Entry, {R, W}) -> row(Entry, Flag, Stack, R, W) end,
                                {Rows, Who}, List),
    rows(Counted, Flag, Who1, Files#{M => File}, Rows1);
rows([], _Flag, _Who, _Files, Rows) ->
    Frames = lists:usort([Frame || {_, _, _, Frame, _} <- Rows]),
    Ids = maps:from_list(lists:zip(Frames, lists:seq(1, length(Frames)))),
    {[setelement(4, Row, maps:get(element(4, Row), Ids)) || Row <- Rows],
     [{Id, [Frame]} || {Frame, Id} <- maps:to_list(Ids)]}.

row({Pid, Calls, S, Us}, call_time, Stack, Rows, Who) ->
    counted(Pid, [(S * 1000000 + Us) * 1000, Calls], Stack, Rows, Who);
row({Pid, Calls, Words}, call_memory, Stack, Rows, Who) ->
    counted(Pid, [Words, Calls], Stack, Rows, Who).

counted(Pid, Values, Stack, Rows, Who0) ->
    Who = case Who0 of
              #{Pid := _} -> Who0;
              #{} -> Who0#{Pid => who(Pid)}
          end,
    #{Pid := {Proc, App}} = Who,
    {[{Proc, App, any, Stack, Values} | Rows], Who}.

%% What is told in place, so that nobody is waited for.
who(Pid) ->
    case process_info(Pid, status) of
        {_, waiting} ->
            case process_info(Pid, [registered_name, initial_call]) of
                [{_, []}, {_, {M, F, A}}] -> {text("~tw:~tw/~w", [M, F, A]), undefined};
                [{_, Name}, _] -> {atom_to_binary(Name), undefined};
                undefined -> {<<"[ended]">>, undefined}
            end;
        undefined ->
            {<<"[ended]">>, undefined};
        _ ->
            %% One that runs would have to answer.
            {busy(Pid, [Name || Name <- registered(), whereis(Name) =:= Pid]), undefined}
    end.

busy(_Pid, [Name | _]) -> atom_to_binary(Name);
busy(_Pid, []) -> <<"[running]">>.

file(M) ->
    try proplists:get_value(source, M:module_info(compile)) of
        [_ | _] = Source -> unicode:characters_to_binary(filename:basename(Source));
        _ -> <<>>
    catch
        _:_ -> <<>>
    end.

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).
