%% SPDX-License-Identifier: Apache-2.0
%% What a node has been doing, as a value: rows of stacks with labels and numbers, and what can be
%% asked of them. Pure; how a profile is taken is `erlane_prof', how it is written
%% `erlane_prof_file'.
%%
%% All values are integers, so that sums are equal however they are formed and in every format.
-module(erlane_prof_profile).

-export([new/1, new/2, tally/0, add/2, merge/2, diff/2]).
-export([columns/1, column/2, total/2, top/3, sums/3, filter/2, function/1, check/1]).

-export_type([profile/0, row/0, frame/0, code/0, column/0, unit/0, state/0, mode/0, tally/0,
              entry/0, base/0]).

-type mode() :: sample | time | memory | trace | perf | latency.
-type unit() :: count | nanoseconds | bytes | words.
-type column() :: #{name := atom(), unit := unit()}.
-type state() :: running | runnable | waiting | gc | suspended | no_answer | any.
%% A function at a place of its source; or a symbol that is not Erlang's, or `[unknown]'.
-type frame() :: {module(), atom(), arity(), File :: binary(), Line :: non_neg_integer()}
               | binary().
-type code() :: {module(), atom(), arity()} | binary().
%% `proc' is a label that processes alike share, `stack' has the outermost frame first. Rows with
%% the same labels and the same stack are one.
-type row() :: #{proc := binary(), pid => binary(), app => atom(), state := state(),
                 stack := [frame()], values := [number()]}.
