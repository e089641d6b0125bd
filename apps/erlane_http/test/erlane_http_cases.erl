%% SPDX-License-Identifier: Apache-2.0
%% @doc The table of raw requests behind erlane_http_rfc_SUITE: what is sent, which answers come
%% in which order, and whether the connection is open afterwards. The sections are those of
%% RFC 9112 unless they begin with 9110. The bodies expected are erlane_http_raw_handler's.
-module(erlane_http_cases).

-export([all/0, request_line/0, target/0, host/0, fields/0, line_ends/0, length/0, chunked/0,
         trailers/0, expect/0, connection/0, answers/0]).

-define(GET, "GET / HTTP/1.1\r\nHost: x\r\n").
-define(POST, "POST / HTTP/1.1\r\nHost: x\r\n").
-define(CHUNKED, "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").

-spec all() -> [erlane_http_rows:row()].
all() ->
    request_line() ++ target() ++ host() ++ fields() ++ line_ends() ++ ?MODULE:length() ++
        chunked() ++ trailers() ++ expect() ++ connection() ++ answers().

ok(Name, Section, Bytes, Body) -> {Name, Section, Bytes, [{200, Body}], open}.

bad(Name, Section, Bytes) -> bad(Name, Section, 400, Bytes).

bad(Name, Section, Status, Bytes) -> {Name, Section, Bytes, [Status], closed}.

%% Where the rules leave a choice; what is never right is a third way, or a second request.
either(Name, Section, Body, Status, Bytes) ->
    {Name, Section, Bytes, [{either, {200, Body}, Status}], either}.

