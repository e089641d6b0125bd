%% SPDX-License-Identifier: Apache-2.0
%% @doc Static files: a handler, by itself or called from another one.
%%
%% ```
%% erlane_http:start(web, #{handler => {erlane_http_file, #{root => "/srv/www"}}, port => 8080}).
%% '''
%%
%% Conditional requests and ranges are answered (RFC 9110, sections 13 and 14); a file goes out
%% by sendfile. What is not under the root by its real path, is hidden or is neither file nor
%% directory does not exist (404); what exists and may not be read is 403.
%%
%% A file is opened before its size is asked, so one that is replaced meanwhile goes out as it
%% was. One that shrinks meanwhile ends the connection too early, and the client can tell.
-module(erlane_http_file).

-behaviour(erlane_http).

-export([handle/2, check/1]).

-export_type([options/0]).

-include_lib("kernel/include/file.hrl").

-type options() ::
        #{root := file:name_all(),
          %% What a directory is answered with; the first that is there.
          index => [binary()],
          %% A page with the names in a directory that has no index.
          listing => boolean(),
          %% Also names that begin with a dot.
          dotfiles => boolean(),
          %% Segments of the path that come before what is under the root.
          prefix => [binary()],
          %% Goes out with every file.
          cache_control => binary()}.

%% A change of this age or younger may be followed by one that the clock cannot tell from it.
-define(UNSURE_SECONDS, 2).
-define(PIECE, 65536).

%% @doc Whether options are good; an error names the key.
-spec check(map()) -> ok | {error, {Key :: term(), Why :: missing | unknown | badarg}}.
check(Opts) when not is_map_key(root, Opts) ->
    {error, {root, missing}};
check(Opts) ->
    case [{Key, Why} || {Key, Value} <- maps:to_list(Opts), Why <- [wrong(Key, Value)],
                        Why =/= ok] of
        [] -> ok;
        [First | _] -> {error, First}
    end.

wrong(root, Root) -> good(is_list(Root) orelse is_binary(Root));
wrong(index, Names) -> good(is_names(Names));
wrong(prefix, Names) -> good(is_names(Names));
wrong(listing, Value) -> good(is_boolean(Value));
wrong(dotfiles, Value) -> good(is_boolean(Value));
wrong(cache_control, Value) -> good(is_binary(Value));
wrong(_, _) -> unknown.

is_names(Names) -> is_list(Names) andalso lists:all(fun is_binary/1, Names).

good(true) -> ok;
good(false) -> badarg.

%% @doc Answers a request with what is under the root.
-spec handle(erlane_http:req(), options()) -> erlane_http:reply().
handle(Req, Opts) ->
    Method = erlane_http:method(Req),
    case Method =:= <<"GET">> orelse Method =:= <<"HEAD">> of
        true -> find(under(maps:get(prefix, Opts, []), erlane_http:path(Req)), Req, Opts);
        false -> plain(405, [{<<"allow">>, <<"GET, HEAD">>}])
    end.

under([], Segments) -> Segments;
under([Name | Prefix], [Name | Segments]) -> under(Prefix, Segments);
under(_, _) -> outside.

find(outside, _Req, _Opts) ->
    failed(not_found);
find([], Req, #{prefix := [_ | _]} = Opts) ->
    redirect([], Req, Opts);
find(Segments, Req, #{root := Root} = Opts) ->
    case erlane_http_file_path:names(Segments, maps:get(dotfiles, Opts, false)) of
        {ok, Names, EndsWithSlash} ->
            case {erlane_http_file_path:resolve(Root, Names), EndsWithSlash} of
                {{file, Path}, false} -> file(Path, Req, Opts);
                {{file, _}, true} -> failed(not_found);
                {{directory, Path}, true} -> directory(Path, Names, Req, Opts);
                {{directory, _}, false} -> redirect(Names, Req, Opts);
                {{error, Why}, _} -> failed(Why)
            end;
        error ->
            failed(not_found)
    end.

%% Made from the names that were understood, not from the bytes that came: `//host' and `/\host'
%% would send a browser elsewhere.
redirect(Names, Req, Opts) ->
    All = maps:get(prefix, Opts, []) ++ Names,
    Query = case erlane_http:raw_query(Req) of
                <<>> -> <<>>;
                Text -> [$?, Text]
            end,
    Path = [[$/, erlane_http_file_path:encode(Name)] || Name <- All],
    plain(301, [{<<"location">>, iolist_to_binary([Path, $/, Query])}]).

directory(Path, Names, Req, Opts) ->
    index(maps:get(index, Opts, [<<"index.html">>]), Path, Names, Req, Opts).

