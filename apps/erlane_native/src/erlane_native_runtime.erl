%% SPDX-License-Identifier: Apache-2.0
%% @doc The text that every module's machine code begins and ends with: what it calls of the VM, the
%% decoder of UTF-8, and the NIF that reads its counters. Pure.
%%
%% The NIF interface is declared here and not in C, so that clang alone is needed, and no header.
-module(erlane_native_runtime).

-export([declarations/0, functions/1]).

%% @doc What is called, with 64-bit longs, and the types of the table of NIFs.
-spec declarations() -> iodata().
declarations() ->
    ["%func = type { i8*, i32, i64 (i8*, i32, i64*)*, i32 }\n",
     "%entry = type { i32, i32, i8*, i32, %func*, i32 (i8*, i8**, i64)*, i8*, "
     "i32 (i8*, i8**, i8**, i64)*, i8*, i8*, i32, i64, i8* }\n",
     [["declare ", D, "\n"] || D <-
         ["i32 @enif_get_long(i8*, i64, i64*)", "i32 @enif_get_ulong(i8*, i64, i64*)",
          "i32 @enif_get_double(i8*, i64, double*)", "i64 @enif_make_long(i8*, i64)",
          "i64 @enif_make_ulong(i8*, i64)", "i64 @enif_make_double(i8*, double)",
          "i64 @enif_make_tuple_from_array(i8*, i64*, i32)",
          "i64 @enif_make_list_from_array(i8*, i64*, i32)",
          "i64 @enif_make_list_cell(i8*, i64, i64)",
          "i64 @enif_make_sub_binary(i8*, i64, i64, i64)",
          "i64 @enif_make_atom_len(i8*, i8*, i64)", "i32 @enif_inspect_binary(i8*, i64, i64*)",
          "i32 @enif_is_binary(i8*, i64)",
          "i32 @enif_get_list_cell(i8*, i64, i64*, i64*)",
          "i32 @enif_get_tuple(i8*, i64, i32*, i64**)", "i32 @enif_consume_timeslice(i8*, i32)",
          "i32 @enif_is_identical(i64, i64)", "i32 @enif_compare(i64, i64)",
          "i32 @enif_term_type(i8*, i64)", "i32 @enif_alloc_binary(i64, i64*)",
          "i32 @enif_realloc_binary(i64*, i64)", "void @enif_release_binary(i64*)",
          "i64 @enif_make_binary(i8*, i64*)", "i8* @enif_make_new_binary(i8*, i64, i64*)",
          "i8* @memcpy(i8*, i8*, i64)"]],
     [["declare { i64, i1 } @llvm.s", Op, ".with.overflow.i64(i64, i64)\n"]
      || Op <- ["add", "sub", "mul"]],
     [["declare double @llvm.", F, ".f64(double)\n"]
      || F <- ["fabs", "sqrt", "round", "floor", "ceil"]],
     [["declare i", W, " @llvm.bswap.i", W, "(i", W, ")\n"] || W <- ["16", "32", "64"]],
     [["declare double @", F, "(double)\n"]
      || F <- ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "log",
               "log2", "log10", "floor", "ceil"]],
     [["declare double @", F, "(double, double)\n"] || F <- ["pow", "atan2", "fmod"]],
     "!0 = !{!\"branch_weights\", i32 10000, i32 1}\n",
     "!1 = !{!\"branch_weights\", i32 1, i32 1000}\n"].

