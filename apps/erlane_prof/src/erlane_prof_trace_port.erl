%% SPDX-License-Identifier: Apache-2.0
%% @doc Brings the events of a trace to a file by the port that OTP has for this: any node can do
%% it. Runs on the node that is looked at, with erlane_prof_trace.
%%
%% Such a port drops nothing, but does not hold up those who are traced either: what it has not
%% written waits in memory. So it is limited by the size of the file and by what the VM has grown;
%% both are looked at ten times a second.
-module(erlane_prof_trace_port).

-export([open/2, tracer/1, ports/1, close/1, format/0, now/0, key/1]).
-export([attach/2, look_ms/0, look/1, told/2, counts/1, rest/1]).

-export_type([sink/0]).

%% What an event counts in bytes of the file.
-define(EVENT_BYTES, 100).
-define(LOOK_MS, 100).
-define(DRIVER, "trace_file_drv").
%% What is not written by then is lost.
-define(WRITTEN_MS, 5000).
%% How much the VM may grow: so many bytes, or this part of what it was.
-define(GROWTH, 33554432).
-define(GROWTH_PART, 20).
-define(PAGE, 4096).
%% The port keeps some of what it writes, and is silent if it cannot write that when it is closed:
%% so this is the last that it is given. No event ends like it.
-define(LAST, <<"erlane_prof_trace_port: this is all">>).

-record(sink, {fd, monitor, rss, size = 0, closed = false}).

-opaque sink() :: #sink{}.

%% @doc Opens the file. The text that is thrown says why not.
-spec open(file:name(), map()) -> port().
open(File, _Options) ->
    Priv = case code:priv_dir(runtime_tools) of
               {error, bad_name} -> throw("it has no runtime_tools, whose port writes a trace");
               Found -> Found
           end,
    case erl_ddll:load_driver(filename:join(Priv, "lib"), ?DRIVER) of
        ok -> ok;
        {error, permanent} -> ok;
        {error, Reason} -> throw(["the port that writes a trace: ", erl_ddll:format_error(Reason)])
    end,
    open_port({spawn, ?DRIVER ++ " n " ++ File}, [eof]).

%% @doc What the VM tells events to.
-spec tracer(port()) -> port().
tracer(Port) -> Port.

%% @doc It is closed when it has written all, which nobody waits for here, also not if so much is
%% queued that it is not given the last bytes any more.
-spec close(port()) -> ok.
close(Port) ->
    _ = try port_command(Port, ?LAST, [nosuspend])
        catch error:badarg -> closed
        end,
    true = exit(Port, kill),
    ok.

%% @doc What the file is: see erlane_prof_trace_profile.
-spec format() -> port.
format() -> port.

%% @doc The clock of the events, in nanoseconds.
-spec now() -> integer().
now() -> erlang:monotonic_time(nanosecond).

%% @doc A process or a port as the file has it.
-spec key(pid() | port()) -> erlane_prof_trace_read:who().
key(Pid) when is_pid(Pid) ->
    Bytes = term_to_binary(Pid),
    <<Id:32, Serial:32, _:32>> = binary:part(Bytes, byte_size(Bytes), -12),
    Serial bsl 32 bor Id;
key(Port) ->
    case term_to_binary(Port) of
        <<131, 120, _/binary>> = Bytes ->
            <<Id:64, _:32>> = binary:part(Bytes, byte_size(Bytes), -12),
            {port, Id};
        Bytes ->
            <<Id:32, _:32>> = binary:part(Bytes, byte_size(Bytes), -8),
            {port, Id}
    end.

%% @doc The ports that are ours.
-spec ports(port()) -> [port()].
ports(Port) -> [Port].

%% @doc The worker begins to look. It reads from the descriptor when the trace is over.
-spec attach(port(), file:name()) -> {file:fd(), sink()}.
attach(Port, File) ->
    Ref = monitor(port, Port),
    {ok, Fd} = file:open(File, [read, raw, binary]),
    {Fd, #sink{fd = Fd, monitor = Ref, rss = rss()}}.

%% @doc How often it is to look.
-spec look_ms() -> pos_integer().
look_ms() -> ?LOOK_MS.

%% @doc How large is the file, and the VM?
-spec look(sink()) -> {ok, sink()} | {stop, Why :: term(), sink()}.
look(#sink{fd = Fd, rss = Before} = S0) ->
    {ok, Size} = file:position(Fd, eof),
    S = S0#sink{size = Size},
    %% It is asked of the system, as the VM asks all its schedulers, of which one may be busy for
    %% long.
    case rss() of
        Now when is_integer(Now), is_integer(Before), Now - Before > ?GROWTH,
                 Now - Before > Before div ?GROWTH_PART ->
            {stop, {grown, Now - Before}, S};
        _ ->
            {ok, S}
    end.

rss() ->
    case file:open("/proc/self/statm", [read, raw, binary]) of
        {ok, Fd} ->
            {ok, Line} = file:read(Fd, 100),
            ok = file:close(Fd),
            [_, Pages | _] = binary:split(Line, <<" ">>, [global]),
            ?PAGE * binary_to_integer(Pages);
        {error, _} -> unknown
    end.

%% @doc A message that the worker got.
-spec told(term(), sink()) -> {ok, sink()} | {stop, Why :: term(), sink()}.
told({'DOWN', Monitor, port, _, Reason}, #sink{monitor = Monitor} = S) ->
    {stop, {file, Reason}, S#sink{closed = true}};
told(_, S) ->
    {ok, S}.

%% @doc Events, as far as it is known, those that were dropped, and bytes of the file.
-spec counts(sink()) -> {non_neg_integer(), 0, non_neg_integer()}.
counts(#sink{size = Size}) -> {Size div ?EVENT_BYTES, 0, Size}.

%% @doc The port was closed: waits for what it still writes. Is that all, or why not?
-spec rest(sink()) -> {true | {false, Why :: told | late | unwritten | {file, term()}}, sink()}.
rest(#sink{closed = true} = S) ->
    {{false, told}, whole(S)};
rest(#sink{monitor = Monitor} = S0) ->
    receive
        {'DOWN', Monitor, port, _, Reason} ->
            #sink{size = Size, fd = Fd} = S = whole(S0#sink{closed = true}),
            Last = <<0, (byte_size(?LAST)):32, ?LAST/binary>>,
            Events = Size - byte_size(Last),
            case Events >= 0 andalso file:pread(Fd, Events, byte_size(Last)) of
                {ok, Last} -> {true, S#sink{size = Events}};
                _ when Reason =:= killed; Reason =:= kill; Reason =:= noproc ->
                    {{false, unwritten}, S};
                _ -> {{false, {file, Reason}}, S}
            end
    after ?WRITTEN_MS -> {{false, late}, whole(S0)}
    end.

whole(#sink{fd = Fd} = S) ->
    {ok, Size} = file:position(Fd, eof),
    S#sink{size = Size}.
