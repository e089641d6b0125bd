%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios that are looked at once and not in rounds, because what they count does
%% not drift: memory of idle connections, and system calls under strace.
-module(erlane_bench_lab).

-export([run/3]).

-define(ANSWER_MS, 60000).
%% What a careful user sets: one read for a whole packet.
-define(BUFFER, 65536).
%% Descriptors that a server needs besides those of its connections.
-define(SPARE_FILES, 200).
-define(ECHOES, 2000).
-define(SETTLE_MS, 500).
-define(LOOK_MS, 250).
-define(MAX_LOOKS, 160).
%% A server may have so many processes ready that wait for connections.
-define(POOL, 64).

%% @doc Measures all cases of `idle' or `echo'. A case is `#{title, rows}', a row has one round.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("idle", #{only := Names} = Settings, Config) ->
    {Held, Watched} = idle_sizes(Settings),
    #{idle_ms := Ms} = Settings,
    [#{title => text("~b idle {active,once} connections, {buffer,~b}", [Held, ?BUFFER]),
       rows => [row(Name, http, Config, fun(R) -> memory(R, Held, Config) end)
                || Name <- Names]},
     #{title => text("~b open connections, ~b s without traffic", [Watched, Ms div 1000]),
       rows => [row(Name, http, Config, fun(R) -> silence(R, Watched, Ms, Config) end)
                || Name <- Names]}];
run("server-idle", #{only := Names} = Settings, Config) ->
    {Held, _} = idle_sizes(Settings),
    #{idle_ms := Ms} = Settings,
    [#{title => text("~b idle connections, each answered once", [Held]),
       rows => [row(Name, http, Config, fun(R) -> resting(R, Held, Ms div 2, Config) end)
                || Name <- Names]}];
run("echo", #{only := Names, connections := Conns}, Config) ->
    [#{title => text("~b bytes back and forth on ~b connection(s), system calls per echo",
                     [100, N]),
       rows => [row(Name, echo, Config, fun(R) -> echo(R, N, Config) end) || Name <- Names]}
     || N <- Conns].

