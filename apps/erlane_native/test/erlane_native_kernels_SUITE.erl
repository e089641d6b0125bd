%% SPDX-License-Identifier: Apache-2.0
%% Kernels in plain Erlang: their known answers, and that the native function says what the BEAM
%% function says, for arguments good and bad; also when it gives way at every turn of a loop, and
%% when it goes back to BEAM at every third. A kernel that is not taken runs on BEAM and stays in
%% the comparison.
%%
%% ERLANE_LONG is the number of calls of each native kernel, 1 for a hundred times as many as usual;
%% then one in twenty has arguments from a generator, the others relatives of them, which take less
%% time to make, and it goes back to BEAM at other turns, too.
-module(erlane_native_kernels_SUITE).

-export([suite/0, all/0, init_per_suite/1, end_per_suite/1]).
-export([vectors/1, generators/1, taken/1, answers/1, same/1, verified/1, counted/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").
-include_lib("proper/include/proper.hrl").

%% So many calls of each kernel.
-define(CALLS, 200).
%% In a long run: with each list of arguments so many more of its kind.
-define(RELATIVES, 19).

suite() -> [{timetrap, {hours, 4}}].

all() -> [vectors, generators, taken, verified, answers, same, counted].

init_per_suite(Config) ->
    Dir = filename:join(?config(priv_dir, Config), "beams"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    case erlane_native_ct:init_suite(Config) of
        {skip, _} = Skip -> Skip;
        Inited ->
            _ = rand:seed(exsss, erlane_native_ct:seed()),
            Natives = [{{M, How}, native(M, How, Dir)} || How <- hows(),
                                                          M <- erlane_native_kernels:modules()],
            [{natives, maps:from_list(Natives)} | Inited]
    end.

end_per_suite(Config) ->
    lists:foreach(fun erlane_native_ct:forget/1, maps:values(?config(natives, Config))),
    erlane_native_ct:end_suite().

hows() -> [native, yields | deopts()].

deopts() -> [{deopts, K} || K <- [3 | [K || long(), K <- [1, 2, 5, 8]]]].

long() -> os:getenv("ERLANE_LONG") =/= false.

native(Module, How, Dir) ->
    Name = list_to_atom(lists:flatten(io_lib:format("~s_~w", [Module, How]))),
    ok = erlane_native_ct:native(Name, erlane_native_ct:source(Module), Dir, How, []),
    Name.

%% The kernels themselves are right: each has a published answer, or one from another formula.
vectors(_) ->
    Vectors = erlane_native_vectors:all(),
    ?assertEqual([], erlane_native_kernels:all() -- [{M, F, length(A)} || {M, F, A, _} <- Vectors]),
    [?assert(erlane_native_vectors:holds(Answer, apply(M, F, Args)), {F, Args, Answer})
     || {M, F, Args, Answer} <- Vectors].

%% Every generator makes arguments for which there is a value; most make others, too, for which
%% there is none (some kernels have an answer to everything).
generators(_) ->
    Values = [{F, values(M, F, A)} || {M, F, A} <- erlane_native_kernels:all()],
    ?assertEqual([], [F || {F, N} <- Values, N < 20]),
    ?assert(length([F || {F, N} <- Values, N < 200]) > 50).

values(M, F, A) ->
    Count = counters:new(1, []),
    Property = ?FORALL(Args, erlane_native_kernels:args(F, A),
                       case erlane_native_ct:outcome(M, F, Args) of
                           {value, _} -> counters:add(Count, 1, 1) =:= ok;
                           _ -> true
                       end),
    true = proper:quickcheck(Property, [quiet, {numtests, 200}]),
    counters:get(Count, 1).

%% These are native. Of the others each has a reason.
taken(Config) ->
    Reasons = [{{F, A}, erlane_native_ct:why_not(name(M, native, Config), F, A)}
               || {M, F, A} <- erlane_native_kernels:all()],
    Refused = [R || {_, Why} = R <- Reasons, Why =/= none],
    ct:pal("refused:~n~p", [Refused]),
    ?assertEqual([], [R || {FA, _} = R <- Refused, lists:member(FA, native())]),
    ?assertEqual([], [FA || {FA, Why} <- Refused, string:length(Why) < 5]).

native() ->
    [{lcg, 2}, {minstd, 2}, {xorshift64star, 2}, {collatz, 1}, {collatz_longest, 1}, {gcd, 2},
     {modpow, 3}, {isqrt, 1}, {popcounts, 1}, {primes, 1}, {fib, 1}, {tak, 3}, {ackermann, 2},
     {fnv1a32, 1}, {fnv1a64, 1}, {xxh64, 2}, {siphash24, 3}, {crc32c, 1}, {adler32, 1},
     {byte_sum, 1}, {internet_checksum, 1}, {murmur3_32, 2}, {varints, 1}, {utf8_valid, 1},
     {utf8_length, 1}, {json_scan, 1}, {http_head, 1}, {luhn, 1}, {hex_encode, 1}, {hex_decode, 1},
     {xor_mask, 2}, {base64_encode, 1}, {utf8_to_latin1, 1}, {rle_expand, 1}, {mandelbrot, 2},
     {mandel_point, 3}, {steps, 2}, {kepler, 2}, {spectral_norm, 1}, {spectral_sum, 1},
     {sqrt_newton, 2}, {horner, 2}, {logistic, 2}, {int_mean, 2}, {matrix_product, 3},
     {dot_product, 2}, {float_sum, 1},
     {int_sum, 1}, {crc32c_table, 1}, {nrev, 1}, {qsort, 1}, {zip, 2}, {squares, 1}, {evens, 1},
     {count_atoms, 1}, {bisect, 2}, {point_sum, 1}, {levenshtein, 2}, {csv_rows, 1}, {utf8_of, 1},
     {lookup, 2}, {pairs_below, 1}, {suffixes, 1}, {histogram, 1}, {sieve, 1}].

%% clang is not asked to verify what it reads, so that broken text would be compiled in silence.
verified(Config) ->
    Names = ["opt" | ["opt-" ++ integer_to_list(V) || V <- lists:seq(21, 14, -1)]],
    case [Opt || Name <- Names, Opt <- [os:find_executable(Name)], Opt =/= false] of
        [Opt | _] ->
            Texts = [{M, Text} || M <- erlane_native_kernels:modules(),
                                  {ok, Text} <- [erlane_native:ir(name(M, native, Config))]],
            ?assert(length(Texts) > 2),
            [verified(Opt, M, Text, Config) || {M, Text} <- Texts];
        [] -> {skip, "there is no opt, which verifies LLVM's text"}
    end.

verified(Opt, Module, Text, Config) ->
    {match, [Version]} = re:run(os:cmd(Opt ++ " --version"), "version ([0-9]+)",
                                [{capture, all_but_first, list}]),
    File = filename:join(?config(priv_dir, Config), atom_to_list(Module) ++ ".ll"),
    ok = file:write_file(File, erlane_native_clang:adapt(Text, list_to_integer(Version))),
    Said = os:cmd(lists:join($\s, [Opt, "-passes=verify", "-disable-output", File,
                                   "&& echo sound"])),
    ?assertEqual("sound\n", Said, Module).

%% The settings were at work.
counted(Config) ->
    Count = fun(How) ->
                Infos = [I || M <- erlane_native_kernels:modules(),
                              {ok, I} <- [erlane_native:info(name(M, How, Config))]],
                {lists:sum([N || #{yields := N} <- Infos]),
                 lists:sum([N || #{deopts := List} <- Infos, {_, _, _, N} <- List])}
            end,
    {Yields, _} = Count(yields),
    ?assert(Yields > 1000, Yields),
    [?assert(Deopts > 1000, {How, Deopts}) || How <- deopts(), {_, Deopts} <- [Count(How)]].

name(Module, How, Config) -> maps:get({Module, How}, ?config(natives, Config)).

answers(Config) ->
    [?assert(erlane_native_vectors:holds(Answer, apply(name(M, How, Config), F, Args)), {F, Args})
     || {M, F, Args, Answer} <- erlane_native_vectors:all(), How <- hows()].

%% Value, or class, reason and frames.
same(Config) ->
    Relatives = case long() of true -> ?RELATIVES; false -> 0 end,
    Kernels = [{M, F, A} || {M, F, A} <- erlane_native_kernels:all(),
                            %% A long run has no time for BEAM against BEAM.
                            not long() orelse erlane_native_ct:why_not(name(M, native, Config),
                                                                       F, A) =:= none],
    Calls = erlane_native_ct:times(?CALLS),
    Failed = [F || {M, F, A} <- Kernels, not same(M, F, A, Calls, Relatives, Config)],
    ct:pal("~b kernels, ~b calls each of BEAM and of ~w; seed ~p; ~s",
           [length(Kernels), Calls, hows(), erlane_native_ct:seed(), erlane_native_ct:versions()]),
    ?assertEqual([], Failed).

same(M, F, A, Calls, Relatives, Config) ->
    [Native, Yields | Deopts] = [name(M, How, Config) || How <- hows()],
    Property =
        ?FORALL(Args, erlane_native_kernels:args(F, A),
                begin
                    %% Each K in turn.
                    Deopt = lists:nth(rand:uniform(length(Deopts)), Deopts),
                    All = [Args | [erlane_native_kernels:like(F, Args)
                                   || _ <- lists:seq(1, Relatives)]],
                    lists:all(fun(As) -> same(M, [Native, Yields, Deopt], F, As) end, All)
                end),
    proper:quickcheck(Property, [quiet, {numtests, max(1, Calls div (Relatives + 1))}]).

same(Plain, Natives, F, Args) ->
    Beam = erlane_native_ct:outcome(Plain, F, Args),
    Found = [{Native, Machine} || Native <- Natives,
                                  {_, Machine} <- [erlane_native_ct:unlike(Beam, Native, F, Args)]],
    Found =:= [] orelse ct:pal("~s~p:~n  BEAM   ~p~n  native ~p", [F, Args, Beam, Found]),
    Found =:= [].
