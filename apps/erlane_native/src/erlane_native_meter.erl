%% SPDX-License-Identifier: Apache-2.0
%% @doc The text around a unit's machine function: the NIFs that are called, and what is counted,
%% timed and compared when somebody wants it. Pure.
%%
%% Each unit has a cache line of its own, of which the way of a call reads one word, the mode. While
%% that is 0 nothing is counted and nothing written: a call costs one test, and schedulers share no
%% line that changes. Otherwise its bits say what to do:
%%
%% 1: a window is open: calls are counted to find out how many are handed back at once.
%% 2: off: all calls go to BEAM.     4: calls and their time are measured.
%% 8: verify: the caller runs both.  16, beside 2: nobody has been told yet.
%%
%% A call that is handed back after hardly any work is counted, always: it is slow anyway. Each
%% 256th opens a window of 512 calls; if more than half of those are handed back at once, the
%% function is off. So a function that hands back its last turn, or a few of many calls, stays
%% native, and one whose arguments are never what was expected costs little for long.
-module(erlane_native_meter).

-export([atoms/1, text/1, unit/2, early/2]).

-define(SLOTS, 8).
-define(CALLS, 1).
-define(TIME, 2).
-define(EARLY, 3).
-define(IN_WINDOW, 4).
-define(EARLY_BEFORE, 5).
%% Hand-backs at once that open a window, and its calls.
-define(OPENS, 256).
-define(WINDOW, 512).

