%% SPDX-License-Identifier: Apache-2.0
%% @doc The text of operations that build a binary. Pure.
%%
%% What a loop appends to is one buffer for each machine function, which grows as it needs to; of
%% the value that the loop carries there is only how many bytes of the buffer it has. An append
%% writes behind them and so changes no value that was there before, as long as a value is appended
%% to but once on each way through a body: erlane_native_linear sees to that. The bytes become a
%% term when the function is left.
-module(erlane_native_build).

-export([op/4, fields/2, memory/1, fill/3, finish/2, release/1, kept/2]).

-import(erlane_native_out, [add/2, add/3, def/3, use/2, word/3, low/2, float/2, block/2,
                            deopt_unless/3, charge/2]).

%% Bytes that may be copied when the process gives way: less than 50 us.
-define(KEEP, 262144).

%% @doc Memory of a function that has a buffer: the `ErlNifBinary', and its parts in registers.
-spec memory(erlane_native_out:state()) -> iodata().
memory(#{buffer := true}) ->
    ["  %buf = alloca [8 x i64]\n  %bufd = alloca i8*\n  %bufc = alloca i64\n",
     "  %bufb = bitcast [8 x i64]* %buf to i64*\n",
     "  store i64 0, i64* %bufc\n  store i8* null, i8** %bufd\n"];
memory(_) -> [].

%% @doc One instruction.
-spec op(term(), list(), non_neg_integer(), erlane_native_out:state()) ->
          erlane_native_out:state().
op({bs_create, [_ | Segments]}, [First, _ | Args], Dst, S0) ->
    Used = case use(First, S0) of
               {buf, U} -> U;
               {k, <<>>} -> "0";
               _ -> throw({unsupported, "an append to what is not built here"})
           end,
    {Parts, S1} = lists:mapfoldl(fun part/2, S0, fields(Segments, Args)),
    {End, S2} = lists:foldl(fun(P, {At, S}) -> behind(At, P, S) end, {Used, S1}, Parts),
    S3 = ensure(End, S2),
    {Data, S4} = add(value, "load i8*, i8** %bufd", S3),
    {_, S5} = lists:foldl(fun(P, {At, S}) -> write(P, Data, At, S) end, {Used, S4}, Parts),
    def(Dst, {buf, End}, S5).

%% @doc What is written at once: whole bytes. Fields that are not are put together to such, the
%% first one highest; throws `{unsupported, Reason}' when they do not come to whole bytes within 64
%% bits.
-spec fields([{atom(), pos_integer(), boolean()}], [erlane_native_ssa:val()]) ->
          [{word, [{erlane_native_ssa:val(), non_neg_integer()}], Bits :: non_neg_integer(),
            Little :: boolean()} | {float | binary | utf8, erlane_native_ssa:val(), boolean()}].
fields([{integer, Unit, true} | Segments], [V, {c, Size} | Args])
  when is_integer(Size), Size > 0, Size * Unit =< 64, (Size * Unit) rem 8 =:= 0 ->
    [{word, [{V, Size * Unit}], Size * Unit, true} | fields(Segments, Args)];
fields([{integer, _, false} | _] = Segments, Args) -> word(Segments, Args, [], 0);
fields([{float, Unit, Little} | Segments], [V, {c, Size} | Args])
  when is_integer(Size), Size * Unit =:= 64 ->
    [{float, V, Little} | fields(Segments, Args)];
fields([{binary, Unit, Little} | Segments], [V, {c, all} | Args]) when Unit =:= 8; Unit =:= 1 ->
    [{binary, V, Little} | fields(Segments, Args)];
fields([{utf8, _, Little} | Segments], [V, _ | Args]) ->
    [{utf8, V, Little} | fields(Segments, Args)];
fields([], []) -> [];
fields([{Type, _, _} | _], _) ->
    throw({unsupported, io_lib:format("puts ~tp of this size into a binary", [Type])}).

word([{integer, Unit, false} | Segments], [V, {c, Size} | Args], Fields, Bits)
  when is_integer(Size), Size >= 0, Size * Unit + Bits =< 64 ->
    All = [{V, Size * Unit} | Fields],
    case Bits + Size * Unit of
        N when N rem 8 =:= 0 -> [{word, lists:reverse(All), N, false} | fields(Segments, Args)];
        N -> word(Segments, Args, All, N)
    end;
word(_, _, _, _) -> throw({unsupported, "puts what is not whole bytes into a binary"}).

%% What is to be written: everything that can fail is done before anything is.
part({word, Fields, Bits, Little}, S0) ->
    {X, S} = lists:foldl(fun(F, {Acc, S1}) -> joined(F, Bits, Acc, S1) end, {none, S0}, Fields),
    {{bytes, X, Bits div 8, Little}, S};
