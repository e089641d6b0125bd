%% SPDX-License-Identifier: Apache-2.0
%% @doc What happens in the process that sends to a shard.
%%
%% A sender has a credit with each shard: the messages it may still send before it has to wait
%% until the shard has come so far. It is an entry of its own process dictionary, so nothing is
%% shared, and nothing is left when it ends. Credits have new names in each epoch; one that is not
%% there leads to the way on which a sender learns that slots have moved.
-module(erlane_shard_send).

-include("erlane_shard.hrl").

-export([set/1, add/3, cast/3, call/4, batch/2, sync/1]).

%% @doc The set of this name; raises `{not_started, Name}'.
-spec set(atom()) -> #set{}.
set(Name) ->
    case persistent_term:get({erlane_shard, Name}, none) of
        none -> error({not_started, Name});
        Set -> Set
    end.

%% @doc The cheapest message there is.
-spec add(#set{}, Key :: term(), integer()) -> ok.
add(#set{slots = Slots} = Set, Key, N) ->
    {Pid, Credit, Slot} = element(erlane_shard_map:slot(Key), Slots),
    case get(Credit) of
        Left when is_integer(Left), Left > 0 -> _ = put(Credit, Left - 1), ok;
        Left -> ok = wait(Set, Pid, Credit, Left)
    end,
    Pid ! {add, Slot, Key, N},
    ok.

%% @doc A request that has no answer.
-spec cast(#set{}, Key :: term(), term()) -> ok.
cast(#set{slots = Slots} = Set, Key, Request) ->
    {Pid, Credit, Slot} = element(erlane_shard_map:slot(Key), Slots),
    ok = charge(Set, Pid, Credit),
    Pid ! {cast, Slot, Key, Request},
    ok.

%% @doc A request and its answer. What it raises in the shard is raised here.
-spec call(#set{}, Key :: term(), term(), timeout()) -> term().
call(#set{slots = Slots, name = Name} = Set, Key, Request, Timeout) ->
    {Pid, Credit, Slot} = element(erlane_shard_map:slot(Key), Slots),
    Pid =/= self() orelse exit({calling_self, {erlane_shard, call, [Name, Key, Request]}}),
    %% One that waits for its answer needs no credit, but has to know the epoch.
    get(Credit) =/= undefined orelse wait(Set, Pid, Credit, undefined),
    Ref = erlang:monitor(process, Pid, [{alias, reply_demonitor}]),
    Pid ! {call, Slot, Key, Request, Ref},
    receive
        {Ref, Answer} -> answer(Answer, Set, Key, Request);
        {'DOWN', Ref, _, _, Reason} ->
            exit({Reason, {erlane_shard, call, [Name, Key, Request]}})
    after Timeout ->
        true = erlang:demonitor(Ref, [flush]),
        receive
            {Ref, Answer} -> answer(Answer, Set, Key, Request)
        after 0 ->
            exit({timeout, {erlane_shard, call, [Name, Key, Request]}})
        end
    end.

answer({reply, Reply}, _, _, _) -> Reply;
answer({raised, exit, Reason, _}, #set{name = Name}, Key, Request) ->
    exit({Reason, {erlane_shard, call, [Name, Key, Request]}});
answer({raised, Class, Reason, Stack}, _, _, _) ->
    erlang:raise(Class, Reason, Stack).

%% @doc Requests without answers, one message to each shard they are for; those for one key are
%% done in the order of the list.
-spec batch(#set{}, [{Key :: term(), Request :: term()}]) -> ok.
batch(#set{slots = Slots} = Set, Requests) ->
    Groups = lists:foldr(
               fun({Key, Request}, Acc) ->
                       {Pid, Credit, Slot} = element(erlane_shard_map:slot(Key), Slots),
                       Entry = {Slot, Key, Request},
                       case Acc of
                           #{Pid := {C, Entries}} -> Acc#{Pid := {C, [Entry | Entries]}};
                           _ -> Acc#{Pid => {Credit, [Entry]}}
                       end
               end, #{}, Requests),
    maps:foreach(fun(Pid, {Credit, Entries}) ->
                         ok = charge(Set, Pid, Credit),
                         Pid ! {batch, Entries}
                 end, Groups).

%% @doc Waits until everything that this process has sent to the set is done. In a shard of the set
%% itself it waits for nothing.
-spec sync(#set{}) -> ok.
sync(#set{name = Name, shards = Shards} = Set) ->
    case get('$erlane_shard') of
        Name -> ok;
        _ ->
            ok = epoch(Set),
            sync([Pid || {Pid, Credit} <- Shards, get(Credit) =/= undefined], [])
    end.

charge(Set, Pid, Credit) ->
    case get(Credit) of
        Left when is_integer(Left), Left > 0 -> _ = put(Credit, Left - 1), ok;
        Left -> wait(Set, Pid, Credit, Left)
    end.

%% A shard that sends to its own set waits for nobody: two could wait for each other.
wait(#set{bound = Bound, name = Name} = Set, Pid, Credit, Left) ->
    case {get('$erlane_shard'), Left} of
        {Name, _} -> ok;
        {_, undefined} -> ok = epoch(Set);
        {_, 0} -> ok = sync([Pid], [])
    end,
    _ = put(Credit, Bound - 1),
    ok.

%% What this process sent before the slots moved may still be passed on from shard to shard, and
%% the next message must not overtake it.
epoch(#set{name = Name, epoch = Epoch, shards = Shards}) ->
    case get({erlane_shard, Name}) of
        {Epoch, _} -> ok;
        undefined -> ok;
        {_, Before} -> ok = sync([Pid || {Pid, Credit} <- Before,
                                         erase(Credit) =/= undefined], [])
    end,
    _ = put({erlane_shard, Name}, {Epoch, Shards}),
    ok.

%% Waits until these shards have done what this process sent them, or have ended.
sync([Pid | Pids], Refs) ->
    Ref = erlang:monitor(process, Pid, [{alias, reply_demonitor}]),
    Pid ! {sync, Ref},
    sync(Pids, [Ref | Refs]);
sync([], Refs) ->
    lists:foreach(fun(Ref) ->
                          receive
                              {Ref, synced} -> ok;
                              {'DOWN', Ref, _, _, _} -> ok
                          end
                  end, Refs).
