%% SPDX-License-Identifier: Apache-2.0
%% @doc Static files over real connections.
-module(erlane_http_file_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([a_file/1, head/1, other_methods/1, not_found/1, long_names/1, links/1, a_link_as_root/1,
         dotfiles/1, prefix/1, strange_names/1, unreadable/1, options/1]).
-export([redirects/1, no_open_redirect/1, index_files/1, listing/1, listing_is_escaped/1]).
-export([not_modified/1, preconditions/1, fresh_files_are_weak/1, cache_control/1]).
-export([ranges/1, multipart/1, if_range/1, empty_file/1]).
-export([large/1, large_over_tls/1, shrinks/1, shrinks_in_multipart/1, replaced/1,
         descriptors/1]).

-import(erlane_http_client, [get/2, get/3, ask/2, connect/1, connect/2, closed/1, header/2]).

-define(LARGE, 5000000).

suite() -> [{timetrap, {minutes, 1}}].

all() ->
    [a_file, head, other_methods, not_found, long_names, links, a_link_as_root, dotfiles, prefix,
     strange_names, unreadable, options,
     redirects, no_open_redirect, index_files, listing, listing_is_escaped,
     not_modified, preconditions, fresh_files_are_weak, cache_control,
     ranges, multipart, if_range, empty_file,
     large, large_over_tls, shrinks, shrinks_in_multipart, replaced, descriptors].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    Dir = proplists:get_value(priv_dir, Config),
    Root = filename:join(Dir, "root"),
    Write = fun(Name, Bytes) ->
                    File = filename:join(Root, Name),
                    ok = filelib:ensure_dir(File),
                    ok = file:write_file(File, Bytes),
                    ok = file:change_time(File, {{2020, 1, 1}, {12, 0, 0}})
            end,
    ok = file:make_dir(Root),
    ok = file:write_file(filename:join(Dir, "outside.txt"), "secret"),
    [Write(Name, Bytes)
     || {Name, Bytes} <- [{"a.txt", "0123456789"}, {"empty", ""}, {".hidden", "hidden"},
                          {".d/x.txt", "hidden"}, {"sub/index.html", "<p>sub"},
                          {"sub/b.txt", "b"}, {"bare/c.txt", "c"}, {"bare/d/e.txt", "e"},
                          {"two/second.html", "second"}, {"two/index.html/x", "x"}]],
    Write("large.bin", pattern(?LARGE)),
    [ok = file:make_symlink(To, filename:join(Root, Name))
     || {Name, To} <- [{"in", "a.txt"}, {"in_up", "sub/../sub/b.txt"}, {"in_dir", "sub"},
                       {"in_absolute", filename:join(Root, "a.txt")}, {"chain", "in"},
                       {"sub/back", "../a.txt"},
                       {"out", "../outside.txt"}, {"out_dir", ".."}, {"up_and_in", "../root/a.txt"},
                       {"out_absolute", "/etc/passwd"}, {"out_root", "/"}, {"loop", "loop"},
                       {"dangling", "nothing"}, {"file_as_dir", "a.txt/x"}]],
    "" = os:cmd("mkfifo '" ++ filename:join(Root, "fifo") ++ "'"),
    [{root, Root} | Config].

end_per_suite(_Config) ->
    application:stop(erlane_http).

end_per_testcase(_Case, _Config) ->
    erlane_http_client:stop(files).

serve(Config) ->
    serve(Config, #{}).

serve(Config, Opts) ->
    serve(Config, Opts, #{}).

serve(Config, Opts, Listener) ->
    Root = proplists:get_value(root, Config),
    Handler = {erlane_http_file, maps:merge(#{root => Root}, Opts)},
    erlane_http_client:start(files, Handler, Listener).

status(Port, Target) -> erlane_http_client:status(get(Port, Target)).
body(Port, Target) -> erlane_http_client:body(get(Port, Target)).

%% What an answer says of a file.
a_file(Config) ->
    Answer = get(serve(Config), "/a.txt"),
    ?assertMatch(#{status := 200, body := <<"0123456789">>, rest := <<>>}, Answer),
    ?assertEqual([<<"text/plain; charset=utf-8">>, <<"10">>, <<"bytes">>, <<"nosniff">>],
                 [header(N, Answer) || N <- [<<"content-type">>, <<"content-length">>,
                                             <<"accept-ranges">>, <<"x-content-type-options">>]]),
    ?assertMatch(<<"\"", _/binary>>, header(<<"etag">>, Answer)),
    {ok, Modified} = erlane_http_date:parse(header(<<"last-modified">>, Answer)),
    ?assertEqual(filelib:last_modified(filename:join(proplists:get_value(root, Config), "a.txt")),
                 calendar:system_time_to_local_time(Modified, second)).

%% HEAD is GET without the body, and the connection goes on.
head(Config) ->
    Socket = connect(serve(Config)),
    Get = ask(Socket, "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n"),
    Head = ask(Socket, "HEAD /a.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\n\r\n"),
    ?assertMatch(#{status := 200, body := <<>>, rest := <<>>}, Head),
    Same = fun(A) -> lists:sort(proplists:delete(<<"date">>, maps:get(headers, A))) end,
    ?assertEqual(Same(Get), Same(Head)),
    ?assertMatch(#{status := 404},
                 ask(Socket, "HEAD /x HTTP/1.1\r\nHost: x\r\n\r\n")),
    ?assertMatch(#{status := 200, body := <<"b">>},
                 ask(Socket, "GET /sub/b.txt HTTP/1.1\r\nHost: x\r\n\r\n")),
    ok = gen_tcp:close(Socket).

other_methods(Config) ->
    Socket = connect(serve(Config)),
    [begin
         Answer = ask(Socket, [Method, " /a.txt HTTP/1.1\r\nHost: x\r\n\r\n"]),
         ?assertMatch({Method, #{status := 405}}, {Method, Answer}),
         ?assertEqual(<<"GET, HEAD">>, header(<<"allow">>, Answer))
     end || Method <- ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND"]],
    ok = gen_tcp:close(Socket).

%% What is not under the root, is no file or is not written plainly does not exist.
not_found(Config) ->
    Port = serve(Config),
    [?assertEqual({Target, 404}, {Target, status(Port, Target)})
     || Target <- ["/nothing", "/../outside.txt", "/%2e%2e/outside.txt", "/.%2e/outside.txt",
                   "/sub/../../outside.txt", "/sub/..%2f..%2foutside.txt", "/..%5coutside.txt",
                   "/sub%2fb.txt", "/%2fetc/passwd", "/a.txt%00", "/%00", "/a%00.txt",
                   "//a.txt", "/sub//b.txt", "/./a.txt", "/sub/./b.txt", "/sub/.", "/sub/..",
                   "/a.txt/", "/a.txt/x", "/a.txt/..", "/.hidden", "/%2ehidden", "/.d/x.txt",
                   "/out", "/out_dir/outside.txt", "/out_dir/", "/out_absolute",
                   "/out_root/etc/passwd", "/loop", "/loop/x", "/dangling", "/file_as_dir",
                   "/fifo", "/%ff", "/a.txt%ff", "/A.TXT", "/bare/", "/%252e%252e/outside.txt"]].

%% 255 bytes may be a name; more is none, and so is a path that is too long.
long_names(Config) ->
    Port = serve(Config),
    [?assertEqual({N, 404}, {N, status(Port, ["/", lists:duplicate(N, $x)])})
     || N <- [255, 256, 5000]],
    ?assertEqual(404, status(Port, lists:duplicate(3000, "/x"))).

%% A link is followed to where it stays under the root.
links(Config) ->
    Port = serve(Config),
    [?assertEqual({Target, Body}, {Target, body(Port, Target)})
     || {Target, Body} <- [{"/in", <<"0123456789">>}, {"/in_absolute", <<"0123456789">>},
                           {"/chain", <<"0123456789">>}, {"/up_and_in", <<"0123456789">>},
                           {"/in_up", <<"b">>}, {"/in_dir/b.txt", <<"b">>},
                           {"/in_dir/", <<"<p>sub">>}, {"/sub/back", <<"0123456789">>},
                           {"/in_dir/back", <<"0123456789">>}]].

a_link_as_root(Config) ->
    Link = filename:join(proplists:get_value(priv_dir, Config), "link_to_root"),
    ok = file:make_symlink("root", Link),
    Port = serve(Config, #{root => Link}),
    ?assertEqual(<<"0123456789">>, body(Port, "/a.txt")),
    ?assertEqual(<<"0123456789">>, body(Port, "/in_absolute")),
    ?assertEqual(404, status(Port, "/out")).

dotfiles(Config) ->
    Port = serve(Config, #{dotfiles => true}),
    ?assertEqual(<<"hidden">>, body(Port, "/.hidden")),
    ?assertEqual(<<"hidden">>, body(Port, "/.d/x.txt")),
    ?assertEqual(404, status(Port, "/../outside.txt")).

%% What comes before the root in a path; nothing else is under it.
prefix(Config) ->
    Port = serve(Config, #{prefix => [<<"static">>, <<"v 1">>], index => []}),
    ?assertEqual(<<"b">>, body(Port, "/static/v%201/sub/b.txt")),
    ?assertEqual(<<"/static/v%201/sub/">>,
                 header(<<"location">>, get(Port, "/static/v%201/sub"))),
    [?assertEqual({Target, 404}, {Target, status(Port, Target)})
     || Target <- ["/", "/a.txt", "/static/a.txt", "/static/v%201/../a.txt", "/x/v%201/a.txt",
                   "/static/v%201x/a.txt"]],
    ?assertEqual(<<"/static/v%201/">>, header(<<"location">>, get(Port, "/static/v%201"))).

%% Any bytes of UTF-8, blanks and marks are names, too.
strange_names(Config) ->
    Port = serve(Config),
    Root = proplists:get_value(root, Config),
    [begin
         ok = file:write_file(<<(unicode:characters_to_binary(Root))/binary, "/", Name/binary>>,
                              Name),
         Target = [$/, erlane_http_file_path:encode(Name)],
         ?assertEqual({Name, Name}, {Name, body(Port, Target)})
     end || Name <- [<<"a b">>, <<"a+b">>, <<"a%20b">>, <<"100%">>, <<"?q=1">>, <<"#x">>, <<"a:b">>,
                     <<16#E9/utf8, 16#4E2D/utf8>>, <<"back\\slash">>, <<"new\nline">>,
                     <<"latin1 ", 16#E9>>]].

%% Nobody but root may read what has no permission.
unreadable(Config) ->
    File = filename:join(proplists:get_value(root, Config), "unreadable"),
    ok = file:write_file(File, "x"),
    ok = file:change_mode(File, 8#000),
    case file:read_file(File) of
        {ok, _} -> {skip, "this user may read everything"};
        {error, eacces} -> ?assertEqual(403, status(serve(Config), "/unreadable"))
    end.

options(_Config) ->
    Good = #{root => "/srv", index => [<<"x">>], listing => true, dotfiles => true,
             prefix => [<<"a">>], cache_control => <<"no-cache">>},
    ?assertEqual(ok, erlane_http_file:check(Good)),
    ?assertEqual({error, {root, missing}}, erlane_http_file:check(maps:remove(root, Good))),
    [?assertEqual({error, {Key, Why}}, erlane_http_file:check(Good#{Key => Value}))
     || {Key, Value, Why} <- [{root, 1, badarg}, {index, <<"x">>, badarg}, {index, ["x"], badarg},
                              {listing, 1, badarg}, {dotfiles, no, badarg}, {prefix, "a", badarg},
                              {cache_control, 5, badarg}, {typo, 1, unknown}]].

%% A directory is at its name with a slash.
redirects(Config) ->
    Port = serve(Config),
    [begin
         Answer = get(Port, Target),
         ?assertEqual({Target, 301, Location},
                      {Target, maps:get(status, Answer), header(<<"location">>, Answer)})
     end || {Target, Location} <- [{"/sub", <<"/sub/">>}, {"/sub?a=b&c=//d", <<"/sub/?a=b&c=//d">>},
                                   {"/%73ub", <<"/sub/">>}, {"/bare/d", <<"/bare/d/">>},
                                   {"/in_dir", <<"/in_dir/">>}]].

%% No name of a directory and no way to write it sends a browser to another host.
no_open_redirect(Config) ->
    Root = proplists:get_value(root, Config),
    [ok = file:make_dir(filename:join(Root, Name)) || Name <- ["evil.com", "\\evil.com"]],
    Port = serve(Config),
    [?assertEqual({Target, 404}, {Target, status(Port, Target)})
     || Target <- ["//evil.com", "//evil.com/", "///evil.com", "/%2fevil.com", "/x/..//evil.com",
                   "//evil.com/%2e%2e"]],
    ?assertEqual(<<"/%5Cevil.com/">>, header(<<"location">>, get(Port, "/%5cevil.com"))).

index_files(Config) ->
    Port = serve(Config),
    ?assertMatch(#{status := 200, body := <<"<p>sub">>}, get(Port, "/sub/")),
    ?assertEqual(<<"text/html; charset=utf-8">>, header(<<"content-type">>, get(Port, "/sub/"))),
    %% One that is a directory is none.
    ?assertEqual(404, status(Port, "/two/")),
    erlane_http_client:stop(files),
    Port2 = serve(Config, #{index => [<<"no.html">>, <<"index.html">>, <<"second.html">>]}),
    ?assertEqual(<<"second">>, body(Port2, "/two/")),
    ?assertEqual(<<"<p>sub">>, body(Port2, "/sub/")).

%% Directories have a slash; what is hidden is not shown; the index has precedence.
listing(Config) ->
    Port = serve(Config, #{listing => true}),
    Page = get(Port, "/bare/"),
    ?assertEqual(<<"text/html; charset=utf-8">>, header(<<"content-type">>, Page)),
    ?assertMatch([<<"../">>, <<"c.txt">>, <<"d/">>], hrefs(Page)),
    Top = hrefs(get(Port, "/")),
    ?assertEqual([], [Name || <<".", _/binary>> = Name <- Top]),
    ?assert(lists:member(<<"a.txt">>, Top)),
    ?assertEqual(<<"<p>sub">>, body(Port, "/sub/")),
    ?assertEqual(404, status(Port, "/.d/")),
    ?assertEqual(404, status(Port, "/nothing/")).

hrefs(Answer) ->
    {match, Found} = re:run(erlane_http_client:body(Answer), "href=\"([^\"]*)\"",
                            [global, {capture, all_but_first, binary}]),
    lists:append(Found).

%% A name is no markup, and its link leads to it.
listing_is_escaped(Config) ->
    Dir = filename:join(proplists:get_value(root, Config), "names"),
    ok = file:make_dir(Dir),
    Names = [<<"<script>alert(1)<">>, <<"a&b">>, <<"q\"uo'te">>, <<"java:script">>,
             <<"new\nline">>, <<16#E9/utf8>>, <<"bad", 255>>, <<"100%">>],
    [ok = file:write_file(<<(unicode:characters_to_binary(Dir))/binary, "/", Name/binary>>, Name)
     || Name <- Names],
    Port = serve(Config, #{listing => true}),
    Answer = get(Port, "/names/"),
    Links = hrefs(Answer) -- [<<"../">>],
    ?assertEqual(lists:sort(Names), lists:sort([body(Port, ["/names/", Link]) || Link <- Links])),
    Page = erlane_http_client:body(Answer),
    ?assertEqual(Page, unicode:characters_to_binary(Page)),
    [?assertEqual(nomatch, binary:match(Page, Bad))
     || Bad <- [<<"<script">>, <<"q\"uo">>, <<"a&b">>, <<"new\nline">>]],
    ?assertEqual(<<"default-src 'none'">>, header(<<"content-security-policy">>, Answer)).

%% 304 by tag or by date, without a body, and the connection goes on.
not_modified(Config) ->
    Socket = connect(serve(Config)),
    First = ask(Socket, "GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n"),
    [begin
         Answer = ask(Socket, ["GET /a.txt HTTP/1.1\r\nHost: x\r\n", Name, ": ", Value,
                               "\r\n\r\n"]),
         ?assertMatch(#{status := 304, body := <<>>, rest := <<>>}, Answer),
         ?assertEqual([header(H, First) || H <- [<<"etag">>, <<"last-modified">>]],
                      [header(H, Answer) || H <- [<<"etag">>, <<"last-modified">>]]),
         ?assertEqual(undefined, header(<<"content-type">>, Answer))
     end || {Name, Value} <- [{"If-None-Match", header(<<"etag">>, First)},
                              {"If-None-Match", "*"},
                              {"If-Modified-Since", header(<<"last-modified">>, First)}]],
    ?assertMatch(#{status := 200},
                 ask(Socket, "GET /a.txt HTTP/1.1\r\nHost: x\r\nIf-None-Match: \"x\"\r\n\r\n")),
    ok = gen_tcp:close(Socket).

preconditions(Config) ->
    Port = serve(Config),
    Tag = header(<<"etag">>, get(Port, "/a.txt")),
    [?assertEqual({Headers, Status}, {Headers, maps:get(status, get(Port, "/a.txt", Headers))})
     || {Headers, Status} <-
            [{[{"If-Match", Tag}], 200}, {[{"If-Match", "\"x\""}], 412},
             {[{"If-Unmodified-Since", "Thu, 01 Jan 2015 00:00:00 GMT"}], 412},
             {[{"If-Unmodified-Since", "Thu, 01 Jan 2065 00:00:00 GMT"}], 200},
             {[{"If-Match", Tag}, {"If-None-Match", Tag}], 304},
             {[{"If-Match", "\"x\""}, {"Range", "bytes=0-1"}], 412},
             {[{"If-None-Match", Tag}, {"Range", "bytes=0-1"}], 304},
             {[{"If-Match", Tag}, {"Range", "bytes=0-1"}], 206}]].

%% What was changed a moment ago may change again before the clock moves.
fresh_files_are_weak(Config) ->
    Port = serve(Config),
    File = filename:join(proplists:get_value(root, Config), "fresh"),
    %% A day ahead, so that it does not get old while we look.
    ok = file:write_file(File, "0123456789"),
    ok = file:change_time(File, tomorrow()),
    Answer = get(Port, "/fresh"),
    Tag = header(<<"etag">>, Answer),
    ?assertMatch(<<"W/\"", _/binary>>, Tag),
    ?assertMatch(#{status := 304}, get(Port, "/fresh", [{"If-None-Match", Tag}])),
    ?assertMatch(#{status := 412}, get(Port, "/fresh", [{"If-Match", Tag}])),
    ?assertMatch(#{status := 200}, get(Port, "/fresh", [{"Range", "bytes=0-1"},
                                                        {"If-Range", Tag}])),
    {ok, Modified} = erlane_http_date:parse(header(<<"last-modified">>, Answer)),
    ?assert(Modified =< erlang:system_time(second)).

tomorrow() ->
    calendar:system_time_to_local_time(erlang:system_time(second) + 86400, second).

cache_control(Config) ->
    Port = serve(Config, #{cache_control => <<"max-age=60">>}),
    Answer = get(Port, "/a.txt"),
    ?assertEqual(<<"max-age=60">>, header(<<"cache-control">>, Answer)),
    ?assertEqual(<<"max-age=60">>,
                 header(<<"cache-control">>,
                        get(Port, "/a.txt", [{"If-None-Match", header(<<"etag">>, Answer)}]))).

ranges(Config) ->
    Port = serve(Config),
    [begin
         Answer = get(Port, "/a.txt", [{"Range", Range}]),
         ?assertMatch({Range, #{status := 206, body := Body}}, {Range, Answer}),
         ?assertEqual(<<"bytes ", About/binary>>, header(<<"content-range">>, Answer)),
         ?assertEqual(<<"text/plain; charset=utf-8">>, header(<<"content-type">>, Answer))
     end || {Range, Body, About} <- [{"bytes=0-0", <<"0">>, <<"0-0/10">>},
                                     {"bytes=2-4", <<"234">>, <<"2-4/10">>},
                                     {"bytes=7-", <<"789">>, <<"7-9/10">>},
                                     {"bytes=-3", <<"789">>, <<"7-9/10">>},
                                     {"bytes=0-1,1-3", <<"0123">>, <<"0-3/10">>},
                                     {"bytes=0-99", <<"0123456789">>, <<"0-9/10">>}]],
    [?assertMatch({Range, #{status := 200, body := <<"0123456789">>}},
                  {Range, get(Port, "/a.txt", [{"Range", Range}])})
     || Range <- ["bytes=3-2", "bytes=x", "lines=0-1", "bytes", [255, "=0-1"]]],
    Answer = get(Port, "/a.txt", [{"Range", "bytes=10-"}]),
    ?assertMatch(#{status := 416}, Answer),
    ?assertEqual(<<"bytes */10">>, header(<<"content-range">>, Answer)).

%% Several ranges are parts of one body, in the order asked for.
multipart(Config) ->
    Socket = connect(serve(Config)),
    Answer = ask(Socket, "GET /a.txt HTTP/1.1\r\nHost: x\r\nRange: bytes=7-8,0-0,3-4\r\n\r\n"),
    ?assertMatch(#{status := 206, cut := false, rest := <<>>}, Answer),
    <<"multipart/byteranges; boundary=", Boundary/binary>> = header(<<"content-type">>, Answer),
    ?assertEqual(undefined, header(<<"content-range">>, Answer)),
    Part = fun(About, Bytes) ->
                   ["--", Boundary, "\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    "Content-Range: bytes ", About, "/10\r\n\r\n", Bytes, "\r\n"]
           end,
    ?assertEqual(iolist_to_binary([Part("7-8", "78"), Part("0-0", "0"), Part("3-4", "34"),
                                   "--", Boundary, "--\r\n"]), maps:get(body, Answer)),
    ?assertMatch(#{status := 200, body := <<"b">>},
                 ask(Socket, "GET /sub/b.txt HTTP/1.1\r\nHost: x\r\n\r\n")),
    ok = gen_tcp:close(Socket).

%% A part of another state than the client has would spoil what it has.
if_range(Config) ->
    Port = serve(Config),
    First = get(Port, "/a.txt"),
    [?assertEqual({Value, Status},
                  {Value, maps:get(status, get(Port, "/a.txt", [{"Range", "bytes=0-1"},
                                                                {"If-Range", Value}]))})
     || {Value, Status} <- [{header(<<"etag">>, First), 206}, {"\"x\"", 200},
                            {header(<<"last-modified">>, First), 206},
                            {"Thu, 01 Jan 2015 00:00:00 GMT", 200}, {"x", 200}]].

empty_file(Config) ->
    Port = serve(Config),
    ?assertMatch(#{status := 200, body := <<>>}, get(Port, "/empty")),
    ?assertMatch(#{status := 200}, get(Port, "/empty", [{"Range", "bytes=0-"}])).

%% Much more than any buffer, whole and in part, over both kinds of socket.
large(Config) ->
    [begin
         Port = serve(Config, #{}, #{socket => Kind}),
         large(Port, fun(Target, Headers) -> get(Port, Target, Headers) end),
         erlane_http_client:stop(files)
     end || Kind <- [erlane, gen_tcp]].

large(_Port, Get) ->
    #{status := 200, body := Whole, cut := false} = Get("/large.bin", []),
    ?assert(Whole =:= pattern(?LARGE)),
    #{status := 206, body := Part} = Get("/large.bin", [{"Range", "bytes=1000001-4000000"}]),
    ?assert(Part =:= binary:part(Whole, 1000001, 3000000)),
    #{status := 206, body := Parts} = Get("/large.bin", [{"Range", "bytes=0-199999,1000000-"}]),
    ?assert(binary:match(Parts, binary:part(Whole, 0, 200000)) =/= nomatch),
    ?assert(binary:match(Parts, binary:part(Whole, 1000000, ?LARGE - 1000000)) =/= nomatch).

%% There is no sendfile for TLS; the bytes are the same.
large_over_tls(Config) ->
    {ok, _} = application:ensure_all_started(ssl),
    Key = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => Key, intermediates => [], peer => Key},
    #{server_config := Tls} =
        public_key:pkix_test_data(#{server_chain => Chain, client_chain => Chain}),
    Port = serve(Config, #{}, #{tls => Tls}),
    large(Port, fun(Target, Headers) -> get_tls(Port, Target, Headers) end).

%% To the end of the connection; the framing is told by the length.
get_tls(Port, Target, Headers) ->
    {ok, Socket} = ssl:connect({127, 0, 0, 1}, Port, [binary, {active, false},
                                                      {verify, verify_none}], 5000),
    ok = ssl:send(Socket, ["GET ", Target, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n",
                           [[N, ": ", V, "\r\n"] || {N, V} <- Headers], "\r\n"]),
    [<<"HTTP/1.1 ", Status:3/binary, Head/binary>>, Body] =
        binary:split(all_tls(Socket, <<>>), <<"\r\n\r\n">>),
    {match, [Length]} = re:run(Head, "content-length: ([0-9]+)",
                               [caseless, {capture, all_but_first, binary}]),
    ok = ssl:close(Socket),
    #{status => binary_to_integer(Status), body => Body,
      cut => byte_size(Body) =/= binary_to_integer(Length)}.

all_tls(Socket, Acc) ->
    case ssl:recv(Socket, 0, 5000) of
        {ok, Data} -> all_tls(Socket, <<Acc/binary, Data/binary>>);
        {error, closed} -> Acc
    end.

%% Bytes that are gone are never made up for: the connection ends before its time.
shrinks(Config) ->
    Cut = while_sending(Config, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n", fun truncate/1),
    ?assertMatch(#{status := 200, cut := true}, Cut).

shrinks_in_multipart(Config) ->
    Cut = while_sending(Config, "GET /huge HTTP/1.1\r\nHost: x\r\n"
                        "Range: bytes=0-9,20-99999999\r\n\r\n", fun truncate/1),
    ?assertMatch(#{status := 206, cut := true}, Cut).

%% The file that was begun goes out to its end, although its name means another by now.
replaced(Config) ->
    Answer = while_sending(Config, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n",
                           fun(File) ->
                                   ok = file:write_file(File ++ ".new", "new"),
                                   ok = file:rename(File ++ ".new", File)
                           end),
    ?assertMatch(#{status := 200, cut := false}, Answer),
    ?assertEqual(100000000, byte_size(maps:get(body, Answer))).

%% Asks for a file of 100 MB, changes it when the server is stuck in it, and reads on.
while_sending(Config, Request, Change) ->
    Port = serve(Config),
    File = filename:join(proplists:get_value(root, Config), "huge"),
    {ok, Fd} = file:open(File, [write, raw]),
    {ok, _} = file:position(Fd, 100000000),
    ok = file:truncate(Fd),
    ok = file:close(Fd),
    Socket = connect(Port, [{recbuf, 65536}]),
    ok = gen_tcp:send(Socket, Request),
    {ok, Begin} = gen_tcp:recv(Socket, 1000, 5000),
    Change(File),
    Answer = erlane_http_client:answer(Socket, #{buffer => Begin}),
    ok = gen_tcp:close(Socket),
    Answer.

truncate(File) ->
    {ok, Fd} = file:open(File, [read, write, raw]),
    ok = file:truncate(Fd),
    ok = file:close(Fd).

%% However an answer ends, its file is closed.
descriptors(Config) ->
    Port = serve(Config),
    Before = open_files(Config),
    Socket = connect(Port),
    [ask(Socket, [Method, " ", Target, " HTTP/1.1\r\nHost: x\r\n", Header, "\r\n"])
     || _ <- lists:seq(1, 20), Method <- ["GET", "HEAD"],
        Target <- ["/a.txt", "/large.bin", "/sub/", "/bare", "/nothing"],
        Header <- ["", "Range: bytes=0-1\r\n", "Range: bytes=0-1,3-4\r\n",
                   "Range: bytes=99999999-\r\n", "If-None-Match: *\r\n", "If-Match: \"x\"\r\n"]],
    [begin
         Gone = connect(Port),
         ok = gen_tcp:send(Gone, ["GET /large.bin HTTP/1.1\r\nHost: x\r\n", Header, "\r\n"]),
         ok = gen_tcp:close(Gone)
     end || _ <- lists:seq(1, 10), Header <- ["", "Range: bytes=0-1,3-\r\n"]],
    erlane_http_client:until(fun() -> open_files(Config) =:= Before end),
    ok = gen_tcp:close(Socket).

open_files(Config) ->
    Root = proplists:get_value(root, Config),
    {ok, Fds} = file:list_dir("/proc/self/fd"),
    length([Fd || Fd <- Fds, {ok, To} <- [file:read_link("/proc/self/fd/" ++ Fd)],
                  lists:prefix(Root, To)]).

pattern(Size) ->
    binary:part(binary:copy(<< <<N:32>> || N <- lists:seq(1, 25000) >>, Size div 100000 + 1),
                0, Size).
