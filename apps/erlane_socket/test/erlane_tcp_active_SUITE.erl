%% SPDX-License-Identifier: Apache-2.0
%% @doc Messages: active true, once and N, the end of a connection, handing over to others.
-module(erlane_tcp_active_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_group/2, end_per_group/2, end_per_testcase/2]).
-export([
    active_true/1, active_once/1, active_n/1, active_n_adds/1, active_n_bounds/1,
    active_n_negative/1, active_n_cleared/1, active_n_at_open/1, toggling/1, once_per_packet/1,
    data_before_active/1, active_from_other/1, closed_message/1, closed_once/1,
    closed_passive_then_active/1, no_closed_after_close/1, reset_shown/1, reset_hidden/1,
    reset_passive/1, half_open/1, half_open_passive/1, list_and_deliver/1, echo_load/1,
    buffer_limits/1
]).

-import(erlane_ct, [
    pair/1, pair/2, fed/2, async/1, await/1, wait_until/1, next/1, silence/1, collect/3,
    pattern/1
]).

suite() -> [{timetrap, {seconds, 20}}].

all() -> [{group, stock}, {group, erlane}].

groups() ->
    erlane_ct:groups([
        active_true, active_once, active_n, active_n_adds, active_n_bounds, active_n_negative,
        active_n_cleared, active_n_at_open, toggling, once_per_packet, data_before_active,
        active_from_other, closed_message, closed_once, closed_passive_then_active,
        no_closed_after_close, reset_shown, reset_hidden, reset_passive, half_open,
        half_open_passive, list_and_deliver, echo_load, buffer_limits
    ]).

