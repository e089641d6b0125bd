%% SPDX-License-Identifier: Apache-2.0
%% Families and series made by hand and by PropEr, and a walk over them.
-module(erlane_metrics_pages).

-include_lib("proper/include/proper.hrl").

-export([page/0, walk/1, write/2, write/3, family/2, family/3, hist/0, text/1, utf8_text/0,
         decimal/2]).

%% What erlane_metrics_walk:fold/2 does, over a list of {Family, [Series]}.
walk(Page) ->
    fun(Fun, Acc) ->
            lists:foldl(fun({Family, Series}, Acc1) ->
                                lists:foldl(fun(S, Acc2) -> Fun({series, S}, Acc2) end,
                                            Fun({family, Family}, Acc1), Series)
                        end, Acc, Page)
    end.

%% The page as one binary.
write(Format, Page) ->
    iolist_to_binary(write(Format, identity, Page)).

%% The pieces, in order.
write(Format, Encoding, Page) ->
    Fun = fun(Piece, Acc) -> [iolist_to_binary(Piece) | Acc] end,
    lists:reverse(erlane_metrics_expose:expose(walk(Page), Format, Encoding, Fun, [])).

family(Name, Type) -> family(Name, Type, #{}).

family(Name, Type, More) ->
    maps:merge(#{name => Name, type => Type, help => <<>>, unit => <<>>, labels => [],
                 decimals => 0}, More).

%% The label text that the core makes once, written here in another way.
text(Labels) ->
    iolist_to_binary(lists:join(",", [[Name, "=\"", [escape(C) || <<C>> <= Value], "\""]
                                      || {Name, Value} <- Labels])).

