%% SPDX-License-Identifier: Apache-2.0
%% @doc The process that a lane of another node sends to, started by the gate.
%%
%% It ends with its lane, and with the connection. A lane that comes back gets a new partner,
%% which waits until the one before has delivered what had arrived: so the order holds. Who watches
%% hears of it before anything that it delivers.
-module(erlane_router_partner).

-export([start_link/4, watch/1, unwatch/1]).

-include("erlane_router.hrl").

%% It confirms after so many messages or bytes.
-define(CONFIRM_MESSAGES, 64).
-define(CONFIRM_BYTES, 65536).
%% Names of those who watch. There is no key until somebody does.
-define(WATCH, {?MODULE, watch}).

-record(partner, {lane :: pid(), monitor :: reference(),
                  %% All messages of its lane, and of these: confirmed, and bytes since then.
                  count = 0 :: non_neg_integer(), confirmed = 0 :: non_neg_integer(),
                  bytes = 0 :: non_neg_integer()}).

%% @doc See {@link erlane_router:watch/1}.
-spec watch([atom()]) -> ok.
watch(Names) -> watched(lists:usort(Names ++ watched())).

%% @doc See {@link erlane_router:unwatch/1}.
-spec unwatch([atom()]) -> ok.
unwatch(Names) -> watched(watched() -- Names).

watched() -> persistent_term:get(?WATCH, []).

watched([]) ->
    _ = persistent_term:erase(?WATCH),
    ok;
watched(Names) -> persistent_term:put(?WATCH, Names).

%% @doc A partner of this lane, the I-th one, for its hello with this reference; and who was its
%% partner before.
-spec start_link(pid(), pos_integer(), reference(), pid() | none) -> pid().
start_link(Lane, I, Ref, Before) ->
    %% A burst of frames is not copied again at each collection of garbage.
    spawn_opt(fun() -> init(Lane, I, Ref, Before) end, [link, {message_queue_data, off_heap}]).

init(Lane, I, Ref, Before) ->
    Monitor = monitor(process, Lane),
    Lane ! {?GATE, welcome, Ref, self(), ?VERSION},
    wait_for(Before),
    lists:foreach(fun(Name) -> {Name, node()} ! {erlane_router, stream, node(Lane), I} end,
                  watched()),
    loop(#partner{lane = Lane, monitor = Monitor}).

wait_for(none) -> ok;
wait_for(Before) ->
    Ref = monitor(process, Before),
    receive {'DOWN', Ref, process, _, _} -> ok end.

loop(#partner{monitor = Monitor} = P) ->
    receive
        {erlane_router_frame, ?VERSION, Count, Bytes, Entries}
          when is_integer(Count), Count >= 0, is_integer(Bytes), Bytes >= 0 ->
            bad(erlane_router_frame:deliver(Entries)),
            loop(count(P, Count, Bytes), Bytes);
        confirm ->
            loop(confirm(P));
        {'DOWN', Monitor, process, _, _} ->
            ok;
        %% From the gate: there is a next one, which waits for this.
        {?GATE, last} ->
            ok;
        _ ->
            bad(1),
            loop(P)
    end.

%% After a large frame nothing of it stays, however long the next one takes to come.
loop(P, Bytes) when Bytes >= ?CONFIRM_BYTES ->
    true = garbage_collect(),
    loop(P);
loop(P, _) ->
    loop(P).

count(#partner{count = Count, confirmed = Confirmed, bytes = Bytes} = P, N, B) ->
    P1 = P#partner{count = Count + N, bytes = Bytes + B},
    if
        Count + N - Confirmed >= ?CONFIRM_MESSAGES; Bytes + B >= ?CONFIRM_BYTES -> confirm(P1);
        true -> P1
    end.

confirm(#partner{lane = Lane, count = Count} = P) ->
    _ = erlang:send(Lane, {?GATE, confirmed, self(), Count}, [noconnect]),
    P#partner{confirmed = Count, bytes = 0}.

bad(0) -> ok;
bad(N) -> erlane_router_gate:malformed(N).
