%% SPDX-License-Identifier: Apache-2.0
%% @doc Destinations: whose they are, and lists of them by node. Pure.
-module(erlane_router_dest).

-export([place/1, group/1]).

-export_type([dest/0]).

-type dest() :: pid() | atom() | {atom(), node()} | reference().

%% @doc The node of a destination and what it is there. Raises badarg for anything else.
-spec place(dest()) -> {node(), erlane_router_frame:dest()}.
place(Pid) when is_pid(Pid) -> {node(Pid), Pid};
place({Name, Node}) when is_atom(Name), is_atom(Node) -> {Node, Name};
place(Name) when is_atom(Name) -> {node(), Name};
place(Alias) when is_reference(Alias) -> {node(Alias), Alias};
place(Dest) -> error(badarg, [Dest]).

%% @doc Destinations by node, in the order of the list, duplicates included, and how many there
%% are. Raises badarg for an improper list and for an element that is no destination.
-spec group([dest()]) -> [{node(), pos_integer(), [erlane_router_frame:dest()]}].
group([]) ->
    [];
group([First | Rest]) ->
    {Node, Dest} = place(First),
    Groups = group(Rest, Node, 1, [Dest], #{}),
    [{At, N, lists:reverse(Dests)} || {At, {N, Dests}} <- maps:to_list(Groups)];
group(Dests) ->
    error(badarg, [Dests]).

%% Neighbours of one node, which many lists consist of, need no map.
group([Pid | Rest], Node, N, Dests, Groups) when is_pid(Pid), node(Pid) =:= Node ->
    group(Rest, Node, N + 1, [Pid | Dests], Groups);
group([Other | Rest], Node, N, Dests, Groups) ->
    case place(Other) of
        {Node, Dest} ->
            group(Rest, Node, N + 1, [Dest | Dests], Groups);
        {Next, Dest} ->
            Groups1 = Groups#{Node => {N, Dests}},
            {M, Before} = maps:get(Next, Groups1, {0, []}),
            group(Rest, Next, M + 1, [Dest | Before], Groups1)
    end;
group([], Node, N, Dests, Groups) ->
    Groups#{Node => {N, Dests}};
group(Tail, _, _, _, _) ->
    error(badarg, [Tail]).
