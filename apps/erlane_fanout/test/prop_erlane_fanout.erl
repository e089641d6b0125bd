%% SPDX-License-Identifier: Apache-2.0
%% Properties of the fan-out: pure parts, and whole runs against a model. The application runs.
-module(prop_erlane_fanout).

-export([prop_topics/0, prop_routes/0, prop_policy/0, prop_gap/0, prop_lifecycle/0]).
-export([reader/3]).

-include_lib("proper/include/proper.hrl").

%% The old proper of some systems cannot tell of an exception.
-define(SAFE(Body), try Body catch C:R:S -> io:format("~P~n", [{C, R, S}, 60]), false end).

%% A filter matches as the definition says, level by level.
prop_topics() ->
    ?FORALL({Filter, Topic}, {filter(), topic()},
            erlane_fanout_topic:matches(Filter, Topic)
            =:= (Filter =:= Topic orelse defined(split(Filter), split(Topic), first))).

split(Topic) -> string:split(binary_to_list(Topic), "/", all).

defined(["#"], [T | _], first) -> hd(T ++ "x") =/= $$;
defined(["#"], _, _) -> true;
defined(["+" | F], [T | Ts], first) -> hd(T ++ "x") =/= $$ andalso defined(F, Ts, later);
defined(["+" | F], [_ | Ts], _) -> defined(F, Ts, later);
defined([L | F], [L | Ts], _) -> defined(F, Ts, later);
defined([], [], _) -> true;
defined(_, _, _) -> false.

level() -> elements([<<>>, <<"a">>, <<"b">>, <<"$s">>]).
topic() -> ?LET(Ls, non_empty(list(level())), join(Ls)).
filter() ->
    ?LET({Ls, End}, {non_empty(list(oneof([level(), <<"+">>]))), oneof([[], [<<"#">>]])},
         join(Ls ++ End)).
join(Levels) -> iolist_to_binary(lists:join($/, Levels)).

%% What the tables say is what the definition says, whoever comes and goes.
prop_routes() ->
    ?FORALL({Filters, Gone, Topics}, {list(filter()), list(filter()), list(topic())},
            ?SAFE(begin
                Subs = [{F, element(2, {ok, _, _} = erlane_fanout:subscribe(F))}
                        || F <- Filters ++ Gone],
                [ok = erlane_fanout:unsubscribe(S) || {_, S} <- lists:nthtail(length(Filters),
                                                                              Subs)],
                Counts = [{T, erlane_fanout:count(T)} || T <- Topics],
                Want = [{T, length([F || F <- Filters, erlane_fanout_topic:matches(F, T)])}
                        || T <- Topics],
                [ok = erlane_fanout:unsubscribe(S) || {_, S} <- Subs],
                ?WHENFAIL(io:format("~p~n~p~n", [Counts, Want]),
                          Counts =:= Want andalso empty())
            end)).

%% Nothing is left in any table.
empty() ->
    [] =:= [{T, Rows} || T <- [erlane_fanout_routes, erlane_fanout_trie, erlane_fanout_subs,
                               erlane_fanout_counts, erlane_fanout_ring],
                         Rows <- [ets:tab2list(T)], Rows =/= []].

%% A part follows on what was there, without a hole, and is within the limit.
prop_policy() ->
    ?FORALL({Policy, Limit, Sizes, Missing, Since},
            {elements([drop_oldest, drop_newest, block, conflate]), range(1, 300),
             list(range(1, 100)), range(0, 5), range(1, 10)},
            begin
                %% Kept are the numbers Missing + 1 to Head, with their number as message.
                Head = Missing + length(Sizes),
                Next = min(Since, Head + 1),
                Kept = lists:reverse(lists:zip(Sizes, seq(Missing + 1, Head))),
                Part = case Policy of
                           conflate ->
                               Latest = [{N, N} || {_, N} <- Kept, N rem 3 =:= 0],
                               erlane_fanout_policy:catch_up({conflate, fun(M) -> M end}, Limit,
                                                             Next, Head, Latest);
                           _ -> erlane_fanout_policy:catch_up(Policy, Limit, Next, Head, Kept)
                       end,
                ?WHENFAIL(io:format("next ~p head ~p kept ~p: ~p~n", [Next, Head, Kept, Part]),
                          part(Policy, Limit, Next, Head, Kept, Part))
            end).

