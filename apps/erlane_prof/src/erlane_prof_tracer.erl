%% SPDX-License-Identifier: Apache-2.0
%% @doc A tracer, as erl_tracer has it, in native code: the VM calls it for each event, which it
%% puts into a buffer of the thread that it is called by. A buffer that is full takes no more until
%% it is half empty; what it did not take is counted. c_src/erlane_ring.h draws how that works.
%%
%% Does not travel: it is used by erlane_prof_trace_native where a node has this app. Where the
%% native code cannot be loaded all functions raise `not_loaded'.
-module(erlane_prof_tracer).

-export([enabled/3, trace/5]).
-export([format/0, open/1, close/1, now/0, key/1, info/1, read/1]).

-on_load(load/0).

-nifs([enabled/3, trace/5, format/0, open/1, close/1, now/0, key/1, info/1, read/1]).

-export_type([trace/0]).

-type trace() :: reference().

%% It is no error that a node has no native code of ours: then a trace goes another way.
load() ->
    _ = case priv_dir() of
            none -> ok;
            Dir -> erlang:load_nif(filename:join(Dir, "erlane_prof_nif"), 0)
        end,
    ok.

%% Beside our own beam, also where no application path is known (a plain -pa).
priv_dir() ->
    case code:priv_dir(erlane_prof) of
        {error, bad_name} ->
            case code:which(?MODULE) of
                [_ | _] = File -> filename:join(filename:dirname(filename:dirname(File)), "priv");
                _ -> none
            end;
        Dir -> Dir
    end.

%% @doc The VM asks: the trace is not over yet?
-spec enabled(Tag :: atom(), trace(), Tracee :: pid() | port()) -> trace | remove.
enabled(_Tag, _Trace, _Tracee) -> erlang:nif_error(not_loaded).

%% @doc The VM tells an event.
-spec trace(Tag :: atom(), trace(), Tracee :: pid() | port(), term(), map()) -> ok.
trace(_Tag, _Trace, _Tracee, _Term, _Options) -> erlang:nif_error(not_loaded).

%% @doc Which format {@link read/1} has.
-spec format() -> pos_integer().
format() -> erlang:nif_error(not_loaded).

%% @doc A trace, whose buffers have so many bytes for each thread that has events. `badarg' if
%% there is no memory. It is gone when nobody has it any more, tracing included.
-spec open(Bytes :: non_neg_integer()) -> trace().
open(_Bytes) -> erlang:nif_error(not_loaded).

%% @doc No more events from here on, whatever is still traced. What there is can be read.
-spec close(trace()) -> ok.
close(_Trace) -> erlang:nif_error(not_loaded).

%% @doc Nanoseconds of the clock of all traces, that of `CLOCK_MONOTONIC'.
-spec now() -> non_neg_integer().
now() -> erlang:nif_error(not_loaded).

%% @doc A local process or port as events have it.
-spec key(pid() | port()) -> non_neg_integer().
key(_Who) -> erlang:nif_error(not_loaded).

%% @doc How many events were taken, how many were not, and how full the fullest buffer is.
-spec info(trace()) -> {Events :: non_neg_integer(), Lost :: non_neg_integer(), Percent :: 0..100}.
info(_Trace) -> erlang:nif_error(not_loaded).

%% @doc The next bytes, at most 200 KB, none if there is nothing now; `busy' if another process
%% reads the same trace. Events of a process come in their order. erlane_prof_trace_records reads
%% them.
-spec read(trace()) -> binary() | busy.
read(_Trace) -> erlang:nif_error(not_loaded).
