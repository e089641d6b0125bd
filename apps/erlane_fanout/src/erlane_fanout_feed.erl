%% SPDX-License-Identifier: Apache-2.0
%% @doc A filter's messages and subscriptions in one lane.
%%
%% Subscriptions stand in chunks whose members have all got the same. A turn visits some chunks,
%% each gets what has come since its last visit, in one delivery for each member: so messages
%% that come while a hundred thousand are being served go to most of them together, and no feed
%% keeps another one waiting for longer than a turn.
%%
%% A visit hands over half a limit at most, so that a lane which is behind makes nobody slow. A
%% member that had not done with what it got, and would have more than its limit with the next
%% part, leaves its chunk and is treated by its policy: {@link erlane_fanout_slow}.
-module(erlane_fanout_feed).

-export([new/5, note/3, refused/2, missing/2, join/3, leave/2, turn/2, resume/2]).
-export([idle/1, blocked/1, size/1, head/1, member/2, close/1]).

-export_type([feed/0]).

-include("erlane_fanout.hrl").
-include("erlane_fanout_feed.hrl").

-type feed() :: #feed{}.
-type sub() :: erlane_fanout_sub:sub().

%% Members of a chunk at most; one for sockets is a native call.
-define(CHUNK, 256).
%% How many chunks with room are looked at for one at the head.
-define(LOOK, 4).

