%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane profile': what a running node has been doing, as a table or a file.
-module(erlane_cli_profile).

-export([run/1, help/0]).

-define(EVENTS, 1000000).
%% A call that is only counted makes no message.
-define(COUNTED, 1000000000).

%% @doc The text of `erlane help profile'.
-spec help() -> iodata().
help() ->
    ["usage: erlane profile --node NODE [OPTION]...\n"
     "       erlane profile --diff BEFORE.erlprof AFTER.erlprof [--out FILE]\n"
     "\n"
     "Takes a profile of a running Erlang node, which needs nothing of erlane and is as before\n"
     "when it is done. Ctrl-C ends it early and keeps what there is.\n"
     "\n"
     "  --node NODE        the node: NAME@HOST, or NAME for this host (default: ERLANE_NODE)\n"
     "  --cookie COOKIE    its cookie, which other users of this machine can see in ps (default:\n"
     "                     ERLANE_COOKIE, or that of ~/.erlang.cookie)\n"
     "  --for TIME         how long: 10s, 500ms, 2m (10s)\n"
     "  --mode MODE        sample: what processes do, and what they wait for (default)\n"
     "                     perf: CPU time by Linux' perf, C code and kernel too; same machine\n"
     "                     time: calls and time of functions; memory: words they allocate\n"
     "                     trace: each call and return: exact stacks and waits; slows down\n"
     "                     latency: how long calls take, as histograms; at most 16 functions\n"
     "                     schedulers: threads of the VM, run queues, locks, what stands out\n"
     "  --functions LIST   for time, memory, trace, latency: modules, or MODULE:FUNCTION/ARITY,\n"
     "                     with commas; _ is all modules, for trace with --force\n"
     "  --with LIST        for trace: spawns, messages, gc, ports, with commas\n"
     "  --tracer WHICH     for trace: native, port, or auto, what the node has (auto)\n"
     "  --procs LIST       these processes only, by registered name, with commas\n"
     "  --events N         end after so many samples, or calls (1000000, counted ones 1000000000)\n"
     "  --hz N             looks a second, at the most (100)\n"
     "  --depth N          frames of a stack, 8 to 64 (64)\n"
     "  --top N            functions in the table, without --out (20)\n"
     "  --json             instead of the table, for programs\n"
     "  --waiting          the table of modes sample and trace has processes that wait, too\n"
     "  --out FILE         a file with all of it; its ending is the format:\n",
     [["                       ", string:pad(lists:join(" ", Endings), 26), Purpose, $\n]
      || {_, Endings, Purpose} <- erlane_prof_file:formats()],
     "\n"
     "The exit status is 0, or 1 if there is no profile.\n"].

options() ->
    (erlane_cli_node:options())#{
      "--for" => {for, text},
      "--mode" => {mode, {one_of, [sample, perf, time, memory, trace, latency, schedulers]}},
      "--functions" => {functions, text},
      "--force" => {force, flag},
      "--with" => {with, text},
      "--tracer" => {tracer, {one_of, [auto, native, port]}},
      "--procs" => {procs, text},
      "--events" => {events, {integer, 1, infinity}},
      "--hz" => {hz, {integer, 1, 1000}},
      "--depth" => {depth, {integer, 8, 64}},
      "--top" => {top, {integer, 1, infinity}},
      "--out" => {out, text},
      "--waiting" => {waiting, flag},
      "--json" => {json, flag},
      "--diff" => {diff, two_texts},
      "--help" => {help, flag}}.

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run(Args) ->
    case erlane_cli_options:parse(Args, options()) of
        {ok, #{help := true}} ->
            io:put_chars(help()),
            0;
        {ok, Given} ->
            check_out(Given),
            case Given of
                #{diff := {Before, After}} -> diff(Before, After, Given);
                _ -> profile(Given)
            end;
        {error, Why} ->
            wrong(Why)
    end.

-spec wrong(iodata()) -> no_return().
wrong(Why) ->
    erlane_cli:usage_error(["profile: ", Why], help()).

-spec fail(iodata()) -> no_return().
fail(Why) ->
    erlane_cli:fail("profile: ~ts", [Why]).

%% Before the work, not after it: the ending, and whether the directory is there.
check_out(#{mode := schedulers, out := _}) ->
    wrong("--out: mode schedulers has no file; --json is for programs");
check_out(#{out := File}) ->
    case erlane_prof_file:format(File) of
        {ok, _} ->
            filelib:is_dir(filename:dirname(File))
                orelse fail([filename:dirname(File), ": no such directory"]);
        {error, Why} ->
            wrong(["--out ", File, ": ", erlane_prof_file:error_text(Why)])
    end;
check_out(_) ->
    true.

%%% Taking one

profile(Given) ->
    Node = case erlane_cli_node:node(Given) of
               {ok, N} -> N;
               {error, Why} -> wrong(Why)
           end,
    Events = case Given of
                 #{mode := Mode} when Mode =:= time; Mode =:= memory -> ?COUNTED;
                 #{} -> ?EVENTS
             end,
    Options = maps:merge(#{mode => sample, events => Events, node => Node, for => for(Given)},
                         maps:with([mode, events, hz, depth, force, tracer], Given)),
    ok = erlane_cli_signal:install(self()),
    %% What the VM says about connections would be among our lines.
    ok = logger:set_primary_config(level, none),
    Answer = case erlane_prof:connect(Node, erlane_cli_node:way(Given)) of
                 ok -> take(maps:merge(Options, lists_of(Given)));
                 Error -> Error
             end,
    case Answer of
        {ok, #{rows := _} = Profile} -> show(Profile, Given);
        {ok, #{threads := _} = View} -> put_view(View, Given);
        {error, {option, _, _} = Reason} -> wrong(erlane_prof:format_error(Reason));
        {error, Reason} -> fail(erlane_prof:format_error(Reason))
    end.

for(Given) ->
    Text = maps:get(for, Given, "10s"),
    case string:to_float(case lists:member($., Text) of
                             true -> Text;
                             false -> decimal(Text)
                         end) of
        {N, Unit} when is_float(N), N > 0 ->
            case lists:keyfind(Unit, 1, [{"ms", 1}, {"s", 1000}, {"", 1000}, {"m", 60000},
                                         {"h", 3600000}]) of
                {_, Ms} -> round(N * Ms);
                false -> no_time(Text)
            end;
        _ -> no_time(Text)
    end.

decimal(Text) ->
    {Digits, Unit} = lists:splitwith(fun(C) -> C >= $0 andalso C =< $9 end, Text),
    Digits ++ ".0" ++ Unit.

-spec no_time(string()) -> no_return().
no_time(Text) ->
    wrong(["--for ", Text, ": is no time; 10s, 500ms, 2m are"]).

lists_of(Given) ->
    maps:merge(case Given of
                   #{functions := Text} -> #{functions => [function(F) || F <- words(Text)]};
                   _ -> #{}
               end,
               maps:from_list([{Key, [list_to_atom(P) || P <- words(maps:get(Key, Given))]}
                               || Key <- [procs, with], is_map_key(Key, Given)])).

words(Text) ->
    [string:trim(Word) || Word <- string:lexemes(Text, ",")].

%% lists, lists:map/2 or lists:map.
function(Text) ->
    case re:run(Text, "^([^:/]+)(?::([^:/]+)(?:/([0-9]+))?)?$",
                [{capture, all_but_first, list}]) of
        {match, [M]} -> list_to_atom(M);
        {match, [M, F]} -> {list_to_atom(M), list_to_atom(F), '_'};
        {match, [M, F, A]} -> {list_to_atom(M), list_to_atom(F), list_to_integer(A)};
        nomatch -> wrong(["--functions ", Text, ": MODULE or MODULE:FUNCTION/ARITY"])
    end.

take(#{node := Node, for := For, mode := Mode} = Options) ->
    stderr("profile: ~ts, mode ~ts, ~.1f s; Ctrl-C ends it~n", [Node, Mode, For / 1000]),
    Tty = os:getenv("ERLANE_TTY") =:= "1",
    Progress = fun(Told) ->
                       _ = Tty andalso stderr("\r  ~ts ", [progress(Told, For)]),
                       receive {signal, _} -> stop
                       after 0 -> continue
                       end
               end,
    Answer = case Mode of
                 schedulers ->
                     erlane_prof:schedulers((maps:with([node, for], Options))#{
                                              progress => Progress});
                 _ ->
                     erlane_prof:run(Options#{progress => Progress})
             end,
    _ = Tty andalso stderr("\r\e[K", []),
    Answer.

%% A trace is read after it was taken.
progress(#{read := Read, bytes := Bytes}, _For) ->
    Part = Read / max(1, Bytes),
    io_lib:format("[~-40ts] ~3b% of ~.1f MB\e[K",
                  [lists:duplicate(round(40 * Part), $#), round(100 * Part), Bytes / 1.0e6]);
progress(#{ms := Ms, events := Events}, For) ->
    io_lib:format("~.1f s of ~.1f s, ~b events", [min(Ms, For) / 1000, For / 1000, Events]).

%%% What comes of it

show(#{notes := Notes} = Profile, #{out := File}) ->
    case erlane_prof_file:write(Profile, File) of
        ok ->
            [stderr("profile: ~ts~n", [Note]) || Note <- Notes],
            stderr("profile: ~ts is written~n", [File]),
            0;
        {error, Why} ->
            fail(erlane_prof_file:error_text(Why))
    end;
show(Profile, #{json := true} = Given) ->
    io:put_chars(erlane_prof_json:format(Profile, maps:get(top, Given, all))),
    0;
show(#{mode := Mode} = Profile, Given) when Mode =:= sample orelse Mode =:= trace,
                                            not is_map_key(waiting, Given) ->
    %% Hundreds that wait would be all that is seen.
    Busy = [running, runnable, gc, suspended, no_answer],
    show(erlane_prof_profile:filter(Profile, #{state => Busy}), Given#{waiting => true});
show(Profile, Given) ->
    io:put_chars(erlane_prof_top:format(Profile, #{count => maps:get(top, Given, 20)})),
    0.

put_view(View, Given) ->
    io:put_chars(case Given of
                     #{json := true} -> erlane_prof_schedulers:json(View);
                     #{} -> erlane_prof_schedulers:format(View)
                 end),
    0.

diff(Before, After, Given) ->
    case erlane_prof_profile:diff(read(Before), read(After)) of
        {ok, Profile} -> show(Profile, Given);
        {error, already_a_difference} -> fail("one of them is a difference already");
        {error, {values, _, _}} -> fail("the two are of different modes")
    end.

read(File) ->
    case erlane_prof_file:read(File) of
        {ok, Profile} -> Profile;
        {error, Why} -> fail(erlane_prof_file:error_text(Why))
    end.

stderr(Format, Args) ->
    io:format(standard_error, Format, Args).
