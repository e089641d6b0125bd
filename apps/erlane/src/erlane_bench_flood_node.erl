%% SPDX-License-Identifier: Apache-2.0
%% @doc One node of the flood scenarios. Runs in a VM of its own:
%%
%%     erl -noshell -name NAME ... -s erlane_bench_flood_node start -extra SETTINGS [router]
%%
%% SETTINGS are those of its distribution: `stock' or one of {@link settings/1}. With `router'
%% erlane_router is started. Prints `ready HOW', then obeys erlane_bench_vm.
%%
%%     {connect, [Node]}.      {prepare, Load, Spec}.      {go, Change}.      release.
-module(erlane_bench_flood_node).

-export([start/0, settings/1]).

-define(BUFFER, 262144).
-define(WATERMARK, 1048576).

%% @doc Entry of the VM.
-spec start() -> ok.
start() ->
    erlane_bench_server:program(fun main/1).

main([Settings | Apps]) ->
    How = tune(Settings),
    _ = [{ok, _} = application:ensure_all_started(erlane_router) || "router" <- Apps],
    io:format("ready ~ts~n", [How]),
    erlane_bench_vm:commands(fun obey/2, none).

tune("stock") ->
    "nobody";
tune("tuned") ->
    Tuner = erlane_dist,
    case code:ensure_loaded(Tuner) of
        {module, _} ->
            {ok, Changes} = Tuner:tune(),
            [] = [C || #{result := {error, _}} = C <- Changes],
            "erlane_dist";
        {error, _} ->
            by_hand(settings("tuned"))
    end;
tune(Step) ->
    by_hand(settings(Step)).

by_hand(Settings) ->
    ok = net_kernel:setopts(new, Settings),
    "net_kernel:setopts/2".

%% @doc The steps of tuning, as options of the sockets.
-spec settings(Step :: string()) -> [gen_tcp:option()].
settings("buffer") -> [{buffer, ?BUFFER}];
settings("delay_send") -> [{delay_send, true} | settings("buffer")];
settings("tuned") ->
    [{high_watermark, ?WATERMARK}, {low_watermark, ?WATERMARK} | settings("delay_send")].

%%
%% Standard input
%%

obey({connect, Nodes}, Prepared) ->
    {[net_kernel:connect_node(Node) || Node <- Nodes], Prepared};
obey({prepare, Load, Spec}, none) ->
    {ok, erlane_bench_flood_load:prepare(Load, Spec)};
obey({go, Change}, Prepared) ->
    {erlane_bench_flood_load:go(Prepared, Change), Prepared};
obey(release, none) ->
    {ok, none};
obey(release, Prepared) ->
    {erlane_bench_flood_load:release(Prepared), none}.
