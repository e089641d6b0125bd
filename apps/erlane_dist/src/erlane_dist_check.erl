%% SPDX-License-Identifier: Apache-2.0
%% @doc What is set in a way that costs, and why. Changes nothing.
-module(erlane_dist_check).

-export([check/1]).

-type finding() :: erlane_dist:finding().

%% @doc See {@link erlane_dist:check/1}.
-spec check(node()) -> {ok, [finding()]} | {error, {gone, node(), term()}}.
check(At) ->
    try
        Alive = erlane_dist_node:alive(At),
        Sockets = case erlane_dist_node:supported(At) of
                      true -> new(At, Alive) ++ peers(At);
                      %% We have nothing to say of other carriers.
                      false -> peers(At)
                  end,
        {ok, [Finding#{why => erlane_dist_opts:why(Key)}
              || #{key := Key} = Finding <- vm(At) ++ monitor(At) ++ Sockets]}
    catch
        throw:{gone, Reason} -> {error, {gone, At, Reason}}
    end.

%%% What only a start can change

vm(At) ->
    Want = erlane_dist_opts:zdbbl(),
    Zdbbl = [finding(vm, zdbbl, Limit div 1024, Want, boot, "+zdbbl " ++ integer_to_list(Want))
             || Limit <- info(At, dist_buf_busy_limit), Limit < Want * 1024],
    %% Not there before OTP 25.3.
    Pad = [finding(vm, pad, true, false, boot, "+pad false") || true <- info(At, async_dist)],
    Zdbbl ++ Pad.

info(At, Item) ->
    case erlane_dist_node:call(At, erlang, system_info, [Item]) of
        {ok, Value} -> [Value];
        {error, _} -> []
    end.

%%% Who counts busy events

%% From OTP 28 on everybody who wants to know has a session of his own.
monitor(At) ->
    case {has_sessions(At), erlane_dist_node:call(At, erlang, whereis, [erlane_dist_busy]),
          erlane_dist_node:call(At, erlang, system_monitor, [])} of
        {false, {ok, Own}, {ok, {Holder, _}}} when Holder =/= Own ->
            [finding(vm, system_monitor, name(At, Holder), forwarded, now,
                     "erlane_dist:busy(Message), called by it for each message it gets")
             || not (At =:= node() andalso erlane_dist_busy:source() =:= forwarded)];
        _ ->
            []
    end.

has_sessions(At) ->
    _ = erlane_dist_node:call(At, code, ensure_loaded, [trace]),
    erlane_dist_node:call(At, erlang, function_exported, [trace, system, 3]) =:= {ok, true}.

name(At, Pid) when is_pid(Pid) ->
    case erlane_dist_node:call(At, erlang, process_info, [Pid, registered_name]) of
        {ok, {registered_name, Name}} -> Name;
        _ -> Pid
    end;
name(_, Port) ->
    Port.

%%% Sockets

new(At, Alive) ->
    #{connect := Connect, accept := Accept, listener := Listener} =
        erlane_dist_node:new(At, erlane_dist_node:env(At)),
    {Fix, Line} = case Alive of
                      true -> {now, "erlane_dist:tune()"};
                      false -> {boot, "see sys_config of erlane_dist:boot_lines()"}
                  end,
    %% A node that listens to nobody accepts nothing.
    Sides = [{connect, Connect} | [{accept, Accept} || Listener =/= none orelse not Alive]],
    [(finding(new, Key, Is, Want, Fix, Line))#{side => Side}
     || {Side, Values} <- Sides, {Key, Is, Want} <- wrong(Values)].

peers(At) ->
    [finding(Node, Key, Is, Want, now, "erlane_dist:tune()")
     || {Node, _, {ok, Values}} <- erlane_dist_node:values(At, erlane_dist_node:peers(At)),
        {Key, Is, Want} <- wrong(Values)].

wrong(Values) ->
    {ok, #{want := Want}} = erlane_dist_opts:check(#{}),
    Targets = erlane_dist_opts:targets(Want, Values),
    [{Key, Is, Target} || Key <- erlane_dist_opts:keys(),
                          {ok, Is} <- [maps:find(Key, Values)],
                          Target <- [maps:get(Key, Targets)], Target =/= Is].

finding(Where, Key, Is, Want, Fix, Line) ->
    #{where => Where, key => Key, is => Is, want => Want, fix => Fix, line => Line}.
