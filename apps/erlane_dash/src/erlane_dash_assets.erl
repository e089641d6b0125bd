%% SPDX-License-Identifier: Apache-2.0
%% @doc The files of the page, read and compressed once.
-module(erlane_dash_assets).

-export([load/0]).

-export_type([assets/0, asset/0]).

-type asset() :: #{type := binary(), etag := binary(), plain := binary(), gzip := binary()}.
-type assets() :: #{binary() => asset()}.

-define(FILES, [{"index.html", <<"text/html; charset=utf-8">>},
                {"login.html", <<"text/html; charset=utf-8">>},
                {"style.css", <<"text/css; charset=utf-8">>},
                {"icon.svg", <<"image/svg+xml">>}
                | [{Name, <<"text/javascript; charset=utf-8">>}
                   || Name <- ["app.js", "chart.js", "dom.js", "families.js", "format.js",
                               "live.js", "panels.js", "store.js"]]]).

%% @doc All files, by name.
-spec load() -> {ok, assets()} | {error, {file:name_all(), file:posix()}}.
load() ->
    Dir = code:priv_dir(erlane_dash),
    Read = [{filename:join(Dir, Name), Name, Type} || {Name, Type} <- ?FILES],
    Files = [{File, Name, Type, file:read_file(File)} || {File, Name, Type} <- Read],
    case [{File, Reason} || {File, _, _, {error, Reason}} <- Files] of
        [] ->
            {ok, maps:from_list([{list_to_binary(Name), asset(Type, Plain)}
                                 || {_, Name, Type, {ok, Plain}} <- Files])};
        [Error | _] ->
            {error, Error}
    end.

asset(Type, Plain) ->
    #{type => Type, plain => Plain, gzip => zlib:gzip(Plain),
      etag => iolist_to_binary(io_lib:format("\"~.36b\"", [erlang:phash2(Plain, 1 bsl 32)]))}.
