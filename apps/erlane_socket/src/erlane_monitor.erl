%% SPDX-License-Identifier: Apache-2.0
%% @doc Who monitors which socket (inet:monitor/1). The NIF tells this process
%% when a watched socket closes; it tells the monitoring processes.
-module(erlane_monitor).
-behaviour(gen_server).

-export([start_link/0, monitor/1, cancel/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-record(st, {by_ref = #{} :: #{reference() => [reference()]},
             %% Each is this server's monitor of the process that asked for it.
             monitors = #{} :: #{reference() => {pid(), erlane_tcp:socket()}}}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc A new monitor of the caller; a closed socket answers `nosock' at once.
-spec monitor(erlane_tcp:socket()) -> reference().
monitor({_, _, Ref} = Socket) ->
    _ = erlane_nif:watch(Ref), % badarg here, not in the server, for a foreign reference
    gen_server:call(?MODULE, {monitor, self(), Socket}, infinity).

%% @doc Whether there was such a monitor. No message comes afterwards.
-spec cancel(reference()) -> boolean().
cancel(MRef) ->
    Found = gen_server:call(?MODULE, {cancel, MRef}, infinity),
    receive {'DOWN', MRef, socket, _, _} -> ok after 0 -> ok end,
    Found.

-spec init([]) -> {ok, #st{}}.
init([]) ->
    {ok, #st{}}.

-spec handle_call(term(), gen_server:from(), #st{}) -> {reply, term(), #st{}}.
handle_call({monitor, Pid, {_, _, Ref} = Socket}, _From, #st{by_ref = By, monitors = Ms} = St) ->
    MRef = erlang:monitor(process, Pid),
    case erlane_nif:watch(Ref) of
        ok ->
            {reply, MRef,
             St#st{by_ref = By#{Ref => [MRef | maps:get(Ref, By, [])]},
                   monitors = Ms#{MRef => {Pid, Socket}}}};
        gone ->
            true = erlang:demonitor(MRef),
            Pid ! {'DOWN', MRef, socket, Socket, nosock},
            {reply, MRef, St}
    end;
handle_call({cancel, MRef}, _From, St) ->
    {reply, maps:is_key(MRef, St#st.monitors), forget(MRef, St)}.

-spec handle_cast(term(), #st{}) -> {noreply, #st{}}.
handle_cast(_, St) ->
    {noreply, St}.

-spec handle_info(term(), #st{}) -> {noreply, #st{}}.
handle_info({socket_closed, Ref, Reason}, #st{by_ref = By} = St) ->
    {noreply, lists:foldl(fun(MRef, S) ->
                                  {Pid, Socket} = maps:get(MRef, S#st.monitors),
                                  Pid ! {'DOWN', MRef, socket, Socket, Reason},
                                  forget(MRef, S)
                          end, St, lists:reverse(maps:get(Ref, By, [])))};
handle_info({'DOWN', MRef, process, _, _}, St) ->
    {noreply, forget(MRef, St)};
handle_info(_, St) ->
    {noreply, St}.

forget(MRef, #st{by_ref = By, monitors = Ms} = St) ->
    case Ms of
        #{MRef := {_, {_, _, Ref}}} ->
            %% Without a look through the mailbox: what comes late is of no monitor.
            true = erlang:demonitor(MRef),
            By1 = case lists:delete(MRef, maps:get(Ref, By, [])) of
                      [] -> maps:remove(Ref, By);
                      Left -> By#{Ref => Left}
                  end,
            St#st{by_ref = By1, monitors = maps:remove(MRef, Ms)};
        _ ->
            St
    end.
