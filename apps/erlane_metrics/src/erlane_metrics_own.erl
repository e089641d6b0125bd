%% SPDX-License-Identifier: Apache-2.0
%% @doc What the app tells about itself: values that were refused or bent, and where it was full.
%%
%% The array is made once in the life of a VM and stays when the app is restarted.
-module(erlane_metrics_own).

-export([overflowed/0, dropped/0, clamped/0, failed/0, series/1, declarations/0]).

%% @doc A label set was sent to the overflow series.
-spec overflowed() -> ok.
overflowed() -> counters:add(ref(), 1, 1).

%% @doc A negative observation was dropped.
-spec dropped() -> ok.
dropped() -> counters:add(ref(), 2, 1).

%% @doc The value of a gauge did not fit and was clamped.
-spec clamped() -> ok.
clamped() -> counters:add(ref(), 3, 1).

%% @doc A callback raised, took too long or returned something else than numbers.
-spec failed() -> ok.
failed() -> counters:add(ref(), 4, 1).

%% @doc The number of series changed by N.
-spec series(integer()) -> ok.
series(N) -> counters:add(ref(), 5, N).

ref() ->
    case persistent_term:get(?MODULE, none) of
        none ->
            %% Called first by the registry, before anybody has a handle.
            Ref = counters:new(5, [write_concurrency]),
            persistent_term:put(?MODULE, Ref),
            Ref;
        Ref ->
            Ref
    end.

%% @doc The families, for the registry to declare.
-spec declarations() -> [{counter | gauge, map()}].
declarations() ->
    Ref = ref(),
    [{Type, #{name => <<"erlane_metrics_", Name/binary>>, help => Help,
              callback => fun() -> counters:get(Ref, I) end}}
     || {Type, Name, I, Help} <-
            [{counter, <<"overflowed">>, 1,
              <<"Label sets beyond a limit that were sent to an overflow series">>},
             {counter, <<"dropped">>, 2, <<"Negative observations that were dropped">>},
             {counter, <<"clamped">>, 3, <<"Values of gauges that were clamped">>},
             {counter, <<"callback_failures">>, 4, <<"Callbacks that gave no values">>},
             {gauge, <<"series">>, 5, <<"Series that are stored">>}]].
