%% SPDX-License-Identifier: Apache-2.0
%% @doc The one writer of the two tables: families are declared, series made and deleted here.
%% Updates never come here.
%%
%% A series is put into the ordered table first and is removed from it last. If this process
%% dies in between, its successor finds rows there that the other table does not have, and
%% removes them. Slabs begun before a crash are never gone on with: which of their indexes were
%% given to series deleted since nobody knows any more.
-module(erlane_metrics_registry).
-behaviour(gen_server).

-export([start_link/0, declare/2, declared/1, create/2, delete/2, set_info/3]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include("erlane_metrics.hrl").
-include_lib("kernel/include/logger.hrl").

-define(CALL_MS, 5000).
-define(RETRY_MS, 5).

-record(state, {slabs = #{} :: #{term() => erlane_metrics_slab:slab()},
                counts = #{} :: #{binary() => non_neg_integer()},
                %% Families whose overflow was logged.
                logged = #{} :: #{binary() => true},
                %% Series of families with a ttl: last value and since when (milliseconds).
                seen = #{} :: #{term() => {term(), integer()}},
                sweeping = false :: boolean()}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Declares a family, or finds that it is declared in the same way.
-spec declare(erlane_metrics_family:type(), map()) ->
          {ok, erlane_metrics_family:declaration()} | {error, {atom(), term()}}.
declare(Type, Opts) ->
    case erlane_metrics_family:check(Type, Opts) of
        {ok, Declaration} -> call({declare, Declaration});
        {error, Reason} -> {error, Reason}
    end.

%% @doc The declaration of a name; a table read.
-spec declared(binary()) ->
          {ok, erlane_metrics_family:declaration()} | {error, {not_declared, binary()}}.
declared(Name) ->
    case ets:lookup(?ORDER, {Name, 0}) of
        [{_, Declaration}] -> {ok, Declaration};
        [] -> {error, {not_declared, Name}}
    end.

%% @doc Makes a series, or finds it; beyond the limit that is the overflow series.
-spec create(binary(), [binary()]) -> {ok, tuple()} | {error, term()}.
create(Name, Labels) -> call({create, {Name, Labels}}).

%% @doc Deletes a series; false if there was none.
-spec delete(binary(), [binary()]) -> boolean().
delete(Name, Labels) -> call({delete, {Name, Labels}}).

%% @doc Replaces the pairs of an info series; false if it was deleted.
-spec set_info(reference(), {binary(), [binary()] | overflow}, [{binary(), binary()}]) ->
          boolean().
set_info(Unique, Key, Pairs) -> call({set_info, Unique, Key, Pairs}).

%% Every request may be made twice, so one that met a restart of the registry is made again.
call(Request) -> call(Request, erlang:monotonic_time(millisecond) + ?CALL_MS).

call(Request, Deadline) ->
    try
        gen_server:call(?MODULE, Request, infinity)
    catch
        exit:{Reason, {gen_server, call, _}} ->
            case whereis(erlane_metrics_sup) =/= undefined
                andalso erlang:monotonic_time(millisecond) < Deadline of
                true ->
                    receive after ?RETRY_MS -> ok end,
                    call(Request, Deadline);
                false ->
                    error({registry_down, Reason})
            end
    end.

%% @private
-spec init([]) -> {ok, #state{}}.
init([]) ->
    Families = erlane_metrics_walk:families(),
    lists:foreach(fun(Declaration) -> true = claim(Declaration) end, Families),
    Counts = maps:from_list([{maps:get(name, D), mend(D)} || D <- Families]),
    lists:foreach(fun({Type, Opts}) ->
                          {ok, Declaration} = erlane_metrics_family:check(Type, Opts),
                          {ok, _} = register_family(Declaration)
                  end, erlane_metrics_own:declarations()),
    {ok, sweep_soon(#state{counts = Counts})}.

%% Removes what was left half made or half deleted; answers how many series are left.
mend(Declaration) ->
    erlane_metrics_walk:family(
        Declaration,
        fun(Key, _Text, Stored, _Created, N) ->
                case {ets:member(?SERIES, Key), Key} of
                    {true, {_, overflow}} -> N;
                    {true, _} -> N + 1;
                    {false, _} -> bury(Key, Stored), N
                end
        end, 0).

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call({declare, #{ttl := Ttl} = Declaration}, _From, State) ->
    Answer = register_family(Declaration),
    case Ttl of
        infinity -> {reply, Answer, State};
        _ -> {reply, Answer, sweep_soon(State)}
    end;
handle_call({create, {Name, _} = Key}, _From, State) ->
    case {ets:lookup(?SERIES, Key), ets:lookup(?ORDER, {Name, 0})} of
        {[{_, Stored}], _} -> {reply, {ok, Stored}, State};
        {[], [{_, Declaration}]} -> created(Key, Declaration, State);
        {[], []} -> {reply, {error, {not_declared, Name}}, State}
    end;
handle_call({delete, Key}, _From, State) ->
    case ets:member(?SERIES, Key) of
        true -> {reply, true, deleted(Key, State)};
        false -> {reply, false, State}
    end;
handle_call({set_info, Unique, Key, Pairs}, _From, State) ->
    case ets:lookup(?ORDER, Key) of
        [{_, _, {info, Unique, _}, _}] ->
            {reply, ets:update_element(?ORDER, Key, {3, {info, Unique, Pairs}}), State};
        _ ->
            {reply, false, State}
    end;
handle_call(_Request, _From, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({sweep, [Declaration | Rest]}, State) ->
    %% One family at a time: requests come between.
    self() ! {sweep, Rest},
    {noreply, sweep(Declaration, State)};
handle_info({sweep, []}, State) ->
    {noreply, sweep_soon(State#state{sweeping = false})};
handle_info(sweep, State) ->
    self() ! {sweep, mortal()},
    {noreply, State};
handle_info(_Message, State) ->
    {noreply, State}.

%% Families

register_family(#{name := Name} = Declaration) ->
    case ets:lookup(?ORDER, {Name, 0}) of
        [{_, First}] ->
            case erlane_metrics_family:same(First, Declaration) of
                true -> {ok, First};
                {false, Option} ->
                    {error, {Option, {declared_before_as, maps:get(Option, First, none)}}}
            end;
        [] ->
            case [{S, Owner} || S <- samples(Declaration),
                                {_, Owner} <- ets:lookup(?SERIES, {sample, S})] of
                [{Sample, Owner} | _] ->
                    {error, {name, {collides, Sample, Owner}}};
                [] ->
                    New = Declaration#{created => erlang:system_time(millisecond)},
                    true = ets:insert(?ORDER, {{Name, 0}, New}),
                    true = claim(New),
                    {ok, New}
            end
    end.

claim(#{name := Name} = Declaration) ->
    ets:insert(?SERIES, [{{sample, S}, Name} || S <- samples(Declaration)]).

samples(#{type := group, name := Name, counters := Counters}) ->
    lists:usort([Name | lists:append([erlane_metrics_name:samples(counter, C)
                                      || {C, _} <- Counters])]);
samples(#{type := Type, name := Name}) ->
    erlane_metrics_name:samples(Type, Name).

%% Series

created({Name, _} = Key, #{limit := Limit} = Declaration, State) ->
    #state{counts = Counts} = State,
    case maps:get(Name, Counts, 0) of
        Count when Count < Limit ->
            {Stored, State1} = insert(Key, Declaration, State),
            true = ets:insert(?SERIES, {Key, Stored}),
            {reply, {ok, Stored}, State1#state{counts = Counts#{Name => Count + 1}}};
        _ ->
            overflow(Name, Declaration, State)
    end.

overflow(Name, Declaration, State) ->
    erlane_metrics_own:overflowed(),
    Key = {Name, overflow},
    {Stored, State1} = case ets:lookup(?SERIES, Key) of
                           [{_, Stored0, _}] -> {Stored0, State};
                           [] -> insert(Key, Declaration, State)
                       end,
    %% From here on callers with unknown labels find this row and do not come any more.
    true = ets:insert(?SERIES, {Key, Stored, true}),
    {reply, {ok, Stored}, log_once(Name, Declaration, State1)}.

log_once(Name, _, #state{logged = Logged} = State) when is_map_key(Name, Logged) -> State;
log_once(Name, #{limit := Limit}, #state{logged = Logged} = State) ->
    ?LOG_WARNING("erlane_metrics: ~ts has its limit of ~b series; further labels share one",
                 [Name, Limit]),
    State#state{logged = Logged#{Name => true}}.

insert({_, Labels} = Key, #{labels := Names} = Declaration, State) ->
    {Handle, State1} = storage(Key, Declaration, State),
    Stored = case Handle of
                 {info, Unique, _} -> {info, Unique, []};
                 _ -> Handle
             end,
    Text = erlane_metrics_name:text(Names, Labels),
    true = ets:insert(?ORDER, {Key, Text, Stored, erlang:system_time(millisecond)}),
    erlane_metrics_own:series(1),
    {Handle, State1}.

storage(Key, #{store := Store} = Declaration, State) ->
    case Store of
        {histogram, Kind, BoundsKey} ->
            Ref = erlane_metrics_hist:new(Kind, erlane_metrics_bounds:fetch(BoundsKey)),
            Name = case Kind of
                       counters -> histogram;
                       atomics -> shared
                   end,
            {{Name, Ref, BoundsKey}, State};
        {group, N} -> {{group, counters:new(N, [write_concurrency]), Key}, State};
        info -> {{info, make_ref(), Key}, State};
        own ->
            {ok, Ref, Ix, _} = erlane_metrics_slab:take(erlane_metrics_slab:new(counters, 2)),
            {word(Declaration, Ref, Ix), State};
        _ when Store =:= set; Store =:= stateset -> slab(atomics, Declaration, State);
        _ -> slab(counters, Declaration, State)
    end.

slab(Kind, Declaration, #state{slabs = Slabs} = State) ->
    Id = slab_id(Kind, Declaration),
    Slab = case Slabs of
               #{Id := Begun} -> Begun;
               #{} -> erlane_metrics_slab:new(Kind, 8)
           end,
    case erlane_metrics_slab:take(Slab) of
        {ok, Ref, Ix, Slab1} ->
            {word(Declaration, Ref, Ix), State#state{slabs = Slabs#{Id => Slab1}}};
        full ->
            Next = erlane_metrics_slab:new(Kind, slab_words(Declaration)),
            slab(Kind, Declaration, State#state{slabs = Slabs#{Id => Next}})
    end.

%% Families without labels have one series each and share their slabs.
slab_id(Kind, #{labels := [], ttl := Ttl}) -> {Kind, Ttl =:= infinity};
slab_id(_, #{name := Name}) -> Name.

%% One series that lives keeps its slab: small ones where series come and go.
slab_words(#{ttl := infinity}) -> 64;
slab_words(_) -> 8.

word(#{type := counter, decimals := 0}, Ref, Ix) -> {counter, Ref, Ix};
word(#{type := counter, decimals := D}, Ref, Ix) ->
    {counter, Ref, Ix, erlane_metrics_number:power(D)};
word(#{store := updown, decimals := D}, Ref, Ix) ->
    {updown, Ref, Ix, erlane_metrics_number:power(D)};
word(#{store := set, decimals := D}, Ref, Ix) ->
    {gauge, Ref, Ix, erlane_metrics_number:power(D)};
word(#{store := stateset, states := States}, Ref, Ix) -> {stateset, Ref, Ix, States}.

deleted({Name, _} = Key, State) ->
    #state{counts = Counts, slabs = Slabs, seen = Seen} = State,
    true = ets:delete(?SERIES, Key),
    [{_, _, Stored, _}] = ets:lookup(?ORDER, Key),
    bury(Key, Stored),
    %% There is room again: unknown labels may come here.
    _ = ets:update_element(?SERIES, {Name, overflow}, {3, false}),
    Left = maps:get(Name, Counts) - 1,
    State1 = State#state{counts = Counts#{Name => Left}, seen = maps:remove(Key, Seen)},
    case Left of
        0 -> State1#state{slabs = maps:remove(Name, Slabs)};
        _ -> State1
    end.

bury(Key, Stored) ->
    %% A predecessor may have died after the mark.
    case erlane_metrics_read:alive(Stored) of
        true -> erlane_metrics_read:kill(erlane_metrics_read:live(Stored));
        false -> ok
    end,
    true = ets:delete(?ORDER, Key),
    erlane_metrics_own:series(-1).

%% Time to live

mortal() ->
    [D || #{ttl := Ttl} = D <- erlane_metrics_walk:families(), is_integer(Ttl)].

%% Without a family that has a ttl no timer runs.
sweep_soon(#state{sweeping = true} = State) -> State;
sweep_soon(State) ->
    case [Ttl || #{ttl := Ttl} <- mortal()] of
        [] -> State;
        Ttls ->
            _ = erlang:send_after(min(30000, lists:min(Ttls) * 250), self(), sweep),
            State#state{sweeping = true}
    end.

sweep(#{ttl := Ttl} = Declaration, State) ->
    Now = erlang:monotonic_time(millisecond),
    erlane_metrics_walk:family(
        Declaration,
        fun({_, overflow}, _, _, _, S) -> S;
           (Key, _, Stored, _, S) -> grow_old(Key, Stored, Now, Ttl * 1000, S)
        end, State).

grow_old(Key, Stored, Now, Ms, #state{seen = Seen} = State) ->
    Change = erlane_metrics_read:change(erlane_metrics_read:live(Stored)),
    case Seen of
        #{Key := {Change, Since}} when Now - Since >= Ms -> deleted(Key, State);
        #{Key := {Change, _}} -> State;
        #{} -> State#state{seen = Seen#{Key => {Change, Now}}}
    end.
