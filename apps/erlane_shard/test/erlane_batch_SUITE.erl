%% SPDX-License-Identifier: Apache-2.0
%% Batches between real processes: why they leave, the bound, and who dies.
-module(erlane_batch_SUITE).

-export([all/0, suite/0]).
-export([count/1, bytes/1, age/1, age_of_several/1, clock_of_a_loop/1, idle/1, idle_once/1,
         by_hand/1, blocks/1, blocked_many/1, own_inbox/1, drops/1, done_elsewhere/1,
         consumer_dies/1, blocked_consumer_dies/1, keeper_dies/1, closed/1, producer_dies/1,
         killed_between/1, killed_between_dropping/1, late_not_killed/1, other_node/1,
         server/1, nothing_left/1, silent/1, options/1, model/1, many/1]).

-include_lib("stdlib/include/assert.hrl").
-include("../src/erlane_batch.hrl").

-import(erlane_batch_ct, [producer/0, consumer/1, on/2, start/2, answer/1, stop/1, until/1,
                          taken/1, take/2, keeper/1]).

suite() -> [{timetrap, {seconds, 60}}].

all() ->
    [count, bytes, age, age_of_several, clock_of_a_loop, idle, idle_once, by_hand, blocks,
     blocked_many, own_inbox, drops, done_elsewhere, consumer_dies, blocked_consumer_dies,
     keeper_dies, closed, producer_dies, killed_between, killed_between_dropping,
     late_not_killed, other_node, server, nothing_left, silent, options, model, many].

