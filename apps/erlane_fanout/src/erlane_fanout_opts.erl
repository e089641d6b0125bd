%% SPDX-License-Identifier: Apache-2.0
%% @doc The configuration, and the options of a subscription: each checked once, at the door.
-module(erlane_fanout_opts).

-export([defaults/0, check/1, subscription/2]).

-export_type([config/0, sub_opts/0, policy/0, mode/0]).

-type config() :: #{lanes := schedulers | pos_integer(), inbox := pos_integer(),
                    limit := pos_integer() | infinity, retained := non_neg_integer(),
                    retained_bytes := non_neg_integer(), forgotten := non_neg_integer()}.
-type policy() :: drop_oldest | drop_newest | {conflate, fun((term()) -> term())}
                | disconnect | block.
-type mode() :: push | pull | frames | {socket, Socket :: term(), Framing :: term()}.
-type sub_opts() :: #{mode := mode(), limit := pos_integer() | infinity, policy := policy(),
                      retained := boolean(), gap_frame => term()}.

%% @doc `lanes': how many, `schedulers': one for each scheduler online at the start; `inbox':
%% bytes that wait in a lane at most; `limit': of a subscription that names none, in bytes;
%% `retained' and `retained_bytes': messages and bytes kept for later subscribers; `forgotten':
%% for how many seconds it is known of a topic that its message was forgotten.
-spec defaults() -> config().
defaults() ->
    #{lanes => schedulers, inbox => 16777216, limit => 1048576, retained => 100000,
      retained_bytes => 67108864, forgotten => 86400}.

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
check([], Config) ->
    {ok, Config}.

valid(lanes, N) -> N =:= schedulers orelse within(N, 1, 1023);
valid(inbox, N) -> within(N, 65536, 1 bsl 32);
valid(limit, N) -> N =:= infinity orelse within(N, 1, 1 bsl 32);
valid(retained, N) -> within(N, 0, 1 bsl 32);
valid(retained_bytes, N) -> within(N, 0, 1 bsl 40);
valid(forgotten, N) -> within(N, 0, 1 bsl 32).

within(N, Min, Max) -> is_integer(N) andalso N >= Min andalso N =< Max.

%% @doc The options of {@link erlane_fanout:subscribe/2}, completed from the configuration.
-spec subscription(map(), config()) ->
          {ok, sub_opts()} | {error, {atom(), unknown_option | {badarg, term()}}}.
subscription(Opts, #{limit := Limit}) when is_map(Opts) ->
    Full = maps:merge(#{mode => push, limit => Limit, policy => drop_oldest, retained => false},
                      Opts),
    case [Bad || {K, V} <- lists:sort(maps:to_list(Full)), Bad <- wrong(K, V, Full)] of
        [] -> {ok, Full};
        [Why | _] -> {error, Why}
    end;
subscription(Opts, _) ->
    {error, {options, {badarg, Opts}}}.

wrong(mode, Mode, _) when Mode =:= push; Mode =:= pull; Mode =:= frames -> [];
wrong(mode, {socket, _, _}, _) -> [];
%% What is kept for those who pull is kept for them alone.
wrong(limit, infinity, #{mode := Mode}) when Mode =:= pull; Mode =:= frames ->
    [{limit, {badarg, infinity}}];
wrong(limit, N, _) -> bad(limit, N, valid(limit, N));
wrong(policy, Policy, #{mode := Mode}) -> bad(policy, Policy, policy(Policy, Mode));
wrong(retained, V, _) -> bad(retained, V, is_boolean(V));
%% Checked by erlane_fanout_socket.
wrong(gap_frame, _, #{mode := {socket, _, _}}) -> [];
wrong(mode, Mode, _) -> [{mode, {badarg, Mode}}];
wrong(Key, _, _) -> [{Key, unknown_option}].

bad(_, _, true) -> [];
bad(Key, Value, false) -> [{Key, {badarg, Value}}].

policy(P, _) when P =:= drop_oldest; P =:= disconnect; P =:= block -> true;
%% One ring serves all who pull: it cannot leave out for one of them.
policy(_, Mode) when Mode =:= pull; Mode =:= frames -> false;
policy({conflate, Fun}, _) -> is_function(Fun, 1);
policy(P, _) -> P =:= drop_newest.
