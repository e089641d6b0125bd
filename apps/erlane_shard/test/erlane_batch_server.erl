%% SPDX-License-Identifier: Apache-2.0
%% A gen_server that produces, or consumes: it is started with an inbox, or with `consumer'.
-module(erlane_batch_server).
-behaviour(gen_server).

-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

init(consumer) ->
    {ok, Inbox} = erlane_batch:inbox(#{}),
    {ok, {Inbox, 0}};
init(Inbox) ->
    {ok, {Inbox, 0}}.

handle_call(inbox, _From, {Inbox, _} = State) -> {reply, Inbox, State};
handle_call(sum, _From, {_, Sum} = State) -> {reply, Sum, State}.

handle_cast({send, Message}, {Inbox, _} = State) ->
    ok = erlane_batch:send(Inbox, Message),
    {noreply, State}.

handle_info({erlane_batch, _Ref, Numbers}, {Inbox, Sum}) ->
    ok = erlane_batch:done(Inbox, Numbers),
    {noreply, {Inbox, Sum + lists:sum(Numbers)}};
handle_info({erlane_batch, _} = Message, State) ->
    ok = erlane_batch:handle(Message),
    {noreply, State}.
