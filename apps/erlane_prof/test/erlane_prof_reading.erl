%% SPDX-License-Identifier: Apache-2.0
%% Reads the formats of profiles back, independently of what writes them, and forms the sums of
%% the main column by function: `{Sum, #{Name => {Self, Total}}}'.
-module(erlane_prof_reading).

-export([profile/1, collapsed/1, speedscope/1, callgrind/1, pprof/1, flame/1, columns_pprof/1,
         page_data/1]).

%% What all others have to be equal to.
profile(Profile) ->
    {erlane_prof_profile:total(Profile, main),
     maps:from_list([{name(F), {Self, Total}}
                     || #{function := F, self := Self, total := Total}
                            <- erlane_prof_profile:top(Profile, main, all)])}.

name(F) -> binary:replace(erlane_prof_text:name(F), <<";">>, <<",">>, [global]).

%% Stacks of names, outermost first, with a value.
sums(Stacks) ->
    {lists:sum([V || {_, V} <- Stacks]),
     lists:foldl(fun({_, 0}, Acc) -> Acc;
                    ({Stack, V}, Acc) ->
                         Inner = lists:last(Stack),
                         lists:foldl(fun(N, A) ->
                                             {S, T} = maps:get(N, A, {0, 0}),
                                             Self = case N of Inner -> V; _ -> 0 end,
                                             A#{N => {S + Self, T + V}}
                                     end, Acc, lists:usort(Stack))
                 end, #{}, Stacks)}.

%% The state, if it is there, and the process are not frames of the program.
program([<<"[", _/binary>>, _Proc | Frames]) -> Frames;
program([_Proc | Frames]) -> Frames.

collapsed(Bytes) ->
    Lines = binary:split(iolist_to_binary(Bytes), <<"\n">>, [global, trim]),
    sums([begin
              [Names, Value] = string:split(Line, " ", trailing),
              {program(binary:split(Names, <<";">>, [global])), binary_to_integer(Value)}
          end || Line <- Lines]).

speedscope(Bytes) ->
    #{<<"shared">> := #{<<"frames">> := Frames}, <<"profiles">> := [Main | _]} =
        erlane_dash_reader:read(iolist_to_binary(Bytes)),
    #{<<"type">> := <<"sampled">>, <<"samples">> := Samples, <<"weights">> := Weights,
      <<"startValue">> := 0, <<"endValue">> := End} = Main,
    End = lists:sum(Weights),
    Names = list_to_tuple([comma(N) || #{<<"name">> := N} <- Frames]),
    sums([{program([element(N + 1, Names) || N <- Sample]), V}
          || {Sample, V} <- lists:zip(Samples, Weights)]).

comma(Name) -> binary:replace(Name, <<";">>, <<",">>, [global]).

%%% the page

page_data(Page) ->
    [_, Rest] = binary:split(iolist_to_binary(Page),
                             <<"<script type=\"application/json\" id=\"data\">">>),
    [Data, _] = binary:split(Rest, <<"</script>">>),
    erlane_dash_reader:read(Data).

flame(Page) ->
    #{<<"strings">> := Strings, <<"functions">> := Functions, <<"nodes">> := Nodes,
      <<"rows">> := Rows, <<"columns">> := Columns} = page_data(Page),
    Names = [lists:nth(N + 1, Strings) || [N, _, _] <- Functions],
    Way = fun Way(-1, Acc) -> Acc;
              Way(At, Acc) ->
                  [Parent, Function] = lists:sublist(Nodes, 2 * At + 1, 2),
                  Way(Parent, [comma(lists:nth(Function + 1, Names)) | Acc])
          end,
    sums([{Way(Leaf, []), V} || [_, Leaf, _, V | _] <- pieces(Rows, 3 + length(Columns))]).

pieces([], _) -> [];
pieces(List, N) ->
    {Piece, More} = lists:split(N, List),
    [Piece | pieces(More, N)].

%%% callgrind

%% Inclusive cost is formed twice, from what calls and from what is called; they must agree.
callgrind(Bytes) ->
    Lines = binary:split(iolist_to_binary(Bytes), <<"\n">>, [global, trim]),
    S0 = #{names => #{}, self => #{}, out => #{}, in => #{}, fn => none, callee => none},
    #{self := Self, out := Out, in := In, totals := Sum, summary := Sum} =
        lists:foldl(fun callgrind/2, S0, Lines),
    %% Processes are not among them, as nothing calls one.
    Totals = maps:filter(fun(Name, _) -> plain(Name) =:= Name end, In),
    %% What a function does itself and what it calls is what it is called for.
    [Want = maps:get(Name, Self, 0) + maps:get(Name, Out, 0) || {Name, Want} <- maps:to_list(In)],
    Sum = lists:sum(maps:values(Self)),
    Plain = maps:fold(fun(Name, V, Acc) ->
                              maps:update_with(plain(Name), fun(X) -> X + V end, V, Acc)
                      end, #{}, Self),
    {Sum, maps:from_list([{comma(N), {maps:get(N, Plain, 0), T}} || {N, T} <- maps:to_list(Totals),
                                                            T > 0])}.

%% Without the level of recursion.
plain(Name) -> re:replace(Name, "'[0-9]+$", "", [{return, binary}]).

callgrind(<<"fn=", Rest/binary>>, S) -> named(fn, Rest, S);
callgrind(<<"cfn=", Rest/binary>>, S) -> named(callee, Rest, S);
callgrind(<<"ob=", Rest/binary>>, S) -> named(skipped, Rest, S);
callgrind(<<"fl=", Rest/binary>>, S) -> named(skipped, Rest, S);
callgrind(<<"cob=", Rest/binary>>, S) -> named(skipped, Rest, S);
callgrind(<<"cfi=", Rest/binary>>, S) -> named(skipped, Rest, S);
callgrind(<<"calls=", _/binary>>, S) -> S#{called => true};
callgrind(<<"summary: ", Rest/binary>>, S) -> S#{summary => first(Rest)};
callgrind(<<"totals: ", Rest/binary>>, S) -> S#{totals => first(Rest)};
callgrind(<<D, _/binary>> = Line, #{fn := Fn, self := Self, out := Out, in := In} = S)
  when D >= $0, D =< $9 ->
    [_, Rest] = binary:split(Line, <<" ">>),
    V = first(Rest),
    case S of
        #{called := true, callee := Callee} ->
            maps:remove(called, S#{out := plus(Fn, V, Out), in := plus(Callee, V, In)});
        #{} -> S#{self := plus(Fn, V, Self)}
    end;
callgrind(_, S) -> S.

plus(Key, V, Map) -> maps:update_with(Key, fun(X) -> X + V end, V, Map).

first(Text) -> binary_to_integer(hd(binary:split(Text, <<" ">>))).

named(What, Text, #{names := Names} = S) ->
    case binary:split(Text, <<" ">>) of
        [N, Name] -> S#{What => Name, names := Names#{N => Name}};
        [N] -> S#{What => maps:get(N, Names)}
    end.

%%% pprof

pprof(Bytes) ->
    Fields = message(zlib:gunzip(Bytes)),
    Strings = list_to_tuple([V || {6, V} <- Fields]),
    Functions = maps:from_list([{field(1, F), element(field(2, F) + 1, Strings)}
                                || {5, M} <- Fields, F <- [message(M)]]),
    Locations = maps:from_list([{field(1, L), maps:get(field(1, message(field(4, L))), Functions)}
                                || {4, M} <- Fields, L <- [message(M)]]),
    <<>> = element(1, Strings),
    sums([{lists:reverse([comma(maps:get(I, Locations)) || I <- varints(field(1, S))]),
           hd(varints(field(2, S)))} || {2, M} <- Fields, S <- [message(M)]]).

%% Names and units of the columns.
columns_pprof(Bytes) ->
    Fields = message(zlib:gunzip(Bytes)),
    Strings = list_to_tuple([V || {6, V} <- Fields]),
    [{element(field(1, T) + 1, Strings), element(field(2, T) + 1, Strings)}
     || {1, M} <- Fields, T <- [message(M)]].

field(N, Fields) -> proplists:get_value(N, Fields, 0).

message(<<>>) -> [];
message(Bytes) ->
    {Key, Rest} = varint(Bytes, 0, 0),
    {Value, More} = value(Key band 7, Rest),
    [{Key bsr 3, Value} | message(More)].

value(0, Bytes) -> varint(Bytes, 0, 0);
value(2, Bytes) ->
    {Size, Rest} = varint(Bytes, 0, 0),
    <<Value:Size/binary, More/binary>> = Rest,
    {Value, More}.

varint(<<0:1, N:7, Rest/binary>>, Shift, Acc) -> {N bsl Shift bor Acc, Rest};
varint(<<1:1, N:7, Rest/binary>>, Shift, Acc) -> varint(Rest, Shift + 7, N bsl Shift bor Acc).

varints(<<>>) -> [];
varints(Bytes) ->
    {N, Rest} = varint(Bytes, 0, 0),
    [N | varints(Rest)].
