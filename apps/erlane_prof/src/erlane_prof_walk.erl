%% SPDX-License-Identifier: Apache-2.0
%% @doc Which processes are foremost, and what they do. Goes to other nodes with
%% erlane_prof_probe, and like it calls OTP alone.
%%
%% The walker looks at processes. What it asks is read in place, but for one that runs: that one
%% answers itself, at its next yield, and one in a long native call not at all. An asker, a
%% process for each of the answer, with a deadline, asks what is never read in place.
-module(erlane_prof_walk).

-export([start_link/0, asker/1, details/1]).

-export_type([proc/0, sort/0]).

-type sort() :: reds | memory | mailbox.
-type proc() :: #{pid := pid(), id := binary(), name := binary(), reds := non_neg_integer(),
                  reds_s := non_neg_integer() | undefined, memory := non_neg_integer() | undefined,
                  mq := non_neg_integer() | undefined, status := atom(), current := binary()}.

%% How many processes are looked at for one answer. Of `memory' the VM tells with ten other
%% figures or not at all, which takes twenty times as long.
-define(SLICE, 20000).
-define(SLICE_MEMORY, 2000).
%% A walk is followed by so many times its own duration without one, but not by more than this:
%% with 10,000 processes there is one each two seconds.
-define(SHARE, 400).
-define(PAUSE_MS, 1900).
%% How far two lists of processes may be apart.
-define(AHEAD, 64).
-define(ASK_MS, 100).
%% Words an asker may use: the dictionary of a process can be of any size.
-define(ASK_WORDS, 2000000).

%% `kernel': what was read of the operating system, and when.
%% `known': processes and their reductions at `known_at'. `left': what this round has not come to
%% yet. `again': the slice that is walked a second time next. `tops': the foremost of each slice.
%% `shown': what is known of those in the last answer. `asking': askers under way.
-record(walker, {parent, by, known = [], known_at, left = [], again = [], index = 0, tops = #{},
                 shown = #{}, asking = #{}, next = 0, last = {[], 0}}).

%% @doc Starts a walker. The message `{walk, {From, Ref}, By, Size, Careful}' is answered by
%% `{Ref, {Procs, Looked}}'. `Careful' is slower, and does not wait for a process that runs.
-spec start_link() -> pid().
start_link() ->
    %% Room for the lists of some walks, and no second heap that they would be copied to.
    Parent = self(),
    Words = 40 * min(?SLICE, erlang:system_info(process_count)),
    spawn_opt(fun() ->
                      process_flag(trap_exit, true),
                      put('$process_label', {erlane_prof, walker}),
                      walker(#walker{parent = Parent})
              end, [link, {fullsweep_after, 0}, {min_heap_size, Words}]).

%%% The walker

walker(State) ->
    receive
        {walk, {From, Ref}, By, Size, Careful} ->
            State1 = turn(By, Size, Careful, State),
            From ! {Ref, State1#walker.last},
            walker(State1);
        {answer, Asker, Answer} ->
            walker(answered(Asker, Answer, State));
        {'EXIT', Asker, Reason} ->
            walker(answered(Asker, Reason, State))
    end.

turn(By, Size, Careful, #walker{by = By, next = Next} = State) ->
    Began = erlang:monotonic_time(microsecond),
    case Began >= Next of
        true ->
            State1 = slice(Size, Careful, State),
            Ended = erlang:monotonic_time(microsecond),
            Pause = min(?PAUSE_MS * 1000, ?SHARE * (Ended - Began)),
            show(Size, Careful, State1#walker{next = Ended + Pause});
        false ->
            State
    end;
turn(By, Size, Careful, State) ->
    turn(By, Size, Careful, State#walker{by = By, left = [], again = [], index = 0, tops = #{},
                                         next = erlang:monotonic_time(microsecond)}).

%% Up to a slice of processes are all looked at in each walk. More are taken slice by slice; for
%% reductions each is walked twice, so that there is no need to remember those of all processes.
slice(Size, Careful, State) ->
    Now = erlang:monotonic_time(millisecond),
    Limit = limit(State#walker.by),
    case erlang:system_info(process_count) =< Limit of
        true ->
            Pids = erlang:processes(),
            State1 = case State#walker.index of
                         0 -> State;
                         _ -> State#walker{left = [], again = [], index = 0, known = [],
                                           known_at = undefined}
                     end,
            rank(Pids, Now, Size, Careful, State1);
        false ->
            part(Now, Limit, Size, Careful, State)
    end.

part(Now, _Limit, Size, Careful, #walker{again = [_ | _] = Pids} = State) ->
    rank(Pids, Now, Size, Careful, State#walker{again = []});
part(Now, Limit, Size, Careful, #walker{left = [], index = Index, tops = Tops} = State) ->
    part(Now, Limit, Size, Careful,
         State#walker{left = erlang:processes(), index = 0,
                      tops = maps:filter(fun(I, _) -> I =< Index end, Tops)});
part(Now, Limit, Size, Careful, #walker{by = By, left = Left, index = Index} = State) ->
    {Pids, Rest} = lists:split(min(Limit, length(Left)), Left),
    State1 = State#walker{left = Rest, index = Index + 1},
    case By of
        reds -> rank(Pids, Now, Size, Careful,
                     State1#walker{again = Pids, known = [], known_at = undefined});
        _ -> rank(Pids, Now, Size, Careful, State1)
    end.

%% The foremost of these; of a first walk only sums are known, which are better than nothing.
rank(Pids, Now, Size, Careful, #walker{by = By, known_at = KnownAt, tops = Tops} = State) ->
    Empty = {0, Size, 0, []},
    {{_, _, _, Best}, Known} =
        case By of
            reds -> scan_reds(Pids, Careful, State#walker.known, Empty, []);
            _ -> {scan(Pids, By, Careful, Empty), State#walker.known}
        end,
    Tops1 = case By of
                reds when KnownAt =:= undefined, map_size(Tops) > 0 ->
                    Tops;
                reds when KnownAt =:= undefined ->
                    #{sums => [{Value, Pid, undefined} || {Value, Pid} <- Best]};
                reds ->
                    Ms = max(1, Now - KnownAt),
                    maps:remove(sums, Tops#{State#walker.index =>
                                                [per_second(Top, Ms) || Top <- Best]});
                _ ->
                    Tops#{State#walker.index => [{Value, Pid, undefined} || {Value, Pid} <- Best]}
            end,
    State#walker{known = Known, tops = Tops1, last = {[], length(Pids)},
                 known_at = case By of
                                reds -> Now;
                                _ -> KnownAt
                            end}.

per_second({busy, Pid}, _Ms) ->
    {busy, Pid, undefined};
per_second({Value, Pid}, Ms) ->
    Rate = Value * 1000 div Ms,
    {Rate, Pid, Rate}.

limit(memory) -> ?SLICE_MEMORY;
limit(_) -> ?SLICE.

%% Reductions, and how many more they are than before. Both lists are in the order of the VM's
%% table of processes, so that nothing has to be looked up.
scan_reds([Pid | Pids], Careful, Known, Top, Seen) ->
    {Before, Known1} = before(Pid, Known, Pids),
    case Careful andalso busy(Pid) of
        true ->
            %% An atom is greater than any number: it is among those an asker goes to.
            scan_reds(Pids, Careful, Known1, keep(busy, Pid, Top), Seen);
        false ->
            case process_info(Pid, reductions) of
                {_, Reds} ->
                    scan_reds(Pids, Careful, Known1, keep(Reds - Before, Pid, Top),
                              [{Pid, Reds} | Seen]);
                undefined ->
                    scan_reds(Pids, Careful, Known1, Top, Seen)
            end
    end;
scan_reds([], _Careful, _Known, Top, Seen) ->
    {Top, lists:reverse(Seen)}.

%% Where the lists differ, either some have ended or some have begun. If many did at once, the
%% rest of the list becomes a map.
before(Pid, [{Pid, Reds} | Known], _Pids) ->
    {Reds, Known};
before(_Pid, [], _Pids) ->
    {0, []};
before(Pid, [{Other, _} | _] = Known, Pids) ->
    case skip(Pid, Known, ?AHEAD) of
        {Reds, Rest} ->
            {Reds, Rest};
        none ->
            case lists:member(Other, lists:sublist(Pids, ?AHEAD)) of
                true -> {0, Known};
                false -> before(Pid, maps:from_list(Known), Pids)
            end
    end;
before(Pid, Known, _Pids) when is_map(Known) ->
    {maps:get(Pid, Known, 0), Known}.

skip(_Pid, _Known, 0) -> none;
skip(Pid, [{Pid, Reds} | Rest], _N) -> {Reds, Rest};
skip(Pid, [_ | Rest], N) -> skip(Pid, Rest, N - 1);
skip(_Pid, [], _N) -> none.

scan([Pid | Pids], By, Careful, Top) ->
    Value = case Careful andalso busy(Pid) of
                true -> busy;
                false -> value(By, Pid)
            end,
    scan(Pids, By, Careful, case Value of
                                undefined -> Top;
                                _ -> keep(Value, Pid, Top)
                            end);
scan([], _By, _Careful, Top) ->
    Top.

value(mailbox, Pid) ->
    case process_info(Pid, message_queue_len) of
        {_, Length} -> Length;
        undefined -> undefined
    end;
value(memory, Pid) ->
    case process_info(Pid, garbage_collection_info) of
        {_, Info} -> bytes(Info);
        undefined -> undefined
    end.

busy(Pid) ->
    case process_info(Pid, status) of
        {_, Status} -> Status =/= waiting;
        undefined -> false
    end.

%% Heaps and message fragments. `memory' would count more, but is never read in place.
bytes(Info) ->
    Words = [N || Key <- [heap_block_size, old_heap_block_size, mbuf_size],
                  {_, N} <- [lists:keyfind(Key, 1, Info)]],
    lists:sum(Words) * erlang:system_info(wordsize).

%% The foremost, the least of them first.
keep(Value, Pid, {N, Size, _Least, List}) when N < Size ->
    [{Least, _} | _] = Kept = lists:merge([{Value, Pid}], List),
    {N + 1, Size, Least, Kept};
keep(Value, Pid, {N, Size, Least, [_ | List]}) when Value > Least ->
    [{Least1, _} | _] = Kept = lists:merge([{Value, Pid}], List),
    {N, Size, Least1, Kept};
keep(_Value, _Pid, Top) ->
    Top.

%% What is told of the foremost of all slices. To ask one costs it reductions: those it has
%% afterwards are compared, so that one that sleeps is asked once.
show(Size, Careful, #walker{tops = Tops, shown = Shown, last = {_, Looked}} = State) ->
    Best = lists:sublist(lists:reverse(lists:usort(lists:append(maps:values(Tops)))), Size),
    Now = erlang:monotonic_time(millisecond),
    Before = maps:with([Pid || {_, Pid, _} <- Best], Shown),
    Under = [Pid || {info, Pid} <- maps:values(State#walker.asking)],
    Ask = [Pid || {_, Pid, _} <- Best, not lists:member(Pid, Under),
                  Careful andalso busy(Pid) orelse moved(Pid, maps:get(Pid, Before, #{}))],
    Old = maps:map(fun(Pid, Seen) -> still(lists:member(Pid, Ask ++ Under), Pid, Seen) end,
                   Before),
    Asking = maps:from_list(lists:append([askers(Pid, maps:get(Pid, Before, #{})) || Pid <- Ask])),
    State1 = answers(Now + ?ASK_MS, State#walker{shown = Old,
                                                 asking = maps:merge(State#walker.asking, Asking)}),
    Procs = [P || {_, Pid, Rate} <- Best, P <- proc(Pid, Rate, State1)],
    State1#walker{last = {Procs, Looked}}.

moved(Pid, #{reds := Reds}) ->
    process_info(Pid, reductions) =/= {reductions, Reds};
moved(_Pid, #{}) ->
    true.

%% One that did nothing since, but messages may have come.
still(true, _Pid, Seen) ->
    Seen;
still(false, Pid, Seen) ->
    case process_info(Pid, message_queue_len) of
        {_, Length} -> Seen#{mq => Length, at => erlang:monotonic_time(millisecond), rate => 0};
        undefined -> Seen
    end.

askers(Pid, Seen) ->
    Self = self(),
    Ask = fun(What, Fun) ->
                  {asker(fun() -> Self ! {answer, self(), {What, Fun(Pid)}} end), {What, Pid}}
          end,
    [Ask(info, fun info/1) | [Ask(name, fun name/1) || not is_map_key(name, Seen)]].

%% @doc Runs a function in a process that may be stuck and is not to grow. Linked, so that it ends
%% with us even if it waits for somebody who never answers.
-spec asker(fun(() -> term())) -> pid().
asker(Fun) ->
    spawn_opt(Fun, [link, {max_heap_size, #{size => ?ASK_WORDS, kill => true,
                                            error_logger => false}}]).

answers(Deadline, #walker{asking = Asking} = State) when map_size(Asking) > 0 ->
    receive
        {answer, Asker, Answer} -> answers(Deadline, answered(Asker, Answer, State));
        {'EXIT', Asker, Reason} -> answers(Deadline, answered(Asker, Reason, State))
    after max(0, Deadline - erlang:monotonic_time(millisecond)) ->
        State
    end;
answers(_Deadline, State) ->
    State.

answered(Parent, _Reason, #walker{parent = Parent}) ->
    exit(shutdown);
answered(Asker, Answer, #walker{asking = Asking, shown = Shown} = State) ->
    case maps:take(Asker, Asking) of
        {{_, Pid}, Asking1} ->
            Seen = maps:get(Pid, Shown, #{}),
            State#walker{asking = Asking1, shown = Shown#{Pid => seen(Answer, Seen)}};
        error ->
            State
    end.

seen({info, Info}, #{reds := Reds0, at := At0} = Seen) when is_map(Info) ->
    #{total := Reds, at := At} = Info,
    maps:merge(Seen, Info#{rate => max(0, Reds - Reds0) * 1000 div max(1, At - At0)});
seen({info, Info}, Seen) when is_map(Info) ->
    maps:merge(Seen, Info);
seen({name, Name}, Seen) ->
    Seen#{name => Name};
seen(_GoneOrKilled, Seen) ->
    Seen.

%% A process that ended meanwhile is left out, one that did not answer has no figures.
proc(Pid, Rate0, #walker{shown = Shown, asking = Asking}) ->
    Seen = maps:get(Pid, Shown, #{}),
    Silent = lists:member({info, Pid}, maps:values(Asking)),
    Rate = case Rate0 of
               undefined -> maps:get(rate, Seen, undefined);
               _ -> Rate0
           end,
    case Seen of
        #{total := Total} ->
            Name = case Seen of
                       #{registered := Registered} -> Registered;
                       _ -> maps:get(name, Seen, maps:get(initial, Seen))
                   end,
            [#{pid => Pid, id => id(Pid), name => Name, reds => Total, reds_s => Rate,
               memory => maps:get(memory, Seen), mq => maps:get(mq, Seen),
               status => maps:get(status, Seen), current => current(Silent, Seen)}];
        #{} when Silent ->
            [#{pid => Pid, id => id(Pid), name => <<>>, reds => 0, reds_s => Rate,
               memory => undefined, mq => undefined, status => no_answer,
               current => current(true, Seen)}];
        #{} ->
            []
    end.

current(true, _) -> <<"(no answer)">>;
current(false, #{current := Current}) -> Current.

%%% The askers

info(Pid) ->
    case process_info(Pid, [registered_name, initial_call, status, message_queue_len, reductions,
                            garbage_collection_info, current_function]) of
        [{_, Registered}, {_, Initial}, {_, Status}, {_, Length}, {_, Total}, {_, Gc},
         {_, Current}] ->
            {_, Reds} = case process_info(Pid, reductions) of
                            undefined -> {reductions, Total};
                            After -> After
                        end,
            Info = #{initial => function(Initial), status => Status, mq => Length,
                     total => Total, reds => Reds, memory => bytes(Gc),
                     current => function(Current), at => erlang:monotonic_time(millisecond)},
            case Registered of
                [] -> Info;
                _ -> Info#{registered => atom_to_binary(Registered)}
            end;
        undefined ->
            gone
    end.

%% The label of a process (OTP 27), or what proc_lib notes of the function it began with.
name(Pid) ->
    Keys = ['$process_label', '$initial_call'],
    Notes = try process_info(Pid, [{dictionary, Key} || Key <- Keys]) of
                undefined -> [];
                List -> lists:zip(Keys, [Value || {_, Value} <- List])
            catch
                error:badarg ->
                    %% Before OTP 26.2 there is only the whole dictionary.
                    case process_info(Pid, dictionary) of
                        {_, All} -> All;
                        undefined -> []
                    end
            end,
    case {lists:keyfind('$process_label', 1, Notes), lists:keyfind('$initial_call', 1, Notes)} of
        {{_, Label}, _} when Label =/= undefined -> text("~0tp", [Label]);
        {_, {_, {M, F, A}}} -> function({M, F, A});
        _ -> case process_info(Pid, initial_call) of
                 {_, Initial} -> function(Initial);
                 undefined -> <<>>
             end
    end.

%% @doc Everything that is shown of one process. Lists are cut: there may be very many.
-spec details(pid()) -> {ok, map()} | {error, ended}.
details(Pid) ->
    Items = [registered_name, initial_call, status, priority, trap_exit, group_leader,
             message_queue_len, reductions, garbage_collection_info, heap_size, stack_size,
             links, monitors, monitored_by, dictionary, current_stacktrace],
    case process_info(Pid, Items) of
        undefined ->
            {error, ended};
        Info ->
            Get = fun(Key) -> {_, Value} = lists:keyfind(Key, 1, Info), Value end,
            Names = [atom_to_binary(Name) || Name <- [Get(registered_name)], Name =/= []],
            {ok, #{id => id(Pid),
                   name => hd(Names ++ [name(Pid)]),
                   initial => function(Get(initial_call)),
                   status => Get(status),
                   priority => Get(priority),
                   trap_exit => Get(trap_exit),
                   group_leader => text("~0tp", [Get(group_leader)]),
                   mq => Get(message_queue_len),
                   reds => Get(reductions),
                   memory => bytes(Get(garbage_collection_info)),
                   heap_words => Get(heap_size),
                   stack_words => Get(stack_size),
                   dictionary => length(Get(dictionary)),
                   links => some(Get(links)),
                   monitors => some(Get(monitors)),
                   monitored_by => some(Get(monitored_by)),
                   stack => [frame(Frame) || Frame <- Get(current_stacktrace)]}}
    end.

some(List) ->
    #{count => length(List),
      some => [text("~0tp", [Item]) || Item <- lists:sublist(List, 50)]}.

frame({M, F, A, Location}) ->
    case {proplists:get_value(file, Location), proplists:get_value(line, Location)} of
        {File, Line} when is_list(File), is_integer(Line) ->
            text("~ts ~ts:~b", [function({M, F, A}), filename:basename(File), Line]);
        _ ->
            function({M, F, A})
    end.

function({M, F, Args}) when is_list(Args) -> function({M, F, length(Args)});
function({M, F, A}) -> text("~tw:~tw/~w", [M, F, A]);
function(Other) -> text("~0tp", [Other]).

id(Pid) ->
    list_to_binary(pid_to_list(Pid)).

text(Format, Args) ->
    unicode:characters_to_binary(io_lib:format(Format, Args)).
