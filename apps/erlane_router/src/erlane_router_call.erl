%% SPDX-License-Identifier: Apache-2.0
%% @doc Calls to generic servers through the router.
%%
%% The answer goes to an alias that ends with the wait, so that a late one is nobody's message.
-module(erlane_router_call).

-export([call/3, multicall/3]).

%% That a reference with this mark in front is an alias is the way of gen.
-dialyzer({no_improper_lists, request/2}).

-type server() :: pid() | atom() | {atom(), node()}.

%% @doc As gen_server:call/3.
-spec call(server(), term(), timeout()) -> term().
call(Dest, Request, Timeout) ->
    Ref = request(Dest, Request),
    case answer(Ref, Dest, Timeout) of
        {ok, Reply} -> Reply;
        {error, Reason} -> exit({Reason, {erlane_router, call, [Dest, Request, Timeout]}})
    end.

%% @doc All at the same time.
-spec multicall([server()], term(), timeout()) ->
          {[{server(), term()}], [{server(), term()}]}.
multicall(Dests, Request, Timeout) ->
    %% A destination that is none raises before the first request is sent.
    _ = erlane_router_dest:group(Dests),
    Until = until(Timeout),
    Asked = [{Dest, request(Dest, Request)} || Dest <- Dests],
    Answers = [{Dest, answer(Ref, Dest, left(Until))} || {Dest, Ref} <- Asked],
    {[{Dest, Reply} || {Dest, {ok, Reply}} <- Answers],
     [{Dest, Reason} || {Dest, {error, Reason}} <- Answers]}.

request(Alias, _) when is_reference(Alias) ->
    error(badarg, [Alias]);
request(Dest, Request) ->
    Ref = erlang:monitor(process, Dest, [{alias, demonitor}]),
    ok = erlane_router:send(Dest, {'$gen_call', {self(), [alias | Ref]}, Request}),
    Ref.

answer(Ref, Dest, Timeout) ->
    receive
        {[alias | Ref], Reply} ->
            demonitor(Ref, [flush]),
            {ok, Reply};
        {'DOWN', Ref, process, _, noconnection} ->
            {error, {nodedown, node_of(Dest)}};
        {'DOWN', Ref, process, _, Reason} ->
            {error, Reason}
    after Timeout ->
        demonitor(Ref, [flush]),
        %% It may have come at the last moment.
        receive {[alias | Ref], Reply} -> {ok, Reply}
        after 0 -> {error, timeout}
        end
    end.

node_of(Dest) ->
    {Node, _} = erlane_router_dest:place(Dest),
    Node.

until(infinity) -> infinity;
until(Ms) -> erlang:monotonic_time(millisecond) + Ms.

left(infinity) -> infinity;
left(Until) -> max(0, Until - erlang:monotonic_time(millisecond)).
