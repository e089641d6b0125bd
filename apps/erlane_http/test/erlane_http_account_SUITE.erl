%% SPDX-License-Identifier: Apache-2.0
%% @doc Whatever happens to a connection is told: to the metrics, the access log, the handler.
-module(erlane_http_account_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         end_per_testcase/2]).
-export([dead_by_a_link/1, killed_by_a_drain/1, stalled_file/1, refusals/1, refused_body/1,
         query_left_out/1, log_with_a_full_disk/1, log_with_a_bad_entry/1,
         part_of_a_shorter_file/1, last_answer/1]).
-export([log/2, handle/2, event/3]).

-import(erlane_http_ct, [start/3, connect/1, connect/2, get/2, ask/2, send/2, answer/1, is_closed/1,
                         until/1, connections/1, name/0]).

-define(WAIT_MS, 5000).

all() -> [{group, erlane}, {group, gen_tcp}].

groups() ->
    Cases = [dead_by_a_link, killed_by_a_drain, stalled_file, refusals, refused_body,
             query_left_out, log_with_a_full_disk, log_with_a_bad_entry, part_of_a_shorter_file,
             last_answer],
    [{erlane, [], Cases}, {gen_tcp, [], Cases}].

init_per_suite(Config) -> erlane_http_ct:init_suite(Config).

end_per_suite(Config) -> erlane_http_ct:end_suite(Config).

init_per_group(Socket, Config) -> [{socket, Socket} | Config].

end_per_group(_, _) -> ok.

end_per_testcase(_, Config) ->
    _ = logger:remove_handler(?MODULE),
    ok = logger:set_primary_config(level, critical),
    erlane_http_ct:stop(Config).

