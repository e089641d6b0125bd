%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane only: send/3 with `more', whose last segment waits for what follows.
-module(erlane_tcp_more_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([end_in_the_segment/1, shutdown_in_the_segment/1, with_what_follows/1, not_for_ever/1,
         sizes/1, behind_a_queue/1, packets/1, active_once/1, active_once_behind_a_queue/1,
         refused/1]).

-define(ERLANE, [{backend, erlane}]).
-define(STOCK, [{backend, stock}]).
%% tcpi_segs_in of struct tcp_info, by getsockopt(IPPROTO_TCP, TCP_INFO).
-define(INFO, {raw, 6, 11, 144}).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [end_in_the_segment, shutdown_in_the_segment, with_what_follows, not_for_ever, sizes,
     behind_a_queue, packets, active_once, active_once_behind_a_queue, refused].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    Config.

end_per_suite(_Config) -> application:stop(erlane_socket).

end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% A client over stock gen_tcp, and the accepted socket.
pair(Opts) ->
    {L, Port} = erlane_ct:listen(?ERLANE, [binary, {active, false} | Opts]),
    C = erlane_ct:connect(?STOCK, Port, [binary, {active, false}, {exit_on_close, false}]),
    {C, erlane_ct:accept(L)}.

%% Segments that have come, with the end among them.
segments(C, Data, S, Send, End) ->
    ok = Send(S, Data),
    ok = End(S),
    {ok, Data} = gen_tcp:recv(C, byte_size(Data), 5000),
    {error, closed} = gen_tcp:recv(C, 0, 5000),
    {ok, [{raw, _, _, <<_:140/binary, Segments:32/native>>}]} = inet:getopts(C, [?INFO]),
    Segments.

more(S, Data) -> erlane_tcp:send(S, Data, [more]).

one_less(End) ->
    [Plain, More] = [begin
                         {C, S} = pair([{nodelay, true}]),
                         segments(C, <<"hello">>, S, Send, End)
                     end || Send <- [fun gen_tcp:send/2, fun more/2]],
    ?assertEqual(1, Plain - More).

end_in_the_segment(_) -> one_less(fun gen_tcp:close/1).

shutdown_in_the_segment(_) -> one_less(fun(S) -> gen_tcp:shutdown(S, write) end).

with_what_follows(_) ->
    {C, S} = pair([{nodelay, true}]),
    ok = more(S, <<"one">>),
    ok = more(S, ["two", <<"three">>]),
    ok = gen_tcp:send(S, <<"four">>),
    %% They came together.
    ?assertEqual({ok, <<"onetwothreefour">>}, gen_tcp:recv(C, 0, 5000)).

not_for_ever(_) ->
    {C, S} = pair([{nodelay, true}]),
    ok = more(S, <<"alone">>),
    ?assertEqual({ok, <<"alone">>}, gen_tcp:recv(C, 0, 5000)).

sizes(_) ->
    [begin
         {C, S} = pair([]),
         Data = erlane_ct:pattern(Size),
         Sent = erlane_ct:async(fun() -> [more(S, Form(Data)), gen_tcp:close(S)] end),
         ?assertEqual(Data, erlane_ct:recv_all(C)),
         [ok, ok] = erlane_ct:await(Sent)
     end || Size <- [1, 1460, 70000, 3000000],
            Form <- [fun(D) -> D end, fun(D) -> [D] end,
                     fun(D) -> [binary:part(D, 0, Size div 2),
                                binary:part(D, Size div 2, Size - Size div 2)] end]].

%% What is queued already goes first, and the end comes after all of it.
behind_a_queue(_) ->
    {C, S} = pair([{sndbuf, 4096}, {high_watermark, 10000000}]),
    Data = erlane_ct:pattern(2000000),
    ok = gen_tcp:send(S, Data),
    ok = more(S, <<"last">>),
    Closed = erlane_ct:async(fun() -> gen_tcp:close(S) end),
    ?assertEqual(<<Data/binary, "last">>, erlane_ct:recv_all(C)),
    erlane_ct:await(Closed).

packets(_) ->
    {C, S} = pair([{packet, 2}]),
    ok = inet:setopts(C, [{packet, 2}]),
    ok = more(S, <<"one">>),
    ok = more(S, [<<"t">>, <<"wo">>]),
    ok = gen_tcp:close(S),
    [?assertEqual({ok, P}, gen_tcp:recv(C, 0, 5000)) || P <- [<<"one">>, <<"two">>]].

%% As send/2 and setopts/2: one message, of a fresh socket and of one that is in the poll set, with
%% bytes that were here before and with some that come later; none after a failure.
active_once(_) ->
    {C, S} = pair([]),
    [begin
         _ = [ok = gen_tcp:send(C, <<"in">>) || Before],
         ok = erlane_tcp:send(S, <<"out">>, [{active, once}]),
         ?assertEqual({ok, <<"out">>}, gen_tcp:recv(C, 3, 5000)),
         _ = [ok = gen_tcp:send(C, <<"in">>) || not Before],
         receive {tcp, S, Data} -> ?assertEqual(<<"in">>, Data) after 5000 -> ct:fail(nothing) end,
         ?assertEqual({ok, [{active, false}]}, inet:getopts(S, [active]))
     end || Before <- [false, true, false, true]],
    ok = gen_tcp:close(C),
    ok = erlane_tcp:send(S, <<"out">>, [{active, once}]),
    receive {tcp_closed, S} -> ok after 5000 -> ct:fail(nothing) end,
    ?assertMatch({error, _}, erlane_tcp:send(S, <<"out">>, [{active, once}])),
    receive Message -> ct:fail(Message) after 50 -> ok end.

active_once_behind_a_queue(_) ->
    {C, S} = pair([{sndbuf, 4096}, {high_watermark, 10000000}]),
    Data = erlane_ct:pattern(2000000),
    ok = erlane_tcp:send(S, Data, [{active, once}]),
    ok = gen_tcp:send(C, <<"in">>),
    receive {tcp, S, In} -> ?assertEqual(<<"in">>, In) after 5000 -> ct:fail(nothing) end,
    ?assertEqual({ok, Data}, gen_tcp:recv(C, byte_size(Data), 5000)).

refused(_) ->
    {_, S} = pair([]),
    [?assertEqual({error, einval}, erlane_tcp:send(S, Data, Flags))
     || {Data, Flags} <- [{<<"x">>, [oob]}, {<<"x">>, more}, {<<"x">>, [more, more]},
                          {<<1:3>>, [more]}, {[foo], [more]}]],
    ok = gen_tcp:close(S),
    ?assertEqual({error, closed}, more(S, <<"x">>)).
