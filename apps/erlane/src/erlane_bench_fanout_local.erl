%% SPDX-License-Identifier: Apache-2.0
%% @doc Contestants of the scenarios `fanout' and `fanout-pull': a driver, which publishes, and
%% its receivers, all in this VM.
%%
%% All receivers of a contestant have the topic `hot'. Where there are `topics', each group of
%% `each' receivers has a topic of its own as well: those are the cold ones.
%%
%% A receiver counts each message down in the cell of its thousand; the last of a thousand counts
%% the thousands down, and the last of those tells the driver. So the end of a round costs no
%% message for each delivery, and no cell is written by all. Hot and cold ones are counted apart.
-module(erlane_bench_fanout_local).

-export([start/2, round/2, stop/1]).

-export_type([contestant/0, spec/0, load/0]).

-type spec() :: #{count := pos_integer(), topics := non_neg_integer(), each := pos_integer(),
                  payload := non_neg_integer()}.
-type contestant() :: #{name := string(), driver := pid()}.
%% So many messages on the hot topic, back to back; or one on each topic, the hot one first.
-type load() :: {burst, pos_integer()} | topics.

-define(GROUP, 1000).
%% Cells that different schedulers write are apart: a line of the cache is 64 bytes.
-define(APART, 8).
-define(START_MS, 120000).
-define(ROUND_MS, 60000).
%% Nobody here is slow, and all that a round publishes is kept until it was taken.
-define(LIMIT, 1073741824).
-define(TAKE, 1000).

%% @doc Starts a contestant and waits until all its receivers can be reached.
-spec start(Name :: string(), spec()) ->
          {ok, #{contestant := contestant()}} | {unavailable | failed, binary()}.
start(Name, Spec) ->
    case way(Name) of
        Ours when Ours =:= push; Ours =:= unbounded; Ours =:= pull; Ours =:= frames ->
            case application:ensure_all_started(erlane_fanout) of
                {ok, _} -> drive(Name, Ours, Spec);
                {error, Why} -> {unavailable, text("erlane_fanout: ~0P", [Why, 8])}
            end;
        Way ->
            drive(Name, Way, Spec)
    end.

way("loop") -> loop;
way("pg") -> pg;
way("helpers") -> helpers;
way("fanout") -> push;
way("unbounded") -> unbounded;
way("pull") -> pull;
way("frames") -> frames.

drive(Name, Way, Spec) ->
    Self = self(),
    {Driver, Monitor} = spawn_monitor(fun() -> driver(Self, Spec#{way => Way}) end),
    case answer(Driver, Monitor, ?START_MS) of
        {ok, ready} -> {ok, #{contestant => #{name => Name, driver => Driver}}};
        {error, Why} -> {failed, Why}
    end.

%% @doc One load, in the driver: microseconds until the last receiver had its last message
%% (`last_us'), those that the publisher spent (`publisher_us'), and deliveries a second.
-spec round(contestant(), load()) -> {ok, #{atom() => number()}} | {error, binary()}.
round(#{driver := Driver}, Load) ->
    Monitor = erlang:monitor(process, Driver),
    Driver ! {load, self(), Load},
    answer(Driver, Monitor, ?ROUND_MS).

answer(Driver, Monitor, Ms) ->
    receive
        {Driver, Result} ->
            erlang:demonitor(Monitor, [flush]),
            {ok, Result};
        {'DOWN', Monitor, process, Driver, Why} ->
            {error, text("~0P", [Why, 12])}
    after Ms ->
        erlang:demonitor(Monitor, [flush]),
        {error, text("no end after ~b ms", [Ms])}
    end.

%% @doc Ends a contestant with all its receivers.
-spec stop(contestant()) -> ok.
stop(#{driver := Driver}) ->
    Monitor = erlang:monitor(process, Driver),
    exit(Driver, kill),
    receive {'DOWN', Monitor, process, Driver, _} -> ok end.

%%
%% The driver
%%

driver(Owner, #{way := Way, count := Count} = Spec) ->
    _ = erlang:monitor(process, Owner),
    Scope = list_to_atom("erlane_bench_" ++ pid_to_list(self())),
    _ = [{ok, _} = pg:start_link(Scope) || Way =:= pg],
    Driver = self(),
    Latches = {latch(Count), latch(Count)},
    Context = Spec#{latches => Latches, driver => Driver, scope => Scope},
    Pids = [spawn_link(fun() -> receiver(I, Context) end) || I <- lists:seq(1, Count)],
    lists:foreach(fun(_) -> receive ready -> ok end end, Pids),
    _ = [ok = grouped(Pids, Context) || Way =:= pg],
    Publish = publisher(Way, Pids, Context),
    true = erlang:garbage_collect(),
    Owner ! {self(), ready},
    driving(Publish, Context).

driving(Publish, Context) ->
    receive
        {load, From, Load} ->
            From ! {self(), load(Load, Publish, Context)},
            driving(Publish, Context);
        {'DOWN', _, process, _, _} ->
            %% Whoever runs the benchmark ends it, with all that belongs to it.
            exit(shutdown)
    end.

load({burst, N}, Publish, #{count := Count, latches := {Hot, _}} = Context) ->
    Message = message(hot, Context),
    ok = arm(Hot, Count, N),
    Before = erlang:monotonic_time(),
    ok = times(N, Publish, hot, Message),
    Published = erlang:monotonic_time(),
    receive {latched, hot} -> ok end,
    Last = erlang:monotonic_time() - Before,
    #{last_us => micros(Last), publisher_us => micros(Published - Before),
      million_s => N * Count / micros(Last)};
load(topics, Publish, #{count := Count, topics := Topics, each := Each,
                        latches := {Hot, Cold}} = Context) ->
    ok = arm(Hot, Count, 1),
    ok = arm(Cold, Topics * Each, 1),
    {HotMessage, ColdMessage} = {message(hot, Context), message(cold, Context)},
    Before = erlang:monotonic_time(),
    ok = Publish(hot, HotMessage),
    ok = each_topic(1, Topics, Publish, ColdMessage),
    Published = erlang:monotonic_time(),
    receive {latched, cold} -> ok end,
    ColdEnd = erlang:monotonic_time(),
    receive {latched, hot} -> ok end,
    Last = erlang:monotonic_time() - Before,
    #{last_us => micros(Last), publisher_us => micros(Published - Before),
      cold_us => micros(ColdEnd - Before),
      million_s => (Count + Topics * Each) / micros(Last)}.

times(0, _, _, _) -> ok;
times(N, Publish, Topic, Message) ->
    ok = Publish(Topic, Message),
    times(N - 1, Publish, Topic, Message).

each_topic(I, Topics, _, _) when I > Topics -> ok;
each_topic(I, Topics, Publish, Message) ->
    ok = Publish(I, Message),
    each_topic(I + 1, Topics, Publish, Message).

message(_, #{way := frames, payload := Size}) -> binary:copy(<<"p">>, max(1, Size));
message(Kind, #{payload := Size}) -> {Kind, binary:copy(<<"p">>, Size)}.

%% How a message goes to the receivers of a topic.
publisher(loop, Pids, Context) ->
    Cold = cold(Pids, Context),
    fun(hot, Message) -> each(Pids, Message);
       (Topic, Message) -> each(element(Topic, Cold), Message)
    end;
publisher(pg, _, #{scope := Scope}) ->
    fun(Topic, Message) -> each(pg:get_local_members(Scope, Topic), Message) end;
publisher(helpers, Pids, Context) ->
    Cold = cold(Pids, Context),
    N = erlang:system_info(schedulers_online),
    Helpers = [begin
                   Mine = [P || {I, P} <- numbered(Pids), I rem N =:= K],
                   MyCold = list_to_tuple([[P || {I, P} <- numbered(C), I rem N =:= K]
                                           || C <- tuple_to_list(Cold)]),
                   spawn_link(fun() -> helper(Mine, MyCold) end)
               end || K <- lists:seq(0, N - 1)],
    fun(Topic, Message) -> each(Helpers, {Topic, Message}) end;
publisher(_Ours, _, #{topics := Topics, scope := Scope}) ->
    Fanout = erlane_fanout,
    Hot = name(hot, Scope),
    Cold = list_to_tuple([name(T, Scope) || T <- lists:seq(1, Topics)]),
    fun(hot, Message) -> Fanout:publish_local(Hot, Message);
       (Topic, Message) -> Fanout:publish_local(element(Topic, Cold), Message)
    end.

%% All members of a group at once: one after the other each costs as much as there are before it.
grouped(Pids, #{scope := Scope} = Context) ->
    ok = pg:join(Scope, hot, Pids),
    Cold = tuple_to_list(cold(Pids, Context)),
    lists:foreach(fun({Topic, Members}) -> ok = pg:join(Scope, Topic, Members) end,
                  numbered(Cold)).

cold(Pids, #{topics := Topics, each := Each}) ->
    All = list_to_tuple(Pids),
    list_to_tuple([[element((T - 1) * Each + I, All) || I <- lists:seq(1, Each)]
                   || T <- lists:seq(1, Topics)]).

numbered(List) -> lists:zip(lists:seq(1, length(List)), List).

helper(Hot, Cold) ->
    receive
        {hot, Message} -> each(Hot, Message);
        {Topic, Message} -> each(element(Topic, Cold), Message)
    end,
    helper(Hot, Cold).

each([], _) -> ok;
each([Pid | Pids], Message) -> Pid ! Message, each(Pids, Message).

%% No two contestants have a topic together.
name(hot, Scope) -> <<(atom_to_binary(Scope))/binary, "/hot">>;
name(Topic, Scope) -> <<(atom_to_binary(Scope))/binary, "/", (integer_to_binary(Topic))/binary>>.

%%
%% Receivers
%%

receiver(I, #{way := Way, driver := Driver, latches := {Hot, Cold}} = Context) ->
    Topics = [hot | [T || T <- [(I - 1) div maps:get(each, Context) + 1],
                          T =< maps:get(topics, Context)]],
    Group = (I - 1) div ?GROUP + 1,
    Subs = [subscribed(Way, Topic, Context) || Topic <- Topics],
    Driver ! ready,
    receiving(Way, Subs, {{Hot, Group, Driver, hot}, {Cold, Group, Driver, cold}}).

subscribed(Way, _, _) when Way =:= loop; Way =:= pg; Way =:= helpers ->
    none;
subscribed(Way, Topic, #{scope := Scope}) ->
    Fanout = erlane_fanout,
    Opts = case Way of
               unbounded -> #{mode => push, limit => infinity};
               _ -> #{mode => Way, limit => ?LIMIT}
           end,
    {ok, Sub, _} = Fanout:subscribe(name(Topic, Scope), Opts),
    Sub.

-spec receiving(atom(), [term()], tuple()) -> no_return().
receiving(push, Subs, {Hot, Cold} = Latches) ->
    Fanout = erlane_fanout,
    receive
        {fan, Sub, Seq, [{hot, _} | _] = Messages} ->
            ok = Fanout:done(Sub, Seq),
            ok = down(Hot, length(Messages));
        {fan, Sub, Seq, [{cold, _} | _] = Messages} ->
            ok = Fanout:done(Sub, Seq),
            ok = down(Cold, length(Messages))
    end,
    receiving(push, Subs, Latches);
receiving(unbounded, Subs, {Hot, Cold} = Latches) ->
    receive
        {fan, _, _, [{hot, _} | _] = Messages} -> ok = down(Hot, length(Messages));
        {fan, _, _, [{cold, _} | _] = Messages} -> ok = down(Cold, length(Messages))
    end,
    receiving(unbounded, Subs, Latches);
receiving(Way, [Sub] = Subs, {Hot, _} = Latches) when Way =:= pull; Way =:= frames ->
    Fanout = erlane_fanout,
    case take(Way, Fanout, Sub) of
        0 -> receive {fan, Sub, ready} -> ok end;
        N -> ok = down(Hot, N)
    end,
    receiving(Way, Subs, Latches);
receiving(Way, Subs, {Hot, Cold} = Latches) ->
    receive
        {hot, _} -> ok = down(Hot, 1);
        {cold, _} -> ok = down(Cold, 1)
    end,
    receiving(Way, Subs, Latches).

%% Terms are looked at; of frames only their number is.
take(pull, Fanout, Sub) ->
    case Fanout:take(Sub, ?TAKE) of
        {ok, _, Messages} -> looked_at(Messages, 0);
        empty -> 0
    end;
take(frames, Fanout, Sub) ->
    case Fanout:take_frames(Sub) of
        {ok, _, N, Frames} when byte_size(Frames) > N -> N;
        empty -> 0
    end.

looked_at([], N) -> N;
looked_at([{hot, Payload} | Messages], N) when is_binary(Payload) -> looked_at(Messages, N + 1).

%%
%% Latches: cells of the thousands, and before them that of the whole
%%

latch(Count) -> atomics:new((groups(Count) + 1) * ?APART, []).

groups(Count) -> (Count - 1) div ?GROUP + 1.

arm(Latch, Count, Each) ->
    Groups = groups(Count),
    ok = atomics:put(Latch, 1, Groups),
    lists:foreach(fun(G) ->
                          Members = min(?GROUP, Count - (G - 1) * ?GROUP),
                          atomics:put(Latch, 1 + G * ?APART, Members * Each)
                  end, lists:seq(1, Groups)).

down({Latch, Group, Driver, Kind}, N) ->
    case atomics:sub_get(Latch, 1 + Group * ?APART, N) of
        0 ->
            case atomics:sub_get(Latch, 1, 1) of
                0 -> Driver ! {latched, Kind}, ok;
                _ -> ok
            end;
        Left when Left > 0 ->
            ok
    end.

micros(Native) -> erlang:convert_time_unit(Native, native, nanosecond) / 1000.

text(Format, Args) -> unicode:characters_to_binary(io_lib:format(Format, Args)).
