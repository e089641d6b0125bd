%% SPDX-License-Identifier: Apache-2.0
%% @doc The options of a listener: checked once, at the door, with an error naming the key; and
%% the listening socket they make.
-module(erlane_http_opts).

-export([check/1, default/1, defaults/0, listen/1, srv/5]).

-export_type([options/0]).

-include("erlane_http.hrl").

-type options() ::
        #{handler := {module(), Args :: term()},
          port => inet:port_number(),                       % 0 takes a free one
          ip => inet:ip_address() | {local, file:name_all()},
          socket => erlane | gen_tcp,
          socket_opts => [term()],                          % of gen_tcp, after ours
          backlog => pos_integer(),
          defer_accept => boolean(),                        % accept when bytes have come
          tls => none | [term()],                           % ssl:tls_server_option()
          access_log => none | {erlane_http_log:format(),
                                file:name_all() | fun((iodata()) -> term())},
          log_query => boolean(),                           % false: targets without it
          connections => pos_integer() | infinity,          % exact; more wait in the backlog
          drain => non_neg_integer(),                       % ms, when its supervisor stops it
          %% Bytes and numbers.
          max_method => pos_integer(),                      % beyond: 501
          max_target => pos_integer(),                      % 414
          max_header => pos_integer(),                      % one line, 431
          max_headers_size => pos_integer(),                % 431
          max_headers => pos_integer(),                     % 431
          max_body => non_neg_integer() | infinity,         % 413, of bodies read whole
          max_chunk_ext => non_neg_integer(),               % 400
          max_requests => pos_integer() | infinity,         % of one connection
          drain_bytes => non_neg_integer(),                 % of a body that nobody read
          %% Milliseconds.
          tls_timeout => pos_integer(),                     % of the handshake
          head_timeout => pos_integer() | infinity,         % from its first byte to its last, 408
          idle_timeout => pos_integer() | infinity,         % between requests
          body_grace => non_neg_integer(),                  % of waiting for a body, free
          send_timeout => pos_integer() | infinity,         % without the peer taking anything
          linger_timeout => non_neg_integer(),              % after an answer that ends it
          %% Bytes a second of a body, 408.
          body_min_rate => non_neg_integer()}.

%% 2^31 - 1 ms: the longest time every receive and every timer takes.
-define(MAX_MS, 2147483647).
-define(MAX_SIZE, 16#7fffffffffffffff).
%% A path of a Unix socket must fit sockaddr_un's 108 bytes with its final zero.
-define(MAX_PATH, 107).
%% Of Linux.
-define(IPPROTO_TCP, 6).
-define(TCP_DEFER_ACCEPT, 9).

%% @doc The options that have a default, and it.
-spec defaults() -> #{atom() => term()}.
defaults() ->
    maps:merge(erlane_http_head:limits(),
               #{port => 0, ip => {127, 0, 0, 1}, socket => erlane, socket_opts => [],
                 backlog => 1024, defer_accept => true, tls => none, access_log => none,
                 log_query => true, connections => 65536, drain => 5000, max_body => 1048576,
                 max_chunk_ext => 256, max_requests => infinity, drain_bytes => 65536,
                 tls_timeout => 10000,
                 head_timeout => 10000, idle_timeout => 60000, body_grace => 5000,
                 body_min_rate => 500, send_timeout => 30000, linger_timeout => 2000}).

%% @doc One default.
-spec default(atom()) -> term().
default(Key) -> maps:get(Key, defaults()).

%% @doc Fills in the defaults and checks every value.
-spec check(options()) -> {ok, map()} | {error, {atom(), term()}}.
check(Options) ->
    All = maps:merge(defaults(), Options),
    Wrong = [{Key, Why} || {Key, Value} <- lists:sort(maps:to_list(All)),
                           Why <- [value(Key, Value)], Why =/= ok],
    case Wrong of
        [First | _] -> {error, First};
        [] when is_map_key(handler, All) -> {ok, All};
        [] -> {error, {handler, missing}}
    end.

value(handler, {Module, _}) when is_atom(Module) ->
    case code:ensure_loaded(Module) of
        {module, _} ->
            case erlang:function_exported(Module, handle, 2) of
                true -> ok;
                false -> {not_exported, {Module, handle, 2}}
            end;
        {error, Why} -> {Why, Module}
    end;
value(port, Port) -> between(Port, 0, 65535);
value(ip, {local, Path}) ->
    try iolist_size(Path) of
        N when N > 0, N =< ?MAX_PATH -> ok;
        _ -> {enametoolong, Path}
    catch
        error:badarg -> {badarg, Path}
    end;
value(ip, Ip) ->
    case is_tuple(Ip) andalso inet:ntoa(Ip) of
        Text when is_list(Text) -> ok;
        _ -> {badarg, Ip}
    end;
value(socket, Socket) when Socket =:= erlane; Socket =:= gen_tcp -> ok;
value(socket_opts, List) when is_list(List) -> ok;
value(backlog, N) -> between(N, 1, 65535);
value(Key, Bool) when is_boolean(Bool), (Key =:= defer_accept orelse Key =:= log_query) -> ok;
value(tls, none) -> ok;
value(tls, List) when is_list(List) -> tls(List);
value(access_log, none) -> ok;
value(access_log, {Format, To})
  when (Format =:= common orelse Format =:= combined orelse Format =:= json),
       (is_list(To) orelse is_binary(To) orelse is_function(To, 1)) -> ok;
value(Key, infinity) when Key =:= connections; Key =:= max_body; Key =:= max_requests;
                          Key =:= head_timeout; Key =:= idle_timeout; Key =:= send_timeout -> ok;
