%% SPDX-License-Identifier: Apache-2.0
%% @doc Cowboy over the sockets of erlane. The first argument says what carries its sockets, and
%% nothing else differs:
%%
%%     cowboy_hello erlane 8080       sockets in lanes
%%     cowboy_hello gen_tcp 8080      the sockets of the VM
%%
%% Cowboy, Cowlib and Ranch must be on the code path.
-module(cowboy_hello).

-export([main/1, init/2]).

%% @doc Serves until the VM is stopped. Arguments: erlane or gen_tcp, and the port.
-spec main([string()]) -> no_return().
main([Carrier, Port]) ->
    Carried = carrier(Carrier),
    {ok, _} = application:ensure_all_started(cowboy),
    Dispatch = cowboy_router:compile([{'_', [{"/[:name]", ?MODULE, <<"Hello">>}]}]),
    {ok, _} = cowboy:start_clear(hello,
                                 #{socket_opts => Carried
                                       ++ [{ip, {127, 0, 0, 1}}, {port, list_to_integer(Port)}]},
                                 #{env => #{dispatch => Dispatch}}),
    io:format("cowboy over ~s: http://127.0.0.1:~s/you~n", [Carrier, Port]),
    receive after infinity -> ok end;
main(_) ->
    io:format(standard_error, "usage: cowboy_hello erlane|gen_tcp PORT~n", []),
    halt(2).

%% The whole difference. Started before Cowboy, erlane_socket is stopped after it.
carrier("erlane") ->
    {ok, _} = application:ensure_all_started(erlane_socket),
    [{inet_backend, inet}, {tcp_module, erlane_tcp}];
carrier("gen_tcp") ->
    [].

%% @doc An ordinary handler of Cowboy.
-spec init(map(), binary()) -> {ok, map(), binary()}.
init(Req0, Greeting) ->
    Name = cowboy_req:binding(name, Req0, <<"world">>),
    Req = cowboy_req:reply(200, #{<<"content-type">> => <<"text/plain">>},
                           [Greeting, ", ", Name, $\n], Req0),
    {ok, Req, Greeting}.
