%% SPDX-License-Identifier: Apache-2.0
%% @doc Starts the lanes of a node when it is first sent to, and after a crash.
%%
%% Senders find a node's lanes in a persistent term and ask this process only when there is none.
%% Lanes are linked to it: they live and end with it.
-module(erlane_router_peers).
-behaviour(gen_server).

-export([start_link/1, peer/1, all/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("erlane_router.hrl").

-record(state, {config :: erlane_router_opts:config(),
                nodes = [] :: [node()],
                %% Whose lane, and which.
                lanes = #{} :: #{pid() => {node(), pos_integer()}}}).

-spec start_link(erlane_router_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Config, []).

%% @doc The lanes of a node, which are started if there are none.
-spec peer(node()) -> #peer{}.
peer(Node) ->
    case persistent_term:get({erlane_router, Node}, none) of
        none ->
            call({peer, Node});
        Peer ->
            Peer
    end.

%% @doc All that were started.
-spec all() -> [#peer{}].
all() ->
    [persistent_term:get({erlane_router, Node})
     || Node <- call(nodes)].

%% It may end while it is asked, when the application stops.
call(Request) ->
    try gen_server:call(?MODULE, Request, infinity)
    catch exit:_ -> error({not_started, erlane_router})
    end.

-spec init(erlane_router_opts:config()) -> {ok, #state{}}.
init(Config) ->
    process_flag(trap_exit, true),
    %% Of one that was here before and crashed.
    forget([Node || {{erlane_router, Node}, _} <- persistent_term:get()]),
    {ok, #state{config = Config}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({peer, Node}, _From, State) ->
    %% Another sender may have asked for it just before.
    case persistent_term:get({erlane_router, Node}, none) of
        none ->
            {Peer, State1} = start(Node, State),
            {reply, Peer, State1};
        Peer ->
            {reply, Peer, State}
    end;
handle_call(nodes, _From, State) ->
    {reply, State#state.nodes, State};
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({'EXIT', Pid, _Reason}, #state{lanes = Lanes} = State) ->
    case maps:take(Pid, Lanes) of
        {{Node, I}, Rest} -> {noreply, replace(Node, I, State#state{lanes = Rest})};
        error -> {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, #state{nodes = Nodes}) ->
    forget(Nodes).

forget(Nodes) ->
    lists:foreach(fun(Node) -> persistent_term:erase({erlane_router, Node}) end, Nodes).

start(Node, #state{config = Config, nodes = Nodes, lanes = Lanes} = State) ->
    #{lanes := N, bound := Bound, large := Large, policy := Policy} = Config,
    Is = lists:seq(1, N),
    Words = [word() || _ <- Is],
    Stats = [atomics:new(?STATS, [{signed, false}]) || _ <- Is],
    Pids = [erlane_router_lane:start_link(Node, I, Config, Word, Stat)
            || {I, Word, Stat} <- lists:zip3(Is, Words, Stats)],
    Peer = #peer{node = Node, lanes = list_to_tuple(Pids), words = list_to_tuple(Words),
                 stats = list_to_tuple(Stats), bound = Bound, large = Large, policy = Policy},
    persistent_term:put({erlane_router, Node}, Peer),
    Mine = maps:from_list([{Pid, {Node, I}} || {Pid, I} <- lists:zip(Pids, Is)]),
    {Peer, State#state{nodes = [Node | Nodes], lanes = maps:merge(Lanes, Mine)}}.

word() -> atomics:new(?WORDS, [{signed, true}]).

%% A sender may have charged the old word and then send to the lane that is no more; so the new
%% lane has a word of its own, and that message is lost without a count.
replace(Node, I, #state{config = Config, lanes = Lanes} = State) ->
    #peer{words = Words, stats = Stats} = Peer = persistent_term:get({erlane_router, Node}),
    Stat = element(I, Stats),
    Queued = ?MESSAGES(atomics:get(element(I, Words), ?WORD)),
    Confirmed = atomics:exchange(Stat, ?S_CONFIRMED, 0),
    Unconfirmed = atomics:exchange(Stat, ?S_SENT, 0) - Confirmed,
    atomics:add(Stat, ?S_DELIVERED, Confirmed),
    atomics:add(Stat, ?S_DROPPED, Queued),
    atomics:add(Stat, ?S_UNCONFIRMED, Unconfirmed),
    Word = word(),
    Pid = erlane_router_lane:start_link(Node, I, Config, Word, Stat),
    persistent_term:put({erlane_router, Node},
                        Peer#peer{lanes = setelement(I, Peer#peer.lanes, Pid),
                                  words = setelement(I, Words, Word)}),
    erlane_router_report:down(Node, Queued, Unconfirmed),
    State#state{lanes = Lanes#{Pid => {Node, I}}}.
