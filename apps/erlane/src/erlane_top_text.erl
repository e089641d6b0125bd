%% SPDX-License-Identifier: Apache-2.0
%% @doc Pieces of text of a width: figures, cells, lines. Pure.
%%
%% A line is a list of pieces, each with a style; only {@link ansi/2} knows what a style looks
%% like. All text is printable ASCII, so that a character is a column.
-module(erlane_top_text).

-export([count/1, bytes/1, percent/1, decimal/1, span/1, plain/1, left/2, right/2]).
-export([fit/2, width/1, fill/3, join/2, text/1, ansi/2]).

-export_type([line/0, style/0]).

-type style() :: plain | title | dim | head | active | label | good | busy | full | bad | selected.
-type line() :: [{style(), string()}].

%% @doc At most five columns: `950', `9500', `12.3k', `1.2M'. Something that is not known is `-'.
-spec count(number() | undefined) -> string().
count(undefined) -> "-";
count(N) when N < 0 -> "-" ++ count(-N);
count(N) when N < 9999.5 -> integer_to_list(round(N));
count(N) -> scaled(N / 1000, 1000, "kMGTPE").

%% @doc As {@link count/1}, in units of 1024.
-spec bytes(number() | undefined) -> string().
bytes(undefined) -> "-";
bytes(N) when N < 1023.5 -> integer_to_list(round(N));
bytes(N) -> scaled(N / 1024, 1024, "KMGTPE").

scaled(N, Base, [_, Unit | Units]) when N >= Base - 0.5 -> scaled(N / Base, Base, [Unit | Units]);
scaled(N, _Base, [Unit | _]) when N < 99.95 -> decimal(N) ++ [Unit];
scaled(N, _Base, [Unit | _]) -> integer_to_list(round(N)) ++ [Unit].

%% @doc A share as percent: `0.123' is `12.3%'.
-spec percent(number() | undefined) -> string().
percent(undefined) -> "-";
percent(Share) when Share < 0.9995 -> decimal(Share * 100) ++ "%";
percent(Share) -> integer_to_list(round(Share * 100)) ++ "%".

%% @doc One decimal.
-spec decimal(number()) -> string().
decimal(N) -> float_to_list(float(N), [{decimals, 1}]).

%% @doc Milliseconds as days and time.
-spec span(non_neg_integer()) -> string().
span(Ms) ->
    Seconds = Ms div 1000,
    {Days, {H, M, S}} = {Seconds div 86400, calendar:seconds_to_time(Seconds rem 86400)},
    flat([[io_lib:format("~bd ", [Days]) || Days > 0],
          io_lib:format("~2..0b:~2..0b:~2..0b", [H, M, S])]).

%% @doc Text with a `?' for whatever is not printable ASCII. Text from a node may be anything,
%% and sequences that move the cursor among it.
-spec plain(unicode:chardata() | atom()) -> string().
plain(Atom) when is_atom(Atom) ->
    plain(atom_to_list(Atom));
plain(Text) ->
    case unicode:characters_to_list(Text) of
        List when is_list(List) -> [ascii(C) || C <- List];
        _ -> [ascii(C) || <<C>> <= iolist_to_binary(Text)]
    end.

ascii(C) when C >= $\s, C < 127 -> C;
ascii(_) -> $?.

%% @doc Text at the left, or at the right, of exactly so many columns. What is cut off at the end
%% leaves a `+'.
-spec left(string(), non_neg_integer()) -> string().
left(Text, Width) -> pad(Text, Width, length(Text), left).

%% @doc See {@link left/2}.
-spec right(string(), non_neg_integer()) -> string().
right(Text, Width) -> pad(Text, Width, length(Text), right).

pad(_Text, Width, _Length, _Side) when Width =< 0 -> "";
pad(Text, Width, Length, _Side) when Length > Width -> lists:sublist(Text, Width - 1) ++ "+";
pad(Text, Width, Length, left) -> Text ++ lists:duplicate(Width - Length, $\s);
pad(Text, Width, Length, right) -> lists:duplicate(Width - Length, $\s) ++ Text.

%% @doc The columns a line takes.
-spec width(line()) -> non_neg_integer().
width(Line) -> lists:sum([length(Text) || {_, Text} <- Line]).

%% @doc The line, cut to a width.
-spec fit(line(), non_neg_integer()) -> line().
fit([{Style, Text} | Rest], Width) when length(Text) =< Width ->
    [{Style, Text} | fit(Rest, Width - length(Text))];
fit([{Style, Text} | _], Width) when Width > 0 ->
    [{Style, lists:sublist(Text, Width)}];
fit(_, _) ->
    [].

%% @doc A line and its end at the right, with blanks of a style between. Where there is no room
%% for both, the end is left out.
-spec fill(line(), line(), {style(), non_neg_integer()}) -> line().
fill(Line, End, {Style, Width}) ->
    case Width - width(Line) - width(End) of
        Room when Room > 0 ->
            Line ++ [{Style, lists:duplicate(Room, $\s)}] ++ End;
        _ ->
            Short = fit(Line, Width),
            Short ++ [{Style, lists:duplicate(Width - width(Short), $\s)}]
    end.

%% @doc Groups of pieces with two blanks between, and no more of them than fit as a whole.
-spec join([line()], non_neg_integer()) -> line().
join(Groups, Width) ->
    join(Groups, Width, []).

join([Group | Rest], Width, Line) ->
    Longer = Line ++ [{plain, "  "} || Line =/= []] ++ Group,
    case width(Longer) =< Width of
        true -> join(Rest, Width, Longer);
        false when Line =:= [] -> fit(Group, Width);
        false -> Line
    end;
join([], _Width, Line) ->
    Line.

%% @doc Lines as text without styles.
-spec text([line()]) -> iolist().
text(Lines) ->
    [[string:trim(flat([Text || {_, Text} <- Line]), trailing, " "), $\n] || Line <- Lines].

%% @doc Lines for a terminal, from its upper left corner on; whatever was there is overwritten.
%% Without colours there is reverse video for headings and the chosen line.
-spec ansi([line()], Colours :: boolean()) -> iolist().
ansi(Lines, Colours) ->
    ["\e[H", lists:join("\r\n", [[[piece(Piece, Colours) || Piece <- Line], "\e[K"]
                                 || Line <- Lines]), "\e[J"].

piece({_, ""}, _Colours) -> "";
piece({Style, Text}, Colours) ->
    case code(Style, Colours) of
        "" -> Text;
        Code -> ["\e[", Code, "m", Text, "\e[0m"]
    end.

code(plain, _) -> "";
code(head, true) -> "30;46";
code(active, true) -> "1;30;42";
code(selected, true) -> "30;47";
code(title, true) -> "1;36";
code(label, true) -> "36";
code(dim, true) -> "90";
code(good, true) -> "32";
code(busy, true) -> "33";
code(full, true) -> "31";
code(bad, true) -> "1;31";
code(Style, false) when Style =:= head; Style =:= active; Style =:= selected -> "7";
code(_, false) -> "".

flat(Text) -> lists:flatten(Text).
