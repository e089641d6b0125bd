%% SPDX-License-Identifier: Apache-2.0
%% A producer and its inboxes against a model that knows each batch and each figure; many
%% producers, some of them killed, against what must hold whatever happens.
-module(prop_erlane_batch).

-export([prop_model/0, prop_many/0]).

-include_lib("proper/include/proper.hrl").
-include("../src/erlane_batch.hrl").

%% Everything that happens in turn: which batches leave, with what in them, and what is dropped.
prop_model() ->
    ?FORALL({Options, Steps}, {vector(2, options()), list(step())},
            begin
                Producer = erlane_batch_ct:producer(),
                Inboxes = [erlane_batch_ct:consumer(O) || O <- Options],
                Start = [#{options => O, buffer => [], batches => [], used => 0, dropped => 0}
                         || O <- Options],
                End = lists:foldl(fun(Step, Model) -> step(Step, Producer, Inboxes, Model) end,
                                  Start, number(Steps)),
                Seen = [{erlane_batch_ct:taken(I), figures(I)} || I <- Inboxes],
                Want = [{lists:reverse(B), {U, length(lists:append(B)), length(B), D}}
                        || #{batches := B, used := U, dropped := D} <- End],
                lists:foreach(fun erlane_batch_ct:stop/1,
                              [Producer | [erlane_batch:pid(I) || I <- Inboxes]]),
                ?WHENFAIL(io:format("want ~0p~ngot ~0p~n", [Want, Seen]), Seen =:= Want)
            end).

options() ->
    ?LET({Count, More, Bytes, Idle, Policy},
         {range(1, 5), range(0, 6), oneof([infinity, range(1, 40)]), boolean(),
          oneof([block, drop_newest])},
         #{count => Count, bound => 2 * Count + More, bytes => Bytes, age => infinity,
           idle => Idle, policy => Policy}).

step() ->
    frequency([{6, {send, range(1, 2), list(range(0, 12))}},
               {3, {done, range(1, 2), range(1, 8)}},
               {1, flush}, {1, {flush, range(1, 2)}}]).

%% Messages differ: their number is in them.
number(Steps) -> lists:zip(lists:seq(1, length(Steps)), Steps).

figures(Inbox) ->
    #{waiting := Waiting, accepted := Accepted, batches := Batches, dropped := Dropped,
      refused := 0, lost := 0, open := true} = erlane_batch:info(Inbox),
    {Waiting, Accepted, Batches, Dropped}.

step({No, {send, I, Sizes}}, Producer, Inboxes, Models) ->
    Inbox = lists:nth(I, Inboxes),
    on(I, Models,
       fun(Model) ->
               Ready = room(Inbox, length(Sizes), Model),
               Messages = [binary:copy(<<(No rem 256)>>, Size) || Size <- fitting(Sizes, Ready)],
               ok = erlane_batch_ct:on(Producer,
                                       fun() -> erlane_batch:send_list(Inbox, Messages) end),
               %% What it told itself was handled before it answers this.
               ok = erlane_batch_ct:on(Producer, fun() -> ok end),
               Sent = lists:foldl(fun sent/2, Ready, Messages),
               case Sent of
                   #{options := #{idle := true}} -> flushed(Sent);
                   _ -> Sent
               end
       end);
step({_, {done, I, N}}, _, Inboxes, Models) ->
    on(I, Models, fun(Model) -> done(lists:nth(I, Inboxes), N, Model) end);
step({_, flush}, Producer, Inboxes, Models) ->
    Ready = [room(I, 0, M) || {I, M} <- lists:zip(Inboxes, Models)],
    ok = erlane_batch_ct:on(Producer, fun erlane_batch:flush/0),
    lists:map(fun flushed/1, Ready);
step({_, {flush, I}}, Producer, Inboxes, Models) ->
    Inbox = lists:nth(I, Inboxes),
    on(I, Models, fun(Model) ->
                          Ready = room(Inbox, 0, Model),
                          ok = erlane_batch_ct:on(Producer,
                                                  fun() -> erlane_batch:flush(Inbox) end),
                          flushed(Ready)
                  end).

