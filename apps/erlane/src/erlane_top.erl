%% SPDX-License-Identifier: Apache-2.0
%% @doc The screen of `erlane top': keys and samples in, lines out.
%%
%% {@link key/2} decides, and is pure; the loop does. Samples come from a process of their own,
%% so that a node that does not answer leaves the keys alone.
-module(erlane_top).

-export([run/1, key/2, without_us/1]).

-export_type([screen/0, effect/0]).

-type screen() :: #{mode := list | help | {details, map() | string()}, sort := atom(),
                    interval := pos_integer(), paused := boolean(),
                    selected := non_neg_integer(), scroll := non_neg_integer(),
                    page := pos_integer(), view := erlane_prof:view() | undefined,
                    atom() => term()}.
-type effect() :: quit | sample | {process, pid()}.

-define(FIRST_MS, 500).
%% A view without an answer for so long is an old one.
-define(SILENT_MS, 3000).
-define(MAX_PROCS, 100).
-define(INTERVALS, [100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000]).

%% @doc Runs until a key or a signal ends it; the result is the exit status.
-spec run(#{node := node(), way := map(), interval := pos_integer(), sort := atom(),
            count => pos_integer()}) -> 0.
run(#{node := Node, interval := Interval, sort := Sort} = Opts) ->
    Feed = erlane_top_feed:start_link(Node, maps:get(way, Opts)),
    Port = erlane_term:open(),
    Size = erlane_term:size(),
    Screen = #{node => Node, view => undefined, mode => list, sort => Sort,
               interval => Interval, paused => false, selected => 0, scroll => 0, page => 10,
               message => "", size => Size},
    Loop = #{feed => Feed, port => Port, rest => <<>>, before => undefined, asked => false,
             left => maps:get(count, Opts, infinity), colours => erlane_term:colours(),
             next => now_ms()},
    try
        loop(draw(Screen, Loop), Loop)
    after
        erlane_term:close(Port),
        erlane_top_feed:stop(Feed)
    end.

loop(Screen, #{port := Port, feed := Feed, rest := Rest, next := Next} = Loop) ->
    receive
        {Port, {data, Bytes}} ->
            {Keys, Rest1} = erlane_term:keys(<<Rest/binary, Bytes/binary>>),
            press(Keys, Screen, Loop#{rest := Rest1});
        {Port, eof} ->
            0;
        {signal, _} ->
            0;
        {Feed, Answer} ->
            answer(Answer, Screen, Loop)
    after max(0, Next - now_ms()) ->
        tick(Screen#{size := erlane_term:size()}, Loop)
    end.

press([Key | Keys], Screen, Loop) ->
    {Screen1, Effects} = key(Key, Screen),
    case lists:member(quit, Effects) of
        true -> 0;
        false -> press(Keys, Screen1, lists:foldl(fun(Effect, L) -> effect(Effect, L) end,
                                                  Loop, Effects))
    end;
press([], Screen, Loop) ->
    loop(draw(Screen#{size := erlane_term:size()}, Loop), Loop).

effect(sample, Loop) ->
    Loop#{next := now_ms()};
effect({process, Pid}, #{feed := Feed} = Loop) ->
    erlane_top_feed:process(Feed, Pid),
    Loop.

%% Asks for a sample, unless the last one is still to come.
tick(#{paused := true, interval := Interval} = Screen, Loop) ->
    loop(draw(Screen, Loop), Loop#{next := now_ms() + Interval});
tick(#{interval := Interval, node := Node} = Screen, #{asked := At} = Loop) when is_integer(At) ->
    Silent = now_ms() - At,
    Screen1 = case Silent > ?SILENT_MS of
                  true -> Screen#{message := text("~ts does not answer, for ~b s now",
                                                  [Node, Silent div 1000])};
                  false -> Screen
              end,
    loop(draw(Screen1, Loop), Loop#{next := now_ms() + Interval});
tick(#{interval := Interval, sort := Sort} = Screen, #{feed := Feed, before := Before} = Loop) ->
    erlane_top_feed:sample(Feed, #{sort => Sort, procs => ?MAX_PROCS}),
    Wait = case Before of
               undefined -> min(?FIRST_MS, Interval);
               _ -> Interval
           end,
    loop(Screen, Loop#{asked := now_ms(), next := now_ms() + Wait}).

answer({sample, Sample0}, Screen, #{before := Before, left := Left} = Loop) ->
    Sample = without_us(Sample0),
    Screen1 = case Before of
                  undefined -> Screen;
                  _ -> Screen#{view := erlane_prof:view(Before, Sample)}
              end,
    case Left of
        1 when Before =/= undefined ->
            0;
        _ ->
            Left1 = case is_integer(Left) andalso Before =/= undefined of
                        true -> Left - 1;
                        false -> Left
                    end,
            loop(draw(Screen1#{message := ""}, Loop),
                 Loop#{asked := false, before := Sample, left := Left1})
    end;
answer({process, Details}, Screen, Loop) ->
    %% Nobody waits for it any more if the list is shown again.
    Screen1 = case Screen of
                  #{mode := {details, _}} -> Screen#{mode := {details, Details}};
                  _ -> Screen
              end,
    loop(draw(Screen1, Loop), Loop);
answer({away, Text}, Screen, Loop) ->
    %% A node that comes back counts anew.
    loop(draw(Screen#{message := Text ++ "; trying again"}, Loop),
         Loop#{asked := false, before := undefined}).

draw(#{size := {_, Height} = Size} = Screen, #{colours := Colours}) ->
    Lines = erlane_top_screen:lines(Screen, Size),
    erlane_term:write(erlane_top_text:ansi(Lines, Colours)),
    Screen#{page := max(1, Height div 2)}.

%% @doc What a key does.
-spec key(erlane_term:key(), screen()) -> {screen(), [effect()]}.
key($q, Screen) -> {Screen, [quit]};
key($Q, Screen) -> {Screen, [quit]};
key(3, Screen) -> {Screen, [quit]};
key($p, #{paused := Paused} = Screen) -> {Screen#{paused := not Paused}, [sample || Paused]};
key($\s, Screen) -> key($p, Screen);
key($r, Screen) -> sort(reds, Screen);
key($m, Screen) -> sort(memory, Screen);
key($b, Screen) -> sort(mailbox, Screen);
key($s, #{sort := reds} = Screen) -> sort(memory, Screen);
key($s, #{sort := memory} = Screen) -> sort(mailbox, Screen);
key($s, #{sort := mailbox} = Screen) -> sort(reds, Screen);
key($+, #{interval := Ms} = Screen) ->
    {Screen#{interval := hd([Step || Step <- ?INTERVALS, Step > Ms] ++ [Ms])}, []};
key($-, #{interval := Ms} = Screen) ->
    {Screen#{interval := lists:last([Ms] ++ [Step || Step <- ?INTERVALS, Step < Ms])}, [sample]};
key(Key, #{mode := help} = Screen) when Key =:= $h; Key =:= $?; Key =:= escape; Key =:= enter ->
    {Screen#{mode := list}, []};
key(Key, Screen) when Key =:= $h; Key =:= $? ->
    {Screen#{mode := help}, []};
key(Key, #{mode := {details, _}} = Screen) when Key =:= escape; Key =:= enter ->
    {Screen#{mode := list, scroll := 0}, []};
key(enter, #{mode := list, view := #{procs := [_ | _] = Procs}, selected := N} = Screen) ->
    #{pid := Pid} = lists:nth(min(N + 1, length(Procs)), Procs),
    {Screen#{mode := {details, "asking..."}, scroll := 0}, [{process, Pid}]};
key($j, Screen) -> key(down, Screen);
key($k, Screen) -> key(up, Screen);
key(Key, #{mode := list, selected := N, page := Page, view := #{procs := Procs}} = Screen) ->
    {Screen#{selected := move(Key, N, Page, max(0, length(Procs) - 1))}, []};
key(Key, #{mode := {details, _}, scroll := N, page := Page} = Screen) ->
    {Screen#{scroll := move(Key, N, Page, 1000)}, []};
key(_Key, Screen) ->
    {Screen, []}.

move(up, N, _, _) -> max(0, N - 1);
move(down, N, _, Last) -> min(Last, N + 1);
move(page_up, N, Page, _) -> max(0, N - Page);
move(page_down, N, Page, Last) -> min(Last, N + Page);
move(home, _, _, _) -> 0;
move('end', _, _, Last) -> Last;
move(_, N, _, _) -> N.

sort(Sort, Screen) ->
    {Screen#{sort := Sort, selected := 0}, [sample]}.

%% @doc A sample without the connection to the node that looks.
-spec without_us(erlane_prof:sample()) -> erlane_prof:sample().
without_us(#{dist := Dist} = Sample) ->
    Sample#{dist := [Node || #{node := Name} = Node <- Dist, Name =/= node()]}.

text(Format, Args) -> lists:flatten(io_lib:format(Format, Args)).

now_ms() -> erlang:monotonic_time(millisecond).
