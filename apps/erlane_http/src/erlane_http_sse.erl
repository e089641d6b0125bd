%% SPDX-License-Identifier: Apache-2.0
%% @doc Server-sent events: the text of an event, and the life of a stream of them.
%%
%% A handler answers `{sse, Headers, Fun}'. Fun runs in a process of its own, linked to the
%% connection's, and gets a function that sends an event and waits until it is out:
%%
%% ```
%% {sse, [], fun(Emit) ->
%%               ok = pubsub:subscribe(prices),
%%               Loop = fun Loop() ->
%%                          receive {price, P} -> ok = Emit(#{event => <<"price">>, data => P}) end,
%%                          Loop()
%%                      end,
%%               Loop()
%%           end}
%% '''
%%
%% A Fun of two arguments gets the socket, too, and others may write events to it beside Emit: for
%% `erlane_socket:send_each/3' or a subscription of a fan-out, which its process makes. They are to
%% write whole events, and to stop before Fun returns: the body is not chunked, and the connection
%% ends with it. Over TLS, or if the socket is not in a lane, there is `undefined' in its place.
%%
%% The stream ends when Fun returns. When the client goes, `Emit' is `{error, closed}' and Fun's
%% process gets the exit `shutdown', also while it waits for something else. Messages that the
%% connection's process gets go on to Fun's. While nothing is sent a comment goes out every
%% `sse_heartbeat' milliseconds (environment of erlane_http, default 15,000, or `infinity'), so
%% that nobody on the way takes the connection for dead.
-module(erlane_http_sse).

-export([event/1, headers/1, last_event_id/1, run/4]).

-export_type([event/0, emit/0]).

-include("erlane_http.hrl").

-type event() :: #{event => iodata(),           % its type; `message' for the client without
                   id => iodata(),              % comes back as Last-Event-ID
                   data => iodata(),            % any lines of UTF-8
                   retry => non_neg_integer(),  % milliseconds
                   comment => iodata()}         % nobody sees it
               | iodata().                      % only data

-type emit() :: fun((event()) -> ok | {error, closed}).

-define(HEARTBEAT, <<":\n\n">>).
%% Bytes that a client sends during the stream are the next request; so many are kept.
-define(MAX_AHEAD, 65536).
%% What Fun's process gets to clean up after the exit signal.
-define(STOP_MS, 1000).

%% @doc An event as it is sent. A line break in the type or the id would be a way to forge
%% events, and is an error of the caller.
-spec event(event()) -> iodata().
event(#{} = Event) ->
    [[field(Key, Value) || Key <- [comment, event, id, retry, data],
                           #{Key := Value} <- [Event]], $\n];
event(Data) ->
    event(#{data => Data}).

field(comment, Text) -> [[":", Line, $\n] || Line <- lines(Text)];
field(data, Data) -> [["data: ", Line, $\n] || Line <- lines(Data)];
field(retry, Ms) -> ["retry: ", integer_to_binary(Ms), $\n];
field(Key, Text) ->
    Line = iolist_to_binary(Text),
    binary:match(Line, [<<"\n">>, <<"\r">>, <<0>>]) =:= nomatch orelse
        error({bad_event, Key, Line}),
    [atom_to_binary(Key), ": ", Line, $\n].

lines(Text) ->
    binary:split(iolist_to_binary(Text), [<<"\r\n">>, <<"\n">>, <<"\r">>], [global]).

%% @doc The head of a stream: what a handler gave and what it left out.
-spec headers(erlane_http:headers()) -> erlane_http:headers().
headers(Given) ->
    Default = [{<<"content-type">>, <<"text/event-stream">>},
               {<<"cache-control">>, <<"no-cache">>}],
    [Header || {Name, _} = Header <- Default, not lists:keymember(Name, 1, Given)] ++ Given.

%% @doc The id of the last event that a client saw before its connection broke.
-spec last_event_id(erlane_http:req()) -> binary() | undefined.
last_event_id(Req) ->
    erlane_http:header(<<"last-event-id">>, Req).

%%% The stream

-record(stream, {conn :: erlane_http_io:conn(),
                 send :: erlane_http:send(),
                 ref :: reference(),
                 worker :: pid(),
                 heartbeat :: timeout(),
                 due :: integer() | infinity,
                 armed = false :: boolean(),
                 ahead = <<>> :: binary(),
                 %% Messages that are for the connection, when the stream is over.
                 late = [] :: [term()]}).

%% @doc Runs a stream whose head was sent; Send puts bytes into its body. A crash of Fun is
%% raised here. The connection that comes back holds what the client has sent meanwhile.
-spec run(erlane_http_io:conn(), erlane_http:send(), fun((emit()) -> term()),
          #{heartbeat => timeout()}) -> {ok, erlane_http_io:conn()} | {error, closed}.
run(Conn, Send, Fun, Opts) ->
    Ref = make_ref(),
    Owner = self(),
    Worker = spawn_link(fun() -> work(Fun, Owner, Ref) end),
    Heartbeat = case Opts of
                    #{heartbeat := Ms} -> Ms;
                    #{} -> application:get_env(erlane_http, sse_heartbeat, 15000)
                end,
    loop(due(#stream{conn = Conn, send = Send, ref = Ref, worker = Worker,
                     heartbeat = Heartbeat, due = infinity})).

work(Fun, Owner, Ref) ->
    try Fun(fun(Event) -> emit(Owner, Ref, event(Event)) end) of
        _ -> Owner ! {Ref, done}
    catch
        Class:Reason:Stack -> Owner ! {Ref, crashed, Class, Reason, Stack}
    end.

%% Waits for the answer: that is the back-pressure.
emit(Owner, Ref, Bytes) ->
    Monitor = monitor(process, Owner),
    Owner ! {Ref, emit, self(), Monitor, Bytes},
    receive
        {Monitor, Answer} ->
            demonitor(Monitor, [flush]),
            Answer;
        {'DOWN', Monitor, process, _, _} ->
            {error, closed}
    end.

loop(#stream{armed = false, ahead = Ahead, conn = Conn} = S)
  when byte_size(Ahead) < ?MAX_AHEAD ->
    case erlane_http_io:set_active(Conn, once) of
        {ok, Conn2} -> loop(S#stream{armed = true, conn = Conn2});
        {error, _} -> stop(S)
    end;
loop(#stream{conn = #conn{parent = Parent} = Conn, ref = Ref, worker = Worker} = S) ->
    Socket = erlane_http_io:socket(Conn),
    {Data, Closed, Error} = erlane_http_io:messages(Conn),
    receive
        {Ref, emit, From, Tag, Bytes} ->
            case send(Bytes, S) of
                {ok, S2} -> From ! {Tag, ok}, loop(S2);
                {error, _} -> From ! {Tag, {error, closed}}, stop(S)
            end;
        {Ref, done} -> done(S);
        {Ref, crashed, Class, Reason, Stack} -> erlang:raise(Class, Reason, Stack);
        {Data, Socket, Bytes} ->
            loop(S#stream{armed = false, ahead = <<(S#stream.ahead)/binary, Bytes/binary>>});
        {Closed, Socket} -> stop(S);
        {Error, Socket, _} -> stop(S);
        %% Only if Fun's maker has made us trap exits.
        {'EXIT', Parent, Reason} -> exit(Reason);
        {erlane_http, drain} = Drain ->
            %% The listener stops: an orderly end, after which the client connects elsewhere.
            unlink(Worker),
            exit(Worker, shutdown),
            done(S#stream{late = [Drain | S#stream.late]});
        Other ->
            Worker ! Other,
            loop(S)
    after wait(S) ->
        case send(?HEARTBEAT, S) of
            {ok, S2} -> loop(S2);
            {error, _} -> stop(S)
        end
    end.

send(Bytes, #stream{send = Send} = S) ->
    case Send(Bytes) of
        ok -> {ok, due(S)};
        {error, _} = Error -> Error
    end.

due(#stream{heartbeat = infinity} = S) -> S;
due(#stream{heartbeat = Ms} = S) -> S#stream{due = erlang:monotonic_time(millisecond) + Ms}.

wait(#stream{due = infinity}) -> infinity;
wait(#stream{due = Due}) -> max(0, Due - erlang:monotonic_time(millisecond)).

%% The socket goes back passive, and what it has delivered meanwhile goes back with it.
done(#stream{conn = Conn, ahead = Ahead, late = Messages} = S) ->
    gone(S),
    lists:foreach(fun(Message) -> self() ! Message end, lists:reverse(Messages)),
    case erlane_http_io:set_active(Conn, false) of
        {ok, Conn2} ->
            Socket = erlane_http_io:socket(Conn),
            {Data, _, _} = erlane_http_io:messages(Conn),
            Late = receive {Data, Socket, Bytes} -> Bytes after 0 -> <<>> end,
            {ok, Conn2#conn{buffer = <<Ahead/binary, Late/binary>>}};
        {error, _} ->
            {error, closed}
    end.

stop(#stream{worker = Worker} = S) ->
    unlink(Worker),
    exit(Worker, shutdown),
    gone(S),
    {error, closed}.

%% Waits until the worker has ended. Who calls Emit meanwhile must not wait for ever.
gone(#stream{worker = Worker, ref = Ref}) ->
    Monitor = monitor(process, Worker),
    gone(Worker, Ref, Monitor, erlang:monotonic_time(millisecond) + ?STOP_MS).

gone(Worker, Ref, Monitor, Until) ->
    receive
        {'DOWN', Monitor, process, Worker, _} -> ok;
        {Ref, emit, From, Tag, _} ->
            From ! {Tag, {error, closed}},
            gone(Worker, Ref, Monitor, Until)
    after max(0, Until - erlang:monotonic_time(millisecond)) ->
        exit(Worker, kill),
        receive {'DOWN', Monitor, process, Worker, _} -> ok end
    end.
