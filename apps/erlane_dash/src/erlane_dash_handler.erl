%% SPDX-License-Identifier: Apache-2.0
%% @doc Answers requests: the page, its data, `/profile', `/metrics' and `/healthz'. It changes
%% nothing in the node, whatever is asked.
-module(erlane_dash_handler).
-behaviour(erlane_http).

-export([handle/2, init/2]).

-export_type([args/0]).

-type args() :: #{token := binary() | none, loopback := boolean(), hosts := [binary()],
                  assets := erlane_dash_assets:assets()}.

%% Nothing from anywhere else, and no script or style within the page itself: what came in with
%% the name of a process or a label could do nothing.
-define(POLICY, <<"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                  "connect-src 'self'; base-uri 'none'; form-action 'self'; "
                  "frame-ancestors 'none'">>).
%% A flame graph is one file with all that is in it, and in a box of its own: a script that came in
%% with a name could neither read anything of ours nor send it anywhere.
-define(BOX, <<"sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; "
               "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
               "frame-ancestors 'none'">>).
-define(TEXT, <<"text/plain; charset=utf-8">>).
-define(HTML, <<"text/html; charset=utf-8">>).
-define(JSON, <<"application/json">>).
%% Of a form with a token in it.
-define(MAX_BODY, 1024).

%% @private
-spec init(erlane_http:req(), args()) -> {ok, {read, pos_integer()}}.
init(_Req, _Args) ->
    {ok, {read, ?MAX_BODY}}.

%% @private
-spec handle(erlane_http:req(), args()) -> erlane_http:reply().
handle(Req, Args) ->
    case erlane_dash_auth:host(erlane_http:host(Req), Args) of
        true -> route(erlane_http:method(Req), erlane_http:path(Req), Req, Args);
        false -> plain(421, <<"not a name of this node\n">>)
    end.

route(Method, Path, Req, Args) when Method =:= <<"GET">>; Method =:= <<"HEAD">> ->
    get(Path, Req, Args);
route(<<"POST">>, [<<"token">>], Req, Args) ->
    form(Req, Args);
route(_, _, _, _) ->
    {405, headers(?TEXT, [{<<"allow">>, <<"GET, HEAD">>}]), <<"this page only shows\n">>}.

