%% SPDX-License-Identifier: Apache-2.0
%% Times, which are measured by hand on a machine that does nothing else, with ERLANE_LONG: how long
%% others wait for a scheduler that runs native code, what a build takes, and a start with a cache.
%% Each is in the log of the suite.
-module(erlane_native_long_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([pause/1, build_of_twenty/1, start_with_cache/1]).
-export([twenty/0]).

suite() -> [{timetrap, {minutes, 5}}].

all() -> [pause, build_of_twenty, start_with_cache].

init_per_suite(Config) ->
    case {os:getenv("ERLANE_LONG"), erlane_native_clang:find()} of
        {false, _} -> {skip, "times are measured by hand, with ERLANE_LONG"};
        {_, {error, Why}} -> {skip, lists:flatten(Why)};
        {_, {ok, _, _}} ->
            os:putenv("ERLANE_NATIVE_CACHE",
                      filename:join(proplists:get_value(priv_dir, Config), "cache")),
            Config
    end.

end_per_suite(_) ->
    os:unsetenv("ERLANE_NATIVE_CACHE"),
    ok.

%% Two processes on one scheduler: a native loop of ten seconds, and one that notes how long it is
%% between two of its turns.
pause(Config) ->
    Dir = erlane_native_files:where(Config),
    M = erlane_native_files:module(long_pause,
                                   ["-native([lcg/2]).\n" | erlane_native_files:sums()],
                                   [native], Dir),
    native = erlane_native:ensure(M),
    {Us, _} = timer:tc(fun() -> M:lcg(1, 10000000) end),
    Turns = 10000000 * 10000000 div Us,
    Self = self(),
    {Worker, Ref} = spawn_opt(fun() -> M:lcg(1, Turns) end, [{scheduler, 1}, monitor]),
    _ = spawn_opt(fun() -> Self ! {pauses, turns(Worker, now_us(), [])} end,
                  [{scheduler, 1}, link]),
    receive {'DOWN', Ref, process, Worker, Why} -> ?assertEqual(normal, Why) end,
    Pauses = receive {pauses, Ps} -> lists:reverse(lists:sort(Ps)) end,
    ct:pal("~b turns; longest pauses in us: ~w; median ~b",
           [length(Pauses), lists:sublist(Pauses, 10),
            lists:nth(length(Pauses) div 2, Pauses)]),
    ?assert(hd(Pauses) =< 3000).

turns(Worker, Before, Acc) ->
    erlang:yield(),
    Now = now_us(),
    case is_process_alive(Worker) of
        true -> turns(Worker, Now, [Now - Before | Acc]);
        false -> Acc
    end.

now_us() -> erlang:monotonic_time(microsecond).

%% Text and machine code of a module of twenty functions, of the kernels' size.
build_of_twenty(Config) ->
    Dir = erlane_native_files:where(Config),
    {Native, Text} = twenty(),
    Times = [begin
                 M = list_to_atom("long_twenty_" ++ integer_to_list(N)),
                 {Transform, M} = timer:tc(fun() ->
                     erlane_native_files:module(M, [Native, Text], [native], Dir)
                 end),
                 {Plain, _} = timer:tc(fun() ->
                     erlane_native_files:module(long_plain, Text, [], Dir)
                 end),
                 {Clang, native} = timer:tc(fun() -> erlane_native:ensure(M) end),
                 {ok, #{functions := Twenty}} = erlane_native:info(M),
                 ?assertEqual(20, length(Twenty)),
                 {Transform - Plain, Clang}
             end || N <- lists:seq(1, 5)],
    {Text_, Code} = {median([T || {T, _} <- Times]), median([C || {_, C} <- Times])},
    ct:pal("20 functions, median of 5: ~b ms for the text, ~b ms for the machine code",
           [Text_ div 1000, Code div 1000]),
    ?assert(Text_ + Code =< 1000000).

twenty() ->
    Kinds = [fun(N) -> ["f", N, "(<<C, R/binary>>, H) ->\n"
                        "    f", N, "(R, ((H bxor C) * 1099511628211 + ", N, ")"
                        " band 16#FFFFFFFFFFFFFFFF);\nf", N, "(<<>>, H) -> H.\n"]
             end,
             fun(N) -> ["f", N, "(X, N) when is_float(X), N > 0 ->\n"
                        "    f", N, "(X * X - ", N, ".0 / (X + 3.5), N - 1);\n"
                        "f", N, "(X, _) -> X.\n"]
             end,
             fun(N) -> ["f", N, "(<<1:1, X:7, R/binary>>, A) when A < 16#FFFFFFFF ->\n"
                        "    f", N, "(R, A bsl 7 bor X);\n",
                        "f", N, "(<<0:1, X:7, R/binary>>, A) -> {A bsl 7 bor X + ", N, ", R};\n"
                        "f", N, "(_, _) -> error.\n"]
             end,
             fun(N) -> ["f", N, "(A, 0) -> A;\nf", N, "(A, B) when A > B -> f", N, "(B, A rem B);\n"
                        "f", N, "(A, B) -> f", N, "(A, B - ", N, " rem 7 - 1).\n"]
             end],
    Numbers = lists:seq(1, 20),
    Names = lists:join(", ", [["f", integer_to_list(N), "/2"] || N <- Numbers]),
    {["-native([", Names, "]).\n"],
     ["-export([", Names, "]).\n",
      [(lists:nth(N rem 4 + 1, Kinds))(integer_to_list(N)) || N <- Numbers]]}.

%% A new VM that finds all in the cache: what loading adds to the first call.
start_with_cache(Config) ->
    Dir = erlane_native_files:where(Config),
    {Native, Text} = twenty(),
    M = erlane_native_files:module(long_start, [Native, Text], [native], Dir),
    native = erlane_native:ensure(M),
    Code = "{T, native} = timer:tc(fun() -> erlane_native:ensure(long_start) end), "
           "io:format(\"~b\", [T]), halt().",
    Paths = lists:append([["-pa", P] || P <- [Dir, filename:dirname(code:which(erlane_native))]]),
    Times = [list_to_integer(run(os:find_executable("erl"),
                                 ["-noshell", "-eval", Code | Paths])) || _ <- lists:seq(1, 9)],
    ct:pal("a start with 20 functions in the cache: ~w us, median ~b", [Times, median(Times)]),
    ?assert(median(Times) =< 20000).

run(Program, Args) ->
    Port = open_port({spawn_executable, Program}, [{args, Args}, exit_status]),
    collect(Port, "").

collect(Port, Acc) ->
    receive
        {Port, {data, D}} -> collect(Port, Acc ++ D);
        {Port, {exit_status, 0}} -> Acc
    end.

median(L) -> lists:nth((length(L) + 1) div 2, lists:sort(L)).
