%% SPDX-License-Identifier: Apache-2.0
%% @doc Whether machine code for a function is likely to pay. Pure.
%%
%% A native call costs about 15 ns. So there has to be a loop, and its turn has to do something that
%% machine code does faster: arithmetic, floats, bits. What it gains in a turn is added up from
%% figures measured on single operations, in tenths of a nanosecond; what goes through the interface
%% of NIFs costs. A guess that turns out wrong costs little: see erlane_native_meter.
-module(erlane_native_pays).

-export([verdict/1, named/1]).

-import(erlane_native_graph, [instructions/1, has/2, next/1, jumps/1, calls/1]).

%% What a turn has to gain, in tenths of a nanosecond.
-define(LEAST, 10).

%% @doc Of a function that nobody has named: `pays', or where and why not.
-spec verdict(erlane_native_ir:unit()) -> pays | {no, Line :: integer(), Why :: string()}.
verdict(#{entry := Entry, functions := Fs} = Unit) ->
    {Jumps, Loops} = loops(Unit),
    Both = both(Jumps, Fs),
    #{line := Line} = maps:get(Entry, Fs),
    case Loops of
        [] ->
            case [FA || FA <- maps:keys(Fs), reaches(FA, FA, Both)] of
                [] -> {no, Line, "a call costs more than it does: there is no loop"};
                _ -> {no, Line, "recursion without a loop: its calls are the work"}
            end;
        _ ->
            case [FA || FA <- Loops, gain(maps:get(FA, Fs), FA, Jumps, fun worth/3) >= ?LEAST] of
                [] -> {no, Line, "a turn of its loop does little that is faster as machine code"};
                _ -> pays
            end
    end.

%% @doc Of a function that its module names: the same, but only what moves elements of lists and
%% hardly looks at them, or makes a tree, is known not to pay. BEAM does that as fast, and collects
%% garbage meanwhile.
-spec named(erlane_native_ir:unit()) -> pays | {no, Line :: integer(), Why :: string()}.
named(#{entry := Entry, functions := Fs} = Unit) ->
    {Jumps, Loops} = loops(Unit),
    Gain = fun(I, Types, Plans) ->
               %% Whoever names a search has long lists.
               case same(I, Types) of
                   true -> 20;
                   false -> max(0, worth(I, Types, Plans))
               end
           end,
    #{line := Line} = maps:get(Entry, Fs),
    Both = both(Jumps, Fs),
    Trees = [FA || FA <- maps:keys(Fs) -- Loops, reaches(FA, FA, Both),
                   #{types := Types, plans := Plans} = F <- [maps:get(FA, Fs)],
                   has(F, [put_list, put_tuple]),
                   lists:sum([Gain(I, Types, Plans) || I <- instructions(F)])
                       < ?LEAST * (1 + length(calls(F)))],
    case Loops =/= []
        andalso lists:any(fun(FA) -> has(maps:get(FA, Fs), [put_list, get_hd, get_tl, push,
                                                            is_nonempty_list])
                          end, Loops)
        andalso lists:all(fun(FA) -> gain(maps:get(FA, Fs), FA, Jumps, Gain) < ?LEAST end, Loops) of
        true ->
            {no, Line, "moves elements of lists and does little else, which BEAM does as fast"};
        false when Trees =/= [] ->
            {no, Line, "makes tuples or lists by recursion, which BEAM does as fast"};
        false -> pays
    end.

loops(#{functions := Fs}) ->
    Jumps = maps:map(fun(_, F) -> jumps(F) end, Fs),
    {Jumps, [FA || FA <- maps:keys(Fs), reaches(FA, FA, Jumps)]}.

both(Jumps, Fs) -> maps:map(fun(FA, Js) -> Js ++ calls(maps:get(FA, Fs)) end, Jumps).

reaches(From, To, Graph) ->
    erlane_native_graph:reaches(From, To, fun(FA) -> maps:get(FA, Graph) end).

%% Of the turn that gains most: from the first block to a jump that comes back.
gain(#{order := Order, blocks := Blocks, types := Types, plans := Plans}, FA, Jumps, Worth) ->
    Gains = lists:foldl(fun(L, Acc) ->
                            {Ins, Last} = maps:get(L, Blocks),
                            Own = lists:sum([Worth(I, Types, Plans) || I <- Ins]),
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
worth({_, {bs_create, Segments}, _, _}, _, _) -> 10 * length(Segments);
worth({_, {bs_string, _}, _, _}, _, _) -> 5;
worth({_, Op, _, _}, _, _) when Op =:= bs_get_tail -> -150;
%% With nothing else in a turn, one list is made of another about as fast by BEAM.
worth({_, push, _, _}, _, _) -> 6;
worth({_, put_tuple, _, _}, _, _) -> -5;
worth({_, Op, _, _}, _, _) when Op =:= put_list; Op =:= get_hd; Op =:= get_tl;
                                Op =:= is_nonempty_list; Op =:= is_tagged_tuple -> 0;
worth({_, {call, _}, _, _}, _, _) -> 0;
%% A list that is searched is short, mostly: then a native call costs more than the search.
worth(I, Types, _) -> case same(I, Types) of true -> 5; false -> 1 end.

%% Two terms that may be anything: the same word is the same term.
same({_, {bif, '=:='}, [{v, A}, {v, B}], _}, Types) ->
    maps:get(A, Types) =:= term andalso maps:get(B, Types) =:= term;
same(_, _) -> false.
