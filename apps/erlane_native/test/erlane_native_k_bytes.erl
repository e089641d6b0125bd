%% SPDX-License-Identifier: Apache-2.0
%% Kernels that read binaries byte by byte or build them: what people write NIFs for.
-module(erlane_native_k_bytes).

-export([varints/1, utf8_valid/1, utf8_length/1, json_scan/1, csv_fields/1, http_head/1, luhn/1,
         hex_encode/1, hex_decode/1, base64_encode/1, xor_mask/2, utf8_to_latin1/1, rle_expand/1]).

-native([varints/1, utf8_valid/1, utf8_length/1, json_scan/1, csv_fields/1, http_head/1, luhn/1,
         hex_encode/1, hex_decode/1, base64_encode/1, xor_mask/2, utf8_to_latin1/1, rle_expand/1]).

%% The sum of all base 128 varints (Protocol Buffers, Encoding), or where the last one is cut off:
%% then it is minus its length less one.
-spec varints(binary()) -> integer().
varints(Bin) -> varints(Bin, 0, 0, 0).

varints(<<1:1, Low:7, Rest/binary>>, Shift, Value, Sum) when Shift < 63 ->
    varints(Rest, Shift + 7, Value bor (Low bsl Shift), Sum);
varints(<<0:1, Low:7, Rest/binary>>, Shift, Value, Sum) ->
    varints(Rest, 0, 0, Sum + (Value bor (Low bsl Shift)));
varints(<<>>, 0, 0, Sum) -> Sum;
varints(<<>>, Shift, _, _) -> -1 - Shift div 7.

%% Is it well-formed UTF-8 (RFC 3629)? By the table of Unicode 15, 3.9, and not by /utf8.
-spec utf8_valid(binary()) -> boolean().
utf8_valid(<<B, Rest/binary>>) when B < 16#80 -> utf8_valid(Rest);
utf8_valid(<<B, C, Rest/binary>>) when B >= 16#C2, B < 16#E0, C band 16#C0 =:= 16#80 ->
    utf8_valid(Rest);
