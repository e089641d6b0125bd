%% SPDX-License-Identifier: Apache-2.0
%% `erlane serve' as a program, asked by curl: files, hello, TLS, the log, signals, wrong use.
-module(real_serve_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([files/1, directories/1, hello/1, unix_socket/1, tls/1, access_log/1, live_figures/1,
         sigterm_drains/1, deadline_cuts/1, second_signal/1, wrong_use/1, failures_at_start/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 20000).

all() ->
    [files, directories, hello, unix_socket, tls, access_log, live_figures, sigterm_drains,
     deadline_cuts, second_signal, wrong_use, failures_at_start].

%%% what is served

%% Whole, its head, parts of it, and nothing when the client has it; the same over both kinds
%% of socket.
files(Config) ->
    Root = site(Config),
    [begin
         {Serve, Url} = start([Root, "--socket", Socket]),
         File = Url ++ "numbers.txt",
         {200, Head, "0123456789"} = curl([File]),
         ?assertEqual("10", maps:get("content-length", Head)),
         ?assertEqual("text/plain; charset=utf-8", maps:get("content-type", Head)),
         {200, HeadOnly, ""} = curl(["--head", File]),
         ?assertEqual("10", maps:get("content-length", HeadOnly)),
         {206, Part, "234"} = curl(["-r", "2-4", File]),
         ?assertEqual("bytes 2-4/10", maps:get("content-range", Part)),
         {206, _, "89"} = curl(["-r", "-2", File]),
         {416, Beyond, _} = curl(["-r", "10-", File]),
         ?assertEqual("bytes */10", maps:get("content-range", Beyond)),
         Since = maps:get("last-modified", Head),
         {304, _, ""} = curl(["-H", "If-None-Match: " ++ maps:get("etag", Head), File]),
         {304, _, ""} = curl(["-H", "If-Modified-Since: " ++ Since, File]),
         {412, _, _} = curl(["-H", "If-Match: \"other\"", File]),
         {404, _, _} = curl([Url ++ "none"]),
         {404, _, _} = curl([Url ++ ".hidden"]),
         {404, _, _} = curl(["--path-as-is", Url ++ "../secret"]),
         {405, Refused, _} = curl(["-d", "x", File]),
         ?assertEqual("GET, HEAD", maps:get("allow", Refused)),
         stopped(Serve, "12 requests")
     end || Socket <- ["erlane", "gen_tcp"]].

%% An index is found; a list of names is made only when it is asked for.
directories(Config) ->
    Root = site(Config),
    {Plain, PlainUrl} = start([Root]),
    {200, _, "<p>index</p>"} = curl([PlainUrl ++ "with/"]),
    {301, Moved, _} = curl([PlainUrl ++ "with"]),
    ?assertEqual("/with/", maps:get("location", Moved)),
    {404, _, _} = curl([PlainUrl]),
    stopped(Plain, "3 requests"),
    {Listing, Url} = start(["--listing", "--dotfiles", "--cache-control", "max-age=7", Root]),
    {200, _, Page} = curl([Url]),
    [?assertNotEqual({Name, nomatch}, {Name, string:find(Page, "href=\"" ++ Name ++ "\"")})
     || Name <- ["numbers.txt", ".hidden", "with/"]],
    {200, Hidden, "h"} = curl([Url ++ ".hidden"]),
    ?assertEqual("max-age=7", maps:get("cache-control", Hidden)),
    stopped(Listing, "2 requests").

%% One line for everybody, whatever the path; connections are kept.
hello(_Config) ->
    {Serve, Url} = start(["--hello", "--max-connections", "3"]),
    {200, _, "Hello world!\n"} = curl([Url]),
    {200, _, "Hello world!\n"} = curl([Url ++ "any/path?x=1"]),
    Text = real_proxy:done(real_os:need("curl", "curl"), ["-sS", Url, Url]),
    ?assertEqual(<<"Hello world!\nHello world!\n">>, Text),
    stopped(Serve, "3 connections, 4 requests").

%% The socket's file is gone after the end. Its name must be a short one: 107 bytes at most.
unix_socket(_Config) ->
    Dir = string:trim(os:cmd("mktemp -d")),
    Path = filename:join(Dir, "s"),
    Serve = real_os:start(real_os:erlane(), ["serve", "--hello", "--listen", "unix:" ++ Path]),
    real_os:wait_line(Serve, "^serve hello at unix:"),
    {200, _, "Hello world!\n"} = curl(["--unix-socket", Path, "http://localhost/"]),
    stopped(Serve, "1 requests"),
    ?assertEqual({ok, []}, file:list_dir(Dir)),
    ok = file:del_dir(Dir).

%% curl trusts the certificate, and the file comes over TLS.
tls(Config) ->
    {Cert, Key} = certificate(Config),
    {Serve, Url} = start([site(Config), "--tls", Cert, Key]),
    ?assertMatch("https://" ++ _, Url),
    {200, _, "0123456789"} = curl(["--cacert", Cert, Url ++ "numbers.txt"]),
    {206, _, "3456789"} = curl(["--cacert", Cert, "-r", "3-", Url ++ "numbers.txt"]),
    stopped(Serve, "2 requests").

%% Each request is a line, also the last ones before the end; on standard output at once.
access_log(Config) ->
    File = filename:join(proplists:get_value(priv_dir, Config), "access.log"),
    {Serve, Url} = start(["--hello", "--access-log", File, "--log-format", "json"]),
    {200, _, _} = curl([Url ++ "one"]),
    {200, _, _} = curl([Url ++ "two"]),
    stopped(Serve, "2 requests"),
    {ok, Text} = file:read_file(File),
    [One, Two] = binary:split(Text, <<"\n">>, [global, trim]),
    ?assertMatch({match, _}, re:run(One, "^\\{.*\"target\":\"/one\".*\"status\":200.*\\}$")),
    ?assertMatch({match, _}, re:run(Two, "^\\{.*\"target\":\"/two\".*\"status\":200.*\\}$")),
    {Shown, ShownUrl} = start(["--hello", "--access-log", "-"]),
    {200, _, _} = curl(["-A", "me", ShownUrl ++ "three"]),
    real_os:wait_line(Shown, "\"GET /three HTTP/1.1\" 200 [0-9]+ \"-\" \"me\"$"),
    stopped(Shown, "1 requests").

%% On a terminal the figures come each second.
live_figures(_Config) ->
    Script = real_os:need("script", "bsdutils"),
    Command = "exec " ++ real_os:erlane() ++ " serve --hello --listen 127.0.0.1:0",
    Serve = real_os:start(Script, ["-qefc", Command, "/dev/null"]),
    Url = url(Serve),
    {200, _, _} = curl([Url]),
    real_os:wait_line(Serve, "0 open 1 total . 1 requests"),
    %% Ctrl-C, as the terminal gives it to everything in the foreground.
    ok = real_os:input(Serve, <<3>>),
    ?assertEqual(0, real_os:wait_exit(Serve)),
    real_os:wait_line(Serve, "serve stopped: 1 connections, 1 requests").

%%% signals

%% SIGTERM: no new connections; an idle one is closed, a request that is on its way answered.
sigterm_drains(_Config) ->
    {Serve, Url} = start(["--hello", "--drain", "60000"]),
    Idle = asked(Url),
    Busy = asked(Url),
    ok = gen_tcp:send(Busy, "GET / HTTP/1.1\r\n"),
    %% The half of a request must be read before the signal.
    ok = told(Busy),
    ok = real_os:signal(Serve, "TERM"),
    real_os:until(fun() -> real_proxy:refuses(port(Url)) end),
    ?assertEqual({error, closed}, gen_tcp:recv(Idle, 0, ?WAIT_MS)),
    ok = gen_tcp:send(Busy, "Host: x\r\n\r\n"),
    {ok, Answer} = gen_tcp:recv(Busy, 0, ?WAIT_MS),
    ?assertMatch({match, _}, re:run(Answer, "^HTTP/1.1 200 OK\r\n")),
    ?assertMatch({match, _}, re:run(Answer, "connection: close\r\n", [caseless])),
    ?assertEqual({error, closed}, gen_tcp:recv(Busy, 0, ?WAIT_MS)),
    ?assertEqual(0, real_os:wait_exit(Serve)),
    %% Asking whether the port is closed may have been one more connection, before it was.
    real_os:wait_line(Serve, "[2-9] connections, 3 requests; [1-9] were open").

%% At the deadline what is left is cut, and the exit status is 0 all the same.
deadline_cuts(_Config) ->
    {Serve, Url} = start(["--hello", "--drain", "200"]),
    Busy = asked(Url),
    ok = gen_tcp:send(Busy, "GET / HTTP/1.1\r\n"),
    ok = told(Busy),
    ok = real_os:signal(Serve, "TERM"),
    ?assertMatch({error, _}, gen_tcp:recv(Busy, 0, ?WAIT_MS)),
    ?assertEqual(0, real_os:wait_exit(Serve)).

%% A second signal ends the wait.
second_signal(_Config) ->
    {Serve, Url} = start(["--hello", "--drain", "600000"]),
    Busy = asked(Url),
    ok = gen_tcp:send(Busy, "GET / HTTP/1.1\r\n"),
    ok = told(Busy),
    ok = real_os:signal(Serve, "TERM"),
    real_os:until(fun() -> real_proxy:refuses(port(Url)) end),
    ok = real_os:signal(Serve, "TERM"),
    ?assertEqual(0, real_os:wait_exit(Serve)).

%%% the command line

%% Exit status 2, the wrong word named in the first line, the usage after it.
wrong_use(Config) ->
    Root = site(Config),
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), ["serve" | Args]),
         [First | Rest] = string:split(Output, "\n"),
         ?assertEqual({Args, 2}, {Args, Status}),
         ?assertNotEqual(nomatch, string:find(First, Word), First),
         ?assertNotEqual(nomatch, string:find(Rest, "usage: erlane serve"))
     end || {Args, Word} <-
                [{[], "--hello"}, {[Root, "--hello"], "--hello"}, {[Root, "more"], "more"},
                 {["--hello", "--listing"], "--listing"},
                 {["--hello", "--tls", "a.pem"], "two values"},
                 {["--hello", "--tls", "a.pem", "--quiet"], "two values"},
                 {["--hello", "--socket", "udp"], "udp"},
                 {["--hello", "--listen", "127.0.0.1"], "port is missing"},
                 {["--hello", "--log-format", "json"], "--access-log"},
                 {["--hello", "--speed", "9"], "--speed"}]].

%% Exit status 1 and one line that says what is wrong.
failures_at_start(Config) ->
    Root = site(Config),
    {ok, Taken} = gen_tcp:listen(0, [{ip, ?LOOPBACK}]),
    {ok, Port} = inet:port(Taken),
    {Cert, _} = certificate(Config),
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), ["serve" | Args]),
         ?assertEqual({Args, 1, Output}, {Args, Status, Output}),
         ?assertNotEqual(nomatch, string:find(Output, Word), Output),
         ?assertMatch([_], string:lexemes(Output, "\n"))
     end || {Args, Word} <-
                [{["/no/such/dir"], "/no/such/dir: no such directory"},
                 {[filename:join(Root, "numbers.txt")], "not a directory"},
                 {[Root, "--listen", lists:concat(["127.0.0.1:", Port])], "eaddrinuse"},
                 {[Root, "--listen", "192.0.2.1:80"], "eaddrnotavail"},
                 {[Root, "--listen", "no-such-host.invalid:1"], "no-such-host.invalid"},
                 {["--hello", "--tls", "/no/cert.pem", Cert], "/no/cert.pem"},
                 {["--hello", "--tls", Cert, Cert], "no private key"},
                 {["--hello", "--access-log", "/no/such/dir/log"], "--access-log"}]].

%%% helpers

%% `erlane serve' on a free port, and its address.
start(Args) ->
    Serve = real_os:start(real_os:erlane(), ["serve", "--listen", "127.0.0.1:0" | Args]),
    {Serve, url(Serve)}.

