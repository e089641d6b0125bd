%% SPDX-License-Identifier: Apache-2.0
%% @doc Opens the lanes, sees to it that each has a poller that can run, and
%% closes them.
%%
%% A process that is bound to a scheduler does not run while that scheduler is
%% offline. So lanes are opened for the schedulers that are online, and when
%% their number changes, the lanes of those that left get a stand-in: a poller
%% bound to no scheduler, which adopts the lane. When the scheduler comes back,
%% so does its own poller, and the stand-in ends.
%%
%% The pollers are this process's and no supervisor's, for nobody may ever wait
%% for one of them. They die with it; the lanes do not, and its successor starts
%% pollers that adopt them.
%%
%% The VM tells nobody of schedulers that come and go. Pollers look now and then
%% and before they sleep; so do who opens a socket, who waits for one, and
%% erlane_socket:lanes/0. A clock would see it even when all sleep, but an idle
%% node is to be silent.
-module(erlane_lanes).
-behaviour(gen_server).

-export([start_link/0, check/0, sync/0, pollers/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-define(ONLINE, {?MODULE, online}).
%% The poller bound to scheduler I that was started last. It may outlive the
%% keeper that started it: while I is offline, it cannot die.
-define(OWN(I), {?MODULE, own, I}).
%% Pollers that may fail within a second before this process gives up.
-define(INTENSITY, 20).
-define(END_MS, 1000).

-record(lane, {ref :: reference(), own :: pid() | undefined, stand_in :: pid() | undefined}).
-record(st, {lanes = #{} :: #{pos_integer() => #lane{}}, failed = [] :: [integer()]}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Has something to be done? If so, asks for it and does not wait. Cheap.
-spec check() -> ok.
check() ->
    case persistent_term:get(?ONLINE, undefined) =:= erlang:system_info(schedulers_online) of
        true -> ok;
        false -> gen_server:cast(?MODULE, check)
    end.

%% @doc The same, and waits until it is done.
-spec sync() -> ok.
sync() ->
    gen_server:call(?MODULE, check, infinity).

%% @doc Who polls each lane, bound to its scheduler (own) or not: for a look at
%% a running system, and for tests.
-spec pollers() -> [{pos_integer(), own | stand_in, pid()}].
pollers() ->
    gen_server:call(?MODULE, pollers, infinity).

-spec init([]) -> {ok, #st{}} | {stop, term()}.
init([]) ->
    _ = process_flag(trap_exit, true),
    adjusted(#st{}, fun(St) -> {ok, St} end).

-spec handle_call(check | pollers, gen_server:from(), #st{}) ->
    {reply, term(), #st{}} | {stop, term(), #st{}}.
handle_call(check, _From, St) ->
    adjusted(St, fun(New) -> {reply, ok, New} end);
handle_call(pollers, _From, #st{lanes = Lanes} = St) ->
    {reply, lists:append([pollers(I, Lane) || {I, Lane} <- lists:sort(maps:to_list(Lanes))]), St}.

-spec handle_cast(check, #st{}) -> {noreply, #st{}} | {stop, term(), #st{}}.
handle_cast(check, St) ->
    adjusted(St, fun(New) -> {noreply, New} end).

%% A poller has ended: a stand-in in order, or the lane needs another.
-spec handle_info(term(), #st{}) -> {noreply, #st{}} | {stop, term(), #st{}}.
handle_info({'EXIT', Pid, Reason}, #st{lanes = Lanes, failed = Failed} = St) ->
    New = St#st{lanes = maps:map(fun(_, Lane) -> without(Pid, Lane) end, Lanes)},
    Now = erlang:monotonic_time(millisecond),
    case [T || Reason =/= normal, T <- [Now | Failed], T > Now - 1000] of
        Recent when length(Recent) > ?INTENSITY -> {stop, {poller, Reason}, New};
        Recent -> adjusted(New#st{failed = Recent}, fun(Adjusted) -> {noreply, Adjusted} end)
    end;
handle_info(_, St) ->
    {noreply, St}.

%% In order, that is when the application stops, the lanes go as well.
-spec terminate(term(), #st{}) -> ok.
terminate(Reason, #st{lanes = Lanes}) when Reason =:= shutdown; Reason =:= normal ->
    _ = persistent_term:erase(?ONLINE),
    Bound = [{I, Pid} || I <- maps:keys(Lanes),
                         Pid <- [persistent_term:get(?OWN(I), undefined)], is_pid(Pid)],
    StandIns = [Pid || #lane{stand_in = Pid} <- maps:values(Lanes), is_pid(Pid)],
    Refs = [begin exit(Pid, kill), monitor(process, Pid) end
            || Pid <- [Pid || {_, Pid} <- Bound] ++ StandIns],
    _ = [close(Ref) || #lane{ref = Ref} <- maps:values(Lanes)],
    at_an_end([I || {I, _} <- Bound], Refs),
    _ = [persistent_term:erase(?OWN(I)) || {I, _} <- Bound],
    ok;
terminate(_, _) ->
    ok.

%% A poller whose scheduler is offline cannot even die, and the application, or
%% the VM that halts, would wait for it. So its scheduler comes back that long.
at_an_end(Bound, Refs) ->
    Online = erlang:system_info(schedulers_online),
    Needed = lists:max([Online | Bound]),
    _ = Needed > Online andalso erlang:system_flag(schedulers_online, Needed),
    _ = [receive {'DOWN', Ref, process, _, _} -> ok after ?END_MS -> ok end || Ref <- Refs],
    _ = Needed > Online andalso erlang:system_flag(schedulers_online, Online),
    ok.

close(Ref) ->
    case erlane_nif:lane_close(Ref) of
        more -> close(Ref);
        ok -> ok
    end.

pollers(I, #lane{own = Own, stand_in = StandIn}) ->
    [{I, Kind, Pid} || {Kind, Pid} <- [{own, Own}, {stand_in, StandIn}], is_pid(Pid)].

without(Pid, #lane{own = Pid} = Lane) -> Lane#lane{own = undefined};
without(Pid, #lane{stand_in = Pid} = Lane) -> Lane#lane{stand_in = undefined};
without(_, Lane) -> Lane.

adjusted(#st{lanes = Lanes} = St, Then) ->
    Online = erlang:system_info(schedulers_online),
    %% Beyond those online: lanes that were opened before, by this process or its
    %% predecessor. Their sockets need them.
    Left = [I || I <- lists:seq(Online + 1, erlang:system_info(schedulers)),
                 erlane_nif:lane_stats(I) =/= undefined],
    Opened = [{I, opened(I, Lanes)} || I <- lists:seq(1, Online) ++ Left],
    Failed = [Failure || {_, {error, _}} = Failure <- Opened],
    case [{I, polled(I, I =< Online, Lane)} || {I, #lane{} = Lane} <- Opened] of
        [] ->
            {_, Error} = hd(Failed),
            {stop, Error};
        Adjusted ->
            _ = [lacking(Failure) || Failure <- Failed],
            persistent_term:put(?ONLINE, case Failed of [] -> Online; _ -> incomplete end),
            Then(St#st{lanes = maps:from_list(Adjusted)})
    end.

%% Out of descriptors, say. New sockets of that scheduler go to another lane, and
%% the next look tries again.
lacking({I, {error, Reason}}) ->
    erlane_log:limited(lane_open, "erlane_lanes: no lane for scheduler ~p: ~p", [I, Reason]).

opened(I, Lanes) ->
    case Lanes of
        #{I := Lane} ->
            Lane;
        _ ->
            case erlane_nif:lane_open(I) of
                {ok, Ref} -> #lane{ref = Ref};
                {error, _} = Error -> Error
            end
    end.

%% Its scheduler is online: its own poller, once awake, finds itself displaced and
%% adopts the lane again, whereupon the stand-in learns that it is not needed.
polled(I, true, #lane{own = undefined, ref = Ref} = Lane) ->
    Own = erlane_lane:start_link(I, Ref),
    persistent_term:put(?OWN(I), Own),
    Lane#lane{own = Own};
polled(_, true, #lane{own = Own, stand_in = StandIn} = Lane) when is_pid(StandIn) ->
    Own ! wake,
    Lane;
polled(I, false, #lane{stand_in = undefined, ref = Ref} = Lane) ->
    Lane#lane{stand_in = erlane_lane:start_stand_in(I, Ref)};
polled(_, _, Lane) ->
    Lane.
