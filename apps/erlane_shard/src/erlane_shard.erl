%% SPDX-License-Identifier: Apache-2.0
%% @doc Keyed state in one process per scheduler.
%%
%% ```
%% {ok, _} = erlane_shard:start_link(hits, #{}).
%% ok = erlane_shard:add(hits, <<"/index.html">>, 1).
%% {ok, 1} = erlane_shard:get(hits, <<"/index.html">>).
%% '''
%% All requests for a key are done one after the other by the one process that has it, so none of
%% them needs a lock or is lost. What one process asks for one key is done in the order of asking,
%% also while the number of shards changes.
%%
%% A request that raises changes nothing: {@link call/4} and its like raise the same in the caller;
%% what nobody waits for is logged. When a shard's process ends, the state of its keys is lost, and
%% so is what waits there; the others go on.
%%
%% A module with this behaviour is own logic: one state for each slot, which is a part of the keys
%% that stays together, and moves as it is.
-module(erlane_shard).

-include("erlane_shard.hrl").

-export([start_link/2, start/2, child_spec/2, stop/1]).
-export([call/3, call/4, cast/3]).
-export([get/2, put/3, delete/2, add/3, update/3, update/4, batch/2]).
-export([sync/1, resize/2, snapshot/1, hot/1, info/1]).

-export_type([options/0, update/0]).

-type options() :: erlane_shard_opts:options().
-type update() :: erlane_shard_values:update().

%% The state of a slot, before the first request for one of its keys.
-callback init(Args :: term()) -> State :: term().
-callback handle_call(Request :: term(), Key :: term(), State :: term()) ->
    {reply, Reply :: term(), NewState :: term()}.
-callback handle_cast(Request :: term(), Key :: term(), State :: term()) ->
    {noreply, NewState :: term()}.
%% What snapshot/1 shows of a slot; the state itself without this function.
-callback snapshot(State :: term()) -> term().
-optional_callbacks([snapshot/1]).

-define(TIMEOUT, 5000).

%% @doc Starts a set below the calling process, a supervisor as a rule, and registers it. Options:
%% {@link erlane_shard_opts:defaults/0}. `{error, {Key, unknown_option | {badarg, Value}}}' names a
%% wrong one.
-spec start_link(Name :: atom(), options()) -> {ok, pid()} | {error, term()}.
start_link(Name, Options) when is_atom(Name) ->
    case erlane_shard_opts:check(Options) of
        {ok, Config} -> erlane_shard_keeper:start_link(Name, Config);
        Error -> Error
    end.

%% @doc Starts a set below the application `erlane_shard', which must be running. It is started
%% again should it crash, and is there until {@link stop/1}.
-spec start(Name :: atom(), options()) -> {ok, pid()} | {error, term()}.
start(Name, Options) when is_atom(Name) ->
    case erlane_shard_opts:check(Options) of
        {ok, _} ->
            case supervisor:start_child(erlane_shard_sup, child_spec(Name, Options)) of
                {ok, Pid} when is_pid(Pid) -> {ok, Pid};
                {error, Reason} -> {error, Reason}
            end;
        Error -> Error
    end.

%% @doc For the supervisor of a program.
-spec child_spec(Name :: atom(), options()) -> supervisor:child_spec().
child_spec(Name, Options) when is_atom(Name) ->
    #{id => Name, start => {?MODULE, start_link, [Name, Options]}, type => supervisor,
      shutdown => infinity}.

%% @doc Ends a set that was started with {@link start/2} or {@link start_link/2}; ok also if there
%% is none. One below a supervisor of yours is ended by that.
-spec stop(Name :: atom()) -> ok.
stop(Name) when is_atom(Name) ->
    Ours = whereis(erlane_shard_sup) =/= undefined
        andalso supervisor:terminate_child(erlane_shard_sup, Name) =:= ok,
    case {Ours, whereis(Name)} of
        {true, _} -> supervisor:delete_child(erlane_shard_sup, Name);
        {false, undefined} -> ok;
        {false, Pid} -> gen_server:stop(Pid)
    end.

%% @doc `call(Name, Key, Request, 5000)'.
-spec call(Name :: atom(), Key :: term(), Request :: term()) -> Reply :: term().
call(Name, Key, Request) -> call(Name, Key, Request, ?TIMEOUT).

%% @doc The answer of own logic. Exits, as `gen_server:call/3' does, with `{Reason, _}' if the
%% shard ends meanwhile or does not answer within so many milliseconds.
-spec call(Name :: atom(), Key :: term(), Request :: term(), timeout()) -> Reply :: term().
call(Name, Key, Request, Timeout) ->
    erlane_shard_send:call(erlane_shard_send:set(Name), Key, Request, Timeout).

