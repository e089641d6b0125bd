%% SPDX-License-Identifier: Apache-2.0
%% @doc The one process that looks at the node, for all viewers together.
%%
%% While somebody views it takes a sample every `interval'; while nobody does, none at all, or
%% one every `history' milliseconds. A ring holds the cores of fifteen minutes, as the text they
%% are sent as: whoever comes later gets them without work.
%%
%% A viewer is a process that gets `{erlane_dash, tick, Json}' and says {@link ready/0} when it is
%% through with it. One that is not is left out; left out too often it is forgotten, and gets
%% `{erlane_dash, gone}'. So it has one message of ours at most, and one of that kind.
-module(erlane_dash_sampler).
-behaviour(gen_server).

-export([start_link/1, watch/0, ready/0, history/1, info/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-define(RING, 900).
-define(RING_MS, 900000).
-define(MAX_SKIPPED, 30).
-define(PROCS, 15).
%% Orders of processes other than by reductions are looked at with every so many samples.
-define(OTHERS, 5).

-record(state, {config :: erlane_dash_opts:config(),
                started = erlang:system_time(microsecond) :: integer(),
                probes = none :: none | #{reds | memory | mailbox => erlane_prof:probe()},
                before = none :: none | erlane_dash_view:look(),
                others = [] :: [map()],
                turn = 0 :: non_neg_integer(),
                viewers = #{} :: #{pid() => {reference(), ready | non_neg_integer()}},
                ring = queue:new() :: queue:queue({integer(), binary()}),
                samples = 0 :: non_neg_integer(),
                skipped = 0 :: non_neg_integer(),
                rhythm = none :: none | pos_integer(),
                due = 0 :: integer(),
                timer :: undefined | reference()}).

%% @private
-spec start_link(erlane_dash_opts:config()) -> {ok, pid()} | {error, term()}.
start_link(Config) ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, Config, []).

%% @doc Makes the caller a viewer. Answers with the interval, when we `started', which tells one
%% life of the page from another, and a monitor of our end; `full' if there are as many viewers
%% as may be.
-spec watch() -> {ok, #{interval := pos_integer(), started := integer(), sampler := reference()}}
               | {error, full}.
watch() ->
    Monitor = monitor(process, ?MODULE),
    case gen_server:call(?MODULE, watch) of
        {ok, About} ->
            {ok, About#{sampler => Monitor}};
        Error ->
            demonitor(Monitor, [flush]),
            Error
    end.

%% @doc The viewer takes another tick.
-spec ready() -> ok.
ready() ->
    gen_server:cast(?MODULE, {ready, self()}).

%% @doc The cores of the ring that are newer than a time, the oldest first, as JSON texts.
-spec history(integer()) -> [binary()].
history(Since) ->
    gen_server:call(?MODULE, {history, Since}).

%% @doc `viewers' now; `samples' that were taken and ticks that were `skipped' so far; how many
%% `held' in the ring; the `rhythm' in milliseconds, `none' if it sleeps.
-spec info() -> #{viewers := non_neg_integer(), samples := non_neg_integer(),
                  skipped := non_neg_integer(), held := non_neg_integer(),
                  rhythm := pos_integer() | none}.
info() ->
    gen_server:call(?MODULE, info).

%% @private
-spec init(erlane_dash_opts:config()) -> {ok, #state{}}.
init(Config) ->
    process_flag(trap_exit, true),
    {ok, rhythm(#state{config = Config})}.

%% @private
-spec handle_call(term(), gen_server:from(), #state{}) -> {reply, term(), #state{}}.
handle_call(watch, {Pid, _}, #state{viewers = Viewers, config = Config} = State) ->
    #{viewers := Most, interval := Interval} = Config,
    case map_size(Viewers) < Most orelse is_map_key(Pid, Viewers) of
        true ->
            State1 = forget(Pid, State),
            Viewer = {monitor(process, Pid), ready},
            {reply, {ok, #{interval => Interval, started => State#state.started}},
             rhythm(State1#state{viewers = (State1#state.viewers)#{Pid => Viewer}})};
        false ->
            {reply, {error, full}, State}
    end;
handle_call({history, Since}, _From, #state{ring = Ring} = State) ->
    Oldest = max(Since, erlang:system_time(millisecond) - ?RING_MS),
    {reply, [Core || {Time, Core} <- queue:to_list(Ring), Time > Oldest], State};
handle_call(info, _From, #state{viewers = Viewers, ring = Ring, rhythm = Rhythm} = State) ->
    #state{samples = Samples, skipped = Skipped} = State,
    {reply, #{viewers => map_size(Viewers), samples => Samples, skipped => Skipped,
              held => queue:len(Ring), rhythm => Rhythm}, State};
handle_call(_Request, _From, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast({ready, Pid}, #state{viewers = Viewers} = State) ->
    case Viewers of
        #{Pid := {Monitor, _}} ->
            {noreply, State#state{viewers = Viewers#{Pid => {Monitor, ready}}}};
        _ ->
            Pid ! {erlane_dash, gone},
            {noreply, State}
    end;
handle_cast(_Message, State) ->
    {noreply, State}.

%% @private
-spec handle_info(term(), #state{}) -> {noreply, #state{}} | {noreply, #state{}, hibernate}.
handle_info({timeout, Timer, sample}, #state{timer = Timer} = State) ->
    {noreply, next(sample(State#state{timer = undefined}))};
handle_info({'DOWN', _, process, Pid, _}, State) ->
    State1 = rhythm(forget(Pid, State)),
    case State1#state.rhythm of
        none -> {noreply, State1, hibernate};
        _ -> {noreply, State1}
    end;
handle_info(_Message, State) ->
    {noreply, State}.

%% @private
-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, State) ->
    _ = sleep(State),
    ok.

forget(Pid, #state{viewers = Viewers} = State) ->
    case maps:take(Pid, Viewers) of
        {{Monitor, _}, Others} ->
            demonitor(Monitor, [flush]),
            State#state{viewers = Others};
        error ->
            State
    end.

%%% when to look

%% How often: for viewers, for the history, or not at all.
rhythm(#state{config = Config, viewers = Viewers, rhythm = Before} = State) ->
    case wanted(map_size(Viewers), Config) of
        Before -> State;
        none -> sleep(State);
        Rhythm ->
            %% What is known from long ago makes no rates of now.
            Now = erlang:monotonic_time(millisecond),
            Awake = wake(State#state{rhythm = Rhythm, due = Now + Rhythm}),
            arm(case Before of
                    none -> first(Awake);
                    _ -> Awake
                end)
    end.

wanted(0, #{history := History}) -> History;
wanted(_, #{interval := Interval}) -> Interval.

wake(#state{probes = none, config = #{lanes := Lanes}} = State) ->
    Probe = fun(Options) ->
                    {ok, Probe} = erlane_prof:attach(node(), Options#{procs => ?PROCS}),
                    Probe
            end,
    State#state{probes = #{reds => Probe(#{lanes => Lanes, threads => false, sort => reds}),
                           memory => Probe(#{threads => false, sort => memory}),
                           mailbox => Probe(#{threads => false, sort => mailbox})}};
wake(State) ->
    State.

sleep(#state{probes = none} = State) ->
    State#state{rhythm = none};
sleep(#state{probes = Probes} = State) ->
    lists:foreach(fun erlane_prof:detach/1, maps:values(Probes)),
    disarm(State#state{probes = none, before = none, others = [], turn = 0, rhythm = none}).

arm(#state{due = Due} = State) ->
    Disarmed = disarm(State),
    Disarmed#state{timer = erlang:start_timer(Due, self(), sample, [{abs, true}])}.

disarm(#state{timer = undefined} = State) -> State;
disarm(#state{timer = Timer} = State) ->
    _ = erlang:cancel_timer(Timer),
    State#state{timer = undefined}.

%% What was missed is not made up for.
next(#state{rhythm = none} = State) ->
    State;
next(#state{due = Due, rhythm = Rhythm} = State) ->
    Now = erlang:monotonic_time(millisecond),
    arm(State#state{due = max(Due + Rhythm, Now + Rhythm div 2)}).

%%% looking

%% Rates begin with the second look.
first(State) ->
    case look(State) of
        {ok, Look, State1} -> State1#state{before = Look};
        late -> State
    end.

sample(#state{before = none} = State) ->
    first(State);
sample(#state{before = Before, samples = Samples} = State) ->
    case look(State) of
        {ok, Look, State1} ->
            {#{t := Time} = Core, Detail} = erlane_dash_view:tick(Before, Look),
            Json = erlane_dash_json:encode(Core),
            State2 = State1#state{before = Look, samples = Samples + 1},
            publish(Json, Detail, keep(Time, Json, State2));
        late ->
            State
    end.

%% An overloaded node may answer too late, and that is when its page is looked at: there is a gap
%% then, and no crash.
look(#state{probes = #{reds := Probe}} = State) ->
    case erlane_prof:sample(Probe) of
        {ok, Sample} -> look(Sample, State);
        {error, {timeout, _}} -> late
    end.

look(#{procs := Procs} = Sample, #state{config = #{proxies := Proxies}} = State) ->
    State1 = others(State),
    Others = [P || P <- State1#state.others,
                   not lists:any(fun(Q) -> same(P, Q) end, Procs)],
    {ok, #{time => erlang:system_time(millisecond), sample => Sample#{procs => []},
           proxies => source(Proxies), procs => Procs ++ Others}, State1}.

same(#{pid := Pid}, #{pid := Pid}) -> true;
same(_, _) -> false.

others(#state{turn = Turn} = State) when Turn rem ?OTHERS =/= 0 ->
    State#state{turn = Turn + 1};
others(#state{turn = Turn, probes = #{memory := Memory, mailbox := Mailbox}} = State) ->
    case {erlane_prof:sample(Memory), erlane_prof:sample(Mailbox)} of
        {{ok, #{procs := Largest}}, {ok, #{procs := Fullest}}} ->
            Others = Largest ++ [P || #{mq := N} = P <- Fullest, is_integer(N), N > 0,
                                      not lists:any(fun(Q) -> same(P, Q) end, Largest)],
            State#state{turn = Turn + 1, others = Others};
        _ ->
            State#state{turn = Turn + 1}
    end.

%% The function is not ours: what it raises costs its own panel and nothing else.
source(none) -> [];
source(Source) ->
    try called(Source) of
        List when is_list(List) -> [Map || Map <- List, is_map(Map)];
        _ -> []
    catch
        _:_ -> []
    end.

called(Fun) when is_function(Fun) -> Fun();
called({Module, Function}) -> Module:Function();
called({Module, Function, Args}) -> apply(Module, Function, Args).

keep(Time, Json, #state{ring = Ring} = State) ->
    State#state{ring = prune(Time - ?RING_MS, queue:in({Time, Json}, Ring))}.

prune(Oldest, Ring) ->
    case queue:peek(Ring) of
        {value, {Time, _}} when Time < Oldest -> prune(Oldest, queue:drop(Ring));
        _ ->
            case queue:len(Ring) > ?RING of
                true -> queue:drop(Ring);
                false -> Ring
            end
    end.

publish(_, _, #state{viewers = Viewers} = State) when map_size(Viewers) =:= 0 ->
    State;
publish(Core, Detail, #state{viewers = Viewers} = State) ->
    %% One binary for all of them.
    Json = iolist_to_binary([<<"{\"core\":">>, Core, <<",\"detail\":">>,
                             erlane_dash_json:encode(Detail), $}]),
    rhythm(maps:fold(fun(Pid, Viewer, Acc) -> tell(Pid, Viewer, Json, Acc) end, State, Viewers)).

tell(Pid, {Monitor, ready}, Json, #state{viewers = Viewers} = State) ->
    Pid ! {erlane_dash, tick, Json},
    State#state{viewers = Viewers#{Pid => {Monitor, 0}}};
tell(Pid, {_, N}, _, #state{skipped = Skipped} = State) when N >= ?MAX_SKIPPED ->
    Pid ! {erlane_dash, gone},
    forget(Pid, State#state{skipped = Skipped + 1});
tell(Pid, {Monitor, N}, _, #state{viewers = Viewers, skipped = Skipped} = State) ->
    State#state{viewers = Viewers#{Pid => {Monitor, N + 1}}, skipped = Skipped + 1}.
