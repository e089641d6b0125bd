%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads `--name VALUE' and `--flag' options by a table. Pure.
-module(erlane_cli_options).

-export([parse/2]).

-export_type([spec/0, kind/0]).

-type kind() :: flag | address | {integer, Min :: integer(), Max :: integer() | infinity}
              | {integer_or_infinity, Min :: integer()} | text | {one_of, [atom()]}
              | {seconds, Min :: number(), Max :: number()} | two_texts.
%% `argument' stands for the one word that needs no name before it.
-type spec() :: #{Name :: string() | argument => {Key :: atom(), kind()}}.

%% @doc The options as a map; a sentence if something is wrong. An option given twice keeps
%% its last value. `--name=VALUE' is read too. Seconds become milliseconds.
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
parse([Arg | Rest], Spec, Opts) ->
    case Spec of
        #{argument := {Key, text}} when not is_map_key(Key, Opts) ->
            parse(Rest, Spec, Opts#{Key => Arg});
        _ ->
            {error, "unexpected argument " ++ Arg}
    end.

value(Name, [], _Key, _Kind, _Spec, _Opts) ->
    {error, Name ++ " needs a value"};
value(Name, ["--" ++ _ | _], _Key, _Kind, _Spec, _Opts) ->
    {error, Name ++ " needs a value"};
value(_Name, [First, [C | _] = Second | Rest], Key, two_texts, Spec, Opts) when C =/= $- ->
    parse(Rest, Spec, Opts#{Key => {First, Second}});
value(Name, _, _Key, two_texts, _Spec, _Opts) ->
    {error, Name ++ " needs two values"};
value(Name, [Text | Rest], Key, Kind, Spec, Opts) ->
    case convert(Kind, Text) of
        {ok, Value} -> parse(Rest, Spec, Opts#{Key => Value});
        {error, Why} -> {error, Name ++ " " ++ Text ++ ": " ++ Why}
    end.

convert(address, Text) ->
    erlane_proxy_address:parse(Text);
convert(text, Text) ->
    {ok, Text};
convert({one_of, Words}, Text) ->
    case [Word || Word <- Words, atom_to_list(Word) =:= Text] of
        [Word] -> {ok, Word};
        [] -> {error, lists:flatten(["is none of " | lists:join(", ", [atom_to_list(Word)
                                                                       || Word <- Words])])}
    end;
convert({seconds, Min, Max}, Text) ->
    %% 2 and 0.5 both.
    case string:to_float(Text ++ [$. || not lists:member($., Text)] ++ "0") of
        {Seconds, ""} when Seconds >= Min, Seconds =< Max -> {ok, round(Seconds * 1000)};
        {Seconds, ""} when is_float(Seconds) ->
            {error, lists:flatten(io_lib:format("must be from ~w to ~w", [Min, Max]))};
        _ -> {error, "is no number of seconds"}
    end;
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
