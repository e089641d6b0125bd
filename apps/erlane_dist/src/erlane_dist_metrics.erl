%% SPDX-License-Identifier: Apache-2.0
%% @doc The connections as metrics: a collector for `erlane_metrics', where that app is there.
%%
%% Names and types are those of prometheus.erl's collector of the distribution, with the label
%% `peer', so that dashboards made for it fit; busy events and ticks are ours. The collector
%% `dist' of `erlane_metrics' stays beside it: that one follows OpenMetrics, which those names
%% and types do not, and needs nothing but its own application.
%%
%% The application registers it when it starts. Where `erlane_metrics' is started later, or
%% again, {@link register/0} does.
-module(erlane_dist_metrics).

-export([register/0, unregister/0, families/1, open/1, collect/1]).

-define(NAME, dist_peers).

%% @doc Registers the collector `dist_peers'. Not an error if there is no `erlane_metrics'.
-spec register() -> ok | {error, term()}.
register() ->
    try erlane_metrics:collector(?NAME, #{module => ?MODULE}) of
        {error, already_started} -> ok;
        Answer -> Answer
    catch
        error:undef -> {error, {not_started, erlane_metrics}}
    end.

%% @private
-spec unregister() -> ok | {error, term()}.
unregister() ->
    try erlane_metrics_collector:stop(?NAME)
    catch error:undef -> {error, not_found}
    end.

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(_Options) ->
    [{Type, #{name => name(Name), help => Help, labels => labels(Source)}}
     || {Source, _, Type, Name, Help} <- all()].

labels(proc) -> [<<"peer">>, <<"type">>];
labels(_) -> [<<"peer">>].

name(Name) -> <<"erlang_vm_dist_", (atom_to_binary(Name))/binary>>.

all() ->
    [{inet, recv_oct, gauge, recv_bytes, <<"Bytes the socket received">>},
     {inet, recv_cnt, gauge, recv_cnt, <<"Packets the socket received">>},
     {inet, recv_max, gauge, recv_max_bytes, <<"The largest packet it received">>},
     {inet, recv_avg, gauge, recv_avg_bytes, <<"The mean of the packets it received">>},
     {inet, recv_dvi, gauge, recv_dvi_bytes, <<"Their mean deviation">>},
     {inet, send_oct, gauge, send_bytes, <<"Bytes the socket sent">>},
     {inet, send_cnt, gauge, send_cnt, <<"Packets the socket sent">>},
     {inet, send_max, gauge, send_max_bytes, <<"The largest packet it sent">>},
     {inet, send_avg, gauge, send_avg_bytes, <<"The mean of the packets it sent">>},
     {inet, send_pend, gauge, send_pend_bytes, <<"Waits in the socket's queue">>},
     {port, input, gauge, port_input_bytes, <<"Read by the port of the connection">>},
     {port, output, gauge, port_output_bytes, <<"Written by it">>},
     {port, memory, gauge, port_memory_bytes, <<"Memory of the port">>},
     {port, queue_size, gauge, port_queue_size_bytes, <<"Waits in the port's queue">>},
     {proc, memory, gauge, proc_memory_bytes, <<"Memory of the connection's process">>},
     {proc, heap_size, gauge, proc_heap_size_words, <<"Its youngest heap">>},
     {proc, total_heap_size, gauge, proc_total_heap_size_words, <<"All its heaps">>},
     {proc, stack_size, gauge, proc_stack_size_words, <<"Its stack">>},
     {proc, message_queue_len, gauge, proc_message_queue_len, <<"Waits in its mailbox">>},
     {proc, reductions, gauge, proc_reductions, <<"Its reductions">>},
     {proc, status, gauge, proc_status,
      <<"1 exiting, 2 suspended, 3 runnable, 4 collects garbage, 5 runs, 6 waits">>},
     {state, state, gauge, node_state, <<"3 for each connection that is up">>},
     {stat, queue, gauge, node_queue_size_bytes,
      <<"Waits for the connection; at the limit senders are suspended">>},
     {busy, busy, counter, busy_events, <<"Senders suspended because it was busy">>},
     {ticks, ticks, counter, ticks_sent, <<"Ticks sent to show that this node lives">>}].

%% @private
-spec open(map()) -> map().
open(_Options) -> #{}.

%% The state are the ticks of each connection that were seen last.
%% @private
-spec collect(map()) -> {[{binary(), [{[node() | dist], number()}]}], map()}.
collect(Ticks) ->
    _ = erlane_dist_busy:claim(),
    Listener = erlane_dist_node:listener(node()),
    Busy = case erlane_dist_busy:source() of
               Source when Source =:= none; is_tuple(Source) -> none;
               _ -> erlane_dist_busy:counts()
           end,
    Peers = [{Node, Connection, figures(Node, Connection, Busy, Listener, Ticks)}
             || {Node, Connection} <- erlane_dist_node:peers(node())],
    {[{name(Name), values(Source, Key, Peers)} || {Source, Key, _, Name, _} <- all()],
     maps:from_list([{Connection, N} || {_, Connection, #{ticks := #{ticks := N}}} <- Peers])}.

values(Source, Key, Peers) ->
    [{case Source of proc -> [Node, dist]; _ -> [Node] end, N}
     || {Node, _, #{Source := #{Key := N}}} <- Peers].

%% A connection may end at any moment: then there are no figures of it.
figures(Node, Connection, Busy, Listener, Ticks) ->
    Sent = stat(Node),
    Inet = inet(Connection),
    SentAfter = stat(Node),
    #{inet => Inet, port => port(Connection), proc => proc(Connection), state => #{state => 3},
      stat => SentAfter,
      busy => case Busy of
                  none -> #{};
                  _ -> #{busy => maps:get(Node, Busy, 0)}
              end,
      ticks => case {Sent, Inet, SentAfter} of
                   {#{out := Out}, #{send_cnt := Packets}, #{out := Out}} ->
                       ticks(Packets - Out, Connection, Listener, Ticks);
                   _ ->
                       maps:from_list([{ticks, N} || #{Connection := N} <- [Ticks]])
               end}.

%% The socket counts all packets, the VM those that are messages: the others are the handshake,
%% two packets of who connects and three of who accepts, and ticks. If the VM's count is the same
%% before and after it was its count when the socket was asked.
ticks(Others, Connection, Listener, Ticks) ->
    Handshake = case erlane_dist_node:side(node(), Listener, Connection) of
                    connect -> 2;
                    accept -> 3
                end,
    #{ticks => max(Others - Handshake, maps:get(Connection, Ticks, 0))}.

inet(Port) when is_port(Port) ->
    case inet:getstat(Port) of
        {ok, Stats} -> maps:from_list(Stats);
        {error, _} -> #{}
    end;
inet(_) ->
    #{}.

port(Port) when is_port(Port) ->
    maps:from_list([{Key, N} || Key <- [input, output, memory, queue_size],
                                {_, N} <- [erlang:port_info(Port, Key)]]);
port(_) ->
    #{}.

proc(Port) when is_port(Port) ->
    case erlang:port_info(Port, connected) of
        {connected, Pid} -> proc(Pid);
        undefined -> #{}
    end;
proc(Pid) ->
    case process_info(Pid, [memory, heap_size, total_heap_size, stack_size, message_queue_len,
                            reductions, status]) of
        undefined -> #{};
        Items -> maps:map(fun(status, Status) -> status(Status); (_, N) -> N end,
                          maps:from_list(Items))
    end.

status(exiting) -> 1;
status(suspended) -> 2;
status(runnable) -> 3;
status(garbage_collecting) -> 4;
status(running) -> 5;
status(waiting) -> 6.

%% Undocumented, both: where one of them has changed the figure is not there.
stat(Node) ->
    try
        {ok, _, Out, Queue} = erlang:dist_get_stat(ets:lookup_element(sys_dist, Node, 3)),
        #{out => Out, queue => if is_integer(Queue) -> Queue; true -> 0 end}
    catch
        error:_ -> #{}
    end.
