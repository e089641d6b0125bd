%% SPDX-License-Identifier: Apache-2.0
%% @doc From the path of a request to a file under a root, and to nothing else.
%%
%% Two steps: names/2 judges the text alone; resolve/2 asks the file system and follows
%% symbolic links only to where they stay under the root. Between that look and the opening of
%% the file somebody who may write under the root could still exchange a directory for a link:
%% such people are trusted.
-module(erlane_http_file_path).

-export([names/2, resolve/2, why/1, encode/1]).

-include_lib("kernel/include/file.hrl").

-export_type([why/0]).

-type why() :: not_found | forbidden | busy | broken.
%% forbidden: it is there and we may not read it. busy: no descriptors left. broken: an error
%% of the file system.

%% As many as Linux follows.
-define(MAX_LINKS, 40).

%% @doc The names in a path's decoded segments (erlane_http:path/1), and whether it ended with a
%% slash. Empty names, `.' and `..', names with a slash or NUL that was encoded, and names that
%% begin with a dot unless these are wanted, are `error': no file is meant by them.
-spec names([binary()], Dotfiles :: boolean()) ->
          {ok, [binary()], EndsWithSlash :: boolean()} | error.
names([], _Dotfiles) -> {ok, [], true};
names(Segments, Dotfiles) -> names(Segments, Dotfiles, []).

names([<<>>], _Dotfiles, Acc) ->
    {ok, lists:reverse(Acc), true};
names([], _Dotfiles, Acc) ->
    {ok, lists:reverse(Acc), false};
names([Name | Rest], Dotfiles, Acc) ->
    case is_name(Name, Dotfiles) of
        true -> names(Rest, Dotfiles, [Name | Acc]);
        false -> error
    end.

is_name(<<>>, _) -> false;
is_name(<<".">>, _) -> false;
is_name(<<"..">>, _) -> false;
is_name(<<".", _/binary>>, false) -> false;
is_name(Name, _) -> binary:match(Name, [<<"/">>, <<0>>]) =:= nomatch.

%% @doc What is at these names under Root, links followed; only a file or a directory.
-spec resolve(file:name_all(), [binary()]) ->
          {file | directory, binary()} | {error, why()}.
resolve(Root, Names) ->
    Path = bytes(filename:absname(Root)),
    walk(Path, Names, Path, Names).

%% A binary is a name as the file system has it.
bytes(Name) when is_binary(Name) -> Name;
bytes(Name) -> unicode:characters_to_binary(Name, unicode, file:native_name_encoding()).

%% Without a link on the way the path is under the root by its text.
walk(Path, Left, Root, Names) ->
    case {look(Path), Left} of
        {{ok, directory}, [Name | Rest]} ->
            walk(<<Path/binary, "/", Name/binary>>, Rest, Root, Names);
        {{ok, directory}, []} -> {directory, Path};
        {{ok, regular}, []} -> {file, Path};
        {{ok, symlink}, _} -> linked(Root, Names);
        {{ok, _}, _} -> {error, not_found};
        {{error, Why}, _} -> {error, why(Why)}
    end.

%% With one both the root and the file are brought to paths without links, and compared.
linked(Root, Names) ->
    case real(tl(filename:split(Root)), [<<"/">>], 0, {ok, directory}) of
        {ok, RealRoot, _} ->
            case real(tl(RealRoot) ++ Names, [<<"/">>], 0, {ok, directory}) of
                {ok, Real, Type} -> inside(lists:prefix(RealRoot, Real), Type, Real);
                {error, _} = Error -> Error
            end;
        {error, _} = Error ->
            Error
    end.

inside(true, regular, Real) -> {file, filename:join(Real)};
inside(true, directory, Real) -> {directory, filename:join(Real)};
inside(_, _, _) -> {error, not_found}.

real([], Done, _Links, {ok, Type}) ->
    {ok, lists:reverse(Done), Type};
real([<<".">> | Rest], Done, Links, {ok, directory} = Is) ->
    real(Rest, Done, Links, Is);
real([<<"..">> | Rest], Done, Links, {ok, directory} = Is) ->
    real(Rest, parent(Done), Links, Is);
real([Name | Rest], Done, Links, {ok, directory}) ->
    Path = filename:join(lists:reverse([Name | Done])),
    case look(Path) of
        {ok, symlink} when Links < ?MAX_LINKS -> follow(Path, Rest, Done, Links + 1);
        {ok, symlink} -> {error, not_found};
        {ok, Type} -> real(Rest, [Name | Done], Links, {ok, Type});
        {error, Why} -> {error, why(Why)}
    end;
real(_, _, _, {ok, _}) ->
    {error, not_found}.

parent([<<"/">>]) -> [<<"/">>];
parent([_ | Done]) -> Done.

follow(Path, Rest, Done, Links) ->
    case file:read_link_all(Path) of
        {ok, Target} ->
            case filename:split(bytes(Target)) of
                [<<"/">> | Names] -> real(Names ++ Rest, [<<"/">>], Links, {ok, directory});
                Names -> real(Names ++ Rest, Done, Links, {ok, directory})
            end;
        {error, Why} ->
            {error, why(Why)}
    end.

look(Path) ->
    case file:read_link_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{type = Type}} -> {ok, Type};
        {error, _} = Error -> Error
    end.

%% @doc What an error of the file system means to who asked for the file.
-spec why(atom()) -> why().
why(eacces) -> forbidden;
why(eperm) -> forbidden;
why(Why) when Why =:= emfile; Why =:= enfile; Why =:= enomem -> busy;
why(Why) when Why =:= enoent; Why =:= enotdir; Why =:= eloop; Why =:= enametoolong;
              Why =:= badarg; Why =:= einval -> not_found;
why(_) -> broken.

%% @doc A name as a segment of a path: all but letters, digits and `-._~' as `%XX'.
-spec encode(binary()) -> binary().
encode(Name) ->
    << <<(encode_byte(Byte))/binary>> || <<Byte>> <= Name >>.

encode_byte(B) when B >= $a, B =< $z; B >= $A, B =< $Z; B >= $0, B =< $9;
                    B =:= $-; B =:= $.; B =:= $_; B =:= $~ -> <<B>>;
encode_byte(B) -> <<$%, (hex(B bsr 4)), (hex(B band 15))>>.

hex(D) when D < 10 -> $0 + D;
hex(D) -> $A + D - 10.
