%% SPDX-License-Identifier: Apache-2.0
%% @doc Shows what goes on until a signal comes: a line of figures, made by a callback module.
-module(erlane_cli_loop).

-export([until_signal/3, terminal/0, figures/1]).

-export_type([figures/1]).

-type figures(Info) :: #{ms := integer(), info := Info, waits := non_neg_integer(),
                         events := non_neg_integer()}.
%% `waits': calls of epoll_wait, over all lanes, and the `events' they brought.

%% On a terminal the line is rewritten each second; otherwise one comes at most this often.
-define(TERMINAL_MS, 1000).
-define(PLAIN_MS, 10000).

-callback sample(Name :: atom()) -> figures(term()).
-callback line(Before :: figures(term()), After :: figures(term())) -> unicode:chardata().

%% @doc Shows the figures of a listener until a signal comes; `Quiet' shows none.
-spec until_signal(module(), Name :: atom(), Quiet :: boolean()) -> ok.
until_signal(_Module, _Name, true) ->
    receive {signal, _} -> ok end;
until_signal(Module, Name, false) ->
    show(Module, Name, terminal(), Module:sample(Name)).

%% @doc A sample: what a listener says of itself, and what all lanes have done by then.
-spec figures(Info) -> figures(Info).
figures(Info) ->
    Lanes = erlane_socket:stats(),
    #{ms => erlang:monotonic_time(millisecond), info => Info,
      waits => lists:sum([N || #{waits := N} <- Lanes]),
      events => lists:sum([N || #{events := N} <- Lanes])}.

%% Whether anything happened between two samples: without a terminal, silence is not told.
active(#{info := Before}, #{info := After}) -> Before =/= After.

%% @doc Whether standard output is a terminal. bin/erlane knows; the VM, with -noinput, not.
-spec terminal() -> boolean().
terminal() ->
    os:getenv("ERLANE_TTY") =:= "1".

show(Module, Name, Terminal, Before) ->
    Interval = case Terminal of
                   true -> ?TERMINAL_MS;
                   false -> ?PLAIN_MS
               end,
    receive
        {signal, _} -> ok
    after Interval ->
        After = Module:sample(Name),
        case {Terminal, active(Before, After)} of
            {true, _} -> io:format("\r\e[K~ts", [Module:line(Before, After)]);
            {false, true} -> io:format("~ts~n", [Module:line(Before, After)]);
            {false, false} -> ok
        end,
        show(Module, Name, Terminal, After)
    end.
