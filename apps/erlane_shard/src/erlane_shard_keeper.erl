%% SPDX-License-Identifier: Apache-2.0
%% @doc The process of a set of shards: starts them, says where the slots are, moves them.
%%
%% No request for a key goes through it. It runs no code of others; should it end, the whole set
%% ends with it.
-module(erlane_shard_keeper).
-behaviour(gen_server).

-include("erlane_shard.hrl").

-export([start_link/2, resize/2, gather/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-record(state, {name :: atom(), config :: erlane_shard_opts:config(), sup :: pid(),
                online :: pos_integer() | none,
                %% Those that have slots, and those that have none any more.
                pids :: #{Number :: pos_integer() => pid()},
                empty = #{} :: #{Number :: pos_integer() => pid()},
                gathering = [] :: [pid()],
                placement :: erlane_shard_map:placement()}).

%% @doc Starts a set that is registered under its name.
-spec start_link(atom(), erlane_shard_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Name, Config) ->
    case gen_server:start_link({local, Name}, ?MODULE, {Name, Config}, []) of
        {ok, Pid} -> {ok, Pid};
        {error, Reason} -> {error, Reason};
        ignore -> {error, ignore}
    end.

%% @doc Another number of shards. Returns when all slots are where they belong.
-spec resize(atom(), pos_integer()) -> ok | {error, term()}.
resize(Name, Shards) -> gen_server:call(Name, {resize, Shards}, infinity).

%% @doc The answer of each shard, none of which has a slot on its way. One that ended meanwhile is
%% not among them.
-spec gather(atom(), term(), timeout()) -> [term()].
gather(Name, Question, Timeout) -> gen_server:call(Name, {gather, Question}, Timeout).

-spec init({atom(), erlane_shard_opts:config()}) -> {ok, #state{}}.
init({Name, #{shards := Wanted} = Config}) ->
    process_flag(trap_exit, true),
    {Online, Shards} = case Wanted of
                           schedulers -> wanted(erlang:system_info(schedulers_online));
                           N -> {none, N}
                       end,
    {ok, Sup} = erlane_shard_sup:start_shards(),
    S = start(lists:seq(1, Shards),
              #state{name = Name, config = Config, sup = Sup, online = Online, pids = #{},
                     placement = erlane_shard_map:new(Shards)}),
    {ok, publish(S)}.

wanted(Online) -> {Online, min(Online, ?SLOTS)}.

-spec handle_call(term(), gen_server:from(), #state{}) ->
          {reply, term(), #state{}} | {noreply, #state{}}.
handle_call({resize, Shards}, _From, S) when is_integer(Shards), Shards >= 1, Shards =< ?SLOTS ->
    {reply, ok, move(Shards, S)};
handle_call({resize, Shards}, _From, S) ->
    {reply, {error, {shards, {badarg, Shards}}}, S};
handle_call({gather, Question}, From, #state{pids = Pids, gathering = Others} = S) ->
    %% A snapshot may be large: no heap to have it in for long.
    Pid = spawn_link(fun() -> gen_server:reply(From, gathered(maps:values(Pids), Question)) end),
    {noreply, S#state{gathering = [Pid | Others]}}.

gathered(Pids, Question) ->
    [Answer || Pid <- Pids, {ok, Answer} <- [erlane_shard_server:ask(Pid, Question, infinity)]].

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, S) ->
    {noreply, S}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {stop, term(), #state{}}.
handle_info({up, Number, Pid}, #state{pids = Pids} = S) when map_get(Number, Pids) =/= Pid ->
    {noreply, replaced(S#state{pids = Pids#{Number := Pid}})};
handle_info({up, Number, Pid}, #state{empty = Empty} = S) when map_get(Number, Empty) =/= Pid ->
    {noreply, replaced(S#state{empty = Empty#{Number := Pid}})};
handle_info(online, #state{online = Known} = S) ->
    case wanted(erlang:system_info(schedulers_online)) of
        {Known, _} -> {noreply, S};
        {Online, Shards} -> {noreply, move(Shards, S#state{online = Online})}
    end;
handle_info({'EXIT', Sup, Reason}, #state{sup = Sup} = S) ->
    {stop, Reason, S};
handle_info({'EXIT', Pid, _}, #state{gathering = Gathering} = S) ->
    {noreply, S#state{gathering = lists:delete(Pid, Gathering)}};
handle_info(_, S) ->
    {noreply, S}.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{name = Name, sup = Sup}) ->
    _ = persistent_term:erase({erlane_shard, Name}),
    Monitor = monitor(process, Sup),
    exit(Sup, shutdown),
    receive {'DOWN', Monitor, process, Sup, _} -> ok end.

%%
%% Shards
%%

start(Numbers, S) -> lists:foldl(fun start_one/2, S, Numbers).

start_one(Number, #state{pids = Pids, empty = Empty} = S) when is_map_key(Number, Empty) ->
    {Pid, Others} = maps:take(Number, Empty),
    S#state{pids = Pids#{Number => Pid}, empty = Others};
start_one(Number, #state{name = Name, config = Config, sup = Sup, pids = Pids} = S) ->
    {ok, Pid} = supervisor:start_child(Sup, #{id => Number,
                                              start => {erlane_shard_server, start_link,
                                                        [Name, Number, self(), Config]}}),
    S#state{pids = Pids#{Number => Pid}}.

%% The others may wait for the one that ended, for what they had passed on to it.
replaced(#state{pids = Pids, empty = Empty} = S) ->
    Published = publish(S),
    lists:foreach(fun(P) -> P ! forget end, maps:values(Pids) ++ maps:values(Empty)),
    Published.

publish(#state{name = Name, config = #{module := {Module, _}, bound := Bound}, pids = Pids,
               placement = Placement, online = Online} = S) ->
    Credits = maps:map(fun(_, Pid) -> {Pid, credit()} end, Pids),
    Slots = [begin
                 {Pid, Credit} = map_get(Number, Credits),
                 {Pid, Credit, Slot}
             end || {Slot, Number} <- lists:zip(erlane_shard_map:slots(),
                                                tuple_to_list(Placement))],
    persistent_term:put({erlane_shard, Name},
                        #set{name = Name, module = Module, bound = Bound, online = Online,
                             epoch = make_ref(), shards = maps:values(Credits),
                             slots = list_to_tuple(Slots)}),
    S.

%% Names an entry in the process dictionaries of senders, where a small integer costs half of what
%% a reference does. The high bits are to keep it apart from integers that others use there.
credit() -> (16#35ba bsl 44) + erlang:unique_integer([positive]).

%%
%% Slots
%%

%% 1. Who gets a slot knows that it comes, and lets messages for it wait.
%% 2. Senders learn of the new placement.
%% 3. Who had it gives it, and passes on what still comes.
%% 4. Nothing is on its way any more.
%%
%% A shard without slots stays: a sender that read the placement before may be about to send to it.
move(Shards, #state{placement = Old, gathering = Gathering} = S) ->
    lists:foreach(fun(Pid) -> receive {'EXIT', Pid, _} -> ok end end, Gathering),
    New = erlane_shard_map:resize(Old, Shards),
    #state{pids = Before} = S,
    #state{pids = All, empty = Empty} = Started =
        start([N || N <- lists:seq(1, Shards), not is_map_key(N, Before)], S),
    Names = list_to_tuple(erlane_shard_map:slots()),
    Moves = [{element(I, Names), map_get(From, All), map_get(To, All)}
             || {I, From, To} <- erlane_shard_map:moves(Old, New)],
    To = group([{T, Slot} || {Slot, _, T} <- Moves]),
    From = group([{F, {T, Slot}} || {Slot, F, T} <- Moves]),
    lists:foreach(fun({Pid, Slots}) -> ask(Pid, {expect, Slots}) end, To),
    Leaving = maps:filter(fun(N, _) -> N > Shards end, All),
    Published = publish(Started#state{pids = maps:without(maps:keys(Leaving), All),
                                      empty = maps:merge(Empty, Leaving),
                                      placement = New, gathering = []}),
    lists:foreach(fun({Pid, Given}) -> give(Pid, group(Given)) end, From),
    lists:foreach(fun({Pid, _}) -> ask(Pid, settled) end, To),
    Published.

group(Pairs) ->
    maps:to_list(maps:groups_from_list(fun({K, _}) -> K end, fun({_, V}) -> V end, Pairs)).

ask(Pid, Question) -> erlane_shard_server:ask(Pid, Question, infinity).

%% The state of a shard that has ended is gone; who waits for its slots begins anew.
give(Pid, Given) ->
    case ask(Pid, {give, Given}) of
        {ok, ok} -> ok;
        {error, _} ->
            lists:foreach(fun({To, Slots}) -> To ! {take, [{Slot, none} || Slot <- Slots]} end,
                          Given)
    end.
