%% SPDX-License-Identifier: Apache-2.0
%% @doc The media type of a file, by the end of its name.
-module(erlane_http_mime).

-export([type/1]).

%% @doc The value of Content-Type for a file name. Text is taken for UTF-8; an unknown or
%% missing extension is `application/octet-stream', which browsers do not run.
-spec type(file:name_all()) -> binary().
type(Name) ->
    case filename:extension(Name) of
        [$. | Ext] -> by_extension(lower(Ext));
        <<$., Ext/binary>> -> by_extension(lower(binary_to_list(Ext)));
        _ -> by_extension("")
    end.

%% A name need not be text, so only these letters.
lower(Ext) ->
    [if C >= $A, C =< $Z -> C + 32; true -> C end || C <- Ext].

by_extension("html") -> <<"text/html; charset=utf-8">>;
by_extension("htm") -> <<"text/html; charset=utf-8">>;
by_extension("css") -> <<"text/css; charset=utf-8">>;
by_extension("js") -> <<"text/javascript; charset=utf-8">>;
by_extension("mjs") -> <<"text/javascript; charset=utf-8">>;
by_extension("json") -> <<"application/json">>;
by_extension("map") -> <<"application/json">>;
by_extension("jsonld") -> <<"application/ld+json">>;
by_extension("webmanifest") -> <<"application/manifest+json">>;
by_extension("wasm") -> <<"application/wasm">>;
by_extension("xml") -> <<"application/xml">>;
by_extension("xhtml") -> <<"application/xhtml+xml">>;
by_extension("atom") -> <<"application/atom+xml">>;
by_extension("rss") -> <<"application/rss+xml">>;
by_extension("txt") -> <<"text/plain; charset=utf-8">>;
by_extension("text") -> <<"text/plain; charset=utf-8">>;
by_extension("log") -> <<"text/plain; charset=utf-8">>;
by_extension("conf") -> <<"text/plain; charset=utf-8">>;
by_extension("erl") -> <<"text/plain; charset=utf-8">>;
by_extension("hrl") -> <<"text/plain; charset=utf-8">>;
by_extension("c") -> <<"text/plain; charset=utf-8">>;
by_extension("h") -> <<"text/plain; charset=utf-8">>;
by_extension("md") -> <<"text/markdown; charset=utf-8">>;
by_extension("csv") -> <<"text/csv; charset=utf-8">>;
by_extension("tsv") -> <<"text/tab-separated-values; charset=utf-8">>;
by_extension("ics") -> <<"text/calendar; charset=utf-8">>;
by_extension("vtt") -> <<"text/vtt; charset=utf-8">>;
by_extension("yaml") -> <<"application/yaml">>;
by_extension("yml") -> <<"application/yaml">>;
by_extension("toml") -> <<"application/toml">>;
by_extension("pdf") -> <<"application/pdf">>;
by_extension("ps") -> <<"application/postscript">>;
by_extension("rtf") -> <<"application/rtf">>;
by_extension("epub") -> <<"application/epub+zip">>;
by_extension("svg") -> <<"image/svg+xml">>;
by_extension("png") -> <<"image/png">>;
by_extension("jpg") -> <<"image/jpeg">>;
by_extension("jpeg") -> <<"image/jpeg">>;
by_extension("gif") -> <<"image/gif">>;
by_extension("webp") -> <<"image/webp">>;
by_extension("avif") -> <<"image/avif">>;
by_extension("bmp") -> <<"image/bmp">>;
by_extension("tif") -> <<"image/tiff">>;
by_extension("tiff") -> <<"image/tiff">>;
by_extension("ico") -> <<"image/x-icon">>;
by_extension("mp3") -> <<"audio/mpeg">>;
by_extension("m4a") -> <<"audio/mp4">>;
by_extension("aac") -> <<"audio/aac">>;
by_extension("flac") -> <<"audio/flac">>;
by_extension("oga") -> <<"audio/ogg">>;
by_extension("ogg") -> <<"audio/ogg">>;
by_extension("opus") -> <<"audio/ogg">>;
by_extension("wav") -> <<"audio/wav">>;
by_extension("mid") -> <<"audio/midi">>;
by_extension("mp4") -> <<"video/mp4">>;
by_extension("m4v") -> <<"video/mp4">>;
by_extension("ogv") -> <<"video/ogg">>;
by_extension("webm") -> <<"video/webm">>;
by_extension("mpeg") -> <<"video/mpeg">>;
by_extension("mov") -> <<"video/quicktime">>;
by_extension("mkv") -> <<"video/x-matroska">>;
by_extension("avi") -> <<"video/x-msvideo">>;
by_extension("m3u8") -> <<"application/vnd.apple.mpegurl">>;
by_extension("ts") -> <<"video/mp2t">>;
by_extension("woff") -> <<"font/woff">>;
by_extension("woff2") -> <<"font/woff2">>;
by_extension("ttf") -> <<"font/ttf">>;
by_extension("otf") -> <<"font/otf">>;
by_extension("eot") -> <<"application/vnd.ms-fontobject">>;
by_extension("zip") -> <<"application/zip">>;
by_extension("gz") -> <<"application/gzip">>;
by_extension("tgz") -> <<"application/gzip">>;
by_extension("bz2") -> <<"application/x-bzip2">>;
by_extension("xz") -> <<"application/x-xz">>;
by_extension("zst") -> <<"application/zstd">>;
by_extension("tar") -> <<"application/x-tar">>;
by_extension("7z") -> <<"application/x-7z-compressed">>;
by_extension("jar") -> <<"application/java-archive">>;
by_extension("doc") -> <<"application/msword">>;
by_extension("xls") -> <<"application/vnd.ms-excel">>;
by_extension("ppt") -> <<"application/vnd.ms-powerpoint">>;
by_extension("docx") -> office(<<"wordprocessingml.document">>);
by_extension("xlsx") -> office(<<"spreadsheetml.sheet">>);
by_extension("pptx") -> office(<<"presentationml.presentation">>);
by_extension("odt") -> <<"application/vnd.oasis.opendocument.text">>;
by_extension("ods") -> <<"application/vnd.oasis.opendocument.spreadsheet">>;
by_extension("odp") -> <<"application/vnd.oasis.opendocument.presentation">>;
by_extension(_) -> <<"application/octet-stream">>.

office(Kind) ->
    <<"application/vnd.openxmlformats-officedocument.", Kind/binary>>.
