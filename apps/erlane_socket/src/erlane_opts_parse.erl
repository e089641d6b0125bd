%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads the option lists of listen and connect.
%%
%% No socket is touched. Where to bind, the descriptor, the backlog and erlane's
%% own settings come out by name; what remains is checked and put in the order in
%% which it is to be applied. As in gen_tcp the last value of a key replaces the
%% former ones (raw options pile up), and the result runs from the last option to
%% the first, with kernel's default options at the end.
-module(erlane_opts_parse).

-export([listen/2, connect/2, check/1]).

-export_type([parsed/0, family/0, why/0]).

-type family() :: inet | inet6 | local.
%% `unknown' and `badarg' make gen_tcp exit with badarg; the others are the
%% error that the call returns.
-type why() :: unknown | badarg | einval | eafnosupport.
-type parsed() ::
        #{family := family(),
          addr := undefined | inet:ip_address() | {local, binary()} | map(),
          port := inet:port_number(),
          fd := integer(),
          backlog := 0..65535,
          netns := undefined | binary(),
          protocol := undefined | tcp | mptcp | non_neg_integer(),
          erlane := #{lane := any | pos_integer()},
          %% in the order in which they are to be applied
          opts := [term()]}.

-record(p, {call :: listen | connect | check,
            family :: family(),
            chosen = undefined :: undefined | family(),
            addr = undefined :: term(),
            addr_key = ip :: ip | ifaddr,
            port = 0 :: term(),
            fd = -1 :: integer(),
            backlog = 5 :: 0..65535,
            netns = undefined :: undefined | binary(),
            protocol = undefined :: undefined | tcp | mptcp | non_neg_integer(),
            erlane = #{lane => any} :: map(),
            opts = [] :: [term()]}).

-define(IS_PORT(P), (is_integer(P) andalso P >= 0 andalso P =< 65535)).

%% @doc Reads the options of a listen. Family is what the socket gets unless an
%% address or a family atom among the options says otherwise.
-spec listen([term()], family()) -> {ok, parsed()} | {error, {Key :: term(), why()}}.
listen(Opts, Family) ->
    parse(Opts, #p{call = listen, family = Family,
                   opts = defaults(inet_default_listen_options)}).

