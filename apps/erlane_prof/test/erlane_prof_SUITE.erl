%% SPDX-License-Identifier: Apache-2.0
%% Looking into a node: this one, and others that have nothing of erlane.
-module(erlane_prof_SUITE).

-import(erlane_prof_ct, [long_call/1, until/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2,
         end_per_testcase/2]).
-export([busy_scheduler/1, busy_process/1, full_mailbox/1, large_heap/1, idle_is_asked_once/1,
         more_than_a_slice/1, coming_and_going/1, native_call/1, large_dictionary/1,
         lanes_function/1, one_look/1, own_flags_restored/1, view_of_counters/1]).
-export([as_code/1, as_forms/1, caller_killed/1, connection_lost/1, worker_killed/1,
         guard_killed/1, node_stops/1, two_visitors/1, no_compiler/1, errors/1]).
-export([lanes/0]).

-define(WAIT_MS, 20000).
-define(COOKIE, erlane_prof_test).

all() ->
    [{group, here}, {group, there}, view_of_counters, errors].

groups() ->
    [{here, [], [busy_scheduler, busy_process, full_mailbox, large_heap, idle_is_asked_once,
                 more_than_a_slice, coming_and_going, native_call, large_dictionary,
                 lanes_function, one_look, own_flags_restored]},
     {there, [], [as_code, as_forms, caller_killed, connection_lost, worker_killed, guard_killed,
                  node_stops, two_visitors, no_compiler]}].

init_per_suite(Config) -> erlane_prof_ct:init_suite(?COOKIE, Config).

end_per_suite(_Config) -> erlane_prof_ct:end_suite().

init_per_testcase(Case, Config) ->
    erlane_prof_ct:init_there(Case, groups(), ?COOKIE, Config).

end_per_testcase(_Case, Config) -> erlane_prof_ct:end_case(Config).

%%% Here

