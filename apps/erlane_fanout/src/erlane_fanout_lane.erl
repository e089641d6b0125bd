%% SPDX-License-Identifier: Apache-2.0
%% @doc The process that delivers, one for each scheduler.
%%
%% It takes what waits in its mailbox, serves a slice of one of the feeds that have something to
%% do, and looks at its mailbox again. With nothing to do it waits for a message, without a timer.
-module(erlane_fanout_lane).

-export([start_link/5, begin_now/1, subscribe/3, unsubscribe/1, room/1, joined/4]).

-include("erlane_fanout.hrl").
-include("erlane_fanout_feed.hrl").

%% Messages that are taken before somebody is served, and deliveries until the next look.
-define(TAKE, 1000).
-define(SLICE, 2048).
%% A lane that has handled so many bytes collects its garbage when it has nothing to do.
-define(COLLECT, 4194304).

-record(lane, {i :: pos_integer(), word :: atomics:atomics_ref(), stats :: atomics:atomics_ref(),
               wild :: atomics:atomics_ref(), base :: non_neg_integer(),
               slots :: erlane_fanout_sub:slots(),
               feeds = #{} :: #{erlane_fanout_topic:filter() => erlane_fanout_feed:feed()},
               active = queue:new() :: queue:queue(erlane_fanout_topic:filter()),
               %% Publishers that wait for room in the lane, and for a filter.
               waiting = [] :: [reference()],
               held = #{} :: #{erlane_fanout_topic:filter() => [reference()]},
               handled = 0 :: non_neg_integer(),
               seen = none :: erlane_fanout_inbox:seen()}).

