%% SPDX-License-Identifier: Apache-2.0
%% @doc What a static file is answered with, without a file: preconditions, ranges, names in a
%% path and media types.
-module(erlane_http_cond_SUITE).

-include_lib("stdlib/include/assert.hrl").

-export([all/0]).
-export([etags/1, if_match/1, if_unmodified_since/1, if_none_match/1, if_modified_since/1,
         precedence/1, if_range/1]).
-export([one_range/1, many_ranges/1, ignored_ranges/1, unsatisfiable_ranges/1, range_limits/1,
         ranges_are_within/1, multipart_length/1]).
-export([names/1, encoded_names/1, errors_of_files/1, types/1]).

%% 1 January 2020.
-define(THEN, 1577836800).
-define(TAG, <<"\"a-b\"">>).

all() ->
    [etags, if_match, if_unmodified_since, if_none_match, if_modified_since, precedence, if_range,
     one_range, many_ranges, ignored_ranges, unsatisfiable_ranges, range_limits,
     ranges_are_within, multipart_length,
     names, encoded_names, errors_of_files, types].

%% Tags of different files differ; one that cannot be trusted says so.
etags(_Config) ->
    ?assertEqual(<<"\"5E0BE100-A\"">>, erlane_http_cond:etag(10, ?THEN, true)),
    ?assertEqual(<<"W/\"5E0BE100-A\"">>, erlane_http_cond:etag(10, ?THEN, false)),
    ?assertNotEqual(erlane_http_cond:etag(10, ?THEN, true),
                    erlane_http_cond:etag(11, ?THEN, true)),
    ?assertNotEqual(erlane_http_cond:etag(10, ?THEN, true),
                    erlane_http_cond:etag(10, ?THEN + 1, true)).

%% The strong comparison, for any method.
if_match(_Config) ->
    [?assertEqual({Value, Method, Answer}, {Value, Method, ask(Method, [{<<"if-match">>, Value}])})
     || Method <- [<<"GET">>, <<"HEAD">>, <<"PUT">>],
        {Value, Answer} <- [{?TAG, proceed}, {<<"*">>, proceed}, {<<"\"x\", \"a-b\"">>, proceed},
                            {<<"\"x\",\"a-b\" ,\"y\"">>, proceed}, {<<"\"a,b\",\"a-b\"">>, proceed},
                            {<<"\"x\"">>, failed}, {<<"W/\"a-b\"">>, failed}, {<<>>, failed},
                            {<<"a-b">>, failed}, {<<"\"a-b">>, failed}, {<<"\"A-B\"">>, failed},
                            {<<"\"a-b\"x">>, failed}, {<<"w/\"a-b\"">>, failed}]],
    Weak = #{etag => <<"W/\"a-b\"">>, modified => ?THEN, strong => false},
    ?assertEqual(failed, ask(<<"GET">>, [{<<"if-match">>, <<"W/\"a-b\"">>}], Weak)).

if_unmodified_since(_Config) ->
    [?assertEqual({Value, Answer}, {Value, ask(<<"GET">>, [{<<"if-unmodified-since">>, Value}])})
     || {Value, Answer} <- [{date(0), proceed}, {date(1), proceed}, {date(-1), failed},
                            {<<"yesterday">>, proceed}, {<<>>, proceed}]].

%% The weak comparison: 304 for reading, 412 for all else.
if_none_match(_Config) ->
    [begin
         Headers = [{<<"if-none-match">>, Value}],
         ?assertEqual({Value, Answer}, {Value, ask(<<"GET">>, Headers)}),
         ?assertEqual({Value, Answer}, {Value, ask(<<"HEAD">>, Headers)}),
         Other = case Answer of not_modified -> failed; proceed -> proceed end,
         ?assertEqual({Value, Other}, {Value, ask(<<"PUT">>, Headers)})
     end || {Value, Answer} <- [{?TAG, not_modified}, {<<"*">>, not_modified},
                                {<<"W/\"a-b\"">>, not_modified},
                                {<<"\"x\" , W/\"a-b\"">>, not_modified},
                                {<<",, \"a-b\"">>, not_modified},
                                {<<"\"x\"">>, proceed}, {<<>>, proceed}, {<<"a-b">>, proceed},
                                {<<"\"x\" \"a-b\"">>, proceed}, {<<"\"a-b">>, proceed}]].

