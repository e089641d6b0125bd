%% SPDX-License-Identifier: Apache-2.0
%% @doc Which nodes have subscriptions to what.
%%
%% The node is a member of the filter's group in the scope `erlane_fanout' of pg as long as a lane
%% of it has a subscription: membership grows with nodes, not with subscribers. What this process
%% hears of other nodes it writes into the table of routes, where publishers find it.
%%
%% It stays a member for a second after its last subscription. One that comes soon after the last
%% one left would have to wait until others know of it again.
%%
%% Each time that it becomes a member it does so under another number, a later one, and what
%% others publish comes with the last number that they knew. For a member that left and came back
%% something may still be under way from before, and what was published in between is not
%% coming: it would be missing behind that. So lanes are told the number, and what comes with an
%% earlier one is for none of the filter's subscriptions.
%%
%% What a publisher here sends to another node comes with the link to that one: see
%% {@link erlane_fanout_link}. There is a new link each time that this process comes to know the
%% node, after all its filters were taken out of the table, and it is in the table with each
%% of them: so what one look-up finds belongs together.
%%
%% What the router has lost while the connection lasts it tells this process, which tells the
%% intakes over there. It asks for that when a publisher finds the router there and nobody
%% listening.
%%
%% The member is erlane_fanout_lanes: pg of OTP 25 ends when a process that monitors the scope and
%% is a member itself ends.
-module(erlane_fanout_remote).
-behaviour(gen_server).

