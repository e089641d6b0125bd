%% SPDX-License-Identifier: Apache-2.0
%% The parts of the page that need no server: JSON, options, who may read, views, families, and
%% the sampler with its viewers.
-module(erlane_dash_pure_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([json_is_what_python_reads/1, json_escapes/1, json_of_any_bytes/1, options_name_the_key/1,
         token_only_where_needed/1, host_is_ours/1, token_in_header_or_cookie/1,
         same_is_equality/1, view_has_rates/1, view_of_what_is_odd/1, families_have_values/1,
         families_are_bounded/1, sampler_sleeps_unwatched/1, sampler_keeps_history/1,
         viewer_that_stalls_is_dropped/1, viewers_are_limited/1, sampler_gives_flags_back/1]).

-define(WAIT_MS, 10000).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [json_is_what_python_reads, json_escapes, json_of_any_bytes, options_name_the_key,
     token_only_where_needed, host_is_ours, token_in_header_or_cookie, same_is_equality,
     view_has_rates, view_of_what_is_odd, families_have_values, families_are_bounded,
     sampler_sleeps_unwatched, sampler_keeps_history, viewer_that_stalls_is_dropped,
     viewers_are_limited, sampler_gives_flags_back].

init_per_testcase(_Case, Config) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    case whereis(erlane_dash_sampler) of
        undefined -> ok;
        Pid -> gen_server:stop(Pid)
    end,
    ok = application:stop(erlane_metrics).

%%% JSON

%% Python's reader finds in each text the very term that was written.
json_is_what_python_reads(_Config) ->
    case os:find_executable("python3") of
        false -> {skip, "python3 is not installed"};
        Python ->
            Terms = [pick(value(4), 3 + I rem 20) || I <- lists:seq(1, 400)],
            File = "terms.json",
            ok = file:write_file(File, [[erlane_dash_json:encode(T), $\n] || T <- Terms]),
            ok = file:write_file("read.py", python()),
            Output = os:cmd(Python ++ " read.py " ++ File),
            Read = string:lexemes(Output, "\n"),
            ?assertEqual(length(Terms), length(Read), Output),
            [?assertEqual({T, unicode:characters_to_list(canonical(T))}, {T, R})
             || {T, R} <- lists:zip(Terms, Read)]
    end.

pick(Type, Size) ->
    {ok, Term} = proper_gen:pick(Type, Size),
    Term.

value(0) ->
    oneof([integer(), ?LET({A, B}, {integer(), integer()}, A * (1 bsl 70) + B), number_at_all(),
           text(),
           oneof([true, false, null, undefined, nan, infinity, some_atom])]);
value(N) ->
    frequency([{3, value(0)}, {1, list(value(N - 1))},
               {1, ?LET(L, list({oneof([text(), oneof([a, b, 'c d'])]), value(N - 1)}),
                        maps:from_list([{key(K), V} || {K, V} <- L]))}]).

key(K) when is_atom(K) -> atom_to_binary(K);
key(K) -> K.

number_at_all() ->
    oneof([float(), ?LET({M, E}, {float(), range(-300, 300)}, M * math:pow(10, E) / 1.0e9)]).

text() ->
    ?LET(L, list(frequency([{6, range($a, $z)}, {2, oneof("\"\\/\b\f\n\r\t")}, {1, range(0, 31)},
                            {2, range(127, 16#d7ff)}, {1, range(16#e000, 16#10ffff)},
                            {1, oneof([16#2028, 16#2029, 16#fffd, 127])}])),
         unicode:characters_to_binary(L)).

canonical(null) -> "n";
canonical(A) when A =:= undefined; A =:= nan; A =:= infinity -> "n";
canonical(true) -> "t";
canonical(false) -> "f";
canonical(A) when is_atom(A) -> canonical(atom_to_binary(A));
canonical(N) when is_integer(N) -> ["i", integer_to_list(N)];
canonical(F) when is_float(F) -> ["d", hex(<<F/float>>)];
canonical(B) when is_binary(B) -> ["s", hex(B)];
canonical(L) when is_list(L) -> ["[", lists:join(",", [canonical(V) || V <- L]), "]"];
canonical(M) when is_map(M) ->
    Pairs = lists:sort([{hex(K), V} || {K, V} <- maps:to_list(M)]),
    ["{", lists:join(",", [[K, ":", canonical(V)] || {K, V} <- Pairs]), "}"].

hex(Bytes) -> string:lowercase(binary_to_list(binary:encode_hex(Bytes))).

python() ->
    <<"import json, struct, sys\n"
      "def h(s): return s.encode('utf-8').hex()\n"
      "def c(v):\n"
      "    if v is None: return 'n'\n"
      "    if v is True: return 't'\n"
      "    if v is False: return 'f'\n"
      "    if isinstance(v, int): return 'i%d' % v\n"
      "    if isinstance(v, float): return 'd' + struct.pack('>d', v).hex()\n"
      "    if isinstance(v, str): return 's' + h(v)\n"
      "    if isinstance(v, list): return '[' + ','.join(map(c, v)) + ']'\n"
      "    return '{' + ','.join(k + ':' + c(v) for k, v in sorted((h(k), v) for k, v in "
      "v.items())) + '}'\n"
      "for line in open(sys.argv[1], encoding='utf-8', newline='\\n'):\n"
      "    print(c(json.loads(line)))\n">>.

json_escapes(_Config) ->
    Cases = [{<<"a\"b\\c">>, <<"\"a\\\"b\\\\c\"">>}, {<<"\n\r\t">>, <<"\"\\n\\r\\t\"">>},
             {<<0, 31, 127>>, <<"\"\\u0000\\u001f\\u007f\"">>},
             {<<16#2028/utf8, "x", 16#2029/utf8>>, <<"\"\\u2028x\\u2029\"">>},
             {<<"</script>">>, <<"\"</script>\"">>},
             {#{b => 1, <<"a">> => []}, <<"{\"a\":[],\"b\":1}">>},
             {[nan, 1.0, 1.0e22, -0.5], <<"[null,1.0,1.0e22,-0.5]">>}],
    [?assertEqual(Json, erlane_dash_json:encode(Term)) || {Term, Json} <- Cases],
    %% What is not UTF-8: one sign for each byte of it, and the rest stays.
    [?assertEqual(Json, erlane_dash_json:encode(Bytes))
     || {Bytes, Json} <- [{<<"a", 255, "b">>, <<"\"a", 16#fffd/utf8, "b\"">>},
                          {<<16#c3>>, <<"\"", 16#fffd/utf8, "\"">>},
                          {<<16#ed, 16#a0, 16#80>>,
                           <<"\"", 16#fffd/utf8, 16#fffd/utf8, 16#fffd/utf8, "\"">>}]].

%% Never a crash, always one line of JSON that is UTF-8.
json_of_any_bytes(_Config) ->
    Property = ?FORALL(Bytes, binary(),
                       begin
                           Json = erlane_dash_json:encode(Bytes),
                           is_binary(erlane_dash_reader:read(Json)) andalso
                               is_list(unicode:characters_to_list(Json)) andalso
                               binary:match(Json, [<<"\n">>, <<"\r">>]) =:= nomatch
                       end),
    ?assert(proper:quickcheck(Property, [{numtests, 500}, quiet])).

%%% options and who may read

options_name_the_key(_Config) ->
    [?assertMatch({Options, {error, {Key, _}}}, {Options, erlane_dash_opts:check(Options)})
     || {Key, Options} <- [{ip, #{ip => "localhost"}}, {port, #{port => 65536}},
                           {port, #{port => -1}}, {token, #{token => <<"short">>}},
                           {token, #{token => binary:copy(<<"x">>, 257)}},
                           {token, #{token => <<"0123456789abcde;">>}},
                           {token, #{token => <<"0123456789abcdef\n">>}},
                           {token, #{token => "0123456789abcdef"}},
                           {lanes, #{lanes => erlane_socket}}, {proxies, #{proxies => [a]}},
                           {interval, #{interval => 9}}, {interval, #{interval => 3600001}},
                           {history, #{history => 0}}, {viewers, #{viewers => 0}},
                           {http, #{http => []}}, {http, #{http => #{port => 1}}},
                           {colour, #{colour => red}}, {options, []}]],
    [?assertMatch({ok, _}, erlane_dash_opts:check(Options))
     || Options <- [#{}, #{token => <<"0123456789-._~aZ">>}, #{token => binary:copy(<<"x">>, 256)},
                    #{interval => 10, history => 3600000, viewers => 1},
                    #{proxies => fun() -> [] end}, #{proxies => {m, f, [a]}, lanes => {m, f}},
                    #{ip => {local, "/tmp/x"}}]],
    ?assertEqual("colour: there is no such option",
                 erlane_dash:format_error({colour, unknown_option})).

%% On an address that others reach: a token, or `none' said in so many words.
token_only_where_needed(_Config) ->
    Outside = [{0, 0, 0, 0}, {10, 0, 0, 1}, {0, 0, 0, 0, 0, 0, 0, 0},
               {16#fe80, 0, 0, 0, 0, 0, 0, 1}, {0, 0, 0, 0, 0, 16#ffff, 16#0a00, 1}],
    Inside = [{127, 0, 0, 1}, {127, 1, 2, 3}, {0, 0, 0, 0, 0, 0, 0, 1}, {local, "/tmp/x"},
              {0, 0, 0, 0, 0, 16#ffff, 16#7f00, 1}],
    [?assertMatch({error, {token, {needed_for, Ip}}}, erlane_dash_opts:check(#{ip => Ip}))
     || Ip <- Outside],
    [?assertMatch({ok, #{token := none}}, erlane_dash_opts:check(#{ip => Ip, token => none}))
     || Ip <- Outside],
    [?assertMatch({ok, #{token := none}}, erlane_dash_opts:check(#{ip => Ip})) || Ip <- Inside].

host_is_ours(_Config) ->
    Host = fun(Name) -> erlane_dash_auth:host(Name, #{token => none, loopback => true, hosts => []})
           end,
    [?assertEqual({Name, true}, {Name, Host(Name)})
     || Name <- [<<"localhost">>, <<"LOCALHOST:80">>, <<"127.0.0.1:9">>, <<"127.9.9.9">>,
                 <<"[::1]:8080">>, <<"[::1]">>, <<"shop.localhost:1">>, <<>>]],
    [?assertEqual({Name, false}, {Name, Host(Name)})
     || Name <- [<<"evil.example">>, <<"localhost.evil.example">>, <<"127.0.0.1.evil.example">>,
                 <<"10.0.0.1">>, <<"[::2]">>, <<"[::1">>, <<"xlocalhost">>, <<"127.1">>,
                 <<"0x7f000001">>, <<"2130706433">>, <<"1">>, <<"[127.0.0.1]x">>, <<255, 254>>]],
    ?assert(erlane_dash_auth:host(<<"any.example">>, #{token => none, loopback => false,
                                                                 hosts => []})).

token_in_header_or_cookie(_Config) ->
    Token = <<"0123456789abcdef">>,
    Who = #{token => Token, loopback => true},
    Allowed = fun(Headers, Host) -> erlane_dash_auth:allowed(Headers, Host, Who) end,
    [?assertEqual({Headers, Expected}, {Headers, Allowed(Headers, <<"localhost:80">>)})
     || {Expected, Headers} <-
            [{false, []}, {true, [{<<"authorization">>, <<"Bearer ", Token/binary>>}]},
             {true, [{<<"authorization">>, <<"bearer  ", Token/binary>>}]},
             {false, [{<<"authorization">>, <<"Basic ", Token/binary>>}]},
             {false, [{<<"authorization">>, <<"Bearer ", Token/binary, "x">>}]},
             {false, [{<<"authorization">>, <<255, 255, 255, 255, 255, 255, 255, 255>>}]},
             {false, [{<<"cookie">>, <<255, "=", 255, ";", 254>>}]},
             {false, [{<<"authorization">>, <<"Bearer">>}]},
             {false, [{<<"authorization">>, <<"Bearer ">>}]},
             {true, [{<<"cookie">>, <<"a=b; erlane_dash_80=", Token/binary, "; c=d">>}]},
             {true, [{<<"cookie">>, <<"a=b">>},
                     {<<"cookie">>, <<"erlane_dash_80=", Token/binary>>}]},
             {false, [{<<"cookie">>, <<"erlane_dash_81=", Token/binary>>}]},
             {false, [{<<"cookie">>, <<"erlane_dash_80">>}]},
             {false, [{<<"x">>, Token}]}]],
    ?assert(erlane_dash_auth:allowed([], <<>>, Who#{token => none})),
    Cookie = fun(Host, Scheme) -> erlane_dash_auth:cookie(Host, Token, Scheme) end,
    ?assertEqual(<<"erlane_dash_80=", Token/binary, "; Path=/; HttpOnly; SameSite=Strict">>,
                 Cookie(<<"localhost:80">>, http)),
    ?assertEqual(<<"erlane_dash=", Token/binary, "; Path=/; HttpOnly; SameSite=Strict; Secure">>,
                 Cookie(<<"localhost">>, https)),
    ?assertMatch(<<"erlane_dash_9=", _/binary>>, Cookie(<<"[::1]:9">>, http)).

same_is_equality(_Config) ->
    Property = ?FORALL({A, B}, {binary(), binary()},
                       erlane_dash_auth:same(A, B) =:= (A =:= B) andalso
                       erlane_dash_auth:same(A, A)),
    ?assert(proper:quickcheck(Property, [{numtests, 300}, quiet])).

%%% views

look(Ms, Sample, Proxies) ->
    Base = erlane_prof_probe:sample(#{procs => 0, threads => false}),
    #{time => 1700000000000 + Ms, proxies => Proxies, procs => [],
      sample => maps:merge(Base#{at_ms => Ms}, Sample)}.

%% Two seconds between: every figure is half of what was counted.
view_has_rates(_Config) ->
    Lane = #{lane => 1, waits => 100, events => 300, sockets => 5, recv_bytes => 10,
             send_bytes => 20, accepted => 1, relays => 2, moved => 0, sleeps => 4},
    Proxy = #{name => web, connections => 3, accepted => 10, to_upstream => 100, to_client => 200,
              state => listening, listen => {{127, 0, 0, 1}, 80}, to => {"host", 81},
              connect_errors => 2, accept_errors => 1,
              servers => [#{up => true}, #{up => false}, #{}]},
    {Core, Detail} = erlane_dash_view:tick(
                       look(1000, #{lanes => [Lane], reductions => 100}, [Proxy]),
                       look(3000, #{lanes => [Lane#{waits => 300, events => 700,
                                                    send_bytes => 2000020}],
                                    reductions => 1100},
                            [Proxy#{accepted => 13, to_client => 300, connections => 4}])),
    ?assertMatch(#{id := [1], waits := [100], events := [200], epw := [2], sockets := [5],
                   in := [0], out := [1000000], relays := [2], sleeps := [0]},
                 maps:get(lanes, Core)),
    ?assertMatch(#{reductions := 500}, maps:get(rate, Core)),
    ?assertMatch(#{id := [<<"web">>], connections := [4], accepted := [1.5], in := [0],
                   out := [50]}, maps:get(proxies, Core)),
    ?assertMatch([#{state := <<"listening">>, listen := <<"127.0.0.1:80">>, to := <<"host:81">>,
                    servers := 3, up := 1, errors := 3}], maps:get(proxies, Detail)),
    ?assertMatch(#{t := 1700000003000}, Core),
    Mem = maps:get(mem, Core),
    ?assertEqual(maps:get(total, Mem), lists:sum(maps:values(maps:remove(total, Mem)))),
    %% All of it is JSON.
    _ = erlane_dash_reader:read(erlane_dash_json:encode(Core)),
    _ = erlane_dash_reader:read(erlane_dash_json:encode(Detail)).

%% A counter that begins anew, a proxy that is new, names and addresses of any kind.
view_of_what_is_odd(_Config) ->
    Proxies = [#{name => N, to => To, state => {x, y}}
               || {N, To} <- [{"list", {local, "/tmp/s"}},
                              {<<"bin", 255>>, {{0, 0, 0, 0, 0, 0, 0, 1}, 5}},
                              {{t, 1}, undefined}, {17, what}]],
    {Core, Detail} = erlane_dash_view:tick(look(0, #{}, [#{name => 17, accepted => 9}]),
                                           look(0, #{}, [#{no => name} | Proxies])),
    ?assertMatch(#{id := [<<"list">>, _, <<"{t,1}">>, 17],
                   accepted := [undefined, undefined, undefined, undefined]},
                 maps:get(proxies, Core)),
    ?assertMatch([_, #{to := <<"/tmp/s">>}, #{to := <<"[::1]:5">>}, #{to := undefined},
                  #{to := <<"what">>}], maps:get(proxies, Detail)),
    _ = erlane_dash_reader:read(erlane_dash_json:encode([Core, Detail])),
    {Core2, _} = erlane_dash_view:tick(look(0, #{}, [#{name => a, accepted => 9}]),
                                       look(1000, #{}, [#{name => a, accepted => 3}])),
    ?assertMatch(#{accepted := [undefined]}, maps:get(proxies, Core2)).

%%% families

families_have_values(_Config) ->
    H = fun erlane_metrics:handle/2,
    ok = erlane_metrics:add(H(erlane_metrics:counter(#{name => <<"c">>, help => <<"C">>,
                                                       labels => [<<"l">>]}), [<<"x\"">>]), 3),
    ok = erlane_metrics:set(H(erlane_metrics:gauge(#{name => <<"g">>, help => <<"G">>,
                                                     decimals => 2}), []), 1.25),
    ok = erlane_metrics:set(H(erlane_metrics:gauge(#{name => <<"n">>, help => <<"N">>}), []), nan),
    ok = erlane_metrics:add(H(erlane_metrics:group(#{name => <<"d">>, help => <<"D">>,
                                                     counters => [{<<"a">>, <<"A">>},
                                                                  {<<"b">>, <<"B">>}]}), []), 2, 7),
    ok = erlane_metrics:set(H(erlane_metrics:info(#{name => <<"i">>, help => <<"I">>}), []),
                            [{<<"k">>, <<"v">>}]),
    ok = erlane_metrics:set(H(erlane_metrics:state_set(#{name => <<"s">>, help => <<"S">>,
                                                         states => [<<"up">>, <<"down">>]}), []),
                            <<"down">>),
    _ = erlane_metrics:gauge(#{name => <<"f">>, help => <<"F">>, callback => fun() -> 42 end}),
    Hists = [H(erlane_metrics:histogram(#{name => <<"h">>, help => <<"H">>}), []),
             H(erlane_metrics:histogram(#{name => <<"b">>, help => <<"B">>, input => one,
                                          buckets => [1, 10]}), []),
             H(erlane_metrics:summary(#{name => <<"y">>, help => <<"Y">>}), [])],
    [ok = erlane_metrics:observe(Hist, V) || Hist <- Hists, V <- [1, 4, 4000000]],
    Read = fun(Name) ->
                   {ok, #{more := 0, series := [Series]}} = erlane_dash_families:read(Name),
                   maps:remove(labels, Series)
           end,
    {ok, #{series := [#{labels := <<"l=\"x\\\"\"">>, value := 3}]}} =
        erlane_dash_families:read(<<"c">>),
    ?assertEqual(#{value => 1.25}, Read(<<"g">>)),
    ?assertEqual(#{value => nan}, Read(<<"n">>)),
    ?assertEqual(#{value => 0}, Read(<<"d_a">>)),
    ?assertEqual(#{value => 7}, Read(<<"d_b">>)),
    ?assertEqual(#{value => <<"k=\"v\"">>}, Read(<<"i">>)),
    ?assertEqual(#{value => <<"down">>}, Read(<<"s">>)),
    ?assertEqual(#{value => 42}, Read(<<"f">>)),
    #{count := 3, sum := Sum, buckets := [[0, 2], [Middle, 1]]} = Read(<<"h_seconds">>),
    ?assert(abs(Sum - 0.004000005) < 1.0e-9),
    ?assert(abs(Middle - 0.004) < 0.004 * 0.044),
    #{count := 3, buckets := [[1, 1], [10, 1], [10, 1]]} = Read(<<"b">>),
    #{count := 3, buckets := [[0, 2], [_, 1]]} = Read(<<"y_seconds">>),
    ?assertEqual(error, erlane_dash_families:read(<<"none">>)),
    Listed = erlane_dash_families:list(),
    [?assertMatch([#{type := Type}], [F || #{name := N} = F <- Listed, N =:= Name])
     || {Name, Type} <- [{<<"c">>, counter}, {<<"d_a">>, counter}, {<<"h_seconds">>, histogram},
                         {<<"y_seconds">>, histogram}, {<<"s">>, stateset}, {<<"i">>, info}]],
    [?assertEqual({Name, Expected},
                  {Name, hd([C || #{name := N, collected := C} <- Listed, N =:= Name])})
     || {Name, Expected} <- [{<<"f">>, true}, {<<"c">>, false}]],
    _ = erlane_dash_reader:read(erlane_dash_json:encode(Listed)).

families_are_bounded(_Config) ->
    Family = erlane_metrics:counter(#{name => <<"many">>, help => <<"M">>, labels => [<<"l">>]}),
    [ok = erlane_metrics:inc(erlane_metrics:handle(Family, [I])) || I <- lists:seq(1, 130)],
    {ok, #{more := 30, series := Series}} = erlane_dash_families:read(<<"many">>),
    ?assertEqual(100, length(Series)),
    %% Without the app there is nothing, and nothing breaks.
    ok = application:stop(erlane_metrics),
    ?assertEqual([], erlane_dash_families:list()),
    ?assertEqual(error, erlane_dash_families:read(<<"many">>)),
    ok = application:start(erlane_metrics).

%%% the sampler

sampler(Options) ->
    {ok, Config} = erlane_dash_opts:check(Options),
    {ok, Pid} = erlane_dash_sampler:start_link(Config),
    Pid.

tick() ->
    receive {erlane_dash, tick, Json} -> erlane_dash_reader:read(Json)
    after ?WAIT_MS -> ct:fail(no_tick)
    end.

until(Fun) -> until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Deadline) ->
    case Fun() of
        true -> ok;
        Other ->
            erlang:monotonic_time(millisecond) < Deadline orelse ct:fail({still, Other}),
            receive after 10 -> until(Fun, Deadline) end
    end.

%% No sample before the first viewer and none after the last; two viewers share them.
sampler_sleeps_unwatched(_Config) ->
    Counted = counters:new(1, []),
    Source = fun() -> counters:add(Counted, 1, 1), [] end,
    _ = sampler(#{interval => 20, proxies => Source}),
    ?assertMatch(#{rhythm := none, samples := 0}, erlane_dash_sampler:info()),
    Self = self(),
    Watch = fun() ->
                    spawn(fun() ->
                                  {ok, #{interval := 20}} = erlane_dash_sampler:watch(),
                                  Self ! {self(), tick()},
                                  receive stop -> ok end
                          end)
            end,
    Viewers = [Watch(), Watch()],
    [receive {Pid, #{<<"core">> := #{<<"t">> := T}, <<"detail">> := _}} -> true = is_integer(T)
     after ?WAIT_MS -> ct:fail(no_tick)
     end || Pid <- Viewers],
    ?assertMatch(#{rhythm := 20, viewers := 2}, erlane_dash_sampler:info()),
    [Pid ! stop || Pid <- Viewers],
    until(fun() -> maps:get(rhythm, erlane_dash_sampler:info()) =:= none end),
    ?assertMatch(#{viewers := 0}, erlane_dash_sampler:info()),
    %% Whatever timer was under way would have come by now.
    N = counters:get(Counted, 1),
    receive after 100 -> ok end,
    ?assertEqual(N, counters:get(Counted, 1)).

%% With `history' it goes on without viewers; what is asked for is newer than the time given.
sampler_keeps_history(_Config) ->
    _ = sampler(#{interval => 10, history => 20}),
    until(fun() -> maps:get(held, erlane_dash_sampler:info()) >= 5 end),
    All = [erlane_dash_reader:read(Core) || Core <- erlane_dash_sampler:history(0)],
    Times = [T || #{<<"t">> := T} <- All],
    ?assertEqual(lists:usort(Times), Times),
    Third = lists:nth(3, Times),
    Later = [maps:get(<<"t">>, erlane_dash_reader:read(Core))
             || Core <- erlane_dash_sampler:history(Third)],
    ?assertEqual(lists:nth(4, Times), hd(Later)),
    ?assertMatch(#{rhythm := 20}, erlane_dash_sampler:info()),
    {ok, _} = erlane_dash_sampler:watch(),
    ?assertMatch(#{rhythm := 10}, erlane_dash_sampler:info()).

%% One that never says that it is ready has one tick and one farewell in its mailbox, however
%% long it takes; the other one misses nothing.
viewer_that_stalls_is_dropped(_Config) ->
    _ = sampler(#{interval => 10}),
    Stalled = spawn(fun() ->
                            {ok, _} = erlane_dash_sampler:watch(),
                            receive stop -> ok end
                    end),
    {ok, _} = erlane_dash_sampler:watch(),
    First = tick(),
    Times = [begin
                 erlane_dash_sampler:ready(),
                 #{<<"core">> := #{<<"t">> := T}} = tick(),
                 T
             end || _ <- lists:seq(1, 50)],
    ?assertEqual(lists:usort(Times), Times),
    ?assertMatch(#{<<"core">> := _}, First),
    until(fun() -> maps:get(viewers, erlane_dash_sampler:info()) =:= 1 end),
    ?assertMatch({messages, [{erlane_dash, tick, _}, {erlane_dash, gone}]},
                 process_info(Stalled, messages)),
    %% Of one that comes back after all nobody knows.
    ok = gen_server:cast(erlane_dash_sampler, {ready, Stalled}),
    until(fun() -> {message_queue_len, 3} =:= process_info(Stalled, message_queue_len) end),
    exit(Stalled, kill).

viewers_are_limited(_Config) ->
    _ = sampler(#{viewers => 1}),
    Self = self(),
    Other = spawn(fun() ->
                          Self ! {self(), erlane_dash_sampler:watch()},
                          receive stop -> ok end
                  end),
    receive {Other, {ok, _}} -> ok end,
    ?assertEqual({error, full}, erlane_dash_sampler:watch()),
    Other ! stop,
    until(fun() -> {error, full} =/= erlane_dash_sampler:watch() end).

%% The counting of scheduler times costs the node: it is off when nobody looks.
sampler_gives_flags_back(_Config) ->
    ?assertEqual(undefined, erlang:statistics(scheduler_wall_time)),
    _ = sampler(#{interval => 20}),
    Self = self(),
    Viewer = spawn(fun() ->
                           {ok, _} = erlane_dash_sampler:watch(),
                           Self ! {self(), tick()},
                           receive stop -> ok end
                   end),
    receive {Viewer, #{<<"core">> := #{<<"sched">> := #{<<"util">> := [_ | _]}}}} -> ok end,
    ?assertMatch([_ | _], erlang:statistics(scheduler_wall_time)),
    Viewer ! stop,
    until(fun() -> erlang:statistics(scheduler_wall_time) =:= undefined end).
