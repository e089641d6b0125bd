%% SPDX-License-Identifier: Apache-2.0
%% Runs on the nodes of the fan-out's suites: publishers, and subscribers that check what they get.
%%
%% A message is {m, Publisher, N, Payload}, where N grows by one with each message of a publisher.
%% So a subscriber can tell by itself that nothing came twice, that order was kept, that numbers of
%% its subscription follow one another, and that each hole has gaps in it that are as large, or one
%% whose size nobody knows, of the publisher's node.
-module(fan_node).

-export([start/1, publisher/1, published/1, pace/2, stop/1, subscriber/1, report/1, hurry/1,
         again/1, key/1, kill_lane/1, kill_route/2, knows/1, left/0, others/1, members/1,
         memory/0, seen/0]).

-define(APP, erlane_fanout).
-define(ASK_MS, 20000).
-define(ERRORS, 5).
%% Gaps that a subscriber remembers.
-define(MARKS, 5000).

%% The application, with this configuration.
-spec start([{atom(), term()}]) -> ok.
start(Env) ->
    _ = application:load(?APP),
    [ok = application:set_env(?APP, Key, Value) || {Key, Value} <- Env],
    {ok, _} = application:ensure_all_started(?APP),
    Self = self(),
    Watch = spawn(fun() ->
                      true = register(fan_node_watch, self()),
                      ok = net_kernel:monitor_nodes(true),
                      Self ! {self(), watching},
                      watch([])
                  end),
    receive {Watch, watching} -> ok end.

%% Which nodes came and went, and when (system time in milliseconds), the last first.
watch(Seen) ->
    receive
        {seen, From, Ref} -> From ! {Ref, Seen}, watch(Seen);
        {What, Node} -> watch([{now_ms(), What, Node} | Seen])
    end.

%% What happened to this node's connections.
-spec seen() -> [{integer(), nodeup | nodedown, node()}].
seen() -> ask(whereis(fan_node_watch), seen).

now_ms() -> erlang:system_time(millisecond).

%% Publishers

