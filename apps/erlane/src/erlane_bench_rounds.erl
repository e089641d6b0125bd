%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios that are measured in rounds: all contestants are started, then a round of
%% each in turn, over and over. What slows the machine down for a while slows all of them.
%%
%% The figure of a round is the CPU time of the server's processes divided by the requests that
%% were answered. Connections are made before the first round and stay, so it holds no connect
%% (`short' is about nothing else, and has them in its requests).
-module(erlane_bench_rounds).

-export([run/3]).

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
    #{rounds := Rounds, round_ms := Ms, asked := Asked} = Settings,
    Runners = [connect(Name, Start, Case, Config)
               || {Name, Start} <- Started, takes_part(Name, Case),
                  Defaults orelse Asked orelse string:find(Name, "-defaults") =:= nomatch],
    try
        Done = erlane_bench_turns:rounds(Rounds, element(2, shown(Case)),
                                         fun(R) -> measure(R, Case, Ms) end, Runners),
        #{title => Title, rows => [erlane_bench_turns:row(without_errors(R)) || R <- Done]}
    after
        _ = [erlane_bench_os:stop(Load) || #{load := Load} <- Runners]
    end.

takes_part(Name, #{among := Names}) -> lists:member(Name, Names);
takes_part(_, _) -> true.

connect(Name, {ok, #{port := Port} = Running}, #{mode := Mode, connections := N} = Case, Config) ->
    #{load_core := Core} = Config,
    {ok, Exe} = erlane_bench_contestant:peer("load", Config),
    Args = [Mode, "127.0.0.1", integer_to_list(Port), "-i", "-c", integer_to_list(N)
            | maps:get(extra, Case)],
    Load = erlane_bench_os:start(Exe, Args, Core),
    Runner = erlane_bench_turns:runner(Name, {ok, #{server => Running, load => Load}}),
    case erlane_bench_os:await(Load, <<"ready ">>, ?CONNECT_MS) of
        {ok, _} -> Runner;
        {error, Why} -> erlane_bench_turns:fail(Why, Runner)
    end;
connect(Name, Without, _, _) ->
    erlane_bench_turns:runner(Name, Without).

measure(#{server := #{program := Program}, load := Load}, #{busy := Busy} = Case, Ms) ->
    _ = busy(Program, Busy),
    Before = erlane_bench_os:cpu_ns(Program),
    Answer = erlane_bench_os:ask(Load, integer_to_list(Ms), <<"{">>, Ms + 20000),
    %% All threads of a server that has ended have used no time at all.
    After = erlane_bench_os:cpu_ns(Program),
    _ = busy(Program, -Busy),
    case Answer of
        {ok, _} when After < Before -> {error, <<"the server ended">>};
        {ok, Json} -> figures(read(Json), After - Before, Case);
        {error, Why} -> {error, Why}
    end.

figures(#{requests := 0}, _, _) ->
    {error, <<"no request was answered">>};
figures(Figures, CpuNs, #{busy := Busy} = Case) ->
    Round = with_cpu(Figures, CpuNs, Busy),
    {ok, maps:get(element(1, shown(Case)), Round, none), Round}.

%% CPU-bound processes run only in the round of their server: they would slow the others.
busy(_Program, 0) ->
    {ok, <<>>};
busy(Program, N) ->
    erlane_bench_os:ask(Program, ["busy ", integer_to_list(max(0, N))], <<"busy ">>, 10000).

read(Json) ->
    {match, Fields} = re:run(Json, "\"(\\w+)\":([0-9.]+)",
                             [global, {capture, all_but_first, binary}]),
    maps:from_list([{key(K), number(V)} || [K, V] <- Fields]).

key(<<"requests">>) -> requests;
key(<<"errors">>) -> errors;
key(<<"seconds">>) -> seconds;
key(<<"rps">>) -> rps;
key(<<"p50_us">>) -> p50_us;
key(<<"p99_us">>) -> p99_us;
key(<<"max_us">>) -> max_us.

%% CPU-bound processes take all that is left: no figure of the requests then.
with_cpu(#{requests := N} = Map, CpuNs, 0) -> Map#{cpu_us => CpuNs / 1000 / N};
with_cpu(Map, _CpuNs, _Busy) -> Map.

number(Text) ->
    case binary:match(Text, <<".">>) of
        nomatch -> binary_to_integer(Text);
        _ -> binary_to_float(Text)
    end.

shown(#{mode := "rate"}) -> {p99_us, "p99 in us"};
shown(_) -> {cpu_us, "us of CPU"}.

without_errors(#{rounds := Rounds, status := ok} = Runner) ->
    case lists:sum([E || #{errors := E} <- Rounds]) of
        0 -> Runner;
        Errors -> erlane_bench_turns:fail(text("~b errors", [Errors]), Runner)
    end;
without_errors(Runner) ->
    Runner.

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) ->
    io:format(standard_error, Format, Args).
