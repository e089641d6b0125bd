%% SPDX-License-Identifier: Apache-2.0
%% @doc The two text formats: Prometheus 0.0.4 (`text') and OpenMetrics 1.0 (`openmetrics').
%%
%% Sources: prometheus.io/docs/instrumenting/exposition_formats and the OpenMetrics 1.0
%% specification. What differs: OpenMetrics names a family without the suffix of its samples,
%% knows units, info and state sets, says when a series was created, and has a last line,
%% without which a page is refused. The samples themselves are the same.
%%
%% Text is appended to the buffer of the caller: the VM does that in place.
-module(erlane_metrics_text).
-behaviour(erlane_metrics_expose).

-export([init/1, family/3, series/3, finish/2]).
-export([escape/1, label/2]).

-export_type([state/0]).

%% The start of a line without labels and of one with labels: `name ' and `name{'.
-type start() :: {binary(), binary()}.

-record(text, {dialect :: text | openmetrics,
               type :: erlane_metrics_expose:type() | undefined,
               decimals = 0 :: 0..9,
               sample = {<<>>, <<>>} :: start(),
               bucket = {<<>>, <<>>} :: start(),
               count = {<<>>, <<>>} :: start(),
               sum = {<<>>, <<>>} :: start(),
               created = {<<>>, <<>>} :: start(),
               %% State set: its states as labels.
               states = [] :: [binary()],
               %% Histogram: the layout of the series before, and the lines it makes.
               layout :: term(),
               plan = [] :: plan()}).

-opaque state() :: #text{}.

%% For each line the number of buckets that it has more than the line before, and its label.
-type plan() :: [{non_neg_integer(), binary()}].

-spec init(text | openmetrics) -> state().
init(Dialect) ->
    #text{dialect = Dialect}.

%% @doc The lines that come before the samples of a family.
-spec family(erlane_metrics_expose:family(), binary(), state()) -> {binary(), state()}.
family(Family, Buffer, #text{dialect = Dialect}) ->
    #{name := Name, type := Type, help := Help, unit := Unit, decimals := Decimals} = Family,
    Sample = sample_name(Type, Name),
    State = #text{dialect = Dialect, type = Type, decimals = Decimals,
                  sample = start(Sample),
                  bucket = start(<<Name/binary, "_bucket">>),
                  count = start(<<Name/binary, "_count">>),
                  sum = start(<<Name/binary, "_sum">>),
                  created = start(<<Name/binary, "_created">>),
                  states = [label(Name, S) || S <- maps:get(states, Family, [])]},
    {head(Dialect, Name, Sample, Type, Help, Unit, Buffer), State}.

start(Name) ->
    {<<Name/binary, $\s>>, <<Name/binary, ${>>}.

sample_name(counter, Name) -> <<Name/binary, "_total">>;
sample_name(info, Name) -> <<Name/binary, "_info">>;
sample_name(_, Name) -> Name.

head(openmetrics, Name, _Sample, Type, Help, Unit, Buffer) ->
    Typed = <<Buffer/binary, "# TYPE ", Name/binary, $\s, (atom_to_binary(Type))/binary, $\n>>,
    %% Units of info and state sets are forbidden.
    WithUnit = case Unit =:= <<>> orelse Type =:= info orelse Type =:= stateset of
                   true -> Typed;
                   false -> <<Typed/binary, "# UNIT ", Name/binary, $\s, Unit/binary, $\n>>
               end,
    help(WithUnit, Name, escape(Help));
head(text, _Name, Sample, Type, Help, _Unit, Buffer) ->
    Helped = help(Buffer, Sample, escape_help(Help)),
    <<Helped/binary, "# TYPE ", Sample/binary, $\s, (text_type(Type))/binary, $\n>>.

help(Buffer, _Name, <<>>) -> Buffer;
help(Buffer, Name, Help) -> <<Buffer/binary, "# HELP ", Name/binary, $\s, Help/binary, $\n>>.

text_type(info) -> <<"gauge">>;
text_type(stateset) -> <<"gauge">>;
text_type(Type) -> atom_to_binary(Type).

%% @doc The lines of one series of the family named last.
-spec series(erlane_metrics_expose:series(), binary(), state()) -> {binary(), state()}.
series({Labels, _, Value, Created}, Buffer, #text{type = counter} = State) ->
    #text{sample = Start, decimals = Decimals} = State,
    Line = line(Buffer, Start, Labels, erlane_metrics_number:text(Value, Decimals)),
    {created(Line, Labels, Created, State), State};
series({Labels, _, Value, _}, Buffer, #text{type = gauge} = State) ->
    #text{sample = Start, decimals = Decimals} = State,
    {line(Buffer, Start, Labels, erlane_metrics_number:text(Value, Decimals)), State};
series({Labels, _, Value, Created}, Buffer, #text{type = histogram} = State0) ->
    State = plan(Value, State0),
    #{buckets := Buckets, zero := Zero, over := Over, sum := Sum, unit_div := Div} = Value,
    {Lines, Below} = bucket_lines(State#text.plan, Buckets, Zero, State#text.bucket, Labels,
                                  Buffer),
    Count = integer_to_binary(Below + Over),
    Last = line(Lines, State#text.bucket, Labels, <<"le=\"+Inf\"">>, Count),
    Decimals = erlane_metrics_number:decimals(Div),
    {totals(Last, Labels, Count, erlane_metrics_number:fixed(Sum, Decimals), Created, State),
     State};
series({Labels, _, Value, Created}, Buffer, #text{type = summary} = State) ->
    #{count := Count, sum := Sum, unit_div := Div, quantiles := Quantiles} = Value,
    Decimals = erlane_metrics_number:decimals(Div),
    Lines = lists:foldl(
              fun({Q, V}, Acc) ->
                      Label = label(<<"quantile">>, erlane_metrics_number:edge(Q)),
                      line(Acc, State#text.sample, Labels, Label,
                           erlane_metrics_number:text(V, Decimals))
              end, Buffer, Quantiles),
    {totals(Lines, Labels, integer_to_binary(Count), erlane_metrics_number:fixed(Sum, Decimals),
            Created, State),
     State};
series({Labels, _, Pairs, _}, Buffer, #text{type = info, sample = Start} = State) ->
    All = lists:join($,, [Labels || Labels =/= <<>>] ++ [label(K, V) || {K, V} <- Pairs]),
    {line(Buffer, Start, iolist_to_binary(All), <<"1">>), State};
series({Labels, _, Value, _}, Buffer, #text{type = stateset} = State) ->
    #text{sample = Start, states = States} = State,
    Lines = lists:foldl(
              fun({Label, true}, Acc) -> line(Acc, Start, Labels, Label, <<"1">>);
                 ({Label, false}, Acc) -> line(Acc, Start, Labels, Label, <<"0">>)
              end, Buffer, lists:zip(States, Value)),
    {Lines, State}.

%% @doc The end of the page.
-spec finish(binary(), state()) -> binary().
finish(Buffer, #text{dialect = openmetrics}) -> <<Buffer/binary, "# EOF\n">>;
finish(Buffer, #text{dialect = text}) -> Buffer.

line(Buffer, {Bare, _}, <<>>, Value) ->
    <<Buffer/binary, Bare/binary, Value/binary, $\n>>;
line(Buffer, {_, Open}, Labels, Value) ->
    <<Buffer/binary, Open/binary, Labels/binary, "} ", Value/binary, $\n>>.

line(Buffer, {_, Open}, <<>>, Label, Value) ->
    <<Buffer/binary, Open/binary, Label/binary, "} ", Value/binary, $\n>>;
line(Buffer, {_, Open}, Labels, Label, Value) ->
    <<Buffer/binary, Open/binary, Labels/binary, $,, Label/binary, "} ", Value/binary, $\n>>.

totals(Buffer, Labels, Count, Sum, Created, #text{count = AtCount, sum = AtSum} = State) ->
    created(line(line(Buffer, AtCount, Labels, Count), AtSum, Labels, Sum),
            Labels, Created, State).

created(Buffer, Labels, Ms, #text{dialect = openmetrics, created = Start}) ->
    line(Buffer, Start, Labels, erlane_metrics_number:fixed(Ms, 3));
created(Buffer, _Labels, _Ms, #text{dialect = text}) ->
    Buffer.

%%% histograms

%% All series of a family have one layout, so the labels are made once.
plan(Hist, #text{layout = Layout} = State) ->
    case layout(Hist) of
        Layout -> State;
        New -> State#text{layout = New, plan = [{N, label(<<"le">>, Edge)}
                                                || {N, Edge} <- edges(Hist)]}
    end.

layout(#{scale := custom, bounds := Bounds}) ->
    Bounds;
layout(#{scale := Scale, offset := Offset, buckets := Buckets, zero_threshold := Zero}) ->
    {Scale, Offset, length(Buckets), Zero}.

edges(#{scale := custom, bounds := Bounds}) ->
    [{1, erlane_metrics_number:edge(Bound)} || Bound <- Bounds];
edges(#{scale := Scale, offset := Offset, buckets := Buckets, zero_threshold := Zero}) ->
    [{N, erlane_metrics_number:edge(math:pow(2, Power))}
     || {N, Power} <- powers(Scale, Offset, length(Buckets), Zero)].

%% Bucket I ends at 2^(I / 2^Scale): those whose index is a multiple of 2^Scale end at a power
%% of two, and all up to there make one line. The edge below the first bucket is a line, too,
%% unless the zero bucket goes past it. What lies above the last power is in +Inf alone.
powers(Scale, Offset, Size, Zero) ->
    Low = -(-(Offset - 1) bsr Scale),
    First = case math:pow(2, Low) >= Zero of
                true -> Low;
                false -> Low + 1
            end,
    Last = (Offset + Size - 1) bsr Scale,
    powers(Scale, First, Last, Offset - 1, []).

powers(_Scale, Power, Last, _Index, Acc) when Power > Last ->
    lists:reverse(Acc);
powers(Scale, Power, Last, Index, Acc) ->
    To = Power bsl Scale,
    powers(Scale, Power + 1, Last, To, [{To - Index, Power} | Acc]).

bucket_lines([], Buckets, Below, _Start, _Labels, Buffer) ->
    {Buffer, Below + lists:sum(Buckets)};
bucket_lines([{N, Label} | Plan], Buckets, Below, Start, Labels, Buffer) ->
    {Rest, Count} = take(N, Buckets, Below),
    Line = line(Buffer, Start, Labels, Label, integer_to_binary(Count)),
    bucket_lines(Plan, Rest, Count, Start, Labels, Line).

take(0, Buckets, Sum) -> {Buckets, Sum};
take(N, [Bucket | Rest], Sum) -> take(N - 1, Rest, Sum + Bucket).

%%% escapes

%% @doc `name="value"', the value escaped.
-spec label(binary(), binary()) -> binary().
label(Name, Value) ->
    <<Name/binary, "=\"", (escape(Value))/binary, $">>.

%% @doc Escapes a label's value, or a help text of OpenMetrics: backslash, newline and quote.
-spec escape(binary()) -> binary().
escape(Text) ->
    escape(Text, [<<$\\>>, <<$\n>>, <<$">>]).

%% The help text of Prometheus keeps its quotes as they are.
escape_help(Text) ->
    escape(Text, [<<$\\>>, <<$\n>>]).

escape(Text, Special) ->
    case binary:match(Text, Special) of
        nomatch -> Text;
        _ -> << <<(escaped(C, Special))/binary>> || <<C>> <= Text >>
    end.

escaped(C, Special) ->
    case lists:member(<<C>>, Special) of
        true when C =:= $\n -> <<"\\n">>;
        true -> <<$\\, C>>;
        false -> <<C>>
    end.
