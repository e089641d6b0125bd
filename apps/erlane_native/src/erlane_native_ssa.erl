%% SPDX-License-Identifier: Apache-2.0
%% @doc Reads the optimised SSA of the compiler of this OTP into own, plain terms.
%%
%% Only what is named here is read. An operation or a shape that is not known is thrown as
%% `{refused, Line, Reason}', and the function stays as it is: a newer compiler can cost speed,
%% never a result. Ranges and types that the compiler notes are not read at all, erlane_native_body
%% finds its own; so a change of their form cannot matter.
%%
%% A block that can only raise is one word, `deopt': the BEAM raises the exception itself.
-module(erlane_native_ssa).

-export([from_forms/2, function/1]).

-import(erlane_native_graph, [next/1]).

-export_type([fn/0, body/0, block/0, ins/0, last/0, val/0, fa/0, refused/0]).

-type fa() :: {atom(), arity()}.
-type val() :: {v, var()} | {c, term()}.
-type var() :: non_neg_integer().
-type ins() :: {var(), Op :: term(), [val() | {val(), label()}], Line :: integer()}.
-type label() :: non_neg_integer().
-type last() :: {ret, val()} | {jmp, label()} | {br, val(), label(), label()}
              | {switch, val(), label(), [{term(), label()}]} | {tail, fa(), [val()], integer()}
              | {deopt, Reason :: atom(), integer()}.
-type block() :: {[ins()], last()}.
-type fn() :: #{name := fa(), line := integer(), args := [var()], order := [label()],
                      blocks := #{label() => block()}}.
-type body() :: #{order := [label()], blocks := #{label() => block()}, _ => _}.
%% What a function that was read and one of a unit, which has more, have in common.
-type refused() :: {refused, Line :: integer(), Reason :: iolist()}.

%% The compiler's records; their shape has been the same from OTP 25 to 29.
-record(b_module, {anno, name, exports, attributes, body}).
-record(b_function, {anno, args, bs, cnt}).
-record(b_blk, {anno, is, last}).
-record(b_set, {anno, dst, op, args}).
-record(b_ret, {anno, arg}).
-record(b_br, {anno, bool, succ, fail}).
-record(b_switch, {anno, arg, fail, list}).
-record(b_var, {name}).
-record(b_literal, {val}).
-record(b_remote, {mod, name, arity}).
-record(b_local, {name, arity}).

%% The block that stands for "raises" in the compiler.
-define(EXCEPTION, 1).