%% @doc A request that has no answer. The caller waits if `bound' messages of its own wait in that
%% shard.
-spec cast(Name :: atom(), Key :: term(), Request :: term()) -> ok.
cast(Name, Key, Request) ->
    erlane_shard_send:cast(erlane_shard_send:set(Name), Key, Request).

%% @doc The value of a key. Like all that follows for sets without own logic; badarg for others.
-spec get(Name :: atom(), Key :: term()) -> {ok, Value :: term()} | undefined.
get(Name, Key) -> erlane_shard_send:call(values(Name), Key, get, ?TIMEOUT).

%% @doc Sets a value. Nobody waits, as with {@link cast/3}; a later get of the caller sees it.
-spec put(Name :: atom(), Key :: term(), Value :: term()) -> ok.
put(Name, Key, Value) -> erlane_shard_send:cast(values(Name), Key, {put, Value}).

%% @doc Removes a value, in the same way.
-spec delete(Name :: atom(), Key :: term()) -> ok.
delete(Name, Key) -> erlane_shard_send:cast(values(Name), Key, delete).

%% @doc Adds to a counter, which begins at 0, in the same way: one message. A process that adds
%% often is better off with {@link erlane_shard_buffer}.
-spec add(Name :: atom(), Key :: term(), integer()) -> ok.
add(Name, Key, N) when is_integer(N) ->
    case persistent_term:get({erlane_shard, Name}, none) of
        #set{module = erlane_shard_values} = Set -> erlane_shard_send:add(Set, Key, N);
        none -> error({not_started, Name});
        _ -> error(badarg)
    end.

%% @doc `update(Name, Key, Fun, 5000)'.
-spec update(Name :: atom(), Key :: term(), update()) -> Reply :: term().
update(Name, Key, Fun) -> update(Name, Key, Fun, ?TIMEOUT).

%% @doc Reads and writes in one step. The function runs in the shard and gets `{ok, Value}' or
%% `undefined'; it says `{reply, Reply, NewValue}', `{keep, Reply}' or `{delete, Reply}'. It should
%% be short, and not call the same set.
-spec update(Name :: atom(), Key :: term(), update(), timeout()) -> Reply :: term().
update(Name, Key, Fun, Timeout) when is_function(Fun, 1) ->
    erlane_shard_send:call(values(Name), Key, {update, Fun}, Timeout).

%% @doc Many requests in one message for each shard: `{add, N}', `{put, Value}', `delete' and
%% `{update, Fun}', or what {@link cast/3} takes if there is own logic. Nobody waits.
-spec batch(Name :: atom(), [{Key :: term(), Request :: term()}]) -> ok.
batch(Name, Requests) -> erlane_shard_send:batch(erlane_shard_send:set(Name), Requests).

%% @doc Waits until everything is done that the caller has sent to the set without waiting for it.
-spec sync(Name :: atom()) -> ok.
sync(Name) -> erlane_shard_send:sync(erlane_shard_send:set(Name)).

%% @doc Another number of shards, from 1 to 256. Returns when all keys are where they belong;
%% senders go on meanwhile. With `shards => schedulers' this happens by itself soon after the
%% number of schedulers that are online has changed, if there is something to do.
-spec resize(Name :: atom(), Shards :: pos_integer()) -> ok | {error, term()}.
resize(Name, Shards) -> erlane_shard_keeper:resize(Name, Shards).

%% @doc All keys and values; with own logic a list of what it shows of its slots. It is as each
%% shard was at one moment, after what the caller had asked for before.
-spec snapshot(Name :: atom()) -> #{Key :: term() => Value :: term()} | [term()].
snapshot(Name) ->
    #set{module = Module} = Set = erlane_shard_send:set(Name),
    ok = erlane_shard_send:sync(Set),
    Parts = lists:append(erlane_shard_keeper:gather(Name, snapshot, infinity)),
    case Module of
        erlane_shard_values -> lists:foldl(fun maps:merge/2, #{}, Parts);
        _ -> Parts
    end.

%% @doc The hottest keys, and which share of all requests each makes up, the hottest first. One
%% request in about 128 is looked at, and old ones count less and less.
-spec hot(Name :: atom()) -> [{Key :: term(), Share :: float()}].
hot(Name) ->
    Parts = erlane_shard_keeper:gather(Name, hot, ?TIMEOUT),
    Total = lists:sum([T || {T, _} <- Parts]),
    lists:sort(fun({_, A}, {_, B}) -> A >= B end,
               [{Key, N / Total} || {_, Top} <- Parts, {Key, N} <- Top]).

%% @doc Each shard: its number and process, messages that wait, slots in use, messages handled.
-spec info(Name :: atom()) ->
          [#{shard := pos_integer(), pid := pid(), waiting := non_neg_integer(),
             slots := non_neg_integer(), handled := non_neg_integer()}].
info(Name) -> erlane_shard_keeper:gather(Name, info, ?TIMEOUT).

values(Name) ->
    case erlane_shard_send:set(Name) of
        #set{module = erlane_shard_values} = Set -> Set;
        _ -> error(badarg)
    end.
