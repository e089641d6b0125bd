%% SPDX-License-Identifier: Apache-2.0
%% @doc The front door of erlane_socket: lanes, their statistics, relays, and the
%% switch for a whole node. Sockets themselves are used through gen_tcp and inet.
-module(erlane_socket).

-export([lanes/0, lane/0, stats/0, sockets/0, i/0]).
-export([use_everywhere/0, check_options/1]).
-export([send_each/2, send_each/3, forget_room/2, abort/1]).
-export([relay/3, relay_info/1, relay_stop/2]).

-export_type([lane_stats/0, relay/0, relay_options/0, relay_result/0]).
-export_type([send_each_options/0, send_each_result/0]).

-include("erlane_nif.hrl").

-type lane_stats() :: #{lane := pos_integer(), atom() => number()}.
-opaque relay() :: reference().
-type relay_options() ::
        #{to_b => iodata(), to_a => iodata(), idle_timeout => timeout(),
          half_close_timeout => timeout(), half_close => boolean()}.
-type relay_result() ::
        #{reason := normal | reset | idle | half_close | closed | {error, atom()},
          to_b := non_neg_integer(), to_a := non_neg_integer(), ms := non_neg_integer()}.

-type send_each_options() :: #{limit => non_neg_integer(), notify => boolean()}.
-type send_each_result() ::
        {queued, Bytes :: non_neg_integer()}
      | {full, Bytes :: non_neg_integer(), Ticket :: non_neg_integer()}
      | {error, closed | enotconn | einval | emsgsize | enomem}.

%% The order of enum lane_stat in c_src/erlane_sock.h.
-define(STATS, [turns, empty_turns, sleeps, wakes, waits, events, events_min, events_max, stale,
                recv, send, eagain, recv_bytes, send_bytes, accepted, moved, relays, sockets]).

-define(RELAY_WAIT_MS, 5000).
%% Up to here a payload of several pieces is made one binary for all sockets: a vector would be
%% walked by the kernel for each of them.
-define(JOIN_BYTES, 65536).
-define(MAX_PIECES, 16384).

%% @doc The lanes that are open, by the numbers of their schedulers.
-spec lanes() -> [pos_integer()].
lanes() ->
    ok = erlane_lanes:sync(),
    [I || I <- lists:seq(1, erlang:system_info(schedulers)),
          erlane_nif:lane_stats(I) =/= undefined].

%% @doc The lane of the scheduler that runs the caller now.
-spec lane() -> pos_integer() | undefined.
lane() ->
    case erlane_nif:lane_here() of
        0 -> undefined;
        I -> I
    end.

