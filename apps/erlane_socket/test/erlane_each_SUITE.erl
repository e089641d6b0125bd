%% SPDX-License-Identifier: Apache-2.0
%% @doc One payload to many sockets: erlane_socket:send_each/2,3.
-module(erlane_each_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([all_get_it/1, own_payloads/1, pieces/1, empty/1, packet_headers/1, full_and_room/1,
         limit_lets_queue/1, queue_shares/1, closed_ones/1, bad_entries/1, bad_arguments/1,
         bounded_call/1, not_torn/1, behind_sendfile/1, notice_of_an_end/1, forgotten/1,
         aborted/1, delay_send/1, statistics/1]).

-import(erlane_ct, [pair/1, pair/2, pair/3, async/1, await/1, wait_until/1, recv_all/1, pattern/1]).

%% Small buffers: the kernel takes little, so that a queue forms soon.
-define(SMALL, [{sndbuf, 4096}, {recbuf, 4096}]).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [all_get_it, own_payloads, pieces, empty, packet_headers, full_and_room, limit_lets_queue,
     queue_shares, closed_ones, bad_entries, bad_arguments, bounded_call, not_torn,
     behind_sendfile, notice_of_an_end, forgotten, aborted, delay_send, statistics].

init_per_suite(Config) -> erlane_ct:init_group(erlane, Config).
end_per_suite(Config) -> erlane_ct:end_group(erlane, Config).
end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

pairs(N, Config) -> lists:unzip([pair(Config) || _ <- lists:seq(1, N)]).

read(Sockets, Want) ->
    [?assertEqual({ok, Want}, gen_tcp:recv(S, byte_size(Want), 5000)) || S <- Sockets],
    ok.

%% Each gets each payload, in order, and nobody is named.
all_get_it(Config) ->
    {Cs, Ss} = pairs(50, Config),
    Payloads = [<<N:32, (binary:copy(<<N>>, 200))/binary>> || N <- lists:seq(1, 20)],
    [?assertEqual([], erlane_socket:send_each(Ss, P)) || P <- Payloads],
    read(Cs, iolist_to_binary(Payloads)).

own_payloads(Config) ->
    {Cs, Ss} = pairs(5, Config),
    [A, B, C, D, E] = Ss,
    Big = pattern(70000),
    ?assertEqual([], erlane_socket:send_each([{A, <<"a">>}, B, {C, ["c", [<<"c">>]]}, D, {E, Big}],
                                             "same")),
    [read([Peer], Want) || {Peer, Want} <- lists:zip(Cs, [<<"a">>, <<"same">>, <<"cc">>,
                                                          <<"same">>, Big])],
    ok.

%% Up to what is joined and beyond, to more pieces than a system call or a call takes.
pieces(Config) ->
    [begin
         {Cs, Ss} = pairs(3, Config),
         Data = [binary:copy(<<N>>, Size) || N <- lists:seq(1, Count)],
         Want = iolist_to_binary(Data),
         Reader = [async(fun() -> {ok, Got} = gen_tcp:recv(C, byte_size(Want), 10000), Got end)
                   || C <- Cs],
         [?assertMatch({_, {queued, _}}, Odd) || Odd <- erlane_socket:send_each(Ss, Data)],
         [?assertEqual(Want, await(R)) || R <- Reader]
     end || {Count, Size} <- [{1, 65536}, {2, 32768}, {2, 32769}, {2000, 100}, {16384, 5},
                              {16385, 5}, {3, 1000000}]],
    ok.

empty(Config) ->
    {C, S} = pair(Config),
    ?assertEqual([], erlane_socket:send_each([], "x")),
    ?assertEqual([], erlane_socket:send_each([S], [[], <<>>])),
    ?assertEqual([], erlane_socket:send_each([S, S], "x")),
    read([C], <<"xx">>),
    %% a question: no packet of length 0, no send counted, but who is gone or full is named
    {C2, S2} = pair(Config, [{packet, 2}], []),
    ?assertEqual([], erlane_socket:send_each([S2], "")),
    ?assertEqual({ok, [{send_cnt, 0}]}, inet:getstat(S2, [send_cnt])),
    {_, Full, _, _} = waiting(Config),
    ok = gen_tcp:close(S),
    ?assertMatch([{Full, {full, N, 0}}, {S, {error, closed}}] when N > 0,
                 erlane_socket:send_each([S, S2, Full], "")),
    ok = gen_tcp:send(S2, "y"),
    read([C2], <<1:16, "y">>).

%% A socket's packet length is put in front, and what it cannot say is refused to it alone.
packet_headers(Config) ->
    {C, S} = pair(Config, [{packet, 2}], []),
    {C1, S1} = pair(Config, [{packet, 1}], []),
    ?assertEqual([], erlane_socket:send_each([S, S1], ["ab", "c"])),
    read([C], <<3:16, "abc">>),
    read([C1], <<3, "abc">>),
    Long = pattern(256),
    ?assertEqual([{S1, {error, emsgsize}}], erlane_socket:send_each([S1, S], Long)),
    read([C], <<256:16, Long/binary>>).

%% Who does not read is `queued' once and then `full', costs nobody else, and is told of room.
full_and_room(Config) ->
    {Slow, {_, _, Ref} = S} = pair(Config, ?SMALL),
    {Fast, F} = pair(Config),
    Data = pattern(20000),
    {Sent, Bytes} = fill(S, F, Fast, Data, 0),
    [{S, {full, Bytes, Ticket}}] = erlane_socket:send_each([S], Data, #{notify => true}),
    ?assert(Ticket > 0),
    ?assertEqual([{S, {full, Bytes, 0}}],
                 erlane_socket:send_each([S], Data, #{limit => Bytes - 1})),
    Reader = async(fun() -> {ok, Got} = gen_tcp:recv(Slow, Sent * 20000, 5000), Got end),
    receive {erlane_async, Ref, Ticket, What} -> ?assertEqual(ok, What)
    after 5000 -> error(no_notice)
    end,
    ?assertEqual(binary:copy(Data, Sent), await(Reader)),
    wait_until(fun() -> erlane_socket:send_each([S], "end") =:= [] end),
    read([Slow], <<"end">>).

fill(S, F, Fast, Data, N) ->
    Odd = erlane_socket:send_each([S, F], Data, #{notify => true}),
    read([Fast], Data),
    case Odd of
        [] -> fill(S, F, Fast, Data, N + 1);
        [{S, {queued, Bytes}}] when Bytes =< byte_size(Data) -> {N + 1, Bytes}
    end.

%% With a limit a queue may grow to it, and one payload beyond.
limit_lets_queue(Config) ->
    {Slow, S} = pair(Config, ?SMALL),
    Data = pattern(10000),
    Grow = fun Grow(N) ->
                   case erlane_socket:send_each([S], Data, #{limit => 50000}) of
                       [] -> Grow(N + 1);
                       [{S, {queued, Bytes}}] when Bytes =< 60000 -> Grow(N + 1);
                       [{S, {full, Bytes, 0}}] -> ?assert(Bytes > 50000), N
                   end
           end,
    N = Grow(0),
    {ok, [{send_pend, Pend}]} = inet:getstat(S, [send_pend]),
    ?assert(Pend > 50000),
    Reader = async(fun() -> {ok, Got} = gen_tcp:recv(Slow, N * 10000, 5000), Got end),
    ?assertEqual(binary:copy(Data, N), await(Reader)).

%% A large payload waits once, not once for each socket.
queue_shares(Config) ->
    {_Cs, Ss} = lists:unzip([pair(Config, ?SMALL) || _ <- lists:seq(1, 30)]),
    Data = pattern(4000000),
    Before = erlang:memory(binary),
    Odd = erlane_socket:send_each(Ss, Data),
    ?assertEqual(30, length([S || {S, {queued, _}} <- Odd])),
    ?assert(erlang:memory(binary) - Before < 2000000),
    ?assertEqual(4000000, byte_size(Data)).

closed_ones(Config) ->
    {Cs, [A, B, D, E]} = pairs(4, Config),
    [_, PeerB, _, _] = Cs,
    ok = gen_tcp:close(A),
    ok = gen_tcp:shutdown(D, write),
    {L, _} = erlane_ct:listen(Config, []),
    ok = gen_tcp:close(lists:nth(4, Cs)),
    %% the first send after the peer has gone still succeeds, its answer is a reset
    wait_until(fun() -> erlane_socket:send_each([E], "x") =:= [{E, {error, closed}}] end),
    Odd = erlane_socket:send_each([A, B, D, L, E], "x"),
    ?assertEqual([{A, {error, closed}}, {D, {error, closed}}, {L, {error, enotconn}},
                  {E, {error, closed}}], lists:reverse(Odd)),
    read([PeerB], <<"x">>).

%% What is no socket of ours is answered for itself; the others get theirs.
bad_entries(Config) ->
    {C, S} = pair(Config),
    {Stock, _} = pair([{backend, stock}]),
    {RA, A} = pair(Config),
    {_RB, B} = pair(Config),
    {ok, Relay} = erlane_socket:relay(A, B, #{}),
    Bad = [foo, {}, {a, b, c}, make_ref(), {'$inet', erlane_tcp, make_ref()}, Stock, self(), A,
           {self(), "x"}],
    Odd = erlane_socket:send_each(Bad ++ [S], "x"),
    ?assertEqual([{error, einval} || _ <- Bad], [Why || {_, Why} <- lists:reverse(Odd)]),
    read([C], <<"x">>),
    ok = erlane_socket:relay_stop(Relay, reset),
    _ = gen_tcp:close(RA),
    ok.

%% Refused before anything is sent.
bad_arguments(Config) ->
    {C, S} = pair(Config),
    Bad = [[[S | S], "x", #{}], [S, "x", #{}], [[S], x, #{}], [[S], [256], #{}],
           [[S], "x", #{limit => -1}], [[S], "x", #{limit => infinity}],
           [[S], "x", #{notify => 1}], [[S, {S, x}], "x", #{}], [[S], "x", []]],
    [?assertEqual({Args, refused},
                  {Args, erlane_ct:outcome(fun() -> apply(erlane_socket, send_each, Args) end)})
     || Args <- Bad],
    ?assertError(badarg, erlane_nif:send_each([S], <<>>, 0, maybe_)),
    ?assertError(badarg, erlane_nif:send_each(S, <<>>, 0, true)),
    ?assertError(badarg, erlane_nif:send_each([S], [x], 0, true)),
    ok = gen_tcp:send(S, "fine"),
    read([C], <<"fine">>).

%% One call ends soon and says what is left; the front door goes on with that.
bounded_call(Config) ->
    {Cs, Ss} = pairs(300, Config),
    Big = binary:copy(<<"x">>, 100000),
    {Rest, _} = erlane_nif:send_each(Ss, Big, 0, false),
    ?assert(length(Rest) > 0),
    ?assert(length(Rest) < 300),
    ?assertEqual(Rest, lists:nthtail(300 - length(Rest), Ss)),
    %% all of them through the door, while somebody reads
    Readers = [async(fun() -> {ok, _} = gen_tcp:recv(C, 1, 5000), C end)
               || C <- lists:nthtail(300 - length(Rest), Cs)],
    _ = erlane_socket:send_each(Rest, Big),
    [await(R) || R <- Readers],
    ok.

%% The owner and two others write frames to a socket that is often full: no frame is torn, each
%% writer's are in order.
not_torn(Config) ->
    {C, S} = pair(Config, [{sndbuf, 8192}, {recbuf, 8192}]),
    Frame = fun(W, N) -> Body = binary:copy(<<W, N:32>>, 100 + N rem 300),
                         <<(byte_size(Body)):32, Body/binary>> end,
    Each = fun(W) -> async(fun() -> [put_frame(S, Frame(W, N)) || N <- lists:seq(1, 400)] end) end,
    Writers = [Each(1), Each(2)],
    Sender = async(fun() -> [ok = gen_tcp:send(S, Frame(3, N)) || N <- lists:seq(1, 400)] end),
    Last = frames(C, 1200, #{}),
    ?assertEqual(#{1 => 400, 2 => 400, 3 => 400}, Last),
    [await(W) || W <- [Sender | Writers]],
    ok.

put_frame({_, _, Ref} = S, Frame) ->
    case erlane_socket:send_each([S], Frame, #{notify => true}) of
        [] -> ok;
        [{S, {queued, _}}] -> ok;
        [{S, {full, _, Ticket}}] ->
            receive {erlane_async, Ref, Ticket, ok} -> put_frame(S, Frame)
            after 5000 -> error(no_room)
            end
    end.

frames(_C, 0, Last) -> Last;
frames(C, Left, Last) ->
    {ok, <<Size:32>>} = gen_tcp:recv(C, 4, 5000),
    {ok, <<W, N:32, _/binary>> = Body} = gen_tcp:recv(C, Size, 5000),
    ?assertEqual(binary:copy(<<W, N:32>>, Size div 5), Body),
    ?assertEqual(maps:get(W, Last, 0) + 1, N),
    frames(C, Left - 1, Last#{W => N}).

%% What is sent while a file goes out comes behind it.
behind_sendfile(Config) ->
    {C, S} = pair(Config, ?SMALL),
    File = filename:join(proplists:get_value(priv_dir, Config), "file"),
    Body = pattern(300000),
    ok = file:write_file(File, Body),
    Parent = self(),
    Owner = erlane_ct:keep(spawn(fun() ->
        receive go -> ok end,
        {ok, Fd} = file:open(File, [read, raw, binary]),
        Parent ! {sent, file:sendfile(Fd, S, 0, 0, [])},
        receive stop -> ok end
    end)),
    ok = gen_tcp:controlling_process(S, Owner),
    Owner ! go,
    {ok, First} = gen_tcp:recv(C, 1, 5000),
    ?assertMatch([{S, {queued, 4}}], erlane_socket:send_each([S], "tail")),
    {ok, Rest} = gen_tcp:recv(C, 300003, 5000),
    ?assertEqual(<<Body/binary, "tail">>, <<First/binary, Rest/binary>>),
    receive {sent, Result} -> ?assertEqual({ok, 300000}, Result) after 5000 -> error(stuck) end.

%% Whoever waits for room is told of the end too.
notice_of_an_end(Config) ->
    {Slow, S, Ref, Ticket} = waiting(Config),
    {ok, _} = gen_tcp:recv(Slow, 1),
    ok = inet:setopts(Slow, [{linger, {true, 0}}]),
    ok = gen_tcp:close(Slow),
    receive
        {erlane_async, Ref, Ticket, What} -> ?assert(lists:member(What, [closed, econnreset]))
    after 5000 -> error(no_notice)
    end,
    ?assertMatch([{S, {error, closed}}], erlane_socket:send_each([S], "x")).

waiting(Config) ->
    {Slow, {_, _, Ref} = S} = pair(Config, ?SMALL),
    [{S, {queued, _}}] = erlane_socket:send_each([S], pattern(200000)),
    [{S, {full, _, Ticket}}] = erlane_socket:send_each([S], "x", #{notify => true}),
    {Slow, S, Ref, Ticket}.

%% A ticket given back brings no message, the other one does.
forgotten(Config) ->
    {Slow, S, Ref, Ticket} = waiting(Config),
    [{S, {full, _, Ticket2}}] = erlane_socket:send_each([S], "x", #{notify => true}),
    ok = erlane_socket:forget_room(S, Ticket),
    {ok, _} = gen_tcp:recv(Slow, 200000, 5000),
    receive {erlane_async, Ref, Ticket2, ok} -> ok after 5000 -> error(no_notice) end,
    ok = erlane_socket:forget_room(S, Ticket2),
    ?assertEqual([], erlane_ct:flush()).

%% The peer sees a reset, an active owner the end, a passive one at its next recv; who waits for
%% room or in send is answered.
aborted(Config) ->
    {Slow, S, Ref, Ticket} = waiting(Config),
    Sender = async(fun() -> gen_tcp:send(S, pattern(100000)) end),
    ok = inet:setopts(S, [{active, once}, {linger, {true, 5}}]),
    erlane_ct:blocked(Sender),
    ok = erlane_socket:abort(S),
    receive {tcp_closed, S} -> ok after 5000 -> error(owner_not_told) end,
    receive {erlane_async, Ref, Ticket, closed} -> ok after 5000 -> error(no_notice) end,
    ?assertEqual({error, closed}, await(Sender)),
    ?assertEqual({error, econnreset}, to_end(Slow)),
    {C, P} = pair(Config),
    ok = erlane_socket:abort(P),
    ?assertEqual({error, closed}, gen_tcp:recv(P, 0, 1000)),
    ?assertEqual({error, closed}, gen_tcp:recv(C, 0, 1000)),
    ?assertEqual(ok, erlane_socket:abort(P)).

to_end(S) ->
    ok = inet:setopts(S, [{show_econnreset, true}]),
    case gen_tcp:recv(S, 0, 5000) of
        {ok, _} -> to_end(S);
        Error -> Error
    end.

%% With delay_send it goes out at the end of the lane's turn.
delay_send(Config) ->
    {C, S} = pair(Config, [{delay_send, true}], []),
    ?assertMatch([{S, {queued, 3}}], erlane_socket:send_each([S], "abc")),
    read([C], <<"abc">>).

%% One system call for each socket, counted by the lane of who called, and by the socket.
statistics(Config) ->
    {Cs, Ss} = pairs(20, Config),
    Sum = fun() -> lists:sum([N || #{send := N} <- erlane_socket:stats()]) end,
    Before = Sum(),
    [] = erlane_socket:send_each(Ss, [<<"a">>, <<"bc">>]),
    ?assertEqual(20, Sum() - Before),
    [?assertEqual({ok, [{send_cnt, 1}, {send_oct, 3}]}, inet:getstat(S, [send_cnt, send_oct]))
     || S <- Ss],
    read(Cs, <<"abc">>),
    [ok = gen_tcp:close(S) || S <- Ss],
    [?assertEqual(<<>>, recv_all(C)) || C <- Cs],
    ok.
