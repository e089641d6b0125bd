%% SPDX-License-Identifier: Apache-2.0
%% @doc How long calls of a few functions take, by tracing when they begin and when they return.
%% Runs on the node that is looked at, as the worker of erlane_prof_agent, which is the tracer.
%%
%% Returns are seen by `return_to': the message has neither arguments nor the value that is
%% returned, which could be of any size, and functions that end in a call stay as they are, so
%% that the loop of a server does not grow.
-module(erlane_prof_latency).

-export([prepare/1, undo/1, work/2]).

-define(FUNCTIONS, 16).
%% A function in which so many processes are at the same time is dropped.
-define(OPEN, 1000).
%% More messages than these waiting: calls come faster than they can be counted.
-define(QUEUE, 10000).
-define(TURN, 1000).
-define(FLUSH_MS, 500).
-define(SLOWEST, 5).
%% So many callers of a function are told apart.
-define(CALLERS, 50).
-define(FLAGS, [call, return_to, arity, monotonic_timestamp]).

%% Of a function: `callers' to calls and nanoseconds, `slowest' is sorted, the fastest first.
-record(f, {histogram = #{}, ns = 0, min, max = 0, callers = #{}, slowest = [], dropped = false}).
-record(l, {to, guard, clean, undo, limit, session, functions, files, open, began, epoch, next,
            credit = 1, events = 0, joined = 0, gone = 0, turn = 0}).

%% @doc Switches the tracing on; the worker gets its messages. The text says why not.
-spec prepare(erlane_prof_agent:options()) ->
          {ok, [erlane_prof_agent:undo()], term()} | {error, unicode:chardata()}.
prepare(#{functions := Wanted, worker := Worker} = Options) ->
    try
        {_, Functions} = erlane_prof_session:functions(Wanted),
        length(Functions) =< ?FUNCTIONS
            orelse throw(erlane_prof_session:text(
                           "~b functions are too many: ~b at most, each by its name",
                           [length(Functions), ?FUNCTIONS])),
        Procs = erlane_prof_session:procs(maps:get(procs, Options, all)),
        Session = erlane_prof_session:create(Worker, Functions),
        Undo = {Session, Procs, Functions},
        try
            _ = [erlane_prof_session:function(Session, F, [{'_', [], [{message, {caller}}]}],
                                              [local]) || F <- Functions],
            ok = erlane_prof_session:process(Session, Procs, true, [{tracer, Worker} | ?FLAGS]),
            {ok, [{undo, ?MODULE, Undo}], {Session, Functions}}
        catch
            Class:Reason:Stack ->
                undo(Undo),
                erlang:raise(Class, Reason, Stack)
        end
    catch
        throw:Why -> {error, Why};
        error:badarg -> {error, "a process to look at has ended, or is traced by somebody"};
        error:{badmatch, 0} -> {error, "a process to look at is traced by somebody"}
    end.

%% @doc Switches off what was switched on, and nothing else.
-spec undo(term()) -> ok.
undo({Session, Procs, Functions}) ->
    erlane_prof_session:clear(Session, Procs, ?FLAGS, [{F, [local]} || F <- Functions]).

%% @doc Counts until told to finish.
-spec work(term(), map()) -> no_return().
work({Session, Functions}, #{to := To, guard := Guard, clean := Clean, undo := Undo,
                             events := Limit}) ->
    Now = erlang:monotonic_time(),
    Files = maps:from_list([{M, erlane_prof_session:file(M)} || {M, _, _} <- Functions]),
    loop(#l{to = To, guard = Guard, clean = Clean, undo = Undo, limit = Limit, session = Session,
            functions = maps:from_list([{F, #f{}} || F <- Functions]), files = Files,
            open = erlane_prof_open:new(), began = Now, next = Now + ms(?FLUSH_MS),
            epoch = os:system_time(microsecond) - erlang:convert_time_unit(Now, native,
                                                                           microsecond)}).

ms(Ms) ->
    erlang:convert_time_unit(Ms, millisecond, native).

loop(#l{turn = ?TURN} = L) ->
    turn(L#l{turn = 0});
loop(#l{turn = Turn, guard = Guard} = L) ->
    receive
        {trace_ts, Pid, call, F, Caller, At} ->
            called(Pid, F, Caller, At, L#l{turn = Turn + 1});
        {trace_ts, Pid, return_to, To, At} ->
            loop(returned(Pid, To, At, L#l{turn = Turn + 1}));
        finish ->
            finish(time, L);
        credit ->
            loop(L#l{credit = L#l.credit + 1});
        {undo, Undo} ->
            loop(L#l{undo = Undo});
        {'EXIT', Guard, _} ->
            (L#l.clean)(L#l.undo),
            exit(shutdown);
        _ ->
            loop(L)
    after max(0, (L#l.next - erlang:monotonic_time()) div ms(1) + 1) ->
        turn(L#l{turn = 0})
    end.

%% Now and then, however many calls there are.
turn(#l{next = Next} = L) ->
    {message_queue_len, Waiting} = process_info(self(), message_queue_len),
    case erlang:monotonic_time() >= Next of
        _ when Waiting > ?QUEUE -> finish(behind, L);
        true -> loop(flush(left(L)));
        false -> loop(L)
    end.

%%% Calls

called(_Pid, _F, _Caller, _At, #l{events = Limit, limit = Limit} = L) ->
    finish(events, L);
called(Pid, F, Caller, At, #l{functions = Functions, open = Open0} = L) ->
    case Functions of
        #{F := #f{dropped = false}} ->
            {What, Open} = erlane_prof_open:call(Pid, F, Caller, At, Open0),
            Joined = case What of joined -> 1; _ -> 0 end,
            L1 = L#l{open = Open, events = L#l.events + 1, joined = L#l.joined + Joined},
            case erlane_prof_open:count(F, Open) >= ?OPEN of
                true -> loop(drop(F, L1));
                false -> loop(L1)
            end;
        #{} ->
            loop(L)
    end.

drop(F, #l{functions = Functions, session = Session, open = Open} = L) ->
    _ = erlane_prof_session:function(Session, F, false, [local]),
    #{F := What} = Functions,
    L#l{functions = Functions#{F := What#f{dropped = true}}, open = erlane_prof_open:drop(F, Open)}.

returned(Pid, To, At, #l{open = Open0} = L) ->
    {Ended, Open} = erlane_prof_open:return(Pid, To, Open0),
    lists:foldl(fun(Call, Acc) -> ended(Pid, Call, At, Acc) end, L#l{open = Open}, Ended).

ended(Pid, {F, Caller, Began}, At, #l{functions = Functions} = L) ->
    Ns = erlang:convert_time_unit(At - Began, native, nanosecond),
    #{F := #f{histogram = Histogram, min = Min, max = Max, callers = Callers} = Before} = Functions,
    After = Before#f{histogram = erlane_prof_histogram:add(Ns, Histogram), ns = Before#f.ns + Ns,
                     min = min(Ns, Min), max = max(Ns, Max), callers = caller(Caller, Ns, Callers),
                     slowest = slowest({Ns, Began, Pid, Caller, unknown}, Before#f.slowest)},
    L#l{functions = Functions#{F := After}}.

caller(Caller, Ns, Callers) ->
    case Callers of
        #{Caller := {N, Sum}} -> Callers#{Caller := {N + 1, Sum + Ns}};
        #{} when map_size(Callers) < ?CALLERS -> Callers#{Caller => {1, Ns}};
        #{} -> maps:update_with(others, fun({N, Sum}) -> {N + 1, Sum + Ns} end, {1, Ns}, Callers)
    end.

slowest(Call, Slowest) when length(Slowest) < ?SLOWEST -> lists:sort([Call | Slowest]);
slowest({Ns, _, _, _, _}, [{Least, _, _, _, _} | _] = Slowest) when Ns =< Least -> Slowest;
slowest(Call, [_ | Slowest]) -> lists:sort([Call | Slowest]).

%% What a process was in when it ended has no return.
left(#l{open = Open} = L) ->
    lists:foldl(fun(Pid, #l{open = O, gone = N} = Acc) ->
                        case is_process_alive(Pid) of
                            true -> Acc;
                            false ->
                                {Calls, O1} = erlane_prof_open:gone(Pid, O),
                                Acc#l{open = O1, gone = N + length(Calls)}
                        end
                end, L, erlane_prof_open:procs(Open)).

%%% To the caller

flush(#l{credit = 0} = L) ->
    next(L);
flush(L0) ->
    L = labelled(L0),
    case erlane_prof_agent:send(L#l.to, {rows, self(), [], [], stats(L)}) of
        ok -> next(L#l{credit = L#l.credit - 1});
        _ -> next(L)
    end.

next(L) ->
    L#l{next = erlang:monotonic_time() + ms(?FLUSH_MS)}.

%% Who the slowest were is asked when there is time; one that has ended by then is nameless.
labelled(#l{functions = Functions} = L) ->
    L#l{functions = maps:map(fun(_, #f{slowest = Slowest} = F) ->
                                     F#f{slowest = [label(Call) || Call <- Slowest]}
                             end, Functions)}.

label({Ns, Began, Pid, Caller, unknown}) ->
    {Who, _} = erlane_prof_counts:who(Pid),
    {Ns, Began, Pid, Caller, Who};
label(Call) ->
    Call.

stats(#l{functions = Functions, files = Files, open = Open} = L) ->
    Told = [#{function => F, file => maps:get(M, Files), ns => What#f.ns,
              min => case What#f.min of undefined -> 0; Min -> Min end, max => What#f.max,
              buckets => maps:to_list(What#f.histogram), dropped => What#f.dropped,
              open => erlane_prof_open:count(F, Open),
              callers => [{C, N, Ns} || {C, {N, Ns}} <- maps:to_list(What#f.callers)],
              slowest => [slow(Call, L) || Call <- lists:reverse(What#f.slowest)]}
            || {{M, _, _} = F, What} <- lists:sort(maps:to_list(Functions))],
    #{events => L#l.events, lost => 0, latency => Told, joined => L#l.joined, gone => L#l.gone,
      ns => erlang:convert_time_unit(erlang:monotonic_time() - L#l.began, native, nanosecond)}.

%% `at' is in microseconds since 1970.
slow({Ns, Began, Pid, Caller, Who}, #l{epoch = Epoch}) ->
    #{ns => Ns, at => Epoch + erlang:convert_time_unit(Began, native, microsecond),
      pid => list_to_binary(pid_to_list(Pid)), caller => Caller, proc => Who}.

-spec finish(time | events | behind, #l{}) -> no_return().
finish(Why, L0) ->
    %% Nothing is taken any more, so that no queue grows while the last is sent.
    _ = [erlane_prof_session:function(L0#l.session, F, false, [local])
         || F <- maps:keys(L0#l.functions)],
    L = labelled(left(L0)),
    Stats = stats(L),
    ok = erlane_prof_agent:hand_over(L#l.to, {rows, self(), [], [], Stats}),
    wait(1 - L#l.credit, L),
    exit({done, Why, Stats}).

%% What was handed over has arrived when it was answered; the guard's patience is the limit.
wait(Open, _L) when Open < 0 ->
    ok;
wait(Open, #l{guard = Guard} = L) ->
    receive
        credit ->
            wait(Open - 1, L);
        {'EXIT', Guard, _} ->
            (L#l.clean)(L#l.undo),
            exit(shutdown)
    end.
