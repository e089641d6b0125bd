%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the listeners; a child's id is the listener's name.
-module(erlane_proxy_sup).
-behaviour(supervisor).

-export([start_link/0, start_listener/2, stop_listener/1, listener/1, listeners/0]).
-export([init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts a listener; the error is the one its `init/1' gave.
-spec start_listener(erlane_proxy:name(), erlane_proxy_options:config()) ->
          {ok, pid()} | {error, term()}.
start_listener(Name, Config) ->
    %% The counters belong to the child specification: a restarted listener goes on counting.
    Args = [Name, Config, erlane_proxy_stats:new()],
    Spec = #{id => Name,
             start => {erlane_proxy_listener, start_link, Args},
             restart => permanent,
             shutdown => 10000},
    case supervisor:start_child(?MODULE, Spec) of
        {ok, Pid} -> {ok, Pid};
        {error, {already_started, _}} -> {error, {name, already_started}};
        {error, already_present} -> {error, {name, already_started}};
        {error, {{shutdown, Reason}, _Child}} -> {error, Reason};
        {error, Reason} -> {error, {start, Reason}}
    end.

-spec stop_listener(erlane_proxy:name()) -> ok | {error, not_found}.
stop_listener(Name) ->
    case supervisor:terminate_child(?MODULE, Name) of
        ok ->
            %% Two callers may stop the same listener: whoever deletes second is right too.
            _ = supervisor:delete_child(?MODULE, Name),
            ok;
        {error, not_found} ->
            {error, not_found}
    end.

-spec listener(erlane_proxy:name()) -> {ok, pid()} | {error, not_found}.
listener(Name) ->
    case lists:keyfind(Name, 1, supervisor:which_children(?MODULE)) of
        {Name, Pid, _, _} when is_pid(Pid) -> {ok, Pid};
        _ -> {error, not_found}
    end.

-spec listeners() -> [erlane_proxy:name()].
listeners() ->
    [Name || {Name, _, _, _} <- supervisor:which_children(?MODULE)].

-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, []}}.
