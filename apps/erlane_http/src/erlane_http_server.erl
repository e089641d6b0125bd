%% SPDX-License-Identifier: Apache-2.0
%% @doc One listener: owns the listening socket, has an acceptor for each scheduler, drains.
%%
%% It is linked to its acceptors, and they to their connections: they fail together, and the
%% supervisor starts it anew. A restart never fails: what keeps it from listening (a certificate
%% that is just being replaced, an address that is in use) may be over the next moment, while a
%% supervisor that tries a few times within a millisecond gives up with all that it has. So it
%% waits and tries again, for as long as it takes.
-module(erlane_http_server).
-behaviour(gen_server).

-export([start_link/2, drain/2, info/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2, format_status/1]).

-include("erlane_http.hrl").
-include_lib("kernel/include/logger.hrl").

-record(st, {name :: atom(),
             options :: map(),
             metrics :: erlane_http_metrics:handles() | undefined,
             srv :: #srv{} | undefined,               % none while it is down
             address :: {inet:ip_address() | {local, binary()}, inet:port_number()} | undefined,
             file = none :: erlane_http_unix:identity(),
             acceptors = [] :: [pid()],
             %% Acceptors that still have connections, once a drain has begun.
             busy = [] :: [pid()],
             callers = [] :: [gen_server:from()],
             state = down :: down | listening | draining | drained}).

%% After the deadline connections are killed; this long they have to be dead.
-define(CUT_MS, 2000).
%% Between two tries to listen again. The socket of one that was killed lives a little longer than
%% its process, which is not worth a word.
-define(RETRY_MS, 20).
-define(MAX_RETRY_MS, 1000).
-define(TELL_MS, 500).

%% @doc Starts a listener; an error names the option, or is what listening failed with.
-spec start_link(atom(), erlane_http:options()) ->
          {ok, pid()} | {error, {atom(), term()} | inet:posix()}.
start_link(Name, Options) ->
    case gen_server:start_link(?MODULE, {Name, Options}, []) of
        {error, {shutdown, Reason}} -> {error, Reason};
        Other -> Other
    end.

