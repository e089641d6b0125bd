%% SPDX-License-Identifier: Apache-2.0
%% @doc Addresses, names and descriptors: IPv4, IPv6, local sockets, what a socket is bound to.
-module(erlane_tcp_address_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    connect_refused/1, connect_timeout/1, connect_bad/1, connect_names/1, connect_sockaddr/1,
    connect_bound/1, listen_bad/1, listen_bound/1, address_in_use/1, ipv6/1, v6only/1,
    ipv6_inferred/1, local/1, names/1, fdopen/1, fd_option/1
]).

-import(erlane_ct, [
    opts/2, opts6/2, listen/2, connect/3, accept/1, pair/1, wait_until/1, outcome/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        connect_refused, connect_timeout, connect_bad, connect_names, connect_sockaddr,
        connect_bound, listen_bad, listen_bound, address_in_use, ipv6, v6only, ipv6_inferred,
        local, names, fdopen, fd_option
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

connect_refused(Config) ->
    {L, Port} = listen(Config, []),
    ok = gen_tcp:close(L),
    ?assertEqual({error, econnrefused}, gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, []))),
    ?assertEqual(
        {error, econnrefused},
        gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, []), 1000)
    ).

%% A timeout of 0 is one, unless the kernel was faster; a listener with a full backlog lets the
%% others wait.
connect_timeout(Config) ->
    {_L, Port} = listen(Config, [{backlog, 0}]),
    To = fun(Ms) -> gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, []), Ms) end,
    at_once(To(0)),
    Fds = erlane_ct:fds(),
    Answers = [To(30) || _ <- lists:seq(1, 4)],
    ?assert(lists:member({error, timeout}, Answers)),
    Open = length([ok || {ok, _} <- Answers]),
    wait_until(fun() -> erlane_ct:fds() =< Fds + Open end).

at_once({error, timeout}) -> ok;
at_once({ok, S}) -> gen_tcp:close(S).

%% Wrong addresses, ports and options are refused, never a crash of anything.
connect_bad(Config) ->
    To = fun(Address, Port) ->
        outcome(fun() -> gen_tcp:connect(Address, Port, opts(Config, []), 1000) end)
    end,
    [
        ?assertEqual({Address, Port, refused}, {Address, Port, To(Address, Port)})
     || {Address, Port} <- [
            {{127, 0, 0, 1}, -1}, {{127, 0, 0, 1}, 65536}, {{127, 0, 0, 1}, no_such_service},
            {{127, 0, 0, 1}, "80"}, {{300, 0, 0, 1}, 80}, {{1, 0, 1}, 80}, {17, 80},
            {{local, lists:duplicate(200, $a)}, 0}, {{local, "/tmp/no"}, 1}
        ]
    ],
    ?assertEqual({error, econnrefused}, To({127, 0, 0, 1}, 0)),
    ?assertEqual({error, enoent}, To({local, "/nonexistent/socket"}, 0)),
    Exit = fun(Opts) ->
        ?assertExit(badarg, gen_tcp:connect({127, 0, 0, 1}, 9, opts(Config, Opts)))
    end,
    lists:foreach(Exit, [[foo], [{foo, 1}], [{active, maybe_not}], [{packet, 3}], [{ip, {1, 2}}]]).

%% Names, strings of addresses and atoms are resolved.
connect_names(Config) ->
    {L, Port} = listen(Config, []),
    [
        begin
            {ok, C} = gen_tcp:connect(Name, Port, opts(Config, []), 5000),
            S = accept(L),
            ?assertEqual(inet:sockname(C), inet:peername(S)),
            ok = gen_tcp:close(C)
        end
     || Name <- ["127.0.0.1", "localhost", localhost, {127, 0, 0, 1}]
    ].

connect_sockaddr(Config) ->
    {L, Port} = listen(Config, []),
    Address = #{family => inet, addr => {127, 0, 0, 1}, port => Port},
    {ok, C} = gen_tcp:connect(Address, opts(Config, [{active, false}])),
    S = accept(L),
    ?assertEqual(inet:sockname(C), inet:peername(S)),
    at_once(gen_tcp:connect(Address, opts(Config, []), 0)),
    Bad = [Address#{addr => {127, 0, 0, 300}}, Address#{family => foo}],
    [
        ?assertEqual(refused, outcome(fun() -> gen_tcp:connect(B, opts(Config, [])) end))
     || B <- Bad
    ].

%% Where a client is bound before it connects.
connect_bound(Config) ->
    {_L, Port} = listen(Config, []),
    {Free, Local} = listen([{backend, stock}], []),
    ok = gen_tcp:close(Free),
    [
        begin
            C = connect(Config, Port, Opts),
            ?assertEqual({ok, {{127, 0, 0, 2}, Local}}, inet:sockname(C)),
            ok = inet:setopts(C, [{linger, {true, 0}}]),
            ok = gen_tcp:close(C)
        end
     || Opts <- [
            [{ip, {127, 0, 0, 2}}, {port, Local}],
            [{ifaddr, {127, 0, 0, 2}}, {port, Local}]
        ]
    ],
    ?assertEqual(
        {error, eaddrnotavail},
        gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, [{ip, {192, 0, 2, 1}}]))
    ).

listen_bad(Config) ->
    On = fun(Port, Opts) -> gen_tcp:listen(Port, opts(Config, Opts)) end,
    [?assertExit(badarg, On(Port, [])) || Port <- [-1, 65536, no_such_service]],
    [
        ?assertExit(badarg, On(0, [Opt]))
     || Opt <- [foo, {foo, 1}, {ip, {1, 0, 2}}, {ip, {1920, 0, 2, 1}}]
    ],
    ?assertEqual(refused, outcome(fun() -> On(0, [{backlog, foo}]) end)),
    ?assertEqual({error, eaddrnotavail}, On(0, [{ip, {192, 0, 2, 1}}])),
    ?assertEqual({error, enoent}, On(0, [{ifaddr, {local, "/nonexistent/socket"}}])),
    ?assertEqual(refused, outcome(fun() -> On(1, [{ifaddr, {local, "/tmp/no"}}]) end)).

