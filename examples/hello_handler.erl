%% SPDX-License-Identifier: Apache-2.0
%% @doc A handler of erlane_http: hello by name, the time every second, and what was posted.
%%
%%     hello_handler 8080
-module(hello_handler).
-behaviour(erlane_http).

-export([main/1, handle/2]).

%% @doc Serves until the VM is stopped. Argument: the port.
-spec main([string()]) -> no_return().
main([Port]) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    {ok, _} = erlane_http:start(hello, #{handler => {?MODULE, <<"Hello">>},
                                         port => list_to_integer(Port)}),
    io:format("http://127.0.0.1:~s/you, /time; POST /echo~n", [Port]),
    receive after infinity -> ok end;
main(_) ->
    io:format(standard_error, "usage: hello_handler PORT~n", []),
    halt(2).

%% @doc One clause for each thing that can be asked.
-spec handle(erlane_http:req(), binary()) -> erlane_http:reply().
handle(Req, Greeting) ->
    case {erlane_http:method(Req), erlane_http:path(Req)} of
        {<<"GET">>, [<<"time">>]} -> {sse, [], fun time/1};
        {<<"GET">>, [Name]} -> {200, text(), [Greeting, ", ", Name, $\n]};
        {<<"POST">>, [<<"echo">>]} -> {200, text(), erlane_http:body(Req)};
        _ -> {404, text(), <<"nothing here\n">>}
    end.

text() -> [{<<"content-type">>, <<"text/plain; charset=utf-8">>}].

%% A stream of events. It ends with the client.
time(Emit) ->
    Now = calendar:system_time_to_rfc3339(erlang:system_time(second)),
    case Emit(#{event => <<"time">>, data => Now}) of
        ok -> receive after 1000 -> time(Emit) end;
        {error, closed} -> ok
    end.
