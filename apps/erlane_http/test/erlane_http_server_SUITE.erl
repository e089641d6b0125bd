%% SPDX-License-Identifier: Apache-2.0
%% @doc The server as a client sees it, over lanes and over the sockets of the VM: answers of
%% every kind.
-module(erlane_http_server_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([accessors/1, keep_alive/1, pipelining/1, old_version/1, close_is_said/1, head_only/1,
         no_body/1, own_fields/1, changing_answers/1, date_moves/1, stream/1,
         stream_of_known_length/1, stream_to_old_client/1, stream_without_a_piece/1, files/1,
         big_file/1, no_file/1, crash_before/1, crash_amid/1, bad_answers/1,
         mailbox_is_the_handlers/1]).

-import(erlane_http_ct, [start/2, start/3, connect/1, get/2, ask/2, send/2, answer/1, answer/2,
                         rest/1, is_closed/1, until/1, connections/1]).

-define(WAIT_MS, 5000).

all() -> [{group, erlane}, {group, gen_tcp}].

groups() ->
    Cases = [accessors, keep_alive, pipelining, old_version, close_is_said, head_only, no_body,
             own_fields, changing_answers, date_moves, stream, stream_of_known_length,
             stream_to_old_client, stream_without_a_piece, files, big_file, no_file,
             crash_before, crash_amid, bad_answers, mailbox_is_the_handlers],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) -> erlane_http_ct:stop(Config).

%%% Requests and answers

%% Every accessor tells what was sent.
accessors(Config) ->
    Self = self(),
    Port = start(Config, fun(Req) -> Self ! {req, Req, erlane_http:peer(Req)}, {200, [], <<>>} end),
    Socket = connect(Port),
    {200, _, <<>>} = ask(Socket, "GET /a%20b/c%2Fd/?x=1&y&z=%41+b HTTP/1.1\r\nHost: x:80\r\n"
                                 "X-Two: a\r\nx-two:\tb \r\n\r\n"),
    {ok, {_, ClientPort}} = inet:sockname(Socket),
    receive
        {req, Req, Peer} ->
            ?assertEqual(<<"GET">>, erlane_http:method(Req)),
            ?assertEqual(<<"/a%20b/c%2Fd/?x=1&y&z=%41+b">>, erlane_http:target(Req)),
            ?assertEqual(<<"/a%20b/c%2Fd/">>, erlane_http:raw_path(Req)),
            ?assertEqual([<<"a b">>, <<"c/d">>, <<>>], erlane_http:path(Req)),
            ?assertEqual([{<<"x">>, <<"1">>}, {<<"y">>, true}, {<<"z">>, <<"A b">>}],
                         erlane_http:query(Req)),
            ?assertEqual({1, 1}, erlane_http:version(Req)),
            ?assertEqual([{<<"host">>, <<"x:80">>}, {<<"x-two">>, <<"a">>},
                          {<<"x-two">>, <<"b">>}], erlane_http:headers(Req)),
            ?assertEqual(<<"a, b">>, erlane_http:header(<<"x-two">>, Req)),
            ?assertEqual(none, erlane_http:header(<<"x-three">>, Req, none)),
            ?assertEqual(<<"x:80">>, erlane_http:host(Req)),
            ?assertEqual(http, erlane_http:scheme(Req)),
            ?assertEqual({{127, 0, 0, 1}, ClientPort}, Peer),
            ?assertEqual({<<>>, []}, {erlane_http:body(Req), erlane_http:trailers(Req)})
    after ?WAIT_MS -> ct:fail(no_request)
    end.

%% Requests of one connection are answered by one process, equal ones and others.
keep_alive(Config) ->
    Port = start(Config, fun(Req) -> {200, [], [erlane_http:target(Req), pid_to_list(self())]} end),
    Socket = connect(Port),
    {200, Headers, <<"/a", Pid/binary>>} = get(Socket, "/a"),
    ?assertEqual(false, lists:keyfind(<<"connection">>, 1, Headers)),
    [?assertEqual({Path, <<Path/binary, Pid/binary>>},
                  {Path, element(3, get(Socket, Path))})
     || Path <- [<<"/a">>, <<"/a">>, <<"/b">>, <<"/a">>, <<"/aa">>, <<"/">>, <<"/">>]].

