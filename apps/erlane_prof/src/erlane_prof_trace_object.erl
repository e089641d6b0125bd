%% SPDX-License-Identifier: Apache-2.0
%% @doc The object code of modules that run, and what it tells of their calls. Runs on the node
%% that is looked at, with erlane_prof_trace.
%%
%% To ask the VM where a call returns to, for the sake of tail calls, more than doubles what the
%% call costs with the native tracer. A function needs it not if every call of it comes from a frame
%% that stays: then it returns to what is innermost. That is so if the function is not exported,
%% is no fun, and nothing but itself ends in a call of it.
-module(erlane_prof_trace_object).

-export([source/1, code/1, called_from_top/1]).

-define(CODE_BYTES, 4000000).
%% What is looked into before a trace begins, and how long that may take: without it the trace is
%% the same, and costs more.
-define(MODULES, 20).
-define(READ_BYTES, 200000).
-define(READ_MS, 3000).
-define(READ_WORDS, 8000000).

%% @doc The name of a module's source; none if it is not loaded.
-spec source(module()) -> binary().
source(Module) ->
    case erlang:module_loaded(Module) of
        true -> erlane_prof_session:file(Module);
        false -> <<>>
    end.

%% @doc The object code of what runs, without its documentation and the like. That on disk may be
%% newer, or not there.
-spec code(module()) -> binary() | none.
code(Module) ->
    case code:get_object_code(Module) of
        {Module, Beam, _} when byte_size(Beam) =< ?CODE_BYTES ->
            case beam_lib:md5(Beam) of
                {ok, {Module, Md5}} ->
                    try Module:module_info(md5) of
                        Md5 -> stripped(Beam);
                        _ -> none
                    catch
                        error:undef -> none
                    end;
                _ -> none
            end;
        _ -> none
    end.

stripped(Beam) ->
    case beam_lib:strip(Beam) of
        {ok, {_, Short}} -> Short;
        _ -> none
    end.

%% @doc The functions that return to what is innermost, of modules all of which is traced; each
%% with the others that call it, for processes whose innermost function is not known yet.
-spec called_from_top([erlane_prof_session:pattern()]) -> [{mfa(), Callers :: [mfa()]}].
called_from_top(Patterns) ->
    case lists:usort([M || {M, '_', '_'} <- Patterns]) of
        Modules when length(Modules) =< ?MODULES, Modules =/= ['_'] -> asked(Modules);
        _ -> []
    end.

%% It is only for speed: whatever goes wrong there, and if the node has no compiler, is no loss.
asked(Modules) ->
    Self = self(),
    Read = fun() -> Self ! {self(), lists:append([read(code(M), M) || M <- Modules])} end,
    {Pid, Ref} = spawn_opt(Read, [monitor, {max_heap_size, #{size => ?READ_WORDS, kill => true,
                                                             error_logger => false}}]),
    receive
        {Pid, Found} ->
            demonitor(Ref, [flush]),
            Found;
        {'DOWN', Ref, process, Pid, _} ->
            []
    after ?READ_MS ->
        exit(Pid, kill),
        receive {'DOWN', Ref, process, Pid, _} -> ok end,
        receive {Pid, _} -> []
        after 0 -> []
        end
    end.

read(Beam, Module) when is_binary(Beam), byte_size(Beam) =< ?READ_BYTES ->
    try beam_disasm:file(Beam) of
        {beam_file, Module, _, _, _, Functions} ->
            All = [{{Module, F, A}, Code} || {function, F, A, _, Code} <- Functions],
            Exported = [{Module, F, A} || {F, A} <- Module:module_info(exports)],
            Others = lists:append([others(Mfa, Code) || {Mfa, Code} <- All]),
            Top = [Mfa || {Mfa, _} <- All] -- (Exported ++ lists:usort(Others)),
            Calls = lists:usort([{Called, Mfa} || {Mfa, Code} <- All, {call, _, Called} <- Code,
                                                  Called =/= Mfa]),
            [{Mfa, [Caller || {Called, Caller} <- Calls, Called =:= Mfa]} || Mfa <- Top];
        _ -> []
    catch
        error:_ -> []
    end;
read(_, _) ->
    [].

%% What a function ends in a call of, but for itself, and what it makes a fun of.
others(Own, Code) ->
    [Mfa || Op <- Code, Mfa <- [other(Op)], Mfa =/= none, Mfa =/= Own orelse is_fun(Op)].

other({call_only, _, Mfa}) -> Mfa;
other({call_last, _, Mfa, _}) -> Mfa;
other(Op) ->
    case is_fun(Op) of
        true -> element(2, Op);
        false -> none
    end.

is_fun(Op) ->
    is_tuple(Op) andalso (element(1, Op) =:= make_fun3 orelse element(1, Op) =:= make_fun2).
