%% SPDX-License-Identifier: Apache-2.0
%% @doc The frames of WebSocket (RFC 6455, section 5) as pure functions: bytes to messages and
%% frames to bytes. No process and no socket.
%%
%% A payload is unmasked, joined and checked as it arrives, not when its frame is whole: a text
%% that is no UTF-8 is refused with its first bad byte, and what is kept of a message is one
%% binary, however small its fragments.
-module(erlane_http_ws_frame).

-export([new/2, feed/2, print/2, accept_key/1]).

-export_type([state/0, event/0, frame/0, limits/0, code/0]).

-type code() :: 1000..4999.
-type frame() :: {text | binary | ping | pong, iodata()} | close | {close, code(), iodata()}.
%% `close' has no code and no reason.

-type event() :: {text | binary | ping | pong, binary()}
               | {close, code() | undefined, Reason :: binary()}
               | {error, code(), Why :: atom()}.
%% A close or an error is the last event of a stream; what comes behind it is not read.

-type limits() :: #{max_frame := pos_integer(), max_message := pos_integer(), _ => _}.

-record(frame, {opcode :: 0..15,
                fin :: 0 | 1,
                left :: non_neg_integer(),
                %% For the next byte: turned as the payload comes in pieces.
                key :: binary() | none,
                %% The payload of a control frame; that of data goes to the message.
                control = <<>> :: binary()}).

-record(ws, {masked :: 0 | 1,
             max_frame :: pos_integer(),
             max_message :: pos_integer(),
             now = <<>> :: binary() | #frame{} | ended,
             type = none :: none | text | binary,
             data = <<>> :: binary(),
             utf8 = erlane_http_utf8:new() :: erlane_http_utf8:state()}).
%% now: bytes of a frame's head that is not whole, a frame with payload to come, or `ended'.
%% type, data, utf8: the message that has begun; its fragments may have control frames between.

-opaque state() :: #ws{}.

-define(GUID, "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").

-define(CONTINUATION, 0).
-define(TEXT, 1).
-define(BINARY, 2).
-define(CLOSE, 8).
-define(PING, 9).
-define(PONG, 10).

-define(MAX_CONTROL, 125).

%% @doc The state before the first byte. Role is our own: a server takes only masked frames, a
%% client only bare ones. Limits are in bytes of payload, beyond them is error 1009.
-spec new(server | client, limits()) -> state().
new(Role, #{max_frame := MaxFrame, max_message := MaxMessage}) ->
    #ws{masked = case Role of server -> 1; client -> 0 end,
        max_frame = MaxFrame,
        max_message = MaxMessage}.

