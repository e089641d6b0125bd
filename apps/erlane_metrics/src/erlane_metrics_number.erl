%% SPDX-License-Identifier: Apache-2.0
%% @doc Numbers of the exposition formats: fixed point and floats to text that reads back
%% exactly, and to doubles. Pure functions.
-module(erlane_metrics_number).

-export([fixed/2, text/2, double/2, edge/1, decimals/1, power/1]).

-export_type([value/0]).

-type value() :: integer() | float() | nan | infinity | neg_infinity.
%% An integer is fixed point: it has as many decimals as the family says. A float stands for
%% itself; the VM has no float for the three atoms.

%% Below this every integer is a double, so that one division is rounded once and correctly.
-define(EXACT, (1 bsl 53)).

%% @doc An integer with `Decimals' digits behind the point, trailing zeros left out:
%% `fixed(-1500, 3)' is `-1.5'. No float is made, so nothing is lost at any size.
-spec fixed(integer(), 0..18) -> binary().
fixed(Value, 0) ->
    integer_to_binary(Value);
fixed(Value, Decimals) when Value < 0 ->
    <<$-, (fixed(-Value, Decimals))/binary>>;
fixed(Value, Decimals) ->
    Power = power(Decimals),
    case Value rem Power of
        0 ->
            integer_to_binary(Value div Power);
        Fraction ->
            %% The 1 put before the fraction keeps its leading zeros.
            <<_, Digits/binary>> = integer_to_binary(trim(Fraction + Power)),
            <<(integer_to_binary(Value div Power))/binary, $., Digits/binary>>
    end.

trim(N) when N rem 10 =:= 0 -> trim(N div 10);
trim(N) -> N.

%% @doc A value as all text formats write it. Floats are the shortest text that reads back as
%% the same float.
-spec text(value(), 0..18) -> binary().
text(Value, Decimals) when is_integer(Value) -> fixed(Value, Decimals);
text(Value, _Decimals) when is_float(Value) -> float_to_binary(Value, [short]);
text(nan, _Decimals) -> <<"NaN">>;
text(infinity, _Decimals) -> <<"+Inf">>;
text(neg_infinity, _Decimals) -> <<"-Inf">>.

%% @doc The eight bytes of a double, little end first: the double nearest to the value, the
%% same one that a reader of {@link text/2} gets.
-spec double(value(), 0..18) -> <<_:64>>.
double(Value, 0) when is_integer(Value) ->
    <<Value:64/little-float>>;
double(Value, Decimals) when is_integer(Value), Value < ?EXACT, Value > -?EXACT ->
    <<(Value / power(Decimals)):64/little-float>>;
double(Value, Decimals) when is_integer(Value) ->
    Text = fixed(Value, Decimals),
    Float = try binary_to_float(Text) catch error:badarg -> float(binary_to_integer(Text)) end,
    <<Float:64/little-float>>;
double(Value, _Decimals) when is_float(Value) ->
    <<Value:64/little-float>>;
double(nan, _Decimals) ->
    %% Not the signalling NaN that Prometheus uses for stale series.
    <<16#7FF8000000000001:64/little>>;
double(infinity, _Decimals) ->
    <<16#7FF0000000000000:64/little>>;
double(neg_infinity, _Decimals) ->
    <<16#FFF0000000000000:64/little>>.

%% @doc A bound as the value of a label `le' or `quantile'. Readers compare these as text, so
%% there is one canonical form (OpenMetrics 1.0, "Canonical Numbers"): what Go's %g prints,
%% with `.0' where that has neither point nor exponent.
-spec edge(number()) -> binary().
edge(Value) when is_integer(Value) ->
    edge(float(Value));
edge(Value) when Value == 0 ->
    <<"0.0">>;
edge(Value) when Value < 0 ->
    <<$-, (edge(-Value))/binary>>;
edge(Value) ->
    {Digits, Exponent} = digits(float_to_binary(Value, [short])),
    edge(Digits, length(Digits), Exponent).

%% Value = 0.DIGITS * 10^Point.
edge([First | Rest], _Size, Point) when Point < -3; Point > 6 ->
    Mantissa = case Rest of
                   [] -> [First];
                   _ -> [First, $. | Rest]
               end,
    iolist_to_binary([Mantissa, $e, exponent(Point - 1)]);
edge(Digits, _Size, Point) when Point =< 0 ->
    iolist_to_binary(["0.", lists:duplicate(-Point, $0), Digits]);
edge(Digits, Size, Point) when Point >= Size ->
    iolist_to_binary([Digits, lists:duplicate(Point - Size, $0), ".0"]);
edge(Digits, _Size, Point) ->
    {Whole, Fraction} = lists:split(Point, Digits),
    iolist_to_binary([Whole, $., Fraction]).

%% Two digits at least.
exponent(N) when N < 0 -> [$- | tl(exponent(-N))];
exponent(N) when N < 10 -> [$+, $0, $0 + N];
exponent(N) -> [$+ | integer_to_list(N)].

%% The significant digits of "123.45e-6", and where the point is before them.
digits(Text) ->
    {Mantissa, Exponent} = case binary:split(Text, <<"e">>) of
                               [M, E] -> {M, binary_to_integer(E)};
                               [M] -> {M, 0}
                           end,
    [Whole, Fraction] = binary:split(Mantissa, <<".">>),
    All = binary_to_list(<<Whole/binary, Fraction/binary>>),
    Significant = string:trim(All, leading, "0"),
    Leading = length(All) - length(Significant),
    {string:trim(Significant, trailing, "0"), byte_size(Whole) + Exponent - Leading}.

%% @doc How many decimals a fixed point number has whose unit is one part in `Div'.
-spec decimals(pos_integer()) -> 0..18.
decimals(Div) -> decimals(Div, 0).

decimals(1, Decimals) -> Decimals;
decimals(Div, Decimals) when Div rem 10 =:= 0 -> decimals(Div div 10, Decimals + 1).

%% @doc 10^N.
-spec power(non_neg_integer()) -> pos_integer().
power(0) -> 1;
power(1) -> 10;
power(2) -> 100;
power(3) -> 1000;
power(6) -> 1000000;
power(9) -> 1000000000;
power(N) -> 10 * power(N - 1).
