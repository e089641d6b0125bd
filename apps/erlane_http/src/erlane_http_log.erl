%% SPDX-License-Identifier: Apache-2.0
%% @doc The access log: a line for each request, made and written by a process of its own.
%%
%% A connection only sends a message. Where lines cannot be written as fast as requests come, as
%% many as fit wait, the rest are dropped and counted: the log never slows a client down. Nor does
%% it end a listener: a line that cannot be made or written is lost and told of.
-module(erlane_http_log).
-behaviour(gen_server).

-export([start_link/1, stop/2, write/2, reopen/1, line/2]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-export_type([target/0, format/0, entry/0]).

-include_lib("kernel/include/logger.hrl").

-type format() :: common | combined | json.
-type entry() :: #{time := integer(), % seconds since 1970
                   peer := tuple() | undefined, method := binary(), target := binary(),
                   version := {1, 0..9}, status := 100..999, sent := non_neg_integer(),
                   duration_us := non_neg_integer(), referer := binary(), agent := binary()}.
-type target() :: none | {pid(), atomics:atomics_ref()}.

-record(st, {format :: format(),
             to :: file:name_all() | fun((iodata()) -> term()),
             out :: file:fd() | fun((iodata()) -> term()),
             counts :: atomics:atomics_ref(),
             lost = 0 :: non_neg_integer(),          % lines that could not be written
             told :: integer() | undefined}).        % when that was last said

-define(TELL_MS, 60000).
-define(MAX_WAITING, 10000).
-define(WAITING, 1).
-define(DROPPED, 2).
-define(DELAY, [{delayed_write, 65536, 1000}]).

%% @doc Starts the writer of a listener: lines go to a file, or to a function that is called with
%% each in the writer's process.
-spec start_link({format(), file:name_all() | fun((iodata()) -> term())}) ->
          {ok, target()} | {error, term()}.
start_link({Format, To}) ->
    Counts = atomics:new(2, [{signed, true}]),
    case gen_server:start_link(?MODULE, {Format, To, Counts}, []) of
        {ok, Pid} -> {ok, {Pid, Counts}};
        {error, {shutdown, Why}} -> {error, Why}
    end.

%% @doc Ends the writer once it has written what waits, or after so many milliseconds.
-spec stop(target(), non_neg_integer()) -> ok.
stop(none, _) -> ok;
stop({Pid, _}, Ms) ->
    try gen_server:stop(Pid, normal, Ms)
    catch exit:_ -> ok
    end.

%% @doc Writes an entry, some time later.
-spec write(target(), entry()) -> ok.
write(none, _) -> ok;
write({Pid, Counts}, Entry) ->
    case atomics:add_get(Counts, ?WAITING, 1) of
        N when N > ?MAX_WAITING ->
            ok = atomics:sub(Counts, ?WAITING, 1),
            atomics:add(Counts, ?DROPPED, 1);
        _ ->
            Pid ! {entry, Entry},
            ok
    end.

%% @doc Opens the file anew, after it was renamed.
-spec reopen(target()) -> ok | {error, term()}.
reopen(none) -> ok;
reopen({Pid, _}) -> gen_server:call(Pid, reopen, infinity).

