%% SPDX-License-Identifier: Apache-2.0
%% @doc A connection: one process, one loop. It accepts, reads a head, sees to the body, calls
%% the handler, sends the answer, and begins again.
%%
%% What a request costs beside the handler is kept small by three things. The bytes of the last
%% head are remembered with what they mean: clients that keep a connection mostly repeat
%% themselves, and the same bytes mean the same. So are the last answer and the bytes it became.
%% And there is one timer for all that can take too long between requests: it is not stopped and
%% started with every request; when it is due somebody looks whether anything was.
%%
%% Between requests the process gets one message of the socket at most ({active, once}); while
%% the handler runs, none at all. What it may find in its mailbox are `{erlane_http, drain}', once,
%% and `{erlane_http, tick}'.
-module(erlane_http_conn).

-export([start_link/1]).
-export([init/2, await/3]).

-include("erlane_http.hrl").
-include_lib("kernel/include/logger.hrl").

-record(st, {conn :: #conn{},
             srv :: #srv{},
             parent :: pid(),
             tick :: reference() | undefined,
             %% When it is due. A handler may have taken its message out of the mailbox.
             due = 0 :: integer(),
             %% The last head that ended with its own bytes, and the request it is.
             last = none :: binary() | none,
             req :: #req{} | undefined,
             %% The last answer, its bytes, and until when its date is right.
             status :: 100..999 | undefined,
             fields :: erlane_http:headers() | undefined,
             body :: binary() | undefined,
             bytes = <<>> :: binary(),
             until = 0 :: integer()}).

-define(MAX_REMEMBERED, 4096).
%% Words: a short connection does without a collection. One that is idle has less.
-define(HEAP, 987).
%% After so long without a request the heap shrinks to what is needed.
-define(TICK_MS, 2000).
-define(MAX_PAUSE_MS, 1000).
%% Who has sent nothing for so long is listened to in a way that hears a drain.
-define(FIRST_MS, 500).
-define(MAX_LINGER, 16777216).

