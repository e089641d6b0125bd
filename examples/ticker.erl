%% SPDX-License-Identifier: Apache-2.0
%% @doc Prices over WebSocket, a thousand changes a second. Who reads fast sees each of them; who
%% reads slowly gets, whenever there is room, the last price of each symbol: its subscription
%% conflates. Nobody waits for anybody, and no queue grows.
%%
%%     ticker 8080        then open http://127.0.0.1:8080/
-module(ticker).
-behaviour(erlane_http).

-export([main/1, start/2, tick/1, handle/2]).
-export([init/2, opened/2, frame/2, closing/1]).    % of erlane_http_ws

-define(SYMBOLS, {<<"ACME">>, <<"BOLT">>, <<"CRUX">>, <<"DUNE">>, <<"ECHO">>}).

%% @doc Serves until the VM is stopped. Argument: the port.
-spec main([string()]) -> no_return().
main([Port]) ->
    ok = start(list_to_integer(Port), #{}),
    io:format("http://127.0.0.1:~b/~n", [erlane_http:port(ticker)]),
    market(maps:from_keys(tuple_to_list(?SYMBOLS), 100.0));
main(_) ->
    io:format(standard_error, "usage: ticker PORT~n", []),
    halt(2).

%% @doc Starts the server and returns; `Opts' are further options of erlane_http:start/2.
-spec start(inet:port_number(), map()) -> ok.
start(Port, Opts) ->
    [{ok, _} = application:ensure_all_started(App) || App <- [erlane_http, erlane_fanout]],
    {ok, _} = erlane_http:start(ticker, Opts#{handler => {?MODULE, none}, port => Port}),
    ok.

%% Prices that wander, for ever.
market(Prices) ->
    Symbol = element(rand:uniform(tuple_size(?SYMBOLS)), ?SYMBOLS),
    Price = max(1.0, maps:get(Symbol, Prices) + (rand:uniform() - 0.5)),
    ok = tick({Symbol, Price}),
    receive after 1 -> market(Prices#{Symbol := Price}) end.

%% @doc Publishes a price. The message is a term: it is made text once for all sockets.
-spec tick({binary(), float()}) -> ok.
tick({_Symbol, _Price} = Tick) ->
    erlane_fanout:publish(<<"prices">>, Tick).

%% @doc The page, and the WebSocket behind it.
-spec handle(erlane_http:req(), none) -> erlane_http:reply().
handle(Req, none) ->
    case erlane_http:path(Req) of
        [<<"ws">>] -> {upgrade, ?MODULE, none};
        _ -> {200, [{<<"content-type">>, <<"text/html; charset=utf-8">>}], page()}
    end.

init(_Req, none) -> {ok, none}.

%% Up to 16 KB may wait for a client; beyond that it gets the last price of each symbol, when it
%% has read what waited, and before them the number of changes that it has missed.
opened(Socket, none) ->
    Symbol = fun({Name, _}) -> Name end,
    Gap = fun(From, To) -> {skipped, From, To} end,
    {ok, Sub, _} = erlane_fanout:subscribe(<<"prices">>,
                                           #{mode => {socket, Socket, {ws_text, fun text/1}},
                                             limit => 16384, policy => {conflate, Symbol},
                                             gap_frame => Gap}),
    {ok, Sub}.

text({skipped, From, To}) ->
    io_lib:format("{\"skipped\":~b}", [To - From + 1]);
text({Symbol, Price}) ->
    io_lib:format("{\"symbol\":\"~s\",\"price\":~.2f}", [Symbol, Price]).

frame(_Message, Sub) -> {ok, Sub}.

closing(none) -> ok;
closing(Sub) -> erlane_fanout:unsubscribe(Sub).

page() ->
    <<"<!doctype html><meta charset=utf-8><title>ticker</title>\n"
      "<style>body{font:16px sans-serif;max-width:30em;margin:2em auto}\n"
      "td{padding:.2em 1em;font-variant-numeric:tabular-nums}</style>\n"
      "<h1>Prices</h1><table id=t></table><p><span id=n>0</span> changes seen,\n"
      "<span id=s>0</span> skipped</p>\n"
      "<script>\n"
      "const rows = {}, t = document.getElementById('t'); let seen = 0, skipped = 0;\n"
      "const row = symbol => rows[symbol] ||= (() => { const r = t.insertRow();\n"
      "  r.insertCell().textContent = symbol; return r.insertCell(); })();\n"
      "new WebSocket('ws://' + location.host + '/ws').onmessage = e => {\n"
      "  const m = JSON.parse(e.data);\n"
      "  if (m.symbol) { row(m.symbol).textContent = m.price.toFixed(2); seen++; }\n"
      "  else skipped += m.skipped;\n"
      "  document.getElementById('n').textContent = seen;\n"
      "  document.getElementById('s').textContent = skipped; };\n"
      "</script>\n">>.
