%% SPDX-License-Identifier: Apache-2.0
-module(prop_erlane_opts).

-include_lib("proper/include/proper.hrl").

-export([prop_total/0, prop_check_agrees/0, prop_types_as_gen_tcp/0]).

%% No term makes the door crash, and an error has a key and a reason.
prop_total() ->
    ?FORALL({Opts, Family}, {oneof([list(option()), term(), improper()]), family()},
            lists:all(fun well_formed/1,
                      [erlane_opts:listen(Opts, Family), erlane_opts:connect(Opts, Family),
                       erlane_opts:check(Opts)])).

%% What check/1 finds good no listen refuses because of a key or a value's type.
prop_check_agrees() ->
    ?FORALL(Opts, list(option()),
            case erlane_opts:check(Opts) of
                ok -> element(1, erlane_opts:listen(lists:filter(fun stays/1, Opts), inet)) =:= ok;
                {error, {_, _}} -> true
            end).

%% gen_tcp takes these out before a module sees the list.
stays({Key, _}) -> Key =/= tcp_module andalso Key =/= inet_backend;
stays(_) -> true.

%% A value that the door takes for a value of the wrong type gets einval from
%% stock, and one it takes is refused by stock only when the kernel refuses it.
prop_types_as_gen_tcp() ->
    ?FORALL({Key, Value}, {own_key(), value()},
            begin
                {ok, S} = gen_tcp:listen(0, [{active, false}]),
                Stock = inet:setopts(S, [{Key, Value}]),
                ok = gen_tcp:close(S),
                case erlane_opts_value:encode(Key, Value) of
                    {error, badarg} -> Stock =:= {error, einval};
                    [fail] -> Stock =:= {error, einval};
                    [_ | _] -> Stock =:= ok
                end
            end).

well_formed(ok) -> true;
well_formed({ok, #{family := _, addr := _, port := P, fd := _, opts := Opts}}) ->
    is_integer(P) andalso is_list(Opts);
well_formed({error, {_, Why}}) ->
    lists:member(Why, [unknown, badarg, einval, eafnosupport]);
well_formed(_) -> false.

family() -> oneof([inet, inet6, local]).

improper() -> ?LET({L, T}, {list(option()), term()}, L ++ [{nodelay, true} | T]).

option() ->
    frequency([{6, {key(), value()}}, {1, oneof([binary, list, inet, inet6, local])},
               {2, {oneof([ip, ifaddr]), address()}},
               {1, {raw, value(), value(), value()}}, {1, {term(), term()}}, {1, term()}]).

address() ->
    oneof([any, loopback, {127, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 1}, {local, value()},
           ?LET(L, list(integer(-1, 300)), list_to_tuple(L)),
           ?LET({F, A, P, X}, {oneof([inet, inet6, local, foo]), value(), value(), value()},
                oneof([#{family => F}, #{family => F, addr => A}, #{family => F, port => P},
                       #{family => F, path => X}, #{family => F, X => A}]))]).

key() ->
    oneof([port, fd, backlog, netns, protocol, erlane, tcp_module, inet_backend, linger, tos,
           recbuf, bind_to_device, raw, keepidle, dontroute, pktoptions, nonsense | own_keys()]).

own_key() -> oneof(own_keys()).

own_keys() ->
    [mode, packet, header, deliver, packet_size, line_delimiter, buffer, exit_on_close,
     show_econnreset, high_watermark, low_watermark, send_timeout, send_timeout_close,
     delay_send, high_msgq_watermark, low_msgq_watermark, debug].

value() ->
    oneof([boolean(), integer(), largeint(), float(), binary(), atom(), list(byte()),
           oneof([infinity, once, list, binary, term, port, raw, line, http, 0, 1, 2, 4]),
           {boolean(), integer()}, {integer(), integer(), binary()}, #{}]).