%% Nothing but what the case is about makes a batch leave.
quiet(Options) ->
    maps:merge(#{count => 1000, bytes => infinity, age => infinity, idle => false}, Options).

%% The third message fills a batch of three, and not the second.
count(_) ->
    Inbox = consumer(quiet(#{count => 3})),
    Producer = producer(),
    send(Producer, Inbox, [1, 2]),
    [] = taken(Inbox),
    send(Producer, Inbox, [3, 4]),
    [[1, 2, 3]] = taken(Inbox).

%% Binaries of together 100 bytes leave, 99 do not; other terms are counted too.
bytes(_) ->
    Inbox = consumer(quiet(#{bytes => 100})),
    Producer = producer(),
    send(Producer, Inbox, [binary:copy(<<1>>, 50), binary:copy(<<2>>, 49)]),
    [] = taken(Inbox),
    send(Producer, Inbox, [<<3>>]),
    [[_, _, <<3>>]] = taken(Inbox),
    Large = lists:seq(1, 100),
    send(Producer, Inbox, [Large]),
    [[Large]] = taken(Inbox).

%% A producer that does nothing sends what is old, not before.
age(_) ->
    Inbox = consumer(quiet(#{age => 50})),
    Producer = producer(),
    Before = erlang:monotonic_time(millisecond),
    send(Producer, Inbox, [1, 2]),
    [[1, 2]] = take(Inbox, all),
    ?assert(erlang:monotonic_time(millisecond) >= Before + 50),
    %% And again: the timer of the first batch was not the last.
    send(Producer, Inbox, [3]),
    [[3]] = take(Inbox, all).

%% A short age behind a long one is kept, and so is the long one.
age_of_several(_) ->
    Slow = consumer(quiet(#{age => 400})),
    Fast = consumer(quiet(#{age => 20})),
    Producer = producer(),
    Before = erlang:monotonic_time(millisecond),
    send(Producer, Slow, [slow]),
    send(Producer, Fast, [fast]),
    [[fast]] = take(Fast, all),
    send(Producer, Fast, [again]),
    [[again]] = take(Fast, all),
    [[slow]] = take(Slow, all),
    ?assert(erlang:monotonic_time(millisecond) >= Before + 400).

%% A loop that never looks at its mailbox sends what is old as well.
clock_of_a_loop(_) ->
    Inbox = consumer(quiet(#{age => 10, idle => true})),
    Producer = producer(),
    Loop = start(Producer, fun() -> endless(Inbox, 1) end),
    [[1 | _] | _] = take(Inbox, all),
    on_the_way = receive {Loop, _} -> ended after 0 -> on_the_way end,
    stop(Producer).

endless(Inbox, N) ->
    ok = erlane_batch:send(Inbox, N),
    receive never -> ok after 1 -> endless(Inbox, N + 1) end.

%% A batch leaves when what waited in the mailbox is dealt with: ten commands make one batch.
idle(_) ->
    Inbox = consumer(quiet(#{idle => true})),
    Producer = producer(),
    Hold = start(Producer, fun() -> receive go -> ok end end),
    Refs = [start(Producer, fun() -> erlane_batch:send(Inbox, N) end) || N <- lists:seq(1, 10)],
    Late = start(Producer, fun() -> receive later -> ok end end),
    Producer ! go,
    [ok = answer(Ref) || Ref <- [Hold | Refs]],
    %% The message to itself stands behind the command that waits, so nothing has left.
    [] = taken(Inbox),
    Producer ! later,
    ok = answer(Late),
    [[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]] = take(Inbox, all).

%% However many inboxes and messages: one message to itself at a time.
idle_once(_) ->
    Inboxes = [consumer(quiet(#{idle => true, count => 2})) || _ <- lists:seq(1, 5)],
    Producer = producer(),
    {message_queue_len, 1} =
        on(Producer, fun() ->
                             [erlane_batch:send(I, N) || N <- lists:seq(1, 9), I <- Inboxes],
                             ok = erlane_batch:flush(),
                             [erlane_batch:send(I, 10) || I <- Inboxes],
                             process_info(self(), message_queue_len)
                     end),
    [until(fun() -> #{accepted := N} = erlane_batch:info(I), N =:= 10 end) || I <- Inboxes].

%% flush/0 sends everything, flush/1 the messages of one inbox.
by_hand(_) ->
    [A, B] = [consumer(quiet(#{})) || _ <- [a, b]],
    Producer = producer(),
    send(Producer, A, [1]),
    send(Producer, B, [2]),
    ok = on(Producer, fun() -> erlane_batch:flush(A) end),
    {[[1]], []} = {taken(A), taken(B)},
    send(Producer, A, [3]),
    ok = on(Producer, fun erlane_batch:flush/0),
    ok = on(Producer, fun erlane_batch:flush/0),
    {[[3]], [[2]]} = {taken(A), taken(B)}.

%% At the bound the producer stands still, and goes on when there is room; nothing is lost.
blocks(_) ->
    Inbox = consumer(quiet(#{count => 2, bound => 4})),
    Producer = producer(),
    Work = start(Producer, fun() -> erlane_batch:send_list(Inbox, lists:seq(1, 10)) end),
    waits(Producer),
    #{waiting := 4, accepted := 4, batches := 2} = erlane_batch:info(Inbox),
    [[1, 2], [3, 4]] = taken(Inbox),
    %% Three are too many to go on with two, for half of the bound is two.
    ok = erlane_batch:done(Inbox, [1]),
    #{waiting := 3, accepted := 4} = erlane_batch:info(Inbox),
    ok = erlane_batch:done(Inbox, [2]),
    until(fun() -> #{accepted := N} = erlane_batch:info(Inbox), N =:= 6 end),
    ok = erlane_batch:done(Inbox, [3, 4]),
    until(fun() -> #{accepted := N} = erlane_batch:info(Inbox), N =:= 8 end),
    ok = erlane_batch:done(Inbox, [5, 6, 7, 8]),
    ok = answer(Work),
    [[5, 6], [7, 8], [9, 10]] = taken(Inbox),
    #{waiting := 2, dropped := 0} = erlane_batch:info(Inbox).

%% A hundred producers wait for one consumer, some of them die waiting: all others get through.
blocked_many(_) ->
    Inbox = consumer(quiet(#{count => 1, bound => 2})),
    Producers = [producer() || _ <- lists:seq(1, 100)],
    Works = [{P, start(P, fun() -> erlane_batch:send_list(Inbox, [{P, 1}, {P, 2}]) end)}
             || P <- Producers],
    until(fun() -> maps:get(waiting, erlane_batch:info(Inbox)) =:= 2 end),
    {Die, Live} = lists:split(50, Works),
    [stop(P) || {P, _} <- Die],
    Eating = erlane_batch_ct:eat(Inbox),
    [ok = answer(Ref) || {_, Ref} <- Live],
    Got = erlane_batch_ct:eaten(Eating),
    [?assertEqual([1, 2], erlane_batch_ct:numbers({P, Got})) || {P, _} <- Live].

%% A consumer that sends to itself goes above its bound and does not stand still.
own_inbox(_) ->
    Inbox = consumer(quiet(#{count => 1, bound => 2})),
    ok = on(erlane_batch:pid(Inbox), fun() -> erlane_batch:send_list(Inbox, [1, 2, 3]) end),
    [[1], [2], [3]] = taken(Inbox),
    #{waiting := 3, dropped := 0} = erlane_batch:info(Inbox).

%% What there is room for is taken, the newest messages are dropped, each of them counted.
drops(_) ->
    Inbox = consumer(quiet(#{count => 3, bound => 7, policy => drop_newest})),
    Producer = producer(),
    send(Producer, Inbox, lists:seq(1, 12)),
    [[1, 2, 3], [4, 5, 6], [7]] = taken(Inbox),
    #{waiting := 7, accepted := 7, dropped := 5, batches := 3} = erlane_batch:info(Inbox),
    ok = erlane_batch:done(Inbox, [1, 2]),
    send(Producer, Inbox, [13, 14, 15]),
    [[13, 14]] = taken(Inbox),
    #{waiting := 7, dropped := 6} = erlane_batch:info(Inbox).

%% Any process may say that messages are done; saying it too often frees no more than there is.
done_elsewhere(_) ->
    Inbox = consumer(quiet(#{count => 1, bound => 2})),
    send(producer(), Inbox, [1, 2]),
    ok = on(producer(), fun() -> erlane_batch:done(Inbox, [1, 2, 3, 4]) end),
    #{waiting := 0} = erlane_batch:info(Inbox).

%% Messages to a dead consumer are dropped and counted; the producer does not notice.
consumer_dies(_) ->
    Inbox = consumer(quiet(#{count => 2, bound => 4})),
    Producer = producer(),
    send(Producer, Inbox, [1, 2, 3, 4, 5]),
    stop(erlane_batch:pid(Inbox)),
    gone(keeper(Inbox)),
    send(Producer, Inbox, lists:seq(6, 8)),
    #{open := false, waiting := 0, accepted := 4, lost := 4, refused := 4, dropped := 0} =
        erlane_batch:info(Inbox).

%% A producer that waits is let go.
blocked_consumer_dies(_) ->
    Inbox = consumer(quiet(#{count => 1, bound => 2})),
    Producer = producer(),
    Work = start(Producer, fun() -> erlane_batch:send_list(Inbox, lists:seq(1, 9)) end),
    waits(Producer),
    stop(erlane_batch:pid(Inbox)),
    ok = answer(Work),
    #{open := false, accepted := 2, lost := 2, refused := 7} = erlane_batch:info(Inbox).

%% An inbox without keeper has no consumer, and keeps nobody waiting.
keeper_dies(_) ->
    Inbox = consumer(quiet(#{count => 1, bound => 2})),
    true = unlink(erlane_batch:pid(Inbox)),
    Producer = producer(),
    Work = start(Producer, fun() -> erlane_batch:send_list(Inbox, lists:seq(1, 9)) end),
    waits(Producer),
    true = exit(keeper(Inbox), kill),
    gone(erlane_batch:pid(Inbox)),
    ok = answer(Work),
    #{open := false} = erlane_batch:info(Inbox).

%% The consumer lives on, and may have a new inbox.
closed(_) ->
    Inbox = consumer(quiet(#{count => 1})),
    Consumer = erlane_batch:pid(Inbox),
    ok = erlane_batch:close(Inbox),
    gone(keeper(Inbox)),
    ok = erlane_batch:close(Inbox),
    Producer = producer(),
    send(Producer, Inbox, [1]),
    #{open := false, refused := 1, accepted := 0} = erlane_batch:info(Inbox),
    {ok, Second} = on(Consumer, fun() -> erlane_batch:inbox(quiet(#{count => 1})) end),
    send(Producer, Second, [2]),
    [[2]] = taken(Second).

%% What a dead producer had not flushed is gone; what it had is not, nor is that of others.
producer_dies(_) ->
    Inbox = consumer(quiet(#{count => 2})),
    [Dies, Lives] = [producer(), producer()],
    send(Dies, Inbox, [1, 2, 3]),
    stop(Dies),
    send(Lives, Inbox, [4, 5]),
    [[1, 2], [4, 5]] = taken(Inbox),
    #{waiting := 4} = erlane_batch:info(Inbox).

%% A producer that was killed between charge and send: what it charged is given back in time.
killed_between(_) ->
    #erlane_inbox{words = Words} = Inbox = consumer(quiet(#{count => 2, bound => 4})),
    2 = erlane_batch_credit:charge(Words, 2, 4, all),
    2 = erlane_batch_credit:charge(Words, 2, 4, all),
    Producer = producer(),
    ok = on(Producer, fun() -> erlane_batch:send_list(Inbox, [1, 2, 3, 4]) end),
    [[1, 2], [3, 4]] = taken(Inbox),
    #{waiting := 4} = erlane_batch:info(Inbox),
    {0, 4} = erlane_batch_credit:under_way(Words).

%% The same for producers that do not wait.
killed_between_dropping(_) ->
    Options = quiet(#{count => 1, bound => 2, policy => drop_newest}),
    #erlane_inbox{words = Words} = Inbox = consumer(Options),
    2 = erlane_batch_credit:charge(Words, 2, 2, all),
    Producer = producer(),
    send(Producer, Inbox, [1]),
    #{dropped := 1} = erlane_batch:info(Inbox),
    until(fun() -> erlane_batch_credit:used(Words) =:= 0 end),
    send(Producer, Inbox, [2, 3]),
    [[2], [3]] = taken(Inbox).

%% A producer that was only slow: its messages are counted once, and the words end at nothing.
late_not_killed(_) ->
    #erlane_inbox{words = Words} = Inbox = consumer(quiet(#{count => 2, bound => 4})),
    4 = erlane_batch_credit:charge(Words, 4, 4, all),
    ok = on(producer(), fun() -> erlane_batch:send_list(Inbox, [1, 2]) end),
    ok = erlane_batch_credit:sent(Words, 4),
    ok = erlane_batch:done(Inbox, [1, 2]),
    ok = erlane_batch:done(Inbox, [a, b, c, d]),
    #{waiting := 0, accepted := 6} = erlane_batch:info(Inbox),
    ok = on(producer(), fun() -> erlane_batch:send_list(Inbox, [3, 4, 5, 6]) end),
    #{waiting := 4} = erlane_batch:info(Inbox).

%% The words are in the memory of one node.
other_node(_) ->
    %% A process of a node that is called a@b, in the external format of terms.
    Pid = binary_to_term(<<131, 88, 119, 3, "a@b", 0:32, 0:32, 1:32>>),
    Inbox = (consumer(#{}))#erlane_inbox{pid = Pid},
    ?assertError(badarg, erlane_batch:send(Inbox, 1)).

%% A gen_server needs one line to produce; to consume, one clause.
server(_) ->
    {ok, Consumer} = gen_server:start_link(erlane_batch_server, consumer, []),
    Inbox = gen_server:call(Consumer, inbox),
    {ok, Producer} = gen_server:start_link(erlane_batch_server, Inbox, []),
    [ok = gen_server:cast(Producer, {send, N}) || N <- lists:seq(1, 1000)],
    until(fun() -> gen_server:call(Consumer, sum) =:= 500500 end),
    #{waiting := 0, batches := Batches} = erlane_batch:info(Inbox),
    ?assert(Batches < 1000),
    [ok = gen_server:stop(S) || S <- [Producer, Consumer]].

%% A producer that has flushed has nothing in its dictionary but an empty list; a thousand
%% inboxes of dead consumers leave no process.
nothing_left(_) ->
    Producer = producer(),
    Inboxes = [consumer(#{}) || _ <- lists:seq(1, 1000)],
    [send(Producer, I, [1]) || I <- Inboxes],
    [stop(erlane_batch:pid(I)) || I <- Inboxes],
    [gone(keeper(I)) || I <- Inboxes],
    ok = on(Producer, fun erlane_batch:flush/0),
    [{'$erlane_batch', State}] = on(Producer, fun erlang:get/0),
    ?assert(erts_debug:flat_size(State) < 20),
    false = on(Producer, fun() -> erlane_batch_ct:batches(make_ref()) =/= [] end).

%% With nothing buffered neither producer nor keeper does anything.
silent(_) ->
    Inbox = consumer(#{}),
    Producer = producer(),
    send(Producer, Inbox, lists:seq(1, 100)),
    until(fun() -> maps:get(accepted, erlane_batch:info(Inbox)) =:= 100 end),
    Keeper = keeper(Inbox),
    %% The keeper sleeps for good a second after it was started.
    until(fun() ->
                  case process_info(Keeper, current_function) of
                      {current_function, {erlang, hibernate, 3}} -> true;
                      {current_function, {gen_server, loop_hibernate, _}} -> true;
                      _ -> false
                  end
          end),
    Work = fun() -> [process_info(P, reductions) || P <- [Producer, Keeper]] end,
    Before = Work(),
    receive after 300 -> ok end,
    ?assertEqual(Before, Work()).

%% Both sides of each limit, what is no option, and what cannot go together.
options(_) ->
    {ok, Defaults} = erlane_batch_opts:check(#{}),
    ?assertEqual(erlane_batch_opts:defaults(), Defaults),
    [begin
         ?assertMatch({ok, #{Key := Min}}, erlane_batch_opts:check(Other#{Key => Min})),
         ?assertMatch({ok, #{Key := Max}}, erlane_batch_opts:check(Other#{Key => Max})),
         [?assertEqual({error, {Key, {badarg, Bad}}}, erlane_batch:inbox(Other#{Key => Bad}))
          || Bad <- [Min - 1, Max + 1, 1.0, many]]
     end || {Key, Min, Max, Other} <- [{count, 1, 100000, #{bound => 200000}},
                                       {bytes, 1, 1 bsl 30, #{}}, {age, 1, 3600000, #{}},
                                       {bound, 2, 1 bsl 30, #{count => 1}}]],
    [{ok, #{Key := infinity}} = erlane_batch_opts:check(#{Key => infinity})
     || Key <- [bytes, age]],
    {error, {idle, {badarg, 1}}} = erlane_batch:inbox(#{idle => 1}),
    {error, {policy, {badarg, drop}}} = erlane_batch:inbox(#{policy => drop}),
    {error, {size, unknown_option}} = erlane_batch:inbox(#{size => 1}),
    {error, {bound, {badarg, 9}}} = erlane_batch:inbox(#{count => 5, bound => 9}),
    {ok, _} = erlane_batch_opts:check(#{count => 5, bound => 10}).

model(_) -> property(prop_erlane_batch:prop_model(), 150).

many(_) -> property(prop_erlane_batch:prop_many(), 60).

property(Property, N) ->
    ?assertEqual(true, proper:quickcheck(Property, [{numtests, N}, {to_file, user},
                                                    long_result])).

send(Producer, Inbox, Messages) ->
    ok = on(Producer, fun() -> erlane_batch:send_list(Inbox, Messages) end).

%% Until it waits for the keeper.
waits(Producer) ->
    until(fun() ->
                  {current_function, {M, F, _}} = process_info(Producer, current_function),
                  {M, F} =:= {erlane_batch_keeper, wait}
          end).

gone(Pid) -> until(fun() -> not is_process_alive(Pid) end).
