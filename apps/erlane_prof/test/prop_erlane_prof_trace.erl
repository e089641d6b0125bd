%% SPDX-License-Identifier: Apache-2.0
%% A process that calls and returns at random has the tree it was given, whatever the order of its
%% calls, tail calls and recursions; and a trace of any bytes is read.
-module(prop_erlane_prof_trace).

-export([prop_tree/0, prop_records/0]).

-include_lib("proper/include/proper.hrl").

-define(FUNCTIONS, [a, b, c, d]).

%% Of what nothing ends in a call of, it is not asked where it returns to.
-define(FROM_TOP, e).

step() ->
    frequency([{4, {call, oneof([?FROM_TOP | ?FUNCTIONS])}}, {3, {tail, oneof(?FUNCTIONS)}},
               {4, return}, {1, wait}]).

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
            Caller = case F of ?FROM_TOP -> top; _ -> Top end,
            run(Steps, [F | Stack], Now, [{1, call, F, Caller, Now} | Events], Times);
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

%% Bytes that are more or less those of the native tracer, in pieces of any size, are the events of
%% what is whole, and it is told where that ends. Whatever they are it does not crash.
prop_records() ->
    ?FORALL({Parts, Size}, {list(part()), range(1, 40)},
            begin
                Bytes = iolist_to_binary(Parts),
                Whole = read([Bytes]),
                {Events, Left} = Whole,
                Same = read(erlane_prof_trace_ct:pieces(Size, Bytes)) =:= Whole,
                Told = case Left of
                           whole -> true;
                           {cut, N} -> N =< byte_size(Bytes);
                           {damaged, At} -> At =< byte_size(Bytes)
                       end,
                About = (erlane_prof_trace_ct:about(byte_size(Bytes)))#{format => native},
                State = erlane_prof_trace_ct:converted([Bytes], {About, [m]}),
                Rows = erlane_prof_trace_profile:rows(fun(R, Acc) -> [R | Acc] end, [], State),
                ?WHENFAIL(io:format("~0p: ~0p~n", [Bytes, Whole]),
                          Same andalso Told andalso is_list(Rows)
                          andalso length(Events) =< byte_size(Bytes) div 24)
            end).

part() ->
    frequency([{6, ?LET({Kind, F, C, Who, Ns}, {range(2, 18), range(0, 2), range(0, 2),
                                                range(1, 3), range(0, 1000)},
                        <<Kind, F:24, C:32, Who:64, Ns:64>>)},
               {3, ?LET({Id, F}, {range(1, 2), oneof(?FUNCTIONS)}, name(Id, F))},
               {1, binary()}]).

name(Id, F) ->
    <<131, Name/binary>> = term_to_binary({m, F, 1}),
    <<1, Id:24, (byte_size(Name)):32, Name/binary>>.

read(Pieces) ->
    {Events, Reader} = lists:foldl(fun(Piece, {Acc, R}) ->
                                           erlane_prof_trace_records:feed(
                                             Piece, fun(E, All) -> [E | All] end, Acc, R)
                                   end, {[], erlane_prof_trace_records:new()}, Pieces),
    {lists:reverse(Events), erlane_prof_trace_records:finish(Reader)}.
