%% SPDX-License-Identifier: Apache-2.0
%% @doc Server-sent events: their text, and streams over real connections. The suite is the
%% handler, too: the first segment of the path names what it does.
-module(erlane_http_sse_SUITE).

-behaviour(erlane_http).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([text/1, bad_fields/1, events_are_read/1, no_forged_events/1]).
-export([stream/1, head_of_a_stream/1, own_headers/1, old_client/1, last_event_id/1]).
-export([next_request/1, ahead_of_time/1, heartbeat/1, no_heartbeat/1, other_messages/1]).
-export([client_goes/1, client_goes_traps_exit/1, crash/1, crash_before/1, slow_client/1,
         many/1, drain/1, stop_listener/1]).
-export([handle/2]).

-import(erlane_http_client, [connect/1, connect/2, ask/2, header/2, until/1]).

-define(WAIT_MS, 15000).

suite() -> [{timetrap, {minutes, 1}}].

all() ->
    [text, bad_fields, events_are_read, no_forged_events,
     stream, head_of_a_stream, own_headers, old_client, last_event_id,
     next_request, ahead_of_time, heartbeat, no_heartbeat, other_messages,
     client_goes, client_goes_traps_exit, crash, crash_before, slow_client,
     many, drain, stop_listener].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    Config.

end_per_suite(_Config) ->
    application:stop(erlane_http).

init_per_testcase(_Case, Config) ->
    true = register(sse_test, self()),
    Config.

end_per_testcase(_Case, _Config) ->
    application:unset_env(erlane_http, sse_heartbeat),
    erlane_http_client:stop(sse).

