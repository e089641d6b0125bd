%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: what an earlier library of this kind got wrong, one case per defect,
%% and what a stranger may pass in place of a socket.
-module(erlane_regress_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([
    listen_options/1, ipv6_connect/1, timeout_is_named_timeout/1, timeout_loses_nothing/1,
    close_wakes_all/1, two_acceptors/1, reader_and_writer/1, active_2_plus_3/1,
    send_after_half_close/1, controlling_process/1, iolist_of_3000/1, send_timeout_zero/1,
    senders_do_not_mix/1, close_on_exec/1, one_flood_many_quiet/1, no_address_in_terms/1,
    dead_owner_without_gc/1, foreign_references/1, dead_references/1, wrong_nif_arguments/1,
    descriptor_reused/1, close_storm/1, mode_storm/1, socket_in_another_node_term/1,
    fdopen_starts_application/1
]).

-import(erlane_ct, [async/1, await/1, await/2, blocked/1, wait_until/1, pattern/1, outcome/1]).

-define(ERLANE, [{backend, erlane}]).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [
        listen_options, ipv6_connect, timeout_is_named_timeout, timeout_loses_nothing,
        close_wakes_all, two_acceptors, reader_and_writer, active_2_plus_3,
        send_after_half_close, controlling_process, iolist_of_3000, send_timeout_zero,
        senders_do_not_mix, close_on_exec, one_flood_many_quiet, no_address_in_terms,
        dead_owner_without_gc, foreign_references, dead_references, wrong_nif_arguments,
        descriptor_reused, close_storm, mode_storm, socket_in_another_node_term,
        fdopen_starts_application
    ].

init_per_suite(Config) -> erlane_ct:init_group(erlane, Config).
end_per_suite(Config) -> erlane_ct:end_group(erlane, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

pair() -> erlane_ct:pair(?ERLANE).
pair(Opts) -> erlane_ct:pair(?ERLANE, Opts).

%% binary, {packet,4} and inet6 were not known at listen.
listen_options(_Config) ->
    Opts = [binary, {packet, 4}, {active, false}, {ip, loopback}],
    {ok, L} = gen_tcp:listen(0, [{inet_backend, inet}, {tcp_module, erlane_tcp6}, inet6 | Opts]),
    {ok, Port} = inet:port(L),
    {ok, C} = gen_tcp:connect("::1", Port, erlane_ct:opts6(?ERLANE, [binary, {packet, 4}])),
    S = erlane_ct:accept(L),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({ok, <<"abc">>}, gen_tcp:recv(S, 0, 5000)).

ipv6_connect(_Config) ->
    Any = {0, 0, 0, 0, 0, 0, 0, 1},
    {ok, L} = gen_tcp:listen(0, erlane_ct:opts(?ERLANE, [{ip, Any}])),
    {ok, Port} = inet:port(L),
    ?assertMatch({ok, _}, gen_tcp:connect(Any, Port, erlane_ct:opts(?ERLANE, []))).

timeout_is_named_timeout(_Config) ->
    {_C, S} = pair(),
    ?assertEqual({error, timeout}, gen_tcp:recv(S, 0, 5)).

timeout_loses_nothing(_Config) ->
    {C, S} = pair(),
    [
        begin
            ok = gen_tcp:send(C, [B]),
            ?assertEqual({error, timeout}, gen_tcp:recv(S, 100, 1))
        end
     || B <- lists:seq(1, 20)
    ],
    ?assertEqual({ok, list_to_binary(lists:seq(1, 20))}, gen_tcp:recv(S, 20, 5000)).

close_wakes_all(_Config) ->
    {_C, S} = pair(),
    {L, _} = erlane_ct:listen(?ERLANE, []),
    Reader = async(fun() -> gen_tcp:recv(S, 0) end),
    Acceptor = async(fun() -> gen_tcp:accept(L) end),
    [blocked(P) || P <- [Reader, Acceptor]],
    [ok = gen_tcp:close(X) || X <- [S, L]],
    ?assertEqual([{error, closed}, {error, closed}], [await(P) || P <- [Reader, Acceptor]]).

two_acceptors(_Config) ->
    {L, Port} = erlane_ct:listen(?ERLANE, []),
    Take = fun() -> {ok, S} = gen_tcp:accept(L), inet:peername(S) end,
    Acceptors = [async(Take), async(Take)],
    [blocked(P) || P <- Acceptors],
    Names = [inet:sockname(erlane_ct:connect(?ERLANE, Port, [{active, false}])) || _ <- Acceptors],
    ?assertEqual(lists:sort(Names), lists:sort([await(P) || P <- Acceptors])).

reader_and_writer(_Config) ->
    {C, S} = pair([{sndbuf, 4096}, {recbuf, 4096}]),
    Data = pattern(1000000),
    Jobs = [
        async(fun() -> gen_tcp:send(C, Data) end), async(fun() -> gen_tcp:send(S, Data) end),
        async(fun() -> {ok, D} = gen_tcp:recv(C, 1000000, 9000), D =:= Data end),
        async(fun() -> {ok, D} = gen_tcp:recv(S, 1000000, 9000), D =:= Data end)
    ],
    ?assertEqual([ok, ok, true, true], [await(P, 10000) || P <- Jobs]).

active_2_plus_3(_Config) ->
    {_C, S} = pair(),
    ok = inet:setopts(S, [{active, 2}]),
    ok = inet:setopts(S, [{active, 3}]),
    ?assertEqual({ok, [{active, 5}]}, inet:getopts(S, [active])).

send_after_half_close(_Config) ->
    {C, S} = pair([{exit_on_close, false}]),
    ok = gen_tcp:shutdown(C, write),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)),
    ok = gen_tcp:send(S, "answer"),
    ?assertEqual({ok, <<"answer">>}, gen_tcp:recv(C, 6, 5000)).

