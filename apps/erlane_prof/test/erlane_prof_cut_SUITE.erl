%% SPDX-License-Identifier: Apache-2.0
%% What is left of a profile that is cut off, for each mode that changes something on the node: the
%% caller, the connection, our processes there, or the node itself is gone in the middle of it; or
%% there are two at once.
-module(erlane_prof_cut_SUITE).

-import(erlane_prof_ct, [agents/2, call/4, until/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, init_per_testcase/2, end_per_testcase/2]).
-export([caller_killed/1, connection_cut/1, worker_killed/1, guard_killed/1, node_restarts/1,
         two_at_once/1, declined/1]).

-define(WAIT_MS, 20000).
-define(COOKIE, erlane_prof_cut_test).
-define(FUNCTIONS, [{lists, map, 2}, {gen_server, call, 2}]).

all() ->
    [caller_killed, connection_cut, worker_killed, guard_killed, node_restarts, two_at_once,
     declined].

init_per_suite(Config) -> erlane_prof_ct:init_suite(?COOKIE, Config).

end_per_suite(_Config) -> erlane_prof_ct:end_suite().

init_per_testcase(_Case, Config) ->
    erlane_prof_ct:connected(?COOKIE, nothing()) ++ Config.

end_per_testcase(_Case, Config) -> erlane_prof_ct:end_case(Config).

modes() ->
    [sample, schedulers | tracing()].

%% Those of which there is one at a time before OTP 27.
tracing() ->
    [time, latency, trace] ++ [memory || release() >= 26].

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
         ?assertNotEqual(nomatch, string:find(told(Mode, Caller), "went away"), Mode),
         ok = erlane_prof:connect(Node, #{cookie => ?COOKIE})
     end || Mode <- modes()].

worker_killed(Config) ->
    [begin
         Caller = running(Mode, Config),
         [_] = [exit(Pid, kill) || Pid <- agents(Config, "erlane_prof")],
         clean(Mode, Config),
         _ = told(Mode, Caller)
     end || Mode <- modes()].

guard_killed(Config) ->
    [begin
         Caller = running(Mode, Config),
         [_] = [exit(Pid, kill) || Pid <- agents(Config, "guard")],
         clean(Mode, Config),
         _ = told(Mode, Caller)
     end || Mode <- modes()].

%% The same name again, a moment later: nothing of us comes to the new node, and a profile of it
%% can be taken. Each mode is caught in the middle, those together that can be.
node_restarts(Config) ->
    Node = proplists:get_value(node, Config),
    [Name, _] = string:split(atom_to_list(Node), "@"),
    Last = lists:foldl(
             fun(Modes, Peer) ->
                     Callers = [{Mode, running(Mode, [{peer, Peer} | Config])} || Mode <- Modes],
                     ok = peer:stop(Peer),
                     {error, {gone, Node, noconnection}} = take(hd(Modes), Node, #{for => 50}),
                     Same = (nothing())#{name => list_to_atom(Name)},
                     {ok, Again, Node} = erlane_prof_ct:peer(?COOKIE, Same),
                     [?assertNotEqual(nomatch, string:find(told(Mode, Caller), "went away"), Mode)
                      || {Mode, Caller} <- Callers],
                     ok = erlane_prof:connect(Node, #{cookie => ?COOKIE}),
                     clean(Modes, [{peer, Again} | Config]),
                     {ok, _} = take(lists:last(Modes), Node, #{for => 50}),
                     clean(Modes, [{peer, Again} | Config]),
                     Again
             end, proplists:get_value(peer, Config),
             [[sample, schedulers] | [[Mode] || Mode <- tracing()]]),
    peer:stop(Last).

%% While one is taken of a mode another one is, of the same and of others. Where tracing is one for
%% the whole node a second one that traces is refused, with a sentence; elsewhere both are whole.
%% The end of one is not that of the other.
two_at_once(Config) ->
    Node = proplists:get_value(node, Config),
    [begin
         Caller = running(Mode, Config),
         [begin
              Refused = release() < 27 andalso Mode =/= sample
                  andalso lists:member(Other, tracing()),
              case take(Other, Node, #{for => 50}) of
                  {ok, #{moves := Moves}} ->
                      %% Where somebody traces nobody else is followed.
                      ?assertEqual(release() < 27 andalso Mode =/= sample, Moves =:= undefined,
                                   {Mode, Other});
                  {ok, _} ->
                      ?assertNot(Refused, {Mode, Other});
                  {error, {declined, Node, _} = Why} ->
                      ?assert(Refused, {Mode, Other}),
                      ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Why),
                                                           "somebody traces"))
              end,
              until(fun() -> [_] = agents(Config, "guard") end)
          end || Other <- beside(Mode)],
         exit(Caller, kill),
         clean(Mode, Config)
     end || Mode <- modes()].

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

%% Of those that trace each meets itself and the next one.
beside(sample) -> [sample, trace];
beside(schedulers) -> [schedulers, sample, latency];
beside(Mode) ->
    [Next | _] = tl(lists:dropwhile(fun(M) -> M =/= Mode end, tracing() ++ tracing())),
    [sample, schedulers, Mode, Next].

%% A node that finds nothing of erlane.
nothing() -> #{env => [{"ERL_LIBS", ""}]}.

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

%% What the caller gets: what there was, with a note, or a sentence.
told(Mode, Caller) ->
    receive
        {Caller, {ok, #{notes := Notes}}} ->
            ?assertMatch([_ | _], Notes, Mode),
            lists:append(lists:join(" ", [unicode:characters_to_list(Note) || Note <- Notes]));
        {Caller, {error, Why}} ->
            ?assertMatch([_ | _], erlane_prof:format_error(Why), Mode),
            erlane_prof:format_error(Why)
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
                  [] = [Name || Name <- names(), call(Config, erlang, check_old_code, [Name])]
          end),
    ?assertEqual({Mode, 8}, {Mode, call(Config, erlang, system_flag, [backtrace_depth, 8])}),
    ?assertEqual({Mode, false},
                 {Mode, call(Config, erlang, system_flag, [microstate_accounting, false])}),
    ?assertEqual({Mode, undefined},
                 {Mode, call(Config, erlang, statistics, [scheduler_wall_time])}).

%% Of what goes to a node.
names() ->
    [list_to_atom(lists:concat(["erlane_prof_agent_", N])) || N <- lists:seq(0, 63)].