%% As many as were asked for, or as the limit on descriptors allows.
idle_sizes(#{connections := [Wanted | _]}) ->
    Limit = max(1, erlane_bench_os:file_limit() - ?SPARE_FILES),
    _ = Wanted =< Limit
        orelse progress("  only ~b connections instead of ~b: ulimit -Hn is ~b~n",
                        [Limit, Wanted, erlane_bench_os:file_limit()]),
    Held = min(Wanted, Limit),
    {Held, max(1, min(Held, Wanted div 2))}.

row(Name, Kind, Config, Measure) ->
    progress("  ~ts~n", [Name]),
    Found = case erlane_bench_contestant:start(Name, Kind, Config#{buffer => ?BUFFER}) of
                {ok, Running} ->
                    try Measure(Running)
                    after erlane_bench_contestant:stop(Running)
                    end;
                Without -> Without
            end,
    #{name => list_to_binary(Name), rounds => [Round || {ok, Round} <- [Found]],
      status => case Found of
                    {ok, _} -> ok;
                    {error, Text} -> erlane_bench_turns:status({failed, Text});
                    Why -> erlane_bench_turns:status(Why)
                end}.

%%
%% Idle
%%

memory(#{program := Server} = Running, N, Config) ->
    Before = settled(Server),
    Processes = ask(Server, "processes"),
    Rss = erlane_bench_os:rss_bytes(Server),
    with_load(Running, "hold", ["-c", integer_to_list(N)], <<"{\"connected\":">>, Config,
              fun(_Load) ->
                      ok = at_least(Server, Processes + N),
                      After = settled(Server),
                      RssAfter = erlane_bench_os:rss_bytes(Server),
                      {ok, #{memory_bytes => (After - Before) / N,
                             rss_bytes => (RssAfter - Rss) / N, connections => N}}
              end).

%% A server may make an idle connection smaller some seconds after its last request: memory is
%% taken when it has not changed for so long.
resting(#{program := Server, port := Port} = Running, N, Ms, Config) ->
    case erlane_bench_web:check(Port) of
        ok ->
            Looks = max(1, Ms div ?LOOK_MS),
            Before = steady(Server, Looks),
            Processes = ask(Server, "processes"),
            Rss = erlane_bench_os:rss_bytes(Server),
            with_load(Running, "hold", ["-c", integer_to_list(N)], <<"{\"connected\":">>, Config,
                      fun(_Load) ->
                              case at_least(Server, Processes + N - min(N div 2, ?POOL)) of
                                  ok -> rested(Server, Looks, Before, Rss, N);
                                  timeout -> {error, <<"accepts too slowly">>}
                              end
                      end);
        Error ->
            Error
    end.

rested(Server, Looks, Before, RssBefore, N) ->
    After = steady(Server, Looks),
    Rss = erlane_bench_os:rss_bytes(Server),
    {ok, #{memory_bytes => (After - Before) / N, rss_bytes => (Rss - RssBefore) / N,
           connections => N}}.

steady(Server, Looks) ->
    steady(Server, ask(Server, "memory"), Looks, Looks, ?MAX_LOOKS).

steady(_Server, Bytes, Left, _Looks, Tries) when Left =:= 0; Tries =:= 0 ->
    Bytes;
steady(Server, Bytes, Left, Looks, Tries) ->
    timer:sleep(?LOOK_MS),
    case ask(Server, "memory") of
        Now when abs(Now - Bytes) * 1000 =< Bytes ->
            steady(Server, Bytes, Left - 1, Looks, Tries - 1);
        Now ->
            steady(Server, Now, Looks, Looks, Tries - 1)
    end.

silence(#{program := Server} = Running, N, Ms, Config) ->
    Processes = ask(Server, "processes"),
    with_load(Running, "hold", ["-c", integer_to_list(N)], <<"{\"connected\":">>, Config,
              fun(_Load) ->
                      ok = at_least(Server, Processes + N),
                      _ = settled(Server),
                      ok = quiet(Server, Ms),
                      silent(Server, Ms, Config)
              end).

%% Connections are accepted after the kernel has made them.
at_least(Server, Processes) ->
    eventually(fun() -> ask(Server, "processes") >= Processes end, 100).

%% Memory is given back by and by: waits until two looks agree.
settled(Server) ->
    settled(Server, ask(Server, "memory"), 25).

settled(_Server, Bytes, 0) ->
    Bytes;
settled(Server, Bytes, Tries) ->
    timer:sleep(200),
    case ask(Server, "memory") of
        Now when abs(Now - Bytes) * 1000 =< Bytes -> Now;
        Now -> settled(Server, Now, Tries - 1)
    end.

%% After a burst the VM gives segments of memory back, one a second (its mseg cache); the time
%% without traffic begins after that. Waits until no CPU time is used for three seconds.
quiet(Server, Ms) ->
    Looks = min(12, Ms div 250),
    _ = quiet(Server, erlane_bench_os:cpu_ns(Server), Looks, Looks, 240),
    ok.

quiet(_Server, _Cpu, 0, _Looks, _Tries) -> ok;
quiet(_Server, _Cpu, _Left, _Looks, 0) -> timeout;
quiet(Server, Cpu, Left, Looks, Tries) ->
    timer:sleep(250),
    case erlane_bench_os:cpu_ns(Server) of
        Cpu -> quiet(Server, Cpu, Left - 1, Looks, Tries - 1);
        Now -> quiet(Server, Now, Looks, Looks, Tries - 1)
    end.

eventually(_Fun, 0) ->
    timeout;
eventually(Fun, Tries) ->
    case Fun() of
        true -> ok;
        false -> timer:sleep(100), eventually(Fun, Tries - 1)
    end.

ask(Server, What) ->
    {ok, N} = erlane_bench_os:ask(Server, What, list_to_binary([What, $\s]), ?ANSWER_MS),
    binary_to_integer(N).

%%
%% Echo
%%

echo(#{program := Server} = Running, N, Config) ->
    Args = ["-i", "-s", "100", "-n", integer_to_list(?ECHOES), "-c", integer_to_list(N)],
    Echoes = fun(Load) ->
                     case erlane_bench_os:ask(Load, "20000", <<"{\"requests\":">>, ?ANSWER_MS) of
                         {ok, Rest} -> binary_to_integer(hd(binary:split(Rest, <<",">>)));
                         {error, _} -> 0
                     end
             end,
    with_load(Running, "echo", Args, <<"ready ">>, Config,
              fun(Load) ->
                      erlane_bench_strace:counted([Server], Config, fun() -> Echoes(Load) end)
              end).

with_load(#{port := Port}, Mode, Args, Ready, #{load_core := Core} = Config, Fun) ->
    {ok, Exe} = erlane_bench_contestant:peer("load", Config),
    Load = erlane_bench_os:start(Exe, [Mode, "127.0.0.1", integer_to_list(Port) | Args], Core),
    try erlane_bench_os:await(Load, Ready, ?ANSWER_MS) of
        {ok, _} -> Fun(Load);
        {error, Why} -> {error, Why}
    after
        erlane_bench_os:stop(Load)
    end.

%% The system calls of a server in Ms milliseconds. A call that was waiting when strace came is
%% broken off and made again, so the log is read from a little later on.
%%
%% Every node, also one without a socket, has a timer of an hour (in inet_db), and to keep its
%% timer wheel the VM wakes for it once in 13 seconds or so: two timerfd_settime and the
%% epoll_wait of the same thread. Such ticks are counted apart.
silent(Server, Ms, Config) ->
    erlane_bench_strace:traced(
      [Server], ["-ttt"], Config,
      fun() -> timer:sleep(?SETTLE_MS + Ms) end,
      fun(_, Text) ->
              {Ticks, Calls} = ticks(logged(Text)),
              {ok, Round} = erlane_bench_strace:summed([{Name, 1} || Name <- Calls], 1),
              {ok, Round#{ticks => Ticks}}
      end).

%% The names of the calls of each thread, in order.
logged(Text) ->
    case re:run(Text, "^(\\d+) +([0-9.]+) (\\w+)\\(", [global, multiline,
                                                     {capture, all_but_first, binary}]) of
        nomatch ->
            [];
        {match, [[_, First, _] | _] = Calls} ->
            Begin = binary_to_float(First) + ?SETTLE_MS / 1000,
            [[Name || [T, At, Name] <- Calls, T =:= Thread, binary_to_float(At) >= Begin]
             || Thread <- lists:usort([T || [T, _, _] <- Calls])]
    end.

ticks(Threads) ->
    lists:foldl(fun ticks/2, {0, []}, Threads).

ticks([<<"timerfd_settime">>, <<"timerfd_settime">>, <<"epoll_wait">> | Rest], {N, Calls}) ->
    ticks(Rest, {N + 1, Calls});
ticks([Name | Rest], {N, Calls}) -> ticks(Rest, {N, [Name | Calls]});
ticks([], Counted) -> Counted.

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) ->
    io:format(standard_error, Format, Args).
