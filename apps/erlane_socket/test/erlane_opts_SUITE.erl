%% SPDX-License-Identifier: Apache-2.0
%% The option door without a socket of ours: what it decides is compared with
%% what stock gen_tcp answers, its kernel encodings are tried on plain sockets.
-module(erlane_opts_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([setopts_as_gen_tcp/1, kernel_values_as_gen_tcp/1, own_values_as_gen_tcp/1,
         listen_as_gen_tcp/1, connect_as_gen_tcp/1, union/1, keys_named/1, not_a_list/1,
         order/1, last_value_wins/1, defaults/1, bad_defaults_kept/1, family/1,
         addresses/1, local_addresses/1, fd_and_netns/1, own_settings/1, raw/1,
         pktoptions/1, properties/1]).

all() ->
    [setopts_as_gen_tcp, kernel_values_as_gen_tcp, own_values_as_gen_tcp,
     listen_as_gen_tcp, connect_as_gen_tcp, union, keys_named, not_a_list, order,
     last_value_wins, defaults, bad_defaults_kept, family, addresses, local_addresses,
     fd_and_netns, own_settings, raw, pktoptions, properties].

init_per_testcase(_, Config) ->
    Config.

end_per_testcase(_, _) ->
    application:unset_env(kernel, inet_default_listen_options),
    application:unset_env(kernel, inet_default_connect_options).

%%% Compared with gen_tcp

%% Every value of the table gets from the door what inet:setopts answers.
setopts_as_gen_tcp(_) ->
    each_family(
      fun(Family, Stock, Plain) ->
              [?assertEqual({Family, K, V, inet:setopts(Stock, [{K, V}])},
                            {Family, K, V, decide(Plain, K, V)})
               || {K, Vs} <- values(), stock_knows(Stock, K), V <- Vs]
      end).

%% A kernel option that is set through the door's bytes reads, through the
%% door's decoding, like one that stock has set.
kernel_values_as_gen_tcp(_) ->
    each_family(
      fun(Family, Stock, Plain) ->
              [begin
                   _ = inet:setopts(Stock, [{K, V}]),
                   _ = decide(Plain, K, V),
                   ?assertEqual({Family, K, V, inet:getopts(Stock, [K])},
                                {Family, K, V, {ok, read(Plain, K)}})
               end
               || {K, Vs} <- values(), stock_knows(Stock, K),
                  erlane_opts_kernel:request(K) =/= undefined, V <- Vs]
      end).

%% An option of the socket itself reads like stock's after the same setopts.
own_values_as_gen_tcp(_) ->
    each_family(
      fun(_, Stock, _) ->
              [begin
                   ok = inet:setopts(Stock, [{K, V}]),
                   ?assertEqual({K, V, inet:getopts(Stock, [K])},
                                {K, V, {ok, [{K, erlane_opts_value:decode(K, Int)}]}})
               end
               || {K, Vs} <- values(), stock_knows(Stock, K), K =/= line_delimiter,
                  K =/= active, V <- Vs, {ok, Int} <- [own_int(K, V)]]
      end).

own_int(K, V) ->
    case erlane_opts_value:encode(K, V) of
        [{own, N, Int}] -> N = erlane_opts_value:number(K), {ok, Int};
        [{high, _, _, Int}] -> {ok, Int};
        [{low, _, _, Int}] -> {ok, Int};
        _ -> none
    end.

%% A list that stock's listen takes is taken, one that it refuses is refused.
listen_as_gen_tcp(_) ->
    compare_lists(
      fun(Opts) -> catch gen_tcp:listen(0, Opts) end,
      fun(Opts) -> erlane_opts:listen([{port, 0} | Opts], inet) end,
      [line_delimiter]).

%% Stock takes a sockaddr as local address only beside a sockaddr as remote one.
connect_as_gen_tcp(_) ->
    {ok, L} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}, {backlog, 1024}]),
    {ok, Port} = inet:port(L),
    compare_lists(
      %% gen_tcp would turn an einval of the kernel into the exit of a bad list.
      fun(Opts) -> catch inet_tcp:connect({127, 0, 0, 1}, Port, Opts, 5000) end,
      fun(Opts) -> erlane_opts:connect(Opts, inet) end,
      [ifaddr]),
    gen_tcp:close(L).

