%% SPDX-License-Identifier: Apache-2.0
%% @doc The options of the page: checked once, at the door, with an error naming the key.
-module(erlane_dash_opts).

-export([check/1, loopback/1, format_error/1]).

-export_type([options/0, config/0, source/0]).

-type source() :: fun(() -> [map()]) | {module(), atom()} | {module(), atom(), [term()]}.

-type options() ::
        #{ip => inet:ip_address() | {local, file:name_all()},
          port => inet:port_number(),
          token => binary() | none,
          hosts => [binary()],
          lanes => {module(), atom()} | none,
          proxies => source() | none,
          interval => pos_integer(),
          history => pos_integer() | none,
          viewers => pos_integer(),
          http => map()}.
%% `ip' (127.0.0.1) and `port' (0, any free one): where it listens. `token': what a reader must
%% know, 16 to 256 characters out of `A-Z a-z 0-9 - . _ ~'; needed, or to be refused with `none',
%% where the address is not a loopback address. `hosts': names, in lower case and without a port,
%% that a browser may reach the page by, beside those of the loopback; where none is told and the
%% address is not a loopback address, by any. `lanes' gives what `erlane_socket:stats/0' gives.
%% `proxies' gives what `erlane_proxy:info/1' gives, as a list of maps with a `name' in each.
%% `interval' (1000): milliseconds between two samples while somebody looks. `history' (`none'):
%% milliseconds between two samples while nobody does. `viewers' (64): so many may look at a time.
%% `http': more options for {@link erlane_http:start/2}, `tls' for instance.

-type config() ::
        #{ip := inet:ip_address() | {local, file:name_all()}, port := inet:port_number(),
          token := binary() | none, hosts := [binary()],
          lanes := {module(), atom()} | none, proxies := source() | none,
          interval := pos_integer(), history := pos_integer() | none,
          viewers := pos_integer(), http := map()}.

-define(MAX_MS, 3600000).

%% @doc Fills in the defaults and checks every value.
-spec check(term()) -> {ok, config()} | {error, {atom(), term()}}.
check(Options) when is_map(Options) ->
    All = maps:merge(defaults(), Options),
    Wrong = [{Key, Why} || {Key, Value} <- lists:sort(maps:to_list(All)),
                           Why <- [value(Key, Value)], Why =/= ok],
    case {Wrong, All} of
        {[First | _], _} -> {error, First};
        {[], #{token := default, ip := Ip}} ->
            case loopback(Ip) of
                true -> {ok, All#{token := none}};
                false -> {error, {token, {needed_for, Ip}}}
            end;
        {[], _} -> {ok, All}
    end;
check(Options) ->
    {error, {options, {not_a_map, Options}}}.

defaults() ->
    #{ip => {127, 0, 0, 1}, port => 0, token => default, hosts => [], lanes => none,
      proxies => none, interval => 1000, history => none, viewers => 64, http => #{}}.

value(ip, {local, _}) -> ok;
value(ip, Ip) -> either(inet:is_ip_address(Ip), Ip);
value(port, N) -> either(is_integer(N) andalso N >= 0 andalso N =< 65535, N);
value(token, T) when T =:= none; T =:= default -> ok;
value(token, T) when is_binary(T), byte_size(T) < 16 -> {shorter_than, 16};
value(token, T) when is_binary(T), byte_size(T) > 256 -> {longer_than, 256};
value(token, T) when is_binary(T) ->
    case re:run(T, "^[A-Za-z0-9._~-]+\\z") of
        nomatch -> only_letters_digits_and_dot_dash_tilde_underscore;
        _ -> ok
    end;
value(hosts, Names) when is_list(Names) ->
    either(lists:all(fun(Name) ->
                             is_binary(Name) andalso
                                 re:run(Name, "^[a-z0-9._-]+\\z", [{capture, none}]) =:= match
                     end, Names), Names);
value(Key, none) when Key =:= lanes; Key =:= proxies; Key =:= history -> ok;
value(lanes, {Module, Function} = Source) ->
    either(is_atom(Module) andalso is_atom(Function), Source);
value(proxies, Source) -> either(source(Source), Source);
value(Key, Ms) when Key =:= interval; Key =:= history ->
    either(is_integer(Ms) andalso Ms >= 10 andalso Ms =< ?MAX_MS, Ms);
value(viewers, N) -> either(is_integer(N) andalso N > 0 andalso N =< 10000, N);
value(http, Map) when is_map(Map) ->
    case [Key || Key <- [handler, ip, port], is_map_key(Key, Map)] of
        [] -> ok;
        [Key | _] -> {not_here, Key}
    end;
value(Key, Value) when Key =:= token; Key =:= http; Key =:= lanes;
                       Key =:= hosts -> {bad_value, Value};
value(_, _) -> unknown_option.

either(true, _) -> ok;
either(false, Value) -> {bad_value, Value}.

source(Fun) when is_function(Fun, 0) -> true;
source({Module, Function}) -> is_atom(Module) andalso is_atom(Function);
source({Module, Function, Args}) ->
    is_atom(Module) andalso is_atom(Function) andalso is_list(Args);
source(_) -> false.

%% @doc Whether only programs on this machine can reach an address.
-spec loopback(inet:ip_address() | {local, file:name_all()}) -> boolean().
loopback({127, _, _, _}) -> true;
loopback({0, 0, 0, 0, 0, 0, 0, 1}) -> true;
loopback({0, 0, 0, 0, 0, 16#ffff, High, _}) -> High bsr 8 =:= 127;
loopback({local, _}) -> true;
loopback(_) -> false.

%% @doc One line of text, without a newline, for an error of {@link check/1} or of listening.
-spec format_error(term()) -> string().
format_error({token, {needed_for, Ip}}) ->
    text("token: ~ts can be reached from outside; give a token, or 'none'", [inet:ntoa(Ip)]);
format_error({Key, unknown_option}) -> text("~ts: there is no such option", [Key]);
format_error({Key, {bad_value, Value}}) -> text("~ts: bad value ~0tp", [Key, Value]);
format_error({Key, Why}) when is_atom(Key) -> text("~ts: ~0tp", [Key, Why]);
format_error(Posix) when is_atom(Posix) ->
    text("~ts (~ts)", [inet:format_error(Posix), Posix]);
format_error(Other) -> text("~0tp", [Other]).

text(Format, Args) ->
    lists:flatten(io_lib:format(Format, Args)).
