%% SPDX-License-Identifier: Apache-2.0
%% @doc The WebSocket that erlane_http_ws_SUITE talks to. It tells the test its pid and how it
%% ended, answers a message with itself, and does what some texts ask for.
-module(erlane_http_ws_echo).

-behaviour(erlane_http_ws).

-export([init/2, frame/2, info/2, terminate/2]).

init(Req, #{test := Test, opts := Opts} = State) ->
    case erlane_http:path(Req) of
        [<<"refuse">>] -> {refuse, 403, [{<<"x-why">>, <<"no">>}], <<"not you">>};
        [<<"crash">>] -> error(on_purpose);
        [<<"protocols">>] ->
            Test ! {protocols, erlane_http_ws:protocols(Req)},
            {ok, State, #{protocol => <<"b">>}};
        Path ->
            Test ! {ws, self()},
            {ok, State#{strangers => Path =:= [<<"strangers">>]}, Opts}
    end.

frame({text, <<"silent">>}, State) -> {ok, State};
frame({text, <<"two">>}, State) -> {send, [{text, <<"1">>}, {binary, <<"2">>}], State};
frame({text, <<"ping me">>}, State) -> {send, {ping, <<"x">>}, State};
frame({text, <<"close">>}, State) -> {close, 4000, <<"as you wish">>, State};
frame({text, <<"bye">>}, State) -> {send, [{text, <<"last">>}, close, {text, <<"no">>}], State};
frame({text, <<"crash">>}, _State) -> error(on_purpose);
frame({text, <<"count">>}, #{count := N} = State) ->
    {send, {text, integer_to_binary(N)}, State#{count := N + 1}};
frame(Message, State) -> {send, Message, State}.

info({send, Frames}, State) -> {send, Frames, State};
info({close, Code, Reason}, State) -> {close, Code, Reason, State};
info(crash, _State) -> error(on_purpose);
info(Other, #{strangers := true} = State) ->
    {send, {text, io_lib:format("~p", [Other])}, State};
info(_, State) -> {ok, State}.

terminate(Reason, #{test := Test}) -> Test ! {terminated, self(), Reason}.
