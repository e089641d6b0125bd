%% SPDX-License-Identifier: Apache-2.0
%% @doc Collector of the VM as a whole: memory, garbage collection, what is used of its limits,
%% ETS. Option `tables': names of ETS tables whose size and memory are wanted.
-module(erlane_metrics_vm).
-behaviour(erlane_metrics_collector).

-export([families/1, collect/1]).

%% @private
-spec families(map()) -> [{counter | gauge, map()}].
families(Options) ->
    [{Type, Opts#{name => Name, help => Help}}
     || {Type, Name, Help, Opts} <- all(),
        not lists:member(<<"table">>, maps:get(labels, Opts, [])) orelse tables(Options) =/= []].

all() ->
    Kind = #{labels => [<<"kind">>]},
    Seconds = #{unit => <<"seconds">>, decimals => 6},
    Bytes = #{unit => <<"bytes">>},
    [{gauge, <<"erlang_vm_memory">>, <<"Memory the emulator has allocated; total is all kinds">>,
      maps:merge(Bytes, Kind)},
     {gauge, <<"erlang_vm_persistent_terms">>, <<"Persistent terms">>, #{}},
     {gauge, <<"erlang_vm_persistent_terms_memory">>, <<"Memory of persistent terms">>, Bytes},
     {gauge, <<"erlang_vm_used">>, <<"Things there are of each kind that has a limit">>, Kind},
     {gauge, <<"erlang_vm_limit">>, <<"How many things of this kind there may be">>, Kind},
     {gauge, <<"erlang_vm_ets_table_objects">>, <<"Objects in an ETS table">>,
      #{labels => [<<"table">>]}},
     {gauge, <<"erlang_vm_ets_table_memory">>, <<"Memory of an ETS table">>,
      Bytes#{labels => [<<"table">>]}},
     {counter, <<"erlang_vm_garbage_collections">>, <<"Garbage collections">>, #{}},
     {counter, <<"erlang_vm_garbage_collected">>, <<"Memory that was reclaimed">>, Bytes},
     {counter, <<"erlang_vm_context_switches">>, <<"Context switches">>, #{}},
     {counter, <<"erlang_vm_reductions">>, <<"Reductions">>, #{}},
     {counter, <<"erlang_vm_io_input">>, <<"Received through ports">>, Bytes},
     {counter, <<"erlang_vm_io_output">>, <<"Sent through ports">>, Bytes},
     {counter, <<"erlang_vm_cpu">>, <<"CPU time of the whole emulator">>, Seconds},
     {gauge, <<"erlang_vm_uptime">>, <<"Time since the emulator started">>, Seconds}].

%% @private
-spec collect(map()) -> {[{binary(), erlane_metrics_collected:values()}], map()}.
collect(Options) ->
    Word = erlang:system_info(wordsize),
    #{count := Terms, memory := TermsMemory} = persistent_term:info(),
    {Collections, Words, _} = erlang:statistics(garbage_collection),
    {Switches, _} = erlang:statistics(context_switches),
    {Reductions, _} = erlang:statistics(reductions),
    {{input, In}, {output, Out}} = erlang:statistics(io),
    {Cpu, _} = erlang:statistics(runtime),
    {Up, _} = erlang:statistics(wall_clock),
    {[{<<"erlang_vm_memory">>, [{[Kind], N} || {Kind, N} <- erlang:memory()]},
      {<<"erlang_vm_persistent_terms">>, Terms},
      {<<"erlang_vm_persistent_terms_memory">>, TermsMemory},
      {<<"erlang_vm_used">>, [{[Kind], used(Kind)} || Kind <- limited()]},
      {<<"erlang_vm_limit">>, [{[Kind], limit(Kind)} || Kind <- limited()]},
      {<<"erlang_vm_garbage_collections">>, Collections},
      {<<"erlang_vm_garbage_collected">>, Words * Word},
      {<<"erlang_vm_context_switches">>, Switches},
      {<<"erlang_vm_reductions">>, Reductions},
      {<<"erlang_vm_io_input">>, In},
      {<<"erlang_vm_io_output">>, Out},
      {<<"erlang_vm_cpu">>, Cpu / 1000},
      {<<"erlang_vm_uptime">>, Up / 1000}
      | tables(tables(Options), Word)], Options}.

limited() -> [processes, ports, atoms, ets_tables].

used(processes) -> erlang:system_info(process_count);
used(ports) -> erlang:system_info(port_count);
used(atoms) -> erlang:system_info(atom_count);
used(ets_tables) -> erlang:system_info(ets_count).

%% Of ETS tables the VM takes as many as there is memory for; it names the number it was told.
limit(processes) -> erlang:system_info(process_limit);
limit(ports) -> erlang:system_info(port_limit);
limit(atoms) -> erlang:system_info(atom_limit);
limit(ets_tables) -> erlang:system_info(ets_limit).

tables(Options) -> maps:get(tables, Options, []).

tables([], _) -> [];
tables(Tables, Word) ->
    [{Family, [{[Table], N * Factor} || Table <- Tables, N <- [ets:info(Table, Item)],
                                        is_integer(N)]}
     || {Family, Item, Factor} <- [{<<"erlang_vm_ets_table_objects">>, size, 1},
                                   {<<"erlang_vm_ets_table_memory">>, memory, Word}]].
