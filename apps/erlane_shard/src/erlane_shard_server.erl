%% SPDX-License-Identifier: Apache-2.0
%% @doc The process of a shard.
%%
%% Each slot it has is an entry of its process dictionary: small maps that change in place, and no
%% table that others look at. What has no entry is one of three: new here, awaited from the shard
%% that had it (then messages wait), or given away (then they are passed on).
%%
%% A message of one sender can only be passed on if that sender read the placement before the slot
%% left. Its next one goes to the new shard, and would overtake: so it first asks here, with
%% `sync', and gets its answer when all that was passed on has been done.
-module(erlane_shard_server).

-include("erlane_shard.hrl").

-export([start_link/4, ask/3]).
-export([init/5, system_continue/3, system_terminate/4, system_code_change/4]).

-record(state, {name :: atom(), number :: pos_integer(), keeper :: pid(), parent :: pid(),
                debug = [] :: [sys:dbg_opt()],
                module :: module(), args :: term(),
                awaited = #{} :: #{Slot :: atom() => [Message :: term()]},   % last first
                gone = #{} :: #{Slot :: atom() => []},
                %% What was passed on and is not done: calls with who waits for them.
                passed = #{} :: #{reference() => reference() | none},
                held = [] :: [reference()],
                settling = none :: reference() | none,
                hot :: erlane_shard_hot:hot(),
                handled = 0 :: non_neg_integer(),
                gap :: pos_integer()}).

%% One message in so many, about, is looked at for the report of hot keys.
-define(SAMPLE, 128).

%% @doc Starts the shard of this number in the set of the keeper.
-spec start_link(Name :: atom(), Number :: pos_integer(), Keeper :: pid(),
                 erlane_shard_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Name, Number, Keeper, #{pinned := Pinned} = Config) ->
    %% Off the heap, so that many may send at the same time (parallel signals, OTP 25).
    Options = [{message_queue_data, off_heap}
               | [{scheduler, (Number - 1) rem erlang:system_info(schedulers) + 1} || Pinned]],
    proc_lib:start_link(?MODULE, init, [self(), Name, Number, Keeper, Config], infinity, Options).

%% @doc Asks a shard something that is not about a key. `{error, Reason}' if it ended.
-spec ask(pid(), term(), timeout()) -> {ok, term()} | {error, term()}.
ask(Pid, Question, Timeout) ->
    Ref = erlang:monitor(process, Pid, [{alias, reply_demonitor}]),
    Pid ! {ask, Question, Ref},
    receive
        {Ref, Answer} -> {ok, Answer};
        {'DOWN', Ref, _, _, Reason} -> {error, Reason}
    after Timeout ->
        true = erlang:demonitor(Ref, [flush]),
        receive {Ref, Answer} -> {ok, Answer} after 0 -> {error, timeout} end
    end.

%% @private
-spec init(pid(), atom(), pos_integer(), pid(), erlane_shard_opts:config()) -> no_return().
init(Parent, Name, Number, Keeper, #{module := {Module, Args}, hot := Hot}) ->
    _ = put('$erlane_shard', Name),
    proc_lib:init_ack(Parent, {ok, self()}),
    %% One that comes after a crash is not known yet.
    Keeper ! {up, Number, self()},
    Gap = gap(),
    loop(Gap, #state{name = Name, number = Number, keeper = Keeper, parent = Parent,
                     module = Module, args = Args, hot = erlane_shard_hot:new(Hot),
                     gap = Gap}).

%% Up to the next sample: random, lest it keeps step with the senders.
gap() -> rand:uniform(2 * ?SAMPLE - 1).

