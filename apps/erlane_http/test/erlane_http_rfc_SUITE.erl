%% SPDX-License-Identifier: Apache-2.0
%% The rules of RFC 9110 and 9112 against a running server: the table of erlane_http_cases, each
%% row whole, byte by byte and in two parts, both sides of each limit, and what takes a
%% conversation. The group `stock' runs over gen_tcp of OTP. Splits at every position are in
%% erlane_http_prop_SUITE, without sockets.
-module(erlane_http_rfc_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2,
         end_per_group/2, end_per_testcase/2]).
-export([request_line/1, target/1, host/1, fields/1, line_ends/1, length/1, chunked/1,
         trailers/1, expect/1, connection/1, answers/1, limits/1, small_limits/1,
         continue_when_wanted/1, continue_not_sent/1, body_too_late/1, requests_a_connection/1,
         body_cut_short/1, half_closed/1, left_in_mid_head/1, pipelined_load/1,
         again_and_again/1, draining_is_told/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [{group, erlane}, {group, stock}].

groups() ->
    Cases = [request_line, target, host, fields, line_ends, length, chunked, trailers, expect,
             connection, answers, limits, small_limits, continue_when_wanted, continue_not_sent,
             body_too_late, requests_a_connection, body_cut_short, half_closed, left_in_mid_head,
             pipelined_load, again_and_again, draining_is_told],
    [{erlane, Cases}, {stock, Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(erlane, Config) ->
    [{socket, erlane}, {hows, fun hows/1} | Config];
init_per_group(stock, Config) ->
    [{socket, gen_tcp}, {hows, fun(_) -> [whole] end} | Config].

end_per_group(_Group, _Config) -> ok.

end_per_testcase(Case, _Config) ->
    _ = erlane_http:stop(Case, #{drain => 0}),
    ok.

%% Whole, byte by byte, and in two parts: in the middle, and before the last byte.
hows(Row) ->
    Size = byte_size(erlane_http_rows:bytes(Row)),
    [whole, bytes, {split, Size div 2}, {split, Size - 1}].

%% Names of listeners are those of the cases, so that each is stopped after its own.
start(Case, Config, Opts) ->
    erlane_http_raw_handler:start(Case, Opts#{socket => proplists:get_value(socket, Config)}).

table(Case, Config, Rows) ->
    Port = start(Case, Config, #{}),
    Hows = proplists:get_value(hows, Config),
    erlane_http_rows:check(Port, Hows, Rows).

request_line(Config) -> table(request_line, Config, erlane_http_cases:request_line()).

target(Config) -> table(target, Config, erlane_http_cases:target()).

host(Config) -> table(host, Config, erlane_http_cases:host()).

fields(Config) -> table(fields, Config, erlane_http_cases:fields()).

line_ends(Config) -> table(line_ends, Config, erlane_http_cases:line_ends()).

length(Config) -> table(length, Config, erlane_http_cases:length()).

chunked(Config) -> table(chunked, Config, erlane_http_cases:chunked()).

trailers(Config) -> table(trailers, Config, erlane_http_cases:trailers()).

expect(Config) -> table(expect, Config, erlane_http_cases:expect()).

connection(Config) -> table(connection, Config, erlane_http_cases:connection()).

answers(Config) -> table(answers, Config, erlane_http_cases:answers()).

%% The limits of http.md are those of a listener that was told none.
limits(Config) ->
    Port = start(limits, Config, #{}),
    Hows = fun(Row) -> [whole, {split, byte_size(erlane_http_rows:bytes(Row)) - 1}] end,
    erlane_http_rows:check(Port, Hows, erlane_http_limits:rows(erlane_http_limits:defaults())).

%% Any other limits hold as exactly.
small_limits(Config) ->
    Small = erlane_http_limits:small(),
    Port = start(small_limits, Config, Small),
    erlane_http_rows:check(Port, proplists:get_value(hows, Config),
                           erlane_http_limits:rows(Small)).

%% 100 comes when the body is wanted, and the answer when the body is there.
continue_when_wanted(Config) ->
    Port = start(continue_when_wanted, Config, #{}),
    [begin
         Conn = erlane_http_raw:send(erlane_http_raw:connect(Port), expecting(Target)),
         {#{status := 100}, Conn1} = erlane_http_raw:answer(Conn),
         {#{status := 200, body := Body}, Conn2} =
             erlane_http_raw:answer(erlane_http_raw:feed(Conn1, bytes, <<"hello">>)),
         ?assertEqual(<<"POST ", Target/binary, " x hello">>, Body),
         {#{status := 200}, _} = erlane_http_raw:get(Conn2, "/next")
     end || Target <- [<<"/">>, <<"/stream">>]].

%% A handler that wants no body has none sent: its answer is the first to come, and since nobody
%% knows whether the body follows, the next request is on another connection, or behind the body.
continue_not_sent(Config) ->
    Port = start(continue_not_sent, Config, #{}),
    Conn = erlane_http_raw:send(erlane_http_raw:connect(Port), expecting(<<"/unread">>)),
    {#{status := 200, body := <<"unread">>, headers := Headers}, Conn1} =
        erlane_http_raw:answer(Conn),
    case proplists:get_value(<<"connection">>, Headers) of
        <<"close">> ->
            ?assertEqual(closed, erlane_http_raw:ended(Conn1));
        undefined ->
            Conn2 = erlane_http_raw:send(Conn1, <<"hello">>),
            {#{status := 200}, _} = erlane_http_raw:get(Conn2, "/next")
    end.

%% A body that was refused by its length is not waited for.
body_too_late(Config) ->
    Port = start(body_too_late, Config, #{max_body => 4}),
    [begin
         Conn = erlane_http_raw:send(erlane_http_raw:connect(Port), Head),
         {#{status := 413}, Conn1} = erlane_http_raw:answer(Conn),
         ?assertEqual(closed, erlane_http_raw:ended(Conn1)),
         ?assertEqual([], erlane_http_raw_handler:seen())
     end || Head <- ["POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
                     expecting(<<"/">>)]].

expecting(Target) ->
    ["POST ", Target, " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"].

%% The last request of a connection is answered with the announcement of its end.
requests_a_connection(Config) ->
    Port = start(requests_a_connection, Config, #{max_requests => 3}),
    {Answers, Ending} =
        erlane_http_raw:ask(Port, lists:duplicate(5, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")),
    ?assertEqual(closed, Ending),
    ?assertEqual([undefined, undefined, <<"close">>],
                 [proplists:get_value(<<"connection">>, H) || #{headers := H} <- Answers]),
    ?assertEqual([<<"/">>, <<"/">>, <<"/">>], erlane_http_raw_handler:seen()).

%% No handler gets half a body for a whole one.
body_cut_short(Config) ->
    Port = start(body_cut_short, Config, #{}),
    [begin
         Conn = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                     ["POST / HTTP/1.1\r\nHost: x\r\n", Rest]),
         refused(erlane_http_raw:answer(erlane_http_raw:half_close(Conn))),
         ?assertEqual([], erlane_http_raw_handler:seen())
     end || Rest <- ["Content-Length: 5\r\n\r\nhell", "Content-Length: 5\r\n\r\n",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhell",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n",
                     "Transfer-Encoding: chunked\r\n\r\n"]].

%% Nothing but an error is right, if there is an answer at all.
refused({#{status := 400}, Conn}) -> closed = erlane_http_raw:ended(Conn);
refused(closed) -> closed.

%% A client may end its half once it has asked; what it asked for is answered.
half_closed(Config) ->
    Port = start(half_closed, Config, #{}),
    Get = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
    [begin
         Conn0 = erlane_http_raw:half_close(erlane_http_raw:send(erlane_http_raw:connect(Port),
                                                                 lists:duplicate(N, Get))),
         Conn = lists:foldl(fun(_, C) ->
                                    {#{status := 200}, Next} = erlane_http_raw:answer(C),
                                    Next
                            end, Conn0, lists:seq(1, N)),
         ?assertEqual(closed, erlane_http_raw:ended(Conn))
     end || N <- [1, 2, 10]].

%% A connection that ends amid a head, or before one, is no error to anybody.
left_in_mid_head(Config) ->
    Port = start(left_in_mid_head, Config, #{}),
    Head = <<"GET /smuggled HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n">>,
    [begin
         Conn = erlane_http_raw:send(erlane_http_raw:connect(Port), binary:part(Head, 0, N)),
         refused(erlane_http_raw:answer(erlane_http_raw:half_close(Conn)))
     end || N <- lists:seq(0, byte_size(Head) - 1)],
    ?assertEqual([], erlane_http_raw_handler:seen()).

%% Many requests at once are answered, each with its own, while the client reads late.
pipelined_load(Config) ->
    Port = start(pipelined_load, Config, #{max_requests => infinity}),
    N = 5000,
    Conn0 = erlane_http_raw:connect(Port),
    Requests = [["GET /", integer_to_list(I), " HTTP/1.1\r\nHost: x\r\n\r\n"]
                || I <- lists:seq(1, N)],
    Sender = spawn_monitor(fun() -> erlane_http_raw:send(Conn0, Requests) end),
    lists:foldl(fun(I, Conn) ->
                        Expected = iolist_to_binary(io_lib:format("GET /~b x ", [I])),
                        {#{status := 200, body := Body}, Next} = erlane_http_raw:answer(Conn),
                        ?assertEqual(Expected, Body),
                        Next
                end, Conn0, lists:seq(1, N)),
    {_, Ref} = Sender,
    receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(normal, Why) end.

%% Nothing that a server may keep of a request or of an answer shows in the next: the same bytes
%% again, bytes that begin or end alike, answers that differ in a header only.
again_and_again(Config) ->
    Port = start(again_and_again, Config, #{}),
    Get = fun(Target, Host) -> ["GET ", Target, " HTTP/1.1\r\nHost: ", Host, "\r\n\r\n"] end,
    Post = "POST /b HTTP/1.1\r\nHost: y\r\nContent-Length: 1\r\n\r\n",
    Requests = [{Get("/a", "x"), <<"GET /a x ">>}, {Get("/a", "x"), <<"GET /a x ">>},
                {Get("/a", "y"), <<"GET /a y ">>}, {Get("/b", "y"), <<"GET /b y ">>},
                {["GET /b HTTP/1.1\r\nHost: y\r\nA: b\r\n\r\n"], <<"GET /b y ">>},
                {["\r\n" | Get("/b", "y")], <<"GET /b y ">>}, {Get("/b", "y"), <<"GET /b y ">>},
                {[Post, "a"], <<"POST /b y a">>}, {[Post, "b"], <<"POST /b y b">>},
                {Get("/b", "y"), <<"GET /b y ">>}, {Get("/b", "y"), <<"GET /b y ">>}],
    Ways = [fun(Conn) -> Conn end, fun erlane_http_raw:swallowed/1],
    [begin
         Conn = erlane_http_raw:connect(Port),
         lists:foldl(fun({N, {Bytes, Body}}, C) ->
                             Answer = erlane_http_raw:answer(Wait(erlane_http_raw:send(C, Bytes))),
                             same(N, Body, Answer)
                     end, Conn, lists:zip(lists:seq(1, erlang:length(Requests)), Requests))
     end || Wait <- Ways],
    %% All at once.
    Conn1 = erlane_http_raw:send(erlane_http_raw:connect(Port), [B || {B, _} <- Requests]),
    lists:foldl(fun({N, {_, Body}}, C) -> same(N, Body, erlane_http_raw:answer(C)) end,
                Conn1, lists:zip(lists:seq(1, erlang:length(Requests)), Requests)).

same(N, Body, {#{status := 200, body := Got, headers := Headers}, Next}) ->
    ?assertEqual(Body, Got),
    ?assertEqual(integer_to_binary(N), proplists:get_value(<<"x-count">>, Headers)),
    Next.

%% A listener that stops announces the end with the next answer.
draining_is_told(Config) ->
    Port = start(draining_is_told, Config, #{}),
    {#{status := 200}, Conn} = erlane_http_raw:get(erlane_http_raw:connect(Port), "/first"),
    %% A request is on its way, so that the connection is not just an idle one.
    Conn1 = erlane_http_raw:swallowed(erlane_http_raw:send(Conn, "GET /second HTTP/1.1\r\n")),
    Self = self(),
    Stopper = spawn_link(fun() ->
                                 Self ! {stopped, erlane_http:stop(draining_is_told,
                                                                   #{drain => 5000})}
                         end),
    refused(Port, 1000),
    {#{status := 200, headers := Headers}, Conn2} =
        erlane_http_raw:answer(erlane_http_raw:send(Conn1, "Host: x\r\n\r\n")),
    ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
    ?assertEqual(closed, erlane_http_raw:ended(Conn2)),
    ok = erlane_http_raw:close(Conn2),
    receive {stopped, Result} -> ?assertEqual(ok, Result) end,
    unlink(Stopper).

%% New connections are refused once the stop has begun.
refused(Port, Tries) ->
    case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
        {error, _} -> ok;
        {ok, Socket} when Tries > 0 ->
            ok = gen_tcp:close(Socket),
            receive after 2 -> refused(Port, Tries - 1) end
    end.
