%% SPDX-License-Identifier: Apache-2.0
%% @doc What the suites of erlane_socket share: the same cases over stock gen_tcp and
%% over erlane as two groups, pairs of connected sockets, waiting without fixed sleeps.
-module(erlane_ct).

-include_lib("stdlib/include/assert.hrl").

-export([groups/1, init_group/2, end_group/2, opts/2, opts6/2, backend/1]).
-export([listen/2, connect/3, pair/1, pair/2, pair/3, fed/2, accept/1]).
-export([async/1, await/1, await/2, blocked/1, wait_until/1, wait_until/2, elapsed/1]).
-export([recv_all/1, collect/3, next/1, silence/1, flush/0, outcome/1, pattern/1]).
-export([kill/1, fds/0, detached_fd/0, keep/1, cleanup/0, in_peer/3]).
-export([traffic/1, moving/0, finish/1]).

-define(DEADLINE, 20000).

-type config() :: [{atom(), term()}].

%% @doc The group `stock' (plain gen_tcp, the model) and `erlane', both with `Cases'.
-spec groups([atom()]) -> [{atom(), [], [atom()]}].
groups(Cases) ->
    [{stock, [], Cases}, {erlane, [], Cases}].

%% @doc Prepares a group; `erlane' is skipped only if its application cannot start.
-spec init_group(atom(), config()) -> config() | {skip, term()}.
init_group(stock, Config) ->
    [{backend, stock} | Config];
init_group(_, Config) ->
    case application:ensure_all_started(erlane_socket) of
        {ok, _} -> [{backend, erlane} | Config];
        {error, Why} -> {skip, {erlane_socket_does_not_start, Why}}
    end.

-spec end_group(atom(), config()) -> ok.
end_group(stock, _Config) ->
    ok;
end_group(_, _Config) ->
    _ = application:stop(erlane_socket),
    ok.

-spec backend(config()) -> stock | erlane.
backend(Config) ->
    proplists:get_value(backend, Config).

%% @doc `Opts' with what selects the backend of the group in front.
-spec opts(config(), [term()]) -> [term()].
opts(Config, Opts) ->
    case backend(Config) of
        stock -> [{inet_backend, inet} | Opts];
        erlane -> [{inet_backend, inet}, {tcp_module, erlane_tcp} | Opts]
    end.

%% @doc The same for IPv6.
-spec opts6(config(), [term()]) -> [term()].
opts6(Config, Opts) ->
    case backend(Config) of
        stock -> [{inet_backend, inet}, inet6 | Opts];
        erlane -> [{inet_backend, inet}, {tcp_module, erlane_tcp6} | Opts]
    end.

%% @doc A listener on a free port of the loopback address.
-spec listen(config(), [term()]) -> {gen_tcp:socket(), inet:port_number()}.
listen(Config, Opts) ->
    {ok, L} = gen_tcp:listen(0, opts(Config, [{ip, {127, 0, 0, 1}} | Opts])),
    {ok, Port} = inet:port(L),
    {L, Port}.

-spec connect(config(), inet:port_number(), [term()]) -> gen_tcp:socket().
connect(Config, Port, Opts) ->
    {ok, S} = gen_tcp:connect({127, 0, 0, 1}, Port, opts(Config, Opts), ?DEADLINE),
    S.

-spec accept(gen_tcp:socket()) -> gen_tcp:socket().
accept(L) ->
    {ok, S} = gen_tcp:accept(L, ?DEADLINE),
    S.

%% @doc Connected sockets `{Client, Server}', both passive and binary.
-spec pair(config()) -> {gen_tcp:socket(), gen_tcp:socket()}.
pair(Config) ->
    pair(Config, []).

-spec pair(config(), [term()]) -> {gen_tcp:socket(), gen_tcp:socket()}.
pair(Config, Opts) ->
    pair(Config, Opts, Opts).

-spec pair(config(), [term()], [term()]) -> {gen_tcp:socket(), gen_tcp:socket()}.
pair(Config, ListenOpts, ConnectOpts) ->
    {L, Port} = listen(Config, [binary, {active, false} | ListenOpts]),
    C = connect(Config, Port, [binary, {active, false} | ConnectOpts]),
    S = accept(L),
    ok = gen_tcp:close(L),
    {C, S}.

%% @doc `{Peer, S}': S is a socket of the backend with `Opts', Peer a raw stock socket.
-spec fed(config(), [term()]) -> {gen_tcp:socket(), gen_tcp:socket()}.
fed(Config, Opts) ->
    {L, Port} = listen(Config, [binary, {active, false} | Opts]),
    Peer = connect([{backend, stock}], Port, [binary, {active, false}, {nodelay, true}]),
    S = accept(L),
    ok = gen_tcp:close(L),
    {Peer, S}.