loop(0, #state{handled = Handled, gap = Gap} = S) ->
    Next = gap(),
    Sampled = S#state{handled = Handled + Gap, gap = Next},
    receive
        Message -> loop(Next - 1, handle(Message, online(sample(Message, Sampled)), Next))
    end;
loop(Left, S) ->
    receive
        {add, Slot, Key, N} = Message ->
            case get(Slot) of
                #{Key := V} = Values when is_integer(V) ->
                    _ = put(Slot, Values#{Key := V + N}),
                    loop(Left - 1, S);
                _ ->
                    loop(Left - 1, handle(Message, S, Left))
            end;
        Message ->
            loop(Left - 1, handle(Message, S, Left))
    end.

%%
%% Messages
%%

handle({add, Slot, Key, N}, S, _) ->
    keyed(Slot, {cast, Slot, Key, {add, N}}, S);
handle({cast, Slot, _, _} = Message, S, _) ->
    keyed(Slot, Message, S);
handle({call, Slot, _, _, _} = Message, S, _) ->
    keyed(Slot, Message, S);
handle({batch, Ops}, #state{gone = Gone} = S, _) when map_size(Gone) =:= 0 ->
    lists:foldl(fun batched/2, S, Ops);
handle({batch, Ops}, #state{gone = Gone, name = Name} = S, _) ->
    {Away, Here} = lists:partition(fun({Slot, _, _}) -> is_map_key(Slot, Gone) end, Ops),
    %% One look at the placement for all, or two for one key might go to different shards.
    Set = set(Name),
    lists:foldl(fun({Slot, Key, Op}, Acc) -> pass({cast, Slot, Key, Op}, Set, Acc) end,
                lists:foldl(fun batched/2, S, Here), Away);
handle({passed, _, _, Message} = Passed, S, _) ->
    keyed(element(2, Message), Passed, S);
handle({done, Ref}, #state{passed = Passed} = S, _) ->
    answer_held(S#state{passed = maps:remove(Ref, Passed)});
handle({sync, Ref}, #state{held = Held} = S, _) ->
    answer_held(S#state{held = [Ref | Held]});
handle({ask, Question, Ref}, S, Left) ->
    asked(Question, Ref, S, Left);
handle({take, Slots}, S, _) ->
    answer_held(lists:foldl(fun taken/2, S, Slots));
handle(forget, #state{passed = Passed} = S, _) ->
    %% A shard was replaced: nobody knows what of this was done there.
    _ = [Ref ! {Ref, {raised, exit, noproc, []}} || Ref <- maps:values(Passed), Ref =/= none],
    answer_held(S#state{passed = #{}});
handle({system, From, Request}, #state{parent = Parent, debug = Debug} = S, Left) ->
    %% The call does not return but through system_continue/3.
    sys:handle_system_msg(Request, From, Parent, ?MODULE, Debug, {max(Left - 1, 0), S});
handle(_, S, _) ->
    S.

batched({Slot, Key, Op}, S) ->
    keyed(Slot, {cast, Slot, Key, Op}, S).

%% While slots are awaited, too: a late message may wait here for one whose former shard still does
%% what comes, and the sender's next message would go there.
answer_held(#state{passed = Passed, awaited = Awaited, held = Held} = S)
  when map_size(Passed) =:= 0, map_size(Awaited) =:= 0 ->
    lists:foreach(fun(Ref) -> Ref ! {Ref, synced} end, Held),
    S#state{held = []};
answer_held(S) ->
    S.

%% By far the most find their slot.
keyed(Slot, Message, #state{awaited = Awaited, gone = Gone, name = Name} = S) ->
    case get(Slot) of
        undefined when is_map_key(Slot, Awaited) ->
            #{Slot := Waiting} = Awaited,
            S#state{awaited = Awaited#{Slot := [Message | Waiting]}};
        undefined when is_map_key(Slot, Gone) ->
            pass(Message, set(Name), S);
        State ->
            ok = do(Message, State, S),
            S
    end.

do({passed, By, Ref, Message}, State, S) ->
    ok = do(Message, State, S),
    By ! {done, Ref},
    ok;
do({cast, Slot, Key, Op}, State, #state{module = Module, name = Name} = S) ->
    try Module:handle_cast(Op, Key, state(State, S)) of
        {noreply, New} -> _ = put(Slot, New), ok;
        Other -> bad_cast(Name, Key, error, {bad_return, Other}, [])
    catch
        Class:Reason:Stack -> bad_cast(Name, Key, Class, Reason, Stack)
    end;
do({call, Slot, Key, Op, Ref}, State, #state{module = Module} = S) ->
    Answer = try Module:handle_call(Op, Key, state(State, S)) of
                 {reply, Reply, New} -> _ = put(Slot, New), {reply, Reply};
                 Other -> {raised, error, {bad_return, Other}, []}
             catch
                 Class:Reason:Stack -> {raised, Class, Reason, Stack}
             end,
    Ref ! {Ref, Answer},
    ok.

state(undefined, #state{module = Module, args = Args}) -> Module:init(Args);
state(State, _) -> State.

%% Nobody waits who could be told; the shard and its other keys have nothing to do with it.
bad_cast(Name, Key, Class, Reason, Stack) ->
    logger:error("erlane_shard ~tp: an update of ~tp raised and changed nothing: ~tp:~tp~n~tp",
                 [Name, Key, Class, Reason, Stack]).

%%
%% Slots that move
%%

%% Who does it in the end tells the first who passed it on.
pass({passed, _, _, Message} = Passed, Set, S) ->
    owner(element(2, Message), Set) ! Passed,
    S;
pass(Message, Set, #state{passed = Waiting} = S) ->
    Ref = make_ref(),
    owner(element(2, Message), Set) ! {passed, self(), Ref, Message},
    Who = case Message of
              {call, _, _, _, From} -> From;
              _ -> none
          end,
    S#state{passed = Waiting#{Ref => Who}}.

owner(Slot, #set{slots = Slots}) ->
    "$erlane_shard_" ++ I = atom_to_list(Slot),
    {Pid, _, Slot} = element(list_to_integer(I), Slots),
    Pid.

set(Name) -> erlane_shard_send:set(Name).

%% What is not awaited any more came from the keeper, in the name of a shard that had ended.
taken({Slot, State}, #state{awaited = Awaited} = S) ->
    case maps:take(Slot, Awaited) of
        {Waiting, Rest} ->
            _ = [put(Slot, Had) || {state, Had} <- [State]],
            settled(lists:foldr(fun(Message, Acc) -> keyed(Slot, Message, Acc) end,
                                S#state{awaited = Rest}, Waiting));
        error ->
            S
    end.

settled(#state{awaited = Awaited, settling = Ref} = S)
  when map_size(Awaited) =:= 0, Ref =/= none ->
    Ref ! {Ref, ok},
    S#state{settling = none};
settled(S) ->
    S.

asked({expect, Slots}, Ref, #state{awaited = Awaited, gone = Gone} = S, _) ->
    Ref ! {Ref, ok},
    S#state{awaited = maps:merge(Awaited, maps:from_list([{Slot, []} || Slot <- Slots])),
            gone = maps:without(Slots, Gone)};
asked({give, To}, Ref, #state{gone = Gone} = S, _) ->
    lists:foreach(fun({Pid, Slots}) ->
                          Pid ! {take, [{Slot, had(erase(Slot))} || Slot <- Slots]}
                  end, To),
    Ref ! {Ref, ok},
    S#state{gone = lists:foldl(fun(Slot, Acc) -> Acc#{Slot => []} end, Gone,
                               lists:append([Slots || {_, Slots} <- To]))};
asked(settled, Ref, S, _) ->
    settled(S#state{settling = Ref});
asked(snapshot, Ref, #state{module = Module} = S, _) ->
    Ref ! {Ref, [shown(Module, State) || Slot <- erlane_shard_map:slots(),
                                         State <- [get(Slot)], State =/= undefined]},
    S;
asked(hot, Ref, #state{hot = Hot} = S, _) ->
    Ref ! {Ref, {erlane_shard_hot:total(Hot), erlane_shard_hot:top(Hot)}},
    S;
asked(info, Ref, #state{number = Number, handled = Handled, gap = Gap} = S, Left) ->
    {message_queue_len, Waiting} = process_info(self(), message_queue_len),
    Slots = length([Slot || Slot <- erlane_shard_map:slots(), get(Slot) =/= undefined]),
    Ref ! {Ref, #{shard => Number, pid => self(), waiting => Waiting, slots => Slots,
                  handled => Handled + Gap - Left}},
    S.

had(undefined) -> none;
had(State) -> {state, State}.

shown(erlane_shard_values, Values) -> Values;
shown(Module, State) ->
    case erlang:function_exported(Module, snapshot, 1) of
        true -> Module:snapshot(State);
        false -> State
    end.

%%
%% Now and then
%%

sample({add, _, Key, _}, S) -> sampled(Key, S);
sample({cast, _, Key, _}, S) -> sampled(Key, S);
sample({call, _, Key, _, _}, S) -> sampled(Key, S);
sample({batch, Ops}, S) when Ops =/= [] ->
    {_, Key, _} = lists:nth(rand:uniform(length(Ops)), Ops),
    sampled(Key, S);
sample(_, S) -> S.

sampled(Key, #state{hot = Hot} = S) -> S#state{hot = erlane_shard_hot:note(Key, Hot)}.

%% Schedulers go on- and offline without telling anybody.
online(#state{name = Name, keeper = Keeper} = S) ->
    case {set(Name), erlang:system_info(schedulers_online)} of
        {#set{online = Known}, Online} when Known =:= none; Known =:= Online -> ok;
        {_, _} -> Keeper ! online, ok
    end,
    S.

%% @private
-spec system_continue(pid(), [sys:dbg_opt()], {non_neg_integer(), #state{}}) -> no_return().
system_continue(_Parent, Debug, {Left, S}) ->
    loop(Left, S#state{debug = Debug}).

%% @private
-spec system_terminate(term(), pid(), [sys:dbg_opt()], term()) -> no_return().
system_terminate(Reason, _Parent, _Debug, _State) ->
    exit(Reason).

%% @private
-spec system_code_change(State, module(), term(), term()) -> {ok, State}.
system_code_change(State, _Module, _OldVsn, _Extra) ->
    {ok, State}.
