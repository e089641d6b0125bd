%% SPDX-License-Identifier: Apache-2.0
%% @doc What clients may send on a WebSocket and what the server must make of it, as a table: for
%% the codec alone and again over a connection. The groups are those that any suite for RFC 6455
%% has. Limits in force: those of limits/0.
-module(erlane_http_ws_cases).

-export([groups/0, group/1, limits/0, frame/4, frame/5, text/1, close/1]).

-type bytes() :: iodata().
-type ws_case() :: {Name :: term(), bytes(), [erlane_http_ws_frame:event()]}.

-define(CONT, 0).
-define(TEXT, 1).
-define(BIN, 2).
-define(CLOSE, 8).
-define(PING, 9).
-define(PONG, 10).

-define(MAX_FRAME, 1048576).
-define(MAX_MESSAGE, 2097152).

-spec limits() -> #{max_frame := pos_integer(), max_message := pos_integer()}.
limits() ->
    #{max_frame => ?MAX_FRAME, max_message => ?MAX_MESSAGE}.

-spec groups() -> [atom()].
groups() ->
    [framing, masking, lengths, pings, reserved_bits, opcodes, fragments, utf8, closing, codes,
     large].

-spec group(atom()) -> [ws_case()].
group(framing) ->
    [{{Type, Size}, frame(1, 0, Opcode, Data), [{Type, Data}]}
     || {Type, Opcode} <- [{text, ?TEXT}, {binary, ?BIN}],
        Size <- [0, 1, 2, 3, 4, 5, 125, 126, 127, 128, 65535, 65536],
        Data <- [data(Type, Size)]] ++
    [{two_at_once, [text(<<"a">>), text(<<"b">>)], [{text, <<"a">>}, {text, <<"b">>}]},
     {any_bytes, frame(1, 0, ?BIN, <<0, 255, 254, 128>>), [{binary, <<0, 255, 254, 128>>}]}];

group(masking) ->
    [{{bare, Opcode}, <<1:1, 0:3, Opcode:4, 0:1, 0:7>>, [{error, 1002, masking}]}
     || Opcode <- [?CONT, ?TEXT, ?BIN, ?CLOSE, ?PING, ?PONG]] ++
    [{{key, Key}, frame(1, 0, ?TEXT, Text, Key), [{text, Text}]}
     || Key <- [<<0:32>>, <<255, 255, 255, 255>>, <<1, 2, 3, 4>>],
        Text <- [data(text, N) || N <- lists:seq(0, 9)]];

group(lengths) ->
    Head = fun(Opcode, Len, More) -> <<1:1, 0:3, Opcode:4, 1:1, Len:7, More/binary>> end,
    [{{two_bytes_for, N}, Head(?BIN, 126, <<N:16>>), [{error, 1002, length_form}]}
     || N <- [0, 1, 125]] ++
    [{{eight_bytes_for, N}, Head(?BIN, 127, <<N:64>>), [{error, 1002, length_form}]}
     || N <- [0, 125, 126, 65535]] ++
    [{{top_bit, N}, Head(?BIN, 127, <<1:1, N:63>>), [{error, 1002, length_form}]}
     || N <- [0, 65536]] ++
    [{{control, Opcode}, Head(Opcode, Len, <<>>), [{error, 1002, long_control}]}
     || Opcode <- [?CLOSE, ?PING, ?PONG], Len <- [126, 127]];

group(pings) ->
    Ping = fun(Data) -> frame(1, 0, ?PING, Data) end,
    [{{ping, byte_size(D)}, Ping(D), [{ping, D}]}
     || D <- [<<>>, <<"hello">>, <<0, 255, 254, 253>>, data(binary, 125)]] ++
    [{long, Ping(data(binary, 126)), [{error, 1002, long_control}]},
     {ten, [Ping(<<N>>) || N <- lists:seq(1, 10)], [{ping, <<N>>} || N <- lists:seq(1, 10)]},
     {unasked_pong, frame(1, 0, ?PONG, <<"x">>), [{pong, <<"x">>}]},
     {pong_then_ping, [frame(1, 0, ?PONG, <<>>), Ping(<<"y">>)], [{pong, <<>>}, {ping, <<"y">>}]}];

