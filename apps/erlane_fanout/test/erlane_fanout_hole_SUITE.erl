%% SPDX-License-Identifier: Apache-2.0
%% What would make a hole without a gap, or keep a subscription from ever getting on: a filter's
%% last subscription leaves while another one comes, numbers from before a gap or a crash, idle
%% readers of a lane that crashed.
-module(erlane_fanout_hole_SUITE).

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([older/1, overtaken/1, relieved/1, crash_and_messages/1, late_done/1, done_after_crash/1,
         idle_at_crash/1]).

-include_lib("stdlib/include/assert.hrl").

-define(TOPIC, <<"hole/1">>).
-define(FILTER, <<"hole/+">>).
-define(ROUNDS, 2000).
-define(CRASHES, 50).
-define(MS, 10000).

all() ->
    [older, overtaken, relieved, crash_and_messages, late_done, done_after_crash, idle_at_crash].

%% All subscriptions in one lane.
init_per_testcase(_, Config) ->
    _ = application:load(erlane_fanout),
    ok = application:set_env(erlane_fanout, lanes, 1),
    {ok, _} = application:ensure_all_started(erlane_fanout),
    Config.

end_per_testcase(_, _) ->
    _ = application:stop(erlane_fanout),
    ok = application:unset_env(erlane_fanout, lanes),
    flush().

flush() -> receive _ -> flush() after 0 -> ok end.

next() -> receive M -> M after ?MS -> error(no_message) end.

until(Fun) -> until(Fun, erlang:monotonic_time(millisecond) + ?MS).

until(Fun, End) ->
    case Fun() of
        true -> ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < End),
            receive after 5 -> until(Fun, End) end
    end.

lane() -> element(1, element(2, persistent_term:get({erlane_fanout, lanes}))).

crash() ->
    Lane = lane(),
    exit(Lane, kill),
    until(fun() -> lane() =/= Lane end).

