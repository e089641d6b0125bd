%% SPDX-License-Identifier: Apache-2.0
%% The native tracer by itself: each event is kept or counted, in the order of its process.
-module(erlane_prof_tracer_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([events/1, spawned/1, messages/1, caller_or_top/1, kept_or_counted/1, holes/1, order/1,
         two_readers/1, closed/1, two_at_once/1, freed/1, arguments/1, any_bytes/1, cut/1]).
-export([f/1, g/1, loop/1]).

-define(WAIT_MS, 20000).
-define(FLAGS, [call, return_to, arity]).
-define(CALLER, [{'_', [], [{message, {caller}}]}]).

all() ->
    [events, spawned, messages, caller_or_top, kept_or_counted, holes, order, two_readers, closed,
     two_at_once, freed, arguments, any_bytes, cut].

init_per_suite(Config) ->
    2 = erlane_prof_tracer:format(),
    Config.

end_per_suite(_Config) -> ok.

end_per_testcase(_Case, _Config) ->
    _ = erlang:trace(all, false, [all]),
    _ = erlang:trace_pattern({?MODULE, '_', '_'}, false, [local]),
    ok.

%% What is traced, each in a way of its own.
f(0) -> 0;
f(N) -> 1 + f(N - 1).

g(N) -> f(N).

loop(0) -> ok;
loop(N) ->
    erlang:yield(),
    loop(N - 1).

%% Calls, returns and what is in between, of one process.
events(_Config) ->
    Trace = erlane_prof_tracer:open(1 bsl 16),
    Began = erlane_prof_tracer:now(),
    Pid = traced(Trace, ?CALLER, [running | ?FLAGS], fun() -> g(2), receive after 1 -> ok end end),
    Ended = erlane_prof_tracer:now(),
    Events = [E || E <- read(Trace), element(1, E) =/= other],
    Times = [erlane_prof_trace_read:time(E) || E <- Events],
    ?assertEqual(lists:sort(Times), Times),
    ?assert(lists:all(fun(Ns) -> Ns >= Began andalso Ns =< Ended end, Times)),
    ?assertEqual([erlane_prof_tracer:key(Pid)], lists:usort([element(2, E) || E <- Events])),
    Calls = [{mfa(F), mfa(C)} || {call, _, F, C, _} <- Events],
    ?assertMatch([{{?MODULE, g, 1}, {?MODULE, _, 0}}, {{?MODULE, f, 1}, {?MODULE, _, 0}},
                  {{?MODULE, f, 1}, {?MODULE, f, 1}}, {{?MODULE, f, 1}, {?MODULE, f, 1}}], Calls),
    ?assertMatch([{?MODULE, f, 1}, {?MODULE, f, 1}, {?MODULE, _, 0}],
                 [mfa(F) || {return_to, _, F, _} <- Events]),
    ?assert(lists:member({out, in}, pairs([What || {sched, _, What, _, _} <- Events]))).

%% What a process begins with; its end.
spawned(_Config) ->
    Trace = erlane_prof_tracer:open(1 bsl 16),
    Self = self(),
    _ = traced(Trace, ?CALLER, [procs, running, exiting, set_on_spawn | ?FLAGS],
               fun() ->
                       {Pid, Ref} = spawn_monitor(?MODULE, loop, [2]),
                       Self ! {began, Pid},
                       receive {'DOWN', Ref, process, Pid, _} -> ok end
               end),
    Who = receive {began, Pid} -> erlane_prof_tracer:key(Pid) end,
    Events = [E || E <- until_read(Trace, fun(Es) -> [E || {sched, W, exited, _, _} = E <- Es,
                                                            W =:= Who] =/= [] end),
                   element(2, E) =:= Who],
    ?assertEqual([{?MODULE, loop, 1}], [mfa(F) || {spawned, _, F, _} <- Events]).

%% Messages and collections of garbage.
messages(_Config) ->
    Trace = erlane_prof_tracer:open(1 bsl 16),
    Self = self(),
    _ = traced(Trace, ?CALLER, [send, 'receive', garbage_collection | ?FLAGS],
               fun() -> self() ! one, receive one -> Self ! two end, erlang:garbage_collect() end),
    receive two -> ok end,
    Events = read(Trace),
    Kinds = lists:usort([case E of
                             {gc, _, What, _} -> {gc, What};
                             _ -> element(1, E)
                         end || E <- Events]),
    ?assertEqual([received, sent, {gc, begins}, {gc, ends}],
                 [K || K <- Kinds, K =/= call, K =/= return_to, K =/= other]).

%% Where it returns to, the end of the process, or nothing if it was not asked for.
caller_or_top(_Config) ->
    Callers = fun(Match) ->
                      Trace = erlane_prof_tracer:open(1 bsl 16),
                      {Pid, Ref} = spawn_opt(?MODULE, f, [0], [monitor]),
                      receive {'DOWN', Ref, process, Pid, _} -> ok end,
                      _ = erlang:trace_pattern({?MODULE, f, 1}, Match, [local]),
                      _ = erlang:trace(new_processes, true, [{tracer, erlane_prof_tracer, Trace}
                                                             | ?FLAGS]),
                      {_, Ref2} = spawn_opt(?MODULE, f, [1], [monitor]),
                      receive {'DOWN', Ref2, process, _, _} -> ok end,
                      _ = erlang:trace(new_processes, false, ?FLAGS),
                      [C || {call, _, _, C, _} <- read(Trace)]
              end,
    ?assertMatch([none, <<104, 3, _/binary>>], Callers(?CALLER)),
    ?assertEqual([top, top], Callers(true)).

%% Of buffers that nobody reads what is not kept is counted, to the last event.
kept_or_counted(_Config) ->
    Trace = erlane_prof_tracer:open(0),
    _ = traced(Trace, true, [call, arity], fun() -> f(999) end),
    {Kept, Lost, 100} = erlane_prof_tracer:info(Trace),
    ?assertEqual(1000, Kept + Lost),
    ?assertEqual(Kept, length(read(Trace))),
    {Kept, Lost, 0} = erlane_prof_tracer:info(Trace).

%% A buffer that was full takes nothing until it is half empty: what is lost is in a row.
holes(_Config) ->
    Trace = erlane_prof_tracer:open(0),
    Self = self(),
    Pid = start(Trace, true, [call, arity],
                fun() ->
                        f(99),
                        Self ! full,
                        receive go -> ok end,
                        f(3)
                end),
    Pid ! go,
    receive full -> ok end,
    {Kept, Lost, 100} = erlane_prof_tracer:info(Trace),
    ?assertEqual(Kept, length(read(Trace))),
    Pid ! go,
    ended(Pid),
    {Now, Lost, _} = erlane_prof_tracer:info(Trace),
    ?assertEqual(Kept + 4, Now),
    ?assertEqual(4, length(read(Trace))).

%% Processes that move from scheduler to scheduler while somebody reads: the events of each come
%% in the order in which they were, and none is missing.
order(_Config) ->
    Trace = erlane_prof_tracer:open(4 bsl 20),
    Pids = [start(Trace, ?CALLER, [running, procs | ?FLAGS], fun() -> loop(500) end)
            || _ <- lists:seq(1, 8)],
    [Pid ! go || Pid <- Pids],
    Refs = [monitor(process, Pid) || Pid <- Pids],
    Events = lists:append([until_down(Ref, Trace) || Ref <- Refs]) ++ read(Trace),
    {N, 0, _} = erlane_prof_tracer:info(Trace),
    ?assertEqual(N, length(Events)),
    [begin
         Mine = [E || E <- Events, element(2, E) =:= erlane_prof_tracer:key(Pid)],
         Times = [erlane_prof_trace_read:time(E) || E <- Mine],
         ?assertEqual(lists:sort(Times), Times),
         ?assertEqual(501, length([F || {call, _, F, _, _} <- Mine,
                                        mfa(F) =:= {?MODULE, loop, 1}])),
         %% Out and in take turns.
         Turns = [What || {sched, _, What, _, _} <- Mine, What =/= exited],
         ?assertEqual([], [pair || {A, A} <- pairs(Turns)])
     end || Pid <- Pids].

pairs([A, B | Rest]) -> [{A, B} | pairs([B | Rest])];
pairs(_) -> [].

until_down(Ref, Trace) ->
    receive {'DOWN', Ref, process, _, _} -> []
    after 1 -> read(Trace) ++ until_down(Ref, Trace)
    end.

%% While one reads, another is told so, and each event is read once.
two_readers(_Config) ->
    Trace = erlane_prof_tracer:open(1 bsl 20),
    _ = traced(Trace, ?CALLER, ?FLAGS, fun() -> f(4000) end),
    {Events, 0, _} = erlane_prof_tracer:info(Trace),
    Self = self(),
    Pids = [spawn_link(fun() -> Self ! {self(), bytes(Trace)} end) || _ <- [1, 2, 3]],
    All = [receive {Pid, Bytes} -> Bytes end || Pid <- Pids],
    Names = 2,
    ?assert(byte_size(iolist_to_binary(All)) >= 24 * Events),
    ?assert(byte_size(iolist_to_binary(All)) =< 24 * Events + Names * 200).

%% After its end it takes nothing and counts nothing, and the VM stops to tell.
closed(_Config) ->
    Trace = erlane_prof_tracer:open(1 bsl 16),
    Self = self(),
    Pid = start(Trace, ?CALLER, ?FLAGS,
                fun() -> f(1), Self ! half, receive go -> ok end, f(1) end),
    Pid ! go,
    receive half -> ok end,
    ok = erlane_prof_tracer:close(Trace),
    Info = erlane_prof_tracer:info(Trace),
    Pid ! go,
    ended(Pid),
    ?assertEqual(Info, erlane_prof_tracer:info(Trace)),
    ?assertNotEqual([], read(Trace)),
    ?assertEqual(remove, erlane_prof_tracer:enabled(trace_status, Trace, self())).

%% Two traces on the same threads are apart.
two_at_once(_Config) ->
    Traces = [erlane_prof_tracer:open(1 bsl 16) || _ <- [1, 2]],
    Pids = [{start(Trace, ?CALLER, [call, arity], fun() -> f(N) end), Trace, N}
            || {Trace, N} <- lists:zip(Traces, [10, 20])],
    [Pid ! go || {Pid, _, _} <- Pids],
    [ended(Pid) || {Pid, _, _} <- Pids],
    [?assertEqual(N + 1, length([F || {call, _, F, _, _} <- read(Trace),
                                      mfa(F) =:= {?MODULE, f, 1}])) || {_, Trace, N} <- Pids].

%% The memory of a trace goes with its last holder.
freed(_Config) ->
    case os:getenv("ASAN_OPTIONS") of
        false -> is_freed();
        _ -> {skip, "what is freed stays a while under ASan"}
    end.

is_freed() ->
    Rss = fun() ->
                  {ok, Text} = file:read_file("/proc/self/statm"),
                  [_, Pages | _] = binary:split(Text, <<" ">>, [global]),
                  4096 * binary_to_integer(Pages)
          end,
    Once = fun() ->
                   {Pid, Ref} = spawn_monitor(
                                  fun() ->
                                          Trace = erlane_prof_tracer:open(4 bsl 20),
                                          Work = fun() ->
                                                         _ = [f(1000) || _ <- lists:seq(1, 100)]
                                                 end,
                                          _ = traced(Trace, true, [call, arity], Work),
                                          {_, _, Fill} = erlane_prof_tracer:info(Trace),
                                          exit({full, Fill > 50})
                                  end),
                   receive {'DOWN', Ref, process, Pid, {full, true}} -> ok end
           end,
    Once(),
    Before = Rss(),
    [Once() || _ <- lists:seq(1, 10)],
    ?assert(Rss() - Before < 20 bsl 20, {Before, Rss()}).

%% Nothing but what it should be.
arguments(_Config) ->
    Trace = erlane_prof_tracer:open(0),
    [?assertError(badarg, apply(erlane_prof_tracer, F, A))
     || {F, A} <- [{open, [-1]}, {open, [x]}, {open, [1 bsl 40]}, {close, [x]},
                   {info, [make_ref()]}, {read, [self()]}, {key, [x]}, {key, [Trace]}]],
    %% The VM takes any state for a tracer's; one that is none ends the tracing.
    ?assertEqual(remove, erlane_prof_tracer:enabled(trace_status, x, self())),
    ?assertEqual(ok, erlane_prof_tracer:trace(call, x, self(), {a, b, 1}, #{})),
    %% What has no form of an event is counted, or has no function.
    [?assertEqual(ok, erlane_prof_tracer:trace(Tag, Trace, Who, Term, Options))
     || Tag <- [call, in, spawned, send, no_such_event], Who <- [self(), x],
        Term <- [x, {a, b}, {a, b, -1}, {a, b, 256}, {1 bsl 70, "x", 1}, {a, b, c}],
        Options <- [#{}, x, #{extra => x, match_spec_result => x},
                    #{extra => {a, b, [c | d]}, match_spec_result => {a, b, 300}}]],
    {Kept, Lost, _} = erlane_prof_tracer:info(Trace),
    ?assertEqual(5 * 2 * 6 * 4, Kept + Lost),
    ?assertEqual(Kept, length(read(Trace))).

%% Any bytes at all are read without a crash, in any pieces.
any_bytes(_Config) ->
    true = proper:quickcheck(prop_erlane_prof_trace:prop_records(),
                             [{numtests, 300}, {to_file, user}, quiet]).

%% A trace that is cut at any byte is what is whole of it, and it is told what is not.
cut(_Config) ->
    Trace = erlane_prof_tracer:open(1 bsl 16),
    _ = traced(Trace, ?CALLER, [running | ?FLAGS], fun() -> g(3) end),
    Bytes = iolist_to_binary(bytes(Trace)),
    {whole, Events} = events_of(Bytes),
    [begin
         {Left, Some} = events_of(binary:part(Bytes, 0, N)),
         ?assert(lists:prefix(Some, Events), N),
         case Left of
             whole -> ok;
             {cut, Of} -> ?assert(Of > 0 andalso Of < 200)
         end
     end || N <- lists:seq(0, byte_size(Bytes))].

%%% Helpers

%% A process that does something while it is traced, and is over.
traced(Trace, Match, Flags, Fun) ->
    Pid = start(Trace, Match, Flags, Fun),
    Pid ! go,
    ended(Pid),
    Pid.

start(Trace, Match, Flags, Fun) ->
    Pid = spawn_link(fun() -> receive go -> ok end, Fun(), ok end),
    _ = [1 = erlang:trace_pattern({?MODULE, F, 1}, Match, [local]) || F <- [f, g, loop]],
    1 = erlang:trace(Pid, true, [{tracer, erlane_prof_tracer, Trace} | Flags]),
    Pid.

ended(Pid) ->
    Ref = monitor(process, Pid),
    receive {'DOWN', Ref, process, Pid, _} -> ok after ?WAIT_MS -> ct:fail(not_ended) end,
    Told = erlang:trace_delivered(all),
    receive {trace_delivered, all, Told} -> ok end.

bytes(Trace) ->
    case erlane_prof_tracer:read(Trace) of
        <<>> -> [];
        busy -> erlang:yield(), bytes(Trace);
        Bytes -> [Bytes | bytes(Trace)]
    end.

%% Names come once: what was read before tells those of what comes later.
read(Trace) ->
    Known = case get({names, Trace}) of
                undefined -> <<>>;
                Bytes -> Bytes
            end,
    All = iolist_to_binary([Known | bytes(Trace)]),
    {whole, Events} = events_of(All),
    {whole, Before} = events_of(Known),
    put({names, Trace}, All),
    lists:nthtail(length(Before), Events).

until_read(Trace, Enough) -> until_read(Trace, Enough, read(Trace)).

until_read(Trace, Enough, Events) ->
    case Enough(Events) of
        true -> Events;
        false ->
            receive after 5 -> ok end,
            until_read(Trace, Enough, Events ++ read(Trace))
    end.

events_of(Bytes) ->
    {Events, Reader} = erlane_prof_trace_records:feed(Bytes, fun(E, Acc) -> [E | Acc] end, [],
                                                      erlane_prof_trace_records:new()),
    {erlane_prof_trace_records:finish(Reader), lists:reverse(Events)}.

mfa(Name) -> erlane_prof_trace_read:mfa(Name).
