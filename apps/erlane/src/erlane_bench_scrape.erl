%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenario `scrape': what writing many series out does to everybody else.
%%
%% It runs in this VM. While one process writes all series in a format and drops the pieces, a
%% writer on every scheduler updates them, and beside it a watcher that is always ready to run
%% measures how long it waits for its next turn. The longest wait is the longest pause of a
%% scheduler, with the slices of the others in it. What the machine itself adds is seen with the
%% contestant `none', which only waits.
-module(erlane_bench_scrape).

-export([run/3]).

-define(LABELS, [<<"shard">>, <<"peer">>]).
-define(PEERS, 1000).

%% @doc Measures all cases. A case is `#{title, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("scrape", #{only := Names, rounds := Rounds, series := Sizes} = Settings, _Config) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    [begin
         Handles = series(Series),
         Title = iolist_to_binary(io_lib:format("~b series, a writer on every scheduler",
                                                [Series])),
         Measured = [[{Name, round(Title, Name, Handles, Settings)} || Name <- Names]
                     || _ <- lists:seq(1, Rounds)],
         #{title => Title,
           rows => [#{name => list_to_binary(Name), status => ok,
                      rounds => [M || Round <- Measured, {N, M} <- Round, N =:= Name]}
                    || Name <- Names]}
     end || Series <- Sizes].

%% Families of a thousand counters each; what was made for a smaller case stays.
series(Count) ->
    Families = max(1, Count div ?PEERS),
    list_to_tuple(
      [erlane_metrics:handle(Family, [F rem 7, P])
       || F <- lists:seq(1, Families), Family <- [family(F)],
          P <- lists:seq(1, min(Count, ?PEERS))]).

family(F) ->
    erlane_metrics:counter(#{name => iolist_to_binary(io_lib:format("erlane_bench_~b", [F])),
                             help => <<"Bench">>, labels => ?LABELS, limit => ?PEERS}).

round(Title, Name, Handles, Settings) ->
    io:put_chars(standard_error, ["  ", Title, ": ", Name, "\n"]),
    Schedulers = lists:seq(1, erlang:system_info(schedulers_online)),
    Writers = [start(S, fun() -> write(Handles, S) end) || S <- Schedulers],
    Watchers = [start(S, fun() -> watch(erlang:monotonic_time(), 0) end) || S <- Schedulers],
    _ = erlang:system_monitor(self(), [{long_schedule, 1}, {long_gc, 1}]),
    Self = self(),
    Pid = spawn_link(fun() -> Self ! {scraped, self(), scrape(Name, Settings)} end),
    Scraped = receive {scraped, Pid, Result} -> Result end,
    _ = erlang:system_monitor(undefined),
    Pauses = [pause(Watcher) || Watcher <- Watchers],
    lists:foreach(fun stop/1, Writers ++ Watchers),
    Scraped#{pause_ms => lists:max(Pauses), slice_ms => longest(Pid, 0)}.

%% The VM knows the option `scheduler', its documentation and dialyzer do not.
start(Scheduler, Fun) -> spawn_opt(Fun, [link, {list_to_atom("scheduler"), Scheduler}]).

stop(Pid) ->
    Monitor = erlang:monitor(process, Pid),
    unlink(Pid),
    exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

write(Handles, N) ->
    ok = erlane_metrics:inc(element(1 + N rem tuple_size(Handles), Handles)),
    write(Handles, N + 7919).

watch(Before, Longest) ->
    receive
        {ask, From, Ref} -> From ! {Ref, Longest}
    after 0 ->
        _ = erlang:yield(),
        Now = erlang:monotonic_time(),
        watch(Now, max(Longest, Now - Before))
    end.

pause(Watcher) ->
    Ref = make_ref(),
    Watcher ! {ask, self(), Ref},
    receive {Ref, Longest} -> erlang:convert_time_unit(Longest, native, microsecond) / 1000 end.

%% The VM tells of slices and collections of a millisecond and more.
longest(Pid, Longest) ->
    receive
        {monitor, Pid, _, Info} -> longest(Pid, max(Longest, proplists:get_value(timeout, Info)));
        {monitor, _, _, _} -> longest(Pid, Longest)
    after 0 ->
        Longest
    end.

scrape("none", #{round_ms := Ms}) ->
    receive after Ms -> #{} end;
scrape(Name, _Settings) ->
    {Format, Encoding} = format(Name),
    Start = erlang:monotonic_time(),
    {Bytes, Peak} = erlane_metrics_expose:expose(Format, Encoding, fun piece/2, {0, 0}),
    Took = erlang:monotonic_time() - Start,
    #{scrape_ms => erlang:convert_time_unit(Took, native, microsecond) / 1000,
      bytes => Bytes, memory_kb => Peak / 1024}.

format("text") -> {text, identity};
format("openmetrics") -> {openmetrics, identity};
format("protobuf") -> {protobuf, identity};
format("text-gzip") -> {text, gzip}.

%% Heap, stack and the binaries that only this process keeps.
piece(Piece, {Bytes, Peak}) ->
    [{memory, Heap}, {binary, Binaries}] = process_info(self(), [memory, binary]),
    Held = lists:sum([Size || {_, Size, _} <- lists:usort(Binaries)]),
    {Bytes + iolist_size(Piece), max(Peak, Heap + Held)}.
