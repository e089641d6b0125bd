%% SPDX-License-Identifier: Apache-2.0
%% @doc Names of other libraries, which may be any term, and the series that stand for them.
%%
%% Updates read the table of this process; it is asked only to make and to delete, one at a
%% time, so that many who create the same name at once make one series.
%%
%% What those libraries call a counter may go down: it is a gauge here, of which every scheduler
%% has its own part. {@link bind/4} gives a name another series, a counter with labels perhaps.
-module(erlane_metrics_bridge).
-behaviour(gen_server).

-export([start_link/0, create/3, bind/4, delete/2, reset/2, find/2, names/1, since/2]).
-export([statistics/1, metric_name/1]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-export_type([library/0, type/0]).

-type library() :: folsom | exometer.
-type type() :: counter | gauge | histogram.

%% `{{Library, Name}, Type, Way}', `Way' being the handle or, for histograms, whose bounds are not
%% to be copied, `{Family, Labels}'; `{{made, Library, Name}, Family, Labels, SinceMs}'; and
%% `{{family, FamilyName}, {Library, Name}}'.
-define(TABLE, ?MODULE).

%% Digits after the point that a gauge keeps.
-define(DECIMALS, 3).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?MODULE}, ?MODULE, [], []).

%% @doc Makes a series of a type for a name. Errors: `exists'; `{name_of, Other}', when another
%% name is the same in the letters that a metric may have; those of a declaration.
-spec create(library(), term(), type()) -> ok | {error, term()}.
create(Library, Name, Type) -> gen_server:call(?MODULE, {create, {Library, Name}, Type}).

%% @doc Makes a name stand for a series of a family that was declared.
-spec bind(library(), term(), erlane_metrics:family(), erlane_metrics:labels()) ->
          ok | {error, term()}.
bind(Library, Name, Family, Labels) ->
    gen_server:call(?MODULE, {bind, {Library, Name}, Family, Labels}).

%% @doc Deletes the name and its series.
-spec delete(library(), term()) -> boolean().
delete(Library, Name) -> gen_server:call(?MODULE, {delete, {Library, Name}}).

%% @doc Begins the series anew at zero. Updates that run meanwhile are in the old or the new one.
-spec reset(library(), term()) -> boolean().
reset(Library, Name) -> gen_server:call(?MODULE, {reset, {Library, Name}}).

%% @doc Type and handle of a name; one table read, for histograms two.
-spec find(library(), term()) -> {type(), erlane_metrics:handle()} | undefined.
find(Library, Name) ->
    case ets:lookup(?TABLE, {Library, Name}) of
        [{_, histogram, {Family, Labels}}] -> {histogram, erlane_metrics:handle(Family, Labels)};
        [{_, Type, Handle}] -> {Type, Handle};
        [] -> undefined
    end.

%% @doc All names of a library.
-spec names(library()) -> [{term(), type()}].
names(Library) ->
    ets:select(?TABLE, [{{{Library, '$1'}, '$2', '_'}, [], [{{'$1', '$2'}}]}]).

%% @doc When a name's series was made or reset, in milliseconds of the system time.
-spec since(library(), term()) -> integer().
since(Library, Name) -> ets:lookup_element(?TABLE, {made, Library, Name}, 4).

%% @doc What the libraries tell of a histogram. Mean and `n' are exact; the others have the error
%% of the histogram, 4.3 % where it is one that was made here. Values since it was made.
-spec statistics(erlane_metrics:hist()) ->
          #{n := non_neg_integer(), percentile := [{50 | 75 | 90 | 95 | 99 | 999, number()}],
            histogram := [{number(), non_neg_integer()}], atom() => number()}.
statistics(#{count := 0}) ->
    Zeros = maps:from_keys([min, max, arithmetic_mean, median, variance, standard_deviation],
                           0.0),
    Zeros#{n => 0, histogram => [{0, 0}],
           percentile => [{P, 0.0} || {P, _} <- percentiles()]};
statistics(#{count := N, sum := Sum, unit_div := Div} = Hist) ->
    Quantile = fun(Q) -> element(2, erlane_metrics:quantile(Hist, Q)) end,
    Mean = Sum / Div / N,
    Bins = bins(Hist),
    Squares = lists:sum([Count * (Middle - Mean) * (Middle - Mean) || {Middle, _, Count} <- Bins]),
    Variance = Squares / max(1, N - 1),
    #{n => N, min => Quantile(0), max => Quantile(1), arithmetic_mean => Mean,
      median => Quantile(0.5), variance => Variance, standard_deviation => math:sqrt(Variance),
      percentile => [{P, Quantile(Q)} || {P, Q} <- percentiles()],
      histogram => [{Edge, Count} || {_, Edge, Count} <- Bins]}.

percentiles() -> [{50, 0.5}, {75, 0.75}, {90, 0.9}, {95, 0.95}, {99, 0.99}, {999, 0.999}].

%% Middle, upper edge and count of what is not empty, in order: each is a quantile of its own.
bins(#{zero := Zero, over := Over, buckets := Counts, count := N} = Hist) ->
    {Bins, _} = lists:foldl(
        fun(0, Acc) -> Acc;
           (Count, {Acc, Below}) ->
                {_, Middle, High} = erlane_metrics:quantile(Hist, (Below + Count) / N),
                {[{Middle, edge(Middle, High), Count} | Acc], Below + Count}
        end, {[], 0}, [Zero | Counts] ++ [Over]),
    lists:reverse(Bins).

edge(Low, infinity) -> Low;
edge(_, High) -> High.

%% gen_server

%% @private
-spec init([]) -> {ok, none}.
init([]) ->
    ?TABLE = ets:new(?TABLE, [set, protected, named_table, {read_concurrency, true}]),
    {ok, none}.

%% @private
-spec handle_call(term(), gen_server:from(), none) -> {reply, term(), none}.
handle_call({create, Key, Type}, _From, State) ->
    {reply, created(ets:member(?TABLE, Key), Key, Type), State};
handle_call({bind, Key, Family, Labels}, _From, State) ->
    {reply, bound(ets:member(?TABLE, Key), Key, Family, Labels), State};
handle_call({delete, Key}, _From, State) ->
    {reply, deleted(Key), State};
handle_call({reset, {Library, Name} = Key}, _From, State) ->
    Reset = case ets:lookup(?TABLE, {made, Library, Name}) of
                [{_, Family, Labels, _}] ->
                    _ = erlane_metrics:delete(Family, Labels),
                    insert(Key, Family, Labels),
                    true;
                [] ->
                    false
            end,
    {reply, Reset, State};
handle_call(_Request, _From, State) ->
    {reply, {error, unknown_call}, State}.

%% @private
-spec handle_cast(term(), none) -> {noreply, none}.
handle_cast(_Message, State) -> {noreply, State}.

%% @private
-spec handle_info(term(), none) -> {noreply, none}.
handle_info(_Message, State) -> {noreply, State}.

created(true, _, _) -> {error, exists};
created(false, {Library, Name} = Key, Type) ->
    Metric = metric_name(Name),
    case ets:lookup(?TABLE, {family, Metric}) of
        [{_, Other}] when Other =/= Key ->
            {error, {name_of, Other}};
        _ ->
            Help = iolist_to_binary(io_lib:format("~s: ~0tw", [Library, Name])),
            guarded(fun() ->
                            Family = declare(Type, #{name => Metric, help => Help}),
                            true = ets:insert(?TABLE, {{family, Metric}, Key}),
                            insert(Key, Family, [])
                    end)
    end.

bound(true, _, _, _) -> {error, exists};
bound(false, Key, Family, Labels) -> guarded(fun() -> insert(Key, Family, Labels) end).

guarded(Fun) ->
    try Fun()
    catch error:Reason -> {error, Reason}
    end.

declare(counter, Opts) -> erlane_metrics:gauge(Opts#{mode => updown});
declare(gauge, Opts) -> erlane_metrics:gauge(Opts#{decimals => ?DECIMALS});
declare(histogram, Opts) -> erlane_metrics:histogram(Opts#{input => one}).

insert({Library, Name} = Key, Family, Labels) ->
    Handle = erlane_metrics:handle(Family, Labels),
    Row = case type(erlane_metrics:kind(Handle)) of
              histogram -> {Key, histogram, {Family, Labels}};
              Type -> {Key, Type, Handle}
          end,
    Made = {{made, Library, Name}, Family, Labels, erlang:system_time(millisecond)},
    true = ets:insert(?TABLE, [Row, Made]),
    ok.

type(counter) -> counter;
type(updown) -> counter;
type(gauge) -> gauge;
type(histogram) -> histogram;
type(shared) -> histogram;
type(Kind) -> error({no_bridge_for, Kind}).

deleted({Library, Name} = Key) ->
    case ets:take(?TABLE, {made, Library, Name}) of
        [{_, Family, Labels, _}] ->
            true = ets:delete(?TABLE, Key),
            true = ets:match_delete(?TABLE, {{family, '_'}, Key}),
            erlane_metrics:delete(Family, Labels);
        [] ->
            false
    end.

%% @doc The name of a metric for any term: parts of lists and tuples are joined by `_', and so is
%% every letter replaced that no metric may have.
-spec metric_name(term()) -> binary().
metric_name(Name) ->
    Text = unicode:characters_to_binary(text(Name)),
    case re:replace(Text, "[^a-zA-Z0-9_:]", "_", [global, unicode, {return, binary}]) of
        <<C, _/binary>> = Digit when C >= $0, C =< $9 -> <<$_, Digit/binary>>;
        <<>> -> <<"_">>;
        Plain -> Plain
    end.

text(Atom) when is_atom(Atom) -> atom_to_list(Atom);
text(N) when is_integer(N) -> integer_to_list(N);
text(Bin) when is_binary(Bin) ->
    case unicode:characters_to_list(Bin) of
        List when is_list(List) -> List;
        _ -> binary_to_list(Bin)
    end;
text(Tuple) when is_tuple(Tuple) -> joined(tuple_to_list(Tuple));
text(List) when length(List) > 0 ->
    case io_lib:printable_unicode_list(List) of
        true -> List;
        false -> joined(List)
    end;
text(Term) -> io_lib:format("~w", [Term]).

joined(Parts) -> lists:join("_", [text(Part) || Part <- Parts]).
