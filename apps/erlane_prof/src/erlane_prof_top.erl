%% SPDX-License-Identifier: Apache-2.0
%% The functions that matter, as a plain table. Pure.
-module(erlane_prof_top).

-export([format/1, format/2]).

%% The first 20 functions by the main column.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(Profile) -> format(Profile, #{}).

%% `count' functions by what they did themselves in `column'; UTF-8. A difference shows each
%% share, what it was before and by how many points it has changed, the largest change first.
-spec format(erlane_prof_profile:profile(),
             #{count => pos_integer() | all, column => atom()}) -> iodata().
format(Profile, Options) ->
    Count = maps:get(count, Options, 20),
    Place = erlane_prof_profile:column(maps:get(column, Options, main), Profile),
    #{name := Column, unit := Unit} = lists:nth(Place, maps:get(values, Profile)),
    Rows = case Profile of
               #{base := _} -> difference(Profile, Place, Column, Unit, Count);
               #{} -> plain(Profile, Column, Unit, Count)
           end,
    [head(Profile, Column, Unit), states(Profile, Column), notes(Profile), $\n,
     case Profile of
         #{latency := [_ | _] = Spreads} -> erlane_prof_spread:format(Spreads);
         #{} -> erlane_prof_text:table(Rows)
     end].

head(#{node := Node, mode := Mode, otp := Otp, ns := Ns} = Profile, Column, Unit) ->
    Of = case Unit of
             count -> [$\s, atom_to_binary(Column)];
             _ -> [" of ", atom_to_binary(Column)]
         end,
    [atom_to_binary(Node), ", OTP ", Otp, ": ", atom_to_binary(Mode), ", ",
     erlane_prof_text:amount(Ns, nanoseconds), ", ",
     erlane_prof_text:amount(erlane_prof_profile:total(Profile, Column), Unit), Of, $\n].

states(Profile, Column) ->
    Total = erlane_prof_profile:total(Profile, Column),
    case erlane_prof_profile:sums(Profile, Column, state) of
        [_, _ | _] = Sums ->
            [lists:join("  ", [[atom_to_binary(S), $\s, erlane_prof_text:share(V, Total)]
                               || {S, V} <- Sums]), $\n];
        _ -> []
    end.

notes(#{lost := Lost, notes := Notes}) ->
    [[["lost: ", erlane_prof_text:amount(Lost, count), $\n] || Lost > 0],
     [["note: ", erlane_prof_text:clean(Note), $\n] || Note <- Notes]].

%% Functions that were counted have their calls, and no others called by them.
plain(#{mode := Mode} = Profile, Column, Unit, Count)
  when Mode =:= time, Column =:= time; Mode =:= memory, Column =:= words ->
    Total = erlane_prof_profile:total(Profile, Column),
    Calls = maps:from_list([{F, N} || #{function := F, self := N}
                                          <- erlane_prof_profile:top(Profile, calls, all)]),
    [["calls", "self", "", "each", "function"] |
     [[erlane_prof_text:amount(N, count), erlane_prof_text:amount(Self, Unit),
       erlane_prof_text:share(Self, Total), erlane_prof_text:amount(Self div max(1, N), Unit),
       erlane_prof_text:name(F)]
      || #{function := F, self := Self} <- erlane_prof_profile:top(Profile, Column, Count),
         N <- [maps:get(F, Calls, 0)]]];
plain(Profile, Column, Unit, Count) ->
    Total = erlane_prof_profile:total(Profile, Column),
    [["self", "", "total", "", "function"] |
     [[erlane_prof_text:amount(Self, Unit), erlane_prof_text:share(Self, Total),
       erlane_prof_text:amount(All, Unit), erlane_prof_text:share(All, Total),
       erlane_prof_text:name(F)]
      || #{function := F, self := Self, total := All}
             <- erlane_prof_profile:top(Profile, Column, Count)]].

difference(Profile, Place, Column, Unit, Count) ->
    Before = lists:nth(Place + length(maps:get(values, Profile)) div 2,
                       erlane_prof_profile:columns(Profile)),
    Was = shares(Profile, Before),
    Is = shares(Profile, Column),
    Changed = [{-abs(Now - Old), F, Self, Now, Old}
               || F <- maps:keys(maps:merge(Was, Is)),
                  {Self, Now} <- [maps:get(F, Is, {0, 0.0})],
                  {_, Old} <- [maps:get(F, Was, {0, 0.0})]],
    Sorted = lists:sort(Changed),
    Taken = case Count of
                all -> Sorted;
                _ -> lists:sublist(Sorted, Count)
            end,
    [["self", "", "before", "change", "function"] |
     [[erlane_prof_text:amount(Self, Unit), io_lib:format("~.1f%", [Now]),
       io_lib:format("~.1f%", [Old]), change(Now - Old), erlane_prof_text:name(F)]
      || {_, F, Self, Now, Old} <- Taken]].

shares(Profile, Column) ->
    Total = max(1, erlane_prof_profile:total(Profile, Column)),
    maps:from_list([{F, {Self, 100 * Self / Total}}
                    || #{function := F, self := Self}
                           <- erlane_prof_profile:top(Profile, Column, all)]).

change(Points) when Points >= 0 -> io_lib:format("+~.1f", [Points]);
change(Points) -> io_lib:format("~.1f", [Points]).
