%% SPDX-License-Identifier: Apache-2.0
%% erlane_http behind real front ends and before real clients.
%%
%% Malformed requests go through nginx and HAProxy to our server. Whatever a front end lets
%% through, both must count as the same requests: each that our handler gets bears the mark of a
%% request of the front end's, no mark comes twice, and each answer goes to the request it
%% belongs to. A front end that is not installed fails its case with what to install; tools of
%% load that are not are skipped.
%%
%% ERLANE_LONG=1 sends twenty times as many, with another seed each time.
-module(real_http_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([nginx/1, nginx_streaming/1, haproxy/1, curl_keeps_alive/1, curl_uploads/1,
         curl_continue/1, curl_head_and_old/1, curl_ranges/1, curl_unix_socket/1, wrk/1,
         h2load/1, ab/1]).
-export([init/2, handle/2]).

-define(WORKERS, 4).
-define(MARK, <<"x-front">>).

suite() -> [{timetrap, {minutes, 20}}].

all() ->
    [nginx, nginx_streaming, haproxy, curl_keeps_alive, curl_uploads, curl_continue,
     curl_head_and_old, curl_ranges, curl_unix_socket, wrk, h2load, ab].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(erlane_http),
    [{started, Started} | Config].

end_per_suite(Config) ->
    [ok = application:stop(A) || A <- lists:reverse(proplists:get_value(started, Config))],
    ok.

init_per_testcase(Case, Config) ->
    Dir = lists:concat(["/tmp/erlane_real.", os:getpid(), ".", Case]),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    [{dir, Dir} | Config].

%% Programs end with the process of the case, which started them.
end_per_testcase(Case, Config) ->
    _ = erlane_http:stop(Case, #{drain => 0}),
    ok = file:del_dir_r(proplists:get_value(dir, Config)).

%%% The handler: it keeps the marks it got, and sends them back.

init(_Req, _Args) -> {ok, read}.

handle(Req, #{seen := Table}) ->
    Mark = erlane_http:header(?MARK, Req),
    true = ets:insert(Table, {Mark, erlane_http:method(Req), erlane_http:target(Req)}),
    {200, [{?MARK, Mark} || Mark =/= undefined], erlane_http:body(Req)};
handle(Req, _Args) ->
    case erlane_http:target(Req) of
        <<"/hello">> -> {200, [{<<"content-type">>, <<"text/plain">>}], <<"hello\n">>};
        _ -> {200, [], [erlane_http:method(Req), $\n, erlane_http:body(Req)]}
    end.

start(Case, Opts) ->
    {ok, _} = erlane_http:start(Case, maps:merge(#{handler => {?MODULE, #{}}}, Opts)),
    erlane_http:port(Case).

%%% Front ends

%% Bodies are read whole before the request is forwarded.
nginx(Config) -> nginx(nginx, Config, "on").

%% Bodies are forwarded as they come, chunked ones in chunks.
nginx_streaming(Config) -> nginx(nginx_streaming, Config, "off").

nginx(Case, Config, Buffering) ->
    Program = real_os:need({"nginx", ["/usr/sbin"]}, "nginx-core"),
    Dir = proplists:get_value(dir, Config),
    Table = ets:new(seen, [public, bag]),
    Upstream = start(Case, #{handler => {?MODULE, #{seen => Table}}}),
    Port = real_proxy:free_port(),
    Log = filename:join(Dir, "access.log"),
    File = filename:join(Dir, "nginx.conf"),
    Temp = [[T, "_temp_path ", filename:join(Dir, T), ";\n"]
            || T <- ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]],
    ok = file:write_file(
           File,
           ["daemon off;\nmaster_process off;\nworker_processes 1;\n",
            "pid ", filename:join(Dir, "pid"), ";\n",
            "error_log ", filename:join(Dir, "error.log"), ";\n",
            "events { worker_connections 1024; }\n",
            "http {\n", Temp,
            "log_format marks '$request_id $upstream_status $upstream_http_x_front';\n",
            "access_log ", Log, " marks;\n",
            "upstream ours { server 127.0.0.1:", integer_to_list(Upstream), "; keepalive 4; }\n",
            "server {\nlisten 127.0.0.1:", integer_to_list(Port), ";\n",
            %% As lenient as it can be told to be.
            "ignore_invalid_headers off; underscores_in_headers on; merge_slashes off;\n",
            "client_header_timeout 5s; client_body_timeout 5s;\n",
            "location / {\nproxy_pass http://ours;\nproxy_http_version 1.1;\n",
            "proxy_set_header Connection \"\";\nproxy_set_header Host $http_host;\n",
            "proxy_set_header X-Front $request_id;\nproxy_next_upstream off;\n",
            "proxy_ignore_client_abort on;\nproxy_request_buffering ", Buffering, ";\n",
            "}\n}\n}\n"]),
    Nginx = real_os:start(Program, ["-p", Dir, "-c", File, "-e", filename:join(Dir, "error.log")]),
    listening(Port),
    send_mutants(Port),
    ok = real_os:signal(Nginx, "QUIT"),
    0 = real_os:wait_exit(Nginx),
    {ok, Text} = file:read_file(Log),
    agree([list_to_tuple(binary:split(L, <<" ">>, [global]))
           || L <- binary:split(Text, <<"\n">>, [global, trim])], Table).

%% It logs to its standard output: into a file and from one thread, since it drops lines that
%% cannot be written at once.
haproxy(Config) ->
    Program = real_os:need({"haproxy", ["/usr/sbin"]}, "haproxy"),
    Table = ets:new(seen, [public, bag]),
    Upstream = start(haproxy, #{handler => {?MODULE, #{seen => Table}}}),
    Port = real_proxy:free_port(),
    File = filename:join(proplists:get_value(dir, Config), "haproxy.cfg"),
    ok = file:write_file(
           File,
           ["global\n    nbthread 1\n    log stdout len 8192 format raw local0 info\n",
            "defaults\n    mode http\n    log global\n    retries 0\n",
            "    timeout client 5s\n    timeout server 10s\n    timeout connect 5s\n",
            "frontend front\n    bind 127.0.0.1:", integer_to_list(Port), "\n",
            %% As lenient as it can be told to be.
            "    option accept-invalid-http-request\n",
            "    unique-id-format %[uuid()]\n",
            "    http-request set-header X-Front %[unique-id]\n",
            "    declare capture response len 64\n",
            "    http-response capture res.hdr(x-front) id 0\n",
            "    log-format \"mark %ID %ST %s =%hs end\"\n",
            "    default_backend ours\n",
            "backend ours\n    http-reuse always\n",
            "    server s1 127.0.0.1:", integer_to_list(Upstream), "\n"]),
    Log = filename:join(proplists:get_value(dir, Config), "log"),
    Haproxy = real_os:start("/bin/sh", ["-c", "exec \"$0\" -db -f \"$1\" >\"$2\"", Program, File,
                                        Log]),
    listening(Port),
    send_mutants(Port),
    ok = real_os:signal(Haproxy, "USR1"),
    _ = real_os:wait_exit(Haproxy),
    {ok, Text} = file:read_file(Log),
    {match, Lines} = re:run(Text, "^mark (\\S+) (-?\\d+) (\\S+) =(\\S*) end$",
                            [global, multiline, {capture, all_but_first, binary}]),
    agree([{Id, case Server of <<"s1">> -> Status; _ -> <<"-">> end,
            case string:trim(Captured, both, "{}") of <<>> -> <<"-">>; Mark -> Mark end}
           || [Id, Status, Server, Captured] <- Lines], Table).

listening(Port) ->
    real_os:until(fun() -> {ok, S} = gen_tcp:connect({127, 0, 0, 1}, Port, []),
                           gen_tcp:close(S) end).

%% Each on a connection of its own, with a good request behind it: where the front end and our
%% server see different ends, that one shows it.
send_mutants(Port) ->
    {Seed, Count} = case os:getenv("ERLANE_LONG") of
                        "1" -> {erlang:system_time() rem 1000000, 120000};
                        _ -> {5, 4000}
                    end,
    ct:pal("seed ~b", [Seed]),
    Refs = [element(2, spawn_monitor(fun() -> mutants(Port, Count div ?WORKERS,
                                                      erlane_http_mutate:new(Seed + I)) end))
            || I <- lists:seq(1, ?WORKERS)],
    [receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(normal, Why) end || Ref <- Refs],
    ok.

mutants(_Port, 0, _State) ->
    ok;
mutants(Port, N, State) ->
    {Bytes, Next} = erlane_http_mutate:next(State),
    Conn = erlane_http_raw:connect(Port, [{wait, 8000}]),
    Sent = erlane_http_raw:send(Conn, [Bytes, "GET /good HTTP/1.1\r\nHost: x\r\n\r\n"]),
    ok = drain(erlane_http_raw:half_close(Sent)),
    ok = erlane_http_raw:close(Conn),
    mutants(Port, N - 1, Next).

drain(Conn) ->
    case erlane_http_raw:peek(Conn, 8000) of
        {data, Next} -> drain(erlane_http_raw:forget(Next));
        {ended, _} -> ok;
        {timeout, _} -> ct:fail(no_end)
    end.

%% Lines are the requests of the front end: its mark, the status it got from us (`-' if it did
%% not ask us) and the mark in our answer.
agree(Lines, Table) ->
    Seen = ets:tab2list(Table),
    Marks = [M || {M, _, _} <- Seen],
    Forwarded = [{M, S, Back} || {M, S, Back} <- Lines, S =/= <<"-">>],
    Answered = [M || {M, <<"200">>, _} <- Forwarded],
    ct:pal("~b requests at the front end, ~b forwarded, ~b answered, ~b refused by us, "
           "~b seen by our handler",
           [length(Lines), length(Forwarded), length(Answered),
            length([S || {_, <<"4", _/binary>> = S, _} <- Forwarded]), length(Seen)]),
    %% Enough of both kinds came through to tell anything.
    ?assert(length(Answered) > 100),
    ?assert(length(Lines) > length(Forwarded)),
    ?assertEqual([], [R || {undefined, _, _} = R <- Seen]),
    ?assertEqual([], Marks -- lists:usort(Marks)),
    ?assertEqual([], Marks -- [M || {M, _, _} <- Lines]),
    ?assertEqual([], Answered -- Marks),
    ?assertEqual([], [L || {M, <<"200">>, Back} = L <- Forwarded, M =/= Back]).

%%% curl

curl(Args) ->
    {Status, Output} = real_os:run(real_os:need("curl", "curl"),
                                   ["-sS", "--max-time", "20" | Args]),
    ?assertEqual({0, Output}, {Status, Output}),
    Output.

url(Port, Path) ->
    lists:concat(["http://127.0.0.1:", Port, Path]).

%% Three requests need one connection.
curl_keeps_alive(_Config) ->
    Port = start(curl_keeps_alive, #{}),
    Url = url(Port, "/hello"),
    %% How many connections each of them needed.
    Output = curl(["-w", "%{num_connects}", Url, Url, Url]),
    ?assertEqual(<<"hello\n1hello\n0hello\n0">>, Output).

%% By length and chunked, small and large; too large is told.
curl_uploads(Config) ->
    Port = start(curl_uploads, #{max_body => 10000000}),
    File = filename:join(proplists:get_value(dir, Config), "body"),
    [begin
         Body = binary:copy(<<"0123456789">>, Size div 10),
         ok = file:write_file(File, Body),
         ?assertEqual(<<Method/binary, $\n, Body/binary>>, curl(Args ++ [url(Port, "/")]))
     end || Size <- [0, 10, 100000, 5000000],
            {Method, Args} <-
                [{<<"POST">>, ["--data-binary", "@" ++ File]},
                 {<<"PUT">>, ["-T", File]},
                 {<<"POST">>, ["-H", "Transfer-Encoding: chunked", "--data-binary", "@" ++ File]},
                 {<<"POST">>, ["-0", "-H", "Expect:", "--data-binary", "@" ++ File]}]],
    ok = file:write_file(File, binary:copy(<<"a">>, 10000001)),
    ?assertEqual(<<"413">>, curl(["-o", "/dev/null", "-w", "%{http_code}", "--data-binary",
                                  "@" ++ File, url(Port, "/")])).

%% curl waits a second for 100 before it sends the body; it gets it at once.
curl_continue(_Config) ->
    Port = start(curl_continue, #{}),
    Output = curl(["-v", "-H", "Expect: 100-continue", "--expect100-timeout", "15",
                   "--max-time", "10", "-d", "hello", url(Port, "/")]),
    ?assertNotEqual(nomatch, string:find(Output, "< HTTP/1.1 100 Continue")),
    ?assertNotEqual(nomatch, string:find(Output, "POST\nhello")).

curl_head_and_old(_Config) ->
    Port = start(curl_head_and_old, #{}),
    Head = curl(["-I", url(Port, "/hello")]),
    ?assertMatch({match, _}, re:run(Head, "\\AHTTP/1.1 200 OK\\r\\n")),
    ?assertMatch({match, _}, re:run(Head, "\\r\\n(?i)content-length: 6\\r\\n")),
    ?assertEqual(<<"hello\n">>, curl(["-0", url(Port, "/hello")])),
    ?assertEqual(<<"hello\n">>, curl(["-0", "-H", "Connection: keep-alive",
                                      url(Port, "/hello")])).

%% Parts of a file, and a transfer that is taken up again.
curl_ranges(Config) ->
    Dir = filename:join(proplists:get_value(dir, Config), "files"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    Bytes = << <<(I * 7 rem 251)>> || I <- lists:seq(1, 300000) >>,
    ok = file:write_file(filename:join(Dir, "file"), Bytes),
    Port = start(curl_ranges, #{handler => {erlane_http_file, #{root => Dir}}}),
    Url = url(Port, "/file"),
    ?assert(Bytes =:= curl([Url])),
    [?assert(binary:part(Bytes, From, Size) =:= curl(["-r", Range, Url]))
     || {Range, From, Size} <- [{"0-0", 0, 1}, {"100-199", 100, 100}, {"-500", 299500, 500},
                                {"299000-", 299000, 1000}]],
    Half = filename:join(proplists:get_value(dir, Config), "half"),
    ok = file:write_file(Half, binary:part(Bytes, 0, 123456)),
    _ = curl(["-C", "-", "-o", Half, Url]),
    ?assertEqual({ok, Bytes}, file:read_file(Half)),
    ?assertEqual(<<"416">>, curl(["-o", "/dev/null", "-w", "%{http_code}", "-r", "300000-", Url])).

curl_unix_socket(Config) ->
    Path = filename:join(proplists:get_value(dir, Config), "socket"),
    {ok, _} = erlane_http:start(curl_unix_socket, #{handler => {?MODULE, #{}},
                                                    ip => {local, Path}}),
    ?assertEqual(<<"hello\n">>, curl(["--unix-socket", Path, "http://x/hello"])).

%%% Load

%% Keep-alive connections: no error, no status but 200.
wrk(_Config) ->
    with("wrk", fun(Program) ->
                        Port = start(wrk, #{}),
                        Said = real_proxy:done(Program, ["-t", "1", "-c", "50", "-d", "2s",
                                                         url(Port, "/hello")]),
                        ct:pal("~ts", [Said]),
                        ?assertEqual(nomatch, string:find(Said, "Socket errors")),
                        ?assertEqual(nomatch, string:find(Said, "Non-2xx")),
                        ?assertMatch({match, _}, re:run(Said, "[1-9][0-9]* requests in"))
                end).

h2load(_Config) ->
    with("h2load", fun(Program) ->
                           Port = start(h2load, #{}),
                           Said = real_proxy:done(Program, ["--h1", "-n", "20000", "-c", "20",
                                                            "-m", "10", url(Port, "/hello")]),
                           ct:pal("~ts", [Said]),
                           ?assertNotEqual(nomatch, string:find(Said, "20000 succeeded, 0 failed"))
                   end).

%% A connection for each request.
ab(_Config) ->
    with("ab", fun(Program) ->
                       Port = start(ab, #{}),
                       Said = real_proxy:done(Program, ["-n", "5000", "-c", "20",
                                                        url(Port, "/hello")]),
                       ct:pal("~ts", [Said]),
                       ?assertMatch({match, _}, re:run(Said, "Complete requests: +5000\n")),
                       ?assertMatch({match, _}, re:run(Said, "Failed requests: +0\n"))
               end).

with(Program, Fun) ->
    case os:find_executable(Program) of
        false -> {skip, Program ++ " is not installed"};
        Path -> Fun(Path)
    end.
