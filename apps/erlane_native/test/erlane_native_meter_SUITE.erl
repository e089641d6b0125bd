%% SPDX-License-Identifier: Apache-2.0
%% What is counted, timed and compared: functions that hand back too often, measuring, verifying.
-module(erlane_native_meter_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([storm/1, no_storm_after_work/1, no_storm_of_few/1, kept/1, storm_of_many/1,
         measured/1, verified/1, verified_by_attribute/1, verified_by_environment/1,
         difference/1, shapes/1]).

all() ->
    [storm, no_storm_after_work, no_storm_of_few, kept, storm_of_many, measured, verified,
     verified_by_attribute, verified_by_environment, difference, shapes].

init_per_suite(Config) -> erlane_native_ct:init_suite(Config).

end_per_suite(_) -> erlane_native_ct:end_suite().

init_per_testcase(Case, Config) ->
    [{module, list_to_atom("meter_" ++ atom_to_list(Case))},
     {dir, erlane_native_files:where(Config)} | Config].

end_per_testcase(_, Config) ->
    [os:unsetenv(V) || V <- ["ERLANE_NATIVE_VERIFY", "ERLANE_NATIVE_TEST"]],
    code:del_path(proplists:get_value(dir, Config)),
    erlane_native_ct:forget(proplists:get_value(module, Config)).

native(Config, Native) ->
    M = erlane_native_files:module(proplists:get_value(module, Config),
                                   ["-native([", Native, "]).\n", text()], [native],
                                   proplists:get_value(dir, Config)),
    native = erlane_native:ensure(M),
    M.

text() ->
    "-export([sum/2, deep/1]).\n"
    "sum(<<C, R/binary>>, A) -> sum(R, A + C);\n"
    "sum(<<>>, A) -> A;\n"
    "sum(_, _) -> none.\n"
    "deep(0) -> 0;\ndeep(N) -> 1 + deep(N - 1).\n".

off(M) ->
    {ok, #{off := Off}} = erlane_native:info(M),
    Off.

%% A function whose arguments are never what they were taken for is put back, and the log has one
%% line about it. Its answers are right all the time; on/1 gives it another chance.
storm(Config) ->
    M = native(Config, "sum/2"),
    {_, Said} = erlane_native_files:said(fun() ->
        [none = M:sum(a, 0) || _ <- lists:seq(1, 2000)],
        erlane_native_files:wait(fun() -> off(M) =/= [] end),
        [none = M:sum(a, 0) || _ <- lists:seq(1, 100)],
        %% The line is written by the time that this is answered.
        native = erlane_native:ensure(M)
    end),
    ?assertMatch([_], Said),
    ?assertMatch({match, _}, re:run(Said, "sum/2 is put back to BEAM: it handed back more than")),
    ?assertMatch([{{sum, 2}, "it handed back more than half" ++ _}], off(M)),
    {ok, #{deopts := [{{sum, 2}, _, "argument 1 is not a binary", N}]}} = erlane_native:info(M),
    %% Off: the rest of the calls did not come to native code.
    ?assert(N < 1500),
    ?assertEqual(6, M:sum(<<1, 2, 3>>, 0)),
    native = erlane_native:on(M),
    ?assertEqual([], off(M)),
    ?assertEqual(6, M:sum(<<1, 2, 3>>, 0)).

%% A hand-back after work was done is no reason: the work was.
no_storm_after_work(Config) ->
    M = native(Config, "sum/2"),
    Long = binary:copy(<<1>>, 20000),
    Sum = 1 bsl 63,
    [Sum = M:sum(Long, Sum - 20000) || _ <- lists:seq(1, 1500)],
    {ok, #{deopts := [{_, _, _, 1500}]}} = erlane_native:info(M),
    ?assertEqual([], off(M)).

%% Nor are some among many.
no_storm_of_few(Config) ->
    M = native(Config, "sum/2"),
    [begin
         none = M:sum(a, 0),
         [1 = M:sum(<<1>>, 0) || _ <- lists:seq(1, 3)]
     end || _ <- lists:seq(1, 1500)],
    ?assertEqual([], off(M)).

kept(Config) ->
    os:putenv("ERLANE_NATIVE_TEST", "keep"),
    M = native(Config, "sum/2"),
    [none = M:sum(a, 0) || _ <- lists:seq(1, 2000)],
    ?assertEqual([], off(M)),
    {ok, #{deopts := [{_, _, _, 2000}]}} = erlane_native:info(M).

%% From many processes: put back once, told once.
storm_of_many(Config) ->
    M = native(Config, "sum/2"),
    {_, Said} = erlane_native_files:said(fun() ->
        Ps = [spawn_monitor(fun() -> [none = M:sum(a, 0) || _ <- lists:seq(1, 2000)] end)
              || _ <- lists:seq(1, 8)],
        [receive {'DOWN', Ref, process, Pid, Why} -> ?assertEqual(normal, Why) end
         || {Pid, Ref} <- Ps],
        native = erlane_native:ensure(M)
    end),
    ?assertMatch([_], Said),
    ?assertMatch([_], off(M)).

%% Calls and their time, from when it is asked for until it is not.
measured(Config) ->
    M = native(Config, "sum/2"),
    {ok, #{measured := []}} = erlane_native:info(M),
    ok = erlane_native:measure(M, on),
    Bytes = binary:copy(<<1>>, 1000),
    [1000 = M:sum(Bytes, 0) || _ <- lists:seq(1, 500)],
    {ok, #{measured := [{{sum, 2}, 500, Ns}]}} = erlane_native:info(M),
    ?assert(Ns > 0),
    %% A call that gives way is one call.
    Long = binary:copy(<<1>>, 10000000),
    10000000 = M:sum(Long, 0),
    {ok, #{measured := [{{sum, 2}, 501, More}]}} = erlane_native:info(M),
    ?assert(More > Ns),
    ok = erlane_native:measure(M, off),
    {ok, #{measured := []}} = erlane_native:info(M),
    ?assertEqual({error, not_native}, erlane_native:measure(lists, on)).

%% Both ways, with BEAM's answer, whatever it is.
verified(Config) ->
    M = native(Config, "sum/2"),
    Calls = [{<<1, 2, 3>>, 0}, {a, 0}, {<<1>>, 1 bsl 63 - 1}, {<<>>, x}, {<<1>>, x}, {<<1:3>>, 1},
             {binary:copy(<<255>>, 3000000), 0}],
    Plain = [erlane_native_ct:outcome(M, sum, [A, B]) || {A, B} <- Calls],
    ok = erlane_native:verify(M, on),
    {ok, #{verified := [{sum, 2}]}} = erlane_native:info(M),
    {Checked, Said} = erlane_native_files:said(fun() ->
        [erlane_native_ct:outcome(M, sum, [A, B]) || {A, B} <- Calls]
    end),
    ?assertEqual(Plain, Checked),
    ?assertEqual([], Said),
    {ok, #{differences := []}} = erlane_native:info(M),
    ok = erlane_native:verify(M, off),
    {ok, #{verified := []}} = erlane_native:info(M).

verified_by_attribute(Config) ->
    M = native(Config, "{sum, 2, [verify]}, deep/1"),
    ?assertEqual(6, M:sum(<<1, 2, 3>>, 0)),
    ?assertMatch({ok, #{verified := [{sum, 2}]}}, erlane_native:info(M)).

verified_by_environment(Config) ->
    os:putenv("ERLANE_NATIVE_VERIFY", "1"),
    M = native(Config, "sum/2, deep/1"),
    ?assertEqual(6, M:sum(<<1, 2, 3>>, 0)),
    {ok, #{verified := Both}} = erlane_native:info(M),
    ?assertEqual([{deep, 1}, {sum, 2}], lists:sort(Both)).

%% Machine code that is wrong on purpose: a companion that gives way, hands back, and then says
%% what is not so. The answer is BEAM's, and the log tells once.
difference(_) ->
    Companion = meter_wrong_companion,
    Text = "-export([r0/1, info/0, counts/0, meter/2]).\n"
           "r0({0, {X}}) -> {'\\nnative', -2, {X + 1}};\n"
           "r0({1, {1}}) -> '\\nnative';\n"
           "r0({1, {2}}) -> {'\\nnative', 0, {2}};\n"
           "r0({1, {_}}) -> wrong.\n"
           "info() -> #{module => wrong, units => [{{f, 1}, 0, []}], refused => [],"
           " reasons => []}.\n"
           "counts() -> {0}.\n"
           "meter(_, _) -> {8, 0, 0, 0, 0, 0, 0, 0}.\n",
    {ok, Companion, Beam} =
        compile:forms([{attribute, 1, module, Companion} | erlane_native_ct:forms(Text)], [binary]),
    {module, Companion} = code:load_binary(Companion, "", Beam),
    Call = fun(X) ->
               erlane_native_verify:call({Companion, 0}, fun(N) -> N + 10 end,
                                         fun(0, {2}) -> 11 end, {X})
           end,
    {Values, Said} = erlane_native_files:said(fun() ->
        Vs = [Call(X) || X <- [0, 1, 3, 1 bsl 70]],
        %% Comes after these.
        {beam, _} = erlane_native_load:ensure(Companion),
        Vs
    end),
    ?assertEqual([10, 11, 13, 10 + (1 bsl 70)], Values),
    %% 0 is handed back whole, 1 goes on in BEAM and ends the same.
    ?assertEqual(2, erlane_native_load:differences({Companion, 0})),
    ?assertMatch([_], Said),
    ?assertMatch({match, _}, re:run(Said, "wrong:f/1 differs: of an integer of 2 bits machine "
                                          "code made an atom, BEAM an integer of 4 bits")),
    erlane_native_ct:forget(Companion).

shapes(_) ->
    [?assertEqual(Shape, lists:flatten(io_lib:format("~ts", [erlane_native_verify:shape(T)])))
     || {T, Shape} <- [{0, "an integer of 1 bits"}, {255, "an integer of 8 bits"},
                       {256, "an integer of 9 bits"}, {1 bsl 64, "an integer of 65 bits"},
                       {-5, "a negative integer of 3 bits"}, {1.0, "a float"},
                       {<<1, 2>>, "a binary of 2 bytes"}, {<<1:3>>, "a bit string of 3 bits"},
                       {{}, "a tuple of 0"}, {[], "an empty list"}, {[1], "a list"},
                       {#{}, "a map"}, {a, "an atom"}, {self(), "another term"}]].
