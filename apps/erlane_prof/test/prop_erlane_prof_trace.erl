%% SPDX-License-Identifier: Apache-2.0
%% A process that calls and returns at random has the tree it was given, whatever the order of its
%% calls, tail calls and recursions.
-module(prop_erlane_prof_trace).

-export([prop_tree/0]).

-include_lib("proper/include/proper.hrl").

-define(FUNCTIONS, [a, b, c, d]).

step() ->
    frequency([{4, {call, oneof(?FUNCTIONS)}}, {3, {tail, oneof(?FUNCTIONS)}}, {4, return},
               {1, wait}]).

prop_tree() ->
    ?FORALL({First, Steps}, {oneof(?FUNCTIONS), list({step(), range(1, 9)})},
            begin
                Begin = [{1, call, First, none, 0}],
                {Events, Want} = run(Steps, [First], 0, lists:reverse(Begin), #{}),
                Got = maps:from_list([{{State, Stack}, Ns}
                                      || {<<"p1">>, State, Stack, [Ns, _]}
                                             <- erlane_prof_trace_ct:rows(Events), Ns > 0]),
                ?WHENFAIL(io:format("events ~0p~nwant ~0p~ngot ~0p~n", [Events, Want, Got]),
                          Want =:= Got)
            end).

%% The VM's side of it: a stack that has all frames, innermost first; and what it tells.
run([], Stack, Now, Events, Times) ->
    {lists:reverse([{1, out, hd(Stack), Now + 1} | Events]), add(running, Stack, 1, Times)};
run([{Step, Ns} | Steps], Stack, Before, Events, Times0) ->
    Now = Before + Ns,
    Times = add(running, Stack, Ns, Times0),
    case {Step, Stack} of
        {{call, F}, [Top | _]} ->
            run(Steps, [F | Stack], Now, [{1, call, F, Top, Now} | Events], Times);
        {{tail, F}, [_ | Below]} ->
            Caller = case Below of [] -> none; [Next | _] -> Next end,
            run(Steps, [F | Below], Now, [{1, call, F, Caller, Now} | Events], Times);
        {return, [_]} ->
            run(Steps, Stack, Now, Events, Times);
        {return, [_ | [Next | _] = Below]} ->
            run(Steps, Below, Now, [{1, return_to, Next, Now} | Events], Times);
        {wait, [Top | _]} ->
            run(Steps, Stack, Now + Ns, [{1, in, Top, Now + Ns}, {1, out, Top, Now} | Events],
                add(waiting, Stack, Ns, Times))
    end.

%% A function that calls itself is shown once.
add(State, Stack, Ns, Times) ->
    Key = {State, lists:reverse(folded(Stack))},
    maps:update_with(Key, fun(Sum) -> Sum + Ns end, Ns, Times).

folded([F, F | Stack]) -> folded([F | Stack]);
folded([F | Stack]) -> [F | folded(Stack)];
folded([]) -> [].
