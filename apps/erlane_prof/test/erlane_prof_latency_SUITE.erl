%% SPDX-License-Identifier: Apache-2.0
%% Mode latency: what it says of calls whose times are known, and what it does to those who are
%% called.
-module(erlane_prof_latency_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([all/0, groups/0]).
-export([buckets/1, quantiles/1, coarse/1, calls_and_returns/1, merged/1, stored/1, formats/1]).
-export([known_times/1, tail_calls/1, exceptions/1, recursion/1, loop_stays/1, large_terms/1,
         bifs/1, some_processes/1, ended_in_call/1, thousand_open/1, events_limit/1,
         too_many_functions/1, others_trace/1, nothing_left/1]).
-export([wait/1, quick/1, outer/1, tail/1, left/1, throws/1, down/1, loop/1, give/1, block/1,
         forever/0]).

-define(WAIT_MS, 20000).

all() ->
    [{group, pure}, {group, live}].

groups() ->
    [{pure, [], [buckets, quantiles, coarse, calls_and_returns, merged, stored, formats]},
     {live, [], [known_times, tail_calls, exceptions, recursion, loop_stays, large_terms, bifs,
                 some_processes, ended_in_call, thousand_open, events_limit, too_many_functions,
                 others_trace, nothing_left]}].

%%% Pure

%% Each value is in its bucket, buckets follow each other, and are narrow.
buckets(_Config) ->
    holds(?FORALL(Value, value(),
                  begin
                      Bucket = erlane_prof_histogram:bucket(Value),
                      Low = erlane_prof_histogram:low(Bucket),
                      High = erlane_prof_histogram:high(Bucket),
                      Low =< Value andalso Value =< High
                          andalso erlane_prof_histogram:bucket(High + 1) =:= Bucket + 1
                          andalso (High - Low) * 16 =< Low
                  end)).

value() ->
    ?LET({Bits, Part}, {range(0, 62), float(0.0, 1.0)}, trunc(Part * (1 bsl Bits))).

%% A quantile is not below the true one, and at most a sixteenth above.
quantiles(_Config) ->
    holds(?FORALL({Values, Part}, {non_empty(list(value())), float(0.0, 1.0)},
                  begin
                      Histogram = lists:foldl(fun erlane_prof_histogram:add/2,
                                              erlane_prof_histogram:new(), Values),
                      Rank = max(1, ceil(Part * length(Values))),
                      True = lists:nth(Rank, lists:sort(Values)),
                      Told = erlane_prof_histogram:quantile(Part, Histogram),
                      Told >= True andalso (Told - True) * 16 =< True
                  end)),
    undefined = erlane_prof_histogram:quantile(0.5, erlane_prof_histogram:new()).

%% Powers of two have all that is counted, without gaps.
coarse(_Config) ->
    holds(?FORALL(Values, list(value()),
                  begin
                      Histogram = lists:foldl(fun erlane_prof_histogram:add/2,
                                              erlane_prof_histogram:new(), Values),
                      Coarse = erlane_prof_histogram:coarse(Histogram),
                      Ends = [High + 1 || {_, High, _} <- Coarse],
                      lists:sum([N || {_, _, N} <- Coarse]) =:= length(Values)
                          andalso (Coarse =:= []
                                   orelse lists:droplast(Ends) =:= tl([L || {L, _, _} <- Coarse]))
                  end)).

%% What the VM tells and what has ended by it: plain, tail calls, exceptions, recursion.
calls_and_returns(_Config) ->
    [A, B, C, P, Q] = [{m, F, 0} || F <- [a, b, c, p, q]],
    Pid = self(),
    Run = fun(Events) ->
                  lists:foldl(fun({call, F, Caller, At}, {Done, O}) ->
                                      {_, O1} = erlane_prof_open:call(Pid, F, Caller, At, O),
                                      {Done, O1};
                                 ({return, To}, {Done, O}) ->
                                      {Ended, O1} = erlane_prof_open:return(Pid, To, O),
                                      {Done ++ [[F || {F, _, _} <- Ended]], O1}
                              end, {[], erlane_prof_open:new()}, Events)
          end,
    Check = fun(Done, Events) ->
                    {Done, O} = Run(Events),
                    [] = erlane_prof_open:procs(O),
                    [0 = erlane_prof_open:count(F, O) || F <- [A, B, C]]
            end,
    Check([[A]], [{call, A, P, 1}, {return, P}]),
    %% One in the other.
    Check([[B], [A]], [{call, A, P, 1}, {call, B, A, 2}, {return, A}, {return, P}]),
    %% The first ends in a call of the second: one return for both.
    Check([[B, A]], [{call, A, P, 1}, {call, B, P, 2}, {return, P}]),
    %% An exception of the inner one is caught by who has called the outer one.
    Check([[B, A]], [{call, A, P, 1}, {call, B, Q, 2}, {return, P}]),
    %% Itself, twice more: the outermost counts.
    Check([[], [], [A]], [{call, A, P, 1}, {call, A, A, 2}, {call, A, A, 3}, {return, A},
                          {return, A}, {return, P}]),
    %% Under way when it began.
    Check([[]], [{call, A, A, 1}, {return, A}]),
    Check([[]], [{return, P}]),
    %% No one has called it.
    Check([[A]], [{call, A, undefined, 1}, {return, undefined}]),
    {[], O} = Run([{call, A, P, 1}, {call, B, A, 2}]),
    1 = erlane_prof_open:count(A, O),
    O1 = erlane_prof_open:drop(A, O),
    {0, 1} = {erlane_prof_open:count(A, O1), erlane_prof_open:count(B, O1)},
    {[{B, A, 2}], O2} = erlane_prof_open:gone(Pid, O1),
    {[], []} = {erlane_prof_open:procs(O2), erlane_prof_open:procs(erlane_prof_open:drop(B, O1))}.

spread(Ns) ->
    Buckets = lists:foldl(fun erlane_prof_histogram:add/2, #{}, Ns),
    #{function => {m, f, 1}, file => <<"m.erl">>, ns => lists:sum(Ns), min => lists:min(Ns),
      max => lists:max(Ns), buckets => Buckets, dropped => false, open => 1,
      slowest => [#{ns => N, at => 1795325000123456, pid => <<"<0.9.0>">>, proc => <<"<a&b>">>,
                    caller => {m, g, 0}}
                  || N <- lists:sublist(lists:reverse(lists:sort(Ns)), 5)]}.

