%% SPDX-License-Identifier: Apache-2.0
%% @doc The options of a listener: checked once, at the door, with an error naming the key.
-module(erlane_proxy_options).

-export([check/1, defaults/0, format_error/1]).

-export_type([config/0]).

-type config() ::
        #{listen := erlane_proxy_address:resolved(),
          to := erlane_proxy_address:resolved(),
          connect_timeout := pos_integer(),
          idle_timeout := pos_integer() | infinity,
          half_close_timeout := pos_integer() | infinity,
          half_close := boolean(),
          max_connections := pos_integer() | infinity,
          acceptors := pos_integer() | per_lane,
          backlog := pos_integer()}.

%% 2^31 - 1 ms: the longest time every receive and every timer below takes.
-define(MAX_MS, 2147483647).

%% @doc The options that have a default, and it.
-spec defaults() -> #{atom() => term()}.
defaults() ->
    #{connect_timeout => 5000,
      idle_timeout => 600000,
      half_close_timeout => 60000,
      half_close => true,
      max_connections => infinity,
      acceptors => per_lane,
      backlog => 1024}.

%% @doc Fills in the defaults, checks every value and looks host names up.
-spec check(map()) -> {ok, config()} | {error, {atom(), term()}}.
check(Opts) ->
    All = maps:merge(defaults(), Opts),
    check([listen, to], lists:sort(maps:to_list(All)), #{}).

check(Missing, [{Key, Value} | Rest], Config) ->
    case value(Key, Value) of
        {ok, Checked} -> check(Missing -- [Key], Rest, Config#{Key => Checked});
        {error, Why} -> {error, {Key, Why}}
    end;
check([Missing | _], [], _Config) ->
    {error, {Missing, missing}};
check([], [], Config) ->
    {ok, Config}.

value(listen, Value) ->
    erlane_proxy_address:resolve(Value);
value(to, {_, 0} = Value) ->
    {error, {badarg, Value}};
value(to, Value) ->
    erlane_proxy_address:resolve(Value);
value(connect_timeout, Ms) ->
    positive(Ms, ?MAX_MS);
value(half_close, Value) when is_boolean(Value) ->
    {ok, Value};
value(Key, infinity) when Key =:= idle_timeout; Key =:= half_close_timeout;
                          Key =:= max_connections ->
    {ok, infinity};
value(Key, Ms) when Key =:= idle_timeout; Key =:= half_close_timeout ->
    positive(Ms, ?MAX_MS);
value(max_connections, N) ->
    positive(N, 1 bsl 40);
value(acceptors, per_lane) ->
    {ok, per_lane};
value(acceptors, N) ->
    positive(N, 1024);
value(backlog, N) ->
    positive(N, 65535);
value(half_close, Value) ->
    {error, {badarg, Value}};
value(_Key, _Value) ->
    {error, unknown_option}.

positive(N, Max) when is_integer(N), N > 0, N =< Max -> {ok, N};
positive(Value, _Max) -> {error, {badarg, Value}}.

%% @doc One line of text, without a newline, for an error of {@link check/1} or of a listen.
-spec format_error({atom(), term()}) -> string().
format_error({name, already_started}) ->
    "a listener of this name is already running";
format_error({Key, unknown_option}) ->
    text("~ts: there is no such option", [Key]);
format_error({Key, missing}) ->
    text("~ts: this option is required", [Key]);
format_error({Key, {badarg, Value}}) ->
    text("~ts: bad value ~0tp", [Key, Value]);
format_error({Key, {nxdomain, Host}}) ->
    text("~ts: there is no host ~ts (nxdomain)", [Key, Host]);
format_error({Key, {Posix, {_, _} = Address}}) when is_atom(Posix) ->
    text("~ts: ~ts: ~ts (~ts)",
         [Key, erlane_proxy_address:format(Address), inet:format_error(Posix), Posix]);
format_error({Key, {Posix, Value}}) when is_atom(Posix) ->
    text("~ts: ~0tp: ~ts (~ts)", [Key, Value, inet:format_error(Posix), Posix]);
format_error(Other) ->
    text("~0tp", [Other]).

text(Format, Args) ->
    lists:flatten(io_lib:format(Format, Args)).
