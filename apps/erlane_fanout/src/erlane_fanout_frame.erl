%% SPDX-License-Identifier: Apache-2.0
%% @doc What a message is on the wire of a socket that the lanes write to: pure functions.
%%
%% A framing is a protocol, or a protocol and a function that makes iodata of a message first. The
%% function runs once for each message and framing, however many sockets there are: subscribe with
%% an external function (`fun json:encode/1'), or with one that is the same for all.
-module(erlane_fanout_frame).

-export([check/1, frame/2]).

-export_type([framing/0, protocol/0]).

-type framing() :: protocol() | {protocol(), Encode :: fun((Message :: term()) -> iodata())}.
%% Without a function a message is iodata.

-type protocol() :: raw               % as it is
                  | ws_text           % a WebSocket message of a server (RFC 6455): UTF-8, unchecked
                  | ws_binary
                  | sse.              % a server-sent event: the message is its data

%% @doc Is this a framing?
-spec check(term()) -> boolean().
check({Protocol, Encode}) -> is_function(Encode, 1) andalso protocol(Protocol);
check(Protocol) -> protocol(Protocol).

protocol(P) -> lists:member(P, [raw, ws_text, ws_binary, sse]).

%% @doc A message as it is written. Raises badarg for a message that is no iodata, and what the
%% function raises.
-spec frame(framing(), term()) -> iodata().
frame({Protocol, Encode}, Message) -> frame(Protocol, Encode(Message));
frame(raw, Data) -> _ = iolist_size(Data), Data;
frame(ws_text, Data) -> [ws(1, iolist_size(Data)), Data];
frame(ws_binary, Data) -> [ws(2, iolist_size(Data)), Data];
frame(sse, Data) ->
    Lines = binary:split(iolist_to_binary(Data), [<<"\r\n">>, <<"\n">>, <<"\r">>], [global]),
    [[[<<"data: ">>, Line, $\n] || Line <- Lines], $\n].

%% One whole message, unmasked: the first four bits are FIN and no extension.
ws(Opcode, Size) when Size < 126 -> <<8:4, Opcode:4, Size>>;
ws(Opcode, Size) when Size < 65536 -> <<8:4, Opcode:4, 126, Size:16>>;
ws(Opcode, Size) -> <<8:4, Opcode:4, 127, Size:64>>.
