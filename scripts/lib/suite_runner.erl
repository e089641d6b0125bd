%% SPDX-License-Identifier: Apache-2.0
%% Runs one suite, or one module of properties, in the VM that scripts/run-tests started for it.
%%
%% It is an event handler of Common Test, too: a line per case goes to descriptor 3 (the
%% terminal) and to the file of results, as the case ends, so that a VM that dies has already
%% told what it did before.
-module(suite_runner).
-behaviour(gen_event).

-export([main/1]).
-export([init/1, handle_event/2, handle_call/2]).

-record(state, {results :: file:io_device(),
                terminal :: port() | undefined,
                at :: file:filename(),
                began = #{} :: #{term() => integer()},
                groups = [] :: [atom()]}).

%% Arguments: directory of the beams, module, directory of the logs, file of results, group,
%% case; the last two may be "". Ends the VM with 0; failures are in the file of results.
-spec main([string()]) -> no_return().
main([Dir, Module0, Logs, Results, Group, Case]) ->
    Module = list_to_atom(Module0),
    ok = filelib:ensure_dir(filename:join(Logs, "x")),
    Args = {Results, filename:join(Logs, "at")},
    case Module0 of
        "prop_" ++ _ -> properties(Module, Case, Args);
        _ -> suite(Dir, Module, Logs, Group, Case, Args)
    end,
    halt(0).

suite(Dir, Module, Logs, Group, Case, Args) ->
    Picked = [{group, list_to_atom(Group)} || Group =/= ""] ++
             [{testcase, list_to_atom(Case)} || Case =/= ""],
    Result = ct:run_test([{dir, Dir}, {suite, Module}, {logdir, Logs}, {auto_compile, false},
                          {abort_if_missing_suites, true},
                          {event_handler, {?MODULE, Args}} | Picked]),
    case Result of
        {Ok, Failed, {_, _}} when is_integer(Ok), is_integer(Failed) -> ok;
        Other -> {ok, S} = init(Args), line(S, "FAILED", [Module, ": ", text(Other)])
    end.

%% A case on the command line is a property here. Each property is one test.
properties(Module, Case, Args) ->
    {ok, S} = init(Args),
    {module, Module} = code:ensure_loaded(Module),
    [property(S, Module, P) || {P, 0} <- lists:sort(Module:module_info(exports)),
                               lists:prefix("prop_", atom_to_list(P)),
                               Case =:= "" orelse Case =:= atom_to_list(P)].

property(S, Module, Prop) ->
    Name = [text(Module), ":", text(Prop)],
    ok = file:write_file(S#state.at, [Name, $\n]),
    Began = now_ms(),
    Holds = try proper:quickcheck(Module:Prop(), [{numtests, 200}, nocolors])
            catch Class:Reason:Stack -> io:format("~p~n", [{Class, Reason, Stack}])
            end,
    case Holds of
        true -> line(S, "ok", [Name, ms(Began)]);
        _ -> line(S, "FAILED", [Name, ms(Began), "; see ", text(Module), ".out"])
    end.

%% gen_event

-spec init({string(), string()}) -> {ok, #state{}}.
init({Results, At}) ->
    {ok, File} = file:open(Results, [append, raw]),
    %% Run by hand there may be no descriptor 3; the file of results is enough then.
    Terminal = try open_port({fd, 3, 3}, [out, binary]) catch error:_ -> undefined end,
    {ok, #state{results = File, terminal = Terminal, at = At}}.

-spec handle_event(term(), #state{}) -> {ok, #state{}}.
handle_event({event, tc_start, _, {Suite, What}}, S) ->
    ok = file:write_file(S#state.at, io_lib:format("~p:~p~n", [Suite, What])),
    {ok, enter(What, S#state{began = (S#state.began)#{{Suite, What} => now_ms()}})};
handle_event({event, tc_done, _, {Suite, What, Result}}, S) ->
    Began = maps:get({Suite, What}, S#state.began, now_ms()),
    ok = outcome(S, Suite, What, Result, ms(Began)),
    {ok, leave(What, Result, S)};
handle_event({event, Skip, _, {_, What, _}}, S)
  when Skip =:= tc_auto_skip orelse Skip =:= tc_user_skip,
       What =:= end_per_suite orelse element(1, What) =:= end_per_group ->
    {ok, S};
handle_event({event, tc_auto_skip, _, {Suite, What, Reason}}, S) ->
    %% A case that could not run because what it needs broke has not passed.
    ok = line(S, "FAILED", [name(Suite, What, S), ": could not run: ", text(Reason)]),
    {ok, S};
handle_event({event, tc_user_skip, _, {Suite, What, Reason}}, S) ->
    ok = line(S, "skipped", [name(Suite, What, S), ": ", text(Reason)]),
    {ok, S};
handle_event(_, S) ->
    {ok, S}.

-spec handle_call(term(), #state{}) -> {ok, ok, #state{}}.
handle_call(_, S) ->
    {ok, ok, S}.

%% The set-up of suites and groups is told only when it breaks.
outcome(S, Suite, What, ok, Ms) ->
    case is_case(What) of
        true -> line(S, "ok", [name(Suite, What, S), Ms]);
        false -> ok
    end;
outcome(S, Suite, What, {skipped, Reason}, Ms) ->
    case {Reason, is_case(What)} of
        {{failed, Why}, _} ->
            line(S, "FAILED", [name(Suite, What, S), Ms, ": ", text(Why)]);
        %% The cases of a skipped group follow with a tc_user_skip each.
        {_, false} -> ok;
        {_, true} -> line(S, "skipped", [name(Suite, What, S), ": ", text(Reason)])
    end;
outcome(S, Suite, What, {_Failed, Reason}, Ms) ->
    line(S, "FAILED", [name(Suite, What, S), Ms, ": ", text(Reason)]).

is_case(What) ->
    is_atom(What) andalso What =/= init_per_suite andalso What =/= end_per_suite.

enter({init_per_group, Group, _}, S) -> S#state{groups = [Group | S#state.groups]};
enter(_, S) -> S.

%% A group whose set-up did not succeed gets no end_per_group event.
leave({end_per_group, Group, _}, _, S) -> S#state{groups = lists:delete(Group, S#state.groups)};
leave({init_per_group, _, _}, ok, S) -> S;
leave({init_per_group, Group, _}, _, S) -> S#state{groups = lists:delete(Group, S#state.groups)};
leave(_, _, S) -> S.

name(Suite, {Config, Group, _}, _) -> [text(Suite), ":", text(Config), "/", text(Group)];
name(Suite, {Case, Group}, _) -> [text(Suite), ":", text(Group), "/", text(Case)];
name(Suite, Case, S) ->
    [text(Suite), ":", [[text(G), "/"] || G <- lists:reverse(S#state.groups)], text(Case)].

line(S, Status, Text0) ->
    Text = unicode:characters_to_binary([text_part(T) || T <- Text0]),
    ok = file:write(S#state.results, [Status, " ", one_line(Text), $\n]),
    case S#state.terminal of
        undefined -> ok;
        Port -> true = port_command(Port, [string:pad(Status, 8), Text, $\n]), ok
    end.

text_part(A) when is_atom(A) -> atom_to_list(A);
text_part(T) -> T.

text(A) when is_atom(A) -> atom_to_list(A);
text(T) -> io_lib:format("~0tP", [T, 40]).

one_line(Text) -> string:replace(Text, "\n", " ", all).

now_ms() -> erlang:monotonic_time(millisecond).

ms(Began) -> io_lib:format(" (~b ms)", [now_ms() - Began]).