%% @doc What every module has besides its units.
-spec functions(Reasons :: non_neg_integer()) -> iodata().
functions(Reasons) ->
    N = integer_to_list(Reasons),
    N1 = integer_to_list(Reasons + 1),
    ["define internal i32 @upgrade(i8* %env, i8** %priv, i8** %old, i64 %info) {\n"
     "  %r = call i32 @load(i8* %env, i8** %priv, i64 %info)\n  ret i32 %r\n}\n",
     %% {Yields, Count of each reason ...}
     "define internal i64 @counts(i8* %env, i32 %argc, i64* %argv) {\nentry:\n",
     "  %a = alloca [", N1, " x i64]\n",
     "  %p = bitcast [", N1, " x i64]* %a to i64*\n",
     "  %y = load atomic i64, i64* @yields monotonic, align 8\n",
     "  %yt = call i64 @enif_make_long(i8* %env, i64 %y)\n  store i64 %yt, i64* %p\n",
     "  br label %loop\nloop:\n",
     "  %i = phi i64 [ 0, %entry ], [ %j, %next ]\n",
     "  %more = icmp slt i64 %i, ", N, "\n  br i1 %more, label %next, label %done\nnext:\n",
     "  %q = getelementptr i64, i64* @counters, i64 %i\n",
     "  %c = load atomic i64, i64* %q monotonic, align 8\n",
     "  %t = call i64 @enif_make_long(i8* %env, i64 %c)\n",
     "  %j = add i64 %i, 1\n",
     "  %e = getelementptr i64, i64* %p, i64 %j\n  store i64 %t, i64* %e\n  br label %loop\n",
     "done:\n",
     "  %r = call i64 @enif_make_tuple_from_array(i8* %env, i64* %p, i32 ", N1, ")\n",
     "  ret i64 %r\n}\n",
     consume(), timed(), order(), buffer(), copies(), quick(), utf8(), utf8_put()].

%% Whether a term looks like what native code answers when it has no result: a tuple of three that
%% begins with the marker. The marker alone makes BEAM run it all, which is right.
order() ->
    ["define internal i1 @order(i8* %env, i64 %t, i64 %marker) {\n",
     "  %count = alloca i32\n  %elements = alloca i64*\n",
     "  %r = call i32 @enif_get_tuple(i8* %env, i64 %t, i32* %count, i64** %elements)\n",
     "  %is = icmp ne i32 %r, 0\n  br i1 %is, label %tuple, label %no\ntuple:\n",
     "  %n = load i32, i32* %count\n  %three = icmp eq i32 %n, 3\n",
     "  br i1 %three, label %look, label %no\nlook:\n",
     "  %e = load i64*, i64** %elements\n  %first = load i64, i64* %e\n",
     "  %c = icmp eq i64 %first, %marker\n  ret i1 %c\nno:\n  ret i1 false\n}\n"].

%% Tells the scheduler of fuel: less than nothing by so much as was used, a hundredth of a time
%% slice for each 40000. Answers what the VM does: whether the slice is over.
consume() ->
    ["define internal i32 @consume(i8* %env, i64 %left) noinline cold {\n",
     "  %used = sub i64 0, %left\n  %p = udiv i64 %used, 40000\n",
     "  %c = icmp ult i64 %p, 99\n  %q = select i1 %c, i64 %p, i64 99\n",
     "  %r = add i64 %q, 1\n  %t = trunc i64 %r to i32\n",
     "  %e = call i32 @enif_consume_timeslice(i8* %env, i32 %t)\n  ret i32 %e\n}\n",
     %% After a call tree was too large: twice as many calls as the last time are not tried.
     "define internal void @give_up(i64* %skips, i64* %penalty) noinline cold {\n",
     "  %p = load atomic i64, i64* %penalty monotonic, align 8\n",
     "  %d = shl i64 %p, 1\n  %o = or i64 %d, 1\n",
     "  %n = and i64 %o, 4095\n",
     "  store atomic i64 %n, i64* %penalty monotonic, align 8\n",
     "  store atomic i64 %n, i64* %skips monotonic, align 8\n  ret void\n}\n"].

