%% SPDX-License-Identifier: Apache-2.0
%% @doc The HTTP servers of the scenarios `server' and `server-idle': where their libraries are,
%% how each is started, whether it says what it should.
%%
%% Those in Erlang run in a VM of their own, started with
%%
%%     erl -noshell -pa EBIN... -s erlane_bench_web start -extra MODULE SOCKET
%%
%% where MODULE is this one or a peer_* of bench/peers, compiled when its library is there. The
%% VM prints `ready PORT' and obeys the commands of erlane_bench_server.
-module(erlane_bench_web).

-export([names/0, find/2, check/1, version/1]).
-export([start/0, start/1]).

-export_type([command/0]).

-type command() :: {erl, Paths :: [file:filename()], Args :: [string()]}
                 | {program, file:filename(), Args :: [string()]}
                 | {missing | failed, binary()}
                 | unknown.

-define(BODY, <<"Hello world!">>).
-define(CHECK_MS, 5000).
-define(HOUR_MS, 3600000).

%% @doc The contestants that only this module knows.
-spec names() -> [string()].
names() ->
    ["erlane-http", "erlane-http-gen_tcp", "cowboy", "cowboy-erlane", "mochiweb", "yaws", "node",
     "go"].

%% @doc How a contestant is started; `missing' has the packages to install.
-spec find(string(), erlane_bench_contestant:config()) -> command().
find("erlane-http", _) -> {erl, [], [?MODULE_STRING, "erlane"]};
find("erlane-http-gen_tcp", _) -> {erl, [], [?MODULE_STRING, "gen_tcp"]};
find("cowboy", Config) -> peer("peer_cowboy", "gen_tcp", cowboy(), Config);
find("cowboy-erlane", Config) -> peer("peer_cowboy", "erlane", cowboy(), Config);
find("mochiweb", Config) ->
    peer("peer_mochiweb", "gen_tcp", {["mochiweb"], "erlang-mochiweb"}, Config);
find("yaws", Config) ->
    peer("peer_yaws", "gen_tcp", {["yaws"], "erlang-yaws"}, Config);
