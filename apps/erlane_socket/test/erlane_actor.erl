%% SPDX-License-Identifier: Apache-2.0
%% @doc Processes that own sockets and do what they are asked to, for prop_erlane_socket, and a
%% table of things by name that all of them see.
-module(erlane_actor).

-export([start/1, start/2, stop/1, ask/2, together/1]).
-export([keep/2, kept/1, reset/0, stop_all/0]).
-export([shaped/2, send_parts/2, digest/1]).

-define(DEADLINE, 20000).

%% @doc A process that waits for work, bound to a scheduler if that is not 0.
-spec start(non_neg_integer()) -> pid().
start(Scheduler) ->
    start(Scheduler, undefined).

%% @doc The same, holding on to a term, so that a socket is not collected while it is moved.
-spec start(non_neg_integer(), term()) -> pid().
start(Scheduler, Term) ->
    Pid = spawn_opt(fun() -> loop(Term) end, [{scheduler, Scheduler}]),
    true = ets:insert(?MODULE, {Pid, actor}),
    Pid.

loop(Term) ->
    receive
        {?MODULE, From, Ref, Fun} ->
            From ! {Ref, outcome(Fun)},
            loop(Term);
        {?MODULE, stop} ->
            ok
    end.

outcome(Fun) ->
    try {ok, Fun()}
    catch Class:Reason:Stack -> {Class, Reason, Stack}
    end.

-spec stop(pid()) -> ok.
stop(Pid) ->
    Ref = monitor(process, Pid),
    Pid ! {?MODULE, stop},
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% @doc What Fun gives when Pid runs it; an exception there is one here.
-spec ask(pid(), fun(() -> term())) -> term().
ask(Pid, Fun) ->
    Ref = monitor(process, Pid),
    Pid ! {?MODULE, self(), Ref, Fun},
    receive
        {Ref, {ok, Answer}} ->
            demonitor(Ref, [flush]),
            Answer;
        {Ref, Failed} -> error(Failed);
        {'DOWN', Ref, process, Pid, Why} -> error({actor_died, Why})
    after ?DEADLINE ->
        error({hangs, process_info(Pid, [current_stacktrace, messages])})
    end.

%% @doc The results of functions that run at the same time.
-spec together([fun(() -> term())]) -> [term()].
together(Funs) ->
    Runs = [spawn_monitor(fun() -> exit({?MODULE, outcome(Fun)}) end) || Fun <- Funs],
    [receive
         {'DOWN', Ref, process, Pid, {?MODULE, {ok, Answer}}} -> Answer;
         {'DOWN', Ref, process, Pid, Failed} -> error(Failed)
     end
     || {Pid, Ref} <- Runs].

-spec keep(term(), term()) -> ok.
keep(Name, Term) ->
    true = ets:insert(?MODULE, {Name, Term}),
    ok.

-spec kept(term()) -> term().
kept(Name) ->
    ets:lookup_element(?MODULE, Name, 2).

%% @doc An empty table for the next test, whose process owns it.
-spec reset() -> ok.
reset() ->
    ?MODULE = ets:new(?MODULE, [named_table, public]),
    ok.

%% @doc Ends all actors, and with them their sockets.
-spec stop_all() -> ok.
stop_all() ->
    _ = [erlane_ct:kill(Pid) || {Pid, actor} <- ets:tab2list(?MODULE)],
    true = ets:delete(?MODULE),
    ok.

%% @doc Data in one of the forms of iodata.
-spec shaped(binary | iolist | many | improper, binary()) -> iodata().
shaped(binary, Data) -> Data;
shaped(iolist, Data) -> [[], [binary_to_list(Data)]];
shaped(many, Data) -> [[B, []] || <<B:7/binary>> <= Data] ++ [rest(Data, 7)];
shaped(improper, Data) ->
    Half = byte_size(Data) div 2,
    [binary:part(Data, 0, Half) | binary:part(Data, Half, byte_size(Data) - Half)].

rest(Data, Piece) ->
    Rest = byte_size(Data) rem Piece,
    binary:part(Data, byte_size(Data) - Rest, Rest).

%% @doc Sends a long binary in several calls.
-spec send_parts(gen_tcp:socket(), binary()) -> ok | {error, term()}.
send_parts(S, <<Part:100000/binary, Rest/binary>>) ->
    ok = gen_tcp:send(S, Part),
    send_parts(S, Rest);
send_parts(S, Data) ->
    gen_tcp:send(S, Data).

%% @doc Received data made short, for counterexamples; of what kind it was is kept.
-spec digest(term()) -> term().
digest({ok, [First | _] = Parts}) when is_binary(First); is_list(First) ->
    {ok, kind(First), iolist_size(Parts), erlang:md5(Parts)};
digest({Tag, Data}) when Tag =:= ok; Tag =:= tcp ->
    {Tag, kind(Data), iolist_size(Data), erlang:md5(Data)};
digest(Other) ->
    Other.

kind(Data) when is_binary(Data) -> binary;
kind(Data) when is_list(Data) -> list.
