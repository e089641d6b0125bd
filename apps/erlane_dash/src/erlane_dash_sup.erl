%% SPDX-License-Identifier: Apache-2.0
%% @doc Supervisor of the page: its sampler, and its listener of `erlane_http'.
-module(erlane_dash_sup).
-behaviour(supervisor).

-export([start_link/0, start_page/1, stop_page/0]).
-export([start_page_link/2]).
-export([init/1]).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    supervisor:start_link({local, ?MODULE}, ?MODULE, all).

%% @doc Starts the page with checked options.
-spec start_page(erlane_dash_opts:config()) -> ok | {error, {atom(), term()} | inet:posix()}.
start_page(Config) ->
    case erlane_dash_assets:load() of
        {ok, Assets} ->
            case supervisor:start_child(?MODULE, page(Config, Assets)) of
                {ok, _} -> ok;
                {error, Reason} -> {error, reason(Reason)}
            end;
        {error, {File, Reason}} ->
            {error, {priv, {Reason, File}}}
    end.

reason({already_started, _}) -> {page, already_started};
reason({{shutdown, {failed_to_start_child, _, Reason}}, _Child}) -> reason(Reason);
reason({shutdown, {failed_to_start_child, _, Reason}}) -> reason(Reason);
reason({shutdown, Reason}) -> reason(Reason);
reason({_, _} = Reason) -> Reason;
reason(Reason) when is_atom(Reason) -> Reason;
reason(Reason) -> {start, Reason}.

%% @doc Ends the page.
-spec stop_page() -> ok | {error, not_found}.
stop_page() ->
    case supervisor:terminate_child(?MODULE, page) of
        ok -> _ = supervisor:delete_child(?MODULE, page), ok;
        Error -> Error
    end.

page(Config, Assets) ->
    #{id => page, start => {?MODULE, start_page_link, [Config, Assets]}, type => supervisor}.

%% @private
-spec start_page_link(erlane_dash_opts:config(), erlane_dash_assets:assets()) ->
          {ok, pid()} | {error, term()}.
start_page_link(Config, Assets) ->
    supervisor:start_link(?MODULE, {Config, Assets}).

-spec init(all | {erlane_dash_opts:config(), erlane_dash_assets:assets()}) ->
          {ok, {supervisor:sup_flags(), [supervisor:child_spec()]}}.
init(all) ->
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, []}};
init({#{ip := Ip, port := Port, http := Http} = Config, Assets}) ->
    Args = #{token => maps:get(token, Config), loopback => erlane_dash_opts:loopback(Ip),
             hosts => maps:get(hosts, Config), assets => Assets},
    Listener = erlane_http:child_spec(
                 %% A token may come as a query, which is nothing for an access log.
                 erlane_dash, maps:merge(#{drain => 1000, log_query => false},
                                         Http#{handler => {erlane_dash_handler, Args}, ip => Ip,
                                               port => Port})),
    Sampler = #{id => sampler, start => {erlane_dash_sampler, start_link, [Config]}},
    %% The sampler is stopped first: its end is the end of all streams, which the listener would
    %% wait for.
    {ok, {#{strategy => one_for_one, intensity => 5, period => 10}, [Listener, Sampler]}}.
