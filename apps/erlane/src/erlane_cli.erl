%% SPDX-License-Identifier: Apache-2.0
%% @doc The `erlane' command: picks the subcommand, turns its outcome into an exit status.
%%
%% Exit status: 0 done, 1 failed while running, 2 wrong use of the command line.
-module(erlane_cli).

-export([start/0, main/1]).
-export([usage_error/2, fail/2]).

%% @doc Entry of bin/erlane: runs {@link main/1} with what follows `-extra'.
-spec start() -> ok.
start() ->
    %% Not in the process of init, which has to answer other calls meanwhile.
    _ = spawn(?MODULE, main, [init:get_plain_arguments()]),
    ok.

%% @doc Runs one command and ends the VM with its exit status.
-spec main([string()]) -> no_return().
main(Args) ->
    log_to_stderr(),
    Status = try
                 command(Args)
             catch
                 throw:{exit_status, N} ->
                     N;
                 Class:Reason:Stack ->
                     stderr("erlane: ~ts~n",
                            [erl_error:format_exception(Class, Reason, Stack)]),
                     1
             end,
    erlang:halt(Status).

command(["proxy" | Args]) -> erlane_cli_proxy:run(Args);
command(["serve" | Args]) -> erlane_cli_serve:run(Args);
command(["demo" | Args]) -> erlane_cli_demo:run(Args);
command(["top" | Args]) -> erlane_cli_top:run(Args);
command(["profile" | Args]) -> erlane_cli_profile:run(Args);
command(["dist" | Args]) -> erlane_cli_dist:run(Args);
command(["native" | Args]) -> erlane_cli_native:run(Args);
command(["bench" | Args]) -> erlane_bench:main(Args), 0;
command(["help"]) -> io:put_chars(help()), 0;
command(["help", "proxy"]) -> io:put_chars(erlane_cli_proxy:help()), 0;
command(["help", "serve"]) -> io:put_chars(erlane_cli_serve:help()), 0;
command(["help", "demo"]) -> io:put_chars(erlane_cli_demo:help()), 0;
command(["help", "top"]) -> io:put_chars(erlane_cli_top:help()), 0;
command(["help", "profile"]) -> io:put_chars(erlane_cli_profile:help()), 0;
command(["help", "dist"]) -> io:put_chars(erlane_cli_dist:help()), 0;
command(["help", "native"]) -> io:put_chars(erlane_cli_native:help()), 0;
command(["help", "bench"]) -> command(["bench", "--help"]);
command(["help", Other | _]) -> unknown(Other);
command([Help]) when Help =:= "--help"; Help =:= "-h" -> command(["help"]);
command(["version"]) -> version();
command(["--version"]) -> version();
command([]) -> io:put_chars(standard_error, help()), 2;
command([Other | _]) -> unknown(Other).

unknown(Command) ->
    stderr("erlane: there is no command ~ts~n~n~ts", [Command, help()]),
    2.

version() ->
    ok = application:load(erlane),
    {ok, Version} = application:get_key(erlane, vsn),
    io:format("erlane ~ts (OTP ~ts, ~b schedulers)~n",
              [Version, erlang:system_info(otp_release), erlang:system_info(schedulers)]),
    0.

help() ->
    "usage: erlane COMMAND [OPTION]...\n"
    "\n"
    "  proxy     relay TCP connections from one address to another\n"
    "  serve     a directory, or a hello, over HTTP\n"
    "  demo      an HTTP upstream, the proxy before it and a short load; stays up\n"
    "  top       look into a running node: schedulers, lanes, processes\n"
    "  profile   what a running node does: a table, a flame graph, a file for kcachegrind\n"
    "  dist      connections between nodes: what is set in a way that costs, and mend it\n"
    "  native    functions as machine code: what is taken, and why not; code made in the build\n"
    "  bench     measure erlane against what else there is\n"
    "  help      this text, or that of a command: erlane help proxy\n"
    "  version   version of erlane and of the VM\n".

%% @doc Wrong use of the command line: one line, the command's usage, exit status 2.
-spec usage_error(Message :: iodata(), Usage :: iodata()) -> no_return().
usage_error(Message, Usage) ->
    stderr("erlane: ~ts~n~n~ts", [Message, Usage]),
    throw({exit_status, 2}).

%% @doc A failure at run time: one line, exit status 1.
-spec fail(io:format(), [term()]) -> no_return().
fail(Format, Args) ->
    stderr("erlane: " ++ Format ++ "~n", Args),
    throw({exit_status, 1}).

stderr(Format, Args) ->
    io:format(standard_error, Format, Args).

%% Figures go to standard output, so log lines must not; and one event is one line.
log_to_stderr() ->
    Format = {logger_formatter, #{single_line => true,
                                  template => [time, " ", level, " ", msg, "\n"]}},
    ok = load_formatter(Format),
    _ = logger:remove_handler(default),
    ok = logger:add_handler(default, logger_std_h,
                            #{config => #{type => standard_error},
                              filter_default => log,
                              filters => [{sasl, {fun logger_filters:domain/2,
                                                  {stop, sub, [otp, sasl]}}}],
                              formatter => Format}).

%% Formats an event for nobody. A module that is first needed when no descriptor is left
%% cannot be loaded, and that is when a log line counts.
load_formatter({Formatter, Config}) ->
    Event = #{level => error, meta => #{time => logger:timestamp()},
              msg => {"~ts ~0tp ~b", [inet:format_error(emfile), #{"a" => {[1.0], <<"b">>}}, 1]}},
    _ = unicode:characters_to_binary(Formatter:format(Event, Config)),
    ok.
