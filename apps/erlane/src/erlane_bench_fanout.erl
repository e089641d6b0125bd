%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios of one message to very many: `fanout' and `fanout-pull' in this VM with all
%% its schedulers (which do not spin), `fanout-sockets' with a server and readers in processes of
%% their own (erlane_bench_fanout_sockets). Between nodes it is `flood-fanout'.
%%
%% Of each case all contestants are started before its first round and ended after its last;
%% rounds go over all of them, over and over. Within a round a load is repeated, each waited for,
%% and the figures of the round are medians.
-module(erlane_bench_fanout).

-export([run/3]).

-define(BACK_TO_BACK, 10).
-define(EACH, 20).

%% @doc Measures all cases. A case is `#{title, main, rows}'.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run("fanout-sockets", Settings, Config) ->
    erlane_bench_fanout_sockets:run(Settings, Config);
run(Scenario, Settings, _Config) ->
    [one_case(Case, Settings) || Case <- cases(Scenario, Settings)].

cases("fanout", #{connections := Counts, payload := Sizes, topics := Topics}) ->
    lists:append(
      [[#{title => text("~b message(s) of ~b bytes to ~b process(es)", [N, Size, Count]),
          main => last_us, load => {burst, N},
          spec => #{count => Count, topics => 0, each => 1, payload => Size}}
        || Count <- Counts, N <- [1, ?BACK_TO_BACK]]
       ++ [#{title => text("one message of ~b bytes on a topic of ~b processes, then one on each "
                           "of ~b topics of ~b", [Size, max(Most, Topics * ?EACH), Topics, ?EACH]),
             main => cold_us, load => topics,
             spec => #{count => max(Most, Topics * ?EACH), topics => Topics, each => ?EACH,
                       payload => Size}}
           || Most <- [lists:max(Counts)]]
       || Size <- Sizes]);
cases("fanout-pull", #{payload := Sizes, pullers := Pullers, pulled := N}) ->
    [#{title => text("~b messages of ~b bytes to each of ~b processes", [N, Size, Pullers]),
       main => million_s, load => {burst, N},
       spec => #{count => Pullers, topics => 0, each => 1, payload => Size}}
     || Size <- Sizes].

one_case(#{title := Title, main := Main, spec := Spec, load := Load},
         #{only := Names, rounds := Rounds} = Settings) ->
    progress("~ts~n", [Title]),
    Started = [runner(Name, erlane_bench_fanout_local:start(Name, Spec)) || Name <- Names],
    try
        Done = rounds(1, Rounds, Started, Load, Main, Settings),
        #{title => Title, main => Main,
          rows => [maps:with([name, status, rounds], Runner) || Runner <- Done]}
    after
        [ok = erlane_bench_fanout_local:stop(C) || #{contestant := C} <- Started]
    end.

runner(Name, {ok, Contestant}) ->
    #{name => list_to_binary(Name), status => ok, rounds => [], contestant => Contestant};
runner(Name, {unavailable, Why}) ->
    #{name => list_to_binary(Name), status => <<"not available: ", Why/binary>>, rounds => []};
runner(Name, {failed, Why}) ->
    #{name => list_to_binary(Name), status => <<"failed: ", Why/binary>>, rounds => []}.

rounds(I, Rounds, Runners, _, _, _) when I > Rounds ->
    Runners;
rounds(I, Rounds, Runners, Load, Main, #{round_ms := Ms} = Settings) ->
    progress("  round ~b of ~b, ~ts:", [I, Rounds, Main]),
    Next = [one_round(Runner, Load, Main, Ms) || Runner <- Runners],
    progress("~n", []),
    rounds(I + 1, Rounds, Next, Load, Main, Settings).

one_round(#{status := ok, name := Name, contestant := Contestant, rounds := Done} = Runner, Load,
          Main, Ms) ->
    End = erlang:monotonic_time(millisecond) + Ms,
    case repeat(Contestant, Load, End, []) of
        {ok, #{Main := Figure} = Round} ->
            progress(" ~ts ~.2f", [Name, float(Figure)]),
            Runner#{rounds := Done ++ [Round]};
        {error, Why} ->
            progress(" ~ts failed", [Name]),
            Runner#{status := <<"failed: ", Why/binary>>}
    end;
one_round(Runner, _, _, _) ->
    Runner.

repeat(Contestant, Load, End, Results) ->
    case erlane_bench_fanout_local:round(Contestant, Load) of
        {ok, Result} ->
            case erlang:monotonic_time(millisecond) of
                Now when Now < End -> repeat(Contestant, Load, End, [Result | Results]);
                _ -> {ok, medians([Result | Results])}
            end;
        Error ->
            Error
    end.

medians([First | _] = Results) ->
    maps:map(fun(Key, _) -> erlane_bench_report:median([maps:get(Key, R) || R <- Results]) end,
             First).

text(Format, Args) -> unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) -> io:format(standard_error, Format, Args).
