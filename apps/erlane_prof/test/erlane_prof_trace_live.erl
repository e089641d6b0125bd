%% SPDX-License-Identifier: Apache-2.0
%% What suites share that trace a running node, this one or another: groups are named here_native,
%% there_port and so on, and the suite exports busy/1.
-module(erlane_prof_trace_live).

-import(erlane_prof_ct, [agents/2, call/4, until/1]).

-include_lib("stdlib/include/assert.hrl").

-export([init_group/3, end_group/0, init_case/4]).
-export([run/1, running/2, caller/1, caller/2, answer/1, noted/2, off/0, clean/1, stop/1,
         names/1]).

-define(WAIT_MS, 60000).
-define(EVENTS, 1000000).

%% @doc Traces of this group go through what its name says.
-spec init_group(module(), Group :: atom(), Config :: list()) -> list().
init_group(Suite, Group, Config) ->
    Tracer = case lists:suffix("native", atom_to_list(Group)) of
                 true -> native;
                 false -> port
             end,
    persistent_term:put(?MODULE, {Suite, Tracer}),
    [{tracer, Tracer}, {there, lists:prefix("there", atom_to_list(Group))} | Config].

-spec end_group() -> ok.
end_group() ->
    persistent_term:erase(?MODULE),
    ok.

%% @doc For a group `there', another node: it finds the suite, and of erlane nothing but what the
%% native tracer needs. What is left in its directory for temporary files is seen. A shell starts
%% it; `Before' comes before `erl', and `Options' after it.
-spec init_case(Cookie :: atom(), {Before :: string(), Options :: string()}, Case :: atom(),
                Config :: list()) -> list().
init_case(Cookie, {Before, Options}, Case, Config) ->
    case proplists:get_value(there, Config) of
        true ->
            {Suite, Tracer} = persistent_term:get(?MODULE),
            Dir = filename:join([proplists:get_value(priv_dir, Config), Tracer, Case]),
            ok = filelib:ensure_path(Dir),
            Sh = os:find_executable("sh"),
            Line = Before ++ "erl " ++ Options ++ " \"$@\"",
            Peers = erlane_prof_ct:connected(
                      Cookie, #{exec => {Sh, ["-c", Line, "erl"]},
                                env => [{"TMPDIR", Dir}, {"ERL_LIBS", ""}]}),
            Own = [filename:dirname(code:which(erlane_prof_tracer)) || Tracer =:= native],
            ok = call(Peers, code, add_pathsa, [[filename:dirname(code:which(Suite)) | Own]]),
            {module, Suite} = call(Peers, code, load_file, [Suite]),
            [{dir, Dir}, {call_ms, ?WAIT_MS} | Peers] ++ Config;
        false ->
            Config
    end.

%% @doc A trace of the suite, if nothing else is said.
-spec run(map()) -> {ok, erlane_prof_profile:profile()} | {error, erlane_prof:error()}.
run(Options) ->
    {Suite, Tracer} = persistent_term:get(?MODULE),
    erlane_prof:run(maps:merge(#{mode => trace, for => 500, events => ?EVENTS, tracer => Tracer,
                                 functions => [Suite]}, Options)).

%% @doc Does something when the trace is on, and ends it.
-spec running(fun(() -> term()), map()) ->
          {ok, erlane_prof_profile:profile()} | {error, erlane_prof:error()}.
running(Fun, Options) ->
    Told = maps:get(progress, Options, fun(_) -> continue end),
    Progress = fun(Now) ->
                       _ = Told(Now),
                       case put(prof_trace_done, true) of
                           true -> continue;
                           undefined -> _ = Fun(), stop
                       end
               end,
    _ = erase(prof_trace_done),
    run(Options#{for => 60000, progress => Progress}).

-spec caller(Config :: list()) -> pid().
caller(Config) ->
    caller(Config, #{}).

%% @doc A process that follows what is called on the peer, which has begun.
-spec caller(Config :: list(), map()) -> pid().
caller(Config, Options) ->
    Node = proplists:get_value(node, Config),
    Self = self(),
    Caller = spawn(fun() ->
                           Progress = fun(_) -> Self ! {running, self()}, continue end,
                           Answer = run(maps:merge(#{node => Node, for => 60000,
                                                     progress => Progress}, Options)),
                           receive {tell, To} -> To ! {self(), Answer} end
                   end),
    receive {running, Caller} -> ok after ?WAIT_MS -> ct:fail(not_running) end,
    Caller.

%% @doc What it got; it was told to tell.
-spec answer(pid()) -> term().
answer(Caller) ->
    receive {Caller, Answer} -> Answer
    after ?WAIT_MS -> ct:fail(no_answer)
    end.

%% @doc Is this in a note of the profile?
-spec noted(string(), erlane_prof_profile:profile()) -> boolean().
noted(Words, #{notes := Notes}) ->
    lists:any(fun(Note) -> string:find(Note, Words) =/= nomatch end, Notes).

%% @doc Nothing is traced here.
-spec off() -> ok.
off() ->
    {Suite, _} = persistent_term:get(?MODULE),
    ?assertEqual({traced, false}, erlang:trace_info({Suite, busy, 1}, traced)),
    ?assertEqual({flags, []}, erlang:trace_info(self(), flags)),
    ?assertEqual({flags, []}, erlang:trace_info(new_processes, flags)),
    ?assertEqual({flags, []}, erlang:trace_info(new_ports, flags)),
    [?assertMatch({_, {flags, []}}, {Port, erlang:trace_info(Port, flags)})
     || Port <- erlang:ports()],
    ?assertNot(erlane_prof_session:others()),
    ok.

%% @doc On the other node there is no module, process, port, file, flag or breakpoint of ours.
-spec clean(Config :: list()) -> term().
clean(Config) ->
    {Suite, _} = persistent_term:get(?MODULE),
    until(fun() ->
                  [] = [Module || {Module, _} <- call(Config, code, all_loaded, []),
                                  lists:prefix("erlane", atom_to_list(Module)),
                                  Module =/= Suite, Module =/= erlane_prof_tracer],
                  [] = agents(Config, ""),
                  [] = [Port || Port <- call(Config, erlang, ports, []),
                                {name, "trace_file_drv" ++ _}
                                    <- [call(Config, erlang, port_info, [Port, name])]],
                  {ok, []} = call(Config, file, list_dir, [proplists:get_value(dir, Config)]),
                  [{flags, []} = call(Config, erlang, trace_info, [What, flags])
                   || What <- [new_processes, new_ports | call(Config, erlang, ports, [])]],
                  false = call(Config, erlang, function_exported, [trace, session_info, 1])
                      andalso call(Config, trace, session_info, [all]) =/= [{legacy, default}],
                  {traced, false} = call(Config, erlang, trace_info,
                                         [{Suite, busy, 1}, traced]),
                  {traced, false} = call(Config, erlang, trace_info,
                                         [{lists, map, 2}, traced]),
                  Kernel = call(Config, erlang, whereis, [kernel_sup]),
                  {flags, []} = call(Config, erlang, trace_info, [Kernel, flags])
          end).

-spec stop(pid()) -> ok.
stop(Pid) ->
    unlink(Pid),
    Ref = monitor(process, Pid),
    exit(Pid, kill),
    receive {'DOWN', Ref, process, Pid, _} -> ok end.

%% @doc The names of the functions of a stack.
-spec names([erlane_prof_profile:frame()]) -> [atom() | binary()].
names(Stack) ->
    [case Frame of
         {_, F, _, _, _} -> F;
         _ -> Frame
     end || Frame <- Stack].