%% @doc A process that waits for a connection, for the acceptor that calls. It sends
%% `{accepted, Pid}' when it has one, and ends with it. Key is that of the listener's #srv{}.
-spec start_link(term()) -> pid().
start_link(Key) ->
    spawn_opt(?MODULE, init, [self(), Key], [link, {min_heap_size, ?HEAP}]).

%% @private
-spec init(pid(), term()) -> ok.
init(Parent, Key) ->
    accept(Parent, persistent_term:get(Key), 10).

accept(Parent, #srv{listen = Listen, metrics = Metrics} = Srv, Pause) ->
    case erlane_http_io:accept(Listen) of
        {ok, Socket} ->
            Parent ! {accepted, self()},
            open(Socket, Parent, Srv);
        {error, closed} ->
            exit({shutdown, closed});
        {error, Aborted} when Aborted =:= econnaborted; Aborted =:= eproto ->
            accept(Parent, Srv, Pause);
        {error, Reason} ->
            %% No descriptor or no memory: at once it would only fail again.
            ok = erlane_http_metrics:event(Metrics, accept_error),
            Pause =:= 10 andalso
                ?LOG_ERROR("http ~ts: accept: ~0tp, pausing", [Srv#srv.name, Reason]),
            receive after Pause -> ok end,
            accept(Parent, Srv, min(2 * Pause, ?MAX_PAUSE_MS))
    end.

open(Socket, Parent, #srv{scheme = http} = Srv) ->
    Conn = #conn{socket = Socket, srv = Srv, parent = Parent},
    first(#st{conn = Conn, srv = Srv, parent = Parent});
open(Socket, Parent, #srv{scheme = https, tls = Tls, tls_timeout = Timeout} = Srv) ->
    case ssl:handshake(Socket, Tls, Timeout) of
        {ok, Secure} ->
            Conn = #conn{socket = Secure, transport = ssl, under = Socket, srv = Srv,
                         parent = Parent},
            first(#st{conn = Conn, srv = Srv, parent = Parent});
        {error, Reason} ->
            _ = gen_tcp:close(Socket),
            erlane_http_account:event(closed, #{reason => {tls, Reason}}, Srv)
    end.

%% The first bytes are mostly here already: no timer, no message.
first(#st{conn = Conn, srv = #srv{head_timeout = Timeout} = Srv} = St) ->
    Since = now_ns(),
    case erlane_http_io:recv(Conn, min(?FIRST_MS, Timeout)) of
        {ok, Data, _} ->
            ok = erlane_http_metrics:received(Srv#srv.metrics, byte_size(Data)),
            parse(Data, start, Since, 1, St);
        {error, timeout} -> silent(Since, St);
        {error, Reason} -> closed(Reason, St)
    end.

%% A browser opens connections ahead; it may never need this one, and a drain does not wait for it.
silent(Since, #st{conn = Conn, srv = #srv{head_timeout = Timeout}} = St) ->
    case erlane_http_io:once(Conn) of
        ok ->
            Socket = erlane_http_io:socket(Conn),
            {Data, Closed, Error} = erlane_http_io:messages(Conn),
            receive
                {Data, Socket, Bytes} -> received(Bytes, 1, St);
                {Closed, Socket} -> closed(closed, St);
                {Error, Socket, Reason} -> closed(Reason, St);
                {erlane_http, drain} -> closed(drained, St)
            after rest(Timeout, Since) ->
                timeout(first_byte, St)
            end;
        {error, _} -> closed(closed, St)
    end.

%% What is left of a time, in milliseconds.
rest(infinity, _) -> infinity;
rest(Timeout, Since) -> max(0, Timeout - (now_ns() - Since) div 1000000).

%%
%% Between requests. N is the number of the next one.
%%

wait(Since, N, #st{conn = Conn} = St) ->
    armed(erlane_http_io:once(Conn), Since, N, St).

armed(ok, Since, N, #st{tick = Tick, due = Due, srv = Srv} = St)
  when Tick =:= undefined; Since > Due ->
    Ms = min(?TICK_MS, Srv#srv.idle_timeout), % an atom is greater
    St1 = without_tick(St),
    await(Since, N, St1#st{tick = again(Ms), due = Since + Ms * 1000000});
armed(ok, Since, N, St) ->
    await(Since, N, St);
armed({error, _}, _, _, St) ->
    closed(closed, St).

%% @private Also where a process that was hibernated goes on.
-spec await(integer(), pos_integer(), #st{}) -> ok.
await(Since, N, #st{conn = #conn{socket = Socket}, parent = Parent} = St) ->
    receive
        {tcp, Socket, Data} -> received(Data, N, St);
        {ssl, Socket, Data} -> received(Data, N, St);
        {tcp_closed, Socket} -> closed(closed, St);
        {ssl_closed, Socket} -> closed(closed, St);
        {tcp_error, Socket, Reason} -> closed(Reason, St);
        {ssl_error, Socket, Reason} -> closed(Reason, St);
        {erlane_http, tick} -> tick(Since, N, St);
        {erlane_http, drain} -> closed(drained, St);
        {'EXIT', Parent, Reason} -> exit(Reason);
        %% Left over from the handler; nobody will read it any more.
        _ -> await(Since, N, St)
    end.

tick(Since, N, #st{srv = #srv{idle_timeout = Timeout}} = St) ->
    Idle = (now_ns() - Since) div 1000000,
    if
        Idle >= Timeout -> timeout(idle, St);
        Idle < ?TICK_MS - 1 ->
            Ms = min(?TICK_MS, rest(Timeout, Since)), % an atom is greater
            await(Since, N, St#st{tick = again(Ms), due = now_ns() + Ms * 1000000});
        true ->
            Tick = case Timeout of
                       infinity -> undefined;
                       _ -> again(Timeout - Idle)
                   end,
            #st{conn = Conn, srv = Srv, parent = Parent} = St,
            erlang:hibernate(?MODULE, await, [Since, N,
                                              #st{conn = Conn, srv = Srv, parent = Parent,
                                                  tick = Tick}])
    end.

again(Ms) -> erlang:send_after(Ms, self(), {erlane_http, tick}).

%% For whoever takes all messages from now on.
without_tick(#st{tick = undefined} = St) -> St;
without_tick(#st{tick = Tick} = St) ->
    case erlang:cancel_timer(Tick) of
        false -> receive {erlane_http, tick} -> ok after 0 -> ok end;
        _ -> ok
    end,
    St#st{tick = undefined}.

received(Last, N, #st{last = Last, req = Req, srv = #srv{metrics = Metrics}} = St) ->
    ok = erlane_http_metrics:received(Metrics, byte_size(Last)),
    call(Req, <<>>, N, now_ns(), St);
received(Data, N, #st{srv = #srv{metrics = Metrics}} = St) ->
    ok = erlane_http_metrics:received(Metrics, byte_size(Data)),
    parse(Data, start, now_ns(), N, St).

%% The next request may be another user's, behind a proxy that keeps its connections: it must not
%% find what the handler has left in the process, nor be logged with it. The seed of `rand' is
%% nobody's secret, and dear to make.
tidy() ->
    _ = process_flag(trap_exit, false),
    _ = case get() of
            [] -> ok;
            [{rand_seed, _}] -> ok;
            _ -> erase()
        end,
    ok.

