%% SPDX-License-Identifier: Apache-2.0
%% Programs of the operating system, for suites: run one to its end, or keep one running,
%% read its lines and signal it by its id. All waits have a deadline.
-module(real_os).

-export([root/0, erlane/0, run/2, start/2, wait_line/2, output/1, input/2, signal/2,
         wait_exit/1, stop/1, os_pid/1, vm_pid/1, cpu_ms/1, rss_kb/1, need/2, until/1, until/2]).

-define(RUN_MS, 120000).
-define(WAIT_MS, 20000).

%% The root of the tree: Common Test works somewhere below it.
root() ->
    case os:getenv("ERLANE_ROOT") of
        false ->
            {ok, Dir} = file:get_cwd(),
            root(Dir);
        Root ->
            Root
    end.

root(Dir) ->
    case {filelib:is_regular(filename:join(Dir, "rebar.config")), filename:dirname(Dir)} of
        {true, _} -> Dir;
        {false, Dir} -> ct:fail("no rebar.config above the working directory");
        {false, Up} -> root(Up)
    end.

erlane() ->
    filename:join(root(), "bin/erlane").

%% The program, from PATH or the given directories; fails with what to install.
need({Program, Dirs}, Package) ->
    case os:find_executable(Program, lists:flatten(lists:join(":", [os:getenv("PATH") | Dirs]))) of
        false -> ct:fail("~ts is not installed: make deps (apt-get install ~ts)",
                         [Program, Package]);
        Path -> Path
    end;
need(Program, Package) ->
    need({Program, []}, Package).

%% Runs a command to its end: exit status and everything it wrote.
run(Program, Args) ->
    Pid = start(Program, Args),
    Status = wait_exit(Pid, ?RUN_MS),
    Output = output(Pid),
    stop(Pid),
    {Status, Output}.

%% Starts a program under a process of ours, which keeps its lines.
start(Program, Args) ->
    Self = self(),
    {Pid, _} = spawn_monitor(fun() -> init(Self, Program, Args) end),
    receive
        {Pid, started} -> Pid;
        {'DOWN', _, process, Pid, Reason} -> ct:fail({Program, Reason})
    end.

init(Parent, Program, Args) ->
    %% Parent's end ends us, and the program with us.
    Watch = monitor(process, Parent),
    process_flag(trap_exit, true),
    Port = open_port({spawn_executable, Program},
                     [{args, Args}, exit_status, stderr_to_stdout, binary]),
    {os_pid, OsPid} = erlang:port_info(Port, os_pid),
    Parent ! {self(), started},
    loop(#{port => Port, os_pid => OsPid, output => <<>>, exit => running, watch => Watch}).

loop(#{port := Port, output := Output, watch := Watch} = State) ->
    receive
        {Port, {data, Data}} ->
            loop(State#{output := <<Output/binary, Data/binary>>});
        {Port, {exit_status, Status}} ->
            loop(State#{exit := Status});
        {'EXIT', Port, _} ->
            loop(State);
        {From, Ref, state} ->
            From ! {Ref, maps:with([output, exit, os_pid], State)},
            loop(State);
        {From, Ref, {input, Data}} ->
            From ! {Ref, port_command(Port, Data)},
            loop(State);
        {_From, _Ref, stop} ->
            kill(State);
        {'DOWN', Watch, process, _, _} ->
            kill(State)
    end.

kill(#{exit := running, os_pid := OsPid}) ->
    %% The children too: the VM under bin/erlane.
    [kill_id(Child) || Child <- children(OsPid)],
    kill_id(OsPid);
kill(_) ->
    ok.

kill_id(OsPid) ->
    os:cmd("kill -KILL " ++ integer_to_list(OsPid) ++ " 2>/dev/null").

state(Pid) ->
    call(Pid, state).

call(Pid, Request) ->
    Ref = make_ref(),
    Pid ! {self(), Ref, Request},
    receive {Ref, Reply} -> Reply
    after ?WAIT_MS -> ct:fail({no_answer, Request})
    end.

%% Everything it wrote so far, standard error among it.
output(Pid) ->
    #{output := Output} = state(Pid),
    Output.

%% What it reads from its standard input next.
input(Pid, Data) ->
    true = call(Pid, {input, Data}),
    ok.

%% Waits for a line that matches a regular expression.
wait_line(Pid, Regex) ->
    try until(fun() -> {match, _} = re:run(output(Pid), Regex, [multiline]) end)
    catch error:_ -> ct:fail("no line ~ts in:~n~ts", [Regex, output(Pid)])
    end.

os_pid(Pid) ->
    #{os_pid := OsPid} = state(Pid),
    OsPid.

signal(Pid, Signal) ->
    "" = os:cmd(lists:concat(["kill -", Signal, " ", os_pid(Pid)])),
    ok.

wait_exit(Pid) ->
    wait_exit(Pid, ?WAIT_MS).

wait_exit(Pid, Ms) ->
    try until(fun() -> #{exit := Status} = state(Pid), true = is_integer(Status), Status end, Ms)
    catch error:_ -> ct:fail("still running:~n~ts", [output(Pid)])
    end.

%% Kills the program if it still runs.
stop(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {self(), make_ref(), stop},
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% The VM under bin/erlane.
vm_pid(Pid) ->
    Parent = os_pid(Pid),
    until(fun() -> [Vm] = children(Parent), Vm end).

children(OsPid) ->
    Id = integer_to_list(OsPid),
    case file:read_file("/proc/" ++ Id ++ "/task/" ++ Id ++ "/children") of
        {ok, Text} -> [binary_to_integer(C) || C <- string:lexemes(Text, " \n")];
        {error, _} -> []
    end.

%% CPU time of a process so far; ticks of 10 ms.
cpu_ms(OsPid) ->
    {ok, Stat} = file:read_file(lists:concat(["/proc/", OsPid, "/stat"])),
    [_, AfterName] = string:split(Stat, ") ", trailing),
    Fields = string:lexemes(AfterName, " "),
    10 * lists:sum([binary_to_integer(lists:nth(N, Fields)) || N <- [12, 13]]).

rss_kb(OsPid) ->
    {ok, Status} = file:read_file(lists:concat(["/proc/", OsPid, "/status"])),
    {match, [Kb]} = re:run(Status, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, binary}]),
    binary_to_integer(Kb).

%% The value of Fun once it no longer fails.
until(Fun) ->
    until(Fun, ?WAIT_MS).

until(Fun, Ms) ->
    retry(Fun, erlang:monotonic_time(millisecond) + Ms).

retry(Fun, Deadline) ->
    try Fun()
    catch
        error:Reason:Stack ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> receive after 20 -> retry(Fun, Deadline) end;
                false -> erlang:raise(error, Reason, Stack)
            end
    end.