%% All three forms of a date; only for reading; what is no date counts for nothing.
if_modified_since(_Config) ->
    [?assertEqual({Method, Value, Answer},
                  {Method, Value, ask(Method, [{<<"if-modified-since">>, Value}])})
     || {Method, Value, Answer} <-
            [{<<"GET">>, date(0), not_modified}, {<<"HEAD">>, date(0), not_modified},
             {<<"GET">>, date(1), not_modified}, {<<"GET">>, date(-1), proceed},
             {<<"PUT">>, date(0), proceed}, {<<"GET">>, <<"never">>, proceed},
             {<<"GET">>, <<(date(0))/binary, ", ", (date(0))/binary>>, proceed},
             {<<"GET">>, <<"Wednesday, 01-Jan-20 00:00:00 GMT">>, not_modified},
             {<<"GET">>, <<"Wed Jan  1 00:00:00 2020">>, not_modified}]].

%% RFC 9110, section 13.2.2: who is asked first, and who is then not asked at all.
precedence(_Config) ->
    Good = {<<"if-match">>, ?TAG},
    Bad = {<<"if-match">>, <<"\"x\"">>},
    Changed = {<<"if-unmodified-since">>, date(-1)},
    Same = {<<"if-none-match">>, ?TAG},
    Other = {<<"if-none-match">>, <<"\"x\"">>},
    Since = {<<"if-modified-since">>, date(0)},
    [?assertEqual({Headers, Answer}, {Headers, ask(<<"GET">>, Headers)})
     || {Headers, Answer} <- [{[Good, Changed], proceed}, {[Bad, Same], failed},
                              {[Changed, Same], failed}, {[Good, Same], not_modified},
                              {[Other, Since], proceed}, {[Same, Since], not_modified},
                              {[Good, Since], not_modified}, {[Bad, Since], failed}]].

%% Only for what is the same to the byte.
if_range(_Config) ->
    Strong = #{etag => ?TAG, modified => ?THEN, strong => true},
    Weak = #{etag => <<"W/\"a-b\"">>, modified => ?THEN, strong => false},
    [?assertEqual({Value, Validators, Use},
                  {Value, Validators, erlane_http_cond:use_range(header(Headers), Validators)})
     || {Value, Validators, Use} <-
            [{none, Strong, true}, {none, Weak, true}, {?TAG, Strong, true},
             {<<"\"x\"">>, Strong, false}, {<<"W/\"a-b\"">>, Strong, false},
             {<<"W/\"a-b\"">>, Weak, false}, {<<"\"a-b\"">>, Weak, false},
             {<<"\"a-b\", \"x\"">>, Strong, false},
             {date(0), Strong, true}, {date(0), Weak, false}, {date(1), Strong, false},
             {date(-1), Strong, false}, {<<"x">>, Strong, false}, {<<>>, Strong, false}],
        Headers <- [[{<<"if-range">>, Value} || Value =/= none]]].

