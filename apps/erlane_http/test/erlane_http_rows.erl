%% SPDX-License-Identifier: Apache-2.0
%% @doc Runs rows of the tables of raw requests (erlane_http_cases, erlane_http_shapes) against a
%% server with erlane_http_raw_handler behind it. What holds for every answer is checked here:
%% a date, an end that was announced, no word of another request after it.
-module(erlane_http_rows).

-export([run/3, check/3, name/1, bytes/1]).
-export_type([row/0, expected/0]).

-type expected() :: 100..999 | [100..999]
                  | {100..999, Body :: binary()}
                  | {100..999, Body :: binary(), [{binary(), binary() | none}]}
                  | {head, 100..999, [{binary(), binary() | none}]}
                  | {either, expected(), expected()}
                  | {optional, expected()}
                  | cut.
%% Name, section of the RFC, what is sent, what is answered, and what becomes of the connection;
%% `either' as the last answer says.
-type row() :: {iodata(), string(), iodata(), [expected()], open | closed | either}.

-define(SMUGGLED, "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n").
-define(PROBE, "GET /probe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").

-spec name(row()) -> string().
name({Name, _, _, _, _}) -> lists:flatten(io_lib:format("~ts", [printable(Name)])).

-spec bytes(row()) -> binary().
bytes({_, _, Bytes, _, _}) -> iolist_to_binary(Bytes).

%% @doc Runs rows, each in the ways named for it, and fails with a list of all that went wrong.
-spec check(inet:port_number(), fun((row()) -> [erlane_http_raw:how()]), [row()]) -> ok.
check(Port, Hows, Rows) ->
    Failures = [{name(Row), Section, How, Why}
                || {_, Section, _, _, _} = Row <- Rows, How <- Hows(Row),
                   {failed, Why} <- [run(Port, How, Row)]],
    case Failures of
        [] -> ok;
        _ ->
            ct:pal("~b of ~b rows went wrong:~n~ts",
                   [length(lists:usort([N || {N, _, _, _} <- Failures])), length(Rows),
                    [io_lib:format("  ~ts (~ts, ~0p): ~0tP~n", [N, S, H, W, 60])
                     || {N, S, H, W} <- Failures]]),
            ct:fail({went_wrong, lists:usort([N || {N, _, _, _} <- Failures])})
    end.

%% @doc Runs one row on a connection of its own. A request after one that ends the connection
%% must not be seen by anybody.
-spec run(inet:port_number(), erlane_http_raw:how(), row()) -> ok | {failed, term()}.
run(Port, How, {_, _, Bytes, Expected, End}) ->
    _ = erlane_http_raw_handler:seen(),
    After = case is_followed(How, lists:last(Expected), End) of true -> ?SMUGGLED; false -> [] end,
    Conn = erlane_http_raw:connect(Port),
    try
        ok = expect(Expected, erlane_http_raw:feed(Conn, How, [Bytes, After]), none, End)
    catch
        throw:Why -> {failed, Why}
    after
        erlane_http_raw:close(Conn)
    end.

%% Who asked for the end and goes on sending when it has come may be answered by a reset.
is_followed(whole, _, closed) -> true;
is_followed(_, cut, closed) -> false;
is_followed(_, {200, _}, closed) -> false;
is_followed(_, {200, _, _}, closed) -> false;
is_followed(_, _, End) -> End =:= closed.

expect([cut], Conn, _Last, closed) ->
    case erlane_http_raw:answer(Conn) of
        {cut, Why, _} when Why =:= closed; Why =:= reset -> unseen();
        Other -> throw({not_cut, Other})
    end;
expect([], Conn, Last, End) ->
    ended(End, Conn, Last);
expect([{optional, Interim} | Rest], Conn, Last, End) ->
    case erlane_http_raw:answer(Conn) of
        {#{status := 100} = Answer, Next} ->
            matches(Interim, Answer),
            expect(Rest, Next, Last, End);
        Other -> judge(Rest, Other, Last, End)
    end;
expect([Expected | _] = All, Conn, Last, End) ->
    Method = case Expected of {head, _, _} -> head; _ -> get end,
    judge(All, erlane_http_raw:answer(Conn, Method), Last, End).

judge([Expected | Rest], {Answer, Next}, _Last, End) ->
    matches(Expected, Answer),
    dated(Answer),
    expect(Rest, Next, Answer, End);
judge([Expected | _], Ending, _Last, _End) ->
    throw({no_answer, Ending, expected, Expected}).

%% A client knows before that no more will come, and the end is none that loses the answer.
ended(closed, Conn, Last) ->
    case erlane_http_raw:ended(Conn) of
        closed -> announced(Last), unseen();
        Other -> throw({not_closed, Other})
    end;
ended(either, Conn, #{version := <<"HTTP/1.1">>, headers := Headers} = Last) ->
    case lists:keymember(<<"connection">>, 1, Headers) of
        true -> ended(closed, Conn, Last);
        false -> ended(open, Conn, Last)
    end;
ended(open, Conn, _Last) ->
    case erlane_http_raw:answer(erlane_http_raw:send(Conn, ?PROBE)) of
        {#{status := 200, body := <<"GET /probe x ">>}, Next} ->
            case erlane_http_raw:ended(Next) of
                closed -> unseen();
                Other -> throw({not_closed_after_probe, Other})
            end;
        Other ->
            throw({not_open, Other})
    end.

unseen() ->
    case lists:member(<<"/smuggled">>, erlane_http_raw_handler:seen()) of
        false -> ok;
        true -> throw(smuggled)
    end.

announced(#{version := <<"HTTP/1.1">>, headers := Headers}) ->
    Options = [string:lowercase(V) || {<<"connection">>, V} <- Headers],
    Options =:= [<<"close">>] orelse throw({close_not_announced, Headers});
announced(_) ->
    ok.

%% RFC 9110 6.6.1
dated(#{status := Status, headers := Headers}) when Status >= 200 ->
    Form = "\\A(Mon|Tue|Wed|Thu|Fri|Sat|Sun), [0-3][0-9] "
        "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) 2[0-9]{3} "
        "[0-2][0-9]:[0-5][0-9]:[0-6][0-9] GMT\\z",
    case [V || {<<"date">>, V} <- Headers] of
        [Date] -> re:run(Date, Form) =/= nomatch orelse throw({date, Date});
        Dates -> throw({dates, Dates})
    end;
dated(_) ->
    true.

matches(Expected, Answer) ->
    fits(Expected, Answer) orelse
        throw({expected, Expected, got, maps:with([status, headers, body, framing], Answer)}).

fits({either, A, B}, Answer) -> fits(A, Answer) orelse fits(B, Answer);
fits({head, Status, Headers}, #{status := Status} = Answer) -> headers(Headers, Answer);
fits({Status, Body}, #{status := Status, body := Body}) -> true;
fits({Status, Body, Headers}, #{status := Status, body := Body} = Answer) ->
    headers(Headers, Answer);
fits(Statuses, #{status := Status}) when is_list(Statuses) -> lists:member(Status, Statuses);
fits(Status, #{status := Status}) -> true;
fits(_, _) -> false.

headers(Expected, #{headers := Headers}) ->
    lists:all(fun({Name, none}) -> not lists:keymember(Name, 1, Headers);
                 ({Name, Value}) -> lists:keyfind(Name, 1, Headers) =:= {Name, Value}
              end, Expected).

printable(Name) ->
    [case C >= 32 andalso C < 127 of true -> C; false -> io_lib:format("\\x~2.16.0b", [C]) end
     || C <- lists:flatten(io_lib:format("~s", [Name]))].
