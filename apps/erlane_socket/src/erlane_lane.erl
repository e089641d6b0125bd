%% SPDX-License-Identifier: Apache-2.0
%% @doc The poller of one lane: a process pinned to one scheduler that turns the
%% lane's poll set as long as there is something to do, and sleeps otherwise.
%%
%% A sleeping lane makes no system call: its poll set, itself a descriptor, is
%% in the VM's hands (enif_select), which sends one message when an event comes.
%% The lane is not the poller's own: erlane_lanes opens and closes it. If this
%% process dies another adopts the poll set, and the sockets live on.
-module(erlane_lane).

-export([start_link/2, start_stand_in/2, loop/4]).

-type me() :: {Index :: pos_integer(), own | stand_in}.

%% Turns in a row that find nothing before the lane goes to sleep. Waking up
%% costs more than a few empty turns.
-define(EMPTY_TURNS, 10).
%% A lane that never sleeps looks after so many turns whether all lanes are polled.
-define(CHECK_TURNS, 100).

%% @doc Starts the poller of Lane, which belongs to scheduler Index.
-spec start_link(pos_integer(), reference()) -> pid().
start_link(Index, Lane) ->
    %% The VM knows the option `scheduler', its documentation does not. Written
    %% out, dialyzer would take the call for one that fails.
    start({Index, own}, Lane, [{list_to_atom("scheduler"), Index}]).

%% @doc Starts a poller for a lane whose scheduler is offline, on any scheduler.
-spec start_stand_in(pos_integer(), reference()) -> pid().
start_stand_in(Index, Lane) ->
    start({Index, stand_in}, Lane, []).

%% Waits for nothing that the new process does: its scheduler may be going
%% offline, and then it does nothing.
start(Me, Lane, Options) ->
    %% the garbage of a few thousand messages fits on this heap
    spawn_opt(fun() -> adopt(Lane, Me) end, [link, {min_heap_size, 16384} | Options]).

adopt(Lane, {_, Kind} = Me) ->
    case erlane_nif:lane_poll(Lane, Kind =:= own) of
        ok -> ?MODULE:loop(Lane, Me, 0, ?CHECK_TURNS);
        gone -> exit(normal)
    end.

%% @private Exported so that a new version of this module takes over.
-spec loop(reference(), me(), non_neg_integer(), non_neg_integer()) -> no_return().
loop(Lane, Me, Empty, 0) ->
    ok = erlane_lanes:check(),
    loop(Lane, Me, Empty, ?CHECK_TURNS);
loop(Lane, Me, Empty, Turns) ->
    case erlane_nif:lane_turn(Lane) of
        0 when Empty >= ?EMPTY_TURNS ->
            sleep(Lane, Me);
        0 ->
            erlang:yield(),
            loop(Lane, Me, Empty + 1, Turns);
        gone ->
            displaced(Lane, Me);
        {_, Refs} ->
            lists:foreach(fun erlane_packet:pump/1, Refs),
            mail(Lane, Me, Turns);
        _ ->
            erlang:yield(),
            mail(Lane, Me, Turns)
    end.

%% Another has adopted the lane: a stand-in while our scheduler was offline, and
%% now we run again; or its own poller, and we were the stand-in.
displaced(_Lane, {_, stand_in}) -> exit(normal);
displaced(Lane, Me) -> adopt(Lane, Me).

%% What has come meanwhile, without waiting.
mail(Lane, Me, Turns) ->
    receive
        Message ->
            ok = handle(Message),
            mail(Lane, Me, Turns)
    after 0 ->
        ?MODULE:loop(Lane, Me, 0, Turns - 1)
    end.

sleep(Lane, Me) ->
    ok = erlane_lanes:check(),
    case erlane_nif:lane_sleep(Lane) of
        busy ->
            ?MODULE:loop(Lane, Me, 0, ?CHECK_TURNS);
        gone ->
            displaced(Lane, Me);
        {error, Reason} ->
            exit({lane_sleep, Reason});
        Time ->
            receive
                Message ->
                    ok = erlane_nif:lane_woke(Lane),
                    ok = handle(Message)
            after Time ->
                ok = erlane_nif:lane_woke(Lane)
            end,
            ?MODULE:loop(Lane, Me, 0, ?CHECK_TURNS)
    end.

handle({orphan, Socket}) ->
    %% Its owner died while output was queued: somebody must wait for that.
    _ = spawn(fun() -> erlane_tcp:close(Socket) end),
    ok;
handle(_) -> % ready_input of the poll set, wake
    ok.