value(Key, N) when Key =:= connections; Key =:= max_method; Key =:= max_target;
                   Key =:= max_header; Key =:= max_headers_size; Key =:= max_headers;
                   Key =:= max_requests -> between(N, 1, 1 bsl 40);
value(Key, N) when Key =:= max_body; Key =:= max_chunk_ext; Key =:= drain_bytes;
                   Key =:= body_min_rate -> between(N, 0, ?MAX_SIZE);
value(Key, Ms) when Key =:= head_timeout; Key =:= idle_timeout; Key =:= send_timeout;
                    Key =:= tls_timeout -> between(Ms, 1, ?MAX_MS);
value(Key, Ms) when Key =:= drain; Key =:= body_grace; Key =:= linger_timeout ->
    between(Ms, 0, ?MAX_MS div 2);
value(Key, Value) ->
    case Key =:= handler orelse is_map_key(Key, defaults()) of
        true -> {badarg, Value};
        false -> unknown_option
    end.

between(N, Min, Max) when is_integer(N), N >= Min, N =< Max -> ok;
between(Value, _, _) -> {badarg, Value}.

%% ssl looks at its options when a handshake begins; a listener that nobody will use makes it
%% look now.
tls(Options) ->
    %% It would leave the rest of the handshake to a caller who is not there.
    case lists:member({handshake, hello}, Options) of
        true -> {not_supported, {handshake, hello}};
        false -> tls_started(Options)
    end.

tls_started(Options) ->
    case application:ensure_all_started(ssl) of
        {ok, _} ->
            try ssl:listen(0, [{ip, {127, 0, 0, 1}} | Options]) of
                {ok, Socket} -> _ = ssl:close(Socket), ok;
                {error, Why} -> Why
            catch
                error:Why -> Why
            end;
        {error, Why} -> Why
    end.

%% @doc The listening socket and where it listens.
-spec listen(map()) ->
          {ok, gen_tcp:socket(), {inet:ip_address() | {local, binary()}, inet:port_number()}}
        | {error, inet:posix() | {socket_opts, term()}}.
listen(#{ip := Ip, port := Port, socket := Kind, socket_opts := Own, backlog := Backlog,
         defer_accept := Defer, send_timeout := Timeout}) ->
    Common = [binary, {active, false}, {backlog, Backlog}, {send_timeout, Timeout},
              {send_timeout_close, true} | defer(Defer, Ip) ++ Own],
    try gen_tcp:listen(port(Ip, Port), carrier(Kind, Ip) ++ address(Ip) ++ Common) of
        {ok, Socket} -> {ok, Socket, bound(Ip, Socket)};
        {error, Why} -> {error, Why}
    catch
        exit:badarg -> {error, {socket_opts, badarg}}
    end.

carrier(gen_tcp, Ip) when tuple_size(Ip) =:= 8 -> [{inet_backend, inet}, inet6];
carrier(gen_tcp, _) -> [{inet_backend, inet}];
carrier(erlane, Ip) when tuple_size(Ip) =:= 8 -> [{inet_backend, inet}, {tcp_module, erlane_tcp6}];
carrier(erlane, _) -> [{inet_backend, inet}, {tcp_module, erlane_tcp}].

port({local, _}, _) -> 0;
port(_, Port) -> Port.

address({local, Path}) -> [{ifaddr, {local, Path}}];
address(Ip) -> [{ip, Ip}, {reuseaddr, true}, {nodelay, true}].

%% TCP_DEFER_ACCEPT: in HTTP the client speaks first, so nothing is lost when the kernel keeps the
%% connection until bytes have come, and its first read, its place in the poll set and a wake-up
%% are saved. After a second, when the kernel asks the client again, it is accepted without bytes.
defer(true, Ip) when element(1, Ip) =/= local ->
    [{raw, ?IPPROTO_TCP, ?TCP_DEFER_ACCEPT, <<1:32/native>>}];
defer(_, _) -> [].

bound({local, Path}, _) -> {{local, iolist_to_binary(Path)}, 0};
bound(_, Socket) ->
    {ok, Address} = inet:sockname(Socket),
    Address.

%% @doc What a listener's connections need to know.
-spec srv(atom(), gen_tcp:socket(), erlane_http_metrics:handles(), erlane_http_log:target(),
          map()) -> #srv{}.
srv(Name, Listen, Metrics, Log, #{handler := {Module, Args}, tls := Tls} = O) ->
    #srv{name = Name, listen = Listen, metrics = Metrics, log = Log,
         log_query = maps:get(log_query, O), draining = {erlane_http_draining, Name},
         handler = Module, handle = fun Module:handle/2, args = Args,
         init = erlang:function_exported(Module, init, 2),
         event = erlang:function_exported(Module, event, 3),
         scheme = case Tls of none -> http; _ -> https end,
         tls = case Tls of none -> []; _ -> Tls end,
         limits = maps:with(maps:keys(erlane_http_head:limits()), O),
         max_body = maps:get(max_body, O), max_requests = maps:get(max_requests, O),
         max_chunk_ext = maps:get(max_chunk_ext, O), drain_bytes = maps:get(drain_bytes, O),
         head_timeout = maps:get(head_timeout, O), idle_timeout = maps:get(idle_timeout, O),
         body_grace = maps:get(body_grace, O), body_min_rate = maps:get(body_min_rate, O),
         send_timeout = maps:get(send_timeout, O),
         linger_timeout = maps:get(linger_timeout, O), tls_timeout = maps:get(tls_timeout, O)}.
