%% SPDX-License-Identifier: Apache-2.0
%% @doc A raw client of HTTP/1.1 servers, for suites: it sends whatever bytes it is given, whole,
%% byte by byte or in two parts, and reads answers more strictly than any client of the world
%% would. It shares no code with the server. All waits have a deadline.
-module(erlane_http_raw).

-export([connect/1, connect/2, feed/3, send/2, half_close/1, close/1, swallowed/1]).
-export([answer/1, answer/2, ended/1, peek/2, forget/1, get/2, ask/2]).
-export_type([conn/0, answer/0, how/0, ending/0]).

-define(LOOPBACK, {127, 0, 0, 1}).
-define(WAIT_MS, 5000).
-define(SWALLOW_MS, 100).
-define(PIECE, 1 bsl 22).

-opaque conn() :: #{socket := gen_tcp:socket(), buffer := binary(), sent := non_neg_integer(),
                    far := gen_tcp:socket() | unknown, wait := pos_integer()}.
-type how() :: whole | bytes | {split, non_neg_integer()}.
%% How the body ended: `none' if the answer can have none, `close' if only the end told it.
-type answer() :: #{status := 100..999, version := binary(), headers := [{binary(), binary()}],
                    body := binary(), trailers := [{binary(), binary()}],
                    framing := none | length | chunked | close}.
%% `cut' with the bytes so far if the end came within an answer, or if it was against the rules.
-type ending() :: closed | reset | timeout | {cut, term(), binary()} | {wrong, term(), binary()}.

%% @doc A connection to a port of the loopback address, or to a socket of this machine.
-spec connect(inet:port_number() | {local, file:name_all()}) -> conn().
connect(To) ->
    connect(To, []).

%% @doc The same with options of gen_tcp; `{wait, Ms}' is the deadline of each answer.
-spec connect(inet:port_number() | {local, file:name_all()}, [term()]) -> conn().
connect(To, Opts0) ->
    {Wait, Opts} = case lists:keytake(wait, 1, Opts0) of
                       {value, {wait, Ms}, Rest} -> {Ms, Rest};
                       false -> {?WAIT_MS, Opts0}
                   end,
    {Address, Port, Nodelay} = case To of
                                   {local, _} -> {To, 0, []};
                                   _ -> {?LOOPBACK, To, [{nodelay, true}]}
                               end,
    {ok, Socket} = gen_tcp:connect(Address, Port,
                                   [binary, {active, false}, {show_econnreset, true},
                                    {exit_on_close, false} | Nodelay ++ Opts], ?WAIT_MS),
    #{socket => Socket, buffer => <<>>, sent => 0, far => unknown, wait => Wait}.

%% @doc Sends all bytes: at once, or each part after the server has read those before. It is no
%% error if the server ends the connection meanwhile.
-spec feed(conn(), how(), iodata()) -> conn().
feed(Conn, whole, Data) ->
    send(Conn, Data);
feed(Conn, {split, At}, Data) ->
    <<First:At/binary, Second/binary>> = iolist_to_binary(Data),
    send(swallowed(send(Conn, First)), Second);
feed(Conn, bytes, Data) ->
    lists:foldl(fun(Byte, C) -> swallowed(send(C, <<Byte>>)) end, Conn,
                binary_to_list(iolist_to_binary(Data))).

