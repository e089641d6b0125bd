%% SPDX-License-Identifier: Apache-2.0
%% @doc The VMs of the flood scenarios. A contestant has a near node, which measures, and one far
%% node or more; nobody else knows its cookie.
%%
%% The near node has the first core for itself and all far nodes the second, with one scheduler
%% each and without busy wait: CPU time is then work, and both ends of a connection do run at the
%% same time.
-module(erlane_bench_flood_vms).

-export([start/4, stop/1, ask/3, cpu_ns/1, programs/1]).

-export_type([cluster/0]).

-type cluster() :: #{near := erlane_bench_os:program(), fars := [erlane_bench_os:program()],
                     nodes := [node()], way := atom()}.
-type state() :: {ok, cluster()} | {unavailable | failed, binary()}.

-define(START_MS, 30000).

%% @doc Starts contestants, each with so many far nodes, all at the same time, and connects them.
-spec start([string()], Fars :: pos_integer(), erlane_bench_vm:epmd(),
            erlane_bench_contestant:config()) ->
          [{string(), state()}].
start(Names, Fars, Epmd, Config) ->
    Launched = [{Name, launch(Name, Fars, Epmd, Config)} || Name <- Names],
    [{Name, case State of
                {ok, Cluster} -> ready(Cluster);
                Why -> Why
            end} || {Name, State} <- Launched].

launch(Name, Fars, Epmd, #{server_core := NearCore, load_core := FarCore} = Config) ->
    case contestant(Name, Config) of
        {Why, _} = Not when Why =:= unavailable; Why =:= failed ->
            Not;
        #{way := Way, flags := Flags, settings := Settings} ->
            Cookie = erlane_bench_vm:cookie(),
            Apps = ["router" || Way =:= router orelse Way =:= router_list],
            Run = fun(I, Core) ->
                          Node = erlane_bench_vm:node_name(Name, I),
                          Args = Flags ++ ["-name", Node, "-setcookie", Cookie, "-pa" | paths()]
                              ++ ["-s", "erlane_bench_flood_node", "start", "-extra", Settings
                                  | Apps],
                          {list_to_atom(Node), erlane_bench_vm:start(Args, Core, Epmd)}
                  end,
            {_, Near} = Run(0, NearCore),
            {Nodes, Programs} = lists:unzip([Run(I, FarCore) || I <- lists:seq(1, Fars)]),
            {ok, #{near => Near, fars => Programs, nodes => Nodes, way => Way}}
    end.

%% Those of our libraries that are there.
paths() ->
    lists:usort([filename:dirname(File)
                 || M <- [?MODULE, erlane_dist, erlane_router, erlane_metrics, erlane_socket],
                    File <- [code:which(M)], is_list(File)]).

%% How messages go, flags of the VM, settings of the distribution.
contestant("stock", _) -> plain("stock");
contestant("buffer", _) -> plain("buffer");
contestant("delay_send", _) -> plain("delay_send");
contestant("tuned", _) -> plain("tuned");
contestant("tuned-boot", _) -> #{way => plain, settings => "tuned", flags => ["+zdbbl", "32768"]};
contestant("lists", _) -> #{way => lists, settings => "tuned", flags => []};
contestant("helper", _) -> #{way => helper, settings => "tuned", flags => []};
contestant("erpc", _) -> #{way => erpc, settings => "tuned", flags => []};
contestant("router" ++ List, _) ->
    case code:which(erlane_router) of
        non_existing -> {unavailable, <<"there is no erlane_router">>};
        _ -> #{way => case List of "" -> router; "-list" -> router_list end,
               settings => "tuned", flags => []}
    end;
contestant("carrier-socket", _) ->
    case list_to_integer(erlang:system_info(otp_release)) of
        Otp when Otp >= 27 ->
            #{way => plain, settings => "stock",
              flags => ["-proto_dist", "inet_epmd", "-inet_epmd", "socket"]};
        _ -> {unavailable, <<"needs OTP 27">>}
    end;
