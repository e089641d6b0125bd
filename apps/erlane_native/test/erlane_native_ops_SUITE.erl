%% SPDX-License-Identifier: Apache-2.0
%% Every operation by itself, at the edges of its operands: native and BEAM say the same. A case
%% is a table of erlane_native_ops.
-module(erlane_native_ops_SUITE).

-export([suite/0, all/0, groups/0, init_per_suite/1, end_per_suite/1, init_per_group/2,
         end_per_group/2]).
-export([int_plain/1, int_small/1, int_word/1, int_wrapped/1, int_wide/1, int_carried/1,
         int_constant/1, int_unary/1, int_rounded/1, literals/1, rest_compare/1, int_compare/1,
         float_plain/1, float_guarded/1, float_compare/1, mixed/1, conversions/1, types/1,
         read_int/1, read_bits/1, read_float/1, read_utf/1, build_int/1, build_float/1,
         build_utf/1]).

-include_lib("stdlib/include/assert.hrl").
-include_lib("common_test/include/ct.hrl").

suite() -> [{timetrap, {minutes, 5}}].

all() -> [{group, native}, {group, forced}].

%% Forced: at each turn it gives way, or, at each fifth, goes back to BEAM. A loop has three rounds,
%% so some calls are native to their end, and the others leave at each of the turns.
groups() ->
    Tables = erlane_native_ops:tables(),
    Fewer = Tables -- [int_constant, int_wrapped, int_wide, int_small, int_rounded, literals],
    [{native, [], Tables}, {forced, [], Fewer}].

init_per_suite(Config) ->
    Dir = filename:join(?config(priv_dir, Config), "beams"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    case erlane_native_ct:init_suite(Config) of
        {skip, _} = Skip -> Skip;
        Inited -> [{dir, Dir} | Inited]
    end.

end_per_suite(_) -> erlane_native_ct:end_suite().

init_per_group(Group, Config) -> [{group, Group} | Config].

end_per_group(_, _) -> ok.

int_plain(Config) -> table(int_plain, Config).
int_small(Config) -> table(int_small, Config).
int_word(Config) -> table(int_word, Config).
int_wrapped(Config) -> table(int_wrapped, Config).
int_wide(Config) -> table(int_wide, Config).
int_carried(Config) -> table(int_carried, Config).
int_constant(Config) -> table(int_constant, Config).
int_unary(Config) -> table(int_unary, Config).
int_rounded(Config) -> table(int_rounded, Config).
literals(Config) -> table(literals, Config).
rest_compare(Config) -> table(rest_compare, Config).
int_compare(Config) -> table(int_compare, Config).
float_plain(Config) -> table(float_plain, Config).
float_guarded(Config) -> table(float_guarded, Config).
float_compare(Config) -> table(float_compare, Config).
mixed(Config) -> table(mixed, Config).
conversions(Config) -> table(conversions, Config).
types(Config) -> table(types, Config).
read_int(Config) -> table(read_int, Config).
read_bits(Config) -> table(read_bits, Config).
read_float(Config) -> table(read_float, Config).
read_utf(Config) -> table(read_utf, Config).
build_int(Config) -> table(build_int, Config).
build_float(Config) -> table(build_float, Config).
build_utf(Config) -> table(build_utf, Config).

%% Fails with the functions that differ, the text of each, and the first arguments that show it.
table(Name, Config) ->
    {Text, Calls} = erlane_native_ops:table(Name),
    Group = ?config(group, Config),
    Dir = ?config(dir, Config),
    Plain = list_to_atom(lists:concat([Name, "_plain"])),
    Native = list_to_atom(lists:concat([Name, "_", Group])),
    Forms = erlane_native_ct:forms(Text),
    {How, Options} = case Group of
                         native -> {native, []};
                         %% Enough for what stays BEAM; in half the time.
                         forced -> {{both, 5}, [no_ssa_opt]}
                     end,
    ok = erlane_native_ct:plain(Plain, Forms, Dir, Options),
    ok = erlane_native_ct:native(Native, Forms, Dir, How, Options),
    Differ = [{F, Found} || {F, Args} <- Calls,
                            Found <- first(Plain, Native, F, some(Group, Args))],
    [ct:pal("~ts~n~p", [erlane_native_ct:text_of(F, Text), Found]) || {F, Found} <- Differ],
    Refused = [Why || {F, [Args | _]} <- Calls,
                      Why <- [erlane_native_ct:why_not(Native, F, length(Args))], Why =/= none],
    ct:pal("~b of ~b functions are not native:~n~p",
           [length(Refused), length(Calls), lists:usort(Refused)]),
    %% Otherwise BEAM was compared with BEAM.
    ?assert(length(Refused) < length(Calls) orelse lists:member(Name, not_yet())),
    ok = erlane_native_ct:forget(Plain),
    ok = erlane_native_ct:forget(Native),
    ?assertEqual([], [F || {F, _} <- Differ]).

%% All of them once; in the other groups a part.
some(native, ArgLists) -> ArgLists;
some(_, ArgLists) when length(ArgLists) < 500 -> ArgLists;
some(_, ArgLists) -> [Args || {I, Args} <- lists:zip(lists:seq(1, length(ArgLists)), ArgLists),
                              I rem 11 =:= 0].

first(Plain, Native, F, ArgLists) ->
    lists:sublist([{Args, Both} || Args <- ArgLists,
                                   Both <- [erlane_native_ct:differs(Plain, Native, F, Args)],
                                   Both =/= false], 1).

%% Of these tables no function need be native.
not_yet() -> [read_float, build_utf].
