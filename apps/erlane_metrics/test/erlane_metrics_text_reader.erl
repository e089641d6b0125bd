%% SPDX-License-Identifier: Apache-2.0
%% Reads the text formats, strictly and without anything of the code that wrote them: what is
%% not in the grammar fails. OpenMetrics 1.0 ("ABNF") and Prometheus 0.0.4.
-module(erlane_metrics_text_reader).

-export([read/2, bits/1]).

%% Families in order: #{name, type, help, unit, samples := [{Name, Labels, Value}]}; a value is
%% its text, a label's value is without escapes.
read(Dialect, Page) ->
    Lines = binary:split(Page, <<"\n">>, [global]),
    %% The last line ends, too.
    <<>> = lists:last(Lines),
    families(Dialect, eof(Dialect, lists:droplast(Lines)), []).

eof(openmetrics, Lines) ->
    <<"# EOF">> = lists:last(Lines),
    lists:droplast(Lines);
eof(text, Lines) ->
    Lines.

families(_Dialect, [], Acc) ->
    Families = [F#{samples := lists:reverse(S)} || #{samples := S} = F <- lists:reverse(Acc)],
    Names = [Name || #{name := Name} <- Families],
    true = length(Names) =:= length(lists:usort(Names)),
    Families;
families(Dialect, [<<"# ", Line/binary>> | Lines], Acc) ->
    [Kind, Name | Rest] = parts(Line),
    Text = case Rest of [T] -> T; [] -> <<>> end,
    true = is_name(Name),
    {Family, Others} = case Acc of
                           [#{name := Name, samples := []} = F | Fs] -> {F, Fs};
                           _ -> {new(Name), Acc}
                       end,
    Key = case Kind of
              <<"TYPE">> -> type;
              <<"HELP">> -> help;
              <<"UNIT">> when Dialect =:= openmetrics -> unit
          end,
    %% Each at most once.
    undefined = maps:get(Key, Family),
    Value = case Key of
                help -> plain(Dialect, Text);
                _ -> Text
            end,
    families(Dialect, Lines, [Family#{Key := Value} | Others]);
families(Dialect, [Line | Lines], [#{name := Name, samples := Samples} = Family | Fs]) ->
    {Sample, _, _} = Read = sample(Line),
    {true, Line} = {belongs(Dialect, maps:get(type, Family), Name, Sample), Line},
    families(Dialect, Lines, [Family#{samples := [Read | Samples]} | Fs]).

new(Name) ->
    #{name => Name, type => undefined, help => undefined, unit => undefined, samples => []}.

parts(Line) ->
    case binary:split(Line, <<" ">>) of
        [Kind, Rest] -> [Kind | binary:split(Rest, <<" ">>)];
        _ -> error({bad_line, Line})
    end.

is_name(Name) ->
    re:run(Name, "^[a-zA-Z_:][a-zA-Z0-9_:]*$", [dollar_endonly, {capture, none}]) =:= match.

belongs(text, Type, Name, Sample) when Type =:= <<"counter">>; Type =:= <<"gauge">> ->
    Sample =:= Name;
belongs(Dialect, Type, Name, Sample) ->
    {Begin, Suffix} = {binary:part(Sample, 0, byte_size(Name)),
                       binary:part(Sample, byte_size(Name), byte_size(Sample) - byte_size(Name))},
    Begin =:= Name andalso lists:member(Suffix, suffixes(Dialect, Type)).

suffixes(openmetrics, <<"counter">>) -> [<<"_total">>, <<"_created">>];
suffixes(openmetrics, <<"gauge">>) -> [<<>>];
suffixes(openmetrics, <<"info">>) -> [<<"_info">>];
suffixes(openmetrics, <<"stateset">>) -> [<<>>];
suffixes(openmetrics, Type) -> [<<"_created">> | suffixes(text, Type)];
suffixes(text, <<"histogram">>) -> [<<"_bucket">>, <<"_count">>, <<"_sum">>];
suffixes(text, <<"summary">>) -> [<<>>, <<"_count">>, <<"_sum">>].

%% `name value' or `name{a="b",c="d"} value'
sample(Line) ->
    {match, [{0, Length}]} = re:run(Line, "^[a-zA-Z_:][a-zA-Z0-9_:]*"),
    <<Name:Length/binary, Rest/binary>> = Line,
    {Labels, Value} = case Rest of
                          <<"{", More/binary>> -> labels(More, []);
                          <<" ", More/binary>> -> {[], More}
                      end,
    nomatch = binary:match(Value, [<<" ">>, <<"\t">>, <<"\r">>]),
    {Name, Labels, Value}.

labels(Text, Acc) ->
    {match, [{0, Length}]} = re:run(Text, "^[a-zA-Z_][a-zA-Z0-9_]*"),
    <<Name:Length/binary, "=\"", Rest/binary>> = Text,
    {Value, After} = quoted(Rest, <<>>),
    false = lists:keymember(Name, 1, Acc),
    case After of
        <<",", More/binary>> -> labels(More, [{Name, Value} | Acc]);
        <<"} ", More/binary>> -> {lists:reverse([{Name, Value} | Acc]), More}
    end.

quoted(<<"\\\\", Rest/binary>>, Acc) -> quoted(Rest, <<Acc/binary, "\\">>);
quoted(<<"\\n", Rest/binary>>, Acc) -> quoted(Rest, <<Acc/binary, "\n">>);
quoted(<<"\\\"", Rest/binary>>, Acc) -> quoted(Rest, <<Acc/binary, "\"">>);
quoted(<<"\"", Rest/binary>>, Acc) -> {Acc, Rest};
quoted(<<C/utf8, Rest/binary>>, Acc) when C =/= $\\ -> quoted(Rest, <<Acc/binary, C/utf8>>).

plain(Dialect, Help) -> plain(Dialect, Help, <<>>).

plain(Dialect, <<"\\\\", Rest/binary>>, Acc) -> plain(Dialect, Rest, <<Acc/binary, "\\">>);
plain(Dialect, <<"\\n", Rest/binary>>, Acc) -> plain(Dialect, Rest, <<Acc/binary, "\n">>);
plain(openmetrics, <<"\\\"", Rest/binary>>, Acc) ->
    plain(openmetrics, Rest, <<Acc/binary, "\"">>);
plain(Dialect, <<C/utf8, Rest/binary>>, Acc)
  when C =/= $\\, C =/= $" orelse Dialect =:= text ->
    plain(Dialect, Rest, <<Acc/binary, C/utf8>>);
plain(_, <<>>, Acc) -> Acc.

%% The value's double, as the 64 bits that a reader in any language gets.
bits(<<"NaN">>) -> 16#7FF8000000000000;
bits(<<"+Inf">>) -> 16#7FF0000000000000;
bits(<<"-Inf">>) -> 16#FFF0000000000000;
bits(Text) ->
    %% Erlang wants a point in each float.
    {match, [Whole | More]} = re:run(Text, "^([+-]?\\d+)(\\.\\d+)?(e[+-]?\\d+)?$",
                                     [{capture, all_but_first, binary}]),
    Float = case More of
                [] -> float(binary_to_integer(Whole));
                [Fraction] -> binary_to_float(<<Whole/binary, Fraction/binary>>);
                [<<>>, E] -> binary_to_float(<<Whole/binary, ".0", E/binary>>);
                [Fraction, E] -> binary_to_float(<<Whole/binary, Fraction/binary, E/binary>>)
            end,
    <<Bits:64>> = <<Float/float>>,
    Bits.
