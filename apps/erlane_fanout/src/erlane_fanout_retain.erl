%% SPDX-License-Identifier: Apache-2.0
%% @doc The last message of a topic, for who subscribes later.
%%
%% Every node that runs the application has all of them: they are sent to all nodes, with the time
%% of the publisher's node, and the latest wins. To a node that appears the first of those that
%% were there, by name, sends what it has. The node may have been cut off together with others, or
%% alone, so what was new to it, it passes on to all that it knows.
%%
%% That a topic was forgotten is kept like a message, for a day: a node that was cut off meanwhile
%% brings back what it has, and that is older. There are no more of these than there may be
%% messages; the oldest go first. A message that there was no room for leaves the same behind, as
%% the one before it must not come back either.
-module(erlane_fanout_retain).
-behaviour(gen_server).

-export([start_link/1, store/2, forget/1, matching/1, tell/2, info/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_fanout.hrl").

%% Rows of one message to another node.
-define(ROWS, 100).

-record(state, {max :: non_neg_integer(), max_bytes :: non_neg_integer(),
                keep_ns :: non_neg_integer(), forgotten :: forgotten(),
                bytes = 0 :: non_neg_integer(), refused = 0 :: non_neg_integer()}).

%% What orders the messages of a topic: nanoseconds of system time, and whose.
-type stamp() :: {integer(), node()}.
-type row() :: {erlane_fanout_topic:topic(), stamp(), {message, term()} | none,
                Bytes :: non_neg_integer()}.
%% The topics that have no message, the one that was forgotten first in front.
-type forgotten() :: gb_sets:set({stamp(), erlane_fanout_topic:topic()}).

-spec start_link(erlane_fanout_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Config, []).

%% @doc Keeps a message for these topics, here and on the other nodes; one that there is no room
%% for is counted, and the one before it is kept no longer.
-spec store([erlane_fanout_topic:topic()], term()) -> ok.
store(Topics, Message) ->
    Bytes = erlane_fanout_inbox:size(Message),
    everywhere([{Topic, stamp(Topic), {message, Message}, Bytes} || Topic <- Topics]).

%% @doc Keeps none for this topic.
-spec forget(erlane_fanout_topic:topic()) -> ok.
forget(Topic) ->
    everywhere([{Topic, stamp(Topic), none, 0}]).

%% Later than what is here, also when that is of a node whose clock is before ours.
stamp(Topic) ->
    Now = erlang:system_time(nanosecond),
    case ets:lookup(?RETAIN, Topic) of
        [{_, {Time, _}, _, _}] -> {max(Now, Time + 1), node()};
        [] -> {Now, node()}
    end.

%% Here first: a node that appears now is among the nodes, or is told by one that has it.
everywhere(Rows) ->
    ok = gen_server:call(?MODULE, {rows, Rows}, infinity),
    send(erlane_fanout_remote:nodes(), Rows).

send(Nodes, Rows) ->
    lists:foreach(fun(Node) -> gen_server:cast({?MODULE, Node}, {rows, Rows}) end, Nodes).

%% @doc What is kept for topics that the filter matches.
-spec matching(erlane_fanout_topic:filter()) -> [{erlane_fanout_topic:topic(), term()}].
matching(Filter) ->
    case erlane_fanout_topic:is_wild(Filter) of
        false ->
            [{Topic, M} || {Topic, _, {message, M}, _} <- ets:lookup(?RETAIN, Filter)];
        true ->
            Topics = ets:select(?RETAIN, [{{'$1', '_', {message, '_'}, '_'},
                                           [{is_binary, '$1'}], ['$1']}]),
            lists:append([matching(Topic) || Topic <- lists:sort(Topics),
                                             erlane_fanout_topic:matches(Filter, Topic)])
    end.

%% @doc These nodes are new; those were there.
-spec tell([node()], [node()]) -> ok.
tell(New, Before) ->
    case lists:min([node() | Before]) =:= node() of
        true -> gen_server:cast(?MODULE, {tell, New});
        false -> ok
    end.

%% @doc Topics with a message, bytes, how often there was no room, and how many topics are known
%% to have been forgotten.
-spec info() -> #{topics := non_neg_integer(), bytes := non_neg_integer(),
                  refused := non_neg_integer(), forgotten := non_neg_integer()}.
info() -> gen_server:call(?MODULE, info).

-spec init(erlane_fanout_opts:config()) -> {ok, #state{}}.
init(#{retained := Max, retained_bytes := MaxBytes, forgotten := Seconds}) ->
    %% The table is not this process's: what is there stays.
    Bytes = lists:sum(ets:select(?RETAIN, [{{'_', '_', '_', '$1'}, [], ['$1']}])),
    Forgotten = ets:select(?RETAIN, [{{'$1', '$2', none, '_'}, [], [{{'$2', '$1'}}]}]),
    {ok, #state{max = Max, max_bytes = MaxBytes, keep_ns = Seconds * 1_000_000_000,
                forgotten = gb_sets:from_list(Forgotten), bytes = Bytes}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({rows, Rows}, _From, State) ->
    {_, State1} = put_rows(Rows, State),
    {reply, ok, State1};
handle_call(info, _From, State) ->
    #state{bytes = Bytes, refused = Refused, forgotten = Forgotten} = State,
    {reply, #{topics => messages(State), bytes => Bytes, refused => Refused,
              forgotten => gb_sets:size(Forgotten)}, State};
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({rows, Rows}, State) when length(Rows) >= 0 ->
    {_, State1} = put_rows(Rows, State),
    {noreply, State1};
handle_cast({told, By, Rows}, State) when length(Rows) >= 0 ->
    {New, State1} = put_rows(Rows, State),
    _ = New =/= [] andalso send(erlane_fanout_remote:nodes() -- [By], New),
    {noreply, State1};
handle_cast({tell, Nodes}, State) ->
    State1 = expire(State),
    tell_rows(ets:match_object(?RETAIN, '_', ?ROWS), Nodes),
    {noreply, State1};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(_, State) -> {noreply, State}.

tell_rows('$end_of_table', _) -> ok;
tell_rows({Rows, More}, Nodes) ->
    [gen_server:cast({?MODULE, Node}, {told, node(), Rows}) || Node <- Nodes],
    tell_rows(ets:match_object(More), Nodes).

%% Answers those that were new.
-spec put_rows([row()], #state{}) -> {[row()], #state{}}.
put_rows(Rows, State) ->
    {New, State1} = lists:foldl(fun put_row/2, {[], State}, Rows),
    {New, expire(State1)}.

%% Another node may send anything.
put_row({Topic, {Time, Node} = Stamp, What, Bytes} = Row, {New, State} = Same)
  when is_integer(Time), is_atom(Node), is_integer(Bytes), Bytes >= 0, not is_list(Topic) ->
    case {is_what(What), ets:lookup(?RETAIN, Topic)} of
        {false, _} -> Same;
        {true, [{_, There, _, _}]} when There >= Stamp -> Same;
        {true, [Old]} -> {[Row | New], put_new(Row, remove(Old, State))};
        {true, []} -> {[Row | New], put_new(Row, State)}
    end;
put_row(_, Same) ->
    Same.

is_what(none) -> true;
is_what({message, _}) -> true;
is_what(_) -> false.

remove({Topic, Stamp, What, Bytes}, #state{bytes = Sum, forgotten = Forgotten} = State) ->
    true = ets:delete(?RETAIN, Topic),
    case What of
        none -> State#state{forgotten = gb_sets:delete({Stamp, Topic}, Forgotten)};
        _ -> State#state{bytes = Sum - Bytes}
    end.

put_new({Topic, Stamp, {message, _}, Bytes} = Row, #state{bytes = Sum, max = Max} = State) ->
    case messages(State) < Max andalso Sum + Bytes =< State#state.max_bytes of
        true ->
            true = ets:insert(?RETAIN, Row),
            State#state{bytes = Sum + Bytes};
        false ->
            none(Topic, Stamp, State#state{refused = State#state.refused + 1})
    end;
put_new({Topic, Stamp, none, _}, State) ->
    none(Topic, Stamp, State).

none(Topic, Stamp, #state{forgotten = Forgotten} = State) ->
    true = ets:insert(?RETAIN, {Topic, Stamp, none, 0}),
    State#state{forgotten = gb_sets:add({Stamp, Topic}, Forgotten)}.

messages(#state{forgotten = Forgotten}) ->
    ets:info(?RETAIN, size) - gb_sets:size(Forgotten).

%% Too old, or too many.
expire(#state{forgotten = Forgotten, max = Max} = State) ->
    case gb_sets:is_empty(Forgotten) of
        true -> State;
        false ->
            {{Time, _} = Stamp, Topic} = gb_sets:smallest(Forgotten),
            Oldest = erlang:system_time(nanosecond) - State#state.keep_ns,
            case Time < Oldest orelse gb_sets:size(Forgotten) > Max of
                true -> expire(remove({Topic, Stamp, none, 0}, State));
                false -> State
            end
    end.
