%% SPDX-License-Identifier: Apache-2.0
%% @doc Calls and time, or words allocated, of named functions, by the counters of the VM. Runs on
%% the node that is looked at, as the worker of erlane_prof_agent. No message is made for a call;
%% what is counted is read once, at the end.
-module(erlane_prof_counts).

-export([prepare/1, undo/1, work/2, who/1]).

%% Reading the counters of a function stops all schedulers for a moment before ERTS 17.
-define(FUNCTIONS, 1000).
-define(TURN, 10).
-define(PAUSE_MS, 5).
-define(STATS_MS, 500).

%% `open': messages that were not answered yet. `turn': what is looked at next, `seen' what was.
-record(c, {began, open = 0, functions, turn, seen = #{}, calls = 0}).

%% @doc Switches the counters on. The text says why not.
-spec prepare(erlane_prof_agent:options()) ->
          {ok, [erlane_prof_agent:undo()], term()} | {error, unicode:chardata()}.
prepare(#{mode := Mode, functions := Wanted} = Options) ->
    try
        Flag = flag(Mode),
        {Patterns, Functions} = erlane_prof_session:functions(Wanted),
        length(Functions) =< ?FUNCTIONS
            orelse throw(text("~b functions are too many: ~b at most, as reading each stops all "
                              "schedulers for a moment", [length(Functions), ?FUNCTIONS])),
        Procs = erlane_prof_session:procs(maps:get(procs, Options, all)),
        Session = erlane_prof_session:create(self(), Functions),
        Undo = {Session, Flag, Patterns, Procs},
        try
            ok = erlane_prof_session:process(Session, Procs, true, [call]),
            _ = [erlane_prof_session:function(Session, Pattern, true, [Flag])
                 || Pattern <- Patterns],
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
    case erlane_prof_session:release() >= 26 of
        true -> call_memory;
        false -> throw("counting words needs OTP 26")
    end.

%% @doc Switches off what was switched on, and nothing else.
-spec undo(term()) -> ok.
undo({Session, Flag, Patterns, Procs}) ->
    erlane_prof_session:clear(Session, Procs, [call], [{Pattern, [Flag]} || Pattern <- Patterns]).

%% @doc Waits until told to finish, and hands over what was counted.
-spec work(term(), map()) -> no_return().
work({_, _, Functions} = Prepared, Options) ->
    wait(Prepared, Options, #c{began = erlang:monotonic_time(nanosecond), turn = Functions,
                               functions = Functions}).

wait(Prepared, #{to := To, guard := Guard, clean := Clean, undo := Undo} = Options,
     #c{open = Open} = C) ->
    receive
        finish ->
            finish(time, Prepared, Options, C);
        credit ->
            wait(Prepared, Options, C#c{open = Open - 1});
        {'EXIT', Guard, _} ->
            Clean(Undo),
            exit(shutdown);
        _ ->
            wait(Prepared, Options, C)
    after ?STATS_MS ->
        case look(Prepared, C) of
            #c{calls = Calls} = C1 when Calls >= map_get(events, Options) ->
                finish(events, Prepared, Options, C1);
            C1 when Open =:= 0 ->
                case erlane_prof_agent:send(To, {rows, self(), [], [], stats(C1)}) of
                    ok -> wait(Prepared, Options, C1#c{open = 1});
                    _ -> wait(Prepared, Options, C1)
                end;
            C1 ->
                wait(Prepared, Options, C1)
        end
    end.

%% Some functions in turn, so that the schedulers are stopped seldom: the limit is seen when most of
%% what is counted has been looked at.
look(_Prepared, #c{functions = []} = C) ->
    C;
look(Prepared, #c{turn = [], functions = Functions} = C) ->
    look(Prepared, C#c{turn = Functions});
look({Session, Flag, _}, #c{turn = Turn, seen = Seen0} = C) ->
    {Now, Later} = lists:split(min(?TURN, length(Turn)), Turn),
    Seen = lists:foldl(fun(F, Seen) ->
                               case erlane_prof_session:info(Session, F, Flag) of
                                   {Flag, [_ | _] = List} ->
                                       Seen#{F => lists:sum([element(2, E) || E <- List])};
                                   _ -> Seen
                               end
                       end, Seen0, Now),
    C#c{turn = Later, seen = Seen, calls = lists:sum(maps:values(Seen))}.

stats(#c{began = Began, calls = Calls}) ->
    #{events => Calls, lost => 0, ns => erlang:monotonic_time(nanosecond) - Began}.

-spec finish(time | events, term(), map(), #c{}) -> no_return().
finish(Why, {Session, Flag, Functions}, #{to := To}, #c{open = Open} = C) ->
    Stats = stats(C),
    Counted = read(Functions, Session, Flag, 1, []),
    {Rows, Stacks} = rows(Counted, Flag, #{}, #{}, []),
    Calls = lists:sum([Count || {_, _, _, _, [_, Count]} <- Rows]),
    Done = Stats#{events := Calls},
    ok = erlane_prof_agent:hand_over(To, {rows, self(), Rows, Stacks, Done}),
    returned(Open + 1),
    exit({done, Why, Done}).

%% The guard's patience is the limit.
returned(0) -> ok;
returned(Open) -> receive credit -> returned(Open - 1) end.

read([Function | Functions], Session, Flag, N, Counted) ->
    case N rem ?TURN of
        0 -> receive after ?PAUSE_MS -> ok end;
        _ -> ok
    end,
    case erlane_prof_session:info(Session, Function, Flag) of
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
               #{} -> erlane_prof_session:file(M)
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

%% @doc The label and the application of a process, as far as they are told in place, so that
%% nobody is waited for.
-spec who(pid()) -> {binary(), undefined}.
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

text(Format, Args) ->
    erlane_prof_session:text(Format, Args).
