%% SPDX-License-Identifier: Apache-2.0
%% @doc All series as a table, for people at a shell.
%%
%% ```
%% http_requests  counter: requests served
%%   code="200"  1234
%%   code="500"  1
%% http_request_seconds  histogram: time to answer
%%   method="GET"  1235 observed, mean 0.00412, p50 0.0037, p90 0.0081, p99 0.025
%% '''
-module(erlane_metrics_print).

-export([print/0, print/1, table/3]).

-export_type([opts/0]).

-type opts() :: #{name => binary(), limit => non_neg_integer() | infinity}.
%% `name': only families whose name begins so. `limit': lines for each family, 20.

-record(print, {prefix :: binary(),
                limit :: non_neg_integer() | infinity,
                family :: erlane_metrics_expose:family() | none | skipped,
                rows = [] :: [{binary(), binary()}],
                %% Lines that were over the limit.
                more = 0 :: non_neg_integer(),
                write :: fun((unicode:chardata()) -> term())}).

%% @doc Prints every family, at most 20 series of each.
-spec print() -> ok.
print() ->
    print(#{}).

%% @doc Prints what the options choose.
-spec print(opts()) -> ok.
print(Opts) ->
    table(fun erlane_metrics_walk:fold/2, Opts, fun(Text) -> io:put_chars(Text) end).

%% @doc Writes the table of any source, one family at a time.
-spec table(erlane_metrics_expose:walk(), opts(), fun((unicode:chardata()) -> term())) -> ok.
table(Walk, Opts, Write) ->
    State = #print{prefix = maps:get(name, Opts, <<>>), limit = maps:get(limit, Opts, 20),
                   family = none, write = Write},
    flush(Walk(fun step/2, State)).

step({family, #{name := Name} = Family}, #print{prefix = Prefix} = State) ->
    ok = flush(State),
    Chosen = case binary:longest_common_prefix([Name, Prefix]) of
                 N when N =:= byte_size(Prefix) -> Family;
                 _ -> skipped
             end,
    State#print{family = Chosen, rows = [], more = 0};
step({series, _}, #print{family = skipped} = State) ->
    State;
step({series, _}, #print{rows = Rows, limit = Limit, more = More} = State)
  when length(Rows) >= Limit ->
    State#print{more = More + 1};
step({series, {Labels, _, Value, _}}, #print{family = Family, rows = Rows} = State) ->
    State#print{rows = [{visible(Labels), value(Family, Value)} | Rows]}.

flush(#print{family = Family}) when Family =:= none; Family =:= skipped ->
    ok;
flush(#print{family = Family, rows = Rows, more = More, write = Write}) ->
    #{name := Name, type := Type, help := Help} = Family,
    Width = lists:max([0 | [string:length(Labels) || {Labels, _} <- Rows]]),
    _ = Write([Name, "  ", atom_to_binary(Type), [[": ", visible(Help)] || Help =/= <<>>], $\n,
               [["  ", [[string:pad(Labels, Width), "  "] || Width > 0], Value, $\n]
                || {Labels, Value} <- lists:reverse(Rows)],
               [["  and ", integer_to_binary(More), " more\n"] || More > 0]]),
    ok.

value(#{type := histogram}, Hist) ->
    histogram(Hist);
value(#{type := summary}, #{count := 0}) ->
    "0 observed";
value(#{type := summary}, #{count := N, sum := Sum, unit_div := Div, quantiles := Qs}) ->
    [integer_to_binary(N), " observed, mean ", short(Sum / Div / N),
     [[", p", percent(Q), $\s, short(V)] || {Q, V} <- Qs]];
value(#{type := info}, Pairs) ->
    lists:join(", ", [[visible(Key), $=, visible(Value)] || {Key, Value} <- Pairs]);
value(#{type := stateset, states := States}, Values) ->
    lists:join(", ", [visible(State) || {State, true} <- lists:zip(States, Values)]);
value(#{decimals := Decimals}, Number) ->
    erlane_metrics_number:text(Number, Decimals).

histogram(#{buckets := Buckets, zero := Zero, over := Over, sum := Sum, unit_div := Div} = Hist) ->
    case Zero + lists:sum(Buckets) + Over of
        0 ->
            "0 observed";
        Count ->
            [integer_to_binary(Count), " observed, mean ", short(Sum / Div / Count),
             [[", p", Text, $\s, quantile(erlane_metrics_hist:quantile(Hist, Q))]
              || {Text, Q} <- [{"50", 0.5}, {"90", 0.9}, {"99", 0.99}]]]
    end.

quantile({Low, _, infinity}) -> ["over ", short(Low)];
quantile({_Low, Estimate, _High}) -> short(Estimate).

%% Three digits: the buckets know no more.
short(Number) ->
    erlane_metrics_number:edge(binary_to_float(float_to_binary(float(Number),
                                                               [{scientific, 2}]))).

percent(Q) ->
    string:trim(string:trim(erlane_metrics_number:edge(Q * 100), trailing, "0"), trailing, ".").

%% Values of labels come from anywhere: what would move the cursor is shown as a number.
visible(Text) ->
    case lists:any(fun control/1, unicode:characters_to_list(Text)) of
        false -> Text;
        true -> unicode:characters_to_binary(
                  [case control(C) of
                       true -> io_lib:format("\\x~2.16.0B", [C]);
                       false -> C
                   end || C <- unicode:characters_to_list(Text)])
    end.

control(C) -> C < 16#20 orelse C >= 16#7F andalso C < 16#A0.
