%% SPDX-License-Identifier: Apache-2.0
%% The upstream of the real_ suites, over stock gen_tcp, in this VM or in another.
-module(real_upstream).

-export([start/1, heard/0, block/0, send_blocks/2, receive_all/1]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 20000).
-define(BLOCK, 65536).

%% Listens in this VM or, called through peer, in another. What it does with a connection is
%% the connection's first byte: e echo, u take it all and answer with its MD5 and size,
%% d send blocks, s send without end and never read, h end its half first.
start(Opts) ->
    Self = self(),
    Pid = spawn(fun() ->
                        {ok, Listen} = gen_tcp:listen(maps:get(port, Opts, 0),
                                                      [binary, {active, false}, {ip, ?LOOPBACK},
                                                       {backlog, 4096}, {reuseaddr, true},
                                                       {exit_on_close, false}]),
                        Self ! {self(), inet:port(Listen)},
                        accept(Listen, Opts)
                end),
    receive {Pid, {ok, Port}} -> Port after ?WAIT_MS -> exit(no_upstream) end.

%% What the last connection of kind h read after its own end.
heard() ->
    persistent_term:get(?MODULE).

%% Size of a block.
block() ->
    ?BLOCK.

accept(Listen, Opts) ->
    {ok, Socket} = gen_tcp:accept(Listen),
    Pid = spawn(fun() -> receive go -> serve(Socket, Opts) end end),
    _ = gen_tcp:controlling_process(Socket, Pid),
    Pid ! go,
    accept(Listen, Opts).

serve(Socket, Opts) ->
    case gen_tcp:recv(Socket, 1) of
        {ok, <<"e">>} -> echo(Socket);
        {ok, <<"u">>} ->
            {Bytes, Md5} = receive_all(Socket),
            ok = gen_tcp:send(Socket, <<Md5/binary, Bytes:64>>);
        {ok, <<"d">>} ->
            {ok, <<Blocks:64>>} = gen_tcp:recv(Socket, 8),
            send_blocks(Socket, Blocks);
        {ok, <<"s">>} ->
            stream(Socket, maps:get(sent, Opts, counters:new(1, [])));
        {ok, <<"h">>} ->
            ok = gen_tcp:send(Socket, "bye"),
            ok = gen_tcp:shutdown(Socket, write),
            {ok, Heard} = gen_tcp:recv(Socket, byte_size(<<"still heard">>)),
            persistent_term:put(?MODULE, Heard);
        {error, _} ->
            ok
    end,
    gen_tcp:close(Socket).

echo(Socket) ->
    case gen_tcp:recv(Socket, 0) of
        {ok, Data} ->
            _ = gen_tcp:send(Socket, Data),
            echo(Socket);
        {error, _} ->
            ok
    end.

stream(Socket, Sent) ->
    case gen_tcp:send(Socket, <<0:?BLOCK/unit:8>>) of
        ok -> counters:add(Sent, 1, ?BLOCK), stream(Socket, Sent);
        {error, _} -> ok
    end.

%% Blocks that all differ, so that neither a lost nor a swapped one can go unseen.
send_blocks(Socket, N) ->
    Rest = << <<(I * 31):8>> || I <- lists:seq(1, ?BLOCK - 8) >>,
    send_blocks(Socket, N, Rest, erlang:md5_init()).

send_blocks(_Socket, 0, _Rest, Md5) ->
    erlang:md5_final(Md5);
send_blocks(Socket, N, Rest, Md5) ->
    Block = [<<N:64>>, Rest],
    ok = gen_tcp:send(Socket, Block),
    send_blocks(Socket, N - 1, Rest, erlang:md5_update(Md5, Block)).

%% Bytes until the end, and their MD5.
receive_all(Socket) ->
    receive_all(Socket, 0, erlang:md5_init()).

receive_all(Socket, Bytes, Md5) ->
    case gen_tcp:recv(Socket, 0, ?WAIT_MS) of
        {ok, Data} ->
            receive_all(Socket, Bytes + byte_size(Data), erlang:md5_update(Md5, Data));
        {error, closed} ->
            {Bytes, erlang:md5_final(Md5)}
    end.