%% @doc Runs `Fun' in a linked process; `await/1' takes its result.
-spec async(fun(() -> term())) -> pid().
async(Fun) ->
    Parent = self(),
    spawn_link(fun() -> Parent ! {self(), async, Fun()} end).

-spec await(pid()) -> term().
await(Pid) ->
    await(Pid, ?DEADLINE).

-spec await(pid(), timeout()) -> term().
await(Pid, Timeout) ->
    receive
        {Pid, async, Result} -> Result
    after Timeout ->
        error({still_running, Pid, process_info(Pid, [current_stacktrace, messages])})
    end.

%% @doc Waits until `Pid' is at rest, that is: its blocking call has begun. Stock
%% gen_tcp suspends who sends to a busy port.
-spec blocked(pid()) -> ok.
blocked(Pid) ->
    AtRest = fun() ->
        {status, Status} = process_info(Pid, status),
        Status =:= waiting orelse Status =:= suspended
    end,
    wait_until(fun() -> AtRest() andalso erlang:yield() andalso AtRest() end).

-spec wait_until(fun(() -> boolean())) -> ok.
wait_until(Fun) ->
    wait_until(Fun, ?DEADLINE).

%% @doc Polls `Fun' every 5 ms until it is true; fails after `Deadline' milliseconds.
-spec wait_until(fun(() -> boolean()), non_neg_integer()) -> ok.
wait_until(Fun, Deadline) ->
    wait_loop(Fun, erlang:monotonic_time(millisecond) + Deadline).

wait_loop(Fun, End) ->
    case Fun() of
        true ->
            ok;
        false ->
            case erlang:monotonic_time(millisecond) > End of
                true ->
                    error({condition_not_met, erlang:fun_info(Fun, name)});
                false ->
                    receive after 5 -> ok end,
                    wait_loop(Fun, End)
            end
    end.

%% @doc `{Milliseconds, Result}' of `Fun'.
-spec elapsed(fun(() -> term())) -> {non_neg_integer(), term()}.
elapsed(Fun) ->
    Start = erlang:monotonic_time(millisecond),
    Result = Fun(),
    {erlang:monotonic_time(millisecond) - Start, Result}.

%% @doc Everything up to the end of the stream, read in passive mode.
-spec recv_all(gen_tcp:socket()) -> binary().
recv_all(S) ->
    recv_all(S, []).

recv_all(S, Acc) ->
    case gen_tcp:recv(S, 0, ?DEADLINE) of
        {ok, Data} -> recv_all(S, [Acc | Data]);
        {error, closed} -> iolist_to_binary(Acc)
    end.

%% @doc `Size' bytes out of the `tcp' messages of S; `Step' runs after each message.
-spec collect(gen_tcp:socket(), non_neg_integer(), fun(() -> term())) -> binary().
collect(S, Size, Step) ->
    collect(S, Size, Step, []).

collect(S, Size, Step, Acc) when Size > 0 ->
    receive
        {tcp, S, Data} ->
            _ = Step(),
            collect(S, Size - iolist_size(Data), Step, [Acc | Data])
    after ?DEADLINE ->
        error({bytes_missing, Size, process_info(self(), messages)})
    end;
collect(_S, 0, _Step, Acc) ->
    iolist_to_binary(Acc).

%% @doc The next message that belongs to socket S, in the order of arrival.
-spec next(gen_tcp:socket()) -> tuple().
next(S) ->
    receive
        M when element(2, M) =:= S; element(1, M) =:= S -> M
    after ?DEADLINE ->
        error({no_message, process_info(self(), messages)})
    end.

%% @doc Fails if a message of S comes within 30 ms: how absence can be seen at all.
-spec silence(gen_tcp:socket()) -> ok.
silence(S) ->
    receive
        M when element(2, M) =:= S; element(1, M) =:= S -> error({unexpected, M})
    after 30 -> ok
    end.

-spec flush() -> [term()].
flush() ->
    receive
        M -> [M | flush()]
    after 0 -> []
    end.

%% @doc The answer of `Fun'. Any refusal of an argument by exception is `refused':
%% badarg or function_clause depends on the release and on the way in.
-spec outcome(fun(() -> term())) -> term().
outcome(Fun) ->
    try Fun() of
        {ok, S} when is_port(S); is_tuple(S), element(1, S) =:= '$inet' ->
            _ = gen_tcp:close(S),
            ok;
        Answer ->
            Answer
    catch
        _:Why when Why =:= badarg; Why =:= function_clause; Why =:= einval -> refused;
        _:{Why, _} when Why =:= badarg; Why =:= function_clause; Why =:= badmap -> refused;
        _:{Why, _} when Why =:= bad_generator; Why =:= case_clause -> refused
    end.

