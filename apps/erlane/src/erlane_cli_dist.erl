%% SPDX-License-Identifier: Apache-2.0
%% @doc `erlane dist': what is set of a node's distribution in a way that costs, and mends it.
-module(erlane_cli_dist).

-export([run/1, help/0]).

-define(FOUND, 3).

%% @doc The text of `erlane help dist'.
-spec help() -> iodata().
help() ->
    "usage: erlane dist check --node NODE [OPTION]...\n"
    "       erlane dist tune --node NODE [OPTION]...\n"
    "       erlane dist untune --node NODE --from FILE [OPTION]...\n"
    "       erlane dist lines [--json]\n"
    "\n"
    "The connections of a running Erlang node to other nodes: check says what is set in a way\n"
    "that costs, and why; tune sets what can be set now, of present and future connections;\n"
    "untune puts it back; lines are what a node is started with to need none of it. The node\n"
    "needs nothing of erlane. NODE is NAME@HOST, or NAME for this host.\n"
    "\n"
    "  --node NODE       the node (default: ERLANE_NODE of the environment)\n"
    "  --cookie COOKIE   its cookie, which other users of this machine can see in ps (default:\n"
    "                    ERLANE_COOKIE, or that of ~/.erlang.cookie)\n"
    "  --dry-run         tune: says what would change\n"
    "  --keep FILE       tune: writes there what untune needs\n"
    "  --from FILE       untune: what a tune kept, of the same run of the node\n"
    "  --json            one line of JSON\n"
    "\n"
    "The exit status is 0; of check 3 if it found something; 1 if the node cannot be reached, or\n"
    "something could not be set.\n".

options(check) -> node_options();
options(tune) -> (node_options())#{"--dry-run" => {dry_run, flag}, "--keep" => {keep, text}};
options(untune) -> (node_options())#{"--from" => {from, text}};
options(lines) -> common().

node_options() -> maps:merge(common(), erlane_cli_node:options()).

common() -> #{"--json" => {json, flag}, "--help" => {help, flag}}.

%% @doc Runs the command; the result is the exit status.
-spec run([string()]) -> non_neg_integer().
run([Help | _]) when Help =:= "--help"; Help =:= "-h" ->
    io:put_chars(help()),
    0;