%% @doc Reads the options of a connect to an address of Family. A local address
%% of another family is `eafnosupport'.
-spec connect([term()], family()) -> {ok, parsed()} | {error, {Key :: term(), why()}}.
connect(Opts, Family) ->
    parse(Opts, #p{call = connect, family = Family,
                   opts = defaults(inet_default_connect_options)}).

%% @doc Whether all keys and values are good for erlane on any release; `ok', or
%% the first key that is not.
-spec check([term()]) -> ok | {error, {Key :: term(), why()}}.
check(Opts) ->
    case parse(Opts, #p{call = check, family = inet}) of
        {ok, _} -> ok;
        {error, _} = Error -> Error
    end.

%% Kernel's defaults are not looked at here but when they are applied: gen_tcp
%% answers einval to a bad one, not badarg.
defaults(Env) ->
    case application:get_env(kernel, Env) of
        {ok, List} when is_list(List) -> [{active, true} | lists:keydelete(active, 1, List)];
        {ok, {active, _}} -> [{active, true}];
        {ok, Option} -> [{active, true}, Option];
        undefined -> [{active, true}]
    end.

parse([Opt | Opts], P) ->
    case option(Opt, P) of
        #p{} = P1 -> parse(Opts, P1);
        {error, _} = Error -> Error
    end;
parse([], P) ->
    finish(P);
parse(_, _) ->
    {error, {options, badarg}}.

option(binary, P) -> value(mode, binary, P);
option(list, P) -> value(mode, list, P);
option(Family, #p{chosen = undefined} = P)
  when Family =:= inet; Family =:= inet6; Family =:= local ->
    P#p{chosen = Family};
option(Family, P) when Family =:= inet; Family =:= inet6; Family =:= local ->
    P;
option({raw, Level, Name, Value}, P) ->
    value(raw, {Level, Name, Value}, P);
option({ifaddr, Addr}, P) when is_map(Addr) ->
    sockaddr(ifaddr, Addr, P);
option({ifaddr, Addr}, P) ->
    P#p{addr = Addr, addr_key = ifaddr};
option({ip, Addr}, P) when is_map(Addr) ->
    sockaddr(ip, Addr, P);
option({ip, Addr}, #p{addr = Map} = P) when is_map(Map) ->
    P#p{addr = Map#{addr => Addr}, addr_key = ip};
option({ip, Addr}, P) ->
    P#p{addr = Addr, addr_key = ip};
option({port, Port}, #p{addr = Map} = P) when is_map(Map) ->
    P#p{addr = Map#{port => Port}};
option({port, Port}, P) ->
    P#p{port = Port};
option({fd, Fd}, P) when is_integer(Fd), Fd >= 0 ->
    %% gen_tcp has one place for both: the later of fd and netns counts.
    P#p{fd = Fd, netns = undefined};
option({fd, _}, P) ->
    P#p{fd = -1, netns = undefined};
option({netns, Name}, P) ->
    case erlane_opts_value:netns(Name) of
        Bin when is_binary(Bin) -> P#p{fd = -1, netns = Bin};
        error -> {error, {netns, badarg}}
    end;
option({backlog, N}, #p{call = Call} = P) when Call =/= connect ->
    case N of
        true -> P#p{backlog = 5};
        false -> P#p{backlog = 0};
        _ when is_integer(N) -> P#p{backlog = N band 16#ffff};
        _ -> {error, {backlog, badarg}}
    end;
option({protocol, Proto}, P)
  when Proto =:= tcp; Proto =:= mptcp; is_integer(Proto), Proto >= 0 ->
    P#p{protocol = Proto};
option({protocol, _}, _) ->
    {error, {protocol, badarg}};
option({erlane, Own}, #p{erlane = Old} = P) ->
    case is_map(Own) andalso lists:all(fun own_setting/1, maps:to_list(Own)) of
        true -> P#p{erlane = maps:merge(Old, Own)};
        false -> {error, {erlane, badarg}}
    end;
%% gen_tcp takes these out; a list that is to be checked still has them.
option({Key, Module}, #p{call = check} = P)
  when Key =:= inet_backend, is_atom(Module); Key =:= tcp_module, is_atom(Module) ->
    P;
%% Only setopts and getopts of gen_tcp know dontroute, only listen v6only.
option({dontroute, _}, _) ->
    {error, {dontroute, unknown}};
option({ipv6_v6only, _}, #p{call = connect}) ->
    {error, {ipv6_v6only, unknown}};
option({Key, Value}, P) when is_atom(Key) ->
    value(Key, Value, P);
option({Key, _}, _) ->
    {error, {Key, unknown}};
option(Opt, _) ->
    {error, {Opt, unknown}}.

own_setting({lane, Lane}) -> Lane =:= any orelse is_integer(Lane) andalso Lane > 0;
own_setting(_) -> false.

value(Key, Value, #p{call = Call, opts = Opts} = P) ->
    case erlane_opts_value:encode(Key, Value) of
        {error, Why} -> {error, {Key, Why}};
        [fail] when Call =:= check -> {error, {Key, badarg}};
        _ when Key =:= raw -> P#p{opts = [{raw, Value} | Opts]};
        _ -> P#p{opts = [{Key, Value} | lists:keydelete(Key, 1, Opts)]}
    end.

%%% Addresses

sockaddr(_Key, #{family := local, path := Path} = Map, P) when map_size(Map) =:= 2 ->
    P#p{addr = {local, Path}, addr_key = ifaddr};
sockaddr(Key, #{family := Family} = Map, P) when Family =:= inet; Family =:= inet6 ->
    Full = sockaddr_default(Family),
    case maps:keys(maps:without(maps:keys(Full), Map)) of
        [] -> P#p{addr = maps:merge(Full, Map), addr_key = Key};
        [_ | _] -> {error, {Key, badarg}}
    end;
sockaddr(Key, _, _) ->
    {error, {Key, badarg}}.

sockaddr_default(inet) ->
    #{family => inet, addr => any, port => 0};
sockaddr_default(inet6) ->
    #{family => inet6, addr => any, port => 0, flowinfo => 0, scope_id => 0}.

finish(#p{addr = Addr, addr_key = Key, port = Port} = P) ->
    Family = wanted(P),
    case address(Addr, Port, Family) of
        _ when P#p.call =:= connect, Family =/= P#p.family ->
            {error, {Family, eafnosupport}};
        {ok, Family, Addr1, Port1} ->
            {ok, result(P, Family, Addr1, Port1)};
        {ok, Other, Addr1, Port1} when P#p.chosen =:= undefined, P#p.call =/= connect ->
            {ok, result(P, Other, Addr1, Port1)};
        {ok, _, _, _} when P#p.call =:= connect ->
            {error, {Key, eafnosupport}};
        {ok, _, _, _} ->
            {error, {Key, badarg}};
        {error, port} ->
            {error, {port, badarg}};
        {error, Why} ->
            {error, {Key, Why}}
    end.

wanted(#p{chosen = undefined, family = Family}) -> Family;
wanted(#p{chosen = Family}) -> Family.

result(P, Family, Addr, Port) ->
    #{family => Family, addr => Addr, port => Port, fd => P#p.fd, backlog => P#p.backlog,
      netns => P#p.netns, protocol => P#p.protocol, erlane => P#p.erlane, opts => P#p.opts}.

address(#{family := Family, addr := Addr, port := Port} = Map, _, _) ->
    case ip(Addr, Family) of
        {Family, Ip} when ?IS_PORT(Port) -> {ok, Family, Map#{addr := Ip}, Port};
        {Family, _} -> {error, port};
        _ -> {error, einval}
    end;
address({local, Path}, Port, _) when Port =:= 0 ->
    case local_path(Path) of
        error -> {error, einval};
        Bin -> {ok, local, {local, Bin}, 0}
    end;
address(Addr, Port, local) when Addr =:= undefined, Port =:= 0; Addr =:= any, Port =:= 0 ->
    {ok, local, undefined, 0};
address(loopback, Port, local) when Port =:= 0 ->
    {ok, local, {local, <<>>}, 0};
address(undefined, Port, Family) when ?IS_PORT(Port), Family =/= local ->
    {ok, Family, undefined, Port};
address(_, Port, Family) when not ?IS_PORT(Port); Family =:= local, Port =/= 0 ->
    {error, port};
address({local, _}, _, _) ->
    {error, port};
address(Addr, Port, Family) ->
    case ip(Addr, Family) of
        {Family1, Ip} -> {ok, Family1, Ip, Port};
        error -> {error, badarg}
    end.

ip(any, inet) -> {inet, {0, 0, 0, 0}};
ip(any, inet6) -> {inet6, {0, 0, 0, 0, 0, 0, 0, 0}};
ip(loopback, inet) -> {inet, {127, 0, 0, 1}};
ip(loopback, inet6) -> {inet6, {0, 0, 0, 0, 0, 0, 0, 1}};
ip(Ip, _) when tuple_size(Ip) =:= 4 -> ip(Ip, inet, 255);
ip(Ip, _) when tuple_size(Ip) =:= 8 -> ip(Ip, inet6, 65535);
ip(_, _) -> error.

ip(Ip, Family, Max) ->
    Good = fun(N) -> is_integer(N) andalso N >= 0 andalso N =< Max end,
    case lists:all(Good, tuple_to_list(Ip)) of
        true -> {Family, Ip};
        false -> error
    end.

local_path(Path) when is_binary(Path), byte_size(Path) =< 255 ->
    Path;
local_path(Path) when is_list(Path) ->
    try unicode:characters_to_binary(Path, file:native_name_encoding()) of
        Bin when is_binary(Bin), byte_size(Bin) =< 255 -> Bin;
        _ -> error
    catch
        error:badarg -> error
    end;
local_path(_) ->
    error.
