%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane native': what becomes of a file's or a module's functions as machine code.
-module(erlane_cli_native).

-export([run/1, help/0]).

%% @doc The text of `erlane help native'.
-spec help() -> iodata().
help() ->
    "usage: erlane native explain FILE|MODULE\n"
    "       erlane native survey APPLICATION|DIRECTORY [--reasons]\n"
    "       erlane native build EBIN_DIRECTORY [--out DIRECTORY]\n"
    "       erlane native ir|asm FILE|MODULE\n"
    "       erlane native info MODULE --node NODE [--cookie COOKIE]\n"
    "\n"
    "Machine code for chosen functions, see docs/guide/native.md.\n"
    "\n"
    "  explain   each function and line: native, boxed, calls the API, where it hands back, or\n"
    "            why it stays on BEAM and what would change that, as file:line:column: message;\n"
    "            FILE is a source or object file. Without -native in it, of all that would pay\n"
    "  survey    what erlane_native:load/1 would take of each module, stdlib for example;\n"
    "            --reasons has each function that stays, with line and reason\n"
    "  build     makes the machine code of compiled modules now, into priv/native beside their\n"
    "            directory, where it is found on hosts that have no clang\n"
    "  ir, asm   the LLVM text, or the assembler text, of all native functions\n"
    "  info      what a module does in a running node: state, yields, hand-backs by reason\n"
    "\n"
    "The exit status is 0; 1 if it cannot be done; of build 1 if a module's code was not made.\n".

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run([Help | _]) when Help =:= "--help"; Help =:= "-h" ->
    io:put_chars(help()),
    0;
run([Word | Args]) ->
    case [C || C <- [explain, survey, build, ir, asm, info], atom_to_list(C) =:= Word] of
        [Command] ->
            case erlane_cli_options:parse(Args, options(Command)) of
                {ok, #{help := true}} -> run(["--help"]);
                {ok, #{what := What} = Given} -> run(Command, What, Given);
                {ok, _} -> wrong([Word, ": ", argument(Command), " is required"]);
                {error, Why} -> wrong([Word, ": ", Why])
            end;
        [] -> wrong([Word, " is none of explain, survey, build, ir, asm, info"])
    end;
run([]) ->
    wrong("explain, survey, build, ir, asm or info is required").

options(survey) -> (common())#{"--reasons" => {reasons, flag}};
options(build) -> (common())#{"--out" => {out, text}};
options(info) -> maps:merge(common(), erlane_cli_node:options());
options(_) -> common().

common() -> #{argument => {what, text}, "--help" => {help, flag}}.

argument(survey) -> "an application or a directory";
argument(build) -> "a directory";
argument(info) -> "a module";
argument(_) -> "a file or a module".

-spec wrong(iodata()) -> no_return().
wrong(Why) ->
    erlane_cli:usage_error(["native ", Why], help()).

-spec fail(iodata()) -> no_return().
fail(Why) ->
    erlane_cli:fail("native: ~ts", [Why]).

run(explain, What, _) ->
    case erlane_native:explain(thing(What)) of
        {ok, #{functions := []}} ->
            io:format("~ts: nothing in it would gain by machine code~n", [What]),
            0;
        {ok, Explanation} ->
            io:put_chars(erlane_native_explain:format(Explanation)),
            0;
        {error, Why} -> fail(Why)
    end;
run(survey, What, Given) ->
    Of = case filelib:is_dir(What) of
             true -> What;
             false -> list_to_atom(What)
         end,
    try erlane_native:survey(Of) of
        Table -> survey(Table, maps:is_key(reasons, Given))
    catch
        error:badarg -> fail([What, " is neither an application nor a directory"])
    end;
run(build, Ebin, Given) ->
    case case Given of
             #{out := Out} -> erlane_native:build(Ebin, Out);
             _ -> erlane_native:build(Ebin)
         end of
        {ok, Modules} -> lists:max([0 | [built(M, Did) || {M, Did} <- Modules]]);
        {error, Why} -> fail(Why)
    end;
run(info, Module, Given) ->
    Node = connect(Given),
    case rpc:call(Node, erlane_native, info, [list_to_atom(Module)], 10000) of
        {ok, Info} -> io:put_chars(info(Module, Info)), 0;
        {error, not_native} -> fail([Module, " is not native there"]);
        {badrpc, Why} -> fail(io_lib:format("~ts does not answer: ~0tP", [Node, Why, 8]))
    end;
run(Form, What, _) ->
    case text(Form, thing(What)) of
        {ok, Text} -> io:put_chars(Text), 0;
        {error, Why} -> fail(Why)
    end.

%% What looks like a file or is one is one.
thing(Text) ->
    case filelib:is_regular(Text) orelse lists:member(filename:extension(Text), [".erl", ".beam"])
             orelse lists:member($/, Text) of
        true -> Text;
        false -> list_to_atom(Text)
    end.

text(Form, Thing) ->
    case {Form, erlane_native_explain:text(Thing)} of
        {ir, Answer} -> Answer;
        {asm, {ok, Text}} -> erlane_native_clang:assembler(Text);
        {asm, Error} -> Error
    end.

built(Module, {made, File}) -> io:format("~tp: ~ts~n", [Module, File]), 0;
built(Module, {there, File}) -> io:format("~tp: ~ts (was there)~n", [Module, File]), 0;
built(Module, {error, Why}) ->
    io:format(standard_error, "erlane: native: ~tp: ~ts~n", [Module, Why]),
    1.

%%% Tables

survey(Table, Reasons) ->
    io:format("~-28ts ~6ts ~6ts~n", ["module", "taken", "stay"]),
    Taken = lists:sum([one(Module, Result, Reasons) || {Module, Result} <- Table]),
    io:format("~b of ~b modules, ~b functions~n",
              [length([M || {M, {ok, #{taken := [_ | _]}}} <- Table]), length(Table), Taken]),
    0.

one(Module, {error, Why}, _) ->
    io:format("~-28ts ~6ts ~6ts  ~ts~n", [atom_to_list(Module), "-", "-", Why]),
    0;
one(Module, {ok, #{taken := Taken, refused := Refused}}, Reasons) ->
    io:format("~-28ts ~6b ~6b  ~ts~n",
              [atom_to_list(Module), length(Taken), length(Refused),
               lists:join(" ", [name(FA) || FA <- Taken])]),
    _ = [io:format("    ~b: ~ts: ~ts~n", [Line, name(FA), Why])
         || Reasons, {FA, Line, Why} <- lists:keysort(2, Refused)],
    length(Taken).

name({F, A}) -> io_lib:format("~tp/~b", [F, A]).

info(Module, #{state := State, functions := Functions, yields := Yields,
               deopts := Deopts} = Info) ->
    [io_lib:format("~ts: ~ts; gave way ~b times~n", [Module, state(State), Yields]),
     ["native: ", lists:join(" ", [name(FA) || FA <- Functions]), $\n],
     [io_lib:format("put back to BEAM: ~ts: ~ts~n", [name(FA), Why])
      || {FA, Why} <- maps:get(off, Info)],
     [io_lib:format("measured: ~ts: ~b calls, ~.3f s~n", [name(FA), N, Ns / 1.0e9])
      || {FA, N, Ns} <- maps:get(measured, Info)],
     [io_lib:format("differs from BEAM: ~ts, ~b calls~n", [name(FA), N])
      || {FA, N} <- maps:get(differences, Info)],
     [io_lib:format("handed back ~b times: ~ts, line ~b: ~ts~n", [N, name(FA), Line, Why])
      || {FA, Line, Why, N} <- lists:reverse(lists:keysort(4, Deopts))]].

state(native) -> "runs as machine code";
state(pending) -> "is being compiled";
state(none) -> "was not called yet";
state({beam, Why}) -> ["runs on BEAM: ", Why].

connect(Given) ->
    Node = case erlane_cli_node:node(Given) of
               {ok, Name} -> Name;
               {error, Why} -> wrong(["info: ", Why])
           end,
    %% What the VM says about connections would be among the lines.
    ok = logger:set_primary_config(level, none),
    case erlane_prof:connect(Node, erlane_cli_node:way(Given)) of
        ok -> Node;
        {error, Reason} -> fail(erlane_prof:format_error(Reason))
    end.
