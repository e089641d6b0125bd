%% SPDX-License-Identifier: Apache-2.0
%% Hosts that lack something: machine code that was made in the build, no compiler or a wrong one,
%% no place to keep what it makes, files that are damaged or another's. The program runs on BEAM,
%% and the reason is said once, in words.
-module(erlane_native_hosts_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([shipped/1, built_again/1, nothing_to_build/1, build_without_clang/1, shipped_damaged/1,
         shipped_of_another/1, shipped_for_another_machine/1, no_cache/1, read_only/1,
         old_compiler/1, not_a_compiler/1, compiler_fails/1, compiler_makes_nothing/1,
         said_once/1, busy/1, application_stopped/1, no_application/1]).
%% Of the application that one case starts.
-export([start/2, stop/1]).

all() ->
    [shipped, built_again, nothing_to_build, build_without_clang, shipped_damaged,
     shipped_of_another, shipped_for_another_machine, no_cache, read_only, old_compiler,
     not_a_compiler, compiler_fails, compiler_makes_nothing, said_once, busy,
     application_stopped, no_application].

init_per_suite(Config) ->
    case erlane_native_clang:find() of
        {ok, _, _} -> [{path, os:getenv("PATH")} | Config];
        {error, Why} -> {skip, lists:flatten(Why)}
    end.

end_per_suite(_) -> ok.

init_per_testcase(Case, Config) ->
    Dir = erlane_native_files:where(Config),
    os:putenv("ERLANE_NATIVE_CACHE", filename:join(filename:dirname(Dir), "cache")),
    M = list_to_atom("hosts_" ++ atom_to_list(Case)),
    _ = erlane_native_files:module(M, ["-native([lcg/2, fnv/1]).\n" | erlane_native_files:sums()],
                                   [native], Dir),
    [{module, M}, {dir, Dir} | Config].

end_per_testcase(_, Config) ->
    os:putenv("PATH", proplists:get_value(path, Config)),
    [os:unsetenv(V) || V <- ["ERLANE_NATIVE_CACHE", "ERLANE_CLANG"]],
    code:del_path(proplists:get_value(dir, Config)),
    erlane_native_ct:forget(proplists:get_value(module, Config)).

%% From here on the host has neither compiler nor cache.
bare(Config) ->
    os:putenv("PATH", proplists:get_value(priv_dir, Config)),
    os:putenv("ERLANE_NATIVE_CACHE", "/dev/null/cache").

on_beam(Config, Pattern) ->
    M = proplists:get_value(module, Config),
    {beam, Why} = erlane_native:ensure(M),
    ?assertMatch({match, _}, re:run(unicode:characters_to_list(Why), Pattern)),
    ?assertEqual({beam, Why}, maps:get(state, element(2, erlane_native:info(M)))),
    ?assertEqual(1664525, M:lcg(1664525, 0)).

build(Config) ->
    Dir = proplists:get_value(dir, Config),
    M = proplists:get_value(module, Config),
    {ok, [{M, {made, Object}}]} = erlane_native:build(Dir),
    Object.

%% Made in the build, used where there is no clang.
shipped(Config) ->
    M = proplists:get_value(module, Config),
    Value = M:fnv(<<"hello">>),
    Object = build(Config),
    ?assertEqual("native", filename:basename(filename:dirname(Object))),
    bare(Config),
    ?assertEqual(native, erlane_native:ensure(M)),
    ?assertEqual(Value, M:fnv(<<"hello">>)).

built_again(Config) ->
    M = proplists:get_value(module, Config),
    Object = build(Config),
    ?assertEqual({ok, [{M, {there, Object}}]},
                 erlane_native:build(proplists:get_value(dir, Config))),
    To = filename:join(proplists:get_value(priv_dir, Config), "elsewhere"),
    {ok, [{M, {made, Other}}]} = erlane_native:build(proplists:get_value(dir, Config), To),
    ?assertEqual(To, filename:dirname(Other)).

nothing_to_build(Config) ->
    Dir = erlane_native_files:where(Config),
    erlane_native_files:module(hosts_plain, "-export([f/0]).\nf() -> [a].\n", [], Dir),
    ?assertEqual({ok, []}, erlane_native:build(Dir)),
    ?assertMatch({error, _}, erlane_native:build(filename:join(Dir, "none"))),
    code:del_path(Dir),
    erlane_native_ct:forget(hosts_plain).

build_without_clang(Config) ->
    M = proplists:get_value(module, Config),
    bare(Config),
    ?assertEqual({ok, [{M, {error, "clang is not installed"}}]},
                 erlane_native:build(proplists:get_value(dir, Config))).

%% Cut short, it would take the VM down.
shipped_damaged(Config) ->
    Object = build(Config),
    {ok, Bytes} = file:read_file(Object),
    ok = file:write_file(Object, binary:part(Bytes, 0, 1000)),
    bare(Config),
    on_beam(Config, "cannot make the cache").

%% A sum that fits does not make it the right one.
shipped_of_another(Config) ->
    Dir = erlane_native_files:where(Config),
    erlane_native_files:module(hosts_other,
                               ["-native([lcg/2]).\n" | erlane_native_files:sums()],
                               [native], Dir),
    {ok, [{hosts_other, {made, Other}}]} = erlane_native:build(Dir),
    {ok, Bytes} = file:read_file(Other),
    replace(build(Config), Bytes),
    bare(Config),
    on_beam(Config, "cannot be used: .*hosts_other"),
    code:del_path(Dir),
    erlane_native_ct:forget(hosts_other).

%% As what was made for another processor is: no library at all.
shipped_for_another_machine(Config) ->
    Object = build(Config),
    {ok, <<Start:18/binary, _:16, Rest/binary>>} = file:read_file(Object),
    %% The machine that an ELF file is for.
    replace(Object, <<Start/binary, 16#F0F0:16, Rest/binary>>),
    bare(Config),
    on_beam(Config, "cannot be used").

replace(Object, Bytes) ->
    ok = file:write_file(Object, Bytes),
    Sum = [io_lib:format("~2.16.0b", [B]) || <<B>> <= erlang:md5(Bytes)],
    ok = file:write_file(filename:rootname(Object) ++ ".sum", Sum).

no_cache(Config) ->
    os:putenv("ERLANE_NATIVE_CACHE", "/dev/null/cache"),
    on_beam(Config, "cannot make the cache /dev/null/cache: not a directory").

%% Nobody can make a directory there, not even root.
read_only(Config) ->
    os:putenv("ERLANE_NATIVE_CACHE", "/proc/erlane_native"),
    on_beam(Config, "cannot make the cache /proc/erlane_native: ").

old_compiler(Config) ->
    compiler(Config, "echo 'Debian clang version 9.0.1-16'"),
    on_beam(Config, "is version 9, 14 is the least").

not_a_compiler(Config) ->
    compiler(Config, "echo hello"),
    on_beam(Config, "does not tell its version").

compiler_fails(Config) ->
    compiler(Config, "case $1 in --version) echo 'clang version 14.0.6';;"
                     " *) echo out of luck; exit 3;; esac"),
    on_beam(Config, "failed with 3: out of luck").

compiler_makes_nothing(Config) ->
    compiler(Config, "echo 'clang version 14.0.6'"),
    on_beam(Config, "made nothing: clang version").

compiler(Config, Script) ->
    File = filename:join(proplists:get_value(dir, Config), "clang"),
    ok = file:write_file(File, ["#!/bin/sh\n", Script, "\n"]),
    ok = file:change_mode(File, 8#755),
    os:putenv("ERLANE_CLANG", File).

%% However often it is called, and by whom.
said_once(Config) ->
    M = proplists:get_value(module, Config),
    bare(Config),
    {_, Said} = erlane_native_files:said(fun() ->
        Ps = [spawn_monitor(fun() -> [1 = M:lcg(1, 0) || _ <- lists:seq(1, 100)] end)
              || _ <- lists:seq(1, 8)],
        [receive {'DOWN', Ref, process, Pid, Why} -> ?assertEqual(normal, Why) end
         || {Pid, Ref} <- Ps],
        erlane_native_files:wait(fun() ->
            {ok, #{state := State}} = erlane_native:info(M),
            is_tuple(State)
        end),
        %% Comes after what the calls asked for.
        {beam, _} = erlane_native:ensure(M)
    end),
    ?assertEqual(["hosts_said_once stays on BEAM: cannot make the cache /dev/null/cache: "
                  "not a directory"], Said).

%% While one module is compiled, calls of another one ask for its machine code once, not each.
busy(Config) ->
    M = proplists:get_value(module, Config),
    Dir = proplists:get_value(dir, Config),
    [Begun, Go] = [filename:join(Dir, F) || F <- ["begun", "go"]],
    compiler(Config, ["touch ", Begun, "; while [ ! -e ", Go, " ]; do sleep 0.05; done;",
                      " echo 'clang version 9.0'"]),
    Second = erlane_native_files:module(
               hosts_busy_2, ["-native([lcg/2]).\n" | erlane_native_files:sums()], [native], Dir),
    1 = M:lcg(1, 0),
    try
        erlane_native_files:wait(fun() -> filelib:is_file(Begun) end),
        [1 = Second:lcg(1, 0) || _ <- lists:seq(1, 1000)],
        {ok, #{state := pending}} = erlane_native:info(Second),
        {message_queue_len, Messages} =
            process_info(whereis(erlane_native_load), message_queue_len),
        ?assert(Messages =< 1)
    after
        ok = file:write_file(Go, "")
    end,
    erlane_native_files:wait(fun() ->
        [] =:= [N || N <- [M, Second],
                     not is_tuple(maps:get(state, element(2, erlane_native:info(N))))]
    end),
    erlane_native_ct:forget(Second).

%% What was switched off stays so when the application ends that did it, and came first.
application_stopped(Config) ->
    M = proplists:get_value(module, Config),
    case whereis(erlane_native_load) of
        undefined -> ok;
        Old ->
            Ref = monitor(process, Old),
            exit(Old, kill),
            receive {'DOWN', Ref, process, Old, _} -> ok end
    end,
    ok = application:load({application, hosts_application,
                           [{vsn, "1"}, {modules, []}, {registered, []},
                            {applications, [kernel, stdlib]}, {mod, {?MODULE, M}}]}),
    ok = application:start(hosts_application),
    Server = whereis(erlane_native_load),
    ?assert(is_pid(Server)),
    ok = application:stop(hosts_application),
    ok = application:unload(hosts_application),
    ?assertEqual(Server, whereis(erlane_native_load)),
    1 = M:lcg(1, 0),
    ?assertMatch({ok, #{state := {beam, "switched off"}}}, erlane_native:info(M)).

start(_, M) ->
    ok = erlane_native:off(M),
    {ok, spawn_link(fun() -> receive stop -> ok end end)}.

stop(_) -> ok.

%% A host without this application: calls do not look for it again and again, as that goes through
%% the code server and the whole path.
no_application(Config) ->
    Dir = proplists:get_value(dir, Config),
    Text = "-native([f/2]).\n-export([f/2, asked/1]).\n"
           "f(0, A) -> A;\n"
           "f(N, A) -> f(N - 1, A + N).\n"
           "asked(N) ->\n"
           "    Server = whereis(code_server),\n"
           "    1 = erlang:trace(Server, true, ['receive']),\n"
           "    [6 = f(3, 0) || _ <- lists:seq(1, N)],\n"
           "    Ref = erlang:trace_delivered(Server),\n"
           "    count(Server, Ref, 0).\n"
           "count(Server, Ref, N) ->\n"
           "    receive\n"
           "        {trace_delivered, Server, Ref} -> N;\n"
           "        {trace, Server, 'receive', _} -> count(Server, Ref, N + 1)\n"
           "    end.\n",
    M = erlane_native_files:module(hosts_alone, Text, [native], Dir),
    {ok, Peer, _} = peer:start_link(#{connection => standard_io, args => ["-pa", Dir],
                                  env => [{"ERL_LIBS", ""}]}),
    try
        ?assertEqual(non_existing, peer:call(Peer, code, which, [erlane_native_load])),
        ?assertEqual({module, M}, peer:call(Peer, code, ensure_loaded, [M])),
        ?assertEqual(0, peer:call(Peer, M, asked, [100]))
    after
        peer:stop(Peer),
        erlane_native_ct:forget(M)
    end.
