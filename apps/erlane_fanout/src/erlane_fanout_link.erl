%% SPDX-License-Identifier: Apache-2.0
%% @doc What an intake knows of the nodes that publish to it: where something of theirs may be
%% missing.
%%
%% A link is what a node calls its way to this one. It makes a new one, a later one, each time that
%% it comes to know this node, and all that it publishes here comes with the link under which its
%% publisher found this node. So two messages of a publisher with the same link have nothing
%% between them that found no way here: what is skipped is followed by another link.
%%
%% What is lost on the way is lost with a connection, and this node hears of its end before
%% anything comes over the next one. From then on the link is closed: what still comes with it,
%% left over or sent late, is dropped, so that nothing is taken behind the hole before the other
%% node has a new link.
%%
%% A lane of the router may be replaced, or its partner, while the connection lasts: then there is
%% a second stream of the same lane over it.
%%
%% The rows are in a table, for an intake that begins anew.
-module(erlane_fanout_link).

-export([load/1, came/2, down/2, stream/3, known/2, after_crash/1]).

-export_type([link/0, links/0]).

-include("erlane_fanout.hrl").

%% The node's erlane_fanout_lanes, by which its incarnations differ, and a number that grows in
%% each.
-type link() :: {Member :: pid(), N :: integer()}.

%% The state; and which lanes of the node's router have begun to send over this connection.
-type known() :: {link() | none, open | closed, [pos_integer()]}.
-record(links, {name :: atom(), nodes = #{} :: #{node() => known()}}).
-opaque links() :: #links{}.

%% @doc What the intake of this name knew before.
-spec load(atom()) -> links().
load(Name) ->
    Rows = ets:match(?LINKS, {{Name, '$1'}, '$2', '$3', '$4'}),
    #links{name = Name, nodes = maps:from_list([{Node, {Link, State, Lanes}}
                                                || [Node, Link, State, Lanes] <- Rows])}.

%% @doc Something came with this link. `take': nothing is missing before it, or it was told;
%% `gap': something may be; `drop': it is from before a gap.
-spec came(link(), links()) -> {take | gap | drop, links()}.
came({Member, N} = Link, #links{nodes = Nodes} = Links) ->
    Node = node(Member),
    case Nodes of
        #{Node := {Link, open, _}} -> {take, Links};
        #{Node := {{Member, Last}, _, _}} when N =< Last -> {drop, Links};
        #{Node := {_, open, Lanes}} -> {gap, put(Node, {Link, open, Lanes}, Links)};
        #{Node := {_, closed, Lanes}} -> {take, put(Node, {Link, open, Lanes}, Links)};
        #{} -> {take, put(Node, {Link, open, []}, Links)}
    end.

%% @doc The connection to a node is no more.
-spec down(node(), links()) -> {take | gap, links()}.
down(Node, #links{nodes = Nodes} = Links) ->
    case Nodes of
        #{Node := {Link, open, _}} -> {gap, put(Node, {Link, closed, []}, Links)};
        #{Node := {Link, closed, [_ | _]}} -> {take, put(Node, {Link, closed, []}, Links)};
        #{} -> {take, Links}
    end.

%% @doc This lane of a node's router begins to send here.
-spec stream(node(), pos_integer(), links()) -> {take | gap, links()}.
stream(Node, Lane, #links{nodes = Nodes} = Links) ->
    {Link, State, Lanes} = maps:get(Node, Nodes, {none, closed, []}),
    case lists:member(Lane, Lanes) of
        true -> {known(Node, Links), Links};
        false -> {take, put(Node, {Link, State, [Lane | Lanes]}, Links)}
    end.

%% @doc `gap', if something of this node may have come and no gap was told since.
-spec known(node(), links()) -> take | gap.
known(Node, #links{nodes = Nodes}) ->
    case Nodes of
        #{Node := {_, open, _}} -> gap;
        #{} -> take
    end.

%% @doc Of which nodes something may be missing: what waited in the intake before is lost, and the
%% end of a connection may be among it.
-spec after_crash(links()) -> {[node()], links()}.
after_crash(#links{nodes = Nodes} = Links) ->
    Open = [Node || {Node, {_, open, _}} <- maps:to_list(Nodes)],
    {Open, lists:foldl(fun(Node, Acc) -> element(2, down(Node, Acc)) end, Links,
                       maps:keys(Nodes) -- nodes())}.

put(Node, {Link, State, Lanes} = Known, #links{name = Name, nodes = Nodes} = Links) ->
    true = ets:insert(?LINKS, {{Name, Node}, Link, State, Lanes}),
    Links#links{nodes = Nodes#{Node => Known}}.
