%% SPDX-License-Identifier: Apache-2.0
%% @doc Bodies of requests: both framings, whole and in pieces, limits, deadlines, and what
%% becomes of one that nobody reads.
-module(erlane_http_body_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([whole/1, pieces_on_the_wire/1, trailers/1, continue/1, continue_only_when_wanted/1,
         limit/1, own_limit/1, refused_at_once/1, in_pieces/1, in_pieces_small/1, read_timeout/1,
         other_process/1, read_after_the_end/1, unread_is_drained/1, unread_too_much/1,
         unread_chunks/1, slow_body/1, steady_body/1, slow_piece/1, cut_off/1,
         bad_chunk_in_stream/1,
         bad_chunk_after_answer/1, init_crashes/1, small_chunks_stay_small/1]).
-export([chunks_round/1, split_anywhere/1, chunk_limits/1]).

-import(erlane_http_ct, [start/2, start/3, connect/1, get/2, ask/2, send/2, answer/1, is_closed/1,
                         connections/1]).

-define(WAIT_MS, 5000).
-define(POST, "POST / HTTP/1.1\r\nHost: x\r\n").
-define(CHUNKED, ?POST "Transfer-Encoding: chunked\r\n\r\n").

all() -> [{group, erlane}, {group, gen_tcp}, chunks_round, split_anywhere, chunk_limits].

groups() ->
    Cases = [whole, pieces_on_the_wire, trailers, continue, continue_only_when_wanted, limit,
             own_limit, refused_at_once, in_pieces, in_pieces_small, read_timeout, other_process,
             read_after_the_end, unread_is_drained, unread_too_much, unread_chunks, slow_body,
             steady_body, slow_piece, cut_off, bad_chunk_in_stream, bad_chunk_after_answer,
             init_crashes, small_chunks_stay_small],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) -> erlane_http_ct:stop(Config).

echo(Req) -> {200, [], erlane_http:body(Req)}.

