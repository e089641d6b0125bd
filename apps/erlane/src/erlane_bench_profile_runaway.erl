%% SPDX-License-Identifier: Apache-2.0
%% @doc Of the scenario `profile': everything traced on a node that is busy, which nobody should do.
%% It has to end by itself, memory and file have bounds, and the node has to answer meanwhile.
%%
%% The node has one scheduler, and more processes than that which never wait. Another one pings it
%% all the time as `net_adm:ping/1' does; beside that it asks a process of normal priority, whose
%% answers wait for their turn behind the others. What lasts from the first request until the
%% profile is there is one round.
-module(erlane_bench_profile_runaway).

-export([cases/3, trace/3, ping_begin/1, ping_end/0, echo/0]).

-define(CALL_MS, 300000).
-define(BUSY, 3).
-define(EVENTS, 1000000).
-define(PAUSE_MS, 2).
-define(ECHO, erlane_bench_profile_echo).

%% @doc The case of this part, if it is asked for.
-spec cases(Names :: [string()], Settings :: map(), erlane_bench_profile:vms()) -> [map()].
cases(Names, #{rounds := Rounds, round_ms := Ms}, #{one := Target} = Vms) ->
    case [N || {N, _} <- erlane_bench_profile_trace:back_ends(), lists:member(N, Names)] of
        [_ | _] = Traced ->
            case lists:member("runaway", Names) of
                true -> [one_case(["none" | Traced], Rounds, Ms, Target, Vms)];
                false -> []
            end;
        [] ->
            []
    end;
cases(_, _, _) ->
    [].

one_case(Names, Rounds, Ms, Target, Vms) ->
    Title = iolist_to_binary(io_lib:format("everything traced on a node of one scheduler and ~b "
                                           "busy processes: bar p99 of a ping 10 ms", [?BUSY])),
    io:format(standard_error, "~ts~n", [Title]),
    ok = on(Target, erlane_bench_profile_node, busy, [?BUSY]),
    ok = on(Target, ?MODULE, echo, []),
    Runners = [erlane_bench_turns:runner(Name, {ok, #{}}) || Name <- Names],
    Measure = fun(#{name := Name}) ->
                      erlane_bench_profile:answer(fun() -> round(Name, Ms, Target, Vms) end)
              end,
    Done = erlane_bench_turns:rounds(Rounds, "p99 of a ping in us", Measure, Runners),
    ok = on(Target, erlane_bench_profile_node, rest, []),
    #{title => Title, main => p99_us,
      rows => [erlane_bench_profile:row(R) || R <- Done]}.

round(Name, Ms, #{node := Node, program := Program} = Target, Vms) ->
    #{viewer := Viewer, pinger := Pinger} = Vms,
    Before = erlane_bench_os:rss_bytes(Program),
    ok = erlane_bench_os:forget_peak(Program),
    ok = on(Pinger, ?MODULE, ping_begin, [Node]),
    Told = case lists:keyfind(Name, 1, erlane_bench_profile_trace:back_ends()) of
               {Name, Options} -> on(Viewer, ?MODULE, trace, [Node, Options, 10 * Ms]);
               false -> timer:sleep(Ms), #{}
           end,
    #{p99_us := P99} = Pings = on(Pinger, ?MODULE, ping_end, []),
    ok = on(Target, erlane_bench_profile_node, forgotten, []),
    Grown = (erlane_bench_os:peak_bytes(Program) - Before) / 1.0e6,
    {ok, P99, maps:merge(Pings, Told#{grown_mb => Grown})}.

on(Vm, M, F, A) -> erlane_bench_profile_node:call(Vm, M, F, A, ?CALL_MS).

%%
%% Within the VMs
%%

%% @doc In the viewer: traces everything until it ends by itself.
-spec trace(node(), Options :: map(), Ms :: pos_integer()) ->
          #{atom() => number()} | {error, string()}.
trace(Node, Options, Ms) ->
    case erlane_bench_profile_trace:ended(
           erlane_prof:run(Options#{mode => trace, node => Node, for => Ms, events => ?EVENTS,
                                    functions => ['_'], force => true})) of
        {_, Bytes, #{ns := Ns, notes := Notes}} ->
            Ended = [Note || Note <- Notes, re:run(Note, "^ended", [{capture, none}]) =:= match],
            #{mb => Bytes / 1.0e6, traced_ms => Ns / 1.0e6, by_itself => length(Ended)};
        Error ->
            Error
    end.

%% @doc In the VM that is traced: a process that answers.
-spec echo() -> ok.
echo() ->
    case whereis(?ECHO) of
        undefined -> true = register(?ECHO, spawn(fun answer/0)), ok;
        _ -> ok
    end.

answer() ->
    receive {From, Ref} -> From ! Ref end,
    answer().

%% @doc In the pinger: pings a node until {@link ping_end/0}.
-spec ping_begin(node()) -> ok.
ping_begin(Node) ->
    pong = net_adm:ping(Node),
    true = register(?MODULE, spawn(fun() -> ping(Node, [], []) end)),
    ok.

ping(Node, Pings, Echoes) ->
    {Ping, pong} = timer:tc(net_adm, ping, [Node]),
    {Echo, ok} = timer:tc(fun() -> ask(Node) end),
    receive
        {finish, From} -> From ! {self(), [Ping | Pings], [Echo | Echoes]}
    after ?PAUSE_MS ->
        ping(Node, [Ping | Pings], [Echo | Echoes])
    end.

ask(Node) ->
    Ref = make_ref(),
    {?ECHO, Node} ! {self(), Ref},
    receive Ref -> ok end.

%% @doc How long pings took, in microseconds.
-spec ping_end() -> #{atom() => number()}.
ping_end() ->
    Pid = whereis(?MODULE),
    Pid ! {finish, self()},
    receive
        {Pid, Pings, Echoes} ->
            #{pings => length(Pings), p50_us => quantile(0.5, Pings),
              p99_us => quantile(0.99, Pings), max_us => lists:max(Pings),
              echo_us => quantile(0.99, Echoes)}
    end.

quantile(Q, List) ->
    lists:nth(max(1, ceil(Q * length(List))), lists:sort(List)).
