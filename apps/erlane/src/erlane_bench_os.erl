%% SPDX-License-Identifier: Apache-2.0
%% @doc Programs that the benchmark runs: started on one core, spoken to by lines, ended by
%% their process id, and looked at through /proc.
%%
%% A program dies with the VM that started it, whatever happens (setpriv --pdeathsig), so an
%% interrupted benchmark leaves nothing behind. Only the process that started a program can
%% speak to it.
-module(erlane_bench_os).

-export([start/3, await/3, ask/4, signal/2, wait_exit/2, stop/1]).
-export([cpu_ns/1, rss_bytes/1, peak_bytes/1, forget_peak/1, cores/0, file_limit/0]).
-export([find/1, output/2, free_port/0, await_port/2, temp_dir/0, remove/1]).

-export_type([program/0]).

-type program() :: #{port := port(), pid := pos_integer()}.

%% No program of a benchmark needs as much; it ends one that nobody ended.
-define(MAX_CPU_S, "7200").

%% @doc Runs a program pinned to a core, or some. Its standard error is read together with its
%% output.
-spec start(file:filename(), [string()], non_neg_integer() | [non_neg_integer()]) -> program().
start(Exe, Args, Core) when is_integer(Core) -> start(Exe, Args, [Core]);
start(Exe, Args, Cores) ->
    %% What the user set for this VM must not change those that are measured.
    Env = [{Name, false} || Name <- ["ERL_FLAGS", "ERL_AFLAGS", "ERL_ZFLAGS", "ERL_LIBS"]],
    Port = open_port({spawn_executable, tool("setpriv")},
                     [{args, ["--pdeathsig", "KILL", tool("prlimit"), "--cpu=" ++ ?MAX_CPU_S,
                              tool("taskset"), "-c",
                              lists:append(lists:join(",", [integer_to_list(C) || C <- Cores])),
                              Exe | Args]},
                      {line, 4096}, {env, Env}, binary, exit_status, stderr_to_stdout, hide]),
    case erlang:port_info(Port, os_pid) of
        {os_pid, Pid} -> #{port => Port, pid => Pid};
        undefined -> erlane_cli:fail("~ts ended at once", [Exe])
    end.

tool(Name) ->
    case find(Name) of
        {ok, Path} -> Path;
        error -> erlane_cli:fail("~ts is not installed: apt-get install util-linux", [Name])
    end.

%% @doc Waits for a line that begins with a prefix and gives what follows it. Other lines are
%% passed over; if the program ends or stays silent, the last of them is in the error.
-spec await(program(), Prefix :: binary(), Ms :: pos_integer()) ->
          {ok, binary()} | {error, binary()}.
