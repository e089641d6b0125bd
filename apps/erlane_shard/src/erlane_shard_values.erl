%% SPDX-License-Identifier: Apache-2.0
%% @doc The logic of a set without a module of its own: a value for each key.
-module(erlane_shard_values).
-behaviour(erlane_shard).

-export([init/1, handle_call/3, handle_cast/3]).

-export_type([op/0, update/0, values/0]).

-type op() :: get | {put, term()} | delete | {add, integer()} | {update, update()}.
-type update() :: fun((undefined | {ok, Value :: term()}) ->
                             {reply, Reply :: term(), Value :: term()}
                           | {keep, Reply :: term()} | {delete, Reply :: term()}).
-type values() :: #{Key :: term() => Value :: term()}.

%% @doc A slot is a map of its keys.
-spec init([]) -> values().
init([]) -> #{}.

%% @doc An operation that somebody waits for.
-spec handle_call(op(), Key :: term(), values()) -> {reply, term(), values()}.
handle_call(get, Key, Values) ->
    {reply, find(Key, Values), Values};
handle_call({add, N}, Key, Values) ->
    Sum = case Values of
              #{Key := V} when is_integer(V) -> V + N;
              #{Key := V} -> error({not_a_counter, V});
              _ -> N
          end,
    {reply, Sum, Values#{Key => Sum}};
handle_call({put, V}, Key, Values) ->
    {reply, ok, Values#{Key => V}};
handle_call(delete, Key, Values) ->
    {reply, ok, maps:remove(Key, Values)};
handle_call({update, Fun}, Key, Values) ->
    case Fun(find(Key, Values)) of
        {reply, Reply, V} -> {reply, Reply, Values#{Key => V}};
        {keep, Reply} -> {reply, Reply, Values};
        {delete, Reply} -> {reply, Reply, maps:remove(Key, Values)};
        Other -> error({bad_return, Other})
    end.

%% @doc The same, and nobody waits.
-spec handle_cast(op(), Key :: term(), values()) -> {noreply, values()}.
handle_cast(Op, Key, Values) ->
    {reply, _, New} = handle_call(Op, Key, Values),
    {noreply, New}.

find(Key, Values) ->
    case Values of
        #{Key := V} -> {ok, V};
        _ -> undefined
    end.
