%% SPDX-License-Identifier: Apache-2.0
%% A TCP relay that holds bytes back: each piece for a time, or all of them until they are let go.
%% It runs in the VM of the test; nodes are led to it with router_epmd:detour/2.
-module(router_relay).

-export([start/1, stop/1, port/1, delay/2, hold/1, release/1, bytes/1]).

%% Relays to this port of 127.0.0.1. Delay 0, nothing held.
-spec start(inet:port_number()) -> pid().
start(To) ->
    Parent = self(),
    Pid = spawn(fun() -> init(Parent, To) end),
    receive {Pid, started} -> Pid end.

stop(Pid) ->
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% The port to connect to.
port(Pid) -> call(Pid, port).
%% Both ways, for what arrives from now on.
delay(Pid, Ms) -> call(Pid, {delay, Ms}).
%% From now on nothing goes through, and everything is kept.
hold(Pid) -> call(Pid, hold).
release(Pid) -> call(Pid, release).
%% Bytes that came in so far, whether held or passed on.
bytes(Pid) -> call(Pid, bytes).

call(Pid, Request) ->
    Ref = monitor(process, Pid),
    Pid ! {Ref, self(), Request},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, Pid, Reason} -> error({relay, Reason})
    end.

init(Parent, To) ->
    {ok, Listen} = gen_tcp:listen(0, [binary, {active, false}, {ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Listen),
    Self = self(),
    spawn_link(fun() -> accept(Self, Listen, To) end),
    Watch = monitor(process, Parent),
    Parent ! {self(), started},
    loop(#{port => Port, delay => 0, held => false, queue => queue:new(), bytes => 0,
           watch => Watch, pairs => #{}}).

accept(Relay, Listen, To) ->
    {ok, A} = gen_tcp:accept(Listen),
    case gen_tcp:connect({127, 0, 0, 1}, To, [binary, {active, false}]) of
        {ok, B} ->
            [ok = gen_tcp:controlling_process(S, Relay) || S <- [A, B]],
            Relay ! {pair, A, B};
        {error, _} ->
            gen_tcp:close(A)
    end,
    accept(Relay, Listen, To).

loop(#{pairs := Pairs, bytes := Bytes, watch := Watch} = State) ->
    receive
        {pair, A, B} ->
            [ok = inet:setopts(S, [{active, true}, {nodelay, true}, {send_timeout, 5000}])
             || S <- [A, B]],
            loop(State#{pairs := Pairs#{A => B, B => A}});
        {tcp, S, Data} ->
            loop(pass(later(S, Data, State#{bytes := Bytes + byte_size(Data)})));
        {tcp_closed, S} ->
            loop(pass(later(S, close, State)));
        {tcp_error, _, _} ->
            loop(State);
        due ->
            loop(pass(State));
        {'DOWN', Watch, process, _, _} ->
            ok;
        {Ref, From, Request} ->
            {Answer, New} = request(Request, State),
            From ! {Ref, Answer},
            loop(New)
    end.

request(port, #{port := Port} = State) -> {Port, State};
request(bytes, #{bytes := Bytes} = State) -> {Bytes, State};
request({delay, Ms}, State) -> {ok, State#{delay := Ms}};
request(hold, State) -> {ok, State#{held := true}};
request(release, State) -> {ok, pass(State#{held := false})}.

later(S, What, #{queue := Queue, delay := Delay} = State) ->
    Due = now_ms() + Delay,
    [erlang:send_after(Due, self(), due, [{abs, true}]) || Delay > 0],
    State#{queue := queue:in({Due, S, What}, Queue)}.

%% One queue for all: what came first leaves first.
pass(#{held := true} = State) ->
    State;
pass(#{queue := Queue} = State) ->
    Now = now_ms(),
    case queue:peek(Queue) of
        {value, {Due, S, What}} when Due =< Now ->
            pass(forward(S, What, State#{queue := queue:drop(Queue)}));
        _ ->
            State
    end.

forward(S, What, #{pairs := Pairs} = State) ->
    case {Pairs, What} of
        {#{S := To}, close} ->
            _ = gen_tcp:close(To),
            State#{pairs := maps:without([S, To], Pairs)};
        {#{S := To}, Data} ->
            %% An error shows as the end of that connection.
            _ = gen_tcp:send(To, Data),
            State;
        {#{}, _} ->
            State
    end.

now_ms() ->
    erlang:monotonic_time(millisecond).
