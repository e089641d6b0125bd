%% SPDX-License-Identifier: Apache-2.0
%% @doc The last results of the collectors, and how scrapes read them.
%%
%% The table has a row for each collector, `{Name, State, Pid, Collected, Micros, Failures,
%% Shown, Read}', and one for each of its families, `{{values, Family}, Name, Values}', with
%% `none' for the values of a family that was only claimed. `Collected' and `Read' are monotonic
%% milliseconds; values older than `Shown' milliseconds are on no page.
%%
%% Only `Read' is written by scrapes, everything else by the collector, so nothing is lost when
%% they do it at the same time.
-module(erlane_metrics_collected).

-export([new/0, insert/3, enter/2, leave/1, state/2, done/4, failed/1, claim/2, delete/1]).
-export([info/0, last_read/1, values/1, declarations/0]).

-export_type([values/0]).

-type values() :: number() | nan | infinity | neg_infinity
                | [{erlane_metrics:labels(), number() | nan | infinity | neg_infinity}].
-type family() :: binary().

-define(TABLE, ?MODULE).
-define(STATE, 2).
-define(PID, 3).
-define(COLLECTED, 4).
-define(MICROS, 5).
-define(FAILURES, 6).
-define(SHOWN, 7).
-define(READ, 8).

%% How long a page waits for collectors that were asleep, in all.
-define(WAKE_MS, 400).

%% @doc Makes the table; the caller owns it.
-spec new() -> ok.
new() ->
    ?TABLE = ets:new(?TABLE, [set, public, named_table, {read_concurrency, true}]),
    ok.

%% @doc A collector begins, asleep. Its former results stay, if it was there before.
-spec insert(atom(), pid(), pos_integer()) -> ok.
insert(Name, Pid, Shown) ->
    case ets:insert_new(?TABLE, {Name, asleep, Pid, undefined, 0, 0, Shown, now_ms()}) of
        true ->
            ok;
        false ->
            true = ets:update_element(?TABLE, Name, [{?PID, Pid}, {?STATE, asleep},
                                                     {?SHOWN, Shown}]),
            ok
    end.

%% @doc Keeps what a switch of the VM was before a collector turned it on. What is kept already
%% stays: it is from before the first of several, of which one was killed.
-spec enter(atom(), boolean()) -> boolean().
enter(Switch, Before) ->
    ets:insert_new(?TABLE, {{switch, Switch}, Before}).

%% @doc What the switch was, to be put back. If nobody kept it, nobody turned it on.
-spec leave(atom()) -> boolean().
leave(Switch) ->
    case ets:take(?TABLE, {switch, Switch}) of
        [{_, Before}] -> Before;
        [] -> true
    end.

%% @doc Whether a scrape shall wake the collector first.
-spec state(atom(), awake | asleep) -> ok.
state(Name, State) ->
    true = ets:update_element(?TABLE, Name, {?STATE, State}),
    ok.

%% @doc New results: they replace all former ones.
-spec done(atom(), [{family(), values()}], [family()], non_neg_integer()) -> ok.
done(Name, Results, Families, Micros) ->
    Missing = [{F, none} || F <- Families, not lists:keymember(F, 1, Results)],
    true = ets:insert(?TABLE, [{{values, F}, Name, V} || {F, V} <- Results ++ Missing]),
    true = ets:update_element(?TABLE, Name, [{?COLLECTED, now_ms()}, {?MICROS, Micros}]),
    ok.

%% @doc Counts a run that failed.
-spec failed(atom()) -> ok.
failed(Name) ->
    _ = ets:update_counter(?TABLE, Name, {?FAILURES, 1}),
    ok.

%% @doc Makes a collector the one source of these families.
-spec claim(atom(), [family()]) -> ok | {error, {belongs_to, family(), atom()}}.
claim(Name, Families) ->
    case [{F, Other} || F <- Families,
                        not ets:insert_new(?TABLE, {{values, F}, Name, none}),
                        Other <- [ets:lookup_element(?TABLE, {values, F}, 2)], Other =/= Name] of
        [] -> ok;
        [{F, Other} | _] -> {error, {belongs_to, F, Other}}
    end.