%% `began' is in microseconds since 1970, `ns' is how long it took, `lost' counts what could not
%% be taken, `notes' say in words what was dropped, cut or repaired. `base' is there in a
%% difference only: what it is compared with. `latency' is there in that mode only.
-type profile() :: #{version := 1, mode := mode(), node := node(), otp := binary(),
                     began := integer(), ns := non_neg_integer(), values := [column()],
                     rows := [row()], lost := non_neg_integer(), notes := [binary()],
                     base => base(), latency => [erlane_prof_spread:spread()]}.
-type base() :: #{node := node(), began := integer(), ns := non_neg_integer()}.
-type entry() :: #{function := code(), self := non_neg_integer(),
                   total := non_neg_integer()}.
-opaque tally() :: #{tuple() => [number()]}.

-define(MODES, [sample, time, memory, trace, perf, latency]).
-define(UNITS, [count, nanoseconds, bytes, words]).
-define(STATES, [running, runnable, waiting, gc, suspended, no_answer, any]).
-define(UNKNOWN, <<"[unknown]">>).

%% A profile of rows in any order; what is alike is merged. `mode', `values' and `rows' are
%% needed. The values are rounded, rows of nothing but zeros are left out, a stack without frames
%% becomes `[unknown]'.
-spec new(map()) -> profile().
new(#{rows := Rows} = Fields) ->
    new(Fields, lists:foldl(fun add/2, tally(), Rows)).

%% The same of rows that were counted by `add/2' while they came.
-spec new(map(), tally()) -> profile().
new(Fields, Tally) ->
    Given = maps:with([mode, values, node, otp, began, ns, lost, notes, base, latency], Fields),
    Profile = maps:merge(#{version => 1, node => node(), began => 0, ns => 0, lost => 0,
                           notes => [], rows => rows(Tally),
                           otp => list_to_binary(erlang:system_info(otp_release))}, Given),
    case check(Profile) of
        ok -> Profile;
        {error, Why} -> error({profile, Why})
    end.

%% Where rows are counted: its size is that of what is different in them.
-spec tally() -> tally().
tally() -> #{}.

%% Counts a row.
-spec add(row(), tally()) -> tally().
add(#{stack := [], values := _} = Row, Tally) ->
    add(Row#{stack := [?UNKNOWN]}, Tally);
add(#{proc := Proc, state := State, stack := Stack, values := Values} = Row, Tally) ->
    Key = {Proc, maps:get(pid, Row, none), maps:get(app, Row, undefined), State, Stack},
    case Tally of
        #{Key := Before} -> Tally#{Key := plus(Before, Values)};
        #{} -> Tally#{Key => Values}
    end.

plus([A | As], [B | Bs]) -> [A + B | plus(As, Bs)];
plus([], []) -> [].

%% Sorted, so that the same profile is the same value and the same file.
rows(Tally) ->
    [row(Key, Whole) || {Key, Values} <- lists:sort(maps:to_list(Tally)),
                        Whole <- [[round(V) || V <- Values]],
                        lists:any(fun(V) -> V =/= 0 end, Whole)].

row({Proc, Pid, App, State, Stack}, Values) ->
    Row = #{proc => Proc, state => State, stack => Stack, values => Values},
    Named = case Pid of none -> Row; _ -> Row#{pid => Pid} end,
    case App of undefined -> Named; _ -> Named#{app => App} end.

%% Two profiles as one: parts of a longer one, or those of several nodes. They must have the same
%% columns.
-spec merge(profile(), profile()) -> {ok, profile()} | {error, {values, [column()], [column()]}}.
merge(#{values := Values, rows := RowsA} = A, #{values := Values, rows := RowsB} = B) ->
    #{notes := NotesA, node := NodeA} = A,
    #{notes := NotesB, node := NodeB} = B,
    Others = [iolist_to_binary(io_lib:format("merged with a profile of ~s", [NodeB]))
              || NodeB =/= NodeA],
    Fields = A#{began := min(maps:get(began, A), maps:get(began, B)),
                ns := maps:get(ns, A) + maps:get(ns, B),
                lost := maps:get(lost, A) + maps:get(lost, B),
                notes := NotesA ++ [N || N <- NotesB ++ Others, not lists:member(N, NotesA)]},
    Spreads = case {A, B} of
                  {#{latency := SpreadsA}, #{latency := SpreadsB}} ->
                      #{latency => erlane_prof_spread:merge(SpreadsA, SpreadsB)};
                  _ -> #{}
              end,
    {ok, new(maps:merge(Fields#{rows := RowsA ++ RowsB}, Spreads))};
merge(#{values := A}, #{values := B}) ->
    {error, {values, A, B}}.

%% What has changed: the columns of the second profile, then those of the first with `before_' in
%% front of their names. Pids are left out, as they mean nothing to the other profile.
-spec diff(Before :: profile(), After :: profile()) ->
          {ok, profile()} | {error, {values, [column()], [column()]}}
              | {error, already_a_difference}.
diff(#{base := _}, _) -> {error, already_a_difference};
diff(_, #{base := _}) -> {error, already_a_difference};
diff(#{values := Columns} = Before, #{values := Columns} = After) ->
    Zeros = [0 || _ <- Columns],
    Rows = [maps:remove(pid, R#{values := V ++ Zeros})
            || #{values := V} = R <- maps:get(rows, After)]
        ++ [maps:remove(pid, R#{values := Zeros ++ V})
            || #{values := V} = R <- maps:get(rows, Before)],
    Old = [C#{name := list_to_atom("before_" ++ atom_to_list(N))} || #{name := N} = C <- Columns],
    Rest = maps:remove(latency, After),
    {ok, new(Rest#{values := Columns ++ Old, rows := Rows,
                   lost := maps:get(lost, Before) + maps:get(lost, After),
                   notes := lists:usort(maps:get(notes, Before) ++ maps:get(notes, After)),
                   base => maps:with([node, began, ns], Before)})};
diff(#{values := A}, #{values := B}) ->
    {error, {values, A, B}}.

%% The names of the columns of values, the main one first.
-spec columns(profile()) -> [atom()].
columns(#{values := Columns}) -> [Name || #{name := Name} <- Columns].

%% The place of a column, from 1; `main' is the first. Fails with `{column, Name}'.
-spec column(atom(), profile()) -> pos_integer().
column(main, _) -> 1;
column(Name, Profile) -> place(Name, columns(Profile), 1, Name).

place(Name, [Name | _], N, _) -> N;
place(Name, [_ | More], N, _) -> place(Name, More, N + 1, Name);
place(_, [], _, Name) -> error({column, Name}).

%% The sum of a column, in its unit.
-spec total(profile(), Column :: atom()) -> non_neg_integer().
total(#{rows := Rows} = Profile, Column) ->
    N = column(Column, Profile),
    lists:sum([lists:nth(N, Values) || #{values := Values} <- Rows]).

%% The first functions by what they did themselves, and with what they called. A function that is
%% in a stack more than once counts once in `total'; all `self' together are the sum of the column.
-spec top(profile(), Column :: atom(), pos_integer() | all) -> [entry()].
top(#{rows := Rows} = Profile, Column, Count) ->
    N = column(Column, Profile),
    Sums = lists:foldl(fun(#{stack := Stack, values := Values}, Acc) ->
                               in_stack(Stack, lists:nth(N, Values), Acc)
                       end, #{}, Rows),
    Sorted = lists:sort([{-Self, -Total, F} || {F, {Self, Total}} <- maps:to_list(Sums),
                                               Total > 0]),
    Taken = case Count of
                all -> Sorted;
                _ -> lists:sublist(Sorted, Count)
            end,
    [#{function => F, self => -Self, total => -Total} || {Self, Total, F} <- Taken].

in_stack(_, 0, Acc) -> Acc;
in_stack(Stack, Value, Acc) ->
    Functions = [function(Frame) || Frame <- Stack],
    Inner = lists:last(Functions),
    lists:foldl(fun(F, A) ->
                        {Self, Total} = maps:get(F, A, {0, 0}),
                        A#{F => {case F of Inner -> Self + Value; _ -> Self end, Total + Value}}
                end, Acc, lists:usort(Functions)).

%% A column by process label, pid, application or state, largest first. Rows without the label
%% are under `undefined'.
-spec sums(profile(), Column :: atom(), proc | pid | app | state) ->
          [{binary() | atom(), non_neg_integer()}].
sums(#{rows := Rows} = Profile, Column, Label) ->
    N = column(Column, Profile),
    Sums = lists:foldl(fun(#{values := Values} = Row, Acc) ->
                               Value = lists:nth(N, Values),
                               maps:update_with(maps:get(Label, Row, undefined),
                                                fun(V) -> V + Value end, Value, Acc)
                       end, #{}, Rows),
    [{L, -V} || {V, L} <- lists:sort([{-V, L} || {L, V} <- maps:to_list(Sums)])].

%% The rows that have, for each key, one of the labels given.
-spec filter(profile(), #{proc => [binary()], pid => [binary()], app => [atom()],
                          state => [state()]}) -> profile().
filter(#{rows := Rows} = Profile, Wanted) ->
    Asked = maps:to_list(Wanted),
    Profile#{rows := [Row || Row <- Rows,
                             lists:all(fun({Label, Some}) ->
                                               lists:member(maps:get(Label, Row, undefined), Some)
                                       end, Asked)]}.

%% A frame without its place in the source.
-spec function(frame()) -> code().
function({M, F, A, _File, _Line}) -> {M, F, A};
function(Symbol) when is_binary(Symbol) -> Symbol.

%% Is it a profile? The reason names what is wrong first.
-spec check(term()) -> ok | {error, term()}.
check(#{version := 1, mode := Mode, node := Node, otp := Otp, began := Began, ns := Ns,
        values := Columns, rows := Rows, lost := Lost, notes := Notes} = Profile) ->
    Count = case is_list(Columns) of true -> length(Columns); false -> 0 end,
    Wrong = [Key || {Key, false} <-
                 [{mode, lists:member(Mode, ?MODES)}, {node, is_atom(Node)},
                  {otp, is_binary(Otp)}, {began, is_integer(Began)},
                  {ns, is_integer(Ns) andalso Ns >= 0},
                  {lost, is_integer(Lost) andalso Lost >= 0},
                  {notes, all(fun is_binary/1, Notes)},
                  {base, is_base(maps:get(base, Profile, none))},
                  {latency, all(fun erlane_prof_spread:check/1, maps:get(latency, Profile, []))},
                  {values, Count > 0 andalso all(fun is_column/1, Columns)},
                  {rows, is_list(Rows)}]],
    case Wrong of
        [] -> check_rows(Rows, Count);
        [Key | _] -> {error, {Key, maps:get(Key, Profile)}}
    end;
check(#{version := Version}) when Version =/= 1 -> {error, {version, Version}};
check(_) -> {error, not_a_profile}.

check_rows([], _) -> ok;
check_rows([Row | More], Count) ->
    case is_row(Row, Count) of
        true -> check_rows(More, Count);
        false -> {error, {row, Row}}
    end;
check_rows(_, _) -> {error, {rows, improper}}.

is_row(#{proc := Proc, state := State, stack := [_ | _] = Stack, values := Values} = Row, Count) ->
    is_binary(Proc) andalso lists:member(State, ?STATES)
        andalso is_binary(maps:get(pid, Row, <<>>)) andalso is_atom(maps:get(app, Row, none))
        andalso all(fun is_frame/1, Stack)
        andalso all(fun(V) -> is_integer(V) andalso V >= 0 end, Values)
        andalso length(Values) =:= Count;
is_row(_, _) -> false.

is_frame({M, F, A, File, Line}) ->
    is_atom(M) andalso is_atom(F) andalso is_integer(A) andalso A >= 0 andalso A =< 255
        andalso is_binary(File) andalso is_integer(Line) andalso Line >= 0;
is_frame(Symbol) -> is_binary(Symbol).

is_column(#{name := Name, unit := Unit}) -> is_atom(Name) andalso lists:member(Unit, ?UNITS);
is_column(_) -> false.

is_base(none) -> true;
is_base(#{node := Node, began := Began, ns := Ns}) ->
    is_atom(Node) andalso is_integer(Began) andalso is_integer(Ns) andalso Ns >= 0;
is_base(_) -> false.

%% Lists come from files, too.
all(Test, [Item | More]) -> Test(Item) andalso all(Test, More);
all(_, End) -> End =:= [].
