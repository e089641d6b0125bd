%% SPDX-License-Identifier: Apache-2.0
%% Properties of the placement, of the report of hot keys, and of a whole set whose slots move
%% while many send to it.
-module(prop_erlane_shard).

-export([prop_placement/0, prop_hot/0, prop_moving/0]).

-include_lib("proper/include/proper.hrl").

-define(SET, ?MODULE).

%% However often the number changes: nobody has more than one slot more than another, and no more
%% slots move than have to.
prop_placement() ->
    ?FORALL(Numbers, non_empty(list(range(1, 256))),
            lists:all(fun({Old, New, Shards}) ->
                              Have = counts(New, Shards),
                              Had = counts(Old, Shards),
                              Moved = length(erlane_shard_map:moves(Old, New)),
                              lists:max(Have) - lists:min(Have) =< 1
                                  andalso lists:sum(Have) =:= 256
                                  andalso Moved =:= lists:sum([max(0, A - B)
                                                               || {A, B} <- lists:zip(Have, Had)])
                                  andalso Moved =< least(Had, Shards)
                      end, placements(Numbers))).

placements([First | Numbers]) ->
    {Steps, _} = lists:mapfoldl(fun(N, Old) ->
                                        New = erlane_shard_map:resize(Old, N),
                                        {{Old, New, N}, New}
                                end, erlane_shard_map:new(First), Numbers),
    Steps.

counts(Placement, Shards) ->
    [length([S || S <- tuple_to_list(Placement), S =:= N]) || N <- lists:seq(1, Shards)].

%% What is missing to the smaller quotas at least, and so many as may have one more.
least(Had, Shards) ->
    Sorted = lists:reverse(lists:sort(Had)),
    {More, Others} = lists:split(256 rem Shards, Sorted),
    lists:sum([max(0, 256 div Shards + 1 - N) || N <- More]
              ++ [max(0, 256 div Shards - N) || N <- Others]).

%% A key with more than its N-th part of the stream is watched, and its count is not too small,
%% nor larger by more than an N-th part.
prop_hot() ->
    ?FORALL({Max, Keys}, {range(1, 10), list(range(1, 20))},
            begin
                Hot = lists:foldl(fun erlane_shard_hot:note/2, erlane_shard_hot:new(Max), Keys),
                Top = maps:from_list(erlane_shard_hot:top(Hot)),
                map_size(Top) =< Max andalso
                    lists:all(fun(Key) ->
                                      True = length([K || K <- Keys, K =:= Key]),
                                      case Top of
                                          #{Key := N} ->
                                              N >= True andalso N - True =< length(Keys) / Max;
                                          _ -> True =< length(Keys) / Max
                                      end
                              end, lists:usort(Keys))
            end).