seq(From, To) when From > To -> [];
seq(From, To) -> lists:seq(From, To).

part(Policy, Limit, Next, Head, Kept, {Gap, Messages, Last}) ->
    Lost = case Gap of none -> []; {From, To} -> seq(From, To) end,
    Bytes = lists:sum([B || {B, N} <- Kept, lists:member(N, Messages)]),
    Whole = Lost ++ seq(Last - length(Messages) + 1, Last) =:= seq(Next, Last),
    Whole andalso
        case Policy of
            conflate -> Messages =:= [N || {_, N} <- lists:reverse(Kept), N >= Next,
                                           N rem 3 =:= 0];
            drop_newest -> Messages =:= [] andalso Last =:= Head;
            _ ->
                Messages =:= seq(Last - length(Messages) + 1, Last) andalso
                    (Bytes =< Limit orelse length(Messages) =:= 1) andalso
                    (Policy =:= block orelse Last =:= Head)
        end.

%% Runs: subscribers of every kind with tight limits, which are slow at random. What each got and
%% what it was told to have lost is the whole stream, in order and once; a publisher's messages
%% are in its order. Without a limit that matters nothing is lost.
prop_gap() ->
    ?FORALL({Specs, Sizes, Seed}, {non_empty(list(spec())), non_empty(list(range(0, 200))), int()},
            ?FORALL(Bursts, range(1, 40),
            ?SAFE(begin
                Topic = {gap, make_ref()},
                Self = self(),
                Readers = [spawn_link(?MODULE, reader, [Self, Topic, {Spec, Seed + I}])
                           || {I, Spec} <- lists:zip(lists:seq(1, length(Specs)), Specs)],
                Starts = [receive {Pid, ready, Start} -> Start end || Pid <- Readers],
                Total = publish(Topic, Sizes, Bursts, 1),
                [Pid ! {until, S + Total} || {Pid, S} <- lists:zip(Readers, Starts)],
                Got = [receive {Pid, got, What} -> What after 20000 -> exit({stuck, Spec}) end
                       || {Pid, Spec} <- lists:zip(Readers, Specs)],
                Judged = [judge(Spec, Start, Total, G)
                          || {Spec, Start, G} <- lists:zip3(Specs, Starts, Got)],
                ?WHENFAIL(io:format("~p~n~P~n~p~n", [Specs, Got, 100, Judged]),
                          lists:all(fun(J) -> J =:= ok end, Judged))
            end))).

spec() ->
    ?LET({Mode, Policy, Limit}, {elements([push, pull, frames]),
                                 elements([drop_oldest, drop_newest, conflate, block]),
                                 elements([100, 500, 3000, 1000000])},
         case Mode =/= push andalso (Policy =:= drop_newest orelse Policy =:= conflate) of
             true -> {Mode, drop_oldest, Limit};
             false -> {Mode, Policy, Limit}
         end).

publish(Topic, Sizes, Bursts, N0) ->
    lists:foldl(fun(_, N) ->
                        lists:foldl(fun(Size, I) ->
                                            ok = erlane_fanout:publish(
                                                   Topic, <<I:32, 0:Size/unit:8>>),
                                            I + 1
                                    end, N, Sizes)
                end, N0, lists:seq(1, Bursts)) - 1.

reader(Parent, Topic, {{Mode, Policy, Limit}, Seed}) ->
    _ = rand:seed(exsss, {1, 2, Seed}),
    Policy1 = case Policy of conflate -> {conflate, fun(<<I:32, _/binary>>) -> I rem 5 end};
                             _ -> Policy end,
    {ok, Sub, Start} = erlane_fanout:subscribe(Topic, #{mode => Mode, policy => Policy1,
                                                        limit => Limit}),
    Parent ! {self(), ready, Start},
    Got = read(Mode, Sub, Start, infinity, []),
    ok = erlane_fanout:unsubscribe(Sub),
    Parent ! {self(), got, lists:reverse(Got)}.

