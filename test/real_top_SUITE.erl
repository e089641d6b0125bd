%% SPDX-License-Identifier: Apache-2.0
%% `erlane top' in a real terminal, that of tmux: what is seen, keys, and how the terminal is left.
-module(real_top_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([small_screen/1, large_screen/1, keys/1, details_of_a_process/1, resized/1,
         terminal_is_restored/1, sigterm/1, ctrl_c/1, killed/1, node_goes_and_comes/1,
         no_colour/1]).

all() ->
    [small_screen, large_screen, keys, details_of_a_process, resized, terminal_is_restored,
     sigterm, ctrl_c, killed, node_goes_and_comes, no_colour].

init_per_testcase(Case, Config) ->
    Tmux = real_os:need("tmux", "tmux"),
    %% The path of a socket is short; Common Test's directory is not.
    Dir = string:trim(os:cmd("mktemp -d")),
    Terminal = #{tmux => Tmux, dir => Dir, socket => filename:join(Dir, "tmux")},
    Node = real_top_node:start(),
    Size = case Case of
               large_screen -> {200, 50};
               _ -> {80, 24}
           end,
    ok = open(Terminal, Size, real_top_node:args(Node), case Case of
                                                            no_colour -> "NO_COLOR=1";
                                                            _ -> ""
                                                        end),
    [{terminal, Terminal}, {node, Node} | Config].

end_per_testcase(_Case, Config) ->
    #{dir := Dir} = Terminal = terminal(Config),
    _ = tmux(Terminal, ["kill-server"]),
    _ = (catch real_top_node:stop(proplists:get_value(node, Config))),
    ok = file:del_dir_r(Dir).

%% 80x24: the node, a bar for each scheduler, the lanes, the busy process, the keys.
small_screen(Config) ->
    seen(Config, ["erlane top", "OTP", "CPU +[0-9]", "LANE +WAITS/s", "REDS/s", "real_top_busy",
                  "q quit"]),
    bars(Config, erlang:system_info(schedulers)),
    ?assertEqual(24, length(screen(Config))).

%% 200x50: more columns, and more processes.
large_screen(Config) ->
    seen(Config, ["LANE .* EAGAIN/s", "real_top_busy", "ports in", "interval", "load"]),
    bars(Config, erlang:system_info(schedulers)),
    Lines = screen(Config),
    ?assertEqual(50, length(Lines)),
    ?assert(length([L || L <- Lines, re:run(L, "^ <0\\.") =/= nomatch]) > 20, Lines).

%% Order, pause, help.
keys(Config) ->
    seen(Config, ["real_top_busy"]),
    press(Config, "b"),
    first(Config, "real_top_full .* 4321 "),
    press(Config, "p"),
    seen(Config, ["PAUSED"]),
    press(Config, "h"),
    seen(Config, ["sort by memory"]),
    press(Config, "Escape"),
    seen(Config, ["real_top_full"]),
    press(Config, "Space"),
    seen(Config, ["each 1 s"]),
    press(Config, "r"),
    seen(Config, ["real_top_busy"]),
    press(Config, "+"),
    seen(Config, ["each 2 s"]).

%% By keys of the terminal's own: an arrow down and up again, enter.
details_of_a_process(Config) ->
    press(Config, "b"),
    first(Config, "real_top_full"),
    press(Config, "Down"),
    press(Config, "Up"),
    press(Config, "Enter"),
    seen(Config, ["4321 messages", "^ *real_top_node:"]),
    press(Config, "Escape"),
    seen(Config, ["REDS/s"]).

%% A terminal that is made larger is used.
resized(Config) ->
    seen(Config, ["q quit"]),
    {0, _} = tmux(terminal(Config), ["resize-window", "-x", "120", "-y", "40"]),
    seen(Config, ["RELAYS"]),
    real_os:until(fun() -> 40 = length(screen(Config)) end).

%% q: exit status 0, every setting of the terminal as before, the old screen is there again.
terminal_is_restored(Config) ->
    seen(Config, ["q quit"]),
    ?assertNotEqual(settings(Config, "before"), now_settings(Config)),
    press(Config, "q"),
    ended(0, Config).

%% SIGTERM to the command.
sigterm(Config) ->
    seen(Config, ["q quit"]),
    "" = os:cmd("kill -TERM " ++ integer_to_list(command(Config))),
    ended(0, Config).

%% Ctrl-C at the keyboard.
ctrl_c(Config) ->
    seen(Config, ["q quit"]),
    press(Config, "C-c"),
    ended(0, Config).

%% A VM that is killed leaves a terminal in order, too.
killed(Config) ->
    seen(Config, ["q quit"]),
    Command = integer_to_list(command(Config)),
    {ok, Children} = file:read_file("/proc/" ++ Command ++ "/task/" ++ Command ++ "/children"),
    [Vm] = string:lexemes(binary_to_list(Children), " "),
    "" = os:cmd("kill -KILL " ++ Vm),
    ended(137, Config).

%% The node ends: what was seen stays, with a line that says so, and goes on when it is back.
node_goes_and_comes(Config) ->
    seen(Config, ["real_top_busy", "q quit"]),
    {_, Node} = Old = proplists:get_value(node, Config),
    real_top_node:stop(Old),
    seen(Config, ["trying again", "real_top_busy"]),
    [Name, _] = string:split(atom_to_list(Node), "@"),
    New = real_top_node:start(list_to_atom(Name)),
    seen(Config, ["q quit", "real_top_busy", "up 00:00:"]),
    real_top_node:stop(New).

%% NO_COLOR: reverse video and nothing else.
no_colour(Config) ->
    seen(Config, ["q quit"]),
    {0, Text} = tmux(terminal(Config), ["capture-pane", "-p", "-e"]),
    {match, Found} = re:run(Text, "\e\\[([0-9;]*)m", [global, {capture, all_but_first, list}]),
    ?assertEqual([], lists:usort(lists:append(Found)) -- ["", "0", "7", "27", "39", "49"]).

%%% The terminal

terminal(Config) -> proplists:get_value(terminal, Config).

%% A shell that notes the settings before and after, and the exit status.
open(#{dir := Dir} = Terminal, {Width, Height}, Args, Env) ->
    Script = filename:join(Dir, "script"),
    ok = file:write_file(Script, ["stty -a >", Dir, "/before\n",
                                  "echo the old screen\n",
                                  %% Ctrl-C is for all in the foreground; this one goes on.
                                  "trap : INT\n",
                                  Env, " ", real_os:erlane(), " top",
                                  [[" '", Arg, "'"] || Arg <- Args], "\n",
                                  "status=$?\n",
                                  "stty -a >", Dir, "/after\n",
                                  "echo $status >", Dir, "/status\n",
                                  "exec cat\n"]),
    {0, _} = tmux(Terminal, ["-f", "/dev/null", "new-session", "-d", "-x",
                             integer_to_list(Width), "-y", integer_to_list(Height),
                             "/bin/sh " ++ Script]),
    ok.

tmux(#{tmux := Tmux, socket := Socket}, Args) ->
    real_os:run(Tmux, ["-S", Socket | Args]).

press(Config, Key) ->
    {0, _} = tmux(terminal(Config), ["send-keys", Key]),
    ok.

screen(Config) ->
    {0, Text} = tmux(terminal(Config), ["capture-pane", "-p"]),
    string:split(string:trim(unicode:characters_to_list(Text), trailing, "\n"), "\n", all).

%% Waits until a line matches each of the expressions.
seen(Config, Regexes) ->
    try
        real_os:until(fun() ->
                              Lines = screen(Config),
                              [true = lists:any(fun(L) -> re:run(L, Regex) =/= nomatch end, Lines)
                               || Regex <- Regexes],
                              ok
                      end)
    catch
        error:_ -> ct:fail("not all of ~0tp in:~n~ts", [Regexes, lists:join("\n", screen(Config))])
    end.

%% The first of the processes.
first(Config, Regex) ->
    real_os:until(fun() ->
                          [First | _] = [L || L <- screen(Config),
                                              re:run(L, "^ <0\\.") =/= nomatch],
                          {match, _} = re:run(First, Regex)
                  end).

bars(Config, N) ->
    Text = lists:flatten(lists:join("\n", screen(Config))),
    {match, Bars} = re:run(Text, "^ +([0-9]+)\\[[| ]* *[0-9.]+%\\]", [global, multiline]),
    ?assertEqual(N, length(Bars), Text).

settings(Config, When) ->
    #{dir := Dir} = terminal(Config),
    {ok, Text} = file:read_file(filename:join(Dir, When)),
    true = byte_size(Text) > 0,
    Text.

now_settings(Config) ->
    {0, Tty} = tmux(terminal(Config), ["display-message", "-p", "#{pane_tty}"]),
    list_to_binary(os:cmd("stty -a <" ++ string:trim(binary_to_list(Tty)))).

%% The command's process: the child of the shell in the terminal.
command(Config) ->
    {0, Shell} = tmux(terminal(Config), ["display-message", "-p", "#{pane_pid}"]),
    Id = string:trim(binary_to_list(Shell)),
    {ok, Children} = file:read_file("/proc/" ++ Id ++ "/task/" ++ Id ++ "/children"),
    [Command] = string:lexemes(binary_to_list(Children), " "),
    list_to_integer(Command).

%% The exit status, the terminal as it was, and what was on it before.
ended(Status, Config) ->
    Text = real_os:until(fun() -> settings(Config, "status") end),
    ?assertEqual(integer_to_list(Status), string:trim(binary_to_list(Text))),
    ?assertEqual(settings(Config, "before"), settings(Config, "after")),
    seen(Config, ["^the old screen"]),
    %% The cursor is there again.
    {0, Cursor} = tmux(terminal(Config), ["display-message", "-p", "#{cursor_flag}"]),
    ?assertEqual(<<"1\n">>, Cursor).