next(Rest, N, Now, St) ->
    ok = tidy(),
    following(Rest, N, Now, St).

%% More requests were here already: they are answered in their order, and nothing is read before.
following(<<>>, N, Now, St) -> wait(Now, N, St);
following(Buffer, N, Now, #st{last = Last, req = Req} = St) when is_binary(Last) ->
    Size = byte_size(Last),
    case Buffer of
        <<Head:Size/binary, Rest/binary>> when Head =:= Last -> call(Req, Rest, N, Now, St);
        _ -> parse(Buffer, start, Now, N, St)
    end;
following(Buffer, N, Now, St) ->
    parse(Buffer, start, Now, N, St).

%%
%% The head
%%

parse(Buffer, Cont, Since, N, #st{srv = #srv{limits = Limits}} = St) ->
    case erlane_http_head:parse(Buffer, Limits, Cont) of
        {ok, Head, Rest} -> request(Head, Rest, Buffer, N, St);
        {more, Cont1} -> more(Buffer, Cont1, Since, N, St);
        {error, Status, Why} -> refuse(Status, Why, Buffer, St)
    end.

more(Buffer, Cont, Since, N, #st{conn = Conn, srv = #srv{head_timeout = Timeout} = Srv} = St) ->
    case erlane_http_io:recv(Conn, rest(Timeout, Since)) of
        {ok, Data, _} ->
            ok = erlane_http_metrics:received(Srv#srv.metrics, byte_size(Data)),
            parse(<<Buffer/binary, Data/binary>>, Cont, Since, N, St);
        {error, timeout} -> refuse(408, slow_head, Buffer, St);
        {error, Reason} -> closed(Reason, St)
    end.

request(#head{body = none} = Head, Rest, Buffer, N, #st{conn = Conn} = St) ->
    Req = #req{head = Head, conn = Conn, plain = is_plain(Head)},
    call(Req, Rest, N, now_ns(), remember(Req, Rest, Buffer, St));
request(Head, Rest, _, N, #st{conn = Conn, srv = Srv} = St) ->
    Req = #req{head = Head, conn = Conn, plain = is_plain(Head)},
    body(policy(Req, Srv), Req, Conn#conn{buffer = Rest}, N, now_ns(), St).

%% Whether its answer depends on nothing but status, fields and body.
is_plain(#head{method = Method, version = Version, close = Close}) ->
    not Close andalso Method =/= <<"HEAD">> andalso Version =/= {1, 0}.

remember(#req{plain = true} = Req, Rest, Buffer, St) ->
    Size = byte_size(Buffer) - byte_size(Rest),
    if
        Size > ?MAX_REMEMBERED -> St;
        true -> St#st{last = binary:part(Buffer, 0, Size), req = Req}
    end;
remember(_, _, _, St) ->
    St.

policy(_, #srv{init = false, max_body = Max}) -> {read, Max};
policy(Req, #srv{handler = Module, args = Args, max_body = Max}) ->
    try Module:init(Req, Args) of
        {ok, read} -> {read, Max};
        {ok, {read, Bytes}} -> {read, Bytes};
        {ok, stream} -> stream;
        Other -> {crashed, error, {bad_init, Other}, []}
    catch
        Class:Reason:Stack -> {crashed, Class, Reason, Stack}
    end.

body({read, Max}, #req{head = Head} = Req, Conn, N, Now, St) ->
    case erlane_http_body:whole(Head, Conn, Max) of
        {ok, Body, Trailers, #conn{buffer = Rest}} ->
            call(Req#req{body = Body, trailers = Trailers}, Rest, N, Now, St);
        {error, closed} -> closed(closed, St);
        {error, Status, Why} -> refuse(Status, Why, Head, St)
    end;
body(stream, #req{head = Head} = Req, Conn, N, Now, St) ->
    ok = erlane_http_body:open(Head, Conn),
    call(Req#req{body = stream, plain = false}, <<>>, N, Now, St);
body({crashed, Class, Reason, Stack}, Req, _, N, Now, St) ->
    crashed(Class, Reason, Stack, nothing, Req, N, Now, St).

%%
%% The handler and its answer
%%

call(Req, Rest, N, Now, #st{srv = #srv{handle = Handle, args = Args}} = St) ->
    try Handle(Req, Args) of
        {Status, Headers, Body} when is_integer(Status) ->
            reply(Status, Headers, Body, Req, Rest, N, Now, St);
        Other ->
            other(Other, Req, Rest, N, Now, St)
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, nothing, Req, N, Now, St)
    end.

reply(Status, Headers, Body, #req{plain = true} = Req, Rest, N, Now,
      #st{status = Status, fields = Headers, body = Body, until = Until, bytes = Bytes,
          conn = Conn, srv = #srv{draining = Draining, max_requests = Max} = Srv} = St)
  when Now < Until, N < Max ->
    case persistent_term:get(Draining, false) of
        true ->
            other({Status, Headers, Body}, Req, Rest, N, Now, St);
        false when Rest =:= <<>>, Srv#srv.event =:= false ->
            %% What comes next may come while we account for this.
            repeated(erlane_http_io:send_once(Conn, Bytes), Req, N, Now, St);
        false ->
            sent(erlane_http_io:send(Conn, Bytes), Status, byte_size(Bytes), false, Req, Rest, N,
                 Now, St)
    end;
reply(Status, Headers, Body, #req{body = Read, head = #head{close = Asked}} = Req, Rest, N, Now,
      #st{srv = Srv, conn = Conn} = St)
  when is_binary(Body), byte_size(Body) =< ?MAX_REMEMBERED, Read =/= stream ->
    try erlane_http_answer:simple(Status, Headers, Body, Req, Asked orelse closing(N, Srv)) of
        {Head, Out, Close} ->
            Bytes = iolist_to_binary([Head, Out]),
            Sent = erlane_http_io:send(Conn, Bytes, Close),
            sent(Sent, Status, byte_size(Bytes), Close, Req, Rest, N, Now,
                 remembered(Status, Headers, Body, Bytes, Close, Req, Now, St))
    catch
        Class:Reason:Stack -> crashed(Class, Reason, Stack, nothing, Req, N, Now, St)
    end;
reply(Status, Headers, Body, Req, Rest, N, Now, St) ->
    other({Status, Headers, Body}, Req, Rest, N, Now, St).

remembered(Status, Headers, Body, Bytes, false, #req{plain = true}, Now, St) ->
    {Until, _} = erlane_http_date:now(Now),
    St#st{status = Status, fields = Headers, body = Body, bytes = Bytes, until = Until};
remembered(_, _, _, _, _, _, _, St) ->
    St.

%% Every other kind of answer, and requests whose body the handler was to read.
%% A body on its way would be taken for the next request, or for frames.
other({upgrade, _, _}, #req{body = stream} = Req, Rest, N, Now, St) ->
    other({400, [], <<"an upgrade has no body\n">>}, Req, Rest, N, Now, St);
other({upgrade, Module, Args}, #req{conn = Conn} = Req, Rest, N, Now, St) ->
    _ = process_flag(trap_exit, false),
    upgrade(Module, Args, Req, Conn#conn{buffer = Rest}, N, Now, without_tick(St));
other({stream, Status, _, _} = Reply, #req{body = stream} = Req, _, N, Now, St)
  when is_integer(Status) ->
    %% The function may read what the handler has not.
    answer_and_leave(erlane_http_body:going_on(Status), Reply, Req, N, Now, St);
other({sse, _, _} = Reply, Req, Rest, N, Now, #st{tick = Tick} = St) when Tick =/= undefined ->
    other(Reply, Req, Rest, N, Now, without_tick(St));
other(Reply, #req{body = stream} = Req, _, N, Now, #st{conn = Conn, srv = Srv} = St) ->
    case erlane_http_body:leave(Srv#srv.drain_bytes) of
        {done, Conn1} -> answer(Reply, Req, Conn1, closing(N, Srv), N, Now, St);
        %% Events watch the socket meanwhile, and would read the body.
        {left, _} when element(1, Reply) =:= sse -> answer(Reply, Req, Conn, true, N, Now, St);
        {left, Left} -> answer_and_drain(Reply, Req, Left, closing(N, Srv), N, Now, St);
        close -> answer(Reply, Req, Conn, true, N, Now, St)
    end;
other(Reply, #req{conn = Conn} = Req, Rest, N, Now, #st{srv = Srv} = St) ->
    answer(Reply, Req, Conn#conn{buffer = Rest}, closing(N, Srv), N, Now, St).

closing(N, #srv{draining = Draining, max_requests = Max}) ->
    N >= Max orelse persistent_term:get(Draining, false).

answer(Reply, #req{head = #head{close = Close0}} = Req, Conn, Close, N, Now, St) ->
    answered(erlane_http_answer:send(Reply, Req, Conn, Close orelse Close0), Req, N, Now, St).

answer_and_leave(ok, Reply, #req{head = #head{close = Close}} = Req, N, Now,
                 #st{conn = Conn, srv = Srv} = St) ->
    Answer = erlane_http_answer:send(Reply, Req, Conn, closing(N, Srv) orelse Close),
    case {Answer, erlane_http_body:leave(Srv#srv.drain_bytes)} of
        {{sent, Status, Sent, Closes, _}, {done, Conn1}} ->
            answered({sent, Status, Sent, Closes, Conn1}, Req, N, Now, St);
        {{sent, Status, Sent, false, _}, {left, Left}} ->
            ok = done(Status, Sent, Req, Now, St),
            drain(Left, N, St);
        {{sent, Status, Sent, _, _}, _} ->
            ok = done(Status, Sent, Req, Now, St),
            linger(St);
        _ -> answered(Answer, Req, N, Now, St)
    end;
answer_and_leave({error, closed}, _, _, _, _, St) ->
    closed(closed, St).

drain(Left, N, #st{srv = #srv{drain_bytes = Max}} = St) ->
    case erlane_http_body:drain(Left, Max) of
        {ok, #conn{buffer = Rest}} ->
            next(Rest, N + 1, now_ns(), St);
        close -> linger(St)
    end.

%% The answer does not wait for the body.
answer_and_drain(Reply, #req{head = #head{close = Close0}} = Req, Left, Close, N, Now,
                 #st{conn = Conn} = St) ->
    case erlane_http_answer:send(Reply, Req, Conn, Close orelse Close0) of
        {sent, Status, Sent, false, _} ->
            ok = done(Status, Sent, Req, Now, St),
            drain(Left, N, St);
        {sent, Status, Sent, true, _} ->
            ok = done(Status, Sent, Req, Now, St),
            linger(St);
        Result ->
            answered(Result, Req, N, Now, St)
    end.

answered({sent, Status, Sent, Close, #conn{buffer = Rest}}, Req, N, Now, St) ->
    sent(ok, Status, Sent, Close, Req, Rest, N, Now, St);
answered({cut, Status, Sent}, Req, _, Now, St) ->
    ok = done(Status, Sent, Req, Now, St),
    closed(cut, St);
answered({crashed, Class, Reason, Stack, Before}, Req, N, Now, St) ->
    crashed(Class, Reason, Stack, Before, Req, N, Now, St).

sent(ok, Status, Sent, false, Req, Rest, N, Start, St) ->
    Now = told(Status, Sent, Req, Start, St),
    next(Rest, N + 1, Now, St);
sent(ok, Status, Sent, true, #req{head = #head{close = Asked}} = Req, Rest, _, Start, St) ->
    ok = done(Status, Sent, Req, Start, St),
    %% Who asked for the close and sent its whole body sends nothing more, and cannot be hit by a
    %% reset.
    case Asked andalso Rest =:= <<>> andalso Req#req.body =/= stream of
        true -> closed(normal, St);
        false -> linger(St)
    end;
sent({error, Reason}, Status, _, _, Req, _, _, Start, St) ->
    ok = done(Status, 0, Req, Start, St),
    closed(Reason, St).

repeated(ok, Req, N, Start, #st{status = Status, bytes = Bytes} = St) ->
    Now = told(Status, byte_size(Bytes), Req, Start, St),
    ok = tidy(),
    armed(ok, Now, N + 1, St);
repeated(Error, Req, N, Start, #st{status = Status} = St) ->
    sent(Error, Status, 0, false, Req, <<>>, N, Start, St).

%% Answers when it was: the next request may begin then.
told(Status, Sent, Req, Start, #st{srv = Srv}) ->
    Now = now_ns(),
    ok = erlane_http_account:done(Status, Sent, Req, Now - Start, Srv),
    Now.

upgrade(Module, Args, Req, Conn, N, Now, #st{srv = Srv} = St) ->
    try erlane_http_ws_conn:run(Conn, Req, Module, Args) of
        {refuse, Status, Headers, Body} ->
            answer({Status, Headers, Body}, Req, Conn, closing(N, Srv), N, Now, St);
        {crashed, Class, Reason, Stack} ->
            crashed(Class, Reason, Stack, nothing, Req, N, Now, St);
        {closed, Reason} ->
            ok = done(101, 0, Req, Now, St),
            closed({websocket, Reason}, St)
    catch
        Class:Reason:Stack ->
            %% Now that the connection is a WebSocket its client cannot be answered any more.
            crashed(Class, Reason, Stack, {101, 0, reset}, Req, N, Now, St)
    end.

%%
%% Ends
%%

crashed(exit, {erlane_http_body, {error, closed}}, _, nothing, _, _, _, St) ->
    closed(closed, St);
crashed(exit, {erlane_http_body, {error, Status, Why}}, _, nothing, #req{head = Head}, _, _, St) ->
    refuse(Status, Why, Head, St);
crashed(exit, {erlane_http_body, _}, _, {Status, Sent, _}, Req, _, Now, St) ->
    ok = done(Status, Sent, Req, Now, St),
    closed(cut, St);
crashed(Class, Reason, Stack, Before, Req, _, Now, #st{conn = Conn, srv = Srv} = St) ->
    ok = erlane_http_account:crashed(Class, Reason, Stack, Req, Srv),
    case Before of
        nothing ->
            Bytes = erlane_http_answer:refusal(500, []),
            _ = erlane_http_io:send(Conn, Bytes),
            ok = done(500, iolist_size(Bytes), Req, Now, St),
            linger(St);
        {Status, Sent, linger} ->
            ok = done(Status, Sent, Req, Now, St),
            linger(St);
        {Status, Sent, reset} ->
            ok = done(Status, Sent, Req, Now, St),
            closed(crashed, St)
    end.

%% Of a request that cannot be read nothing that follows can be read either.
refuse(Status, Why, What, #st{conn = Conn} = St) ->
    Bytes = erlane_http_answer:refusal(Status, []),
    _ = erlane_http_io:send(Conn, Bytes),
    ok = erlane_http_account:refused(Status, Why, iolist_size(Bytes), What, Conn),
    linger(St).

timeout(Why, #st{conn = Conn, srv = Srv}) ->
    ok = erlane_http_account:event(timeout, #{reason => Why}, Srv),
    erlane_http_io:close(Conn).

closed(Reason, #st{conn = Conn, srv = Srv}) ->
    ok = erlane_http_account:event(closed, #{reason => Reason}, Srv),
    erlane_http_io:close(Conn).

linger(#st{conn = Conn, srv = #srv{linger_timeout = Timeout} = Srv}) ->
    ok = erlane_http_account:event(closed, #{reason => normal}, Srv),
    erlane_http_io:linger(Conn, Timeout, ?MAX_LINGER).

done(Status, Sent, Req, Start, St) ->
    _ = told(Status, Sent, Req, Start, St),
    ok.

now_ns() -> erlang:monotonic_time(nanosecond).
