%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane top': a running node in a terminal, or as text or JSON for scripts.
-module(erlane_cli_top).

-export([run/1, help/0]).

%% Before the first sample that is shown there is one to compare it with.
-define(FIRST_MS, 500).
-define(WIDTH, 132).
-define(PROCS, 20).

%% @doc The text of `erlane help top'.
-spec help() -> iodata().
help() ->
    "usage: erlane top --node NODE [OPTION]...\n"
    "\n"
    "Shows a running Erlang node: schedulers, lanes, memory, distribution, processes. The node\n"
    "needs nothing of erlane. NODE is NAME@HOST, or NAME for this host.\n"
    "\n"
    "  --node NODE       the node (default: ERLANE_NODE of the environment)\n"
    "  --cookie COOKIE   its cookie, which other users of this machine can see in ps (default:\n"
    "                    ERLANE_COOKIE, or that of ~/.erlang.cookie)\n"
    "  --interval S      seconds between samples (1)\n"
    "  --sort ORDER      of processes: reds, memory or mailbox (reds)\n"
    "  --once            one screen as text, and the end\n"
    "  --json            a line of JSON for each sample\n"
    "  --count N         end after N samples\n"
    "\n"
    "Keys: q quits, h shows the others. The exit status is 0, or 1 if the node cannot be\n"
    "reached. NO_COLOR in the environment switches colours off.\n".

options() ->
    (erlane_cli_node:options())#{
      "--interval" => {interval, {seconds, 0.1, 3600}},
      "--sort" => {sort, {one_of, [reds, memory, mailbox]}},
      "--once" => {once, flag},
      "--json" => {json, flag},
      "--count" => {count, {integer, 1, infinity}},
      "--help" => {help, flag}}.

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run(Args) ->
    case erlane_cli_options:parse(Args, options()) of
        {ok, #{help := true}} ->
            io:put_chars(help()),
            0;
        {ok, Given} ->
            case erlane_cli_node:node(Given) of
                {ok, Node} ->
                    top(maps:merge(#{interval => 1000, sort => reds}, Given#{node => Node}));
                {error, Why} ->
                    wrong(Why)
            end;
        {error, Why} ->
            wrong(Why)
    end.

-spec wrong(iodata()) -> no_return().
wrong(Why) ->
    erlane_cli:usage_error(["top: ", Why], help()).

top(#{node := Node} = Opts) ->
    ok = erlane_cli_signal:install(self()),
    %% What the VM says about connections would be in the middle of the screen.
    ok = logger:set_primary_config(level, none),
    Way = erlane_cli_node:way(Opts),
    Probe = case erlane_prof:connect(Node, Way) of
                ok -> erlane_prof:attach(Node, #{lanes => {erlane_socket, stats}});
                Error -> Error
            end,
    case {Probe, os:getenv("ERLANE_TTY")} of
        {{error, Reason}, _} ->
            erlane_cli:fail("top: ~ts", [erlane_prof:format_error(Reason)]);
        {{ok, Attached}, "1"} when not is_map_key(once, Opts), not is_map_key(json, Opts) ->
            %% The screen has a process that attaches by itself, again and again.
            ok = erlane_prof:detach(Attached),
            erlane_top:run(Opts#{way => Way});
        {{ok, Attached}, _} ->
            Count = case Opts of
                        #{once := true} -> 1;
                        _ -> maps:get(count, Opts, infinity)
                    end,
            Before = sample(Attached, Opts),
            wait(case Opts of
                     #{once := true, interval := Interval} -> Interval;
                     #{interval := Interval} -> min(?FIRST_MS, Interval)
                 end),
            batch(Attached, Before, Count, Opts)
    end.

%% One sample after the other until the end, a signal, or that of the node.
batch(Probe, _Before, 0, _Opts) ->
    _ = erlane_prof:detach(Probe),
    0;
batch(Probe, Before, Count, #{interval := Interval} = Opts) ->
    After = sample(Probe, Opts),
    show(erlane_prof:view(Before, After), Opts),
    case Count of
        1 -> batch(Probe, After, 0, Opts);
        _ ->
            case wait(Interval) of
                signal -> batch(Probe, After, 0, Opts);
                ok when Count =:= infinity -> batch(Probe, After, infinity, Opts);
                ok -> batch(Probe, After, Count - 1, Opts)
            end
    end.

sample(Probe, #{sort := Sort}) ->
    case erlane_prof:sample(Probe, #{procs => ?PROCS, sort => Sort}) of
        {ok, Sample} -> erlane_top:without_us(Sample);
        {error, Reason} -> erlane_cli:fail("top: ~ts", [erlane_prof:format_error(Reason)])
    end.

wait(Ms) ->
    receive
        {signal, _} -> signal
    after Ms ->
        ok
    end.

show(View, #{json := true}) ->
    io:put_chars([erlane_top_json:encode(View), $\n]);
show(#{node := Node} = View, #{sort := Sort, interval := Interval} = Opts) ->
    Width = case string:to_integer(os:getenv("COLUMNS", "")) of
                {N, ""} when N >= 20 -> N;
                _ -> ?WIDTH
            end,
    State = #{node => Node, view => View, sort => Sort, interval => Interval, footer => false},
    io:put_chars([erlane_top_text:text(erlane_top_screen:lines(State, {Width, 200})),
                  [$\n || not is_map_key(once, Opts)]]).
