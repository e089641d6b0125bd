%% SPDX-License-Identifier: Apache-2.0
%% @doc The loads of the flood scenarios: what the near node does to the far ones.
%%
%% Receivers live on the far nodes, each node's under a process of its own, the host. They are
%% made by {@link prepare/2} before the first round and stay until {@link release/1}; a round is
%% {@link go/2}, in a process that is new each time. Its result is a map of numbers in which
%% `count' and `ns' always are.
%%
%% A receiver that only takes messages counts them down in an atomic cell of its node, and the
%% last one tells the host: so the end of a round costs no message for each delivery.
-module(erlane_bench_flood_load).

-export([prepare/2, go/2, release/1]).
-export([host/4, deliver/1]).

-export_type([load/0, spec/0, prepared/0]).

-type load() :: flood | lone | rate | fanout | single | matrix.
%% How messages go: `!' for each, a list made by hand, the router with one receiver or with a
%% list of them, a message to a process that passes it on, erpc:multicast/4.
-type way() :: plain | lists | router | router_list | helper | erpc.
-type spec() :: #{way := way(), far := [node()], receivers := pos_integer(),
                  payload := non_neg_integer(), _ => _}.
-opaque prepared() :: #{load := load(), hosts := [{pid(), [pid()]}], _ => _}.

-define(TIMEOUT, 30000).
-define(LIST, 1000).
%% So many fan-outs are under way at once.
-define(FANOUTS, 50).
%% Latencies are counted by whole microseconds up to a second.
-define(BUCKETS, 1000001).
-define(BULK, 10000000).
-define(BULK_MS, 50).

%%
%% Receivers
%%

%% @doc Makes the receivers of a load on every far node.
-spec prepare(load(), spec()) -> prepared().
prepare(Load, #{far := Nodes, receivers := N, way := Way} = Spec) ->
    Kind = if Load =:= flood; Load =:= lone; Load =:= rate -> echo;
              true -> latch
           end,
    Hosts = [at(Node, Kind, N, Way) || Node <- Nodes],
    Sinks = [at(Node, sink, 1, Way) || #{bulk := true} <- [Spec], Node <- Nodes],
    Spec#{load => Load, hosts => Hosts, sinks => Sinks,
          message => {echo, binary:copy(<<"e">>, maps:get(payload, Spec))}}.

%% @doc Ends the receivers.
-spec release(prepared()) -> ok.
release(#{hosts := Hosts, sinks := Sinks}) ->
    lists:foreach(fun({Host, _}) ->
                          Monitor = erlang:monitor(process, Host),
                          exit(Host, kill),
                          receive {'DOWN', Monitor, process, Host, _} -> ok end
                  end, Hosts ++ Sinks).

at(Node, Kind, N, Way) ->
    Pid = spawn(Node, ?MODULE, host, [self(), Kind, N, Way]),
    receive
        {Pid, Pids} -> {Pid, Pids}
    after ?TIMEOUT ->
        error({no_receivers, Node})
    end.

%% @doc The host itself, on the far node.
-spec host(Owner :: pid(), echo | latch | sink, pos_integer(), way()) -> no_return().
host(Owner, Kind, N, Way) ->
    Host = self(),
    Latch = atomics:new(1, []),
    Send = sender(Way),
    Pids = [spawn_link(fun() -> receiver(Kind, Send, Latch, Host) end) || _ <- lists:seq(1, N)],
    _ = Way =:= erpc andalso persistent_term:put(?MODULE, Pids),
    Owner ! {self(), Pids},
    hosting(Latch, Owner).

hosting(Latch, Owner) ->
    receive
        {arm, From, Count} ->
            ok = atomics:put(Latch, 1, Count),
            From ! {self(), armed},
            hosting(Latch, From);
        {to, Pids, Message} ->
            each(Pids, Message),
            hosting(Latch, Owner);
        latched ->
            Owner ! {self(), done},
            hosting(Latch, Owner)
    end.

receiver(echo, Send, _, _) -> echo(Send);
receiver(latch, _, Latch, Host) -> latch(Latch, Host);
receiver(sink, _, _, _) -> sink().

echo(Send) ->
    receive
        {From, Messages} when is_list(Messages) -> From ! [M || {echo, _} = M <- Messages];
        {From, Message} when Send =:= plain -> From ! Message;
        {From, Message} -> Send(From, Message)
    end,
    echo(Send).

latch(Latch, Host) ->
    receive
        _ ->
            case atomics:sub_get(Latch, 1, 1) of
                0 -> Host ! latched;
                _ -> ok
            end
    end,
    latch(Latch, Host).

sink() ->
    receive {From, Bytes} -> From ! {bulk, byte_size(Bytes)} end,
    sink().

%% @doc Passes a message on to the receivers of this node. For erpc:multicast/4.
-spec deliver(Message :: term()) -> ok.
deliver(Message) ->
    each(persistent_term:get(?MODULE), Message).

%% erlane_router need not be there, so that nothing here calls it by name.
sender(Way) when Way =:= router; Way =:= router_list ->
    Router = erlane_router,
    fun Router:send/2;
sender(_) ->
    plain.

%%
%% Rounds
%%

%% @doc One round of about so many milliseconds, but whole: a flood that has begun goes on to
%% its end. What is in `Change' holds for this round only.
-spec go(prepared(), #{ms := pos_integer(), _ => _}) -> #{atom() => number()}.
go(Prepared, Change) ->
    Self = self(),
    Spec = maps:merge(Prepared, Change),
    {Pid, Monitor} = spawn_monitor(fun() -> Self ! {round, self(), one_round(Spec)} end),
    receive
        {round, Pid, Result} ->
            erlang:demonitor(Monitor, [flush]),
            Result;
        {'DOWN', Monitor, process, Pid, Why} ->
            error(Why)
    end.

one_round(#{load := Load, ms := Ms} = Spec) ->
    Start = erlang:monotonic_time(),
    End = Start + erlang:convert_time_unit(Ms, millisecond, native),
    Result = case Load of
                 flood -> repeat(fun flood/1, Spec, End, 0);
                 matrix -> repeat(fun matrix/1, Spec, End, 0);
                 fanout -> repeat(fun fanout/1, Spec, End, 0);
                 lone -> sampled(fun lone/1, Spec, End);
                 single -> sampled(fun single/1, Spec, End);
                 rate -> rate(Spec)
             end,
    Result#{ns => nanoseconds(erlang:monotonic_time() - Start)}.

repeat(Fun, Spec, End, Done) ->
    Count = Done + Fun(Spec),
    case erlang:monotonic_time() < End of
        true -> repeat(Fun, Spec, End, Count);
        false -> #{count => Count}
    end.

%% One by one, each timed.
sampled(Fun, Spec, End) ->
    sampled(Fun, Spec, End, [], []).

sampled(Fun, Spec, End, Times, Sent) ->
    {Before, Handed} = Fun(Spec),
    After = erlang:monotonic_time(),
    case [After - Before | Times] of
        More when After < End -> sampled(Fun, Spec, End, More, [Handed - Before | Sent]);
        All ->
            Sorted = lists:sort(All),
            N = length(Sorted),
            At = fun(Part) -> micros(lists:nth(max(1, ceil(N * Part)), Sorted)) end,
            #{count => N, p50_us => At(0.5), p99_us => At(0.99), p999_us => At(0.999),
              max_us => At(1.0), mean_us => micros(lists:sum(All)) / N,
              sender_us => micros(lists:nth((N + 1) div 2, lists:sort([Handed - Before | Sent])))}
    end.

%%
%% Flood: all messages out, then all answers in
%%

flood(#{way := Way, hosts := Hosts, messages := N, message := Message}) ->
    Pids = receivers(Hosts),
    Count = case Way of
                router_list -> N div length(Pids) * length(Pids);
                lists -> N div ?LIST * ?LIST;
                _ -> N
            end,
    ok = send(Way, Pids, {self(), Message}, Count),
    ok = answers(Count),
    Count.

send(plain, Pids, Message, N) -> cycle(Pids, Pids, Message, N);
send(router, Pids, Message, N) -> cycle(sender(router), Pids, Pids, Message, N);
send(router_list, Pids, Message, N) ->
    repeated(sender(router_list), Pids, Message, N div length(Pids));
send(lists, [Pid], {Self, Message}, N) ->
    by_lists(Pid, Self, Message, N).

cycle(_, _, _, 0) -> ok;
cycle([], All, Message, N) -> cycle(All, All, Message, N);
cycle([Pid | Pids], All, Message, N) -> Pid ! Message, cycle(Pids, All, Message, N - 1).

cycle(_, _, _, _, 0) -> ok;
cycle(Send, [], All, Message, N) -> cycle(Send, All, All, Message, N);
cycle(Send, [Pid | Pids], All, Message, N) ->
    Send(Pid, Message),
    cycle(Send, Pids, All, Message, N - 1).

repeated(_, _, _, 0) -> ok;
repeated(Send, Pids, Message, N) -> Send(Pids, Message), repeated(Send, Pids, Message, N - 1).

%% A program that does this would collect its messages, so each list is built here as well.
by_lists(_, _, _, 0) -> ok;
by_lists(Pid, Self, Message, N) ->
    Pid ! {Self, [Message || _ <- lists:seq(1, ?LIST)]},
    by_lists(Pid, Self, Message, N - ?LIST).

answers(0) -> ok;
answers(N) ->
    receive
        {echo, _} -> answers(N - 1);
        [_ | _] = Some -> answers(each_answer(Some, N))
    after ?TIMEOUT ->
        error({answers_missing, N})
    end.

each_answer([], N) -> N;
each_answer([{echo, _} | Answers], N) -> each_answer(Answers, N - 1).

lone(#{way := Way, hosts := [{_, [Pid]}], message := Message}) ->
    Before = erlang:monotonic_time(),
    ok = send(Way, [Pid], {self(), Message}, 1),
    Handed = erlang:monotonic_time(),
    ok = answers(1),
    {Before, Handed}.

%%
%% One message to many
%%

fanout(#{hosts := Hosts} = Spec) ->
    ok = arm(Hosts, ?FANOUTS),
    ok = fan(Spec, ?FANOUTS),
    ok = latched(Hosts),
    ?FANOUTS.

%% One at a time; the time of arming is left out.
single(#{hosts := Hosts} = Spec) ->
    ok = arm(Hosts, 1),
    Before = erlang:monotonic_time(),
    ok = fan(Spec, 1),
    Handed = erlang:monotonic_time(),
    ok = latched(Hosts),
    {Before, Handed}.

fan(#{way := Way, hosts := Hosts, far := Nodes, message := Message} = Spec, N) ->
    Pids = receivers(Hosts),
    case Way of
        plain -> times(N, fun() -> each(Pids, Message) end);
        router ->
            Send = sender(router),
            times(N, fun() -> Send(Pids, Message) end);
        helper ->
            times(N, fun() -> each_host(Hosts, Message) end);
        erpc ->
            times(N, fun() -> erpc:multicast(Nodes, ?MODULE, deliver, [Message]) end);
        _ -> error({no_way, Spec})
    end.

each_host([], _) -> ok;
each_host([{Host, Pids} | Hosts], Message) ->
    Host ! {to, Pids, Message},
    each_host(Hosts, Message).

times(0, _) -> ok;
times(N, Fun) -> _ = Fun(), times(N - 1, Fun).

each([], _) -> ok;
each([Pid | Pids], Message) -> Pid ! Message, each(Pids, Message).

%% Hosts await so many messages to each of their receivers.
arm(Hosts, Times) ->
    counted(Hosts, [Times * length(Pids) || {_, Pids} <- Hosts]).

counted(Hosts, Counts) ->
    lists:foreach(fun({{Host, _}, Count}) -> Host ! {arm, self(), Count} end,
                  lists:zip(Hosts, Counts)),
    await(Hosts, armed).

latched(Hosts) -> await(Hosts, done).

await([], _) -> ok;
await([{Host, _} | Hosts], What) ->
    receive {Host, What} -> await(Hosts, What) after ?TIMEOUT -> error({missing, What, Host}) end.

receivers([{_, Pids}]) -> Pids;
receivers(Hosts) -> lists:append([Pids || {_, Pids} <- Hosts]).

%%
%% Many senders, many receivers, one way
%%

matrix(#{hosts := [{_, Pids}] = Hosts, way := Way, senders := Senders, messages := N,
         message := Message}) ->
    Fan = length(Pids),
    {Sends, Each} = case Way of
                        router_list -> {max(1, N div Fan), Fan};
                        _ -> {N, 1}
                    end,
    ok = counted(Hosts, [Sends * Each]),
    All = list_to_tuple(Pids),
    lists:foreach(fun({_, 0}) -> ok;
                     ({I, Share}) ->
                          Own = around(All, I * Fan div Senders, min(Fan, Share * Each)),
                          spawn_link(fun() -> send(Way, Own, Message, Share * Each) end)
                  end, [{I, Sends * (I + 1) div Senders - Sends * I div Senders}
                        || I <- lists:seq(0, Senders - 1)]),
    ok = latched(Hosts),
    Sends * Each.

%% A sender is given no more receivers than it has messages for, since they are copied to it.
around(All, From, Count) ->
    [element((From + I) rem tuple_size(All) + 1, All) || I <- lists:seq(0, Count - 1)].

%%
%% A fixed rate
%%

%% Every millisecond what is due is sent, and its time runs from that millisecond, whatever kept
%% the sender. Clocks and timers of the VM agree about milliseconds.
rate(#{hosts := [{_, [Echo]}], way := Way, ms := Ms, rate := Rate, senders := Senders} = Spec) ->
    Histogram = counters:new(?BUCKETS, []),
    Self = self(),
    Start = erlang:monotonic_time(millisecond) + 20,
    Due = fun(K) -> Rate * (K + 1) div (1000 * Senders) - Rate * K div (1000 * Senders) end,
    Total = Senders * (Rate * Ms div (1000 * Senders)),
    _ = [spawn_link(fun() -> pace(0, Ms, Start, Due, {Way, Echo, Self, Spec}) end)
         || _ <- lists:seq(1, Senders)],
    Bulk = [spawn_link(fun() -> bulk(Self, Way, Sink, Start + Ms, 0) end)
            || #{sinks := [{_, [Sink]}]} <- [Spec]],
    ok = timed(Total, Start * 1000, Histogram),
    Large = lists:sum([receive {Pid, Bytes} -> Bytes after ?TIMEOUT -> error(bulk) end
                       || Pid <- Bulk]),
    Result = percentiles(Histogram, Total),
    maps:merge(Result#{count => Total},
               maps:from_list([{bulk_mb_s, Large / 1000 / Ms} || Bulk =/= []])).

pace(Ms, Ms, _, _, _) -> ok;
pace(K, Ms, Start, Due, {Way, Echo, To, #{message := {echo, Payload}}} = How) ->
    ok = sleep_until(Start + K),
    ok = send(Way, [Echo], {To, {K, Payload}}, Due(K)),
    pace(K + 1, Ms, Start, Due, How).

sleep_until(Time) ->
    Timer = erlang:start_timer(Time, self(), due, [{abs, true}]),
    receive {timeout, Timer, due} -> ok end.

timed(0, _, _) -> ok;
timed(N, Start, Histogram) ->
    receive
        {K, Payload} when is_integer(K), is_binary(Payload) ->
            Took = erlang:monotonic_time(microsecond) - Start - K * 1000,
            ok = counters:add(Histogram, min(?BUCKETS, max(0, Took) + 1), 1),
            timed(N - 1, Start, Histogram)
    after ?TIMEOUT ->
        error({answers_missing, N})
    end.

%% Large messages, the next when the one before has arrived, and at most one in so many ms.
bulk(To, Way, Sink, End, Done) ->
    ok = send(Way, [Sink], {self(), binary:copy(<<"b">>, ?BULK)}, 1),
    Bytes = receive {bulk, N} -> Done + N after ?TIMEOUT -> error(bulk) end,
    case (erlang:monotonic_time(millisecond) div ?BULK_MS + 1) * ?BULK_MS of
        Next when Next < End -> ok = sleep_until(Next), bulk(To, Way, Sink, End, Bytes);
        _ -> To ! {self(), Bytes}
    end.

percentiles(Histogram, Total) ->
    Wanted = [{p50_us, 0.5}, {p99_us, 0.99}, {p999_us, 0.999}, {max_us, 1.0}],
    percentiles([{Key, max(1, ceil(Total * Part))} || {Key, Part} <- Wanted], 1, 0, 0, Histogram).

percentiles([], _, Seen, Sum, _) -> #{mean_us => Sum / max(1, Seen)};
percentiles([{Key, Nth} | Wanted], I, Seen, Sum, Histogram) when Seen >= Nth ->
    (percentiles(Wanted, I, Seen, Sum, Histogram))#{Key => I - 2};
percentiles(Wanted, I, Seen, Sum, Histogram) when I =< ?BUCKETS ->
    N = counters:get(Histogram, I),
    percentiles(Wanted, I + 1, Seen + N, Sum + N * (I - 1), Histogram);
percentiles(Wanted, _, Seen, Sum, _) ->
    maps:from_list([{mean_us, Sum / max(1, Seen)} | [{Key, ?BUCKETS - 1} || {Key, _} <- Wanted]]).

micros(Native) -> nanoseconds(Native) / 1000.

nanoseconds(Native) -> erlang:convert_time_unit(Native, native, nanosecond).
