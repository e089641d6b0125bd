%% SPDX-License-Identifier: Apache-2.0
%% @doc A state machine over a pair of connected sockets, run twice at once: over stock gen_tcp,
%% which is the model, and over erlane. Each step must answer the same.
%%
%% Left out is where erlane is known to answer otherwise: see allowed/4, and show_econnreset with
%% a send after shutdown.
%%
%% No step depends on time: the state knows how many bytes are on their way to each end and
%% whether its stream ends, so a step can wait for just that. The state is advanced by step/2,
%% for PropEr and, in the process dictionary, for the commands that run.
-module(prop_erlane_socket).
-behaviour(proper_statem).

-include_lib("proper/include/proper.hrl").

-export([prop_as_gen_tcp/0]).
-export([initial_state/0, command/1, precondition/2, postcondition/3, next_state/3]).
-export([do/1]).

-import(erlane_actor, [start/1, start/2, stop/1, ask/2, shaped/2, send_parts/2, digest/1]).

-define(DEADLINE, 5000).
-define(ON_THE_WAY, 200000). % what the kernel's buffers take for sure

-record(e, {open = true :: boolean(),
            dead = false :: boolean(),    % its owner has been killed
            gone = false :: boolean(),    % closed by an end or error, not by us, while passive
            active = false :: boolean(),  % {active, true}
            in = [] :: [non_neg_integer()], % packets (raw: sends) not yet taken
            eof = false :: boolean(),     % after these the stream ends
            delay = false :: boolean(),   % delay_send is on: errors come later
            want = false :: boolean(),    % a recv of a length has timed out
            shut = false :: boolean()}).
