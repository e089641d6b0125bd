%% SPDX-License-Identifier: Apache-2.0
%% @doc An HTTP/1.1 server: start a listener, answer requests in a handler.
%%
%% ```
%% -module(hello).
%% -behaviour(erlane_http).
%% -export([handle/2]).
%%
%% handle(Req, Greeting) ->
%%     case {erlane_http:method(Req), erlane_http:path(Req)} of
%%         {<<"GET">>, [Name]} -> {200, [], [Greeting, $\s, Name, $\n]};
%%         {<<"GET">>, _} -> {404, [], <<>>};
%%         _ -> {405, [{<<"allow">>, <<"GET">>}], <<>>}
%%     end.
%% '''
%%
%% ```
%% {ok, _} = application:ensure_all_started(erlane_http),
%% {ok, _} = erlane_http:start(web, #{handler => {hello, <<"Hello">>}, port => 8080}).
%% '''
%%
%% A handler runs in the process of its connection, one request after the other. It may receive
%% messages, if it takes only those that it waits for: `{erlane_http, _}' are the server's, and
%% what is left when it returns is thrown away. Between two requests the process dictionary (and
%% with it logger's metadata) and the flag `trap_exit' are as in a new process; links, monitors,
%% group leader and priority are as the handler left them. Who needs a process for itself starts
%% one and waits for it. A process that is linked to the handler's takes the connection with it.
%%
%% A request that came with a body is handed over when the body is there; with `init/2' a handler
%% can ask for another limit, or for the body in pieces. `Content-Length', `Transfer-Encoding',
%% `Connection' and `Date' are written by the server. If a handler crashes the client gets a 500,
%% or, when part of the answer was sent, a connection that ends too early.
-module(erlane_http).

-export([start/2, stop/2, drain/2, child_spec/2, port/1, info/1, listeners/0]).
-export([method/1, target/1, path/1, raw_path/1, query/1, raw_query/1, version/1, headers/1,
         header/2, header/3, host/1, scheme/1, peer/1, body/1, read_body/2, trailers/1]).

-export_type([req/0, headers/0, status/0, reply/0, send/0, options/0, info/0]).

-include("erlane_http.hrl").

-type req() :: #req{}.
%% To be looked at with the functions below; its fields are nobody's.
-type headers() :: [{LowercaseName :: binary(), Value :: binary()}].
-type status() :: 200..999.
-type send() :: fun((iodata()) -> ok | {error, closed | timeout}).
%% Sends a piece of a body; waits while the client does not take it.

-type reply() ::
        {status(), headers(), iodata()}
      | {status(), headers(), {file, file:name_all()}}
      | {status(), headers(), {file, file:name_all(), {Offset :: non_neg_integer(),
                                                       Length :: non_neg_integer()}}}
      | {stream, status(), headers(), fun((send()) -> ok | {trailers, headers()})}
      | {sse, headers(), fun((Emit :: fun()) -> ok)
                       | fun((Emit :: fun(), Socket :: term()) -> ok)}
      | {upgrade, module(), Args :: term()}.
%% `stream' sends chunks, or with a `content-length' among its headers exactly so many bytes;
%% `sse' is {@link erlane_http_sse}, `upgrade' WebSocket, {@link erlane_http_ws}.

-type options() :: erlane_http_opts:options().

-type info() :: #{name := atom(), state := listening | draining | down, scheme := http | https,
                  ip := inet:ip_address() | {local, binary()}, port := inet:port_number(),
                  connections := non_neg_integer(), accepted := non_neg_integer(),
                  requests := non_neg_integer(), _ => _}.
%% `down': it has crashed and is being started again; why it does not listen yet is in the log.

-callback handle(req(), Args :: term()) -> reply().
-callback init(req(), Args :: term()) -> {ok, read | stream | {read, MaxBytes :: pos_integer()}}.
%% Asked for a request that has a body. `read': the whole body within the listener's `max_body';
%% `stream': the handler calls {@link read_body/2}.
-callback event(Name :: atom(), Data :: map(), Args :: term()) -> ok.
%% `request_done' with `method', `target', `status', `duration_us', `sent' and `peer'; `closed',
%% `timeout' and `bad_request' with `reason'; `crashed' with `class', `reason', `stacktrace'.
-optional_callbacks([init/2, event/3]).

%% @doc Starts a listener under the supervisor of this application. Errors name the option, or
%% are what listening on the address failed with.
-spec start(atom(), options()) -> {ok, pid()} | {error, {Key :: atom(), Why :: term()}
                                                 | inet:posix()}.
start(Name, Options) when is_atom(Name), is_map(Options) ->
    erlane_http_sup:start_listener(Name, Options).

%% @doc Stops a listener that {@link start/2} started: it accepts no more, answers what it is
%% asked with `Connection: close', and after `drain' milliseconds (default 5000) cuts the rest.
-spec stop(atom(), #{drain => non_neg_integer()}) -> ok | {error, not_found}.
stop(Name, Options) ->
    erlane_http_sup:stop_listener(Name, maps:get(drain, Options, 5000)).

%% @doc Closes a listening socket and lets the connections end, as {@link stop/2} does; the
%% listener stays, with its figures, until it is stopped. Returns when the last connection has
%% ended. A second call may shorten the time.
-spec drain(atom(), Ms :: non_neg_integer()) -> ok | {error, not_found}.
drain(Name, Ms) when is_atom(Name), is_integer(Ms), Ms >= 0 ->
    case erlane_http_names:whereis(Name) of
        undefined -> {error, not_found};
        Pid ->
            try erlane_http_server:drain(Pid, Ms)
            catch exit:{_, {gen_server, call, _}} -> {error, not_found}
            end
    end.

%% @doc A listener for a supervisor of your own. The application must be running. When it crashes
%% it is started again by that supervisor; if it cannot listen then, it goes on trying and its
%% supervisor is not troubled.
-spec child_spec(atom(), options()) -> supervisor:child_spec().
child_spec(Name, Options) ->
    erlane_http_sup:child_spec(Name, Options).

%% @doc The port a listener listens on; 0 for a Unix socket.
-spec port(atom()) -> inet:port_number() | {error, not_found}.
port(Name) ->
    case info(Name) of
        #{port := Port} -> Port;
        Error -> Error
    end.

%% @doc Figures of a listener.
-spec info(atom()) -> info() | {error, not_found}.
info(Name) ->
    erlane_http_server:info(Name).

%% @doc The names of all listeners.
-spec listeners() -> [atom()].
listeners() ->
    erlane_http_names:all().

%% @doc The method, as it was sent: case matters.
-spec method(req()) -> binary().
method(#req{head = #head{method = Method}}) -> Method.

%% @doc The target, as it was sent.
-spec target(req()) -> binary().
target(#req{head = #head{target = Target}}) -> Target.

%% @doc The segments of the path, percent-decoded; `[]' for `/'. A slash at the end is an empty
%% last segment. A segment may be `..' and may contain a slash: it was written `%2F'.
-spec path(req()) -> [binary()].
path(#req{head = #head{path = Path}}) -> erlane_http_target:segments(Path).

%% @doc The path, as it was sent, without the query.
-spec raw_path(req()) -> binary().
raw_path(#req{head = #head{path = Path}}) -> Path.

%% @doc The pairs of the query, decoded as a form's; `true' for a name without a value.
-spec query(req()) -> [{binary(), binary() | true}].
query(#req{head = #head{query = Query}}) -> erlane_http_target:query(Query).

%% @doc The query, as it was sent, without its question mark.
-spec raw_query(req()) -> binary().
raw_query(#req{head = #head{query = Query}}) -> Query.

%% @doc The version of the request.
-spec version(req()) -> {1, 0..9}.
version(#req{head = #head{version = Version}}) -> Version.

%% @doc All header fields in their order, names in lower case.
-spec headers(req()) -> headers().
headers(#req{head = #head{headers = Headers}}) -> Headers.

%% @doc The value of a header field, whose name is given in lower case; of several the values
%% with `, ' between them.
-spec header(binary(), req()) -> binary() | undefined.
header(Name, Req) -> header(Name, Req, undefined).

%% @doc The same with a default.
-spec header(binary(), req(), Default) -> binary() | Default.
header(Name, #req{head = #head{headers = Headers}}, Default) ->
    case [Value || {N, Value} <- Headers, N =:= Name] of
        [] -> Default;
        [Value] -> Value;
        Values -> iolist_to_binary(lists:join(<<", ">>, Values))
    end.

%% @doc The host of the request, with its port if one was sent; empty only in HTTP/1.0.
-spec host(req()) -> binary().
host(#req{head = #head{host = Host}}) -> Host.

%% @doc `https' over TLS.
-spec scheme(req()) -> http | https.
scheme(#req{conn = #conn{srv = #srv{scheme = Scheme}}}) -> Scheme.

%% @doc Who is at the other end; `undefined' if it has gone already.
-spec peer(req()) -> {inet:ip_address(), inet:port_number()} | {local, binary()} | undefined.
peer(#req{conn = Conn}) -> erlane_http_io:peer(Conn).

%% @doc The whole body; empty if there is none, or if it is read in pieces.
-spec body(req()) -> binary().
body(#req{body = stream}) -> <<>>;
body(#req{body = Body}) -> Body.

%% @doc A piece of the body, `ok' with the last one; only where `init/2' answered `stream', and
%% in the process that runs the handler. `length': how many bytes are wanted before it returns
%% (default 65536, the last piece may have less and any piece some more); `timeout': how long it
%% may take, default 15 s. A body that comes too slowly, is cut off or badly framed is an error
%% that ends the request: the client gets its status, if nothing was sent.
-spec read_body(req(), #{length => pos_integer(), timeout => timeout()}) ->
          {more | ok, binary(), req()}.
read_body(Req, Options) -> erlane_http_body:read(Req, Options).

%% @doc What followed a chunked body; fields for framing, routing and authorization are left out.
-spec trailers(req()) -> headers().
trailers(#req{trailers = Trailers}) -> Trailers.