find("node", #{root := Root}) ->
    case erlane_bench_os:find("node") of
        {ok, Exe} -> {program, Exe, [filename:join([Root, "bench", "peers", "node_http.js"])]};
        error -> {missing, <<"nodejs">>}
    end;
find("go", #{root := Root}) ->
    Dir = filename:join([Root, "bench", "peers"]),
    Exe = filename:join([Dir, "bin", "go_http"]),
    case erlane_bench_os:find("go") of
        {ok, _} ->
            Said = erlane_bench_os:output("make", ["-s", "-C", Dir, "bin/go_http"]),
            case filelib:is_regular(Exe) of
                true -> {program, Exe, []};
                false -> {failed, lists:last(binary:split(Said, <<"\n">>, [global]))}
            end;
        error -> {missing, <<"golang-go">>}
    end;
find(_, _) -> unknown.

cowboy() -> {["cowboy", "cowlib", "ranch"], "rabbitmq-server"}.

%% A peer of bench/peers: compiled into the directory of this run.
peer(Module, Socket, {Libraries, Package}, #{root := Root, tmp := Tmp}) ->
    case [Ebin || Library <- Libraries, Ebin <- library(Library)] of
        Ebins when length(Ebins) =:= length(Libraries) ->
            Source = filename:join([Root, "bench", "peers", Module ++ ".erl"]),
            Erlc = filename:join([code:root_dir(), "bin", "erlc"]),
            case erlane_bench_os:output(Erlc, ["-o", Tmp, Source]) of
                <<>> -> {erl, [Tmp | Ebins], [Module, Socket]};
                Said -> {failed, hd(binary:split(Said, <<"\n">>))}
            end;
        _ ->
            {missing, list_to_binary(Package)}
    end.

%% Its ebin directory: the newest one in the first of the places that has one. Cowboy is a
%% plugin of RabbitMQ in Debian 12; ERLANE_BENCH_LIBS is a directory for what was only unpacked.
library(Name) ->
    Places = [Dir || Dir <- [os:getenv("ERLANE_BENCH_LIBS")], Dir =/= false]
        ++ [code:lib_dir(), "/usr/lib/rabbitmq/lib/*/plugins", "/usr/lib"],
    Found = [lists:last(Ebins)
             || Place <- Places,
                Ebins <- [[Ebin || Dir <- filelib:wildcard(Place ++ "/" ++ Name ++ "{,-[0-9]*}"),
                                   Ebin <- ebin(Dir)]],
                Ebins =/= []],
    lists:sublist(Found, 1).

%% A library may also be an archive, which the VM reads as if it were a directory.
ebin(Dir) ->
    case filename:extension(Dir) of
        ".ez" -> [filename:join([Dir, filename:basename(Dir, ".ez"), "ebin"])];
        _ -> [Ebin || Ebin <- [filename:join(Dir, "ebin")], filelib:is_dir(Ebin)]
    end.

%% @doc The version of a contestant, empty if it is not there; `library' if it runs in our VM.
-spec version(string()) -> binary() | {library, binary()} | unknown.
version("cowboy" ++ _) ->
    {library, join([vsn(Library) || Library <- ["cowboy", "ranch"]])};
version(Name) when Name =:= "mochiweb"; Name =:= "yaws" -> {library, vsn(Name)};
version("node") -> erlane_bench_os:output("node", ["--version"]);
version("go") -> erlane_bench_os:output("go", ["version"]);
version(_) -> unknown.

join([<<>> | _]) -> <<>>;
join(Versions) -> iolist_to_binary(lists:join(", ", Versions)).

vsn(Library) ->
    case [File || Ebin <- library(Library),
                  File <- [filename:join(Ebin, Library ++ ".app")]] of
        [] -> <<>>;
        [File] ->
            case file:consult(File) of
                {ok, [{application, _, Keys}]} ->
                    iolist_to_binary([Library, $\s, proplists:get_value(vsn, Keys, "")]);
                {error, _} -> list_to_binary(filename:basename(File, ".app"))
            end
    end.

%% @doc Whether the server on a port of loopback answers twice on one connection with the body
%% that all have to send.
-spec check(inet:port_number()) -> ok | {error, binary()}.
check(Port) ->
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [binary, {active, false}], ?CHECK_MS),
    Answers = [asked(Socket) || _ <- [1, 2]],
    ok = gen_tcp:close(Socket),
    case [Why || Why <- Answers, Why =/= ok] of
        [] -> ok;
        [Why | _] -> {error, Why}
    end.

asked(Socket) ->
    _ = gen_tcp:send(Socket, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    answer(Socket, <<>>).

answer(Socket, Before) ->
    case gen_tcp:recv(Socket, 0, ?CHECK_MS) of
        {ok, Data} ->
            All = <<Before/binary, Data/binary>>,
            case binary:split(All, <<"\r\n\r\n">>) of
                [<<"HTTP/1.1 200", _/binary>>, ?BODY] -> ok;
                [_, Body] when byte_size(Body) >= byte_size(?BODY) ->
                    iolist_to_binary(["does not answer with the body of the others: ",
                                      binary:part(All, 0, min(80, byte_size(All)))]);
                _ -> answer(Socket, All)
            end;
        {error, Why} ->
            iolist_to_binary(io_lib:format("gave no whole answer: ~p", [Why]))
    end.

%%
%% In the VM of a server
%%

%% @doc Entry of the VM.
-spec start() -> ok.
start() ->
    _ = spawn(fun() ->
                      try
                          [Module, Socket] = init:get_plain_arguments(),
                          main(list_to_atom(Module), list_to_atom(Socket))
                      catch
                          Class:Reason ->
                              io:format("~p: ~0p~n", [Class, Reason]),
                              erlang:halt(1)
                      end
              end),
    ok.

main(Module, Socket) ->
    io:format("ready ~b~n", [Module:start(Socket)]),
    erlane_bench_server:commands([]).

%% @private
-spec start(erlane | gen_tcp) -> inet:port_number().
start(Socket) ->
    {ok, _} = application:ensure_all_started(erlane_http),
    {ok, _} = erlane_http:start(bench, #{handler => {erlane_hello, ?BODY}, socket => Socket,
                                         backlog => 4096, connections => infinity,
                                         idle_timeout => ?HOUR_MS}),
    erlane_http:port(bench).