%% The same where a loop is under way, by the clock too: fuel is what work takes whose data is near,
%% and memory can be far slower than that. The time of the first unit is not known. What is over
%% whole hundredths of a slice counts the next time.
%% After so many units as are `young' it is over in any case.
timed() ->
    ["define internal i32 @consume_timed(i8* %env, i64 %left, i64* %clock, i64* %young) "
     "noinline cold {\n",
     "  %y = load i64, i64* %young\n  %less = sub i64 %y, 1\n",
     "  store i64 %less, i64* %young\n  %enough = icmp sle i64 %less, 0\n",
     "  %now = call i64 @enif_monotonic_time(i32 3)\n",
     "  %before = load i64, i64* %clock\n  %first = icmp eq i64 %before, 0\n",
     "  %past = sub i64 %now, %before\n  %took = select i1 %first, i64 0, i64 %past\n",
     "  %used = sub i64 0, %left\n  %p = udiv i64 %used, 40000\n  %q = add i64 %p, 1\n",
     "  %w = udiv i64 %took, 10000\n  %late = icmp ugt i64 %w, %q\n",
     "  %over = urem i64 %took, 10000\n  %rest = select i1 %late, i64 %over, i64 0\n",
     "  %from = sub i64 %now, %rest\n  store i64 %from, i64* %clock\n",
     "  %m = select i1 %late, i64 %w, i64 %q\n",
     "  %c = icmp ult i64 %m, 100\n  %s = select i1 %c, i64 %m, i64 100\n",
     "  %t = trunc i64 %s to i32\n",
     "  %e = call i32 @enif_consume_timeslice(i8* %env, i32 %t)\n",
     "  %r = select i1 %enough, i32 1, i32 %e\n  ret i32 %r\n}\n"].

%% Buffers. To grow: twice what is needed. A result of up to 256 kB is copied, which takes less than
%% 50 us and leaves no slack; a larger one is the buffer itself, cut to its length.
buffer() ->
    ["define internal i1 @buf_grow(i64* %b, i64 %cap, i64 %need) noinline cold {\n",
     "  %d = shl i64 %need, 1\n  %more = icmp ugt i64 %d, 1024\n",
     "  %size = select i1 %more, i64 %d, i64 1024\n",
     "  %none = icmp eq i64 %cap, 0\n  br i1 %none, label %new, label %old\nnew:\n",
     "  %r = call i32 @enif_alloc_binary(i64 %size, i64* %b)\n",
     "  %ok = icmp ne i32 %r, 0\n  ret i1 %ok\nold:\n",
     "  %s = call i32 @enif_realloc_binary(i64* %b, i64 %size)\n",
     "  %ok2 = icmp ne i32 %s, 0\n  ret i1 %ok2\n}\n",
     "define internal void @buf_release(i64* %b, i64 %cap) {\n",
     "  %none = icmp eq i64 %cap, 0\n  br i1 %none, label %done, label %some\nsome:\n",
     "  call void @enif_release_binary(i64* %b)\n  br label %done\ndone:\n  ret void\n}\n",
     "define internal i64 @buf_term(i8* %env, i64* %b, i64 %used) {\n  %t = alloca i64\n",
     "  %i = call i8* @enif_make_new_binary(i8* %env, i64 %used, i64* %t)\n",
     "  %none = icmp eq i64 %used, 0\n  br i1 %none, label %done, label %some\nsome:\n",
     "  %p = getelementptr i64, i64* %b, i64 1\n  %w = load i64, i64* %p\n",
     "  %d = inttoptr i64 %w to i8*\n",
     "  %m = call i8* @memcpy(i8* %i, i8* %d, i64 %used)\n  br label %done\ndone:\n",
     "  %r = load i64, i64* %t\n  ret i64 %r\n}\n",
     "define internal i64 @buf_finish(i8* %env, i64* %b, i64 %cap, i64 %used) {\n",
     "  %c = icmp ule i64 %used, 262144\n  br i1 %c, label %small, label %large\nsmall:\n",
     "  %t = call i64 @buf_term(i8* %env, i64* %b, i64 %used)\n",
     "  call void @buf_release(i64* %b, i64 %cap)\n  ret i64 %t\nlarge:\n",
     "  %r = call i32 @enif_realloc_binary(i64* %b, i64 %used)\n",
     "  %x = call i64 @enif_make_binary(i8* %env, i64* %b)\n  ret i64 %x\n}\n"].

%% Whether the VM makes a copy of a binary to show its bytes, as it does when they are not at whole
%% bytes of what it is a part of: then another one each time. Asked of the first `size' bytes.
copies() ->
    ["define internal i1 @copies(i8* %env, i64 %term, i64 %size) noinline {\n",
     "  %a = alloca [8 x i64]\n  %b = alloca [8 x i64]\n",
     "  %ap = bitcast [8 x i64]* %a to i64*\n  %bp = bitcast [8 x i64]* %b to i64*\n",
     "  %s = call i64 @enif_make_sub_binary(i8* %env, i64 %term, i64 0, i64 %size)\n",
     "  %ar = call i32 @enif_inspect_binary(i8* %env, i64 %s, i64* %ap)\n",
     "  %br = call i32 @enif_inspect_binary(i8* %env, i64 %s, i64* %bp)\n",
     "  %aq = getelementptr i64, i64* %ap, i64 1\n  %ad = load i64, i64* %aq\n",
     "  %bq = getelementptr i64, i64* %bp, i64 1\n  %bd = load i64, i64* %bq\n",
     "  %c = icmp ne i64 %ad, %bd\n  ret i1 %c\n}\n"].

