%% SPDX-License-Identifier: Apache-2.0
%% @doc Listeners that crash, cannot listen again, lose what they depend on; and who else notices.
-module(erlane_http_restart_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([others_stay/1, killed_often/1, stopped_while_down/1, drained_while_down/1,
         application_gone/1, socket_left_behind/1, socket_in_use/1, socket_of_another/1,
         asked_at_its_end/1, asked_while_it_drains/1, foreign_exits/1, status_has_no_secret/1,
         drain/1]).
-export([init/1]).

-import(erlane_http_ct, [start/2, start/3, connect/1, get/2, send/2, is_closed/1, until/1,
                         connections/1, name/0]).

-define(WAIT_MS, 5000).

all() -> [{group, erlane}, {group, gen_tcp}].

groups() ->
    Cases = [others_stay, killed_often, stopped_while_down, drained_while_down, application_gone,
             socket_left_behind, socket_in_use, socket_of_another, asked_at_its_end,
             asked_while_it_drains, foreign_exits, status_has_no_secret, drain],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) -> erlane_http_ct:stop(Config).

%% A listener whose log's directory has gone cannot start again: it waits for it, whatever time
%% it takes, and another one has no part in it.
others_stay(Config) ->
    {Dir, Port} = with_a_log(Config),
    {ok, Other} = erlane_http:start(other, #{handler => {erlane_http_ct, #{handle => fun ok/1}}}),
    ok = file:del_dir_r(Dir),
    exit(erlane_http_names:whereis(name()), kill),
    until(fun() -> state() =:= down end),
    ?assertMatch(#{ip := {127, 0, 0, 1}, port := Port, scheme := http, connections := 0},
                 erlane_http:info(name())),
    {200, _, _} = get(connect(erlane_http:port(other)), "/"),
    ok = file:make_dir(Dir),
    until(fun() -> state() =:= listening end),
    {200, _, _} = get(connect(Port), "/"),
    ?assertEqual(Other, erlane_http_names:whereis(other)).

%% A port that is always the same, and a log in a directory of its own.
with_a_log(Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "log"),
    _ = file:make_dir(Dir),
    Port = start(Config, fun ok/1),
    erlane_http_ct:stop(Config),
    Port = start(Config, fun ok/1, #{port => Port,
                                     access_log => {common, filename:join(Dir, "access.log")}}),
    {Dir, Port}.

ok(_) -> {200, [], <<"x">>}.

state() ->
    case erlane_http:info(name()) of
        #{state := State} -> State;
        {error, not_found} -> none
    end.

%% A supervisor that restarts a few times in ten seconds would have given up by then.
killed_often(Config) ->
    Port0 = start(Config, fun ok/1),
    erlane_http_ct:stop(Config),
    Port = start(Config, fun ok/1, #{port => Port0}),
    {ok, Other} = erlane_http:start(other, #{handler => {erlane_http_ct, #{handle => fun ok/1}}}),
    [begin
         Pid = alive(),
         exit(Pid, kill),
         until(fun() -> alive() =/= Pid end)
     end || _ <- lists:seq(1, 20)],
    ?assertEqual(Other, erlane_http_names:whereis(other)),
    ?assertEqual([name(), other], erlane_http:listeners()),
    %% Stopped and started by somebody who wants to know, it listens at once.
    ok = erlane_http:stop(name(), #{drain => 0}),
    until(fun() -> can_listen(Port) end),
    Port = start(Config, fun ok/1, #{port => Port}),
    {200, _, _} = get(connect(Port), "/").

alive() ->
    until(fun() -> is_pid(erlane_http_names:whereis(name())) end),
    erlane_http_names:whereis(name()).

can_listen(Port) ->
    case gen_tcp:listen(Port, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}]) of
        {ok, Socket} -> gen_tcp:close(Socket) =:= ok;
        {error, eaddrinuse} -> false
    end.

%% What is down can be stopped, and its name is free.
stopped_while_down(Config) ->
    {Dir, _} = with_a_log(Config),
    ok = file:del_dir_r(Dir),
    exit(erlane_http_names:whereis(name()), kill),
    until(fun() -> state() =:= down end),
    ok = erlane_http:stop(name(), #{drain => 5000}),
    ?assertEqual([], erlane_http:listeners()),
    {200, _, _} = get(connect(start(Config, fun ok/1)), "/").

%% What is down and drained does not listen again.
drained_while_down(Config) ->
    {Dir, Port} = with_a_log(Config),
    ok = file:del_dir_r(Dir),
    exit(erlane_http_names:whereis(name()), kill),
    until(fun() -> state() =:= down end),
    ok = erlane_http:drain(name(), 5000),
    ok = file:make_dir(Dir),
    ?assertEqual(draining, state()),
    %% Longer than between two of its tries.
    ?assertError(_, erlane_http_ct:until(fun() -> state() =:= listening end, 1500)),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])).

