%% SPDX-License-Identifier: Apache-2.0
%% @doc What a subscription gets when it has caught up: pure functions.
-module(erlane_fanout_policy).

-export([catch_up/5]).

-export_type([gap/0, part/0]).

-type gap() :: none | {From :: pos_integer(), To :: pos_integer()}.
%% A gap to be told first, then messages whose last has this number. Together they follow on what
%% was delivered before, without a hole.
-type part() :: {gap(), [term()], Last :: non_neg_integer()}.

%% @doc What the subscription gets now. `Next': the first number that it has not got. `Kept': what
%% there is, the last one first and with the number `Head'; it may begin after `Next', or before.
%% For `{conflate, _}' the last message of each key, as `{Number, Message}', in any order.
%%
%% `drop_oldest': the last messages that fit into the limit. `block': the next ones that do.
%% `drop_newest': none. In each case at least one message, if there is one at all.
-spec catch_up(erlane_fanout_opts:policy(), pos_integer(), pos_integer(), non_neg_integer(),
               [{Bytes :: pos_integer(), term()}] | [{Number :: pos_integer(), term()}]) -> part().
catch_up({conflate, _}, _, Next, Head, Latest) ->
    Messages = [M || {N, M} <- lists:keysort(1, Latest), N >= Next],
    {gap(Next, Head - length(Messages)), Messages, Head};
catch_up(drop_newest, _, Next, Head, _) ->
    {gap(Next, Head), [], Head};
catch_up(drop_oldest, Limit, Next, Head, Kept) ->
    {First, Messages} = newest(Kept, Head, Next, Limit, 0, []),
    {gap(Next, First - 1), Messages, Head};
catch_up(block, Limit, Next, Head, Kept) ->
    {First, All} = since(Kept, Head, Next, []),
    {N, Messages} = oldest(All, Limit, 0, 0, []),
    {gap(Next, First - 1), Messages, First + N - 1}.

gap(From, To) when From > To -> none;
gap(From, To) -> {From, To}.

newest([{Bytes, Message} | Rest], N, Next, Limit, Sum, Found)
  when N >= Next, Sum + Bytes =< Limit; N >= Next, Found =:= [] ->
    newest(Rest, N - 1, Next, Limit, Sum + Bytes, [Message | Found]);
newest(_, N, _, _, _, Found) ->
    {N + 1, Found}.

since([Entry | Rest], N, Next, Found) when N >= Next -> since(Rest, N - 1, Next, [Entry | Found]);
since(_, N, _, Found) -> {N + 1, Found}.

oldest([{Bytes, Message} | Rest], Limit, Sum, N, Found)
  when Sum + Bytes =< Limit; Found =:= [] ->
    oldest(Rest, Limit, Sum + Bytes, N + 1, [Message | Found]);
oldest(_, _, _, N, Found) ->
    {N, lists:reverse(Found)}.
