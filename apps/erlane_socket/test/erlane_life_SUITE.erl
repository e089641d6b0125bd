%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: what outlives a connection, a module or the application; limits
%% of the system. Each case runs in a VM of its own, so that a crash is a failed case.
-module(erlane_life_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, end_per_testcase/2]).
-export([
    nothing_left/1, terms_dropped/1, code_reload/1, app_restart/1, no_descriptors/1,
    idle_is_silent/1, stop_with_sockets/1, many_idle/1
]).
-export([
    leak/1, drop/0, reload/0, restart/0, emfile/0, idle/0, stop/0, idle_memory/0
]).

-import(erlane_ct, [async/1, await/2, wait_until/1, wait_until/2, traffic/1, moving/0, finish/1]).

-define(ERLANE, [{backend, erlane}]).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        nothing_left, terms_dropped, code_reload, app_restart, no_descriptors,
        idle_is_silent, stop_with_sockets, many_idle
    ].

end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

pair() -> erlane_ct:pair(?ERLANE).

%% No descriptor, process or memory stays after many connections.
nothing_left(_Config) ->
    Count = case os:getenv("ERLANE_LONG") of "1" -> 100000; _ -> 5000 end,
    ok = erlane_ct:in_peer(?MODULE, leak, [Count]).

leak(Count) ->
    {L, Port} = erlane_ct:listen(?ERLANE, [binary, {active, false}, {backlog, 128}]),
    Server = async(fun() -> serve(L) end),
    ok = clients(Port, 1000),
    Measure = fun() ->
        _ = [erlang:garbage_collect(P) || P <- processes()],
        {erlane_ct:fds(), length(processes()), length(erlane_socket:sockets())}
    end,
    Before = Measure(),
    Rss = rss(),
    ok = clients(Port, Count),
    wait_until(fun() -> Measure() =:= Before end, 20000),
    %% In kilobytes; what a connection would leave is a kilobyte at least.
    ?assert(rss() - Rss < 4000 + Count div 4),
    unlink(Server),
    exit(Server, kill),
    ok.

serve(L) ->
    {ok, S} = gen_tcp:accept(L),
    {ok, D} = gen_tcp:recv(S, 4, 10000),
    ok = gen_tcp:send(S, D),
    ok = gen_tcp:close(S),
    serve(L).

%% The client's end is closed by close/1, by the peer, or by its owner's death.
clients(Port, Count) ->
    [
        ok = await(async(fun() ->
            C = erlane_ct:connect(?ERLANE, Port, [binary, {active, false}]),
            ok = gen_tcp:send(C, <<N:32>>),
            {ok, <<N:32>>} = gen_tcp:recv(C, 4, 10000),
            case N rem 3 of
                0 -> gen_tcp:close(C);
                1 -> {error, closed} = gen_tcp:recv(C, 0, 10000), ok;
                2 -> ok
            end
        end), 20000)
     || N <- lists:seq(1, Count)
    ],
    ok.

rss() ->
    {ok, Status} = file:read_file("/proc/self/status"),
    {match, [Kb]} = re:run(Status, "VmRSS:\\s+(\\d+)", [{capture, [1], list}]),
    list_to_integer(Kb).

%% Sockets whose terms are gone stay open while their owner lives, and no longer.
terms_dropped(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, drop, []).

drop() ->
    Before = erlane_ct:fds(),
    Owner = spawn(fun() ->
        _ = [pair() || _ <- lists:seq(1, 100)],
        erlang:garbage_collect(),
        receive stop -> ok end
    end),
    wait_until(fun() -> erlane_ct:fds() =:= Before + 200 end),
    erlang:garbage_collect(Owner),
    ?assertEqual(200, length(erlane_socket:sockets())),
    exit(Owner, kill),
    wait_until(fun() -> erlane_ct:fds() =:= Before end),
    wait_until(fun() -> erlane_socket:sockets() =:= [] end),
    ok.

%% The NIF module is loaded anew and the old one purged, twice, under traffic.
code_reload(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, reload, []).

reload() ->
    Jobs = traffic(10),
    [
        begin
            ok = moving(),
            {module, M} = code:load_file(M),
            wait_until(fun() -> code:soft_purge(M) end, 10000)
        end
     || _ <- [1, 2], M <- [erlane_nif, erlane_lane, erlane_tcp]
    ],
    ok = moving(),
    finish(Jobs).

app_restart(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, restart, []).

restart() ->
    Cycle = fun() ->
        ok = application:stop(erlane_socket),
        ok = application:start(erlane_socket),
        {C, S} = pair(),
        ok = gen_tcp:send(C, "again"),
        {ok, <<"again">>} = gen_tcp:recv(S, 5, 5000),
        ok = gen_tcp:close(C),
        ok = gen_tcp:close(S)
    end,
    Cycle(),
    Fds = erlane_ct:fds(),
    _ = [Cycle() || _ <- lists:seq(1, 20)],
    wait_until(fun() -> erlane_ct:fds() =< Fds end),
    ok.