utf8_valid(<<B, C, D, Rest/binary>>)
  when B band 16#F0 =:= 16#E0, C band 16#C0 =:= 16#80, D band 16#C0 =:= 16#80,
       (B =/= 16#E0 orelse C >= 16#A0), (B =/= 16#ED orelse C < 16#A0) ->
    utf8_valid(Rest);
utf8_valid(<<B, C, D, E, Rest/binary>>)
  when B >= 16#F0, B < 16#F5, C band 16#C0 =:= 16#80, D band 16#C0 =:= 16#80,
       E band 16#C0 =:= 16#80, (B =/= 16#F0 orelse C >= 16#90), (B =/= 16#F4 orelse C < 16#90) ->
    utf8_valid(Rest);
utf8_valid(<<>>) -> true;
utf8_valid(<<_/binary>>) -> false.

%% How many code points it has, or minus one: by /utf8.
-spec utf8_length(binary()) -> integer().
utf8_length(Bin) -> utf8_length(Bin, 0).

utf8_length(<<_/utf8, Rest/binary>>, N) -> utf8_length(Rest, N + 1);
utf8_length(<<>>, N) -> N;
utf8_length(_, _) -> -1.

%% How many values, keys included, a JSON text has when each bracket fits and each string ends;
%% minus one if not. A scan, as before parsing: it does not look at the grammar otherwise. What is
%% open is a number in base two below a leading one: 1 for a brace, 0 for a bracket.
-spec json_scan(binary()) -> integer().
json_scan(Bin) -> json_value(Bin, 1, 0).

json_value(<<C, Rest/binary>>, Open, N)
  when C =:= $\s; C =:= $\n; C =:= $\t; C =:= $\r; C =:= $,; C =:= $: ->
    json_value(Rest, Open, N);
json_value(<<$", Rest/binary>>, Open, N) -> json_string(Rest, Open, N + 1);
json_value(<<${, Rest/binary>>, Open, N) -> json_value(Rest, Open * 2 + 1, N + 1);
json_value(<<$[, Rest/binary>>, Open, N) -> json_value(Rest, Open * 2, N + 1);
json_value(<<$}, Rest/binary>>, Open, N) when Open band 1 =:= 1, Open > 1 ->
    json_value(Rest, Open bsr 1, N);
json_value(<<$], Rest/binary>>, Open, N) when Open band 1 =:= 0 -> json_value(Rest, Open bsr 1, N);
json_value(<<C, Rest/binary>>, Open, N)
  when C =:= $-; C >= $0, C =< $9; C =:= $t; C =:= $f; C =:= $n ->
    json_scalar(Rest, Open, N + 1);
json_value(<<>>, 1, N) -> N;
json_value(_, _, _) -> -1.

json_string(<<$", Rest/binary>>, Open, N) -> json_value(Rest, Open, N);
json_string(<<$\\, _, Rest/binary>>, Open, N) -> json_string(Rest, Open, N);
json_string(<<C, Rest/binary>>, Open, N) when C >= $\s -> json_string(Rest, Open, N);
json_string(_, _, _) -> -1.

json_scalar(<<C, Rest/binary>>, Open, N)
  when C >= $0, C =< $9; C >= $a, C =< $z; C =:= $.; C =:= $+; C =:= $-; C =:= $E ->
    json_scalar(Rest, Open, N);
json_scalar(Rest, Open, N) -> json_value(Rest, Open, N).

%% Fields of a CSV text (RFC 4180), or minus one when a quoted field does not end.
-spec csv_fields(binary()) -> integer().
csv_fields(<<>>) -> 0;
csv_fields(Bin) -> csv_start(Bin, 1).

csv_start(<<$", Rest/binary>>, N) -> csv_quoted(Rest, N);
csv_start(Bin, N) -> csv_plain(Bin, N).

csv_plain(<<$,, Rest/binary>>, N) -> csv_start(Rest, N + 1);
csv_plain(<<"\r\n">>, N) -> N;
csv_plain(<<"\r\n", Rest/binary>>, N) -> csv_start(Rest, N + 1);
csv_plain(<<_, Rest/binary>>, N) -> csv_plain(Rest, N);
csv_plain(<<>>, N) -> N.

csv_quoted(<<"\"\"", Rest/binary>>, N) -> csv_quoted(Rest, N);
csv_quoted(<<$", Rest/binary>>, N) -> csv_plain(Rest, N);
csv_quoted(<<_, Rest/binary>>, N) -> csv_quoted(Rest, N);
csv_quoted(<<>>, _) -> -1.

%% Where the head of an HTTP message ends and how many lines it has.
-spec http_head(binary()) -> {ok, non_neg_integer(), non_neg_integer()} | more | bad.
http_head(Bin) -> http_head(Bin, 0, 0).

http_head(<<"\r\n\r\n", _/binary>>, Bytes, Lines) -> {ok, Bytes + 4, Lines + 1};
http_head(<<"\r\n", Rest/binary>>, Bytes, Lines) -> http_head(Rest, Bytes + 2, Lines + 1);
http_head(<<C, Rest/binary>>, Bytes, Lines) when C >= $\s; C =:= $\t; C =:= $\r ->
    http_head(Rest, Bytes + 1, Lines);
http_head(<<>>, _, _) -> more;
http_head(_, _, _) -> bad.

%% Luhn's check of a number in digits (ISO/IEC 7812-1, annex B).
-spec luhn(binary()) -> boolean().
luhn(Bin) when byte_size(Bin) band 1 =:= 0 -> luhn_double(Bin, 0);
luhn(Bin) -> luhn_single(Bin, 0).

luhn_double(<<C, Rest/binary>>, Sum) when C >= $0, C =< $4 -> luhn_single(Rest, Sum + 2 * (C - $0));
luhn_double(<<C, Rest/binary>>, Sum) when C >= $5, C =< $9 ->
    luhn_single(Rest, Sum + 2 * (C - $0) - 9);
luhn_double(<<>>, Sum) -> Sum rem 10 =:= 0.

luhn_single(<<C, Rest/binary>>, Sum) when C >= $0, C =< $9 -> luhn_double(Rest, Sum + C - $0);
luhn_single(<<>>, Sum) -> Sum rem 10 =:= 0.

%% RFC 4648, 8, in lower case.
-spec hex_encode(binary()) -> binary().
hex_encode(Bin) -> hex_encode(Bin, <<>>).

hex_encode(<<A:4, B:4, Rest/binary>>, Acc) ->
    hex_encode(Rest, <<Acc/binary, (hex(A)), (hex(B))>>);
hex_encode(<<>>, Acc) -> Acc.

hex(D) when D < 10 -> $0 + D;
hex(D) -> $a - 10 + D.

-spec hex_decode(binary()) -> binary().
hex_decode(Bin) -> hex_decode(Bin, <<>>).

hex_decode(<<A, B, Rest/binary>>, Acc) ->
    hex_decode(Rest, <<Acc/binary, ((unhex(A) bsl 4) bor unhex(B))>>);
hex_decode(<<>>, Acc) -> Acc.

unhex(C) when C >= $0, C =< $9 -> C - $0;
unhex(C) when C >= $a, C =< $f -> C - $a + 10;
unhex(C) when C >= $A, C =< $F -> C - $A + 10.

%% RFC 4648, 4.
-spec base64_encode(binary()) -> binary().
base64_encode(Bin) -> base64_encode(Bin, <<>>).

base64_encode(<<A:6, B:6, C:6, D:6, Rest/binary>>, Acc) ->
    base64_encode(Rest, <<Acc/binary, (b64(A)), (b64(B)), (b64(C)), (b64(D))>>);
base64_encode(<<A:6, B:6, C:4>>, Acc) ->
    <<Acc/binary, (b64(A)), (b64(B)), (b64(C bsl 2)), $=>>;
base64_encode(<<A:6, B:2>>, Acc) -> <<Acc/binary, (b64(A)), (b64(B bsl 4)), $=, $=>>;
base64_encode(<<>>, Acc) -> Acc.

b64(N) when N < 26 -> $A + N;
b64(N) when N < 52 -> $a - 26 + N;
b64(N) when N < 62 -> $0 - 52 + N;
b64(62) -> $+;
b64(63) -> $/.

%% The mask of WebSocket frames (RFC 6455, 5.3).
-spec xor_mask(binary(), 0..16#FFFFFFFF) -> binary().
xor_mask(Bin, Mask) -> xor_mask(Bin, Mask, <<>>).

xor_mask(<<W:32, Rest/binary>>, Mask, Acc) ->
    xor_mask(Rest, Mask, <<Acc/binary, (W bxor Mask):32>>);
xor_mask(<<W:24>>, Mask, Acc) -> <<Acc/binary, (W bxor (Mask bsr 8)):24>>;
xor_mask(<<W:16>>, Mask, Acc) -> <<Acc/binary, (W bxor (Mask bsr 16)):16>>;
xor_mask(<<W:8>>, Mask, Acc) -> <<Acc/binary, (W bxor (Mask bsr 24)):8>>;
xor_mask(<<>>, _, Acc) -> Acc.

%% Code points above 255 become question marks.
-spec utf8_to_latin1(binary()) -> binary().
utf8_to_latin1(Bin) -> utf8_to_latin1(Bin, <<>>).

utf8_to_latin1(<<C/utf8, Rest/binary>>, Acc) when C < 256 ->
    utf8_to_latin1(Rest, <<Acc/binary, C>>);
utf8_to_latin1(<<_/utf8, Rest/binary>>, Acc) -> utf8_to_latin1(Rest, <<Acc/binary, $?>>);
utf8_to_latin1(<<>>, Acc) -> Acc.

%% Pairs of a count and a byte: the text grows, how far is not known before.
-spec rle_expand(binary()) -> binary().
rle_expand(Bin) -> rle_expand(Bin, <<>>).

rle_expand(<<N, B, Rest/binary>>, Acc) -> rle_run(N, B, Rest, Acc);
rle_expand(<<>>, Acc) -> Acc.

rle_run(0, _, Rest, Acc) -> rle_expand(Rest, Acc);
rle_run(N, B, Rest, Acc) -> rle_run(N - 1, B, Rest, <<Acc/binary, B>>).
