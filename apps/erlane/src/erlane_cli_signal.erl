%% SPDX-License-Identifier: Apache-2.0
%% @doc Hands SIGTERM to a process instead of stopping the VM at once.
%%
%% SIGINT cannot be handled by the VM's own means; bin/erlane turns it into SIGTERM.
-module(erlane_cli_signal).
-behaviour(gen_event).

-export([install/1]).
-export([init/1, handle_event/2, handle_call/2]).

%% @doc From now on each SIGTERM sends `{signal, sigterm}' to the process.
-spec install(pid()) -> ok.
install(Pid) ->
    ok = gen_event:swap_handler(erl_signal_server, {erl_signal_handler, swap},
                                {?MODULE, Pid}),
    os:set_signal(sigterm, handle).

-spec init({pid(), term()}) -> {ok, pid()}.
init({Pid, _OldHandler}) ->
    {ok, Pid}.

-spec handle_event(term(), pid()) -> {ok, pid()}.
handle_event(sigterm, Pid) ->
    Pid ! {signal, sigterm},
    {ok, Pid};
handle_event(sigusr1, _Pid) ->
    %% As the handler we replace: a crash dump on demand.
    erlang:halt("Received SIGUSR1");
handle_event(_Other, Pid) ->
    {ok, Pid}.

-spec handle_call(term(), pid()) -> {ok, ok, pid()}.
handle_call(_Request, Pid) ->
    {ok, ok, Pid}.