%% @doc `Size' bytes that differ along the stream, so that a loss or a swap shows.
-spec pattern(non_neg_integer()) -> binary().
pattern(Size) ->
    Words = <<<<N:32>> || N <- lists:seq(1, Size div 4 + 1)>>,
    binary:part(Words, 0, Size).

%% @doc Kills a process and returns when it is dead.
-spec kill(pid()) -> ok.
kill(Pid) ->
    unlink(Pid),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive
        {'DOWN', Ref, process, Pid, _} -> ok
    after ?DEADLINE -> error({will_not_die, Pid})
    end.

%% @doc How many descriptors this VM has open.
-spec fds() -> non_neg_integer().
fds() ->
    {ok, Names} = file:list_dir("/proc/self/fd"),
    length(Names).

%% @doc A bound TCP descriptor, not yet listening, that its next user may close.
%% Its first owner never ends: socket would close the number again when it does.
-spec detached_fd() -> {non_neg_integer(), inet:port_number()}.
detached_fd() ->
    Parent = self(),
    spawn(fun() ->
        {ok, S} = socket:open(inet, stream),
        ok = socket:bind(S, #{family => inet, addr => {127, 0, 0, 1}, port => 0}),
        {ok, Fd} = socket:getopt(S, otp, fd),
        {ok, #{port := Port}} = socket:sockname(S),
        Parent ! {detached, Fd, Port},
        receive never -> S end
    end),
    receive
        {detached, Fd, Port} -> {Fd, Port}
    after ?DEADLINE -> error(no_descriptor)
    end.

%% @doc Remembers an unlinked process; `cleanup/0' in end_per_testcase kills it.
-spec keep(pid()) -> pid().
keep(Pid) ->
    put({?MODULE, Pid}, keep),
    Pid.

-spec cleanup() -> ok.
cleanup() ->
    _ = [kill(Pid) || {{?MODULE, Pid}, keep} <- get()],
    _ = [erase(Key) || {{?MODULE, _} = Key, keep} <- get()],
    _ = flush(),
    ok.

%% @doc What `M:F(A)' gives in a VM of its own with the application started: for cases
%% that could bring one down. The VM ends with the caller.
-spec in_peer(module(), atom(), [term()]) -> term().
in_peer(M, F, A) ->
    Paths = lists:append([["-pa", P] || P <- code:get_path(), filelib:is_dir(P)]),
    {ok, Peer, _} = peer:start_link(
        #{connection => standard_io, args => ["+S", "2:2" | Paths]}
    ),
    case peer:call(Peer, application, ensure_all_started, [erlane_socket]) of
        {ok, _} ->
            Result = peer:call(Peer, M, F, A, 280000),
            ok = peer:stop(Peer),
            Result;
        {error, Why} ->
            throw({skip, {erlane_socket_does_not_start, Why}})
    end.

%% @doc Connections whose bytes go round and round, checked, until `finish/1'.
-spec traffic(pos_integer()) -> [pid()].
traffic(Count) ->
    Run = fun() -> {C, S} = pair([{backend, erlane}]), rounds(C, S, 0) end,
    [async(Run) || _ <- lists:seq(1, Count)].

rounds(C, S, N) ->
    Data = binary:copy(<<N:32>>, 1 + N rem 500),
    ok = gen_tcp:send(C, Data),
    {ok, Data} = gen_tcp:recv(S, byte_size(Data), 10000),
    ok = inet:setopts(C, [{active, once}]),
    ok = gen_tcp:send(S, <<N:32>>),
    ok = receive {tcp, C, <<N:32>>} -> ok after 10000 -> {no_message, N} end,
    receive
        stop -> N
    after 0 ->
        rounds(C, S, N + 1)
    end.

%% @doc Ends the traffic; each connection must have gone on.
-spec finish([pid()]) -> ok.
finish(Jobs) ->
    _ = [Pid ! stop || Pid <- Jobs],
    [?assert(await(Pid, 20000) > 0) || Pid <- Jobs],
    ok.

%% @doc Waits until some traffic has passed since the call.
-spec moving() -> ok.
moving() ->
    Sent = fun() -> lists:sum([N || #{send := N} <- erlane_socket:stats()]) end,
    Before = Sent(),
    wait_until(fun() -> Sent() > Before + 200 end, 10000).
