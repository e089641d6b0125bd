%% SPDX-License-Identifier: Apache-2.0
%% What tune did is undone, to the letter; and messages do not notice either. Nodes are linked to
%% the process of their case, so that none is left however it ends.
-module(erlane_dist_undo_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([undo_is_exact/1, undo_keeps_others/1, undo_of_what_joined/1, undo_in_reverse/1,
         restarted/1, bad_changes/1, order_and_delivery/1]).
-export([numbers/2, collect/1]).

-import(erlane_dist_ct, [start/0, start/1, stop/1, call/4, connect/2, name/1, tune/2, settings/1,
                         keys/2, tuned/2]).

all() ->
    [undo_is_exact, undo_keeps_others, undo_of_what_joined, undo_in_reverse, restarted,
     bad_changes, order_and_delivery].

%% Everything as before, to the letter: with an environment, without, with a part of it.
undo_is_exact(_Config) ->
    lists:foreach(
      fun(Args) ->
              [A, B, C] = Nodes = [start(Args), start(), start(["-hidden"])],
              ok = connect(A, B),
              ok = connect(C, A),
              Before = settings(A),
              {ok, Changes} = tune(A, #{}),
              ?assertNotEqual(Before, settings(A)),
              {ok, Undone} = call(A, erlane_dist, untune, [Changes]),
              ?assertEqual(Before, settings(A)),
              ?assertEqual(lists:sort([{W, K, Was, Now} || #{where := W, key := K, was := Was,
                                                             now := Now} <- Changes]),
                           lists:sort([{W, K, Was, Now} || #{where := W, key := K, was := Now,
                                                             now := Was} <- Undone])),
              ?assertEqual([ok], lists:usort([R || #{result := R} <- Undone])),
              stop(Nodes)
      end,
      [[],
       ["-kernel", "inet_dist_listen_options", "[{sndbuf,30000},{buffer,3000},{keepalive,true}]"],
       ["-kernel", "inet_dist_connect_options",
        "[{low_watermark,1000},{nodelay,true},{high_watermark,9000},{buffer,300000}]",
        "-kernel", "inet_dist_listen_options", "[]"]]).

%% What somebody else set in the environment meanwhile stays.
undo_keeps_others(_Config) ->
    A = start(["-kernel", "inet_dist_connect_options", "[{buffer,4000},{keepalive,false}]"]),
    {ok, Changes} = tune(A, #{}),
    #{env := [{ok, Tuned} | _]} = settings(A),
    ok = call(A, application, set_env, [kernel, inet_dist_connect_options,
                                        [{linger, {true, 1}} | Tuned]]),
    {ok, _} = call(A, erlane_dist, untune, [Changes]),
    #{env := [{ok, Connect}, undefined | _]} = settings(A),
    ?assertEqual([{buffer, 4000}, {keepalive, false}, {linger, {true, 1}}], lists:sort(Connect)),
    stop([A]).

%% Connections made since then get what they would have had, each side its own.
undo_of_what_joined(_Config) ->
    [A, B, C, D] = Nodes =
        [start(["-kernel", "inet_dist_listen_options", "[{buffer,7000}]"]), start(), start(),
         start()],
    ok = connect(A, D),
    %% One that was tuned before has no changes, and is left as it is.
    {ok, _} = tune(A, #{nodes => [name(D)]}),
    {ok, Changes} = tune(A, #{}),
    ok = connect(A, B),
    ok = connect(C, A),
    tuned(A, [name(B), name(C), name(D)]),
    {ok, Undone} = call(A, erlane_dist, untune, [Changes]),
    [4 = length(keys(Undone, name(N))) || N <- [B, C]],
    #{connections := Connections} = settings(A),
    Of = fun(N, Key) -> proplists:get_value(Key, maps:get(name(N), Connections)) end,
    [?assertEqual({false, 8192, 4096}, {Of(N, delay_send), Of(N, high_watermark),
                                        Of(N, low_watermark)}) || N <- [B, C]],
    ?assertEqual(7000, Of(C, buffer)),
    [Stock] = lists:usort([Was || #{where := new, side := connect, key := buffer,
                                    was := Was} <- Changes]),
    ?assertEqual(Stock, Of(B, buffer)),
    ?assert(Stock =/= 7000),
    ?assertEqual({262144, true}, {Of(D, buffer), Of(D, delay_send)}),
    stop(Nodes).

%% Two tunes, undone the last one first; a node that reconnected in between is not mistaken.
undo_in_reverse(_Config) ->
    [A, B, C] = Nodes = [start(), start(), start()],
    ok = connect(A, B),
    ok = connect(A, C),
    Before = settings(A),
    {ok, First} = tune(A, #{buffer => 10000, nodes => [new, name(B)]}),
    {ok, Second} = tune(A, #{buffer => 20000}),
    {ok, _} = call(A, erlane_dist, untune, [Second]),
    {ok, _} = call(A, erlane_dist, untune, [First]),
    ?assertEqual(Before, settings(A)),
    ok = call(A, net_kernel, setopts, [name(B), [{buffer, 5555}]]),
    {ok, Third} = tune(A, #{}),
    true = call(A, erlang, disconnect_node, [name(B)]),
    erlane_dist_ct:until(fun() -> [_] = call(A, erlang, system_info, [dist_ctrl]) end),
    ok = connect(A, B),
    {ok, Undone} = call(A, erlane_dist, untune, [Third]),
    ?assertEqual(Before, settings(A)),
    [_] = [Change || #{result := {error, noconnection}, where := Where} = Change <- Undone,
                     Where =:= name(B)],
    stop(Nodes).

%% What was set in another run is not put back into this one.
restarted(_Config) ->
    A = start(),
    {ok, Changes} = tune(A, #{}),
    B = start(),
    Before = settings(B),
    {error, restarted} = call(B, erlane_dist, untune, [Changes]),
    ?assertEqual(Before, settings(B)),
    stop([A, B]).

%% No term takes untune down.
bad_changes(_Config) ->
    A = start(),
    Before = settings(A),
    Row = #{where => new, key => buffer, was => 1, now => 2, result => ok},
    [?assertEqual({Bad, {error, {bad_option, changes}}},
                  {Bad, call(A, erlane_dist, untune, [Bad])})
     || Bad <- [undefined, #{}, [x], [#{}], [Row], [Row#{where => 'a@b'}], [Row#{where => 1}],
                [Row#{result => {error, x}} | x], {ok, []}]],
    {ok, []} = call(A, erlane_dist, untune, [[Row#{result => {error, enotsup}}]]),
    {error, {bad_option, changes}} =
        call(A, erlane_dist, untune, [[Row#{side => accept, kept => #{env => #{}}}]]),
    {ok, []} = call(A, erlane_dist, untune, [[]]),
    ?assertEqual(Before, settings(A)),
    stop([A]).

%% Four senders, small and large messages, while the settings of both nodes go back and forth:
%% each receiver has all of them, once, in order.
order_and_delivery(_Config) ->
    [A, B] = Nodes = [start(), start()],
    ok = connect(A, B),
    Receivers = [call(B, erlang, spawn, [?MODULE, collect, [0]]) || _ <- lists:seq(1, 4)],
    Senders = [call(A, erlang, spawn, [?MODULE, numbers, [R, 1]]) || R <- Receivers],
    [begin
         Changes = [{N, element(2, {ok, _} = tune(N, #{}))} || N <- Nodes],
         [?assert(length(C) >= 12) || {_, C} <- Changes],
         [{ok, _} = call(N, erlane_dist, untune, [C]) || {N, C} <- Changes]
     end || _ <- lists:seq(1, 30)],
    [call(A, erlang, send, [S, enough]) || S <- Senders],
    [begin
         {all, Count} = erlane_dist_ct:until(fun() -> {_, _} = answer(B, R) end),
         ?assert(Count > 1000, Count)
     end || R <- Receivers],
    stop(Nodes).

numbers(Receiver, N) ->
    Receiver ! {N, case N rem 500 of
                       0 -> binary:copy(<<N:32>>, 50000);
                       _ -> N
                   end},
    receive enough -> Receiver ! {last, N}
    after 0 -> numbers(Receiver, N + 1)
    end.

%% Its result is in its dictionary, where others can see it.
collect(Last) ->
    receive
        {N, N} when N =:= Last + 1 -> collect(N);
        {N, <<N:32, _/binary>>} when N =:= Last + 1 -> collect(N);
        {last, Last} ->
            put(result, {all, Last}),
            receive Another -> put(result, {too_many, Another}) end;
        Other ->
            put(result, {after_, Last, Other}),
            receive never -> ok end
    end.

answer(Node, Pid) ->
    {dictionary, Dictionary} = call(Node, erlang, process_info, [Pid, dictionary]),
    proplists:get_value(result, Dictionary).
