%% SPDX-License-Identifier: Apache-2.0
%% One subscriber in ten is never done with what it has got, for each policy: the others get all,
%% at once and in order; the slow ones get what their policy says, and each loss in one gap; what
%% the node keeps for them is bounded.
-module(fan_slow_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([drop_oldest/1, drop_newest/1, conflate/1, disconnect/1, block/1, pull/1, frames/1]).

-define(TOPIC, <<"slow/one">>).
-define(QUICK, 45).
-define(SLOW, 5).
-define(BYTES, 1000).
-define(LIMIT, 100000).
-define(MESSAGES, 20000).
-define(PART, 500).
-define(QUICK_LIMIT, 2 * ?PART * ?BYTES).
-define(MS, 30000).
-define(NEVER, 3600000).
%% A quarter of what is published; without a bound it would be all of it.
-define(GROWTH, ?MESSAGES * ?BYTES div 4).

suite() -> [{timetrap, {seconds, 90}}].

all() -> [drop_oldest, drop_newest, conflate, disconnect, block, pull, frames].

init_per_suite(Config) ->
    ok = fan_node:start([]),
    Config.

end_per_suite(_) ->
    application:stop(erlane_fanout).

%% The latest that fit, and gaps before them.
drop_oldest(_) ->
    with(#{policy => drop_oldest},
         fun(Slow, _) ->
                 #{count := Count, lost := Lost} = caught_up(Slow),
                 ?assertEqual(?MESSAGES, Count + Lost),
                 ?assert(Lost > ?MESSAGES div 2),
                 ?assert(Count * counted() >= ?LIMIT div 2),
                 ?assert(Count * ?BYTES =< 3 * ?LIMIT)
         end).

%% The first that fit; the gap is told when it has caught up.
drop_newest(_) ->
    with(#{policy => drop_newest},
         fun(Slow, Nth) ->
                 #{count := Count, lost := Lost} = one_more(Slow, Nth),
                 ?assertEqual(?MESSAGES + Nth, Count + Lost),
                 ?assert(Count * counted() >= ?LIMIT div 2),
                 ?assert(Count * ?BYTES =< 2 * ?LIMIT)
         end).

%% After what had come before it was slow only the last of the only publisher.
conflate(_) ->
    with(#{policy => {conflate, fun fan_node:key/1}},
         fun(Slow, _) ->
                 #{count := Before} = fan_node:report(Slow),
                 #{count := Count, lost := Lost} = caught_up(Slow),
                 ?assertEqual(Before + 1, Count),
                 ?assertEqual(?MESSAGES, Count + Lost)
         end).

%% It is told, and subscribes anew.
disconnect(_) ->
    with(#{policy => disconnect},
         fun(Slow, _) ->
                 #{errors := Errors, thrown_out := Times, count := Count} = fan_node:report(Slow),
                 ?assertEqual([], Errors),
                 ?assert(Times > 0),
                 ?assert(Count * ?BYTES =< (Times + 1) * 2 * ?LIMIT)
         end).

%% Publishers wait for the slow ones, and no longer; nobody loses anything.
block(_) ->
    {Quick, Slow} = subscribers(#{policy => block}),
    Publisher = fan_node:publisher(#{topic => ?TOPIC, bytes => ?BYTES, most => ?MESSAGES}),
    ending([Publisher | Quick ++ Slow],
           fun() ->
                   At = stands_still(hd(Quick)),
                   ?assert(At < ?MESSAGES),
                   ?assert(At * counted() >= ?LIMIT div 2),
                   [?assert(maps:get(count, fan_node:report(S)) =< At) || S <- Slow],
                   [ok = fan_node:hurry(S) || S <- Slow],
                   {Id, _} = fan_node:published(Publisher),
                   [begin
                        #{count := Count, lost := Lost, gaps := Gaps} = has(S, Id, ?MESSAGES),
                        ?assertEqual({?MESSAGES, 0, 0}, {Count, Lost, Gaps})
                    end || S <- Quick ++ Slow]
           end).

pull(_) -> pulled(pull).
frames(_) -> pulled(frames).

%% Who does not look has no messages, but places that are gone.
pulled(Mode) ->
    with(#{mode => Mode, policy => drop_oldest},
         fun(Slow, Nth) ->
                 ?assertMatch({message_queue_len, N} when N =< 1,
                              process_info(Slow, message_queue_len)),
                 #{count := Count, lost := Lost} = one_more(Slow, Nth),
                 ?assertEqual(?MESSAGES + Nth, Count + Lost),
                 ?assert(Lost > ?MESSAGES div 2),
                 ?assert(Count * ?BYTES =< 3 * ?LIMIT)
         end).

%% Publishes all, sees that the quick have all of it and memory is bounded, then looks at the slow.
with(Opts, Check) ->
    {Quick, Slow} = subscribers(Opts),
    ending(Quick ++ Slow,
           fun() ->
                   Before = fan_node:memory(),
                   ok = publish_all({node(), make_ref()}, Quick),
                   [begin
                        #{gaps := Gaps, errors := Errors} = fan_node:report(S),
                        ?assertEqual({0, []}, {Gaps, Errors})
                    end || S <- Quick],
                   real_os:until(fun() -> true = fan_node:memory() - Before < ?GROWTH end),
                   [begin
                        ?assertEqual([], maps:get(errors, fan_node:report(S))),
                        Check(S, Nth)
                    end || {Nth, S} <- lists:zip(lists:seq(1, ?SLOW), Slow)]
           end).

%% What a message counts: as a term, and 32 bytes. The slow get half a limit at least.
counted() ->
    erlang:external_size(message({node(), make_ref()}, 1)) + 32.

subscribers(Opts) ->
    Common = #{mode => maps:get(mode, Opts, push), limit => ?LIMIT},
    {[fan_node:subscriber(#{filter => ?TOPIC, opts => Common#{limit := ?QUICK_LIMIT}})
      || _ <- lists:seq(1, ?QUICK)],
     [fan_node:subscriber(#{filter => <<"slow/+">>, opts => maps:merge(Common, Opts),
                            lazy => ?NEVER}) || _ <- lists:seq(1, ?SLOW)]}.

%% As much at a time as the quick have room for: what they get does not depend on the machine.
%% One alone first, which makes the least of what the slow get: their parts are half a limit.
publish_all(Id, Quick) ->
    publish_all(1, 1, Id, Quick).

publish_all(From, _, _, _) when From > ?MESSAGES ->
    ok;
publish_all(From, To, Id, Quick) ->
    [ok = publish(Id, N) || N <- lists:seq(From, To)],
    [real_os:until(fun() -> #{count := To} = fan_node:report(S) end, ?MS) || S <- Quick],
    publish_all(To + 1, min(To + ?PART, ?MESSAGES), Id, Quick).

publish(Id, N) ->
    erlane_fanout:publish(?TOPIC, message(Id, N)).

message(Id, N) ->
    {m, Id, N, binary:copy(<<"x">>, ?BYTES)}.

%% One more message of another publisher, which comes last: when it has caught up with all, also
%% those that the ones before it were sent here; before that it would be one more in the gap.
one_more(Pid, Nth) ->
    ok = fan_node:hurry(Pid),
    real_os:until(fun() ->
                          #{count := Count, lost := Lost} = fan_node:report(Pid),
                          ?assertEqual(?MESSAGES + Nth - 1, Count + Lost)
                  end, ?MS),
    Id = {node(), make_ref()},
    ok = publish(Id, 1),
    has(Pid, Id, 1).

caught_up(Pid) ->
    ok = fan_node:hurry(Pid),
    real_os:until(fun() ->
                          #{count := Count, lost := Lost} = Report = fan_node:report(Pid),
                          true = Count + Lost >= ?MESSAGES,
                          [_] = [N || {N, strict, _} <- maps:values(maps:get(last, Report)),
                                      N =:= ?MESSAGES],
                          Report
                  end, ?MS).

has(Pid, Id, N) ->
    real_os:until(fun() ->
                          #{last := #{Id := {N, _, _}}, errors := []} = R = fan_node:report(Pid),
                          R
                  end, ?MS).

%% Half a second without another message.
stands_still(Pid) ->
    stands_still(Pid, maps:get(count, fan_node:report(Pid)), 10).

stands_still(_, Count, 0) ->
    Count;
stands_still(Pid, Count, Looks) ->
    receive after 50 -> ok end,
    case maps:get(count, fan_node:report(Pid)) of
        Count when Count > 0 -> stands_still(Pid, Count, Looks - 1);
        Now -> stands_still(Pid, Now, 10)
    end.

%% Whatever the case finds, these end with it, and then nothing of them is left.
ending(Pids, Case) ->
    try Case()
    after
        [exit(Pid, kill) || Pid <- Pids]
    end,
    real_os:until(fun() -> ?assertEqual(#{}, fan_node:left()) end).
