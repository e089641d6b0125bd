%% SPDX-License-Identifier: Apache-2.0
%% @doc Brings the events of a trace to a file by erlane_prof_tracer, which is native code that
%% the node must have: it is half the cost of the VM's port or less, and its memory is bounded. What
%% its buffers do not hold is dropped and counted. Runs on the node that is looked at, with
%% erlane_prof_trace.
-module(erlane_prof_trace_native).

-export([there/0, open/2, tracer/1, ports/1, close/1, format/0, now/0, key/1]).
-export([attach/2, look_ms/0, look/1, told/2, counts/1, rest/1]).

-export_type([sink/0]).

%% That of the bytes, as erlane_prof_trace_records reads them.
-define(FORMAT, 2).
%% A buffer holds some tens of milliseconds of the most events that there can be.
-define(LOOK_MS, 10).
-define(FULL, 20).
%% All buffers together, and each of them.
-define(MEMORY, (64 bsl 20)).
-define(MOST, (8 bsl 20)).
-define(LEAST, (256 bsl 10)).

%% `gone' is why there are no more events than those of the file.
-record(sink, {trace, fd, counts = {0, 0}, size = 0, gone = none}).

-opaque sink() :: #sink{}.

%% @doc Has this node what is needed?
-spec there() -> boolean().
there() ->
    case code:ensure_loaded(erlane_prof_tracer) of
        {module, _} ->
            try erlane_prof_tracer:format() =:= ?FORMAT
            catch
                %% Without its native code, or something else of the same name.
                error:_ -> false
            end;
        {error, _} -> false
    end.

%% @doc A trace. `buffer' is how many bytes each thread has.
-spec open(file:name(), map()) -> erlane_prof_tracer:trace().
open(_File, Options) ->
    Each = ?MEMORY div erlang:system_info(schedulers),
    erlane_prof_tracer:open(maps:get(buffer, Options, min(?MOST, max(?LEAST, Each)))).

%% @doc What the VM tells events to.
-spec tracer(erlane_prof_tracer:trace()) -> {module(), erlane_prof_tracer:trace()}.
tracer(Trace) -> {erlane_prof_tracer, Trace}.

%% @doc No more events are taken. One that was unloaded takes none.
-spec close(erlane_prof_tracer:trace()) -> ok.
close(Trace) ->
    try erlane_prof_tracer:close(Trace)
    catch error:_ -> ok
    end.

%% @doc What the file is: see erlane_prof_trace_profile.
-spec format() -> native.
format() -> native.

%% @doc The clock of the events, in nanoseconds. The node may have unloaded what knows it.
-spec now() -> integer() | unknown.
now() ->
    try erlane_prof_tracer:now()
    catch error:_ -> unknown
    end.

%% @doc A process or a port as the file has it.
-spec key(pid() | port()) -> erlane_prof_trace_read:who() | unknown.
key(Who) ->
    try erlane_prof_tracer:key(Who) of
        Key when is_port(Who) -> {port, Key};
        Key -> Key
    catch
        error:_ -> unknown
    end.

%% @doc The ports that are ours.
-spec ports(erlane_prof_tracer:trace()) -> [].
ports(_Trace) -> [].

%% @doc The worker begins to look. It reads from the descriptor when the trace is over.
-spec attach(erlane_prof_tracer:trace(), file:name()) -> {file:fd(), sink()}.
attach(Trace, File) ->
    {ok, Fd} = file:open(File, [read, write, raw, binary]),
    {Fd, #sink{trace = Trace, fd = Fd}}.

%% @doc How often it is to look.
-spec look_ms() -> pos_integer().
look_ms() -> ?LOOK_MS.

%% @doc Writes what there is if a buffer is getting full, so that a short trace is not disturbed.
-spec look(sink()) -> {ok, sink()} | {stop, Why :: term(), sink()}.
look(#sink{gone = none, trace = Trace} = S) ->
    try
        {Events, Lost, Fill} = erlane_prof_tracer:info(Trace),
        S1 = S#sink{counts = {Events, Lost}},
        case Fill >= ?FULL of
            true -> written(S1);
            false -> {ok, S1}
        end
    catch
        error:_ -> gone(unloaded, S)
    end;
look(S) ->
    {ok, S}.

gone(Why, S) ->
    {stop, Why, S#sink{gone = Why}}.

%% What comes meanwhile is for the next time.
written(S) -> written(100, S).

written(0, S) ->
    {ok, S};
written(N, #sink{trace = Trace, fd = Fd, size = Size} = S) ->
    case erlane_prof_tracer:read(Trace) of
        <<_, _/binary>> = Bytes ->
            case file:write(Fd, Bytes) of
                ok -> written(N - 1, S#sink{size = Size + byte_size(Bytes)});
                {error, Reason} -> gone({file, Reason}, S)
            end;
        _ ->
            {ok, S}
    end.

%% @doc A message that the worker got.
-spec told(term(), sink()) -> {ok, sink()}.
told(_, S) -> {ok, S}.

%% @doc Events, those that were dropped, and bytes of the file.
-spec counts(sink()) -> {non_neg_integer(), non_neg_integer(), non_neg_integer()}.
counts(#sink{counts = {Events, Lost}, size = Size}) -> {Events, Lost, Size}.

%% @doc It was closed: writes what there is. Is that all, or why not?
-spec rest(sink()) -> {true | {false, Why :: told | unloaded | {file, term()}}, sink()}.
rest(#sink{gone = none, trace = Trace} = S) ->
    try
        {Events, Lost, _} = erlane_prof_tracer:info(Trace),
        all(S#sink{counts = {Events, Lost}})
    catch
        error:_ -> {{false, unloaded}, S}
    end;
rest(S) ->
    {{false, told}, S}.

all(#sink{size = Before} = S) ->
    case written(S) of
        {ok, #sink{size = Before} = Done} -> {true, Done};
        {ok, More} -> all(More);
        {stop, Why, Stopped} -> {{false, Why}, Stopped}
    end.