%% Whether two terms can be compared in a time that does not grow with them: they are the same, or
%% of different types, or one is an atom, a float, a process, a port, a reference or an integer of
%% 64 bits. The numbers are those of ErlNifTermType.
quick() ->
    ["define internal i1 @quick(i8* %env, i64 %a, i64 %b) noinline {\n  %slot = alloca i64\n",
     "  %same = icmp eq i64 %a, %b\n  br i1 %same, label %yes, label %types\nyes:\n",
     "  ret i1 true\ntypes:\n",
     "  %ta = call i32 @enif_term_type(i8* %env, i64 %a)\n",
     "  %tb = call i32 @enif_term_type(i8* %env, i64 %b)\n",
     "  %other = icmp ne i32 %ta, %tb\n  br i1 %other, label %yes, label %kind\nkind:\n",
     "  switch i32 %ta, label %no [i32 1, label %yes i32 3, label %yes i32 5, label %first",
     " i32 8, label %yes i32 9, label %yes i32 10, label %yes]\nno:\n  ret i1 false\nfirst:\n",
     "  %la = call i32 @enif_get_long(i8* %env, i64 %a, i64* %slot)\n",
     "  %sa = icmp ne i32 %la, 0\n  br i1 %sa, label %yes, label %second\nsecond:\n",
     "  %lb = call i32 @enif_get_long(i8* %env, i64 %b, i64* %slot)\n",
     "  %sb = icmp ne i32 %lb, 0\n  ret i1 %sb\n}\n"].

%% The length of the character at a place, 0 when there is none; its number goes to the slot.
%% Ranges of the second byte keep out long forms, surrogates and what is above 16#10FFFF.
utf8() ->
    ["define internal i64 @utf8(i8* %p, i64 %left, i64* %out) alwaysinline {\n",
     "  %some = icmp ne i64 %left, 0\n  br i1 %some, label %first, label %bad\nfirst:\n",
     "  %b0 = load i8, i8* %p\n  %a = zext i8 %b0 to i64\n",
     "  %ascii = icmp ult i64 %a, 128\n  br i1 %ascii, label %one, label %multi\none:\n",
     "  store i64 %a, i64* %out\n  ret i64 1\nmulti:\n",
     "  %lo = icmp uge i64 %a, 194\n  %hi = icmp ule i64 %a, 244\n  %ok = and i1 %lo, %hi\n",
     "  br i1 %ok, label %size, label %bad\nsize:\n",
     "  %is3 = icmp uge i64 %a, 224\n  %is4 = icmp uge i64 %a, 240\n",
     "  %n3 = select i1 %is3, i64 3, i64 2\n  %n = select i1 %is4, i64 4, i64 %n3\n",
     "  %fits = icmp ule i64 %n, %left\n  br i1 %fits, label %second, label %bad\nsecond:\n",
     "  %p1 = getelementptr i8, i8* %p, i64 1\n  %c1 = load i8, i8* %p1\n",
     "  %b = zext i8 %c1 to i64\n",
     "  %e0 = icmp eq i64 %a, 224\n  %f0 = icmp eq i64 %a, 240\n",
     "  %min1 = select i1 %e0, i64 160, i64 128\n  %min = select i1 %f0, i64 144, i64 %min1\n",
     "  %ed = icmp eq i64 %a, 237\n  %f4 = icmp eq i64 %a, 244\n",
     "  %max1 = select i1 %ed, i64 159, i64 191\n  %max = select i1 %f4, i64 143, i64 %max1\n",
     "  %ge = icmp uge i64 %b, %min\n  %le = icmp ule i64 %b, %max\n  %in = and i1 %ge, %le\n",
     "  br i1 %in, label %bits, label %bad\nbits:\n",
     "  %bl = and i64 %b, 63\n",
     "  br i1 %is3, label %third, label %two\ntwo:\n",
     "  %a2 = and i64 %a, 31\n  %s2 = shl i64 %a2, 6\n  %v2 = or i64 %s2, %bl\n",
     "  store i64 %v2, i64* %out\n  ret i64 2\nthird:\n",
     "  %p2 = getelementptr i8, i8* %p, i64 2\n  %d0 = load i8, i8* %p2\n",
     "  %d = zext i8 %d0 to i64\n  %dt = and i64 %d, 192\n  %dok = icmp eq i64 %dt, 128\n",
     "  br i1 %dok, label %dbits, label %bad\ndbits:\n  %dl = and i64 %d, 63\n",
     "  br i1 %is4, label %fourth, label %three\nthree:\n",
     "  %a3 = and i64 %a, 15\n  %s3 = shl i64 %a3, 12\n  %t3 = shl i64 %bl, 6\n",
     "  %u3 = or i64 %s3, %t3\n  %v3 = or i64 %u3, %dl\n",
     "  store i64 %v3, i64* %out\n  ret i64 3\nfourth:\n",
     "  %p3 = getelementptr i8, i8* %p, i64 3\n  %g0 = load i8, i8* %p3\n",
     "  %g = zext i8 %g0 to i64\n  %gt = and i64 %g, 192\n  %gok = icmp eq i64 %gt, 128\n",
     "  br i1 %gok, label %four, label %bad\nfour:\n  %gl = and i64 %g, 63\n",
     "  %a4 = and i64 %a, 7\n  %s4 = shl i64 %a4, 18\n  %t4 = shl i64 %bl, 12\n",
     "  %w4 = shl i64 %dl, 6\n  %x4 = or i64 %s4, %t4\n  %y4 = or i64 %x4, %w4\n",
     "  %v4 = or i64 %y4, %gl\n  store i64 %v4, i64* %out\n  ret i64 4\nbad:\n",
     "  store i64 0, i64* %out\n  ret i64 0\n}\n"].

