%% SPDX-License-Identifier: Apache-2.0
%% @doc Contestants that take turns: a round of each, over and over, so that what slows the
%% machine down for a while slows all of them. Who cannot start, or fails, takes part no more and
%% says why in the table.
-module(erlane_bench_turns).

-export([runner/2, status/1, fail/2, rounds/4, row/1]).

-export_type([started/0, runner/0, round/0]).

-type round() :: #{atom() => number()}.
-type started() :: {ok, map()} | {missing | unavailable | failed, Why :: binary()}.
-type runner() :: #{name := string(), status := ok | binary(), rounds := [round()],
                    atom() => term()}.

%% @doc A contestant before its first round, with what it was started as.
-spec runner(Name :: string(), started()) -> runner().
runner(Name, {ok, Started}) -> Started#{name => Name, status => ok, rounds => []};
runner(Name, Without) -> #{name => Name, status => status(Without), rounds => []}.

%% @doc Why somebody does not take part, as the table says it.
-spec status({missing | unavailable | failed, binary()}) -> binary().
status({missing, Packages}) -> <<"not installed: apt-get install ", Packages/binary>>;
status({unavailable, <<"not installed", _/binary>> = Why}) -> Why;
status({unavailable, Why}) -> <<"not available: ", Why/binary>>;
status({failed, Why}) -> <<"failed: ", Why/binary>>.

%% @doc It takes part no more.
-spec fail(Why :: binary(), runner()) -> runner().
fail(Why, Runner) -> Runner#{status := status({failed, Why})}.

%% @doc So many rounds of each. A measurement answers the figure to show, in this unit, and all
%% figures of the round.
-spec rounds(pos_integer(), Unit :: iodata(),
             fun((runner()) -> {ok, number() | none, round()} | {error, binary()}), [runner()]) ->
          [runner()].
rounds(Rounds, Unit, Measure, Runners) ->
    lists:foldl(fun(I, Acc) ->
                        progress("  round ~b of ~b, ~ts:", [I, Rounds, Unit]),
                        Next = [one(Runner, Measure) || Runner <- Acc],
                        progress("~n", []),
                        Next
                end, Runners, lists:seq(1, Rounds)).

one(#{status := ok, name := Name, rounds := Done} = Runner, Measure) ->
    case Measure(Runner) of
        {ok, none, Round} ->
            progress(" ~ts -", [Name]),
            Runner#{rounds := Done ++ [Round]};
        {ok, Figure, Round} ->
            progress(" ~ts ~.2f", [Name, float(Figure)]),
            Runner#{rounds := Done ++ [Round]};
        {error, Why} ->
            progress(" ~ts failed", [Name]),
            fail(Why, Runner)
    end;
one(Runner, _) ->
    Runner.

%% @doc Its row of a table.
-spec row(runner()) -> #{name := binary(), status := ok | binary(), rounds := [round()]}.
row(#{name := Name, status := Status, rounds := Rounds}) ->
    #{name => list_to_binary(Name), status => Status, rounds => Rounds}.

progress(Format, Args) -> io:format(standard_error, Format, Args).
