%% SPDX-License-Identifier: Apache-2.0
%% @doc The loop of one WebSocket: frames from the client and messages from other processes to
%% the handler, its answers to the client, until one of them closes.
%%
%% The next bytes are read when the handler is done with the last ones and its answers are out:
%% a client that sends without reading stops itself, after `send_timeout' for good.
-module(erlane_http_ws_conn).

-export([run/4]).

-include("erlane_http.hrl").

-record(ws, {conn :: erlane_http_io:conn(),
             module :: module(),
             state :: term(),
             codec :: erlane_http_ws_frame:state(),
             info :: boolean(),
             ping_after :: timeout(),
             idle_timeout :: timeout(),
             close_timeout :: timeout(),
             heard = now_ms() :: integer(),
             pinged = false :: boolean(),
             armed = false :: boolean(),
             %% Answers to the frames of one read go out together.
             out = [] :: iodata(),
             out_size = 0 :: non_neg_integer()}).

-define(DEFAULTS, #{max_frame => 1048576, max_message => 4194304, ping_after => 30000,
                    idle_timeout => 60000, close_timeout => 5000}).
-define(MAX_OUT, 65536).
-define(MAX_DISCARD, 1048576).

%% @doc Answers a request to upgrade and runs the WebSocket to its end. `refuse': nothing was
%% sent, this is the answer. `crashed': the handler did in init/2, and nothing was sent either.
%% `closed': both are done with the connection. A later crash is raised after a close with 1011.
-spec run(erlane_http_io:conn(), erlane_http:req(), module(), term()) ->
          {refuse, erlane_http:status(), erlane_http:headers(), iodata()}
        | {crashed, error | exit | throw, Reason :: term(), Stack :: list()}
        | {closed, erlane_http_ws:reason()}.
run(Conn, Req, Module, Args) ->
    case erlane_http_ws:handshake(Req) of
        {ok, Key} ->
            try init(Module, Req, Args) of
                {State, Opts} -> open(Conn, Key, Module, State, Opts);
                Refuse -> Refuse
            catch
                Class:Reason:Stack -> {crashed, Class, Reason, Stack}
            end;
        Refuse ->
            Refuse
    end.

