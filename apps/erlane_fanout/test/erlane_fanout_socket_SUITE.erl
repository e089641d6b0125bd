%% SPDX-License-Identifier: Apache-2.0
%% @doc Sockets as subscribers: framing, order, and what becomes of peers that do not read.
-module(erlane_fanout_socket_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([frames/1, options/1, order/1, encoded_once/1, bad_message/1, two_topics/1,
         owner_writes_too/1, stuck_hurts_nobody/1, stuck_is_silent/1, drop_oldest/1,
         drop_newest/1, conflate/1, no_gap_frame/1, disconnect/1, block/1, peer_closes/1,
         owner_ends/1, unsubscribed/1, memory_bound/1]).

%% Small buffers: the kernel takes little.
-define(SMALL, [{sndbuf, 4096}, {recbuf, 4096}]).
-define(WAIT, 5000).

suite() -> [{timetrap, {seconds, 30}}].

all() ->
    [frames, options, order, encoded_once, bad_message, two_topics, owner_writes_too,
     stuck_hurts_nobody, stuck_is_silent, drop_oldest, drop_newest, conflate, no_gap_frame,
     disconnect, block, peer_closes, owner_ends, unsubscribed, memory_bound].

init_per_suite(Config) ->
    {ok, Sockets} = application:ensure_all_started(erlane_socket),
    {ok, Fanout} = application:ensure_all_started(erlane_fanout),
    [{started, Sockets ++ Fanout} | Config].

end_per_suite(Config) ->
    [ok = application:stop(App) || App <- lists:reverse(proplists:get_value(started, Config))],
    ok.

%%% What the cases share

%% `{Peer, Socket, Owner, Sub}': the owner subscribes; the peer is a passive stock socket.
join(Topic, Opts) -> join(Topic, Opts, []).

join(Topic, Opts, Buffers) ->
    {Peer, Socket} = connection(Buffers),
    {Owner, {ok, Sub, _}} = owned(Socket, Topic, Opts),
    {Peer, Socket, Owner, Sub}.

connection(Buffers) ->
    Lanes = [{inet_backend, inet}, {tcp_module, erlane_tcp}],
    {ok, L} = gen_tcp:listen(0, Lanes ++ [binary, {active, false}, {ip, {127, 0, 0, 1}}
                                          | Buffers]),
    {ok, Port} = inet:port(L),
    {ok, Peer} = gen_tcp:connect({127, 0, 0, 1}, Port, [{inet_backend, inet}, binary,
                                                        {active, false} | Buffers]),
    {ok, Socket} = gen_tcp:accept(L, ?WAIT),
    ok = gen_tcp:close(L),
    {Peer, Socket}.

owned(Socket, Topic, #{framing := Framing} = Opts) ->
    Test = self(),
    Full = (maps:remove(framing, Opts))#{mode => {socket, Socket, Framing}},
    Owner = spawn_link(fun() ->
        receive go -> ok end,
        Test ! {self(), erlane_fanout:subscribe(Topic, Full)},
        owner(Socket, Test)
    end),
    ok = gen_tcp:controlling_process(Socket, Owner),
    Owner ! go,
    receive {Owner, Answer} -> {Owner, Answer} after ?WAIT -> error(no_answer) end.

owner(Socket, Test) ->
    receive
        {do, Fun} -> Test ! {self(), Fun()}, owner(Socket, Test);
        stop -> ok;
        Message -> Test ! {self(), got, Message}, owner(Socket, Test)
    end.

ask(Owner, Fun) ->
    Owner ! {do, Fun},
    receive {Owner, Answer} -> Answer after ?WAIT -> error(no_answer) end.

topic() -> iolist_to_binary(["socket/", integer_to_list(erlang:unique_integer([positive]))]).

publish(Topic, Messages) ->
    [ok = erlane_fanout:publish_local(Topic, M) || M <- Messages],
    ok.

read(Peer, Bytes) ->
    {ok, Data} = gen_tcp:recv(Peer, Bytes, ?WAIT),
    Data.

wait_until(Fun) -> wait_until(Fun, erlang:monotonic_time(millisecond) + ?WAIT).

wait_until(Fun, End) ->
    case Fun() of
        true -> ok;
        false ->
            erlang:monotonic_time(millisecond) < End orelse error(condition_not_met),
            receive after 5 -> wait_until(Fun, End) end
    end.

%% A message with a number, of so many bytes.
message(N, Size) -> <<N:32, 0:((Size - 4) * 8)>>.

gap(From, To) -> <<"GAP", From:32, To:32>>.

%% Messages and gaps as a peer sees them, up to message Last: lengths are in front.
seen(Peer, Last) ->
    <<Size:32>> = read(Peer, 4),
    case read(Peer, Size) of
        <<"GAP", From:32, To:32>> -> [{gap, From, To} | seen(Peer, Last)];
        <<Last:32, _/binary>> -> [Last];
        <<N:32, _/binary>> -> [N | seen(Peer, Last)]
    end.

%% Every number from Next to the last is in a message or in one gap, and in order.
contiguous([{gap, From, To} | Rest], Next) when From =:= Next, To >= From ->
    contiguous(Rest, To + 1);
contiguous([N | Rest], N) when is_integer(N) -> contiguous(Rest, N + 1);
contiguous([], _) -> ok;
contiguous([Other | _], Next) -> error({hole, Next, Other}).

counted() -> {raw, fun(M) -> [<<(byte_size(M)):32>>, M] end}.

%%% Cases

%% Each framing, at both sides of its limits.
frames(_Config) ->
    F = fun(Framing, M) -> iolist_to_binary(erlane_fanout_frame:frame(Framing, M)) end,
    ?assertEqual(<<"abc">>, F(raw, ["a", <<"bc">>])),
    [begin
         Body = binary:copy(<<"x">>, N),
         ?assertEqual(<<16#81, Head/binary, Body/binary>>, F(ws_text, Body)),
         ?assertEqual(<<16#82, Head/binary, Body/binary>>, F(ws_binary, [Body]))
     end || {N, Head} <- [{0, <<0>>}, {125, <<125>>}, {126, <<126, 126:16>>},
                          {65535, <<126, 65535:16>>}, {65536, <<127, 65536:64>>}]],
    ?assertEqual(<<"data: a\n\n">>, F(sse, "a")),
    ?assertEqual(<<"data: \n\n">>, F(sse, "")),
    ?assertEqual(<<"data: a\ndata: b\ndata: \ndata: c\n\n">>, F(sse, "a\r\nb\r\rc")),
    ?assertEqual(<<16#81, 1, "7">>, F({ws_text, fun integer_to_binary/1}, 7)),
    [?assertError(badarg, F(P, tuple)) || P <- [raw, ws_text, ws_binary, sse]],
    ok.

%% What is refused at the door, by the name of its option.
options(_Config) ->
    {_, Socket} = connection([]),
    {ok, Listen} = gen_tcp:listen(0, [{inet_backend, inet}, {tcp_module, erlane_tcp}]),
    {ok, Stock} = gen_tcp:listen(0, [{inet_backend, inet}]),
    {_, Closed} = connection([]),
    ok = gen_tcp:close(Closed),
    Subscribe = fun(S, Framing, More) ->
                        erlane_fanout:subscribe(topic(), More#{mode => {socket, S, Framing}})
                end,
    ?assertEqual({error, {mode, {badarg, html}}}, Subscribe(Socket, html, #{})),
    ?assertEqual({error, {mode, {badarg, {raw, x}}}}, Subscribe(Socket, {raw, x}, #{})),
    ?assertEqual({error, {mode, {badarg, Stock}}}, Subscribe(Stock, raw, #{})),
    ?assertEqual({error, {mode, {badarg, self()}}}, Subscribe(self(), raw, #{})),
    ?assertEqual({error, {mode, enotconn}}, Subscribe(Listen, raw, #{})),
    ?assertEqual({error, {mode, closed}}, Subscribe(Closed, raw, #{})),
    ?assertEqual({error, {gap_frame, {badarg, x}}}, Subscribe(Socket, raw, #{gap_frame => x})),
    {ok, Sub, _} = Subscribe(Socket, {sse, fun(_) -> "" end}, #{gap_frame => ["gap"]}),
    ok = erlane_fanout:unsubscribe(Sub).

%% All get all, in order, whatever their framing and wherever their owners' lanes are.
order(_Config) ->
    Topic = topic(),
    Raw = [join(Topic, #{framing => raw}) || _ <- lists:seq(1, 300)],
    {Web, _, _, _} = join(Topic, #{framing => ws_binary}),
    {Events, _, _, _} = join(Topic, #{framing => {sse, fun binary:encode_hex/1}}),
    Messages = [message(N, 64) || N <- lists:seq(1, 200)],
    publish(Topic, Messages),
    All = iolist_to_binary(Messages),
    [?assertEqual(All, read(Peer, byte_size(All))) || {Peer, _, _, _} <- Raw],
    Frames = << <<16#82, 64, M/binary>> || M <- Messages >>,
    ?assertEqual(Frames, read(Web, byte_size(Frames))),
    Text = << <<"data: ", (binary:encode_hex(M))/binary, "\n\n">> || M <- Messages >>,
    ?assertEqual(Text, read(Events, byte_size(Text))).

%% The function runs once in each lane, not for each socket.
encoded_once(_Config) ->
    Topic = topic(),
    Counter = counters:new(1, []),
    Encode = fun(M) -> counters:add(Counter, 1, 1), M end,
    All = [join(Topic, #{framing => {raw, Encode}}) || _ <- lists:seq(1, 50)],
    publish(Topic, ["x"]),
    [?assertEqual(<<"x">>, read(Peer, 1)) || {Peer, _, _, _} <- All],
    ?assert(counters:get(Counter, 1) =< erlang:system_info(schedulers_online)).

%% What cannot be framed is left out; lane and subscriptions go on.
bad_message(_Config) ->
    Topic = topic(),
    {Peer, _, _, _} = join(Topic, #{framing => raw}),
    {Peer2, _, _, _} = join(Topic, #{framing => {raw, fun(M) -> [1, M] end}}),
    ok = logger:add_primary_filter(?MODULE, {fun(_, _) -> stop end, []}),
    publish(Topic, ["a", {no, iodata}, [-1], "b"]),
    ?assertEqual(<<"ab">>, read(Peer, 2)),
    ?assertEqual(<<1, "a", 1, "b">>, read(Peer2, 4)),
    ok = logger:remove_primary_filter(?MODULE).

%% One socket, two subscriptions.
two_topics(_Config) ->
    {One, Two} = {topic(), topic()},
    {Peer, Socket, Owner, _} = join(One, #{framing => raw}),
    {ok, Sub, _} = ask(Owner, fun() ->
                           erlane_fanout:subscribe(Two, #{mode => {socket, Socket, raw}})
                       end),
    publish(One, ["1"]),
    ?assertEqual(<<"1">>, read(Peer, 1)),
    publish(Two, ["2"]),
    ?assertEqual(<<"2">>, read(Peer, 1)),
    ok = erlane_fanout:unsubscribe(Sub),
    publish(Two, ["3"]),
    publish(One, ["4"]),
    ?assertEqual(<<"4">>, read(Peer, 1)).

%% Lane and owner write whole frames to a socket that is often full.
owner_writes_too(_Config) ->
    Topic = topic(),
    {Peer, Socket, Owner, _} = join(Topic, #{framing => counted(), limit => infinity}, ?SMALL),
    Own = [[<<1000:32>>, message(-N band 16#ffffffff, 1000)] || N <- lists:seq(1, 300)],
    Owner ! {do, fun() -> [ok = gen_tcp:send(Socket, F) || F <- Own], sent end},
    publish(Topic, [message(N, 500 + N) || N <- lists:seq(1, 300)]),
    Seen = [begin <<Size:32>> = read(Peer, 4), <<N:32/signed, _/binary>> = read(Peer, Size), N end
            || _ <- lists:seq(1, 600)],
    ?assertEqual(lists:seq(1, 300), [N || N <- Seen, N > 0]),
    ?assertEqual(lists:seq(1, 300), [-N || N <- Seen, N < 0]),
    receive {Owner, sent} -> ok after ?WAIT -> error(owner_stuck) end.

%% One in ten never reads: the others get everything.
stuck_hurts_nobody(_Config) ->
    Topic = topic(),
    Stuck = [join(Topic, #{framing => counted(), limit => 50000, gap_frame => fun gap/2}, ?SMALL)
             || _ <- lists:seq(1, 5)],
    Good = [join(Topic, #{framing => counted(), limit => infinity}) || _ <- lists:seq(1, 45)],
    Messages = [message(N, 5000) || N <- lists:seq(1, 200)],
    publish(Topic, Messages),
    [?assertEqual(lists:seq(1, 200), seen(Peer, 200)) || {Peer, _, _, _} <- Good],
    [begin
         Seen = seen(Peer, 200),
         ok = contiguous(Seen, 1),
         ?assertMatch([_], [G || {gap, _, _} = G <- Seen])
     end || {Peer, _, _, _} <- Stuck],
    ok.

%% While a peer does not read and nothing is published the lanes do nothing at all.
stuck_is_silent(_Config) ->
    Topic = topic(),
    {Peer, Socket, _, _} = join(Topic, #{framing => counted(), limit => 10000,
                                         gap_frame => fun gap/2}, ?SMALL),
    publish(Topic, [message(N, 5000) || N <- lists:seq(1, 50)]),
    Lanes = [P || P <- processes(),
                  {_, {erlane_fanout_lane, _, _}} <- [process_info(P, current_function)]],
    ?assert(length(Lanes) > 0),
    wait_until(fun() -> {ok, [{send_pend, N}]} = inet:getstat(Socket, [send_pend]), N > 0 end),
    Work = fun() -> [process_info(P, reductions) || P <- Lanes] end,
    wait_until(fun() -> Before = Work(), receive after 100 -> Before =:= Work() end end),
    Last = [_ | _] = seen(Peer, 50),
    ok = contiguous(Last, 1).

%% The last that fit come, after one gap.
drop_oldest(_Config) ->
    Seen = slow(#{policy => drop_oldest}),
    [{gap, _, To}] = [G || {gap, _, _} = G <- Seen],
    ?assert(100 - To =< 20),
    ?assert(100 - To >= 5).

%% Nothing of what came meanwhile: the gap reaches to the last before it was read again.
drop_newest(_Config) ->
    Seen = slow(#{policy => drop_newest}),
    ?assertMatch([{gap, _, 100}], [G || {gap, _, _} = G <- Seen]).

%% The last message of each key.
conflate(_Config) ->
    Key = fun(<<N:32, _/binary>>) -> N rem 3 end,
    Seen = slow(#{policy => {conflate, Key}}),
    Numbers = [N || N <- Seen, is_integer(N)],
    ?assertEqual([98, 99, 100, 101], lists:nthtail(length(Numbers) - 4, Numbers)),
    ?assertMatch([_], [G || {gap, _, _} = G <- Seen]).

%% A hundred messages to somebody who reads only afterwards, then one more. What was seen.
slow(Opts) ->
    Topic = topic(),
    {Peer, Socket, _, _} = join(Topic, Opts#{framing => counted(), limit => 20000,
                                             gap_frame => fun gap/2}, ?SMALL),
    {Good, _, _, _} = join(Topic, #{framing => counted(), limit => infinity}),
    publish(Topic, [message(N, 1000) || N <- lists:seq(1, 100)]),
    ?assertEqual(lists:seq(1, 100), seen(Good, 100)),
    Before = seen_so_far(Peer, Socket),
    publish(Topic, [message(101, 1000)]),
    Seen = Before ++ seen(Peer, 101),
    ok = contiguous(Seen, 1),
    Seen.

%% What comes until the kernel has all that was for it.
seen_so_far(Peer, Socket) ->
    case gen_tcp:recv(Peer, 4, 100) of
        {ok, <<Size:32>>} ->
            case read(Peer, Size) of
                <<"GAP", From:32, To:32>> -> [{gap, From, To} | seen_so_far(Peer, Socket)];
                <<N:32, _/binary>> -> [N | seen_so_far(Peer, Socket)]
            end;
        {error, timeout} ->
            {ok, [{send_pend, 0}]} = inet:getstat(Socket, [send_pend]),
            []
    end.

%% A gap that nobody can tell the peer of ends the connection.
no_gap_frame(_Config) ->
    Topic = topic(),
    {Peer, _, Owner, Sub} = join(Topic, #{framing => raw, limit => 10000}, ?SMALL),
    publish(Topic, [message(N, 5000) || N <- lists:seq(1, 100)]),
    ?assertEqual({error, closed}, to_end(Peer)),
    receive {Owner, got, {fan, Sub, slow_consumer}} -> ok after ?WAIT -> error(not_told) end.

to_end(Peer) ->
    case gen_tcp:recv(Peer, 0, ?WAIT) of
        {ok, _} -> to_end(Peer);
        Error -> Error
    end.

%% At once, without waiting for room; the owner, active, sees it like a reset by the peer.
disconnect(_Config) ->
    Topic = topic(),
    {Peer, Socket, Owner, Sub} = join(Topic, #{framing => raw, limit => 10000,
                                               policy => disconnect}, ?SMALL),
    ok = ask(Owner, fun() -> inet:setopts(Socket, [{active, once}]) end),
    publish(Topic, [message(N, 5000) || N <- lists:seq(1, 100)]),
    receive {Owner, got, {fan, Sub, slow_consumer}} -> ok after ?WAIT -> error(not_told) end,
    receive {Owner, got, {tcp_closed, Socket}} -> ok after ?WAIT -> error(not_told) end,
    ?assertEqual({error, closed}, to_end(Peer)).

%% Publishers wait until the peer reads; nothing is lost.
block(_Config) ->
    Topic = topic(),
    {Peer, _, _, _} = join(Topic, #{framing => counted(), limit => 20000, policy => block}, ?SMALL),
    Test = self(),
    %% Slowly, so that the lane has its turns meanwhile.
    spawn_link(fun() ->
        [begin
             publish(Topic, [message(N, 5000)]),
             receive after 1 -> ok end
         end || N <- lists:seq(1, 300)],
        Test ! published
    end),
    wait_until(fun() -> ets:lookup_element(erlane_fanout_routes, Topic, 3) > 0 end),
    receive published -> error(did_not_wait) after 500 -> ok end,
    ?assertEqual(lists:seq(1, 300), seen(Peer, 300)),
    receive published -> ok after ?WAIT -> error(publisher_stuck) end.

%% A connection that the peer ends leaves nothing behind.
peer_closes(_Config) ->
    Topic = topic(),
    {Peer, _, Owner, Sub} = join(Topic, #{framing => raw}),
    ok = gen_tcp:close(Peer),
    wait_until(fun() ->
                   publish(Topic, ["x"]),
                   receive {Owner, got, {fan, Sub, slow_consumer}} -> true after 0 -> false end
               end),
    ?assertEqual([], ets:lookup(erlane_fanout_routes, Topic)).

owner_ends(_Config) ->
    Topic = topic(),
    {Peer, _, Owner, _} = join(Topic, #{framing => raw}),
    publish(Topic, ["x"]),
    ?assertEqual(<<"x">>, read(Peer, 1)),
    Owner ! stop,
    ?assertEqual({error, closed}, gen_tcp:recv(Peer, 0, ?WAIT)),
    wait_until(fun() -> ets:lookup(erlane_fanout_routes, Topic) =:= [] end).

%% Nothing is written after unsubscribe has returned, not even what had been held back.
unsubscribed(_Config) ->
    Topic = topic(),
    {Peer, Socket, Owner, Sub} = join(Topic, #{framing => counted(), limit => 20000}, ?SMALL),
    publish(Topic, [message(N, 5000) || N <- lists:seq(1, 50)]),
    ok = erlane_fanout:unsubscribe(Sub),
    publish(Topic, [message(51, 100)]),
    Owner ! {do, fun() -> gen_tcp:send(Socket, [<<100:32>>, message(99, 100)]) end},
    Seen = seen(Peer, 99),
    ?assertEqual(lists:seq(1, length(Seen) - 1), lists:droplast(Seen)),
    ?assert(length(Seen) < 50).

%% No queue passes its limit by more than a message.
memory_bound(_Config) ->
    Topic = topic(),
    All = [join(Topic, #{framing => raw, limit => 30000, gap_frame => "gap"}, ?SMALL)
           || _ <- lists:seq(1, 20)],
    {Good, _, _, _} = join(Topic, #{framing => counted(), limit => infinity}),
    publish(Topic, [message(N, 1000) || N <- lists:seq(1, 500)]),
    ?assertEqual(lists:seq(1, 500), seen(Good, 500)),
    Pending = [N || {_, S, _, _} <- All, {ok, [{send_pend, N}]} <- [inet:getstat(S, [send_pend])]],
    ?assertEqual(20, length(Pending)),
    ?assert(lists:max(Pending) =< 30000),
    ?assert(lists:min(Pending) > 0).
