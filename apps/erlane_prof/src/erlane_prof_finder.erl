%% SPDX-License-Identifier: Apache-2.0
%% @doc Finds the processes that erlane_prof_sampler looks at. Goes to the node with it.
%%
%% Up to some number all are known, and those that are new are found by a list of all. Where there
%% are more, the first time round those are found that do something just now; after that a slice of
%% them is looked at in two ticks, and who has moved is known then.
-module(erlane_prof_finder).

-export([new/2, find/4, is_first_round/1, walk/1, cost/2, unknown/1]).

-export_type([finder/0]).

%% So many processes are known one by one. Where there are more, only those that move.
-define(KNOWN, 20000).
-define(SLICE, 4000).
%% What a part of the work takes at the most if nothing comes between.
-define(SWEEP_NS, 600).
-define(LIST_NS, 60).
%% What it takes to read the status of one that nobody has looked at lately: measured, 300.
-define(STATUS_NS, 400).

-record(finder, {procs :: all | done | [pid()], began :: integer(), listed :: integer(),
                 left = [] :: [pid()], slice = [] :: [{pid(), non_neg_integer()}],
                 round = 0 :: non_neg_integer(), swept = 0 :: non_neg_integer(),
                 unknown = 0 :: non_neg_integer()}).

-opaque finder() :: #finder{}.

%% @doc One for all processes, or for some.
-spec new(Now :: integer(), all | [pid()]) -> finder().
new(Now, Procs) -> #finder{procs = Procs, began = Now, listed = Now}.

%% @doc What the first round takes, in nanoseconds. None if all are to be known at once.
-spec walk(all | [pid()]) -> non_neg_integer().
walk(all) ->
    case erlang:system_info(process_count) of
        N when N > ?KNOWN -> N * (?LIST_NS + ?STATUS_NS);
        _ -> 0
    end;
walk(_Some) ->
    0.

%% @doc Looks for more than those that are known, for so many nanoseconds. Those that are found may
%% be known; `Since' is when they were not yet there, or did nothing.
-spec find(Now :: integer(), Ns :: integer(), Known :: #{pid() => term()}, finder()) ->
          {[{Since :: integer(), [pid()]}], finder()}.
find(_Now, _Ns, _Known, #finder{procs = done} = F) ->
    {[], F};
find(_Now, _Ns, _Known, #finder{procs = Procs, listed = Listed} = F) when is_list(Procs) ->
    {[{Listed, Procs}], F#finder{procs = done}};
find(Now, Ns, Known, #finder{listed = Listed, began = Began} = F) ->
    case erlang:system_info(process_count) of
        N when N > ?KNOWN ->
            sweep(Now, Ns, Known, F);
        N when 2 * N * ?LIST_NS < Ns; Listed =:= Began ->
            %% Whoever has begun since the last list has lived about as long as that is ago.
            {[{Listed, erlang:processes()}],
             F#finder{left = [], slice = [], unknown = 0, listed = Now}};
        _ ->
            {[], F}
    end.

sweep(Now, Ns, Known, #finder{left = [], round = Round} = F) ->
    {Moved, F1} = moved(F),
    Count = erlang:system_info(process_count),
    {[{Now, Moved}],
     case Ns > ?LIST_NS * Count orelse Round =:= 0 of
         true -> F1#finder{left = erlang:processes(), round = Round + 1, listed = Now,
                           unknown = max(0, Count - map_size(Known))};
         false -> F1
     end};
sweep(Now, Ns, Known, #finder{left = Pids, round = Round} = F) ->
    {Moved, F1} = moved(F),
    Size = min(max(1, Ns div ?SWEEP_NS), ?SLICE),
    {Turn, Rest} = split(Size, Pids, []),
    {Busy, Next} = lists:foldl(fun(Pid, {B, N} = Acc) ->
                                       case is_map_key(Pid, Known) of
                                           true -> Acc;
                                           false -> first_look(Pid, Round, B, N)
                                       end
                               end, {[], []}, Turn),
    {[{Now, Moved}, {Now, Busy}],
     F1#finder{left = Rest, slice = Next, swept = F1#finder.swept + Size}}.

split(N, [Pid | Pids], Turn) when N > 0 -> split(N - 1, Pids, [Pid | Turn]);
split(_N, Rest, Turn) -> {Turn, Rest}.

moved(#finder{slice = Slice, swept = Swept} = F) ->
    {[Pid || {Pid, Reds} <- Slice, process_info(Pid, reductions) =/= {reductions, Reds}],
     F#finder{slice = [], swept = Swept + length(Slice)}}.

first_look(Pid, Round, Busy, Next) ->
    case process_info(Pid, status) of
        {_, waiting} when Round =:= 1 ->
            {Busy, Next};
        {_, waiting} ->
            case process_info(Pid, reductions) of
                {_, Reds} -> {Busy, [{Pid, Reds} | Next]};
                undefined -> {Busy, Next}
            end;
        undefined -> {Busy, Next};
        _ -> {[Pid | Busy], Next}
    end.

%% @doc Have not all been seen once, of those that are too many?
-spec is_first_round(finder()) -> boolean().
is_first_round(#finder{round = Round, left = Left}) -> Round =:= 1 andalso Left =/= [].

%% @doc What it can have taken to come from one to the other, in nanoseconds.
-spec cost(Before :: finder(), After :: finder()) -> non_neg_integer().
cost(#finder{listed = Listed, swept = Swept}, #finder{listed = Later, swept = More}) ->
    List = case Later of
               Listed -> 0;
               _ -> erlang:system_info(process_count) * ?LIST_NS
           end,
    List + (More - Swept) * ?SWEEP_NS.

%% @doc How many were not known when all were listed last.
-spec unknown(finder()) -> non_neg_integer().
unknown(#finder{unknown = Unknown}) -> Unknown.
