%% SPDX-License-Identifier: Apache-2.0
%% @doc The bytes of a connection, the same over TCP and TLS: for the modules of this app that
%% take a connection over from {@link erlane_http_conn}. Called by the connection's process.
%%
%% Nothing here waits for ever: a send gives up when the peer has taken nothing for
%% `send_timeout', which is an option of the socket.
-module(erlane_http_io).

-export([accept/1, send/2, send/3, send_once/2, recv/2, sendfile/4, once/1, set_active/2]).
-export([messages/1, socket/1, shared/1, shutdown/1, linger/3, close/1, abort/1, peer/1]).

-export_type([conn/0]).

-include("erlane_http.hrl").

-type conn() :: #conn{}.
-type error() :: {error, closed | timeout | inet:posix()}.

%% What a file is read by for TLS, and what sendfile of inet's driver is given at a time.
-define(PIECE, 65536).
%% A socket of a lane. The calls that every request or connection makes go past gen_tcp and inet,
%% which would look up the same functions by their names each time.
-define(LANE(Socket), {'$inet', erlane_tcp, _} = Socket).

%% @doc As gen_tcp:accept/1.
-spec accept(gen_tcp:socket()) -> {ok, gen_tcp:socket()} | error().
accept(?LANE(Listen)) -> erlane_tcp:accept(Listen);
accept(Listen) -> gen_tcp:accept(Listen).

%% @doc Sends; waits while too much is queued.
-spec send(conn(), iodata()) -> ok | error().
send(#conn{socket = ?LANE(Socket)}, Data) -> erlane_tcp:send(Socket, Data);
send(#conn{transport = tcp, socket = Socket}, Data) -> gen_tcp:send(Socket, Data);
send(#conn{transport = ssl, socket = Socket}, Data) -> ssl:send(Socket, Data).

%% @doc The same; Close: {@link close/1} or {@link linger/3} follows, and over a lane the end then
%% leaves in the same segment. Not if the handler hears of the request before, and takes its time.
-spec send(conn(), iodata(), Close :: boolean()) -> ok | error().
send(#conn{socket = ?LANE(Socket), srv = #srv{event = false}}, Data, true) ->
    erlane_tcp:send(Socket, Data, [more]);
send(Conn, Data, _) ->
    send(Conn, Data).

%% @doc {@link send/2}, and {@link once/1} if that was ok.
-spec send_once(conn(), iodata()) -> ok | error().
send_once(#conn{socket = ?LANE(Socket)}, Data) ->
    erlane_tcp:send(Socket, Data, [{active, once}]);
send_once(Conn, Data) ->
    case send(Conn, Data) of
        ok -> once(Conn);
        Error -> Error
    end.

%% @doc Bytes: those that were read already, else what comes first. The socket must be passive.
-spec recv(conn(), timeout()) -> {ok, binary(), conn()} | error().
recv(#conn{buffer = <<>>, socket = ?LANE(Socket)} = Conn, Timeout) ->
    received(erlane_tcp:recv(Socket, 0, Timeout), Conn);
recv(#conn{buffer = <<>>, transport = tcp, socket = Socket} = Conn, Timeout) ->
    received(gen_tcp:recv(Socket, 0, Timeout), Conn);
recv(#conn{buffer = <<>>, transport = ssl, socket = Socket} = Conn, Timeout) ->
    received(ssl:recv(Socket, 0, Timeout), Conn);
recv(#conn{buffer = Buffer} = Conn, _Timeout) ->
    {ok, Buffer, Conn#conn{buffer = <<>>}}.

received({ok, Data}, Conn) -> {ok, Data, Conn};
received({error, _} = Error, _Conn) -> Error.

%% @doc Sends bytes of a file that was opened `raw' and `binary'; fewer than asked for only if
%% the file ends. Over TLS they are read and sent.
-spec sendfile(conn(), file:fd(), non_neg_integer(), non_neg_integer()) ->
          {ok, non_neg_integer()} | error().
sendfile(_Conn, _Fd, _Offset, 0) ->
    {ok, 0};
