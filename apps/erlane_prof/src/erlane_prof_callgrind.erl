%% SPDX-License-Identifier: Apache-2.0
%% A profile in the format of callgrind, for kcachegrind and callgrind_annotate:
%% <https://valgrind.org/docs/manual/cl-format.html>. Pure.
%%
%% Each process label is an object (`ob='). After the columns the first of them follows once more
%% for each state, so that kcachegrind can show what runs without what waits.
%%
%% The format adds costs along calls, so a function that is twice in a stack would have its time
%% twice. A call of a function from itself is therefore one frame, and a function that is reached
%% again through others is `name'2', `name'3' and so on, as callgrind itself calls them. Each
%% process is the caller of its outermost frames. So what is inclusive is that of
%% `erlane_prof_profile:top/3', whether it is formed from the callers or from what is called.
-module(erlane_prof_callgrind).

-export([format/1, events/1]).

%% The text.
-spec format(erlane_prof_profile:profile()) -> iodata().
format(#{node := Node, mode := Mode, rows := Rows, notes := Notes, lost := Lost} = Profile) ->
    Events = events(Profile),
    Split = length(Events) > length(maps:get(values, Profile)),
    States = states(Profile),
    {Self, Calls} = lists:foldl(fun(Row, Acc) -> row(Row, costs(Row, Split, States), Acc) end,
                                {#{}, #{}}, Rows),
    Sum = maps:fold(fun(_, Costs, Acc) -> plus(Costs, Acc) end, [0 || _ <- Events], Self),
    ["# callgrind format\nversion: 1\ncreator: erlane\n",
     "cmd: ", atom_to_binary(Node), $\n,
     "desc: mode: ", atom_to_binary(Mode), $\n,
     [["desc: note: ", erlane_prof_text:clean(Note), $\n] || Note <- Notes],
     [["desc: lost: ", integer_to_binary(Lost), $\n] || Lost > 0],
     "positions: line\nevents:", [[$\s, Event] || Event <- Events], $\n,
     "summary:", numbers(Sum), "\n\n",
     body(Self, Calls, counting(Profile)),
     "totals:", numbers(Sum), $\n].

%% The names of the events, in the order of the numbers in a line.
-spec events(erlane_prof_profile:profile()) -> [binary()].
events(Profile) ->
    [Main | _] = Columns = [atom_to_binary(C) || C <- erlane_prof_profile:columns(Profile)],
    case states(Profile) of
        [_, _ | _] = States ->
            Columns ++ [<<Main/binary, $_, (atom_to_binary(S))/binary>> || S <- States];
        _ -> Columns
    end.

states(#{rows := Rows}) -> lists:usort([State || #{state := State} <- Rows]).

costs(#{values := Values}, false, _) -> Values;
costs(#{values := [Main | _] = Values, state := State}, true, States) ->
    Values ++ [case S of State -> Main; _ -> 0 end || S <- States].

row(#{proc := Proc, stack := Stack}, Costs, {Self, Calls}) ->
    Ob = erlane_prof_text:clean(Proc),
    Root = {Ob, <<>>, <<"[", Ob/binary, "]">>},
    {Inner, Line, More} = calls(folded(Stack), {Root, 0}, #{}, Costs, Calls),
    {add({Inner, Line}, Costs, Self), More}.

%% Of frames of the same function in a row the innermost, whose line is that of what follows.
folded([A, B | More]) ->
    case erlane_prof_profile:function(A) =:= erlane_prof_profile:function(B) of
        true -> folded([B | More]);
        false -> [A | folded([B | More])]
    end;
folded(One) -> One.

calls([], {Inner, Line}, _, _, Calls) -> {Inner, Line, Calls};
calls([Frame | More], {{Ob, _, _} = Caller, Line}, Seen, Costs, Calls) ->
    Function = erlane_prof_profile:function(Frame),
    Time = maps:get(Function, Seen, 0) + 1,
    Name = case Time of
               1 -> erlane_prof_text:name(Function);
               _ -> iolist_to_binary([erlane_prof_text:name(Function), $', integer_to_list(Time)])
           end,
    {File, At} = place(Frame),
    Callee = {Ob, File, Name},
    calls(More, {Callee, At}, Seen#{Function => Time}, Costs,
          add({Caller, Line, Callee}, Costs, Calls)).

place({_, _, _, File, Line}) -> {erlane_prof_text:clean(File), Line};
place(_) -> {<<>>, 0}.

add(Key, Costs, Map) ->
    case Map of
        #{Key := Before} -> Map#{Key := plus(Costs, Before)};
        #{} -> Map#{Key => Costs}
    end.

plus([A | As], [B | Bs]) -> [A + B | plus(As, Bs)];
plus([], []) -> [].

%% Which number of a line is how often something was called; nobody knows it in a sample.
counting(Profile) ->
    Columns = erlane_prof_profile:columns(Profile),
    case lists:member(calls, Columns) of
        true -> erlane_prof_profile:column(calls, Profile);
        false -> none
    end.

%% A block for each function: what it did itself by line, then what it called. Names are written
%% once and then only by their number.
body(Self, Calls, Counting) ->
    Blocks0 = maps:fold(fun({Place, Line}, Costs, Acc) ->
                                maps:update_with(Place, fun(B) -> [{self, Line, Costs} | B] end,
                                                 [{self, Line, Costs}], Acc)
                        end, #{}, Self),
    Blocks = maps:fold(fun({Place, Line, Callee}, Costs, Acc) ->
                               Item = {to, Line, Callee, Costs},
                               maps:update_with(Place, fun(B) -> [Item | B] end, [Item], Acc)
                       end, Blocks0, Calls),
    {Text, _} = lists:mapfoldl(fun({Place, Items}, Names) ->
                                       block(Place, lists:sort(Items), Counting, Names)
                               end, #{}, lists:sort(maps:to_list(Blocks))),
    Text.

block({Ob, File, Function}, Items, Counting, N0) ->
    {Head, N1} = names([{"ob", ob, Ob}, {"fl", fl, File}, {"fn", fn, Function}], N0),
    {Lines, N2} = lists:mapfoldl(fun(Item, N) -> item(Item, Counting, N) end, N1, Items),
    {[Head, Lines, $\n], N2}.

item({self, Line, Costs}, _, Names) ->
    {[integer_to_binary(Line), numbers(Costs), $\n], Names};
item({to, Line, {Ob, File, Function}, Costs}, Counting, N0) ->
    {Head, N1} = names([{"cob", ob, Ob}, {"cfi", fl, File}, {"cfn", fn, Function}], N0),
    Count = case Counting of
                none -> 1;
                Place -> max(1, lists:nth(Place, Costs))
            end,
    {[Head, "calls=", integer_to_binary(Count), " 0\n", integer_to_binary(Line), numbers(Costs),
      $\n], N1}.

names(Specs, Names) -> lists:mapfoldl(fun name/2, Names, Specs).

name({Word, Kind, <<>>}, Names) -> name({Word, Kind, <<"???">>}, Names);
name({Word, Kind, Text}, Names) ->
    case Names of
        #{{Kind, Text} := N} -> {[Word, "=(", integer_to_binary(N), ")\n"], Names};
        #{} ->
            N = map_size(Names) + 1,
            {[Word, "=(", integer_to_binary(N), ") ", Text, $\n], Names#{{Kind, Text} => N}}
    end.

numbers(Costs) -> [[$\s, integer_to_binary(C)] || C <- Costs].
