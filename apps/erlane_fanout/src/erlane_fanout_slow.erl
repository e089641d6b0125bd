%% SPDX-License-Identifier: Apache-2.0
%% @doc Subscriptions of a feed that are over their limit, and what is kept for them.
%%
%% They cost nothing while messages come: what `drop_oldest' and `block' may want is kept once for
%% all of them, and so is the last message of each key for all that have the same function.
-module(erlane_fanout_slow).

-export([new/0, enter/7, note/4, leave/3, moved/3, next/2, catch_up/4, blocked/1]).

-export_type([slow/0]).

-include("erlane_fanout_feed.hrl").

%% Beyond its limit a subscription that blocks publishers can be sent what was under way: by other
%% nodes, and by publishers that had looked before.
-define(BLOCK_SLACK, 16777216).

-record(slow, {next = #{} :: #{erlane_fanout_sub:sub() => pos_integer()},
               %% Last messages, oldest at the front; the most that anybody may want of them.
               kept = queue:new() :: queue:queue({pos_integer(), term()}),
               count = 0 :: non_neg_integer(), bytes = 0 :: non_neg_integer(),
               limit = 0 :: non_neg_integer(),
               keys = #{} :: #{fun((term()) -> term()) => {Users :: pos_integer(), map()}},
               blocked = 0 :: non_neg_integer()}).
-opaque slow() :: #slow{}.

-spec new() -> slow().
new() -> #slow{}.

%% @doc A subscription is over its limit; it has got everything before `Next'. `Recent': the last
%% messages, the last one first, from `Next' at the latest.
-spec enter(erlane_fanout_sub:sub(), #member{}, pos_integer(), non_neg_integer(),
            non_neg_integer(), [{pos_integer(), term()}], slow()) -> slow().
enter(Sub, Member, Next, Head, Low, Recent, #slow{next = All} = S) ->
    keep(Member, Next, Head, Low, Recent, S#slow{next = All#{Sub => Next}}).

keep(#member{policy = {conflate, Fun}}, Next, Head, _, Recent, #slow{keys = Keys} = S) ->
    {Users, Latest} = maps:get(Fun, Keys, {0, #{}}),
    S#slow{keys = Keys#{Fun => {Users + 1, older(Fun, Recent, Head, Next, Latest)}}};
keep(#member{policy = drop_oldest, limit = Limit}, Next, Head, Low, Recent, S) ->
    extend(Limit, Next, Head, Low, Recent, S);
keep(#member{policy = block, limit = Limit}, Next, Head, Low, Recent, #slow{blocked = N} = S) ->
    extend(Limit + ?BLOCK_SLACK, Next, Head, Low, Recent, S#slow{blocked = N + 1});
keep(_, _, _, _, _, S) ->
    S.

%% What is there of a key already is later.
older(Fun, [{_, Message} | Recent], N, Next, Latest) when N >= Next ->
    Key = key(Fun, Message),
    case Latest of
        #{Key := {M, _}} when M >= N -> older(Fun, Recent, N - 1, Next, Latest);
        #{} -> older(Fun, Recent, N - 1, Next, Latest#{Key => {N, Message}})
    end;
older(_, _, _, _, Latest) ->
    Latest.

%% A message that the function knows no key for is replaced by none.
key(Fun, Message) ->
    try {key, Fun(Message)}
    catch _:_ -> make_ref()
    end.

extend(Limit, Next, Head, Low, Recent, #slow{count = Count} = S) ->
    S1 = S#slow{limit = max(Limit, S#slow.limit)},
    case Next =< Head - Count andalso Low < Head - Count of
        true ->
            %% What is kept now begins later than what this one may want.
            Entries = lists:sublist(Recent, Head - max(Low, Next - 1)),
            trim(S1#slow{kept = queue:from_list(lists:reverse(Entries)), count = length(Entries),
                         bytes = lists:sum([B || {B, _} <- Entries])});
        false ->
            S1
    end.

trim(#slow{bytes = Bytes, limit = Limit, count = Count, kept = Kept} = S)
  when Bytes > Limit, Count > 1 ->
    {{value, {B, _}}, Rest} = queue:out(Kept),
    trim(S#slow{kept = Rest, count = Count - 1, bytes = Bytes - B});
trim(S) ->
    S.

%% @doc A message was published.
-spec note(pos_integer(), pos_integer(), term(), slow()) -> slow().
note(N, Bytes, Message, #slow{limit = Limit} = S) when Limit > 0 ->
    #slow{kept = Kept, count = Count, bytes = Sum} = S,
    latest(N, Message, trim(S#slow{kept = queue:in({Bytes, Message}, Kept), count = Count + 1,
                                   bytes = Sum + Bytes}));
note(N, _, Message, S) ->
    latest(N, Message, S).

latest(_, _, #slow{keys = Keys} = S) when map_size(Keys) =:= 0 -> S;
latest(N, Message, #slow{keys = Keys} = S) ->
    S#slow{keys = maps:map(fun(Fun, {Users, Latest}) ->
                                   {Users, Latest#{key(Fun, Message) => {N, Message}}}
                           end, Keys)}.

%% @doc It has caught up, or is gone. `none': it was the last one, and nothing is kept any more.
-spec leave(erlane_fanout_sub:sub(), #member{}, slow()) -> slow() | none.
leave(Sub, #member{policy = Policy}, #slow{next = All} = S) ->
    case maps:remove(Sub, All) of
        Rest when map_size(Rest) =:= 0 -> none;
        Rest -> drop(Policy, S#slow{next = Rest})
    end.

drop({conflate, Fun}, #slow{keys = Keys} = S) ->
    case Keys of
        #{Fun := {1, _}} -> S#slow{keys = maps:remove(Fun, Keys)};
        #{Fun := {Users, Latest}} -> S#slow{keys = Keys#{Fun := {Users - 1, Latest}}}
    end;
drop(block, #slow{blocked = N} = S) -> S#slow{blocked = N - 1};
drop(_, S) -> S.

%% @doc It has got everything before this number by now.
-spec moved(erlane_fanout_sub:sub(), pos_integer(), slow()) -> slow().
moved(Sub, Next, #slow{next = All} = S) -> S#slow{next = All#{Sub := Next}}.

%% @doc The first number it has not got.
-spec next(erlane_fanout_sub:sub(), slow()) -> pos_integer().
next(Sub, #slow{next = All}) -> maps:get(Sub, All).

%% @doc What it gets now.
-spec catch_up(erlane_fanout_sub:sub(), #member{}, non_neg_integer(), slow()) ->
          erlane_fanout_policy:part().
catch_up(Sub, #member{policy = Policy, limit = Limit}, Head, #slow{next = All} = S) ->
    erlane_fanout_policy:catch_up(Policy, Limit, maps:get(Sub, All), Head, store(Policy, S)).

store({conflate, Fun}, #slow{keys = Keys}) ->
    {_, Latest} = maps:get(Fun, Keys),
    maps:values(Latest);
store(drop_newest, _) -> [];
store(_, #slow{kept = Kept}) -> lists:reverse(queue:to_list(Kept)).

%% @doc Are publishers to wait?
-spec blocked(slow() | none) -> boolean().
blocked(none) -> false;
blocked(#slow{blocked = N}) -> N > 0.
