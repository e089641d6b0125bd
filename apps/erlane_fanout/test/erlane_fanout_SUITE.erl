%% SPDX-License-Identifier: Apache-2.0
%% The fan-out on one node: kinds of subscriptions, policies, lanes that crash, what is left.
-module(erlane_fanout_SUITE).

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([options/1, push/1, wildcards/1, topic_lists/1, order/1, pull/1, frames/1, one_ready/1,
         unsubscribed/1, stale_done/1, deaths/1, many_deaths/1, drop_oldest/1, drop_newest/1,
         conflate/1, disconnect/1, blocks/1, pull_blocks/1, full_inbox/1, full_intake/1,
         full_crash/1, killed_publisher/1, killed_lane/1, fair/1, batches/1, retained/1,
         figures/1, idle/1, configuration/1, not_started/1]).

-include_lib("stdlib/include/assert.hrl").

all() ->
    [options, push, wildcards, topic_lists, order, pull, frames, one_ready, unsubscribed,
     stale_done, deaths, many_deaths, drop_oldest, drop_newest, conflate, disconnect, blocks,
     pull_blocks, full_inbox, full_intake, full_crash, killed_publisher, killed_lane, fair,
     batches, retained, figures, idle, configuration, not_started].

init_per_testcase(_, Config) ->
    {ok, _} = application:ensure_all_started(erlane_fanout),
    Config.

end_per_testcase(_, _) ->
    _ = application:stop(erlane_fanout),
    [application:unset_env(erlane_fanout, Key) || Key <- [inbox, lanes, retained, nonsense]],
    flush().

flush() -> receive _ -> flush() after 0 -> ok end.

%% The next message, within a deadline.
next() -> receive M -> M after 10000 -> error(no_message) end.

until(Fun) -> until(Fun, erlang:monotonic_time(millisecond) + 10000).

until(Fun, End) ->
    case Fun() of
        true -> ok;
        false ->
            ?assert(erlang:monotonic_time(millisecond) < End),
            receive after 5 -> until(Fun, End) end
    end.

lanes() -> tuple_to_list(element(2, persistent_term:get({erlane_fanout, lanes}))).

sum(Key) -> lists:sum([maps:get(Key, Lane) || Lane <- maps:values(erlane_fanout:info())]).

%% A process that subscribes and hands on what it gets.
subscriber(Filter, Opts) ->
    Self = self(),
    Pid = spawn(fun() ->
                    {ok, Sub, _} = erlane_fanout:subscribe(Filter, Opts),
                    Self ! {self(), Sub},
                    relay(Self)
                end),
    receive {Pid, Sub} -> {Pid, Sub} after 10000 -> error(no_subscription) end.

relay(To) -> receive M -> To ! {self(), M}, relay(To) end.