init_per_group(Group, Config) -> erlane_ct:init_group(Group, Config).
end_per_group(Group, Config) -> erlane_ct:end_group(Group, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% No message is larger than the buffer that was asked for: on this socket, by its listener,
%% or later on.
buffer_limits(Config) ->
    Data = pattern(50000),
    Later = fun(S) -> ok = inet:setopts(S, [{buffer, 500}]) end,
    [
        begin
            {C, S} = pair(Config, Opts),
            ok = Set(S),
            ok = inet:setopts(S, [{active, Active}]),
            Writer = async(fun() -> gen_tcp:send(C, Data) end),
            Again = fun() -> Active =:= true orelse inet:setopts(S, [{active, Active}]) end,
            {Sizes, Got} = messages(S, byte_size(Data), Again, [], []),
            ?assert(Got =:= Data),
            ?assert(lists:max(Sizes) =< Limit),
            ok = await(Writer)
        end
     || {Opts, Set, Limit} <- [{[{buffer, 500}], fun(_) -> ok end, 500}, {[], Later, 500},
                               {[{buffer, 1460}], fun(_) -> ok end, 1460}],
        Active <- [true, once]
    ].

messages(_S, 0, _Again, Sizes, Acc) ->
    {Sizes, iolist_to_binary(lists:reverse(Acc))};
messages(S, Left, Again, Sizes, Acc) ->
    {tcp, S, Data} = next(S),
    _ = Again(),
    Size = byte_size(Data),
    messages(S, Left - Size, Again, [Size | Sizes], [Data | Acc]).

active(S) ->
    {ok, [{active, A}]} = inet:getopts(S, [active]),
    A.

set(S, A) -> inet:setopts(S, [{active, A}]).

active_true(Config) ->
    {C, S} = fed(Config, [{active, true}, {packet, 1}]),
    ok = gen_tcp:send(C, <<1, "a", 2, "bc", 0>>),
    [?assertEqual({tcp, S, D}, next(S)) || D <- [<<"a">>, <<"bc">>, <<>>]],
    ?assertEqual(true, active(S)).

active_once(Config) ->
    {C, S} = fed(Config, [{active, once}]),
    ?assertEqual(once, active(S)),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({tcp, S, <<"abc">>}, next(S)),
    ?assertEqual(false, active(S)),
    ok = gen_tcp:send(C, "def"),
    silence(S),
    ok = set(S, once),
    ?assertEqual({tcp, S, <<"def">>}, next(S)).

%% N messages, then tcp_passive, then nothing.
active_n(Config) ->
    {C, S} = fed(Config, [{packet, 1}]),
    ok = set(S, 2),
    ?assertEqual(2, active(S)),
    ok = gen_tcp:send(C, <<1, "a", 1, "b", 1, "c">>),
    [?assertEqual(M, next(S)) || M <- [{tcp, S, <<"a">>}, {tcp, S, <<"b">>}, {tcp_passive, S}]],
    silence(S),
    ?assertEqual(false, active(S)),
    ok = set(S, 1),
    ?assertEqual({tcp, S, <<"c">>}, next(S)),
    ?assertEqual({tcp_passive, S}, next(S)).

active_n_adds(Config) ->
    {C, S} = fed(Config, [{packet, 1}]),
    ok = set(S, 2),
    ok = set(S, 3),
    ?assertEqual(5, active(S)),
    ok = set(S, -2),
    ?assertEqual(3, active(S)),
    ok = gen_tcp:send(C, <<1, "a">>),
    ?assertEqual({tcp, S, <<"a">>}, next(S)),
    ?assertEqual(2, active(S)),
    ok = set(S, 0),
    ?assertEqual(2, active(S)).

%% The count has 16 bits, sign included.
active_n_bounds(Config) ->
    {_C, S} = fed(Config, []),
    ok = set(S, 32767),
    ?assertEqual({error, einval}, set(S, 1)),
    ?assertEqual(32767, active(S)),
    ok = set(S, -1),
    ok = set(S, 1),
    [?assertEqual({error, einval}, set(S, N)) || N <- [32768, -32769, 100000, 1.0, foo, "1"]],
    ?assertEqual(32767, active(S)),
    ok = set(S, -32768),
    ?assertEqual({tcp_passive, S}, next(S)),
    ?assertEqual(false, active(S)).

%% At or below 0: passive, and told so each time.
active_n_negative(Config) ->
    {_C, S} = fed(Config, []),
    [
        begin
            ok = set(S, N),
            ?assertEqual({tcp_passive, S}, next(S)),
            ?assertEqual(false, active(S))
        end
     || N <- [0, -1, -100]
    ],
    ok = set(S, 3),
    ok = set(S, -3),
    ?assertEqual({tcp_passive, S}, next(S)).

%% true, false and once end the counting without a word.
active_n_cleared(Config) ->
    {_C, S} = fed(Config, []),
    [
        begin
            ok = set(S, 7),
            ok = set(S, A),
            ?assertEqual(A, active(S)),
            silence(S),
            ok = set(S, 2),
            ?assertEqual(2, active(S)),
            ok = set(S, false)
        end
     || A <- [true, once, false]
    ].

active_n_at_open(Config) ->
    {C, S} = pair(Config, [{active, 2}, {packet, 1}]),
    ?assertEqual({2, 2}, {active(C), active(S)}),
    [ok = gen_tcp:send(C, D) || D <- ["a", "b"]],
    [?assertEqual(M, next(S)) || M <- [{tcp, S, <<"a">>}, {tcp, S, <<"b">>}, {tcp_passive, S}]].

%% Mode after mode over one stream: nothing lost, nothing twice.
toggling(Config) ->
    {C, S} = pair(Config),
    Total = 200000,
    Data = pattern(Total),
    Writer = async(fun() -> write_pieces(C, Data, 997) end),
    Got = toggle(S, Total, [once, false, 1, true, 3, false, once], []),
    ?assert(Got =:= Data),
    ok = await(Writer).

write_pieces(C, Data, Size) when byte_size(Data) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Data,
    ok = gen_tcp:send(C, Piece),
    write_pieces(C, Rest, Size);
write_pieces(C, Data, _Size) ->
    gen_tcp:send(C, Data).

toggle(_S, 0, _, Acc) ->
    iolist_to_binary(Acc);
toggle(S, Left, [false | Modes], Acc) ->
    ok = set(S, false),
    Queued = iolist_to_binary(drain(S)),
    Rest = Left - byte_size(Queued),
    {Data, Rest1} =
        case Rest > 0 andalso gen_tcp:recv(S, 0, 5000) of
            false -> {<<>>, Rest};
            {ok, D} -> {D, Rest - byte_size(D)}
        end,
    toggle(S, Rest1, Modes ++ [false], [Acc, Queued, Data]);
toggle(S, Left, [Mode | Modes], Acc) ->
    ok = set(S, Mode),
    Data = receive {tcp, S, D} -> D after 5000 -> error({missing, Left}) end,
    toggle(S, Left - byte_size(Data), Modes ++ [Mode], [Acc, Data]).

drain(S) ->
    receive {tcp, S, D} -> [D | drain(S)] after 0 -> [] end.

%% Many packets in one segment: one message for each `once'.
once_per_packet(Config) ->
    {C, S} = fed(Config, [{packet, 2}]),
    ok = gen_tcp:send(C, [<<2:16, N:16>> || N <- lists:seq(1, 500)]),
    [
        begin
            ok = set(S, once),
            ?assertEqual({tcp, S, <<N:16>>}, next(S))
        end
     || N <- lists:seq(1, 500)
    ],
    silence(S).

data_before_active(Config) ->
    {C, S} = fed(Config, []),
    ok = gen_tcp:send(C, "abcdef"),
    {ok, <<"abc">>} = gen_tcp:recv(S, 3, 5000),
    ok = set(S, true),
    ?assertEqual({tcp, S, <<"def">>}, next(S)).

%% Messages go to the owner, whoever sets the mode.
active_from_other(Config) ->
    {C, S} = fed(Config, []),
    ok = await(async(fun() -> set(S, once) end)),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({tcp, S, <<"abc">>}, next(S)).

closed_message(Config) ->
    {C, S} = fed(Config, [{active, true}]),
    ok = gen_tcp:send(C, "last"),
    ok = gen_tcp:close(C),
    ?assertEqual({tcp, S, <<"last">>}, next(S)),
    ?assertEqual({tcp_closed, S}, next(S)),
    silence(S),
    ?assertEqual({error, closed}, gen_tcp:send(S, "x")),
    ?assertEqual(ok, gen_tcp:close(S)).

%% Without an order for more data the end stays unseen.
closed_once(Config) ->
    {C, S} = fed(Config, [{active, once}]),
    ok = gen_tcp:send(C, "last"),
    ?assertEqual({tcp, S, <<"last">>}, next(S)),
    ok = gen_tcp:close(C),
    silence(S),
    ok = set(S, once),
    ?assertEqual({tcp_closed, S}, next(S)).

closed_passive_then_active(Config) ->
    {C, S} = fed(Config, [{packet, 1}]),
    ok = gen_tcp:send(C, <<1, "a", 1, "b", 9, "cut off">>),
    ok = gen_tcp:close(C),
    {ok, <<"a">>} = gen_tcp:recv(S, 0, 5000),
    ok = set(S, true),
    ?assertEqual({tcp, S, <<"b">>}, next(S)),
    ?assertEqual({tcp_closed, S}, next(S)).

%% close/1 of the caller takes its own tcp_closed away.
no_closed_after_close(Config) ->
    {C, S} = fed(Config, [{active, true}]),
    ok = gen_tcp:close(C),
    Seen = fun() ->
        {messages, Messages} = process_info(self(), messages),
        lists:member({tcp_closed, S}, Messages)
    end,
    wait_until(Seen),
    ok = gen_tcp:close(S),
    ?assertNot(Seen()),
    silence(S).

reset(C) ->
    ok = inet:setopts(C, [{linger, {true, 0}}]),
    ok = gen_tcp:close(C).

reset_shown(Config) ->
    {C, S} = fed(Config, [{active, true}, {show_econnreset, true}]),
    reset(C),
    ?assertEqual({tcp_error, S, econnreset}, next(S)),
    ?assertEqual({tcp_closed, S}, next(S)).

reset_hidden(Config) ->
    {C, S} = fed(Config, [{active, true}]),
    reset(C),
    ?assertEqual({tcp_closed, S}, next(S)),
    silence(S).

reset_passive(Config) ->
    {C, S} = fed(Config, [{show_econnreset, true}]),
    reset(C),
    ?assertEqual({error, econnreset}, gen_tcp:recv(S, 0, 5000)),
    {C2, S2} = fed(Config, []),
    reset(C2),
    ?assertEqual({error, closed}, gen_tcp:recv(S2, 0, 5000)).

%% exit_on_close false: after tcp_closed the other direction still works.
half_open(Config) ->
    {C, S} = fed(Config, [{active, true}, {exit_on_close, false}]),
    ok = gen_tcp:shutdown(C, write),
    ?assertEqual({tcp_closed, S}, next(S)),
    ok = gen_tcp:send(S, "still"),
    ok = gen_tcp:send(S, " here"),
    ?assertEqual({ok, <<"still here">>}, gen_tcp:recv(C, 10, 5000)),
    ok = gen_tcp:close(S),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 5000)).

half_open_passive(Config) ->
    {C, S} = fed(Config, [{exit_on_close, false}]),
    ok = gen_tcp:shutdown(C, write),
    ?assertEqual({error, closed}, gen_tcp:recv(S, 0, 5000)),
    ok = gen_tcp:send(S, "still"),
    ?assertEqual({ok, <<"still">>}, gen_tcp:recv(C, 5, 5000)),
    ok = gen_tcp:close(S).

list_and_deliver(Config) ->
    {C, S} = fed(Config, [list, {active, true}]),
    ok = gen_tcp:send(C, "abc"),
    ?assertEqual({tcp, S, "abc"}, next(S)),
    ok = inet:setopts(S, [{deliver, port}]),
    ok = gen_tcp:send(C, "def"),
    ?assertEqual({S, {data, "def"}}, next(S)),
    ok = inet:setopts(S, [{deliver, term}, binary, {header, 1}]),
    ok = gen_tcp:send(C, "ghi"),
    ?assertEqual({tcp, S, [$g | <<"hi">>]}, next(S)).

%% Forty connections echo in every mode at once.
echo_load(Config) ->
    {L, Port} = erlane_ct:listen(Config, [binary, {active, false}, {backlog, 64}]),
    Echo = fun Echo(S, Mode) ->
        %% the client may have closed between two settings: then it is einval
        case set(S, Mode) of
            ok ->
                receive
                    {tcp, S, D} -> ok = gen_tcp:send(S, D), Echo(S, Mode);
                    {tcp_passive, S} -> Echo(S, Mode);
                    {tcp_closed, S} -> ok
                end;
            {error, einval} ->
                ok
        end
    end,
    Modes = [once, true, 1, 5],
    Server = fun(M) -> async(fun() -> Echo(erlane_ct:accept(L), M) end) end,
    Servers = [Server(M) || _ <- lists:seq(1, 10), M <- Modes],
    Client = fun() ->
        C = erlane_ct:connect(Config, Port, [binary, {active, true}]),
        [
            begin
                D = binary:copy(<<N>>, N * 13),
                ok = gen_tcp:send(C, D),
                ?assert(collect(C, byte_size(D), fun() -> ok end) =:= D)
            end
         || N <- lists:seq(1, 100)
        ],
        gen_tcp:close(C)
    end,
    Clients = [async(Client) || _ <- Servers],
    [?assertEqual(ok, await(P)) || P <- Clients ++ Servers].
