%% SPDX-License-Identifier: Apache-2.0
%% A profile as a file for speedscope: <https://www.speedscope.app/file-format-schema.json>. One
%% profile of the file for each column; the state and the process are the first frames. Pure.
-module(erlane_prof_speedscope).

-export([format/1]).

-define(SCHEMA, <<"https://www.speedscope.app/file-format-schema.json">>).

%% JSON.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(#{node := Node, mode := Mode, values := Columns, rows := Rows}) ->
    {Stacks, {Frames, _}} = lists:mapfoldl(fun stack/2, {#{}, 0}, Rows),
    Listed = [Frame || {_, Frame} <- lists:sort([{N, F} || {F, N} <- maps:to_list(Frames)])],
    Paired = lists:zip(Stacks, [Values || #{values := Values} <- Rows]),
    Profiles = [column(Column, [{Stack, lists:nth(N, Values)} || {Stack, Values} <- Paired])
                || {N, Column} <- lists:zip(lists:seq(1, length(Columns)), Columns)],
    Name = iolist_to_binary([atom_to_binary(Node), ", ", atom_to_binary(Mode)]),
    [erlane_prof_text:json(#{'$schema' => ?SCHEMA, exporter => <<"erlane">>, name => Name,
                             activeProfileIndex => 0, shared => #{frames => Listed},
                             profiles => Profiles}), $\n].

%% The samples have the order of the rows: stacks that begin alike stand together.
column(#{name := Name, unit := Unit}, Weighted) ->
    Taken = [Pair || {_, Value} = Pair <- Weighted, Value > 0],
    Weights = [Value || {_, Value} <- Taken],
    #{type => <<"sampled">>, name => Name, unit => unit(Unit), startValue => 0,
      endValue => lists:sum(Weights), samples => [Stack || {Stack, _} <- Taken],
      weights => Weights}.

unit(nanoseconds) -> <<"nanoseconds">>;
unit(bytes) -> <<"bytes">>;
unit(_) -> <<"none">>.

stack(#{stack := Stack} = Row, Known) ->
    Roots = [#{name => Root} || Root <- erlane_prof_text:roots(Row)],
    {Numbers, More} = lists:mapfoldl(fun number/2, Known, Roots ++ [frame(F) || F <- Stack]),
    {{raw, [$[, lists:join($,, Numbers), $]]}, More}.

%% The line is left out: speedscope would take each line for a function of its own.
frame({M, F, A, <<>>, _}) -> #{name => erlane_prof_text:name({M, F, A})};
frame({M, F, A, File, _}) ->
    #{name => erlane_prof_text:name({M, F, A}), file => erlane_prof_text:clean(File)};
frame(Symbol) -> #{name => erlane_prof_text:name(Symbol)}.

number(Frame, {Frames, Next}) ->
    case Frames of
        #{Frame := N} -> {integer_to_binary(N), {Frames, Next}};
        #{} -> {integer_to_binary(Next), {Frames#{Frame => Next}, Next + 1}}
    end.
