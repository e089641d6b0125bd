%% SPDX-License-Identifier: Apache-2.0
%% Sets of shards at work.
-module(erlane_shard_SUITE).

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([values/1, raising_update/1, raising_cast/1, own_logic/1, own_logic_alone/1,
         not_started/1, bound_is_kept/1, dead_senders_leave_nothing/1, times_out/1,
         calls_itself/1, batches/1, resizes/1, late_message_is_not_overtaken/1,
         late_message_is_waited_for/1, late_call_is_answered/1, follows_schedulers/1,
         shard_crashes/1, crash_frees_those_who_wait/1, crash_of_the_set/1, supervised/1,
         pinned/1, hot_report/1, counts_messages/1, buffer_by_count/1,
         buffer_when_nothing_waits/1, buffer_by_age/1, buffer_of_the_dead/1, buffer_of_many_keys/1,
         moving/1]).

-include_lib("stdlib/include/assert.hrl").

-define(SET, erlane_shard_test).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [values, raising_update, raising_cast, own_logic, own_logic_alone, not_started, bound_is_kept,
     dead_senders_leave_nothing, times_out, calls_itself, batches, resizes,
     late_message_is_not_overtaken, late_message_is_waited_for, late_call_is_answered,
     follows_schedulers, shard_crashes,
     crash_frees_those_who_wait, crash_of_the_set, supervised, pinned, hot_report,
     counts_messages, buffer_by_count, buffer_when_nothing_waits, buffer_by_age,
     buffer_of_the_dead, buffer_of_many_keys, moving].

init_per_suite(Config) ->
    {ok, _} = application:ensure_all_started(erlane_shard),
    Config.

end_per_suite(_) -> application:stop(erlane_shard).

end_per_testcase(_, _) -> erlane_shard:stop(?SET).

start(Options) ->
    {ok, Pid} = erlane_shard:start(?SET, Options),
    Pid.