on(1, [A, B], Fun) -> [Fun(A), B];
on(2, [A, B], Fun) -> [A, Fun(B)].

%% Under the policy `block' nobody waits here: the consumer makes room, and no more is sent.
room(Inbox, More, #{options := #{policy := block, bound := Bound}, used := Used,
                    buffer := Buffer} = Model) when Used + length(Buffer) + More > Bound ->
    done(Inbox, Used, Model);
room(_, _, Model) ->
    Model.

fitting(Sizes, #{options := #{policy := block, bound := Bound}, used := Used,
                 buffer := Buffer}) ->
    lists:sublist(Sizes, Bound - Used - length(Buffer));
fitting(Sizes, _) ->
    Sizes.

done(Inbox, N, #{used := Used} = Model) ->
    Some = lists:duplicate(min(N, Used), message),
    ok = erlane_batch:done(Inbox, Some),
    Model#{used := Used - length(Some)}.

sent(Message, #{options := #{count := Count, bytes := Max}, buffer := Buffer} = Model) ->
    Buffered = Model#{buffer := Buffer ++ [Message]},
    case length(Buffer) + 1 >= Count orelse iolist_size(Buffer ++ [Message]) >= Max of
        true -> flushed(Buffered);
        false -> Buffered
    end.

flushed(#{buffer := []} = Model) ->
    Model;
flushed(#{buffer := Buffer, options := #{bound := Bound}, used := Used, dropped := Dropped,
          batches := Batches} = Model) ->
    Room = min(length(Buffer), Bound - Used),
    Left = Model#{buffer := [], used := Used + Room, dropped := Dropped + length(Buffer) - Room},
    case Room of
        0 -> Left;
        _ -> Left#{batches := [lists:sublist(Buffer, Room) | Batches]}
    end.

%% Any number of producers and consumers, any bound; some producers are killed on the way. Each
%% consumer has of each producer what it sent, from the first message on without a hole; of those
%% that were not killed it has all. No consumer ever had more than its bound.
prop_many() ->
    ?FORALL({Count, More, Consumers, Fates, Each},
            {range(1, 20), range(0, 40), range(1, 4), non_empty(list(boolean())), range(1, 300)},
            begin
                Options = #{count => Count, bound => 2 * Count + More},
                Inboxes = [erlane_batch_ct:consumer(Options)
                           || _ <- lists:seq(1, Consumers)],
                Eating = [erlane_batch_ct:eat(I) || I <- Inboxes],
                Producers = [{erlane_batch_ct:producer(), Lives} || Lives <- Fates],
                Working = [{erlane_batch_ct:start(P, fun() -> work(Inboxes, Each) end), Lives}
                           || {P, Lives} <- Producers],
                [erlane_batch_ct:stop(P) || {P, false} <- Producers],
                [ok = erlane_batch_ct:answer(Ref) || {Ref, true} <- Working],
                Got = [erlane_batch_ct:eaten(Ref) || Ref <- Eating],
                Left = [maps:get(waiting, erlane_batch:info(I)) || I <- Inboxes],
                lists:foreach(fun erlane_batch_ct:stop/1,
                              [P || {P, true} <- Producers]
                              ++ [erlane_batch:pid(I) || I <- Inboxes]),
                lists:all(fun(Messages) -> complete(Producers, Each, Messages) end, Got)
                    andalso (lists:member(false, Fates) orelse lists:sum(Left) =:= 0)
            end).

work(Inboxes, Each) ->
    lists:foreach(fun(N) ->
                          [erlane_batch:send(I, {self(), N}) || I <- Inboxes]
                  end, lists:seq(1, Each)),
    erlane_batch:flush().

complete(Producers, Each, Messages) ->
    lists:all(fun({P, Lives}) ->
                      Numbers = erlane_batch_ct:numbers({P, Messages}),
                      Numbers =:= lists:seq(1, length(Numbers))
                          andalso (not Lives orelse length(Numbers) =:= Each)
              end, Producers).
