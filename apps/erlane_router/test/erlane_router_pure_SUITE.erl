%% SPDX-License-Identifier: Apache-2.0
%% What needs no other node: the configuration, destinations, what is made of frames.
-module(erlane_router_pure_SUITE).

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([defaults_hold/1, bad_options_are_named/1, bad_start_names_the_key/1,
         destinations/1, groups_by_node/1, bad_lists/1,
         delivers/1, delivers_many/1, malformed_entries/1, packs/1,
         not_started/1, local_sends/1, properties/1]).

-include_lib("stdlib/include/assert.hrl").

all() ->
    [defaults_hold, bad_options_are_named, bad_start_names_the_key, destinations, groups_by_node,
     bad_lists, delivers, delivers_many, malformed_entries, packs, not_started, local_sends,
     properties].

init_per_suite(Config) -> Config.

end_per_suite(_) ->
    _ = application:stop(erlane_router),
    ok.

defaults_hold(_) ->
    {ok, Config} = erlane_router_opts:check([]),
    ?assertEqual(erlane_router_opts:defaults(), Config),
    ?assertMatch({ok, #{bound := 4096, policy := drop_newest}},
                 erlane_router_opts:check([{bound, 4096}, {policy, drop_newest}])).

%% Both sides of each limit, and what is no option.
bad_options_are_named(_) ->
    [begin
         ?assertMatch({ok, #{Key := Min}}, erlane_router_opts:check([{Key, Min}, {large, 256}])),
         ?assertMatch({ok, #{Key := Max}}, erlane_router_opts:check([{Key, Max}])),
         [?assertEqual({error, {Key, {badarg, Bad}}}, erlane_router_opts:check([{Key, Bad}]))
          || Bad <- [Min - 1, Max + 1, 1.0, many]]
     end || {Key, Min, Max} <- [{lanes, 1, 64}, {bound, 4096, 134217728},
                                {max_messages, 1, 100000}, {max_bytes, 1024, 16777216},
                                {max_age, 0, 1000}]],
    {error, {policy, {badarg, drop_oldest}}} = erlane_router_opts:check([{policy, drop_oldest}]),
    {error, {lane, unknown_option}} = erlane_router_opts:check([{lane, 4}]),
    {error, {large, {badarg, 61441}}} = erlane_router_opts:check([{large, 61441}]),
    {ok, _} = erlane_router_opts:check([{large, 61440}, {included_applications, []}]).

bad_start_names_the_key(_) ->
    ok = application:set_env(erlane_router, bound, 1),
    {error, {erlane_router, {{bound, {badarg, 1}}, {erlane_router_app, start, _}}}} =
        application:ensure_all_started(erlane_router),
    ok = application:unset_env(erlane_router, bound).

destinations(_) ->
    Here = node(),
    Ref = make_ref(),
    Pid = self(),
    {Here, Pid} = erlane_router_dest:place(Pid),
    {Here, Ref} = erlane_router_dest:place(Ref),
    {Here, name} = erlane_router_dest:place(name),
    {'a@b', name} = erlane_router_dest:place({name, 'a@b'}),
    [?assertError(badarg, erlane_router_dest:place(Bad))
     || Bad <- [1, "name", {1, 'a@b'}, {name, "a@b"}, {a, b, c}, <<>>, fun() -> ok end]].

groups_by_node(_) ->
    [] = erlane_router_dest:group([]),
    Far = pid('far@host', 7),
    Other = pid('far@host', 8),
    Groups = erlane_router_dest:group([Far, {n, 'far@host'}, self(), {m, 'third@host'}, Other,
                                       Far, here]),
    ?assertEqual([{'far@host', 4, [Far, n, Other, Far]}, {node(), 2, [self(), here]},
                  {'third@host', 1, [m]}], lists:keysort(1, Groups)).

bad_lists(_) ->
    [?assertError(badarg, erlane_router_dest:group(Bad))
     || Bad <- [[self() | self()], [self(), {x, 'a@b'} | oops], [self(), 1], [[self()]],
                [{n, 'a@b'} | self()], "name"]].

%% To a process, a name and an alias, in order; nobody there is no fault.
delivers(_) ->
    true = register(?MODULE, self()),
    Alias = alias(),
    0 = erlane_router_frame:deliver([{self(), 1, 9}, {?MODULE, 2, 9}, {Alias, 3, 9},
                                     {nobody_at_all, 4, 9}, {dead(), 5, 9}, {self(), 6, 9},
                                     {run, self(), [7, 8], 0}, {run, ?MODULE, [9, 10], 0}]),
    [1, 2, 3, 6, 7, 8, 9, 10] = flush(),
    true = unalias(Alias),
    0 = erlane_router_frame:deliver([{Alias, 7, 9}]),
    [] = flush(),
    true = unregister(?MODULE).

delivers_many(_) ->
    Me = self(),
    true = register(?MODULE, Me),
    Big = lists:seq(1, 5000),
    0 = erlane_router_frame:deliver(
          [{many, [Me, ?MODULE, Me], x, 9, 3}, {large, Me, term_to_binary(Big), 9, 1},
           {large, [?MODULE, Me], {raw, y}, 9, 2}]),
    [x, x, x, Big, y, y] = flush(),
    true = unregister(?MODULE).

%% Each costs only itself.
malformed_entries(_) ->
    Me = self(),
    Far = pid('far@host', 7),
    Port = hd(erlang:ports()),
    Bad = [x, {}, {Me}, {Me, x}, {Me, x, 9, 9}, {many, Me, x, 9, 1}, {"n", x, 9}, {1, x, 9},
           {Far, x, 9}, {large, Me, <<131, 255>>, 9, 1}, {large, Me, not_binary, 9, 1},
           {large, 1, {raw, x}, 9, 1}, {Port, x, 9}, {many, [Port], x, 9, 1}, <<>>,
           {run, Port, [x], 0}, {run, Far, [x], 0}, {run, Me, x, 0}, {run, ?MODULE, x, 0}],
    ?assertEqual(length(Bad),
                 erlane_router_frame:deliver(lists:append([[{Me, I, 9}, B]
                                                           || {I, B} <- number(Bad)]))),
    ?assertEqual(lists:seq(1, length(Bad)), flush()),
    %% Of a list the good ones get it.
    3 = erlane_router_frame:deliver([{many, [Me, Far, 1, Me, {n, 'a@b'}, Me], z, 9, 6}]),
    [z, z, z] = flush(),
    [1 = erlane_router_frame:deliver(Tail) || Tail <- [x, 7, [{Me, z, 9} | x], Port]],
    [z] = flush(),
    1 = erlane_router_frame:deliver([{many, [Me | Me], u, 9, 2}]),
    [u] = flush().

%% Binaries that would be copied are not.
packs(_) ->
    Bin = binary:copy(<<7>>, 100000),
    {raw, {x, Bin}} = erlane_router_frame:pack({x, Bin}),
    List = lists:seq(1, 10000),
    Packed = erlane_router_frame:pack(List),
    List = binary_to_term(Packed).

not_started(_) ->
    [?assertError({not_started, erlane_router}, F())
     || F <- [fun() -> erlane_router:send({n, 'a@b'}, x) end, fun erlane_router:info/0,
              fun() -> erlane_router:sync('a@b') end, fun erlane_router:subscribe/0]],
    %% What stays here needs no router.
    ok = erlane_router:send(self(), here),
    [here] = flush().

local_sends(_) ->
    {ok, _} = application:ensure_all_started(erlane_router),
    Me = self(),
    true = register(?MODULE, Me),
    ok = erlane_router:send(Me, 1),
    ok = erlane_router:send([?MODULE, Me, {?MODULE, node()}], 2),
    ok = erlane_router:send(alias(), 3, [nosuspend, noconnect, {key, a}]),
    ok = erlane_router:send(nobody_at_all, 4),
    ok = erlane_router:send([], 5),
    ok = erlane_router:cast(Me, 6),
    [1, 2, 2, 2, 3, {'$gen_cast', 6}] = flush(),
    ok = erlane_router:sync([]),
    ok = erlane_router:sync(node(), 0),
    [?assertError(badarg, erlane_router:send(Me, 7, Bad))
     || Bad <- [[fast], [{key, a} | x], nosuspend, [{key}]]],
    [?assertError(badarg, erlane_router:sync(Bad)) || Bad <- [["n"], [1]]],
    ?assertError(badarg, erlane_router:sync([], -1)),
    ?assertEqual(#{}, erlane_router:info()),
    [] = flush(),
    true = unregister(?MODULE),
    ok = application:stop(erlane_router).

properties(_) ->
    [true = proper:quickcheck(prop_erlane_router:P(), [{numtests, 300}, {to_file, user}])
     || P <- [prop_group, prop_fuzz_frame]].

%% A process of a node that does not exist.
pid(Node, N) ->
    Name = atom_to_binary(Node),
    binary_to_term(<<131, 88, 119, (byte_size(Name)), Name/binary, N:32, 0:32, 1:32>>).

dead() ->
    {Pid, Ref} = spawn_monitor(fun() -> ok end),
    receive {'DOWN', Ref, process, _, _} -> Pid end.

number(List) -> lists:zip(lists:seq(1, length(List)), List).

flush() -> receive Message -> [Message | flush()] after 0 -> [] end.
