%% SPDX-License-Identifier: Apache-2.0
%% @doc The log of a node, live, by server-sent events: a handler of logger publishes each line to
%% a topic of its level, and the lanes of erlane_fanout write it to all who look on. What a filter
%% matches is decided by the path: /tail/+ is every level, /tail/error only errors.
%%
%%     log_tail 8080
%%     curl -N http://127.0.0.1:8080/tail/error
-module(log_tail).
-behaviour(erlane_http).

-export([main/1, start/1, stop/0, handle/2, log/2]).

%% @doc Serves, and logs something every second. Argument: the port.
-spec main([string()]) -> no_return().
main([Port]) ->
    ok = start(list_to_integer(Port)),
    io:format("curl -N http://127.0.0.1:~b/tail/+~n", [erlane_http:port(log_tail)]),
    beat(1);
main(_) ->
    io:format(standard_error, "usage: log_tail PORT~n", []),
    halt(2).

beat(N) ->
    logger:notice("beat ~b, ~b bytes of memory", [N, erlang:memory(total)]),
    N rem 5 =:= 0 andalso logger:error("every fifth beat is an error"),
    receive after 1000 -> beat(N + 1) end.

%% @doc Starts the server, adds the handler to the logger, and returns.
-spec start(inet:port_number()) -> ok.
start(Port) ->
    [{ok, _} = application:ensure_all_started(App) || App <- [erlane_http, erlane_fanout]],
    {ok, _} = erlane_http:start(log_tail, #{handler => {?MODULE, none}, port => Port}),
    Format = {logger_formatter, #{single_line => true,
                                  template => [time, " ", level, " ", msg]}},
    logger:add_handler(?MODULE, ?MODULE, #{formatter => Format}).

%% @doc Removes the handler and stops the server.
-spec stop() -> ok.
stop() ->
    ok = logger:remove_handler(?MODULE),
    ok = erlane_http:stop(log_tail, #{drain => 0}).

%% @doc A handler of logger: called in the process that logs, which publishes and goes on. The
%% last line of each level is retained for those who come later.
-spec log(logger:log_event(), logger:handler_config()) -> ok.
log(#{level := Level} = Event, #{formatter := {Module, Config}}) ->
    Line = unicode:characters_to_binary(Module:format(Event, Config)),
    erlane_fanout:publish_local(topic(atom_to_binary(Level)), Line, #{retain => true}).

topic(Level) -> <<"log/", Level/binary>>.

%% @doc A stream for a level, or for `+'.
-spec handle(erlane_http:req(), none) -> erlane_http:reply().
handle(Req, none) ->
    case erlane_http:path(Req) of
        [<<"tail">>, Level] ->
            {sse, [], fun(Emit, Socket) -> tail(Emit, Socket, topic(Level)) end};
        _ -> {404, [], <<"try /tail/+ or /tail/error\n">>}
    end.

%% This process only holds the subscription: it ends when the client goes. A reader that cannot
%% follow is told how much it has missed, and gets the newest lines.
tail(Emit, Socket, Filter) ->
    Gap = fun(From, To) -> io_lib:format("(~b lines left out)", [To - From + 1]) end,
    case erlane_fanout:subscribe(Filter, #{mode => {socket, Socket, sse}, retained => true,
                                           limit => 262144, gap_frame => Gap}) of
        {ok, _Sub, _Seq} -> receive {fan, _, slow_consumer} -> ok end;
        {error, _} -> Emit(#{event => <<"error">>, data => <<"no such level">>})
    end.
