%% SPDX-License-Identifier: Apache-2.0
%% @doc What one request leaves must not become part of the next, nor of a log.
-module(erlane_http_desync_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([refused_upgrade/1, events_and_a_body/1, early_answer/1, late_piece/1, bad_trailer/1,
         bad_length/1, two_lengths/1, emptied_mailbox/1, crash_tells_no_secret/1]).
-export([log/2]).

-import(erlane_http_ct, [start/2, start/3, connect/1, get/2, send/2, answer/1, rest/1,
                         is_closed/1, connections/1]).

-define(WAIT_MS, 5000).

all() -> [{group, erlane}, {group, gen_tcp}].

groups() ->
    Cases = [refused_upgrade, events_and_a_body, early_answer, late_piece, bad_trailer, bad_length,
             two_lengths, emptied_mailbox, crash_tells_no_secret],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) -> erlane_http_ct:stop(Config).

streamed(Handle) -> #{handle => Handle, init => fun(_) -> {ok, stream} end}.

%% A body that looks like a request, of a request that asks for an upgrade that is refused.
refused_upgrade(Config) ->
    Self = self(),
    Port = start(Config, streamed(fun(Req) ->
                                          Self ! {asked, erlane_http:target(Req)},
                                          {upgrade, no_such_module, []}
                                  end)),
    C = connect(Port),
    Inner = <<"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n">>,
    ok = send(C, ["POST /ws HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                  integer_to_list(byte_size(Inner)), "\r\n\r\n", Inner]),
    {400, _, _} = answer(C),
    ok = send(C, "GET /next HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    _ = rest(C),
    ?assertNot(lists:member(<<"/smuggled">>, asked())).

asked() -> receive {asked, Target} -> [Target | asked()] after 0 -> [] end.

%% Events are sent to a client whose body nobody read: nothing follows on this connection.
events_and_a_body(Config) ->
    Self = self(),
    Port = start(Config, streamed(fun(Req) ->
                                          Self ! {asked, erlane_http:target(Req)},
                                          {sse, [], fun(_) -> ok end}
                                  end)),
    C = connect(Port),
    ok = send(C, ["POST /sse HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n", "0123456789",
                  "GET /a HTTP/1.1\r\nA: GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"]),
    _ = rest(C),
    ?assertEqual([<<"/sse">>], asked()).

%% An answer before the body has come, to a client that asked for the close.
early_answer(Config) ->
    Port = start(Config, streamed(fun(_) -> {403, [], <<"no">>} end)),
    C = connect(Port),
    ok = send(C, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                 "Content-Length: 500000\r\n\r\n"),
    ok = send(C, binary:copy(<<"x">>, 500000)),
    {403, _, <<"no">>} = answer(C).

%% Whoever still has the function of a stream that has ended cannot write any more.
late_piece(Config) ->
    Self = self(),
    Port = start(Config, fun(Req) ->
                                 case erlane_http:target(Req) of
                                     <<"/stream">> ->
                                         {stream, 200, [], fun(Send) ->
                                                                   Self ! {function, Send},
                                                                   Send(<<"one">>)
                                                           end};
                                     _ -> {200, [], <<"two">>}
                                 end
                         end),
    C = connect(Port),
    {200, _, <<"one">>} = get(C, "/stream"),
    Send = receive {function, S} -> S after ?WAIT_MS -> error(no_function) end,
    ?assertEqual({error, closed}, Send(<<"late">>)),
    {200, _, <<"two">>} = get(C, "/").

%% A bad trailer ends the body as cut; no second head comes into it.
bad_trailer(Config) ->
    Port = start(Config, fun(_) ->
                                 {stream, 200, [], fun(Send) ->
                                                           ok = Send(<<"part">>),
                                                           {trailers, [{<<"a">>, <<"b\r\n">>}]}
                                                   end}
                         end),
    C = connect(Port),
    ok = send(C, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    All = rest(C),
    ?assertEqual(1, length(binary:matches(All, <<"HTTP/1.1">>))),
    ?assertEqual(nomatch, binary:match(All, <<"\r\n0\r\n">>)).

%% A handler's length is digits or a crash before anything was sent.
bad_length(Config) ->
    Port = start(Config, fun(Req) ->
                                 {stream, 200, [{<<"content-length">>, erlane_http:body(Req)}],
                                  fun(Send) -> Send(<<"x">>) end}
                         end),
    [begin
         C = connect(Port),
         ok = send(C, ["POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                       integer_to_list(length(Length)), "\r\n\r\n", Length]),
         ?assertMatch({Length, {500, _, _}}, {Length, answer(C)})
     end || Length <- ["-5", "+1", "1 ", "0x1"]].

%% Of two lengths that differ none is taken.
two_lengths(Config) ->
    Port = start(Config, fun(Req) ->
                                 Lengths = erlane_http:path(Req),
                                 {stream, 200, [{<<"content-length">>, L} || L <- Lengths],
                                  fun(Send) -> Send(<<"x">>) end}
                         end),
    {500, _, _} = get(connect(Port), "/2/1"),
    {200, _, <<"x">>} = get(connect(Port), "/1/1").

%% A handler may empty its mailbox, with the tick of the connection in it.
emptied_mailbox(Config) ->
    Port = start(Config, fun(_) ->
                                 receive after 500 -> ok end,
                                 flush(),
                                 {200, [], <<"x">>}
                         end, #{idle_timeout => 200}),
    C = connect(Port),
    {200, _, <<"x">>} = get(C, "/"),
    {200, _, <<"x">>} = get(C, "/"),
    ?assert(is_closed(C)),
    connections(0).

flush() -> receive _ -> flush() after 0 -> ok end.

%% The log and the event of a crash have no argument, header or option in them.
crash_tells_no_secret(Config) ->
    Args = #{handle => fun(Req) -> erlang:error({odd, Req, #{token => <<"TOKEN">>}}, [Req]) end,
             event => self(), password => <<"PASSWORD">>},
    Port = start(Config, Args),
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    ok = logger:set_primary_config(level, error),
    C = connect(Port),
    ok = send(C, "GET /SECRET HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer SECRET\r\n\r\n"),
    {500, _, _} = answer(C),
    Event = receive {event, crashed, Data} -> Data after ?WAIT_MS -> error(no_event) end,
    Logged = receive {logged, Text} -> Text after ?WAIT_MS -> error(no_log) end,
    ok = logger:set_primary_config(level, critical),
    ok = logger:remove_handler(?MODULE),
    Told = iolist_to_binary([Logged, io_lib:format("~0p", [Event])]),
    [?assertEqual({Word, nomatch}, {Word, binary:match(Told, Word)})
     || Word <- [<<"SECRET">>, <<"TOKEN">>, <<"PASSWORD">>]],
    ?assertNotEqual(nomatch, binary:match(Told, <<"odd">>)).

%% @private A handler of logger.
log(Event, #{config := Pid}) ->
    Pid ! {logged, logger_formatter:format(Event, #{})}.
