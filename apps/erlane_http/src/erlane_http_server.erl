%% SPDX-License-Identifier: Apache-2.0
%% @doc One listener: owns the listening socket, has an acceptor for each scheduler, drains.
%%
%% It is linked to its acceptors, and they to their connections: they fail together, and the
%% supervisor opens the whole listener anew.
-module(erlane_http_server).
-behaviour(gen_server).

-export([create/0, start_link/2, drain/2, info/1, names/0, whereis/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("erlane_http.hrl").

%% Rows {Name, Pid}.
-define(TABLE, ?MODULE).

-record(st, {srv :: #srv{},
             address :: {inet:ip_address() | {local, binary()}, inet:port_number()},
             drain_ms :: non_neg_integer(),
             acceptors :: [pid()],
             %% Acceptors that still have connections, once a drain has begun.
             busy = [] :: [pid()],
             callers = [] :: [gen_server:from()],
             state = listening :: listening | draining | drained}).

%% After the deadline connections are killed; this long they have to be dead.
-define(CUT_MS, 2000).
-define(AGAIN_MS, 2000).
-define(AGAIN_PAUSE_MS, 20).

%% @doc Makes the table of listeners; the caller owns it.
-spec create() -> ok.
create() ->
    _ = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    ok.

%% @doc Starts a listener; an error names the option, or is what listening failed with.
-spec start_link(atom(), erlane_http:options()) ->
          {ok, pid()} | {error, {atom(), term()} | inet:posix()}.
start_link(Name, Options) ->
    case erlane_http_opts:check(Options) of
        {ok, Checked} ->
            case gen_server:start_link(?MODULE, {Name, Checked}, []) of
                {error, {shutdown, Reason}} -> {error, Reason};
                Other -> Other
            end;
        Error -> Error
    end.

%% @doc Closes the listening socket, lets connections end, cuts those that are left after `Ms'.
-spec drain(pid(), non_neg_integer()) -> ok.
drain(Pid, Ms) -> gen_server:call(Pid, {drain, Ms}, infinity).

%% @doc See {@link erlane_http:info/1}.
-spec info(atom()) -> erlane_http:info() | {error, not_found}.
info(Name) ->
    case ?MODULE:whereis(Name) of
        undefined -> {error, not_found};
        Pid ->
            %% It may end between the look-up and the call.
            try gen_server:call(Pid, info, infinity)
            catch exit:{Why, {gen_server, call, _}}
                    when Why =:= noproc; Why =:= normal; Why =:= shutdown; Why =:= killed ->
                    {error, not_found}
            end
    end.

%% @doc The process of a listener.
-spec whereis(atom()) -> pid() | undefined.
whereis(Name) ->
    case ets:lookup(?TABLE, Name) of
        [{_, Pid}] -> Pid;
        [] -> undefined
    end.

%% @doc The names of the listeners.
-spec names() -> [atom()].
names() -> lists:sort([Name || {Name, _} <- ets:tab2list(?TABLE)]).

-spec init(term()) -> {ok, #st{}} | {stop, {shutdown, term()}}.
init({Name, Options}) ->
    process_flag(trap_exit, true),
    case register_name(Name) of
        new -> listen(Name, Options, 0);
        again -> listen(Name, Options, ?AGAIN_MS);
        taken -> {stop, {shutdown, {name, already_started}}}
    end.

register_name(Name) ->
    case ets:insert_new(?TABLE, {Name, self()}) of
        true -> new;
        false ->
            %% One that was killed has left its row.
            [{_, Old}] = ets:lookup(?TABLE, Name),
            case is_process_alive(Old) of
                true -> taken;
                false -> true = ets:insert(?TABLE, {Name, self()}), again
            end
    end.

listen(Name, #{access_log := Access} = Options, Patience) ->
    case erlane_http_opts:listen(Options) of
        {ok, Socket, Address} ->
            case start_log(Access) of
                {ok, Log} -> {ok, started(Name, Options, Socket, Address, Log)};
                {error, Why} -> failed(Name, {access_log, Why})
            end;
        %% The socket of one that was killed lives a little longer than its process.
        {error, eaddrinuse} when Patience > 0 ->
            receive after ?AGAIN_PAUSE_MS -> ok end,
            listen(Name, Options, Patience - ?AGAIN_PAUSE_MS);
        {error, Why} -> failed(Name, Why)
    end.

failed(Name, Why) ->
    true = ets:delete(?TABLE, Name),
    {stop, {shutdown, Why}}.

start_log(none) -> {ok, none};
start_log(Access) -> erlane_http_log:start_link(Access).

started(Name, #{connections := Max, drain := Drain} = Options, Socket, Address, Log) ->
    Metrics = erlane_http_metrics:new(Name),
    Srv = erlane_http_opts:srv(Name, Socket, Metrics, Log, Options),
    Key = key(Name),
    ok = persistent_term:put(Key, Srv),
    Places = erlane_http_acceptor:places(Max),
    N = erlang:system_info(schedulers_online),
    #st{srv = Srv, address = Address, drain_ms = Drain,
        acceptors = [erlane_http_acceptor:start_link(Key, Places, Metrics)
                     || _ <- lists:seq(1, N)]}.

key(Name) -> {?MODULE, Name}.

-spec handle_call(term(), gen_server:from(), #st{}) ->
          {reply, term(), #st{}} | {noreply, #st{}}.
handle_call(info, _From, #st{srv = Srv, address = {Ip, Port}, state = State} = St) ->
    #srv{name = Name, scheme = Scheme, metrics = Metrics} = Srv,
    Totals = erlane_http_metrics:totals(Metrics),
    {reply, Totals#{name => Name, scheme => Scheme, ip => Ip, port => Port,
                    state => case State of listening -> listening; _ -> draining end}, St};
handle_call({drain, _}, _From, #st{state = drained} = St) ->
    {reply, ok, St};
handle_call({drain, Ms}, From, St) ->
    {noreply, begin_drain(Ms, St#st{callers = [From | St#st.callers]})}.

-spec handle_cast(term(), #st{}) -> {noreply, #st{}}.
handle_cast(_, St) -> {noreply, St}.

-spec handle_info(term(), #st{}) -> {noreply, #st{}} | {stop, term(), #st{}}.
handle_info(place, #st{acceptors = Acceptors} = St) ->
    [Pid ! place || Pid <- Acceptors],
    {noreply, St};
handle_info({drained, Pid}, #st{state = draining, busy = Busy} = St) ->
    case lists:delete(Pid, Busy) of
        [] ->
            [gen_server:reply(From, ok) || From <- St#st.callers],
            {noreply, St#st{state = drained, busy = [], callers = []}};
        Rest ->
            {noreply, St#st{busy = Rest}}
    end;
handle_info({timeout, _, cut}, #st{busy = Busy} = St) ->
    [erlane_http_acceptor:cut(Pid) || Pid <- Busy],
    {noreply, St};
handle_info({'EXIT', _, normal}, St) ->
    {noreply, St};
handle_info({'EXIT', _, Reason}, St) ->
    {stop, Reason, St};
handle_info(_, St) ->
    {noreply, St}.

begin_drain(Ms, #st{state = listening, srv = #srv{flags = Flags}, acceptors = Acceptors} = St) ->
    ok = atomics:put(Flags, 1, 1),
    %% The acceptors are told first: that the socket is closed is then no surprise to them.
    [erlane_http_acceptor:drain(Pid) || Pid <- Acceptors],
    close(St),
    _ = erlang:start_timer(Ms, self(), cut),
    St#st{state = draining, busy = Acceptors};
begin_drain(Ms, St) ->
    %% A second caller may shorten the time.
    _ = erlang:start_timer(Ms, self(), cut),
    St.

close(#st{srv = #srv{listen = Socket}, address = Address}) ->
    ok = gen_tcp:close(Socket),
    case Address of
        %% Nothing else removes the name, and the next listen would fail with eaddrinuse.
        {{local, Path}, _} -> _ = file:delete(Path), ok;
        _ -> ok
    end.

-spec terminate(term(), #st{}) -> ok.
terminate(Reason, #st{srv = #srv{name = Name, log = Log}, drain_ms = Ms} = St) ->
    ok = case {Reason, St#st.state} of
             {_, drained} -> ok;
             {shutdown, _} -> wait(Ms, begin_drain(Ms, St));
             {_, listening} -> close(St);
             {_, draining} -> ok
         end,
    ok = erlane_http_log:stop(Log, ?CUT_MS),
    _ = persistent_term:erase(key(Name)),
    true = ets:delete(?TABLE, Name),
    ok.

wait(Ms, St) ->
    receive
        {drained, _} = Message ->
            {noreply, St1} = handle_info(Message, St),
            case St1#st.state of
                drained -> ok;
                _ -> wait(Ms, St1)
            end;
        {timeout, _, cut} = Message ->
            {noreply, St1} = handle_info(Message, St),
            wait(?CUT_MS, St1)
    after Ms + ?CUT_MS ->
        ok
    end.
