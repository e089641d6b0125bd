%% SPDX-License-Identifier: Apache-2.0
%% @doc Whether machine code for a function is likely to pay, where nobody has named it. Pure.
%%
%% A native call costs about 15 ns. So there has to be a loop, and its turn has to do something that
%% machine code does faster: arithmetic, floats, bits. What it gains in a turn is added up from
%% figures measured on single operations, in tenths of a nanosecond; what goes through the interface
%% of NIFs costs. A guess that turns out wrong costs little: see erlane_native_meter.
-module(erlane_native_pays).

-export([verdict/1]).

%% What a turn has to gain.
-define(LEAST, 10).

%% @doc `pays', or where and why not.
-spec verdict(erlane_native_ir:unit()) -> pays | {no, Line :: integer(), Why :: string()}.
verdict(#{entry := Entry, functions := Fs}) ->
    Jumps = maps:map(fun(_, F) -> jumps(F) end, Fs),
    Calls = maps:map(fun(_, F) -> calls(F) end, Fs),
    Loops = [FA || FA <- maps:keys(Fs), reaches(FA, FA, Jumps)],
    Both = maps:map(fun(FA, Js) -> Js ++ maps:get(FA, Calls) end, Jumps),
    #{line := Line} = maps:get(Entry, Fs),
    case Loops of
        [] ->
            case [FA || FA <- maps:keys(Fs), reaches(FA, FA, Both)] of
                [] -> {no, Line, "a call costs more than it does: there is no loop"};
                _ -> {no, Line, "recursion without a loop: its calls are the work"}
            end;
        _ ->
            case [FA || FA <- Loops, gain(maps:get(FA, Fs), FA, Jumps) >= ?LEAST] of
                [] -> {no, Line, "a turn of its loop does little that is faster as machine code"};
                _ -> pays
            end
    end.

jumps(#{blocks := Blocks}) -> [To || {_, {tail, To, _, _}} <- maps:values(Blocks)].

calls(#{blocks := Blocks}) ->
    [To || {Ins, _} <- maps:values(Blocks), {_, {call, To}, _, _} <- Ins].

reaches(From, To, Graph) -> reaches(maps:get(From, Graph), To, Graph, #{}).

reaches([], _, _, _) -> false;
reaches([To | _], To, _, _) -> true;
reaches([FA | Rest], To, Graph, Seen) when is_map_key(FA, Seen) -> reaches(Rest, To, Graph, Seen);
reaches([FA | Rest], To, Graph, Seen) ->
    reaches(maps:get(FA, Graph) ++ Rest, To, Graph, Seen#{FA => true}).

%% Of the turn that gains most: from the first block to a jump that comes back.
gain(#{order := Order, blocks := Blocks, types := Types, plans := Plans}, FA, Jumps) ->
    Gains = lists:foldl(fun(L, Acc) ->
                            {Ins, Last} = maps:get(L, Blocks),
                            Own = lists:sum([worth(I, Types, Plans) || I <- Ins]),
                            case after_it(Last, FA, Jumps, Acc) of
                                none -> Acc;
                                Then -> Acc#{L => Own + Then}
                            end
                        end, #{}, lists:reverse(Order)),
    maps:get(0, Gains, 0).

after_it({tail, To, _, _}, FA, Jumps, _) ->
    case To =:= FA orelse reaches(To, FA, Jumps) of
        true -> 0;
        false -> none
    end;
after_it(Last, _, _, Gains) ->
    case [maps:get(L, Gains) || L <- next(Last), is_map_key(L, Gains)] of
        [] -> none;
        Worths -> lists:max(Worths)
    end.

next({jmp, L}) -> [L];
next({br, _, T, F}) -> [T, F];
next({switch, _, L, List}) -> [L | [N || {_, N} <- List]];
next(_) -> [].

%% Tenths of a nanosecond that one operation saves.
worth({_, {bif, Op}, _, _}, _, _) when Op =:= 'div'; Op =:= 'rem' -> 0;
worth({Dst, {bif, Op}, _, _}, Types, Plans) when Op =:= '*'; Op =:= 'bsl' ->
    case {maps:get(Dst, Types), maps:get(Dst, Plans)} of
        {low, _} -> 100;
        {_, {plain, _}} -> 8;
        {_, {checked, signed, _}} -> 10;
        _ -> 50
    end;
worth({Dst, {bif, Op}, _, _}, Types, _) when Op =:= '+'; Op =:= '-'; Op =:= 'band';
                                            Op =:= 'bor'; Op =:= 'bxor'; Op =:= 'bsr';
                                            Op =:= 'bnot' ->
    case maps:get(Dst, Types) of
        low -> 20;
        {int, Lo, Hi} when Lo < -(1 bsl 59); Hi >= 1 bsl 59 -> 6;
        float -> 25;
        _ -> 5
    end;
worth({_, {bif, '/'}, _, _}, _, _) -> 25;
worth({_, {float, _}, _, _}, _, _) -> 15;
worth({_, {math, _}, _, _}, _, _) -> 50;
worth({_, {bs_match, binary, _, _, _}, _, _}, _, _) -> 0;
worth({_, {bs_match, _, _, _, _}, _, _}, _, _) -> 10;
worth({_, bs_utf8, _, _}, _, _) -> 20;
worth({_, {bs_string, _}, _, _}, _, _) -> 5;
worth({_, Op, _, _}, _, _) when Op =:= bs_get_tail -> -150;
%% With nothing else in a turn, one list is made of another about as fast by BEAM.
worth({_, push, _, _}, _, _) -> 6;
worth({_, put_tuple, _, _}, _, _) -> -5;
worth({_, Op, _, _}, _, _) when Op =:= put_list; Op =:= get_hd; Op =:= get_tl;
                                Op =:= is_nonempty_list; Op =:= is_tagged_tuple -> 0;
%% Two terms that may be anything: the same word is the same term.
worth({_, {bif, '=:='}, [{v, A}, {v, B}], _}, Types, _) ->
    case [T || V <- [A, B], T <- [maps:get(V, Types)], T =/= term] of
        [] -> 20;
        _ -> 1
    end;
worth({_, {call, _}, _, _}, _, _) -> 0;
worth(_, _, _) -> 1.