%% Until all numbers have come, one way or the other.
read(_, _, Last, Until, Got) when Last >= Until -> Got;
read(push, Sub, Last, Until, Got) ->
    slow(),
    receive
        {until, N} -> read(push, Sub, Last, N, Got);
        {gap, Sub, From, To} -> read(push, Sub, To, Until, [{gap, From, To} | Got]);
        {fan, Sub, Seq, Ms} ->
            slow(),
            ok = erlane_fanout:done(Sub, Seq),
            read(push, Sub, Seq, Until, [{Seq, Ms} | Got])
    end;
read(Mode, Sub, Last, Until, Got) ->
    slow(),
    case take(Mode, Sub) of
        {ok, Seq, Ms} -> read(Mode, Sub, Seq, Until, [{Seq, Ms} | Got]);
        {gap, From, To} -> read(Mode, Sub, To, Until, [{gap, From, To} | Got]);
        empty ->
            receive
                {fan, Sub, ready} -> read(Mode, Sub, Last, Until, Got);
                {until, N} -> read(Mode, Sub, Last, N, Got)
            end
    end.

take(pull, Sub) -> erlane_fanout:take(Sub, rand:uniform(300));
take(frames, Sub) ->
    case erlane_fanout:take_frames(Sub) of
        {ok, Seq, N, Frames} ->
            Ms = [M || <<L:32, M:L/binary>> <= Frames],
            N = length(Ms),
            {ok, Seq, Ms};
        Other -> Other
    end.

slow() ->
    case rand:uniform(20) of
        1 -> receive after 1 -> ok end;
        N when N < 5 -> erlang:yield();
        _ -> ok
    end.

judge({_, Policy, Limit}, Start, Total, Got) ->
    {Last, Numbers, Lost} =
        lists:foldl(fun({gap, From, To}, {At, Ns, L}) when From =:= At + 1, To >= From ->
                            {To, Ns, L + To - From + 1};
                       ({Seq, Ms}, {At, Ns, L}) when Seq =:= At + length(Ms) ->
                            {Seq, Ns ++ [I || <<I:32, _/binary>> <- Ms], L};
                       (Odd, {At, _, _}) -> exit({hole, At, Odd})
                    end, {Start, [], 0}, Got),
    case {Last - Start, Numbers =:= lists:usort(Numbers), length(Numbers) + Lost} of
        {Total, true, Total} when Lost =:= 0 -> ok;
        {Total, true, Total} when Limit < 1000000, Policy =/= block -> ok;
        Other -> {Other, Lost, Total}
    end.

%% Processes that come, go and die in any order leave nothing.
prop_lifecycle() ->
    ?FORALL(Steps, list({range(1, 8), elements([subscribe, unsubscribe, die, publish, wild,
                                                 settle])}),
            begin
                Pids = lists:foldl(fun step/2, #{}, Steps),
                _ = [kill(Pid) || Pid <- maps:values(Pids)],
                until(fun empty/0, 500)
            end).

step({I, Kind}, Pids) ->
    Pid = case Pids of #{I := There} -> There; #{} -> spawn(fun() -> life([]) end) end,
    case Kind of
        die -> kill(Pid), maps:remove(I, Pids);
        publish -> ok = erlane_fanout:publish([<<"l/1">>, <<"l/2">>], I), Pids#{I => Pid};
        %% Those that are killed later are not always in the middle of something.
        settle ->
            Pid ! {settle, self()},
            receive {settled, Pid} -> Pids#{I => Pid} end;
        _ -> Pid ! {Kind, I}, Pids#{I => Pid}
    end.

kill(Pid) -> exit(Pid, kill).

life(Subs) ->
    receive
        {subscribe, I} ->
            {ok, Sub, _} = erlane_fanout:subscribe(<<"l/", (integer_to_binary(I rem 3))/binary>>),
            life([Sub | Subs]);
        {wild, I} ->
            Mode = case I rem 2 of 0 -> push; 1 -> pull end,
            {ok, Sub, _} = erlane_fanout:subscribe(<<"l/+">>, #{mode => Mode}),
            life([Sub | Subs]);
        {unsubscribe, _} ->
            _ = [ok = erlane_fanout:unsubscribe(Sub) || Sub <- Subs],
            life([]);
        {settle, From} ->
            From ! {settled, self()},
            life(Subs);
        _ -> life(Subs)
    end.

until(_, 0) -> false;
until(Fun, N) -> Fun() orelse receive after 10 -> until(Fun, N - 1) end.