listen_bound(Config) ->
    Bound = fun(Opts) ->
        {ok, L} = gen_tcp:listen(0, opts(Config, Opts)),
        {ok, {Address, Port}} = inet:sockname(L),
        ok = gen_tcp:close(L),
        ?assert(Port > 0),
        Address
    end,
    ?assertEqual({127, 0, 0, 1}, Bound([{ip, loopback}])),
    ?assertEqual({0, 0, 0, 0}, Bound([{ip, any}])),
    ?assertEqual({0, 0, 0, 0}, Bound([])),
    ?assertEqual({127, 0, 0, 3}, Bound([{ifaddr, {127, 0, 0, 3}}])),
    ?assertEqual({127, 0, 0, 4}, Bound([{ifaddr, #{family => inet, addr => {127, 0, 0, 4}}}])).

address_in_use(Config) ->
    {L, Port} = listen(Config, []),
    Again = fun() ->
        gen_tcp:listen(Port, opts(Config, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}]))
    end,
    ?assertEqual({error, eaddrinuse}, Again()),
    ok = gen_tcp:close(L),
    {ok, L2} = Again(),
    ?assertEqual({ok, Port}, inet:port(L2)).

ipv6(Config) ->
    {ok, L} = gen_tcp:listen(0, opts6(Config, [binary, {active, false}, {ip, loopback}])),
    {ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}} = inet:sockname(L),
    {ok, C} = gen_tcp:connect("::1", Port, opts6(Config, [binary, {active, false}]), 5000),
    S = accept(L),
    ok = gen_tcp:send(C, "six"),
    ?assertEqual({ok, <<"six">>}, gen_tcp:recv(S, 3, 5000)),
    ?assertEqual({ok, {{0, 0, 0, 0, 0, 0, 0, 1}, Port}}, inet:peername(C)),
    Address = #{family => inet6, addr => {0, 0, 0, 0, 0, 0, 0, 1}, port => Port},
    {ok, _} = gen_tcp:connect(Address, opts6(Config, [])).

%% Without v6only an IPv6 listener takes IPv4 clients, as mapped addresses.
v6only(Config) ->
    Open = fun(Flag) ->
        {ok, L} = gen_tcp:listen(0, opts6(Config, [{ipv6_v6only, Flag}])),
        ?assertEqual({ok, [{ipv6_v6only, Flag}]}, inet:getopts(L, [ipv6_v6only])),
        {ok, Port} = inet:port(L),
        {L, gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, []), 5000)}
    end,
    {_, Refused} = Open(true),
    ?assertEqual({error, econnrefused}, Refused),
    {L, {ok, _}} = Open(false),
    ?assertMatch({ok, {{0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1}, _}}, inet:peername(accept(L))).

%% An address alone tells the family.
ipv6_inferred(Config) ->
    Any = {0, 0, 0, 0, 0, 0, 0, 1},
    {ok, L} = gen_tcp:listen(0, opts(Config, [{ip, Any}])),
    {ok, {Any, Port}} = inet:sockname(L),
    {ok, C} = gen_tcp:connect(Any, Port, opts(Config, []), 5000),
    ?assertEqual(inet:sockname(C), inet:peername(accept(L))).

local(Config) ->
    Path = filename:join("/tmp", "erlane_ct_" ++ os:getpid() ++ ".sock"),
    _ = file:delete(Path),
    Opts = [binary, {active, false}],
    {ok, L} = gen_tcp:listen(0, opts(Config, [{ifaddr, {local, Path}} | Opts])),
    {ok, C} = gen_tcp:connect({local, Path}, 0, opts(Config, Opts), 5000),
    S = accept(L),
    ok = gen_tcp:send(C, "unix"),
    ?assertEqual({ok, <<"unix">>}, gen_tcp:recv(S, 4, 5000)),
    ?assertEqual({ok, {local, iolist_to_binary(Path)}}, inet:sockname(L)),
    ?assertEqual({ok, {local, iolist_to_binary(Path)}}, inet:peername(C)),
    ?assertEqual({ok, {local, <<>>}}, inet:peername(S)),
    ok = gen_tcp:close(S),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 5000)),
    ok = file:delete(Path).

names(Config) ->
    {C, S} = pair(Config),
    {ok, {{127, 0, 0, 1}, Port} = Name} = inet:sockname(C),
    ?assertEqual({ok, Name}, inet:peername(S)),
    ?assertEqual({ok, [Name]}, inet:socknames(C)),
    ?assertEqual({ok, Port}, inet:port(C)),
    ?assertEqual(inet:sockname(S), inet:peername(C)).

fdopen(Config) ->
    {Fd, Port} = erlane_ct:detached_fd(),
    {ok, L} = gen_tcp:fdopen(Fd, opts(Config, [binary, {active, false}])),
    ?assertEqual({ok, Port}, inet:port(L)),
    ok = gen_tcp:close(L).

fd_option(Config) ->
    {Fd, Port} = erlane_ct:detached_fd(),
    {ok, L} = gen_tcp:listen(0, opts(Config, [binary, {active, false}, {fd, Fd}])),
    ?assertEqual({ok, Port}, inet:port(L)),
    C = connect(Config, Port, []),
    ?assertEqual(inet:sockname(C), inet:peername(accept(L))),
    ok = gen_tcp:close(L).