init(Module, Req, Args) ->
    case Module:init(Req, Args) of
        {ok, State} -> {State, #{}};
        {ok, State, #{protocol := Protocol} = Opts} ->
            lists:member(Protocol, erlane_http_ws:protocols(Req)) orelse
                error({protocol_not_offered, Protocol}),
            {State, Opts};
        {ok, State, Opts} -> {State, Opts};
        {refuse, _, _, _} = Refuse -> Refuse
    end.

open(Conn, Key, Module, State, Given) ->
    Protocol = maps:get(protocol, Given, undefined),
    Opts = maps:merge(?DEFAULTS, Given),
    #{ping_after := PingAfter, idle_timeout := Idle, close_timeout := Close} = Opts,
    Ws = #ws{conn = Conn, module = Module, state = State,
             codec = erlane_http_ws_frame:new(server, Opts),
             info = erlang:function_exported(Module, info, 2),
             ping_after = PingAfter, idle_timeout = Idle, close_timeout = Close},
    case erlane_http_io:send(Conn, erlane_http_ws:accepted(Key, Protocol)) of
        ok -> opened(Ws);
        {error, _} -> ended(closed, Ws)
    end.

opened(#ws{module = Module, conn = Conn} = Ws) ->
    case erlang:function_exported(Module, opened, 2) of
        true -> result(call(opened, erlane_http_io:shared(Conn), Ws), [], Ws);
        false -> loop(Ws)
    end.

loop(#ws{armed = false, conn = Conn} = Ws) ->
    case erlane_http_io:set_active(Conn, once) of
        %% Silence counts from here: before we were busy and did not listen.
        {ok, Conn2} -> loop(Ws#ws{armed = true, conn = Conn2, heard = now_ms()});
        {error, _} -> ended(closed, Ws)
    end;
loop(#ws{conn = #conn{parent = Parent} = Conn} = Ws) ->
    Socket = erlane_http_io:socket(Conn),
    {Data, Closed, Error} = erlane_http_io:messages(Conn),
    receive
        {Data, Socket, Bytes} -> read(Bytes, Ws#ws{armed = false, pinged = false});
        {Closed, Socket} -> ended(closed, Ws);
        {Error, Socket, _} -> ended(closed, Ws);
        %% The listener stops.
        {erlane_http, drain} -> close({close, 1001, <<>>}, Ws);
        %% It has crashed, and the handler traps exits.
        {'EXIT', Parent, _} -> last({close, 1001, <<>>}, {local, 1001, <<>>}, Ws);
        Message when Ws#ws.info -> result(call(info, Message, Ws), [], Ws);
        _ -> loop(Ws)
    after wait(Ws) ->
        silent(Ws)
    end.

%% An atom is above every number, so infinity is the last to come.
wait(Ws) ->
    case min(ping_due(Ws), idle_due(Ws)) of
        infinity -> infinity;
        Due -> max(0, Due - now_ms())
    end.

ping_due(#ws{pinged = true}) -> infinity;
ping_due(#ws{ping_after = infinity}) -> infinity;
ping_due(#ws{ping_after = Ms, heard = Heard}) -> Heard + Ms.

idle_due(#ws{idle_timeout = infinity}) -> infinity;
idle_due(#ws{idle_timeout = Ms, heard = Heard}) -> Heard + Ms.

silent(Ws) ->
    Now = now_ms(),
    case {idle_due(Ws) =< Now, ping_due(Ws) =< Now} of
        {true, _} ->
            last({close, 1001, <<"idle">>}, idle, Ws);
        {false, true} -> events([], queue({ping, <<>>}, Ws#ws{pinged = true}));
        {false, false} -> loop(Ws)
    end.

read(Bytes, #ws{codec = Codec, conn = #conn{srv = #srv{metrics = Metrics}}} = Ws) ->
    ok = erlane_http_metrics:received(Metrics, byte_size(Bytes)),
    {Events, Codec2} = erlane_http_ws_frame:feed(Bytes, Codec),
    events(Events, Ws#ws{codec = Codec2}).

events(Events, #ws{out_size = Size} = Ws) when Size > ?MAX_OUT; Events =:= [], Size > 0 ->
    case flush(Ws) of
        {ok, Ws2} -> events(Events, Ws2);
        error -> ended(closed, Ws)
    end;
events([], Ws) -> loop(Ws);
events([{ping, Data} | Rest], Ws) -> events(Rest, queue({pong, Data}, Ws));
events([{pong, _} | Rest], Ws) -> events(Rest, Ws);
events([{close, undefined, Reason}], Ws) ->
    answer(close, {remote, undefined, Reason}, Ws);
events([{close, Code, Reason}], Ws) ->
    answer({close, Code, <<>>}, {remote, Code, Reason}, Ws);
events([{error, Code, _} = Error], Ws) ->
    _ = flush(queue({close, Code, <<>>}, Ws)),
    discard(Ws),
    ended(Error, Ws);
events([Message | Rest], Ws) -> result(call(frame, Message, Ws), Rest, Ws).

result({ok, State}, Rest, Ws) ->
    events(Rest, Ws#ws{state = State});
result({send, Frames, State}, Rest, Ws) when is_list(Frames) ->
    frames(Frames, Rest, Ws#ws{state = State});
result({send, Frame, State}, Rest, Ws) ->
    frames([Frame], Rest, Ws#ws{state = State});
result({close, Code, Reason, State}, _Rest, Ws) ->
    close({close, Code, Reason}, Ws#ws{state = State}).

frames([close | _], _Rest, Ws) -> close(close, Ws);
frames([{close, _, _} = Close | _], _Rest, Ws) -> close(Close, Ws);
frames([Frame | Frames], Rest, Ws) -> frames(Frames, Rest, queue(Frame, Ws));
frames([], Rest, Ws) -> events(Rest, Ws).

call(Callback, Argument, #ws{module = Module, state = State} = Ws) ->
    try
        Module:Callback(Argument, State)
    catch
        Class:Reason:Stack ->
            _ = flush(queue({close, 1011, <<>>}, Ws)),
            discard(Ws),
            erlang:raise(Class, Reason, Stack)
    end.

%% Who else writes to the socket stops before a close: nothing may follow it.
queue(Frame, #ws{module = Module, state = State, out = Out, out_size = Size} = Ws) ->
    _ = (Frame =:= close orelse element(1, Frame) =:= close) andalso
        erlang:function_exported(Module, closing, 1) andalso Module:closing(State),
    Bytes = erlane_http_ws_frame:print(Frame, none),
    Ws#ws{out = [Out, Bytes], out_size = Size + iolist_size(Bytes)}.

flush(#ws{conn = #conn{srv = Srv} = Conn, out = Out, out_size = Size} = Ws) ->
    case erlane_http_io:send(Conn, Out) of
        ok ->
            ok = erlane_http_metrics:sent(Srv#srv.metrics, Size),
            {ok, Ws#ws{out = [], out_size = 0}};
        {error, _} -> error
    end.

%%% The end

%% The other side says nothing any more, or need not be heard.
last(Frame, Reason, Ws) ->
    _ = flush(queue(Frame, Ws)),
    ended(Reason, Ws).

%% It has said its close, and we end the connection. Some send on behind it.
answer(Frame, Reason, Ws) ->
    _ = flush(queue(Frame, Ws)),
    discard(Ws),
    ended(Reason, Ws).

%% We said it first: what comes until the answer is read, but is no longer for the handler.
close(Frame, #ws{close_timeout = Ms} = Ws) ->
    Reason = case Frame of
                 close -> {local, undefined, <<>>};
                 {close, Code, Text} -> {local, Code, iolist_to_binary(Text)}
             end,
    case flush(queue(Frame, Ws)) of
        {ok, Ws2} ->
            await(passive(Ws2), Ws2#ws.codec, now_ms() + Ms, ?MAX_DISCARD),
            ended(Reason, Ws2);
        error ->
            ended(Reason, Ws)
    end.

%% Who goes on sending does not get more time, and costs no more than so many bytes.
await({ok, Bytes, Conn}, Codec, Until, Left0) ->
    {Events, Codec2} = erlane_http_ws_frame:feed(Bytes, Codec),
    Left = Left0 - byte_size(Bytes),
    case [End || End <- Events, tuple_size(End) =:= 3] of
        [] when Left > 0 -> await(receive_until(Conn, Until), Codec2, Until, Left);
        _ -> ok
    end;
await({error, _}, _Codec, _Until, _Left) ->
    ok.

%% What the client still sends, against the protocol, is not looked at; but it is read, so that a
%% reset does not eat our close.
discard(#ws{close_timeout = Ms} = Ws) ->
    case passive(Ws) of
        {ok, _, Conn} -> erlane_http_io:linger(Conn, Ms, ?MAX_DISCARD);
        {error, _} -> ok
    end.

%% What a message has brought already comes first.
passive(#ws{conn = Conn}) ->
    case erlane_http_io:set_active(Conn, false) of
        {ok, Conn2} ->
            Socket = erlane_http_io:socket(Conn),
            {Data, _, _} = erlane_http_io:messages(Conn),
            receive {Data, Socket, Bytes} -> {ok, Bytes, Conn2} after 0 -> {ok, <<>>, Conn2} end;
        {error, _} = Error ->
            Error
    end.

receive_until(Conn, Until) ->
    case Until - now_ms() of
        Ms when Ms > 0 -> erlane_http_io:recv(Conn, Ms);
        _ -> {error, timeout}
    end.

ended(Reason, #ws{module = Module, state = State}) ->
    _ = erlang:function_exported(Module, terminate, 2) andalso Module:terminate(Reason, State),
    {closed, Reason}.

now_ms() ->
    erlang:monotonic_time(millisecond).
