%% SPDX-License-Identifier: Apache-2.0
%% @doc Names, labels and their text: pure functions.
-module(erlane_metrics_name).

-export([check_metric/1, check_label/1, samples/2, normal/2, check_values/2, text/2, pairs/2]).

-export_type([labels/0, value/0]).

-define(MAX_NAME, 255).
-define(MAX_VALUE, 4096).

-type value() :: binary() | atom() | integer().
-type labels() :: [value()].

%% @doc Whether this can be the name of a metric: `[a-zA-Z_:][a-zA-Z0-9_:]*', 255 bytes.
-spec check_metric(term()) -> ok | {error, term()}.
check_metric(Name) -> check(Name, "^[a-zA-Z_:][a-zA-Z0-9_:]*\\z").

%% @doc Whether this can be the name of a label: `[a-zA-Z_][a-zA-Z0-9_]*', 255 bytes, not two
%% underscores in front.
-spec check_label(term()) -> ok | {error, term()}.
check_label(<<"__", _/binary>> = Name) -> {error, {reserved, Name}};
check_label(<<"otel_metric_overflow">> = Name) -> {error, {reserved, Name}};
check_label(Name) -> check(Name, "^[a-zA-Z_][a-zA-Z0-9_]*\\z").

check(Name, _) when not is_binary(Name) -> {error, {not_binary, Name}};
check(Name, _) when byte_size(Name) > ?MAX_NAME -> {error, {too_long, byte_size(Name)}};
check(Name, Pattern) ->
    case re:run(Name, Pattern, [{capture, none}]) of
        match -> ok;
        nomatch -> {error, {bad_name, Name}}
    end.

%% @doc Every name a family of this type puts on a page; two families may share none.
-spec samples(atom(), binary()) -> [binary()].
samples(Type, Name) ->
    Suffixes = case Type of
                   counter -> [<<"_total">>, <<"_created">>];
                   histogram -> [<<"_bucket">>, <<"_count">>, <<"_sum">>, <<"_created">>];
                   summary -> [<<"_count">>, <<"_sum">>, <<"_created">>];
                   info -> [<<"_info">>];
                   _ -> []
               end,
    [Name | [<<Name/binary, S/binary>> || S <- Suffixes]].

%% @doc Label values as binaries, so that `200', `<<"200">>' and `'200'' are one series. A list
%% of `N' binaries is returned as it is; their bytes are looked at when a series is made.
-spec normal(labels(), non_neg_integer()) -> [binary()].
normal(Labels, N) ->
    case plain(Labels, N) of
        true -> Labels;
        false when is_list(Labels), length(Labels) =:= N -> [one(L) || L <- Labels];
        false -> error({bad_labels, {expected, N}, Labels})
    end.

plain([L | Rest], N) when is_binary(L) -> plain(Rest, N - 1);
plain([], 0) -> true;
plain(_, _) -> false.

one(L) when is_binary(L) -> L;
one(L) when is_atom(L) -> atom_to_binary(L, utf8);
one(L) when is_integer(L) -> integer_to_binary(L);
one(L) -> error({bad_label_value, not_binary_atom_or_integer, L}).

%% @doc Label values must be UTF-8 and at most 4096 bytes; the error names the label.
-spec check_values([binary()], [binary()]) -> ok | {error, term()}.
check_values([Name | Names], [Value | Values]) ->
    if
        byte_size(Value) > ?MAX_VALUE ->
            {error, {bad_label_value, Name, {too_long, byte_size(Value)}}};
        true ->
            case unicode:characters_to_binary(Value) of
                Value -> check_values(Names, Values);
                _ -> {error, {bad_label_value, Name, {not_utf8, Value}}}
            end
    end;
check_values([], []) -> ok.

%% @doc The labels as they stand on a page, without braces: `method="GET",code="200"'.
-spec text([binary()], [binary()] | overflow) -> binary().
text(Names, Values) ->
    Parts = [[Name, $=, $", escape(Value), $"] || {Name, Value} <- pairs(Names, Values)],
    iolist_to_binary(lists:join($,, Parts)).

%% @doc Names and values side by side; those of the overflow series stand for all the rest.
-spec pairs([binary()], [binary()] | overflow) -> [{binary(), binary()}].
pairs(_, overflow) -> [{<<"otel_metric_overflow">>, <<"true">>}];
pairs(Names, Values) -> lists:zip(Names, Values).

escape(Value) ->
    << <<(case C of
              $\\ -> <<"\\\\">>;
              $" -> <<"\\\"">>;
              $\n -> <<"\\n">>;
              _ -> <<C>>
          end)/binary>> || <<C>> <= Value >>.
