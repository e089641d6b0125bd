%% SPDX-License-Identifier: Apache-2.0
%% @doc The table behind erlane_http_smuggle_SUITE: requests whose end two parsers may see in
%% different places, each with a request for /smuggled where the wrong one would begin. Rows are
%% those of erlane_http_rows; no row may get /smuggled through to the handler.
-module(erlane_http_shapes).

-export([all/0, codings/0, lengths/0, chunks/0, heads/0, framed/0, after_close/0]).

-define(POST, "POST / HTTP/1.1\r\nHost: x\r\n").
-define(INNER, "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n").
-define(TE, "Transfer-Encoding").

-spec all() -> [erlane_http_rows:row()].
all() -> codings() ++ lengths() ++ chunks() ++ heads() ++ framed() ++ after_close().

%% Every spelling of a transfer coding: alone, with a length before it, with one after it, over
%% a body that ends at once for those who read chunks, or late for those who count.
-spec codings() -> [erlane_http_rows:row()].
codings() ->
    lists:append([spelling(Line, alone(Kind)) || {Kind, Line} <- spellings()]).

%% What a coding without a length is answered with; those that may be read are in the table of
%% the rules. With a length there is one answer for all.
alone(good) -> none;
alone(list) -> none;
alone(coding) -> [400, 501];
alone(broken) -> [400].

spelling(Line, Alone) ->
    Late = ["0\r\n\r\n", ?INNER],
    Row = fun(What, Head, Body, Statuses) ->
                  {[What, ": ", Line], "6.3", [?POST, Head, "\r\n", Body], [Statuses], closed}
          end,
    Length = fun(N) -> ["Content-Length: ", integer_to_list(N), "\r\n"] end,
    All = iolist_size(Late),
    [Row("alone", [Line, "\r\n"], Late, Alone) || Alone =/= none] ++
    [Row("length first, of all", [Length(All), Line, "\r\n"], Late, [400]),
     Row("length last, of all", [Line, "\r\n", Length(All)], Late, [400]),
     Row("length first, of a part", [Length(3), Line, "\r\n"], Late, [400]),
     Row("length last, of a part", [Line, "\r\n", Length(3)], Late, [400]),
     Row("length 0", [Length(0), Line, "\r\n"], Late, [400]),
     Row("length last, 0", [Line, "\r\n", Length(0)], Late, [400]),
     Row("length of a chunk line", [Length(4), Line, "\r\n"],
         [integer_to_list(length(?INNER), 16), "\r\n", ?INNER, "\r\n0\r\n\r\n"], [400])].

