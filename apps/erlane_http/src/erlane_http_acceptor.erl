%% SPDX-License-Identifier: Apache-2.0
%% @doc A keeper of connections; a listener has one for each scheduler. It has one process waiting
%% for the next connection, counts those that are open, and knows each: whoever else links to it
%% and dies is none of them.
%%
%% It is bound to no scheduler: where a connection's process runs its keeper is mostly run next,
%% while to wake another scheduler for each short connection costs more than all its own work.
%%
%% The limit is exact with any number of acceptors: a place is taken before a process may
%% accept, and given back when that process has ended. At the limit the backlog waits. A place
%% that is given back while somebody waits is told to all acceptors; whoever asks first has it,
%% and no wake-up is lost, because who waits counts itself in before it asks for the last time.
-module(erlane_http_acceptor).

-export([start_link/3, drain/1, cut/1, places/1]).
-export([init/4]).

-export_type([places/0]).

-include_lib("kernel/include/logger.hrl").

-opaque places() :: {atomics:atomics_ref(), Max :: pos_integer() | infinity}.

-record(st, {server :: pid(),
             key :: term(),
             places :: places(),
             metrics :: erlane_http_metrics:handles(),
             waiting :: pid() | undefined,  % the process that accepts
             hungry = false :: boolean(),   % no place was left for one
             open = 0 :: non_neg_integer(),
             cut = false :: boolean(),
             draining = false :: boolean()}).

-define(USED, 1).
-define(HUNGRY, 2).
%% A process that ended before it accepted is followed by another one after this pause.
-define(PAUSE_MS, 100).

%% @doc Places for a listener.
-spec places(pos_integer() | infinity) -> places().
places(Max) -> {atomics:new(2, [{signed, true}]), Max}.

%% @doc Starts an acceptor; Key is that of the listener's #srv{}. It
%% sends `{drained, Pid}' to its caller when nothing is left after {@link drain/1}, and
%% `place' when another acceptor may have one.
-spec start_link(term(), places(), erlane_http_metrics:handles()) -> pid().
start_link(Key, Places, Metrics) ->
    spawn_link(?MODULE, init, [self(), Key, Places, Metrics]).

%% @doc The listening socket is closed: wait for the connections to end, and tell them.
-spec drain(pid()) -> ok.
drain(Pid) -> Pid ! drain, ok.

%% @doc Ends the connections that are left.
-spec cut(pid()) -> ok.
cut(Pid) -> Pid ! cut, ok.

%% @private
-spec init(pid(), term(), places(), erlane_http_metrics:handles()) -> ok.
init(Server, Key, Places, Metrics) ->
    process_flag(trap_exit, true),
    loop(more(#st{server = Server, key = Key, places = Places, metrics = Metrics})).

loop(#st{server = Server, waiting = Waiting} = St) ->
    receive
        {accepted, Waiting} ->
            ok = erlane_http_metrics:opened(St#st.metrics),
            %% The cheapest set there is, for once: it grows and shrinks in place.
            undefined = put(Waiting, open),
            loop(more(St#st{waiting = undefined, open = St#st.open + 1}));
        {'EXIT', Waiting, Reason} -> not_accepted(Reason, St#st{waiting = undefined});
        {'EXIT', Server, Reason} -> exit(Reason);
        {'EXIT', Pid, Reason} ->
            case erase(Pid) of
                open -> drained(more(ended(Reason, St)));
                undefined -> loop(St)
            end;
        place -> loop(more(St));
        drain ->
            lists:foreach(fun(Pid) -> Pid ! {erlane_http, drain} end, connections(St)),
            drained(St#st{draining = true});
        cut ->
            lists:foreach(fun(Pid) -> exit(Pid, kill) end, connections(St)),
            loop(St#st{cut = true})
    end.

%% Who waits is one of them: it may have accepted by now.
connections(#st{waiting = Waiting}) -> [Pid || Pid <- [Waiting | get_keys(open)], is_pid(Pid)].

ended(Reason, #st{metrics = Metrics, open = Open} = St) ->
    ok = erlane_http_metrics:closed(Metrics, 1),
    died(Reason, St),
    give(St),
    St#st{open = Open - 1}.

died(normal, _) -> ok;
died(killed, #st{cut = true}) -> ok;
%% The handler is told, and what it does then must not hold up the others.
died(Reason, #st{key = Key}) ->
    case persistent_term:get(Key, gone) of
        gone -> ok;
        Srv -> _ = spawn(fun() -> erlane_http_account:died(Reason, Srv) end), ok
    end.

drained(#st{draining = true, waiting = undefined, open = 0} = St) ->
    St#st.server ! {drained, self()},
    loop(St);
drained(St) ->
    loop(St).

not_accepted({shutdown, closed}, #st{draining = false}) ->
    exit(listening_socket_lost);
not_accepted(Reason, St) ->
    give(St),
    case Reason of
        {shutdown, closed} -> ok;
        _ when St#st.draining -> ok;
        _ ->
            ?LOG_ERROR("http: an acceptor crashed: ~0tp", [Reason]),
            receive after ?PAUSE_MS -> ok end
    end,
    drained(more(St)).

%% One process waits for the next connection, if there may be one.
more(#st{waiting = undefined, draining = false, places = Places, key = Key} = St) ->
    case take(Places) of
        true -> fed(St#st{waiting = erlane_http_conn:start_link(Key)});
        false when St#st.hungry -> St;
        false ->
            {Ref, _} = Places,
            ok = atomics:add(Ref, ?HUNGRY, 1),
            more(St#st{hungry = true})
    end;
more(#st{draining = true} = St) ->
    fed(St);
more(St) ->
    St.

fed(#st{hungry = true, places = {Ref, _}} = St) ->
    ok = atomics:sub(Ref, ?HUNGRY, 1),
    St#st{hungry = false};
fed(St) ->
    St.

take({_, infinity}) -> true;
take({Ref, Max}) -> take(Ref, Max, atomics:get(Ref, ?USED)).

take(_, Max, Used) when Used >= Max -> false;
take(Ref, Max, Used) ->
    case atomics:compare_exchange(Ref, ?USED, Used, Used + 1) of
        ok -> true;
        Now -> take(Ref, Max, Now)
    end.

give(#st{places = {_, infinity}}) -> ok;
give(#st{places = {Ref, _}, server = Server}) ->
    ok = atomics:sub(Ref, ?USED, 1),
    case atomics:get(Ref, ?HUNGRY) of
        0 -> ok;
        _ -> Server ! place, ok
    end.