%% Each wrong option is named; nothing is left of the attempt.
options(_) ->
    Wrong = [{{filter, {badarg, <<"a/#/b">>}}, <<"a/#/b">>, #{}},
             {{filter, {badarg, <<"a+">>}}, <<"a+">>, #{}},
             {{filter, {badarg, [a]}}, [a], #{}},
             {{mode, {badarg, pushed}}, a, #{mode => pushed}},
             {{limit, {badarg, 0}}, a, #{limit => 0}},
             {{limit, {badarg, infinity}}, a, #{mode => pull, limit => infinity}},
             {{policy, {badarg, drop}}, a, #{policy => drop}},
             {{policy, {badarg, drop_newest}}, a, #{mode => pull, policy => drop_newest}},
             {{retained, {badarg, 1}}, a, #{retained => 1}},
             {{gap_frame, unknown_option}, a, #{gap_frame => <<>>}},
             {{limits, unknown_option}, a, #{limits => 1}},
             {{options, {badarg, []}}, a, []}],
    [?assertEqual({error, Why}, erlane_fanout:subscribe(F, Opts)) || {Why, F, Opts} <- Wrong],
    [?assertError(badarg, erlane_fanout:publish(T, m)) || T <- [<<"a/+">>, <<"#">>, [[a]]]],
    ?assertError(badarg, erlane_fanout:publish(a, m, #{retained => true})),
    ?assertEqual([], ets:tab2list(erlane_fanout_subs)).

%% Numbers begin after the one that subscribe answers, and have no hole.
push(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"a">>),
    ok = erlane_fanout:publish(<<"a">>, one),
    {fan, Sub, 1, [one]} = next(),
    ok = erlane_fanout:done(Sub, 1),
    {ok, Sub2, 1} = erlane_fanout:subscribe(<<"a">>),
    ok = erlane_fanout:publish_local(<<"a">>, two),
    [{fan, Sub, 2, [two]}, {fan, Sub2, 2, [two]}] = lists:sort([next(), next()]),
    ok = erlane_fanout:publish(<<"b">>, nobody),
    ok = erlane_fanout:publish({some, term}, nobody),
    2 = erlane_fanout:count(<<"a">>),
    #{} = Here = erlane_fanout:presence(<<"a">>),
    ?assertEqual(#{node() => 2}, Here).

%% Each filter that matches has its own numbers.
wildcards(_) ->
    Filters = [<<"a/b">>, <<"a/+">>, <<"+/+">>, <<"a/#">>, <<"#">>, <<"+/c">>, <<"a/b/#">>],
    Subs = maps:from_list([{element(2, {ok, _, _} = erlane_fanout:subscribe(F)), F}
                           || F <- Filters]),
    ok = erlane_fanout:publish(<<"a/b">>, m),
    Got = [begin {fan, Sub, 1, [m]} = next(), maps:get(Sub, Subs) end || _ <- lists:seq(1, 6)],
    ?assertEqual(lists:sort(Filters -- [<<"+/c">>]), lists:sort(Got)),
    ok = erlane_fanout:publish(<<"$x/c">>, hidden),
    ok = erlane_fanout:publish(a, no_levels),
    [ok = erlane_fanout:unsubscribe(Sub) || Sub <- maps:keys(Subs)],
    ?assertEqual([], ets:tab2list(erlane_fanout_trie)),
    nothing = receive M -> M after 0 -> nothing end.

%% Once for each subscription, however many topics it matches.
topic_lists(_) ->
    {ok, Wild, _} = erlane_fanout:subscribe(<<"t/+">>),
    {ok, One, _} = erlane_fanout:subscribe(<<"t/1">>),
    ok = erlane_fanout:publish([<<"t/1">>, <<"t/2">>, <<"t/1">>], m),
    ?assertEqual(lists:sort([{fan, Wild, 1, [m]}, {fan, One, 1, [m]}]),
                 lists:sort([next(), next()])),
    ok = erlane_fanout:publish([], m),
    nothing = receive M -> M after 0 -> nothing end.

%% Of many publishers each has its order at each of many subscribers.
order(_) ->
    Each = 300,
    Readers = [subscriber(<<"o">>, #{limit => infinity}) || _ <- lists:seq(1, 50)],
    Pubs = [spawn_monitor(fun() ->
                              [ok = erlane_fanout:publish(<<"o">>, {P, I})
                               || I <- lists:seq(1, Each)]
                          end) || P <- lists:seq(1, 10)],
    [receive {'DOWN', Ref, process, _, normal} -> ok end || {_, Ref} <- Pubs],
    [begin
         Got = collect(Pid, Sub, 0, 10 * Each, []),
         [?assertEqual(lists:seq(1, Each), [I || {Q, I} <- Got, Q =:= P])
          || P <- lists:seq(1, 10)]
     end || {Pid, Sub} <- Readers].

collect(_, _, Last, Last, Got) -> lists:append(lists:reverse(Got));
collect(Pid, Sub, At, Last, Got) ->
    receive
        {Pid, {fan, Sub, Seq, Ms}} ->
            ?assertEqual(At + length(Ms), Seq),
            collect(Pid, Sub, Seq, Last, [Ms | Got])
    after 10000 -> error({missing, At})
    end.

%% Any size of bite gives the whole stream.
pull(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"p">>, #{mode => pull}),
    empty = erlane_fanout:take(Sub, 5),
    [ok = erlane_fanout:publish(<<"p">>, I) || I <- lists:seq(1, 1000)],
    ?assertEqual(lists:seq(1, 1000), all(Sub, 0, 1000, [7, 300, 1], [])),
    ok = erlane_fanout:unsubscribe(Sub),
    {error, not_subscribed} = erlane_fanout:take(Sub, 1),
    ?assertEqual([], ets:tab2list(erlane_fanout_ring)).

all(_, Last, Last, _, Got) -> lists:append(lists:reverse(Got));
all(Sub, At, Last, [Max | Sizes], Got) ->
    case erlane_fanout:take(Sub, Max) of
        {ok, Seq, Ms} ->
            ?assert(length(Ms) =< Max),
            ?assertEqual(At + length(Ms), Seq),
            all(Sub, Seq, Last, Sizes ++ [Max], [Ms | Got]);
        empty ->
            {fan, Sub, ready} = next(),
            all(Sub, At, Last, Sizes ++ [Max], Got)
    end.

%% One binary for all; a binary message is a frame as it is, another term in the external format.
frames(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"f">>, #{mode => frames}),
    {ok, Terms, 0} = erlane_fanout:subscribe(<<"f">>, #{mode => pull}),
    ok = erlane_fanout:publish(<<"f">>, <<"abc">>),
    until(fun() -> sum(messages) =:= 1 andalso sum(inbox) =:= 0 end),
    {ok, 1, 1, <<3:32, "abc">>} = erlane_fanout:take_frames(Sub),
    {ok, 1, [<<"abc">>]} = erlane_fanout:take(Terms, 1),
    empty = erlane_fanout:take_frames(Sub),
    ok = erlane_fanout:publish(<<"f">>, {a, 1}),
    {fan, Sub, ready} = next(),
    {ok, 2, 1, <<Len:32, Term:Len/binary>>} = erlane_fanout:take_frames(Sub),
    ?assertEqual({a, 1}, binary_to_term(Term)).

%% Who is idle is told once, whatever comes; who is not idle is not told.
one_ready(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"r">>, #{mode => pull}),
    empty = erlane_fanout:take(Sub, 5),
    empty = erlane_fanout:take(Sub, 5),
    [ok = erlane_fanout:publish(<<"r">>, I) || I <- lists:seq(1, 100)],
    until(fun() -> sum(messages) =:= 100 andalso sum(inbox) =:= 0 end),
    {fan, Sub, ready} = next(),
    nothing = receive M -> M after 0 -> nothing end.

%% After the answer no delivery starts.
unsubscribed(_) ->
    {ok, Sub, _} = erlane_fanout:subscribe(<<"u">>),
    ok = erlane_fanout:publish(<<"u">>, 1),
    ok = erlane_fanout:unsubscribe(Sub),
    flush(),
    ok = erlane_fanout:publish(<<"u">>, 2),
    {ok, Again, _} = erlane_fanout:subscribe(<<"u">>),
    ok = erlane_fanout:publish(<<"u">>, 3),
    {fan, Again, 1, [3]} = next(),
    ok = erlane_fanout:unsubscribe(Sub),
    ok = erlane_fanout:unsubscribe(nonsense).

%% The name of one that was does nothing to the next one in its slot, which is used again as late
%% as can be; nor does no name at all.
stale_done(_) ->
    {ok, Old, _} = erlane_fanout:subscribe(<<"s">>),
    ok = erlane_fanout:unsubscribe(Old),
    {New, Before} = next_in_slot(Old, 0),
    ?assert(Before > 1000),
    ?assertNotEqual(Old, New),
    ok = erlane_fanout:done(Old, 1 bsl 40),
    [ok = erlane_fanout:done(Bad, 7) || Bad <- [0, -1, 1 bsl 58, 1 bsl 80, x]],
    [ok = erlane_fanout:publish(<<"s">>, <<I:400>>) || I <- lists:seq(1, 10)],
    {fan, New, 1, [<<1:400>>]} = next(),
    until(fun() -> sum(slow) =:= 1 end).

%% Subscribes until the same slot is used again, and says how often another one was.
next_in_slot(Old, N) ->
    case erlane_fanout:subscribe(<<"s">>, #{limit => 100}) of
        {ok, New, _} when New bsr 20 =:= Old bsr 20 -> {New, N};
        {ok, Other, _} ->
            ok = erlane_fanout:unsubscribe(Other),
            next_in_slot(Old, N + 1)
    end.

%% Dead processes leave nothing, whatever their kind.
deaths(_) ->
    Pids = [element(1, subscriber(F, #{mode => Mode}))
            || F <- [<<"d/1">>, <<"d/+">>], Mode <- [push, pull, frames], _ <- [1, 2, 3]],
    18 = length(ets:tab2list(erlane_fanout_subs)),
    [ok = erlane_fanout:publish(<<"d/1">>, I) || I <- lists:seq(1, 50)],
    [exit(Pid, kill) || Pid <- Pids],
    until(fun empty/0),
    ?assertEqual({0, 0}, {sum(subscriptions), sum(feeds)}).

empty() ->
    [] =:= lists:append([ets:tab2list(T) || T <- [erlane_fanout_routes, erlane_fanout_trie,
                                                  erlane_fanout_subs, erlane_fanout_counts,
                                                  erlane_fanout_ring]]).

%% Ten times as many that end at once take about ten times as long: nothing is looked for in a long
%% mailbox. It was 60 times; the best of some tries, because others use the machine as well.
many_deaths(_) ->
    Few = lists:min([gone_us(5000) || _ <- lists:seq(1, 3)]),
    ?assert(lists:any(fun(_) -> gone_us(50000) < 30 * Few end, lists:seq(1, 3))).

gone_us(N) ->
    Self = self(),
    Pids = [spawn(fun() ->
                      {ok, _, _} = erlane_fanout:subscribe(<<"many">>),
                      Self ! subscribed,
                      receive stop -> ok end
                  end) || _ <- lists:seq(1, N)],
    [receive subscribed -> ok after 60000 -> error(not_subscribed) end || _ <- Pids],
    N = sum(subscriptions),
    Begin = erlang:monotonic_time(microsecond),
    [exit(Pid, kill) || Pid <- Pids],
    until(fun() -> sum(subscriptions) =:= 0 end, erlang:monotonic_time(millisecond) + 60000),
    erlang:monotonic_time(microsecond) - Begin.

%% 100 messages of 82 bytes, a limit of 500: the first parts, then nothing until all is done with,
%% then a gap and the last that fit.
drop_oldest(_) ->
    {Sub, Last} = over(#{limit => 500}),
    ok = erlane_fanout:done(Sub, Last),
    {gap, Sub, From, 94} = next(),
    ?assertEqual(Last + 1, From),
    {fan, Sub, 100, Ms} = next(),
    ?assertEqual([<<I:400>> || I <- lists:seq(95, 100)], Ms),
    ok = erlane_fanout:done(Sub, 100),
    ok = erlane_fanout:publish(<<"over">>, last),
    {fan, Sub, 101, [last]} = next().

%% Nothing of what came over the limit.
drop_newest(_) ->
    {Sub, Last} = over(#{limit => 500, policy => drop_newest}),
    ok = erlane_fanout:done(Sub, Last),
    {gap, Sub, From, 100} = next(),
    ?assertEqual(Last + 1, From),
    ok = erlane_fanout:publish(<<"over">>, last),
    {fan, Sub, 101, [last]} = next().

%% The last of each key; what was replaced is the gap, a key that cannot be made is its own.
conflate(_) ->
    Key = fun(<<0:400>>) -> error(no_key); (<<I:400>>) -> I rem 3 end,
    {Sub, Last} = over(#{limit => 500, policy => {conflate, Key}}),
    ok = erlane_fanout:publish(<<"over">>, <<0:400>>),
    ok = erlane_fanout:publish(<<"over">>, <<0:400>>),
    until(fun() -> sum(inbox) =:= 0 end),
    ok = erlane_fanout:done(Sub, Last),
    {gap, Sub, From, 97} = next(),
    ?assertEqual(Last + 1, From),
    {fan, Sub, 102, Ms} = next(),
    ?assertEqual([<<98:400>>, <<99:400>>, <<100:400>>, <<0:400>>, <<0:400>>], Ms),
    ?assertEqual(97 - Last, sum(replaced)).

%% Over its limit: the subscription, and how far it came.
over(Opts) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"over">>, Opts),
    [ok = erlane_fanout:publish(<<"over">>, <<I:400>>) || I <- lists:seq(1, 100)],
    until(fun() -> sum(messages) =:= 100 andalso sum(inbox) =:= 0 end),
    ?assertEqual(1, sum(slow)),
    Last = got(Sub, 0, 0),
    ?assert(Last > 0 andalso Last =< 6),
    {Sub, Last}.

got(Sub, Last, Bytes) ->
    receive
        {fan, Sub, Seq, Ms} ->
            Bytes1 = Bytes + 82 * length(Ms),
            ?assert(Bytes1 =< 500),
            ?assertEqual(Last + length(Ms), Seq),
            got(Sub, Seq, Bytes1)
    after 0 -> Last
    end.

%% Over the limit it is over.
disconnect(_) ->
    [begin
         {ok, Sub, _} = erlane_fanout:subscribe(<<"x">>, #{mode => Mode, limit => 200,
                                                           policy => disconnect}),
         [ok = erlane_fanout:publish(<<"x">>, I) || I <- lists:seq(1, 100)],
         until(fun() -> receive {fan, Sub, slow_consumer} -> true after 0 -> false end end),
         until(fun empty/0),
         ok = erlane_fanout:unsubscribe(Sub)
     end || Mode <- [push, pull]],
    ?assertEqual(2, sum(disconnected)).

%% A publisher waits until the subscriber has done with what it has; nothing is lost.
blocks(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"b">>, #{limit => 500, policy => block}),
    Pub = endless(<<"b">>),
    until(fun() -> waits(Pub) andalso sum(slow) > 0 end),
    Pub ! stop,
    drain_all(Pub, fun(At, End) -> drain(Sub, At, End, []) end),
    ?assert(sum(blocked_us) > 0),
    ?assertEqual(0, sum(lost)).

%% Publishes 1, 2, 3 until it is stopped, then tells how far it came.
endless(Topic) ->
    Self = self(),
    spawn_link(fun() -> endless(Topic, 1, Self) end).

endless(Topic, I, To) ->
    ok = erlane_fanout:publish(Topic, I),
    receive stop -> To ! {self(), published, I}
    after 0 -> endless(Topic, I + 1, To)
    end.

waits(Pid) -> {status, waiting} =:= process_info(Pid, status) andalso sum(inbox) =:= 0.

%% One by one until the publisher gets on; then the rest, which is the whole. What it published
%% last may have come before it says so.
drain_all(Pub, Drain) -> drain_all(Pub, Drain, 0).

drain_all(Pub, Drain, At) ->
    receive
        {Pub, published, N} -> ?assertEqual(lists:seq(At + 1, N), Drain(At, N))
    after 0 ->
        Got = Drain(At, {next, Pub}),
        ?assertEqual(lists:seq(At + 1, At + length(Got)), Got),
        drain_all(Pub, Drain, At + length(Got))
    end.

publisher(Topic, N) ->
    spawn_link(fun() -> [ok = erlane_fanout:publish(Topic, I) || I <- lists:seq(1, N)] end).

drain(_, Last, Last, Got) -> lists:append(lists:reverse(Got));
drain(Sub, At, Last, Got) ->
    receive
        {fan, Sub, Seq, Ms} ->
            ?assertEqual(At + length(Ms), Seq),
            ok = erlane_fanout:done(Sub, Seq),
            case Last of
                {next, _} -> Ms;
                _ -> drain(Sub, Seq, Last, [Ms | Got])
            end;
        {Pub, published, _} = Message when Last =:= {next, Pub} ->
            self() ! Message,
            []
    after 10000 -> error({no_message, At})
    end.

%% The same with who pulls; and the death of the one that blocks lets the publisher go.
pull_blocks(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"b">>, #{mode => pull, limit => 500,
                                                      policy => block}),
    Pub = endless(<<"b">>),
    until(fun() -> waits(Pub) end),
    Pub ! stop,
    drain_all(Pub, fun(At, {next, _}) -> some(Sub, At, Pub);
                      (At, N) -> all(Sub, At, N, [100], [])
                   end),
    {Pid, _} = subscriber(<<"c">>, #{limit => 100, policy => block}),
    Pub2 = endless(<<"c">>),
    until(fun() -> waits(Pub2) andalso sum(slow) > 0 end),
    Pub2 ! stop,
    exit(Pid, kill),
    receive {Pub2, published, _} -> ok after 10000 -> error(waits_still) end.

%% A lane that does not run fills up to its bound, then publishers wait; then all goes on.
full_inbox(_) ->
    ok = application:stop(erlane_fanout),
    ok = application:set_env(erlane_fanout, inbox, 65536),
    ok = application:set_env(erlane_fanout, lanes, 1),
    ok = application:start(erlane_fanout),
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"i">>, #{limit => infinity}),
    [Lane] = lanes(),
    true = erlang:suspend_process(Lane),
    Pub = publisher(<<"i">>, 5000),
    until(fun() -> {status, waiting} =:= process_info(Pub, status) end),
    ?assert(sum(inbox) =< 65536 andalso sum(inbox) > 60000),
    true = erlang:resume_process(Lane),
    ?assertEqual(lists:seq(1, 5000), drain(Sub, 0, 5000, [])).


%% What another node sends to a lane that is full is told as a gap, in its place: a message that
%% still fits after one that does not comes behind the notice of that. Two filters count twice.
full_intake(_) ->
    Lane = small_inbox(),
    {ok, Push, 0} = erlane_fanout:subscribe(<<"r">>, #{limit => infinity}),
    {ok, Wild, 0} = erlane_fanout:subscribe(<<"+">>, #{limit => infinity}),
    {ok, Pull, 0} = erlane_fanout:subscribe(<<"r">>, #{mode => pull}),
    true = erlang:suspend_process(Lane),
    [from_afar(<<"r">>, {N, <<0:(8 * Bytes)>>})
     || {N, Bytes} <- [{1, 10000}, {2, 10000}, {3, 10000}, {4, 10000}, {5, 1000}, {6, 10000}]],
    until(fun() -> sum(refused) =:= 2 end),
    true = erlang:resume_process(Lane),
    ?assertEqual([1, 2, 3, {full, 1, 3}, 5, {full, 1, 4}], told(Push, 6)),
    ?assertEqual([1, 2, 3, {full, 1, 3}, 5, {full, 1, 4}], told(Wild, 6)),
    ?assertEqual([{full, 1, 3}, {full, 1, 4}], told(Pull, 2)),
    {ok, 4, Taken} = erlane_fanout:take(Pull, 100),
    ?assertEqual([1, 2, 3, 5], [N || {N, _} <- Taken]),
    ?assertEqual(3 * 2, sum(lost)),
    %% Nothing is told twice.
    from_afar(<<"r">>, {7, <<>>}),
    ?assertEqual([7], told(Push, 1)),
    ?assertEqual([7], told(Wild, 1)).

%% A lane that crashes while it is full tells of the crash, not of what it had no room for.
full_crash(_) ->
    Lane = small_inbox(),
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"r">>, #{limit => infinity}),
    true = erlang:suspend_process(Lane),
    [from_afar(<<"r">>, {N, <<0:160000>>}) || N <- lists:seq(1, 5)],
    until(fun() -> sum(refused) =:= 2 end),
    true = exit(Lane, kill),
    {gap, Sub, lane} = next(),
    from_afar(<<"r">>, {6, <<>>}),
    ?assertEqual([6], told(Sub, 1)),
    ?assertEqual(nothing, receive M -> M after 0 -> nothing end).

%% The only lane there is.
small_inbox() ->
    _ = application:stop(erlane_fanout),
    ok = application:set_env(erlane_fanout, inbox, 65536),
    ok = application:set_env(erlane_fanout, lanes, 1),
    ok = application:start(erlane_fanout),
    [Lane] = lanes(),
    Lane.

%% As the caller on another node that knows of all subscriptions there are here.
from_afar(Topic, Message) ->
    _ = sys:get_state(erlane_fanout_remote),
    Entry = erlane_fanout_intake:entry({self(), 1}, 1 bsl 58, Topic, Message),
    erlane_fanout_intake:name(self()) ! Entry.

%% The next so many, messages or notices, that a subscription gets, each where it belongs.
told(Sub, N) -> [What || {_, _, What} <- lists:sort(placed(Sub, N))].

placed(_, N) when N =< 0 -> [];
placed(Sub, N) ->
    receive
        {fan, Sub, Seq, Messages} ->
            Numbers = lists:seq(Seq - length(Messages) + 1, Seq),
            [{Number, message, K} || {Number, {K, _}} <- lists:zip(Numbers, Messages)]
                ++ placed(Sub, N - length(Messages));
        {gap, Sub, {full, _, After} = Notice} ->
            [{After, notice, Notice} | placed(Sub, N - 1)]
    after 10000 -> error({no_more, N})
    end.

%% A charge without a message, as of a publisher that was killed in between, is forgiven.
killed_publisher(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"k">>),
    Words = element(3, persistent_term:get({erlane_fanout, lanes})),
    [atomics:add(Word, 8, 1000) || Word <- tuple_to_list(Words)],
    ok = erlane_fanout:publish(<<"k">>, m),
    {fan, Sub, 1, [m]} = next(),
    {ok, _, _} = erlane_fanout:subscribe(<<"k">>),
    [Lane ! look || Lane <- lanes()],
    until(fun() -> sum(inbox) =:= 0 end).

%% All are told, none is lost but what was under way; numbers go on above.
killed_lane(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"l">>),
    {ok, Pull, 0} = erlane_fanout:subscribe(<<"l/#">>, #{mode => pull}),
    Others = [subscriber(<<"l">>, #{}) || _ <- lists:seq(1, 20)],
    Dead = subscriber(<<"l">>, #{}),
    ok = erlane_fanout:publish(<<"l">>, before),
    {fan, Sub, 1, [before]} = next_of(Sub),
    [exit(Lane, kill) || Lane <- lanes()],
    exit(element(1, Dead), kill),
    [receive {gap, S, lane} -> ok end || S <- [Sub, Pull]],
    [receive {Pid, {gap, S, lane}} -> ok end || {Pid, S} <- Others],
    until(fun() -> 22 =:= erlane_fanout:count(<<"l">>) end),
    ok = erlane_fanout:publish(<<"l">>, later),
    {fan, Sub, Seq, [later]} = next_of(Sub),
    ?assert(Seq > 1 bsl 44),
    [receive {Pid, {fan, S, _, [later]}} -> ok end || {Pid, S} <- Others],
    {ok, Seq2, [later]} = taken(Pull, 1),
    ?assert(Seq2 > 1 bsl 44),
    [exit(Pid, kill) || {Pid, _} <- Others],
    [ok = erlane_fanout:unsubscribe(S) || S <- [Sub, Pull]],
    until(fun empty/0).

next_of(Sub) -> receive {fan, Sub, _, _} = M -> M after 10000 -> error(no_message) end.

%% What is next, or nothing if the publisher has published its last.
some(Sub, At, Pub) ->
    case erlane_fanout:take(Sub, 100) of
        {ok, Seq, Ms} when Seq =:= At + length(Ms) -> Ms;
        empty ->
            receive
                {fan, Sub, ready} -> some(Sub, At, Pub);
                {Pub, published, _} = Message -> self() ! Message, []
            after 10000 -> error(empty)
            end
    end.

taken(Sub, Max) ->
    case erlane_fanout:take(Sub, Max) of
        empty -> receive {fan, Sub, ready} -> taken(Sub, Max) after 10000 -> error(empty) end;
        Other -> Other
    end.

%% A topic of one is served while one of very many has its turn.
fair(_) ->
    Many = [subscriber(<<"hot">>, #{limit => infinity}) || _ <- lists:seq(1, 5000)],
    {ok, Sub, _} = erlane_fanout:subscribe(<<"cold">>),
    Lanes = lanes(),
    [true = erlang:suspend_process(Lane) || Lane <- Lanes],
    ok = erlane_fanout:publish(<<"hot">>, 1),
    ok = erlane_fanout:publish(<<"cold">>, 1),
    %% As many times as the hot one could be served twice.
    [1 = erlang:trace(Lane, true, [send]) || Lane <- Lanes],
    [true = erlang:resume_process(Lane) || Lane <- Lanes],
    Before = sends(Sub, 0),
    [erlang:trace(Lane, false, [send]) || Lane <- Lanes],
    ?assert(Before < 5000),
    [exit(Pid, kill) || {Pid, _} <- Many].

%% Deliveries of the lanes until the one to this subscription.
sends(Sub, N) ->
    receive
        {trace, _, send, {fan, Sub, _, _}, _} -> N;
        {trace, _, send, {fan, _, _, _}, _} -> sends(Sub, N + 1)
    after 10000 -> error(no_message)
    end.

%% What waits in a lane comes in one delivery.
batches(_) ->
    {ok, Sub, 0} = erlane_fanout:subscribe(<<"w">>),
    [true = erlang:suspend_process(Lane) || Lane <- lanes()],
    [ok = erlane_fanout:publish(<<"w">>, I) || I <- lists:seq(1, 100)],
    Wakes = sum(wakes),
    [true = erlang:resume_process(Lane) || Lane <- lanes()],
    {fan, Sub, 100, Ms} = next(),
    ?assertEqual(lists:seq(1, 100), Ms),
    ?assert(sum(wakes) =< Wakes + 1).

%% The last message of each topic, for who comes later and asks.
retained(_) ->
    Keep = #{retain => true},
    [ok = erlane_fanout:publish(T, M, Keep)
     || {T, M} <- [{<<"r/1">>, old}, {<<"r/1">>, new}, {[<<"r/2">>, <<"q">>], two}]],
    {ok, Sub, _} = erlane_fanout:subscribe(<<"r/+">>, #{retained => true}),
    {fan, Sub, retained, [{<<"r/1">>, new}, {<<"r/2">>, two}]} = next(),
    {ok, Sub1, _} = erlane_fanout:subscribe(<<"r/1">>, #{retained => true, mode => pull}),
    {fan, Sub1, retained, [{<<"r/1">>, new}]} = next(),
    ok = erlane_fanout:forget(<<"r/1">>),
    {ok, _, _} = erlane_fanout:subscribe(<<"r/1">>, #{retained => true}),
    {ok, _, _} = erlane_fanout:subscribe(<<"r/2">>),
    nothing = receive M -> M after 0 -> nothing end,
    ?assertMatch(#{topics := 2}, erlane_fanout_retain:info()),
    ok = application:stop(erlane_fanout),
    ok = application:set_env(erlane_fanout, retained, 1),
    ok = application:start(erlane_fanout),
    [ok = erlane_fanout:publish(T, m, Keep) || T <- [a, b, a]],
    ?assertMatch(#{topics := 1, refused := 1}, erlane_fanout_retain:info()).

%% Figures add up, as metrics too.
figures(_) ->
    {ok, _} = application:ensure_all_started(erlane_metrics),
    _ = erlane_fanout_metrics:register(),
    _ = [subscriber(<<"m">>, #{}) || _ <- lists:seq(1, 10)],
    [ok = erlane_fanout:publish(<<"m">>, I) || I <- lists:seq(1, 10)],
    until(fun() -> sum(delivered) =:= 100 end),
    ?assertEqual({10, 0, 0}, {sum(subscriptions), sum(lost), sum(refused)}),
    Format = erlane_metrics:negotiate(undefined),
    Page = iolist_to_binary(erlane_metrics:expose(Format, fun(P, Acc) -> [Acc, P] end, [])),
    ?assertMatch({match, _}, re:run(Page, "erlane_fanout_delivered_total\\{lane=\"1\"\\}")).

%% With nothing to do no process of the application runs.
idle(_) ->
    {ok, Sub, _} = erlane_fanout:subscribe(<<"z">>, #{mode => pull}),
    ok = erlane_fanout:publish(<<"z">>, 1),
    {ok, 1, [1]} = taken(Sub, 1),
    empty = erlane_fanout:take(Sub, 1),
    Pids = lanes() ++ [Pid || {_, Pid, _, _} <- supervisor:which_children(erlane_fanout_sup)],
    Reductions = fun() -> [process_info(P, reductions) || P <- Pids] end,
    until(fun() -> Reductions() =:= receive after 50 -> Reductions() end end),
    Before = Reductions(),
    receive after 300 -> ok end,
    ?assertEqual(Before, Reductions()).

%% Wrong configuration is named when it starts.
configuration(_) ->
    ok = application:stop(erlane_fanout),
    [begin
         ok = application:set_env(erlane_fanout, Key, Value),
         {error, {Why, _}} = application:start(erlane_fanout),
         ok = application:unset_env(erlane_fanout, Key)
     end || {Key, Value, Why} <- [{lanes, 0, {lanes, {badarg, 0}}},
                                  {inbox, 1, {inbox, {badarg, 1}}},
                                  {nonsense, 1, {nonsense, unknown_option}}]].

%% Without the application the error says so; after it nothing is left of it.
not_started(_) ->
    {ok, _, _} = erlane_fanout:subscribe(<<"n">>),
    ok = application:stop(erlane_fanout),
    ?assertError({not_started, erlane_fanout}, erlane_fanout:subscribe(<<"n">>)),
    ?assertError({not_started, erlane_fanout}, erlane_fanout:publish(<<"n">>, 1)),
    ?assertEqual([], [K || {K, _} <- persistent_term:get(), is_tuple(K),
                           element(1, K) =:= erlane_fanout]).
