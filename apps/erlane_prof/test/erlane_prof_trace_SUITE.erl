%% SPDX-License-Identifier: Apache-2.0
%% Following calls on a node: that what comes of it is what was done there, and that nothing is
%% left of it; by the native tracer and by the VM's file port.
-module(erlane_prof_trace_SUITE).

-import(erlane_prof_ct, [agents/2, call/4]).
-import(erlane_prof_trace_live, [run/1, running/2, caller/1, caller/2, answer/1, noted/2, off/0,
                                 clean/1, stop/1, names/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2, end_per_group/2,
         init_per_testcase/2, end_per_testcase/2]).
-export([tree/1, local_functions/1, same_tree/1, server/1, exact_calls/1, spawned/1, messages/1,
         garbage/1,
         waits_by_reason/1, lines/1,
         only_some/1, events_limit/1, asked_to_stop/1, others_trace/1, trace_off/1, no_functions/1,
         everything_needs_force/1, options/1, progress/1]).
-export([small_buffers/1, which/1]).
-export([as_code/1, as_forms/1, caller_killed/1, connection_lost/1, worker_killed/1,
         guard_killed/1, declined/1, full_disk/1, full_at_the_end/1, runaway/1,
         unloaded/1, loaded_again/1, no_native/1]).
-export([work/0, inside/0, leaf/1, tail/1, even/1, odd/1, sum/1, catcher/1, deep/1, through/1,
         server_loop/1,
         busy/1, init/1, handle_call/3, handle_cast/2]).

-define(WAIT_MS, 60000).
-define(COOKIE, erlane_prof_trace_test).

all() ->
    [{group, Group} || {Group, _, _} <- groups()].

groups() ->
    Here = [tree, local_functions, same_tree, server, exact_calls, spawned, messages, garbage,
            waits_by_reason, lines, only_some, events_limit, asked_to_stop, others_trace,
            trace_off, everything_needs_force, progress],
    There = [as_code, caller_killed, connection_lost, worker_killed, guard_killed, full_disk,
             full_at_the_end, runaway],
    [{here_native, [], Here ++ [no_functions, options, small_buffers, which]},
     {here_port, [], Here},
     {there_native, [], There ++ [unloaded, loaded_again]},
     {there_port, [], There ++ [as_forms, declined, no_native]}].

init_per_suite(Config) -> erlane_prof_ct:init_suite(?COOKIE, Config).

end_per_suite(_Config) -> erlane_prof_ct:end_suite().

init_per_group(Group, Config) -> erlane_prof_trace_live:init_group(?MODULE, Group, Config).

end_per_group(_Group, _Config) -> erlane_prof_trace_live:end_group().

init_per_testcase(full_at_the_end = Case, Config) ->
    %% A disk of the peer's own, which is gone with it.
    Mount = "exec unshare --mount --propagation private sh -c 'mount -t tmpfs -o size=64k tmpfs "
        "\"$TMPDIR\" && exec \"$@\"' sh ",
    case os:cmd("unshare --mount --propagation private mount -t tmpfs tmpfs /tmp && echo yes") of
        "yes\n" -> erlane_prof_trace_live:init_case(?COOKIE, {Mount, ""}, Case, Config);
        Why -> {skip, "nothing can be mounted here: " ++ Why}
    end;
init_per_testcase(full_disk = Case, Config) ->
    %% Files of one megabyte at most.
    erlane_prof_trace_live:init_case(?COOKIE, {"trap '' XFSZ; ulimit -f 2048; exec ", ""}, Case,
                                     Config);
init_per_testcase(Case, Config) ->
    erlane_prof_trace_live:init_case(?COOKIE, {"exec ", ""}, Case, Config).

end_per_testcase(_Case, Config) -> erlane_prof_ct:end_case(Config).

%%% Here

