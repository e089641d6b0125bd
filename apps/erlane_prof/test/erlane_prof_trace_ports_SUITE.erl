%% SPDX-License-Identifier: Apache-2.0
%% What ports do, in a trace of a node; by the native tracer and by the VM's file port.
-module(erlane_prof_trace_ports_SUITE).

-import(erlane_prof_ct, [call/4]).
-import(erlane_prof_trace_live, [run/1, running/2, caller/2, answer/1, noted/2, off/0, clean/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         init_per_testcase/2, end_per_testcase/2]).
-export([ports/1, ports_only_if_asked/1, others_trace_ports/1, not_beside_some/1]).
-export([caller_killed/1, guard_killed/1, worker_killed/1, few_atoms/1]).
-export([busy/1, make_atoms/1]).

-define(WAIT_MS, 60000).
-define(COOKIE, erlane_prof_trace_ports_test).

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Here = [ports, ports_only_if_asked, others_trace_ports],
    There = [caller_killed, guard_killed, worker_killed, few_atoms],
    [{here_native, [], [not_beside_some | Here]}, {here_port, [], Here}, {there_native, [], There},
     {there_port, [], There}].

init_per_suite(Config) -> erlane_prof_ct:init_suite(?COOKIE, Config).

end_per_suite(_Config) -> erlane_prof_ct:end_suite().

init_per_group(Group, Config) -> erlane_prof_trace_live:init_group(?MODULE, Group, Config).

end_per_group(_Group, _Config) -> erlane_prof_trace_live:end_group().

init_per_testcase(few_atoms = Case, Config) ->
    erlane_prof_trace_live:init_case(?COOKIE, {"exec ", "+t 200000"}, Case, Config);
init_per_testcase(Case, Config) ->
    erlane_prof_trace_live:init_case(?COOKIE, {"exec ", ""}, Case, Config).

end_per_testcase(_Case, Config) -> erlane_prof_ct:end_case(Config).

%%% Here

%% A program and sockets that are busy are rows of their own, with the time that their tasks take
%% and what they wait, and how many tasks there were. The port of the trace is not among them.
ports(_Config) ->
    Before = erlang:ports(),
    {ok, #{ns := Ns} = Profile} = running(fun use_ports/0, #{functions => [?MODULE],
                                                             with => [ports]}),
    Rows = [{Proc, State, Stack, Values}
            || #{proc := Proc, state := State, stack := [<<"[port]", _/binary>> | _] = Stack,
                 values := Values} <- maps:get(rows, Profile)],
    Tasks = fun(Label, Stack) ->
                    [[TaskNs, N]] = [V || {L, running, S, V} <- Rows, L =:= Label, S =:= Stack],
                    ?assert(TaskNs > 0 andalso TaskNs < Ns, {Label, Stack, TaskNs, Ns}),
                    N
            end,
    Cat = <<"[port] cat">>,
    ?assert(Tasks(<<"prof_trace_cat">>, [Cat, <<"command">>]) =< 50),
    ?assertEqual(1, Tasks(<<"prof_trace_cat">>, [Cat, <<"open">>])),
    %% What is not done at once comes from the queue, as what is read.
    ?assert(Tasks(<<"prof_trace_cat">>, [Cat]) >= 50),
    Tcp = <<"[port] tcp_inet">>,
    ?assert(Tasks(<<"tcp_inet">>, [Tcp, <<"command">>]) > 0),
    ?assert(Tasks(<<"tcp_inet">>, [Tcp]) > 0),
    [[Waits, 0]] = [V || {<<"prof_trace_cat">>, waiting, [F], V} <- Rows, F =:= Cat],
    ?assert(Waits > 0 andalso Waits < Ns),
    ?assertEqual([], [R || {_, _, [<<"[port] trace_file_drv", _/binary>> | _], _} = R <- Rows]),
    same_in_all_formats(Profile),
    off(),
    ?assertEqual([], [Port || Port <- erlang:ports() -- Before,
                              {name, "trace_file_drv" ++ _} <- [erlang:port_info(Port, name)]]),
    [close(Port) || Port <- get(prof_trace_ports)].

