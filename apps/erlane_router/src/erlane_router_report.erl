%% SPDX-License-Identifier: Apache-2.0
%% @doc Tells subscribers what was lost.
%%
%% The lanes of a node lose their partners at the same moment: what they report within a short
%% while is one report. What full lanes refuse is counted by the senders and read from the
%% counters, once a second at most.
-module(erlane_router_report).
-behaviour(gen_server).

-export([start_link/0, subscribe/0, unsubscribe/0, down/3, refused/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_router.hrl").

-define(GATHER_MS, 50).
-define(REFUSED_MS, 1000).

-record(state, {subscribers = #{} :: #{pid() => reference()},
                down = #{} :: #{node() => {non_neg_integer(), non_neg_integer()}},
                %% Nodes with lanes that refused, to be told of when the second is over.
                refused = [] :: [node()]}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc The caller gets reports until it ends or unsubscribes.
-spec subscribe() -> ok.
subscribe() -> call({subscribe, self()}).

%% @doc No report is sent after this; one may be in the mailbox.
-spec unsubscribe() -> ok.
unsubscribe() -> call({unsubscribe, self()}).

call(Request) ->
    try gen_server:call(?MODULE, Request)
    catch exit:{noproc, _} -> error({not_started, erlane_router})
    end.

%% @doc A lane has lost its partner: so many dropped from its queue, so many on the way.
-spec down(node(), non_neg_integer(), non_neg_integer()) -> ok.
down(Node, Dropped, Unconfirmed) ->
    gen_server:cast(?MODULE, {down, Node, Dropped, Unconfirmed}).

%% @doc A sender was the first since the last report that a lane of this node refused.
-spec refused(node()) -> ok.
refused(Node) -> gen_server:cast(?MODULE, {refused, Node}).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({subscribe, Pid}, _From, #state{subscribers = All} = State)
  when is_map_key(Pid, All) ->
    {reply, ok, State};
handle_call({subscribe, Pid}, _From, #state{subscribers = All} = State) ->
    {reply, ok, State#state{subscribers = All#{Pid => monitor(process, Pid)}}};
handle_call({unsubscribe, Pid}, _From, State) ->
    {reply, ok, forget(Pid, State)};
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({down, Node, Dropped, Unconfirmed}, #state{down = Down} = State) ->
    case Down of
        #{Node := {D, U}} ->
            {noreply, State#state{down = Down#{Node := {D + Dropped, U + Unconfirmed}}}};
        #{} ->
            _ = erlang:send_after(?GATHER_MS, self(), {tell_down, Node}),
            {noreply, State#state{down = Down#{Node => {Dropped, Unconfirmed}}}}
    end;
handle_cast({refused, Node}, #state{refused = Refused} = State) ->
    case lists:member(Node, Refused) of
        true ->
            {noreply, State};
        false ->
            _ = erlang:send_after(?REFUSED_MS, self(), {tell_refused, Node}),
            {noreply, State#state{refused = [Node | Refused]}}
    end;
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({tell_down, Node}, #state{down = Down} = State) ->
    {{Dropped, Unconfirmed}, Rest} = maps:take(Node, Down),
    tell({erlane_router, down, Node, #{dropped => Dropped, unconfirmed => Unconfirmed}}, State),
    {noreply, State#state{down = Rest}};
handle_info({tell_refused, Node}, State) ->
    case persistent_term:get({erlane_router, Node}, none) of
        #peer{stats = Stats} ->
            case lists:sum([untold(Stat) || Stat <- tuple_to_list(Stats)]) of
                0 -> ok;
                N -> tell({erlane_router, dropped, Node, N}, State)
            end;
        none ->
            ok
    end,
    {noreply, State#state{refused = lists:delete(Node, State#state.refused)}};
handle_info({'DOWN', _, process, Pid, _}, State) ->
    {noreply, forget(Pid, State)};
handle_info(_, State) ->
    {noreply, State}.

%% A sender that counts after the exchange finds 0 and asks for the next report.
untold(Stat) -> atomics:exchange(Stat, ?S_TOLD, 0).

tell(Message, #state{subscribers = All}) ->
    maps:foreach(fun(Pid, _) -> Pid ! Message end, All).

forget(Pid, #state{subscribers = All} = State) ->
    case maps:take(Pid, All) of
        {Ref, Rest} ->
            demonitor(Ref, [flush]),
            State#state{subscribers = Rest};
        error ->
            State
    end.
