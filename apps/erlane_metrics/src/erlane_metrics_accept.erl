%% SPDX-License-Identifier: Apache-2.0
%% @doc Which format, and whether gzip: the headers Accept and Accept-Encoding (RFC 9110,
%% section 12.5). Pure functions; no header makes them fail.
-module(erlane_metrics_accept).

-export([negotiate/1, negotiate/2, gzip/1, content_type/1]).

-export_type([format/0]).

-type format() :: text | openmetrics | protobuf.
%% Prometheus text 0.0.4, OpenMetrics text 1.0, Prometheus protobuf (delimited).

-define(PROTO, <<"io.prometheus.client.metricfamily">>).

%% @doc The format for a header Accept; `undefined' if there was none.
%% See {@link negotiate/2}.
-spec negotiate(iodata() | undefined) -> format().
negotiate(Accept) ->
    negotiate(Accept, [text, openmetrics, protobuf]).

%% @doc The format of those offered that the header likes best. The quality of a format is
%% that of the most specific range that names it; where qualities are equal, a format that is
%% named wins over one under a wildcard, then the one named first, then the one offered first.
%% Where nothing fits, the answer is the first one offered: to show numbers to somebody who
%% asked for something else is better than to show an error.
-spec negotiate(iodata() | undefined, [format(), ...]) -> format().
negotiate(undefined, [First | _]) ->
    First;
negotiate(Accept, [First | _] = Offered) ->
    Ranges = number(1, items(Accept)),
    case [{Rank, Format} || Format <- Offered, {ok, Rank} <- [rank(Format, Ranges)]] of
        [] -> First;
        [Head | Rest] -> element(2, lists:foldl(fun better/2, Head, Rest))
    end.

better({Rank, _} = One, {Best, _}) when Rank > Best -> One;
better(_, Best) -> Best.

%% {Quality, Specificity, -Position} of the range that decides about a format.
rank(Format, Ranges) ->
    Matching = [{Specific, -At, Q} || {At, {Range, Parameters, Q}} <- Ranges,
                                      Specific <- [specific(Format, Range, Parameters)],
                                      Specific > 0],
    case Matching of
        [] ->
            error;
        _ ->
            case lists:max(Matching) of
                {_, _, 0} -> error;
                {1, _, Q} -> {ok, {Q, 1, 0}};
                {Specific, At, Q} -> {ok, {Q, min(Specific, 3), At}}
            end
    end.

%% 0: does not match; 1 and 2: wildcards; 3: the type; more with parameters that we know.
specific(_, <<"*/*">>, _) -> 1;
specific(text, <<"text/*">>, _) -> 2;
specific(text, <<"text/plain">>, Ps) -> known(Ps, [{<<"version">>, <<"0.0.4">>}]);
specific(openmetrics, <<"application/*">>, _) -> 2;
specific(openmetrics, <<"application/openmetrics-text">>, Ps) ->
    known(Ps, [{<<"version">>, <<"1.0.0">>}]);
specific(protobuf, <<"application/*">>, _) -> 2;
specific(protobuf, <<"application/vnd.google.protobuf">>, Ps) ->
    known(Ps, [{<<"proto">>, ?PROTO}, {<<"encoding">>, <<"delimited">>}]);
specific(_, _, _) -> 0.

%% A parameter that we know must have our value, if it is there. Others (charset, escaping)
%% change nothing: our names need no escape, our text is UTF-8.
known(Parameters, Known) ->
    Values = [{Value, proplists:get_value(Key, Parameters, missing)} || {Key, Value} <- Known],
    case [Wrong || {Ours, Wrong} <- Values, Wrong =/= Ours, Wrong =/= missing] of
        [] -> 3 + length([ok || {Same, Same} <- Values]);
        _ -> 0
    end.

%% @doc Whether a header Accept-Encoding allows gzip; `undefined' if there was none.
-spec gzip(iodata() | undefined) -> boolean().
gzip(undefined) ->
    false;
