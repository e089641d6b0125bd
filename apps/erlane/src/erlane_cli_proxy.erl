%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane proxy': one listener until SIGTERM or SIGINT, with a line of live figures.
-module(erlane_cli_proxy).

-export([run/1, help/0, serve/2, stop/2]).

-define(DRAIN_MS, 10000).

-define(LISTENER, proxy).

%% @doc The text of `erlane help proxy'.
-spec help() -> iodata().
help() ->
    Defaults = erlane_proxy_options:defaults(),
    Default = fun(Key) -> io_lib:format("~tp", [maps:get(Key, Defaults)]) end,
    ["usage: erlane proxy --listen ADDRESS --to ADDRESS [OPTION]...\n"
     "\n"
     "ADDRESS is HOST:PORT, [IPV6]:PORT or unix:PATH.\n"
     "\n"
     "  --max-connections N     accept no more than N at a time (", Default(max_connections),
     ")\n"
     "  --connect-timeout MS    for reaching the upstream (", Default(connect_timeout), ")\n"
     "  --idle-timeout MS       no byte in either direction (", Default(idle_timeout),
     "; or infinity)\n"
     "  --half-close-timeout MS from the end of one side to that of the other (",
     Default(half_close_timeout), "; or infinity)\n"
     "  --drain MS              what connections get to end after SIGTERM or Ctrl-C (",
     integer_to_list(?DRAIN_MS), ");\n"
     "                          a second signal ends the wait\n"
     "  --backlog N             queue of the listening socket (", Default(backlog), ")\n"
     "  --quiet                 no live figures\n"].

options() ->
    #{"--listen" => {listen, address},
      "--to" => {to, address},
      "--max-connections" => {max_connections, {integer_or_infinity, 1}},
      "--connect-timeout" => {connect_timeout, {integer, 1, infinity}},
      "--idle-timeout" => {idle_timeout, {integer_or_infinity, 1}},
      "--half-close-timeout" => {half_close_timeout, {integer_or_infinity, 1}},
      "--backlog" => {backlog, {integer, 1, 65535}},
      "--drain" => {drain, {integer, 0, infinity}},
      "--quiet" => {quiet, flag},
      "--help" => {help, flag}}.

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run(Args) ->
    case erlane_cli_options:parse(Args, options()) of
        {ok, #{help := true}} ->
            io:put_chars(help()),
            0;
        {ok, #{listen := _, to := _} = Opts} ->
            proxy(Opts);
        {ok, #{listen := _}} ->
            erlane_cli:usage_error("proxy: --to ADDRESS is required", help());
        {ok, _} ->
            erlane_cli:usage_error("proxy: --listen ADDRESS is required", help());
        {error, Why} ->
            erlane_cli:usage_error(["proxy: ", Why], help())
    end.

proxy(Opts) ->
    %% Before the listener opens: a signal is never met by the VM's own handler.
    ok = erlane_cli_signal:install(self()),
    start_apps(),
    case erlane_proxy:start_listener(?LISTENER, maps:without([drain, quiet], Opts)) of
        ok ->
            {ok, #{listen := Listen, to := To}} = erlane_proxy:info(?LISTENER),
            io:format("proxy ~ts -> ~ts~n", [erlane_proxy_address:format(Listen),
                                             erlane_proxy_address:format(To)]),
            serve(?LISTENER, maps:get(quiet, Opts, false)),
            stop([?LISTENER], maps:get(drain, Opts, ?DRAIN_MS));
        {error, Reason} ->
            erlane_cli:fail("proxy: ~ts", [erlane_proxy:format_error(Reason)])
    end.

start_apps() ->
    case application:ensure_all_started(erlane_proxy) of
        {ok, _} -> ok;
        {error, Reason} -> erlane_cli:fail("proxy: cannot start: ~0tp", [Reason])
    end.

%% @doc Shows the figures of a listener until a signal comes; `Quiet' shows none.
-spec serve(erlane_proxy:name(), boolean()) -> ok.
serve(Name, Quiet) ->
    erlane_cli_loop:until_signal(erlane_cli_live, Name, Quiet).

%% @doc Drains listeners side by side, prints the outcome of each; the result is the exit
%% status.
-spec stop([erlane_proxy:name()], non_neg_integer()) -> 0.
stop(Names, DrainMs) ->
    erlane_cli_loop:terminal() andalso io:nl(),
    Self = self(),
    [spawn_link(fun() -> Self ! {drained, Name, erlane_proxy:drain(Name, DrainMs)} end)
     || Name <- Names],
    lists:foreach(fun wait/1, Names),
    0.

wait(Name) ->
    receive
        {drained, Name, {ok, #{finished := Finished, reset := Reset}}} ->
            {ok, #{accepted := Accepted}} = erlane_proxy:info(Name),
            io:format("~ts stopped: ~b connections served, ~b ended while draining, "
                      "~b reset~n", [Name, Accepted, Finished, Reset]);
        {signal, _} ->
            %% Asked a second time: join the drain with a deadline of now.
            _ = spawn(fun() -> erlane_proxy:drain(Name, 0) end),
            wait(Name)
    end.
