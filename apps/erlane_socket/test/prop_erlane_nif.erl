%% SPDX-License-Identifier: Apache-2.0
%% @doc No term that is given to a function of the NIF brings the VM down.
%%
%% The calls are made in another VM, by a process that is the poller of its lanes, too: there is
%% nothing it may not do. Arguments are of the right kind mostly, since what is refused at once
%% finds little; references of all kinds are there, and mixed up.
-module(prop_erlane_nif).

-include_lib("proper/include/proper.hrl").

-export([prop_no_term_crashes/0]).
-export([run/1]).

-define(CALL_MS, 20000).
-define(FAR, 1000000). % beyond any descriptor: those of the VM are none of our business

-spec prop_no_term_crashes() -> proper:test().
prop_no_term_crashes() ->
    ?SETUP(fun start_peer/0,
           ?FORALL(Calls, list(call()),
                   begin
                       Answers = in_peer(Calls),
                       Wrong = [W || {_, {crash, _}} = W <- lists:zip(Calls, Answers)],
                       ?WHENFAIL(io:format("~p~n", [Wrong]),
                                 aggregate([element(1, C) || C <- Calls], Wrong =:= []))
                   end)).

start_peer() ->
    Paths = lists:append([["-pa", P] || P <- code:get_path(), filelib:is_dir(P)]),
    {ok, Peer, _} = peer:start(#{connection => standard_io, args => ["+S", "2:2" | Paths]}),
    put(?MODULE, Peer),
    fun() -> peer:stop(get(?MODULE)) end.

%% If the VM is gone, or the call hangs, another one serves to find a shorter list of calls.
in_peer(Calls) ->
    try
        peer:call(get(?MODULE), ?MODULE, run, [Calls], ?CALL_MS)
    catch
        _:Why ->
            catch peer:stop(get(?MODULE)),
            _ = start_peer(),
            [{crash, {vm, Why}} || _ <- Calls]
    end.

%%% Calls

%% Functions that are not in the table get any terms.
call() ->
    ?LET({Name, Arity}, oneof(functions()),
         {Name, [frequency([{9, arg(Kind)}, {1, wild()}]) || Kind <- kinds(Name, Arity)]}).

functions() ->
    [F || {Name, _} = F <- erlane_nif:module_info(exports),
          Name =/= module_info, Name =/= load].

kinds(Name, Arity) ->
    case lists:keyfind({Name, Arity}, 1, table()) of
        {_, Kinds} -> Kinds;
        false -> [sock || Arity > 0] ++ lists:duplicate(max(0, Arity - 1), any)
    end.

table() ->
    [{{lane_open, 1}, [index]}, {{lane_poll, 2}, [lane, bool]}, {{lane_turn, 1}, [lane]},
     {{lane_sleep, 1}, [lane]},
     {{lane_woke, 1}, [lane]}, {{lane_close, 1}, [lane]}, {{lane_stats, 1}, [index]},
     {{lane_list, 1}, [index]}, {{open, 4}, [family, integer, netns, index]},
     {{fdopen, 2}, [no_fd, index]}, {{bind, 2}, [sock, addr]}, {{listen, 2}, [sock, integer]},
     {{connect, 2}, [sock, addr]}, {{connected, 2}, [sock, ticket]},
     {{accept, 2}, [sock, ticket]}, {{cancel, 2}, [sock, ticket]},
     {{send, 3}, [sock, bytes, then]}, {{send_each, 4}, [socks, bytes, size, bool]},
     {{sendfile_begin, 2}, [sock, no_fd]}, {{sendfile_step, 3}, [sock, integer, integer]},
     {{recv, 3}, [sock, size, ticket]}, {{take, 5}, [sock, version, size, bool, any]},
     {{need, 4}, [sock, version, size, bool]}, {{fail, 3}, [sock, version, bool]},
     {{unrecv, 2}, [sock, bytes]}, {{set_active, 2}, [sock, active]},
     {{close_now, 2}, [sock, bool]}, {{shutdown, 2}, [sock, small]},
     {{setsockopt, 4}, [sock, small, small, bytes]},
     {{getsockopt, 4}, [sock, small, small, size]}, {{setopt, 3}, [sock, small, integer]},
     {{getopt, 2}, [sock, small]}, {{name, 2}, [sock, small]}, {{give, 2}, [sock, pid]},
     {{own, 2}, [sock, pid]}, {{relay, 7}, [sock, sock, bytes, bytes, integer, integer, bool]},
     {{relay_info, 1}, [relay]}, {{relay_stop, 2}, [relay, small]}, {{faults, 1}, [integer]}].

%% What exists only where the call is made is named here: {'$', Name}.
arg(sock) -> named([s, t, s, t, listener, fresh, closed, relayed]);
arg(socks) -> list(oneof([inet(), {inet(), arg(bytes)}, wild()]));
arg(lane) -> named([lane1, lane2]);
arg(relay) -> named([relay, relay, ended]);
arg(pid) -> frequency([{3, named([self])}, {1, named([dead])}]);
arg(index) -> range(-1, 4);
arg(small) -> range(-1, 45);
arg(bool) -> oneof([true, false]);
arg(then) -> oneof([false, more, once, true]);
arg(family) -> oneof([0, 4, 6, 5]);
arg(netns) -> frequency([{9, undefined}, {1, oneof([<<"/proc/self/ns/net">>, <<"/nowhere">>])}]);
arg(ticket) -> oneof([0, 0, range(1, 4), integer()]);
arg(version) -> range(0, 4);
arg(size) -> oneof([0, range(0, 70000), range(0, 10), number_()]);
arg(active) -> oneof([true, false, once, range(-3, 5), number_()]);
arg(integer) -> oneof([range(-2, 10), number_()]);
arg(no_fd) -> oneof([named([file]), ?LET(N, nat(), -1 - N), ?LET(N, nat(), ?FAR + N), float(),
                     1 bsl 31, 1 bsl 64]);
arg(bytes) -> oneof([binary(), ?LET(N, range(0, 300000), <<0:N/unit:8>>), iodata()]);
arg(addr) ->
    oneof([{inet, {127, 0, 0, 1}, named([port])}, {inet, {127, 0, 0, 1}, number_()},
           {inet6, {0, 0, 0, 0, 0, 0, 0, 1}, number_(), number_(), number_()},
           {local, ?LET(N, range(0, 120), binary:copy(<<0>>, N))}, {local, wild()},
           {oneof([inet, inet6]), ?LET(L, list(number_()), list_to_tuple(L)), -1},
           {inet6, {1, 2, 3, 4, 5, 6, 7, number_()}, 70000, number_(), number_()}]);
arg(any) -> wild().

inet() -> {'$inet', erlane_tcp, arg(sock)}.

named(Names) -> {'$', oneof(Names)}.

number_() ->
    oneof([integer(), largeint(), 1 bsl 31 - 1, -(1 bsl 31), 1 bsl 31, 1 bsl 32, 1 bsl 63 - 1,
           -(1 bsl 63), 1 bsl 63, 1 bsl 64 - 1, 1 bsl 64, 1 bsl 600]).

%% No small integers: as a descriptor they would be one of the VM's.
wild() ->
    oneof([atom(), float(), binary(), bitstring(), iodata(), #{a => b}, {}, [], number(far),
           named([s, t, listener, fresh, closed, relay, ended, lane1, lane2, self, dead, ref]),
           ?LET({A, B}, {binary(), oneof([atom(), named([s]), 7])}, [A, <<"b">> | B]),
           ?LET(N, range(1, 30000), deep(N)), ?LET(N, range(16000, 17000), many(N)),
           fun erlang:self/0, {inet, {127, 0, 0}, 1}]).

number(far) -> oneof([?FAR, 1 bsl 31, -1, -(1 bsl 63), 1 bsl 64, -(1 bsl 600)]).

iodata() -> ?SIZED(N, iodata(N)).

iodata(0) -> binary();
iodata(N) -> oneof([[], binary(), [iodata(N div 3), iodata(N div 3)], [byte() | binary()]]).

deep(N) -> lists:foldl(fun(_, Acc) -> [Acc, <<"x">>] end, [], lists:seq(1, N)).

many(N) -> lists:duplicate(N, <<"xy">>).

%%% In the other VM

%% @doc Makes the calls in a process on a lane's scheduler, with sockets of every kind at hand;
%% what each gave: `value', `refused', or `{crash, Why}'.
-spec run([{atom(), [term()]}]) -> [value | refused | {crash, term()}].
run(Calls) ->
    {_, Ref} = spawn_opt(fun() -> exit({answers, session(Calls)}) end,
                         [monitor, {scheduler, 1}]),
    receive
        {'DOWN', Ref, process, _, {answers, Answers}} -> Answers;
        {'DOWN', Ref, process, _, Why} -> [{crash, Why} || _ <- Calls]
    end.

session(Calls) ->
    {ok, Lane1} = erlane_nif:lane_open(1),
    {ok, Lane2} = erlane_nif:lane_open(2),
    [ok, ok] = [erlane_nif:lane_poll(L, true) || L <- [Lane1, Lane2]],
    Turn = fun() -> [erlane_nif:lane_turn(L) || L <- [Lane1, Lane2], _ <- [1, 2]] end,
    {ok, File} = prim_file:open("/proc/self/cmdline", [read]),
    <<Fd:32/native>> = prim_file:get_handle(File),
    {Listener, Port} = listener(),
    {S, T} = pair(Listener, Port, Turn),
    [{A, B}, {C, D}] = [pair(Listener, Port, Turn) || _ <- [1, 2]],
    [Ended, Relay] = [relay(X, Y) || {X, Y} <- [{A, B}, {C, D}]],
    ok = erlane_nif:relay_stop(Ended, 2),
    {ok, Fresh} = erlane_nif:open(4, 0, undefined, 0),
    {ok, Closed} = erlane_nif:open(6, 0, undefined, 0),
    ok = erlane_nif:close(Closed),
    _ = Turn(),
    Names = #{s => S, t => T, listener => Listener, fresh => Fresh, closed => Closed,
              relayed => C, relay => Relay, ended => Ended, lane1 => Lane1, lane2 => Lane2,
              self => self(), dead => spawn(fun() -> ok end), ref => make_ref(), file => Fd,
              port => Port},
    Answers = [answer(Name, resolve(Args, Names), Turn) || {Name, Args} <- Calls],
    ok = prim_file:close(File),
    _ = [close_lane(L) || L <- [Lane1, Lane2]],
    Answers.

