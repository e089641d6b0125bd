%% SPDX-License-Identifier: Apache-2.0
%% @doc What other nodes publish comes to one of a few processes, the same for all messages of a
%% publisher, which hands it to the lanes. It never waits for a lane, so that its own mailbox
%% stays short: what a full lane has no room for is dropped.
%%
%% How many were dropped the lane's subscribers are told. The count waits here until the lane has
%% room, or until there is room for the next message, which it goes before: so it has its place
%% in the order of this intake, and a lane that is full gets no mail about that.
-module(erlane_fanout_intake).

-export([start_link/1, children/0, name/1, entry/3]).

-include("erlane_fanout.hrl").

%% The language; what is of another one is left alone.
-define(VERSION, 2).
-define(NAMES, {erlane_fanout_intake_1, erlane_fanout_intake_2, erlane_fanout_intake_3,
                erlane_fanout_intake_4}).

%% Of a lane that was full: the process, what it answers to, and how many it had no room for.
-record(full, {lane :: pid(), ref :: reference(), counts = #{} :: counts()}).
-type counts() :: #{{erlane_fanout_topic:filter(), erlane_fanout_inbox:since()} => pos_integer()}.
-type full() :: #{LaneNumber :: pos_integer() => #full{}}.


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

%% @doc What goes there, to a node that is known by this number.
-spec entry(pos_integer(), term(), term()) -> tuple().
entry(Number, Topics, Message) -> {erlane_fanout, ?VERSION, Number, Topics, Message}.

init(Name) ->
    true = register(Name, self()),
    proc_lib:init_ack({ok, self()}),
    loop(#{}).

-spec loop(full()) -> no_return().
loop(Full) ->
    receive
        {erlane_fanout, ?VERSION, Number, Topics, Message} when is_integer(Number) ->
            Lanes = erlane_fanout_lanes:get(),
            loop(lists:foldl(fun(Entry, Acc) -> hand(Entry, Lanes, Acc) end, Full,
                             entries(Number, Topics, Message, Lanes)));
        {Ref, go} when is_reference(Ref) ->
            loop(maps:fold(fun(I, F, Acc) -> room(Ref, I, F, Acc) end, #{}, Full));
        {'DOWN', Ref, process, _, _} ->
            %% Its subscribers are told of a crash.
            loop(maps:filter(fun(_, F) -> F#full.ref =/= Ref end, Full));
        _ ->
            loop(Full)
    end.

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
