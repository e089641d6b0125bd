%% SPDX-License-Identifier: Apache-2.0
%% @doc Counts how often a sender was suspended because a connection was busy.
%%
%% From OTP 28 on by a trace session of its own, which disturbs nobody. Before that a VM has one
%% system monitor: it is taken if nobody has it, and never from somebody; who has it may forward
%% to {@link event/1}. Both end with this process, and the counts with its table.
-module(erlane_dist_busy).
-behaviour(gen_server).

-export([start_link/0, event/1, counts/0, source/0, claim/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-define(TABLE, ?MODULE).
%% A key that no node has.
-define(FORWARDED, {forwarded}).
%% Nodes whose names are random must not fill the table.
-define(MAX_NODES, 1000).

-record(state, {session = none :: term(), nodes = #{} :: #{port() | pid() => node()}}).

%% @doc Starts it.
-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc See {@link erlane_dist:busy/1}.
-spec event(term()) -> ok.
event({monitor, _, busy_dist_port, _} = Event) ->
    %% Nobody there: a count of nobody.
    _ = [Pid ! {forwarded, Event} || Pid <- [whereis(?MODULE)], is_pid(Pid)],
    ok;
event(_) ->
    ok.

%% @doc See {@link erlane_dist:busy/0}.
-spec counts() -> #{node() => non_neg_integer()}.
counts() ->
    maps:from_list([Row || {Node, _} = Row <- rows(), is_atom(Node)]).

%% @doc See {@link erlane_dist:busy_source/0}.
-spec source() -> trace | system_monitor | forwarded | {held, pid() | port()} | none.
source() ->
    Own = whereis(?MODULE),
    case {Own, has_sessions(), erlang:system_monitor(), lists:keymember(?FORWARDED, 1, rows())} of
        {undefined, _, _, _} -> none;
        {_, true, _, _} -> trace;
        {_, _, {Own, _}, _} -> system_monitor;
        {_, _, _, true} -> forwarded;
        {_, _, {Holder, _}, _} -> {held, Holder};
        {_, _, undefined, _} -> none
    end.

%% Another process may ask while the table is not there.
rows() ->
    try ets:tab2list(?TABLE)
    catch error:badarg -> []
    end.

%% @doc Takes the system monitor if it has become free.
-spec claim() -> ok.
claim() ->
    gen_server:cast(?MODULE, claim).

has_sessions() -> erlang:function_exported(trace, system, 3).

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    _ = code:ensure_loaded(trace),
    ?TABLE = ets:new(?TABLE, [named_table, protected, {read_concurrency, true}]),
    {ok, take(#state{})}.

take(#state{session = none} = State) ->
    case {has_sessions(), erlang:system_monitor()} of
        {true, _} ->
            State#state{session = session(trace)};
        {false, undefined} ->
            %% Somebody else may have taken it since: it is his then.
            _ = case erlang:system_monitor(self(), [busy_dist_port]) of
                    {Pid, Options} when Pid =/= self() -> erlang:system_monitor(Pid, Options);
                    _ -> ok
                end,
            State;
        {false, _} ->
            State
    end;
take(State) ->
    State.

%% The module is an argument: OTP 25 has none of this name to check a call against.
session(Trace) ->
    Session = Trace:session_create(erlane_dist, self(), []),
    _ = Trace:system(Session, busy_dist_port, true),
    Session.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(_Request, _From, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(claim, State) -> {noreply, take(State)};
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({monitor, _, busy_dist_port, Connection}, State) ->
    {noreply, count(Connection, State)};
handle_info({forwarded, {monitor, _, busy_dist_port, Connection}}, State) ->
    true = ets:insert(?TABLE, {?FORWARDED, true}),
    {noreply, count(Connection, State)};
handle_info(_Message, State) ->
    {noreply, State}.

count(Connection, #state{nodes = Nodes} = State) ->
    case Nodes of
        #{Connection := Node} ->
            ok = add(Node),
            State;
        _ ->
            %% A connection that this one does not know. Those that are gone are forgotten.
            Known = maps:from_list([{C, Node}
                                    || {Node, C} <- erlang:system_info(dist_ctrl)]),
            case Known of
                #{Connection := Node} -> ok = add(Node);
                _ -> ok
            end,
            State#state{nodes = Known}
    end.

add(Node) ->
    case ets:member(?TABLE, Node) of
        false -> ok = make_room(ets:info(?TABLE, size));
        true -> ok
    end,
    _ = ets:update_counter(?TABLE, Node, 1, {Node, 0}),
    ok.

make_room(Size) when Size < ?MAX_NODES ->
    ok;
make_room(_) ->
    Connected = nodes(connected),
    [true = ets:delete(?TABLE, Node) || {Node, _} <- rows(), is_atom(Node),
                                        not lists:member(Node, Connected)],
    ok.
