%% SPDX-License-Identifier: Apache-2.0
%% Records that the modules of this app share. None of them is public: users have the accessors
%% of erlane_http.

%% What a listener's connections need to know. Made once when the listener starts and kept as a
%% persistent term, so that no connection has a copy of it.
-record(srv, {name :: atom(),
              listen :: gen_tcp:socket(),
              handler :: module(),
              %% Its handle/2, which need not be looked up by name for each request.
              handle :: fun((term(), term()) -> term()),
              args :: term(),
              init = false :: boolean(),            % the handler exports init/2
              event = false :: boolean(),           % the handler exports event/3
              scheme = http :: http | https,
              tls = [] :: [term()],
              limits :: erlane_http_head:limits(),
              max_body :: non_neg_integer() | infinity,
              max_requests :: pos_integer() | infinity,
              max_chunk_ext :: non_neg_integer(),
              drain_bytes :: non_neg_integer(),
              head_timeout :: timeout(),
              idle_timeout :: timeout(),
              body_grace :: non_neg_integer(),
              body_min_rate :: non_neg_integer(),   % bytes a second
              send_timeout :: timeout(),
              linger_timeout :: non_neg_integer(),
              tls_timeout :: timeout(),
              %% Key of a persistent term that is true while the listener drains: read for each
              %% answer, where atomics:get/2 would wait for all that was written before.
              draining :: term(),
              metrics :: erlane_http_metrics:handles(),
              log :: erlane_http_log:target(),
              log_query :: boolean()}).

%% What a connection reads from and writes to: constant as long as it lives, but for `buffer',
%% bytes that were read and not yet used.
-record(conn, {socket :: gen_tcp:socket() | ssl:sslsocket(),
               transport = tcp :: tcp | ssl,
               %% Beneath TLS.
               under :: gen_tcp:socket() | undefined,
               buffer = <<>> :: binary(),
               %% Ends with this one, also if it should trap exits.
               parent :: pid(),
               srv :: #srv{}}).

%% A request's head as erlane_http_head reads it.
-record(head, {method :: binary(),
               target :: binary(),                  % as it was sent
               path :: binary(),                    % raw; <<"*">> for OPTIONS *
               query = <<>> :: binary(),            % raw, without the question mark
               version = {1, 1} :: {1, 0..9},
               headers = [] :: [{binary(), binary()}], % names in lower case, in order
               host = <<>> :: binary(),             % <<>> only in HTTP/1.0
               body = none :: none | pos_integer() | chunked,
               close = false :: boolean(),          % the client wants it closed afterwards
               expect = false :: boolean()}).       % Expect: 100-continue

-record(req, {head :: #head{},
              conn :: #conn{},
              body = <<>> :: binary() | stream,
              plain = false :: boolean(),           % its answer is framed in the simplest way
              trailers = [] :: [{binary(), binary()}]}).
