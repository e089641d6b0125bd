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
-export([expr/1, loop/1, float/1, scan/1, build/1, walk/1, recur/1, cells/1, comp/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").

-define(PROGRAMS, 10).
%% More, and the compiler's time grows faster than they do.
-define(IN_MODULE, 50).
-define(CALLS, 30).
%% A case ends after so many that differ.
-define(SHOWN, 5).
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
    case erlane_native_ct:init_suite(Config) of
        {skip, _} = Skip -> Skip;
        Inited -> [{dir, Dir}, {seed, erlane_native_ct:seed()} | Inited]
    end.

end_per_suite(_) -> erlane_native_ct:end_suite().

init_per_group(Group, Config) -> [{how, Group} | Config].

end_per_group(_, _) -> ok.

expr(Config) -> kind(expr, Config).
loop(Config) -> kind(loop, Config).
float(Config) -> kind(float, Config).
scan(Config) -> kind(scan, Config).
build(Config) -> kind(build, Config).
walk(Config) -> kind(walk, Config).
recur(Config) -> kind(recur, Config).
cells(Config) -> kind(cells, Config).
comp(Config) -> kind(comp, Config).

kind(Kind, Config) ->
    How = ?config(how, Config),
    Seed = erlang:phash2({Kind, How, ?config(seed, Config)}),
    _ = rand:seed(exsss, Seed),
    Setting = #{name => list_to_atom(lists:concat([Kind, "_", How])),
                dir => ?config(dir, Config)},
    Programs = erlane_native_ct:times(?PROGRAMS),
    {Taken, Differing} = many(Programs, 0, {0, []}, Kind, How, Setting),
    ct:pal("~s ~s: ~b programs, ~b native, ~b calls each, ~b differ; seed ~p; ~s",
           [Kind, How, Programs, Taken, ?CALLS, length(Differing), ?config(seed, Config),
            erlane_native_ct:versions()]),
    ?assertEqual([], Differing),
    %% Otherwise BEAM was compared with BEAM.
    ?assert(Taken > 0 orelse Kind =:= comp).

%% A module of them at a time, so that one run of a compiler is for many.
many(Left, _, {Taken, Differ}, _, _, _) when Left =< 0; length(Differ) >= ?SHOWN ->
    {Taken, Differ};
many(Left, N, {Taken, Differ}, Kind, How, Setting0) ->
    Setting = Setting0#{how => nth(How, N), options => options(N)},
    Programs = [erlane_native_gen:program(Kind) || _ <- lists:seq(1, min(Left, ?IN_MODULE))],
    Calls = [[erlane_native_gen:args(P) || _ <- lists:seq(1, ?CALLS)] || P <- Programs],
    {ok, More, Found} = compare(Programs, Calls, Setting),
    Shown = [shown(Program, Args, Setting)
             || {Program, [{Args, _} | _] = Shows} <- Found, not merged(Program, Shows, Setting)],
    many(Left - length(Programs), N + 1, {Taken + More, Differ ++ Shown}, Kind, How, Setting0).

%% In a long run other turns are handed back in each module.
nth(deopts, N) -> {deopts, lists:nth(N rem 5 + 1, [3, 1, 2, 5, 8])};
nth(How, _) -> How.

%% What stays BEAM is compiled with all that the compiler has once in four modules.
options(N) when N rem 4 =:= 0 -> [];
options(_) -> [no_ssa_opt].

%% Up to OTP 26 the compiler keeps one literal of a module for 0.0 and -0.0, or for tuples and lists
%% that differ in that: then BEAM's answer depends on what else is in the module. Only the sign of a
%% zero is another one then, and alone the program does not differ.
merged(Program, Shows, Setting) ->
    erlang:system_info(otp_release) < "27"
        andalso lists:all(fun({_, How}) -> How =:= zero end, Shows)
        andalso compare([Program], [[Args || {Args, _} <- Shows]], Setting) =:= {ok, 1, []}
        andalso ct:pal("literals with zeros were merged: ~p", [hd(Shows)]) =:= ok.

shown(Program, Args, Setting) ->
    {Small, {Beam, Native}} = smallest(Program, Args, ?ATTEMPTS, Setting),
    ct:pal("~p~n~ts~ncalled with ~p~nBEAM   ~p~nnative ~p",
           [Setting, erlane_native_text:function("f1", Small), Args, Beam, Native]),
    {Small, Args}.

%% How many were native, and those that differ, each with the arguments that show it.
compare(Programs, Calls, #{name := Name} = Setting) ->
    case build(Programs, Setting) of
        {ok, Plain} ->
            Numbered = lists:zip3(names(Programs), Programs, Calls),
            Taken = length([F || {F, _, _} <- Numbered,
                                 erlane_native_ct:why_not(Name, F, 3) =:= none]),
            Differing = [{P, Shows} || {F, P, Lists} <- Numbered,
                                       Shows <- [[{Args, How}
                                                  || Args <- Lists,
                                                     How <- [differs(Plain, Name, F, Args)],
                                                     How =/= false]],
                                       Shows =/= []],
            ok = erlane_native_ct:forget(Plain),
            ok = erlane_native_ct:forget(Name),
            {ok, Taken, Differing};
        {error, Errors} -> {error, Errors}
    end.

differs(Plain, Name, F, Args) ->
    case erlane_native_ct:differs(Plain, Name, F, Args) of
        false -> false;
        {Same, Same} -> zero;
        _ -> true
    end.

%% The programs as they are, under the name that is returned, and native.
build(Programs, #{name := Name, how := How, dir := Dir, options := Options}) ->
    Forms = erlane_native_ct:forms(erlane_native_text:functions(Programs)),
    Plain = list_to_atom(atom_to_list(Name) ++ "_plain"),
    case erlane_native_ct:plain(Plain, Forms, Dir, Options) of
        ok ->
            ok = erlane_native_ct:native(Name, Forms, Dir, How, Options),
            ok = erlane_native_ct:empty_cache(),
            {ok, Plain};
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

both(Program, Args, #{name := Name} = Setting) ->
    {ok, Plain} = build([Program], Setting),
    {erlane_native_ct:outcome(Plain, f1, Args), erlane_native_ct:outcome(Name, f1, Args)}.
