%% SPDX-License-Identifier: Apache-2.0
%% @doc What a feed keeps for those who pull: rows in a table that they read by themselves.
%%
%% A row has the messages of one turn, up to some hundred: its key is the number of the first one,
%% so that the number after the last is the key of the next row, and nobody has to be asked where
%% to go on. The lane writes rows, then the head, then wakes who has said to be idle; a reader
%% says so, then looks again. What is too old goes by the tail first, then the row.
-module(erlane_fanout_ring).

-export([join/4, leave/2, write/3, resume/2, blocked/1, close/1, clear/1]).

-export_type([ring/0]).

-include("erlane_fanout.hrl").
-include("erlane_fanout_feed.hrl").

%% Messages of a row at most.
-define(ROW, 1024).
-define(ROW_BYTES, 262144).
%% A member that blocks publishers may be this far behind its limit: see erlane_fanout_slow.
-define(BLOCK_SLACK, 16777216).

-type sub() :: erlane_fanout_sub:sub().
-type row() :: {First :: pos_integer(), Last :: pos_integer(), Bytes :: non_neg_integer()}.

-record(ring, {id :: pos_integer(), ref :: atomics:atomics_ref(), head :: non_neg_integer(),
               rows = queue:new() :: queue:queue(row()),
               bytes = 0 :: non_neg_integer(), limit = 0 :: non_neg_integer(),
               %% Bytes of a row: half of the least limit, so that who reads on is not over it.
               cap = ?ROW_BYTES :: pos_integer(),
               members = #{} :: #{sub() => #member{}},
               %% How many want which kind of rows.
               pull = 0 :: non_neg_integer(), frames = 0 :: non_neg_integer(),
               %% Who is told or waited for beyond its limit, and for each such limit the last
               %% rows that fit into it, and the number before them.
               strict = [] :: [sub()],
               windows = #{} :: #{pos_integer() => {non_neg_integer(), non_neg_integer(),
                                                    queue:queue({pos_integer(), pos_integer()})}},
               blocked = [] :: [sub()]}).
-opaque ring() :: #ring{}.

