%% SPDX-License-Identifier: Apache-2.0
%% The headers that choose the format, and the head of a request: pure functions, and what
%% anybody may send to them.
-module(erlane_metrics_accept_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([real_scrapers/1, qualities/1, specificity/1, parameters/1, offered/1, gzip/1,
         nothing_fails/1, quality_decides/1, requests/1, refusals/1, byte_by_byte/1,
         long_heads/1, any_bytes/1]).

all() ->
    [real_scrapers, qualities, specificity, parameters, offered, gzip, nothing_fails,
     quality_decides, requests, refusals, byte_by_byte, long_heads, any_bytes].

-define(PROTO, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
        "encoding=delimited").

negotiates(Pairs) ->
    [?assertEqual({Accept, Format}, {Accept, erlane_metrics_accept:negotiate(Accept)})
     || {Format, Accept} <- Pairs],
    ok.

%% What Prometheus 2.42 sends without and with native histograms, Prometheus 3, curl, a browser,
%% nobody.
real_scrapers(_Config) ->
    negotiates(
      [{openmetrics, "application/openmetrics-text;version=1.0.0,"
        "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,"
        "*/*;q=0.1"},
       {protobuf, ?PROTO ",application/openmetrics-text;version=1.0.0;q=0.8,"
        "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,"
        "*/*;q=0.1"},
       {openmetrics, "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=0.0.1;q=0.5,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,"
        "*/*;q=0.2"},
       {protobuf, ?PROTO ";escaping=allow-utf-8;q=0.6,"
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,*/*;q=0.2"},
       {text, "*/*"},
       {text, "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"},
       {text, undefined},
       {text, ""}]).

qualities(_Config) ->
    negotiates(
      [{text, "text/plain;q=0.5,application/openmetrics-text;q=0.4"},
       {openmetrics, "text/plain;q=0.5,application/openmetrics-text;q=0.501"},
       {openmetrics, "text/plain;q=0,*/*"},
       {openmetrics, "text/plain; q=0.9 , application/openmetrics-text ; Q=1.000"},
       {protobuf, "text/plain;q=0.0,application/openmetrics-text;q=0,*/*;q=0.001"},
       %% Nothing that we have: the plain text all the same.
       {text, "*/*;q=0"}, {text, "application/json"},
       %% What is no quality leaves its range out.
       {text, "application/openmetrics-text;q=2,text/plain;q=0.1"},
       {text, "application/openmetrics-text;q=0.1234,text/plain;q=0.1"},
       {text, "application/openmetrics-text;q=,text/plain;q=0.1"},
       {text, "application/openmetrics-text;q=-1,text/plain;q=0.1"},
       {text, "application/openmetrics-text;q=abc,text/plain;q=0.1"},
       %% Equal: the first one named; one named before one under a wildcard.
       {openmetrics, "application/openmetrics-text,text/plain"},
       {text, "text/plain,application/openmetrics-text"},
       {openmetrics, "*/*,application/openmetrics-text"},
       {openmetrics, "application/*"}, {text, "text/*"}]).

%% The most specific range decides, whatever its quality.
specificity(_Config) ->
    negotiates(
      [{text, "application/*;q=0.9,application/openmetrics-text;q=0.1,"
        "application/vnd.google.protobuf;q=0.2,text/plain;q=0.5"},
       {protobuf, "application/vnd.google.protobuf;q=0.1," ?PROTO ";q=0.9,text/plain;q=0.5"},
       {text, "application/vnd.google.protobuf;q=0.9," ?PROTO ";q=0.1,text/plain;q=0.5"}]).

parameters(_Config) ->
    negotiates(
      [{openmetrics, "application/openmetrics-text; version=\"1.0.0\"; charset=utf-8"},
       {text, "application/openmetrics-text;version=0.0.1"},
       {text, "application/openmetrics-text;version=2.0.0"},
       {openmetrics, "APPLICATION/OpenMetrics-Text;Version=1.0.0"},
       {protobuf, ?PROTO}, {protobuf, "application/vnd.google.protobuf"},
       {text, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
        "encoding=text"},
       {text, "application/vnd.google.protobuf;proto=other;encoding=delimited"},
       %% A separator inside quotes is none.
       {openmetrics, "application/openmetrics-text;x=\"a,b;q=0,\\\"\",text/plain;q=0.5"},
       %% A quote that does not end goes to the end of the header.
       {openmetrics, "application/openmetrics-text;x=\"open,text/plain;q=0.5"}]).

offered(_Config) ->
    Negotiate = fun erlane_metrics_accept:negotiate/2,
    ?assertEqual(text, Negotiate(?PROTO, [text])),
    ?assertEqual(openmetrics, Negotiate("*/*", [openmetrics, text])),
    ?assertEqual(openmetrics, Negotiate(undefined, [openmetrics, text])),
    ?assertEqual(text, Negotiate(?PROTO ",text/plain;q=0.1", [openmetrics, text])).

gzip(_Config) ->
    [?assertEqual({Header, Is}, {Header, erlane_metrics_accept:gzip(Header)})
     || {Is, Header} <- [{true, "gzip"}, {true, "deflate, gzip;q=1.0, *;q=0.5"}, {true, "*"},
                         {true, "GZIP"}, {true, "x-gzip"}, {false, "gzip;q=0"},
                         {false, "gzip;q=0,*"}, {false, "gzip;q=0.000"}, {false, "identity"},
                         {false, ""}, {false, undefined}, {false, "*;q=0"},
                         {false, "gzipped"}]].

nothing_fails(_Config) ->
    Bytes = list(oneof([byte(), oneof(",;=\"\\q01.*/ "), range($a, $z)])),
    holds(?FORALL(Header, Bytes,
                  lists:member(erlane_metrics_accept:negotiate(Header),
                               [text, openmetrics, protobuf])
                  andalso is_boolean(erlane_metrics_accept:gzip(Header))), 2000).

%% Of three qualities that differ the highest decides, in any order and with spaces anywhere.
quality_decides(_Config) ->
    Ranges = [{text, "text/plain"}, {openmetrics, "application/openmetrics-text"},
              {protobuf, ?PROTO}],
    holds(?FORALL({Qs, Spaces}, {[range(0, 1000) || _ <- Ranges], vector(6, oneof(["", " "]))},
                  ?IMPLIES(length(lists:usort(Qs)) =:= 3,
                           begin
                               [A, B, C, D, E, F] = Spaces,
                               All = lists:zip(Qs, Ranges),
                               {_, {Best, _}} = lists:max(All),
                               Header = lists:join(
                                          [A, ",", B],
                                          [[Range, C, ";", D, q(Q), E, F]
                                           || {Q, {_, Range}} <- lists:sort(
                                                                   fun({_, X}, {_, Y}) ->
                                                                           erlang:phash2({Qs, X})
                                                                           < erlang:phash2({Qs, Y})
                                                                   end, All)]),
                               Best =:= erlane_metrics_accept:negotiate(Header)
                           end)), 500).

q(1000) -> "q=1";
q(Q) -> io_lib:format("q=0.~3..0b", [Q]).

%%% requests

requests(_Config) ->
    ?assertEqual({ok, #{method => get, version => 11, accept => undefined,
                        accept_encoding => undefined, timeout_ms => undefined}},
                 request("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")),
    ?assertEqual({ok, #{method => head, version => 10, accept => <<"a/b,c/d">>,
                        accept_encoding => <<"gzip">>, timeout_ms => 2500}},
                 request("HEAD /metrics?a=b HTTP/1.0\r\nACCEPT: a/b\r\naccept-encoding: gzip\r\n"
                         "Accept: c/d\r\nX-Prometheus-Scrape-Timeout-Seconds: 2.5\r\n\r\n")),
    [?assertMatch({ok, #{timeout_ms := Ms}},
                  request(["GET http://h/metrics HTTP/1.1\r\nHost: h\r\n"
                           "X-Prometheus-Scrape-Timeout-Seconds: ", Text, "\r\n\r\n"]))
     || {Ms, Text} <- [{10000, "10"}, {1, "0.0001"}, {undefined, "0"}, {undefined, "-1"},
                       {undefined, "x"}, {undefined, "1e99"}, {undefined, "99999999"}]],
    %% One empty line before the request is allowed.
    ?assertMatch({ok, _}, request("\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")),
    ?assertMatch({refuse, get, 400}, request("\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")).

refusals(_Config) ->
    [?assertEqual({Text, {refuse, Method, Status}}, {Text, request([Text, "\r\n\r\n"])})
     || {Method, Status, Text} <-
            [{get, 404, "GET / HTTP/1.1\r\nHost: x"}, {head, 404, "HEAD / HTTP/1.1\r\nHost: x"},
             {get, 404, "GET /metricsx HTTP/1.1\r\nHost: x"},
             {get, 404, "GET /%6detrics HTTP/1.1\r\nHost: x"},
             {get, 405, "POST /metrics HTTP/1.1\r\nHost: x"},
             {get, 405, "BREW /metrics HTTP/1.1\r\nHost: x"},
             {get, 404, "OPTIONS * HTTP/1.1\r\nHost: x"},
             {get, 400, "GET /metrics HTTP/1.1"},
             {get, 400, "GET /metrics HTTP/1.1\r\nHost: x\r\nHost: y"},
             {get, 400, "GET /metrics HTTP/1.1\r\nHost x"},
             {get, 400, "hello"}, {get, 400, "\x16\x03\x01"},
             {get, 505, "GET /metrics HTTP/2.0\r\nHost: x"},
             {get, 505, "GET /metrics HTTP/1.2\r\nHost: x"},
             {get, 505, "GET /metrics"}]],
    ?assertMatch(<<"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\n", _/binary>>,
                 iolist_to_binary(erlane_metrics_http:refusal(get, 405))),
    [Head, <<>>] = binary:split(iolist_to_binary(erlane_metrics_http:refusal(head, 404)),
                                <<"\r\n\r\n">>),
    ?assertMatch({_, _}, binary:match(Head, <<"Content-Length: 14">>)).

request(Text) ->
    erlane_metrics_http:request(iolist_to_binary(Text)).

%% Any part of a good request but the whole of it asks for more.
byte_by_byte(_Config) ->
    Request = <<"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n">>,
    [?assertEqual({N, more}, {N, request(binary:part(Request, 0, N))})
     || N <- lists:seq(0, byte_size(Request) - 1)],
    ?assertMatch({ok, _}, request(Request)).

%% Both sides of the limit, which holds for a line and for all of them.
long_heads(_Config) ->
    Line = fun(N) -> ["GET /metrics?", lists:duplicate(N, $x)] end,
    ?assertEqual(more, request(Line(16000))),
    ?assertMatch({refuse, get, _}, request(Line(16400))),
    Headers = fun(N) -> ["GET /metrics HTTP/1.1\r\nHost: x\r\n",
                         [["X", integer_to_list(I), ": 0123456789\r\n"]
                          || I <- lists:seq(1, N)]] end,
    ?assertEqual(more, request(Headers(800))),
    ?assertMatch({ok, _}, request([Headers(800), "\r\n"])),
    ?assertEqual({refuse, get, 431}, request(Headers(1200))),
    ?assertEqual({refuse, get, 431}, request([Headers(1200), "\r\n"])).

any_bytes(_Config) ->
    Part = oneof([binary(), <<"\r\n">>, <<"\n">>, <<"GET ">>, <<"/metrics">>, <<" HTTP/1.1">>,
                  <<"Host: x">>, <<" ">>, <<"Accept: ">>, <<":">>, <<0>>]),
    holds(?FORALL(Parts, list(Part),
                  case request(Parts) of
                      {ok, #{method := _}} -> true;
                      more -> true;
                      {refuse, _, Status} -> is_integer(Status)
                  end), 3000).

holds(Property, Tests) ->
    true = proper:quickcheck(Property, [{numtests, Tests}, {max_size, 60}, {to_file, user},
                                        nocolors]).
