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
               %% Of the memory for sums.
               size = 0 :: non_neg_integer(),
               asked = false :: boolean()}).

%% The key that came last and its sum, how many more additions may come, where the sums of other
%% keys are, and their memory. To add to a key that is there makes no garbage but this tuple, which
%% a map of sums would: it is several times faster.
-opaque buffer() :: {Last :: term(), integer(), Left :: integer(), #{term() => pos_integer()},
                     counters:counters_ref() | none, #rest{}}.
-type options() :: #{max_adds => pos_integer(), max_age => non_neg_integer() | infinity}.

-define(NO_KEY, '$erlane_shard_none').
-define(MAX_ADDS, 1000000).
%% So much fits into a sum of 64 bits as often as `max_adds' allows.
-define(MOST, (1 bsl 42)).
%% Words of memory at first, and at most in a buffer that has left.
-define(FEW, 32).
-define(KEPT, 1024).

%% @doc An empty buffer for the set of this name. `max_adds': additions after which it leaves,
%% 10000; `max_age': milliseconds after which it asks to be flushed, 0 for as soon as nothing more
%% waits, or `infinity' for never. Raises `{Key, unknown_option | {badarg, Value}}'.
-spec new(Name :: atom(), options()) -> buffer().
new(Name, Options) when is_atom(Name), is_map(Options) ->
    _ = maps:foreach(fun check/2, Options),
    #{max_adds := Max, max_age := Age} =
        maps:merge(#{max_adds => 10000, max_age => 0}, Options),
    {?NO_KEY, 0, 0, #{}, none, #rest{name = Name, ref = make_ref(), max = Max, age = Age}}.

check(max_adds, N) when is_integer(N), N >= 1, N =< ?MAX_ADDS -> ok;
check(max_age, infinity) -> ok;
check(max_age, N) when is_integer(N), N >= 0, N =< 3600000 -> ok;
check(Key, Value) when Key =:= max_adds; Key =:= max_age -> error({Key, {badarg, Value}});
check(Key, _) -> error({Key, unknown_option}).

%% @doc Adds. Sends what is there when the buffer is full.
-spec add(buffer(), Key :: term(), integer()) -> buffer().
add({Key, Sum, Left, Where, Sums, Rest}, Key, N)
  when Left > 0, is_integer(N), N =< ?MOST, N >= -?MOST ->
    {Key, Sum + N, Left - 1, Where, Sums, Rest};
add({Last, Sum, Left, Where, Sums, Rest}, Key, N)
  when Left > 0, is_integer(N), N =< ?MOST, N >= -?MOST ->
    case Where of
        #{Last := I} ->
            ok = counters:add(Sums, I, Sum),
            {Key, N, Left - 1, Where, Sums, Rest};
        _ ->
            {Where1, Sums1, Rest1} = put_aside(Last, Sum, Where, Sums, Rest),
            {Key, N, Left - 1, Where1, Sums1, Rest1}
    end;
add({?NO_KEY, 0, 0, Where, Sums, #rest{max = Max} = Rest}, Key, N)
  when is_integer(N), N =< ?MOST, N >= -?MOST ->
    {Key, N, Max - 1, Where, Sums, ask(Rest)};
add(Buffer, Key, N) when is_integer(N), N =< ?MOST, N >= -?MOST ->
    add(flush(Buffer), Key, N);
add({_, _, _, _, _, #rest{name = Name}} = Buffer, Key, N) when is_integer(N) ->
    ok = erlane_shard:batch(Name, [{Key, {add, N}}]),
    Buffer.

%% The first sum of a key.
put_aside(Key, Sum, Where, Sums, #rest{size = Size} = Rest) when map_size(Where) < Size ->
    I = map_size(Where) + 1,
    ok = counters:put(Sums, I, Sum),
    {Where#{Key => I}, Sums, Rest};
put_aside(Key, Sum, Where, Sums, #rest{size = Size} = Rest) ->
    More = max(?FEW, 2 * Size),
    Larger = counters:new(More, []),
    lists:foreach(fun(I) -> counters:put(Larger, I, counters:get(Sums, I)) end,
                  lists:seq(1, Size)),
    put_aside(Key, Sum, Where, Larger, Rest#rest{size = More}).

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
flush({?NO_KEY, _, _, _, _, _} = Buffer) -> Buffer;
flush({Last, Sum, _, Where, Sums, #rest{name = Name, size = Size} = Rest}) ->
    Others = [{Key, {add, counters:get(Sums, I)}} || {Key, I} <- maps:to_list(Where)],
    %% Its key may be among them, and is added to twice.
    ok = erlane_shard:batch(Name, [{Last, {add, Sum}} | Others]),
    case Size > ?KEPT of
        true -> {?NO_KEY, 0, 0, #{}, none, Rest#rest{size = 0}};
        false -> {?NO_KEY, 0, 0, #{}, Sums, Rest}
    end.

%% @doc What to do with each message that the process does not know: if it is that of this buffer,
%% `{ok, Flushed}'.
-spec info(Message :: term(), buffer()) -> {ok, buffer()} | unknown.
info({?MODULE, Ref}, {_, _, _, _, _, #rest{ref = Ref}} = Buffer) ->
    Flushed = flush(Buffer),
    #rest{} = Rest = element(6, Flushed),
    {ok, setelement(6, Flushed, Rest#rest{asked = false})};
info(_, _) ->
    unknown.
