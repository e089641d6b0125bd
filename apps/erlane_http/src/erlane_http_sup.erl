%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the listeners; a child's id is the listener's name.
-module(erlane_http_sup).
-behaviour(supervisor).

-export([start_link/0, start_listener/2, stop_listener/2, child_spec/2]).
-export([init/1]).

%% More than a listener takes to cut its connections after its drain.
-define(SHUTDOWN_MS, 5000).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc See {@link erlane_http:start/2}.
-spec start_listener(atom(), erlane_http:options()) ->
          {ok, pid()} | {error, {atom(), term()} | inet:posix()}.
start_listener(Name, Options) ->
    case supervisor:start_child(?MODULE, child_spec(Name, Options)) of
        {ok, Pid} -> {ok, Pid};
        {error, {already_started, _}} -> {error, {name, already_started}};
        {error, already_present} -> {error, {name, already_started}};
        {error, {Reason, Child}} when element(1, Child) =:= child -> {error, Reason}
    end.

%% @doc See {@link erlane_http:stop/2}.
-spec stop_listener(atom(), non_neg_integer()) -> ok | {error, not_found}.
stop_listener(Name, DrainMs) ->
    case lists:keyfind(Name, 1, supervisor:which_children(?MODULE)) of
        {Name, Pid, _, _} ->
            ok = drain(Pid, DrainMs),
            _ = supervisor:terminate_child(?MODULE, Name),
            %% Two callers may stop the same listener: whoever deletes second is right too.
            _ = supervisor:delete_child(?MODULE, Name),
            erlane_http_names:forget(Name);
        false ->
            {error, not_found}
    end.

drain(Pid, Ms) when is_pid(Pid) ->
    try erlane_http_server:drain(Pid, Ms)
    catch exit:_ -> ok
    end;
drain(_, _) ->
    ok.

%% @doc See {@link erlane_http:child_spec/2}.
-spec child_spec(atom(), erlane_http:options()) -> supervisor:child_spec().
child_spec(Name, Options) ->
    Drain = case Options of
                #{drain := Ms} when is_integer(Ms), Ms >= 0 -> Ms;
                _ -> erlane_http_opts:default(drain)
            end,
    #{id => Name,
      start => {erlane_http_server, start_link, [Name, Options]},
      restart => permanent,
      shutdown => Drain + ?SHUTDOWN_MS}.

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    ok = erlane_http_names:create(),
    ok = erlane_http_date:create(),
    %% A listener's restart cannot fail and waits in its own process if it comes too soon. One that
    %% is in trouble, or many at once, must not take the others along.
    {ok, {#{strategy => one_for_one, intensity => 1000, period => 1}, []}}.