part({float, V, Little}, S0) ->
    {X, S1} = float(use(V, S0), S0),
    {B, S2} = add(value, ["bitcast double ", X, " to i64"], S1),
    {{bytes, B, 8, Little}, S2};
part({utf8, V, _}, S0) ->
    {X, S1} = word(use(V, S0), "a character has more than 64 bits", S0),
    {N, S2} = add(value, ["call i64 @utf8_size(i64 ", X, ")"], S1),
    {C, S3} = add(value, ["icmp ne i64 ", N, ", 0"], S2),
    {{utf8, X, N}, deopt_unless(C, "a number is no character", S3)};
part({binary, V, _}, S) -> bytes(use(V, S), S).

%% The whole word as it is where there is but one field: what is above is cut off when written.
joined({V, Bits}, Bits, none, S) -> low(use(V, S), S);
joined({V, N}, _, Acc, S0) ->
    {X, S1} = low(use(V, S0), S0),
    {Y, S2} = add(value, ["and i64 ", X, ", ", n((1 bsl N) - 1)], S1),
    case Acc of
        none -> {Y, S2};
        _ ->
            {Z, S3} = add(value, ["shl i64 ", Acc, ", ", n(N)], S2),
            add(value, ["or i64 ", Z, ", ", Y], S3)
    end.

behind(At, {bytes, _, N, _}, S) -> add(value, ["add i64 ", At, ", ", n(N)], S);
behind(At, {literal, B}, S) -> add(value, ["add i64 ", At, ", ", n(byte_size(B))], S);
behind(At, {utf8, _, Length}, S) -> add(value, ["add i64 ", At, ", ", Length], S);
behind(At, {copy, _, Length}, S) -> add(value, ["add i64 ", At, ", ", Length], S).

ensure(End, S0) ->
    {Cap, S1} = add(value, "load i64, i64* %bufc", S0),
    {C, S2} = add(value, ["icmp ule i64 ", End, ", ", Cap], S1),
    {Ok, S3} = erlane_native_out:label(S2),
    {More, S4} = erlane_native_out:label(S3),
    %% To grow is to copy what there is, at worst.
    S5 = charge(End, block(More, add(["br i1 ", C, ", label %", Ok, ", label %", More,
                                      ", !prof !0"], S4))),
    {G, S6} = add(value, ["call i1 @buf_grow(i64* %bufb, i64 ", Cap, ", i64 ", End, ")"], S5),
    S7 = known(deopt_unless(G, "there is no memory for a binary", S6)),
    block(Ok, add(["br label %", Ok], S7)).

%% Takes what the VM says of the buffer into registers.
known(S0) ->
    {Cap, S1} = add(value, "load i64, i64* %bufb", S0),
    {P, S2} = add(value, "getelementptr i64, i64* %bufb, i64 1", S1),
    {I, S3} = add(value, ["load i64, i64* ", P], S2),
    {Data, S4} = add(value, ["inttoptr i64 ", I, " to i8*"], S3),
    add(["store i8* ", Data, ", i8** %bufd"], add(["store i64 ", Cap, ", i64* %bufc"], S4)).

write({bytes, X, N, Little}, Data, At, S0) ->
    {P, S1} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", At], S0),
    S2 = bytes_of(X, N, Little, P, S1),
    add(value, ["add i64 ", At, ", ", n(N)], S2);
write({literal, B}, Data, At, S0) ->
    {P, S1} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", At], S0),
    S2 = lists:foldl(fun({I, Byte}, S) ->
                         {Q, Sa} = add(value, ["getelementptr i8, i8* ", P, ", i64 ", n(I)], S),
                         add(["store i8 ", n(Byte), ", i8* ", Q], Sa)
                     end, S1, lists:zip(lists:seq(0, byte_size(B) - 1), binary_to_list(B))),
    add(value, ["add i64 ", At, ", ", n(byte_size(B))], S2);
write({utf8, X, Length}, Data, At, S0) ->
    {P, S1} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", At], S0),
    S2 = add(["call void @utf8_put(i64 ", X, ", i64 ", Length, ", i8* ", P, ")"], S1),
    add(value, ["add i64 ", At, ", ", Length], S2);
write({copy, From, Length}, Data, At, S0) ->
    {P, S1} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", At], S0),
    {_, S2} = add(value, ["call i8* @memcpy(i8* ", P, ", i8* ", From, ", i64 ", Length, ")"], S1),
    add(value, ["add i64 ", At, ", ", Length], S2).

bytes_of(_, 0, _, _, S) -> S;
bytes_of(X, 1, _, P, S0) ->
    {B, S} = add(value, ["trunc i64 ", X, " to i8"], S0),
    add(["store i8 ", B, ", i8* ", P], S);