sendfile(#conn{transport = tcp, socket = Socket, srv = #srv{send_timeout = Timeout}}, Fd, Offset,
         Length) ->
    Watch = watch(Socket, Timeout),
    %% inet's driver counts the bytes of a file only when all are out: it gets slices.
    Slice = if is_port(Socket) -> ?PIECE; true -> Length end,
    Sent = slices(Watch, Socket, Fd, Offset, Length, Slice, 0),
    unwatch(Watch),
    Sent;
sendfile(#conn{transport = ssl} = Conn, Fd, Offset, Length) ->
    copy(Conn, Fd, Offset, Length, 0).

slices(_, _, _, _, 0, _, Sent) ->
    {ok, Sent};
slices(Watch, Socket, Fd, Offset, Left, Slice, Sent) ->
    case file:sendfile(Fd, Socket, Offset, min(Left, Slice), []) of
        {ok, 0} -> {ok, Sent};
        {ok, N} ->
            moved_on(Watch),
            slices(Watch, Socket, Fd, Offset + N, Left - N, Slice, Sent + N);
        {error, _} = Error -> Error
    end.

copy(_Conn, _Fd, _Offset, 0, Sent) ->
    {ok, Sent};
copy(Conn, Fd, Offset, Left, Sent) ->
    case file:pread(Fd, Offset, min(Left, ?PIECE)) of
        {ok, Data} ->
            Size = byte_size(Data),
            case send(Conn, Data) of
                ok -> copy(Conn, Fd, Offset + Size, Left - Size, Sent + Size);
                Error -> Error
            end;
        eof -> {ok, Sent};
        {error, _} = Error -> Error
    end.

%% sendfile waits for the peer without any limit. A process beside it looks whether bytes move, and
%% resets the connection if they do not: then sendfile returns, and what was sent can be told. That
%% of inet's driver does not return when another process closes its port, so there it ends us.
watch(_Socket, infinity) ->
    none;
watch(Socket, Timeout) ->
    Owner = self(),
    spawn(fun() ->
                  Ref = monitor(process, Owner),
                  watch(Owner, Ref, Socket, Timeout, moved(Socket))
          end).

watch(Owner, Ref, Socket, Timeout, Before) ->
    receive
        done -> ok;
        moved -> watch(Owner, Ref, Socket, Timeout, Before);
        {'DOWN', Ref, process, Owner, _} -> ok
    after Timeout ->
        case moved(Socket) of
            Before ->
                stalled(Owner, Socket),
                receive
                    done -> ok;
                    {'DOWN', Ref, process, Owner, _} -> ok
                after Timeout ->
                    exit(Owner, kill)
                end;
            Now -> watch(Owner, Ref, Socket, Timeout, Now)
        end
    end.

stalled(Owner, Socket) when is_port(Socket) ->
    exit(Owner, {shutdown, stalled});
stalled(_, Socket) ->
    %% Without this the close would wait for the bytes that the peer does not take.
    reset(Socket),
    gen_tcp:close(Socket).

moved(Socket) ->
    inet:getstat(Socket, [send_oct]).

moved_on(none) -> ok;
moved_on(Pid) -> Pid ! moved, ok.

unwatch(none) -> ok;
unwatch(Pid) -> Pid ! done, ok.

%% @doc The next bytes come as a message; there must be none that were read already.
-spec once(conn()) -> ok | {error, inet:posix()}.
once(#conn{socket = ?LANE(Socket)}) -> erlane_tcp:setopts(Socket, [{active, once}]);
once(#conn{transport = tcp, socket = Socket}) -> inet:setopts(Socket, [{active, once}]);
once(#conn{transport = ssl, socket = Socket}) -> ssl:setopts(Socket, [{active, once}]).

%% @doc `once': the next bytes come as a message {@link messages/1}; those that were read already
%% come at once.
-spec set_active(conn(), once | false) -> {ok, conn()} | error().
set_active(#conn{buffer = Buffer} = Conn, once) when Buffer =/= <<>> ->
    {Data, _, _} = messages(Conn),
    self() ! {Data, Conn#conn.socket, Buffer},
    {ok, Conn#conn{buffer = <<>>}};
set_active(#conn{transport = tcp, socket = Socket} = Conn, Active) ->
    set(inet:setopts(Socket, [{active, Active}]), Conn);
set_active(#conn{transport = ssl, socket = Socket} = Conn, Active) ->
    set(ssl:setopts(Socket, [{active, Active}]), Conn).

set(ok, Conn) -> {ok, Conn};
%% inet says einval of a socket that is closed.
set({error, einval}, _Conn) -> {error, closed};
set({error, _} = Error, _Conn) -> Error.

%% @doc The tags of an active socket's messages: `{Data, Socket, Bytes}', `{Closed, Socket}' and
%% `{Error, Socket, Reason}', Socket being {@link socket/1}.
-spec messages(conn()) -> {Data :: atom(), Closed :: atom(), Error :: atom()}.
messages(#conn{transport = tcp}) -> {tcp, tcp_closed, tcp_error};
messages(#conn{transport = ssl}) -> {ssl, ssl_closed, ssl_error}.

%% @doc The socket, as it stands in messages.
-spec socket(conn()) -> gen_tcp:socket() | ssl:sslsocket().
socket(#conn{socket = Socket}) -> Socket.

%% @doc The socket, if other processes may write whole messages to it: `undefined' for one that is
%% not in a lane, and for TLS.
-spec shared(conn()) -> erlane_tcp:socket() | undefined.
shared(#conn{transport = tcp, socket = ?LANE(Socket)}) -> Socket;
shared(_) -> undefined.

%% @doc Ends our direction; the peer sees the end of what was sent.
-spec shutdown(conn()) -> ok | error().
shutdown(#conn{transport = tcp, socket = Socket}) -> gen_tcp:shutdown(Socket, write);
shutdown(#conn{transport = ssl, socket = Socket}) -> ssl:shutdown(Socket, write).

%% @doc Closes in a way that lets the client read our last answer although it is still sending:
%% our direction is ended, what comes is thrown away up to a bound and a deadline.
-spec linger(conn(), Ms :: non_neg_integer(), Bytes :: non_neg_integer()) -> ok.
linger(Conn, Ms, Bytes) ->
    case shutdown(Conn) of
        ok -> linger_until(Conn#conn{buffer = <<>>}, now_ms() + Ms, Bytes);
        {error, _} -> ok
    end,
    close(Conn).

linger_until(Conn, Until, Bytes) when Bytes >= 0 ->
    case recv(Conn, max(0, Until - now_ms())) of
        {ok, Data, Conn1} -> linger_until(Conn1, Until, Bytes - byte_size(Data));
        {error, _} -> ok
    end;
linger_until(_, _, _) ->
    ok.

now_ms() -> erlang:monotonic_time(millisecond).

%% @doc Makes the close that follows a reset. Over TLS it is done at once, and beneath: ssl would
%% say that all has been sent.
-spec abort(conn()) -> ok.
abort(#conn{transport = tcp, socket = Socket}) ->
    reset(Socket);
abort(#conn{transport = ssl, under = Socket}) ->
    reset(Socket),
    gen_tcp:close(Socket).

reset(Socket) ->
    _ = inet:setopts(Socket, [{linger, {true, 0}}]),
    ok.

%% @doc Closes the connection.
-spec close(conn()) -> ok.
close(#conn{socket = ?LANE(Socket)}) -> erlane_tcp:close(Socket);
close(#conn{transport = tcp, socket = Socket}) -> gen_tcp:close(Socket);
close(#conn{transport = ssl, socket = Socket}) -> _ = ssl:close(Socket), ok.

%% @doc Who is at the other end; `undefined' if it has gone.
-spec peer(conn()) -> {inet:ip_address(), inet:port_number()} | {local, binary()} | undefined.
peer(#conn{transport = tcp, socket = Socket}) -> peername(inet:peername(Socket));
peer(#conn{transport = ssl, socket = Socket}) -> peername(ssl:peername(Socket)).

peername({ok, {local, Path}}) -> {local, iolist_to_binary(Path)};
peername({ok, {_, _} = Address}) -> Address;
peername({error, _}) -> undefined.
