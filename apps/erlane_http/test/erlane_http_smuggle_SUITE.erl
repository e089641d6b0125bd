%% SPDX-License-Identifier: Apache-2.0
%% Request smuggling: no shape of erlane_http_shapes gets a second request past a front end that
%% reads the first one otherwise. Each row must be refused with an answer and the end of the
%% connection, or be read in the one way there is; the handler never sees what is inside.
-module(erlane_http_smuggle_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2,
         end_per_group/2, end_per_testcase/2]).
-export([codings/1, lengths/1, chunks/1, heads/1, framed/1, after_close/1, waiting_body/1,
         refused_bodies_are_not_requests/1, answers_stay_in_order/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() -> [{group, erlane}, {group, stock}].

groups() ->
    Cases = [codings, lengths, chunks, heads, framed, after_close, waiting_body,
             refused_bodies_are_not_requests, answers_stay_in_order],
    [{erlane, Cases}, {stock, Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(erlane, Config) -> [{socket, erlane}, {hows, fun hows/1} | Config];
init_per_group(stock, Config) -> [{socket, gen_tcp}, {hows, fun(_) -> [whole] end} | Config].

end_per_group(_Group, _Config) -> ok.

end_per_testcase(Case, _Config) ->
    _ = erlane_http:stop(Case, #{drain => 0}),
    ok.

%% Whole, in halves, with the head first, so that what is inside comes alone; and of many rows
%% some byte by byte.
hows(Row) ->
    Bytes = erlane_http_rows:bytes(Row),
    {At, 4} = binary:match(<<Bytes/binary, "\r\n\r\n">>, <<"\r\n\r\n">>),
    Size = byte_size(Bytes),
    [whole, {split, Size div 2}] ++ [{split, At + 4} || At + 4 < Size] ++
        [bytes || erlang:phash2(Bytes, 4) =:= 0].

table(Case, Config, Rows) ->
    Port = erlane_http_raw_handler:start(Case, #{socket => proplists:get_value(socket, Config)}),
    erlane_http_rows:check(Port, proplists:get_value(hows, Config), Rows).

codings(Config) -> table(codings, Config, erlane_http_shapes:codings()).

lengths(Config) -> table(lengths, Config, erlane_http_shapes:lengths()).

chunks(Config) -> table(chunks, Config, erlane_http_shapes:chunks()).

heads(Config) -> table(heads, Config, erlane_http_shapes:heads()).

framed(Config) -> table(framed, Config, erlane_http_shapes:framed()).

after_close(Config) ->
    Port = erlane_http_raw_handler:start(after_close,
                                         #{socket => proplists:get_value(socket, Config)}),
    erlane_http_rows:check(Port, fun(_) -> [whole] end, erlane_http_shapes:after_close()).

%% What comes where a body is waited for is the body, however much it looks like a request.
waiting_body(Config) ->
    Port = erlane_http_raw_handler:start(waiting_body,
                                         #{socket => proplists:get_value(socket, Config)}),
    Inner = <<"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n">>,
    Head = ["POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ",
            integer_to_list(2 * byte_size(Inner)), "\r\n\r\n"],
    Conn0 = erlane_http_raw:swallowed(erlane_http_raw:send(erlane_http_raw:connect(Port), Head)),
    Conn1 = erlane_http_raw:swallowed(erlane_http_raw:send(Conn0, Inner)),
    {timeout, Conn2} = erlane_http_raw:peek(Conn1, 20),
    {#{status := 200, body := Body}, Conn3} =
        erlane_http_raw:answer(erlane_http_raw:send(Conn2, Inner)),
    ?assertEqual(<<"POST / x ", Inner/binary, Inner/binary>>, Body),
    ?assertEqual([<<"/">>], erlane_http_raw_handler:seen()),
    {#{status := 200}, _} = erlane_http_raw:get(Conn3, "/next").

%% A body that is refused unread, by size or by expectation, is no request either.
refused_bodies_are_not_requests(Config) ->
    Port = erlane_http_raw_handler:start(refused_bodies_are_not_requests,
                                         #{socket => proplists:get_value(socket, Config),
                                           max_body => 10}),
    Inner = <<"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n">>,
    Length = ["Content-Length: ", integer_to_list(byte_size(Inner))],
    Chunk = [integer_to_list(byte_size(Inner), 16), "\r\n", Inner, "\r\n"],
    [begin
         {[#{status := Status}], Ending} =
             erlane_http_raw:ask(Port, ["POST / HTTP/1.1\r\nHost: x\r\n", Fields, "\r\n\r\n",
                                        Body]),
         ?assert(lists:member(Status, Statuses)),
         ?assertEqual(closed, Ending),
         ?assertEqual([], erlane_http_raw_handler:seen())
     end || {Fields, Body, Statuses} <-
                [{Length, Inner, [413]}, {[Length, "\r\nExpect: 100-continue"], Inner, [413]},
                 {[Length, "\r\nExpect: else"], Inner, [413, 417]},
                 {"Transfer-Encoding: chunked", [Chunk, "0\r\n\r\n"], [413]}]].

%% Answers belong to the requests that they follow, also behind bodies that nobody reads, HEAD,
%% answers without a body and a handler's crash.
answers_stay_in_order(Config) ->
    Port = erlane_http_raw_handler:start(answers_stay_in_order,
                                         #{socket => proplists:get_value(socket, Config)}),
    Body = fun(Target, Bytes) -> ["POST ", Target, " HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                                  integer_to_list(iolist_size(Bytes)), "\r\n\r\n", Bytes] end,
    Get = fun(Method, Target) -> [Method, $\s, Target, " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
    Requests = [{get, 200, <<"unread">>, Body("/unread", Get("GET", "/smuggled"))},
                {head, 200, <<>>, Get("HEAD", "/b")}, {get, 204, <<>>, Get("GET", "/status/204")},
                {get, 200, <<"onetwo">>, Get("GET", "/chunks")},
                {get, 304, <<>>, Get("GET", "/status/304")},
                {head, 200, <<>>, Get("HEAD", "/chunks")},
                {get, 200, <<"POST /c x ab">>, Body("/c", "ab")},
                {get, 200, <<"GET /d x ">>, Get("GET", "/d")}],
    Conn = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                [R || {_, _, _, R} <- Requests ++ Requests]),
    _ = lists:foldl(fun({Method, Status, Text, _}, C) ->
                            {#{status := Got, body := Read}, Next} =
                                erlane_http_raw:answer(C, Method),
                            ?assertEqual({Status, Text}, {Got, Read}),
                            Next
                    end, Conn, Requests ++ Requests),
    ?assertNot(lists:member(<<"/smuggled">>, erlane_http_raw_handler:seen())).
