%% SPDX-License-Identifier: Apache-2.0
%% @doc The options of an inbox, checked once, where it is made. Pure.
-module(erlane_batch_opts).

-export([defaults/0, check/1]).

-export_type([options/0, config/0]).

-type options() :: #{count => pos_integer(), bytes => pos_integer() | infinity,
                     age => pos_integer() | infinity, idle => boolean(),
                     bound => pos_integer(), policy => block | drop_newest}.
-type config() :: #{count := pos_integer(), bytes := pos_integer() | infinity,
                    age := pos_integer() | infinity, idle := boolean(),
                    bound := pos_integer(), policy := block | drop_newest}.

%% @doc A batch leaves with `count' messages, with `bytes', after `age' milliseconds, or, if
%% `idle' is set, when nothing more waits in the mailbox of its producer. `bound' messages are
%% with the consumer at most; `policy' says what happens to more.
-spec defaults() -> config().
defaults() ->
    #{count => 64, bytes => 65536, age => 50, idle => true, bound => 4096, policy => block}.

%% @doc Completes the options. A wrong one is named: `{Key, unknown_option}' or
%% `{Key, {badarg, Value}}'.
-spec check(map()) ->
          {ok, config()} | {error, {term(), unknown_option | {badarg, term()}}}.
check(Options) ->
    check(lists:sort(maps:to_list(Options)), defaults()).

check([{Key, Value} | Rest], Config) when is_map_key(Key, Config) ->
    case valid(Key, Value) of
        true -> check(Rest, Config#{Key := Value});
        false -> {error, {Key, {badarg, Value}}}
    end;
check([{Key, _} | _], _) ->
    {error, {Key, unknown_option}};
check([], #{count := Count, bound := Bound}) when 2 * Count > Bound ->
    %% Producers that wait are told at half of the bound, and then their batch must fit.
    {error, {bound, {badarg, Bound}}};
check([], Config) ->
    {ok, Config}.

valid(count, N) -> within(N, 1, 100000);
valid(bytes, N) -> N =:= infinity orelse within(N, 1, 1 bsl 30);
valid(age, N) -> N =:= infinity orelse within(N, 1, 3600000);
valid(idle, Bool) -> is_boolean(Bool);
valid(bound, N) -> within(N, 2, 1 bsl 30);
valid(policy, Policy) -> Policy =:= block orelse Policy =:= drop_newest.

within(N, Min, Max) -> is_integer(N) andalso N >= Min andalso N =< Max.
