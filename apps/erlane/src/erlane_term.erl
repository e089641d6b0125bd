%% SPDX-License-Identifier: Apache-2.0
%% @doc The terminal: keys, size, the screen.
%%
%% bin/erlane has switched it to single keys before this VM began, and puts it back after its
%% end, however that comes. Here is only what cannot be left to it: reading descriptor 0, which
%% nobody else does with -noinput, and the alternate screen.
-module(erlane_term).

-export([open/0, close/1, write/1, size/0, colours/0, keys/1]).

-export_type([key/0]).

-type key() :: char() | up | down | page_up | page_down | home | 'end' | enter | escape.

%% @doc Begins a screen. Keys come as `{Port, {data, Bytes}}', their end as `{Port, eof}'.
-spec open() -> port().
open() ->
    Port = open_port({fd, 0, 0}, [in, binary, eof]),
    %% Alternate screen, no cursor.
    write("\e[?1049h\e[?25l\e[2J"),
    Port.

%% @doc Gives the screen back, and the descriptor its blocking mode.
-spec close(port()) -> ok.
close(Port) ->
    write("\e[?25h\e[?1049l"),
    try port_close(Port) of
        true -> ok
    catch
        error:badarg -> ok
    end.

%% @doc Writes to the terminal.
-spec write(iodata()) -> ok.
write(Text) ->
    io:put_chars(standard_io, Text).

%% @doc Columns and lines. There is no signal for a change that all releases could tell of.
-spec size() -> {Width :: pos_integer(), Height :: pos_integer()}.
size() ->
    Answer = case os:getenv("ERLANE_TERMINAL", "") of
                 [$/ | _] = Path -> os:cmd("stty size 2>/dev/null <'" ++ Path ++ "'");
                 _ -> ""
             end,
    case [string:to_integer(N) || N <- string:lexemes(Answer, " \n")] of
        [{Height, ""}, {Width, ""}] when Height > 0, Width > 0 -> {Width, Height};
        _ -> {number("COLUMNS", 80), number("LINES", 24)}
    end.

number(Name, Default) ->
    case string:to_integer(os:getenv(Name, "")) of
        {N, ""} when N > 0 -> N;
        _ -> Default
    end.

%% @doc Whether colours are wanted: not if NO_COLOR is set to anything, see no-color.org.
-spec colours() -> boolean().
colours() ->
    os:getenv("NO_COLOR", "") =:= "" andalso os:getenv("TERM", "dumb") =/= "dumb".

%% @doc Keys from bytes, and the bytes of a key that is not whole yet. A terminal sends the bytes
%% of a key together: an escape that is the last byte is the key of this name.
-spec keys(binary()) -> {[key()], Rest :: binary()}.
keys(Bytes) ->
    keys(Bytes, []).

keys(<<"\e[", Rest/binary>>, Keys) -> sequence(Rest, <<>>, Keys);
keys(<<"\eO", C, Rest/binary>>, Keys) -> keys(Rest, named(<<C>>) ++ Keys);
keys(<<"\eO">>, Keys) -> {lists:reverse(Keys), <<"\eO">>};
keys(<<"\e", Rest/binary>>, Keys) -> keys(Rest, [escape | Keys]);
keys(<<C, Rest/binary>>, Keys) when C =:= $\r; C =:= $\n -> keys(Rest, [enter | Keys]);
keys(<<C, Rest/binary>>, Keys) -> keys(Rest, [C | Keys]);
keys(<<>>, Keys) -> {lists:reverse(Keys), <<>>}.

%% A sequence ends with a byte from @ to ~; before it are digits and punctuation, not many.
sequence(<<C, Rest/binary>>, Seen, Keys) when C >= $@, C =< $~ ->
    keys(Rest, named(<<Seen/binary, C>>) ++ Keys);
sequence(<<C, Rest/binary>>, Seen, Keys) when C >= $\s, C < $@, byte_size(Seen) < 16 ->
    sequence(Rest, <<Seen/binary, C>>, Keys);
sequence(<<>>, Seen, Keys) ->
    {lists:reverse(Keys), <<"\e[", Seen/binary>>};
sequence(Rest, _Seen, Keys) ->
    keys(Rest, Keys).

named(<<"A">>) -> [up];
named(<<"B">>) -> [down];
named(<<"H">>) -> [home];
named(<<"F">>) -> ['end'];
named(<<"1~">>) -> [home];
named(<<"4~">>) -> ['end'];
named(<<"5~">>) -> [page_up];
named(<<"6~">>) -> [page_down];
named(<<"M">>) -> [enter];
named(_) -> [].
