%% SPDX-License-Identifier: Apache-2.0
%% @doc The page with the names in a directory. A name may hold any bytes but a slash and NUL,
%% and whoever may create files chooses it: nothing of it reaches the page unescaped.
-module(erlane_http_file_list).

-export([page/3]).

-include_lib("kernel/include/file.hrl").

%% More names than this are left out, and the page says so.
-define(MAX_NAMES, 5000).

%% @doc The page for the directory at Path, which is called by these names.
-spec page(binary(), [binary()], Dotfiles :: boolean()) ->
          {ok, iodata()} | {error, erlane_http_file_path:why()}.
page(Path, Names, Dotfiles) ->
    case file:list_dir_all(Path) of
        {ok, Listed} ->
            All = lists:sort([Bytes || Name <- Listed, Bytes <- [bytes(Name)],
                                       Dotfiles orelse binary:first(Bytes) =/= $.]),
            {ok, page(Path, Names, lists:sublist(All, ?MAX_NAMES), length(All))};
        {error, Why} ->
            {error, erlane_http_file_path:why(Why)}
    end.

bytes(Name) when is_binary(Name) -> Name;
bytes(Name) -> unicode:characters_to_binary(Name, unicode, file:native_name_encoding()).

page(Path, Names, Shown, Count) ->
    Title = [[$/, text(Name)] || Name <- Names],
    ["<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
     "<meta name=\"viewport\" content=\"width=device-width\">\n"
     "<title>", Title, "/</title></head>\n<body><h1>", Title, "/</h1>\n<ul>\n",
     [["<li><a href=\"../\">../</a></li>\n"] || Names =/= []],
     [entry(Path, Name) || Name <- Shown],
     "</ul>\n",
     [["<p>", integer_to_binary(Count - ?MAX_NAMES), " more</p>\n"] || Count > ?MAX_NAMES],
     "</body></html>\n"].

%% Where a link leads is looked at when it is asked for, not here.
entry(Path, Name) ->
    Slash = case file:read_link_info(<<Path/binary, "/", Name/binary>>, [raw]) of
                {ok, #file_info{type = directory}} -> "/";
                _ -> ""
            end,
    ["<li><a href=\"", erlane_http_file_path:encode(Name), Slash, "\">", text(Name), Slash,
     "</a></li>\n"].

%% Bytes that are no text are shown as question marks; the link has them all.
text(Name) ->
    Valid = case unicode:characters_to_binary(Name) of
                Name -> Name;
                _ -> << <<(if B < 128 -> B; true -> $? end)>> || <<B>> <= Name >>
            end,
    << <<(escape(B))/binary>> || <<B>> <= Valid >>.

escape($<) -> <<"&lt;">>;
escape($>) -> <<"&gt;">>;
escape($&) -> <<"&amp;">>;
escape($") -> <<"&quot;">>;
escape($') -> <<"&#39;">>;
escape(B) when B < 32; B =:= 127 -> <<"?">>;
escape(B) -> <<B>>.
