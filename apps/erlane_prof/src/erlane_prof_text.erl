%% SPDX-License-Identifier: Apache-2.0
%% Functions, labels and amounts of a profile as text, the same in every format. Pure.
-module(erlane_prof_text).

-export([name/1, clean/1, roots/1, amount/2, share/2, table/1, json/1]).

-export_type([json/0]).

-type json() :: binary() | number() | atom() | [json()] | #{atom() | binary() => json()}
              | {raw, iodata()}.

%% A function as it is written in Erlang, `lists:map/2'; a symbol that is not Erlang's as it is.
-spec name(erlane_prof_profile:code()) -> binary().
name({M, F, A}) ->
    unicode:characters_to_binary(io_lib:format("~tw:~tw/~b", [M, F, A]));
name(Symbol) -> clean(Symbol).

%% Valid UTF-8 without control characters; bytes that are not are taken for Latin-1.
-spec clean(binary()) -> binary().
clean(Binary) ->
    case unicode:characters_to_binary(Binary) of
        Text when is_binary(Text) -> << <<(printable(C))/utf8>> || <<C/utf8>> <= Text >>;
        _ -> clean(unicode:characters_to_binary(Binary, latin1))
    end.

printable(C) when C < 32; C >= 127, C < 160; C =:= 16#2028; C =:= 16#2029 -> $\s;
printable(C) -> C.

%% What is put above the frames of a row where a format knows only frames: its state, if it has
%% one, and its process.
-spec roots(erlane_prof_profile:row()) -> [binary()].
roots(#{state := any, proc := Proc}) -> [clean(Proc)];
roots(#{state := State, proc := Proc}) -> [<<"[", (atom_to_binary(State))/binary, "]">>,
                                           clean(Proc)].

%% An amount in its unit, for people: `12,345', `1.25 ms', `3.1 MiB', `12.0 Mwords'.
-spec amount(number(), erlane_prof_profile:unit()) -> iolist().
amount(N, count) -> thousands(round(N));
amount(N, nanoseconds) -> scaled(N, [{1.0e9, " s"}, {1.0e6, " ms"}, {1.0e3, " us"}, {1, " ns"}]);
amount(N, bytes) ->
    scaled(N, [{1 bsl 30, " GiB"}, {1 bsl 20, " MiB"}, {1 bsl 10, " KiB"}, {1, " B"}]);
amount(N, words) ->
    scaled(N, [{1.0e9, " Gwords"}, {1.0e6, " Mwords"}, {1.0e3, " kwords"}, {1, " words"}]).

scaled(N, [{1, Unit}]) -> [integer_to_list(round(N)), Unit];
scaled(N, [{Size, Unit} | More]) ->
    case abs(N) >= Size of
        true -> [io_lib:format("~.2f", [N / Size]), Unit];
        false -> scaled(N, More)
    end.

thousands(N) when N < 0 -> [$- | thousands(-N)];
thousands(N) when N < 1000 -> integer_to_list(N);
thousands(N) -> [thousands(N div 1000), io_lib:format(",~3..0b", [N rem 1000])].

%% A part in percent of a whole, which may be nothing.
-spec share(number(), number()) -> iolist().
share(_, 0) -> "0.0%";
share(Part, Whole) -> io_lib:format("~.1f%", [100 * Part / Whole]).

%% Rows of ASCII cells as lines: figures to the right, the last cell as it is. At least one row.
-spec table([[iodata()], ...]) -> iolist().
table([First | _] = Rows) ->
    Widths = lists:foldl(fun(Row, Acc) ->
                                 [max(iolist_size(Cell), W) || {Cell, W} <- lists:zip(Row, Acc)]
                         end, [0 || _ <- First], Rows),
    [line(Row, Widths) || Row <- Rows].

line([Name], [_]) -> [$\s, $\s, Name, $\n];
line([Cell | Cells], [Width | Widths]) ->
    [lists:duplicate(Width - iolist_size(Cell) + 2, $\s), Cell | line(Cells, Widths)].

%% JSON that is also safe inside a script of a page: `<' is never written as such.
-spec json(json()) -> iodata().
json({raw, Written}) -> Written;
json(Map) when is_map(Map) ->
    Members = [[json(key(K)), $:, json(V)] || {K, V} <- lists:sort(maps:to_list(Map))],
    [${, lists:join($,, Members), $}];
json(List) when is_list(List) -> [$[, lists:join($,, [json(V) || V <- List]), $]];
json(N) when is_integer(N) -> integer_to_binary(N);
json(N) when is_float(N) -> io_lib:format("~.6f", [N]);
json(Word) when is_boolean(Word); Word =:= null -> atom_to_binary(Word);
json(Atom) when is_atom(Atom) -> json(atom_to_binary(Atom));
json(Text) when is_binary(Text) -> [$", << <<(escape(C))/binary>> || <<C/utf8>> <= clean(Text) >>,
                                    $"].

key(K) when is_atom(K) -> atom_to_binary(K);
key(K) -> K.

escape($") -> <<"\\\"">>;
escape($\\) -> <<"\\\\">>;
escape($<) -> <<"\\u003c">>;
escape(C) -> <<C/utf8>>.
