%% SPDX-License-Identifier: Apache-2.0
%% @doc VMs of the harness that are nodes. All nodes of a run are known to an epmd of the run, and
%% everything is on loopback.
%%
%% Such a VM obeys lines on standard input, each a term and a full stop, and answers each with one
%% line: `result TERM', where `{failed, Text}' tells of an exception. It stops when standard input
%% ends.
-module(erlane_bench_vm).

-export([epmd/1, start/3, node_name/2, cookie/0, ask/3, commands/2]).

-export_type([epmd/0]).

-type epmd() :: #{program := erlane_bench_os:program(), port := inet:port_number()}.

-define(START_MS, 30000).
-define(LOOPBACK, "127.0.0.1").
-define(FLAGS, ["+S", "1", "+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none",
                "+P", "1048576", "-noshell", "-boot", "no_dot_erlang", "-connect_all", "false",
                "-kernel", "inet_dist_use_interface", "{127,0,0,1}"]).

%% @doc Starts the epmd of a run.
-spec epmd(erlane_bench_contestant:config()) -> epmd().
epmd(#{load_core := Core}) ->
    Erts = "erts-" ++ erlang:system_info(version),
    Own = filename:join([code:root_dir(), Erts, "bin", "epmd"]),
    Exe = case {filelib:is_regular(Own), erlane_bench_os:find("epmd")} of
              {true, _} -> Own;
              {false, {ok, Found}} -> Found;
              {false, error} -> erlane_cli:fail("epmd is not installed", [])
          end,
    Port = erlane_bench_os:free_port(),
    Program = erlane_bench_os:start(Exe, ["-address", ?LOOPBACK, "-port", integer_to_list(Port)],
                                    Core),
    case erlane_bench_os:await_port(Port, ?START_MS) of
        ok -> #{program => Program, port => Port};
        timeout -> erlane_cli:fail("epmd does not start", [])
    end.

%% @doc Starts a VM on a core, or some, with one scheduler and no busy wait unless the arguments,
%% which come after those flags, say otherwise. What belongs to the user's environment does not
%% reach it, erlane_bench_os sees to that.
-spec start(Args :: [string()], non_neg_integer() | [non_neg_integer()], epmd()) ->
          erlane_bench_os:program().
start(Args, Cores, #{port := Port}) ->
    {ok, Env} = erlane_bench_os:find("env"),
    Erl = filename:join([code:root_dir(), "bin", "erl"]),
    erlane_bench_os:start(Env, ["ERL_EPMD_PORT=" ++ integer_to_list(Port),
                                "ERL_EPMD_ADDRESS=" ?LOOPBACK, Erl | ?FLAGS ++ Args], Cores).

%% @doc The name of a node of this run.
-spec node_name(Name :: string(), non_neg_integer()) -> string().
node_name(Name, I) ->
    lists:flatten(io_lib:format("erlane_bench_~s_~s_~b@" ?LOOPBACK, [os:getpid(), Name, I])).

%% @doc A cookie that nobody else knows.
-spec cookie() -> string().
cookie() ->
    [$a + rand:uniform(26) - 1 || _ <- lists:seq(1, 20)].

%% @doc Sends a command to a VM and gives its result.
-spec ask(erlane_bench_os:program(), term(), Ms :: pos_integer()) ->
          {ok, term()} | {error, binary()}.
ask(Program, Command, Ms) ->
    case erlane_bench_os:ask(Program, io_lib:format("~0p.", [Command]), <<"result ">>, Ms) of
        {ok, Text} ->
            {ok, Tokens, _} = erl_scan:string(unicode:characters_to_list([Text, $.])),
            case erl_parse:parse_term(Tokens) of
                {ok, {failed, Why}} -> {error, unicode:characters_to_binary(Why)};
                {ok, Result} -> {ok, Result}
            end;
        Error ->
            Error
    end.

%% @doc Within such a VM: obeys until standard input ends. A function gives the result of a command
%% and the next state.
-spec commands(fun((Command :: term(), State) -> {Result :: term(), State}), State) -> no_return().
commands(Obey, State) ->
    case io:get_line("") of
        Line when is_list(Line) ->
            {ok, Tokens, _} = erl_scan:string(Line),
            {ok, Command} = erl_parse:parse_term(Tokens),
            commands(Obey, try
                               {Result, Next} = Obey(Command, State),
                               io:format("result ~0p~n", [Result]),
                               Next
                           catch
                               Class:Reason ->
                                   Why = io_lib:format("~0P", [{Class, Reason}, 20]),
                                   io:format("result ~0p~n", [{failed, lists:flatten(Why)}]),
                                   State
                           end);
        _End ->
            erlang:halt(0)
    end.