%% The lane has handled all.
settled() ->
    until(fun() -> [0] =:= [Bytes || #{inbox := Bytes} <- maps:values(erlane_fanout:info())] end).

%% What was looked up for a subscription that has left is not for the next one: what its publisher
%% publishes before the next one is there would be missing behind it.
older(_) ->
    Self = self(),
    {ok, Sub, _} = erlane_fanout:subscribe(?FILTER),
    Lane = lane(),
    true = erlang:suspend_process(Lane),
    Leaves = spawn_link(fun() -> ok = erlane_fanout:unsubscribe(Sub) end),
    until(fun() -> calls(Leaves) end),
    Comes = spawn_link(fun() ->
                           {ok, New, 0} = erlane_fanout:subscribe(?FILTER),
                           Self ! {self(), New},
                           receive {fan, New, Seq, Ms} -> Self ! {self(), Seq, Ms} end
                       end),
    until(fun() -> calls(Comes) end),
    ok = erlane_fanout:publish(?TOPIC, older),
    true = erlang:resume_process(Lane),
    receive {Comes, _} -> ok after ?MS -> error(no_subscription) end,
    settled(),
    ok = erlane_fanout:publish(?TOPIC, newer),
    ?assertEqual({Comes, 1, [newer]}, next()).

%% Has it sent its call to the lane?
calls(Pid) ->
    [{status, waiting}, {current_function, {erlane_fanout_lane, call, 2}}]
        =:= process_info(Pid, [status, current_function]).

%% The same of another node's message, which an intake looked up and handed on: signals of different
%% senders may overtake each other, so it may come behind the number that the new feed wants.
overtaken(_) ->
    {ok, Old, 0} = erlane_fanout:subscribe(?FILTER),
    Older = looked_up(older),
    ok = erlane_fanout:unsubscribe(Old),
    {ok, New, 0} = erlane_fanout:subscribe(?FILTER),
    _ = sys:get_state(erlane_fanout_remote),
    [ok = handed(Entry) || Entry <- [Older, looked_up(newer)]],
    ?assertEqual({fan, New, 1, [newer]}, next()).

looked_up(Message) ->
    [Entry] = erlane_fanout_publish:entries(1 bsl 58, ?TOPIC, Message, erlane_fanout_lanes:get()),
    Entry.

handed({1, Entry, Charge}) ->
    ok = erlane_fanout_inbox:charge(erlane_fanout_lanes:get(), 1, Charge),
    lane() ! Entry,
    ok.

%% Two take turns, one leaves when the other comes: what each gets of the only publisher has no
%% hole, whatever is under way.
relieved(_) ->
    Publisher = spawn_link(fun() -> publishing(1) end),
    Self = self(),
    Two = [spawn_link(fun() -> turns(Self) end) || _ <- [1, 2]],
    [A, B] = Two,
    [Pid ! {other, Other} || {Pid, Other} <- [{A, B}, {B, A}]],
    A ! come,
    [receive {Pid, done} -> ok after 6 * ?MS -> error(stuck) end || Pid <- Two],
    stop(Publisher).

publishing(N) ->
    ok = erlane_fanout:publish(?TOPIC, N),
    receive stop -> ok after 0 -> publishing(N + 1) end.

stop(Publisher) ->
    Ref = monitor(process, Publisher),
    Publisher ! stop,
    receive {'DOWN', Ref, process, _, _} -> ok end.

turns(To) ->
    receive
        {other, Other} ->
            [turn(Other) || _ <- lists:seq(1, ?ROUNDS)],
            To ! {self(), done}
    end.

turn(Other) ->
    receive come -> ok end,
    {ok, Sub, Seq} = erlane_fanout:subscribe(?FILTER, #{limit => infinity}),
    At = receive {fan, Sub, S, Ms} -> follows(S, Ms, {Seq, none}) end,
    Other ! come,
    ok = erlane_fanout:unsubscribe(Sub),
    rest(Sub, At).

rest(Sub, At) ->
    receive {fan, Sub, Seq, Ms} -> rest(Sub, follows(Seq, Ms, At))
    after 0 -> ok
    end.

%% Numbers of the subscription and of the publisher, both without a hole.
follows(Seq, [First | _] = Ms, {Before, N}) ->
    ?assertEqual(Before + length(Ms), Seq),
    _ = N =:= none orelse ?assertEqual(N + 1, First),
    ?assertEqual(lists:seq(First, First + length(Ms) - 1), Ms),
    {Seq, lists:last(Ms)}.

%% After the message of a crash the same holds.
crash_and_messages(_) ->
    Publisher = spawn_link(fun() -> publishing(1) end),
    {ok, Sub, _} = erlane_fanout:subscribe(?FILTER, #{limit => infinity}),
    [begin
         ok = crash(),
         ok = before(Sub),
         receive {fan, Sub, Seq, Ms} -> some(Sub, 50, follows(Seq, Ms, {Seq - length(Ms), none}))
         after ?MS -> error(no_message)
         end
     end || _ <- lists:seq(1, ?CRASHES)],
    stop(Publisher).

%% What came before the crash.
before(Sub) ->
    receive
        {fan, Sub, _, _} -> before(Sub);
        {gap, Sub, lane} -> ok
    after ?MS -> error(no_message)
    end.

some(_, 0, _) -> ok;
some(Sub, N, At) ->
    receive {fan, Sub, Seq, Ms} -> some(Sub, N - 1, follows(Seq, Ms, At))
    after ?MS -> error(no_message)
    end.

%% Who says again that it has done with what came before a gap is not slow for that.
late_done(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(?TOPIC, #{limit => 500, policy => drop_newest}),
    [ok = erlane_fanout:publish(?TOPIC, <<I:400>>) || I <- lists:seq(1, 100)],
    settled(),
    Last = last(Sub, 0),
    ?assert(Last < 100),
    ok = erlane_fanout:done(Sub, Last),
    ?assertEqual({gap, Sub, Last + 1, 100}, next()),
    ok = erlane_fanout:done(Sub, Last),
    [begin
         ok = erlane_fanout:publish(?TOPIC, I),
         ?assertEqual({fan, Sub, I, [I]}, next()),
         ok = erlane_fanout:done(Sub, I),
         ok = erlane_fanout:done(Sub, Last)
     end || I <- lists:seq(101, 120)].

last(Sub, Last) ->
    receive {fan, Sub, Seq, _} -> last(Sub, Seq) after 0 -> Last end.

%% The number of a message from before a crash, told after it, is behind all that follows.
done_after_crash(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(?TOPIC),
    ok = erlane_fanout:publish(?TOPIC, before),
    {fan, Sub, 1, [before]} = next(),
    ok = crash(),
    {gap, Sub, lane} = next(),
    ok = erlane_fanout:done(Sub, 1),
    ok = erlane_fanout:publish(?TOPIC, later),
    {fan, Sub, _, [later]} = next().

%% Who was idle when its lane crashed is woken by what comes after it.
idle_at_crash(_) ->
    [begin
         {ok, Sub, _} = erlane_fanout:subscribe(?TOPIC, #{mode => Mode}),
         empty = take(Mode, Sub),
         ok = crash(),
         {gap, Sub, lane} = next(),
         empty = take(Mode, Sub),
         ok = erlane_fanout:publish(?TOPIC, later),
         {fan, Sub, ready} = next(),
         ok = element(1, take(Mode, Sub)),
         empty = take(Mode, Sub),
         ok = erlane_fanout:unsubscribe(Sub)
     end || Mode <- [pull, frames]].

take(pull, Sub) -> erlane_fanout:take(Sub, 10);
take(frames, Sub) -> erlane_fanout:take_frames(Sub).
