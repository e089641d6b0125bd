%% SPDX-License-Identifier: Apache-2.0
%% Reads delimited messages io.prometheus.client.MetricFamily, by a table of the fields of
%% prometheus/client_model. A field that is not in the table fails.
-module(erlane_metrics_proto_reader).

-export([read/1]).

%% Families as maps of the fields' names; repeated fields are lists. A field that is not there
%% is not in the map.
read(Page) ->
    messages(Page).

messages(<<>>) ->
    [];
messages(Page) ->
    {Size, Rest} = varint(Page),
    <<Message:Size/binary, More/binary>> = Rest,
    [message(family, Message, #{}) | messages(More)].

message(_Kind, <<>>, Map) ->
    maps:map(fun(_, {repeated, Values}) -> lists:reverse(Values);
                (_, Value) -> Value
             end, Map);
message(Kind, Bytes, Map) ->
    {Key, Rest} = varint(Bytes),
    {Wire, Value, More} = value(Key band 7, Rest),
    {Name, Type} = field(Kind, Key bsr 3),
    message(Kind, More, add(Name, Type, Wire, Value, Map)).

value(0, Bytes) ->
    {N, Rest} = varint(Bytes),
    {varint, N, Rest};
value(1, <<Eight:8/binary, Rest/binary>>) ->
    {eight, Eight, Rest};
value(2, Bytes) ->
    {Size, Rest} = varint(Bytes),
    <<Value:Size/binary, More/binary>> = Rest,
    {bytes, Value, More}.

varint(Bytes) -> varint(Bytes, 0, 0).

varint(<<1:1, N:7, Rest/binary>>, Shift, Sum) when Shift < 63 ->
    varint(Rest, Shift + 7, Sum bor (N bsl Shift));
varint(<<0:1, N:7, Rest/binary>>, Shift, Sum) ->
    {Sum bor (N bsl Shift), Rest}.

add(Name, {repeated, sint}, bytes, Packed, Map) ->
    lists:foldl(fun(N, Acc) -> more(Name, zigzag(N), Acc) end, Map, unpack(Packed));
add(Name, {repeated, Type}, Wire, Value, Map) ->
    more(Name, convert(Type, Wire, Value), Map);
add(Name, Type, Wire, Value, Map) ->
    false = is_map_key(Name, Map),
    Map#{Name => convert(Type, Wire, Value)}.

more(Name, Value, Map) ->
    {repeated, Values} = maps:get(Name, Map, {repeated, []}),
    Map#{Name => {repeated, [Value | Values]}}.

unpack(<<>>) -> [];
unpack(Packed) ->
    {N, Rest} = varint(Packed),
    [N | unpack(Rest)].

convert(string, bytes, Text) ->
    Text = unicode:characters_to_binary(Text),
    Text;
convert(uint, varint, N) -> N;
convert(sint, varint, N) -> zigzag(N);
%% As bits: Erlang has no float for some of them.
convert(double, eight, <<Bits:64/little>>) -> Bits;
convert({message, Kind}, bytes, Bytes) -> message(Kind, Bytes, #{}).

zigzag(N) when N band 1 =:= 0 -> N bsr 1;
zigzag(N) -> -(N bsr 1) - 1.

field(family, 1) -> {name, string};
field(family, 2) -> {help, string};
field(family, 3) -> {type, uint};
field(family, 4) -> {metric, {repeated, {message, metric}}};
field(family, 5) -> {unit, string};
field(metric, 1) -> {label, {repeated, {message, label}}};
field(metric, 2) -> {gauge, {message, gauge}};
field(metric, 3) -> {counter, {message, counter}};
field(metric, 4) -> {summary, {message, summary}};
field(metric, 7) -> {histogram, {message, histogram}};
field(label, 1) -> {name, string};
field(label, 2) -> {value, string};
field(gauge, 1) -> {value, double};
field(counter, 1) -> {value, double};
field(counter, 3) -> {created_timestamp, {message, timestamp}};
field(summary, 1) -> {sample_count, uint};
field(summary, 2) -> {sample_sum, double};
field(summary, 3) -> {quantile, {repeated, {message, quantile}}};
field(summary, 4) -> {created_timestamp, {message, timestamp}};
field(quantile, 1) -> {quantile, double};
field(quantile, 2) -> {value, double};
field(histogram, 1) -> {sample_count, uint};
field(histogram, 2) -> {sample_sum, double};
field(histogram, 3) -> {bucket, {repeated, {message, bucket}}};
field(histogram, 5) -> {schema, sint};
field(histogram, 6) -> {zero_threshold, double};
field(histogram, 7) -> {zero_count, uint};
field(histogram, 12) -> {positive_span, {repeated, {message, span}}};
field(histogram, 13) -> {positive_delta, {repeated, sint}};
field(histogram, 15) -> {created_timestamp, {message, timestamp}};
field(bucket, 1) -> {cumulative_count, uint};
field(bucket, 2) -> {upper_bound, double};
field(span, 1) -> {offset, sint};
field(span, 2) -> {length, uint};
field(timestamp, 1) -> {seconds, uint};
field(timestamp, 2) -> {nanos, uint}.