%% The application goes while connections are open: clear answers, no crash.
stop_with_sockets(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, stop, []).

stop() ->
    {C, S} = pair(),
    Reader = async(fun() -> gen_tcp:recv(S, 0, 2000) end),
    erlane_ct:blocked(Reader),
    ok = application:stop(erlane_socket),
    ?assertMatch({error, _}, await(Reader, 5000)),
    ok = gen_tcp:close(C),
    ok = application:start(erlane_socket),
    {A, B} = pair(),
    ok = gen_tcp:send(A, "x"),
    ?assertEqual({ok, <<"x">>}, gen_tcp:recv(B, 1, 5000)),
    ok.

%% Out of descriptors: accept says so without spinning, and the listener lives on.
no_descriptors(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, emfile, []).

emfile() ->
    {L, Port} = erlane_ct:listen(?ERLANE, [binary, {active, false}, {backlog, 64}]),
    Clients = [erlane_ct:connect(?ERLANE, Port, [{active, false}]) || _ <- lists:seq(1, 12)],
    Turns = fun() -> lists:sum([N || #{turns := N} <- erlane_socket:stats()]) end,
    %% Loads what this case needs: without descriptors no module can be.
    _ = Turns(),
    Limit = erlane_ct:fds() - 1 + 4,
    [] = os:cmd(io_lib:format("prlimit --nofile=~b --pid ~s", [Limit, os:getpid()])),
    {Accepted, Error} = accept_all(L, []),
    ?assertEqual({error, emfile}, Error),
    ?assert(length(Accepted) > 0),
    Before = Turns(),
    Reds = reductions(),
    Answers = accept_for(L, erlang:monotonic_time(millisecond) + 300, []),
    ?assertEqual([emfile], lists:usort(Answers -- [timeout || timeout <- Answers])),
    ?assert(length(Answers) < 1000),
    ?assert(Turns() - Before < 2000),
    ?assert(reductions() - Reds < 2000000),
    _ = [ok = gen_tcp:close(S) || S <- Accepted],
    wait_until(fun() ->
        case gen_tcp:accept(L, 1000) of {ok, S} -> ok =:= gen_tcp:close(S); _ -> false end
    end),
    Rest = length(Clients) - length(Accepted) - 1,
    _ = [
        wait_until(fun() ->
            case gen_tcp:accept(L, 1000) of {ok, S} -> ok =:= gen_tcp:close(S); _ -> false end
        end)
     || _ <- lists:seq(1, Rest)
    ],
    ok.

reductions() ->
    {Total, _} = erlang:statistics(reductions),
    Total.

accept_all(L, Acc) ->
    case gen_tcp:accept(L, 2000) of
        {ok, S} -> accept_all(L, [S | Acc]);
        Error -> {Acc, Error}
    end.

accept_for(L, End, Acc) ->
    case erlang:monotonic_time(millisecond) > End of
        true -> Acc;
        false -> {error, Why} = gen_tcp:accept(L, 50), accept_for(L, End, [Why | Acc])
    end.

%% A thousand open connections and no traffic: the lanes turn no more.
idle_is_silent(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, idle, []).

idle() ->
    Pairs = [pair() || _ <- lists:seq(1, 500)],
    _ = [ok = inet:setopts(S, [{active, once}]) || {_, S} <- Pairs],
    Work = fun() ->
        [{T, W} || #{turns := T, wakes := W} <- erlane_socket:stats()]
    end,
    Quiet = fun() ->
        Before = Work(),
        receive after 300 -> ok end,
        Before =:= Work()
    end,
    wait_until(Quiet, 5000),
    {A, B} = hd(Pairs),
    ok = gen_tcp:send(A, "wake"),
    receive {tcp, B, <<"wake">>} -> ok after 5000 -> error(asleep) end.

%% An idle connection holds no read buffer, whatever its mode and buffer size.
many_idle(_Config) ->
    ok = erlane_ct:in_peer(?MODULE, idle_memory, []).

idle_memory() ->
    Count = 500,
    Open = fun() ->
        [erlane_ct:pair(?ERLANE, [{buffer, 65536}, {active, once}]) || _ <- lists:seq(1, Count)]
    end,
    First = Open(),
    _ = [begin ok = gen_tcp:send(C, "x"), receive {tcp, S, _} -> ok end end || {C, S} <- First],
    erlang:garbage_collect(),
    Binaries = erlang:memory(binary),
    Second = Open(),
    _ = [begin ok = gen_tcp:send(C, "x"), receive {tcp, S, _} -> ok end end || {C, S} <- Second],
    _ = [ok = inet:setopts(S, [{active, once}]) || {_, S} <- Second],
    erlang:garbage_collect(),
    PerSocket = (erlang:memory(binary) - Binaries) / (2 * Count),
    ?assert(PerSocket < 1024),
    ?assertEqual(4 * Count, length(erlane_socket:sockets())),
    ok.
