%% SPDX-License-Identifier: Apache-2.0
%% @doc The file of a Unix socket. Nothing removes it when its listener is killed, and as long as
%% it is there nobody else can bind to its name.
-module(erlane_http_unix).

-export([clear/1, identity/1, remove/2]).

-export_type([identity/0]).

-include_lib("kernel/include/file.hrl").

-type identity() :: {Device :: integer(), Inode :: integer()} | none.

-define(CONNECT_MS, 1000).
-define(TYPE, 8#170000).
-define(SOCKET, 8#140000).

%% @doc Removes a socket on which nobody listens; whether there was one. Two that start at the
%% same instant can take it from each other: a name is for one.
-spec clear(term()) -> boolean().
clear({local, Path}) ->
    is_socket(Path) andalso is_dead(Path) andalso file:delete(Path) =:= ok;
clear(_) ->
    false.

is_socket(Path) ->
    case info(Path) of
        {ok, #file_info{mode = Mode}} -> Mode band ?TYPE =:= ?SOCKET;
        {error, _} -> false
    end.

%% Of a full backlog it is said otherwise.
is_dead(Path) ->
    case gen_tcp:connect({local, Path}, 0, [{inet_backend, inet}], ?CONNECT_MS) of
        {ok, Socket} -> ok = gen_tcp:close(Socket), false;
        {error, Why} -> Why =:= econnrefused
    end.

%% @doc Which file an address has just now.
-spec identity(term()) -> identity().
identity({local, Path}) ->
    case info(Path) of
        {ok, #file_info{major_device = Device, inode = Inode}} -> {Device, Inode};
        {error, _} -> none
    end;
identity(_) ->
    none.

%% @doc Removes the file, if it is still the same: somebody else may listen there by now.
-spec remove(term(), identity()) -> ok.
remove({local, Path} = Address, {_, _} = Identity) ->
    _ = identity(Address) =:= Identity andalso file:delete(Path),
    ok;
remove(_, _) ->
    ok.

%% A name of Linux's abstract space begins with NUL, which no file's name can.
info(Path) -> file:read_link_info(Path, [raw]).
