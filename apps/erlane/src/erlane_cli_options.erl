%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads `--name VALUE' and `--flag' options by a table. Pure.
-module(erlane_cli_options).

-export([parse/2]).

-export_type([spec/0, kind/0]).

-type kind() :: flag | address | {integer, Min :: integer(), Max :: integer() | infinity}
              | {integer_or_infinity, Min :: integer()}.
-type spec() :: #{Name :: string() => {Key :: atom(), kind()}}.

%% @doc The options as a map; a sentence if something is wrong. An option given twice keeps
%% its last value. `--name=VALUE' is read too.
-spec parse([string()], spec()) -> {ok, #{atom() => term()}} | {error, string()}.
parse(Args, Spec) ->
    parse(Args, Spec, #{}).

parse([], _Spec, Opts) ->
    {ok, Opts};
parse(["--" ++ _ = Arg | Rest], Spec, Opts) ->
    {Name, Values} = case string:split(Arg, "=") of
                         [N, Value] -> {N, [Value | Rest]};
                         [N] -> {N, Rest}
                     end,
    case Spec of
        #{Name := {Key, flag}} when Name =:= Arg ->
            parse(Rest, Spec, Opts#{Key => true});
        #{Name := {_Key, flag}} ->
            {error, Name ++ " takes no value"};
        #{Name := {Key, Kind}} ->
            value(Name, Values, Key, Kind, Spec, Opts);
        _ ->
            {error, "there is no option " ++ Name}
    end;
parse([Arg | _], _Spec, _Opts) ->
    {error, "unexpected argument " ++ Arg}.

value(Name, [], _Key, _Kind, _Spec, _Opts) ->
    {error, Name ++ " needs a value"};
value(Name, ["--" ++ _ | _], _Key, _Kind, _Spec, _Opts) ->
    {error, Name ++ " needs a value"};
value(Name, [Text | Rest], Key, Kind, Spec, Opts) ->
    case convert(Kind, Text) of
        {ok, Value} -> parse(Rest, Spec, Opts#{Key => Value});
        {error, Why} -> {error, Name ++ " " ++ Text ++ ": " ++ Why}
    end.

convert(address, Text) ->
    erlane_proxy_address:parse(Text);
convert({integer_or_infinity, _Min}, "infinity") ->
    {ok, infinity};
convert({integer_or_infinity, Min}, Text) ->
    convert({integer, Min, infinity}, Text);
convert({integer, Min, Max}, Text) ->
    case string:to_integer(Text) of
        %% Any atom is greater than any number, infinity too.
        {N, ""} when N >= Min, N =< Max -> {ok, N};
        {_, ""} -> {error, lists:flatten(io_lib:format("must be at least ~b", [Min]))
                    ++ [[" and at most " ++ integer_to_list(Max)] || is_integer(Max)]};
        _ -> {error, "is not a whole number"}
    end.
