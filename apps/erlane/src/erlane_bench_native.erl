%% SPDX-License-Identifier: Apache-2.0
%% @doc The scenario `native': kernels in Erlang as the VM runs them, the same source through
%% erlane_native, and the same in C behind a NIF written by hand. `native-erllvm' does it with the
%% programs that HiPE and ErLLVM were measured with, without C; there those that were refused are
%% measured, too, in the module that has machine code for others.
%%
%% It runs in this VM. In a round the three take turns, a few milliseconds each, until the time of
%% the round is over; the figure of each is the median of its turns. So a ratio is of figures that
%% were taken within the same blink.
-module(erlane_bench_native).

-export([run/3, names/1, title/1, versions/1]).

-define(TURN_NS, 2000000).

%% @doc The kernels, in the order of the table.
-spec names(Scenario :: string()) -> [string()].
names(Scenario) -> [Name || {Name, _, _, _, _} <- erlane_bench_native_args:kernels(Scenario)].

%% @doc What is counted in a kernel.
-spec title(string()) -> string().
title(Name) ->
    Kernels = erlane_bench_native_args:kernels("native")
        ++ erlane_bench_native_args:kernels("native-erllvm"),
    {Name, _, _, _, Unit} = lists:keyfind(Name, 1, Kernels),
    "ns for each " ++ Unit.

%% @doc What all figures depend on.
-spec versions(file:filename()) -> [{binary(), binary()}].
versions(Root) ->
    Line = fun(Program) ->
                   hd(binary:split(erlane_bench_os:output(Program, ["--version"]), <<"\n">>))
           end,
    [{<<"erlane">>, erlane_bench_contestant:version("erlane", Root)},
     {<<"gcc">>, Line("gcc")} | [{<<"clang">>, Line("clang")}
                                 || erlane_bench_os:find("clang") =/= error]].