-spec send(conn(), iodata()) -> conn().
send(#{socket := Socket, sent := Sent} = Conn, Data) ->
    _ = gen_tcp:send(Socket, Data),
    Conn#{sent := Sent + iolist_size(Data)}.

%% @doc Ends our half only.
-spec half_close(conn()) -> conn().
half_close(#{socket := Socket} = Conn) ->
    _ = gen_tcp:shutdown(Socket, write),
    Conn.

-spec close(conn()) -> ok.
close(#{socket := Socket}) ->
    gen_tcp:close(Socket).

%% @doc Waits until the server's end, a socket of this VM, has read what was sent. A server may
%% have stopped reading, so it gives up soon and in silence.
-spec swallowed(conn()) -> conn().
swallowed(#{socket := Socket, far := unknown} = Conn) ->
    Deadline = now_ms() + ?SWALLOW_MS,
    case inet:sockname(Socket) of
        {ok, {local, _}} -> Conn;
        {ok, Name} -> read_by(Conn#{far := far_end(Name, Deadline)}, Deadline);
        {error, _} -> Conn
    end;
swallowed(Conn) ->
    read_by(Conn, now_ms() + ?SWALLOW_MS).

far_end(Name, Deadline) ->
    Ends = erlane_socket:sockets() ++
        [P || P <- erlang:ports(), erlang:port_info(P, name) =:= {name, "tcp_inet"}],
    case [E || E <- Ends, inet:peername(E) =:= {ok, Name}] of
        [End | _] -> End;
        [] ->
            case now_ms() < Deadline of
                true -> erlang:yield(), far_end(Name, Deadline);
                false -> unknown
            end
    end.

read_by(#{far := unknown} = Conn, _Deadline) ->
    Conn;
read_by(#{far := Far, sent := Sent} = Conn, Deadline) ->
    case inet:getstat(Far, [recv_oct]) of
        {ok, [{recv_oct, N}]} when N < Sent ->
            case now_ms() < Deadline of
                true -> erlang:yield(), read_by(Conn, Deadline);
                false -> Conn
            end;
        _ ->
            Conn
    end.

%% @doc Reads one answer, interim ones (100) as answers of their own, or says how it ended.
-spec answer(conn()) -> {answer(), conn()} | ending().
answer(Conn) ->
    answer(Conn, get).

%% @doc The answer to a request with method `get', or to one with method `head', which has no
%% body whatever its headers say.
-spec answer(conn(), get | head) -> {answer(), conn()} | ending().
answer(#{wait := Wait} = Conn, Method) ->
    Deadline = now_ms() + Wait,
    try until(<<"\r\n\r\n">>, Conn, Deadline) of
        {Head, Conn1} -> after_head(Head, Method, Conn1, Deadline)
    catch
        throw:{ended, Why, <<>>} -> Why;
        throw:{ended, Why, Bytes} -> {cut, Why, Bytes}
    end.

after_head(Head, Method, Conn, Deadline) ->
    try
        {Version, Status, Headers} = head(Head),
        body(framing(Method, Status, Headers),
             #{status => Status, version => Version, headers => Headers, trailers => []},
             Conn, Deadline)
    catch
        throw:{ended, Why, Bytes} -> {cut, Why, Bytes};
        throw:{wrong, _, _} = Wrong -> Wrong
    end.

%% @doc How the connection ends when no answer is to come any more.
-spec ended(conn()) -> ending().
ended(Conn) ->
    case answer(Conn) of
        {#{status := Status}, _} -> {wrong, {another_answer, Status}, <<>>};
        Ending -> Ending
    end.

%% @doc Waits so long for bytes, or the end; answer/1 tells what it was.
-spec peek(conn(), non_neg_integer()) -> {data | ended | timeout, conn()}.
peek(#{buffer := Buffer} = Conn, _Ms) when Buffer =/= <<>> ->
    {data, Conn};
peek(#{socket := Socket, buffer := <<>>} = Conn, Ms) ->
    case gen_tcp:recv(Socket, 0, Ms) of
        {ok, Data} -> {data, Conn#{buffer := Data}};
        {error, timeout} -> {timeout, Conn};
        {error, _} -> {ended, Conn}
    end.

%% @doc Drops the bytes that were read.
-spec forget(conn()) -> conn().
forget(Conn) ->
    Conn#{buffer := <<>>}.

%% @doc One request with GET on a connection that stays open.
-spec get(conn(), iodata()) -> {answer(), conn()} | ending().
get(Conn, Target) ->
    answer(send(Conn, ["GET ", Target, " HTTP/1.1\r\nHost: x\r\n\r\n"])).

%% @doc One connection: sends bytes, reads all answers to the end.
-spec ask(inet:port_number() | {local, file:name_all()}, iodata()) -> {[answer()], ending()}.
ask(To, Data) ->
    Conn = send(connect(To), Data),
    Result = all(Conn, []),
    ok = close(Conn),
    Result.

all(Conn, Answers) ->
    case answer(Conn) of
        {Answer, Next} -> all(Next, [Answer | Answers]);
        Ending -> {lists:reverse(Answers), Ending}
    end.

%%% Reading

until(End, #{buffer := Buffer} = Conn, Deadline) ->
    case binary:split(Buffer, End) of
        [Bytes, Rest] -> {Bytes, Conn#{buffer := Rest}};
        [_] -> until(End, more(Conn, Deadline), Deadline)
    end.

take(Size, #{buffer := Buffer, socket := Socket} = Conn, Deadline) ->
    case Buffer of
        <<Bytes:Size/binary, Rest/binary>> ->
            {Bytes, Conn#{buffer := Rest}};
        _ ->
            %% So many at a time are appended only once.
            Missing = min(Size - byte_size(Buffer), ?PIECE),
            case gen_tcp:recv(Socket, Missing, max(0, Deadline - now_ms())) of
                {ok, Data} -> take(Size, Conn#{buffer := <<Buffer/binary, Data/binary>>}, Deadline);
                {error, Why} -> broken(Why, Buffer)
            end
    end.

more(#{socket := Socket, buffer := Buffer} = Conn, Deadline) ->
    case gen_tcp:recv(Socket, 0, max(0, Deadline - now_ms())) of
        {ok, Data} -> Conn#{buffer := <<Buffer/binary, Data/binary>>};
        {error, Why} -> broken(Why, Buffer)
    end.

broken(econnreset, Buffer) -> throw({ended, reset, Buffer});
broken(Why, Buffer) -> throw({ended, Why, Buffer}).

head(Head) ->
    [Line | Lines] = binary:split(Head, <<"\r\n">>, [global]),
    case re:run(Line, "\\A(HTTP/1\\.[01]) ([1-9][0-9][0-9]) [\\t -~]*\\z",
                [{capture, all_but_first, binary}]) of
        {match, [Version, Status]} ->
            {Version, binary_to_integer(Status), [field(L) || L <- Lines]};
        nomatch ->
            throw({wrong, status_line, Line})
    end.

field(Line) ->
    case re:run(Line, "\\A([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\\t ]*"
                "((?:[!-~\\x80-\\xff](?:[\\t -~\\x80-\\xff]*[!-~\\x80-\\xff])?)?)[\\t ]*\\z",
                [{capture, all_but_first, binary}]) of
        {match, [Name, Value]} -> {string:lowercase(Name), Value};
        nomatch -> throw({wrong, header, Line})
    end.

framing(Method, Status, Headers) ->
    Lengths = [V || {<<"content-length">>, V} <- Headers],
    Codings = [V || {<<"transfer-encoding">>, V} <- Headers],
    Bodiless = Status < 200 orelse Status =:= 204,
    case {Lengths, Codings} of
        {[_ | _], _} when Bodiless -> throw({wrong, content_length, integer_to_binary(Status)});
        {_, [_ | _]} when Bodiless -> throw({wrong, transfer_coding, integer_to_binary(Status)});
        {[_ | _], [_ | _]} -> throw({wrong, two_framings, <<>>});
        {[_, _ | _], []} -> throw({wrong, lengths, <<>>});
        _ when Bodiless; Status =:= 304; Method =:= head -> none;
        {[Length], []} ->
            case re:run(Length, "\\A(0|[1-9][0-9]{0,17})\\z") of
                {match, _} -> {length, binary_to_integer(Length)};
                nomatch -> throw({wrong, length, Length})
            end;
        {[], [<<"chunked">>]} -> chunked;
        {[], []} -> close;
        {[], Other} -> throw({wrong, transfer_coding, iolist_to_binary(Other)})
    end.

body(none, Answer, Conn, _Deadline) ->
    {Answer#{framing => none, body => <<>>}, Conn};
body({length, Size}, Answer, Conn, Deadline) ->
    {Body, Conn1} = take(Size, Conn, Deadline),
    {Answer#{framing => length, body => Body}, Conn1};
body(close, Answer, Conn, Deadline) ->
    try body(close, Answer, more(Conn, Deadline), Deadline)
    catch throw:{ended, closed, Body} ->
            {Answer#{framing => close, body => Body}, Conn#{buffer := <<>>}}
    end;
body(chunked, Answer, Conn, Deadline) ->
    chunk(Answer#{framing => chunked}, [], Conn, Deadline).

chunk(Answer, Chunks, Conn, Deadline) ->
    {Line, Conn1} = until(<<"\r\n">>, Conn, Deadline),
    case re:run(Line, "\\A[0-9A-Fa-f]{1,15}\\z") of
        {match, _} -> chunk(binary_to_integer(Line, 16), Answer, Chunks, Conn1, Deadline);
        nomatch -> throw({wrong, chunk_size, Line})
    end.

chunk(0, Answer, Chunks, Conn, Deadline) ->
    {Trailers, Conn1} = trailers(Conn, [], Deadline),
    {Answer#{body => iolist_to_binary(lists:reverse(Chunks)), trailers := Trailers}, Conn1};
chunk(Size, Answer, Chunks, Conn, Deadline) ->
    {Data, Conn1} = take(Size, Conn, Deadline),
    case take(2, Conn1, Deadline) of
        {<<"\r\n">>, Conn2} -> chunk(Answer, [Data | Chunks], Conn2, Deadline);
        {Other, _} -> throw({wrong, chunk_end, Other})
    end.

trailers(Conn, Fields, Deadline) ->
    case until(<<"\r\n">>, Conn, Deadline) of
        {<<>>, Conn1} -> {lists:reverse(Fields), Conn1};
        {Line, Conn1} -> trailers(Conn1, [field(Line) | Fields], Deadline)
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
