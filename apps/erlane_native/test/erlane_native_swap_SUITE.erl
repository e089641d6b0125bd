%% SPDX-License-Identifier: Apache-2.0
%% Modules made native while they are loaded, and put back: what is taken and what is left alone,
%% what is refused, and all of it while many processes call the module.
-module(erlane_native_swap_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([taken/1, restored/1, chosen/1, several/1, not_loadable/1, not_fit/1, cover/1, sticky/1,
         old_code/1, changed_file/1, no_machine_code/1, loaded_anew/1, stdlib/1, under_load/1,
         survey/1]).

all() ->
    [taken, restored, chosen, several, not_loadable, not_fit, cover, sticky, old_code,
     changed_file, no_machine_code, loaded_anew, stdlib, under_load, survey].

init_per_suite(Config) -> erlane_native_ct:init_suite(Config).

end_per_suite(_) -> erlane_native_ct:end_suite().

init_per_testcase(Case, Config) ->
    [{module, list_to_atom("swap_" ++ atom_to_list(Case))},
     {dir, erlane_native_files:where(Config)} | Config].

end_per_testcase(_, Config) ->
    os:unsetenv("ERLANE_CLANG"),
    _ = erlane_native:restore(proplists:get_value(module, Config)),
    code:del_path(proplists:get_value(dir, Config)),
    erlane_native_ct:forget(proplists:get_value(module, Config)).

sums(Config) -> sums(Config, [debug_info]).

sums(Config, Options) ->
    erlane_native_files:module(proplists:get_value(module, Config), erlane_native_files:sums(),
                               Options, proplists:get_value(dir, Config)).

%% Loops of arithmetic are taken; what has no loop, or one that gains nothing, says so.
taken(Config) ->
    M = sums(Config),
    Before = [M:lcg(7, 1000), M:fnv(<<"hello">>), M:twice(4), M:keys(3, [])],
    {ok, #{module := M, taken := Taken, refused := Refused}} = erlane_native:load(M),
    %% fnv/2 is compiled with fnv/1, which alone calls it.
    ?assertEqual([{fnv, 1}, {lcg, 2}], lists:sort(Taken)),
    ?assertEqual(Before, [M:lcg(7, 1000), M:fnv(<<"hello">>), M:twice(4), M:keys(3, [])]),
    Why = maps:from_list([{FA, {Line, lists:flatten(W)}} || {FA, Line, W} <- Refused]),
    ?assertMatch(#{{twice, 1} := {9, "a call costs more than it does" ++ _},
                   {say, 1} := {11, "calls erlang:'!'/2" ++ _}, {keys, 2} := {13, _}}, Why),
    ?assertNot(is_map_key({lcg, 2}, Why)),
    ?assertMatch({ok, #{state := native}}, erlane_native:info(M)),
    ?assertException(error, function_clause, M:fnv(a)),
    ?assertEqual({error, "it is native already"}, erlane_native:load(M)).

%% Put back, it is what it was, and nothing of ours is loaded.
restored(Config) ->
    M = sums(Config),
    What = fun() -> {M:module_info(), code:which(M), code:is_sticky(M)} end,
    Before = What(),
    {ok, _} = erlane_native:load(M),
    {Companion, _} = M:'\ncompanion'(),
    ?assertNotEqual(Before, What()),
    ?assertEqual(ok, erlane_native:restore(M)),
    ?assertEqual(Before, What()),
    ?assertNot(erlang:module_loaded(Companion)),
    ?assertMatch({error, "it was not made native" ++ _}, erlane_native:restore(M)),
    %% And again.
    {ok, _} = erlane_native:load(M),
    ok = erlane_native:restore(M),
    ?assertEqual(Before, What()).

%% A choice is taken whether it pays or not; what cannot be is said.
chosen(Config) ->
    M = sums(Config),
    {ok, #{taken := Taken, refused := Refused}} =
        erlane_native:load(M, [{functions, [{twice, 1}, {say, 1}]}]),
    ?assertEqual([{twice, 1}], Taken),
    ?assertMatch([{{say, 1}, 11, _}], Refused),
    ?assertEqual(14, M:twice(7)),
    ?assertError(badarg, erlane_native:load(M, [wrong])).

several(Config) ->
    M = sums(Config),
    ?assertMatch([{M, {ok, #{taken := [_ | _]}}}, {no_such_module, {error, "there is no" ++ _}}],
                 erlane_native:load([M, no_such_module])).

not_loadable(Config) ->
    M = sums(Config, []),
    ?assertMatch({error, "it has no debug information" ++ _}, erlane_native:load(M)),
    ?assertMatch({error, "it is part of the VM" ++ _}, erlane_native:load(erlang)),
    {module, M} = code:load_binary(M, "", element(2, code:get_object_code(M))),
    ?assertMatch({error, "its object code is in no file"}, erlane_native:load(M)).

%% Modules that have NIFs, or do something at load, cannot be replaced by what they were made of.
not_fit(Config) ->
    Dir = proplists:get_value(dir, Config),
    M = proplists:get_value(module, Config),
    [begin
         erlane_native_files:module(M, Text, [debug_info], Dir),
         ?assertEqual({error, Why}, erlane_native:load(M))
     end || {Text, Why} <- [{"-export([f/0]).\nf() -> erlang:load_nif(\"x\", 0).\n",
                             "it has NIFs"},
                            {"-on_load(f/0).\nf() -> ok.\n",
                             "it does something of its own when it is loaded (-on_load)"}]].

cover(Config) ->
    M = sums(Config),
    {ok, M} = cover:compile_beam(M),
    ?assertEqual({error, "it is compiled for cover"}, erlane_native:load(M)),
    cover:stop().

%% A module of a sticky directory is so again afterwards.
sticky(Config) ->
    Dir = proplists:get_value(dir, Config),
    M = sums(Config),
    ok = code:stick_dir(Dir),
    _ = code:load_file(M),
    true = code:is_sticky(M),
    ?assertMatch({error, "it is in a sticky directory" ++ _}, erlane_native:load(M)),
    {ok, _} = erlane_native:load(M, [sticky]),
    ?assert(code:is_sticky(M)),
    ok = erlane_native:restore(M),
    ?assert(code:is_sticky(M)),
    ok = code:unstick_dir(Dir),
    code:unstick_mod(M).

%% Nobody is killed by a module that is made native.
old_code(Config) ->
    Dir = proplists:get_value(dir, Config),
    M = proplists:get_value(module, Config),
    Text = "-export([stay/0]).\n" ++ erlane_native_files:sums()
        ++ "stay() -> receive go -> ok end.\n",
    erlane_native_files:module(M, Text, [debug_info], Dir),
    {Pid, Ref} = spawn_monitor(M, stay, []),
    erlane_native_files:wait(fun() ->
        {current_function, {M, stay, 0}} =:= process_info(Pid, current_function)
    end),
    {module, M} = code:load_file(M),
    ?assertEqual({error, "processes run in old code of it"}, erlane_native:load(M)),
    ?assert(is_process_alive(Pid)),
    Pid ! go,
    receive {'DOWN', Ref, process, Pid, normal} -> ok end,
    {ok, _} = erlane_native:load(M).

changed_file(Config) ->
    M = sums(Config),
    {ok, M, Other} = compile:forms([{attribute, 1, module, M}], [debug_info]),
    ok = file:write_file(code:which(M), Other),
    ?assertMatch({error, "what is loaded is not what is in" ++ _}, erlane_native:load(M)).

%% On a host that makes none the module is as it was, and the caller knows why.
no_machine_code(Config) ->
    M = sums(Config),
    Before = M:module_info(),
    os:putenv("ERLANE_CLANG", "no_such_program"),
    ?assertEqual({error, "clang is not installed"}, erlane_native:load(M)),
    ?assertEqual(Before, M:module_info()).

%% What somebody else loaded is not overwritten.
loaded_anew(Config) ->
    M = sums(Config),
    {ok, _} = erlane_native:load(M),
    {module, M} = code:load_file(M),
    ?assertMatch({error, "it was not made native by load, or loaded anew" ++ _},
                 erlane_native:restore(M)),
    {ok, _} = erlane_native:load(M).

%% A module of OTP that is in use all the time.
stdlib(_) ->
    Text = unicode:characters_to_binary(lists:seq($a, 16#2000)),
    Before = {base64:encode(Text), base64:decode(base64:encode(Text))},
    case erlane_native:load(base64, [sticky]) of
        {ok, #{taken := Taken}} ->
            ?assertEqual(Before, {base64:encode(Text), base64:decode(base64:encode(Text))}),
            ?assertEqual(Taken =/= [], ok =:= erlane_native:restore(base64));
        {error, "it has no debug information" ++ _} -> {skip, "OTP has no debug information"}
    end.

%% Made native, put back, switched off and on, while others call it: each answer is right, and
%% nobody dies.
under_load(Config) ->
    M = sums(Config),
    {Lcg, Fnv} = {M:lcg(7, 1000), M:fnv(<<"hello">>)},
    %% Of low priority: what is waited for here is not how busy the schedulers are.
    Workers = [spawn_opt(fun() -> calls(M, Lcg, Fnv, 0) end, [monitor, {priority, low}])
               || _ <- lists:seq(1, 16)],
    Turn = fun() ->
               {ok, #{taken := [_, _]}} = try_again(fun() -> erlane_native:load(M) end),
               ok = erlane_native:off(M),
               native = erlane_native:on(M),
               ok = erlane_native:verify(M, on),
               ok = erlane_native:verify(M, off),
               ok = try_again(fun() -> erlane_native:restore(M) end)
           end,
    [Turn() || _ <- lists:seq(1, 4)],
    [Pid ! stop || {Pid, _} <- Workers],
    Ends = [receive {'DOWN', Ref, process, _, Why} -> Why end || {_, Ref} <- Workers],
    ?assertEqual([], [E || E <- Ends, E =/= normal]).

calls(M, Lcg, Fnv, N) ->
    Lcg = M:lcg(7, 1000),
    Fnv = M:fnv(<<"hello">>),
    receive stop when N > 0 -> ok
    after 0 -> calls(M, Lcg, Fnv, N + 1)
    end.

%% Refused while somebody is still in old code, which nobody stays in.
try_again(F) -> try_again(F, erlang:monotonic_time(millisecond) + 20000).

try_again(F, Deadline) ->
    case F() of
        {error, "processes run in" ++ _} ->
            true = erlang:monotonic_time(millisecond) < Deadline,
            erlang:yield(),
            try_again(F, Deadline);
        Other -> Other
    end.

%% Says of each module what it would take, or why not, in words; loads nothing.
survey(Config) ->
    M = sums(Config),
    [{M, {ok, #{taken := Taken}}}] = erlane_native:survey(proplists:get_value(dir, Config)),
    ?assertEqual([{fnv, 1}, {lcg, 2}], lists:sort(Taken)),
    Table = erlane_native:survey([base64, zlib, erlang, M]),
    ?assertMatch([{base64, _}, {zlib, {error, _}}, {erlang, {error, _}}, {M, {ok, _}}], Table),
    ?assertEqual({error, not_native}, erlane_native:info(M)),
    ?assertError(badarg, erlane_native:survey(no_such_application)).
