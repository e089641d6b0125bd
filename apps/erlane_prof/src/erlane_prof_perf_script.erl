%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads what `perf script -F comm,tid,ip,sym,dso' writes, line by line, in bounded memory.
%% Pure.
%%
%% A sample is a line with the name and the number of a thread, then a line for each frame, the
%% innermost first, then an empty line:
%%
%%     erts_sched_1 12345
%%             7f4f5c0e2a10 $lists:foldl/3 (/tmp/perf-12345.map)
%%             7f4f5c0e1b80 $shop:total/1 (/tmp/perf-12345.map)
-module(erlane_prof_perf_script).

-export([new/2, line/2, finish/1, frame/1]).

-export_type([reader/0]).

-record(reader, {ns, limit, thread = none, stack = [], samples = 0, lost = 0, tally,
                 frames = #{}}).

-opaque reader() :: #reader{}.

%% @doc A reader; each sample stands for so many nanoseconds, and so many are read at the most.
-spec new(pos_integer(), pos_integer()) -> reader().
new(Ns, Limit) ->
    #reader{ns = Ns, limit = Limit, tally = erlane_prof_profile:tally()}.

%% @doc One more line, without its end.
-spec line(binary(), reader()) -> reader().
line(<<>>, R) ->
    sample(R);
line(<<C, _/binary>> = Line, #reader{stack = Stack, frames = Frames} = R)
  when C =:= $\s; C =:= $\t ->
    case binary:split(string:trim(Line, leading, " \t"), <<" ">>) of
        [_Address, Symbol] ->
            case Frames of
                #{Symbol := Frame} ->
                    R#reader{stack = [Frame | Stack]};
                #{} ->
                    Frame = frame(Symbol),
                    R#reader{stack = [Frame | Stack], frames = Frames#{Symbol => Frame}}
            end;
        [_] ->
            R#reader{stack = [<<"[unknown]">> | Stack]}
    end;
line(Line, R) ->
    (sample(R))#reader{thread = thread(Line)}.

%% The number of a thread is the last word; its name may have spaces in it. Those that are alike
%% share a label.
thread(Line) ->
    Name = re:replace(Line, "\\s+[0-9]+\\s*$", "", [{return, binary}]),
    string:trim(re:replace(Name, "_?[0-9]+", "", [global, {return, binary}]), both, "_ ").

sample(#reader{thread = none} = R) ->
    R#reader{stack = []};
sample(#reader{samples = Limit, limit = Limit, lost = Lost} = R) ->
    R#reader{thread = none, stack = [], lost = Lost + 1};
sample(#reader{thread = Thread, stack = Stack, tally = Tally, samples = N, ns = Ns} = R) ->
    %% The frames came with the innermost first, so they are in order now.
    Row = #{proc => Thread, state => running, stack => Stack, values => [Ns, 1]},
    R#reader{thread = none, stack = [], samples = N + 1,
             tally = erlane_prof_profile:add(Row, Tally)}.

%% @doc What was read: the counted rows, how many samples, how many more there were.
-spec finish(reader()) -> {erlane_prof_profile:tally(), non_neg_integer(), non_neg_integer()}.
finish(R) ->
    #reader{tally = Tally, samples = N, lost = Lost} = sample(R),
    {Tally, N, Lost}.

%% @doc A symbol as a frame: the JIT writes `$Module:Function/Arity'. What has no symbol is known by
%% the file that it is in.
-spec frame(binary()) -> erlane_prof_profile:frame().
frame(Text) ->
    case re:run(Text, "^(.*) \\(([^()]*)\\)$", [{capture, all_but_first, binary}]) of
        {match, [<<"[unknown]">>, <<"[", _/binary>> = File]} when File =/= <<"[unknown]">> -> File;
        {match, [<<"[unknown]">>, <<C, _/binary>> = File]} when C =/= $[ ->
            <<"[", (filename:basename(File))/binary, "]">>;
        {match, [Symbol, _]} -> symbol(Symbol);
        nomatch -> symbol(Text)
    end.

symbol(<<"$", Name/binary>> = Symbol) ->
    case re:run(Name, "^('(?:[^'\\\\]|\\\\.)*'|[^:]+):(.+)/([0-9]{1,3})$",
                [{capture, all_but_first, binary}]) of
        {match, [M, F, A]} ->
            case binary_to_integer(A) of
                Arity when Arity =< 255 -> {atom(M), atom(F), Arity, <<>>, 0};
                _ -> Symbol
            end;
        nomatch ->
            Symbol
    end;
symbol(<<>>) -> <<"[unknown]">>;
symbol(Symbol) -> Symbol.

atom(<<"'", _/binary>> = Quoted) when byte_size(Quoted) > 2 ->
    binary_to_atom(binary:part(Quoted, 1, byte_size(Quoted) - 2));
atom(Name) when byte_size(Name) =< 255 ->
    binary_to_atom(Name);
atom(Name) ->
    binary_to_atom(binary:part(Name, 0, 255)).
