%% SPDX-License-Identifier: Apache-2.0
%% @doc Owns the tables, starts the lanes, and replaces one that has crashed.
%%
%% Lanes are linked to it: they live and end with it. Publishers find them in a persistent term.
-module(erlane_fanout_lanes).
-behaviour(gen_server).

-export([start_link/1, get/0, lane_of/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("erlane_fanout.hrl").

-record(state, {lanes :: #{pid() => pos_integer()}, crashes = 0 :: non_neg_integer()}).

%% Processes of a run, as a power of two.
-define(RUN, 10).
%% Numbers of messages go on above this after a crash: more than a lane can count.
-define(EPOCH(N), ((N) bsl 44)).

-spec start_link(erlane_fanout_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Config, []).

%% @doc What publishers need. Raises `{not_started, erlane_fanout}'.
-spec get() -> #lanes{}.
get() ->
    case persistent_term:get(?LANES, none) of
        none -> error({not_started, erlane_fanout});
        Lanes -> Lanes
    end.

%% @doc Where a process's subscriptions live. Processes that were started one after the other are
%% neighbours in memory: a lane that has whole runs of them is a third faster than by a hash.
-spec lane_of(pid(), #lanes{}) -> pos_integer().
lane_of(Pid, #lanes{pids = Pids}) ->
    External = term_to_binary(Pid),
    <<Id:32, _Serial:32, _Creation:32>> = binary_part(External, byte_size(External), -12),
    1 + (Id bsr ?RUN) rem tuple_size(Pids).

-spec init(erlane_fanout_opts:config()) -> {ok, #state{}}.
init(Config) ->
    process_flag(trap_exit, true),
    forget(),
    ok = erlane_fanout_match:tables(),
    N = case Config of
            #{lanes := schedulers} -> erlang:system_info(schedulers_online);
            #{lanes := Given} -> Given
        end,
    Is = lists:seq(1, N),
    Words = [erlane_fanout_inbox:word() || _ <- Is],
    Stats = [atomics:new(?STATS, []) || _ <- Is],
    Wild = erlane_fanout_match:new(),
    Pids = [erlane_fanout_lane:start_link(I, Word, Stat, Wild, 0)
            || {I, Word, Stat} <- lists:zip3(Is, Words, Stats)],
    persistent_term:put(?LANES, #lanes{pids = list_to_tuple(Pids), words = list_to_tuple(Words),
                                       stats = list_to_tuple(Stats), wild = Wild,
                                       config = Config}),
    lists:foreach(fun erlane_fanout_lane:begin_now/1, Pids),
    {ok, #state{lanes = maps:from_list(lists:zip(Pids, Is))}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({'EXIT', Pid, Reason}, #state{lanes = Lanes, crashes = Crashes} = State) ->
    case maps:take(Pid, Lanes) of
        {I, Rest} ->
            logger:error("erlane_fanout: lane ~b has crashed: ~0tp", [I, Reason]),
            New = replace(I, Crashes + 1),
            {noreply, State#state{lanes = Rest#{New => I}, crashes = Crashes + 1}};
        error ->
            {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

%% A publisher may have charged the old word and then send to the lane that is no more: so the
%% new one has a word of its own, and that message is among those that the crash has lost.
replace(I, Crashes) ->
    #lanes{pids = Pids, words = Words, stats = Stats, wild = Wild} = Lanes =
        persistent_term:get(?LANES),
    Word = erlane_fanout_inbox:word(),
    Pid = erlane_fanout_lane:start_link(I, Word, element(I, Stats), Wild, ?EPOCH(Crashes)),
    persistent_term:put(?LANES, Lanes#lanes{pids = setelement(I, Pids, Pid),
                                            words = setelement(I, Words, Word)}),
    ok = erlane_fanout_lane:begin_now(Pid),
    Pid.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{lanes = Lanes}) ->
    %% Their memory goes when they have gone.
    lists:foreach(fun(Pid) -> exit(Pid, shutdown) end, maps:keys(Lanes)),
    lists:foreach(fun(Pid) -> receive {'EXIT', Pid, _} -> ok end end, maps:keys(Lanes)),
    forget().

%% Of this one, or of one that crashed before.
forget() ->
    case persistent_term:get(?LANES, none) of
        none -> ok;
        #lanes{pids = Pids} ->
            _ = persistent_term:erase(?LANES),
            erlane_fanout_sub:forget(lists:seq(1, tuple_size(Pids)))
    end.
