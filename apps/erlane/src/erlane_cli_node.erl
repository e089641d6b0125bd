%% SPDX-License-Identifier: Apache-2.0
%% @doc The options of a command that looks at another node: which one, and its cookie.
-module(erlane_cli_node).

-export([options/0, node/1, way/1]).

%% @doc For {@link erlane_cli_options:parse/2}.
-spec options() -> #{string() => {atom(), text}}.
options() ->
    #{"--node" => {node, text}, "--cookie" => {cookie, text}}.

%% @doc The node, from the options or ERLANE_NODE; a name without a host is one of this host.
-spec node(Given :: map()) -> {ok, node()} | {error, string()}.
node(Given) ->
    case maps:get(node, Given, os:getenv("ERLANE_NODE", "")) of
        "" -> {error, "--node NODE is required, or ERLANE_NODE"};
        Name -> {ok, name(Name)}
    end.

name(Text) ->
    case lists:member($@, Text) of
        true ->
            list_to_atom(Text);
        false ->
            {ok, Host} = inet:gethostname(),
            list_to_atom(Text ++ "@" ++ hd(string:lexemes(Host, ".")))
    end.

%% @doc For {@link erlane_prof:connect/2}: the cookie, from the options or ERLANE_COOKIE.
-spec way(Given :: map()) -> #{cookie => atom()}.
way(Given) ->
    case maps:get(cookie, Given, os:getenv("ERLANE_COOKIE", "")) of
        "" -> #{};
        Cookie -> #{cookie => list_to_atom(Cookie)}
    end.