%% @doc Takes the next bytes of the stream, cut anywhere.
-spec feed(binary(), state()) -> {[event()], state()}.
feed(Bytes, #ws{now = Head} = Ws) when is_binary(Head) ->
    head(<<Head/binary, Bytes/binary>>, Ws, []);
feed(Bytes, #ws{now = #frame{} = Frame} = Ws) ->
    payload(Bytes, Frame, Ws, []);
feed(_Bytes, #ws{now = ended} = Ws) ->
    {[], Ws}.

head(<<Fin:1, Rsv:3, Opcode:4, Masked:1, Len:7, Rest/binary>> = Head, Ws, Events) ->
    case fault(Fin, Rsv, Opcode, Masked, Len, Ws) of
        none ->
            case size(Len, Rest) of
                {ok, Size, Rest2} -> limit(Size, Rest2, Head, {Opcode, Fin}, Ws, Events);
                more -> more(Head, Ws, Events);
                {error, Why} -> ended({error, 1002, Why}, Ws, Events)
            end;
        Why ->
            ended({error, 1002, Why}, Ws, Events)
    end;
head(Head, Ws, Events) ->
    more(Head, Ws, Events).

%% Copied, so that a few bytes do not keep alive all that was read with them.
more(Head, Ws, Events) ->
    {lists:reverse(Events), Ws#ws{now = binary:copy(Head)}}.

ended(Last, Ws, Events) ->
    {lists:reverse(Events, [Last]), Ws#ws{now = ended, type = none, data = <<>>}}.

fault(_, Rsv, _, _, _, _) when Rsv =/= 0 -> reserved_bits;
fault(_, _, Opcode, _, _, _) when Opcode > ?PONG; Opcode > ?BINARY, Opcode < ?CLOSE ->
    reserved_opcode;
fault(_, _, _, Masked, _, #ws{masked = Expected}) when Masked =/= Expected -> masking;
fault(0, _, Opcode, _, _, _) when Opcode >= ?CLOSE -> fragmented_control;
fault(_, _, Opcode, _, Len, _) when Opcode >= ?CLOSE, Len > ?MAX_CONTROL -> long_control;
fault(_, _, ?CONTINUATION, _, _, #ws{type = none}) -> nothing_to_continue;
fault(_, _, Opcode, _, _, #ws{type = Type})
  when Type =/= none, Opcode =/= ?CONTINUATION, Opcode < ?CLOSE -> unfinished_message;
fault(_, _, _, _, _, _) -> none.

%% The shortest of the three forms must be used.
size(126, <<Size:16, Rest/binary>>) when Size > 125 -> {ok, Size, Rest};
size(126, <<_:16, _/binary>>) -> {error, length_form};
size(127, <<0:1, Size:63, Rest/binary>>) when Size > 16#FFFF -> {ok, Size, Rest};
size(127, <<_:64, _/binary>>) -> {error, length_form};
size(Len, Rest) when Len < 126 -> {ok, Len, Rest};
size(_, _) -> more.

%% Refused by what the head says, before any byte of it is kept.
limit(Size, _, _, {Opcode, _}, #ws{max_frame = Max} = Ws, Events)
  when Opcode < ?CLOSE, Size > Max ->
    ended({error, 1009, long_frame}, Ws, Events);
limit(Size, _, _, {Opcode, _}, #ws{data = Data, max_message = Max} = Ws, Events)
  when Opcode < ?CLOSE, Size + byte_size(Data) > Max ->
    ended({error, 1009, long_message}, Ws, Events);
limit(Size, Rest, Head, {Opcode, Fin}, #ws{masked = Masked} = Ws, Events) ->
    case {Masked, Rest} of
        {0, _} ->
            Frame = #frame{opcode = Opcode, fin = Fin, left = Size, key = none},
            payload(Rest, Frame, begun(Opcode, Ws), Events);
        {1, <<Key:4/binary, Rest2/binary>>} ->
            Frame = #frame{opcode = Opcode, fin = Fin, left = Size, key = Key},
            payload(Rest2, Frame, begun(Opcode, Ws), Events);
        {1, _} ->
            more(Head, Ws, Events)
    end.

begun(?TEXT, Ws) -> Ws#ws{type = text};
begun(?BINARY, Ws) -> Ws#ws{type = binary};
begun(_, Ws) -> Ws.

payload(Bytes, #frame{left = Left} = Frame, Ws, Events) when byte_size(Bytes) >= Left ->
    <<Piece:Left/binary, Rest/binary>> = Bytes,
    case keep(Piece, Frame, Ws) of
        {ok, Frame2, Ws2} -> whole(Frame2, Rest, Ws2, Events);
        {error, Why} -> ended({error, 1007, Why}, Ws, Events)
    end;
payload(Bytes, Frame, Ws, Events) ->
    case keep(Bytes, Frame, Ws) of
        {ok, Frame2, Ws2} -> {lists:reverse(Events), Ws2#ws{now = Frame2}};
        {error, Why} -> ended({error, 1007, Why}, Ws, Events)
    end.

keep(Piece, #frame{opcode = Opcode, left = Left, key = Key} = Frame, Ws) ->
    Bare = mask(Piece, Key),
    Frame2 = Frame#frame{left = Left - byte_size(Piece), key = turn(Key, byte_size(Piece))},
    case {Opcode, Ws} of
        {_, _} when Opcode >= ?CLOSE ->
            {ok, Frame2#frame{control = join(Frame#frame.control, Bare)}, Ws};
        {_, #ws{type = text, data = Data, utf8 = Utf8}} ->
            case erlane_http_utf8:feed(Bare, Utf8) of
                {ok, Utf82} -> {ok, Frame2, Ws#ws{data = join(Data, Bare), utf8 = Utf82}};
                error -> {error, not_utf8}
            end;
        {_, #ws{data = Data}} ->
            {ok, Frame2, Ws#ws{data = join(Data, Bare)}}
    end.

join(<<>>, Piece) -> Piece;
join(Data, <<>>) -> Data;
join(Data, Piece) -> <<Data/binary, Piece/binary>>.

whole(#frame{opcode = ?PING, control = Data}, Rest, Ws, Events) ->
    head(Rest, Ws, [{ping, Data} | Events]);
whole(#frame{opcode = ?PONG, control = Data}, Rest, Ws, Events) ->
    head(Rest, Ws, [{pong, Data} | Events]);
whole(#frame{opcode = ?CLOSE, control = Data}, _Rest, Ws, Events) ->
    ended(close_event(Data), Ws, Events);
whole(#frame{fin = 0}, Rest, Ws, Events) ->
    head(Rest, Ws, Events);
whole(#frame{fin = 1}, Rest, #ws{type = Type, data = Data, utf8 = Utf8} = Ws, Events) ->
    case erlane_http_utf8:is_whole(Utf8) of
        true ->
            head(Rest, Ws#ws{type = none, data = <<>>}, [{Type, Data} | Events]);
        false ->
            ended({error, 1007, not_utf8}, Ws, Events)
    end.

close_event(<<>>) ->
    {close, undefined, <<>>};
close_event(<<Code:16, Reason/binary>>) ->
    case {is_code(Code), unicode:characters_to_binary(Reason)} of
        {false, _} -> {error, 1002, close_code};
        {true, Reason} -> {close, Code, Reason};
        {true, _} -> {error, 1007, not_utf8}
    end;
close_event(_) ->
    {error, 1002, close_code}.

%% Section 7.4 and the codes registered since; 1004 to 1006 and 1015 are never on the wire.
is_code(Code) when Code >= 1000, Code =< 1003; Code >= 1007, Code =< 1014 -> true;
is_code(Code) -> Code >= 3000 andalso Code =< 4999.

mask(Bytes, none) ->
    Bytes;
mask(<<>>, _Key) ->
    <<>>;
mask(Bytes, Key) ->
    Size = byte_size(Bytes),
    Keys = binary:copy(Key, (Size + 3) div 4),
    crypto:exor(Bytes, binary:part(Keys, 0, Size)).

turn(none, _) ->
    none;
turn(Key, Size) ->
    By = Size rem 4,
    <<Used:By/binary, Next/binary>> = Key,
    <<Next/binary, Used/binary>>.

%% @doc A frame as bytes; a server's has no mask (`none'), a client's has a key of four bytes
%% that nobody can guess. The reason of a close is cut to the 123 bytes that fit; a longer
%% ping or pong and a code that may not be sent are errors of the caller.
-spec print(frame(), none | <<_:32>>) -> iodata().
print({text, Data}, Key) -> print(?TEXT, Data, Key);
print({binary, Data}, Key) -> print(?BINARY, Data, Key);
print({ping, Data}, Key) -> print(?PING, control(Data), Key);
print({pong, Data}, Key) -> print(?PONG, control(Data), Key);
print(close, Key) -> print(?CLOSE, <<>>, Key);
print({close, Code, Reason}, Key) ->
    is_code(Code) orelse error({close_code, Code}),
    Text = erlane_http_utf8:cut(iolist_to_binary(Reason), ?MAX_CONTROL - 2),
    print(?CLOSE, <<Code:16, Text/binary>>, Key).

print(Opcode, Data, none) ->
    [<<1:1, 0:3, Opcode:4>>, length_form(0, iolist_size(Data)), Data];
print(Opcode, Data, Key) ->
    Bytes = iolist_to_binary(Data),
    [<<1:1, 0:3, Opcode:4>>, length_form(1, byte_size(Bytes)), Key, mask(Bytes, Key)].

length_form(Mask, Size) when Size < 126 -> <<Mask:1, Size:7>>;
length_form(Mask, Size) when Size =< 16#FFFF -> <<Mask:1, 126:7, Size:16>>;
length_form(Mask, Size) -> <<Mask:1, 127:7, Size:64>>.

control(Data) ->
    iolist_size(Data) =< ?MAX_CONTROL orelse error({long_control, iolist_size(Data)}),
    Data.

%% @doc The value of Sec-WebSocket-Accept for a Sec-WebSocket-Key.
-spec accept_key(binary()) -> binary().
accept_key(Key) ->
    base64:encode(crypto:hash(sha, [Key, ?GUID])).
