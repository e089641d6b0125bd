%% SPDX-License-Identifier: Apache-2.0
%% The whole way, from the attribute to machine code: values and exceptions as on BEAM, hand-back,
%% giving way, what the cache does with damage, and hosts without a compiler.
-module(erlane_native_SUITE).

-include_lib("kernel/include/file.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([same/1, handed_back/1, recursion/1, gives_way/1, charged/1, off_and_on/1, lazy/1,
         damaged/1, not_private/1, umask/1, no_clang/1, switched_off/1, refused/1, strict/1,
         export_all/1, named_twice/1, circle/1, own_on_load/1, ir_and_asm/1,
         narrow/1, copies/1, translator/1]).

all() ->
    [same, handed_back, recursion, gives_way, charged, off_and_on, lazy, damaged, not_private,
     umask, no_clang, switched_off, refused, strict, export_all, named_twice, circle, own_on_load,
     ir_and_asm, narrow, copies, translator].

init_per_suite(Config) ->
    case erlane_native_clang:find() of
        {ok, _, _} -> Config;
        {error, Why} -> {skip, lists:flatten(Why)}
    end.

end_per_suite(_) -> ok.

%% Each case has a cache of its own.
init_per_testcase(Case, Config) ->
    Cache = filename:join([proplists:get_value(priv_dir, Config), Case, "cache"]),
    os:putenv("ERLANE_NATIVE_CACHE", Cache),
    [{cache, Cache} | Config].

end_per_testcase(_, _) ->
    [os:unsetenv(V) || V <- ["ERLANE_NATIVE_CACHE", "ERLANE_CLANG", "ERLANE_NATIVE"]],
    ok.