%% #{topic, bytes => payload, every => N, pause => ms after each N messages, most => messages}
-spec publisher(map()) -> pid().
publisher(Spec) ->
    Full = maps:merge(#{bytes => 50, every => 10, pause => 5, most => infinity}, Spec),
    Id = {node(), make_ref()},
    spawn(fun() -> publishing(Id, 1, Full) end).

publishing(Id, N, #{most := Most}) when N > Most ->
    stopped(Id, N);
publishing(Id, N, #{topic := Topic, bytes := Bytes, every := Every, pause := Pause} = Spec) ->
    receive
        {published, From, Ref} -> From ! {Ref, {Id, N - 1}}, publishing(Id, N, Spec);
        {pace, Change} -> publishing(Id, N, maps:merge(Spec, Change));
        {stop, From, Ref} -> From ! {Ref, {Id, N - 1}}, stopped(Id, N)
    after case N rem Every of 0 -> Pause; _ -> 0 end ->
        ok = erlane_fanout:publish(Topic, {m, Id, N, binary:copy(<<"x">>, Bytes)}),
        publishing(Id, N + 1, Spec)
    end.

stopped(Id, N) ->
    receive
        {pace, _} -> stopped(Id, N);
        {_PublishedOrStop, From, Ref} -> From ! {Ref, {Id, N - 1}}, stopped(Id, N)
    end.

%% Its name and the number of its last message.
-spec published(pid()) -> {term(), non_neg_integer()}.
published(Pid) -> ask(Pid, published).

%% From now on at this pace.
-spec pace(pid(), map()) -> ok.
pace(Pid, Change) -> Pid ! {pace, Change}, ok.

%% No more messages. It can still be asked.
-spec stop(pid()) -> {term(), non_neg_integer()}.
stop(Pid) -> ask(Pid, stop).

ask(Pid, What) ->
    Ref = monitor(process, Pid),
    Pid ! {What, self(), Ref},
    receive
        {Ref, Answer} -> demonitor(Ref, [flush]), Answer;
        {'DOWN', Ref, process, _, Reason} -> error({What, Reason})
    after ?ASK_MS ->
        error({no_answer, What, process_info(Pid, [current_stacktrace, message_queue_len])})
    end.

%% Subscribers

%% #{filter, opts, lazy => ms between taking something and being done with it}
-spec subscriber(map()) -> pid().
subscriber(#{filter := _, opts := _} = Spec) ->
    Self = self(),
    {Pid, Ref} = spawn_monitor(fun() ->
                                       S = subscribed(maps:merge(#{lazy => 0}, Spec)),
                                       Self ! {self(), ready},
                                       subscribing(S)
                               end),
    receive
        {Pid, ready} -> demonitor(Ref, [flush]), Pid;
        {'DOWN', Ref, process, Pid, Reason} -> error(Reason)
    end.

%% Of a publisher its last message, and the subscription's number of that; `loose': a lane has
%% crashed since, it may go on anywhere. `gaps': behind which number they are, and how large or of
%% which node, the last first.
subscribed(#{filter := Filter, opts := Opts} = Spec) ->
    {Sub, Seq} = subscribe(Filter, Opts, 50),
    Fresh = #{sub => Sub, next => Seq + 1, last => #{}, marks => [], conflated => none},
    Sums = #{count => 0, crashes => 0, thrown_out => 0, gaps => 0, breaks => 0, errors => [],
             lost => 0, due => none, holes => 0},
    maps:merge(maps:merge(Sums, Spec), Fresh).

%% A lane that crashes meanwhile is an error of the caller's, who tries again.
subscribe(Filter, Opts, Tries) ->
    try erlane_fanout:subscribe(Filter, Opts) of
        {ok, Sub, Seq} -> {Sub, Seq}
    catch
        error:{lane_crashed, _} when Tries > 0 ->
            receive after 20 -> subscribe(Filter, Opts, Tries - 1) end
    end.

subscribing(#{sub := Sub, opts := Opts} = S) ->
    Mode = maps:get(mode, Opts, push),
    receive
        {report, From, Ref} -> subscribing(reported(From, Ref, S));
        {hurry, From, Ref} -> From ! {Ref, ok}, subscribing(done(S#{lazy := 0}));
        {again, From, Ref} ->
            ok = erlane_fanout:unsubscribe(Sub),
            From ! {Ref, ok},
            subscribing(anew(S));
        {fan, Sub, slow_consumer} -> subscribing(anew(add(thrown_out, 1, S)));
        {fan, Sub, ready} when Mode =/= push -> subscribing(pull(Mode, S));
        {fan, Sub, Seq, Messages} -> subscribing(soon(came(Seq, Messages, S)));
        {gap, Sub, lane} -> subscribing(crashed(S));
        {gap, Sub, {What, N, After}} -> subscribing(unnumbered(What, N, After, S));
        {gap, Sub, From, To} -> subscribing(gap(From, To, S));
        {done, Sub} -> subscribing(done(S));
        %% Of an earlier subscription.
        {Fan, Other, _} when Fan =/= report, Other =/= Sub -> subscribing(S);
        {_, Other, _, _} when Other =/= Sub -> subscribing(S);
        {done, _} -> subscribing(S);
        Unknown -> subscribing(wrong({unknown, Unknown}, S))
    after case Mode of push -> infinity; _ -> maps:get(lazy, S) end ->
        subscribing(pull(Mode, S))
    end.

%% What it had counted stays, what it expects is new.
anew(S0) ->
    S = noticed(S0),
    New = subscribed(maps:with([filter, opts, lazy], S)),
    maps:merge(S, maps:with([sub, next, last, marks, conflated, due], New)).

soon(#{lazy := 0} = S) -> done(S);
soon(#{due := none, lazy := Ms, sub := Sub} = S) ->
    _ = erlang:send_after(Ms, self(), {done, Sub}),
    S#{due := soon};
soon(S) -> S.

done(#{sub := Sub, next := Next} = S) ->
    _ = is_integer(Next) andalso erlane_fanout:done(Sub, Next - 1),
    S#{due := none}.

%% As much as there is, but a word in between.
pull(Mode, #{sub := Sub} = S) ->
    case take(Mode, Sub) of
        {ok, Seq, Messages} -> came(Seq, Messages, S);
        {gap, From, To} -> gap(From, To, S);
        empty -> idle(Mode, S);
        {error, not_subscribed} ->
            %% Thrown out, as the message says.
            receive {fan, Sub, slow_consumer} -> anew(add(thrown_out, 1, S))
            after ?ASK_MS -> wrong(not_subscribed, S)
            end
    end.

%% Nobody may look for more before the message: who says so was woken for nothing.
idle(Mode, #{sub := Sub} = S) ->
    receive
        {fan, Sub, ready} -> pull(Mode, S);
        {fan, Sub, slow_consumer} -> anew(add(thrown_out, 1, S));
        {gap, Sub, lane} -> crashed(S);
        {gap, Sub, {What, N, After}} -> idle(Mode, unnumbered(What, N, After, S));
        {hurry, From, Ref} -> From ! {Ref, ok}, idle(Mode, S#{lazy := 0});
        {report, From, Ref} -> idle(Mode, reported(From, Ref, S));
        {again, From, Ref} ->
            ok = erlane_fanout:unsubscribe(Sub),
            From ! {Ref, ok},
            anew(S)
    end.

take(pull, Sub) -> erlane_fanout:take(Sub, 50);
take(frames, Sub) ->
    case erlane_fanout:take_frames(Sub) of
        {ok, Seq, N, Frames} ->
            Messages = [binary_to_term(F) || <<Size:32, F:Size/binary>> <= Frames],
            N = length(Messages),
            {ok, Seq, Messages};
        Other -> Other
    end.

came(Seq, Messages, #{next := Next, sub := Sub} = S) ->
    First = Seq - length(Messages) + 1,
    case Next =:= any orelse First =:= Next of
        true ->
            lists:foldl(fun({N, M}, Acc) -> one(N, since(N, First, S), M, Acc) end,
                        add(count, length(Messages), S#{next := Seq + 1}),
                        lists:zip(lists:seq(First, Seq), Messages));
        false ->
            %% Who pulls may have got here before the message of a crash.
            receive {gap, Sub, lane} -> came(Seq, Messages, crashed(S))
            after 1000 -> wrong({seq, Next, First, Seq}, S#{next := Seq + 1})
            end
    end.

%% From which number on it may have been. What was conflated is the last of each key among so many,
%% the numbers of the gap before it and its own.
since(_, First, #{opts := #{policy := {conflate, _}}, conflated := {From, To}})
  when To + 1 =:= First ->
    From;
since(N, _, _) -> N.

one(Seq, Since, {m, Id, N, _}, #{last := Last} = S) ->
    Now = S#{last := Last#{Id => {N, strict, Since}}},
    case Last of
        #{Id := {Before, _, _}} when N =< Before -> wrong({twice_or_late, Id, Before, N}, S);
        #{Id := {Before, strict, At}} when N > Before + 1 ->
            add(holes, 1, hole(Id, Before, N, At, Seq, noticed(Now)));
        #{} -> Now
    end.

%% Between the messages Before and N of a publisher, which have these numbers here.
hole({Node, _} = Id, Before, N, At, Seq, #{marks := Marks} = S) ->
    Inside = [Size || {After, Size} <- Marks, After >= At, After < Seq],
    Lost = lists:sum([Size || Size <- Inside, is_integer(Size)]),
    case lists:member(Node, Inside) orelse Lost >= N - Before - 1 of
        true -> S;
        false -> wrong({hole, now_ms(), Id, Before, N, numbers, At, Seq, gaps, Inside,
                        lists:sublist(Marks, 5)}, S)
    end.

gap(From, To, #{next := Next, sub := Sub} = S) ->
    case To >= From andalso (Next =:= any orelse From =:= Next) of
        true -> counted(From - 1, To - From + 1, S#{next := To + 1, conflated := {From - 1, To}});
        false ->
            receive {gap, Sub, lane} -> gap(From, To, crashed(S))
            after 1000 -> wrong({gap, Next, From, To}, S#{next := To + 1})
            end
    end.

%% What a lane had no room for has no numbers; nor has what was lost between two nodes, and nobody
%% knows how much that is.
unnumbered(full, N, After, S) -> counted(After, N, S);
unnumbered(node, Node, After, S) -> marked(After, Node, add(breaks, 1, S)).

counted(After, N, S) -> marked(After, N, add(gaps, 1, add(lost, N, S))).

%% Those from before the last message of each living publisher are of no use, but nobody tells who
%% lives.
marked(After, Size, #{marks := Marks} = S) ->
    S#{marks := lists:sublist([{After, Size} | Marks], ?MARKS)}.

crashed(S0) ->
    #{last := Last} = S = noticed(S0),
    Loose = maps:map(fun(_, {N, _, At}) -> {N, loose, At} end, Last),
    add(crashes, 1, S#{next := any, last := Loose, marks := [], conflated := none}).

%% Who pulls may have gone beyond such a gap before it reads of it.
noticed(#{sub := Sub} = S) ->
    receive {gap, Sub, {What, N, After}} -> noticed(unnumbered(What, N, After, S))
    after 0 -> S
    end.

add(Key, N, S) -> maps:update_with(Key, fun(Old) -> Old + N end, S).

wrong(Why, #{errors := Errors} = S) when length(Errors) < ?ERRORS -> S#{errors := Errors ++ [Why]};
wrong(_, S) -> S.

reported(From, Ref, S0) ->
    S = noticed(S0),
    From ! {Ref, maps:with([count, crashes, thrown_out, gaps, breaks, holes, lost, errors, last,
                            filter, opts], S)},
    S.

%% What it got so far, and what was wrong with that.
-spec report(pid()) -> map().
report(Pid) -> ask(Pid, report).

%% From now on done at once.
-spec hurry(pid()) -> ok.
hurry(Pid) -> ask(Pid, hurry).

%% Unsubscribes, and subscribes anew.
-spec again(pid()) -> ok.
again(Pid) -> ask(Pid, again).

%% For policy conflate: a message replaces the one before of the same publisher.
-spec key(term()) -> term().
key({m, Id, _, _}) -> Id.

%% The inside

%% Kills one lane, and waits until there is another.
-spec kill_lane(pos_integer()) -> ok.
kill_lane(Nth) ->
    Pids = lanes(),
    Pid = lists:nth(1 + Nth rem length(Pids), Pids),
    exit(Pid, kill),
    real_os:until(fun() -> false = lists:member(Pid, lanes()) end),
    ok.

lanes() ->
    tuple_to_list(element(2, persistent_term:get({?APP, lanes}))).

%% Kills one lane of the router to another node, if there are any.
-spec kill_route(node(), pos_integer()) -> ok.
kill_route(Node, Nth) ->
    case persistent_term:get({erlane_router, Node}, none) of
        none -> ok;
        Peer ->
            Lanes = tuple_to_list(element(3, Peer)),
            exit(lists:nth(1 + Nth rem length(Lanes), Lanes), kill),
            ok
    end.

%% Does this node know that other one to run the application?
-spec knows(node()) -> boolean().
knows(Node) -> lists:member(Node, erlane_fanout_remote:nodes()).

%% Tables of the application that have rows, though nobody subscribes any more; but for those of
%% retained messages, of pg, where a node is a member as long as the application runs, and of the
%% links of other nodes.
-spec left() -> #{atom() => pos_integer()}.
left() ->
    Tables = [T || T <- ets:all(), is_atom(T), lists:prefix("erlane_fanout", atom_to_list(T))],
    maps:from_list([{T, N} || T <- Tables, N <- [ets:info(T, size)], N > 0,
                              not lists:member(T, [erlane_fanout, erlane_fanout_retain,
                                                   erlane_fanout_links])]).

%% The nodes that publishers here know to have subscriptions to this filter.
-spec others(binary()) -> [node()].
others(Filter) ->
    case ets:lookup(erlane_fanout_routes, Filter) of
        [Route] -> lists:sort([Node || {Node, _, _} <- element(tuple_size(Route), Route)]);
        [] -> []
    end.

%% How many nodes are members of this filter's groups, as pg here has heard.
-spec members(binary()) -> non_neg_integer().
members(Filter) ->
    length([Pid || {filter, F, _} = Group <- pg:which_groups(?APP), F =:= Filter,
                   Pid <- pg:get_members(?APP, Group)]).

%% Bytes of this node that are not garbage.
-spec memory() -> non_neg_integer().
memory() ->
    [erlang:garbage_collect(Pid) || Pid <- processes()],
    erlang:memory(total).
