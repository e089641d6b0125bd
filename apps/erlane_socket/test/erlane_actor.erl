%% SPDX-License-Identifier: Apache-2.0
%% @doc Processes that own sockets and do what they are asked to, for prop_erlane_socket, and a
%% table of things by name that all of them see.
-module(erlane_actor).

-export([start/1, start/2, stop/1, ask/2, together/1]).
-export([keep/2, kept/1, reset/0, stop_all/0]).

-define(DEADLINE, 20000).

%% @doc A process that waits for work, bound to a scheduler if that is not 0.
-spec start(non_neg_integer()) -> pid().
start(Scheduler) ->
    start(Scheduler, undefined).

%% @doc The same, holding on to a term, so that a socket is not collected while it is moved.
-spec start(non_neg_integer(), term()) -> pid().
start(Scheduler, Term) ->
    Pid = spawn_opt(fun() -> loop(Term) end, [{scheduler, Scheduler}]),
    true = ets:insert(?MODULE, {Pid, actor}),
    Pid.

loop(Term) ->
    receive
        {?MODULE, From, Ref, Fun} ->
            From ! {Ref, outcome(Fun)},
            loop(Term);
        {?MODULE, stop} ->
            ok
    end.

outcome(Fun) ->
    try {ok, Fun()}
    catch Class:Reason:Stack -> {Class, Reason, Stack}
    end.

-spec stop(pid()) -> ok.
stop(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {?MODULE, stop},
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% @doc What Fun gives when Pid runs it; an exception there is one here.
-spec ask(pid(), fun(() -> term())) -> term().
ask(Pid, Fun) ->
    Ref = monitor(process, Pid),
    Pid ! {?MODULE, self(), Ref, Fun},
    receive
        {Ref, {ok, Answer}} ->
            demonitor(Ref, [flush]),
            Answer;
        {Ref, Failed} -> error(Failed);
        {'DOWN', Ref, process, Pid, Why} -> error({actor_died, Why})
    after ?DEADLINE ->
        error({hangs, process_info(Pid, [current_stacktrace, messages])})
    end.

%% @doc The results of functions that run at the same time.
-spec together([fun(() -> term())]) -> [term()].
together(Funs) ->
    Runs = [spawn_monitor(fun() -> exit({?MODULE, outcome(Fun)}) end) || Fun <- Funs],
    [receive
         {'DOWN', Ref, process, Pid, {?MODULE, {ok, Answer}}} -> Answer;
         {'DOWN', Ref, process, Pid, Failed} -> error(Failed)
     end
     || {Pid, Ref} <- Runs].

-spec keep(term(), term()) -> ok.
keep(Name, Term) ->
    true = ets:insert(?MODULE, {Name, Term}),
    ok.

-spec kept(term()) -> term().
kept(Name) ->
    ets:lookup_element(?MODULE, Name, 2).

%% @doc An empty table for the next test, whose process owns it.
-spec reset() -> ok.
reset() ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    ok.

%% @doc Ends all actors, and with them their sockets.
-spec stop_all() -> ok.
stop_all() ->
    _ = [erlane_ct:kill(Pid) || {Pid, actor} <- ets:tab2list(?MODULE)],
    true = ets:delete(?MODULE),
    ok.
