%% SPDX-License-Identifier: Apache-2.0
%% @doc Options at every door. Where the answer depends on the
%% release, the case asks stock gen_tcp of the running one (same/2).
-module(erlane_tcp_opts_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    defaults/1, set_and_get/1, at_connect/1, at_listen/1, inherited/1, repeated_keys/1, modes/1,
    buffers/1, watermarks/1, getopts_forms/1, setopts_forms/1, wrong_values/1, unknown/1,
    partly_wrong/1, raw_options/1, ipv6_options/1, device/1, tos_received/1, newer_options/1,
    reuseport/1, own_option/1, kernel_defaults/1, options_by_others/1, buffer_follows/1
]).

-import(erlane_ct, [
    listen/2, connect/3, accept/1, pair/1, pair/3, async/1, await/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        defaults, set_and_get, at_connect, at_listen, inherited, repeated_keys, modes, buffers,
        watermarks, getopts_forms, setopts_forms, wrong_values, unknown, partly_wrong,
        raw_options, ipv6_options, device, tos_received, newer_options, reuseport, own_option,
        kernel_defaults, options_by_others, buffer_follows
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).

end_per_testcase(kernel_defaults, _Config) ->
    ok = application:unset_env(kernel, inet_default_listen_options),
    ok = application:unset_env(kernel, inet_default_connect_options),
    erlane_ct:cleanup();
end_per_testcase(_Case, _Config) ->
    erlane_ct:cleanup().

%% What Fun answers for the backend is what it answers for stock.
same(Config, What, Fun) ->
    Stock = erlane_ct:outcome(fun() -> Fun([{backend, stock}]) end),
    ?assertEqual({What, Stock}, {What, erlane_ct:outcome(fun() -> Fun(Config) end)}),
    Stock.

%% Options with a value that is not the default.
settable() ->
    [
        {packet, 2}, {packet_size, 1000}, {header, 3}, {deliver, port}, {buffer, 5000},
        {nodelay, true}, {keepalive, true}, {linger, {true, 5}}, {priority, 3}, {tos, 16},
        {ttl, 33}, {send_timeout, 1234}, {send_timeout_close, true}, {delay_send, true},
        {high_watermark, 10000}, {low_watermark, 500}, {exit_on_close, false},
        {show_econnreset, true}, {nopush, true}, {recvtos, true}, {recvttl, true},
        {reuseaddr, true}, {mode, list}, {high_msgq_watermark, 9000}, {low_msgq_watermark, 90}
    ].

%% nopush holds data back; that cork would last through the close of the socket.
openable() -> lists:keydelete(nopush, 1, settable()).

defaults(Config) ->
    Keys = [K || {K, _} <- settable()] ++ [active, pktoptions, recbuf, debug, bind_to_device],
    Each = fun(Cfg) ->
        {C, S} = pair(Cfg),
        {L, _} = listen(Cfg, []),
        [{K, [inet:getopts(X, [K]) || X <- [C, S, L]]} || K <- Keys]
    end,
    same(Config, defaults, Each).

set_and_get(Config) ->
    {C, _S} = pair(Config),
    [
        begin
            ?assertEqual({Opt, ok}, {Opt, inet:setopts(C, [Opt])}),
            ?assertEqual({ok, [Opt]}, inet:getopts(C, [K]))
        end
     || {K, _} = Opt <- settable()
    ].

at_connect(Config) ->
    {_L, Port} = listen(Config, [{backlog, 64}]),
    [
        begin
            C = connect(Config, Port, [Opt]),
            ?assertEqual({ok, [Opt]}, inet:getopts(C, [K])),
            ok = gen_tcp:close(C)
        end
     || {K, _} = Opt <- openable()
    ],
    C = connect(Config, Port, openable()),
    ?assertEqual({ok, openable()}, inet:getopts(C, [K || {K, _} <- openable()])).

at_listen(Config) ->
    [
        begin
            {L, _} = listen(Config, [Opt]),
            ?assertEqual({ok, [Opt]}, inet:getopts(L, [K]))
        end
     || {K, _} = Opt <- openable()
    ].

%% What an accepted socket takes over from its listener.
inherited(Config) ->
    Opts = openable(),
    Keys = [mode, packet, active, high_watermark, low_watermark, send_timeout,
            send_timeout_close, nodelay, keepalive, linger, priority, tos, ttl, delay_send,
            header, packet_size, deliver, exit_on_close, show_econnreset],
    Accepted = fun(Cfg) ->
        {L, Port} = listen(Cfg, [{active, 7} | Opts]),
        _ = connect(Cfg, Port, []),
        {ok, Got} = inet:getopts(accept(L), Keys),
        Got
    end,
    Stock = same(Config, inherited, Accepted),
    [
        ?assertEqual(lists:keyfind(K, 1, [{active, 7} | Opts]), lists:keyfind(K, 1, Stock))
     || K <- [mode, packet, active, nodelay, keepalive, linger, priority, tos, ttl, send_timeout]
    ].

%% Of two equal keys the last counts where a socket is opened, the first in setopts.
repeated_keys(Config) ->
    {_, Port} = listen(Config, []),
    C = connect(Config, Port, [{nodelay, true}, list, {packet, 1}, binary, {nodelay, false}]),
    ?assertEqual(
        {ok, [{nodelay, false}, {mode, binary}, {packet, 1}]},
        inet:getopts(C, [nodelay, mode, packet])
    ),
    ok = inet:setopts(C, [{packet, 2}, {packet, 4}]),
    ?assertEqual({ok, [{packet, 2}]}, inet:getopts(C, [packet])).

modes(Config) ->
    {C, _} = pair(Config),
    [
        begin
            ok = inet:setopts(C, [Set]),
            ?assertEqual({ok, [{mode, Mode}]}, inet:getopts(C, [mode]))
        end
     || {Set, Mode} <- [
            {list, list}, {binary, binary}, {{mode, list}, list}, {{mode, binary}, binary}
        ]
    ].

%% buffer follows recbuf up until this socket was told what it is; that a listener was told
%% does not count.
buffer_follows(Config) ->
    Opens = [[], [{buffer, 3000}], [{recbuf, 8000}], [{recbuf, 8000}, {buffer, 3000}],
             [{buffer, 3000}, {recbuf, 8000}], [{buffer, 1460}], [{buffer, 1460}, {recbuf, 5000}]],
    Sets = [
        [[{recbuf, 8000}], [{recbuf, 4000}], [{recbuf, 20000}]],
        [[{buffer, 3000}], [{recbuf, 8000}]],
        [[{recbuf, 8000}], [{buffer, 1460}], [{recbuf, 9000}]],
        [[{recbuf, 1000000}], [{recbuf, 2000000}]], [[{recbuf, 9000}, {buffer, 100}]],
        [[{buffer, 100}, {recbuf, 9000}]]
    ],
    same(Config, buffer_follows, fun(Cfg) ->
        [
            {Open, [{inet:setopts(X, Set), inet:getopts(X, [buffer])} || Set <- Steps]}
         || Open <- Opens, Steps <- Sets, {C, S} <- [pair(Cfg, Open, Open)], X <- [C, S]
        ]
    end).

buffers(Config) ->
    same(Config, buffers, fun(Cfg) ->
        {C, _} = pair(Cfg),
        [
            {inet:setopts(C, [Opt]), inet:getopts(C, [buffer, recbuf, sndbuf])}
         || Opt <- [
                {recbuf, 30000}, {sndbuf, 20000}, {buffer, 100}, {recbuf, 60000}, {buffer, 90000}
            ]
        ]
    end).

%% The low mark never lies above the high one: either drags the other.
watermarks(Config) ->
    {C, _} = pair(Config),
    Marks = fun(Opts) ->
        ok = inet:setopts(C, Opts),
        {ok, Got} = inet:getopts(C, [high_watermark, low_watermark]),
        Got
    end,
    ?assertEqual([{high_watermark, 1000}, {low_watermark, 1000}], Marks([{high_watermark, 1000}])),
    ?assertEqual([{high_watermark, 5000}, {low_watermark, 5000}], Marks([{low_watermark, 5000}])),
    ?assertEqual([{high_watermark, 5000}, {low_watermark, 100}], Marks([{low_watermark, 100}])),
    ?assertEqual(
        [{high_watermark, 90000}, {low_watermark, 8}],
        Marks([{high_watermark, 90000}, {low_watermark, 8}])
    ).

getopts_forms(Config) ->
    {C, _} = pair(Config),
    ?assertEqual({ok, []}, inet:getopts(C, [])),
    ?assertEqual(
        {ok, [{packet, 0}, {active, false}, {packet, 0}]},
        inet:getopts(C, [packet, active, packet])
    ),
    [
        ?assertEqual({Keys, {error, einval}}, {Keys, inet:getopts(C, Keys)})
     || Keys <- [[foo], [active, foo], [binary], [list], [{raw, 1}], ["x"], [backlog], [port]]
    ],
    ?assertEqual(refused, erlane_ct:outcome(fun() -> inet:getopts(C, foo) end)).

setopts_forms(Config) ->
    {C, _} = pair(Config),
    ?assertEqual(ok, inet:setopts(C, [])),
    [
        same(Config, Opts, fun(Cfg) ->
            {X, _} = pair(Cfg),
            inet:setopts(X, Opts)
        end)
     || Opts <- [foo, [{active, false} | foo], [foo], [{}], [{a, b, c}], ["x"], [1], [inet6]]
    ].

wrong_values() ->
    [
        {mode, foo}, {packet, 3}, {packet, x}, {packet_size, -1}, {packet_size, a}, {header, -1},
        {deliver, x}, {buffer, x}, {sndbuf, x}, {recbuf, x}, {nodelay, 1}, {keepalive, yes},
        {linger, true}, {linger, {x, 1}}, {reuseaddr, 1}, {priority, x}, {tos, x}, {ttl, x},
        {send_timeout, -1}, {send_timeout, x}, {send_timeout_close, x}, {delay_send, x},
        {high_watermark, x}, {low_watermark, x}, {exit_on_close, x}, {show_econnreset, x},
        {nopush, x}, {active, x}, {active, 40000}, {recvtos, x}, {debug, x}, {packet, "line"}
    ].

%% A wrong value: exit(badarg) where a socket is opened, einval where one exists.
wrong_values(Config) ->
    {C, _} = pair(Config),
    {_, Port} = listen(Config, []),
    [refused_everywhere(Config, C, Port, Opt) || Opt <- wrong_values()],
    same(Config, ttl, fun(Cfg) -> gen_tcp:listen(0, erlane_ct:opts(Cfg, [{ttl, 300}])) end).

unknown(Config) ->
    {C, _} = pair(Config),
    {_, Port} = listen(Config, []),
    Unknown = [foo, {foo, 1}, {}, {a, b, c}, "x", 1, {raw, x, 1, <<>>}, {raw, 6, 1, x},
               {bit8, clear}, {ip, x}, {ifaddr, x}, {port, -1}],
    [refused_everywhere(Config, C, Port, Opt) || Opt <- Unknown].

refused_everywhere(Config, C, Port, Opt) ->
    Exit = fun(Open) ->
        try Open() of
            Answer -> Answer
        catch
            exit:badarg -> badarg
        end
    end,
    Opts = erlane_ct:opts(Config, [Opt]),
    ?assertEqual(
        {Opt, {error, einval}, badarg, badarg},
        {
            Opt,
            inet:setopts(C, [Opt]),
            Exit(fun() -> gen_tcp:listen(0, Opts) end),
            Exit(fun() -> gen_tcp:connect({127, 0, 0, 1}, Port, Opts) end)
        }
    ).

%% Is the right part of a list with a wrong one applied? As in stock.
partly_wrong(Config) ->
    [
        same(Config, Opts, fun(Cfg) ->
            {C, _} = pair(Cfg),
            {inet:setopts(C, Opts), inet:getopts(C, [nodelay, packet, keepalive])}
        end)
     || Opts <- [
            [{nodelay, true}, foo, {packet, 2}], [{packet, 2}, {nodelay, 1}, {keepalive, true}],
            [{nodelay, true}, {packet, 17}]
        ]
    ].

%% TCP_NODELAY is option 1 of protocol 6.
raw_options(Config) ->
    {C, _} = pair(Config),
    On = <<1:32/native>>,
    ok = inet:setopts(C, [{raw, 6, 1, On}]),
    ?assertEqual({ok, [{nodelay, true}]}, inet:getopts(C, [nodelay])),
    ?assertEqual({ok, [{raw, 6, 1, On}]}, inet:getopts(C, [{raw, 6, 1, 4}])),
    ?assertEqual({ok, [{raw, 6, 1, On}]}, inet:getopts(C, [{raw, 6, 1, <<0:32>>}])),
    {L, Port} = listen(Config, [{raw, 6, 1, On}]),
    ?assertEqual({ok, [{nodelay, true}]}, inet:getopts(L, [nodelay])),
    C2 = connect(Config, Port, [{raw, 6, 1, On}]),
    ?assertEqual({ok, [{nodelay, true}]}, inet:getopts(C2, [nodelay])),
    [
        same(Config, Raw, fun(Cfg) ->
            {X, _} = pair(Cfg),
            {inet:setopts(X, [Raw]), inet:getopts(X, [setelement(4, Raw, 4)])}
        end)
     || Raw <- [{raw, 6, 999, On}, {raw, 999, 1, On}, {raw, 6, 1, <<>>}, {raw, 6, 1, <<1>>}]
    ],
    [
        same(Config, Get, fun(Cfg) -> {X, _} = pair(Cfg), inet:getopts(X, [Get]) end)
     || Get <- [{raw, 6, 1, -1}, {raw, 6, 1, 0}, {raw, 6, 1, x}, {raw, 6, 1, 100}]
    ].

ipv6_options(Config) ->
    {ok, L} = gen_tcp:listen(0, erlane_ct:opts6(Config, [{ip, loopback}, {tclass, 32}])),
    {ok, Port} = inet:port(L),
    {ok, C} = gen_tcp:connect("::1", Port, erlane_ct:opts6(Config, [{recvtclass, true}])),
    ?assertEqual({ok, [{tclass, 32}]}, inet:getopts(L, [tclass])),
    ?assertEqual({ok, [{recvtclass, true}]}, inet:getopts(C, [recvtclass])),
    ok = inet:setopts(C, [{tclass, 64}]),
    ?assertEqual({ok, [{tclass, 64}]}, inet:getopts(C, [tclass])).

device(Config) ->
    same(Config, device, fun(Cfg) ->
        {L, _} = listen(Cfg, [{bind_to_device, <<"lo">>}]),
        inet:getopts(L, [bind_to_device])
    end).

tos_received(Config) ->
    same(Config, tos, fun(Cfg) ->
        {C, S} = pair(Cfg, [{recvtos, true}], [{tos, 16}]),
        ok = gen_tcp:send(C, "x"),
        {ok, _} = gen_tcp:recv(S, 1, 5000),
        inet:getopts(S, [pktoptions])
    end).

%% Options of later releases work on every one with erlane.
newer_options(Config) ->
    case erlane_ct:backend(Config) of
        stock ->
            {comment, "a deviation of erlane"};
        erlane ->
            {C, _} = pair(Config),
            [
                begin
                    ?assertEqual({Opt, ok}, {Opt, inet:setopts(C, [Opt])}),
                    ?assertEqual({ok, [Opt]}, inet:getopts(C, [K]))
                end
             || {K, _} = Opt <- [
                    {keepidle, 77}, {keepintvl, 7}, {keepcnt, 3}, {user_timeout, 4000},
                    {read_ahead, false}
                ]
            ]
    end.

reuseport(Config) ->
    case erlane_ct:backend(Config) of
        stock ->
            {comment, "not in every release"};
        erlane ->
            {_L, Port} = listen(Config, [{reuseport, true}]),
            Again = fun(Opts) ->
                gen_tcp:listen(Port, erlane_ct:opts(Config, [{ip, {127, 0, 0, 1}} | Opts]))
            end,
            ?assertMatch({ok, _}, Again([{reuseport, true}])),
            ?assertEqual({error, eaddrinuse}, Again([]))
    end.

%% The map of our own: both keys, every value; what is none of it is refused.
own_option(Config) ->
    Listen = fun(Map) ->
        erlane_ct:outcome(fun() -> listen(Config, [{erlane, Map}]), ok end)
    end,
    Want = case erlane_ct:backend(Config) of stock -> refused; erlane -> ok end,
    [
        ?assertEqual({Map, Want}, {Map, Listen(Map)})
     || Map <- [
            #{}, #{lane => any}, #{lane => 1}
        ]
    ],
    [
        ?assertEqual({Bad, refused}, {Bad, Listen(Bad)})
     || Bad <- [#{accept => foo}, #{lane => 0}, #{lane => foo}, #{foo => 1}, [], foo]
    ].

kernel_defaults(Config) ->
    ok = application:set_env(kernel, inet_default_listen_options, [{nodelay, true}, {packet, 2}]),
    ok = application:set_env(kernel, inet_default_connect_options, [{keepalive, true}]),
    {L, Port} = listen(Config, [{packet, 4}]),
    ?assertEqual({ok, [{nodelay, true}, {packet, 4}]}, inet:getopts(L, [nodelay, packet])),
    C = connect(Config, Port, []),
    ?assertEqual({ok, [{keepalive, true}]}, inet:getopts(C, [keepalive])),
    ?assertEqual({ok, [{nodelay, false}]}, inet:getopts(C, [nodelay])),
    ?assertEqual({ok, [{nodelay, true}]}, inet:getopts(accept(L), [nodelay])).

options_by_others(Config) ->
    {C, _} = pair(Config),
    ?assertEqual(ok, await(async(fun() -> inet:setopts(C, [{packet, 4}]) end))),
    ?assertEqual({ok, [{packet, 4}]}, await(async(fun() -> inet:getopts(C, [packet]) end))).