%% What is closed after the trace is told by name at its end.
use_ports() ->
    Cat = open_port({spawn, "cat"}, [binary]),
    true = register(prof_trace_cat, Cat),
    {ok, Listener} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {active, false}, binary]),
    {ok, Number} = inet:port(Listener),
    {ok, Client} = gen_tcp:connect({127, 0, 0, 1}, Number, [{active, false}, binary]),
    {ok, Server} = gen_tcp:accept(Listener),
    put(prof_trace_ports, [Cat, Listener, Client, Server]),
    [begin
         true = port_command(Cat, <<"line\n">>),
         receive {Cat, {data, _}} -> ok after ?WAIT_MS -> ct:fail(no_cat) end,
         ok = gen_tcp:send(Client, <<"line\n">>),
         {ok, <<"line\n">>} = gen_tcp:recv(Server, 5, ?WAIT_MS)
     end || _ <- lists:seq(1, 50)].

close(Port) when is_port(Port) -> port_close(Port);
close(Socket) -> gen_tcp:close(Socket).

%% Self and total of each function are the same however it is written.
same_in_all_formats(Profile) ->
    Want = erlane_prof_reading:profile(Profile),
    Read = fun(Format) ->
                   erlane_prof_reading:Format(erlane_prof_file:encode(Profile, Format))
           end,
    [?assertEqual({Format, Want}, {Format, Read(Format)})
     || Format <- [collapsed, speedscope, callgrind, pprof, flame]].

%% Without that no port is there, whatever else is.
ports_only_if_asked(_Config) ->
    {ok, Profile} = running(fun use_ports/0, #{functions => [?MODULE], with => [messages]}),
    ?assertEqual([], [Proc || #{proc := Proc} <- maps:get(rows, Profile),
                              lists:member(Proc, [<<"prof_trace_cat">>, <<"tcp_inet">>, <<"cat">>,
                                                  <<"[port]">>, <<"[unknown]">>])]),
    [close(Port) || Port <- get(prof_trace_ports)].

%% Somebody else's tracing of ports is not touched either.
others_trace_ports(_Config) ->
    Port = open_port({spawn, "cat"}, [binary]),
    1 = erlang:trace(Port, true, [running_ports]),
    Answer = run(#{for => 100, with => [ports]}),
    ?assertEqual({flags, [running_ports]}, erlang:trace_info(Port, flags)),
    1 = erlang:trace(Port, false, [running_ports]),
    port_close(Port),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 27 -> {error, {declined, _, _}} = Answer;
        _ -> {ok, _} = Answer
    end,
    off().

%% Named processes have no ports.
not_beside_some(_Config) ->
    {error, {option, with, _}} = run(#{with => [ports], procs => [kernel_sup]}),
    {ok, _} = run(#{with => [ports], procs => all, for => 50}),
    off().

%%% There

%% However it ends, the flags of ports end with it.
caller_killed(Config) ->
    exit(traced(Config), kill),
    clean(Config).

guard_killed(Config) -> killed("guard", Config).

worker_killed(Config) -> killed("erlane_prof_trace", Config).

killed(Role, Config) ->
    Caller = traced(Config),
    Caller ! {tell, self()},
    [exit(Pid, kill) || Pid <- erlane_prof_ct:agents(Config, Role)],
    clean(Config),
    {_, _} = answer(Caller).

traced(Config) -> caller(Config, #{with => [ports]}).

%% With the flags of ports the VM makes atoms: a node that has few left is not brought to its end.
few_atoms(Config) ->
    Node = proplists:get_value(node, Config),
    Caller = traced(Config),
    Caller ! {tell, self()},
    Left = call(Config, erlang, system_info, [atom_limit])
        - call(Config, erlang, system_info, [atom_count]),
    ok = call(Config, ?MODULE, make_atoms, [Left - 50000]),
    {ok, Profile} = answer(Caller),
    ?assert(noted("few atoms left", Profile), Profile),
    {error, {declined, Node, Why}} = run(#{node => Node, with => [ports]}),
    ?assertNotEqual(nomatch, string:find(Why, "few atoms left")),
    {ok, _} = run(#{node => Node, for => 50}),
    clean(Config).

make_atoms(0) -> ok;
make_atoms(N) ->
    _ = list_to_atom("prof_trace_" ++ integer_to_list(N)),
    make_atoms(N - 1).

busy(N) ->
    busy(N + 1).
