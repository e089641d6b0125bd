%% SPDX-License-Identifier: Apache-2.0
%% @doc The poller of one lane: a process pinned to one scheduler that turns the
%% lane's poll set as long as there is something to do, and sleeps otherwise.
%%
%% A sleeping lane makes no system call: its poll set, itself a descriptor, is
%% in the VM's hands (enif_select), which sends one message when an event comes.
%% If this process dies its supervisor starts another, which adopts the lane:
%% the poll set and the sockets live on.
-module(erlane_lane).

-export([start_link/1, loop/3]).

%% Turns in a row that find nothing before the lane goes to sleep. Waking up
%% costs more than a few empty turns.
-define(EMPTY_TURNS, 10).

%% @doc Starts the poller of lane Index, which is a scheduler's number.
-spec start_link(pos_integer()) -> {ok, pid()} | {error, term()}.
start_link(Index) ->
    Starter = self(),
    Tag = make_ref(),
    Pid = spawn_opt(fun() -> init(Starter, Tag, Index) end, [link, {scheduler, Index}, {min_heap_size, 16384}]),
    receive
        {Tag, Answer} ->
            Answer;
        {'EXIT', Pid, Reason} ->
            {error, Reason}
    end.

init(Starter, Tag, Index) ->
    _ = process_flag(trap_exit, true),
    case erlane_nif:lane_open(Index) of
        {ok, Lane} ->
            Starter ! {Tag, {ok, self()}},
            loop(Lane, Starter, 0);
        {error, Reason} ->
            unlink(Starter),
            Starter ! {Tag, {error, Reason}}
    end.

%% @private Exported so that a new version of this module takes over.
-spec loop(reference(), pid(), non_neg_integer()) -> no_return().
loop(Lane, Parent, Empty) ->
    case erlane_nif:lane_turn(Lane) of
        0 when Empty >= ?EMPTY_TURNS ->
            sleep(Lane, Parent);
        0 ->
            erlang:yield(),
            loop(Lane, Parent, Empty + 1);
        {_, Refs} ->
            lists:foreach(fun erlane_packet:pump/1, Refs),
            mail(Lane, Parent);
        _ ->
            erlang:yield(),
            mail(Lane, Parent)
    end.

%% What has come meanwhile, without waiting.
mail(Lane, Parent) ->
    receive
        Message ->
            handle(Message, Lane, Parent),
            mail(Lane, Parent)
    after 0 ->
        ?MODULE:loop(Lane, Parent, 0)
    end.

sleep(Lane, Parent) ->
    case erlane_nif:lane_sleep(Lane) of
        busy ->
            ?MODULE:loop(Lane, Parent, 0);
        {error, Reason} ->
            exit({lane_sleep, Reason});
        Time ->
            receive
                Message ->
                    ok = erlane_nif:lane_woke(Lane),
                    handle(Message, Lane, Parent)
            after Time ->
                ok = erlane_nif:lane_woke(Lane)
            end,
            ?MODULE:loop(Lane, Parent, 0)
    end.

handle({select, _, _, ready_input}, _Lane, _Parent) ->
    ok;
handle(wake, _Lane, _Parent) ->
    ok;
handle({orphan, Socket}, _Lane, _Parent) ->
    %% Its owner died while output was queued: somebody must wait for that.
    _ = spawn(fun() -> erlane_tcp:close(Socket) end),
    ok;
handle({'EXIT', Parent, Reason}, Lane, Parent) ->
    close(Lane),
    exit(Reason);
handle(_Other, _Lane, _Parent) ->
    ok.

close(Lane) ->
    case erlane_nif:lane_close(Lane) of
        more ->
            erlang:yield(),
            close(Lane);
        ok ->
            ok
    end.
