%% SPDX-License-Identifier: Apache-2.0
%% @doc The protobuf format of Prometheus: messages MetricFamily, each after its length.
%%
%% Source: prometheus/client_model, io/prometheus/client/metrics.proto. Field numbers are those
%% of the current file; the early drafts of native histograms numbered them otherwise.
%% Exponential histograms are native ones, without classic buckets; those with bounds of their
%% own have classic buckets.
%%
%% A message is known in size only when it is whole. So that memory stays bounded, a family of
%% more than a megabyte becomes several messages of the same name, which Prometheus reads as
%% one.
%%
%% On the way of each series nothing but the body begins a binary with another one: the VM makes
%% room to grow for each such binary, which costs more than all the rest.
-module(erlane_metrics_proto).
-behaviour(erlane_metrics_expose).

-export([init/1, family/3, series/3, finish/2]).

-export_type([state/0]).

-define(MAX_BODY, (1 bsl 20)).
%% Up to this many empty buckets are written out; a longer gap begins a new span, which costs
%% about as many bytes.
-define(MAX_GAP, 2).

%% A key is the field number and the wire type: 0 varint, 1 eight bytes, 2 length and bytes.
-define(VARINT(Field), (Field bsl 3)).
-define(DOUBLE(Field), (Field bsl 3 bor 1)).
-define(BYTES(Field), (Field bsl 3 bor 2)).

-type labels() :: [{binary(), binary()}].

-record(proto, {type :: erlane_metrics_expose:type() | undefined,
                decimals = 0 :: 0..9,
                %% Name, help and type, and unit, as fields.
                head = <<>> :: binary(),
                tail = <<>> :: binary(),
                %% State set: its states as labels.
                states = [] :: labels(),
                %% The series so far.
                body = <<>> :: binary()}).

-opaque state() :: #proto{}.

-spec init(protobuf) -> state().
init(protobuf) ->
    #proto{}.

%% @doc Ends the family before and begins another. One without series leaves nothing.
-spec family(erlane_metrics_expose:family(), binary(), state()) -> {binary(), state()}.
family(Family, Buffer, State) ->
    #{name := Name, type := Type, help := Help, unit := Unit, decimals := Decimals} = Family,
    Head = <<(field(1, sample_name(Type, Name)))/binary, (optional(2, Help))/binary,
             ?VARINT(3), (type(Type))>>,
    {flush(Buffer, State),
     #proto{type = Type, decimals = Decimals, head = Head, tail = optional(5, Unit),
            states = [{Name, S} || S <- maps:get(states, Family, [])]}}.

%% The names of the samples: protobuf knows neither suffixes nor info.
sample_name(counter, Name) -> <<Name/binary, "_total">>;
sample_name(info, Name) -> <<Name/binary, "_info">>;
sample_name(_, Name) -> Name.

type(counter) -> 0;
type(gauge) -> 1;
type(summary) -> 2;
type(histogram) -> 4;
type(info) -> 1;
type(stateset) -> 1.

