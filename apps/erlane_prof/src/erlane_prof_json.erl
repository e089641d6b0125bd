%% SPDX-License-Identifier: Apache-2.0
%% @doc A profile as JSON for programs: its facts, its functions, and what mode `latency' has told
%% of each. Stacks are in the files of other formats. Pure.
-module(erlane_prof_json).

-export([format/1, format/2]).

%% @doc The first 1000 functions.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(Profile) -> format(Profile, 1000).

%% @doc One object, and a newline. `functions' has so many of them by the first column; `self' and
%% `total' are in its unit.
-spec format(erlane_prof_profile:profile(), pos_integer() | all) -> iodata().
format(#{values := [#{name := Column} | _] = Values} = Profile, Count) ->
    Facts = maps:with([version, mode, node, otp, began, ns, lost, notes], Profile),
    Top = erlane_prof_profile:top(Profile, Column, Count),
    Of = fun(Label) ->
                 maps:from_list([{label(L), V}
                                 || {L, V} <- erlane_prof_profile:sums(Profile, Column, Label)])
         end,
    Latency = case Profile of
                  #{latency := Spreads} -> #{latency => [spread(S) || S <- Spreads]};
                  #{} -> #{}
              end,
    Object = maps:merge(Facts#{columns => Values,
                               total => erlane_prof_profile:total(Profile, Column),
                               states => Of(state), processes => Of(proc),
                               functions => [E#{function := erlane_prof_text:name(F)}
                                             || #{function := F} = E <- Top]}, Latency),
    [erlane_prof_text:json(Object), $\n].

label(Label) when is_atom(Label) -> Label;
label(Label) -> erlane_prof_text:clean(Label).

%% Buckets as the smallest and the largest nanosecond of each, and how many calls.
spread(#{function := F, buckets := Buckets, dropped := Dropped, open := Open,
         slowest := Slowest} = Spread) ->
    (erlane_prof_spread:summary(Spread))#{
      function => erlane_prof_text:name(F), dropped => Dropped, open => Open,
      buckets => [[erlane_prof_histogram:low(B), erlane_prof_histogram:high(B), N]
                  || {B, N} <- lists:sort(maps:to_list(Buckets))],
      slowest => [Slow#{caller := case Caller of
                                      undefined -> null;
                                      _ -> erlane_prof_text:name(Caller)
                                  end} || #{caller := Caller} = Slow <- Slowest]}.
