%% SPDX-License-Identifier: Apache-2.0
%% Random programs of the subset: native and BEAM say the same. A case is a kind of programs; the
%% groups are as in the kernels' suite. A program that differs is made smaller as long as it does,
%% and the smallest is shown.
%%
%% ERLANE_LONG is the number of programs of each kind and group, 1 for a hundred times as many as
%% usual; then the seed is another one each time, and the log tells it. ERLANE_SEED sets it.
-module(erlane_native_random_SUITE).

-export([suite/0, all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2,
         end_per_group/2]).
-export([expr/1, loop/1, float/1, scan/1, build/1, walk/1, recur/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").

-define(PROGRAMS, 10).
-define(IN_MODULE, 30).
-define(CALLS, 15).
%% Attempts to make a program smaller.
-define(ATTEMPTS, 300).

suite() -> [{timetrap, {hours, 8}}].

all() -> [{group, native}, {group, yields}, {group, deopts}].

groups() ->
    Kinds = erlane_native_gen:kinds(),
    [{native, [], Kinds}, {yields, [], Kinds}, {deopts, [], Kinds}].

init_per_suite(Config) ->
    Dir = filename:join(?config(priv_dir, Config), "beams"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Seed = case {os:getenv("ERLANE_SEED"), os:getenv("ERLANE_LONG")} of
               {false, false} -> 1;
               {false, _} -> erlang:system_time();
               {Text, _} -> list_to_integer(Text)
           end,
    [{dir, Dir}, {seed, Seed} | Config].

end_per_suite(_) -> ok.

init_per_group(Group, Config) -> [{how, Group} | Config].

end_per_group(_, _) -> ok.

expr(Config) -> kind(expr, Config).
loop(Config) -> kind(loop, Config).
float(Config) -> kind(float, Config).
scan(Config) -> kind(scan, Config).
build(Config) -> kind(build, Config).
walk(Config) -> kind(walk, Config).
recur(Config) -> kind(recur, Config).

kind(Kind, Config) ->
    How = ?config(how, Config),
    Seed = erlang:phash2({Kind, How, ?config(seed, Config)}),
    _ = rand:seed(exsss, Seed),
    Setting = #{name => list_to_atom(lists:concat([Kind, "_", How])), how => How,
                dir => ?config(dir, Config)},
    Taken = many(erlane_native_ct:times(?PROGRAMS), 0, Kind, Setting),
    ct:pal("seed ~p: ~b programs were native", [?config(seed, Config), Taken]),
    %% Otherwise BEAM was compared with BEAM: so where lists are walked.
    ?assert(Taken > 0 orelse Kind =:= walk).

%% A module of them at a time, so that one run of a compiler is for many.
many(Left, Taken, _, _) when Left =< 0 -> Taken;
many(Left, Taken, Kind, Setting) ->
    Programs = [erlane_native_gen:program(Kind) || _ <- lists:seq(1, min(Left, ?IN_MODULE))],
    Calls = [[erlane_native_gen:args(P) || _ <- lists:seq(1, ?CALLS)] || P <- Programs],
    {ok, More, Differing} = compare(Programs, Calls, Setting),
    case Differing of
        [] -> many(Left - length(Programs), Taken + More, Kind, Setting);
        [{Program, Args} | _] ->
            {Small, Found} = smallest(Program, Args, ?ATTEMPTS, Setting),
            ct:fail("~ts~ncalled with ~p~nBEAM   ~p~nnative ~p",
                    [erlane_native_text:function("f1", Small), Args, element(1, Found),
                     element(2, Found)])
    end.

%% How many were native, and those that differ, each with arguments that show it.
compare(Programs, Calls, #{name := Name, how := How, dir := Dir}) ->
    Forms = erlane_native_ct:forms(erlane_native_text:functions(Programs)),
    Plain = list_to_atom(atom_to_list(Name) ++ "_plain"),
    case erlane_native_ct:plain(Plain, Forms, Dir) of
        ok ->
            ok = erlane_native_ct:native(Name, Forms, Dir, How),
            Numbered = lists:zip3(names(Programs), Programs, Calls),
            Taken = length([F || {F, _, _} <- Numbered,
                                 erlane_native_ct:why_not(Name, F, 3) =:= none]),
            Differing = [{P, Args} || {F, P, Lists} <- Numbered, Args <- Lists,
                                      erlane_native_ct:differs(Plain, Name, F, Args) =/= false],
            ok = erlane_native_ct:forget(Plain),
            ok = erlane_native_ct:forget(Name),
            {ok, Taken, Differing};
        {error, Errors} -> {error, Errors}
    end.

names(Programs) ->
    [list_to_atom("f" ++ integer_to_list(I)) || I <- lists:seq(1, length(Programs))].

%% The first smaller program that still differs, and so on, until there is none.
smallest(Program, Args, Left, Setting) ->
    case shrink(erlane_native_text:smaller(Program), Args, Left, Setting) of
        {Smaller, StillLeft} -> smallest(Smaller, Args, StillLeft, Setting);
        none -> {Program, both(Program, Args, Setting)}
    end.

shrink([P | Rest], Args, Left, Setting) when Left > 0 ->
    case compare([P], [[Args]], Setting) of
        {ok, _, [_]} -> {P, Left - 1};
        _ -> shrink(Rest, Args, Left - 1, Setting)
    end;
shrink(_, _, _, _) -> none.

both(Program, Args, #{name := Name, how := How, dir := Dir}) ->
    Forms = erlane_native_ct:forms(erlane_native_text:functions([Program])),
    Plain = list_to_atom(atom_to_list(Name) ++ "_plain"),
    ok = erlane_native_ct:plain(Plain, Forms, Dir),
    ok = erlane_native_ct:native(Name, Forms, Dir, How),
    {erlane_native_ct:outcome(Plain, f1, Args), erlane_native_ct:outcome(Name, f1, Args)}.
