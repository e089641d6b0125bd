%% SPDX-License-Identifier: Apache-2.0
%% @doc System calls of programs, as strace counts them.
-module(erlane_bench_strace).

-export([counted/3, traced/5, summed/2]).

-export_type([result/0]).

-type result() :: {ok, #{atom() => term()}} | {error | unavailable, binary()}.

-define(ATTACH_MS, 10000).

%% @doc The system calls of programs while Fun runs, divided by the number that Fun gives.
-spec counted([erlane_bench_os:program(), ...], erlane_bench_contestant:config(),
              fun(() -> non_neg_integer())) -> result().
counted(Programs, Config, Fun) ->
    traced(Programs, ["-c"], Config, Fun,
           fun(0, _) -> {error, <<"nothing came back">>};
              (Per, Text) -> summed(table(Text), Per)
           end).

%% Rows of strace -c: share, seconds, microseconds a call, calls, perhaps errors, name.
table(Text) ->
    Rows = [string:lexemes(Line, " ") || Line <- binary:split(Text, <<"\n">>, [global])],
    [{lists:last(Row), binary_to_integer(lists:nth(4, Row))}
     || [Share | _] = Row <- Rows, length(Row) >= 5, re:run(Share, "^[0-9.]+$") =/= nomatch,
        lists:last(Row) =/= <<"total">>].

%% @doc Runs Fun while strace looks at programs, and gives its result and what strace wrote to
%% Read.
-spec traced([erlane_bench_os:program(), ...], Options :: [string()],
             erlane_bench_contestant:config(), fun(() -> Given),
             Read :: fun((Given, binary()) -> result())) -> result().
traced(Programs, Options, #{load_core := Core, tmp := Tmp}, Fun, Read) ->
    case erlane_bench_os:find("strace") of
        error ->
            {unavailable, <<"not installed: apt-get install strace">>};
        {ok, Exe} ->
            Pids = [integer_to_list(Pid) || #{pid := Pid} <- Programs],
            File = filename:join(Tmp, "strace-" ++ hd(Pids)),
            Args = Options ++ ["-f", "-o", File] ++ lists:append([["-p", Pid] || Pid <- Pids]),
            Strace = erlane_bench_os:start(Exe, Args, Core),
            Attached = unicode:characters_to_binary([Exe, ": Process "]),
            try attached(Strace, Attached, Pids) of
                ok ->
                    Given = Fun(),
                    ok = erlane_bench_os:signal(Strace, "INT"),
                    _ = erlane_bench_os:wait_exit(Strace, ?ATTACH_MS),
                    {ok, Text} = file:read_file(File),
                    Read(Given, Text);
                {error, Why} ->
                    {unavailable, Why}
            after
                erlane_bench_os:stop(Strace)
            end
    end.

%% It says so once for each program.
attached(_, _, []) -> ok;
attached(Strace, Attached, [_ | Others]) ->
    case erlane_bench_os:await(Strace, Attached, ?ATTACH_MS) of
        {ok, _} -> attached(Strace, Attached, Others);
        {error, Why} -> {error, Why}
    end.

%% @doc Calls by name, summed up by what they are for and divided.
-spec summed([{Name :: binary(), non_neg_integer()}], Per :: pos_integer()) -> result().
summed(Calls, Per) ->
    Names = lists:usort([Name || {Name, _} <- Calls]),
    Sum = fun(Pred) -> lists:sum([N || {Name, N} <- Calls, Pred(Name)]) end,
    Class = fun(Wanted) -> Sum(fun(Name) -> class(Name) =:= Wanted end) / Per end,
    {ok, #{syscalls => Sum(fun(_) -> true end) / Per,
           recv => Class(recv), send => Class(send), poll => Class(poll), other => Class(other),
           by_name => maps:from_list([{Name, Sum(fun(N) -> N =:= Name end)} || Name <- Names])}}.

class(<<"recv", _/binary>>) -> recv;
class(<<"read", _/binary>>) -> recv;
class(<<"send", _/binary>>) -> send;
class(<<"write", _/binary>>) -> send;
class(<<"epoll_", _/binary>>) -> poll;
class(_) -> other.
