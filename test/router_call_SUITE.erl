%% SPDX-License-Identifier: Apache-2.0
%% Between nodes that differ: with the router, without it, with one that starts later, with one
%% that speaks another version. Calls, casts and sends work with each of them.
-module(router_call_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1, end_per_testcase/2]).
-export([calls/1, call_fails/1, multicalls/1, casts/1, without_app/1, app_later/1, app_ends/1,
         other_version/1, wrong_version_hello/1, stale_pid/1]).
%% Called on the nodes.
-export([cast_all/2, exit_of/3, foreign_gate/1, hello/2, nonsense/1]).
-export([watch_log/0, log/2, logged/0]).

suite() -> [{timetrap, {seconds, 60}}].

all() -> [calls, call_fails, multicalls, casts, without_app, app_later, app_ends, other_version,
          wrong_version_hello, stale_pid].

init_per_suite(Config) ->
    ok = router_nodes:open(),
    Config.

end_per_suite(_) ->
    router_nodes:close().

end_per_testcase(_, _) ->
    router_nodes:cleanup().

%% By pid, by name, of this node too; small and large.
calls(_) ->
    {A, B} = two(#{}),
    Pid = echo(B, server),
    _ = echo(A, here),
    [?assertEqual({router_nodes:node(B), Request}, call(A, To, Request))
     || To <- [Pid, {server, router_nodes:node(B)}],
        Request <- [hello, binary:copy(<<"x">>, 100000), fun lists:sort/1, make_ref()]],
    [?assertEqual({router_nodes:node(A), hello}, call(A, To, hello))
     || To <- [here, {here, router_nodes:node(A)}]],
    ?assertEqual({router_nodes:node(B), hello},
                 router_nodes:call(A, erlane_router, call, [Pid, hello, infinity])).

%% As gen_server:call exits.
call_fails(_) ->
    {A, B} = two(#{tick => 2}),
    NodeB = router_nodes:node(B),
    Pid = echo(B, server),
    ?assertMatch({timeout, _}, exits(A, Pid, silence, 100)),
    ?assertMatch({noproc, _}, exits(A, {nobody, NodeB}, hello, 5000)),
    ?assertMatch({noproc, _}, exits(A, nobody, hello, 5000)),
    ?assertMatch({normal, _}, exits(A, Pid, {stop, normal}, 5000)),
    ?assertMatch({noproc, _}, exits(A, Pid, hello, 5000)),
    ?assertMatch({{nodedown, 'no_1@127.0.0.1'}, _},
                 exits(A, {server, 'no_1@127.0.0.1'}, hello, 5000)),
    %% A late answer is not left behind.
    Other = echo(B, other),
    ok = router_nodes:freeze(B),
    ?assertMatch({timeout, _}, exits(A, Other, hello, 100)),
    ok = router_nodes:kill(B),
    ?assertMatch({{nodedown, NodeB}, _}, exits(A, Other, hello, 20000)).

%% Over several nodes at once; what does not answer is named with its reason.
multicalls(_) ->
    [A, B, C, D] = router_nodes:start_all([{a, #{}}, {b, #{}}, {c, #{app => false}}, {d, #{}}]),
    Dests = [{server, router_nodes:node(N)} || N <- [A, B, C, D]],
    [echo(N, server) || N <- [A, B, C, D]],
    ?assertEqual({[{Dest, {Node, hi}} || {_, Node} = Dest <- Dests], []},
                 router_nodes:call(A, erlane_router, multicall, [Dests, hi, 10000])),
    Nobody = {nobody, router_nodes:node(B)},
    NoNode = {server, 'no_1@127.0.0.1'},
    ok = router_nodes:freeze(D),
    {Replies, Errors} = router_nodes:call(A, erlane_router, multicall,
                                          [[Nobody, NoNode | Dests], hi, 1500]),
    ?assertEqual(lists:sort(lists:droplast(Dests)), lists:sort([Dest || {Dest, _} <- Replies])),
    ?assertEqual([{Nobody, noproc}, {NoNode, {nodedown, 'no_1@127.0.0.1'}},
                  {lists:last(Dests), timeout}], Errors).

%% To one and to many, in order with the calls that follow from the same process.
casts(_) ->
    [A, B, C] = router_nodes:start_all([{a, #{}}, {b, #{}}, {c, #{app => false}}]),
    Dests = [{server, router_nodes:node(N)} || N <- [A, B, C]],
    [echo(N, server) || N <- [A, B, C]],
    ok = router_nodes:call(A, ?MODULE, cast_all, [Dests, 100], 30000),
    [?assertEqual(lists:seq(1, 100), router_nodes:call(A, erlane_router, call, [Dest, casts]))
     || Dest <- Dests].

%% A node that has no router: everything goes plain, and sync says so.
without_app(_) ->
    [A, B] = router_nodes:start_all([{a, #{}}, {b, #{app => false}}]),
    _ = echo(B, server),
    ?assertEqual({router_nodes:node(B), hello}, call(A, {server, router_nodes:node(B)}, hello)),
    Streams = [router_check:stream(A, B, #{limit => 1000, sizes => Sizes})
               || Sizes <- [[0], [10, 30000]]] ++
        [router_check:stream(A, B, #{limit => 1000, name => sink})],
    [ok = router_check:arrived(S, 1000) || S <- Streams],
    ?assertEqual({error, #{router_nodes:node(B) => no_router}}, sync(A, B)),
    %% A list with receivers there and here.
    [Pid] = router_check:receivers(hd(Streams)),
    Mine = router_nodes:call(A, router_node, receiver, [undefined]),
    List = router_check:stream(A, B, #{limit => 100, receivers => [Pid], targets => [[Mine, Pid]]}),
    ok = router_check:arrived(List, 100),
    ?assertEqual([], [L || #{peer := router} = L <- lanes(A, B)]).

%% It starts there while messages flow: the lanes switch by themselves, and nothing is lost.
app_later(_) ->
    [A, B] = router_nodes:start_all([{a, #{}}, {b, #{later => true}}]),
    Stream = router_check:stream(A, B, #{sizes => [0, 500]}),
    ok = router_check:moving_on(Stream),
    ?assertEqual({error, #{router_nodes:node(B) => no_router}}, sync(A, B)),
    ok = router_check:quiet(Stream),
    ok = router_nodes:call(B, router_node, start_app, [#{}]),
    ok = router_nodes:until(fun() -> ok = sync(A, B) end),
    Again = router_check:again(Stream, #{limit => 2000, sizes => [0, 20000]}),
    ok = router_check:arrived(Again, 2000),
    ok = router_check:arrived(Stream, router_check:finish(Stream)),
    ?assertNotEqual([], [L || #{peer := router} = L <- lanes(A, B)]),
    %% From there to here it works as well.
    Back = router_check:stream(B, A, #{limit => 1000}),
    ok = router_check:arrived(Back, 1000),
    ?assertEqual(ok, sync(B, A)).

%% It ends there, the node stays: who was sent what before is reported, the rest goes plain.
app_ends(_) ->
    {A, B} = two(#{}),
    Stream = router_check:stream(A, B, #{limit => 1000}),
    ok = router_check:arrived(Stream, 1000),
    ok = router_check:synced(A, B),
    ok = router_nodes:call(B, application, stop, [erlane_router]),
    ok = router_nodes:until(
           fun() -> {error, #{}} = Why = sync(A, B),
                    ?assertEqual({error, #{router_nodes:node(B) => no_router}}, Why),
                    ok
           end),
    Plain = router_check:again(Stream, #{limit => 1000}),
    ok = router_check:arrived(Plain, 1000),
    ?assertEqual({0, 0}, router_check:reported(A, B)),
    ok = router_nodes:call(B, router_node, start_app, [#{}]),
    ok = router_nodes:until(fun() -> ok = sync(A, B) end),
    Routed = router_check:again(Stream, #{limit => 1000}),
    ok = router_check:arrived(Routed, 1000).

%% The gate over there speaks a version from before or after this one.
other_version(_) ->
    [A, B] = router_nodes:start_all([{a, #{}}, {b, #{later => true}}]),
    ok = router_nodes:call(B, ?MODULE, foreign_gate, [router_nodes:node(A)]),
    Stream = router_check:stream(A, B, #{limit => 1000, sizes => [0, 20000]}),
    ok = router_check:arrived(Stream, 1000),
    ?assertEqual({error, #{router_nodes:node(B) => no_router}}, sync(A, B)),
    ?assertEqual([], [L || #{peer := router} = L <- lanes(A, B)]).

%% Lanes that speak another version are refused, those of this one are served as before; so are
%% they after greetings that make no sense.
wrong_version_hello(_) ->
    {A, B} = two(#{}),
    Stream = router_check:stream(A, B, #{sizes => [0, 1000]}),
    ok = router_check:moving_on(Stream),
    Gate = router_nodes:call(B, erlang, whereis, [erlane_router_gate]),
    [?assertMatch({refused, _}, router_nodes:call(A, ?MODULE, hello, [router_nodes:node(B), V]))
     || V <- [0, 2, 99]],
    ok = router_nodes:call(A, ?MODULE, nonsense, [router_nodes:node(B)]),
    ok = router_check:moving_on(Stream),
    ok = router_check:synced(A, B),
    ct:pal("~p", [router_check:balanced([Stream])]),
    ?assertEqual(Gate, router_nodes:call(B, erlang, whereis, [erlane_router_gate])),
    ?assertEqual({0, 0}, router_check:reported(A, B)).

%% A process of an earlier incarnation: nobody gets the message, and the node that is there now
%% does not fill its log with what was not for it.
stale_pid(_) ->
    {A, B} = two(#{}),
    Old = router_check:stream(A, B, #{limit => 100}),
    ok = router_check:quiet(Old),
    ok = router_nodes:kill(B),
    ok = router_check:disconnected(A, B),
    New = router_nodes:restart(B),
    Fresh = router_check:stream(A, New, #{limit => 100}),
    ok = router_check:quiet(Fresh),
    ok = router_nodes:call(New, ?MODULE, watch_log, []),
    [Stale] = router_check:receivers(Old),
    [Pid] = router_check:receivers(Fresh),
    Lost = router_check:stream(A, New, #{limit => 20, sizes => [0, 20000], receivers => [Pid],
                                         targets => [Stale, [Stale, Stale]]}),
    ok = router_check:sent(Lost, 20),
    ok = router_check:synced(A, New),
    ?assertEqual(0, router_check:received_count(Lost)),
    ?assertEqual([], router_check:errors(Fresh)),
    ?assertEqual([], router_nodes:call(New, ?MODULE, logged, [])).

%% On the nodes

%% Each number to all; the even ones one by one.
cast_all(Dests, N) ->
    lists:foreach(fun(I) when I rem 2 =:= 0 -> [erlane_router:cast(D, I) || D <- Dests];
                     (I) -> erlane_router:cast(Dests, I)
                  end, lists:seq(1, N)),
    %% A call goes the same way and so comes behind.
    lists:foreach(fun(D) -> true = is_list(erlane_router:call(D, casts)) end, Dests).

exit_of(Dest, Request, Timeout) ->
    try erlane_router:call(Dest, Request, Timeout) of
        Reply -> {reply, Reply}
    catch
        exit:Reason ->
            receive Late -> {Reason, {late, Late}}
            after 50 -> Reason
            end
    end.

%% What the gate of another version does: it tells its own, and announces itself.
foreign_gate(Node) ->
    Self = self(),
    _ = spawn(fun() ->
                      true = register(erlane_router_gate, self()),
                      Self ! registered,
                      {erlane_router_gate, Node} ! {erlane_router_gate, announce, 7, node()},
                      foreign_gate()
              end),
    receive registered -> ok end.

foreign_gate() ->
    receive
        {erlane_router_gate, hello, _, Lane, _, Ref} ->
            Lane ! {erlane_router_gate, refused, Ref, node(), 7},
            foreign_gate()
    end.

hello(Node, Version) ->
    Ref = make_ref(),
    {erlane_router_gate, Node} ! {erlane_router_gate, hello, Version, self(), 1, Ref},
    receive {erlane_router_gate, refused, Ref, _, V} -> {refused, V}
    after 5000 -> nothing
    end.

nonsense(Node) ->
    Ref = make_ref(),
    [{erlane_router_gate, Node} ! Message
     || Message <- [nonsense, {erlane_router_gate}, {erlane_router_gate, hello, 1, self()},
                    {erlane_router_gate, hello, 1, nobody, 1, Ref},
                    {erlane_router_gate, hello, 1, self(), 0, Ref},
                    {erlane_router_gate, hello, 1, self(), 1 bsl 70, Ref},
                    {erlane_router_gate, hello, 1, self(), 1, no_reference},
                    {erlane_router_gate, hello, old, self(), 1, Ref},
                    {erlane_router_gate, announce, 1, "node"}, {erlane_router_gate, announce, 1},
                    {erlane_router_gate, announce, 1, 'no_such@host'},
                    {'$gen_call', {self(), make_ref()}, what}, {'$gen_call', nobody, what},
                    {'$gen_cast', what}, [improper | list], {'EXIT', self(), reason}]],
    ok.

watch_log() ->
    true = register(router_log, spawn(fun() -> keep_log([]) end)),
    ok = logger:set_primary_config(level, error),
    logger:add_handler(?MODULE, ?MODULE, #{}).

%% The callback of a handler.
log(#{msg := Message}, _) ->
    router_log ! {log, Message}.

keep_log(Kept) ->
    receive
        {log, Message} -> keep_log([Message | Kept]);
        {logged, From, Ref} -> From ! {Ref, lists:reverse(Kept)}, keep_log(Kept)
    end.

%% The first of what was logged. The VM logs by a message to a process; what it says of a process
%% that fails here comes behind what it said before.
logged() ->
    _ = spawn(fun() -> error(router_call_last) end),
    Last = fun(Message) ->
                   string:find(lists:flatten(io_lib:format("~p", [Message])), "router_call_last")
                       =/= nomatch
           end,
    router_nodes:until(fun() -> true = lists:any(Last, kept()), ok end),
    lists:sublist([Message || Message <- kept(), not Last(Message)], 3).

kept() ->
    Ref = make_ref(),
    router_log ! {logged, self(), Ref},
    receive {Ref, Kept} -> Kept end.

%% Small things

two(Options) ->
    list_to_tuple(router_nodes:start_all([{a, Options}, {b, Options}])).

echo(Node, Name) ->
    router_nodes:call(Node, router_node, echo, [Name]).

call(Node, To, Request) ->
    router_nodes:call(Node, erlane_router, call, [To, Request]).

exits(Node, To, Request, Timeout) ->
    router_nodes:call(Node, ?MODULE, exit_of, [To, Request, Timeout]).

sync(From, To) ->
    router_nodes:call(From, erlane_router, sync, [router_nodes:node(To), 10000]).

lanes(From, To) ->
    router_nodes:call(From, router_node, lanes, [router_nodes:node(To)]).
