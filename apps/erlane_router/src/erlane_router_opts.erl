%% SPDX-License-Identifier: Apache-2.0
%% @doc The configuration: the application's environment, checked once, when it starts.
-module(erlane_router_opts).

-export([defaults/0, check/1]).

-export_type([config/0]).

-type config() :: #{lanes := pos_integer(), bound := pos_integer(),
                    policy := block | drop_newest, max_messages := pos_integer(),
                    max_bytes := pos_integer(), max_age := non_neg_integer(),
                    large := pos_integer()}.

%% @doc `lanes' of each node; `bound', bytes that wait in a lane at most, and the `policy' then;
%% a batch leaves with `max_messages', `max_bytes' or after `max_age' milliseconds; a message of
%% more than `large' bytes is encoded by its sender and has a frame of its own.
-spec defaults() -> config().
defaults() ->
    #{lanes => 4, bound => 8388608, policy => block, max_messages => 1000, max_bytes => 61440,
      max_age => 1, large => 16384}.

%% @doc Completes the options. A wrong one is named: `{Key, unknown_option}' or
%% `{Key, {badarg, Value}}'.
-spec check([{atom(), term()}]) ->
          {ok, config()} | {error, {atom(), unknown_option | {badarg, term()}}}.
check(Env) ->
    check(Env, defaults()).

check([{included_applications, _} | Env], Config) ->
    check(Env, Config);
check([{Key, Value} | Env], Config) when is_map_key(Key, Config) ->
    case valid(Key, Value) of
        true -> check(Env, Config#{Key := Value});
        false -> {error, {Key, {badarg, Value}}}
    end;
check([{Key, _} | _], _) ->
    {error, {Key, unknown_option}};
check([], #{large := Large, max_bytes := Max}) when Large > Max ->
    {error, {large, {badarg, Large}}};
check([], Config) ->
    {ok, Config}.

valid(lanes, N) -> within(N, 1, 64);
%% The word of a lane counts 8 million messages of 16 bytes at least.
valid(bound, N) -> within(N, 4096, 134217728);
valid(policy, Policy) -> Policy =:= block orelse Policy =:= drop_newest;
valid(max_messages, N) -> within(N, 1, 100000);
valid(max_bytes, N) -> within(N, 1024, 16777216);
valid(max_age, N) -> within(N, 0, 1000);
valid(large, N) -> within(N, 256, 16777216).

within(N, Min, Max) -> is_integer(N) andalso N >= Min andalso N =< Max.