answer(Name, Args, Turn) ->
    try apply(erlane_nif, Name, Args) of
        _ -> value
    catch
        error:Why when Why =:= badarg; Why =:= function_clause -> refused;
        Class:Why:Stack -> {crash, {Class, Why, Stack}}
    after
        %% Two of three times: so calls meet events that wait as well.
        erlang:unique_integer([positive]) rem 3 =:= 0 orelse Turn()
    end.

resolve({'$', Name}, Names) -> maps:get(Name, Names);
resolve(Tuple, Names) when is_tuple(Tuple) ->
    list_to_tuple([resolve(E, Names) || E <- tuple_to_list(Tuple)]);
resolve([Head | Tail], Names) -> [resolve(Head, Names) | resolve(Tail, Names)];
resolve(Term, _Names) -> Term.

listener() ->
    {ok, L} = erlane_nif:open(4, 0, undefined, 0),
    ok = erlane_nif:bind(L, {inet, {127, 0, 0, 1}, 0}),
    ok = erlane_nif:listen(L, 5),
    {ok, {_, Port}} = erlane_nif:name(L, 0),
    {L, Port}.

pair(Listener, Port, Turn) ->
    {ok, C} = erlane_nif:open(4, 0, undefined, 0),
    _ = case erlane_nif:connect(C, {inet, {127, 0, 0, 1}, Port}) of
            ok -> ok;
            {wait, Ticket} -> ok = erlane_nif:connected(C, Ticket)
        end,
    {C, accepted(erlane_nif:accept(Listener, 0), Listener, Turn)}.

accepted({_, {ok, S}}, _, _) ->
    S;
accepted({wait, Ticket}, Listener, Turn) ->
    _ = Turn(),
    accepted(erlane_nif:accept(Listener, Ticket), Listener, Turn).

relay(A, B) ->
    {ok, Relay} = erlane_nif:relay(A, B, <<"first">>, <<>>, 1000, -1, true),
    Relay.

%% A lane that the calls closed and opened anew is found by its number.
close_lane(Lane) ->
    case erlane_nif:lane_close(Lane) of
        more -> close_lane(Lane);
        ok -> ok
    end.
