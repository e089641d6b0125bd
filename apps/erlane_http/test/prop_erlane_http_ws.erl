%% SPDX-License-Identifier: Apache-2.0
-module(prop_erlane_http_ws).

-include_lib("proper/include/proper.hrl").

-export([prop_print_then_feed/0, prop_any_split/0, prop_no_bytes_crash/0]).
-export([prop_utf8_as_the_vm/0, prop_utf8_cut/0]).
-export([feed/2, is_as_the_vm/1]).

-define(LARGE, #{max_frame => 1000000, max_message => 1000000}).
-define(LIMITS, #{max_frame => 2000, max_message => 5000}).

%% What is printed is read again, by either role.
prop_print_then_feed() ->
    ?FORALL({Frames, Role, Key}, {list(frame()), oneof([server, client]), binary(4)},
            begin
                Mask = case Role of server -> Key; client -> none end,
                Bytes = iolist_to_binary([erlane_http_ws_frame:print(F, Mask) || F <- Frames]),
                Events = element(1, feed([Bytes], erlane_http_ws_frame:new(Role, ?LARGE))),
                Events =:= until_close(Frames)
            end).

until_close([close | _]) -> [{close, undefined, <<>>}];
until_close([{close, _, _} = Close | _]) -> [Close];
until_close([Frame | Frames]) -> [Frame | until_close(Frames)];
until_close([]) -> [].

%% However the bytes are cut, the events are the same; also of bytes with a fault in them.
prop_any_split() ->
    ?FORALL({Bytes, Cuts}, {traffic(), list(pos_integer())},
            begin
                {Whole, _} = feed([Bytes], new()),
                {Cut, _} = feed(cut(Bytes, Cuts), new()),
                Whole =:= Cut
            end).

%% No bytes are a crash; at most the last event is a close or an error, and what is kept is
%% within the limits.
prop_no_bytes_crash() ->
    ?FORALL(Pieces, list(oneof([binary(), traffic()])),
            begin
                {Events, State} = feed(Pieces, new()),
                lists:all(fun is_message/1, lists:droplast([x | Events]) -- [x])
                    andalso byte_size(term_to_binary(State)) < 5000 + 1000
            end).

is_message({Type, Data}) -> lists:member(Type, [text, binary, ping, pong]) andalso is_binary(Data).

%% A text is good, cut or not, if the VM's own conversion takes it, and bad with the first byte
%% after which nothing could make it good.
prop_utf8_as_the_vm() ->
    ?FORALL({Text, Cuts}, {text_or_so(), list(pos_integer())},
            is_as_the_vm(cut(Text, Cuts))).

%% @doc Whether the judgement of a text in pieces is that of the VM.
-spec is_as_the_vm([binary()]) -> boolean().
is_as_the_vm(Pieces) ->
    checked(Pieces, erlane_http_utf8:new()) =:= vm(iolist_to_binary(Pieces)).

checked([Piece | Rest], State) ->
    case erlane_http_utf8:feed(Piece, State) of
        {ok, State2} -> checked(Rest, State2);
        error -> bad
    end;
checked([], State) ->
    case erlane_http_utf8:is_whole(State) of
        true -> whole;
        false -> begun
    end.

%% A tail is a beginning if some bytes make a character of it.
vm(Text) ->
    case unicode:characters_to_binary(Text) of
        Text -> whole;
        {_, _, Tail} ->
            Ends = [<<A>> || A <- [16#80, 16#90, 16#A0]]
                ++ [<<A, 16#80>> || A <- [16#80, 16#90, 16#A0]]
                ++ [<<A, 16#80, 16#80>> || A <- [16#80, 16#90, 16#A0]],
            case [E || E <- Ends, is_char(<<Tail/binary, E/binary>>)] of
                [] -> bad;
                _ -> begun
            end
    end.

is_char(<<_/utf8>>) -> true;
is_char(_) -> false.

%% The front is within the size, is text if the whole is, and one more character would not fit.
prop_utf8_cut() ->
    ?FORALL({Text, Max}, {utf8(), non_neg_integer()},
            begin
                Front = erlane_http_utf8:cut(Text, Max),
                Size = byte_size(Front),
                <<Front:Size/binary, Rest/binary>> = Text,
                unicode:characters_to_binary(Front) =:= Front
                    andalso Size =< Max
                    andalso (Rest =:= <<>> orelse first(Rest) + Size > Max)
            end).

first(<<C/utf8, _/binary>>) -> byte_size(<<C/utf8>>).

%% @doc All events of a stream that comes in pieces, and the state after it.
-spec feed([binary()], erlane_http_ws_frame:state()) ->
          {[erlane_http_ws_frame:event()], erlane_http_ws_frame:state()}.
feed(Pieces, State) ->
    {Events, Last} = lists:mapfoldl(fun erlane_http_ws_frame:feed/2, State, Pieces),
    {lists:append(Events), Last}.

new() ->
    erlane_http_ws_frame:new(server, ?LIMITS).

cut(Bytes, [Size | Cuts]) when byte_size(Bytes) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Bytes,
    [Piece | cut(Rest, Cuts)];
cut(Bytes, _) ->
    [Bytes].

frame() ->
    frequency([{4, {text, utf8()}}, {4, {binary, payload()}}, {2, {ping, control()}},
               {2, {pong, control()}}, {1, close},
               {1, {close, oneof([1000, 1001, 1011, 3000, 4999]), ?LET(T, utf8(), short(T))}}]).

short(Text) -> erlane_http_utf8:cut(Text, 123).

control() -> ?LET(B, binary(), binary:part(B, 0, min(125, byte_size(B)))).

payload() -> oneof([binary(), ?LET(N, integer(120, 135), binary(N)), binary(2000)]).

%% Good frames, fragments in any order, and broken bytes.
traffic() ->
    ?LET(Parts, list(frequency([{6, ?LET({F, K}, {frame(), binary(4)},
                                         iolist_to_binary(erlane_http_ws_frame:print(F, K)))},
                                {6, fragment()}, {1, binary()}])),
         iolist_to_binary(Parts)).

fragment() ->
    ?LET({Fin, Rsv, Opcode, Data},
         {integer(0, 1), frequency([{20, 0}, {1, integer(0, 7)}]),
          frequency([{10, oneof([0, 1, 2])}, {2, oneof([8, 9, 10])}, {1, integer(0, 15)}]),
          oneof([binary(), utf8(), text_or_so()])},
         erlane_http_ws_cases:frame(Fin, Rsv, Opcode, Data)).

text_or_so() ->
    ?LET(Parts, list(oneof([utf8(), char_bytes(), binary(1)])), iolist_to_binary(Parts)).

%% The bytes at which RFC 3629 draws its lines.
char_bytes() ->
    ?LET(Bytes, list(oneof([16#7F, 16#80, 16#8F, 16#90, 16#9F, 16#A0, 16#BF, 16#C0, 16#C1, 16#C2,
                            16#DF, 16#E0, 16#E1, 16#EC, 16#ED, 16#EE, 16#EF, 16#F0, 16#F1, 16#F3,
                            16#F4, 16#F5, 16#FF])),
         list_to_binary(lists:sublist(Bytes, 4))).