group(reserved_bits) ->
    Error = {error, 1002, reserved_bits},
    [{{alone, Rsv, Opcode}, frame(1, Rsv, Opcode, <<>>), [Error]}
     || Rsv <- lists:seq(1, 7), Opcode <- [?TEXT, ?BIN, ?CLOSE, ?PING, ?PONG]] ++
    [{{after_text, Rsv}, [text(<<"good">>), frame(1, Rsv, ?TEXT, <<"bad">>), text(<<"unread">>)],
      [{text, <<"good">>}, Error]} || Rsv <- lists:seq(1, 7)];

group(opcodes) ->
    Error = {error, 1002, reserved_opcode},
    [{Opcode, [text(<<"good">>), frame(1, 0, Opcode, Data), frame(1, 0, ?PING, <<>>)],
      [{text, <<"good">>}, Error]}
     || Opcode <- lists:seq(3, 7) ++ lists:seq(11, 15), Data <- [<<>>, <<"data">>]];

group(fragments) ->
    First = fun(Opcode, Data) -> frame(0, 0, Opcode, Data) end,
    More = fun(Data) -> frame(0, 0, ?CONT, Data) end,
    Last = fun(Data) -> frame(1, 0, ?CONT, Data) end,
    Ping = frame(1, 0, ?PING, <<"p">>),
    [{{control, Opcode}, [First(Opcode, <<"x">>), Last(<<"y">>)],
      [{error, 1002, fragmented_control}]} || Opcode <- [?CLOSE, ?PING, ?PONG]] ++
    [{two, [First(?TEXT, <<"a">>), Last(<<"b">>)], [{text, <<"ab">>}]},
     {binary, [First(?BIN, <<255>>), More(<<254>>), Last(<<253>>)], [{binary, <<255, 254, 253>>}]},
     {ping_between, [First(?TEXT, <<"a">>), Ping, More(<<"b">>), Ping, Last(<<"c">>)],
      [{ping, <<"p">>}, {ping, <<"p">>}, {text, <<"abc">>}]},
     {empty, [First(?TEXT, <<>>), More(<<>>), Last(<<>>)], [{text, <<>>}]},
     {empty_but_one, [First(?TEXT, <<>>), More(<<"x">>), Last(<<>>)], [{text, <<"x">>}]},
     {two_messages, [First(?TEXT, <<"a">>), Last(<<"b">>), First(?BIN, <<"c">>), Last(<<"d">>)],
      [{text, <<"ab">>}, {binary, <<"cd">>}]},
     {nothing_begun, Last(<<"x">>), [{error, 1002, nothing_to_continue}]},
     {nothing_begun_unfinished, More(<<"x">>), [{error, 1002, nothing_to_continue}]},
     {after_a_whole_one, [text(<<"a">>), Last(<<"x">>)],
      [{text, <<"a">>}, {error, 1002, nothing_to_continue}]},
     {not_finished, [First(?TEXT, <<"a">>), text(<<"b">>)], [{error, 1002, unfinished_message}]},
     {begun_twice, [First(?BIN, <<"a">>), First(?BIN, <<"b">>)],
      [{error, 1002, unfinished_message}]}];