escape($\\) -> "\\\\";
escape($") -> "\\\"";
escape($\n) -> "\\n";
escape(C) -> C.

%% The double of Value / 10^Decimals, as bits, by way of a decimal that the VM reads.
decimal(Value, Decimals) ->
    Text = io_lib:format("~s~b.~*..0b",
                         [case Value < 0 of true -> "-"; false -> "" end,
                          abs(Value) div pow10(Decimals), max(1, Decimals),
                          abs(Value) rem pow10(Decimals)]),
    <<Bits:64>> = <<(list_to_float(lists:flatten(Text)))/float>>,
    Bits.

pow10(N) -> round(math:pow(10, N)).

%%% generators

page() ->
    ?LET(Families, list(oneof([simple(counter), simple(gauge), info(), stateset(), summary(),
                               histogram()])),
         %% A name for each, in order.
         [{Family#{name => iolist_to_binary(io_lib:format("m~4..0b_~s", [I, Name]))}, Series}
          || {I, {#{name := Name} = Family, Series}}
                 <- lists:zip(lists:seq(1, length(Families)), Families)]).

declared(Type, More) ->
    ?LET({Name, Help, Unit, Decimals, Labels},
         {name(), utf8_text(), oneof([<<>>, <<"seconds">>, <<"bytes">>]), range(0, 9),
          ?LET(N, range(0, 3), return(lists:sublist([<<"a">>, <<"b_c">>, <<"D9">>], N)))},
         family(case Unit of <<>> -> Name; _ -> <<Name/binary, $_, Unit/binary>> end, Type,
                More#{help => Help, unit => Unit, decimals => Decimals, labels => Labels})).

name() ->
    ?LET(Text, non_empty(list(oneof([range($a, $z), range($A, $Z), $_, $:, range($0, $9)]))),
         list_to_binary([$x | Text])).

series(#{labels := Names}, Value) ->
    ?LET(All, list({[utf8_text() || _ <- Names], Value, range(0, 1 bsl 42)}),
         [{text(lists:zip(Names, Values)), lists:zip(Names, Values), V, Created}
          || {Values, V, Created} <- lists:ukeysort(1, All)]).

simple(counter) ->
    ?LET(F, declared(counter, #{}), {F, series(F, integers(0))});
simple(gauge) ->
    ?LET(F, declared(gauge, #{}),
         {F, series(F, oneof([integers(-(1 bsl 63)), float(), nan, infinity, neg_infinity]))}).

integers(Low) ->
    oneof([range(max(Low, -10), 10), range(max(Low, -100000), 100000),
           range(Low, (1 bsl 64) - 1),
           ?LET({E, N}, {range(0, 18), range(0, 9)}, N * pow10(E))]).

info() ->
    ?LET(F, declared(info, #{unit => <<>>}),
         {F, series(F, [{<<"version">>, utf8_text()}, {<<"os">>, utf8_text()}])}).

stateset() ->
    ?LET(States, ?SUCHTHAT(S, non_empty(list(utf8_text())), length(S) =:= length(lists:usort(S))),
         ?LET(#{name := Name} = F, declared(stateset, #{states => States}),
              %% The name is that of a label, too, which can have no colon.
              {F#{name := binary:replace(Name, <<":">>, <<"_">>, [global])},
               series(F, [boolean() || _ <- States])})).

summary() ->
    ?LET(F, declared(summary, #{}),
         {F, series(F, ?LET({Count, Sum, Div, Qs},
                            {range(0, 1 bsl 60), range(0, 1 bsl 63), unit_div(),
                             [{Q, oneof([?LET(V, float(), abs(V)), nan])}
                             || Q <- [0.0, 0.5, 0.999, 1.0]]},
                            #{count => Count, sum => Sum, unit_div => Div, quantiles => Qs}))}).

histogram() ->
    ?LET({F, Shape}, {declared(histogram, #{}), oneof([exponential(), custom()])},
         {F, series(F, filled(Shape))}).

unit_div() -> oneof([1, 1000, 1000000, 1000000000]).

%% One layout for a family, as in life.
exponential() ->
    ?LET({Scale, Low, Octaves, Div}, {range(1, 6), range(-20, 10), range(1, 6), unit_div()},
         #{scale => Scale, offset => (Low bsl Scale) + 1, size => Octaves bsl Scale,
           zero_threshold => math:pow(2, Low), unit_div => Div}).

custom() ->
    ?LET({Bounds, Div},
         {?LET(L, non_empty(list(oneof([range(0, 1000),
                                        ?LET(X, range(0, 100000), X / 1000)]))),
               lists:usort([B * 1.0 || B <- L])), unit_div()},
         #{scale => custom, bounds => Bounds, size => length(Bounds), zero_threshold => 0.0,
           unit_div => Div}).

filled(#{size := Size, scale := Scale} = Shape) ->
    Zero = case Scale of custom -> 0; _ -> count() end,
    ?LET({Buckets, Z, Over, Sum}, {[count() || _ <- lists:seq(1, Size)], Zero, count(),
                                   range(0, 1 bsl 63)},
         (maps:remove(size, Shape))#{buckets => Buckets, zero => Z, over => Over, sum => Sum,
                                     count => Z + Over + lists:sum(Buckets), dropped => 0}).

%% Mostly empty, as in life.
count() -> frequency([{6, 0}, {3, range(1, 300)}, {1, range(0, 1 bsl 50)}]).

%% Scale 1, from 2^-2 to 2^3.
hist() ->
    #{scale => 1, offset => -3, zero_threshold => 0.25, unit_div => 1000000000, zero => 1,
      buckets => [2, 0, 3, 0, 0, 0, 0, 4, 5, 0], over => 6, count => 21, dropped => 0,
      sum => 123456789012}.

utf8_text() ->
    ?LET(Chars, list(frequency([{4, range($\s, $~)}, {3, oneof("\\\"\n\r\t,{}= #")},
                                {1, oneof([0, 16#7F, 16#85, 16#E9, 16#2028, 16#FEFF, 16#1F600])},
                                {1, range(16#80, 16#D7FF)}, {1, range(16#E000, 16#10FFFF)}])),
         unicode:characters_to_binary(Chars)).
