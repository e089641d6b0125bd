%% SPDX-License-Identifier: Apache-2.0
%% @doc What other nodes publish comes to one of a few processes, the same for all messages of a
%% publisher, which hands it to the lanes. It never waits for a lane, so that its own mailbox
%% stays short: what a full lane has no room for is dropped.
%%
%% How many were dropped the lane's subscribers are told. The count waits here until the lane has
%% room, or until there is room for the next message, which it goes before: so it has its place
%% in the order of this intake, and a lane that is full gets no mail about that.
%%
%% Where something of a node may be missing ({@link erlane_fanout_link}) it tells all lanes before
%% it hands on what comes behind that.
-module(erlane_fanout_intake).

-export([start_link/1, children/0, names/0, name/1, entry/4, link/1, lost/1]).

-include("erlane_fanout.hrl").

%% The language; what is of another one is left alone.
-define(VERSION, 3).
-define(NAMES, {erlane_fanout_intake_1, erlane_fanout_intake_2, erlane_fanout_intake_3,
                erlane_fanout_intake_4}).

%% Of a lane that was full: the process, what it answers to, and how many it had no room for.
-record(full, {lane :: pid(), ref :: reference(), counts = #{} :: counts()}).
-type counts() :: #{{erlane_fanout_topic:filter(), erlane_fanout_inbox:since()} => pos_integer()}.
-type full() :: #{LaneNumber :: pos_integer() => #full{}}.

-record(intake, {full = #{} :: full(), links :: erlane_fanout_link:links()}).

%% @doc Children for the supervisor.
-spec children() -> [supervisor:child_spec()].
children() ->
    [#{id => Name, start => {?MODULE, start_link, [Name]}} || Name <- tuple_to_list(?NAMES)].

-spec start_link(atom()) -> {ok, pid()}.
start_link(Name) ->
    proc_lib:start_link(erlang, apply, [fun() -> init(Name) end, []]).

%% @doc Where all that a process publishes goes.
-spec name(pid()) -> atom().
name(Pid) -> element(1 + erlang:phash2(Pid, tuple_size(?NAMES)), ?NAMES).

%% @doc All of them.
-spec names() -> [atom()].
names() -> tuple_to_list(?NAMES).

%% @doc What goes there, by this link to a node that is known by this number.
-spec entry(erlane_fanout_link:link(), pos_integer(), term(), term()) -> tuple().
entry(Link, Number, Topics, Message) -> {erlane_fanout, ?VERSION, Link, Number, Topics, Message}.

%% @doc From now on what goes there has this link.
-spec link(erlane_fanout_link:link()) -> tuple().
link(Link) -> {erlane_fanout, ?VERSION, Link}.

%% @doc Something that had this link, or an earlier one, was lost on the way.
-spec lost(erlane_fanout_link:link()) -> tuple().
lost(Link) -> {erlane_fanout, ?VERSION, lost, Link}.

init(Name) ->
    true = register(Name, self()),
    ok = net_kernel:monitor_nodes(true),
    proc_lib:init_ack({ok, self()}),
    {Nodes, Links} = erlane_fanout_link:after_crash(erlane_fanout_link:load(Name)),
    lists:foreach(fun missing/1, Nodes),
    loop(#intake{links = Links}).

-spec loop(#intake{}) -> no_return().
loop(#intake{full = Full, links = Links} = S) ->
    receive
        {erlane_fanout, ?VERSION, {Member, N} = Link, Number, Topics, Message}
          when is_pid(Member), is_integer(N), is_integer(Number) ->
            loop(entry(erlane_fanout_link:came(Link, Links), Number, Topics, Message, Member, S));
        {erlane_fanout, ?VERSION, {Member, N} = Link} when is_pid(Member), is_integer(N) ->
            loop(seen(erlane_fanout_link:came(Link, Links), node(Member), S));
        {erlane_fanout, ?VERSION, lost, {Member, N}} when is_pid(Member), is_integer(N) ->
            Node = node(Member),
            loop(seen({erlane_fanout_link:known(Node, Links), Links}, Node, S));
        {nodedown, Node} when is_atom(Node) ->
            loop(seen(erlane_fanout_link:down(Node, Links), Node, S));
        {erlane_router, stream, Node, Lane} when is_atom(Node), is_integer(Lane) ->
            loop(seen(erlane_fanout_link:stream(Node, Lane, Links), Node, S));
        {Ref, go} when is_reference(Ref) ->
            loop(S#intake{full = maps:fold(fun(I, F, Acc) -> room(Ref, I, F, Acc) end, #{}, Full)});
        {'DOWN', Ref, process, _, _} ->
            %% Its subscribers are told of a crash.
            loop(S#intake{full = maps:filter(fun(_, F) -> F#full.ref =/= Ref end, Full)});
        _ ->
            loop(S)
    end.

entry({drop, Links}, _, _, _, _, S) ->
    S#intake{links = Links};
entry(Came, Number, Topics, Message, Member, S0) ->
    #intake{full = Full} = S = seen(Came, node(Member), S0),
    Lanes = erlane_fanout_lanes:get(),
    S#intake{full = lists:foldl(fun(Entry, Acc) -> hand(Entry, Lanes, Acc) end, Full,
                                entries(Number, Topics, Message, Lanes))}.

seen({gap, Links}, Node, S) ->
    missing(Node),
    S#intake{links = Links};
seen({_, Links}, _, S) ->
    S#intake{links = Links}.

%% Not many, so a lane that is full gets these.
missing(Node) ->
    #lanes{pids = Pids} = erlane_fanout_lanes:get(),
    lists:foreach(fun(Lane) -> Lane ! {missing, Node} end, tuple_to_list(Pids)).

%% Other nodes may send anything.
entries(Number, Topics, Message, Lanes) ->
    try erlane_fanout_publish:entries(Number, Topics, Message, Lanes)
    catch error:_ -> []
    end.

hand({I, Entry, Charge}, #lanes{pids = Pids, stats = Stats} = Lanes, Full0) ->
    Lane = element(I, Pids),
    Full = same(I, Lane, Full0),
    case erlane_fanout_inbox:charge(Lanes, I, Charge) of
        ok ->
            Full1 = told(I, Full),
            Lane ! Entry,
            Full1;
        full ->
            atomics:add(element(I, Stats), ?S_REFUSED, 1),
            refused(I, Lane, Entry, Full)
    end.

%% There may be another lane by now, while this process has not yet heard of the end of its
%% predecessor.
same(I, Lane, Full) ->
    case Full of
        #{I := #full{lane = Other, ref = Ref}} when Other =/= Lane ->
            true = erlang:demonitor(Ref),
            maps:remove(I, Full);
        #{} -> Full
    end.

refused(I, Lane, {pub, Since, Filters, _, _}, Full) ->
    #full{counts = Counts} = F =
        case Full of
            #{I := There} -> There;
            #{} -> #full{lane = Lane, ref = erlane_fanout_inbox:ask(Lane, room)}
        end,
    Full#{I => F#full{counts = lists:foldl(fun(Filter, Acc) ->
                                                   maps:update_with({Filter, Since},
                                                                    fun(N) -> N + 1 end, 1, Acc)
                                           end, Counts, Filters)}}.

%% It answers once for all that was counted until then.
told(I, Full) ->
    case Full of
        #{I := #full{} = F} -> Full#{I := tell(F)};
        #{} -> Full
    end.

room(Ref, _, #full{ref = Ref} = F, Full) ->
    _ = tell(F),
    Full;
room(_, I, F, Full) -> Full#{I => F}.

tell(#full{counts = Counts} = F) when map_size(Counts) =:= 0 -> F;
tell(#full{lane = Lane, counts = Counts} = F) ->
    Lane ! {refused, Counts},
    F#full{counts = #{}}.
