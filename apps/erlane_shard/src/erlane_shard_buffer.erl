%% SPDX-License-Identifier: Apache-2.0
%% @doc Sums what one process adds to counters before it leaves.
%%
%% ```
%% B0 = erlane_shard_buffer:new(hits, #{}),
%% B1 = erlane_shard_buffer:add(B0, Page, 1),
%% B2 = erlane_shard_buffer:flush(B1).
%% '''
%% A buffer is a term of its process. It leaves after `max_adds', or when its process has done what
%% waited for it: with the first addition the process sends itself a message, which comes after all
%% that is in the mailbox already, and hands it to {@link info/2}. With `max_age' that message
%% comes so many milliseconds later. What is in the buffer of a process that ends is lost with it.
-module(erlane_shard_buffer).

-export([new/2, add/3, flush/1, info/2]).

-export_type([buffer/0, options/0]).

-record(rest, {name :: atom(),
               ref :: reference(),
               max :: pos_integer(),
               age :: non_neg_integer() | infinity,
               asked = false :: boolean()}).

%% The sum of the key that came last, how many more may come, the sums of other keys. A process that
%% adds to one key over and over makes six words each time.
-opaque buffer() :: {Last :: term(), integer(), Left :: integer(), #{term() => integer()},
                     #rest{}}.
-type options() :: #{max_adds => pos_integer(), max_age => non_neg_integer() | infinity}.

-define(NO_KEY, '$erlane_shard_none').

%% @doc An empty buffer for the set of this name. `max_adds': additions after which it leaves, 1000;
%% `max_age': milliseconds after which it asks to be flushed, 0 for as soon as nothing more waits,
%% or `infinity' for never. Raises `{Key, unknown_option | {badarg, Value}}'.
-spec new(Name :: atom(), options()) -> buffer().
new(Name, Options) when is_atom(Name), is_map(Options) ->
    _ = maps:foreach(fun check/2, Options),
    #{max_adds := Max, max_age := Age} =
        maps:merge(#{max_adds => 1000, max_age => 0}, Options),
    {?NO_KEY, 0, 0, #{}, #rest{name = Name, ref = make_ref(), max = Max, age = Age}}.

check(max_adds, N) when is_integer(N), N >= 1, N =< 1000000 -> ok;
check(max_age, infinity) -> ok;
check(max_age, N) when is_integer(N), N >= 0, N =< 3600000 -> ok;
check(Key, Value) when Key =:= max_adds; Key =:= max_age -> error({Key, {badarg, Value}});
check(Key, _) -> error({Key, unknown_option}).

%% @doc Adds. Sends what is there when the buffer is full.
-spec add(buffer(), Key :: term(), integer()) -> buffer().
add({Key, Sum, Left, Sums, Rest}, Key, N) when Left > 0, is_integer(N) ->
    {Key, Sum + N, Left - 1, Sums, Rest};
add({Last, Sum, Left, Sums, Rest}, Key, N) when Left > 0, is_integer(N) ->
    {Key, N, Left - 1, sum(Last, Sum, Sums), Rest};
add({?NO_KEY, 0, 0, Sums, #rest{max = Max} = Rest}, Key, N) when is_integer(N) ->
    {Key, N, Max - 1, Sums, ask(Rest)};
add(Buffer, Key, N) when is_integer(N) ->
    add(flush(Buffer), Key, N).

sum(Key, Sum, Sums) ->
    case Sums of
        #{Key := S} -> Sums#{Key := S + Sum};
        _ -> Sums#{Key => Sum}
    end.

%% At most one message is under way, also to a process that never looks.
ask(#rest{asked = true} = Rest) -> Rest;
ask(#rest{age = infinity} = Rest) -> Rest;
ask(#rest{age = 0, ref = Ref} = Rest) ->
    self() ! {?MODULE, Ref},
    Rest#rest{asked = true};
ask(#rest{age = Age, ref = Ref} = Rest) ->
    _ = erlang:send_after(Age, self(), {?MODULE, Ref}),
    Rest#rest{asked = true}.

%% @doc Sends what is there: one message to each shard that it is for. Raises `{not_started, Name}'
%% if there is no such set.
-spec flush(buffer()) -> buffer().
flush({?NO_KEY, _, _, _, _} = Buffer) -> Buffer;
flush({Last, Sum, _, Sums, #rest{name = Name} = Rest}) ->
    ok = erlane_shard:batch(Name, [{Key, {add, N}}
                                   || {Key, N} <- maps:to_list(sum(Last, Sum, Sums))]),
    {?NO_KEY, 0, 0, #{}, Rest}.

%% @doc What to do with each message that the process does not know: if it is that of this buffer,
%% `{ok, Flushed}'.
-spec info(Message :: term(), buffer()) -> {ok, buffer()} | unknown.
info({?MODULE, Ref}, {_, _, _, _, #rest{ref = Ref}} = Buffer) ->
    {Last, Sum, Left, Sums, Rest} = flush(Buffer),
    {ok, {Last, Sum, Left, Sums, Rest#rest{asked = false}}};
info(_, _) ->
    unknown.