%% @doc Measures all kernels that are asked for, and the geometric means over them. There is one
%% case, with a row for each kernel.
-spec run(Scenario :: string(), Settings :: map(), erlane_bench_contestant:config()) -> [map()].
run(Scenario, #{only := Names, rounds := Rounds, round_ms := Ms}, Config) ->
    C = case Scenario of
            "native" -> in_c(Config);
            "native-erllvm" -> none
        end,
    Kernels = [K || K <- erlane_bench_native_args:kernels(Scenario),
                    lists:member(element(1, K), Names)],
    Ways = ways([M || {_, M, _, _, _} <- Kernels], Config),
    Runners = [erlane_bench_turns:runner(element(1, K), start(K, Ways, C)) || K <- Kernels],
    Ns = erlang:convert_time_unit(Ms, millisecond, nanosecond),
    Done = erlane_bench_turns:rounds(Rounds, "BEAM / native", fun(R) -> round(R, Ns) end, Runners),
    Rows = [refused(R) || R <- Done],
    [#{title => <<"ns for each unit of work">>, main => gain, rows => Rows ++ means(Done)}].

%% Why there is no native code stands beside the figures of the other two.
refused(#{why := Why} = Runner) ->
    (erlane_bench_turns:row(Runner))#{status := <<"on BEAM: ", Why/binary>>};
refused(Runner) ->
    erlane_bench_turns:row(Runner).

%%
%% Three ways
%%

%% The module in C, or why there is none.
in_c(#{root := Root}) ->
    Dir = filename:join([Root, "bench", "peers"]),
    Include = filename:join([code:root_dir(), "usr", "include"]),
    Said = erlane_bench_os:output("make", ["-s", "CC=gcc", "ERL_INCLUDE=" ++ Include, "-C", Dir,
                                           "bin/native_nif.so"]),
    case erlane_bench_native_c:load(filename:join([Dir, "bin", "native_nif"])) of
        ok -> erlane_bench_native_c;
        {error, {reload, _}} -> erlane_bench_native_c;
        {error, {_, Text}} ->
            io:format(standard_error, "  no kernels in C: ~ts ~ts~n", [Text, Said]),
            none
    end.

%% For each module of kernels: itself, and what the translator makes of the same source.
ways(Modules, Config) ->
    maps:from_list([{M, {build(M, M, [], Config), native(M, Config)}}
                    || M <- lists:usort(Modules)]).

native(Module, Config) ->
    Name = list_to_atom(atom_to_list(Module) ++ "_native"),
    Name = build(Module, Name, [{parse_transform, erlane_native}], Config),
    State = erlane_native:ensure(Name),
    {ok, #{functions := Taken}} = erlane_native:info(Name),
    %% Of a module whose kernels are all refused there is nothing to load.
    native = case Taken of [] -> native; _ -> State end,
    Name.

build(Module, Name, Options, #{root := Root, tmp := Tmp}) ->
    Source = filename:join([Root, "apps", "erlane_native", "test", atom_to_list(Module) ++ ".erl"]),
    {ok, Forms} = epp:parse_file(Source, []),
    Named = [case Form of
                 {attribute, Line, module, Module} -> {attribute, Line, module, Name};
                 _ -> Form
             end || Form <- Forms],
    {ok, Name, Beam, _} = compile:forms(Named, [return, {outdir, Tmp} | Options]),
    Base = filename:join(Tmp, atom_to_list(Name)),
    ok = file:write_file(Base ++ ".beam", Beam),
    {module, Name} = code:load_abs(Base),
    Name.

%% A kernel with its three functions, after one call of each: all have to say the same.
start({Name, Module, Args, Units, _}, Ways, C) ->
    {Beam, Native} = maps:get(Module, Ways),
    Function = list_to_atom(Name),
    Value = apply(Beam, Function, Args),
    InC = [{c_ns, C} || C =/= none, erlang:function_exported(C, Function, length(Args))],
    case [M || {_, M} <- [{native_ns, Native} | InC], apply(M, Function, Args) =/= Value] of
        [] ->
            Kernel = #{function => Function, args => Args, units => Units},
            With = fun(Modules) ->
                           [{Key, M, calls_of(M, Function, Args)} || {Key, M} <- Modules]
                   end,
            case refusal(Native, {Function, length(Args)}) of
                none ->
                    {ok, Kernel#{modules => With([{beam_ns, Beam}, {native_ns, Native} | InC])}};
                Why when C =:= none ->
                    {ok, Kernel#{modules => With([{beam_ns, Beam}, {native_ns, Native}]),
                                 why => unicode:characters_to_binary(Why)}};
                Why ->
                    {ok, Kernel#{modules => With([{beam_ns, Beam} | InC]),
                                 why => unicode:characters_to_binary(Why)}}
            end;
        [M | _] ->
            {failed, iolist_to_binary(io_lib:format("~s:~s answers otherwise", [M, Function]))}
    end.

%% How many calls make a turn: the first turn of four calls is left out, it may load code.
calls_of(Module, Function, Args) ->
    [_ | Ns] = [turn(Module, Function, Args, 4) || _ <- [1, 2, 3]],
    max(1, ?TURN_NS * 4 div max(1, lists:min(Ns))).

refusal(Module, FA) ->
    {ok, #{refused := Refused}} = erlane_native:info(Module),
    case lists:keyfind(FA, 1, Refused) of
        false -> none;
        {FA, _, Why} -> Why
    end.

%%
%% Rounds
%%

round(#{modules := Modules} = Runner, Ns) ->
    Turns = turns(Runner, Modules, erlang:monotonic_time(nanosecond) + Ns, []),
    #{units := Units} = Runner,
    Figures = maps:from_list(
                [{Key, erlane_bench_report:median([T || {K, T} <- Turns, K =:= Key])
                       / (Units * Calls)} || {Key, _, Calls} <- Modules]),
    Round = maps:merge(Figures, ratios(Figures)),
    {ok, maps:get(gain, Round, none), Round}.

turns(#{function := F, args := Args} = Runner, Modules, End, Acc) ->
    Turns = [{Key, turn(M, F, Args, Calls)} || {Key, M, Calls} <- Modules] ++ Acc,
    case erlang:monotonic_time(nanosecond) of
        Now when Now < End -> turns(Runner, Modules, End, Turns);
        _ -> Turns
    end.

%% What the turn before left in the heap is nothing of this one.
turn(Module, Function, Args, Calls) ->
    true = erlang:garbage_collect(),
    Begin = erlang:monotonic_time(nanosecond),
    ok = calls(Calls, Module, Function, Args),
    erlang:monotonic_time(nanosecond) - Begin.

calls(0, _, _, _) -> ok;
calls(N, Module, Function, Args) ->
    _ = apply(Module, Function, Args),
    calls(N - 1, Module, Function, Args).

ratios(#{beam_ns := Beam, native_ns := Native} = Figures) ->
    maps:merge(#{gain => Beam / Native},
               case Figures of
                   #{c_ns := C} -> #{over_c => Native / C};
                   _ -> #{}
               end);
ratios(_) -> #{}.

%% The row of the means: a round of it is the geometric mean of the ratios of this round.
means(Runners) ->
    case [Rounds || #{status := ok, rounds := [#{gain := _} | _] = Rounds} = R <- Runners,
                    not is_map_key(why, R)] of
        [_, _ | _] = All ->
            [#{name => <<"geometric mean">>, status => ok,
               rounds => [mean([lists:nth(I, Rounds) || Rounds <- All])
                          || I <- lists:seq(1, length(hd(All)))]}];
        _ -> []
    end.

mean(Figures) ->
    maps:from_list([{Key, geometric(Values)}
                    || Key <- [gain, over_c],
                       Values <- [[V || #{Key := V} <- Figures]], Values =/= []]).

geometric(Values) ->
    math:exp(lists:sum([math:log(V) || V <- Values]) / length(Values)).
