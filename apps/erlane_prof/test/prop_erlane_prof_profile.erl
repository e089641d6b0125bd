%% SPDX-License-Identifier: Apache-2.0
%% What holds for every profile: sums, merging, differences, and that each format says the same.
-module(prop_erlane_prof_profile).

-export([prop_sums/0, prop_order/0, prop_merge/0, prop_diff/0, prop_formats/0, prop_stored/0,
         prop_damaged/0]).
-export([profile/0]).

-include_lib("proper/include/proper.hrl").

%% Names that could be taken for something else, and such that occur more than once in a stack.
frame() ->
    oneof([?LET({F, Line}, {oneof([a, b, c, loop]), range(0, 9)}, {m, F, 1, <<"m.erl">>, Line}),
           {'Odd;mod', 'f g', 0, <<"o d.erl">>, 7}, {'it\'s', '</script>', 2, <<>>, 0},
           {list_to_atom("\x{3bb}"), 'new\nline', 3, <<"x.erl">>, 1}, <<"memcpy">>,
           <<"bad ", 255, " utf8">>]).

row() ->
    ?LET({Proc, Pid, App, State, Stack, Values},
         {oneof([<<"shop">>, <<"m:init/1">>, <<"odd proc">>]),
          oneof([none, <<"<0.1.0>">>, <<"<0.2.0>">>]), oneof([none, kernel, shop]),
          oneof([running, waiting, any]), list(frame()),
          [range(0, 1000), oneof([0, range(0, 1 bsl 62)])]},
         maps:from_list([{proc, Proc}, {state, State}, {stack, Stack}, {values, Values}]
                        ++ [{pid, Pid} || Pid =/= none] ++ [{app, App} || App =/= none])).

fields(Rows) ->
    #{mode => sample, node => 'n@h', began => 1795325000000000, ns => 1000000000, lost => 1,
      notes => [<<"a <note>">>], rows => Rows,
      values => [#{name => samples, unit => count}, #{name => wall, unit => nanoseconds}]}.

profile() -> ?LET(Rows, list(row()), erlane_prof_profile:new(fields(Rows))).

%% Self sums to the total, a total is at least its self and at most the sum; labels have it all.
prop_sums() ->
    ?FORALL({Profile, Column}, {profile(), oneof([samples, wall])},
            begin
                Sum = erlane_prof_profile:total(Profile, Column),
                Top = erlane_prof_profile:top(Profile, Column, all),
                Sum =:= lists:sum([S || #{self := S} <- Top])
                    andalso lists:all(fun(#{self := S, total := T}) -> S =< T andalso T =< Sum end,
                                      Top)
                    andalso lists:all(fun(Label) ->
                                              Sums = erlane_prof_profile:sums(Profile, Column,
                                                                              Label),
                                              Sum =:= lists:sum([V || {_, V} <- Sums])
                                      end, [proc, pid, app, state])
                    andalso parts(Profile, Column) =:= Sum
            end).

%% The states do not overlap and leave nothing out.
parts(Profile, Column) ->
    lists:sum([erlane_prof_profile:total(erlane_prof_profile:filter(Profile, #{state => [S]}),
                                         Column) || S <- [running, waiting, any]]).

%% The order in which rows come, and their being alike, make no difference.
prop_order() ->
    ?FORALL(Rows, list(row()),
            begin
                Profile = erlane_prof_profile:new(fields(Rows)),
                Twice = erlane_prof_profile:new(fields(Rows ++ Rows)),
                Profile =:= erlane_prof_profile:new(fields(lists:reverse(Rows)))
                    andalso erlane_prof_profile:total(Twice, main)
                        =:= 2 * erlane_prof_profile:total(Profile, main)
                    andalso length(maps:get(rows, Twice)) =:= length(maps:get(rows, Profile))
            end).

prop_merge() ->
    ?FORALL({A, B, C}, {profile(), profile(), profile()},
            begin
                {ok, AB} = erlane_prof_profile:merge(A, B),
                {ok, BA} = erlane_prof_profile:merge(B, A),
                {ok, BC} = erlane_prof_profile:merge(B, C),
                {ok, Left} = erlane_prof_profile:merge(AB, C),
                {ok, Right} = erlane_prof_profile:merge(A, BC),
                AB =:= BA andalso Left =:= Right
                    andalso erlane_prof_profile:total(AB, wall)
                        =:= erlane_prof_profile:total(A, wall) + erlane_prof_profile:total(B, wall)
            end).

%% Each side of a difference has its own sums.
prop_diff() ->
    ?FORALL({A, B}, {profile(), profile()},
            begin
                {ok, D} = erlane_prof_profile:diff(A, B),
                {error, already_a_difference} = erlane_prof_profile:diff(D, A),
                Total = fun erlane_prof_profile:total/2,
                Total(D, samples) =:= Total(B, samples)
                    andalso Total(D, before_samples) =:= Total(A, samples)
                    andalso Total(D, before_wall) =:= Total(A, wall)
                    andalso lists:filter(fun(#{total := T}) -> T > 0 end,
                                         erlane_prof_profile:top(D, before_samples, all))
                        =:= erlane_prof_profile:top(A, samples, all)
                    andalso is_binary(iolist_to_binary(erlane_prof_top:format(D)))
            end).

%% Every format, read back, has the sum, and the self and the total of each function.
prop_formats() ->
    ?FORALL(Profile, profile(),
            begin
                Want = erlane_prof_reading:profile(Profile),
                Read = fun(Format) ->
                               Bytes = erlane_prof_file:encode(Profile, Format),
                               erlane_prof_reading:Format(Bytes)
                       end,
                Got = [{Format, Read(Format)}
                       || Format <- [collapsed, speedscope, callgrind, pprof, flame]],
                ?WHENFAIL(io:format("want ~0p~ngot ~0p~n", [Want, Got]),
                          lists:all(fun({_, Sums}) -> Sums =:= Want end, Got))
            end).

prop_stored() ->
    ?FORALL({A, B}, {profile(), profile()},
            begin
                {ok, D} = erlane_prof_profile:diff(A, B),
                lists:all(fun(P) ->
                                  Bytes = iolist_to_binary(erlane_prof_stored:encode(P)),
                                  {ok, P} =:= erlane_prof_stored:decode(Bytes)
                          end, [A, D])
            end).

%% A file that is cut off or has a wrong byte anywhere is an error, or else a profile.
prop_damaged() ->
    ?FORALL({Profile, Part, Byte}, {profile(), float(0.0, 0.9999), byte()},
            begin
                Bytes = iolist_to_binary(erlane_prof_stored:encode(Profile)),
                At = trunc(Part * byte_size(Bytes)),
                <<Before:At/binary, _, After/binary>> = Bytes,
                {error, _} = erlane_prof_stored:decode(Before),
                case erlane_prof_stored:decode(<<Before/binary, Byte, After/binary>>) of
                    {ok, Other} -> ok =:= erlane_prof_profile:check(Other);
                    {error, _} -> true
                end
            end).
