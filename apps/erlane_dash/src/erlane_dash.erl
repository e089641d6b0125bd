%% SPDX-License-Identifier: Apache-2.0
%% @doc A live page about this node, and `/metrics' beside it.
%%
%% ```
%% {ok, _} = application:ensure_all_started(erlane_dash),
%% {ok, #{url := Url}} = erlane_dash:start(#{port => 9570, lanes => {erlane_socket, stats}}).
%% '''
%%
%% There is one page in a node. It only shows, and it samples only while somebody looks at it.
%% It listens on the loopback address unless told otherwise; anywhere else a token is needed.
-module(erlane_dash).

-export([start/1, stop/0, info/0, format_error/1]).

-export_type([options/0, info/0]).

-type options() :: erlane_dash_opts:options().
-type info() :: #{url := binary(), port := inet:port_number(), viewers := non_neg_integer(),
                  samples := non_neg_integer(), skipped := non_neg_integer(),
                  held := non_neg_integer(), rhythm := pos_integer() | none}.
%% `url' is without the token; the rest is that of {@link erlane_dash_sampler:info/0}.

%% @doc Starts the page. Errors name the option, `{token, {needed_for, Ip}}' for instance, or are
%% what listening failed with; {@link format_error/1} makes a sentence of each.
-spec start(options()) -> {ok, info()} | {error, {atom(), term()} | inet:posix()}.
start(Options) ->
    case erlane_dash_opts:check(Options) of
        {ok, Config} ->
            case erlane_dash_sup:start_page(Config) of
                ok -> {ok, info()};
                Error -> Error
            end;
        Error ->
            Error
    end.

%% @doc Ends the page.
-spec stop() -> ok | {error, not_found}.
stop() ->
    erlane_dash_sup:stop_page().

%% @doc Where the page is, and what it does.
-spec info() -> info() | {error, not_found}.
info() ->
    case erlane_http:info(?MODULE) of
        #{scheme := Scheme, ip := Ip, port := Port} ->
            (erlane_dash_sampler:info())#{url => url(Scheme, Ip, Port), port => Port};
        {error, not_found} ->
            {error, not_found}
    end.

%% An address that stands for all is reached by any: the loopback is the nearest.
url(_, {local, Path}, _) -> iolist_to_binary(["unix:", Path]);
url(Scheme, {0, 0, 0, 0}, Port) -> url(Scheme, {127, 0, 0, 1}, Port);
url(Scheme, {0, 0, 0, 0, 0, 0, 0, 0}, Port) -> url(Scheme, {0, 0, 0, 0, 0, 0, 0, 1}, Port);
url(Scheme, Ip, Port) ->
    Host = case tuple_size(Ip) of
               4 -> inet:ntoa(Ip);
               8 -> [$[, inet:ntoa(Ip), $]]
           end,
    iolist_to_binary([atom_to_binary(Scheme), "://", Host, $:, integer_to_binary(Port), $/]).

%% @doc One line of text, without a newline, for an error of {@link start/1}.
-spec format_error(term()) -> string().
format_error(Reason) ->
    erlane_dash_opts:format_error(Reason).
