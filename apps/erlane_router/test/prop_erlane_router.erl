%% SPDX-License-Identifier: Apache-2.0
%% Properties of the router. Those with nodes get them from their suite.
-module(prop_erlane_router).

-export([prop_group/0, prop_fuzz_frame/0, prop_up/2]).

-include_lib("proper/include/proper.hrl").

%% Whatever the list: each node's part in order, nothing more and nothing less.
prop_group() ->
    ?FORALL(Dests, list(dest()),
            begin
                Groups = erlane_router_dest:group(Dests),
                Nodes = [Node || {Node, _, _} <- Groups],
                Placed = [erlane_router_dest:place(D) || D <- Dests],
                lists:usort(Nodes) =:= lists:sort(Nodes) andalso
                    lists:sum([N || {_, N, _} <- Groups]) =:= length(Dests) andalso
                    lists:all(fun({Node, N, Ats}) ->
                                      Ats =:= [At || {A, At} <- Placed, A =:= Node] andalso
                                          N =:= length(Ats)
                              end, Groups)
            end).

dest() ->
    oneof([{oneof([a, b]), oneof(['x@h', 'y@h', node()])}, oneof([a, b]),
           ?LAZY(self()), ?LAZY(make_ref())]).

%% No term that another node sends as entries raises, and the good one behind it arrives.
prop_fuzz_frame() ->
    ?FORALL(Junk, list(oneof([any(), junk()])),
            begin
                Ref = make_ref(),
                Bad = erlane_router_frame:deliver(Junk ++ [{self(), Ref, 9}]),
                receive Ref -> is_integer(Bad) after 0 -> false end
            end).

%% What looks nearly right. No name that is registered: what gets such a message may mind it.
junk() ->
    ?LET({A, B, C}, {any(), any(), int()},
         oneof([{A, B, C}, {many, A, B, C, C}, {many, [A | B], B, C, C}, {large, A, B, C, C},
                {large, [A], {raw, B}, C, C}, {large, A, term_to_binary(B), C, C},
                {no_such_name, B, C}, {run, A, B, 0}, {run, no_such_name, [A | B], 0}])).

%% Sends, in any mixture, to sinks of another node: after a sync each sink has what was sent to
%% it, in order, once.
prop_up(Node, Sinks) ->
    ?FORALL(Steps, non_empty(list(step(length(Sinks)))),
            begin
                Sent = run(number(Steps), Sinks, Node),
                ok = erlane_router:sync(Node, 20000),
                Got = [erlane_router_ct:take(Sink) || Sink <- Sinks],
                Want = [[M || {S, M} <- Sent, S =:= Sink] || Sink <- Sinks],
                ?WHENFAIL(io:format("want ~0P~ngot ~0P~n", [Want, 60, Got, 60]), Got =:= Want)
            end).

number(Steps) -> lists:zip(lists:seq(1, length(Steps)), Steps).

step(N) ->
    frequency([{10, {to, range(1, N), size_of()}},
               {3, {to_all, size_of()}},
               {2, {to_some, list(range(1, N)), size_of()}},
               {1, {burst, range(1, 3000), range(1, N)}},
               {1, sync}, {1, pause}, {1, yield}]).

size_of() ->
    frequency([{6, range(0, 300)}, {2, range(1000, 20000)}, {1, range(16000, 17000)},
               {1, range(60000, 70000)}, {1, {list, range(1, 40000)}}]).

run(Steps, Sinks, Node) ->
    lists:append([step(I, Step, Sinks, Node) || {I, Step} <- Steps]).

step(I, {to, S, Size}, Sinks, _) ->
    Sink = lists:nth(S, Sinks),
    Message = {I, payload(Size)},
    ok = erlane_router:send(Sink, Message),
    [{Sink, Message}];
step(I, {to_all, Size}, Sinks, _) -> many(I, Sinks, Size);
step(I, {to_some, Ss, Size}, Sinks, _) -> many(I, [lists:nth(S, Sinks) || S <- Ss], Size);
step(I, {burst, N, S}, Sinks, _) ->
    Sink = lists:nth(S, Sinks),
    [begin
         ok = erlane_router:send(Sink, {I, J}),
         {Sink, {I, J}}
     end || J <- lists:seq(1, N)];
step(_, sync, _, Node) -> ok = erlane_router:sync(Node, 20000), [];
step(_, pause, _, _) -> receive after 2 -> [] end;
step(_, yield, _, _) -> erlang:yield(), [].

many(I, Sinks, Size) ->
    Message = {I, payload(Size)},
    ok = erlane_router:send(Sinks, Message),
    [{Sink, Message} || Sink <- Sinks].

payload({list, N}) -> lists:seq(1, N);
payload(N) -> binary:copy(<<"x">>, N).
