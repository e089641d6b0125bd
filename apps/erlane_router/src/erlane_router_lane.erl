%% SPDX-License-Identifier: Apache-2.0
%% @doc The process that collects messages for another node and sends them in batches.
%%
%% ```
%%         first message           welcome
%%   down ---------------> hello ----------> router    batches to the partner
%%    ^                      |   refused, no gate
%%    +----------------------+------------> plain      one send for each message
%%       connection or partner lost        (until the gate over there announces itself)
%% '''
%%
%% While it waits for the answer to its hello it holds what comes, in order. Entries come from
%% senders as they go into a frame: see {@link erlane_router_frame}. Nothing else has their form,
%% three elements with an integer at the end, or five.
%%
%% A batch leaves when it is full, when it is old, or when nothing more waits. A first message
%% alone leaves at once; a batch that has begun to grow gives senders on the same scheduler one
%% turn, and goes on as long as each turn doubles it.
-module(erlane_router_lane).

-export([start_link/5]).

-include("erlane_router.hrl").

%% Words of heap of a lane with and without a connection.
-define(BUSY_HEAP, 20000).
-define(IDLE_HEAP, 233).

-record(lane, {node :: node(), i :: pos_integer(),
               word :: atomics:atomics_ref(), stats :: atomics:atomics_ref(),
               bound :: pos_integer(), max_messages :: pos_integer(),
               max_bytes :: pos_integer(), max_age :: non_neg_integer(),
               state = down :: down | router | plain,
               partner = none :: none | pid(), monitor = none :: none | reference(),
               %% Since the partner is there.
               sent = 0 :: non_neg_integer(), confirmed = 0 :: non_neg_integer(),
               %% Dropped since then: the connection was gone, the monitor not yet down.
               lost = 0 :: non_neg_integer(),
               %% Blocked senders, in order; callers of sync and what must be confirmed for them.
               waiting = queue:new() :: queue:queue({reference(), pos_integer()}),
               syncs = [] :: [{non_neg_integer(), reference()}],
               seen = none :: erlane_router_room:seen()}).

%% @doc The I-th lane to a node.
-spec start_link(node(), pos_integer(), erlane_router_opts:config(),
                 atomics:atomics_ref(), atomics:atomics_ref()) -> pid().
start_link(Node, I, Config, Word, Stats) ->
    #{bound := Bound, max_messages := Messages, max_bytes := Bytes, max_age := Age} = Config,
    Lane = #lane{node = Node, i = I, word = Word, stats = Stats, bound = Bound,
                 max_messages = Messages, max_bytes = Bytes,
                 max_age = erlang:convert_time_unit(Age, millisecond, native)},
    spawn_opt(fun() -> init(Lane) end, [link, {message_queue_data, off_heap}]).

init(Lane) ->
    _ = suspended_when_busy(),
    idle(state(down, Lane)).

%% A busy connection must suspend the lane: that is what bounds it. The flag is unknown, and
%% there is nothing to switch off, before OTP 25.3.
-dialyzer({nowarn_function, suspended_when_busy/0}).
suspended_when_busy() ->
    try process_flag(async_dist, false)
    catch error:badarg -> false
    end.

%% Nothing is here, and nothing on a timer but a charge that nobody may be behind. With nobody
%% over there yet the first entry begins the hello: what comes meanwhile is held behind it, and
%% none is in hand that would be overtaken.
idle(#lane{state = down} = Lane) ->
    receive
        {_, _, Size} = Entry when is_integer(Size) ->
            idle(hello(Lane, [Entry], 1, Size, []));
        {_, _, _, Size, Count} = Entry when is_integer(Size), is_integer(Count) ->
            idle(hello(Lane, [Entry], Count, Size, []));
        Other ->
            other(Other, Lane, [], 0, 0, none)
    after patience(Lane) ->
        settle(Lane)
    end;
idle(Lane) ->
    receive
        {Dest, Message, Size} when is_integer(Size) ->
            run(Lane, Dest, [Message], [], 1, Size, none);
        Other ->
            other(Other, Lane, [], 0, 0, none)
    after patience(Lane) ->
        settle(Lane)
    end.

patience(#lane{seen = none}) -> infinity;
patience(_) -> erlane_router_room:forgive_ms().

%% Nothing waits, everything is discharged.
settle(#lane{word = Word, seen = Seen} = Lane) ->
    case erlane_router_room:settle(Word, Seen) of
        Seen -> idle(Lane);
        Other -> idle(released(Lane#lane{seen = Other}))
    end.

more(#lane{state = down} = Lane, [], _, _, _) ->
    idle(Lane);
more(#lane{max_messages = Max} = Lane, Entries, N, Bytes, _) when N >= Max ->
    more(flush(Lane, Entries, N, Bytes, ?S_FLUSH_MESSAGES), [], 0, 0, none);
more(#lane{max_bytes = Max} = Lane, Entries, N, Bytes, Turn) ->
    receive
        {Dest, Message, Size} when is_integer(Size), Bytes + Size =< Max ->
            run(Lane, Dest, [Message], Entries, N + 1, Bytes + Size, Turn);
        {Dest, Message, Size} when is_integer(Size) ->
            run(flush(Lane, Entries, N, Bytes, ?S_FLUSH_BYTES), Dest, [Message], [], 1, Size, none);
        Other ->
            other(Other, Lane, Entries, N, Bytes, Turn)
    after 0 ->
        nothing(Lane, Entries, N, Bytes, Turn)
    end.

%% What follows for the same receiver needs its address only once: on the wire, and to be looked
%% up at both ends.
run(#lane{max_messages = Max} = Lane, Dest, Run, Entries, N, Bytes, Turn) when N >= Max ->
    more(Lane, close(Dest, Run, Entries), N, Bytes, Turn);
run(#lane{max_bytes = Max} = Lane, Dest, Run, Entries, N, Bytes, Turn) ->
    receive
        {To, Message, Size} when is_integer(Size), Bytes + Size =< Max ->
            if
                To =:= Dest ->
                    run(Lane, Dest, [Message | Run], Entries, N + 1, Bytes + Size, Turn);
                true ->
                    run(Lane, To, [Message], close(Dest, Run, Entries), N + 1, Bytes + Size, Turn)
            end;
        {To, Message, Size} when is_integer(Size) ->
            run(flush(Lane, close(Dest, Run, Entries), N, Bytes, ?S_FLUSH_BYTES),
                To, [Message], [], 1, Size, none);
        Other ->
            other(Other, Lane, close(Dest, Run, Entries), N, Bytes, Turn)
    after 0 ->
        nothing(Lane, close(Dest, Run, Entries), N, Bytes, Turn)
    end.

close(Dest, [Message], Entries) -> [{Dest, Message, 0} | Entries];
close(Dest, Run, Entries) -> [{run, Dest, lists:reverse(Run), 0} | Entries].

nothing(Lane, [], _, _, _) ->
    settle(Lane);
nothing(Lane, Entries, 1, Bytes, _) ->
    settle(flush(Lane, Entries, 1, Bytes, ?S_FLUSH_IDLE));
nothing(Lane, Entries, N, Bytes, none) ->
    erlang:yield(),
    more(Lane, Entries, N, Bytes, {2 * N, erlang:monotonic_time() + Lane#lane.max_age});
nothing(Lane, Entries, N, Bytes, {Want, _}) when N < Want ->
    settle(flush(Lane, Entries, N, Bytes, ?S_FLUSH_IDLE));
nothing(Lane, Entries, N, Bytes, {_, Until}) ->
    case erlang:monotonic_time() of
        Now when Now >= Until ->
            settle(flush(Lane, Entries, N, Bytes, ?S_FLUSH_AGE));
        _ ->
            erlang:yield(),
            more(Lane, Entries, N, Bytes, {2 * N, Until})
    end.

other({many, _, _, Size, Count} = Entry, Lane, Entries, N, Bytes, Turn) ->
    case Bytes + Size =< Lane#lane.max_bytes of
        true -> more(Lane, [Entry | Entries], N + Count, Bytes + Size, Turn);
        false -> more(flush(Lane, Entries, N, Bytes, ?S_FLUSH_BYTES), [Entry], Count, Size, none)
    end;
other({large, _, _, Size, Count} = Entry, Lane, Entries, N, Bytes, _) ->
    Lane1 = flush(Lane, Entries, N, Bytes, ?S_FLUSH_IDLE),
    Lane2 = flush(Lane1, [Entry], Count, Size, ?S_FLUSH_LARGE),
    %% Else an idle lane would keep its binaries.
    true = garbage_collect(),
    more(Lane2, [], 0, 0, none);
other({?GATE, confirmed, From, Count}, #lane{partner = From} = Lane, Entries, N, Bytes, Turn) ->
    more(confirmed(Lane, Count), Entries, N, Bytes, Turn);
other({sync, Ref}, Lane, Entries, N, Bytes, _) ->
    more(sync(Ref, flush(Lane, Entries, N, Bytes, ?S_FLUSH_SYNC)), [], 0, 0, none);
other({wait, Ref, Size, Round}, Lane, Entries, N, Bytes, Turn) ->
    more(wait(Ref, Size, Round, Lane), Entries, N, Bytes, Turn);
other({'DOWN', Monitor, process, _, _}, #lane{monitor = Monitor} = Lane, Entries, N, Bytes, _) ->
    %% What was collected before the connection was lost was queued then.
    idle(lost(drop(state(down, Lane), Entries, N, Bytes)));
other({nodedown, Node}, #lane{node = Node, state = plain} = Lane, Entries, N, Bytes, _) ->
    idle(lost(drop(state(down, Lane), Entries, N, Bytes)));
other(gate_up, #lane{state = plain} = Lane, Entries, N, Bytes, _) ->
    Lane1 = flush(Lane, Entries, N, Bytes, ?S_FLUSH_IDLE),
    monitor_node(Lane1#lane.node, false),
    idle(state(down, Lane1));
other(_, Lane, Entries, N, Bytes, Turn) ->
    more(Lane, Entries, N, Bytes, Turn).

flush(Lane, [], _, _, _) ->
    Lane;
flush(#lane{state = router} = Lane, Entries, N, Bytes, Cause) ->
    ship(Lane, lists:reverse(Entries), N, Bytes, Cause);
flush(#lane{state = plain} = Lane, Entries, N, Bytes, _) ->
    plain(Lane, lists:reverse(Entries), N, Bytes).

%% The one send of a batch. A connection that is gone is not to be made anew for a partner that
%% went with it.
ship(#lane{partner = Partner, sent = Sent, stats = Stats} = Lane, Entries, N, Bytes, Cause) ->
    case erlang:send(Partner, erlane_router_frame:frame(N, Bytes, Entries), [noconnect]) of
        ok ->
            atomics:put(Stats, ?S_SENT, Sent + N),
            atomics:add(Stats, ?S_BATCHES, 1),
            atomics:add(Stats, Cause, 1),
            discharge(Lane#lane{sent = Sent + N}, N, Bytes);
        noconnect ->
            drop(Lane, Entries, N, Bytes)
    end.

plain(#lane{node = Node, stats = Stats} = Lane, Entries, N, Bytes) ->
    lists:foreach(fun(Entry) -> erlane_router_frame:plain(Node, Entry) end, Entries),
    atomics:add(Stats, ?S_PLAIN, N),
    discharge(Lane, N, Bytes).

drop(Lane, [], _, _) ->
    Lane;
drop(#lane{lost = Lost, stats = Stats} = Lane, _Entries, N, Bytes) ->
    atomics:add(Stats, ?S_DROPPED, N),
    discharge(Lane#lane{lost = Lost + N}, N, Bytes).

discharge(#lane{word = Word} = Lane, N, Bytes) ->
    release(Lane, erlane_router_room:discharge(Word, N * ?ONE + Bytes)).

%% Says hello and holds what comes, until it is known what is over there.
hello(#lane{node = Node, i = I} = Lane0, Entries, N, Bytes, Syncs) ->
    Lane = state(connecting, Lane0),
    Monitor = erlane_router_gate:hello(Node, I),
    hold(Lane#lane{monitor = Monitor}, Entries, N, Bytes, Syncs).

hold(#lane{monitor = Monitor} = Lane, Entries, N, Bytes, Syncs) ->
    receive
        {_, _, Size} = Entry when is_integer(Size) ->
            hold(Lane, [Entry | Entries], N + 1, Bytes + Size, Syncs);
        {_, _, _, Size, Count} = Entry when is_integer(Size), is_integer(Count) ->
            hold(Lane, [Entry | Entries], N + Count, Bytes + Size, Syncs);
        {sync, Ref} ->
            hold(Lane, Entries, N, Bytes, [Ref | Syncs]);
        {wait, Ref, Size, Round} ->
            hold(wait(Ref, Size, Round, Lane), Entries, N, Bytes, Syncs);
        %% The answer to this hello, not to one from before the connection was lost.
        {?GATE, welcome, Monitor, Partner, ?VERSION} when is_pid(Partner) ->
            demonitor(Monitor, [flush]),
            Up = state(router, Lane#lane{partner = Partner,
                                         monitor = monitor(process, Partner)}),
            Done = batches(Up, lists:reverse(Entries), [], 0, 0),
            %% A batch fits: it is not copied while it is collected.
            _ = process_flag(min_heap_size, ?BUSY_HEAP),
            true = garbage_collect(),
            synced(Syncs, Done);
        {?GATE, refused, Monitor, _Node, _Version} ->
            demonitor(Monitor, [flush]),
            held_plain(Lane, Entries, N, Bytes, Syncs);
        {'DOWN', Monitor, process, _, noconnection} ->
            Down = lost(drop(state(down, Lane), Entries, N, Bytes)),
            lists:foreach(fun(Ref) -> answer(Ref, nodedown) end, Syncs),
            Down;
        {'DOWN', Monitor, process, _, _} ->
            held_plain(Lane, Entries, N, Bytes, Syncs);
        _ ->
            hold(Lane, Entries, N, Bytes, Syncs)
    end.

held_plain(#lane{node = Node} = Lane, Entries, N, Bytes, Syncs) ->
    monitor_node(Node, true),
    Plain = state(plain, Lane#lane{monitor = none}),
    synced(Syncs, plain(Plain, lists:reverse(Entries), N, Bytes)).

%% What was held may be more than one frame.
batches(Lane, [{large, _, _, Size, Count} = Entry | Rest], Batch, N, Bytes) ->
    Lane1 = flush(Lane, Batch, N, Bytes, ?S_FLUSH_IDLE),
    batches(flush(Lane1, [Entry], Count, Size, ?S_FLUSH_LARGE), Rest, [], 0, 0);
batches(#lane{max_messages = Messages, max_bytes = Max} = Lane, [Entry | Rest], Batch, N, Bytes) ->
    {Size, Count} = weight(Entry),
    if
        N >= Messages ->
            batches(flush(Lane, Batch, N, Bytes, ?S_FLUSH_MESSAGES), Rest, [Entry], Count, Size);
        Bytes + Size > Max ->
            batches(flush(Lane, Batch, N, Bytes, ?S_FLUSH_BYTES), Rest, [Entry], Count, Size);
        true ->
            batches(Lane, Rest, [Entry | Batch], N + Count, Bytes + Size)
    end;
batches(Lane, [], Batch, N, Bytes) ->
    flush(Lane, Batch, N, Bytes, ?S_FLUSH_IDLE).

weight({_, _, Size}) -> {Size, 1};
weight({_, _, _, Size, Count}) -> {Size, Count}.

%% The partner is gone: what it has not confirmed may have been delivered or not.
lost(#lane{node = Node, sent = Sent, confirmed = Confirmed, lost = Lost, stats = Stats} = Lane) ->
    atomics:put(Stats, ?S_SENT, 0),
    atomics:put(Stats, ?S_CONFIRMED, 0),
    atomics:add(Stats, ?S_DELIVERED, Confirmed),
    atomics:add(Stats, ?S_UNCONFIRMED, Sent - Confirmed),
    erlane_router_report:down(Node, Lost, Sent - Confirmed),
    lists:foreach(fun({_, Ref}) -> answer(Ref, nodedown) end, Lane#lane.syncs),
    _ = process_flag(min_heap_size, ?IDLE_HEAP),
    true = garbage_collect(),
    Lane#lane{partner = none, monitor = none, sent = 0, confirmed = 0, lost = 0, syncs = []}.

%% A count above what was sent is of frames that somebody forged.
confirmed(#lane{sent = Sent} = Lane, Count) when is_integer(Count), Count > Sent ->
    confirmed(Lane, Sent);
confirmed(#lane{confirmed = Before, syncs = Syncs, stats = Stats} = Lane, Count)
  when is_integer(Count), Count > Before ->
    atomics:put(Stats, ?S_CONFIRMED, Count),
    {Done, Open} = lists:partition(fun({At, _}) -> At =< Count end, Syncs),
    lists:foreach(fun({_, Ref}) -> answer(Ref, ok) end, Done),
    Lane#lane{confirmed = Count, syncs = Open};
confirmed(Lane, _) ->
    Lane.

synced([], Lane) -> Lane;
synced([Ref | Refs], Lane) -> synced(Refs, sync(Ref, Lane)).

sync(Ref, #lane{state = down} = Lane) ->
    hello(Lane, [], 0, 0, [Ref]);
sync(Ref, #lane{state = plain} = Lane) ->
    answer(Ref, no_router),
    Lane;
sync(Ref, #lane{sent = Sent, confirmed = Sent, lost = 0} = Lane) ->
    answer(Ref, ok),
    Lane;
sync(Ref, #lane{partner = Partner, sent = Sent, syncs = Syncs} = Lane) ->
    %% Without a connection, or with something dropped, the monitor goes down and answers.
    _ = erlang:send(Partner, confirm, [noconnect]),
    Lane#lane{syncs = [{Sent, Ref} | Syncs]}.

%% The references are aliases of callers that may have given up.
answer(Ref, Answer) ->
    Ref ! {Ref, Answer},
    ok.

%% A sender found the lane full and has taken its charge back. Where it was told to try and
%% another was faster it is first.
wait(Ref, Size, Round, #lane{waiting = Waiting} = Lane) ->
    Longer = case Round of
                 0 -> queue:in({Ref, Size}, Waiting);
                 _ -> queue:in_r({Ref, Size}, Waiting)
             end,
    released(suspect(Lane#lane{waiting = Longer})).

%% What fills the lane may be charges that nobody is behind.
suspect(#lane{seen = none, word = Word} = Lane) ->
    Lane#lane{seen = erlane_router_room:settle(Word, none)};
suspect(Lane) ->
    Lane.

released(#lane{word = Word} = Lane) ->
    release(Lane, atomics:get(Word, ?WORD)).

%% Senders go on when half of the lane is free, as many as it can take.
release(#lane{bound = Bound} = Lane, Word) when ?BYTES(Word) * 2 >= Bound ->
    Lane;
release(#lane{waiting = Waiting, bound = Bound} = Lane, Word) ->
    case queue:is_empty(Waiting) of
        true -> Lane;
        false -> Lane#lane{waiting = go(Waiting, Bound - ?BYTES(Word), Bound)}
    end.

go(Waiting, Room, Bound) ->
    case queue:peek(Waiting) of
        {value, {Ref, Size}} when Size =< Room; Room =:= Bound ->
            answer(Ref, go),
            go(queue:drop(Waiting), Room - Size, Bound);
        _ ->
            Waiting
    end.

state(connecting, #lane{stats = Stats} = Lane) ->
    atomics:put(Stats, ?S_STATE, 1),
    Lane;
state(State, #lane{stats = Stats} = Lane) ->
    atomics:put(Stats, ?S_STATE, case State of down -> 0; router -> 2; plain -> 3 end),
    Lane#lane{state = State}.
