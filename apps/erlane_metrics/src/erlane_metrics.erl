%% SPDX-License-Identifier: Apache-2.0
%% @doc Metrics without contention: declare a family, resolve a handle once, update it.
%%
%% ```
%% {ok, _} = application:ensure_all_started(erlane_metrics),
%% Requests = erlane_metrics:counter(#{name => <<"http_requests">>, help => <<"Requests">>,
%%                                     labels => [<<"method">>]}),
%% Get = erlane_metrics:handle(Requests, [get]),
%% ok = erlane_metrics:inc(Get),
%% 1 = erlane_metrics:value(Get).
%% '''
%%
%% An update of a counter, an up-down gauge, a group or a histogram writes into memory of the
%% caller's own scheduler. It asks no process, takes no lock and reads no table, and goes on
%% working when the registry restarts.
%%
%% Updates never raise for a number of their type. Another type, a negative number added to a
%% counter, and an integer of more than 64 bits, digits after the point included, are `badarg'.
%% Counters and sums of histograms count modulo 2^64, up-down gauges wrap at 2^63.
%%
%% A handle outlives its series: updates after {@link delete/2} go nowhere.
-module(erlane_metrics).

-export([counter/1, gauge/1, histogram/1, summary/1, group/1, info/1, state_set/1]).
-export([handle/2, delete/2, alive/1]).
-export([inc/1, add/2, add/3, dec/1, set/2, observe/2]).
-export([kind/1, value/1, number/1, merge/2, quantile/2, snapshot/0, snapshot/1]).
-export([negotiate/1, expose/3, print/0, collector/2]).

-export_type([family/0, handle/0, labels/0, options/0, hist/0]).

-include("erlane_metrics.hrl").

-opaque family() :: {?MODULE, Name :: binary(), Labels :: non_neg_integer()}.
-opaque handle() :: tuple().
-type labels() :: erlane_metrics_name:labels().
-type hist() :: erlane_metrics_hist:hist().
-type options() ::
        #{name := binary(), help := binary(), unit => binary(), labels => [binary()],
          limit => pos_integer(), ttl => pos_integer() | infinity, atom() => term()}.
%% `limit': label sets, default 2000; more share one series. `ttl': seconds a series may stay
%% unchanged before it is deleted. A unit becomes the end of the name. Every declaring function
%% returns the first family when it is declared again in the same way, and raises
%% `{bad_option, Key, Why}' for a wrong option, for another declaration of the name, and when a
%% name on the page would belong to two families.

%% @doc A counter. `spread': `dense' (default), 63 series in one array, or `own', an array for
%% each. `decimals' (0 to 9): digits after the point that are kept. `callback': a function
%% instead of handles, called at each scrape for a number or `[{Labels, Number}]'.
-spec counter(options()) -> family().
counter(Opts) -> declare(counter, Opts).

%% @doc A gauge. `mode': `set' (default), or `updown' for one that many processes increment and
%% decrement and none sets. `decimals' and `callback' as for {@link counter/1}.
-spec gauge(options()) -> family().
gauge(Opts) -> declare(gauge, Opts).

%% @doc A histogram. `input': what is observed, `nanosecond' (default) or `microsecond', exposed
%% as seconds, or `one', plain numbers, summed with `decimals' (default 6) digits. `scale': 1 to
%% 6, default 3, quantiles are then right to 4.3 %. `range': `{Min, Max}' in the exposed unit,
%% rounded away to powers of two; default 2^-20 to 2^12 seconds, for `one' 2^-10 to 2^30.
%% `buckets': upper edges in the exposed unit in place of scale and range. `spread': `schedulers'
%% (default), or `shared', one array that all schedulers contend for.
-spec histogram(options()) -> family().
histogram(Opts) -> declare(histogram, Opts).

%% @doc A histogram that is exposed as a summary. `quantiles': default 0.5, 0.9 and 0.99; their
%% error is that of the histogram, of all that was observed since the series was made.
-spec summary(options()) -> family().
summary(Opts) -> declare(summary, Opts).

%% @doc Up to 8 counters of one resource side by side, `counters := [{Name, Help}]', exposed as
%% one family each, `Group_Name_total'.
-spec group(options()) -> family().
group(Opts) -> declare(group, Opts).

%% @doc An info: pairs of text, given with {@link set/2}.
-spec info(options()) -> family().
info(Opts) -> declare(info, Opts).

%% @doc A set of states, `states := [binary()]', 62 at most.
-spec state_set(options()) -> family().
state_set(Opts) -> declare(stateset, Opts).

