%% SPDX-License-Identifier: Apache-2.0
%% Many processes make, update, delete and read series at random. Afterwards the books must
%% balance: every process kept for every handle what it added through it, whether the series
%% was alive or not, and
%% <ul>
%% <li>the word behind each handle, dead or alive, holds the sum of what was added through it:
%%     nothing is lost and nothing went to another series;</li>
%% <li>a handle belonged to one series only, and to the one the tables name now if it is alive;
%% </li>
%% <li>series that were never deleted had one handle all the time.</li>
%% </ul>
%% many_series runs for 3 seconds, with ERLANE_LONG=1 for 5 minutes.
-module(erlane_metrics_stress_SUITE).

-include_lib("stdlib/include/assert.hrl").
-include_lib("proper/include/proper.hrl").

-export([all/0, suite/0, init_per_testcase/2, end_per_testcase/2]).
-export([few_series/1, many_series/1]).

-define(ROUND_MS, 3000).
-define(WORKERS, 100).
-define(SERIES, 10000).

all() -> [few_series, many_series].

suite() -> [{timetrap, {seconds, seconds() + 300}}].

init_per_testcase(_Case, Config) ->
    _ = application:load(erlane_metrics),
    ok = application:set_env(erlane_metrics, collectors, []),
    {ok, _} = application:ensure_all_started(erlane_metrics),
    Config.

end_per_testcase(_Case, _Config) ->
    application:stop(erlane_metrics).

seconds() ->
    case os:getenv("ERLANE_LONG") of "1" -> 300; _ -> 3 end.

%% Any short programs of a few processes over a handful of series: every collision happens.
few_series(_Config) ->
    Families = families(<<"few">>),
    Op = {oneof([update, old, delete, read]), range(1, length(Families)), range(1, 3),
          range(1, 9)},
    Property = ?FORALL(Programs, non_empty(list(non_empty(list(Op)))),
                       begin
                           [erlane_metrics:delete(F, [L]) || F <- Families,
                                                             L <- lists:seq(1, 3)],
                           Books = at_once([fun() -> program(Ops, Families) end
                                            || Ops <- Programs]),
                           _ = balance(Books, Families, fun(_) -> false end),
                           true
                       end),
    ?assert(proper:quickcheck(Property, [{numtests, 300}, {max_size, 60}, {to_file, user},
                                         nocolors])).

