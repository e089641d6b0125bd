%% SPDX-License-Identifier: Apache-2.0
%% The page over HTTP: what is answered to whom, with which headers, and the stream of events.
-module(erlane_dash_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([page_and_files/1, files_are_all_there/1, only_reading/1, headers_protect/1,
         not_modified/1, token_opens/1, token_in_form/1, foreign_host/1,
         own_hosts/1, token_in_log/1, page_comes_back/1, busy_node/1, other_sites/1,
         profile_opens/1, profile_limits/1, data_is_json/1, metrics_are_those_of_the_app/1,
         events_stream/1,
         viewers_share_one_sampler/1, reader_that_stalls/1, too_many_viewers/1,
         starts_and_stops/1, configured/1, sampler_crash_ends_streams/1]).

-define(TOKEN, <<"0123456789abcdef0123456789abcdef">>).
-define(WAIT_MS, 10000).

suite() -> [{timetrap, {minutes, 1}}].

all() ->
    [page_and_files, files_are_all_there, only_reading, headers_protect, not_modified,
     token_opens, token_in_form, token_in_log, foreign_host, own_hosts, other_sites, profile_opens,
     profile_limits, data_is_json,
     metrics_are_those_of_the_app,
     events_stream, viewers_share_one_sampler, reader_that_stalls, too_many_viewers,
     starts_and_stops, configured, sampler_crash_ends_streams, page_comes_back, busy_node].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(erlane_dash),
    Config.

end_per_testcase(_Case, _Config) ->
    application:unset_env(erlane_dash, listener),
    _ = application:stop(erlane_dash),
    ok = application:stop(erlane_http).

start(Options) ->
    {ok, #{port := Port}} = erlane_dash:start(Options),
    Port.

%%% a client

get(Port, Path) -> get(Port, Path, []).

get(Port, Path, Headers) -> request(Port, "GET", Path, Headers, <<>>).

%% Status, headers and body of one answer.
request(Port, Method, Path, Headers, Body) ->
    Socket = open(Port, Method, Path, Headers, Body),
    {Status, Fields, Rest} = head(Socket, <<>>),
    Read = case {Method, Status, Fields} of
               {"HEAD", _, _} -> <<>>;
               {_, 304, _} -> <<>>;
               {_, _, #{<<"content-length">> := N}} ->
                   whole(Socket, Rest, binary_to_integer(N));
               {_, _, #{<<"transfer-encoding">> := <<"chunked">>}} -> chunks(Socket, Rest)
           end,
    gen_tcp:close(Socket),
    {Status, Fields, plain(Fields, Read)}.

open(Port, Method, Path, Headers, Body) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}]),
    Host = [["Host: localhost:", integer_to_list(Port), "\r\n"]
            || not lists:keymember("Host", 1, Headers)],
    ok = gen_tcp:send(Socket, [Method, $\s, Path, " HTTP/1.1\r\n", Host,
                               [[K, ": ", V, "\r\n"] || {K, V} <- Headers],
                               [["Content-Length: ", integer_to_list(byte_size(Body)), "\r\n"]
                                || Body =/= <<>>], "\r\n", Body]),
    Socket.

head(Socket, Bytes) ->
    case binary:split(Bytes, <<"\r\n\r\n">>) of
        [Head, Rest] ->
            [<<"HTTP/1.1 ", Status:3/binary, _/binary>> | Lines] =
                binary:split(Head, <<"\r\n">>, [global]),
            Fields = [{string:lowercase(Name), string:trim(Value)}
                      || Line <- Lines, [Name, Value] <- [binary:split(Line, <<":">>)]],
            {binary_to_integer(Status), maps:from_list(Fields), Rest};
        [_] ->
            {ok, More} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
            head(Socket, <<Bytes/binary, More/binary>>)
    end.

whole(_, Bytes, N) when byte_size(Bytes) =:= N -> Bytes;
whole(Socket, Bytes, N) when byte_size(Bytes) < N ->
    {ok, More} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    whole(Socket, <<Bytes/binary, More/binary>>, N).

chunks(Socket, Bytes) ->
    case binary:split(Bytes, <<"\r\n">>) of
        [Hex, Rest] when Hex =/= <<>> ->
            Size = binary_to_integer(Hex, 16),
            case Rest of
                <<Data:Size/binary, "\r\n", _/binary>> when Size =:= 0 -> Data;
                <<Data:Size/binary, "\r\n", More/binary>> ->
                    <<Data/binary, (chunks(Socket, More))/binary>>;
                _ -> chunks_more(Socket, Bytes)
            end;
        _ -> chunks_more(Socket, Bytes)
    end.

chunks_more(Socket, Bytes) ->
    {ok, More} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    chunks(Socket, <<Bytes/binary, More/binary>>).

plain(#{<<"content-encoding">> := <<"gzip">>}, Body) when Body =/= <<>> -> zlib:gunzip(Body);
plain(_, Body) -> Body.

json(Port, Path) ->
    {200, #{<<"content-type">> := <<"application/json">>}, Body} = get(Port, Path),
    erlane_dash_reader:read(Body).

%% A stream of events: read with next/1.
stream(Port) ->
    Socket = open(Port, "GET", "/events", [], <<>>),
    {200, #{<<"content-type">> := <<"text/event-stream">>}, Rest} = head(Socket, <<>>),
    {Socket, Rest}.

%% The next event: its name and data. The frames of the chunks are taken out first; an event of
%% ours may be in several of them.
next({Socket, Bytes}) -> next(Socket, Bytes, <<>>).

next(Socket, Bytes, Text) ->
    case binary:split(Text, <<"\n\n">>) of
        [<<":", _/binary>>, Rest] -> next(Socket, Bytes, Rest);
        [Event, <<>>] ->
            Fields = maps:from_list([{K, V} || Line <- binary:split(Event, <<"\n">>, [global]),
                                               [K, V] <- [binary:split(Line, <<": ">>)]]),
            #{<<"event">> := Name, <<"data">> := Data} = Fields,
            {Name, erlane_dash_reader:read(Data), {Socket, Bytes}};
        [_] ->
            {Chunk, Rest} = chunk(Socket, Bytes),
            next(Socket, Rest, <<Text/binary, Chunk/binary>>)
    end.

chunk(Socket, Bytes) ->
    case binary:split(Bytes, <<"\r\n">>) of
        [Hex, Rest] ->
            Size = binary_to_integer(Hex, 16),
            case Rest of
                <<Data:Size/binary, "\r\n", More/binary>> -> {Data, More};
                _ -> chunk_more(Socket, Bytes)
            end;
        _ -> chunk_more(Socket, Bytes)
    end.

chunk_more(Socket, Bytes) ->
    {ok, More} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
    chunk(Socket, <<Bytes/binary, More/binary>>).

until(Fun) -> until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        Other ->
            erlang:monotonic_time(millisecond) < Deadline orelse ct:fail({still, Other}),
            receive after 10 -> until(Fun, Deadline) end
    end.

%%% the page and who gets it

page_and_files(_Config) ->
    Port = start(#{}),
    {200, #{<<"content-type">> := <<"text/html; charset=utf-8">>}, Html} = get(Port, "/"),
    ?assertMatch({_, _}, binary:match(Html, <<"<title>erlane</title>">>)),
    %% Whatever the page names is there, compressed for those who want it.
    {match, Names} = re:run(Html, "(?:src|href)=\"([a-z.]+)\"",
                            [global, {capture, all_but_first, list}]),
    [begin
         {200, Plain, Body} = get(Port, ["/", Name]),
         ?assertNot(is_map_key(<<"content-encoding">>, Plain)),
         {200, #{<<"content-encoding">> := <<"gzip">>}, Body} =
             get(Port, ["/", Name], [{"Accept-Encoding", "gzip"}]),
         {200, #{<<"content-length">> := Size}, <<>>} =
             request(Port, "HEAD", ["/", Name], [], <<>>),
         ?assertEqual(byte_size(Body), binary_to_integer(Size))
     end || [Name] <- Names, Name =/= "metrics"],
    ?assert(length(Names) >= 4),
    [?assertMatch({Path, {404, _, _}}, {Path, get(Port, Path)})
     || Path <- ["/login.html", "/index.html", "/x", "/api", "/api/x", "/app.js/", "/..%2fapp.js",
                 "/priv/app.js", "//"]],
    ?assertMatch({200, _, <<"ok\n">>}, get(Port, "/healthz")).

%% Every file of priv/ is served, and every module that the page imports is among them.
files_are_all_there(_Config) ->
    {ok, Assets} = erlane_dash_assets:load(),
    {ok, Files} = file:list_dir(code:priv_dir(erlane_dash)),
    ?assertEqual(lists:sort(Files), [binary_to_list(N) || N <- lists:sort(maps:keys(Assets))]),
    Imports = [Name || #{plain := Text} <- maps:values(Assets),
                       {match, Found} <- [re:run(Text, "from \"\\./([a-z.]+)\"",
                                                 [global, {capture, all_but_first, binary}])],
                       [Name] <- Found],
    ?assertEqual([], [Name || Name <- Imports, not is_map_key(Name, Assets)]),
    ?assert(length(Imports) > 10),
    %% Nothing comes from elsewhere, and nothing is written into the page itself.
    [?assertEqual({Name, nomatch}, {Name, re:run(Text, Pattern)})
     || {Name, #{plain := Text}} <- maps:to_list(Assets), Name =/= <<"icon.svg">>,
        Pattern <- ["https?://", "style=\"", "<style", "<script>", " on[a-z]+=\"", "innerHTML",
                    "eval\\("]].

only_reading(_Config) ->
    Port = start(#{}),
    [?assertMatch({Method, Path, {405, #{<<"allow">> := <<"GET, HEAD">>}, _}},
                  {Method, Path, request(Port, Method, Path, [], <<"x">>)})
     || Method <- ["POST", "PUT", "DELETE", "PATCH"],
        Path <- ["/", "/metrics", "/api/history", "/app.js"]],
    ?assertMatch({303, #{<<"location">> := <<"./">>}, _}, get(Port, "/token")),
    %% Without a token there is no form.
    ?assertMatch({404, _, _}, request(Port, "POST", "/token", [], <<"token=x">>)).

%% On each kind of answer.
headers_protect(_Config) ->
    Port = start(#{token => ?TOKEN}),
    Bearer = [{"Authorization", ["Bearer ", ?TOKEN]}],
    Answers = [get(Port, Path, Headers)
               || {Path, Headers} <- [{"/", Bearer}, {"/", []}, {"/app.js", []}, {"/x", Bearer},
                                      {"/metrics", Bearer}, {"/metrics", []},
                                      {"/api/history", Bearer}, {"/healthz", []},
                                      {["/?token=", ?TOKEN], []}, {"/", [{"Host", "evil"}]}]],
    [begin
         ?assertMatch(#{<<"x-content-type-options">> := <<"nosniff">>,
                        <<"referrer-policy">> := <<"no-referrer">>,
                        <<"x-frame-options">> := <<"DENY">>,
                        <<"cross-origin-resource-policy">> := <<"same-origin">>}, Fields),
         #{<<"content-security-policy">> := Policy, <<"cache-control">> := Cache} = Fields,
         ?assertMatch({_, _}, binary:match(Policy, <<"default-src 'none'; script-src 'self';">>)),
         ?assertEqual(nomatch, binary:match(Policy, <<"unsafe">>)),
         ?assert(Cache =:= <<"no-store">> orelse is_map_key(<<"etag">>, Fields)),
         ?assertNot(is_map_key(<<"access-control-allow-origin">>, Fields))
     end || {_, Fields, _} <- Answers].

%% A sample of this node as a page in a box of its own, which may not reach anything.
profile_opens(_Config) ->
    Port = start(#{token => ?TOKEN}),
    {200, Fields, Page} = get(Port, "/profile?for=1", [{"Authorization", ["Bearer ", ?TOKEN]}]),
    ?assertMatch(#{<<"content-type">> := <<"text/html; charset=utf-8">>,
                   <<"cache-control">> := <<"no-store">>, <<"x-frame-options">> := <<"DENY">>},
                 Fields),
    #{<<"content-security-policy">> := Policy} = Fields,
    [?assertMatch({_, _}, binary:match(Policy, Part))
     || Part <- [<<"sandbox allow-scripts;">>, <<"default-src 'none'">>, <<"form-action 'none'">>]],
    ?assertEqual(nomatch, binary:match(Policy, [<<"allow-same-origin">>, <<"connect-src">>])),
    ?assertMatch({_, _}, binary:match(Page, <<"erlane_http">>)),
    ?assertEqual(undefined, whereis(erlane_prof_depth)).

%% One at a time, ten seconds at most, with a token, not for other sites, and only asked for in
%% earnest. It ends with its reader.
profile_limits(_Config) ->
    Port = start(#{token => ?TOKEN}),
    Bearer = [{"Authorization", ["Bearer ", ?TOKEN]}],
    [?assertMatch({For, {400, _, _}}, {For, get(Port, ["/profile?for=", For], Bearer)})
     || For <- ["0", "11", "1.5", "-1", "", "x"]],
    ?assertMatch({401, _, _}, get(Port, "/profile?for=1")),
    ?assertMatch({403, _, _}, get(Port, "/profile?for=1",
                                  [{"Sec-Fetch-Site", "cross-site"} | Bearer])),
    ?assertMatch({405, _, _}, request(Port, "HEAD", "/profile?for=1", Bearer, <<>>)),
    ?assertMatch({405, _, _}, request(Port, "POST", "/profile", Bearer, <<>>)),
    ?assertEqual(undefined, whereis(erlane_dash_profile)),
    Socket = open(Port, "GET", "/profile?for=10", Bearer, <<>>),
    until(fun() -> is_pid(whereis(erlane_dash_profile)) end),
    ?assertMatch({503, #{<<"retry-after">> := _}, _}, get(Port, "/profile?for=1", Bearer)),
    ok = gen_tcp:close(Socket),
    ok = erlane_dash:stop(),
    until(fun() -> whereis(erlane_dash_profile) =:= undefined end).

not_modified(_Config) ->
    Port = start(#{}),
    {200, #{<<"etag">> := Tag}, _} = get(Port, "/style.css"),
    ?assertMatch({304, _, <<>>}, get(Port, "/style.css", [{"If-None-Match", Tag}])),
    ?assertMatch({200, _, <<_, _/binary>>}, get(Port, "/style.css", [{"If-None-Match", "\"x\""}])).

token_opens(_Config) ->
    Port = start(#{token => ?TOKEN}),
    Bearer = fun(T) -> [{"Authorization", ["Bearer ", T]}] end,
    Secret = ["/metrics", "/events", "/api/history", "/api/families", "/api/family?name=x", "/x"],
    [?assertMatch({Path, {401, #{<<"www-authenticate">> := <<"Bearer", _/binary>>}, _}},
                  {Path, get(Port, Path, Headers)})
     || Path <- Secret,
        Headers <- [[], Bearer("wrong"), Bearer([?TOKEN, "x"]),
                    [{"Cookie", ["erlane_dash=", ?TOKEN]}]]],
    %% Not secret: how the page is made, and that we live.
    [?assertMatch({Path, {200, _, _}}, {Path, get(Port, Path)})
     || Path <- ["/style.css", "/app.js", "/icon.svg", "/healthz"]],
    [?assertMatch({Path, {200, _, _}}, {Path, get(Port, Path, Bearer(?TOKEN))})
     || Path <- ["/", "/metrics", "/api/history", "/api/families"]],
    %% Once in the address, then in a cookie; in the query of anything else it is nothing.
    {200, #{<<"set-cookie">> := Set}, Page} = get(Port, ["/?token=", ?TOKEN]),
    ?assertMatch({match, _}, re:run(Set, "^erlane_dash_[0-9]+=.*; HttpOnly; SameSite=Strict$")),
    ?assertEqual(nomatch, binary:match(Page, ?TOKEN)),
    [Cookie | _] = binary:split(Set, <<";">>),
    ?assertMatch({200, _, _}, get(Port, "/metrics", [{"Cookie", Cookie}])),
    ?assertMatch({401, _, _}, get(Port, ["/metrics?token=", ?TOKEN])),
    {401, Refused, Login} = get(Port, "/?token=wrong"),
    ?assertNot(is_map_key(<<"set-cookie">>, Refused)),
    ?assertMatch({_, _}, binary:match(Login, <<"<form">>)),
    ?assertMatch({_, _}, binary:match(Login, <<"role=\"alert\">That was not">>)),
    {401, _, First} = get(Port, "/"),
    ?assertMatch({_, _}, binary:match(First, <<"role=\"alert\" hidden>">>)).

token_in_form(_Config) ->
    Port = start(#{token => ?TOKEN}),
    Form = [{"Content-Type", "application/x-www-form-urlencoded"}],
    Post = fun(Body) -> request(Port, "POST", "/token", Form, iolist_to_binary(Body)) end,
    ?assertMatch({303, #{<<"location">> := <<"./">>, <<"set-cookie">> := _}, _},
                 Post(["token=", ?TOKEN])),
    [?assertMatch({Body, {Status, _, _}}, {Body, Post(Body)})
     || {Status, Body} <- [{401, "token=wrong"}, {401, "token="}, {400, "x=y"}, {401, "token"},
                           {400, ["token=a&token=", ?TOKEN]}, {400, [255, 254, "%zz"]}]],
    ?assertMatch({413, _, _}, Post(binary:copy(<<"x">>, 1025))).

%% A name of others that leads to our address; on all addresses any name is good.
foreign_host(_Config) ->
    Port = start(#{}),
    [?assertMatch({Path, {421, _, _}}, {Path, get(Port, Path, [{"Host", "evil.example"}])})
     || Path <- ["/", "/metrics", "/events", "/healthz", "/app.js"]],
    ?assertMatch({200, _, _}, get(Port, "/", [{"Host", "127.0.0.1"}])),
    ok = erlane_dash:stop(),
    {error, {token, {needed_for, {0, 0, 0, 0}}}} = erlane_dash:start(#{ip => {0, 0, 0, 0}}),
    Open = start(#{ip => {0, 0, 0, 0}, token => none}),
    ?assertMatch({200, _, _}, get(Open, "/", [{"Host", "node.example"}])).

%% The page has the names that it was told, beside bare addresses; on a loopback address as well.
own_hosts(_Config) ->
    [begin
         Port = start(Options#{hosts => [<<"node.example">>]}),
         [?assertMatch({Ip, Host, {Status, _, _}}, {Ip, Host, get(Port, "/", [{"Host", Host}])})
          || {Host, Status} <- [{"node.example", 200}, {"NODE.example:80", 200}, {"localhost", 200},
                                {"evil.example", 421}, {"xnode.example", 421},
                                {"192.0.2.1", case Ip of {127, _, _, _} -> 421; _ -> 200 end}]],
         ok = erlane_dash:stop()
     end || #{ip := Ip} = Options <- [#{ip => {127, 0, 0, 1}},
                                      #{ip => {0, 0, 0, 0}, token => none}]],
    [?assertMatch({error, {hosts, _}}, erlane_dash:start(#{hosts => Bad}))
     || Bad <- [<<"a">>, ["a"], [<<"A">>], [<<"a:80">>], [<<>>]]].

%% A token in an address does not get into an access log.
token_in_log(_Config) ->
    Self = self(),
    Port = start(#{token => ?TOKEN,
                   http => #{access_log => {combined, fun(L) -> Self ! {line, L} end}}}),
    {200, _, _} = get(Port, ["/?token=", ?TOKEN]),
    Line = receive {line, L} -> iolist_to_binary(L) after ?WAIT_MS -> ct:fail(no_line) end,
    ?assertEqual({Line, nomatch}, {Line, binary:match(Line, ?TOKEN)}),
    ?assertNotEqual(nomatch, binary:match(Line, <<"\"GET / HTTP/1.1\" 200 ">>)).

%% A page of another site may ask, but it costs nothing and takes no viewer's place.
other_sites(_Config) ->
    Port = start(#{viewers => 1}),
    Own = ["http://localhost:", integer_to_list(Port)],
    [?assertMatch({Path, {403, _, _}}, {Path, get(Port, Path, [Header])})
     || Path <- ["/events", "/metrics", "/api/history"],
        Header <- [{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"},
                   {"Origin", "http://evil.example"}, {"Origin", "null"}]],
    ?assertMatch(#{viewers := 0, samples := 0}, erlane_dash:info()),
    [?assertMatch({Header, {200, _, _}}, {Header, get(Port, "/metrics", [Header])})
     || Header <- [{"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"},
                   {"Origin", Own}]].

%%% data

data_is_json(_Config) ->
    Port = start(#{interval => 10, history => 10, lanes => {erlane_socket, stats}}),
    until(fun() -> maps:get(held, erlane_dash:info()) >= 3 end),
    [#{<<"t">> := T, <<"lanes">> := #{<<"id">> := [_ | _]}}, #{<<"t">> := Second} | _] =
        json(Port, "/api/history"),
    [#{<<"t">> := Second} | _] = json(Port, ["/api/history?since=", integer_to_list(T)]),
    ?assertMatch([#{<<"t">> := T} | _], json(Port, "/api/history?since=x")),
    {200, #{<<"content-encoding">> := <<"gzip">>}, _} =
        get(Port, "/api/families", [{"Accept-Encoding", "gzip"}]),
    Names = [Name || #{<<"name">> := Name} <- json(Port, "/api/families")],
    ?assert(lists:member(<<"erlang_vm_memory_bytes">>, Names)),
    #{<<"series">> := [#{<<"labels">> := <<"kind=", _/binary>>, <<"value">> := N} | _]} =
        json(Port, "/api/family?name=erlang_vm_memory_bytes"),
    ?assert(N > 1000000),
    ?assertMatch({404, _, _}, get(Port, "/api/family?name=none")),
    ?assertMatch({400, _, _}, get(Port, "/api/family")),
    %% A name without a value, and one that is no text.
    [?assertMatch({404, _, _}, get(Port, Path))
     || Path <- ["/api/family?name", "/api/family?name=%ff%fe"]].

%% The very bytes that the app itself writes, in each format, plain and compressed.
metrics_are_those_of_the_app(_Config) ->
    Port = start(#{}),
    Family = erlane_metrics:counter(#{name => <<"dash_many">>, help => <<"Many">>,
                                      labels => [<<"i">>], limit => 5000}),
    [ok = erlane_metrics:inc(erlane_metrics:handle(Family, [I])) || I <- lists:seq(1, 3000)],
    Ours = fun(Text) ->
                   lists:sort([Line || <<"dash_many", _/binary>> = Line <-
                                           binary:split(Text, <<"\n">>, [global])])
           end,
    [begin
         {200, #{<<"content-type">> := Type}, Body} =
             get(Port, "/metrics", [{"Accept", Accept}, {"Accept-Encoding", Encoding}]),
         ?assertEqual(erlane_metrics_accept:content_type(Format), Type),
         Page = iolist_to_binary(erlane_metrics:expose(Format, fun(P, A) -> [A, P] end, [])),
         ?assertEqual(3000, length([L || <<"dash_many_total", _/binary>> = L <- Ours(Body)])),
         ?assertEqual(Ours(Page), Ours(Body))
     end || {Accept, Format} <- [{"application/openmetrics-text", openmetrics},
                                 {"text/plain", text}],
            Encoding <- ["identity", "gzip"]],
    ?assertMatch({200, #{<<"content-type">> := <<"application/vnd.google", _/binary>>}, _},
                 get(Port, "/metrics", [{"Accept", "application/vnd.google.protobuf"}])),
    ?assertMatch({200, #{<<"content-type">> := <<"text/plain", _/binary>>}, <<>>},
                 request(Port, "HEAD", "/metrics", [], <<>>)).

%%% events

events_stream(_Config) ->
    Port = start(#{interval => 10, lanes => {erlane_socket, stats},
                   proxies => fun() -> error(broken) end}),
    {<<"hello">>, Hello, S1} = next(stream(Port)),
    Name = atom_to_binary(node()),
    ?assertMatch(#{<<"name">> := Name, <<"interval">> := 10, <<"otp">> := _, <<"erlane">> := _},
                 Hello),
    {<<"tick">>, Tick, {Socket, _} = S2} = next(S1),
    ?assertMatch(#{<<"core">> := #{<<"mem">> := #{<<"total">> := _},
                                   <<"sched">> := #{<<"util">> := [_ | _]},
                                   %% A source that fails costs its own panel only.
                                   <<"proxies">> := #{<<"id">> := []}},
                   <<"detail">> := #{<<"procs">> := [_ | _], <<"uptime">> := _}}, Tick),
    {<<"tick">>, #{<<"core">> := #{<<"t">> := Later}}, _} = next(S2),
    ?assert(Later > maps:get(<<"t">>, maps:get(<<"core">>, Tick))),
    %% The end of the client is the end of the sampling.
    gen_tcp:close(Socket),
    until(fun() -> maps:get(rhythm, erlane_dash:info()) =:= none end).

viewers_share_one_sampler(_Config) ->
    Port = start(#{interval => 20}),
    Streams = [begin {<<"hello">>, _, S} = next(stream(Port)), S end || _ <- lists:seq(1, 5)],
    until(fun() -> maps:get(viewers, erlane_dash:info()) =:= 5 end),
    Times = [begin {<<"tick">>, #{<<"core">> := #{<<"t">> := T}}, _} = next(S), T end
             || S <- Streams],
    Held = [maps:get(<<"t">>, erlane_dash_reader:read(C)) || C <- erlane_dash_sampler:history(0)],
    %% All of them saw samples of the one ring.
    ?assertEqual([], lists:usort(Times) -- Held).

%% Somebody who asks and never reads: what is kept for him is bounded, others get all of theirs,
%% and in the end he is forgotten.
reader_that_stalls(_Config) ->
    Port = start(#{interval => 10, http => #{send_timeout => 500},
                   proxies => fun() -> [#{name => binary:copy(<<"x">>, 150), n => I}
                                        || I <- lists:seq(1, 400)] end}),
    {ok, Stalled} = gen_tcp:connect({127, 0, 0, 1}, Port,
                                    [binary, {active, false}, {recbuf, 4096}]),
    ok = gen_tcp:send(Stalled, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    until(fun() -> maps:get(viewers, erlane_dash:info()) =:= 1 end),
    Reader = stream(Port),
    {<<"hello">>, _, S} = next(Reader),
    _ = lists:foldl(fun(_, Acc) -> {<<"tick">>, _, Next} = next(Acc), Next end, S,
                    lists:seq(1, 20)),
    ok = gen_tcp:close(element(1, Reader)),
    %% Nobody reads any more; one of the two has not even said that he has gone.
    until(fun() -> maps:get(viewers, erlane_dash:info()) =:= 0 end),
    ?assert(maps:get(skipped, erlane_dash:info()) > 0),
    gen_tcp:close(Stalled).

too_many_viewers(_Config) ->
    Port = start(#{viewers => 1}),
    {<<"hello">>, _, {First, _}} = next(stream(Port)),
    ?assertMatch({<<"full">>, _, _}, next(stream(Port))),
    gen_tcp:close(First),
    until(fun() -> maps:get(viewers, erlane_dash:info()) =:= 0 end),
    ?assertMatch({<<"hello">>, _, _}, next(stream(Port))).

%%% the app

starts_and_stops(_Config) ->
    ?assertEqual({error, not_found}, erlane_dash:info()),
    ?assertEqual({error, not_found}, erlane_dash:stop()),
    Port = start(#{}),
    #{url := Url} = erlane_dash:info(),
    ?assertEqual(iolist_to_binary(["http://127.0.0.1:", integer_to_list(Port), "/"]), Url),
    ?assertEqual({error, {page, already_started}}, erlane_dash:start(#{})),
    ?assertMatch({error, {http, _}}, erlane_dash:start(#{http => #{handler => x}})),
    ok = erlane_dash:stop(),
    {ok, Taken} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, TakenPort} = inet:port(Taken),
    {error, Reason} = erlane_dash:start(#{port => TakenPort}),
    ?assertEqual("address already in use (eaddrinuse)", erlane_dash:format_error(Reason)),
    gen_tcp:close(Taken),
    ?assertMatch({error, {max_body, _}}, erlane_dash:start(#{http => #{max_body => no}})),
    %% A stream that is open is ended with the rest, not cut off.
    Port2 = start(#{interval => 10}),
    {<<"hello">>, _, Stream} = next(stream(Port2)),
    ok = erlane_dash:stop(),
    ok = ended(Stream).

configured(_Config) ->
    ok = application:stop(erlane_dash),
    ok = application:set_env(erlane_dash, listener, [{port, 0}, {history, 1000}]),
    ok = application:start(erlane_dash),
    #{port := Port, rhythm := 1000} = erlane_dash:info(),
    ?assertMatch({200, _, _}, get(Port, "/")),
    ok = application:stop(erlane_dash),
    ok = application:set_env(erlane_dash, listener, [{prot, 0}]),
    ?assertMatch({error, {{listener, {prot, unknown_option}}, _}},
                 application:start(erlane_dash)).

%% The pages see that it has gone and come again; the listener goes on.
sampler_crash_ends_streams(_Config) ->
    Port = start(#{interval => 10}),
    {<<"hello">>, #{<<"started">> := Started}, Stream} = next(stream(Port)),
    Sampler = whereis(erlane_dash_sampler),
    exit(Sampler, kill),
    ok = ended(Stream),
    until(fun() -> not lists:member(whereis(erlane_dash_sampler), [Sampler, undefined]) end),
    {<<"hello">>, #{<<"started">> := Again}, _} = next(stream(Port)),
    ?assert(Again > Started).

%% A sampler that crashes again and again does not end the page for good.
page_comes_back(_Config) ->
    Port = start(#{port => free_port()}),
    [begin
         Old = sampler(),
         exit(Old, kill),
         until(fun() -> whereis(erlane_dash_sampler) =/= Old end)
     end || _ <- lists:seq(1, 8)],
    _ = sampler(),
    until(fun() ->
                  case gen_tcp:connect({127, 0, 0, 1}, Port, []) of
                      {ok, Socket} -> ok = gen_tcp:close(Socket), true;
                      {error, _} -> false
                  end
          end),
    ?assertMatch({200, _, _}, get(Port, "/")),
    ok = erlane_dash:stop(),
    ?assertEqual({error, not_found}, erlane_dash:stop()).

sampler() ->
    until(fun() -> is_pid(whereis(erlane_dash_sampler)) end),
    whereis(erlane_dash_sampler).

free_port() ->
    {ok, Socket} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {reuseaddr, true}]),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Port.

%% Who asks while the sampler cannot answer is told to come again.
busy_node(_Config) ->
    Port = start(#{}),
    ok = sys:suspend(whereis(erlane_dash_sampler)),
    {503, #{<<"retry-after">> := <<"1">>}, _} = get(Port, "/api/history"),
    ok = sys:resume(whereis(erlane_dash_sampler)),
    ?assertMatch({200, _, _}, get(Port, "/api/history")).

%% The last chunk of a stream, behind whatever was under way.
ended({Socket, Bytes}) ->
    Size = byte_size(Bytes) - 5,
    case Bytes of
        <<_:Size/binary, "0\r\n\r\n">> when Size >= 0 -> gen_tcp:close(Socket);
        _ ->
            {ok, More} = gen_tcp:recv(Socket, 0, ?WAIT_MS),
            ended({Socket, <<Bytes/binary, More/binary>>})
    end.
