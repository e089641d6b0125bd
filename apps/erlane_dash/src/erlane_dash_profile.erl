%% SPDX-License-Identifier: Apache-2.0
%% @doc A short sample of this node as a flame graph page. It changes nothing that it does not put
%% back, and its limits are not for the reader to choose: one at a time, ten seconds at the most.
-module(erlane_dash_profile).

-export([take/1]).
-export([answer/2]).

-define(DEFAULT_S, 5).
-define(MOST_S, 10).
-define(EVENTS, 200000).

%% @doc Takes a sample of so many seconds (`for' of the query, 1 to 10) and answers with the page.
%% `busy': somebody else takes one. The sample ends with the calling process.
-spec take(Query :: [{binary(), binary() | true}]) ->
          {ok, iodata()} | {error, busy | bad_time | {failed, string()}}.
take(Query) ->
    case seconds(proplists:get_value(<<"for">>, Query, integer_to_binary(?DEFAULT_S))) of
        {ok, Seconds} -> run(Seconds);
        error -> {error, bad_time}
    end.

seconds(<<C>>) when C >= $1, C =< $9 -> {ok, C - $0};
seconds(<<"10">>) -> {ok, ?MOST_S};
seconds(_) -> error.

%% In a process of its own, whose name is the place that only one has. The caller has other
%% messages, those of its connection, which stay where they are.
run(Seconds) ->
    Caller = self(),
    {Pid, Monitor} = spawn_monitor(?MODULE, answer, [Caller, Seconds]),
    receive
        {'DOWN', Monitor, process, Pid, {?MODULE, Answer}} -> Answer;
        {'DOWN', Monitor, process, Pid, Reason} ->
            {error, {failed, lists:flatten(io_lib:format("~0tP", [Reason, 20]))}}
    end.

%% @private
-spec answer(pid(), 1..?MOST_S) -> no_return().
answer(Caller, Seconds) ->
    exit({?MODULE, sample(Caller, Seconds)}).

sample(Caller, Seconds) ->
    try register(?MODULE, self()) of
        true ->
            %% A reader who has gone needs none.
            Progress = fun(_) ->
                               case is_process_alive(Caller) of
                                   true -> continue;
                                   false -> stop
                               end
                       end,
            case erlane_prof:run(#{mode => sample, for => Seconds * 1000, events => ?EVENTS,
                                   progress => Progress}) of
                {ok, Profile} -> {ok, iolist_to_binary(erlane_prof_file:encode(Profile, flame))};
                {error, Why} -> {error, {failed, erlane_prof:format_error(Why)}}
            end
    catch
        error:badarg -> {error, busy}
    end.