controlling_process(_Config) ->
    {C, S} = pair([{packet, 1}]),
    ?assertEqual(
        {error, not_owner}, await(async(fun() -> gen_tcp:controlling_process(S, self()) end))
    ),
    ok = inet:setopts(S, [{active, true}]),
    [ok = gen_tcp:send(C, <<N>>) || N <- lists:seq(1, 100)],
    Parent = self(),
    Heir = async(fun() ->
        receive go -> ok end,
        [receive {tcp, S, <<N>>} -> N after 5000 -> Parent end || _ <- lists:seq(1, 100)]
    end),
    ok = gen_tcp:controlling_process(S, Heir),
    Heir ! go,
    ?assertEqual(lists:seq(1, 100), await(Heir)).

iolist_of_3000(_Config) ->
    {C, S} = pair(),
    ok = gen_tcp:send(C, [<<N:16>> || N <- lists:seq(1, 3000)]),
    ?assertEqual({ok, <<<<N:16>> || N <- lists:seq(1, 3000)>>}, gen_tcp:recv(S, 6000, 5000)).

send_timeout_zero(_Config) ->
    {C, _S} = pair([{send_timeout, 0}, {sndbuf, 4096}, {recbuf, 4096}]),
    _ = gen_tcp:send(C, pattern(3000000)),
    {Ms, Answer} = erlane_ct:elapsed(fun() -> gen_tcp:send(C, "x") end),
    ?assertEqual({error, timeout}, Answer),
    ?assert(Ms < 5000).

senders_do_not_mix(_Config) ->
    {C, S} = pair([{sndbuf, 4096}, {recbuf, 4096}, {packet, 4}]),
    Block = fun(N) -> lists:duplicate(100, binary:copy(<<N>>, 1000)) end,
    Senders = [async(fun() -> gen_tcp:send(C, Block(N)) end) || N <- lists:seq(1, 20)],
    Got = [
        begin
            {ok, <<N, _/binary>> = D} = gen_tcp:recv(S, 0, 5000),
            ?assert(D =:= iolist_to_binary(Block(N))),
            N
        end
     || _ <- Senders
    ],
    ?assertEqual(lists:seq(1, 20), lists:sort(Got)),
    [ok = await(P) || P <- Senders].

