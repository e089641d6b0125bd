%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenario `profile': what it costs to look at a node, and whether what is seen is true.
%%
%% The nodes that are looked at, the one that looks and the one that pings are VMs of their own,
%% started first; idle ones cost nothing. `one' has one scheduler and the first core for itself,
%% `two' and `perf' have two schedulers and both cores, `viewer' and `pinger' the second core.
-module(erlane_bench_profile).

-export([run/3, names/0, title/1, versions/1, answer/1, row/1]).

-export_type([vms/0]).

-type vms() :: #{one | two | perf | viewer | pinger := erlane_bench_profile_node:vm()}.

%% @doc What is compared. The parts of mode trace are those of the rest.
-spec names() -> [string()].
names() -> ["sample", "perf", "trace-port", "trace-native", "eep", "fprof", "runaway"].

%% @doc What each is, in one line.
-spec title(string()) -> string().
title("sample") -> "cost of mode sample on a node with many processes";
title("perf") -> "shares of mode sample beside those of perf";
title("trace-port") -> "mode trace, by the file port of the VM";
title("trace-native") -> "mode trace, by the tracer in C";
title("eep") -> "the flags of EEP with a file port, and a conversion of its kind, by hand";
title("fprof") -> "fprof of OTP";
title("runaway") -> "mode trace of everything on a busy node, with those that are named".

%% @doc What all figures depend on.
-spec versions(file:filename()) -> [{binary(), binary()}].
versions(Root) ->
    [{<<"erlane">>, erlane_bench_contestant:version("erlane", Root)}
     | [{<<"perf">>, erlane_bench_os:output("perf", ["--version"])}
        || erlane_bench_os:find("perf") =/= error]].

%% @doc Measures all parts that are asked for. A case is `#{title, main, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("profile", #{only := Names} = Settings, Config) ->
    #{program := Epmd} = Running = erlane_bench_vm:epmd(Config),
    try
        Vms = start(Names, Running, Config),
        try
            lists:append([Part:cases(Names, Settings#{tmp => maps:get(tmp, Config)}, Vms)
                          || Part <- [erlane_bench_profile_sample, erlane_bench_profile_perf,
                                      erlane_bench_profile_trace, erlane_bench_profile_runaway,
                                      erlane_bench_profile_large]])
        after
            _ = [erlane_bench_os:stop(Program) || #{program := Program} <- maps:values(Vms)]
        end
    after
        erlane_bench_os:stop(Epmd)
    end.

-spec start([string()], erlane_bench_vm:epmd(), erlane_bench_contestant:config()) -> vms().
start(Names, Epmd, #{server_core := First, load_core := Second}) ->
    Two = ["+S", "2"],
    %% Its tracer in C does not travel.
    Traced = [erlane_prof || N <- Names, N =:= "trace-native"],
    Wanted = [{viewer, [], [Second], [erlane_prof]}]
        ++ [{one, [], [First], Traced} || Names =/= ["perf"], Names =/= ["sample"]]
        ++ [{two, Two, [First, Second], Traced} || Names =/= ["perf"]]
        ++ [{pinger, [], [Second], []} || lists:member("runaway", Names)]
        ++ [{perf, Two ++ ["+JPperf", "map"], [First, Second], []} || lists:member("perf", Names)],
    erlane_bench_profile_node:spawn_all(Wanted, erlane_bench_vm:cookie(), Epmd).

%% @doc Calls a measurement, and makes of what it throws an answer of erlane_bench_turns.
-spec answer(fun(() -> Answer)) -> Answer | {error, binary()}.
answer(Measure) ->
    try Measure()
    catch throw:{error, Why} -> {error, Why}
    end.

%% @doc A row of a table. What this erlane does not have, or this machine does not allow, has not
%% failed.
-spec row(erlane_bench_turns:runner()) -> map().
row(#{status := <<"failed: ", Why/binary>>, rounds := []} = Runner) ->
    Lacks = "option tracer|is not installed|is not allowed|has no JIT|has not the native code",
    erlane_bench_turns:row(case re:run(Why, Lacks, [{capture, none}]) of
                               match -> Runner#{status := erlane_bench_turns:status(
                                                            {unavailable, Why})};
                               nomatch -> Runner
                           end);
row(Runner) ->
    erlane_bench_turns:row(Runner).
