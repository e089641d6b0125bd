%% SPDX-License-Identifier: Apache-2.0
%% Profiles and files: the ending picks the format. A file is complete or not there at all.
-module(erlane_prof_file).

-export([write/2, write/3, read/1, format/1, formats/0, encode/2, error_text/1]).

-export_type([format/0]).

-type format() :: flame | callgrind | collapsed | speedscope | pprof | top | profile.

%% The formats with the endings of their files and what they are for.
-spec formats() -> [{format(), [string()], Purpose :: string()}].
formats() ->
    [{flame, [".html"], "flame graph or histograms, a page for any browser"},
     {callgrind, [".callgrind", ".cgrind"], "kcachegrind; also a name callgrind.out.*"},
     {collapsed, [".collapsed", ".folded"], "a line for each stack"},
     {speedscope, [".speedscope.json", ".json"], "speedscope"},
     {pprof, [".pb.gz", ".pprof"], "go tool pprof"},
     {profile, [".erlprof"], "to be read again, as for a difference"},
     {top, [".txt"], "table of functions"}].

%% The format that the name of a file asks for.
-spec format(file:name_all()) -> {ok, format()} | {error, {ending, string()}}.
format(File) ->
    Name = string:lowercase(filename:basename(unicode:characters_to_list(File))),
    Fits = [Format || {Format, Endings, _} <- formats(),
                      Ending <- Endings, lists:suffix(Ending, Name)],
    case {Fits, Name} of
        {[Format | _], _} -> {ok, Format};
        {[], "callgrind.out" ++ _} -> {ok, callgrind};
        {[], _} -> {error, {ending, filename:extension(Name)}}
    end.

%% Writes a profile in the format of the file's ending.
-spec write(erlane_prof_profile:profile(), file:name_all()) -> ok | {error, term()}.
write(Profile, File) ->
    case format(File) of
        {ok, Format} -> write(Profile, File, Format);
        {error, _} = Error -> Error
    end.

%% Writes a profile; what was there is replaced. The directory must exist.
-spec write(erlane_prof_profile:profile(), file:name_all(), format()) ->
          ok | {error, {write, file:name_all(), file:posix() | badarg | terminated}}.
write(Profile, File, Format) ->
    Part = [File, ".part", os:getpid()],
    case file:write_file(Part, encode(Profile, Format)) of
        ok ->
            case file:rename(Part, File) of
                ok -> ok;
                {error, Why} -> failed(Part, File, Why)
            end;
        {error, Why} -> failed(Part, File, Why)
    end.

failed(Part, File, Why) ->
    _ = file:delete(Part),
    {error, {write, File, Why}}.

%% The bytes of a file.
-spec encode(erlane_prof_profile:profile(), format()) -> iodata().
encode(#{latency := _} = Profile, flame) -> erlane_prof_latency_page:format(Profile);
encode(Profile, flame) -> erlane_prof_flame:format(Profile);
encode(Profile, callgrind) -> erlane_prof_callgrind:format(Profile);
encode(Profile, collapsed) -> erlane_prof_collapsed:format(Profile);
encode(Profile, speedscope) -> erlane_prof_speedscope:format(Profile);
encode(Profile, pprof) -> erlane_prof_pprof:format(Profile);
encode(Profile, profile) -> erlane_prof_stored:encode(Profile);
encode(Profile, top) -> erlane_prof_top:format(Profile).

%% Reads a file of format `profile'; no other has everything.
-spec read(file:name_all()) ->
          {ok, erlane_prof_profile:profile()} | {error, {read, term(), term()}}.
read(File) ->
    case file:read_file(File) of
        {ok, Bytes} ->
            case erlane_prof_stored:decode(Bytes) of
                {ok, Profile} -> {ok, Profile};
                {error, Why} -> {error, {read, File, Why}}
            end;
        {error, Why} -> {error, {read, File, Why}}
    end.

%% An error of this module in words.
-spec error_text(term()) -> iolist().
error_text({ending, Ending}) ->
    Known = lists:join(", ", lists:append([Endings || {_, Endings, _} <- formats()])),
    io_lib:format("no format has the ending \"~ts\"; known are ~ts", [Ending, Known]);
error_text({Doing, File, Why}) when Doing =:= read; Doing =:= write ->
    io_lib:format("cannot ~s ~ts: ~ts", [Doing, File, reason(Why)]).

reason(not_a_profile) -> "not a profile that erlane has stored (.erlprof)";
reason(damaged) -> "the profile is damaged or cut off";
reason(too_large) -> "the profile is too large";
reason(too_many_names) -> "the profile has more names than atoms may be made of it";
reason({version, Version}) -> ["stored by another version of erlane, ", Version];
reason(Why) when is_atom(Why) -> file:format_error(Why).
