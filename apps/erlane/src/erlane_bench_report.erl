%% SPDX-License-Identifier: Apache-2.0
%% @doc From rounds to figures, tables and charts. Pure.
%%
%% The first round is left out when there are more. Every figure is a median over the others,
%% with the least beside it where that says something. A ratio is the median of the ratios
%% within each round, and not the ratio of two medians: what disturbs a round disturbs both.
-module(erlane_bench_report).

-export([terminal/2, markdown/1, summarise/2]).
-export([median/1]).

-export_type([result/0]).

-type result() :: #{name := binary(), date := binary(), command := binary(),
                    machine := #{atom() => term()}, settings := #{atom() => term()},
                    versions := #{binary() => binary()}, cases := [map()]}.

-define(BAR, 50).

%% @doc One case as a table for the terminal.
-spec terminal(Scenario :: string(), Case :: map()) -> iodata().
terminal(Scenario, #{title := Title} = Case) ->
    ["\n", Title, "\n\n", table(Scenario, Case)].

%% @doc The whole result as a page.
-spec markdown(result()) -> iodata().
markdown(#{name := Name, date := Date, command := Command, machine := Machine,
           settings := Settings, versions := Versions, cases := Cases}) ->
    Scenario = scenario(Settings),
    ["# ", Name, "\n\n",
     about(Scenario),
     "\n\n| | |\n|---|---|\n| date | ", Date, " |\n| command | `", Command, "` |\n",
     [["| ", atom_to_list(K), " | ", show(V), " |\n"]
      || {K, V} <- lists:sort(maps:to_list(Machine))],
     [["| ", K, " | ", V, " |\n"] || {K, V} <- lists:sort(maps:to_list(Versions)), V =/= <<>>],
     [["\n## ", Title, "\n\n", table(Scenario, Case), chart(Scenario, Case),
       each_round(Scenario, Case)]
      || #{title := Title} = Case <- Cases]].

scenario(#{scenario := Scenario}) -> Scenario.

show(V) when is_integer(V) -> integer_to_list(V);
show(V) -> V.

about("latency") ->
    "Time from the moment a request was due to its answer, at the same offered load for all. "
    "Median of the rounds, the first left out; a ratio is the median of the ratios within "
    "each round.";
about("idle") ->
    "What a connection costs that does nothing: growth of `erlang:memory(total)` and of resident "
    "memory divided by connections, and system calls of the whole VM. Ticks are apart: the kernel "
    "application has a timer of an hour, for which a VM with or without sockets wakes once in 13 "
    "seconds or so.";
about("server") ->
    "CPU time of the server for each request, one core; all answer with the same body, and each "
    "with the header fields it has by itself. Median of the rounds, the first left out; a ratio "
    "is the median of the ratios within each round.";
about("server-idle") ->
    "What a kept connection costs that was answered once: growth of `erlang:memory(total)` and of "
    "resident memory divided by connections, when the server uses no CPU time any more.";
about("echo") ->
    "System calls of the whole VM under strace, divided by the number of echoes. strace slows the "
    "server down, so that it finds less to do at each turn than at full speed.";
about("metrics") ->
    "Time of one update as the process that makes it sees it; with 48 processes, of the whole "
    "divided by the updates. Median of the rounds, the first left out; a ratio is the median of "
    "the ratios within each round.";
about("shard") ->
    "Time from the first update to the end of the last one, divided by the updates; CPU time of "
    "the VM in the same way. All counters are read after each round and were exact. Median of the "
    "rounds, the first left out; a ratio is the median of the ratios within each round.";
about("native") ->
    "Time of a unit of work in one process: the Erlang function as the VM compiles it, the same "
    "source through erlane_native, and the same in C behind a NIF written by hand. In a round the "
    "three take turns of about 2 ms; a figure is the median of its turns, and of the rounds, the "
    "first left out. A ratio is the median of the ratios within each round.";
about("profile") ->
    "Nodes in VMs of their own. `cost %' is what the busy process did less while it was looked at, "
    "`CPU cost %' what its work took more of CPU time. Time and CPU time of a call are those of a "
    "program that is traced; CPU time is that of the whole turn. `lost' are calls that the profile "
    "does not have, `events/s' those that were made into a profile. Differences of shares are in "
    "points, `all' of all rounds together. Pings are those of net_adm, `process' is one of normal "
    "priority; `grown' is the most memory that the node had, less that before. " ++ within();
about("native-erllvm") ->
    "Time of a call of programs that HiPE and ErLLVM were measured with, by name, as the VM "
    "compiles them and through erlane_native. They were written anew, so the figures say nothing "
    "of HiPE. In a round both take turns of about 2 ms; a figure is the median of its turns, and "
    "of the rounds, the first left out. A ratio is the median of the ratios within each round. "
    "Those on BEAM were refused: their ratio is of the same code in two modules, and is not in "
    "the mean.";
about("scrape") ->
    "The longest time that a process which is always ready waited for its turn, on any scheduler, "
    "while all series were written out and a writer on each scheduler updated them; the longest "
    "slice or collection of the scraping process that the VM reports (0: below 1 ms); and the most "
    "memory that process held. `none' has no scrape: what the machine does by itself.";
about("flood-latency") ->
    "Time of a message to a process on another node and its answer; at a fixed rate it runs from "
    "the millisecond in which the message was due. Median of the rounds, the first left out; a "
    "ratio is the median of the ratios within each round. " ++ between();
about("flood" ++ _) ->
    "Messages between nodes, as many as go. `messages/min' counts a message and its answer once. "
    "CPU time is that of both VMs, `near' and `far' are its parts; system calls are those of both "
    "under strace. Median of the rounds, the first left out; a ratio is the median of the ratios "
    "within each round. " ++ between();
about("batch") ->
    "Time and CPU time of all schedulers for each message, from the first send until the last "
    "consumer has all of its messages. " ++ within();
about("fanout") ->
    "Time from the first publish until the last receiver had its last message, and the part of it "
    "that the publisher spent; `cold us' is the time until the last of the small topics had its "
    "message. All in one VM with all its schedulers. " ++ within();
about("fanout-pull") ->
    "Messages taken by all receivers together, from the first publish until the last was taken. "
    ++ within();
about("fanout-sockets") ->
    "CPU time of the server for each message that came to a socket, and the time until it had come "
    "to the last one. The server has one core and one scheduler, the reader another. " ++ within();
about("fanout-web") ->
    "CPU time of the server for each message that came to a client, and the time until it had come "
    "to the last one. Server and reader share all cores, the server has a scheduler for each. "
    ++ within();
about(_) ->
    "CPU time of the server for each request, one core. Median of the rounds, the first left out; "
    "a ratio is the median of the ratios within each round.".

within() ->
    "Median of the rounds, the first left out; a ratio is the median of the ratios within each "
    "round.".

between() ->
    "The near node has one core, the far ones another; all have one scheduler and no busy wait.".

%% Title, metric, statistic, decimals.
columns("flood") ->
    [{"messages/min", per_minute, median, 0}, {"thousand/s", krate, median, 1},
     {"us CPU/message", cpu_us, median, 2}, {"least", cpu_us, min, 2},
     {"near", near_us, median, 2}, {"far", far_us, median, 2},
     {"system calls", syscalls, median, 3}, {"receive", recv, median, 3},
     {"send", send, median, 3}];
columns("flood-fanout") ->
    [{"fan-outs/s", rate, median, 0}, {"us CPU each", cpu_us, median, 0},
     {"least", cpu_us, min, 0}, {"near", near_us, median, 0}, {"far", far_us, median, 0},
     {"sender us", sender_us, median, 1}, {"p50 us", p50_us, median, 0},
     {"p99 us", p99_us, median, 0}];
columns("flood-latency") ->
    [{"p50 us", p50_us, median, 1}, {"mean us", mean_us, median, 1}, {"p99 us", p99_us, median, 0},
     {"least p99", p99_us, min, 0}, {"p99.9 us", p999_us, median, 0}, {"max us", max_us, median, 0},
     {"us CPU/message", cpu_us, median, 2}, {"large MB/s", bulk_mb_s, median, 0}];
columns("flood-matrix") ->
    [{"thousand/s", krate, median, 1}, {"us CPU/message", cpu_us, median, 2},
     {"least", cpu_us, min, 2}, {"near", near_us, median, 2}, {"far", far_us, median, 2}];
columns("batch") ->
    [{"ns/message", ns, median, 1}, {"least", ns, min, 1}, {"ns CPU", cpu_ns, median, 1},
     {"messages/s", rate, median, 0}];
columns("fanout") ->
    [{"us to the last", last_us, median, 1}, {"least", last_us, min, 1},
     {"cold us", cold_us, median, 1}, {"publisher us", publisher_us, median, 1},
     {"million/s", million_s, median, 2}];
columns("fanout-pull") ->
    [{"million/s", million_s, median, 2}, {"publisher us", publisher_us, median, 0}];
columns("fanout-" ++ Which) when Which =:= "sockets"; Which =:= "web" ->
    [{"us CPU/delivery", cpu_us, median, 2}, {"least", cpu_us, min, 2},
     {"p99 us", p99_us, median, 0}, {"last p50 us", last_p50_us, median, 0},
     {"last p99 us", last_p99_us, median, 0}, {"publisher us", publisher_us, median, 1},
     {"memory MB", memory_mb, median, 1}];
columns("latency") ->
    [{"p50 us", p50_us, median, 0}, {"p99 us", p99_us, median, 0}, {"least p99", p99_us, min, 0},
     {"max us", max_us, median, 0}, {"us CPU/request", cpu_us, median, 2},
     {"requests/s", rps, median, 0}];
columns(Idle) when Idle =:= "idle"; Idle =:= "server-idle" ->
    [{"bytes/connection", memory_bytes, median, 0}, {"resident bytes", rss_bytes, median, 0},
     {"system calls", syscalls, median, 0}, {"ticks of the VM", ticks, median, 0}];
columns("echo") ->
    [{"receive", recv, median, 2}, {"send", send, median, 2}, {"epoll", poll, median, 2},
     {"other", other, median, 2}, {"all", syscalls, median, 2}];
columns("metrics") ->
    [{"ns/update", ns, median, 1}, {"least", ns, min, 1}, {"updates/s", rate, median, 0}];
columns("shard") ->
    [{"ns/update", ns, median, 1}, {"least", ns, min, 1}, {"ns CPU", cpu_ns, median, 1},
     {"updates/s", rate, median, 0}];
columns("native-erllvm") ->
    [{"BEAM ns", beam_ns, median, 0}, {"native ns", native_ns, median, 0},
     {"BEAM / native", gain, median, 2}, {"least", gain, min, 2}];
columns("native") ->
    [{"BEAM ns", beam_ns, median, 2}, {"native ns", native_ns, median, 2},
     {"C ns", c_ns, median, 2}, {"BEAM / native", gain, median, 2}, {"least", gain, min, 2},
     {"native / C", over_c, median, 2}];
columns("profile") ->
    [{"cost %", cost, median, 2}, {"CPU cost %", cpu_cost, median, 2},
     {"units/s", rate, median, 0}, {"samples/s", samples_s, median, 0},
     {"points", points, median, 1}, {"all", all_points, median, 1},
     {"functions", functions, median, 0}, {"samples", samples, median, 0},
     {"of perf", perf_samples, median, 0},
     {"ns/call", ns, median, 1}, {"least", ns, min, 1}, {"ns CPU", cpu_ns, median, 1},
     {"lost", lost, median, 0}, {"events/s", converted_s, median, 0},
     {"ping p50 us", p50_us, median, 0}, {"p99 us", p99_us, median, 0},
     {"max us", max_us, median, 0}, {"process p99 us", echo_us, median, 0},
     {"grown MB", grown_mb, median, 1}, {"traced ms", traced_ms, median, 0},
     {"by itself", by_itself, median, 0}, {"file MB", mb, median, 1},
     {"memory MB", memory_mb, median, 1}];
columns("scrape") ->
    [{"pause ms", pause_ms, median, 2}, {"least", pause_ms, min, 2},
     {"slice ms", slice_ms, median, 0}, {"scrape ms", scrape_ms, median, 0},
     {"bytes", bytes, median, 0}, {"memory KB", memory_kb, median, 0}];
columns(_) ->
    [{"us CPU/request", cpu_us, median, 2}, {"least", cpu_us, min, 2},
     {"requests/s", rps, median, 0}, {"p50 us", p50_us, median, 0}, {"p99 us", p99_us, median, 0}].

%% What is compared; less is better, but for the flood scenarios, whose cases name it.
main_metric(_, #{main := Metric}) -> Metric;
main_metric(Scenario, _) -> main_metric(Scenario).

main_metric("latency") -> p99_us;
main_metric("idle") -> memory_bytes;
main_metric("server-idle") -> memory_bytes;
main_metric("echo") -> syscalls;
main_metric(Local) when Local =:= "metrics"; Local =:= "batch"; Local =:= "shard" -> ns;
main_metric("scrape") -> pause_ms;
main_metric(_) -> cpu_us.

%%
%% Figures
%%

%% @doc The case with the figures of each row: `summary' and `ratios' (ours to this one; between
%% nodes this one to plain distribution).
-spec summarise(Scenario :: string(), Case :: map()) -> map().
summarise(Scenario, #{rows := Rows} = Case) ->
    Metric = main_metric(Scenario, Case),
    Case#{rows := [Row#{summary => summary(Row),
                        ratios => maps:from_list(ratios(Scenario, Metric, Row, Rows))}
                   || Row <- Rows]}.

%% Between nodes every row is compared with the two kinds of plain distribution, at the same size:
%% in the figure of the case, and in CPU time, which depends less on what else the machine does.
%% What a fan-out takes from the node of its sender is a question of its own: receivers cost the
%% same however a message came.
ratios("flood" ++ Which, Metric, #{group := Group} = Row, Rows) ->
    Spared = [{" CPU", cpu_us} | [{" near", near_us} || Which =:= "-fanout"]],
    [Found || Base <- [<<"stock">>, <<"tuned">>],
              #{contestant := Name, group := G} = Subject <- Rows, Name =:= Base, G =:= Group,
              Found <- [{Base, R} || R <- ratio(Metric, kept(Row), Subject)]
                  ++ [{iolist_to_binary([Base, Title]), R}
                      || {Title, Cost} <- Spared, R <- ratio(Cost, kept(Subject), Row)]];
%% One message to many: this one to the first, which is what one would do without erlane; and in
%% what the publisher spends.
ratios("fanout" ++ Which, _, Row, [Base | _] = Rows) ->
    #{name := Name} = Base,
    Figures = case Which of
                  "" -> [last_us, cold_us, publisher_us];
                  "-pull" -> [million_s];
                  _SocketsOrWeb -> [cpu_us, last_p99_us]
              end,
    [{iolist_to_binary([atom_to_list(Key), " / ", Name]), R}
     || Key <- Figures, length(Rows) > 1, R <- ratio(Key, kept(Row), Base)];
%% This one to what it is compared with.
ratios("profile", _, #{name := <<"none">>}, _) ->
    [];
ratios("profile", Metric, Row, Rows) ->
    [{Name, R} || #{name := Name} = Base <- Rows,
                  lists:member(Name, [<<"none">>, <<"eep">>, <<"fprof">>]),
                  R <- ratio(Metric, kept(Row), Base)];
ratios(_, Metric, Row, Rows) ->
    [{Name, Ratio} || {Name, Rounds} <- subjects(Metric, Rows),
                      Ratio <- ratio(Metric, Rounds, Row)].

ratio_title("flood" ++ _, <<Base:5/binary, " CPU">>) -> ["CPU: ", Base, " / this"];
ratio_title("flood" ++ _, <<Base:5/binary, " near">>) -> ["near: ", Base, " / this"];
ratio_title("flood" ++ _, Base) -> ["this / ", Base];
ratio_title("fanout" ++ _, Title) -> Title;
ratio_title("profile", Base) -> ["this / ", Base];
ratio_title(_, Subject) -> [Subject, " / this"].

summary(Row) ->
    Rounds = kept(Row),
    Metrics = lists:usort([K || Round <- Rounds, {K, V} <- maps:to_list(Round), is_number(V)]),
    maps:from_list([{K, #{median => stat(median, K, Rounds), min => stat(min, K, Rounds)}}
                    || K <- Metrics]).

stat(median, Metric, Rounds) -> median([V || #{Metric := V} <- Rounds]);
stat(min, Metric, Rounds) -> lists:min([V || #{Metric := V} <- Rounds]).

kept(#{rounds := [_First | [_ | _] = Others]}) -> Others;
kept(#{rounds := Rounds}) -> Rounds.

%% Those of ours that were measured: each is a column of ratios.
subjects(Metric, Rows) ->
    [{Name, kept(Row)} || Wanted <- [<<"erlane">>, <<"erlane-deferred">>, <<"relay">>,
                                     <<"counter">>, <<"histogram">>, <<"erlane-http">>,
                                     <<"cowboy-erlane">>, <<"batch">>, <<"shards">>,
                                     <<"shards-buffer">>],
                          #{name := Name} = Row <- Rows, Name =:= Wanted,
                          lists:any(fun(R) -> is_map_key(Metric, R) end, kept(Row))].

%% A list of one, or empty. The rounds of a row that failed on the way end early.
ratio(Metric, Ours, Row) ->
    Theirs = kept(Row),
    N = min(length(Ours), length(Theirs)),
    Pairs = lists:zip(lists:sublist(Ours, N), lists:sublist(Theirs, N)),
    case [A / B || {#{Metric := A}, #{Metric := B}} <- Pairs, B > 0] of
        [] -> [];
        Ratios -> [median(Ratios)]
    end.

%% @doc The middle one, or the mean of the two in the middle.
-spec median([number(), ...]) -> float().
median(Values) ->
    Sorted = lists:sort(Values),
    N = length(Sorted),
    (lists:nth((N + 1) div 2, Sorted) + lists:nth(N div 2 + 1, Sorted)) / 2.

%%
%% Tables
%%

table(Scenario, Case) ->
    #{rows := Rows} = summarise(Scenario, Case),
    Columns = [C || {_, Metric, _, _} = C <- columns(Scenario),
                    lists:any(fun(#{summary := S}) -> is_map_key(Metric, S) end, Rows)],
    Subjects = lists:usort([S || #{ratios := Ratios} <- Rows, S <- maps:keys(Ratios)]),
    Titles = case [Title || {Title, _, _, _} <- Columns] of
                 [] -> ["result"];
                 Some -> Some
             end,
    Header = ["" | Titles] ++ [ratio_title(Scenario, S) || S <- Subjects],
    aligned([Header | [cells(Row, Columns, Subjects) || Row <- Rows]]).

cells(#{name := Name, status := Status, summary := Summary}, Columns, Subjects)
  when map_size(Summary) =:= 0 ->
    [Name, Status | lists:duplicate(max(0, length(Columns) + length(Subjects) - 1), "")];
cells(#{name := Name, status := Status, summary := Summary, ratios := Ratios}, Columns,
      Subjects) ->
    Mark = case Status of
               ok -> "";
               _ -> [" (", Status, ")"]
           end,
    [[Name, Mark]
     | [case Summary of
            #{Metric := #{Stat := V}} -> decimal(V, Decimals);
            _ -> ""
        end || {_, Metric, Stat, Decimals} <- Columns]]
        ++ [case Ratios of
                #{S := Ratio} -> decimal(Ratio, 2);
                _ -> ""
            end || S <- Subjects].

decimal(V, 0) -> integer_to_list(round(V));
decimal(V, N) -> io_lib:format("~.*f", [N, float(V)]).

%% Markdown that reads well as text: the first column left, the others right.
aligned([Header | _] = Lines) ->
    Columns = max(2, length(Header)),
    Padded = [L ++ lists:duplicate(Columns - length(L), "") || L <- Lines],
    %% A row that only has a reason must not widen the column of figures.
    Width = fun(I) ->
                    lists:max([3 | [string:length(lists:nth(I, L)) || L <- Padded,
                                                                      not reason(L)]])
            end,
    Widths = [lists:max([string:length(hd(L)) || L <- Padded])
              | [Width(I) || I <- lists:seq(2, Columns)]],
    [Top | Rest] = [line(L, Widths) || L <- Padded],
    Rule = ["|", [lists:duplicate(W + 1, $-) ++ Mark
                  || {W, Mark} <- lists:zip(Widths, ["-|" | lists:duplicate(Columns - 1, ":|")])],
            "\n"],
    [Top, Rule, Rest].

reason([_, Second | Rest]) ->
    lists:all(fun(C) -> C =:= "" end, Rest) andalso is_binary(Second).

line([First | Others], [Width | Widths]) ->
    ["| ", string:pad(First, Width),
     [[" | ", string:pad(C, W, leading)] || {C, W} <- lists:zip(Others, Widths)], " |\n"].

%% The main figure as bars, as long as it is large.
chart(Scenario, #{rows := Rows} = Case) ->
    Metric = main_metric(Scenario, Case),
    Values = [{Name, stat(median, Metric, Rounds)}
              || #{name := Name} = Row <- Rows,
                 Rounds <- [[R || #{Metric := _} = R <- kept(Row)]], Rounds =/= []],
    Largest = lists:max([0 | [V || {_, V} <- Values]]),
    case Largest > 0 of
        false ->
            [];
        true ->
            Width = lists:max([string:length(N) || {N, _} <- Values]),
            ["\n```\n",
             [[string:pad(N, Width), "  ", lists:duplicate(round(V / Largest * ?BAR), $#), " ",
               decimal(V, 2), "\n"] || {N, V} <- Values],
             "```\n"]
    end.

each_round(Scenario, #{rows := Rows} = Case) ->
    Metric = main_metric(Scenario, Case),
    case [{Name, Rounds} || #{name := Name, rounds := [_, _ | _] = Rounds} <- Rows] of
        [] ->
            [];
        Measured ->
            ["\nEach round (", atom_to_list(Metric), "), the first one left out above:\n\n```\n",
             [[Name, ":", [[" ", decimal(V, 2)] || #{Metric := V} <- Rounds], "\n"]
              || {Name, Rounds} <- Measured],
             "```\n"]
    end.
