%% SPDX-License-Identifier: Apache-2.0
%% Profiles as values and as files: what holds for all of them, and what the tools that the files
%% are for make of them.
-module(erlane_prof_formats_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0]).
-export([sums/1, order/1, merge/1, diff/1, formats/1, stored/1, damaged/1]).
-export([callgrind_annotate/1, pprof/1, collapsed/1, speedscope/1, page/1, table/1]).
-export([recursion/1, values_are_checked/1, endings/1, files/1, hostile_files/1, large/1]).

suite() -> [{timetrap, {minutes, 2}}].

all() ->
    [sums, order, merge, diff, formats, stored, damaged, callgrind_annotate, pprof, collapsed,
     speedscope, page, table, recursion, values_are_checked, endings, files, hostile_files, large].

%%% properties

sums(_) -> property(prop_erlane_prof_profile:prop_sums(), 150).

order(_) -> property(prop_erlane_prof_profile:prop_order(), 150).

merge(_) -> property(prop_erlane_prof_profile:prop_merge(), 100).

diff(_) -> property(prop_erlane_prof_profile:prop_diff(), 100).

formats(_) -> property(prop_erlane_prof_profile:prop_formats(), 150).

stored(_) -> property(prop_erlane_prof_profile:prop_stored(), 150).

damaged(_) -> property(prop_erlane_prof_profile:prop_damaged(), 300).

property(Property, Count) ->
    ?assert(proper:quickcheck(Property, [{numtests, Count}, {to_file, user}])).

%%% a profile that can be checked by hand

frame(M, F, Line) ->
    {M, F, 1, iolist_to_binary([atom_to_list(M), ".erl"]), Line}.

%% `work' calls itself through `step', and `step' itself directly.
rows() ->
    Loop = frame(server, loop, 10),
    Work = frame(work, run, 20),
    Step = frame(work, step, 30),
    [#{proc => <<"shop">>, app => shop, state => running, stack => [Loop, Work], values => [7]},
     #{proc => <<"shop">>, app => shop, state => waiting, stack => [Loop], values => [40]},
     #{proc => <<"pool">>, app => jobs, state => running, values => [11],
       stack => [Loop, Work, Step, Step, Work, <<"memcpy">>]},
     #{proc => <<"pool">>, app => jobs, state => running, values => [5],
       stack => [Loop, Work, Step, Work]},
     #{proc => <<"pool">>, state => no_answer, stack => [], values => [3]}].

profile() -> profile(rows()).

profile(Rows) ->
    erlane_prof_profile:new(#{mode => sample, node => 'shop@host', began => 1795325000000000,
                              ns => 2000000000, notes => [<<"one note">>], rows => Rows,
                              values => [#{name => samples, unit => count}]}).

%% Self and total of each function.
known() ->
    #{<<"server:loop/1">> => {40, 63}, <<"work:run/1">> => {12, 23}, <<"work:step/1">> => {0, 16},
      <<"memcpy">> => {11, 11}, <<"[unknown]">> => {3, 3}}.

recursion(_) ->
    ?assertEqual({66, known()}, erlane_prof_reading:profile(profile())).

%%% the tools

written(Config, Name) ->
    File = filename:join(proplists:get_value(priv_dir, Config), Name),
    ok = erlane_prof_file:write(profile(), File),
    File.

%% Runs a tool, or says what is missing.
tool(Program, Args) ->
    case os:find_executable(Program) of
        false -> throw({skip, Program ++ " is not installed: make deps"});
        Path ->
            {0, Output} = real_os:run(Path, Args),
            lines(Output)
    end.

lines(Output) -> string:split(unicode:characters_to_list(Output), "\n", all).

%% Its totals, with what is called and without, are ours.
callgrind_annotate(Config) ->
    File = written(Config, "callgrind.out.1"),
    Run = fun(Inclusive) ->
                  tool("callgrind_annotate", ["--threshold=100", "--show=samples", "--auto=no",
                                              "--inclusive=" ++ Inclusive, File])
          end,
    try {Run("yes"), Run("no"), tool("callgrind_annotate", ["--tree=both", File])} of
        {With, Without, Tree} ->
            ?assertEqual(66, annotated_sum(With)),
            Total = annotated(With),
            [?assertEqual({Name, T}, {Name, maps:get(Name, Total)})
             || {Name, {_, T}} <- maps:to_list(known())],
            %% The processes are on top.
            ?assertEqual({47, 19}, {maps:get(<<"[shop]">>, Total), maps:get(<<"[pool]">>, Total)}),
            ?assertEqual(#{<<"server:loop/1">> => 40, <<"work:run/1">> => 7, <<"memcpy">> => 11,
                           <<"work:run/1'2">> => 5, <<"[unknown]">> => 3},
                         maps:filter(fun(_, V) -> V > 0 end, annotated(Without))),
            ?assertNotEqual([], [L || L <- Tree, string:find(L, "work:step/1") =/= nomatch]),
            ?assertEqual([], [L || L <- With ++ Tree, string:find(L, "WARNING") =/= nomatch])
    catch throw:{skip, Why} -> {skip, Why}
    end.

