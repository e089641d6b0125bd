%% SPDX-License-Identifier: Apache-2.0
%% @doc erlane_tcp for those who name an IPv6 tcp_module. Its sockets are
%% erlane_tcp's, so only what opens and looks up differs.
-module(erlane_tcp6).

-export([listen/2, connect/3, connect/4, fdopen/2]).
-export([family/0, mask/2, parse_address/1, getserv/1, getaddr/1, getaddr/2, getaddrs/1,
         getaddrs/2, translate_ip/1]).

-type error() :: {error, atom()}.

%% @doc As gen_tcp:listen/2.
-spec listen(inet:port_number(), [term()]) -> {ok, erlane_tcp:socket()} | error().
listen(Port, Opts) -> erlane_tcp_open:listen(Port, Opts, inet6).

%% @doc As gen_tcp:connect/3 with a socket address.
-spec connect(map(), [term()], timeout()) -> {ok, erlane_tcp:socket()} | error().
connect(SockAddr, Opts, Timeout) -> erlane_tcp_open:connect(SockAddr, Opts, Timeout).

%% @doc As gen_tcp:connect/4, to one address.
-spec connect(term(), inet:port_number(), [term()], timeout()) ->
          {ok, erlane_tcp:socket()} | error().
connect(Address, Port, Opts, Timeout) ->
    erlane_tcp_open:connect(Address, Port, Opts, Timeout).

%% @doc A socket around an open descriptor.
-spec fdopen(non_neg_integer(), [term()]) -> {ok, erlane_tcp:socket()} | error().
fdopen(Fd, Opts) -> erlane_tcp_open:fdopen(Fd, Opts).

%% @doc This module's family.
-spec family() -> inet6.
family() -> inet6.

%% @doc An address under a netmask.
-spec mask(inet:ip_address(), inet:ip_address()) -> inet:ip_address().
mask(Mask, Ip) -> erlane_tcp:mask(Mask, Ip).

%% @doc An IPv6 address from its text.
-spec parse_address(string()) -> {ok, inet:ip6_address()} | {error, einval}.
parse_address(Text) -> inet:parse_ipv6strict_address(Text).

%% @doc The number of a port, or of a service by its name.
-spec getserv(inet:port_number() | atom()) -> {ok, inet:port_number()} | error().
getserv(Port) -> erlane_tcp:getserv(Port).

%% @doc As getaddr/2 without a limit in time.
-spec getaddr(term()) -> {ok, term()} | error().
getaddr(Address) -> getaddr(Address, false).

%% @doc One address of a host.
-spec getaddr(term(), term()) -> {ok, term()} | error().
getaddr(Address, Timer) ->
    case getaddrs(Address, Timer) of
        {ok, [Ip | _]} -> {ok, Ip};
        Error -> Error
    end.

%% @doc As getaddrs/2 without a limit in time.
-spec getaddrs(term()) -> {ok, [term()]} | error().
getaddrs(Address) -> getaddrs(Address, false).

%% @doc The IPv6 addresses of a host.
-spec getaddrs(term(), term()) -> {ok, [term()]} | error().
getaddrs({local, _} = Address, _Timer) -> {ok, [Address]};
getaddrs(Address, Timer) -> inet:getaddrs_tm(Address, inet6, Timer).

%% @doc `any' and `loopback' as addresses.
-spec translate_ip(term()) -> term().
translate_ip(Ip) -> inet:translate_ip(Ip, inet6).