group(utf8) ->
    Good = [<<"Hello-", 16#B5/utf8, "@">>, <<16#3BA/utf8, 16#1F79/utf8, 16#3C3/utf8>>,
            <<0>>, <<16#7F>>] ++
        [<<C/utf8>> || C <- [16#80, 16#7FF, 16#800, 16#D7FF, 16#E000, 16#FFFD, 16#FFFE, 16#FFFF,
                             16#10000, 16#1FFFE, 16#10FFFE, 16#10FFFF]],
    Bad = [<<16#80>>, <<16#BF>>, <<"a", 16#80, "b">>, <<16#C0, 16#80>>, <<16#C1, 16#BF>>,
           <<16#C2, "a">>, <<16#C2, 16#C2>>, <<16#E0, 16#80, 16#80>>, <<16#E0, 16#9F, 16#BF>>,
           <<16#E1, 16#80, "a">>, <<16#ED, 16#A0, 16#80>>, <<16#ED, 16#BF, 16#BF>>,
           <<16#F0, 16#80, 16#80, 16#80>>, <<16#F0, 16#8F, 16#BF, 16#BF>>,
           <<16#F1, 16#80, 16#80, "a">>, <<16#F4, 16#90, 16#80, 16#80>>, <<16#F5>>,
           <<16#F8, 16#88, 16#80, 16#80, 16#80>>, <<16#FC>>, <<16#FE>>, <<16#FF>>],
    Cut = [<<16#C2>>, <<16#E1, 16#80>>, <<16#F1, 16#80, 16#80>>],
    [{{good, T}, text(T), [{text, T}]} || T <- Good] ++
    [{{good_bytewise, T}, bytewise(T), [{text, T}]} || T <- Good] ++
    [{{bad, T}, text(T), [{error, 1007, not_utf8}]} || T <- Bad ++ Cut] ++
    [{{bad_bytewise, T}, bytewise(T), [{error, 1007, not_utf8}]} || T <- Bad ++ Cut] ++
    %% Refused before the message ends: nothing that follows could make it good.
    [{{fail_fast, T}, frame(0, 0, ?TEXT, T), [{error, 1007, not_utf8}]} || T <- Bad] ++
    [{{fail_fast_in_frame, T}, begun(<<"ab", T/binary>>), [{error, 1007, not_utf8}]} || T <- Bad] ++
    [{{binary, T}, frame(1, 0, ?BIN, T), [{binary, T}]} || T <- Bad ++ Cut];

group(closing) ->
    Reason = data(text, 123),
    [{nothing, frame(1, 0, ?CLOSE, <<>>), [{close, undefined, <<>>}]},
     {half_a_code, frame(1, 0, ?CLOSE, <<3>>), [{error, 1002, close_code}]},
     {code, close(1000), [{close, 1000, <<>>}]},
     {reason, frame(1, 0, ?CLOSE, <<1000:16, "bye">>), [{close, 1000, <<"bye">>}]},
     {long_reason, frame(1, 0, ?CLOSE, <<1000:16, Reason/binary>>), [{close, 1000, Reason}]},
     {too_long, frame(1, 0, ?CLOSE, <<1000:16, Reason/binary, "x">>),
      [{error, 1002, long_control}]},
     {reason_no_text, frame(1, 0, ?CLOSE, <<1000:16, 255>>), [{error, 1007, not_utf8}]},
     {reason_cut, frame(1, 0, ?CLOSE, <<1000:16, 16#E1, 16#80>>), [{error, 1007, not_utf8}]},
     {deaf_afterwards, [close(1000), text(<<"x">>), frame(1, 0, ?PING, <<>>), close(1001)],
      [{close, 1000, <<>>}]},
     {garbage_afterwards, [close(1000), <<255, 255, 255>>], [{close, 1000, <<>>}]},
     {inside_a_message, [frame(0, 0, ?TEXT, <<"a">>), close(1000)], [{close, 1000, <<>>}]},
     {after_text, [text(<<"a">>), close(1000)], [{text, <<"a">>}, {close, 1000, <<>>}]}];

group(codes) ->
    [{{good, C}, close(C), [{close, C, <<>>}]}
     || C <- [1000, 1001, 1002, 1003] ++ lists:seq(1007, 1014) ++ [3000, 3999, 4000, 4999]] ++
    [{{bad, C}, close(C), [{error, 1002, close_code}]}
     || C <- [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535]];

group(large) ->
    Whole = data(binary, ?MAX_FRAME),
    Text = data(text, ?MAX_FRAME),
    Two = <<Whole/binary, Whole/binary>>,
    [{frame, frame(1, 0, ?BIN, Whole), [{binary, Whole}]},
     {text, text(Text), [{text, Text}]},
     {frame_too_long, head(?BIN, ?MAX_FRAME + 1), [{error, 1009, long_frame}]},
     {frame_huge, head(?BIN, 1 bsl 62), [{error, 1009, long_frame}]},
     {message, [frame(0, 0, ?BIN, Whole), frame(1, 0, ?CONT, Whole)], [{binary, Two}]},
     {message_too_long, [frame(0, 0, ?BIN, Whole), frame(0, 0, ?CONT, Whole), head(?CONT, 1)],
      [{error, 1009, long_message}]},
     {ping_in_a_full_message,
      [frame(0, 0, ?BIN, Whole), frame(0, 0, ?CONT, Whole), frame(1, 0, ?PING, <<"p">>),
       frame(1, 0, ?CONT, <<>>)], [{ping, <<"p">>}, {binary, Two}]}] ++
    [{{fragments_of, N}, fragments(?BIN, Whole, N), [{binary, Whole}]} || N <- [64, 1000, 65536]] ++
    [{many_small_ones, [text(<<"x">>) || _ <- lists:seq(1, 2000)],
      [{text, <<"x">>} || _ <- lists:seq(1, 2000)]}].

%% @doc A masked frame as it is on the wire, right or wrong.
-spec frame(0..1, 0..7, 0..15, binary()) -> binary().
frame(Fin, Rsv, Opcode, Data) ->
    frame(Fin, Rsv, Opcode, Data, <<16#37, 16#FA, 16#21, 16#3D>>).

-spec frame(0..1, 0..7, 0..15, binary(), <<_:32>>) -> binary().
frame(Fin, Rsv, Opcode, Data, Key) ->
    Keys = binary:part(binary:copy(Key, byte_size(Data) div 4 + 1), 0, byte_size(Data)),
    <<Fin:1, Rsv:3, Opcode:4, (len(byte_size(Data)))/binary, Key/binary,
      (crypto:exor(Data, Keys))/binary>>.

-spec text(binary()) -> binary().
text(Text) ->
    frame(1, 0, ?TEXT, Text).

-spec close(0..65535) -> binary().
close(Code) ->
    frame(1, 0, ?CLOSE, <<Code:16>>).

len(N) when N < 126 -> <<1:1, N:7>>;
len(N) when N < 65536 -> <<1:1, 126:7, N:16>>;
len(N) -> <<1:1, 127:7, N:64>>.

%% Only the head of a frame: what it announces never comes.
head(Opcode, Size) ->
    <<1:1, 0:3, Opcode:4, (len(Size))/binary>>.

%% A frame that announces more than it brings.
begun(Data) ->
    Size = byte_size(Data) + 10,
    <<Head:6/binary, Masked/binary>> = frame(1, 0, ?TEXT, Data),
    <<A, _, Key:4/binary>> = Head,
    <<A, 1:1, Size:7, Key/binary, Masked/binary>>.

bytewise(Text) ->
    [frame(0, 0, ?TEXT, <<>>), [frame(0, 0, ?CONT, <<B>>) || <<B>> <= Text],
     frame(1, 0, ?CONT, <<>>)].

fragments(Opcode, Data, Size) when byte_size(Data) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Data,
    [frame(0, 0, Opcode, Piece) | fragments(?CONT, Rest, Size)];
fragments(Opcode, Data, _Size) ->
    [frame(1, 0, Opcode, Data)].

data(text, Size) ->
    Pattern = <<"text ", 16#E9/utf8, 16#4E2D/utf8, 16#1F600/utf8, "-">>,
    Cut = cut(Size rem 15),
    Front = binary:part(binary:copy(Pattern, Size div 15 + 1), 0, Size - Cut),
    <<Front/binary, (binary:copy(<<"x">>, Cut))/binary>>;
data(binary, Size) ->
    binary:part(binary:copy(list_to_binary(lists:seq(0, 255)), Size div 256 + 1), 0, Size).

%% So many bytes of a character would be at the end of a text that is not its end.
cut(6) -> 1;
cut(8) -> 1;
cut(9) -> 2;
cut(11) -> 1;
cut(12) -> 2;
cut(13) -> 3;
cut(_) -> 0.
