%% SPDX-License-Identifier: Apache-2.0
%% @doc Addresses a proxy listens on or connects to: read, looked up, written. No state.
-module(erlane_proxy_address).

-export([parse/1, resolve/1, format/1, tcp_module/1]).

-export_type([address/0, resolved/0]).

-type address() :: {Host :: inet:ip_address() | inet:hostname(), inet:port_number()}
                 | {local, Path :: string() | binary()}.
-type resolved() :: {inet:ip_address(), inet:port_number()} | {local, string() | binary()}.

%% A path of a Unix socket must fit sockaddr_un's 108 bytes with its final zero.
-define(MAX_PATH, 107).

%% @doc Reads `HOST:PORT', `[IPV6]:PORT' or `unix:PATH'.
-spec parse(string()) -> {ok, address()} | {error, Why :: string()}.
parse("unix:" ++ Path) ->
    case Path of
        "" -> {error, "a path must follow unix:"};
        _ -> {ok, {local, Path}}
    end;
parse("[" ++ Rest) ->
    case string:split(Rest, "]:") of
        [Host, Port] ->
            case inet:parse_ipv6strict_address(Host) of
                {ok, IP} -> with_port(IP, Port);
                {error, einval} -> {error, "no IPv6 address between the brackets"}
            end;
        _ ->
            {error, "an IPv6 address is written [ADDRESS]:PORT"}
    end;
parse(Text) ->
    case string:split(Text, ":", all) of
        [_] -> {error, "the port is missing (HOST:PORT)"};
        ["", _] -> {error, "the host is missing (HOST:PORT)"};
        [Host, Port] -> with_port(Host, Port);
        _ -> {error, "an IPv6 address is written [ADDRESS]:PORT"}
    end.

with_port(Host, Text) ->
    case string:to_integer(Text) of
        {Port, ""} when Port >= 0, Port =< 65535 -> {ok, {Host, Port}};
        _ -> {error, "the port must be a number from 0 to 65535"}
    end.

%% @doc Turns a host name into an address: IPv4 if there is one, else IPv6.
-spec resolve(address()) -> {ok, resolved()} | {error, {inet:posix() | badarg, term()}}.
resolve({local, Path}) ->
    try iolist_size(Path) of
        N when N > 0, N =< ?MAX_PATH -> {ok, {local, Path}};
        _ -> {error, {enametoolong, Path}}
    catch
        error:badarg -> {error, {badarg, Path}}
    end;
resolve({Host, Port}) when is_integer(Port), Port >= 0, Port =< 65535 ->
    case lookup(Host, [inet, inet6]) of
        {ok, IP} -> {ok, {IP, Port}};
        {error, Reason} -> {error, {Reason, Host}}
    end;
resolve(Other) ->
    {error, {badarg, Other}}.

lookup(IP, _Families) when is_tuple(IP) ->
    case inet:ntoa(IP) of
        {error, einval} -> {error, badarg};
        _ -> {ok, IP}
    end;
lookup(Host, _Families) when not (is_list(Host) orelse is_atom(Host)) ->
    {error, badarg};
lookup(Host, [Family | Rest]) ->
    case inet:getaddr(Host, Family) of
        {ok, IP} -> {ok, IP};
        {error, einval} -> {error, badarg};
        {error, Reason} when Rest =:= [] -> {error, Reason};
        {error, _} -> lookup(Host, Rest)
    end.

%% @doc The text {@link parse/1} reads.
-spec format(address()) -> string().
format({local, Path}) ->
    lists:flatten(io_lib:format("unix:~ts", [Path]));
format({IP, Port}) when tuple_size(IP) =:= 8 ->
    lists:flatten(io_lib:format("[~s]:~b", [inet:ntoa(IP), Port]));
format({IP, Port}) when tuple_size(IP) =:= 4 ->
    lists:flatten(io_lib:format("~s:~b", [inet:ntoa(IP), Port]));
format({Host, Port}) ->
    lists:flatten(io_lib:format("~ts:~b", [Host, Port])).

%% @doc The module that gen_tcp is to use for this address.
-spec tcp_module(resolved()) -> module().
tcp_module({IP, _Port}) when tuple_size(IP) =:= 8 -> erlane_tcp6;
tcp_module(_) -> erlane_tcp.
