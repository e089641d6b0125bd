%% SPDX-License-Identifier: Apache-2.0
%% @doc Of the scenario `profile', with `--trace-mb': what memory it takes to make a profile of a
%% long trace. The trace ends at its limit of events; the memory is the most that the VM that reads
%% it ever held.
-module(erlane_bench_profile_large).

-export([cases/3, traced/3]).

-define(CALL_MS, 3600000).
-define(FOR_MS, 1800000).
%% What an event takes in the file: the port's is what limits count it as, ours was measured.
-define(PORT_BYTES, 100).
-define(NATIVE_BYTES, 24).
-define(UNITS, 10).

%% @doc The case of this part, if a size is given.
-spec cases(Names :: [string()], Settings :: map(), erlane_bench_profile:vms()) -> [map()].
cases(Names, #{trace_mb := Mb}, #{one := Target, viewer := Viewer}) ->
    Title = iolist_to_binary(io_lib:format("a trace of ~b MB made into a profile: bar 256 MB of "
                                           "memory", [Mb])),
    io:format(standard_error, "~ts~n", [Title]),
    Runners = [erlane_bench_turns:runner(Name, {ok, #{options => Options}})
               || {Name, Options} <- erlane_bench_profile_trace:back_ends(),
                  lists:member(Name, Names)],
    ok = on(Target, erlane_bench_profile_node, workers, [1]),
    Measure = fun(#{options := Options}) ->
                      erlane_bench_profile:answer(fun() -> round(Options, Mb, Target, Viewer) end)
              end,
    Done = erlane_bench_turns:rounds(1, "MB", Measure, Runners),
    ok = on(Target, erlane_bench_profile_node, rest, []),
    [#{title => Title, main => memory_mb,
       rows => [erlane_bench_profile:row(R) || R <- Done]}];
cases(_, _, _) ->
    [].

round(Options, Mb, #{node := Node}, #{program := Program} = Viewer) ->
    ok = erlane_bench_os:forget_peak(Program),
    Told = on(Viewer, ?MODULE, traced, [Node, Options, Mb * 1000000 div event_bytes(Options)]),
    Memory = erlane_bench_os:peak_bytes(Program) / 1.0e6,
    {ok, Memory, Told#{memory_mb => Memory}}.

event_bytes(#{tracer := native}) -> ?NATIVE_BYTES;
event_bytes(#{}) -> ?PORT_BYTES.

on(Vm, M, F, A) -> erlane_bench_profile_node:call(Vm, M, F, A, ?CALL_MS).

%% @doc In the viewer: lets a worker of the node work until its trace has so many events.
-spec traced(node(), Options :: map(), Events :: pos_integer()) ->
          #{atom() => number()} | {error, string()}.
traced(Node, Options, Events) ->
    Self = self(),
    Work = spawn_link(fun() -> work(Node, Self) end),
    Go = fun(#{read := _}) ->
                 _ = get(reading) =:= undefined
                     andalso begin
                                 Work ! stop,
                                 put(reading, erlang:monotonic_time(nanosecond))
                             end,
                 continue;
            (#{}) -> continue
         end,
    Answer = erlane_prof:run(Options#{mode => trace, node => Node, for => ?FOR_MS, events => Events,
                                      functions => [erlane_bench_profile_program],
                                      progress => Go}),
    case erlane_bench_profile_trace:ended(Answer) of
        {Seen, Bytes, _} ->
            Ns = erlang:monotonic_time(nanosecond) - erase(reading),
            #{mb => Bytes / 1.0e6, converted_s => Seen * 1.0e9 / Ns};
        Error ->
            Error
    end.

work(Node, Self) ->
    receive stop -> true = unlink(Self)
    after 0 ->
        _ = erpc:call(Node, erlane_bench_profile_node, go, [1, ?UNITS]),
        work(Node, Self)
    end.
