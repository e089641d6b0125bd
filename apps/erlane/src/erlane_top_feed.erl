%% SPDX-License-Identifier: Apache-2.0
%% @doc The process that has the probe of `erlane top', and waits for its answers.
%%
%% Each request has one answer, as `{Feed, Answer}' to the process that started the feed:
%% `{sample, Sample}', `{process, Details}', or `{away, Text}' if the node does not answer. A
%% probe that is gone is replaced at the next request.
-module(erlane_top_feed).

-export([start_link/2, stop/1, sample/2, process/2]).

-define(OPTIONS, #{lanes => {erlane_socket, stats}}).

%% @doc Starts it; `Way' is that of erlane_prof:connect/2.
-spec start_link(node(), map()) -> pid().
start_link(Node, Way) ->
    Owner = self(),
    spawn_link(fun() -> loop(Owner, Node, Way, none) end).

%% @doc Ends it and the probe.
-spec stop(pid()) -> ok.
stop(Feed) ->
    %% Not by a request: it may be waiting for the node.
    unlink(Feed),
    exit(Feed, kill),
    ok.

%% @doc Asks for a sample, see erlane_prof:sample/2.
-spec sample(pid(), map()) -> ok.
sample(Feed, Request) ->
    Feed ! {sample, Request},
    ok.

%% @doc Asks for the details of a process.
-spec process(pid(), pid()) -> ok.
process(Feed, Pid) ->
    Feed ! {process, Pid},
    ok.

loop(Owner, Node, Way, none) ->
    receive
        Request ->
            case attach(Node, Way) of
                {ok, Probe} -> serve(Request, Owner, Node, Way, Probe);
                {error, Reason} ->
                    Owner ! {self(), {away, erlane_prof:format_error(Reason)}},
                    loop(Owner, Node, Way, none)
            end
    end;
loop(Owner, Node, Way, Probe) ->
    receive Request -> serve(Request, Owner, Node, Way, Probe) end.

attach(Node, Way) ->
    case erlane_prof:connect(Node, Way) of
        ok -> erlane_prof:attach(Node, ?OPTIONS);
        Error -> Error
    end.

serve({sample, Request}, Owner, Node, Way, Probe) ->
    case erlane_prof:sample(Probe, Request) of
        {ok, Sample} ->
            Owner ! {self(), {sample, Sample}},
            loop(Owner, Node, Way, Probe);
        {error, Reason} ->
            Owner ! {self(), {away, erlane_prof:format_error(Reason)}},
            loop(Owner, Node, Way, gone(Reason, Probe))
    end;
serve({process, Pid}, Owner, Node, Way, Probe) ->
    Details = case erlane_prof:process(Probe, Pid) of
                  {ok, Found} -> Found;
                  {error, Reason} -> erlane_prof:format_error(Reason)
              end,
    Owner ! {self(), {process, Details}},
    loop(Owner, Node, Way, Probe).

%% One that is only slow is asked again.
gone({timeout, _}, Probe) -> Probe;
gone(_, _) -> none.
