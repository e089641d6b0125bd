%% SPDX-License-Identifier: Apache-2.0
%% @doc Makes the stock distribution as fast as its settings allow, and shows what it does.
%%
%% ```
%% {ok, Changes} = erlane_dist:tune(),
%% [] = [C || #{fix := now} = C <- erlane_dist:check()],
%% {ok, _} = erlane_dist:untune(Changes).
%% '''
%% Only settings of sockets change: what is sent, in which order and to whom stays as it was. Each
%% node tunes its own sending and reading, so it is run on all of them.
%%
%% `tune', `untune' and `check' need nothing to be started. Busy events are counted, and series
%% given to `erlane_metrics', while the application runs.
-module(erlane_dist).

-export([tune/0, tune/1, tune/2, untune/1, untune/2, check/0, check/1, boot_lines/0]).
-export([busy/0, busy/1, busy_source/0]).

-export_type([options/0, change/0, finding/0]).

-type options() :: #{buffer => pos_integer(), delay_send => boolean(),
                     high_watermark => pos_integer(), low_watermark => pos_integer(),
                     nodes => all | [new | node()], dry_run => boolean()}.
%% Sizes in bytes. A size that is given is set; without it a larger one than ours stays. `nodes':
%% `all' (default) is `new', that is all connections to come, and every connection there is,
%% hidden ones too. `dry_run': says what would change.

-type change() :: #{where := new | node(), key := erlane_dist_opts:key() | all,
                    was := term(), now := term(), result := ok | dry_run | {error, term()},
                    side => connect | accept, connection => port() | pid(), kept => term()}.
%% `side' is there for `new': connections that this node makes, and those that it accepts.
%% `connection' and `kept' are for {@link untune/1}.

-type finding() :: #{where := vm | new | node(), key := atom(), is := term(), want := term(),
                     fix := now | boot, line := string(), why := string(),
                     side => connect | accept}.

%% @doc The same as `tune(#{})'.
-spec tune() -> {ok, [change()]} | {error, not_alive | {gone, node(), term()}}.
tune() -> tune(#{}).

%% @doc Sets the options of present and future connections; says what changed, `new' first, and
%% nothing twice: a second call changes nothing.
%%
%% What cannot be set is a change too, with its error, and the rest is set all the same:
%% `enotsup' where the carrier is not TCP (TLS, for instance), `noconnection' for a node that is
%% not connected, or no longer, `timeout' for one whose connection does not answer within five
%% seconds, and `{kernel, Variable, Option}' when an option in the kernel's environment is none
%% that net_kernel could merge ours with.
-spec tune(options()) ->
          {ok, [change()]} | {error, not_alive | {bad_option, Key :: term()}
                              | {gone, node(), term()}}.
tune(Opts) -> erlane_dist_tune:tune(node(), Opts).

%% @doc Tunes another node, which needs nothing of erlane; our connection to it is left out.
-spec tune(node(), options()) ->
          {ok, [change()]} | {error, not_alive | {bad_option, Key :: term()}
                              | {gone, node(), term()}}.
tune(Node, Opts) -> erlane_dist_tune:tune(Node, Opts).

%% @doc Undoes what {@link tune/1} said it changed: each connection gets the values it had before,
%% and connections that came up since those that they would have had. The changes of the last
%% tune come first. Connections that are gone are `{error, noconnection}'. `restarted': the node
%% was, since, and nothing that was set is there any more.
-spec untune([change()]) ->
          {ok, [change()]} | {error, not_alive | restarted | {bad_option, changes}
                              | {gone, node(), term()}}.
untune(Changes) -> erlane_dist_tune:untune(node(), Changes).

%% @doc The same on another node.
-spec untune(node(), [change()]) ->
          {ok, [change()]} | {error, not_alive | restarted | {bad_option, changes}
                              | {gone, node(), term()}}.
untune(Node, Changes) -> erlane_dist_tune:untune(Node, Changes).

%% @doc What is set in a way that costs, and why; `[]' if all is well. `fix' is `now' for what
%% `line', in a shell, can change, and `boot' for what needs the line where the node is started.
-spec check() -> [finding()].
check() ->
    {ok, Findings} = check(node()),
    Findings.

%% @doc The same for another node, which needs nothing of erlane.
-spec check(node()) -> {ok, [finding()]} | {error, {gone, node(), term()}}.
check(Node) -> erlane_dist_check:check(Node).

%% @doc What a node is started with so that {@link check/0} finds nothing: lines of `vm.args', and
%% a `sys.config' of which the two entries of `kernel' are to be taken.
-spec boot_lines() -> #{vm_args := iodata(), sys_config := iodata()}.
boot_lines() -> erlane_dist_opts:boot_lines().

%% @doc How often a sender was suspended because the connection was busy, by node. Nothing is
%% counted, and nothing is there, before the application was started.
-spec busy() -> #{node() => non_neg_integer()}.
busy() -> erlane_dist_busy:counts().

%% @doc Counts a message of `erlang:system_monitor/2' that the one who holds it (there is but one
%% in a VM) got and forwards. Other messages than of `busy_dist_port' do nothing.
-spec busy(term()) -> ok.
busy(Message) -> erlane_dist_busy:event(Message).

%% @doc Where busy events come from: a trace session of our own (OTP 28 and later), the system
%% monitor, those who forward; or nowhere, because another process holds the system monitor.
-spec busy_source() -> trace | system_monitor | forwarded | {held, pid() | port()} | none.
busy_source() -> erlane_dist_busy:source().