profile(Ns) ->
    erlane_prof_profile:new(#{mode => latency, node => a@b,
                              values => [#{name => time, unit => nanoseconds},
                                         #{name => calls, unit => count}],
                              rows => [#{proc => <<"all">>, state => any,
                                         stack => [{m, f, 1, <<"m.erl">>, 0}],
                                         values => [lists:sum(Ns), length(Ns)]}],
                              notes => [<<"a < b">>], latency => [spread(Ns)]}).

%% Two profiles together are that of all calls.
merged(_Config) ->
    holds(?FORALL({A, B}, {non_empty(list(value())), non_empty(list(value()))},
                  begin
                      {ok, #{latency := [Both]}} =
                          erlane_prof_profile:merge(profile(A), profile(B)),
                      Both =:= (spread(A ++ B))#{open := 2}
                  end)),
    {ok, Diff} = erlane_prof_profile:diff(profile([1]), profile([2])),
    false = is_map_key(latency, Diff).

%% What is stored comes back; what is damaged does not.
stored(_Config) ->
    Profile = profile([5, 900, 17000000]),
    Bytes = iolist_to_binary(erlane_prof_stored:encode(Profile)),
    {ok, Profile} = erlane_prof_stored:decode(Bytes),
    {error, _} = erlane_prof_stored:decode(binary:part(Bytes, 0, byte_size(Bytes) - 9)),
    [begin
         Wrong = Profile#{latency := [maps:put(Key, x, spread([1]))]},
         {error, {latency, _}} = erlane_prof_profile:check(Wrong)
     end || Key <- [function, ns, buckets, slowest, open, dropped]].

%% Every format takes it; names are only text in the page.
formats(_Config) ->
    Profile = profile([900, 1200, 17000000]),
    [{Format, true} = {Format, iolist_size(erlane_prof_file:encode(Profile, Format)) > 10}
     || {Format, _, _} <- erlane_prof_file:formats()],
    Page = iolist_to_binary(erlane_prof_file:encode(Profile, flame)),
    nomatch = binary:match(Page, [<<"<a&b>">>, <<"<script">>, <<"{{">>]),
    [{_, _} = binary:match(Page, Part)
     || Part <- [<<"&lt;a&amp;b">>, <<"17.00 ms">>, <<"a &lt; b">>, <<"m:f/1">>, <<"<svg">>]],
    Text = iolist_to_binary(erlane_prof_file:encode(Profile, top)),
    [{_, _} = binary:match(Text, Part) || Part <- [<<"p99.9">>, <<"slowest: 17.00 ms">>,
                                                   <<"####">>]],
    #{<<"latency">> := [#{<<"calls">> := 3, <<"max">> := 17000000, <<"function">> := <<"m:f/1">>,
                          <<"buckets">> := [[Low, High, 1] | _]}]} =
        erlane_dash_reader:read(iolist_to_binary(erlane_prof_json:format(Profile))),
    true = Low =< 900 andalso 900 =< High.

