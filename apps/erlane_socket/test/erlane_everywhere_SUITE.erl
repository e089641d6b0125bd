%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: a whole node moved by use_everywhere/0, ssl over it, the front door.
-module(erlane_everywhere_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([init_per_testcase/2, end_per_testcase/2]).
-export([
    plain_gen_tcp/1, plain_ipv6/1, plain_local/1, gives_previous/1, stock_on_demand/1,
    inet6_before_module/1, inet6_after_module/1, tls_echo/1, tls_close/1, tls_other_sender/1,
    tls_active/1, check_options/1, lanes/1, stats_grow/1, sockets_listed/1, table_printed/1
]).

-import(erlane_ct, [async/1, await/1, wait_until/1, pattern/1]).

suite() -> [{timetrap, {seconds, 20}}].

all() ->
    [
        plain_gen_tcp, plain_ipv6, plain_local, gives_previous, stock_on_demand,
        inet6_before_module, inet6_after_module, tls_echo, tls_close, tls_other_sender,
        tls_active, check_options, lanes, stats_grow, sockets_listed, table_printed
    ].

init_per_suite(Config) -> erlane_ct:init_group(erlane, Config).
end_per_suite(Config) -> erlane_ct:end_group(erlane, Config).

init_per_testcase(_Case, Config) ->
    {ok, Previous} = erlane_socket:use_everywhere(),
    [{previous, Previous} | Config].

end_per_testcase(_Case, Config) ->
    ok = inet_db:set_tcp_module(proplists:get_value(previous, Config)),
    _ = application:stop(ssl),
    erlane_ct:cleanup().

ours({'$inet', erlane_tcp, _}) -> true;
ours(_) -> false.

%% A program that never heard of erlane.
plain_gen_tcp(_Config) ->
    {ok, L} = gen_tcp:listen(0, [binary, {active, false}, {packet, 2}]),
    {ok, Port} = inet:port(L),
    {ok, C} = gen_tcp:connect("localhost", Port, [binary, {active, true}, {packet, 2}]),
    {ok, S} = gen_tcp:accept(L),
    ?assertEqual([true, true, true], [ours(X) || X <- [L, C, S]]),
    ok = gen_tcp:send(S, "hello"),
    ?assertEqual({tcp, C, <<"hello">>}, erlane_ct:next(C)).

plain_ipv6(_Config) ->
    {ok, L} = gen_tcp:listen(0, [binary, {active, false}, {ip, {0, 0, 0, 0, 0, 0, 0, 1}}]),
    {ok, Port} = inet:port(L),
    {ok, C} = gen_tcp:connect({0, 0, 0, 0, 0, 0, 0, 1}, Port, []),
    ?assert(ours(L) andalso ours(C)).

%% inet sends an address {local,_} without a module to local_tcp: it stays with stock.
plain_local(_Config) ->
    Path = filename:join("/tmp", "erlane_everywhere_" ++ os:getpid() ++ ".sock"),
    _ = file:delete(Path),
    {ok, L} = gen_tcp:listen(0, [{ifaddr, {local, Path}}, {active, false}]),
    {ok, C} = gen_tcp:connect({local, Path}, 0, [{active, false}]),
    ?assertEqual([true, true], [is_port(X) || X <- [L, C]]),
    ok = file:delete(Path).

gives_previous(Config) ->
    ?assertEqual(inet_tcp, proplists:get_value(previous, Config)),
    ?assertEqual({ok, erlane_tcp}, erlane_socket:use_everywhere()).

%% A family atom or a module in the options still chooses.
stock_on_demand(_Config) ->
    {ok, L1} = gen_tcp:listen(0, [inet]),
    {ok, L2} = gen_tcp:listen(0, [{inet_backend, inet}, {tcp_module, inet_tcp}]),
    ?assert(is_port(L1)),
    ?assert(is_port(L2)).

inet6_before_module(_Config) ->
    {ok, L} = gen_tcp:listen(0, [{inet_backend, inet}, inet6]),
    ?assert(is_port(L)).

inet6_after_module(_Config) ->
    {ok, L} = gen_tcp:listen(0, [{inet_backend, inet}, {tcp_module, erlane_tcp6}, inet6]),
    ?assert(ours(L)),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 0, 0, 0}, _}}, inet:sockname(L)).

%% Connected TLS sockets {Client, Server}; certificates are made on the spot.
tls_pair(Opts) ->
    {ok, _} = application:ensure_all_started(ssl),
    Key = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Server, client_config := Client} =
        public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    {ok, L} = ssl:listen(0, [binary, {active, false}, {reuseaddr, true} | Opts] ++ Server),
    {ok, {_, Port}} = ssl:sockname(L),
    Parent = self(),
    Acceptor = async(fun() ->
        {ok, T} = ssl:transport_accept(L, 5000),
        {ok, S} = ssl:handshake(T, 5000),
        ok = ssl:controlling_process(S, Parent),
        S
    end),
    {ok, C} = ssl:connect(
        {127, 0, 0, 1}, Port,
        [binary, {active, false}, {server_name_indication, disable}, {verify, verify_none}
            | Opts] ++ lists:keydelete(verify, 1, Client),
        5000
    ),
    S = await(Acceptor),
    ?assert(length(erlane_socket:sockets()) >= 3),
    {C, S}.