url(Serve) ->
    real_os:wait_line(Serve, "^serve .* at http"),
    {match, [Url]} = re:run(real_os:output(Serve), " at (https?://127.0.0.1:\\d+/)",
                            [{capture, all_but_first, list}]),
    Url.

port(Url) ->
    #{port := Port} = uri_string:parse(Url),
    Port.

stopped(Serve, Said) ->
    ok = real_os:signal(Serve, "TERM"),
    ?assertEqual(0, real_os:wait_exit(Serve)),
    real_os:wait_line(Serve, Said).

%% Status, head and body of an answer.
curl(Args) ->
    {0, Output} = real_os:run(real_os:need("curl", "curl"),
                              ["-sSi", "--max-time", "20" | Args]),
    [Top, Body] = string:split(unicode:characters_to_list(Output), "\r\n\r\n"),
    ["HTTP/1.1 " ++ Status | Lines] = string:split(Top, "\r\n", all),
    Head = maps:from_list([{string:lowercase(Name), string:trim(Value)}
                           || Line <- Lines, [Name, Value] <- [string:split(Line, ":")]]),
    {list_to_integer(string:slice(Status, 0, 3)), Head, Body}.

%% A connection that was answered once and is kept.
asked(Url) ->
    {ok, Socket} = gen_tcp:connect(?LOOPBACK, port(Url), [binary, {active, false}], ?WAIT_MS),
    ok = gen_tcp:send(Socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    {ok, <<"HTTP/1.1 200 OK\r\n", _/binary>>} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    Socket.

%% Everything that was sent is read by the other side: nothing waits in its queue. The port of
%% our end is its peer's in the kernel's table.
told(Socket) ->
    {ok, Port} = inet:port(Socket),
    Theirs = "^ *\\d+: \\S+ 0100007F:" ++ string:pad(integer_to_list(Port, 16), 4, leading, $0)
        ++ " 01 \\d{8}:0{8} ",
    real_os:until(fun() ->
                          {ok, Table} = file:read_file("/proc/net/tcp"),
                          {match, _} = re:run(Table, Theirs, [multiline])
                  end),
    ok.

site(Config) ->
    Private = proplists:get_value(priv_dir, Config),
    Root = filename:join(Private, "site"),
    ok = filelib:ensure_dir(filename:join([Root, "with", "x"])),
    [ok = file:write_file(filename:join(Root, Name), Text)
     || {Name, Text} <- [{"numbers.txt", "0123456789"}, {"with/index.html", "<p>index</p>"},
                         {".hidden", "h"}, {"../secret", "s"}]],
    %% The server calls what is younger than some seconds unsure, and its tag a weak one.
    Old = calendar:system_time_to_universal_time(erlang:system_time(second) - 60, second),
    ok = file:change_time(filename:join(Root, "numbers.txt"),
                          calendar:universal_time_to_local_time(Old)),
    Root.

certificate(Config) ->
    Private = proplists:get_value(priv_dir, Config),
    [Cert, Key] = [filename:join(Private, Name) || Name <- ["cert.pem", "key.pem"]],
    _ = real_proxy:done(real_os:need("openssl", "openssl"),
                        ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                         "-keyout", Key, "-out", Cert]),
    {Cert, Key}.
