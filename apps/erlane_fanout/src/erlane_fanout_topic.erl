%% SPDX-License-Identifier: Apache-2.0
%% @doc Topics and filters: pure functions.
%%
%% A topic is any term that is no list. A binary has levels, divided by `/', and a filter of that
%% kind may have the wildcards of MQTT: `+' is one level, `#' at the end all that follow, and the
%% level before it. At the first level no wildcard matches a topic that begins with `$'. Every
%% other topic is its own filter.
-module(erlane_fanout_topic).

-export([levels/1, is_wild/1, check_filter/1, check_topic/1, matches/2]).

-export_type([topic/0, filter/0]).

-type topic() :: term().
-type filter() :: term().

%% @doc The levels of a topic or filter: `[<<"a">>, <<>>]' for `<<"a/">>'.
-spec levels(binary()) -> [binary()].
levels(Topic) -> binary:split(Topic, <<"/">>, [global]).

%% @doc Has the filter a wildcard?
-spec is_wild(filter()) -> boolean().
is_wild(Filter) when is_binary(Filter) -> not plain(Filter);
is_wild(_) -> false.

plain(<<C, _/binary>>) when C =:= $+; C =:= $# -> false;
plain(<<_, Rest/binary>>) -> plain(Rest);
plain(<<>>) -> true.

%% @doc May it be subscribed to? `+' and `#' stand alone in their level, `#' in the last one.
-spec check_filter(term()) -> ok | {error, {filter, {badarg, term()}}}.
check_filter(Filter) when is_list(Filter) ->
    {error, {filter, {badarg, Filter}}};
check_filter(Filter) when is_binary(Filter) ->
    case plain(Filter) orelse well_formed(levels(Filter)) of
        true -> ok;
        false -> {error, {filter, {badarg, Filter}}}
    end;
check_filter(_) -> ok.

well_formed([<<"#">>]) -> true;
well_formed([<<"+">>]) -> true;
well_formed([Level]) -> plain(Level);
well_formed([<<"+">> | Rest]) -> well_formed(Rest);
well_formed([Level | Rest]) -> plain(Level) andalso well_formed(Rest).

%% @doc May it be published to? Raises badarg if not.
-spec check_topic(term()) -> ok.
check_topic(Topic) when is_binary(Topic) ->
    case plain(Topic) of
        true -> ok;
        false -> error(badarg, [Topic])
    end;
check_topic(Topic) when is_list(Topic) -> error(badarg, [Topic]);
check_topic(_) -> ok.

%% @doc Does the filter match the topic?
-spec matches(filter(), topic()) -> boolean().
matches(Same, Same) -> true;
matches(Filter, Topic) when is_binary(Filter), is_binary(Topic) ->
    case {Filter, Topic} of
        {<<C, _/binary>>, <<"$", _/binary>>} when C =:= $+; C =:= $# -> false;
        _ -> is_wild(Filter) andalso match(levels(Filter), levels(Topic))
    end;
matches(_, _) -> false.

match([<<"#">>], _) -> true;
match([<<"+">> | F], [_ | T]) -> match(F, T);
match([Level | F], [Level | T]) -> match(F, T);
match([], []) -> true;
match(_, _) -> false.