run([Word | Args]) ->
    case [Command || Command <- [check, tune, untune, lines], atom_to_list(Command) =:= Word] of
        [Command] ->
            case erlane_cli_options:parse(Args, options(Command)) of
                {ok, #{help := true}} -> run(["--help"]);
                {ok, Given} -> run(Command, Given);
                {error, Why} -> wrong([Word, ": ", Why])
            end;
        [] ->
            wrong([Word, " is none of check, tune, untune, lines"])
    end;
run([]) ->
    wrong("check, tune, untune or lines is required").

-spec wrong(iodata()) -> no_return().
wrong(Why) ->
    erlane_cli:usage_error(["dist ", Why], help()).

run(lines, Given) ->
    lines(erlane_dist:boot_lines(), Given),
    0;
run(untune, Given) when not is_map_key(from, Given) ->
    wrong("untune: --from FILE is required");
run(Command, Given) ->
    %% What is in the file is of no use without a node, and the other way round: first the file.
    Changes = [kept(File) || #{from := File} <- [Given]],
    Node = connect(Given),
    case Command of
        check -> check(erlane_dist:check(Node), Given);
        tune -> tune(erlane_dist:tune(Node, maps:with([dry_run], Given)), Given);
        untune -> changed(erlane_dist:untune(Node, hd(Changes)), Given)
    end.

%%% The node

connect(Given) ->
    Node = case erlane_cli_node:node(Given) of
               {ok, Name} -> Name;
               {error, Why} -> wrong(Why)
           end,
    %% What the VM says about connections would be among the lines.
    ok = logger:set_primary_config(level, none),
    case erlane_prof:connect(Node, erlane_cli_node:way(Given)) of
        ok -> Node;
        {error, Reason} -> erlane_cli:fail("dist: ~ts", [erlane_prof:format_error(Reason)])
    end.

-spec failed(term()) -> no_return().
failed({gone, Node, Reason}) ->
    erlane_cli:fail("dist: ~ts does not answer any more: ~0tp", [Node, Reason]);
failed(restarted) ->
    erlane_cli:fail("dist: the node was restarted since: what was set is gone", []);
failed({bad_option, changes}) ->
    erlane_cli:fail("dist: that file has no changes of a tune", []);
failed(Reason) ->
    erlane_cli:fail("dist: ~0tp", [Reason]).

%%% What was changed, in a file

keep(File, Changes) ->
    case file:write_file(File, term_to_binary({erlane_dist, 1, Changes})) of
        ok -> ok;
        {error, Reason} ->
            erlane_cli:fail("dist: ~ts: ~ts; undo will not be possible",
                            [File, file:format_error(Reason)])
    end.

kept(File) ->
    case file:read_file(File) of
        {ok, Bytes} ->
            try
                {erlane_dist, 1, Changes} = binary_to_term(Bytes),
                Changes
            catch
                error:_ -> erlane_cli:fail("dist: ~ts was not written by tune --keep", [File])
            end;
        {error, Reason} ->
            erlane_cli:fail("dist: ~ts: ~ts", [File, file:format_error(Reason)])
    end.

%%% What is said

check({error, Reason}, _) ->
    failed(Reason);
check({ok, Findings}, #{json := true}) ->
    json(Findings),
    status(Findings);
check({ok, []}, _) ->
    io:put_chars("well set\n"),
    0;
check({ok, Findings}, _) ->
    table(["WHERE", "SETTING", "IS", "WANT", "HOW"],
          [[where(F), word(Key), word(Is), word(Want), how(Fix, Line)]
           || #{key := Key, is := Is, want := Want, fix := Fix, line := Line} = F <- Findings]),
    [io:format("~n~ts: ~ts~n", [Key, Why])
     || {Key, Why} <- lists:usort([{Key, Why} || #{key := Key, why := Why} <- Findings])],
    status(Findings).

status([]) -> 0;
status(_) -> ?FOUND.

how(boot, Line) -> ["start the node with ", Line];
how(now, "erlane_dist:tune()") -> "erlane dist tune";
how(now, Line) -> Line.

%% Kept first: what was changed can then be undone, whatever happens to standard output.
tune({ok, Changes} = Answer, #{keep := File} = Given) ->
    keep(File, Changes),
    changed(Answer, Given);
tune(Answer, Given) ->
    changed(Answer, Given).

changed({error, Reason}, _) ->
    failed(Reason);
changed({ok, Changes}, Given) ->
    case Given of
        #{json := true} -> json([maps:without([kept, connection], C) || C <- Changes]);
        _ when Changes =:= [] -> io:put_chars("nothing to change\n");
        _ -> table(["WHERE", "SETTING", "WAS", "NOW", "RESULT"],
                   [[where(C), word(Key), word(Was), word(Now), word(Result)]
                    || #{key := Key, was := Was, now := Now, result := Result} = C <- Changes])
    end,
    case [error || #{result := {error, _}} <- Changes] of
        [] -> 0;
        _ -> 1
    end.

lines(#{vm_args := VmArgs, sys_config := SysConfig}, #{json := true}) ->
    json(#{vm_args => unicode:characters_to_binary(VmArgs),
           sys_config => unicode:characters_to_binary(SysConfig)});
lines(#{vm_args := VmArgs, sys_config := SysConfig}, _) ->
    io:put_chars(["## vm.args\n", VmArgs, "\n%% sys.config\n", SysConfig]).

where(#{where := new, side := connect}) -> "new, connecting";
where(#{where := new, side := accept}) -> "new, accepted";
where(#{where := Where}) -> atom_to_list(Where).

word(undefined) -> "-";
word({error, Reason}) -> io_lib:format("~0tp", [Reason]);
word(Atom) when is_atom(Atom) -> atom_to_list(Atom);
word(Term) -> io_lib:format("~0tp", [Term]).

%% Columns as wide as they need; the last one is as long as it is.
table(Heads, Rows) ->
    Texts = [[lists:flatten(Cell) || Cell <- Row] || Row <- [Heads | Rows]],
    Widths = [lists:max([string:length(lists:nth(N, Row)) || Row <- Texts])
              || N <- lists:seq(1, length(Heads))],
    [io:put_chars([string:trim(lists:join("  ", [string:pad(Cell, Width)
                                                 || {Cell, Width} <- lists:zip(Row, Widths)]),
                               trailing), $\n])
     || Row <- Texts],
    ok.

json(Value) ->
    io:put_chars([erlane_top_json:encode(plain(Value)), $\n]).

plain(List) when is_list(List) -> [plain(Item) || Item <- List];
plain(Map) when is_map(Map) -> maps:map(fun(Key, Value) -> plain(Key, Value) end, Map).

plain(Key, Text) when Key =:= line; Key =:= why -> unicode:characters_to_binary(Text);
plain(_, {error, Reason}) -> iolist_to_binary(io_lib:format("~0tp", [Reason]));
plain(_, Value) when is_atom(Value); is_integer(Value); is_binary(Value) -> Value;
plain(_, Value) -> unicode:characters_to_binary(io_lib:format("~0tp", [Value])).