%% Reads all in pieces of at least so many bytes; the sizes that came.
pieces(Length) ->
    fun(Req) -> pieces(Req, #{length => Length}, [], <<>>) end.

pieces(Req, Options, Sizes, Acc) ->
    case erlane_http:read_body(Req, Options) of
        {more, Data, Req1} ->
            pieces(Req1, Options, [byte_size(Data) | Sizes], <<Acc/binary, Data/binary>>);
        {ok, Data, Req1} ->
            {200, [{<<"sizes">>, iolist_to_binary(io_lib:format("~0p", [lists:reverse(Sizes)]))},
                   {<<"trailers">>, iolist_to_binary([[N, $=, V, $;]
                                                      || {N, V} <- erlane_http:trailers(Req1)])}],
             <<Acc/binary, Data/binary>>}
    end.

stream(Handle) -> #{handle => Handle, init => fun(_) -> {ok, stream} end}.

%% Both framings, none, and an empty body; the connection goes on behind each.
whole(Config) ->
    Socket = connect(start(Config, fun echo/1)),
    Big = rand:bytes(500000),
    [?assertMatch({_, {200, _, Body}}, {Request, ask(Socket, Request)})
     || {Request, Body} <- [{[?POST, "Content-Length: 5\r\n\r\nhello"], <<"hello">>},
                            {[?CHUNKED, "3\r\nhel\r\n2;x=\"y\"\r\nlo\r\n0\r\n\r\n"], <<"hello">>},
                            {[?POST, "\r\n"], <<>>},
                            {[?POST, "Content-Length: 0\r\n\r\n"], <<>>},
                            {[?CHUNKED, "0\r\n\r\n"], <<>>},
                            {[?POST, "Content-Length: 500000\r\n\r\n", Big], Big},
                            {[?CHUNKED, "7A120\r\n", Big, "\r\n000\r\n\r\n"], Big},
                            {"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\na", <<"a">>}]].

%% Bytes may come one by one, and two requests in one packet.
pieces_on_the_wire(Config) ->
    Socket = connect(start(Config, fun echo/1)),
    Requests = <<?CHUNKED "5\r\nhello\r\n0\r\n\r\n" ?POST "Content-Length: 2\r\n\r\nab">>,
    [send(Socket, [Byte]) || <<Byte>> <= Requests],
    ?assertMatch({200, _, <<"hello">>}, answer(Socket)),
    ?assertMatch({200, _, <<"ab">>}, answer(Socket)),
    send(Socket, [Requests, Requests]),
    [?assertMatch({200, _, Body}, answer(Socket))
     || Body <- [<<"hello">>, <<"ab">>, <<"hello">>, <<"ab">>]].

%% Trailers are told apart from headers; those that would mean something elsewhere are dropped.
trailers(Config) ->
    Handle = fun(Req) ->
                     Pairs = erlane_http:trailers(Req),
                     undefined = erlane_http:header(<<"sum">>, Req),
                     {200, [], [[N, $=, V, $;] || {N, V} <- Pairs]}
             end,
    Socket = connect(start(Config, Handle)),
    ?assertMatch({200, _, <<"sum=1;x=2;">>},
                 ask(Socket, [?CHUNKED, "1\r\na\r\n0\r\nSum: 1\r\nHost: evil\r\n"
                              "Content-Length: 9\r\nAuthorization: me\r\nX:2\r\n"
                              "Transfer-Encoding: gzip\r\n\r\n"])).

%% 100 is sent when the body is wanted and not here, once.
continue(Config) ->
    Socket = connect(start(Config, fun echo/1)),
    [begin
         ?assertMatch({100, [], _}, ask(Socket, [?POST "Expect: 100-Continue\r\n", Framing])),
         ?assertMatch({200, _, <<"hello">>}, ask(Socket, Body))
     end || {Framing, Body} <- [{"Content-Length: 5\r\n\r\n", "hello"},
                                {"Transfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n0\r\n\r\n"}]],
    ?assertMatch({200, _, <<"hello">>},
                 ask(Socket, [?POST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"])),
    ?assertMatch({200, _, <<>>}, ask(Socket, [?POST "Expect: 100-continue\r\n\r\n"])).

%% Who does not want the body does not ask for it, and the connection ends: nobody knows whether
%% it will come.
continue_only_when_wanted(Config) ->
    Port = start(Config, stream(fun(_) -> {401, [], <<>>} end)),
    Socket = connect(Port),
    {401, Headers, <<>>} = ask(Socket, [?POST "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"]),
    ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
    ?assert(is_closed(Socket)).

%% The limit is exact for both framings.
limit(Config) ->
    Port = start(Config, fun echo/1, #{max_body => 10}),
    [?assertMatch({Status, _, _}, ask(connect(Port), Request))
     || {Status, Request} <-
            [{200, [?POST, "Content-Length: 10\r\n\r\n0123456789"]},
             {413, [?POST, "Content-Length: 11\r\n\r\n01234567890"]},
             {200, [?CHUNKED, "5\r\nhello\r\n5\r\nhello\r\n0\r\n\r\n"]},
             {413, [?CHUNKED, "5\r\nhello\r\n6\r\nhello!\r\n0\r\n\r\n"]},
             {413, [?CHUNKED, "5\r\nhello\r\n6\r\n"]}]].

%% A handler may set another limit for a request.
own_limit(Config) ->
    Init = fun(Req) ->
                   case erlane_http:path(Req) of
                       [] -> {ok, read};
                       [N] -> {ok, {read, binary_to_integer(N)}}
                   end
           end,
    Port = start(Config, #{handle => fun echo/1, init => Init}, #{max_body => 3}),
    Post = fun(Target, Body) ->
                   {Status, _, _} = ask(connect(Port), ["POST ", Target, " HTTP/1.1\r\nHost: x\r\n"
                                                        "Content-Length: ",
                                                        integer_to_list(length(Body)), "\r\n\r\n",
                                                        Body]),
                   Status
           end,
    ?assertEqual([200, 413, 200, 413, 200, 413],
                 [Post("/", "abc"), Post("/", "abcd"), Post("/5", "abcde"), Post("/5", "abcdef"),
                  Post("/1", "a"), Post("/2", "abc")]).

%% A length that is too much is refused before the body, and without a 100.
refused_at_once(Config) ->
    Port = start(Config, fun echo/1),
    [begin
         Socket = connect(Port),
         ?assertMatch({413, _, <<>>},
                      ask(Socket, [?POST, More, "Content-Length: 1048577\r\n\r\n"])),
         ?assert(is_closed(Socket))
     end || More <- ["", "Expect: 100-continue\r\n"]].

%%% In pieces

%% Whoever reads in pieces gets all, in no fewer bytes than asked for but at the end, without a
%% limit.
in_pieces(Config) ->
    Port = start(Config, stream(pieces(100000)), #{max_body => 10}),
    Socket = connect(Port),
    Body = rand:bytes(1000000),
    Chunks = [[integer_to_list(50000, 16), "\r\n", binary:part(Body, I * 50000, 50000), "\r\n"]
              || I <- lists:seq(0, 19)],
    [begin
         {200, Headers, Got} = ask(Socket, Request),
         ?assert(Got =:= Body),
         {ok, Tokens, _} = erl_scan:string(
                             binary_to_list(proplists:get_value(<<"sizes">>, Headers)) ++ "."),
         {ok, Sizes} = erl_parse:parse_term(Tokens),
         ?assert(length(Sizes) > 1),
         [?assert(Size >= 100000) || Size <- Sizes]
     end || Request <- [[?POST, "Content-Length: 1000000\r\n\r\n", Body],
                        [?CHUNKED, Chunks, "0\r\n\r\n"]]],
    ?assertMatch({200, _, <<"x">>}, ask(Socket, [?POST, "Content-Length: 1\r\n\r\nx"])).

%% Pieces of a few bytes; trailers are there with the last.
in_pieces_small(Config) ->
    Socket = connect(start(Config, stream(pieces(2)))),
    send(Socket, ?CHUNKED),
    [send(Socket, Part)
     || Part <- ["1\r\na\r\n", "3\r\nbcd\r\n", "2\r\ne", "f\r", "\n0\r", "\nt: 1\r\n", "\r\n"]],
    {200, Headers, <<"abcdef">>} = answer(Socket),
    ?assertEqual(<<"t=1;">>, proplists:get_value(<<"trailers">>, Headers)).

%% A read that may not take long gives what came, and can go on.
read_timeout(Config) ->
    Self = self(),
    Handle = fun(Req) ->
                     {more, <<"ab">>, Req1} =
                         erlane_http:read_body(Req, #{length => 5, timeout => 50}),
                     {more, <<>>, Req2} = erlane_http:read_body(Req1, #{timeout => 0}),
                     Self ! go_on,
                     {ok, <<"cde">>, _} = erlane_http:read_body(Req2, #{timeout => infinity}),
                     {200, [], <<>>}
             end,
    Socket = connect(start(Config, stream(Handle))),
    send(Socket, [?POST, "Content-Length: 5\r\n\r\nab"]),
    receive go_on -> ok after ?WAIT_MS -> ct:fail(no_piece) end,
    ?assertMatch({200, _, <<>>}, ask(Socket, "cde")).

%% Only the process of the request may read; another one is told.
other_process(Config) ->
    Handle = fun(Req) ->
                     Self = self(),
                     _ = spawn(fun() -> Self ! {told, catch erlane_http:read_body(Req, #{})} end),
                     receive {told, {'EXIT', {not_the_process_of_the_request, _}}} -> ok end,
                     {ok, Body, _} = erlane_http:read_body(Req, #{}),
                     {200, [], Body}
             end,
    ?assertMatch({200, _, <<"abc">>}, ask(connect(start(Config, stream(Handle))),
                                          [?POST, "Content-Length: 3\r\n\r\nabc"])).

%% At its end a body is read to its end, how often one asks, also through the old request; and
%% one without a body has nothing to read.
read_after_the_end(Config) ->
    Handle = fun(Req) ->
                     {ok, Body, _} = erlane_http:read_body(Req, #{}),
                     [{ok, <<>>, _} = erlane_http:read_body(Req, #{}) || _ <- [1, 2]],
                     {200, [], [Body, erlane_http:body(Req)]}
             end,
    Socket = connect(start(Config, stream(Handle))),
    ?assertMatch({200, _, <<"abc">>}, ask(Socket, [?POST, "Content-Length: 3\r\n\r\nabc"])),
    ?assertMatch({200, _, <<>>}, get(Socket, "/")).

%%% Unread

%% What is left of a body is read away, and the connection goes on.
unread_is_drained(Config) ->
    Port = start(Config, stream(fun(_) -> {200, [], <<"unread">>} end), #{drain_bytes => 1000}),
    Socket = connect(Port),
    [?assertMatch({200, _, <<"unread">>}, ask(Socket, Request))
     || Request <- [[?POST, "Content-Length: 1000\r\n\r\n", binary:copy(<<"x">>, 1000)],
                    [?CHUNKED, "3E8\r\n", binary:copy(<<"x">>, 1000), "\r\n0\r\n\r\n"],
                    [?POST, "Content-Length: 1\r\n\r\nx"], [?POST, "\r\n"]]],
    %% The answer does not wait for what is left.
    ?assertMatch({200, _, <<"unread">>}, ask(Socket, [?POST, "Content-Length: 5\r\n\r\nab"])),
    ?assertMatch({200, _, <<"unread">>}, ask(Socket, ["cde", ?POST, "\r\n"])).

%% More than that ends the connection, and the answer says so.
unread_too_much(Config) ->
    Port = start(Config, stream(fun(_) -> {200, [], <<"unread">>} end), #{drain_bytes => 1000}),
    Socket = connect(Port),
    {200, Headers, _} = ask(Socket, [?POST, "Content-Length: 1001\r\n\r\n",
                                     binary:copy(<<"x">>, 1001), "GET / HTTP/1.1\r\n"]),
    ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
    ?assert(is_closed(Socket)).

%% Of chunks nobody knows before how many come; too many, or bad ones, end the connection.
unread_chunks(Config) ->
    Port = start(Config, stream(fun(_) -> {200, [], <<"unread">>} end), #{drain_bytes => 10}),
    [begin
         Socket = connect(Port),
         {200, _, <<"unread">>} = ask(Socket, [?CHUNKED, Chunks]),
         ?assert(is_closed(Socket))
     end || Chunks <- ["5\r\nhello\r\n6\r\nhello!\r\n0\r\n\r\n", "5\r\nhello\r\n6\r\n", "x\r\n"]].

%%% Deadlines

%% A body that comes too slowly is given up, and one that stops; the client is told.
slow_body(Config) ->
    Port = start(Config, fun echo/1, #{body_grace => 200, body_min_rate => 1000}),
    [begin
         Socket = connect(Port),
         Before = now_ms(),
         {408, Headers, <<>>} = ask(Socket, Request),
         ?assert(now_ms() - Before >= 199),
         ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
         ?assert(is_closed(Socket))
     end || Request <- [[?POST, "Content-Length: 10\r\n\r\n"], [?CHUNKED, "5\r\nhe"],
                        [?POST, "Content-Length: 1000\r\n\r\n", binary:copy(<<"x">>, 100)]]],
    #{timeouts := Timeouts} = erlane_http:info(erlane_http_ct:name()),
    ?assert(Timeouts >= 3).

%% One that is fast enough may take longer than the grace.
steady_body(Config) ->
    Port = start(Config, fun echo/1, #{body_grace => 100, body_min_rate => 1000}),
    Socket = connect(Port),
    send(Socket, [?POST, "Content-Length: 3000\r\n\r\n"]),
    Part = binary:copy(<<"x">>, 100),
    [begin send(Socket, Part), receive after 10 -> ok end end || _ <- lists:seq(1, 30)],
    {200, _, Body} = answer(Socket),
    ?assertEqual(3000, byte_size(Body)).

%% Reading in pieces has the same deadline; time that the handler takes itself does not count.
slow_piece(Config) ->
    Self = self(),
    Handle = fun(Req) ->
                     {more, <<"ab">>, Req1} = erlane_http:read_body(Req, #{length => 2}),
                     Self ! working,
                     receive after 300 -> ok end,
                     {more, <<"cd">>, Req2} = erlane_http:read_body(Req1, #{length => 2}),
                     erlane_http:read_body(Req2, #{length => 1, timeout => infinity})
             end,
    Port = start(Config, stream(Handle), #{body_grace => 200, body_min_rate => 1000000}),
    Socket = connect(Port),
    send(Socket, [?POST, "Content-Length: 10\r\n\r\n"]),
    send(Socket, "ab"),
    receive working -> ok after ?WAIT_MS -> ct:fail(no_piece) end,
    ?assertMatch({408, _, <<>>}, ask(Socket, "cd")).

%%% Faults

%% A client that goes away in the middle is no crash, and nothing runs for it.
cut_off(Config) ->
    Self = self(),
    Port = start(Config, (stream(fun(Req) -> Self ! reading, pieces(10, Req) end))#{event => Self}),
    [begin
         Socket = connect(Port),
         send(Socket, Request),
         receive reading -> ok after ?WAIT_MS -> ct:fail(no_request) end,
         ok = gen_tcp:close(Socket),
         receive {event, closed, _} -> ok after ?WAIT_MS -> ct:fail(not_closed) end
     end || Request <- [[?POST, "Content-Length: 10\r\n\r\nabc"], [?CHUNKED, "5\r\nhe"]]],
    connections(0),
    receive {event, Name, Data} -> ct:fail({Name, Data}) after 0 -> ok end.

pieces(Length, Req) -> (pieces(Length))(Req).

%% Bad framing ends a request whose handler is reading; the client gets the status.
bad_chunk_in_stream(Config) ->
    Port = start(Config, stream(pieces(10))),
    Socket = connect(Port),
    {400, Headers, <<>>} = ask(Socket, [?CHUNKED, "5\r\nhello\r\n-1\r\n\r\nGET / HTTP/1.1\r\n"]),
    ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
    ?assert(is_closed(Socket)).

%% When part of an answer is out, the connection is cut instead.
bad_chunk_after_answer(Config) ->
    Handle = fun(Req) ->
                     {stream, 200, [], fun(Send) ->
                                               ok = Send("begun"),
                                               {ok, _, _} = erlane_http:read_body(Req, #{}),
                                               ok
                                       end}
             end,
    Port = start(Config, stream(Handle)),
    %% A body is the handler's only until it answers.
    ?assertMatch({200, _, cut}, ask(connect(Port), [?CHUNKED, "x\r\n"])).

%% A crash of init/2, or an answer it must not give, is a 500.
init_crashes(Config) ->
    Init = fun(Req) ->
                   case erlane_http:path(Req) of
                       [<<"crash">>] -> error(wanted);
                       _ -> whatever
                   end
           end,
    Port = start(Config, #{handle => fun echo/1, init => Init}),
    [?assertMatch({500, _, <<>>},
                  ask(connect(Port), ["POST ", Target, " HTTP/1.1\r\nHost: x\r\n"
                                      "Content-Length: 1\r\n\r\nx"]))
     || Target <- ["/crash", "/other"]].

%% A body of very many very small chunks takes no more memory than a few times its size.
small_chunks_stay_small(Config) ->
    Self = self(),
    Port = start(Config, fun(Req) ->
                                 {memory, Memory} = process_info(self(), memory),
                                 Self ! {memory, Memory},
                                 {200, [], integer_to_binary(byte_size(erlane_http:body(Req)))}
                         end),
    Socket = connect(Port),
    {200, _, <<"200000">>} =
        ask(Socket, [?CHUNKED, lists:duplicate(200000, "1\r\nx\r\n"), "0\r\n\r\n"]),
    receive {memory, Memory} -> ?assert(Memory < 8000000) end.

%%% The coding itself

%% What is written is read again, with what follows it.
chunks_round(_Config) ->
    Pieces = [<<"a">>, binary:copy(<<"b">>, 300), <<"c">>],
    Bytes = iolist_to_binary([[erlane_http_chunked:chunk(P) || P <- Pieces],
                              erlane_http_chunked:last(<<"t: 1\r\n">>), "rest"]),
    ?assertEqual({done, Pieces, [{<<"t">>, <<"1">>}], <<"rest">>},
                 erlane_http_chunked:decode(Bytes, new())).

%% The result does not depend on how the bytes come.
split_anywhere(_Config) ->
    Bytes = <<"5;a=\"b;\\\"\"\r\nhello\r\n00A \t;x\r\n0123456789\r\n"
              "0\r\nT: 1\r\nU: 2\r\n\r\nrest">>,
    {done, Pieces, Trailers, <<"rest">>} = erlane_http_chunked:decode(Bytes, new()),
    ?assertEqual(<<"hello0123456789">>, iolist_to_binary(Pieces)),
    [begin
         ?assertEqual({N, M, <<"hello0123456789">>, Trailers, <<"rest">>},
                      {N, M, Body, Got, Rest})
     end || N <- lists:seq(0, byte_size(Bytes)), M <- [0, 1, 3],
            N + M =< byte_size(Bytes),
            {Body, Got, Rest} <- [feed(parts(Bytes, N, M), new(), [])]],
    ?assertEqual({<<"hello0123456789">>, Trailers, <<"rest">>},
                 feed([<<C>> || <<C>> <= Bytes], new(), [])).

parts(Bytes, N, M) ->
    <<A:N/binary, B:M/binary, C/binary>> = Bytes,
    [A, B, C].

feed([Part | Parts], State, Acc) ->
    case erlane_http_chunked:decode(Part, State) of
        {more, Pieces, State1} -> feed(Parts, State1, [Acc, Pieces]);
        {done, Pieces, Trailers, Rest} ->
            {iolist_to_binary([Acc, Pieces]), Trailers, iolist_to_binary([Rest, Parts])}
    end.

%% Both sides of the limits of sizes and extensions, and forms that are none.
chunk_limits(_Config) ->
    Is = fun(Text) ->
                 case erlane_http_chunked:decode(iolist_to_binary(Text), new()) of
                     {error, 400, Why} -> Why;
                     {error, Status, _} -> Status;
                     {more, _, _} -> more;
                     {done, _, _, _} -> done
                 end
         end,
    Ext = fun(N) -> ["1;", lists:duplicate(N - 1, $a), "\r\nx\r\n0\r\n\r\n"] end,
    ?assertEqual([done, long_extension, more, long_size, long_size, more, long_size],
                 [Is(T) || T <- [Ext(256), Ext(257), "0000000000000001\r\n",
                                 "00000000000000001\r\n", "8000000000000000\r\n",
                                 "7fffffffffffffff\r\n", "FFFFFFFFFFFFFFFFF"]]),
    [?assertMatch({_, bad_size}, {T, Is(T)})
     || T <- ["\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", " 1\r\n", "g\r\n", "1g\r\n", "1\n", ";\r\n"]],
    [?assertMatch({_, bad_extension}, {T, Is(T)})
     || T <- ["1 \r\n", "1;a\n", "1;a\rb", "1 x\r\n", "1;\"\r\n", "1;a=\"\\\r\n", [<<"1;">>, 0]]],
    [?assertMatch({_, bad_end}, {T, Is(T)}) || T <- ["1\r\nxx", "1\r\nx\n", "1\r\nx\rx"]].

new() -> erlane_http_chunked:new(erlane_http_head:limits(), 256).

now_ms() -> erlang:monotonic_time(millisecond).
