%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenarios of one message to very many: `fanout' and `fanout-pull' in this VM with all
%% its schedulers (which do not spin), the others with a server and readers in processes of their
%% own (erlane_bench_fanout_sockets). Between nodes it is `flood-fanout'.
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
run(Scenario, Settings, Config) when Scenario =:= "fanout-sockets"; Scenario =:= "fanout-web" ->
    erlane_bench_fanout_sockets:run(Scenario, Settings, Config);
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
         #{only := Names, rounds := Rounds, round_ms := Ms}) ->
    progress("~ts~n", [Title]),
    Runners = [erlane_bench_turns:runner(Name, erlane_bench_fanout_local:start(Name, Spec))
               || Name <- Names],
    Round = fun(#{contestant := Contestant}) ->
                    End = erlang:monotonic_time(millisecond) + Ms,
                    repeat(Contestant, Load, Main, End, [])
            end,
    try
        Done = erlane_bench_turns:rounds(Rounds, atom_to_list(Main), Round, Runners),
        #{title => Title, main => Main, rows => [erlane_bench_turns:row(R) || R <- Done]}
    after
        [ok = erlane_bench_fanout_local:stop(C) || #{contestant := C} <- Runners]
    end.

repeat(Contestant, Load, Main, End, Results) ->
    case erlane_bench_fanout_local:round(Contestant, Load) of
        {ok, Result} ->
            case erlang:monotonic_time(millisecond) of
                Now when Now < End -> repeat(Contestant, Load, Main, End, [Result | Results]);
                _ ->
                    #{Main := Figure} = Medians = medians([Result | Results]),
                    {ok, Figure, Medians}
            end;
        Error ->
            Error
    end.

medians([First | _] = Results) ->
    maps:map(fun(Key, _) -> erlane_bench_report:median([maps:get(Key, R) || R <- Results]) end,
             First).

text(Format, Args) -> unicode:characters_to_binary(io_lib:format(Format, Args)).

progress(Format, Args) -> io:format(standard_error, Format, Args).
