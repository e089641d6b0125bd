%% SPDX-License-Identifier: Apache-2.0
%% Stands for epmd on the nodes of the router's suites: the part of a node's name behind its last
%% `_' is the port it listens on. So nodes in namespaces of their own need no daemon, and a test
%% can lead one node's connection to another through a relay of its own.
-module(router_epmd).

-export([start_link/0, register_node/2, register_node/3, listen_port_please/2, address_please/3,
         port_please/2, port_please/3, names/1]).
-export([detour/2]).

-define(DIST_VERSION, 6).

%% Connections of this node to Node go to this port of 127.0.0.1 from now on.
-spec detour(node(), inet:port_number()) -> ok.
detour(Node, Port) ->
    persistent_term:put({?MODULE, atom_to_list(Node)}, Port).

start_link() ->
    ignore.

register_node(Name, Port) ->
    register_node(Name, Port, inet).

%% Each start of a node is another incarnation, which its pids tell by this number.
register_node(_Name, _Port, _Family) ->
    {ok, 4 + rand:uniform(16#fffffff0)}.

listen_port_please(Name, _Host) ->
    {ok, port(Name)}.

address_please(Name, Host, Family) ->
    case persistent_term:get({?MODULE, text(Name) ++ "@" ++ text(Host)}, none) of
        none ->
            {ok, Ip} = inet:getaddr(Host, Family),
            {ok, Ip, port(Name), ?DIST_VERSION};
        Port ->
            {ok, {127, 0, 0, 1}, Port, ?DIST_VERSION}
    end.

port_please(Name, Host) ->
    port_please(Name, Host, infinity).

port_please(Name, _Host, _Timeout) ->
    {port, port(Name), ?DIST_VERSION}.

names(_Host) ->
    {error, address}.

port(Name) ->
    list_to_integer(lists:last(string:split(text(Name), "_", all))).

text(Name) when is_atom(Name) -> atom_to_list(Name);
text(Name) -> Name.
