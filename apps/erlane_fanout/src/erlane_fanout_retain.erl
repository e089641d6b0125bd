%% SPDX-License-Identifier: Apache-2.0
%% @doc The last message of a topic, for who subscribes later.
%%
%% Every node that runs the application has all of them: they are sent to all nodes, with the time
%% of the publisher's node, and the latest wins. To a node that appears the first of those that
%% were there, by name, sends what it has.
-module(erlane_fanout_retain).
-behaviour(gen_server).

-export([start_link/1, store/2, forget/1, matching/1, tell/2, info/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_fanout.hrl").

%% Rows of one message to another node.
-define(ROWS, 100).

-record(state, {max :: non_neg_integer(), max_bytes :: non_neg_integer(),
                bytes = 0 :: non_neg_integer(), refused = 0 :: non_neg_integer()}).

-spec start_link(erlane_fanout_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Config, []).

%% @doc Keeps a message for these topics, here and on the other nodes; one that there is no room
%% for is counted, and the one before it is kept no longer.
-spec store([erlane_fanout_topic:topic()], term()) -> ok.
store(Topics, Message) ->
    Bytes = erlane_fanout_inbox:size(Message),
    Stamp = {erlang:system_time(), node()},
    everywhere([{Topic, Stamp, {message, Message}, Bytes} || Topic <- Topics]).

%% @doc Keeps none for this topic.
-spec forget(erlane_fanout_topic:topic()) -> ok.
forget(Topic) ->
    everywhere([{Topic, {erlang:system_time(), node()}, none, 0}]).

everywhere(Rows) ->
    _ = [gen_server:cast({?MODULE, Node}, {rows, Rows}) || Node <- erlane_fanout_remote:nodes()],
    gen_server:call(?MODULE, {rows, Rows}, infinity).

%% @doc What is kept for topics that the filter matches.
-spec matching(erlane_fanout_topic:filter()) -> [{erlane_fanout_topic:topic(), term()}].
matching(Filter) ->
    case erlane_fanout_topic:is_wild(Filter) of
        false ->
            [{Topic, M} || {Topic, _, {message, M}, _} <- ets:lookup(?RETAIN, Filter)];
        true ->
            Topics = ets:select(?RETAIN, [{{'$1', '_', '_', '_'}, [{is_binary, '$1'}], ['$1']}]),
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

%% @doc Topics, bytes, and how often there was no room.
-spec info() -> #{topics := non_neg_integer(), bytes := non_neg_integer(),
                  refused := non_neg_integer()}.
info() -> gen_server:call(?MODULE, info).

-spec init(erlane_fanout_opts:config()) -> {ok, #state{}}.
init(#{retained := Max, retained_bytes := MaxBytes}) ->
    %% The table is not this process's: what is there stays.
    Bytes = lists:sum(ets:select(?RETAIN, [{{'_', '_', '_', '$1'}, [], ['$1']}])),
    {ok, #state{max = Max, max_bytes = MaxBytes, bytes = Bytes}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({rows, Rows}, _From, State) ->
    {reply, ok, lists:foldl(fun put_row/2, State, Rows)};
handle_call(info, _From, #state{bytes = Bytes, refused = Refused} = State) ->
    {reply, #{topics => ets:info(?RETAIN, size), bytes => Bytes, refused => Refused}, State};
handle_call(_, _From, State) ->
    {reply, {error, badarg}, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({rows, Rows}, State) when is_list(Rows) ->
    {noreply, lists:foldl(fun put_row/2, State, Rows)};
handle_cast({tell, Nodes}, State) ->
    send(ets:match_object(?RETAIN, '_', ?ROWS), Nodes),
    {noreply, State};
handle_cast(_, State) ->
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info(_, State) -> {noreply, State}.

send('$end_of_table', _) -> ok;
send({Rows, More}, Nodes) ->
    [gen_server:cast({?MODULE, Node}, {rows, Rows}) || Node <- Nodes],
    send(ets:match_object(More), Nodes).

%% Another node may send anything.
put_row({Topic, {Time, Node} = Stamp, What, Bytes} = Row, State)
  when is_integer(Time), is_atom(Node), is_integer(Bytes), Bytes >= 0, not is_list(Topic) ->
    case ets:lookup(?RETAIN, Topic) of
        [{_, Later, _, _}] when Later >= Stamp -> State;
        [{_, _, _, Old}] ->
            true = ets:delete(?RETAIN, Topic),
            put_new(Row, What, State#state{bytes = State#state.bytes - Old});
        [] ->
            put_new(Row, What, State)
    end;
put_row(_, State) ->
    State.

put_new({_, _, _, Bytes} = Row, {message, _}, #state{bytes = Sum} = State) ->
    #state{max = Max, max_bytes = MaxBytes, refused = Refused} = State,
    case ets:info(?RETAIN, size) < Max andalso Sum + Bytes =< MaxBytes of
        true ->
            true = ets:insert(?RETAIN, Row),
            State#state{bytes = Sum + Bytes};
        false ->
            State#state{refused = Refused + 1}
    end;
put_new(_, _, State) ->
    State.
