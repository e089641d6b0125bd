%% SPDX-License-Identifier: Apache-2.0
%% @doc Bytes of erlane_prof_tracer as events: the same as erlane_prof_trace_read makes of the VM's
%% file. Pure; fed in pieces of any size.
%%
%% An event is `<<Kind, Function:24, ReturnsTo:32, Who:64, Ns:64>>'. Functions are numbers, 0 for
%% none. Before its first use each has its name: `<<1, Function:24, Size:32, Name:Size/binary>>',
%% where the name is {Module, Function, Arity} in the external format, as the VM's file has it.
-module(erlane_prof_trace_records).

-export([new/0, feed/4, finish/1]).

-export_type([reader/0]).

%% What was fed and is no whole event yet, how many bytes were read before it, names, and the byte
%% at which there is something that is no event.
-record(reader, {rest = <<>>, read = 0, names = #{}, bad = none}).

-opaque reader() :: #reader{}.

-define(NAME, 1).
%% Nothing longer than the names of two atoms.
-define(MOST, 4096).

%% @doc A reader that has read nothing.
-spec new() -> reader().
new() -> #reader{}.

%% @doc Calls `Fun(Event, State)' for each event that is complete with these bytes.
-spec feed(binary(), fun((erlane_prof_trace_read:event(), State) -> State), State, reader()) ->
          {State, reader()}.
feed(Bytes, Fun, State, #reader{rest = Rest, read = Read, names = Names, bad = none}) ->
    Whole = case Rest of
                <<>> -> Bytes;
                _ -> <<Rest/binary, Bytes/binary>>
            end,
    records(Whole, Fun, State, Read, Names);
feed(_Bytes, _Fun, State, Reader) ->
    {State, Reader}.

%% @doc What was left when there is no more; see erlane_prof_trace_read:finish/1.
-spec finish(reader()) -> whole | {cut, Bytes :: pos_integer()} | {damaged, At :: integer()}.
finish(#reader{bad = At}) when At =/= none -> {damaged, At};
finish(#reader{rest = <<>>}) -> whole;
finish(#reader{rest = Rest}) -> {cut, byte_size(Rest)}.

records(<<?NAME, Id:24, Size:32, Name:Size/binary, Rest/binary>>, Fun, State, Read, Names)
  when Size =< ?MOST ->
    case erlane_prof_trace_read:is_name(Name) of
        true ->
            Known = Names#{Id => binary:copy(Name)},
            records(Rest, Fun, State, Read + 8 + Size, Known);
        false ->
            bad(State, Read)
    end;
records(<<Kind, F:24, Caller:32, Who:64, Ns:64, Rest/binary>>, Fun, State, Read, Names)
  when Kind > ?NAME ->
    case event(Kind, Who, name(F, Names), name(Caller, Names), Ns) of
        bad -> bad(State, Read);
        Event -> records(Rest, Fun, Fun(Event, State), Read + 24, Names)
    end;
records(<<?NAME, _:24, Size:32, _/binary>>, _Fun, State, Read, _Names) when Size > ?MOST ->
    bad(State, Read);
records(<<0, _/binary>>, _Fun, State, Read, _Names) ->
    bad(State, Read);
records(Rest, _Fun, State, Read, Names) ->
    {State, #reader{rest = binary:copy(Rest), read = Read, names = Names}}.

bad(State, Read) ->
    {State, #reader{read = Read, bad = Read}}.

name(0, _Names) -> none;
name(Id, Names) ->
    case Names of
        #{Id := Name} -> Name;
        #{} -> bad
    end.

event(_Kind, _Who, F, Caller, _Ns) when F =:= bad; Caller =:= bad -> bad;
event(2, Who, F, Caller, Ns) when F =/= none -> {call, Who, F, Caller, Ns};
event(3, Who, F, none, Ns) when F =/= none -> {call, Who, F, top, Ns};
event(4, Who, F, none, Ns) -> {return_to, Who, F, Ns};
event(5, Who, F, none, Ns) -> {sched, Who, in, F, Ns};
event(6, Who, F, none, Ns) -> {sched, Who, out, F, Ns};
event(7, Who, none, none, Ns) -> {sched, Who, exited, none, Ns};
event(8, Who, F, none, Ns) -> {spawned, Who, F, Ns};
event(9, Who, none, none, Ns) -> {gc, Who, begins, Ns};
event(10, Who, none, none, Ns) -> {gc, Who, ends, Ns};
event(11, Who, none, none, Ns) -> {sent, Who, Ns};
event(12, Who, none, none, Ns) -> {received, Who, Ns};
event(13, Who, none, none, Ns) -> {other, Who, Ns};
event(14, Who, F, none, Ns) -> {task, {port, Who}, begins, F, Ns};
event(15, Who, F, none, Ns) -> {task, {port, Who}, ends, F, Ns};
event(16, Who, F, none, Ns) -> {opened, {port, Who}, F, Ns};
event(17, Who, none, none, Ns) -> {closed, {port, Who}, Ns};
event(18, Who, none, none, Ns) -> {other, {port, Who}, Ns};
event(_, _, _, _, _) -> bad.
