%% SPDX-License-Identifier: Apache-2.0
%% What suites share that look at another node, which knows nothing of erlane.
-module(erlane_prof_ct).

-export([init_suite/2, end_suite/0, init_there/4, connected/2, peer/2, end_case/1]).
-export([call/4, agents/2, until/1, long_call/1]).

-define(WAIT_MS, 20000).

%% @doc This node is distributed from here on.
-spec init_suite(Cookie :: atom(), Config :: list()) -> list().
init_suite(Cookie, Config) ->
    Peers = connected(Cookie, #{}),
    end_case(Peers),
    Config.

-spec end_suite() -> ok | {error, term()}.
end_suite() ->
    net_kernel:stop().

%% @doc For cases of the group `there', one of these.
-spec init_there(Case :: atom(), Groups :: list(), Cookie :: atom(), Config :: list()) -> list().
init_there(Case, Groups, Cookie, Config) ->
    {there, _, There} = lists:keyfind(there, 1, Groups),
    case lists:member(Case, There) of
        true -> connected(Cookie, #{}) ++ Config;
        false -> Config
    end.

%% @doc Another node, to which this one is connected.
-spec connected(Cookie :: atom(), map()) -> [{peer, pid()} | {node, node()}].
connected(Cookie, Options) ->
    {ok, Peer, Node} = peer(Cookie, Options),
    ok = erlane_prof:connect(Node, #{cookie => Cookie}),
    [{peer, Peer}, {node, Node}].

%% @doc A node that is spoken to over its standard input and output, so that it is known what goes
%% on there when the distribution is cut. What peer:start/1 takes goes before the usual options.
-spec peer(Cookie :: atom(), map()) -> {ok, pid(), node()}.
peer(Cookie, Options) ->
    peer:start(maps:merge(#{name => peer:random_name(), connection => standard_io,
                            args => ["-setcookie", atom_to_list(Cookie)]}, Options)).

-spec end_case(Config :: list()) -> ok.
end_case(Config) ->
    _ = [catch peer:stop(Peer) || {peer, Peer} <- Config],
    ok.

%% @doc On the peer, within five seconds, or what `call_ms' says.
-spec call(Config :: list(), module(), atom(), list()) -> term().
call(Config, M, F, A) ->
    peer:call(proplists:get_value(peer, Config), M, F, A,
              proplists:get_value(call_ms, Config, 5000)).

%% @doc Our processes on the peer: they have the label that newer shells show, which begins so.
-spec agents(Config :: list(), Role :: string()) -> [pid()].
agents(Config, Role) ->
    [Pid || Pid <- call(Config, erlang, processes, []),
            {dictionary, List} <- [call(Config, erlang, process_info, [Pid, dictionary])],
            {'$process_label', {erlane_prof, Name}} <- List,
            lists:prefix(Role, atom_to_list(Name))].

%% @doc Until it raises no error any more, or for twenty seconds.
-spec until(fun(() -> term())) -> term().
until(Fun) ->
    until(Fun, erlang:monotonic_time(millisecond) + ?WAIT_MS).

until(Fun, Deadline) ->
    try Fun()
    catch
        error:Reason:Stack ->
            case erlang:monotonic_time(millisecond) < Deadline of
                true -> receive after 20 -> until(Fun, Deadline) end;
                false -> erlang:raise(error, Reason, Stack)
            end
    end.

%% @doc A native call that takes this many ms of a processor's time and does not yield. Its time
%% goes with the cube of the bits.
-spec long_call(Ms :: pos_integer()) -> fun(() -> term()).
long_call(Ms) ->
    long_call(Ms, 2000).

long_call(Ms, Bits) ->
    Power = fun(N) -> crypto:mod_pow(2, (1 bsl N) - 1, (1 bsl N) - 3) end,
    %% Not the time of day: with other work on the machine a short call takes long, too.
    {Before, _} = statistics(runtime),
    _ = Power(Bits),
    case statistics(runtime) of
        {After, _} when After - Before > 300 ->
            Longer = round(Bits * math:pow(Ms / (After - Before), 1 / 3)),
            fun() -> Power(Longer) end;
        _ ->
            long_call(Ms, Bits * 5 div 4)
    end.
