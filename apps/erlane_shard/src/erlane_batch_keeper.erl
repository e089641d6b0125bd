%% SPDX-License-Identifier: Apache-2.0
%% @doc The process beside a consumer: it knows the producers that wait for room, and closes the
%% inbox when the consumer ends. While nobody waits it hibernates, and hears nothing.
%%
%% It is linked to the consumer: an inbox without its keeper could block producers for ever.
-module(erlane_batch_keeper).
-behaviour(gen_server).

-export([start/3, wait/1, room/1, full/1, close/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

%% A charge that stands for this time while no batch at all arrives was its producer's last act.
-define(LOOKS, 4).
-define(LOOK_MS, 250).

-record(state, {consumer :: pid(),
                words :: erlane_batch_credit:words(),
                low :: non_neg_integer(),
                %% Producers that wait, as the aliases that they listen to; the last one first.
                waiters = [] :: [reference()],
                %% Looks to go, the least that was under way, all that had been sent.
                look = none :: none | {pos_integer(), integer(), integer()}}).

%% @doc Starts the keeper of the caller's inbox. Told of room when `Low' messages are left.
-spec start(pid(), erlane_batch_credit:words(), Low :: non_neg_integer()) ->
          {ok, pid()} | {error, term()}.
start(Consumer, Words, Low) ->
    case gen_server:start(?MODULE, {Consumer, Words, Low}, [{hibernate_after, 1000}]) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason};
        ignore -> {error, ignore}
    end.

%% @doc Waits until there may be room, or the inbox is no more: then `closed'.
-spec wait(pid()) -> retry | closed.
wait(Keeper) ->
    Alias = monitor(process, Keeper, [{alias, reply_demonitor}]),
    Keeper ! {wait, Alias},
    receive
        {Alias, retry} -> retry;
        {'DOWN', Alias, process, _, _} -> closed
    end.

%% @doc No more than `Low' messages are left; somebody had asked.
-spec room(pid()) -> ok.
room(Keeper) ->
    Keeper ! room,
    ok.

%% @doc A producer that does not wait found no room, and wonders whose messages those are.
-spec full(pid()) -> ok.
full(Keeper) ->
    Keeper ! full,
    ok.

%% @doc Ends the inbox of a consumer that lives on.
-spec close(pid()) -> ok.
close(Keeper) ->
    gen_server:cast(Keeper, close).

-spec init({pid(), erlane_batch_credit:words(), non_neg_integer()}) -> {ok, #state{}}.
init({Consumer, Words, Low}) ->
    process_flag(trap_exit, true),
    %% If it is gone already, the exit signal says so.
    true = link(Consumer),
    {ok, #state{consumer = Consumer, words = Words, low = Low}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {noreply, #state{}}.
handle_call(_, _From, State) ->
    {noreply, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_cast(close, #state{consumer = Consumer} = State) ->
    true = unlink(Consumer),
    {stop, normal, State};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, normal, #state{}}.
handle_info({wait, Alias}, #state{waiters = Waiters} = State) ->
    {noreply, look(wake(State#state{waiters = [Alias | Waiters]}))};
handle_info(Why, State) when Why =:= room; Why =:= full ->
    {noreply, look(wake(State))};
handle_info(look, State) ->
    {noreply, looked(wake(State))};
handle_info({'EXIT', Consumer, _}, #state{consumer = Consumer} = State) ->
    {stop, normal, State};
handle_info(_, State) ->
    {noreply, State}.

%% The words are closed before any producer hears that this process is down.
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{words = Words}) ->
    erlane_batch_credit:close(Words).

%% All at once, in the order of their coming: one of them may be dead by now, and if it were the
%% only one told, nobody would use the room. Asking comes before looking: a consumer that is done
%% in between sees that it was asked.
wake(#state{words = Words, low = Low, waiters = Waiters} = State) ->
    Waiters =:= [] orelse erlane_batch_credit:ask(Words),
    case erlane_batch_credit:used(Words) =< Low of
        true ->
            lists:foreach(fun(Alias) -> Alias ! {Alias, retry} end, lists:reverse(Waiters)),
            State#state{waiters = []};
        false ->
            State
    end.

%% The inbox is full. There is a timer only while something is under way.
look(#state{look = none, words = Words, low = Low, waiters = Waiters} = State) ->
    case {erlane_batch_credit:used(Words) > Low, erlane_batch_credit:under_way(Words)} of
        {true, {N, Sent}} when N > 0 ->
            _ = erlang:send_after(?LOOK_MS, self(), look),
            State#state{look = {?LOOKS, N, Sent}};
        _ ->
            Waiters =/= [] orelse erlane_batch_credit:forget(Words),
            State
    end;
look(State) ->
    State.

looked(#state{look = {Left, Least, Sent}, words = Words} = State) ->
    case erlane_batch_credit:under_way(Words) of
        {N, Sent} when N > 0, Left > 1 ->
            _ = erlang:send_after(?LOOK_MS, self(), look),
            State#state{look = {Left - 1, min(N, Least), Sent}};
        {N, Sent} when N > 0 ->
            ok = erlane_batch_credit:forgive(Words, min(N, Least)),
            look(wake(State#state{look = none}));
        _ ->
            look(State#state{look = none})
    end.
