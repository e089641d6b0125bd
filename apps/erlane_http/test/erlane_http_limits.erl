%% SPDX-License-Identifier: Apache-2.0
%% @doc Rows of raw requests at both sides of each limit of a listener, whatever the limits are.
-module(erlane_http_limits).

-export([defaults/0, small/0, rows/1]).

%% @doc The limits that http.md promises, under the names of the options.
-spec defaults() -> map().
defaults() ->
    #{max_method => 32, max_target => 8000, max_header => 8192, max_headers_size => 65536,
      max_headers => 100, max_body => 1048576, max_chunk_ext => 256, drain_bytes => 65536}.

%% @doc Limits that a client reaches byte by byte in no time.
-spec small() -> map().
small() ->
    #{max_method => 9, max_target => 40, max_header => 50, max_headers_size => 150,
      max_headers => 5, max_body => 60, max_chunk_ext => 10, drain_bytes => 40}.

-spec rows(map()) -> [erlane_http_rows:row()].
rows(#{max_method := Method, max_target := Target, max_header := Header,
       max_headers_size := Size, max_headers := Count, max_body := Body, max_chunk_ext := Ext,
       drain_bytes := Drain}) ->
    %% A body that nobody reads is taken to its end, or the connection ends.
    [{["unread body ", What], "9.3", unread(N), [{200, <<"unread">>}], End}
     || {What, N, End} <- [{"at the limit", Drain, open}, {"over the limit", Drain + 1, closed}]] ++
    both("method", "9110 2.3", Method, 501,
         fun(N) -> [fill(N), " / HTTP/1.1\r\nHost: x\r\n\r\n"] end,
         fun(N) -> [fill(N), " / x "] end) ++
    both("target", "3", Target, 414,
         fun(N) -> ["GET /", fill(N - 1), " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
         fun(N) -> ["GET /", fill(N - 1), " x "] end) ++
    both("target with a query", "3", Target, 414,
         fun(N) -> ["GET /?", fill(N - 2), " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
         fun(N) -> ["GET /?", fill(N - 2), " x "] end) ++
    both("absolute target", "3", Target, 414,
         fun(N) -> ["GET http://y/", fill(N - 9), " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
         fun(N) -> ["GET http://y/", fill(N - 9), " y "] end) ++
    both("header line", "5", Header, 431,
         fun(N) -> head([["A: ", fill(N - 3), "\r\n"]]) end, fun(_) -> "GET / x " end) ++
    both("name", "5", Header, 431,
         fun(N) -> head([[fill(N - 1), ":\r\n"]]) end, fun(_) -> "GET / x " end) ++
    both("blanks", "5", Header, 431,
         fun(N) -> head([["A:", lists:duplicate(N - 2, $\s), "\r\n"]]) end,
         fun(_) -> "GET / x " end) ++
    both("all headers", "5", Size, 431,
         fun(N) -> head(lines(N - iolist_size("Host: x\r\n"), Header)) end,
         fun(_) -> "GET / x " end) ++
    both("number of headers", "5", Count, 431,
         fun(N) -> head(lists:duplicate(N - 1, "A: b\r\n")) end, fun(_) -> "GET / x " end) ++
    both("body", "9110 15.5.14", Body, 413,
         fun(N) -> post(["Content-Length: ", integer_to_list(N), "\r\n"], fill(N)) end,
         fun(N) -> ["POST / x ", fill(N)] end) ++
    both("body in one chunk", "9110 15.5.14", Body, 413,
         fun(N) -> chunked([chunk(fill(N)), "0\r\n\r\n"]) end,
         fun(N) -> ["POST / x ", fill(N)] end) ++
    both("body in chunks", "9110 15.5.14", Body, 413,
         fun(N) -> chunked([[chunk(fill(max(1, N div 10))) || _ <- lists:seq(1, 9)],
                            chunk(fill(N - 9 * max(1, N div 10))), "0\r\n\r\n"]) end,
         fun(N) -> ["POST / x ", fill(N)] end) ++
    both("body the handler takes less of", "9110 15.5.14", 10, 413,
         fun(N) -> ["POST /small HTTP/1.1\r\nHost: x\r\nContent-Length: ", integer_to_list(N),
                    "\r\n\r\n", fill(N)] end,
         fun(N) -> ["POST /small x ", fill(N)] end) ++
    both("chunked body the handler takes less of", "9110 15.5.14", 10, 413,
         fun(N) -> ["POST /small HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                    chunk(fill(N)), "0\r\n\r\n"] end,
         fun(N) -> ["POST /small x ", fill(N)] end) ++
    both("extension", "7.1.1", Ext, 400,
         fun(N) -> chunked(["1;", fill(N - 1), "\r\na\r\n0\r\n\r\n"]) end,
         fun(_) -> "POST / x a" end) ++
    both("extension of the last chunk", "7.1.1", Ext, 400,
         fun(N) -> chunked(["1\r\na\r\n0;", fill(N - 1), "\r\n\r\n"]) end,
         fun(_) -> "POST / x a" end) ++
    both("digits of a chunk size", "7.1", 16, 400,
         fun(N) -> chunked([lists:duplicate(N - 1, $0), "1\r\na\r\n0\r\n\r\n"]) end,
         fun(_) -> "POST / x a" end) ++
    both("number of trailers", "7.1.2", Count, [400, 431],
         fun(N) -> chunked(["0\r\n", lists:duplicate(N, "Host: y\r\n"), "\r\n"]) end,
         fun(_) -> "POST / x " end) ++
    both("trailer line", "7.1.2", Header, [400, 431],
         fun(N) -> chunked(["0\r\nHost: ", fill(N - 6), "\r\n\r\n"]) end,
         fun(_) -> "POST / x " end).

both(Name, Section, Limit, Status, Bytes, Body) ->
    [{[Name, " at the limit"], Section, Bytes(Limit),
      [{200, iolist_to_binary(Body(Limit))}], open},
     {[Name, " over the limit"], Section, Bytes(Limit + 1), [Status], closed}].

head(Lines) -> ["GET / HTTP/1.1\r\nHost: x\r\n", Lines, "\r\n"].

post(Line, Body) -> ["POST / HTTP/1.1\r\nHost: x\r\n", Line, "\r\n", Body].

unread(N) ->
    ["POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: ", integer_to_list(N), "\r\n\r\n",
     fill(N)].

chunked(Chunks) -> post("Transfer-Encoding: chunked\r\n", Chunks).

chunk(Data) -> [integer_to_list(length(Data), 16), "\r\n", Data, "\r\n"].

fill(N) -> lists:duplicate(N, $a).

%% Lines of so many bytes in all, none longer than the limit of one.
lines(Left, Header) when Left =< Header + 2 -> [["A:", fill(Left - 4), "\r\n"]];
lines(Left, Header) ->
    Size = min(Header, Left div 2),
    [["A:", fill(Size - 4), "\r\n"] | lines(Left - Size, Header)].
