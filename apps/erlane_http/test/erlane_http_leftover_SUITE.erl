%% SPDX-License-Identifier: Apache-2.0
%% @doc What is left when something ends early: state of a handler, bytes of a body, connections
%% that never spoke, peers that go on talking.
-module(erlane_http_leftover_SUITE).

-behaviour(erlane_http_ws).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([state_of_a_handler/1, events_of_a_trapping_handler/1, socket_of_a_trapping_handler/1,
         flood_behind_a_close/1, bytes_of_a_socket/1, drain_of_the_silent/1, silent_for_long/1,
         short_idle_timeout/1, read_while_answering/1, part_read_while_answering/1,
         continue_while_answering/1, continue_of_a_refusal/1]).
-export([init/2, frame/2, terminate/2]).

-import(erlane_http_ct, [start/2, start/3, connect/1, get/2, ask/2, send/2, answer/1, is_closed/1,
                         rest/1, until/1, connections/1, name/0]).

-define(WAIT_MS, 5000).
-define(UPGRADE, "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 "Sec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").

all() -> [{group, erlane}, {group, gen_tcp}].

groups() ->
    Cases = [state_of_a_handler, events_of_a_trapping_handler, socket_of_a_trapping_handler,
             flood_behind_a_close, bytes_of_a_socket, drain_of_the_silent, silent_for_long,
             short_idle_timeout, read_while_answering, part_read_while_answering,
             continue_while_answering, continue_of_a_refusal],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) -> erlane_http_ct:stop(Config).

%%% A handler's process

