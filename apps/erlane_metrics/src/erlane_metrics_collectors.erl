%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the collectors, and owner of the table with their results, which so outlive
%% a crash of the process that made them.
-module(erlane_metrics_collectors).
-behaviour(supervisor).

-export([start_link/0, start_child/2, stop_child/1, configured/1]).
-export([init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, []).

%% @doc Starts the collector of a name with checked options.
-spec start_child(atom(), map()) -> ok | {error, term()}.
start_child(Name, Opts) ->
    try supervisor:start_child(?MODULE, child(Name, Opts)) of
        {ok, _} -> ok;
        {error, {already_started, _}} -> {error, already_started};
        {error, Reason} -> {error, Reason}
    catch
        exit:{noproc, _} -> {error, {not_started, erlane_metrics}}
    end.

%% @doc Ends the collector of a name.
-spec stop_child(atom()) -> ok | {error, not_found}.
stop_child(Name) ->
    try supervisor:terminate_child(?MODULE, Name) of
        ok -> supervisor:delete_child(?MODULE, Name);
        {error, not_found} = Error -> Error
    catch
        exit:{noproc, _} -> {error, not_found}
    end.

%% @doc What the application's `collectors' mean: names of the house's own, or `{Name, Options}'.
-spec configured([atom() | {atom(), map()}]) -> [{atom(), map()}].
configured(List) ->
    [case One of
         {Name, Opts} -> {Name, Opts};
         Name -> {Name, #{}}
     end || One <- List].

%% A wrong option in the configuration keeps the app from starting, and is named.
-spec init([]) -> {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init([]) ->
    Wanted = configured(application:get_env(erlane_metrics, collectors, [])),
    Children = [case erlane_metrics_collector:check(Name, Opts) of
                    {ok, Checked} -> child(Name, Checked);
                    {error, Reason} -> exit({collectors, Name, Reason})
                end || {Name, Opts} <- Wanted],
    ok = erlane_metrics_collected:new(),
    {ok, {#{strategy => one_for_one, intensity => 10, period => 10}, Children}}.

%% One that ends in a hurry leaves nothing behind that the next one would not restore.
child(Name, Opts) ->
    #{id => Name, start => {erlane_metrics_collector, start_link, [Name, Opts]},
      modules => [erlane_metrics_collector], shutdown => 1000}.
