%% SPDX-License-Identifier: Apache-2.0
%% Defects that other metrics libraries have or had, a case for each: none of them is here.
-module(erlane_metrics_regress_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([beyond_31_bits/1, long_names_stay_apart/1, updates_fill_no_mailbox/1,
         creation_at_once_is_one_series/1, deletion_crashes_no_observer/1,
         updates_revive_nothing/1, nothing_grows_unscraped/1, pass_gives_way/1,
         declaring_reads_no_series/1,
         schedulers_of_any_number/1, lost_by_nobody/1, registry_crash_is_survived/1,
         registry_crash_half_way/1, registry_crash_under_creation/1, restart_of_the_app/1]).
%% called by a VM of its own
-export([count_here/0]).

-define(WAIT_MS, 10000).

all() ->
    [beyond_31_bits, long_names_stay_apart, updates_fill_no_mailbox,
     creation_at_once_is_one_series, deletion_crashes_no_observer, updates_revive_nothing,
     nothing_grows_unscraped, pass_gives_way, declaring_reads_no_series,
     schedulers_of_any_number, lost_by_nobody,
     registry_crash_is_survived, registry_crash_half_way, registry_crash_under_creation,
     restart_of_the_app].

init_per_testcase(_Case, Config) ->
    _ = application:load(erlane_metrics),
    ok = application:set_env(erlane_metrics, collectors, []),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    application:stop(erlane_metrics).

%% mzmetrics: 2^31 reads back wrong.
beyond_31_bits(_Config) ->
    H = erlane_metrics:handle(counter(<<"x">>, []), []),
    G = erlane_metrics:handle(erlane_metrics:group(#{name => <<"g">>, help => <<>>,
                                                     counters => [{<<"a">>, <<>>}]}), []),
    S = erlane_metrics:handle(erlane_metrics:gauge(#{name => <<"s">>, help => <<>>}), []),
    [begin
         Before = erlane_metrics:value(H),
         ok = erlane_metrics:add(H, V),
         ok = erlane_metrics:add(G, 1, V),
         ok = erlane_metrics:set(S, -V),
         ?assertEqual(Before + V, erlane_metrics:value(H)),
         ?assertEqual({Before + V}, erlane_metrics:value(G)),
         ?assertEqual(-V, erlane_metrics:value(S))
     end || Bits <- [31, 32, 53, 60, 62], V <- [(1 bsl Bits) - 1, 1 bsl Bits]].

%% mzmetrics: long names merge.
long_names_stay_apart(_Config) ->
    Long = binary:copy(<<"n">>, 254),
    Value = binary:copy(<<"v">>, 4095),
    Fs = [counter(<<Long/binary, C>>, [<<Long/binary, "l">>]) || C <- "ab"],
    Hs = [erlane_metrics:handle(F, [<<Value/binary, C>>]) || F <- Fs, C <- "cd"],
    [ok = erlane_metrics:add(H, N) || {N, H} <- lists:zip([1, 10, 100, 1000], Hs)],
    ?assertEqual([1, 10, 100, 1000], [erlane_metrics:value(H) || H <- Hs]),
    ?assertEqual([[1, 10], [100, 1000]],
                 [lists:sort(maps:values(erlane_metrics:snapshot(F))) || F <- Fs]).

%% exometer: update storms fill mailboxes. The registry is stopped, and updates do not notice.
updates_fill_no_mailbox(_Config) ->
    Hs = [erlane_metrics:handle(F, []) || F <- every_kind()],
    ok = sys:suspend(erlane_metrics_registry),
    Queues = fun() -> [element(2, process_info(whereis(P), message_queue_len))
                       || P <- [erlane_metrics_registry, erlane_metrics_tables,
                                erlane_metrics_sup]]
             end,
    Before = Queues(),
    at_once(20, fun(_) -> [update(H, I) || I <- lists:seq(1, 1000), H <- Hs] end),
    ?assertEqual(Before, Queues()),
    ok = sys:resume(erlane_metrics_registry).

%% folsom: concurrent creation leaks. Many processes resolve the same new series at once: all
%% have the same one, and every update is in it.
creation_at_once_is_one_series(_Config) ->
    F = counter(<<"x">>, [<<"l">>]),
    Before = ets:info(erlane_metrics_order, size),
    [begin
         Handles = at_once(30, fun(_) ->
                                       H = erlane_metrics:handle(F, [Round]),
                                       ok = erlane_metrics:inc(H),
                                       H
                               end),
         ?assertMatch([_], lists:usort(Handles)),
         ?assertEqual(30, erlane_metrics:value(hd(Handles)))
     end || Round <- lists:seq(1, 100)],
    ?assertEqual(Before + 100, ets:info(erlane_metrics_order, size)),
    %% Declarations at once, too.
    Fs = at_once(30, fun(_) -> erlane_metrics:histogram(#{name => <<"h">>, help => <<>>}) end),
    ?assertMatch([_], lists:usort(Fs)),
    ?assertEqual(Before + 101, ets:info(erlane_metrics_order, size)).

%% prometheus.erl: remove crashes a concurrent observer.
deletion_crashes_no_observer(_Config) ->
    Fs = [F || F <- every_kind([<<"l">>])],
    Done = atomics:new(1, []),
    Deleter = spawn_link(fun() -> delete_until(Done, Fs, 0) end),
    Monitor = monitor(process, Deleter),
    at_once(8, fun(_) ->
                       [begin
                            H = erlane_metrics:handle(F, [x]),
                            update(H, I),
                            _ = erlane_metrics:value(H),
                            update(H, I)
                        end || I <- lists:seq(1, 300), F <- Fs]
               end),
    atomics:put(Done, 1, 1),
    receive {'DOWN', Monitor, _, _, Why} -> ?assertMatch({deleted, N} when N > 0, Why)
    after ?WAIT_MS -> ct:fail(deleter_hangs)
    end.

delete_until(Done, Fs, N) ->
    Deleted = length([F || F <- Fs, erlane_metrics:delete(F, [x])]),
    case atomics:get(Done, 1) of
        0 -> delete_until(Done, Fs, N + Deleted);
        1 -> unlink_all(), exit({deleted, N + Deleted})
    end.

unlink_all() ->
    {links, Links} = process_info(self(), links),
    [unlink(L) || L <- Links].

%% prometheus.erl: a racing inc revives half a series. After the deletion there is nothing,
%% however often the old handle is used.
updates_revive_nothing(_Config) ->
    F = erlane_metrics:histogram(#{name => <<"h">>, help => <<>>, labels => [<<"l">>]}),
    [begin
         H = erlane_metrics:handle(F, [x]),
         at_once(4, fun(1) -> erlane_metrics:delete(F, [x]);
                       (_) -> [erlane_metrics:observe(H, I) || I <- lists:seq(1, 200)]
                    end),
         ?assertEqual(#{}, erlane_metrics:snapshot(F)),
         ?assertNot(erlane_metrics:alive(H))
     end || _ <- lists:seq(1, 50)].

%% telemetry_metrics_prometheus_core: raw samples pile up until a scrape.
nothing_grows_unscraped(_Config) ->
    Hs = [erlane_metrics:handle(F, []) || F <- every_kind()],
    Run = fun() -> at_once(4, fun(_) -> [update(H, I) || I <- lists:seq(1, 3000), H <- Hs] end) end,
    Size = fun() -> [ets:info(T, P) || T <- [erlane_metrics_series, erlane_metrics_order],
                                       P <- [size, memory]]
                        ++ [length(persistent_term_keys())]
           end,
    _ = Run(),
    Before = Size(),
    _ = Run(),
    ?assertEqual(Before, Size()).

persistent_term_keys() ->
    [K || {K, _} <- persistent_term:get(), is_tuple(K),
          element(1, K) =:= erlane_metrics_bounds].

%% mzmetrics blocks a scheduler with a bulk read, and a scrape of peep stalls: a pass over many
%% series gives its scheduler away often.
pass_gives_way(_Config) ->
    F = erlane_metrics:histogram(#{name => <<"h">>, help => <<>>, labels => [<<"l">>]}),
    [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 2000)],
    {Pid, Monitor} = spawn_monitor(
        fun() ->
                _ = erlane_metrics_walk:fold(fun(_, N) -> N + 1 end, 0),
                exit(done)
        end),
    1 = erlang:trace(Pid, true, [running]),
    receive {'DOWN', Monitor, _, _, done} -> ok after ?WAIT_MS -> ct:fail(no_end) end,
    Outs = outs(Pid, 0),
    %% 2000 arrays of 261 words read: far more than the 4000 reductions of one turn.
    ?assert(Outs > 20).

%% Declaring a family again went through all series there are, 3 ms for 100,000 of them.
declaring_reads_no_series(_Config) ->
    F = crowded(),
    Few = declared_again(),
    [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 20000)],
    Many = declared_again(),
    %% It was sixty times as long.
    ?assert(Many < 15 * Few, {Few, Many}).

%% The shortest of many, in native units: nothing else was in its way.
declared_again() ->
    lists:min([begin
                   Start = erlang:monotonic_time(),
                   _ = crowded(),
                   erlang:monotonic_time() - Start
               end || _ <- lists:seq(1, 200)]).

crowded() ->
    erlane_metrics:counter(#{name => <<"x">>, help => <<>>, labels => [<<"l">>],
                             limit => 20000}).

outs(Pid, N) ->
    receive
        {trace, Pid, out, _} -> outs(Pid, N + 1);
        {trace, Pid, in, _} -> outs(Pid, N)
    after 0 -> N
    end.

%% mzmetrics writes out of bounds under taskset: more schedulers than processors, or one.
schedulers_of_any_number(_Config) ->
    Path = filename:dirname(code:which(?MODULE)),
    Own = filename:dirname(code:which(erlane_metrics)),
    [begin
         Output = os:cmd(io_lib:format("erl ~s -noinput -pa ~s ~s -s ~s count_here",
                                       [Flags, Path, Own, ?MODULE])),
         ?assertEqual({Flags, "64000 64000 64000 64000"}, {Flags, Output})
     end || Flags <- ["+S 1", "+S 32:32", "+S 16:1 +SDcpu 4:1"]].

%% @private
count_here() ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    C = erlane_metrics:handle(counter(<<"c">>, []), []),
    G = erlane_metrics:handle(erlane_metrics:gauge(#{name => <<"g">>, help => <<>>}), []),
    H = erlane_metrics:handle(erlane_metrics:histogram(#{name => <<"h">>, help => <<>>}), []),
    S = erlane_metrics:handle(erlane_metrics:histogram(#{name => <<"s">>, help => <<>>,
                                                         spread => shared}), []),
    at_once(64, fun(_) -> [update_all([C, G], [H, S], I) || I <- lists:seq(1, 1000)] end),
    io:format("~b ~b ~b ~b", [erlane_metrics:value(C), erlane_metrics:value(G),
                              maps:get(count, erlane_metrics:value(H)),
                              maps:get(count, erlane_metrics:value(S))]),
    halt().

update_all(Incs, Observes, I) ->
    [ok = erlane_metrics:inc(H) || H <- Incs],
    [ok = erlane_metrics:observe(H, I * 1000) || H <- Observes].

%% Lost writes, as of erlang/otp#10507: 48 processes, every add is there, dirty schedulers or not.
lost_by_nobody(_Config) ->
    Hs = [erlane_metrics:handle(F, []) || F <- every_kind()],
    at_once(48, fun(_) -> [update(H, I) || I <- lists:seq(1, 500), H <- Hs] end),
    [?assertEqual({H, 48 * 500}, {H, total(erlane_metrics:value(H))})
     || H <- Hs, element(1, H) =/= stateset].

total(#{count := N}) -> N;
total({A, B}) -> (A + B) div 2;
total(N) -> N.

%% Handles, values and series go on over a crash of the registry.
registry_crash_is_survived(_Config) ->
    F = counter(<<"x">>, [<<"l">>]),
    Handles = [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 100)],
    [ok = erlane_metrics:inc(H) || H <- Handles],
    [true = erlane_metrics:delete(F, [I]) || I <- lists:seq(1, 100, 2)],
    crash(),
    [ok = erlane_metrics:inc(H) || H <- Handles],
    ?assertEqual(F, counter(<<"x">>, [<<"l">>])),
    ?assertError({bad_option, name, {collides, _, _}},
                 erlane_metrics:gauge(#{name => <<"x_total">>, help => <<>>})),
    New = [erlane_metrics:handle(F, [I]) || I <- lists:seq(1, 200)],
    ?assertEqual([case I =< 100 andalso I rem 2 =:= 0 of
                      true -> 2;
                      false -> 0
                  end || I <- lists:seq(1, 200)],
                 [erlane_metrics:value(H) || H <- New]),
    [ok = erlane_metrics:inc(H) || H <- Handles],
    ?assertEqual(0, lists:sum([erlane_metrics:value(H) || H <- lists:sublist(New, 101, 100)])),
    %% The limit still counts those from before.
    ?assertEqual(200, map_size(erlane_metrics:snapshot(F))).

%% Rows of a series that was half made or half deleted when the registry died are removed.
registry_crash_half_way(_Config) ->
    F = counter(<<"x">>, [<<"l">>]),
    Whole = erlane_metrics:handle(F, [whole]),
    Half = erlane_metrics:handle(F, [half]),
    Dead = erlane_metrics:handle(F, [dead]),
    ok = sys:suspend(erlane_metrics_registry),
    true = ets:delete(erlane_metrics_series, {<<"x">>, [<<"half">>]}),
    true = ets:delete(erlane_metrics_series, {<<"x">>, [<<"dead">>]}),
    ok = erlane_metrics_read:kill(Dead),
    crash(),
    ?assertEqual([true, false, false], [erlane_metrics:alive(H) || H <- [Whole, Half, Dead]]),
    ?assertEqual(#{[<<"whole">>] => 0}, erlane_metrics:snapshot(F)),
    New = erlane_metrics:handle(F, [half]),
    ok = erlane_metrics:inc(Half),
    ?assertEqual(0, erlane_metrics:value(New)).

%% Whoever makes or deletes series while the registry dies waits for the next one.
registry_crash_under_creation(_Config) ->
    F = counter(<<"x">>, [<<"l">>]),
    at_once(9, fun(1) -> [crash() || _ <- lists:seq(1, 3)];
                  (P) -> [begin
                              H = erlane_metrics:handle(F, [P * 1000 + I]),
                              ok = erlane_metrics:inc(H),
                              I rem 2 =:= 0 andalso erlane_metrics:delete(F, [P * 1000 + I])
                          end || I <- lists:seq(1, 100)]
               end),
    ?assertEqual(lists:duplicate(8 * 50, 1), maps:values(erlane_metrics:snapshot(F))).

%% Handles from before a restart of the app still take updates; families are declared anew.
restart_of_the_app(_Config) ->
    F = counter(<<"x">>, []),
    H = erlane_metrics:handle(F, []),
    ok = application:stop(erlane_metrics),
    ok = erlane_metrics:inc(H),
    ?assertError({registry_down, _}, counter(<<"x">>, [])),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    ?assertError({not_declared, <<"x">>}, erlane_metrics:handle(F, [])),
    F = counter(<<"x">>, []),
    ?assertEqual(0, erlane_metrics:value(erlane_metrics:handle(F, []))),
    ?assertEqual(1, erlane_metrics:value(H)).

%% Helpers

counter(Name, Labels) ->
    erlane_metrics:counter(#{name => Name, help => <<>>, labels => Labels}).

every_kind() -> every_kind([]).

every_kind(Labels) ->
    [erlane_metrics:Type(maps:merge(Opts, #{name => <<"k", (I + $a)>>, help => <<>>,
                                            labels => Labels}))
     || {I, {Type, Opts}} <- lists:zip(
            lists:seq(1, 9),
            [{counter, #{}}, {counter, #{spread => own}}, {gauge, #{}},
             {gauge, #{mode => updown}}, {histogram, #{}}, {histogram, #{spread => shared}},
             {summary, #{input => one}},
             {group, #{counters => [{<<"a">>, <<>>}, {<<"b">>, <<>>}]}},
             {state_set, #{states => [<<"a">>, <<"b">>]}}])].

update(H, I) when element(1, H) =:= histogram; element(1, H) =:= shared ->
    ok = erlane_metrics:observe(H, I);
update(H, I) when element(1, H) =:= group ->
    ok = erlane_metrics:add(H, 1 + I rem 2, 2);
update(H, _) when element(1, H) =:= stateset ->
    ok = erlane_metrics:set(H, <<"b">>);
update(H, _) ->
    ok = erlane_metrics:inc(H).

%% Runs a function in N processes that begin together; their results, or their first error.
at_once(N, Fun) ->
    Go = make_ref(),
    Runners = [spawn_monitor(fun() -> receive Go -> exit({ended, Fun(I)}) end end)
               || I <- lists:seq(1, N)],
    [Pid ! Go || {Pid, _} <- Runners],
    [receive
         {'DOWN', Monitor, _, _, {ended, Result}} -> Result;
         {'DOWN', Monitor, _, _, Why} -> error({runner, Why})
     after 60000 -> error(runner_hangs)
     end || {_, Monitor} <- Runners].

%% Kills the registry and waits for the next one.
crash() ->
    Pid = await_registry(undefined),
    exit(Pid, kill),
    _ = await_registry(Pid),
    ok.

await_registry(Old) ->
    case whereis(erlane_metrics_registry) of
        Pid when is_pid(Pid), Pid =/= Old -> Pid;
        _ -> receive after 1 -> await_registry(Old) end
    end.