%% @doc What each lane has counted since it was opened.
%%
%% `turns' of the poller and those that were `empty_turns'; `waits', the calls of
%% epoll_wait, with `events' in all and `events_min', `events_max' and
%% `events_mean' per wait that brought some; `sleeps' and `wakes'; `stale' events
%% of closed sockets; the system calls `recv' and `send', how many of them found
%% nothing or no room (`eagain'), and their bytes; sockets `accepted', `moved' to
%% this lane, and open now (`sockets', `relays').
-spec stats() -> [lane_stats()].
stats() ->
    ok = erlane_lanes:check(),
    [maps:put(lane, I, with_mean(maps:from_list(lists:zip(?STATS, Values))))
     || I <- lists:seq(1, erlang:system_info(schedulers)),
        Values <- [erlane_nif:lane_stats(I)], Values =/= undefined].

with_mean(#{events := Events, waits := Waits, empty_turns := _} = Stats) ->
    Busy = max(1, Waits),
    Stats#{events_mean => Events / Busy}.

%% @doc All open sockets of this node.
-spec sockets() -> [erlane_tcp:socket()].
sockets() ->
    [{'$inet', erlane_tcp, Ref} || I <- lanes(), Ref <- erlane_nif:lane_list(I)].

%% @doc Prints a table of all sockets; inet:i/0 does not know them.
-spec i() -> ok.
i() ->
    Rows = [["Lane", "Fd", "Owner", "Recv", "Sent", "Queued", "Local", "Foreign", "State",
             "Packet"]
            | [Row || Socket <- sockets(), Row <- [row(Socket)], Row =/= []]],
    Widths = [lists:max([length(C) || C <- Column]) || Column <- columns(Rows)],
    lists:foreach(fun(Row) ->
                          Cells = [string:pad(C, W) || {C, W} <- lists:zip(Row, Widths)],
                          io:put_chars([string:trim(lists:join("  ", Cells), trailing), $\n])
                  end, Rows).

columns([[] | _]) -> [];
columns(Rows) -> [[hd(R) || R <- Rows] | columns([tl(R) || R <- Rows])].

%% A socket may close while it is asked: then it has no row.
row({_, _, Ref} = Socket) ->
    case {erlane_tcp:info(Socket), erlane_nif:getopt(Ref, ?OPT_LANE),
          erlane_nif:getopt(Ref, ?OPT_FD), erlane_tcp:which_packet_type(Socket)} of
        {#{owner := Owner, counters := #{recv_oct := Recv, send_oct := Sent, send_pend := Queued},
           rstates := [State | _]}, {ok, Lane}, {ok, Fd}, {ok, Packet}} ->
            [integer_to_list(Lane), integer_to_list(Fd), pid_text(Owner),
             integer_to_list(Recv), integer_to_list(Sent), integer_to_list(Queued),
             name(erlane_tcp:sockname(Socket)), name(erlane_tcp:peername(Socket)),
             atom_to_list(State), atom_to_list(Packet)];
        _ ->
            []
    end.

pid_text(undefined) -> "*";
pid_text(Pid) -> pid_to_list(Pid).

name({ok, {local, Path}}) -> binary_to_list(Path);
name({ok, {Ip, Port}}) -> inet:ntoa(Ip) ++ ":" ++ integer_to_list(Port);
name(_) -> "*".

%% @doc Makes erlane_tcp the tcp_module of this node: from now on each
%% gen_tcp:listen and connect without a family atom or a module of its own makes
%% an erlane socket. The line `{tcp, erlane_tcp}.' in the node's inetrc does the
%% same from the start. Distribution stays where it is.
-spec use_everywhere() -> {ok, Previous :: module()} | {error, {inet_backend, socket}}.
use_everywhere() ->
    case persistent_term:get({kernel, inet_backend}, inet) of
        socket ->
            {error, {inet_backend, socket}};
        _ ->
            Previous = inet_db:tcp_module(),
            ok = inet_db:set_tcp_module(erlane_tcp),
            {ok, Previous}
    end.

%% @doc Whether erlane takes these options of listen, connect or setopts; the
%% first that it does not, and why.
-spec check_options([term()]) -> ok | {error, {Key :: term(), Why :: atom()}}.
check_options(Opts) ->
    erlane_opts:check(Opts).

%% @doc As send_each/3 without options.
-spec send_each([erlane_tcp:socket() | {erlane_tcp:socket(), iodata()}], iodata()) ->
          [{erlane_tcp:socket(), send_each_result()}].
send_each(Sockets, Data) ->
    send_each(Sockets, Data, #{}).

%% @doc Sends Data to each socket of a list, or to some what stands beside them: one native call
%% for as many as half a millisecond is enough for. It never waits for a peer, and what is large
%% is shared by all, also while it waits in their queues. Who calls need not own the sockets:
%% what is sent here and by gen_tcp:send/2 is not mixed, and a socket's packet option holds. Empty
%% Data is a question: nothing is sent, not even a packet's length, the answer is as for any other.
%%
%% The answer has those of whom the kernel did not take all. `{queued, Bytes}': Bytes, the rest of
%% Data among them, wait and go out later. `{full, Bytes, Ticket}': more than `limit' bytes
%% (default 0) waited before, and nothing of Data was taken. `{error, Reason}': closed, enotconn,
%% einval (no socket of erlane, or one in a relay), emsgsize (more than its packet length can
%% say). With `notify' (default false, and then the ticket is 0) the caller gets one message for
%% each ticket, when no more than the socket's low_watermark waits or it has ended:
%% `{erlane_async, Ref, Ticket, ok | closed | econnreset}', Ref being the socket's third element.
-spec send_each([erlane_tcp:socket() | {erlane_tcp:socket(), iodata()}], iodata(),
                send_each_options()) -> [{erlane_tcp:socket(), send_each_result()}].
send_each(Sockets, Data, Opts) when length(Sockets) >= 0, is_map(Opts) ->
    each([with_payload(Entry) || Entry <- Sockets], payload(Data), maps:get(limit, Opts, 0),
         maps:get(notify, Opts, false), []).

each(Sockets, Data, Limit, Notify, Odd) ->
    case erlane_nif:send_each(Sockets, Data, Limit, Notify) of
        {[], More} -> More ++ Odd;
        {Rest, More} -> each(Rest, Data, Limit, Notify, More ++ Odd)
    end.

with_payload({Socket, Data}) -> {Socket, payload(Data)};
with_payload(Socket) -> Socket.

payload(Data) when is_binary(Data) -> Data;
payload(Data) ->
    case iolist_size(Data) of
        Size when Size =< ?JOIN_BYTES ->
            iolist_to_binary(Data);
        _ ->
            Pieces = erlang:iolist_to_iovec(Data),
            case length(Pieces) of
                N when N =< ?MAX_PIECES -> Pieces;
                _ -> iolist_to_binary(Pieces)
            end
    end.

%% @doc The message for this ticket of send_each/3 is no longer wanted, and does not come or is
%% taken out of the caller's mailbox.
-spec forget_room(erlane_tcp:socket(), Ticket :: non_neg_integer()) -> ok.
forget_room({'$inet', erlane_tcp, Ref}, Ticket) ->
    _ = erlane_nif:cancel(Ref, Ticket),
    receive {erlane_async, Ref, Ticket, _} -> ok after 0 -> ok end.

%% @doc Resets a connection, whoever owns it, without waiting: for its owner it is as if the peer
%% had done so. What waits in its queue is lost.
-spec abort(erlane_tcp:socket()) -> ok.
abort({'$inet', erlane_tcp, Ref}) ->
    erlane_nif:close_now(Ref, reset).

%% @doc Joins two sockets inside a lane: what comes in on one goes out on the
%% other, with back-pressure and half-close, and no process is woken for it.
%%
%% Both must be connected, passive and owned by the caller, who has no more use
%% of them and gets one message at the end, when both are closed:
%% `{erlane_relay, Relay, Result}'. Bytes that the caller (`to_b' read from A,
%% `to_a' read from B) or the sockets had read already go first. Timeouts are
%% milliseconds and are looked at once a second.
%%
%% Errors: closed, enotconn, not_owner, einval (active, or somebody reads), and
%% timeout when queued output does not drain within five seconds.
-spec relay(erlane_tcp:socket(), erlane_tcp:socket(), relay_options()) ->
          {ok, relay()} | {error, atom() | {Key :: term(), badarg}}.
relay({'$inet', erlane_tcp, A}, {'$inet', erlane_tcp, B}, Opts) when is_map(Opts) ->
    case check_relay(maps:to_list(Opts)) of
        ok ->
            relay(A, B,
                  iolist_to_binary(maps:get(to_b, Opts, [])),
                  iolist_to_binary(maps:get(to_a, Opts, [])),
                  time(maps:get(idle_timeout, Opts, infinity)),
                  time(maps:get(half_close_timeout, Opts, infinity)),
                  maps:get(half_close, Opts, true),
                  erlang:monotonic_time(millisecond) + ?RELAY_WAIT_MS);
        Error ->
            Error
    end.

relay(A, B, ToB, ToA, Idle, Half, HalfClose, Deadline) ->
    case erlane_nif:relay(A, B, ToB, ToA, Idle, Half, HalfClose) of
        eagain ->
            %% its output has not gone out yet, or its lane holds it just now
            case erlang:monotonic_time(millisecond) < Deadline of
                true ->
                    receive after 1 -> ok end,
                    relay(A, B, ToB, ToA, Idle, Half, HalfClose, Deadline);
                false ->
                    {error, timeout}
            end;
        Answer ->
            Answer
    end.

check_relay([{Key, Data} | Rest]) when Key =:= to_a; Key =:= to_b ->
    try iolist_size(Data) of
        _ -> check_relay(Rest)
    catch
        error:badarg -> {error, {Key, badarg}}
    end;
check_relay([{Key, Time} | Rest])
  when Key =:= idle_timeout orelse Key =:= half_close_timeout,
       Time =:= infinity orelse is_integer(Time) andalso Time >= 0 ->
    check_relay(Rest);
check_relay([{half_close, Bool} | Rest]) when is_boolean(Bool) ->
    check_relay(Rest);
check_relay([{Key, _} | _]) ->
    {error, {Key, badarg}};
check_relay([]) ->
    ok.

time(infinity) -> -1;
time(Ms) -> Ms.

%% @doc Bytes delivered so far and milliseconds since the last; undefined when
%% the relay has ended.
-spec relay_info(relay()) ->
          #{to_b := non_neg_integer(), to_a := non_neg_integer(), idle_ms := integer()} | undefined.
relay_info(Relay) ->
    case erlane_nif:relay_info(Relay) of
        {ToB, ToA, Idle} -> #{to_b => ToB, to_a => ToA, idle_ms => Idle};
        undefined -> undefined
    end.

%% @doc Ends a relay: `flush' closes both sides, `reset' resets them. The message
%% at the end still comes.
-spec relay_stop(relay(), flush | reset) -> ok.
relay_stop(Relay, flush) -> erlane_nif:relay_stop(Relay, 1);
relay_stop(Relay, reset) -> erlane_nif:relay_stop(Relay, 2).
