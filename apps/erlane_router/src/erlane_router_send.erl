%% SPDX-License-Identifier: Apache-2.0
%% @doc From a message to an entry in a lane, or to a plain send where that is right.
-module(erlane_router_send).

-export([one/4, many/5, with/3]).

-include("erlane_router.hrl").

-record(how, {key = none :: none | {key, term()}, noconnect = false :: boolean(),
              nosuspend = false :: boolean(), priority = false :: boolean()}).

%% @doc To one destination, in the lane of the key. No process, no table, no timer.
-spec one(node(), erlane_router_frame:dest(), term(), term()) -> ok.
one(Node, At, Message, _) when Node =:= node() ->
    local(At, Message);
one(Node, At, Message, Key) ->
    Peer = erlane_router_peers:peer(Node),
    {Entry, Charge} = entry(Peer, At, Message),
    erlane_router_room:put(Peer, lane(Key, Peer), Entry, Charge).

%% @doc To several destinations on one node, with one copy of the message.
-spec many(node(), pos_integer(), [erlane_router_frame:dest()], term(), term()) -> ok.
many(Node, _, Ats, Message, _) when Node =:= node() ->
    lists:foreach(fun(At) -> local(At, Message) end, Ats);
many(Node, 1, [At], Message, Key) ->
    one(Node, At, Message, Key);
many(Node, N, Ats, Message, Key) ->
    Peer = erlane_router_peers:peer(Node),
    {Entry, Charge} = entry(Peer, N, Ats, Message),
    erlane_router_room:put(Peer, lane(Key, Peer), Entry, Charge).

%% @doc To a destination or a list of them, with options.
-spec with(erlane_router:dest() | [erlane_router:dest()], term(), [erlane_router:option()]) ->
          ok | {not_sent, #{node() => noconnect | nosuspend}}.
with(Dests, Message, Options) ->
    How = how(Options, #how{}),
    Groups = case is_list(Dests) of
                 true ->
                     erlane_router_dest:group(Dests);
                 false ->
                     {Node, At} = erlane_router_dest:place(Dests),
                     [{Node, 1, [At]}]
             end,
    Results = [{At, group(At, N, Ats, Message, How)} || {At, N, Ats} <- Groups],
    case [Result || {_, Why} = Result <- Results, Why =/= ok] of
        [] -> ok;
        NotSent -> {not_sent, maps:from_list(NotSent)}
    end.

how([noconnect | Options], How) -> how(Options, How#how{noconnect = true});
how([nosuspend | Options], How) -> how(Options, How#how{nosuspend = true});
how([priority | Options], How) -> how(Options, How#how{priority = true});
how([{key, Key} | Options], How) -> how(Options, How#how{key = {key, Key}});
how([], How) -> How;
how(Options, _) -> error(badarg, [Options]).

group(Node, N, Ats, Message, _) when Node =:= node() ->
    many(Node, N, Ats, Message, none);
group(Node, N, Ats, Message, #how{noconnect = true} = How) ->
    case connected(Node) of
        true -> group(Node, N, Ats, Message, How#how{noconnect = false});
        false -> noconnect
    end;
group(Node, _, Ats, Message, #how{priority = true, nosuspend = NoSuspend}) ->
    priority(Node, Ats, Message, [nosuspend || NoSuspend]);
group(Node, N, Ats, Message, #how{nosuspend = true} = How) ->
    Peer = erlane_router_peers:peer(Node),
    {Entry, Charge} = entry(Peer, N, Ats, Message),
    erlane_router_room:put_now(Peer, lane(key(How), Peer), Entry, Charge);
group(Node, N, Ats, Message, How) ->
    many(Node, N, Ats, Message, key(How)).

key(#how{key = none}) -> self();
key(#how{key = {key, Key}}) -> Key.

connected(Node) -> lists:member(Node, nodes(connected)).

%% The first that is not sent ends it: the rest would find the same connection.
priority(Node, [At | Ats], Message, Options) ->
    To = case is_atom(At) of true -> {At, Node}; false -> At end,
    case plain(To, Message, Options) of
        ok -> priority(Node, Ats, Message, Options);
        NotSent -> NotSent
    end;
priority(_, [], _, _) ->
    ok.

-if(?OTP_RELEASE >= 28).
%% The VM knows the option and takes it as a wish.
plain(To, Message, Options) -> erlang:send(To, Message, [priority | Options]).
-else.
plain(To, Message, Options) -> erlang:send(To, Message, Options).
-endif.

lane(Key, #peer{lanes = Lanes}) -> erlang:phash2(Key, tuple_size(Lanes)) + 1.

entry(#peer{large = Large}, At, Message) ->
    case erlang:external_size(Message) of
        Size when Size =< Large ->
            Bytes = Size + ?ENTRY,
            {{At, Message, Bytes}, ?ONE + Bytes};
        Size ->
            large(At, 1, Message, Size)
    end.

entry(Peer, 1, [At], Message) ->
    entry(Peer, At, Message);
entry(#peer{large = Large}, N, Ats, Message) ->
    case erlang:external_size(Message) of
        Size when Size =< Large ->
            Bytes = Size + ?ENTRY + N * ?DEST,
            {{many, Ats, Message, Bytes, N}, N * ?ONE + Bytes};
        Size ->
            large(Ats, N, Message, Size)
    end.

large(At, N, Message, Size) ->
    Bytes = Size + ?ENTRY + N * ?DEST,
    {{large, At, erlane_router_frame:pack(Message), Bytes, N}, N * ?ONE + Bytes}.

%% A name that nobody has is no error, here as there.
local(Name, Message) when is_atom(Name) ->
    {Name, node()} ! Message,
    ok;
local(At, Message) ->
    At ! Message,
    ok.
