%% SPDX-License-Identifier: Apache-2.0
%% One listener at a time, its clients and upstreams stock gen_tcp sockets of this VM.
-module(erlane_proxy_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([addresses_parse/1, options_are_checked/1, errors_have_text/1, relays_and_counts/1,
         bytes_of_open_connections_count/1, half_close_from_client/1, half_close_from_upstream/1,
         half_close_off/1, dead_upstream_resets_client/1, connect_timeout/1,
         reset_is_passed_on/1, idle_timeout/1, half_close_timeout/1, limit_is_exact/1,
         killed_connection_gives_its_slot_back/1, killed_acceptor_comes_back/1,
         killed_keeper_restarts_the_listener/1, drain_waits/1, drain_resets/1,
         drain_resets_who_connects/1, drain_is_shortened/1, drain_at_the_limit/1,
         taken_port_and_name/1, unix_sockets/1, ipv6/1, log_is_limited/1,
         application_stop_drains/1, churn_leaves_nothing/1]).
%% logger handler
-export([log/2]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 5000).

all() ->
    [addresses_parse, options_are_checked, errors_have_text, relays_and_counts,
     bytes_of_open_connections_count, half_close_from_client, half_close_from_upstream,
     half_close_off, dead_upstream_resets_client, connect_timeout, reset_is_passed_on,
     idle_timeout, half_close_timeout, limit_is_exact, killed_connection_gives_its_slot_back,
     killed_acceptor_comes_back, killed_keeper_restarts_the_listener, drain_waits, drain_resets,
     drain_resets_who_connects, drain_is_shortened, drain_at_the_limit, taken_port_and_name,
     unix_sockets, ipv6, log_is_limited, application_stop_drains, churn_leaves_nothing].

init_per_suite(Config) ->
    Config.

end_per_suite(_Config) ->
    ok.

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(erlane_proxy),
    ok = application:set_env(erlane_proxy, drain, 0),
    Config.

end_per_testcase(_Case, _Config) ->
    _ = logger:remove_handler(?MODULE),
    application:stop(erlane_proxy),
    application:stop(erlane_socket).

%% Every form of an address is read and written back; a wrong one is told in words.
addresses_parse(_Config) ->
    [begin
         {ok, Address} = erlane_proxy_address:parse(Text),
         ?assertEqual(Text, erlane_proxy_address:format(Address))
     end || Text <- ["127.0.0.1:80", "localhost:0", "[::1]:65535", "unix:/tmp/a:b"]],
    [?assertMatch({error, [_ | _]}, erlane_proxy_address:parse(Text))
     || Text <- ["", ":", "80", "a", "a:", "a:x", "a:-1", "a:65536", "a:1x", ":80", "::1:80",
                 "[::1]", "[::1]80", "[127.0.0.1]:80", "[]:80", "unix:"]].

%% Each bad option is named; nothing is started.
options_are_checked(_Config) ->
    Good = #{listen => {?LOOPBACK, 0}, to => {"localhost", 1}},
    Long = lists:duplicate(200, $x),
    [?assertMatch({_, {error, {Key, _}}}, {Change, start(maps:merge(Good, Change))})
     || {Key, Change} <-
            [{listen, #{listen => 80}}, {listen, #{listen => {?LOOPBACK, 65536}}},
             {listen, #{listen => {local, Long}}}, {listen, #{listen => {{1, 2, 3}, 1}}},
             {listen, #{listen => {local, ""}}}, {listen, #{listen => {<<"localhost">>, 80}}},
             {to, #{to => {?LOOPBACK, 0}}}, {to, #{to => {"no-such-host.invalid", 1}}},
             {to, #{to => nowhere}}, {connect_timeout, #{connect_timeout => infinity}},
             {connect_timeout, #{connect_timeout => 0}}, {idle_timeout, #{idle_timeout => -1}},
             {idle_timeout, #{idle_timeout => 1 bsl 31}}, {half_close, #{half_close => 1}},
             {half_close_timeout, #{half_close_timeout => soon}},
             {max_connections, #{max_connections => 0}}, {acceptors, #{acceptors => 0}},
             {backlog, #{backlog => 65536}}, {typo, #{typo => 1}}]],
    ?assertEqual({error, {to, missing}}, start(maps:remove(to, Good))),
    ?assertEqual({error, {listen, missing}}, start(maps:remove(listen, Good))),
    ?assertEqual([], erlane_proxy:listeners()),
    ?assertEqual({error, not_found}, erlane_proxy:info(test)),
    ?assertEqual({error, not_found}, erlane_proxy:stop_listener(test, 0)).

%% Each kind of error is one line that names the option.
errors_have_text(_Config) ->
    Good = #{listen => {?LOOPBACK, 0}, to => {"localhost", 1}},
    [begin
         {error, {Key, _} = Reason} = start(maps:merge(Good, Change)),
         Text = erlane_proxy:format_error(Reason),
         ?assert(lists:prefix(atom_to_list(Key), Text)),
         ?assertNotEqual(nomatch, string:find(Text, Word)),
         ?assertEqual(nomatch, string:find(Text, "\n"))
     end || {Change, Word} <- [{#{to => {"no-such-host.invalid", 1}}, "no-such-host.invalid"},
                               {#{listen => {{192, 0, 2, 1}, 80}}, "192.0.2.1:80"},
                               {#{listen => {local, "/no/such/dir/s"}}, "enoent"},
                               {#{backlog => x}, "x"}, {#{typo => 1}, "no such option"}]].

%% Bytes come through unchanged in both directions, and every figure is right afterwards.
relays_and_counts(_Config) ->
    Port = proxy(#{}, echo()),
    Data = crypto_free_bytes(300000),
    Client = connect(Port),
    Self = self(),
    _ = spawn_link(fun() -> ok = gen_tcp:send(Client, Data), Self ! sent end),
    {ok, Data} = gen_tcp:recv(Client, byte_size(Data), ?WAIT_MS),
    receive sent -> ok end,
    #{connections := 1, accepted := 1, connected := 1} = info(),
    ok = gen_tcp:close(Client),
    Info = until(fun() -> #{connections := 0} = info() end),
    ?assertMatch(#{to_upstream := 300000, to_client := 300000, ended_normal := 1,
                   ended_reset := 0, connect_errors := 0, state := listening}, Info).

%% info/1 knows the bytes of connections that are still open.
bytes_of_open_connections_count(_Config) ->
    Port = proxy(#{}, echo()),
    Client = connect(Port),
    ok = gen_tcp:send(Client, <<0:8000>>),
    {ok, _} = gen_tcp:recv(Client, 1000, ?WAIT_MS),
    ?assertMatch(#{to_upstream := 1000, to_client := 1000, connections := 1}, info()).

%% The client ends its side: the upstream sees the end, its answer still arrives.
half_close_from_client(_Config) ->
    Port = proxy(#{}, fun(S) ->
                              All = read_all(S),
                              ok = gen_tcp:send(S, [All, All]),
                              gen_tcp:close(S)
                      end),
    Client = connect(Port),
    ok = gen_tcp:send(Client, "question"),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual(<<"questionquestion">>, read_all(Client)),
    until(fun() -> #{connections := 0, ended_normal := 1} = info() end).

%% The upstream ends its side: the client sees the end and can still send.
half_close_from_upstream(_Config) ->
    Self = self(),
    Port = proxy(#{}, fun(S) ->
                              ok = gen_tcp:send(S, "bye"),
                              ok = gen_tcp:shutdown(S, write),
                              Self ! {upstream, read_all(S)},
                              gen_tcp:close(S)
                      end),
    Client = connect(Port),
    ?assertEqual(<<"bye">>, read_all(Client)),
    ok = gen_tcp:send(Client, "last words"),
    ok = gen_tcp:close(Client),
    receive {upstream, Got} -> ?assertEqual(<<"last words">>, Got)
    after ?WAIT_MS -> ct:fail(nothing_came)
    end.

%% half_close => false: the first end closes both, what was sent before it arrives.
half_close_off(_Config) ->
    Self = self(),
    Port = proxy(#{half_close => false},
                 fun(S) -> Self ! {upstream, read_all(S)}, receive never -> ok end end),
    Client = connect(Port),
    ok = gen_tcp:send(Client, "all of it"),
    ok = gen_tcp:shutdown(Client, write),
    ?assertEqual({error, closed}, gen_tcp:recv(Client, 0, ?WAIT_MS)),
    receive {upstream, Got} -> ?assertEqual(<<"all of it">>, Got)
    after ?WAIT_MS -> ct:fail(nothing_came)
    end.

%% Nobody listens upstream: the client is reset, the failure counted and logged by name.
dead_upstream_resets_client(_Config) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    Dead = free_port(),
    ok = start(#{listen => {?LOOPBACK, 0}, to => {?LOOPBACK, Dead}}),
    ?assertEqual({error, econnreset}, refused(port())),
    #{connect_errors := 1, connected := 0} = until(fun() -> #{connections := 0} = info() end),
    Line = receive {log, warning, Text} -> Text after ?WAIT_MS -> ct:fail(no_line) end,
    ?assertNotEqual(nomatch, string:find(Line, "127.0.0.1:" ++ integer_to_list(Dead))),
    ?assertNotEqual(nomatch, string:find(Line, "econnrefused")).

%% An upstream that does not answer the SYN: its listen queue is full.
connect_timeout(_Config) ->
    {_Full, Deaf} = deaf_upstream(),
    ok = start(#{listen => {?LOOPBACK, 0}, to => {?LOOPBACK, Deaf}, connect_timeout => 100}),
    Client = connect(port()),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Client, 0, ?WAIT_MS)),
    ?assertMatch(#{connect_errors := 1}, info()).

%% A reset arrives as a reset on the other side, in both directions, never as a clean end.
reset_is_passed_on(_Config) ->
    Self = self(),
    Port = proxy(#{}, fun(S) ->
                              Self ! {upstream, self()},
                              {ok, _} = gen_tcp:recv(S, 1),
                              receive
                                  reset -> reset(S);
                                  read -> Self ! {read, gen_tcp:recv(S, 0)}
                              end
                      end),
    One = connect(Port),
    ok = gen_tcp:send(One, "x"),
    receive {upstream, Up1} -> Up1 ! reset end,
    ?assertEqual({error, econnreset}, gen_tcp:recv(One, 0, ?WAIT_MS)),
    Two = connect(Port),
    ok = gen_tcp:send(Two, "x"),
    receive {upstream, Up2} -> Up2 ! read end,
    until(fun() -> #{to_upstream := 2} = info() end),
    reset(Two),
    receive {read, Result} -> ?assertEqual({error, econnreset}, Result)
    after ?WAIT_MS -> ct:fail(no_reset)
    end,
    until(fun() -> #{ended_reset := 2, connections := 0} = info() end).

%% No byte for idle_timeout: both sides are closed; a byte now and then keeps it open.
idle_timeout(_Config) ->
    Port = proxy(#{idle_timeout => 1000}, echo()),
    Idle = connect(Port),
    Busy = connect(Port),
    Pulse = spawn_link(fun() -> pulse(Busy) end),
    ?assertEqual({error, closed}, closed_or_reset(gen_tcp:recv(Idle, 0, ?WAIT_MS))),
    until(fun() -> #{ended_idle := 1, connections := 1} = info() end),
    unlink(Pulse),
    exit(Pulse, kill).

pulse(Socket) ->
    ok = gen_tcp:send(Socket, "."),
    {ok, <<".">>} = gen_tcp:recv(Socket, 1, ?WAIT_MS),
    receive after 100 -> pulse(Socket) end.

%% One side ended, the other never does.
half_close_timeout(_Config) ->
    Port = proxy(#{half_close_timeout => 500}, fun(S) -> read_all(S), receive never -> ok end end),
    Client = connect(Port),
    ok = gen_tcp:shutdown(Client, write),
    ?assertMatch({error, _}, gen_tcp:recv(Client, 0, ?WAIT_MS)),
    until(fun() -> #{ended_half_close := 1, connections := 0} = info() end).

%% Four acceptors, a limit of three, ten clients: never more than three upstream, and each
%% place that gets free is taken by one who waited.
limit_is_exact(_Config) ->
    Self = self(),
    Port = proxy(#{max_connections => 3, acceptors => 4},
                 fun(S) -> Self ! {upstream, self()}, read_all(S) end),
    Clients = [connect(Port) || _ <- lists:seq(1, 10)],
    [receive {upstream, _} -> ok after ?WAIT_MS -> ct:fail(below_limit) end || _ <- [1, 2, 3]],
    lists:foldl(
      fun(Client, Accepted) ->
              #{connections := 3, accepted := Accepted} = info(),
              ?assertEqual(none, receive {upstream, _} -> more after 50 -> none end),
              ok = gen_tcp:close(Client),
              receive {upstream, _} -> Accepted + 1 after ?WAIT_MS -> ct:fail(not_resumed) end
      end, 3, accepted_first(Clients, 7)),
    until(fun() -> #{connections := 3, accepted := 10} = info() end).

%% The backlog is first in, first out: the clients in order.
accepted_first(Clients, N) ->
    lists:sublist(Clients, N).

%% A connection's process dies: its sockets are closed and its slot is free again.
killed_connection_gives_its_slot_back(_Config) ->
    Port = proxy(#{max_connections => 1}, echo()),
    One = connect(Port),
    ok = echoed(One),
    Two = connect(Port),
    [Pid] = connection_pids(),
    exit(Pid, kill),
    ?assertMatch({error, _}, gen_tcp:recv(One, 0, ?WAIT_MS)),
    ok = echoed(Two),
    ?assertMatch(#{connections := 1, accepted := 2}, info()).

%% An acceptor dies while it holds a slot: the slot is not lost.
killed_acceptor_comes_back(_Config) ->
    Port = proxy(#{max_connections => 1, acceptors => 1}, echo()),
    [Keeper] = keepers(),
    #{acceptor := Acceptor} = keeper_links(Keeper),
    exit(Acceptor, kill),
    until(fun() -> #{acceptor := New} = keeper_links(Keeper), true = New =/= Acceptor end),
    One = connect(Port),
    ok = echoed(One),
    ok = gen_tcp:close(One),
    ok = echoed(connect(Port)).

%% A keeper dies: its listener starts anew on the same port, with its counters.
killed_keeper_restarts_the_listener(_Config) ->
    Dead = free_port(),
    Upstream = upstream(echo()),
    ok = start(#{listen => {?LOOPBACK, Dead}, to => {?LOOPBACK, Upstream}}),
    One = connect(Dead),
    ok = echoed(One),
    {ok, Listener} = erlane_proxy_sup:listener(test),
    exit(hd(keepers()), kill),
    ?assertMatch({error, _}, gen_tcp:recv(One, 0, ?WAIT_MS)),
    until(fun() -> {ok, New} = erlane_proxy_sup:listener(test), true = New =/= Listener end),
    ok = echoed(connect(Dead)),
    ?assertMatch(#{accepted := 2}, info()).

%% A drain refuses new clients, lets open connections work on, and ends with the last.
drain_waits(_Config) ->
    Port = proxy(#{}, echo()),
    Clients = [connect(Port) || _ <- lists:seq(1, 4)],
    [ok = echoed(C) || C <- Clients],
    Drain = async(fun() -> erlane_proxy:drain(test, 60000) end),
    until(fun() -> #{state := draining} = info() end),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])),
    [ok = echoed(C) || C <- Clients],
    [ok = gen_tcp:close(C) || C <- Clients],
    ?assertEqual({ok, #{finished => 4, reset => 0}}, await(Drain)),
    ?assertMatch(#{state := drained, connections := 0}, info()),
    ?assertEqual({ok, #{finished => 4, reset => 0}}, erlane_proxy:stop_listener(test, 0)),
    ?assertEqual({error, not_found}, erlane_proxy:info(test)).

%% Who is still there at the deadline is reset.
drain_resets(_Config) ->
    Port = proxy(#{}, echo()),
    Clients = [connect(Port) || _ <- lists:seq(1, 4)],
    [ok = echoed(C) || C <- Clients],
    ?assertEqual({ok, #{finished => 0, reset => 4}}, erlane_proxy:drain(test, 50)),
    [?assertEqual({error, econnreset}, gen_tcp:recv(C, 0, ?WAIT_MS)) || C <- Clients],
    ?assertMatch(#{ended_closed := 4}, info()).

%% A connection that waits for its upstream does not hold up the drain.
drain_resets_who_connects(_Config) ->
    {_Full, Deaf} = deaf_upstream(),
    ok = start(#{listen => {?LOOPBACK, 0}, to => {?LOOPBACK, Deaf}, connect_timeout => 60000}),
    Client = connect(port()),
    until(fun() -> #{connections := 1} = info() end),
    ?assertEqual({ok, #{finished => 0, reset => 1}}, erlane_proxy:drain(test, 0)),
    ?assertEqual({error, econnreset}, gen_tcp:recv(Client, 0, ?WAIT_MS)).

%% A second drain with less time ends the first.
drain_is_shortened(_Config) ->
    Port = proxy(#{}, echo()),
    Client = connect(Port),
    ok = echoed(Client),
    Drain = async(fun() -> erlane_proxy:drain(test, 600000) end),
    until(fun() -> #{state := draining} = info() end),
    ?assertEqual({ok, #{finished => 0, reset => 1}}, erlane_proxy:drain(test, 0)),
    ?assertEqual({ok, #{finished => 0, reset => 1}}, await(Drain)).

%% Acceptors that wait for a slot do not hold up the drain.
drain_at_the_limit(_Config) ->
    Port = proxy(#{max_connections => 1, acceptors => 3}, echo()),
    Client = connect(Port),
    ok = echoed(Client),
    ?assertEqual({ok, #{finished => 0, reset => 1}}, erlane_proxy:drain(test, 10)).

%% The port is taken, the name is taken.
taken_port_and_name(_Config) ->
    Port = proxy(#{}, echo()),
    Opts = #{listen => {?LOOPBACK, Port}, to => {?LOOPBACK, Port}},
    ?assertEqual({error, {name, already_started}}, erlane_proxy:start_listener(test, Opts)),
    ?assertEqual({error, {listen, {eaddrinuse, {?LOOPBACK, Port}}}},
                 erlane_proxy:start_listener(other, Opts)),
    ?assertEqual([test], erlane_proxy:listeners()),
    ok = echoed(connect(Port)).

%% Unix sockets on either side; the listener removes its name when it stops.
unix_sockets(Config) ->
    Path = filename:join("/tmp", "erlane_proxy_SUITE." ++ os:getpid()),
    Inner = proxy(#{}, echo()),
    ok = erlane_proxy:start_listener(to_tcp, #{listen => {local, Path},
                                               to => {?LOOPBACK, Inner}}),
    ok = erlane_proxy:start_listener(to_unix, #{listen => {?LOOPBACK, 0}, to => {local, Path}}),
    {ok, #{listen := {_, Outer}}} = erlane_proxy:info(to_unix),
    ok = echoed(connect(Outer)),
    {ok, _} = erlane_proxy:stop_listener(to_tcp, 0),
    ?assertEqual({error, enoent}, file:read_link_info(Path)),
    Config.

%% IPv6 on both sides.
ipv6(_Config) ->
    V6 = {0, 0, 0, 0, 0, 0, 0, 1},
    {ok, Listen} = gen_tcp:listen(0, [inet6, binary, {active, false}, {ip, V6}]),
    {ok, Upstream} = inet:port(Listen),
    _ = spawn_link(fun() -> serve(Listen, echo()) end),
    ok = start(#{listen => {V6, 0}, to => {"::1", Upstream}}),
    {ok, Client} = gen_tcp:connect(V6, port(), [inet6, binary, {active, false}]),
    ok = echoed(Client).

%% A hundred failures make one log line.
log_is_limited(_Config) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    ok = start(#{listen => {?LOOPBACK, 0}, to => {?LOOPBACK, free_port()}}),
    Port = port(),
    [{error, econnreset} = refused(Port) || _ <- lists:seq(1, 100)],
    until(fun() -> #{connect_errors := 100, connections := 0} = info() end),
    receive {log, warning, _} -> ok after ?WAIT_MS -> ct:fail(no_line) end,
    %% A second line would have been there before the hundredth reset was.
    ?assertEqual(none, receive {log, warning, More} -> More after 0 -> none end).

%% The reset may be there before connect has returned.
refused(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, [{active, false}, {show_econnreset, true}]) of
        {ok, Socket} -> gen_tcp:recv(Socket, 0, ?WAIT_MS);
        {error, Reason} -> {error, Reason}
    end.

%% Stopping the application drains: a short exchange in progress still ends well.
application_stop_drains(_Config) ->
    ok = application:set_env(erlane_proxy, drain, 60000),
    Port = proxy(#{}, echo()),
    Client = connect(Port),
    ok = echoed(Client),
    Stop = async(fun() -> application:stop(erlane_proxy) end),
    until(fun() -> refuses(Port) end),
    ok = echoed(Client),
    ok = gen_tcp:close(Client),
    ?assertEqual(ok, await(Stop)).

refuses(Port) ->
    case gen_tcp:connect(?LOOPBACK, Port, []) of
        {error, econnrefused} -> ok;
        {ok, Socket} -> ok = gen_tcp:close(Socket), error(still_listening)
    end.

%% A thousand connections, some ended by reset: no process, socket or slot is left.
churn_leaves_nothing(_Config) ->
    Port = proxy(#{max_connections => 20}, echo()),
    ok = churn(Port, 1),
    until(fun() -> #{connections := 0} = info() end),
    Before = length(processes()),
    Runs = [async(fun() -> [churn(Port, N) || N <- lists:seq(1, 100)], done end)
            || _ <- lists:seq(1, 10)],
    [?assertEqual(done, await(Run)) || Run <- Runs],
    until(fun() -> #{connections := 0, accepted := 1001} = info() end),
    ?assert(length(processes()) =< Before + 10),
    until(fun() -> true = length(erlane_socket:sockets()) =:= 1 end).

churn(Port, N) ->
    Socket = connect(Port),
    ok = echoed(Socket),
    case N rem 3 of
        0 -> reset(Socket);
        _ -> gen_tcp:close(Socket)
    end.

%%% helpers

start(Opts) ->
    erlane_proxy:start_listener(test, Opts).

%% The listener `test' before an upstream that runs Fun for each connection; its port.
proxy(Opts, Fun) ->
    ok = start(Opts#{listen => {?LOOPBACK, 0}, to => {?LOOPBACK, upstream(Fun)}}),
    port().

port() ->
    #{listen := {_, Port}} = info(),
    Port.

info() ->
    {ok, Info} = erlane_proxy:info(test),
    Info.

upstream(Fun) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, ?LOOPBACK},
                                      {backlog, 128}, {show_econnreset, true},
                                      {exit_on_close, false}]),
    _ = spawn_link(fun() -> serve(Listen, Fun) end),
    {ok, Port} = inet:port(Listen),
    Port.

serve(Listen, Fun) ->
    case gen_tcp:accept(Listen) of
        {ok, Socket} ->
            Pid = spawn(fun() -> receive go -> Fun(Socket) end end),
            ok = gen_tcp:controlling_process(Socket, Pid),
            Pid ! go,
            serve(Listen, Fun);
        {error, closed} ->
            ok
    end.

echo() ->
    fun Echo(Socket) ->
            case gen_tcp:recv(Socket, 0) of
                {ok, Data} -> ok = gen_tcp:send(Socket, Data), Echo(Socket);
                {error, _} -> gen_tcp:close(Socket)
            end
    end.

%% A listening socket whose queue is full: further SYNs get no answer.
deaf_upstream() ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, ?LOOPBACK}, {backlog, 1}]),
    {ok, Port} = inet:port(Listen),
    {fill(Port, []), Port}.

fill(Port, Sockets) ->
    case gen_tcp:connect(?LOOPBACK, Port, [], 200) of
        {ok, Socket} when length(Sockets) < 10 -> fill(Port, [Socket | Sockets]);
        {error, timeout} -> Sockets
    end.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false},
                                                     {show_econnreset, true},
                                                     {exit_on_close, false}], ?WAIT_MS),
    Socket.

echoed(Socket) ->
    ok = gen_tcp:send(Socket, "ping"),
    {ok, <<"ping">>} = gen_tcp:recv(Socket, 4, ?WAIT_MS),
    ok.

read_all(Socket) ->
    read_all(Socket, []).

read_all(Socket, Acc) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, Data} -> read_all(Socket, [Acc, Data]);
        {error, closed} -> iolist_to_binary(Acc)
    end.

reset(Socket) ->
    ok = inet:setopts(Socket, [{linger, {true, 0}}]),
    gen_tcp:close(Socket).

closed_or_reset({error, econnreset}) -> {error, closed};
closed_or_reset(Other) -> Other.

free_port() ->
    {ok, Socket} = gen_tcp:listen(0, [{ip, ?LOOPBACK}, {reuseaddr, true}]),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Port.

crypto_free_bytes(N) ->
    << <<(I * 7 + I div 251)>> || I <- lists:seq(1, N) >>.

keepers() ->
    {ok, Listener} = erlane_proxy_sup:listener(test),
    {links, Links} = process_info(Listener, links),
    [Pid || Pid <- Links, is_pid(Pid), Pid =/= whereis(erlane_proxy_sup)].

keeper_links(Keeper) ->
    {links, Links} = process_info(Keeper, links),
    Kinds = [{initial(Pid), Pid} || Pid <- Links, is_pid(Pid)],
    maps:from_list([{Kind, Pid} || {{Module, _, _}, Pid} <- Kinds,
                                   {M, Kind} <- [{erlane_proxy_acceptor, acceptor},
                                                 {erlane_proxy_conn, connection}],
                                   Module =:= M]).

connection_pids() ->
    [Pid || Keeper <- keepers(), #{connection := Pid} <- [keeper_links(Keeper)]].

initial(Pid) ->
    case process_info(Pid, initial_call) of
        {initial_call, MFA} -> MFA;
        undefined -> {gone, gone, 0}
    end.

async(Fun) ->
    spawn_monitor(fun() -> exit({result, Fun()}) end).

await({Pid, Ref}) ->
    receive
        {'DOWN', Ref, process, Pid, {result, Result}} -> Result;
        {'DOWN', Ref, process, Pid, Reason} -> ct:fail(Reason)
    after 30000 ->
        ct:fail(timeout)
    end.

%% The value of Fun once it no longer fails.
until(Fun) ->
    until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Deadline) ->
    try Fun()
    catch
        error:Reason:Stack ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> receive after 5 -> until(Fun, Deadline) end;
                false -> erlang:raise(error, Reason, Stack)
            end
    end.

log(#{level := Level, msg := {Format, Args}}, #{config := Pid}) when is_list(Format) ->
    Pid ! {log, Level, lists:flatten(io_lib:format(Format, Args))};
log(_Event, _Config) ->
    ok.
