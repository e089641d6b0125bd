%% SPDX-License-Identifier: Apache-2.0
%% @doc The load of the demo: keep-alive clients, each asking again as soon as it is answered.
-module(erlane_demo_load).

-export([run/3, trickle/1]).

-define(REQUEST, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").
-define(ANSWER_MS, 5000).
-define(TRICKLE_CLIENTS, 5).
-define(TRICKLE_MS, 100).

%% @doc Runs `Clients' connections to a loopback port for `Ms' milliseconds. Latencies are
%% microseconds.
-spec run(inet:port_number(), pos_integer(), pos_integer()) ->
          #{requests := non_neg_integer(), errors := non_neg_integer(),
            per_second := non_neg_integer(), p50 := non_neg_integer(),
            p99 := non_neg_integer()}.
run(Port, Clients, Ms) ->
    Start = now_us(),
    Until = Start + Ms * 1000,
    Self = self(),
    Runs = [spawn_link(fun() -> Self ! {load, self(), client(Port, Until)} end)
            || _ <- lists:seq(1, Clients)],
    Results = [receive {load, Pid, Result} -> Result end || Pid <- Runs],
    Elapsed = max(1, now_us() - Start),
    Latencies = lists:sort(lists:append([Us || {Us, _} <- Results])),
    Errors = [Why || {_, {error, Why}} <- Results],
    Sorted = list_to_tuple(Latencies),
    N = tuple_size(Sorted),
    #{requests => N, errors => length(Errors), per_second => N * 1000000 div Elapsed,
      p50 => percentile(Sorted, 50), p99 => percentile(Sorted, 99)}.

%% @doc A few connections, each with a request now and then, as long as the caller lives: there
%% is something to be seen.
-spec trickle(inet:port_number()) -> ok.
trickle(Port) ->
    _ = [spawn_link(fun() -> drip(Port) end) || _ <- lists:seq(1, ?TRICKLE_CLIENTS)],
    ok.

%% Whatever a connection meets, the next one begins again.
drip(Port) ->
    _ = case connect(Port) of
            {ok, Socket} -> drops(Socket);
            Error -> Error
        end,
    receive after 10 * ?TRICKLE_MS -> drip(Port) end.

drops(Socket) ->
    receive after ?TRICKLE_MS -> ok end,
    _ = gen_tcp:send(Socket, ?REQUEST),
    case answer(Socket, <<>>) of
        ok -> drops(Socket);
        Error -> gen_tcp:close(Socket), Error
    end.

percentile({}, _) -> 0;
percentile(Sorted, P) -> element(max(1, tuple_size(Sorted) * P div 100), Sorted).

connect(Port) ->
    gen_tcp:connect({127, 0, 0, 1}, Port,
                    [{inet_backend, inet}, {tcp_module, erlane_tcp}, binary, {active, false},
                     {nodelay, true}], ?ANSWER_MS).

client(Port, Until) ->
    case connect(Port) of
        {ok, Socket} -> ask(Socket, Until, now_us(), []);
        {error, Reason} -> {[], {error, Reason}}
    end.

ask(Socket, Until, Now, Latencies) when Now < Until ->
    _ = gen_tcp:send(Socket, ?REQUEST),
    case answer(Socket, <<>>) of
        ok ->
            Then = now_us(),
            ask(Socket, Until, Then, [Then - Now | Latencies]);
        Error ->
            {Latencies, Error}
    end;
ask(Socket, _Until, _Now, Latencies) ->
    ok = gen_tcp:close(Socket),
    {Latencies, ok}.

%% The answer is short and its last byte is the only newline after the empty line.
answer(Socket, Buffer) ->
    case gen_tcp:recv(Socket, 0, ?ANSWER_MS) of
        {ok, Data} ->
            All = <<Buffer/binary, Data/binary>>,
            case binary:split(All, <<"\r\n\r\n">>) of
                [<<"HTTP/1.1 200", _/binary>>, Body] when Body =/= <<>> ->
                    case binary:last(Body) of
                        $\n -> ok;
                        _ -> answer(Socket, All)
                    end;
                [_, Body] when Body =/= <<>> -> {error, not_ok};
                _ -> answer(Socket, All)
            end;
        {error, Reason} ->
            {error, Reason}
    end.

now_us() ->
    erlang:monotonic_time(microsecond).
