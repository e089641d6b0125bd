%% SPDX-License-Identifier: Apache-2.0
%% A receiving node is stopped with SIGSTOP while senders go on at full load: its connection
%% stays, nothing is read. The router's memory keeps within its bound, senders do what the policy
%% says, and nothing else slows. ROUTER_FROZEN_S keeps it stopped for so many seconds.
-module(router_frozen_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([block/1, drop_newest/1, nosuspend/1, larger_than_bound/1, killed/1, lists/1]).

-define(MB, 1048576).
-define(BOUND, ?MB).
-define(LANES, 4).
%% Of the VM, for what was handed to it: +zdbbl in KB.
-define(VM_KB, 1024).
%% A message in a lane takes more than its bytes on the wire: a tuple, a list cell, a heap.
-define(FACTOR, 4).

suite() -> [{timetrap, {seconds, 60 + seconds()}}].

all() -> [block, drop_newest, nosuspend, larger_than_bound, killed, lists].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Config.

end_per_suite(_) ->
    router_nodes:close().

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% Senders wait, and lose nothing.
block(_) ->
    {A, B, C} = three(block),
    {Streams, Before} = load(A, B, #{}),
    ok = router_nodes:freeze(B),
    ok = full(A, B),
    At = still(Streams),
    ok = bounded(A, B, Before),
    ok = unaffected(A, C),
    ok = stay(fun() -> bounded(A, B, Before) end),
    ?assertEqual(At, [router_check:progress(S) || S <- Streams]),
    ok = router_nodes:thaw(B),
    [ok = router_check:moving_on(S) || S <- Streams],
    balanced(Streams),
    ?assertEqual({0, 0}, router_check:reported(A, B)).

%% Senders go on; what finds no room is reported, to the last message.
drop_newest(_) ->
    {A, B, C} = three(drop_newest),
    {Streams, Before} = load(A, B, #{every => 50, pause => 10}),
    ok = router_nodes:freeze(B),
    ok = full(A, B),
    [router_check:moving(S, router_check:progress(S) + 200) || S <- Streams],
    ok = bounded(A, B, Before),
    ok = unaffected(A, C),
    ok = stay(fun() -> bounded(A, B, Before) end),
    ok = router_nodes:thaw(B),
    [ok = router_check:moving_on(S) || S <- Streams],
    balanced(Streams),
    {Dropped, 0} = router_check:reported(A, B),
    ?assert(Dropped > 0).

%% A sender that does not want to wait is told so, and what it was told went, went.
nosuspend(_) ->
    {A, B, C} = three(block),
    {Streams, Before} = load(A, B, #{options => [nosuspend], every => 50, pause => 10}),
    ok = router_nodes:freeze(B),
    ok = full(A, B),
    [router_check:moving(S, router_check:progress(S) + 200) || S <- Streams],
    ok = bounded(A, B, Before),
    ok = unaffected(A, C),
    [Pid] = router_check:receivers(hd(Streams)),
    %% From as many processes as there are lanes, and more.
    Answers = [router_nodes:call(A, router_node, send, [Pid, {m, none, 0, [], <<0:20000/unit:8>>},
                                                        [nosuspend]])
               || _ <- lists:seq(1, 4 * ?LANES)],
    ?assert(lists:member({not_sent, #{router_nodes:node(B) => nosuspend}}, Answers)),
    ok = router_nodes:thaw(B),
    [ok = router_check:moving_on(S) || S <- Streams],
    [router_check:finish(S) || S <- Streams],
    ok = router_check:synced(A, B),
    Sent = lists:sum([router_check:finish(S) || S <- Streams]),
    ?assertEqual(Sent, lists:sum([router_check:received_count(S) || S <- Streams])),
    ?assertEqual({0, 0}, router_check:reported(A, B)).

%% Messages of more than the bound go alone.
larger_than_bound(_) ->
    {A, B, C} = three(block),
    Sizes = [3 * ?BOUND, 100, ?BOUND - 100, ?BOUND, ?BOUND + 100],
    Streams = [router_check:stream(A, B, #{limit => 20, sizes => Sizes, every => 20})
               || _ <- lists:seq(1, 3)],
    [router_check:moving(S, 2) || S <- Streams],
    ok = router_nodes:freeze(B),
    ok = unaffected(A, C),
    ok = router_nodes:thaw(B),
    [ok = router_check:arrived(S, 20) || S <- Streams],
    balanced(Streams).

%% The frozen node is killed: who waited is let go, and what was in the lanes is reported.
killed(_) ->
    {A, B, C} = three(block),
    {Streams, _} = load(A, B, #{}),
    ok = router_nodes:freeze(B),
    ok = full(A, B),
    _ = still(Streams),
    ok = router_nodes:kill(B),
    [router_check:moving(S, router_check:progress(S) + 100) || S <- Streams],
    Sent = lists:sum([router_check:finish(S) || S <- Streams]),
    ok = router_nodes:until(
           fun() ->
                   Confirmed = router_nodes:call(A, router_node, confirmed, [router_nodes:node(B)]),
                   {Dropped, Unconfirmed} = router_check:reported(A, B),
                   ?assertEqual(Sent, Confirmed + Dropped + Unconfirmed)
           end),
    ok = unaffected(A, C).

%% Lists over several nodes, one of them frozen: with nosuspend the others get their copies.
lists(_) ->
    {A, B, C} = three(block),
    {Streams, _} = load(A, B, #{}),
    ok = router_nodes:freeze(B),
    ok = full(A, B),
    [PidB] = router_check:receivers(hd(Streams)),
    PidC = router_nodes:call(C, router_node, receiver, [undefined]),
    List = router_check:stream(A, C, #{limit => 500, receivers => [PidC],
                                       targets => [[PidB, PidC]], options => [nosuspend]}),
    ok = router_check:arrived(List, 500),
    ok = router_nodes:thaw(B),
    [ok = router_check:moving_on(S) || S <- Streams],
    balanced([List]).

%% Nodes

three(Policy) ->
    Options = #{tick => 60 + 2 * seconds(),
                env => [{bound, ?BOUND}, {lanes, ?LANES}, {policy, Policy}],
                args => ["+zdbbl", integer_to_list(?VM_KB)]},
    list_to_tuple(router_nodes:start_all([{Name, Options} || Name <- [a, b, c]])).

%% As much as they can: some senders in the lanes that are theirs, and for each lane one with a
%% key, so that every lane has its load; what the VM holds before.
load(A, B, Options) ->
    Before = router_nodes:call(A, router_node, memory, []),
    Keys = [hd([K || K <- lists:seq(1, 1000), erlang:phash2(K, ?LANES) =:= I])
            || I <- lists:seq(0, ?LANES - 1)],
    More = maps:get(options, Options, []),
    Spec = Options#{every => maps:get(every, Options, 1000)},
    Streams = [router_check:stream(A, B, Spec#{sizes => Sizes})
               || Sizes <- [[0], [100, 5000], [0, 20000], [64, 3000], [100000, 0], [15000]]] ++
        [router_check:stream(A, B, Spec#{sizes => [1000], options => [{key, Key} | More]})
         || Key <- Keys],
    [router_check:moving(S, 200) || S <- Streams],
    {Streams, Before}.

%% Every lane is held up by the connection, with messages waiting.
full(A, B) ->
    Look = fun() ->
                   [{Batches, Bytes > 0}
                    || #{batches := Batches, bytes := Bytes} <-
                           router_nodes:call(A, router_node, lanes, [router_nodes:node(B)])]
           end,
    router_nodes:until(fun() ->
                               Before = Look(),
                               receive after 300 -> ok end,
                               ?assertEqual(Before, Look()),
                               ?assertEqual([], [Lane || {_, false} = Lane <- Before])
                       end).

%% Waits until nobody sends any more; how far they are.
still(Streams) ->
    router_nodes:until(fun() ->
                               At = [router_check:progress(S) || S <- Streams],
                               receive after 300 -> ok end,
                               At = [router_check:progress(S) || S <- Streams]
                       end).

%% Encoded bytes never pass the bound; memory follows them. A sender that finds no room charges
%% first and takes it back, so it is the least of some looks that counts.
bounded(A, B, Before) ->
    Looks = [[Bytes || #{bytes := Bytes} <- router_nodes:call(A, router_node, lanes,
                                                              [router_nodes:node(B)])]
             || _ <- lists:seq(1, 50)],
    Least = lists:foldl(fun(Look, Min) -> lists:zipwith(fun erlang:min/2, Look, Min) end,
                        hd(Looks), Looks),
    ?assertEqual([], [Bytes || Bytes <- Least, Bytes > ?BOUND]),
    Now = router_nodes:call(A, router_node, memory, []),
    Allowed = ?FACTOR * (?LANES * ?BOUND + ?VM_KB * 1024) + 8 * ?MB,
    ct:pal("memory ~b before, ~b now, ~b more allowed", [Before, Now, Allowed]),
    ?assert(Now - Before =< Allowed),
    ok.

%% Again and again while it lasts, and once at least.
stay(Check) ->
    stay(Check, erlang:monotonic_time(second) + seconds()).

stay(Check, Until) ->
    ok = Check(),
    case erlang:monotonic_time(second) >= Until of
        true -> ok;
        false -> receive after 1000 -> stay(Check, Until) end
    end.

seconds() ->
    list_to_integer(os:getenv("ROUTER_FROZEN_S", "0")).

unaffected(A, C) ->
    Other = router_check:stream(A, C, #{limit => 5000, sizes => [0, 100]}),
    ok = router_check:arrived(Other, 5000),
    ok = router_check:synced(A, C).

balanced(Streams) ->
    ct:pal("~p", [router_check:balanced(Streams)]).
