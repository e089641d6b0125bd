%% SPDX-License-Identifier: Apache-2.0
%% @doc Messages to other nodes in batches, one copy for each node.
%%
%% ```
%% {ok, _} = application:ensure_all_started(erlane_router).
%% ok = erlane_router:send(Pid, hello).
%% ok = erlane_router:send([Pid, {name, Node}, Alias | Pids], News).
%% ok = erlane_router:sync([Node]).
%% '''
%% What one process sends to another arrives in order and once, as long as the nodes stay
%% connected. What was queued for a node when the connection was lost is dropped, counted and
%% reported; nothing of it reaches the node's next incarnation. Between routed and plain sends,
%% and against links, monitors and exits, there is no order.
%%
%% A node that does not run the router gets plain sends. So do local destinations.
-module(erlane_router).

-export([send/2, send/3, sync/1, sync/2, subscribe/0, unsubscribe/0, watch/1, unwatch/1, info/0]).
-export([call/2, call/3, cast/2, multicall/3]).

-export_type([dest/0, option/0, info/0]).

-type dest() :: erlane_router_dest:dest().
%% A process, an alias, `{Name, Node}', or a name of this node.
-type option() :: noconnect | nosuspend | priority | {key, term()}.
-type info() :: erlane_router_info:info().

-define(TIMEOUT, 5000).

%% @doc Sends a message to a destination or to a list of them. Always ok, as `!' is, whether the
%% receiver exists or not. It waits while the lane is full, if the policy is `block'. Raises
%% badarg for what is no destination and for an improper list; then nothing was sent. A list is
%% taken as it is: a duplicate gets the message again. For another node without the application
%% here it raises `{not_started, erlane_router}'.
-spec send(dest() | [dest()], term()) -> ok.
send(Pid, Message) when is_pid(Pid) ->
    erlane_router_send:one(node(Pid), Pid, Message, self());
send(Dests, Message) when is_list(Dests) ->
    lists:foreach(fun({Node, N, Ats}) ->
                          erlane_router_send:many(Node, N, Ats, Message, self())
                  end,
                  erlane_router_dest:group(Dests));
send(Dest, Message) ->
    {Node, At} = erlane_router_dest:place(Dest),
    erlane_router_send:one(Node, At, Message, self()).

%% @doc With options. `noconnect' and `nosuspend': nothing is sent to a node that is not
%% connected, or whose lane is full, and the answer names it. `{key, Key}' picks the lane by the
%% key instead of the sender; between different keys there is no order. `priority' is a plain
%% send, outside all order, with the VM's option of that name from OTP 28 on. Raises badarg for
%% another option.
-spec send(dest() | [dest()], term(), [option()]) ->
          ok | {not_sent, #{node() => noconnect | nosuspend}}.
send(Dests, Message, Options) ->
    erlane_router_send:with(Dests, Message, Options).

%% @doc `sync(Nodes, 5000)'.
-spec sync(node() | [node()]) ->
          ok | {error, #{node() => timeout | nodedown | no_router}}.
sync(Nodes) -> sync(Nodes, ?TIMEOUT).

%% @doc Waits until everything that the caller has sent to these nodes is in the mailboxes. What
%% was lost before the call has been reported and is not waited for. `no_router': that node gets
%% plain sends, nobody knows.
-spec sync(node() | [node()], timeout()) ->
          ok | {error, #{node() => timeout | nodedown | no_router}}.
sync(Node, Timeout) when is_atom(Node) -> sync([Node], Timeout);
sync(Nodes, Timeout) -> erlane_router_sync:sync(Nodes, Timeout).

%% @doc From now on the caller gets
%%
%% ```
%% {erlane_router, down, Node, #{dropped := N, unconfirmed := M}}
%% {erlane_router, dropped, Node, N}
%% '''
%% The first when the connection to a node is lost: N messages were still here, M had been handed
%% to the VM and their arrival was not confirmed. The second, at most once a second, when a full
%% lane has refused some under the policy `drop_newest'.
-spec subscribe() -> ok.
subscribe() -> erlane_router_report:subscribe().

%% @doc No more of them.
-spec unsubscribe() -> ok.
unsubscribe() -> erlane_router_report:unsubscribe().

%% @doc From now on each of these registered processes gets `{erlane_router, stream, Node, Lane}'
%% when a lane of another node begins to send here, before anything of what it sends, and after
%% all that came from that lane before. A lane that begins twice over one connection was lost, or
%% its partner here was, with what it had. The router need not be started.
-spec watch([atom()]) -> ok.
watch(Names) -> erlane_router_partner:watch(Names).

%% @doc Not any more.
-spec unwatch([atom()]) -> ok.
unwatch(Names) -> erlane_router_partner:unwatch(Names).

%% @doc The figures of each lane. `peer' is how the node is reached now; `queued' and `bytes' are
%% what waits here, `inflight' what was handed to the VM and is not confirmed; the rest counts
%% since the start. Messages to many count once for each destination. Of all that was accepted
%% for nodes with a router, `queued + inflight + confirmed + dropped + unconfirmed' is the sum.
-spec info() -> info().
info() -> erlane_router_info:info().

%% @doc `call(Dest, Request, 5000)'.
-spec call(pid() | atom() | {atom(), node()}, term()) -> term().
call(Dest, Request) -> call(Dest, Request, ?TIMEOUT).

%% @doc As `gen_server:call/3', with the same reasons of exit; the request is routed, the answer
%% comes as the server sends it.
-spec call(pid() | atom() | {atom(), node()}, term(), timeout()) -> term().
call(Dest, Request, Timeout) -> erlane_router_call:call(Dest, Request, Timeout).

%% @doc As `gen_server:cast/2', also to many.
-spec cast(dest() | [dest()], term()) -> ok.
cast(Dests, Request) -> send(Dests, {'$gen_cast', Request}).

%% @doc Calls all of them at the same time. The answers, and why others gave none: `timeout', or
%% as the reason of exit of {@link call/3}. Both in the order of the list.
-spec multicall([pid() | atom() | {atom(), node()}], term(), timeout()) ->
          {[{dest(), term()}], [{dest(), term()}]}.
multicall(Dests, Request, Timeout) -> erlane_router_call:multicall(Dests, Request, Timeout).
