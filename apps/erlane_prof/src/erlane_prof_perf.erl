%% SPDX-License-Identifier: Apache-2.0
%% @doc True CPU time by Linux' `perf', C code and kernel included. Runs here, beside the node: on
%% the same machine, with nothing brought to the node. The node must have been started with
%% `+JPperf map', which writes the names of its functions for perf and keeps frame pointers.
-module(erlane_prof_perf).

-include_lib("kernel/include/file.hrl").

-export([run/1]).

-define(CALL_MS, 5000).
-define(GRACE_MS, 60000).
-define(BOOT, "/proc/sys/kernel/random/boot_id").
-define(NAMESPACE, "/proc/self/ns/pid").
%% Records, then writes what was recorded to standard output, and leaves no file. Its standard
%% input is ours: when that ends, the recording does, and when nobody reads, all does. What perf
%% complains of comes with `!' before it. It is ended by SIGTERM: a shell starts what goes to the
%% background with SIGINT ignored, and one that came before perf's own handler would be lost.
-define(SCRIPT,
        "umask 077; D=$(mktemp -d) || exit 1\n"
        "trap 'rm -rf \"$D\"' EXIT; trap 'exit 1' PIPE TERM HUP INT\n"
        "exec 3<&0\n"
        "\"$0\" record -q -F \"$2\" --call-graph fp --max-size=256M -p \"$1\" -o \"$D/data\""
        " -- sleep \"$3\" >\"$D/out\" 2>&1 </dev/null &\n"
        "P=$!\n"
        "(read -r _ <&3; kill $P) 2>/dev/null >/dev/null & R=$!\n"
        "wait $P; S=$?\n"
        "kill $R 2>/dev/null\n"
        "[ -s \"$D/data\" ] || { sed 's/^/!/' \"$D/out\"; exit 1; }\n"
        "\"$0\" script -i \"$D/data\" -F comm,tid,ip,sym,dso 2>\"$D/err\" </dev/null ||"
        " { sed 's/^/!/' \"$D/err\"; exit 1; }\n").

-record(run, {node, port, reader, progress, from, ends, asked = false, complaints = []}).

