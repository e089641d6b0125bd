%% SPDX-License-Identifier: Apache-2.0
%% The programs of `erlane bench native-erllvm': native and BEAM say the same of what they are
%% measured with, also when they give way at each turn and go back to BEAM at some of them.
-module(erlane_bench_native_SUITE).

-export([all/0, init_per_suite/1, end_per_suite/1]).
-export([native/1, forced/1]).

-include_lib("stdlib/include/assert.hrl").

all() -> [native, forced].

init_per_suite(Config) -> erlane_native_ct:init_suite(Config).

end_per_suite(_) -> erlane_native_ct:end_suite().

native(Config) -> same(native, Config).

forced(Config) -> same({both, 7}, Config).

same(How, Config) ->
    Programs = erlane_bench_native_args:kernels("native-erllvm"),
    Modules = lists:usort([M || {_, M, _, _, _} <- Programs]),
    Natives = maps:from_list([{M, built(M, How, Config)} || M <- Modules]),
    Refused = [{N, Why} || {N, M, Args, _, _} <- Programs,
                           Why <- [erlane_native_ct:why_not(maps:get(M, Natives),
                                                            list_to_atom(N), length(Args))],
                           Why =/= none],
    ct:pal("~b of ~b programs are not native:~n~p", [length(Refused), length(Programs), Refused]),
    %% Otherwise BEAM was compared with BEAM.
    ?assert(length(Refused) < length(Programs)),
    ?assertEqual([], [N || {N, M, Args, _, _} <- Programs,
                           erlane_native_ct:differs(M, maps:get(M, Natives), list_to_atom(N),
                                                    Args) =/= false]),
    lists:foreach(fun erlane_native_ct:forget/1, maps:values(Natives)).

built(Module, How, Config) ->
    Name = list_to_atom(atom_to_list(Module) ++ "_set"),
    ok = erlane_native_ct:native(Name, erlane_native_ct:source(Module),
                                 proplists:get_value(priv_dir, Config), How, []),
    Name.