%% Tail calls, mutual tail recursion, body recursion, an exception and a function that is not
%% traced: as the source has them.
tree(_Config) ->
    Profile = traced(fun work/0, #{}),
    ?assertEqual(lists:sort([{[work], 1}, {[work, leaf], 101}, {[work, tail], 1},
                             {[work, even], 51}, {[work, odd], 50}, {[work, sum], 31},
                             {[work, catcher], 1}, {[work, catcher, deep], 6},
                             {[work, through], 1}, {[work, through, leaf], 3}]),
                 lists:sort([{Stack, Calls} || {[_ | _] = Stack, Calls} <- calls(Profile)])),
    ?assertNot(noted("repaired", Profile)).

work() ->
    _ = tail(100),
    _ = even(100),
    _ = sum(30),
    _ = catcher(5),
    _ = through([0, 0, 0]),
    done.

tail(N) -> leaf(N).

leaf(0) -> 0;
leaf(N) -> leaf(N - 1).

even(0) -> true;
even(N) -> odd(N - 1).

odd(0) -> false;
odd(N) -> even(N - 1).

sum(0) -> 0;
sum(N) -> N + sum(N - 1).

catcher(N) ->
    try deep(N)
    catch
        throw:thrown -> caught
    end.

deep(0) -> throw(thrown);
deep(N) -> {deep(N - 1)}.

through(List) ->
    {lists:map(fun ?MODULE:leaf/1, List)}.

%% The same of functions that are not exported, which are not all asked where they return to.
local_functions(_Config) ->
    Top = erlane_prof_trace_object:called_from_top([{?MODULE, '_', '_'}]),
    ?assertEqual([{down, [ends_in, inside, last_one]}, {recursive, [inside]},
                  {thrower, [catches]}],
                 lists:sort([{F, [C || {_, C, _} <- Callers]}
                             || {{_, F, _}, Callers} <- Top,
                                lists:member(F, [down, thrower, last_one, recursive, under,
                                                 as_fun, leaf, inside])])),
    Profile = traced(fun ?MODULE:inside/0, #{}),
    ?assertEqual(lists:sort([{[inside], 1}, {[inside, down], 4}, {[inside, ends_in], 1},
                             {[inside, ends_in, down], 3}, {[inside, last_one], 1},
                             {[inside, last_one, down], 2}, {[inside, catches], 1},
                             {[inside, catches, thrower], 3}, {[inside, as_fun], 2},
                             {[inside, recursive], 4}, {[inside, recursive, under], 1}]),
                 lists:sort([{Stack, Calls} || {[_ | _] = Stack, Calls} <- calls(Profile)])),
    ?assertNot(noted("repaired", Profile)).

inside() ->
    _ = down(3),
    _ = ends_in(2),
    _ = catches(2),
    _ = recursive(3),
    {lists:map(fun as_fun/1, [1, 2])}.

down(0) -> 0;
down(N) -> 1 + down(N - 1).

ends_in(N) -> last_one(down(N)).

last_one(N) -> down(N - 1) + 1.

catches(N) ->
    try thrower(N)
    catch
        throw:thrown -> caught
    end.

thrower(0) -> throw(thrown);
thrower(N) -> {thrower(N - 1)}.

%% What it ends in is below it: only the innermost of its frames is over.
recursive(0) -> under(0);
recursive(N) -> 1 + recursive(N - 1).

under(N) -> N.

as_fun(N) -> N * 2.

%% A tree is the same whether calls are asked where they return to, as they are if not the whole
%% module is named, or the code tells.
same_tree(_Config) ->
    Text = "f([A | B], {X, _}) when A > X -> case g(B) of {ok, Y} -> [Y, \"s\"]; _ -> $c end.",
    Modules = [erl_scan, erl_parse],
    Functions = [{M, F, N} || M <- Modules, {F, N} <- M:module_info(functions)],
    [_ | _] = erlane_prof_trace_object:called_from_top([{M, '_', '_'} || M <- Modules]),
    [] = erlane_prof_trace_object:called_from_top(Functions),
    Work = fun() ->
                   {ok, Tokens, _} = erl_scan:string(Text),
                   {ok, _} = erl_parse:parse_form(Tokens),
                   {error, _, _} = erl_scan:string("\"no end"),
                   {error, _} = erl_parse:parse_form(tl(Tokens))
           end,
    [Told, Asked] = [traced(Work, #{functions => Named}) || Named <- [Modules, Functions]],
    ?assertEqual(lists:sort(calls(Asked)), lists:sort(calls(Told))),
    ?assert(length(calls(Told)) > 100),
    [?assertNot(noted("repaired", Profile)) || Profile <- [Told, Asked]].

%% A server's loop is one frame, whatever the number of its turns; what it calls is below it.
server(_Config) ->
    {ok, Server} = gen_server:start_link(?MODULE, none, []),
    Work = fun() -> [ok = gen_server:call(Server, N) || N <- lists:seq(1, 50)] end,
    {ok, Profile} = running(Work, #{functions => [gen_server, ?MODULE], procs => [Server]}),
    gen_server:stop(Server),
    Stacks = [{names(Stack), State, Values} || #{stack := Stack, state := State, values := Values}
                                                   <- maps:get(rows, Profile)],
    [Loop | _] = [Stack || {Stack, waiting, _} <- Stacks],
    %% The turn under way when it began, and those that were begun since.
    Depths = lists:usort([length(Stack) || {Stack, _, _} <- Stacks]),
    ?assert(lists:max(Depths) =< length(Loop) + 8, Stacks),
    ?assertEqual(50, lists:sum([Calls || {Stack, running, [_, Calls]} <- Stacks,
                                         lists:last(Stack) =:= handle_call])),
    ?assertNot(noted("repaired", Profile)).

init(none) -> {ok, none}.

handle_call(N, _From, State) -> {reply, ok, {N, element(1, {State})}}.

handle_cast(_, State) -> {noreply, State}.

%% Each call is counted, those that come and go included.
exact_calls(_Config) ->
    Work = fun() ->
                   Refs = [spawn_monitor(fun() -> leaf(9), even(9) end) || _ <- lists:seq(1, 200)],
                   [receive {'DOWN', Ref, process, _, _} -> ok end || {_, Ref} <- Refs]
           end,
    Profile = traced(Work, #{}),
    Sum = fun(F) -> lists:sum([N || {Stack, N} <- calls(Profile), lists:last(Stack) =:= F]) end,
    ?assertEqual([2000, 1000, 1000], [Sum(leaf), Sum(even), Sum(odd)]).

%% What is spawned is known by the function that it begins with.
spawned(_Config) ->
    Work = fun() ->
                   {_, Ref} = spawn_monitor(?MODULE, leaf, [5]),
                   receive {'DOWN', Ref, process, _, _} -> ok end
           end,
    #{rows := Rows} = traced(Work, #{with => [spawns]}),
    Label = <<"erlane_prof_trace_SUITE:leaf/1">>,
    ?assertEqual(6, lists:sum([N || #{proc := Proc, values := [_, N]} <- Rows, Proc =:= Label])).

%% Messages have a column of their own.
messages(_Config) ->
    Self = self(),
    Work = fun() -> _ = [Self ! {message, N} || N <- lists:seq(1, 30)], leaf(0) end,
    Profile = traced(Work, #{with => [messages]}),
    [receive {message, N} -> ok end || N <- lists:seq(1, 30)],
    ?assertMatch([_, _, #{name := messages, unit := count}], maps:get(values, Profile)),
    ?assert(erlane_prof_profile:total(Profile, messages) >= 30).

%% Collections of garbage are a state; beside somebody else's session they are not followed.
garbage(_Config) ->
    #{rows := Rows} = traced(fun() -> erlang:garbage_collect(), leaf(0) end, #{with => [gc]}),
    ?assert(lists:sum([Ns || #{state := gc, values := [Ns, _]} <- Rows]) > 0),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 27 -> ok;
        _ ->
            1 = erlang:trace(self(), true, [garbage_collection]),
            {error, {declined, _, _}} = run(#{with => [gc], for => 50}),
            1 = erlang:trace(self(), false, [garbage_collection]),
            {ok, _} = run(#{with => [gc], for => 50})
    end,
    off().

%% One that waits for a message is seen waiting in its receive, with the time that it took; one
%% that makes room for others is not.
waits_by_reason(_Config) ->
    Pid = spawn_link(?MODULE, server_loop, [none]),
    true = register(prof_trace_server, Pid),
    Busy = spawn_link(?MODULE, busy, [0]),
    true = register(prof_trace_busy, Busy),
    Work = fun() ->
                   Pid ! {self(), ping},
                   receive {Pid, pong} -> ok end,
                   receive after 300 -> ok end
           end,
    {ok, #{ns := Ns} = Profile} = running(Work, #{functions => [?MODULE],
                                                  procs => [Pid, prof_trace_busy]}),
    stop(Busy),
    stop(Pid),
    Waits = erlane_prof_profile:filter(Profile, #{proc => [<<"prof_trace_server">>],
                                                  state => [waiting]}),
    ?assertEqual([[server_loop]],
                 lists:usort([names(S) || #{stack := S} <- maps:get(rows, Waits)])),
    ?assert(erlane_prof_profile:total(Waits, wall) > Ns div 2),
    Busies = erlane_prof_profile:filter(Profile, #{proc => [<<"prof_trace_busy">>]}),
    ?assertEqual([runnable, running],
                 lists:sort([S || {S, _} <- erlane_prof_profile:sums(Busies, wall, state)])).

server_loop(State) ->
    receive
        {From, ping} ->
            From ! {self(), pong},
            server_loop(State)
    end.

busy(N) ->
    _ = length(lists:seq(1, 100)),
    busy(N + 1).

%% Frames have the file and the line where their function begins.
lines(_Config) ->
    #{rows := Rows} = traced(fun work/0, #{}),
    [{File, Line}] = lists:usort([{F, L} || #{stack := Stack} <- Rows,
                                            {?MODULE, leaf, 1, F, L} <- Stack]),
    ?assertEqual(<<"erlane_prof_trace_SUITE.erl">>, File),
    {ok, Text} = file:read_file(proplists:get_value(source, ?MODULE:module_info(compile))),
    ?assertEqual(<<"leaf(0) -> 0;">>, lists:nth(Line, binary:split(Text, <<"\n">>, [global]))).

%% Functions that were not asked for are not there, nor other processes.
only_some(_Config) ->
    Profile = traced(fun work/0, #{functions => [{?MODULE, even, 1}, {?MODULE, sum, '_'}]}),
    ?assertEqual([{[even], 51}, {[sum], 31}],
                 lists:sort([C || {[F | _], _} = C <- calls(Profile), is_atom(F)])),
    {ok, Other} = running(fun work/0, #{functions => [?MODULE], procs => [kernel_sup]}),
    ?assertEqual([], [C || {[F | _], _} = C <- calls(Other), is_atom(F)]).

%% It ends when its file is as long as the events may be, long before its time, and says so.
events_limit(_Config) ->
    Busy = spawn_link(?MODULE, busy, [0]),
    {Us, {ok, Profile}} = timer:tc(fun() -> run(#{for => 60000, events => 1000}) end),
    stop(Busy),
    ?assert(Us < 30000000, Us),
    ?assert(noted("limit of", Profile), Profile),
    ?assertMatch(#{rows := [_ | _]}, Profile).

%% The caller has enough.
asked_to_stop(_Config) ->
    Stop = fun(_) -> stop end,
    {Us, {ok, Profile}} = timer:tc(fun() -> run(#{for => 60000, progress => Stop}) end),
    ?assert(Us < 30000000, Us),
    ?assert(noted("as asked", Profile)).

%% Somebody else's tracing is not touched: up to OTP 26 there is none beside it.
others_trace(_Config) ->
    Pid = spawn_link(?MODULE, server_loop, [none]),
    1 = erlang:trace(Pid, true, [call]),
    1 = erlang:trace_pattern({?MODULE, sum, 1}, true, [local]),
    Answer = run(#{for => 100}),
    ?assertEqual({flags, [call]}, erlang:trace_info(Pid, flags)),
    ?assertEqual({traced, local}, erlang:trace_info({?MODULE, sum, 1}, traced)),
    1 = erlang:trace(Pid, false, [call]),
    Own = run(#{for => 100}),
    ?assertEqual({traced, local}, erlang:trace_info({?MODULE, sum, 1}, traced)),
    1 = erlang:trace_pattern({?MODULE, sum, 1}, false, [local]),
    stop(Pid),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 27 ->
            [{error, {declined, _, _}} = A || A <- [Answer, Own]];
        _ ->
            [{ok, _} = A || A <- [Answer, Own]]
    end,
    off().

%% What was switched on is off, and the port is closed.
trace_off(_Config) ->
    Ports = erlang:ports(),
    {ok, _} = run(#{for => 100}),
    off(),
    ?assertEqual([], erlang:ports() -- Ports).

%% Functions that are not there are named.
no_functions(_Config) ->
    [begin
         {error, {declined, _, _} = Reason} = run(#{functions => [Function]}),
         ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Reason), Word))
     end || {Function, Word} <- [{no_such_module, "no_such_module"},
                                 {{lists, map, 9}, "lists:map/9"}]],
    off().

%% All modules only if that is meant.
everything_needs_force(_Config) ->
    {error, {option, functions, Why}} = run(#{functions => ['_']}),
    ?assertNotEqual(nomatch, string:find(Why, "force")),
    {error, {option, functions, _}} = run(#{functions => ['_'], mode => time, force => true}),
    {ok, Profile} = run(#{functions => ['_'], force => true, for => 200, events => 20000}),
    ?assertMatch(#{rows := [_ | _]}, Profile),
    off().

options(_Config) ->
    [{error, {option, Key, _}} = run(#{Key => Value})
     || {Key, Value} <- [{force, 1}, {with, nothing}, {with, [nothing]}, {with, [gc, gc]},
                         {with, [ports, port]},
                         {functions, []}, {functions, [{'_', a, 1}]}, {tracer, file},
                         {buffer, 0}, {buffer, 1 bsl 40}]],
    {error, {option, events, _}} = erlane_prof:run(#{mode => trace, for => 100,
                                                     functions => [?MODULE]}),
    {error, {option, for, _}} = erlane_prof:run(#{mode => trace, events => 100,
                                                  functions => [?MODULE]}).

%% Buffers that are too small: what is dropped is counted, to the last event, and it is said. What
%% is left is still a profile.
small_buffers(_Config) ->
    Work = fun() -> _ = [even(99) || _ <- lists:seq(1, 5)], ok end,
    {0, Events} = with_lost(traced(Work, #{})),
    {Lost, Left} = with_lost(traced(Work, #{buffer => 1024})),
    ?assert(Lost > 0),
    %% How often a process is taken off its scheduler is not ours to say.
    ?assert(abs(Lost + Left - Events) < 200, {Lost, Left, Events}).

with_lost(#{lost := Lost} = Profile) ->
    ?assertEqual(Lost > 0, noted("were dropped", Profile)),
    [Note] = [Note || Note <- maps:get(notes, Profile), string:find(Note, "events in") =/= nomatch],
    {Events, _} = string:to_integer(Note),
    {Lost, Events}.

%% Without a wish it is the native tracer where there is one, and it is said which.
which(_Config) ->
    [?assert(noted(Words, element(2, run(#{tracer => Tracer, for => 50}))))
     || {Tracer, Words} <- [{auto, "native tracer"}, {native, "native tracer"},
                            {port, "file port"}]].

%% While the trace is read it is told how far that is.
progress(_Config) ->
    Self = self(),
    {ok, _} = running(fun work/0, #{functions => [?MODULE],
                                    progress => fun(Told) -> Self ! {told, Told}, continue end}),
    Told = told(),
    #{read := Read, bytes := Bytes} = lists:last(Told),
    ?assertEqual(Bytes, Read),
    ?assert(Bytes > 1000).

told() ->
    receive {told, Told} -> [Told | told()]
    after 0 -> []
    end.

%%% There

as_code(Config) -> visit(#{}, Config).

as_forms(Config) -> visit(#{ship => forms}, Config).

%% A node that has nothing of erlane: its tree, lines and names; and nothing stays.
visit(Options, Config) ->
    Node = proplists:get_value(node, Config),
    Pid = call(Config, erlang, spawn, [?MODULE, server_loop, [none]]),
    true = call(Config, erlang, register, [prof_trace_there, Pid]),
    Work = fun() ->
                   done = call(Config, ?MODULE, work, []),
                   Pid ! {self(), ping},
                   receive {Pid, pong} -> ok end
           end,
    {ok, Profile} = running(Work, Options#{node => Node, functions => [?MODULE]}),
    clean(Config),
    #{node := Node, mode := trace} = Profile,
    ?assertEqual(31, lists:sum([N || {[work, sum], N} <- calls(Profile)])),
    ?assertMatch(#{rows := [_ | _]},
                 erlane_prof_profile:filter(Profile, #{proc => [<<"prof_trace_there">>],
                                                       state => [waiting]})),
    [{?MODULE, sum, 1, <<"erlane_prof_trace_SUITE.erl">>, Line} | _] =
        [Frame || #{stack := Stack} <- maps:get(rows, Profile), {_, sum, _, _, _} = Frame <- Stack],
    ?assert(Line > 0).

%% The end of who asked for it is that of the trace.
caller_killed(Config) ->
    Caller = caller(Config),
    exit(Caller, kill),
    clean(Config).

%% The end of the connection is, too; and it is said.
connection_lost(Config) ->
    Caller = caller(Config),
    Caller ! {tell, self()},
    true = erlang:disconnect_node(proplists:get_value(node, Config)),
    clean(Config),
    {error, {gone, _, _}} = answer(Caller).

%% Somebody there kills the one that watches the file.
worker_killed(Config) ->
    Caller = caller(Config),
    Caller ! {tell, self()},
    [exit(Pid, kill) || Pid <- agents(Config, "erlane_prof_trace")],
    clean(Config),
    {_, _} = answer(Caller).

%% Somebody there kills what was to clean up.
guard_killed(Config) ->
    Caller = caller(Config),
    Caller ! {tell, self()},
    [exit(Pid, kill) || Pid <- agents(Config, "guard")],
    clean(Config),
    {_, _} = answer(Caller).

%% What cannot be begun leaves nothing either.
declined(Config) ->
    Node = proplists:get_value(node, Config),
    {error, {declined, Node, _}} = run(#{node => Node, functions => [no_such_module]}),
    clean(Config),
    ok = file:change_mode(proplists:get_value(dir, Config), 8#555),
    true = call(Config, os, putenv, ["TMPDIR", "/nowhere"]),
    {error, {declined, Node, _} = Reason} = run(#{node => Node}),
    ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Reason), "/nowhere")),
    clean(Config).

%% A file that cannot grow ends it, and what was written until then is read.
full_disk(Config) ->
    Node = proplists:get_value(node, Config),
    Busy = call(Config, erlang, spawn, [?MODULE, busy, [0]]),
    {Us, {ok, Profile}} = timer:tc(fun() -> run(#{node => Node, for => 60000}) end),
    true = call(Config, erlang, exit, [Busy, kill]),
    ?assert(Us < 40000000, Us),
    ?assert(noted("could not be written", Profile), Profile),
    ?assert(lists:sum([N || {[busy], N} <- calls(Profile)]) > 1000),
    clean(Config).

%% What was not written when the disk became full may be all that there is, and is written when the
%% trace is over: then that it could not be is said all the same.
full_at_the_end(Config) ->
    Node = proplists:get_value(node, Config),
    Fill = filename:join(proplists:get_value(dir, Config), "fill"),
    Pid = call(Config, erlang, spawn, [?MODULE, server_loop, [none]]),
    Ping = fun() ->
                   Pid ! {self(), ping},
                   receive {Pid, pong} -> ok end
           end,
    Work = fun() ->
                   {error, enospc} = call(Config, file, write_file, [Fill, <<0:(1 bsl 23)>>]),
                   Ping()
           end,
    {ok, Profile} = running(Work, #{node => Node, procs => [Pid]}),
    ?assert(noted("could not be written", Profile), Profile),
    ok = call(Config, file, delete, [Fill]),
    clean(Config),
    %% With room again all is there, and nothing is said.
    {ok, Whole} = running(Ping, #{node => Node, procs => [Pid]}),
    ?assertEqual(1, lists:sum([N || {[server_loop], N} <- calls(Whole)])),
    [?assertNot(noted(Words, Whole), Whole) || Words <- ["could not be written", "missing"]],
    clean(Config).

%% Everything on a node that has no processor left: it ends by itself, at its limit, and the file,
%% the node and what is made of it stay within bounds.
runaway(Config) ->
    Node = proplists:get_value(node, Config),
    Busy = [call(Config, erlang, spawn, [?MODULE, busy, [0]]) || _ <- [1, 2, 3]],
    Before = call(Config, erlang, memory, [total]),
    Caller = caller(Config, #{functions => ['_'], force => true, events => 200000}),
    Most = most(Config, Caller, Before),
    Caller ! {tell, self()},
    {ok, Profile} = answer(Caller),
    [true = call(Config, erlang, exit, [Pid, kill]) || Pid <- Busy],
    clean(Config),
    Node = maps:get(node, Profile),
    ?assert(lists:any(fun(Why) -> noted(Why, Profile) end, ["limit of", "run queues", "grew by"]),
            maps:get(notes, Profile)),
    ?assert(Most - Before < 1000000000, {Before, Most}).

%% The memory of the node while it goes on.
most(Config, Caller, Most) ->
    case agents(Config, "guard") of
        [] -> Most;
        _ -> most(Config, Caller, max(Most, call(Config, erlang, memory, [total])))
    end.

%% The node unloads the tracer: that ends the trace, and what was written is read.
unloaded(Config) ->
    Node = proplists:get_value(node, Config),
    Caller = caller(Config),
    Caller ! {tell, self()},
    done = call(Config, ?MODULE, work, []),
    %% Not in its path any more: the next look of the worker would load it again, and go on.
    Dir = filename:dirname(call(Config, code, which, [erlane_prof_tracer])),
    true = call(Config, code, del_path, [Dir]),
    true = call(Config, code, delete, [erlane_prof_tracer]),
    _ = call(Config, code, purge, [erlane_prof_tracer]),
    {ok, Profile} = answer(Caller),
    ?assert(noted("unloaded the tracer", Profile), Profile),
    clean(Config),
    %% The next one loads it again.
    true = call(Config, code, add_patha, [Dir]),
    {ok, Again} = run(#{node => Node, for => 50}),
    ?assert(noted("native tracer", Again), Again).

%% The node loads it anew, as an upgrade does: the trace goes on.
loaded_again(Config) ->
    Node = proplists:get_value(node, Config),
    Work = fun() ->
                   {module, _} = call(Config, code, load_file, [erlane_prof_tracer]),
                   _ = call(Config, code, purge, [erlane_prof_tracer]),
                   done = call(Config, ?MODULE, work, [])
           end,
    {ok, Profile} = running(Work, #{node => Node}),
    ?assertEqual(31, lists:sum([N || {[work, sum], N} <- calls(Profile)])),
    clean(Config).

%% One that has nothing of ours is traced by its port, and cannot be otherwise.
no_native(Config) ->
    Node = proplists:get_value(node, Config),
    {ok, Profile} = run(#{node => Node, tracer => auto, for => 50}),
    ?assert(noted("file port", Profile)),
    {error, {declined, Node, Why}} = run(#{node => Node, tracer => native}),
    ?assertNotEqual(nomatch, string:find(Why, "native code")),
    clean(Config).

%%% Helpers

%% A process that does something while it is followed, and nobody else.
traced(Fun, Options) ->
    Worker = spawn_link(fun() -> worker(Fun) end),
    Work = fun() ->
                   Worker ! {work, self()},
                   receive {Worker, done} -> ok after ?WAIT_MS -> ct:fail(no_work) end
           end,
    {ok, Profile} = running(Work, maps:merge(#{functions => [?MODULE]}, Options)),
    stop(Worker),
    Profile.

worker(Fun) ->
    receive {work, From} ->
            _ = Fun(),
            From ! {self(), done}
    end,
    worker(Fun).

%% Calls by stack, without what the worker itself does.
calls(#{rows := Rows}) ->
    [{Stack, Calls} || #{stack := All, values := [_, Calls | _]} <- Rows, Calls > 0,
                       Stack <- [[F || F <- names(All), not helper(F)]], Stack =/= []].

helper(F) when is_atom(F) ->
    F =:= worker orelse F =:= traced orelse hd(atom_to_list(F)) =:= $-;
helper(_) ->
    false.
