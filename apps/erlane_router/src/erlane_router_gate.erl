%% SPDX-License-Identifier: Apache-2.0
%% @doc The one registered process that routers of other nodes know.
%%
%% A lane says hello and gets a partner, or hears which language is spoken here. A gate that
%% starts tells the gates of all connected nodes, whose lanes may have found none here before.
%%
%% It sends nothing itself to other nodes: a node that does not read would stop it, and with it
%% the hellos of all others.
-module(erlane_router_gate).
-behaviour(gen_server).

-export([start_link/0, hello/2, malformed/1, malformed/0]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2, terminate/2]).

-include("erlane_router.hrl").

-record(state, {partners = #{} :: #{{node(), pos_integer()} => pid()},
                whose = #{} :: #{pid() => {node(), pos_integer()}}}).

-spec start_link() -> {ok, pid()} | {error, term()}.
start_link() ->
    gen_server:start_link({local, ?GATE}, ?MODULE, [], []).

%% @doc Says hello for the calling lane. Answers, sooner or later: `{erlane_router_gate, welcome,
%% Ref, Partner, Version}', `{erlane_router_gate, refused, Ref, Node, Version}', or Ref, which is a
%% monitor, goes down. Answers with another reference are late ones.
-spec hello(node(), pos_integer()) -> reference().
hello(Node, I) ->
    Monitor = monitor(process, {?GATE, Node}),
    {?GATE, Node} ! {?GATE, hello, ?VERSION, self(), I, Monitor},
    Monitor.

%% @doc Counts what was no frame of a lane here.
-spec malformed(pos_integer()) -> ok.
malformed(N) -> counters:add(persistent_term:get(?MODULE), 1, N).

%% @doc How many there were.
-spec malformed() -> non_neg_integer().
malformed() -> counters:get(persistent_term:get(?MODULE), 1).

-spec init([]) -> {ok, #state{}}.
init([]) ->
    process_flag(trap_exit, true),
    %% Put once, for good: a gate that starts again goes on counting.
    case persistent_term:get(?MODULE, none) of
        none -> persistent_term:put(?MODULE, counters:new(1, []));
        _ -> ok
    end,
    lists:foreach(fun(Node) -> away(Node, {?GATE, announce, ?VERSION, node()}) end,
                  nodes(connected)),
    {ok, #state{}}.

-spec handle_call(term(), gen_server:from(), #state{}) -> {noreply, #state{}}.
handle_call(_, _From, State) ->
    %% There are no calls, and an answer to a forged one might have no address.
    malformed(1),
    {noreply, State}.

-spec handle_cast(term(), #state{}) -> {noreply, #state{}}.
handle_cast(_, State) ->
    malformed(1),
    {noreply, State}.

-spec handle_info(term(), #state{}) -> {noreply, #state{}}.
handle_info({?GATE, hello, ?VERSION, Lane, I, Ref}, State)
  when is_pid(Lane), node(Lane) =/= node(), is_integer(I), I > 0, I =< 64, is_reference(Ref) ->
    {noreply, welcome(Lane, I, Ref, State)};
handle_info({?GATE, hello, Version, Lane, _, Ref}, State)
  when is_pid(Lane), Version =/= ?VERSION ->
    away(Lane, {?GATE, refused, Ref, node(), ?VERSION}),
    {noreply, State};
handle_info({?GATE, announce, _Version, Node}, State) when is_atom(Node) ->
    case persistent_term:get({erlane_router, Node}, none) of
        #peer{lanes = Lanes} ->
            lists:foreach(fun(Lane) -> Lane ! gate_up end, tuple_to_list(Lanes));
        none -> ok
    end,
    {noreply, State};
handle_info({'EXIT', Pid, _}, #state{partners = Partners, whose = Whose} = State) ->
    case maps:take(Pid, Whose) of
        {Key, Rest} when map_get(Key, Partners) =:= Pid ->
            {noreply, State#state{partners = maps:remove(Key, Partners), whose = Rest}};
        {_, Rest} ->
            {noreply, State#state{whose = Rest}};
        error ->
            {noreply, State}
    end;
handle_info(_, State) ->
    malformed(1),
    {noreply, State}.

-spec terminate(term(), #state{}) -> ok.
terminate(_Reason, _State) ->
    ok.

%% The one before may still have frames in its mailbox; what is behind `last' is not delivered.
welcome(Lane, I, Ref, #state{partners = Partners, whose = Whose} = State) ->
    Key = {node(Lane), I},
    Before = maps:get(Key, Partners, none),
    _ = is_pid(Before) andalso (Before ! {?GATE, last}),
    Pid = erlane_router_partner:start_link(Lane, I, Ref, Before),
    State#state{partners = Partners#{Key => Pid}, whose = Whose#{Pid => Key}}.

away(To, Message) ->
    _ = spawn(fun() -> tell(To, Message) end),
    ok.

tell(Node, Message) when is_atom(Node) -> erlang:send({?GATE, Node}, Message, [noconnect]);
tell(Pid, Message) -> erlang:send(Pid, Message, [noconnect]).