%% Several processes send while the slots move. In each key is in the end what each of them sent
%% there, once and in its order; counters have their sums; snapshots on the way are whole.
prop_moving() ->
    ?FORALL({Bound, Senders, Sizes},
            {range(1, 20), vector(4, list(step())), list(range(1, 6))},
            begin
                {ok, _} = erlane_shard:start_link(?SET, #{shards => 2, bound => Bound}),
                try moving(Senders, Sizes) after ok = erlane_shard:stop(?SET) end
            end).

step() ->
    Key = range(1, 8),
    frequency([{6, {append, Key}}, {4, {add, Key}}, {2, {call, Key}}, {2, {batch, list(Key)}},
               {1, {late, oneof([append, add, call, batch]), Key, range(1, 6)}},
               {1, {buffer, list(Key)}}, {1, yield}]).

moving(Senders, Sizes) ->
    Pids = [spawn_monitor(fun() -> exit({sent, sender(I, Steps)}) end)
            || {I, Steps} <- lists:zip(lists:seq(1, length(Senders)), Senders)],
    Whole = [begin
                 ok = erlane_shard:resize(?SET, N),
                 is_map(erlane_shard:snapshot(?SET))
             end || N <- Sizes],
    Sent = [receive {'DOWN', Ref, process, _, {sent, S}} -> S
            after 20000 -> exit({hangs, erlang:process_info(Pid, current_stacktrace)})
            end || {Pid, Ref} <- Pids],
    Want = model(lists:append(Sent)),
    Got = by_sender(erlane_shard:snapshot(?SET)),
    ?WHENFAIL(io:format("want ~p~ngot ~p~n", [Want, Got]),
              lists:all(fun(W) -> W end, Whole) andalso Got =:= Want).

%% The list of what was done, in order: `{Key, {append, Sender, I}}' or `{Key, {add, N}}'.
sender(Me, Steps) ->
    Done = [run(Me, I, Step) || {I, Step} <- numbered(Steps)],
    ok = erlane_shard:sync(?SET),
    lists:append(Done).

run(Me, I, {append, Key}) ->
    ok = erlane_shard:batch(?SET, [{log(Key), {update, append(Me, I)}}]),
    [{Key, {append, Me, I}}];
run(Me, I, {call, Key}) ->
    ok = erlane_shard:update(?SET, log(Key), append(Me, I), 20000),
    [{Key, {append, Me, I}}];
run(_, I, {add, Key}) ->
    ok = erlane_shard:add(?SET, {sum, Key}, I),
    [{Key, {add, I}}];
run(Me, I, {batch, Keys}) ->
    ok = erlane_shard:batch(?SET, [{log(Key), {update, append(Me, {I, N})}}
                                   || {N, Key} <- numbered(Keys)]),
    [{Key, {append, Me, {I, N}}} || {N, Key} <- numbered(Keys)];
run(_, _, {buffer, Keys}) ->
    New = erlane_shard_buffer:new(?SET, #{max_adds => 3, max_age => infinity}),
    _ = erlane_shard_buffer:flush(
          lists:foldl(fun(Key, B) -> erlane_shard_buffer:add(B, {sum, Key}, 1) end, New, Keys)),
    [{Key, {add, 1}} || Key <- Keys];
run(_, _, yield) ->
    true = erlang:yield(),
    [];
%% The placement was read, and then the process had to wait: the message goes where the slot was.
run(Me, I, {late, How, Key, Shards}) ->
    Set = erlane_shard_send:set(?SET),
    ok = erlane_shard:resize(?SET, Shards),
    Update = {update, append(Me, I)},
    case How of
        append -> ok = erlane_shard_send:cast(Set, log(Key), Update);
        batch -> ok = erlane_shard_send:batch(Set, [{log(Key), Update}]);
        call -> ok = erlane_shard_send:call(Set, log(Key), Update, 20000);
        add -> ok = erlane_shard_send:add(Set, {sum, Key}, I)
    end,
    case How of
        add -> [{Key, {add, I}}];
        _ -> [{Key, {append, Me, I}}]
    end.

log(Key) -> {log, Key}.

append(Me, I) ->
    fun(undefined) -> {reply, ok, [{Me, I}]};
       ({ok, Done}) -> {reply, ok, [{Me, I} | Done]}
    end.

numbered(Keys) -> lists:zip(lists:seq(1, length(Keys)), Keys).

model(Done) ->
    lists:foldl(fun({Key, {add, N}}, Acc) ->
                        maps:update_with({sum, Key}, fun(S) -> S + N end, N, Acc);
                   ({Key, {append, Me, I}}, Acc) ->
                        maps:update_with({Key, Me}, fun(L) -> L ++ [I] end, [I], Acc)
                end, #{}, Done).

by_sender(Snapshot) ->
    maps:fold(fun({sum, _} = Key, N, Acc) -> Acc#{Key => N};
                 ({log, Key}, Done, Acc) ->
                      lists:foldl(fun({Me, I}, A) ->
                                          maps:update_with({Key, Me}, fun(L) -> [I | L] end, [I], A)
                                  end, Acc, Done)
              end, #{}, Snapshot).