-export([start_link/0, changed/1, send/4, nodes/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_fanout.hrl").

-record(state, {monitor :: reference(), member :: pid(), wild :: atomics:atomics_ref(),
                %% With a timer: no lane has a subscription any more.
                joined = #{} :: #{filter() => {ordinal(), here | reference()}},
                last = 0 :: non_neg_integer(),
                nodes = [] :: [pid()],
                links = #{} :: #{pid() => erlane_fanout_link:link()},
                router = [] :: [reference()],
                others = #{} :: #{filter() => [{pid(), ordinal()}]}}).

-type filter() :: erlane_fanout_topic:filter().
%% Later ones are larger, also those of the node's next incarnation.
-type ordinal() :: pos_integer().
-type group() :: nodes | {filter, filter(), ordinal()}.

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
    nodes_of(pg:get_members(?SCOPE, nodes)).

%% @doc One copy for each node, to the intake that all messages of the caller go to.
-spec send([erlane_fanout_match:member()],
           erlane_fanout_topic:topic() | [erlane_fanout_topic:topic()], term(),
           atomics:atomics_ref()) -> ok.
send([], _, _, _) -> ok;
send(Members, Topics, Message, Wild) ->
    Name = erlane_fanout_intake:name(self()),
    Routed = whereis(erlane_router_peers) =/= undefined,
    _ = Routed andalso not erlane_fanout_match:reports(Wild)
        andalso gen_server:cast(?MODULE, routed),
    lists:foreach(fun({Node, Number, Link}) ->
                          Entry = erlane_fanout_intake:entry(Link, Number, Topics, Message),
                          case Routed of
                              true -> erlane_router:send({Name, Node}, Entry);
                              false -> {Name, Node} ! Entry, ok
                          end
                  end, Members).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    {Monitor, Groups} = pg:monitor_scope(?SCOPE),
    #lanes{wild = Wild} = erlane_fanout_lanes:get(),
    ok = erlane_fanout_match:reports(false, Wild),
    %% What one before this wrote and is not so any more.
    _ = [erlane_fanout_match:remote(Filter, [], Wild)
         || {Filter, _, _, [_ | _]} <- ets:tab2list(?ROUTES)],
    Member = whereis(erlane_fanout_lanes),
    %% One before this may have joined.
    Mine = [Group || {Group, Pids} <- maps:to_list(Groups), lists:member(Member, Pids)],
    _ = lists:member(nodes, Mine) orelse pg:join(?SCOPE, nodes, Member),
    Joined = [{F, {Number, here}} || {filter, F, Number} <- Mine],
    State = maps:fold(fun join/3,
                      #state{monitor = Monitor, member = Member, wild = Wild,
                             last = lists:max([0 | [N || {_, {N, here}} <- Joined]]),
                             joined = maps:from_list(Joined)},
                      Groups),
    {ok, lists:foldl(fun own/2, State,
                     lists:usort([F || {F, _} <- Joined]
                                 ++ [F || {F, _, _, _} <- ets:tab2list(?ROUTES)]))}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({changed, Filter}, State) -> {noreply, own(Filter, State)};
handle_cast(routed, #state{router = []} = State) -> {noreply, routed(State)};
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({Monitor, join, Group, Pids}, #state{monitor = Monitor} = State) ->
    {noreply, join(Group, Pids, State)};
handle_info({Monitor, leave, Group, Pids}, #state{monitor = Monitor} = State) ->
    {noreply, leave(Group, Pids, State)};
handle_info({timeout, Timer, {leave, Filter}}, State) ->
    {noreply, lingered(Filter, Timer, State)};
handle_info({erlane_router, down, Node, #{dropped := N, unconfirmed := M}}, State) ->
    _ = N + M > 0 andalso lost([Node], State),
    {noreply, State};
handle_info({erlane_router, dropped, Node, _}, State) ->
    ok = lost([Node], State),
    {noreply, State};
handle_info({'DOWN', Ref, process, _, _}, #state{router = Refs, wild = Wild} = State) ->
    case lists:member(Ref, Refs) of
        true ->
            %% All that waited in it, for whomever.
            lists:foreach(fun(R) -> demonitor(R, [flush]) end, Refs),
            ok = erlane_fanout_match:reports(false, Wild),
            ok = lost(nodes_of(maps:keys(State#state.links)), State),
            {noreply, State#state{router = []}};
        false -> {noreply, State}
    end;
handle_info(_, State) ->
    {noreply, State}.

routed(#state{wild = Wild} = State) ->
    try erlane_router:subscribe() of
        ok ->
            ok = erlane_fanout_match:reports(true, Wild),
            State#state{router = [monitor(process, Name)
                                  || Name <- [erlane_router_report, erlane_router_peers]]}
    catch
        %% It has just ended.
        _:_ -> State
    end.

%% What was for others than intakes is counted as well, so nobody knows how many.
lost(Nodes, #state{links = Links}) ->
    lists:foreach(fun({Pid, Link}) ->
                          lists:member(node(Pid), Nodes)
                              andalso tell_intakes(node(Pid), erlane_fanout_intake:lost(Link))
                  end, maps:to_list(Links)).

%% As the table says now, whatever it said when the message was sent.
own(Filter, #state{joined = Joined, member = Member, last = Last} = State) ->
    case {lanes(Filter) =/= 0, Joined} of
        {false, #{Filter := {Number, here}}} ->
            Timer = erlang:start_timer(?LINGER_MS, self(), {leave, Filter}),
            State#state{joined = Joined#{Filter := {Number, Timer}}};
        {false, #{}} -> State;
        {true, #{Filter := {Number, here}}} -> tell(Filter, Number, State);
        {true, #{Filter := {Number, Timer}}} ->
            _ = erlang:cancel_timer(Timer),
            tell(Filter, Number, State#state{joined = Joined#{Filter := {Number, here}}});
        {true, #{}} ->
            Number = max(Last + 1, erlang:system_time(microsecond)),
            %% Lanes first: what comes with this number is for those that have heard it.
            State1 = tell(Filter, Number, State),
            ok = pg:join(?SCOPE, {filter, Filter, Number}, Member),
            State1#state{joined = Joined#{Filter => {Number, here}}, last = Number}
    end.

%% Which lanes have subscriptions, as a bitmap.
lanes(Filter) ->
    case ets:lookup(?ROUTES, Filter) of
        [Route] -> element(?R_LANES, Route);
        [] -> 0
    end.

%% A feed that begins while the table is read here has a later era, and asks for itself.
tell(Filter, Number, #state{wild = Wild} = State) ->
    Era = erlane_fanout_match:era(Wild),
    #lanes{pids = Pids} = erlane_fanout_lanes:get(),
    Lanes = lanes(Filter),
    lists:foreach(fun(I) ->
                          erlane_fanout_lane:joined(element(I, Pids), Filter, Number, Era)
                  end,
                  [I || I <- lists:seq(1, tuple_size(Pids)), (Lanes bsr (I - 1)) band 1 =:= 1]),
    State.

lingered(Filter, Timer, #state{joined = Joined, member = Member} = State) ->
    case Joined of
        #{Filter := {Number, Timer}} ->
            case lanes(Filter) of
                0 ->
                    _ = pg:leave(?SCOPE, {filter, Filter, Number}, Member),
                    State#state{joined = maps:remove(Filter, Joined)};
                _ ->
                    %% It has asked, or is going to.
                    State#state{joined = Joined#{Filter := {Number, here}}}
            end;
        #{} -> State
    end.

-spec join(group(), [pid()], #state{}) -> #state{}.
join(nodes, Pids, State0) ->
    #state{nodes = Before} = State = linked(elsewhere(Pids), State0),
    case elsewhere(Pids) -- Before of
        [] -> State;
        New ->
            erlane_fanout_retain:tell(nodes_of(New), nodes_of(Before)),
            State#state{nodes = New ++ Before}
    end;
join({filter, Filter, Number}, Pids, State0) when is_integer(Number) ->
    #state{others = Others} = State = linked(elsewhere(Pids), State0),
    Before = maps:get(Filter, Others, []),
    case [{Pid, Number} || Pid <- elsewhere(Pids)] -- Before of
        [] -> State;
        New -> write(Filter, New ++ Before, State)
    end;
join(_, _, State) -> State.

-spec leave(group(), [pid()], #state{}) -> #state{}.
leave(nodes, Pids, #state{nodes = Before, links = Links} = State) ->
    %% All that it has joined it leaves at the same time.
    State#state{nodes = Before -- Pids, links = maps:without(Pids, Links)};
leave({filter, Filter, Number}, Pids, #state{others = Others} = State) ->
    case maps:get(Filter, Others, []) of
        [] -> State;
        Before -> write(Filter, Before -- [{Pid, Number} || Pid <- Pids], State)
    end;
leave(_, _, State) -> State.

%% The first that is heard of them, or the first since they have left.
linked(Pids, State) -> lists:foldl(fun link_to/2, State, Pids).

link_to(Pid, #state{links = Links} = State) when is_map_key(Pid, Links) -> State;
link_to(Pid, #state{links = Links, member = Member} = State) ->
    Link = {Member, erlang:unique_integer([monotonic])},
    tell_intakes(node(Pid), erlane_fanout_intake:link(Link)),
    State#state{links = Links#{Pid => Link}}.

%% A node that reads nothing holds up only this.
tell_intakes(Node, What) ->
    _ = spawn(fun() ->
                  lists:foreach(fun(Name) -> erlang:send({Name, Node}, What, [noconnect]) end,
                                erlane_fanout_intake:names())
              end),
    ok.

write(Filter, Members, #state{others = Others, links = Links, wild = Wild} = State) ->
    ok = erlane_fanout_match:remote(Filter, last(Members, Links), Wild),
    case Members of
        [] -> State#state{others = maps:remove(Filter, Others)};
        _ -> State#state{others = Others#{Filter => Members}}
    end.

%% The last number of each node: one that is back may be heard of before its end is.
last(Members, Links) ->
    Last = maps:from_list([{node(Pid), {node(Pid), Number, maps:get(Pid, Links)}}
                           || {Pid, Number} <- lists:keysort(2, Members),
                              is_map_key(Pid, Links)]),
    lists:sort(maps:values(Last)).

elsewhere(Pids) -> [Pid || Pid <- Pids, node(Pid) =/= node()].

nodes_of(Pids) -> lists:usort([node(Pid) || Pid <- elsewhere(Pids)]).