%% A listener whose handler tells us all events, and whose access log is ours.
told(Config, Handle, Options) ->
    Self = self(),
    start(Config, #{handle => Handle, event => Self},
          Options#{access_log => {common, fun(Line) -> Self ! {line, iolist_to_binary(Line)} end}}).

event(Name) -> receive {event, Name, Data} -> Data after ?WAIT_MS -> ct:fail({no_event, Name}) end.

line() -> receive {line, Line} -> Line after ?WAIT_MS -> ct:fail(no_line) end.

figure(Key) -> maps:get(Key, erlane_http:info(name())).

%% A process of the handler's takes its connection with it: that is counted and told.
dead_by_a_link(Config) ->
    Port = told(Config, fun(_) ->
                                _ = spawn_link(fun() -> exit({boom, #{token => secret}}) end),
                                receive never -> ok end
                        end, #{}),
    Crashes = figure(crashes),
    C = connect(Port),
    ok = send(C, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ?assert(is_closed(C)),
    ?assertMatch(#{class := exit, reason := {boom, '...'}}, event(crashed)),
    ?assertEqual(Crashes + 1, figure(crashes)).

%% Over lanes the last answer and the end of the connection are one segment, unless the handler is
%% told of the request in between, which may take its time.
last_answer(Config) ->
    Socket = proplists:get_value(socket, Config),
    [Silent, Told] = [begin
                          {ok, _} = erlane_http:start(Name, #{handler => Handler,
                                                              socket => Socket}),
                          segments(erlane_http:port(Name))
                      end || {Name, Handler} <- [{silent, {erlane_http_file, #{root => "/"}}},
                                                 {told, {?MODULE, self()}}]],
    receive told -> ok after ?WAIT_MS -> ct:fail(no_event) end,
    ?assertEqual(case Socket of erlane -> 1; gen_tcp -> 0 end, Told - Silent).

handle(_, _) -> {404, [], <<>>}.

event(request_done, _, Pid) -> Pid ! told, ok;
event(_, _, _) -> ok.

%% Those that a client gets in a whole connection: tcpi_segs_in of TCP_INFO.
segments(Port) ->
    C = connect(Port, [{exit_on_close, false}]),
    {404, _, _} = ask(C, "GET /none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    ?assert(is_closed(C)),
    {ok, [{raw, _, _, <<_:140/binary, N:32/native>>}]} = inet:getopts(C, [{raw, 6, 11, 144}]),
    N.

%% Who is cut at the end of a drain has not crashed.
killed_by_a_drain(Config) ->
    Self = self(),
    Port = told(Config, fun(_) -> Self ! running, receive never -> ok end end, #{}),
    Crashes = figure(crashes),
    C = connect(Port),
    ok = send(C, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    receive running -> ok after ?WAIT_MS -> ct:fail(not_running) end,
    ok = erlane_http:drain(name(), 0),
    ?assertEqual(Crashes, figure(crashes)),
    receive {event, crashed, _} = Event -> ct:fail(Event) after 0 -> ok end.

%% A client that takes nothing of a file is cut off, and what it got is in the log.
stalled_file(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "large"),
    ok = file:write_file(File, binary:copy(<<"x">>, 32 bsl 20)),
    Port = told(Config, fun(_) -> {200, [], {file, File}} end, #{send_timeout => 300}),
    C = connect(Port, [{recbuf, 4096}]),
    ok = send(C, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n"),
    ?assertMatch(#{reason := cut}, event(closed)),
    case proplists:get_value(socket, Config) of
        erlane ->
            ?assertMatch(#{status := 200, target := <<"/large">>}, event(request_done)),
            ?assertNotEqual(nomatch, binary:match(line(), <<"\"GET /large HTTP/1.1\" 200 ">>));
        %% Its sendfile cannot be ended but with its process.
        gen_tcp -> ok
    end,
    connections(0).

%% Scans and attempts are lines like others: what came of them, and what they were answered.
refusals(Config) ->
    Port = told(Config, fun(_) -> {200, [], <<"x">>} end, #{head_timeout => 200}),
    Long = binary:copy(<<"y">>, 9000),
    [begin
         {Status, _, _} = ask(connect(Port), Bytes),
         Line = line(),
         Wanted = iolist_to_binary([$", Told, "\" ", integer_to_list(Status)]),
         ?assertNotEqual({Line, nomatch}, {Line, binary:match(Line, Wanted)})
     end || {Status, Bytes, Told} <-
                [{400, "GET /\"a\" b HTTP/1.1\r\n\r\n", "GET /\\\"a\\\" b HTTP/1.1"},
                 {400, "\x16\x03\x01 hello\r\n\r\n", "\\u0016\\u0003\\u0001 hello"},
                 {400, ["GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n",
                        "Content-Length: 2\r\n\r\n"], "GET / HTTP/1.1"},
                 {414, ["GET /", Long, " HTTP/1.1\r\n\r\n"],
                  ["GET /", binary:part(Long, 0, 251)]},
                 {408, "GET /slow", "GET /slow"}]].

%% So is a request whose body is refused, with all that is known of it.
refused_body(Config) ->
    Port = told(Config, fun(_) -> {200, [], <<"x">>} end, #{max_body => 3}),
    {413, _, _} = ask(connect(Port), "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"),
    ?assertNotEqual(nomatch, binary:match(line(), <<"\"POST /b HTTP/1.1\" 413 ">>)).

%% Where queries are secrets they stay out of the log, of what is refused too.
query_left_out(Config) ->
    Port = told(Config, fun(_) -> {200, [], <<"x">>} end, #{log_query => false}),
    {200, _, _} = get(connect(Port), "/a?token=secret"),
    ?assertNotEqual(nomatch, binary:match(line(), <<"\"GET /a HTTP/1.1\" 200 ">>)),
    {400, _, _} = ask(connect(Port), "GET /b?token=secret HTTP/1.1\r\n\r\n"),
    ?assertNotEqual(nomatch, binary:match(line(), <<"\"GET /b\" 400 ">>)).

%% A full disk is told of, once for many lines, and ends nothing.
log_with_a_full_disk(Config) ->
    ok = logger:add_handler(?MODULE, ?MODULE, #{config => self()}),
    ok = logger:set_primary_config(level, warning),
    Port = start(Config, fun(_) -> {200, [], <<"x">>} end,
                 #{access_log => {common, "/dev/full"}}),
    Server = erlane_http_names:whereis(name()),
    C = connect(Port),
    %% Each round is more than the delayed write holds.
    Round = [["GET /", binary:copy(<<"z">>, 4000), " HTTP/1.1\r\nHost: x\r\n\r\n"]
             || _ <- lists:seq(1, 30)],
    [begin ok = send(C, Round), [{200, _, _} = answer(C) || _ <- Round] end || _ <- [1, 2, 3, 4]],
    Told = receive {logged, Text} -> iolist_to_binary(Text) after ?WAIT_MS -> ct:fail(not_told) end,
    ?assertNotEqual({Told, nomatch}, {Told, binary:match(Told, <<"enospc">>)}),
    {200, _, _} = get(C, "/"),
    receive {logged, More} -> ct:fail({told_again, More}) after 0 -> ok end,
    ?assertEqual(Server, erlane_http_names:whereis(name())).

%% @private A handler of logger.
log(Event, #{config := Pid}) -> Pid ! {logged, logger_formatter:format(Event, #{})}.

%% An entry of which no line can be made costs that line.
log_with_a_bad_entry(_Config) ->
    Self = self(),
    {ok, {Pid, _} = Log} = erlane_http_log:start_link({json, fun(Line) -> Self ! {line, Line} end}),
    Entry = #{time => 784111777, peer => {not_an_address, 80}, method => <<"GET">>,
              target => <<"/">>, version => {1, 1}, status => 200, sent => 1, duration_us => 5,
              referer => <<>>, agent => <<>>},
    ok = erlane_http_log:write(Log, Entry),
    ok = erlane_http_log:write(Log, Entry#{peer => undefined, target => <<"/second">>}),
    ?assertNotEqual(nomatch, binary:match(iolist_to_binary(line()), <<"/second">>)),
    ok = erlane_http_log:stop(Log, ?WAIT_MS),
    ?assertNot(is_process_alive(Pid)).

%% A file may have become shorter since the handler looked at it: that is nobody's crash.
part_of_a_shorter_file(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "short"),
    ok = file:write_file(File, "0123456789"),
    Port = told(Config, fun(Req) ->
                                [From, Length] = [binary_to_integer(N)
                                                  || N <- erlane_http:path(Req)],
                                {206, [], {file, File, {From, Length}}}
                        end, #{}),
    C = connect(Port),
    {206, _, <<"56789">>} = get(C, "/5/5"),
    {206, _, <<>>} = get(C, "/10/0"),
    {404, _, <<>>} = get(C, "/5/6"),
    {404, _, <<>>} = get(C, "/11/0"),
    {416, Headers, <<>>} = ask(C, "GET /8/3 HTTP/1.1\r\nHost: x\r\nRange: bytes=8-10\r\n\r\n"),
    ?assertEqual(<<"bytes */10">>, proplists:get_value(<<"content-range">>, Headers)),
    {206, _, <<"0">>} = get(C, "/0/1"),
    until(fun() -> figure(connections) =:= 1 end),
    receive {event, crashed, _} = Event -> ct:fail(Event) after 0 -> ok end.