annotated_sum(Lines) ->
    [Sum] = [list_to_integer(N) || L <- Lines,
                                   {match, [N]} <- [re:run(L, "^ *([0-9]+) .*PROGRAM TOTALS",
                                                           [{capture, [1], list}])]],
    Sum.

annotated(Lines) ->
    maps:from_list([{Name, binary_to_integer(N)}
                    || L <- Lines,
                       {match, [N, Name]} <-
                           [re:run(L, "^ *([0-9]+) \\([^)]*\\)  [^ :]*:([^ ]+)( |$)",
                                   [{capture, [1, 2], binary}])]]).

pprof(Config) ->
    File = written(Config, "profile.pb.gz"),
    try tool("go", ["tool", "pprof", "-top", "-nodecount=1000", "-nodefraction=0",
                    "-edgefraction=0", File]) of
        Lines ->
            ?assertNotEqual([], [L || L <- Lines,
                                      string:find(L, "Total samples = 66") =/= nomatch]),
            %% Six words a line, below the line of their names.
            [_ | Listed] = lists:dropwhile(fun(L) -> string:find(L, "flat%") =:= nomatch end,
                                           Lines),
            Got = maps:from_list([{list_to_binary(Name),
                                   {list_to_integer(Flat), list_to_integer(Cum)}}
                                  || L <- Listed,
                                     [Flat, _, _, Cum, _, Name] <- [string:lexemes(L, " ")]]),
            ?assertEqual(known(), Got),
            Raw = tool("go", ["tool", "pprof", "-raw", File]),
            [?assertNotEqual({Text, []},
                             {Text, [L || L <- Raw, string:find(L, Text) =/= nomatch]})
             || Text <- ["samples/count", "proc:[pool] state:[running]", "app:[jobs]",
                         "server.erl:10", "one note", "Duration: 2s"]]
    catch throw:{skip, Why} -> {skip, Why}
    end.

%% The line format that flame graph tools share.
collapsed(_) ->
    ?assertEqual(<<"[no_answer];pool;[unknown] 3\n"
                   "[running];pool;server:loop/1;work:run/1;work:step/1;work:run/1 5\n"
                   "[running];pool;server:loop/1;work:run/1;work:step/1;work:step/1;work:run/1;"
                   "memcpy 11\n"
                   "[running];shop;server:loop/1;work:run/1 7\n"
                   "[waiting];shop;server:loop/1 40\n">>,
                 iolist_to_binary(erlane_prof_collapsed:format(profile()))),
    %% Before and after.
    {ok, Diff} = erlane_prof_profile:diff(profile(tl(rows())), profile()),
    ?assertMatch({match, _}, re:run(iolist_to_binary(erlane_prof_collapsed:format(Diff)),
                                    "shop;server:loop/1;work:run/1 0 7\n")).