index([Index | Rest], Path, Names, Req, #{root := Root} = Opts) ->
    case erlane_http_file_path:resolve(Root, Names ++ [Index]) of
        {file, File} -> file(File, Req, Opts);
        {directory, _} -> index(Rest, Path, Names, Req, Opts);
        {error, not_found} -> index(Rest, Path, Names, Req, Opts);
        {error, Why} -> failed(Why)
    end;
index([], Path, Names, _Req, #{listing := true} = Opts) ->
    All = maps:get(prefix, Opts, []) ++ Names,
    case erlane_http_file_list:page(Path, All, maps:get(dotfiles, Opts, false)) of
        {ok, Page} ->
            {200, [{<<"content-type">>, <<"text/html; charset=utf-8">>},
                   {<<"cache-control">>, <<"no-cache">>},
                   {<<"content-security-policy">>, <<"default-src 'none'">>}], Page};
        {error, Why} ->
            failed(Why)
    end;
index([], _Path, _Names, _Req, _Opts) ->
    failed(not_found).

failed(not_found) -> plain(404, []);
failed(forbidden) -> plain(403, []);
failed(busy) -> plain(503, [{<<"retry-after">>, <<"1">>}]);
failed(broken) -> plain(500, []).

plain(Status, Headers) ->
    Type = {<<"content-type">>, <<"text/plain; charset=utf-8">>},
    {Status, [Type | Headers], [text(Status), $\n]}.

text(301) -> "moved";
text(403) -> "forbidden";
text(404) -> "not found";
text(405) -> "method not allowed";
text(412) -> "precondition failed";
text(416) -> "range not satisfiable";
text(500) -> "the file cannot be read";
text(503) -> "busy".

file(Path, Req, Opts) ->
    case file:open(Path, [read, raw, binary]) of
        {ok, Fd} ->
            case file:read_file_info(Fd, [raw, {time, posix}]) of
                {ok, #file_info{type = regular, size = Size, mtime = Modified}} ->
                    opened(Fd, Size, Modified, erlane_http_mime:type(Path), Req, Opts);
                {ok, _} ->
                    close(Fd, failed(not_found));
                {error, Why} ->
                    close(Fd, failed(erlane_http_file_path:why(Why)))
            end;
        {error, Why} ->
            failed(erlane_http_file_path:why(Why))
    end.

close(Fd, Reply) ->
    _ = file:close(Fd),
    Reply.

opened(Fd, Size, Changed, Type, Req, Opts) ->
    Now = erlang:system_time(second),
    Strong = Changed + ?UNSURE_SECONDS =< Now,
    %% A time in the future would be a lie about the answer (section 8.8.2.1).
    Modified = min(Changed, Now),
    Etag = erlane_http_cond:etag(Size, Changed, Strong),
    Validators = #{etag => Etag, modified => Modified, strong => Strong},
    Header = fun(Name) -> erlane_http:header(Name, Req) end,
    About = [{<<"etag">>, Etag}, {<<"last-modified">>, erlane_http_date:format(Modified)}
             | [{<<"cache-control">>, Value} || #{cache_control := Value} <- [Opts]]],
    case erlane_http_cond:evaluate(erlane_http:method(Req), Header, Validators) of
        not_modified -> close(Fd, {304, About, <<>>});
        failed -> close(Fd, plain(412, About));
        proceed ->
            Headers = [{<<"accept-ranges">>, <<"bytes">>},
                       {<<"x-content-type-options">>, <<"nosniff">>} | About],
            proceed(pieces(Req, Header, Validators, Size), Fd, Size, Type, Headers)
    end.

%% Range has a meaning for GET alone (section 14.2).
pieces(Req, Header, Validators, Size) ->
    case {erlane_http:method(Req), Header(<<"range">>)} of
        {<<"GET">>, Range} when Range =/= undefined ->
            case erlane_http_cond:use_range(Header, Validators) of
                true -> erlane_http_range:select(Range, Size);
                false -> ignore
            end;
        _ -> ignore
    end.

proceed(ignore, Fd, Size, Type, Headers) ->
    {200, [{<<"content-type">>, Type} | Headers], {file, Fd, {0, Size}}};
proceed(unsatisfiable, Fd, Size, _Type, Headers) ->
    Range = erlane_http_range:content_range(unsatisfiable, Size),
    close(Fd, plain(416, [{<<"content-range">>, Range} | Headers]));
proceed({ok, [Piece]}, Fd, Size, Type, Headers) ->
    Range = erlane_http_range:content_range(Piece, Size),
    {206, [{<<"content-type">>, Type}, {<<"content-range">>, Range} | Headers],
     {file, Fd, Piece}};
proceed({ok, Pieces}, Fd, Size, Type, Headers) ->
    Boundary = integer_to_binary(rand:uniform(1 bsl 128), 36),
    {Parts, End, Length} = erlane_http_range:multipart(Pieces, Size, Type, Boundary),
    Multipart = <<"multipart/byteranges; boundary=", Boundary/binary>>,
    {stream, 206, [{<<"content-type">>, Multipart},
                   {<<"content-length">>, integer_to_binary(Length)} | Headers],
     fun(Send) -> close(Fd, parts(Parts, End, Fd, Send)) end}.

%% What could not be sent is missing from the length that was announced: the connection ends.
parts([{Before, {Offset, Length}} | Rest], End, Fd, Send) ->
    case Send(Before) of
        ok ->
            case copy(Fd, Offset, Length, Send) of
                ok -> parts(Rest, End, Fd, Send);
                stopped -> ok
            end;
        {error, _} -> ok
    end;
parts([], End, _Fd, Send) ->
    _ = Send(End),
    ok.

copy(_Fd, _Offset, 0, _Send) ->
    ok;
copy(Fd, Offset, Left, Send) ->
    case file:pread(Fd, Offset, min(Left, ?PIECE)) of
        {ok, Data} ->
            case Send(Data) of
                ok -> copy(Fd, Offset + byte_size(Data), Left - byte_size(Data), Send);
                {error, _} -> stopped
            end;
        _ -> stopped
    end.