contestant("tls", Config) ->
    case code:which(ssl) of
        non_existing -> {unavailable, <<"not installed: apt-get install erlang-ssl">>};
        _ -> #{way => plain, settings => "stock",
               flags => ["-proto_dist", "inet_tls", "-ssl_dist_optfile", tls(Config)]}
    end.

plain(Settings) -> #{way => plain, settings => Settings, flags => []}.

%% A certificate that nobody checks: the figure is about encryption.
tls(#{tmp := Tmp}) ->
    File = fun(Name) -> filename:join(Tmp, "flood-" ++ Name) end,
    %% The defaults here, SHA-1 and any curve, are none that TLS 1.3 takes.
    How = [{digest, sha256}, {key, {namedCurve, secp256r1}}],
    Chain = #{root => How, intermediates => [], peer => How},
    #{server_config := Made} = public_key:pkix_test_data(#{server_chain => Chain,
                                                           client_chain => Chain}),
    {Type, Key} = proplists:get_value(key, Made),
    Pem = public_key:pem_encode([{'Certificate', proplists:get_value(cert, Made), not_encrypted},
                                 {Type, Key, not_encrypted}]),
    ok = file:write_file(File("cert.pem"), Pem),
    Options = [{server, [{certfile, File("cert.pem")}, {verify, verify_none}]},
               {client, [{verify, verify_none}]}],
    ok = file:write_file(File("tls.conf"), io_lib:format("~p.~n", [Options])),
    File("tls.conf").

ready(#{near := Near, fars := Fars, nodes := Nodes} = Cluster) ->
    Ready = [erlane_bench_os:await(Program, <<"ready ">>, ?START_MS) || Program <- [Near | Fars]],
    case [Why || {error, Why} <- Ready] of
        [] ->
            [{ok, How} | _] = Ready,
            io:format(standard_error, "  ~ts: settings by ~ts~n", [hd(Nodes), How]),
            case ask(Cluster, {connect, Nodes}, ?START_MS) of
                {ok, Answers} ->
                    case lists:all(fun(A) -> A =:= true end, Answers) of
                        true -> {ok, Cluster};
                        false -> given_up(Cluster, <<"does not connect">>)
                    end;
                {error, Why} -> given_up(Cluster, Why)
            end;
        [Why | _] ->
            given_up(Cluster, Why)
    end.

given_up(Cluster, Why) ->
    ok = stop(Cluster),
    {failed, Why}.

%% @doc Sends a command to the near node and gives its result.
-spec ask(cluster(), term(), Ms :: pos_integer()) -> {ok, term()} | {error, binary()}.
ask(#{near := Near}, Command, Ms) -> erlane_bench_vm:ask(Near, Command, Ms).

%% @doc CPU time in nanoseconds of the near node, and of all far ones.
-spec cpu_ns(cluster()) -> {Near :: non_neg_integer(), Far :: non_neg_integer()}.
cpu_ns(#{near := Near, fars := Fars}) ->
    {erlane_bench_os:cpu_ns(Near), lists:sum([erlane_bench_os:cpu_ns(Far) || Far <- Fars])}.

%% @doc All VMs of a contestant.
-spec programs(cluster()) -> [erlane_bench_os:program()].
programs(#{near := Near, fars := Fars}) -> [Near | Fars].

%% @doc Ends the VMs of a contestant.
-spec stop(cluster()) -> ok.
stop(Cluster) ->
    %% All are told first, as each may take a while. Those that have ended are not: their process
    %% ids may be those of others by now.
    Alive = [Program || #{port := Port} = Program <- programs(Cluster),
                        erlang:port_info(Port) =/= undefined],
    lists:foreach(fun(Program) -> erlane_bench_os:signal(Program, "KILL") end, Alive),
    lists:foreach(fun erlane_bench_os:stop/1, programs(Cluster)).
