%% SPDX-License-Identifier: Apache-2.0
%% @doc The screen of `erlane top': what is known, as lines of a width and height. Pure.
-module(erlane_top_screen).

-export([lines/2, rows/2]).

-export_type([state/0]).

-import(erlane_top_text, [count/1, bytes/1, percent/1, decimal/1, plain/1, left/2, right/2]).

%% `view' is undefined until there are two samples; `message' takes the place of the keys;
%% `selected' counts from 0; `footer' false leaves out the keys, for a screen nobody sits at.
-type state() ::
        #{node := node(), view := erlane_prof:view() | undefined,
          sort := reds | memory | mailbox, interval := pos_integer(),
          mode => list | help | {details, map() | string()}, selected => non_neg_integer(),
          scroll => non_neg_integer(), paused => boolean(), message => string(),
          footer => boolean(), atom() => term()}.
-type line() :: erlane_top_text:line().

%% Narrower than this a bar says nothing.
-define(BAR, 26).
%% Lines of processes that the rest leaves room for, if there are so many.
-define(PROCS, 6).

%% @doc At most so many lines, none wider than so many columns.
-spec lines(state(), {Width :: pos_integer(), Height :: pos_integer()}) -> [line()].
lines(#{view := View} = State, {Width, Height}) ->
    Footer = [footer(State, Width) || Height >= 4, maps:get(footer, State, true)],
    Room = Height - 1 - length(Footer),
    Body = case maps:get(mode, State, list) of
               help -> lists:sublist(help(), Room);
               {details, Details} -> scrolled(details(Details), State, Room);
               list when View =:= undefined -> [];
               list -> list(State, View, {Width, Room})
           end,
    Shown = [title(State, Width) | Body] ++
        [[] || Footer =/= [], _ <- lists:seq(length(Body) + 1, Room)] ++ Footer,
    [erlane_top_text:fit(Line, Width) || Line <- lists:sublist(Shown, Height)].

%% @doc How many processes a screen of this size shows.
-spec rows(state(), {Width :: pos_integer(), Height :: pos_integer()}) -> non_neg_integer().
rows(#{view := undefined}, {_Width, Height}) ->
    Height;
rows(#{view := View}, {Width, Height}) ->
    max(1, Height - 3 - length(top(View, {Width, Height - 2}))).

%%% The line above and the line below

title(#{node := Node, view := undefined} = State, Width) ->
    erlane_top_text:fill([{title, " erlane top "}, {plain, plain(Node)}],
                         [{dim, state_text(State)}], {plain, Width});
title(#{node := Node, view := View} = State, Width) ->
    #{otp := Otp, erts := Erts, uptime_ms := Up} = View,
    Load = case View of
               #{load := [_ | _] = Loads} ->
                   [[{label, "load "}, {plain, lists:flatten(lists:join(" ", [decimal2(L)
                                                                             || L <- Loads]))}]];
               _ -> []
           end,
    Groups = [[{title, " erlane top "}, {plain, plain(Node)}],
              [{label, "OTP "}, {plain, plain(Otp)}, {dim, " erts " ++ plain(Erts)}],
              [{label, "up "}, {plain, erlane_top_text:span(Up)}] | Load],
    End = [{style(State), state_text(State)}],
    erlane_top_text:fill(erlane_top_text:join(Groups, max(0, Width - 10)), End, {plain, Width}).

style(#{paused := true}) -> bad;
style(_) -> dim.

state_text(#{paused := true}) -> "PAUSED ";
state_text(#{interval := Ms}) -> "each " ++ seconds(Ms) ++ " ".

seconds(Ms) when Ms rem 1000 =:= 0 -> integer_to_list(Ms div 1000) ++ " s";
seconds(Ms) -> decimal(Ms / 1000) ++ " s".

footer(#{message := [_ | _] = Message}, Width) ->
    erlane_top_text:fill([{bad, " " ++ plain(Message)}], [], {plain, Width});
footer(State, Width) ->
    Keys = case maps:get(mode, State, list) of
               list -> [{"q", "quit"}, {"h", "help"}, {"p", "pause"}, {"r", "reds"},
                        {"m", "memory"}, {"b", "mailbox"}, {"enter", "details"},
                        {"+ -", "interval"}];
               help -> [{"esc", "back"}, {"q", "quit"}];
               {details, _} -> [{"esc", "back"}, {"up down", "scroll"}, {"q", "quit"}]
           end,
    erlane_top_text:join([[{plain, " "}, {head, Key}, {plain, " " ++ What}]
                          || {Key, What} <- Keys], Width).

%%% The list

list(State, View, {Width, Room} = Size) ->
    Top = top(View, Size),
    Top ++ procs(State, View, {Width, Room - length(Top)}).

%% Everything above the processes, cut so that some of those are seen.
top(View, {Width, Room}) ->
    Procs = case maps:get(procs, View) of
                [] -> 0;
                List -> 1 + min(length(List), min(?PROCS, max(1, Room div 3)))
            end,
    Lines = bars(View, {Width, Room}) ++ figures(View, Width) ++
        erlane_top_tables:lanes(View, {Width, max(3, Room div 4)}) ++
        erlane_top_tables:dist(View, {Width, max(2, Room div 8)}),
    lists:sublist(Lines, max(0, Room - Procs)).

%% A bar for each scheduler and for the dirty ones of each kind. Where they are too many, a sign
%% for each.
bars(#{schedulers := Schedulers, dirty := Dirty}, {Width, Room}) ->
    Bars = [{integer_to_list(Id), util(S), Queue, Online}
            || #{id := Id, runq := Queue, online := Online} = S <- Schedulers],
    Dirties = [{dirty_name(Kind), dirty_util(Util, Count), Queue, true}
               || #{kind := Kind, util := Util, count := Count, runq := Queue} <- Dirty],
    Rows = max(1, Room div 4),
    Most = max(1, Width div ?BAR),
    Columns = min(Most, max(min(2, Most), ceil((length(Bars) + 2) / Rows))),
    case ceil((length(Bars) + 2) / Columns) =< Rows orelse length(Bars) =< 2 of
        true -> grid(Bars ++ Dirties, Columns, Width);
        false -> strip(Bars, Width) ++ grid(Dirties, min(2, Columns), Width)
    end.

util(#{util := Util}) when is_number(Util) -> Util;
util(_) -> undefined.

%% So many of them were busy: shown as the share of all.
dirty_util(undefined, _Count) -> undefined;
dirty_util(_Util, 0) -> undefined;
dirty_util(Util, Count) -> Util / Count.

dirty_name(cpu) -> "dcpu";
dirty_name(io) -> "dio".

%% Down the first column, then down the next, as htop has them.
grid(Bars, Columns, Width) ->
    Rows = ceil(length(Bars) / Columns),
    Each = (Width - (Columns - 1)) div Columns,
    [lists:append(lists:join([{plain, " "}],
                             [bar(lists:nth(N, Bars), Each)
                              || C <- lists:seq(0, Columns - 1),
                                 N <- [C * Rows + Row], N =< length(Bars)]))
     || Row <- lists:seq(1, Rows)].

bar({Name, Util, Queue, Online}, Width) ->
    Inner = max(0, Width - 12),
    Full = round(Inner * min(1.0, nil(Util))),
    Number = case Online of
                 true -> percent(Util);
                 false -> "off"
             end,
    %% The number is written over the right end of the bar.
    Blanks = lists:duplicate(max(0, Inner - Full), $\s),
    Text = lists:duplicate(Full, $|) ++ Blanks,
    {Left, _} = lists:split(max(0, Inner - length(Number)), Text),
    {Signs, Rest} = lists:splitwith(fun(C) -> C =:= $| end, Left),
    [{label, right(Name, 5)}, {plain, "["}, {level(Util), Signs}, {plain, Rest},
     {dim, lists:sublist(Number, Inner)}, {plain, "]"},
     {queue_style(Queue), right("q" ++ count(Queue), 5)}].

nil(undefined) -> 0.0;
nil(Util) -> Util.

level(Util) when is_number(Util), Util >= 0.9 -> full;
level(Util) when is_number(Util), Util >= 0.6 -> busy;
level(_) -> good.

queue_style(0) -> dim;
queue_style(N) when N > 10 -> bad;
queue_style(_) -> plain.

%% One sign for each scheduler, from a point to an @.
strip(Bars, Width) ->
    Online = [nil(Util) || {_, Util, _, true} <- Bars],
    Queue = lists:sum([N || {_, _, N, _} <- Bars]),
    Mean = lists:sum(Online) / max(1, length(Online)),
    Signs = [{level(Util), [sign(Util, On)]} || {_, Util, _, On} <- Bars],
    Each = max(1, Width - 9),
    Lines = chunks(Signs, Each),
    [[{label, " sched ["}] ++ Line ++ [{plain, "]"}] || Line <- Lines] ++
        [[{label, "  mean "}, {plain, percent(Mean)},
          {label, "  most "}, {plain, percent(lists:max([0.0 | Online]))},
          {label, "  online "}, {plain, integer_to_list(length(Online))},
          {label, " of "}, {plain, integer_to_list(length(Bars))},
          {label, "  queue "}, {queue_style(Queue), count(Queue)}]].

sign(_Util, false) -> $\s;
sign(Util, true) -> lists:nth(1 + min(9, trunc(nil(Util) * 10)), ".:-=+*%##@").

chunks([], _) -> [];
chunks(List, N) when length(List) =< N -> [List];
chunks(List, N) ->
    {Chunk, Rest} = lists:split(N, List),
    [Chunk | chunks(Rest, N)].

%%% Lines of figures

figures(View, Width) ->
    [erlane_top_text:join([[{plain, " "}, {label, left(Head, 5)}] | Groups], Width)
     || {Head, Groups} <- [{"CPU", cpu(View)}, {"Mem", memory(View)}, {"Work", work(View)},
                           {"Used", used(View)}], Groups =/= []].

cpu(#{threads := []}) ->
    [];
cpu(#{threads := Threads, cpu := Cpu, cpu_wait := Wait}) ->
    [[{plain, percent(Cpu)}, {label, " of one"}], [{label, "waiting "}, {plain, percent(Wait)}]
     | [[{label, kind(Kind) ++ " "}, {plain, percent(Share)}]
        || #{kind := Kind, cpu := Share} <- Threads]].

kind(scheduler) -> "sched";
kind(dirty_cpu) -> "dcpu";
kind(dirty_io) -> "dio";
kind(Kind) -> atom_to_list(Kind).

memory(#{memory := Memory}) ->
    [[{plain, bytes(N)}, {label, " " ++ Name}]
     || {Key, Name} <- [{total, "total"}, {processes, "procs"}, {binary, "binary"}, {ets, "ets"},
                        {code, "code"}, {atom, "atom"}],
        #{Key := N} <- [Memory]].

work(#{reductions_s := Reds, gc_s := Gc, gc_words_s := Words, io_in_s := In, io_out_s := Out,
       runq_total := Queue} = View) ->
    [[{bad, "a scheduler does not answer: native code?"}] || maps:get(counts_late, View, false)] ++
    [[{queue_style(Queue), count(Queue)}, {label, " queued"}],
     [{plain, count(Reds)}, {label, " reds/s"}],
     [{plain, count(Gc)}, {label, " gc/s"}],
     [{plain, bytes(Words * 8)}, {label, "/s freed"}],
     [{label, "ports in "}, {plain, bytes(In)}, {label, "/s out "}, {plain, bytes(Out)},
      {label, "/s"}]].

used(#{limits := Limits} = View) ->
    [[{plain, count(N)}, {label, " " ++ Name}, {share_style(N / Limit), " " ++ percent(N / Limit)}]
     || {Key, Name} <- [{processes, "processes"}, {ports, "ports"}, {atoms, "atoms"}],
        #{Key := N} <- [View], #{Key := Limit} <- [Limits]] ++
        [[{plain, count(maps:get(ets, View))}, {label, " ets tables"}]].

share_style(Share) when Share > 0.8 -> bad;
share_style(_) -> dim.

%%% Processes

procs(_State, #{procs := []}, _Size) ->
    [];
procs(State, #{procs := Procs} = View, {Width, Room}) ->
    Selected = maps:get(selected, State, none),
    Rows = max(0, Room - 1),
    Offset = case Selected of
                 none -> 0;
                 _ -> max(0, min(Selected, length(Procs) - 1) - Rows + 1)
             end,
    Numbered = lists:zip(lists:seq(0, length(Procs) - 1), Procs),
    [erlane_top_tables:procs_head(View, Width)
     | [erlane_top_tables:proc(Proc, N =:= Selected, Width)
        || {N, Proc} <- lists:sublist(Numbered, Offset + 1, Rows)]].

%%% Details and help

scrolled(Lines, State, Room) ->
    Offset = min(maps:get(scroll, State, 0), max(0, length(Lines) - Room)),
    lists:sublist(Lines, Offset + 1, max(0, Room)).

details(Text) when is_list(Text) ->
    [[], [{plain, " " ++ plain(Text)}]];
details(Details) ->
    #{id := Id, name := Name, stack := Stack, links := Links, monitors := Monitors,
      monitored_by := By} = Details,
    Get = fun(Key) -> maps:get(Key, Details) end,
    Pair = fun(Key, Value) -> [{label, " " ++ left(Key, 16)}, {plain, plain(Value)}] end,
    [[], [{title, " " ++ plain(Id) ++ "  "}, {plain, plain(Name)}], [],
     Pair("initial call", Get(initial)),
     Pair("status", [plain(Get(status)), ", priority ", plain(Get(priority)),
                     ["; traps exits" || Get(trap_exit)]]),
     Pair("mailbox", [count(Get(mq)), " messages"]),
     Pair("memory", [bytes(Get(memory)), "; heap ", count(Get(heap_words)), " words, stack ",
                     count(Get(stack_words)), " words"]),
     Pair("reductions", count(Get(reds))),
     Pair("dictionary", [count(Get(dictionary)), " keys"]),
     Pair("group leader", Get(group_leader)),
     Pair("links", some(Links)),
     Pair("monitors", some(Monitors)),
     Pair("monitored by", some(By)),
     [], [{label, " stack"}]]
        ++ [[{plain, "   " ++ plain(Frame)}] || Frame <- Stack].

some(#{count := 0}) -> "none";
some(#{count := N, some := Some}) -> [count(N), ": ", lists:join(" ", Some)].

help() ->
    [[]] ++
        [[{head, left(" " ++ Key, 14)}, {plain, "  " ++ Text}]
         || {Key, Text} <-
                [{"q", "quit"}, {"p, space", "pause, and go on"},
                 {"r", "sort by reductions in the last interval"},
                 {"m", "sort by memory: heaps and message fragments"},
                 {"b", "sort by messages in the mailbox"},
                 {"s", "the next order"},
                 {"up down j k", "choose a process; also page up and down, home, end"},
                 {"enter", "show one process: stack, links, sizes"},
                 {"+ -", "longer and shorter interval"},
                 {"esc", "back"}]] ++
        [[],
         [{plain, "  A bar is a scheduler: the share of time it did something. q: its run queue."}],
         [{plain, "  dcpu, dio: all dirty schedulers of the kind together."}],
         [{plain, "  CPU: of the VM's threads, in processors; waiting: for a free one."}],
         [{plain, "  Lanes: calls of epoll_wait, events for each, turns that found nothing,"}],
         [{plain, "  wake-ups of the lane, its sockets, bytes, sockets that moved to it."}]].

decimal2(N) -> float_to_list(float(N), [{decimals, 2}]).
