%% SPDX-License-Identifier: Apache-2.0
%% @doc Owner of the two tables, and nothing else, so that they outlive a crash of the registry.
%%
%% Only the registry writes them; they are public because their owner is another process.
%% What is in them:
%%
%% `series', a set, read by every resolution of a handle:
%% <ul>
%% <li>`{{Name, Labels}, Handle}': a live series</li>
%% <li>`{{Name, overflow}, Handle, Full}': the overflow series; while `Full' is true unknown
%%     labels lead here</li>
%% <li>`{{sample, SampleName}, Name}': who exposes a sample of this name</li>
%% </ul>
%% `order', an ordered set, read by scrapes; the integer sorts before an atom, an atom before a
%% list and a list before a binary, so a family is followed by its series:
%% <ul>
%% <li>`{{Name, 0}, Family}': a family, see {@link erlane_metrics_family}</li>
%% <li>`{{Name, Labels | overflow}, Text, Stored, CreatedMs}': a series</li>
%% </ul>
-module(erlane_metrics_tables).
-behaviour(gen_server).

-export([start_link/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_metrics.hrl").

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @private
-spec init([]) -> {ok, none}.
init([]) ->
    ?SERIES = ets:new(?SERIES, [set, public, named_table, {read_concurrency, true}]),
    ?ORDER = ets:new(?ORDER, [ordered_set, public, named_table, {read_concurrency, true}]),
    {ok, none}.

%% @private
-spec handle_call(term(), gen_server:from(), none) -> {reply, {error, unknown_call}, none}.
handle_call(_Request, _From, State) -> {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), none) -> {noreply, none}.
handle_info(_Message, State) -> {noreply, State}.