%% A process that never waits keeps one scheduler busy, and not both.
busy_scheduler(_Config) ->
    Busy = spawn_link(fun spin/0),
    #{schedulers := Schedulers} = view(#{}, fun() -> ok end, 500),
    stop(Busy),
    Utils = [Util || #{util := Util} <- Schedulers],
    ?assert(lists:max(Utils) > 0.5, Schedulers),
    ?assert(lists:all(fun(Util) -> Util >= 0.0 andalso Util =< 1.0 end, Utils), Schedulers),
    ?assertEqual(erlang:system_info(schedulers), length(Schedulers)).

%% It is the first by reductions, with its name, and what the VM counts is about what we say.
busy_process(_Config) ->
    Busy = spawn_link(fun spin/0),
    true = register(prof_busy, Busy),
    {ok, Probe} = erlane_prof:attach(node(), #{procs => 5}),
    #{procs := [First | _]} =
        until(fun() ->
                      V = view(Probe, 300),
                      #{procs := [#{pid := Busy, reds_s := Rate} | _]} = V,
                      true = is_integer(Rate),
                      V
              end),
    ok = erlane_prof:detach(Probe),
    stop(Busy),
    #{name := Name, id := Id, status := Status, reds_s := Rate, current := Current} = First,
    ?assertEqual(<<"prof_busy">>, Name),
    ?assertEqual(list_to_binary(pid_to_list(Busy)), Id),
    ?assert(lists:member(Status, [running, runnable]), Status),
    ?assert(Rate > 100000, Rate),
    ?assertMatch(<<"erlane_prof_SUITE:spin/0">>, Current).

%% Messages nobody reads.
full_mailbox(_Config) ->
    Pid = spawn_link(fun wait/0),
    [Pid ! {message, N} || N <- lists:seq(1, 1234)],
    #{procs := [#{pid := First, mq := Messages} | _]} = view(#{sort => mailbox}),
    stop(Pid),
    ?assertEqual({Pid, 1234}, {First, Messages}).

%% A heap of at least 16 MB.
large_heap(_Config) ->
    Pid = spawn_link(fun() -> List = lists:seq(1, 1000000), wait(), List end),
    #{procs := [#{pid := First, memory := Bytes} | _]} =
        until(fun() ->
                      V = view(#{sort => memory}),
                      #{procs := [#{pid := Pid, memory := N} | _]} = V,
                      true = N >= 16000000,
                      V
              end),
    {total_heap_size, Words} = process_info(Pid, total_heap_size),
    stop(Pid),
    ?assertEqual(Pid, First),
    ?assert(Bytes < 2 * Words * erlang:system_info(wordsize), {Bytes, Words}).

%% A process that sleeps is shown, and is not woken again and again for it.
idle_is_asked_once(_Config) ->
    Pid = spawn_link(fun wait/0),
    [Pid ! {message, N} || N <- lists:seq(1, 10)],
    {ok, Probe} = erlane_prof:attach(node(), #{procs => 3, sort => mailbox}),
    Shown = fun() ->
                    {ok, #{procs := Procs}} = erlane_prof:sample(Probe),
                    [#{mq := Messages}] = [P || #{pid := P0} = P <- Procs, P0 =:= Pid],
                    Messages
            end,
    10 = until(Shown),
    Pid ! one_more,
    11 = until(fun() -> 11 = Shown() end),
    %% The message woke it; it was asked once more for that.
    {reductions, Before} = until(fun() ->
                                         Was = process_info(Pid, reductions),
                                         _ = Shown(),
                                         Was = process_info(Pid, reductions)
                                 end),
    _ = [Shown() || _ <- lists:seq(1, 20)],
    ?assertEqual({reductions, Before}, process_info(Pid, reductions)),
    ok = erlane_prof:detach(Probe),
    stop(Pid).

%% With more than 20,000 processes each sample has some of them; the busy one is found.
more_than_a_slice(_Config) ->
    Pids = [spawn(fun wait/0) || _ <- lists:seq(1, 25000)],
    Busy = spawn_link(fun spin/0),
    {ok, Probe} = erlane_prof:attach(node(), #{procs => 5}),
    until(fun() ->
                  {ok, #{procs := [#{pid := Busy, reds_s := Rate} | _], procs_looked := Looked}} =
                      erlane_prof:sample(Probe),
                  true = is_integer(Rate),
                  true = Looked =< 20000
          end),
    %% Back below the limit: all of them again.
    [exit(Pid, kill) || Pid <- Pids],
    until(fun() ->
                  {ok, #{procs := [#{pid := Busy, reds_s := Rate} | _], processes := All,
                         procs_looked := Looked}} = erlane_prof:sample(Probe),
                  true = is_integer(Rate),
                  true = abs(Looked - All) < 100
          end),
    ok = erlane_prof:detach(Probe),
    stop(Busy).

%% Processes that begin and end between the walks do not put others' figures on a wrong one.
coming_and_going(_Config) ->
    Steady = [spawn(fun wait/0) || _ <- lists:seq(1, 3000)],
    {ok, Probe} = erlane_prof:attach(node(), #{procs => 30}),
    lists:foldl(
      fun(N, Before) ->
              [exit(Pid, kill) || Pid <- Before],
              Now = [spawn(fun wait/0) || _ <- lists:seq(1, 37 * N)],
              {ok, #{procs := Procs}} = erlane_prof:sample(Probe),
              [?assert(Rate =:= undefined orelse Rate < 50000, P)
               || #{pid := Pid, reds_s := Rate} = P <- Procs, lists:member(Pid, Steady)],
              Now
      end, [], [1, 0, 5, 200, 3, 0, 100, 1]),
    ok = erlane_prof:detach(Probe),
    [exit(Pid, kill) || Pid <- Steady],
    ok.

%% A process in a long native call answers nobody, nor does its scheduler: samples come all the
%% same, and say so; the caller is never kept.
native_call(_Config) ->
    Call = long_call(2000),
    {ok, Probe} = erlane_prof:attach(node(), #{procs => 5}),
    {ok, _} = erlane_prof:sample(Probe),
    _ = process_flag(scheduler, 2),
    during(Call, Probe, 3),
    _ = process_flag(scheduler, 0),
    until(fun() -> {ok, #{counts_late := false}} = erlane_prof:sample(Probe) end),
    ok = erlane_prof:detach(Probe).

%% More than once if no sample fell into the call, for who has a processor when is not ours to say.
during(Call, Probe, Attempts) ->
    Self = self(),
    _ = spawn_opt(fun() ->
                          Self ! begun,
                          _ = Call(),
                          Self ! ended
                  end, [link, {scheduler, 1}]),
    receive begun -> ok end,
    Samples = until_ended(Probe, []),
    [?assert(Us < 10000000, Samples) || {Us, _} <- Samples],
    %% The probe may itself have been in the queue of that scheduler: then it took as long.
    case lists:any(fun({Us, Answer}) -> Answer =:= late orelse Us > 1000000 end, Samples) of
        true -> ok;
        false when Attempts > 1 -> during(Call, Probe, Attempts - 1);
        false -> ct:fail(Samples)
    end.

until_ended(Probe, Samples) ->
    receive
        ended -> Samples
    after 0 ->
        {Us, Answer} = timer:tc(fun() -> erlane_prof:sample(Probe) end),
        What = case Answer of
                   {ok, #{counts_late := true}} -> late;
                   {ok, #{procs_late := true}} -> late;
                   {ok, _} -> in_time;
                   {error, {timeout, _}} -> timeout
               end,
        until_ended(Probe, [{Us, What} | Samples])
    end.

%% Names are looked for in the dictionary, which may be larger than we are to become.
large_dictionary(_Config) ->
    Pid = spawn_link(fun() -> put(large, lists:seq(1, 2500000)), wait() end),
    #{procs := [#{name := Name} | _]} =
        until(fun() ->
                      V = view(#{sort => memory}),
                      #{procs := [#{pid := Pid, status := waiting} | _]} = V,
                      V
              end),
    Details = erlane_prof_probe:sample(#{sort => memory, procs => 1}),
    ?assertMatch(#{procs := [#{pid := Pid}]}, Details),
    stop(Pid),
    ?assertEqual(<<"erlang:apply/2">>, Name).

%% It is called if it is there, whatever it does.
lanes_function(_Config) ->
    Lanes = fun(MF) ->
                    #{lanes := Lanes} = view(#{lanes => MF}),
                    Lanes
            end,
    [#{lane := 1, sockets := 7, waits_s := Waits, events_per_wait := Mean}] =
        Lanes({?MODULE, lanes}),
    ?assert(Waits > 0),
    ?assert(abs(Mean - 3.0) < 0.01, Mean),
    [] = Lanes({?MODULE, all}),
    [] = Lanes({?MODULE, not_exported}),
    [] = Lanes({no_such_module, stats}).

%% What erlane_socket:stats/0 gives, in short.
lanes() ->
    N = erlang:unique_integer([monotonic, positive]),
    [#{lane => 1, waits => N * 10, events => N * 30, sockets => 7}].

%% Without a probe: a map of figures, by this process.
one_look(_Config) ->
    #{node := Node, processes := N, memory := #{total := Total}, schedulers := [_ | _],
      limits := #{processes := Limit}, procs := Procs} = erlane_prof_probe:sample(#{procs => 3}),
    ?assertEqual({node(), 3}, {Node, length(Procs)}),
    ?assert(N > 10 andalso N < Limit),
    ?assert(abs(Total - erlang:memory(total)) < Total).

%% Counting of wall time ends with the probe, and goes on if somebody else asked for it.
own_flags_restored(_Config) ->
    until(fun() -> undefined = erlang:statistics(scheduler_wall_time) end),
    {ok, Probe} = erlane_prof:attach(node(), #{}),
    {ok, _} = erlane_prof:sample(Probe),
    [_ | _] = erlang:statistics(scheduler_wall_time),
    ok = erlane_prof:detach(Probe),
    until(fun() -> undefined = erlang:statistics(scheduler_wall_time) end),
    _ = erlang:system_flag(scheduler_wall_time, true),
    {ok, Probe2} = erlane_prof:attach(node(), #{}),
    {ok, _} = erlane_prof:sample(Probe2),
    ok = erlane_prof:detach(Probe2),
    until(fun() -> [] = probes() end),
    [_ | _] = erlang:statistics(scheduler_wall_time),
    _ = erlang:system_flag(scheduler_wall_time, false),
    true = code:is_loaded(erlane_prof_probe) =/= false.

%%% There

as_code(Config) -> visit(#{procs => 5}, Config).

as_forms(Config) -> visit(#{procs => 5, ship => forms}, Config).

%% Samples and details of a node without erlane; nothing stays.
visit(Options, Config) ->
    Node = proplists:get_value(node, Config),
    {ok, Probe} = erlane_prof:attach(Node, Options),
    [_] = there(Config),
    #{node := Node, procs := [_, _, _, _, _], reductions_s := Reds} = view(Probe, 200),
    ?assert(Reds > 0),
    Kernel = erpc:call(Node, erlang, whereis, [kernel_sup]),
    {ok, #{name := <<"kernel_sup">>, links := #{count := Links}, stack := [_ | _]}} =
        erlane_prof:process(Probe, Kernel),
    ?assert(Links > 3),
    Ended = erpc:call(Node, erlang, self, []),
    until(fun() -> {error, ended} = erlane_prof:process(Probe, Ended) end),
    ok = erlane_prof:detach(Probe),
    clean(Config).

%% The probe sees the end of the process that it works for.
caller_killed(Config) ->
    Caller = attached(Config),
    exit(Caller, kill),
    clean(Config).

%% The probe sees the end of the connection.
connection_lost(Config) ->
    Caller = attached(Config),
    true = erlang:disconnect_node(proplists:get_value(node, Config)),
    clean(Config),
    exit(Caller, kill).

%% Somebody there kills it.
worker_killed(Config) ->
    Node = proplists:get_value(node, Config),
    {ok, Probe} = erlane_prof:attach(Node, #{}),
    {_, _, Worker} = Probe,
    exit(Worker, kill),
    {error, {gone, Node, _} = Reason} = until(fun() -> {error, _} = erlane_prof:sample(Probe) end),
    ?assert(is_list(erlane_prof:format_error(Reason))),
    clean(Config).

%% Somebody there kills what was to clean up.
guard_killed(Config) ->
    Node = proplists:get_value(node, Config),
    {ok, Probe} = erlane_prof:attach(Node, #{}),
    {_, _, Worker} = Probe,
    {links, Links} = erpc:call(Node, erlang, process_info, [Worker, links]),
    Label = fun(Pid) ->
                    {_, List} = erpc:call(Node, erlang, process_info, [Pid, dictionary]),
                    proplists:get_value('$process_label', List)
            end,
    [Guard] = [Pid || Pid <- Links, Label(Pid) =:= {erlane_prof, guard}],
    exit(Guard, kill),
    {error, {gone, Node, _}} = until(fun() -> {error, _} = erlane_prof:sample(Probe) end),
    clean(Config).

%% A node that stops is an error, and not the end of the caller.
node_stops(Config) ->
    Node = proplists:get_value(node, Config),
    {ok, Probe} = erlane_prof:attach(Node, #{}),
    {ok, _} = erlane_prof:sample(Probe),
    ok = peer:stop(proplists:get_value(peer, Config)),
    {error, {gone, Node, noconnection}} = erlane_prof:sample(Probe),
    {error, {gone, Node, noconnection}} = erlane_prof:attach(Node, #{}),
    ok = erlane_prof:detach(Probe).

%% The end of one leaves the other alone.
two_visitors(Config) ->
    Node = proplists:get_value(node, Config),
    {ok, One} = erlane_prof:attach(Node, #{}),
    {ok, Two} = erlane_prof:attach(Node, #{}),
    [_, _] = there(Config),
    ok = erlane_prof:detach(One),
    until(fun() -> [_] = there(Config) end),
    {ok, #{node := Node}} = erlane_prof:sample(Two),
    ok = erlane_prof:detach(Two),
    clean(Config).

%% Where the code has to be compiled and cannot be, the error names the release.
no_compiler(Config) ->
    Node = proplists:get_value(node, Config),
    true = peer:call(proplists:get_value(peer, Config), code, del_path, [compiler]),
    {error, {no_compiler, Node, Release} = Reason} =
        erlane_prof:attach(Node, #{ship => forms}),
    ?assertEqual(erlang:system_info(otp_release), Release),
    ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Reason), Release)),
    clean(Config).

%% Each is told apart, in words.
errors(_Config) ->
    {ok, Peer, Node} = erlane_prof_ct:peer(?COOKIE, #{}),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    Unknown = list_to_atom("prof_nobody@" ++ Host),
    {error, {unknown, Unknown, Known}} = erlane_prof:connect(Unknown, #{}),
    ?assert(lists:member(Name, Known)),
    {error, {refused, Node}} = erlane_prof:connect(Node, #{cookie => another}),
    {error, {name, prof_nobody}} = erlane_prof:connect(prof_nobody, #{}),
    {error, {host, "no-such-host", _}} = erlane_prof:connect('a@no-such-host', #{}),
    {error, {no_epmd, "127.0.0.77"}} = no_epmd(),
    ok = peer:stop(Peer),
    [?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Reason), Word))
     || {Reason, Word} <- [{{unknown, Unknown, Known}, Name}, {{refused, Node}, "cookie"},
                           {{name, prof_nobody}, "NAME@HOST"}, {{no_epmd, "x"}, "epmd"},
                           {{host, "no-such-host", nxdomain}, "no-such-host"}]].

%% An epmd that listens nowhere. The port is looked up for each question.
no_epmd() ->
    {ok, Listen} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    ok = gen_tcp:close(Listen),
    {ok, Peer, _} = peer:start(#{connection => standard_io,
                                 env => [{"ERL_EPMD_PORT", integer_to_list(Port)}],
                                 args => ["-pa" | [filename:dirname(code:which(erlane_prof))]]}),
    Answer = peer:call(Peer, erlane_prof, connect, ['a@127.0.0.77', #{}]),
    ok = peer:stop(Peer),
    Answer.

%%% Pure

%% Rates by the time between the samples; what is new has counted since it began; what went back
%% is zero.
view_of_counters(_Config) ->
    Before = maps:merge(erlane_prof_probe:sample(#{}),
                        #{at_ms => 1000, reductions => 500, io_in => 900, threads => [],
                          lanes => [#{lane => 1, waits => 100, events => 100}],
                          dist => [],
                          schedulers => [#{id => 1, online => true, runq => 0, active => 10,
                                           total => 100, util => undefined}]}),
    After = Before#{at_ms := 3000, reductions := 2500, io_in := 100,
                    lanes := [#{lane => 1, waits => 300, events => 500},
                              #{lane => 2, waits => 10, events => 10}],
                    dist := [#{node => a@b, in => undefined, out => undefined,
                               queue => undefined}],
                    schedulers := [#{id => 1, online => true, runq => 0, active => 60,
                                     total => 200, util => undefined}]},
    #{ms := 2000, reductions_s := 1000.0, io_in_s := Back, cpu := undefined,
      lanes := [#{lane := 1, waits_s := 100.0, events_per_wait := 2.0},
                #{lane := 2, waits_s := 5.0}],
      dist := [#{node := a@b, in_s := undefined, queue := undefined}],
      schedulers := [#{util := 0.5}]} = erlane_prof:view(Before, After),
    ?assert(Back == 0).

%%% Helpers

spin() -> spin().

wait() ->
    receive stop -> ok end.

stop(Pid) ->
    unlink(Pid),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

view(Options) ->
    view(Options, fun() -> ok end, 100).

view(Options, Fun, Ms) ->
    {ok, Probe} = erlane_prof:attach(node(), maps:merge(#{procs => 5}, Options)),
    Fun(),
    View = view(Probe, Ms),
    ok = erlane_prof:detach(Probe),
    View.

%% The time between two samples is what is measured here, not a wait for something.
view(Probe, Ms) ->
    {ok, Before} = erlane_prof:sample(Probe),
    receive after Ms -> ok end,
    {ok, After} = erlane_prof:sample(Probe),
    erlane_prof:view(Before, After).

probes() ->
    [Pid || Pid <- processes(), {dictionary, List} <- [process_info(Pid, dictionary)],
            {'$process_label', {erlane_prof, _}} <- List].

%% A process with a probe on the peer.
attached(Config) ->
    Node = proplists:get_value(node, Config),
    Self = self(),
    Caller = spawn(fun() ->
                           {ok, Probe} = erlane_prof:attach(Node, #{procs => 5}),
                           {ok, _} = erlane_prof:sample(Probe),
                           Self ! {attached, self()},
                           wait()
                   end),
    receive {attached, Caller} -> ok after ?WAIT_MS -> ct:fail(not_attached) end,
    [_] = there(Config),
    [_ | _] = peer:call(proplists:get_value(peer, Config), erlang, statistics,
                        [scheduler_wall_time]),
    Caller.

%% Modules of probes on the peer.
there(Config) ->
    Loaded = peer:call(proplists:get_value(peer, Config), code, all_loaded, []),
    [Module || {Module, _} <- Loaded, lists:prefix("erlane", atom_to_list(Module))].

%% No module, no old code of one, no process, no flag.
clean(Config) ->
    Peer = proplists:get_value(peer, Config),
    until(fun() ->
                  [] = there(Config),
                  undefined = peer:call(Peer, erlang, statistics, [scheduler_wall_time])
          end),
    Names = [list_to_atom(lists:concat([Module, "_", N])) || N <- lists:seq(0, 63),
                                                             Module <- [erlane_prof_probe]],
    until(fun() ->
                  [] = [Name || Name <- Names,
                                peer:call(Peer, erlang, check_old_code, [Name])],
                  Currents = [peer:call(Peer, erlang, process_info, [Pid, current_function])
                              || Pid <- peer:call(Peer, erlang, processes, [])],
                  [] = [M || {current_function, {M, _, _}} <- Currents,
                             lists:prefix("erlane", atom_to_list(M))]
          end).
