%% SPDX-License-Identifier: Apache-2.0
%% @doc Which nodes have subscriptions to what.
%%
%% The node is a member of the filter's group in the scope `erlane_fanout' of pg as long as a lane
%% of it has a subscription: membership grows with nodes, not with subscribers. What this process
%% hears of other nodes it writes into the table of routes, where publishers find it.
%%
%% It stays a member for a second after its last subscription. One that comes soon after the last
%% one left would get what is still under way, and then miss what others publish until they know
%% of it: with this they never stop.
%%
%% The member is erlane_fanout_lanes: pg of OTP 25 ends when a process that monitors the scope and
%% is a member itself ends.
-module(erlane_fanout_remote).
-behaviour(gen_server).

-export([start_link/0, changed/1, send/3, nodes/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_fanout.hrl").

-record(state, {monitor :: reference(), member :: pid(), wild :: atomics:atomics_ref(),
                %% With a timer: no lane has a subscription any more.
                joined = #{} :: #{erlane_fanout_topic:filter() => here | reference()},
                others = #{} :: #{group() => [pid()]}}).

-type group() :: nodes | {filter, erlane_fanout_topic:filter()}.

-define(SCOPE, erlane_fanout).
-define(LINGER_MS, 1000).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc A lane has its first subscription with this filter, or has none any more.
-spec changed(erlane_fanout_topic:filter()) -> ok.
changed(Filter) ->
    gen_server:cast(?MODULE, {changed, Filter}).

%% @doc Other nodes that run the application.
-spec nodes() -> [node()].
nodes() ->
    others(pg:get_members(?SCOPE, nodes)).

%% @doc One copy for each node, to the intake that all messages of the caller go to.
-spec send([node()], erlane_fanout_topic:topic() | [erlane_fanout_topic:topic()], term()) -> ok.
send([], _, _) -> ok;
send(Nodes, Topics, Message) ->
    Name = erlane_fanout_intake:name(self()),
    Dests = [{Name, Node} || Node <- Nodes],
    Entry = erlane_fanout_intake:entry(Topics, Message),
    case whereis(erlane_router_peers) of
        undefined -> lists:foreach(fun(Dest) -> Dest ! Entry end, Dests);
        _ -> erlane_router:send(Dests, Entry)
    end.

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {Monitor, Groups} = pg:monitor_scope(?SCOPE),
    #lanes{wild = Wild} = erlane_fanout_lanes:get(),
    %% What one before this wrote and is not so any more.
    _ = [erlane_fanout_match:remote(Filter, [], Wild)
         || {Filter, _, _, [_ | _]} <- ets:tab2list(?ROUTES)],
    Member = whereis(erlane_fanout_lanes),
    %% One before this may have joined.
    Joined = [Group || {Group, Pids} <- maps:to_list(Groups), lists:member(Member, Pids)],
    _ = lists:member(nodes, Joined) orelse pg:join(?SCOPE, nodes, Member),
    State = maps:fold(fun join/3,
                      #state{monitor = Monitor, member = Member, wild = Wild,
                             joined = maps:from_list([{F, here} || {filter, F} <- Joined])},
                      Groups),
    {ok, lists:foldl(fun own/2, State, maps:keys(State#state.joined)
                                        ++ [F || {F, _, _, _} <- ets:tab2list(?ROUTES)])}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({changed, Filter}, State) -> {noreply, own(Filter, State)};
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({Monitor, join, Group, Pids}, #state{monitor = Monitor} = State) ->
    {noreply, join(Group, Pids, State)};
handle_info({Monitor, leave, Group, Pids}, #state{monitor = Monitor} = State) ->
    {noreply, leave(Group, Pids, State)};
handle_info({timeout, Timer, {leave, Filter}}, State) ->
    {noreply, lingered(Filter, Timer, State)};
handle_info(_, State) ->
    {noreply, State}.

%% As the table says now, whatever it said when the message was sent.
own(Filter, #state{joined = Joined, member = Member} = State) ->
    case {here(Filter), Joined} of
        {true, #{Filter := here}} -> State;
        {true, #{Filter := Timer}} ->
            _ = erlang:cancel_timer(Timer),
            State#state{joined = Joined#{Filter := here}};
        {true, #{}} ->
            ok = pg:join(?SCOPE, {filter, Filter}, Member),
            State#state{joined = Joined#{Filter => here}};
        {false, #{Filter := here}} ->
            Timer = erlang:start_timer(?LINGER_MS, self(), {leave, Filter}),
            State#state{joined = Joined#{Filter := Timer}};
        {false, #{}} -> State
    end.

here(Filter) ->
    case ets:lookup(?ROUTES, Filter) of
        [{_, Lanes, _, _}] -> Lanes =/= 0;
        [] -> false
    end.

lingered(Filter, Timer, #state{joined = Joined, member = Member} = State) ->
    case Joined of
        #{Filter := Timer} ->
            case here(Filter) of
                true -> State#state{joined = Joined#{Filter := here}};
                false ->
                    _ = pg:leave(?SCOPE, {filter, Filter}, Member),
                    State#state{joined = maps:remove(Filter, Joined)}
            end;
        #{} -> State
    end.

join(Group, Pids, #state{others = Others} = State) ->
    Before = maps:get(Group, Others, []),
    case [Pid || Pid <- Pids, node(Pid) =/= node(), not lists:member(Pid, Before)] of
        [] -> State;
        New ->
            Group =:= nodes andalso erlane_fanout_retain:tell(others(New), others(Before)),
            write(Group, New ++ Before, State)
    end.

leave(Group, Pids, #state{others = Others} = State) ->
    case maps:get(Group, Others, []) of
        [] -> State;
        Before -> write(Group, Before -- Pids, State)
    end.

write(Group, Pids, #state{others = Others, wild = Wild} = State) ->
    case Group of
        {filter, Filter} -> erlane_fanout_match:remote(Filter, others(Pids), Wild);
        _ -> ok
    end,
    case Pids of
        [] -> State#state{others = maps:remove(Group, Others)};
        _ -> State#state{others = Others#{Group => Pids}}
    end.

others(Pids) ->
    lists:usort([node(Pid) || Pid <- Pids, node(Pid) =/= node()]).