-record(st, {open = false :: boolean(),
             packet = raw :: raw | 1 | 2 | 4 | line,
             ends = #{a => #e{}, b => #e{}} :: #{a | b => #e{}}}).

-spec prop_as_gen_tcp() -> proper:test().
prop_as_gen_tcp() ->
    ?FORALL(Cmds, commands(?MODULE),
            begin
                put(model, initial_state()),
                ok = erlane_actor:reset(),
                {History, _State, Result} = run_commands(?MODULE, Cmds),
                ok = erlane_actor:stop_all(),
                ?WHENFAIL(explain(Cmds, History, Result),
                          aggregate([element(1, C) || {set, _, {call, _, _, [C]}} <- Cmds],
                                    Result =:= ok))
            end).

explain(Cmds, History, Result) ->
    Calls = [C || {set, _, {call, _, _, [C]}} <- Cmds],
    Answers = [Answer || {_, Answer} <- History],
    Done = lists:zip(lists:sublist(Calls, length(Answers)), Answers),
    io:format("~n~p~n", [Result]),
    [io:format("  ~0p~n      ~0p~n", [C, A]) || {C, A} <- Done].

%%% The model

-spec initial_state() -> #st{}.
initial_state() -> #st{}.

-spec command(#st{}) -> term().
command(#st{open = false}) ->
    {call, ?MODULE, do, [{open, oneof([binary, list]), oneof([8192, 1 bsl 20])}]};
command(#st{packet = Packet}) ->
    ?LET(End, oneof([a, b]),
         {call, ?MODULE, do,
          [frequency(
             [{10, {send, End, shape(), amount(Packet)}},
              {4, {recv, End, 0, oneof([0, 5])}},
              {4, {recv, End, amount(raw), oneof([0, 5])}},
              {4, {drain, End, oneof([true, once, range(1, 5)])}},
              {2, {some, End, oneof([once, range(1, 5)])}},
              {3, {activate, End}}, {4, {collect, End}}, {2, {passivate, End}},
              {1, {unrecv, End, range(0, 3000)}}, {3, {packet, oneof([raw, 1, 2, 4, line])}},
              {1, {shutdown, End}}, {1, {close, End}}, {1, {kill, End}},
              {2, {hand_over, End, range(0, 2)}}, {1, {steal, End}}, {1, {migrate, End}},
              {2, {setopts, End, option()}}, {2, {getopts, End}}, {2, {getstat, End}},
              {1, {burst, End, range(1, 1500000), oneof([0, 70000, 1000, once, 3])}},
              {2, {open, oneof([binary, list]), 8192}}])]}).

amount(1) -> range(0, 255);
amount(2) -> oneof([range(0, 2000), range(0, 65535)]);
amount(line) -> oneof([range(0, 2000), range(0, 60000)]);
amount(_) -> oneof([range(0, 10), range(0, 2000), range(0, 70000), range(0, ?ON_THE_WAY)]).

shape() -> oneof([binary, iolist, many, improper]).

option() ->
    oneof([{mode, oneof([list, binary])}, {nodelay, boolean()}, {keepalive, boolean()},
           {delay_send, boolean()}, {send_timeout, oneof([infinity, 1000])},
           {priority, range(0, 6)}, {high_watermark, range(1, 100000)}, {tos, 16},
           {packet_size, oneof([0, 1 bsl 20])}, {buffer, oneof([65536, 100000])},
           {linger, {boolean(), 5}}, {active, 0}, {active, -40000}, {no_such_option, 1}]).

-spec precondition(#st{}, term()) -> boolean().
precondition(#st{open = Open, ends = #{a := A, b := B}}, {call, _, _, [{open, _, _}]}) ->
    not Open orelse not (A#e.open orelse B#e.open);
precondition(#st{open = false}, _) ->
    false;
precondition(#st{packet = Packet, ends = Ends} = St, {call, _, _, [Cmd]}) ->
    End = element(2, Cmd),
    allowed(Cmd, maps:get(End, Ends, none), maps:get(other(End), Ends, none), Packet)
        andalso (element(1, Cmd) =/= packet orelse all_taken(St)).

%% Allowed is what has one right answer. To close with bytes unread is a reset, which may or may
%% not overtake what the other end has still to read; so is to send to a closed end.
allowed({packet, _}, none, none, _) -> true;
allowed(Cmd, #e{gone = true}, _, _)
  when element(1, Cmd) =/= send, element(1, Cmd) =/= recv, element(1, Cmd) =/= close ->
    false; % the stock port lives on until close; an erlane socket is closed
allowed({recv, _, Len, _}, #e{open = true, active = false, want = true}, _, Packet) ->
    Len > 0 andalso Packet =:= raw;
allowed({burst, _, _, _}, _, #e{open = true, want = true}, _) -> false;
allowed(Cmd, #e{open = true, want = true}, _, _)
  when element(1, Cmd) =:= drain; element(1, Cmd) =:= activate; element(1, Cmd) =:= unrecv ->
    false; % stock gives nothing before the length once asked for has come
allowed({send, _, _, _}, #e{open = false}, _, _) -> true;
allowed({send, _, _, N}, #e{shut = true, in = [], delay = Delay}, _, _) ->
    N > 0 andalso not Delay;
allowed({send, _, _, N}, #e{shut = false}, #e{open = true, in = In}, Packet) ->
    fits(Packet, N) andalso lists:sum(In) + N =< ?ON_THE_WAY;
allowed({send, _, _, _}, _, _, _) -> false;
allowed({recv, _, _, _}, _, _, _) -> true;
allowed({getopts, _}, _, _, _) -> true;
allowed({getstat, _}, #e{open = Open, in = In}, _, _) -> not Open orelse In =:= [];
allowed({setopts, _, {Key, _}}, #e{active = Active, in = In}, _, _) ->
    %% of what is on the way it is not known whether it has come before
    not (Active andalso In =/= []) orelse (Key =/= mode andalso Key =/= buffer);
allowed({drain, _, Mode}, E = #e{active = false, in = In}, _, _) ->
    E#e.open andalso In =/= [] andalso lists:sum(In) > 0
        andalso (not E#e.eof orelse Mode =:= true);
allowed({some, _, once}, #e{open = true, active = false, in = In}, _, Packet) ->
    Packet =/= raw andalso In =/= [];
allowed({some, _, N}, #e{open = true, active = false, in = In}, _, Packet) ->
    Packet =/= raw andalso is_integer(N) andalso N =< length(In);
allowed({activate, _}, E, _, _) -> E#e.open andalso not E#e.active andalso not E#e.eof;
allowed({collect, _}, E, _, _) -> E#e.open andalso E#e.active;
allowed({passivate, _}, E, _, _) -> E#e.open andalso E#e.active;
allowed({unrecv, _, _}, E, _, Packet) -> Packet =:= raw andalso not E#e.active;
allowed({shutdown, _}, _, _, _) -> true;
allowed({close, _}, #e{in = In}, _, _) -> In =:= [];
allowed({kill, _}, #e{in = In} = E, _, _) -> E#e.open andalso In =:= [];
allowed({hand_over, _, _}, #e{dead = Dead}, _, _) -> not Dead;
allowed({steal, _}, _, _, _) -> true;
allowed({migrate, _}, E, _, _) ->
    E#e.open andalso not E#e.active andalso E#e.in =:= [] andalso not E#e.eof;
allowed({burst, _, _, _}, From, To, Packet) ->
    Packet =:= raw andalso From#e.open andalso not From#e.shut andalso To#e.open
        andalso not To#e.active andalso To#e.in =:= [];
allowed(_, _, _, _) -> false.

fits(1, N) -> N =< 255;
fits(2, N) -> N =< 65535;
fits(line, N) -> N =< 60000;
fits(_, _) -> true.

all_taken(#st{ends = #{a := A, b := B}}) ->
    lists:all(fun(E) -> E#e.open andalso E#e.in =:= [] andalso not (E#e.eof orelse E#e.want) end,
              [A, B]).

other(a) -> b;
other(b) -> a;
other(_) -> none.

-spec next_state(#st{}, term(), term()) -> #st{}.
next_state(St, _Answer, {call, _, _, [Cmd]}) ->
    {_, St1} = step(Cmd, St),
    St1.

-spec postcondition(#st{}, term(), term()) -> boolean().
postcondition(_St, _Call, {failed, _}) -> false;
%% A port that closes between gen_tcp's look at it and the send says einval, not closed.
postcondition(_St, {call, _, do, [{send, _, _, _}]}, {{{error, einval}, Messages}, Erlane}) ->
    Erlane =:= {{error, closed}, Messages};
postcondition(_St, _Call, {Stock, Erlane}) -> Stock =:= Erlane.

%% `{Ended, State}': Ended are the ends, with what they have still to get, that Cmd lets hear of
%% the end of their stream by a message.
step({open, _, _}, _) ->
    {[], #st{open = true}};
step({send, End, _, N}, St) ->
    case {at(End, St), at(other(End), St)} of
        {#e{open = false}, _} -> {[], St};
        {#e{shut = true, active = true}, _} ->
            {Ended, St1} = closes(End, St),
            {[{End, []} | Ended], St1};
        {#e{shut = true}, _} -> gone(End, St);
        {_, #e{}} when N =:= 0, St#st.packet =:= raw -> {[], St};
        {_, #e{in = In} = To} -> {[], set(other(End), To#e{in = In ++ [N]}, St)}
    end;
step({recv, End, Len, _}, #st{packet = Packet} = St) ->
    case at(End, St) of
        #e{open = Open, active = Active} when not Open; Active -> {[], St};
        _ when Len > 0, Packet =/= raw -> {[], St};
        #e{in = [_ | In]} = E when Packet =/= raw -> {[], set(End, E#e{in = In}, St)};
        #e{in = [_ | _]} = E when Len =:= 0 -> {[], set(End, E#e{in = []}, St)};
        #e{in = In} = E when Len > 0 ->
            case lists:sum(In) of
                Sum when Sum >= Len ->
                    {[], set(End, E#e{in = [Sum - Len || Sum > Len], want = false}, St)};
                _ when E#e.eof -> gone(End, St);
                _ -> {[], set(End, E#e{want = true}, St)}
            end;
        #e{eof = true} -> gone(End, St);
        _ -> {[], St}
    end;
step({drain, End, _}, St) ->
    case at(End, St) of
        #e{eof = true, in = In} ->
            {Ended, St1} = closes(End, St),
            {[{End, In} | Ended], St1};
        E -> {[], set(End, E#e{in = []}, St)}
    end;
step({some, End, N}, St) ->
    E = at(End, St),
    Count = case N of once -> 1; _ -> N end,
    {[], set(End, E#e{in = lists:nthtail(Count, E#e.in)}, St)};
step({activate, End}, St) ->
    {[], set(End, (at(End, St))#e{active = true}, St)};
step({collect, End}, St) ->
    {[], set(End, (at(End, St))#e{in = []}, St)};
step({passivate, End}, St) ->
    {[], set(End, (at(End, St))#e{active = false, in = []}, St)};
step({unrecv, End, N}, St) ->
    case at(End, St) of
        #e{open = true, in = In} = E when N > 0 -> {[], set(End, E#e{in = [N | In]}, St)};
        _ -> {[], St}
    end;
step({packet, Packet}, St) ->
    {[], St#st{packet = Packet}};
step({shutdown, End}, St) ->
    case at(End, St) of
        #e{open = true, shut = false} = E -> ends(other(End), set(End, E#e{shut = true}, St));
        _ -> {[], St}
    end;
step({close, End}, St) ->
    closes(End, St);
step({kill, End}, St) ->
    {Ended, St1} = closes(End, St),
    {Ended, set(End, (at(End, St1))#e{dead = true}, St1)};
step({setopts, End, {active, _}}, St) ->
    E = at(End, St),
    {[], set(End, E#e{active = false, in = [N || N <- E#e.in, not E#e.active]}, St)};
step({setopts, End, {delay_send, Delay}}, St) ->
    {[], set(End, (at(End, St))#e{delay = Delay}, St)};
step(_, St) ->
    {[], St}.

closes(End, St) ->
    case at(End, St) of
        #e{open = true} = E ->
            ends(other(End), set(End, E#e{open = false, active = false, in = []}, St));
        _ -> {[], St}
    end.

gone(End, St) ->
    {Ended, St1} = closes(End, St),
    {Ended, set(End, (at(End, St1))#e{gone = true}, St1)}.

%% The stream to End is at its end. An active socket tells, and closes its side, too.
ends(End, St) ->
    case at(End, St) of
        #e{open = true, active = true, in = In} ->
            {Ended, St1} = closes(End, St),
            {[{End, In} | Ended], St1};
        #e{open = true} = E -> {[], set(End, E#e{eof = true}, St)};
        _ -> {[], St}
    end.

at(End, #st{ends = Ends}) -> maps:get(End, Ends).

set(End, E, #st{ends = Ends} = St) -> St#st{ends = Ends#{End := E}}.

%%% Commands

%% @doc Runs a command on both pairs, and has those collect their messages that it made close.
-spec do(tuple()) -> {Stock :: term(), Erlane :: term()} | {failed, term()}.
do(Cmd) ->
    St = get(model),
    {Ended, St1} = step(Cmd, St),
    put(model, St1),
    Kinds = [stock, erlane],
    Starts = [fun() -> run(Cmd, Kind, St, Ended) end || Kind <- Kinds],
    %% PropEr, as old as Debian has it, does not survive an exception in a command.
    try erlane_actor:together(Starts) of
        [Stock, Erlane] -> {Stock, Erlane}
    catch
        error:Why -> {failed, Why}
    end.

run({open, Mode, High}, Kind, _St, _) ->
    Opts = [Mode, {active, false}, {buffer, 65536}, {recbuf, ?ON_THE_WAY}, {sndbuf, ?ON_THE_WAY},
            {high_watermark, High}],
    {A, B} = erlane_ct:pair([{backend, Kind}], Opts),
    [begin
         Pid = start(0),
         ok = gen_tcp:controlling_process(Socket, Pid),
         keep(Kind, End, Socket, Pid)
     end || {End, Socket} <- [{a, A}, {b, B}]],
    ok;
run({kill, End}, Kind, St, Ended) ->
    {S, Pid} = kept(Kind, End),
    ok = erlane_ct:kill(Pid),
    ok = erlane_ct:wait_until(fun() -> is_closed(S) end),
    keep(Kind, End, S, start(0)),
    [ended(Kind, Who, In, St) || {Who, In} <- Ended];
run({hand_over, End, Scheduler}, Kind, _St, _) ->
    hand_over(Kind, End, Scheduler);
run({steal, End}, Kind, _St, _) ->
    {S, _Owner} = kept(Kind, End),
    Thief = start(0),
    Answer = ask(Thief, fun() -> gen_tcp:controlling_process(S, self()) end),
    ok = stop(Thief),
    Answer;
run({migrate, End}, Kind, _St, _) ->
    %% a new owner on each scheduler in turn, who calls often enough to be followed
    [begin
         ok = hand_over(Kind, End, N),
         {S, Pid} = kept(Kind, End),
         ask(Pid, fun() -> toggle(S, 40) end)
     end || N <- lists:seq(1, erlang:system_info(schedulers_online))];
run({packet, Packet}, Kind, _St, _) ->
    [at(Kind, End, fun(S) -> inet:setopts(S, [{packet, Packet}]) end) || End <- [a, b]];
run({burst, End, N, How}, Kind, _St, _) ->
    Data = payload(N),
    {From, Sender} = kept(Kind, End),
    {To, Reader} = kept(Kind, other(End)),
    erlane_actor:together(
        [fun() -> ask(Sender, fun() -> send_parts(From, Data) end) end,
         fun() ->
             ask(Reader, fun() -> {digest(read(To, How, N)), drained(To, How, false, raw)} end)
         end]);
run(Cmd, Kind, #st{packet = Packet} = St, Ended) ->
    End = element(2, Cmd),
    Answer = at(Kind, End, fun(S) -> act(Cmd, S, at(End, St), Packet) end),
    {Answer, [ended(Kind, Who, In, St) || {Who, In} <- Ended, not drains(Cmd, Who)]}.

%% A port is not closed yet when its owner is dead.
is_closed(S) when is_port(S) -> erlang:port_info(S) =:= undefined;
is_closed(S) -> inet:getopts(S, [active]) =:= {error, einval}.

drains({drain, End, _}, Who) -> Who =:= End;
drains(_, _) -> false.

hand_over(Kind, End, Scheduler) ->
    {S, Pid} = kept(Kind, End),
    New = start(Scheduler, S),
    case ask(Pid, fun() -> gen_tcp:controlling_process(S, New) end) of
        ok ->
            ok = stop(Pid),
            keep(Kind, End, S, New),
            ok;
        Error ->
            ok = stop(New),
            Error
    end.

toggle(_S, 0) ->
    ok;
toggle(S, N) ->
    ok = inet:setopts(S, [{active, once}]),
    ok = inet:setopts(S, [{active, false}]),
    toggle(S, N - 1).

%% In the owner's process:

act({send, _, Shape, N}, S, #e{delay = Delay}, Packet) ->
    Answer = gen_tcp:send(S, shaped(Shape, content(Packet, N))),
    _ = [erlane_ct:wait_until(fun() -> is_sent(S) end) || Delay, Answer =:= ok],
    Answer;
act({recv, _, 0, _}, S, #e{open = true, active = false, in = [_ | _] = In}, raw) ->
    digest(read(S, 0, lists:sum(In)));
act({recv, _, Len, Timeout}, S, #e{in = In, eof = Eof}, _) ->
    Enough = In =/= [] andalso lists:sum(In) >= Len,
    Wait = case Enough orelse Eof of true -> ?DEADLINE; false -> Timeout end,
    digest(gen_tcp:recv(S, Len, Wait));
act({drain, _, Mode}, S, #e{in = In, eof = Eof}, raw) ->
    Got = read(S, Mode, lists:sum(In)),
    {digest(Got), drained(S, Mode, Eof, raw)};
act({drain, _, Mode}, S, #e{in = In, eof = Eof}, Packet) ->
    ok = inet:setopts(S, [{active, Mode}]),
    Got = [digest(next(S, Mode)) || _ <- In],
    {Got, drained(S, Mode, Eof, Packet)};
act({some, _, Mode}, S, _E, _) ->
    ok = inet:setopts(S, [{active, Mode}]),
    Got = [digest(message(S)) || _ <- lists:seq(1, case Mode of once -> 1; N -> N end)],
    {Got, [message(S) || Mode =/= once], inet:getopts(S, [active])};
act({activate, _}, S, _E, _) ->
    inet:setopts(S, [{active, true}]);
act({collect, _}, S, #e{in = In}, Packet) ->
    digests(S, In, Packet);
act({passivate, _}, S, #e{in = In}, Packet) ->
    Got = digests(S, In, Packet),
    {Got, inet:setopts(S, [{active, false}]), erlane_ct:flush()};
act({unrecv, _, N}, S, _E, _) -> gen_tcp:unrecv(S, payload(N));
act({shutdown, _}, S, _E, _) -> gen_tcp:shutdown(S, write);
act({close, _}, S, _E, _) -> gen_tcp:close(S);
act({setopts, _, {active, _} = Option}, S, #e{in = In, active = Active}, Packet) ->
    Got = [digests(S, In, Packet) || Active],
    {Got, inet:setopts(S, [{active, false}]), inet:setopts(S, [Option]),
     [element(1, M) || M <- erlane_ct:flush()]};
act({setopts, _, Option}, S, _E, _) -> inet:setopts(S, [Option]);
act({getopts, _}, S, _E, _) ->
    inet:getopts(S, [active, packet, mode, nodelay, keepalive, delay_send, send_timeout, buffer,
                     recbuf, sndbuf, high_watermark, low_watermark, packet_size, exit_on_close,
                     deliver, show_econnreset, header, priority, tos, linger]);
act({getstat, _}, S, _E, _) ->
    inet:getstat(S, [recv_oct, send_oct, send_max, send_pend]).

is_sent(S) -> inet:getstat(S, [send_pend]) =:= {ok, [{send_pend, 0}]}.

%% N bytes of the stream: by recv (0 or a length) or in an active mode.
read(S, Mode, N) when is_atom(Mode); Mode < 100, Mode > 0 ->
    ok = inet:setopts(S, [{active, Mode}]),
    read_active(S, Mode, N, []);
read(S, Len, N) ->
    read_passive(S, Len, N, []).

read_passive(_S, _Len, 0, Acc) ->
    {ok, lists:reverse(Acc)};
read_passive(S, Len, N, Acc) when N > 0 ->
    {ok, Data} = gen_tcp:recv(S, min(Len, N), ?DEADLINE),
    read_passive(S, Len, N - iolist_size(Data), [Data | Acc]).

read_active(_S, _Mode, 0, Acc) ->
    {ok, lists:reverse(Acc)};
read_active(S, Mode, N, Acc) when N > 0 ->
    case message(S) of
        {tcp, Data} ->
            Left = N - iolist_size(Data),
            _ = [ok = inet:setopts(S, [{active, once}]) || Mode =:= once, Left > 0],
            read_active(S, Mode, Left, [Data | Acc]);
        tcp_passive ->
            ok = inet:setopts(S, [{active, Mode}]),
            read_active(S, Mode, N, Acc)
    end.

%% What follows when all bytes have come: with {active, true} the end of the stream. Else the
%% mode is taken back; how many messages a raw stream makes is not compared.
drained(S, true, true, _) ->
    message(S);
drained(S, _Mode, _, Packet) ->
    ok = inet:setopts(S, [{active, false}]),
    Rest = [element(1, M) || M <- erlane_ct:flush()],
    case Packet of
        raw -> Rest -- [tcp_passive];
        _ -> Rest
    end.

%% A packet; the socket is armed for the next.
next(S, Mode) ->
    case message(S) of
        tcp_passive ->
            ok = inet:setopts(S, [{active, Mode}]),
            next(S, Mode);
        {tcp, _} = Packet when Mode =:= once ->
            ok = inet:setopts(S, [{active, once}]),
            Packet;
        Packet ->
            Packet
    end.

message(S) ->
    case erlane_ct:next(S) of
        {tcp, _, Data} -> {tcp, Data};
        {Tag, _} -> Tag
    end.

%% In active mode: the bytes of a raw stream together, packets one by one.
digests(S, In, raw) -> digest(read_active(S, true, lists:sum(In), []));
digests(S, In, _) -> [digest(message(S)) || _ <- In].

ended(Kind, End, In, #st{packet = Packet}) ->
    at(Kind, End, fun(S) -> {digests(S, In, Packet), message(S)} end).

%%% Bytes

content(line, N) -> <<(binary:copy(<<"x">>, N))/binary, $\n>>;
content(_, N) -> payload(N).

payload(N) -> erlane_ct:pattern(N).

%%% The two pairs

at(Kind, End, Fun) ->
    {S, Pid} = kept(Kind, End),
    ask(Pid, fun() -> Fun(S) end).

keep(Kind, End, Socket, Pid) -> erlane_actor:keep({Kind, End}, {Socket, Pid}).

kept(Kind, End) -> erlane_actor:kept({Kind, End}).