await(#{port := Port}, Prefix, Ms) ->
    await(Port, Prefix, deadline(Ms), <<>>).

await(Port, Prefix, Deadline, Last) ->
    Size = byte_size(Prefix),
    receive
        {Port, {data, {eol, <<Prefix:Size/binary, Rest/binary>>}}} -> {ok, Rest};
        {Port, {data, {_, <<>>}}} -> await(Port, Prefix, Deadline, Last);
        {Port, {data, {_, Line}}} -> await(Port, Prefix, Deadline, Line);
        {Port, {exit_status, _}} when Last =/= <<>> -> {error, Last};
        {Port, {exit_status, N}} -> {error, text("ended with status ~b", [N])}
    after left(Deadline) ->
        {error, text("no answer in time ~ts", [Last])}
    end.

%% @doc Sends a line, then {@link await/3}.
-spec ask(program(), iodata(), Prefix :: binary(), Ms :: pos_integer()) ->
          {ok, binary()} | {error, binary()}.
ask(#{port := Port} = Program, Line, Prefix, Ms) ->
    %% The port is closed when the program has ended; its exit_status is in the mailbox then.
    _ = try port_command(Port, [Line, $\n]) catch error:badarg -> closed end,
    await(Program, Prefix, Ms).

%% @doc Sends a signal, named without SIG. A program that is gone is no error.
-spec signal(program(), string()) -> ok.
signal(#{pid := Pid}, Name) ->
    _ = os:cmd("kill -" ++ Name ++ " " ++ integer_to_list(Pid)),
    ok.

%% @doc Waits for the end of a program.
-spec wait_exit(program(), Ms :: pos_integer()) -> ok | timeout.
wait_exit(#{port := Port}, Ms) ->
    receive
        {Port, {exit_status, _}} -> ok
    after Ms ->
        timeout
    end.

%% @doc Ends a program: by SIGTERM, after two seconds by SIGKILL.
-spec stop(program()) -> ok.
stop(#{port := Port} = Program) ->
    case erlang:port_info(Port) of
        undefined ->
            ok;
        _ ->
            signal(Program, "TERM"),
            _ = wait_exit(Program, 2000) =:= ok orelse signal(Program, "KILL"),
            close(Port)
    end,
    flush(Port).

flush(Port) ->
    receive
        {Port, _} -> flush(Port)
    after 0 ->
        ok
    end.

%% @doc CPU time in nanoseconds that a program has used: all threads of all its processes.
-spec cpu_ns(program()) -> non_neg_integer().
cpu_ns(#{pid := Pid}) ->
    lists:sum([schedstat(Task) || P <- tree(Pid), Task <- tasks(P)]).

schedstat(Task) ->
    case file:read_file(Task ++ "/schedstat") of
        {ok, Text} -> binary_to_integer(hd(binary:split(Text, <<" ">>)));
        {error, _} -> 0
    end.

tasks(Pid) ->
    Dir = "/proc/" ++ integer_to_list(Pid) ++ "/task",
    case file:list_dir(Dir) of
        {ok, Names} -> [filename:join(Dir, N) || N <- Names];
        {error, _} -> []
    end.

tree(Pid) ->
    [Pid | [P || Task <- tasks(Pid), Child <- children(Task), P <- tree(Child)]].

children(Task) ->
    case file:read_file(Task ++ "/children") of
        {ok, Text} -> [binary_to_integer(P) || P <- string:lexemes(Text, " \n")];
        {error, _} -> []
    end.

%% @doc Resident memory of a program in bytes.
-spec rss_bytes(program()) -> non_neg_integer().
rss_bytes(#{pid := Pid}) ->
    lists:sum([field("/proc/" ++ integer_to_list(P) ++ "/status", "^VmRSS:\\s+(\\d+) kB") * 1024
               || P <- tree(Pid)]).

%% @doc The most resident memory that a program itself has had, since {@link forget_peak/1}, in
%% bytes.
-spec peak_bytes(program()) -> non_neg_integer().
peak_bytes(#{pid := Pid}) ->
    field("/proc/" ++ integer_to_list(Pid) ++ "/status", "^VmHWM:\\s+(\\d+) kB") * 1024.

%% @doc From now on the peak is what it has now, where the kernel lets us say so.
-spec forget_peak(program()) -> ok.
forget_peak(#{pid := Pid}) ->
    _ = file:write_file("/proc/" ++ integer_to_list(Pid) ++ "/clear_refs", "5"),
    ok.

field(File, Pattern) ->
    {ok, Text} = file:read_file(File),
    case re:run(Text, Pattern, [multiline, {capture, [1], list}]) of
        {match, [N]} -> list_to_integer(N);
        nomatch -> 0
    end.

%% @doc The core for servers and the core for load: the first two that this process may use.
%% On a machine with one core they are the same.
-spec cores() -> {Server :: non_neg_integer(), Load :: non_neg_integer()}.
cores() ->
    {ok, Text} = file:read_file("/proc/self/status"),
    {match, [List]} = re:run(Text, "^Cpus_allowed_list:\\s+(\\S+)",
                             [multiline, {capture, [1], list}]),
    case lists:append([range(R) || R <- string:lexemes(List, ",")]) of
        [A, B | _] -> {A, B};
        [A] -> {A, A}
    end.

range(Text) ->
    case [list_to_integer(N) || N <- string:lexemes(Text, "-")] of
        [N] -> [N];
        [From, To] -> lists:seq(From, To)
    end.

%% @doc How many descriptors a program can have.
-spec file_limit() -> non_neg_integer().
file_limit() ->
    field("/proc/self/limits", "^Max open files\\s+\\d+\\s+(\\d+)").

%% @doc Path of an executable; servers are often where only root looks.
-spec find(string()) -> {ok, file:filename()} | error.
find(Name) ->
    Path = os:getenv("PATH", "") ++ ":/usr/sbin:/sbin",
    case os:find_executable(Name, Path) of
        false -> error;
        File -> {ok, File}
    end.

%% @doc What a short command says, trimmed; empty when it cannot be run.
-spec output(string(), [string()]) -> binary().
output(Name, Args) ->
    case find(Name) of
        error ->
            <<>>;
        {ok, Path} ->
            Port = open_port({spawn_executable, Path},
                             [{args, Args}, binary, exit_status, stderr_to_stdout, hide]),
            string:trim(collect(Port, <<>>))
    end.

collect(Port, Text) ->
    receive
        {Port, {data, Data}} -> collect(Port, <<Text/binary, Data/binary>>);
        {Port, {exit_status, _}} -> Text
    after 120000 ->
        close(Port),
        Text
    end.

%% A port that has closed by itself is no error.
close(Port) ->
    try port_close(Port) of
        true -> ok
    catch
        error:badarg -> ok
    end.

%% @doc A port that was free a moment ago, for servers that cannot choose one.
-spec free_port() -> inet:port_number().
free_port() ->
    {ok, Socket} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Port.

%% @doc Waits until somebody listens on a port of loopback.
-spec await_port(inet:port_number(), Ms :: pos_integer()) -> ok | timeout.
await_port(Port, Ms) ->
    await_listener(Port, deadline(Ms)).

await_listener(Port, Deadline) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, [], 1000) of
        {ok, Socket} ->
            gen_tcp:close(Socket);
        {error, _} ->
            case left(Deadline) of
                0 -> timeout;
                _ -> timer:sleep(20), await_listener(Port, Deadline)
            end
    end.

%% @doc A directory that goes away with {@link remove/1}, or with this VM, however that ends: a
%% shell waits for the end of its standard input.
-spec temp_dir() -> {file:filename(), port()}.
temp_dir() ->
    Dir = string:trim(os:cmd("mktemp -d -t erlane_bench.XXXXXXXX")),
    Wait = "trap '' INT TERM HUP; cat >/dev/null; rm -rf \"$1\"",
    {Dir, open_port({spawn_executable, "/bin/sh"}, [{args, ["-c", Wait, "sh", Dir]}, hide])}.

%% @doc Removes what {@link temp_dir/0} made.
-spec remove({file:filename(), port()}) -> ok.
remove({Dir, Guard}) ->
    true = port_close(Guard),
    _ = file:del_dir_r(Dir),
    ok.

deadline(Ms) -> erlang:monotonic_time(millisecond) + Ms.

left(Deadline) -> max(0, Deadline - erlang:monotonic_time(millisecond)).

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).