%% `good': a recipient must read chunks. `list': it may, by the rule of empty elements.
%% `coding': a coding nobody must know. `broken': no such header line may be in a head.
spellings() ->
    [{good, V} || V <- [?TE ": chunked", ?TE ":chunked", "transfer-encoding: chunked",
                        "TRANSFER-ENCODING: chunked", ?TE ": CHUNKED", ?TE ":\tchunked",
                        ?TE ": chunked ", ?TE ": chunked\t", ?TE ":  \t chunked"]] ++
    [{list, V} || V <- [?TE ": ,chunked", ?TE ": chunked,", ?TE ": , chunked", ?TE ": chunked ,",
                        ?TE ": ,,chunked,,", ?TE ":\r\n" ?TE ": chunked",
                        ?TE ": chunked\r\n" ?TE ":"]] ++
    [{coding, V} || V <- [?TE ":", ?TE ": ", ?TE ": ,", ?TE ": identity", ?TE ": gzip",
                          ?TE ": identity, chunked", ?TE ": chunked, identity",
                          ?TE ": gzip, chunked", ?TE ": chunked, gzip", ?TE ": xchunked",
                          ?TE ": chunkedx", ?TE ": chunk", ?TE ": chunked chunked",
                          ?TE ": chunked, chunked", ?TE ": chunked,chunked",
                          ?TE ": chunked\r\n" ?TE ": chunked",
                          ?TE ": chunked\r\n" ?TE ": identity",
                          ?TE ": identity\r\n" ?TE ": chunked", ?TE ": x\r\n" ?TE ": chunked",
                          ?TE ": chunked\r\n" ?TE ": x", ?TE ": \"chunked\"", ?TE ": 'chunked'",
                          ?TE ": chunked;a=b", ?TE ": chunked; a", ?TE ": chunked;",
                          ?TE ": x=chunked", ?TE ": chunked=x", ?TE ": chun ked", ?TE ": c hunked",
                          ?TE ": (a) chunked", ?TE ": chunked (a)", ?TE ": chunked\\",
                          ?TE ": -chunked", ?TE ": :chunked", ?TE ":: chunked", ?TE ": chunked:",
                          ?TE ": chun%6bed", ?TE ": {\"chunked\"}",
                          %% Letters that some lower-case functions make into those of chunked.
                          [?TE ": chun", 16#e2, 16#84, 16#aa, "ed"],
                          [?TE ": ", 16#ef, 16#bb, 16#bf, "chunked"],
                          [?TE ": ", 16#a0, "chunked"], [?TE ": chunked", 16#85],
                          [?TE ": chunked", 16#ff]]] ++
    [{broken, V} || V <- [?TE " : chunked", ?TE "\t: chunked", " " ?TE ": chunked",
                          "\t" ?TE ": chunked", ?TE ":\r\n chunked", ?TE ":\r\n\tchunked",
                          ?TE ": \r\n chunked", ?TE ": chunked\r\n , identity",
                          ?TE ": identity\r\n , chunked", ?TE ": \vchunked", ?TE ": chunked\v",
                          ?TE ": \fchunked", ?TE ": chunked\f", [?TE ": ", 0, "chunked"],
                          [?TE ": chunked", 0], [?TE ": chun", 0, "ked"], [?TE ": chunked", 8],
                          [?TE ": ", 127, "chunked"], [?TE, 0, ": chunked"], [0, ?TE, ": chunked"],
                          ?TE "\v: chunked", ?TE "\r: chunked", ?TE "\n: chunked",
                          "\v" ?TE ": chunked", "Transfer Encoding: chunked",
                          "(" ?TE "): chunked", "\"" ?TE "\": chunked", ?TE ";: chunked",
                          [?TE, 16#a0, ": chunked"], "A: b\n" ?TE ": chunked",
                          "A: b\r" ?TE ": chunked", "A: b\n\r" ?TE ": chunked",
                          "A: b\r\r\n" ?TE ": chunked", [?TE ": chunked\n"], ?TE ": chunked\r",
                          ?TE ":\nchunked", ?TE ":\rchunked", ?TE ": chunked\nA: b",
                          ["A: b", 0, "\r\n" ?TE ": chunked"], ["Tran", 16#c5, 16#bf,
                                                               "fer-Encoding: chunked"]]].

%% Lengths of which two readers may see two.
-spec lengths() -> [erlane_http_rows:row()].
lengths() ->
    All = integer_to_list(length(?INNER)),
    [{["lengths: ", F], "6.3", [?POST, F, "\r\n\r\n", ?INNER], [400], closed}
     || F <- ["Content-Length: 0\r\nContent-Length: " ++ All,
              "Content-Length: " ++ All ++ "\r\nContent-Length: 0",
              "Content-Length: " ++ All ++ "\r\nContent-Length: " ++ All,
              "Content-Length: 0, " ++ All, "Content-Length: " ++ All ++ ", 0",
              "Content-Length: " ++ All ++ ", " ++ All, "Content-Length: " ++ All ++ ",",
              "Content-Length : " ++ All, "Content-Length\t: " ++ All,
              " Content-Length: " ++ All, "A: b\r\n Content-Length: " ++ All,
              "Content-Length:\r\n " ++ All, "Content-Length: \v" ++ All,
              "Content-Length: " ++ All ++ "\f", "Content-Length: +" ++ All,
              "Content-Length: -" ++ All, "Content-Length: " ++ All ++ " 0",
              "Content-Length: 0 " ++ All, "Content-Length: 0x" ++ All,
              "Content-Length: " ++ All ++ "a", "Content-Length: " ++ All ++ "\n",
              "Content-Length: 0\nContent-Length: " ++ All,
              "A: b\nContent-Length: " ++ All, "A: b\rContent-Length: " ++ All,
              "Content Length: " ++ All, "Content-Length: \"" ++ All ++ "\"",
              "Content-Length: " ++ All ++ ".0", "Content-Length: " ++ All ++ "_0",
              ["Content-Length", 0, ": ", All], ["Content-Length: ", All, 0],
              ["Content-Length: ", 16#a0, All], ["Content-Length: ", All, 16#b2],
              %% Four and eight bytes wrap to the true length.
              "Content-Length: " ++ integer_to_list(1 bsl 64 + length(?INNER)),
              "Content-Length: " ++ integer_to_list(1 bsl 128 + length(?INNER)),
              "Content-Length: -" ++ integer_to_list(1 bsl 64 - length(?INNER))]] ++
    [{"length that wraps at four bytes", "6.3",
      [?POST, "Content-Length: ", integer_to_list(1 bsl 32 + length(?INNER)), "\r\n\r\n", ?INNER],
      [[400, 413]], closed}].

%% Chunks of which two readers may see different ends.
-spec chunks() -> [erlane_http_rows:row()].
chunks() ->
    Size = integer_to_list(length(?INNER), 16),
    [{["chunks: ", io_lib:format("~0p", [iolist_to_binary(C)])], "7.1",
      [?POST, ?TE ": chunked\r\n\r\n", C], [[400, 413, 431]], closed}
     || C <- [["5 \r\nhello\r\n0\r\n\r\n", ?INNER], ["0 \r\n\r\n", ?INNER],
              [" 0\r\n\r\n", ?INNER], ["+0\r\n\r\n", ?INNER], ["-0\r\n\r\n", ?INNER],
              ["0x0\r\n\r\n", ?INNER], ["\r\n0\r\n\r\n", ?INNER], ["0\n\n", ?INNER],
              ["0\r\n\n", ?INNER], ["0\n\r\n", ?INNER], ["0\r\r\n\r\n", ?INNER],
              ["0\r\r", ?INNER], ["0\r\n\r", ?INNER], ["0", 0, "\r\n\r\n", ?INNER],
              ["0;a\n\r\n", ?INNER], ["0;a\r", ?INNER], ["0;a\n\n", ?INNER],
              ["1;a\nX\r\n0\r\n\r\n", ?INNER],
              %% For one who ends the line at LF the extension hides a chunk.
              ["5;\n", Size, "\r\nhello\r\n0\r\n\r\n", ?INNER],
              ["2;\nxx\r\n", Size, "\r\n0\r\n\r\n", ?INNER, "\r\n0\r\n\r\n"],
              ["5;a=\"\nb\"\r\nhello\r\n0\r\n\r\n", ?INNER],
              ["5\r\nhello", "0\r\n\r\n", ?INNER], ["5\r\nhelloXX", "0\r\n\r\n", ?INNER],
              ["5\r\nhello\n0\r\n\r\n", ?INNER], ["5\r\nhello\r0\r\n\r\n", ?INNER],
              ["3\r\nhello\r\n0\r\n\r\n", ?INNER], ["6\r\nhello\r\n0\r\n\r\n", ?INNER],
              ["5\r\nhello\r\n", ?INNER], ["g\r\n\r\n", ?INNER], ["0g\r\n\r\n", ?INNER],
              ["0_0\r\n\r\n", ?INNER], ["0,0\r\n\r\n", ?INNER], ["0 0\r\n\r\n", ?INNER],
              %% Four and eight bytes wrap to 0, or to what is there.
              ["10000000000000000\r\n\r\n", ?INNER], ["100000000\r\n\r\n", ?INNER],
              ["1000000000000000", Size, "\r\n", ?INNER, "\r\n0\r\n\r\n"],
              ["1000000", Size, "\r\n", ?INNER, "\r\n0\r\n\r\n", ?INNER],
              ["FFFFFFFFFFFFFFFF\r\n\r\n", ?INNER], ["FFFFFFFFFFFFFFFE\r\n\r\n", ?INNER],
              ["-1\r\n\r\n", ?INNER],
              %% A trailer that is a request, or ends for one reader before it ends for another.
              ["0\r\n", ?INNER], ["0\r\nA\r\n\r\n", ?INNER], ["0\r\nA : b\r\n\r\n", ?INNER],
              ["0\r\nA: b\n\r\n", ?INNER], ["0\r\nA: b\n\n", ?INNER],
              ["0\r\nA: b\r\n\n", ?INNER], ["0\r\nA: b\r\n c\r\n\r\n", ?INNER],
              ["0\r\n \r\n", ?INNER], ["0\r\nA: ", 0, "\r\n\r\n", ?INNER]]].

%% Heads of which two readers may see different ends, and bodies in heads that can have none.
-spec heads() -> [erlane_http_rows:row()].
heads() ->
    Get = "GET / HTTP/1.1\r\nHost: x\r\n",
    Bad = [{"an empty line of LF", [Get, "A: b\n\n", ?INNER]},
           {"an empty line of LF after CRLF", [Get, "A: b\r\n\n", ?INNER]},
           {"an empty line of CR", [Get, "A: b\r\r", ?INNER]},
           {"an empty line with a blank", [Get, "A: b\r\n \r\n", ?INNER]},
           {"an empty line with NUL", [Get, "A: b\r\n", 0, "\r\n", ?INNER]},
           {"a request in a folded line", [Get, "A: b\r\n ", ?INNER]},
           {"a request in a value after LF", [Get, "A: b\n", ?INNER]},
           {"a request in a value after CR", [Get, "A: b\r", ?INNER]},
           {"a request in a name", [Get, ?INNER]},
           {"a request in a target after LF", ["GET /\n", ?INNER]},
           {"a version of long ago", ["GET /\r\n", ?INNER]},
           {"a version of long ago, with LF", ["GET /\n", ?INNER]},
           {"a version with LF", ["GET / HTTP/1.1\n\n", ?INNER]},
           {"chunked in 1.0", ["POST / HTTP/1.0\r\nHost: x\r\n", ?TE, ": chunked\r\n\r\n",
                               "0\r\n\r\n", ?INNER]},
           {"chunked in 1.0 that stays",
            ["POST / HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n", ?TE,
             ": chunked\r\n\r\n0\r\n\r\n", ?INNER]},
           {"chunked and a length in 1.0",
            ["POST / HTTP/1.0\r\nHost: x\r\nContent-Length: 5\r\n", ?TE, ": chunked\r\n\r\n",
             "0\r\n\r\n", ?INNER]},
           {"Hosts", ["GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", ?INNER]},
           {"Hosts, one folded", ["GET / HTTP/1.1\r\nHost: x\r\n Host: y\r\n\r\n", ?INNER]},
           {"Hosts, one in a line of LF", ["GET / HTTP/1.1\r\nA: b\nHost: y\r\nHost: x\r\n\r\n",
                                           ?INNER]},
           {"Hosts, blank before the colon", ["GET / HTTP/1.1\r\nHost: x\r\nHost : y\r\n\r\n",
                                              ?INNER]},
           {"Host with a list", ["GET / HTTP/1.1\r\nHost: x, y\r\n\r\n", ?INNER]},
           {"Host with a path", ["GET / HTTP/1.1\r\nHost: x/y\r\n\r\n", ?INNER]},
           {"Host with a user", ["GET / HTTP/1.1\r\nHost: x@y\r\n\r\n", ?INNER]},
           {"absolute-form and two Hosts",
            ["GET http://y/ HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", ?INNER]},
           {"a tunnel", [501], ["CONNECT y:1 HTTP/1.1\r\nHost: y:1\r\n\r\n", ?INNER]},
           {"a tunnel with a length", [501, 400],
            ["CONNECT y:1 HTTP/1.1\r\nHost: y:1\r\nContent-Length: 0\r\n\r\n", ?INNER]},
           {"HTTP/2", [400, 505], ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ?INNER]}],
    [case Row of
         {Name, Statuses, Bytes} -> {Name, "2.2", Bytes, [Statuses], closed};
         {Name, Bytes} -> {Name, "2.2", Bytes, [400], closed}
     end || Row <- Bad].

%% Requests that are right, with a request in them that is none.
-spec framed() -> [erlane_http_rows:row()].
framed() ->
    All = integer_to_list(length(?INNER)),
    Size = integer_to_list(length(?INNER), 16),
    Counted = fun(Line, F) -> [Line, "\r\nHost: x\r\n", F, "Content-Length: ", All, "\r\n\r\n",
                               ?INNER] end,
    Chunk = ["\r\n", Size, "\r\n", ?INNER, "\r\n0\r\n\r\n"],
    Chunked = fun(Line, F) -> [Line, "\r\nHost: x\r\n", F, ?TE, ": chunked\r\n", Chunk] end,
    Body = fun(Method) -> iolist_to_binary([Method, " / x ", ?INNER]) end,
    [{["in a body of ", M], "6.2", Counted([M, " / HTTP/1.1"], ""), [{200, Body(M)}], open}
     || M <- ["GET", "POST", "OPTIONS", "DELETE", "PUT", "PATCH", "TRACE", "ODD"]] ++
    [{["in a chunked body of ", M], "7.1", Chunked([M, " / HTTP/1.1"], ""), [{200, Body(M)}], open}
     || M <- ["GET", "POST", "OPTIONS", "ODD"]] ++
    [{"in a body of HEAD", "6.2", Counted("HEAD / HTTP/1.1", ""), [{head, 200, []}], open},
     {"in a chunked body of HEAD", "7.1", Chunked("HEAD / HTTP/1.1", ""), [{head, 200, []}],
      open}] ++
    %% None of these frames a body, whatever a front end thinks of it.
    [{["in a body, with ", F], "6.2", Counted("POST / HTTP/1.1", [F, "\r\n"]),
      [{200, Body("POST")}], open}
     || F <- ["Transfer_Encoding: chunked", "X-Transfer-Encoding: chunked", "TE: chunked",
              "Content-Encoding: chunked", "Connection: content-length",
              "Connection: transfer-encoding", "Content_Length: 0", "X-Content-Length: 0",
              "Content-Length-: 0", "Transfer-Encodin: chunked", "Trailer: content-length",
              "Upgrade: h2c\r\nConnection: upgrade", "Keep-Alive: timeout=0",
              "X-HTTP-Method-Override: GET", "X-Original-URL: /smuggled",
              "Range: bytes=0-0"]] ++
    [{["in a chunked body, with ", F], "7.1", Chunked("POST / HTTP/1.1", [F, "\r\n"]),
      [{200, Body("POST")}], open}
     || F <- ["Content_Length: 0", "Connection: transfer-encoding", "X-Content-Length: 3",
              "Trailer: content-length"]] ++
    [{"in a body nobody reads", "9.3", Counted("POST /unread HTTP/1.1", ""), [{200, <<"unread">>}],
      open},
     {"in a chunked body nobody reads", "9.3", Chunked("POST /unread HTTP/1.1", ""),
      [{200, <<"unread">>}], either},
     {"in a body of a crash", "9.3", Counted("POST /crash HTTP/1.1", ""), [500], either},
     {"in a body not wanted", "9110 10.1.1", Counted("POST /unread HTTP/1.1",
                                                     "Expect: 100-continue\r\n"),
      [{200, <<"unread">>}], either},
     {"in a body of an unknown expectation", "9110 10.1.1",
      Counted("POST / HTTP/1.1", "Expect: x\r\n"), [417], either},
     {"in a value", "5", ["GET / HTTP/1.1\r\nHost: x\r\nA: ", "GET /smuggled HTTP/1.1\r\n\r\n"],
      [{200, <<"GET / x ">>}], open},
     {"in a trailer", "7.1.2", [?POST, ?TE, ": chunked\r\n\r\n0\r\nA: GET /smuggled HTTP/1.1\r\n",
                                "\r\n"], [{200, <<"POST / x  a=GET /smuggled HTTP/1.1">>}], open},
     {"trailers that frame", "7.1.2",
      [?POST, ?TE, ": chunked\r\n\r\n0\r\nContent-Length: ", All, "\r\n", ?TE, ": chunked\r\n",
       "Host: y\r\n\r\n"], [{200, <<"POST / x ">>}], open},
     {"in an extension", "7.1.1", [?POST, ?TE, ": chunked\r\n\r\n",
                                   "1;a=\"GET /smuggled HTTP/1.1\"\r\na\r\n0\r\n\r\n"],
      [{200, <<"POST / x a">>}], open},
     {"absolute-form against Host", "3.2.2", "GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n",
      [{200, <<"GET http://y/ y ">>}], open}].

%% What comes after a request that ends the connection, at the same time: only so, since who goes
%% on sending later may be answered by a reset.
-spec after_close() -> [erlane_http_rows:row()].
after_close() ->
    [{"after the close that was asked for", "9.6",
      ["GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ?INNER],
      [{200, <<"GET / x ">>}], closed},
     {"after a body and the close that was asked for", "9.6",
      [?POST, "Connection: close\r\nContent-Length: 2\r\n\r\nab", ?INNER],
      [{200, <<"POST / x ab">>}], closed},
     {"after 1.0", "9.6", ["GET / HTTP/1.0\r\n\r\n", ?INNER], [{200, <<"GET / - ">>}], closed},
     {"after a body of 1.0", "9.6",
      ["POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nab", ?INNER], [{200, <<"POST / - ab">>}],
      closed},
     {"after a close of the handler", "9.6", ["GET /close HTTP/1.1\r\nHost: x\r\n\r\n", ?INNER],
      [{200, <<"bye">>}], closed},
     {"after the second, which ends it", "9.6",
      ["GET / HTTP/1.1\r\nHost: x\r\n\r\n",
       "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ?INNER],
      [{200, <<"GET / x ">>}, {200, <<"GET / x ">>}], closed}].
