%% SPDX-License-Identifier: Apache-2.0
%% The standalone listener, with clients of gen_tcp: what it answers, and what hostile peers
%% cost. The same cases run over stock gen_tcp and over erlane, where that is built.
-module(erlane_metrics_listener_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         init_per_testcase/2, end_per_testcase/2]).
-export([page_in_each_format/1, gzip/1, head/1, old_http/1, refusals/1, byte_by_byte/1,
         slow_head/1, peer_that_never_reads/1, scraper_timeout/1, limit_is_exact/1,
         killed_connection/1, body_is_no_harm/1, many_at_once/1, options/1, taken_port/1,
         ipv6/1, stop_ends_all/1, failing_walk/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 10000).

all() ->
    [{group, stock}, {group, erlane}].

groups() ->
    Cases = [page_in_each_format, gzip, head, old_http, refusals, byte_by_byte, slow_head,
             peer_that_never_reads, scraper_timeout, limit_is_exact, killed_connection,
             body_is_no_harm, many_at_once],
    [{stock, Cases ++ [options, taken_port, ipv6, stop_ends_all, failing_walk]},
     {erlane, Cases}].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Family = erlane_metrics:counter(#{name => <<"listened">>, help => <<"h">>,
                                      labels => [<<"i">>], limit => 100000}),
    [ok = erlane_metrics:add(erlane_metrics:handle(Family, [I]), I) || I <- lists:seq(1, 20000)],
    Config.

end_per_suite(_Config) ->
    ok = application:stop(erlane_metrics).

init_per_group(stock, Config) ->
    [{tcp_options, []} | Config];
init_per_group(erlane, Config) ->
    case application:ensure_all_started(erlane_socket) of
        {ok, _} ->
            [{tcp_options, [{inet_backend, inet}, {tcp_module, erlane_tcp}]} | Config];
        {error, Reason} ->
            {skip, Reason}
    end.

end_per_group(stock, _Config) -> ok;
end_per_group(erlane, _Config) -> application:stop(erlane_socket).

init_per_testcase(_Case, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_Case, _Config) ->
    ok.

start(Config) -> start(Config, #{}).

%% Linked to the case: it ends with it.
start(Config, Opts) ->
    First = proplists:get_value(tcp_options, Config),
    {ok, Pid} = erlane_metrics_listener:start_link(
                  Opts#{port => 0, tcp_options => First ++ maps:get(tcp_options, Opts, [])}),
    {?LOOPBACK, Port} = erlane_metrics_listener:address(Pid),
    {Pid, Port}.

connect(Port) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false},
                                                     {show_econnreset, true}], ?WAIT_MS),
    Socket.

ask(Port, Request) ->
    Socket = connect(Port),
    ok = gen_tcp:send(Socket, Request),
    all_of(Socket, <<>>).

get(Port, Headers) ->
    answer(ask(Port, ["GET /metrics HTTP/1.1\r\nHost: x\r\n",
                      [[Name, ": ", Value, "\r\n"] || {Name, Value} <- Headers], "\r\n"])).

all_of(Socket, Acc) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, Data} -> all_of(Socket, <<Acc/binary, Data/binary>>);
        {error, closed} -> Acc;
        {error, Reason} -> {Reason, Acc}
    end.

answer(Bytes) ->
    [Head, Rest] = binary:split(Bytes, <<"\r\n\r\n">>),
    [Line | Lines] = binary:split(Head, <<"\r\n">>, [global]),
    <<"HTTP/1.1 ", Status:3/binary, _/binary>> = Line,
    Headers = maps:from_list([list_to_tuple(binary:split(L, <<": ">>)) || L <- Lines]),
    Body = case Headers of
               #{<<"Transfer-Encoding">> := <<"chunked">>} -> chunks(Rest);
               #{<<"Content-Length">> := Size} ->
                   ?assertEqual(binary_to_integer(Size), byte_size(Rest)),
                   Rest;
               _ -> Rest
           end,
    {binary_to_integer(Status), Headers, Body}.