%% Many requests at once are answered in their order, those that repeat and those that do not;
%% the last one may come in pieces.
pipelining(Config) ->
    Port = start(Config, fun(Req) -> {200, [], erlane_http:target(Req)} end),
    Socket = connect(Port),
    Targets = [integer_to_binary(N div 3) || N <- lists:seq(1, 3000)],
    spawn_link(fun() ->
                       [send(Socket, ["GET /", T, " HTTP/1.1\r\nHost: x\r\n\r\n"])
                        || T <- lists:sublist(Targets, 1500)],
                       send(Socket, [["GET /", T, " HTTP/1.1\r\nHost: x\r\n\r\n"]
                                     || T <- lists:nthtail(1500, Targets)])
               end),
    [?assertMatch({200, _, <<"/", T/binary>>}, answer(Socket)) || T <- Targets],
    Last = <<"GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /last HTTP/1.1\r\nHo">>,
    {200, _, <<"/1">>} = ask(Socket, Last),
    {200, _, <<"/last">>} = ask(Socket, "st: x\r\n\r\n").

%% HTTP/1.0 ends after each answer, unless the client asks.
old_version(Config) ->
    Port = start(Config, fun(_) -> {200, [], <<"x">>} end),
    Socket = connect(Port),
    [begin
         {200, Headers, <<"x">>} = ask(Socket, "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
         ?assertEqual(<<"keep-alive">>, proplists:get_value(<<"connection">>, Headers))
     end || _ <- [1, 2]],
    {200, Headers, <<"x">>} = ask(Socket, "GET / HTTP/1.0\r\n\r\n"),
    ?assertEqual({<<"connection">>, <<"close">>}, lists:keyfind(<<"connection">>, 1, Headers)),
    ?assert(is_closed(Socket)).

%% Both sides may end it; the answer says so.
close_is_said(Config) ->
    Port = start(Config, fun(Req) ->
                                 {200, [{<<"Connection">>, <<"Close">>}
                                        || erlane_http:path(Req) =/= []], <<"x">>}
                         end),
    [begin
         Socket = connect(Port),
         {200, Headers, <<"x">>} = ask(Socket, Request),
         ?assertEqual([<<"close">>], [V || {<<"connection">>, V} <- Headers]),
         ?assert(is_closed(Socket))
     end || Request <- ["GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                        "GET /close HTTP/1.1\r\nHost: x\r\n\r\n",
                        "GET /close HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"]].

%% HEAD has the head of GET, and the connection goes on behind it.
head_only(Config) ->
    File = file(Config, "head", <<"12345">>),
    Port = start(Config, fun(Req) ->
                                 case erlane_http:raw_path(Req) of
                                     <<"/file">> -> {200, [], {file, File}};
                                     <<"/stream">> -> {stream, 200, [], fun(Send) -> Send("x") end};
                                     _ -> {200, [{<<"a">>, <<"b">>}], <<"12345">>}
                                 end
                         end),
    Socket = connect(Port),
    [begin
         {200, Get, _} = get(Socket, Target),
         send(Socket, ["HEAD ", Target, " HTTP/1.1\r\nHost: x\r\n\r\n"]),
         {200, Head, <<>>} = answer(Socket, <<"HEAD">>),
         ?assertEqual(lists:keydelete(<<"date">>, 1, Get), lists:keydelete(<<"date">>, 1, Head))
     end || Target <- ["/", "/file", "/stream"]].

%% Statuses that have no body get none, and no length where there must be none.
no_body(Config) ->
    Port = start(Config, fun(Req) ->
                                 [Status] = erlane_http:path(Req),
                                 {binary_to_integer(Status), [], <<"body">>}
                         end),
    Socket = connect(Port),
    {204, H204, <<>>} = get(Socket, "/204"),
    {304, H304, <<>>} = get(Socket, "/304"),
    [?assertEqual(false, lists:keyfind(<<"content-length">>, 1, H)) || H <- [H204, H304]],
    {200, _, <<"body">>} = get(Socket, "/200").

%% What is the server's to say a handler cannot contradict; its date and its fields go out.
own_fields(Config) ->
    Port = start(Config, fun(_) ->
                                 {201, [{<<"Content-Length">>, <<"100">>},
                                        {<<"transfer-encoding">>, <<"chunked">>},
                                        {<<"date">>, <<"yesterday">>},
                                        {<<"X-A">>, [<<"b">>, $c]}], ["a", <<"b">>, [$c]]}
                         end),
    {201, Headers, <<"abc">>} = get(connect(Port), "/"),
    ?assertEqual([{<<"content-length">>, <<"3">>}, {<<"date">>, <<"yesterday">>},
                  {<<"x-a">>, <<"bc">>}], lists:sort(Headers)).

%% The same request, other answers: nothing that was remembered goes out in their place.
changing_answers(Config) ->
    Self = self(),
    Port = start(Config, fun(_) ->
                                 Self ! {what, self()},
                                 receive {answer, Answer} -> Answer end
                         end),
    Socket = connect(Port),
    Answers = [{200, [], <<"a">>}, {200, [], <<"a">>}, {200, [], <<"b">>}, {404, [], <<"b">>},
               {200, [{<<"x">>, <<"1">>}], <<"b">>}, {200, [{<<"x">>, <<"2">>}], <<"b">>},
               {200, [], <<"b">>}, {200, [], <<"b">>}, {200, [], "b"},
               {200, [], binary:copy(<<"c">>, 100000)}, {200, [], <<"b">>}],
    [begin
         send(Socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
         receive {what, Pid} -> Pid ! {answer, Answer} after ?WAIT_MS -> ct:fail(no_request) end,
         {Got, GotHeaders, GotBody} = answer(Socket),
         ?assertEqual({Status, iolist_to_binary(Body), Headers},
                      {Got, GotBody, [H || {<<"x">>, _} = H <- GotHeaders]})
     end || {Status, Headers, Body} = Answer <- Answers].

%% The date is that of now also on an answer that repeats itself.
date_moves(Config) ->
    Port = start(Config, fun(_) -> {200, [], <<"x">>} end),
    Socket = connect(Port),
    Date = fun() ->
                   {200, Headers, <<"x">>} = get(Socket, "/"),
                   {ok, Seconds} = erlane_http_date:parse(proplists:get_value(<<"date">>, Headers)),
                   Now = erlang:system_time(second),
                   ?assert(Seconds =:= Now orelse Seconds =:= Now - 1),
                   Seconds
           end,
    First = Date(),
    until(fun() -> Date() > First end).

%%% Streams

%% Pieces come as they are sent, trailers after them; the connection goes on.
stream(Config) ->
    Self = self(),
    Port = start(Config, fun(_) ->
                                 {stream, 200, [{<<"x">>, <<"y">>}],
                                  fun(Send) ->
                                          ok = Send("one"),
                                          Self ! {sent, self()},
                                          receive go -> ok end,
                                          ok = Send(<<>>),
                                          ok = Send(["t", <<"wo">>]),
                                          {trailers, [{<<"sum">>, <<"6">>}]}
                                  end}
                         end),
    Socket = connect(Port),
    send(Socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    Pid = receive {sent, P} -> P after ?WAIT_MS -> ct:fail(nothing_sent) end,
    {ok, Data} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    ?assertNotEqual(nomatch, binary:match(Data, <<"\r\n\r\n3\r\none\r\n">>)),
    Pid ! go,
    {ok, <<"3\r\ntwo\r\n0\r\nsum: 6\r\n\r\n">>} = gen_tcp:recv(Socket, 21, ?WAIT_MS),
    send(Socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    receive {sent, Pid} -> Pid ! go after ?WAIT_MS -> ct:fail(nothing_sent) end,
    ?assertMatch({200, _, {<<"onetwo">>, [<<"sum: 6">>]}}, answer(Socket)).

%% A length that is known is held to: exactly so many bytes, or the client can tell.
stream_of_known_length(Config) ->
    Port = start(Config, fun(Req) ->
                                 [N] = erlane_http:path(Req),
                                 {stream, 200, [{<<"content-length">>, <<"5">>}],
                                  fun(Send) ->
                                          [Send(<<"x">>)
                                           || _ <- lists:seq(1, binary_to_integer(N))],
                                          ok
                                  end}
                         end),
    Socket = connect(Port),
    {200, _, <<"xxxxx">>} = get(Socket, "/5"),
    {200, _, cut} = get(Socket, "/4"),
    More = connect(Port),
    {200, _, <<"xxxxx">>} = get(More, "/6"),
    ?assert(is_closed(More)).

%% HTTP/1.0 knows no chunks: the body ends with the connection, by a reset if it is not whole.
stream_to_old_client(Config) ->
    Port = start(Config, fun(Req) ->
                                 {stream, 200, [],
                                  fun(Send) ->
                                          ok = Send("one"), ok = Send("two"),
                                          erlane_http:path(Req) =:= [] orelse error(broken),
                                          ok
                                  end}
                         end),
    Socket = connect(Port),
    {200, Headers, <<"onetwo">>} = ask(Socket, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"),
    ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
    Broken = connect(Port),
    send(Broken, "GET /broken HTTP/1.0\r\n\r\n"),
    ?assertEqual({error, econnreset}, to_the_end(Broken)).

to_the_end(Socket) ->
    ok = inet:setopts(Socket, [{show_econnreset, true}]),
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, _} -> to_the_end(Socket);
        Error -> Error
    end.

%% A stream that sends nothing is an empty body.
stream_without_a_piece(Config) ->
    Port = start(Config, fun(_) -> {stream, 200, [], fun(_) -> ok end} end),
    Socket = connect(Port),
    [?assertMatch({200, _, <<>>}, get(Socket, "/")) || _ <- [1, 2]].

%%% Files

%% Whole files and parts of them; what was opened is closed again.
files(Config) ->
    File = file(Config, "small", <<"0123456789">>),
    Empty = file(Config, "empty", <<>>),
    Self = self(),
    Port = start(Config, fun(Req) ->
                                 case erlane_http:path(Req) of
                                     [<<"all">>] -> {200, [], {file, File}};
                                     [<<"empty">>] -> {200, [], {file, list_to_binary(Empty)}};
                                     [<<"part">>] -> {206, [], {file, File, {2, 5}}};
                                     [<<"beyond">>] -> {206, [], {file, File, {6, 5}}};
                                     [<<"open">>] ->
                                         {ok, Fd} = file:open(File, [read, raw, binary]),
                                         Self ! {fd, Fd},
                                         {200, [], {file, Fd, {1, 3}}}
                                 end
                         end),
    Socket = connect(Port),
    {200, _, <<"0123456789">>} = get(Socket, "/all"),
    {200, _, <<>>} = get(Socket, "/empty"),
    {206, _, <<"23456">>} = get(Socket, "/part"),
    {200, _, <<"123">>} = get(Socket, "/open"),
    {200, _, <<"0123456789">>} = get(Socket, "/all"),
    %% What is not in the file cannot be sent.
    ?assertMatch({404, _, <<>>}, get(Socket, "/beyond")).

%% A file larger than all buffers goes out whole, twice, and a part of it.
big_file(Config) ->
    Data = rand:bytes(3000000),
    File = file(Config, "big", Data),
    Port = start(Config, fun(Req) ->
                                 case erlane_http:path(Req) of
                                     [] -> {200, [], {file, File}};
                                     _ -> {200, [], {file, File, {1000000, 1500000}}}
                                 end
                         end),
    Socket = connect(Port),
    {200, _, Data} = get(Socket, "/"),
    {200, _, Data} = get(Socket, "/"),
    {200, _, Part} = get(Socket, "/part"),
    ?assert(Part =:= binary:part(Data, 1000000, 1500000)).

%% What is no file is not found, and a directory or device is not read.
no_file(Config) ->
    Port = start(Config, fun(Req) -> {200, [], {file, erlane_http:raw_path(Req)}} end),
    Socket = connect(Port),
    [?assertMatch({404, _, <<>>}, get(Socket, Path)) || Path <- ["/no/such", "/tmp", "/dev/zero"]].

%%% Crashes

%% A crash before the first byte is a 500, whatever is raised; others go on.
crash_before(Config) ->
    Port = start(Config, fun(Req) ->
                                 case erlane_http:path(Req) of
                                     [<<"error">>] -> error(wanted);
                                     [<<"exit">>] -> exit(wanted);
                                     [<<"throw">>] -> throw(wanted);
                                     [<<"stream">>] ->
                                         {stream, 200, [], fun(_) -> error(wanted) end};
                                     _ -> {200, [], <<"x">>}
                                 end
                         end),
    Other = connect(Port),
    [begin
         Socket = connect(Port),
         {500, Headers, <<>>} = get(Socket, Target),
         ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
         ?assert(is_closed(Socket)),
         {200, _, <<"x">>} = get(Other, "/")
     end || Target <- ["/error", "/exit", "/throw", "/stream"]],
    ?assertMatch(#{crashes := N} when N >= 4, erlane_http:info(erlane_http_ct:name())).

%% One in the middle of an answer ends it without its end.
crash_amid(Config) ->
    Port = start(Config, fun(_) ->
                                 {stream, 200, [], fun(Send) -> ok = Send("one"), error(wanted) end}
                         end),
    ?assertMatch({200, _, cut}, get(connect(Port), "/")).

%% An answer that cannot be sent is a crash too: nothing of it goes out.
bad_answers(Config) ->
    Bad = [{200, [{<<"x">>, <<"a\r\nb: c">>}], <<>>}, {200, [{<<"x">>, <<"a", 0>>}], <<>>},
           {200, [{<<"x\n">>, <<"a">>}], <<>>}, {200, [{<<>>, <<"a">>}], <<>>},
           {200, [{<<"x:">>, <<"a">>}], <<>>}, {200, [{"x", <<"a">>}], <<>>},
           {200, [x], <<>>}, {200, [], no_body}, {100, [], <<>>}, {99, [], <<>>},
           {1000, [], <<>>}, {200, [], {file}}, ok, {stream, 100, [], fun(_) -> ok end},
           {stream, 200, [{<<"x">>, <<"\n">>}], fun(_) -> ok end}],
    Port = start(Config, fun(Req) ->
                                 [N] = erlane_http:path(Req),
                                 lists:nth(binary_to_integer(N), Bad)
                         end),
    [?assertMatch({_, {500, _, <<>>}},
                  {lists:nth(N, Bad), get(connect(Port), ["/", integer_to_list(N)])})
     || N <- lists:seq(1, length(Bad))].

%% While a handler runs, no message of the socket is in its mailbox, and what it leaves there
%% is no harm.
mailbox_is_the_handlers(Config) ->
    Self = self(),
    Port = start(Config, fun(_) ->
                                 Self ! {running, self()},
                                 First = receive Any -> Any end,
                                 self() ! left_over,
                                 {200, [], atom_to_binary(First)}
                         end),
    Socket = connect(Port),
    send(Socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: y\r\n\r\n"),
    [receive {running, Pid} -> Pid ! mine after ?WAIT_MS -> ct:fail(not_running) end
     || _ <- [1, 2]],
    {200, _, <<"mine">>} = answer(Socket),
    %% The second one may find what the first has left.
    {200, _, Second} = answer(Socket),
    ?assert(Second =:= <<"mine">> orelse Second =:= <<"left_over">>),
    %% A third one that comes later does not.
    send(Socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    receive {running, Last} -> Last ! mine after ?WAIT_MS -> ct:fail(not_running) end,
    ?assertMatch({200, _, <<"mine">>}, answer(Socket)).

%%% Helpers

file(Config, Name, Data) ->
    File = filename:join(proplists:get_value(priv_dir, Config), Name),
    ok = file:write_file(File, Data),
    File.
