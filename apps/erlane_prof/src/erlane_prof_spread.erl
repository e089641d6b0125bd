%% SPDX-License-Identifier: Apache-2.0
%% @doc How long calls of a function took: what a profile of mode `latency' has beside its rows.
%% Pure. Times are in nanoseconds.
-module(erlane_prof_spread).

-export([check/1, merge/2, summary/1, format/1, encode/1, decode/2, names/1]).

-export_type([spread/0, slow/0, summary/0]).

%% `dropped': too many processes were in it, so it is not complete. `open': calls that had not
%% ended. `slowest' has the slowest call first.
-type spread() :: #{function := mfa(), file := binary(), ns := non_neg_integer(),
                    min := non_neg_integer(), max := non_neg_integer(),
                    buckets := erlane_prof_histogram:histogram(), dropped := boolean(),
                    open := non_neg_integer(), slowest := [slow()]}.
%% `at': when it began, in microseconds since 1970.
-type slow() :: #{ns := non_neg_integer(), at := integer(), pid := binary(), proc := binary(),
                  caller := mfa() | undefined}.
-type summary() :: #{calls := non_neg_integer(), mean := non_neg_integer(),
                     min := non_neg_integer(), p50 := non_neg_integer(),
                     p90 := non_neg_integer(), p99 := non_neg_integer(),
                     p999 := non_neg_integer(), max := non_neg_integer()}.

-define(SLOWEST, 5).
-define(BAR, 40).

%% @doc Is it one?
-spec check(term()) -> boolean().
check(#{function := F, file := File, ns := Ns, min := Min, max := Max, buckets := Buckets,
        dropped := Dropped, open := Open, slowest := Slowest}) ->
    is_mfa(F) andalso is_binary(File) andalso is_boolean(Dropped)
        andalso lists:all(fun is_count/1, [Ns, Min, Max, Open])
        andalso is_map(Buckets)
        andalso lists:all(fun({Bucket, N}) -> is_count(Bucket) andalso is_count(N) end,
                          maps:to_list(Buckets))
        andalso is_list(Slowest) andalso lists:all(fun is_slow/1, Slowest);
check(_) -> false.

