%% SPDX-License-Identifier: Apache-2.0
%% @doc Declarations: every option of a family is checked here, once; errors name the option.
-module(erlane_metrics_family).

-export([check/2, same/2, exposed/1, member/4]).

-export_type([type/0, declaration/0, exposed/0]).

-type type() :: counter | gauge | histogram | summary | group | info | stateset.

-type declaration() ::
        #{name := binary(), type := type(), help := binary(), unit := binary(),
          labels := [binary()], decimals := 0..9, limit := pos_integer(),
          ttl := pos_integer() | infinity, store := term(), callback => function(),
          created => integer(),
          states => [binary()], counters => [{binary(), binary()}], quantiles => [number()]}.
%% `store' is what the registry makes for a series: `dense' or `own' counters, `updown' or `set'
%% gauges, `{histogram, counters | atomics, BoundsKey}', `{group, N}', `stateset', `info'.

-type exposed() ::
        #{name := binary(), type := counter | gauge | histogram | summary | info | stateset,
          help := binary(), unit := binary(), labels := [binary()], decimals := 0..9,
          states => [binary()]}.

-define(SECONDS, <<"seconds">>).

%% @doc Checks the options of a type and fills in the defaults.
-spec check(type(), map()) -> {ok, declaration()} | {error, {atom(), term()}}.
check(Type, Opts) when is_map(Opts) ->
    try
        Known = known(Type),
        [throw({Key, unknown_option})
         || Key <- lists:sort(maps:keys(Opts)), not is_map_key(Key, Known)],
        [throw({Key, missing})
         || Key <- required(Type, Opts), not is_map_key(Key, Opts)],
        _ = maps:map(fun(Key, Value) -> value(Key, Value) end, Opts),
        {ok, declaration(Type, maps:merge(Known, Opts), Opts)}
    catch
        throw:{Key, Why} -> {error, {Key, Why}}
    end;
check(_, Opts) ->
    {error, {options, {not_a_map, Opts}}}.

%% @doc Whether two declarations are the same; if not, in which option.
-spec same(declaration(), declaration()) -> true | {false, atom()}.
same(A, B) ->
    %% A fun made again by the same code counts as the same.
    case [Key || Key <- lists:usort(maps:keys(A) ++ maps:keys(B)),
                 Key =/= callback, Key =/= created,
                 maps:get(Key, A, none) =/= maps:get(Key, B, none)]
         ++ [callback || is_map_key(callback, A) =/= is_map_key(callback, B)] of
        [] -> true;
        Keys -> {false, hd([option(Key) || Key <- [type | Keys], lists:member(Key, Keys)])}
    end.

option(store) -> storage;
option(Key) -> Key.

%% @doc The part of a declaration that exposition sees.
-spec exposed(declaration()) -> exposed().
exposed(Declaration) ->
    maps:with([name, type, help, unit, labels, decimals, states], Declaration).

%% @doc A group is exposed as a counter family for each of its counters: the I-th.
-spec member(declaration(), pos_integer(), binary(), binary()) -> exposed().
member(Group, _I, Name, Help) ->
    (exposed(Group))#{name := Name, type := counter, help := Help}.

known(Type) ->
    maps:merge(#{name => none, help => none, unit => <<>>, labels => [], limit => 2000,
                 ttl => infinity}, own(Type)).

own(counter) -> #{spread => dense, decimals => 0, callback => none};
own(gauge) -> #{mode => set, decimals => 0, callback => none};
own(histogram) ->
    #{input => nanosecond, range => default, scale => 3, buckets => none,
      spread => schedulers, decimals => 6};
own(summary) -> (own(histogram))#{quantiles => [0.5, 0.9, 0.99]};
own(group) -> #{counters => none};
own(info) -> #{};
own(stateset) -> #{states => none}.

required(group, Opts) when not is_map_key(name, Opts) -> [name];
required(group, _) -> [counters, help];
required(stateset, _) -> [name, help, states];
required(_, _) -> [name, help].

value(name, Name) -> ok(name, erlane_metrics_name:check_metric(Name));
value(help, Help) -> text(help, Help);
value(unit, <<>>) -> ok;
value(unit, Unit) -> ok(unit, erlane_metrics_name:check_label(Unit));
value(labels, Labels) when is_list(Labels), length(Labels) =< 64 ->
    [ok(labels, erlane_metrics_name:check_label(Label)) || Label <- Labels],
    unique(labels, Labels);
value(limit, N) when is_integer(N), N > 0 -> ok;
value(ttl, infinity) -> ok;
value(ttl, Seconds) when is_integer(Seconds), Seconds > 0, Seconds < 1 bsl 31 -> ok;
value(spread, Spread)
  when Spread =:= dense; Spread =:= own; Spread =:= schedulers; Spread =:= shared -> ok;
value(decimals, N) when is_integer(N), N >= 0, N =< 9 -> ok;
value(callback, Fun) when is_function(Fun, 0) -> ok;
value(mode, Mode) when Mode =:= set; Mode =:= updown -> ok;
value(input, Input)
  when Input =:= nanosecond; Input =:= microsecond; Input =:= one -> ok;
value(range, {Min, Max}) when is_number(Min), is_number(Max), Min > 0, Min < Max -> ok;
value(scale, Scale) when is_integer(Scale), Scale >= 1, Scale =< 6 -> ok;
value(buckets, [_ | _] = Edges) when length(Edges) =< 256 -> rising(-1, Edges, Edges);
value(quantiles, [_ | _] = Qs) when length(Qs) =< 64 ->
    [throw({quantiles, {not_from_0_to_1, Q}})
     || Q <- Qs, not is_number(Q) orelse Q < 0 orelse Q > 1],
    unique(quantiles, Qs);
value(counters, Counters) when is_list(Counters), Counters =/= [], length(Counters) =< 8 ->
    [case Counter of
         {Name, Help} ->
             ok(counters, erlane_metrics_name:check_metric(Name)),
             text(counters, Help);
         _ ->
             throw({counters, {not_name_and_help, Counter}})
     end || Counter <- Counters],
    unique(counters, [Name || {Name, _} <- Counters]);
value(states, [_ | _] = States) when length(States) =< 62 ->
    [text(states, State) || State <- States],
    unique(states, States);
value(Key, Value) -> throw({Key, {bad_value, Value}}).

ok(_, ok) -> ok;
ok(Key, {error, Why}) -> throw({Key, Why}).

text(Key, Text) when is_binary(Text) ->
    case unicode:characters_to_binary(Text) of
        Text -> ok;
        _ -> throw({Key, {not_utf8, Text}})
    end;
text(Key, Text) -> throw({Key, {not_binary, Text}}).

unique(Key, List) ->
    case List -- lists:usort(List) of
        [] -> ok;
        [Twice | _] -> throw({Key, {twice, Twice}})
    end.

rising(Last, [Edge | Edges], All) when is_number(Edge), Edge > Last, Edge =< 1 bsl 53 ->
    rising(Edge, Edges, All);
rising(_, [], _) -> ok;
rising(_, _, All) -> throw({buckets, {not_rising_numbers, All}}).

declaration(Type, Opts, Given) ->
    Store = store(Type, Opts, Given),
    Unit = unit(Type, Opts, Given),
    Name = full_name(Type, maps:get(name, Opts), Unit),
    Decimals = case Store of
                   {histogram, _, _} -> 0;
                   _ -> maps:get(decimals, Opts, 0)
               end,
    Common = #{name => Name, type => Type, help => maps:get(help, Opts), unit => Unit,
               decimals => Decimals, store => Store},
    Fitting = maps:merge(maps:with([labels, limit, ttl], Opts), Common),
    check_labels(Type, Name, maps:get(labels, Opts)),
    extra(Type, Fitting, Opts, Given).

extra(group, Base, #{counters := Counters}, _) ->
    #{name := Name, unit := Unit} = Base,
    Base#{counters => [{full_name(counter, <<Name/binary, $_, C/binary>>, Unit), Help}
                       || {C, Help} <- Counters]};
extra(stateset, Base, #{states := States}, _) -> Base#{states => States};
extra(summary, Base, #{quantiles := Qs}, _) -> Base#{quantiles => lists:sort(Qs)};
extra(_, Base, _, #{callback := Fun}) -> Base#{callback => Fun};
extra(_, Base, _, _) -> Base.

store(_, _, #{callback := _}) -> callback;
store(counter, #{spread := Spread}, _) ->
    [throw({spread, {bad_value, Spread}}) || Spread =/= dense, Spread =/= own],
    Spread;
store(gauge, #{mode := Mode}, _) -> Mode;
store(group, #{counters := Counters}, _) -> {group, length(Counters)};
store(info, _, _) -> info;
store(stateset, _, _) -> stateset;
store(_Histogram, #{spread := Spread, input := Input} = Opts, Given) ->
    Kind = case Spread of
               schedulers -> counters;
               shared -> atomics;
               _ -> throw({spread, {bad_value, Spread}})
           end,
    [throw({decimals, only_with_input_one})
     || is_map_key(decimals, Given), Input =/= one],
    Decimals = case Input of
                   one -> maps:get(decimals, Opts);
                   _ -> 0
               end,
    Shape = shape(Opts, Given),
    [throw({range, {too_large_with_decimals, Decimals}})
     || {exp, _, _, E2} <- [Shape], Input =:= one, E2 + math:log2(10) * Decimals > 62],
    {histogram, Kind, erlane_metrics_bounds:key(Shape, {Input, Decimals})}.

shape(_, #{buckets := _, range := _}) -> throw({range, not_with_buckets});
shape(_, #{buckets := _, scale := _}) -> throw({scale, not_with_buckets});
shape(#{input := Input}, #{buckets := Edges}) ->
    %% What is beyond this many seconds does not fit with its sum.
    [throw({buckets, {too_large, Edge}})
     || Input =/= one, Edge <- Edges, Edge > 1 bsl 24],
    {fixed, Edges};
shape(#{range := default, input := one, scale := Scale}, _) -> {exp, Scale, -10, 30};
shape(#{range := default, scale := Scale}, _) -> {exp, Scale, -20, 12};
shape(#{range := {Min, Max} = Range, input := Input, scale := Scale}, _) ->
    %% Whole octaves, rounded away from the middle.
    {Lowest, Highest} = case Input of
                            one -> {-40, 53};
                            nanosecond -> {-29, 24};
                            microsecond -> {-19, 24}
                        end,
    E1 = floor(math:log2(Min)),
    E2 = ceil(math:log2(Max)),
    [throw({range, {must_be_within_powers_of_2, Lowest, Highest, Range}})
     || E1 < Lowest orelse E2 > Highest],
    {exp, Scale, E1, E2}.

unit(_, _, #{unit := Unit}) -> Unit;
unit(Type, #{input := Input}, _)
  when Input =/= one, (Type =:= histogram orelse Type =:= summary) -> ?SECONDS;
unit(_, _, _) -> <<>>.

%% The unit is the end of the name; `_total' and `_info' are what the page adds by itself.
full_name(counter, Name, Unit) -> with_unit(without(Name, <<"_total">>), Unit);
full_name(info, Name, _) -> without(Name, <<"_info">>);
full_name(_, Name, Unit) -> with_unit(Name, Unit).

without(Name, Suffix) ->
    Size = byte_size(Name) - byte_size(Suffix),
    case Name of
        <<Base:Size/binary, Suffix/binary>> when Size > 0 -> Base;
        _ -> Name
    end.

with_unit(Name, <<>>) -> Name;
with_unit(Name, Unit) -> <<(without(Name, <<$_, Unit/binary>>))/binary, $_, Unit/binary>>.

%% Labels that the format itself puts on samples of a type.
check_labels(Type, Name, Labels) ->
    Reserved = case Type of
                   histogram -> [<<"le">>];
                   summary -> [<<"quantile">>];
                   stateset -> [Name];
                   _ -> []
               end,
    [throw({labels, {reserved, Label}}) || Label <- Labels, lists:member(Label, Reserved)],
    ok.
