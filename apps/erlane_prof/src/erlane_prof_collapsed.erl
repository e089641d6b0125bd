%% SPDX-License-Identifier: Apache-2.0
%% Collapsed stacks: a line `frame;frame;frame count' for each stack, outermost frame first. The
%% state and the process are the first frames. A difference has two counts, before and after.
%% Read by flame graph tools and by speedscope. Pure.
-module(erlane_prof_collapsed).

-export([format/1, format/2]).

%% The main column.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(Profile) -> format(Profile, main).

%% A column; rows that have none of it are left out.
-spec format(erlane_prof_profile:profile(), Column :: atom()) -> iodata().
format(#{rows := Rows} = Profile, Column) ->
    N = erlane_prof_profile:column(Column, Profile),
    Places = case Profile of
                 #{base := _, values := Columns} -> [N + length(Columns) div 2, N];
                 #{} -> [N]
             end,
    Lines = lists:foldl(fun(#{values := Values} = Row, Acc) ->
                                Counts = [lists:nth(P, Values) || P <- Places],
                                Line = line(Row),
                                Acc#{Line => plus(Counts, maps:get(Line, Acc, none))}
                        end, #{}, Rows),
    [[Line, [[$\s, integer_to_binary(V)] || V <- Values], $\n]
     || {Line, Values} <- lists:sort(maps:to_list(Lines)), lists:sum(Values) > 0].

plus(A, none) -> A;
plus(A, B) -> lists:zipwith(fun erlang:'+'/2, A, B).

line(#{stack := Stack} = Row) ->
    Names = erlane_prof_text:roots(Row)
        ++ [erlane_prof_text:name(erlane_prof_profile:function(Frame)) || Frame <- Stack],
    iolist_to_binary(lists:join($;, [separate(Name) || Name <- Names])).

%% The separator in a name would make two frames of it.
separate(Name) -> binary:replace(Name, <<";">>, <<",">>, [global]).