is_slow(#{ns := Ns, at := At, pid := Pid, proc := Proc, caller := Caller}) ->
    is_count(Ns) andalso is_integer(At) andalso is_binary(Pid) andalso is_binary(Proc)
        andalso (Caller =:= undefined orelse is_mfa(Caller));
is_slow(_) -> false.

is_mfa({M, F, A}) -> is_atom(M) andalso is_atom(F) andalso is_integer(A);
is_mfa(_) -> false.

is_count(N) -> is_integer(N) andalso N >= 0.

%% @doc Those of two profiles, function by function.
-spec merge([spread()], [spread()]) -> [spread()].
merge(As, Bs) ->
    Old = maps:from_list([{F, A} || #{function := F} = A <- As]),
    New = lists:foldl(fun(#{function := F} = B, Acc) ->
                              maps:update_with(F, fun(A) -> both(A, B) end, B, Acc)
                      end, Old, Bs),
    [Spread || {_, Spread} <- lists:sort(maps:to_list(New))].

both(#{buckets := BucketsA, slowest := SlowA} = A, #{buckets := BucketsB, slowest := SlowB} = B) ->
    Sum = fun(Key) -> maps:get(Key, A) + maps:get(Key, B) end,
    A#{ns := Sum(ns), open := Sum(open), max := max(maps:get(max, A), maps:get(max, B)),
       min := case {map_size(BucketsA), map_size(BucketsB)} of
                  {0, _} -> maps:get(min, B);
                  {_, 0} -> maps:get(min, A);
                  _ -> min(maps:get(min, A), maps:get(min, B))
              end,
       dropped := maps:get(dropped, A) orelse maps:get(dropped, B),
       buckets := erlane_prof_histogram:merge(BucketsA, BucketsB),
       slowest := lists:sublist(lists:sort(fun(#{ns := X}, #{ns := Y}) -> X >= Y end,
                                           SlowA ++ SlowB), ?SLOWEST)}.

%% @doc Its numbers. A quantile is at most 6.25% above the true one.
-spec summary(spread()) -> summary().
summary(#{ns := Ns, min := Min, max := Max, buckets := Buckets}) ->
    Calls = erlane_prof_histogram:count(Buckets),
    Quantile = fun(Part) ->
                       case erlane_prof_histogram:quantile(Part, Buckets) of
                           undefined -> 0;
                           High -> min(High, Max)
                       end
               end,
    #{calls => Calls, mean => Ns div max(1, Calls), min => Min, max => Max, p50 => Quantile(0.5),
      p90 => Quantile(0.9), p99 => Quantile(0.99), p999 => Quantile(0.999)}.

%% @doc A table of all, then each with its histogram and its slowest calls; UTF-8.
-spec format([spread()]) -> iodata().
format(Spreads) ->
    Keys = [p50, p90, p99, p999, max],
    Head = ["calls", "mean", "p50", "p90", "p99", "p99.9", "max", "function"],
    Rows = [begin
                #{calls := Calls, mean := Mean} = Summary = summary(Spread),
                [erlane_prof_text:amount(Calls, count), time(Mean)]
                    ++ [time(maps:get(Key, Summary)) || Key <- Keys]
                    ++ [erlane_prof_text:name(F)]
            end || #{function := F} = Spread <- Spreads],
    [erlane_prof_text:table([Head | Rows]), [one(Spread) || Spread <- Spreads]].

one(#{buckets := Buckets}) when map_size(Buckets) =:= 0 -> [];
one(#{function := F, buckets := Buckets, slowest := Slowest}) ->
    Coarse = erlane_prof_histogram:coarse(Buckets),
    Most = lists:max([N || {_, _, N} <- Coarse]),
    ["\n", erlane_prof_text:name(F), "\n",
     [["  below ", string:pad(time(High + 1), 10),
       string:pad(erlane_prof_text:amount(N, count), 12, leading),
       case (N * ?BAR + Most - 1) div Most of
           0 -> "";
           Width -> ["  ", lists:duplicate(Width, $#)]
       end, "\n"] || {_, High, N} <- Coarse],
     [["  slowest: ", time(Ns), " at ", clock(At), " in ", erlane_prof_text:clean(Proc), " ", Pid,
       case Caller of
           undefined -> "";
           _ -> [", from ", erlane_prof_text:name(Caller)]
       end, "\n"]
      || #{ns := Ns, at := At, proc := Proc, pid := Pid, caller := Caller} <- Slowest]].

time(Ns) -> erlane_prof_text:amount(Ns, nanoseconds).

%% The time of the day, in UTC.
clock(At) ->
    Text = calendar:system_time_to_rfc3339(At, [{unit, microsecond}, {offset, "Z"}]),
    string:slice(Text, 11, 15).

%% @doc As a term without atoms, for files.
-spec encode(spread()) -> term().
encode(#{function := F, file := File, ns := Ns, min := Min, max := Max, buckets := Buckets,
         dropped := Dropped, open := Open, slowest := Slowest}) ->
    {code(F), File, Ns, Min, Max, maps:to_list(Buckets), case Dropped of true -> 1; false -> 0 end,
     Open, [{N, At, Pid, Proc, code(Caller)}
            || #{ns := N, at := At, pid := Pid, proc := Proc, caller := Caller} <- Slowest]}.

code(undefined) -> <<>>;
code({M, F, A}) -> {atom_to_binary(M), atom_to_binary(F), A}.

%% @doc Of a term that was read. It fails for what is none. `Atom' makes an atom of a name.
-spec decode(term(), fun((binary()) -> atom())) -> spread().
decode({F, File, Ns, Min, Max, Buckets, Dropped, Open, Slowest}, Atom) ->
    Spread = #{function => code(F, Atom), file => File, ns => Ns, min => Min, max => Max,
               buckets => maps:from_list(Buckets), dropped => Dropped =:= 1, open => Open,
               slowest => [#{ns => N, at => At, pid => Pid, proc => Proc,
                             caller => code(Caller, Atom)}
                           || {N, At, Pid, Proc, Caller} <- Slowest]},
    true = check(Spread),
    Spread.

code(<<>>, _) -> undefined;
code({M, F, A}, Atom) -> {Atom(M), Atom(F), A}.

%% @doc The names in a term of {@link encode/1} that would become atoms.
-spec names(term()) -> [binary()].
names({F, _, _, _, _, _, _, _, Slowest}) ->
    lists:append([[M, N] || {M, N, _} <- [F | [Caller || {_, _, _, _, Caller} <- Slowest]]]).
