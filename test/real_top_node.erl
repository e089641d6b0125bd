%% SPDX-License-Identifier: Apache-2.0
%% A node for `erlane top' to look at: sockets of erlane with traffic, a busy process with a name,
%% and one with messages that nobody reads.
-module(real_top_node).

-export([start/0, start/1, stop/1, args/1, serve/0]).

-define(COOKIE, "real_top").
-define(LOOPBACK, {127, 0, 0, 1}).

%% The peer is spoken to over its standard input and output, not over the distribution.
start() ->
    start(peer:random_name()).

start(Name) ->
    Paths = lists:append([["-pa", filename:dirname(code:which(M))]
                          || M <- [?MODULE, erlane_socket, erlane_metrics]]),
    {ok, Peer, Node} = peer:start(#{name => Name, connection => standard_io,
                                    args => ["-setcookie", ?COOKIE | Paths]}),
    ok = peer:call(Peer, ?MODULE, serve, []),
    {Peer, Node}.

stop({Peer, _Node}) ->
    peer:stop(Peer).

%% What `erlane top' needs to be told.
args({_Peer, Node}) ->
    ["--node", atom_to_list(Node), "--cookie", ?COOKIE].

%% Runs on the peer.
serve() ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    Self = self(),
    _ = spawn(fun() ->
                      Options = [{inet_backend, inet}, {tcp_module, erlane_tcp}, binary,
                                 {active, false}, {ip, ?LOOPBACK}],
                      {ok, Listen} = gen_tcp:listen(0, Options),
                      {ok, Port} = inet:port(Listen),
                      {ok, Client} = gen_tcp:connect(?LOOPBACK, Port, lists:droplast(Options)),
                      {ok, Server} = gen_tcp:accept(Listen),
                      Echo = spawn_link(fun() -> receive yours -> echo(Server) end end),
                      ok = gen_tcp:controlling_process(Server, Echo),
                      Echo ! yours,
                      Self ! ready,
                      ask(Client)
              end),
    _ = spawn(fun() -> true = register(real_top_busy, self()), busy() end),
    Full = spawn(fun() -> true = register(real_top_full, self()), receive stop -> ok end end),
    [Full ! {message, N} || N <- lists:seq(1, 4321)],
    receive ready -> ok end.

echo(Socket) ->
    {ok, Data} = gen_tcp:recv(Socket, 0),
    ok = gen_tcp:send(Socket, Data),
    echo(Socket).

%% Some hundred times a second.
ask(Socket) ->
    ok = gen_tcp:send(Socket, binary:copy(<<"x">>, 1000)),
    {ok, _} = gen_tcp:recv(Socket, 1000),
    receive after 2 -> ask(Socket) end.

busy() ->
    _ = lists:sum(lists:seq(1, 20000)),
    receive after 1 -> busy() end.