%% @doc The table of atoms begins with these: the marker, and what `tell' says.
-spec atoms(atom()) -> #{atom() => non_neg_integer()}.
atoms(Marker) -> #{Marker => 0, storm => 1, verify => 2}.

%% @doc What every module has once. `verify' are the units that are verified from the start; `full'
%% is the fuel that a call begins with, and who has used less than `once' of it has done no work.
-spec text(#{units := non_neg_integer(), verify := [non_neg_integer()], full := integer(),
             once := integer()}) -> iodata().
text(#{units := Units, verify := Verified, full := Full, once := Once}) ->
    Count = n(?SLOTS * max(1, Units)),
    Slots = [case S =:= 0 andalso lists:member(U, Verified) of
                 true -> "i64 8";
                 false -> "i64 0"
             end || U <- lists:seq(0, max(0, Units - 1)), S <- lists:seq(0, ?SLOTS - 1)],
    ["@meter_table = internal global [", Count, " x i64] [", lists:join(", ", Slots),
     "], align 64\n",
     "@meters = internal alias i64, getelementptr ([", Count, " x i64], [", Count,
     " x i64]* @meter_table, i64 0, i64 0)\n",
     "declare i64 @enif_monotonic_time(i32)\n",
     metered(), tell(), early_function(Full - Once), nif_meter(Units)].

%% @doc The two NIFs of a unit: a call, which begins with a test that may end it, and going on after
%% giving way.
-spec unit(non_neg_integer(), iodata()) -> iodata().
unit(U, Test) ->
    [nif(["n", n(U)], "false", U, Test), nif(["r", n(U)], "true", U, [])].

nif(Name, Resume, U, Test) ->
    ["define internal i64 @", Name, "(i8* %env, i32 %argc, i64* %argv) {\n",
     "  %mode = load i64, i64* ", meter(U), "\n  %usual = icmp eq i64 %mode, 0\n",
     "  br i1 %usual, label %work, label %metered, !prof !0\nwork:\n", Test,
     "  %r = call i64 @u", n(U), "(i8* %env, i1 ", Resume, ", i64* %argv)\n  ret i64 %r\n",
     "metered:\n  %metered_r = call i64 @metered(i8* %env, i32 %argc, i64* %argv, i64* ", meter(U),
     ", i1 ", Resume, ", i64 (i8*, i1, i64*)* @u", n(U), ")\n  ret i64 %metered_r\n}\n"].

meter(U) -> ["getelementptr (i64, i64* @meters, i64 ", n(?SLOTS * U), ")"].

%% @doc Written where a call is handed back; `Fuel' is what is left. Tests that hand back on purpose
%% want the next call all the same.
-spec early(iodata(), erlane_native_out:state()) -> erlane_native_out:state().
early(Fuel, #{unit := U, options := Options} = S) ->
    case [K || K <- [keep, yield, deopt], is_map_key(K, Options)] of
        [] -> erlane_native_out:add(["call void @early(i64* ", meter(U), ", i64 ", Fuel, ")"], S);
        _ -> S
    end.

metered() ->
    ["define internal i64 @metered(i8* %env, i32 %argc, i64* %argv, i64* %meter, i1 %resume, "
     "i64 (i8*, i1, i64*)* %f) noinline {\n",
     "  %m = load atomic i64, i64* %meter monotonic, align 8\n",
     "  %o = and i64 %m, 2\n  %off = icmp ne i64 %o, 0\n",
     "  br i1 %off, label %isoff, label %on\nisoff:\n",
     "  %before = atomicrmw and i64* %meter, i64 -17 monotonic\n",
     "  %t = and i64 %before, 16\n  %untold = icmp ne i64 %t, 0\n",
     "  %first = xor i1 %resume, true\n  %both = and i1 %untold, %first\n",
     "  br i1 %both, label %say, label %marker\nmarker:\n",
     "  %mk = load i64, i64* @atoms\n  ret i64 %mk\nsay:\n",
     "  %sayr = call i64 @tell(i8* %env, i32 %argc, i64* %argv, i64 1)\n  ret i64 %sayr\non:\n",
     %% What goes on is a call that was seen already, or one that the verifier makes.
     "  br i1 %resume, label %run, label %fresh\nfresh:\n",
     "  %w = and i64 %m, 1\n  %window = icmp ne i64 %w, 0\n",
     "  br i1 %window, label %count, label %look\ncount:\n",
     slot("%in", ?IN_WINDOW), "  %n = atomicrmw add i64* %in, i64 1 monotonic\n",
     "  %full = icmp sge i64 %n, ", n(?WINDOW), "\n",
     "  br i1 %full, label %judge, label %look\njudge:\n",
     slot("%ep", ?EARLY), "  %e = load atomic i64, i64* %ep monotonic, align 8\n",
     slot("%bp", ?EARLY_BEFORE), "  %b = load atomic i64, i64* %bp monotonic, align 8\n",
     "  %back = sub i64 %e, %b\n  %many = icmp sgt i64 %back, ", n(?WINDOW div 2), "\n",
     "  br i1 %many, label %storm, label %close\nstorm:\n",
     "  %s = atomicrmw or i64* %meter, i64 18 monotonic\n  br label %close\nclose:\n",
     "  %x = atomicrmw and i64* %meter, i64 -2 monotonic\n  br label %look\nlook:\n",
     "  %v = and i64 %m, 8\n  %verify = icmp ne i64 %v, 0\n",
     "  br i1 %verify, label %both_ways, label %run\nboth_ways:\n",
     "  %vr = call i64 @tell(i8* %env, i32 %argc, i64* %argv, i64 2)\n  ret i64 %vr\nrun:\n",
     "  %a = and i64 %m, 4\n  %timed = icmp ne i64 %a, 0\n",
     "  br i1 %timed, label %clock, label %plain\nplain:\n",
     "  %pr = call i64 %f(i8* %env, i1 %resume, i64* %argv)\n  ret i64 %pr\nclock:\n",
     slot("%cp", ?CALLS), "  %new = xor i1 %resume, true\n  %one = zext i1 %new to i64\n",
     "  %c = atomicrmw add i64* %cp, i64 %one monotonic\n",
     "  %from = call i64 @enif_monotonic_time(i32 3)\n",
     "  %cr = call i64 %f(i8* %env, i1 %resume, i64* %argv)\n",
     "  %to = call i64 @enif_monotonic_time(i32 3)\n  %took = sub i64 %to, %from\n",
     slot("%tp", ?TIME), "  %z = atomicrmw add i64* %tp, i64 %took monotonic\n",
     "  ret i64 %cr\n}\n"].

slot(Name, Slot) -> ["  ", Name, " = getelementptr i64, i64* %meter, i64 ", n(Slot), "\n"].

%% {Marker, Atom, {Arguments}}
tell() ->
    ["define internal i64 @tell(i8* %env, i32 %argc, i64* %argv, i64 %what) noinline {\n",
     "  %a = alloca [3 x i64]\n  %p = bitcast [3 x i64]* %a to i64*\n",
     "  %m = load i64, i64* @atoms\n  store i64 %m, i64* %p\n",
     "  %wp = getelementptr i64, i64* @atoms, i64 %what\n  %w = load i64, i64* %wp\n",
     "  %p1 = getelementptr i64, i64* %p, i64 1\n  store i64 %w, i64* %p1\n",
     "  %args = call i64 @enif_make_tuple_from_array(i8* %env, i64* %argv, i32 %argc)\n",
     "  %p2 = getelementptr i64, i64* %p, i64 2\n  store i64 %args, i64* %p2\n",
     "  %r = call i64 @enif_make_tuple_from_array(i8* %env, i64* %p, i32 3)\n  ret i64 %r\n}\n"].

early_function(Least) ->
    ["define internal void @early(i64* %meter, i64 %fuel) noinline cold {\n",
     "  %soon = icmp sgt i64 %fuel, ", n(Least), "\n  br i1 %soon, label %yes, label %done\nyes:\n",
     slot("%ep", ?EARLY), "  %e = atomicrmw add i64* %ep, i64 1 monotonic\n",
     "  %k = and i64 %e, ", n(?OPENS - 1), "\n  %turn = icmp eq i64 %k, ", n(?OPENS - 1), "\n",
     "  br i1 %turn, label %open, label %done\nopen:\n",
     "  %m = load atomic i64, i64* %meter monotonic, align 8\n",
     "  %b = and i64 %m, 3\n  %closed = icmp eq i64 %b, 0\n",
     "  br i1 %closed, label %set, label %done\nset:\n",
     slot("%in", ?IN_WINDOW), "  store atomic i64 0, i64* %in monotonic, align 8\n",
     slot("%bp", ?EARLY_BEFORE), "  store atomic i64 %e, i64* %bp monotonic, align 8\n",
     "  %o = atomicrmw or i64* %meter, i64 1 monotonic\n  br label %done\ndone:\n  ret void\n}\n"].

%% meter(Unit, Mode): sets the mode and clears what was counted, unless it is negative; answers
%% {Mode, Calls, Nanoseconds, Early, _, _, _, _}.
nif_meter(Units) ->
    ["define internal i64 @meter(i8* %env, i32 %argc, i64* %argv) {\nentry:\n",
     "  %ip = alloca i64\n  %sp = alloca i64\n  %a = alloca [", n(?SLOTS), " x i64]\n",
     "  %p = bitcast [", n(?SLOTS), " x i64]* %a to i64*\n",
     "  %t0 = load i64, i64* %argv\n",
     "  %g0 = call i32 @enif_get_long(i8* %env, i64 %t0, i64* %ip)\n",
     "  %q1 = getelementptr i64, i64* %argv, i64 1\n  %t1 = load i64, i64* %q1\n",
     "  %g1 = call i32 @enif_get_long(i8* %env, i64 %t1, i64* %sp)\n",
     "  %g = and i32 %g0, %g1\n  %got = icmp ne i32 %g, 0\n",
     "  br i1 %got, label %numbers, label %bad\nnumbers:\n",
     "  %i = load i64, i64* %ip\n  %set = load i64, i64* %sp\n",
     "  %in = icmp ult i64 %i, ", n(Units), "\n  br i1 %in, label %known, label %bad\nbad:\n",
     "  %mk = load i64, i64* @atoms\n  ret i64 %mk\nknown:\n",
     "  %at = mul i64 %i, ", n(?SLOTS), "\n",
     "  %meter = getelementptr i64, i64* @meters, i64 %at\n",
     "  %want = icmp sge i64 %set, 0\n  br i1 %want, label %write, label %read\nwrite:\n",
     [[slot(["%w", n(S)], S), "  store atomic i64 0, i64* %w", n(S), " monotonic, align 8\n"]
      || S <- lists:seq(1, ?SLOTS - 1)],
     "  store atomic i64 %set, i64* %meter monotonic, align 8\n  br label %read\nread:\n",
     [[slot(["%r", n(S)], S),
       "  %v", n(S), " = load atomic i64, i64* %r", n(S), " monotonic, align 8\n",
       "  %m", n(S), " = call i64 @enif_make_long(i8* %env, i64 %v", n(S), ")\n",
       "  %e", n(S), " = getelementptr i64, i64* %p, i64 ", n(S), "\n",
       "  store i64 %m", n(S), ", i64* %e", n(S), "\n"] || S <- lists:seq(0, ?SLOTS - 1)],
     "  %tuple = call i64 @enif_make_tuple_from_array(i8* %env, i64* %p, i32 ", n(?SLOTS), ")\n",
     "  ret i64 %tuple\n}\n"].

n(I) -> integer_to_list(I).