serve() ->
    serve(#{}).

serve(Opts) ->
    erlane_http_client:start(sse, {?MODULE, none}, Opts).

%% The handler. What runs in a stream tells the test its pid and does what it is told.
handle(Req, none) ->
    case erlane_http:path(Req) of
        [<<"plain">>] -> {200, [], <<"plain">>};
        [<<"id">>] ->
            Id = erlane_http_sse:last_event_id(Req),
            {sse, [], fun(Emit) -> Emit(#{data => [<<"after ">>, Id]}) end};
        [<<"owner">>] ->
            sse_test ! {owner, self()},
            {sse, [], fun(Emit) -> receive {event, Data} -> Emit(Data) end end};
        [<<"headers">>] ->
            {sse, [{<<"cache-control">>, <<"no-store">>}, {<<"x-mine">>, <<"1">>}],
             fun(_) -> ok end};
        [<<"stream">>] -> {sse, [], fun run/1};
        [<<"trap">>] -> {sse, [], fun(Emit) -> process_flag(trap_exit, true), run(Emit) end}
    end.

run(Emit) ->
    sse_test ! {stream, self()},
    run_on(Emit).

run_on(Emit) ->
    receive
        {emit, Event} ->
            sse_test ! {emitted, Emit(Event)},
            run_on(Emit);
        crash -> error(on_purpose);
        done -> ok;
        {'EXIT', _, Why} -> sse_test ! {exit, Why, Emit(<<"too late">>)}
    end.

%% Opens a stream; the socket, the process of the stream and what came behind the head.
open(Port) ->
    open(Port, "stream").

open(Port, What) ->
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, ["GET /", What, " HTTP/1.1\r\nHost: x\r\n\r\n"]),
    {Socket, opened()}.

%% The process of the stream that was just asked for, monitored: asking it for something that it
%% must tell itself makes sure that the monitor got there before anything that we do next.
opened() ->
    receive
        {stream, Pid} ->
            _ = monitor(process, Pid),
            {current_stacktrace, _} = process_info(Pid, current_stacktrace),
            Pid
    after ?WAIT_MS -> error(no_stream)
    end.

emit(Pid, Event) ->
    Pid ! {emit, Event},
    receive {emitted, Answer} -> Answer after ?WAIT_MS -> error(not_emitted) end.

ended(Pid) ->
    receive {'DOWN', _, process, Pid, Why} -> Why after ?WAIT_MS -> error(still_there) end.

%% Each field as the standard has it; lines of data whatever ends them.
text(_Config) ->
    [?assertEqual({Event, Text}, {Event, iolist_to_binary(erlane_http_sse:event(Event))})
     || {Event, Text} <- [{<<"a">>, <<"data: a\n\n">>}, {["a", <<"b">>], <<"data: ab\n\n">>},
                          {<<>>, <<"data: \n\n">>},
                          {<<"a\nb\r\nc\rd\n">>,
                           <<"data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n">>},
                          {#{}, <<"\n">>}, {#{comment => <<"x\ny">>}, <<":x\n:y\n\n">>},
                          {#{id => "7", event => "e", retry => 10, data => "d"},
                           <<"event: e\nid: 7\nretry: 10\ndata: d\n\n">>}]].

%% A line break in a type or an id is refused where it is made.
bad_fields(_Config) ->
    [?assertError({bad_event, Key, Text}, erlane_http_sse:event(#{Key => Text}))
     || Key <- [id, event], Text <- [<<"a\nb">>, <<"a\rb">>, <<"\n">>, <<0>>]].

events_are_read(_Config) -> check(prop_erlane_http_content:prop_events_are_read()).
no_forged_events(_Config) -> check(prop_erlane_http_content:prop_no_forged_events()).

check(Property) ->
    true = proper:quickcheck(Property, [{numtests, 500}, {max_size, 30}, {to_file, user},
                                        nocolors]).

%% Events arrive when they are sent, not when the stream ends.
stream(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = emit(Pid, <<"one">>),
    {Head, <<"data: one\n\n">>} = first_chunk(Socket),
    ?assertMatch({match, _}, re:run(Head, "^HTTP/1.1 200 OK\r\n")),
    ?assertMatch({match, _}, re:run(Head, "content-type: text/event-stream\r\n", [caseless])),
    ?assertMatch({match, _}, re:run(Head, "cache-control: no-cache\r\n", [caseless])),
    ?assertMatch({match, _}, re:run(Head, "transfer-encoding: chunked\r\n", [caseless])),
    ok = emit(Pid, #{event => <<"e">>, data => <<"two">>}),
    ?assertEqual(<<"event: e\ndata: two\n\n">>, chunk(Socket, <<>>)),
    ok = gen_tcp:close(Socket).

first_chunk(Socket) ->
    first_chunk(Socket, <<>>).

first_chunk(Socket, Buffer) ->
    case binary:split(Buffer, <<"\r\n\r\n">>) of
        [Head, Rest] -> {<<Head/binary, "\r\n">>, chunk(Socket, Rest)};
        [_] -> first_chunk(Socket, more(Socket, Buffer))
    end.

chunk(Socket, Buffer) ->
    case binary:split(Buffer, <<"\r\n">>) of
        [Hex, Rest] ->
            Size = binary_to_integer(Hex, 16),
            case Rest of
                <<Data:Size/binary, "\r\n">> -> Data;
                _ -> chunk(Socket, more(Socket, Buffer))
            end;
        [_] -> chunk(Socket, more(Socket, Buffer))
    end.

more(Socket, Buffer) ->
    {ok, Data} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    <<Buffer/binary, Data/binary>>.

%% HEAD has no stream: nothing runs, and the connection goes on.
head_of_a_stream(_Config) ->
    Socket = connect(serve()),
    Head = ask(Socket, "HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n"),
    ?assertMatch(#{status := 200, rest := <<>>}, Head),
    ?assertEqual(<<"text/event-stream">>, header(<<"content-type">>, Head)),
    ?assertMatch(#{body := <<"plain">>}, ask(Socket, "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n")),
    ok = gen_tcp:close(Socket).

own_headers(_Config) ->
    Answer = erlane_http_client:get(serve(), "/headers"),
    ?assertEqual([<<"no-store">>, <<"1">>, <<"text/event-stream">>],
                 [header(N, Answer) || N <- [<<"cache-control">>, <<"x-mine">>,
                                             <<"content-type">>]]).

%% HTTP/1.0 knows no chunks: the stream is what comes until the end.
old_client(_Config) ->
    Socket = connect(serve()),
    ok = gen_tcp:send(Socket, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    Pid = opened(),
    ok = emit(Pid, <<"one">>),
    Pid ! done,
    Answer = erlane_http_client:answer(Socket),
    ?assertMatch(#{status := 200, body := <<"data: one\n\n">>}, Answer),
    ?assertEqual(undefined, header(<<"transfer-encoding">>, Answer)).

%% Who lost the connection tells where it was.
last_event_id(_Config) ->
    ?assertEqual(<<"data: after 17\n\n">>,
                 erlane_http_client:body(erlane_http_client:get(serve(), "/id",
                                                             [{"Last-Event-ID", "17"}]))).

%% A stream that ends leaves a connection that can be used.
next_request(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = emit(Pid, <<"one">>),
    Pid ! done,
    ?assertMatch(#{body := <<"data: one\n\n">>, rest := <<>>}, erlane_http_client:answer(Socket)),
    ?assertMatch(#{body := <<"plain">>}, ask(Socket, "GET /plain HTTP/1.1\r\nHost: x\r\n\r\n")),
    ok = gen_tcp:close(Socket).

%% What a client sends during a stream is answered after it.
ahead_of_time(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = gen_tcp:send(Socket, "GET /plain HTTP/1.1\r\nHo"),
    ok = emit(Pid, <<"one">>),
    ok = gen_tcp:send(Socket, "st: x\r\n\r\n"),
    ok = emit(Pid, <<"two">>),
    Pid ! done,
    #{body := Events, rest := Rest} = erlane_http_client:answer(Socket),
    ?assertEqual(<<"data: one\n\ndata: two\n\n">>, Events),
    ?assertMatch(#{body := <<"plain">>}, erlane_http_client:answer(Socket, #{buffer => Rest})),
    ok = gen_tcp:close(Socket).

%% A silent stream has comments in it, which no reader takes for events.
heartbeat(_Config) ->
    application:set_env(erlane_http, sse_heartbeat, 20),
    {Socket, Pid} = open(serve()),
    {_, Comment} = first_chunk(Socket),
    ?assertEqual(Comment, chunk(Socket, <<>>)),
    ok = emit(Pid, <<"one">>),
    Pid ! done,
    #{body := Body} = erlane_http_client:answer(Socket, #{buffer => <<"HTTP/1.1 200 OK\r\n"
                                                        "transfer-encoding: chunked\r\n\r\n">>}),
    ?assertEqual([{<<"message">>, <<"one">>}], prop_erlane_http_content:read_events(Body)),
    ?assertEqual([], prop_erlane_http_content:read_events(Comment)).

%% Comments can be switched off.
no_heartbeat(_Config) ->
    application:set_env(erlane_http, sse_heartbeat, infinity),
    {Socket, Pid} = open(serve()),
    [ok = emit(Pid, <<"x">>) || _ <- lists:seq(1, 3)],
    Pid ! done,
    ?assertEqual(binary:copy(<<"data: x\n\n">>, 3),
                 erlane_http_client:body(erlane_http_client:answer(Socket))).

%% A handler that has registered itself somewhere registered the connection's process.
other_messages(_Config) ->
    Socket = connect(serve()),
    ok = gen_tcp:send(Socket, "GET /owner HTTP/1.1\r\nHost: x\r\n\r\n"),
    receive {owner, Pid} -> Pid ! {event, <<"mine">>} end,
    ?assertEqual(<<"data: mine\n\n">>, erlane_http_client:body(erlane_http_client:answer(Socket))).

%% The process of a stream does not outlive its client, whatever it waits for.
client_goes(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = gen_tcp:close(Socket),
    ?assertEqual(shutdown, ended(Pid)),
    until(fun() -> maps:get(connections, erlane_http:info(sse)) =:= 0 end).

%% One that traps exits is told, and what it then sends is refused.
client_goes_traps_exit(_Config) ->
    {Socket, Pid} = open(serve(), "trap"),
    ok = gen_tcp:close(Socket),
    receive {exit, shutdown, {error, closed}} -> ok after ?WAIT_MS -> error(not_told) end,
    ?assertEqual(normal, ended(Pid)).

%% No end of the body: the client can tell that this was not all.
crash(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = emit(Pid, <<"one">>),
    Pid ! crash,
    ?assertMatch(#{body := <<"data: one\n\n">>, cut := true}, erlane_http_client:answer(Socket)).

crash_before(_Config) ->
    {Socket, Pid} = open(serve()),
    Pid ! crash,
    ?assertMatch(#{cut := true, body := <<>>}, erlane_http_client:answer(Socket)).

%% Who does not read stops the stream and nothing else, and ends after a while.
slow_client(_Config) ->
    Port = serve(#{send_timeout => 300}),
    Socket = connect(Port, [{recbuf, 4096}]),
    ok = gen_tcp:send(Socket, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n"),
    Pid = opened(),
    Data = binary:copy(<<"x">>, 65536),
    {Sent, Why} = flood(Pid, Data, 0),
    %% The buffers of the kernel and no more.
    ?assert(Sent < 500),
    ?assert(lists:member(Why, [shutdown, {error, closed}])),
    until(fun() -> maps:get(connections, erlane_http:info(sse)) =:= 0 end),
    ok = gen_tcp:close(Socket).

flood(Pid, Data, N) when N < 500 ->
    Pid ! {emit, Data},
    receive
        {emitted, ok} -> flood(Pid, Data, N + 1);
        {emitted, Error} -> {N, Error};
        {'DOWN', _, process, Pid, Why} -> {N, Why}
    after ?WAIT_MS -> error(still_waiting)
    end;
flood(_, _, N) ->
    {N, never}.

%% Two hundred streams at once.
many(_Config) ->
    Port = serve(),
    Streams = [open(Port) || _ <- lists:seq(1, 200)],
    [ok = emit(Pid, <<"x">>) || {_, Pid} <- Streams],
    [?assertMatch({_, <<"data: x\n\n">>}, first_chunk(Socket)) || {Socket, _} <- Streams],
    [ok = gen_tcp:close(Socket) || {Socket, _} <- Streams],
    [?assertEqual(shutdown, ended(Pid)) || {_, Pid} <- Streams].

%% A listener that stops ends its streams in order.
drain(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = emit(Pid, <<"one">>),
    ok = erlane_http:stop(sse, #{drain => ?WAIT_MS}),
    ?assertEqual(shutdown, ended(Pid)),
    ?assertMatch(#{body := <<"data: one\n\n">>, cut := false}, erlane_http_client:answer(Socket)),
    ?assertEqual(<<>>, erlane_http_client:closed(Socket)).

%% Without any time to drain they are cut, and their processes end.
stop_listener(_Config) ->
    {Socket, Pid} = open(serve()),
    ok = erlane_http:stop(sse, #{drain => 0}),
    _ = ended(Pid),
    _ = erlane_http_client:closed(Socket),
    ok.