%% @doc Forgets a collector.
-spec delete(atom()) -> ok.
delete(Name) ->
    true = ets:delete(?TABLE, Name),
    true = ets:match_delete(?TABLE, {{values, '_'}, Name, '_'}),
    ok.

%% @doc All collectors: age and duration of the last result that there is, failures so far.
-spec info() -> #{atom() => #{state := awake | asleep, pid := pid(), age_ms => integer(),
                              duration_us => non_neg_integer(), failures := non_neg_integer()}}.
info() ->
    Now = now_ms(),
    maps:from_list([{element(1, Row), about(Row, Now)} || Row <- rows()]).

about({_, State, Pid, Collected, Micros, Failures, _, _}, Now) ->
    Base = #{state => State, pid => Pid, failures => Failures},
    case Collected of
        undefined -> Base;
        _ -> Base#{age_ms => Now - Collected, duration_us => Micros}
    end.

%% @doc When a scrape last asked for results of this collector.
-spec last_read(atom()) -> integer().
last_read(Name) ->
    ets:lookup_element(?TABLE, Name, ?READ).

%% @doc What a page shows of a family: nothing, if the result is missing or too old.
-spec values(family()) -> values().
values(Family) ->
    case owner(Family) of
        {_, asleep, Pid, _, _, _, _, _} = Row ->
            wake([{element(1, Row), Pid}]),
            fresh(Family, owner(Family));
        Row ->
            fresh(Family, Row)
    end.

fresh(_, none) ->
    [];
fresh(Family, {Name, _, _, Collected, _, _, Shown, _}) ->
    Now = now_ms(),
    %% False when it has been stopped meanwhile.
    _ = ets:update_element(?TABLE, Name, {?READ, Now}),
    case ets:lookup(?TABLE, {values, Family}) of
        [{_, Name, Values}] when is_integer(Collected), Now - Collected =< Shown,
                                 Values =/= none -> Values;
        _ -> []
    end.

owner(Family) ->
    case ets:select(?TABLE, [{{{values, Family}, '$1', '_'}, [], ['$1']}]) of
        [Name] -> hd(ets:lookup(?TABLE, Name) ++ [none]);
        [] -> none
    end.

%% Asks all at once, and waits for all together. Once asked a collector is awake: whoever comes
%% after it timed out here does not wait for it again.
wake(Collectors) ->
    Requests = [gen_server:send_request(Pid, wake) || {_, Pid} <- Collectors],
    Deadline = now_ms() + ?WAKE_MS,
    lists:foreach(fun(Request) ->
                          gen_server:receive_response(Request, max(0, Deadline - now_ms()))
                  end, Requests).

%% @doc The families that tell about the collectors. The age is on a page before everything that
%% a collector gives, so it is there that all that sleep are woken together.
-spec declarations() -> [{counter | gauge, map()}].
declarations() ->
    [{gauge, own(<<"age">>, <<"Age of the last result of a collector">>,
                 #{unit => <<"seconds">>, decimals => 3, callback => fun ages/0})},
     {gauge, own(<<"duration">>, <<"Time that the last result of a collector took">>,
                 #{unit => <<"seconds">>, decimals => 6, callback => fun durations/0})},
     {counter, own(<<"failures">>, <<"Runs of a collector that crashed or took too long">>,
                   #{callback => fun failures/0})}].

own(Name, Help, Opts) ->
    Opts#{name => <<"erlane_metrics_collector_", Name/binary>>, help => Help,
          labels => [<<"collector">>]}.

ages() ->
    ok = wake([{Name, Pid} || {Name, asleep, Pid, _, _, _, _, _} <- rows()]),
    Now = now_ms(),
    [{[Name], (Now - Collected) / 1000.0}
     || {Name, _, _, Collected, _, _, _, _} <- rows(), is_integer(Collected)].

durations() ->
    [{[Name], Micros / 1.0e6}
     || {Name, _, _, Collected, Micros, _, _, _} <- rows(), is_integer(Collected)].

failures() ->
    [{[Name], Failures} || {Name, _, _, _, _, Failures, _, _} <- rows()].

rows() ->
    lists:sort(ets:match_object(?TABLE, {'_', '_', '_', '_', '_', '_', '_', '_'})).

now_ms() -> erlang:monotonic_time(millisecond).
