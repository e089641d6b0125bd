%% SPDX-License-Identifier: Apache-2.0
%% @doc A barrier through every lane of some nodes.
-module(erlane_router_sync).

-export([sync/2]).

-include("erlane_router.hrl").

%% @doc Asks all lanes at once and waits for the slowest.
-spec sync([node()], timeout()) ->
          ok | {error, #{node() => timeout | nodedown | no_router}}.
sync(Nodes, Timeout) ->
    Until = until(Timeout),
    Asked = [{Node, ask(Node)} || Node <- lists:usort(Nodes), Node =/= node()],
    case [{Node, Why} || {Node, Refs} <- Asked, Why <- [answers(Refs, Until, ok)], Why =/= ok] of
        [] -> ok;
        Failed -> {error, maps:from_list(Failed)}
    end.

until(infinity) -> infinity;
until(Ms) when is_integer(Ms), Ms >= 0 -> erlang:monotonic_time(millisecond) + Ms;
until(Other) -> error(badarg, [Other]).

ask(Node) when is_atom(Node) ->
    #peer{lanes = Lanes} = erlane_router_peers:peer(Node),
    [ask_lane(Lane) || Lane <- tuple_to_list(Lanes)];
ask(Node) ->
    error(badarg, [Node]).

ask_lane(Lane) ->
    Ref = erlang:monitor(process, Lane, [{alias, reply_demonitor}]),
    Lane ! {sync, Ref},
    Ref.

%% The first answer that is not ok is the node's; the others are let go.
answers([Ref | Refs], Until, ok) ->
    receive
        {Ref, Answer} -> answers(Refs, Until, Answer);
        {'DOWN', Ref, process, _, _} -> answers(Refs, Until, nodedown)
    after left(Until) ->
        answers([Ref | Refs], Until, timeout)
    end;
answers(Refs, _, Why) ->
    lists:foreach(fun forget/1, Refs),
    Why.

left(infinity) -> infinity;
left(Until) -> max(0, Until - erlang:monotonic_time(millisecond)).

forget(Ref) ->
    demonitor(Ref, [flush]),
    receive {Ref, _} -> ok after 0 -> ok end.
