%% SPDX-License-Identifier: Apache-2.0
%% @doc The handler behind the raw suites. It answers what it understood of a request, as
%% "METHOD TARGET HOST BODY" and the trailers, and tells a process of each request it gets, so
%% that a suite knows what went by unseen. Some targets do other things; see below.
-module(erlane_http_raw_handler).

-export([start/2, seen/0, text/1]).
-export([init/2, handle/2, event/3]).

%% @doc A server on a free port whose requests are told to the caller; `Opts' over the defaults.
-spec start(atom(), map()) -> inet:port_number().
start(Name, Opts) ->
    {ok, _} = erlane_http:start(Name, maps:merge(#{handler => {?MODULE, self()}}, Opts)),
    erlane_http:port(Name).

%% @doc The targets of all requests told so far, in order.
-spec seen() -> [binary()].
seen() ->
    receive {?MODULE, Target} -> [Target | seen()]
    after 0 -> []
    end.

%% @doc What is answered to a request.
-spec text(map()) -> binary().
text(#{method := Method, target := Target, host := Host, body := Body, trailers := Trailers}) ->
    iolist_to_binary([Method, $\s, Target, $\s, Host, $\s, Body,
                      [[$\s, N, $=, V] || {N, V} <- lists:sort(Trailers)]]).

init(Req, _Tell) ->
    case erlane_http:target(Req) of
        <<"/stream", _/binary>> -> {ok, stream};
        <<"/unread", _/binary>> -> {ok, stream};
        <<"/small", _/binary>> -> {ok, {read, 10}};
        _ -> {ok, read}
    end.

handle(Req, Tell) ->
    Target = erlane_http:target(Req),
    Tell ! {?MODULE, Target},
    %% The process is the connection's: what it did before is seen here.
    answer(Target, Req, [{<<"x-count">>, integer_to_binary(count())}]).

%% Of this connection. Its process dictionary is emptied by the server.
count() ->
    try ets:update_counter(?MODULE, self(), 1, {self(), 0})
    catch error:badarg -> ok = make_table(), count()
    end.

%% A process keeps it: that of the first connection ends too soon. Of two one is late, and fails.
make_table() ->
    Self = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
                                       ?MODULE = ets:new(?MODULE, [named_table, public]),
                                       Self ! {?MODULE, made},
                                       receive never -> ok end
                               end),
    receive
        {?MODULE, made} -> ok;
        {'DOWN', Ref, process, Pid, _} -> ok
    end,
    true = demonitor(Ref, [flush]),
    ok.

answer(<<"/unread", _/binary>>, _Req, Headers) ->
    {200, Headers, <<"unread">>};
answer(<<"/stream", _/binary>>, Req, Headers) ->
    case read(Req, []) of
        {ok, Body, Req1} -> {200, Headers, echo(Body, Req1)};
        {error, _} = Error -> exit(Error)
    end;
answer(<<"/status/", Status/binary>>, _Req, Headers) ->
    {number(Status, 200, 999), Headers, <<"body">>};
answer(<<"/bodiless/stream/", Status/binary>>, _Req, Headers) ->
    {stream, number(Status, 200, 999), [{<<"content-length">>, <<"3">>} | Headers],
     fun(Send) -> ok = Send(<<"abc">>) end};
answer(<<"/bodiless/file/", Status/binary>>, _Req, Headers) ->
    {number(Status, 200, 999), Headers, {file, code:which(?MODULE)}};
answer(<<"/bodiless/length/", Status/binary>>, _Req, Headers) ->
    {number(Status, 200, 999), [{<<"Content-Length">>, <<"3">>} | Headers], <<"abc">>};
answer(<<"/framing/", Kind/binary>>, _Req, Headers) ->
    {200, [framing(Kind) | Headers], <<"body">>};
answer(<<"/header/", Kind/binary>>, _Req, Headers) ->
    {200, [bad(Kind) | Headers], <<"body">>};
answer(<<"/close">>, _Req, Headers) ->
    {200, [{<<"connection">>, <<"close">>} | Headers], <<"bye">>};
answer(<<"/crash">>, _Req, _Headers) ->
    exit(asked_to_crash);
answer(<<"/chunks">>, _Req, Headers) ->
    {stream, 200, Headers, fun(Send) -> [ok = Send(P) || P <- [<<"one">>, [], "two"]], ok end};
answer(<<"/trailers">>, _Req, Headers) ->
    {stream, 200, Headers, fun(Send) -> ok = Send(<<"one">>),
                                        {trailers, [{<<"x-sum">>, <<"1">>}]} end};
answer(<<"/chunks/crash">>, _Req, Headers) ->
    {stream, 200, Headers, fun(Send) -> ok = Send(<<"one">>), exit(asked_to_crash) end};
answer(<<"/flood">>, Req, Headers) ->
    {stream, 200, Headers, fun(Send) -> flood(Send, maps:get(counter, args(Req))) end};
answer(<<"/big/", Size/binary>>, _Req, Headers) ->
    {200, Headers, binary:copy(<<"b">>, number(Size, 0, 10000000))};
answer(<<"/headers">>, Req, Headers) ->
    {200, Headers, [[N, $=, V, $;] || {N, V} <- erlane_http:headers(Req)]};
answer(<<"/version">>, Req, Headers) ->
    {Major, Minor} = erlane_http:version(Req),
    {200, Headers, io_lib:format("~b.~b", [Major, Minor])};
answer(<<"/path/", _/binary>>, Req, Headers) ->
    {200, Headers, io_lib:format("~0p ~0p", [erlane_http:path(Req), erlane_http:query(Req)])};
answer(_, Req, Headers) ->
    {200, Headers, echo(erlane_http:body(Req), Req)}.

echo(Body, Req) ->
    Host = case erlane_http:host(Req) of <<>> -> <<"-">>; H -> H end,
    text(#{method => erlane_http:method(Req), target => erlane_http:target(Req), host => Host,
           body => Body, trailers => erlane_http:trailers(Req)}).

read(Req, Pieces) ->
    case erlane_http:read_body(Req, #{length => 7}) of
        {more, Piece, Req1} -> read(Req1, [Piece | Pieces]);
        {ok, Piece, Req1} -> {ok, iolist_to_binary(lists:reverse(Pieces, [Piece])), Req1};
        {error, _} = Error -> Error
    end.

%% Targets come from a generator of noise, too.
number(Text, Min, Max) ->
    case re:run(Text, "\\A[0-9]{1,9}\\z", [{capture, none}]) of
        match -> max(Min, min(Max, binary_to_integer(Text)));
        nomatch -> Min
    end.

%% Headers that would frame the body otherwise than it is.
framing(<<"short">>) -> {<<"content-length">>, <<"2">>};
framing(<<"long">>) -> {<<"Content-Length">>, <<"20">>};
framing(_) -> {<<"transfer-encoding">>, <<"chunked">>}.

%% Headers no server may send.
bad(<<"cr">>) -> {<<"x-a">>, <<"a\rb">>};
bad(<<"lf">>) -> {<<"x-a">>, <<"a\nx-b: c">>};
bad(<<"crlf">>) -> {<<"x-a">>, <<"a\r\n\r\nHTTP/1.1 200 OK\r\n\r\n">>};
bad(<<"nul">>) -> {<<"x-a">>, <<"a", 0, "b">>};
bad(<<"name">>) -> {<<"x-a\r\nx-b">>, <<"c">>};
bad(_) -> {<<"x-a">>, ["a", $\r, [<<"\n">>, "x-b: c"]]}.

args(_Req) ->
    #{counter => persistent_term:get({?MODULE, flood})}.

%% Sends until it no longer can; the counter says how much it could.
flood(Send, Counter) ->
    case Send(binary:copy(<<"f">>, 65536)) of
        ok -> counters:add(Counter, 1, 65536), flood(Send, Counter);
        {error, Why} -> exit({could_not_send, Why})
    end.

event(_Name, _Data, _Tell) ->
    ok.
