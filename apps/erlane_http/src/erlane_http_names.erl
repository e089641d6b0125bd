%% SPDX-License-Identifier: Apache-2.0
%% @doc The names of listeners, and whether a listener that starts has just died.
%%
%% One that ends as it should takes its row away. One that crashed or was killed leaves it: who
%% finds it, started by the same supervisor, is its restart. The supervisor has nobody to tell an
%% error to, so a restart must not fail, and must not come too often.
-module(erlane_http_names).

-export([create/0, claim/2, release/1, forget/1, whereis/1, all/0]).

%% Rows {Name, Pid, Supervisor, Since, Crashes}: since when, in milliseconds, and how often it
%% has crashed soon after its start.
-define(TABLE, ?MODULE).
%% Who has lived so long has not crashed at its start.
-define(WELL_MS, 10000).
-define(PAUSE_MS, 250).
-define(MAX_PAUSE_MS, 5000).

%% @doc Makes the table; the caller owns it.
-spec create() -> ok.
create() ->
    _ = ets:new(?TABLE, [named_table, public, {read_concurrency, true}]),
    ok.

%% @doc Gives a name to the caller, whom a supervisor starts. `again': it is a restart, and may
%% begin after so many milliseconds.
-spec claim(atom(), Supervisor :: pid() | atom()) ->
          new | {again, Ms :: non_neg_integer()} | taken | not_started.
claim(Name, Supervisor) ->
    Now = erlang:monotonic_time(millisecond),
    try ets:insert_new(?TABLE, {Name, self(), Supervisor, Now, 0}) of
        true -> new;
        false -> left(Name, Supervisor, Now, ets:lookup(?TABLE, Name))
    catch
        error:badarg -> not_started
    end.

left(Name, Supervisor, Now, [{_, Old, Before, Since, Crashes0}]) ->
    Crashes = if
                  Before =/= Supervisor; Now - Since >= ?WELL_MS -> 0;
                  true -> Crashes0 + 1
              end,
    case is_process_alive(Old) of
        true -> taken;
        false ->
            true = ets:insert(?TABLE, {Name, self(), Supervisor, Now, Crashes}),
            case Before of
                Supervisor -> {again, pause(Crashes)};
                _ -> new
            end
    end;
left(Name, Supervisor, _, []) ->
    claim(Name, Supervisor).

pause(0) -> 0;
pause(Crashes) -> min(?MAX_PAUSE_MS, ?PAUSE_MS bsl min(Crashes, 10)).

%% @doc The caller does not need its name any more.
-spec release(atom()) -> ok.
release(Name) ->
    _ = safely(fun() -> ets:match_delete(?TABLE, {Name, self(), '_', '_', '_'}) end, true),
    ok.

%% @doc Nobody will start again what had this name, if it is dead.
-spec forget(atom()) -> ok.
forget(Name) ->
    case ?MODULE:whereis(Name) of
        undefined -> _ = safely(fun() -> ets:delete(?TABLE, Name) end, true), ok;
        _ -> ok
    end.

%% @doc The process of a listener.
-spec whereis(atom()) -> pid() | undefined.
whereis(Name) ->
    case safely(fun() -> ets:lookup(?TABLE, Name) end, []) of
        [{_, Pid, _, _, _}] -> alive(Pid);
        [] -> undefined
    end.

alive(Pid) ->
    case is_process_alive(Pid) of
        true -> Pid;
        false -> undefined
    end.

%% @doc The names of the listeners.
-spec all() -> [atom()].
all() ->
    Rows = safely(fun() -> ets:tab2list(?TABLE) end, []),
    lists:sort([Name || {Name, Pid, _, _, _} <- Rows, is_process_alive(Pid)]).

%% A listener of somebody else's supervisor may outlive this application, and with it the table.
safely(Fun, Default) ->
    try Fun()
    catch error:badarg -> Default
    end.