%% @doc Closes the listening socket, lets connections end, cuts those that are left after `Ms'.
-spec drain(pid(), non_neg_integer()) -> ok.
drain(Pid, Ms) -> gen_server:call(Pid, {drain, Ms}, infinity).

%% @doc See {@link erlane_http:info/1}.
-spec info(atom()) -> erlane_http:info() | {error, not_found}.
info(Name) ->
    case erlane_http_names:whereis(Name) of
        undefined -> {error, not_found};
        Pid ->
            %% It may end between the look-up and the answer, for whatever reason.
            try gen_server:call(Pid, info, infinity)
            catch exit:{_, {gen_server, call, _}} -> {error, not_found}
            end
    end.

-spec init({atom(), erlane_http:options()}) -> {ok, #st{}} | {stop, {shutdown, term()}}.
init({Name, Options}) ->
    process_flag(trap_exit, true),
    [Supervisor | _] = get('$ancestors'),
    case erlane_http_names:claim(Name, Supervisor) of
        new ->
            case open(#st{name = Name, options = Options}) of
                {ok, St} -> {ok, St};
                {error, Why} ->
                    ok = erlane_http_names:release(Name),
                    {stop, {shutdown, Why}}
            end;
        {again, Ms} ->
            _ = retry(Ms, ?RETRY_MS),
            {ok, #st{name = Name, options = Options, metrics = erlane_http_metrics:new(Name)}};
        taken -> {stop, {shutdown, {name, already_started}}};
        not_started -> {stop, {shutdown, {erlane_http, not_started}}}
    end.

retry(Ms, Next) -> erlang:start_timer(Ms, self(), {open, Next}).

open(#st{options = Given} = St) ->
    case erlane_http_opts:check(Given) of
        {ok, Options} ->
            case listen(Options) of
                {ok, Socket, Address} -> opened(Socket, Address, Options, St);
                Error -> Error
            end;
        Error -> Error
    end.

listen(#{ip := Ip} = Options) ->
    case erlane_http_opts:listen(Options) of
        {error, eaddrinuse} = Error ->
            case erlane_http_unix:clear(Ip) of
                true -> erlane_http_opts:listen(Options);
                false -> Error
            end;
        Other -> Other
    end.

opened(Socket, Address, #{access_log := Access} = Options, St) ->
    case start_log(Access) of
        {ok, Log} -> {ok, started(Socket, Address, Log, Options, St)};
        {error, Why} ->
            ok = gen_tcp:close(Socket),
            {error, {access_log, Why}}
    end.

start_log(none) -> {ok, none};
start_log(Access) -> erlane_http_log:start_link(Access).

started(Socket, {Ip, _} = Address, Log, #{connections := Max} = Options,
        #st{name = Name} = St) ->
    Metrics = case St of
                  #st{metrics = undefined} -> erlane_http_metrics:new(Name);
                  #st{metrics = Made} -> Made
              end,
    #srv{draining = Draining} = Srv = erlane_http_opts:srv(Name, Socket, Metrics, Log, Options),
    Key = key(Name),
    %% Of one of this name that was killed amid its drain.
    _ = persistent_term:erase(Draining),
    ok = persistent_term:put(Key, Srv),
    Places = erlane_http_acceptor:places(Max),
    N = erlang:system_info(schedulers_online),
    St#st{srv = Srv, metrics = Metrics, address = Address, file = erlane_http_unix:identity(Ip),
          state = listening,
          acceptors = [erlane_http_acceptor:start_link(Key, Places, Metrics)
                       || _ <- lists:seq(1, N)]}.

key(Name) -> {?MODULE, Name}.

-spec handle_call(term(), gen_server:from(), #st{}) ->
          {reply, term(), #st{}} | {noreply, #st{}}.
handle_call(info, _From, #st{name = Name, metrics = Metrics, state = State} = St) ->
    {Ip, Port} = address(St),
    Totals = erlane_http_metrics:totals(Metrics),
    {reply, Totals#{name => Name, scheme => scheme(St), ip => Ip, port => Port,
                    state => case State of drained -> draining; _ -> State end}, St};
handle_call({drain, _}, _From, #st{state = State} = St) when State =:= drained; State =:= down ->
    {reply, ok, St#st{state = drained}};
handle_call({drain, Ms}, From, St) ->
    {noreply, begin_drain(Ms, St#st{callers = [From | St#st.callers]})}.

address(#st{address = undefined, options = Options}) ->
    #{ip := Ip, port := Port} = maps:merge(erlane_http_opts:defaults(), Options),
    case Ip of
        {local, Path} -> {{local, iolist_to_binary(Path)}, 0};
        _ -> {Ip, Port}
    end;
address(#st{address = Address}) -> Address.

scheme(#st{options = #{tls := Tls}}) when Tls =/= none -> https;
scheme(_) -> http.

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
handle_info({timeout, _, {open, Ms}}, #st{state = down} = St) ->
    {noreply, reopen(Ms, St)};
handle_info({'EXIT', Pid, Reason}, #st{acceptors = Acceptors, srv = Srv} = St)
  when Reason =/= normal ->
    case lists:member(Pid, Acceptors) orelse is_log(Pid, Srv) of
        true -> {stop, Reason, St};
        false -> {noreply, St}
    end;
handle_info(_, St) ->
    {noreply, St}.

is_log(Pid, #srv{log = {Pid, _}}) -> true;
is_log(_, _) -> false.

reopen(Ms, #st{name = Name} = St) ->
    case open(St) of
        {ok, St1} ->
            Ms > ?TELL_MS andalso ?LOG_NOTICE("http ~ts: listens again", [Name]),
            St1;
        {error, Why} ->
            Next = min(2 * Ms, ?MAX_RETRY_MS),
            Ms =< ?TELL_MS andalso Next > ?TELL_MS andalso
                ?LOG_ERROR("http ~ts: cannot listen again: ~0tP, trying on", [Name, Why, 20]),
            _ = retry(Ms, Next),
            St
    end.

begin_drain(Ms, #st{state = listening, srv = Srv, acceptors = Acceptors} = St) ->
    #srv{draining = Draining} = Srv,
    ok = persistent_term:put(Draining, true),
    %% The acceptors are told first: that the socket is closed is then no surprise to them.
    [erlane_http_acceptor:drain(Pid) || Pid <- Acceptors],
    close(St),
    _ = erlang:start_timer(Ms, self(), cut),
    St#st{state = draining, busy = Acceptors};
begin_drain(Ms, St) ->
    %% A second caller may shorten the time.
    _ = erlang:start_timer(Ms, self(), cut),
    St.

close(#st{srv = #srv{listen = Socket}, address = {Ip, _}, file = File}) ->
    ok = gen_tcp:close(Socket),
    erlane_http_unix:remove(Ip, File).

-spec terminate(term(), #st{}) -> ok.
terminate(Reason, #st{name = Name, srv = Srv} = St) ->
    ok = case {Reason, St#st.state} of
             {_, State} when State =:= down; State =:= drained -> ok;
             {shutdown, _} ->
                 Ms = drain_ms(St),
                 wait(Ms, begin_drain(Ms, St));
             {_, listening} -> close(St);
             {_, draining} -> ok
         end,
    ok = case Srv of
             undefined -> ok;
             #srv{log = Log, draining = Draining} ->
                 _ = persistent_term:erase(Draining),
                 erlane_http_log:stop(Log, ?CUT_MS)
         end,
    _ = persistent_term:erase(key(Name)),
    case Reason of
        _ when Reason =:= normal; Reason =:= shutdown; element(1, Reason) =:= shutdown ->
            erlane_http_names:release(Name);
        %% Its row tells the next one that it is a restart.
        _ -> ok
    end.

drain_ms(#st{options = Options}) -> maps:get(drain, Options, erlane_http_opts:default(drain)).

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
            wait(?CUT_MS, St1);
        %% Who asks meanwhile is answered.
        {'$gen_call', From, info} ->
            {reply, Info, St1} = handle_call(info, From, St),
            gen_server:reply(From, Info),
            wait(Ms, St1)
    after Ms + ?CUT_MS ->
        ok
    end.

%% @private Options have keys and tokens, which are nothing for a log.
-spec format_status(gen_server:format_status()) -> gen_server:format_status().
format_status(#{state := #st{name = Name, state = State}} = Status) ->
    Status#{state := {Name, State}};
format_status(Status) ->
    Status.
