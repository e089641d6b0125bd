%% SPDX-License-Identifier: Apache-2.0
%% @doc Packets that only erlang:decode_packet/3 can find: http and its kin,
%% asn1, sunrm, cdr, fcgi, tpkt, ssl_tls. The other types are framed in C.
%%
%% Nothing is taken out of the socket before it is decoded: the bytes are looked
%% at together with a version, and taken only if nobody took any since. So a
%% socket may change hands, mode or packet type in between and loses nothing.
-module(erlane_packet).

-export([pump/1, decode/4, name/1]).

-include("erlane_nif.hrl").

-define(IS_HTTP(T),
        (T =:= ?PB_HTTP orelse T =:= ?PB_HTTP_BIN orelse T =:= ?PB_HTTPH
         orelse T =:= ?PB_HTTPH_BIN)).

%% @doc The socket's packet type by its number.
-spec name(integer()) -> atom() | 1 | 2 | 4.
name(?PB_RAW) -> raw;
name(?PB_1) -> 1;
name(?PB_2) -> 2;
name(?PB_4) -> 4;
name(?PB_LINE) -> line;
name(?PB_ASN1) -> asn1;
name(?PB_SUNRM) -> sunrm;
name(?PB_CDR) -> cdr;
name(?PB_FCGI) -> fcgi;
name(?PB_TPKT) -> tpkt;
name(?PB_SSL) -> ssl_tls;
name(?PB_HTTP) -> http;
name(?PB_HTTP_BIN) -> http_bin;
name(?PB_HTTPH) -> httph;
name(?PB_HTTPH_BIN) -> httph_bin.

%% @doc Delivers the packets that have arrived on an active socket. Called by
%% the lane's poller.
-spec pump(reference()) -> ok.
pump(Ref) ->
    case erlane_nif:peek(Ref) of
        gone -> ok;
        {Bin, Version, Type, Header} -> pump(Ref, Bin, Version, Type, Header)
    end.

pump(Ref, Bin, Version, Type, Header) ->
    case decode(Ref, Type, Header, Bin) of
        {ok, Packet, Rest, Header1} ->
            Message = message(Ref, Type, Packet),
            case erlane_nif:take(Ref, Version, byte_size(Bin) - byte_size(Rest), Header1,
                                 Message) of
                {ok, Version1} when Rest =/= <<>> ->
                    pump(Ref, Rest, Version1, Type, Header1);
                _ ->
                    ok
            end;
        {more, Size} ->
            erlane_nif:need(Ref, Version, Size, true);
        error ->
            erlane_nif:fail(Ref, Version, true)
    end.

%% @doc One packet off the front of Bin as the socket's options want it, with
%% what remains; `more' when it is not complete, with the size it has if that is
%% known, else 0; `error' when it is too long or no packet of this type.
-spec decode(reference(), integer(), boolean(), binary()) ->
          {ok, term(), binary(), boolean()} | {more, non_neg_integer()} | error.
decode(Ref, Type, Header, Bin) ->
    {ok, Max} = option(Ref, ?OPT_PACKET_SIZE, 0),
    {ok, Buffer} = option(Ref, ?OPT_BUFFER, 1460),
    Opts = case Max of
               0 -> [];
               _ -> [{packet_size, Max}]
           end,
    case erlang:decode_packet(decoder(Type, Header), Bin, Opts) of
        {ok, Packet, Rest} ->
            {ok, form(Ref, Type, Packet), Rest, header_next(Type, Header, Packet)};
        {more, _} when ?IS_HTTP(Type), byte_size(Bin) >= Buffer, byte_size(Bin) >= Max -> error;
        {more, Size} when is_integer(Size), Size > 16#4000000 -> error;
        {more, undefined} -> {more, 0};
        {more, Size} -> {more, Size};
        {error, _} -> error
    end.

option(Ref, Key, Default) ->
    case erlane_nif:getopt(Ref, Key) of
        {ok, _} = Ok -> Ok;
        {error, _} -> {ok, Default}
    end.

%% After the first line of a message its headers follow, then the next line.
decoder(?PB_HTTP, true) -> httph;
decoder(?PB_HTTP_BIN, true) -> httph_bin;
decoder(Type, _) -> name(Type).

header_next(Type, _, http_eoh) when Type =:= ?PB_HTTP; Type =:= ?PB_HTTP_BIN -> false;
header_next(_, Header, {http_error, _}) -> Header;
header_next(_, _, _) -> true.

%% http packets are terms, whatever mode says.
form(_Ref, Type, Packet) when ?IS_HTTP(Type) ->
    Packet;
form(Ref, ?PB_SSL, Packet) when is_tuple(Packet) ->
    setelement(2, Packet, {'$inet', erlane_tcp, Ref});
form(Ref, _Type, Packet) ->
    {ok, Mode} = option(Ref, ?OPT_MODE, 1),
    {ok, Size} = option(Ref, ?OPT_HEADER, 0),
    if
        Mode =:= 0 -> binary_to_list(Packet);
        Size =:= 0 -> Packet;
        Size > byte_size(Packet) -> binary_to_list(Packet);
        true ->
            {Head, Tail} = split_binary(Packet, Size),
            binary_to_list(Head) ++ Tail
    end.

message(Ref, Type, Packet) ->
    Socket = {'$inet', erlane_tcp, Ref},
    if
        ?IS_HTTP(Type) ->
            {http, Socket, Packet};
        true ->
            case option(Ref, ?OPT_DELIVER, 1) of
                _ when is_tuple(Packet) -> Packet; % ssl_tls
                {ok, 0} -> {Socket, {data, Packet}};
                _ -> {tcp, Socket, Packet}
            end
    end.
