%% SPDX-License-Identifier: Apache-2.0
%% @doc The VMs of the scenario `profile', and what their loads are. A VM of it obeys
%% erlane_bench_vm, and has one command, `{call, Module, Function, Args}'.
%%
%% A load does units of work, in processes that are known by number, and counts them. Each unit is
%% {@link erlane_bench_profile_program:tree/1} of the same depth.
-module(erlane_bench_profile_node).

-export([start/0, spawn_all/3, call/5, cpu_ns/1]).
-export([counter/0, idle/1, busy/1, units/0, workers/1, worker/1, go/2, calls/0, rest/0,
         forgotten/0]).

-export_type([vm/0]).

-type vm() :: #{node := node(), program := erlane_bench_os:program()}.

-define(START_MS, 30000).
-define(DEPTH, 12).
-define(COUNTER, erlane_bench_profile_units).
-define(FORGOTTEN_MS, 60000).

%%
%% The harness
%%

%% @doc Starts VMs as nodes, which find these modules of ours, and those of the applications that
%% are named by one of their modules.
-spec spawn_all([{Name, Flags :: [string()], Cores :: [non_neg_integer()], Apps :: [module()]}],
                Cookie :: string(), erlane_bench_vm:epmd()) -> #{Name => vm()}.
spawn_all(Wanted, Cookie, Epmd) ->
    %% All at the same time, as each takes a while.
    Started = [{element(1, How), spawned(How, Cookie, Epmd)} || How <- Wanted],
    maps:from_list([{Name, ready(Vm)} || {Name, Vm} <- Started]).

spawned({Name, Flags, Cores, Apps}, Cookie, Epmd) ->
    Node = erlane_bench_vm:node_name("profile_" ++ atom_to_list(Name), 0),
    Paths = lists:usort([filename:dirname(File) || M <- [?MODULE | Apps],
                                                   File <- [code:which(M)], is_list(File)]),
    Args = Flags ++ ["-name", Node, "-setcookie", Cookie, "-pa" | Paths]
        ++ ["-s", atom_to_list(?MODULE), "start"],
    #{node => list_to_atom(Node), program => erlane_bench_vm:start(Args, Cores, Epmd)}.

ready(#{program := Program} = Vm) ->
    case erlane_bench_os:await(Program, <<"ready">>, ?START_MS) of
        {ok, _} -> Vm;
        {error, Why} -> erlane_cli:fail("a VM does not start: ~ts", [Why])
    end.

%% @doc Calls a function in a VM. What went wrong, or `{error, Text}', is thrown as a text.
-spec call(vm(), module(), atom(), [term()], Ms :: pos_integer()) -> term().
call(#{program := Program}, M, F, A, Ms) ->
    case erlane_bench_vm:ask(Program, {call, M, F, A}, Ms) of
        {ok, {error, Text}} -> throw({error, unicode:characters_to_binary(Text)});
        {ok, Result} -> Result;
        {error, Why} -> throw({error, Why})
    end.

%% @doc CPU time that a VM has used.
-spec cpu_ns(vm()) -> non_neg_integer().
cpu_ns(#{program := Program}) -> erlane_bench_os:cpu_ns(Program).

%%
%% Within a VM
%%

%% @doc Entry of the VM.
-spec start() -> ok.
start() ->
    erlane_bench_server:program(fun main/1).

main([]) ->
    {module, _} = code:ensure_loaded(erlane_bench_profile_program),
    ok = counter(),
    io:format("ready~n"),
    erlane_bench_vm:commands(fun({call, M, F, A}, none) -> {apply(M, F, A), none} end, none).

%% @doc Before there are busy processes: what they count with.
-spec counter() -> ok.
counter() ->
    persistent_term:put(?COUNTER, counters:new(1, [write_concurrency])).

%% @doc So many processes that sleep.
-spec idle(non_neg_integer()) -> ok.
idle(Count) ->
    _ = [spawn(fun() -> receive stop -> ok end end) || _ <- lists:seq(1, Count)],
    ok.

%% @doc So many processes that never wait, until {@link rest/0}.
-spec busy(pos_integer()) -> ok.
busy(Count) ->
    lists:foreach(fun(I) -> true = register(name(I), spawn(fun busy/0)) end, lists:seq(1, Count)).

busy() ->
    _ = erlane_bench_profile_program:tree(?DEPTH),
    counters:add(persistent_term:get(?COUNTER), 1, 1),
    busy().

%% @doc Ends those, and workers.
-spec rest() -> ok.
rest() ->
    lists:foreach(fun(Pid) ->
                          Ref = monitor(process, Pid),
                          exit(Pid, kill),
                          receive {'DOWN', Ref, process, Pid, _} -> ok end
                  end, registered(1)).

registered(I) ->
    case whereis(name(I)) of
        undefined -> [];
        Pid -> [Pid | registered(I + 1)]
    end.

%% @doc What busy processes have done so far, and when that was in nanoseconds.
-spec units() -> {Units :: non_neg_integer(), Ns :: integer()}.
units() ->
    {counters:get(persistent_term:get(?COUNTER), 1), erlang:monotonic_time(nanosecond)}.

%% @doc So many processes that work when told, until {@link rest/0}.
-spec workers(pos_integer()) -> ok.
workers(Count) ->
    lists:foreach(fun(I) ->
                          true = register(name(I), spawn(fun Loop() -> ok = obey(), Loop() end))
                  end, lists:seq(1, Count)).

obey() ->
    receive
        {work, Units, From} ->
            repeat(Units),
            From ! {worked, self(), erlang:monotonic_time(nanosecond)},
            ok
    end.

repeat(0) -> ok;
repeat(N) ->
    _ = erlane_bench_profile_program:tree(?DEPTH),
    repeat(N - 1).

%% @doc The process of a worker.
-spec worker(pos_integer()) -> pid().
worker(I) -> whereis(name(I)).

%% @doc Lets all of so many workers do so many units, and says how long it was until the last was
%% done, in nanoseconds.
-spec go(Workers :: pos_integer(), Units :: pos_integer()) -> pos_integer().
go(Workers, Units) ->
    Pids = [worker(I) || I <- lists:seq(1, Workers)],
    Begin = erlang:monotonic_time(nanosecond),
    _ = [Pid ! {work, Units, self()} || Pid <- Pids],
    lists:max([receive {worked, Pid, End} -> End - Begin end || Pid <- Pids]).

%% @doc The calls of a unit.
-spec calls() -> pos_integer().
calls() -> erlane_bench_profile_program:calls(?DEPTH).

%% @doc Waits until the code of a profile has been purged here, which goes on after its end.
-spec forgotten() -> ok.
forgotten() ->
    forgotten(erlang:monotonic_time(millisecond) + ?FORGOTTEN_MS).

forgotten(Deadline) ->
    Names = [Name || N <- lists:seq(0, 63),
                     {ok, Name} <- [existing(lists:concat(["erlane_prof_agent_", N]))]],
    case [Name || Name <- Names, erlang:check_old_code(Name)] of
        [] -> ok;
        _ ->
            true = erlang:monotonic_time(millisecond) < Deadline,
            timer:sleep(5),
            forgotten(Deadline)
    end.

existing(Text) ->
    try {ok, list_to_existing_atom(Text)}
    catch error:badarg -> none
    end.

name(I) -> list_to_atom("erlane_bench_worker_" ++ integer_to_list(I)).
