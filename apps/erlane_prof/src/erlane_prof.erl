%% SPDX-License-Identifier: Apache-2.0
%% @doc The front door of erlane_prof: looks into a node, this one or another one that needs to
%% have nothing of erlane.
%%
%%     {ok, Probe} = erlane_prof:attach(Node, #{procs => 20, lanes => {erlane_socket, stats}}),
%%     {ok, Before} = erlane_prof:sample(Probe),
%%     {ok, After} = erlane_prof:sample(Probe),
%%     #{schedulers := _, lanes := _, procs := _} = erlane_prof:view(Before, After)
%%
%% A sample is what the VM counts, a view is what happened between two samples, a second.
-module(erlane_prof).

-export([connect/2, attach/2, detach/1, sample/1, sample/2, process/2, view/2, format_error/1]).
-export([run/1, schedulers/1]).

-export_type([probe/0, options/0, sample/0, view/0, error/0]).

-opaque probe() :: {?MODULE, node(), pid()}.
-type options() :: #{lanes => {module(), atom()} | none, procs => non_neg_integer(),
                     sort => reds | memory | mailbox, threads => boolean(),
                     ship => beam | forms}.
-type sample() :: erlane_prof_probe:sample().
-type view() :: erlane_prof_view:view().
-type error() :: erlane_prof_run:error().

-define(ANSWER_MS, 5000).

%% @doc Makes sure that we are connected to a node. If this VM is no node yet, it becomes a
%% hidden one that nobody can connect to, with a random name; names are long ones if the node's
%% host has a dot in it. `cookie' is that of the node, if it is not our own.
-spec connect(node(), #{cookie => atom()}) -> ok | {error, error()}.
connect(Node, Options) ->
    erlane_prof_attach:connect(Node, Options).

%% @doc Brings a probe to a node. It ends with the calling process, or by {@link detach/1}, and
%% leaves nothing.
%%
%% `lanes' names a function without arguments that returns a list of maps; it is called if its
%% module is loaded there. `procs' (0) is how many processes a sample has, `sort' (`reds') what
%% they are foremost in. `threads => false' leaves out the CPU times of the VM's threads. `ship'
%% is how the probe travels: as code, and if that does not load as source (`beam'), or as source
%% (`forms').
-spec attach(node(), options()) -> {ok, probe()} | {error, error()}.
attach(Node, Options) ->
    case erlane_prof_attach:attach(Node, Options) of
        {ok, Worker} -> {ok, {?MODULE, Node, Worker}};
        Error -> Error
    end.

%% @doc Ends a probe. What it changed is as before when its node has cleaned up, which nobody
%% waits for.
-spec detach(probe()) -> ok.
detach({?MODULE, _Node, _Worker} = Probe) ->
    _ = ask(Probe, stop),
    ok.

%% @doc One sample. Rates of processes and `util' need a sample before.
-spec sample(probe()) -> {ok, sample()} | {error, error()}.
sample(Probe) ->
    sample(Probe, #{}).

%% @doc One sample with another order or number of processes.
-spec sample(probe(), #{procs => non_neg_integer(), sort => reds | memory | mailbox}) ->
          {ok, sample()} | {error, error()}.
sample(Probe, Request) ->
    case ask(Probe, {sample, Request}) of
        {ok, Sample} when is_map(Sample) -> {ok, Sample};
        {error, Reason} -> {error, Reason}
    end.

%% @doc What can be told of one process of the probe's node: stack, links, sizes. `timeout' if
%% it does not answer, for instance because it runs native code.
-spec process(probe(), pid()) -> {ok, map()} | {error, ended | error()}.
process(Probe, Pid) ->
    case ask(Probe, {process, Pid}) of
        {ok, Answer} -> Answer;
        {error, Reason} -> {error, Reason}
    end.

%% @doc What happened between two samples of one probe.
-spec view(Before :: sample(), After :: sample()) -> view().
view(Before, After) ->
    erlane_prof_view:view(Before, After).

%% @doc An error as a sentence.
-spec format_error(error() | ended) -> string().
format_error(Reason) ->
    erlane_prof_run:format_error(Reason).

%% @doc Takes a profile of a node, and answers when it is done and all is as it was before.
%%
%% `mode' is `sample' (what processes do and what they wait for), `perf' (CPU time by Linux' perf,
%% of a node of this machine that was started with +JPperf map), `time' and `memory' (calls and
%% time, or words, of `functions'), `trace' (each call and return of `functions') or `latency' (how
%% long calls of up to 16 functions take, as histograms). `for' is how long, in milliseconds,
%% `events' how many samples at most; both are required. `node' is this one unless another is
%% named, to which {@link connect/2} comes first. `hz' (100) is how often it looks, and `depth' (64)
%% how many frames a stack may have. `procs' are the processes, by pid or registered name.
%% `progress' is called twice a second with what there is, and may answer `stop'.
%%
%% In mode `trace' `functions' may be `['_']', all that are loaded, if `force' is true; `with' adds
%% `spawns', `messages', `gc' or, beside all processes, `ports'; and `progress' is also told how
%% much of the trace is `read', of how many `bytes'. `tracer' is what the trace goes through:
%% native code where the node has it (`auto'), `native' or not at all, or the VM's file port
%% (`port'), for which an event counts as 100 bytes of the file. `buffer' is how many bytes the
%% native code keeps for each thread: 64 MB for all, 8 MB at most. What does not fit is dropped,
%% and counted as `lost'.
%%
%% It ends early, with what it has, when the node's run queues are long three seconds running,
%% when the agent has used its 64 MB, or the connection is lost; mode `trace' also when its disk is
%% full, and with the file port when the node's memory has grown by 32 MB and a twentieth; `notes'
%% say so. If the caller ends, nothing stays on the node.
-spec run(erlane_prof_run:options()) ->
          {ok, erlane_prof_profile:profile()} | {error, error()}.
run(Options) ->
    erlane_prof_run:run(Options).

%% @doc What the VM's own threads do: schedulers, run queues, microstate accounting, how processes
%% move, and locks where the VM counts them. Of the options of {@link run/1} it takes `for', which
%% is required, `node', `progress' and `ship'. {@link erlane_prof_schedulers:findings/1} says what
%% stands out, {@link erlane_prof_schedulers:format/1} makes a text of it.
-spec schedulers(#{for := pos_integer(), atom() => term()}) ->
          {ok, erlane_prof_schedulers:view()} | {error, error()}.
schedulers(Options) ->
    erlane_prof_run:schedulers(Options).

%% The alias goes with the monitor: an answer that comes too late is dropped.
ask({?MODULE, Node, Worker}, Request) ->
    Ref = monitor(process, Worker, [{alias, reply_demonitor}]),
    Worker ! {Request, Ref},
    receive
        {Ref, Answer} -> {ok, Answer};
        {'DOWN', Ref, process, Worker, Reason} -> {error, {gone, Node, Reason}}
    after ?ANSWER_MS ->
        demonitor(Ref, [flush]),
        receive {Ref, Answer} -> {ok, Answer}
        after 0 -> {error, {timeout, Node}}
        end
    end.
