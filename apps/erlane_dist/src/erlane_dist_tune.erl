%% SPDX-License-Identifier: Apache-2.0
%% @doc Sets the options of connections, and puts back what they were.
%%
%% First `new' is set, then the connections there are: one that comes up meanwhile has its
%% settings from the first, or is among the second.
-module(erlane_dist_tune).

-export([tune/2, untune/2]).

-type change() :: erlane_dist:change().
-type error() :: {error, not_alive | restarted | {bad_option, term()}
                         | {gone, node(), term()}}.

%% @doc See {@link erlane_dist:tune/2}.
-spec tune(node(), term()) -> {ok, [change()]} | error().
tune(At, Opts) ->
    case erlane_dist_opts:check(Opts) of
        {ok, Checked} -> on(At, fun() -> tuned(At, Checked) end);
        Error -> Error
    end.

on(At, Fun) ->
    try
        case erlane_dist_node:alive(At) of
            true -> {ok, Fun()};
            false -> {error, not_alive}
        end
    catch
        throw:{gone, Reason} -> {error, {gone, At, Reason}}
    end.

tuned(At, #{want := Want, nodes := Nodes, dry_run := DryRun}) ->
    How = case DryRun of true -> dry_run; false -> ok end,
    New = case Nodes =:= all orelse lists:member(new, Nodes) of
              true -> new(At, Want, How);
              false -> []
          end,
    Peers = erlane_dist_node:peers(At),
    Absent = case Nodes of
                 all -> [];
                 _ -> lists:usort(Nodes) -- [new | [Node || {Node, _} <- Peers]]
             end,
    Chosen = [Peer || {Node, _} = Peer <- Peers,
                      Nodes =:= all orelse lists:member(Node, Nodes)],
    Targets = fun(_, Is) -> erlane_dist_opts:targets(Want, Is) end,
    New ++ lists:sort(fun(#{where := A}, #{where := B}) -> A =< B end,
                      peers(At, Chosen, Targets, How)
                      ++ [failed(Node, noconnection) || Node <- Absent]).

failed(Where, Reason) ->
    #{where => Where, key => all, was => undefined, now => undefined, result => {error, Reason}}.

%%% Connections to come

new(At, Want, How) ->
    Present = [Connection || {_, Connection} <- erlane_dist_node:peers(At)],
    Env = erlane_dist_node:env(At),
    #{connect := Connect, accept := Accept} = Is = erlane_dist_node:new(At, Env),
    ToConnect = erlane_dist_opts:targets(Want, Connect),
    ToAccept = erlane_dist_opts:targets(Want, Accept),
    Kept = #{env => Env, present => Present, run => erlane_dist_node:run(At)},
    case [Row#{side => Side, kept => Kept}
          || {Side, Had, Targets} <- [{connect, Connect, ToConnect}, {accept, Accept, ToAccept}],
             Row <- rows(new, Had, Targets)] of
        [] ->
            [];
        Rows ->
            Result = case {possible(At, Env), How} of
                         {ok, ok} -> set_new(At, Is, Env, ToConnect, ToAccept);
                         {ok, dry_run} -> dry_run;
                         {Error, _} -> Error
                     end,
            case Result of
                {error, Reason} -> [failed(new, Reason)];
                _ -> [Row#{result => Result} || Row <- Rows]
            end
    end.

%% net_kernel merges our options with those in the environment, and crashes, with all
%% connections, if one there is no pair: `inet6' for instance.
possible(At, Env) ->
    Odd = [{error, {kernel, Name, Opt}} || {Name, {ok, Opts}} <- lists:sort(maps:to_list(Env)),
                                           Opt <- odd(Opts)],
    case {erlane_dist_node:supported(At), Odd} of
        {false, _} -> {error, enotsup};
        {true, [First | _]} -> First;
        {true, []} -> ok
    end.

odd([{_, _} | Rest]) -> odd(Rest);
odd([Opt | _]) -> [Opt];
odd([]) -> [];
odd(NoList) -> [NoList].