%% Bytes of a character, 0 when a number is none; and those bytes.
utf8_put() ->
    ["define internal i64 @utf8_size(i64 %c) alwaysinline {\n",
     "  %a = icmp ult i64 %c, 128\n  br i1 %a, label %one, label %more, !prof !0\none:\n",
     "  ret i64 1\nmore:\n",
     "  %hi = icmp ule i64 %c, 1114111\n  %s = lshr i64 %c, 11\n  %sur = icmp ne i64 %s, 27\n",
     "  %ok = and i1 %hi, %sur\n  br i1 %ok, label %size, label %bad\nbad:\n  ret i64 0\nsize:\n",
     "  %b = icmp ult i64 %c, 2048\n  %d = icmp ult i64 %c, 65536\n",
     "  %n = select i1 %d, i64 3, i64 4\n  %m = select i1 %b, i64 2, i64 %n\n  ret i64 %m\n}\n",
     "define internal void @utf8_put(i64 %c, i64 %n, i8* %p) alwaysinline {\n",
     "  %a = icmp eq i64 %n, 1\n  br i1 %a, label %one, label %more, !prof !0\none:\n",
     "  %b = trunc i64 %c to i8\n  store i8 %b, i8* %p\n  ret void\nmore:\n",
     "  call void @utf8_long(i64 %c, i64 %n, i8* %p)\n  ret void\n}\n",
     %% The last bytes have six bits each, the first one what is left, behind as many ones as there
     %% are bytes.
     "define internal void @utf8_long(i64 %c, i64 %n, i8* %p) noinline {\nentry:\n",
     "  %last = sub i64 %n, 1\n  br label %loop\nloop:\n",
     "  %i = phi i64 [ %last, %entry ], [ %j, %loop ]\n",
     "  %v = phi i64 [ %c, %entry ], [ %w, %loop ]\n",
     "  %low = and i64 %v, 63\n  %x = or i64 %low, 128\n  %b = trunc i64 %x to i8\n",
     "  %q = getelementptr i8, i8* %p, i64 %i\n  store i8 %b, i8* %q\n",
     "  %w = lshr i64 %v, 6\n  %j = sub i64 %i, 1\n  %more = icmp ne i64 %j, 0\n",
     "  br i1 %more, label %loop, label %first\nfirst:\n",
     "  %k = sub i64 8, %n\n  %ones = shl i64 255, %k\n  %h = or i64 %ones, %w\n",
     "  %f = trunc i64 %h to i8\n  store i8 %f, i8* %p\n  ret void\n}\n"].
