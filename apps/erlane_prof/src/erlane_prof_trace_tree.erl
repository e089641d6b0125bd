%% SPDX-License-Identifier: Apache-2.0
%% @doc What is in a trace, as rows of a profile: the time in each stack of each process, running
%% and not, and how often it was called. One pass; runs wherever the trace is read, which is not
%% the node that was traced.
%%
%% A process is known from its first event to its end. What is kept of it after that is in the tree
%% of its label, which is what bounds the memory: not how long the trace is, nor how many
%% processes are in it.
-module(erlane_prof_trace_tree).

-export([new/1, event/2, finish/2, stats/1, waited_in/1, called/1, fold/4]).

-export_type([tree/0, about/0, label/0, port_about/0]).

%% `began' is of the clock of the trace. `labels' has the processes that are known by name, `own'
%% those that are not to be seen. `traced' tells of a function whether it was to be traced, `top'
%% who calls those of which it was not asked. `ports' are those that are known, with what they were
%% opened with, and whether they were there when the trace began.
-type about() :: #{began := integer(),
                   labels := #{erlane_prof_trace_read:who() => label()},
                   own := [erlane_prof_trace_read:who()], top => #{mfa() => [mfa()]},
                   ports => #{erlane_prof_trace_read:who() => port_about()},
                   traced := fun((mfa()) -> boolean())}.
-type label() :: {Proc :: binary(), App :: atom()}.
-type port_about() :: {Registered :: binary() | none, Opened :: binary(), Was :: boolean()}.

%% So many events of a process that is new tell who it is, or nothing does.
-define(UNDECIDED, 24).
%% Where the life of nearly every process begins.
-define(PLUMBING, [proc_lib, gen, gen_server, gen_statem, gen_event, erlang]).
%% Names of functions that are told apart; atoms are made of them.
-define(NAMES, 200000).
%% Nodes of the tree, and what is counted of each: time that it ran, calls, messages.
-define(NODES, 100000).
-define(NS, 1).
-define(CALLS, 2).
-define(SENT, 3).
%% Ports that are closed and may go on with what they have to write.
-define(CLOSING, 1000).

%% `on' is what it does since `last': it runs; it was taken off its scheduler in a function; that,
%% and a message has come since; it collects garbage, and did something else before. `held' are
%% its first events, while it is not known who it is.
-record(p, {root, stack = [], last, on = running, before = running, held = none}).

%% A port, with the stack that it has while it waits.
-record(q, {root, stack, port}).

%% Those of `mfas' that are texts are of ports.
-record(tree, {about, names = #{}, ids = #{}, mfas = #{}, next = 2, nodes, procs = #{}, counts,
               off = #{}, who = none, proc = none, last, events = 0, repaired = 0, unnamed = 0,
               closing = {0, queue:new()}}).

-opaque tree() :: #tree{}.

%% @doc A tree of nothing yet.
-spec new(about()) -> tree().
new(#{began := Began} = About) ->
    #tree{about = About, nodes = erlane_prof_trace_stack:nodes(), last = Began,
          counts = counters:new(3 * (?NODES + 1), [])}.