%% Values of loops over integers, binaries and floats.
same(_) ->
    M = native(?FUNCTION_NAME, source()),
    B = beam(?FUNCTION_NAME, source()),
    Bytes = list_to_binary(lists:seq(0, 255)),
    [?assertEqual(call(B, F, As), call(M, F, As))
     || {F, As} <- [{lcg, [42, 1000]}, {lcg, [-42, 10]}, {lcg, [1 bsl 64, 10]},
                    {fnv, [Bytes]}, {fnv, [<<>>]}, {sum, [Bytes, 0]}, {sum, [<<1, 2, 3>>, 7]},
                    {orbit, [0.3, 0.4, 100]}, {varint, [<<16#96, 1, 7>>, 0, 0]},
                    {varint, [binary:copy(<<255>>, 20), 0, 0]}, {chars, [<<"h\303\266he">>, 0]}]],
    {ok, #{state := native, refused := []}} = erlane_native:info(M).

%% What native code does not do is done by BEAM, with the source's names in the exception.
handed_back(_) ->
    M = native(?FUNCTION_NAME, source()),
    B = beam(?FUNCTION_NAME, source()),
    [?assertEqual(call(B, F, As), call(M, F, As))
     || {F, As} <- [{lcg, [a, 10]}, {fnv, [<<1:3>>]}, {fnv, [foo]}, {fnv, [<<"abc", 1:1>>]},
                    {sum, [<<1, 0>>, 1 bsl 63 - 1]}, {sum, [<<1, 0>>, x]},
                    {orbit, [1.0e200, 0.5, 9]},
                    {orbit, [1, a, 3]}, {varint, [<<1:9>>, 0, 0]}, {varint, [<<1, 2>>, -1, 0]},
                    {chars, [<<255>>, 0]}, {chars, [<<"ab">>, 1.5]}]],
    {ok, #{deopts := Deopts}} = erlane_native:info(M),
    ?assert(lists:keymember("the result of + has more than 64 bits", 3, Deopts)),
    ?assert(lists:keymember("a result is not a finite float", 3, Deopts)).

%% Calls that are not jumps; too deep for the native stack is no error.
recursion(_) ->
    Source = ["-native([fib/1, down/1, tak/3]).\n-export([fib/1, down/1, tak/3]).\n",
              "fib(N) when N < 2 -> N;\nfib(N) -> fib(N - 1) + fib(N - 2).\n",
              "down(0) -> 0;\ndown(N) -> 1 + down(N - 1).\n",
              "tak(X, Y, Z) when Y >= X -> Z;\n",
              "tak(X, Y, Z) -> tak(tak(X - 1, Y, Z), tak(Y - 1, Z, X), tak(Z - 1, X, Y)).\n"],
    M = native(?FUNCTION_NAME, Source),
    B = beam(?FUNCTION_NAME, Source),
    [?assertEqual(call(B, F, As), call(M, F, As))
     || {F, As} <- [{fib, [20]}, {fib, [a]}, {fib, [3.0]}, {down, [100]}, {down, [20000]},
                    {down, [b]}, {tak, [8, 4, 2]}, {tak, [1, -1, atom]}, {tak, [1, 0, a]}]].

%% A long loop leaves the scheduler to others: the turns of another process on it are counted.
gives_way(_) ->
    M = native(?FUNCTION_NAME, source()),
    Self = self(),
    {Worker, Ref} = spawn_opt(fun() -> Self ! {done, M:lcg(1, 200000000)} end,
                              [{scheduler, 1}, monitor]),
    _ = spawn_opt(fun() -> ticks(Self, Worker, 0) end, [{scheduler, 1}, link]),
    Value = receive {done, V} -> V after 60000 -> error(timeout) end,
    receive {'DOWN', Ref, process, Worker, normal} -> ok after 10000 -> error(timeout) end,
    Ticks = receive {ticks, N} -> N after 10000 -> error(timeout) end,
    {ok, #{yields := Yields}} = erlane_native:info(M),
    ?assert(is_integer(Value)),
    ?assert(Yields > 20),
    ?assert(Ticks > 20).

ticks(Self, Worker, N) ->
    case is_process_alive(Worker) of
        true -> erlang:yield(), ticks(Self, Worker, N + 1);
        false -> Self ! {ticks, N}
    end.

%% A process pays for its time in native code with reductions, as the scheduler counts: a time
%% slice, of 4000, is used up each time that it gives way.
charged(_) ->
    M = native(?FUNCTION_NAME, source()),
    {reductions, Before} = process_info(self(), reductions),
    _ = M:lcg(1, 50000000),
    {reductions, After} = process_info(self(), reductions),
    {ok, #{yields := Yields}} = erlane_native:info(M),
    ?assert(Yields > 5),
    ?assert(After - Before > 2000 * Yields).

off_and_on(_) ->
    M = native(?FUNCTION_NAME, source()),
    Value = M:lcg(1, 100),
    ok = erlane_native:off(M),
    {ok, #{state := {beam, _}}} = erlane_native:info(M),
    ?assertEqual(Value, M:lcg(1, 100)),
    native = erlane_native:on(M),
    ?assertEqual(Value, M:lcg(1, 100)).

%% The first call asks for machine code, and is answered by BEAM meanwhile.
lazy(_) ->
    M = load(?FUNCTION_NAME, source(), [{parse_transform, erlane_native}]),
    {ok, #{state := none}} = erlane_native:info(M),
    Value = M:lcg(1, 100),
    wait(fun() -> {ok, #{state := S}} = erlane_native:info(M), S =:= native end),
    ?assertEqual(Value, M:lcg(1, 100)).

%% An object that was cut short is not given to the VM but made again.
damaged(Config) ->
    Cache = proplists:get_value(cache, Config),
    M = native(?FUNCTION_NAME, source()),
    Value = M:lcg(1, 100),
    [Object] = filelib:wildcard(filename:join(Cache, "*.so")),
    {ok, Bytes} = file:read_file(Object),
    ok = erlane_native:off(M),
    %% Written beside it: the VM has the old file mapped.
    ok = file:write_file(Object ++ ".new", binary:part(Bytes, 0, byte_size(Bytes) div 2)),
    ok = file:rename(Object ++ ".new", Object),
    native = erlane_native:on(M),
    {ok, #file_info{size = Size}} = file:read_file_info(Object),
    ?assert(Size > byte_size(Bytes) * 3 div 4),
    ?assertEqual(Value, M:lcg(1, 100)).

%% Nothing is loaded from where others may write.
not_private(Config) ->
    Cache = proplists:get_value(cache, Config),
    ok = filelib:ensure_dir(filename:join(Cache, "x")),
    ok = file:change_mode(Cache, 8#777),
    M = load(?FUNCTION_NAME, source(), [{parse_transform, erlane_native}]),
    {beam, Why} = erlane_native:ensure(M),
    ?assertMatch({match, _}, re:run(Why, "written by others")),
    ?assert(is_integer(M:lcg(1, 100))).

%% A cache of our own is private, also where what users make can be written by their group.
umask(Config) ->
    Erl = filename:join([code:root_dir(), "bin", "erl"]),
    Said = os:cmd("umask 002; " ++ Erl ++ " -noshell -pa " ++
                      filename:dirname(code:which(erlane_native_clang)) ++
                      " -eval 'io:format(\"~p\", [erlane_native_clang:directory()]), halt().'"),
    Cache = proplists:get_value(cache, Config),
    ?assertEqual(lists:flatten(io_lib:format("~p", [{ok, Cache}])),
                 lists:flatten(string:replace(Said, "\n ", "", all))),
    {ok, #file_info{mode = Mode}} = file:read_file_info(Cache),
    ?assertEqual(8#700, Mode band 8#777).

no_clang(_) ->
    os:putenv("ERLANE_CLANG", "no_such_program"),
    M = load(?FUNCTION_NAME, source(), [{parse_transform, erlane_native}]),
    {beam, Why} = erlane_native:ensure(M),
    ?assertMatch({match, _}, re:run(Why, "not installed")),
    ?assert(is_integer(M:lcg(1, 100))).

switched_off(_) ->
    M = load(?FUNCTION_NAME, source(), [{parse_transform, erlane_native}]),
    os:putenv("ERLANE_NATIVE", "0"),
    {beam, "switched off"} = erlane_native:ensure(M),
    M2 = load(switched_off_2, source(), [{parse_transform, erlane_native}]),
    {error, not_native} = erlane_native:info(M2),
    ?assertEqual(M:lcg(1, 100), M2:lcg(1, 100)).

%% Why, with line and words; the function is there all the same.
refused(_) ->
    Forms = forms(?FUNCTION_NAME, ["-native([f/1]).\n-export([f/1]).\n",
                                   "f(P) ->\n  P ! hello.\n"]),
    {ok, M, Beam, [{_, [Warning]}]} =
        compile:forms(Forms, [{parse_transform, erlane_native}, binary, return]),
    {5, erlane_native, What} = Warning,
    ?assertEqual("f/1 stays on BEAM: calls erlang:'!'/2, which is not native; do it before or "
                 "after the loop, in a function that is not native",
                 lists:flatten(erlane_native:format_error(What))),
    {module, M} = code:load_binary(M, "", Beam),
    ?assertEqual(hello, M:f(self())),
    ?assertEqual({beam, "no function was taken"}, erlane_native:ensure(M)),
    ?assertMatch({ok, #{state := {beam, _}, functions := [],
                        refused := [{{f, 1}, 5, "calls erlang:'!'/2" ++ _}]}},
                 erlane_native:info(M)),
    ?assertEqual({error, not_native}, erlane_native:ir(M)),
    ?assertEqual(ok, erlane_native:off(M)).

strict(_) ->
    Forms = forms(?FUNCTION_NAME, ["-native([{f, 1, [strict]}]).\n-export([f/1]).\n",
                                   "f(P) ->\n  P ! hello.\n"]),
    ?assertMatch({error, [{_, [{5, erlane_native, _}]}], []},
                 compile:forms(Forms, [{parse_transform, erlane_native}, binary, return])).

%% Nothing is called from elsewhere but by that option, in the text or outside of it.
export_all(_) ->
    Text = ["-native([{f, 2, [strict]}]).\n",
            "f(0, A) -> A;\nf(N, A) when N > 0 -> f(N - 1, A * 3 band 255 + N).\n"],
    [begin
         {ok, M, Beam} = compile:forms(forms(Name, More ++ Text),
                                       [{parse_transform, erlane_native}, binary | Options]),
         {module, M} = code:load_binary(M, "generated", Beam),
         native = erlane_native:ensure(M),
         {ok, #{functions := [{f, 2}]}} = erlane_native:info(M),
         ?assertEqual(34, M:f(3, 0))
     end || {Name, More, Options} <- [{export_all_1, ["-compile(export_all).\n"], []},
                                      {export_all_2, ["-compile([export_all]).\n"], []},
                                      {export_all_3, [], [export_all]}]].

%% Options of all attributes count.
named_twice(_) ->
    M = native(?FUNCTION_NAME, ["-native([{lcg, 2, [strict]}, lcg/2]).\n-native(fnv/1).\n"
                                | source()]),
    {ok, #{functions := Functions}} = erlane_native:info(M),
    ?assertEqual(6, length(Functions)),
    Forms = forms(?FUNCTION_NAME, ["-native([f/1, f/1]).\n-native([{f, 1, [strict]}]).\n",
                                   "-export([f/1]).\nf(P) ->\n  P ! hello.\n"]),
    ?assertMatch({error, [{_, [{6, erlane_native, _}]}], []},
                 compile:forms(Forms, [{parse_transform, erlane_native}, binary, return])).

%% A loop in BEAM needs no stack, though only a part of its functions is native. Nobody is warned of
%% the functions that are made for that.
circle(_) ->
    Source = ["-file(\"circle.erl\", 1).\n-native([f/2]).\n-export([f/2, g/2]).\n",
              "f(0, A) -> A;\nf(N, A) -> h(N - 1, (A * 3 + N) band 16#FFFFFFFF).\n",
              "h(0, A) -> A;\nh(N, A) when N rem 2 =:= 1 -> f(N, A + 1);\n",
              "h(N, A) ->\n  g(N - 1, A + 2).\n",
              "g(N, A) -> h(N, A).\n"],
    M = native(?FUNCTION_NAME, Source, [warnings_as_errors]),
    B = beam(?FUNCTION_NAME, Source),
    Same = fun() ->
               [?assertEqual(false, erlane_native_ct:differs(B, M, F, As))
                || F <- [f, g], As <- [[1000, 1], [1000, 1 bsl 70], [a, 1], [3, a], [2, a],
                                       [5, 1.0]]],
               [?assertEqual(apply(B, F, As), small(fun() -> apply(M, F, As) end))
                || F <- [f, g], As <- [[300000, 1], [300000, 1 bsl 70]]]
           end,
    Same(),
    ok = erlane_native:off(M),
    Same().

%% Of a process that would be killed if it were not small.
small(F) ->
    {Pid, Ref} = spawn_opt(fun() -> exit({value, F()}) end,
                           [monitor, {max_heap_size, #{size => 100000, kill => true,
                                                       error_logger => false}}]),
    receive
        {'DOWN', Ref, process, Pid, {value, Value}} -> Value;
        {'DOWN', Ref, process, Pid, Why} -> Why
    end.

%% A module that does something of its own when it is loaded still does.
own_on_load(_) ->
    M = native(?FUNCTION_NAME, ["-on_load(start/0).\n-export([start/0]).\n" | source()]
               ++ ["start() -> persistent_term:put({own_on_load_native, loaded}, yes), ok.\n"]),
    ?assertEqual(yes, persistent_term:get({M, loaded})),
    persistent_term:erase({M, loaded}).

ir_and_asm(_) ->
    M = native(?FUNCTION_NAME, source()),
    {ok, Text} = erlane_native:ir(M),
    ?assertMatch({match, _}, re:run(Text, "define internal i64 @u0")),
    {ok, Asm} = erlane_native:asm(M),
    ?assertMatch({match, _}, re:run(Asm, "nif_init:")).

%% What a loop takes back to a bound at each turn is not done in 128 bits for fear of more.
narrow(_) ->
    Source = ["-native([adler/1]).\n-export([adler/1]).\nadler(Bin) -> adler(Bin, 1, 0).\n",
              "adler(<<X, Rest/binary>>, A0, B) ->\n",
              "    A = (A0 + X) rem 65521, adler(Rest, A, (B + A) rem 65521);\n",
              "adler(<<>>, A, B) -> B * 65536 + A.\n"],
    M = native(?FUNCTION_NAME, Source),
    Bin = binary:copy(<<0, 17, 255>>, 1000),
    {A, B} = lists:foldl(fun(X, {A0, B0}) -> {(A0 + X) rem 65521, (B0 + A0 + X) rem 65521} end,
                         {1, 0}, binary_to_list(Bin)),
    ?assertEqual(B * 65536 + A, M:adler(Bin)),
    {ok, Text} = erlane_native:ir(M),
    ?assertEqual(nomatch, string:find(machine("@u0", Text), "i128")).

machine(Name, Text) ->
    [_, After] = string:split(Text, ["define internal i64 ", Name, "("]),
    [Body | _] = string:split(After, "\n}\n"),
    Body.

%% What calls itself is put into itself twice, once or not at all, as it is small or large.
copies(_) ->
    Large = lists:join(" + ", [["f(N - ", integer_to_list(I), ", M)"] || I <- lists:seq(1, 40)]),
    Source = ["-native([one/2, three/2, f/2]).\n-export([one/2, three/2, f/2]).\n",
              "one(N, M) when N < 1 -> M;\none(N, M) -> one(N - 1, M + 1) + N.\n",
              "three(N, M) when N < 1 -> M;\n",
              "three(N, M) -> three(N - 1, M) + three(N - 2, M) * three(N - 3, N).\n",
              "f(N, M) when N < 1 -> M;\nf(N, M) -> ", Large, ".\n"],
    M = native(?FUNCTION_NAME, Source),
    B = beam(?FUNCTION_NAME, Source),
    [?assertEqual(call(B, F, As), call(M, F, As))
     || {F, As} <- [{F, [N, X]} || F <- [one, three, f], N <- lists:seq(-1, 9), X <- [-5, 3]]
            ++ [{F, [N, X]} || F <- [one, three, f], {N, X} <- [{a, 1}, {1, a}, {5, 1 bsl 62}]]],
    {ok, Text} = erlane_native:ir(M),
    ?assertEqual([2, 1, 0],
                 [length([K || K <- ["_1(", "_2("],
                               string:find(Text, ["} @c", C, "_0", K]) =/= nomatch])
                  || C <- ["0", "1", "2"]]).

source() ->
    ["-native([lcg/2, fnv/1, sum/2, orbit/3, varint/3, chars/2]).\n",
     "-export([lcg/2, fnv/1, sum/2, orbit/3, varint/3, chars/2]).\n",
     "lcg(X, 0) -> X;\n",
     "lcg(X, N) -> lcg((X * 6364136223846793005 + 1442695040888963407)"
     " band 16#FFFFFFFFFFFFFFFF, N - 1).\n",
     "fnv(B) -> fnv(B, 14695981039346656037).\n",
     "fnv(<<C, R/binary>>, H) ->\n",
     "  fnv(R, ((H bxor C) * 1099511628211) band 16#FFFFFFFFFFFFFFFF);\n",
     "fnv(<<>>, H) -> H.\n",
     "sum(<<X:16/little-signed, R/binary>>, A) -> sum(R, A + X);\nsum(_, A) -> A.\n",
     "orbit(X, Y, N) when is_float(X), is_float(Y), N > 0 ->\n",
     "  orbit(X * X - Y * Y, 2.0 * X * Y, N - 1);\n",
     "orbit(X, Y, _) when X > Y -> X;\norbit(_, _, _) -> none.\n",
     "varint(<<1:1, X:7, R/binary>>, S, A) when S < 56 -> varint(R, S + 7, A bor (X bsl S));\n",
     "varint(<<0:1, X:7, R/binary>>, S, A) -> {A bor (X bsl S), R};\nvarint(_, _, _) -> error.\n",
     "chars(<<C/utf8, R/binary>>, N) -> chars(R, N + C);\nchars(<<>>, N) -> N.\n"].

forms(Name, Source) ->
    Text = lists:flatten(["-module(", atom_to_list(Name), ").\n" | Source]),
    {ok, Tokens, _} = erl_scan:string(Text),
    [begin {ok, F} = erl_parse:parse_form(Ts), F end || Ts <- split(Tokens, [])].

split([], []) -> [];
split([{dot, _} = Dot | Rest], Acc) -> [lists:reverse([Dot | Acc]) | split(Rest, [])];
split([T | Rest], Acc) -> split(Rest, [T | Acc]).

native(Case, Source) -> native(Case, Source, []).

native(Case, Source, Options) ->
    M = load(list_to_atom(atom_to_list(Case) ++ "_native"), Source,
             [{parse_transform, erlane_native} | Options]),
    native = erlane_native:ensure(M),
    M.

beam(Case, Source) -> load(list_to_atom(atom_to_list(Case) ++ "_beam"), Source, []).

load(Name, Source, Options) ->
    {ok, M, Beam} = compile:forms(forms(Name, Source), [binary, report | Options]),
    {module, M} = code:load_binary(M, atom_to_list(M), Beam),
    M.

%% Value, or class, reason and the uppermost frame without its module.
call(M, F, As) ->
    try {value, apply(M, F, As)}
    catch
        C:R:Stack -> top(C, R, M, Stack)
    end.

top(C, R, M, [{M, Name, Args, _} | _]) -> {C, R, Name, Args};
top(C, R, _, [{Other, Name, _, _} | _]) -> {C, R, Other, Name}.

wait(Test) -> wait(Test, erlang:monotonic_time(millisecond) + 20000).

wait(Test, Deadline) ->
    case Test() of
        true -> ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < Deadline),
            erlang:yield(),
            wait(Test, Deadline)
    end.

%% No module that has a part in the text was forgotten where the text is told from another one.
translator(_) ->
    Ours = erlane_native_translate:translator(),
    ?assertEqual(lists:sort(Ours),
                 erlane_native_graph:reached([erlane_native_ssa, erlane_native_ir,
                                              erlane_native_pays, erlane_native_llvm,
                                              erlane_native_companion], fun called/1)).

called(M) ->
    {ok, {M, [{imports, Imports}]}} = beam_lib:chunks(code:which(M), [imports]),
    [To || {To, _, _} <- Imports, lists:prefix("erlane_native_", atom_to_list(To))].
