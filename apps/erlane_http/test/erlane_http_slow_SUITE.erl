%% SPDX-License-Identifier: Apache-2.0
%% Clients that are slow, endless or deaf: each gets the right status or the end, memory stays
%% bounded, and a good client beside them is served all the time. The deadlines are set short.
-module(erlane_http_slow_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([slow_heads/1, slow_second_head/1, silence/1, idle_is_silent/1, slow_bodies/1,
         body_fast_enough/1, slow_body_in_pieces/1, endless/1, huge_chunks/1,
         never_reads_answers/1, never_reads_pipelined/1, many_slow/1, answer_amid_upload/1,
         connections_are_exact/1]).

-define(SOON, 250).        % the deadlines of the servers here, in milliseconds
-define(LATE, 4000).       % no deadline may take as long
-define(PACE, 10).         % between two bytes of a slow client
-define(MEMORY, 40000000). % bytes the VM may grow by

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [slow_heads, slow_second_head, silence, idle_is_silent, slow_bodies, body_fast_enough,
     slow_body_in_pieces, endless, huge_chunks, never_reads_answers, never_reads_pipelined,
     many_slow, answer_amid_upload, connections_are_exact].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_testcase(_Case, Config) ->
    persistent_term:put({erlane_http_raw_handler, flood}, counters:new(1, [])),
    Config.

end_per_testcase(Case, _Config) ->
    _ = erlane_http:stop(Case, #{drain => 0}),
    ok.

%% The listener of a case, with a good client on it: the fun ends it and fails if one of its
%% requests took too long or memory has grown.
start(Case, Opts) ->
    Port = erlane_http_raw_handler:start(Case, Opts),
    _ = [erlang:garbage_collect(P) || P <- processes()],
    Memory = erlang:memory(total),
    Self = self(),
    Good = spawn_link(fun() ->
                              erlane_http_raw_handler:seen(),
                              good(erlane_http_raw:connect(Port), Self, #{n => 0, worst => 0,
                                                                          memory => 0})
                      end),
    {Port, fun() ->
                   Good ! {Self, stop},
                   #{n := N, worst := Worst, memory := Peak} =
                       receive {Good, Result} -> Result end,
                   ct:pal("good client: ~b requests, the slowest ~b ms; ~b KB more memory",
                          [N, Worst, (Peak - Memory) div 1024]),
                   ?assert(N > 0),
                   ?assert(Worst < 1000),
                   ?assert(Peak - Memory < ?MEMORY)
           end}.

good(Conn, Parent, #{n := N, worst := Worst, memory := Memory} = State) ->
    receive
        {Parent, stop} ->
            ok = erlane_http_raw:close(Conn),
            Parent ! {self(), State}
    after ?PACE ->
        Began = now_ms(),
        {#{status := 200}, Next} = erlane_http_raw:get(Conn, "/good"),
        good(Next, Parent, #{n => N + 1, worst => max(Worst, now_ms() - Began),
                             memory => max(Memory, erlang:memory(total))})
    end.

%% Sends the bytes one at a time, then the last ones again and again, until there is an answer.
trickle(Conn, Bytes) -> trickle(Conn, Bytes, now_ms() + ?LATE).

trickle(Conn, [Byte | Rest], Deadline) ->
    case erlane_http_raw:peek(erlane_http_raw:send(Conn, [Byte]), ?PACE) of
        {timeout, Next} ->
            now_ms() < Deadline orelse ct:fail(not_ended_in_time),
            trickle(Next, case Rest of [] -> [Byte]; _ -> Rest end, Deadline);
        {_, Next} ->
            Next
    end.

%%% Heads

%% The deadline is one of the whole head: bytes that come do not move it.
slow_heads(_Config) ->
    {Port, Done} = start(slow_heads, #{head_timeout => ?SOON, idle_timeout => 60000}),
    [begin
         Began = now_ms(),
         Conn = trickle(erlane_http_raw:connect(Port), Head),
         timed_out(Conn, Began)
     end || Head <- ["GET / HTTP/1.1\r\nHost: x\r\nA: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                     "GET /aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                     "GET / HTTP/1.1\r\nHost: x\r\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "G"]],
    ?assertNot(lists:member(<<"/">>, erlane_http_raw_handler:seen())),
    Done().

%% So it is for a request that is not the first.
slow_second_head(_Config) ->
    {Port, Done} = start(slow_second_head, #{head_timeout => ?SOON, idle_timeout => 60000}),
    {#{status := 200}, Conn} = erlane_http_raw:get(erlane_http_raw:connect(Port), "/"),
    Began = now_ms(),
    timed_out(trickle(Conn, "GET / HTTP/1.1\r\nHost: x\r\nA: b"), Began),
    %% And of one that came with the end of the one before.
    Conn1 = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                 "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /"),
    Again = now_ms(),
    {#{status := 200}, Conn2} = erlane_http_raw:answer(Conn1),
    timed_out(Conn2, Again),
    Done().

timed_out(Conn, Began) ->
    {#{status := 408, headers := Headers}, Conn1} = erlane_http_raw:answer(Conn),
    Took = now_ms() - Began,
    ?assertEqual(<<"close">>, proplists:get_value(<<"connection">>, Headers)),
    ?assertEqual(closed, erlane_http_raw:ended(Conn1)),
    ?assert(Took >= ?SOON - 50),
    ?assert(Took < ?LATE).

%% Who says nothing gets no answer either, only the end.
silence(_Config) ->
    {Port, Done} = start(silence, #{head_timeout => ?SOON, idle_timeout => ?SOON}),
    ?assertEqual(closed, erlane_http_raw:ended(erlane_http_raw:connect(Port))),
    Done().

idle_is_silent(_Config) ->
    {Port, Done} = start(idle_is_silent, #{head_timeout => 60000, idle_timeout => ?SOON}),
    {#{status := 200}, Conn} = erlane_http_raw:get(erlane_http_raw:connect(Port), "/"),
    Began = now_ms(),
    ?assertEqual(closed, erlane_http_raw:ended(Conn)),
    ?assert(now_ms() - Began >= ?SOON - 50),
    Done().

%%% Bodies

slow_bodies(_Config) ->
    {Port, Done} = start(slow_bodies, #{body_grace => ?SOON, body_min_rate => 100000}),
    [begin
         Began = now_ms(),
         Conn = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                     ["POST / HTTP/1.1\r\nHost: x\r\n", Head, "\r\n\r\n"]),
         timed_out(trickle(Conn, Body), Began)
     end || {Head, Body} <-
                [{"Content-Length: 100000", "a"},
                 {"Transfer-Encoding: chunked", "FFFF\r\na"},
                 {"Transfer-Encoding: chunked", lists:append(lists:duplicate(500, "1\r\na\r\n"))},
                 {"Transfer-Encoding: chunked", "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
                 {"Transfer-Encoding: chunked", "0\r\nA: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"}]],
    %% Nothing at all comes after the head, or after a part.
    [begin
         Began = now_ms(),
         timed_out(erlane_http_raw:send(erlane_http_raw:connect(Port),
                                        ["POST / HTTP/1.1\r\nHost: x\r\n", Rest]), Began)
     end || Rest <- ["Content-Length: 5\r\n\r\n", "Content-Length: 5\r\n\r\nhell",
                     "Transfer-Encoding: chunked\r\n\r\n",
                     "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"]],
    ?assertNot(lists:member(<<"/">>, erlane_http_raw_handler:seen())),
    Done().

%% A body that comes at more than the rate may take longer than the grace.
body_fast_enough(_Config) ->
    {Port, Done} = start(body_fast_enough, #{body_grace => ?SOON, body_min_rate => 1000,
                                             head_timeout => ?SOON}),
    Began = now_ms(),
    Size = 200000,
    Conn = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                ["POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                                 integer_to_list(Size), "\r\n\r\n"]),
    Piece = binary:copy(<<"a">>, 1000),
    Conn1 = lists:foldl(fun(_, C) ->
                                {timeout, Next} =
                                    erlane_http_raw:peek(erlane_http_raw:send(C, Piece), 3),
                                Next
                        end, Conn, lists:seq(2, Size div 1000)),
    {#{status := 200, body := Body}, Conn2} =
        erlane_http_raw:answer(erlane_http_raw:send(Conn1, Piece)),
    ?assertEqual(Size + byte_size(<<"POST / x ">>), byte_size(Body)),
    ?assert(now_ms() - Began > 2 * ?SOON),
    {#{status := 200}, _} = erlane_http_raw:get(Conn2, "/next"),
    Done().

%% A handler that reads in pieces is told, and the client gets the same answer.
slow_body_in_pieces(_Config) ->
    {Port, Done} = start(slow_body_in_pieces, #{body_grace => ?SOON, body_min_rate => 100000}),
    Began = now_ms(),
    Conn = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                "POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n"),
    timed_out(trickle(Conn, "a"), Began),
    Done().

%%% Without end

%% What never ends is refused where its limit is, not when memory ends.
endless(_Config) ->
    {Port, Done} = start(endless, #{head_timeout => 20000, body_grace => 20000}),
    Get = "GET / HTTP/1.1\r\nHost: x\r\n",
    Chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    [begin
         Conn = erlane_http_raw:send(erlane_http_raw:connect(Port), First),
         {Sent, Conn1} = flood(Conn, binary:copy(iolist_to_binary(More), 1000), 0),
         {#{status := Status}, Conn2} = erlane_http_raw:answer(Conn1),
         ct:pal("~0p: ~b after ~b bytes", [More, Status, Sent]),
         ?assert(lists:member(Status, Statuses)),
         ?assertEqual(closed, erlane_http_raw:ended(Conn2)),
         ?assert(Sent < 20000000)
     end || {First, More, Statuses} <-
                [{"", "G", [501]}, {"GET /", "a", [414]}, {"GET /?", "a", [414]},
                 {"GET ", "a", [400, 414]}, {Get, "A: b\r\n", [431]}, {Get, "A", [431]},
                 {[Get, "A:"], "b", [431]}, {[Get, "A:"], " ", [431]},
                 {Get, "A: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n", [431]},
                 {Chunked, "0", [400]}, {[Chunked, "1;"], "a", [400]},
                 {[Chunked, "1;"], "a=b;", [400]}, {Chunked, "1\r\na\r\n", [413]},
                 {[Chunked, "0\r\n"], "A: b\r\n", [400, 431]},
                 {[Chunked, "0\r\n"], "Host: b\r\n", [400, 431]},
                 {[Chunked, "0\r\nA:"], "b", [400, 431]}]],
    Done().

%% Sends until there is an answer.
flood(Conn, Piece, Sent) ->
    case erlane_http_raw:peek(erlane_http_raw:send(Conn, Piece), 0) of
        {timeout, Next} when Sent < 50000000 -> flood(Next, Piece, Sent + byte_size(Piece));
        {_, Next} -> {Sent + byte_size(Piece), Next}
    end.

%% A size is a promise; nothing is set aside for it.
huge_chunks(_Config) ->
    {Port, Done} = start(huge_chunks, #{}),
    Conns = [erlane_http_raw:send(erlane_http_raw:connect(Port),
                                  ["POST /stream HTTP/1.1\r\nHost: x\r\n", Head, "\r\n\r\n", Part])
             || _ <- lists:seq(1, 20),
                {Head, Part} <- [{"Transfer-Encoding: chunked", "7FFFFFFFFFFFFFFF\r\nhello"},
                                 {"Transfer-Encoding: chunked", "FFFFFFFF\r\nhello"},
                                 {"Content-Length: 9223372036854775807", "hello"}]],
    Big = binary:copy(<<"a">>, 1000000),
    [erlane_http_raw:swallowed(erlane_http_raw:send(C, Big)) || C <- lists:sublist(Conns, 6)],
    [ok = erlane_http_raw:close(C) || C <- Conns],
    gone(huge_chunks, length(Conns)),
    Done().

%%% Deaf

%% Clients that never read: each is cut when nothing was taken for a while, and the handlers end.
never_reads_answers(_Config) ->
    {Port, Done} = start(never_reads_answers, #{send_timeout => ?SOON}),
    Counter = persistent_term:get({erlane_http_raw_handler, flood}),
    Conns = [erlane_http_raw:send(erlane_http_raw:connect(Port, [{recbuf, 4096}]),
                                  "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
             || _ <- lists:seq(1, 20)],
    gone(never_reads_answers, length(Conns)),
    Sent = counters:get(Counter, 1),
    ct:pal("~b KB sent to each", [Sent div 20 div 1024]),
    ?assert(Sent > 0),
    [ok = erlane_http_raw:close(C) || C <- Conns],
    Done().

%% Nor are requests read without end when nobody takes the answers.
never_reads_pipelined(_Config) ->
    {Port, Done} = start(never_reads_pipelined, #{send_timeout => ?SOON,
                                                  max_requests => infinity}),
    Requests = binary:copy(<<"GET /big/10000 HTTP/1.1\r\nHost: x\r\n\r\n">>, 1000),
    Senders = [begin
                   {_, Ref} = spawn_monitor(fun() -> deaf(Port, Requests) end),
                   Ref
               end || _ <- lists:seq(1, 10)],
    [receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(normal, Why) end || Ref <- Senders],
    gone(never_reads_pipelined, length(Senders)),
    Done().

%% Sends until the server has closed.
deaf(Port, Requests) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port,
                                   [binary, {active, false}, {recbuf, 4096}, {sndbuf, 65536}]),
    deaf_send(Socket, Requests).

deaf_send(Socket, Requests) ->
    case gen_tcp:send(Socket, Requests) of
        ok -> deaf_send(Socket, Requests);
        {error, _} -> gen_tcp:close(Socket)
    end.

%%% Many

%% Hundreds at once are each told in time.
many_slow(_Config) ->
    {Port, Done} = start(many_slow, #{head_timeout => ?SOON, body_grace => ?SOON,
                                      body_min_rate => 100000}),
    Firsts = ["G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: x\r\n",
              "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\na"],
    Conns = [erlane_http_raw:send(erlane_http_raw:connect(Port), F)
             || _ <- lists:seq(1, 100), F <- Firsts],
    [begin
         {#{status := 408}, Next} = erlane_http_raw:answer(C),
         ?assertEqual(closed, erlane_http_raw:ended(Next)),
         ok = erlane_http_raw:close(Next)
     end || C <- Conns],
    gone(many_slow, length(Conns)),
    Done().

%% The answer to an upload that is refused is read by a client that reads only afterwards: the
%% server takes what is on its way before it closes.
answer_amid_upload(_Config) ->
    {Port, Done} = start(answer_amid_upload, #{max_body => 1000}),
    [begin
         Conn = erlane_http_raw:send(
                  erlane_http_raw:connect(Port),
                  ["POST ", Target, " HTTP/1.1\r\nHost: x\r\nContent-Length: ",
                   integer_to_list(Size), "\r\n\r\n", binary:copy(<<"a">>, Size)]),
         {#{status := Status}, _} = erlane_http_raw:answer(Conn),
         ?assertEqual(Expected, Status)
     end || Size <- [2000, 50000],
            {Target, Expected} <- [{"/", 413}, {"/unread", 200}],
            _ <- lists:seq(1, 20)],
    Done().

%% As many as allowed are served; the next waits until one has gone.
connections_are_exact(_Config) ->
    Port = erlane_http_raw_handler:start(connections_are_exact, #{connections => 3}),
    Conns = [begin
                 {#{status := 200}, C} = erlane_http_raw:get(erlane_http_raw:connect(Port), "/a"),
                 C
             end || _ <- [1, 2, 3]],
    Waiting = erlane_http_raw:send(erlane_http_raw:connect(Port),
                                   "GET /waiting HTTP/1.1\r\nHost: x\r\n\r\n"),
    {timeout, Waiting1} = erlane_http_raw:peek(Waiting, ?SOON),
    ?assertEqual([<<"/a">>, <<"/a">>, <<"/a">>], erlane_http_raw_handler:seen()),
    ok = erlane_http_raw:close(hd(Conns)),
    {#{status := 200, body := <<"GET /waiting x ">>}, _} = erlane_http_raw:answer(Waiting1).

%%% Helpers

%% Waits until so many others have come, and the good client's is the only connection.
gone(Name, Others) ->
    gone(Name, Others, now_ms() + ?LATE).

gone(Name, Others, Deadline) ->
    case erlane_http:info(Name) of
        #{connections := 1, accepted := Accepted} when Accepted > Others -> ok;
        #{connections := N, accepted := Accepted} ->
            now_ms() < Deadline orelse ct:fail({connections_left, N, of_accepted, Accepted}),
            receive after ?PACE -> gone(Name, Others, Deadline) end
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
