%% SPDX-License-Identifier: Apache-2.0
%% @doc Collector of the distribution: bytes and queue of the connection to each node.
%%
%% A connection over TCP is a port, of which the VM counts the bytes. One with a carrier of its
%% own, TLS for instance, is a process: of that only its mailbox can be seen.
-module(erlane_metrics_dist).
-behaviour(erlane_metrics_collector).

-export([families/1, collect/1]).

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(_Options) ->
    Node = #{labels => [<<"node">>]},
    Bytes = Node#{unit => <<"bytes">>},
    [{gauge, Node#{name => <<"erlang_dist_connected">>,
                   help => <<"1 for each node that is connected">>}},
     {counter, Bytes#{name => <<"erlang_dist_received">>, help => <<"Received from a node">>}},
     {counter, Bytes#{name => <<"erlang_dist_sent">>, help => <<"Sent to a node">>}},
     {gauge, Bytes#{name => <<"erlang_dist_queue">>,
                    help => <<"Waits in the port of the connection for the network">>}},
     {gauge, Node#{name => <<"erlang_dist_mailbox_messages">>,
                   help => <<"Waits in the mailbox of a process that is the connection">>}},
     {gauge, #{name => <<"erlang_dist_busy_limit">>, unit => <<"bytes">>,
               help => <<"A connection with more in its queue suspends those who send">>}}].

%% @private
-spec collect(map()) -> {[{binary(), erlane_metrics_collected:values()}], map()}.
collect(Options) ->
    Connections = [{Node, figures(Entity)}
                   || {Node, Entity} <- lists:sort(erlang:system_info(dist_ctrl))],
    Of = fun(Key) -> [{[Node], N} || {Node, #{Key := N}} <- Connections] end,
    {[{<<"erlang_dist_connected">>, [{[Node], 1} || {Node, _} <- Connections]},
      {<<"erlang_dist_received">>, Of(received)},
      {<<"erlang_dist_sent">>, Of(sent)},
      {<<"erlang_dist_queue">>, Of(queue)},
      {<<"erlang_dist_mailbox_messages">>, Of(mailbox)},
      {<<"erlang_dist_busy_limit">>, erlang:system_info(dist_buf_busy_limit)}], Options}.

%% A connection may end at any moment: then there are no figures of it.
figures(Port) when is_port(Port) ->
    case {inet:getstat(Port, [recv_oct, send_oct]), erlang:port_info(Port, queue_size)} of
        {{ok, [{_, Received}, {_, Sent}]}, {queue_size, Queue}} ->
            #{received => Received, sent => Sent, queue => Queue};
        _ ->
            #{}
    end;
figures(Pid) ->
    case process_info(Pid, message_queue_len) of
        {_, N} -> #{mailbox => N};
        undefined -> #{}
    end.
