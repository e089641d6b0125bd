%% SPDX-License-Identifier: Apache-2.0
%% @doc Machine code ahead of time: the shared objects of all native modules of a directory are made
%% in the build, where there is a compiler, and found at load on hosts that have none.
%%
%% They are kept in `priv/native' beside `ebin', under the hash of their text and of this kind of
%% machine, so those of other modules, versions and machines do no harm there.
-module(erlane_native_ship).

-export([build/1, build/2]).

-export_type([made/0]).

-type made() :: {module(), {made | there, file:filename()} | {error, string()}}.

%% @doc Makes the objects of the native modules in `Ebin', in `priv/native' beside it.
-spec build(file:filename()) -> {ok, [made()]} | {error, string()}.
build(Ebin) ->
    build(Ebin, filename:join([filename:dirname(filename:absname(Ebin)), "priv", "native"])).

%% @doc The same, in another directory.
-spec build(file:filename(), file:filename()) -> {ok, [made()]} | {error, string()}.
build(Ebin, To) ->
    case filelib:is_dir(Ebin) of
        true ->
            Files = lists:sort(filelib:wildcard(filename:join(Ebin, "*.beam"))),
            {ok, lists:append([module(F, To) || F <- Files])};
        false -> {error, Ebin ++ " is not a directory"}
    end.

%% The modules are not loaded: who knows what they would do.
module(File, To) ->
    case companion(File) of
        {ok, Module, Text} ->
            [{Module, case erlane_native_clang:ship(Text, To) of
                          {error, Why} -> {error, lists:flatten(Why)};
                          Made -> Made
                      end}];
        none -> []
    end.

%% The companion is a literal of the module that it belongs to.
companion(File) ->
    case beam_lib:chunks(File, ["LitT"], [allow_missing_chunks]) of
        {ok, {Module, [{_, Chunk}]}} when is_binary(Chunk) ->
            case [C || {Name, C} <- literals(Chunk), is_atom(Name), is_binary(C),
                       lists:prefix(atom_to_list(Module) ++ "@native_", atom_to_list(Name))] of
                [Code | _] -> {ok, Module, text(Code)};
                [] -> none
            end;
        _ -> none
    end.

%% Its text is one of its own.
text(Code) ->
    {ok, {_, [{_, Chunk}]}} = beam_lib:chunks(Code, ["LitT"]),
    [Packed] = [T || #{text := T, units := _} <- literals(Chunk)],
    zlib:uncompress(Packed).

%% A table of terms, packed until OTP 27: a size of 0 says that it is not.
literals(<<0:32, Table/binary>>) -> terms(Table);
literals(<<_:32, Packed/binary>>) -> terms(zlib:uncompress(Packed)).

terms(<<_Count:32, Terms/binary>>) -> [binary_to_term(T) || <<N:32, T:N/binary>> <= Terms].