-spec init(term()) -> {ok, #st{}} | {stop, {shutdown, term()}}.
init({Format, To, Counts}) ->
    process_flag(message_queue_data, off_heap),
    case open(To) of
        {ok, Out} -> {ok, #st{format = Format, to = To, out = Out, counts = Counts}};
        {error, Why} -> {stop, {shutdown, Why}}
    end.

open(Fun) when is_function(Fun, 1) -> {ok, Fun};
open(Name) -> file:open(Name, [append, raw, binary | ?DELAY]).

-spec handle_call(reopen, gen_server:from(), #st{}) -> {reply, term(), #st{}}.
handle_call(reopen, _From, #st{to = To, out = Out} = St) ->
    case open(To) of
        {ok, Out1} ->
            is_function(Out) orelse file:close(Out),
            {reply, ok, St#st{out = Out1}};
        {error, _} = Error -> {reply, Error, St}
    end.

-spec handle_cast(term(), State) -> {noreply, State}.
handle_cast(_, State) -> {noreply, State}.

-spec handle_info(term(), State) -> {noreply, State}.
handle_info({entry, Entry}, #st{format = Format, out = Out, counts = Counts} = St) ->
    ok = atomics:sub(Counts, ?WAITING, 1),
    dropped(atomics:exchange(Counts, ?DROPPED, 0)),
    try put_line(Out, line(Format, Entry)) of
        {error, Why} -> {noreply, lost(Why, St)};
        _ -> {noreply, St}
    catch
        _:Why -> {noreply, lost(Why, St)}
    end;
handle_info(_, State) ->
    {noreply, State}.

-spec terminate(term(), term()) -> ok.
terminate(_, #st{out = Out} = St) ->
    %% Lines may still be in the delayed write.
    case is_function(Out) orelse file:close(Out) of
        {error, Why} -> _ = lost(Why, St#st{told = undefined}), ok;
        _ -> ok
    end.

%% A full disk is told of once a minute, not once a line. What a delayed write lost is told with
%% the next line: there are at least so many.
lost(Why, #st{lost = Lost, told = Told} = St) ->
    Now = erlang:monotonic_time(millisecond),
    case Told =:= undefined orelse Now - Told >= ?TELL_MS of
        true ->
            ?LOG_WARNING("access log: ~b lines or more are lost: ~0tP", [Lost + 1, Why, 20]),
            St#st{lost = 0, told = Now};
        false ->
            St#st{lost = Lost + 1}
    end.

dropped(0) -> ok;
dropped(N) -> ?LOG_WARNING("access log: ~b lines were dropped, they came too fast", [N]).

put_line(Fun, Line) when is_function(Fun) -> Fun(Line);
put_line(File, Line) -> file:write(File, Line).

%% @doc One line with its end. `common' and `combined' are Apache's, `json' has one object. A
%% request that was refused before it was understood has no method, and what came as its target.
-spec line(format(), entry()) -> iodata().
line(json, #{version := {1, Minor}} = Entry) ->
    #{time := Time, peer := Peer, method := Method, target := Target, status := Status,
      sent := Sent, duration_us := Us, referer := Referer, agent := Agent} = Entry,
    [<<"{\"time\":">>, quoted(time(Time)), <<",\"peer\":">>, quoted(peer(Peer)),
     <<",\"method\":">>, quoted(Method), <<",\"target\":">>, quoted(Target),
     <<",\"version\":\"1.">>, integer_to_binary(Minor), <<"\",\"status\":">>,
     integer_to_binary(Status), <<",\"sent\":">>, integer_to_binary(Sent),
     <<",\"duration_us\":">>, integer_to_binary(Us), <<",\"referer\":">>, quoted(Referer),
     <<",\"agent\":">>, quoted(Agent), <<"}\n">>];
line(Format, #{version := {1, Minor}} = Entry) ->
    #{time := Time, peer := Peer, method := Method, target := Target, status := Status,
      sent := Sent, referer := Referer, agent := Agent} = Entry,
    [peer(Peer), <<" - - [">>, apache_time(Time), <<"] ">>,
     quoted(request(Method, Target, Minor)), $\s,
     integer_to_binary(Status), $\s, integer_to_binary(Sent),
     [[$\s, quoted(dash(Referer)), $\s, quoted(dash(Agent))] || Format =:= combined], $\n].

%% Of a request that was not understood the target has what came.
request(<<>>, Line, _) -> dash(Line);
request(Method, Target, Minor) ->
    [Method, $\s, Target, <<" HTTP/1.">>, integer_to_binary(Minor)].

dash(<<>>) -> <<"-">>;
dash(Text) -> Text.

peer(undefined) -> <<"-">>;
peer({local, _}) -> <<"unix:">>;
peer({Ip, _Port}) -> inet:ntoa(Ip).

time(Seconds) -> calendar:system_time_to_rfc3339(Seconds, [{offset, "Z"}]).

apache_time(Seconds) ->
    <<_:5/binary, Day:2/binary, " ", Month:3/binary, " ", Year:4/binary, " ", Time:8/binary,
      _/binary>> = erlane_http_date:format(Seconds),
    [Day, $/, Month, $/, Year, $:, Time, <<" +0000">>].

%% Quotes, backslashes, control bytes and bytes beyond ASCII would let a client forge lines.
quoted(Text) -> [$", << <<(escape(C))/binary>> || <<C>> <= iolist_to_binary(Text) >>, $"].

escape($") -> <<"\\\"">>;
escape($\\) -> <<"\\\\">>;
escape(C) when C < 32; C > 126 -> iolist_to_binary(io_lib:format("\\u~4.16.0b", [C]));
escape(C) -> <<C>>.