%% @doc Without subscriptions and messages; the next one has the number `Base + 1', and is not of
%% an era before this one.
-spec new(erlane_fanout_topic:filter(), pos_integer(), atomics:atomics_ref(),
          non_neg_integer(), erlane_fanout_match:era()) -> feed().
new(Filter, Lane, Stats, Base, Since) ->
    #feed{filter = Filter, lane = Lane, stats = Stats, since = Since, head = Base, low = Base}.

%% @doc Number of the last message.
-spec head(feed()) -> non_neg_integer().
head(#feed{head = Head}) -> Head.

%% @doc Subscriptions.
-spec size(feed()) -> non_neg_integer().
size(#feed{members = Members}) -> map_size(Members).

%% @doc The subscription, if it is one of this feed.
-spec member(sub(), feed()) -> #member{} | none.
member(Sub, #feed{members = Members}) -> maps:get(Sub, Members, none).

%% @doc A message was published.
-spec note(pos_integer(), term(), feed()) -> feed().
note(Bytes, Message, #feed{head = Head, recent = Recent, chunks = Chunks, slow = none} = F) ->
    F#feed{head = Head + 1, recent = [{Bytes, Message} | Recent], behind = map_size(Chunks)};
note(Bytes, Message, #feed{head = Head, slow = Slow} = F) ->
    (note(Bytes, Message, F#feed{slow = none}))#feed{
        slow = erlane_fanout_slow:note(Head + 1, Bytes, Message, Slow)}.

%% @doc So many messages that would have come now are lost: there was no room for them. They have
%% no number, so that the notice need not wait its turn: it says where they are missing.
-spec refused(pos_integer(), feed()) -> ok.
refused(N, #feed{head = Head, members = Members, stats = Stats}) ->
    atomics:add(Stats, ?S_LOST, N * map_size(Members)),
    maps:foreach(fun(Sub, #member{pid = Pid}) -> Pid ! {gap, Sub, {full, N, Head}} end, Members).

%% @doc Messages of this node may be missing here. Nobody can be without some as long as others
%% have not been told of the filter, and one notice in the same place is enough.
-spec missing(node(), feed()) -> feed().
missing(_, #feed{joined = none} = F) -> F;
missing(Node, #feed{head = Head, told = {Head, Nodes}} = F) ->
    case lists:member(Node, Nodes) of
        true -> F;
        false -> missing(Node, Nodes, F)
    end;
missing(Node, F) -> missing(Node, [], F).

missing(Node, Nodes, #feed{head = Head, members = Members, stats = Stats} = F) ->
    atomics:add(Stats, ?S_BREAKS, map_size(Members)),
    maps:foreach(fun(Sub, #member{pid = Pid}) -> Pid ! {gap, Sub, {node, Node, Head}} end, Members),
    F#feed{told = {Head, [Node | Nodes]}}.

%% @doc A new subscription: it gets what comes from now on.
-spec join(sub(), #member{}, feed()) -> feed().
join(Sub, #member{mode = Mode} = Member, F0) when Mode =:= pull; Mode =:= frames ->
    %% What is not yet in the ring was published before.
    %% Who is over its limit by that will be with the next message.
    {#feed{members = Members} = F, _} = pulled(F0),
    Ring = erlane_fanout_ring:join(Sub, Member, F#feed.head, F#feed.ring),
    F#feed{members = Members#{Sub => Member#member{at = ring}}, ring = Ring};
join(Sub, Member, #feed{head = Head} = F) ->
    Member#member.mode =:= push andalso
        atomics:put(erlane_fanout_sub:ref(Sub), erlane_fanout_sub:cell(Sub, ?C_POS), Head),
    place(Sub, Member, F).

%% Into a chunk at the head, which is where the member is.
place(Sub, #member{to = To} = Member, #feed{members = Members, chunks = Chunks} = F) ->
    Class = class(Sub, Member),
    {Id, #chunk{n = N, members = Here} = Chunk, F1} = room(Class, windowed(Member, F)),
    Full = [{Sub, To} | Here],
    F1#feed{members = Members#{Sub => Member#member{at = Id}},
            chunks = Chunks#{Id => Chunk#chunk{n = N + 1, members = sorted(N + 1, Full),
                                               done = done(Sub, Member, Chunk)}},
            open = opened(Class, Id, N + 1, F1#feed.open)}.

%% One that comes back has not yet done with what it was sent.
done(Sub, #member{mode = push, limit = Limit}, #chunk{done = Done}) when is_integer(Limit) ->
    min(Done, atomics:get(erlane_fanout_sub:ref(Sub), ?CELL(Sub, ?C_POS)));
done(_, _, #chunk{done = Done}) -> Done.

%% Neighbours in memory one after the other: by pid, which most have come by anyway.
sorted(?CHUNK, Members) -> lists:keysort(2, Members);
sorted(_, Members) -> Members.

%% Deliveries to one class are alike: how, with which limit, and where their memory is.
class(_, #member{mode = push, limit = infinity}) -> push;
class(Sub, #member{mode = push, limit = Limit}) ->
    {push, Limit, erlane_fanout_sub:block(Sub)};
class(_, #member{mode = {socket, _, Framing}, limit = Limit}) ->
    {socket, Limit, Framing}.

room(Class, #feed{open = Open, head = Head, chunks = Chunks} = F) ->
    Ids = lists:sublist(maps:get(Class, Open, []), ?LOOK),
    case [Id || Id <- Ids, #chunk{cursor = C} <- [maps:get(Id, Chunks)], C =:= Head] of
        [Id | _] ->
            {Id, maps:get(Id, Chunks), F};
        [] ->
            Id = F#feed.next,
            {Id, #chunk{class = Class, cursor = Head, n = 0, members = [], done = 0},
             F#feed{next = Id + 1, order = queue:in(Id, F#feed.order)}}
    end.

%% Chunks with room are listed, others are not; what is empty is no chunk.
opened(Class, Id, N, Open) ->
    Ids = maps:get(Class, Open, []),
    case {N > 0 andalso N < ?CHUNK, lists:member(Id, Ids)} of
        {Same, Same} -> Open;
        {true, false} -> Open#{Class => [Id | Ids]};
        {false, true} when tl(Ids) =:= [] -> maps:remove(Class, Open);
        {false, true} -> Open#{Class => lists:delete(Id, Ids)}
    end.

windowed(#member{mode = push, limit = Limit}, #feed{windows = Windows, head = Head} = F)
  when Limit =/= infinity, not is_map_key(Limit, Windows) ->
    F#feed{windows = Windows#{Limit => {Head, Head, 0, queue:new()}}};
windowed(_, F) ->
    F.

%% @doc A subscription less.
-spec leave(sub(), feed()) -> feed().
leave(Sub, #feed{members = Members} = F) ->
    case maps:take(Sub, Members) of
        {#member{at = ring}, Rest} ->
            unblocked(F, F#feed{members = Rest,
                                ring = erlane_fanout_ring:leave(Sub, F#feed.ring)});
        {#member{at = slow} = Member, Rest} ->
            unblocked(F, F#feed{members = Rest,
                                slow = erlane_fanout_slow:leave(Sub, Member, F#feed.slow)});
        {#member{at = gone}, Rest} ->
            F#feed{members = Rest};
        {#member{at = Id}, Rest} ->
            chunk_leave([Sub], Id, F#feed{members = Rest});
        error ->
            F
    end.

chunk_leave([], _, F) ->
    F;
chunk_leave(Subs, Id, #feed{chunks = Chunks, head = Head} = F) ->
    #{Id := #chunk{class = Class, cursor = C, members = Here} = Chunk} = Chunks,
    case [M || {Sub, _} = M <- Here, not lists:member(Sub, Subs)] of
        [] ->
            %% It leaves the order when its turn comes.
            Behind = F#feed.behind - case C < Head of true -> 1; false -> 0 end,
            F#feed{chunks = maps:remove(Id, Chunks), behind = Behind,
                   open = opened(Class, Id, 0, F#feed.open)};
        Rest ->
            N = length(Rest),
            F#feed{chunks = Chunks#{Id := Chunk#chunk{n = N, members = Rest}},
                   open = opened(Class, Id, N, F#feed.open)}
    end.

%% @doc The last subscription has left. Answers what is discharged, in bytes.
-spec close(feed()) -> non_neg_integer().
close(#feed{recent = Recent}) -> bytes(Recent).

%% @doc Serves chunks until about so many deliveries are made. Answers what was delivered to all
%% and is discharged, in bytes, and who is to be disconnected.
-spec turn(pos_integer(), feed()) -> {Freed :: non_neg_integer(), [sub()], feed()}.
turn(Budget, F) ->
    {F1, Over} = pulled(F),
    {F2, Gone} = chunks(Budget, F1, Over),
    {Freed, F3} = trim(F2),
    {Freed, Gone, F3}.

pulled(#feed{ring = none} = F) -> {F, []};
pulled(#feed{ring = Ring, head = Head, recent = Recent} = F) ->
    {Ring1, Gone} = erlane_fanout_ring:write(Head, Recent, Ring),
    {unblocked(F, F#feed{ring = Ring1}), Gone}.

chunks(Budget, #feed{behind = Behind} = F, Gone) when Budget =< 0; Behind =:= 0 ->
    {F, Gone};
chunks(Budget, #feed{order = Order, chunks = Chunks, head = Head} = F, Gone) ->
    {{value, Id}, Rest} = queue:out(Order),
    case Chunks of
        #{Id := #chunk{cursor = Head}} ->
            chunks(Budget, F#feed{order = queue:in(Id, Rest)}, Gone);
        #{Id := #chunk{n = N} = Chunk} ->
            {F1, More} = visit(Id, Chunk, F#feed{order = queue:in(Id, Rest),
                                                 visits = F#feed.visits + 1}),
            chunks(Budget - N, F1, More ++ Gone);
        #{} ->
            chunks(Budget, F#feed{order = Rest}, Gone)
    end.

visit(Id, #chunk{class = Class, cursor = C} = Chunk, F) ->
    {To, Messages, F1} = part(Class, C, F),
    Behind = F1#feed.behind - case F#feed.head of To -> 1; _ -> 0 end,
    {Over, Done, F2} = deliver(Chunk, To, Messages, F1#feed{behind = Behind}),
    Chunk1 = Chunk#chunk{cursor = To, done = Done},
    over(Over, Id, C, F2#feed{chunks = (F#feed.chunks)#{Id := Chunk1}}).

%% What a chunk at this number gets: up to the head, or half the limit, but something.
part(Class, C, #feed{cache = {C, To, How, Messages, _}, head = Head} = F)
  when To =:= Head; How =:= full, Class =/= push ->
    {To, Messages, F};
part(Class, C, #feed{head = Head, recent = Recent} = F) ->
    {To, How, Messages} = part(limit(Class), C, Head, Recent),
    {To, Messages, F#feed{cache = {C, To, How, Messages, #{}}}}.

part(infinity, C, Head, Recent) ->
    {Head, head, [M || {_, M} <- last(Head - C, Recent, [])]};
part(Limit, C, Head, Recent) ->
    up_to(last(Head - C, Recent, []), C, Limit div 2, []).

last(0, _, Found) -> Found;
last(N, [Entry | Recent], Found) -> last(N - 1, Recent, [Entry | Found]).

up_to([{Bytes, M} | Rest], C, Left, Found) when Bytes =< Left; Found =:= [] ->
    up_to(Rest, C + 1, Left - Bytes, [M | Found]);
up_to([], C, _, Found) -> {C, head, lists:reverse(Found)};
up_to(_, C, _, Found) -> {C, full, lists:reverse(Found)}.

limit(push) -> infinity;
limit({_, Limit, _}) -> Limit.

%% To each of them at once. Answers those that got nothing, being over their limit, and what all
%% others have done with.
deliver(#chunk{class = push, cursor = C, members = Members, n = N}, To, Messages, F) ->
    send_all(Members, To, Messages),
    count(F, N, To - C),
    {[], 0, F};
deliver(#chunk{class = {push, Limit, Block}, cursor = C, members = Members, n = N, done = Done},
        To, Messages, #feed{windows = Windows} = F) ->
    {Window, Least} = window(maps:get(Limit, Windows), To, Limit, F),
    F1 = F#feed{windows = Windows#{Limit := Window}},
    case min(Least, C) of
        Enough when Enough =< Done ->
            send_all(Members, To, Messages),
            count(F, N, To - C),
            {[], Done, F1};
        Enough ->
            Ref = erlane_fanout_sub:memory(Block),
            {Over, Done1} = send(Members, Ref, Enough, To, Messages, C, []),
            count(F, N - length(Over), To - C),
            {Over, Done1, F1}
    end;
deliver(#chunk{class = {socket, Limit, Framing}, cursor = C, members = Members, n = N}, To,
        Messages, F) ->
    {Frames, F1} = frames(Framing, Messages, F),
    Over = erlane_fanout_socket:write(Members, Frames, Limit),
    count(F, N - length(Over), To - C),
    {Over, 0, F1}.

send_all([{Sub, Pid} | Rest], To, Messages) ->
    Pid ! {fan, Sub, To, Messages},
    send_all(Rest, To, Messages);
send_all([], _, _) -> ok.

send([{Sub, Pid} | Rest], Ref, Enough, To, Messages, Min, Over) ->
    case atomics:get(Ref, ?CELL(Sub, ?C_POS)) of
        Done when Done >= Enough ->
            Pid ! {fan, Sub, To, Messages},
            send(Rest, Ref, Enough, To, Messages, min(Min, Done), Over);
        _ ->
            send(Rest, Ref, Enough, To, Messages, Min, [{Sub, over} | Over])
    end;
send([], _, _, _, _, Min, Over) -> {Over, Min}.

%% Once for each framing, whatever the number of chunks.
frames(Framing, Messages, #feed{cache = {C, To, How, Messages, Made}} = F) ->
    case Made of
        #{Framing := Frames} -> {Frames, F};
        #{} ->
            Frames = erlane_fanout_socket:frames(Framing, Messages),
            {Frames, F#feed{cache = {C, To, How, Messages, Made#{Framing => Frames}}}}
    end.

count(#feed{stats = Stats}, N, Each) ->
    atomics:add(Stats, ?S_DELIVERIES, N),
    atomics:add(Stats, ?S_DELIVERED, N * Each).

%% A window of a limit ends at the last number that a visit reached, and has as many messages as
%% fit: who has done with those before it, and gets the rest, has no more than the limit.
window({To, Least, _, _} = Window, End, _, _) when End =< To ->
    {Window, Least};
window({To, _, _, _}, End, Limit, #feed{low = Low} = F) when To < Low ->
    window({Low, Low, 0, queue:new()}, End, Limit, F);
window({To, Least, Sum, Queue}, End, Limit, #feed{head = Head, recent = Recent}) ->
    Sizes = [B || {B, _} <- last(End - To, lists:nthtail(Head - End, Recent), [])],
    Window = shrunk(End, Least, Sum + lists:sum(Sizes), lists:foldl(fun queue:in/2, Queue, Sizes),
                    Limit),
    {Window, element(2, Window)}.

shrunk(End, Least, Sum, Queue, Limit) when Sum > Limit ->
    {{value, Bytes}, Rest} = queue:out(Queue),
    shrunk(End, Least + 1, Sum - Bytes, Rest, Limit);
shrunk(End, Least, Sum, Queue, _) ->
    {End, Least, Sum, Queue}.

%% These did not get what comes after the number C.
over([], _, _, F) ->
    {F, []};
over(Over, Id, C, #feed{stats = Stats} = F) ->
    atomics:add(Stats, ?S_SLOW, length(Over)),
    F1 = chunk_leave([Sub || {Sub, _} <- Over], Id, F),
    lists:foldl(fun({Sub, Why}, Acc) -> treat(Sub, Why, C + 1, Acc) end, {F1, []}, Over).

treat(Sub, Why, Next, {#feed{members = Members} = F, Gone}) ->
    Member = maps:get(Sub, Members),
    case Why =:= closed orelse Member#member.policy =:= disconnect of
        true ->
            {F#feed{members = Members#{Sub := Member#member{at = gone}}}, [Sub | Gone]};
        false ->
            Member1 = Member#member{at = slow},
            Slow = case F#feed.slow of none -> erlane_fanout_slow:new(); S -> S end,
            F1 = F#feed{members = Members#{Sub := Member1},
                        slow = erlane_fanout_slow:enter(Sub, Member1, Next, F#feed.head,
                                                        F#feed.low, F#feed.recent, Slow)},
            {F2, More} = resume(Sub, unblocked(F, F1)),
            {F2, More ++ Gone}
    end.

%% @doc Has a subscription that was over its limit caught up? Answers whether it is to be
%% disconnected.
-spec resume(sub(), feed()) -> {feed(), [sub()]}.
resume(Sub, #feed{members = Members} = F) ->
    case Members of
        #{Sub := #member{at = slow} = Member} -> resume(Sub, Member, F);
        #{Sub := #member{at = ring}} ->
            {unblocked(F, F#feed{ring = erlane_fanout_ring:resume(Sub, F#feed.ring)}), []};
        #{} -> {F, []}
    end.

resume(Sub, Member, #feed{slow = Slow, head = Head} = F) ->
    case settled(Sub, Member, erlane_fanout_slow:next(Sub, Slow)) of
        false -> {F, []};
        closed -> disconnect(Sub, F);
        true ->
            {Gap, Messages, Last} = erlane_fanout_slow:catch_up(Sub, Member, Head, Slow),
            lost(Gap, Member, F),
            case hand(Sub, Member, Gap, Messages, Last, F) of
                closed -> disconnect(Sub, F);
                ok when Last < Head ->
                    Slow1 = erlane_fanout_slow:moved(Sub, Last + 1, Slow),
                    resume(Sub, Member, F#feed{slow = Slow1});
                ok ->
                    Slow1 = erlane_fanout_slow:leave(Sub, Member, Slow),
                    {place(Sub, Member, unblocked(F, F#feed{slow = Slow1})), []}
            end
    end.

disconnect(Sub, #feed{members = Members, slow = Slow} = F) ->
    #{Sub := Member} = Members,
    {unblocked(F, F#feed{slow = erlane_fanout_slow:leave(Sub, Member, Slow),
                         members = Members#{Sub := Member#member{at = gone}}}), [Sub]}.

%% Has it done with all that it got? If not, it is to tell: the flag first, then a second look,
%% while it writes its number first and then looks at the flag.
settled(Sub, #member{mode = push}, Next) ->
    Ref = erlane_fanout_sub:ref(Sub),
    Flag = erlane_fanout_sub:cell(Sub, ?C_FLAG),
    atomics:put(Ref, Flag, Next),
    case atomics:get(Ref, erlane_fanout_sub:cell(Sub, ?C_POS)) >= Next - 1 of
        true -> atomics:put(Ref, Flag, 0), true;
        false -> false
    end;
settled(Sub, #member{to = Socket}, _) ->
    erlane_fanout_socket:settled(Sub, Socket).

hand(Sub, #member{mode = push, to = Pid}, Gap, Messages, Last, F) ->
    case Gap of
        none -> ok;
        {From, To} ->
            %% There is nothing to be done with, and it may be the last that it hears.
            ok = atomics:put(erlane_fanout_sub:ref(Sub), ?CELL(Sub, ?C_POS), To),
            Pid ! {gap, Sub, From, To},
            ok
    end,
    Messages =/= [] andalso begin Pid ! {fan, Sub, Last, Messages}, true end,
    count(F, 1, length(Messages));
hand(Sub, #member{mode = {socket, Socket, Framing}} = Member, Gap, Messages, _, F) ->
    Frames = erlane_fanout_socket:frames(Framing, Messages),
    count(F, 1, length(Messages)),
    case Gap of
        none ->
            written(erlane_fanout_socket:write([{Sub, Socket}], Frames, infinity));
        {From, To} ->
            case erlane_fanout_socket:gap(Framing, Member#member.gap_frame, From, To) of
                none -> closed;
                Notice ->
                    written(erlane_fanout_socket:write([{Sub, Socket}], [Notice, Frames],
                                                       infinity))
            end
    end.

written([]) -> ok;
written([_]) -> closed.

lost(none, _, _) -> ok;
lost({From, To}, #member{policy = Policy}, #feed{stats = Stats}) ->
    atomics:add(Stats, ?S_LOST, To - From + 1),
    case Policy of
        {conflate, _} -> atomics:add(Stats, ?S_REPLACED, To - From + 1);
        _ -> ok
    end.

%% @doc Do publishers to it have to wait?
-spec blocked(feed()) -> boolean().
blocked(#feed{slow = Slow, ring = Ring}) ->
    erlane_fanout_slow:blocked(Slow) orelse erlane_fanout_ring:blocked(Ring).

%% The row of the filter says so to publishers.
unblocked(Before, #feed{filter = Filter, lane = Lane} = After) ->
    case {blocked(Before), blocked(After)} of
        {Same, Same} -> ok;
        {_, Now} -> erlane_fanout_match:blocked(Lane, Filter, Now)
    end,
    After.

%% @doc Is there nothing to do?
-spec idle(feed()) -> boolean().
idle(#feed{behind = Behind, recent = Recent}) -> Behind =:= 0 andalso Recent =:= [].

%% What all have got needs no memory; looked for once in a round of visits.
trim(#feed{behind = 0, recent = Recent, head = Head} = F) ->
    {bytes(Recent), F#feed{recent = [], low = Head, cache = none, visits = 0}};
trim(#feed{visits = Visits, chunks = Chunks} = F) when Visits < map_size(Chunks) ->
    {0, F};
trim(#feed{chunks = Chunks, head = Head, recent = Recent} = F) ->
    Least = maps:fold(fun(_, #chunk{cursor = C}, Min) -> min(C, Min) end, Head, Chunks),
    {Keep, Drop} = lists:split(Head - Least, Recent),
    {bytes(Drop), F#feed{recent = Keep, low = Least, visits = 0}}.

bytes(Entries) -> lists:foldl(fun({B, _}, Sum) -> B + Sum end, 0, Entries).