%% @doc A subscription that gets what comes after this number. The first one makes the ring.
-spec join(sub(), #member{}, non_neg_integer(), ring() | none) -> ring().
join(Sub, Member, Head, none) ->
    Id = erlang:unique_integer([positive]),
    Ref = atomics:new(?CELLS, []),
    ok = atomics:put(Ref, ?F_HEAD, Head),
    ok = atomics:put(Ref, ?F_TAIL, Head + 1),
    true = ets:insert(?RING, {{Id, 0}, Ref}),
    join(Sub, Member, Head, #ring{id = Id, ref = Ref, head = Head});
join(Sub, #member{mode = Mode, limit = Limit, policy = Policy} = Member, Head, Ring) ->
    Ref = erlane_fanout_sub:ref(Sub),
    Put = fun(Cell, Value) -> atomics:put(Ref, erlane_fanout_sub:cell(Sub, Cell), Value) end,
    ok = Put(?C_POS, Head),
    ok = Put(?C_ROW, Head + 1),
    ok = Put(?C_FEED, Ring#ring.id),
    Ring1 = kind(Mode, 1, Ring),
    Most = case Policy of block -> Limit + ?BLOCK_SLACK; _ -> Limit end,
    Ring2 = Ring1#ring{members = (Ring#ring.members)#{Sub => Member},
                       limit = max(Most, Ring#ring.limit),
                       cap = max(1, min(Limit div 2, Ring#ring.cap))},
    case Policy of
        drop_oldest -> Ring2;
        _ ->
            Windows = Ring#ring.windows,
            Ring2#ring{strict = [Sub | Ring#ring.strict],
                       windows = maps:merge(#{Limit => {0, Head, queue:new()}}, Windows)}
    end.

kind(pull, N, #ring{pull = M} = Ring) -> Ring#ring{pull = M + N};
kind(frames, N, #ring{frames = M} = Ring) -> Ring#ring{frames = M + N}.

%% @doc A subscription less; `none': it was the last one.
-spec leave(sub(), ring()) -> ring() | none.
leave(Sub, #ring{members = Members, ref = Ref, id = Id} = Ring) ->
    {#member{mode = Mode}, Rest} = maps:take(Sub, Members),
    Flag = erlane_fanout_sub:cell(Sub, ?C_FLAG),
    _ = atomics:exchange(erlane_fanout_sub:ref(Sub), Flag, 0) =:= Id
        andalso atomics:sub(Ref, ?F_IDLE, 1),
    case map_size(Rest) of
        0 -> close(Ring), none;
        _ -> kind(Mode, -1, Ring#ring{members = Rest, strict = lists:delete(Sub, Ring#ring.strict),
                                      blocked = lists:delete(Sub, Ring#ring.blocked)})
    end.

%% @doc Nothing of it is left.
-spec close(ring() | none) -> ok.
close(none) -> ok;
close(#ring{id = Id, rows = Rows}) ->
    lists:foreach(fun({First, _, _}) -> erase(Id, First) end, queue:to_list(Rows)),
    true = ets:delete(?RING, {Id, 0}),
    ok.

%% @doc The lane of these subscriptions has crashed: what their rings wrote goes.
-spec clear([sub()]) -> ok.
clear(Subs) ->
    Ids = lists:usort([atomics:get(erlane_fanout_sub:ref(Sub), ?CELL(Sub, ?C_FEED))
                       || Sub <- Subs]),
    lists:foreach(fun(Id) ->
                          true = ets:match_delete(?RING, {{Id, '_'}, '_', '_'}),
                          true = ets:delete(?RING, {Id, 0})
                  end, Ids).

erase(Id, First) ->
    true = ets:delete(?RING, {Id, First}),
    ets:delete(?RING, {Id, -First}).

%% @doc Writes what came since the last time; `Recent' has it, the last one, with the number
%% `Head', first. Answers who is over the limit and to be disconnected.
-spec write(non_neg_integer(), [{pos_integer(), term()}], ring()) -> {ring(), [sub()]}.
write(Head, _, #ring{head = Head} = Ring) ->
    {Ring, []};
write(Head, Recent, #ring{head = Before} = Ring) ->
    Ring1 = rows(lists:reverse(lists:sublist(Recent, Head - Before)), Before + 1, Ring),
    Ring2 = trim(Ring1#ring{head = Head}),
    ok = atomics:put(Ring2#ring.ref, ?F_HEAD, Head),
    wake(Ring2),
    judge(Ring2).

rows([], _, Ring) -> Ring;
rows(Entries, First, Ring) ->
    {Now, Later} = split(?ROW, Ring#ring.cap, Entries, []),
    Last = First + length(Now) - 1,
    #ring{id = Id, pull = Pull, frames = Frames, rows = Rows, bytes = Sum} = Ring,
    _ = Pull > 0 andalso ets:insert(?RING, {{Id, First}, Last, [M || {_, M} <- Now]}),
    _ = Frames > 0 andalso ets:insert(?RING, {{Id, -First}, Last, frames(Now)}),
    Bytes = lists:sum([B || {B, _} <- Now]),
    Windows = maps:map(fun(Limit, Window) -> window(Limit, Last, Bytes, Window) end,
                       Ring#ring.windows),
    rows(Later, Last + 1, Ring#ring{rows = queue:in({First, Last, Bytes}, Rows),
                                    bytes = Sum + Bytes, windows = Windows}).

split(N, Left, [{Bytes, _} = Entry | Rest], Found) when N > 0, Bytes =< Left; Found =:= [] ->
    split(N - 1, Left - Bytes, Rest, [Entry | Found]);
split(_, _, Rest, Found) -> {lists:reverse(Found), Rest}.

frames(Entries) ->
    iolist_to_binary([begin
                          Frame = frame(Message),
                          [<<(byte_size(Frame)):32>>, Frame]
                      end || {_, Message} <- Entries]).

frame(Message) when is_binary(Message) -> Message;
frame(Message) -> term_to_binary(Message).

window(Limit, Last, Bytes, {Sum, Least, Queue}) ->
    shrink(Limit, Sum + Bytes, Least, queue:in({Last, Bytes}, Queue)).

%% The last row stays, however large.
shrink(Limit, Sum, Least, Queue) when Sum > Limit ->
    case queue:out(Queue) of
        {{value, {Last, Bytes}}, Rest} ->
            case queue:is_empty(Rest) of
                true -> {Sum, Least, Queue};
                false -> shrink(Limit, Sum - Bytes, Last, Rest)
            end;
        {empty, _} -> {Sum, Least, Queue}
    end;
shrink(_, Sum, Least, Queue) ->
    {Sum, Least, Queue}.

trim(#ring{bytes = Sum, limit = Limit, rows = Rows, id = Id, ref = Ref} = Ring)
  when Sum > Limit ->
    {{value, {First, Last, Bytes}}, Rest} = queue:out(Rows),
    case queue:is_empty(Rest) of
        true -> Ring;
        false ->
            ok = atomics:put(Ref, ?F_TAIL, Last + 1),
            _ = erase(Id, First),
            trim(Ring#ring{rows = Rest, bytes = Sum - Bytes})
    end;
trim(Ring) ->
    Ring.

%% Only who said to be idle since it was last woken.
wake(#ring{id = Id, ref = Ref, members = Members}) ->
    case atomics:get(Ref, ?F_IDLE) of
        0 -> ok;
        _ -> maps:foreach(fun(Sub, #member{pid = Pid}) -> wake(Sub, Pid, Id, Ref) end, Members)
    end.

wake(Sub, Pid, Id, Ref) ->
    Own = erlane_fanout_sub:ref(Sub),
    Flag = erlane_fanout_sub:cell(Sub, ?C_FLAG),
    case atomics:get(Own, Flag) =:= Id andalso atomics:compare_exchange(Own, Flag, Id, 0) of
        ok ->
            atomics:sub(Ref, ?F_IDLE, 1),
            Pid ! {fan, Sub, ready};
        _ -> ok
    end.

judge(#ring{strict = Strict} = Ring) ->
    lists:foldl(fun judge/2, {Ring, []}, Strict).

judge(Sub, {#ring{members = Members, windows = Windows, blocked = Blocked} = Ring, Gone}) ->
    #{Sub := #member{limit = Limit, policy = Policy}} = Members,
    {_, Least, _} = maps:get(Limit, Windows),
    case {behind(Sub, Least), Policy} of
        {false, _} -> {Ring, Gone};
        {true, disconnect} -> {Ring, [Sub | Gone]};
        {true, block} -> {Ring#ring{blocked = lists:usort([Sub | Blocked])}, Gone}
    end.

%% If it is, it tells when it has come there: the word first, then a second look.
behind(Sub, Least) ->
    Ref = erlane_fanout_sub:ref(Sub),
    Pos = erlane_fanout_sub:cell(Sub, ?C_POS),
    Tell = erlane_fanout_sub:cell(Sub, ?C_TELL),
    case atomics:get(Ref, Pos) < Least of
        false -> false;
        true ->
            ok = atomics:put(Ref, Tell, Least + 1),
            case atomics:get(Ref, Pos) < Least of
                true -> true;
                false -> atomics:put(Ref, Tell, 0), false
            end
    end.

%% @doc It has taken what it was behind by.
-spec resume(sub(), ring()) -> ring().
resume(Sub, #ring{blocked = Blocked, members = Members, windows = Windows} = Ring) ->
    case lists:member(Sub, Blocked) of
        true ->
            #{Sub := #member{limit = Limit}} = Members,
            {_, Least, _} = maps:get(Limit, Windows),
            case behind(Sub, Least) of
                true -> Ring;
                false -> Ring#ring{blocked = lists:delete(Sub, Blocked)}
            end;
        false -> Ring
    end.

%% @doc Do publishers have to wait for one of them?
-spec blocked(ring() | none) -> boolean().
blocked(none) -> false;
blocked(#ring{blocked = Blocked}) -> Blocked =/= [].