%% The next request of a connection finds nothing of the last one, whatever kind of answer it had;
%% but its seed of random numbers.
state_of_a_handler(Config) ->
    Self = self(),
    Leave = fun() ->
                    put(user, alice),
                    ok = logger:set_process_metadata(#{user => alice}),
                    _ = process_flag(trap_exit, true),
                    _ = rand:seed(exsss)
            end,
    Port = start(Config, #{init => fun(_) -> {ok, stream} end,
                           handle => fun(Req) ->
                                             {trap_exit, Trap} = process_info(self(), trap_exit),
                                             Self ! {found, [K || {K, _} <- get(),
                                                                  K =/= '$erlane_http_body'],
                                                     logger:get_process_metadata(), Trap},
                                             Leave(),
                                             kind(erlane_http:path(Req))
                                     end}),
    C = connect(Port),
    {200, _, <<"x">>} = get(C, "/"),
    {200, _, <<"x">>} = get(C, "/"),
    {200, _, <<"y">>} = get(C, "/stream"),
    {200, _, _} = get(C, "/sse"),
    %% The body is left to be drained.
    {200, _, _} = ask(C, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
    {200, _, <<"x">>} = get(C, "/"),
    Found = [receive {found, Keys, Metadata, Trap} -> {Keys, Metadata, Trap} end
             || _ <- lists:seq(1, 6)],
    ?assertEqual(lists:duplicate(6, {[], undefined, false}),
                 [{Keys -- [rand_seed], Metadata, Trap} || {Keys, Metadata, Trap} <- Found]).

kind([]) -> {200, [], <<"x">>};
kind([<<"stream">>]) -> {stream, 200, [], fun(Send) -> Send(<<"y">>) end};
kind([<<"sse">>]) -> {sse, [], fun(_) -> ok end}.

%% An endless stream ends with its listener, although its handler traps exits.
events_of_a_trapping_handler(Config) ->
    Self = self(),
    Port = start(Config, fun(_) ->
                                 _ = process_flag(trap_exit, true),
                                 Self ! {connection, self()},
                                 {sse, [], fun(Emit) ->
                                                   ok = Emit(<<"one">>),
                                                   receive never -> ok end
                                           end}
                         end),
    C = connect(Port),
    ok = send(C, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    dies_with_its_listener(C, <<"data: one">>).

%% So does a WebSocket whose handler traps exits and is not told of others.
socket_of_a_trapping_handler(Config) ->
    Self = self(),
    Port = start(Config, fun(_) -> {upgrade, ?MODULE, Self} end),
    C = connect(Port),
    ok = send(C, ?UPGRADE),
    dies_with_its_listener(C, <<"101">>).

dies_with_its_listener(C, Wanted) ->
    Pid = receive {connection, P} -> P after ?WAIT_MS -> ct:fail(no_connection) end,
    Ref = monitor(process, Pid),
    Read = fun Read(Acc) ->
                   case binary:match(Acc, Wanted) of
                       nomatch -> {ok, Data} = gen_tcp:recv(C, 0, ?WAIT_MS),
                                  Read(<<Acc/binary, Data/binary>>);
                       _ -> ok
                   end
           end,
    ok = Read(<<>>),
    exit(erlane_http_names:whereis(name()), kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok after ?WAIT_MS -> ct:fail(lives_on) end.

%%% The WebSocket: tells who it is, closes when it is asked to.

init(_Req, Test) ->
    _ = process_flag(trap_exit, true),
    Test ! {connection, self()},
    {ok, Test, #{close_timeout => 500}}.

frame({text, <<"close">>}, Test) -> {close, 1000, <<>>, Test};
frame({text, Text}, Test) -> {send, {text, Text}, Test}.

terminate(_, Test) -> Test ! terminated, ok.

frame_of(Text) -> <<16#81, 1:1, (byte_size(Text)):7, 0:32, Text/binary>>.

open(Config) ->
    Self = self(),
    C = connect(start(Config, fun(_) -> {upgrade, ?MODULE, Self} end)),
    ok = send(C, ?UPGRADE),
    {ok, <<"HTTP/1.1 101 ", _/binary>>} = gen_tcp:recv(C, 0, ?WAIT_MS),
    C.

%% A client that goes on sending behind our close does not keep its place by it.
flood_behind_a_close(Config) ->
    C = open(Config),
    ok = send(C, frame_of(<<"close">>)),
    {ok, <<16#88, _/binary>>} = gen_tcp:recv(C, 0, ?WAIT_MS),
    Flood = binary:copy(frame_of(<<"more">>), 1000),
    Flooder = spawn_link(fun() -> flood(C, Flood) end),
    connections(0),
    receive terminated -> ok after ?WAIT_MS -> ct:fail(not_terminated) end,
    until(fun() -> not is_process_alive(Flooder) end).

flood(C, Flood) ->
    case gen_tcp:send(C, Flood) of
        ok -> flood(C, Flood);
        {error, _} -> ok
    end.

%% Frames are in the figures while the WebSocket is open.
bytes_of_a_socket(Config) ->
    C = open(Config),
    #{received_bytes := Received, sent_bytes := Sent} = erlane_http:info(name()),
    ok = send(C, [frame_of(<<"hello">>), frame_of(<<"hello">>)]),
    {ok, <<16#81, 5, "hello", 16#81, 5, "hello">>} = gen_tcp:recv(C, 14, ?WAIT_MS),
    until(fun() ->
                  #{received_bytes := R, sent_bytes := S} = erlane_http:info(name()),
                  {R - Received, S - Sent} =:= {22, 14}
          end).

%%% Connections that say nothing

%% A drain does not wait for somebody who has never said anything.
drain_of_the_silent(Config) ->
    Port = start(Config, fun(_) -> {200, [], <<"x">>} end, #{defer_accept => false}),
    Silent = [connect(Port) || _ <- [1, 2, 3]],
    connections(3),
    {Us, ok} = timer:tc(fun() -> erlane_http:drain(name(), 20000) end),
    ?assert(Us < 5000000),
    [?assert(is_closed(C)) || C <- Silent].

%% Who says something after a while is answered, also in pieces; who does not is closed in time.
silent_for_long(Config) ->
    Port = start(Config, fun(_) -> {200, [], <<"x">>} end,
                 #{defer_accept => false, head_timeout => 3000}),
    [Never, Late, Slow] = [connect(Port) || _ <- [1, 2, 3]],
    connections(3),
    ?assertEqual({error, timeout}, gen_tcp:recv(Never, 0, 700)),
    {200, _, <<"x">>} = get(Late, "/"),
    {200, _, <<"x">>} = get(Late, "/"),
    ok = send(Slow, "GET / HTTP/1.1\r\nHo"),
    ?assertEqual({error, timeout}, gen_tcp:recv(Slow, 0, 100)),
    {200, _, <<"x">>} = ask(Slow, "st: x\r\n\r\n"),
    ?assert(is_closed(Never)).

%% A short idle timeout is kept, also if the last request came just before the timer.
short_idle_timeout(Config) ->
    Port = start(Config, fun(_) -> {200, [], <<"x">>} end, #{idle_timeout => 1000}),
    C = connect(Port),
    {200, _, _} = get(C, "/"),
    ?assertEqual({error, timeout}, gen_tcp:recv(C, 0, 600)),
    {200, _, _} = get(C, "/"),
    {Us, true} = timer:tc(fun() -> is_closed(C) end),
    ?assert(Us >= 900000 andalso Us < 10000000, Us).

%%% A body that is read while the answer is made

streamed(Handle) -> #{handle => Handle, init => fun(_) -> {ok, stream} end}.

echo(Req, Send) ->
    case erlane_http:read_body(Req, #{length => 10}) of
        {more, Data, Req1} -> ok = Send(Data), echo(Req1, Send);
        {ok, Data, _} -> Send(Data)
    end.

%% What comes goes back, in pieces; the connection goes on.
read_while_answering(Config) ->
    Port = start(Config, streamed(fun(Req) ->
                                          {stream, 200, [], fun(Send) -> echo(Req, Send) end}
                                  end)),
    C = connect(Port),
    [begin
         ok = send(C, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
         ok = send(C, "f\r\n0123456789abcde\r\n"),
         ok = send(C, "5\r\nfghij\r\n0\r\n\r\n"),
         {200, _, <<"0123456789abcdefghij">>} = answer(C),
         {200, _, <<"abc">>} =
             ask(C, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
     end || _ <- [1, 2]].

%% What the function has not read is thrown away, or the connection ends: it is no request.
part_read_while_answering(Config) ->
    Self = self(),
    Port = start(Config, streamed(fun(Req) ->
                                          Self ! {asked, erlane_http:target(Req)},
                                          {stream, 200, [],
                                           fun(Send) ->
                                                   {_, Data, _} =
                                                       erlane_http:read_body(Req, #{length => 1}),
                                                   Send(binary:part(Data, 0, 1))
                                           end}
                                  end), #{drain_bytes => 100}),
    C = connect(Port),
    Inner = <<"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n">>,
    Head = fun(Length) ->
                   ["POST /outer HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                    integer_to_list(Length), "\r\n\r\nx"]
           end,
    ok = send(C, Head(1 + byte_size(Inner))),
    {200, _, <<"x">>} = answer(C),
    ok = send(C, Inner),
    {200, _, <<"x">>} = ask(C, [Head(1000)]),
    _ = gen_tcp:send(C, Inner),
    ?assert(is_closed(C)),
    ?assertEqual([<<"/outer">>, <<"/outer">>], asked()).

asked() -> receive {asked, Target} -> [Target | asked()] after 0 -> [] end.

%% Who waits for 100 (Continue) gets it before the answer begins, never within.
continue_while_answering(Config) ->
    Port = start(Config, streamed(fun(Req) ->
                                          {stream, 200, [], fun(Send) ->
                                                                    ok = Send(<<"first ">>),
                                                                    echo(Req, Send)
                                                            end}
                                  end)),
    C = connect(Port),
    {100, _, _} = ask(C, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                         "Content-Length: 3\r\n\r\n"),
    ok = send(C, "abc"),
    {200, _, <<"first abc">>} = answer(C).

%% Who is refused is not asked for its body, and the connection ends.
continue_of_a_refusal(Config) ->
    Port = start(Config, streamed(fun(_) ->
                                          {stream, 403, [], fun(Send) -> Send(<<"no">>) end}
                                  end)),
    C = connect(Port),
    ok = send(C, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                 "Content-Length: 3\r\n\r\n"),
    All = rest(C),
    ?assertMatch(<<"HTTP/1.1 403 ", _/binary>>, All),
    ?assertEqual(1, length(binary:matches(All, <<"HTTP/1.1">>))).
