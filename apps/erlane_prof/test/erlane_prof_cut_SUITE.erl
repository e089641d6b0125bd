%% SPDX-License-Identifier: Apache-2.0
%% What is left of a profile that is cut off, for each mode that changes something on the node: the
%% caller, the connection, our processes there, or the node itself is gone in the middle of it; or
%% there are two at once.
-module(erlane_prof_cut_SUITE).

-import(erlane_prof_ct, [agents/2, call/4, until/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([caller_killed/1, connection_cut/1, worker_killed/1, guard_killed/1, node_restarts/1,
         two_at_once/1, two_modes_at_once/1, declined/1]).

-define(WAIT_MS, 20000).
-define(COOKIE, erlane_prof_cut_test).
-define(FUNCTIONS, [{lists, map, 2}, {gen_server, call, 2}]).

all() ->
    [caller_killed, connection_cut, worker_killed, guard_killed, node_restarts, two_at_once,
     two_modes_at_once, declined].

init_per_suite(Config) -> erlane_prof_ct:init_suite(?COOKIE, Config).

end_per_suite(_Config) -> erlane_prof_ct:end_suite().

init_per_testcase(_Case, Config) ->
    erlane_prof_ct:connected(?COOKIE, #{}) ++ Config.

end_per_testcase(_Case, Config) -> erlane_prof_ct:end_case(Config).

modes() ->
    [sample, time, latency, schedulers] ++ [memory || release() >= 26].

release() ->
    list_to_integer(erlang:system_info(otp_release)).

%%% Cases

caller_killed(Config) ->
    [begin
         Caller = running(Mode, Config),
         exit(Caller, kill),
         clean(Mode, Config)
     end || Mode <- modes()].

%% The caller has what there was, with a note, or a sentence.
connection_cut(Config) ->
    Node = proplists:get_value(node, Config),
    [begin
         Caller = running(Mode, Config),
         true = erlang:disconnect_node(Node),
         clean(Mode, Config),
         told(Mode, Caller),
         ok = erlane_prof:connect(Node, #{cookie => ?COOKIE})
     end || Mode <- modes()].

worker_killed(Config) ->
    [begin
         Caller = running(Mode, Config),
         [_] = [exit(Pid, kill) || Pid <- agents(Config, "erlane_prof")],
         clean(Mode, Config),
         told(Mode, Caller)
     end || Mode <- modes()].

guard_killed(Config) ->
    [begin
         Caller = running(Mode, Config),
         [_] = [exit(Pid, kill) || Pid <- agents(Config, "guard")],
         clean(Mode, Config),
         told(Mode, Caller)
     end || Mode <- modes()].

%% The same name again, a moment later: nothing of us comes to the new node.
node_restarts(Config) ->
    Node = proplists:get_value(node, Config),
    Callers = [{Mode, running(Mode, Config)} || Mode <- [sample, schedulers]],
    ok = peer:stop(proplists:get_value(peer, Config)),
    [Name, _] = string:split(atom_to_list(Node), "@"),
    {ok, Peer, Node} = erlane_prof_ct:peer(?COOKIE, #{name => list_to_atom(Name)}),
    [told(Mode, Caller) || {Mode, Caller} <- Callers],
    ok = erlane_prof:connect(Node, #{cookie => ?COOKIE}),
    clean(sample, [{peer, Peer} | Config]),
    {ok, _} = take(latency, Node, #{for => 100}),
    clean(latency, [{peer, Peer} | Config]),
    peer:stop(Peer).

%% A second one of the same mode is refused where tracing is one for the whole node, with a
%% sentence; elsewhere both are whole. The end of one is not that of the other.
two_at_once(Config) ->
    Node = proplists:get_value(node, Config),
    [begin
         Caller = running(Mode, Config),
         case take(Mode, Node, #{for => 200}) of
             {ok, _} -> ok;
             {error, {declined, Node, _} = Why} ->
                 true = release() < 27,
                 ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Why),
                                                      "somebody traces"))
         end,
         [_ | _] = agents(Config, "guard"),
         exit(Caller, kill),
         clean(Mode, Config)
     end || Mode <- modes()].

two_modes_at_once(Config) ->
    Node = proplists:get_value(node, Config),
    Caller = running(latency, Config),
    {ok, _} = take(sample, Node, #{for => 200}),
    {ok, #{moves := Moves}} = take(schedulers, Node, #{for => 200}),
    %% Where latency traces, nobody else can.
    ?assertEqual(release() < 27, Moves =:= undefined),
    ?assertEqual(1, length(agents(Config, "guard"))),
    exit(Caller, kill),
    clean(latency, Config).

%% What cannot be begun leaves nothing.
declined(Config) ->
    Node = proplists:get_value(node, Config),
    [begin
         {error, {declined, Node, _} = Why} =
             erlane_prof:run(#{mode => Mode, node => Node, for => 100, events => 1000,
                               functions => [no_such_module]}),
         ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Why), "no_such_module")),
         clean(Mode, Config)
     end || Mode <- modes(), Mode =/= sample, Mode =/= schedulers].

%%% Helpers

take(schedulers, Node, Options) ->
    erlane_prof:schedulers(Options#{node => Node});
take(sample, Node, Options) ->
    erlane_prof:run(Options#{mode => sample, node => Node, events => 1000000});
take(Mode, Node, Options) ->
    erlane_prof:run(Options#{mode => Mode, node => Node, events => 1000000,
                             functions => ?FUNCTIONS}).

%% A process that takes a profile of the peer, of which there is something already.
running(Mode, Config) ->
    Node = proplists:get_value(node, Config),
    Self = self(),
    Caller = spawn(fun() ->
                           Progress = fun(_) -> Self ! {running, self()}, continue end,
                           Self ! {self(), take(Mode, Node, #{for => 60000,
                                                              progress => Progress})}
                   end),
    receive
        {running, Caller} -> ok;
        {Caller, Answer} -> ct:fail({Mode, Answer})
    after ?WAIT_MS -> ct:fail({not_running, Mode})
    end,
    [_ | _] = agents(Config, "guard"),
    Caller.

told(Mode, Caller) ->
    receive
        {Caller, {ok, #{notes := Notes}}} -> ?assertMatch([_ | _], Notes, Mode);
        {Caller, {error, Why}} -> ?assertMatch([_ | _], erlane_prof:format_error(Why), Mode)
    after ?WAIT_MS -> ct:fail({no_answer, Mode})
    end.

%% No module, no old code, no process, no name, no flag, no breakpoint, nothing switched on.
clean(Mode, Config) ->
    Loaded = fun() -> [M || {M, _} <- call(Config, code, all_loaded, []),
                            lists:prefix("erlane", atom_to_list(M))]
             end,
    until(fun() ->
                  [] = Loaded(),
                  [] = agents(Config, ""),
                  undefined = call(Config, erlang, whereis, [erlane_prof_depth]),
                  [] = [F || F <- ?FUNCTIONS, Item <- [traced, call_time],
                             call(Config, erlang, trace_info, [F, Item]) =/= {Item, false}],
                  {flags, []} = call(Config, erlang, trace_info, [new_processes, flags]),
                  {trace, 0} = call(Config, erlang, process_info,
                                    [call(Config, erlang, whereis, [kernel_sup]), trace]),
                  Old = [erlane_prof_agent, erlane_prof_latency, erlane_prof_counts,
                         erlane_prof_threads, erlane_prof_session, erlane_prof_open],
                  [] = [Name || Name <- names(Old),
                                call(Config, erlang, check_old_code, [Name])]
          end),
    ?assertEqual({Mode, 8}, {Mode, call(Config, erlang, system_flag, [backtrace_depth, 8])}),
    ?assertEqual({Mode, false},
                 {Mode, call(Config, erlang, system_flag, [microstate_accounting, false])}),
    ?assertEqual({Mode, undefined},
                 {Mode, call(Config, erlang, statistics, [scheduler_wall_time])}).

%% Those that a name was made for.
names(Modules) ->
    [list_to_atom(lists:concat([Module, "_", N])) || N <- lists:seq(0, 63), Module <- Modules].
