%% SPDX-License-Identifier: Apache-2.0
%% Traces made by hand, as the VM would write them, and what becomes of them.
-module(erlane_prof_trace_ct).

-export([file/1, record/1, pid/1, rows/1, rows/2, rows/3, converted/2, about/1, pieces/2]).

%% A trace of terms `{Who, Kind, ..., Time}', where `Who' is a small number, or `{port, N}', and a
%% function of module m is `f' or `{m, f, 1}'.
file(Events) ->
    iolist_to_binary([record(message(Event)) || Event <- Events]).

record(Term) ->
    Bytes = term_to_binary(Term),
    <<0, (byte_size(Bytes)):32, Bytes/binary>>.

message({{port, N}, open, Name, Ts}) -> {trace_ts, port(N), open, pid(1), Name, Ts};
message({{port, N}, Kind, What, Ts}) -> {trace_ts, port(N), Kind, What, Ts};
message({Who, call, F, none, Ts}) -> {trace_ts, pid(Who), call, mfa(F), undefined, Ts};
message({Who, call, F, top, Ts}) -> {trace_ts, pid(Who), call, mfa(F), Ts};
message({Who, call, F, Caller, Ts}) -> {trace_ts, pid(Who), call, mfa(F), mfa(Caller), Ts};
message({Who, return_to, none, Ts}) -> {trace_ts, pid(Who), return_to, undefined, Ts};
message({Who, spawned, F, Args, Ts}) ->
    {M, Name, _} = mfa(F),
    {trace_ts, pid(Who), spawned, pid(1), {M, Name, Args}, Ts};
message({Who, gc, Kind, Ts}) -> {trace_ts, pid(Who), Kind, [{heap_size, 1}], Ts};
message({Who, send, Message, Ts}) -> {trace_ts, pid(Who), send, Message, pid(2), Ts};
message({Who, 'receive', Message, Ts}) -> {trace_ts, pid(Who), 'receive', Message, Ts};
message({Who, out_exited, Ts}) -> {trace_ts, pid(Who), out_exited, 0, Ts};
message({Who, Kind, F, Ts}) -> {trace_ts, pid(Who), Kind, mfa(F), Ts};
message(Term) -> Term.

mfa({_, _, _} = Mfa) -> Mfa;
mfa(F) -> {m, F, 1}.

port(N) -> list_to_port("#Port<0." ++ integer_to_list(N) ++ ">").

pid(N) -> list_to_pid("<0." ++ integer_to_list(1000 + N) ++ ".0>").

%% All of module m is traced, process 1 is known as p1, the others are not. The clock begins at 0
%% and counts nanoseconds.
about(Bytes) ->
    #{began => 0, ended => unknown, own => [key(99)], bytes => Bytes,
      labels => [{key(1), {<<"p1">>, undefined}}]}.

key(N) -> 1000 + N.

%% `{Proc, State, Functions, [Ns, Calls]}' of each row.
rows(Events) -> rows(Events, [m]).

rows(Events, Patterns) -> rows(Events, Patterns, #{}).

rows(Events, Patterns, About) ->
    Bytes = file(Events),
    State = converted([Bytes], {maps:merge(about(byte_size(Bytes)), About), Patterns}),
    lists:sort(erlane_prof_trace_profile:rows(fun row/2, [], State)).

row(#{proc := Proc, state := State, stack := Stack, values := Values}, Acc) ->
    [{Proc, State, [name(Frame) || Frame <- Stack], Values} | Acc].

name({m, F, 1, _, _}) -> F;
name({M, F, A, _, _}) -> {M, F, A};
name(Text) -> Text.

converted(Pieces, {About, Patterns}) ->
    New = erlane_prof_trace_profile:new(About, Patterns, false),
    erlane_prof_trace_profile:finish(lists:foldl(fun erlane_prof_trace_profile:piece/2, New,
                                                 Pieces)).

%% In pieces of a size.
pieces(Size, Bytes) when byte_size(Bytes) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Bytes,
    [Piece | pieces(Size, Rest)];
pieces(_Size, Bytes) -> [Bytes].
