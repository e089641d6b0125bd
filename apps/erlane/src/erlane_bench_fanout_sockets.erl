%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios `fanout-sockets' and `fanout-web': one message to many sockets. Each
%% contestant has a VM (erlane_bench_fanout_server) and a reader in C (bench/peers/reader.c), which
%% judges order and times: one core and one scheduler for the VM and the other core for the reader,
%% or all cores for both. The figure is CPU time of the VM for each message that came.
-module(erlane_bench_fanout_sockets).

-export([run/3]).

-define(START_MS, 60000).
-define(ANSWER_MS, 30000).
%% What is still under way at the end of a round has so long to come.
-define(GRACE_MS, 5000).
-define(TUNED, ["+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none"]).
%% One in so many connections never reads, where there are such.
-define(STALLED, 10).
-define(HEAD, 16).

%% @doc Measures all cases. A case is `#{title, main, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("fanout-sockets", Settings, #{server_core := Server, load_core := Load} = Config) ->
    [one_case(Case#{cores => {[Server], [Load]}}, Settings, Config) || Case <- cases(Settings)];
run("fanout-web", #{payload := Sizes, web_clients := Web} = Settings, Config) ->
    #{server_core := Server, load_core := Load} = Config,
    All = lists:usort([Server, Load]),
    [one_case((web(Web, Size))#{cores => {All, All}}, Settings, Config)
     || Given <- Sizes, Size <- [max(?HEAD, Given)]].

cases(#{connections := Counts, web_clients := Web, payload := Sizes}) ->
    lists:append(
      [[#{title => text("one message of ~b bytes to ~b sockets", [Size, N]), framing => "raw",
          count => N, micros => max(10000, N * 20), bytes => Size, stalled => 0}
        || N <- Counts]
       ++ [web(Web, Size),
           #{title => text("100 messages of ~b bytes a second to ~b sockets, of which one in ~b "
                           "never reads", [Size, hd(Counts), ?STALLED]),
             framing => "raw", count => hd(Counts), micros => 10000, bytes => Size,
             stalled => ?STALLED}]
       || Given <- Sizes, Size <- [max(?HEAD, Given)]]).

web(Web, Size) ->
    #{title => text("100 messages of ~b bytes a second to ~b WebSocket clients", [Size, Web]),
      framing => "ws", count => Web, micros => 10000, bytes => Size, stalled => 0}.

one_case(#{title := Title} = Case, #{only := Names, rounds := Rounds, round_ms := Ms}, Config) ->
    progress("~ts~n", [Title]),
    Runners = [erlane_bench_turns:runner(Name, start(Name, Case, Config)) || Name <- Names],
    try
        Done = erlane_bench_turns:rounds(Rounds, "us CPU/delivery",
                                         fun(R) -> measure(R, Case, Ms) end, Runners),
        #{title => Title, main => cpu_us, rows => [erlane_bench_turns:row(R) || R <- Done]}
    after
        [ok = ended(Program) || #{server := Server, reader := Reader} <- Runners,
                                Program <- [Reader, Server]]
    end.

%% An orderly end of a VM takes a second.
ended(Program) ->
    ok = erlane_bench_os:signal(Program, "KILL"),
    erlane_bench_os:stop(Program).

%% The files of a connection are those of the limit of each process.
start(Name, #{framing := Framing, count := Count, bytes := Bytes, stalled := Stalled,
              cores := {ServerCores, LoadCores}}, Config) ->
    Enough = erlane_bench_os:file_limit() >= Count + 100,
    case {erlane_bench_contestant:peer("reader", Config), known(Name), Enough} of
        {_, _, false} ->
            {unavailable, <<"this process may not have so many files">>};
        {_, false, _} ->
            {unavailable, <<"there is no erlane_fanout">>};
        {{ok, Exe}, true, true} ->
            Server = erlane_bench_os:start(filename:join([code:root_dir(), "bin", "erl"]),
                                           vm(Name, Framing, length(ServerCores)), ServerCores),
            case erlane_bench_os:await(Server, <<"ready ">>, ?START_MS) of
                {ok, Port} ->
                    Args = [Framing, binary_to_list(Port), integer_to_list(Count),
                            integer_to_list(Bytes), integer_to_list(Stalled)],
                    Reader = erlane_bench_os:start(Exe, Args, LoadCores),
                    read_by(Reader, Server, Count);
                {error, Why} ->
                    ok = ended(Server),
                    {failed, Why}
            end;
        {{Why, What}, _, _} ->
            {Why, What}
    end.

known("fanout") -> code:which(erlane_fanout) =/= non_existing;
known(_) -> true.

vm(Name, Framing, Schedulers) ->
    Paths = lists:usort([filename:dirname(File)
                         || M <- [?MODULE, erlane_fanout, erlane_router, erlane_metrics,
                                  erlane_socket],
                            File <- [code:which(M)], is_list(File)]),
    ["+S", integer_to_list(Schedulers) | ?TUNED]
        ++ ["+P", "1048576", "-noshell", "-boot", "no_dot_erlang", "-pa" | Paths]
        ++ ["-s", "erlane_bench_fanout_server", "start", "-extra", Name, Framing].

read_by(Reader, Server, Count) ->
    case erlane_bench_os:await(Reader, <<"ready ">>, ?START_MS) of
        {ok, Reading} ->
            case connected(Server, Count, ?ANSWER_MS div 50) of
                ok ->
                    {ok, #{server => Server, reader => Reader,
                           reading => binary_to_integer(Reading)}};
                {error, Why} ->
                    [ok = ended(Program) || Program <- [Reader, Server]],
                    {failed, Why}
            end;
        {error, Why} ->
            [ok = ended(Program) || Program <- [Reader, Server]],
            {failed, Why}
    end.

connected(_, Count, 0) ->
    {error, text("~b connections were not all made", [Count])};
connected(Server, Count, Tries) ->
    case erlane_bench_os:ask(Server, "connections", <<"connections ">>, ?ANSWER_MS) of
        {ok, Text} ->
            case binary_to_integer(Text) of
                Count -> ok;
                _ -> receive after 50 -> connected(Server, Count, Tries - 1) end
            end;
        Error ->
            Error
    end.

measure(#{server := Server, reader := Reader, reading := Reading},
        #{micros := Micros, bytes := Bytes}, Ms) ->
    N = max(1, Ms * 1000 div Micros),
    Asked = io_lib:format("publish ~b ~b ~b", [N, Micros, Bytes]),
    Wait = io_lib:format("report ~b ~b", [N * Reading, ?GRACE_MS]),
    {ok, _} = erlane_bench_os:ask(Reader, "reset", <<"reset">>, ?ANSWER_MS),
    Before = erlane_bench_os:cpu_ns(Server),
    case erlane_bench_os:ask(Server, Asked, <<"published ">>, Ms + ?ANSWER_MS) of
        {ok, Published} ->
            [_, Ns] = binary:split(Published, <<" ">>),
            case erlane_bench_os:ask(Reader, Wait, <<"report ">>, ?ANSWER_MS) of
                {ok, Text} ->
                    Cpu = erlane_bench_os:cpu_ns(Server) - Before,
                    {ok, Memory} = erlane_bench_os:ask(Server, "memory", <<"memory ">>,
                                                       ?ANSWER_MS),
                    judged(figures(string:lexemes(Text, " ")), N * Reading,
                           #{cpu => Cpu, publisher_us => binary_to_integer(Ns) / 1000 / N,
                             memory_mb => binary_to_integer(Memory) / 1.0e6});
                Error ->
                    Error
            end;
        Error ->
            Error
    end.

figures([Name, Value | Rest]) ->
    Number = try binary_to_float(Value) catch error:badarg -> binary_to_integer(Value) end,
    (figures(Rest))#{binary_to_atom(Name) => Number};
figures([]) ->
    #{}.

%% Those that read are to get all, in order.
judged(#{received := Received, missing := 0, twice := 0, closed := 0} = Figures, Received,
       #{cpu := Cpu} = More) ->
    Each = Cpu / 1000 / Received,
    {ok, Each, maps:merge(Figures, More#{cpu_us => Each})};
judged(#{received := Received, missing := Missing, twice := Twice, closed := Closed}, Expected,
       _) ->
    {error, text("~b of ~b messages came, ~b were left out, ~b came twice or late, "
                 "~b connections ended", [Received, Expected, Missing, Twice, Closed])}.

text(Format, Args) -> unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) -> io:format(standard_error, Format, Args).
