%% SPDX-License-Identifier: Apache-2.0
%% Tuning of real nodes: what is set and where, and what goes wrong. Nodes are linked to the
%% process of their case, so that none is left however it ends.
-module(erlane_dist_tune_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([bad_options/1, not_alive/1, connections_and_new/1, nodes_are_chosen/1, dry_run/1,
         larger_stays/1, given_is_set/1, joins_after/1, lost_in_the_middle/1, one_hangs/1,
         nodes_come_and_go/1, no_pairs_in_environment/1, tls/1, no_listener/1, another_node/1]).

-import(erlane_dist_ct, [start/0, start/1, start/2, stop/1, call/4, connect/2, name/1, tune/2,
                         settings/1, on/2, keys/2, tuned/0, tuned/2, tuned/3]).

all() ->
    [bad_options, not_alive, connections_and_new, nodes_are_chosen, dry_run, larger_stays,
     given_is_set, joins_after, lost_in_the_middle, one_hangs, nodes_come_and_go,
     no_pairs_in_environment, tls, no_listener, another_node].

%% Each wrong option is named, also when others are right.
bad_options(_Config) ->
    Bad = fun(Opts) -> {error, {bad_option, Key}} = erlane_dist:tune(Opts), Key end,
    [?assertEqual(Key, Bad(#{Key => Value, dry_run => true}))
     || {Key, Values} <- [{buffer, [0, 1023, 16#4000001, -1, 1.0e6, all, "1"]},
                          {delay_send, [0, 1, yes, undefined]},
                          {high_watermark, [0, -1, 16#40000001, 1.5, false]},
                          {low_watermark, [0, -1, 16#40000001, <<"1">>]},
                          {nodes, [some, "a@b", [<<"a@b">>], [a | b], [all | new], 1]},
                          {bufer, [1]}, {"buffer", [1460]}, {{}, [{}]}],
        Value <- Values],
    dry_run = Bad(#{dry_run => perhaps}),
    low_watermark = Bad(#{high_watermark => 4096, low_watermark => 4097}),
    [options = Bad(NoMap) || NoMap <- [[], [{buffer, 1460}], undefined, 1]],
    [{ok, _} = erlane_dist_opts:check(Opts)
     || Opts <- [#{}, #{buffer => 1024}, #{buffer => 16#4000000}, #{nodes => []},
                 #{high_watermark => 4096, low_watermark => 4096}, #{nodes => [new, a, a]}]].

%% This VM is no node.
not_alive(_Config) ->
    false = is_alive(),
    {error, not_alive} = erlane_dist:tune(),
    {error, not_alive} = erlane_dist:tune(#{dry_run => true}),
    {error, not_alive} = erlane_dist:untune([]),
    {error, {bad_option, buffer}} = erlane_dist:tune(#{buffer => 0}).

%% Visible and hidden, connected and accepted, and what is to come; a second time nothing.
connections_and_new(_Config) ->
    [A, B, C] = Nodes = [start(), start(), start(["-hidden"])],
    ok = connect(A, B),
    ok = connect(C, A),
    [Hidden] = call(A, erlang, nodes, [hidden]),
    ?assertEqual(name(C), Hidden),
    Before = settings(A),
    {ok, Changes} = tune(A, #{}),
    ?assertEqual([ok], lists:usort([R || #{result := R} <- Changes])),
    Keys = lists:sort(maps:keys(tuned())),
    [?assertEqual(Keys, lists:sort([Key || #{key := Key, where := new, side := Side} <- Changes,
                                           Side =:= S])) || S <- [connect, accept]],
    [?assertEqual({name(N), Keys}, {name(N), keys(Changes, name(N))}) || N <- [B, C]],
    %% What it says it changed is what was, and what is.
    [?assertEqual(proplists:get_value(Key, maps:get(Where, maps:get(connections, Before))), Was)
     || #{where := Where, key := Key, was := Was} <- Changes, Where =/= new],
    #{listener := [{ok, Listener}]} = Before,
    [?assertEqual(proplists:get_value(Key, Listener), Was)
     || #{where := new, key := Key, was := Was} <- Changes],
    tuned(A, [name(B), name(C)]),
    %% Nothing else: neither the buffers of the kernel nor nodelay.
    After = settings(A),
    [?assertEqual([O || {K, _} = O <- Opts, not is_map_key(K, tuned())],
                  [O || {K, _} = O <- maps:get(Node, maps:get(connections, After)),
                        not is_map_key(K, tuned())])
     || {Node, Opts} <- maps:to_list(maps:get(connections, Before))],
    %% The other side is its own affair.
    #{connections := #{} = Theirs} = settings(B),
    ?assertEqual(false, proplists:get_value(delay_send, maps:get(name(A), Theirs))),
    ?assertEqual({ok, []}, tune(A, #{})),
    stop(Nodes).

%% `nodes' chooses; a node that is not connected is an error of its own.
nodes_are_chosen(_Config) ->
    [A, B, C] = Nodes = [start(), start(), start()],
    ok = connect(A, B),
    ok = connect(A, C),
    Before = settings(A),
    {ok, Changes} = tune(A, #{nodes => [name(B), 'nobody@nowhere', name(B)]}),
    ?assertEqual(lists:sort(maps:keys(tuned())), keys(Changes, name(B))),
    [#{key := all, result := {error, noconnection}}] =
        [Change || #{where := 'nobody@nowhere'} = Change <- Changes],
    ?assertEqual(5, length(Changes)),
    #{connections := #{}} = After = settings(A),
    ?assertEqual(maps:remove(connections, Before), maps:remove(connections, After)),
    NodeC = name(C),
    #{connections := #{NodeC := Untouched}} = Before,
    #{connections := #{NodeC := Untouched}} = After,
    {ok, []} = tune(A, #{nodes => []}),
    {ok, New} = tune(A, #{nodes => [new]}),
    ?assertEqual([new], lists:usort([Where || #{where := Where} <- New])),
    stop(Nodes).

%% Says the same, and does nothing; nothing is undone by it either.
dry_run(_Config) ->
    [A, B] = Nodes = [start(), start()],
    ok = connect(A, B),
    Before = settings(A),
    {ok, Would} = tune(A, #{dry_run => true}),
    ?assertEqual(Before, settings(A)),
    ?assertEqual([dry_run], lists:usort([R || #{result := R} <- Would])),
    {ok, []} = call(A, erlane_dist, untune, [Would]),
    {ok, Changes} = tune(A, #{}),
    ?assertEqual([maps:remove(result, Change) || Change <- Would],
                 [maps:remove(result, Change) || Change <- Changes]),
    ?assertEqual({ok, []}, tune(A, #{dry_run => true})),
    stop(Nodes).

%% A size that is larger than ours stays, on the side that has it.
larger_stays(_Config) ->
    [A, B] = Nodes = [start(["-kernel", "inet_dist_connect_options",
                             "[{buffer,500000},{high_watermark,3000000},"
                             "{low_watermark,2000000}]"]), start()],
    ok = connect(A, B),
    {ok, Changes} = tune(A, #{}),
    ?assertEqual([delay_send], keys(Changes, name(B))),
    ?assertEqual([delay_send], [Key || #{where := new, side := connect, key := Key} <- Changes]),
    NodeB = name(B),
    #{env := [{ok, Connect} | _], connections := #{NodeB := Opts}, listener := [{ok, Listener}]} =
        settings(A),
    [?assertEqual({Key, Value}, {Key, proplists:get_value(Key, From)})
     || {Key, Value} <- [{buffer, 500000}, {delay_send, true}, {high_watermark, 3000000},
                         {low_watermark, 2000000}], From <- [Connect, Opts]],
    ?assertEqual(262144, proplists:get_value(buffer, Listener)),
    ?assertEqual({ok, []}, tune(A, #{})),
    stop(Nodes).

%% What is given is set, be it smaller; the watermarks keep their order.
given_is_set(_Config) ->
    [A, B] = Nodes = [start(), start()],
    ok = connect(A, B),
    Tuned = tuned(),
    [begin
         {ok, _} = tune(A, Opts),
         NodeB = name(B),
         #{connections := #{NodeB := Is}, listener := [{ok, Listener}]} = settings(A),
         [?assertEqual({Opts, Key, Value}, {Opts, Key, proplists:get_value(Key, From)})
          || {Key, Value} <- maps:to_list(Expected), From <- [Is, Listener]],
         ?assertEqual({ok, []}, tune(A, Opts))
     end || {Opts, Expected} <-
                [{#{}, Tuned},
                 {#{buffer => 2000, delay_send => false},
                  Tuned#{buffer => 2000, delay_send => false}},
                 {#{high_watermark => 5000},
                  Tuned#{high_watermark => 5000, low_watermark => 5000}},
                 {#{low_watermark => 4000}, Tuned#{low_watermark => 4000}},
                 {#{low_watermark => 3000000},
                  Tuned#{low_watermark => 3000000, high_watermark => 3000000}},
                 {#{high_watermark => 7000, low_watermark => 6000},
                  Tuned#{high_watermark => 7000, low_watermark => 6000}}]],
    stop(Nodes).

%% Nodes that come after: one that we connect to, one that connects to us.
joins_after(_Config) ->
    [A, B, C] = Nodes = [start(), start(), start()],
    {ok, _} = tune(A, #{}),
    ok = connect(A, B),
    ok = connect(C, A),
    tuned(A, [name(B), name(C)]),
    ?assertEqual({ok, []}, tune(A, #{})),
    stop(Nodes).

%% A connection ends while it is asked, by its process, its port or the other node: an error for
%% that node, the same in all cases, and the rest is set.
lost_in_the_middle(_Config) ->
    [begin
         [A, B, C] = Nodes = [start(), start(), start()],
         ok = connect(A, B),
         ok = connect(A, C),
         NodeB = name(B),
         Pid = call(B, os, getpid, []),
         {ok, Changes} = on(A, fun() -> end_when_asked(NodeB, {What, Pid}), erlane_dist:tune() end),
         ?assertMatch([#{key := all, result := {error, noconnection}}],
                      [Change || #{where := Where} = Change <- Changes, Where =:= NodeB]),
         tuned(A, [name(C)]),
         stop(Nodes)
     end || What <- [process, port, node]].

%% Its process is asked while it cannot answer; when it can, as whoever suspended it is gone, the
%% connection has ended.
end_when_asked(Node, What) ->
    Self = self(),
    Owner = owner(Node),
    {_, Port} = lists:keyfind(Node, 1, erlang:system_info(dist_ctrl)),
    _ = spawn(fun() ->
                      true = erlang:suspend_process(Owner),
                      Self ! suspended,
                      waits(Owner),
                      case What of
                          {process, _} -> exit(Owner, kill);
                          {port, _} -> exit(Port, kill);
                          {node, Pid} -> "" = os:cmd("kill -KILL " ++ Pid)
                      end,
                      erlane_dist_ct:until(fun() -> undefined = erlang:port_info(Port) end)
              end),
    receive suspended -> ok end.

%% A connection that does not answer costs five seconds and itself.
one_hangs(_Config) ->
    [A, B, C] = Nodes = [start(), start(), start()],
    ok = connect(A, B),
    ok = connect(A, C),
    NodeB = name(B),
    {Ms, {ok, Changes}} =
        on(A, fun() ->
                      Owner = owner(NodeB),
                      true = erlang:suspend_process(Owner),
                      From = erlang:monotonic_time(millisecond),
                      Answer = erlane_dist:tune(),
                      true = erlang:resume_process(Owner),
                      {erlang:monotonic_time(millisecond) - From, Answer}
              end),
    ?assert(Ms < 10000, Ms),
    [#{key := all, result := {error, timeout}}] =
        [Change || #{where := Where} = Change <- Changes, Where =:= NodeB],
    tuned(A, [name(C)]),
    {ok, Again} = tune(A, #{}),
    ?assertEqual([NodeB], lists:usort([Where || #{where := Where} <- Again])),
    tuned(A, [NodeB, name(C)]),
    stop(Nodes).

%% Nodes that are killed and nodes that join during it: no crash, and all who stay are tuned.
nodes_come_and_go(_Config) ->
    A = start(),
    Killed = [start() || _ <- lists:seq(1, 3)],
    [ok = connect(A, N) || N <- Killed],
    [Stays, Joins] = [start(), start()],
    ok = connect(A, Stays),
    Self = self(),
    _ = spawn_link(fun() -> [erlane_dist_ct:kill(N) || N <- Killed], Self ! killed end),
    Rows = loop(A, []),
    ok = connect(Joins, A),
    Allowed = [ok, {error, noconnection}],
    ?assertEqual([], [Row || #{result := Result} = Row <- Rows,
                             not lists:member(Result, Allowed)]),
    tuned(A, [name(Stays), name(Joins)]),
    stop([A, Stays, Joins | Killed]).

loop(A, Rows) ->
    {ok, Changes} = tune(A, #{}),
    {ok, Undone} = call(A, erlane_dist, untune, [Changes]),
    receive
        killed ->
            {ok, Last} = tune(A, #{}),
            Last ++ Rows
    after 0 ->
        loop(A, Changes ++ Undone ++ Rows)
    end.

%% net_kernel would crash when it merges our options with such ones, and with it all connections.
no_pairs_in_environment(_Config) ->
    [A, B] = Nodes = [start(), start()],
    ok = connect(A, B),
    Kernel = call(A, erlang, whereis, [net_kernel]),
    [begin
         ok = call(A, application, set_env, [kernel, inet_dist_connect_options, Env]),
         {ok, Changes} = tune(A, #{}),
         ?assertEqual([{error, {kernel, inet_dist_connect_options, Odd}}],
                      lists:usort([R || #{where := new, result := R} <- Changes]))
     end || {Env, Odd} <- [{[{nodelay, true}, inet6], inet6},
                           {[{raw, 6, 9, <<1:32/native>>}], {raw, 6, 9, <<1:32/native>>}},
                           {[{nodelay, true} | x], x}, {x, x}]],
    tuned(A, [name(B)], [connections]),
    ?assertEqual(Kernel, call(A, erlang, whereis, [net_kernel])),
    stop(Nodes).

%% TLS: nothing is set, for the connection and for those to come, and it says so.
tls(Config) ->
    Dir = proplists:get_value(priv_dir, Config),
    Args = ["-proto_dist", "inet_tls", "-ssl_dist_optfile", certificate(Dir)],
    [A, B] = Nodes = [start(Args), start(Args)],
    ok = connect(A, B),
    Before = settings(A),
    {ok, Changes} = tune(A, #{}),
    ?assertEqual([{error, enotsup}], lists:usort([R || #{result := R} <- Changes])),
    ?assertEqual([new, name(B)], lists:usort([Where || #{where := Where} <- Changes]) ),
    ?assertEqual(Before, settings(A)),
    {ok, []} = call(A, erlane_dist, untune, [Changes]),
    ?assertEqual([], [F || #{where := Where} = F <- call(A, erlane_dist, check, []),
                           Where =/= vm]),
    pong = call(A, net_adm, ping, [name(B)]),
    %% With both, net_kernel would set the listener that it can, and nothing else.
    Both = start(["-proto_dist", "inet_tcp", "inet_tls" | tl(tl(Args))]),
    Untouched = settings(Both),
    {ok, [#{where := new, key := all, result := {error, enotsup}}]} = tune(Both, #{}),
    ?assertEqual(Untouched, settings(Both)),
    stop([Both | Nodes]).

certificate(Dir) ->
    %% The defaults of old releases are no longer taken by new ones.
    Of = [{key, {namedCurve, secp256r1}}, {digest, sha256}],
    Chain = #{root => Of, intermediates => [], peer => Of},
    #{server_config := Server} = public_key:pkix_test_data(#{server_chain => Chain,
                                                             client_chain => Chain}),
    {KeyType, Key} = proplists:get_value(key, Server),
    Cert = filename:join(Dir, "dist.pem"),
    ok = file:write_file(Cert, public_key:pem_encode(
                                 [{'Certificate', proplists:get_value(cert, Server),
                                   not_encrypted},
                                  {KeyType, Key, not_encrypted}])),
    File = filename:join(Dir, "dist.conf"),
    Opts = [{certfile, Cert}, {keyfile, Cert}, {verify, verify_none}],
    ok = file:write_file(File, io_lib:format("~0p.~n", [[{server, Opts}, {client, Opts}]])),
    File.

%% A node that listens to nobody: those it connects to. net_kernel would not survive to be asked.
no_listener(_Config) ->
    [A, B, C] = Nodes = [start(["-dist_listen", "false"]), start(), start()],
    ok = connect(A, B),
    {ok, Changes} = tune(A, #{}),
    ?assertEqual([ok], lists:usort([R || #{result := R} <- Changes])),
    tuned(A, [name(B)], [connections]),
    ok = connect(A, C),
    tuned(A, [name(B), name(C)], [connections]),
    {ok, _} = call(A, erlane_dist, untune, [Changes]),
    #{env := [undefined, undefined | _], connections := #{} = Connections} = settings(A),
    [?assertEqual(false, proplists:get_value(delay_send, Opts))
     || Opts <- maps:values(Connections)],
    stop(Nodes).

%% From here to a node that has none of our code; our own connection to it is left out.
another_node(_Config) ->
    [A, B, C] = Nodes = [start(), start([], #{bare => true, env => [{"ERL_LIBS", ""}]}), start()],
    ok = connect(A, B),
    ok = connect(C, B),
    {error, {bad_option, buffer}} = call(A, erlane_dist, tune, [name(B), #{buffer => x}]),
    {ok, Changes} = call(A, erlane_dist, tune, [name(B), #{}]),
    ?assertEqual([new, name(C)], lists:usort([Where || #{where := Where} <- Changes])),
    ?assertEqual([ok], lists:usort([R || #{result := R} <- Changes])),
    non_existing = call(B, code, which, [erlane_dist]),
    {ok, Opts} = call(B, net_kernel, getopts, [name(C), maps:keys(tuned())]),
    ?assertEqual(tuned(), maps:from_list(Opts)),
    {ok, []} = call(A, erlane_dist, tune, [name(B), #{}]),
    {ok, Findings} = call(A, erlane_dist, check, [name(B)]),
    ?assertEqual([], [F || #{where := Where} = F <- Findings, Where =/= vm]),
    {ok, _} = call(A, erlane_dist, untune, [name(B), Changes]),
    {ok, Back} = call(B, net_kernel, getopts, [name(C), [buffer, delay_send]]),
    ?assertNotEqual(262144, proplists:get_value(buffer, Back)),
    ?assertEqual(false, proplists:get_value(delay_send, Back)),
    {error, {gone, 'nobody@nowhere', noconnection}} =
        call(A, erlane_dist, tune, ['nobody@nowhere', #{}]),
    {error, {gone, 'nobody@nowhere', noconnection}} =
        call(A, erlane_dist, check, ['nobody@nowhere']),
    stop(Nodes).

%%% Helpers

%% On a node: the process that has the connection.
owner(Node) ->
    {_, Port} = lists:keyfind(Node, 1, erlang:system_info(dist_ctrl)),
    {connected, Owner} = erlang:port_info(Port, connected),
    Owner.

%% Until it was asked something.
waits(Pid) ->
    case process_info(Pid, message_queue_len) of
        {_, 0} -> erlang:yield(), waits(Pid);
        {_, _} -> ok
    end.