declare(Type, Opts) ->
    case erlane_metrics_registry:declare(Type, Opts) of
        {ok, #{name := Name, labels := Labels}} -> {?MODULE, Name, length(Labels)};
        {error, {Key, Why}} -> error({bad_option, Key, Why}, [Opts])
    end.

%% @doc The handle of a series, which is made if there is none. One table read; keep it where it
%% is used often. Labels are in the declared order; `200' and `<<"200">>' are the same. Errors:
%% `{bad_labels, {expected, N}, Labels}', `{bad_label_value, Label, Why}' (values are UTF-8 of
%% at most 4096 bytes), `{not_declared, Name}' after a restart of the app, `callback_family'.
-spec handle(family(), labels()) -> handle().
handle({?MODULE, Name, N}, Labels) ->
    Key = {Name, erlane_metrics_name:normal(Labels, N)},
    case ets:lookup(?SERIES, Key) of
        [{_, Stored}] -> erlane_metrics_read:live(Stored);
        [] -> unknown(Key)
    end.

unknown({Name, Labels}) ->
    case ets:lookup(?SERIES, {Name, overflow}) of
        [{_, Stored, true}] ->
            erlane_metrics_own:overflowed(),
            erlane_metrics_read:live(Stored);
        _ ->
            Made = case erlane_metrics_registry:declared(Name) of
                       {ok, #{store := callback}} -> {error, callback_family};
                       {ok, #{labels := Names}} ->
                           case erlane_metrics_name:check_values(Names, Labels) of
                               ok -> erlane_metrics_registry:create(Name, Labels);
                               Error -> Error
                           end;
                       Error -> Error
                   end,
            case Made of
                {ok, Stored} -> erlane_metrics_read:live(Stored);
                {error, Reason} -> error(Reason, [Name, Labels])
            end
    end.

%% @doc Deletes a series; false if there is none. What is updated afterwards through handles
%% that are still held is seen by nobody; the next {@link handle/2} makes a new series.
-spec delete(family(), labels()) -> boolean().
delete({?MODULE, Name, N}, Labels) ->
    erlane_metrics_registry:delete(Name, erlane_metrics_name:normal(Labels, N)).

%% @doc Whether the series of a handle was not deleted.
-spec alive(handle()) -> boolean().
alive(Handle) -> erlane_metrics_read:alive(Handle).

%% @doc Adds 1.
-spec inc(handle()) -> ok.
inc({counter, Ref, Ix}) -> counters:add(Ref, Ix, 1);
inc(Handle) -> add(Handle, 1).

%% @doc Takes 1 from a gauge.
-spec dec(handle()) -> ok.
dec({updown, Ref, Ix, Mul}) -> counters:add(Ref, Ix, -Mul);
dec({gauge, Ref, Ix, Mul}) -> erlane_metrics_gauge:add(Ref, Ix, Mul, -1);
dec(Handle) -> error(badarg, [Handle]).

%% @doc Adds a number: to a counter one that is not negative, to a gauge any. Without `decimals'
%% a float is badarg for a counter and is rounded for a gauge.
-spec add(handle(), number()) -> ok.
add({counter, Ref, Ix}, N) when is_integer(N), N >= 0 -> counters:add(Ref, Ix, N);
add({counter, Ref, Ix, Mul}, N) when is_integer(N), N >= 0 -> counters:add(Ref, Ix, N * Mul);
add({counter, Ref, Ix, Mul}, N) when is_float(N), N >= 0, N < 1.0e19 ->
    counters:add(Ref, Ix, round(N * Mul));
add({updown, Ref, Ix, Mul}, N) when is_integer(N) -> counters:add(Ref, Ix, N * Mul);
add({updown, Ref, Ix, Mul}, N) when is_float(N), N < 1.0e19, N > -1.0e19 ->
    counters:add(Ref, Ix, round(N * Mul));
add({gauge, Ref, Ix, Mul}, N) when is_number(N) -> erlane_metrics_gauge:add(Ref, Ix, Mul, N);
add(Handle, N) -> error(badarg, [Handle, N]).

%% @doc Adds to the I-th counter of a group.
-spec add(handle(), 1..8, non_neg_integer()) -> ok.
add({group, Ref, _}, I, N) when is_integer(N), N >= 0 -> counters:add(Ref, I, N);
add(Handle, I, N) -> error(badarg, [Handle, I, N]).

%% @doc Sets a gauge to a number, `nan', `infinity' or `neg_infinity'; a state set to one state
%% or a list of them; an info to a list of pairs of binaries, whose keys are names of labels.
%% What does not fit into 63 bits with the gauge's decimals is clamped and counted.
-spec set(handle(), number() | nan | infinity | neg_infinity | binary() | [binary()]
          | [{binary(), binary()}]) -> ok.
set({gauge, Ref, Ix, Mul}, Value) -> erlane_metrics_gauge:set(Ref, Ix, Mul, Value);
set({stateset, Ref, Ix, States}, State) when is_binary(State) ->
    erlane_metrics_gauge:set_states(Ref, Ix, States, [State]);
set({stateset, Ref, Ix, States}, Active) when is_list(Active) ->
    erlane_metrics_gauge:set_states(Ref, Ix, States, Active);
set({info, Unique, Key}, Pairs) when is_list(Pairs) ->
    erlane_metrics_gauge:set_info(Unique, Key, Pairs);
set(Handle, Value) -> error(badarg, [Handle, Value]).

%% @doc Counts a value in a histogram or summary, in its `input'. A negative value is dropped
%% and counted as dropped; one above the range counts as `over', and as the maximum in the sum.
-spec observe(handle(), number()) -> ok.
observe(Handle, V) -> erlane_metrics_observe:observe(Handle, V).

%% @doc The value of a series now: of a counter or gauge an integer (with `decimals' in units of
%% the last digit; a gauge may be `nan', `infinity', `neg_infinity'), of a group a tuple, of a
%% histogram or summary a {@link hist()}, of a state set a list of booleans, of an info pairs.
-spec value(handle()) -> term().
value(Handle) -> erlane_metrics_read:value(Handle).

%% @doc The value of a counter or gauge as the number that it is, with its decimals.
-spec number(handle()) -> number() | nan | infinity | neg_infinity.
number(Handle) -> erlane_metrics_read:number(Handle).

%% @doc What the handle is one of; `updown' is a gauge, `shared' a histogram or summary.
-spec kind(handle()) ->
          counter | updown | gauge | group | histogram | shared | stateset | info.
kind(Handle) -> element(1, Handle).

%% @doc Adds two histograms of the same declaration; exact.
-spec merge(hist(), hist()) -> hist().
merge(A, B) -> erlane_metrics_hist:merge(A, B).

%% @doc See {@link erlane_metrics_hist:quantile/2}.
-spec quantile(hist(), number()) ->
          {erlane_metrics_hist:edge(), erlane_metrics_hist:edge(), erlane_metrics_hist:edge()}.
quantile(Hist, Q) -> erlane_metrics_hist:quantile(Hist, Q).

%% @doc All series of a family; the key of the overflow series is `overflow'. Rates are the
%% differences of two snapshots: reading resets nothing.
-spec snapshot(family()) -> #{[binary()] | overflow => term()}.
snapshot({?MODULE, Name, _}) -> erlane_metrics_snapshot:family(Name).

%% @doc The snapshots of all families but those with callbacks, by name.
-spec snapshot() -> #{binary() => #{[binary()] | overflow => term()}}.
snapshot() -> erlane_metrics_snapshot:all().

%% @doc The format that an HTTP Accept header asks for.
-spec negotiate(binary() | undefined) -> erlane_metrics_accept:format().
negotiate(Accept) -> erlane_metrics_accept:negotiate(Accept).

%% @doc Writes a page; see {@link erlane_metrics_expose}.
-spec expose(erlane_metrics_accept:format(), fun((iodata(), Acc) -> Acc), Acc) -> Acc.
expose(Format, Fun, Acc) -> erlane_metrics_expose:expose(Format, Fun, Acc).

%% @doc Prints a table for people.
-spec print() -> ok.
print() -> erlane_metrics_print:print().

%% @doc Starts a collector; see {@link erlane_metrics_collector}.
-spec collector(atom(), map()) -> ok | {error, term()}.
collector(Name, Opts) -> erlane_metrics_collector:start(Name, Opts).
