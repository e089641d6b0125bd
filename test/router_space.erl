%% SPDX-License-Identifier: Apache-2.0
%% Network namespaces for nodes: one for each, joined by veth pairs to a bridge in a namespace of
%% its own, so that removing the namespaces leaves nothing behind. Link addresses are fixed: where
%% a link is down, what is sent vanishes without an answer, as towards a host without power.
-module(router_space).

-export([available/0, make/1, remove/1, name/2, address/1, down/2, up/2]).

-define(PREFIX, "erlane_router_").

%% Whether namespaces can be made here; else the reason to skip.
-spec available() -> ok | {skip, string()}.
available() ->
    case {os:find_executable("ip"), string:trim(os:cmd("id -u"))} of
        {false, _} -> {skip, "ip (iproute2) is not installed"};
        {_, "0"} -> try_out(?PREFIX ++ "try" ++ os:getpid());
        {_, _} -> {skip, "network namespaces need root"}
    end.

try_out(Name) ->
    Made = ip(["netns add ", Name]),
    Bridge = ip(["-n ", Name, " link add hub type bridge"]),
    Veth = ip(["-n ", Name, " link add x1 type veth peer name x2"]),
    _ = ip(["netns del ", Name]),
    case Made ++ Bridge ++ Veth of
        "" -> ok;
        Text -> {skip, "no network namespaces with a bridge and veth here: " ++ Text}
    end.

%% Count namespaces, numbered from 1, with links between all of them.
-spec make(pos_integer()) -> map().
make(Count) ->
    sweep(),
    Id = ?PREFIX ++ os:getpid() ++ "_" ++ integer_to_list(erlang:unique_integer([positive])),
    Space = #{id => Id, count => Count},
    Hub = Id ++ "_hub",
    done(["netns add ", Hub]),
    done(["-n ", Hub, " link add hub type bridge"]),
    done(["-n ", Hub, " link set hub up"]),
    lists:foreach(fun(N) -> join(Space, Hub, N) end, lists:seq(1, Count)),
    Space.

join(#{count := Count} = Space, Hub, N) ->
    Name = name(Space, N),
    done(["netns add ", Name]),
    done(["-n ", Name, " link set lo up"]),
    done(["-n ", Hub, " link add ", port(N), " type veth peer name e0 netns ", Name]),
    done(["-n ", Name, " link set e0 address ", mac(N)]),
    done(["-n ", Name, " addr add ", address(N), "/24 dev e0"]),
    done(["-n ", Name, " link set e0 up"]),
    [done(["-n ", Name, " neigh replace ", address(M), " lladdr ", mac(M),
           " dev e0 nud permanent"]) || M <- lists:seq(1, Count), M =/= N],
    done(["-n ", Hub, " link set ", port(N), " master hub"]),
    done(["-n ", Hub, " link set ", port(N), " up"]).

%% The nodes inside have to be ended first.
-spec remove(map()) -> ok.
remove(#{id := Id}) ->
    [done(["netns del ", Name]) || Name <- names(), lists:prefix(Id ++ "_", Name)],
    ok.

%% What a run left that was killed.
sweep() ->
    [done(["netns del ", Name])
     || Name <- names(), [Pid | _] <- [string:lexemes(lists:nthtail(length(?PREFIX), Name), "_")],
        not filelib:is_dir("/proc/" ++ Pid)].

names() ->
    [hd(string:lexemes(Line, " ")) || Line <- string:lexemes(ip("netns list"), "\n"),
                                      lists:prefix(?PREFIX, Line)].

-spec name(map(), pos_integer()) -> string().
name(#{id := Id}, N) ->
    Id ++ "_" ++ integer_to_list(N).

-spec address(pos_integer()) -> string().
address(N) -> "10.77.0." ++ integer_to_list(N).
mac(N) -> "02:00:0a:4d:00:" ++ integer_to_list(10 + N).
port(N) -> "p" ++ integer_to_list(N).

%% Cuts one node off from all others, and mends that.
-spec down(map(), pos_integer()) -> ok.
down(#{id := Id}, N) ->
    done(["-n ", Id, "_hub link set ", port(N), " down"]).

-spec up(map(), pos_integer()) -> ok.
up(#{id := Id}, N) ->
    done(["-n ", Id, "_hub link set ", port(N), " up"]).

done(Args) ->
    case ip(Args) of
        "" -> ok;
        Text -> error({ip, lists:flatten(Args), Text})
    end.

ip(Args) -> os:cmd(lists:flatten(["ip ", Args, " 2>&1"])).