get([], Req, Args) -> page(Req, Args);
%% After a token that was wrong the form is at this address: whoever loads it anew begins anew.
get([<<"token">>], _, _) -> {303, headers(?TEXT, [{<<"location">>, <<"./">>}]), <<>>};
get([<<"healthz">>], _, _) -> plain(200, <<"ok\n">>);
get([<<"login.html">>], _, _) -> plain(404, <<"not found\n">>);
get([<<"index.html">>], _, _) -> plain(404, <<"not found\n">>);
get([Name] = Path, Req, #{assets := Assets} = Args) ->
    case Assets of
        #{Name := Asset} -> asset(Asset, Req);
        _ -> data(Path, Req, Args)
    end;
get(Path, Req, Args) ->
    data(Path, Req, Args).

%%% the page

page(Req, #{token := Token, assets := #{<<"index.html">> := Index}} = Args) ->
    Query = erlane_http:query(Req),
    case {allowed(Req, Args), lists:keyfind(<<"token">>, 1, Query)} of
        {_, {_, Given}} when Token =/= none -> token(Given, welcome, Req, Args);
        {true, _} -> asset(Index, Req);
        {false, _} -> login(401, asked, Args)
    end.

form(_, #{token := none}) ->
    plain(404, <<"not found\n">>);
form(Req, Args) ->
    case uri_string:dissect_query(erlane_http:body(Req)) of
        [{<<"token">>, Given}] -> token(Given, see_other, Req, Args);
        _ -> login(400, wrong, Args)
    end.

token(Given, How, Req, #{token := Token} = Args) ->
    case is_binary(Given) andalso erlane_dash_auth:same(Given, Token) of
        true ->
            Cookie = erlane_dash_auth:cookie(erlane_http:host(Req), Token,
                                             erlane_http:scheme(Req)),
            entered(How, [{<<"set-cookie">>, Cookie}]);
        false ->
            login(401, wrong, Args)
    end.

%% A redirect would not do: after a link from another site the browser keeps a strict cookie back
%% for the whole chain of redirects. What a page of ours asks for comes with it.
entered(welcome, Headers) ->
    {200, headers(?HTML, Headers),
     <<"<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>erlane</title>"
       "<link rel=\"icon\" href=\"icon.svg\">"
       "<meta http-equiv=\"refresh\" content=\"0;url=./\"><p><a href=\"./\">Go on</a></html>">>};
entered(see_other, Headers) ->
    {303, headers(?TEXT, [{<<"location">>, <<"./">>} | Headers]), <<>>}.

login(Status, Why, #{assets := #{<<"login.html">> := #{plain := Html}}}) ->
    Told = case Why of
               asked -> Html;
               %% The one thing that the form keeps hidden says so.
               wrong -> binary:replace(Html, <<" hidden>">>, <<">">>)
           end,
    {Status, headers(?HTML, [challenge() || Status =:= 401]), Told}.

challenge() -> {<<"www-authenticate">>, <<"Bearer realm=\"erlane\"">>}.

%% Not secret: whoever has no token sees at most how the page is made.
asset(#{type := Type, etag := Tag, plain := Plain, gzip := Gzip}, Req) ->
    Headers = [{<<"content-type">>, Type}, {<<"etag">>, Tag}, {<<"cache-control">>, <<"no-cache">>},
               {<<"vary">>, <<"accept-encoding">>} | security()],
    case {erlane_http:header(<<"if-none-match">>, Req), zipped(Req)} of
        {Tag, _} -> {304, Headers, <<>>};
        {_, true} -> {200, [{<<"content-encoding">>, <<"gzip">>} | Headers], Gzip};
        {_, false} -> {200, Headers, Plain}
    end.

%%% data

data(Path, Req, Args) ->
    Own = erlane_dash_auth:same_site(erlane_http:headers(Req), erlane_http:host(Req)),
    case Own andalso allowed(Req, Args) of
        true -> figures(Path, Req);
        false when not Own -> plain(403, <<"not for pages of other sites\n">>);
        false -> {401, headers(?TEXT, [challenge()]), <<"a token is needed\n">>}
    end.

figures([<<"events">>], _) ->
    {sse, [{<<"cache-control">>, <<"no-store">>} | security()], fun erlane_dash_viewer:run/1};
figures([<<"metrics">>], Req) ->
    metrics(Req);
figures([<<"profile">>], Req) ->
    case erlane_http:method(Req) of
        <<"GET">> -> profile(Req);
        _ -> {405, headers(?TEXT, [{<<"allow">>, <<"GET">>}]), <<>>}
    end;
figures([<<"api">>, <<"history">>], Req) ->
    %% A node that is too busy to answer is what this page is for.
    try erlane_dash_sampler:history(since(erlane_http:query(Req))) of
        Cores -> json([$[, lists:join($,, Cores), $]], Req)
    catch
        exit:{_, {gen_server, call, _}} ->
            {503, headers(?TEXT, [{<<"retry-after">>, <<"1">>}]), <<"busy\n">>}
    end;
figures([<<"api">>, <<"families">>], Req) ->
    json(erlane_dash_json:encode(erlane_dash_families:list()), Req);
figures([<<"api">>, <<"family">>], Req) ->
    case lists:keyfind(<<"name">>, 1, erlane_http:query(Req)) of
        {_, Name} ->
            case erlane_dash_families:read(Name) of
                {ok, Family} -> json(erlane_dash_json:encode(Family), Req);
                error -> plain(404, <<"no such family\n">>)
            end;
        false ->
            plain(400, <<"name is missing\n">>)
    end;
figures(_, _) ->
    plain(404, <<"not found\n">>).

profile(Req) ->
    case erlane_dash_profile:take(erlane_http:query(Req)) of
        {ok, Page} ->
            Headers = [{<<"content-type">>, ?HTML}, {<<"cache-control">>, <<"no-store">>},
                       {<<"vary">>, <<"accept-encoding">>} | security(?BOX)],
            case zipped(Req) of
                true -> {200, [{<<"content-encoding">>, <<"gzip">>} | Headers], zlib:gzip(Page)};
                false -> {200, Headers, Page}
            end;
        {error, bad_time} ->
            plain(400, <<"for: a number of seconds from 1 to 10\n">>);
        {error, busy} ->
            {503, headers(?TEXT, [{<<"retry-after">>, <<"10">>}]),
             <<"a sample is being taken: one at a time\n">>};
        {error, {failed, Why}} ->
            plain(500, unicode:characters_to_binary([Why, $\n]))
    end.

%% Anything but a number of milliseconds is the beginning of time.
since(Query) ->
    try binary_to_integer(proplists:get_value(<<"since">>, Query, <<"0">>))
    catch error:badarg -> 0
    end.

json(Text, Req) ->
    Headers = headers(?JSON, [{<<"vary">>, <<"accept-encoding">>}]),
    case iolist_size(Text) > 2048 andalso zipped(Req) of
        true -> {200, [{<<"content-encoding">>, <<"gzip">>} | Headers], zlib:gzip(Text)};
        false -> {200, Headers, Text}
    end.

metrics(Req) ->
    Format = erlane_metrics_accept:negotiate(erlane_http:header(<<"accept">>, Req)),
    Encoding = case zipped(Req) of
                   true -> gzip;
                   false -> identity
               end,
    {stream, 200,
     headers(erlane_metrics_accept:content_type(Format),
             [{<<"vary">>, <<"accept, accept-encoding">>}
              | [{<<"content-encoding">>, <<"gzip">>} || Encoding =:= gzip]]),
     fun(Send) ->
             %% When the client has gone there is nothing to write on for.
             Write = fun(Piece, ok) -> sent(Send(Piece)) end,
             try erlane_metrics_expose:expose(Format, Encoding, Write, ok)
             catch throw:{?MODULE, gone} -> ok
             end
     end}.

sent(ok) -> ok;
sent({error, _}) -> throw({?MODULE, gone}).

%%% answers

allowed(Req, Args) ->
    erlane_dash_auth:allowed(erlane_http:headers(Req), erlane_http:host(Req), Args).

zipped(Req) ->
    erlane_metrics_accept:gzip(erlane_http:header(<<"accept-encoding">>, Req)).

plain(Status, Text) ->
    {Status, headers(?TEXT, []), Text}.

headers(Type, More) ->
    [{<<"content-type">>, Type}, {<<"cache-control">>, <<"no-store">>} | More ++ security()].

security() ->
    security(?POLICY).

security(Policy) ->
    [{<<"content-security-policy">>, Policy},
     {<<"x-content-type-options">>, <<"nosniff">>},
     {<<"x-frame-options">>, <<"DENY">>},
     {<<"referrer-policy">>, <<"no-referrer">>},
     {<<"cross-origin-resource-policy">>, <<"same-origin">>}].
