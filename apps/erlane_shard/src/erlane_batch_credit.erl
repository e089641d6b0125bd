%% SPDX-License-Identifier: Apache-2.0
%% @doc The words that producers, the consumer and the keeper of an inbox share. No process.
%%
%% A producer adds a batch to `used' before it sends it, and never above the bound; the consumer
%% takes it out when it is done. A producer can be killed between the two steps, and then what it
%% added belongs to nobody. So what is between the steps stands in `under_way' as well, where
%% `erlane_batch_keeper' finds what has been there for too long.
-module(erlane_batch_credit).

-export([new/0, charge/4, sent/2, dropped/2, done/3, ask/1, forget/1]).
-export([used/1, doubtful/1, under_way/1, forgive/2, close/1, figures/1]).

-export_type([words/0]).

-type words() :: atomics:atomics_ref().

-define(USED, 1).
-define(ASKED, 2).
-define(UNDER_WAY, 3).
-define(ACCEPTED, 4).
-define(BATCHES, 5).
-define(DROPPED, 6).
-define(REFUSED, 7).
-define(LOST, 8).
-define(WORDS, 8).

%% In `used' from the end of the inbox on; far above any bound.
-define(CLOSED, (1 bsl 60)).

%% @doc Words of an inbox in which there is nothing.
-spec new() -> words().
new() -> atomics:new(?WORDS, [{signed, true}]).

%% @doc Asks for room for N messages. `all' takes all or nothing, `some' what there is room for.
%% The answer, if it is a number above 0, must be sent at once, and then told to {@link sent/2}.
-spec charge(words(), pos_integer(), Bound :: pos_integer(), all | some) ->
          non_neg_integer() | closed.
charge(Words, N, Bound, How) ->
    ok = atomics:add(Words, ?UNDER_WAY, N),
    case add(Words, N, Bound, How, atomics:get(Words, ?USED)) of
        N ->
            N;
        Fewer when is_integer(Fewer) ->
            ok = atomics:sub(Words, ?UNDER_WAY, N - Fewer),
            Fewer;
        closed ->
            ok = atomics:sub(Words, ?UNDER_WAY, N),
            ok = atomics:add(Words, ?REFUSED, N),
            closed
    end.

add(_, _, _, _, Used) when Used >= ?CLOSED div 2 ->
    closed;
add(Words, N, Bound, How, Used) ->
    Room = case Bound - Used of
               Enough when Enough >= N -> N;
               Less when Less > 0, How =:= some -> Less;
               _ -> 0
           end,
    case Room =:= 0 orelse atomics:compare_exchange(Words, ?USED, Used, Used + Room) of
        true -> 0;
        ok -> Room;
        Other -> add(Words, N, Bound, How, Other)
    end.

%% @doc N messages that were charged are in the mailbox.
-spec sent(words(), pos_integer()) -> ok.
sent(Words, N) ->
    ok = atomics:sub(Words, ?UNDER_WAY, N),
    ok = atomics:add(Words, ?ACCEPTED, N),
    atomics:add(Words, ?BATCHES, 1).

%% @doc Counts messages for which there was no room.
-spec dropped(words(), pos_integer()) -> ok.
dropped(Words, N) -> atomics:add(Words, ?DROPPED, N).

%% @doc Takes N messages out. True if somebody asked to be told that no more than `Low' are left;
%% only one caller gets it.
-spec done(words(), non_neg_integer(), Low :: non_neg_integer()) -> boolean().
done(Words, N, Low) ->
    Left = take(Words, N, atomics:get(Words, ?USED)),
    Left =< Low andalso atomics:get(Words, ?ASKED) =:= 1
        andalso atomics:exchange(Words, ?ASKED, 0) =:= 1.

%% Never below nothing: a charge may have been forgiven of a producer that was only slow.
take(_, _, Used) when Used >= ?CLOSED div 2 ->
    0;
take(Words, N, Used) ->
    Left = max(0, Used - N),
    case atomics:compare_exchange(Words, ?USED, Used, Left) of
        ok -> Left;
        Other -> take(Words, N, Other)
    end.

%% @doc From now on {@link done/3} tells. Look at {@link used/1} after it.
-spec ask(words()) -> ok.
ask(Words) -> atomics:put(Words, ?ASKED, 1).

%% @doc Nobody asks any more.
-spec forget(words()) -> ok.
forget(Words) -> atomics:put(Words, ?ASKED, 0).

%% @doc For a producer that found no room and does not wait: may a killed one have taken it? True
%% for one of all that ask, until {@link forget/1}.
-spec doubtful(words()) -> boolean().
doubtful(Words) ->
    atomics:get(Words, ?UNDER_WAY) > 0 andalso atomics:exchange(Words, ?ASKED, 1) =:= 0.

%% @doc Messages with the consumer.
-spec used(words()) -> integer().
used(Words) -> atomics:get(Words, ?USED).

%% @doc Messages that are charged and perhaps not sent, and all that were ever sent.
-spec under_way(words()) -> {integer(), integer()}.
under_way(Words) -> {atomics:get(Words, ?UNDER_WAY), atomics:get(Words, ?ACCEPTED)}.

%% @doc Gives back what producers charged that were killed before they sent.
-spec forgive(words(), integer()) -> ok.
forgive(Words, N) ->
    ok = atomics:sub(Words, ?UNDER_WAY, N),
    _ = take(Words, N, atomics:get(Words, ?USED)),
    ok.

%% @doc Nothing is accepted any more. What the consumer had not done is lost, and counted.
-spec close(words()) -> ok.
close(Words) ->
    close(Words, atomics:get(Words, ?USED)).

close(_, Used) when Used >= ?CLOSED div 2 ->
    ok;
close(Words, Used) ->
    case atomics:compare_exchange(Words, ?USED, Used, ?CLOSED) of
        ok -> atomics:add(Words, ?LOST, Used);
        Other -> close(Words, Other)
    end.

%% @doc What happened to the messages of the inbox so far, and whether it is open.
-spec figures(words()) -> #{atom() => non_neg_integer() | boolean()}.
figures(Words) ->
    Used = used(Words),
    Open = Used < ?CLOSED div 2,
    #{open => Open,
      waiting => case Open of true -> Used; false -> 0 end,
      accepted => atomics:get(Words, ?ACCEPTED), batches => atomics:get(Words, ?BATCHES),
      dropped => atomics:get(Words, ?DROPPED), refused => atomics:get(Words, ?REFUSED),
      lost => atomics:get(Words, ?LOST)}.
