%% SPDX-License-Identifier: Apache-2.0
%% Mode perf: what perf writes is read, what hinders it is said, and what it shows is what mode
%% sample shows of programs whose functions are known.
-module(erlane_prof_perf_SUITE).

-import(erlane_prof_ct, [until/1]).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, groups/0, init_per_group/2, end_per_group/2]).
-export([script/1, symbols/1, byte_by_byte/1, limit/1]).
-export([not_installed/1, not_started_for_it/1, not_allowed/1, fails/1]).
-export([two_loops/1, recursion/1, several_processes/1, asked_to_stop/1,
         stopped_before_it_records/1, nothing_left/1]).
-export([start/1, stop/0]).

-define(COOKIE, erlane_prof_perf_test).

all() ->
    [{group, pure}, {group, refused}, {group, shares}].

groups() ->
    [{pure, [], [script, symbols, byte_by_byte, limit]},
     {refused, [], [not_installed, not_started_for_it, not_allowed, fails]},
     {shares, [], [two_loops, recursion, several_processes, asked_to_stop,
                   stopped_before_it_records, nothing_left]}].

init_per_group(shares, Config) ->
    {ok, Peer, Node} =
        peer:start(#{name => peer:random_name(), connection => standard_io,
                     args => ["-setcookie", atom_to_list(?COOKIE), "+JPperf", "map", "-pa",
                              filename:dirname(code:which(?MODULE))]}),
    ok = erlane_prof:connect(Node, #{cookie => ?COOKIE}),
    case run(#{mode => perf, node => Node, for => 100}) of
        {ok, _} -> [{peer, Peer}, {node, Node} | Config];
        {error, Why} ->
            peer:stop(Peer),
            {skip, erlane_prof:format_error(Why)}
    end;
init_per_group(_, Config) ->
    Config.

end_per_group(shares, Config) ->
    peer:stop(proplists:get_value(peer, Config)),
    net_kernel:stop();
end_per_group(_, _Config) ->
    ok.

%%% Pure

text() ->
    <<"erts_sched_1  4711 \n"
      "\t    7f4f5c0e2a10 $lists:foldl/3 (/tmp/perf-4710.map)\n"
      "\t    7f4f5c0e1b80 $shop:total/1\n"
      "\n"
      "erts_sched_2  4712 \n"
      "        7f4f5c0e2a10 $lists:foldl/3\n"
      "        7f4f5c0e1b80 $shop:total/1\n"
      "\n"
      "1_dirty_io sche 4713 \n"
      "\tffffffff81 [unknown] ([unknown])\n"
      "\t 4f00 std::foo(int, char)\n"
      "\n"
      "erts_aux  4714 \n"
      "\n">>.

read(Text, Limit) ->
    Lines = binary:split(Text, <<"\n">>, [global]),
    Reader = lists:foldl(fun erlane_prof_perf_script:line/2,
                         erlane_prof_perf_script:new(10, Limit), Lines),
    {Tally, N, Lost} = erlane_prof_perf_script:finish(Reader),
    Fields = #{mode => perf, values => [#{name => cpu, unit => nanoseconds},
                                        #{name => samples, unit => count}]},
    {erlane_prof_profile:new(Fields, Tally), N, Lost}.

%% Threads without their numbers, stacks with the outermost frame first.
script(_Config) ->
    {#{rows := Rows}, 4, 0} = read(text(), 100),
    ?assertEqual([{<<"dirty_io sche">>, [<<"std::foo(int, char)">>, <<"[unknown]">>], [10, 1]},
                  {<<"erts_aux">>, [<<"[unknown]">>], [10, 1]},
                  {<<"erts_sched">>, [{shop, total, 1, <<>>, 0}, {lists, foldl, 3, <<>>, 0}],
                   [20, 2]}],
                 lists:sort([{P, S, V} || #{proc := P, stack := S, values := V} <- Rows])).

%% What the JIT writes is a function, anything else a symbol.
symbols(_Config) ->
    [?assertEqual(Frame, erlane_prof_perf_script:frame(Symbol))
     || {Symbol, Frame} <-
            [{<<"$lists:foldl/3">>, {lists, foldl, 3, <<>>, 0}},
             {<<"$shop:'-total/1-fun-0-'/2">>, {shop, '-total/1-fun-0-', 2, <<>>, 0}},
             {<<"$shop:-total/1-fun-0-/2">>, {shop, '-total/1-fun-0-', 2, <<>>, 0}},
             {<<"$'a:b':c/0">>, {'a:b', c, 0, <<>>, 0}},
             {<<"$erlang:'/'/2">>, {erlang, '/', 2, <<>>, 0}},
             {<<"$lists:foldl/999">>, <<"$lists:foldl/999">>},
             {<<"$global::call">>, <<"$global::call">>},
             {<<"$lists:foldl/3 (/tmp/perf-1.map)">>, {lists, foldl, 3, <<>>, 0}},
             {<<"[unknown] (/usr/lib/erlang/erts/bin/beam.smp)">>, <<"[beam.smp]">>},
             {<<"[unknown] ([kernel.kallsyms])">>, <<"[kernel.kallsyms]">>},
             {<<"[unknown] ([unknown])">>, <<"[unknown]">>},
             {<<"f(int) (libx.so)">>, <<"f(int)">>},
             {<<"process_main">>, <<"process_main">>}, {<<>>, <<"[unknown]">>},
             {<<"$">>, <<"$">>}]].

%% A text that is cut anywhere gives what is there.
byte_by_byte(_Config) ->
    Text = text(),
    [{_, true} = {N, element(2, read(binary:part(Text, 0, N), 100)) =< 4}
     || N <- lists:seq(0, byte_size(Text))].

%% No more than its limit, and the rest is counted.
limit(_Config) ->
    {Profile, 3, 1} = read(text(), 3),
    ?assertEqual(3, erlane_prof_profile:total(Profile, samples)).

%%% Refused

%% Each with a sentence that says why.
not_installed(Config) ->
    with_path(proplists:get_value(priv_dir, Config), fun() -> refused("not installed") end).

not_started_for_it(Config) ->
    perf(Config, "exit 0", fun() -> refused("[+]JPperf map|no JIT") end).

%% As perf says it where it is forbidden.
not_allowed(Config) ->
    map(fun() ->
                perf(Config, "echo 'Access to performance monitoring is limited. Consider "
                     "adjusting perf_event_paranoid' >&2; exit 255",
                     fun() -> refused("not allowed here: kernel.perf_event_paranoid is") end)
        end).

fails(Config) ->
    map(fun() ->
                perf(Config, "echo 'no space left' >&2; exit 1",
                     fun() -> refused("perf failed: no space left") end)
        end).

refused(Regex) ->
    {error, {declined, _, _} = Why} = run(#{mode => perf, for => 50}),
    ?assertMatch({match, _}, re:run(erlane_prof:format_error(Why), Regex)).

%% As if this VM had been started for it.
map(Fun) ->
    File = "/tmp/perf-" ++ os:getpid() ++ ".map",
    case erlang:system_info(emu_flavor) of
        jit ->
            ok = file:write_file(File, ""),
            try Fun() after file:delete(File) end;
        _ ->
            {skip, "no JIT"}
    end.

%% A perf of our own.
perf(Config, Script, Fun) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "bin"),
    File = filename:join(Dir, "perf"),
    ok = filelib:ensure_dir(File),
    ok = file:write_file(File, ["#!/bin/sh\n", Script, "\n"]),
    ok = file:change_mode(File, 8#755),
    with_path(Dir ++ ":" ++ os:getenv("PATH"), Fun).

with_path(Path, Fun) ->
    Was = os:getenv("PATH"),
    true = os:putenv("PATH", Path),
    try Fun() after os:putenv("PATH", Was) end.

%%% Shares

%% Garbage is left out: it is collected by other threads, for which a busy machine has no processor
%% while the process is seen as running.
two_loops(Config) -> same(Config, [fun loops/0]).

recursion(Config) -> same(Config, [fun trees/0]).

several_processes(Config) -> same(Config, [fun loops/0, fun trees/0, fun words/0]).

%% Each function that has 5% of the CPU time by perf has the same share of the samples, but for 5
%% points, for what so few samples cannot tell, and for the time in which a process ran and its
%% scheduler had no processor: a sample cannot see that, and other work on the machine need not
%% take as much from each scheduler. Three attempts, as that work comes and goes.
same(Config, Programs) ->
    Peer = proplists:get_value(peer, Config),
    ok = peer:call(Peer, ?MODULE, start, [Programs]),
    try
        Busy = min(length(Programs), peer:call(Peer, erlang, system_info, [schedulers_online])),
        same(Config, Busy, 3)
    after
        ok = peer:call(Peer, ?MODULE, stop, [])
    end.

same(Config, Busy, Attempts) ->
    {Different, Seen} = differences(Config, Busy),
    case Different of
        [] -> ok;
        _ when Attempts > 1 -> same(Config, Busy, Attempts - 1);
        _ -> ct:fail({Different, Seen})
    end.

differences(Config, Busy) ->
    Node = proplists:get_value(node, Config),
    Ms = 3000,
    %% Both at once: who has how much of a processor changes with what else is there.
    Self = self(),
    Other = spawn_link(fun() ->
                               Self ! {self(), run(#{mode => perf, node => Node, for => Ms,
                                                     hz => 500})}
                       end),
    {ok, Sample} = run(#{mode => sample, node => Node, for => Ms}),
    {ok, Perf} = receive {Other, Answer} -> Answer end,
    {PerfShares, PerfN, PerfNs} = shares(Perf),
    {SampleShares, _, _} = shares(erlane_prof_profile:filter(Sample, #{state => [running, gc]})),
    {_, SampleN, _} = shares(Sample),
    Missing = max(0.0, 1 - PerfNs / (Busy * Ms * 1000000)),
    ct:pal("perf ~b, ~.3f missing: ~p~nsample ~b: ~p",
           [PerfN, Missing, PerfShares, SampleN, SampleShares]),
    ?assert(PerfN > 20 andalso SampleN > 20),
    Different = [{F, Share, Sampled, Error}
                 || {F, Share} <- maps:to_list(PerfShares), Share > 0.05,
                    Sampled <- [maps:get(F, SampleShares, 0.0)],
                    Error <- [3 * math:sqrt(max(Share, Sampled) * (1 - min(Share, Sampled))
                                            * (1 / PerfN + 1 / SampleN))],
                    abs(Share - Sampled) > 0.05 + Error + Missing],
    {Different, #{missing => Missing, perf => PerfShares, sample => SampleShares}}.

%% Of the innermost functions of this module: what they call in C is theirs.
shares(#{rows := Rows}) ->
    Ours = [{F, Ns, N}
            || #{stack := Stack, values := [Ns, N]} <- Rows,
               {?MODULE, F, _, _, _} <- lists:sublist([Frame || {?MODULE, _, _, _, _} = Frame
                                                                    <- lists:reverse(Stack)], 1)],
    Total = lists:sum([Ns || {_, Ns, _} <- Ours]),
    Sums = lists:foldl(fun({F, Ns, _}, Acc) ->
                               maps:update_with(F, fun(Sum) -> Sum + Ns end, Ns, Acc)
                       end, #{}, Ours),
    {maps:map(fun(_, Ns) -> Ns / max(1, Total) end, Sums), lists:sum([N || {_, _, N} <- Ours]),
     Total}.

%% What there is until then.
asked_to_stop(Config) ->
    Peer = proplists:get_value(peer, Config),
    ok = peer:call(Peer, ?MODULE, start, [[fun loops/0]]),
    {Us, {ok, #{notes := Notes, rows := [_ | _]}}} =
        timer:tc(fun() -> run(#{mode => perf, node => proplists:get_value(node, Config),
                                for => 60000, progress => fun(#{ms := Ms}) when Ms > 2000 -> stop;
                                               (_) -> continue
                                            end})
                 end),
    ok = peer:call(Peer, ?MODULE, stop, []),
    ?assert(Us < 40000000, Us),
    ?assert(lists:any(fun(Note) -> string:find(Note, "as asked") =/= nomatch end, Notes), Notes).

%% A perf that is not yet there to be asked ends as well.
stopped_before_it_records(Config) ->
    Options = #{mode => perf, node => proplists:get_value(node, Config), for => 30000,
                progress => fun(_) -> stop end},
    {Us, {error, {declined, _, _}}} =
        timer:tc(fun() ->
                         perf(Config, "trap '' INT; for _ in $(seq 300); do sleep 0.1; done",
                              fun() -> run(Options) end)
                 end),
    ?assert(Us < 20000000, Us).

%% A caller that is killed takes perf and its files with it.
nothing_left(Config) ->
    Node = proplists:get_value(node, Config),
    Tmp = proplists:get_value(priv_dir, Config),
    Of = "perf record .* -p " ++ peer:call(proplists:get_value(peer, Config), os, getpid, []),
    true = os:putenv("TMPDIR", Tmp),
    {Caller, Ref} = spawn_monitor(fun() -> run(#{mode => perf, node => Node, for => 60000}) end),
    until(fun() -> [_ | _] = os:cmd("pgrep -f '" ++ Of ++ "'") end),
    exit(Caller, kill),
    receive {'DOWN', Ref, process, Caller, _} -> ok end,
    until(fun() ->
                  [] = filelib:wildcard(filename:join(Tmp, "tmp.*")),
                  [] = os:cmd("pgrep -x perf -a | grep -e '" ++ Of ++ "'")
          end),
    true = os:unsetenv("TMPDIR").

%%% The programs, on the peer

start(Programs) ->
    Self = self(),
    Pid = spawn(fun() ->
                        true = register(?MODULE, self()),
                        [spawn_link(Program) || Program <- Programs],
                        Self ! {self(), ready},
                        receive stop -> exit(shutdown) end
                end),
    receive {Pid, ready} -> ok end.

stop() ->
    Ref = monitor(process, ?MODULE),
    ?MODULE ! stop,
    receive {'DOWN', Ref, process, _, _} -> ok end.

loops() ->
    _ = three(9000000),
    _ = one(3000000),
    loops().

three(0) -> 0;
three(N) -> three(N - 1).

one(0) -> 0;
one(N) -> one(N - 1).

trees() ->
    trees(lists:seq(1, 1000)).

trees(List) ->
    _ = fib(32),
    _ = [add(List, 0) || _ <- lists:seq(1, 20000)],
    trees(List).

fib(N) when N < 2 -> N;
fib(N) -> fib(N - 1) + fib(N - 2).

add([], Sum) -> Sum;
add([N | Ns], Sum) -> add(Ns, Sum + N).

words() ->
    words(binary:copy(<<"words and words ">>, 100000)).

words(Words) ->
    _ = hash(Words, 0),
    words(Words).

hash(<<C, Rest/binary>>, H) -> hash(Rest, (H * 31 + C) band 16#ffffff);
hash(<<>>, H) -> H.

%%% Helpers

run(Options) ->
    erlane_prof:run(maps:merge(#{for => 500, events => 1000000}, Options)).