%% Everything that can be done to a value, with its answer.
values(_) ->
    start(#{}),
    ?assertEqual(undefined, erlane_shard:get(?SET, a)),
    ok = erlane_shard:put(?SET, a, 1),
    ?assertEqual({ok, 1}, erlane_shard:get(?SET, a)),
    ok = erlane_shard:add(?SET, a, 5),
    ok = erlane_shard:add(?SET, a, -7),
    ok = erlane_shard:add(?SET, {b, 1.0}, 3),
    ?assertEqual({ok, -1}, erlane_shard:get(?SET, a)),
    ?assertEqual({was, {ok, -1}},
                 erlane_shard:update(?SET, a, fun(V) -> {reply, {was, V}, <<"new">>} end)),
    ?assertEqual(kept, erlane_shard:update(?SET, a, fun({ok, <<"new">>}) -> {keep, kept} end)),
    ?assertEqual(#{a => <<"new">>, {b, 1.0} => 3}, erlane_shard:snapshot(?SET)),
    ?assertEqual(gone, erlane_shard:update(?SET, a, fun({ok, _}) -> {delete, gone} end)),
    ok = erlane_shard:delete(?SET, {b, 1.0}),
    ok = erlane_shard:delete(?SET, never_there),
    ?assertEqual(undefined, erlane_shard:get(?SET, {b, 1.0})),
    ?assertEqual(#{}, erlane_shard:snapshot(?SET)),
    ?assertEqual(7, erlane_shard:call(?SET, n, {add, 7})).

%% The caller gets what the function raised, the value stays, and so does the shard.
raising_update(_) ->
    start(#{shards => 1}),
    ok = erlane_shard:put(?SET, a, text),
    [#{pid := Pid}] = erlane_shard:info(?SET),
    ?assertError(this, erlane_shard:update(?SET, a, fun(_) -> error(this) end)),
    ?assertThrow(this, erlane_shard:update(?SET, a, fun(_) -> throw(this) end)),
    ?assertExit({this, {erlane_shard, call, [?SET, a, _]}},
                erlane_shard:update(?SET, a, fun(_) -> exit(this) end)),
    ?assertError({bad_return, no}, erlane_shard:update(?SET, a, fun(_) -> no end)),
    ?assertError({not_a_counter, text}, erlane_shard:call(?SET, a, {add, 1})),
    ?assertEqual({ok, text}, erlane_shard:get(?SET, a)),
    ?assertMatch([#{pid := Pid}], erlane_shard:info(?SET)).

%% What nobody waits for changes nothing either, and is in the log.
raising_cast(_) ->
    start(#{shards => 1}),
    Self = self(),
    ok = logger:add_handler(?MODULE, erlane_shard_log, #{config => Self}),
    try
        ok = erlane_shard:put(?SET, a, text),
        ok = erlane_shard:add(?SET, a, 1),
        receive {log, Text} -> ?assertMatch({match, _}, re:run(Text, "not_a_counter")) end,
        ?assertEqual({ok, text}, erlane_shard:get(?SET, a))
    after
        ok = logger:remove_handler(?MODULE)
    end.

own_logic(_) ->
    start(#{module => {erlane_shard_logic, first}, shards => 2}),
    ?assertEqual([first], erlane_shard:call(?SET, a, one)),
    ok = erlane_shard:cast(?SET, a, two),
    ok = erlane_shard:batch(?SET, [{a, three}, {a, four}]),
    ?assertEqual([{a, four}, {a, three}, {a, two}, {a, one}, first],
                 erlane_shard:call(?SET, a, five)),
    ?assertError(asked_to, erlane_shard:call(?SET, a, fail)),
    ?assertError({bad_return, [_, _, _, _, _, first]}, erlane_shard:call(?SET, a, wrong)),
    ok = erlane_shard:cast(?SET, a, wrong),
    ?assertEqual([6], erlane_shard:snapshot(?SET)),
    ok = erlane_shard:resize(?SET, 5),
    ok = erlane_shard:resize(?SET, 1),
    ?assertEqual([6], erlane_shard:snapshot(?SET)).

%% Requests of the logic that is not there.
own_logic_alone(_) ->
    start(#{module => {erlane_shard_logic, first}}),
    [?assertError(badarg, F())
     || F <- [fun() -> erlane_shard:get(?SET, a) end,
              fun() -> erlane_shard:put(?SET, a, 1) end,
              fun() -> erlane_shard:delete(?SET, a) end,
              fun() -> erlane_shard:add(?SET, a, 1) end,
              fun() -> erlane_shard:update(?SET, a, fun(_) -> {keep, ok} end) end]],
    ?assertEqual([], erlane_shard:snapshot(?SET)).

not_started(_) ->
    [?assertError({not_started, ?SET}, F())
     || F <- [fun() -> erlane_shard:get(?SET, a) end,
              fun() -> erlane_shard:add(?SET, a, 1) end,
              fun() -> erlane_shard:cast(?SET, a, 1) end,
              fun() -> erlane_shard:batch(?SET, [{a, {add, 1}}]) end,
              fun() -> erlane_shard:snapshot(?SET) end]],
    ok = erlane_shard:stop(?SET).

%% A shard that stands still has exactly `bound' messages of each sender, then these wait.
bound_is_kept(_) ->
    start(#{shards => 1, bound => 10}),
    [#{pid := Pid}] = erlane_shard:info(?SET),
    ok = sys:suspend(Pid),
    Senders = [spawn_monitor(fun() -> [ok = How(I) || I <- lists:seq(1, 100)] end)
               || How <- [fun(I) -> erlane_shard:add(?SET, sum, I) end,
                          fun(I) -> erlane_shard:cast(?SET, sum, {add, I}) end,
                          fun(I) -> erlane_shard:batch(?SET, [{sum, {add, I}}]) end]],
    %% One more of each: the question whether there is room.
    until(fun() -> process_info(Pid, message_queue_len) =:= {message_queue_len, 33} end),
    [until(fun() -> process_info(S, status) =:= {status, waiting} end) || {S, _} <- Senders],
    ?assertEqual({message_queue_len, 33}, process_info(Pid, message_queue_len)),
    ok = sys:resume(Pid),
    [receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(normal, Why) end
     || {_, Ref} <- Senders],
    ?assertEqual({ok, 3 * 5050}, erlane_shard:get(?SET, sum)).

%% The shard knows nothing of who sent, and who was killed while it waited is forgotten.
dead_senders_leave_nothing(_) ->
    start(#{shards => 1, bound => 1}),
    [#{pid := Pid}] = erlane_shard:info(?SET),
    ok = sys:suspend(Pid),
    {Sender, Ref} = spawn_monitor(fun() -> [erlane_shard:add(?SET, a, 1) || _ <- [1, 2]] end),
    until(fun() -> process_info(Pid, message_queue_len) =:= {message_queue_len, 2} end),
    exit(Sender, kill),
    receive {'DOWN', Ref, process, _, killed} -> ok end,
    ok = sys:resume(Pid),
    ?assertEqual({ok, 1}, erlane_shard:get(?SET, a)),
    ?assertEqual([{monitors, []}, {monitored_by, []}, {message_queue_len, 0}],
                 process_info(Pid, [monitors, monitored_by, message_queue_len])).

times_out(_) ->
    start(#{shards => 1}),
    [#{pid := Pid}] = erlane_shard:info(?SET),
    ok = sys:suspend(Pid),
    ?assertExit({timeout, {erlane_shard, call, [?SET, a, {add, 1}]}},
                erlane_shard:call(?SET, a, {add, 1}, 10)),
    ok = sys:resume(Pid),
    %% It was done all the same, and its answer went nowhere.
    ?assertEqual({ok, 1}, erlane_shard:get(?SET, a)),
    receive Stray -> ?assertEqual(none, Stray) after 0 -> ok end.

%% A function in a shard may send to its own set, also more than `bound'; a call would hang.
calls_itself(_) ->
    start(#{shards => 1, bound => 2}),
    Add = fun(undefined) ->
                  [erlane_shard:add(?SET, a, 1) || _ <- [1, 2, 3, 4, 5]],
                  {reply, ok, 0}
          end,
    ok = erlane_shard:update(?SET, a, Add),
    ?assertEqual({ok, 5}, erlane_shard:get(?SET, a)),
    ?assertExit({{calling_self, {erlane_shard, call, [?SET, a, get]}}, _},
                erlane_shard:update(?SET, a, fun(_) -> {keep, erlane_shard:get(?SET, a)} end)).

%% One message for each shard; what is for one key in the order of the list.
batches(_) ->
    start(#{shards => 2}),
    Before = lists:sum([N || #{handled := N} <- erlane_shard:info(?SET)]),
    ok = erlane_shard:batch(?SET, [{K, Op} || K <- lists:seq(1, 100),
                                              Op <- [{put, 1}, {add, K}, {add, 1}]]
                                  ++ [{7, delete}]),
    ok = erlane_shard:batch(?SET, []),
    ?assertEqual(maps:from_list([{K, K + 2} || K <- lists:seq(1, 100), K =/= 7]),
                 erlane_shard:snapshot(?SET)),
    %% Beside the batches the snapshot, what came before it, and the first look at the figures.
    ?assertEqual(Before + 2 + 6, lists:sum([N || #{handled := N} <- erlane_shard:info(?SET)])).

%% Keys keep their values, and each shard has the same number of them, about.
resizes(_) ->
    start(#{shards => 3}),
    Want = maps:from_list([{K, K} || K <- lists:seq(1, 5000)]),
    ok = erlane_shard:batch(?SET, [{K, {put, K}} || K <- lists:seq(1, 5000)]),
    [begin
         ok = erlane_shard:resize(?SET, N),
         ?assertEqual(Want, erlane_shard:snapshot(?SET)),
         [?assertEqual({ok, K}, erlane_shard:get(?SET, K)) || K <- lists:seq(1, 50)],
         Slots = [S || #{slots := S} <- erlane_shard:info(?SET)],
         ?assertEqual({N, 256}, {length(Slots), lists:sum(Slots)}),
         ?assert(lists:max(Slots) - lists:min(Slots) =< 1)
     end || N <- [4, 1, 7, 2, 2, 256, 3]],
    [?assertEqual({error, {shards, {badarg, Bad}}}, erlane_shard:resize(?SET, Bad))
     || Bad <- [0, 257, schedulers]].

%% A message that went to the shard that had the slot before, and the next one, which goes to the
%% one that has it now: although the first is passed on late, it is done first.
late_message_is_not_overtaken(_) ->
    start(#{shards => 1}),
    Old = erlane_shard_send:set(?SET),
    [#{pid := From}] = erlane_shard:info(?SET),
    ok = erlane_shard:resize(?SET, 2),
    Key = key_of(2),
    ok = sys:suspend(From),
    Self = self(),
    {Sender, Ref} = spawn_monitor(
                      fun() ->
                              ok = erlane_shard_send:cast(Old, Key, {put, first}),
                              Self ! sent,
                              ok = erlane_shard:put(?SET, Key, second)
                      end),
    receive sent -> ok end,
    %% The second waits for the first, not for the shard it is for.
    until(fun() -> process_info(Sender, status) =:= {status, waiting} end),
    ?assertEqual(undefined, erlane_shard:get(?SET, Key)),
    ok = sys:resume(From),
    receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(normal, Why) end,
    until(fun() -> erlane_shard:get(?SET, Key) =:= {ok, second} end).

%% The sender's next message is not sent before the one that was passed on is done: what two
%% processes send to a third may be taken in any order.
late_message_is_waited_for(_) ->
    start(#{shards => 1}),
    Old = erlane_shard_send:set(?SET),
    ok = erlane_shard:resize(?SET, 2),
    Key = key_of(2),
    [To] = [P || #{shard := 2, pid := P} <- erlane_shard:info(?SET)],
    ok = sys:suspend(To),
    {Sender, Ref} = spawn_monitor(fun() ->
                                          ok = erlane_shard_send:cast(Old, Key, {put, first}),
                                          ok = erlane_shard:put(?SET, Key, second)
                                  end),
    until(fun() -> process_info(To, message_queue_len) =:= {message_queue_len, 1}
                       andalso process_info(Sender, status) =:= {status, waiting} end),
    ok = sys:resume(To),
    receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(normal, Why) end,
    until(fun() -> erlane_shard:get(?SET, Key) =:= {ok, second} end).

late_call_is_answered(_) ->
    start(#{shards => 1}),
    Old = erlane_shard_send:set(?SET),
    ok = erlane_shard:resize(?SET, 2),
    Key = key_of(2),
    ok = erlane_shard:add(?SET, Key, 1),
    ?assertEqual({ok, 1}, in_process(fun() -> erlane_shard_send:call(Old, Key, get, 5000) end)),
    ok = erlane_shard:resize(?SET, 1),
    ?assertEqual({ok, 1}, in_process(fun() -> erlane_shard_send:call(Old, Key, get, 5000) end)).

%% Fewer schedulers, fewer shards, as soon as there is something to do.
follows_schedulers(_) ->
    Online = erlang:system_info(schedulers_online),
    case Online of
        1 -> {skip, "one scheduler only"};
        _ ->
            start(#{}),
            ?assertEqual(Online, length(erlane_shard:info(?SET))),
            Add = fun(N) -> fun() ->
                                    [ok = erlane_shard:add(?SET, K, 1) || K <- lists:seq(1, 100)],
                                    length(erlane_shard:info(?SET)) =:= N
                            end end,
            try
                Online = erlang:system_flag(schedulers_online, 1),
                until(Add(1))
            after
                erlang:system_flag(schedulers_online, Online)
            end,
            until(Add(Online))
    end.

%% The keys of one shard are lost, those of the other are not; the set goes on.
shard_crashes(_) ->
    start(#{shards => 2}),
    {A, B} = {key_of(1), key_of(2)},
    ok = erlane_shard:batch(?SET, [{A, {put, 1}}, {B, {put, 2}}]),
    [Pid] = [P || #{shard := 1, pid := P} <- erlane_shard:info(?SET)],
    exit(Pid, kill),
    until(fun() -> [P || #{pid := P} <- erlane_shard:info(?SET), P =/= Pid] =/= []
                       andalso length(erlane_shard:info(?SET)) =:= 2 end),
    ?assertEqual({ok, 2}, erlane_shard:get(?SET, B)),
    ?assertEqual(undefined, erlane_shard:get(?SET, A)),
    ok = erlane_shard:add(?SET, A, 1),
    ?assertEqual({ok, 1}, erlane_shard:get(?SET, A)).

%% One waits for room, one for its answer, and one for a message that was passed on.
crash_frees_those_who_wait(_) ->
    start(#{shards => 1, bound => 1}),
    Old = erlane_shard_send:set(?SET),
    ok = erlane_shard:resize(?SET, 2),
    Key = key_of(2),
    [Pid] = [P || #{shard := 2, pid := P} <- erlane_shard:info(?SET)],
    ok = sys:suspend(Pid),
    Waiting = [spawn_monitor(F)
               || F <- [fun() -> [ok = erlane_shard:add(?SET, Key, 1) || _ <- [1, 2]] end,
                        fun() -> erlane_shard:call(?SET, Key, get, infinity) end,
                        fun() -> erlane_shard_send:call(Old, Key, get, infinity) end,
                        fun() ->
                                ok = erlane_shard_send:add(Old, Key, 1),
                                ok = erlane_shard:add(?SET, Key, 1)
                        end]],
    until(fun() -> process_info(Pid, message_queue_len) =:= {message_queue_len, 5} end),
    exit(Pid, kill),
    Why = [receive {'DOWN', Ref, process, _, Reason} -> Reason end || {_, Ref} <- Waiting],
    ?assertMatch([normal, {killed, {erlane_shard, call, _}}, {noproc, {erlane_shard, call, _}},
                  normal], Why).

%% A set whose keeper ends is started again, with nothing in it and nothing of it left.
crash_of_the_set(_) ->
    Keeper = start(#{shards => 2}),
    ok = erlane_shard:put(?SET, a, 1),
    Shards = [monitor(process, P) || #{pid := P} <- erlane_shard:info(?SET)],
    exit(Keeper, kill),
    [receive {'DOWN', Ref, process, _, _} -> ok end || Ref <- Shards],
    until(fun() -> is_pid(whereis(?SET)) andalso whereis(?SET) =/= Keeper end),
    until(fun() -> try erlane_shard:get(?SET, a) of V -> V =:= undefined
                   catch exit:{_, {erlane_shard, call, _}} -> false end end).

supervised(_) ->
    Keeper = start(#{}),
    ?assertEqual({error, {already_started, Keeper}}, erlane_shard:start(?SET, #{})),
    ?assertEqual({error, {already_started, Keeper}}, erlane_shard:start_link(?SET, #{})),
    Shards = [monitor(process, P) || #{pid := P} <- erlane_shard:info(?SET)],
    ok = erlane_shard:stop(?SET),
    [receive {'DOWN', Ref, process, _, Why} -> ?assertEqual(shutdown, Why) end || Ref <- Shards],
    ?assertEqual(none, persistent_term:get({erlane_shard, ?SET}, none)),
    ?assertEqual([], supervisor:which_children(erlane_shard_sup)),
    {ok, Linked} = erlane_shard:start_link(?SET, #{}),
    ?assertNotEqual(Keeper, Linked),
    ok = erlane_shard:stop(?SET),
    ?assertMatch(#{id := ?SET, type := supervisor, start := {erlane_shard, start_link, _}},
                 erlane_shard:child_spec(?SET, #{})).

%% Whatever else runs, a pinned shard is always on its scheduler.
pinned(_) ->
    start(#{pinned => true, shards => 2}),
    On = fun(_) -> {keep, erlang:system_info(scheduler_id)} end,
    [?assertEqual([I], lists:usort([begin
                                        true = erlang:yield(),
                                        erlane_shard:update(?SET, Key, On)
                                    end || _ <- lists:seq(1, 200)]))
     || {I, Key} <- [{1, key_of(1)},
                     {min(2, erlang:system_info(schedulers)), key_of(2)}]].

hot_report(_) ->
    start(#{shards => 2}),
    ?assertEqual([], erlane_shard:hot(?SET)),
    [ok = erlane_shard:add(?SET, case I rem 2 of 0 -> hot; 1 -> I end, 1)
     || I <- lists:seq(1, 40000)],
    [{Key, Share}, {_, Second} | _] = erlane_shard:hot(?SET),
    ?assertEqual(hot, Key),
    ?assert(Share > 0.3 andalso Share < 0.7),
    ?assert(Second < 0.2).

counts_messages(_) ->
    start(#{shards => 1}),
    [ok = erlane_shard:put(?SET, K, 1) || K <- lists:seq(1, 1000)],
    {ok, 1} = erlane_shard:get(?SET, 1),
    ok = erlane_shard:sync(?SET),
    [#{handled := N, waiting := 0, shard := 1, slots := Slots}] = erlane_shard:info(?SET),
    %% Four times the sender asked whether there was room, and once whether all was done.
    ?assertEqual(1000 + 1 + 4 + 1, N),
    ?assert(Slots > 200).

buffer_by_count(_) ->
    start(#{shards => 1}),
    B0 = erlane_shard_buffer:new(?SET, #{max_adds => 4, max_age => infinity}),
    B3 = lists:foldl(fun(K, B) -> erlane_shard_buffer:add(B, K, 1) end, B0, [a, b, a, a]),
    ?assertEqual(undefined, erlane_shard:get(?SET, a)),
    B4 = erlane_shard_buffer:add(B3, b, 10),
    ?assertEqual(#{a => 3, b => 1}, erlane_shard:snapshot(?SET)),
    B5 = erlane_shard_buffer:flush(B4),
    ?assertEqual(#{a => 3, b => 11}, erlane_shard:snapshot(?SET)),
    ?assertEqual(B5, erlane_shard_buffer:flush(B5)),
    receive Stray -> ?assertEqual(none, Stray) after 0 -> ok end.

%% One message of the buffer, after those that were there; and one more only after that came.
buffer_when_nothing_waits(_) ->
    start(#{}),
    self() ! before,
    B0 = erlane_shard_buffer:new(?SET, #{}),
    B1 = lists:foldl(fun(K, B) -> erlane_shard_buffer:add(B, K, 1) end, B0, [a, b, a]),
    ?assertEqual(undefined, erlane_shard:get(?SET, a)),
    unknown = erlane_shard_buffer:info(receive M1 -> M1 end, B1),
    {ok, B2} = erlane_shard_buffer:info(receive M2 -> M2 end, B1),
    ?assertEqual(#{a => 2, b => 1}, erlane_shard:snapshot(?SET)),
    B3 = erlane_shard_buffer:flush(erlane_shard_buffer:add(B2, a, 1)),
    B4 = erlane_shard_buffer:add(B3, a, 1),
    {ok, _} = erlane_shard_buffer:info(receive M3 -> M3 end, B4),
    ?assertEqual({ok, 4}, erlane_shard:get(?SET, a)),
    receive Stray -> ?assertEqual(none, Stray) after 0 -> ok end.

buffer_by_age(_) ->
    start(#{}),
    B0 = erlane_shard_buffer:new(?SET, #{max_age => 20}),
    From = erlang:monotonic_time(millisecond),
    B1 = erlane_shard_buffer:add(B0, a, 1),
    {ok, _} = erlane_shard_buffer:info(receive M -> M end, B1),
    ?assert(erlang:monotonic_time(millisecond) - From >= 20),
    ?assertEqual({ok, 1}, erlane_shard:get(?SET, a)).

%% What had not left is gone, what had left is not.
buffer_of_the_dead(_) ->
    start(#{}),
    in_process(fun() ->
                       B = erlane_shard_buffer:new(?SET, #{max_adds => 3}),
                       lists:foldl(fun(K, Acc) -> erlane_shard_buffer:add(Acc, K, 1) end, B,
                                   [a, a, a, a, a])
               end),
    until(fun() -> erlane_shard:get(?SET, a) =:= {ok, 3} end).

%% Keys and numbers of all sizes, over several fillings: nothing is lost, nothing wraps.
buffer_of_many_keys(_) ->
    start(#{}),
    Numbers = {1, -1, 0, 7, 1 bsl 41, 1 bsl 42, -(1 bsl 42), 1 bsl 43, -(1 bsl 70)},
    Adds = [{I * I rem Keys, element(I rem tuple_size(Numbers) + 1, Numbers)}
            || Keys <- [1, 5, 40, 700, 3000, 40], I <- lists:seq(1, 2000)],
    B = lists:foldl(fun({K, N}, Acc) -> erlane_shard_buffer:add(Acc, K, N) end,
                    erlane_shard_buffer:new(?SET, #{max_adds => 1700}), Adds),
    _ = erlane_shard_buffer:flush(B),
    Sums = lists:foldl(fun({K, N}, Acc) ->
                               maps:update_with(K, fun(Sum) -> Sum + N end, N, Acc)
                       end, #{}, Adds),
    ?assertEqual(Sums, erlane_shard:snapshot(?SET)).

moving(_) ->
    ?assert(proper:quickcheck(prop_erlane_shard:prop_moving(), [{numtests, 150}, {to_file, user}])).

%% A key that this shard has now.
key_of(Number) ->
    [Pid] = [P || #{shard := N, pid := P} <- erlane_shard:info(?SET), N =:= Number],
    hd([K || K <- lists:seq(1, 1000),
             erlane_shard:update(?SET, K, fun(_) -> {keep, self()} end) =:= Pid]).

in_process(Fun) ->
    {_, Ref} = spawn_monitor(fun() -> exit({result, Fun()}) end),
    receive {'DOWN', Ref, process, _, {result, Result}} -> Result end.

until(Condition) -> until(Condition, erlang:monotonic_time(millisecond) + 10000).

until(Condition, Deadline) ->
    case Condition() of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error(deadline),
            receive after 1 -> until(Condition, Deadline) end
    end.
