%% SPDX-License-Identifier: Apache-2.0
%% 50,000 malformed requests from a seeded generator over real sockets, each on a connection of
%% its own: the handler gets what the pure parsers say is in them and nothing else, answers are
%% well formed, a good client is served all the time, and nothing is left behind. With
%% ERLANE_LONG=1 it is 1,000,000, and the seed is another each time; the log tells it.
-module(erlane_http_fuzz_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([malformed_requests/1, malformed_requests_stock/1]).
-export([log/2]).

-define(WORKERS, 4).
-define(MEMORY, 60000000). % bytes the VM may grow by

suite() -> [{timetrap, {minutes, 30}}].

all() -> [malformed_requests, malformed_requests_stock].

init_per_suite(Config) ->
    {ok, Started} = application:ensure_all_started(erlane_http),
    [{started, Started} | Config].

end_per_suite(Config) ->
    [ok = application:stop(A) || A <- lists:reverse(proplists:get_value(started, Config))],
    ok.

malformed_requests(_Config) -> run(erlane, 45000).

%% The same over gen_tcp of OTP.
malformed_requests_stock(_Config) -> run(gen_tcp, 5000).

run(Socket, Count) ->
    {Seed, Times} = case os:getenv("ERLANE_LONG") of
                        "1" -> {erlang:system_time() rem 1000000, 20};
                        _ -> {17, 1}
                    end,
    ct:pal("seed ~b", [Seed]),
    _ = [worker(I, Socket, Seed, 20) || I <- lists:seq(1, ?WORKERS)],
    Before = figures(),
    Log = ets:new(log, [public, bag]),
    ok = logger:add_handler(?MODULE, ?MODULE, #{level => error, config => Log}),
    Good = good(Socket),
    Began = erlang:monotonic_time(millisecond),
    Refs = [element(2, spawn_monitor(
                         fun() ->
                                 exit({done, worker(I, Socket, Seed + I,
                                                    Times * Count div ?WORKERS)})
                         end)) || I <- lists:seq(1, ?WORKERS)],
    Tallies = [receive {'DOWN', Ref, process, _, Why} -> Why end || Ref <- Refs],
    Took = erlang:monotonic_time(millisecond) - Began,
    #{memory := Peak} = Served = finish(Good),
    ok = logger:remove_handler(?MODULE),
    ct:pal("~b ms; good client ~0p; before ~0p, after ~0p~n~0p",
           [Took, Served, Before, figures(), Tallies]),
    ?assert(Peak - maps:get(memory, Before) < ?MEMORY),
    ?assertEqual([], [T || T <- Tallies, element(1, T) =/= done]),
    %% They were malformed, and of many kinds.
    Sum = lists:foldl(fun({done, T}, Acc) ->
                              maps:fold(fun(K, V, A) -> A#{K => V + maps:get(K, A, 0)} end,
                                        Acc, T)
                      end, #{}, Tallies),
    [?assert(maps:get(K, Sum, 0) > 0, {K, Sum}) || K <- [400, 501, 505, 200, closed]],
    ?assert(maps:get(400, Sum) > Count div 4),
    ?assertEqual([], [R || {_, R} <- ets:tab2list(Log)]),
    left(Before, 200).

%% A report of a crash nobody asked for.
log(#{msg := Msg} = Event, #{config := Log}) ->
    Text = lists:flatten(io_lib:format("~0tP", [Msg, 100])),
    case [W || W <- ["asked_to_crash", "bad_header"], string:find(Text, W) =/= nomatch] of
        [] -> ets:insert(Log, {report, {Text, maps:get(meta, Event)}});
        _ -> true
    end.

figures() ->
    _ = [erlang:garbage_collect(P) || P <- processes()],
    #{memory => erlang:memory(total), processes => length(processes()),
      atoms => erlang:system_info(atom_count), ports => erlang:system_info(port_count)}.

%% Lingering connections take their time to end.
left(Before, Tries) ->
    Now = figures(),
    Grown = maps:map(fun(K, V) -> V - maps:get(K, Before) end, Now),
    case Grown of
        #{memory := M, processes := P, atoms := A, ports := O}
          when M < ?MEMORY, P =< 2, A < 100, O =< 2 -> ok;
        _ when Tries > 0 -> receive after 20 -> left(Before, Tries - 1) end;
        _ -> ct:fail({left_behind, Grown})
    end.

%%% The good client

good(Socket) ->
    Self = self(),
    spawn_link(fun() ->
                       Port = erlane_http_raw_handler:start(good, #{socket => Socket,
                                                                    max_requests => infinity}),
                       good(erlane_http_raw:connect(Port), Self, 0, 0, 0)
               end).

good(Conn, Parent, N, Worst, Memory) ->
    receive
        {Parent, stop} ->
            ok = erlane_http_raw:close(Conn),
            ok = erlane_http:stop(good, #{drain => 0}),
            Parent ! {self(), #{requests => N, worst_ms => Worst, memory => Memory}}
    after 5 ->
        _ = erlane_http_raw_handler:seen(),
        Began = erlang:monotonic_time(millisecond),
        {#{status := 200, body := <<"GET /good x ">>}, Next} = erlane_http_raw:get(Conn, "/good"),
        good(Next, Parent, N + 1, max(Worst, erlang:monotonic_time(millisecond) - Began),
             max(Memory, erlang:memory(total)))
    end.

finish(Good) ->
    Good ! {self(), stop},
    receive
        {Good, #{requests := N, worst_ms := Worst} = Result} ->
            ?assert(N > 50),
            ?assert(Worst < 2000),
            Result
    end.

%%% The others

%% Each has a listener, so that what the handler got is known to be from this connection.
worker(I, Socket, Seed, Count) ->
    Name = list_to_atom("worker_" ++ integer_to_list(I)),
    Port = erlane_http_raw_handler:start(Name, #{socket => Socket, linger_timeout => 500}),
    Tally = requests(Port, Count, erlane_http_mutate:new(Seed), #{}),
    ok = erlane_http:stop(Name, #{drain => 0}),
    Tally.

requests(_Port, 0, _State, Tally) ->
    Tally;
requests(Port, N, State, Tally) ->
    {Bytes, Next} = erlane_http_mutate:next(State),
    {Requests, _} = Read = erlane_http_pure:read([Bytes]),
    {Statuses, Ending} = talk(Port, Bytes, [M || #{method := M} <- Requests]),
    judge(Bytes, Read, erlane_http_raw_handler:seen(), Statuses, Ending),
    requests(Port, N - 1, Next,
             lists:foldl(fun(S, T) -> T#{S => 1 + maps:get(S, T, 0)} end, Tally,
                         [Ending | Statuses])).

talk(Port, Bytes, Methods) ->
    Conn = erlane_http_raw:half_close(erlane_http_raw:send(erlane_http_raw:connect(Port), Bytes)),
    Result = answers(Conn, Methods, []),
    ok = erlane_http_raw:close(Conn),
    Result.

answers(Conn, Methods, Statuses) ->
    Method = case Methods of [<<"HEAD">> | _] -> head; _ -> get end,
    case erlane_http_raw:answer(Conn, Method) of
        {#{status := 100}, Next} -> answers(Next, Methods, [100 | Statuses]);
        {#{status := Status}, Next} ->
            answers(Next, lists:nthtail(min(1, length(Methods)), Methods), [Status | Statuses]);
        Ending when is_atom(Ending) -> {lists:reverse(Statuses), Ending};
        {Kind, Why, _} -> {lists:reverse(Statuses), {Kind, Why}}
    end.

%% The handler got the requests that are there, in order, until one that ends the connection. It
%% may have one more that it reads the body of.
judge(Bytes, {Requests, End}, Seen, Statuses, Ending) ->
    Targets = until_close(Requests),
    Extra = lists:nthtail(min(length(Targets), length(Seen)), Seen),
    Fits = lists:prefix(Seen -- Extra, Targets)
        andalso lists:all(fun in_pieces/1, Extra) andalso length(Extra) =< 1
        andalso (length(Seen) >= length(Targets) orelse ends(lists:last([none | Seen])))
        andalso Ending =/= timeout andalso Ending =/= reset,
    Fits orelse ct:fail({not_as_read, Bytes, #{parsed => {Requests, End}, seen => Seen,
                                               statuses => Statuses, ending => Ending}}).

until_close([]) -> [];
until_close([#{target := Target, close := true} | _]) -> [Target];
until_close([#{target := Target} | Rest]) -> [Target | until_close(Rest)].

in_pieces(Target) -> starts(Target, [<<"/unread">>, <<"/stream">>]).

ends(none) -> false;
ends(Target) ->
    starts(Target, [<<"/unread">>, <<"/stream">>, <<"/close">>, <<"/crash">>, <<"/chunks">>,
                    <<"/header">>]).

starts(Target, Prefixes) ->
    lists:any(fun(P) -> string:prefix(Target, P) =/= nomatch end, Prefixes).