%% A listener of another supervisor goes on answering when the application has crashed.
application_gone(Config) ->
    Options = #{handler => {erlane_http_ct, #{handle => fun ok/1}},
                socket => proplists:get_value(socket, Config)},
    {ok, Sup} = supervisor:start_link(?MODULE, erlane_http:child_spec(mine, Options)),
    C = connect(erlane_http:port(mine)),
    exit(whereis(erlane_http_sup), kill),
    until(fun() -> not lists:keymember(erlane_http, 1, application:which_applications()) end),
    {200, Headers, <<"x">>} = get(C, "/"),
    ?assert(lists:keymember(<<"date">>, 1, Headers)),
    ?assertEqual({[], {error, not_found}}, {erlane_http:listeners(), erlane_http:info(mine)}),
    ok = supervisor:terminate_child(Sup, mine),
    ?assertEqual({error, {erlane_http, not_started}}, supervisor:restart_child(Sup, mine)),
    {ok, _} = application:ensure_all_started(erlane_http),
    {ok, _} = supervisor:restart_child(Sup, mine),
    {200, _, _} = get(connect(erlane_http:port(mine)), "/"),
    unlink(Sup),
    exit(Sup, shutdown),
    until(fun() -> not is_process_alive(Sup) end).

init(Spec) -> {ok, {#{}, [Spec]}}.

%% The file of a listener that was killed is in nobody's way: not in that of its restart, nor of
%% the next VM.
socket_left_behind(Config) ->
    Path = path(),
    {ok, Dead} = gen_tcp:listen(0, [{ifaddr, {local, Path}}]),
    ok = gen_tcp:close(Dead),
    {ok, _} = file:read_file_info(Path),
    0 = start(Config, fun ok/1, #{ip => {local, Path}}),
    Old = erlane_http_names:whereis(name()),
    exit(Old, kill),
    until(fun() -> erlane_http_names:whereis(name()) =/= Old andalso state() =:= listening end),
    {ok, C} = gen_tcp:connect({local, Path}, 0, [binary, {active, false}]),
    {200, _, <<"x">>} = get(C, "/").

path() ->
    Path = "/tmp/erlane_http_restart_" ++ os:getpid() ++ ".sock",
    _ = file:delete(Path),
    Path.

%% One that somebody listens on stays, and so does a file that is no socket.
socket_in_use(Config) ->
    Path = path(),
    {ok, Other} = gen_tcp:listen(0, [{ifaddr, {local, Path}}]),
    Options = #{handler => {erlane_http_ct, #{handle => fun ok/1}}, ip => {local, Path},
                socket => proplists:get_value(socket, Config)},
    ?assertEqual({error, eaddrinuse}, erlane_http:start(second, Options)),
    {ok, _} = gen_tcp:connect({local, Path}, 0, []),
    ok = gen_tcp:close(Other),
    ok = file:delete(Path),
    ok = file:write_file(Path, "precious"),
    ?assertEqual({error, eaddrinuse}, erlane_http:start(second, Options)),
    ?assertEqual({ok, <<"precious">>}, file:read_file(Path)),
    ok = file:delete(Path).

%% A newer program that has taken over the name keeps its file when the older one ends.
socket_of_another(Config) ->
    Path = path(),
    0 = start(Config, fun ok/1, #{ip => {local, Path}}),
    ok = file:delete(Path),
    {ok, Newer} = gen_tcp:listen(0, [{ifaddr, {local, Path}}]),
    ok = erlane_http:stop(name(), #{drain => 0}),
    {ok, _} = gen_tcp:connect({local, Path}, 0, []),
    ok = gen_tcp:close(Newer),
    ok = file:delete(Path).

%% Whatever a listener ends with, who asks for its figures is told that it is not there.
asked_at_its_end(Config) ->
    [begin
         _ = start(Config, fun ok/1),
         Pid = erlane_http_names:whereis(name()),
         ok = sys:suspend(Pid),
         Self = self(),
         spawn_link(fun() -> Self ! {told, erlane_http:info(name())} end),
         until(fun() -> {message_queue_len, 1} =:= process_info(Pid, message_queue_len) end),
         exit(Pid, kill),
         ?assertEqual({error, not_found}, receive {told, Told} -> Told after ?WAIT_MS -> late end),
         %% Its supervisor starts it again, or is about to.
         ok = erlane_http:stop(name(), #{drain => 0})
     end || _ <- [1, 2]].

%% And while its supervisor waits for its connections it answers.
asked_while_it_drains(Config) ->
    Self = self(),
    Handle = fun(_) -> Self ! {running, self()}, receive go -> {200, [], <<"x">>} end end,
    Options = #{handler => {erlane_http_ct, #{handle => Handle}}, drain => 10000,
                socket => proplists:get_value(socket, Config)},
    {ok, Sup} = supervisor:start_link(?MODULE, erlane_http:child_spec(mine, Options)),
    C = connect(erlane_http:port(mine)),
    ok = send(C, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    Pid = receive {running, P} -> P after ?WAIT_MS -> ct:fail(not_running) end,
    Stopper = spawn_link(fun() -> ok = supervisor:terminate_child(Sup, mine) end),
    until(fun() -> maps:get(state, erlane_http:info(mine)) =:= draining end),
    Pid ! go,
    until(fun() -> not is_process_alive(Stopper) end),
    {200, _, <<"x">>} = erlane_http_ct:answer(C),
    ?assertEqual({error, not_found}, erlane_http:info(mine)),
    unlink(Sup),
    exit(Sup, shutdown).

%% Whoever links to an acceptor or a listener and dies is no connection of theirs: the limit stays
%% exact, and a drain ends.
foreign_exits(Config) ->
    Port = start(Config, fun ok/1, #{connections => 2}),
    Server = erlane_http_names:whereis(name()),
    {links, Links} = process_info(Server, links),
    Acceptors = [Pid || Pid <- Links, is_pid(Pid), Pid =/= whereis(erlane_http_sup)],
    [begin
         {Foreign, Ref} = spawn_monitor(fun() -> true = link(Pid), exit(strange) end),
         receive {'DOWN', Ref, process, Foreign, strange} -> ok end
     end || Pid <- [Server | Acceptors], _ <- [1, 2, 3]],
    [First, Second, Third] = [connect(Port) || _ <- [1, 2, 3]],
    {200, _, _} = get(First, "/"),
    {200, _, _} = get(Second, "/"),
    ok = send(Third, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ?assertEqual({error, timeout}, gen_tcp:recv(Third, 0, 300)),
    ?assertMatch(#{connections := 2}, erlane_http:info(name())),
    ok = gen_tcp:close(First),
    {200, _, _} = erlane_http_ct:answer(Third),
    connections(2),
    ?assertEqual(Server, erlane_http_names:whereis(name())),
    ok = erlane_http:drain(name(), 4000),
    connections(0).

%% The state of a listener is logged when it crashes: there is no option in it.
status_has_no_secret(Config) ->
    _ = start(Config, #{handle => fun ok/1, password => <<"PASSWORD">>}),
    Status = sys:get_status(erlane_http_names:whereis(name())),
    ?assertEqual(nomatch, binary:match(iolist_to_binary(io_lib:format("~0p", [Status])),
                                       <<"PASSWORD">>)).

%% A drain closes and waits; the listener and its figures stay.
drain(Config) ->
    Port = start(Config, fun ok/1),
    C = connect(Port),
    {200, _, _} = get(C, "/"),
    ok = erlane_http:drain(name(), 10000),
    ?assert(is_closed(C)),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, [])),
    ?assertMatch(#{state := draining, requests := N, connections := 0} when N > 0,
                 erlane_http:info(name())),
    ok = erlane_http:drain(name(), 0),
    ok = erlane_http:stop(name(), #{}),
    ?assertEqual({error, not_found}, erlane_http:drain(name(), 0)).
