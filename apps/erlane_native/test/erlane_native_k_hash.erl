%% SPDX-License-Identifier: Apache-2.0
%% Kernels of 64-bit arithmetic over binaries: hashes and checksums, each with its published test
%% vectors in erlane_native_kernels.
-module(erlane_native_k_hash).

-export([fnv1a32/1, fnv1a64/1, xxh64/2, siphash24/3, crc32c/1, adler32/1, byte_sum/1,
         internet_checksum/1, murmur3_32/2]).

-native([fnv1a32/1, fnv1a64/1, xxh64/2, siphash24/3, crc32c/1, adler32/1, byte_sum/1,
         internet_checksum/1, murmur3_32/2]).

-define(M32, 16#FFFFFFFF).
-define(M64, 16#FFFFFFFFFFFFFFFF).

%% Fowler, Noll, Vo (RFC 9923).
-spec fnv1a32(binary()) -> non_neg_integer().
fnv1a32(Bin) -> fnv1a32(Bin, 16#811C9DC5).

fnv1a32(<<B, Rest/binary>>, H) -> fnv1a32(Rest, ((H bxor B) * 16#01000193) band ?M32);
fnv1a32(<<>>, H) -> H.

-spec fnv1a64(binary()) -> non_neg_integer().
fnv1a64(Bin) -> fnv1a64(Bin, 16#CBF29CE484222325).

fnv1a64(<<B, Rest/binary>>, H) -> fnv1a64(Rest, ((H bxor B) * 16#100000001B3) band ?M64);
fnv1a64(<<>>, H) -> H.

%% XXH64, from the specification by Yann Collet (xxHash fast digest algorithm, version 0.1.1).
-define(P1, 16#9E3779B185EBCA87).
-define(P2, 16#C2B2AE3D27D4EB4F).
-define(P3, 16#165667B19E3779F9).
-define(P4, 16#85EBCA77C2B2AE63).
-define(P5, 16#27D4EB2F165667C5).
-define(ROL(X, N), ((((X) bsl N) bor ((X) bsr (64 - N))) band ?M64)).
-define(MUL(X, Y), (((X) * (Y)) band ?M64)).
-define(ADD(X, Y), (((X) + (Y)) band ?M64)).

-spec xxh64(binary(), non_neg_integer()) -> non_neg_integer().
xxh64(Bin, Seed) when byte_size(Bin) >= 32 ->
    xxh64_stripes(Bin, byte_size(Bin), ?ADD(?ADD(Seed, ?P1), ?P2), ?ADD(Seed, ?P2), Seed band ?M64,
                  (Seed - ?P1) band ?M64);
xxh64(Bin, Seed) ->
    xxh64_tail(Bin, ?ADD(?ADD(Seed, ?P5), byte_size(Bin))).

xxh64_stripes(<<A:64/little, B:64/little, C:64/little, D:64/little, Rest/binary>>, Size, A0, B0, C0,
              D0) ->
    xxh64_stripes(Rest, Size, xxh64_round(A0, A), xxh64_round(B0, B), xxh64_round(C0, C),
                  xxh64_round(D0, D));
xxh64_stripes(Rest, Size, A, B, C, D) ->
    Sum = ?ADD(?ADD(?ADD(?ROL(A, 1), ?ROL(B, 7)), ?ROL(C, 12)), ?ROL(D, 18)),
    H = xxh64_merge(xxh64_merge(xxh64_merge(xxh64_merge(Sum, A), B), C), D),
    xxh64_tail(Rest, ?ADD(H, Size)).

xxh64_round(Acc, Lane) ->
    X = ?ADD(Acc, ?MUL(Lane, ?P2)),
    ?MUL(?ROL(X, 31), ?P1).

xxh64_merge(Acc, Lane) -> ?ADD(?MUL((Acc bxor xxh64_round(0, Lane)), ?P1), ?P4).

xxh64_tail(<<Lane:64/little, Rest/binary>>, H) ->
    X = H bxor xxh64_round(0, Lane),
    xxh64_tail(Rest, ?ADD(?MUL(?ROL(X, 27), ?P1), ?P4));
xxh64_tail(<<Lane:32/little, Rest/binary>>, H) ->
    X = H bxor ?MUL(Lane, ?P1),
    xxh64_tail(Rest, ?ADD(?MUL(?ROL(X, 23), ?P2), ?P3));
xxh64_tail(<<B, Rest/binary>>, H) ->
    X = H bxor ?MUL(B, ?P5),
    xxh64_tail(Rest, ?MUL(?ROL(X, 11), ?P1));
xxh64_tail(<<>>, H0) ->
    H1 = ?MUL((H0 bxor (H0 bsr 33)), ?P2),
    H2 = ?MUL((H1 bxor (H1 bsr 29)), ?P3),
    H2 bxor (H2 bsr 32).

%% SipHash-2-4, from the paper of Aumasson and Bernstein (2012). The key is two 64-bit numbers.
-spec siphash24(non_neg_integer(), non_neg_integer(), binary()) -> non_neg_integer().
siphash24(K0, K1, Bin) ->
    sip_words(Bin, byte_size(Bin), K0 bxor 16#736F6D6570736575, K1 bxor 16#646F72616E646F6D,
              K0 bxor 16#6C7967656E657261, K1 bxor 16#7465646279746573).

sip_words(<<M:64/little, Rest/binary>>, Size, V0, V1, V2, V3) ->
    sip_word(M, Rest, Size, V0, V1, V2, V3 bxor M, 2);
sip_words(Rest, Size, V0, V1, V2, V3) ->
    sip_tail(Rest, 0, (Size band 255) bsl 56, V0, V1, V2, V3).

sip_tail(<<B, Rest/binary>>, Shift, M, V0, V1, V2, V3) when Shift < 56 ->
    sip_tail(Rest, Shift + 8, M bor (B bsl Shift), V0, V1, V2, V3);
sip_tail(<<>>, _, M, V0, V1, V2, V3) -> sip_last(M, V0, V1, V2, V3 bxor M, 2).

sip_word(M, Rest, Size, V0, V1, V2, V3, 0) -> sip_words(Rest, Size, V0 bxor M, V1, V2, V3);
sip_word(M, Rest, Size, A0, B0, C0, D0, N) ->
    A1 = ?ADD(A0, B0),
    C1 = ?ADD(C0, D0),
    B1 = ?ROL(B0, 13) bxor A1,
    D1 = ?ROL(D0, 16) bxor C1,
    A2 = ?ADD(?ROL(A1, 32), D1),
    C2 = ?ADD(C1, B1),
    B2 = ?ROL(B1, 17) bxor C2,
    D2 = ?ROL(D1, 21) bxor A2,
    sip_word(M, Rest, Size, A2, B2, ?ROL(C2, 32), D2, N - 1).

sip_last(M, V0, V1, V2, V3, 0) -> sip_end(V0 bxor M, V1, V2 bxor 255, V3, 4);
sip_last(M, A0, B0, C0, D0, N) ->
    A1 = ?ADD(A0, B0),
    C1 = ?ADD(C0, D0),
    B1 = ?ROL(B0, 13) bxor A1,
    D1 = ?ROL(D0, 16) bxor C1,
    A2 = ?ADD(?ROL(A1, 32), D1),
    C2 = ?ADD(C1, B1),
    B2 = ?ROL(B1, 17) bxor C2,
    D2 = ?ROL(D1, 21) bxor A2,
    sip_last(M, A2, B2, ?ROL(C2, 32), D2, N - 1).

sip_end(V0, V1, V2, V3, 0) -> V0 bxor V1 bxor V2 bxor V3;
sip_end(A0, B0, C0, D0, N) ->
    A1 = ?ADD(A0, B0),
    C1 = ?ADD(C0, D0),
    B1 = ?ROL(B0, 13) bxor A1,
    D1 = ?ROL(D0, 16) bxor C1,
    A2 = ?ADD(?ROL(A1, 32), D1),
    C2 = ?ADD(C1, B1),
    B2 = ?ROL(B1, 17) bxor C2,
    D2 = ?ROL(D1, 21) bxor A2,
    sip_end(A2, B2, ?ROL(C2, 32), D2, N - 1).

%% CRC-32C (Castagnoli), reflected, bit by bit: RFC 3720, appendix B.4 has its vectors.
-define(CRC(C), (((C) bsr 1) bxor (16#82F63B78 band -((C) band 1)))).

-spec crc32c(binary()) -> non_neg_integer().
crc32c(Bin) -> crc32c(Bin, ?M32).

crc32c(<<B, Rest/binary>>, C0) ->
    C = C0 bxor B,
    C1 = ?CRC(C), C2 = ?CRC(C1), C3 = ?CRC(C2), C4 = ?CRC(C3),
    C5 = ?CRC(C4), C6 = ?CRC(C5), C7 = ?CRC(C6), C8 = ?CRC(C7),
    crc32c(Rest, C8);
crc32c(<<>>, C) -> C bxor ?M32.

%% Adler-32 (RFC 1950, 8.2).
-spec adler32(binary()) -> non_neg_integer().
adler32(Bin) -> adler32(Bin, 1, 0).

adler32(<<Byte, Rest/binary>>, A0, B) ->
    A = (A0 + Byte) rem 65521,
    adler32(Rest, A, (B + A) rem 65521);
adler32(<<>>, A, B) -> (B bsl 16) bor A.

-spec byte_sum(binary()) -> non_neg_integer().
byte_sum(Bin) -> byte_sum(Bin, 0).

byte_sum(<<B, Rest/binary>>, Sum) -> byte_sum(Rest, Sum + B);
byte_sum(<<>>, Sum) -> Sum.

%% The checksum of the Internet protocols (RFC 1071).
-spec internet_checksum(binary()) -> non_neg_integer().
internet_checksum(Bin) -> internet_checksum(Bin, 0).

internet_checksum(<<Word:16, Rest/binary>>, Sum) -> internet_checksum(Rest, Sum + Word);
internet_checksum(<<Byte>>, Sum) -> internet_fold(Sum + (Byte bsl 8));
internet_checksum(<<>>, Sum) -> internet_fold(Sum).

internet_fold(Sum) when Sum > 16#FFFF -> internet_fold((Sum band 16#FFFF) + (Sum bsr 16));
internet_fold(Sum) -> Sum bxor 16#FFFF.

%% MurmurHash3 for 32 bits, from the description by Austin Appleby.
-spec murmur3_32(binary(), non_neg_integer()) -> non_neg_integer().
murmur3_32(Bin, Seed) -> murmur3_32(Bin, byte_size(Bin), Seed band ?M32).

murmur3_32(<<K:32/little, Rest/binary>>, Size, H0) ->
    H = H0 bxor murmur3_mix(K),
    murmur3_32(Rest, Size, (rol32(H, 13) * 5 + 16#E6546B64) band ?M32);
murmur3_32(<<K:24/little>>, Size, H) -> murmur3_end(H bxor murmur3_mix(K), Size);
murmur3_32(<<K:16/little>>, Size, H) -> murmur3_end(H bxor murmur3_mix(K), Size);
murmur3_32(<<K>>, Size, H) -> murmur3_end(H bxor murmur3_mix(K), Size);
murmur3_32(<<>>, Size, H) -> murmur3_end(H, Size).

murmur3_mix(K) -> (rol32((K * 16#CC9E2D51) band ?M32, 15) * 16#1B873593) band ?M32.

murmur3_end(H0, Size) ->
    H = H0 bxor (Size band ?M32),
    H1 = ((H bxor (H bsr 16)) * 16#85EBCA6B) band ?M32,
    H2 = ((H1 bxor (H1 bsr 13)) * 16#C2B2AE35) band ?M32,
    H2 bxor (H2 bsr 16).

rol32(X, N) -> ((X bsl N) bor (X bsr (32 - N))) band ?M32.
