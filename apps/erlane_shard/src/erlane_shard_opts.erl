%% SPDX-License-Identifier: Apache-2.0
%% @doc The options of a set of shards, checked once, when it is started.
-module(erlane_shard_opts).

-export([defaults/0, check/1]).

-export_type([options/0, config/0]).

-type options() :: #{shards => schedulers | pos_integer(), pinned => boolean(),
                     bound => pos_integer(), hot => non_neg_integer(),
                     module => {module(), Args :: term()}}.
-type config() :: #{shards := schedulers | pos_integer(), pinned := boolean(),
                    bound := pos_integer(), hot := non_neg_integer(),
                    module := {module(), Args :: term()}}.

%% @doc `shards': one for each scheduler that is online, or a number; `pinned': each stays on its
%% scheduler; `bound': messages of one sender that wait in one shard at most; `hot': keys that each
%% shard watches for the hot-key report, 0 for none; `module': own logic.
-spec defaults() -> config().
defaults() ->
    #{shards => schedulers, pinned => false, bound => 200, hot => 32,
      module => {erlane_shard_values, []}}.

%% @doc Completes the options. A wrong one is named: `{Key, unknown_option}' or
%% `{Key, {badarg, Value}}'.
-spec check(term()) ->
          {ok, config()} | {error, {term(), unknown_option | {badarg, term()}}}.
check(Options) when is_map(Options) ->
    check(lists:sort(maps:to_list(Options)), defaults());
check(Options) ->
    {error, {options, {badarg, Options}}}.

check([{Key, Value} | Options], Config) when is_map_key(Key, Config) ->
    case valid(Key, Value) of
        true -> check(Options, Config#{Key := Value});
        false -> {error, {Key, {badarg, Value}}}
    end;
check([{Key, _} | _], _) ->
    {error, {Key, unknown_option}};
check([], Config) ->
    {ok, Config}.

%% There are no more shards than slots.
valid(shards, N) -> N =:= schedulers orelse within(N, 1, 256);
valid(pinned, Pinned) -> is_boolean(Pinned);
valid(bound, N) -> within(N, 1, 1000000);
valid(hot, N) -> within(N, 0, 10000);
valid(module, {Module, _Args}) ->
    is_atom(Module) andalso code:ensure_loaded(Module) =:= {module, Module}
        andalso lists:all(fun({F, A}) -> erlang:function_exported(Module, F, A) end,
                          [{init, 1}, {handle_call, 3}, {handle_cast, 3}]);
valid(module, _) -> false.

within(N, Min, Max) -> is_integer(N) andalso N >= Min andalso N =< Max.
