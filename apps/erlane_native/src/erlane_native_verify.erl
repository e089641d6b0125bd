%% SPDX-License-Identifier: Apache-2.0
%% @doc One call done both ways: by machine code and by its definition. The answer is the
%% definition's; a difference is counted, and told once for each function.
-module(erlane_native_verify).

-export([rare/4, call/4, shape/1]).

-type outcome() :: {value, term()} | {error | exit | throw, term(), erlang:stacktrace()}.

%% @doc What native code asks for besides an answer: to be verified, or to have it told that it has
%% just been put back to BEAM.
-spec rare(storm | verify, {module(), non_neg_integer()},
           {fun(), fun((integer(), tuple()) -> term())}, tuple()) -> term().
rare(verify, Unit, {Beam, Resume}, Args) -> call(Unit, Beam, Resume, Args);
rare(storm, {Companion, I}, {Beam, _}, Args) ->
    ok = erlane_native_load:storm(Companion, I),
    apply(Beam, tuple_to_list(Args)).

%% @doc What a native function does while it is verified. `Beam' is the definition, `Resume' goes on
%% where machine code hands back.
-spec call({module(), non_neg_integer()}, fun(), fun((integer(), tuple()) -> term()), tuple()) ->
          term().
call({Companion, I} = Unit, Beam, Resume, Args) ->
    Native = outcome(fun() -> native(Companion, I, Resume, {0, Args}) end),
    Real = outcome(fun() -> apply(Beam, tuple_to_list(Args)) end),
    same(Native, Real) orelse
        erlane_native_load:difference(Unit, {shapes(Args), said(Native), said(Real)}),
    case Real of
        {value, Value} -> Value;
        {Class, Reason, Stack} -> erlang:raise(Class, Reason, Stack)
    end.

%% Head 0 with the arguments of the call is the way in.
native(Companion, I, Resume, State) ->
    Marker = erlane_native_llvm:marker(),
    case apply(Companion, list_to_atom("r" ++ integer_to_list(I)), [State]) of
        Marker -> throw({?MODULE, handed_back});
        {Marker, Where, As} when Where < 0 -> native(Companion, I, Resume, {-1 - Where, As});
        {Marker, Where, As} -> Resume(Where, As);
        Value -> Value
    end.

-spec outcome(fun(() -> term())) -> outcome() | handed_back.
outcome(F) ->
    try {value, F()}
    catch
        throw:{?MODULE, handed_back} -> handed_back;
        Class:Reason:Stack -> {Class, Reason, Stack}
    end.

%% Two zeroes of another sign are equal to each other on some VMs, and not the same.
same(handed_back, _) -> true;
same({value, A}, {value, B}) -> A =:= B andalso term_to_binary(A) =:= term_to_binary(B);
same({Class, Reason, _}, {Class, Reason, _}) -> true;
same(_, _) -> false.

said({value, V}) -> shape(V);
said({Class, Reason, _}) -> io_lib:format("~tp: ~0tP", [Class, Reason, 6]).

shapes(Args) -> lists:join(", ", [shape(A) || A <- tuple_to_list(Args)]).

%% @doc Kind and size of a term, without what it says.
-spec shape(term()) -> iodata().
shape(I) when is_integer(I), I < 0 -> ["a negative integer of ", bits(-I), " bits"];
shape(I) when is_integer(I) -> ["an integer of ", bits(I), " bits"];
shape(F) when is_float(F) -> "a float";
shape(B) when is_binary(B) -> ["a binary of ", integer_to_list(byte_size(B)), " bytes"];
shape(B) when is_bitstring(B) -> ["a bit string of ", integer_to_list(bit_size(B)), " bits"];
shape(T) when is_tuple(T) -> ["a tuple of ", integer_to_list(tuple_size(T))];
shape([]) -> "an empty list";
shape(L) when is_list(L) -> "a list";
shape(M) when is_map(M) -> "a map";
shape(A) when is_atom(A) -> "an atom";
shape(_) -> "another term".

bits(I) ->
    <<First, Rest/binary>> = binary:encode_unsigned(I),
    integer_to_list(8 * byte_size(Rest) + length(integer_to_list(First, 2))).
