%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios that are measured in rounds: all contestants are started, then a round of
%% each in turn, over and over. What slows the machine down for a while slows all of them.
%%
%% The figure of a round is the CPU time of the server's processes divided by the requests that
%% were answered. Connections are made before the first round and stay, so it holds no connect
%% (`short' is about nothing else, and has them in its requests).
-module(erlane_bench_rounds).

-export([run/3]).

-export_type([measure/0]).

-type measure() :: #{atom() => number()}.
-type row() :: #{name := binary(), status := ok | binary(), rounds := [measure()]}.

%% Larger than any packet of these runs, so that no contestant cuts them up.
-define(LARGE_BUFFER, 65536).
-define(CONNECT_MS, 60000).

%% @doc Measures all cases of a scenario. A case is `#{title, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run(Scenario, #{only := Names} = Settings, Config) ->
    lists:append([group(Group, Names, Settings, Config) || Group <- groups(Scenario, Settings)]).

%% The cases of a group share their servers.
groups("http", #{connections := Conns}) ->
    [#{kind => http, cases => [http_case("http", N) || N <- Conns]}];
groups("short", #{connections := Conns}) ->
    [#{kind => http, cases => [http_case("short", N) || N <- Conns]}];
groups("server", #{connections := Conns}) ->
    %% Who keeps up with short connections is a question to four of them.
    Few = ["gen_tcp", "erlane-http", "c-epoll", "nginx"],
    Kept = [http_case("http", N) || N <- Conns],
    Short = [(http_case("short", N))#{title => text("~ts, one for each request",
                                                    [connections(N)]), among => Few}
             || N <- Conns],
    [#{kind => http, check => true, cases => Kept ++ Short}];
groups("proxy", #{connections := Conns, payload := Payloads}) ->
    [#{kind => proxy, payload => Size,
       cases => [#{title => text("~b bytes, ~ts", [Size, connections(N)]), connections => N,
                   mode => "echo", extra => ["-s", integer_to_list(Size)],
                   defaults => N =:= 100 andalso Size =< 100, busy => 0}
                 || N <- Conns]} || Size <- Payloads];
groups("latency", #{connections := Conns} = Settings) ->
    [#{kind => http,
       cases => [#{title => text("~ts, ~b requests/s~ts",
                                 [connections(N), rate(N, Settings),
                                  case Busy of
                                      0 -> "";
                                      1 -> ", with a CPU-bound process per scheduler"
                                  end]),
                   connections => N, mode => "rate", defaults => false, busy => Busy,
                   extra => ["-r", integer_to_list(rate(N, Settings))]}
                 || N <- Conns, Busy <- [0, 1]]}].

http_case(Mode, N) ->
    #{title => text(connections(N), []), connections => N, mode => Mode, extra => [],
      defaults => N =:= 100, busy => 0}.

connections(1) -> "1 connection";
connections(N) -> integer_to_list(N) ++ " connections".

%% Low enough for every contestant beside a CPU-bound process, when one answer to one
%% connection may take several milliseconds.
rate(_N, #{rate := Rate}) -> Rate;
rate(N, _) -> min(5000, 200 * N).

group(#{kind := Kind, cases := Cases} = Group, Names, Settings, Config) ->
    Upstream = upstream(Group, Config),
    Started = [{Name, start(Name, Kind, Config, Group, Upstream)} || Name <- Names],
    try
        [one_case(Case, Started, Settings, Config)
         || Case <- Cases, lists:any(fun(Name) -> takes_part(Name, Case) end, Names)]
    after
        _ = [erlane_bench_contestant:stop(Running) || {_, {ok, Running}} <- Started],
        _ = [erlane_bench_os:stop(Program) || {ok, Program, _} <- [Upstream]]
    end.

upstream(#{kind := proxy, payload := Size}, #{load_core := Core} = Config) ->
    case erlane_bench_contestant:peer("echo", Config) of
        {ok, Exe} ->
            Program = erlane_bench_os:start(Exe, ["0", integer_to_list(Size)], Core),
            case erlane_bench_os:await(Program, <<"ready ">>, 5000) of
                {ok, Port} -> {ok, Program, binary_to_integer(Port)};
                {error, Why} -> erlane_cli:fail("the upstream does not start: ~ts", [Why])
            end;
        {_, Why} ->
            erlane_cli:fail("the upstream cannot be built: ~ts", [Why])
    end;
upstream(_, _) ->
    none.

start(Name, Kind, Config, Group, Upstream) ->
    progress("  starting ~ts~n", [Name]),
    Port = case Upstream of
               {ok, _, P} -> P;
               none -> 0
           end,
    Buffer = case Group of
                 #{payload := Size} when Size > 1460 -> ?LARGE_BUFFER;
                 _ -> 0
             end,
    Started = erlane_bench_contestant:start(Name, Kind, Config#{upstream => Port,
                                                                buffer => Buffer}),
    checked(Started, Group).

%% Servers that are written by others are compared when they say the same, and only then.
checked({ok, #{port := Port} = Running} = Started, #{check := true}) ->
    case erlane_bench_web:check(Port) of
        ok -> Started;
        {error, Why} ->
            ok = erlane_bench_contestant:stop(Running),
            {failed, Why}
    end;
checked(Started, _Group) ->
    Started.

one_case(#{title := Title, defaults := Defaults} = Case, Started, Settings, Config) ->
    progress("~ts~n", [Title]),
    #{rounds := Rounds, asked := Asked} = Settings,
    Runners = [connect(Name, Start, Case, Config)
               || {Name, Start} <- Started, takes_part(Name, Case),
                  Defaults orelse Asked orelse string:find(Name, "-defaults") =:= nomatch],
    try
        #{title => Title, rows => [row(R) || R <- rounds(1, Rounds, Runners, Case, Settings)]}
    after
        _ = [erlane_bench_os:stop(Load) || #{load := Load} <- Runners]
    end.

takes_part(Name, #{among := Names}) -> lists:member(Name, Names);
takes_part(_, _) -> true.

%% A runner that has a status other than ok takes part no more.
connect(Name, {ok, Running}, #{mode := Mode, connections := N, extra := Extra}, Config) ->
    #{port := Port} = Running,
    #{load_core := Core} = Config,
    {ok, Exe} = erlane_bench_contestant:peer("load", Config),
    Args = [Mode, "127.0.0.1", integer_to_list(Port), "-i", "-c", integer_to_list(N) | Extra],
    Load = erlane_bench_os:start(Exe, Args, Core),
    Runner = #{name => Name, server => Running, load => Load, status => ok, rounds => []},
    case erlane_bench_os:await(Load, <<"ready ">>, ?CONNECT_MS) of
        {ok, _} -> Runner;
        {error, Why} -> Runner#{status := <<"failed: ", Why/binary>>}
    end;
connect(Name, {missing, Packages}, _Case, _Config) ->
    #{name => Name, rounds => [],
      status => <<"not installed: apt-get install ", Packages/binary>>};
connect(Name, {unavailable, Why}, _Case, _Config) ->
    #{name => Name, rounds => [], status => <<"not available: ", Why/binary>>};
connect(Name, {failed, Why}, _Case, _Config) ->
    #{name => Name, rounds => [], status => <<"failed: does not start: ", Why/binary>>}.

rounds(I, Rounds, Runners, _Case, _Settings) when I > Rounds ->
    Runners;
rounds(I, Rounds, Runners, Case, Settings) ->
    progress("  round ~b of ~b, ~ts:", [I, Rounds, element(2, shown(Case))]),
    Next = [one_round(R, Case, Settings) || R <- Runners],
    progress("~n", []),
    rounds(I + 1, Rounds, Next, Case, Settings).

one_round(#{status := ok, server := Server, load := Load, name := Name, rounds := Done} = Runner,
          #{busy := Busy} = Case, #{round_ms := Ms}) ->
    #{program := Program} = Server,
    _ = busy(Program, Busy),
    Before = erlane_bench_os:cpu_ns(Program),
    Answer = erlane_bench_os:ask(Load, integer_to_list(Ms), <<"{">>, Ms + 20000),
    %% All threads of a server that has ended have used no time at all.
    After = erlane_bench_os:cpu_ns(Program),
    _ = busy(Program, -Busy),
    case Answer of
        {ok, _} when After < Before ->
            progress(" ~ts ended", [Name]),
            Runner#{status := <<"failed: the server ended">>};
        {ok, Json} ->
            Measure = measure(Json, After - Before, Busy),
            show(Name, element(1, shown(Case)), Measure),
            Runner#{rounds := Done ++ [Measure], status := status(Measure)};
        {error, Why} ->
            progress(" ~ts failed", [Name]),
            Runner#{status := <<"failed: ", Why/binary>>}
    end;
one_round(Runner, _Case, _Settings) ->
    Runner.

%% CPU-bound processes run only in the round of their server: they would slow the others.
busy(_Program, 0) ->
    {ok, <<>>};
busy(Program, N) ->
    erlane_bench_os:ask(Program, ["busy ", integer_to_list(max(0, N))], <<"busy ">>, 10000).

measure(Json, CpuNs, Busy) ->
    {match, Fields} = re:run(Json, "\"(\\w+)\":([0-9.]+)",
                             [global, {capture, all_but_first, binary}]),
    with_cpu(maps:from_list([{key(K), number(V)} || [K, V] <- Fields]), CpuNs, Busy).

key(<<"requests">>) -> requests;
key(<<"errors">>) -> errors;
key(<<"seconds">>) -> seconds;
key(<<"rps">>) -> rps;
key(<<"p50_us">>) -> p50_us;
key(<<"p99_us">>) -> p99_us;
key(<<"max_us">>) -> max_us.

%% CPU-bound processes take all that is left: no figure of the requests then.
with_cpu(#{requests := N} = Map, CpuNs, 0) when N > 0 -> Map#{cpu_us => CpuNs / 1000 / N};
with_cpu(Map, _CpuNs, _Busy) -> Map.

number(Text) ->
    case binary:match(Text, <<".">>) of
        nomatch -> binary_to_integer(Text);
        _ -> binary_to_float(Text)
    end.

status(#{requests := 0}) -> <<"failed: no request was answered">>;
status(_) -> ok.

shown(#{mode := "rate"}) -> {p99_us, "p99 in us"};
shown(_) -> {cpu_us, "us of CPU"}.

show(Name, Metric, Measure) ->
    case Measure of
        #{Metric := V} -> progress(" ~ts ~.2f", [Name, float(V)]);
        _ -> progress(" ~ts -", [Name])
    end.

-spec row(map()) -> row().
row(#{name := Name, status := Status, rounds := Rounds}) ->
    Errors = lists:sum([E || #{errors := E} <- Rounds]),
    #{name => list_to_binary(Name), rounds => Rounds,
      status => case Status of
                    ok when Errors > 0 -> text("failed: ~b errors", [Errors]);
                    _ -> Status
                end}.

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) ->
    io:format(standard_error, Format, Args).
