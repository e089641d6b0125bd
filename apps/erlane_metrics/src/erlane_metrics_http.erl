%% SPDX-License-Identifier: Apache-2.0
%% @doc Just enough of HTTP/1.1 (RFC 9112) to serve one page: the head of a request to an
%% answer, and the heads of responses. Pure functions; the bytes come from anybody.
-module(erlane_metrics_http).

-export([request/1, head/2, refusal/2, chunk/1, last_chunk/0]).

-export_type([request/0, status/0]).

-type request() :: #{method := get | head,
                     version := 10 | 11,
                     accept := binary() | undefined,
                     accept_encoding := binary() | undefined,
                     %% Seconds after which the scraper gives up, as it told.
                     timeout_ms := pos_integer() | undefined}.

-type status() :: 400 | 404 | 405 | 408 | 431 | 500 | 505.

%% A head of more bytes is refused.
-define(MAX_HEAD, 16384).
-define(MAX_TIMEOUT_MS, 86400000).

%% @doc Reads the head of a request. `more' if it is not whole yet.
-spec request(binary()) -> {ok, request()} | more | {refuse, get | head, status()}.
request(Bytes) ->
    case erlang:decode_packet(http_bin, Bytes, [{packet_size, ?MAX_HEAD}]) of
        {ok, {http_request, Method, Target, Version}, Rest} ->
            headers(Rest, byte_size(Bytes) - byte_size(Rest), [], {Method, Target, Version});
        {ok, {http_error, Empty}, Rest} when Empty =:= <<"\r\n">>; Empty =:= <<"\n">> ->
            %% One empty line may come before the request (RFC 9112, section 2.2).
            case Rest of
                <<C, _/binary>> when C =/= $\r, C =/= $\n -> request(Rest);
                <<>> -> more;
                _ -> {refuse, get, 400}
            end;
        {ok, _, _} -> {refuse, get, 400};
        {more, _} -> more(byte_size(Bytes));
        {error, _} -> {refuse, get, 400}
    end.

more(Size) when Size >= ?MAX_HEAD -> {refuse, get, 431};
more(_Size) -> more.

headers(_Bytes, Used, _Acc, _Line) when Used > ?MAX_HEAD ->
    {refuse, get, 431};
headers(Bytes, Used, Acc, Line) ->
    case erlang:decode_packet(httph_bin, Bytes, [{packet_size, ?MAX_HEAD}]) of
        {ok, {http_header, _, Name, _, Value}, Rest} ->
            Size = byte_size(Bytes) - byte_size(Rest),
            headers(Rest, Used + Size, [{name(Name), Value} | Acc], Line);
        {ok, http_eoh, _} -> judge(Line, lists:reverse(Acc));
        {ok, {http_error, _}, _} -> {refuse, get, 400};
        {more, _} -> more(Used + byte_size(Bytes));
        {error, _} -> {refuse, get, 400}
    end.

name(Name) when is_atom(Name) -> name(atom_to_binary(Name));
name(Name) -> << <<(if C >= $A, C =< $Z -> C + 32; true -> C end)>> || <<C>> <= Name >>.

judge({_, _, {1, Minor}}, _Headers) when Minor > 1 ->
    {refuse, get, 505};
judge({Method, Target, {1, Minor}}, Headers) ->
    Hosts = [Host || {<<"host">>, Host} <- Headers],
    case {Minor, Hosts, path(Target), Method} of
        {1, [], _, _} -> {refuse, get, 400};
        {_, [_, _ | _], _, _} -> {refuse, get, 400};
        {_, _, <<"/metrics">>, 'GET'} -> {ok, wanted(get, Minor, Headers)};
        {_, _, <<"/metrics">>, 'HEAD'} -> {ok, wanted(head, Minor, Headers)};
        {_, _, <<"/metrics">>, _} -> {refuse, get, 405};
        {_, _, _, 'HEAD'} -> {refuse, head, 404};
        {_, _, _, _} -> {refuse, get, 404}
    end;
judge({_, _, _}, _Headers) ->
    {refuse, get, 505}.

path({abs_path, Path}) -> hd(binary:split(Path, <<"?">>));
path({absoluteURI, _, _, _, Path}) -> hd(binary:split(Path, <<"?">>));
path(_) -> none.

wanted(Method, Minor, Headers) ->
    #{method => Method,
      version => 10 + Minor,
      accept => all(<<"accept">>, Headers),
      accept_encoding => all(<<"accept-encoding">>, Headers),
      timeout_ms => timeout(all(<<"x-prometheus-scrape-timeout-seconds">>, Headers))}.

%% Several headers of one name are one list (RFC 9110, section 5.3).
all(Name, Headers) ->
    case [Value || {N, Value} <- Headers, N =:= Name] of
        [] -> undefined;
        Values -> iolist_to_binary(lists:join($,, Values))
    end.

timeout(undefined) ->
    undefined;
timeout(Text) ->
    case string:to_float(<<Text/binary, ".0">>) of
        {Seconds, _} when is_float(Seconds), Seconds > 0, Seconds < ?MAX_TIMEOUT_MS / 1000 ->
            max(1, round(Seconds * 1000));
        _ -> undefined
    end.

%% @doc The head of the page; `chunked' unless the peer knows only HTTP/1.0.
-spec head(request(), [{binary(), binary()}]) -> iodata().
head(#{version := Version}, Headers) ->
    Framing = case Version of
                  11 -> [{<<"Transfer-Encoding">>, <<"chunked">>}];
                  10 -> []
              end,
    response(<<"200 OK">>, Headers ++ Framing).

%% @doc A whole response that is not the page.
-spec refusal(get | head, status()) -> iodata().
refusal(Method, Status) ->
    Line = line(Status),
    Body = [Line, $\n],
    [response(Line, [{<<"Allow">>, <<"GET, HEAD">>} || Status =:= 405] ++
                  [{<<"Content-Type">>, <<"text/plain; charset=utf-8">>},
                   {<<"Content-Length">>, integer_to_binary(iolist_size(Body))}]),
     [Body || Method =:= get]].

response(Line, Headers) ->
    [<<"HTTP/1.1 ">>, Line, <<"\r\n">>,
     [[Name, <<": ">>, Value, <<"\r\n">>] || {Name, Value} <- Headers],
     <<"Connection: close\r\n\r\n">>].

line(400) -> <<"400 Bad Request">>;
line(404) -> <<"404 Not Found">>;
line(405) -> <<"405 Method Not Allowed">>;
line(408) -> <<"408 Request Timeout">>;
line(431) -> <<"431 Request Header Fields Too Large">>;
line(500) -> <<"500 Internal Server Error">>;
line(505) -> <<"505 HTTP Version Not Supported">>.

%% @doc A piece of the page as one chunk; it must not be empty.
-spec chunk(iodata()) -> iodata().
chunk(Piece) ->
    [integer_to_binary(iolist_size(Piece), 16), <<"\r\n">>, Piece, <<"\r\n">>].

%% @doc The end of the page. Without it the peer knows that the page is not whole.
-spec last_chunk() -> binary().
last_chunk() ->
    <<"0\r\n\r\n">>.
