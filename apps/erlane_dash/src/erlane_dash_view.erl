%% SPDX-License-Identifier: Apache-2.0
%% @doc What happened between two looks at the node, as the page wants it. Pure.
%%
%% The core of a tick has a history, its numbers are charts; the detail is only shown as it is
%% now. Groups of like things (lanes, schedulers, nodes, proxies) are columns: `id' and one list
%% for each figure.
-module(erlane_dash_view).

-export([tick/2]).

-export_type([look/0]).

-type look() ::
        #{time := integer(), sample := erlane_prof:sample(), proxies := [map()],
          procs := [map()]}.
%% `time': of the clock on the wall, in milliseconds, as browsers have it. `proxies': maps as
%% those of the proxy's `info', with a `name'. `procs': as in a sample.

-define(MAX_ROWS, 512).

%% @doc The core and the detail of the second look.
-spec tick(look(), look()) ->
          {Core :: #{atom() => erlane_dash_json:value()},
           Detail :: #{atom() => erlane_dash_json:value()}}.
tick(#{sample := S0, proxies := P0}, #{sample := S1, proxies := P1, time := T, procs := Procs}) ->
    #{ms := Ms, schedulers := Schedulers, dirty := Dirty, uptime_ms := Uptime} = View =
        erlane_prof:view(S0, S1),
    Queues = [N || #{runq := N} <- Schedulers],
    {#{t => T,
       lanes => columns(lane, maps:get(lanes, View),
                        [{waits, waits_s}, {events, events_s}, {epw, events_per_wait},
                         {sockets, sockets}, {in, in_s}, {out, out_s}, {accepted, accepted_s},
                         {relays, relays}, {moved, moved_s}, {sleeps, sleeps_s}]),
       sched => columns(id, Schedulers, [{util, util}, {queue, runq}]),
       runq => #{total => lists:sum(Queues), max => lists:max([0 | Queues]),
                 dirty => lists:sum([N || #{runq := N} <- Dirty])},
       mem => memory(maps:get(memory, View)),
       used => maps:with([processes, ports, atoms, ets], View),
       rate => maps:from_list([{Name, short(maps:get(Key, View))}
                               || {Name, Key} <- [{reductions, reductions_s}, {gc, gc_s},
                                                  {io_in, io_in_s}, {io_out, io_out_s}]]),
       dist => columns(node, maps:get(dist, View), [{in, in_s}, {out, out_s}, {queue, queue}]),
       proxies => columns(name, rates(P0, P1, Ms),
                          [{connections, connections}, {accepted, accepted_s},
                           {in, to_upstream_s}, {out, to_client_s}])},
     #{uptime => Uptime div 1000,
       online => length([on || #{online := true} <- Schedulers]),
       limits => limits(maps:get(limits, View)),
       procs => [process(P) || P <- Procs],
       proxies => [proxy(P) || P <- first(P1)]}}.

columns(Id, Rows0, Columns) ->
    Rows = first([Row || #{Id := _} = Row <- Rows0]),
    maps:from_list([{id, [id(maps:get(Id, Row)) || Row <- Rows]}
                    | [{Name, [short(maps:get(Key, Row, undefined)) || Row <- Rows]}
                       || {Name, Key} <- Columns]]).

id(N) when is_integer(N) -> N;
id(Name) when is_atom(Name) -> atom_to_binary(Name);
id(Other) -> text(Other).

first(List) -> lists:sublist(List, ?MAX_ROWS).

%% No more digits than anybody reads: history is held by the hundred.
short(N) when is_number(N), abs(N) >= 1000 -> round(N);
short(N) when is_float(N), N == trunc(N) -> trunc(N);
short(N) when is_float(N) -> round(N * 1000) / 1000;
short(N) when is_integer(N) -> N;
short(_) -> undefined.

memory(Memory) ->
    Known = [{Kind, maps:get(Kind, Memory, 0)} || Kind <- [processes, binary, ets, code, atom]],
    Total = maps:get(total, Memory, 0),
    maps:from_list([{total, Total}, {other, max(0, Total - lists:sum([N || {_, N} <- Known]))}
                    | Known]).

%% Of ETS tables the VM takes as many as there is memory for.
limits(Limits) ->
    (maps:with([processes, ports, atoms], Limits))#{ets => undefined}.

rates(Olds, News, Ms) ->
    Old = maps:from_list([{Name, Proxy} || #{name := Name} = Proxy <- Olds]),
    [maps:merge(New, maps:from_list(
                       [{Rate, rate(Key, maps:get(Name, Old, #{}), New, Ms)}
                        || {Rate, Key} <- [{accepted_s, accepted}, {to_upstream_s, to_upstream},
                                           {to_client_s, to_client}]]))
     || #{name := Name} = New <- News].

%% A counter that went back began anew.
rate(Key, Old, New, Ms) ->
    case {Old, New} of
        {#{Key := A}, #{Key := B}} when is_number(A), is_number(B), B >= A -> (B - A) * 1000 / Ms;
        _ -> undefined
    end.

proxy(Proxy) ->
    Up = [maps:get(up, Server, false) || #{} = Server <- maps:get(servers, Proxy, [])],
    #{state => case Proxy of
                   #{state := State} -> id(State);
                   _ -> undefined
               end,
      listen => address(maps:get(listen, Proxy, undefined)),
      to => address(maps:get(to, Proxy, undefined)),
      servers => length(Up),
      up => length([up || true <- Up]),
      errors => lists:sum([N || Key <- [connect_errors, accept_errors],
                                N <- [maps:get(Key, Proxy, 0)], is_integer(N)])}.

address(undefined) -> undefined;
address({local, Path}) -> text(Path);
address({Ip, Port}) when is_integer(Port) ->
    Host = case inet:ntoa(Ip) of
               {error, einval} -> text(Ip);
               Name when tuple_size(Ip) =:= 8 -> [$[, Name, $]];
               Name -> Name
           end,
    iolist_to_binary([Host, $:, integer_to_list(Port)]);
address(Other) -> text(Other).

text(Term) ->
    Format = case io_lib:printable_unicode_list(Term) orelse is_binary(Term) of
                 true -> "~ts";
                 false -> "~0tp"
             end,
    unicode:characters_to_binary(io_lib:format(Format, [Term], [{chars_limit, 200}])).

process(Process) ->
    #{pid => maps:get(id, Process), name => maps:get(name, Process),
      current => maps:get(current, Process), reds => maps:get(reds_s, Process, undefined),
      memory => maps:get(memory, Process, undefined), mailbox => maps:get(mq, Process, undefined)}.