-spec request_line() -> [erlane_http_rows:row()].
request_line() ->
    Line = fun(L) -> [L, "\r\nHost: x\r\n\r\n"] end,
    [ok("a request", "3", Line("GET /a HTTP/1.1"), <<"GET /a x ">>),
     ok("letter case of the method is kept", "9110 9.1", Line("get /a HTTP/1.1"),
        <<"get /a x ">>),
     ok("any token is a method", "9110 5.6.2", Line("!#$%&'*+-.^_`|~0aZ /a HTTP/1.1"),
        <<"!#$%&'*+-.^_`|~0aZ /a x ">>),
     ok("version 1.2 is as 1.1", "2.3", Line("GET /a HTTP/1.2"), <<"GET /a x ">>),
     ok("version 1.9 is as 1.1", "2.3", Line("GET /a HTTP/1.9"), <<"GET /a x ">>)] ++
    [bad("version " ++ V, "9110 2.5", 505, Line("GET /a " ++ V))
     || V <- ["HTTP/2.0", "HTTP/0.9", "HTTP/3.0", "HTTP/9.9"]] ++
    [bad("no version: " ++ V, "2.3", Line("GET /a " ++ V))
     || V <- ["HTTP/1.10", "HTTP/01.1", "HTTP/1", "HTTP/1.", "HTTP/.1", "HTTP/11", "http/1.1",
              "Http/1.1", "HTTP /1.1", "HTTP/1,1", "HTTP/+1.1", "HTTP/1.-1", "HTTP/1.x",
              "HTTPS/1.1", "XHTTP/1.1", "HTTP/1.1x", "HTTP/1.1 x", "HTTP/ 1.1", "HTTP/1. 1"]] ++
    [bad("no version at all", "3", Line("GET /a")),
     bad("a blank and no version", "3", Line("GET /a ")),
     bad("the method alone", "3", Line("GET")),
     bad("no target", "3", Line("GET HTTP/1.1")),
     bad("an empty target", "3", Line("GET  HTTP/1.1")),
     bad("two blanks after the method", "3", Line("GET  /a HTTP/1.1")),
     bad("two blanks before the version", "3", Line("GET /a  HTTP/1.1")),
     bad("a blank after the version", "3", Line("GET /a HTTP/1.1 ")),
     bad("a tab after the version", "3", Line("GET /a HTTP/1.1\t")),
     bad("a tab after the method", "3", Line("GET\t/a HTTP/1.1")),
     bad("a tab before the version", "3", Line("GET /a\tHTTP/1.1")),
     bad("a blank before the method", "3", Line(" GET /a HTTP/1.1")),
     bad("a tab before the method", "3", Line("\tGET /a HTTP/1.1")),
     bad("a blank in the target", "3", Line("GET /a b HTTP/1.1")),
     bad("a vertical tab for a blank", "3", Line("GET\v/a HTTP/1.1")),
     bad("no method", "3", Line("/a HTTP/1.1")),
     %% A line of a head that looks like one of another.
     bad("an answer for a request", "3", "HTTP/1.1 200 OK\r\nHost: x\r\n\r\n"),
     bad("a header for a request line", "3", "Host: x\r\n\r\n"),
     bad("the start of HTTP/2", "3", [400, 505], "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
     bad("a TLS hello", "3", [16#16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, "\r\n\r\n"]),
     bad("noise", "3", [<<255, 254, 0, 1, 2, 3>>, "\r\n\r\n"])] ++
    [bad("method with " ++ C, "9110 9.1", Line(["G", C, "T /a HTTP/1.1"]))
     || C <- ["(", ")", ",", "/", ":", ";", "<", "=", ">", "?", "@", "[", "\\", "]", "{", "}",
              "\"", [0], [1], [127], [128], [255], "\r", "\n"]].

-spec target() -> [erlane_http_rows:row()].
target() ->
    Get = fun(T) -> ["GET ", T, " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
    [ok("target kept as sent: " ++ T, "3.2.1", Get(T), iolist_to_binary(["GET ", T, " x "]))
     || T <- ["/", "/a/b", "/a?b=c&d", "/?", "/a?b?c/d", "//a", "/a//b", "/%41%20", "/a;b=c",
              "/a:b@c", "/!$&'()*+,;=-._~", "/a?/?:@", "/..", "/."]] ++
    [{"path and query", "3.2.1", Get("/path/a%20b//c?x=1&y&z=%41+b"),
      [{200, <<"[<<\"path\">>,<<\"a b\">>,<<>>,<<\"c\">>] "
               "[{<<\"x\">>,<<\"1\">>},{<<\"y\">>,true},{<<\"z\">>,<<\"A b\">>}]">>}], open},
     {"a slash that is encoded parts no segments", "9110 4.2.3", Get("/path/a%2fb"),
      [{200, <<"[<<\"path\">>,<<\"a/b\">>] []">>}], open}] ++
    [bad("target with byte " ++ integer_to_list(C), "3.2", Get(["/a", C, "b"]))
     || C <- [0, 1, $\t, $\n, $\v, $\f, $\r, 27, 127, 128, 255]] ++
    [bad("target " ++ T, "3.2", Get(T))
     || T <- ["a", "a/b", "?a", "x:80", "[::1]:80", "*a", "/a#b", "#", "\\a", "http:", "http:/a",
              "http://", "http:///a", "http://x:y/", "http://a b/", "://x/"]] ++
    %% A path that cannot be decoded is refused at the latest where it is decoded.
    [{"escape in the path " ++ T, "9110 4.2", Get("/path/" ++ T), [400], either}
     || T <- ["%", "%4", "%zz", "%4g", "a%"]] ++
    [ok("absolute-form", "3.2.2", Get("http://y/a?b"), <<"GET http://y/a?b y ">>),
     ok("absolute-form with a port", "3.2.2", Get("http://y:8080/a"),
        <<"GET http://y:8080/a y:8080 ">>),
     ok("absolute-form without a path", "3.2.2", Get("http://y"), <<"GET http://y y ">>),
     ok("absolute-form, query at once", "3.2.2", Get("http://y?a"), <<"GET http://y?a y ">>),
     ok("absolute-form, address of IPv6", "3.2.2", Get("http://[::1]:80/"),
        <<"GET http://[::1]:80/ [::1]:80 ">>),
     ok("absolute-form, letter case of the scheme", "9110 4.2.3", Get("HTTP://y/"),
        <<"GET HTTP://y/ y ">>),
     bad("absolute-form needs a Host, too", "3.2.2", "GET http://y/ HTTP/1.1\r\n\r\n"),
     bad("absolute-form with two Hosts", "3.2", ["GET http://y/ HTTP/1.1\r\n",
                                                 "Host: y\r\nHost: y\r\n\r\n"]),
     either("absolute-form with user and password", "9110 4.2.4", <<"GET http://u:p@y/ y ">>,
            400, Get("http://u:p@y/")),
     ok("asterisk-form", "3.2.4", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", <<"OPTIONS * x ">>),
     bad("asterisk-form with another method", "3.2.4", Get("*")),
     bad("authority-form with another method", "3.2.3", Get("y:443")),
     bad("authority-form with OPTIONS", "3.2.3", "OPTIONS y:443 HTTP/1.1\r\nHost: x\r\n\r\n"),
     bad("CONNECT", "3.2.3", 501, "CONNECT y:443 HTTP/1.1\r\nHost: y:443\r\n\r\n"),
     bad("CONNECT with a path", "3.2.3", [400, 501], "CONNECT /a HTTP/1.1\r\nHost: x\r\n\r\n"),
     bad("CONNECT *", "3.2.3", [400, 501], "CONNECT * HTTP/1.1\r\nHost: x\r\n\r\n")].

-spec host() -> [erlane_http_rows:row()].
host() ->
    Get = fun(Hosts) -> ["GET / HTTP/1.1\r\n", [["Host:", H, "\r\n"] || H <- Hosts], "\r\n"] end,
    [ok("Host " ++ H, "3.2", Get([" " ++ H]), iolist_to_binary(["GET / ", H, " "]))
     || H <- ["x", "x:80", "example.org", "EXAMPLE.org", "a-b.c", "a_b", "127.0.0.1",
              "127.0.0.1:65535", "[::1]", "[::1]:8080", "[2001:db8::1]", "a%41"]] ++
    [bad("Host " ++ H, "3.2", Get([" " ++ H]))
     || H <- ["a b", "a/b", "u@a", "u:p@a", "a, b", "[::1", "::1]", "::1", "[::1]x", "a:b", ":80",
              "a:80:80", "a:-1", "a?b", "a#b", "a\\b", "a\"b", "<a>", "http://a", "a:80 b",
              "a\tb", "a^b", "a%4", "a%zz", [128], [195, 164]]] ++
    [bad("no Host in 1.1", "3.2", Get([])),
     bad("no Host in 1.2", "3.2", "GET / HTTP/1.2\r\n\r\n"),
     bad("Host twice, the same", "3.2", Get([" x", " x"])),
     bad("Host twice, another", "3.2", Get([" x", " y"])),
     bad("Host twice in another case", "3.2", "GET / HTTP/1.1\r\nhost: x\r\nHOST: x\r\n\r\n"),
     bad("Host twice in 1.0", "3.2", "GET / HTTP/1.0\r\nHost: x\r\nHost: x\r\n\r\n"),
     bad("Host twice, the second empty", "3.2", Get([" x", ""])),
     bad("Host twice, far apart", "3.2", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\nHost: x\r\n\r\n"),
     ok("Host without a blank", "5.1", Get(["x"]), <<"GET / x ">>),
     ok("Host amid blanks", "5.1", Get([" \t x \t"]), <<"GET / x ">>),
     ok("Host last", "3.2", "GET / HTTP/1.1\r\nA: b\r\nhOsT: x\r\n\r\n", <<"GET / x ">>),
     either("an empty Host", "3.2", <<"GET / - ">>, 400, Get([""])),
     either("Host with a comma", "3.2", <<"GET / a,b ">>, 400, Get([" a,b"])),
     {"no Host in 1.0", "3.2", "GET / HTTP/1.0\r\n\r\n", [{200, <<"GET / - ">>}], closed},
     {"Host in 1.0", "3.2", "GET / HTTP/1.0\r\nHost: x\r\n\r\n", [{200, <<"GET / x ">>}],
      closed}].

-spec fields() -> [erlane_http_rows:row()].
fields() ->
    Head = fun(F) -> ["GET /headers HTTP/1.1\r\nHost: x\r\n", F, "\r\n\r\n"] end,
    Get = fun(F) -> [?GET, F, "\r\n\r\n"] end,
    [ok("field " ++ F, "5.1", Head(F), <<"host=x;", Text/binary>>)
     || {F, Text} <- [{"A: b", <<"a=b;">>}, {"A:b", <<"a=b;">>}, {"A: \t b \t ", <<"a=b;">>},
                      {"A:", <<"a=;">>}, {"A: ", <<"a=;">>}, {"A: \t ", <<"a=;">>},
                      {"A: b c\td", <<"a=b c\td;">>}, {"A: :", <<"a=:;">>},
                      {"A: b:c", <<"a=b:c;">>}, {"A: \"b\\\"", <<"a=\"b\\\";">>},
                      {"A: b\r\nA: c", <<"a=b;a=c;">>}, {"a: 1\r\nA: 2", <<"a=1;a=2;">>},
                      {"X-0_9.z: b", <<"x-0_9.z=b;">>},
                      {"!#$%&'*+-.^_`|~: b", <<"!#$%&'*+-.^_`|~=b;">>}]] ++
    [ok("bytes over 127 in a value", "9110 5.5", Head(["A: ", 128, 255]),
        <<"host=x;a=", 128, 255, ";">>)] ++
    [bad("name with byte " ++ integer_to_list(C), "5.1", Get(["A", C, "b: c"]))
     || C <- [0, 1, $\t, $\n, $\r, $\s, $", $(, $), $\,, $/, $;, $<, $=, $>, $?, $@, $[, $\\, $],
              ${, $}, 127, 128, 255]] ++
    [bad("value with byte " ++ integer_to_list(C), "9110 5.5", Get(["A: b", C, "c"]))
     || C <- lists:seq(0, 8) ++ [$\n, $\v, $\f, $\r] ++ lists:seq(14, 31) ++ [127]] ++
    [bad("value ending in byte " ++ integer_to_list(C), "9110 5.5", Get(["A: b", C]))
     || C <- [0, $\v, $\f, 127]] ++
    [bad("value of one byte " ++ integer_to_list(C), "9110 5.5", Get(["A: ", C]))
     || C <- [0, $\v, 127]] ++
    %% A parser may take many bytes at a time, and names in small letters another way.
    [bad(io_lib:format("value with byte ~b at ~b", [C, N]), "9110 5.5",
         Get(["A: ", lists:duplicate(N, $b), C, "cccccccc"]))
     || C <- [0, 1, $\r, $\n, 127], N <- lists:seq(0, 8)] ++
    [ok(io_lib:format("value with byte ~b at ~b", [C, N]), "9110 5.5",
        Head(["A: ", lists:duplicate(N, $b), C, "cccc"]),
        iolist_to_binary(["host=x;a=", lists:duplicate(N, $b), C, "cccc;"]))
     || C <- [$\s, $\t, 255], N <- lists:seq(1, 8)] ++
    [bad("name in small letters with byte " ++ integer_to_list(C), "5.1", Get(["aa", C, "b: c"]))
     || C <- [0, $\t, $\n, $\r, $\s, $", $(, $\,, $/, $;, $@, ${, 127, 128, 255]] ++
    [bad("small letters, then a blank, in " ++ N, "5.1", [?GET, N, V])
     || N <- ["aa", "host", "content-length", "transfer-encoding", "connection"],
        V <- [" : 1\r\n\r\n", "\t: 1\r\n\r\n", ":\r\n 1\r\n\r\n"]] ++
    [bad("an empty name", "5.1", Get(": b")),
     bad("no colon", "5", Get("A")),
     bad("no colon, two words", "5", Get("A b")),
     bad("a blank before the colon", "5.1", Get("A : b")),
     bad("a tab before the colon", "5.1", Get("A\t: b")),
     bad("a blank before the colon of Host", "5.1", "GET / HTTP/1.1\r\nHost : x\r\n\r\n"),
     bad("a folded line", "5.2", Get("A: b\r\n c")),
     bad("a line folded with a tab", "5.2", Get("A: b\r\n\tc")),
     bad("a folded line of blanks", "5.2", Get("A: b\r\n \r\nC: d")),
     bad("a folded line of blanks at the end", "5.2", Get("A: b\r\n ")),
     bad("a folded Host", "5.2", "GET / HTTP/1.1\r\nHost:\r\n x\r\n\r\n"),
     bad("a folded line after an empty value", "5.2", Get("A:\r\n b")),
     bad("a blank before the first header", "2.2", "GET / HTTP/1.1\r\n Host: x\r\n\r\n"),
     bad("a tab before the first header", "2.2", "GET / HTTP/1.1\r\n\tHost: x\r\n\r\n"),
     bad("a line of blanks before the headers", "2.2", "GET / HTTP/1.1\r\n \r\nHost: x\r\n\r\n")].

-spec line_ends() -> [erlane_http_rows:row()].
line_ends() ->
    [ok("an empty line before a request", "2.2", "\r\n" ?GET "\r\n", <<"GET / x ">>),
     bad("two empty lines before a request", "2.2", "\r\n\r\n" ?GET "\r\n"),
     {"an empty line between requests", "2.2", [?GET "\r\n\r\n", ?GET "\r\n"],
      [{200, <<"GET / x ">>}, {200, <<"GET / x ">>}], open},
     {"an empty line after a body", "2.2",
      [?POST "Content-Length: 1\r\n\r\na\r\n", ?GET "\r\n"],
      [{200, <<"POST / x a">>}, {200, <<"GET / x ">>}], open},
     bad("LF before a request", "2.2", "\n" ?GET "\r\n"),
     bad("CR before a request", "2.2", "\r" ?GET "\r\n"),
     bad("LF after the request line", "2.2", "GET / HTTP/1.1\nHost: x\r\n\r\n"),
     bad("LF after a header", "2.2", "GET / HTTP/1.1\r\nHost: x\n\r\n"),
     bad("LF after a header before another", "2.2", "GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n"),
     bad("LF for the empty line", "2.2", "GET / HTTP/1.1\r\nHost: x\r\n\n"),
     bad("LF everywhere", "2.2", "GET / HTTP/1.1\nHost: x\n\n"),
     bad("CR everywhere", "2.2", "GET / HTTP/1.1\rHost: x\r\r\n\r\n"),
     bad("CR after the request line", "2.2", "GET / HTTP/1.1\rHost: x\r\n\r\n"),
     bad("CR CR LF after the request line", "2.2", "GET / HTTP/1.1\r\r\nHost: x\r\n\r\n"),
     bad("CR CR LF after a header", "2.2", "GET / HTTP/1.1\r\nHost: x\r\r\n\r\n"),
     bad("CR CR LF for the empty line", "2.2", "GET / HTTP/1.1\r\nHost: x\r\n\r\r\n"),
     bad("CR before a header", "2.2", "GET / HTTP/1.1\r\n\rHost: x\r\n\r\n"),
     bad("LF CR", "2.2", "GET / HTTP/1.1\n\rHost: x\n\r\n\r"),
     bad("CR in a value", "2.2", ?GET "A: b\rc\r\n\r\n"),
     bad("CR at the end of a value", "2.2", ?GET "A: b\r\r\n\r\n"),
     bad("CR at the start of a value", "2.2", ?GET "A:\rb\r\n\r\n"),
     bad("CR in a name", "2.2", ?GET "A\rB: c\r\n\r\n"),
     bad("CR for the empty line", "2.2", ?GET "\rA: b\r\n\r\n")].

-spec length() -> [erlane_http_rows:row()].
length() ->
    Post = fun(F, Body) -> [?POST, F, "\r\n\r\n", Body] end,
    Value = fun(V) -> [?POST "Content-Length:", V, "\r\n\r\nhello"] end,
    [ok("a body", "6.2", Value(" 5"), <<"POST / x hello">>),
     ok("no blank before the length", "5.1", Value("5"), <<"POST / x hello">>),
     ok("blanks around the length", "5.1", Value(" \t5 \t"), <<"POST / x hello">>),
     ok("length 0", "6.2", Post("Content-Length: 0", ""), <<"POST / x ">>),
     ok("POST without any length", "6.3", ?POST "\r\n", <<"POST / x ">>),
     ok("a body of GET", "9110 9.3.1", [?GET "Content-Length: 5\r\n\r\nhello"],
        <<"GET / x hello">>),
     ok("a body of DELETE", "9110 9.3.5",
        "DELETE / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", <<"DELETE / x hello">>),
     ok("a body with all bytes", "6.2",
        [?POST "Content-Length: 256\r\n\r\n", lists:seq(0, 255)],
        iolist_to_binary(["POST / x ", lists:seq(0, 255)])),
     ok("a body that looks like a request", "6.2",
        Post("Content-Length: 35", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
        <<"POST / x GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n">>),
     {"two bodies in a row", "9.3.2", [Value(" 5"), Post("Content-Length: 2", "ab")],
      [{200, <<"POST / x hello">>}, {200, <<"POST / x ab">>}], open},
     ok("a body in pieces", "6.2",
        "POST /stream HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n01234567890123456789",
        <<"POST /stream x 01234567890123456789">>),
     ok("no body in pieces", "6.2", "POST /stream HTTP/1.1\r\nHost: x\r\n\r\n",
        <<"POST /stream x ">>),
     ok("a body the handler leaves", "9.3",
        "POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", <<"unread">>),
     {"a chunked body the handler leaves", "9.3",
      ["POST /unread HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
       "5\r\nhello\r\n0\r\n\r\n"], [{200, <<"unread">>}], either},
     either("zeros before the length", "9110 8.6", <<"POST / x hello">>, 400, Value(" 0005"))] ++
    [bad("length " ++ V, "6.3", Value(" " ++ V))
     || V <- ["", "+5", "-5", "-0", "--5", "5 5", "5\t5", "0x5", "0X5", "x5", "5x", "5h", "5;a=b",
              "5,5", "5, 5", "5,", ",5", "5,6", "5.0", "5e0", "1e1", "5_0", "\"5\"", "'5'", "(5)",
              "five", "0b1", "0o5", "5\"", "%35", "18446744073709551616", "18446744073709551621",
              "36893488147419103237", "99999999999999999999999999999999999999",
              lists:duplicate(300, $9), [217, 165], [239, 188, 149], [178], [5]]] ++
    [bad("length twice, the same", "6.3",
         Post("Content-Length: 5\r\nContent-Length: 5", "hello")),
     bad("length twice, another", "6.3", Post("Content-Length: 5\r\nContent-Length: 6", "hello!")),
     bad("length twice, one 0", "6.3", Post("Content-Length: 0\r\nContent-Length: 5", "hello")),
     bad("length twice, one empty", "6.3", Post("Content-Length:\r\nContent-Length: 5", "hello")),
     bad("length twice, in another case", "6.3",
         Post("content-length: 5\r\nCONTENT-LENGTH: 5", "hello")),
     bad("length twice, far apart", "6.3",
         Post("Content-Length: 5\r\nA: b\r\nContent-Length: 5", "hello")),
     bad("length twice on GET", "6.3",
         [?GET "Content-Length: 0\r\nContent-Length: 0\r\n\r\n"]),
     bad("a bad length on GET", "6.3", [?GET "Content-Length: x\r\n\r\n"]),
     bad("a bad length in 1.0", "6.3", "POST / HTTP/1.0\r\nContent-Length: x\r\n\r\n"),
     bad("a length no body can have", "9110 15.5.14", 413,
         Value(" 9223372036854775807")),
     bad("a large length", "9110 15.5.14", 413, Value(" 1000000000000"))].

-spec chunked() -> [erlane_http_rows:row()].
chunked() ->
    Body = fun(Chunks) -> [?CHUNKED, Chunks] end,
    Coding = fun(V) -> [?POST "Transfer-Encoding:", V, "\r\n\r\n5\r\nhello\r\n0\r\n\r\n"] end,
    Hello = <<"POST / x hello">>,
    [ok("chunks " ++ string:replace(C, "\r\n", "|", all), "7.1", Body(C), Hello)
     || C <- ["5\r\nhello\r\n0\r\n\r\n", "1\r\nh\r\n4\r\nello\r\n0\r\n\r\n",
              "05\r\nhello\r\n00\r\n\r\n", "0000000000000005\r\nhello\r\n0000000000000000\r\n\r\n",
              "5;a\r\nhello\r\n0\r\n\r\n", "5;a=b\r\nhello\r\n0;c=d\r\n\r\n",
              "5;a=\"b c\"\r\nhello\r\n0\r\n\r\n", "5;a;b=c;d\r\nhello\r\n0\r\n\r\n",
              "5;a=\"\\\"\"\r\nhello\r\n0\r\n\r\n"]] ++
    [ok("chunk sizes in both cases", "7.1",
        Body(["a\r\n0123456789\r\nB\r\n0123456789a\r\n0\r\n\r\n"]),
        <<"POST / x 01234567890123456789a">>),
     ok("no chunk but the last", "7.1", Body("0\r\n\r\n"), <<"POST / x ">>),
     ok("a chunk that looks like the last", "7.1", Body("7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n"),
        <<"POST / x \r\n0\r\n\r\n">>),
     ok("chunked in pieces", "7.1",
        ["POST /stream HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
         "9\r\n012345678\r\n3\r\nabc\r\n0\r\n\r\n"], <<"POST /stream x 012345678abc">>),
     ok("chunked on GET", "6.1",
        ["GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
         "0\r\n\r\n"], <<"GET / x hello">>),
     {"two chunked bodies in a row", "9.3.2", [Body("1\r\na\r\n0\r\n\r\n"), Body("0\r\n\r\n")],
      [{200, <<"POST / x a">>}, {200, <<"POST / x ">>}], open}] ++
    [ok("coding" ++ V, "7", Coding(V), Hello)
     || V <- [" chunked", "chunked", " Chunked", " CHUNKED", "\tchunked", " chunked ",
              " \tcHuNkEd\t "]] ++
    [bad("coding" ++ V, "6.1", Status, Coding(V))
     || {Status, V} <- [{400, " chunked, chunked"}, {400, " chunked,chunked"},
                        {400, " chunked\r\nTransfer-Encoding: chunked"}, {400, " chunked, gzip"},
                        {400, " chunked\r\nTransfer-Encoding: gzip"}, {400, ""}, {400, " chunke"},
                        {501, " gzip, chunked"}, {501, " gzip\r\nTransfer-Encoding: chunked"},
                        {501, " identity, chunked"}, {400, " chunked\r\nContent-Length: 15"},
                        {400, " gzip, chunked\r\nContent-Length: 15"}]] ++
    [bad("chunked in 1.0", "6.1",
         "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
     bad("another coding in 1.0", "6.1",
         "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n0\r\n\r\n")] ++
    [bad("chunk " ++ io_lib:format("~0p", [iolist_to_binary(C)]), "7.1", Body(C))
     || C <- ["\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n",
              "5\t\r\nhello\r\n0\r\n\r\n", "\t5\r\nhello\r\n0\r\n\r\n",
              "+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "-0\r\n\r\n", "+0\r\n\r\n",
              "0x5\r\nhello\r\n0\r\n\r\n", "0X0\r\n\r\n", "x5\r\nhello\r\n0\r\n\r\n",
              "5h\r\nhello\r\n0\r\n\r\n", "5_0\r\nhello\r\n0\r\n\r\n", "5.\r\nhello\r\n0\r\n\r\n",
              "5,\r\nhello\r\n0\r\n\r\n", "\"5\"\r\nhello\r\n0\r\n\r\n",
              ";a\r\nhello\r\n0\r\n\r\n", "g\r\nhello\r\n0\r\n\r\n", "5\nhello\n0\n\n",
              "5\nhello\r\n0\r\n\r\n", "5\rhello\r\n0\r\n\r\n", "5\r\r\nhello\r\n0\r\n\r\n",
              "5\r\nhello0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello\r0\r\n\r\n",
              "5\r\nhelloXX0\r\n\r\n", "5\r\nhello!\r\n0\r\n\r\n", "4\r\nhello\r\n0\r\n\r\n",
              "5\r\nhello\r\r\n0\r\n\r\n", "5\r\nhello \r\n0\r\n\r\n",
              "5\r\nhello\r\n\r\n0\r\n\r\n", "5\r\nhello\r\n0\n\r\n", "5\r\nhello\r\n0\r\r\n",
              "5\r\nhello\r\n0\r\n\n", "5\r\nhello\r\n0 \r\n\r\n", "5\r\nhello\r\nx\r\n\r\n",
              "00000000000000005\r\nhello\r\n0\r\n\r\n", "00000000000000000\r\n\r\n",
              "10000000000000005\r\nhello\r\n0\r\n\r\n",
              "100000000000000000000000000000005\r\nhello\r\n0\r\n\r\n",
              "5;a=\"b\rc\"\r\nhello\r\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n",
              "5;a\rb\r\nhello\r\n0\r\n\r\n", "5;a\r\r\nhello\r\n0\r\n\r\n",
              ["5;a", 0, "\r\nhello\r\n0\r\n\r\n"], ["5;a", 127, "\r\nhello\r\n0\r\n\r\n"],
              ["5;a", 1, "\r\nhello\r\n0\r\n\r\n"],
              [128, "\r\nhello\r\n0\r\n\r\n"], [217, 165, "\r\nhello\r\n0\r\n\r\n"]]] ++
    %% What is no more than 16 digits may be counted, and is too much then.
    [bad("chunk of size " ++ S, "7.1", [400, 413], Body([S, "\r\nhello\r\n0\r\n\r\n"]))
     || S <- ["FFFFFFFFFFFFFFFF", "8000000000000000", "7FFFFFFFFFFFFFFF", "FFFFFFFF",
              "8000000000000005"]] ++
    [either("chunk " ++ string:replace(C, "\r\n", "|", all), "7.1.1", Hello, 400, Body(C))
     || C <- ["5;\r\nhello\r\n0\r\n\r\n", "5 ;a\r\nhello\r\n0\r\n\r\n",
              "5; a = b\r\nhello\r\n0\r\n\r\n", "5;=b\r\nhello\r\n0\r\n\r\n",
              "5;a=\r\nhello\r\n0\r\n\r\n", "5;a=\"b\r\nhello\r\n0\r\n\r\n",
              "5;(\r\nhello\r\n0\r\n\r\n"]].

-spec trailers() -> [erlane_http_rows:row()].
trailers() ->
    Body = fun(Fields) -> [?CHUNKED, "5\r\nhello\r\n0\r\n", Fields, "\r\n"] end,
    Hello = <<"POST / x hello">>,
    [ok("a trailer", "7.1.2", Body("A: b\r\n"), <<Hello/binary, " a=b">>),
     ok("trailers", "7.1.2", Body("A: b\r\nC: \td \r\n"), <<Hello/binary, " a=b c=d">>),
     ok("trailers are no headers", "9110 6.5.1",
        ["POST /headers HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
         "0\r\nA: b\r\n\r\n"], <<"host=x;transfer-encoding=chunked;">>)] ++
    [ok("trailer to be dropped: " ++ F, "9110 6.5.1", Body(["A: b\r\n", F, "\r\nC: d\r\n"]),
        <<Hello/binary, " a=b c=d">>)
     || F <- ["Content-Length: 5", "content-length: x", "Transfer-Encoding: chunked", "Host: y",
              "HOST: y", "Authorization: Basic eDp5", "Trailer: a", "Proxy-Authorization: x",
              "Cookie: a=b", "Connection: close", "TE: trailers", "Content-Encoding: gzip",
              "Content-Type: text/plain", "Content-Range: bytes 0-1/2", "Expect: 100-continue",
              "Cache-Control: no-cache", "Range: bytes=0-1"]] ++
    [bad("trailer " ++ io_lib:format("~0p", [iolist_to_binary(F)]), "7.1.2", Body(F))
     || F <- ["A\r\n", ": b\r\n", "A : b\r\n", " A: b\r\n", "A: b\r\n c\r\n", "A: b\n",
              "A: b\rc\r\n",
              ["A: ", 0, "\r\n"], "A: b\r\r\n", "A(: b\r\n", ["A: ", 127, "\r\n"], "A: b\r\n\n",
              "GET /smuggled HTTP/1.1\r\nHost: x\r\n"]].

-spec expect() -> [erlane_http_rows:row()].
expect() ->
    Post = fun(Target, Version, F, Body) ->
                   ["POST ", Target, " HTTP/", Version, "\r\nHost: x\r\nExpect: ", F,
                    "\r\nContent-Length: ", integer_to_list(iolist_size(Body)), "\r\n\r\n", Body]
           end,
    Continue = {100, <<>>},
    %% The body is sent at once here, so that 100 is not needed, and may come nevertheless.
    [{"100-continue, and the body at once", "9110 10.1.1",
      Post("/", "1.1", "100-continue", "hello"),
      [{optional, Continue}, {200, <<"POST / x hello">>}], open},
     {"100-continue in another case", "9110 10.1.1", Post("/", "1.1", "100-Continue", "hello"),
      [{optional, Continue}, {200, <<"POST / x hello">>}], open},
     ok("100-continue without a body", "9110 10.1.1", Post("/", "1.1", "100-continue", ""),
        <<"POST / x ">>),
     {"100-continue in 1.0", "9110 10.1.1", Post("/", "1.0", "100-continue", "hello"),
      [{200, <<"POST / x hello">>}], closed},
     {"100-continue and a body not wanted", "9110 10.1.1",
      Post("/unread", "1.1", "100-continue", "hello"), [{200, <<"unread">>}], either},
     {"100-continue and a body too large", "9110 10.1.1",
      [?POST "Expect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n"], [413], closed},
     {"an unknown expectation", "9110 10.1.1", Post("/", "1.1", "200-ok", ""), [417], either},
     {"an unknown expectation with a body", "9110 10.1.1", Post("/", "1.1", "more", "hello"),
      [417], either},
     {"an unknown expectation in 1.0", "9110 10.1.1", Post("/", "1.0", "more", "hello"),
      [{200, <<"POST / x hello">>}], closed}].

-spec connection() -> [erlane_http_rows:row()].
connection() ->
    Get = fun(Version, F) -> ["GET / HTTP/", Version, "\r\nHost: x\r\n", F, "\r\n"] end,
    Ok = {200, <<"GET / x ">>},
    [{"closed as asked: " ++ F, "9.6", Get("1.1", F ++ "\r\n"), [Ok], closed}
     || F <- ["Connection: close", "connection: Close", "Connection: CLOSE", "Connection:close",
              "Connection: a, close", "Connection: close, a", "Connection: a,close ,b",
              "Connection: a\r\nConnection: close", "Connection: close\r\nConnection: keep-alive",
              "Connection: keep-alive, close", "Connection: ,close"]] ++
    [{"open: " ++ F, "9.3", Get("1.1", F ++ "\r\n"), [Ok], open}
     || F <- ["A: b", "Connection: keep-alive", "Connection: a", "Connection:",
              "Connection: closed", "Connection: xclose", "Connection: \"close\"",
              "Connection: c lose", "X-Connection: close", "Keep-Alive: timeout=1",
              "Proxy-Connection: close"]] ++
    [{"1.0 ends", "9.3", Get("1.0", ""), [Ok], closed},
     {"1.0 ends with a body", "9.3",
      "POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
      [{200, <<"POST / x hello">>}], closed},
     {"1.0 ends with other options", "9.3", Get("1.0", "Connection: a\r\n"), [Ok], closed},
     {"1.0 and close", "9.3", Get("1.0", "Connection: keep-alive, close\r\n"), [Ok], closed}] ++
    %% The client knows only by the header that it stays open.
    [{"1.0 stays: " ++ F, "9.3", Get("1.0", F ++ "\r\n"),
      [{200, <<"GET / x ">>, [{<<"connection">>, <<"keep-alive">>}]}], open}
     || F <- ["Connection: keep-alive", "Connection: Keep-Alive", "Connection: a, keep-alive"]] ++
    [{"the handler ends it", "9.6", "GET /close HTTP/1.1\r\nHost: x\r\n\r\n", [{200, <<"bye">>}],
      closed},
     {"pipelined, answered in order", "9.3.2",
      [["GET /", integer_to_list(N), " HTTP/1.1\r\nHost: x\r\n\r\n"] || N <- lists:seq(1, 20)],
      [{200, iolist_to_binary(io_lib:format("GET /~b x ", [N]))} || N <- lists:seq(1, 20)], open},
     {"nothing after an error is read", "2.2",
      [Get("1.1", ""), "GET / HTTP/1.1\r\n\r\n", Get("1.1", "")], [Ok, 400], closed},
     {"an upgrade nobody wants", "9110 7.8",
      Get("1.1", "Connection: upgrade\r\nUpgrade: h2c\r\n"), [Ok], open},
     {"version of the request, 1.1", "2.3", "GET /version HTTP/1.1\r\nHost: x\r\n\r\n",
      [{200, <<"1.1">>}], open},
     {"version of the request, 1.0", "2.3", "GET /version HTTP/1.0\r\n\r\n", [{200, <<"1.0">>}],
      closed}].

%% What the server makes of a handler's answer.
-spec answers() -> [erlane_http_rows:row()].
answers() ->
    Get = fun(T) -> ["GET ", T, " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
    Head = fun(T) -> ["HEAD ", T, " HTTP/1.1\r\nHost: x\r\n\r\n"] end,
    [{"HEAD", "9110 9.3.2", Head("/a"),
      [{head, 200, [{<<"content-length">>, <<"10">>}]}], open},
     {"HEAD of chunks", "9110 9.3.2", Head("/chunks"), [{head, 200, []}], open},
     {"HEAD and GET in a row", "9110 9.3.2", [Head("/a"), Get("/a"), Head("/b")],
      [{head, 200, []}, {200, <<"GET /a x ">>}, {head, 200, []}], open},
     {"HEAD with a body", "9110 9.3.2",
      "HEAD /a HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
      [{head, 200, [{<<"content-length">>, <<"15">>}]}], open},
     {"HEAD of a missing Host", "9110 9.3.2", "HEAD /a HTTP/1.1\r\n\r\n", [{head, 400, []}],
      closed},
     {"chunks", "7.1", Get("/chunks"),
      [{200, <<"onetwo">>, [{<<"transfer-encoding">>, <<"chunked">>}]}], open},
     {"chunks in 1.0 end with the connection", "6.1",
      "GET /chunks HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      [{200, <<"onetwo">>, [{<<"transfer-encoding">>, none}]}], closed},
     {"trailers of an answer", "7.1.2", Get("/trailers"), [{200, <<"one">>}], open},
     {"204", "9110 15.3.5", Get("/status/204"), [{204, <<>>}], open},
     {"304", "9110 15.4.5", Get("/status/304"), [{304, <<>>}], open},
     {"204 and another request", "6.3", [Get("/status/204"), Get("/a")],
      [{204, <<>>}, {200, <<"GET /a x ">>}], open},
     {"framing of an answer is the server's: too short", "9110 8.6", Get("/framing/short"),
      [{200, <<"body">>}], open},
     {"framing of an answer is the server's: too long", "9110 8.6", Get("/framing/long"),
      [{200, <<"body">>}], open},
     {"framing of an answer is the server's: a coding", "6.1", Get("/framing/chunked"),
      [{200, <<"body">>}], open},
     {"any status", "9110 15", Get("/status/299"), [{299, <<"body">>}], open},
     {"a status without a name", "9110 15", Get("/status/599"), [{599, <<"body">>}], open},
     {"a large body", "6.2", Get("/big/3000000"),
      [{200, binary:copy(<<"b">>, 3000000)}], open},
     {"a crash", "9110 15.6.1", Get("/crash"), [500], either},
     {"a crash of a POST", "9110 15.6.1",
      "POST /crash HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", [500], either},
     {"a crash amid chunks shows", "8", Get("/chunks/crash"), [cut], closed}] ++
    %% Whoever reads these strictly finds a length in 204, or bytes of a body, if there are any.
    [{"no body " ++ T, "9110 8.6", [Get("/bodiless/" ++ T), Get("/a")],
      [{head, list_to_integer(string:slice(T, string:length(T) - 3)), []},
       {200, <<"GET /a x ">>}], open}
     || T <- ["stream/204", "file/204", "length/204", "stream/304", "file/304", "length/304"]] ++
    [{"a header with " ++ K, "9110 5.5", Get("/header/" ++ K), [500], either}
     || K <- ["cr", "lf", "crlf", "nul", "name", "iolist"]].
