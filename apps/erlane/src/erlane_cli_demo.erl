%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane demo': an HTTP upstream, the proxy before it, a short load; then stays up.
-module(erlane_cli_demo).

-export([run/1, help/0]).

-define(LISTENER, demo).
-define(PROXY_PORT, 8080).
-define(UPSTREAM_PORT, 8081).
-define(PAGE_PORT, 8082).
-define(TRIED_PORTS, 20).
-define(CLIENTS, 100).
-define(LOAD_MS, 3000).
-define(DRAIN_MS, 1000).

%% @doc The text of `erlane help demo'.
-spec help() -> iodata().
help() ->
    io_lib:format(
      "usage: erlane demo [OPTION]...\n"
      "\n"
      "  --clients N   connections of the load (~b)\n"
      "  --ms MS       how long it runs (~b)\n"
      "  --once        end after the load instead of staying up\n"
      "\n"
      "Everything listens on 127.0.0.1: the proxy on port ~b, its upstream on ~b, the live\n"
      "page on ~b, or the next port that is free.\n",
      [?CLIENTS, ?LOAD_MS, ?PROXY_PORT, ?UPSTREAM_PORT, ?PAGE_PORT]).

options() ->
    #{"--clients" => {clients, {integer, 1, 10000}},
      "--ms" => {ms, {integer, 1, 60000}},
      "--once" => {once, flag},
      "--help" => {help, flag}}.

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run(Args) ->
    case erlane_cli_options:parse(Args, options()) of
        {ok, #{help := true}} ->
            io:put_chars(help()),
            0;
        {ok, Opts} ->
            demo(maps:merge(#{clients => ?CLIENTS, ms => ?LOAD_MS, once => false}, Opts));
        {error, Why} ->
            erlane_cli:usage_error(["demo: ", Why], help())
    end.

demo(#{clients := Clients, ms := Ms, once := Once}) ->
    ok = erlane_cli_signal:install(self()),
    {ok, _} = application:ensure_all_started(erlane_proxy),
    {ok, _} = application:ensure_all_started(erlane_dash),
    Upstream = free_port("upstream", ?UPSTREAM_PORT, fun upstream/1),
    Proxy = free_port("proxy", ?PROXY_PORT, fun(Port) -> proxy(Port, Upstream) end),
    Page = free_port("page", ?PAGE_PORT, fun page/1),
    io:format("upstream  http://127.0.0.1:~b/  (hello over HTTP, on erlane)~n"
              "proxy     http://127.0.0.1:~b/  (relays to the upstream inside the lanes)~n"
              "page      http://127.0.0.1:~b/  (lanes, schedulers, memory, metrics, live)~n~n"
              "load      ~b keep-alive connections through the proxy for ~.1f s ...~n",
              [Upstream, Proxy, Page, Clients, Ms / 1000]),
    Before = erlane_socket:stats(),
    Result = erlane_demo_load:run(Proxy, Clients, Ms),
    measured(Result, Before, erlane_socket:stats()),
    after_load(Result, Once, Proxy, Page),
    _ = erlane_dash:stop(),
    _ = erlane_cli_proxy:stop([?LISTENER], ?DRAIN_MS),
    status(Result).

upstream(Port) ->
    case erlane_demo_http:start_link(Port) of
        {ok, Port} -> ok;
        {error, Reason} -> {error, Reason}
    end.

proxy(Port, Upstream) ->
    case erlane_proxy:start_listener(?LISTENER, #{listen => {{127, 0, 0, 1}, Port},
                                                  to => {{127, 0, 0, 1}, Upstream}}) of
        ok -> ok;
        {error, {listen, {eaddrinuse, _}}} -> {error, eaddrinuse};
        {error, Reason} -> erlane_cli:fail("demo: ~ts", [erlane_proxy:format_error(Reason)])
    end.

%% It samples now and then even if nobody looks, so that its charts show the load.
page(Port) ->
    case erlane_dash:start(#{port => Port, lanes => {erlane_socket, stats},
                             proxies => fun proxies/0, history => 1000}) of
        {ok, _} -> ok;
        {error, eaddrinuse} -> {error, eaddrinuse};
        {error, Reason} -> erlane_cli:fail("demo: ~ts", [erlane_dash:format_error(Reason)])
    end.

proxies() ->
    [Info#{name => Name} || Name <- erlane_proxy:listeners(),
                            {ok, Info} <- [erlane_proxy:info(Name)]].

free_port(What, First, Start) ->
    free_port(What, First, First + ?TRIED_PORTS, Start).

free_port(What, Port, Last, _Start) when Port > Last ->
    erlane_cli:fail("demo: no free port for the ~ts up to ~b", [What, Last]);
free_port(What, Port, Last, Start) ->
    case Start(Port) of
        ok -> Port;
        {error, eaddrinuse} -> free_port(What, Port + 1, Last, Start);
        {error, Reason} ->
            erlane_cli:fail("demo: ~ts: port ~b: ~ts (~ts)",
                            [What, Port, inet:format_error(Reason), Reason])
    end.

measured(#{requests := N, errors := Errors, per_second := Rate, p50 := P50, p99 := P99},
         Before, After) ->
    io:format("          ~b requests, ~b errors, ~b requests/s~n"
              "          latency p50 ~.3f ms, p99 ~.3f ms~n"
              "          (load, proxy and upstream share this VM)~n~n",
              [N, Errors, Rate, P50 / 1000, P99 / 1000]),
    io:format("~5s ~9s ~9s ~8s ~9s ~9s ~8s ~8s ~8s ~9s ~9s~n",
              ["lane", "waits", "events", "ev/wait", "recv", "send", "eagain", "sleeps",
               "accepted", "MB in", "MB out"]),
    lists:foreach(fun lane/1, lists:zip(Before, After)).

lane({#{lane := Lane} = Before, #{lane := Lane} = After}) ->
    [Waits, Events, Recv, Send, Again, Sleeps, Accepted, In, Out] =
        [maps:get(Key, After) - maps:get(Key, Before)
         || Key <- [waits, events, recv, send, eagain, sleeps, accepted, recv_bytes,
                    send_bytes]],
    io:format("~5b ~9b ~9b ~8.1f ~9b ~9b ~8b ~8b ~8b ~9.1f ~9.1f~n",
              [Lane, Waits, Events, Events / max(1, Waits), Recv, Send, Again, Sleeps,
               Accepted, In / 1.0e6, Out / 1.0e6]).

after_load(_Result, true, _Proxy, _Page) ->
    ok;
after_load(_Result, false, Proxy, Page) ->
    ok = erlane_demo_load:trickle(Proxy),
    io:format("~nstill up, with a few requests a second: open   http://127.0.0.1:~b/~n"
              "or try          curl http://127.0.0.1:~b/~n"
              "your own:       bin/erlane proxy --listen 127.0.0.1:9000 --to HOST:PORT~n"
              "Ctrl-C stops.~n", [Page, Proxy]),
    erlane_cli_proxy:serve(?LISTENER, false).

status(#{requests := N, errors := 0}) when N > 0 -> 0;
status(_) -> 1.
