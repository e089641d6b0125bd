%% SPDX-License-Identifier: Apache-2.0
%% @doc Fault injection: system calls that are short, find nothing, are interrupted or find no
%% descriptor (c_src/erlane_faults.h). Nothing may be lost, nothing may hang. Each case runs in
%% a VM of its own over a NIF built for it.
-module(erlane_fault_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([
    stream_passive/1, stream_length/1, stream_active/1, packets_passive/1, packets_active/1,
    http/1, send_and_close/1, watermarks/1, half_close/1, sendfile/1, relay/1, accept/1,
    migrate/1
]).
-export([faulty/2]).

-import(erlane_ct, [async/1, await/2, pattern/1]).

-define(ERLANE, [{backend, erlane}]).
-define(DEADLINE, 60000).

suite() -> [{timetrap, {minutes, 5}}].

all() ->
    [
        stream_passive, stream_length, stream_active, packets_passive, packets_active,
        http, send_and_close, watermarks, half_close, sendfile, relay, accept, migrate
    ].

%% A loaded NIF cannot be exchanged, so only VMs started from here on get this one.
init_per_suite(Config) ->
    Source = proplists:get_value(source, ?MODULE:module_info(compile)),
    Dir = filename:join(filename:dirname(filename:dirname(Source)), "c_src"),
    File = filename:join(?config(priv_dir, Config), "erlane_nif.so"),
    Make = ["env -u LD_PRELOAD make -s -C '", Dir, "' FAULTS=1 OUT='", File, "' 2>&1"],
    Output = os:cmd(unicode:characters_to_list(Make)),
    filelib:is_regular(File) orelse ct:fail("no NIF was built: ~ts", [Output]),
    true = os:putenv("ERLANE_NIF", File),
    Config.

end_per_suite(_Config) ->
    os:unsetenv("ERLANE_NIF").

end_per_testcase(_Case, _Config) -> erlane_ct:cleanup().

%% recv(S, 0)
stream_passive(_Config) -> run(fun(Every) -> stream(Every, fun take_any/2) end).

%% recv(S, Length), around the size of the lane's buffer and above
stream_length(_Config) ->
    run(fun(Every) ->
        _ = [stream(Every, fun(S, Left) -> take_length(S, min(Len, Left)) end)
             || Len <- lengths(Every)]
    end).

lengths(1) -> [1, 2000];
lengths(_) -> [999, 65535, 65536, 65537, 300000].

%% active once, N and true
stream_active(_Config) ->
    run(fun(Every) ->
        _ = [stream(Every, fun(S, Left) -> take_active(S, Mode, Left) end)
             || Mode <- [once, 3, true]]
    end).

%% Packets keep their limits, read one by one.
packets_passive(_Config) ->
    run(fun(Every) -> [packets(Every, Type, false) || Type <- [1, 2, 4, line]] end).

packets_active(_Config) ->
    run(fun(Every) ->
        [packets(Every, Type, Mode) || Type <- [1, 2, 4, line], Mode <- [once, 3, true]]
    end).

%% Packets that Erlang decodes.
http(_Config) ->
    run(fun(Every) -> [requests(Every, Active) || Active <- [false, once]] end).

%% close/1 waits for what is queued.
send_and_close(_Config) ->
    run(fun(Every) ->
        {C, S} = pair(Every, []),
        Data = pattern(volume(Every)),
        Reader = async(fun() -> all_of(S) end),
        ok = gen_tcp:send(C, Data),
        ok = gen_tcp:close(C),
        ?assert(Data =:= await(Reader, ?DEADLINE)),
        ok = gen_tcp:close(S)
    end).

%% Senders that wait for the low watermark go on.
watermarks(_Config) ->
    run(fun(Every) ->
        {C, S} = pair(Every, [{high_watermark, 5000}, {low_watermark, 100}, {sndbuf, 4096}]),
        Data = pattern(volume(Every)),
        Reader = async(fun() -> all_of(S) end),
        ok = send_in_pieces(C, Data, 3001),
        ok = gen_tcp:close(C),
        ?assert(Data =:= await(Reader, ?DEADLINE)),
        ok = gen_tcp:close(S)
    end).

%% The end of one direction does not end the other.
half_close(_Config) ->
    run(fun(Every) ->
        {C, S} = pair(Every, [{exit_on_close, false}]),
        Data = pattern(volume(Every)),
        Server = async(fun() -> All = all_of(S), ok = gen_tcp:send(S, All), gen_tcp:close(S) end),
        ok = gen_tcp:send(C, Data),
        ok = gen_tcp:shutdown(C, write),
        ?assert(Data =:= all_of(C)),
        ok = await(Server, ?DEADLINE),
        ok = gen_tcp:close(C)
    end).

%% A file between two sends.
sendfile(_Config) ->
    run(fun(Every) ->
        {C, S} = pair(Every, []),
        Data = pattern(volume(Every)),
        Name = filename:join("/tmp", "erlane_fault." ++ os:getpid()),
        ok = file:write_file(Name, Data),
        Reader = async(fun() -> all_of(S) end),
        ok = gen_tcp:send(C, <<"before">>),
        {ok, Sent} = file:sendfile(Name, C),
        ok = gen_tcp:send(C, <<"after">>),
        ok = file:delete(Name),
        ?assertEqual(byte_size(Data), Sent),
        ok = gen_tcp:close(C),
        ?assert(<<"before", Data/binary, "after">> =:= await(Reader, ?DEADLINE)),
        ok = gen_tcp:close(S)
    end).

%% Both ways through a relay at once; the counts in its result are right.
relay(_Config) ->
    run(fun(Every) ->
        {C, A} = pair(Every, [{exit_on_close, false}]),
        {S, B} = pair(Every, [{exit_on_close, false}]),
        Up = pattern(volume(Every)),
        Down = binary:copy(<<"down">>, volume(Every) div 5),
        Ends = [async(fun() -> exchange(C, Up) end), async(fun() -> exchange(S, Down) end)],
        {ok, R} = erlane_socket:relay(A, B, #{to_b => <<"read before">>}),
        Result = receive {erlane_relay, R, Map} -> Map after ?DEADLINE -> hangs end,
        [GotDown, GotUp] = [await(End, ?DEADLINE) || End <- Ends],
        ?assert(<<"read before", Up/binary>> =:= GotUp),
        ?assert(Down =:= GotDown),
        ?assertEqual({normal, byte_size(GotUp), byte_size(Down)},
                     {maps:get(reason, Result), maps:get(to_b, Result), maps:get(to_a, Result)})
    end).

exchange(S, Data) ->
    Writer = async(fun() -> ok = gen_tcp:send(S, Data), gen_tcp:shutdown(S, write) end),
    Got = all_of(S),
    ok = await(Writer, ?DEADLINE),
    ok = gen_tcp:close(S),
    Got.

%% Every connection is accepted, whatever accept(2) said in between.
accept(_Config) ->
    run(fun(Every) ->
        Count = case Every of 1 -> 0; 2 -> 20; _ -> 100 end,
        {L, Port} = erlane_ct:listen(?ERLANE, [binary, {active, false}, {backlog, 200}]),
        Acceptors = [spawn_link(fun() -> accept_loop(L) end) || _ <- [1, 2, 3]],
        Clients = [async(fun() -> ask(Port, <<N:32>>) end) || N <- lists:seq(1, Count)],
        _ = [ok = await(Client, ?DEADLINE) || Client <- Clients],
        _ = [erlane_ct:kill(Pid) || Pid <- Acceptors],
        ok = gen_tcp:close(L)
    end).

accept_loop(L) ->
    case gen_tcp:accept(L) of
        {ok, S} ->
            {ok, Data} = gen_tcp:recv(S, 4, ?DEADLINE),
            ok = gen_tcp:send(S, Data),
            ok = gen_tcp:close(S);
        {error, Why} when Why =:= econnaborted; Why =:= emfile ->
            ok
    end,
    accept_loop(L).

ask(Port, Data) ->
    C = erlane_ct:connect(?ERLANE, Port, [binary, {active, false}]),
    ok = gen_tcp:send(C, Data),
    {ok, Data} = gen_tcp:recv(C, 4, ?DEADLINE),
    gen_tcp:close(C).

%% A socket that follows its owner from lane to lane meanwhile.
migrate(_Config) ->
    run(fun(Every) ->
        {C, S} = pair(Every, []),
        Data = pattern(volume(Every)),
        Writer = async(fun() -> ok = gen_tcp:send(C, Data), gen_tcp:close(C) end),
        ?assert(Data =:= wander(S, byte_size(Data), 1, [])),
        ok = await(Writer, ?DEADLINE)
    end).

%% Each leg of the way is a new owner on the other scheduler.
wander(_S, 0, _Lane, Acc) ->
    iolist_to_binary(Acc);
wander(S, Left, Lane, Acc) ->
    Parent = self(),
    Leg = fun() ->
        receive go -> ok end,
        Got = [take_active(S, once, Left) || _ <- lists:seq(1, min(20, max(1, Left div 70000)))],
        ok = gen_tcp:controlling_process(S, Parent),
        Parent ! {self(), Got}
    end,
    Pid = spawn_opt(Leg, [link, {scheduler, Lane}]),
    ok = gen_tcp:controlling_process(S, Pid),
    Pid ! go,
    Got = receive {Pid, Data} -> Data after ?DEADLINE -> error(hangs) end,
    wander(S, Left - iolist_size(Got), 3 - Lane, [Acc | Got]).

%% What the cases are made of

%% Runs `Test' in a VM with faults, for several rates of them.
run(Test) ->
    try
        ok = erlane_ct:in_peer(?MODULE, faulty, [Test, [0, 1, 2, 3, 7, 50]])
    catch
        %% The NIF was built, so there is no reason to skip.
        throw:{skip, Why} -> error(Why)
    end.

faulty(Test, Rates) ->
    _ = [with_faults(Test, Every) || Every <- Rates],
    ok.

with_faults(Test, Every) ->
    ok = erlane_nif:faults(Every),
    _ = Test(Every),
    ok = erlane_nif:faults(0).

%% Who asks for a pair wants one: faults of accept(2) have a case of their own.
pair(Every, Opts) ->
    ok = erlane_nif:faults(0),
    Pair = erlane_ct:pair(?ERLANE, Opts),
    ok = erlane_nif:faults(Every),
    Pair.

%% With a fault in each call three bytes in three calls get through.
volume(1) -> 12000;
volume(_) ->
    case os:getenv("ERLANE_LONG") of
        "1" -> 64 bsl 20;
        _ -> 3 bsl 20
    end.

%% A stream there and back; Take(Socket, BytesLeft) reads some of it.
stream(Every, Take) ->
    {C, S} = pair(Every, []),
    Data = pattern(volume(Every)),
    Size = byte_size(Data),
    Echo = async(fun() -> echo(S, Size, Take) end),
    ok = gen_tcp:controlling_process(S, Echo),
    Writer = async(fun() -> send_in_pieces(C, Data, 100001) end),
    ?assert(Data =:= take_all(C, Size, Take, [])),
    ok = await(Writer, ?DEADLINE),
    ok = await(Echo, ?DEADLINE),
    ok = gen_tcp:close(C).

echo(S, 0, _Take) ->
    gen_tcp:close(S);
echo(S, Left, Take) ->
    Data = Take(S, Left),
    ok = gen_tcp:send(S, Data),
    echo(S, Left - byte_size(Data), Take).

take_all(_S, 0, _Take, Acc) ->
    iolist_to_binary(lists:reverse(Acc));
take_all(S, Left, Take, Acc) when Left > 0 ->
    Data = Take(S, Left),
    take_all(S, Left - byte_size(Data), Take, [Data | Acc]).

take_any(S, _Left) ->
    take_length(S, 0).

take_length(S, Length) ->
    {ok, Data} = gen_tcp:recv(S, Length, ?DEADLINE),
    Data.

take_active(S, Mode, _Left) ->
    %% `true' and N once they are set go on by themselves.
    case {inet:getopts(S, [active]), Mode} of
        {{ok, [{active, false}]}, _} -> ok = inet:setopts(S, [{active, Mode}]);
        _ -> ok
    end,
    next_data(S).

next_data(S) ->
    receive
        {tcp, S, Data} -> Data;
        %% the end may have come already, with the last data behind this message
        {tcp_passive, S} -> _ = inet:setopts(S, [{active, 3}]), next_data(S);
        {Other, S} -> error({unexpected, Other})
    after ?DEADLINE -> error({hangs, inet:info(S)})
    end.

%% Everything up to the end of the stream.
all_of(S) -> all_of(S, []).

all_of(S, Acc) ->
    case gen_tcp:recv(S, 0, ?DEADLINE) of
        {ok, Data} -> all_of(S, [Data | Acc]);
        {error, closed} -> iolist_to_binary(lists:reverse(Acc))
    end.

send_in_pieces(C, Data, Size) when byte_size(Data) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Data,
    Third = Size div 3,
    <<A:Third/binary, B/binary>> = Piece,
    ok = gen_tcp:send(C, [A, [B]]),
    send_in_pieces(C, Rest, Size);
send_in_pieces(C, Data, _Size) ->
    gen_tcp:send(C, Data).

packets(Every, Type, Active) ->
    {C, S} = pair(Every, [{packet, Type}, {buffer, 70000}]),
    Packets = [packet(Type, Len) || Len <- packet_sizes(Every, Type)],
    Writer = async(fun() -> [ok = gen_tcp:send(C, P) || P <- Packets], gen_tcp:close(C) end),
    _ = [?assert(P =:= take_packet(S, Active)) || P <- Packets],
    ok = await(Writer, ?DEADLINE),
    ok = gen_tcp:close(S).

take_packet(S, false) -> take_length(S, 0);
take_packet(S, Active) -> take_active(S, Active, 0).

packet_sizes(1, _) -> [1, 2, 3, 4, 100, 255];
packet_sizes(_, 1) -> lists:seq(1, 255);
packet_sizes(_, line) -> [1, 2, 3, 1000, 65535, 65536, 69000] ++ lists:seq(5, 300, 7);
packet_sizes(_, 2) -> [1, 2, 3, 254, 255, 256, 65534, 65535] ++ lists:seq(5, 300, 7);
packet_sizes(_, 4) -> [300000, 1, 65532, 65533, 2, 70000] ++ lists:seq(5, 300, 7).

packet(line, Len) -> <<(binary:copy(<<"x">>, Len - 1))/binary, $\n>>;
packet(_, Len) -> pattern(Len).

requests(Every, Active) ->
    Count = case Every of 1 -> 3; _ -> 50 end,
    {C, S} = pair(Every, []),
    ok = inet:setopts(S, [{packet, http_bin}]),
    Writer = async(fun() ->
        _ = [ok = gen_tcp:send(C, [<<"GET /">>, integer_to_binary(N), <<" HTTP/1.1\r\nHost: a\r\n"
                                                                        "X: y\r\n\r\n">>])
             || N <- lists:seq(1, Count)],
        ok
    end),
    _ = [begin
             Path = <<"/", (integer_to_binary(N))/binary>>,
             ?assertMatch({http_request, 'GET', {abs_path, Path}, {1, 1}}, part(S, Active)),
             ?assertMatch({http_header, _, 'Host', _, <<"a">>}, part(S, Active)),
             ?assertMatch({http_header, _, <<"X">>, _, <<"y">>}, part(S, Active)),
             ?assertEqual(http_eoh, part(S, Active))
         end
     || N <- lists:seq(1, Count)],
    ok = await(Writer, ?DEADLINE),
    ok = gen_tcp:close(C),
    ok = gen_tcp:close(S).

part(S, false) ->
    take_length(S, 0);
part(S, once) ->
    ok = inet:setopts(S, [{active, once}]),
    receive
        {http, S, Part} -> Part
    after ?DEADLINE -> error({hangs, inet:info(S)})
    end.