%% @doc The I-th lane, linked to the caller; numbers of messages begin above `Base'. What the
%% table has of its subscriptions is taken over, as after a crash.
-spec start_link(pos_integer(), atomics:atomics_ref(), atomics:atomics_ref(),
                 atomics:atomics_ref(), non_neg_integer()) -> pid().
start_link(I, Word, Stats, Wild, Base) ->
    spawn_opt(fun() ->
                  %% Not before publishers know of it: what is published after subscribers were
                  %% told of a crash must come here.
                  receive begin_now -> ok end,
                  init(#lane{i = I, word = Word, stats = Stats, wild = Wild, base = Base,
                             slots = erlane_fanout_sub:new(I)})
              end, [link, {message_queue_data, off_heap}]).

%% @doc Publishers know of it: from now on it runs.
-spec begin_now(pid()) -> ok.
begin_now(Pid) -> Pid ! begin_now, ok.

%% @doc Subscribes the caller. Answers the number of the last message before the first one that
%% it will get.
-spec subscribe(pos_integer(), erlane_fanout_topic:filter(), erlane_fanout_opts:sub_opts()) ->
          {ok, erlane_fanout_sub:sub(), non_neg_integer()}.
subscribe(I, Filter, Opts) ->
    call(I, {subscribe, self(), Filter, Opts}).

%% @doc No delivery starts after this.
-spec unsubscribe(erlane_fanout_sub:sub()) -> ok.
unsubscribe(Sub) ->
    call(erlane_fanout_sub:lane(Sub), {unsubscribe, Sub}).

call(I, Request) ->
    #lanes{pids = Pids} = erlane_fanout_lanes:get(),
    Ref = erlang:monitor(process, element(I, Pids), [{alias, reply_demonitor}]),
    element(I, Pids) ! {call, Ref, Request},
    receive
        {Ref, Answer} -> Answer;
        {'DOWN', Ref, process, _, _} ->
            %% There will be another one at once, or the application stops.
            receive after 1 -> call(I, Request) end
    end.

%% @doc The caller has done with all that this subscription was sent while over its limit.
-spec room(erlane_fanout_sub:sub()) -> ok.
room(Sub) ->
    #lanes{pids = Pids} = erlane_fanout_lanes:get(),
    element(erlane_fanout_sub:lane(Sub), Pids) ! {room, Sub},
    ok.

%% @doc Other nodes have been told of the filter, with this number: what they publish when they know
%% it is for its subscriptions, of feeds that had begun by this era.
-spec joined(pid(), erlane_fanout_topic:filter(), pos_integer(), erlane_fanout_match:era()) -> ok.
joined(Lane, Filter, Number, Era) -> Lane ! {joined, Filter, Number, Era}, ok.

init(#lane{i = I} = L) ->
    Rows = [Row || #row{lane = Lane} = Row <- ets:tab2list(?SUBS), Lane =:= I],
    erlane_fanout_ring:clear([Sub || #row{sub = Sub, opts = #{mode := Mode}} <- Rows,
                                     Mode =:= pull orelse Mode =:= frames]),
    Slots = erlane_fanout_sub:recover(I, [Row#row.sub || Row <- Rows]),
    ok = erlane_fanout_match:clear(I, L#lane.wild),
    ok = atomics:put(L#lane.stats, ?S_SUBS, 0),
    ok = atomics:put(L#lane.stats, ?S_FEEDS, 0),
    idle(lists:foldl(fun again/2, L#lane{slots = Slots}, Rows)).

again(#row{sub = Sub, filter = Filter, pid = Pid, opts = Opts}, L) ->
    L1 = enter(Sub, Filter, Pid, Opts, L),
    %% What is published from now on is not lost.
    Pid ! {gap, Sub, lane},
    L1.

idle(#lane{word = Word, seen = Seen, handled = Handled} = L) when Handled > ?COLLECT ->
    %% What was delivered may be held by what this process has not collected for long.
    true = erlang:garbage_collect(),
    idle(L#lane{handled = 0, seen = erlane_fanout_inbox:settle(Word, Seen)});
idle(#lane{stats = Stats, seen = Seen} = L) ->
    receive
        Message ->
            atomics:add(Stats, ?S_WAKES, 1),
            take(?TAKE - 1, handle(Message, L))
    after erlane_fanout_inbox:patience(Seen) ->
        idle(L#lane{seen = erlane_fanout_inbox:settle(L#lane.word, Seen)})
    end.

take(0, L) -> serve(L);
take(N, L) ->
    receive Message -> take(N - 1, handle(Message, L))
    after 0 -> serve(L)
    end.

serve(#lane{active = Active, word = Word, seen = Seen} = L) ->
    case queue:out(Active) of
        {empty, _} ->
            idle(L#lane{seen = erlane_fanout_inbox:settle(Word, Seen)});
        {{value, Filter}, Rest} ->
            take(?TAKE, turn(Filter, L#lane{active = Rest}))
    end.

turn(Filter, #lane{feeds = Feeds, stats = Stats} = L) ->
    case Feeds of
        #{Filter := Feed} ->
            atomics:add(Stats, ?S_TURNS, 1),
            {Freed, Gone, Feed1} = erlane_fanout_feed:turn(?SLICE, Feed),
            L1 = discharge(Freed, store(Filter, Feed1, L)),
            lists:foldl(fun disconnect/2, L1, Gone);
        #{} ->
            L
    end.

%% Back among the active ones if there is more to do.
store(Filter, Feed, #lane{feeds = Feeds, active = Active} = L) ->
    Idle = erlane_fanout_feed:idle(Feed),
    Active1 = case Idle of true -> Active; false -> queue:in(Filter, Active) end,
    released(Filter, Feed, L#lane{feeds = Feeds#{Filter := Feed#feed{active = not Idle}},
                                  active = Active1}).

discharge(0, L) -> L;
discharge(Freed, #lane{word = Word, handled = Handled} = L) ->
    Left = erlane_fanout_inbox:discharge(Word, Freed),
    go(Left, L#lane{handled = Handled + Freed}).

%% Publishers are let in together, when half of the room is free.
go(_, #lane{waiting = []} = L) -> L;
go(Left, #lane{waiting = Waiting} = L) ->
    #lanes{config = #{inbox := Bound}} = persistent_term:get(?LANES),
    case Left =< Bound div 2 of
        true ->
            let_go(Waiting),
            L#lane{waiting = []};
        false ->
            L
    end.

%% In the order in which they came.
let_go(Refs) ->
    lists:foreach(fun(Ref) -> Ref ! {Ref, go} end, lists:reverse(Refs)).

released(Filter, Feed, #lane{held = Held} = L) ->
    case Held of
        #{Filter := Refs} ->
            case erlane_fanout_feed:blocked(Feed) of
                true -> L;
                false ->
                    let_go(Refs),
                    L#lane{held = maps:remove(Filter, Held)}
            end;
        #{} -> L
    end.

handle({pub, Since, Filters, Bytes, Message}, #lane{stats = Stats} = L) ->
    atomics:add(Stats, ?S_MESSAGES, 1),
    lists:foldl(fun(Filter, Acc) -> note(Filter, Since, Bytes, Message, Acc) end, L, Filters);
handle({refused, Counts}, #lane{feeds = Feeds} = L) ->
    maps:foreach(fun({Filter, Since}, N) ->
                         case Feeds of
                             #{Filter := Feed} ->
                                 _ = wants(Since, Feed) andalso erlane_fanout_feed:refused(N, Feed);
                             #{} -> ok
                         end
                 end, Counts),
    L;
handle({missing, Node}, #lane{feeds = Feeds} = L) ->
    L#lane{feeds = maps:map(fun(_, Feed) -> erlane_fanout_feed:missing(Node, Feed) end, Feeds)};
handle({joined, Filter, Number, Era}, #lane{feeds = Feeds} = L) ->
    case Feeds of
        #{Filter := #feed{since = Since} = Feed} when Since =< Era ->
            L#lane{feeds = Feeds#{Filter := Feed#feed{joined = Number}}};
        #{} -> L
    end;
handle({room, Sub}, L) -> resume(Sub, L);
handle({call, Ref, {subscribe, Pid, Filter, Opts}}, L) ->
    {Sub, Slots} = erlane_fanout_sub:alloc(L#lane.slots),
    L1 = enter(Sub, Filter, Pid, Opts, L#lane{slots = Slots}),
    #{Filter := Feed} = L1#lane.feeds,
    %% Last: of one that is not in the table nothing is left by a crash, and it asks again.
    true = ets:insert(?SUBS, #row{sub = Sub, lane = L#lane.i, filter = Filter, pid = Pid,
                                  opts = Opts}),
    Ref ! {Ref, {ok, Sub, erlane_fanout_feed:head(Feed)}},
    L1;
handle({call, Ref, {unsubscribe, Sub}}, L) ->
    L1 = leave(Sub, L),
    Ref ! {Ref, ok},
    L1;
handle({{down, Sub}, _, process, _, _}, L) -> leave(Sub, L);
handle({wait, Ref, room}, #lane{waiting = Waiting, word = Word} = L) ->
    go(erlane_fanout_inbox:discharge(Word, 0), L#lane{waiting = [Ref | Waiting]});
handle({wait, Ref, {filter, Filter}}, #lane{feeds = Feeds, held = Held} = L) ->
    L1 = L#lane{held = Held#{Filter => [Ref | maps:get(Filter, Held, [])]}},
    case Feeds of
        #{Filter := Feed} -> released(Filter, Feed, L1);
        #{} -> unheld(Filter, L1)
    end;
%% The kernel has taken what waited in a socket.
handle({erlane_async, Ref, Ticket, _}, L) ->
    case erlane_fanout_socket:notice(Ref, Ticket) of
        none -> L;
        Sub -> resume(Sub, L)
    end;
handle(_, L) -> L.

note(Filter, Since, Bytes, Message, #lane{feeds = Feeds} = L) ->
    case Feeds of
        #{Filter := Feed} ->
            case wants(Since, Feed) of
                true -> note(Filter, Feed, erlane_fanout_feed:note(Bytes, Message, Feed), L);
                false -> discharge(Bytes, L)
            end;
        #{} ->
            discharge(Bytes, L)
    end.

note(Filter, #feed{active = true}, Feed, #lane{feeds = Feeds} = L) ->
    L#lane{feeds = Feeds#{Filter := Feed}};
note(Filter, _, Feed, #lane{feeds = Feeds, active = Active} = L) ->
    L#lane{feeds = Feeds#{Filter := Feed#feed{active = true}}, active = queue:in(Filter, Active)}.

%% If its last subscription left after the publisher looked it up, or after the other node heard of
%% it, who came since must not get it.
wants({remote, Number, Era}, #feed{joined = Joined, since = Since}) ->
    is_integer(Joined) andalso Joined =< Number andalso Since =< Era;
wants(Era, #feed{since = Since}) -> Since =< Era.

enter(Sub, Filter, Pid, Opts, #lane{feeds = Feeds} = L) ->
    #{mode := Mode, limit := Limit, policy := Policy} = Opts,
    Monitor = erlang:monitor(process, Pid, [{tag, {down, Sub}}]),
    To = case Mode of {socket, Socket, _} -> Socket; _ -> Pid end,
    Member = #member{to = To, pid = Pid, monitor = Monitor, mode = Mode, limit = Limit,
                     policy = Policy, gap_frame = maps:get(gap_frame, Opts, undefined), at = gone},
    Feed = case Feeds of
               #{Filter := There} -> There;
               #{} ->
                   Era = erlane_fanout_match:add(L#lane.i, Filter, L#lane.wild),
                   atomics:add(L#lane.stats, ?S_FEEDS, 1),
                   erlane_fanout_feed:new(Filter, L#lane.i, L#lane.stats, L#lane.base, Era)
           end,
    atomics:add(L#lane.stats, ?S_SUBS, 1),
    Feed1 = erlane_fanout_feed:join(Sub, Member, Feed),
    erlane_fanout_match:count(L#lane.i, Filter, erlane_fanout_feed:size(Feed1)),
    L#lane{feeds = Feeds#{Filter => Feed1}}.

leave(Sub, #lane{feeds = Feeds} = L) ->
    case ets:lookup(?SUBS, Sub) of
        [#row{filter = Filter}] ->
            #{Filter := Feed} = Feeds,
            #member{monitor = Monitor} = erlane_fanout_feed:member(Sub, Feed),
            true = erlang:demonitor(Monitor),
            true = ets:delete(?SUBS, Sub),
            atomics:sub(L#lane.stats, ?S_SUBS, 1),
            left(Filter, erlane_fanout_feed:leave(Sub, Feed),
                 L#lane{slots = erlane_fanout_sub:free(Sub, L#lane.slots)});
        [] ->
            L
    end.

left(Filter, Feed, #lane{feeds = Feeds} = L) ->
    erlane_fanout_match:count(L#lane.i, Filter, erlane_fanout_feed:size(Feed)),
    case erlane_fanout_feed:size(Feed) of
        0 ->
            erlane_fanout_match:remove(L#lane.i, Filter, L#lane.wild),
            atomics:sub(L#lane.stats, ?S_FEEDS, 1),
            Freed = erlane_fanout_feed:close(Feed),
            unheld(Filter, discharge(Freed, L#lane{feeds = maps:remove(Filter, Feeds)}));
        _ ->
            released(Filter, Feed, L#lane{feeds = Feeds#{Filter := Feed}})
    end.

%% Nobody holds publishers to this filter up any more.
unheld(Filter, #lane{held = Held} = L) ->
    let_go(maps:get(Filter, Held, [])),
    L#lane{held = maps:remove(Filter, Held)}.

resume(Sub, #lane{feeds = Feeds} = L) ->
    case ets:lookup(?SUBS, Sub) of
        [#row{filter = Filter}] ->
            {Feed, Gone} = erlane_fanout_feed:resume(Sub, maps:get(Filter, Feeds)),
            L1 = released(Filter, Feed, L#lane{feeds = Feeds#{Filter := Feed}}),
            lists:foldl(fun disconnect/2, L1, Gone);
        [] ->
            L
    end.

%% Over its limit with this policy, or its socket is closed.
disconnect(Sub, #lane{stats = Stats, feeds = Feeds} = L) ->
    [#row{filter = Filter, pid = Pid, opts = #{mode := Mode}}] = ets:lookup(?SUBS, Sub),
    #{Filter := Feed} = Feeds,
    #member{} = erlane_fanout_feed:member(Sub, Feed),
    atomics:add(Stats, ?S_DISCONNECTED, 1),
    _ = case Mode of
            {socket, Socket, _} -> erlane_fanout_socket:close(Socket);
            _ -> ok
        end,
    Pid ! {fan, Sub, slow_consumer},
    leave(Sub, L).
