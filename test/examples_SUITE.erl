%% SPDX-License-Identifier: Apache-2.0
%% @doc The examples of the fan-out, compiled and used by clients that speak plain TCP.
-module(examples_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([short/1, chat/1, ticker/1, log_tail/1]).

-define(WAIT, 10000).
-define(EXAMPLES, [chat, ticker, log_tail]).
%% Lines of an example at most.
-define(SHORT, 120).

suite() -> [{timetrap, {minutes, 1}}].

all() -> [short, chat, ticker, log_tail].

init_per_suite(Config) ->
    [begin
         {ok, Module, Beam} = compile:file(source(Example), [binary, report, warnings_as_errors]),
         {module, Module} = code:load_binary(Module, source(Example), Beam)
     end || Example <- ?EXAMPLES],
    Config.

end_per_suite(_Config) ->
    [_ = application:stop(App) || App <- [erlane_http, erlane_fanout]],
    ok.

source(Example) ->
    Lib = code:lib_dir(erlane_http),
    filename:join([root(filename:dirname(Lib)), "examples", atom_to_list(Example) ++ ".erl"]).

%% The first directory above that has the examples.
root(Dir) ->
    case filelib:is_dir(filename:join(Dir, "examples")) andalso
         filelib:is_file(filename:join(Dir, "rebar.config")) of
        true -> Dir;
        false ->
            Parent = filename:dirname(Dir),
            Parent =/= Dir orelse error(no_examples),
            root(Parent)
    end.

short(_Config) ->
    [begin
         {ok, Text} = file:read_file(source(Example)),
         ?assert(length(binary:split(Text, <<"\n">>, [global])) - 1 < ?SHORT)
     end || Example <- ?EXAMPLES],
    ok.

%%% Chat

%% Who is in a room sees each line once, in order; other rooms see none of it. Who leaves is missed.
chat(_Config) ->
    ok = chat:start(0),
    Port = erlane_http:port(chat),
    ?assertMatch({_, {match, _}}, page(Port, "/lobby", "new WebSocket")),
    ?assertMatch(<<"HTTP/1.1 404 ", _/binary>>, upgrade(Port, "/ws/a%2B")),
    A = web_socket(Port, "/ws/lobby"),
    ?assertEqual(<<"* somebody has come in">>, text(A)),
    Other = web_socket(Port, "/ws/attic"),
    ?assertEqual(<<"* somebody has come in">>, text(Other)),
    B = web_socket(Port, "/ws/lobby"),
    [?assertEqual(<<"* somebody has come in">>, text(S)) || S <- [A, B]],
    Long = binary:copy(<<"z">>, 70000),
    [ok = gen_tcp:send(B, masked(1, Line)) || Line <- [<<"one">>, Long, <<"two">>]],
    [?assertEqual([<<"one">>, Long, <<"two">>], [text(S) || _ <- [1, 2, 3]]) || S <- [A, B]],
    ok = gen_tcp:send(B, masked(8, <<1000:16>>)),
    ?assertEqual({8, <<1000:16>>}, frame(B)),
    ?assertEqual({error, closed}, gen_tcp:recv(B, 0, ?WAIT)),
    ?assertEqual(<<"* somebody has left">>, text(A)),
    ok = gen_tcp:send(Other, masked(1, <<"alone">>)),
    ?assertEqual(<<"alone">>, text(Other)),
    ok = erlane_http:stop(chat, #{drain => 0}).

%%% Ticker

%% A reader that keeps up sees every change. One that stops sees, when it reads again, the last
%% price of each symbol, after what had waited; seen and skipped are all changes.
ticker(_Config) ->
    Small = [{sndbuf, 4096}],
    ok = ticker:start(0, #{socket_opts => Small}),
    Port = erlane_http:port(ticker),
    ?assertMatch({_, {match, _}}, page(Port, "/", "JSON.parse")),
    Fast = web_socket(Port, "/ws"),
    Slow = web_socket(Port, "/ws", [{recbuf, 4096}]),
    subscribed(<<"prices">>, 2, 1000),
    N = 5000,
    Test = self(),
    Reader = spawn_link(fun() ->
        receive go -> ok end,
        Test ! {self(), [text(Fast) || _ <- lists:seq(1, N)]}
    end),
    ok = gen_tcp:controlling_process(Fast, Reader),
    Reader ! go,
    Symbols = {<<"ACME">>, <<"BOLT">>, <<"CRUX">>},
    Ticks = [{element(1 + I rem 3, Symbols), I * 1.0} || I <- lists:seq(1, N)],
    %% Not faster than the fast one reads: a pause for each hundred.
    [begin
         ok = ticker:tick(Tick),
         I rem 100 =:= 0 andalso receive after 2 -> ok end
     end || {I, Tick} <- lists:zip(lists:seq(1, N), Ticks)],
    Expected = [json(Tick) || Tick <- Ticks],
    receive {Reader, Seen} -> ?assertEqual(Expected, Seen) after ?WAIT -> error(missing) end,
    {Count, Skipped, Last} = until_last(Slow, N, 0, 0, #{}),
    ?assert(Skipped > 0),
    ?assertEqual(N, Count + Skipped),
    ?assertEqual([json(lists:keyfind(S, 1, lists:reverse(Ticks))) || S <- tuple_to_list(Symbols)],
                 [maps:get(S, Last) || S <- tuple_to_list(Symbols)]),
    ok = erlane_http:stop(ticker, #{drain => 0}).

%% A WebSocket is open before its handler has subscribed.
subscribed(Topic, N, Tries) ->
    case erlane_fanout:count(Topic) of
        N -> ok;
        _ when Tries > 0 -> receive after 5 -> subscribed(Topic, N, Tries - 1) end
    end.

json({Symbol, Price}) ->
    iolist_to_binary(io_lib:format("{\"symbol\":\"~s\",\"price\":~.2f}", [Symbol, Price])).

until_last(_, N, Count, Skipped, Last) when Count + Skipped >= N -> {Count, Skipped, Last};
until_last(S, N, Count, Skipped, Last) ->
    case text(S) of
        <<"{\"skipped\":", Rest/binary>> ->
            until_last(S, N, Count,
                       Skipped + binary_to_integer(hd(binary:split(Rest, <<"}">>))), Last);
        <<"{\"symbol\":\"", Symbol:4/binary, _/binary>> = Text ->
            until_last(S, N, Count + 1, Skipped, Last#{Symbol => Text})
    end.

%%% Log tail

%% Each line goes to those who look at its level, and to those who look at all.
log_tail(_Config) ->
    ok = log_tail:start(0),
    Port = erlane_http:port(log_tail),
    try
        logger:error("before anybody ~s", ["looks"]),
        Errors = stream(Port, "/tail/error"),
        ?assertMatch({match, _}, re:run(event(Errors), "error before anybody looks$")),
        All = stream(Port, "/tail/+"),
        _Retained = event(All),
        logger:error("one\ntwo"),
        ?assertMatch({match, _}, re:run(event(Errors), "error one, two$")),
        logger:warning("three"),
        logger:error("four"),
        ?assertMatch({match, _}, re:run(event(Errors), "error four$")),
        [?assertMatch({match, _}, re:run(event(All), Line))
         || Line <- ["error one, two$", "warning three$", "error four$"]],
        ok = gen_tcp:close(All)
    after
        ok = log_tail:stop()
    end.

%%% Clients

connect(Port, Opts) ->
    {ok, S} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false} | Opts], ?WAIT),
    S.

page(Port, Path, Part) ->
    S = connect(Port, []),
    ok = gen_tcp:send(S, ["GET ", Path, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"]),
    Text = to_end(S, []),
    {Text, re:run(Text, Part)}.

to_end(S, Got) ->
    case gen_tcp:recv(S, 0, ?WAIT) of
        {ok, Data} -> to_end(S, [Got, Data]);
        {error, closed} -> iolist_to_binary(Got)
    end.

upgrade(Port, Path) ->
    upgrade_on(connect(Port, []), Path).

upgrade_on(S, Path) ->
    ok = gen_tcp:send(S, ["GET ", Path, " HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                          "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                          "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"]),
    head(S, <<>>).

web_socket(Port, Path) -> web_socket(Port, Path, []).

web_socket(Port, Path, Opts) ->
    S = connect(Port, Opts),
    ?assertMatch(<<"HTTP/1.1 101 ", _/binary>>, upgrade_on(S, Path)),
    S.

stream(Port, Path) ->
    S = connect(Port, []),
    ok = gen_tcp:send(S, ["GET ", Path, " HTTP/1.1\r\nHost: x\r\n\r\n"]),
    ?assertMatch(<<"HTTP/1.1 200 ", _/binary>>, head(S, <<>>)),
    S.

%% Up to the empty line and not a byte more.
head(S, Got) ->
    {ok, Byte} = gen_tcp:recv(S, 1, ?WAIT),
    case <<Got/binary, Byte/binary>> of
        All when binary_part(All, byte_size(All), -4) =:= <<"\r\n\r\n">> -> All;
        All -> head(S, All)
    end.

masked(Opcode, Data) ->
    Size = case byte_size(Data) of
               N when N < 126 -> <<1:1, N:7>>;
               N when N < 65536 -> <<1:1, 126:7, N:16>>;
               N -> <<1:1, 127:7, N:64>>
           end,
    %% a mask of zeros changes nothing
    [<<8:4, Opcode:4>>, Size, <<0:32>>, Data].

frame(S) ->
    {ok, <<8:4, Opcode:4, 0:1, Short:7>>} = gen_tcp:recv(S, 2, ?WAIT),
    Size = case Short of
               126 -> {ok, <<N:16>>} = gen_tcp:recv(S, 2, ?WAIT), N;
               127 -> {ok, <<N:64>>} = gen_tcp:recv(S, 8, ?WAIT), N;
               N -> N
           end,
    {ok, Data} = recv(S, Size),
    {Opcode, Data}.

recv(_, 0) -> {ok, <<>>};
recv(S, Size) -> gen_tcp:recv(S, Size, ?WAIT).

text(S) ->
    {1, Text} = frame(S),
    Text.

%% The data of the next event, one line; comments are not for us.
event(S) ->
    case line(S, <<>>) of
        <<"data: ", Data/binary>> -> <<>> = line(S, <<>>), Data;
        _ -> event(S)
    end.

line(S, Got) ->
    case gen_tcp:recv(S, 1, ?WAIT) of
        {ok, <<"\n">>} -> Got;
        {ok, Byte} -> line(S, <<Got/binary, Byte/binary>>)
    end.
