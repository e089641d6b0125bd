%% SPDX-License-Identifier: Apache-2.0
%% @doc The poller of one lane: a process pinned to one scheduler that turns the
%% lane's poll set as long as there is something to do, and sleeps otherwise.
%%
%% A sleeping lane makes no system call: its poll set, itself a descriptor, is
%% in the VM's hands (enif_select), which sends one message when an event comes.
%% If this process dies its supervisor starts another, which adopts the lane:
%% the poll set and the sockets live on.
-module(erlane_lane).

-export([start_link/1, start_stand_in/1, loop/3]).

-type me() :: {Parent :: pid(), Index :: pos_integer(), own | stand_in}.

%% Turns in a row that find nothing before the lane goes to sleep. Waking up
%% costs more than a few empty turns.
-define(EMPTY_TURNS, 10).

%% @doc Starts the poller of lane Index, which is a scheduler's number.
-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Index) ->
    %% The VM knows the option `scheduler', its documentation does not. Written
    %% out, dialyzer would take the call for one that fails.
    start(Index, own, [{list_to_atom("scheduler"), Index}]).

%% @doc Starts a poller for a lane whose scheduler is offline, on any scheduler.
-spec start_stand_in(pos_integer()) -> {ok, pid()} | {error, term()}.
start_stand_in(Index) ->
    start(Index, stand_in, []).

%% Waits for nothing that the new process does: its scheduler may be going
%% offline, and then it does nothing. The lane itself is there at once.
start(Index, Kind, Options) ->
    case erlane_nif:lane_make(Index) of
        ok ->
            Me = {self(), Index, Kind},
            %% the garbage of a few thousand messages fits on this heap
            {ok, spawn_opt(fun() -> init(Me) end, [link, {min_heap_size, 16384} | Options])};
        {error, _} = Error ->
            Error
    end.

init({_, Index, _} = Me) ->
    _ = process_flag(trap_exit, true),
    {ok, Lane} = erlane_nif:lane_open(Index),
    loop(Lane, Me, 0).

%% @private Exported so that a new version of this module takes over.
-spec loop(reference(), me(), non_neg_integer()) -> no_return().
loop(Lane, Me, Empty) ->
    case erlane_nif:lane_turn(Lane) of
        0 when Empty >= ?EMPTY_TURNS ->
            sleep(Lane, Me);
        0 ->
            erlang:yield(),
            loop(Lane, Me, Empty + 1);
        gone ->
            displaced(Lane, Me);
        {_, Refs} ->
            lists:foreach(fun erlane_packet:pump/1, Refs),
            mail(Lane, Me);
        _ ->
            erlang:yield(),
            mail(Lane, Me)
    end.

%% Another has adopted the lane: a stand-in while our scheduler was offline, and
%% now we run again; or its own poller, and we were the stand-in.
displaced(_Lane, {_, _, stand_in}) ->
    exit(normal);
displaced(_Lane, {_, Index, own} = Me) ->
    case erlane_nif:lane_open(Index) of
        {ok, Lane} -> ?MODULE:loop(Lane, Me, 0);
        {error, Reason} -> exit({lane_open, Reason})
    end.

%% What has come meanwhile, without waiting.
mail(Lane, Me) ->
    receive
        Message ->
            handle(Message, Lane, Me),
            mail(Lane, Me)
    after 0 ->
        ?MODULE:loop(Lane, Me, 0)
    end.

sleep(Lane, Me) ->
    ok = erlane_lanes:check(),
    case erlane_nif:lane_sleep(Lane) of
        busy ->
            ?MODULE:loop(Lane, Me, 0);
        gone ->
            displaced(Lane, Me);
        {error, Reason} ->
            exit({lane_sleep, Reason});
        Time ->
            receive
                Message ->
                    ok = erlane_nif:lane_woke(Lane),
                    handle(Message, Lane, Me)
            after Time ->
                ok = erlane_nif:lane_woke(Lane)
            end,
            ?MODULE:loop(Lane, Me, 0)
    end.

handle({select, _, _, ready_input}, _Lane, _Me) ->
    ok;
handle(wake, _Lane, _Me) ->
    ok;
handle({orphan, Socket}, _Lane, _Me) ->
    %% Its owner died while output was queued: somebody must wait for that.
    _ = spawn(fun() -> erlane_tcp:close(Socket) end),
    ok;
handle({'EXIT', Parent, Reason}, _Lane, {Parent, _, stand_in}) when Reason =/= shutdown ->
    exit(Reason); % another will adopt the lane
handle({'EXIT', Parent, Reason}, Lane, {Parent, _, _}) ->
    close(Lane),
    exit(Reason);
handle(_Other, _Lane, _Me) ->
    ok.

close(Lane) ->
    case erlane_nif:lane_close(Lane) of
        more ->
            erlang:yield(),
            close(Lane);
        ok ->
            ok
    end.
