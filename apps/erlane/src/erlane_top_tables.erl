%% SPDX-License-Identifier: Apache-2.0
%% @doc The tables of `erlane top': lanes, distribution, processes. Pure.
-module(erlane_top_tables).

-export([lanes/2, dist/2, procs_head/2, proc/3]).

-import(erlane_top_text, [count/1, bytes/1, plain/1, left/2, right/2]).

%% @doc A line for each lane and one for all; if that is more than fit, the busiest.
-spec lanes(erlane_prof:view(), {Width :: pos_integer(), Rows :: pos_integer()}) ->
          [erlane_top_text:line()].
lanes(#{lanes := []}, _Size) ->
    [];
lanes(#{lanes := Lanes}, {Width, Rows}) ->
    Columns = columns(lane_columns(), Width - 6),
    Head = [{head, left(" LANE", 6)} | [{head, right(Name, W)} || {Name, W, _, _} <- Columns]],
    Room = Rows - 1,
    Shown = case length(Lanes) =< Room of
                true -> Lanes;
                false -> lists:sublist(busiest(Lanes), max(0, Room - 1))
            end,
    [erlane_top_text:fill(Head, [], {head, Width})
     | [lane(integer_to_list(Id), Lane, Columns) || #{lane := Id} = Lane <- Shown]] ++
        [lane("all", sum(Lanes), Columns) || length(Lanes) > 1].

busiest(Lanes) ->
    Busy = fun(Lane) -> nil(maps:get(waits_s, Lane)) + nil(maps:get(in_s, Lane)) end,
    lists:sort(fun(A, B) -> Busy(A) >= Busy(B) end, Lanes).

%% The ones at the end are shown if there is room.
lane_columns() ->
    [{"WAITS/s", 9, waits_s, count}, {"EV/WAIT", 8, events_per_wait, decimal},
     {"EMPTY/s", 9, empty_s, count}, {"WAKES/s", 9, wakes_s, count},
     {"SOCKETS", 9, sockets, count}, {"IN/s", 8, in_s, bytes},
     {"OUT/s", 8, out_s, bytes}, {"MOVED/s", 9, moved_s, count},
     {"RELAYS", 9, relays, count}, {"ACCEPTS/s", 11, accepted_s, count},
     {"RECV/s", 9, recv_s, count}, {"SEND/s", 9, send_s, count},
     {"EAGAIN/s", 10, eagain_s, count}, {"EVENTS/s", 10, events_s, count},
     {"TURNS/s", 10, turns_s, count}, {"SLEEPS/s", 10, sleeps_s, count}].

columns([{_, W, _, _} = Column | Rest], Width) when W =< Width ->
    [Column | columns(Rest, Width - W)];
columns(_, _) ->
    [].

lane(Name, Lane, Columns) ->
    [{label, right(Name, 5) ++ " "}
     | [{plain, right(erlane_top_text:Show(maps:get(Key, Lane)), W)}
        || {_, W, Key, Show} <- Columns]].

sum(Lanes) ->
    All = lists:foldl(fun(Lane, Sum) ->
                              maps:map(fun(Key, N) -> N + nil(maps:get(Key, Lane)) end, Sum)
                      end, maps:map(fun(_, _) -> 0 end, hd(Lanes)), Lanes),
    #{waits_s := Waits, events_s := Events} = All,
    All#{events_per_wait := case Waits > 0 of
                                true -> Events / Waits;
                                false -> 0.0
                            end}.

nil(undefined) -> 0;
nil(N) -> N.

%% @doc A line for each connected node, those with the most traffic if they do not fit.
-spec dist(erlane_prof:view(), {Width :: pos_integer(), Rows :: pos_integer()}) ->
          [erlane_top_text:line()].
dist(#{dist := []}, _Size) ->
    [];
dist(#{dist := Nodes}, {Width, Rows}) ->
    Name = max(10, min(50, Width - 32)),
    Busy = fun(#{in_s := In, out_s := Out}) -> nil(In) + nil(Out) end,
    Sorted = lists:sort(fun(A, B) -> Busy(A) >= Busy(B) end, Nodes),
    Head = [{head, left(" NODE", Name)}, {head, right("IN/s", 8)}, {head, right("OUT/s", 8)},
            {head, right("QUEUE", 8)},
            {head, "  " ++ [C || length(Nodes) > Rows - 1,
                                 C <- "of " ++ integer_to_list(length(Nodes))]}],
    [erlane_top_text:fill(Head, [], {head, Width})
     | [[{plain, left(" " ++ plain(Node), Name)}, {plain, right(bytes(In), 8)},
         {plain, right(bytes(Out), 8)}, {queue_style(Queue), right(bytes(Queue), 8)}]
        || #{node := Node, in_s := In, out_s := Out, queue := Queue}
               <- lists:sublist(Sorted, max(1, Rows - 1))]].

queue_style(N) when is_integer(N), N > 0 -> busy;
queue_style(_) -> plain.

%% @doc The heading of the processes: the column they are sorted by stands out, and if not all
%% were looked at, it says so.
-spec procs_head(erlane_prof:view(), pos_integer()) -> erlane_top_text:line().
procs_head(#{procs_by := By, processes := All, procs_looked := Looked} = View, Width) ->
    {Name, Current} = widths(Width),
    Head = [{head, left(" PID", 12)}, {head, left("NAME", Name)}]
        ++ [cell(Key =:= By, Text, W) || {Key, Text, W} <- [{reds, "REDS/s", 9},
                                                            {memory, "MEMORY", 9},
                                                            {mailbox, "MAILBOX", 9}]]
        ++ [{head, "  "}],
    Note = case View of
               #{procs_late := true} -> "one does not answer ";
               _ when Looked * 10 < All * 9 ->
                   count(Looked) ++ " of " ++ count(All) ++ " at a time ";
               _ -> ""
           end,
    case Current > length(Note) + 8 of
        true ->
            erlane_top_text:fill(Head ++ [{head, "CURRENT"}], [{head, Note}], {head, Width});
        false ->
            erlane_top_text:fill(Head, [{head, lists:sublist(Note, max(0, Current))}],
                                 {head, Width})
    end.

cell(true, Text, Width) -> {active, right(Text, Width)};
cell(false, Text, Width) -> {head, right(Text, Width)}.

%% @doc The line of a process.
-spec proc(erlane_prof_walk:proc(), Selected :: boolean(), pos_integer()) ->
          erlane_top_text:line().
proc(#{id := Id, name := Name, reds_s := Rate, memory := Memory, mq := Messages,
       status := Status, current := Current}, Selected, Width) ->
    {NameWidth, CurrentWidth} = widths(Width),
    Line = [{style(Selected, pid_style(Status)), left(" " ++ plain(Id), 12)},
            {style(Selected, plain), left(plain(Name), NameWidth)},
            {style(Selected, plain), right(count(Rate), 9)},
            {style(Selected, plain), right(bytes(Memory), 9)},
            {style(Selected, mailbox_style(Messages)), right(count(Messages), 9)},
            {style(Selected, dim), "  " ++ left(plain(Current), CurrentWidth)}],
    erlane_top_text:fit(Line, Width).

%% What is left after the figures goes to both texts.
widths(Width) ->
    Left = max(0, Width - 12 - 27 - 2),
    Name = min(40, max(10, Left div 2)),
    {Name, max(0, Left - Name)}.

style(true, _) -> selected;
style(false, Style) -> Style.

pid_style(no_answer) -> bad;
pid_style(Status) when Status =:= running; Status =:= runnable -> good;
pid_style(_) -> plain.

mailbox_style(N) when is_integer(N), N >= 1000 -> bad;
mailbox_style(N) when is_integer(N), N >= 10 -> busy;
mailbox_style(_) -> plain.