%% @doc Takes a profile, with options that were checked; errors are those of erlane_prof:run/1.
-spec run(map()) -> {ok, erlane_prof_profile:profile()} | {error, erlane_prof_attach:error()}.
run(#{node := Node} = Options) ->
    try
        Perf = case os:find_executable("perf") of
                   false -> decline(Node, "perf is not installed (Debian: linux-perf)");
                   Found -> Found
               end,
        Pid = os_pid(Node),
        ok = ready(Node, Pid),
        record(Perf, Pid, Options)
    catch
        throw:{error, _} = Error -> Error
    end.

-spec decline(node(), unicode:chardata()) -> no_return().
decline(Node, Why) ->
    throw({error, {declined, Node, Why}}).

%%% Can it be done

%% The node's process, if it is one of ours to see: same machine, same numbers of processes.
os_pid(Node) ->
    Same = fun(Function, File) ->
                   {ok, Here} = file:Function(File),
                   call(Node, file, Function, [File]) =:= {ok, Here}
           end,
    try
        Same(read_file, ?BOOT)
            orelse decline(Node, "perf sees the processes of its own machine only, and this node "
                                 "is on another one: run the command there"),
        Same(read_link, ?NAMESPACE)
            orelse decline(Node, "the node is in another container (pid namespace): run the "
                                 "command there")
    catch
        error:{badmatch, {error, _}} -> decline(Node, "perf needs Linux")
    end,
    call(Node, os, getpid, []).

ready(Node, Pid) ->
    case call(Node, erlang, system_info, [emu_flavor]) of
        jit -> ok;
        Other -> decline(Node, io_lib:format("its VM has no JIT (~ts), so perf has no names for "
                                             "its functions", [Other]))
    end,
    Map = "/tmp/perf-" ++ Pid ++ ".map",
    {Up, _} = call(Node, erlang, statistics, [wall_clock]),
    Started = os:system_time(second) - Up div 1000,
    %% One that is older is of a process that had the same number.
    case file:read_file_info(Map, [{time, posix}]) of
        {ok, #file_info{mtime = Written}} when Written >= Started - 2 -> ok;
        _ -> decline(Node, ["it was not started with +JPperf map, as ", Map,
                            " is not there: ERL_FLAGS=\"+JPperf map\" does that"])
    end.

call(Node, M, F, A) ->
    try erpc:call(Node, M, F, A, ?CALL_MS)
    catch
        error:{erpc, timeout} -> throw({error, {timeout, Node}});
        error:{erpc, Reason} -> throw({error, {gone, Node, Reason}})
    end.

%%% Recording

record(Perf, Pid, #{node := Node, for := For, hz := Hz, events := Events,
                     progress := Progress} = Options) ->
    Otp = call(Node, erlang, system_info, [otp_release]),
    Seconds = io_lib:format("~.3f", [For / 1000]),
    Began = os:system_time(microsecond),
    Port = open_port({spawn_executable, "/bin/sh"},
                     [{args, ["-c", ?SCRIPT, Perf, Pid, integer_to_list(Hz), Seconds]}, binary,
                      {line, 65536}, exit_status, use_stdio]),
    Now = erlang:monotonic_time(millisecond),
    Run = #run{node = Node, port = Port, progress = Progress, from = Now,
               ends = Now + For + ?GRACE_MS,
               reader = erlane_prof_perf_script:new(1000000000 div Hz, Events)},
    try collect(Run) of
        #run{reader = Reader, asked = Asked} ->
            {Tally, Samples, Lost} = erlane_prof_perf_script:finish(Reader),
            Ns = case Asked of
                     false -> For * 1000000;
                     Ms -> Ms * 1000000
                 end,
            Fields = #{mode => perf, node => Node, otp => list_to_binary(Otp), began => Began,
                       ns => Ns, lost => Lost, notes => notes(Asked, Samples, Lost, Options),
                       values => [#{name => cpu, unit => nanoseconds},
                                  #{name => samples, unit => count}]},
            {ok, erlane_prof_profile:new(Fields, Tally)}
    catch
        throw:{error, _} = Error -> Error
    after
        %% It may have ended.
        try port_close(Port) catch error:badarg -> true end
    end.

collect(#run{port = Port, reader = Reader, ends = Ends, node = Node} = R) ->
    receive
        {Port, {data, {eol, <<"!", Text/binary>>}}} ->
            collect(R#run{complaints = [Text | R#run.complaints]});
        {Port, {data, {eol, Line}}} ->
            collect(R#run{reader = erlane_prof_perf_script:line(Line, Reader)});
        {Port, {data, {noeol, _}}} ->
            collect(R);
        {Port, {exit_status, 0}} ->
            R;
        {Port, {exit_status, _}} ->
            decline(Node, refused(lists:reverse(R#run.complaints)))
    after 500 ->
        case erlang:monotonic_time(millisecond) of
            Now when Now > Ends -> decline(Node, "perf does not end");
            Now -> collect(progress(Now - R#run.from, R))
        end
    end.

progress(Ms, #run{asked = false, progress = Progress, port = Port} = R) ->
    case Progress(#{ms => Ms, events => 0, lost => 0}) of
        stop ->
            true = port_command(Port, "stop\n"),
            R#run{asked = Ms};
        continue ->
            R
    end;
progress(_Ms, R) ->
    R.

%% perf says much; what matters is whether it was allowed.
refused(Lines) ->
    Text = lists:join(" ", [string:trim(L) || L <- Lines, string:trim(L) =/= <<>>]),
    Whole = iolist_to_binary(Text),
    case re:run(Whole, "paranoid|ermission|not permitted|No permission", [{capture, none}]) of
        match ->
            ["perf is not allowed here: kernel.perf_event_paranoid is ", paranoid(),
             "; run it as the node's user with 2 or less, or as root"];
        nomatch ->
            ["perf failed: ", string:slice(Whole, 0, 300)]
    end.

paranoid() ->
    case file:read_file("/proc/sys/kernel/perf_event_paranoid") of
        {ok, Text} -> string:trim(Text);
        {error, _} -> "unknown"
    end.

notes(Asked, Samples, Lost, #{hz := Hz, for := For}) ->
    [unicode:characters_to_binary(Note)
     || Note <- [io_lib:format("ended early, as asked, after ~.1f s", [Asked / 1000])
                 || is_integer(Asked), Asked < For]
            ++ [io_lib:format("perf: ~b samples at ~b a second and thread", [Samples, Hz])]
            ++ [io_lib:format("~b more samples are left out: --events is the limit", [Lost])
                || Lost > 0]].