%% @doc The SSA of all functions of a module. `error' when the compiler does not take the forms:
%% it will say why when it compiles them itself.
-spec from_forms([erl_parse:abstract_form()], [compile:option()]) ->
          {ok, #{fa() => fn() | refused()}} | error.
from_forms(Forms, Options) ->
    %% The pass writes a listing too, which has to go somewhere private.
    Tmp = filename:join(tmp(), "erlane_native." ++ os:getpid() ++ "."
                        ++ integer_to_list(erlang:unique_integer([positive]))),
    ok = filelib:ensure_dir(filename:join(Tmp, "x")),
    try compile:forms(Forms, [dssaopt, binary, return, {outdir, Tmp} | Options]) of
        {ok, _, Ssa} -> {ok, module(Ssa)};
        {ok, _, Ssa, _Warnings} -> {ok, module(Ssa)};
        {error, [{_, [{none, compile, {crash, listing, _, _}}]}], _} ->
            %% OTP 25 cannot print some of the types that it finds; they are not read anyway.
            case lists:member(no_type_opt, Options) of
                false -> from_forms(Forms, [no_type_opt | Options]);
                true -> error
            end;
        _ -> error
    after
        file:del_dir_r(Tmp)
    end.

tmp() ->
    case os:getenv("TMPDIR") of
        false -> "/tmp";
        Dir -> Dir
    end.

%% The compiler's types do not tell of this result, which is not for everybody.
-dialyzer({nowarn_function, module/1}).
module(#b_module{body = Functions}) ->
    maps:from_list([{fa(F), try function(F) catch throw:{refused, _, _} = R -> R end}
                    || F <- Functions]);
module(_) ->
    #{}.

fa(#b_function{anno = #{func_info := {_, F, A}}}) -> {F, A}.

%% @doc One function of the compiler.
-spec function(tuple()) -> fn().
function(#b_function{anno = Anno, args = Args, bs = Blocks} = F) ->
    Line = line(Anno, 0),
    Numbers = maps:from_list(lists:zip(Args, lists:seq(0, length(Args) - 1))),
    Order = rpo(Blocks),
    %% A block that only a call returned to is gone when that call is a jump.
    {Read, Live, _} =
        lists:foldl(fun(L, {Acc, Lv, {Ns, Ln}}) when is_map_key(L, Lv) ->
                            {B, Ns1, Ln1} = block(maps:get(L, Blocks), L, Blocks, Ns, Ln),
                            Entered = maps:from_keys(next(element(2, B)), true),
                            {Acc#{L => B}, maps:merge(Lv, Entered), {Ns1, Ln1}};
                       (_, Acc) -> Acc
                    end, {#{}, #{0 => true}, {Numbers, Line}}, Order),
    #{name => fa(F), line => Line, args => lists:seq(0, length(Args) - 1),
      order => [L || L <- Order, is_map_key(L, Live)], blocks => Read};
function(_) ->
    throw({refused, 0, "the compiler's form of the function is not known"}).

line(#{location := {_File, Line}}, _) when is_integer(Line) -> Line;
line(#{location := {_File, {Line, _Column}}}, _) when is_integer(Line) -> Line;
line(_, Line) -> Line.

%% Reverse postorder: in a body without cycles each block comes after all that lead to it.
rpo(Blocks) ->
    {_, Order} = rpo(0, Blocks, #{}, []),
    Order.

rpo(L, _, Seen, Acc) when is_map_key(L, Seen) -> {Seen, Acc};
rpo(L, Blocks, Seen0, Acc0) ->
    #b_blk{last = Last} = maps:get(L, Blocks),
    {Seen, Acc} = lists:foldl(fun(S, {Sn, A}) -> rpo(S, Blocks, Sn, A) end,
                              {Seen0#{L => true}, Acc0}, successors(Last)),
    {Seen, [L | Acc]}.

successors(#b_ret{}) -> [];
successors(#b_br{succ = S, fail = F}) -> [F, S];
successors(#b_switch{fail = F, list = List}) -> [F | [L || {_, L} <- List]];
successors(_) -> throw({refused, 0, "a block ends in a way that is not known"}).

block(#b_blk{is = Is, last = Last}, Label, Blocks, Ns0, Line0) ->
    case raises(Label, Is, Line0) of
        {Why, Line} -> {{[], {deopt, Why, Line}}, Ns0, Line};
        false ->
            {Body, Tail} = tail(Is, Last, Blocks),
            {Ins, {Ns, Line}} =
                lists:mapfoldl(fun(I, {N0, L0}) ->
                                   L = line(I#b_set.anno, L0),
                                   {Dst, N1} = number(I#b_set.dst, N0),
                                   {Op, Args} = op(I#b_set.op, I#b_set.args, N1, L),
                                   {{Dst, Op, Args, L}, {N1, L}}
                               end, {Ns0, Line0}, Body),
            {{Ins, last(Tail, Ns, Line)}, Ns, Line}
    end.

raises(?EXCEPTION, _, Line) -> {exception, Line};
raises(_, Is, Line) ->
    Found = [{W, line(A, Line)} || #b_set{anno = A, op = Op, args = Args} <- Is,
                                   W <- [raising(Op, Args)], W =/= false],
    case Found of
        [R | _] -> R;
        [] -> false
    end.

raising(match_fail, [#b_literal{val = Why} | _]) when is_atom(Why) -> Why;
raising(match_fail, _) -> match_fail;
raising(call, [#b_remote{mod = #b_literal{val = erlang}, name = #b_literal{val = F}} | _])
  when F =:= error; F =:= exit; F =:= throw; F =:= nif_error -> F;
raising(_, _) -> false.

%% A call whose result is returned at once is a jump.
tail(Is, Last, Blocks) ->
    case {lists:reverse(Is), Last} of
        {[#b_set{dst = R, op = call, args = [#b_local{} = To | Args], anno = A} | Before],
         #b_ret{arg = R}} ->
            {lists:reverse(Before), {tail, To, Args, A}};
        {[#b_set{dst = S, op = {succeeded, _}, args = [R]},
          #b_set{dst = R, op = call, args = [#b_local{} = To | Args], anno = A} | Before],
         #b_br{bool = S, succ = L}} ->
            case maps:get(L, Blocks) of
                #b_blk{is = [], last = #b_ret{arg = R}} ->
                    {lists:reverse(Before), {tail, To, Args, A}};
                _ -> {Is, Last}
            end;
        _ -> {Is, Last}
    end.

last({tail, #b_local{name = #b_literal{val = F}, arity = Arity}, Args, Anno}, Ns, Line) ->
    {tail, {F, Arity}, vals(Args, Ns, Line), line(Anno, Line)};
last(#b_ret{arg = A}, Ns, Line) -> {ret, val(A, Ns, Line)};
last(#b_br{succ = L, fail = L}, _, _) -> {jmp, L};
last(#b_br{bool = #b_literal{val = true}, succ = L}, _, _) -> {jmp, L};
last(#b_br{bool = #b_literal{val = false}, fail = L}, _, _) -> {jmp, L};
last(#b_br{bool = B, succ = S, fail = F}, Ns, Line) -> {br, val(B, Ns, Line), S, F};
last(#b_switch{arg = A, fail = F, list = List}, Ns, Line) ->
    {switch, val(A, Ns, Line), F, [{V, L} || {#b_literal{val = V}, L} <- List]}.

number(Var, Ns) ->
    case Ns of
        #{Var := N} -> {N, Ns};
        _ -> {map_size(Ns), Ns#{Var => map_size(Ns)}}
    end.

vals(Args, Ns, Line) -> [val(A, Ns, Line) || A <- Args].

val(#b_literal{val = V}, _, _) -> {c, V};
val(#b_var{} = V, Ns, _) when is_map_key(V, Ns) -> {v, maps:get(V, Ns)};
val(_, _, Line) -> throw({refused, Line, "a value of a kind that is not known"}).

op({bif, '-'}, [A], Ns, L) -> {{bif, neg}, [val(A, Ns, L)]};
op({bif, '+'}, [_], _, L) -> throw({refused, L, "the plus before a number is not taken"});
op({bif, Name}, Args, Ns, L) -> {{bif, Name}, vals(Args, Ns, L)};
op({float, Op}, Args, Ns, L) -> {{float, Op}, vals(Args, Ns, L)};
op({succeeded, _}, Args, Ns, L) -> {ok, vals(Args, Ns, L)};
op(phi, Args, Ns, L) -> {phi, [{val(V, Ns, L), From} || {V, From} <- Args]};
op(call, [#b_remote{mod = #b_literal{val = M}, name = #b_literal{val = F}} | Args], Ns, L) ->
    case lists:member({M, F, length(Args)}, known_calls()) of
        true when M =:= erlang -> {{bif, F}, vals(Args, Ns, L)};
        true when M =:= lists -> {{lists, F}, vals(Args, Ns, L)};
        true -> {{math, F}, vals(Args, Ns, L)};
        false -> throw({refused, L, io_lib:format("calls ~tp:~tp/~b, which is not native",
                                                  [M, F, length(Args)])})
    end;
op(call, [#b_local{name = #b_literal{val = F}, arity = A} | Args], Ns, L) ->
    {{call, {F, A}}, vals(Args, Ns, L)};
op(call, _, _, L) -> throw({refused, L, "calls a fun"});
op(bs_start_match, [_, V], Ns, L) -> {bs_start, [val(V, Ns, L)]};
op(bs_match, [#b_literal{val = Type}, C | Args], Ns, L) ->
    bs_match(Type, val(C, Ns, L), Args, Ns, L);
op(bs_ensure, [C, #b_literal{val = S}, #b_literal{val = U}], Ns, L) when is_integer(S) ->
    {{bs_ensure, S, U}, [val(C, Ns, L)]};
op(bs_extract, Args, Ns, L) -> {bs_extract, vals(Args, Ns, L)};
op(bs_get_tail, Args, Ns, L) -> {bs_get_tail, vals(Args, Ns, L)};
op(bs_test_tail, [C, #b_literal{val = N}], Ns, L) when is_integer(N) ->
    {{bs_test_tail, N}, [val(C, Ns, L)]};
op(bs_init_writable, [_], _, _) -> {bs_empty, []};
op(bs_create_bin, Args, Ns, L) ->
    {Segments, Vals} = lists:unzip(segments(Args, Ns, L)),
    {{bs_create, Segments}, lists:append(Vals)};
op(Op, Args, Ns, L) when Op =:= put_tuple; Op =:= put_list; Op =:= get_hd; Op =:= get_tl;
                         Op =:= is_nonempty_list; Op =:= get_tuple_element;
                         Op =:= is_tagged_tuple ->
    {Op, vals(Args, Ns, L)};
op(Op, _, _, L) ->
    throw({refused, L, io_lib:format("the operation ~tp is not native", [Op])}).

%% Flags are a list, sizes count units, `all' is what is left.
bs_match(string, C, [#b_literal{val = Bits}], _, _) when is_binary(Bits) ->
    {{bs_string, Bits}, [C]};
bs_match(skip, C, [#b_literal{val = Type} | Args], Ns, L) -> bs_match(Type, C, Args, Ns, L);
bs_match(utf8, C, _, _, _) -> {bs_utf8, [C]};
bs_match(Type, C, [#b_literal{val = Flags}, Size, #b_literal{val = Unit}], Ns, L)
  when is_list(Flags), is_integer(Unit),
       (Type =:= integer orelse Type =:= float orelse Type =:= binary) ->
    case lists:member(native, Flags) of
        true -> throw({refused, L, "native byte order is not taken"});
        false ->
            {{bs_match, Type, lists:member(signed, Flags), lists:member(little, Flags), Unit},
             [C, val(Size, Ns, L)]}
    end;
bs_match(Type, _, _, _, L) ->
    throw({refused, L, io_lib:format("matching ~tp in a binary is not native", [Type])}).

%% What is put into a binary: kind, flags (the unit first), value, size.
segments([#b_literal{val = Type}, #b_literal{val = [Unit | Flags]}, V, Size | Rest], Ns, L)
  when is_atom(Type), is_integer(Unit) ->
    lists:member(native, Flags) andalso throw({refused, L, "native byte order is not taken"}),
    [{{Type, Unit, lists:member(little, Flags)}, [val(V, Ns, L), val(Size, Ns, L)]}
     | segments(Rest, Ns, L)];
segments([], _, _) -> [];
segments(_, _, L) -> throw({refused, L, "a binary is built in a way that is not known"}).

known_calls() ->
    [{erlang, F, 2} || F <- [min, max]]
        ++ [{erlang, setelement, 3}, {lists, reverse, 1}, {lists, reverse, 2}]
        ++ [{math, F, 1} || F <- [sqrt, sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, exp,
                                  log, log2, log10, floor, ceil]]
        ++ [{math, F, 2} || F <- [pow, atan2, fmod]].