%%% Live

%% Each call is counted, its time is that of its work, with its process and its caller.
known_times(_Config) ->
    Worker = worker(lat_worker, fun() -> {[quick(1) || _ <- lists:seq(1, 50)],
                                          [outer(25) || _ <- "abc"]}
                                end),
    #{values := [#{name := time}, #{name := calls}], mode := latency, rows := Rows} = Profile =
        measured([{?MODULE, wait, 1}, {?MODULE, quick, 1}], [Worker]),
    #{calls := 50} = summary(quick, Profile),
    #{calls := 3, min := Min, p50 := P50} = summary(wait, Profile),
    ?assert(Min >= 25000000, Min),
    ?assert(P50 >= 25000000),
    #{slowest := [#{proc := <<"lat_worker">>, caller := {?MODULE, outer, 1}, at := At, ns := Ns}
                  | _]} = spread(wait, Profile),
    ?assert(Ns >= Min),
    ?assert(abs(os:system_time(microsecond) - At) < 60000000),
    [[_, 3]] = [Values || #{stack := [{_, outer, 1, _, _}, {_, wait, 1, <<_, _/binary>>, _}],
                            values := Values} <- Rows].

%% A function that ends in a call of another one ends with it.
tail_calls(_Config) ->
    Profile = measured([{?MODULE, tail, 1}, {?MODULE, wait, 1}],
                       [worker(none, fun() -> {tail(10)} end)]),
    [?assertMatch(#{calls := 1, min := Min} when Min >= 10000000, summary(F, Profile))
     || F <- [tail, wait]].

%% One that is left by an exception has ended, whoever catches it.
exceptions(_Config) ->
    Profile = measured([{?MODULE, throws, 1}, {?MODULE, left, 1}],
                       [worker(none, fun() -> {[{catch left(1)} || _ <- "ab"],
                                               [{catch throws(1)} || _ <- "abc"]}
                                     end)]),
    ?assertMatch(#{calls := 5}, summary(throws, Profile)),
    ?assertMatch(#{calls := 2}, summary(left, Profile)),
    ?assertNot(noted("had not ended", Profile)).

%% Of recursion the outermost counts.
recursion(_Config) ->
    Profile = measured([{?MODULE, down, 1}], [worker(none, fun() -> [down(10) || _ <- "abc"] end)]),
    ?assertMatch(#{calls := 3}, summary(down, Profile)).

%% The loop of a server does not grow, and is open all the time.
loop_stays(_Config) ->
    Pid = spawn_link(?MODULE, loop, [0]),
    Go = once(fun() ->
                      [begin Pid ! {self(), N}, receive {Pid, N} -> ok end end
                       || N <- lists:seq(1, 20000)]
              end),
    Size = fun() -> erlang:garbage_collect(Pid), process_info(Pid, [heap_size, stack_size]) end,
    Before = Size(),
    {ok, Profile} = run(#{functions => [{?MODULE, loop, 1}], progress => Go}),
    [{_, Heap}, {_, Stack}] = Size(),
    [{_, Heap0}, {_, Stack0}] = Before,
    kill(Pid),
    ?assert(Stack =< Stack0 + 10, {Stack0, Stack}),
    ?assert(Heap =< 4 * Heap0 + 1000, {Heap0, Heap}),
    ?assert(noted("1 calls of erlane_prof_latency_SUITE:loop/1 had not ended", Profile), Profile).

%% Neither arguments nor what is returned are copied: here they are more than the agent may use.
large_terms(_Config) ->
    Large = lists:seq(1, 6000000),
    Worker = worker(none, fun() -> [{length(give(Large))} || _ <- "abc"] end),
    Profile = measured([{?MODULE, give, 1}], [Worker]),
    ?assertMatch(#{calls := 3}, summary(give, Profile)),
    ?assertNot(noted("64 MB", Profile)).

%% Functions that are not Erlang's.
bifs(_Config) ->
    Worker = worker(none, fun() -> {[{ets:whereis(N)} || N <- [a, b, c]],
                                    [{lists:reverse([N], [])} || N <- "ab"]}
                          end),
    Profile = measured([{ets, whereis, 1}, {lists, reverse, 2}], [Worker], #{procs => [Worker]}),
    #{latency := Spreads} = Profile,
    [2, 3] = lists:sort([maps:get(calls, erlane_prof_spread:summary(S)) || S <- Spreads]).

%% Only those that were named.
some_processes(_Config) ->
    Two = [worker(none, fun() -> [{quick(1)} || _ <- "abcd"] end) || _ <- "ab"],
    Profile = measured([{?MODULE, quick, 1}], Two, #{procs => [hd(Two)]}),
    ?assertMatch(#{calls := 4}, summary(quick, Profile)).

%% A process that ends in a call leaves nothing behind here.
ended_in_call(_Config) ->
    Self = self(),
    Go = once(fun() ->
                      Pid = spawn(fun() -> block(Self) end),
                      receive {blocked, Pid} -> ok end,
                      kill(Pid)
              end),
    {ok, Profile} = run(#{functions => [{?MODULE, block, 1}], progress => Go}),
    ?assert(noted("1 calls ended with their process", Profile), Profile).

%% A thousand at the same time are too many: that function is left alone, and others go on.
thousand_open(_Config) ->
    Self = self(),
    Blocked = fun() ->
                      Pids = [spawn_link(fun() -> block(Self) end) || _ <- lists:seq(1, 1010)],
                      [receive {blocked, Pid} -> Pid end || Pid <- Pids]
              end,
    Go = once(fun() ->
                      put(blocked, Blocked()),
                      quick(1)
              end),
    {ok, Profile} = run(#{functions => [{?MODULE, block, 1}, {?MODULE, quick, 1}],
                          progress => Go}),
    [kill(Pid) || Pid <- erase(blocked)],
    ?assert(noted("block/1 was dropped", Profile), Profile),
    ?assertMatch(#{dropped := true}, spread(block, Profile)),
    ?assertMatch(#{calls := 1}, summary(quick, Profile)).

%% It ends at its limit.
events_limit(_Config) ->
    Pid = spawn_link(?MODULE, forever, []),
    {Us, {ok, #{notes := Notes} = Profile}} =
        timer:tc(fun() -> run(#{functions => [{?MODULE, quick, 1}], events => 200}) end),
    kill(Pid),
    ?assert(Us < 15000000, Us),
    ?assert(noted("limit of 200", Profile), Notes),
    #{calls := Calls} = summary(quick, Profile),
    ?assert(Calls =< 200 andalso Calls >= 199, Calls).

%% 16 are taken, 17 are not; a module has too many.
too_many_functions(_Config) ->
    All = [{lists, F, A} || {F, A} <- lists:sort(lists:module_info(exports))],
    {ok, _} = run(#{functions => lists:sublist(All, 16), for => 50}),
    [begin
         {error, {declined, _, _} = Why} = run(#{functions => Functions, for => 50}),
         ?assertNotEqual(nomatch, string:find(erlane_prof:format_error(Why), "too many"))
     end || Functions <- [lists:sublist(All, 17), [lists]]].

%% Somebody else's tracing is not touched: up to OTP 26 there is none beside it.
others_trace(_Config) ->
    Pid = spawn_link(fun() -> receive stop -> ok end end),
    1 = erlang:trace(Pid, true, [call]),
    1 = erlang:trace_pattern({?MODULE, quick, 1}, true, [local]),
    Answer = run(#{functions => [{?MODULE, wait, 1}], for => 100}),
    ?assertEqual({flags, [call]}, erlang:trace_info(Pid, flags)),
    ?assertEqual({traced, local}, erlang:trace_info({?MODULE, quick, 1}, traced)),
    1 = erlang:trace(Pid, false, [call]),
    1 = erlang:trace_pattern({?MODULE, quick, 1}, false, [local]),
    kill(Pid),
    case list_to_integer(erlang:system_info(otp_release)) of
        Release when Release < 27 -> {error, {declined, _, _}} = Answer;
        _ -> {ok, _} = Answer
    end.

%% What was switched on is off, also where a function was dropped or a limit came.
nothing_left(_Config) ->
    Pid = spawn_link(?MODULE, forever, []),
    {ok, _} = run(#{functions => [{?MODULE, quick, 1}], events => 50}),
    {ok, _} = run(#{functions => [{?MODULE, quick, 1}], for => 50, procs => [Pid]}),
    ?assertEqual({traced, false}, erlang:trace_info({?MODULE, quick, 1}, traced)),
    [?assertEqual({flags, []}, erlang:trace_info(P, flags)) || P <- [self(), Pid, new_processes]],
    kill(Pid).

%%% What is called

wait(Ms) ->
    receive after Ms -> ok end.

quick(N) -> N.

outer(Ms) ->
    ok = wait(Ms),
    outer.

tail(Ms) -> wait(Ms).

left(N) -> {throws(N)}.

throws(N) -> throw({out, N}).

down(0) -> [];
down(N) -> [N | down(N - 1)].

loop(N) ->
    receive {From, What} -> From ! {self(), What}, loop(N + 1) end.

give(Large) ->
    hd(Large) > 0 andalso Large.

block(Parent) ->
    Parent ! {blocked, self()},
    receive stop -> ok end.

forever() ->
    _ = quick(1),
    _ = erlang:yield(),
    forever().

%%% Helpers

run(Options) ->
    erlane_prof:run(maps:merge(#{mode => latency, for => 60000, events => 1000000}, Options)).

%% Processes that wait, do their work once when the tracing is on, and wait again.
worker(Name, Work) ->
    Self = self(),
    spawn_link(fun() ->
                       [true = register(Name, self()) || Name =/= none],
                       receive go -> ok end,
                       _ = Work(),
                       Self ! {done, self()},
                       receive stop -> ok end
               end).

measured(Functions, Workers) ->
    measured(Functions, Workers, #{}).

measured(Functions, Workers, Options) ->
    Go = once(fun() ->
                      [Pid ! go || Pid <- Workers],
                      [receive {done, Pid} -> ok after ?WAIT_MS -> ct:fail(not_done) end
                       || Pid <- Workers]
              end),
    {ok, Profile} = run(Options#{functions => Functions, progress => Go}),
    [kill(Pid) || Pid <- Workers],
    Profile.

%% As progress: does something when it is called first, and ends the profile when it is called
%% after that.
once(Fun) ->
    Counter = counters:new(1, []),
    fun(_) ->
            ok = counters:add(Counter, 1, 1),
            case counters:get(Counter, 1) of
                1 -> _ = Fun(), continue;
                _ -> stop
            end
    end.

spread(F, #{latency := Spreads}) ->
    [Spread] = [S || #{function := {?MODULE, Name, _}} = S <- Spreads, Name =:= F],
    Spread.

summary(F, Profile) ->
    erlane_prof_spread:summary(spread(F, Profile)).

noted(Words, #{notes := Notes}) ->
    lists:any(fun(Note) -> string:find(Note, Words) =/= nomatch end, Notes).

kill(Pid) ->
    unlink(Pid),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

holds(Property) ->
    ?assertEqual(true, proper:quickcheck(Property, [quiet, {numtests, 300}, long_result])).