ask(Method, Headers) ->
    ask(Method, Headers, #{etag => ?TAG, modified => ?THEN, strong => true}).

ask(Method, Headers, Validators) ->
    erlane_http_cond:evaluate(Method, header(Headers), Validators).

header(Headers) ->
    fun(Name) -> proplists:get_value(Name, Headers) end.

date(Seconds) ->
    erlane_http_date:format(?THEN + Seconds).

%% Of ten bytes.
one_range(_Config) ->
    [?assertEqual({Value, {ok, [Piece]}}, {Value, erlane_http_range:select(Value, 10)})
     || {Value, Piece} <- [{<<"bytes=0-0">>, {0, 1}}, {<<"bytes=0-9">>, {0, 10}},
                           {<<"bytes=0-10">>, {0, 10}}, {<<"bytes=2-5">>, {2, 4}},
                           {<<"bytes=9-">>, {9, 1}}, {<<"bytes=0-">>, {0, 10}},
                           {<<"bytes=-1">>, {9, 1}}, {<<"bytes=-10">>, {0, 10}},
                           {<<"bytes=-11">>, {0, 10}}, {<<"BYTES=1-1">>, {1, 1}},
                           {<<"bytes= 1-2 ">>, {1, 2}}, {<<"bytes=,1-2,">>, {1, 2}},
                           {<<"bytes=0000000000000000000000001-2">>, {1, 2}},
                           {<<"bytes=3-99999999999999999999999999">>, {3, 7}},
                           {<<"bytes=-99999999999999999999999999">>, {0, 10}}]].

%% In the order asked for; joined and sorted where one overlaps or touches another.
many_ranges(_Config) ->
    [?assertEqual({Value, {ok, Pieces}}, {Value, erlane_http_range:select(Value, 10)})
     || {Value, Pieces} <- [{<<"bytes=0-0,2-2">>, [{0, 1}, {2, 1}]},
                            {<<"bytes=7-8,2-3">>, [{7, 2}, {2, 2}]},
                            {<<"bytes=0-0 ,\t-1">>, [{0, 1}, {9, 1}]},
                            {<<"bytes=0-0,20-30">>, [{0, 1}]},
                            {<<"bytes=0-0,-0">>, [{0, 1}]},
                            {<<"bytes=0-3,2-5">>, [{0, 6}]},
                            {<<"bytes=4-5,0-3">>, [{0, 6}]},
                            {<<"bytes=0-9,2-3">>, [{0, 10}]},
                            {<<"bytes=8-9,0-0,1-1">>, [{0, 2}, {8, 2}]},
                            {<<"bytes=5-6,0-1,5-6">>, [{0, 2}, {5, 2}]}]].

ignored_ranges(_Config) ->
    [?assertEqual({Value, ignore}, {Value, erlane_http_range:select(Value, 10)})
     || Value <- [<<>>, <<"bytes">>, <<"bytes=">>, <<"bytes=,">>, <<"bytes=-">>, <<"bytes=1">>,
                  <<"bytes=a-b">>, <<"bytes=1-b">>, <<"bytes=3-2">>, <<"bytes=1--2">>,
                  <<"bytes=+1-2">>, <<"bytes=1-2-3">>, <<"bytes=0x1-2">>, <<"bytes=1 - 2">>,
                  <<"bytes =1-2">>, <<"lines=1-2">>, <<"1-2">>, <<"bytes=1-2,x">>,
                  <<"bytes=99999999999999999999-1">>, <<"bytes:1-2">>,
                  <<255, "=1-2">>, <<"bytes=", 255, "-2">>]],
    %% There is nothing to cut from an empty file.
    [?assertEqual(ignore, erlane_http_range:select(Value, 0))
     || Value <- [<<"bytes=0-">>, <<"bytes=-5">>, <<"bytes=5-6">>]].

unsatisfiable_ranges(_Config) ->
    [?assertEqual({Value, unsatisfiable}, {Value, erlane_http_range:select(Value, 10)})
     || Value <- [<<"bytes=10-">>, <<"bytes=10-11">>, <<"bytes=-0">>, <<"bytes=99-,100-101">>,
                  <<"bytes=99999999999999999999-">>,
                  <<"bytes=99999999999999999999-99999999999999999999">>]],
    ?assertEqual(<<"bytes */10">>, erlane_http_range:content_range(unsatisfiable, 10)),
    ?assertEqual(<<"bytes 2-5/10">>, erlane_http_range:content_range({2, 4}, 10)).

%% Sixteen are served, with seventeen the header is ignored; empty ones do not count.
range_limits(_Config) ->
    Set = fun(N) -> lists:join(",", [[integer_to_list(2 * I), "-", integer_to_list(2 * I)]
                                     || I <- lists:seq(1, N)]) end,
    Select = fun(Text) -> erlane_http_range:select(iolist_to_binary(["bytes=", Text]), 1000) end,
    {ok, Pieces} = Select(Set(16)),
    ?assertEqual([{2 * I, 1} || I <- lists:seq(1, 16)], Pieces),
    ?assertEqual(ignore, Select(Set(17))),
    ?assertEqual({ok, Pieces}, Select([Set(16), lists:duplicate(50, $,)])).

ranges_are_within(_Config) -> check(prop_erlane_http_content:prop_ranges_are_within()).
multipart_length(_Config) -> check(prop_erlane_http_content:prop_multipart_length()).

check(Property) ->
    true = proper:quickcheck(Property, [{numtests, 1000}, {to_file, user}, nocolors]).

names(_Config) ->
    [?assertEqual({Segments, Answer}, {Segments, erlane_http_file_path:names(Segments, false)})
     || {Segments, Answer} <-
            [{[], {ok, [], true}}, {[<<"a">>], {ok, [<<"a">>], false}},
             {[<<"a">>, <<"b">>, <<>>], {ok, [<<"a">>, <<"b">>], true}},
             {[<<"a b">>, <<"..c">>], error}, {[<<"c..">>], {ok, [<<"c..">>], false}},
             {[<<"\\..\\x">>], {ok, [<<"\\..\\x">>], false}}]],
    [?assertEqual({Segments, error}, {Segments, erlane_http_file_path:names(Segments, true)})
     || Segments <- [[<<"..">>], [<<".">>], [<<"a">>, <<"..">>, <<"b">>], [<<"a">>, <<"..">>],
                     [<<>>, <<"a">>], [<<"a">>, <<>>, <<"b">>], [<<>>, <<>>], [<<"a/b">>],
                     [<<"../x">>], [<<"a", 0>>], [<<0>>], [<<"/">>]]],
    ?assertEqual({ok, [<<".a">>, <<"...">>], false},
                 erlane_http_file_path:names([<<".a">>, <<"...">>], true)),
    ?assertEqual(error, erlane_http_file_path:names([<<"a">>, <<".a">>], false)).

encoded_names(_Config) ->
    ?assertEqual(<<"a-Z_0.~">>, erlane_http_file_path:encode(<<"a-Z_0.~">>)),
    ?assertEqual(<<"%20%25%2F%3A%3F%23%26%22%27%3C%5C%C3%A9%00">>,
                 erlane_http_file_path:encode(<<" %/:?#&\"'<\\", 16#E9/utf8, 0>>)).

%% What may not be read is told from what is not there; what is no file is not there.
errors_of_files(_Config) ->
    [?assertEqual({Posix, Why}, {Posix, erlane_http_file_path:why(Posix)})
     || {Posix, Why} <- [{eacces, forbidden}, {eperm, forbidden}, {enoent, not_found},
                         {enotdir, not_found}, {eloop, not_found}, {enametoolong, not_found},
                         {badarg, not_found}, {emfile, busy}, {enfile, busy}, {eio, broken}]].

types(_Config) ->
    [?assertEqual({Name, Type}, {Name, erlane_http_mime:type(Name)})
     || {Name, Type} <- [{<<"a.html">>, <<"text/html; charset=utf-8">>},
                         {"a.HTML", <<"text/html; charset=utf-8">>},
                         {<<"/x.d/a.tar.gz">>, <<"application/gzip">>},
                         {<<"/x.html/a">>, <<"application/octet-stream">>},
                         {<<"a.">>, <<"application/octet-stream">>},
                         {<<"a">>, <<"application/octet-stream">>},
                         {<<"a.exe">>, <<"application/octet-stream">>},
                         {<<"a.", 255, 254>>, <<"application/octet-stream">>},
                         {<<".svg">>, <<"application/octet-stream">>},
                         {<<"a.svg">>, <<"image/svg+xml">>}]].
