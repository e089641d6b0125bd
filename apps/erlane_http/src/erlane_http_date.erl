%% SPDX-License-Identifier: Apache-2.0
%% @doc Dates of HTTP (RFC 9110 section 5.6.7), and the text of now, which is made at most once a
%% second on each scheduler.
-module(erlane_http_date).

-export([create/0, now/1, format/1, parse/1]).

-define(TABLE, ?MODULE).
-define(EPOCH, 62167219200). % 1970-01-01 in seconds since year 0
-define(SECOND, 1000000000).

%% @doc Makes the table of the texts; the caller owns it.
-spec create() -> ok.
create() ->
    _ = ets:new(?TABLE, [named_table, public, {read_concurrency, true},
                         {write_concurrency, true}]),
    ok.

%% @doc The date as a field's value, and until when it is right, on the clock that Now was read
%% from: `erlang:monotonic_time(nanosecond)'.
-spec now(integer()) -> {Until :: integer(), binary()}.
now(Now) ->
    Id = erlang:system_info(scheduler_id),
    try ets:lookup(?TABLE, Id) of
        [{_, Until, Text}] when Now < Until, Now >= Until - ?SECOND -> {Until, Text};
        _ ->
            {Until, Text} = Made = made(),
            true = ets:insert(?TABLE, {Id, Until, Text}),
            Made
    catch
        %% A listener of somebody else's supervisor may outlive this application.
        error:badarg -> made()
    end.

made() ->
    System = erlang:system_time(nanosecond),
    Until = erlang:monotonic_time(nanosecond) + ?SECOND - System rem ?SECOND,
    {Until, format(System div ?SECOND)}.

%% @doc Seconds since 1970 as an IMF-fixdate, `Sun, 06 Nov 1994 08:49:37 GMT'.
-spec format(integer()) -> binary().
format(Seconds) ->
    {{Year, Month, Day} = Date, {H, M, S}} =
        calendar:gregorian_seconds_to_datetime(Seconds + ?EPOCH),
    <<(day(calendar:day_of_the_week(Date)))/binary, ", ", (two(Day))/binary, " ",
      (month(Month))/binary, " ", (two(Year div 100))/binary, (two(Year rem 100))/binary, " ",
      (two(H))/binary, ":", (two(M))/binary, ":", (two(S))/binary, " GMT">>.

two(N) -> <<($0 + N div 10), ($0 + N rem 10)>>.

day(1) -> <<"Mon">>;
day(2) -> <<"Tue">>;
day(3) -> <<"Wed">>;
day(4) -> <<"Thu">>;
day(5) -> <<"Fri">>;
day(6) -> <<"Sat">>;
day(7) -> <<"Sun">>.

month(N) -> binary:part(<<"JanFebMarAprMayJunJulAugSepOctNovDec">>, (N - 1) * 3, 3).

%% @doc Reads the three forms there are: IMF-fixdate, that of RFC 850, that of asctime. The name
%% of the day is not held against the date.
-spec parse(binary()) -> {ok, Seconds :: integer()} | error.
parse(<<_:3/binary, ", ", D:2/binary, " ", Mon:3/binary, " ", Y:4/binary, " ", Time:8/binary,
        " GMT">>) ->
    seconds(number(Y), Mon, number(D), Time);
parse(<<_:3/binary, " ", Mon:3/binary, " ", D:2/binary, " ", Time:8/binary, " ", Y:4/binary>>) ->
    Day = case D of
              <<" ", One/binary>> -> One;
              _ -> D
          end,
    seconds(number(Y), Mon, number(Day), Time);
parse(Text) ->
    case binary:split(Text, <<", ">>) of
        [_, <<D:2/binary, "-", Mon:3/binary, "-", Y:2/binary, " ", Time:8/binary, " GMT">>] ->
            seconds(century(number(Y)), Mon, number(D), Time);
        _ -> error
    end.

%% Two digits that would be more than 50 years ahead are of the last century.
century(error) -> error;
century(Y) ->
    {{This, _, _}, _} = calendar:universal_time(),
    case This - This rem 100 + Y of
        Year when Year > This + 50 -> Year - 100;
        Year -> Year
    end.

seconds(Y, Mon, D, <<H:2/binary, ":", M:2/binary, ":", S:2/binary>>)
  when is_integer(Y), is_integer(D) ->
    Month = month_number(Mon, 1),
    case {number(H), number(M), number(S)} of
        {Hour, Min, Sec} when Month =< 12, is_integer(Hour), Hour < 24, is_integer(Min),
                              Min < 60, is_integer(Sec), Sec =< 60 ->
            case calendar:valid_date(Y, Month, D) of
                true ->
                    Midnight = calendar:datetime_to_gregorian_seconds({{Y, Month, D}, {0, 0, 0}}),
                    {ok, Midnight - ?EPOCH + Hour * 3600 + Min * 60 + Sec};
                false -> error
            end;
        _ -> error
    end;
seconds(_, _, _, _) ->
    error.

month_number(_, 13) -> 13;
month_number(Name, N) ->
    case month(N) of
        Name -> N;
        _ -> month_number(Name, N + 1)
    end.

number(Digits) -> number(Digits, 0).

number(<<D, Rest/binary>>, N) when D >= $0, D =< $9 -> number(Rest, N * 10 + D - $0);
number(<<>>, N) -> N;
number(_, _) -> error.
