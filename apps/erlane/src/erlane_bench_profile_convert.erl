%% SPDX-License-Identifier: Apache-2.0
%% @doc Of the scenario `profile': a trace file made into callgrind's format the way EEP does it,
%% written anew. The client of dbg reads the file and makes a term of each event; a process for each
%% one that was traced keeps its stack, and what it knows of a frame goes to one that writes when
%% the frame is left. No mailbox has a bound.
-module(erlane_bench_profile_convert).

-export([file/1]).

-record(frame, {mfa, began, self = 0, subs = #{}}).

%% @doc Reads a file, and says how many events and calls are in it, and how long it took in
%% nanoseconds. The file that is made is removed.
-spec file(file:filename()) -> {Events :: non_neg_integer(), Calls :: non_neg_integer(),
                                Ns :: pos_integer()}.
file(File) ->
    %% A name for it: the command does without runtime_tools.
    Dbg = dbg,
    Begin = erlang:monotonic_time(nanosecond),
    Self = self(),
    Out = File ++ ".callgrind",
    Writer = spawn_link(fun() ->
                                {ok, Fd} = file:open(Out, [write, raw, binary, delayed_write]),
                                write(Fd, Self)
                        end),
    _ = Dbg:trace_client(file, File, {fun event/2, {0, #{}, Writer, Self}}),
    {Events, Children} = receive {read, N, Map} -> {N, maps:values(Map)} end,
    Calls = lists:sum([receive {Child, Made} -> Made end || Child <- Children]),
    Writer ! finish,
    receive {Writer, written} -> ok end,
    ok = file:delete(Out),
    {Events, Calls, erlang:monotonic_time(nanosecond) - Begin}.

event(end_of_trace, {Events, Children, _, Self}) ->
    maps:foreach(fun(_, Child) -> Child ! finish end, Children),
    Self ! {read, Events, Children};
event(Event, {Events, Children, Writer, Self}) when element(1, Event) =:= trace_ts ->
    Pid = element(2, Event),
    case Children of
        #{Pid := Child} ->
            Child ! Event,
            {Events + 1, Children, Writer, Self};
        #{} ->
            Child = spawn_link(fun() -> follow(Pid, Writer, Self, [], 0) end),
            Child ! Event,
            {Events + 1, Children#{Pid => Child}, Writer, Self}
    end.

%% The stack of a process, innermost frame first.
follow(Pid, Writer, Self, Stack, Calls) ->
    receive
        {trace_ts, Pid, call, Mfa, Ts} ->
            Frame = #frame{mfa = Mfa, began = us(Ts)},
            follow(Pid, Writer, Self, [Frame | ran(us(Ts), Stack)], Calls + 1);
        {trace_ts, Pid, return_to, Mfa, Ts} ->
            follow(Pid, Writer, Self, unwind(Mfa, us(Ts), ran(us(Ts), Stack), Writer), Calls);
        {trace_ts, Pid, _, _, _} ->
            follow(Pid, Writer, Self, Stack, Calls);
        finish ->
            _ = unwind(none, 0, Stack, Writer),
            Self ! {self(), Calls}
    end.

%% Time goes to the innermost.
ran(Now, [#frame{began = Began, self = Ns} = Frame | Stack]) ->
    [Frame#frame{began = Now, self = Ns + Now - Began} | Stack];
ran(_, []) ->
    [].

unwind(Mfa, _, [#frame{mfa = Mfa} | _] = Stack, _) ->
    Stack;
unwind(Mfa, Now, [#frame{mfa = Left, self = Ns} = Frame | Stack], Writer) ->
    Writer ! {bytes, text(Frame)},
    unwind(Mfa, Now, case Stack of
                         [#frame{subs = Subs} = Caller | Others] ->
                             Add = fun({N, Sum}) -> {N + 1, Sum + Ns} end,
                             [Caller#frame{subs = maps:update_with(Left, Add, {1, Ns}, Subs)}
                              | Others];
                         [] -> []
                     end, Writer);
unwind(none, _, [], _) -> [];
unwind(Mfa, Now, [], _) -> [#frame{mfa = Mfa, began = Now}].

text(#frame{mfa = Mfa, self = Ns, subs = Subs}) ->
    iolist_to_binary(["fn=", name(Mfa), "\n1 ", integer_to_binary(Ns), $\n,
                      [["cfn=", name(Sub), "\ncalls=", integer_to_binary(N), " 1\n1 ",
                        integer_to_binary(Sum), $\n] || {Sub, {N, Sum}} <- maps:to_list(Subs)]]).

name({M, F, A}) -> [atom_to_binary(M), $:, atom_to_binary(F), $/, integer_to_binary(A)];
name(undefined) -> <<"undefined">>.

us({Mega, S, Us}) -> (Mega * 1000000 + S) * 1000000 + Us.

write(Fd, Self) ->
    receive
        {bytes, Bytes} -> ok = file:write(Fd, Bytes), write(Fd, Self);
        finish -> ok = file:close(Fd), Self ! {self(), written}
    end.
