%% SPDX-License-Identifier: Apache-2.0
%% Producers and consumers for the suites of batches: processes that do what they are told.
-module(erlane_batch_ct).

-export([producer/0, consumer/1, on/2, start/2, answer/1, stop/1, until/1]).
-export([taken/1, take/2, batches/1, eat/1, eaten/1, numbers/1, keeper/1]).

-include("../src/erlane_batch.hrl").

-define(MS, 20000).

%% A producer handles what batches need between two commands, in the order of its mailbox.
producer() ->
    spawn_link(fun producing/0).

producing() ->
    receive
        {erlane_batch, Why} = Message when is_atom(Why) -> ok = erlane_batch:handle(Message);
        {on, From, Ref, Fun} -> From ! {Ref, Fun()}
    end,
    producing().

%% A consumer leaves its batches in the mailbox until it is told to take or to eat them.
consumer(Options) ->
    Self = self(),
    Pid = spawn_link(fun() ->
                             {ok, Inbox} = erlane_batch:inbox(Options),
                             Self ! {self(), Inbox},
                             consuming(Inbox)
                     end),
    receive {Pid, Inbox} -> Inbox after ?MS -> error(no_inbox) end.

consuming(Inbox) ->
    receive {on, From, Ref, Fun} -> From ! {Ref, Fun()} end,
    consuming(Inbox).

%% Runs a function there and waits for its answer.
on(Pid, Fun) ->
    answer(start(Pid, Fun)).

%% The same without waiting: what comes is `{Ref, Answer}'.
start(Pid, Fun) ->
    Ref = make_ref(),
    Pid ! {on, self(), Ref, Fun},
    Ref.

answer(Ref) ->
    receive {Ref, Answer} -> Answer after ?MS -> error(no_answer) end.

%% Kills, and waits for the end.
stop(Pid) ->
    true = unlink(Pid),
    Monitor = monitor(process, Pid),
    true = exit(Pid, kill),
    receive {'DOWN', Monitor, process, Pid, _} -> ok after ?MS -> error(alive) end.

%% Until the condition holds.
until(Condition) -> until(Condition, erlang:monotonic_time(millisecond) + ?MS).

until(Condition, Deadline) ->
    case Condition() of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < Deadline orelse error(never),
            receive after 2 -> until(Condition, Deadline) end
    end.

%% The batches that are in the mailbox of its consumer, none of them done.
taken(Inbox) ->
    on(erlane_batch:pid(Inbox), fun() -> batches(erlane_batch:ref(Inbox)) end).

%% The same; waits for the first one, and says that they are done.
take(Inbox, all) ->
    Ref = erlane_batch:ref(Inbox),
    on(erlane_batch:pid(Inbox),
       fun() ->
               First = receive {erlane_batch, Ref, Messages} -> Messages end,
               Batches = [First | batches(Ref)],
               ok = erlane_batch:done(Inbox, lists:append(Batches)),
               Batches
       end).

batches(Ref) ->
    receive {erlane_batch, Ref, Messages} -> [Messages | batches(Ref)] after 0 -> [] end.

%% The consumer takes batches and is done with each, until eaten/1 asks for all of them. It
%% fails if it ever has more than its bound.
eat(Inbox) ->
    Consumer = erlane_batch:pid(Inbox),
    {Consumer, start(Consumer, fun() -> eating(Inbox, erlane_batch:ref(Inbox), []) end)}.

eating(Inbox, Ref, Got) ->
    receive
        {erlane_batch, Ref, Messages} ->
            #{waiting := Waiting} = erlane_batch:info(Inbox),
            Waiting =< Inbox#erlane_inbox.bound orelse error({too_many, Waiting}),
            ok = erlane_batch:done(Inbox, Messages),
            eating(Inbox, Ref, [Messages | Got]);
        enough ->
            Rest = batches(Ref),
            ok = erlane_batch:done(Inbox, lists:append(Rest)),
            lists:append(lists:reverse(Got, Rest))
    end.

%% The producers have sent all they ever will.
eaten({Consumer, Ref}) ->
    Consumer ! enough,
    answer(Ref).

%% What producer P sent, in the order of arrival.
numbers({P, Messages}) -> [N || {From, N} <- Messages, From =:= P].

keeper(#erlane_inbox{keeper = Keeper}) -> Keeper.