tls_echo(_Config) ->
    {C, S} = tls_pair([]),
    Data = pattern(1000000),
    Echo = async(fun() ->
        {ok, Got} = ssl:recv(S, byte_size(Data), 10000),
        ssl:send(S, Got)
    end),
    Sender = async(fun() -> ssl:send(C, Data) end),
    {ok, Back} = ssl:recv(C, byte_size(Data), 10000),
    ?assert(Back =:= Data),
    ?assertEqual([ok, ok], [await(P) || P <- [Echo, Sender]]).

tls_close(_Config) ->
    {C, S} = tls_pair([]),
    ok = ssl:send(C, "bye"),
    ok = ssl:close(C),
    ?assertEqual({ok, <<"bye">>}, ssl:recv(S, 3, 5000)),
    ?assertEqual({error, closed}, ssl:recv(S, 0, 5000)),
    ok = ssl:close(S).

tls_other_sender(_Config) ->
    {C, S} = tls_pair([{packet, 4}]),
    Senders = [async(fun() -> ssl:send(C, [<<N>>, pattern(5000)]) end) || N <- lists:seq(1, 20)],
    Got = [begin {ok, <<N, _/binary>>} = ssl:recv(S, 0, 5000), N end || _ <- Senders],
    ?assertEqual(lists:seq(1, 20), lists:sort(Got)),
    [?assertEqual(ok, await(P)) || P <- Senders].

tls_active(_Config) ->
    {C, S} = tls_pair([{packet, line}]),
    ok = ssl:setopts(S, [{active, once}]),
    ok = ssl:send(C, "one\ntwo\n"),
    receive {ssl, S, One} -> ?assertEqual(<<"one\n">>, One) after 5000 -> error(no_message) end,
    ok = ssl:setopts(S, [{active, true}]),
    receive {ssl, S, Two} -> ?assertEqual(<<"two\n">>, Two) after 5000 -> error(no_message) end,
    ok = ssl:close(C),
    receive {ssl_closed, S} -> ok after 5000 -> error(no_closed) end.

%% An error names the key.
check_options(_Config) ->
    ?assertEqual(ok, erlane_socket:check_options([binary, {active, once}, {packet, 4}])),
    ?assertEqual(ok, erlane_socket:check_options([])),
    [
        ?assertMatch({Opts, {error, {Key, _}}}, {Opts, erlane_socket:check_options(Opts)})
     || {Opts, Key} <- [
            {[binary, {packet, 3}], packet}, {[{foo, 1}], foo}, {[foo], foo},
            {[{active, maybe_not}], active}, {[{erlane, #{lane => -1}}], erlane},
            {[{ip, {1, 2, 3}}], ip}
        ]
    ].

lanes(_Config) ->
    Lanes = erlane_socket:lanes(),
    ?assertEqual(lists:seq(1, erlang:system_info(schedulers)), Lanes),
    [
        begin
            Self = self(),
            spawn_opt(fun() -> Self ! {lane, erlane_socket:lane()} end, [link, {scheduler, I}]),
            receive {lane, Lane} -> ?assertEqual(I, Lane) after 5000 -> error(no_answer) end
        end
     || I <- Lanes
    ].

totals() ->
    lists:foldl(
        fun(Lane, Acc) -> maps:merge_with(fun(_, A, B) -> A + B end, Acc, Lane) end,
        #{}, erlane_socket:stats()
    ).

stats_grow(_Config) ->
    Keys = [lane, turns, empty_turns, sleeps, wakes, events, events_min, events_max,
            events_mean, stale, recv, send, eagain, recv_bytes, send_bytes, accepted, moved,
            sockets],
    [?assertEqual([], Keys -- maps:keys(Lane)) || Lane <- erlane_socket:stats()],
    Before = totals(),
    {C, S} = erlane_ct:pair([{backend, erlane}]),
    [
        begin
            ok = gen_tcp:send(C, "12345"),
            {ok, _} = gen_tcp:recv(S, 5, 5000)
        end
     || _ <- lists:seq(1, 100)
    ],
    After = totals(),
    Grown = fun(Key) -> maps:get(Key, After) - maps:get(Key, Before) end,
    ?assertEqual(1, Grown(accepted)),
    ?assertEqual(500, Grown(recv_bytes)),
    ?assertEqual(500, Grown(send_bytes)),
    ?assertEqual(100, Grown(send)),
    ?assert(Grown(recv) >= 100),
    ?assertEqual(2, Grown(sockets)).

sockets_listed(_Config) ->
    {C, S} = erlane_ct:pair([{backend, erlane}]),
    ?assertEqual([], [C, S] -- erlane_socket:sockets()),
    ok = gen_tcp:close(C),
    wait_until(fun() -> not lists:member(C, erlane_socket:sockets()) end).

table_printed(_Config) ->
    {_C, S} = erlane_ct:pair([{backend, erlane}]),
    {ok, {_, Port}} = inet:peername(S),
    Old = group_leader(),
    true = group_leader(async(fun() -> printed([]) end), self()),
    Printer = group_leader(),
    ok = try erlane_socket:i() after group_leader(Old, self()) end,
    Printer ! stop,
    Text = await(Printer),
    ?assertNotEqual(nomatch, string:find(Text, integer_to_list(Port))).

%% An io server that keeps what is printed.
printed(Acc) ->
    receive
        {io_request, From, As, {put_chars, _, M, F, A}} ->
            From ! {io_reply, As, ok},
            printed([Acc | unicode:characters_to_binary(apply(M, F, A))]);
        {io_request, From, As, {put_chars, _, Chars}} ->
            From ! {io_reply, As, ok},
            printed([Acc | unicode:characters_to_binary(Chars)]);
        stop ->
            iolist_to_binary(Acc)
    end.