%% What the schema demands of a file (file-format-spec.ts of speedscope), and that nothing else is
%% in it: of each profile that we can have.
speedscope(_) ->
    {ok, Diff} = erlane_prof_profile:diff(profile(tl(rows())), profile()),
    Two = #{mode => time, values => [#{name => time, unit => nanoseconds},
                                     #{name => bytes, unit => bytes},
                                     #{name => words, unit => words}],
            rows => [#{proc => <<"a">>, state => any, values => [7, 0, 3],
                       stack => [{m, f, 0, <<"m.erl">>, 3}, {m, g, 0, <<>>, 0}]}]},
    [schema(Profile) || Profile <- [profile(), Diff, erlane_prof_profile:new(Two),
                                    erlane_prof_profile:new(Two#{rows := []})]].

schema(Profile) ->
    Read = erlane_dash_reader:read(iolist_to_binary(erlane_prof_speedscope:format(Profile))),
    #{<<"$schema">> := <<"https://www.speedscope.app/file-format-schema.json">>,
      <<"exporter">> := <<"erlane">>, <<"activeProfileIndex">> := 0, <<"name">> := Name,
      <<"shared">> := Shared, <<"profiles">> := Profiles} = Read,
    ?assertEqual(6, map_size(Read)),
    ?assert(is_binary(Name)),
    [{<<"frames">>, Frames}] = maps:to_list(Shared),
    [?assert(is_binary(maps:get(<<"name">>, F)) andalso is_binary(maps:get(<<"file">>, F, <<>>))
             andalso maps:keys(maps:without([<<"name">>, <<"file">>], F)) =:= []) || F <- Frames],
    ?assertEqual(lists:usort(Frames), lists:sort(Frames)),
    ?assertEqual(length(erlane_prof_profile:columns(Profile)), length(Profiles)),
    [sampled(P, Column, length(Frames), Profile)
     || {P, Column} <- lists:zip(Profiles, erlane_prof_profile:columns(Profile))].

%% The weights are for the samples, in order, and fill what is between start and end.
sampled(#{<<"type">> := <<"sampled">>, <<"name">> := Name, <<"unit">> := Unit,
          <<"startValue">> := Start, <<"endValue">> := End, <<"samples">> := Samples,
          <<"weights">> := Weights} = Sampled, Column, Frames, Profile) ->
    ?assertEqual(7, map_size(Sampled)),
    ?assertEqual(atom_to_binary(Column), Name),
    ?assert(lists:member(Unit, [<<"none">>, <<"nanoseconds">>, <<"microseconds">>,
                                <<"milliseconds">>, <<"seconds">>, <<"bytes">>])),
    ?assertEqual(length(Samples), length(Weights)),
    ?assert(lists:all(fun(W) -> is_integer(W) andalso W > 0 end, Weights)),
    ?assertEqual(End - Start, lists:sum(Weights)),
    ?assertEqual(erlane_prof_profile:total(Profile, Column), End - Start),
    ?assert(lists:all(fun(N) -> is_integer(N) andalso N >= 0 andalso N < Frames end,
                      lists:append(Samples))),
    ?assert(lists:all(fun(Stack) -> Stack =/= [] end, Samples)).

%% One file, no address in it that a browser would ask for, names are no markup.
page(_) ->
    Evil = <<"</script><img src=x>">>,
    Rows = [#{proc => Evil, app => binary_to_atom(Evil), state => running, values => [1],
              stack => [{binary_to_atom(Evil), f, 0, Evil, 1}, Evil]}],
    Fields = #{mode => sample, node => binary_to_atom(Evil), notes => [Evil], rows => Rows,
               values => [#{name => samples, unit => count}]},
    Page = iolist_to_binary(erlane_prof_flame:format(erlane_prof_profile:new(Fields))),
    ?assertEqual(nomatch, binary:match(Page, <<"<img">>)),
    ?assertEqual(nomatch, re:run(Page, "(src|href)=\"?(https?:)?//")),
    ?assertMatch({match, _}, re:run(Page, "default-src 'none'")),
    ?assertEqual(nomatch, binary:match(Page, <<"{{">>)),
    #{<<"node">> := Evil, <<"notes">> := [Evil]} = erlane_prof_reading:page_data(Page).

table(_) ->
    Text = lines(iolist_to_binary(erlane_prof_top:format(profile()))),
    ?assertMatch("shop@host, OTP " ++ _, hd(Text)),
    ?assertEqual(["running 34.8%  waiting 60.6%  no_answer 4.5%"],
                 [string:join(lists:sublist(string:split(L, "  ", all), 3), "  ")
                  || L <- [by_name(lists:nth(2, Text))]]),
    ?assert(lists:member("note: one note", Text)),
    [First | _] = lists:nthtail(5, Text),
    ?assertEqual(["40", "60.6%", "63", "95.5%", "server:loop/1"], string:lexemes(First, " ")),
    One = iolist_to_binary(erlane_prof_top:format(profile(), #{count => 1})),
    ?assertEqual(nomatch, binary:match(One, <<"memcpy">>)).

%% As the line has it by size, with the two that are compared here in a fixed order.
by_name(Line) ->
    ["waiting 60.6%", "running 34.8%", Last] = string:split(Line, "  ", all),
    "running 34.8%  waiting 60.6%  " ++ Last.

%%% the door

values_are_checked(_) ->
    Bad = fun(Change) ->
                  try erlane_prof_profile:new(maps:merge(#{mode => sample, rows => rows(),
                                                           values => [#{name => samples,
                                                                        unit => count}]},
                                                         Change)) of
                      _ -> accepted
                  catch error:{profile, {Key, _}} -> Key
                  end
          end,
    ?assertEqual(accepted, Bad(#{})),
    [?assertEqual({Key, Key}, {Key, Bad(#{Key => Value})})
     || {Key, Value} <- [{mode, other}, {values, []}, {values, [#{name => a, unit => litres}]},
                         {ns, -1}, {lost, x}, {notes, [text]}, {notes, [<<>> | <<>>]}]],
    [?assertEqual({Values, row}, {Values, Bad(#{rows => [(hd(rows()))#{values := Values}]})})
     || Values <- [[-1], [1, 2]]],
    ?assertError({column, nothing}, erlane_prof_profile:total(profile(), nothing)),
    Other = (profile())#{values := [#{name => calls, unit => count}]},
    ?assertMatch({error, {values, _, _}}, erlane_prof_profile:merge(profile(), Other)),
    ?assertMatch({error, {values, _, _}}, erlane_prof_profile:diff(profile(), Other)).

endings(_) ->
    Some = [{"a.html", flame}, {"A.HTML", flame}, {"callgrind.out.7", callgrind},
            {"x/y.callgrind", callgrind}, {"a.folded", collapsed},
            {"a.speedscope.json", speedscope},
            {<<"a.pb.gz">>, pprof}, {"a.erlprof", profile}, {"a.txt", top}],
    [?assertEqual({Name, {ok, Format}}, {Name, erlane_prof_file:format(Name)})
     || {Name, Format} <- Some],
    ?assertEqual({error, {ending, ".gz"}}, erlane_prof_file:format("a.gz")),
    ?assertEqual({error, {ending, ""}}, erlane_prof_file:format("html")),
    {error, Why} = erlane_prof_file:write(profile(), "a.pdf"),
    ?assertMatch({match, _}, re:run(erlane_prof_file:error_text(Why),
                                    "\"\\.pdf\"; known are \\.html")).

%% Complete or not there; errors say what and why.
files(Config) ->
    Dir = filename:join(proplists:get_value(priv_dir, Config), "files"),
    ok = filelib:ensure_dir(filename:join(Dir, "x")),
    File = filename:join(Dir, "a.erlprof"),
    ok = erlane_prof_file:write(profile(), File),
    ok = erlane_prof_file:write(profile(tl(rows())), File),
    ?assertEqual({ok, profile(tl(rows()))}, erlane_prof_file:read(File)),
    ?assertEqual({ok, ["a.erlprof"]}, file:list_dir(Dir)),
    Missing = filename:join([Dir, "missing", "a.html"]),
    {error, {write, Missing, enoent} = Why} = erlane_prof_file:write(profile(), Missing),
    ?assertMatch({match, _}, re:run(erlane_prof_file:error_text(Why),
                                    "cannot write .*a\\.html: no such file")),
    %% A name that is taken by a directory leaves nothing beside it.
    Taken = filename:join(Dir, "taken.txt"),
    ok = file:make_dir(Taken),
    {error, {write, Taken, _}} = erlane_prof_file:write(profile(), Taken),
    ?assertEqual({ok, ["a.erlprof", "taken.txt"]}, sorted(file:list_dir(Dir))),
    {error, {read, _, enoent}} = erlane_prof_file:read(filename:join(Dir, "none.erlprof")),
    Page = filename:join(Dir, "page.html"),
    ok = erlane_prof_file:write(profile(), Page),
    ?assertEqual({error, {read, Page, not_a_profile}}, erlane_prof_file:read(Page)).

sorted({ok, Names}) -> {ok, lists:sort(Names)}.

%% No atoms out of a file that is wrong, no memory without bound, no terms but ours.
hostile_files(_) ->
    Packed = fun(Term) ->
                     iolist_to_binary(["erlane-profile 1\n", zlib:compress(term_to_binary(Term))])
             end,
    Decode = fun erlane_prof_stored:decode/1,
    [?assertEqual({error, damaged}, Decode(Packed(Term)))
     || Term <- [[], {a, b, c}, fun erlang:halt/0, make_ref(), {<<>>, [], []}]],
    ?assertMatch({error, {version, <<"2">>}}, Decode(<<"erlane-profile 2\nxyz">>)),
    ?assertEqual({error, not_a_profile}, Decode(<<>>)),
    Head = {<<"sample">>, <<"n@h">>, <<"25">>, 0, 0, 0, [], <<>>, [{<<"samples">>, <<"count">>}]},
    Frames = [{integer_to_binary(N), <<"f">>, 0, <<>>, 0} || N <- lists:seq(1, 200001)],
    Before = erlang:system_info(atom_count),
    ?assertEqual({error, too_many_names}, Decode(Packed({Head, Frames, []}))),
    ?assert(erlang:system_info(atom_count) - Before < 1000),
    %% More than 256 MiB of zeros.
    Bomb = iolist_to_binary(["erlane-profile 1\n", zeros(257 bsl 20)]),
    ?assertEqual({error, too_large}, Decode(Bomb)).

zeros(Size) ->
    Z = zlib:open(),
    ok = zlib:deflateInit(Z, best_speed),
    Piece = binary:copy(<<0>>, 1 bsl 20),
    Parts = [zlib:deflate(Z, Piece) || _ <- lists:seq(1, Size bsr 20)],
    Last = zlib:deflate(Z, [], finish),
    ok = zlib:deflateEnd(Z),
    [Parts, Last].

%% Ten thousand different stacks of some depth are no work for any format.
large(_) ->
    Rows = [#{proc => <<"p", (integer_to_binary(N rem 100))/binary>>, state => running,
              stack => [frame(server, list_to_atom("f" ++ integer_to_list((N * D) rem 500)), D)
                        || D <- lists:seq(1, 40)],
              values => [N]} || N <- lists:seq(1, 10000)],
    Profile = profile(Rows),
    Sizes = [begin
                 {Us, Bytes} = timer:tc(fun() ->
                                                iolist_size(erlane_prof_file:encode(Profile, F))
                                        end),
                 {F, Us div 1000, Bytes}
             end || {F, _, _} <- erlane_prof_file:formats()],
    ct:pal("format, ms, bytes: ~p", [Sizes]),
    [?assert(Bytes < 30000000, {F, Bytes}) || {F, _, Bytes} <- Sizes].
