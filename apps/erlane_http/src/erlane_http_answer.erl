%% SPDX-License-Identifier: Apache-2.0
%% @doc Sends what a handler answered: its kinds, and how each is framed.
-module(erlane_http_answer).

-export([simple/5, send/4, refusal/2]).

-export_type([result/0]).

-include_lib("kernel/include/file.hrl").
-include("erlane_http.hrl").

-type status() :: 100..999.
-type result() ::
        {sent, status(), Bytes :: non_neg_integer(), Close :: boolean(), #conn{}}
      | {cut, status(), Bytes :: non_neg_integer()}
      | {crashed, Class :: error | exit | throw, Reason :: term(), Stack :: list(),
         nothing | {status(), Bytes :: non_neg_integer(), linger | reset}}.
%% `cut': the client is gone or must be told that this was not all; nothing may follow.
%% `crashed' tells what had been sent by then.

%% A file of at most so many bytes goes out with its head.
-define(SMALL, 65536).

%% @doc An answer whose body is there: the bytes of it and whether to close afterwards. A bad
%% answer is an error.
-spec simple(status(), erlane_http:headers(), iodata(), #req{}, boolean()) ->
          {Head :: iodata(), Body :: iodata(), boolean()}.
simple(Status, Headers, Body, #req{head = #head{method = Method}} = Req, Close0)
  when is_integer(Status), Status >= 200, Status =< 999 ->
    {Fields, #{length := Length} = Own} = erlane_http_reply:fields(Headers),
    Size = iolist_size(Body),
    HasBody = erlane_http_reply:has_body(Method, Status),
    Framing = if
                  HasBody -> Size;
                  Status =:= 204 -> none;
                  is_integer(Length) -> Length;
                  Status =:= 304 -> none;
                  true -> Size
              end,
    {Head, Close} = head(Status, Fields, Framing, Own, Req, Close0),
    {Head, if HasBody -> Body; true -> <<>> end, Close};
simple(Status, _, _, _, _) ->
    error({bad_status, Status}).

head(Status, Fields, Framing, #{close := Own, date := Dated}, Req, Close0) ->
    Close = Close0 orelse Own,
    Connection = case Req#req.head#head.version of
                     _ when Close -> close;
                     {1, 0} -> keep;
                     _ -> none
                 end,
    {erlane_http_reply:head(Status, Fields, Framing, #{connection => Connection,
                                                       date => date(Dated)}), Close}.

date(true) -> none;
date(false) ->
    {_, Text} = erlane_http_date:now(erlang:monotonic_time(nanosecond)),
    Text.

%% @doc A whole answer without a body and without a request that could be understood; the
%% connection ends with it.
-spec refusal(status(), erlane_http:headers()) -> iodata().
refusal(Status, Headers) ->
    {Fields, _} = erlane_http_reply:fields(Headers),
    erlane_http_reply:head(Status, Fields, 0, #{connection => close, date => date(false)}).

%% @doc Sends any answer. The connection of a result has what was read and not used.
-spec send(term(), #req{}, #conn{}, boolean()) -> result().
send(Reply, Req, Conn, Close) ->
    try kind(Reply, Req, Conn, Close)
    catch Class:Reason:Stack -> {crashed, Class, Reason, Stack, nothing}
    end.

kind({Status, Headers, {file, File}}, Req, Conn, Close) ->
    file(Status, Headers, File, all, Req, Conn, Close);
kind({Status, Headers, {file, File, {Offset, Length}}}, Req, Conn, Close)
  when is_integer(Offset), Offset >= 0, is_integer(Length), Length >= 0 ->
    file(Status, Headers, File, {Offset, Length}, Req, Conn, Close);
kind({stream, Status, Headers, Fun}, Req, Conn, Close) when is_function(Fun, 1) ->
    stream(Status, Headers, fun(Send) -> {Fun(Send), Conn} end, lazy, Req, Conn, Close);
kind({sse, Headers, Fun}, Req, Conn, Close) when is_function(Fun, 1) ->
    events(Headers, Fun, at_once, Req, Conn, Close);
kind({sse, Headers, Fun}, Req, Conn, Close) when is_function(Fun, 2) ->
    Socket = erlane_http_io:shared(Conn),
    events(Headers, fun(Emit) -> Fun(Emit, Socket) end, as_it_is, Req, Conn, Close);
kind({Status, Headers, Body}, Req, Conn, Close0) ->
    {Head, Rest, Close} = simple(Status, Headers, Body, Req, Close0),
    out(Status, [Head, Rest], Conn, Close);
kind(Other, _, _, _) ->
    error({bad_reply, Other}).

events(Headers, Fun, When, Req, Conn, Close) ->
    %% The end of Fun's process is to be ours.
    _ = process_flag(trap_exit, false),
    Run = fun(Send) ->
                  case erlane_http_sse:run(Conn, Send, Fun, #{}) of
                      {ok, Conn1} -> {ok, Conn1};
                      {error, _} -> {gone, Conn}
                  end
          end,
    stream(200, erlane_http_sse:headers(Headers), Run, When, Req, Conn, Close).

out(Status, Data, Conn, Close) ->
    case erlane_http_io:send(Conn, Data, Close) of
        ok -> {sent, Status, iolist_size(Data), Close, Conn};
        {error, _} -> {cut, Status, 0}
    end.

%%
%% Files
%%

%% One that was opened already belongs to us as well.
file(Status, Headers, Fd, Part, Req, Conn, Close) when is_tuple(Fd) ->
    try opened(Status, Headers, Fd, Part, Req, Conn, Close)
    after file:close(Fd)
    end;
file(Status, Headers, Name, Part, Req, Conn, Close) ->
    case file:read_file_info(Name, [raw]) of
        {ok, #file_info{type = regular}} ->
            case file:open(Name, [read, raw, binary]) of
                {ok, Fd} -> file(Status, Headers, Fd, Part, Req, Conn, Close);
                {error, Why} -> kind({failed(Why), [], <<>>}, Req, Conn, Close)
            end;
        %% A directory or a device is nothing to read from.
        {ok, _} -> kind({404, [], <<>>}, Req, Conn, Close);
        {error, Why} -> kind({failed(Why), [], <<>>}, Req, Conn, Close)
    end.

failed(Why) when Why =:= enoent; Why =:= enotdir; Why =:= badarg -> 404;
failed(eacces) -> 403;
failed(_) -> 500.

opened(Status, Headers, Fd, Part, Req, Conn, Close) ->
    {ok, Size} = file:position(Fd, eof),
    case Part of
        all -> part(Status, Headers, Fd, {0, Size}, Req, Conn, Close);
        {From, Bytes} when From + Bytes =< Size ->
            part(Status, Headers, Fd, Part, Req, Conn, Close);
        %% It was longer when the handler looked at it.
        _ ->
            case erlane_http:header(<<"range">>, Req) of
                undefined -> kind({404, [], <<>>}, Req, Conn, Close);
                _ ->
                    Is = <<"bytes */", (integer_to_binary(Size))/binary>>,
                    kind({416, [{<<"content-range">>, Is}], <<>>}, Req, Conn, Close)
            end
    end.

part(Status, Headers, Fd, {Offset, Length}, Req, Conn, Close0) ->
    HasBody = erlane_http_reply:has_body(Req#req.head#head.method, Status),
    {Fields, Own} = erlane_http_reply:fields(Headers),
    Framing = if Status =:= 204 -> none; true -> Length end,
    {Head, Close} = head(Status, Fields, Framing, Own, Req, Close0),
    if
        not HasBody -> out(Status, Head, Conn, Close);
        Length =< ?SMALL ->
            {ok, Data} = read(Fd, Offset, Length),
            out(Status, [Head, Data], Conn, Close);
        true -> sendfile(Status, Head, Fd, Offset, Length, Conn, Close)
    end.

read(_, _, 0) -> {ok, <<>>};
read(Fd, Offset, Length) ->
    %% A file that became shorter meanwhile does not match.
    case file:pread(Fd, Offset, Length) of
        {ok, Data} when byte_size(Data) =:= Length -> {ok, Data};
        Other -> Other
    end.

sendfile(Status, Head, Fd, Offset, Length, Conn, Close) ->
    case erlane_http_io:send(Conn, Head) of
        ok ->
            Size = iolist_size(Head),
            case erlane_http_io:sendfile(Conn, Fd, Offset, Length) of
                {ok, Length} -> {sent, Status, Size + Length, Close, Conn};
                {ok, Less} -> {cut, Status, Size + Less};
                {error, _} -> {cut, Status, Size}
            end;
        {error, _} -> {cut, Status, 0}
    end.

%%
%% Streams
%%

%% Cells of a stream's state, which the function given to the handler changes.
-define(STARTED, 1).
-define(SENT, 2).
-define(LEFT, 3).   % bytes that a content-length has promised and that were not sent
-define(BROKEN, 4).
-define(ENDED, 5).
-define(BUSY, 6).   % processes that are sending just now
-define(BUSY_MS, 5000).

%% The head waits for the first piece (`lazy'), so that a crash before it is still a 500. What is
%% sent goes out as it is (`as_it_is') where others write to the socket, too: the body ends with the
%% connection.
stream(Status, Headers, Run, When, Req, Conn, Close0)
  when is_integer(Status), Status >= 200, Status =< 999 ->
    #req{head = #head{method = Method, version = Version}} = Req,
    {Fields, #{length := Length} = Own} = erlane_http_reply:fields(Headers),
    HasBody = erlane_http_reply:has_body(Method, Status),
    {Framing, Close1} = if
                            Status =:= 204 -> {none, Close0};
                            is_integer(Length) -> {Length, Close0};
                            Status =:= 304 -> {none, Close0};
                            Version =:= {1, 0}; When =:= as_it_is -> {none, true};
                            true -> {chunked, Close0}
                        end,
    {Head, Close} = head(Status, Fields, Framing, Own, Req, Close1),
    case HasBody of
        false -> out(Status, Head, Conn, Close);
        true ->
            State = atomics:new(6, [{signed, true}]),
            is_integer(Length) andalso atomics:put(State, ?LEFT, Length),
            When =/= lazy andalso begin_stream(State, Conn, Head),
            run(Status, Run, Head, Framing, State, Conn, Close)
    end;
stream(Status, _, _, _, _, _, _) ->
    error({bad_status, Status}).

run(Status, Run, Head, Framing, State, Conn, Close) ->
    Send = fun(Data) -> piece(Data, Head, Framing, State, Conn) end,
    try checked(Run(Send)) of
        {gone, _} -> cut(Status, Framing, State, Conn);
        {End, Conn1} -> ended(Status, End, Head, Framing, State, Conn1, Close)
    catch
        Class:Reason:Stack ->
            case atomics:get(State, ?STARTED) of
                0 ->
                    ok = atomics:put(State, ?ENDED, 1),
                    {crashed, Class, Reason, Stack, nothing};
                1 ->
                    {cut, Status, Sent} = cut(Status, Framing, State, Conn),
                    How = case Framing of none -> reset; _ -> linger end,
                    {crashed, Class, Reason, Stack, {Status, Sent, How}}
            end
    end.

%% Trailers are looked at while a bad one can still be told from a good answer.
checked({{trailers, Trailers}, Conn}) ->
    {Fields, _} = erlane_http_reply:fields(Trailers),
    {{trailers, Fields}, Conn};
checked(Result) ->
    Result.

begin_stream(State, Conn, Head) ->
    case atomics:exchange(State, ?STARTED, 1) of
        0 -> raw(Head, State, Conn);
        1 -> ok
    end.

%% The function may be in other hands, which go on after the stream has ended: then nothing of it
%% may come between later answers.
piece(Data, Head, Framing, State, Conn) ->
    ok = atomics:add(State, ?BUSY, 1),
    try atomics:get(State, ?ENDED) of
        0 -> send_piece(Data, Head, Framing, State, Conn);
        1 -> {error, closed}
    after
        atomics:sub(State, ?BUSY, 1)
    end.

%% Whether nobody sends any more.
quiet(State) ->
    ok = atomics:put(State, ?ENDED, 1),
    quiet(State, erlang:monotonic_time(millisecond) + ?BUSY_MS).

quiet(State, Until) ->
    case atomics:get(State, ?BUSY) of
        0 -> true;
        _ ->
            erlang:monotonic_time(millisecond) < Until andalso
                receive after 1 -> quiet(State, Until) end
    end.

send_piece(Data, Head, Framing, State, Conn) ->
    case iolist_size(Data) of
        0 -> ok;
        Size ->
            Framed = framed(Framing, Data, Size, State),
            case atomics:exchange(State, ?STARTED, 1) of
                0 -> raw([Head, Framed], State, Conn);
                1 -> raw(Framed, State, Conn)
            end
    end.

framed(chunked, Data, _, _) -> erlane_http_chunked:chunk(Data);
framed(none, Data, _, _) -> Data;
framed(_Length, Data, Size, State) ->
    case atomics:sub_get(State, ?LEFT, Size) of
        Left when Left >= 0 -> Data;
        _ -> error(more_than_content_length)
    end.

raw(Data, State, Conn) ->
    case erlane_http_io:send(Conn, Data) of
        ok -> atomics:add(State, ?SENT, iolist_size(Data));
        {error, timeout} = Error -> broken(State, Error);
        {error, _} -> broken(State, {error, closed})
    end.

broken(State, Error) ->
    ok = atomics:put(State, ?BROKEN, 1),
    Error.

ended(Status, End, Head, Framing, State, Conn, Close) ->
    Quiet = quiet(State),
    Tail = case {Framing, End} of
               {chunked, {trailers, Fields}} -> erlane_http_chunked:last(Fields);
               {chunked, _} -> erlane_http_chunked:last(<<>>);
               {_, _} -> <<>>
           end,
    Last = case atomics:exchange(State, ?STARTED, 1) of
               0 -> [Head, Tail];
               1 -> Tail
           end,
    Whole = not is_integer(Framing) orelse atomics:get(State, ?LEFT) =:= 0,
    Good = Quiet andalso Whole andalso atomics:get(State, ?BROKEN) =:= 0,
    case Good andalso raw(Last, State, Conn) of
        ok -> {sent, Status, atomics:get(State, ?SENT), Close, Conn};
        _ -> cut(Status, Framing, State, Conn)
    end.

%% A body that ends with the connection would look whole unless the connection is reset.
cut(Status, none, State, Conn) ->
    ok = atomics:put(State, ?ENDED, 1),
    ok = erlane_http_io:abort(Conn),
    {cut, Status, atomics:get(State, ?SENT)};
cut(Status, _, State, _) ->
    ok = atomics:put(State, ?ENDED, 1),
    {cut, Status, atomics:get(State, ?SENT)}.