bytes_of(X, N, Little, P, S0) when N =:= 2; N =:= 4; N =:= 8 ->
    W = n(N * 8),
    {T, S1} = case N of
                  8 -> {X, S0};
                  _ -> add(value, ["trunc i64 ", X, " to i", W], S0)
              end,
    {V, S2} = case Little of
                  true -> {T, S1};
                  false -> add(value, ["call i", W, " @llvm.bswap.i", W, "(i", W, " ", T, ")"], S1)
              end,
    {Q, S3} = add(value, ["bitcast i8* ", P, " to i", W, "*"], S2),
    add(["store i", W, " ", V, ", i", W, "* ", Q, ", align 1"], S3);
bytes_of(X, N, Little, P, S0) ->
    lists:foldl(fun(I, S) ->
                    Shift = case Little of true -> 8 * I; false -> 8 * (N - 1 - I) end,
                    {Y, Sa} = add(value, ["lshr i64 ", X, ", ", n(Shift)], S),
                    {B, Sb} = add(value, ["trunc i64 ", Y, " to i8"], Sa),
                    {Q, Sc} = add(value, ["getelementptr i8, i8* ", P, ", i64 ", n(I)], Sb),
                    add(["store i8 ", B, ", i8* ", Q], Sc)
                end, S0, lists:seq(0, N - 1)).

%% @doc Makes room for bytes that are elsewhere, which can fail; answers what writes them to the
%% start of the buffer and stores in a slot how many they are.
-spec fill(iodata(), erlane_native_out:value(), erlane_native_out:state()) ->
          {fun((erlane_native_out:state()) -> erlane_native_out:state()),
           erlane_native_out:state()}.
fill(Slot, Value, S0) ->
    {Part, S1} = bytes(Value, S0),
    {End, S2} = behind("0", Part, S1),
    {fun(S) ->
         {Data, Sa} = add(value, "load i8*, i8** %bufd", S),
         {_, Sb} = write(Part, Data, "0", Sa),
         add(["store i64 ", End, ", i64* ", Slot], Sb)
     end, ensure(End, S2)}.

bytes({k, Bytes}, S) when is_binary(Bytes) -> {{literal, Bytes}, S};
bytes({bin, #{data := Data, size := Size, pos := Pos}}, S0) ->
    {Length, S1} = add(value, ["sub i64 ", Size, ", ", Pos], S0),
    {From, S2} = add(value, ["getelementptr i8, i8* ", Data, ", i64 ", Pos], S1),
    {{copy, From, Length}, copied(Length, S2)};
bytes({field, Place, _}, S) -> bytes({bin, Place}, S);
bytes(_, _) -> throw({unsupported, "a binary that is not always built or matched here"}).

%% @doc The first bytes of the buffer as a term, and no buffer any more.
-spec finish(erlane_native_out:name(), erlane_native_out:state()) ->
          {erlane_native_out:name(), erlane_native_out:state()}.
finish(Used, S0) ->
    {Cap, S1} = add(value, "load i64, i64* %bufc", S0),
    {T, S2} = add(value, ["call i64 @buf_finish(i8* %env, i64* %bufb, i64 ", Cap, ", i64 ", Used,
                          ")"], S1),
    {C, S3} = add(value, ["icmp ule i64 ", Used, ", ", n(?KEEP)], S2),
    {Bytes, S4} = add(value, ["select i1 ", C, ", i64 ", Used, ", i64 ", n(?KEEP)], S3),
    {T, add("store i64 0, i64* %bufc", charge(Bytes, S4))}.

%% @doc Gives the memory back.
-spec release(erlane_native_out:state()) -> erlane_native_out:state().
release(#{buffer := true} = S0) ->
    {Cap, S} = add(value, "load i64, i64* %bufc", S0),
    add(["call void @buf_release(i64* %bufb, i64 ", Cap, ")"], S);
release(S) -> S.

%% @doc Whether so much is to be copied when the process gives way, and not to be left to BEAM.
-spec kept(erlane_native_out:name(), erlane_native_out:state()) -> erlane_native_out:state().
kept(Used, S0) ->
    {C, S} = add(value, ["icmp ule i64 ", Used, ", ", n(?KEEP)], S0),
    deopt_unless(C, "a built binary is too large to be kept over a time slice", S).

%% What is copied costs a unit for each byte, with the pages that are new; what takes longer than
%% 50 us is not begun.
copied(Length, S0) ->
    {C, S} = add(value, ["icmp ule i64 ", Length, ", ", n(?KEEP)], S0),
    charge(Length, deopt_unless(C, "a binary is too large to be copied here", S)).

n(I) -> integer_to_list(I).
