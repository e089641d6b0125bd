%% SPDX-License-Identifier: Apache-2.0
%% @doc The frames of WebSocket without a connection: the table of erlane_http_ws_cases fed in
%% every way, and the properties of prop_erlane_http_ws.
-module(erlane_http_ws_frame_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0]).
-export([whole/1, byte_by_byte/1, split_everywhere/1, in_pieces/1]).
-export([refused_by_head/1, one_binary_is_kept/1, a_client_takes_bare_frames/1]).
-export([printed_lengths/1, close_reason_is_cut/1, bad_frames_are_not_printed/1, accept_key/1]).
-export([print_then_feed/1, any_split/1, no_bytes_crash/1, utf8_as_the_vm/1, utf8_beginnings/1,
         utf8_cut/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [whole, byte_by_byte, split_everywhere, in_pieces,
     refused_by_head, one_binary_is_kept, a_client_takes_bare_frames,
     printed_lengths, close_reason_is_cut, bad_frames_are_not_printed, accept_key,
     print_then_feed, any_split, no_bytes_crash, utf8_as_the_vm, utf8_beginnings, utf8_cut].

%% Each case of the table, all bytes at once.
whole(_Config) ->
    each(fun(_) -> true end, fun(Bytes) -> [Bytes] end).

%% Byte by byte.
byte_by_byte(_Config) ->
    each(fun(Bytes) -> byte_size(Bytes) < 70000 end, fun(Bytes) -> [<<B>> || <<B>> <= Bytes] end).

%% In two parts, cut at every place.
split_everywhere(_Config) ->
    [begin
         <<Front:At/binary, Back/binary>> = Bytes,
         ?assertEqual({Name, At, Events}, {Name, At, feed([Front, Back])})
     end || {Name, Bytes, Events} <- cases(), byte_size(Bytes) < 300,
            At <- lists:seq(0, byte_size(Bytes))].

%% In pieces as a socket gives them, of a size that is no multiple of anything.
in_pieces(_Config) ->
    each(fun(_) -> true end, fun(Bytes) -> pieces(1447, Bytes) end).

each(Filter, Cut) ->
    [?assertEqual({Name, Events}, {Name, feed(Cut(Bytes))})
     || {Name, Bytes, Events} <- cases(), Filter(Bytes)].

cases() ->
    [{{Group, Name}, iolist_to_binary(Bytes), Events}
     || Group <- erlane_http_ws_cases:groups(),
        {Name, Bytes, Events} <- erlane_http_ws_cases:group(Group)].

pieces(Size, Bytes) when byte_size(Bytes) > Size ->
    <<Piece:Size/binary, Rest/binary>> = Bytes,
    [Piece | pieces(Size, Rest)];
pieces(_Size, Bytes) ->
    [Bytes].

feed(Pieces) ->
    element(1, prop_erlane_http_ws:feed(Pieces, new())).

new() ->
    erlane_http_ws_frame:new(server, erlane_http_ws_cases:limits()).

%% The head alone is enough to refuse a frame: a byte of the payload is never waited for.
refused_by_head(_Config) ->
    [?assertMatch({[{error, Code, _}], _}, erlane_http_ws_frame:feed(Head, new()))
     || {Code, Head} <- [{1002, <<16#C1, 16#80>>}, {1002, <<16#81, 16#05>>},
                         {1002, <<16#83, 16#80>>}, {1002, <<16#89, 16#FE>>},
                         {1002, <<16#09, 16#80>>}, {1002, <<16#80, 16#80>>},
                         {1009, <<16#82, 16#FF, 16#FFFFFFFF:64>>}]].

%% What is kept of an unfinished message does not grow with the number of its fragments.
one_binary_is_kept(_Config) ->
    Bit = erlane_http_ws_cases:frame(0, 0, 0, <<"x">>),
    {[], Begun} = erlane_http_ws_frame:feed(erlane_http_ws_cases:frame(0, 0, 2, <<"x">>), new()),
    Small = keep(10, Bit, Begun),
    Large = keep(5000, Bit, Begun),
    ?assert(erts_debug:flat_size(Large) =< erts_debug:flat_size(Small) + 10).

keep(N, Bit, Ws) ->
    {[], Kept} = erlane_http_ws_frame:feed(binary:copy(Bit, N), Ws),
    Kept.

%% The other role: a server's frames have no mask, and one with a mask is an error.
a_client_takes_bare_frames(_Config) ->
    Client = erlane_http_ws_frame:new(client, erlane_http_ws_cases:limits()),
    Bare = iolist_to_binary(erlane_http_ws_frame:print({text, <<"a">>}, none)),
    ?assertMatch({[{text, <<"a">>}], _}, erlane_http_ws_frame:feed(Bare, Client)),
    ?assertMatch({[{error, 1002, masking}], _},
                 erlane_http_ws_frame:feed(erlane_http_ws_cases:text(<<"a">>), Client)).

%% Both sides of the places where the form of the length changes.
printed_lengths(_Config) ->
    [?assertEqual(Head, binary:part(printed({binary, <<0:N/unit:8>>}), 0, byte_size(Head)))
     || {N, Head} <- [{0, <<16#82, 0>>}, {125, <<16#82, 125>>}, {126, <<16#82, 126, 126:16>>},
                      {65535, <<16#82, 126, 65535:16>>}, {65536, <<16#82, 127, 65536:64>>}]].

%% 123 bytes fit; a character is not cut in two.
close_reason_is_cut(_Config) ->
    Fits = binary:copy(<<"x">>, 123),
    ?assertEqual(<<16#88, 125, 1000:16, Fits/binary>>, printed({close, 1000, Fits})),
    ?assertEqual(<<16#88, 125, 1000:16, Fits/binary>>, printed({close, 1000, [Fits, "y"]})),
    Front = binary:copy(<<"x">>, 122),
    ?assertEqual(<<16#88, 124, 1000:16, Front/binary>>,
                 printed({close, 1000, <<Front/binary, 16#E9/utf8>>})).

%% What must not be on the wire is an error of the caller.
bad_frames_are_not_printed(_Config) ->
    [?assertError({close_code, Code}, printed({close, Code, <<>>}))
     || Code <- [0, 999, 1004, 1005, 1006, 1015, 2999, 5000]],
    [?assertError({long_control, 126}, printed({Type, <<0:126/unit:8>>})) || Type <- [ping, pong]].

printed(Frame) ->
    iolist_to_binary(erlane_http_ws_frame:print(Frame, none)).

%% The example of RFC 6455, section 1.3.
accept_key(_Config) ->
    ?assertEqual(<<"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=">>,
                 erlane_http_ws_frame:accept_key(<<"dGhlIHNhbXBsZSBub25jZQ==">>)).

print_then_feed(_Config) -> check(prop_erlane_http_ws:prop_print_then_feed(), 500).
any_split(_Config) -> check(prop_erlane_http_ws:prop_any_split(), 500).
no_bytes_crash(_Config) -> check(prop_erlane_http_ws:prop_no_bytes_crash(), 1000).
utf8_as_the_vm(_Config) -> check(prop_erlane_http_ws:prop_utf8_as_the_vm(), 2000).

%% Every two bytes and the places where a third matters: whether a character may begin so.
utf8_beginnings(_Config) ->
    Edges = [0, 16#7F, 16#80, 16#BF, 16#C0, 16#FF],
    Texts = [<<A>> || A <- lists:seq(0, 255)] ++
        [<<A, B>> || A <- lists:seq(16#80, 255), B <- lists:seq(0, 255)] ++
        [<<A, B, C>> || A <- lists:seq(16#E0, 255), B <- lists:seq(16#7F, 16#C0), C <- Edges],
    ?assertEqual([], [T || T <- Texts, not prop_erlane_http_ws:is_as_the_vm([T])]).

utf8_cut(_Config) -> check(prop_erlane_http_ws:prop_utf8_cut(), 500).

check(Property, Tests) ->
    true = proper:quickcheck(Property, [{numtests, Tests}, {max_size, 30}, {to_file, user},
                                          nocolors]).
