%% SPDX-License-Identifier: Apache-2.0
%% @doc Socket options that the kernel keeps: names, numbers, value encodings.
%%
%% Pure functions. The numbers are those of Linux's generic socket ABI (x86,
%% ARM, RISC-V, POWER, s390). An option is `strict' if gen_tcp answers einval
%% when the kernel refuses it, and `lenient' if gen_tcp hides the refusal.
-module(erlane_opts_kernel).

-export([encode/2, request/1, decode/2, encode_raw/3, request_raw/3, pktoptions/1,
         decode_pktoptions/1, constant/1]).

-export_type([action/0, request/0]).

-type action() :: {kernel, Level :: integer(), Name :: integer(), Value :: binary(),
                   strict | lenient}.
-type request() :: {Level :: integer(), Name :: integer(), MaxSize :: non_neg_integer()}.

-define(SOL_SOCKET, 1).
-define(IPPROTO_IP, 0).
-define(IPPROTO_TCP, 6).
-define(IPPROTO_IPV6, 41).
-define(IP_TOS, 1).
-define(IP_TTL, 2).
-define(IPV6_TCLASS, 67).
-define(IFNAMSIZ, 16).
%% What gen_tcp's reply buffer of 64 KB leaves for one raw value.
-define(MAX_RAW, 65522).
%% What erlane_nif:getsockopt/4 reads at most; no TCP socket has a longer value.
-define(MAX_READ, 1024).

%% @doc What to hand to setsockopt for `{Key, Value}'; `undefined' if Key is no
%% option of the kernel.
-spec encode(Key :: atom(), Value :: term()) -> action() | {error, badarg} | undefined.
encode(Key, Value) ->
    case table(Key) of
        {Type, Level, Name, Strict} ->
            case value(Type, Value) of
                error -> {error, badarg};
                Bin -> {kernel, Level, Name, Bin, Strict}
            end;
        undefined ->
            undefined
    end.

%% @doc What to ask getsockopt for Key.
-spec request(Key :: atom()) -> request() | undefined.
request(Key) ->
    case table(Key) of
        {Type, Level, Name, _} -> {Level, Name, max_size(Type)};
        undefined -> undefined
    end.

%% @doc The value of Key from the bytes that getsockopt gave.
-spec decode(Key :: atom(), binary()) -> term().
decode(Key, Bin) ->
    {Type, _, _, _} = table(Key),
    decode_value(Type, Bin).

%% @doc A raw option. Like in gen_tcp, numbers are cut to 32 bits and the
%% kernel's refusal is hidden.
-spec encode_raw(term(), term(), term()) -> action() | {error, badarg}.
encode_raw(Level, Name, Value)
  when is_integer(Level), is_integer(Name), is_binary(Value) ->
    {kernel, int32(Level), int32(Name), Value, lenient};
encode_raw(_, _, _) ->
    {error, badarg}.

%% @doc A raw request: the size, or a binary of the size wanted.
-spec request_raw(term(), term(), term()) -> request() | {error, badarg}.
request_raw(Level, Name, Bin) when is_binary(Bin) ->
    request_raw(Level, Name, byte_size(Bin));