gzip(AcceptEncoding) ->
    Codings = [{Coding, Q} || {Coding, _, Q} <- items(AcceptEncoding)],
    case [Q || Name <- [<<"gzip">>, <<"x-gzip">>, <<"*">>], {Coding, Q} <- Codings,
               Coding =:= Name] of
        [Q | _] -> Q > 0;
        [] -> false
    end.

%% @doc The header Content-Type of a format.
-spec content_type(format()) -> binary().
content_type(text) ->
    <<"text/plain; version=0.0.4; charset=utf-8">>;
content_type(openmetrics) ->
    <<"application/openmetrics-text; version=1.0.0; charset=utf-8">>;
content_type(protobuf) ->
    <<"application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
      "encoding=delimited">>.

%%% lists of items with parameters

number(_, []) -> [];
number(N, [Item | Items]) -> [{N, Item} | number(N + 1, Items)].

%% {Item, Parameters, Quality in thousandths}, in lower case; items without a sound quality
%% are left out.
items(Header) ->
    [{Item, lists:keydelete(<<"q">>, 1, Parameters), Q}
     || Part <- split(lower(iolist_to_binary(Header)), $,),
        [Item | More] <- [[trim(P) || P <- split(Part, $;)]],
        Item =/= <<>>,
        Parameters <- [[parameter(P) || P <- More, P =/= <<>>]],
        Q <- quality(proplists:get_value(<<"q">>, Parameters, <<"1">>))].

parameter(Text) ->
    case binary:split(Text, <<"=">>) of
        [Key, Value] -> {trim(Key), unquote(trim(Value))};
        [Key] -> {Key, <<>>}
    end.

quality(<<"1">>) -> [1000];
quality(<<"1.", Zeros/binary>>) when Zeros =:= <<>>; Zeros =:= <<"0">>; Zeros =:= <<"00">>;
                                     Zeros =:= <<"000">> -> [1000];
quality(<<"0">>) -> [0];
quality(<<"0.", Digits/binary>>) when byte_size(Digits) =< 3 ->
    case << <<D>> || <<D>> <= Digits, D >= $0, D =< $9 >> of
        Digits -> [binary_to_integer(<<Digits/binary, (binary:part(<<"000">>, 0, 3 -
                                       byte_size(Digits)))/binary>>)];
        _ -> []
    end;
quality(_) -> [].

%% Splits at a separator that is not inside quotes.
split(Text, Separator) ->
    split(Text, Separator, 0, Text, false).

split(All, Separator, At, Rest, Quoted) ->
    case Rest of
        <<Separator, More/binary>> when not Quoted ->
            [binary:part(All, 0, At) | split(More, Separator)];
        <<$\\, _, More/binary>> when Quoted ->
            split(All, Separator, At + 2, More, Quoted);
        <<$", More/binary>> ->
            split(All, Separator, At + 1, More, not Quoted);
        <<_, More/binary>> ->
            split(All, Separator, At + 1, More, Quoted);
        <<>> ->
            [All]
    end.

unquote(<<$", Rest/binary>>) -> unquote(Rest, <<>>);
unquote(Value) -> Value.

unquote(<<$\\, C, Rest/binary>>, Acc) -> unquote(Rest, <<Acc/binary, C>>);
unquote(<<$", _/binary>>, Acc) -> Acc;
unquote(<<C, Rest/binary>>, Acc) -> unquote(Rest, <<Acc/binary, C>>);
unquote(<<>>, Acc) -> Acc.

lower(Text) ->
    << <<(if C >= $A, C =< $Z -> C + 32; true -> C end)>> || <<C>> <= Text >>.

trim(<<C, Rest/binary>>) when C =:= $\s; C =:= $\t -> trim(Rest);
trim(Text) -> trim_end(Text, byte_size(Text)).

trim_end(Text, Size) when Size > 0 ->
    case binary:at(Text, Size - 1) of
        C when C =:= $\s; C =:= $\t -> trim_end(Text, Size - 1);
        _ -> binary:part(Text, 0, Size)
    end;
trim_end(_, 0) ->
    <<>>.