%% @doc Counts an event.
-spec event(erlane_prof_trace_read:event(), tree()) -> tree().
event(Event, #tree{who = Who, proc = P, events = N} = T) when element(2, Event) =:= Who ->
    one(Event, P, T#tree{events = N + 1});
event(Event, #tree{events = N} = T0) ->
    Who = element(2, Event),
    #tree{procs = Procs} = T = put_back(T0),
    case Procs of
        #{Who := P} -> one(Event, P, T#tree{who = Who, proc = P, events = N + 1});
        #{} -> one(Event, none, T#tree{who = Who, proc = none, events = N + 1})
    end.

%% Events of one process come in rows: it is put among the others when that of another one comes.
put_back(#tree{who = none} = T) -> T;
put_back(#tree{who = Who, proc = none, procs = Procs} = T) ->
    T#tree{procs = maps:remove(Who, Procs)};
put_back(#tree{who = Who, proc = P, procs = Procs} = T) ->
    T#tree{procs = Procs#{Who => P}}.

one(Event, P, #tree{who = {port, _}} = T) -> port(Event, P, T);
one(Event, none, T) -> first(Event, T);
one(Event, #p{held = none} = P, T) -> known(Event, P, T);
one(Event, P, T) -> undecided(Event, P, T).

%%% Who it is

first(Event, #tree{who = Who, about = #{own := Own}} = T) ->
    case lists:member(Who, Own) of
        true -> T;
        false -> other(Event, T)
    end.

%% One that was there before did all the time what it does now.
other(Event, #tree{who = Who, about = #{labels := Labels, began := Began}} = T0) ->
    case Labels of
        #{Who := Label} ->
            {Root, T1} = root(Label, T0),
            case Event of
                {sched, _, in, Name, _} ->
                    {Function, T} = id(Name, T1),
                    known(Event, #p{root = Root, last = Began, on = {off, Function}}, T);
                _ ->
                    known(Event, #p{root = Root, last = Began}, T1)
            end;
        #{} ->
            undecided(Event, #p{held = []}, T0)
    end.

%% A new one is known by the first function that is its own.
undecided(Event, #p{held = Held} = P, T) ->
    case own_function(Event) of
        none when length(Held) < ?UNDECIDED, element(3, Event) =/= exited ->
            T#tree{proc = P#p{held = [kept(Event) | Held]},
                   last = max(T#tree.last, erlane_prof_trace_read:time(Event))};
        none ->
            decided(name_of([Event | Held]), [Event | Held], T);
        Mfa ->
            decided(text(Mfa), [Event | Held], T)
    end.

decided(Label, Events, T) ->
    {Root, T1} = root({Label, undefined}, T),
    [First | _] = InOrder = lists:reverse(Events),
    %% Who was spawned waits for a scheduler first.
    On = case First of
             {spawned, _, _, _} -> {woken, 0};
             _ -> running
         end,
    P = #p{root = Root, last = erlane_prof_trace_read:time(First), on = On},
    lists:foldl(fun(_, #tree{proc = none} = Ended) -> Ended;
                   (Event, #tree{proc = Now} = Acc) -> known(Event, Now, Acc)
                end, T1#tree{proc = P}, InOrder).

own_function({call, _, Name, _, _}) -> own_function_of(Name);
own_function({spawned, _, Name, _}) -> own_function_of(Name);
own_function(_) -> none.

own_function_of(none) -> none;
own_function_of(Name) ->
    {M, _, _} = Mfa = erlane_prof_trace_read:mfa(Name),
    case lists:member(M, ?PLUMBING) of
        true -> none;
        false -> Mfa
    end.

%% The one that began first, if none was its own.
name_of(Events) ->
    Names = [Name || Event <- lists:reverse(Events), Name <- [named(Event)], Name =/= none],
    case Names of
        [Name | _] -> text(erlane_prof_trace_read:mfa(Name));
        [] -> <<"[unknown]">>
    end.

named({call, _, Name, _, _}) -> Name;
named({sched, _, _, Name, _}) -> Name;
named({spawned, _, Name, _}) -> Name;
named(_) -> none.

%% Not the whole piece that it was read from.
kept({call, Who, Name, Caller, Ts}) -> {call, Who, copy(Name), copy(Caller), Ts};
kept({sched, Who, What, Name, Ts}) -> {sched, Who, What, copy(Name), Ts};
kept({Kind, Who, Name, Ts}) when is_binary(Name) -> {Kind, Who, copy(Name), Ts};
kept(Event) -> Event.

copy(Name) when is_binary(Name) -> binary:copy(Name);
copy(Name) -> Name.

text({M, F, A}) ->
    unicode:characters_to_binary(io_lib:format("~tw:~tw/~w", [M, F, A])).

root(Label, #tree{nodes = Nodes} = T) ->
    {Root, More} = erlane_prof_trace_stack:root(Label, Nodes),
    {Root, T#tree{nodes = More}}.

%% Functions that were not to be traced have numbers below 0, as erlane_prof_trace_stack has it.
id(none, T) ->
    {0, T};
id(Name, #tree{names = Names} = T) ->
    case Names of
        #{Name := Id} -> {Id, T};
        #{} -> new_id(Name, T)
    end.

new_id(Name, #tree{names = Names} = T0) ->
    {Id, T} = id_of(erlane_prof_trace_read:mfa(Name), T0),
    {Id, T#tree{names = case Id of
                            -1 -> Names;
                            _ -> Names#{binary:copy(Name) => Id}
                        end}}.

id_of(Mfa, #tree{ids = Ids, mfas = Mfas, next = Next, unnamed = N, about = About} = T) ->
    #{traced := Traced} = About,
    case Ids of
        #{Mfa := Id} -> {Id, T};
        #{} when Next > ?NAMES -> {-1, T#tree{unnamed = N + 1}};
        #{} ->
            Id = case is_binary(Mfa) orelse Traced(Mfa) of
                     true -> Next;
                     false -> -Next
                 end,
            {Id, T#tree{ids = Ids#{Mfa => Id}, mfas = Mfas#{Id => Mfa}, next = Next + 1}}
    end.

%%% What it does

known({call, _, Name, top, Ts}, P, T0) ->
    {Function, T1} = id(Name, T0),
    #tree{proc = #p{stack = Stack0} = P1} = T2 = runs(Ts, P, T1),
    {Caller, Stack, T} = from(Function, Stack0, T2),
    called(Function, Caller, T#tree{proc = P1#p{stack = Stack}}, T#tree.nodes);
known({call, _, Name, Returns, Ts}, P, T0) ->
    {Function, T1} = id(Name, T0),
    {Caller, T2} = id(Returns, T1),
    called(Function, Caller, runs(Ts, P, T2), T2#tree.nodes);
known({return_to, _, Name, Ts}, P, T0) ->
    {Function, T1} = id(Name, T0),
    #tree{proc = #p{stack = Stack, root = Root} = P1} = T2 = runs(Ts, P, T1),
    {How, Now, Nodes} = erlane_prof_trace_stack:return_to(Function, Stack, Root, T2#tree.nodes),
    repaired(How, T2#tree{nodes = Nodes, proc = P1#p{stack = Now}});
known({sched, _, in, Name, Ts}, P, T0) ->
    {Function, T} = id(Name, T0),
    since(Ts, running, seen(Function, P, T));
known({sched, _, out, Name, Ts}, P, T0) ->
    {Function, T} = id(Name, T0),
    since(Ts, {off, Function}, seen(Function, P, T));
known({sched, _, exited, _, Ts}, P, T) ->
    (since(Ts, running, T#tree{proc = P}))#tree{proc = none};
known({gc, _, begins, Ts}, #p{on = On} = P, T) when On =/= gc ->
    since(Ts, gc, T#tree{proc = P#p{before = On}});
known({gc, _, ends, Ts}, #p{on = gc, before = Before} = P, T) ->
    since(Ts, Before, T#tree{proc = P});
known({received, _, Ts}, #p{on = {off, Function}} = P, T) ->
    since(Ts, {woken, Function}, T#tree{proc = P});
known({sent, _, _}, #p{stack = Stack, root = Root} = P, #tree{counts = Counts} = T) ->
    counters:add(Counts, cell(erlane_prof_trace_stack:node_of(Stack, Root), ?SENT), 1),
    T#tree{proc = P};
known(_, P, T) ->
    T#tree{proc = P}.

%% Who calls a function of which it was not asked where it returns to: what is innermost. Only what
%% was there when the trace began can have returned without a word; then it is who calls it, if that
%% is one function.
from(Function, Stack, T)
  when Function =< 0; Stack =/= [] andalso element(2, hd(Stack)) =/= unknown ->
    {top, Stack, T};
from(Function, Stack, #tree{mfas = Mfas, about = About} = T0) ->
    #{Function := Mfa} = Mfas,
    Top = maps:get(erlane_prof_trace_stack:function_of(Stack), Mfas, none),
    Callers = maps:get(Mfa, maps:get(top, About, #{}), []),
    case {Callers, Top =:= Mfa orelse lists:member(Top, Callers)} of
        {_, true} -> {top, Stack, T0};
        {[Caller], false} ->
            {Id, T} = id_of(Caller, T0),
            {Id, Stack, T};
        {_, false} -> {top, [], T0}
    end.

called(Function, _Caller, T, _Nodes) when Function =< 0 ->
    T;
called(Function, Caller, #tree{proc = #p{stack = Stack, root = Root} = P, counts = Counts} = T,
       Nodes) ->
    {How, Now, More} = erlane_prof_trace_stack:call(Function, Caller, Stack, Root, Nodes),
    counters:add(Counts, cell(erlane_prof_trace_stack:node_of(Now, Root), ?CALLS), 1),
    repaired(How, T#tree{nodes = More, proc = P#p{stack = Now}}).

repaired(exact, T) -> T;
repaired(repaired, #tree{repaired = N} = T) -> T#tree{repaired = N + 1}.

seen(Function, #p{stack = [], root = Root} = P, #tree{nodes = Nodes} = T) ->
    {Stack, More} = erlane_prof_trace_stack:seen(Function, [], Root, Nodes),
    T#tree{nodes = More, proc = P#p{stack = Stack}};
seen(_Function, P, T) ->
    T#tree{proc = P}.

%% It calls or returns, so it runs.
runs(Ts, #p{on = running} = P, T) -> since(Ts, running, T#tree{proc = P});
runs(Ts, P, T) -> since(Ts, running, repaired(repaired, T#tree{proc = P})).

%% The time since its last event is that of what it did since.
since(Ts, Next, #tree{proc = #p{on = running, last = Last, stack = Stack, root = Root} = P,
                      counts = Counts} = T) ->
    Node = erlane_prof_trace_stack:node_of(Stack, Root),
    counters:add(Counts, cell(Node, ?NS), max(0, Ts - Last)),
    T#tree{proc = P#p{last = max(Ts, Last), on = Next}, last = Ts};
since(Ts, Next, #tree{proc = #p{on = On, last = Last, stack = Stack, root = Root} = P,
                      off = Off} = T) ->
    Key = {erlane_prof_trace_stack:node_of(Stack, Root), On},
    Took = max(0, Ts - Last),
    T#tree{proc = P#p{last = max(Ts, Last), on = Next}, last = Ts,
           off = maps:update_with(Key, fun(Before) -> Before + Took end, Took, Off)}.

cell(Node, What) -> 3 * Node + What - 1.

%%% Ports

port(Event, none, #tree{who = Who, about = #{own := Own} = About} = T0) ->
    case lists:member(Who, Own) of
        true -> T0;
        false ->
            {Label, Frame, Since} = about_port(Event, Who, About),
            {Root, T1} = root({Label, undefined}, T0),
            {Stack, T} = with_frame(Frame, {[], T1}, Root),
            Q = #q{root = Root, stack = Stack, port = erlane_prof_trace_ports:new(Event, Since)},
            port(Event, Q, T)
    end;
port(Event, #q{port = P} = Q, #tree{repaired = N} = T) ->
    {How, Span, What, Next} = erlane_prof_trace_ports:event(Event, P),
    Done = spent(Span, Q, T),
    Now = Done#tree{proc = Q#q{port = Next}, last = erlane_prof_trace_read:time(Event),
                    repaired = case How of
                                   exact -> N;
                                   repaired -> N + 1
                               end},
    case What of
        {begins, Tasks} -> begun(Tasks, Q, Now);
        closes -> closing(Now);
        goes_on -> Now
    end.

%% One that was there before did all the time what it did then. A driver can make ports of which
%% it is not told that they were opened, as that of TCP does for each connection it accepts.
about_port(Event, Who, #{began := Began} = About) ->
    Time = erlane_prof_trace_read:time(Event),
    case {maps:get(ports, About, #{}), Event} of
        {#{Who := {Registered, Opened, Was}}, _} ->
            Short = erlane_prof_trace_ports:short(Opened),
            {case Registered of
                 none -> Short;
                 _ -> Registered
             end, <<"[port] ", Short/binary>>, case Was of
                                                   true -> Began;
                                                   false -> Time
                                               end};
        {_, {opened, _, Name, _}} when Name =/= none ->
            Short = erlane_prof_trace_ports:short(erlane_prof_trace_read:word(Name)),
            {Short, <<"[port] ", Short/binary>>, Time};
        _ ->
            {<<"[port]">>, <<"[port]">>, Time}
    end.

spent({_, 0}, _Q, T) ->
    T;
spent({[], Ns}, #q{root = Root, stack = Stack}, #tree{off = Off} = T) ->
    Key = {erlane_prof_trace_stack:node_of(Stack, Root), {off, 0}},
    T#tree{off = maps:update_with(Key, fun(Before) -> Before + Ns end, Ns, Off)};
spent({Tasks, Ns}, Q, #tree{counts = Counts} = T0) ->
    {Node, T} = node_of(Tasks, Q, T0),
    counters:add(Counts, cell(Node, ?NS), Ns),
    T.

%% A task is a call.
begun(Tasks, Q, #tree{counts = Counts} = T0) ->
    {Node, T} = node_of(Tasks, Q, T0),
    counters:add(Counts, cell(Node, ?CALLS), 1),
    T.

node_of(Tasks, #q{root = Root, stack = Stack0}, T0) ->
    {Stack, T} = lists:foldr(fun(Task, Acc) -> with_frame(Task, Acc, Root) end, {Stack0, T0},
                             Tasks),
    {erlane_prof_trace_stack:node_of(Stack, Root), T}.

with_frame(none, Acc, _Root) ->
    Acc;
with_frame(Text, {Stack, T0}, Root) ->
    case id_of(Text, T0) of
        {-1, T} -> {Stack, T};
        {Id, #tree{nodes = Nodes} = T} ->
            {_, More, With} = erlane_prof_trace_stack:call(Id, top, Stack, Root, Nodes),
            {More, T#tree{nodes = With}}
    end.

%% Nothing tells when it is done with what it has to write: the oldest is forgotten.
closing(#tree{who = Who, closing = {N, Queue}} = T) when N < ?CLOSING ->
    T#tree{closing = {N + 1, queue:in(Who, Queue)}};
closing(#tree{who = Who, closing = {N, Queue}, procs = Procs} = T) ->
    {{value, Oldest}, Rest} = queue:out(Queue),
    T#tree{closing = {N, queue:in(Who, Rest)}, procs = maps:remove(Oldest, Procs)}.

%%% The end

%% @doc There are no more events. All that were there did until `Ended' what they did last; if
%% that is `unknown', as the trace was cut, until its last event.
-spec finish(integer() | unknown, tree()) -> tree().
finish(Ended, T0) ->
    #tree{procs = Procs, last = Last} = T = put_back(T0),
    End = case Ended of
              unknown -> Last;
              _ -> Ended
          end,
    maps:fold(fun(Who, P, Acc) -> ended(End, P, Acc#tree{who = Who}) end,
              T#tree{procs = #{}}, Procs).

ended(End, #q{port = P} = Q, T) ->
    (spent(erlane_prof_trace_ports:ended(End, P), Q, T))#tree{who = none, proc = none};
ended(End, #p{held = none} = P, T) ->
    (since(End, running, T#tree{proc = P}))#tree{who = none, proc = none};
ended(End, #p{held = Held}, T) ->
    case decided(name_of(Held), Held, T) of
        #tree{proc = none} = Done -> Done#tree{who = none};
        #tree{proc = P} = Known -> ended(End, P, Known)
    end.

%% @doc How many events there were; how many of them could not be as they were, and were taken for
%% what they must have been; how many calls are in a frame that is not their own, because the tree
%% has a limit; how many names there were beyond what is told apart; when the last event was.
-spec stats(tree()) -> #{events := non_neg_integer(), repaired := non_neg_integer(),
                         merged := non_neg_integer(), unnamed := non_neg_integer(),
                         last := integer()}.
stats(#tree{events = Events, repaired = Repaired, unnamed = Unnamed, nodes = Nodes,
            last = Last}) ->
    {_, Merged} = erlane_prof_trace_stack:tree(Nodes),
    #{events => Events, repaired => Repaired, merged => Merged, unnamed => Unnamed, last => Last}.

%% @doc The functions in which processes were taken off their schedulers.
-spec waited_in(tree()) -> [mfa()].
waited_in(#tree{off = Off, mfas = Mfas}) ->
    lists:usort([maps:get(Function, Mfas) || {_, {_, Function}} <- maps:keys(Off),
                                             is_map_key(Function, Mfas)]).

%% @doc The functions that are in the rows.
-spec called(tree()) -> [mfa()].
called(#tree{mfas = Mfas}) ->
    [Mfa || {Id, {_, _, _} = Mfa} <- maps:to_list(Mfas), Id > 0].

%% @doc Calls a function for each row, whose values are nanoseconds, calls and messages. `place'
%% tells where a function begins, `state' what a process does that was taken off in one.
-spec fold(fun((erlane_prof_profile:row(), Acc) -> Acc), Acc,
           #{place := fun((mfa()) -> {binary(), non_neg_integer()}),
             state := fun((mfa()) -> erlane_prof_profile:state())}, tree()) -> Acc.
fold(Fun, Acc, #{place := Place, state := State},
     #tree{nodes = Nodes, mfas = Mfas, counts = Counts, off = Off}) ->
    {List, _} = erlane_prof_trace_stack:tree(Nodes),
    Frames = maps:map(fun(_, {M, F, A} = Mfa) ->
                              {File, Line} = Place(Mfa),
                              {M, F, A, File, Line};
                         (_, Text) -> Text
                      end, maps:filter(fun(Id, _) -> Id > 0 end, Mfas)),
    Paths = lists:foldl(fun({Node, {root, Label}}, Found) ->
                                Found#{Node => {Label, []}};
                           ({Node, {Parent, Function}}, Found) ->
                                #{Parent := {Label, Above}} = Found,
                                Found#{Node => {Label, [maps:get(Function, Frames) | Above]}}
                        end, #{}, List),
    Count = fun(Node, What) -> counters:get(Counts, cell(Node, What)) end,
    Ran = maps:fold(fun(Node, Path, A) ->
                            row(Fun, Path, running,
                                [Count(Node, ?NS), Count(Node, ?CALLS), Count(Node, ?SENT)], A)
                    end, Acc, Paths),
    maps:fold(fun({Node, gc}, Ns, A) ->
                      row(Fun, maps:get(Node, Paths), gc, [Ns, 0, 0], A);
                 ({Node, {woken, _}}, Ns, A) ->
                      row(Fun, maps:get(Node, Paths), runnable, [Ns, 0, 0], A);
                 ({Node, {off, Function}}, Ns, A) ->
                      {Label, Stack} = maps:get(Node, Paths),
                      Inner = case {Frames, Stack} of
                                  {#{Function := Top}, [Top | _]} -> Stack;
                                  {#{Function := Frame}, _} -> [Frame | Stack];
                                  _ -> Stack
                              end,
                      What = case Mfas of
                                 #{Function := Mfa} -> State(Mfa);
                                 #{} -> waiting
                             end,
                      row(Fun, {Label, Inner}, What, [Ns, 0, 0], A)
              end, Ran, Off).

row(_Fun, _Path, _State, [0, 0, 0], Acc) ->
    Acc;
row(Fun, {Label, []}, State, Values, Acc) ->
    row(Fun, {Label, [<<"[not traced]">>]}, State, Values, Acc);
row(Fun, {{Proc, App}, Inner}, State, Values, Acc) ->
    Row = #{proc => Proc, state => State, stack => lists:reverse(Inner), values => Values},
    Fun(case App of
            undefined -> Row;
            _ -> Row#{app => App}
        end, Acc).