%% @doc Adds one series to the family.
-spec series(erlane_metrics_expose:series(), binary(), state()) -> {binary(), state()}.
series({_, Labels, Value, Created}, Buffer, #proto{type = Type, body = Body} = State) ->
    case metrics(Type, Labels, Value, Created, Body, State) of
        Large when byte_size(Large) > ?MAX_BODY ->
            {flush(Buffer, State#proto{body = Large}), State#proto{body = <<>>}};
        Small ->
            {Buffer, State#proto{body = Small}}
    end.

%% @doc Ends the last family.
-spec finish(binary(), state()) -> binary().
finish(Buffer, State) ->
    flush(Buffer, State).

flush(Buffer, #proto{body = <<>>}) ->
    Buffer;
flush(Buffer, #proto{head = Head, body = Body, tail = Tail}) ->
    Size = byte_size(Head) + byte_size(Body) + byte_size(Tail),
    <<Buffer/binary, (varint(Size))/binary, Head/binary, Body/binary, Tail/binary>>.

%% A state set is one gauge for each state, all else is one metric.
metrics(stateset, Labels, Values, _Created, Body, #proto{states = States}) ->
    lists:foldl(fun({State, Value}, Acc) ->
                        metric(Labels ++ [State], gauge_of(bit(Value)), Acc)
                end, Body, lists:zip(States, Values));
metrics(info, Labels, Pairs, _Created, Body, _State) ->
    metric(Labels ++ Pairs, gauge_of(bit(true)), Body);
metrics(Type, Labels, Value, Created, Body, #proto{decimals = Decimals}) ->
    metric(Labels, payload(Type, Value, Decimals, Created), Body).

metric(Labels, Payload, Body) ->
    Size = labels_size(Labels, byte_size(Payload)),
    Begun = <<Body/binary, ?BYTES(4), (varint(Size))/binary>>,
    Labelled = labels(Labels, Begun),
    <<Labelled/binary, Payload/binary>>.

labels_size([{Name, Value} | Labels], Sum) ->
    Size = label_size(Name, Value),
    labels_size(Labels, Sum + 1 + varint_size(Size) + Size);
labels_size([], Sum) ->
    Sum.

label_size(Name, Value) ->
    N = byte_size(Name),
    V = byte_size(Value),
    2 + varint_size(N) + N + varint_size(V) + V.

labels([{Name, Value} | Labels], Body) ->
    N = byte_size(Name),
    V = byte_size(Value),
    if
        N + V < 124 ->
            labels(Labels, <<Body/binary, ?BYTES(1), (N + V + 4), ?BYTES(1), N, Name/binary,
                             ?BYTES(2), V, Value/binary>>);
        true ->
            labels(Labels, <<Body/binary, ?BYTES(1), (varint(label_size(Name, Value)))/binary,
                             ?BYTES(1), (varint(N))/binary, Name/binary,
                             ?BYTES(2), (varint(V))/binary, Value/binary>>)
    end;
labels([], Body) ->
    Body.

bit(true) -> erlane_metrics_number:double(1, 0);
bit(false) -> erlane_metrics_number:double(0, 0).

gauge_of(Double) ->
    <<?BYTES(2), 9, ?DOUBLE(1), Double/binary>>.

payload(gauge, Value, Decimals, _Created) ->
    gauge_of(erlane_metrics_number:double(Value, Decimals));
payload(counter, Value, Decimals, Created) ->
    Double = erlane_metrics_number:double(Value, Decimals),
    field(3, <<?DOUBLE(1), Double/binary, (created(3, Created))/binary>>);
payload(summary, Value, _, Created) ->
    #{count := Count, sum := Sum, unit_div := Div, quantiles := Quantiles} = Value,
    Decimals = erlane_metrics_number:decimals(Div),
    field(4, [<<?VARINT(1), (varint(Count))/binary,
                ?DOUBLE(2), (erlane_metrics_number:double(Sum, Decimals))/binary>>,
              [field(3, <<?DOUBLE(1), Q:64/little-float,
                          ?DOUBLE(2), (erlane_metrics_number:double(V, Decimals))/binary>>)
               || {Q, V} <- Quantiles],
              created(4, Created)]);
payload(histogram, Hist, _Decimals, Created) ->
    #{buckets := Buckets, zero := Zero, over := Over, sum := Sum, unit_div := Div} = Hist,
    Count = Zero + lists:sum(Buckets) + Over,
    Double = erlane_metrics_number:double(Sum, erlane_metrics_number:decimals(Div)),
    field(7, [<<?VARINT(1), (varint(Count))/binary, ?DOUBLE(2), Double/binary>>,
              buckets(Hist, Count), created(15, Created)]).

%% google.protobuf.Timestamp: seconds and nanoseconds.
created(Field, Ms) ->
    field(Field, <<?VARINT(1), (varint(Ms div 1000))/binary,
                   ?VARINT(2), (varint(Ms rem 1000 * 1000000))/binary>>).

%%% histograms

buckets(#{scale := custom, bounds := Bounds, buckets := Buckets, zero := Zero}, Count) ->
    classic(Bounds, Buckets, Zero, Count);
buckets(#{scale := Scale, zero_threshold := Threshold, zero := Zero, offset := Offset,
          buckets := Buckets, over := Over}, _Count) ->
    %% What is above the range is shown by the first bucket above it.
    Runs = runs(Buckets, Over, Offset),
    [<<?VARINT(5), (zigzag(Scale))/binary, ?DOUBLE(6), Threshold:64/little-float,
       ?VARINT(7), (varint(Zero))/binary>>, spans(Runs, Threshold), deltas(Runs)].

classic([Bound | Bounds], [Bucket | Buckets], Below, Count) ->
    Sum = Below + Bucket,
    [bucket(Sum, <<Bound:64/little-float>>) | classic(Bounds, Buckets, Sum, Count)];
classic([], [], _Below, Count) ->
    [bucket(Count, erlane_metrics_number:double(infinity, 0))].

bucket(Sum, Double) ->
    field(3, <<?VARINT(1), (varint(Sum))/binary, ?DOUBLE(2), Double/binary>>).

%% The runs of buckets without a long gap: {Gap from the end of the run before, Counts}. For
%% the first run the gap is the index it begins at.
runs([], 0, _Gap) ->
    [];
runs([], Over, Gap) ->
    [{Gap, [Over]}];
runs([0 | Buckets], Over, Gap) ->
    runs(Buckets, Over, Gap + 1);
runs([N | Buckets], Over, Gap) ->
    run(Buckets, Over, Gap, [N], 0).

run([0 | Buckets], Over, Gap, Run, Zeros) ->
    run(Buckets, Over, Gap, Run, Zeros + 1);
run([], 0, Gap, Run, _Zeros) ->
    [{Gap, lists:reverse(Run)}];
run(Buckets, Over, Gap, Run, Zeros) when Zeros > ?MAX_GAP ->
    [{Gap, lists:reverse(Run)} | runs(Buckets, Over, Zeros)];
run(Buckets, Over, Gap, Run, Zeros) ->
    {N, Rest, Left} = case Buckets of
                          [B | Bs] -> {B, Bs, Over};
                          [] -> {Over, [], 0}
                      end,
    run(Rest, Left, Gap, [N | lists:duplicate(Zeros, 0) ++ Run], 0).

%% With neither a threshold nor a span nobody would know that the histogram is a native one.
spans([], Threshold) when Threshold == 0 ->
    span(0, 0);
spans(Runs, _Threshold) ->
    [span(Gap, length(Run)) || {Gap, Run} <- Runs].

span(Offset, Length) ->
    field(12, <<?VARINT(1), (zigzag(Offset))/binary, ?VARINT(2), (varint(Length))/binary>>).

%% Each count as the difference to the one before, all in one field ("packed").
deltas([]) ->
    [];
deltas(Runs) ->
    field(13, deltas(Runs, 0)).

deltas([{_Gap, Run} | Runs], Before) -> deltas(Run, Runs, Before);
deltas([], _Before) -> [].

deltas([Count | Run], Runs, Before) -> [zigzag(Count - Before) | deltas(Run, Runs, Count)];
deltas([], Runs, Before) -> deltas(Runs, Before).

%%% fields

optional(_Field, <<>>) -> <<>>;
optional(Field, Bytes) -> field(Field, Bytes).

%% All field numbers here are below 16, so a key is one byte.
field(Field, Bytes) when is_binary(Bytes) ->
    <<?BYTES(Field), (varint(byte_size(Bytes)))/binary, Bytes/binary>>;
field(Field, Parts) ->
    field(Field, iolist_to_binary(Parts)).

-define(MORE(N), (((N) band 127) bor 128)).

varint(N) when N < 1 bsl 7 -> <<N>>;
varint(N) when N < 1 bsl 14 -> <<?MORE(N), (N bsr 7)>>;
varint(N) when N < 1 bsl 21 -> <<?MORE(N), ?MORE(N bsr 7), (N bsr 14)>>;
varint(N) when N < 1 bsl 28 -> <<?MORE(N), ?MORE(N bsr 7), ?MORE(N bsr 14), (N bsr 21)>>;
varint(N) -> <<?MORE(N), ?MORE(N bsr 7), ?MORE(N bsr 14), ?MORE(N bsr 21),
               (varint(N bsr 28))/binary>>.

varint_size(N) when N < 1 bsl 7 -> 1;
varint_size(N) when N < 1 bsl 14 -> 2;
varint_size(N) -> 1 + varint_size(N bsr 7).

zigzag(N) when N >= 0 -> varint(N bsl 1);
zigzag(N) -> varint(-N bsl 1 - 1).
