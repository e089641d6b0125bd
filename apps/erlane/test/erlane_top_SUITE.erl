%% SPDX-License-Identifier: Apache-2.0
%% `erlane top' without a terminal: the lines of the screen, keys, text and JSON of a real node.
-module(erlane_top_SUITE).

-include_lib("proper/include/proper.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, init_per_testcase/2, end_per_testcase/2]).
-export([never_larger/1, processes_fill/1, chosen_is_seen/1, figures/1, colours/1, keys/1,
         keys_do/1, json_of_anything/1]).
-export([once/1, json/1, count_and_order/1, wrong_use/1, unreachable/1]).

all() ->
    [never_larger, processes_fill, chosen_is_seen, figures, colours, keys, keys_do,
     json_of_anything, once, json, count_and_order, wrong_use, unreachable].

init_per_testcase(Case, Config) ->
    case lists:member(Case, [once, json, count_and_order, unreachable]) of
        true -> [{node, real_top_node:start()} | Config];
        false -> Config
    end.

end_per_testcase(_Case, Config) ->
    [real_top_node:stop(Node) || {node, Node} <- Config],
    ok.

%%% The screen

%% Whatever there is to be shown, and on any terminal: no line too many, no column, and nothing
%% but printable ASCII.
never_larger(_Config) ->
    Property =
        ?FORALL({View, Mode, Size}, {view(), mode(), size()},
                begin
                    Lines = erlane_top_screen:lines(screen(View, Mode), Size),
                    fits(Lines, Size)
                end),
    true = proper:quickcheck(Property, [{numtests, 500}, {to_file, user}]).

fits(Lines, {Width, Height}) ->
    length(Lines) =< Height andalso
        lists:all(fun(Line) ->
                          Text = lists:append([T || {_, T} <- Line]),
                          length(Text) =< Width andalso
                              lists:all(fun(C) -> C >= $\s andalso C < 127 end, Text)
                  end, Lines).

%% The list takes the lines that are left, all of them.
processes_fill(_Config) ->
    [begin
         View = (sample_view(Schedulers, 2, 1))#{procs := procs(200)},
         Lines = erlane_top_screen:lines(screen(View, list), Size),
         ?assertEqual({Size, Height}, {Size, length(Lines)}),
         Shown = [L || L <- Lines, is_process(L)],
         ?assert(length(Shown) >= 3, {Size, Shown})
     end || Schedulers <- [1, 2, 8, 64, 256],
            {_, Height} = Size <- [{80, 24}, {200, 50}, {40, 12}, {300, 100}]].

is_process([{_, " <0." ++ _} | _]) -> true;
is_process(_) -> false.

%% Down to the last one.
chosen_is_seen(_Config) ->
    View = (sample_view(2, 2, 0))#{procs := procs(100)},
    [begin
         Lines = erlane_top_screen:lines((screen(View, list))#{selected => N}, {80, 24}),
         ?assertMatch([_], [L || [{selected, _} | _] = L <- Lines])
     end || N <- lists:seq(0, 99)].

%% Figures keep to their columns, and are right.
figures(_Config) ->
    ["0", "9999", "10.0k", "99.9k", "100k", "999k", "1.0M", "12.3G"] =
        [erlane_top_text:count(N) || N <- [0, 9999, 10000, 99940, 100000, 999000, 999600,
                                           12.3e9]],
    ["0", "1023", "1.0K", "1.5M", "100K"] =
        [erlane_top_text:bytes(N) || N <- [0, 1023, 1024, 1572864, 102400]],
    ["0.0%", "12.3%", "100%", "250%", "-"] =
        [erlane_top_text:percent(N) || N <- [0, 0.123, 0.9999, 2.5, undefined]],
    ["00:00:59", "1d 00:00:01"] = [erlane_top_text:span(N) || N <- [59999, 86401000]],
    [?assert(length(erlane_top_text:count(N)) =< 5, N)
     || E <- lists:seq(0, 18), N <- [round(math:pow(10, E)) - 1, round(math:pow(10, E))]],
    "ab+" = erlane_top_text:left("abcd", 3),
    "  ab" = erlane_top_text:right("ab", 4),
    "a??b" = erlane_top_text:plain([$a, 8364, 27, $b]).

%% Without colours there is reverse video alone.
colours(_Config) ->
    Lines = erlane_top_screen:lines(screen(sample_view(2, 2, 1), list), {80, 24}),
    Codes = fun(Colours) ->
                    Text = unicode:characters_to_list(erlane_top_text:ansi(Lines, Colours)),
                    {match, Found} = re:run(Text, "\e\\[([0-9;]*)m",
                                            [global, {capture, all_but_first, list}]),
                    lists:usort(lists:append(Found))
            end,
    ["0", "7"] = Codes(false),
    true = length(Codes(true)) > 4.

%%% Keys

%% However a terminal cuts them up.
keys(_Config) ->
    Bytes = <<"q\e[A\e[Bj\eOC\e[5~\e[1;5D\r\e[H x\e">>,
    Keys = [$q, up, down, $j, page_up, enter, home, $\s, $x, escape],
    {Keys, <<>>} = erlane_term:keys(Bytes),
    [begin
         <<First:N/binary, Second/binary>> = Bytes,
         {Some, Rest} = erlane_term:keys(First),
         {More, <<>>} = erlane_term:keys(<<Rest/binary, Second/binary>>),
         %% An escape that is the last byte is a key of its own.
         ?assertEqual({N, Keys}, {N, Some ++ More})
     end || N <- lists:seq(1, byte_size(Bytes) - 1), binary:at(Bytes, N - 1) =/= $\e],
    {_, _} = erlane_term:keys(binary:copy(<<"\e[1;">>, 1000)).

%% What each does to the screen, and what it asks for.
keys_do(_Config) ->
    Screen = (screen(sample_view(2, 2, 1), list))#{page => 10, paused => false, scroll => 0},
    Press = fun(Keys) ->
                    lists:foldl(fun(Key, {S, _}) -> erlane_top:key(Key, S) end, {Screen, []}, Keys)
            end,
    {_, [quit]} = Press([$q]),
    {#{paused := true}, []} = Press([$p]),
    {#{paused := false}, [sample]} = Press([$\s, $\s]),
    {#{sort := mailbox, selected := 0}, [sample]} = Press([down, $b]),
    {#{sort := reds}, _} = Press([$s, $s, $s]),
    {#{selected := 2}, []} = Press([down, $j, down, up]),
    {#{selected := 4}, []} = Press(['end', down, page_down]),
    {#{selected := 0}, []} = Press([down, home, up]),
    #{procs := [_, #{pid := Second} | _]} = maps:get(view, Screen),
    {#{mode := {details, _}}, [{process, Second}]} = Press([down, enter]),
    {#{mode := list}, []} = Press([enter, down, escape]),
    {#{mode := help}, []} = Press([$h]),
    {#{mode := list}, []} = Press([$h, $h]),
    {#{interval := 2000}, []} = Press([$+]),
    {#{interval := 500}, [sample]} = Press([$-]),
    {#{interval := 100}, _} = Press(lists:duplicate(20, $-)),
    {Screen, []} = Press([$x]),
    {#{view := undefined}, []} = erlane_top:key(enter, Screen#{view := undefined}).

%%% Text and JSON

%% Any name of a process is a string of JSON.
json_of_anything(_Config) ->
    [#{name := Name} = Proc | _] = procs(1),
    true = is_binary(Name),
    Odd = <<"\"\\ ", 0, 31, 127, 8364/utf8, 128512/utf8>>,
    View = (sample_view(2, 2, 1))#{procs := [Proc#{name := Odd}]},
    #{} = parsed(erlane_top_json:encode(View)).

%% A screen of text: lanes with traffic, the busy process, no control characters.
once(Config) ->
    Text = done(["top", "--once" | args(Config)]),
    nomatch = re:run(Text, "[^\\n -~]"),
    ?assertMatch({match, _}, re:run(Text, "^ LANE .*WAITS/s", [multiline])),
    ?assertMatch({match, _}, re:run(Text, "real_top_busy")),
    ?assertMatch({match, _}, re:run(Text, "OTP " ++ erlang:system_info(otp_release))).

%% What python makes of it: figures of the lanes fit the traffic of the node.
json(Config) ->
    View = parsed(done(["top", "--json", "--once" | args(Config)])),
    #{"lanes" := [_ | _] = Lanes, "schedulers" := [_ | _], "memory" := #{"total" := Total},
      "procs" := [_ | _], "node" := Node} = View,
    Sum = fun(Key) -> lists:sum([maps:get(Key, Lane) || Lane <- Lanes]) end,
    %% A listener and two ends; a thousand bytes each way, some hundred times a second.
    ?assertEqual(3, Sum("sockets")),
    ?assert(Sum("in_s") > 10000, Lanes),
    ?assert(Sum("waits_s") > 10, Lanes),
    ?assert(Total > 1000000),
    {_, Expected} = proplists:get_value(node, Config),
    ?assertEqual(atom_to_list(Expected), Node).

%% So many lines, and the order that was asked for.
count_and_order(Config) ->
    Text = done(["top", "--json", "--count", "2", "--interval", "0.2", "--sort", "mailbox"
                 | args(Config)]),
    [One, Two] = string:lexemes(Text, "\n"),
    [#{"procs" := [#{"name" := "real_top_full", "mq" := 4321} | _]} = parsed(Line)
     || Line <- [One, Two]].

%% Exit status 2, and the word that is wrong.
wrong_use(_Config) ->
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), ["top" | Args]),
         ?assertEqual({Args, 2}, {Args, Status}),
         ?assertNotEqual(nomatch, string:find(hd(string:split(Output, "\n")), Word), Output)
     end || {Args, Word} <- [{[], "--node"}, {["--node"], "needs a value"},
                             {["--node", "a", "--sort", "age"], "reds, memory, mailbox"},
                             {["--node", "a", "--interval", "0"], "from 0.1"},
                             {["--node", "a", "--interval", "fast"], "seconds"},
                             {["--node", "a", "--count", "0"], "at least 1"}]].

%% Exit status 1 and one line.
unreachable(Config) ->
    {_, Node} = proplists:get_value(node, Config),
    [Name, Host] = string:split(atom_to_list(Node), "@"),
    [begin
         {Status, Output} = real_os:run(real_os:erlane(), ["top", "--once" | Args]),
         ?assertEqual({Args, 1}, {Args, Status}),
         ?assertMatch([_, <<>>], binary:split(Output, <<"\n">>), Output),
         ?assertNotEqual(nomatch, string:find(Output, Word), Output)
     end || {Args, Word} <- [{["--node", Name, "--cookie", "wrong"], "cookie"},
                             {["--node", "real_top_nobody@" ++ Host], Name},
                             {["--node", "a@no-such-host.invalid"], "no-such-host"}]].

%%% Helpers

args(Config) ->
    real_top_node:args(proplists:get_value(node, Config)).

done(Args) ->
    {0, Output} = real_os:run(real_os:erlane(), Args),
    Output.

%% By another reader than one of ours: python's; and then as a term.
parsed(Json) ->
    File = filename:join(".", "erlane_top.json"),
    ok = file:write_file(File, Json),
    Python = "import json,sys\n"
        "def t(v):\n"
        "  if isinstance(v,dict): return '#{'+','.join(t(k)+'=>'+t(x) for k,x in v.items())+'}'\n"
        "  if isinstance(v,list): return '['+','.join(map(t,v))+']'\n"
        "  if isinstance(v,str): return '['+','.join(str(ord(c)) for c in v)+']'\n"
        "  if v is None: return 'null'\n"
        "  return str(v).lower()\n"
        "print(t(json.load(open(sys.argv[1])))+'.')\n",
    {0, Term} = real_os:run(real_os:need("python3", "python3"), ["-c", Python, File]),
    {ok, Tokens, _} = erl_scan:string(binary_to_list(Term)),
    {ok, [Expr]} = erl_parse:parse_exprs(Tokens),
    {value, Value, _} = erl_eval:expr(Expr, []),
    Value.

screen(View, Mode) ->
    #{node => 'demo@host', view => View, sort => reds, interval => 1000, mode => Mode,
      selected => 0, message => ""}.

%% A real view, with so many of everything.
sample_view(Schedulers, Lanes, Nodes) ->
    Lane = #{waits => 5, events => 9, empty_turns => 1, wakes => 1, recv_bytes => 100,
             send_bytes => 100, moved => 0, sockets => 3},
    Sample = maps:merge(erlane_prof_probe:sample(#{procs => 5}),
                        #{schedulers => [#{id => I, online => true, runq => I rem 3, active => 0,
                                           total => 1, util => I / Schedulers}
                                         || I <- lists:seq(1, Schedulers)],
                          lanes => [Lane#{lane => I} || I <- lists:seq(1, Lanes)],
                          dist => [#{node => list_to_atom("node@host" ++ integer_to_list(I)),
                                     in => I * 1000, out => I, queue => 0}
                                   || I <- lists:seq(1, Nodes)]}),
    erlane_prof:view(Sample, Sample#{at_ms := maps:get(at_ms, Sample) + 1000}).

procs(N) ->
    [#{pid => self(), id => iolist_to_binary(io_lib:format("<0.~b.0>", [I])),
       name => <<"some_server">>, reds => I, reds_s => I, memory => I, mq => I,
       status => waiting, current => <<"gen_server:loop/7">>} || I <- lists:seq(1, N)].

view() ->
    frequency(
      [{1, undefined},
       {9, ?LET({S, L, D, P, Odd}, {range(1, 300), range(0, 80), range(0, 20), range(0, 120),
                                    odd_proc()},
                (sample_view(S, L, D))#{procs := [Odd || P > 3] ++ procs(P),
                                        procs_late := P rem 2 =:= 0, counts_late := P > 60})}]).

odd_proc() ->
    ?LET({Name, Number}, {utf8(), oneof([undefined, integer(0, 1 bsl 64)])},
         #{pid => self(), id => <<"<0.1234567.89>">>, name => Name, reds => 0,
           reds_s => Number, memory => Number, mq => Number, status => no_answer,
           current => Name}).

mode() ->
    oneof([list, help, {details, "asking..."},
           {details, #{id => <<"<0.1.0>">>, name => <<"n", 8364/utf8>>, initial => <<"a:b/1">>,
                       status => waiting, priority => normal, trap_exit => true, mq => 1,
                       memory => 1 bsl 50, heap_words => 1, stack_words => 1, reds => 1,
                       dictionary => 1, group_leader => <<"<0.1.0>">>,
                       links => #{count => 60, some => lists:duplicate(50, <<"<0.100.0>">>)},
                       monitors => #{count => 0, some => []},
                       monitored_by => #{count => 1, some => [<<"<0.2.0>">>]},
                       stack => lists:duplicate(40, <<"gen_server:loop/7 gen_server.erl:1">>)}}]).

size() -> {range(20, 300), range(5, 100)}.