%% Chunks, and the last one.
chunks(<<"0\r\n\r\n">>) -> <<>>;
chunks(Bytes) ->
    [Hex, Rest] = binary:split(Bytes, <<"\r\n">>),
    Size = binary_to_integer(Hex, 16),
    <<Chunk:Size/binary, "\r\n", More/binary>> = Rest,
    <<Chunk/binary, (chunks(More))/binary>>.

sum(Dialect, Page) ->
    lists:sum([binary_to_integer(V)
               || #{samples := Samples} <- erlane_metrics_text_reader:read(Dialect, Page),
                  {<<"listened_total">>, _, V} <- Samples]).

until(Fun) -> until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        Other ->
            ?assert(erlang:monotonic_time(millisecond) < Deadline, Other),
            receive after 10 -> until(Fun, Deadline) end
    end.

%%% answers

%% The header Accept chooses; the page is whole and says what the counters say.
page_in_each_format(Config) ->
    {_, Port} = start(Config),
    Sum = 20000 * 20001 div 2,
    {200, #{<<"Content-Type">> := <<"text/plain; version=0.0.4", _/binary>>}, Text} =
        get(Port, []),
    ?assertEqual(Sum, sum(text, Text)),
    {200, #{<<"Content-Type">> := <<"application/openmetrics-text; version=1.0.0", _/binary>>},
     Open} = get(Port, [{"Accept", "application/openmetrics-text;version=1.0.0"}]),
    ?assertEqual(Sum, sum(openmetrics, Open)),
    {200, #{<<"Content-Type">> := <<"application/vnd.google.protobuf; ", _/binary>>}, Proto} =
        get(Port, [{"Accept", "application/vnd.google.protobuf;"
                    "proto=io.prometheus.client.MetricFamily;encoding=delimited"}]),
    [Metrics] = [Ms || #{name := <<"listened_total">>, metric := Ms}
                           <- erlane_metrics_proto_reader:read(Proto)],
    ?assertEqual(20000, length(Metrics)).

gzip(Config) ->
    {_, Port} = start(Config),
    {200, Headers, Body} = get(Port, [{"Accept-Encoding", "deflate, gzip"}]),
    ?assertMatch(#{<<"Content-Encoding">> := <<"gzip">>}, Headers),
    ?assertEqual(20000 * 20001 div 2, sum(text, zlib:gunzip(Body))),
    {200, Plain, _} = get(Port, [{"Accept-Encoding", "gzip;q=0"}]),
    ?assertNot(is_map_key(<<"Content-Encoding">>, Plain)).

%% The same head, and nothing after it.
head(Config) ->
    {_, Port} = start(Config),
    Bytes = ask(Port, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    [_, <<>>] = binary:split(Bytes, <<"\r\n\r\n">>),
    ?assertMatch(<<"HTTP/1.1 200 OK\r\nContent-Type: text/plain", _/binary>>, Bytes).

%% HTTP/1.0 knows no chunks: the end of the connection is the end of the page.
old_http(Config) ->
    {_, Port} = start(Config),
    {200, Headers, Body} = answer(ask(Port, "GET /metrics HTTP/1.0\r\n\r\n")),
    ?assertNot(is_map_key(<<"Transfer-Encoding">>, Headers)),
    ?assertEqual(20000 * 20001 div 2, sum(text, Body)).

refusals(Config) ->
    {_, Port} = start(Config),
    [?assertMatch({Text, {Status, _, _}}, {Text, answer(ask(Port, [Text, "\r\n\r\n"]))})
     || {Status, Text} <- [{404, "GET / HTTP/1.1\r\nHost: x"},
                           {405, "POST /metrics HTTP/1.1\r\nHost: x"},
                           {400, "GET /metrics HTTP/1.1"}, {400, "nonsense"},
                           {505, "GET /metrics HTTP/3.0\r\nHost: x"}]],
    Long = ["GET /metrics HTTP/1.1\r\n", [["A: ", lists:duplicate(1000, $a), "\r\n"]
                                          || _ <- lists:seq(1, 20)]],
    ?assertMatch({431, _, _}, answer(ask(Port, Long))).

byte_by_byte(Config) ->
    {_, Port} = start(Config),
    Socket = connect(Port),
    ok = inet:setopts(Socket, [{nodelay, true}]),
    [ok = gen_tcp:send(Socket, [C]) || C <- "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"],
    ?assertMatch({200, _, _}, answer(all_of(Socket, <<>>))).

%% A request with a body that nobody reads: the answer arrives all the same.
body_is_no_harm(Config) ->
    {_, Port} = start(Config),
    ?assertMatch({405, _, _},
                 answer(ask(Port, ["POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 30000"
                                   "\r\n\r\n", binary:copy(<<"x">>, 30000)]))).

%%% hostile peers

%% Half a head: 408 when the time is over. Nothing at all: closed without a word.
slow_head(Config) ->
    {_, Port} = start(Config, #{request_timeout => 300}),
    Began = erlang:monotonic_time(millisecond),
    ?assertMatch({408, _, _}, answer(ask(Port, "GET /metrics HT"))),
    ?assertEqual(<<>>, ask(Port, "")),
    ?assert(erlang:monotonic_time(millisecond) - Began >= 600).

%% Its connection is reset when the time for the page is over; others are served meanwhile.
peer_that_never_reads(Config) ->
    %% With small buffers on the way the page does not fit into them.
    {Pid, Port} = start(Config, #{scrape_timeout => 1500, max_connections => 2,
                                  tcp_options => [{sndbuf, 4096}]}),
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, Port, [binary, {active, false}, {recbuf, 2048},
                                                     {show_econnreset, true}]),
    Began = erlang:monotonic_time(millisecond),
    Conns = conns(Pid),
    ok = gen_tcp:send(Socket, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    ?assertMatch({200, _, _}, get(Port, [])),
    %% Both processes of the beginning have served and are gone.
    until(fun() -> [C || C <- Conns, is_process_alive(C)] =:= [] end),
    ?assert(erlang:monotonic_time(millisecond) - Began >= 1400),
    {econnreset, Part} = all_of(Socket, <<>>),
    ?assertEqual(nomatch, binary:match(Part, <<"\r\n0\r\n\r\n">>)),
    ?assertMatch({200, _, _}, get(Port, [])).

conns(Pid) ->
    {links, Links} = process_info(Pid, links),
    [P || P <- Links, is_pid(P), P =/= self()].

%% The scraper told when it gives up: from then on there is no more page, and no end of it.
scraper_timeout(Config) ->
    {Pid, Port} = start(Config),
    Socket = connect(Port),
    ok = inet:setopts(Socket, [{recbuf, 2048}]),
    ok = gen_tcp:send(Socket, "GET /metrics HTTP/1.1\r\nHost: x\r\n"
                      "X-Prometheus-Scrape-Timeout-Seconds: 0.001\r\n\r\n"),
    {econnreset, Part} = all_of(Socket, <<>>),
    ?assertEqual(nomatch, binary:match(Part, <<"\r\n0\r\n\r\n">>)),
    ?assert(is_process_alive(Pid)).

%% Two are served, the third waits until one of them is gone.
limit_is_exact(Config) ->
    {_, Port} = start(Config, #{max_connections => 2}),
    [One, Two] = [connect(Port) || _ <- [1, 2]],
    [ok = gen_tcp:send(S, "GET ") || S <- [One, Two]],
    Three = connect(Port),
    ok = gen_tcp:send(Three, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
    ?assertEqual({error, timeout}, gen_tcp:recv(Three, 0, 300)),
    ok = gen_tcp:close(One),
    ?assertMatch({200, _, _}, answer(all_of(Three, <<>>))),
    ok = gen_tcp:close(Two).

%% Each connection has a process of its own, which is replaced.
killed_connection(Config) ->
    {Pid, Port} = start(Config, #{max_connections => 3}),
    Before = conns(Pid),
    ?assertEqual(3, length(Before)),
    [exit(P, kill) || P <- Before],
    until(fun() -> length(conns(Pid) -- Before) =:= 3 end),
    ?assertMatch({200, _, _}, get(Port, [])).

many_at_once(Config) ->
    {_, Port} = start(Config, #{max_connections => 4}),
    Self = self(),
    Pids = [spawn_link(fun() -> {200, _, Body} = get(Port, [{"Accept-Encoding", "gzip"}]),
                                Self ! {self(), sum(text, zlib:gunzip(Body))} end)
            || _ <- lists:seq(1, 12)],
    [receive {P, Sum} -> ?assertEqual(20000 * 20001 div 2, Sum)
     after ?WAIT_MS -> ct:fail(no_page)
     end || P <- Pids].

%%% the listener

options(_Config) ->
    [?assertEqual({Opts, {error, Reason}}, {Opts, erlane_metrics_listener:start_link(Opts)})
     || {Opts, Reason} <-
            [{#{}, {port, missing}}, {#{port => -1}, {port, {badarg, -1}}},
             {#{port => 65536}, {port, {badarg, 65536}}},
             {#{port => 0, ip => "localhost"}, {ip, {badarg, "localhost"}}},
             {#{port => 0, ip => {1, 2, 3}}, {ip, {badarg, {1, 2, 3}}}},
             {#{port => 0, max_connections => 0}, {max_connections, {badarg, 0}}},
             {#{port => 0, request_timeout => 0}, {request_timeout, {badarg, 0}}},
             {#{port => 0, scrape_timeout => infinity}, {scrape_timeout, {badarg, infinity}}},
             {#{port => 0, formats => []}, {formats, {badarg, []}}},
             {#{port => 0, formats => [html]}, {formats, {badarg, [html]}}},
             {#{port => 0, tcp_options => x}, {tcp_options, {badarg, x}}},
             {#{port => 0, colour => red}, {colour, unknown_option}}]],
    {ok, Pid} = erlane_metrics_listener:start_link(#{port => 0, formats => [openmetrics]}),
    {?LOOPBACK, Port} = erlane_metrics_listener:address(Pid),
    ?assertMatch({200, #{<<"Content-Type">> := <<"application/openmetrics", _/binary>>}, _},
                 get(Port, [{"Accept", "text/plain"}])).

taken_port(Config) ->
    {_, Port} = start(Config),
    ?assertEqual({error, {listen, eaddrinuse}},
                 erlane_metrics_listener:start_link(#{port => Port})).

ipv6(_Config) ->
    Loopback = {0, 0, 0, 0, 0, 0, 0, 1},
    case erlane_metrics_listener:start_link(#{port => 0, ip => Loopback}) of
        {ok, Pid} ->
            {Loopback, Port} = erlane_metrics_listener:address(Pid),
            {ok, Socket} = gen_tcp:connect(Loopback, Port, [binary, inet6, {active, false}]),
            ok = gen_tcp:send(Socket, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            ?assertMatch(<<"HTTP/1.1 200", _/binary>>, all_of(Socket, <<>>));
        {error, {listen, Reason}} ->
            ?assert(lists:member(Reason, [eafnosupport, eaddrnotavail])),
            {skip, "no IPv6 here"}
    end.

stop_ends_all(Config) ->
    {Pid, Port} = start(Config),
    Conns = conns(Pid),
    ?assertEqual(16, length(Conns)),
    Open = connect(Port),
    ok = erlane_metrics_listener:stop(Pid),
    ?assertMatch({error, _}, gen_tcp:recv(Open, 0, ?WAIT_MS)),
    ?assertEqual([], [P || P <- Conns, is_process_alive(P)]),
    ?assertEqual({error, econnrefused}, gen_tcp:connect(?LOOPBACK, Port, [])).

%% What fails before the first byte is a 500, and the listener goes on.
failing_walk(Config) ->
    {Pid, Port} = start(Config),
    ok = application:stop(erlane_metrics),
    ?assertMatch({500, _, _}, get(Port, [])),
    ?assert(is_process_alive(Pid)),
    init_per_suite([]),
    ?assertMatch({200, _, _}, get(Port, [])).
