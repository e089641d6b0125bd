%% SPDX-License-Identifier: Apache-2.0
%% @doc Of the scenario `profile': are the shares of CPU that mode sample tells those that Linux'
%% perf does? Both look at the same time at the same programs.
%%
%% Compared are the functions of the programs (what they call in C is theirs) that have more than
%% 5 % by either. The figure is the greatest difference in points; the samples of all rounds are
%% one in the last row, as one round has few.
-module(erlane_bench_profile_perf).

-export([cases/3, begin_program/1, end_program/0, look/2]).

-type share() :: {Function :: atom(), Ns :: non_neg_integer(), Samples :: non_neg_integer()}.

%% Each has four programs, and all are one sample in the end.
-define(ROUNDS, 5).
-define(CALL_MS, 120000).
-define(EVENTS, 100000000).
-define(PERF_HZ, 500).
-define(SHOWN, 0.05).

%% @doc The case of this part, if it is asked for.
-spec cases(Names :: [string()], Settings :: map(), erlane_bench_profile:vms()) -> [map()].
cases(Names, #{rounds := Rounds, round_ms := Ms}, Vms) ->
    case lists:member("perf", Names) of
        true ->
            Title = <<"greatest difference of a function's share by mode sample and by perf, in "
                      "points: bar 5">>,
            io:format(standard_error, "~ts~n", [Title]),
            Programs = erlane_bench_profile_program:names(),
            Runners = [erlane_bench_turns:runner(atom_to_list(Program),
                                                 {ok, #{program => [Program]}})
                       || Program <- Programs]
                ++ [erlane_bench_turns:runner("all at once", {ok, #{program => Programs}})],
            Measure = fun(Runner) ->
                              erlane_bench_profile:answer(fun() -> round(Runner, Ms, Vms) end)
                      end,
            Done = erlane_bench_turns:rounds(min(Rounds, ?ROUNDS), "points", Measure, Runners),
            [#{title => Title, main => points, rows => [row(R) || R <- Done]}];
        false ->
            []
    end.

round(#{program := Programs}, Ms, #{perf := Target, viewer := Viewer}) ->
    ok = erlane_bench_profile_node:call(Target, ?MODULE, begin_program, [Programs], ?CALL_MS),
    {Sampled, Perf} = erlane_bench_profile_node:call(Viewer, ?MODULE, look,
                                                     [maps:get(node, Target), Ms],
                                                     ?CALL_MS + 2 * Ms),
    ok = erlane_bench_profile_node:call(Target, ?MODULE, end_program, [], ?CALL_MS),
    Round = compared(Sampled, Perf),
    {ok, maps:get(points, Round), Round#{sampled => Sampled, perf => Perf}}.

%% What is kept of each round are numbers.
row(#{rounds := Rounds} = Runner) ->
    Numbers = [maps:without([sampled, perf], Round) || Round <- Rounds],
    All = case Rounds of
              [] -> #{};
              _ ->
                  [Sampled, Perf] = [sum(lists:append([maps:get(Key, Round) || Round <- Rounds]))
                                     || Key <- [sampled, perf]],
                  #{all_points => maps:get(points, compared(Sampled, Perf))}
          end,
    erlane_bench_profile:row(Runner#{rounds := [maps:merge(Round, All) || Round <- Numbers]}).

sum(Shares) ->
    [{F, lists:sum([Ns || {G, Ns, _} <- Shares, G =:= F]),
      lists:sum([N || {G, _, N} <- Shares, G =:= F])}
     || F <- lists:usort([F || {F, _, _} <- Shares])].

compared(Sampled, Perf) ->
    %% Looks at one that may be running are not counted as such.
    {A, _} = shares(Sampled),
    {B, NB} = shares(Perf),
    Functions = lists:usort(maps:keys(A) ++ maps:keys(B)),
    Compared = [abs(X - Y) || F <- Functions,
                              {X, Y} <- [{maps:get(F, A, 0.0), maps:get(F, B, 0.0)}],
                              X > ?SHOWN orelse Y > ?SHOWN],
    #{points => 100 * lists:max([0.0 | Compared]), functions => length(Compared),
      perf_samples => NB}.

shares(Told) ->
    Total = lists:sum([Ns || {_, Ns, _} <- Told]),
    {maps:from_list([{F, Ns / max(1, Total)} || {F, Ns, _} <- Told]),
     lists:sum([N || {_, _, N} <- Told])}.

%%
%% Within the VMs
%%

%% @doc In the VM that is looked at: starts programs.
-spec begin_program([atom()]) -> ok.
begin_program(Programs) ->
    Self = self(),
    Pid = spawn(fun() ->
                        true = register(?MODULE, self()),
                        Pids = [spawn(erlane_bench_profile_program, forever, [Program])
                                || Program <- Programs],
                        Self ! {self(), begun},
                        receive stop -> [exit(Started, kill) || Started <- Pids] end
                end),
    receive {Pid, begun} -> ok end.

%% @doc Ends them.
-spec end_program() -> ok.
end_program() ->
    Ref = monitor(process, ?MODULE),
    ?MODULE ! stop,
    receive {'DOWN', Ref, process, _, _} -> ok end.

%% @doc In the viewer: both profiles, as time and samples of the programs' functions.
-spec look(node(), Ms :: pos_integer()) -> {Sampled :: [share()], Perf :: [share()]}
                                               | {error, string()}.
look(Node, Ms) ->
    Options = #{node => Node, for => Ms, events => ?EVENTS},
    Self = self(),
    Perf = spawn_link(fun() ->
                              Self ! {self(), erlane_prof:run(Options#{mode => perf,
                                                                       hz => ?PERF_HZ})}
                      end),
    Sampled = erlane_prof:run(Options#{mode => sample}),
    case {Sampled, receive {Perf, Answer} -> Answer end} of
        {{ok, One}, {ok, Other}} ->
            {told(erlane_prof_profile:filter(One, #{state => [running, gc]})), told(Other)};
        {{ok, _}, {error, Why}} -> {error, erlane_prof:format_error(Why)};
        {{error, Why}, _} -> {error, erlane_prof:format_error(Why)}
    end.

told(#{rows := Rows}) ->
    Ours = [{F, Ns, N} || #{stack := Stack, values := [Ns, N]} <- Rows,
                          {value, {_, F, _, _, _}} <- [lists:search(fun is_program/1,
                                                                    lists:reverse(Stack))]],
    sum(Ours).

is_program({erlane_bench_profile_program, _, _, _, _}) -> true;
is_program(_) -> false.