program(Ops, Families) ->
    lists:foldl(fun({Op, F, L, N}, Book) -> step(Op, lists:nth(F, Families), L, N, Book) end,
                #{}, Ops).

%% 10,000 series, 100 processes, and a reader; every fourth series may be deleted.
many_series(_Config) ->
    Families = families(<<"many">>),
    Until = erlang:monotonic_time(millisecond) + seconds() * 1000,
    rounds(Until, Families, #{}, 0).

rounds(Until, Families, Old, Rounds) ->
    Now = erlang:monotonic_time(millisecond),
    case Now < Until of
        true ->
            End = min(Until, Now + ?ROUND_MS),
            Books = at_once([fun() -> reader(End, Families, 0) end
                             | [fun() -> worker(End, list_to_tuple(Families)) end
                                || _ <- lists:seq(1, ?WORKERS)]]),
            Live = balance([Old | Books], Families, fun(L) -> L rem 4 =/= 0 end),
            rounds(Until, Families, Live, Rounds + 1);
        false ->
            ?assert(Rounds > 0),
            ?assert(map_size(Old) > ?SERIES div 4)
    end.

worker(End, Families) ->
    _ = rand:seed(exsss),
    worker(End, Families, #{}, 0).

worker(End, Families, Book, Steps) when Steps rem 100 =/= 0 ->
    F = element(rand:uniform(tuple_size(Families)), Families),
    L = rand:uniform(?SERIES div tuple_size(Families)),
    Op = case rand:uniform(100) of
             R when R =< 3, L rem 4 =:= 0 -> delete;
             R when R =< 25 -> old;
             R when R =< 27 -> read;
             _ -> update
         end,
    worker(End, Families, step(Op, F, L, rand:uniform(9), Book), Steps + 1);
worker(End, Families, Book, Steps) ->
    case erlang:monotonic_time(millisecond) < End of
        true -> worker(End, Families, Book, Steps + 1);
        false -> Book
    end.

%% Goes over everything again and again: each series once, in order, and whole.
reader(End, Families, Passes) ->
    _ = erlane_metrics_walk:fold(fun seen/2, {none, none}),
    case erlang:monotonic_time(millisecond) < End of
        true -> reader(End, Families, Passes + 1);
        false -> #{}
    end.

seen({family, #{name := Name}}, {Before, _}) ->
    true = Before =:= none orelse Name > Before,
    {Name, none};
seen({series, {Text, [{<<"l">>, L}], Value, _}}, {Name, Before}) ->
    true = Before =:= none orelse L > Before,
    Text = <<"l=\"", L/binary, "\"">>,
    true = is_map(Value) orelse (is_integer(Value) andalso Value >= 0),
    {Name, L};
seen({series, {<<>>, [], _, _}}, State) ->
    State.

%% The book: Word => {Handle, {Family, Label}, Sum}, and the last handle under `last'.
step(update, F, L, N, Book) ->
    Handle = erlane_metrics:handle(F, [L]),
    pay(Handle, {F, L}, N, Book#{last => {Handle, {F, L}}});
step(old, _, _, N, #{last := {Handle, Owner}} = Book) ->
    pay(Handle, Owner, N, Book);
step(old, F, L, N, Book) ->
    step(update, F, L, N, Book);
step(delete, F, L, _, Book) ->
    _ = erlane_metrics:delete(F, [L]),
    Book;
step(read, F, L, _, Book) ->
    Handle = erlane_metrics:handle(F, [L]),
    %% Of a histogram sum and count may be some observations apart while others write.
    true = total(erlane_metrics:value(Handle)) >= 0,
    Book.

pay(Handle, Owner, N, Book) ->
    ok = update(Handle, N),
    Word = word(Handle),
    case Book of
        #{Word := {Slim, Owner, Sum}} -> Book#{Word => {Slim, Owner, Sum + N}};
        #{Word := {_, Other, _}} -> error({one_word_for_two_series, Owner, Other});
        #{} -> Book#{Word => {slim(Handle), Owner, N}}
    end.

update({histogram, _, _} = H, N) -> erlane_metrics:observe(H, N * 1000000);
update({shared, _, _} = H, N) -> erlane_metrics:observe(H, N * 1000000);
update({group, _, _} = H, N) -> erlane_metrics:add(H, 1 + N rem 2, N);
update(H, N) -> erlane_metrics:add(H, N).

%% Books go from process to process, bounds stay here: all histograms of this suite have the
%% same ones.
slim({Kind, Ref, Bounds}) when Kind =:= histogram; Kind =:= shared ->
    persistent_term:get(?MODULE, none) =:= none andalso persistent_term:put(?MODULE, Bounds),
    {Kind, Ref, bounds};
slim(Handle) -> Handle.

fat({Kind, Ref, bounds}) -> {Kind, Ref, persistent_term:get(?MODULE)};
fat(Handle) -> Handle.

%% What a handle writes to; bounds are left out.
word({Kind, Ref, _}) when Kind =:= histogram; Kind =:= shared; Kind =:= group -> {Ref, 0};
word(Handle) -> {element(2, Handle), element(3, Handle)}.

total(#{sum := Sum}) -> Sum div 1000000;
total({A, B}) -> A + B;
total(N) when is_integer(N) -> N.

%% Adds up the books of all processes and compares; answers those that are alive.
balance(Books, Families, Survives) ->
    All = lists:foldl(fun(Book, Acc) ->
                              maps:fold(fun add_up/3, Acc, maps:remove(last, Book))
                      end, #{}, Books),
    Live = maps:filter(fun(_, {Handle, _, _}) -> erlane_metrics:alive(fat(Handle)) end, All),
    [?assertEqual({Owner, Sum}, {Owner, total(erlane_metrics:value(fat(Handle)))})
     || {Handle, Owner, Sum} <- maps:values(All)],
    %% One live handle for a series, and it is the one that is resolved.
    Owners = [Owner || {_, Owner, _} <- maps:values(Live)],
    ?assertEqual(length(Owners), length(lists:usort(Owners))),
    [?assertEqual({Owner, word(Handle)}, {Owner, word(erlane_metrics:handle(F, [L]))})
     || {Handle, {F, L} = Owner, _} <- maps:values(Live)],
    %% Whatever was never deleted is alive, so it had one handle all the time.
    ?assertEqual([], [Owner || {Word, {_, {_, L} = Owner, _}} <- maps:to_list(All),
                               Survives(L), not is_map_key(Word, Live)]),
    Now = maps:from_list([{{F, L}, total(V)}
                          || F <- Families,
                             {[L], V} <- maps:to_list(erlane_metrics:snapshot(F))]),
    ?assertEqual(#{}, maps:without([{F, integer_to_binary(L)} || {F, L} <- Owners],
                                   maps:filter(fun(_, Sum) -> Sum > 0 end, Now))),
    Live.

add_up(Word, {Handle, Owner, Sum}, Acc) ->
    case Acc of
        #{Word := {_, Owner, Before}} -> Acc#{Word => {Handle, Owner, Before + Sum}};
        #{Word := {_, Other, _}} -> error({one_word_for_two_series, Owner, Other});
        #{} -> Acc#{Word => {Handle, Owner, Sum}}
    end.

families(Prefix) ->
    [erlane_metrics:Type(maps:merge(Opts, #{name => <<Prefix/binary, (I + $a)>>, help => <<>>,
                                            labels => [<<"l">>], limit => 2 * ?SERIES}))
     || {I, {Type, Opts}} <- lists:zip(
            lists:seq(1, 7),
            [{counter, #{}}, {counter, #{spread => own}}, {gauge, #{}},
             {gauge, #{mode => updown}},
             {histogram, #{range => {0.001, 1}, scale => 1}},
             {histogram, #{range => {0.001, 1}, scale => 1, spread => shared}},
             {group, #{counters => [{<<"a">>, <<>>}, {<<"b">>, <<>>}]}}])].

%% Runs functions in processes that begin together; their results, or the first error.
at_once(Funs) ->
    Go = make_ref(),
    Runners = [spawn_monitor(fun() -> receive Go -> exit({ended, Fun()}) end end)
               || Fun <- Funs],
    [Pid ! Go || {Pid, _} <- Runners],
    [receive
         {'DOWN', Monitor, _, _, {ended, Result}} -> Result;
         {'DOWN', Monitor, _, _, Why} -> error({runner, Why})
     end || {_, Monitor} <- Runners].