%% Keys that only other releases know are left out; the rest must agree. A
%% kernel refusal is an error of the call, not of the list.
compare_lists(Stock, Ours, Extra) ->
    New = Extra ++ [nopush, read_ahead, reuseport, reuseport_lb, exclusiveaddruse, keepidle,
                    keepintvl, keepcnt, user_timeout, protocol],
    Values = [[{K, V}] || {K, Vs} <- values(), V <- Vs],
    Others = [[binary], [list], [{nonsense, 1}], [nonsense], ["mode"], [{"mode", list}], [1],
              [{backlog, 7}], [{backlog, true}], [{port, 70000}], [{port, -1}], [{port, a}],
              [{ip, {127, 0, 0, 1}}], [{ip, any}], [{ip, loopback}], [{ip, {1, 2, 3, 256}}],
              [{ip, {1, 2, 3}}], [{ip, "127.0.0.1"}], [{ip, foo}], [{ifaddr, {127, 0, 0, 1}}],
              [{ifaddr, #{family => inet, addr => loopback}}],
              [{ifaddr, #{family => inet}}, {ip, {127, 0, 0, 1}}],
              [{fd, foo}], [{netns, foo}], [{dontroute, true}], [{broadcast, true}],
              [{raw, 6, 1, <<1:32/native>>}], [{raw, {6, 1, <<1:32/native>>}}],
              [{raw, 6, 1}], [{raw, 6, 1, 1}]],
    [begin
         Answer = Stock(Opts),
         close(Answer),
         ?assertEqual({Opts, class(Answer)}, {Opts, class(Ours(Opts), Answer)})
     end || Opts <- Values ++ Others, not known_elsewhere(Opts, New)].

known_elsewhere([{Key, _} | _], New) -> lists:member(Key, New);
known_elsewhere(_, _) -> false.

class({'EXIT', _}) -> refused;
class({ok, _}) -> taken;
class({error, _}) -> taken.

class({ok, #{opts := _}}, _) -> taken;
class({error, {_, Why}}, {error, Why}) -> taken;
class({error, {_, _}}, _) -> refused.

close({ok, Socket}) -> gen_tcp:close(Socket);
close(_) -> ok.

%%% Pure

%% All keys of the union are good, whatever the release.
union(_) ->
    Opts = [{active, once}, {mode, binary}, binary, list, {packet, http_bin}, {packet_size, 9},
            {header, 0}, {line_delimiter, $;}, {deliver, term}, {buffer, 10}, {recbuf, 10},
            {sndbuf, 10}, {nodelay, true}, {nopush, true}, {keepalive, true}, {keepidle, 5},
            {keepintvl, 5}, {keepcnt, 5}, {user_timeout, 1000}, {linger, {true, 5}},
            {reuseaddr, true}, {reuseport, true}, {reuseport_lb, true}, {priority, 1},
            {tos, 0}, {ttl, 64}, {tclass, 0}, {recvtos, true}, {recvttl, true},
            {recvtclass, true}, {bind_to_device, <<"lo">>}, {raw, 6, 1, <<1:32/native>>},
            {send_timeout, infinity}, {send_timeout_close, true}, {delay_send, true},
            {high_watermark, 1}, {low_watermark, 1}, {exit_on_close, false},
            {show_econnreset, true}, {read_ahead, false}, {ip, any}, {ifaddr, {127, 0, 0, 1}},
            {port, 0}, {fd, 7}, {protocol, mptcp}, {netns, "blue"}, {debug, true},
            {exclusiveaddruse, true}, {high_msgq_watermark, 1}, {low_msgq_watermark, 1},
            {erlane, #{}}],
    Listen = [{backlog, 5}, {ipv6_v6only, true}],
    [begin
         ?assertMatch({_, {ok, _}}, {Opt, erlane_opts:listen([Opt], inet)}),
         ?assertMatch({_, {ok, _}}, {Opt, erlane_opts:connect([Opt], inet)})
     end || Opt <- Opts],
    [?assertMatch({_, {ok, _}}, {Opt, erlane_opts:listen([Opt], inet)}) || Opt <- Listen],
    ok = erlane_opts:check([{inet_backend, inet}, {tcp_module, erlane_tcp} | Opts ++ Listen]).

%% The error names the first bad key and says whether key or value is bad.
keys_named(_) ->
    Cases = [{[{nodelay, 1}], {nodelay, badarg}},
             {[{nodelay, true}, {no_delay, true}, {packet, 3}], {no_delay, unknown}},
             {[{packet, 3}], {packet, badarg}},
             {[frobnicate], {frobnicate, unknown}},
             {[{active, 40000}], {active, badarg}},
             {[{active, multi}], {active, badarg}},
             {[{raw, a, 1, <<>>}], {raw, badarg}},
             {[{linger, true}], {linger, badarg}},
             {[{backlog, many}], {backlog, badarg}},
             {[{pktoptions, []}], {pktoptions, unknown}},
             {[{port, 65536}], {port, badarg}},
             {[{ip, {1, 2, 3, 400}}], {ip, badarg}},
             {[{netns, 7}], {netns, badarg}},
             {[{protocol, sctp}], {protocol, badarg}},
             {[{low_msgq_watermark, 0}], {low_msgq_watermark, badarg}},
             {[{erlane, #{lane => 0}}], {erlane, badarg}}],
    [?assertEqual({Opts, {error, Why}}, {Opts, erlane_opts:check(Opts)}) || {Opts, Why} <- Cases],
    ?assertEqual({error, {backlog, unknown}}, erlane_opts:connect([{backlog, 5}], inet)),
    ?assertEqual({error, {tcp_module, unknown}},
                 erlane_opts:listen([{tcp_module, erlane_tcp}], inet)).

not_a_list(_) ->
    [begin
         ?assertEqual({error, {options, badarg}}, erlane_opts:check(Term)),
         ?assertEqual({error, {options, badarg}}, erlane_opts:listen(Term, inet)),
         ?assertEqual({error, {options, badarg}}, erlane_opts:connect(Term, inet))
     end || Term <- [foo, #{}, <<"x">>, [{nodelay, true} | {nodelay, true}]]].

%% The last option is applied first, so the first watermark drags the second.
order(_) ->
    Opts = [{low_watermark, 5000}, {high_watermark, 100}],
    ?assertEqual([{high_watermark, 100}, {low_watermark, 5000}, {active, true}],
                 opts(listen, Opts)),
    {ok, L} = gen_tcp:listen(0, Opts),
    {ok, [{_, 5000}, {_, 5000}]} = inet:getopts(L, [high_watermark, low_watermark]),
    gen_tcp:close(L).

last_value_wins(_) ->
    ?assertEqual([{packet, 2}, {mode, list}, {active, 3}],
                 opts(listen, [{active, 3}, {packet, 1}, binary, list, {packet, 2}])),
    ?assertEqual([{active, false}], opts(connect, [{active, 3}, {active, false}])),
    Raw = {6, 1, <<1:32/native>>},
    ?assertEqual([{raw, Raw}, {raw, Raw}, {active, true}],
                 opts(listen, [{raw, 6, 1, <<1:32/native>>}, {raw, Raw}])).

%% Kernel's defaults come last and give way to the same key; their active does not count.
defaults(_) ->
    Set = fun(Value) ->
                  application:set_env(kernel, inet_default_listen_options, Value),
                  opts(listen, [{packet, 4}])
          end,
    ?assertEqual([{packet, 4}, {active, true}, {nodelay, true}],
                 Set([{nodelay, true}, {active, false}])),
    ?assertEqual([{packet, 4}, {active, true}, {nodelay, true}], Set({nodelay, true})),
    ?assertEqual([{packet, 4}, {active, true}], Set({active, once})),
    ?assertEqual([{packet, 4}, {active, true}], Set([{packet, 2}])),
    ?assertEqual([{active, true}], opts(connect, [])),
    application:set_env(kernel, inet_default_connect_options, [{keepalive, true}]),
    ?assertEqual([{active, true}, {keepalive, true}], opts(connect, [])).

%% A bad default is no error of the caller's list: gen_tcp finds it when it sets it.
bad_defaults_kept(_) ->
    application:set_env(kernel, inet_default_listen_options, [{nonsense, 1}]),
    {error, einval} = gen_tcp:listen(0, []),
    ?assertEqual([{active, true}, {nonsense, 1}], opts(listen, [])).

family(_) ->
    V6 = {0, 0, 0, 0, 0, 0, 0, 1},
    Family = fun(Opts, Default) ->
                     {ok, #{family := F}} = erlane_opts:listen(Opts, Default),
                     F
             end,
    ?assertEqual(inet, Family([], inet)),
    ?assertEqual(inet6, Family([], inet6)),
    ?assertEqual(inet6, Family([inet6], inet)),
    ?assertEqual(inet6, Family([inet6, inet], inet)),
    ?assertEqual(inet6, Family([{ip, V6}], inet)),
    ?assertEqual(inet6, Family([{ifaddr, #{family => inet6}}], inet)),
    ?assertEqual(local, Family([{ip, {local, "/x"}}], inet)),
    ?assertEqual({error, {ip, badarg}}, erlane_opts:listen([inet, {ip, V6}], inet)),
    ?assertEqual({error, {ifaddr, badarg}},
                 erlane_opts:listen([inet6, {ifaddr, {127, 0, 0, 1}}], inet)),
    ?assertEqual({error, {ip, eafnosupport}}, erlane_opts:connect([{ip, V6}], inet)),
    ?assertEqual({error, {inet6, eafnosupport}}, erlane_opts:connect([inet6], inet)).

addresses(_) ->
    Addr = fun(Opts, Default) ->
                   {ok, #{addr := A, port := P}} = erlane_opts:listen([{port, 80} | Opts], Default),
                   {A, P}
           end,
    ?assertEqual({undefined, 80}, Addr([], inet)),
    ?assertEqual({{127, 0, 0, 1}, 80}, Addr([{ip, loopback}], inet)),
    ?assertEqual({{0, 0, 0, 0, 0, 0, 0, 0}, 80}, Addr([{ip, any}], inet6)),
    ?assertEqual({{127, 0, 0, 1}, 81}, Addr([{port, 81}, {ip, {127, 0, 0, 1}}], inet)),
    %% A sockaddr brings its own port; what follows changes it.
    ?assertEqual({#{family => inet, addr => {0, 0, 0, 0}, port => 0}, 0},
                 Addr([{ifaddr, #{family => inet}}], inet)),
    ?assertEqual({#{family => inet6, addr => {0, 0, 0, 0, 0, 0, 0, 1}, port => 9,
                    flowinfo => 0, scope_id => 2}, 9},
                 Addr([{ifaddr, #{family => inet6, scope_id => 2}}, {ip, loopback}, {port, 9}],
                      inet)),
    [?assertMatch({_, {error, {_, _}}}, {Bad, erlane_opts:listen([{ifaddr, Bad}], inet)})
     || Bad <- [#{}, #{family => inet, extra => 1}, #{family => foo},
                #{family => inet, addr => {1, 2, 3, 4, 5, 6, 7, 8}},
                #{family => inet, port => 65536}, {256, 0, 0, 1}, {a, b, c, d}, "::1", 5]].

local_addresses(_) ->
    Addr = fun(Opts) ->
                   {ok, #{family := local, addr := A, port := 0}} =
                       erlane_opts:listen([{port, 0} | Opts], inet),
                   A
           end,
    ?assertEqual({local, <<"/tmp/s">>}, Addr([{ip, {local, "/tmp/s"}}])),
    ?assertEqual({local, <<0, "abstract">>}, Addr([{ifaddr, {local, <<0, "abstract">>}}])),
    ?assertEqual({local, <<"/p">>}, Addr([{ifaddr, #{family => local, path => "/p"}}])),
    ?assertEqual({local, <<>>}, Addr([local, {ip, loopback}])),
    ?assertEqual({error, {port, badarg}},
                 erlane_opts:listen([{port, 80}, {ip, {local, "/tmp/s"}}], inet)),
    [?assertEqual({Bad, {error, {ip, einval}}},
                  {Bad, erlane_opts:listen([{ip, {local, Bad}}], inet)})
     || Bad <- [5, foo, [-1], lists:duplicate(256, $a), binary:copy(<<"a">>, 256)]].

%% gen_tcp keeps them in one place: the later one counts.
fd_and_netns(_) ->
    Both = fun(Opts) ->
                   {ok, #{fd := Fd, netns := Ns}} = erlane_opts:listen(Opts, inet),
                   {Fd, Ns}
           end,
    ?assertEqual({-1, undefined}, Both([])),
    ?assertEqual({7, undefined}, Both([{netns, "x"}, {fd, 7}])),
    ?assertEqual({-1, <<"x">>}, Both([{fd, 7}, {netns, "x"}])),
    ?assertEqual({-1, undefined}, Both([{fd, -7}])).

own_settings(_) ->
    Own = fun(Opts) ->
                  {ok, #{erlane := E, protocol := P, backlog := B}} =
                      erlane_opts:listen(Opts, inet),
                  {E, P, B}
          end,
    ?assertEqual({#{lane => any}, undefined, 5}, Own([])),
    ?assertEqual({#{lane => 2}, mptcp, 0},
                 Own([{erlane, #{lane => any}}, {erlane, #{lane => 2}},
                      {protocol, mptcp}, {backlog, false}])),
    [?assertEqual({Bad, {error, {erlane, badarg}}},
                  {Bad, erlane_opts:listen([{erlane, Bad}], inet)})
     || Bad <- [[], #{accept => shared}, #{lane => -1}, #{lane => 1.0}, #{x => 1}]].

%% Numbers are cut to 32 bits; sizes beyond the reply buffer of gen_tcp are refused.
raw(_) ->
    ?assertEqual([{kernel, 6, 1, <<1>>, lenient}],
                 erlane_opts_value:encode(raw, {6 + (1 bsl 32), 1, <<1>>})),
    ?assertEqual({6, -1, 4}, erlane_opts_kernel:request_raw(6, -1, <<0:32>>)),
    {ok, L} = gen_tcp:listen(0, []),
    [?assertEqual({Size, inet:getopts(L, [{raw, 6, 1, Size}]) =:= {error, einval}},
                  {Size, erlane_opts_kernel:request_raw(6, 1, Size) =:= {error, badarg}})
     || Size <- [0, 4, 65522, 65523, 70000, -1, 1 bsl 32, a, <<>>]],
    gen_tcp:close(L).

%% struct cmsghdr by hand: tos, one nobody asked for, ttl; then cut short.
pktoptions(_) ->
    Word = erlang:system_info(wordsize),
    Cmsg = fun(Level, Type, Data) ->
                   Len = Word + 8 + byte_size(Data),
                   Pad = -Len band (Word - 1),
                   <<Len:(Word * 8)/native, Level:32/native, Type:32/native, Data/binary,
                     0:(Pad * 8)>>
           end,
    Tos = Cmsg(0, 1, <<16>>),
    Bin = <<Tos/binary, (Cmsg(0, 8, <<0:96>>))/binary, (Cmsg(0, 2, <<64:32/native>>))/binary>>,
    ?assertEqual([{tos, 16}, {ttl, 64}], erlane_opts_kernel:decode_pktoptions(Bin)),
    ?assertEqual([{tclass, 8}],
                 erlane_opts_kernel:decode_pktoptions(Cmsg(41, 67, <<8:32/native>>))),
    [?assert(is_list(erlane_opts_kernel:decode_pktoptions(binary:part(Bin, 0, N))))
     || N <- lists:seq(0, byte_size(Bin))],
    ?assertEqual([], erlane_opts_kernel:decode_pktoptions(binary:part(Tos, 0, Word + 8))),
    ?assertEqual([], erlane_opts_kernel:decode_pktoptions(<<0:512>>)).

properties(_) ->
    [?assert(proper:quickcheck(prop_erlane_opts:Prop(), [quiet, {numtests, 300}]))
     || Prop <- [prop_total, prop_check_agrees, prop_types_as_gen_tcp]].

%%% Helpers

opts(Call, Opts) ->
    {ok, #{opts := Result}} = erlane_opts:Call(Opts, inet),
    Result.

%% Fun(Family, StockSocket, PlainSocket) for both families, both listening.
each_family(Fun) ->
    [begin
         {ok, Stock} = gen_tcp:listen(0, [Family, {active, false}]),
         {ok, Plain} = socket:open(Family, stream, tcp),
         ok = socket:bind(Plain, #{family => Family, addr => any, port => 0}),
         ok = socket:listen(Plain),
         try
             Fun(Family, Stock, Plain)
         after
             gen_tcp:close(Stock),
             ok = socket:close(Plain)
         end
     end || Family <- [inet, inet6]].

%% What the door answers to setopts, with Plain's kernel socket in our socket's place.
decide(Plain, Key, Value) ->
    case erlane_opts_value:encode(Key, Value) of
        {error, _} -> {error, einval};
        Steps -> decide(Plain, Steps)
    end.

decide(Plain, [{kernel, Level, Name, Bin, Strict} | Steps]) ->
    case socket:setopt_native(Plain, {Level, Name}, Bin) of
        {error, _} when Strict =:= strict -> {error, einval};
        _ -> decide(Plain, Steps)
    end;
decide(Plain, [{recbuf, _, Kernel} | Steps]) -> decide(Plain, [Kernel | Steps]);
decide(_, [fail | _]) -> {error, einval};
decide(Plain, [_ | Steps]) -> decide(Plain, Steps);
decide(_, []) -> ok.

read(Plain, Key) ->
    {Level, Name, Size} = erlane_opts_kernel:request(Key),
    case socket:getopt_native(Plain, {Level, Name}, Size) of
        {ok, Bin} -> [{Key, erlane_opts_kernel:decode(Key, Bin)}];
        {error, _} -> []
    end.

%% Options of later releases than the running one have no stock to compare with.
stock_knows(Stock, line_delimiter) -> is_port(Stock);
stock_knows(Stock, Key) -> inet:getopts(Stock, [Key]) =/= {error, einval}.

%% Good values, bad ones, and both sides of each limit.
values() ->
    Bool = [true, false, 1, 0, foo, "true", <<1>>, undefined],
    Int = [0, 1, 8, 1000, -1, 1 bsl 31, 1 bsl 32, 1 bsl 40, 1.0, foo, "1", <<1>>, true],
    Wide = [65535, 65536, 100000 | Int],
    [{active, [true, false, once, 0, 1, -1, 32768, -32769, 1.0, foo, "true"]},
     {mode, [list, binary, foo, 0, "list"]},
     {packet, [0, 1, 2, 4, raw, sunrm, asn1, cdr, fcgi, line, tpkt, ssl, ssl_tls, http, httph,
               http_bin, httph_bin, 3, 8, -1, foo, "line", 1.0, undefined]},
     {packet_size, Wide}, {header, Int}, {line_delimiter, [$;, 0, 255, foo, 1.0, "x"]},
     {deliver, [term, port, foo]}, {buffer, Wide}, {recbuf, Wide}, {sndbuf, Wide},
     {high_watermark, Int}, {low_watermark, Int},
     {high_msgq_watermark, [1, 2, 8192, 0, -1, -2, foo, 1 bsl 31, 1 bsl 32]},
     {low_msgq_watermark, [1, 2, 8192, 0, -1, -2, foo, 1 bsl 31, 1 bsl 32]},
     {send_timeout, [infinity | Int]},
     {linger, [{true, 0}, {true, 5}, {false, 5}, {true, 1 bsl 32}, {1, 5}, {true, a}, true, 5,
               {true}, {true, 1, 2}, [true, 5]]},
     {priority, [0, 6, foo, 1.0, "6"]},
     {tos, [0, 16, 255, 300, -1, foo, 1.0]}, {ttl, [1, 64, 255, 0, 256, -2, foo]},
     {tclass, [0, 16, 255, -1, 256, -2, foo]},
     {bind_to_device, [<<"lo">>, <<>>, <<"no_such_dev">>, <<"123456789012345">>,
                       <<"1234567890123456">>, <<"12345678901234567">>, "lo", lo]},
     {keepidle, [1, 100, 32767, 0, 32768, -1, foo]},
     {keepintvl, [1, 100, 32767, 0, 32768, -1, foo]},
     {keepcnt, [1, 127, 0, 128, -1, foo]}, {user_timeout, [0, 1000, -1, foo]},
     {netns, [<<"ns">>, foo]},
     {raw, [{6, 1, <<1:32/native>>}, {6, 1, <<1>>}, {6, 77777, <<1:32>>}, {6, 1, 1}, {a, 1, <<>>},
            {6, a, <<>>}, {6, 1}, <<>>]},
     {nonsense, [1]}
     | [{K, Bool} || K <- [exit_on_close, show_econnreset, send_timeout_close, delay_send,
                           read_ahead, debug, nodelay, nopush, keepalive, reuseaddr, reuseport,
                           reuseport_lb, exclusiveaddruse, recvtos, recvttl, recvtclass,
                           ipv6_v6only]]].