%% No descriptor of ours goes to a program that the VM starts.
close_on_exec(_Config) ->
    {L, Port} = erlane_ct:listen(?ERLANE, []),
    C = erlane_ct:connect(?ERLANE, Port, []),
    S = erlane_ct:accept(L),
    [
        begin
            {ok, [{fd, Fd}]} = inet:getopts(X, [fd]),
            {ok, Info} = file:read_file("/proc/self/fdinfo/" ++ integer_to_list(Fd)),
            {match, [Octal]} = re:run(Info, "flags:\\s+([0-7]+)", [{capture, [1], list}]),
            Flags = list_to_integer(Octal, 8),
            ?assertEqual({Name, 8#2000000}, {Name, Flags band 8#2000000}),
            ?assertEqual({Name, 8#4000}, {Name, Flags band 8#4000})
        end
     || {Name, X} <- [{listener, L}, {connected, C}, {accepted, S}]
    ].

%% A flooding connection is cut off by its budget each turn: others get through.
one_flood_many_quiet(_Config) ->
    {C, S} = pair(),
    Flood = async(fun() -> flood(C, binary:copy(<<0>>, 65536)) end),
    Sink = async(fun() -> sink(S) end),
    ok = gen_tcp:controlling_process(S, Sink),
    Sink ! go,
    Quiet = [pair() || _ <- lists:seq(1, 50)],
    {Ms, _} = erlane_ct:elapsed(fun() ->
        [
            begin
                ok = gen_tcp:send(A, <<N:32>>),
                ?assertEqual({ok, <<N:32>>}, gen_tcp:recv(B, 4, 5000))
            end
         || N <- lists:seq(1, 20), {A, B} <- Quiet
        ]
    end),
    Flood ! stop,
    _ = await(Flood),
    ok = gen_tcp:close(C),
    ?assertEqual(ok, await(Sink)),
    ?assert(Ms < 10000).

flood(C, Data) ->
    case gen_tcp:send(C, Data) of
        ok -> receive stop -> ok after 0 -> flood(C, Data) end;
        Error -> Error
    end.

sink(S) ->
    receive go -> ok = inet:setopts(S, [{active, true}]), sink(S);
        {tcp, S, _} -> sink(S);
        {tcp_closed, S} -> ok
    end.

no_address_in_terms(_Config) ->
    {C, _} = pair(),
    {'$inet', erlane_tcp, Ref} = C,
    ?assert(is_reference(Ref)),
    ?assertEqual({ok, true}, {ok, is_list(inet:format_error(einval))}).

%% The owner dies, its socket term lives on here, nothing collects garbage.
dead_owner_without_gc(_Config) ->
    {C, S} = pair(),
    Owner = async(fun() -> receive stop -> ok end end),
    ok = gen_tcp:controlling_process(S, Owner),
    ok = erlane_ct:kill(Owner),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 5000)),
    ?assertEqual({error, closed}, gen_tcp:send(S, "x")).

%% Every function of gen_tcp and inet on one term in place of a socket.
calls(S) ->
    [
        fun() -> gen_tcp:send(S, "x") end, fun() -> gen_tcp:recv(S, 0, 10) end,
        fun() -> gen_tcp:accept(S, 10) end, fun() -> gen_tcp:shutdown(S, read_write) end,
        fun() -> gen_tcp:unrecv(S, "x") end, fun() -> inet:setopts(S, [{active, once}]) end,
        fun() -> gen_tcp:controlling_process(S, self()) end,
        fun() -> inet:getopts(S, [active]) end, fun() -> inet:getstat(S) end,
        fun() -> inet:sockname(S) end, fun() -> inet:peername(S) end,
        fun() -> inet:port(S) end, fun() -> inet:socknames(S) end,
        fun() -> file:sendfile("/etc/hostname", S) end,
        fun() -> inet:info(S), {error, info} end, fun() -> gen_tcp:close(S), {error, closed} end,
        fun() -> inet:cancel_monitor(inet:monitor(S)), {error, monitor} end
    ].

refuses(S) ->
    [
        ?assertMatch({F, R} when R =:= refused; element(1, R) =:= error, {F, outcome(F)})
     || F <- calls(S)
    ].

%% References that are no sockets: made here, of other NIFs, of ets.
foreign_references(_Config) ->
    {ok, {_, _, #{handle := File}}} =
        file:open("/etc/hostname", [read, raw, binary]),
    Others = [make_ref(), atomics:new(1, []), ets:new(t, []), File, foo, 1, self(), <<>>, []],
    [refuses({'$inet', erlane_tcp, Ref}) || Ref <- Others],
    {C, S} = pair(),
    ok = gen_tcp:send(C, "alive"),
    ?assertEqual({ok, <<"alive">>}, gen_tcp:recv(S, 5, 5000)).

dead_references(_Config) ->
    {C, _} = pair(),
    ok = gen_tcp:close(C),
    refuses(C).

%% The door of the NIF: each function with terms of every kind, of its arity.
wrong_nif_arguments(_Config) ->
    {C, S} = pair(),
    {'$inet', erlane_tcp, Live} = C,
    Terms = [foo, -1, 1 bsl 70, 1.5, <<>>, <<1:3>>, [], [a | b], {}, #{}, self(), make_ref()],
    %% Those without a wrong argument, or that block or stop a lane by intention.
    Skip = [module_info, lane_open, lane_poll, lane_turn, lane_sleep, lane_woke, lane_close],
    [
        begin
            Args = [T | lists:duplicate(Arity - 1, Other)],
            try apply(erlane_nif, Name, Args) of _ -> ok
            catch error:_ -> ok
            end
        end
     || {Name, Arity} <- erlane_nif:module_info(exports), not lists:member(Name, Skip),
        Arity > 0, T <- Terms, Other <- [Live | Terms]
    ],
    {A, B} = pair(),
    ok = gen_tcp:send(A, "alive"),
    ?assertEqual({ok, <<"alive">>}, gen_tcp:recv(B, 5, 5000)),
    _ = S.

%% A number that is closed and opened again at once never gets the other's events.
descriptor_reused(_Config) ->
    {L, Port} = erlane_ct:listen(?ERLANE, [binary, {active, true}, {backlog, 64}]),
    [
        begin
            C = erlane_ct:connect(?ERLANE, Port, [binary, {active, true}]),
            S = erlane_ct:accept(L),
            ok = gen_tcp:send(C, <<N:32>>),
            ok = gen_tcp:send(S, <<N:32>>),
            ?assertEqual({tcp, C, <<N:32>>}, erlane_ct:next(C)),
            ?assertEqual({tcp, S, <<N:32>>}, erlane_ct:next(S)),
            ok = gen_tcp:close(C),
            ?assertEqual({tcp_closed, S}, erlane_ct:next(S))
        end
     || N <- lists:seq(1, 500)
    ],
    ?assertEqual([], erlane_ct:flush()).

%% Close against send, recv and options from other processes.
close_storm(_Config) ->
    [
        begin
            {C, S} = pair(),
            Jobs = [
                async(fun() -> until_closed(fun() -> gen_tcp:send(C, "x") end) end),
                async(fun() -> until_closed(fun() -> gen_tcp:recv(C, 0, 1) end) end),
                async(fun() -> until_closed(fun() -> inet:setopts(C, [{nodelay, true}]) end) end),
                async(fun() -> gen_tcp:send(S, "y"), gen_tcp:close(C) end)
            ],
            ?assertEqual([done, done, done, ok], [await(P) || P <- Jobs]),
            ok = gen_tcp:close(S)
        end
     || _ <- lists:seq(1, 200)
    ].

until_closed(Fun) ->
    case Fun() of
        {error, Why} when Why =:= closed; Why =:= einval -> done;
        _ -> until_closed(Fun)
    end.

%% The lane and a caller that both read: the stream stays whole.
mode_storm(_Config) ->
    {C, S} = pair(),
    Data = pattern(400000),
    Writer = async(fun() -> [ok = gen_tcp:send(C, <<N:32>>) || <<N:32>> <= Data], ok end),
    ?assert(storm(S, byte_size(Data), []) =:= Data),
    ?assertEqual(ok, await(Writer)).

storm(_S, 0, Acc) ->
    iolist_to_binary(Acc);
storm(S, Left, Acc) ->
    ok = inet:setopts(S, [{active, once}]),
    ok = inet:setopts(S, [{active, false}]),
    Got =
        receive
            {tcp, S, D} -> D
        after 0 ->
            case gen_tcp:recv(S, 0, 5000) of {ok, D} -> D end
        end,
    storm(S, Left - byte_size(Got), [Acc | Got]).

%% A socket term that went through the external format is still the socket.
socket_in_another_node_term(_Config) ->
    {C, S} = pair(),
    Copy = binary_to_term(term_to_binary(C)),
    ?assertEqual(C, Copy),
    ok = gen_tcp:send(Copy, "x"),
    ?assertEqual({ok, <<"x">>}, gen_tcp:recv(S, 1, 5000)).

%% The descriptor is not touched as long as there is no lane for it, then a lane is made.
fdopen_starts_application(_Config) ->
    {Fd, Port} = erlane_ct:detached_fd(),
    Link = fun() -> file:read_link("/proc/self/fd/" ++ integer_to_list(Fd)) end,
    {ok, _} = Socket = Link(),
    ok = application:stop(erlane_socket),
    ?assertEqual({error, no_lane}, erlane_nif:fdopen(Fd, 0)),
    ?assertEqual(Socket, Link()),
    {ok, L} = gen_tcp:listen(0, erlane_ct:opts(?ERLANE, [{fd, Fd}, binary, {active, false}])),
    ?assertEqual(Socket, Link()),
    ?assertEqual({ok, Port}, inet:port(L)),
    ?assertEqual({ok, [{fd, Fd}]}, inet:getopts(L, [fd])),
    C = erlane_ct:connect([{backend, stock}], Port, [binary]),
    S = erlane_ct:accept(L),
    ok = gen_tcp:send(C, "alive"),
    ?assertEqual({ok, <<"alive">>}, gen_tcp:recv(S, 5, 5000)).
