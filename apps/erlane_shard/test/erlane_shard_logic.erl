%% SPDX-License-Identifier: Apache-2.0
%% Own logic for the suites: a slot is the list of its requests, the last one first.
-module(erlane_shard_logic).
-behaviour(erlane_shard).

-export([init/1, handle_call/3, handle_cast/3, snapshot/1]).

init(First) -> [First].

handle_call(fail, _Key, _State) -> error(asked_to);
handle_call(wrong, _Key, State) -> State;
handle_call(Request, Key, State) -> {reply, State, [{Key, Request} | State]}.

handle_cast(wrong, _Key, State) -> State;
handle_cast(Request, Key, State) -> {noreply, [{Key, Request} | State]}.

snapshot(State) -> length(State).
