%% SPDX-License-Identifier: Apache-2.0
%% @doc Who may read: the token, and the check against a foreign name that leads to us. Pure.
%%
%% The token comes as `Authorization: Bearer', or once in the query, from where it goes into a
%% cookie that scripts cannot read and other sites cannot send.
%%
%% A page of another site may have its name resolved to 127.0.0.1 and then read us as its own
%% (DNS rebinding). Its requests have its name in `Host': on a loopback address only names of the
%% loopback are answered, and those that the page was told. No such page can have a bare address as
%% its name: where names were told, addresses are answered as well.
-module(erlane_dash_auth).

-export([host/2, same_site/2, allowed/3, same/2, cookie/3]).

-export_type([who/0]).

-type who() :: #{token := binary() | none, loopback := boolean(), hosts := [binary()], _ => _}.

%% @doc Whether the host of a request may be ours.
-spec host(Host :: binary(), who()) -> boolean().
host(_, #{loopback := false, hosts := []}) -> true;
%% HTTP/1.0 without a host: no browser does this.
host(<<>>, _) -> true;
host(Host, #{loopback := Loopback, hosts := Hosts}) ->
    Name = lower(without_port(Host)),
    Name =:= <<"localhost">> orelse local_name(Name) orelse address(Name, Loopback)
        orelse lists:member(Name, Hosts).

without_port(<<"[", _/binary>> = Host) ->
    case binary:split(Host, <<"]">>) of
        [<<"[", Name/binary>>, <<>>] -> Name;
        [<<"[", Name/binary>>, <<":", _/binary>>] -> Name;
        _ -> Host
    end;
without_port(Host) ->
    hd(binary:split(Host, <<":">>)).

%% Names below localhost are loopback by RFC 6761.
local_name(Name) ->
    binary:longest_common_suffix([Name, <<".localhost">>]) =:= 10.

address(Name, Loopback) ->
    case inet:parse_strict_address(binary_to_list(Name)) of
        {ok, {127, _, _, _}} -> true;
        {ok, {0, 0, 0, 0, 0, 0, 0, 1}} -> true;
        {ok, _} -> not Loopback;
        _ -> false
    end.

%% @doc Whether a request may come from a page of ours. A page of another site cannot read our
%% answers, but without this its requests would hold places of viewers and make the node sample.
-spec same_site([{binary(), binary()}], Host :: binary()) -> boolean().
same_site(Headers, Host) ->
    lists:all(fun({<<"sec-fetch-site">>, Site}) -> Site =:= <<"same-origin">> orelse
                                                       Site =:= <<"none">>;
                 ({<<"origin">>, Origin}) -> case binary:split(Origin, <<"://">>) of
                                                 [_, From] -> lower(From) =:= lower(Host);
                                                 _ -> false
                                             end;
                 (_) -> true
              end, Headers).

%% @doc Whether the headers of a request to a host have the token.
-spec allowed([{binary(), binary()}], Host :: binary(), who()) -> boolean().
allowed(_, _, #{token := none}) -> true;
allowed(Headers, Host, #{token := Token}) ->
    Name = name(Host),
    lists:any(fun(Given) -> same(Given, Token) end,
              [Given || {<<"authorization">>, Value} <- Headers, Given <- bearer(Value)] ++
              [Given || {<<"cookie">>, Value} <- Headers, Given <- cookies(Name, Value)]).

bearer(<<Scheme:7/binary, Token/binary>>) ->
    case lower(Scheme) of
        <<"bearer ">> -> [trim(Token)];
        _ -> []
    end;
bearer(_) ->
    [].

cookies(Name, Value) ->
    [Given || Pair <- binary:split(Value, <<";">>, [global]),
              [Key, Given] <- [binary:split(trim(Pair), <<"=">>)], Key =:= Name].

%% @doc Compares in a time that tells nothing but the length.
-spec same(binary(), binary()) -> boolean().
same(Given, Token) when byte_size(Given) =:= byte_size(Token) ->
    Differences = lists:zipwith(fun(A, B) -> A bxor B end, binary_to_list(Given),
                                binary_to_list(Token)),
    lists:foldl(fun(D, Acc) -> D bor Acc end, 0, Differences) =:= 0;
same(_, _) ->
    false.

%% @doc The value of the header that keeps the token.
-spec cookie(Host :: binary(), Token :: binary(), http | https) -> binary().
cookie(Host, Token, Scheme) ->
    iolist_to_binary([name(Host), $=, Token, "; Path=/; HttpOnly; SameSite=Strict",
                      ["; Secure" || Scheme =:= https]]).

%% Cookies are for all ports of a host: nodes on one machine need a name each.
name(Host) ->
    Name = without_port(Host),
    case re:run(Host, ":([0-9]+)\\z", [{capture, all_but_first, binary}]) of
        {match, [Port]} when Name =/= Host -> <<"erlane_dash_", Port/binary>>;
        _ -> <<"erlane_dash">>
    end.

%% Not those of the module string, which fail for bytes that are no text.
lower(Text) -> << <<(if C >= $A, C =< $Z -> C + 32; true -> C end)>> || <<C>> <= Text >>.

trim(Text) -> re:replace(Text, "^[ \t]+|[ \t]+$", "", [global, {return, binary}]).