request_raw(Level, Name, Size)
  when is_integer(Level), is_integer(Name), is_integer(Size), Size >= 0,
       Size band 16#ffffffff =< ?MAX_RAW ->
    {int32(Level), int32(Name), min(?MAX_READ, Size band 16#ffffffff)};
request_raw(_, _, _) ->
    {error, badarg}.

%% @doc Where a connection's received control data is, by address family.
-spec pktoptions(inet | inet6 | local) -> request() | {error, einval}.
pktoptions(inet) -> {?IPPROTO_IP, 9, pktoptions_size()};
pktoptions(inet6) -> {?IPPROTO_IPV6, 6, pktoptions_size()};
pktoptions(local) -> {error, einval}.

%% Room for two control messages with an int each, as struct cmsghdr pads them.
pktoptions_size() ->
    2 * (align(cmsg_header()) + align(4)).

%% @doc The control messages that gen_tcp knows: tos, tclass and ttl.
-spec decode_pktoptions(binary()) -> [{tos | tclass | ttl, integer()}].
decode_pktoptions(Bin) ->
    Word = erlang:system_info(wordsize) * 8,
    Header = cmsg_header(),
    case Bin of
        <<Len:Word/native, Level:32/signed-native, Type:32/signed-native, _/binary>>
          when Len >= Header, Len =< byte_size(Bin) ->
            Data = binary:part(Bin, Header, Len - Header),
            Skip = min(align(Len), byte_size(Bin)),
            Rest = binary:part(Bin, Skip, byte_size(Bin) - Skip),
            case cmsg(Level, Type) of
                undefined -> decode_pktoptions(Rest);
                Key -> [{Key, cmsg_int(Data)} | decode_pktoptions(Rest)]
            end;
        _ ->
            []
    end.

cmsg(?IPPROTO_IP, ?IP_TOS) -> tos;
cmsg(?IPPROTO_IP, ?IP_TTL) -> ttl;
cmsg(?IPPROTO_IPV6, ?IPV6_TCLASS) -> tclass;
cmsg(_, _) -> undefined.

cmsg_int(<<V:8>>) -> V;
cmsg_int(<<V:32/signed-native>>) -> V;
cmsg_int(_) -> 0.

cmsg_header() -> erlang:system_info(wordsize) + 8.

align(N) ->
    Word = erlang:system_info(wordsize),
    (N + Word - 1) div Word * Word.

%% @doc Numbers that the door needs by name, to treat these options specially.
-spec constant(tos | priority | recbuf) -> {Level :: integer(), Name :: integer()}.
constant(Key) ->
    {_, Level, Name, _} = table(Key),
    {Level, Name}.

table(reuseaddr) -> {bool, ?SOL_SOCKET, 2, lenient};
table(dontroute) -> {bool, ?SOL_SOCKET, 5, lenient};
table(sndbuf) -> {int, ?SOL_SOCKET, 7, lenient};
table(recbuf) -> {int, ?SOL_SOCKET, 8, lenient};
table(keepalive) -> {bool, ?SOL_SOCKET, 9, lenient};
table(priority) -> {int, ?SOL_SOCKET, 12, strict};
table(linger) -> {linger, ?SOL_SOCKET, 13, lenient};
table(reuseport) -> {bool, ?SOL_SOCKET, 15, lenient};
%% On Linux SO_REUSEPORT balances; there is no separate option.
table(reuseport_lb) -> {bool, ?SOL_SOCKET, 15, lenient};
table(bind_to_device) -> {device, ?SOL_SOCKET, 25, strict};
table(tos) -> {int, ?IPPROTO_IP, ?IP_TOS, strict};
table(ttl) -> {int, ?IPPROTO_IP, ?IP_TTL, strict};
table(recvttl) -> {bool, ?IPPROTO_IP, 12, strict};
table(recvtos) -> {bool, ?IPPROTO_IP, 13, strict};
table(nodelay) -> {bool, ?IPPROTO_TCP, 1, lenient};
table(nopush) -> {bool, ?IPPROTO_TCP, 3, lenient};
table(keepidle) -> {int, ?IPPROTO_TCP, 4, lenient};
table(keepintvl) -> {int, ?IPPROTO_TCP, 5, lenient};
table(keepcnt) -> {int, ?IPPROTO_TCP, 6, lenient};
table(user_timeout) -> {uint, ?IPPROTO_TCP, 18, lenient};
table(ipv6_v6only) -> {bool, ?IPPROTO_IPV6, 26, strict};
table(recvtclass) -> {bool, ?IPPROTO_IPV6, 66, strict};
table(tclass) -> {int, ?IPPROTO_IPV6, ?IPV6_TCLASS, strict};
table(_) -> undefined.

value(bool, true) -> <<1:32/native>>;
value(bool, false) -> <<0:32>>;
value(int, V) when is_integer(V) -> <<V:32/native>>;
value(uint, V) when is_integer(V), V >= 0 -> <<V:32/native>>;
value(linger, {On, Seconds}) when is_boolean(On), is_integer(Seconds) ->
    <<(value(bool, On))/binary, Seconds:32/native>>;
value(device, Name) when is_binary(Name), byte_size(Name) =< ?IFNAMSIZ ->
    %% Padded, so that an empty name unbinds.
    <<Name/binary, 0:((?IFNAMSIZ - byte_size(Name)) * 8)>>;
value(device, Name) when is_binary(Name) ->
    %% No device has such a name: let the kernel say so, as gen_tcp does.
    binary:part(Name, 0, ?IFNAMSIZ);
value(_, _) ->
    error.

max_size(linger) -> 8;
max_size(device) -> ?IFNAMSIZ;
max_size(_) -> 4.

decode_value(bool, Bin) -> decode_value(int, Bin) =/= 0;
decode_value(int, <<V:32/signed-native>>) -> V;
decode_value(int, <<V:8>>) -> V;
decode_value(uint, <<V:32/native>>) -> V;
decode_value(linger, <<On:32/native, Seconds:32/signed-native>>) -> {On =/= 0, Seconds};
decode_value(device, Bin) -> hd(binary:split(Bin, <<0>>)).

int32(V) ->
    <<Int:32/signed>> = <<V:32>>,
    Int.
