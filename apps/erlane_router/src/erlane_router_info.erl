%% SPDX-License-Identifier: Apache-2.0
%% @doc The figures of the lanes, read from their memory: a lane that is suspended answers too.
-module(erlane_router_info).

-export([info/0]).

-export_type([info/0]).

-include("erlane_router.hrl").

-type info() ::
        #{{node(), Lane :: pos_integer()} =>
              #{peer := router | plain | connecting | down,
                queued := non_neg_integer(), bytes := non_neg_integer(),
                inflight := non_neg_integer(), confirmed := non_neg_integer(),
                dropped := non_neg_integer(), refused := non_neg_integer(),
                unconfirmed := non_neg_integer(),
                plain := non_neg_integer(), batches := non_neg_integer(),
                flushes := #{messages | bytes | age | idle | large | sync
                             => non_neg_integer()}}}.

%% @doc Of all nodes that were sent to.
-spec info() -> info().
info() ->
    maps:from_list([{{Node, I}, lane(element(I, Words), element(I, Stats))}
                    || #peer{node = Node, words = Words, stats = Stats}
                           <- erlane_router_peers:all(),
                       I <- lists:seq(1, tuple_size(Stats))]).

lane(Words, Stats) ->
    Word = atomics:get(Words, ?WORD),
    Get = fun(I) -> atomics:get(Stats, I) end,
    Sent = Get(?S_SENT),
    %% In this order: what is confirmed meanwhile makes no number negative.
    Confirmed = min(Sent, Get(?S_CONFIRMED)),
    #{peer => element(1 + Get(?S_STATE), {down, connecting, router, plain}),
      queued => ?MESSAGES(Word), bytes => ?BYTES(Word),
      inflight => Sent - Confirmed,
      confirmed => Get(?S_DELIVERED) + Confirmed,
      dropped => Get(?S_DROPPED), refused => Get(?S_REFUSED),
      unconfirmed => Get(?S_UNCONFIRMED),
      plain => Get(?S_PLAIN), batches => Get(?S_BATCHES),
      flushes => #{messages => Get(?S_FLUSH_MESSAGES), bytes => Get(?S_FLUSH_BYTES),
                   age => Get(?S_FLUSH_AGE), idle => Get(?S_FLUSH_IDLE),
                   large => Get(?S_FLUSH_LARGE), sync => Get(?S_FLUSH_SYNC)}}.
