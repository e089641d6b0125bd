%% SPDX-License-Identifier: Apache-2.0
%% @doc Sees to it that each lane has a poller that can run.
%%
%% A process that is bound to a scheduler does not run while that scheduler is
%% offline. So lanes are opened for the schedulers that are online, and when
%% their number changes, the lanes of those that left get a stand-in: a poller
%% bound to no scheduler, which adopts the lane. When the scheduler comes back,
%% so does its own poller, and the stand-in ends.
%%
%% The VM tells nobody of such a change. Pollers look before they sleep, and
%% erlane_socket:lanes/0 looks.
-module(erlane_lanes).
-behaviour(gen_server).

-export([start_link/0, check/0, sync/0]).
-export([init/1, handle_continue/2, handle_call/3, handle_cast/2, handle_info/2]).

-define(ONLINE, {?MODULE, online}).

-record(st, {stand_ins = #{} :: #{pos_integer() => pid()}}).

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

-spec init([]) -> {ok, #st{}, {continue, check}}.
init([]) ->
    _ = process_flag(trap_exit, true),
    _ = persistent_term:erase(?ONLINE),
    {ok, #st{}, {continue, check}}.

-spec handle_continue(check, #st{}) -> {noreply, #st{}}.
handle_continue(check, St) ->
    {noreply, adjust(St)}.

-spec handle_call(check, gen_server:from(), #st{}) -> {reply, ok, #st{}}.
handle_call(check, _From, St) ->
    {reply, ok, adjust(St)}.

-spec handle_cast(check, #st{}) -> {noreply, #st{}}.
handle_cast(check, St) ->
    {noreply, adjust(St)}.

%% A stand-in has ended: in order, or its lane needs another.
-spec handle_info(term(), #st{}) -> {noreply, #st{}}.
handle_info({'EXIT', _, _}, St) ->
    {noreply, adjust(St)};
handle_info(_, St) ->
    {noreply, St}.

adjust(#st{stand_ins = Old} = St) ->
    Online = erlang:system_info(schedulers_online),
    lists:foreach(fun erlane_socket_sup:start_lane/1, lists:seq(1, Online)),
    {Back, Away} = lists:partition(fun({I, _}) -> I =< Online end, maps:to_list(Old)),
    lists:foreach(fun come_back/1, Back),
    Orphaned = [I || I <- lists:seq(Online + 1, erlang:system_info(schedulers)),
                     erlane_nif:lane_stats(I) =/= undefined],
    New = maps:from_list([{I, stand_in(I, proplists:get_value(I, Away))} || I <- Orphaned]),
    persistent_term:put(?ONLINE, Online),
    St#st{stand_ins = New}.

%% The lane's own poller, woken, adopts its lane again; the stand-in, woken then,
%% finds that and ends.
come_back({I, StandIn}) ->
    lists:foreach(fun(Pid) -> Pid ! wake end, erlane_socket_sup:pollers(I)),
    StandIn ! wake,
    ok.

stand_in(I, Pid) ->
    case is_pid(Pid) andalso is_process_alive(Pid) of
        true ->
            Pid;
        false ->
            {ok, New} = erlane_lane:start_stand_in(I),
            New
    end.
