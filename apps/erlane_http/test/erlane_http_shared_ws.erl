%% SPDX-License-Identifier: Apache-2.0
%% @doc The WebSocket of erlane_http_shared_SUITE: it tells the test what it gets, and echoes.
-module(erlane_http_shared_ws).

-behaviour(erlane_http_ws).

-export([init/2, opened/2, closing/1, frame/2]).

-define(WAIT_MS, 10000).

init(_Req, Args) -> {ok, Args}.

opened(Socket, #{test := Test} = State) ->
    Test ! {opened, self(), Socket},
    case State of
        #{hello := Hello} -> {send, {text, Hello}, State};
        #{} -> {ok, State}
    end.

closing(#{test := Test}) ->
    Test ! {closing, self()},
    receive {go_on, Test} -> ok after ?WAIT_MS -> error(not_told_to_go_on) end.

frame({text, <<"close">>}, State) -> {close, 4000, <<>>, State};
frame({text, <<"crash">>}, _) -> error(on_purpose);
frame(Message, State) -> {send, Message, State}.