%% net_kernel crashes, too, when it has no listener.
set_new(At, #{listener := none}, Env, ToConnect, ToAccept) ->
    set_env(At, Env, [{inet_dist_connect_options, ToConnect},
                      {inet_dist_listen_options, ToAccept}]);
set_new(At, _, Env, ToConnect, ToAccept) ->
    case erlane_dist_node:set(At, [{new, ToAccept}]) of
        [ok] when ToConnect =:= ToAccept -> ok;
        %% One side had larger values, and keeps them.
        [ok] -> set_env(At, Env, [{inet_dist_connect_options, ToConnect}]);
        [Error] -> Error
    end.

set_env(At, Env, Sides) ->
    lists:foreach(fun({Name, Values}) ->
                          Opts = maps:to_list(Values) ++ others(maps:get(Name, Env)),
                          ok = erlane_dist_node:set_env(At, Name, {ok, Opts})
                  end, Sides).

%%% Connections there are

%% Targets is asked for each connection, with what it has.
peers(At, Peers, Targets, How) ->
    Read = erlane_dist_node:values(At, Peers),
    Rows = [case Values of
                {ok, Is} ->
                    {Node, Connection, rows(Node, Is, Targets(Node, Is))};
                {error, Reason} ->
                    {Node, Connection, [failed(Node, Reason)]}
            end || {Node, Connection, Values} <- Read],
    ToSet = [{Node, maps:from_list([{Key, Now} || #{key := Key, now := Now} <- Changes])}
             || How =:= ok, {Node, _, [#{key := K} | _] = Changes} <- Rows, K =/= all],
    Results = case How of
                  ok -> maps:from_list(lists:zip([Node || {Node, _} <- ToSet],
                                                 erlane_dist_node:set(At, ToSet)));
                  dry_run -> #{}
              end,
    [Row#{connection => Connection, result => result(At, Node, Connection, Row, Results, How)}
     || {Node, Connection, Changes} <- Rows, Row <- Changes].

result(At, Node, Connection, #{result := {error, _} = Error}, _, _) ->
    lost(At, Node, Connection, Error);
result(At, Node, Connection, _, Results, How) ->
    case maps:get(Node, Results, How) of
        {error, _} = Error -> lost(At, Node, Connection, Error);
        Result -> Result
    end.

%% A connection that ends meanwhile says so in several ways.
lost(_, _, _, {error, enotsup} = Error) ->
    Error;
lost(At, Node, Connection, Error) ->
    case erlane_dist_node:same(At, Node, Connection) of
        true -> Error;
        false -> {error, noconnection}
    end.

rows(Where, Is, Targets) ->
    [#{where => Where, key => Key, was => maps:get(Key, Is, undefined), now => Now, result => ok}
     || Key <- erlane_dist_opts:keys(), {ok, Now} <- [maps:find(Key, Targets)],
        maps:get(Key, Is, undefined) =/= Now].

%%% Undo

%% @doc See {@link erlane_dist:untune/2}.
-spec untune(node(), term()) -> {ok, [change()]} | error().
untune(At, Changes) ->
    case is_list(Changes) andalso changes(Changes) of
        true ->
            Done = [Change || #{result := ok} = Change <- Changes],
            try on(At, fun() -> untuned(At, Done) end)
            catch throw:restarted -> {error, restarted}
            end;
        false ->
            {error, {bad_option, changes}}
    end.

changes([#{where := Where, key := Key, was := _, now := _, result := _} = Change | Rest])
  when is_atom(Where), is_atom(Key) ->
    case Change of
        #{result := ok, where := new} ->
            case Change of
                #{side := _, kept := #{env := _, present := _, run := _}} -> changes(Rest);
                _ -> false
            end;
        #{result := ok} when not is_map_key(connection, Change) ->
            false;
        _ ->
            changes(Rest)
    end;
changes(Rest) -> Rest =:= [].

untuned(At, Changes) ->
    Peers = erlane_dist_node:peers(At),
    Of = fun(Node) -> [C || #{where := Where} = C <- Changes, Where =:= Node] end,
    New = Of(new),
    _ = [throw(restarted) || #{kept := #{run := Run}} <- lists:sublist(New, 1),
                             Run =/= erlane_dist_node:run(At)],
    Ours = [Peer || {Node, Connection} = Peer <- Peers,
                    #{connection := C} <- Of(Node), C =:= Connection],
    Gone = lists:usort([Node || #{where := Node, connection := C} <- Changes,
                                not lists:member({Node, C}, Peers)]),
    Undone = undo_new(At, New),
    Since = case New of
                [#{kept := #{present := Present}} | _] ->
                    [Peer || {_, Connection} = Peer <- Peers -- Ours, is_port(Connection),
                             not lists:member(Connection, Present)];
                [] ->
                    []
            end,
    Back = fun(Node, Is) -> maps:merge(Is, was(Of(Node))) end,
    Listener = erlane_dist_node:listener(At),
    Sides = maps:from_list([{Node, erlane_dist_node:side(At, Listener, Connection)}
                            || {Node, Connection} <- Since]),
    BackNew = fun(Node, Is) -> maps:merge(Is, was(side(maps:get(Node, Sides), New))) end,
    Undone ++ peers(At, lists:usort(Ours), Back, ok) ++ peers(At, Since, BackNew, ok)
        ++ [failed(Node, noconnection) || Node <- Gone].

was(Changes) ->
    maps:from_list([{Key, Was} || #{key := Key, was := Was} <- Changes, Was =/= undefined]).

side(Side, Changes) -> [C || #{side := S} = C <- Changes, S =:= Side].

undo_new(_, []) ->
    [];
undo_new(At, [#{kept := #{env := Env}} | _] = Changes) ->
    Result = case {possible(At, erlane_dist_node:env(At)), erlane_dist_node:listener(At)} of
                 {ok, none} -> ok;
                 {ok, _} -> hd(erlane_dist_node:set(At, [{new, was(side(accept, Changes))}]));
                 {Error, _} -> Error
             end,
    Result =:= ok andalso
        [ok = restore(At, Name, maps:get(Name, Env)) || Name <- erlane_dist_node:env_names()],
    [Change#{was := Now, now := Was, result := Result}
     || #{was := Was, now := Now} = Change <- Changes].

%% As it was, to the letter, unless somebody set something else meanwhile: that stays.
restore(At, Name, Old) ->
    #{Name := Current} = erlane_dist_node:env(At),
    case others(Current) =:= others(Old) of
        true -> erlane_dist_node:set_env(At, Name, Old);
        false -> erlane_dist_node:set_env(At, Name, {ok, mine(Old) ++ others(Current)})
    end.

others({ok, Opts}) -> [Opt || {Key, _} = Opt <- Opts, not ours(Key)];
others(undefined) -> [].

mine({ok, Opts}) -> [Opt || {Key, _} = Opt <- Opts, ours(Key)];
mine(undefined) -> [].

ours(Key) -> lists:member(Key, erlane_dist_opts:keys()).
